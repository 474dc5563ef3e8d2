#include "io/net/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/net/http_text.h"
#include "io/net/resolver.h"
#include "io/net/stream.h"
#include "io/net/tls.h"

enum http_state { HTTP_IDLE = 1, HTTP_LOOKING_UP, HTTP_ASKING, HTTP_DONE };

struct http_client {
    struct loop *loop;
    struct tls_client *tls;
    char *host, *origin; /* origin: value of the Host header */
    uint16_t port;
    bool is_literal; /* host is an address */
    size_t max_body;
    enum http_state state;
    struct loop_timer *timer; /* DONE: fires at once; else the end of the attempt */
    struct resolve *resolve;  /* LOOKING_UP */
    struct stream *stream;    /* ASKING, or idle and open */
    bool used;                /* an answer has come on it */

    /* the request */
    http_answer_fn *fn;
    void *arg;
    struct strbuf request;
    uint64_t timeout_ns, deadline_ns;
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n_addrs, next_addr;
    struct err failure; /* why the addresses tried so far failed */

    /* its answer */
    struct strbuf in; /* as it comes */
    int status;
    struct strbuf body;
};

/* --- a request -------------------------------------------------------------------------------- */

static void drop_stream(struct http_client *c) {
    stream_free(TAKE_PTR(c->stream));
    strbuf_clear(&c->in);
}

static void forget_request(struct http_client *c) {
    resolve_free(TAKE_PTR(c->resolve));
    strbuf_clear(&c->request);
    loop_timer_set(c->timer, TIME_NEVER);
    c->state = HTTP_IDLE;
}

/* The timer reports the answer from the loop, so no function of this file is on the stack. */
static void done(struct http_client *c) {
    c->state = HTTP_DONE;
    loop_timer_set(c->timer, 0);
}

static void done_failed(struct http_client *c) {
    c->status = 0;
    if (c->failure.text[0] == '\0')
        (void)err_set(&c->failure, -ETIMEDOUT, "no answer in time");
    done(c);
}

static void report(struct http_client *c) {
    http_answer_fn *fn = c->fn;
    void *arg = c->arg;
    struct err failure = c->failure;
    size_t len = c->body.len;
    _cleanup_(freep) char *body = strbuf_take(&c->body);
    struct http_answer a = {.status = c->status};
    if (a.status != 0) {
        a.body = body;
        a.len = len;
    } else {
        a.code = failure.code;
        a.text = failure.text;
    }
    forget_request(c);
    fn(arg, &a);
}

static void try_next_address(struct http_client *c);

/* The attempt at the current address failed, with `code` and `why`. */
static void attempt_failed(struct http_client *c, int code, const char *why) {
    char to[ADDR_TEXT_MAX], before[ERR_TEXT_MAX];
    addr_to_text(&c->addrs[c->next_addr - 1], to);
    memcpy(before, c->failure.text, sizeof before);
    if (c->is_literal)
        (void)err_set(&c->failure, code, "%s", why);
    else
        (void)err_set(&c->failure, code, "%s%s%s: %s", before, before[0] != '\0' ? "; " : "", to,
                      why);
    drop_stream(c);
    try_next_address(c);
}

static void look_up(struct http_client *c);

static void look_up(struct http_client *c);

static void take_answer(struct http_client *c, bool ended) {
    struct http_text answer;
    struct err err = {0};
    int r =
        http_text_read(strbuf_text(&c->in), c->in.len, ended, c->max_body, &answer, &c->body, &err);
    if (r < 0)
        attempt_failed(c, r, err.text);
    if (r != 0)
        return;
    c->status = answer.status;
    c->used = true;
    strbuf_clear(&c->in);
    if (!answer.stays_open)
        drop_stream(c);
    done(c);
}

static void on_readable(void *arg, struct stream *s) {
    struct http_client *c = arg;
    size_t n = stream_available(s);
    strbuf_add_bytes(&c->in, stream_peek(s, n), n);
    stream_drain(s, n);
    if (c->state == HTTP_ASKING)
        take_answer(c, false);
    else
        drop_stream(c); /* it answers what was not asked */
}

/* Why a connection failed, as a sentence. */
static const char *why_closed(const struct http_client *c, int code) {
    const char *why = stream_tls_why(c->stream);
    if (code == -EKEYREJECTED || code == -EPROTO)
        return why != NULL ? why : "the connection ended inside a TLS record";
    if (code != 0 && code != -ECONNRESET)
        return strerror(-code);
    if (why != NULL)
        return "the connection ended in the TLS handshake (does the server speak TLS?)";
    return c->tls == NULL
               ? "the connection ended without an answer (as of a server that wants TLS)"
               : "the connection ended without an answer (as of a server that wants a client "
                 "certificate)";
}

static void on_closed(void *arg, struct stream *s, int code) {
    (void)s;
    struct http_client *c = arg;
    if (c->state != HTTP_ASKING) {
        drop_stream(c);
    } else if (c->used) { /* the server had closed it: try again on a new one */
        drop_stream(c);
        look_up(c);
    } else if (code == 0 && c->in.len > 0) {
        take_answer(c, true);
    } else {
        char why[ERR_TEXT_MAX];
        (void)snprintf(why, sizeof why, "%s", why_closed(c, code));
        attempt_failed(c, code == 0 ? -ECONNRESET : code == -EKEYREJECTED ? -EPROTO : code, why);
    }
}

static int connect_to(struct http_client *c, const struct addr *to, struct err *err) {
    static const struct stream_ops ops = {.on_readable = on_readable, .on_closed = on_closed};
    struct ssl_st *session = NULL;
    int r = c->tls == NULL ? 0 : tls_session_new(c->tls, c->host, &session, err);
    if (r < 0)
        return r;
    r = stream_connect(c->loop, to, &ops, c, &c->stream);
    if (r < 0) {
        tls_session_free(session);
        return err_set(err, r, "%s", strerror(-r));
    }
    stream_set_priority(c->stream, LOOP_PRIO_LEASE);
    if (session != NULL)
        stream_start_tls(c->stream, session);
    c->used = false;
    return 0;
}

static void ask_on_stream(struct http_client *c) {
    c->state = HTTP_ASKING;
    stream_write(c->stream, strbuf_text(&c->request), c->request.len);
}

static void try_next_address(struct http_client *c) {
    uint64_t now = clock_now_ns();
    if (c->next_addr == c->n_addrs || now >= c->deadline_ns) {
        done_failed(c);
        return;
    }
    uint64_t share = (c->deadline_ns - now) / (c->n_addrs - c->next_addr);
    loop_timer_set(c->timer, now + share);
    if (connect_to(c, &c->addrs[c->next_addr++], &c->failure) < 0)
        done_failed(c);
    else
        ask_on_stream(c);
}

static void on_looked_up(void *arg, int code, const char *text, const struct addr *addrs,
                         size_t n) {
    struct http_client *c = arg;
    c->resolve = NULL;
    if (code < 0) {
        (void)err_set(&c->failure, code, "%s", text);
        done_failed(c);
        return;
    }
    memcpy(c->addrs, addrs, n * sizeof *addrs);
    c->n_addrs = n;
    c->next_addr = 0;
    try_next_address(c);
}

static void look_up(struct http_client *c) {
    int r = resolve_now(c->host, c->port, c->addrs, &c->n_addrs);
    c->next_addr = 0;
    if (r == 0) {
        try_next_address(c);
        return;
    }
    uint64_t now = clock_now_ns();
    c->state = HTTP_LOOKING_UP;
    if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(c->loop, c->host, c->port,
                          c->deadline_ns > now ? c->deadline_ns - now : 1, on_looked_up, c,
                          &c->resolve);
    if (r < 0) {
        (void)err_set(&c->failure, r, "cannot look up the host name '%s': %s", c->host,
                      strerror(-r));
        done_failed(c);
    }
}

static void on_timer(void *arg) {
    struct http_client *c = arg;
    switch (c->state) {
    case HTTP_DONE: report(c); return;
    case HTTP_ASKING: {
        char why[64];
        (void)snprintf(why, sizeof why, "no answer within %.1f s", (double)c->timeout_ns / 1e9);
        if (c->n_addrs > 1)
            (void)snprintf(why, sizeof why, "no answer in time");
        attempt_failed(c, -ETIMEDOUT, why);
        return;
    }
    case HTTP_LOOKING_UP: /* the look-up times out at the same moment, and reports that */
    case HTTP_IDLE: return;
    }
}

/* --- the client ------------------------------------------------------------------------------- */

int http_client_new(struct loop *loop, const struct http_config *config, struct http_client **ret,
                    struct err *err) {
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    if (resolve_now(config->host, config->port, addrs, &n) < 0)
        return err_set(err, -EINVAL, "'%.128s' is neither a host name nor an address",
                       config->host);
    struct http_client *c = xcalloc(1, sizeof *c);
    *c = (struct http_client){.loop = loop,
                              .tls = config->tls,
                              .port = config->port,
                              .is_literal = addr_from_literal(config->host, 0, &addrs[0]) == 0,
                              .max_body = config->max_body,
                              .state = HTTP_IDLE};
    c->host = xstrdup(config->host);
    bool v6 = strchr(config->host, ':') != NULL;
    c->origin = xasprintf("%s%.*s%s:%u", v6 ? "[" : "", (int)strcspn(config->host, "%"),
                          config->host, v6 ? "]" : "", (unsigned)config->port);
    c->timer = loop_timer_new(loop, on_timer, c);
    *ret = c;
    return 0;
}

void http_client_free(struct http_client *c) {
    if (c == NULL)
        return;
    if (c->state != HTTP_IDLE)
        forget_request(c);
    drop_stream(c);
    loop_timer_free(c->timer);
    strbuf_fini(&c->request);
    strbuf_fini(&c->in);
    strbuf_fini(&c->body);
    free(c->host);
    free(c->origin);
    free(c);
}

static void put_request(struct http_client *c, const struct http_request *q) {
    struct strbuf *to = &c->request;
    strbuf_printf(to, "%s %s HTTP/1.1\r\nHost: %s\r\n", q->body != NULL ? "POST" : "GET", q->path,
                  c->origin);
    if (q->authorization != NULL)
        strbuf_printf(to, "Authorization: %s\r\n", q->authorization);
    if (q->body != NULL)
        strbuf_printf(to, "Content-Type: application/json\r\nContent-Length: %zu\r\n", q->len);
    strbuf_add(to, "\r\n");
    if (q->body != NULL)
        strbuf_add_bytes(to, q->body, q->len);
}

void http_ask(struct http_client *c, const struct http_request *request, http_answer_fn *fn,
              void *arg) {
    assert(c->state == HTTP_IDLE);
    c->fn = fn;
    c->arg = arg;
    put_request(c, request);
    c->timeout_ns = request->timeout_ns;
    c->deadline_ns = clock_now_ns() + request->timeout_ns;
    c->failure = (struct err){0};
    c->status = 0;
    if (c->stream == NULL) {
        look_up(c);
        return;
    }
    loop_timer_set(c->timer, c->deadline_ns);
    ask_on_stream(c);
}

void http_cancel(struct http_client *c) {
    if (c->state == HTTP_IDLE)
        return;
    if (c->state == HTTP_ASKING)
        drop_stream(c);
    forget_request(c);
}
