/* Whether a job hangs: the machine of the leader's agent. Events in, a verdict out; pure.
 *
 *                first beat              no beat                 a limit is reached
 *     STARTING ──────────────► OK ◄─────────────────► QUIET ──────────────────────► HUNG
 *         │                    ▲        a beat                                       │ │
 *         │                    └───────────────────── a beat ────────────────────────┘ │
 *         └──── a worker is stopped, or no beat within  --hang-timeout ────────────────►┘
 *     Any state ── START, the workers of a new generation run ──► STARTING
 *     Any state ── END, they are being stopped ──► NONE
 *
 *     struct hang *h = hang_new(&limits);
 *     hang_step(h, &event, &update);        act on the update; arm its deadline for a TIMER
 *
 * A beat is a second in which more than half of the main threads moved; quiet is the time since the
 * last one. A node sends nothing while all its workers move, so the workers of a silent node move.
 * It sends the rows of all its workers
 *     once a second while one of them has not moved for 3 s, or its announced deadline is over;
 *     once after that;
 *     once when a worker announces a first or a different deadline, has exited with 0, or can't be
 *         seen or is seen again; and once to a new leader if there is such a worker.
 * A worker that can't be seen (SIGN_MOVED and SIGN_UNSEEN) counts as moving, but is not a suspect
 * for that: no conclusion follows that would not follow if it were seen to move. since_announced_ns
 * counts only time in which the agent itself ran and the worker was not stopped. Signs come once a
 * second and not at once: "moved" therefore means within HANG_MOVED_NS.
 *
 * Limits, by what is seen:
 *     a worker is stopped (T), others wait for it               HANG_STOPPED_NS of quiet
 *     all are stopped, one is traced, asks for input, or
 *         waits until the job's output is read                  never; this time is not counted
 *     the job announces steps or deadlines, and all who do
 *         are late; before that, nothing below counts           what they announced
 *     nothing moves: main threads, busy ones, bytes, GPUs       limits.still_ns
 *         (a main thread that waits for NCCL's kernels spins: the links of its GPU show it)
 *     a worker is busy, writes, or moves                        limits.timeout_ns of quiet
 *     a wait at this place of the program ended by itself once  three times that, if that is longer
 * Before the first beat only T and limits.timeout_ns count. After one has waited for input or for a
 * reader, quiet begins again.
 *
 * Time is counted only while it proves something: not when the leader itself was stopped (its timer
 * came late), when a node that reported that its workers wait is silent, or when the job was
 * stopped or traced, or waits for a person. A new leader starts at zero. A clock
 * that goes back (now_ns) counts from there on.
 *
 * A slow worker is not a hang: the others' beats continue. An endless loop and a long evaluation on
 * one rank look the same; time alone distinguishes them. */
#pragma once

#include <stdbool.h>

#include "base/util.h"
#include "watchdog/look/signs.h"

#define HANG_TICK_NS (1 * NS_PER_S)
#define HANG_MOVED_NS (2 * NS_PER_S) /* for so long after it moved, a worker counts as moving */
#define HANG_FIRST_SIGNS_NS (5 * NS_PER_S) /* a worker that doesn't move is reported within this */
#define HANG_SILENT_NS (5 * NS_PER_S)      /* no word from a node that spoke: time stands still */
#define HANG_GAP_NS (3 * NS_PER_S)         /* between two steps: of a longer gap, one tick counts */
#define HANG_STOPPED_NS (10 * NS_PER_S)
#define HANG_ANNOUNCED_MIN_NS (10 * NS_PER_S) /* of quiet, before an announced deadline counts */
#define HANG_REPORT_AGAIN_NS (300 * NS_PER_S)
#define HANG_PLACE_MIN_NS (10 * NS_PER_S) /* a shorter wait at a place is not remembered */
#define HANG_PLACE_TIMES 3                /* what was waited there once: so long it may be again */
#define HANG_RANKS_MAX 65536

enum hang_event_kind {
    HANG_EVENT_START = 1, /* workers run: n, nodes. Also when an agent begins to lead */
    HANG_EVENT_END,       /* they are being stopped, whatever the reason */
    HANG_EVENT_SIGNS,     /* node, rows, n: what a node sent. Rows of others' ranks are ignored */
    HANG_EVENT_ENDED,     /* rank: it has exited with 0 */
    HANG_EVENT_PLACE,     /* rank, place: where it waits, from evidence */
    HANG_EVENT_TIMER,     /* the deadline has come */
};

struct hang_event {
    enum hang_event_kind kind;
    uint64_t now_ns;
    uint32_t n;                      /* START: world size, 1 … HANG_RANKS_MAX. SIGNS: of rows */
    const uint32_t *nodes;           /* START: of each rank, its node's number; borrowed, copied */
    uint32_t node;                   /* SIGNS: the sender's number */
    const struct worker_signs *rows; /* SIGNS; borrowed */
    uint32_t rank;
    uint64_t place;
};

enum hang_why {
    HANG_WHY_NONE = 0,  /* no limit counts */
    HANG_WHY_STOPPED,   /* a worker is stopped, others wait */
    HANG_WHY_SUSPENDED, /* all are stopped, one is traced, or waits for a person: never */
    HANG_WHY_ANNOUNCED, /* the deadline of steps, or one announced */
    HANG_WHY_STILL,     /* nothing moves */
    HANG_WHY_BUSY,      /* others wait for one that does something */
    HANG_WHY_NO_BEAT,   /* no beat since the start */
};

/* Why a worker is a suspect before any evidence. */
enum hang_sign {
    HANG_SIGN_STOPPED = 1,
    HANG_SIGN_BEHIND, /* its announced step is lower than the others' */
    HANG_SIGN_ENDED,  /* it has exited with 0, and others wait */
    HANG_SIGN_ASKS,   /* it waits for input from a person; not its fault */
    HANG_SIGN_HELD,   /* it waits until the job's output is read; neither */
    HANG_SIGN_TRACED, /* a debugger holds it (t); neither */
    HANG_SIGN_BUSY,   /* it is busy, writes or moves; the others don't */
};
struct hang_suspect {
    uint32_t rank, node;
    enum hang_sign sign;
};

#define HANG_TEXT_MAX 256

struct hang_update {
    enum watchdog_state state;
    uint64_t quiet_ns; /* counted since the last beat; 0 while there are beats */
    uint64_t limit_ns; /* the limit of quiet that counts now; TIME_NEVER: none */
    enum hang_why why;
    /* Once: keep evidence and report a line. After limits.report_ns of quiet, and again after
     * HANG_REPORT_AGAIN_NS. While one asks for input, or waits for a reader: after
     * limits.report_ns of that, once each for a START. */
    bool report_due;
    /* Once: the verdict. Take evidence; then, if that is the action, stop the group, unless there
     * was a beat meanwhile. */
    bool hung;
    /* With hung and report_due: one sentence without a full stop, such as "nothing has moved for
     * 180 s (--hang-still)". */
    char text[HANG_TEXT_MAX];
    bool spins; /* with hung: a worker runs all the time at an unchanged place */
    /* With hung and report_due: who stands out by signs alone; may be none. Borrowed from the
     * machine until its next step. */
    const struct hang_suspect *suspects;
    uint32_t n_suspects;
    uint64_t deadline_ns; /* always: TIME_NEVER or when TIMER is due */
};

struct hang *hang_new(const struct hang_limits *limits); /* never NULL */
void hang_free(struct hang *h);                          /* takes NULL */
void hang_step(struct hang *h, const struct hang_event *event, struct hang_update *ret);
