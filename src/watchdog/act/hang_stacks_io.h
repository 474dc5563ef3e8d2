/* In the agent that leads: answers operators that want to know what the workers do ("muster
 * stacks"), whether the job hangs or not.
 *
 *     s = hang_stacks_new(loop, evidence, &ops, me);
 *     hang_stacks_ask(s, timeout_ns);                  … ops.add for each node, then ops.end
 *
 * The evidence goes to the operator as it came from the nodes, part by part in several turns of the
 * loop: the operator's command compares it. */
#pragma once

#include "watchdog/act/hang_evidence_io.h"

struct hang_stacks_ops { /* must not free the object */
    /* A node of the group, in order of ranks; json is borrowed for the call. */
    void (*add)(void *arg, const struct rdzv_stacks *node, const char *json, size_t len);
    /* That was all; or, for one sentence, why there is no answer. May be called from inside
     * hang_stacks_ask(). */
    void (*end)(void *arg, const char *why_not);
};

struct hang_stacks;
/* evidence is borrowed for its life. */
_must_use_ struct hang_stacks *hang_stacks_new(struct loop *loop, struct hang_evidence *evidence,
                                               const struct hang_stacks_ops *ops, void *arg);
void hang_stacks_free(struct hang_stacks *s); /* takes NULL */
/* The next question may be asked after `end`. */
void hang_stacks_ask(struct hang_stacks *s, uint64_t timeout_ns);
/* The answer is no longer awaited: nothing is called until the next question. */
void hang_stacks_cancel(struct hang_stacks *s);
