/* The log writer's own side (writer_io.h): what runs in its process. The agent decides what goes
 * where (logmux_io.h). */
#pragma once

#include "launcher/job/job.h"
#include "launcher/output/console_io.h"

/* Serves the socket until FINISH, or its end. console: this process's copy of the agent's, on
 * standard output and error. Returns the exit status. */
int writer_process_run(int fd, struct console *console, const struct job_spec *spec);
