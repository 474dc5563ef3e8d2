/* Binds this process to all CPUs of its Slurm step on this node, where step_cpus.h knows them.
 * Before anything asks how many CPUs there are (--nproc-per-node=cpu). */
#pragma once

/* Returns how many CPUs it has now; 0: nothing is changed. */
unsigned step_cpus_widen(char *const *envp);
