/* Samples the workers of this node once a second, from files that are kept open: one read of `stat`
 * and one of `schedstat` of the main thread for each worker, and one of `io` if it ran little.
 * Files whose descriptors are in the upper half of what this process may have are opened again each
 * time.
 *
 *     s = signs_new();
 *     r = signs_add(s, rank, pid, clock_now_ns());   the pid of a child that was not reaped yet
 *     signs_sample(s, clock_now_ns());               each second
 *     if (signs_still_ns(s, clock_now_ns()) >= 3 * NS_PER_S)
 *         n = signs_rows(s, clock_now_ns(), rows, ARRAY_SIZE(rows));
 *     signs_remove(s, rank);
 *
 * The kernel ties an open file of /proc to its process: one that ended is never mistaken for
 * another with the same pid. A file that is opened anew is that of its process if signs_ended() or
 * signs_remove() comes before the next sample after it was reaped. These files never block,
 * whatever the process does. */
#pragma once

#include <sys/types.h>

#include "base/util.h"
#include "watchdog/look/signs.h"

#define SIGNS_WORKERS_MAX 1024 /* of a node */
/* A worker that did not move for so long is quiet: it is looked at more closely, and spoken of. */
#define SIGNS_QUIET_NS (3 * NS_PER_S)

struct signs;
_must_use_ struct signs *signs_new(void);
void signs_free(struct signs *s); /* takes NULL */

/* From now on it is sampled; a rank that is there already is replaced. -ESRCH: there is no such
 * process; -E2BIG; others of open(2). After an error the rank is there, and counts as moving. If
 * there is such a process, each sample tries again, and meanwhile its row says SIGN_UNSEEN, too. */
_must_use_ int signs_add(struct signs *s, uint32_t rank, pid_t pid, uint64_t now_ns);
/* It has exited with 0 while others go on: its row says SIGN_ENDED from now on. */
void signs_ended(struct signs *s, uint32_t rank);
void signs_remove(struct signs *s, uint32_t rank); /* a rank that is not there: nothing */

/* What a closer look (watchdog/evidence/slow_io.h) has found. */
struct signs_found {
    uint64_t before_ns; /* the look with which this one was compared; 0: none */
    /* SIGN_BUSY, _BYTES, _SPINS and _ASKS, for its row until it moves, or is looked at again. With
     * SIGN_SPINS it does not move, although its main thread runs all the time: since since_ns. If
     * it moved after the look before, it may have been busy only then: SIGN_BUSY and _BYTES do not
     * count. */
    uint32_t flags;
    /* Its main thread wakes only for moments, always at the same place: it does not move, since it
     * last ran more than little, wrote, or was elsewhere. */
    bool polls;
    uint64_t since_ns;
    /* Its main thread waits without a time-out until something comes: each time that it wakes, it
     * moves. */
    bool receives;
    bool changed; /* its place: if nothing else has shown that it moved, it has */
    /* The process whose threads compute; 0: they do not. While all of it uses
     * SIGNS_COMPUTES_PERCENT of a core more than idle_ns, in each second, the worker moves. */
    pid_t computes;
    uint64_t idle_ns; /* CPU time of threads that only poll, in a second */
};
/* If the rank still is this process. */
void signs_put(struct signs *s, uint32_t rank, pid_t pid, const struct signs_found *found,
               uint64_t now_ns);
/* Closer looks fail: SIGN_UNSEEN for all of them, until each moves, or is looked at again. */
void signs_unseen(struct signs *s);
/* Whether its main thread has run all the time for SIGNS_HOT samples: it may spin. That of the
 * child that it waits for, if there is one. */
bool signs_is_hot(const struct signs *s, uint32_t rank);
/* Whether it has run little (signs.h) for SIGNS_LITTLE samples: it may only poll. */
bool signs_is_little(const struct signs *s, uint32_t rank);
/* Whether one of them is either of these. */
bool signs_any_odd(const struct signs *s);
/* The rank's main thread waits for this process, which stems from it, or for this thread: if that
 * one (of a process, its main thread) moves, the worker moves. start: of the process or thread, in
 * clock ticks since boot; another one of the same pid is not taken for it. child 0: it waits for
 * none any more. */
void signs_follow(struct signs *s, uint32_t rank, pid_t pid, pid_t child, uint64_t start);
pid_t signs_pid(const struct signs *s, uint32_t rank); /* 0: no such rank */

/* CPU time of its main thread at the last sample; 0: no such rank, not known, or that of another
 * sample does not show that it moved: it polls or spins, or waits for a child, whose movement is
 * its own. */
uint64_t signs_ran_ns(const struct signs *s, uint32_t rank);

/* How much of that it has used since the worker last moved. */
uint64_t signs_used_ns(const struct signs *s, uint32_t rank);

/* Reads all once. */
void signs_sample(struct signs *s, uint64_t now_ns);
/* Why one of them could not be read: an errno of open(2), as -EMFILE. 0: all could. */
int signs_error(const struct signs *s);

/* For how long the one that has been still the longest has not moved; workers that have ended do
 * not count. 0: there is none. */
uint64_t signs_still_ns(const struct signs *s, uint64_t now_ns);
/* A row for each worker, by rank, of the last sample: rank, flags, still_ns and moved_once; what
 * workers announce themselves is 0, for the caller to fill in. Returns how many, at most max. */
size_t signs_rows(const struct signs *s, uint64_t now_ns, struct worker_signs *ret, size_t max);
