#include "io/net/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "io/net/stream.h"
#include "io/net/tls.h"

#define HEAD_MAX 65536 /* bytes of an answer before its body */

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
    int status;
    char *answer;
    size_t answer_len;
};

/* --- answers: RFC 9112 ------------------------------------------------------------------------ */

struct reply {
    int status;
    bool chunked;
    bool closes;     /* the server ends the connection after it */
    uint64_t length; /* of the body; UINT64_MAX: until the connection ends */
    char *body;      /* owned */
    size_t len;
};

/* Takes the next line, without blanks at its end; the caller frees it. NULL: not complete yet. */
static char *take_line(const char **at, const char *end) {
    const char *begin = *at, *newline = memchr(begin, '\n', (size_t)(end - begin));
    if (newline == NULL)
        return NULL;
    *at = newline + 1;
    while (newline > begin && strchr(" \t\r", newline[-1]) != NULL)
        newline--;
    return xstrndup(begin, (size_t)(newline - begin));
}

static bool read_status(const char *line, struct reply *ret) {
    int minor, n = 0;
    bool good = sscanf(line, "HTTP/1.%1d %3d%n", &minor, &ret->status, &n) == 2 &&
                ret->status >= 100 && (line[n] == ' ' || line[n] == '\0');
    ret->closes = good && minor == 0;
    return good;
}

static bool read_field(const char *line, struct reply *ret) {
    const char *value = strchr(line, ':');
    if (value == NULL)
        return line[0] == ' ' || line[0] == '\t'; /* more of the line before */
    value += 1 + strspn(value + 1, " \t");
    if (strncasecmp(line, "Content-Length:", 15) == 0)
        return parse_u64(value, &ret->length) == 0 && ret->length < UINT64_MAX;
    if (strncasecmp(line, "Transfer-Encoding:", 18) == 0)
        ret->chunked = strcasecmp(value, "chunked") == 0;
    else if (strncasecmp(line, "Connection:", 11) == 0)
        ret->closes |= strcasecmp(value, "close") == 0;
    return true;
}

/* These return 1: it is complete; 0: more will come; -EBADMSG: it makes no sense; -EFBIG. */
static int read_head(const char **at, const char *end, struct reply *ret) {
    *ret = (struct reply){.length = UINT64_MAX};
    for (bool first = true;; first = false) {
        _cleanup_(freep) char *line = take_line(at, end);
        if (line == NULL)
            return 0;
        if (!first && line[0] == '\0')
            return 1;
        if (!(first ? read_status(line, ret) : read_field(line, ret)))
            return -EBADMSG;
    }
}

static int take_chunk_size(const char **at, const char *end, size_t *ret) {
    _cleanup_(freep) char *line = take_line(at, end);
    size_t digits = line != NULL ? strspn(line, "0123456789abcdefABCDEF") : 0;
    if (line == NULL)
        return 0;
    if (digits == 0 || digits > 8 || strchr(" \t;", line[digits]) == NULL)
        return -EBADMSG;
    *ret = strtoul(line, NULL, 16);
    return 1;
}

static int read_chunks(const char *at, const char *end, size_t max, struct reply *ret) {
    size_t n;
    for (;;) {
        int r = take_chunk_size(&at, end, &n);
        if (r <= 0)
            return r;
        if (n > max - ret->len)
            return -EFBIG;
        if ((size_t)(end - at) < n)
            return 0;
        memcpy(ret->body + ret->len, at, n);
        ret->len += n;
        at += n;
        for (bool empty = false; !empty;) { /* behind the last chunk there may be more fields */
            _cleanup_(freep) char *line = take_line(&at, end);
            if (line == NULL)
                return 0;
            empty = line[0] == '\0';
            if (!empty && n > 0)
                return -EBADMSG;
        }
        if (n == 0)
            return 1;
    }
}

/* The caller frees ret->body, whatever is returned; also -ENOMEM. */
static int read_answer(const char *text, size_t len, bool ended, size_t max, struct reply *ret) {
    const char *at = text;
    int r;
    do
        r = read_head(&at, text + len, ret);
    while (r > 0 && ret->status < 200); /* the answer is still to come */
    if (r <= 0)
        return r == 0 && len > HEAD_MAX ? -EFBIG : r;
    size_t rest = len - (size_t)(at - text);
    ret->body = malloc(rest + 1);
    if (ret->body == NULL)
        return -ENOMEM;
    if (ret->status == 204 || ret->status == 304) /* they have no body */
        ret->length = 0;
    else if (ret->chunked)
        return read_chunks(at, text + len, max, ret);
    bool open = ret->length == UINT64_MAX;
    if ((open ? rest : ret->length) > max)
        return -EFBIG;
    ret->len = open ? rest : MIN2(rest, ret->length);
    ret->closes |= open;
    memcpy(ret->body, at, ret->len);
    return open ? ended : ret->len == ret->length;
}

/* --- a request -------------------------------------------------------------------------------- */

static void drop_conn(struct http_client *c) { stream_free(TAKE_PTR(c->stream)); }

static void forget_request(struct http_client *c) {
    resolve_free(TAKE_PTR(c->resolve));
    strbuf_clear(&c->request);
    free(TAKE_PTR(c->answer));
    loop_timer_set(c->timer, TIME_NEVER);
    c->state = HTTP_IDLE;
}

/* The timer reports the answer from the loop. */
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
    _cleanup_(freep) char *body = TAKE_PTR(c->answer);
    struct http_answer a = {
        .status = c->status, .body = body, .len = c->answer_len, .text = failure.text};
    forget_request(c);
    fn(arg, &a);
}

static void try_next_address(struct http_client *c);

/* The attempt at the current address failed. */
static void attempt_failed(struct http_client *c, const char *why) {
    char to[ADDR_TEXT_MAX], before[ERR_TEXT_MAX];
    addr_to_text(&c->addrs[c->next_addr - 1], to);
    memcpy(before, c->failure.text, sizeof before);
    if (c->is_literal)
        (void)err_set(&c->failure, -EIO, "%s", why);
    else
        (void)err_set(&c->failure, -EIO, "%s%s%s: %s", before, before[0] != '\0' ? "; " : "", to,
                      why);
    drop_conn(c);
    try_next_address(c);
}

static void look_up(struct http_client *c);

/* False: it is not complete. ended: nothing more will come. */
static bool take_answer(struct http_client *c, bool ended) {
    size_t len = stream_available(c->stream);
    const char *text = len > 0 ? (const char *)stream_peek(c->stream, len) : "";
    struct reply a = {0};
    int r = read_answer(text, len, ended, c->max_body, &a);
    if (r == 0 && len >= HEAD_MAX + 2 * c->max_body) /* of too many small chunks */
        r = -EFBIG;
    if (r <= 0)
        free(a.body);
    if (r < 0)
        attempt_failed(c, r == -EFBIG    ? "its answer is too long"
                          : r == -ENOMEM ? "no memory for its answer"
                                         : "what it sent is not HTTP");
    if (r <= 0)
        return r < 0;
    stream_drain(c->stream, len);
    c->status = a.status;
    c->answer = a.body;
    c->answer[a.len] = '\0';
    c->answer_len = a.len;
    c->used = true;
    if (a.closes || stream_unsent(c->stream) > 0)
        drop_conn(c);
    done(c);
    return true;
}

static void on_readable(void *arg, struct stream *s) {
    struct http_client *c = arg;
    if (c->state == HTTP_ASKING)
        (void)take_answer(c, false);
    else
        drop_conn(c); /* nothing was asked */
}

static const char *why_closed(const struct http_client *c, int code) {
    const char *tls = stream_tls_why(c->stream);
    if ((code == -EKEYREJECTED || code == -EPROTO) && tls != NULL)
        return tls;
    if (code != 0 && code != -ECONNRESET && code != -EPIPE)
        return strerror(-code);
    if (c->tls == NULL)
        return "the connection ended without an answer (as of a server that wants TLS)";
    return stream_is_secured(c->stream)
               ? "the connection ended without an answer (as of a server that wants a client "
                 "certificate)"
               : "the connection ended in the TLS handshake (does the server speak TLS?)";
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct http_client *c = arg;
    if (c->state != HTTP_ASKING) {
        drop_conn(c);
    } else if (code == 0 && take_answer(c, true)) {
        return;
    } else if (c->used) { /* the server had closed it: try again on a new one */
        drop_conn(c);
        look_up(c);
    } else {
        attempt_failed(c, why_closed(c, code));
    }
}

/* The bytes of the request are sent when the connection, and TLS, are made. */
static void ask_on_conn(struct http_client *c) {
    c->state = HTTP_ASKING;
    stream_write(c->stream, c->request.data, c->request.len);
}

static void try_next_address(struct http_client *c) {
    static const struct stream_ops ops = {.on_readable = on_readable, .on_closed = on_closed};
    uint64_t now = clock_now_ns();
    struct ssl_st *session = NULL;
    if (c->next_addr == c->n_addrs || now >= c->deadline_ns ||
        (c->tls != NULL && tls_session_new(c->tls, c->host, &session, &c->failure) < 0)) {
        done_failed(c);
        return;
    }
    uint64_t share = (c->deadline_ns - now) / (c->n_addrs - c->next_addr);
    loop_timer_set(c->timer, now + share);
    int r = stream_connect(c->loop, NULL, &c->addrs[c->next_addr++], &ops, c, &c->stream);
    if (r < 0) {
        if (session != NULL)
            tls_session_free(session);
        attempt_failed(c, strerror(-r));
        return;
    }
    stream_set_priority(c->stream, LOOP_PRIO_CHILD);
    stream_set_read_limit(c->stream, HEAD_MAX + 2 * c->max_body);
    if (session != NULL)
        stream_start_tls(c->stream, session);
    c->used = false;
    ask_on_conn(c);
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
        attempt_failed(c, why);
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
    drop_conn(c);
    loop_timer_free(c->timer);
    free(c->host);
    free(c->origin);
    strbuf_fini(&c->request);
    free(c);
}

void http_ask(struct http_client *c, const struct http_request *request, http_answer_fn *fn,
              void *arg) {
    assert(c->state == HTTP_IDLE);
    c->fn = fn;
    c->arg = arg;
    strbuf_printf(&c->request, "%s %s HTTP/1.1\r\nHost: %s\r\n",
                  request->body != NULL ? "POST" : "GET", request->path, c->origin);
    if (request->authorization != NULL)
        strbuf_printf(&c->request, "Authorization: %s\r\n", request->authorization);
    if (request->body != NULL)
        strbuf_printf(&c->request, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      request->len);
    strbuf_add(&c->request, "\r\n");
    if (request->body != NULL)
        strbuf_add_bytes(&c->request, request->body, request->len);
    c->timeout_ns = request->timeout_ns;
    c->deadline_ns = clock_now_ns() + request->timeout_ns;
    c->failure = (struct err){0};
    c->status = 0;
    if (c->stream == NULL) {
        look_up(c);
        return;
    }
    loop_timer_set(c->timer, c->deadline_ns);
    ask_on_conn(c);
}

void http_cancel(struct http_client *c) {
    if (c->state == HTTP_IDLE)
        return;
    if (c->state == HTTP_ASKING)
        drop_conn(c);
    forget_request(c);
}
