/* The present group and the last: its generation, members, their order and ranks
 * (muster-rendezvous(7), "Groups"). */
#pragma once

#include "rendezvous/leader/parts/roster.h"

struct formation {
    struct generation generation; /* the newest formed */
    struct node **members;        /* of it, in rank order; the lost are taken out */
    size_t n_members;
    size_t n_lease_pending; /* of them */
    uint32_t world_size;    /* of it, when it was formed */
    /* incarnations of the last group, in rank order, the lost included */
    uint64_t *order;
    size_t n_order;
    size_t n_last_lost;               /* of those: surely gone, or left */
    size_t n_fell_silent;             /* lost since it was formed, and perhaps alive elsewhere */
    bool formed_once;                 /* by this leader or one before: no last call any more */
    bool formed_here;                 /* by this leader */
    bool started_once;                /* below min is a loss, not a start that takes long */
    struct generation started;        /* the newest started */
    struct generation old_generation; /* the newest that the last leader formed */
    size_t n_old_members;             /* nodes that it had, as far as they are known */
};

void formation_fini(struct formation *f);
/* The node's last report is about the present generation, and has this state. */
bool formation_reports(const struct formation *f, const struct node *n, enum node_state state);
/* After every change of a node, of the members, or of the present generation. */
void formation_recount(const struct formation *f, struct roster *r, struct node *n);
void formation_recount_all(const struct formation *f, struct roster *r);
/* How large a group of so many candidates is; 0: they are too few. */
size_t formation_size(const struct group_config *c, size_t candidates);
/* Chooses the members of the next group and their places: at most max nodes, best order. */
void formation_choose(struct formation *f, struct roster *r, const struct group_config *c,
                      uint32_t epoch, uint32_t restarts_used, uint32_t losses);
/* The last leader's group, which this one continues. */
void formation_inherit(struct formation *f, const struct handover *h);
/* The node had a place in it, and is awaited. */
void formation_await(struct formation *f, struct node *n);
/* The present group runs. */
void formation_start(struct formation *f);
/* The node is no member any more: it was lost, or has left. silent: and may be alive elsewhere. */
void formation_lose(struct formation *f, struct node *n, bool silent);
/* Whether the member's last RENEW got no lease. */
void formation_set_lease_pending(struct formation *f, struct node *n, bool pending);
/* The group has ended: it has no members. */
void formation_end(struct formation *f);
/* What all members can reach. */
uint32_t formation_reachability(const struct formation *f);
/* Of all members, now. */
uint32_t formation_workers(const struct formation *f);
