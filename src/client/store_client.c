#include "muster/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/little_endian.h"
#include "base/util.h"

#define RETRY_FIRST_MS 20
#define RETRY_LAST_MS 1000
/* One address of several must not use up the whole time. A SYN is sent again after 1, 3 and 7 s. */
#define ATTEMPT_MS 10000

/* Opcodes, and integers in little-endian byte order: PyTorch's
 * torch/csrc/distributed/c10d/TCPStoreBackend.hpp; seen on the wire with 2.13. */
enum op {
    OP_SET = 1,
    OP_COMPARE_SET = 2,
    OP_GET = 3,
    OP_ADD = 4,
    OP_CHECK = 5,
    OP_WAIT = 6,
    OP_DELETE_KEY = 8,
    OP_CANCEL_WAIT = 12,
    OP_PING = 13,
};

/* The handshake: opcode VALIDATE with its magic, opcode PING with a nonce that the server
 * returns. */
static const uint8_t VALIDATE[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

static _Thread_local char error_text[512] = "no error";

const char *muster_store_error(void) { return error_text; }

/* Stores the sentence as the thread's error text, and returns code. */
static _printf_(2, 3) int fail(int code, const char *fmt, ...) {
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

/* Deadlines are CLOCK_MONOTONIC nanoseconds; UINT64_MAX is "never", as a time-out below 0 is. */
static uint64_t deadline_after(int timeout_ms) {
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

/* -ETIME past the deadline, -ECONNRESET at the end of the stream. */
static int socket_send(int fd, const void *data, size_t len, uint64_t deadline_ns) {
    return move_all(fd, true, (uint8_t *)(uintptr_t)data, len, deadline_ns);
}

static int socket_recv(int fd, void *data, size_t len, uint64_t deadline_ns) {
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
    memcpy(hello, VALIDATE, sizeof(VALIDATE));
    hello[5] = OP_PING;
    store_u32le(hello + 6, (uint32_t)getpid()); /* the nonce */
    int r = socket_send(fd, hello, sizeof(hello), deadline_ns);
    if (r < 0)
        return r;
    r = socket_recv(fd, echo, sizeof(echo), deadline_ns);
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
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static int try_address(const struct addrinfo *ai, uint64_t deadline_ns, int *ret_fd) {
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    uint64_t attempt_ns = deadline_after(ATTEMPT_MS);
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

/* A connected non-blocking socket after the handshake; see muster_store_connect(). */
static int socket_open(const char *host, uint16_t port, uint64_t deadline_ns, int *ret_fd) {
    int pause_ms = RETRY_FIRST_MS;
    for (;;) {
        const char *reason = "";
        int r = try_host(host, port, deadline_ns, ret_fd, &reason);
        if (r == 0)
            return 0;
        if (r == -EPROTO)
            return fail(r, "what answers at %s port %u is not a TCPStore", host, port);
        if (!worth_another_try(r))
            return fail(r, "cannot connect to the store at %s port %u: %s", host, port, reason);
        if (now_ns() >= deadline_ns)
            return fail(-ETIMEDOUT, "no store answered at %s port %u in time; last reason: %s",
                        host, port, reason);
        int left_ms = ms_until(deadline_ns);
        (void)poll(NULL, 0, left_ms >= 0 && left_ms < pause_ms ? left_ms : pause_ms);
        pause_ms = pause_ms * 3 / 2 > RETRY_LAST_MS ? RETRY_LAST_MS : pause_ms * 3 / 2;
    }
}

enum { REPLY_READY = 0, REPLY_NOT_READY = 1 };            /* answers to CHECK */
enum { REPLY_STOP_WAITING = 0, REPLY_WAIT_CANCELED = 1 }; /* answers to WAIT and to CANCEL_WAIT */

#define REQUEST_MAX (256u << 20) /* a whole request; muster's own store has this limit */

struct muster_store {
    int fd; /* -1 once the connection can't be used any more */
    int reply_timeout_ms;
};

/* A request while it is built. error is set if it does not fit or memory runs out. */
struct request {
    uint8_t *data;
    size_t len, capacity;
    int error;
};

/* The first error counts, after which nothing is put. */
static void spoil_if(struct request *q, bool is_bad, int error) {
    if (is_bad && q->error == 0)
        q->error = error;
}

static void put(struct request *q, const void *data, size_t len) {
    if (q->error != 0 || len == 0)
        return;
    if (len > REQUEST_MAX - q->len) {
        q->error = -EMSGSIZE;
        return;
    }
    if (q->len + len > q->capacity) {
        size_t capacity = (q->len + len) * 2;
        uint8_t *larger = realloc(q->data, capacity);
        if (larger == NULL) {
            q->error = -ENOMEM;
            return;
        }
        q->data = larger;
        q->capacity = capacity;
    }
    memcpy(q->data + q->len, data, len);
    q->len += len;
}

static void put_u8(struct request *q, uint8_t v) { put(q, &v, 1); }

static void put_u64(struct request *q, uint64_t v) {
    uint8_t b[8];
    store_u64le(b, v);
    put(q, b, sizeof(b));
}

/* torch.distributed.TCPStore puts a "/" before every key of its user. This client does the same, so
 * that keys are shared. */
static void put_key(struct request *q, const char *key) {
    size_t len = key == NULL ? 0 : strnlen(key, MUSTER_STORE_KEY_MAX + 1);
    spoil_if(q, key == NULL, -EINVAL);
    spoil_if(q, len > MUSTER_STORE_KEY_MAX, -EMSGSIZE);
    put_u64(q, len + 1);
    put(q, "/", 1);
    put(q, key, len);
}

static void put_value(struct request *q, const void *value, size_t len) {
    spoil_if(q, value == NULL && len > 0, -EINVAL);
    spoil_if(q, len > MUSTER_STORE_VALUE_MAX, -EMSGSIZE);
    put_u64(q, len);
    put(q, value, len);
}

static void put_keys(struct request *q, const char *const *keys, size_t n) {
    spoil_if(q, keys == NULL && n > 0, -EINVAL);
    spoil_if(q, n > MUSTER_STORE_KEYS_MAX, -EMSGSIZE);
    put_u64(q, n);
    for (size_t i = 0; i < n && q->error == 0; i++)
        put_key(q, keys[i]);
}

/* The stream is out of step or closed, so nothing more can be sent on it. */
static int broken(struct muster_store *s, int code, const char *what) {
    close(s->fd);
    s->fd = -1;
    if (code == -ETIME)
        return fail(-ECONNABORTED, "%s: the store did not answer within %d ms; disconnected", what,
                    s->reply_timeout_ms);
    if (code == -EPROTO)
        return fail(code, "%s: the store's answer is not of the protocol; disconnected", what);
    return fail(code, "%s: lost the store: %s", what, strerror(-code));
}

/* Sends the request, or reports why it can't; frees it. */
static int send_request(struct muster_store *s, struct request *q, const char *what) {
    int r = q->error;
    if (s == NULL)
        r = fail(-EINVAL, "%s: no store given", what);
    else if (s->fd < 0)
        r = fail(-ENOTCONN, "%s: the connection to the store was lost before", what);
    else if (r == -EMSGSIZE)
        fail(r, "%s: a key, a value or the list is too long for a store", what);
    else if (r < 0)
        fail(r, "%s: %s", what, strerror(-r));
    else {
        uint64_t deadline_ns = deadline_after(s->reply_timeout_ms);
        r = socket_send(s->fd, q->data, q->len, deadline_ns);
        if (r < 0)
            r = broken(s, r, what);
    }
    free(q->data);
    q->data = NULL;
    return r;
}

/* Reads bytes that the server must send at once. */
static int recv_reply(struct muster_store *s, void *data, size_t len, const char *what) {
    uint64_t deadline_ns = deadline_after(s->reply_timeout_ms);
    int r = socket_recv(s->fd, data, len, deadline_ns);
    return r < 0 ? broken(s, r, what) : 0;
}

static int recv_i64(struct muster_store *s, int64_t *ret, const char *what) {
    uint8_t b[8];
    int r = recv_reply(s, b, sizeof(b), what);
    if (r == 0)
        *ret = (int64_t)load_u64le(b);
    return r;
}

static int recv_value(struct muster_store *s, void **ret_value, size_t *ret_len, const char *what) {
    uint8_t head[8];
    int r = recv_reply(s, head, sizeof(head), what);
    if (r < 0)
        return r;
    uint64_t len = load_u64le(head);
    if (len > MUSTER_STORE_VALUE_MAX)
        return broken(s, -EPROTO, what);
    uint8_t *value = malloc((size_t)len + 1);
    if (value == NULL)
        return broken(s, -ENOMEM, what);
    r = recv_reply(s, value, (size_t)len, what);
    if (r < 0) {
        free(value);
        return r;
    }
    value[len] = 0;
    *ret_value = value;
    *ret_len = (size_t)len;
    return 0;
}

int muster_store_connect(const char *host, uint16_t port, int timeout_ms,
                         struct muster_store **ret_store) {
    if (host == NULL || host[0] == 0 || port == 0 || ret_store == NULL)
        return fail(-EINVAL, "connect: a host, a port and ret_store are needed");
    struct muster_store *s = malloc(sizeof(*s));
    if (s == NULL)
        return fail(-ENOMEM, "connect: %s", strerror(ENOMEM));
    *s = (struct muster_store){.fd = -1, .reply_timeout_ms = MUSTER_STORE_REPLY_TIMEOUT_MS};
    int r = socket_open(host, port, deadline_after(timeout_ms), &s->fd);
    if (r < 0) {
        free(s);
        return r;
    }
    *ret_store = s;
    return 0;
}

int muster_store_connect_env(int timeout_ms, struct muster_store **ret_store) {
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    if (host == NULL || host[0] == 0 || port == NULL || port[0] == 0)
        return fail(-ENOENT, "%s is not set: start this under muster run or torchrun",
                    host == NULL || host[0] == 0 ? "MASTER_ADDR" : "MASTER_PORT");
    char *end;
    errno = 0;
    unsigned long number = strtoul(port, &end, 10);
    if (port[0] < '0' || port[0] > '9' || *end != 0 || errno != 0 || number == 0 || number > 65535)
        return fail(-EINVAL, "MASTER_PORT is not a port: \"%.40s\"", port);
    return muster_store_connect(host, (uint16_t)number, timeout_ms, ret_store);
}

void muster_store_close(struct muster_store *s) {
    if (s == NULL)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

int muster_store_set_reply_timeout(struct muster_store *s, int timeout_ms) {
    if (s == NULL || timeout_ms <= 0)
        return fail(-EINVAL, "the reply timeout must be above 0 ms");
    s->reply_timeout_ms = timeout_ms;
    return 0;
}

int muster_store_local_address(struct muster_store *s, char ret_text[MUSTER_STORE_ADDRESS_MAX]) {
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);
    if (s == NULL || s->fd < 0)
        return fail(-ENOTCONN, "local address: not connected to a store");
    if (getsockname(s->fd, (struct sockaddr *)&own, &len) < 0)
        return fail(-errno, "local address: %s", strerror(errno));
    const void *address = &((const struct sockaddr_in *)(const void *)&own)->sin_addr;
    if (own.ss_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)&own)->sin6_addr;
    if (inet_ntop(own.ss_family, address, ret_text, MUSTER_STORE_ADDRESS_MAX) == NULL)
        return fail(-errno, "local address: %s", strerror(errno));
    return 0;
}

int muster_store_set(struct muster_store *s, const char *key, const void *value, size_t len) {
    struct request q = {0};
    put_u8(&q, OP_SET);
    put_key(&q, key);
    put_value(&q, value, len);
    return send_request(s, &q, "set");
}

int muster_store_add(struct muster_store *s, const char *key, int64_t delta, int64_t *ret_sum) {
    struct request q = {0};
    put_u8(&q, OP_ADD);
    put_key(&q, key);
    put_u64(&q, (uint64_t)delta);
    int64_t sum = 0;
    int r = send_request(s, &q, "add");
    if (r == 0)
        r = recv_i64(s, &sum, "add");
    if (r == 0 && ret_sum != NULL)
        *ret_sum = sum;
    return r;
}

int muster_store_check(struct muster_store *s, const char *const *keys, size_t n, bool *ret_exist) {
    struct request q = {0};
    uint8_t reply = REPLY_NOT_READY;
    put_u8(&q, OP_CHECK);
    put_keys(&q, keys, n);
    int r = send_request(s, &q, "check");
    if (r == 0)
        r = recv_reply(s, &reply, 1, "check");
    if (r < 0)
        return r;
    if (reply != REPLY_READY && reply != REPLY_NOT_READY)
        return broken(s, -EPROTO, "check");
    *ret_exist = reply == REPLY_READY;
    return 0;
}

int muster_store_delete(struct muster_store *s, const char *key, bool *ret_existed) {
    struct request q = {0};
    int64_t n = 0;
    put_u8(&q, OP_DELETE_KEY);
    put_key(&q, key);
    int r = send_request(s, &q, "delete");
    if (r == 0)
        r = recv_i64(s, &n, "delete");
    if (r == 0 && ret_existed != NULL)
        *ret_existed = n != 0;
    return r;
}

int muster_store_compare_set(struct muster_store *s, const char *key, const void *expected,
                             size_t expected_len, const void *desired, size_t desired_len,
                             void **ret_value, size_t *ret_len) {
    struct request q = {0};
    put_u8(&q, OP_COMPARE_SET);
    put_key(&q, key);
    put_value(&q, expected, expected_len);
    put_value(&q, desired, desired_len);
    int r = send_request(s, &q, "compare_set");
    return r < 0 ? r : recv_value(s, ret_value, ret_len, "compare_set");
}

/* The time is over, but the answer to the wait can still be on its way. The server answers the
 * cancel with one byte, and the wait's own answer can come before it. */
static int cancel_wait(struct muster_store *s, const char *what) {
    struct request q = {0};
    uint8_t reply;
    put_u8(&q, OP_CANCEL_WAIT);
    int r = send_request(s, &q, what);
    if (r == 0)
        r = recv_reply(s, &reply, 1, what);
    if (r < 0)
        return r;
    if (reply == REPLY_WAIT_CANCELED)
        return -ETIMEDOUT;
    uint8_t second = REPLY_STOP_WAITING;
    if (reply == REPLY_STOP_WAITING)
        r = recv_reply(s, &second, 1, what);
    if (r < 0)
        return r;
    return second == REPLY_WAIT_CANCELED ? 0 : broken(s, -EPROTO, what);
}

static int wait_keys(struct muster_store *s, const char *const *keys, size_t n, int timeout_ms,
                     const char *what) {
    struct request q = {0};
    uint8_t reply;
    put_u8(&q, OP_WAIT);
    put_keys(&q, keys, n);
    int r = send_request(s, &q, what);
    if (r < 0)
        return r;
    r = socket_recv(s->fd, &reply, 1, deadline_after(timeout_ms));
    if (r == -ETIME)
        r = cancel_wait(s, what);
    else if (r < 0)
        return broken(s, r, what);
    else if (reply != REPLY_STOP_WAITING)
        return broken(s, -EPROTO, what);
    if (r == -ETIMEDOUT)
        fail(r, "%s: %s%.200s%s did not appear within %d ms", what, n > 1 ? "one of the keys " : "",
             keys[0], n > 1 ? "..." : "", timeout_ms);
    return r;
}

int muster_store_wait(struct muster_store *s, const char *const *keys, size_t n, int timeout_ms) {
    return n == 0 ? 0 : wait_keys(s, keys, n, timeout_ms, "wait");
}

int muster_store_get(struct muster_store *s, const char *key, int timeout_ms, void **ret_value,
                     size_t *ret_len) {
    /* a server may close the connection at the GET of a missing key, so WAIT first, as PyTorch
     * does */
    int r = wait_keys(s, &key, 1, timeout_ms, "get");
    if (r < 0)
        return r;
    struct request q = {0};
    put_u8(&q, OP_GET);
    put_key(&q, key);
    r = send_request(s, &q, "get");
    return r < 0 ? r : recv_value(s, ret_value, ret_len, "get");
}

/* Every participant increments the counter. The one that completes a round sets the round's key,
 * for which all wait. No participant can enter round r before it has left r - 1, so the one that
 * completes r may remove the key of r - 1. */
int muster_store_barrier(struct muster_store *s, const char *name, unsigned world_size,
                         int timeout_ms) {
    char key[256], done[300];
    int64_t count;
    if (name == NULL || world_size == 0)
        return fail(-EINVAL, "barrier: a name and a world size above 0 are needed");
    int n = snprintf(key, sizeof(key), "muster.barrier/%s", name);
    if (n < 0 || (size_t)n >= sizeof(key))
        return fail(-EMSGSIZE, "barrier: the name is longer than %zu bytes",
                    sizeof(key) - sizeof("muster.barrier/"));
    int r = muster_store_add(s, key, 1, &count);
    if (r < 0)
        return r;
    if (count <= 0)
        return fail(-EPROTO, "barrier: another client uses the key %s", key);
    int64_t round = (count - 1) / world_size;
    if (count % world_size == 0) {
        if (round > 0) {
            (void)snprintf(done, sizeof(done), "%s/%" PRId64, key, round - 1);
            r = muster_store_delete(s, done, NULL);
            if (r < 0)
                return r;
        }
        (void)snprintf(done, sizeof(done), "%s/%" PRId64, key, round);
        return muster_store_set(s, done, "1", 1);
    }
    (void)snprintf(done, sizeof(done), "%s/%" PRId64, key, round);
    const char *keys[] = {done};
    return wait_keys(s, keys, 1, timeout_ms, "barrier");
}
