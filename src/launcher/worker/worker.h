/* How the workers of one generation on this node are stopped: SIGTERM, grace, SIGKILL, and then the
 * processes that they left behind are killed. Pure: no clock, no processes; worker_io carries out
 * the updates.
 *
 *              STOP                 TIMER (grace over), KILL
 *     RUNNING ──────► STOPPING ─────────────────► KILLING
 *        │ last exit     │ last exit                 │ last exit
 *        └──────────────►└───────► SWEEPING ◄────────┘
 *                                     │ ▲
 *           a pass that found nothing │ │ UNSPARED: those that were spared are to end, too
 *                                     ▼ │
 *                                    GONE
 *
 *     worker_group_machine_init(&m, n);
 *     worker_group_machine_step(&m, &event, &update);      apply the update, arm its deadline */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum worker_state {
    WORKER_STATE_RUNNING = 1, /* no worker was asked to stop */
    WORKER_STATE_STOPPING,    /* the stop signal was sent; the deadline is the end of the grace */
    WORKER_STATE_KILLING,     /* SIGKILL was sent; repeated until all have ended */
    WORKER_STATE_SWEEPING,    /* all workers have ended; their descendants are being killed */
    WORKER_STATE_GONE,        /* nothing is left */
};

enum worker_event_kind {
    WORKER_EVENT_EXITED = 1, /* a worker ended, or could not be started */
    WORKER_EVENT_STOP,       /* signo, grace_ns */
    WORKER_EVENT_KILL,       /* SIGKILL at once, without grace (fence, second ^C) */
    WORKER_EVENT_TIMER,      /* the deadline has come */
    WORKER_EVENT_SWEPT,      /* answer to update.sweep: `left` processes were still there */
    WORKER_EVENT_UNSPARED,   /* passes spare fewer processes than before */
};

struct worker_event {
    enum worker_event_kind kind;
    uint64_t now_ns;
    int signo;
    uint64_t grace_ns;
    uint32_t left;
};

struct worker_update {
    int signal_all; /* send this (then SIGCONT) to every living worker's group; 0: nothing */
    bool kill_all;  /* SIGKILL to every living worker and all below it */
    bool sweep;     /* one pass over all that is left below, answered by SWEPT */
    /* once: some processes have survived SIGKILL for WORKER_UNKILLABLE_NS */
    bool report_unkillable;
    bool all_gone;        /* once, and again after UNSPARED */
    uint64_t deadline_ns; /* always: TIME_NEVER or when TIMER is due */
};

/* The time between repeats of SIGKILL and of passes: it begins with the minimum and is doubled up
 * to the maximum. */
#define WORKER_RETRY_MIN_NS (1 * NS_PER_MS)
#define WORKER_RETRY_MAX_NS (100 * NS_PER_MS)
#define WORKER_UNKILLABLE_NS (5 * NS_PER_S)

struct worker_group_machine {
    enum worker_state state;
    uint32_t n_left; /* workers that have not ended */
    uint64_t deadline_ns;
    uint64_t retry_ns;  /* length of the next wait */
    uint64_t killed_ns; /* when SIGKILL was first sent, or sweeping began */
    bool unkillable_reported;
};

void worker_group_machine_init(struct worker_group_machine *m, uint32_t n);
/* Asserts only on bugs of muster (more exits than workers). Late STOP and KILL are ignored. */
void worker_group_machine_step(struct worker_group_machine *m, const struct worker_event *event,
                               struct worker_update *ret);

/* "SIGSEGV", "SIGRTMIN+3", "signal 77". */
#define WORKER_SIGNAL_TEXT_MAX 24
void worker_signal_text(int signo, char out[WORKER_SIGNAL_TEXT_MAX]);
