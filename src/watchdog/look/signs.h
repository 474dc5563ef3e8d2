/* What Linux shows of a worker without asking it: the signs from which watchdog/judge concludes
 * whether it moves, waits or was stopped. The files are read once a second.
 *
 * A worker moves if
 *   its main thread uses CPU time (/proc/PID/task/PID/schedstat), unless it only wakes from a sleep
 *       at an unchanged place, as a loop that polls for a lock does;
 *   its main thread writes (/proc/PID/task/PID/io). Writes of other threads do not count: a thread
 *       that logs figures continues in a job that is dead;
 *   its other threads compute: SIGNS_COMPUTES_PERCENT of a core, without the threads of libraries
 *       that poll. gloo's loop wakes a hundred times a second in a job that is dead;
 *   the place of its program changes between two closer looks (watchdog/evidence/slow.h). */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/util.h"
#include "watchdog/worker_signs.h"

/* ---- files of /proc ---- */

/* The first number of a schedstat, in ns, and the third, which counts turns on a CPU. False: not
 * such a text. */
bool signs_ran(const char *schedstat, uint64_t *ret_ns, uint64_t *ret_turns);
/* The number behind `name` in the text. False: it is missing. */
bool signs_number(const char *text, const char *name, uint64_t *ret);
/* A number made of wchar and syscw in the text of /proc/PID/task/TID/io, proc_pid_io(5), which
 * changes with each write. 0: not such a text. */
uint64_t signs_wrote(const char *io);

/* ---- one worker ---- */

/* A main thread that has used less than this since the last sample did not move. PyTorch's data
 * loader checks its children every 5 s (MP_STATUS_CHECK_INTERVAL of torch.utils.data), which takes
 * a part of a ms. */
#define SIGNS_MOVED_NS NS_PER_MS
/* A main thread that uses less than SIGNS_LITTLE_PERCENT of a core, and less than SIGNS_TURN_NS in
 * each turn on a CPU, runs little: it moved only if its place in the program changes. A loop that
 * polls for a lock every 50 ms uses 0.1 to 0.6 ms in each turn. */
#define SIGNS_LITTLE_PERCENT 2
#define SIGNS_TURN_NS NS_PER_MS
#define SIGNS_TURNS 10 /* fewer in a sample count as so many */
#define SIGNS_LITTLE 2 /* in a row: then it may only poll. Fewer than SIGNS_QUIET_NS has seconds */
#define SIGNS_COMPUTES_PERCENT 5 /* other threads that together use so much of a core compute */
#define SIGNS_HOT 5 /* after so many samples in a row of half of the time or more, it may spin */

struct worker_tick { /* one sample */
    /* proc(5): R runs, S sleeps, D cannot be interrupted, T stopped, t traced, Z and X ended;
     * 0: not known, because the file could not be read */
    char state;
    uint64_t ran_ns; /* CPU time of the main thread */
    uint64_t turns;  /* how often it got a CPU; 0: not known */
    uint64_t wrote;  /* bytes and calls of its write(2); 0: not read */
};
struct signs_track {   /* what is known from them */
    uint64_t read_ns;  /* when ran_ns was read */
    uint32_t hot;      /* samples in a row in which it used half of the time, or more */
    uint32_t little;   /* samples in a row in which it ran little, and did not write */
    uint64_t much_ns;  /* when it last ran more, or wrote */
    uint64_t ran_ns;   /* at the last sample that could be read */
    uint64_t turns;    /* at the same */
    uint64_t wrote;    /* at the last sample; 0: it was not read then */
    uint64_t moved_ns; /* when it was last seen to have moved */
    uint32_t flags;    /* SIGN_MOVED, _STOPPED, _TRACED: of the last sample */
    bool known;        /* ran_ns is meaningful */
    bool receives;     /* it waits until something comes: if it wakes, it moves */
    bool moved_once;
};
struct signs_track signs_track_of(uint64_t now_ns);
/* A sample that could not be read counts as moving: nothing is concluded from what is not seen. */
void signs_track_add(struct signs_track *t, const struct worker_tick *tick, uint64_t now_ns);

/* ---- when rows are sent to the leader ----
 *
 * This node's side of the contract at the top of watchdog/judge/hang.h, and what is added to the
 * rows of signs_rows():
 *
 *     signs_report_init(&h, n, first_rank);
 *     each second, for each row of signs_rows(): signs_report_add(&h, &row, announced, now_ns);
 *     if (signs_report_due(&h, signs_still_ns(...), leader))
 *         … sends all rows …
 *
 * What a worker announces counts only in time in which this agent ran and the worker was not
 * stopped: in the rest, nothing could be announced or received. */

struct signs_report_worker {
    uint64_t added_ns;                 /* when its row was last added; 0: never */
    uint64_t alive_ns;                 /* what it announced last, worker_announced.alive_ns */
    uint64_t lost_ns;                  /* of the time since then, what does not count */
    struct worker_signs row, reported; /* the last row; and the last that a leader was sent */
};

struct signs_report {
    uint32_t n, first_rank;
    struct signs_report_worker *workers; /* owned, [n] */
    bool late;       /* of the rows added since the last signs_report_due(): a deadline is over */
    uint64_t leader; /* the one that was sent rows last; 0: none */
    bool reported;   /* the last rows had a worker that does not move, or is late */
};

void signs_report_init(struct signs_report *h, uint32_t n, uint32_t first_rank);
void signs_report_fini(struct signs_report *h); /* *h is zeroed then; a zeroed one is fine */

/* Fills in step, deadline_ns and since_announced_ns of this row, whose rank is one of these. */
void signs_report_add(struct signs_report *h, struct worker_signs *row,
                      const struct worker_announced *announced, uint64_t now_ns);
/* Whether the rows that were just added are sent now: then the caller does it. still_ns: for how
 * long one of them has not moved. leader: another number for each leader and each connection to it;
 * 0: there is none now. */
bool signs_report_due(struct signs_report *h, uint64_t still_ns, uint64_t leader);

/* ---- the workers of this node ----
 *
 *     s = signs_new();
 *     r = signs_add(s, rank, pid, clock_now_ns());   the pid of a child that was not reaped yet
 *     signs_sample(s, clock_now_ns());               each second
 *     if (signs_still_ns(s, clock_now_ns()) >= SIGNS_QUIET_NS)
 *         n = signs_rows(s, clock_now_ns(), rows, ARRAY_SIZE(rows));
 *
 * The start of a process is kept with its pid, so that no later process of this pid is mistaken for
 * it, if the first sample comes before it was reaped. These files never block. */

#define SIGNS_WORKERS_MAX 1024 /* of a node */
/* A worker that did not move for so long is quiet: it is looked at more closely, and reported. */
#define SIGNS_QUIET_NS (3 * NS_PER_S)

struct signs;
_must_use_ struct signs *signs_new(void);
void signs_free(struct signs *s); /* takes NULL */

/* From now on it is sampled. The rank must be a new one. -ESRCH: there is no such process; -E2BIG;
 * others of open(2): each sample tries again, and meanwhile its row has SIGN_UNSEEN. After an error
 * it counts as moving. */
_must_use_ int signs_add(struct signs *s, uint32_t rank, pid_t pid, uint64_t now_ns);
/* It has exited with 0 while others continue: its row has SIGN_ENDED from now on. */
void signs_ended(struct signs *s, uint32_t rank);

/* What a closer look (watchdog/evidence/slow.h) has found. */
struct signs_found {
    uint64_t before_ns; /* the look with which this one was compared; 0: none */
    /* SIGN_BUSY, _BYTES, _SPINS and _ASKS, for its row until it moves, or is looked at again. With
     * SIGN_SPINS it does not move since since_ns. If it moved after the look before, it may have
     * been busy only then: SIGN_BUSY and _BYTES do not count. */
    uint32_t flags;
    /* Its main thread wakes only for moments, always at the same place: it does not move, since it
     * last ran more than little, wrote, or was elsewhere. */
    bool polls;
    uint64_t since_ns;
    bool receives; /* it waits without a time-out until something comes: if it wakes, it moves */
    bool changed;  /* its place: if nothing else has shown that it moved, it has */
    /* The process whose threads compute; 0: they do not. While all of it uses
     * SIGNS_COMPUTES_PERCENT of a core more than idle_ns, in each second, the worker moves. */
    pid_t computes;
    uint64_t idle_ns; /* CPU time of threads that only poll, in a second */
};
void signs_put(struct signs *s, uint32_t rank, const struct signs_found *found, uint64_t now_ns);
/* Closer looks fail: SIGN_UNSEEN for all of them, until each moves, or is looked at again. */
void signs_unseen(struct signs *s);
/* Whether the main thread of one of the workers may spin, or only poll. */
bool signs_any_odd(const struct signs *s);
/* The rank's main thread waits for this process, which stems from it, or for this thread: if that
 * one moves, the worker moves. start: its start in clock ticks since boot, so that another one of
 * the same pid is not taken for it. child 0: it waits for none any more. */
void signs_follow(struct signs *s, uint32_t rank, pid_t child, uint64_t start);
struct signs_seen { /* zeroed: no such rank */
    pid_t pid;
    /* Its main thread, or that of the child that it waits for, may spin (SIGNS_HOT), or only poll
     * (SIGNS_LITTLE) */
    bool hot, little;
    bool spins;        /* SIGN_SPINS */
    uint64_t since_ns; /* when it last moved */
    /* CPU time of its main thread at the last sample; 0: not known, or it would not show that the
     * worker moved: it polls, spins, or waits for a child */
    uint64_t ran_ns;
    uint64_t used_ns; /* of it, since the worker last moved */
};
struct signs_seen signs_see(const struct signs *s, uint32_t rank);

/* Reads all once. */
void signs_sample(struct signs *s, uint64_t now_ns);
/* Why one of them could not be read: an errno of open(2), as -EMFILE. 0: all could. */
int signs_error(const struct signs *s);
/* For how long the one that has been still the longest has not moved; workers that have ended do
 * not count. 0: there is none. */
uint64_t signs_still_ns(const struct signs *s, uint64_t now_ns);
/* A row for each worker, by rank, of the last sample; what workers announce is 0, for the caller to
 * fill in. Returns how many, at most max. */
size_t signs_rows(const struct signs *s, uint64_t now_ns, struct worker_signs *ret, size_t max);
