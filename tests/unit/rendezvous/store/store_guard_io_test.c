/* Who may use the store. The addresses of clients are made up; what is known of them, and whose they are, the test
 * says. */
#include "rendezvous/store/store_guard_io.h"

#include "io/net/listen.h"
#include "rig/fds.h"
#include "rig/loop_rig.h"

#define ASKED_MAX 64

static struct {
    struct loop *loop;
    struct store_guard *guard;
    struct peer_gate *gate;
    int listening, clients[64]; /* closed at the end */
    unsigned n_clients;
    struct addr at;
    enum peer_source source;
    unsigned n_asked, n_in, n_lines, line_of;
    uint32_t ids[ASKED_MAX];
    struct addr client, store;
    int in; /* the last that was let in; -1: none */
    char line[512];
} w;

static enum peer_source find(void *arg, const struct addr *client) { return w.source; }

static void on_ask(void *arg, uint32_t id, const struct addr *client, const struct addr *store) {
    if (w.n_asked < ASKED_MAX)
        w.ids[w.n_asked] = id;
    w.n_asked++;
    w.client = *client;
    w.store = *store;
}

static void on_line(void *arg, const char *line) {
    w.n_lines++;
    (void)snprintf(w.line, sizeof w.line, "%s", line);
}

static void let_in(void *arg, int fd) {
    if (w.in >= 0)
        (void)close(w.in);
    w.in = fd;
    w.n_in++;
}

static void last_leaves(void) { (void)close(w.clients[--w.n_clients]); }

static void finish(void) {
    store_guard_free(w.guard);
    if (w.in >= 0)
        (void)close(w.in);
    while (w.n_clients > 0)
        last_leaves();
    peer_gate_free(w.gate);
    (void)close(w.listening);
    loop_free(w.loop);
    memset(&w, 0, sizeof w);
}

static void begin_with(enum store_check check, bool authenticated, uint64_t answer_ns) {
    if (w.loop != NULL)
        finish();
    w.in = -1;
    w.source = PEER_SOURCE_MEMBER;
    cr_assert_eq(loop_new(&w.loop), 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &w.at), 0);
    cr_assert_eq(listen_socket(&w.at, 64, &w.listening, NULL), 0);
    cr_assert_eq(addr_of_socket(w.listening, &w.at), 0);
    struct store_guard_config config = {
        .check = check, .answer_ns = answer_ns, .find = find, .ask = on_ask, .log = on_line};
    w.guard = store_guard_new(w.loop, &config);
    store_guard_apply(w.guard, authenticated);
}

static void begin(void) { begin_with(STORE_CHECK_UID, true, 0); }

TestSuite(store_guard_io, .init = begin, .fini = finish, .timeout = 60);

static int connect_to_it(void) {
    int fd = w.clients[w.n_clients++] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&w.at.ss, w.at.len), 0);
    return fd;
}

/* One that has sent something, as if it came from there. Returns its own end. */
static int come(const char *from) {
    struct addr peer;
    int fd = connect_to_it();
    cr_assert_eq(send(fd, "word", 4, 0), 4);
    int taken = accept4(w.listening, NULL, NULL, SOCK_CLOEXEC);
    cr_assert_geq(taken, 0);
    char bytes[4];
    cr_assert_eq(recv(taken, bytes, 4, MSG_PEEK | MSG_WAITALL), 4);
    cr_assert_eq(addr_from_literal(from, 40000, &peer), 0);
    store_guard_take(w.guard, taken, &peer, let_in, &w);
    return fd;
}

static bool is_closed(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void assert_admitted(int fd) {
    char bytes[4];
    cr_assert_eq(w.n_in, 1);
    cr_assert_eq(recv(w.in, bytes, 4, MSG_DONTWAIT), 4, "nothing of it was read");
    cr_assert_not(is_closed(fd));
    cr_assert_eq(store_guard_waiting(w.guard), 0);
    cr_assert_eq(store_guard_refused(w.guard), 0);
}

static void assert_refused(int fd, const char *why) {
    cr_assert_eq(w.n_in, 0);
    cr_assert(is_closed(fd));
    cr_assert_eq(w.n_lines, 1);
    assert_has(w.line, why);
    cr_assert_eq(store_guard_waiting(w.guard), 0);
    cr_assert_eq(store_guard_refused(w.guard), 1);
}

static void say(unsigned i, enum peer_owner_kind owner) {
    store_guard_answer(w.guard, w.ids[i], &(struct peer_owner){.kind = owner, .uid = 77});
}

Test(store_guard_io, a_client_waits_for_the_word_of_its_agent) {
    int fd = come("10.1.2.3");
    cr_assert(w.n_asked == 1 && w.n_in == 0 && store_guard_waiting(w.guard) == 1);
    cr_assert_eq(addr_port(&w.client), 40000);
    cr_assert(addr_same_host(&w.store, &w.at) && addr_port(&w.store) == addr_port(&w.at));
    store_guard_answer(w.guard, w.ids[0] + 1, &(struct peer_owner){.kind = PEER_OURS});
    store_guard_answer(w.guard, 0, &(struct peer_owner){.kind = PEER_OURS});
    cr_assert_eq(w.n_in, 0, "that is not its number");
    say(0, PEER_OURS);
    assert_admitted(fd);
    say(0, PEER_OURS);
    cr_assert(w.n_in == 1 && w.n_lines == 0);
}

Test(store_guard_io, what_its_agent_says_decides) {
    static const struct {
        enum peer_owner_kind owner;
        bool in;
        const char *line;
    } rows[] = {
        {PEER_OURS, true, NULL},
        {PEER_OTHER_USER, false, "from 10.1.2.3: it belongs to uid 77 there"},
        {PEER_CLOSED, false, "it was closed before its agent was asked"},
        {PEER_ELSEWHERE, false, "the kernel of the node there does not know it"},
        {PEER_TRANSLATED, true, "addresses are translated (NAT) on the way from 10.1.2.3"},
        {PEER_UNKNOWN, true, "the kernel of the node at 10.1.2.3 does not report"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        begin();
        int fd = come("10.1.2.3");
        (void)come("10.1.2.3");
        say(0, rows[i].owner);
        cr_assert_eq(w.n_in, rows[i].in);
        cr_assert_eq(is_closed(fd), !rows[i].in);
        cr_assert_eq(w.n_lines, rows[i].line != NULL);
        if (rows[i].line != NULL)
            assert_has(w.line, rows[i].line);
        say(1, rows[i].owner);
        cr_assert_eq(w.n_lines, rows[i].line != NULL, "once");
        cr_assert_eq(store_guard_refused(w.guard), rows[i].in ? 0 : 2);
    }
}

Test(store_guard_io, what_is_known_of_the_address_decides) {
    static const struct {
        enum store_check check;
        bool authenticated;
        enum peer_source source;
        bool in, asked;
        unsigned n_lines;
    } rows[] = {
        {STORE_CHECK_UID, true, PEER_SOURCE_UNKNOWN, false, false, 1},
        {STORE_CHECK_UID, true, PEER_SOURCE_MEMBER, false, true, 0},
        {STORE_CHECK_UID, true, PEER_SOURCE_DIRECT, false, true, 0},
        {STORE_CHECK_UID, true, PEER_SOURCE_TRANSLATED, true, false, 1},
        {STORE_CHECK_MEMBER, true, PEER_SOURCE_UNKNOWN, false, false, 1},
        {STORE_CHECK_MEMBER, true, PEER_SOURCE_MEMBER, true, false, 0},
        {STORE_CHECK_MEMBER, true, PEER_SOURCE_DIRECT, true, false, 0},
        {STORE_CHECK_MEMBER, true, PEER_SOURCE_TRANSLATED, true, false, 0},
        {STORE_CHECK_NONE, true, PEER_SOURCE_UNKNOWN, true, false, 0},
        {STORE_CHECK_UID, false, PEER_SOURCE_UNKNOWN, true, false, 0},
        {STORE_CHECK_MEMBER, false, PEER_SOURCE_UNKNOWN, true, false, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        begin_with(rows[i].check, rows[i].authenticated, 0);
        w.source = rows[i].source;
        int fd = come("10.1.2.3");
        cr_assert_eq(w.n_in, rows[i].in, "%zu", i);
        cr_assert_eq(w.n_asked, rows[i].asked, "%zu", i);
        cr_assert_eq(w.n_lines, rows[i].n_lines, "%zu: %s", i, w.line);
        cr_assert_eq(is_closed(fd), !rows[i].in && !rows[i].asked, "%zu", i);
    }
}

Test(store_guard_io, this_machine_is_not_asked_for) {
    w.source = PEER_SOURCE_UNKNOWN;
    int fd = come("127.0.0.1");
    assert_admitted(fd);
}

Test(store_guard_io, the_gate_judges_those_of_this_machine) {
    if (peer_gate_new(w.listening, on_line, NULL, &w.gate, NULL) < 0)
        cr_skip_test("no sock_diag here");
    store_guard_free(w.guard);
    struct store_guard_config config = {.gate = w.gate, .find = find, .ask = on_ask, .log = on_line};
    w.guard = store_guard_new(w.loop, &config);
    for (int applies = 0; applies < 2; applies++) {
        struct addr peer;
        store_guard_apply(w.guard, applies);
        int fd = connect_to_it();
        cr_assert_eq(addr_of_socket(fd, &peer), 0);
        cr_assert_eq(send(fd, "word", 4, 0), 4);
        int taken = accept4(w.listening, NULL, NULL, SOCK_CLOEXEC);
        store_guard_take(w.guard, dup(taken), &peer, let_in, &w);
        cr_assert_eq(w.n_in, applies + 1u);
        last_leaves();
        store_guard_take(w.guard, taken, &peer, let_in, &w);
        cr_assert_eq(w.n_in, applies + 1u, "it has closed");
        cr_assert_eq(peer_gate_refused(w.gate), applies + 1u);
    }
    cr_assert(w.n_lines == 1 && w.n_asked == 0);
}

Test(store_guard_io, without_an_answer_it_is_closed) {
    begin_with(STORE_CHECK_UID, true, 20 * NS_PER_MS);
    int fd = come("10.1.2.3");
    rig_loop_until(w.loop, store_guard_waiting(w.guard) <= 0);
    assert_refused(fd,
                   "the agent there did not report its owner within 0.0 s; further ones from there are only counted");
    say(0, PEER_OURS);
    cr_assert_eq(w.n_in, 0, "too late");
}

Test(store_guard_io, a_store_that_closes_forgets_its_clients) {
    int fd = come("10.1.2.3"), other = come("10.1.2.3");
    store_guard_forget(w.guard, &w);
    cr_assert_not(is_closed(fd), "in time");
    say(0, PEER_OURS);
    say(1, PEER_OTHER_USER);
    cr_assert(is_closed(fd) && is_closed(other));
    cr_assert(w.n_in == 0 && w.n_lines == 0);
}

/* With 64 descriptors 17 may wait. */
Test(store_guard_io, of_too_many_the_oldest_goes_of_the_address_that_has_most) {
    int few[3], many[20];
    (void)rig_limit_fds(64);
    begin();
    for (unsigned i = 0; i < ARRAY_SIZE(few); i++)
        few[i] = come("10.1.2.3");
    for (unsigned i = 0; i < 14; i++)
        many[i] = come("10.4.5.6");
    cr_assert(store_guard_waiting(w.guard) == 17 && store_guard_refused(w.guard) == 0);
    for (unsigned i = 14; i < ARRAY_SIZE(many); i++) {
        many[i] = come("10.4.5.6");
        cr_assert(is_closed(many[i - 14]), "%u", i);
    }
    cr_assert(store_guard_waiting(w.guard) == 17 && store_guard_refused(w.guard) == 6 && w.n_lines == 1);
    assert_has(w.line, "from 10.4.5.6: more than 17 wait");
    for (unsigned i = 0; i < ARRAY_SIZE(few); i++)
        cr_assert_not(is_closed(few[i]));
}

Test(store_guard_io, many_addresses_do_not_fill_the_log) {
    w.source = PEER_SOURCE_UNKNOWN;
    for (unsigned i = 0; i < STORE_GUARD_TOLD_MAX + 8; i++) {
        const char *from = rig_text("10.1.3.%u", i);
        for (unsigned times = 0; times < 2; times++) {
            (void)come(from);
            last_leaves();
        }
    }
    cr_assert_eq(w.n_lines, STORE_GUARD_TOLD_MAX);
    assert_has(w.line, "; further ones are only counted");
    cr_assert_eq(store_guard_refused(w.guard), 2 * (STORE_GUARD_TOLD_MAX + 8));
}

Test(store_guard_io, who_only_looks_is_not_told) {
    struct addr peer;
    (void)connect_to_it();
    cr_assert_eq(addr_from_literal("10.1.2.3", 40000, &peer), 0);
    store_guard_take(w.guard, accept4(w.listening, NULL, NULL, SOCK_CLOEXEC), &peer, let_in, &w);
    last_leaves();
    say(0, PEER_CLOSED);
    cr_assert(w.n_lines == 0 && store_guard_refused(w.guard) == 1);
}
