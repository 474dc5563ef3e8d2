/* Raw clients for bench_store.py and bench_store_check.py: one process, epoll, no library.
 *
 *     storeload pipelined PORT CONNECTIONS TRIPLES DEPTH    each connection sends DEPTH times SET, WAIT, GET at once,
 *                                                           takes the replies, and again, TRIPLES times in all
 *     storeload storm PORT CLIENTS [ADDRESS]                all connect, VALIDATE and PING; then all WAIT for one key
 *                                                           and another client sets it, seven times
 *
 * Prints words and seconds: "ops N seconds S"; "connect S", and after a line on standard input "wake S", the median. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VALUE_BYTES 32
#define REPLY_BYTES (1 + 8 + VALUE_BYTES) /* of a triple */
#define EVENTS 512
#define WAKES 7

struct client {
    int fd;
    char *batch; /* the bytes that it sends each time */
    size_t batch_len, sent;
    size_t expected; /* reply bytes that are still expected */
    size_t replies;  /* reply bytes of a batch */
    uint64_t batches;
};

static int epoll_fd;
static const char *host = "127.0.0.1";

static void die(const char *what) {
    fprintf(stderr, "storeload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct sockaddr_in server_at(const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1)
        die("inet_pton");
    return at;
}

static int begin_connect(const struct sockaddr_in *at) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct linger reset = {1, 0}; /* leave no thousands of TIME_WAITs for the next run */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 && errno != EINPROGRESS)
        die("connect");
    return fd;
}

static size_t put_u64(char *to, uint64_t v) {
    memcpy(to, &v, 8);
    return 8;
}

static size_t put_str(char *to, const char *s, size_t len) {
    put_u64(to, len);
    memcpy(to + 8, s, len);
    return 8 + len;
}

static size_t put_hello(char *to) {
    static const char hello[] = "\x00\xce\xf7\x85\x3c\x0d\x39\x30\x00\x00";
    memcpy(to, hello, 10);
    return 10;
}

static size_t put_wait(char *to, const char *key) {
    to[0] = 6;
    put_u64(to + 1, 1);
    return 9 + put_str(to + 9, key, strlen(key));
}

static size_t put_triple(char *to, const char *key) {
    static const char value[VALUE_BYTES] = "thirty-two bytes make one value";
    size_t n = 0;
    to[n++] = 1;
    n += put_str(to + n, key, strlen(key));
    n += put_str(to + n, value, sizeof value);
    n += put_wait(to + n, key);
    to[n++] = 3;
    n += put_str(to + n, key, strlen(key));
    return n;
}

static void watch(struct client *c, int op, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, op, c->fd, &e) < 0)
        die("epoll_ctl");
}

/* Sends the rest of the batch. True: all of it is sent. */
static int push(struct client *c) {
    while (c->sent < c->batch_len) {
        ssize_t n = send(c->fd, c->batch + c->sent, c->batch_len - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN || errno == ENOTCONN)
                return 0;
            die("send");
        }
        c->sent += (size_t)n;
    }
    return 1;
}

/* Reads what has arrived. True: nothing more is expected. */
static int pull(struct client *c) {
    static char sink[65536];
    while (c->expected > 0) {
        ssize_t n = recv(c->fd, sink, sizeof sink, 0);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            die("recv");
        if ((size_t)n > c->expected) {
            errno = EPROTO;
            die("more bytes than asked for");
        }
        c->expected -= (size_t)n;
    }
    return 1;
}

/* Runs until `left` batches of all clients are answered. */
static void run(uint64_t left) {
    struct epoll_event events[EVENTS];
    while (left > 0) {
        int n = epoll_wait(epoll_fd, events, EVENTS, 60000);
        if (n == 0)
            errno = ETIMEDOUT;
        if (n <= 0)
            die("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT && push(c))
                watch(c, EPOLL_CTL_MOD, EPOLLIN);
            if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || !pull(c))
                continue;
            left--;
            if (c->batches > 1) {
                c->batches--;
                c->sent = 0;
                c->expected = c->replies;
                if (!push(c))
                    watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            }
        }
    }
}

static struct client *connect_all(const char *port, size_t n) {
    struct sockaddr_in at = server_at(port);
    struct client *clients = calloc(n, sizeof *clients);
    for (size_t i = 0; i < n; i++) {
        struct client *c = &clients[i];
        c->batch = malloc(128);
        c->batch_len = put_hello(c->batch);
        c->expected = 4;
        c->batches = 1;
        c->fd = begin_connect(&at);
        watch(c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
    }
    run(n);
    return clients;
}

static void pipelined(const char *port, size_t n, uint64_t triples, unsigned depth) {
    struct client *clients = connect_all(port, n);
    uint64_t batches = triples / depth / n;
    for (size_t i = 0; i < n; i++) {
        struct client *c = &clients[i];
        char key[32];
        snprintf(key, sizeof key, "/bench/key/%04zu", i);
        c->batch = realloc(c->batch, 256 * (size_t)depth);
        c->batch_len = c->sent = 0;
        for (unsigned j = 0; j < depth; j++)
            c->batch_len += put_triple(c->batch + c->batch_len, key);
        c->batches = batches;
        c->expected = c->replies = REPLY_BYTES * (size_t)depth;
    }
    double begin = now();
    for (size_t i = 0; i < n; i++)
        watch(&clients[i], EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    run(batches * n);
    printf("ops %llu seconds %.6f\n", (unsigned long long)(3 * batches * n * depth), now() - begin);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All wait for a key of this round; how long one SET takes to reach them. */
static double wake(struct client *clients, size_t n, struct client *setter, int round) {
    char key[32];
    snprintf(key, sizeof key, "/bench/go/%d", round);
    for (size_t i = 0; i < n; i++) {
        struct client *c = &clients[i];
        c->batch_len = put_wait(c->batch, key);
        c->batch[c->batch_len++] = 13; /* a PING: its answer shows that the WAIT was received */
        memcpy(c->batch + c->batch_len, "1234", 4);
        c->batch_len += 4;
        c->sent = 0;
        c->expected = 4;
        watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    }
    run(n);
    for (size_t i = 0; i < n; i++)
        clients[i].expected = 1;
    setter->batch[0] = 1;
    setter->batch_len = 1 + put_str(setter->batch + 1, key, strlen(key));
    setter->batch_len += put_str(setter->batch + setter->batch_len, "go", 2);
    setter->sent = 0;
    double begin = now();
    if (!push(setter))
        die("send");
    run(n);
    return now() - begin;
}

static void storm(const char *port, size_t n) {
    double begin = now(), took[WAKES];
    struct client *clients = connect_all(port, n);
    double connected = now() - begin;
    struct client *setter = connect_all(port, 1);
    printf("connect %.6f\n", connected);
    fflush(stdout);
    if (getchar() == EOF) /* the caller reads the server's CPU time */
        return;
    for (int i = 0; i < WAKES; i++)
        took[i] = wake(clients, n, setter, i);
    qsort(took, WAKES, sizeof took[0], by_size);
    printf("wake %.6f\n", took[WAKES / 2]);
}

int main(int argc, char **argv) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (argc == 6 && strcmp(argv[1], "pipelined") == 0) {
        pipelined(argv[2], (size_t)atol(argv[3]), (uint64_t)atoll(argv[4]), (unsigned)atoi(argv[5]));
    } else if ((argc == 4 || argc == 5) && strcmp(argv[1], "storm") == 0) {
        host = argc == 5 ? argv[4] : host;
        storm(argv[2], (size_t)atol(argv[3]));
    } else {
        fputs("usage: storeload pipelined PORT CONNECTIONS TRIPLES DEPTH | storm PORT CLIENTS [ADDRESS]\n", stderr);
        return 2;
    }
    return 0;
}
