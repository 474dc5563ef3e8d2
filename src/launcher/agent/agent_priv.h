/* What the files of the agent share. Private to these files.
 *   agent_io.c       events of the local workers and the member, signals, life
 *   agent_find_io.c  how to find the leader: the endpoint, the arbiter, this machine's addresses
 *   agent_show_io.c  messages to people */
#pragma once

#include "io/net/resolver.h"
#include "io/process/helper.h"
#include "io/process/reaper.h"
#include "launcher/agent/agent_io.h"
#include "launcher/agent/leading_io.h"
#include "launcher/logs/console_io.h"
#include "launcher/report/events.h"
#include "launcher/supervise/local_workers_io.h"
#include "launcher/worker/worker.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/operate/registry_io.h"

struct agent {
    struct agent_config config;
    uint64_t incarnation;
    char host[FAILURE_NODE_MAX];
    uint64_t nofile_soft;     /* the user's soft RLIMIT_NOFILE, if ours was raised; else 0 */
    uint16_t node_port;       /* of the node's listener */
    struct addr own_listener; /* how this agent reaches it */

    struct loop *loop;
    struct child_reaper *reaper;
    struct console *console;
    struct writer *writer;       /* of the workers' output, and of ours once it runs */
    struct events *events;       /* NULL: not asked for */
    struct node_discovery *look; /* NULL: it is not needed */
    struct local_workers *local_workers;
    struct loop_timer *tidy_timer; /* armed when workers are started first */
    struct helper leftovers;       /* removes what killed agents left behind */
    bool tidied;                   /* it was started */
    struct rdzv_listener *listener;
    struct registry_own registry;
    struct arbiter *arbiter; /* NULL: a fixed endpoint */
    struct rdzv_peer self;   /* with an arbiter: where others reach this agent */
    struct leading *leading; /* what it does while it leads */
    struct rdzv_client *client;
    struct resolve *resolve;
    struct addr own_endpoint;    /* how this agent reaches it, where it leads there; len 0 */
    struct addr endpoint;        /* its address that is this machine's, and not loopback; len 0 */
    struct preflight *preflight; /* NULL: no checks before workers start */
    struct loop_signal *signals[JOB_SIGNALS_MAX];

    int signo; /* the first signal that asked to stop; 0 */
    unsigned interrupts;
    bool asked_to_leave; /* by an operator */
    bool ended, server_done, failed_early;
    bool ran; /* a worker was started, ever */
    struct member_end end;

    /* agent_show_io.c */
    char shown[RDZV_REASON_MAX]; /* the last progress line, not to be repeated */
    uint64_t shown_ns;
    struct failure shown_cause; /* of the stop that was shown last */
    bool has_shown_cause;
};

/* ---- agent_io.c ---- */

/* The agent can't continue: reports why, and ends. */
void agent_give_up(struct agent *a, const char *text);
void agent_quit_if_over(struct agent *a);
/* Events for the member. */
extern const struct rdzv_client_ops agent_client_ops;

/* ---- agent_find_io.c ---- */

/* Joins the job, and leads it where that is this agent's to do. */
void agent_find_place(struct agent *a);
/* The leader's address as others would write it. False: it is reached over loopback, and all nodes
 * are this machine. */
_must_use_ bool agent_leader_text(const struct agent *a, const struct addr *leader,
                                  char ret[ADDR_TEXT_MAX]);

/* ---- agent_show_io.c ---- */

/* What people see. Begin makes the console; end lets it take what is left, until the deadline. */
int agent_show_begin(struct agent *a);
void agent_show_end(struct agent *a, uint64_t deadline_ns);
void agent_show_waiting(struct agent *a, const char *text);
void agent_show_status(struct agent *a, const struct rdzv_status *status);
void agent_show_formed(struct agent *a, struct generation g, const struct form *form);
/* Another node leads from now on; as rdzv_client_ops.leader. */
void agent_show_leader(struct agent *a, uint64_t incarnation, uint32_t epoch,
                       const struct addr *listener, bool first);
/* A stop begins, or its cause became better known. */
void agent_show_stop(struct agent *a, const char *reason, const struct desired *cause);
/* The verdict at the end, with torchrun's report block where a worker failed. */
void agent_show_outcome(struct agent *a);
