/* Shows a job's state on standard output, once or until the job ends. */
#pragma once

#include "cli/jobs/operate.h"

/* Returns the exit status. again: every second, in place on a terminal. */
_must_use_ int watch_job(const struct operation *op, bool json, bool again);
