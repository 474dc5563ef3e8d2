#include "io/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "io/clock.h"

/* An event base: epoll, its timer, two pairs for wake-ups and signals. */
#define DESCRIPTORS_NEEDED 6
#define CALLBACKS_BETWEEN_LOOKS 256
/* How old what is known of the time without a processor may be. */
#define DELAY_AGE_NS (10 * NS_PER_MS)
#define RANKS (LOOP_PRIO_BULK + 1)

/* What was put off, of one priority. */
struct rank {
    struct loop *loop;
    struct event due;     /* activated while there is any */
    struct list deferred; /* struct deferred */
    size_t n;
};

struct loop {
    struct event_base *base;
    struct rank ranks[RANKS];
    struct list hooks;     /* struct loop_hook */
    struct list accepting; /* struct loop_watch of LOOP_PRIO_ACCEPT, by turns */
    unsigned n_callbacks;  /* since one of them was looked at */
    bool quit;
    struct child_reaper *reaper; /* borrowed; NULL: none */

    uint64_t since_ns;   /* the present callback's begin; TIME_NEVER: in none */
    int schedstat_fd;    /* -1: the kernel does not tell */
    uint64_t delay_ns;   /* all time without a processor, */
    uint64_t delay_at_ns; /* as it was then */
    struct loop_stats stats;
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
    struct loop *loop;
    loop_timer_fn *fn;
    void *arg;
};

struct loop_signal {
    struct event ev;
    struct loop *loop;
    loop_signal_fn *fn;
    void *arg;
};

/* ---- how long callbacks take ---- */

/* sched-stats.rst: the second number is the time spent waiting on a run queue, in ns. */
static uint64_t read_delay(const struct loop *loop) {
    char text[96];
    ssize_t n = loop->schedstat_fd < 0
                    ? -1
                    : pread(loop->schedstat_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *second = strchr(text, ' ');
    return second == NULL ? 0 : strtoull(second, NULL, 10);
}

static void callback_begins(struct loop *loop) {
    loop->since_ns = clock_now_ns();
    if (loop->since_ns - loop->delay_at_ns < DELAY_AGE_NS)
        return;
    loop->delay_ns = read_delay(loop);
    loop->delay_at_ns = loop->since_ns;
}

/* Returns how long it took, in all. */
static uint64_t callback_ends(struct loop *loop, const char *of) {
    uint64_t took_ns = clock_now_ns() - loop->since_ns;
    loop->since_ns = TIME_NEVER;
    if (took_ns < LOOP_SLICE_NS)
        return took_ns;
    uint64_t delay_ns = read_delay(loop);
    uint64_t own_ns = took_ns - MIN2(took_ns, delay_ns - MIN2(delay_ns, loop->delay_ns));
    loop->stats.longest_ns = MAX2(loop->stats.longest_ns, own_ns);
    if (own_ns >= LOOP_LONG_NS) {
        loop->stats.n_long++;
        log_debug("the event loop was held up for %.1f ms by %s", (double)own_ns / 1e6, of);
    }
    return took_ns;
}

bool loop_slice_is_over(const struct loop *loop) {
    return loop->since_ns != TIME_NEVER && clock_now_ns() - loop->since_ns >= LOOP_SLICE_NS;
}

struct loop_stats loop_get_stats(const struct loop *loop) { return loop->stats; }

/* ---- what was put off ---- */

static void run_first(struct rank *rank) {
    struct deferred *d = CONTAINER_OF(rank->deferred.next, struct deferred, link);
    list_remove(&d->link);
    rank->n--;
    d->fn(d->arg);
    free(d);
}

static void on_due(evutil_socket_t fd, short events, void *arg) {
    (void)fd;
    (void)events;
    struct rank *rank = arg;
    struct loop *loop = rank->loop;
    uint64_t spent_ns = 0;
    for (size_t n = rank->n; n > 0 && spent_ns < LOOP_SLICE_NS; n--) {
        callback_begins(loop);
        run_first(rank);
        spent_ns += callback_ends(loop, "work that was put off");
    }
    if (rank->n > 0)
        event_active(&rank->due, EV_TIMEOUT, 0);
}

/* The priority in libevent. */
static int rank_of(enum loop_priority prio) {
    return (int)MIN2(prio, LOOP_PRIO_BULK);
}

static struct event_base *new_base(void) {
    struct event_config *config = event_config_new();
    if (config == NULL)
        return NULL;
    /* Deadlines here are leases and grace periods: milliseconds matter, and the coarse clock may
     * be 4 ms late. */
    (void)event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    const struct timeval slice = {.tv_usec = LOOP_SLICE_NS / NS_PER_US};
    (void)event_config_set_max_dispatch_interval(config, &slice, INT_MAX, 0);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    if (base != NULL)
        (void)event_base_priority_init(base, RANKS);
    return base;
}

/* libevent ends the process where it lacks descriptors: that is found before, by us. */
static int need_descriptors(void) {
    int taken[DESCRIPTORS_NEEDED], n = 0, r = 0;
    while (n < DESCRIPTORS_NEEDED && r == 0) {
        taken[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (taken[n] >= 0)
            n++;
        else if (errno == EMFILE || errno == ENFILE)
            r = -errno;
        else
            break; /* no such file here */
    }
    while (n > 0)
        (void)close(taken[--n]);
    return r;
}

static void on_libevent_log(int severity, const char *text) {
    (void)severity;
    log_debug("libevent: %s", text);
}

int loop_new(struct loop **ret) {
    int r = need_descriptors();
    if (r < 0)
        return r;
    event_set_log_callback(on_libevent_log);
    struct loop *loop = xcalloc(1, sizeof *loop);
    list_init(&loop->hooks);
    list_init(&loop->accepting);
    loop->since_ns = TIME_NEVER;
    loop->base = new_base();
    if (loop->base == NULL) {
        free(loop);
        return -ENOMEM;
    }
    loop->schedstat_fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < RANKS; i++) {
        struct rank *rank = &loop->ranks[i];
        rank->loop = loop;
        list_init(&rank->deferred);
        (void)event_assign(&rank->due, loop->base, -1, 0, on_due, rank);
        (void)event_priority_set(&rank->due, i);
    }
    *ret = loop;
    return 0;
}

static struct rank *waiting_rank(struct loop *loop) {
    for (int i = 0; i < RANKS; i++)
        if (loop->ranks[i].n > 0)
            return &loop->ranks[i];
    return NULL;
}

void loop_free(struct loop *loop) {
    if (loop == NULL)
        return;
    LIST_FOR_EACH(struct loop_hook, h, &loop->hooks, link)
        h->fn(h->arg);
    for (struct rank *rank; (rank = waiting_rank(loop)) != NULL;)
        run_first(rank);
    for (int i = 0; i < RANKS; i++)
        (void)event_del(&loop->ranks[i].due);
    event_base_free(loop->base);
    if (loop->schedstat_fd >= 0)
        (void)close(loop->schedstat_fd);
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
    if (!(w->events & LOOP_READ))
        return;
    callback_begins(loop);
    w->fn(w->arg, event_get_fd(&w->ev), LOOP_READ);
    (void)callback_ends(loop, "new connections");
}

static const char *const names[LOOP_PRIO_COUNT] = {
    [LOOP_PRIO_LEASE] = "a connection of the group",
    [LOOP_PRIO_CHILD] = "a child process",
    [LOOP_PRIO_BULK] = "a connection or pipe",
    [LOOP_PRIO_ACCEPT] = "new connections",
};

static void watch_on_event(evutil_socket_t fd, short events, void *arg) {
    struct loop_watch *w = arg;
    struct loop *loop = w->loop;
    const char *what = names[w->prio];
    unsigned seen = 0;
    if (events & EV_READ)
        seen |= LOOP_READ;
    if (events & EV_WRITE)
        seen |= LOOP_WRITE;
    callback_begins(loop);
    w->fn(w->arg, fd, seen);
    (void)callback_ends(loop, what);
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
    (void)event_priority_set(&w->ev, rank_of(prio));
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

static void watch_again(struct loop_watch *w) {
    int fd = event_get_fd(&w->ev);
    (void)event_del(&w->ev);
    short flags = EV_PERSIST;
    if (w->events & LOOP_READ)
        flags |= EV_READ;
    if (w->events & LOOP_WRITE)
        flags |= EV_WRITE;
    (void)event_assign(&w->ev, w->loop->base, fd, flags, watch_on_event, w);
    (void)event_priority_set(&w->ev, rank_of(w->prio));
    if (w->events != 0)
        (void)event_add(&w->ev, NULL);
}

void loop_watch_set(struct loop_watch *w, unsigned events) {
    if (events == w->events)
        return;
    w->events = events;
    watch_again(w);
}

void loop_watch_set_priority(struct loop_watch *w, enum loop_priority prio) {
    if (prio == w->prio)
        return;
    assert(prio != LOOP_PRIO_ACCEPT && w->prio != LOOP_PRIO_ACCEPT);
    w->prio = prio;
    watch_again(w);
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
    struct loop *loop = t->loop;
    callback_begins(loop);
    t->fn(t->arg);
    (void)callback_ends(loop, "a timer");
}

int loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg, struct loop_timer **ret) {
    struct loop_timer *t = xcalloc(1, sizeof *t);
    t->loop = loop;
    t->fn = fn;
    t->arg = arg;
    (void)event_assign(&t->ev, loop->base, -1, 0, timer_on_event, t);
    (void)event_priority_set(&t->ev, LOOP_PRIO_LEASE);
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
    struct loop *loop = s->loop;
    callback_begins(loop);
    s->fn(s->arg, signo);
    (void)callback_ends(loop, "a signal");
}

int loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg,
                    struct loop_signal **ret) {
    struct loop_signal *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->fn = fn;
    s->arg = arg;
    (void)event_assign(&s->ev, loop->base, signo, EV_SIGNAL | EV_PERSIST, signal_on_event, s);
    (void)event_priority_set(&s->ev, LOOP_PRIO_LEASE);
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

void loop_defer(struct loop *loop, enum loop_priority prio, loop_defer_fn *fn, void *arg) {
    struct rank *rank = &loop->ranks[rank_of(prio)];
    struct deferred *d = xcalloc(1, sizeof *d);
    d->fn = fn;
    d->arg = arg;
    list_append(&rank->deferred, &d->link);
    rank->n++;
    event_active(&rank->due, EV_TIMEOUT, 0);
}

void loop_add_hook(struct loop *loop, struct loop_hook *hook) {
    list_append(&loop->hooks, &hook->link);
}

struct event_base *loop_event_base(struct loop *loop) { return loop->base; }

const char *loop_backend_version(void) { return event_get_version(); }

const char *loop_built_version(void) { return LIBEVENT_VERSION; }

void loop_set_reaper(struct loop *loop, struct child_reaper *reaper) { loop->reaper = reaper; }

struct child_reaper *loop_reaper(const struct loop *loop) { return loop->reaper; }
