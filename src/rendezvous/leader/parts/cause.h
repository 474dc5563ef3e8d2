/* Why the group stops: which failure came first, whether it is one at all or part of a node's loss,
 * and when that is certain (muster-rendezvous(7), "Budgets"). If the times of two differ by less
 * than their error, the failure that explains most counts as the first. */
#pragma once

#include "base/util.h"
#include "rendezvous/protocol/failure.h"

enum cause_state {
    CAUSE_NONE = 0,
    CAUSE_IN_DOUBT, /* it may be a node's loss, or the effect of one: not reported or charged yet */
    CAUSE_SURE,     /* reported; charged when all members have stopped */
    CAUSE_CHARGED,
};

struct cause {
    enum cause_state state;
    struct failure failure;
    int64_t at_ns; /* on the leader's clock */
    uint64_t error_ns;
    /* A better cause is reported at once until this time, at which one in doubt is checked again.
     * TIME_NEVER: it is settled */
    uint64_t settle_ns;
    uint32_t n_better;   /* how often a better one was reported */
    bool better_waits;   /* a better cause is still to be reported */
    bool doubt_reported; /* the delay until the cause is certain was reported */
};

struct cause_facts {
    bool member;    /* the node that failed is a member, */
    bool stopped;   /* all its workers have stopped, */
    bool connected; /* it is connected, */
    bool waited;    /* and has been connected for settle_ns */
    /* each member sent a message that it can't have sent before the failure */
    bool all_outlived;
    bool no_restart_left; /* the job would end because of this failure */
};

/* Of the current generation. True: it is the new first cause. */
bool cause_add(struct cause *c, const struct failure *f, int64_t at_ns, uint64_t error_ns);
void cause_forget(struct cause *c);
void cause_begin_stop(struct cause *c, uint64_t settle_ns);
/* The group stops because of it. n_nodes: of the job. */
void cause_blame(struct cause *c, size_t n_nodes);
/* A failure is still to be charged. */
bool cause_is_pending(const struct cause *c);
/* The failure may turn out to be a node's loss, or the effect of one. */
bool cause_may_be_loss(const struct cause *c, size_t n_nodes);
/* If the job would end because of the failure, this needs more evidence. */
bool cause_is_certain(const struct cause *c, const struct cause_facts *facts);
/* The loss of this member explains the failure. */
bool cause_is_loss_of(const struct cause *c, uint64_t incarnation, bool outlived);
void cause_make_sure(struct cause *c);
/* True: it must be reported at once. */
_must_use_ bool cause_report_better(struct cause *c);
