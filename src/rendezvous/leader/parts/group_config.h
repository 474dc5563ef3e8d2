/* The configuration of the group: the settings of the job, and how this leadership began. */
#pragma once

#include "rendezvous/protocol/settings.h"
#include "rendezvous/protocol/wire.h"

/* What a leader's authority depends on, besides the nodes. */
enum group_leadership {
    LEADERSHIP_NONE = 0, /* a fixed endpoint: no other agent can lead */
    /* also a fixed endpoint, with a leader file on this host that a restarted agent finds */
    LEADERSHIP_LEADER_FILE,
    LEADERSHIP_ARBITER, /* dir, etcd: members succeed a lost leader */
};

struct group_config {
    struct rdzv_settings rdzv;
    uint32_t epoch; /* of this leadership, >= 1 */
    /* ARBITER: nothing runs, and the first group is formed in the next epoch, which this leader
     * claims. There is no handover */
    bool idle;
    uint64_t leader_incarnation; /* its own node: rank 0 at the first start */
    char role[RDZV_ROLE_MAX];    /* of the leader's own node */
    /* where it leads, if the endpoint has several ports, for people; or "" */
    char endpoint[RDZV_ENDPOINT_MAX];
    struct rdzv_program program; /* what that node runs; shown "": not known, not compared */
    bool static_ranks;        /* every node has a --node-rank of its own: 0 … max-1, each once */
    uint64_t form_timeout_ns; /* the limit from FORM to its acknowledgement */
    /* how long to wait for failures that may turn out to be the first cause */
    uint64_t settle_ns;
    uint64_t log_nonce; /* sent to every node in FORM */
    uint64_t job_ns;    /* the age of the job when this leader begins */
    /* the time that workers get to end: a leader that leaves waits that much longer for others */
    uint64_t grace_ns;
    /* the time between probes of silent nodes that wait for a place; for all of them together */
    uint64_t waiter_probe_ns;

    enum group_leadership leadership;
    /* Nothing starts before: leases of earlier epochs may still be valid. 0: none can be */
    uint64_t not_before_ns;
    /* Of the last leader; NULL: there is none. Copied. Members in it that don't come back are
     * probed, and count as lost at absent_until_ns */
    const struct handover *handover;
    uint64_t absent_until_ns;
    const char *stop_reason; /* with which it stopped its last group; NULL: it did not. Borrowed */
    uint64_t lost_ns;        /* when this agent lost the last leader; 0: not known */
    /* its incarnation: all other members get one margin more to come back; 0: not known */
    uint64_t old_leader;
    struct rdzv_peer self; /* ARBITER: as in the claim */
};

/* Sets the defaults of the settings; form 60 s, settle 500 ms, probes of waiters 10 ms; epoch 1. */
void group_config_default(struct group_config *config);
