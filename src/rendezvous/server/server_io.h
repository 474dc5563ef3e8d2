/* The leader's side on the network. Two objects:
 *
 * rdzv_listener (every agent has one) accepts on the node's listening sockets. Clients of PyTorch's
 * TCPStore go to config.store_client. Every other peer gets GREETING when it has called, and HELLO
 * when it may talk to this agent. A JOIN goes to the rdzv_server if this agent leads; else the node
 * is refused, redirected, or parked until the leader is known. COMMANDs are answered by the agent
 * (LEAVE) or by the server, or redirected to the leader.
 *
 * rdzv_server (only the leading agent) owns the group machine, its timer and the connections of
 * the nodes: it turns messages into events and effects into messages.
 *
 *     l = rdzv_listener_new(loop, &listener_config);
 *     rdzv_listener_add(l, node_fd);                 created before the guardian forked
 *     rdzv_server_new(loop, &group_config, &server_config, &s);
 *     rdzv_listener_add(l, endpoint_fd);
 *     rdzv_listener_serve(l, s);
 *     … rdzv_listener_serve(l, NULL) or rdzv_listener_free(l), then rdzv_server_free(s)
 *
 * What a peer can make us store is bounded: by the limits below, and for stacks in
 * server_operators_io.c; muster-protocol(7), LIMITS, lists them all. Of too many connections
 * without a valid JOIN, the oldest goes whose source has most, by rough account; sources have equal
 * shares of the handshakes, too. A peer that violates the protocol is disconnected. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/auth/auth_io.h"
#include "rendezvous/member/member.h"

#define RDZV_PENDING_MAX 8192
#define RDZV_FIRST_BYTES_NS (3 * NS_PER_S)
#define RDZV_FIRST_WORD_NS (10 * NS_PER_S)
#define RDZV_ROOM_NS (500 * NS_PER_MS) /* nobody goes sooner for another one */
#define RDZV_HANDSHAKES_MAX 1024       /* of TLS, at once; 42 KiB each */
#define RDZV_HANDSHAKE_NS (3 * NS_PER_S)
/* Nobody loses its place sooner to a source that has fewer. */
#define RDZV_HANDSHAKE_ROOM_NS (100 * NS_PER_MS)
#define RDZV_PROBES_MAX 16 /* at once */
#define RDZV_OPERATORS_MAX 256
/* While a group is formed, connections are accepted at this rate, after a burst of this many. */
#define RDZV_STRANGER_NS NS_PER_MS
#define RDZV_STRANGERS_BURST 16384
#define RDZV_OPERATOR_SILENCE_NS (10 * NS_PER_S)

struct rdzv_server;
struct rdzv_listener;

struct rdzv_listener_config {
    uint64_t incarnation; /* of this agent */
    char run_id[RDZV_RUN_ID_MAX];
    /* How long a connection may stay without a byte, and without a JOIN; 0: the above */
    uint64_t first_bytes_ns, first_word_ns;
    uint64_t lease_ns, heartbeat_ns; /* for parked connections; 0: the kernel's time-outs */
    struct peer_gate *gate;          /* borrowed; judges who connects. NULL: everybody may */
    struct auth *auth;               /* borrowed; NULL: as AUTH_NONE */
    /* Callbacks may be NULL, and may call all but rdzv_listener_free(). */
    /* A node was parked, or a parked node's connection has ended by itself. */
    void (*joiner)(void *arg, uint64_t incarnation, bool came);
    /* COMMAND_LEAVE: this agent's node must leave. Fills in the answer. */
    void (*leave)(void *arg, const char *reason, struct answer *ret);
    /* Of PyTorch's TCPStore; nothing was read from it. Takes ownership of fd. NULL: it is
     * closed. */
    void (*store_client)(void *arg, int fd);
    bool store_for_all; /* its clients need not be those that the gate admits */
    /* The leader that this agent follows; as rdzv_client_leader(). */
    bool (*find_leader)(void *arg, uint32_t *ret_epoch, struct rdzv_peer *ret);
    void *arg;
};

_must_use_ struct rdzv_listener *rdzv_listener_new(struct loop *loop,
                                                   const struct rdzv_listener_config *config);
/* Takes ownership of the socket. At most 4. */
void rdzv_listener_add(struct rdzv_listener *l, int fd);
/* The job uses the port of one of the sockets at this address. Connections to that port at
 * addresses that were not named are closed unread from now on, so that no host of another network
 * can talk to this agent; those from this machine are served all the same. With more than
 * RDZV_CHOSEN_MAX addresses, all are served. The socket itself listens at every address, because a
 * port that refuses is taken as proof that no process of the node is left. */
#define RDZV_CHOSEN_MAX 16
void rdzv_listener_choose(struct rdzv_listener *l, const struct addr *at);
/* JOINs go to this server (borrowed; NULL: they are refused), parked nodes at once, in order. */
void rdzv_listener_serve(struct rdzv_listener *l, struct rdzv_server *server);
/* How JOINs are answered from now on, and parked nodes at once. SERVED: only after
 * rdzv_listener_serve() has set the server, which other policies remove. REDIRECTED: `leader`,
 * `epoch`. */
void rdzv_listener_join_policy(struct rdzv_listener *l, enum member_join_policy join_policy,
                               const struct rdzv_peer *leader, uint32_t epoch);
/* Closes the sockets and the connections that have not joined. NULL is fine. */
void rdzv_listener_free(struct rdzv_listener *l);

/* Called from the loop, after a step. A rdzv_server function that is called from inside takes
 * effect after the current effects. Strings are borrowed for the call. */
struct rdzv_server_ops {
    /* Opens a store for the workers of this generation, on a free port of this address. Sets *at to
     * where the workers find it. A negative errno and the reason in *err: then the job ends. */
    int (*store_open)(void *arg, struct generation generation, struct addr *at, struct err *err);
    /* Called once for each opened store, also from rdzv_server_free(). */
    void (*store_close)(void *arg, struct generation generation);
    /* One line for people on the leader: a node was lost, a restart, … */
    void (*notice)(void *arg, const char *line);
    /* A worker has reported a safe point. Called between steps. May be NULL; must not free the
     * server */
    void (*safe_point)(void *arg);
    /* For the event log. May be NULL */
    void (*timeline)(void *arg, const struct timeline_entry *entry);
    /* GROUP_EFFECT_STARTED, STOPPING or RELEASED, for the watchdog. May be NULL */
    void (*workers)(void *arg, enum group_effect_kind what);
    /* Who may talk to this agent, for operators. NULL: everybody; must not free the server */
    void (*access)(void *arg, struct rdzv_access *ret);
    /* Another agent leads, or has closed the job: the nodes have been redirected. The last
     * callback. The server may be freed at once or later. */
    void (*deposed)(void *arg, uint32_t epoch);
    /* Every node that could be reached knows that the job is over. The server may be freed as in
     * `deposed`; connections end then. */
    void (*done)(void *arg, enum outcome outcome);
};

/* For other parts, each with an `arg`. Functions may be NULL, must not free the server, and are
 * called between steps, except `forgotten`. */
struct rdzv_server_parts {
    struct { /* summaries of nodes; again when a node came back, or sends a new one */
        void (*received)(void *arg, uint64_t incarnation, const char *host, const char *text);
        void (*forgotten)(void *arg, uint64_t incarnation); /* it was lost, left or was refused */
        void *arg;
    } summaries;
    struct { /* signs of a node's workers, unchanged; its state, for operators */
        void (*signs)(void *arg, uint64_t incarnation, const struct rdzv_signs *signs);
        void (*state)(void *arg, struct rdzv_watchdog *ret);
        void *arg;
    } watchdog;
    struct { /* where the job's time goes, for operators */
        void (*state)(void *arg, struct rdzv_time *ret);
        void *arg;
    } time;
    struct { /* pieces of a node's evidence, unchanged */
        void (*piece)(void *arg, uint64_t incarnation, const struct rdzv_evidence *piece);
        void (*forgotten)(void *arg, uint64_t incarnation);
        void *arg;
    } evidence;
    /* COMMAND_STACKS: what do the workers do? rdzv_server_stacks_add() for each node and
     * rdzv_server_stacks_end() follow within timeout_ns. One question at a time without a period
     * (ASK_STACKS), and one with one (ASK_PROFILE). NULL: refused */
    struct {
        void (*ask)(void *arg, uint64_t period_ns, uint64_t timeout_ns);
        void (*cancel)(void *arg, enum rdzv_ask_what what); /* no operator waits for it any more */
        void *arg;
    } stacks;
    /* The answer to rdzv_server_whose(). TRANSLATED instead of ELSEWHERE if a node's own connection
     * from that address is translated. uid: that user, or another such user of the same turn. */
    struct {
        void (*answer)(void *arg, uint32_t id, const struct peer_owner *owner);
        void *arg;
    } owners;
};

struct rdzv_server_config {
    uint16_t listener_port; /* of the leader's own listener, where nodes probe it */
    struct auth *auth;      /* borrowed; for probes. NULL: as AUTH_NONE */
    /* --local-addr: where the store listens, unless the group is on this machine; len 0: none */
    struct addr local_addr;
    struct arbiter *arbiter;         /* borrowed; NULL unless the group's anchor is one */
    struct leader_file *leader_file; /* borrowed; NULL unless the group's anchor is one */
    struct rdzv_server_ops ops;
    void *arg; /* of ops */
    struct rdzv_server_parts parts;
};

/* Copies both configs. 0, -EINVAL (the group's config makes no sense), or another errno. */
_must_use_ int rdzv_server_new(struct loop *loop, const struct group_config *group_config,
                               const struct rdzv_server_config *config, struct rdzv_server **ret);
/* Closes connections and open stores. Allowed in its own callbacks. NULL is fine. */
void rdzv_server_free(struct rdzv_server *s);

/* STOP, EXPECT, RESIGN, HANG, QUIET. Fills in now_ns, and copies what the event points at. Steps at
 * once, unless called from a callback. */
void rdzv_server_event(struct rdzv_server *s, const struct group_event *event);

/* ASK, SUSPECTS or PROCEED. False: the node is not connected. */
_must_use_ bool rdzv_server_watchdog(struct rdzv_server *s, uint64_t incarnation,
                                     const struct wire_message *m);
/* What is known of this address. */
enum peer_source rdzv_server_source(const struct rdzv_server *s, const struct addr *client);
/* Asks the agent at the client's address who owns this connection; parts.owners.answer follows,
 * with this id, unless that agent is silent or lost. For one node at most 16384 connections wait to
 * be asked about, and 128 questions for an answer; the oldest are given up. Nothing is sent for
 * longer than RDZV_WHOSE_NS after the call. */
#define RDZV_WHOSE_NS (3 * NS_PER_S)
void rdzv_server_whose(struct rdzv_server *s, const struct addr *client, const struct addr *store,
                       uint32_t id);
/* A node of the group, and its evidence (copied; none if node->missing says why). Ignored if no
 * operator has asked. */
void rdzv_server_stacks_add(struct rdzv_server *s, enum rdzv_ask_what what,
                            const struct rdzv_stacks *node, const char *json, size_t len);
/* All were added, in order; or, for one sentence, why there is no answer. */
void rdzv_server_stacks_end(struct rdzv_server *s, enum rdzv_ask_what what, const char *why_not);

const struct group *rdzv_server_group(const struct rdzv_server *s); /* borrowed, and changes */
