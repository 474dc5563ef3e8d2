/* What the files of the agent share. Private to these files; each begins with its purpose. */
#pragma once

#include <signal.h>

#include "base/idmap.h"
#include "base/text/log.h"
#include "base/text/signal_name.h"
#include "io/net/resolver.h"
#include "io/peer/peer_gate.h"
#include "io/process/helper.h"
#include "io/process/helper_call.h"
#include "io/process/reaper.h"
#include "launcher/agent/agent_io.h"
#include "launcher/agent/agent_life.h"
#include "launcher/ends/tree_signals.h"
#include "launcher/ends/witness_io.h"
#include "launcher/node/gpu_health.h"
#include "launcher/node/health_check_io.h"
#include "launcher/output/console_io.h"
#include "launcher/preflight/preflight_io.h"
#include "launcher/report/events.h"
#include "launcher/srun/requeue_io.h"
#include "launcher/starter/starter_link_io.h"
#include "launcher/supervise/local_workers_io.h"
#include "rendezvous/auth/auth_io.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/operate/registry_io.h"
#include "rendezvous/server/server_io.h"
#include "rendezvous/store/store_door_io.h"
#include "watchdog/act/hang_watch_io.h"

struct agent_ends {
    struct tree_signals tree;
    struct witness *witness;       /* NULL: not started */
    struct loop_timer *tree_timer; /* when a signal counts as the agent's alone */
    struct loop_timer *late_timer; /* what a job that ends at once does not need */
    enum { ENDS_NOTHING = 0, ENDS_ARMED, ENDS_ASKED } late; /* it was armed; Slurm was asked */
    uint64_t own_by_ns;            /* workers wait so long for Slurm's own signal; 0: they don't */
    struct helper_call *wait_call; /* the question to Slurm how long it waits; NULL: none */
    struct helper_call *call;      /* why does it end the job? The end waits for this; NULL: none */
    uint64_t told_ns;              /* when this node was told to end; 0: it was not */
    uint64_t around_ns; /* from SIGTERM to SIGKILL, by what is around this job; 0: nothing is */
};

struct agent_requeue {
    struct requeue *io; /* NULL: not needed yet */
    enum { REQUEUE_NOT_ASKED = 0, REQUEUE_ASKED, REQUEUE_ANSWERED } state;
    int status; /* answered: the exit status */
};

struct agent_stop {
    /* A stop waits until evidence is gathered (TIME_NEVER), then so long for suspects; 0: none */
    uint64_t end_ns;
    struct loop_timer *timer; /* checks whether they have ended */
    uint64_t grace_ns;
    struct loop_timer *hold_timer; /* stops what still runs, while the workers are held */
};

/* Who finds that this node is sick. The first one that does is reported. */
enum health_source {
    HEALTH_OF_GPUS = 0, /* Xids, NVML */
    HEALTH_OF_CHECK,    /* --health-check */
    HEALTH_SOURCES,
};
enum agent_health_state {
    AGENT_HEALTH_RESTS = 0,
    AGENT_HEALTH_HOLDS_JOIN, /* --health-check runs, and nothing else is missing for the JOIN */
    AGENT_HEALTH_BLAMED, /* a worker failed, or is blamed for a hang; not all workers are gone */
    AGENT_HEALTH_GONE,   /* they are; the report of that waits for the checks */
};
struct agent_health {
    enum agent_health_state state;
    struct health_verdict verdicts[HEALTH_SOURCES]; /* the last ones */
    struct health_check *check;                     /* --health-check; NULL: it does not run */
    struct gpu_health gpus;
    struct helper_call *xids;   /* sends Xids; NULL: it does not run */
    size_t taken;               /* bytes of its answer that were read */
    struct loop_timer *timer;   /* when NVML is asked; NULL: no GPU, or no worker was started */
    struct node_discovery *ask; /* asks it after a failure; NULL: it does not run */
    bool awaits_gpus;           /* the next group waits for its answer */
};

/* This agent's work as leader. */
struct leading {
    struct agent *agent;
    struct rdzv_server *server; /* NULL: another node leads */
    struct hang_evidence *evidence;
    struct hang_leader *hang;
    struct job_clock *clock;         /* NULL: --profile=off */
    struct leader_file *leader_file; /* at a fixed endpoint; else NULL */
    struct store_guard *guard;       /* of all stores */
    struct idmap stores;             /* generation → struct store_server */
    struct addr endpoint;            /* the fixed endpoint, as this node reaches it; len 0: none */
    bool listens_for_store;          /* at the port that the user chose */
    /* Whether all nodes are informed of the job's end; RESIGNED: its own node has left. */
    enum { LEADING_SERVES = 0, LEADING_INFORMED, LEADING_RESIGNED } end;
};

/* What is logged once. */
enum agent_logged {
    AGENT_LOGGED_ASSUMED = 1 << 0,  /* where it looks for the others by default */
    AGENT_LOGGED_STRANGER = 1 << 1, /* another user holds the name of this run's leader */
    AGENT_LOGGED_HEALTH = 1 << 2,   /* --health-check gave no verdict */
};

struct agent {
    struct agent_config config;
    uint64_t incarnation;
    char host[FAILURE_NODE_MAX];
    uint64_t nofile_soft;     /* the user's soft limit, if the agent raised its own; else 0 */
    uint16_t node_port;       /* the port of the node's listener */
    struct addr own_listener; /* how this agent reaches it */

    struct loop *loop;
    struct child_reaper *reaper;
    struct console *console;
    struct writer *writer; /* of the workers' output, and of the agent's own once it runs */
    struct events *events; /* NULL: not requested */
    struct node_discovery *discovery; /* NULL: it is not needed */
    struct node_discovery *fabric;    /* asks NVML again for the domain; NULL: it does not */
    struct loop_timer *fabric_timer;
    unsigned n_fabric_asks;
    struct local_workers *local_workers;
    struct hang_watch *hang;
    struct loop_timer *tidy_timer; /* armed when workers are first started; NULL: it has fired */
    struct helper leftovers;       /* removes what killed agents left behind */
    struct peer_gate *gate;        /* NULL: everybody may connect */
    struct auth *auth;
    struct auth_ask *auth_ask; /* NULL: it waits for nothing */
    struct rdzv_listener *listener;
    struct store_door *door; /* where clients of the store go that come to the listener */
    struct registry_own registry;
    struct arbiter *arbiter; /* NULL: a fixed endpoint */
    struct rdzv_peer self;   /* with an arbiter: where others reach this agent */
    struct leading *leading;
    struct rdzv_client *client;
    struct resolve *resolve;
    struct addr own_endpoint; /* how it reaches the endpoint, if it leads there; else len 0 */
    /* It leads if nothing listens at the endpoint, which is on this machine: the agent that did may
     * have been at its end, or the name was not known yet, as that of a new pod. */
    bool may_lead_later;
    int lead_name;             /* held while it leads at one of several ports; -1: none */
    struct addr endpoint;      /* its address on this machine that is not loopback; else len 0 */
    struct starter_link *head; /* NULL: no head has started this agent */
    struct starter_verdict verdict;         /* what it knows of the job while it leads */
    bool has_verdict;                       /* to be sent to the head */
    struct loop_watch *launcher;            /* of its end; NULL: none, or it has ended */
    bool head_gone;                         /* it was killed */
    char head_reason[SIGNAL_TEXT_MAX + 32]; /* of the end that it asked for; "": none */
    struct agent_requeue requeue;
    struct preflight *preflight;       /* NULL: no checks before workers start */
    struct loop_signal *signals[NSIG]; /* by number; NULL: not watched */

    struct agent_health health;
    struct agent_ends ends;
    struct agent_stop stop;
    struct agent_life life;
    struct loop_timer *life_timer;
    int end_signals;    /* see agent_show_end_signals() */
    bool left_output;   /* a signal ended the wait for a reader of the output */
    unsigned n_started; /* groups whose workers it has started */
    unsigned logged;    /* enum agent_logged */
    struct member_end end;

    /* agent_show_io.c */
    char shown[RDZV_REASON_MAX];   /* the last progress line, so that it is not repeated */
    char waiting[RDZV_REASON_MAX]; /* why there is no leader yet; "": there is one */
    enum rdzv_wait waiting_for;    /* the same */
    uint64_t waiting_since_ns;     /* 0: it does not wait */
    uint64_t search_ns;            /* the agent's start, until there is a leader; then 0 */
    struct rdzv_status status;     /* the last one; max_nodes 0: none, or it is out of date */
    uint64_t status_ns;            /* when it arrived */
    uint64_t gathering_since_ns;   /* the first status since the last group formed; 0: none */
    struct loop_timer *waiting_timer;
    uint64_t shown_ns;
    struct failure shown_cause; /* the cause of the last stop that was shown; NONE: none */
};

/* ---- agent_io.c ---- */

extern const struct rdzv_client_ops agent_client_ops;

bool agent_leads(const struct agent *a);
/* Whether nodes and their leader know each other. Then the store takes only their workers. */
bool agent_is_authenticated(const struct agent *a);
/* This agent leads: logs if every process that reaches the job can take part in it, or none can. */
void agent_tell_if_no_key(struct agent *a);

/* ---- agent_ends_io.c ---- */

void agent_ends_begin(struct agent *a);
void agent_ends_free(struct agent *a);
/* Workers run. */
void agent_ends_started(struct agent *a);

void agent_event(struct agent *a, const struct life_event *e);
/* Something that the agent's end waits for has changed. */
void agent_check(void *arg);
/* Logs why, and ends. kind: FAILURE or USAGE. */
#define agent_give_up(a, kind, ...) agent_end_with(a, kind, xasprintf(__VA_ARGS__))
void agent_end_with(struct agent *a, enum life_event_kind kind, char *text); /* takes text */
/* The same during set-up. Returns r. */
_must_use_ int agent_refuse_usage(struct agent *a, int r, const char *text);

/* The workers of this group run, and so does their store. NULL: they run no more. */
void agent_open_door(struct agent *a, const struct form *form);
/* As rdzv_client_ops. */
void agent_stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause);
void agent_fence(void *arg);
void agent_hold(void *arg);
void agent_resume(void *arg, uint64_t paused_ns);
void agent_stop_gathered(void *arg);
/* A stop waits for it no longer. True: one did. */
bool agent_stop_wait_no_more(struct agent *a);

/* As far as it is known. */
int agent_exit_status(const struct agent *a);
/* Records the run's end for "muster status". Before registry_remove(), so it is always found. */
void agent_record_end(const struct agent *a);

/* Warns if Slurm could not requeue this job. */
void agent_requeue_begin(struct agent *a);
/* This agent leads: a node was lost. */
void agent_requeue_lost(struct agent *a, const char *host);

/* Whether the head has asked for the end with this reason: then it has said so itself. */
bool agent_head_said(const struct agent *a, const char *reason);
/* Whether the head of a step of Slurm has asked for the end, and shows it by its own status: srun
 * would print a line for each task whose status is not 0. */
bool agent_head_asked(const struct agent *a);
/* 0, also if no head has started this step, or a negative errno: it is reported. */
_must_use_ int agent_find_head(struct agent *a);
void agent_leads_now(struct agent *a);
/* The verdict for the head, if this agent leads at the job's end. Before it stops leading. */
void agent_read_verdict(struct agent *a);
/* Sends it, as the last thing, because the status is only known then. */
void agent_tell_head(struct agent *a, int status);

/* ---- leading_io.c ---- */

_must_use_ struct leading *leading_new(struct agent *a);
/* After rdzv_listener_serve(listener, NULL). Takes NULL. */
void leading_free(struct leading *l);

/* Leads at this endpoint, whose socket it owns from now on. *ret_own: how this node reaches it.
 * Returns 0, or a negative errno and perhaps the reason. */
_must_use_ int leading_at(struct leading *l, int endpoint_fd, struct addr *ret_own,
                          struct err *err);
/* The address is in use: sets the error to the setting, and the owner. True: it isn't muster. */
bool leading_port_taken(const char *setting, const struct addr *at, struct err *err);
/* In an epoch that the member has won. 0 or a negative errno. */
_must_use_ int leading_on(struct leading *l, const struct group_config *lead);
void leading_let_go(struct leading *l);

/* Finds an address of this machine: `text` is a literal, or one of its names. */
_must_use_ bool leading_local_addr(const char *text, struct addr *ret);

/* ---- agent_find_io.c ---- */

/* Whether NVML is to be asked for the domain of this node, and the JOIN waits for that. */
bool agent_may_have_domain(const struct agent *a);
/* Joins the job, and leads it if this agent is the one to lead. */
void agent_find_place(void *arg);
void agent_begin_to_join(struct agent *a);
/* Nothing listens at this address of the endpoint: leads there if may_lead_later. */
void agent_try_endpoint(void *arg, const struct addr *at);
/* The leader's address as other nodes write it. False: loopback, all nodes are on this machine. */
_must_use_ bool agent_leader_text(const struct agent *a, const struct addr *leader,
                                  char ret[ADDR_TEXT_MAX]);

/* ---- agent_health_io.c ---- */

/* Starts --health-check. After the reaper exists. */
void agent_health_begin(struct agent *a);
void agent_health_free(struct agent *a);
/* True: the checks are not over; agent_begin_to_join() follows. */
_must_use_ bool agent_health_holds_join(struct agent *a);
void agent_health_report(struct agent *a);
/* A worker of this node failed, or the leader blames one for a hang. */
void agent_health_blame(struct agent *a);
/* All workers are gone. True: their report waits for the checks, and is sent then. */
_must_use_ bool agent_health_holds_gone(struct agent *a);
/* The first workers are about to start: Xids are received from now on. */
void agent_gpus_begin(struct agent *a);

/* ---- agent_show_io.c ---- */

/* Whether only the leader shows what is the same on all nodes. */
bool agent_show_is_brief(const struct agent *a);
/* The level of a line that is the same on all nodes. */
enum log_level agent_show_level(const struct agent *a, enum log_level level);
void agent_show_leads(const struct agent *a);
void agent_show_begin(struct agent *a);
/* Before the signal handlers are removed: a descriptor of later signals; -1: there is none. */
_must_use_ int agent_show_end_signals(struct agent *a);
/* Waits until the output is read, or the user leaves. Returns whether workers' output is lost. */
bool agent_show_end(struct agent *a);
void agent_show_waiting(struct agent *a, enum rdzv_wait why, const char *text);
void agent_show_leaving(struct agent *a);
void agent_show_status(void *arg, const struct rdzv_status *status);
void agent_show_formed(struct agent *a, struct generation g, const struct form *form);
void agent_show_leader(void *arg, uint64_t incarnation, const struct addr *listener, bool first);
/* A stop begins, or its cause became better known. */
void agent_show_stop(struct agent *a, const char *reason, const struct desired *cause);
/* The result at the end, with torchrun's report block if a worker failed. */
void agent_show_outcome(struct agent *a);
