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

/* Order of service within a turn when several are ready (house rule: worker pipes and peers
 * before child exits before timers). New connections come first, and are looked for every few
 * hundred callbacks (LOOP_READ, also where there are none): what overflows the kernel's queue of
 * them comes again only after a second. */
enum loop_priority {
    LOOP_PRIO_ACCEPT,
    LOOP_PRIO_IO,
    LOOP_PRIO_CHILD,
    LOOP_PRIO_TIMER,
    LOOP_PRIO_COUNT
};

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

/* Calls fn(arg) once, after the present callback has returned: the way to free an object from
 * inside its own callback chain. Not cancelled by anything but loop_free(), which runs it. */
void loop_defer(struct loop *loop, loop_defer_fn *fn, void *arg);

/* Who reaps this process's children, if anybody does: set by it (io/reaper.h). NULL: nobody. */
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
