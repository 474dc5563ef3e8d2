/* The leader's side on the network. Two objects:
 *
 * rdzv_listener (every agent has one) accepts on the node's listening sockets. A connection whose
 * first bytes are those of PyTorch's TCPStore goes to config.store_client. Every other one gets
 * GREETING when it has called, and HELLO when it is known that it may talk to this agent. A node's
 * JOIN goes to the rdzv_server, if this agent leads; otherwise it is refused, parked until the
 * leader is known, or redirected to the leader. Operators' COMMANDs, one after the other, are
 * answered by the agent (LEAVE) or by the server, or redirected to the leader.
 *
 * rdzv_server (only the leading agent) owns the group machine, its timer and the connections of
 * the nodes. It decides nothing: it turns messages into events and effects into messages. The
 * leader's own node joins over TCP like every other.
 *
 *     l = rdzv_listener_new(loop, &listener_config);
 *     rdzv_listener_add(l, node_fd);                 created before the guardian forked
 *     rdzv_server_new(loop, &group_config, &server_config, &s);
 *     rdzv_listener_add(l, endpoint_fd);
 *     rdzv_listener_serve(l, s);
 *     … rdzv_listener_serve(l, NULL) or rdzv_listener_free(l), then rdzv_server_free(s)
 *
 * Everything that a peer can make us store is bounded: by the limits below, and for stacks in
 * server_operators_io.c; muster-protocol(7), LIMITS, lists them all. Of too many connections
 * without a valid JOIN, the oldest goes whose source has most, by rough account, so that one
 * source can't shut out others; sources have equal shares of the handshakes, too. A peer that
 * violates the protocol is disconnected. */
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
    /* How long a connection may stay without a byte, and without a JOIN; 0: RDZV_FIRST_BYTES_NS,
     * RDZV_FIRST_WORD_NS */
    uint64_t first_bytes_ns, first_word_ns;
    uint64_t lease_ns, heartbeat_ns; /* for parked connections; 0: the kernel's time-outs */
    struct peer_gate *gate;          /* borrowed; judges who connects. NULL: everybody may */
    struct auth *auth;               /* borrowed; NULL: as AUTH_NONE */
    /* All callbacks may be NULL. They may call any rdzv_listener function except
     * rdzv_listener_free(). */
    /* A node was parked, or a parked node's connection has ended by itself. */
    void (*joiner)(void *arg, uint64_t incarnation, bool came);
    /* COMMAND_LEAVE: this agent's node must leave. Fills in the answer. */
    void (*leave)(void *arg, const char *reason, struct answer *ret);
    /* A client of PyTorch's TCPStore has connected; nothing was read from it. The callee takes
     * ownership of fd. NULL: such clients are disconnected. */
    void (*store_client)(void *arg, int fd);
    bool store_for_all; /* its clients need not be those that the gate admits */
    /* The leader that this agent follows; as rdzv_client_leader(). */
    bool (*find_leader)(void *arg, uint32_t *ret_epoch, struct rdzv_peer *ret);
    void *arg;
};

_must_use_ struct rdzv_listener *rdzv_listener_new(struct loop *loop,
                                                   const struct rdzv_listener_config *config);
/* Adds a listening socket; at most 4. Takes ownership of it, also on failure. Returns 0 or a
 * negative errno. */
_must_use_ int rdzv_listener_add(struct rdzv_listener *l, int fd);
/* This is an address, with the port of one of the sockets, at which the job uses it: connections to
 * that port at an address that was not named are closed unread from now on, so that nobody of
 * another network talks to this agent. Those from this machine are served all the same. At most
 * RDZV_CHOSEN_MAX addresses: with more, all are served. The socket itself listens at every address,
 * because it is older than what this knows, and must be the only one: a port that refuses is taken
 * as proof that no process of the node is left. */
#define RDZV_CHOSEN_MAX 16
void rdzv_listener_choose(struct rdzv_listener *l, const struct addr *at);
/* From now on JOINs go to this server (borrowed; NULL: they are refused). Parked nodes go to it at
 * once, in the order in which they came. */
void rdzv_listener_serve(struct rdzv_listener *l, struct rdzv_server *server);
/* Sets how nodes that send JOIN are answered from now on, and applies this to parked nodes at once.
 * SERVED is allowed only after rdzv_listener_serve() has set the server; any other policy removes
 * the server. `leader` and `epoch`: for REDIRECTED (copied). */
void rdzv_listener_join_policy(struct rdzv_listener *l, enum member_join_policy join_policy,
                               const struct rdzv_peer *leader, uint32_t epoch);
/* Closes the sockets and the connections that have not joined. NULL is fine. */
void rdzv_listener_free(struct rdzv_listener *l);

/* Called from the loop, after a step of the group. Each callback may call any rdzv_server function;
 * that takes effect after the current effects. Strings are borrowed for the call. */
struct rdzv_server_ops {
    /* Opens a new store for the workers of this generation, on a free port of this address (its
     * port is 0). Sets *at to where the workers find it. Returns 0, or a negative errno and the
     * reason in *err: then the job ends. */
    int (*store_open)(void *arg, struct generation generation, struct addr *at, struct err *err);
    /* Closes the store: its workers are gone. Called once for each opened store, also from
     * rdzv_server_free(). */
    void (*store_close)(void *arg, struct generation generation);
    /* One line for people on the leader: a node was lost, a restart, … */
    void (*notice)(void *arg, const char *line);
    /* A worker has told a safe point. Called between steps. May be NULL; must not free the server
     */
    void (*safe_point)(void *arg);
    /* For the event log and the watchdog. May be NULL */
    void (*timeline)(void *arg, const struct timeline_entry *entry);
    /* Who may talk to this agent, for operators. NULL: everybody; must not free the server */
    void (*access)(void *arg, struct rdzv_access *ret);
    /* Another agent leads, or has closed the job: the nodes have been redirected. The server may be
     * freed at once or from a deferred call. The last callback. */
    void (*deposed)(void *arg, uint32_t epoch);
    /* The job is over, and every node that could be reached knows it. The server may be freed at
     * once or from a deferred call. Connections end when it is freed. */
    void (*done)(void *arg, enum outcome outcome);
};

/* What other parts get from the server, each with its own `arg`. Functions may be NULL, must not
 * free the server, and are called between steps, except `forgotten`. */
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
    /* An operator wants to know what the workers do (COMMAND_STACKS): gather it within timeout_ns,
     * then call rdzv_server_stacks_add() for each node and rdzv_server_stacks_end(), at once or
     * later. There is one such question at a time without a period (ASK_STACKS), and one with one
     * (ASK_PROFILE). NULL: refused */
    struct {
        void (*ask)(void *arg, uint64_t period_ns, uint64_t timeout_ns);
        void (*cancel)(void *arg, enum rdzv_ask_what what); /* no operator waits for it any more */
        void *arg;
    } stacks;
    /* The answer to rdzv_server_whose(): the owner as the client's agent reports it; TRANSLATED
     * instead of ELSEWHERE if a node's own connection from that address is translated. uid: that
     * user, or another such user of the same turn. */
    struct {
        void (*answer)(void *arg, uint32_t id, const struct peer_owner *owner);
        void *arg;
    } owners;
};

struct rdzv_server_config {
    uint16_t listener_port; /* of the leader's own listener, where nodes probe it */
    struct auth *auth;      /* borrowed; for probes. NULL: as AUTH_NONE */
    /* --local-addr: where the store listens, unless the whole group is on this machine; len 0: not
     * given */
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
/* Closes the nodes' connections and open stores. Allowed in its own callbacks. NULL is fine. */
void rdzv_server_free(struct rdzv_server *s);

/* Events of this agent: STOP, EXPECT, RESIGN, HANG, QUIET. Fills in now_ns, and copies what the
 * event points at. Steps at once, unless called from a callback. */
void rdzv_server_event(struct rdzv_server *s, const struct group_event *event);

/* Sends this node a message of the watchdog: ASK, SUSPECTS or PROCEED. False: it is not connected.
 */
_must_use_ bool rdzv_server_watchdog(struct rdzv_server *s, uint64_t incarnation,
                                     const struct wire_message *m);
/* What is known of this address. */
enum peer_source rdzv_server_source(const struct rdzv_server *s, const struct addr *client);
/* Asks the agent at the client's address whose this connection is; parts.owners.answer follows,
 * with this id, unless that agent is silent or is lost. Questions of one turn of the loop travel
 * together. For one node at most 16384 connections wait to be asked about, and 128 questions for an
 * answer; the oldest are given up. Nothing is sent for longer than RDZV_WHOSE_NS after the call. */
#define RDZV_WHOSE_NS (3 * NS_PER_S)
void rdzv_server_whose(struct rdzv_server *s, const struct addr *client, const struct addr *store,
                       uint32_t id);
/* The answer to parts.stacks.ask: a node of the group, and its evidence (copied; not needed if
 * node->missing says why there is none). Ignored if nobody has asked. */
void rdzv_server_stacks_add(struct rdzv_server *s, enum rdzv_ask_what what,
                            const struct rdzv_stacks *node, const char *json, size_t len);
/* All nodes of the group were added, in order; or, for one sentence, why there is no answer. */
void rdzv_server_stacks_end(struct rdzv_server *s, enum rdzv_ask_what what, const char *why_not);

/* For status and tests. Borrowed; it changes while the loop runs. */
const struct group *rdzv_server_group(const struct rdzv_server *s);
