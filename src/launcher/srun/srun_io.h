/* Starts the agents of a job in a step of Slurm: one srun, whose tasks are muster itself with the
 * same arguments, one on each node. A backend of starter/starter_io.h.
 *
 *     status = srun_run(&config);      returns when srun has ended; errors are reported
 *
 * The step is killed by scancel. Slurm is asked what people need to know: how long it waits before
 * it kills, whether the step waits for CPUs, and, with --requeue, why the job ends. */
#pragma once

#include "launcher/starter/starter_io.h"

/* The exit status of muster run. */
int srun_run(const struct starter_run_config *config);
