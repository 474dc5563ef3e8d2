/* Shared by the files of this folder, and private to them.
 *   client_io.c        steps and effects of the member; creation and end
 *   client_find_io.c   from CONNECT to a connection: addresses, attempts, pauses
 *   client_ports_io.c  the ports of an endpoint that has several
 *   client_messages_io.c  messages that arrive on that connection, and JOIN
 *   client_probe_io.c  addresses of peers; probes of their listeners */
#pragma once

#include "base/list.h"
#include "io/net/resolver.h"
#include "io/pump.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/protocol/probe_io.h"

#define CLIENT_WAITING_MAX 1536
#define CLIENT_PEER_ADDRS_MAX 32 /* of one peer; more than RDZV_ADDRS_MAX */
#define CLIENT_REACHED_MAX 16
#define CLIENT_PROBES_MAX 8 /* of peers, at once */
#define CLIENT_LOOKS_MAX 16 /* of an endpoint's ports, at once */
#define CLIENT_ADDRS_MAX MAX2(RESOLVE_ADDRS_MAX *RDZV_ENDPOINT_PORTS_MAX, CLIENT_PEER_ADDRS_MAX)

/* What is at one of an endpoint's several ports. */
enum client_found {
    CLIENT_NOT_LOOKED = 0,
    CLIENT_FOUND_NOTHING, /* refused */
    CLIENT_FOUND_SILENT,
    CLIENT_FOUND_HANGS_UP,
    CLIENT_FOUND_NOT_MUSTER,
    CLIENT_FOUND_OTHER_VERSION,
    CLIENT_FOUND_STRANGER,  /* they may not talk to each other; detail: why, and what to do */
    CLIENT_FOUND_OTHER_RUN, /* detail: its name */
    CLIENT_FOUND_ERROR,     /* detail: the error */
};

struct client_port {
    enum client_found found;
    char detail[AUTH_WHY_MAX];
};

/* A probe of one of its addresses. */
struct client_look {
    struct rdzv_client *client;
    struct probe *probe; /* NULL: it is free for the next address */
    size_t at;           /* index in addrs */
};

struct rdzv_client {
    struct loop *loop;
    struct rdzv_client_config config;
    bool has_arbiter;
    struct rdzv_peer self;
    struct rdzv_settings rdzv; /* this node's own; lease and heartbeat as last received */
    struct member *member;
    struct member_update update;
    struct pump pump;
    bool ended; /* ops.end was called */

    /* The search for the leader: one round tries each address once. */
    struct rdzv_peer target;  /* with an arbiter: the agent to connect to */
    struct loop_timer *retry; /* the next round, or the end of an attempt */
    struct resolve *resolve;
    struct addr addrs[CLIENT_ADDRS_MAX];
    size_t n_addrs, next_addr;
    uint64_t attempt_ns; /* when the present attempt ends */
    uint64_t backoff_ns; /* before the next round; 0: none */
    struct conn *conn;   /* NULL: none */
    bool greeted;        /* the target's HELLO has arrived on it */
    bool join_due;       /* JOIN is sent on it when rdzv_client_join() is called */
    bool welcomed;       /* on this connection */
    uint64_t n_welcomes;
    uint64_t welcomed_ns; /* when that agent last sent WELCOME; 0: never */
    bool called;          /* CALL was sent on it, because JOIN has to wait */
    char waiting[CLIENT_WAITING_MAX];
    char *node_summary;     /* owned; NULL: none yet */
    struct rdzv_warm *warm; /* likewise */

    /* An endpoint of several ports. */
    struct client_port ports[RDZV_ENDPOINT_PORTS_MAX]; /* found in this round; as config.ports */
    unsigned first_port;                               /* the index where a round begins */
    enum rdzv_finding finding;                         /* of the last round */
    int code;                /* the errno of the last attempt; 0: it did not fail by one */
    unsigned waits_at_first; /* how often client_wait_at_first() was true */
    bool wait_is_on;         /* retry: this round begins again */
    struct client_look looks[CLIENT_LOOKS_MAX];
    size_t look_next; /* the next address */
    bool looking;

    /* A handover that arrives in parts; `n_handover` of its members have arrived. */
    struct handover handover;
    uint32_t n_handover;
    bool handover_open;

    /* Where the leader can be probed, once it has welcomed us. */
    uint64_t leader;
    uint32_t leader_epoch;
    struct addr leader_listener;
    struct probe *probe;
    struct list peer_probes; /* struct peer_probe */
    unsigned n_peer_probes;
    /* Peers that were reached at these addresses, by us or by the leader that named them. Only for
     * them a refused connection means that they are gone. */
    struct {
        uint64_t incarnation;
        struct addr listener;
    } reached[CLIENT_REACHED_MAX];
    unsigned next_reached;
};

/* ---- client_io.c ---- */

/* Steps the member and carries out its effects. Called from inside a step or a callback, it does so
 * after the current step.
 */
void client_event(struct rdzv_client *c, struct member_event *ev);
void client_show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text);
/* Reports that this node is a spare, each time that it becomes one; or that it is excluded. */
void client_show_spare(struct rdzv_client *c, const struct desired *d);

/* ---- client_find_io.c ---- */

void client_want_connect(struct rdzv_client *c, const struct member_effect *e);
/* Ends the connection or the attempt, without an event. */
void client_hang_up(struct rdzv_client *c);
/* The same with a DISCONNECT event: the member decides whether to try again. */
void client_disconnected(struct rdzv_client *c);
/* Whether the errno shows that this host has no route there: further attempts fail, too, until its
 * network changes. */
bool client_cannot_connect(int code);
/* This address did not answer as a leader: tries the next one, or emits DISCONNECT. */
void client_attempt_failed(struct rdzv_client *c, const char *why);
/* The same for -EKEYREJECTED of conn_io.h. */
void client_not_to_talk(struct rdzv_client *c, const char *why);
/* The same with the peer's reason: it is a leader that has no place now, or it does not lead.
 */
void client_refused_for_now(struct rdzv_client *c, const char *reason);
/* The time for an attempt, or a pause, is over. */
void client_on_retry(void *arg);
/* Gives up the current attempt for one at this address of the round. */
void client_attempt_at(struct rdzv_client *c, size_t at);
/* The agent of this attempt is one of this run: it gets the whole time for WELCOME. */
void client_met(struct rdzv_client *c);
/* A look found no leader, but this: the next one follows after a pause, while the attempt is
 * silent. */
void client_look_again(struct rdzv_client *c, const char *found);

/* ---- client_ports_io.c: all do nothing, or what one port needs, unless there are several ---- */

/* The order of the attempts: port by port from ports[first], the last one followed by ports[0], and
 * for each port every address. Returns n_ports * n. */
size_t client_port_addrs(const uint16_t *ports, unsigned n_ports, unsigned first,
                         const struct addr *addrs, size_t n, struct addr *ret);
/* Begins a round: sets c->addrs from the host's addresses. Returns how many there are now. */
_must_use_ size_t client_spread_ports(struct rdzv_client *c, const struct addr *addrs, size_t n);
/* What the current attempt found. code, why: as conn_ops.on_closed has them. */
void client_note(struct rdzv_client *c, enum client_found what, const char *detail);
void client_note_code(struct rdzv_client *c, int code, const char *why);
/* The current attempt has failed. True: nobody listens at the first port; it is tried again soon,
 * and the others are not tried yet. */
bool client_wait_at_first(struct rdzv_client *c);
/* The last attempt of a round has failed; `greeted`: at an agent of this run. May replace the
 * text. */
void client_round_over(struct rdzv_client *c, bool greeted, char text[CLIENT_WAITING_MAX]);
void client_describe_ports(const struct rdzv_client *c, char ret[CLIENT_WAITING_MAX]);
/* The leader is at the port of the current attempt: the next round begins there. */
void client_keep_port(struct rdzv_client *c);
/* The current attempt is silent: looks at all other addresses, and attempts where an agent of this
 * run answers. */
void client_look(struct rdzv_client *c);
void client_end_look(struct rdzv_client *c);

/* ---- client_messages_io.c ---- */

extern const struct conn_ops client_conn_ops;
void client_send_join(struct rdzv_client *c);
/* Only if there is a connection, and a leader. */
void client_send_node_summary(struct rdzv_client *c);
void client_send_warm(struct rdzv_client *c);
/* Does nothing if no leader has sent WELCOME. */
void client_send_to_leader(struct rdzv_client *c, const struct wire_message *m);
void client_drop_handover(struct rdzv_client *c);

/* ---- client_probe_io.c ---- */

/* Fills in the addresses of the peer's listener, to be tried in turn; first the one that is known
 * to work. Returns how many. */
size_t client_peer_addrs(const struct rdzv_client *c, const struct rdzv_peer *peer,
                         struct addr out[CLIENT_PEER_ADDRS_MAX]);
void client_remember(struct rdzv_client *c, uint64_t incarnation, const struct addr *listener);
void client_probe_leader(struct rdzv_client *c);
void client_probe_peer(struct rdzv_client *c, const struct rdzv_peer *peer);
void client_free_probes(struct rdzv_client *c);
