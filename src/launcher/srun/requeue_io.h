/* Puts a job that ends back into Slurm's queue, by scontrol(1), where slurm_job.h decides so.
 *
 *     r = requeue_new(loop, &spec, on_done, me);
 *     requeue_look(r);                    at the start: warns if Slurm could not requeue this job
 *     requeue_begin(r, status, safe, lost);  at the end, when no worker is left: on_done() follows
 *     requeue_free(r);
 *
 * Slurm ends what is left of the job, and this process, as soon as it has taken the request. Only
 * then it takes the list of nodes that the job is to avoid ("Job is no longer pending" for a
 * running one, 22.05). So one scontrol makes both requests, within KillWait. A request that the
 * controller has not read yet is carried out also if its sender was killed (seen with 22.05).
 * Everything that waits for Slurm has a time limit. */
#pragma once

#include "io/process/helper_call.h"
#include "launcher/job/job.h"
#include "launcher/srun/slurm_job.h"

#define REQUEUE_ASK_NS (3 * NS_PER_S) /* until Slurm has described the job */

/* From the loop. The status, or REQUEUE_EXIT_STATUS if Slurm did not take a request. */
typedef void requeue_fn(void *arg, uint32_t status);

struct requeue;

/* spec: borrowed. */
_must_use_ struct requeue *requeue_new(struct loop *loop, const struct job_spec *spec,
                                       requeue_fn *fn, void *arg);
void requeue_look(struct requeue *r);
/* Call it once. status, safe: as in the facts; lost: the nodes that the job has lost, with commas.
 * fn is called later. */
void requeue_begin(struct requeue *r, uint32_t status, bool safe, const char *lost);
/* No callback follows. Takes NULL. */
void requeue_free(struct requeue *r);
