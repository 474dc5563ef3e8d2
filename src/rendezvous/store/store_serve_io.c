#include "rendezvous/store/store_serve_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/loop.h"
#include "io/net/listen.h"
#include "rendezvous/store/store_io.h"

#define LISTEN_FORM                                                                                \
    "--listen takes ADDR:PORT, with an address such as 127.0.0.1 or [::1], localhost, or nothing " \
    "for any address"

/* Whether this machine has that address at all: a kernel without IPv6 has no ::1. */
static bool can_listen(const struct addr *at) {
    struct addr any_port = *at;
    addr_set_port(&any_port, 0);
    int fd;
    if (listen_socket(&any_port, 1, &fd, NULL) < 0)
        return false;
    (void)close(fd);
    return true;
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
    char temporary[4096], text[8];
    int n = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return err_set(err, -ENAMETOOLONG, "cannot write %.200s…: the name is too long", path);
    size_t len = (size_t)snprintf(text, sizeof text, "%u\n", port);
    int r = 0;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(err, -errno, "cannot write %s: %s", temporary, strerror(errno));
    ssize_t written = write(fd, text, len);
    if (written != (ssize_t)len)
        r = written < 0 ? -errno : -EIO;
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    if (r < 0) {
        (void)unlink(temporary);
        return err_set(err, r, "cannot write %s: %s", path, strerror(-r));
    }
    return 0;
}

static void on_signal(void *arg, int signo) {
    (void)signo;
    loop_quit(arg);
}

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
    int fd;
    addr_set_port(&at, 0);
    if (config->any_user || listen_socket(&at, 1, &fd, NULL) < 0)
        return NULL; /* then the store can't listen either */
    if (peer_gate_new(fd, config->log, config->arg, &gate, &err) < 0) {
        (void)snprintf(
            line, sizeof line,
            "this machine's kernel does not say which user a connection belongs to (%s), "
            "so all its users can use the store; with --auth=none muster doesn't ask",
            err.text);
        config->log(config->arg, line);
    }
    (void)close(fd);
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
    struct loop_signal *handlers[ARRAY_SIZE(signals)] = {0};
    struct loop *loop;
    int r = loop_new(&loop);
    if (r < 0)
        return err_set(err, r, "cannot make an event loop: %s", strerror(-r));
    for (size_t i = 0; i < ARRAY_SIZE(signals) && r == 0; i++)
        r = loop_signal_new(loop, signals[i], on_signal, loop, &handlers[i]);
    if (r < 0)
        (void)err_set(err, r, "cannot handle signals: %s", strerror(-r));
    else
        r = serve_on(loop, config, err);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        loop_signal_free(handlers[i]);
    loop_free(loop);
    return r;
}
