/* The settings of a job's rendezvous, from the command line (launcher/job). The leader's apply to
 * the group; a node uses its own while it has no leader.
 *
 *     struct rdzv_settings s = RDZV_SETTINGS_DEFAULT; s.max_nodes = 4; */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define RDZV_NODES_MAX 100000 /* nodes of one job */

/* When a waiting node is let into a running group that has room for it. */
enum rdzv_grow {
    GROW_BOUNDARY = 0, /* when a worker reports that it is at a safe point, or it re-forms anyway */
    GROW_NOW,
    GROW_NEVER, /* only when it re-forms anyway */
};

enum rdzv_rank_order { /* of newcomers without --node-rank; the leader's node goes first */
                       RANK_ORDER_HOST = 0, /* natural order of host names */
                       RANK_ORDER_JOIN,     /* in the order in which they came */
                       /* by node_info.topology, those of the leader's switches first, else in
                        * natural order; then by host names */
                       RANK_ORDER_TOPOLOGY,
};

enum rdzv_unit_of {
    UNIT_OF_DOMAIN = 0, /* nodes of one domain (struct report), where every node has one */
    UNIT_OF_ANY,        /* any nodes */
};

enum rdzv_sick_nodes {
    SICK_NODES_EXCLUDE = 0, /* the next group leaves them out, if there are enough others */
    SICK_NODES_REPORT,      /* they are only logged */
};

struct rdzv_settings {
    uint32_t min_nodes, max_nodes; /* 1 <= min <= max <= RDZV_NODES_MAX */
    uint32_t node_unit;            /* a group's number of nodes is a multiple of this */
    enum rdzv_unit_of unit_of;
    uint32_t spares; /* nodes beyond max that may wait; others are refused
                                      (UINT32_MAX: any number) */
    enum rdzv_sick_nodes sick_nodes;
    enum rdzv_grow grow;
    enum rdzv_rank_order rank_order;
    uint32_t max_restarts;       /* whole job */
    uint32_t max_node_losses;    /* one more ends the job (UINT32_MAX: any number) */
    uint32_t exclude_after;      /* failures of one node in a row; 0: never */
    uint64_t restart_backoff_ns; /* before a restart after a failure; doubles, up to 32 times */
    uint64_t crash_loop_ns;      /* failures so soon may be a crash loop; 0: never */
    uint64_t hold_ns;            /* several nodes silent at once: for how long they are probed */
    uint64_t last_call_ns;       /* wait for more than min at the first start */
    uint64_t regroup_wait_ns;    /* wait for replacements after a loss; 0: none */
    /* below min at the first start: the job fails; a node: a leader that never answered */
    uint64_t join_timeout_ns;
    uint64_t close_timeout_ns;  /* CLOSED sent, no acknowledgement */
    uint64_t leader_timeout_ns; /* a leader was heard and is silent: give up after this */
    uint64_t heartbeat_ns;      /* between RENEWs, and between touches of the leader file */
    /* silent for lease + margin: lost. A node takes both from the leader's WELCOME */
    uint64_t lease_ns, margin_ns;
    uint64_t arbiter_lease_ns; /* with an arbiter: from its last good read to the lease's end */
};

/* The defaults. A field that is not listed is 0. */
#define RDZV_SETTINGS_DEFAULT                                                                      \
    {                                                                                              \
        .min_nodes = 1, .max_nodes = 1, .node_unit = 1, .spares = UINT32_MAX,                      \
        .max_node_losses = UINT32_MAX, .exclude_after = 3, .crash_loop_ns = 5 * NS_PER_S,          \
        .hold_ns = 2 * NS_PER_S, .last_call_ns = 30 * NS_PER_S, .join_timeout_ns = 600 * NS_PER_S, \
        .close_timeout_ns = 30 * NS_PER_S, .leader_timeout_ns = 60 * NS_PER_S,                     \
        .heartbeat_ns = NS_PER_S, .lease_ns = 5 * NS_PER_S, .margin_ns = NS_PER_S,                 \
        .arbiter_lease_ns = 60 * NS_PER_S,                                                         \
    }

/* Whether these numbers allow any group. */
bool rdzv_settings_make_sense(const struct rdzv_settings *s);
/* Whether a multiple of the unit lies between min and max. */
bool rdzv_settings_unit_fits(const struct rdzv_settings *s);
/* The margin for a lease of this length. */
uint64_t rdzv_margin_ns(uint64_t lease_ns);
