/* What failures and losses cost: the budget of restarts, crash loops, the pause before a restart,
 * the excluded hosts (muster-rendezvous(7), "Budgets"). */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

/* The limit of excluded hosts. All agents of such a host are excluded, also later ones. */
#define POLICY_HOSTS_MAX 256

/* What is remembered of the failures of one generation. */
struct fingerprint {
    uint64_t hash; /* 0: none, or not of the kind that makes a crash loop */
    bool any;      /* the rest is filled in */
    uint32_t rank; /* of the first failure reported */
    bool spread;   /* other ranks failed in the same way */
};

struct policy {
    uint32_t restarts_used, losses;
    struct fingerprint print, last_print; /* of this generation, and of the last one charged */
    uint64_t fail_node;                   /* the last charged failures were all of this node's: */
    uint32_t fail_count;
    uint32_t backoff_step;
    char (*hosts)[RDZV_HOST_MAX]; /* excluded */
    size_t n_hosts;
};

void policy_fini(struct policy *p);

/* Takes over counters from a report or a handover where they are larger than ours. */
void policy_keep_counters(struct policy *p, uint32_t restarts_used, uint32_t losses);
bool policy_restarts_spent(const struct policy *p, const struct group_config *c);
bool policy_losses_spent(const struct policy *p, const struct group_config *c);

/* A member was lost. */
void policy_add_loss(struct policy *p);
/* A new generation: nothing has failed in it. */
void policy_begin_generation(struct policy *p);
/* A worker of the present generation has failed. */
void policy_add_failure(struct policy *p, const struct group_config *c, const struct failure *f);
/* The generation failed like the last one that was charged: it must not
 * be started again. */
_must_use_ bool policy_is_crash_loop(const struct policy *p, uint32_t world_size);
/* The generation costs a restart. */
void policy_charge(struct policy *p);
/* The charged failure was this node's. Returns how often it failed in a row, if that is enough to
 * exclude it and `others` can continue without it; else 0. */
_must_use_ uint32_t policy_count_node(struct policy *p, const struct group_config *c,
                                      uint64_t incarnation, bool others);
/* The pause before the restart of a group that ran for so long. */
_must_use_ uint64_t policy_backoff_ns(struct policy *p, const struct group_config *c,
                                      uint64_t ran_ns);

void policy_exclude_host(struct policy *p, const char *host);
bool policy_host_is_excluded(const struct policy *p, const char *host);
