/* What all parts of a node's machine share about the current step, and the link to the leader and
 * the lease, which most of them use. Private to this folder. */
#pragma once

#include "rendezvous/member/member.h"

/* A connected leader that has sent nothing for this many heartbeats is probed. */
#define SILENT_HEARTBEATS 3
/* The first wait between probes: a guardian at work is done in milliseconds. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)

/* The leader, as far as it is known. */
struct leader_link {
    bool connected;
    uint64_t leader;       /* incarnation; 0: none has welcomed this node */
    uint32_t epoch;        /* the highest that this node knows of */
    uint64_t connected_ns; /* leases that answer older RENEWs don't count */
    uint64_t seen_ns;      /* the leader's last message */
    uint64_t renew_ns;     /* next RENEW; TIME_NEVER */
    bool probing;
    uint64_t probe_ns;         /* next probe; TIME_NEVER */
    uint64_t probe_wait_ns;    /* before it: doubles up to config.probe_retry_ns */
    uint64_t clock_ns, rtt_ns; /* of the last LEASE, for the next RENEW */
};

/* What this node holds. */
struct held_lease {
    uint64_t end_ns;         /* 0: none */
    struct generation names; /* by the newest one, */
    uint64_t names_end_ns;   /* which alone START may count on */
};

/* Lives as long as member_step(). */
struct step {
    uint64_t now_ns;
    const struct member_config *config;
    struct leader_link *link;
    bool ending; /* the node's end was decided before */
    struct member_update *update;
};

struct member_effect *step_emit(const struct step *s, enum member_effect_kind kind);

static inline uint64_t lease_left(const struct held_lease *l, uint64_t now_ns) {
    return l->end_ns > now_ns ? l->end_ns - now_ns : 0;
}

static inline void link_cut(struct leader_link *l) {
    l->connected = false;
    l->renew_ns = TIME_NEVER;
}
static inline void link_raise_epoch(struct leader_link *l, uint32_t epoch) {
    l->epoch = MAX2(l->epoch, epoch);
}
/* Unless a probe of the leader's listener is under way. */
void link_probe(const struct step *s);
