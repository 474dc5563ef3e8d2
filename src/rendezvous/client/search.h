/* A node's search for its leader: which address it tries and when, what the answers mean. Pure.
 *
 *     RESTING ─due─▶ LOOKING ─addresses─▶ CONNECTING ─HELLO─▶ GREETED ─JOIN is sent─▶ JOINING
 *        ▲ ▲                               │  ▲   ▲ │                                    │
 *        │ └──all addresses have failed────┤  │   │ └silence─▶ PROBING                   │
 *        │                                 ▼  │   └──────────────┘                      ▼
 *        └───the connection ends───     RETRYING                       WELCOMED ◀── WELCOME
 *     any ──refused for good──▶ REFUSED
 *
 * A round tries each address once. Between rounds there is a pause: 100 ms, doubling up to 2 s (for
 * a peer, 500 ms). To an endpoint JOIN is sent at once, to a peer after its HELLO.
 *
 * Of an endpoint's several ports, the leader has one. Agents of other runs and other programs are
 * passed over when they refuse or answer. The attempt at a port that is silent for 250 ms continues
 * while all others are probed again and again (PROBING); where an agent of this run answers, the
 * next attempt is made. The leader takes the first port unless it is taken. So if nothing listens
 * there yet, it is tried again soon, a few times, before the others (RETRYING). */
#pragma once

#include "rendezvous/protocol/messages.h"

#define RDZV_ENDPOINT_PORTS_MAX 16 /* of one endpoint */
#define SEARCH_PROBES_MAX 16       /* at once */
#define SEARCH_TEXT_MAX 1536

enum search_state {
    SEARCH_RESTING = 1, /* no attempt: none is wanted, or there is a pause before the next round */
    SEARCH_LOOKING,     /* the addresses are being looked up */
    SEARCH_RETRYING,    /* nothing listens at the first port yet: this round begins again soon */
    SEARCH_CONNECTING,  /* an attempt at one address, which has not answered */
    SEARCH_PROBING,     /* the same, and all other addresses are probed meanwhile */
    SEARCH_GREETED,     /* an agent of this job is there; JOIN is still to be sent */
    SEARCH_JOINING,     /* an agent of this job is there, and has JOIN */
    SEARCH_WELCOMED,    /* it leads, and admitted this node */
    SEARCH_REFUSED,     /* this node will never be admitted */
    SEARCH_STATE_COUNT,
};

/* Why a node waits. */
enum rdzv_wait {
    RDZV_WAIT_ATTEMPT = 1,  /* an attempt at the endpoint failed; the next one follows */
    RDZV_WAIT_NOT_ADMITTED, /* an agent answered, but does not admit this node yet; the same */
    RDZV_WAIT_ELECTION,     /* with an arbiter: no agent leads, or none is known to */
    RDZV_WAIT_PLACE,        /* the job runs, and has no place for this node now */
};

/* What the last round found at the endpoint. */
enum rdzv_finding {
    RDZV_FINDING_ELSE = 0, /* a program, an agent, an error; or no round is over yet */
    RDZV_FINDING_NOTHING,  /* nothing listens there: the leader may come later than this node */
    /* at none of several ports even a refusal; or this host cannot connect there */
    RDZV_FINDING_SILENCE,
};

/* What is at one of several ports. */
enum search_found {
    FOUND_UNKNOWN = 0, /* not tried in this round */
    FOUND_NOTHING,     /* refused */
    FOUND_SILENT,
    FOUND_HANGS_UP,
    FOUND_NOT_MUSTER,
    FOUND_OTHER_VERSION,
    FOUND_OTHER_KEY, /* they may not talk to each other; detail: why, and what to do */
    FOUND_OTHER_RUN, /* detail: its name */
    FOUND_ERROR,     /* detail: the error */
};
struct search_port {
    enum search_found found;
    char detail[AUTH_WHY_MAX];
};

struct search_config {
    char run_id[RDZV_RUN_ID_MAX];
    uint64_t incarnation;                    /* of this node */
    bool has_arbiter;                        /* peers are connected to, not an endpoint */
    uint16_t ports[RDZV_ENDPOINT_PORTS_MAX]; /* of an endpoint that has several */
    unsigned n_ports;                        /* 0: it has one, and `ports` is unused */
    uint64_t connect_timeout_ns;             /* for one attempt at the endpoint */
    uint64_t peer_timeout_ns;                /* for one address of a peer, until HELLO */
};

/* The state of the connection of an attempt. */
enum search_link {
    SEARCH_LINK_CONNECTING = 0,
    SEARCH_LINK_CONNECTED, /* TCP is connected; nothing came */
    SEARCH_LINK_CHOOSING,  /* munge is asked here: it is slow, not the peer */
};

enum search_event_kind {
    SEARCH_EVENT_TIME = 1, /* link */
    SEARCH_EVENT_CONNECT,  /* a leader is wanted: peer with an arbiter; soon: without a pause */
    SEARCH_EVENT_HANG_UP,  /* none is wanted until CONNECT */
    SEARCH_EVENT_ADDRS,    /* n addresses, each host address at each port; 0: none is known: why */
    SEARCH_EVENT_HELLO,    /* hello, at_text, within_host, is_authenticated */
    SEARCH_EVENT_JOINED,   /* JOIN was sent on this connection */
    SEARCH_EVENT_WELCOME,
    SEARCH_EVENT_REFUSED, /* why, final */
    SEARCH_EVENT_INVALID, /* a message that is not allowed now */
    SEARCH_EVENT_CLOSED,  /* the connection ended, or could not be made: code, why */
    SEARCH_EVENT_PROBED,  /* the answer to PROBE: at; run_id of its agent; NULL: code, why */
    SEARCH_EVENT_KIND_COUNT,
};

struct search_event {
    enum search_event_kind kind;
    uint64_t now_ns;
    enum search_link link;
    const struct rdzv_peer *peer;
    bool soon;
    size_t n, at;
    uint32_t version; /* HELLO: of its protocol, */
    uint64_t leader;  /* its incarnation, */
    const char *run_id;
    const char *at_text;   /* the address of the attempt, */
    bool within_host;      /* whether both ends are of this machine, */
    bool is_authenticated; /* and whether agents need keys */
    bool final;
    int code; /* a negative errno; 0: the other side ended it */
    const char *why;
};

enum search_effect_kind {
    SEARCH_EFFECT_RESOLVE = 1, /* look up the addresses; then ADDRS */
    SEARCH_EFFECT_CONNECT,     /* connect to address `at` */
    SEARCH_EFFECT_JOIN,        /* send JOIN when this node's description is complete; then JOINED */
    SEARCH_EFFECT_CLOSE,       /* end the connection, the look-up and all probes */
    SEARCH_EFFECT_PROBE,       /* probe address `at`; then PROBED */
    SEARCH_EFFECT_END_PROBES,
    SEARCH_EFFECT_FAILED, /* for the log: the attempt at `at` failed: wait, why */
    /* for people, if it is news: wait, why (at `at`); NULL: search_describe_ports() */
    SEARCH_EFFECT_SHOW,
    SEARCH_EFFECT_NOTHING_THERE, /* nothing listens at `at`, and this node had no leader yet */
    /* for the member; why: the two may not or cannot talk to each other; or NULL */
    SEARCH_EFFECT_DISCONNECTED,
    SEARCH_EFFECT_REFUSED, /* for the member: why */
    SEARCH_EFFECT_KIND_COUNT,
};
#define SEARCH_NO_ADDR SIZE_MAX

/* Texts are borrowed until the next step, or the event's. */
struct search_effect {
    enum search_effect_kind kind;
    size_t at;
    enum rdzv_wait wait;
    const char *why;
};

/* One PROBE for each slot, one NOTHING_THERE for each address of the host, a few others. */
#define SEARCH_EFFECTS_MAX 64
struct search_update {
    size_t n_effects;
    struct search_effect effects[SEARCH_EFFECTS_MAX];
    uint64_t deadline_ns; /* of the next TIME */
};

struct search {
    struct search_config config;
    enum search_state state;
    uint64_t now_ns;
    struct search_update *update; /* of this step */
    struct rdzv_peer target;      /* with an arbiter: the agent to connect to */
    size_t n_addrs, at;           /* of the round; the address of the attempt */
    bool join_sent;               /* on this connection */
    uint64_t due_ns;              /* RESTING, RETRYING: its end; CONNECTING: when it is silent */
    uint64_t attempt_ns;          /* when the attempt ends */
    uint64_t backoff_ns;          /* before the next round; 0: none */
    uint64_t n_welcomes, welcomed_ns; /* how often WELCOME came; when from this target, 0: never */
    int code;                         /* the errno of the last attempt; 0: it had none */
    enum rdzv_finding finding;
    unsigned n_retries;              /* how often it was RETRYING */
    unsigned first_port, round_port; /* index of the first port of the next round; of this one */
    struct search_port ports[RDZV_ENDPOINT_PORTS_MAX]; /* as config.ports */
    size_t probe_next;                                 /* the next address to be probed */
    unsigned n_probes;                                 /* under way */
    char text[RDZV_REASON_MAX];
};

void search_init(struct search *s, const struct search_config *config, uint64_t now_ns);
void search_step(struct search *s, const struct search_event *event, struct search_update *ret);
bool search_may_move(enum search_state from, enum search_state to);
const char *search_state_name(enum search_state state);

bool search_wants_join(const struct search *s);
/* The port whose addresses come `nth` in the next round, from 0. Not if the endpoint has one. */
uint16_t search_nth_port(const struct search *s, unsigned nth);
/* In one sentence. host: as the user gave it, or ""; address: the first one of it. */
void search_describe_ports(const struct search *s, const char *host, const char *address,
                           char ret[SEARCH_TEXT_MAX]);
