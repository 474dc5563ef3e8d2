/* What killed agents of this user left behind: temporary folders, cgroups, files in the run
 * directory. Each agent looks once: when its workers run for a while, in a process of its own,
 * since what it looks at may be slow or hang; else for a moment at its end.
 *
 * What a living agent has is never touched, be it in another container: living agents hold locks
 * (flock(2)) on what they have, and without a lock of this boot nothing is called left. */
#pragma once

#include "io/process/helper.h"
#include "launcher/job/job.h"

#define LEFTOVERS_NS (10 * NS_PER_S) /* then the rest is left to others */

/* Starts looking. helper_end() ends it, whether it is done or not. 0 or a negative errno. */
_must_use_ int leftovers_sweep(struct loop *loop, enum job_contain contain, struct helper *ret);
/* Looks now, for LEFTOVERS_SOME_NS. */
#define LEFTOVERS_SOME_NS (NS_PER_MS / 2)
void leftovers_sweep_some(enum job_contain contain);
