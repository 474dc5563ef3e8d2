#include "io/net/http.h"

#include "base/text/strbuf.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "io/net/tls.h"
#include "rig/fds.h"
#include "rig/loop_rig.h"

/* A server that sends the test's answer to every request. */
#define CONNS_MAX 16

struct server {
    struct listener *listener;
    struct stream *streams[CONNS_MAX];
    struct strbuf asked[CONNS_MAX]; /* not yet answered */
    struct strbuf heard;            /* all of it */
    unsigned n_conns, n_asked;
    const char *answer; /* NULL: silence */
    bool close_after;   /* the answer */
    unsigned close_at;  /* the server closes the connection at this request; 0: at none */
    bool resets;        /* its connections end with a reset */
    char port[8];
};

static struct loop *loop;
static struct server server;
static struct http_client *client;

/* The result of the last request. */
static struct {
    unsigned n;
    int status;
    char body[256], text[ERR_TEXT_MAX];
    size_t len;
    bool free_client, ask_again;
} heard;

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static void server_closed(void *arg, struct stream *s, int code) {
    struct server *v = arg;
    for (unsigned i = 0; i < v->n_conns; i++)
        if (v->streams[i] == s) {
            stream_free(s);
            v->streams[i] = NULL;
        }
}

static bool whole_request(const char *text) {
    const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
    return end != NULL && (length == NULL || strlen(end + 4) >= strtoul(length + 16, NULL, 10));
}

static void server_readable(void *arg, struct stream *s) {
    struct server *v = arg;
    unsigned i = 0;
    while (v->streams[i] != s)
        i++;
    size_t n = stream_available(s);
    const void *p = stream_peek(s, n);
    strbuf_add_bytes(&v->heard, p, n);
    strbuf_add_bytes(&v->asked[i], p, n);
    stream_drain(s, n);
    if (!whole_request(strbuf_text(&v->asked[i])))
        return;
    strbuf_clear(&v->asked[i]);
    v->n_asked++;
    if (v->n_asked == v->close_at) {
        stream_free(s);
        v->streams[i] = NULL;
        return;
    }
    if (v->answer == NULL)
        return;
    stream_write(s, v->answer, strlen(v->answer));
    if (v->close_after) {
        stream_finish(s, clock_now_ns() + NS_PER_S);
        v->streams[i] = NULL;
    }
}

static const struct stream_ops server_ops = {.on_readable = server_readable, .on_closed = server_closed};

static void on_accept(void *arg, int fd, const struct addr *peer) {
    struct server *v = arg;
    cr_assert_lt(v->n_conns, CONNS_MAX);
    struct linger none = {.l_onoff = 1, .l_linger = 0}; /* then closing sends a reset */
    if (v->resets)
        cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
    v->streams[v->n_conns] = stream_new(loop, fd, &server_ops, v);
    v->n_conns++;
}

static uint16_t serve(const char *host) {
    struct addr at;
    int fd;
    cr_assert_eq(addr_from_literal(host, 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, NULL), 0);
    server.listener = listener_new(loop, fd, on_accept, &server);
    cr_assert_eq(listener_addr(server.listener, &at), 0);
    return addr_port(&at);
}

static unsigned fds_before;

static void set_up(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(loop_new(&loop), 0);
    server.answer = OK_ANSWER;
    fds_before = rig_open_fds();
}

static void tear_down(void) {
    http_client_free(client);
    listener_free(server.listener);
    for (unsigned i = 0; i < CONNS_MAX; i++) {
        stream_free(server.streams[i]);
        strbuf_fini(&server.asked[i]);
    }
    strbuf_fini(&server.heard);
    rig_loop_turns(loop, 4);
    cr_expect_eq(rig_open_fds(), fds_before, "descriptors are left open");
    loop_free(loop);
}

TestSuite(http, .init = set_up, .fini = tear_down);

static void make_client(const char *host, uint16_t port) {
    struct http_config config = {.host = host, .port = port, .max_body = 1000};
    struct err err = {0};
    cr_assert_eq(http_client_new(loop, &config, &client, &err), 0, "%s", err.text);
}

static void on_answer(void *arg, const struct http_answer *a) {
    heard.n++;
    heard.status = a->status;
    heard.len = a->len;
    heard.text[0] = heard.body[0] = '\0';
    if (a->status == 0)
        (void)snprintf(heard.text, sizeof heard.text, "%s", a->text);
    else
        (void)snprintf(heard.body, sizeof heard.body, "%s", a->body);
    if (heard.free_client) {
        http_client_free(client);
        client = NULL;
    }
    if (heard.ask_again) {
        heard.ask_again = false;
        http_ask(client, &(struct http_request){.path = "/again", .timeout_ns = 2 * NS_PER_S}, on_answer, NULL);
        return;
    }
    loop_quit(loop);
}

/* By the client of 127.0.0.1, if there is none yet. */
static void start(const char *body, uint64_t timeout_ns) {
    if (client == NULL)
        make_client("127.0.0.1", serve("127.0.0.1"));
    struct http_request q = {
        .path = "/path", .body = body, .len = body != NULL ? strlen(body) : 0, .timeout_ns = timeout_ns};
    unsigned before = heard.n;
    http_ask(client, &q, on_answer, NULL);
    cr_assert_eq(heard.n, before, "answered from inside");
}

static void ask(const char *body, uint64_t timeout_ns) {
    unsigned before = heard.n;
    start(body, timeout_ns);
    rig_loop_run(loop);
    cr_assert_eq(heard.n, before + 1);
}

static void expect_ok(void) {
    cr_expect_eq(heard.status, 200, "%s", heard.text);
    cr_expect_str_eq(heard.body, "hello");
    cr_expect_eq(heard.len, 5);
}

static void ask_ok(void) {
    ask("1", 2 * NS_PER_S);
    expect_ok();
}

Test(http, posts_and_keeps_the_connection) {
    for (int i = 0; i < 5; i++) {
        ask("{\"a\":1}", 2 * NS_PER_S);
        expect_ok();
    }
    cr_expect_eq(server.n_conns, 1);
    const char *text = strbuf_text(&server.heard);
    cr_expect_eq(strncmp(text, "POST /path HTTP/1.1\r\n", 21), 0, "%s", text);
    cr_expect(strstr(text, "\r\nHost: 127.0.0.1:") != NULL && strstr(text, "\r\nContent-Length: 7\r\n") != NULL &&
                  strstr(text, "\r\n\r\n{\"a\":1}") != NULL && strstr(text, "Authorization") == NULL,
              "%s", text);
}

Test(http, gets_and_authorizes) {
    make_client("localhost", serve("127.0.0.1"));
    http_ask(client, &(struct http_request){.path = "/x", .authorization = "token 1", .timeout_ns = 2 * NS_PER_S},
             on_answer, NULL);
    rig_loop_run(loop);
    expect_ok();
    expect_has(strbuf_text(&server.heard), "GET /x HTTP/1.1\r\n");
    expect_has(strbuf_text(&server.heard), "\r\nAuthorization: token 1\r\n");
    expect_has(strbuf_text(&server.heard), "\r\nHost: localhost:");
}

Test(http, speaks_ipv6) {
    make_client("::1", serve("::1"));
    ask_ok();
    expect_has(strbuf_text(&server.heard), "\r\nHost: [::1]:");
}

Test(http, tries_each_address_of_a_name) {
    make_client("localhost", serve("::1")); /* 127.0.0.1 is tried first, and refuses */
    ask_ok();
}

Test(http, a_connection_closed_while_idle_is_made_anew) {
    ask("1", 2 * NS_PER_S);
    stream_free(server.streams[0]);
    server.streams[0] = NULL;
    rig_loop_turns(loop, 5);
    ask_ok();
    cr_expect_eq(server.n_conns, 2);
}

Test(http, a_request_that_met_a_closing_connection_is_sent_again) {
    server.close_at = 2;
    ask("1", 2 * NS_PER_S);
    ask_ok();
    cr_expect_eq(server.n_conns, 2);
    cr_expect_eq(server.n_asked, 3);
}

Test(http, a_new_connection_that_ends_without_an_answer_is_an_error) {
    server.close_at = 1;
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 0);
    cr_expect(strstr(heard.text, "the connection ended without an answer (as of") == heard.text, "%s", heard.text);
}

Test(http, connection_close_is_obeyed) {
    server.answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    server.close_after = true;
    for (unsigned i = 1; i <= 3; i++) {
        ask_ok();
        cr_expect_eq(server.n_conns, i);
    }
}

Test(http, takes_chunks_and_what_ends_with_the_connection) {
    server.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    ask_ok();
    server.answer = "HTTP/1.0 200 OK\r\n\r\nhello";
    server.close_after = true;
    ask_ok();
}

Test(http, any_status_is_an_answer_and_no_redirect_is_followed) {
    server.answer = "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno";
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 503);
    cr_expect_str_eq(heard.body, "no");
    server.answer = "HTTP/1.1 301 Moved\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n";
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 301);
    cr_expect_eq(server.n_asked, 2);
}

Test(http, refusal_has_its_errno) {
    uint16_t port = serve("127.0.0.1");
    listener_free(server.listener);
    server.listener = NULL;
    make_client("127.0.0.1", port);
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 0);
    cr_expect_str_eq(heard.text, "Connection refused");
}

Test(http, an_unreachable_network_is_told_like_any_failure) {
    make_client("255.255.255.255", 9); /* connect() fails at once */
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 0);
    cr_expect_str_neq(heard.text, "");
    cr_expect_str_neq(heard.text, "the connection ended");
}

Test(http, silence_ends_in_time) {
    server.answer = NULL;
    uint64_t before = clock_now_ns();
    ask("1", 100 * NS_PER_MS);
    uint64_t took = clock_now_ns() - before;
    expect_has(heard.text, "no answer within 0.1 s");
    cr_expect(took >= 100 * NS_PER_MS && took < 2 * NS_PER_S);
    server.answer = OK_ANSWER; /* and the next one has a new connection */
    ask_ok();
}

Test(http, silence_on_a_kept_connection_ends_in_time) {
    ask("1", 2 * NS_PER_S);
    server.answer = NULL;
    ask("1", 100 * NS_PER_MS);
    expect_has(heard.text, "no answer within 0.1 s");
    server.answer = OK_ANSWER;
    ask_ok();
    cr_expect_eq(server.n_conns, 2);
}

Test(http, what_is_too_long_or_no_http_is_refused) {
    char chunks[4096];
    const char *plain = rig_text("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n%1001s", "x");
    (void)snprintf(chunks, sizeof chunks,
                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n%1001s\r\n0\r\n\r\n", "x");
    const char *const bad[] = {plain,
                               chunks,
                               "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                               "SSH-2.0-OpenSSH_9.2\r\n\r\n",
                               "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                               "HTTP/1.1 abc OK\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        server.answer = bad[i];
        ask("1", 300 * NS_PER_MS);
        cr_expect_eq(heard.status, 0, "answer %zu: status %d", i, heard.status);
        expect_has(heard.text, i < 4 ? "its answer is too long" : "what it sent is not HTTP");
    }
}

Test(http, half_an_answer_is_an_error) {
    server.answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello";
    server.close_after = true;
    ask("1", 2 * NS_PER_S);
    cr_expect_eq(heard.status, 0);
    expect_has(heard.text, "the connection ended");
}

Test(http, a_cancelled_request_is_not_answered) {
    server.answer = NULL;
    start("1", NS_PER_S);
    rig_loop_until(loop, server.n_asked != 0);
    http_cancel(client);
    server.answer = OK_ANSWER;
    ask_ok();
    cr_expect_eq(heard.n, 1);
}

Test(http, may_be_freed_at_any_time) {
    uint16_t port = serve("127.0.0.1");
    for (int turns = 0; turns < 8; turns++) {
        make_client(turns % 2 == 0 ? "127.0.0.1" : "localhost", port);
        start("1", NS_PER_S);
        rig_loop_turns(loop, turns);
        if (heard.n > 0)
            break;
        http_client_free(client);
        client = NULL;
    }
    heard.free_client = true;
    http_client_free(client);
    make_client("127.0.0.1", port);
    ask_ok();
    cr_expect_null(client);
}

Test(http, may_be_asked_again_from_the_callback) {
    heard.ask_again = true;
    start("1", 2 * NS_PER_S);
    rig_loop_run(loop);
    cr_expect_eq(heard.n, 2);
    expect_ok();
    cr_expect_eq(server.n_conns, 1);
}

Test(http, a_host_that_is_none_is_refused) {
    struct http_client *c;
    struct err err = {0};
    cr_expect_eq(http_client_new(loop, &(struct http_config){.host = "a b", .port = 1}, &c, &err), -EINVAL);
    cr_expect_str_eq(err.text, "'a b' is neither a host name nor an address");
}

/* A client that has sent the first bytes of its handshake to a server that waits for HTTP. */
static struct tls_client *begin_tls(void) {
    struct tls_client *tls;
    struct err err = {0};
    cr_assert_eq(tls_client_new(&(struct tls_config){0}, &tls, &err), 0, "%s", err.text);
    struct http_config config = {.host = "127.0.0.1", .port = serve("127.0.0.1"), .tls = tls, .max_body = 1000};
    cr_assert_eq(http_client_new(loop, &config, &client, &err), 0, "%s", err.text);
    start("1", 20 * NS_PER_S);
    rig_loop_until(loop, server.n_conns > 0 && server.heard.len > 0);
    return tls;
}

Test(http, a_server_without_tls_is_told_so) {
    struct tls_client *tls = begin_tls();
    server.answer = "HTTP/1.0 400 Bad Request\r\n\r\n";
    stream_write(server.streams[0], server.answer, strlen(server.answer));
    rig_loop_run(loop);
    cr_expect(strstr(heard.text, "the server does not speak TLS") == heard.text, "%s", heard.text);
    tls_client_free(tls);
}

Test(http, a_server_that_ends_the_handshake_may_be_without_tls) {
    server.resets = true;
    struct tls_client *tls = begin_tls();
    stream_free(server.streams[0]);
    server.streams[0] = NULL;
    rig_loop_run(loop);
    expect_has(heard.text, "handshake (does the server speak TLS?)");
    tls_client_free(tls);
}

Test(http, each_address_of_a_name_is_told) {
    uint16_t port = serve("127.0.0.1");
    server.close_at = 1;
    make_client("localhost", port);
    ask("1", 2 * NS_PER_S);
    _cleanup_(freep) char *first = xasprintf("127.0.0.1:%u: the connection ended", (unsigned)port),
                          *second = xasprintf("; [::1]:%u: Connection refused", (unsigned)port);
    cr_expect(strstr(heard.text, first) == heard.text, "%s", heard.text);
    expect_has(heard.text, second);
}
