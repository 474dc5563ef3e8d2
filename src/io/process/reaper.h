/* Learning how children ended. Calls back for the children that it watches, and silently reaps all
 * others (orphans that came to this process as a subreaper, or as process 1).
 *
 *     r = child_reaper_new(loop, &reaper);                  one per process
 *     r = child_spawn(&spec, &child, &err);
 *     r = child_watch_new(reaper, &child, NULL, on_exit, me, &watch);     in the same turn
 *
 * A child with a pidfd is noticed through it, one without through SIGCHLD. Of thousands that end at
 * once, each turn of the loop takes as many as it has time for. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "io/loop.h"
#include "io/process/child.h"

/* How a process ended. */
struct child_status {
    pid_t pid; /* it may belong to another process already */
    bool signalled;
    int code; /* exit status, or the signal's number */
    bool core_dumped;
    uint64_t at_ns; /* when we noticed, CLOCK_MONOTONIC */
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
/* Called while the ended child is still a zombie, so that its pid, its process group and its
 * session can't belong to anybody else yet. May be NULL. */
typedef void child_zombie_fn(void *arg, pid_t pid);

/* It is the loop's from then on: loop_reaper(). */
_must_use_ int child_reaper_new(struct loop *loop, struct child_reaper **ret);
/* All watches that were not let go must be freed before. NULL is fine. */
void child_reaper_free(struct child_reaper *r);
/* Takes all that has ended and has not been reaped yet, now, however long that takes. */
void child_reaper_run(struct child_reaper *r);
/* Is this one of the watched children? Those are never strangers. */
bool child_reaper_knows(const struct child_reaper *r, pid_t pid);
/* Calls fn for each watched child that has not been reaped; fn changes nothing here. */
typedef void child_each_fn(void *arg, pid_t pid);
void child_reaper_each(const struct child_reaper *r, child_each_fn *fn, void *arg);

/* Takes *c (copied; the watch closes its pidfd). on_exit is called once; the watch stays until it
 * is freed, which is allowed inside any callback. */
_must_use_ int child_watch_new(struct child_reaper *r, const struct child *c,
                               child_zombie_fn *on_zombie, child_exit_fn *on_exit, void *arg,
                               struct child_watch **ret);
/* A child that still runs is forgotten: it will be reaped silently. NULL is fine. */
void child_watch_free(struct child_watch *w);
/* Instead of freeing it: nobody is called any more, but the child stays one of the watched until it
 * has been reaped. NULL is fine. */
void child_watch_let_go(struct child_watch *w);
/* True until the child has been reaped. */
bool child_watch_alive(const struct child_watch *w);
pid_t child_watch_pid(const struct child_watch *w);
/* As child_kill(); -ESRCH once it has been reaped. */
_must_use_ int child_watch_kill(const struct child_watch *w, int signo);
/* To the child's whole process group, if it leads one (child_spec.setsid). -ESRCH once reaped. */
_must_use_ int child_watch_kill_group(const struct child_watch *w, int signo);
