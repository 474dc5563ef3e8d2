#include "watchdog/act/hang_evidence_io.h"

#include "io/clock.h"
#include "rendezvous/protocol/wire.h"
#include "rig/unit.h"

#define LONG_NS (600 * NS_PER_S) /* nothing waits so long */

static struct loop *loop;
static struct hang_evidence *evidence;
static uint32_t last_id, n_asked;
static struct rdzv_ask asked[2];         /* of the nodes */
static struct rdzv_suspects suspects[2]; /* of the nodes; n 0: it got none */
static bool connected = true;
static struct rdzv_server *the_server = (struct rdzv_server *)&last_id;

/* What one who asked was told. */
struct told {
    uint32_t calls, n_nodes;
    char json[2][64], missing[2][64];
    struct hang_question *question;
};

static bool send_to(struct rdzv_server *server, uint64_t incarnation, const struct wire_message *m) {
    cr_assert_eq(server, the_server);
    bool second = incarnation == 20, is_ask = m->kind == WIRE_ASK;
    cr_assert(incarnation == 10 || second);
    cr_assert(is_ask || m->kind == WIRE_SUSPECTS);
    cr_assert_eq(is_ask ? m->ask.generation.counter : m->suspects.generation.counter, 1);
    last_id = is_ask ? m->ask.id : m->suspects.id;
    if (is_ask)
        asked[second] = m->ask;
    else
        suspects[second] = m->suspects;
    n_asked++;
    return connected;
}

static void on_answers(void *arg, const struct hang_answers *a) {
    struct told *t = arg;
    t->calls++;
    t->n_nodes = a->group.n_nodes;
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(t->json[i], sizeof t->json[i], "%.60s", strbuf_text(&a->nodes[i].json));
        (void)snprintf(t->missing[i], sizeof t->missing[i], "%s",
                       a->nodes[i].missing == NULL ? "" : a->nodes[i].missing);
    }
    loop_quit(loop);
}

static void begin(void) {
    static const struct hang_evidence_ops ops = {.send = send_to};
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 10, .nproc = 2, .name = "a"},
                                {.incarnation = 20, .nproc = 2, .name = "b"}};
    cr_assert(hang_group_make((struct generation){1, 1}, nodes, 2, &g));
    cr_assert_eq(loop_new(&loop), 0);
    evidence = hang_evidence_new(loop, &ops, &the_server);
    hang_evidence_begin(evidence, &g);
}

static void finish(void) {
    hang_evidence_free(evidence);
    loop_free(loop);
}

static void question(struct told *t, uint64_t timeout_ns) {
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_WATCHDOG, timeout_ns, on_answers, t, &t->question), 0);
}

static void question_of_operator(struct told *t, uint64_t timeout_ns) {
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_OPERATOR, timeout_ns, on_answers, t, &t->question), 0);
}

static void piece(uint64_t from, uint32_t id, const char *text, bool first, bool last) {
    struct rdzv_evidence p = {.id = id, .first = first, .last = last};
    (void)snprintf(p.text, sizeof p.text, "%s", text);
    hang_evidence_piece(evidence, from, &p);
}

static void both(const char *text) {
    piece(10, last_id, text, true, true);
    piece(20, last_id, text, true, true);
}

static void until_told(const struct told *t) {
    while (t->calls == 0)
        cr_assert_eq(loop_run(loop), 0);
}

TestSuite(hang_evidence_io, .init = begin, .fini = finish);

Test(hang_evidence_io, answers_are_put_together_from_pieces) {
    struct told t = {0};
    question(&t, LONG_NS);
    piece(10, last_id, "{\"a\":", true, false);
    piece(20, last_id, "{}", true, true);
    piece(10, last_id, "1}", false, true);
    cr_assert_eq(t.calls, 0, "never from inside a call");
    until_told(&t);
    cr_assert_str_eq(t.json[0], "{\"a\":1}");
    cr_assert_str_eq(t.json[1], "{}");
    cr_assert_str_eq(t.missing[0], "");
    cr_assert_str_eq(t.missing[1], "");
}

Test(hang_evidence_io, what_is_no_answer_is_ignored) {
    struct told t = {0};
    question(&t, LONG_NS);
    piece(10, last_id + 1, "wrong id", true, true);
    piece(30, last_id, "a stranger", true, true);
    piece(10, last_id, "{}", true, true);
    piece(10, last_id, "again", true, true);
    piece(20, last_id, "{}", true, true);
    until_told(&t);
    cr_assert_str_eq(t.json[0], "{}");
    piece(10, last_id, "late", true, true);
    question(&t, LONG_NS); /* it is open when all is freed */
}

Test(hang_evidence_io, a_node_that_is_silent_costs_its_time) {
    struct told t = {0};
    uint64_t begun = clock_now_ns();
    question(&t, 1);
    piece(10, last_id, "{}", true, true);
    until_told(&t);
    cr_assert_geq(clock_now_ns() - begun, HANG_ANSWERS_LATE_NS);
    cr_assert_str_eq(t.json[0], "{}");
    cr_assert_str_eq(t.missing[1], "it did not answer in time");
}

Test(hang_evidence_io, a_node_without_workers_or_that_is_lost_is_not_waited_for) {
    struct told t = {0};
    question(&t, LONG_NS);
    piece(10, last_id, "", true, true);
    hang_evidence_forgotten(evidence, 30);
    hang_evidence_forgotten(evidence, 20);
    hang_evidence_forgotten(evidence, 20);
    until_told(&t);
    cr_assert_str_eq(t.missing[0], "no workers run there, or they could not be examined");
    cr_assert_str_eq(t.missing[1], "it was lost");
}

Test(hang_evidence_io, nodes_that_are_not_connected_are_not_waited_for) {
    struct told t = {0};
    connected = false;
    question(&t, LONG_NS);
    cr_assert_eq(t.calls, 0);
    until_told(&t);
    cr_assert_str_eq(t.missing[0], "it is not connected");
    connected = true;
}

Test(hang_evidence_io, an_answer_has_a_limit) {
    struct told t = {0};
    static char text[RDZV_EVIDENCE_CHUNK_MAX];
    memset(text, 'x', sizeof text - 1);
    question(&t, LONG_NS);
    piece(20, last_id, "{}", true, true);
    for (size_t sent = 0; sent <= RDZV_EVIDENCE_MAX; sent += sizeof text - 1)
        piece(10, last_id, text, sent == 0, false);
    until_told(&t);
    cr_assert_str_eq(t.missing[0], "its answer is too long");
    cr_assert_str_eq(t.json[0], "");
}

Test(hang_evidence_io, who_asks_meanwhile_shares_the_answers) {
    struct told one = {0}, two = {0}, three = {0};
    question(&one, LONG_NS);
    question(&two, LONG_NS);
    question(&three, LONG_NS);
    cr_assert_eq(n_asked, 2);
    hang_question_free(three.question);
    both("{}");
    until_told(&one);
    until_told(&two);
    cr_assert_eq(three.calls, 0);
}

Test(hang_evidence_io, who_has_less_time_gets_what_is_there) {
    struct told one = {0}, two = {0};
    question(&one, LONG_NS);
    question_of_operator(&two, 1);
    piece(10, last_id, "{}", true, true);
    until_told(&two);
    cr_assert_str_eq(two.json[0], "{}");
    cr_assert_str_eq(two.missing[1], "it did not answer in time");
    cr_assert_eq(one.calls, 0);
    piece(20, last_id, "{}", true, true);
    until_told(&one);
    cr_assert_str_eq(one.missing[1], "");
}

/* "muster stacks --timeout=0.1" right before a verdict. */
Test(hang_evidence_io, the_watchdog_has_its_time_though_an_operator_had_less) {
    struct told operator= {0}, watchdog = {0};
    question_of_operator(&operator, 1);
    uint32_t first_id = last_id;
    question(&watchdog, LONG_NS);
    cr_assert_eq(n_asked, 4);
    cr_assert_eq(asked[0].timeout_ns, LONG_NS);
    piece(10, first_id, "nothing in so short a time", true, true);
    piece(20, first_id, "nothing in so short a time", true, true);
    until_told(&operator);
    cr_assert_eq(watchdog.calls, 0);
    both("{}");
    until_told(&watchdog);
    cr_assert_str_eq(watchdog.json[0], "{}");
}

/* With "--timeout=60" nodes may look for longer than the watchdog waits. */
Test(hang_evidence_io, the_watchdog_has_its_time_though_an_operator_has_more) {
    struct told first = {0}, second = {0}, watchdog = {0};
    question_of_operator(&first, 2 * LONG_NS);
    question(&watchdog, LONG_NS);
    question_of_operator(&second, 3 * LONG_NS);
    cr_assert_eq(n_asked, 4);
    cr_assert_eq(asked[1].timeout_ns, LONG_NS);
    both("{}");
    until_told(&watchdog);
    cr_assert(first.calls == 1 && second.calls == 1);
    cr_assert_str_eq(first.json[1], "{}");
}

/* Who is called asks again, and with other words: then the round of the others is given up. */
static void ask_again(void *arg, const struct hang_answers *a) {
    on_answers(arg, a);
    struct told *t = arg;
    if (t->calls == 1)
        question(t, 2 * LONG_NS);
}

Test(hang_evidence_io, who_is_told_can_ask_for_longer) {
    struct told one = {0}, two = {0}, three = {0};
    question(&two, LONG_NS);
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_OPERATOR, 1, ask_again, &one, &one.question), 0);
    question_of_operator(&three, 1);
    piece(10, last_id, "{}", true, true);
    for (uint64_t due = clock_now_ns() + HANG_ANSWERS_LATE_NS; clock_now_ns() <= due;)
        ; /* one and three are told in the same turn */
    until_told(&three);
    cr_assert(one.calls == 1 && two.calls == 0);
    cr_assert_str_eq(three.json[0], "{}");
    both("[]");
    until_told(&two);
    cr_assert_eq(one.calls, 2);
    cr_assert_str_eq(two.json[0], "[]");
}

Test(hang_evidence_io, an_answer_that_begins_again_takes_no_room_of_others) {
    struct told t = {0};
    static char text[RDZV_EVIDENCE_CHUNK_MAX];
    memset(text, 'x', sizeof text - 1);
    question(&t, LONG_NS);
    for (size_t sent = 0; sent <= HANG_ANSWERS_MAX; sent += sizeof text - 1)
        piece(10, last_id, text, true, false);
    both("{}");
    until_told(&t);
    cr_assert_str_eq(t.missing[0], "");
    cr_assert_str_eq(t.missing[1], "");
    cr_assert_str_eq(t.json[0], "{}");
}

Test(hang_evidence_io, the_end_of_the_group_ends_the_questions) {
    struct told t = {0};
    question(&t, LONG_NS);
    piece(10, last_id, "{}", true, true);
    hang_evidence_end(evidence);
    struct hang_question *q;
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_WATCHDOG, 1, on_answers, &t, &q), -ESRCH);
    until_told(&t);
    cr_assert_eq(t.n_nodes, 2);
    cr_assert_str_eq(t.json[0], "{}");
    hang_evidence_end(evidence);
}

static void last_question(struct told *t) {
    cr_assert_eq(hang_evidence_ask(evidence, HANG_BEFORE_STOP, LONG_NS, on_answers, t, &t->question), 0);
}

Test(hang_evidence_io, a_last_question_is_answered_while_the_workers_are_stopped) {
    struct told t = {0};
    last_question(&t);
    cr_assert(asked[0].holds && asked[1].holds);
    hang_evidence_end(evidence);
    piece(10, last_id, "{}", true, true);
    piece(20, last_id, "[]", true, true);
    until_told(&t);
    cr_assert_str_eq(t.json[0], "{}");
    cr_assert_str_eq(t.json[1], "[]");
}

Test(hang_evidence_io, a_last_question_ends_when_another_group_runs) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node node = {.incarnation = 10, .nproc = 2, .name = "a"};
    struct told t = {0};
    cr_assert(hang_group_make((struct generation){1, 2}, &node, 1, &g));
    last_question(&t);
    hang_evidence_end(evidence);
    piece(10, last_id, "{}", true, true);
    hang_evidence_begin(evidence, &g);
    until_told(&t);
    cr_assert_eq(t.n_nodes, 2);
    cr_assert_str_eq(t.json[0], "{}");
    cr_assert_str_eq(t.missing[1], "it did not answer in time");
}

/* A node answers only the newest question. */
Test(hang_evidence_io, a_last_question_is_asked_though_another_one_is_open) {
    struct told one = {0}, last = {0};
    question(&one, LONG_NS);
    uint32_t first_id = last_id;
    cr_assert_not(asked[0].holds);
    last_question(&last);
    cr_assert_eq(n_asked, 4);
    piece(10, first_id, "old", true, true);
    both("{}");
    until_told(&last);
    until_told(&one);
    cr_assert_str_eq(one.json[0], "{}");
}

Test(hang_evidence_io, only_the_nodes_of_suspects_are_told_to_end_them) {
    static const bool none[4], ends[4] = {false, false, true, true};
    hang_evidence_end_ranks(evidence, none, 0, NULL, NULL, NULL);
    cr_assert_eq(n_asked, 0);
    hang_evidence_end_ranks(evidence, ends, 0, NULL, NULL, NULL);
    cr_assert_eq(n_asked, 1);
    cr_assert(suspects[1].n == 2 && suspects[1].ranks[0] == 2 && suspects[1].ranks[1] == 3);
}

Test(hang_evidence_io, of_very_many_suspects_of_a_node_some_are_ended) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node node = {.incarnation = 10, .nproc = 3 * RDZV_SUSPECTS_MAX, .name = "a"};
    bool ends[3 * RDZV_SUSPECTS_MAX];
    memset(ends, true, sizeof ends);
    cr_assert(hang_group_make((struct generation){1, 1}, &node, 1, &g));
    hang_evidence_begin(evidence, &g);
    hang_evidence_end_ranks(evidence, ends, 0, NULL, NULL, NULL);
    cr_assert_eq(suspects[0].n, RDZV_SUSPECTS_MAX);
}

Test(hang_evidence_io, native_stacks_of_suspects_come_beside_what_operators_ask) {
    static const bool ends[4] = {false, false, true, false};
    struct told operator= {0}, t = {0};
    question_of_operator(&operator, LONG_NS);
    uint32_t asked_id = last_id;
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert_eq(n_asked, 3, "only the node of the suspect");
    cr_assert(suspects[1].n == 1 && suspects[1].timeout_ns == LONG_NS && suspects[1].id != asked_id);
    hang_evidence_end(evidence);
    until_told(&operator);
    cr_assert_eq(t.calls, 0, "it is awaited while the workers are stopped");
    piece(20, asked_id, "late", true, true);
    piece(10, last_id, "a stranger", true, true);
    piece(20, last_id, "{\"a\":", true, false);
    piece(20, last_id, "1}", false, true);
    cr_assert_eq(t.calls, 0, "never from inside a call");
    until_told(&t);
    cr_assert_str_eq(t.json[1], "{\"a\":1}");
    cr_assert_str_eq(t.missing[1], "");
}

Test(hang_evidence_io, native_stacks_have_their_time_and_not_more) {
    static const bool ends[4] = {true, false, true, false};
    struct told t = {0}, lost = {0}, forgotten = {0};
    hang_evidence_end_ranks(evidence, ends, 1, on_answers, &t, &t.question);
    piece(10, last_id, "{}", true, true);
    until_told(&t);
    cr_assert_str_eq(t.json[0], "{}");
    cr_assert_str_eq(t.missing[1], "it did not answer in time");
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &lost, &lost.question);
    hang_evidence_forgotten(evidence, 10);
    hang_evidence_forgotten(evidence, 20);
    until_told(&lost);
    cr_assert_str_eq(lost.missing[0], "it was lost");
    hang_evidence_end_ranks(evidence, ends, 1, on_answers, &forgotten, &forgotten.question);
    hang_question_free(forgotten.question);
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert_eq(suspects[0].timeout_ns, LONG_NS);
    hang_evidence_begin(evidence, &(struct hang_group){0}); /* another group */
    t.calls = 0;
    until_told(&t);
    cr_assert_eq(forgotten.calls, 0);
}

Test(hang_evidence_io, of_many_suspects_only_some_are_read) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 10, .nproc = HANG_ENDS_READ_MAX, .name = "a"},
                                {.incarnation = 20, .nproc = 1, .name = "b"}};
    bool ends[HANG_ENDS_READ_MAX + 1];
    struct told t = {0};
    memset(ends, true, sizeof ends);
    cr_assert(hang_group_make((struct generation){1, 1}, nodes, 2, &g));
    hang_evidence_begin(evidence, &g);
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert(suspects[0].n == HANG_ENDS_READ_MAX && suspects[0].timeout_ns == LONG_NS);
    cr_assert(suspects[1].n == 1 && suspects[1].timeout_ns == 0, "it is ended all the same");
    piece(10, suspects[0].id, "{}", true, true);
    until_told(&t);
    cr_assert_str_eq(t.missing[1], "there are too many suspects");
}
