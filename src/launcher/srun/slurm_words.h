/* What scontrol(1) says about the end of a job, in its own words. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* KillWait of `scontrol show config`: the time from SIGTERM to SIGKILL at the end of a job.
 * slurm.conf(5). False: it isn't there. */
_must_use_ bool slurm_kill_wait(const char *config, uint64_t *ret_ns);
/* Whether the step that the srun with this pid asked for waits for resources, by `scontrol show
 * step JOB --oneliner`. Seen with Slurm 22.05: State=PENDING, SrunHost:Pid=HOST:PID. */
_must_use_ bool slurm_step_waits(const char *steps, int srun);
/* How much of the time that Slurm, or whatever is around a job, leaves it after SIGTERM is the
 * workers': all but some for muster itself, and at least SLURM_GRACE_MIN_NS. */
uint64_t slurm_grace(uint64_t around_ns);
#define SLURM_GRACE_MIN_NS (1 * NS_PER_S)
/* A job that has so many seconds left, or fewer, ends soon: SLURM_END_SOON. */
#define SLURM_SOON_S 180

/* Why `scontrol show job --oneliner` says that the job ends. */
enum slurm_end {
    SLURM_END_NONE = 0, /* it does not end, or nothing is said */
    SLURM_END_TIME,
    SLURM_END_SOON, /* it runs, and has SLURM_SOON_S or less left: --signal of sbatch(1) */
    SLURM_END_PREEMPTED,
    SLURM_END_NODE,
    SLURM_END_MEMORY,
    SLURM_END_DEADLINE,
    SLURM_END_CANCELLED,
    SLURM_END_REQUEUED, /* by an operator or a daemon, not by muster */
    SLURM_END_OVER,     /* its batch script or salloc has ended */
};
/* States and reasons as in squeue(1). restarts: SLURM_RESTART_COUNT of this run. */
enum slurm_end slurm_end_of(const char *job, uint32_t restarts);
/* As half a sentence, static; NULL for NONE. */
const char *slurm_end_text(enum slurm_end end);

/* What the same line says of the queue. */
struct slurm_queue_facts {
    bool known;        /* it is a job's line; else all is 0 */
    bool batch;        /* BatchFlag: only such a job can be requeued (scontrol(1), requeue) */
    bool requeue;      /* not submitted with --no-requeue, nor forbidden by JobRequeue=0 */
    uint32_t restarts; /* how often it was put back into the queue */
};
struct slurm_queue_facts slurm_queue_facts(const char *job);
/* The value of ExcNodeList, as a list of hosts that belongs to the caller; "": none. */
char *slurm_excluded(const char *job);
