#include "ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The first bytes on a connection, in native byte order like everything after them. Between
 * machines with different byte orders this check fails. */
#define HELLO_MAGIC 0x52494e47u
struct hello {
    uint32_t magic, from, size;
};

__attribute__((format(printf, 2, 3))) static int fail(struct ring *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->error, sizeof(r->error), fmt, ap);
    va_end(ap);
    return -1;
}

static unsigned after(const struct ring *r) { return (r->rank + 1) % r->size; }
static unsigned before(const struct ring *r) { return (r->rank + r->size - 1) % r->size; }

/* Sends send_len bytes to the next rank and receives recv_len from the previous one at the same
 * time. Neither waits for the other, so a ring in which all send at once cannot deadlock. */
static int exchange(struct ring *r, const void *send_p, size_t send_len, void *recv_p,
                    size_t recv_len) {
    const char *out = send_p;
    char *in = recv_p;
    while (send_len > 0 || recv_len > 0) {
        struct pollfd p[2] = {{.fd = send_len > 0 ? r->next : -1, .events = POLLOUT},
                              {.fd = recv_len > 0 ? r->prev : -1, .events = POLLIN}};
        int ready = poll(p, 2, r->timeout_ms);
        if (ready < 0 && errno != EINTR)
            return fail(r, "poll: %s", strerror(errno));
        if (ready == 0)
            return fail(r, "rank %u was silent for %d ms", recv_len > 0 ? before(r) : after(r),
                        r->timeout_ms);
        if (ready > 0 && p[0].revents != 0) {
            ssize_t n = send(r->next, out, send_len, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return fail(r, "lost rank %u: %s", after(r), strerror(errno));
            out += n > 0 ? n : 0;
            send_len -= n > 0 ? (size_t)n : 0;
        }
        if (ready > 0 && p[1].revents != 0) {
            ssize_t n = recv(r->prev, in, recv_len, MSG_DONTWAIT);
            if (n == 0)
                return fail(r, "lost rank %u: it closed the connection", before(r));
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return fail(r, "lost rank %u: %s", before(r), strerror(errno));
            in += n > 0 ? n : 0;
            recv_len -= n > 0 ? (size_t)n : 0;
        }
    }
    return 0;
}

/* Listens on a free port of the address at which the store sees this process, and publishes it in
 * the store. */
static int publish(struct ring *r, struct muster_store *store, int *ret_listener) {
    char host[MUSTER_STORE_ADDRESS_MAX], where[MUSTER_STORE_ADDRESS_MAX + 8], key[32];
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);
    struct addrinfo *at = NULL, hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    if (muster_store_local_address(store, host) < 0)
        return fail(r, "%s", muster_store_error());
    if (getaddrinfo(host, "0", &hints, &at) != 0)
        return fail(r, "cannot read own address %s", host);
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bad = fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, 8) < 0 ||
              getsockname(fd, (struct sockaddr *)&own, &len) < 0;
    freeaddrinfo(at);
    if (bad) {
        fail(r, "cannot listen on %s: %s", host, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    /* the port is at the same offset in both families */
    unsigned port = ntohs(((struct sockaddr_in *)(void *)&own)->sin_port);
    int n =
        snprintf(where, sizeof(where), own.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, port);
    (void)snprintf(key, sizeof(key), "ring/%u", r->rank);
    if (muster_store_set(store, key, where, (size_t)n) < 0) {
        close(fd);
        return fail(r, "%s", muster_store_error());
    }
    *ret_listener = fd;
    return 0;
}

/* "10.0.0.7:4711" or "[fe80::1]:4711" */
static int connect_to(const char *where, struct addrinfo **ret_at) {
    char host[MUSTER_STORE_ADDRESS_MAX + 8];
    const char *port = strrchr(where, ':');
    if (port == NULL || (size_t)(port - where) >= sizeof(host))
        return -1;
    int bracket = where[0] == '[' && port > where && port[-1] == ']';
    size_t len = (size_t)(port - where) - (bracket ? 2 : 0);
    memcpy(host, where + bracket, len);
    host[len] = 0;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    return getaddrinfo(host, port + 1, &hints, ret_at) == 0 ? 0 : -1;
}

static int connect_next(struct ring *r, struct muster_store *store) {
    char key[32];
    void *where = NULL;
    size_t len;
    (void)snprintf(key, sizeof(key), "ring/%u", after(r));
    if (muster_store_get(store, key, r->timeout_ms, &where, &len) < 0)
        return fail(r, "rank %u did not come: %s", after(r), muster_store_error());
    struct addrinfo *at = NULL;
    if (connect_to(where, &at) < 0) {
        free(where);
        return fail(r, "rank %u is at no address that can be read", after(r));
    }
    r->next = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {r->timeout_ms / 1000, r->timeout_ms % 1000 * 1000};
    int on = 1, bad = r->next < 0 ||
                      setsockopt(r->next, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
                      setsockopt(r->next, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
                      connect(r->next, at->ai_addr, at->ai_addrlen) < 0;
    freeaddrinfo(at);
    if (bad)
        fail(r, "cannot connect to rank %u at %s: %s", after(r), (char *)where, strerror(errno));
    free(where);
    return bad ? -1 : 0;
}

/* Accepts the previous rank, which sends the right hello; other connections are closed. */
static int accept_prev(struct ring *r, int listener) {
    for (;;) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int ready = poll(&p, 1, r->timeout_ms);
        if (ready == 0)
            return fail(r, "rank %u did not connect within %d ms", before(r), r->timeout_ms);
        r->prev = ready > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (r->prev < 0 && errno != EINTR && errno != ECONNABORTED)
            return fail(r, "accept: %s", strerror(errno));
        struct hello h = {0};
        if (r->prev >= 0 && exchange(r, NULL, 0, &h, sizeof(h)) == 0 && h.magic == HELLO_MAGIC &&
            h.from == before(r) && h.size == r->size)
            return 0;
        if (r->prev >= 0)
            close(r->prev);
        r->prev = -1;
    }
}

int ring_open(struct ring *r, struct muster_store *store, unsigned rank, unsigned size,
              int timeout_ms) {
    *r =
        (struct ring){.rank = rank, .size = size, .next = -1, .prev = -1, .timeout_ms = timeout_ms};
    if (size == 1)
        return 0;
    int listener;
    if (publish(r, store, &listener) < 0)
        return -1;
    struct hello h = {HELLO_MAGIC, rank, size};
    int bad = connect_next(r, store) < 0 || exchange(r, &h, sizeof(h), NULL, 0) < 0 ||
              accept_prev(r, listener) < 0;
    close(listener);
    if (bad)
        ring_close(r);
    return bad ? -1 : 0;
}

/* Part i of the vector; parts differ by at most one element and may be empty. */
static size_t part_at(const struct ring *r, size_t n, unsigned i) { return n * i / r->size; }
static size_t part_len(const struct ring *r, size_t n, unsigned i) {
    return part_at(r, n, i + 1) - part_at(r, n, i);
}

int ring_sum(struct ring *r, float *v, size_t n) {
    if (r->size == 1)
        return 0;
    if (r->received_n < n / r->size + 1) {
        free(r->received);
        r->received_n = n / r->size + 1;
        r->received = malloc(r->received_n * sizeof(float));
        if (r->received == NULL) {
            r->received_n = 0;
            return fail(r, "no memory for %zu numbers", n);
        }
    }
    /* first each part goes once around the ring and collects its sum ... */
    for (unsigned step = 0; step + 1 < r->size; step++) {
        unsigned give = (r->rank + r->size - step) % r->size;
        unsigned take = (give + r->size - 1) % r->size;
        size_t len = part_len(r, n, take);
        if (exchange(r, v + part_at(r, n, give), part_len(r, n, give) * sizeof(float), r->received,
                     len * sizeof(float)) < 0)
            return -1;
        for (size_t i = 0; i < len; i++)
            v[part_at(r, n, take) + i] += r->received[i];
    }
    /* ... then the sums go around the ring */
    for (unsigned step = 0; step + 1 < r->size; step++) {
        unsigned give = (r->rank + 1 + r->size - step) % r->size;
        unsigned take = (give + r->size - 1) % r->size;
        if (exchange(r, v + part_at(r, n, give), part_len(r, n, give) * sizeof(float),
                     v + part_at(r, n, take), part_len(r, n, take) * sizeof(float)) < 0)
            return -1;
    }
    return 0;
}

void ring_close(struct ring *r) {
    if (r->next >= 0)
        close(r->next);
    if (r->prev >= 0)
        close(r->prev);
    free(r->received);
    r->received = NULL;
    r->received_n = 0;
    r->next = r->prev = -1;
}
