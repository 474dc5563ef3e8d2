/* How the workers of one generation on this node are stopped, and what becomes of the processes
 * that they leave. A stop's signal goes to the workers' own processes. When all have ended, what
 * they left gets SIGTERM and the rest of the grace, then SIGKILL. Pure; worker_io carries it out.
 *
 *              STOP                 TIMER (grace over), KILL
 *     RUNNING ──────► STOPPING ─────────────────► KILLING
 *        │ last exit     │ last exit                 │ last exit
 *        └──────┬────────┘                           ▼
 *               ▼         TIMER (grace over), KILL
 *            ENDING ─────────────────────────────► SWEEPING
 *             │  ▲                                    │ a pass that found nothing
 *             │  │ UNSPARED: those that were          │
 *             ▼  │ spared are to end, too             │
 *            GONE ◄───────────────────────────────────┘
 *
 * all_gone comes before GONE if all processes that are left can end beside the next group. */
#pragma once

#include "base/util.h"

enum worker_state {
    WORKER_STATE_RUNNING = 1, /* no worker was asked to stop */
    WORKER_STATE_STOPPING,    /* the stop signal was sent; the deadline is the end of the grace */
    WORKER_STATE_KILLING,     /* SIGKILL was sent; repeated until all have ended */
    WORKER_STATE_ENDING, /* all workers have ended; their descendants have the rest of the grace */
    WORKER_STATE_SWEEPING, /* all workers have ended; their descendants are being killed */
    WORKER_STATE_GONE,     /* nothing is left */
};

enum worker_event_kind {
    WORKER_EVENT_EXITED = 1, /* a worker ended, or could not be started */
    WORKER_EVENT_STOP,       /* signo, grace_ns */
    WORKER_EVENT_KILL,       /* SIGKILL at once, without grace (fence, second ^C) */
    WORKER_EVENT_TIMER,      /* the deadline has come */
    WORKER_EVENT_SWEPT,      /* answer to update.sweep: left, blocking */
    WORKER_EVENT_UNSPARED,   /* passes spare fewer processes than before */
};

struct worker_event {
    enum worker_event_kind kind;
    uint64_t now_ns;
    int signo;
    uint64_t grace_ns;
    uint32_t left;     /* processes that were still there */
    uint32_t blocking; /* of these, those that must end before another group starts */
};

/* What a pass does with each process that it finds. */
enum worker_pass {
    WORKER_PASS_NONE = 0,
    WORKER_PASS_LOOK, /* counts it */
    WORKER_PASS_KILL,
    WORKER_PASS_TERM, /* SIGTERM, then SIGCONT */
};

struct worker_update {
    int signal_all;         /* send this (then SIGCONT) to every living worker; 0: nothing */
    bool kill_all;          /* SIGKILL to every living worker and all below it */
    enum worker_pass sweep; /* one pass over all that is left below, answered by SWEPT */
    bool report_waiting;    /* once: leftovers have used WORKER_PATIENCE_NS */
    /* once: some processes have survived SIGKILL for WORKER_UNKILLABLE_NS */
    bool report_unkillable;
    bool all_gone; /* once, and again after UNSPARED: another group may start */
    bool over;     /* GONE was reached */
};

/* Between repeats of SIGKILL and of passes: doubled from the minimum up to the maximum. */
#define WORKER_RETRY_MIN_NS (1 * NS_PER_MS)
#define WORKER_RETRY_MAX_NS (100 * NS_PER_MS)
#define WORKER_UNKILLABLE_NS (5 * NS_PER_S)
#define WORKER_PATIENCE_NS (2 * NS_PER_S)

struct worker_group_machine {
    enum worker_state state;
    uint32_t n_left;      /* workers that have not ended */
    uint64_t deadline_ns; /* when TIMER is due; TIME_NEVER */
    uint64_t retry_ns;    /* length of the next wait */
    uint64_t killed_ns;   /* when SIGKILL was first sent, or sweeping began */
    bool unkillable_reported;
    uint64_t grace_ns;  /* what leftovers of a worker get that was not stopped */
    uint64_t settle_ns; /* how long they get to detach before SIGTERM, if no worker was stopped */
    /* while ENDING: when it began, when SIGTERM is due, when the grace is over */
    uint64_t ended_ns, term_ns, end_ns;
    bool asked, waiting_reported, released; /* SIGTERM was sent; all_gone was given */
};

void worker_group_machine_init(struct worker_group_machine *m, uint32_t n, uint64_t grace_ns,
                               uint64_t settle_ns);
/* Asserts only on bugs of muster (more exits than workers). Late STOP and KILL are ignored. */
void worker_group_machine_step(struct worker_group_machine *m, const struct worker_event *event,
                               struct worker_update *ret);
