/* The current group and the last one: generation, members, their order and ranks
 * (muster-rendezvous(7), "Groups"). */
#pragma once

#include "rendezvous/leader/parts/roster.h"

/* A node's place in the last group. */
struct old_place {
    uint64_t incarnation;
    uint64_t domain; /* domain_key() */
};

struct formation {
    struct generation generation; /* the newest formed */
    struct node **members;        /* of that generation, in rank order, without the lost nodes */
    size_t n_members;
    size_t n_lease_pending;                     /* members whose last RENEW got no lease */
    uint32_t world_size, restarts_used, losses; /* of the group, when it was formed */
    struct old_place *order; /* of the last group, in rank order, lost nodes included */
    size_t n_order;
    bool of_domains;    /* the domains of all these places are known */
    size_t n_last_lost; /* nodes of `order` that are certainly gone, or left */
    /* nodes that were lost since it was formed, and may be alive elsewhere */
    size_t n_fell_silent;
    /* by this leader or an earlier one: there is no last call any more */
    bool formed_once;
    bool formed_here;                 /* by this leader */
    bool started_once;                /* fewer nodes than min are a loss now, not a slow start */
    struct generation started;        /* the newest started */
    struct generation old_generation; /* the newest one that the last leader formed */
    size_t n_old_members;             /* nodes of that generation, as far as they are known */
};

void formation_fini(struct formation *f);
bool formation_reports(const struct formation *f, const struct node *n, enum node_state state);
/* After every change of a node, of the members, or of the current generation. */
void formation_recount(const struct formation *f, struct roster *r, struct node *n);
void formation_recount_all(const struct formation *f, struct roster *r);
/* The size of a group from this many candidates (roster_usable()); 0: they are too few. */
size_t formation_size(const struct group_config *c, size_t candidates);
/* Of which nodes the next group is made: the fit ones if they are enough, else sick ones, too. */
enum tally formation_candidates(const struct roster *r, const struct group_config *c);
void formation_choose(struct formation *f, struct roster *r, const struct group_config *c,
                      uint32_t epoch, uint32_t restarts_used, uint32_t losses);
void formation_inherit(struct formation *f, const struct handover *h);
void formation_await(struct formation *f, struct node *n);
/* silent: it may be alive elsewhere. */
void formation_lose(struct formation *f, struct node *n, bool silent);
void formation_set_lease_pending(struct formation *f, struct node *n, bool pending);
void formation_end(struct formation *f);
/* The ways that work for all members. */
uint32_t formation_reachability(const struct formation *f);
uint32_t formation_workers(const struct formation *f);
