/* A job of Slurm, as scontrol(1) describes it: why it ends, and whether it goes back into the queue
 * (--requeue), with the sentences for people. Pure; requeue_io.h asks Slurm and does it.
 *
 *     if (requeue_decide(&facts, &sentence)) …
 *
 * Slurm itself requeues a preempted job only if it stays until it is killed, which is too late to
 * save anything: one that ends within the grace is COMPLETED or FAILED (seen with 22.05). One that
 * has reached its time limit is TIMEOUT. So muster asks Slurm to requeue the job (scontrol(1)). */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

/* KillWait of `scontrol show config`: from SIGTERM to SIGKILL. slurm.conf(5). False: not there. */
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

/* ---- requeueing ---- */

/* Why a job ends: bits of --requeue, in the order of its words. */
enum { REQUEUE_PREEMPT = 1, REQUEUE_NODE_FAIL = 2, REQUEUE_TIMEOUT = 4 };

#define REQUEUE_EXIT_STATUS 75 /* the program is not to blame: EX_TEMPFAIL of sysexits.h */

/* "preempt,node-fail,timeout", or some of them, to bits. 0, or -EINVAL. */
_must_use_ int requeue_parse(const char *text, unsigned *ret);
/* "preempt", "node-fail", "timeout": of one bit. */
const char *requeue_word(unsigned bit);

struct requeue_facts {
    unsigned asked;    /* bits; 0: nothing is asked for */
    uint32_t max;      /* --max-requeues */
    uint32_t status;   /* exit status of the job, as muster knows it */
    bool safe;         /* a worker has told a safe point since the job was started this time */
    uint32_t restarts; /* SLURM_RESTART_COUNT; what Slurm says itself counts more */
    const char *id;    /* the job's number */
    const char *job;   /* the line of `scontrol show job --oneliner`; NULL: there was no answer */
};

/* Whether the job is to be requeued; the sentence is why. False: why not, if it ends for a reason
 * that was asked for; else it is empty. */
_must_use_ bool requeue_decide(const struct requeue_facts *f, struct strbuf *ret_sentence);

/* At the start: why the job can't be requeued; "": it can, perhaps. `job` as in the facts. */
void requeue_cannot(const char *id, const char *job, struct strbuf *ret_sentence);

/* At the end, if only the option is missing: that the job is not requeued, and what to give. */
void requeue_not_asked(enum slurm_end end, unsigned asked, const char *job,
                       struct strbuf *ret_sentence);

/* Whether the text can be the name of a node: letters, digits, ".", "_" and "-". */
bool requeue_is_name(const char *text);

/* Nodes that the job is to avoid: those that it avoids already and those that it has lost, each
 * once; both are lists of hosts, `lost` only with commas. The caller owns it. NULL: nothing new. */
char *requeue_avoid(const char *excluded, const char *lost);
