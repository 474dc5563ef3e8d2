/* The leader's machine: which nodes form the group, when it starts, stops and ends. Pure.
 *
 *     GATHERING ──enough nodes──▶ FORMING ──all acked──▶ RUNNING ──all finished──▶ CLOSED(success)
 *         ▲                          │                     │
 *         │                     node lost,            worker failed, node lost or
 *         │                     nack, timeout         leaving, operator asked
 *         │                          ▼                     ▼
 *         └───────all stopped──── STOPPING ◀───────────────┘
 *                                    └──budget spent / below min──▶ CLOSED(failed)
 *
 *     struct group_update u = {0}; group_new(&config, now_ns, &g);
 *     group_step(g, &event, &u);
 *     … carry out u.effects; set one timer to u.deadline_ns, then a GROUP_EVENT_TIME
 *     group_update_fini(&u) at the end
 *
 * The leader's own node takes part like any other. */
#pragma once

#include "base/err.h"
#include "rendezvous/arbiter/arbiter_messages.h"
#include "rendezvous/leader/parts/group_config.h"
#include "rendezvous/leader/parts/incident.h"
#include "rendezvous/protocol/wire.h"

enum group_event_kind {
    GROUP_EVENT_TIME = 1,   /* a deadline has passed */
    GROUP_EVENT_JOIN,       /* a node came, or came back: info, report, program */
    GROUP_EVENT_REPORT,     /* node, report */
    GROUP_EVENT_RENEW,      /* node, renew */
    GROUP_EVENT_LEAVE,      /* node: it has stopped and leaves; none of its processes is left */
    GROUP_EVENT_DISCONNECT, /* node: its connection ended without LEAVE */
    GROUP_EVENT_PROBE,      /* node, probe: the result of a probe of its listener */
    GROUP_EVENT_MESSAGE,    /* node, message, body: another message of a node */
    GROUP_EVENT_STORE,      /* generation, store_host/store_port, or port 0 and reason */
    GROUP_EVENT_STOP,       /* end the job (a signal, a check of the nodes): reason, halted */
    GROUP_EVENT_ARBITER,    /* answer, to a request of an effect */
    GROUP_EVENT_TOUCHED,    /* touched_ns: when the touch of the leader file began; 0: it failed */
    GROUP_EVENT_HIGHER_EPOCH, /* epoch: a message mentioned this epoch */
    /* the leader's own node has left: DONE follows when a successor can take over, or the arbiter
     * has recorded that there is nothing to wait for. Arbiter only */
    GROUP_EVENT_RESIGN,
    GROUP_EVENT_COMMAND, /* command (EXCLUDE, GROW or STOP): answered by an ANSWER effect */
    /* n_nodes that are here or can still come: others are not waited for; 0: not known */
    GROUP_EVENT_EXPECT,
    /* generation, failure (kind HANG), quiet_ns (how long most workers have waited): the group is
     * stopped as for a failure of that rank's node, which is charged unless its incarnation is 0 */
    GROUP_EVENT_HANG,
    GROUP_EVENT_QUIET, /* quiet_ns: most workers waited for so long, and no longer do */
    GROUP_EVENT_KIND_COUNT,
};

struct group_event {
    enum group_event_kind kind;
    uint64_t now_ns; /* the leader's clock; never goes back */
    uint64_t node;   /* incarnation; JOIN takes it from info */
    const struct node_info *info;
    const struct report *report;
    const struct rdzv_program *program; /* JOIN; NULL: not known, not compared */
    struct renew renew;
    enum probe_result probe;
    struct generation generation;
    const char *store_host;
    uint16_t store_port;
    const char *reason;
    const char *evidence; /* HANG: the folder, on the leader's node; NULL: none */
    bool only_reported;   /* HANG: nothing is stopped for it */
    bool halted;          /* STOP: the job should not be run again as it is */
    enum wire_kind message;
    const void *body; /* its struct */
    const struct arbiter_answer *answer;
    uint64_t touched_ns;
    uint64_t quiet_ns;
    uint32_t epoch;
    uint32_t n_nodes;
    const struct command *command;
    const struct failure *failure; /* HANG; at_ns and node_rank are filled in by the group */
};

enum group_effect_kind {
    GROUP_EFFECT_DESIRED = 1, /* node: send it group_desired() */
    GROUP_EFFECT_LEASE,       /* node, lease */
    GROUP_EFFECT_PROBE,       /* node: probe its listener now */
    /* node: check once, in the background, whether its listener can be reached */
    GROUP_EFFECT_REACH,
    GROUP_EFFECT_REFUSE,      /* node: send it `reason` and close; it never became a node */
    GROUP_EFFECT_FORGET,      /* node: lost or left; close its connection */
    GROUP_EFFECT_STORE_OPEN,  /* generation: open a fresh store, answer with GROUP_EVENT_STORE */
    GROUP_EFFECT_STORE_CLOSE, /* generation: its workers are gone */
    GROUP_EFFECT_STATUS,      /* send group_status() to all nodes */
    /* `reason`: one line for people on the leader (node lost, restart, …) */
    GROUP_EFFECT_NOTICE,
    /* CLOSED and all nodes know it, or the close timeout has passed; or RESIGN is over */
    GROUP_EFFECT_DONE,
    /* node: first send it group_successors(), and group_handover() if it is one of these */
    GROUP_EFFECT_NAME,
    GROUP_EFFECT_ARBITER, /* request: send it to the arbiter */
    GROUP_EFFECT_TOUCH,   /* touch the leader file, with the outcome unless NONE; then TOUCHED */
    /* epoch: another agent leads, or has closed the job, or (our own epoch) its end can't be
     * recorded: redirect all nodes; this agent's own node finds the winner. The last effect */
    GROUP_EFFECT_DEPOSED,
    GROUP_EFFECT_ANSWER,   /* ok, reason: to the COMMAND of this step */
    GROUP_EFFECT_TIMELINE, /* entry: what happened, for the event log */
    /* For the watchdog: */
    GROUP_EFFECT_STARTED,  /* the workers of the current group run */
    GROUP_EFFECT_STOPPING, /* they are being stopped, or the job is closed; it may come twice */
    GROUP_EFFECT_RELEASED, /* an operator, a signal or a node has ended a group that is being
                            * stopped: evidence of the first reason is not awaited any more */
    GROUP_EFFECT_KIND_COUNT,
};

/* One line of the timeline. Times are of the leader's clock; 0: not in this entry. */
enum timeline_kind {
    TIMELINE_LEADS = 1, /* this agent leads from now on */
    TIMELINE_NODE_JOINED,
    TIMELINE_NODE_LOST, /* from_ns: its last message */
    TIMELINE_NODE_LEFT,
    TIMELINE_NODE_EXCLUDED,
    TIMELINE_WORKER_FAILED, /* from_ns: when it happened there, on our clock */
    TIMELINE_HANG,          /* the job hangs; node: where the suspect is; why: the suspect */
    TIMELINE_STOPPING,
    TIMELINE_STOPPED, /* all; from_ns: when it began to stop */
    TIMELINE_FORMED,  /* sent to and acknowledged by all; from_ns: when all had stopped */
    TIMELINE_STARTED,
    TIMELINE_SUCCESSORS,  /* other successors are named; reason */
    TIMELINE_BEAT_PAUSED, /* too few nodes are in contact */
    TIMELINE_CLOSED,
    /* Of the watchdog. from_ns: the last time that most workers moved */
    TIMELINE_QUIET,      /* most of them wait; why: where, and for whom */
    TIMELINE_RESUMED,    /* after QUIET or HANG: they continue */
    TIMELINE_FIRST_STEP, /* the workers train; start */
    /* With --warm, all members have reported. No line of its own: it is for that of STARTED */
    TIMELINE_WARM,
    TIMELINE_INCIDENT, /* incident; generation: that was stopped */
    TIMELINE_KIND_COUNT,
};
struct timeline_entry {
    enum timeline_kind kind;
    uint64_t at_ns;
    struct generation generation;
    uint64_t node;            /* 0: none */
    char name[RDZV_HOST_MAX]; /* of the node, or "" */
    /* NODE_JOINED: as in struct report */
    char domain[RDZV_DOMAIN_MAX], fabric[RDZV_DOMAIN_MAX];
    char why[RDZV_REASON_MAX / 4];           /* one line, or "" */
    char endpoint[RDZV_ENDPOINT_MAX];        /* LEADS: as in struct overview */
    uint64_t from_ns;                        /* the line has the time from then until at_ns */
    enum outcome outcome;                    /* CLOSED */
    uint32_t n_nodes, world_size;            /* FORMED, STARTED */
    struct attempt_start start;              /* FIRST_STEP */
    bool has_warm;                           /* STARTED, WARM: with --warm: */
    uint32_t n_warm;                         /* workers that had imported before, */
    char cold_because[RDZV_WARM_REASON_MAX]; /* and why the first of the others had not, or "" */
    /* INCIDENT. WORKER_FAILED, HANG: failure, evidence, and restarts_used before it */
    struct incident incident;
};
const char *timeline_kind_name(enum timeline_kind k); /* "node_lost" */

struct group_effect {
    enum group_effect_kind kind;
    uint64_t node;
    struct lease lease;
    struct generation generation;
    bool for_now;                          /* REFUSE: it may come again; otherwise that is final */
    bool ok;                               /* ANSWER */
    uint32_t epoch;                        /* DEPOSED */
    enum outcome outcome;                  /* TOUCH */
    const struct arbiter_request *request; /* borrowed like reason */
    const struct timeline_entry *entry;    /* borrowed like reason */
    const char *reason;                    /* borrowed from the group: valid until the next step */
};

struct group_update {
    struct group_effect *effects; /* owned by the update, reused from step to step */
    size_t n_effects;
    uint64_t deadline_ns; /* when a GROUP_EVENT_TIME is due; TIME_NEVER */
};
void group_update_fini(struct group_update *u);

struct group;
/* Copies config. 0 or -EINVAL (config makes no sense). */
_must_use_ int group_new(const struct group_config *config, uint64_t now_ns, struct group **ret);
void group_free(struct group *g);

/* Takes one event, and replaces *ret. Events about unknown nodes or the past change nothing. */
void group_step(struct group *g, const struct group_event *event, struct group_update *ret);

/* The current DESIRED message of a node: false when there is no such node. */
_must_use_ bool group_desired(const struct group *g, uint64_t node, struct desired *ret);
void group_status(const struct group *g, uint64_t now_ns, struct rdzv_status *ret);
/* The current successors; n is 0 without an arbiter. Borrowed until the next step. */
const struct successors *group_successors(const struct group *g);
bool group_is_successor(const struct group *g, uint64_t node);
/* What a successor needs. Fills in *ret; the caller must finish it. */
void group_handover(const struct group *g, struct handover *ret);
/* Rows of the members in rank order, then of other nodes as they came: overview.n_nodes. */
void group_overview(const struct group *g, uint64_t now_ns, struct overview *ret);
size_t group_overview_nodes(const struct group *g, uint64_t now_ns, struct overview_node *out);
void group_history(const struct group *g, uint64_t now_ns, struct job_history *ret);

enum group_state group_state(const struct group *g);
struct generation group_generation(const struct group *g); /* the newest formed, or none */
enum outcome group_outcome(const struct group *g);
uint32_t group_restarts_used(const struct group *g);
/* Nodes known, and members in rank order. Returns how many; writes at most max. */
size_t group_nodes(const struct group *g, uint64_t *out, size_t max);
size_t group_members(const struct group *g, uint64_t *out, size_t max);
/* A node's clock, where it is known: leader's = node's + offset, give or take the error. */
_must_use_ bool group_clock_offset(const struct group *g, uint64_t node, int64_t *ret_offset_ns,
                                   uint64_t *ret_error_ns);
/* NULL when unknown. Borrowed until the next step. */
const struct node_info *group_node_info(const struct group *g, uint64_t node);
/* As messages name it: its host, "b-2" for the second agent of host b; "" when unknown. */
void group_node_name(const struct group *g, uint64_t node, char out[RDZV_HOST_MAX]);

/* Whether the table of states allows this move; the simulator proves that all of them happen. */
bool group_may_move(enum group_state from, enum group_state to);
void group_check(const struct group *g); /* aborts if an invariant does not hold */
