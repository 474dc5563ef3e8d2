/* One node's machine: follows its leader as long as it holds a lease, and with an arbiter finds the
 * next leader, or becomes it (election.h). Pure.
 *
 *     SEARCHING ─welcomed─▶ IDLE ─FORM─▶ PREPARING ─prepared─▶ PREPARED ─START + lease─▶ RUNNING
 *                           ▲  ▲             │                     │                       │
 *                           │  └─STOP, nack──┴──STOP, other FORM───┘  STOP, lease end, leaving,
 *                           └────────all gone──────── STOPPING ◀────────── leader gone ────┘
 *     any ──CLOSED and all gone, leader gone for good, left──▶ ENDED
 *
 * HELD is RUNNING after a pause: the lease ended while this agent did not run. Its workers are
 * stopped (SIGSTOP) until the leader grants a lease for the same group, and killed if it does not.
 * FINISHED (all workers ended with 0) and FAILED (one did not) are the state RUNNING with another
 * report: the workers' places are kept until the leader sends STOP or CLOSED. */
#pragma once

#include "rendezvous/leader/group.h"
#include "rendezvous/protocol/wire.h"

enum member_state {
    MEMBER_SEARCHING = 1, /* no leader has welcomed this node yet */
    MEMBER_IDLE,          /* joined, no worker */
    MEMBER_PREPARING,     /* FORM received; the launcher prepares */
    MEMBER_PREPARED,      /* acknowledged; waits for START and a lease */
    MEMBER_RUNNING,       /* workers were started (report: RUNNING, FINISHED or FAILED) */
    MEMBER_HELD,          /* workers are stopped; waits for a lease */
    MEMBER_STOPPING,      /* workers are being ended */
    MEMBER_ENDED,         /* the agent exits with member_end() */
    MEMBER_STATE_COUNT,
};

enum member_election {
    ELECTION_FIXED = 1, /* no arbiter: the leader is at the endpoint, or there is none */
    ELECTION_ASKING,    /* reads the arbiter to find the leader */
    ELECTION_FOLLOWING, /* one leader is known; this node is connected to it, or tries to connect */
    ELECTION_SEEKING,   /* lost the leader: goes to the successors, or waits as one */
    ELECTION_CLAIMING,  /* asks the arbiter for an epoch */
    ELECTION_LEADING,   /* this agent leads: its node follows it like any other */
    ELECTION_COUNT,
};

struct member_config {
    /* the node's own settings; a successor needs min_nodes, node_unit to claim */
    struct rdzv_settings rdzv;
    uint64_t incarnation;    /* of this node */
    uint64_t probe_retry_ns; /* between probes without a result */
    bool has_arbiter;        /* elections beyond FIXED */
    struct rdzv_peer self;   /* this agent, as it appears in its own claims */
    uint64_t seed;           /* for random waits */
};
/* Sets the defaults of the settings; probe retry 200 ms. */
void member_config_default(struct member_config *config);

enum member_event_kind {
    MEMBER_EVENT_TIME = 1,
    MEMBER_EVENT_WELCOME, /* a leader admitted this node: leader (incarnation), epoch */
    MEMBER_EVENT_REFUSED, /* it refused this node: reason. Final */
    /* reason: why the two may not talk to each other, or it is not admitted now; or NULL */
    MEMBER_EVENT_DISCONNECT,
    MEMBER_EVENT_DESIRED, /* desired */
    MEMBER_EVENT_LEASE,   /* lease */
    MEMBER_EVENT_PROBE,   /* probe: the result of a probe of the leader's listener */
    /* launcher: ready for generation, with `reachability` (struct report) */
    MEMBER_EVENT_PREPARED,
    MEMBER_EVENT_FENCED,    /* launcher: the guardian killed workers of generation */
    MEMBER_EVENT_FAILURE,   /* launcher: failure (also: could not prepare, could not spawn) */
    MEMBER_EVENT_SUCCEEDED, /* launcher: all workers of generation ended with 0 */
    /* launcher: no process of any generation is left. failure: if nothing else explains it */
    MEMBER_EVENT_ALL_GONE,
    MEMBER_EVENT_UNKILLABLE, /* launcher: a process that can't be killed: reason */
    MEMBER_EVENT_LEAVE,      /* stop, then leave: reason ("was stopped by SIGTERM"), grace_ns */
    /* NAMED to DEPOSED: of the election; ignored without an arbiter */
    MEMBER_EVENT_NAMED,       /* successors: of the leader to which we are connected */
    MEMBER_EVENT_HANDOVER,    /* handover: complete; after NAMED. Copied */
    MEMBER_EVENT_ARBITER,     /* answer: to a request of an ARBITER effect */
    MEMBER_EVENT_JOINER,      /* caller: a node sent JOIN to our listener, and is parked there */
    MEMBER_EVENT_JOINER_GONE, /* caller: its connection has ended */
    MEMBER_EVENT_PEER_PROBE,  /* caller (the incarnation probed), probe */
    MEMBER_EVENT_REDIRECT,    /* epoch, peer: a redirection to the leader */
    MEMBER_EVENT_DEPOSED, /* our own group has ended: another agent leads, or the job was closed */
    MEMBER_EVENT_SAFE_POINT, /* launcher: a worker of generation reported it */
    MEMBER_EVENT_STEP,       /* launcher: the first step of generation */
    MEMBER_EVENT_DOMAIN,     /* launcher: domain and fabric (struct report) are known */
    /* launcher: sick, xid and gpu (struct report), until the next one; sick "": the node is fit */
    MEMBER_EVENT_HEALTH,
    MEMBER_EVENT_KIND_COUNT,
};

struct member_event {
    enum member_event_kind kind;
    uint64_t now_ns;
    uint64_t leader; /* WELCOME */
    uint32_t epoch;  /* WELCOME */
    /* WELCOME: the leader's settings, for all nodes, in place of member_config's. 0: keep */
    uint64_t heartbeat_ns, margin_ns, lease_ns;
    const struct desired *desired;
    struct lease lease;
    enum probe_result probe;
    struct generation generation;
    uint32_t reachability;
    const struct failure *failure;
    const char *reason;
    uint64_t first_step, last_step; /* launcher's events of a generation: as in struct report */
    const char *domain, *fabric;
    const char *sick;
    uint32_t xid;
    int32_t gpu;
    uint64_t grace_ns;
    const struct successors *successors;
    const struct handover *handover;
    const struct arbiter_answer *answer;
    uint64_t joiner;
    const struct rdzv_peer *peer;
};

enum member_effect_kind {
    /* JOIN with member_report(), at the endpoint; with an arbiter at each address of `peer`, ending
     * an attempt at another. DISCONNECT: all have failed, the HELLO was of another agent, or the
     * peer refused. `soon`: without a pause */
    MEMBER_EFFECT_CONNECT = 1,
    MEMBER_EFFECT_REPORT, /* send member_report() */
    MEMBER_EFFECT_RENEW,  /* renew */
    MEMBER_EFFECT_PROBE,  /* probe the leader's listener */
    /* generation, form (member_form()): prepare, then EVENT_PREPARED */
    MEMBER_EFFECT_PREPARE,
    /* generation: start the workers; reachability: the ways that work for all members */
    MEMBER_EFFECT_START,
    /* end the workers with grace_ns (UINT64_MAX: own default) and reason; then ALL_GONE */
    MEMBER_EFFECT_STOP,
    MEMBER_EFFECT_FENCE,  /* SIGKILL everything now; then ALL_GONE */
    MEMBER_EFFECT_HOLD,   /* SIGSTOP to all workers; then RESUME or FENCE */
    MEMBER_EFFECT_RESUME, /* paused_ns: they continue; for how long this node did not run */
    /* lease_end_ns: the end of the lease, for the guardian; TIME_NEVER: nothing runs */
    MEMBER_EFFECT_LEASE_END,
    MEMBER_EFFECT_SEND_LEAVE, /* send LEAVE on the connection, then close it */
    MEMBER_EFFECT_END,        /* the node no longer takes part: member_end() */
    MEMBER_EFFECT_HANG_UP,    /* end the connection or the attempt, without a DISCONNECT */
    MEMBER_EFFECT_ECHO,       /* echo: send it to the leader at once */
    MEMBER_EFFECT_ARBITER,    /* request: send it to the arbiter */
    MEMBER_EFFECT_PROBE_PEER, /* peer: probe its listener, then PEER_PROBE */
    /* lead: serve parked and later nodes with a new group; then connect to our own server */
    MEMBER_EFFECT_LEAD,
    /* how the listener answers JOINs, also of parked nodes: `join_policy`; REDIRECTED: `peer`,
     * `epoch` */
    MEMBER_EFFECT_JOIN_POLICY,
    MEMBER_EFFECT_KIND_COUNT,
};

enum member_join_policy {
    JOIN_POLICY_SENT_AWAY = 1, /* refused: "the agent there does not lead" */
    JOIN_POLICY_PARKED,        /* held: this agent may lead soon */
    JOIN_POLICY_REDIRECTED,    /* `peer` leads */
    JOIN_POLICY_SERVED,        /* this agent leads: LEAD has made the server */
};

struct member_effect {
    enum member_effect_kind kind;
    struct renew renew;
    struct generation generation;
    uint64_t grace_ns;
    uint64_t lease_end_ns, paused_ns;
    uint32_t reachability;
    bool soon;
    struct echo echo;
    struct rdzv_peer peer;
    enum member_join_policy join_policy;
    uint32_t epoch;
    /* LEAD: the rest is as by group_config_default(), for the launcher to fill in. Borrowed until
     * the next step, as its handover */
    const struct group_config *lead;
    const struct arbiter_request *request; /* borrowed until the next step */
    const char *reason;                    /* borrowed until the next step */
};

struct member_update {
    struct member_effect *effects; /* owned by the update, reused */
    size_t n_effects;
    uint64_t deadline_ns;
};
void member_update_fini(struct member_update *u);

/* How the node's part in the job ended, for the exit status and the report. */
enum member_end_kind {
    MEMBER_END_NONE = 0,
    MEMBER_END_SUCCESS,
    /* the job failed: reason, and the first cause in `failure` if there is one */
    MEMBER_END_FAILED,
    MEMBER_END_LEADER_LOST, /* reason */
    MEMBER_END_REFUSED,     /* reason: the configuration is refused */
    MEMBER_END_LEFT,        /* this node was asked to stop, and has stopped */
};
struct member_end {
    enum member_end_kind kind;
    char reason[RDZV_REASON_MAX];
    /* FAILED: the leader says that the program is not to blame; see struct desired */
    bool no_fault;
    bool has_failure;
    struct failure failure;
    uint32_t restarts_used, max_restarts;
    bool was_closed; /* the job was over before this node joined it */
    bool was_over;   /* and before this node was started: it found the close at once */
    bool was_spare;  /* a group ran without this node, as last received from the leader */
};

struct member;
_must_use_ int member_new(const struct member_config *config, uint64_t now_ns, struct member **ret);
void member_free(struct member *m);

void member_step(struct member *m, const struct member_event *event, struct member_update *ret);

enum member_state member_state(const struct member *m);
/* borrowed until the next step */
const struct report *member_report(const struct member *m);
const struct form *member_form(const struct member *m); /* of the newest FORM */
/* the newest STOP or CLOSED, or NULL */
const struct desired *member_stop_cause(const struct member *m);
const struct member_end *member_end(const struct member *m);
struct generation member_generation(const struct member *m); /* of the newest FORM, or none */
uint64_t member_lease_end(const struct member *m);           /* 0: none */
/* workers were started, and not all are gone */
bool member_has_workers(const struct member *m);
enum member_election member_election(const struct member *m);
uint32_t member_epoch(const struct member *m); /* the highest that it knows of */
/* The leader that this node follows. False: none is known. */
bool member_leader(const struct member *m, struct rdzv_peer *ret);
/* What it waits for without a leader: one sentence, or "". Borrowed until the next step. */
const char *member_waiting(const struct member *m);

const char *member_state_name(enum member_state s);
bool member_may_move(enum member_state from, enum member_state to);
const char *member_election_name(enum member_election s);
bool member_election_may_move(enum member_election from, enum member_election to);
void member_check(const struct member *m);
