/* Shared by the files of the listener, and private to them.
 *   node_listener_io.c        accepts, sends HELLO, limits waiting connections
 *   node_listener_shake_io.c  limits handshakes
 *   node_listener_calls_io.c  answers to nodes that send JOIN, and to operators */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_priv.h"

#define LISTENER_SOCKETS_MAX 4
#define LISTENER_SOURCES 256 /* addresses share these, by a hash that nobody knows outside */

/* Where unknown callers come from. */
struct source {
    struct list callers; /* struct joiner without a first message, by kin; oldest first */
    size_t n;
    /* of these, by turn: whose handshake is under way, and who waits for one; oldest first */
    struct list shaking, waiting;
    size_t n_shaking;
};

struct rdzv_listener {
    struct loop *loop;
    struct rdzv_listener_config config;
    struct rdzv_server *server; /* borrowed; NULL: this agent does not lead */
    enum member_join_policy join_policy;
    struct rdzv_peer leader; /* REDIRECTED */
    uint32_t leader_epoch;
    struct listener *sockets[LISTENER_SOCKETS_MAX];
    size_t n_sockets;
    struct addr chosen[RDZV_CHOSEN_MAX]; /* rdzv_listener_choose() */
    size_t n_chosen;                     /* 0: all are; more than there is room for: the same */
    struct list silent;                  /* struct joiner that has sent nothing, oldest first */
    struct list pending; /* struct joiner without a first message, in order of its first bytes */
    struct list shaking; /* struct joiner whose handshake is under way, oldest first */
    struct source sources[LISTENER_SOURCES]; /* of these three */
    size_t n_shaking, n_waiting;
    uint64_t source_seed;
    struct list parked;    /* struct caller, in the order in which they came */
    struct list operators; /* struct caller, the one that is silent for longest first */
    size_t n_pending, n_parked, n_operators;
    size_t pending_max;
    struct idmap parked_by_incarnation;
    bool paused;
    /* when the next stranger can be accepted, by the rate; may be ahead of now */
    uint64_t spent_until_ns;
    /* for the deadlines of the oldest pending caller and of the operator that is silent for
     * longest, and for accepting strangers again */
    struct loop_timer *timer;
};

/* A connection that has no other owner: a probe, a node that is about to join, a parked node, an
 * operator, or an unknown peer. */
struct joiner {
    struct list link;
    struct list kin;       /* while it is silent or pending */
    struct source *source; /* the same; NULL: no more */
    struct list turn;      /* while its handshake is under way, or waits */
    bool shakes, waits;
    uint64_t shaking_ns; /* since when */
    struct rdzv_listener *listener;
    size_t *count;             /* the counter of the list that it is in */
    struct conn *conn;         /* owned; NULL before its first bytes: */
    int fd;                    /* owned until it is the conn's */
    struct loop_watch *first;  /* waits for the first bytes */
    bool called;               /* CALL has come */
    bool ours;                 /* PEER_OURS, by the kernel */
    bool store_only;           /* the gate refuses it */
    uint64_t since_ns;         /* when it came */
    uint64_t deadline_ns;      /* while it is pending, or an operator */
    struct rdzv_asking asking; /* if it is an operator */
    uint64_t incarnation;      /* parked */
    char *join;                /* parked: its JOIN in the format of the wire, which is short */
    size_t join_len;
};

/* ---- node_listener_io.c ---- */

/* Sets the timer, and stops or continues accepting. */
void listener_update_interest(struct rdzv_listener *l);
/* Moves the caller to another list. */
void listener_move(struct joiner *c, struct list *to, size_t *count);
/* Frees `c`, and returns its connection, which the calling function must end or pass on. */
_must_use_ struct conn *listener_take(struct joiner *c);

/* ---- node_listener_shake_io.c ---- */

/* conn_ops.on_handshake */
bool listener_on_handshake(void *arg, struct conn *conn);
/* Its handshake is done, or its connection ends. */
void listener_end_handshake(struct joiner *c);
/* When listener_serve_waiting() has something to do; TIME_NEVER: never. */
uint64_t listener_next_handshake_ns(const struct rdzv_listener *l);
/* Begins handshakes that wait, as far as there is room, and makes room. */
void listener_serve_waiting(struct rdzv_listener *l);

/* ---- node_listener_calls_io.c ---- */

extern const struct conn_ops listener_pending_ops;
