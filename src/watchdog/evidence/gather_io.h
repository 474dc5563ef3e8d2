/* Gathers the evidence of one node, in a helper with a deadline: nothing that hangs in it can delay
 * this process. No process is stopped and nothing attaches to a worker, unless it is asked for
 * (`native`).
 *
 *     r = gather_new(loop, &ask, on_evidence, me, &call);      … on_evidence(me, &answer)
 *     json = helper_answer_line(&answer, &len);                the evidence, as JSON; "": none
 *
 * In this order: /proc of all threads and children, and the kernel's stack where root; the Python
 * stacks; the last lines of the logs; what else can be asked (watchdog/look); the GPUs' counters.
 * What was gathered before a step that hangs arrives all the same, and each gap has its reason. */
#pragma once

#include <sys/types.h>

#include "io/process/helper_call.h"
#include "watchdog/evidence/evidence.h"
#include "watchdog/hang_workers.h"

/* Helpers of the helper that touch the disk of the logs. */
#define GATHER_LOG_NAME "muster-log-tail"
#define GATHER_RECORDER_NAME "muster-recorder"

#define GATHER_LOGS_MAX 2 /* of a worker: its output, and its errors */

struct gather_worker {
    struct evidence_worker of; /* what is known already; of one that has ended, nothing is read */
    /* CPU time of its main thread then (signs_see()); 0: not known. If it has used more at the end,
     * it has moved meanwhile: its still_ns in the evidence is 0 */
    uint64_t ran_ns;
    const char *logs[GATHER_LOGS_MAX]; /* borrowed for the call; NULL: none */
};
struct gather_ask { /* borrowed for the call of gather_new() */
    const char *node;
    const struct gather_worker *workers; /* in order of local rank */
    size_t n;
    uint16_t store_port; /* of the workers' store; 0: not known */
    uint64_t since_ns;   /* CLOCK_MONOTONIC: of the kernel's log, only what is newer */
    uint64_t timeout_ns; /* --evidence-timeout */
    /* The folder of the node's logs, for files of NCCL's recorder that are elsewhere; NULL: they
     * stay there */
    const char *keep_dir;
    /* Called in the helper: env(), because programs that change their title write over the
     * environment in /proc (setproctitle(3bsd)), and not every user may read that; spare() and
     * spared(), because a dead disk can hold a helper that touches it for ever. NULL: not known */
    const struct hang_workers *from;
    /* It is decided that these workers are killed: only their native stacks are read, which
     * disturbs them (disturb.h). */
    bool native;
};

/* The deadline of the call is that of ask. Returns 0, or a negative errno: no process or descriptor
 * could be created. */
_must_use_ int gather_new(struct loop *loop, const struct gather_ask *ask, helper_call_fn *fn,
                          void *arg, struct helper_call **ret);
/* Adds evidence that has only the reason why there is none: a negative errno, or 0 of a helper that
 * has sent nothing. */
void gather_none(const char *node, int code, uint64_t took_ns, struct strbuf *ret);

/* The same at once and in this process, for a program that has nothing else to do, such as a helper
 * of its own. It can take longer than the deadline if the kernel blocks it. */
void gather_now(const struct gather_ask *ask, struct evidence *ret);
