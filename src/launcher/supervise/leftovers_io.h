/* What killed agents of this user left behind: temporary folders, cgroups, files in the run
 * directory. Each agent checks for leftovers once. If its workers have run for a while, a separate
 * process does it, since file systems may be slow or hang. The agent of a shorter job checks one
 * kind, for a moment at its end; the next such job is likely to check another one.
 *
 * What a living agent owns is never touched, even if that agent is in another container: living
 * agents hold locks (flock(2)) on what they own, and nothing counts as left behind whose lock can't
 * be seen here: tempdir_io.h describes when it can. */
#pragma once

#include "io/process/helper.h"
#include "launcher/job/job.h"

#define LEFTOVERS_NS (10 * NS_PER_S) /* then the rest is left to other agents */

/* Starts the process. helper_end() ends it, whether it is done or not. 0 or a negative errno. */
_must_use_ int leftovers_sweep(struct loop *loop, enum job_contain contain, struct helper *ret);
/* Checks one kind now, for LEFTOVERS_SOME_NS. */
#define LEFTOVERS_SOME_NS (NS_PER_MS / 4)
void leftovers_sweep_some(enum job_contain contain);
