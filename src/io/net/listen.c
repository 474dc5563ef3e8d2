#include "io/net/listen.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"

/* Bounds the work of a turn: new connections must not delay existing ones. As many as the kernel's
 * queue holds (net.core.somaxconn); one that overflows it is retried after a second. */
#define ACCEPTS_PER_TURN 4096
#define RETRY_NS (100 * NS_PER_MS)

struct listener {
    struct loop *loop;
    int fd;
    struct loop_watch *watch;
    struct loop_timer *retry;
    listener_fn *fn;
    void *arg;
    bool paused;
    bool *freed; /* set if the callback frees the listener */
};

static struct {
    uint16_t low, high; /* 0: the kernel chooses */
    uint16_t last[LISTEN_LAST_MAX];
    unsigned n_last;
} range;

void listen_set_range(uint16_t low, uint16_t high) {
    range.low = low;
    range.high = high;
}

void listen_set_last(const uint16_t *ports, unsigned n) {
    assert(n <= LISTEN_LAST_MAX);
    memcpy(range.last, ports, n * sizeof *ports);
    range.n_last = n;
}

static bool is_last(uint32_t port) {
    for (unsigned i = 0; i < range.n_last; i++)
        if (range.last[i] == port)
            return true;
    return false;
}

static int open_socket(const struct addr *at, int backlog) {
    int fd = socket(at->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int on = 1, v6only = !addr_is_wildcard(at);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (at->ss.ss_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only) < 0) ||
        bind(fd, (const struct sockaddr *)&at->ss, at->len) < 0 || listen(fd, backlog) < 0) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    return fd;
}

static const char *advice(int code) {
    switch (code) {
    case EADDRINUSE:
        return "another process listens there; choose another port, or 0 for any free one";
    case EADDRNOTAVAIL: return "no interface of this machine has that address";
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    case EACCES: return "ports below 1024 need privileges";
    default: return "choose another address";
    }
}

/* Begins at a random port: other agents start now, too. `last`: those of listen_set_last(). */
static int open_among(const struct addr *at, int backlog, bool last) {
    struct addr a = *at;
    unsigned n = range.high - range.low + 1u, first = (unsigned)(random_u64() % n);
    int fd = -EADDRINUSE;
    for (unsigned i = 0; i < n && fd == -EADDRINUSE; i++) {
        uint16_t port = (uint16_t)(range.low + (first + i) % n);
        addr_set_port(&a, port);
        if (is_last(port) == last)
            fd = open_socket(&a, backlog);
    }
    return fd;
}

static int open_in_range(const struct addr *at, int backlog) {
    int fd = open_among(at, backlog, false);
    return fd == -EADDRINUSE ? open_among(at, backlog, true) : fd;
}

static int open_any(const struct addr *at, int backlog) {
    return addr_port(at) == 0 && range.low > 0 ? open_in_range(at, backlog)
                                               : open_socket(at, backlog);
}

int listen_socket(const struct addr *at, int backlog, int *ret_fd, struct err *err) {
    int fd = open_any(at, backlog);
    if (fd == -EAFNOSUPPORT && at->ss.ss_family == AF_INET6 && addr_is_wildcard(at)) {
        /* The kernel has no IPv6: "any address" then means any IPv4 address. */
        struct addr any;
        if (addr_from_literal("0.0.0.0", addr_port(at), &any) == 0)
            fd = open_any(&any, backlog);
    }
    if (fd < 0) {
        char text[ADDR_TEXT_MAX];
        addr_to_text(at, text);
        if (fd == -EADDRINUSE && addr_port(at) == 0 && range.low > 0)
            return err_set(
                err, fd,
                "no port from %u to %u is free on this machine; give a larger --port-range",
                range.low, range.high);
        return err_set(err, fd, "cannot listen on %s: %s; %s", text, strerror(-fd), advice(-fd));
    }
    *ret_fd = fd;
    return 0;
}

static void on_retry(void *arg) {
    struct listener *l = arg;
    if (!l->paused)
        loop_watch_set(l->watch, LOOP_READ);
}

static void on_acceptable(void *arg, int fd, unsigned events) {
    struct listener *l = arg;
    bool freed = false;
    l->freed = &freed;
    for (int i = 0; i < ACCEPTS_PER_TURN && !l->paused && (i == 0 || !loop_slice_is_over(l->loop));
         i++) {
        struct addr peer = {.len = sizeof peer.ss};
        int conn =
            accept4(fd, (struct sockaddr *)&peer.ss, &peer.len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (conn < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN) { /* out of descriptors or memory: wait instead of spinning */
                loop_watch_set(l->watch, 0);
                loop_timer_set(l->retry, clock_now_ns() + RETRY_NS);
            }
            break;
        }
        l->fn(l->arg, conn, &peer);
        if (freed)
            return;
    }
    l->freed = NULL;
}

struct listener *listener_new(struct loop *loop, int fd, listener_fn *fn, void *arg) {
    struct listener *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->fd = fd;
    l->fn = fn;
    l->arg = arg;
    l->retry = loop_timer_new(loop, on_retry, l);
    l->watch = loop_watch_new(loop, fd, LOOP_READ, LOOP_PRIO_ACCEPT, on_acceptable, l);
    return l;
}

void listener_free(struct listener *l) {
    if (l == NULL)
        return;
    if (l->freed != NULL)
        *l->freed = true;
    loop_watch_free(l->watch);
    loop_timer_free(l->retry);
    (void)close(l->fd);
    free(l);
}

int listener_addr(const struct listener *l, struct addr *ret) { return addr_of_socket(l->fd, ret); }

void listener_pause(struct listener *l) {
    l->paused = true;
    loop_timer_set(l->retry, TIME_NEVER);
    loop_watch_set(l->watch, 0);
}

void listener_retry(struct listener *l) {
    l->paused = false;
    loop_timer_set(l->retry, TIME_NEVER);
    loop_watch_set(l->watch, LOOP_READ);
}
