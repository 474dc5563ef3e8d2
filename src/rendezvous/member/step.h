/* What all parts of the member machine share: the current step, the link to the leader, and the
 * lease. Private to this folder. */
#pragma once

#include "rendezvous/member/member.h"

/* A connected leader that has sent nothing for this many heartbeats is probed. */
#define SILENT_HEARTBEATS 3
/* The first wait between probes: a guardian that is killing processes needs only milliseconds. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)

/* The link to the leader. */
struct leader_link {
    bool connected;
    uint64_t leader;       /* incarnation; 0: none has welcomed this node */
    uint32_t epoch;        /* the highest that this node knows of */
    uint64_t connected_ns; /* leases that answer earlier RENEWs are ignored */
    uint64_t seen_ns;      /* when the leader's last message arrived */
    uint64_t renew_ns;     /* when the next RENEW is due; TIME_NEVER: none */
    bool probing;
    uint64_t probe_ns;         /* when the next probe is due; TIME_NEVER: none */
    uint64_t probe_wait_ns;    /* the wait before it; doubles up to config.probe_retry_ns */
    uint64_t clock_ns, rtt_ns; /* from the last LEASE, for the next RENEW */
};

/* The lease of this node. */
struct held_lease {
    uint64_t end_ns;         /* 0: none */
    struct generation names; /* the generation that the newest lease names, */
    uint64_t names_end_ns;   /* and the end of that lease: START needs it */
};

/* Valid during one call of member_step(). */
struct step {
    uint64_t now_ns;
    const struct member_config *config;
    struct leader_link *link;
    bool ending; /* the end of the node was decided earlier */
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
/* Probes the leader's listener, unless a probe is under way. */
void link_probe(const struct step *s);
