/* Questions to Slurm, by scontrol(1) in a helper: it waits for a daemon on another machine. */
#pragma once

#include "io/process/helper_call.h"
#include "launcher/srun/slurm_job.h"

/* Runs scontrol with these words (NULL-terminated) in the background; its standard output is the
 * answer: none if there is no scontrol, or it failed. 0, or a negative errno: no process. */
_must_use_ int slurm_ask(struct loop *loop, const char *const words[], uint64_t timeout_ns,
                         helper_call_fn *fn, void *arg, struct helper_call **ret);

/* ==== requeueing ====
 *
 * Puts a job that ends back into Slurm's queue, by scontrol(1), where slurm_job.h decides so.
 *
 *     r = requeue_new(&config, on_done, me);
 *     requeue_look(r);                    at the start: warns if Slurm could not requeue this job
 *     requeue_begin(r, &end);             at the end, when no worker is left: on_done() follows
 *     requeue_free(r);
 *
 * Slurm ends what is left of the job, and this process, as soon as it has taken the request. Only
 * then it takes the list of nodes that the job is to avoid ("Job is no longer pending" for a
 * running one, 22.05). So one scontrol makes both requests, within KillWait. A request that the
 * controller has not read yet is carried out also if its sender was killed (seen with 22.05).
 * Everything that waits for Slurm has a time limit. */

#define REQUEUE_ASK_NS (3 * NS_PER_S) /* for what Slurm says about the job */

struct requeue_config {
    struct loop *loop;
    const char *id; /* the job's number; borrowed */
    unsigned asked; /* REQUEUE_* bits, of --requeue */
    uint32_t max;   /* --max-requeues */
    uint32_t restarts;
};

struct requeue_end {
    uint32_t status;  /* that the job has now */
    bool safe;        /* as in requeue_facts */
    const char *lost; /* nodes that it has lost, with commas; borrowed for the call */
};

/* From the loop. The status, or REQUEUE_EXIT_STATUS if Slurm did not take a request. */
typedef void requeue_fn(void *arg, uint32_t status);

struct requeue;

_must_use_ struct requeue *requeue_new(const struct requeue_config *config, requeue_fn *fn,
                                       void *arg);
void requeue_look(struct requeue *r);
/* Call it once. fn is called later. */
void requeue_begin(struct requeue *r, const struct requeue_end *end);
/* No callback follows. Takes NULL. */
void requeue_free(struct requeue *r);
