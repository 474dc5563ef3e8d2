#include "io/net/http.h"

#include <dlfcn.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "io/net/resolver.h"
#include "io/net/tls.h"

#define HTTP_LIBRARY_CALLS(X)                 \
    X(evhttp_connection_base_bufferevent_new) \
    X(evhttp_connection_free)                 \
    X(evhttp_connection_set_closecb)          \
    X(evhttp_connection_set_family)           \
    X(evhttp_connection_set_max_body_size)    \
    X(evhttp_connection_set_max_headers_size) \
    X(evhttp_request_new)                     \
    X(evhttp_request_free)                    \
    X(evhttp_request_set_error_cb)            \
    X(evhttp_request_get_output_headers)      \
    X(evhttp_request_get_output_buffer)       \
    X(evhttp_request_get_input_buffer)        \
    X(evhttp_request_get_response_code)       \
    X(evhttp_add_header)                      \
    X(evhttp_make_request)
#define HTTP_LIBRARY_TLS_CALLS(X)     \
    X(bufferevent_openssl_socket_new) \
    X(bufferevent_get_openssl_error)

static struct http_library {
#define FIELD(name) __typeof__(name) *name;
    HTTP_LIBRARY_CALLS(FIELD)
    HTTP_LIBRARY_TLS_CALLS(FIELD) /* NULL until loaded with tls */
#undef FIELD
} library;

/* libevent's messages are dropped: its return values report the errors, and so do ours. */
static void drop_log(int severity, const char *text) {}

#ifdef MUSTER_LINKED /* meson's option `portable`: both are in this program */

static int http_library_load(bool tls, struct err *err) {
#define SET(name) library.name = name;
    HTTP_LIBRARY_CALLS(SET)
    HTTP_LIBRARY_TLS_CALLS(SET)
#undef SET
    event_set_log_callback(drop_log);
    return 0;
}

#else

/* libevent names its libraries by its minor version; the number is libtool's "current - age". */
#define LIBRARY_EXTRA "libevent_extra-2.1.so.7"
#define LIBRARY_OPENSSL "libevent_openssl-2.1.so.7"

#define NAME(name) #name,
static const char *const http_names[] = {HTTP_LIBRARY_CALLS(NAME)};
static const char *const tls_names[] = {HTTP_LIBRARY_TLS_CALLS(NAME)};
#undef NAME

/* Writes the addresses of these calls to *ret. A library passes our loop to its own libevent_core,
 * so our loop must use that one, too. -ELIBACC: err names the file and the reason. */
static int load(const char *file, const char *package, const char *const *names, size_t n,
                char *ret, struct err *err) {
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "cannot load %s (Debian's package %s): %s", file, package,
                       dlerror());
    void *symbol = dlsym(handle, "event_get_version");
    const char *(*version)(void);
    memcpy(&version, &symbol, sizeof version);
    if (symbol == NULL || version() != event_get_version()) {
        (void)dlclose(handle);
        return err_set(err, -ELIBACC, "%s uses another libevent than this program does", file);
    }
    for (size_t i = 0; i < n; i++) {
        symbol = dlsym(handle, names[i]);
        if (symbol == NULL)
            return err_set(err, -ELIBACC, "%s has no %s", file, names[i]);
        memcpy(ret + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return 0;
}

static int http_library_load(bool tls, struct err *err) {
    char *const calls = (char *)&library;
    int r = 0;
    if (library.evhttp_make_request == NULL) /* the last of its calls */
        r = load(LIBRARY_EXTRA, "libevent-extra-2.1-7", http_names, ARRAY_SIZE(http_names), calls,
                 err);
    if (r == 0 && tls && library.bufferevent_get_openssl_error == NULL)
        r = load(LIBRARY_OPENSSL, "libevent-openssl-2.1-7", tls_names, ARRAY_SIZE(tls_names),
                 calls + offsetof(struct http_library, bufferevent_openssl_socket_new), err);
    if (r < 0)
        return r;
    event_set_log_callback(drop_log);
    return 0;
}

#endif

#define MAX_HEADERS 65536 /* in bytes, of one answer */

/* One connection. It outlives its drop by a turn: evhttp's functions may be on the stack. */
struct http_conn {
    struct http_client *client; /* NULL: the connection was dropped */
    struct evhttp_connection *evcon;
    struct bufferevent *bev;
    struct ssl_st *session;          /* the bufferevent's, or NULL */
    bool used;                       /* an answer has come on it */
    bool closed;                     /* evhttp has closed it */
    bool cut;                        /* it was closed when an answer was expected */
    char why[TLS_WHY_MAX];           /* the first reason of its failure; "": none */
    bufferevent_event_cb on_connect; /* evhttp's callback, which ours calls */
    void *on_connect_arg;
};

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
    struct http_conn *conn;   /* ASKING, or idle and open */

    /* the request */
    http_answer_fn *fn;
    void *arg;
    char *path, *authorization, *body;
    size_t len;
    uint64_t timeout_ns, deadline_ns;
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n_addrs, next_addr;
    struct err failure; /* why the addresses tried so far failed */

    /* its answer */
    int status;
    char *answer;
    size_t answer_len;
};

/* --- connections ------------------------------------------------------------------------------ */

static void conn_free(void *arg) {
    struct http_conn *conn = arg;
    library.evhttp_connection_free(conn->evcon); /* also frees the bufferevent and the session */
    free(conn);
}

static void drop_conn(struct http_client *c) {
    struct http_conn *conn = TAKE_PTR(c->conn);
    if (conn == NULL)
        return;
    conn->client = NULL;
    library.evhttp_connection_set_closecb(conn->evcon, NULL, NULL);
    loop_defer(c->loop, LOOP_PRIO_LEASE, conn_free, conn);
}

/* Keeps the first reason: later errors are its consequences. */
static void conn_set_error(struct http_conn *conn, const char *why) {
    if (conn->why[0] == '\0')
        (void)snprintf(conn->why, sizeof conn->why, "%s", why);
}

/* For an error of the connection: of TLS, or by its errno (0: none). */
static void conn_set_errno(struct http_conn *conn, int error) {
    if (conn->why[0] != '\0')
        return;
    if (conn->session != NULL)
        tls_session_why(conn->session, library.bufferevent_get_openssl_error(conn->bev), error,
                        conn->why);
    else
        conn_set_error(conn, error != 0 ? strerror(error) : "the connection ended");
}

static void on_connect(struct bufferevent *bev, short what, void *arg) {
    int error = errno, one = 1;
    struct http_conn *conn = arg;
    if (!(what & BEV_EVENT_CONNECTED))
        conn_set_errno(conn, error);
    else /* with TLS a request is several writes, and the second would be delayed by 40 ms */
        (void)setsockopt(bufferevent_getfd(bev), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    conn->on_connect(bev, what, conn->on_connect_arg);
}

static void on_close(struct evhttp_connection *evcon, void *arg) {
    struct http_conn *conn = arg;
    conn->closed = true;
    /* while a request is running, its own callback follows */
    if (conn->client != NULL && conn->client->state != HTTP_ASKING)
        drop_conn(conn->client);
}

static int make_bufferevent(struct http_client *c, struct http_conn *conn, struct err *err) {
    struct event_base *base = loop_event_base(c->loop);
    if (c->tls == NULL) {
        conn->bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    } else {
        int r = tls_session_new(c->tls, c->host, &conn->session, err);
        if (r < 0)
            return r;
        conn->bev = library.bufferevent_openssl_socket_new(
            base, -1, conn->session, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
        if (conn->bev == NULL)
            tls_session_free(conn->session);
    }
    return conn->bev != NULL ? 0 : err_set(err, -ENOMEM, "no memory for a connection");
}

static int make_conn(struct http_client *c, const struct addr *to, struct err *err) {
    struct http_conn *conn = xcalloc(1, sizeof *conn);
    conn->client = c;
    int r = make_bufferevent(c, conn, err);
    if (r < 0) {
        free(conn);
        return r;
    }
    char host[ADDR_TEXT_MAX];
    addr_host_text(to, host);
    conn->evcon = library.evhttp_connection_base_bufferevent_new(loop_event_base(c->loop), NULL,
                                                                 conn->bev, host, addr_port(to));
    if (conn->evcon == NULL) {
        bufferevent_free(conn->bev);
        free(conn);
        return err_set(err, -ENOMEM, "no memory for a connection");
    }
    library.evhttp_connection_set_family(conn->evcon, to->ss.ss_family);
    library.evhttp_connection_set_max_body_size(conn->evcon, (ev_ssize_t)c->max_body);
    library.evhttp_connection_set_max_headers_size(conn->evcon, MAX_HEADERS);
    library.evhttp_connection_set_closecb(conn->evcon, on_close, conn);
    c->conn = conn;
    return 0;
}

/* --- a request -------------------------------------------------------------------------------- */

static void forget_request(struct http_client *c) {
    resolve_free(TAKE_PTR(c->resolve));
    free(TAKE_PTR(c->path));
    free(TAKE_PTR(c->authorization));
    free(TAKE_PTR(c->body));
    free(TAKE_PTR(c->answer));
    loop_timer_set(c->timer, TIME_NEVER);
    c->state = HTTP_IDLE;
}

/* The timer reports the answer from the loop, when no function of evhttp is on the stack. */
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

static void on_failure(struct http_client *c, struct http_conn *conn) {
    conn_set_error(conn, "the connection ended");
    if (conn->used && conn->cut) { /* the server had closed it: try again on a new one */
        drop_conn(c);
        look_up(c);
        return;
    }
    attempt_failed(c, conn->why);
}

/* Called before on_done(), with the errno of the connection. */
static void on_error(enum evhttp_request_error error, void *arg) {
    int code = errno;
    unsigned long alert;
    struct http_conn *conn = arg;
    if (conn->client == NULL)
        return;
    switch (error) {
    case EVREQ_HTTP_TIMEOUT: conn_set_error(conn, "no answer in time"); break;
    case EVREQ_HTTP_INVALID_HEADER: conn_set_error(conn, "what it sent is not HTTP"); break;
    case EVREQ_HTTP_DATA_TOO_LONG: conn_set_error(conn, "its answer is too long"); break;
    case EVREQ_HTTP_BUFFER_ERROR:
        conn->cut = true;
        conn_set_errno(conn, code);
        break;
    case EVREQ_HTTP_EOF: /* or any other error; errno is not reliable */
        conn->cut = true;
        /* a server can reject the client after the handshake */
        alert = conn->session != NULL ? library.bufferevent_get_openssl_error(conn->bev) : 0;
        if (alert != 0 && conn->why[0] == '\0')
            tls_session_why(conn->session, alert, 0, conn->why);
        conn_set_error(
            conn, conn->session == NULL
                      ? "the connection ended without an answer (as of a server that wants TLS)"
                      : "the connection ended without an answer (as of a server that wants a "
                        "client certificate)");
        break;
    case EVREQ_HTTP_REQUEST_CANCEL: break;
    }
}

static void on_done(struct evhttp_request *request, void *arg) {
    int error = errno;
    struct http_conn *conn = arg;
    struct http_client *c = conn->client;
    if (c == NULL || c->state != HTTP_ASKING)
        return;
    int status = request != NULL ? library.evhttp_request_get_response_code(request) : 0;
    if (status == 0) {
        if (request != NULL) /* it could not connect */
            conn_set_errno(conn, error);
        on_failure(c, conn);
        return;
    }
    struct evbuffer *in = library.evhttp_request_get_input_buffer(request);
    size_t len = evbuffer_get_length(in);
    char *body = len <= c->max_body ? malloc(len + 1) : NULL;
    if (body == NULL) {
        attempt_failed(c, "no memory for its answer");
        return;
    }
    (void)evbuffer_remove(in, body, len);
    body[len] = '\0';
    c->status = status;
    c->answer = body;
    c->answer_len = len;
    conn->used = true;
    if (conn->closed)
        drop_conn(c);
    done(c);
}

static bool add_header(struct evhttp_request *request, const char *key, const char *value) {
    struct evkeyvalq *headers = library.evhttp_request_get_output_headers(request);
    return value == NULL || library.evhttp_add_header(headers, key, value) == 0;
}

static void ask_on_conn(struct http_client *c) {
    struct http_conn *conn = c->conn;
    struct evhttp_request *request = library.evhttp_request_new(on_done, conn);
    bool fine = request != NULL && add_header(request, "Host", c->origin) &&
                add_header(request, "Authorization", c->authorization);
    if (fine && c->body != NULL)
        fine =
            add_header(request, "Content-Type", "application/json") &&
            evbuffer_add(library.evhttp_request_get_output_buffer(request), c->body, c->len) == 0;
    if (!fine) {
        if (request != NULL)
            library.evhttp_request_free(request);
        attempt_failed(c, "the request can't be put together");
        return;
    }
    library.evhttp_request_set_error_cb(request, on_error);
    c->state = HTTP_ASKING;
    bool fresh = !conn->used;
    /* takes the request; can call on_done() */
    if (library.evhttp_make_request(conn->evcon, request,
                                    c->body != NULL ? EVHTTP_REQ_POST : EVHTTP_REQ_GET,
                                    c->path) < 0 &&
        c->conn == conn && c->state == HTTP_ASKING) {
        attempt_failed(c, "the request can't be sent");
        return;
    }
    if (fresh && c->conn == conn && c->state == HTTP_ASKING) {
        /* while it connects, evhttp does not report the reason of a failure */
        bufferevent_getcb(conn->bev, NULL, NULL, &conn->on_connect, &conn->on_connect_arg);
        bufferevent_setcb(conn->bev, NULL, NULL, on_connect, conn);
    }
}

static void try_next_address(struct http_client *c) {
    uint64_t now = clock_now_ns();
    if (c->next_addr == c->n_addrs || now >= c->deadline_ns) {
        done_failed(c);
        return;
    }
    uint64_t share = (c->deadline_ns - now) / (c->n_addrs - c->next_addr);
    loop_timer_set(c->timer, now + share);
    int r = make_conn(c, &c->addrs[c->next_addr++], &c->failure);
    if (r < 0)
        done_failed(c);
    else
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
    int r = http_library_load(config->tls != NULL, err);
    if (r < 0)
        return r;
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
    free(c);
}

void http_ask(struct http_client *c, const struct http_request *request, http_answer_fn *fn,
              void *arg) {
    assert(c->state == HTTP_IDLE);
    c->fn = fn;
    c->arg = arg;
    c->path = xstrdup(request->path);
    c->authorization = request->authorization != NULL ? xstrdup(request->authorization) : NULL;
    c->body = request->body != NULL ? xmalloc(request->len + 1) : NULL;
    if (c->body != NULL)
        memcpy(c->body, request->body, request->len);
    c->len = request->len;
    c->timeout_ns = request->timeout_ns;
    c->deadline_ns = clock_now_ns() + request->timeout_ns;
    c->failure = (struct err){0};
    c->status = 0;
    if (c->conn == NULL) {
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
