/* Why the group stops: which failure came first, whether it is a failure at all or part of a node's
 * loss, and when that is sure enough to be reported (muster-rendezvous(7), "Budgets"). Times of
 * different nodes are on the leader's clock; within their error, what explains most goes first. */
#pragma once

#include "base/util.h"
#include "rendezvous/protocol/failure.h"

enum cause_state {
    CAUSE_NONE = 0,
    CAUSE_IN_DOUBT, /* it may be a node's loss, or the echo of one: not reported, nor charged yet */
    CAUSE_SURE,     /* reported, and charged when all have stopped */
    CAUSE_CHARGED,
};

struct cause {
    enum cause_state state;
    struct failure failure;
    int64_t at_ns; /* on the leader's clock */
    uint64_t error_ns;
    /* Better causes are reported at once before; one in doubt is checked again then. TIME_NEVER: it
     * is settled */
    uint64_t settle_ns;
    uint32_t n_better;   /* how often a better one was reported */
    bool better_waits;   /* one is to be reported */
    bool doubt_reported; /* that it takes a while to know */
};

/* What is known of the members since the group began to stop. */
struct cause_facts {
    bool member;          /* the node that failed is one, */
    bool stopped;         /* all its workers have stopped, */
    bool connected;       /* it is connected, */
    bool waited;          /* and has been for settle_ns */
    bool all_outlived;    /* each gave a sign of life that it can't have given before the failure */
    bool no_restart_left; /* the job would end for it */
};

/* A failure of the present generation; true when it is the new first cause. */
bool cause_add(struct cause *c, const struct failure *f, int64_t at_ns, uint64_t error_ns);
/* Nothing has failed, or it is not what ends the group. */
void cause_forget(struct cause *c);
/* The group begins to stop; settle_ns: when the cause is to be checked again. */
void cause_begin_stop(struct cause *c, uint64_t settle_ns);
/* The group stops for it: reported and charged, once that is sure. n_nodes: of the job. */
void cause_blame(struct cause *c, size_t n_nodes);
/* A failure waits for its charge. */
bool cause_is_pending(const struct cause *c);
/* It may turn out to be a node's loss, or the echo of one. */
bool cause_may_be_loss(const struct cause *c, size_t n_nodes);
/* That can't be any more; nor may the job end for it without being sure. */
bool cause_is_certain(const struct cause *c, const struct cause_facts *facts);
/* The loss of this member explains it. */
bool cause_is_loss_of(const struct cause *c, uint64_t incarnation, bool outlived);
void cause_make_sure(struct cause *c);
/* Another failure is the first cause from now on. True: that is to be reported at once. */
_must_use_ bool cause_report_better(struct cause *c);
/* It in one line: "rank 3 failed: exit code 1: …". */
void cause_text(const struct cause *c, char *out, size_t len);
