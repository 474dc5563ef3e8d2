/* Runs the store alone, until a signal ends it, for `muster store`. */
#pragma once

#include "base/err.h"
#include "io/net/addr.h"

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
