/* The store alone, until a signal ends it: what `muster store` runs. */
#pragma once

#include "base/err.h"
#include "io/net/addr.h"

struct store_serve_config {
    const char *listen;    /* as store_listen_parse() reads it */
    const char *port_file; /* NULL: none. Gets the port and a newline, whole or not at all */
    /* Once, when clients can connect: "127.0.0.1:29400". */
    int (*on_ready)(void *arg, const char *where);
    void (*log)(void *arg, const char *line); /* see store_server_config */
    void *arg;
};

/* Serves until SIGTERM or SIGINT: then 0. -EINVAL: `listen` is not of the form; other errors are
 * those of listening, of the port file, or what on_ready returned (below 0). */
_must_use_ int store_serve(const struct store_serve_config *config, struct err *err);

#define STORE_LISTEN_MAX 2
/* ADDR:PORT with ADDR a literal ("127.0.0.1", "[::1]"), "localhost" (both loopbacks, without a
 * look-up), or empty or "*" (any, both families); port 0 is a free one. */
_must_use_ int store_listen_parse(const char *text, struct addr ret_at[STORE_LISTEN_MAX],
                                  size_t *ret_n, struct err *err);
