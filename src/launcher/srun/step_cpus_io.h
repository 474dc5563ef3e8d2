/* The CPUs of an agent in a step of Slurm. */
#pragma once

#include "launcher/place/place.h"

/* Binds this process to all CPUs of its Slurm step on this node, where step_cpus.h knows them.
 * Before anything asks how many CPUs there are (--nproc-per-node=cpu). Returns how many CPUs it has
 * now; 0: nothing is changed. */
unsigned step_cpus_widen(const struct place *place);
/* A step that muster's own srun started has no SLURM_CPUS_PER_TASK: sets the user's, which programs
 * read. */
void srun_restore_env(void);
