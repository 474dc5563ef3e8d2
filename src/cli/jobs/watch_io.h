/* Shows a job's state on standard output, once or until the job ends. */
#pragma once

#include "cli/jobs/operate.h"

enum watch_format { WATCH_TEXT = 1, WATCH_WIDE, WATCH_JSON };

/* Returns the exit status. again: every second, in place on a terminal. */
_must_use_ int watch_job(const struct operation *op, enum watch_format format, bool again);
