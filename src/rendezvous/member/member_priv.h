/* Shared by the files of the member's machine, and private to them.
 *   member.c     the node: its group, workers and lease
 *   election.c   which leader it follows, and when it leads
 *
 * A node's part in the election of its leader (muster-rendezvous(7), "Succession"): which leader it
 * follows, where it searches for the next one, and when it can claim an epoch. Without an arbiter
 * it stays FIXED, and nothing of election.c is called. Pure.
 *
 *     ASKING ─record─▶ FOLLOWING ─gone, silent─▶ SEEKING ─rules 2, 4─▶ CLAIMING ─won─▶ LEADING
 *       │ none: claim      ▲                        │ a leader            │ lost          │
 *       ▼                  ├────────────────────────┘◀────────────────────┘               │
 *     CLAIMING             └──────────────── another leads ───────────────────────────────┘
 */
#pragma once

#include "base/idmap.h"
#include "rendezvous/member/member.h"

/* A connected leader that is silent for so many heartbeats is probed. */
#define SILENT_HEARTBEATS 3
/* The first wait between probes: a guardian that is killing processes needs only milliseconds. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)

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

struct held_lease {
    uint64_t end_ns;         /* 0: none */
    struct generation names; /* the generation that the newest lease names, */
    uint64_t names_end_ns;   /* and the end of that lease: START needs it */
};

#define ELECTION_REQUESTS_MAX 3

struct member {
    struct member_config config;
    enum member_state state;
    uint64_t now_ns;
    struct member_update *update; /* of the current step */
    uint64_t since_ns;
    uint64_t due_ns; /* when the next MEMBER_EVENT_TIME was asked for */

    struct leader_link link;
    struct held_lease lease;

    /* The group. */
    struct generation generation; /* of the newest FORM, or of a STOP for an unknown generation */
    struct form form;
    uint32_t reachability; /* of START: the ways that work for all members */
    bool start_wanted, has_workers, fenced;
    uint64_t held_until_ns, paused_ns; /* after a sleep: how long workers can be HELD; its length */
    bool held_stop;                    /* when it comes, the workers are stopped, */
    uint64_t held_grace_ns;            /* with this grace */
    struct report report;
    bool report_due; /* it changed while there was no connection, or is sent with the next RENEW */
    bool has_stop_cause;
    struct desired stop_cause;
    bool has_later; /* a FORM that came before this node was idle again */
    struct desired later;

    struct member_end end; /* kind is set as soon as it is decided */
    bool leaving, closed;
    uint64_t leave_by_ns; /* asked to leave, but it may be the next leader; TIME_NEVER: not so */
    uint64_t leave_grace_ns;
    char reason[RDZV_REASON_MAX]; /* effects point to it */

    /* The election: election.c. */
    enum member_election election;
    struct rdzv_peer target;        /* the peer of the last CONNECT; incarnation 0: none */
    uint64_t target_ns;             /* since when */
    struct rdzv_peer leader_peer;   /* the address at which the leader is, or was, reached */
    bool leader_gone;               /* it is certain that none of its processes is left */
    uint64_t lost_ns;               /* when this node lost the leader */
    uint64_t form_at_ns;            /* when the newest FORM arrived; 0: none */
    uint64_t form_job_ns;           /* the age of the job then */
    uint64_t good_lease_ns;         /* when the last LEASE with a validity, or WELCOME, arrived */
    uint64_t apart_ns;              /* since when it has no leader; for the join timeout */
    unsigned redirects;             /* their number since the last WELCOME */
    unsigned round;                 /* of the search: which agent is tried */
    uint64_t seek_ns, seek_wait_ns; /* when the next round begins, and the pause after it */
    /* FOLLOWING: when to try again a leader that knew a lower epoch; TIME_NEVER: not */
    uint64_t again_ns;
    enum member_join_policy join_policy; /* as last received */
    struct rdzv_peer join_policy_peer;
    struct idmap parked; /* incarnations of the nodes that are parked here */
    char waiting[RDZV_REASON_MAX];
    /* why the last agent that answered does not talk to this node; "" if none did since WELCOME */
    char refusal[RDZV_REASON_MAX / 2];

    struct arbiter_record record;
    uint64_t record_ns; /* when the last successful read began; 0: none */
    bool found_closed;  /* the first record that it read is the close */
    uint64_t beat_ns;   /* since when the beat has this value, as seen by this node */
    /* when the beat was last seen to change between two reads since apart_ns; 0: never */
    uint64_t moved_ns;
    /* since when every answer reports that the arbiter's data is gone; 0: it is not gone */
    uint64_t ruined_ns;
    bool asking;      /* a READ is under way */
    uint64_t read_ns; /* when the next one is due */
    /* the newest epoch that was seen to be vacant or idle; 0: none. Only the agent that wins the
     * next one knows that nothing runs */
    uint32_t quiet_epoch;
    uint64_t patience_ns; /* for how long the beat must be unchanged, for rule 4 */
    uint64_t spread_ns;   /* in an idle epoch: the time between the claims of different nodes */

    /* Being a successor. */
    struct successors named;
    int successor_index; /* index of this node in `named`; -1: it is not a successor */
    bool has_handover;
    struct handover handover;
    /* when the newest LEASE arrived that was echoed, or the naming. Every lease ends at most one
     * lease duration after this */
    uint64_t successor_base_ns;
    bool successor_gone[RDZV_SUCCESSORS_MAX]; /* successors before this node that are gone */
    uint64_t successor_probe_ns;
    uint64_t may_claim_ns; /* since when the conditions for a claim hold; TIME_NEVER: they don't */
    uint32_t claim_epoch;
    uint64_t claim_ns, claim_retry_ns;
    bool claim_asked;
    struct group_config lead;                               /* the effect points here, */
    struct arbiter_request requests[ELECTION_REQUESTS_MAX]; /* others here */
    unsigned n_requests;
};

struct member_effect *member_emit(struct member *m, enum member_effect_kind kind);

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
void link_probe(struct member *m);

void election_init(struct member *m);
/* The silence of others while this node itself slept does not count. */
void election_forgive_sleep(struct member *m);

bool election_has_leader(const struct member *m);
bool election_leader_is_silent(const struct member *m);
void election_lose_leader(struct member *m, bool gone, const char *why);
void election_on_deposed(struct member *m);
/* Whether it may lead next: without a leader, it is a successor of one that is gone or has just
 * hung up, or it has claimed an epoch. */
bool election_may_lead_next(const struct member *m);
/* why: what happened to the last leader, for people; NULL: nothing new. */
void election_seek(struct member *m, const char *why);

/* False: refused, because a node that has seen a higher epoch ignores lower ones. */
bool election_on_welcome(struct member *m, uint64_t leader, uint32_t epoch);
/* why: as MEMBER_EVENT_DISCONNECT's reason. */
void election_on_disconnect(struct member *m, bool was_connected, const char *why);
void election_on_redirect(struct member *m, uint32_t epoch, const struct rdzv_peer *peer);
void election_on_joiner(struct member *m, uint64_t joiner, bool came);
/* Must not be called after the node's end is decided. */
void election_time(struct member *m);
uint64_t election_deadline(const struct member *m);
/* Emits JOIN_POLICY when the answer to nodes that send JOIN here changes. */
void election_set_join_policy(struct member *m, bool ended);
void election_on_answer(struct member *m, const struct arbiter_answer *a);
void election_on_named(struct member *m, const struct successors *named);
void election_on_handover(struct member *m, const struct handover *h);
void election_on_lease(struct member *m, const struct lease *lease);
void election_on_peer_probe(struct member *m, uint64_t incarnation, enum probe_result result);

/* member.c */
void member_renew(struct member *m);
/* It has disconnected: its workers end, then it searches. why_seek: NULL if that is not new. */
void member_leave_leader(struct member *m, const char *why, const char *why_seek);
/* What the last leader wanted does not count for this one. */
void member_forget_start(struct member *m);
/* By the record: the job is over. */
void member_close(struct member *m, const struct arbiter_record *r);
/* There is no leader, and there will be none: the workers get grace_ns. */
void member_end_without_leader(struct member *m, const char *why, uint64_t grace_ns);
