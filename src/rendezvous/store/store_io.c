#include "rendezvous/store/store_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "rendezvous/store/tcpstore_wire.h"

/* The kernel limits it to net.core.somaxconn. */
#define BACKLOG 65535
/* Requests, and keys that are freed, between two checks of the clock. */
#define LOOK_EVERY 64
/* Descriptors that are reserved for everything except clients. */
#define DESCRIPTORS_KEPT 64
/* Larger values are sent from their own memory instead of being copied. */
#define COPY_MAX 2048
#define STAGE_SIZE 16384
#define PORT_TRIES 16

struct store_conn {
    struct store_client client;
    struct list all;  /* connections of the server */
    struct list link; /* unvalidated connections, in order of arrival */
    struct store_server *server;
    struct stream *stream;
    uint64_t deadline_ns; /* for VALIDATE */
    uint64_t held;        /* the bytes that the store counts for the current request */
    struct tcpstore_decoder decoder;
};

struct store_server {
    struct loop *loop;
    struct store *store;
    struct store_server_config config; /* guard and log are NULL once it is closed */

    struct listener **listeners;
    size_t n_listeners;
    bool listening_paused;
    bool closing; /* store_server_close(): frees itself, in slices */
    bool torchrun_seen;

    struct list conns, unvalidated;
    size_t n_conns, max_conns;
    struct loop_timer *timer; /* for the first of them */

    struct tcpstore_scratch scratch;
    struct store_update update;
    struct store_conn *target; /* the connection to which the sink writes */
    struct store_conn *staged; /* the connection whose small replies are in the stage */
    size_t stage_len;
    uint8_t stage[STAGE_SIZE];
};

static void flush_stage(struct store_server *server) {
    if (server->stage_len > 0)
        stream_write_now(server->staged->stream, server->stage, server->stage_len);
    server->stage_len = 0;
}

static void sink_bytes(void *arg, const void *data, size_t len) {
    struct store_server *server = arg;
    if (server->target != server->staged) {
        /* The end of another client's wait. Sent at once, thousands of these replies are read while
         * others are still being sent. */
        if (loop_slice_is_over(server->loop))
            stream_write(server->target->stream, data, len);
        else
            stream_write_now(server->target->stream, data, len);
        return;
    }
    if (len > STAGE_SIZE - server->stage_len)
        flush_stage(server);
    memcpy(server->stage + server->stage_len, data, len);
    server->stage_len += len;
}

static void on_value_sent(void *arg) { store_value_unref(arg); }

static void sink_value(void *arg, struct store_value *v) {
    struct store_server *server = arg;
    if (v->len <= COPY_MAX) {
        sink_bytes(arg, v->data, v->len);
        return;
    }
    if (server->target == server->staged && server->stage_len > 0) {
        stream_write(server->staged->stream, server->stage, server->stage_len);
        server->stage_len = 0;
    }
    stream_write_ref(server->target->stream, v->data, v->len, on_value_sent, store_value_ref(v));
}

static void deliver(struct store_server *server) {
    const struct tcpstore_sink sink = {sink_bytes, sink_value, server};
    const struct store_update *u = &server->update;
    for (size_t i = 0; i < u->n_replies; i++) {
        server->target = CONTAINER_OF(u->replies[i].client, struct store_conn, client);
        tcpstore_encode(&u->replies[i], u, &sink);
    }
    store_update_clear(&server->update);
}

/* --- connections --------------------------------------------------------------------------- */

static void resume_listening(struct store_server *server) {
    if (!server->listening_paused)
        return;
    server->listening_paused = false;
    for (size_t i = 0; i < server->n_listeners; i++)
        listener_retry(server->listeners[i]);
}

/* Frees c. */
static void conn_close(struct store_conn *c) {
    struct store_server *server = c->server;
    if (server->staged == c) {
        server->staged = NULL;
        server->stage_len = 0;
    }
    store_release(server->store, c->held);
    store_forget(server->store, &c->client, &server->update);
    deliver(server);
    server->n_conns--;
    list_remove(&c->all);
    list_remove(&c->link);
    tcpstore_decoder_fini(&c->decoder);
    stream_free(c->stream);
    free(c);
    resume_listening(server);
}

static void log_refused(const struct store_conn *c, const char *why, uint64_t size) {
    struct addr peer;
    char text[ADDR_TEXT_MAX] = "a peer", line[256];
    if (addr_of_peer(stream_fd(c->stream), &peer) == 0)
        addr_to_text(&peer, text);
    (void)snprintf(line, sizeof line, "store: closed the connection of %s: %s: %s (%" PRIu64 ")",
                   text, store_op_name(c->decoder.op), why, size);
    if (!c->decoder.validated)
        log_debug("%s", line);
    else if (c->server->config.log != NULL)
        c->server->config.log(c->server->config.log_arg, line);
}

/* torchrun's agent begins with one of these keys (c10d_rendezvous_backend.py,
 * agent/server/api.py). */
static bool is_torchruns(const struct store_request *req) {
    static const char dynamic[] = "/torch.rendezvous.", fixed[] = "/torchelastic/role_info/";
    const struct store_span *key = &req->keys[0];
    if (req->op == STORE_OP_COMPARE_SET)
        return key->len >= sizeof dynamic - 1 &&
               memcmp(key->data, dynamic, sizeof dynamic - 1) == 0;
    return req->op == STORE_OP_SET && memmem(key->data, key->len, fixed, sizeof fixed - 1) != NULL;
}

static void look_for_torchrun(struct store_conn *c, const struct store_request *req) {
    struct store_server *server = c->server;
    struct addr peer;
    char text[ADDR_TEXT_MAX] = "?", line[256];
    if (server->torchrun_seen || server->config.log == NULL || !is_torchruns(req))
        return;
    server->torchrun_seen = true;
    if (addr_of_peer(stream_fd(c->stream), &peer) == 0)
        addr_host_text(&peer, text);
    (void)snprintf(line, sizeof line,
                   "torchrun was started at %s with the endpoint of this job, and waits: start "
                   "muster run there instead",
                   text);
    server->config.log(server->config.log_arg, line);
}

/* Counts the bytes that the current request holds together with the store's bytes. */
static bool count_held(struct store_conn *c) {
    struct store *store = c->server->store;
    uint64_t now = c->decoder.held;
    if (now < c->held)
        store_release(store, c->held - now);
    else if (!store_hold(store, now - c->held))
        return false;
    c->held = now;
    return true;
}

static int handle_request(struct store_conn *c, struct store_request *req) {
    struct store_server *server = c->server;
    store_release(server->store, c->held); /* from here on the store counts it itself */
    c->held = 0;
    req->client = &c->client;
    look_for_torchrun(c, req);
    int r = store_step(server->store, req, &server->update);
    if (r == 0) {
        deliver(server);
        return 0;
    }
    log_refused(c, r == STORE_REFUSED ? server->update.refusal : "out of memory",
                server->update.size);
    store_update_clear(&server->update);
    return r;
}

static bool is_full(const struct store_conn *c) {
    return stream_unsent(c->stream) + c->server->stage_len > c->server->config.limits.unsent_bytes;
}

static void mark_validated(struct store_conn *c) {
    if (c->decoder.validated && list_linked(&c->link))
        list_remove(&c->link);
}

/* Handles the requests in a sequence of bytes. Not 0: close the connection. */
static int serve_run(struct store_conn *c, const uint8_t *data, size_t len, size_t *ret_used) {
    struct store_server *server = c->server;
    size_t used = 0;
    unsigned served = 0;
    int r = 0;
    do {
        struct store_request req;
        size_t n;
        r = tcpstore_decode(&c->decoder, &server->config.limits, &server->scratch, data + used,
                            len - used, &n, &req);
        used += n;
        if (r == TCPSTORE_REQUEST) {
            r = handle_request(c, &req);
        } else if (r != 0) {
            log_refused(c, r == TCPSTORE_REFUSED ? c->decoder.refusal : "out of memory",
                        c->decoder.size);
        } else if (!count_held(c)) {
            log_refused(c, "the store is full", c->decoder.held);
            r = STORE_REFUSED;
        }
    } while (r == 0 && used < len && !is_full(c) &&
             (++served % LOOK_EVERY != 0 || !loop_slice_is_over(server->loop)));
    *ret_used = used;
    return r;
}

static void on_readable(void *arg, struct stream *s) {
    struct store_conn *c = arg;
    struct store_server *server = c->server;
    int r = 0;
    bool more = !server->closing;
    server->staged = c;
    while (more && r == 0 && !is_full(c)) {
        size_t len, used;
        const uint8_t *data = stream_peek_run(s, &len);
        if (len == 0)
            break;
        r = serve_run(c, data, len, &used);
        stream_drain(s, used);
        flush_stage(server);
        more = !loop_slice_is_over(server->loop);
    }
    server->staged = NULL;
    if (r != 0) {
        conn_close(c);
        return;
    }
    mark_validated(c);
    if (is_full(c))
        stream_pause(s); /* until it has read its replies: on_drained() */
    else if (!more && stream_available(s) > 0)
        stream_read_later(s);
}

static void on_drained(void *arg, struct stream *s) { stream_resume(s); }

static void on_closed(void *arg, struct stream *s, int code) { conn_close(arg); }

static void arm_timer(struct store_server *server) {
    const struct store_conn *first = LIST_FIRST(struct store_conn, &server->unvalidated, link);
    loop_timer_set(server->timer, first != NULL ? first->deadline_ns : TIME_NEVER);
}

static void on_timer(void *arg) {
    struct store_server *server = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct store_conn, c, &server->unvalidated, link) {
        if (c->deadline_ns > now || loop_slice_is_over(server->loop))
            break;
        log_debug("store: closed a connection that sent no known request");
        conn_close(c);
    }
    arm_timer(server);
}

static size_t connections_max(const struct store_limits *limits) {
    if (limits->connections != 0)
        return limits->connections;
    return MAX2(file_limit(), 2 * (size_t)DESCRIPTORS_KEPT) - DESCRIPTORS_KEPT;
}

static void serve_client(struct store_server *server, int fd) {
    static const struct stream_ops ops = {on_readable, on_drained, on_closed};
    struct store_conn *c = xcalloc(1, sizeof *c);
    c->stream = stream_new(server->loop, fd, &ops, c);
    c->server = server;
    list_append(&server->conns, &c->all);
    server->n_conns++;
    c->deadline_ns = clock_now_ns() + server->config.limits.validate_ns;
    bool first = list_empty(&server->unvalidated);
    list_append(&server->unvalidated, &c->link);
    if (first)
        arm_timer(server);
    if (server->n_conns >= server->max_conns && server->n_listeners > 0) {
        server->listening_paused = true; /* until a connection ends */
        for (size_t i = 0; i < server->n_listeners; i++)
            listener_pause(server->listeners[i]);
    }
}

static void let_in(void *arg, int fd) {
    struct store_server *server = arg;
    if (server->closing || server->n_conns >= server->max_conns)
        (void)close(fd);
    else
        serve_client(server, fd);
}

static void on_accepted(void *arg, int fd, const struct addr *peer) {
    struct store_server *server = arg;
    if (server->config.guard != NULL)
        store_guard_take(server->config.guard, fd, peer, let_in, server);
    else if (peer_gate_admits(server->config.gate, fd, peer))
        let_in(server, fd);
    else
        (void)close(fd);
}

void store_server_adopt(struct store_server *server, int fd) {
    struct addr peer;
    if (server->config.guard == NULL)
        let_in(server, fd);
    else if (addr_of_peer(fd, &peer) == 0)
        store_guard_take(server->config.guard, fd, &peer, let_in, server);
    else
        (void)close(fd); /* it has ended */
}

/* --- the server ---------------------------------------------------------------------------- */

static int listen_one(struct store_server *server, struct addr at, struct err *err) {
    int fd;
    int r = listen_socket(&at, BACKLOG, &fd, err);
    if (r < 0)
        return r;
    server->listeners[server->n_listeners++] = listener_new(server->loop, fd, on_accepted, server);
    return 0;
}

/* Listens on all addresses; those with port 0 share the port that the first of them gets. */
static int listen_all(struct store_server *server, const struct store_server_config *config,
                      struct err *err) {
    uint16_t shared = 0;
    for (size_t i = 0; i < config->n_listen_at; i++) {
        struct addr at = config->listen_at[i];
        bool any = addr_port(&at) == 0;
        if (any)
            addr_set_port(&at, shared);
        int r = listen_one(server, at, err);
        if (r < 0)
            return r;
        if (any && shared == 0) {
            r = listener_addr(server->listeners[i], &at);
            if (r < 0)
                return err_set(err, r, "cannot find the port of a socket: %s", strerror(-r));
            shared = addr_port(&at);
        }
    }
    return 0;
}

static void stop_listening(struct store_server *server) {
    for (size_t i = 0; i < server->n_listeners; i++)
        listener_free(server->listeners[i]);
    server->n_listeners = 0;
}

int store_server_new(struct loop *loop, const struct store_server_config *config,
                     struct store_server **ret, struct err *err) {
    struct store_server *server = xcalloc(1, sizeof *server);
    server->loop = loop;
    server->config = *config;
    server->max_conns = connections_max(&config->limits);
    list_init(&server->conns);
    list_init(&server->unvalidated);
    server->listeners = xcalloc(MAX2(config->n_listen_at, (size_t)1), sizeof(struct listener *));
    server->store = store_new(&config->limits, random_u64());
    tcpstore_scratch_init(&server->scratch, &config->limits);
    server->timer = loop_timer_new(loop, on_timer, server);
    int r = 0;
    for (int i = 0; r == 0 && i < PORT_TRIES; i++) {
        /* A port that is free on one address may be in use on another: then try another port. */
        r = listen_all(server, config, err);
        if (r != -EADDRINUSE || config->n_listen_at < 2 || addr_port(&config->listen_at[0]) != 0)
            break;
        stop_listening(server);
        r = i + 1 < PORT_TRIES ? 0 : r;
    }
    if (r < 0)
        store_server_close(server);
    else
        *ret = server;
    return r;
}

size_t store_server_n_addrs(const struct store_server *server) { return server->n_listeners; }

int store_server_addr(const struct store_server *server, size_t i, struct addr *ret) {
    return i < server->n_listeners ? listener_addr(server->listeners[i], ret) : -EINVAL;
}

size_t store_server_connections(const struct store_server *server) { return server->n_conns; }

/* Closes in slices, as a store can have thousands of clients and millions of keys. */
static void close_some(void *arg) {
    struct store_server *server = arg;
    bool done = false;
    while (!done && !loop_slice_is_over(server->loop)) {
        struct store_conn *c = LIST_FIRST(struct store_conn, &server->conns, all);
        if (c != NULL)
            conn_close(c);
        else
            done = store_free_some(server->store, LOOK_EVERY);
    }
    if (!done) {
        loop_defer(server->loop, LOOP_PRIO_BULK, close_some, server);
        return;
    }
    store_update_fini(&server->update);
    tcpstore_scratch_fini(&server->scratch);
    loop_timer_free(server->timer);
    free(server->listeners);
    free(server);
}

void store_server_close(struct store_server *server) {
    if (server == NULL)
        return;
    stop_listening(server);
    if (server->config.guard != NULL)
        store_guard_forget(TAKE_PTR(server->config.guard), server);
    server->closing = true;
    server->config.log = NULL;
    loop_timer_set(server->timer, TIME_NEVER);
    loop_defer(server->loop, LOOP_PRIO_BULK, close_some, server);
}

static uint64_t number_in(const char *path) {
    char text[24] = "";
    uint64_t n;
    (void)!file_read_head(AT_FDCWD, path, text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    return parse_u64(text, &n) == 0 ? n : UINT64_MAX; /* "max" */
}

/* The smallest limit from the cgroup's folder up to the root of its tree. */
static uint64_t limit_upwards(const char *root, char *group, const char *file) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        char path[4096 + 64];
        (void)snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        const uint64_t limit = number_in(path);
        least = MIN2(least, limit);
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static uint64_t cgroup_memory(void) {
    uint64_t least = UINT64_MAX;
    char line[4096];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL)
        return least;
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        uint64_t limit = UINT64_MAX;
        if (controllers[1] == '\0')
            limit = limit_upwards("/sys/fs/cgroup", group, "memory.max");
        else if (strcmp(controllers + 1, "memory") == 0)
            limit = limit_upwards("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        least = MIN2(least, limit);
    }
    (void)fclose(f);
    return least;
}

struct store_limits store_limits_of_machine(void) {
    struct store_limits limits = STORE_LIMITS_DEFAULT;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    const uint64_t limit = cgroup_memory();
    memory = MIN2(memory, limit);
    limits.store_bytes = MIN2(limits.store_bytes, memory / 4);
    return limits;
}

uint64_t store_raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    return limit.rlim_cur;
}

#define LISTEN_FORM                                                                                \
    "--listen takes ADDR:PORT, with an address such as 127.0.0.1 or [::1], localhost, or nothing " \
    "for any address"

/* A kernel without IPv6 has no ::1. */
static bool can_listen(const struct addr *at) {
    struct addr any_port = *at;
    addr_set_port(&any_port, 0);
    _cleanup_(file_close) int fd = -1;
    return listen_socket(&any_port, 1, &fd, NULL) == 0;
}

int store_listen_parse(const char *text, struct addr ret_at[STORE_LISTEN_MAX], size_t *ret_n,
                       struct err *err) {
    char host[ADDR_TEXT_MAX];
    uint16_t port;
    const char *colon = strrchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    if (colon == NULL || len >= sizeof host)
        return err_set(err, -EINVAL, "\"%s\": " LISTEN_FORM, text);
    if (parse_port(colon + 1, &port) < 0)
        return err_set(err, -EINVAL, "\"%s\": \"%s\" is not a port (0 to 65535)", text, colon + 1);
    memcpy(host, text, len);
    host[len] = '\0';
    *ret_n = 1;
    if (len == 0 || strcmp(host, "*") == 0)
        return addr_from_literal("::", port, &ret_at[0]);
    if (strcmp(host, "localhost") == 0) {
        int r = addr_from_literal("127.0.0.1", port, &ret_at[0]);
        if (r == 0 && addr_from_literal("::1", port, &ret_at[1]) == 0 && can_listen(&ret_at[1]))
            *ret_n = 2;
        return r;
    }
    /* "::1:80" could be an address without a port, so IPv6 needs brackets here. */
    if ((strchr(host, ':') != NULL && host[0] != '[') ||
        addr_from_literal(host, port, &ret_at[0]) < 0)
        return err_set(err, -EINVAL, "\"%s\": " LISTEN_FORM, text);
    return 0;
}

static int write_port_file(const char *path, uint16_t port, struct err *err) {
    char text[8];
    size_t len = (size_t)snprintf(text, sizeof text, "%u\n", port);
    int r = file_write_atomic(path, text, len);
    return r < 0 ? err_set(err, r, "cannot write %s: %s", path, strerror(-r)) : 0;
}

static void on_signal(void *arg, int signo) { loop_quit(arg); }

/* Reports where a person can connect: the name that was given, with the actual port. */
static int print_ready(const struct store_serve_config *config, const struct store_server *server,
                       struct err *err) {
    struct addr at;
    char where[ADDR_TEXT_MAX];
    int r = store_server_addr(server, 0, &at);
    if (r < 0)
        return err_set(err, r, "cannot find the port of a socket: %s", strerror(-r));
    if (store_server_n_addrs(server) > 1)
        (void)snprintf(where, sizeof where, "localhost:%u", addr_port(&at));
    else
        addr_to_text(&at, where);
    if (config->port_file != NULL) {
        r = write_port_file(config->port_file, addr_port(&at), err);
        if (r < 0)
            return r;
    }
    r = config->on_ready(config->arg, where);
    return r < 0 ? err_set(err, r, "cannot print where the store listens") : 0;
}

/* Asks about a listening socket that is only made for it. NULL: everybody may connect. */
static struct peer_gate *make_gate(const struct store_serve_config *config, struct addr at) {
    struct peer_gate *gate = NULL;
    struct err err = {0};
    char line[ERR_TEXT_MAX + 192];
    _cleanup_(file_close) int fd = -1;
    addr_set_port(&at, 0);
    if (config->any_user || listen_socket(&at, 1, &fd, NULL) < 0)
        return NULL; /* then the store can't listen either */
    if (peer_gate_new(fd, config->log, config->arg, &gate, &err) < 0) {
        (void)snprintf(
            line, sizeof line,
            "this machine's kernel does not report the user of a connection (%s), so all "
            "its users can use the store; --auth=none turns this check off",
            err.text);
        config->log(config->arg, line);
    }
    return gate;
}

static int serve_on(struct loop *loop, const struct store_serve_config *config, struct err *err) {
    struct addr at[STORE_LISTEN_MAX];
    struct store_server_config server_config = {.listen_at = at,
                                                .limits = store_limits_of_machine(),
                                                .log = config->log,
                                                .log_arg = config->arg};
    struct store_server *server;
    int r = store_listen_parse(config->listen, at, &server_config.n_listen_at, err);
    if (r < 0)
        return r;
    (void)store_raise_descriptors(); /* if it fails, there can be fewer connections */
    server_config.gate = make_gate(config, at[0]);
    r = store_server_new(loop, &server_config, &server, err);
    if (r < 0) {
        peer_gate_free(server_config.gate);
        return r;
    }
    r = print_ready(config, server, err);
    if (r == 0) {
        r = loop_run(loop);
        if (r < 0)
            (void)err_set(err, r, "waiting for events failed: %s", strerror(-r));
    }
    store_server_close(server);
    peer_gate_free(server_config.gate);
    return r;
}

int store_serve(const struct store_serve_config *config, struct err *err) {
    static const int signals[] = {SIGTERM, SIGINT};
    struct loop_signal *handlers[ARRAY_SIZE(signals)];
    _cleanup_(loop_freep) struct loop *loop = NULL;
    int r = loop_new(&loop);
    if (r < 0)
        return err_set(err, r, "cannot make an event loop: %s", strerror(-r));
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        handlers[i] = loop_signal_new(loop, signals[i], on_signal, loop);
    r = serve_on(loop, config, err);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        loop_signal_free(handlers[i]);
    return r;
}
