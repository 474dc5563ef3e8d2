/* The store on the network: listeners and connections on the loop, around one `store` each.
 *
 *     r = store_server_new(loop, &config, &server, &err);
 *     store_server_addr(server, 0, &addr);      the real port
 *     store_server_close(server);               ends all connections, in the turns that follow
 *
 * Several servers can run on one loop, one for each generation. The protocol is plain TCP; the gate
 * keeps other users of this machine away, the guard those of other machines. A connection that does
 * not begin with VALIDATE is closed without a message; one that exceeds a limit, with one line.
 * Without free descriptors the server stops accepting, and continues by itself. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "io/net/addr.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/store_guard_io.h"

struct store_serve_config {
    const char *listen;    /* as store_listen_parse() reads it */
    bool any_user;         /* of this machine may connect, not only this one and root */
    const char *port_file; /* NULL: none. The port and a newline are written to it, atomically */
    /* Called once, when clients can connect, with "127.0.0.1:29400". */
    int (*on_ready)(void *arg, const char *where);
    void (*log)(void *arg, const char *line); /* see store_server_config */
    void *arg;
};

/* Serves until SIGTERM or SIGINT, then returns 0. -EINVAL: `listen` has the wrong form. Other
 * errors come from listening, from the port file, or from on_ready (below 0). */
_must_use_ int store_serve(const struct store_serve_config *config, struct err *err);

#define STORE_LISTEN_MAX 2
/* ADDR:PORT with ADDR a literal ("127.0.0.1", "[::1]"), "localhost" (both loopbacks, without a
 * look-up), or empty or "*" (any address, both families). Port 0: a free port. */
_must_use_ int store_listen_parse(const char *text, struct addr ret_at[STORE_LISTEN_MAX],
                                  size_t *ret_n, struct err *err);

struct store_server;

struct store_server_config {
    const struct addr *listen_at; /* borrowed for the call; all with port 0 share a free one */
    size_t n_listen_at;           /* 0: it serves only what store_server_adopt() is given */
    struct peer_gate *gate; /* borrowed; judges without a guard. NULL: any client may connect */
    /* borrowed; judges who connects or is adopted, until store_server_close(). May be NULL */
    struct store_guard *guard;
    struct store_limits limits; /* STORE_LIMITS_DEFAULT, store_limits_of_machine() */
    /* One line for a peer that exceeded a limit. May be NULL. Must not close the server. */
    void (*log)(void *arg, const char *line);
    void *log_arg;
};

_must_use_ int store_server_new(struct loop *loop, const struct store_server_config *config,
                                struct store_server **ret, struct err *err);
/* Serves a connection from its first byte on, if the guard admits it (the gate was asked before).
 * Takes ownership of fd; closes it if the store is full or closed. */
void store_server_adopt(struct store_server *server, int fd);
size_t store_server_n_addrs(const struct store_server *server);
/* The actual address of its i-th listener. */
_must_use_ int store_server_addr(const struct store_server *server, size_t i, struct addr *ret);
size_t store_server_connections(const struct store_server *server);
/* Stops listening at once. The rest is freed in slices of the next turns. NULL is fine. */
void store_server_close(struct store_server *server);

/* The defaults, within a quarter of this machine's memory, or of what its cgroup may use. */
struct store_limits store_limits_of_machine(void);
/* Raises RLIMIT_NOFILE to its hard limit, and returns the current limit. Children inherit it. */
uint64_t store_raise_descriptors(void);
