/* A small HTTP/1.1 client on the loop: one origin, one request at a time, on a connection that is
 * kept between them. With TLS if wanted (io/tls). Built on libevent's evhttp.
 *
 *     struct http_config config = {.host = "etcd1", .port = 2379, .max_body = 1 << 20};
 *     r = http_client_new(loop, &config, &client, &err);
 *     http_ask(client, &(struct http_request){.path = "/x", .body = text, .len = n,
 *                                             .timeout_ns = 2 * NS_PER_S}, on_answer, me);
 *
 * Host names are looked up in a child process (io/resolve) for every new connection, and their
 * addresses are tried in turn. Redirects are answers like any other. Nothing blocks. The process
 * has to ignore SIGPIPE. A request may reach the server twice: it may close a kept connection at
 * any moment, and then the request is sent again on a new one. So that must do no harm. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/loop.h"

struct http_client;
struct tls_client;

struct http_config {
    const char *host; /* a name or a literal address; copied */
    uint16_t port;
    struct tls_client *tls; /* borrowed; NULL: without TLS */
    size_t max_body;        /* bytes of an answer; a longer one is an error */
};

struct http_request {
    const char *path;          /* "/v3/kv/txn" */
    const char *authorization; /* value of that header, or NULL */
    const char *body;          /* JSON, sent with POST; NULL: GET */
    size_t len;
    uint64_t timeout_ns; /* for everything: look-up, connection, answer */
};

struct http_answer {
    int status;       /* of HTTP; 0: there was no answer; `text` has the reason */
    const char *body; /* NUL-terminated; borrowed until the callback returns */
    size_t len;
    int code;         /* status 0: -ETIMEDOUT, -ECONNREFUSED, -EPROTO, … */
    const char *text; /* status 0: "cannot connect to 10.0.0.1:2379: Connection refused" */
};

/* Called from the loop, never from inside http_ask(). May ask again, or free the client. */
typedef void http_answer_fn(void *arg, const struct http_answer *answer);

/* Connects to nothing yet. -ELIBACC: a library is missing; -EINVAL: the host. */
_must_use_ int http_client_new(struct loop *loop, const struct http_config *config,
                               struct http_client **ret, struct err *err);
/* A request under way is never answered. NULL is fine. */
void http_client_free(struct http_client *c);
/* Copies the request. None may be under way. */
void http_ask(struct http_client *c, const struct http_request *request, http_answer_fn *fn,
              void *arg);
bool http_busy(const struct http_client *c);
/* Gives the request up, and its connection. */
void http_cancel(struct http_client *c);
