/* What it costs that connections between nodes are authenticated and encrypted: many nodes connect to one at once, over
 * loopback, in two processes. Each sends a JOIN and gets a WELCOME (as long as those of a group of 100 nodes), then is
 * idle.
 *
 *     shaketime [CONNECTIONS]      prints a line without TLS and one with it, and the targets for 1,000
 *
 * "In all" also has what a process pays once: it loads OpenSSL, derives a key, and makes a context.
 *
 * Memory is that of the accepting process, from the kernel; it counts what malloc has kept from the storm, too. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "io/net/tls_psk.h"

#define JOIN_BYTES 700
#define WELCOME_BYTES 300
#define WALL_MAX_NS NS_PER_S
#define IDLE_MAX_KIB 24.0

struct result {
    uint64_t cpu_ns;
    double idle_kib, peak_kib; /* of each connection */
};

static struct loop *loop;
static struct tls_psk *psk;
static struct tls_key key;
static bool with_tls;
static unsigned wanted, answered, n_streams;
static struct stream **streams;

static uint64_t cpu_ns(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * NS_PER_S +
           ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * NS_PER_US;
}

/* A line of /proc/self/status, in KiB. */
static double memory_kib(const char *name) {
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtod(line + strlen(name), NULL);
    if (f != NULL)
        (void)fclose(f);
    return kib;
}

static void fail(const char *what, const char *why) {
    (void)fprintf(stderr, "shaketime: %s: %s\n", what, why);
    exit(1);
}

static const struct tls_key *find(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    (void)arg;
    return memcmp(id, key.id, sizeof key.id) == 0 ? &key : NULL;
}

/* --- the accepting side ------------------------------------------------------------------------------------------- */

static void on_join(void *arg, struct stream *s) {
    static const char welcome[WELCOME_BYTES];
    (void)arg;
    if (stream_available(s) < JOIN_BYTES)
        return;
    stream_drain(s, JOIN_BYTES);
    stream_write(s, welcome, sizeof welcome);
    answered++;
}

static void on_end(void *arg, struct stream *s, int code) {
    (void)arg;
    (void)s;
    if (code < 0)
        fail("a connection", stream_tls_why(s) != NULL ? stream_tls_why(s) : strerror(-code));
    loop_quit(loop);
}

static void on_accept(void *arg, int fd, const struct addr *from) {
    (void)arg;
    (void)from;
    static const struct stream_ops ops = {.on_readable = on_join, .on_closed = on_end};
    struct ssl_st *session;
    struct err err = {0};
    struct stream **s = &streams[n_streams++];
    if (n_streams > wanted)
        fail("accept", "too many");
    *s = stream_new(loop, fd, &ops, NULL);
    if (with_tls && tls_psk_accept(psk, &session, &err) < 0)
        fail("TLS", err.text);
    if (with_tls)
        stream_start_tls(*s, session);
    stream_read_soon(*s);
}

/* Serves until the other side ends a connection. */
static void serve(int listener, int result_fd) {
    (void)!listener_new(loop, listener, on_accept, NULL);
    double before = memory_kib("VmRSS:");
    uint64_t began = cpu_ns();
    if (loop_run(loop) < 0)
        fail("loop", strerror(errno));
    struct result r = {.cpu_ns = cpu_ns() - began, .peak_kib = (memory_kib("VmHWM:") - before) / wanted};
    (void)malloc_trim(0);
    r.idle_kib = (memory_kib("VmRSS:") - before) / wanted;
    if (write(result_fd, &r, sizeof r) != (ssize_t)sizeof r)
        fail("result", strerror(errno));
}

/* --- the connecting side ------------------------------------------------------------------------------------------ */

static void on_welcome(void *arg, struct stream *s) {
    (void)arg;
    if (stream_available(s) < WELCOME_BYTES)
        return;
    stream_drain(s, WELCOME_BYTES);
    if (++answered == wanted)
        loop_quit(loop);
}

static void connect_all(const struct addr *to) {
    static const struct stream_ops ops = {.on_readable = on_welcome, .on_closed = on_end};
    static const char join[JOIN_BYTES];
    struct err err = {0};
    for (unsigned i = 0; i < wanted; i++) {
        struct ssl_st *session;
        if (stream_connect(loop, NULL, to, &ops, NULL, &streams[i]) < 0)
            fail("connect", strerror(errno));
        if (with_tls && tls_psk_connect(psk, &key, &session, &err) < 0)
            fail("TLS", err.text);
        if (with_tls)
            stream_start_tls(streams[i], session);
        stream_write(streams[i], join, sizeof join);
    }
    if (loop_run(loop) < 0)
        fail("loop", strerror(errno));
}

/* Both processes begin here; returns the accepting one's result in the other. */
static struct result measure(bool tls, uint64_t *ret_wall_ns, uint64_t *ret_cpu_ns, uint64_t *ret_all_ns) {
    struct addr at;
    int listener, result[2];
    struct err err = {0};
    struct result r = {0};
    with_tls = tls;
    if (addr_from_literal("127.0.0.1", 0, &at) < 0 || listen_socket(&at, 4096, &listener, &err) < 0 ||
        addr_of_socket(listener, &at) < 0 || pipe(result) < 0)
        fail("listen", err.text);
    pid_t pid = fork();
    streams = xcalloc(wanted, sizeof *streams);
    uint8_t secret[TLS_SECRET_BYTES] = {1};
    uint64_t all = cpu_ns();
    if (loop_new(&loop) < 0 || (tls && tls_key_derive(secret, &key, &err) < 0))
        fail("set up", err.text);
    psk = tls ? tls_psk_new(find, NULL) : NULL;
    if (pid == 0) {
        serve(listener, result[1]);
        _exit(0);
    }
    uint64_t began = clock_now_ns(), cpu = cpu_ns();
    connect_all(&at);
    *ret_wall_ns = clock_now_ns() - began;
    *ret_cpu_ns = cpu_ns() - cpu;
    *ret_all_ns = cpu_ns() - all;
    for (unsigned i = 0; i < wanted; i++)
        stream_free(streams[i]);
    (void)close(listener);
    (void)close(result[1]);
    if (read(result[0], &r, sizeof r) != (ssize_t)sizeof r || waitpid(pid, NULL, 0) != pid)
        fail("the accepting side", "no result");
    (void)close(result[0]);
    free(streams);
    tls_psk_free(TAKE_PTR(psk));
    loop_free(TAKE_PTR(loop));
    answered = 0;
    return r;
}

static void show(bool tls, const struct result *r, uint64_t wall_ns, uint64_t cpu, uint64_t all) {
    printf(
        "%-6s %6u connections: %7.1f ms; CPU of one: accepting %5.0f us, connecting %5.0f us; KiB of one: idle %5.1f, "
        "peak %5.1f; CPU of the connecting process in all %.2f ms\n",
        tls ? "TLS" : "plain", wanted, (double)wall_ns / 1e6, (double)r->cpu_ns / 1e3 / wanted,
        (double)cpu / 1e3 / wanted, r->idle_kib, r->peak_kib, (double)all / 1e6);
    (void)fflush(stdout);
}

int main(int argc, char **argv) {
    struct rlimit files;
    struct result r = {0};
    uint64_t wall_ns = 0, cpu = 0, all = 0;
    wanted = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    tls_psk_alone(); /* as agents have it */
    for (int tls = 0; tls < 2; tls++) {
        r = measure(tls != 0, &wall_ns, &cpu, &all);
        show(tls != 0, &r, wall_ns, cpu, all);
    }
    if (wanted == 1000) {
        printf("target: 1,000 connections with TLS within 1 s: %s\n", wall_ns <= WALL_MAX_NS ? "ok" : "MISSED");
        printf("target: at most %.0f KiB of an idle one: %s\n", IDLE_MAX_KIB,
               r.idle_kib <= IDLE_MAX_KIB ? "ok" : "MISSED");
    }
    return 0;
}
