/* An operator's question against imagined agents, over real sockets on loopback. */
#include "rendezvous/operate/operator_io.h"

#include "io/clock.h"
#include "io/net/listen.h"
#include "rendezvous/protocol/conn_io.h"
#include "rig/unit.h"

#define AGENTS_MAX 8
#define CALLS_MAX 16

struct agent;
typedef void answer_fn(struct agent *a, struct conn *c, const struct wire_message *m);

struct agent {
    struct listener *listener;
    struct conn *calls[CALLS_MAX];
    unsigned n_calls, n_commands;
    uint16_t port;
    bool silent; /* no HELLO */
    uint32_t version;
    const char *run_id;
    answer_fn *answer;
    uint16_t redirect_to; /* for answer_redirect */
    const char *redirect_addr;
    struct wire_command last;
};

static struct loop *loop;
static struct agent agents[AGENTS_MAX];
static unsigned n_agents;
static struct operator_reply reply;
static struct err err;

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct agent *a = arg;
    if (m->kind == WIRE_CALL)
        return;
    cr_assert_eq(m->kind, WIRE_COMMAND);
    a->last = m->command;
    a->n_commands++;
    a->answer(a, c, m);
}

/* Freed with the agent. */
static void on_closed(void *arg, struct conn *c, int code, const char *text) {}

static const struct conn_ops ops = {.on_message = on_message, .on_closed = on_closed};

static void on_call(void *arg, int fd, const struct addr *peer) {
    struct agent *a = arg;
    cr_assert_lt(a->n_calls, CALLS_MAX);
    struct conn **c = &a->calls[a->n_calls++];
    *c = conn_new(loop, fd, NULL, &ops, a);
    if (!a->silent) {
        struct wire_message m = {.kind = WIRE_HELLO, .hello = {.version = a->version, .incarnation = 1}};
        (void)strcpy(m.hello.run_id, a->run_id);
        conn_send(*c, &m);
    }
}

static struct agent *start(answer_fn *answer) {
    struct agent *a = &agents[n_agents++];
    *a = (struct agent){.version = WIRE_VERSION, .run_id = "digits", .answer = answer, .redirect_addr = ""};
    struct addr at;
    int fd;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, NULL), 0);
    a->listener = listener_new(loop, fd, on_call, a);
    cr_assert_eq(listener_addr(a->listener, &at), 0);
    a->port = addr_port(&at);
    return a;
}

static uint64_t patience_ns; /* of a question */

static void begin(void) {
    cr_assert_eq(loop_new(&loop), 0);
    patience_ns = 30 * NS_PER_S;
    n_agents = 0;
    err = (struct err){0};
    (void)alarm(60); /* doomsday */
}

static void finish(void) {
    operator_reply_fini(&reply);
    for (unsigned i = 0; i < n_agents; i++) {
        for (unsigned k = 0; k < agents[i].n_calls; k++)
            conn_free(agents[i].calls[k]);
        listener_free(agents[i].listener);
    }
    loop_free(loop);
}

static int ask_at(const char *host, uint16_t port, const char *run_id, enum command_kind kind) {
    struct operator_question q = {.host = host, .port = port, .run_id = run_id, .timeout_ns = patience_ns};
    q.command.kind = kind;
    if (kind == COMMAND_EXCLUDE)
        (void)strcpy(q.command.node, "node7");
    if (kind == COMMAND_STOP)
        (void)strcpy(q.command.reason, "new data");
    if (kind == COMMAND_STACKS)
        q.command.timeout_ns = 300 * NS_PER_MS;
    return operator_ask(loop, &q, &reply, &err);
}

static int ask(const struct agent *a, enum command_kind kind) { return ask_at("127.0.0.1", a->port, NULL, kind); }

static void answer_done(struct agent *a, struct conn *c, const struct wire_message *m) {
    conn_send(c, &(struct wire_message){.kind = WIRE_ANSWER, .answer = {.ok = true, .text = "done"}});
}

/* A node with evidence, in two pieces, and one without. */
static void answer_stacks(struct agent *a, struct conn *c, const struct wire_message *m) {
    struct wire_message s = {.kind = WIRE_STACKS,
                             .stacks = {.generation = {1, 1}, .world_size = 2, .n_nodes = 2, .nproc = 1, .name = "a"}};
    conn_send(c, &s);
    conn_send(c, &(struct wire_message){.kind = WIRE_EVIDENCE, .evidence = {.first = true, .text = "{\"x\""}});
    conn_send(c, &(struct wire_message){.kind = WIRE_EVIDENCE, .evidence = {.last = true, .text = ":1}"}});
    s.stacks.node = s.stacks.first_rank = 1;
    (void)strcpy(s.stacks.missing, "it was lost");
    conn_send(c, &s);
}

static void answer_half_of_the_stacks(struct agent *a, struct conn *c, const struct wire_message *m) {
    struct wire_message s = {.kind = WIRE_STACKS,
                             .stacks = {.generation = {1, 1}, .world_size = 2, .n_nodes = 2, .nproc = 1, .name = "a"}};
    conn_send(c, &s);
    conn_finish(TAKE_PTR(a->calls[a->n_calls - 1]));
}

static void answer_strange_stacks(struct agent *a, struct conn *c, const struct wire_message *m) {
    conn_send(c, &(struct wire_message){.kind = WIRE_EVIDENCE, .evidence = {.first = true, .text = "{}"}});
}

static void answer_redirect(struct agent *a, struct conn *c, const struct wire_message *m) {
    struct wire_message r = {.kind = WIRE_REDIRECT, .redirect = {.epoch = 2}};
    if (a->redirect_to != 0) {
        r.redirect.leader = (struct rdzv_peer){.incarnation = 7, .port = a->redirect_to};
        (void)strcpy(r.redirect.leader.addr, a->redirect_addr);
    }
    conn_send(c, &r);
}

static void answer_end(struct agent *a, struct conn *c, const struct wire_message *m) {
    conn_free(TAKE_PTR(a->calls[a->n_calls - 1]));
}

static void answer_nothing(struct agent *a, struct conn *c, const struct wire_message *m) {}

static void answer_refused(struct agent *a, struct conn *c, const struct wire_message *m) {
    conn_send(c, &(struct wire_message){.kind = WIRE_REFUSED, .refused = {.reason = "does not lead"}});
}

static void say_overview(struct conn *c, uint32_t n_nodes) {
    conn_send(c, &(struct wire_message){.kind = WIRE_OVERVIEW,
                                        .overview = {.state = GROUP_RUNNING,
                                                     .epoch = 2,
                                                     .leader = 1,
                                                     .access = {.state = AUTH_STATE_OPEN},
                                                     .min_nodes = 1,
                                                     .max_nodes = n_nodes + 1,
                                                     .node_unit = 1,
                                                     .n_nodes = n_nodes}});
}

static void say_nodes(struct conn *c, uint32_t first, uint32_t n) {
    struct wire_message m = {.kind = WIRE_NODES, .nodes = {.first = first, .n = n}};
    for (uint32_t i = 0; i < n; i++) {
        m.nodes.list[i] = (struct overview_node){
            .incarnation = first + i + 1, .place = PLACE_MEMBER, .state = NODE_RUNNING, .nproc = 1};
        (void)snprintf(m.nodes.list[i].name, sizeof m.nodes.list[i].name, "node%u", first + i);
    }
    conn_send(c, &m);
}

static void answer_overview(struct agent *a, struct conn *c, const struct wire_message *m) {
    say_overview(c, 37);
    say_nodes(c, 0, 16);
    say_nodes(c, 16, 16);
    say_nodes(c, 32, 5);
}

static void answer_many(struct agent *a, struct conn *c, const struct wire_message *m) {
    conn_set_unsent_max(c, (size_t)16 << 20);
    say_overview(c, 5000);
    for (uint32_t i = 0; i < 5000; i += 10)
        say_nodes(c, i, 10);
}

static void answer_no_rows(struct agent *a, struct conn *c, const struct wire_message *m) { say_overview(c, 0); }

static void answer_gap(struct agent *a, struct conn *c, const struct wire_message *m) {
    say_overview(c, 37);
    say_nodes(c, 16, 16);
}

static void answer_too_many(struct agent *a, struct conn *c, const struct wire_message *m) {
    say_overview(c, 3);
    say_nodes(c, 0, 4);
}

static void answer_rows_alone(struct agent *a, struct conn *c, const struct wire_message *m) { say_nodes(c, 0, 4); }

static void answer_half(struct agent *a, struct conn *c, const struct wire_message *m) {
    say_overview(c, 37);
    say_nodes(c, 0, 16);
}

Test(operator_io, a_command_is_said_and_its_answer_heard, .init = begin, .fini = finish) {
    struct agent *a = start(answer_done);
    cr_assert_eq(ask(a, COMMAND_STOP), 0, "%s", err.text);
    cr_assert(reply.answer.ok && !reply.has_overview);
    cr_assert_str_eq(reply.answer.text, "done");
    cr_assert_str_eq(reply.run_id, "digits");
    cr_assert_str_eq(reply.from, "127.0.0.1");
    cr_assert_eq(reply.from_port, a->port);
    cr_assert_eq(a->last.command.kind, COMMAND_STOP);
    cr_assert_str_eq(a->last.command.reason, "new data");
    cr_assert_str_eq(a->last.run_id, "digits", "meant for the job that said HELLO");
    operator_reply_fini(&reply);
    cr_assert_eq(ask(a, COMMAND_EXCLUDE), 0);
    cr_assert_str_eq(a->last.command.node, "node7");
}

Test(operator_io, all_rows_of_an_overview_are_gathered, .init = begin, .fini = finish) {
    struct agent *a = start(answer_overview);
    cr_assert_eq(ask(a, COMMAND_STATUS), 0, "%s", err.text);
    cr_assert(reply.has_overview);
    cr_assert_eq(reply.n_nodes, 37);
    cr_assert_str_eq(reply.nodes[36].name, "node36");
    operator_reply_fini(&reply);
    a->answer = answer_many;
    cr_assert_eq(ask(a, COMMAND_STATUS), 0, "%s", err.text);
    cr_assert_eq(reply.n_nodes, 5000);
    cr_assert_str_eq(reply.nodes[4999].name, "node4999");
    operator_reply_fini(&reply);
    a->answer = answer_no_rows;
    cr_assert_eq(ask(a, COMMAND_STATUS), 0, "%s", err.text);
    cr_assert(reply.has_overview && reply.n_nodes == 0);
}

Test(operator_io, rows_that_do_not_belong_there_are_refused, .init = begin, .fini = finish) {
    answer_fn *const bad[] = {answer_gap, answer_too_many, answer_rows_alone};
    struct agent *a = start(answer_done);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        a->answer = bad[i];
        cr_assert_eq(ask(a, COMMAND_STATUS), -EPROTO, "%zu", i);
        cr_assert_null(reply.nodes);
    }
    a->answer = answer_overview;
    cr_assert_eq(ask(a, COMMAND_GROW), -EPROTO, "an overview is no answer to that");
}

Test(operator_io, a_redirect_is_followed_to_the_same_host, .init = begin, .fini = finish) {
    struct agent *a = start(answer_redirect), *leader = start(answer_done);
    a->redirect_to = leader->port;
    cr_assert_eq(ask(a, COMMAND_GROW), 0, "%s", err.text);
    cr_assert_eq(leader->n_commands, 1);
    cr_assert_eq(reply.from_port, leader->port);
}

Test(operator_io, a_redirect_is_followed_through_a_list_of_addresses, .init = begin, .fini = finish) {
    struct agent *a = start(answer_redirect), *leader = start(answer_done);
    a->redirect_to = leader->port;
    a->redirect_addr = "127.0.0.99,127.0.0.1"; /* refused, then right */
    cr_assert_eq(ask(a, COMMAND_GROW), 0, "%s", err.text);
    cr_assert_eq(leader->n_commands, 1);
    a->redirect_addr = "nonsense";
    operator_reply_fini(&reply);
    cr_assert_eq(ask(a, COMMAND_GROW), -EPROTO);
}

Test(operator_io, redirects_come_to_an_end, .init = begin, .fini = finish) {
    struct agent *a = start(answer_redirect);
    a->redirect_to = a->port;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    cr_assert_eq(a->n_commands, 1 + OPERATOR_HOPS_MAX);
    a->redirect_to = 0;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    assert_has(err.text, "knows no leader");
}

Test(operator_io, a_leader_that_is_gone_is_named_but_not_called_nobody, .init = begin, .fini = finish) {
    struct agent *a = start(answer_redirect);
    struct addr at;
    int fd;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, NULL), 0);
    cr_assert_eq(addr_of_socket(fd, &at), 0);
    (void)close(fd);
    a->redirect_to = addr_port(&at);
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH, "an agent of the job does listen");
    cr_assert_eq(ask_at("127.0.0.1", addr_port(&at), NULL, COMMAND_STATUS), -ECONNREFUSED);
    cr_assert_eq(ask_at("localhost", addr_port(&at), NULL, COMMAND_STATUS), -ECONNREFUSED, "both loopbacks");
}

/* Or another node than the one that was named would go. */
Test(operator_io, leave_is_not_passed_on, .init = begin, .fini = finish) {
    struct agent *a = start(answer_redirect), *other = start(answer_done);
    a->redirect_to = other->port;
    cr_assert_eq(ask(a, COMMAND_LEAVE), -EPROTO);
    cr_assert_eq(other->n_calls, 0);
}

Test(operator_io, another_run_is_not_asked, .init = begin, .fini = finish) {
    struct agent *a = start(answer_done);
    cr_assert_eq(ask_at("127.0.0.1", a->port, "letters", COMMAND_STOP), -ESRCH);
    cr_assert_eq(a->n_commands, 0);
    assert_has(err.text, "'digits'");
    cr_assert_eq(ask_at("127.0.0.1", a->port, "digits", COMMAND_STOP), 0);
}

Test(operator_io, another_version_is_not_asked, .init = begin, .fini = finish) {
    struct agent *a = start(answer_done);
    a->version = WIRE_VERSION + 1;
    cr_assert_eq(ask(a, COMMAND_STOP), -EPROTO);
    cr_assert_eq(a->n_commands, 0);
    assert_has(err.text, "this muster version 10");
}

Test(operator_io, who_does_not_answer_is_given_up, .init = begin, .fini = finish) {
    struct agent *a = start(answer_nothing);
    patience_ns = 200 * NS_PER_MS;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    assert_has(err.text, "no answer from 127.0.0.1:");
    a->answer = answer_half;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    cr_assert_null(reply.nodes);
    a->answer = answer_end;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    a->answer = answer_refused;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
    assert_has(err.text, "does not lead");
    a->silent = true;
    cr_assert_eq(ask(a, COMMAND_STATUS), -EHOSTUNREACH);
}

Test(operator_io, a_list_of_addresses_is_tried_in_turn, .init = begin, .fini = finish) {
    struct agent *a = start(answer_done);
    cr_assert_eq(ask_at("127.0.0.99,127.0.0.1", a->port, NULL, COMMAND_GROW), 0, "%s", err.text);
    cr_assert_eq(a->n_commands, 1);
    cr_assert_lt(ask_at("no such host", a->port, NULL, COMMAND_GROW), 0);
}

Test(operator_io, stacks_are_put_together_from_the_leader_s_pieces, .init = begin, .fini = finish) {
    struct agent *follower = start(answer_redirect);
    const struct agent *leader = start(answer_stacks);
    follower->redirect_to = leader->port;
    cr_assert_eq(ask(follower, COMMAND_STACKS), 0, "%s", err.text);
    cr_assert_eq(leader->last.command.timeout_ns, 300 * NS_PER_MS);
    cr_assert_eq(reply.stacks.n, 2);
    cr_assert_str_eq(reply.stacks.nodes[0].evidence, "{\"x\":1}");
    cr_assert_str_eq(reply.stacks.nodes[1].head.missing, "it was lost");
}

Test(operator_io, stacks_can_be_refused, .init = begin, .fini = finish) {
    cr_assert_eq(ask(start(answer_done), COMMAND_STACKS), 0, "%s", err.text);
    cr_assert_eq(reply.stacks.n, 0);
    cr_assert_str_eq(reply.answer.text, "done");
}

Test(operator_io, stacks_that_are_not_whole_are_an_error, .init = begin, .fini = finish) {
    cr_assert_eq(ask(start(answer_half_of_the_stacks), COMMAND_STACKS), -EHOSTUNREACH);
    cr_assert_eq(ask(start(answer_strange_stacks), COMMAND_STACKS), -EPROTO);
    assert_has(err.text, "an answer that makes no sense");
    cr_assert_eq(ask(start(answer_stacks), COMMAND_STATUS), -EPROTO, "nobody asked for stacks");
    cr_assert_eq(reply.stacks.n, 0);
}
