/* What the arbiter does with answers that a real etcd seldom gives, from servers of the test. With a real one:
 * tests/e2e/test_etcd.py. */
#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"

#include "base/text/strbuf.h"
#include "io/net/addr.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd.h"
#include "rig/loop_rig.h"

#define SERVERS 3
#define CONNS_MAX 8

#define EMPTY "{\"succeeded\":true,\"responses\":[{\"response_range\":{}},{\"response_range\":{}}]}"
#define NO_LEADER "{\"error\":\"etcdserver: no leader\",\"code\":14}"
#define BAD_TOKEN "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}"
#define NO_USER "{\"error\":\"etcdserver: user name is empty\",\"code\":3}"

struct server {
    struct listener *listener;
    struct stream *conns[CONNS_MAX];
    unsigned n_conns, n_asked, n_logins;
    struct strbuf heard; /* the request that is coming in */
    char last[16384];    /* the last whole one */
    int status;
    const char *body;  /* NULL: silence */
    const char *token; /* answer to a login; only with it are questions answered with `body` */
    char name[ADDR_TEXT_MAX];
};

static struct loop *loop;
static struct server servers[SERVERS];
static struct arbiter *arbiter;

static struct {
    unsigned n;
    struct arbiter_answer last;
    uint64_t ids[32];
    bool free_arbiter;
    unsigned quit_at;
} heard;

static void reply(struct server *v, struct stream *s, int status, const char *body) {
    const char *head = rig_text("HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status, strlen(body));
    stream_write(s, head, strlen(head));
    stream_write(s, body, strlen(body));
    v->n_asked++;
}

static void answer_question(struct server *v, struct stream *s) {
    if (strstr(v->last, "POST /v3/auth/authenticate ") == v->last) {
        v->n_logins++;
        reply(v, s, 200, rig_text("{\"token\":\"%s\"}", v->token));
        return;
    }
    cr_assert(strstr(v->last, "POST /v3/kv/txn HTTP/1.1\r\n") == v->last, "%s", v->last);
    const char *sent = strstr(v->last, "\r\nAuthorization: ");
    if (v->token != NULL && sent == NULL)
        reply(v, s, 400, NO_USER);
    else if (v->token != NULL && strncmp(sent + 17, v->token, strlen(v->token)) != 0)
        reply(v, s, 401, BAD_TOKEN);
    else if (v->body != NULL)
        reply(v, s, v->status, v->body);
    else
        v->n_asked++;
}

static void on_readable(void *arg, struct stream *s) {
    struct server *v = arg;
    size_t n = stream_available(s);
    strbuf_add_bytes(&v->heard, stream_peek(s, n), n);
    stream_drain(s, n);
    const char *text = strbuf_text(&v->heard), *end = strstr(text, "\r\n\r\n"),
               *length = strstr(text, "Content-Length: ");
    if (end == NULL || strlen(end + 4) < strtoul(length + 16, NULL, 10))
        return;
    (void)snprintf(v->last, sizeof v->last, "%s", text);
    strbuf_clear(&v->heard);
    answer_question(v, s);
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct server *v = arg;
    for (unsigned i = 0; i < v->n_conns; i++)
        if (v->conns[i] == s)
            v->conns[i] = NULL;
    strbuf_clear(&v->heard);
    stream_free(s);
}

static const struct stream_ops stream_callbacks = {.on_readable = on_readable, .on_closed = on_closed};

static void on_accept(void *arg, int fd, const struct addr *peer) {
    struct server *v = arg;
    cr_assert_lt(v->n_conns, CONNS_MAX);
    v->conns[v->n_conns++] = stream_new(loop, fd, &stream_callbacks, v);
}

static void set_up(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(loop_new(&loop), 0);
    for (int i = 0; i < SERVERS; i++) {
        struct server *v = &servers[i];
        struct addr at;
        int fd;
        cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
        cr_assert_eq(listen_socket(&at, 8, &fd, NULL), 0);
        v->listener = listener_new(loop, fd, on_accept, v);
        cr_assert_eq(listener_addr(v->listener, &at), 0);
        addr_to_text(&at, v->name);
        v->status = 200;
        v->body = EMPTY;
    }
}

static void tear_down(void) {
    arbiter_free(arbiter);
    for (int i = 0; i < SERVERS; i++) {
        listener_free(servers[i].listener);
        for (int k = 0; k < CONNS_MAX; k++)
            stream_free(servers[i].conns[k]);
        strbuf_fini(&servers[i].heard);
    }
    loop_free(loop);
}

TestSuite(arbiter_etcd_io, .init = set_up, .fini = tear_down);

static void make(size_t n, const char *user, uint64_t timeout_ns) {
    const char *endpoints[SERVERS];
    for (size_t i = 0; i < n; i++)
        endpoints[i] = servers[i].name;
    struct arbiter_etcd_config config = {.endpoints = endpoints,
                                         .n = n,
                                         .run_id = "job",
                                         .user = user,
                                         .password = user != NULL ? "pw" : NULL,
                                         .timeout_ns = timeout_ns};
    struct err err = {0};
    cr_assert_eq(arbiter_etcd_new(loop, &config, &arbiter, &err), 0, "%s", err.text);
}

static void on_answer(void *arg, const struct arbiter_answer *a) {
    heard.ids[heard.n++] = a->request.leader.port;
    heard.last = *a;
    if (heard.free_arbiter) {
        arbiter_free(arbiter);
        arbiter = NULL;
    }
    if (heard.n >= heard.quit_at)
        loop_quit(loop);
}

static void start(enum arbiter_kind kind, uint64_t id, void *arg) {
    struct arbiter_request q = {.kind = kind, .epoch = 1, .leader = {.incarnation = 7, .port = (uint16_t)id}};
    unsigned before = heard.n;
    arbiter_ask(arbiter, &q, on_answer, arg);
    cr_assert_eq(heard.n, before, "answered from inside");
}

static void run_until(unsigned n) {
    heard.quit_at = n;
    rig_loop_run(loop);
}

static const struct arbiter_answer *ask(enum arbiter_kind kind) {
    start(kind, 1, NULL);
    run_until(heard.n + 1);
    return &heard.last;
}

static void expect(enum arbiter_result result, const char *text) {
    cr_expect_eq(heard.last.result, result);
    cr_expect(strstr(heard.last.text, text) != NULL, "no '%s' in '%s'", text, heard.last.text);
}
static void expect_unreachable(const char *text) { expect(ARBITER_UNREACHABLE, text); }

Test(arbiter_etcd_io, goes_on_to_the_next_member_and_stays_there) {
    make(3, NULL, 0);
    servers[0].status = 503;
    servers[0].body = NO_LEADER;
    cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
    cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
    cr_expect_eq(servers[0].n_asked, 1);
    cr_expect_eq(servers[1].n_asked, 2);
    cr_expect_eq(servers[1].n_conns, 1);
    cr_expect_eq(servers[2].n_asked, 0);
}

/* Whoever connects there is refused. Its port is kept: a free one may be another's at once. */
static int deafen(struct server *v) {
    struct addr at;
    listener_free(TAKE_PTR(v->listener));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&at.ss, at.len), 0);
    cr_assert_eq(addr_of_socket(fd, &at), 0);
    addr_to_text(&at, v->name);
    return fd;
}

Test(arbiter_etcd_io, names_each_members_error) {
    int deaf = deafen(&servers[2]);
    make(3, NULL, 0);
    servers[0].status = 503;
    servers[0].body = NO_LEADER;
    servers[1].body = "[]";
    (void)ask(ARBITER_CLAIM);
    _cleanup_(freep) char *text = xasprintf(
        "etcd did not answer: %s: etcdserver: no leader (HTTP status 503); %s: its answer makes no sense: field "
        "\"responses\" is missing; %s: Connection refused",
        servers[0].name, servers[1].name, servers[2].name);
    expect_unreachable(text);
    (void)close(deaf);
}

Test(arbiter_etcd_io, gives_each_silent_member_its_share) {
    servers[0].body = NULL;
    uint64_t took;
    unsigned tries = 0;
    do { /* once may be slow, when the machine stands still */
        arbiter_free(arbiter);
        make(3, NULL, 3 * NS_PER_S);
        uint64_t before = clock_now_ns();
        cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
        took = clock_now_ns() - before;
        cr_expect(took >= NS_PER_S, "%u ms", (unsigned)(took / NS_PER_MS));
    } while (took >= 2 * NS_PER_S && ++tries < 5);
    cr_expect_lt(tries, 5, "%u ms", (unsigned)(took / NS_PER_MS));
}

Test(arbiter_etcd_io, silence_of_all_ends_in_time_and_says_who_was_not_asked) {
    for (int i = 0; i < SERVERS; i++)
        servers[i].body = NULL;
    static const char last[] = "; 1 more not asked in time"; /* 2 where this process had not its time */
    uint64_t took;
    unsigned tries = 0;
    do {
        arbiter_free(arbiter);
        make(3, NULL, 1500 * NS_PER_MS);
        uint64_t before = clock_now_ns();
        (void)ask(ARBITER_READ);
        took = clock_now_ns() - before;
        cr_expect(took >= 1500 * NS_PER_MS);
    } while ((took >= 3 * NS_PER_S || strstr(heard.last.text, last) == NULL) && ++tries < 9);
    cr_expect_lt(tries, 9, "%u ms", (unsigned)(took / NS_PER_MS));
    expect_unreachable(last);
}

Test(arbiter_etcd_io, logs_in_once_and_again_when_the_token_ends) {
    make(1, "joe", 0);
    servers[0].token = "one";
    cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
    cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
    cr_expect_eq(servers[0].n_logins, 1);
    servers[0].token = "two";
    cr_expect_eq(ask(ARBITER_READ)->result, ARBITER_OK);
    cr_expect_eq(servers[0].n_logins, 2);
}

Test(arbiter_etcd_io, a_token_that_never_works_is_not_asked_for_without_end) {
    make(1, "joe", 0);
    servers[0].status = 401;
    servers[0].body = BAD_TOKEN;
    servers[0].token = "one";
    (void)ask(ARBITER_READ);
    expect_unreachable("etcdserver: invalid auth token (HTTP status 401)");
    cr_expect_leq(servers[0].n_logins, 4);
}

Test(arbiter_etcd_io, a_token_is_not_sent_where_no_user_was_given) {
    make(1, NULL, 0);
    servers[0].token = "one";
    (void)ask(ARBITER_READ);
    expect_unreachable("it wants a user and a password, and none were given: etcdserver: user name is empty");
    cr_expect_eq(servers[0].n_logins, 0);
}

Test(arbiter_etcd_io, an_etcd_that_never_agrees_is_left) {
    make(1, NULL, 0);
    (void)ask(ARBITER_CLAIM); /* it says "written" and shows nothing */
    expect(ARBITER_RUINED, "another program changed these keys");
}

Test(arbiter_etcd_io, answers_come_in_order_and_too_many_are_refused) {
    make(1, NULL, 0);
    for (uint64_t id = 1; id <= ARBITER_REQUESTS_MAX + 2; id++)
        start(ARBITER_READ, id, NULL);
    run_until(ARBITER_REQUESTS_MAX + 2);
    cr_expect_eq(heard.ids[0], ARBITER_REQUESTS_MAX + 1);
    cr_expect_eq(heard.ids[1], ARBITER_REQUESTS_MAX + 2);
    for (unsigned i = 0; i < ARBITER_REQUESTS_MAX; i++)
        cr_expect_eq(heard.ids[i + 2], i + 1);
    cr_expect_eq(heard.last.result, ARBITER_OK);
}

Test(arbiter_etcd_io, those_behind_a_slow_one_end_in_their_own_time) {
    make(1, NULL, 1000 * NS_PER_MS);
    servers[0].body = NULL;
    uint64_t took;
    unsigned id = 0, tries = 0;
    do { /* once may be slow, when the machine stands still */
        uint64_t before = clock_now_ns();
        for (unsigned end = id + 5; id < end;)
            start(ARBITER_READ, ++id, NULL);
        run_until(id);
        took = clock_now_ns() - before;
        cr_expect(took >= 1000 * NS_PER_MS, "%u ms", (unsigned)(took / NS_PER_MS));
    } while (took >= 4000 * NS_PER_MS && ++tries < 5);
    cr_expect_lt(tries, 5, "one after the other: %u ms", (unsigned)(took / NS_PER_MS));
    expect_unreachable("no answer");
}

Test(arbiter_etcd_io, who_is_gone_is_not_answered) {
    make(1, NULL, 0);
    int me, other;
    start(ARBITER_READ, 1, &me);
    start(ARBITER_READ, 2, &other);
    start(ARBITER_READ, 3, &me);
    arbiter_cancel(arbiter, &me);
    run_until(1);
    cr_expect_eq(heard.ids[0], 2);
    /* while it is being asked, and when its answer is there already */
    servers[0].body = NULL;
    start(ARBITER_READ, 4, &me);
    unsigned asked = servers[0].n_asked;
    rig_loop_until(loop, servers[0].n_asked != asked);
    arbiter_cancel(arbiter, &me);
    servers[0].body = EMPTY;
    start(ARBITER_READ, 5, &other);
    run_until(2);
    cr_expect_eq(heard.ids[1], 5);
    rig_loop_turns(loop, 10);
    cr_expect_eq(heard.n, 2);
}

Test(arbiter_etcd_io, may_be_freed_from_an_answer_and_at_any_time) {
    for (int turns = 0; turns < 6; turns++) {
        make(2, "joe", 0);
        start(ARBITER_CLAIM, 1, NULL);
        start(ARBITER_READ, 2, NULL);
        rig_loop_turns(loop, turns);
        arbiter_free(arbiter);
        arbiter = NULL;
    }
    cr_expect_eq(heard.n, 0);
    make(1, NULL, 0);
    heard.free_arbiter = true;
    start(ARBITER_READ, 3, NULL);
    start(ARBITER_READ, 4, NULL);
    run_until(1);
    rig_loop_turns(loop, 10);
    cr_expect_eq(heard.n, 1);
}
