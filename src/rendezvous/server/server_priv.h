/* Shared by the files of the leader's side, and private to them.
 *   node_listener_io.c     accepts, sends HELLO, passes JOINs and COMMANDs on
 *   server_io.c            the group's steps and effects; the nodes' connections
 *   server_operators_io.c  the status and what the workers do, for operators
 *   server_whose_io.c      who owns the clients of the workers' store, on other machines */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "io/pump.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/protocol/probe_io.h"
#include "rendezvous/server/server_io.h"

/* An operator that asks for the status or the stacks. Part of the listener's struct joiner. */
struct rdzv_asking {
    struct list link;               /* linked while it waits, or reads stacks */
    struct conn *conn;              /* the listener's */
    struct server_stacks *of;       /* stacks, while it is linked */
    uint64_t timeout_ns, period_ns; /* the same: as it asked for them */
    uint64_t until_ns;              /* it may send nothing until then */
};

struct shared_text;
struct overviews {
    struct loop_timer *timer;
    struct list asking, asked;  /* struct rdzv_asking: for the next overview; for `text` */
    struct shared_text *text;   /* the one that is being made; NULL: none */
    struct overview_node *rows; /* of it */
    uint32_t n_rows, next_row;
    uint64_t cost_ns;       /* of making it, so far */
    uint64_t rest_until_ns; /* no overview is begun before */
};

struct server_stacks {
    struct rdzv_server *server;
    enum rdzv_ask_what what;
    struct loop_timer *timer;
    struct list waiting, asked, readers; /* struct rdzv_asking: for the next answer; for `text`;
                                            their answer is being sent */
    struct shared_text *text;            /* the answer that is being gathered; NULL: none */
    uint64_t rest_until_ns;              /* none is begun before */
    uint64_t over_ns; /* when the samples are complete that were asked for last */
};

struct server_whose {
    struct idmap places; /* by a hash of the address → struct place */
    uint64_t seed;
    struct list due; /* struct server_node, by whose.due_link: questions to them wait */
    struct loop_timer *timer;
    uint32_t last_id;
};

struct node_whose {
    struct list claims;  /* struct claim */
    struct list waiting; /* struct whose_ask, the oldest first */
    struct list sent;    /* struct whose_sent, the same */
    struct list due_link;
    unsigned n_waiting, n_sent;
    bool own_asked; /* on this connection */
    /* Of the node's own connection: OURS: its kernel has it with the addresses that it has here;
     * ELSEWHERE: addresses are translated on the way; 0 or UNKNOWN: not known yet */
    enum peer_owner_kind own;
};

struct rdzv_server {
    struct loop *loop;
    struct rdzv_server_config config;
    struct group_config group_config;
    struct group *group;
    struct group_update update; /* of the current step */
    struct pump pump;
    struct idmap nodes;      /* incarnation → struct server_node */
    struct list all;         /* struct server_node */
    struct list probe_queue; /* struct server_node, by probe_link */
    unsigned n_probes;       /* under way */
    unsigned n_reports;      /* of nodes that were started differently, or refused */
    bool store_open;
    struct generation store_generation;
    uint32_t higher_epoch;        /* the one that was reported to the group; 0: none */
    bool deposed;                 /* another agent leads: the group takes no more steps */
    struct arbiter_record record; /* the last one that was read; epoch 0: none */
    struct server_asker *asker;   /* the operator whose COMMAND causes this step, or NULL */
    /* frame of NAMED in this step, the same for all nodes; empty: not made yet */
    struct strbuf named;
    struct desired last_desired; /* the last DESIRED that was sent to a node, and its frame */
    struct strbuf last_desired_frame;
    struct list
        lease_pending; /* struct server_node, by lease_pending_link: they wait for a LEASE */
    struct loop_timer *lease_pending_timer;
    /* struct server_node, by desired_link: DESIRED is sent in the next turns */
    struct list desired_pending;
    struct loop_timer *desired_timer;
    struct overviews overviews;
    struct server_stacks stacks[ASK_PROFILE + 1];
    struct server_whose whose;
};

struct server_asker {
    struct conn *conn;
    bool answered;
};

struct server_node {
    struct list link;
    struct list probe_link;
    struct list desired_link;       /* linked: its DESIRED is still to be sent */
    struct list lease_pending_link; /* linked: lease_pending is sent before any other message */
    struct lease lease_pending;
    struct rdzv_server *server;
    uint64_t incarnation;
    struct conn *conn;             /* owned; NULL while it is disconnected */
    bool welcomed;                 /* on this connection */
    uint64_t heard_ns;             /* when the last message came on it */
    struct addr listener;          /* where it is probed */
    struct addr local;             /* our end of its connection */
    bool loopback;                 /* it came from this machine, over loopback */
    bool here;                     /* it came from this machine, over any address */
    struct probe *probe;           /* NULL: none under way */
    uint32_t min_nodes, max_nodes; /* as its user gave them */
    bool limits_reported;          /* that they differ from the leader's */
    bool reaching;                 /* the next probe shows whether it can be reached at all */
    struct node_whose whose;
};

/* ---- server_io.c ---- */

/* Version and run id were checked before. */
void rdzv_server_join(struct rdzv_server *s, struct conn *conn, const struct wire_join *join);
/* After WELCOME, if that was not sent yet. Does nothing if n is NULL or not connected. */
void server_send(struct server_node *n, const struct wire_message *m);
/* Empties a loopback address, which other machines can't use. "": the leader's machine. */
void server_hide_loopback(char *literal);
/* Other than LEAVE, STATUS and STACKS. Answers on `to`, which is borrowed. */
void rdzv_server_command(struct rdzv_server *s, const struct command *command, struct conn *to);

/* ---- server_operators_io.c ---- */

void server_operators_init(struct rdzv_server *s);
void server_operators_fini(struct rdzv_server *s);
/* STATUS: answered later, on asking->conn. `asking` is borrowed until its link is removed. */
void rdzv_server_status(struct rdzv_server *s, struct rdzv_asking *asking);
/* STACKS: the same. */
void rdzv_server_stacks(struct rdzv_server *s, const struct command *command,
                        struct rdzv_asking *asking);
/* It is gone, or waits for nothing. */
void server_asking_end(struct rdzv_asking *asking);

/* ---- server_whose_io.c ---- */

void server_whose_init(struct rdzv_server *s);
/* After all nodes are freed. */
void server_whose_fini(struct rdzv_server *s);
void server_whose_node_init(struct server_node *n);
void server_whose_node_fini(struct server_node *n);
/* It is connected; `addrs`: of its JOIN. */
void server_whose_joined(struct server_node *n, const char *addrs);
void server_whose_disconnected(struct server_node *n);
/* False: it violates the protocol. */
_must_use_ bool server_whose_answer(struct server_node *n, const struct rdzv_owners *owners);
