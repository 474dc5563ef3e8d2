/* What the listener says to nodes and operators, over real sockets on loopback; the agent is the test. */
#include <sys/resource.h>

#include "io/net/listen.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_io.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define PEERS_MAX (RDZV_OPERATORS_MAX + 16)
#define HEARD_MAX 8

struct peer {
    struct conn *conn;
    struct wire_message heard[HEARD_MAX]; /* HELLO is not kept */
    unsigned n_heard, n_rows;
    bool greeted, ended;
};

static struct {
    struct loop *loop;
    struct rdzv_listener *listener;
    struct rdzv_server *server;
    struct addr at;
    struct peer *peers;
    unsigned n_peers;
    uint64_t join_policy[PEERS_MAX], gone[PEERS_MAX];
    unsigned n_join_policy, n_gone, leaves;
    char leave_reason[RDZV_HOST_MAX];
    bool leave_ok;
    struct rdzv_peer leader; /* incarnation 0: not known */
    struct auth *auth;
} w;

#define wait_until(condition) rig_loop_until(w.loop, condition)

static void on_joiner(void *arg, uint64_t incarnation, bool came) {
    if (came)
        w.join_policy[w.n_join_policy++] = incarnation;
    else
        w.gone[w.n_gone++] = incarnation;
}

static void on_leave(void *arg, const char *reason, struct answer *ret) {
    w.leaves++;
    (void)snprintf(w.leave_reason, sizeof w.leave_reason, "%s", reason);
    ret->ok = w.leave_ok;
    (void)snprintf(ret->text, sizeof ret->text, "as you say");
}

static bool find_leader(void *arg, uint32_t *ret_epoch, struct rdzv_peer *ret) {
    if (w.leader.incarnation == 0)
        return false;
    *ret_epoch = 7;
    *ret = w.leader;
    return true;
}

static void begin(void) {
    memset(&w, 0, sizeof w);
    w.peers = xcalloc(PEERS_MAX, sizeof *w.peers);
    cr_assert_eq(loop_new(&w.loop), 0);
    struct rdzv_listener_config config = {.incarnation = 42,
                                          .run_id = "run",
                                          .lease_ns = NS_PER_S,
                                          .heartbeat_ns = NS_PER_S,
                                          .joiner = on_joiner,
                                          .leave = on_leave,
                                          .find_leader = find_leader};
    w.listener = rdzv_listener_new(w.loop, &config);
    rdzv_listener_add(w.listener, listen_at("127.0.0.1", &w.at));
}

static void finish(void) {
    for (unsigned i = 0; i < w.n_peers; i++)
        conn_free(w.peers[i].conn);
    rdzv_listener_free(w.listener);
    rdzv_server_free(w.server);
    auth_free(w.auth);
    loop_free(w.loop);
    free(w.peers);
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct peer *p = arg;
    if (m->kind == WIRE_HELLO) {
        cr_assert_eq(m->hello.incarnation, 42);
        p->greeted = true;
    } else if (p->n_heard < HEARD_MAX) {
        p->heard[p->n_heard++] = *m;
    }
    p->n_rows += m->kind == WIRE_NODES ? m->nodes.n : 0;
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct peer *p = arg;
    p->ended = true;
}

static struct peer *add_peer(void) {
    static const struct conn_ops ops = {.on_message = on_message, .on_closed = on_closed};
    cr_assert_lt(w.n_peers, PEERS_MAX);
    struct peer *p = &w.peers[w.n_peers++];
    cr_assert_eq(conn_connect(w.loop, NULL, &w.at, NULL, &ops, p, &p->conn), 0);
    conn_call(p->conn);
    return p;
}

static struct peer *add_node(uint64_t incarnation) {
    struct peer *p = add_peer();
    conn_send(p->conn, AT(join_of(incarnation)));
    return p;
}

static void command(struct peer *p, const char *run_id, enum command_kind kind, const char *node) {
    struct wire_message m = {.kind = WIRE_COMMAND, .command = {.version = WIRE_VERSION, .command = {.kind = kind}}};
    (void)snprintf(m.command.run_id, sizeof m.command.run_id, "%s", run_id);
    (void)snprintf(m.command.command.node, sizeof m.command.command.node, "%s", node);
    (void)snprintf(m.command.command.reason, sizeof m.command.command.reason, "because");
    conn_send(p->conn, &m);
}

static bool all_ended(void) {
    for (unsigned i = 0; i < w.n_peers; i++)
        if (!w.peers[i].ended)
            return false;
    return true;
}

static void lead(uint32_t max_nodes) {
    struct group_config g;
    group_config_default(&g);
    g.leader_incarnation = 42;
    g.rdzv.min_nodes = g.rdzv.max_nodes = max_nodes;
    struct rdzv_server_config config = {.listener_port = addr_port(&w.at)};
    cr_assert_eq(rdzv_server_new(w.loop, &g, &config, &w.server), 0);
    rdzv_listener_serve(w.listener, w.server);
}

Test(node_listener_io, who_joins_where_nobody_leads_is_sent_away, .init = begin, .fini = finish) {
    const struct peer *p = add_node(1);
    wait_until(w.peers[0].ended);
    cr_assert_eq(p->n_heard, 1);
    cr_assert_eq(p->heard[0].kind, WIRE_REFUSED);
    cr_assert_not(p->heard[0].refused.final);
    cr_assert_eq(w.n_join_policy, 0);
}

/* The listener waits for four bytes before it looks at them. Later, one is enough. */
Test(node_listener_io, the_last_bytes_of_a_message_may_come_alone, .init = begin, .fini = finish) {
    _cleanup_(strbuf_fini) struct strbuf join = {0};
    wire_add_frame(AT(join_of(1)), &join);
    const size_t last = join.len - 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&w.at.ss, w.at.len), 0);
    rig_loop_turns(w.loop, 20); /* it is accepted before it says anything */
    send_message(fd, &call_message);
    cr_assert_eq(send(fd, join.data, last, 0), (ssize_t)last);
    rig_loop_turns(w.loop, 20);
    cr_assert_eq(w.n_join_policy, 0);
    rdzv_listener_join_policy(w.listener, JOIN_POLICY_PARKED, NULL, 0);
    cr_assert_eq(send(fd, join.data + last, 1, 0), 1);
    wait_until(w.n_join_policy >= 1);
    cr_assert_eq(close(fd), 0);
}

Test(node_listener_io, parked_nodes_are_handed_to_the_server_in_order, .init = begin, .fini = finish) {
    rdzv_listener_join_policy(w.listener, JOIN_POLICY_PARKED, NULL, 0);
    for (uint64_t i = 1; i <= 3; i++) {
        (void)add_node(i);
        wait_until(w.n_join_policy >= i);
        cr_assert_eq(w.join_policy[i - 1], i);
    }
    for (unsigned i = 0; i < 3; i++)
        cr_assert(w.peers[i].n_heard == 0 && !w.peers[i].ended, "nothing is said to who is parked");
    lead(8);
    cr_assert_eq(group_nodes(rdzv_server_group(w.server), NULL, 0), 3, "at once, not with the next turn");
    uint64_t nodes[3];
    cr_assert_eq(group_nodes(rdzv_server_group(w.server), nodes, 3), 3);
    for (uint64_t i = 0; i < 3; i++)
        cr_assert_eq(nodes[i], i + 1);
    wait_until(w.peers[0].n_heard >= 1);
    cr_assert_eq(w.peers[0].heard[0].kind, WIRE_WELCOME);
    rdzv_listener_join_policy(w.listener, JOIN_POLICY_SERVED, NULL, 0);
    cr_assert_eq(w.n_gone, 0, "who is handed over has not gone");
}

Test(node_listener_io, parked_nodes_are_sent_to_who_leads, .init = begin, .fini = finish) {
    static const struct {
        const char *addr, *said;
    } cases[] = {{"10.0.0.7,10.0.1.7", "10.0.0.7,10.0.1.7"}, {"127.0.0.1", ""}, {"::1", ""}};
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        rdzv_listener_join_policy(w.listener, JOIN_POLICY_PARKED, NULL, 0);
        struct peer *p = add_node(1);
        wait_until(w.n_join_policy >= i + 1);
        struct rdzv_peer leader = {.incarnation = 9, .port = 4711};
        (void)snprintf(leader.addr, sizeof leader.addr, "%s", cases[i].addr);
        rdzv_listener_join_policy(w.listener, JOIN_POLICY_REDIRECTED, &leader, 3);
        wait_until(all_ended());
        cr_assert_eq(p->n_heard, 1);
        cr_assert_eq(p->heard[0].kind, WIRE_REDIRECT);
        cr_assert_eq(p->heard[0].redirect.epoch, 3);
        cr_assert_eq(p->heard[0].redirect.leader.incarnation, 9);
        cr_assert_eq(p->heard[0].redirect.leader.port, 4711);
        cr_assert_str_eq(p->heard[0].redirect.leader.addr, cases[i].said);
    }
    const struct peer *late = add_node(2);
    wait_until(all_ended());
    cr_assert_eq(late->heard[0].kind, WIRE_REDIRECT);
    cr_assert_eq(w.n_gone, 0);
}

Test(node_listener_io, who_goes_while_parked_is_told_of, .init = begin, .fini = finish) {
    rdzv_listener_join_policy(w.listener, JOIN_POLICY_PARKED, NULL, 0);
    struct peer *p = add_node(1);
    wait_until(w.n_join_policy >= 1);
    conn_free(TAKE_PTR(p->conn));
    wait_until(w.n_gone >= 1);
    cr_assert_eq(w.gone[0], 1);
    p = add_node(2);
    wait_until(w.n_join_policy >= 2);
    conn_send(p->conn, &(struct wire_message){.kind = WIRE_LEAVE}); /* out of place */
    wait_until(w.n_gone >= 2);
}

Test(node_listener_io, a_parked_node_that_comes_back_is_one_node, .init = begin, .fini = finish) {
    rdzv_listener_join_policy(w.listener, JOIN_POLICY_PARKED, NULL, 0);
    (void)add_node(1);
    wait_until(w.n_join_policy >= 1);
    (void)add_node(1);
    wait_until(w.peers[0].ended);
    cr_assert_eq(w.n_join_policy, 1);
    cr_assert_eq(w.n_gone, 0);
    cr_assert_not(w.peers[1].ended);
    lead(8);
    cr_assert_eq(group_nodes(rdzv_server_group(w.server), NULL, 0), 1);
}

Test(node_listener_io, an_operator_is_told_who_leads, .init = begin, .fini = finish) {
    struct peer *p = add_peer();
    command(p, "", COMMAND_STATUS, "");
    wait_until(w.peers[0].n_heard >= 1);
    cr_assert_eq(p->heard[0].kind, WIRE_ANSWER);
    cr_assert_not(p->heard[0].answer.ok);
    assert_has(p->heard[0].answer.text, "no leader is known");
    w.leader = (struct rdzv_peer){.incarnation = 9, .addr = "10.0.0.7", .port = 4711};
    command(p, "run", COMMAND_STOP, "");
    wait_until(w.peers[0].n_heard >= 2);
    cr_assert_eq(p->heard[1].kind, WIRE_REDIRECT);
    cr_assert_eq(p->heard[1].redirect.epoch, 7);
    cr_assert_str_eq(p->heard[1].redirect.leader.addr, "10.0.0.7");
    cr_assert_not(p->ended, "it may ask on");
}

Test(node_listener_io, another_run_is_not_answered_for, .init = begin, .fini = finish) {
    struct peer *p = add_peer();
    command(p, "other", COMMAND_LEAVE, "");
    wait_until(w.peers[0].n_heard >= 1);
    cr_assert_eq(p->heard[0].kind, WIRE_ANSWER);
    cr_assert_not(p->heard[0].answer.ok);
    cr_assert(strstr(p->heard[0].answer.text, "'run'") != NULL && strstr(p->heard[0].answer.text, "'other'") != NULL);
    cr_assert_eq(w.leaves, 0);
}

Test(node_listener_io, leave_is_the_agents_own_matter, .init = begin, .fini = finish) {
    struct peer *p = add_peer();
    w.leave_ok = true;
    command(p, "run", COMMAND_LEAVE, "");
    wait_until(w.peers[0].n_heard >= 1);
    cr_assert(p->heard[0].kind == WIRE_ANSWER && p->heard[0].answer.ok);
    cr_assert_str_eq(p->heard[0].answer.text, "as you say");
    cr_assert_eq(w.leaves, 1);
    cr_assert_str_eq(w.leave_reason, "because");
}

static bool last_welcomed(void) { return w.peers[w.n_peers - 1].n_heard > 0; }

Test(node_listener_io, the_leader_tells_an_operator_of_all_nodes, .init = begin, .fini = finish) {
    lead(60);
    struct peer *p = add_peer();
    for (uint64_t i = 1; i <= 40; i++) {
        (void)add_node(i);
        wait_until(last_welcomed());
    }
    cr_assert_eq(group_nodes(rdzv_server_group(w.server), NULL, 0), 40);
    command(p, "run", COMMAND_STATUS, "");
    wait_until(w.peers[0].n_rows == 40);
    cr_assert_eq(p->heard[0].kind, WIRE_OVERVIEW);
    cr_assert_eq(p->heard[0].overview.n_nodes, 40);
    for (unsigned i = 1; i <= 3; i++) {
        cr_assert_eq(p->heard[i].kind, WIRE_NODES);
        cr_assert_eq(p->heard[i].nodes.first, (i - 1) * RDZV_OVERVIEW_CHUNK);
    }
    command(p, "run", COMMAND_EXCLUDE, "nowhere");
    wait_until(w.peers[0].n_heard >= 5);
    cr_assert_eq(p->heard[4].kind, WIRE_ANSWER);
    cr_assert_not(p->heard[4].answer.ok, "there is no such node");
    command(p, "run", COMMAND_EXCLUDE, "000000000000000c");
    wait_until(w.peers[0].n_heard >= 6);
    cr_assert(p->heard[5].answer.ok, "%s", p->heard[5].answer.text);
    uint64_t began = clock_now_ns();
    for (unsigned n = 2; n <= 100; n++) {
        command(p, "run", COMMAND_STATUS, "");
        wait_until(w.peers[0].n_rows == 40 * n);
    }
    cr_assert_geq(clock_now_ns() - began, 40 * NS_PER_MS, "it gets a tenth of a core: 50 us or more, then a rest");
}

Test(node_listener_io, operators_are_bounded_in_number, .init = begin, .fini = finish) {
    for (unsigned i = 0; i < RDZV_OPERATORS_MAX; i++) {
        struct peer *p = add_peer();
        command(p, "", COMMAND_STATUS, "");
        wait_until(last_welcomed());
        cr_assert_not(p->ended);
    }
    struct peer *more = add_peer();
    command(more, "", COMMAND_STATUS, "");
    wait_until(last_welcomed());
    assert_has(more->heard[0].answer.text, "too many");
    const struct peer *probe = add_peer();
    wait_until(w.peers[w.n_peers - 1].greeted);
    cr_assert(probe->greeted, "a probe is answered all the same");
    cr_assert_not(w.peers[0].ended);
}

static unsigned n_greeted(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < w.n_peers; i++)
        n += w.peers[i].greeted;
    return n;
}

#define FILES 64

static unsigned n_ended(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < w.n_peers; i++)
        n += w.peers[i].ended;
    return n;
}

/* For one more, the oldest goes. */
Test(node_listener_io, those_who_do_not_join_have_half_of_the_descriptors) {
    struct rlimit before, files;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    files = before;
    files.rlim_cur = FILES;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    begin();
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0); /* the peers are in this process, too */
    for (int i = 0; i < FILES / 2 + 8; i++)
        (void)add_peer();
    wait_until(n_greeted() == w.n_peers && n_ended() >= 8);
    cr_assert_eq(n_ended(), 8);
    for (int i = 0; i < 8; i++)
        cr_assert(w.peers[i].ended, "%d", i);
    finish();
}

static struct auth *auth_with_key(void) {
    struct auth_config config = {.run_id = "run"};
    const uint8_t secret[AUTH_SECRET_BYTES] = {7};
    struct keyring *ring;
    struct auth *a;
    struct err err = {0};
    cr_assert_eq(keyring_new(&ring, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_add(ring, secret, AUTH_FROM_FILE, &err), 0, "%s", err.text);
    config.keys = ring;
    cr_assert_eq(auth_new(w.loop, &config, &a, &err), 0, "%s", err.text);
    keyring_free(ring);
    return a;
}

static int call_from(const char *host) {
    struct addr from;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(addr_from_literal(host, 0, &from), 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&from.ss, from.len), 0);
    (void)connect(fd, (const struct sockaddr *)&w.at.ss, w.at.len);
    return fd;
}

/* The first bytes of a record of TLS after the call, and then silence. */
static int shake_half(void) {
    _cleanup_(strbuf_fini) struct strbuf all = {0};
    wire_add_frame(&call_message, &all);
    strbuf_add_bytes(&all, "\x16\x03\x01\x02\x00\x01", 6);
    int fd = call_from("127.0.0.1");
    while (send(fd, strbuf_text(&all), all.len, MSG_NOSIGNAL) < 0)
        cr_assert_eq(loop_turn(w.loop), 0);
    return fd;
}

/* The listener whose handshakes are limited, and a peer with a key that comes from elsewhere. */
static void begin_with_key(void) {
    struct rlimit files;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = MIN2(files.rlim_max, (rlim_t)65536);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    begin();
    rdzv_listener_free(w.listener);
    w.auth = auth_with_key();
    struct rdzv_listener_config config = {.incarnation = 42, .run_id = "run", .auth = w.auth};
    w.listener = rdzv_listener_new(w.loop, &config);
    rdzv_listener_add(w.listener, listen_at("127.0.0.1", &w.at));
}

static const struct conn_ops peer_ops = {.on_message = on_message, .on_closed = on_closed};

Test(node_listener_io, half_handshakes_of_one_source_shut_nobody_out) {
    static int half[RDZV_HANDSHAKES_MAX + 200];
    begin_with_key();
    for (size_t i = 0; i < ARRAY_SIZE(half); i++)
        half[i] = shake_half();
    rig_loop_turns(w.loop, 50);
    uint64_t began_ns = clock_now_ns();
    struct peer *p = &w.peers[w.n_peers++];
    struct addr from;
    cr_assert_eq(addr_from_literal("127.0.0.9", 0, &from), 0);
    cr_assert_eq(conn_connect(w.loop, &from, &w.at, w.auth, &peer_ops, p, &p->conn), 0);
    wait_until(w.peers[w.n_peers - 1].greeted);
    cr_assert_lt(clock_now_ns() - began_ns, RDZV_HANDSHAKE_NS / 2, "it did not wait until one was late");
    cr_assert(conn_is_secured(p->conn));
    for (size_t i = 0; i < ARRAY_SIZE(half); i++)
        cr_assert_eq(close(half[i]), 0);
    finish();
}

static void look_again(void *arg) { (void)arg; }

Test(node_listener_io, a_handshake_has_its_time) {
    struct loop_timer *look;
    begin_with_key();
    uint64_t began_ns = clock_now_ns();
    int fd = shake_half();
    look = loop_timer_new(w.loop, look_again, NULL);
    loop_timer_set(look, began_ns + RDZV_HANDSHAKE_NS + NS_PER_S);
    wait_until(auth_n_refused(w.auth) > 0);
    cr_assert_geq(clock_now_ns() - began_ns, RDZV_HANDSHAKE_NS);
    cr_assert_eq(close(fd), 0);
    loop_timer_free(look);
    finish();
}

Test(node_listener_io, an_operator_waits_for_his_answer_before_he_asks_on, .init = begin, .fini = finish) {
    struct peer *p = add_peer();
    command(p, "", COMMAND_STATUS, "");
    wait_until(last_welcomed());
    command(p, "", COMMAND_STATUS, "");
    wait_until(w.peers[0].n_heard >= 2);
    cr_assert_not(p->ended, "one after the other is fine");
    command(p, "", COMMAND_STATUS, "");
    command(p, "", COMMAND_STATUS, "");
    wait_until(w.peers[0].ended);
}
