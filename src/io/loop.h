/* The event loop: file descriptors, deadlines, signals, and work put off to the end of a turn.
 * The only place that includes libevent's loop; callers see none of it.
 *
 *     struct loop *loop; r = loop_new(&loop);
 *     r = loop_watch_new(loop, fd, LOOP_READ, on_readable, me, &watch);
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

/* Who goes first when several are ready. Priorities are strict: while anything of a higher one is
 * ready, lower ones wait. So the first is for what is short and sets other people's clocks (timers
 * and signals have it too), and the last for all that a worker, an operator or a stranger can make
 * busy. Of one priority each is served in its turn, for LOOP_SLICE_NS together; then the kernel is
 * asked again, and the higher ones go first again. */
enum loop_priority {
    LOOP_PRIO_LEASE, /* leases, messages of a group and its arbiter */
    LOOP_PRIO_CHILD, /* exits of children, and what helpers answer */
    LOOP_PRIO_BULK,  /* workers' output, their store, operators, peers that have not joined yet */
    /* New connections: with BULK, and (LOOP_READ, also where there are none) checked every few
     * hundred callbacks. What overflows the kernel's queue of them comes again only after a second.
     */
    LOOP_PRIO_ACCEPT,
    LOOP_PRIO_COUNT
};

/* No callback works for longer; one that has more to do asks loop_slice_is_over() now and then,
 * and comes again (loop_defer() with LOOP_PRIO_BULK, or a descriptor that is still ready). */
#define LOOP_SLICE_NS (5 * NS_PER_MS)
/* A callback that held up the loop for so long is counted. */
#define LOOP_LONG_NS (20 * NS_PER_MS)

typedef void loop_watch_fn(void *arg, int fd, unsigned events);
typedef void loop_timer_fn(void *arg);
typedef void loop_signal_fn(void *arg, int signo);
typedef void loop_defer_fn(void *arg);

_must_use_ int loop_new(struct loop **ret);
void loop_free(struct loop *loop);
static inline void loop_freep(struct loop **loop) { loop_free(*loop); }

/* Runs until loop_quit(). 0, or a negative errno when the loop itself failed. */
_must_use_ int loop_run(struct loop *loop);
/* Handles what is ready now, without waiting. For tests. */
_must_use_ int loop_turn(struct loop *loop);
void loop_quit(struct loop *loop);

/* Watches a descriptor (borrowed; the caller closes it after freeing the watch). `events` may be
 * 0: no interest yet. Level-triggered and persistent. */
_must_use_ int loop_watch_new(struct loop *loop, int fd, unsigned events, enum loop_priority prio,
                              loop_watch_fn *fn, void *arg, struct loop_watch **ret);
void loop_watch_set(struct loop_watch *w, unsigned events);
/* Not to or from LOOP_PRIO_ACCEPT. */
void loop_watch_set_priority(struct loop_watch *w, enum loop_priority prio);
void loop_watch_free(struct loop_watch *w);

/* A timer is unarmed at first, and after it has fired. */
_must_use_ int loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg,
                              struct loop_timer **ret);
/* Absolute, on clock_now_ns()'s clock; TIME_NEVER disarms. */
void loop_timer_set(struct loop_timer *t, uint64_t deadline_ns);
void loop_timer_free(struct loop_timer *t);

_must_use_ int loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg,
                               struct loop_signal **ret);
void loop_signal_free(struct loop_signal *s);

/* Calls fn(arg) once, after the present callback has returned, and before the next one of a lower
 * priority: the way to free an object from inside its own callback chain, and to continue long work
 * after others have had their turn. Of one priority in the order of the calls; what is put off
 * meanwhile comes in a later turn. Not cancelled by anything but loop_free(), which runs it. */
void loop_defer(struct loop *loop, enum loop_priority prio, loop_defer_fn *fn, void *arg);
/* Whether the present callback has had its LOOP_SLICE_NS. Never outside of callbacks. */
bool loop_slice_is_over(const struct loop *loop);

/* Since the loop was made. Time in which this process was ready to run and had no processor is not
 * counted, if the kernel reports it (/proc/PID/schedstat; 10 ms more or less). */
struct loop_stats {
    uint64_t n_long;     /* callbacks that took LOOP_LONG_NS or more */
    uint64_t longest_ns; /* the longest of all; from LOOP_SLICE_NS on */
};
struct loop_stats loop_get_stats(const struct loop *loop);

/* Who reaps this process's children, if anybody does: set by it (io/process/reaper.h). NULL:
 * nobody. */
struct child_reaper;
void loop_set_reaper(struct loop *loop, struct child_reaper *reaper);
struct child_reaper *loop_reaper(const struct loop *loop);

/* What has no owner but the loop: loop_free() calls fn(arg), which takes the link out. */
struct loop_hook {
    struct list link;
    loop_defer_fn *fn;
    void *arg;
};
void loop_add_hook(struct loop *loop, struct loop_hook *hook);

/* libevent's own, for what is built on libevent (io/http). */
struct event_base;
struct event_base *loop_event_base(struct loop *loop);

/* "2.1.12-stable", of the library found at run time, and of the headers. */
const char *loop_backend_version(void);
const char *loop_built_version(void);
