#include "io/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <signal.h>

#include "base/list.h"
#include "io/clock.h"

#define CALLBACKS_BETWEEN_LOOKS 256

struct loop {
    struct event_base *base;
    struct event turn_end; /* activated while deferred work waits */
    struct list deferred;  /* struct deferred */
    struct list hooks;     /* struct loop_hook */
    struct list accepting; /* struct loop_watch of LOOP_PRIO_ACCEPT, by turns */
    unsigned n_callbacks;  /* since one of them was looked at */
    bool quit;
    struct child_reaper *reaper; /* borrowed; NULL: none */
};

struct deferred {
    struct list link;
    loop_defer_fn *fn;
    void *arg;
};

struct loop_watch {
    struct list link; /* LOOP_PRIO_ACCEPT only */
    struct event ev;
    struct loop *loop;
    enum loop_priority prio;
    unsigned events;
    loop_watch_fn *fn;
    void *arg;
};

struct loop_timer {
    struct event ev;
    loop_timer_fn *fn;
    void *arg;
};

struct loop_signal {
    struct event ev;
    loop_signal_fn *fn;
    void *arg;
};

static void run_deferred(struct loop *loop) {
    struct list batch = LIST_INIT(batch);
    while (!list_empty(&loop->deferred)) {
        struct deferred *d = LIST_FIRST(struct deferred, &loop->deferred, link);
        list_remove(&d->link);
        list_append(&batch, &d->link);
    }
    LIST_FOR_EACH(struct deferred, d, &batch, link) {
        list_remove(&d->link);
        d->fn(d->arg);
        free(d);
    }
}

static void on_turn_end(evutil_socket_t fd, short events, void *arg) {
    (void)fd;
    (void)events;
    run_deferred(arg);
}

int loop_new(struct loop **ret) {
    struct loop *loop = xcalloc(1, sizeof *loop);
    list_init(&loop->deferred);
    list_init(&loop->hooks);
    list_init(&loop->accepting);
    struct event_config *config = event_config_new();
    if (config != NULL) {
        /* Deadlines here are leases and grace periods: milliseconds matter, and the coarse clock
         * may be 4 ms late. */
        (void)event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        loop->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (loop->base == NULL) {
        free(loop);
        return -ENOMEM;
    }
    (void)event_base_priority_init(loop->base, LOOP_PRIO_COUNT);
    (void)event_assign(&loop->turn_end, loop->base, -1, 0, on_turn_end, loop);
    (void)event_priority_set(&loop->turn_end, LOOP_PRIO_IO);
    *ret = loop;
    return 0;
}

void loop_free(struct loop *loop) {
    if (loop == NULL)
        return;
    LIST_FOR_EACH(struct loop_hook, h, &loop->hooks, link)
        h->fn(h->arg);
    while (!list_empty(&loop->deferred))
        run_deferred(loop);
    (void)event_del(&loop->turn_end);
    event_base_free(loop->base);
    free(loop);
}

int loop_run(struct loop *loop) {
    loop->quit = false;
    while (!loop->quit) {
        int r = event_base_loop(loop->base, EVLOOP_ONCE);
        if (r < 0)
            return errno != 0 ? -errno : -EIO;
        if (r > 0) /* nothing left to wait for: our bug, but no reason to spin */
            return -EDEADLK;
    }
    return 0;
}

int loop_turn(struct loop *loop) {
    /* Without ONCE it would go on for as long as anything is ready. */
    return event_base_loop(loop->base, EVLOOP_NONBLOCK | EVLOOP_ONCE) < 0 ? -EIO : 0;
}

void loop_quit(struct loop *loop) {
    loop->quit = true;
    (void)event_base_loopbreak(loop->base);
}

/* Asking the kernel about all descriptors instead would cost a tenth of a large job's time. */
static void look_for_connections(struct loop *loop) {
    struct loop_watch *w = LIST_FIRST(struct loop_watch, &loop->accepting, link);
    loop->n_callbacks = 0;
    if (w == NULL)
        return;
    list_remove(&w->link);
    list_append(&loop->accepting, &w->link);
    if (w->events & LOOP_READ)
        w->fn(w->arg, event_get_fd(&w->ev), LOOP_READ);
}

static void watch_on_event(evutil_socket_t fd, short events, void *arg) {
    struct loop_watch *w = arg;
    struct loop *loop = w->loop;
    unsigned seen = 0;
    if (events & EV_READ)
        seen |= LOOP_READ;
    if (events & EV_WRITE)
        seen |= LOOP_WRITE;
    w->fn(w->arg, fd, seen);
    if (++loop->n_callbacks >= CALLBACKS_BETWEEN_LOOKS)
        look_for_connections(loop);
}

int loop_watch_new(struct loop *loop, int fd, unsigned events, enum loop_priority prio,
                   loop_watch_fn *fn, void *arg, struct loop_watch **ret) {
    struct loop_watch *w = xcalloc(1, sizeof *w);
    w->loop = loop;
    w->prio = prio;
    w->fn = fn;
    w->arg = arg;
    (void)event_assign(&w->ev, loop->base, fd, EV_PERSIST, watch_on_event, w);
    (void)event_priority_set(&w->ev, prio);
    if (events != 0) {
        loop_watch_set(w, events);
        if (!event_pending(&w->ev, EV_READ | EV_WRITE, NULL)) {
            free(w);
            return -EINVAL; /* epoll refuses this kind of file */
        }
    }
    if (prio == LOOP_PRIO_ACCEPT)
        list_append(&loop->accepting, &w->link);
    *ret = w;
    return 0;
}

void loop_watch_set(struct loop_watch *w, unsigned events) {
    if (events == w->events)
        return;
    int fd = event_get_fd(&w->ev);
    (void)event_del(&w->ev);
    w->events = events;
    short flags = EV_PERSIST;
    if (events & LOOP_READ)
        flags |= EV_READ;
    if (events & LOOP_WRITE)
        flags |= EV_WRITE;
    (void)event_assign(&w->ev, w->loop->base, fd, flags, watch_on_event, w);
    (void)event_priority_set(&w->ev, w->prio);
    if (events != 0)
        (void)event_add(&w->ev, NULL);
}

void loop_watch_free(struct loop_watch *w) {
    if (w == NULL)
        return;
    list_remove(&w->link);
    (void)event_del(&w->ev);
    free(w);
}

static void timer_on_event(evutil_socket_t fd, short events, void *arg) {
    (void)fd;
    (void)events;
    struct loop_timer *t = arg;
    t->fn(t->arg);
}

int loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg, struct loop_timer **ret) {
    struct loop_timer *t = xcalloc(1, sizeof *t);
    t->fn = fn;
    t->arg = arg;
    (void)event_assign(&t->ev, loop->base, -1, 0, timer_on_event, t);
    (void)event_priority_set(&t->ev, LOOP_PRIO_TIMER);
    *ret = t;
    return 0;
}

void loop_timer_set(struct loop_timer *t, uint64_t deadline_ns) {
    (void)event_del(&t->ev);
    if (deadline_ns == TIME_NEVER)
        return;
    uint64_t now = clock_now_ns();
    uint64_t wait_us = deadline_ns > now ? (deadline_ns - now + NS_PER_US - 1) / NS_PER_US : 0;
    struct timeval tv = {.tv_sec = (time_t)(wait_us / 1000000),
                         .tv_usec = (suseconds_t)(wait_us % 1000000)};
    (void)event_add(&t->ev, &tv);
}

void loop_timer_free(struct loop_timer *t) {
    if (t == NULL)
        return;
    (void)event_del(&t->ev);
    free(t);
}

static void signal_on_event(evutil_socket_t signo, short events, void *arg) {
    (void)events;
    struct loop_signal *s = arg;
    s->fn(s->arg, signo);
}

int loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg,
                    struct loop_signal **ret) {
    struct loop_signal *s = xcalloc(1, sizeof *s);
    s->fn = fn;
    s->arg = arg;
    (void)event_assign(&s->ev, loop->base, signo, EV_SIGNAL | EV_PERSIST, signal_on_event, s);
    (void)event_priority_set(&s->ev, LOOP_PRIO_IO);
    if (event_add(&s->ev, NULL) < 0) {
        free(s);
        return -EINVAL;
    }
    *ret = s;
    return 0;
}

void loop_signal_free(struct loop_signal *s) {
    if (s == NULL)
        return;
    (void)event_del(&s->ev);
    free(s);
}

void loop_defer(struct loop *loop, loop_defer_fn *fn, void *arg) {
    struct deferred *d = xcalloc(1, sizeof *d);
    d->fn = fn;
    d->arg = arg;
    list_append(&loop->deferred, &d->link);
    event_active(&loop->turn_end, EV_TIMEOUT, 0);
}

void loop_add_hook(struct loop *loop, struct loop_hook *hook) {
    list_append(&loop->hooks, &hook->link);
}

struct event_base *loop_event_base(struct loop *loop) { return loop->base; }

const char *loop_backend_version(void) { return event_get_version(); }

const char *loop_built_version(void) { return LIBEVENT_VERSION; }

void loop_set_reaper(struct loop *loop, struct child_reaper *reaper) { loop->reaper = reaper; }

struct child_reaper *loop_reaper(const struct loop *loop) { return loop->reaper; }
