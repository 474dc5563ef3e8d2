/* The CPUs of all tasks of this node. Slurm and other launchers bind each task to its share, but an
 * agent that serves the node for all its tasks uses what they have together.
 *
 * What is allowed is known from two sources: the control group's cpuset, which no process can leave
 * (ConstrainCores), and without that the masks of all tasks of the node (SLURM_CPU_BIND_LIST), or
 * the CPUs of the launcher's own process, if it can be seen. Else a step keeps the task's own CPUs,
 * and a task of another launcher takes those of the control group. */
#pragma once

#include "base/text/cpuset.h"
#include "launcher/place/place.h"

/* Binds this process to all CPUs of its step, or its launcher, on this node, if they are known.
 * Before anything counts CPUs (--nproc-per-node=cpu). Returns how many it has now; 0: no change. */
unsigned step_cpus_widen(const struct place *place);
/* A step of muster's own srun has no SLURM_CPUS_PER_TASK: sets the user's, for programs. */
void srun_restore_env(void);

/* Parts of step_cpus_widen(), without any access to the system. */

/* The CPUs of all tasks of this node: the union of the masks in SLURM_CPU_BIND_LIST, as "0x3,0xC"
 * (srun(1), OUTPUT ENVIRONMENT VARIABLES). 0; -ENODATA: it is NULL; -EINVAL: no list of masks. */
_must_use_ int step_cpus_of_tasks(const char *masks, struct cpuset *ret);
/* Which CPUs the agent takes. `widest`: all that the kernel lets this process have, of `online` in
 * the machine; on_node: how many CPUs the step has on this node, 0: not known; `tasks`:
 * step_cpus_of_tasks(), or NULL. Returns 0, or -ENODATA: none is known to be the step's. */
_must_use_ int step_cpus_choose(const struct cpuset *widest, uint32_t online, uint32_t on_node,
                                const struct cpuset *tasks, struct cpuset *ret);
