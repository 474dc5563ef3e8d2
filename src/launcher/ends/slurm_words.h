/* What scontrol(1) says about the end of a job, in its own words. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* KillWait of `scontrol show config`: the time from SIGTERM to SIGKILL at the end of a job.
 * slurm.conf(5). False: it isn't there. */
_must_use_ bool slurm_kill_wait(const char *config, uint64_t *ret_ns);
/* Why `scontrol show job --oneliner` says that the job ends, as half a sentence. NULL: it does not
 * end, or nothing is said. States and reasons as in squeue(1). Static text. */
const char *slurm_end_reason(const char *job);
