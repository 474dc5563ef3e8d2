/* Helpers: copies of this process, made without exec, that do what may block: ask a name server, a
 * directory on a server, a sick GPU's library. Knows nothing of what they do, and has no deadline:
 * the caller that waits for one ends it.
 *
 *     r = helper_start(loop, "muster-arbiter", serve, &config, theirs, &helper);
 *     close(theirs);                       `ours` says all that there is to know, its end too
 *     helper_end(&helper);
 *
 * This is for services; who has one question uses helper_call.h.
 *
 * A helper has this process's memory as it was and one descriptor. Nothing else of ours stays
 * open in it, so that one that hangs holds nobody's socket, file or terminal; its standard streams
 * lead nowhere, but for helper_start_speaking(). It dies when this process does. What a terminal or
 * a batch system sends to all processes of a job does not reach it; its other signals have their
 * defaults.
 *
 * For processes of one thread: a helper may allocate memory. */
#pragma once

#include "io/process/reaper.h"

#define HELPER_NAME_MAX 15 /* PR_SET_NAME */
#define HELPER_REAP_MS 100

/* What it does, in the helper; fd is the descriptor that it has kept (close-on-exec). Its return
 * value is the exit status; before it ends it waits for children of its own. */
typedef int helper_fn(int fd, void *arg);

struct helper {
    struct child_watch *watch; /* where the loop has a reaper */
    struct child child;        /* else */
};
#define HELPER_INIT \
    { .watch = NULL, .child = CHILD_INIT }

/* Starts one. `name` is what ps shows; fd is borrowed: the helper has a copy (-1: none). Where
 * there is a loop, and it has a reaper, that knows the helper, which thus is not taken for
 * something that a worker left. 0, or a negative errno of fork. */
_must_use_ int helper_start(struct loop *loop, const char *name, helper_fn *run, void *arg, int fd,
                            struct helper *ret);
/* One that keeps two more descriptors (borrowed; -1: none), as its standard output and error. */
_must_use_ int helper_start_speaking(struct loop *loop, const char *name, helper_fn *run, void *arg,
                                     int fd, int out_fd, int err_fd, struct helper *ret);
/* 0: there is none, or it has ended and was reaped. */
pid_t helper_pid(const struct helper *h);

/* Kills it, whether it still runs or not. The loop's reaper takes it when it is gone, and knows it
 * until then, however long the kernel may hold it; where there is no reaper it is reaped here, or
 * left to init after HELPER_REAP_MS. Fine for HELPER_INIT; before the reaper is freed. */
void helper_end(struct helper *h);
/* The same for one that has sent everything, or is no longer waited for, and may have children of
 * its own: if there is a reaper it may continue, and ends them when it ends. */
void helper_let_go(struct helper *h);

/* In the helper: writes all of it. False: nobody reads any more. */
_must_use_ bool helper_send(int fd, const void *bytes, size_t n);
