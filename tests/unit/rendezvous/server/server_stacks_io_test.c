/* Operators that ask the leader what the workers do, over real sockets on loopback; what the workers do, the test says.
 */
#include "io/net/listen.h"
#include "rendezvous/operate/operator_stacks.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_io.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define OPERATORS_MAX 20
#define BIG (3 * RDZV_EVIDENCE_MAX / 4) /* of a node: much more than the sockets buffer of a few */

struct operator{
    struct conn *conn;
    struct operator_stacks stacks;
    struct answer answer;
    bool whole, refused, ended;
};

static struct {
    struct loop *loop;
    struct rdzv_listener *listener;
    struct rdzv_server *server;
    struct addr at;
    struct operator operators[OPERATORS_MAX];
    unsigned n, asked, cancelled;
    enum rdzv_ask_what what; /* of the last question */
    uint64_t timeout_ns;
} w;

static void on_stacks(void *arg, uint64_t period_ns, uint64_t timeout_ns) {
    w.asked++;
    w.what = period_ns > 0 ? ASK_PROFILE : ASK_STACKS;
    w.timeout_ns = timeout_ns;
    loop_quit(w.loop);
}

static void on_cancel(void *arg, enum rdzv_ask_what what) {
    cr_assert_eq(what, ASK_PROFILE);
    w.cancelled++;
    loop_quit(w.loop);
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct operator* o = arg;
    struct err err = {0};
    loop_quit(w.loop);
    if (m->kind == WIRE_HELLO)
        return;
    if (m->kind == WIRE_ANSWER) {
        o->answer = m->answer;
        o->refused = !m->answer.ok;
        return;
    }
    int r = operator_stacks_take(&o->stacks, m, &err);
    cr_assert_geq(r, 0, "%s", err.text);
    o->whole = r == 1;
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct operator* o = arg;
    o->ended = true;
    loop_quit(w.loop);
}

static const struct conn_ops operator_ops = {.on_message = on_message, .on_closed = on_closed};

/* Everything that is waited for happens in a callback, which ends loop_run(). */
#define WAIT_UNTIL(what) \
    while (!(what))      \
    rig_loop_run(w.loop)

static void begin(void) {
    memset(&w, 0, sizeof w);
    cr_assert_eq(loop_new(&w.loop), 0);
    w.listener = rdzv_listener_new(w.loop, &(struct rdzv_listener_config){.incarnation = 42, .run_id = "run"});
    rdzv_listener_add(w.listener, listen_at("127.0.0.1", &w.at));
    struct group_config g;
    group_config_default(&g);
    g.leader_incarnation = 42;
    g.rdzv.min_nodes = g.rdzv.max_nodes = 2;
    struct rdzv_server_config config = {.listener_port = addr_port(&w.at),
                                        .parts = {.stacks = {on_stacks, on_cancel, NULL}}};
    cr_assert_eq(rdzv_server_new(w.loop, &g, &config, &w.server), 0);
    rdzv_listener_serve(w.listener, w.server);
}

static void finish(void) {
    for (unsigned i = 0; i < w.n; i++) {
        conn_free(w.operators[i].conn);
        operator_stacks_fini(&w.operators[i].stacks);
    }
    rdzv_listener_free(w.listener);
    rdzv_server_free(w.server);
    loop_free(w.loop);
}

TestSuite(server_stacks_io, .init = begin, .fini = finish);

static struct operator* ask_for(uint64_t period_ns, uint64_t timeout_ns) {
    cr_assert_lt(w.n, OPERATORS_MAX);
    struct operator* o = & w.operators[w.n++];
    struct wire_message m = {
        .kind = WIRE_COMMAND,
        .command = {.version = WIRE_VERSION,
                    .command = {.kind = COMMAND_STACKS, .timeout_ns = timeout_ns, .period_ns = period_ns}}};
    cr_assert_eq(conn_connect(w.loop, NULL, &w.at, NULL, &operator_ops, o, &o->conn), 0);
    conn_send(o->conn, &m);
    return o;
}

static struct operator* ask(uint64_t timeout_ns) { return ask_for(0, timeout_ns); }

static struct rdzv_stacks node(uint32_t number, const char *missing) {
    struct rdzv_stacks s = {.generation = {1, 1},
                            .world_size = 4,
                            .n_nodes = 2,
                            .node = number,
                            .first_rank = 2 * number,
                            .nproc = 2,
                            .name = "host"};
    (void)snprintf(s.missing, sizeof s.missing, "%s", missing);
    return s;
}

static void add(uint32_t number, const char *missing, const char *json, size_t len) {
    rdzv_server_stacks_add(w.server, w.what, AT(node(number, missing)), json, len);
}

static void answer_shortly(void) {
    add(0, "", "{\"a\":1}", 7);
    add(1, "it was lost", NULL, 0);
    rdzv_server_stacks_end(w.server, w.what, NULL);
}

Test(server_stacks_io, an_operator_gets_the_evidence_of_each_node) {
    struct operator* o = ask(3 * NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    cr_assert_eq(w.timeout_ns, 3 * NS_PER_S);
    answer_shortly();
    WAIT_UNTIL(o->whole);
    cr_assert_eq(o->stacks.n, 2);
    cr_assert_str_eq(o->stacks.nodes[0].evidence, "{\"a\":1}");
    cr_assert_str_eq(o->stacks.nodes[1].head.missing, "it was lost");
}

Test(server_stacks_io, those_who_ask_together_share_one_answer) {
    struct operator* first = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    struct operator* second = ask(2 * NS_PER_S), *third = ask(5 * NS_PER_S);
    rig_loop_turns(w.loop, 50);
    cr_assert_eq(w.asked, 1, "one at a time");
    answer_shortly();
    WAIT_UNTIL(first->whole);
    cr_assert_not(second->whole, "they asked later");
    WAIT_UNTIL(w.asked == 2);
    cr_assert_eq(w.timeout_ns, 5 * NS_PER_S, "the longest that any wants");
    answer_shortly();
    WAIT_UNTIL(second->whole && third->whole);
    cr_assert_eq(w.asked, 2);
}

Test(server_stacks_io, a_long_answer_comes_in_pieces_between_characters) {
    struct operator* o = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    while (text.len < BIG) /* 5 bytes, which don't divide a piece */
        strbuf_add(&text, "a\xf0\x9f\x98\x80");
    add(0, "", strbuf_text(&text), text.len);
    add(1, "", "{}", 2);
    rdzv_server_stacks_end(w.server, w.what, NULL);
    WAIT_UNTIL(o->whole);
    cr_assert_eq(o->stacks.nodes[0].len, text.len);
    cr_assert_str_eq(o->stacks.nodes[0].evidence, strbuf_text(&text));
}

Test(server_stacks_io, a_refusal_has_a_reason) {
    struct operator* o = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    rdzv_server_stacks_end(w.server, w.what, "no worker runs");
    WAIT_UNTIL(o->refused);
    cr_assert_str_eq(o->answer.text, "no worker runs");
}

Test(server_stacks_io, who_does_not_read_costs_others_nothing) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&w.at.ss, w.at.len), 0);
    _cleanup_(strbuf_fini) struct strbuf frames = {0};
    wire_add_frame(&(struct wire_message){.kind = WIRE_CALL, .call = {.version = WIRE_VERSION}}, &frames);
    wire_add_frame(&(struct wire_message){.kind = WIRE_COMMAND,
                                          .command = {.version = WIRE_VERSION,
                                                      .command = {.kind = COMMAND_STACKS, .timeout_ns = NS_PER_S}}},
                   &frames);
    cr_assert_eq(send(fd, strbuf_text(&frames), frames.len, 0), (ssize_t)frames.len);
    WAIT_UNTIL(w.asked == 1); /* it reads nothing, and its socket stays */
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    while (text.len < BIG)
        strbuf_add(&text, "{\"frames\":[]}");
    struct operator* next = ask(NS_PER_S);
    add(0, "", strbuf_text(&text), text.len);
    add(1, "", strbuf_text(&text), text.len);
    rdzv_server_stacks_end(w.server, w.what, NULL);
    WAIT_UNTIL(w.asked == 2);
    answer_shortly();
    WAIT_UNTIL(next->whole);
    cr_assert_eq(close(fd), 0);
}

Test(server_stacks_io, there_are_only_so_many_at_a_time) {
    for (unsigned i = 0; i < OPERATORS_MAX; i++)
        (void)ask(NS_PER_S);
    unsigned refused = 0;
    while (refused < OPERATORS_MAX - 16) {
        rig_loop_run(w.loop);
        refused = 0;
        for (unsigned i = 0; i < OPERATORS_MAX; i++)
            refused += w.operators[i].refused;
    }
    cr_assert_eq(refused, OPERATORS_MAX - 16);
    /* One of the others goes, and another comes in its place. */
    struct operator* gone = NULL;
    for (unsigned i = 0; i < OPERATORS_MAX && gone == NULL; i++)
        gone = w.operators[i].refused ? NULL : &w.operators[i];
    conn_free(TAKE_PTR(gone->conn));
    answer_shortly();
    unsigned whole = 0;
    while (whole < 15) {
        if (w.asked == 2) {
            answer_shortly();
            w.asked++;
        }
        rig_loop_run(w.loop);
        whole = 0;
        for (unsigned i = 0; i < OPERATORS_MAX; i++)
            whole += w.operators[i].whole;
    }
}

Test(server_stacks_io, who_says_more_meanwhile_is_disconnected) {
    struct operator* o = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    conn_send(o->conn, &(struct wire_message){.kind = WIRE_COMMAND,
                                              .command = {.version = WIRE_VERSION, .command = {.kind = COMMAND_GROW}}});
    WAIT_UNTIL(o->ended);
    answer_shortly(); /* nobody is there: nothing happens */
    struct operator* next = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 2);
    answer_shortly();
    WAIT_UNTIL(next->whole);
}

Test(server_stacks_io, an_answer_to_no_question_is_ignored) {
    answer_shortly();
    struct operator* o = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    answer_shortly();
    answer_shortly();
    WAIT_UNTIL(o->whole);
    cr_assert_eq(o->stacks.n, 2);
}

Test(server_stacks_io, a_server_that_ends_disconnects_those_who_wait) {
    struct operator* waits = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    struct operator* later = ask(NS_PER_S);
    rig_loop_turns(w.loop, 50);
    rdzv_listener_serve(w.listener, NULL);
    rdzv_server_free(TAKE_PTR(w.server));
    WAIT_UNTIL(waits->ended);
    WAIT_UNTIL(later->ended || later->refused);
}

Test(server_stacks_io, one_profile_at_a_time_beside_stacks) {
    struct operator* first = ask_for(NS_PER_S, 3 * NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    struct operator* second = ask_for(NS_PER_S, NS_PER_S);
    WAIT_UNTIL(second->refused);
    assert_has(second->answer.text, "another profile of this job is being taken; try again in ");
    struct operator* stacks = ask(NS_PER_S);
    WAIT_UNTIL(w.asked == 2);
    answer_shortly();
    WAIT_UNTIL(stacks->whole);
    w.what = ASK_PROFILE;
    answer_shortly();
    WAIT_UNTIL(first->whole);
    cr_assert_eq(w.cancelled, 0);
    struct operator* next = ask_for(NS_PER_S, 600 * NS_PER_S); /* it rests before */
    rig_loop_turns(w.loop, 50);
    struct operator* last = ask_for(NS_PER_S, NS_PER_S);
    WAIT_UNTIL(last->refused);
    unsigned wait_s = 0;
    cr_assert_eq(sscanf(strstr(last->answer.text, "try again in "), "try again in %u s", &wait_s), 1);
    cr_assert(wait_s > 500, "%s", last->answer.text);
    (void)next;
}

Test(server_stacks_io, an_interrupted_profile_is_not_in_the_way) {
    struct operator* gone = ask_for(NS_PER_S, 600 * NS_PER_S);
    WAIT_UNTIL(w.asked == 1);
    conn_free(TAKE_PTR(gone->conn));
    WAIT_UNTIL(w.cancelled == 1);
    struct operator* next = ask_for(NS_PER_S, NS_PER_S);
    WAIT_UNTIL(w.asked == 2);
    answer_shortly();
    WAIT_UNTIL(next->whole);
}
