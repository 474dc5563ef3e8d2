/* Whether a job that ends goes back into Slurm's queue (--requeue), and the sentences for people.
 * Pure; requeue_io.h asks Slurm and does it.
 *
 *     answer = requeue_decide(&facts, &sentence);
 *
 * Slurm itself requeues a preempted job only if it stays until it is killed, which is too late to
 * save anything: one that ends within the grace is COMPLETED or FAILED (seen with 22.05). One that
 * has reached its time limit is TIMEOUT. So muster asks Slurm to requeue the job (scontrol(1)). */
#pragma once

#include "base/text/strbuf.h"
#include "launcher/srun/slurm_words.h"

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

enum requeue_answer {
    REQUEUE_NO_MATTER = 1, /* the job has not ended for a reason that was asked for */
    REQUEUE_YES,
    REQUEUE_NOT,     /* it would, but: the sentence */
    REQUEUE_ALREADY, /* Slurm has requeued it by itself */
};

/* The sentence is empty after NO_MATTER; after YES it says why the job is requeued. */
enum requeue_answer requeue_decide(const struct requeue_facts *f, struct strbuf *ret_sentence);

/* At the start: why the job can't be requeued; "": it can, perhaps. `job` as in the facts. */
void requeue_cannot(const char *id, const char *job, struct strbuf *ret_sentence);

/* At the end, where this reason is not among what was asked for: that the job is not requeued, and
 * which option does it. Empty if it is, or if Slurm could not requeue it. */
void requeue_not_asked(enum slurm_end end, unsigned asked, const char *job,
                       struct strbuf *ret_sentence);

/* Whether the text can be the name of a node: letters, digits, ".", "_" and "-". */
bool requeue_is_name(const char *text);

/* Nodes that the job is to avoid: those that it avoids already and those that it has lost, each
 * once; both are lists of hosts, `lost` only with commas. The caller owns it. NULL: nothing new. */
char *requeue_avoid(const char *excluded, const char *lost);
