#include "io/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"

/* An event base needs epoll, its timer, and two pairs for wake-ups and signals. Each rank needs an
 * epoll. One more is for the time without a processor. */
#define DESCRIPTORS_NEEDED 10
#define BATCH 32
#define CALLBACKS_BETWEEN_LOOKS 256
/* How old the last reading of the time without a processor may be. */
#define DELAY_AGE_NS (10 * NS_PER_MS)
#define RANKS (LOOP_PRIO_BULK + 1)

/* One priority. Thousands of its watches can be ready at once. They have an epoll of their own,
 * which libevent sees as one descriptor. In each turn libevent asks for all of its ready
 * descriptors; without this it would ask for thousands again to serve one lease. */
struct rank {
    struct loop *loop;
    int fd;
    size_t n_watched;                /* watches that the epoll knows */
    struct event ready;              /* the epoll is ready, or some of the batch are left */
    struct epoll_event batch[BATCH]; /* data.ptr: struct loop_watch; NULL: it was freed */
    int at, n_batch;                 /* the next one; how many there are */

    /* Deferred work. `due` is active while there is any, except for work that a callback of a lower
     * rank defers: that runs right after it, else libevent would skip the lower rank for a turn. */
    struct event due;
    struct list deferred; /* struct deferred */
    size_t n_deferred;
};

struct loop {
    struct event_base *base;
    struct rank ranks[RANKS];
    struct list hooks;     /* struct loop_hook */
    struct list accepting; /* struct loop_watch of LOOP_PRIO_ACCEPT, served in turn */
    unsigned n_callbacks;  /* since one of them was checked */
    bool quit;
    struct child_reaper *reaper; /* borrowed; NULL: none */

    uint64_t since_ns;    /* when the current callback began; TIME_NEVER: none runs */
    int running;          /* its rank */
    int schedstat_fd;     /* -1: the kernel does not report it */
    uint64_t delay_ns;    /* the total time without a processor, */
    uint64_t delay_at_ns; /* as read at this time */
    struct loop_stats stats;
};

struct deferred {
    struct list link;
    loop_defer_fn *fn;
    void *arg;
};

struct loop_watch {
    struct list link; /* LOOP_PRIO_ACCEPT only */
    struct loop *loop;
    int fd;
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
    ssize_t n = loop->schedstat_fd < 0 ? -1 : pread(loop->schedstat_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *second = strchr(text, ' ');
    return second == NULL ? 0 : strtoull(second, NULL, 10);
}

static void callback_begins(struct loop *loop, int rank) {
    loop->since_ns = clock_now_ns();
    loop->running = rank;
    if (loop->since_ns - loop->delay_at_ns < DELAY_AGE_NS)
        return;
    loop->delay_ns = read_delay(loop);
    loop->delay_at_ns = loop->since_ns;
}

static void count_if_long(struct loop *loop, uint64_t took_ns, const char *of) {
    if (took_ns < LOOP_SLICE_NS)
        return;
    uint64_t delay_ns = read_delay(loop);
    uint64_t own_ns = took_ns - MIN2(took_ns, delay_ns - MIN2(delay_ns, loop->delay_ns));
    loop->stats.longest_ns = MAX2(loop->stats.longest_ns, own_ns);
    if (own_ns >= LOOP_LONG_NS) {
        loop->stats.n_long++;
        log_debug("the event loop was held up for %.1f ms by %s", (double)own_ns / 1e6, of);
    }
}

static void run_deferred(struct rank *rank);

/* Returns how long the callback took, waiting for a processor included. */
static uint64_t callback_ends(struct loop *loop, const char *of) {
    uint64_t took_ns = clock_now_ns() - loop->since_ns;
    loop->since_ns = TIME_NEVER;
    count_if_long(loop, took_ns, of);
    for (int i = 0, end = loop->running; i < end; i++)
        if (loop->ranks[i].n_deferred > 0)
            run_deferred(&loop->ranks[i]);
    return took_ns;
}

bool loop_slice_is_over(const struct loop *loop) {
    return loop->since_ns != TIME_NEVER && clock_now_ns() - loop->since_ns >= LOOP_SLICE_NS;
}

struct loop_stats loop_get_stats(const struct loop *loop) {
    return loop->stats;
}

/* ---- deferred work ---- */

static void run_first(struct rank *rank) {
    struct deferred *d = CONTAINER_OF(rank->deferred.next, struct deferred, link);
    list_remove(&d->link);
    rank->n_deferred--;
    d->fn(d->arg);
    free(d);
}

/* Runs deferred work for one slice. */
static void run_deferred(struct rank *rank) {
    struct loop *loop = rank->loop;
    uint64_t spent_ns = 0;
    for (size_t n = rank->n_deferred; n > 0 && rank->n_deferred > 0 && spent_ns < LOOP_SLICE_NS;
         n--) {
        callback_begins(loop, (int)(rank - loop->ranks));
        run_first(rank);
        spent_ns += callback_ends(loop, "work that was put off");
    }
    if (rank->n_deferred > 0)
        event_active(&rank->due, EV_TIMEOUT, 0);
}

static void on_due(evutil_socket_t fd, short events, void *arg) { run_deferred(arg); }

/* The priority in libevent. */
static int rank_of(enum loop_priority prio) { return (int)MIN2(prio, LOOP_PRIO_BULK); }

static void rank_on_ready(evutil_socket_t fd, short events, void *arg);

static struct event_base *new_base(void) {
    struct event_config *config = event_config_new();
    if (config == NULL)
        return NULL;
    /* milliseconds of leases and graces matter, and the coarse clock can be 4 ms late */
    (void)event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    const struct timeval slice = {.tv_usec = LOOP_SLICE_NS / NS_PER_US};
    (void)event_config_set_max_dispatch_interval(config, &slice, INT_MAX, 0);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    if (base != NULL)
        (void)event_base_priority_init(base, RANKS);
    return base;
}

/* libevent aborts the process if it can't get descriptors. So muster checks this before. */
static int need_descriptors(void) {
    int taken[DESCRIPTORS_NEEDED], n = 0, r = 0;
    while (n < DESCRIPTORS_NEEDED && r == 0) {
        taken[n] = n == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : dup(taken[0]);
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

static void on_libevent_log(int severity, const char *text) { log_debug("libevent: %s", text); }

static int rank_begin(struct rank *rank, struct loop *loop, int priority) {
    rank->fd = epoll_create1(EPOLL_CLOEXEC);
    if (rank->fd < 0)
        return -errno;
    rank->loop = loop;
    list_init(&rank->deferred);
    (void)event_assign(&rank->due, loop->base, -1, 0, on_due, rank);
    (void)event_assign(&rank->ready, loop->base, rank->fd, EV_READ | EV_PERSIST, rank_on_ready,
                       rank);
    (void)event_priority_set(&rank->due, priority);
    (void)event_priority_set(&rank->ready, priority);
    return 0;
}

/* Ends the first n ranks. */
static void ranks_end(struct loop *loop, int n) {
    for (int i = 0; i < n; i++) {
        (void)event_del(&loop->ranks[i].due);
        (void)event_del(&loop->ranks[i].ready);
        (void)close(loop->ranks[i].fd);
    }
}

int loop_new(struct loop **ret) {
    int r = need_descriptors();
    if (r < 0)
        return r;
    event_set_log_callback(on_libevent_log);
    _cleanup_(freep) struct loop *loop = xcalloc(1, sizeof *loop);
    list_init(&loop->hooks);
    list_init(&loop->accepting);
    loop->since_ns = TIME_NEVER;
    loop->base = new_base();
    if (loop->base == NULL)
        return -ENOMEM;
    for (int i = 0; i < RANKS; i++) {
        r = rank_begin(&loop->ranks[i], loop, i);
        if (r < 0) {
            ranks_end(loop, i);
            event_base_free(loop->base);
            return r;
        }
    }
    loop->schedstat_fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    *ret = TAKE_PTR(loop);
    return 0;
}

static struct rank *waiting_rank(struct loop *loop) {
    for (int i = 0; i < RANKS; i++)
        if (loop->ranks[i].n_deferred > 0)
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
    ranks_end(loop, RANKS);
    event_base_free(loop->base);
    file_close(&loop->schedstat_fd);
    free(loop);
}

int loop_run(struct loop *loop) {
    loop->quit = false;
    while (!loop->quit) {
        int r = event_base_loop(loop->base, EVLOOP_ONCE);
        if (r < 0)
            return errno != 0 ? -errno : -EIO;
        if (r > 0) /* nothing left to wait for: a bug of muster, but don't spin */
            return -EDEADLK;
    }
    return 0;
}

static int turn(struct loop *loop, int flags) {
    loop->quit = false;
    /* Without ONCE it would continue for as long as anything is ready. */
    return event_base_loop(loop->base, EVLOOP_ONCE | flags) < 0 ? -EIO : 0;
}

int loop_turn(struct loop *loop) { return turn(loop, EVLOOP_NONBLOCK); }

int loop_wait(struct loop *loop) { return turn(loop, 0); }

void loop_quit(struct loop *loop) {
    loop->quit = true;
    (void)event_base_loopbreak(loop->base);
}

/* Only this descriptor: asking about all of them would take a tenth of a large job's time. */
static void look_for_connections(struct loop *loop) {
    struct loop_watch *w = LIST_FIRST(struct loop_watch, &loop->accepting, link);
    loop->n_callbacks = 0;
    if (w == NULL)
        return;
    list_remove(&w->link);
    list_append(&loop->accepting, &w->link);
    if (!(w->events & LOOP_READ))
        return;
    callback_begins(loop, rank_of(w->prio));
    w->fn(w->arg, w->fd, LOOP_READ);
    (void)callback_ends(loop, "new connections");
}

static const char *const names[LOOP_PRIO_COUNT] = {
    [LOOP_PRIO_LEASE] = "a connection of the group",
    [LOOP_PRIO_CHILD] = "a child process",
    [LOOP_PRIO_BULK] = "a connection or pipe",
    [LOOP_PRIO_ACCEPT] = "new connections",
};

static void call_watch(struct loop_watch *w, unsigned seen) {
    struct loop *loop = w->loop;
    const char *what = names[w->prio];
    callback_begins(loop, rank_of(w->prio));
    w->fn(w->arg, w->fd, seen);
    (void)callback_ends(loop, what);
    if (++loop->n_callbacks >= CALLBACKS_BETWEEN_LOOKS)
        look_for_connections(loop);
}

/* As in libevent: an error counts as ready, and the callback finds it when it reads or writes. */
static unsigned seen_of(uint32_t events) {
    unsigned seen = 0;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        seen |= LOOP_READ;
    if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
        seen |= LOOP_WRITE;
    return seen;
}

static bool next_batch(struct rank *rank) {
    int n = epoll_wait(rank->fd, rank->batch, BATCH, 0);
    rank->at = 0;
    rank->n_batch = MAX2(n, 0);
    return n > 0;
}

/* Serves watches for one slice. The rest of a batch, now the kernel's last, is first next time. */
static void rank_on_ready(evutil_socket_t fd, short events, void *arg) {
    struct rank *rank = arg;
    uint64_t end_ns = clock_now_ns() + LOOP_SLICE_NS;
    bool more = rank->at < rank->n_batch || next_batch(rank);
    while (more && !rank->loop->quit && clock_now_ns() < end_ns) {
        const struct epoll_event *e = &rank->batch[rank->at++];
        struct loop_watch *w = e->data.ptr;
        unsigned seen = w == NULL ? 0 : seen_of(e->events) & w->events;
        if (seen != 0)
            call_watch(w, seen);
        more = rank->at < rank->n_batch || (rank->n_batch == BATCH && next_batch(rank));
    }
    if (rank->at < rank->n_batch)
        event_active(&rank->ready, EV_READ, 0);
}

/* ---- watches ---- */

static struct rank *rank_with(const struct loop_watch *w) {
    return &w->loop->ranks[rank_of(w->prio)];
}

/* op: of epoll_ctl(2). 0 or a negative errno. */
static int control_epoll(struct loop_watch *w, int op) {
    struct epoll_event e = {.events = ((w->events & LOOP_READ) != 0 ? EPOLLIN : 0) |
                                      ((w->events & LOOP_WRITE) != 0 ? EPOLLOUT : 0),
                            .data.ptr = w};
    return epoll_ctl(rank_with(w)->fd, op, w->fd, &e) < 0 ? -errno : 0;
}

/* 0 or a negative errno: epoll refuses this kind of file. */
static int watch_begin(struct loop_watch *w) {
    struct rank *rank = rank_with(w);
    int r = w->events == 0 ? 0 : control_epoll(w, EPOLL_CTL_ADD);
    if (r < 0)
        w->events = 0;
    if (w->events != 0 && rank->n_watched++ == 0)
        (void)event_add(&rank->ready, NULL);
    return r;
}

static void watch_end(struct loop_watch *w) {
    struct rank *rank = rank_with(w);
    if (w->events == 0)
        return;
    (void)control_epoll(w, EPOLL_CTL_DEL);
    for (int i = rank->at; i < rank->n_batch; i++)
        if (rank->batch[i].data.ptr == w)
            rank->batch[i].data.ptr = NULL;
    if (--rank->n_watched == 0)
        (void)event_del(&rank->ready);
}

struct loop_watch *loop_watch_new(struct loop *loop, int fd, unsigned events,
                                  enum loop_priority prio, loop_watch_fn *fn, void *arg) {
    struct loop_watch *w = xcalloc(1, sizeof *w);
    *w = (struct loop_watch){
        .loop = loop, .fd = fd, .prio = prio, .events = events, .fn = fn, .arg = arg};
    int r = watch_begin(w);
    if (r < 0) {
        (void)fprintf(stderr, "muster: cannot wait for descriptor %d: %s\n", fd, strerror(-r));
        abort();
    }
    if (prio == LOOP_PRIO_ACCEPT)
        list_append(&loop->accepting, &w->link);
    return w;
}

void loop_watch_set(struct loop_watch *w, unsigned events) {
    if (events == w->events)
        return;
    if (events != 0 && w->events != 0) {
        w->events = events;
        (void)control_epoll(w, EPOLL_CTL_MOD);
        return;
    }
    watch_end(w);
    w->events = events;
    (void)watch_begin(w);
}

void loop_watch_set_priority(struct loop_watch *w, enum loop_priority prio) {
    if (prio == w->prio)
        return;
    assert(prio != LOOP_PRIO_ACCEPT && w->prio != LOOP_PRIO_ACCEPT);
    watch_end(w);
    w->prio = prio;
    (void)watch_begin(w);
}

void loop_watch_free(struct loop_watch *w) {
    if (w == NULL)
        return;
    list_remove(&w->link);
    watch_end(w);
    free(w);
}

static void timer_on_event(evutil_socket_t fd, short events, void *arg) {
    struct loop_timer *t = arg;
    struct loop *loop = t->loop;
    callback_begins(loop, LOOP_PRIO_LEASE);
    t->fn(t->arg);
    (void)callback_ends(loop, "a timer");
}

struct loop_timer *loop_timer_new(struct loop *loop, loop_timer_fn *fn, void *arg) {
    struct loop_timer *t = xcalloc(1, sizeof *t);
    t->loop = loop;
    t->fn = fn;
    t->arg = arg;
    (void)event_assign(&t->ev, loop->base, -1, 0, timer_on_event, t);
    (void)event_priority_set(&t->ev, LOOP_PRIO_LEASE);
    return t;
}

void loop_timer_set(struct loop_timer *t, uint64_t deadline_ns) {
    (void)event_del(&t->ev);
    if (deadline_ns == TIME_NEVER)
        return;
    /* In a callback libevent counts from the time at which the loop woke up: then the timer would
     * fire early. Its clock drops the part of a microsecond. */
    (void)event_base_update_cache_time(t->loop->base);
    uint64_t now = clock_now_ns();
    uint64_t wait_us = deadline_ns > now ? (deadline_ns - now) / NS_PER_US + 1 : 0;
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
    struct loop_signal *s = arg;
    struct loop *loop = s->loop;
    callback_begins(loop, LOOP_PRIO_LEASE);
    s->fn(s->arg, signo);
    (void)callback_ends(loop, "a signal");
}

struct loop_signal *loop_signal_new(struct loop *loop, int signo, loop_signal_fn *fn, void *arg) {
    struct loop_signal *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->fn = fn;
    s->arg = arg;
    (void)event_assign(&s->ev, loop->base, signo, EV_SIGNAL | EV_PERSIST, signal_on_event, s);
    (void)event_priority_set(&s->ev, LOOP_PRIO_LEASE);
    if (event_add(&s->ev, NULL) < 0) {
        log_error("signals can't be handled: %s", strerror(errno)); /* epoll(7): max_user_watches */
        abort();
    }
    return s;
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
    rank->n_deferred++;
    bool in_callback = loop->since_ns != TIME_NEVER;
    if (!in_callback || rank >= &loop->ranks[loop->running])
        event_active(&rank->due, EV_TIMEOUT, 0);
}

void loop_defer_drop(struct loop *loop, loop_defer_fn *fn, const void *arg) {
    for (size_t i = 0; i < ARRAY_SIZE(loop->ranks); i++)
        LIST_FOR_EACH(struct deferred, d, &loop->ranks[i].deferred, link) {
            if (d->arg != arg || (fn != NULL && d->fn != fn))
                continue;
            list_remove(&d->link);
            loop->ranks[i].n_deferred--;
            free(d);
        }
}

void loop_add_hook(struct loop *loop, struct loop_hook *hook) {
    list_append(&loop->hooks, &hook->link);
}

struct event_base *loop_event_base(struct loop *loop) {
    return loop->base;
}

const char *loop_backend_version(void) { return event_get_version(); }

const char *loop_built_version(void) { return LIBEVENT_VERSION; }

void loop_set_reaper(struct loop *loop, struct child_reaper *reaper) { loop->reaper = reaper; }

struct child_reaper *loop_reaper(const struct loop *loop) {
    return loop->reaper;
}
