/* The event loop: file descriptors, deadlines, signals, and work deferred to the end of a turn.
 * Only this file includes libevent's loop; callers do not see it.
 *
 *     struct loop *loop; r = loop_new(&loop);
 *     watch = loop_watch_new(loop, fd, LOOP_READ, LOOP_PRIO_BULK, on_readable, me);
 *     r = loop_run(loop);          until loop_quit()
 *
 * Callbacks run on the loop's one thread. A callback may free its own watch, timer or signal,
 * and any other. Objects must be freed before the loop is. */
#pragma once

#include <stdbool.h>

#include "base/list.h"
#include "base/util.h"

struct loop;
struct loop_watch;  /* interest in one fd */
struct loop_timer;  /* one deadline */
struct loop_signal; /* one signal number */

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

/* While anything of a higher priority is ready, lower ones wait. So the first is for short work on
 * which other nodes' deadlines depend (timers and signals have it, too), the last for everything
 * that a worker, an operator or an unauthenticated peer can keep busy. Within one priority
 * callbacks run in turn, for LOOP_SLICE_NS in all; then the kernel is asked again. */
enum loop_priority {
    LOOP_PRIO_LEASE, /* leases, messages of a group and its arbiter */
    LOOP_PRIO_CHILD, /* exits of children, and answers of helpers */
    LOOP_PRIO_BULK,  /* workers' output, their store, operators, peers that have not joined yet */
    /* New connections: like BULK, but also checked every few hundred callbacks, with LOOP_READ even
     * if there are none: one that overflows the kernel's queue is retried only after 1 s. */
    LOOP_PRIO_ACCEPT,
    LOOP_PRIO_COUNT
};

/* No callback may work for longer. One with more work calls loop_slice_is_over(), and continues
 * later (by loop_defer() with LOOP_PRIO_BULK, or because its descriptor is still ready). */
#define LOOP_SLICE_NS (5 * NS_PER_MS)
/* A callback that blocks the loop for this long is counted. */
#define LOOP_LONG_NS (20 * NS_PER_MS)

typedef void loop_watch_fn(void *arg, int fd, unsigned events);
typedef void loop_timer_fn(void *arg);
typedef void loop_signal_fn(void *arg, int signo);
typedef void loop_defer_fn(void *arg);

_must_use_ int loop_new(struct loop **ret);
void loop_free(struct loop *loop);
static inline void loop_freep(struct loop **loop) { loop_free(*loop); }

/* Runs until loop_quit(). 0, or a negative errno if the loop itself failed. */
_must_use_ int loop_run(struct loop *loop);
/* Handles what is ready now, without waiting. For tests. */
_must_use_ int loop_turn(struct loop *loop);
/* Waits until something is ready, and handles it. For tests. */
_must_use_ int loop_wait(struct loop *loop);
void loop_quit(struct loop *loop);

/* Watches a pipe, socket, terminal or the like, level-triggered; free the watch before you close
 * the descriptor. `events` may be 0. If the kernel has no memory for it, the process aborts. */
_must_use_ struct loop_watch *loop_watch_new(struct loop *loop, int fd, unsigned events,
                                             enum loop_priority prio, loop_watch_fn *fn, void *arg);
void loop_watch_set(struct loop_watch *w, unsigned events);
/* Not to or from LOOP_PRIO_ACCEPT. */
void loop_watch_set_priority(struct loop_watch *w, enum loop_priority prio);
void loop_watch_free(struct loop_watch *w);

/* A timer is unarmed initially, and after it has fired. */
_must_use_ struct loop_timer *loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg);
/* Absolute, on clock_now_ns()'s clock; TIME_NEVER disarms. */
void loop_timer_set(struct loop_timer *t, uint64_t deadline_ns);
void loop_timer_free(struct loop_timer *t);

/* Not of SIGKILL and SIGSTOP. If epoll takes no more (max_user_watches), the process ends. */
_must_use_ struct loop_signal *loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn,
                                               void *arg);
void loop_signal_free(struct loop_signal *s);

/* Calls fn(arg) once, after the current callback has returned, and before the next one of a lower
 * priority: to free an object inside its own callback, and to continue long work. Within one
 * priority, calls run in their order; what they defer runs in a later turn. loop_free() runs the
 * rest. */
void loop_defer(struct loop *loop, enum loop_priority prio, loop_defer_fn *fn, void *arg);
/* Cancels calls of fn(arg); fn NULL: all calls with this argument. */
void loop_defer_drop(struct loop *loop, loop_defer_fn *fn, const void *arg);
/* Whether the current callback has used up its LOOP_SLICE_NS. Always false outside of callbacks. */
bool loop_slice_is_over(const struct loop *loop);

/* Since the loop was made. Time in which this process was ready to run but had no processor is not
 * counted, if the kernel reports it (/proc/PID/schedstat; to within about 10 ms). */
struct loop_stats {
    uint64_t n_long;     /* callbacks that took LOOP_LONG_NS or more */
    uint64_t longest_ns; /* the longest callback; only measured from LOOP_SLICE_NS on */
};
struct loop_stats loop_get_stats(const struct loop *loop);

/* The reaper of this process's children (io/process/reaper.h), which sets it itself. NULL: none. */
struct child_reaper;
void loop_set_reaper(struct loop *loop, struct child_reaper *reaper);
struct child_reaper *loop_reaper(const struct loop *loop);

/* For objects that only the loop owns: loop_free() calls fn(arg), which must remove the link. */
struct loop_hook {
    struct list link;
    loop_defer_fn *fn;
    void *arg;
};
void loop_add_hook(struct loop *loop, struct loop_hook *hook);

/* libevent's own base, for code that is built on libevent (io/net/http.c). */
struct event_base;
struct event_base *loop_event_base(struct loop *loop);

/* Such as "2.1.12-stable": of the library found at run time, and of the headers. */
const char *loop_backend_version(void);
const char *loop_built_version(void);
