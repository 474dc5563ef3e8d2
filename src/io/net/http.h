/* A small HTTP/1.1 client on the loop: one origin, and one request at a time, on a connection that
 * stays open between requests. It can use TLS (tls.h). It is built on libevent's evhttp: a parser
 * of our own would be shorter, but HTTP is not what muster exists for.
 *
 *     struct http_config config = {.host = "etcd1", .port = 2379, .max_body = 1 << 20};
 *     r = http_client_new(loop, &config, &client, &err);
 *     http_ask(client, &(struct http_request){.path = "/x", .body = text, .len = n,
 *                                             .timeout_ns = 2 * NS_PER_S}, on_answer, me);
 *
 * Host names are looked up in a child process (resolver.h) for every new connection, and their
 * addresses are tried in turn. Redirects are answers like any other. Nothing blocks. The process
 * must ignore SIGPIPE. A request can reach the server twice: if the server closes an idle
 * connection, it is sent again on a new one. So use only requests for which this does no harm. */
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
    size_t max_body;        /* the most bytes of an answer; a longer one is an error */
};

struct http_request {
    const char *path;          /* "/v3/kv/txn" */
    const char *authorization; /* value of the Authorization header, or NULL */
    const char *body;          /* JSON, sent with POST; NULL: GET */
    size_t len;
    uint64_t timeout_ns; /* for the whole request: look-up, connection, answer */
};

struct http_answer {
    int status;       /* the HTTP status; 0: there was no answer, and `text` has the reason */
    const char *body; /* NUL-terminated; borrowed until the callback returns */
    size_t len;
    /* status 0: "Connection refused"; of a host name with each address that was tried:
     * "10.0.0.1:2379: Connection refused; [fd00::1]:2379: no answer in time" */
    const char *text;
};

/* Called from the loop, never from inside http_ask(). It can ask again, or free the client. */
typedef void http_answer_fn(void *arg, const struct http_answer *answer);

/* Does not connect yet. -ELIBACC: a library is missing; -EINVAL: the host is not valid. */
_must_use_ int http_client_new(struct loop *loop, const struct http_config *config,
                               struct http_client **ret, struct err *err);
/* If a request is running, its callback is not called. Takes NULL. */
void http_client_free(struct http_client *c);
/* Copies the request. No other request of this client may be running. */
void http_ask(struct http_client *c, const struct http_request *request, http_answer_fn *fn,
              void *arg);
/* Cancels the request, and closes its connection. */
void http_cancel(struct http_client *c);
