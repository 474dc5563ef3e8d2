#include "rendezvous/store/store_io.h"

#include <sys/resource.h>

#include "base/little_endian.h"
#include "base/text/strbuf.h"
#include "rendezvous/store/store_door_io.h"
#include "rendezvous/store/tcpstore_wire.h"
#include "rig/loop_rig.h"

static struct loop *loop;
static struct store_server *server;
static struct store_limits limits;
static struct strbuf logged;
static unsigned n_logged;
static struct strbuf wire;
static int clients[8]; /* closed at the end */
static unsigned n_clients;

static void on_line(void *arg, const char *line) {
    n_logged++;
    strbuf_printf(&logged, "%s\n", line);
}

static struct store_server *start(const char *const *hosts, size_t n) {
    struct addr at[2];
    struct err err = {0};
    struct store_server *s;
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(addr_from_literal(hosts[i], 0, &at[i]), 0);
    const struct store_server_config config = {.listen_at = at, .n_listen_at = n, .limits = limits, .log = on_line};
    cr_assert_eq(store_server_new(loop, &config, &s, &err), 0, "%s", err.text);
    return s;
}

static void set_up(void) {
    limits = STORE_LIMITS_DEFAULT;
    cr_assert_eq(loop_new(&loop), 0);
}
static void tear_down(void) {
    while (n_clients > 0)
        (void)close(clients[--n_clients]);
    store_server_close(server);
    loop_free(loop);
    strbuf_fini(&logged);
    strbuf_fini(&wire);
}
TestSuite(store_io, .init = set_up, .fini = tear_down, .timeout = 60);

static const char *const v4[] = {"127.0.0.1"};

/* To the server, which begins with its first client. */
static int mute_client(void) {
    struct addr at;
    if (server == NULL)
        server = start(v4, 1);
    cr_assert_eq(store_server_addr(server, 0, &at), 0);
    int fd = clients[n_clients++] = socket(at.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&at.ss, at.len), 0);
    return fd;
}
static void leave(int fd) { (void)shutdown(fd, SHUT_RDWR); }

static uint64_t doomsday(void) { return clock_now_ns() + 20 * NS_PER_S; }
static void turn(uint64_t until) {
    cr_assert_eq(loop_turn(loop), 0);
    cr_assert_lt(clock_now_ns(), until, "nothing happened for 20 s");
}

/* Receives exactly n bytes; or, when the server closes before, fewer. */
static size_t receive(int fd, void *out, size_t n) {
    uint64_t until = doomsday();
    size_t got = 0;
    while (got < n) {
        ssize_t r = recv(fd, (char *)out + got, n - got, MSG_DONTWAIT);
        if (r == 0 || (r < 0 && errno != EAGAIN))
            break;
        if (r > 0)
            got += (size_t)r;
        else
            turn(until);
    }
    return got;
}
static void send_all(int fd, const void *data, size_t n) {
    uint64_t until = doomsday();
    size_t sent = 0;
    while (sent < n) {
        ssize_t r = send(fd, (const char *)data + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (r < 0 && errno != EAGAIN)
            return; /* the server closed: the test looks at that */
        if (r > 0)
            sent += (size_t)r;
        else
            turn(until);
    }
}
static void send_wire(int fd) {
    send_all(fd, wire.data, wire.len);
    strbuf_clear(&wire);
}
static bool is_closed(int fd) {
    char c;
    return receive(fd, &c, 1) == 0;
}
static bool is_silent(int fd) { /* nothing comes in a few turns */
    char c;
    rig_loop_turns(loop, 5);
    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}

static void put(uint64_t v, size_t size) {
    uint8_t b[8];
    store_u64le(b, v);
    strbuf_add_bytes(&wire, b, size);
}
static void put_bytes(const char *s, size_t n) {
    put(n, 8);
    strbuf_add_bytes(&wire, s, n);
}
static void put_str(const char *s) { put_bytes(s, strlen(s)); }
static void put_set(const char *k, const char *v) { put(STORE_OP_SET, 1), put_str(k), put_str(v); }
static void put_get(const char *k) { put(STORE_OP_GET, 1), put_str(k); }
static void put_add(const char *k, int64_t n) { put(STORE_OP_ADD, 1), put_str(k), put((uint64_t)n, 8); }
static void put_wait(const char *k) { put(STORE_OP_WAIT, 1), put(1, 8), put_str(k); }
static void put_validate(void) { put(0, 1), put(TCPSTORE_MAGIC, 4); }

static int client(void) {
    int fd = mute_client();
    put_validate();
    put(STORE_OP_PING, 1), put(77, 4);
    send_wire(fd);
    uint8_t nonce[4];
    cr_assert_eq(receive(fd, nonce, 4), 4);
    cr_assert_eq(load_u32le(nonce), 77);
    return fd;
}

static int64_t receive_i64(int fd) {
    uint8_t b[8];
    cr_assert_eq(receive(fd, b, 8), 8);
    return (int64_t)load_u64le(b);
}
static void expect_value(int fd, const char *want) {
    char got[64];
    size_t n = (size_t)receive_i64(fd);
    cr_assert_eq(n, strlen(want));
    cr_assert_eq(receive(fd, got, n), n);
    cr_assert_arr_eq(got, want, n);
}
static void expect_byte(int fd, uint8_t want) {
    uint8_t got;
    cr_assert_eq(receive(fd, &got, 1), 1);
    cr_assert_eq(got, want);
}

static void expect_add(int fd, const char *k, int64_t n, int64_t want) {
    put_add(k, n);
    send_wire(fd);
    cr_assert_eq(receive_i64(fd), want);
}
static void ask_wait(int fd, const char *k) {
    put_wait(k);
    send_wire(fd);
}

Test(store_io, answers_pipelined_requests_in_order) {
    int fd = client();
    put_set("k", "v");
    put_get("k");
    put_add("n", 5);
    put(STORE_OP_PING, 1), put(9, 4);
    put_get("no");
    for (int i = 0; i < 5000; i++) /* more replies than are gathered before they are sent */
        put_add("n", 1);
    send_wire(fd);
    expect_value(fd, "v");
    cr_assert_eq(receive_i64(fd), 5);
    uint8_t nonce[4];
    cr_assert_eq(receive(fd, nonce, 4), 4);
    expect_value(fd, "");
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(receive_i64(fd), 6 + i);
}

Test(store_io, answers_requests_that_come_byte_by_byte) {
    int fd = mute_client();
    put_validate();
    put_set("key", "value");
    put_get("key");
    for (size_t i = 0; i < wire.len; i++) {
        send_all(fd, wire.data + i, 1);
        cr_assert_eq(loop_turn(loop), 0);
    }
    expect_value(fd, "value");
}

Test(store_io, wakes_waiters_on_other_connections) {
    int a = client(), b = client(), c = client();
    ask_wait(a, "k");
    ask_wait(b, "k");
    cr_assert(is_silent(a));
    leave(b);
    put_set("k", "");
    send_wire(c);
    expect_byte(a, STORE_STOP_WAITING);
    put(STORE_OP_CANCEL_WAIT, 1);
    send_wire(a);
    expect_byte(a, STORE_WAIT_CANCELED);
}

Test(store_io, an_item_whose_taker_is_gone_wakes_the_next_waiter) {
    int a = client(), b = client(), c = client();
    ask_wait(a, "queue");
    cr_assert(is_silent(a));
    ask_wait(b, "queue");
    cr_assert(is_silent(b));
    put(STORE_OP_QUEUE_PUSH, 1), put_str("queue"), put_str("item");
    send_wire(c);
    expect_byte(a, STORE_STOP_WAITING);
    cr_assert(is_silent(b));
    leave(a);
    expect_byte(b, STORE_STOP_WAITING);
}

Test(store_io, carries_the_largest_value_both_reachability_to_many) {
    size_t len = limits.value_bytes;
    char *big = xmalloc(len), *back = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        big[i] = (char)(i * 31 >> 4);
    int w = client(), r[3];
    put(STORE_OP_SET, 1), put_str("k"), put_bytes(big, len);
    send_wire(w);
    for (int i = 0; i < 3; i++) {
        r[i] = client();
        ask_wait(r[i], "k");
        expect_byte(r[i], STORE_STOP_WAITING);
        put_get("k");
        send_wire(r[i]);
    }
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(receive_i64(r[i]), (int64_t)len);
        cr_assert_eq(receive(r[i], back, len), len);
        cr_assert_arr_eq(back, big, len);
    }
    put(STORE_OP_SET, 1), put_str("k"), put(len + 1, 8);
    send_wire(w);
    cr_assert(is_closed(w));
    free(big);
    free(back);
}

Test(store_io, one_line_says_which_peer_broke_which_limit) {
    int fd = client();
    struct addr me;
    char peer[ADDR_TEXT_MAX];
    cr_assert_eq(addr_of_socket(fd, &me), 0);
    addr_to_text(&me, peer);
    put(STORE_OP_APPEND, 1), put(8193, 8);
    send_wire(fd);
    cr_assert(is_closed(fd));
    const char *want = rig_text("store: closed the connection of %s: APPEND: the key is too long (8193)\n", peer);
    cr_assert_str_eq(strbuf_text(&logged), want);
}

Test(store_io, closes_strangers_at_once_and_silently) {
    static const char *const strangers[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", "\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(strangers); i++) {
        int fd = mute_client();
        send_all(fd, strangers[i], strlen(strangers[i]));
        cr_assert(is_closed(fd));
    }
    cr_assert_eq(n_logged, 0);
    cr_assert_eq(store_server_connections(server), 0);
}

Test(store_io, who_does_not_validate_in_time_is_closed_and_others_are_not) {
    limits.validate_ns = 50 * NS_PER_MS;
    int good = client(), mute = mute_client(), half = mute_client();
    send_all(half, "\0\xce\xf7", 3);
    cr_assert(is_closed(mute));
    cr_assert(is_closed(half));
    put_get("k");
    send_wire(good);
    expect_value(good, "");
    cr_assert_eq(n_logged, 0);
}

Test(store_io, accepts_no_more_connections_than_allowed_until_one_goes) {
    limits.connections = 2;
    int a = client();
    (void)client();
    int c = mute_client(); /* the kernel's queue takes it */
    put_validate();
    put_get("k");
    send_wire(c);
    cr_assert(is_silent(c));
    cr_assert_eq(store_server_connections(server), 2);
    leave(a);
    expect_value(c, "");
}

Test(store_io, does_not_read_from_who_does_not_take_its_replies) {
    limits.unsent_bytes = 100000;
    int lazy = client(), other = client();
    static char value[50000];
    put(STORE_OP_SET, 1), put_str("k"), put_bytes(value, sizeof value);
    send_wire(other);
    int rounds = 400; /* 20 MB: more than kernel buffers and limit hold */
    for (int i = 0; i < rounds; i++)
        put_get("k");
    put_add("done", 1);
    send_wire(lazy);
    rig_loop_turns(loop, 200);
    expect_add(other, "done", 0, 0); /* its last request was not looked at yet */
    static char got[sizeof value];
    for (int i = 0; i < rounds; i++) {
        cr_assert_eq(receive_i64(lazy), (int64_t)sizeof value);
        cr_assert_eq(receive(lazy, got, sizeof got), sizeof got);
    }
    cr_assert_eq(receive_i64(lazy), 1);
}

Test(store_io, requests_under_way_count_with_the_store) {
    limits.store_bytes = 1000000;
    int a = client(), b = client();
    static char part[600000];
    put(STORE_OP_SET, 1), put_str("k"), put(700000, 8);
    strbuf_add_bytes(&wire, part, sizeof part);
    send_wire(a);
    cr_assert(is_silent(a));
    put(STORE_OP_SET, 1), put_str("k"), put(700000, 8);
    strbuf_add_bytes(&wire, part, sizeof part);
    send_wire(b);
    cr_assert(is_closed(b));
    assert_has(strbuf_text(&logged), "SET: the store is full");
    leave(a); /* what it held is room again */
    int c = client();
    put(STORE_OP_SET, 1), put_str("k"), put_bytes(part, sizeof part);
    expect_add(c, "n", 1, 1);
}

Test(store_io, two_servers_have_keys_of_their_own) {
    int a = client();
    expect_add(a, "n", 1, 1);
    struct store_server *first = server;
    server = start(v4, 1);
    int b = client();
    expect_add(b, "n", 1, 1);
    store_server_close(first);
    cr_assert(is_closed(a));
    expect_add(b, "n", 1, 2);
}

Test(store_io, closing_ends_connections_in_every_state) {
    int waiting = client(), half = client(), mute = mute_client();
    ask_wait(waiting, "k");
    put(STORE_OP_SET, 1), put_str("k"), put(1000, 8);
    send_wire(half);
    cr_assert(is_silent(mute));
    store_server_close(server);
    server = NULL;
    cr_assert(is_closed(waiting));
    cr_assert(is_closed(half));
    cr_assert(is_closed(mute));
}

Test(store_io, both_loopbacks_get_the_same_free_port) {
    static const char *const both[] = {"127.0.0.1", "::1"};
    server = start(both, 2);
    struct addr a, b;
    cr_assert_eq(store_server_n_addrs(server), 2);
    cr_assert_eq(store_server_addr(server, 0, &a), 0);
    cr_assert_eq(store_server_addr(server, 1, &b), 0);
    cr_assert_eq(addr_port(&a), addr_port(&b));
    cr_assert_eq(store_server_addr(server, 2, &b), -EINVAL);
}

Test(store_io, says_why_it_cannot_listen) {
    server = start(v4, 1);
    struct addr at;
    struct err err = {0};
    struct store_server *second;
    cr_assert_eq(store_server_addr(server, 0, &at), 0);
    const struct store_server_config config = {.listen_at = &at, .n_listen_at = 1, .limits = limits};
    cr_assert_eq(store_server_new(loop, &config, &second, &err), -EADDRINUSE);
    assert_has(err.text, "cannot listen on 127.0.0.1:");
}

Test(store_io, the_store_takes_at_most_a_quarter_of_the_memory) {
    struct store_limits l = store_limits_of_machine();
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    cr_assert_gt(l.store_bytes, 0);
    cr_assert_leq(l.store_bytes, memory / 4);
    cr_assert_leq(l.store_bytes, UINT64_C(8) << 30);
    cr_assert_eq(l.key_bytes, 8192);
}

static void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text), "%s", path);
    (void)close(fd);
}

/* Of control groups version 1, in which this user may make one. */
Test(store_io, the_memory_is_at_most_that_of_the_control_group) {
    char dir[] = "/sys/fs/cgroup/memory/muster-XXXXXX", path[64];
    if (mkdtemp(dir) == NULL)
        cr_skip_test("no group can be made in /sys/fs/cgroup/memory");
    (void)snprintf(path, sizeof path, "%s/memory.limit_in_bytes", dir);
    write_text(path, "67108864");
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    pid_t pid = fork();
    if (pid == 0) {
        write_text(path, "0");
        _exit(store_limits_of_machine().store_bytes == 67108864 / 4 ? 0 : 1);
    }
    int status = rig_status(pid);
    cr_expect_eq(rmdir(dir), 0);
    cr_assert_eq(status, 0, "the limit is not that of the group");
}

struct listen_row {
    const char *text, *first; /* first address, or NULL: not of the form */
    size_t n;
};

Test(store_io, reads_where_to_listen) {
    static const struct listen_row rows[] = {
        {"127.0.0.1:80", "127.0.0.1:80", 1},
        {"127.0.0.1:0", "127.0.0.1:0", 1},
        {"[::1]:29400", "[::1]:29400", 1},
        {":29400", "[::]:29400", 1},
        {"*:29400", "[::]:29400", 1},
        {"localhost:7", "127.0.0.1:7", 2},
        {"127.0.0.1", NULL, 0},
        {"::1:80", NULL, 0},
        {"127.0.0.1:", NULL, 0},
        {"127.0.0.1:65536", NULL, 0},
        {"127.0.0.1:-1", NULL, 0},
        {"127.0.0.1:http", NULL, 0},
        {"example.org:80", NULL, 0},
        {"", NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct addr at[STORE_LISTEN_MAX];
        struct err err = {0};
        size_t n = 0;
        int r = store_listen_parse(rows[i].text, at, &n, &err);
        cr_assert_eq(r, rows[i].first != NULL ? 0 : -EINVAL, "\"%s\"", rows[i].text);
        if (rows[i].first == NULL) {
            cr_assert(strlen(err.text) > 20, "\"%s\"", rows[i].text);
            continue;
        }
        char text[ADDR_TEXT_MAX];
        addr_to_text(&at[0], text);
        cr_assert_str_eq(text, rows[i].first);
        cr_assert_eq(n, rows[i].n, "\"%s\" (needs IPv6)", rows[i].text);
    }
}

Test(store_io, clients_that_come_early_hold_a_quarter_of_the_descriptors) {
    int pairs[18][2];
    char byte;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){32, 64}), 0);
    cr_assert_eq(store_raise_descriptors(), 64);
    struct store_door *door = store_door_new(loop, NULL, on_line, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        store_door_client(door, pairs[i][1]);
    }
    cr_expect_eq(recv(pairs[0][0], &byte, 1, MSG_DONTWAIT), 0, "the oldest makes room for the 18th");
    cr_expect_eq(recv(pairs[1][0], &byte, 1, MSG_DONTWAIT), -1);
    struct addr elsewhere;
    cr_assert_eq(addr_from_literal("127.0.0.1", 1, &elsewhere), 0);
    store_door_pass(door, &elsewhere, false); /* and those that are passed on an eighth, each with two */
    cr_expect_eq(recv(pairs[9][0], &byte, 1, MSG_DONTWAIT), -1);
    cr_expect_eq(recv(pairs[10][0], &byte, 1, MSG_DONTWAIT), 0);
    store_door_free(door);
}
