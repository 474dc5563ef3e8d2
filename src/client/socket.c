#include "client/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "muster/store.h"

#define NS_PER_MS UINT64_C(1000000)
#define RETRY_FIRST_MS 20
#define RETRY_LAST_MS 1000
/* One address of several must not use up the whole time. A SYN is sent again after 1, 3 and 7 s. */
#define ATTEMPT_MS 10000

/* The handshake: opcode VALIDATE with its magic, opcode PING with a nonce that the server returns.
 * PyTorch torch/csrc/distributed/c10d/TCPStoreBackend.hpp; seen on the wire with 2.13. */
static const uint8_t VALIDATE[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
#define OP_PING 0x0d

static _Thread_local char error_text[512] = "no error";

const char *muster_store_error(void) { return error_text; }

int muster_store_fail(int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(error_text, sizeof(error_text), fmt, ap);
    va_end(ap);
    return code;
}

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 * NS_PER_MS + (uint64_t)ts.tv_nsec;
}

uint64_t muster_store_deadline_ns(int timeout_ms) {
    return timeout_ms < 0 ? UINT64_MAX : now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

/* For poll(): rounded up, so a wait never ends before its deadline. */
static int ms_until(uint64_t deadline_ns) {
    if (deadline_ns == UINT64_MAX)
        return -1;
    uint64_t now = now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > 3600 * 1000 ? 3600 * 1000 : (int)ms;
}

/* 0 if the socket is ready; -ETIME past the deadline. */
static int wait_ready(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int ms = ms_until(deadline_ns);
        int n = poll(&p, 1, ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && now_ns() >= deadline_ns)
            return -ETIME;
    }
}

/* Sends or receives all of it. */
static int move_all(int fd, bool sends, uint8_t *p, size_t len, uint64_t deadline_ns) {
    while (len > 0) {
        ssize_t n = sends ? send(fd, p, len, MSG_NOSIGNAL) : recv(fd, p, len, 0);
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        } else if (n == 0 && !sends) {
            return -ECONNRESET;
        } else if (n < 0 && errno == EAGAIN) {
            int r = wait_ready(fd, sends ? POLLOUT : POLLIN, deadline_ns);
            if (r < 0)
                return r;
        } else if (n < 0 && errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int muster_store_socket_send(int fd, const void *data, size_t len, uint64_t deadline_ns) {
    return move_all(fd, true, (uint8_t *)(uintptr_t)data, len, deadline_ns);
}

int muster_store_socket_recv(int fd, void *data, size_t len, uint64_t deadline_ns) {
    return move_all(fd, false, data, len, deadline_ns);
}

/* Repeated attempts to connect to a free port of the ephemeral range can connect to themselves
 * (TCP's simultaneous open). Then both ends have the same address. */
static bool met_itself(int fd) {
    struct sockaddr_storage own, peer;
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    memset(&own, 0, sizeof(own));
    memset(&peer, 0, sizeof(peer));
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static int finish_connect(int fd, const struct addrinfo *ai, uint64_t deadline_ns) {
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return -errno;
        int r = wait_ready(fd, POLLOUT, deadline_ns);
        if (r < 0)
            return r;
        int error = 0;
        socklen_t len = sizeof(error);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            return -errno;
        if (error != 0)
            return -error;
    }
    return met_itself(fd) ? -ECONNREFUSED : 0;
}

static int shake_hands(int fd, uint64_t deadline_ns) {
    uint8_t hello[sizeof(VALIDATE) + 5], echo[4];
    uint32_t nonce = (uint32_t)getpid();
    memcpy(hello, VALIDATE, sizeof(VALIDATE));
    hello[5] = OP_PING;
    for (unsigned i = 0; i < 4; i++)
        hello[6 + i] = (uint8_t)(nonce >> (8 * i));
    int r = muster_store_socket_send(fd, hello, sizeof(hello), deadline_ns);
    if (r < 0)
        return r;
    r = muster_store_socket_recv(fd, echo, sizeof(echo), deadline_ns);
    if (r < 0)
        return r;
    return memcmp(echo, hello + 6, sizeof(echo)) == 0 ? 0 : -EPROTO;
}

/* Best effort: without these options a store is slower, or its death is detected later, but results
 * are correct. */
static void set_options(int fd) {
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 10},
        {IPPROTO_TCP, TCP_KEEPCNT, 6},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static int try_address(const struct addrinfo *ai, uint64_t deadline_ns, int *ret_fd) {
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    uint64_t attempt_ns = muster_store_deadline_ns(ATTEMPT_MS);
    if (attempt_ns > deadline_ns)
        attempt_ns = deadline_ns;
    int r = finish_connect(fd, ai, attempt_ns);
    if (r == 0) {
        set_options(fd);
        r = shake_hands(fd, deadline_ns);
    }
    if (r < 0) {
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static int look_up(const char *host, uint16_t port, struct addrinfo **ret) {
    char service[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    (void)snprintf(service, sizeof(service), "%u", port);
    int r = getaddrinfo(host, service, &hints, ret);
    if (r == EAI_NONAME) {
        hints.ai_flags = AI_NUMERICSERV;
        r = getaddrinfo(host, service, &hints, ret);
    }
    return r;
}

/* Tries all addresses of the host once; reason is why none worked. */
static int try_host(const char *host, uint16_t port, uint64_t deadline_ns, int *ret_fd,
                    const char **reason) {
    struct addrinfo *list = NULL;
    int r = look_up(host, port, &list);
    if (r != 0) {
        *reason = gai_strerror(r);
        return r == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
    }
    r = -EHOSTUNREACH;
    for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        r = try_address(ai, deadline_ns, ret_fd);
        if (r == 0 || r == -EPROTO)
            break;
    }
    freeaddrinfo(list);
    if (r < 0)
        *reason = strerror(-r);
    return r;
}

static bool worth_another_try(int r) {
    return r == -ECONNREFUSED || r == -ECONNRESET || r == -ECONNABORTED || r == -EPIPE ||
           r == -ETIMEDOUT || r == -ETIME || r == -EHOSTUNREACH || r == -ENETUNREACH ||
           r == -EADDRNOTAVAIL || r == -EHOSTDOWN || r == -ENETDOWN;
}

int muster_store_socket_open(const char *host, uint16_t port, uint64_t deadline_ns, int *ret_fd) {
    int pause_ms = RETRY_FIRST_MS;
    for (;;) {
        const char *reason = "";
        int r = try_host(host, port, deadline_ns, ret_fd, &reason);
        if (r == 0)
            return 0;
        if (r == -EPROTO)
            return muster_store_fail(r, "what answers at %s port %u is not a TCPStore", host, port);
        if (!worth_another_try(r))
            return muster_store_fail(r, "cannot connect to the store at %s port %u: %s", host, port,
                                     reason);
        if (now_ns() >= deadline_ns)
            return muster_store_fail(-ETIMEDOUT,
                                     "no store answered at %s port %u in time; last reason: %s",
                                     host, port, reason);
        int left_ms = ms_until(deadline_ns);
        (void)poll(NULL, 0, left_ms >= 0 && left_ms < pause_ms ? left_ms : pause_ms);
        pause_ms = pause_ms * 3 / 2 > RETRY_LAST_MS ? RETRY_LAST_MS : pause_ms * 3 / 2;
    }
}
