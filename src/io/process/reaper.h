/* Reports how children ended. It calls back for the children that it watches, and silently reaps
 * all others: orphans that became children of this process because it is a subreaper, or process 1.
 *
 *     reaper = child_reaper_new(loop);                      one per process
 *     r = child_spawn(&spec, &child, &err);
 *     watch = child_watch_new(reaper, &child, NULL, on_exit, me);         in the same turn
 *
 * Ends are detected by pidfds, and by SIGCHLD: for orphans, and on Linux before 5.2, only by that.
 * libevent can lose a SIGCHLD in a flood of other signals. Thousands of ends take several turns. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "io/loop.h"
#include "io/process/child.h"

/* How a process ended. */
struct child_status {
    pid_t pid; /* by now it can belong to another process */
    bool signalled;
    int code; /* exit status, or the signal's number */
    bool core_dumped;
    uint64_t at_ns; /* when it was detected, CLOCK_MONOTONIC */
};

static inline bool child_succeeded(const struct child_status *s) {
    return !s->signalled && s->code == 0;
}
static inline bool child_killed_by(const struct child_status *s, int signo) {
    return s->signalled && s->code == signo;
}

struct child_reaper;
struct child_watch;
typedef void child_exit_fn(void *arg, const struct child_status *status);
/* Called while the ended child is a zombie: pid, group and session are still its own. Or NULL. */
typedef void child_zombie_fn(void *arg, pid_t pid);

/* The loop knows the reaper from then on: loop_reaper(). */
_must_use_ struct child_reaper *child_reaper_new(struct loop *loop);
/* All watches except those that were let go must be freed before. Takes NULL. */
void child_reaper_free(struct child_reaper *r);
/* Handles all children that have ended and are not reaped yet, now, however long that takes. */
void child_reaper_run(struct child_reaper *r);
/* The watch of this child; NULL: it is not watched, or has been reaped. Borrowed. */
struct child_watch *child_reaper_find(const struct child_reaper *r, pid_t pid);

/* Takes *c (it is copied, and the watch closes its pidfd). on_exit is called once. The watch exists
 * until it is freed, which is allowed inside any callback. */
_must_use_ struct child_watch *child_watch_new(struct child_reaper *r, const struct child *c,
                                               child_zombie_fn *on_zombie, child_exit_fn *on_exit,
                                               void *arg);
/* If the child still runs, it will be reaped silently. Takes NULL. */
void child_watch_free(struct child_watch *w);
/* Instead of freeing: no callback follows, but the child is watched until reaped. Takes NULL. */
void child_watch_let_go(struct child_watch *w);
/* From now on these callbacks are called instead. If it has been reaped, none is. */
void child_watch_hand_over(struct child_watch *w, child_zombie_fn *on_zombie,
                           child_exit_fn *on_exit, void *arg);
/* True until the child has been reaped. */
bool child_watch_alive(const struct child_watch *w);
pid_t child_watch_pid(const struct child_watch *w);
void *child_watch_arg(const struct child_watch *w); /* of its callbacks */
/* As child_kill(); -ESRCH once it has been reaped. */
_must_use_ int child_watch_kill(const struct child_watch *w, int signo);
/* Signals the child's process group, if it leads one (child_spec.setsid). -ESRCH once reaped. */
_must_use_ int child_watch_kill_group(const struct child_watch *w, int signo);
