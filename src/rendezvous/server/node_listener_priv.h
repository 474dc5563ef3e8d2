/* What the files of the listener share. Private to these files.
 *   node_listener_io.c        accepts, sends HELLO, limits waiting connections
 *   node_listener_calls_io.c  answers to nodes that JOIN, and to operators */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_priv.h"

#define LISTENER_SOCKETS_MAX 4

struct rdzv_listener {
    struct loop *loop;
    struct rdzv_listener_config config;
    struct rdzv_server *server; /* borrowed; NULL: this agent does not lead */
    enum member_join_policy join_policy;
    struct rdzv_peer leader; /* REDIRECTED */
    uint32_t leader_epoch;
    struct listener *sockets[LISTENER_SOCKETS_MAX];
    size_t n_sockets;
    struct list pending;   /* struct caller without a first message, the oldest first */
    struct list parked;    /* struct caller, in the order in which they came */
    struct list operators; /* struct caller, the longest silent first */
    size_t n_pending, n_parked, n_operators;
    size_t pending_max;
    struct idmap parked_by_incarnation;
    bool paused;
    uint64_t spent_until_ns; /* how far ahead of now the rate of strangers is spent */
    /* for the oldest pending and the most silent operator, and when strangers are let in again */
    struct loop_timer *timer;
};

/* A connection without another owner: a probe, a node about to join, a parked one, an operator, or
 * an unknown peer. */
struct caller {
    struct list link;
    struct rdzv_listener *listener;
    size_t *count;             /* of the list that it is in */
    struct conn *conn;         /* owned */
    uint64_t deadline_ns;      /* while pending or an operator */
    struct rdzv_asking asking; /* an operator */
    uint64_t incarnation;      /* parked */
    char *join;                /* parked: its JOIN as it lies on the wire, which is short */
    size_t join_len;
};

/* ---- node_listener_io.c ---- */

/* Sets the timer, and stops or continues accepting. */
void listener_update_interest(struct rdzv_listener *l);
/* Into another list. */
void listener_move(struct caller *c, struct list *to, size_t *count);
/* Forgets it; its connection is the caller's to end or to hand over. */
_must_use_ struct conn *listener_take(struct caller *c);

/* ---- node_listener_calls_io.c ---- */

extern const struct conn_ops listener_pending_ops;
