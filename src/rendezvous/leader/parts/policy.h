/* What failures and losses cost: the budget of restarts, crash loops, the pause before a restart,
 * the excluded hosts (muster-rendezvous(7), "Budgets"). */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

/* All agents of an excluded host are excluded, also later ones. */
#define POLICY_HOSTS_MAX 256

struct policy {
    const struct group_config *config; /* borrowed */
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
bool policy_losses_spent(const struct policy *p);

/* Whether the generation failed as the last charged one did, early and by the program's own fault:
 * it must not be started again. But if both failures are of one node, and `others` can continue
 * without it, that node is excluded after a few failures instead. */
_must_use_ bool policy_is_crash_loop(const struct policy *p, const struct failure *f, bool others);
void policy_charge(struct policy *p, const struct failure *f);
/* Returns how often this node failed in a row, if it is to be excluded because of that, and
 * `others` can continue without it; else 0. */
_must_use_ uint32_t policy_count_node(struct policy *p, uint64_t incarnation, bool others);
/* The pause before the restart of a group that ran for so long. */
_must_use_ uint64_t policy_backoff_ns(struct policy *p, uint64_t ran_ns);

void policy_exclude_host(struct policy *p, const char *host);
bool policy_host_is_excluded(const struct policy *p, const char *host);

/* Groups that end soon after their start, or before it, though no worker failed: a node is lost, a
 * FORM refused. Such an end costs nothing, so it is counted: else the job would never end. */
struct stalls {
    const struct group_config *config; /* borrowed */
    uint32_t in_a_row;
    uint32_t counted; /* of them: those that left the job no smaller than ever */
    size_t fewest;    /* the fewest nodes that were left after one of them */
};

/* How a group ended. */
struct group_end {
    uint64_t started_ns; /* 0: it never did */
    uint64_t stopped_ns; /* when it began to stop */
    size_t nodes_left;   /* that may be in the next */
    bool worker_failed;
    bool wished; /* by an operator, by the node that leaves, or to grow */
};

/* How long the next group has to wait; TIME_NEVER: no group lasts, and the job ends. */
uint64_t stalls_count(struct stalls *s, const struct group_end *end);
/* The last group ended without progress, and this one has not run for long yet. */
bool stalls_go_on(const struct stalls *s, uint64_t started_ns, uint64_t now_ns);
/* For people: the next group waits; no group lasts, the last one ended because of `why`. */
void stalls_pause_text(const struct stalls *s, uint64_t pause_ns, char *out, size_t size);
void stalls_end_text(const struct stalls *s, const char *why, char *out, size_t size);
