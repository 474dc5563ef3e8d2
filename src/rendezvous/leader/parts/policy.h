/* What failures and losses cost: the budget of restarts, crash loops, the pause before a restart,
 * the excluded hosts (muster-rendezvous(7), "Budgets"). */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

/* The limit of excluded hosts. All agents of such a host are excluded, also later ones. */
#define POLICY_HOSTS_MAX 256

struct policy {
    uint32_t restarts_used, losses;
    uint64_t last_hash; /* of the last charged failure; 0: it can't begin a crash loop */
    uint64_t fail_node; /* the last charged failures were all of this node's: */
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
/* Whether the generation failed as the last one that was charged did, early and by the program's
 * own fault: it must not be started again. But if both failures are of one node, and `others` can
 * continue without it, that node is excluded after a few failures instead. */
_must_use_ bool policy_is_crash_loop(const struct policy *p, const struct group_config *c,
                                     const struct failure *f, bool others);
/* The generation costs a restart because of this failure. */
void policy_charge(struct policy *p, const struct group_config *c, const struct failure *f);
/* The charged failure was this node's. Returns how often it failed in a row, if that is enough to
 * exclude it and `others` can continue without it; else 0. */
_must_use_ uint32_t policy_count_node(struct policy *p, const struct group_config *c,
                                      uint64_t incarnation, bool others);
/* The pause before the restart of a group that ran for so long. */
_must_use_ uint64_t policy_backoff_ns(struct policy *p, const struct group_config *c,
                                      uint64_t ran_ns);

void policy_exclude_host(struct policy *p, const char *host);
bool policy_host_is_excluded(const struct policy *p, const char *host);
