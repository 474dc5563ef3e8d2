/* Helpers: copies of this process, made without exec, for calls that can block: to a name server,
 * to a directory on a server, to the library of a broken GPU. The caller ends its helper. For a
 * single question with a deadline use helper_call.h.
 *
 *     r = helper_start(loop, "muster-arbiter", serve, &config, theirs, &helper);
 *     close(theirs);                       everything comes through `ours`, the end of file too
 *     helper_end(&helper);
 *
 * A helper has a copy of this process's memory and one descriptor. All other descriptors are closed
 * in it, so a helper that hangs does not keep a socket, file or terminal open. Its standard streams
 * are /dev/null, except with helper_start_speaking(). It dies when this process dies. It ignores
 * the signals that a terminal or a batch system sends to all processes of a job; its other signals
 * have their defaults.
 *
 * Only for processes with one thread, because a helper may allocate memory. */
#pragma once

#include "io/process/reaper.h"

#define HELPER_NAME_MAX 15 /* PR_SET_NAME */
#define HELPER_REAP_MS 100

/* The function that runs in the helper. fd is the descriptor that it has kept (close-on-exec). Its
 * return value is the exit status. Before the helper exits, it waits for its own children. */
typedef int helper_fn(int fd, void *arg);

struct helper {
    struct child_watch *watch; /* if the loop has a reaper */
    struct child child;        /* else */
};
#define HELPER_INIT \
    { .watch = NULL, .child = CHILD_INIT }

/* Starts a helper. `name` is what ps shows. fd is borrowed: the helper has a copy (-1: none). If
 * there is a loop with a reaper, the reaper knows the helper, so it is not mistaken for a process
 * that a worker left. Returns 0, or a negative errno of fork. */
_must_use_ int helper_start(struct loop *loop, const char *name, helper_fn *run, void *arg, int fd,
                            struct helper *ret);
/* The same, with two descriptors (borrowed; -1: none) as its standard output and standard error. */
_must_use_ int helper_start_speaking(struct loop *loop, const char *name, helper_fn *run, void *arg,
                                     int fd, int out_fd, int err_fd, struct helper *ret);
/* 0: there is no helper, or it has ended and was reaped. */
pid_t helper_pid(const struct helper *h);

/* Kills the helper, which may have ended already; with a reaper also the process group that it
 * leads, if it does. The loop's reaper reaps it when it has ended, and knows it until then, however
 * long the kernel blocks it. Without a reaper it is reaped here, or left to init after
 * HELPER_REAP_MS. HELPER_INIT is allowed. Before the reaper is freed. */
void helper_end(struct helper *h);
/* The same, but with a reaper it may continue until its own children end. */
void helper_let_go(struct helper *h);

/* In the helper: writes all bytes. False: the reader has closed the other end. */
_must_use_ bool helper_send(int fd, const void *bytes, size_t n);
