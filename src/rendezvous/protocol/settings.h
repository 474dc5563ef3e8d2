/* What a job asks of its rendezvous: how many nodes, when the group changes, how long anything may
 * take. Read from the command line (launcher/job), and held as it is by the machines of the leader
 * and of the nodes. The leader's settings count; a node's own are for what it does without one.
 *
 *     struct rdzv_settings s; rdzv_settings_default(&s); s.max_nodes = 4; */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RDZV_NODES_MAX 100000 /* nodes of one job */

/* When a waiting node is let into a running group that has room for it. */
enum rdzv_grow {
    GROW_BOUNDARY = 0, /* when a worker says that it is at a safe point, or it re-forms anyway */
    GROW_NOW,
    GROW_NEVER, /* only when it re-forms anyway */
};

enum rdzv_rank_order { /* of newcomers without --node-rank; the leader's node goes first */
                       RANK_ORDER_HOST = 0, /* natural order of host names */
                       RANK_ORDER_JOIN,     /* as they came */
                       /* by node_info.topology, those of the leader's switches first, else in
                        * natural order; then by host names */
                       RANK_ORDER_TOPOLOGY,
};

/* Defaults in brackets. */
struct rdzv_settings {
    uint32_t min_nodes, max_nodes; /* 1 <= min <= max <= RDZV_NODES_MAX (1, 1) */
    uint32_t node_unit;            /* a group's number of nodes is a multiple of this (1) */
    uint32_t spares;               /* nodes beyond max that may wait; others are sent away
                                      (UINT32_MAX: any number) */
    enum rdzv_grow grow;
    enum rdzv_rank_order rank_order;
    uint32_t max_restarts;       /* whole job (0) */
    uint32_t max_node_losses;    /* one more ends the job (UINT32_MAX: any number) */
    uint32_t exclude_after;      /* failures of one node in a row; 0: never (3) */
    uint64_t restart_backoff_ns; /* before a restart after a failure; doubles, up to 32 times (0) */
    uint64_t crash_loop_ns;      /* failures so soon may be a crash loop; 0: never (5 s) */
    uint64_t hold_ns;            /* several nodes silent at once: probed so long (2 s) */
    uint64_t last_call_ns;       /* wait for more than min at the first start (30 s) */
    uint64_t regroup_wait_ns;    /* wait for replacements after a loss; 0: none (0) */
    /* below min at the first start: the job fails; a node: a leader that never answered (600 s) */
    uint64_t join_timeout_ns;
    uint64_t close_timeout_ns; /* CLOSED told, no acknowledgement (30 s) */
    uint64_t
        leader_timeout_ns; /* a leader that was there and is silent: give up after this (60 s) */
    uint64_t heartbeat_ns; /* between RENEWs, and between touches of the leader file (1 s) */
    /* silent for lease + margin: lost. A node takes both from the leader's WELCOME (5 s, 1 s) */
    uint64_t lease_ns, margin_ns;
    /* with an arbiter: a lease ends so long after the last good read of it (60 s) */
    uint64_t arbiter_lease_ns;
};

void rdzv_settings_default(struct rdzv_settings *ret);
/* Whether a group can be formed by these numbers at all. */
bool rdzv_settings_make_sense(const struct rdzv_settings *s);
/* Whether a multiple of the unit lies between min and max. */
bool rdzv_settings_unit_fits(const struct rdzv_settings *s);
/* The margin that goes with a lease. */
uint64_t rdzv_margin_ns(uint64_t lease_ns);
