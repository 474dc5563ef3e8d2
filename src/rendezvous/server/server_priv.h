/* What the files of the leader's side share. Private to them.
 *   listener_*_io.c    accepts, sends HELLO, passes JOINs and COMMANDs on
 *   server_nodes_io.c  the nodes' connections, their messages as events
 *   server_probe_io.c  probes of the nodes' listeners
 *   server_send_io.c   messages that take more: successors, redirections, answers to operators
 *   server_overview_io.c  the status, for all operators that ask for it
 *   server_io.c        the group's steps and effects, the store's place, life */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "io/pump.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/protocol/probe_io.h"
#include "rendezvous/server/server_io.h"

/* An operator that has asked for the status. Part of what the listener has of it. */
struct rdzv_asking {
    struct list link;  /* linked while an overview for it is not all sent */
    struct conn *conn; /* the listener's */
    bool waits;        /* it is still to come */
};

struct overview_text;
struct overviews {
    struct loop_timer *timer;
    struct list asking;         /* struct rdzv_asking: the next is for them */
    struct list texts;          /* struct overview_text, the oldest first */
    struct overview_text *text; /* that is being made; NULL: none is */
    struct overview_node *rows; /* of it */
    uint32_t n_rows, next_row;
    uint64_t cost_ns;       /* of it, so far */
    uint64_t rest_until_ns; /* none is begun before */
};

struct rdzv_server {
    struct loop *loop;
    struct rdzv_server_config config;
    struct group_config group_config;
    struct group *group;
    struct group_update update; /* of the step under way */
    struct pump pump;
    struct idmap nodes;      /* incarnation → struct server_node */
    struct list all;         /* struct server_node */
    struct list probe_queue; /* struct server_node, by probe_link */
    unsigned n_probes;       /* under way */
    unsigned n_limits_said;
    bool store_open;
    struct generation store_generation;
    uint32_t higher_epoch;        /* that was reported to the group; 0: none */
    bool deposed;                 /* another leads: the group takes no step any more */
    struct arbiter_record record; /* the last that was read; epoch 0: none */
    struct server_asker *asker;   /* whose COMMAND this step is, NULL */
    struct strbuf named;          /* NAMED of this step, the same for all; empty: not yet made */
    struct desired last_desired;  /* the last DESIRED of a node, and its text: */
    struct strbuf last_desired_text;
    struct list
        lease_pending; /* struct server_node, by lease_pending_link: they wait for a LEASE */
    struct loop_timer *lease_pending_timer;
    struct list desired_pending; /* struct server_node, by desired_link: the next turns send it */
    struct loop_timer *desired_timer;
    struct overviews overviews;
};

/* An operator's COMMAND under way. On the stack of rdzv_server_command(). */
struct server_asker {
    struct conn *conn;
    bool answered;
};

struct server_node {
    struct list link;
    struct list probe_link;
    struct list desired_link;       /* linked: its DESIRED is still to be sent */
    struct list lease_pending_link; /* linked: lease_pending goes before any other message */
    struct lease lease_pending;
    struct rdzv_server *server;
    uint64_t incarnation;
    struct conn *conn;             /* owned; NULL while it is disconnected */
    bool welcomed;                 /* on this connection */
    struct addr listener;          /* where it is probed */
    struct addr local;             /* our end of its connection */
    bool loopback;                 /* it came from this machine, over loopback */
    bool here;                     /* it came from this machine, over whatever address */
    struct probe *probe;           /* NULL: none under way */
    uint32_t min_nodes, max_nodes; /* as its user gave them */
    bool limits_said;              /* that they are not the leader's */
    bool reaching;                 /* the next answer shows whether it can be reached at all */
};

/* ---- server_io.c ---- */

/* Steps the group and obeys its effects; from inside a step or a callback: after the present one.
 */
void server_event(struct rdzv_server *s, struct group_event *ev);
/* One line for people, in a callback that may free the server: only while s->pump.busy. */
void server_notice(struct rdzv_server *s, const char *line);

/* ---- server_nodes_io.c ---- */

/* Takes the connection on which this JOIN came, checked for version and run id. */
void rdzv_server_join(struct rdzv_server *s, struct conn *conn, const struct wire_join *join);

/* NULL: unknown. */
struct server_node *server_find(const struct rdzv_server *s, uint64_t incarnation);
/* After a JOIN and its effects: the node gets WELCOME, unless it was sent another message. */
void server_finish_join(struct rdzv_server *s, uint64_t incarnation);
/* WELCOME first, if it was not sent yet. Nothing when n is NULL or not connected. */
void server_send(struct server_node *n, const struct wire_message *m);
void server_send_text(struct server_node *n, const char *text, size_t len);
/* At once, or with the next message to this node where one is due soon: with thousands of nodes
 * each packet costs. Half a heartbeat at most. */
void server_send_lease(struct server_node *n, const struct lease *lease);
/* All that are pending. */
void server_send_pending_leases(struct rdzv_server *s);
/* A node that the group knows of and that never came to this server; NULL: nor does the group. */
struct server_node *server_find_inherited(struct rdzv_server *s, uint64_t incarnation);
/* Tells it why, and forgets it. */
void server_refuse_node(struct server_node *n, const char *reason, bool for_now);
/* Closes its connection and forgets it; its probe is given up. */
void server_drop_node(struct server_node *n);
/* All of them; what is queued for them is still sent. */
void server_free_nodes(struct rdzv_server *s);

/* ---- server_probe_io.c ---- */

/* reach: to find out whether its listener can be reached at all, and report if not. */
void server_probe(struct rdzv_server *s, uint64_t incarnation, bool reach);
void server_stop_probe(struct server_node *n);
/* Those whose turn it is. */
void server_start_probes(struct rdzv_server *s);

/* ---- server_send_io.c ---- */

/* Who may lead next, and where it is one of them all that it has to know. */
void server_send_successors(struct rdzv_server *s, struct server_node *n);
/* Redirects all nodes to the leader, as far as it is known, and ends their connections. */
void server_redirect_all(struct rdzv_server *s, uint32_t epoch);
/* An operator's, other than LEAVE and STATUS. Answers on `to`, which is borrowed for the call. */
void rdzv_server_command(struct rdzv_server *s, const struct command *command, struct conn *to);
void server_answer(struct server_asker *asker, bool ok, const char *text);

/* ---- server_overview_io.c ---- */

_must_use_ int server_overviews_init(struct rdzv_server *s);
void server_overviews_fini(struct rdzv_server *s);
/* STATUS: answered later, on asking->conn. Borrowed until the link is taken out. */
void rdzv_server_status(struct rdzv_server *s, struct rdzv_asking *asking);
