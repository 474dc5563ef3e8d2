/* From a job to its exit status: splits this process into a guardian and an agent, and runs the
 * agent. The last thing that `muster run` does. */
#pragma once

#include "launcher/job/job.h"

/* envp: what the workers inherit; borrowed, as the job is. Returns in the agent only: the status
 * that the process is to exit with (128+n after a signal); failures have been reported. */
int job_start(const struct job_spec *spec, char *const *envp);
