/* What the leader's machine is made with (rendezvous/leader/group.h): the settings of the job, and
 * how this leadership began. */
#pragma once

#include "rendezvous/protocol/settings.h"
#include "rendezvous/protocol/wire.h"

/* What a leader's authority depends on, besides the nodes. */
enum group_leadership {
    LEADERSHIP_NONE = 0,    /* a fixed endpoint: no other agent can lead */
    LEADERSHIP_LEADER_FILE, /* the same, with a leader file on this host that a restarted agent
                               finds */
    LEADERSHIP_ARBITER,     /* dir, etcd: members succeed a lost leader */
};

struct group_config {
    struct rdzv_settings rdzv;
    uint32_t epoch; /* of this leadership, >= 1 */
    /* ARBITER: nothing runs, and no group is formed in this epoch: the first takes the next one,
     * which this leader claims for it. Without a handover */
    bool idle;
    uint64_t leader_incarnation; /* its own node: rank 0 at the first start */
    char role[RDZV_ROLE_MAX];    /* of its own node, */
    struct rdzv_program program; /* and what that runs; shown "": not known, not compared */
    bool static_ranks;           /* every node names its own rank; 0 … max-1, each once */
    uint64_t form_timeout_ns;    /* FORM sent, no ack */
    uint64_t settle_ns;          /* failures that may still turn out to be the first cause */
    uint64_t log_nonce;          /* handed to every node in FORM */
    /* between probes of nodes that wait for a place and are silent: of all together */
    uint64_t waiter_probe_ns;

    enum group_leadership leadership;
    /* Nothing is started before: leases of earlier epochs may still run. 0: none can */
    uint64_t not_before_ns;
    /* What the last leader left, NULL: nothing is known, or there was none. Copied. Its members
     * that don't come back are probed, and count as lost at absent_until_ns. */
    const struct handover *handover;
    uint64_t absent_until_ns;
    uint64_t old_leader;   /* incarnation: it alone is not awaited a margin longer; 0: not known */
    struct rdzv_peer self; /* ARBITER: as in the claim */
};

/* The settings' defaults; form 60 s, settle 500 ms, probes of waiters 10 ms; epoch 1. */
void group_config_default(struct group_config *config);
