/* How a connection begins: with and without keys, over real sockets on loopback. The kernel is not asked (there is no
 * gate), so each side takes the other for one of another machine. */
#include "rendezvous/protocol/conn_io.h"

#include "base/frame.h"
#include "io/net/listen.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

struct end {
    struct conn *conn;
    struct auth *auth;
    struct wire_message heard; /* the last one */
    unsigned n_heard, n_opened;
    bool closed, waits; /* waits: its handshakes have to */
    int code;
    char text[512];
    bool free_on_close, free_on_open;
    bool comes_from_ours; /* the callee's caller, by the kernel */
};

static struct loop *loop;
static struct listener *listener;
static struct addr at;
static struct end caller, callee;
static int raw_fd;      /* the other end of a caller, if that is a socket of the test */
static char line[1024]; /* the last one that somebody was told */

#define wait_until(condition) rig_loop_until(loop, condition)

static void turn_a_few_times(void) { rig_loop_turns(loop, 50); }

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct end *e = arg;
    e->heard = *m;
    e->n_heard++;
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct end *e = arg;
    cr_assert_not(e->closed, "once");
    e->closed = true;
    e->code = code;
    (void)snprintf(e->text, sizeof e->text, "%s", text);
    if (e->free_on_close)
        conn_free(TAKE_PTR(e->conn));
}

static void on_open(void *arg, struct conn *c) {
    struct end *e = arg;
    e->n_opened++;
    if (e == &callee)
        conn_send(
            c, &(struct wire_message){.kind = WIRE_HELLO,
                                      .hello = {.version = WIRE_VERSION, .incarnation = 42, .run_id = "secret run"}});
    if (e->free_on_open)
        conn_free(TAKE_PTR(e->conn));
}

static bool on_handshake(void *arg, struct conn *c) { return !((struct end *)arg)->waits; }

static const struct conn_ops ops = {
    .on_message = on_message, .on_closed = on_closed, .on_open = on_open, .on_handshake = on_handshake};

static void on_accept(void *arg, int fd, const struct addr *peer) {
    callee.conn = conn_new(loop, fd, callee.auth, &ops, &callee);
    if (callee.comes_from_ours)
        conn_is_ours(callee.conn);
}

static void begin(void) {
    caller = callee = (struct end){0};
    line[0] = '\0';
    cr_assert_eq(loop_new(&loop), 0);
    listener = listener_new(loop, listen_at("127.0.0.1", &at), on_accept, NULL);
}

static void finish(void) {
    conn_free(caller.conn);
    conn_free(callee.conn);
    listener_free(listener);
    auth_free(caller.auth);
    auth_free(callee.auth);
    loop_free(loop);
    if (raw_fd > 0)
        (void)close(raw_fd);
}

static void on_line(void *arg, const char *text) { (void)snprintf(line, sizeof line, "%s", text); }

/* The keys are bytes that are all the same; 0 ends them. */
static struct auth *auth_with(const char *keys) {
    struct auth_config config = {.mode = AUTH_AUTO, .run_id = "run", .line = on_line};
    struct keyring *ring;
    struct auth *a;
    struct err err = {0};
    cr_assert_eq(keyring_new(&ring, &err), 0, "%s", err.text);
    for (const char *k = keys; *k != '\0'; k++) {
        uint8_t secret[AUTH_SECRET_BYTES];
        memset(secret, *k, sizeof secret);
        cr_assert_eq(keyring_add(ring, secret, AUTH_FROM_HOME, &err), 0, "%s", err.text);
    }
    config.keys = ring;
    cr_assert_eq(auth_new(loop, &config, &a, &err), 0, "%s", err.text);
    keyring_free(ring);
    return a;
}

static void call(void) { cr_assert_eq(conn_connect(loop, NULL, &at, caller.auth, &ops, &caller, &caller.conn), 0); }

/* With these keys. */
static void call_with(const char *here, const char *there) {
    caller.auth = auth_with(here);
    callee.auth = auth_with(there);
    call();
}

static void caller_ends(int code) {
    wait_until(caller.closed);
    cr_assert_eq(caller.code, code, "%d: %s", caller.code, caller.text);
}

static void assert_messages_pass(bool secured) {
    conn_call(caller.conn); /* waits until it is known who is there */
    wait_until(callee.n_heard > 0 && caller.n_heard > 0);
    cr_assert_eq(callee.heard.kind, WIRE_CALL);
    cr_assert_eq(caller.heard.kind, WIRE_HELLO);
    cr_assert_str_eq(caller.heard.hello.run_id, "secret run");
    cr_assert(caller.n_opened == 1 && callee.n_opened == 1);
    cr_assert_eq(conn_is_secured(caller.conn), secured);
    cr_assert_eq(conn_is_secured(callee.conn), secured);
    cr_assert_eq(auth_n_refused(callee.auth), 0);
}

Test(conn_io, who_have_a_key_in_common_talk, .init = begin, .fini = finish) {
    call_with("ab", "cb");
    assert_messages_pass(true);
}

Test(conn_io, nobody_has_a_key, .init = begin, .fini = finish) {
    call_with("", "");
    assert_messages_pass(false);
}

Test(conn_io, without_anything_to_know_by, .init = begin, .fini = finish) {
    call();
    assert_messages_pass(false);
}

Test(conn_io, a_long_message_goes_through_either_way, .init = begin, .fini = finish) {
    struct wire_message m = {.kind = WIRE_NODE_SUMMARY};
    memset(m.node_summary.text, 'x', sizeof m.node_summary.text - 1);
    call_with("a", "a");
    conn_send(caller.conn, &m);
    wait_until(callee.n_heard > 0);
    cr_assert_eq(callee.heard.kind, WIRE_NODE_SUMMARY);
    cr_assert_str_eq(callee.heard.node_summary.text, m.node_summary.text);
    conn_send(callee.conn, &m);
    wait_until(caller.heard.kind == WIRE_NODE_SUMMARY);
    cr_assert_str_eq(caller.heard.node_summary.text, m.node_summary.text);
}

Test(conn_io, without_a_common_key_nothing_is_said, .init = begin, .fini = finish) {
    call_with("a", "b");
    conn_call(caller.conn);
    caller_ends(-EKEYREJECTED);
    assert_has(caller.text, "the agent there admits only those who have its key");
    conn_free(TAKE_PTR(caller.conn));
    wait_until(callee.closed);
    cr_assert(callee.n_opened == 0 && callee.n_heard == 0);
}

Test(conn_io, a_key_here_and_none_there, .init = begin, .fini = finish) {
    call_with("a", "");
    caller_ends(-EKEYREJECTED);
    assert_has(caller.text, "has no key and admits anybody");
}

Test(conn_io, a_handshake_can_have_to_wait, .init = begin, .fini = finish) {
    caller.auth = auth_with("a");
    callee.auth = auth_with("a");
    callee.waits = true;
    call();
    conn_call(caller.conn);
    wait_until(callee.conn != NULL);
    turn_a_few_times();
    cr_assert(callee.n_opened == 0 && !callee.closed);
    conn_go_on(callee.conn);
    wait_until(callee.n_heard > 0);
    conn_go_on(callee.conn);
    cr_assert_eq(callee.n_opened, 1);
}

static int raw_call(const void *bytes, size_t len) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&at.ss, at.len), 0);
    cr_assert_eq(send(fd, bytes, len, 0), (ssize_t)len);
    return fd;
}

static size_t frame_of(const struct wire_message *m, uint8_t *out) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(m, &frame);
    memcpy(out, frame.data, frame.len);
    return frame.len;
}

/* What a raw caller hears who says this after its call. */
static size_t heard_after(const void *bytes, size_t len, uint8_t out[4096]) {
    uint8_t first[256];
    int fd = raw_call(first, frame_of(&call_message, first));
    callee.free_on_close = true;
    turn_a_few_times(); /* it is greeted */
    cr_assert_eq(send(fd, bytes, len, 0), (ssize_t)len);
    wait_until(callee.closed);
    ssize_t got = recv(fd, out, 4096, MSG_DONTWAIT);
    cr_assert_eq(close(fd), 0);
    return (size_t)MAX2(got, 0);
}

static void assert_only_greeted(const uint8_t *bytes, size_t len) {
    size_t size;
    struct wire_message m;
    cr_assert_eq(frame_size(bytes, len, WIRE_MESSAGE_MAX, &size), 0);
    cr_assert_eq(size, len, "nothing else");
    cr_assert_eq(wire_decode((const char *)bytes + FRAME_HEADER_BYTES, len - FRAME_HEADER_BYTES, &m, NULL), 0);
    cr_assert_eq(m.kind, WIRE_GREETING);
    cr_assert(!m.greeting.open && m.greeting.n_keys == 1);
}

Test(conn_io, plain_bytes_are_refused_where_there_is_a_key, .init = begin, .fini = finish) {
    uint8_t out[4096];
    callee.auth = auth_with("a");
    size_t n = heard_after("\x10\x00\x00\x00{\"kind\":\"LEAVE\"}", 20, out);
    assert_only_greeted(out, n);
    cr_assert_eq(callee.code, -EKEYREJECTED);
    cr_assert_eq(auth_n_refused(callee.auth), 1);
    assert_has(line, "it came without a key");
}

/* There is no gate here that could be asked again. */
Test(conn_io, whom_the_kernel_has_called_ours_needs_no_key, .init = begin, .fini = finish) {
    callee.auth = auth_with("a");
    callee.comes_from_ours = true;
    call();
    assert_messages_pass(false);
}

Test(conn_io, what_only_begins_like_a_handshake_is_refused, .init = begin, .fini = finish) {
    static const char junk[] = "\x16\x03\x01\x00\x05 junk and more of it";
    uint8_t out[4096];
    callee.auth = auth_with("a");
    (void)heard_after(junk, sizeof junk - 1, out);
    cr_assert_eq(callee.code, -EKEYREJECTED);
    cr_assert_eq(auth_n_refused(callee.auth), 1);
    cr_assert_eq(callee.n_opened, 0);
}

Test(conn_io, a_handshake_where_nobody_has_a_key, .init = begin, .fini = finish) {
    uint8_t out[4096];
    callee.auth = auth_with("");
    (void)heard_after("\x16\x03\x01\x02\x00\x01", 6, out);
    cr_assert_eq(callee.code, -EKEYREJECTED);
}

Test(conn_io, who_begins_without_a_call_is_disconnected, .init = begin, .fini = finish) {
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {{"\x10\x00\x00\x00{\"kind\":\"LEAVE\"}", 20},
                 {"\x01\x10\x00\x00{", 5}, /* longer than any first message */
                 {"\x16\x03\x01\x02\x00\x01", 6},
                 {"GET / HTTP/1.1\r\n\r\n", 18}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        callee = (struct end){.free_on_close = true};
        int fd = raw_call(cases[i].bytes, cases[i].len);
        wait_until(callee.closed);
        cr_assert_eq(callee.code, -EPROTO, "%zu: %d", i, callee.code);
        cr_assert_eq(close(fd), 0);
    }
}

static const char *said;
static size_t said_len;

static void say(void *arg, int fd, const struct addr *peer) {
    cr_assert_eq(send(fd, said, said_len, MSG_NOSIGNAL), (ssize_t)said_len);
    raw_fd = fd;
}

static void call_raw(const void *bytes, size_t len) {
    said = bytes;
    said_len = len;
    listener_free(listener);
    listener = listener_new(loop, listen_at("127.0.0.1", &at), say, NULL);
    call();
    conn_call(caller.conn);
}

/* What came on the raw side: only the first call. */
static void assert_only_called(void) {
    uint8_t got[4096], wanted[256];
    size_t n = frame_of(&call_message, wanted);
    turn_a_few_times();
    cr_assert_eq(recv(raw_fd, got, sizeof got, MSG_DONTWAIT), (ssize_t)n);
    cr_assert_eq(memcmp(got, wanted, n), 0);
}

Test(conn_io, who_has_a_key_does_not_believe_that_none_is_needed, .init = begin, .fini = finish) {
    struct wire_message m = {.kind = WIRE_GREETING, .greeting = {.version = WIRE_VERSION, .open = true}};
    uint8_t bytes[4096];
    caller.auth = auth_with("a");
    call_raw(bytes, frame_of(&m, bytes));
    caller_ends(-EKEYREJECTED);
    assert_only_called();
}

/* Of the key that the caller has from now on. */
static size_t greeting_with_key(uint8_t *out) {
    struct wire_message m = {.kind = WIRE_GREETING, .greeting = {.version = WIRE_VERSION, .n_keys = 1}};
    struct auth_greeting g;
    caller.auth = auth_with("a");
    auth_greet(caller.auth, &g);
    m.greeting.ids[0] = g.ids[0];
    return frame_of(&m, out);
}

Test(conn_io, who_says_a_key_must_prove_it, .init = begin, .fini = finish) {
    uint8_t bytes[4096];
    size_t n = greeting_with_key(bytes);
    struct wire_message m = {.kind = WIRE_HELLO, .hello = {.version = WIRE_VERSION, .incarnation = 7}};
    n += frame_of(&m, bytes + n); /* in plain */
    call_raw(bytes, n);
    caller_ends(-EKEYREJECTED);
    cr_assert_eq(caller.n_heard, 0);
    assert_has(caller.text, "failed to prove that it has this node's key");
}

Test(conn_io, an_end_of_the_handshake_is_no_verdict, .init = begin, .fini = finish) {
    uint8_t bytes[4096];
    call_raw(bytes, greeting_with_key(bytes));
    turn_a_few_times();
    cr_assert_eq(shutdown(raw_fd, SHUT_WR), 0);
    wait_until(caller.closed);
    cr_assert_eq(caller.code, -ECONNABORTED, "%d: %s", caller.code, caller.text);
}

Test(conn_io, another_version_is_told_and_nothing_else, .init = begin, .fini = finish) {
    static const char *const texts[] = {
        "{\"kind\":\"GREETING\",\"version\":99,\"new\":[]}",
        "{\"kind\":\"HELLO\",\"version\":8,\"incarnation\":\"00000000000000a1\",\"run_id\":\"r\"}"};
    static const uint32_t versions[] = {99, 8};
    caller.auth = auth_with("a");
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        uint8_t bytes[256];
        size_t n = strlen(texts[i]);
        frame_header(n, bytes);
        memcpy(bytes + FRAME_HEADER_BYTES, texts[i], n);
        caller.n_heard = 0;
        call_raw(bytes, FRAME_HEADER_BYTES + n);
        wait_until(caller.n_heard > 0);
        cr_assert_eq(caller.heard.kind, WIRE_HELLO);
        cr_assert_eq(caller.heard.hello.version, versions[i]);
        cr_assert_eq(caller.heard.hello.incarnation, 0);
        assert_only_called();
        conn_free(TAKE_PTR(caller.conn));
    }
}

Test(conn_io, a_hello_of_this_version_needs_a_greeting, .init = begin, .fini = finish) {
    struct wire_message m = {.kind = WIRE_HELLO, .hello = {.version = WIRE_VERSION, .incarnation = 7}};
    uint8_t bytes[4096];
    call_raw(bytes, frame_of(&m, bytes));
    caller_ends(-EPROTO);
}

Test(conn_io, nobody_greets_twice, .init = begin, .fini = finish) {
    struct wire_message m = {.kind = WIRE_GREETING, .greeting = {.version = WIRE_VERSION, .open = true}};
    uint8_t bytes[4096];
    size_t n = frame_of(&m, bytes);
    n += frame_of(&m, bytes + n);
    call_raw(bytes, n);
    caller_ends(-EPROTO);
}

Test(conn_io, it_can_be_freed_at_any_moment, .init = begin, .fini = finish) {
    caller.auth = auth_with("a");
    callee.auth = auth_with("a");
    for (int turns = 0; turns < 40; turns++) {
        call();
        conn_call(caller.conn);
        rig_loop_turns(loop, turns);
        conn_free(TAKE_PTR(caller.conn));
        turn_a_few_times();
        conn_free(TAKE_PTR(callee.conn));
        callee.closed = false;
    }
    for (int i = 0; i < 2; i++) {
        struct end *e = i == 0 ? &caller : &callee;
        caller.closed = callee.closed = false;
        caller.n_opened = callee.n_opened = 0;
        e->free_on_open = true;
        call();
        turn_a_few_times();
        cr_assert_null(e->conn);
        e->free_on_open = false;
        conn_free(TAKE_PTR(caller.conn));
        conn_free(TAKE_PTR(callee.conn));
    }
}

/* What waits is bounded, too. */
Test(conn_io, who_waits_for_a_greeting_holds_no_more_than_others, .init = begin, .fini = finish) {
    static char text[65536];
    call();
    conn_set_unsent_max(caller.conn, sizeof text);
    memset(text, ' ', sizeof text);
    for (int i = 0; i < 4; i++)
        conn_send_frame(caller.conn, text, sizeof text / 2);
    cr_assert_leq(conn_unsent(caller.conn), sizeof text + 256);
    wait_until(caller.closed);
}
