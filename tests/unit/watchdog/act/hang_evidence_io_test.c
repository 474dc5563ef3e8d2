#include "watchdog/act/hang_evidence_io.h"

#include "base/json/json.h"
#include "io/file.h"
#include "io/process/reaper.h"
#include "launcher/output/tempdir_io.h"
#include "rendezvous/protocol/wire.h"
#include "rig/loop_rig.h"

#define LONG_NS (600 * NS_PER_S) /* nothing waits so long */

static struct loop *loop;
static struct child_reaper *reaper;
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
    bool second = incarnation != 10, is_ask = m->kind == WIRE_ASK;
    cr_assert(is_ask || m->kind == WIRE_SUSPECTS);
    last_id = is_ask ? m->ask.id : m->suspects.id;
    if (is_ask)
        asked[second] = m->ask;
    else
        suspects[second] = m->suspects;
    n_asked++;
    return connected && incarnation != 30;
}

/* What was passed on to operators. */
static struct {
    struct rdzv_stacks heads[2];
    char json[2][64], why[128];
    uintptr_t at[2];
    unsigned n, ends;
    enum rdzv_ask_what what;
} passed;

static void add(struct rdzv_server *server, enum rdzv_ask_what what, const struct rdzv_stacks *node, const char *json,
                size_t len) {
    cr_assert(server == the_server && passed.n < 2 && len == strlen(json));
    passed.what = what;
    passed.heads[passed.n] = *node;
    passed.at[passed.n] = (uintptr_t)json;
    (void)snprintf(passed.json[passed.n++], sizeof passed.json[0], "%s", json);
}

static void end(struct rdzv_server *server, enum rdzv_ask_what what, const char *why_not) {
    cr_assert_eq(server, the_server);
    passed.what = what;
    passed.ends++;
    (void)snprintf(passed.why, sizeof passed.why, "%s", why_not == NULL ? "" : why_not);
    loop_quit(loop);
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

static void run_group(uint32_t counter, uint32_t nproc, uint32_t n, uint64_t second, uint32_t second_nproc) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 10, .nproc = nproc, .name = "a"},
                                {.incarnation = second, .nproc = second_nproc, .name = "b"}};
    cr_assert(hang_group_make((struct generation){1, counter}, nodes, n, &g));
    hang_evidence_begin(evidence, &g);
}

static void begin(void) {
    static const struct hang_evidence_ops ops = {.send = send_to, .add = add, .end = end};
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
    evidence = hang_evidence_new(loop, &ops, &the_server);
    run_group(1, 2, 2, 20, 2);
}

static void finish(void) {
    hang_evidence_free(evidence);
    child_reaper_free(reaper);
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

/* NULL: whatever it is. */
static void told_is(const struct told *t, const char *json, const char *missing, const char *second_json,
                    const char *second_missing) {
    const char *const want[] = {json, missing, second_json, second_missing};
    const char *const got[] = {t->json[0], t->missing[0], t->json[1], t->missing[1]};
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        if (want[i] != NULL)
            cr_assert_str_eq(got[i], want[i]);
}

TestSuite(hang_evidence_io, .init = begin, .fini = finish);

static struct told t, one, two, three, watchdog;

Test(hang_evidence_io, answers_are_put_together_from_pieces) {
    question(&t, LONG_NS);
    piece(10, last_id, "{\"a\":", true, false);
    piece(20, last_id, "{}", true, true);
    piece(10, last_id, "1}", false, true);
    cr_assert_eq(t.calls, 0, "never from inside a call");
    cr_assert_eq(asked[0].generation.counter, 1);
    until_told(&t);
    told_is(&t, "{\"a\":1}", "", "{}", "");
}

Test(hang_evidence_io, what_is_no_answer_is_ignored) {
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
    uint64_t begun = clock_now_ns();
    question(&t, 1);
    piece(10, last_id, "{}", true, true);
    until_told(&t);
    cr_assert_geq(clock_now_ns() - begun, HANG_ANSWERS_LATE_NS);
    told_is(&t, "{}", NULL, NULL, "it did not answer in time");
}

Test(hang_evidence_io, a_node_without_workers_or_that_is_lost_is_not_waited_for) {
    question(&t, LONG_NS);
    piece(10, last_id, "", true, true);
    hang_evidence_forgotten(evidence, 30);
    hang_evidence_forgotten(evidence, 20);
    hang_evidence_forgotten(evidence, 20);
    until_told(&t);
    told_is(&t, NULL, "no workers run there, or they could not be examined", NULL, "it was lost");
}

Test(hang_evidence_io, nodes_that_are_not_connected_are_not_waited_for) {
    connected = false;
    question(&t, LONG_NS);
    cr_assert_eq(t.calls, 0);
    until_told(&t);
    cr_assert_str_eq(t.missing[0], "it is not connected");
    connected = true;
}

Test(hang_evidence_io, an_answer_has_a_limit) {
    static char text[RDZV_EVIDENCE_CHUNK_MAX];
    memset(text, 'x', sizeof text - 1);
    question(&t, LONG_NS);
    piece(20, last_id, "{}", true, true);
    for (size_t sent = 0; sent <= RDZV_EVIDENCE_MAX; sent += sizeof text - 1)
        piece(10, last_id, text, sent == 0, false);
    until_told(&t);
    told_is(&t, "", "its answer is too long", NULL, NULL);
}

Test(hang_evidence_io, who_asks_meanwhile_shares_the_answers) {
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
    question(&one, LONG_NS);
    question_of_operator(&two, 1);
    piece(10, last_id, "{}", true, true);
    until_told(&two);
    told_is(&two, "{}", NULL, NULL, "it did not answer in time");
    cr_assert_eq(one.calls, 0);
    piece(20, last_id, "{}", true, true);
    until_told(&one);
    cr_assert_str_eq(one.missing[1], "");
}

/* "muster stacks --timeout=0.1" right before a verdict. */
Test(hang_evidence_io, the_watchdog_has_its_time_though_an_operator_had_less) {
    question_of_operator(&one, 1);
    uint32_t first_id = last_id;
    question(&watchdog, LONG_NS);
    cr_assert_eq(n_asked, 4);
    cr_assert_eq(asked[0].timeout_ns, LONG_NS);
    piece(10, first_id, "nothing in so short a time", true, true);
    piece(20, first_id, "nothing in so short a time", true, true);
    until_told(&one);
    cr_assert_eq(watchdog.calls, 0);
    both("{}");
    until_told(&watchdog);
    cr_assert_str_eq(watchdog.json[0], "{}");
}

/* With "--timeout=60" nodes may look for longer than the watchdog waits. */
Test(hang_evidence_io, the_watchdog_has_its_time_though_an_operator_has_more) {
    question_of_operator(&one, 2 * LONG_NS);
    question(&watchdog, LONG_NS);
    question_of_operator(&two, 3 * LONG_NS);
    cr_assert_eq(n_asked, 4);
    cr_assert_eq(asked[1].timeout_ns, LONG_NS);
    both("{}");
    until_told(&watchdog);
    cr_assert(one.calls == 1 && two.calls == 1);
    cr_assert_str_eq(one.json[1], "{}");
}

/* Who is called asks again, and with other words: then the round of the others is given up. */
static void ask_again(void *arg, const struct hang_answers *a) {
    on_answers(arg, a);
    if (one.calls == 1)
        question(&one, 2 * LONG_NS);
}

Test(hang_evidence_io, who_is_told_can_ask_for_longer) {
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
    static char text[RDZV_EVIDENCE_CHUNK_MAX];
    memset(text, 'x', sizeof text - 1);
    question(&t, LONG_NS);
    for (size_t sent = 0; sent <= HANG_ANSWERS_MAX; sent += sizeof text - 1)
        piece(10, last_id, text, true, false);
    both("{}");
    until_told(&t);
    told_is(&t, "{}", "", NULL, "");
}

Test(hang_evidence_io, the_end_of_the_group_ends_the_questions) {
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

static void last_question(struct told *of) {
    cr_assert_eq(hang_evidence_ask(evidence, HANG_BEFORE_STOP, LONG_NS, on_answers, of, &of->question), 0);
}

Test(hang_evidence_io, a_last_question_is_answered_while_the_workers_are_stopped) {
    last_question(&t);
    cr_assert(asked[0].holds && asked[1].holds);
    hang_evidence_end(evidence);
    piece(10, last_id, "{}", true, true);
    piece(20, last_id, "[]", true, true);
    until_told(&t);
    told_is(&t, "{}", NULL, "[]", NULL);
}

Test(hang_evidence_io, a_last_question_ends_when_another_group_runs) {
    last_question(&t);
    hang_evidence_end(evidence);
    piece(10, last_id, "{}", true, true);
    run_group(2, 2, 1, 0, 0);
    until_told(&t);
    cr_assert_eq(t.n_nodes, 2);
    told_is(&t, "{}", NULL, NULL, "it did not answer in time");
}

/* A node answers only the newest question. */
Test(hang_evidence_io, a_last_question_is_asked_though_another_one_is_open) {
    question(&one, LONG_NS);
    uint32_t first_id = last_id;
    cr_assert_not(asked[0].holds);
    last_question(&two);
    cr_assert_eq(n_asked, 4);
    piece(10, first_id, "old", true, true);
    both("{}");
    until_told(&two);
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
    bool ends[3 * RDZV_SUSPECTS_MAX];
    memset(ends, true, sizeof ends);
    run_group(1, ARRAY_SIZE(ends), 1, 0, 0);
    hang_evidence_end_ranks(evidence, ends, 0, NULL, NULL, NULL);
    cr_assert_eq(suspects[0].n, RDZV_SUSPECTS_MAX);
}

Test(hang_evidence_io, native_stacks_of_suspects_come_beside_what_operators_ask) {
    static const bool ends[4] = {false, false, true, false};
    question_of_operator(&one, LONG_NS);
    uint32_t asked_id = last_id;
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert_eq(n_asked, 3, "only the node of the suspect");
    cr_assert(suspects[1].n == 1 && suspects[1].timeout_ns == LONG_NS && suspects[1].id != asked_id);
    hang_evidence_end(evidence);
    until_told(&one);
    cr_assert_eq(t.calls, 0, "it is awaited while the workers are stopped");
    piece(20, asked_id, "late", true, true);
    piece(10, last_id, "a stranger", true, true);
    piece(20, last_id, "{\"a\":", true, false);
    piece(20, last_id, "1}", false, true);
    cr_assert_eq(t.calls, 0, "never from inside a call");
    until_told(&t);
    told_is(&t, NULL, NULL, "{\"a\":1}", "");
}

Test(hang_evidence_io, native_stacks_have_their_time_and_not_more) {
    static const bool ends[4] = {true, false, true, false};
    hang_evidence_end_ranks(evidence, ends, 1, on_answers, &t, &t.question);
    piece(10, last_id, "{}", true, true);
    until_told(&t);
    told_is(&t, "{}", NULL, NULL, "it did not answer in time");
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &one, &one.question);
    hang_evidence_forgotten(evidence, 10);
    hang_evidence_forgotten(evidence, 20);
    until_told(&one);
    cr_assert_str_eq(one.missing[0], "it was lost");
    hang_evidence_end_ranks(evidence, ends, 1, on_answers, &two, &two.question);
    hang_question_free(two.question);
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert_eq(suspects[0].timeout_ns, LONG_NS);
    hang_evidence_begin(evidence, &(struct hang_group){0}); /* another group */
    t.calls = 0;
    until_told(&t);
    cr_assert_eq(two.calls, 0);
}

Test(hang_evidence_io, of_many_suspects_only_some_are_read) {
    bool ends[HANG_ENDS_READ_MAX + 1];
    memset(ends, true, sizeof ends);
    run_group(1, HANG_ENDS_READ_MAX, 2, 20, 1);
    hang_evidence_end_ranks(evidence, ends, LONG_NS, on_answers, &t, &t.question);
    cr_assert(suspects[0].n == HANG_ENDS_READ_MAX && suspects[0].timeout_ns == LONG_NS);
    cr_assert(suspects[1].n == 1 && suspects[1].timeout_ns == 0, "it is ended all the same");
    piece(10, suspects[0].id, "{}", true, true);
    until_told(&t);
    cr_assert_str_eq(t.missing[1], "there are too many suspects");
}

/* ---- what the leader passes on to operators */

/* Another group runs, and an operator asks for its stacks, or with a period for samples. */
static void operator_asks(uint64_t second, uint64_t period_ns) {
    run_group(4, 2, 2, second, 3);
    hang_stacks_ask(evidence, period_ns, LONG_NS);
}

static void until_passed(void) {
    while (passed.ends == 0)
        cr_assert_eq(loop_run(loop), 0);
}

Test(hang_evidence_io, each_node_s_answer_is_passed_on_in_order) {
    operator_asks(20, 0);
    piece(20, last_id, "{\"b\":1}", true, true);
    piece(10, last_id, "{\"a\":1}", true, true);
    cr_assert_eq(passed.n, 0, "never from inside a call");
    until_passed();
    cr_assert_eq(passed.n, 2);
    cr_assert_str_eq(passed.why, "");
    cr_assert_str_eq(passed.json[0], "{\"a\":1}");
    cr_assert_str_eq(passed.json[1], "{\"b\":1}");
    const struct rdzv_stacks *b = &passed.heads[1];
    cr_assert(b->generation.epoch == 1 && b->generation.counter == 4);
    cr_assert(b->node == 1 && b->n_nodes == 2 && b->first_rank == 2 && b->nproc == 3 && b->world_size == 5);
    cr_assert_str_eq(b->name, "b");
    cr_assert_str_eq(b->missing, "");
}

static uintptr_t first_answer;

static void note_answers(void *arg, const struct hang_answers *answers) {
    first_answer = (uintptr_t)strbuf_text(&answers->nodes[0].json);
}

/* All nodes' can be 128 MiB. */
Test(hang_evidence_io, answers_are_not_copied) {
    struct hang_question *question;
    run_group(4, 2, 2, 20, 3);
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_WATCHDOG, LONG_NS, note_answers, NULL, &question), 0);
    hang_stacks_ask(evidence, 0, LONG_NS);
    piece(10, last_id, "{\"a\":1}", true, true);
    piece(20, last_id, "{\"b\":1}", true, true);
    until_passed();
    cr_assert_eq(passed.n, 2);
    cr_assert_str_eq(passed.json[0], "{\"a\":1}");
    cr_assert_eq(passed.at[0], first_answer);
}

Test(hang_evidence_io, a_node_that_can_not_be_asked_has_a_reason) {
    operator_asks(30, 0);
    piece(10, last_id, "{}", true, true);
    until_passed();
    cr_assert_str_eq(passed.heads[0].missing, "");
    cr_assert_str_neq(passed.heads[1].missing, "");
    cr_assert_str_eq(passed.json[1], "");
}

Test(hang_evidence_io, without_workers_there_is_a_reason_at_once) {
    hang_evidence_end(evidence);
    hang_stacks_ask(evidence, 0, LONG_NS);
    cr_assert_eq(passed.ends, 1);
    cr_assert_eq(passed.n, 0);
    assert_has(passed.why, "no worker runs at the moment");
}

Test(hang_evidence_io, workers_that_are_stopped_meanwhile_end_the_wait) {
    operator_asks(20, 0);
    piece(10, last_id, "{}", true, true);
    hang_evidence_end(evidence);
    until_passed();
    cr_assert_eq(passed.n, 2);
    cr_assert_str_eq(passed.json[0], "{}");
    cr_assert_str_neq(passed.heads[1].missing, "");
}

Test(hang_evidence_io, who_no_longer_waits_hears_nothing) {
    operator_asks(20, 0);
    piece(10, last_id, "{}", true, true);
    hang_stacks_cancel(evidence, ASK_STACKS);
    piece(20, last_id, "{}", true, true);
    rig_loop_turns(loop, 20);
    cr_assert_eq(passed.n + passed.ends, 0);
    hang_stacks_ask(evidence, 0, LONG_NS); /* and can ask again */
    both("{}");
    until_passed();
    cr_assert_eq(passed.n, 2);
}

Test(hang_evidence_io, samples_that_no_one_waits_for_are_stopped) {
    operator_asks(20, 50 * NS_PER_MS);
    hang_stacks_cancel(evidence, ASK_PROFILE);
    cr_assert_eq(asked[1].what, ASK_PROFILE);
    cr_assert(generation_is_none(asked[1].generation) && asked[1].timeout_ns > 0 && asked[1].period_ns > 0);
    piece(20, last_id, "", true, true); /* is ignored */
    rig_loop_turns(loop, 20);
    cr_assert_eq(passed.n + passed.ends, 0);
}

Test(hang_evidence_io, samples_come_beside_stacks_and_outlive_the_workers) {
    operator_asks(20, 50 * NS_PER_MS);
    uint32_t samples = last_id;
    cr_assert(asked[1].what == ASK_PROFILE && asked[1].period_ns == 50 * NS_PER_MS && asked[1].timeout_ns == LONG_NS);
    hang_stacks_ask(evidence, 0, LONG_NS);
    cr_assert_eq(asked[1].what, ASK_STACKS);
    both("{}");
    until_passed();
    cr_assert_eq(passed.what, ASK_STACKS);
    passed.n = passed.ends = 0;
    hang_evidence_end(evidence);
    run_group(4, 2, 2, 30, 3); /* the next attempt */
    last_id = samples;
    piece(10, last_id, "{\"a\":1}", true, true);
    piece(20, last_id, "{\"b\":1}", true, true);
    until_passed();
    cr_assert_eq(passed.what, ASK_PROFILE);
    cr_assert_eq(passed.n, 2);
    cr_assert_str_eq(passed.json[1], "{\"b\":1}");
}

static const struct generation generation = {1, 2};

Test(hang_group, ranks_follow_the_order_of_the_nodes) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 7, .nproc = 2, .name = "a"},
                                {.incarnation = 5, .nproc = 1, .name = "b"}};
    cr_assert(hang_group_make(generation, nodes, 2, &g));
    cr_assert_eq(g.world_size, 3);
    cr_assert_eq(g.nodes[1].first_rank, 2);
    cr_assert_eq(g.node_of[1], 0);
    cr_assert_eq(g.node_of[2], 1);
    cr_assert_eq(hang_group_find(&g, 5), 1);
    cr_assert_eq(hang_group_find(&g, 6), 2, "it is no member");
}

Test(hang_group, more_ranks_than_the_watchdog_knows_are_refused) {
    struct hang_group g;
    struct hang_node nodes[] = {{.nproc = HANG_RANKS_MAX}, {.nproc = 1}};
    cr_assert_not(hang_group_make(generation, nodes, 2, &g));
    cr_assert_eq(g.n_nodes, 0);
    cr_assert_not(hang_group_make(generation, nodes, 0, &g), "and none at all");
}

/* ---- a case: the answers are compared */

static struct hang_case_config config;
static struct hang_settings *const settings = &config.settings;
static struct suspects_input ask;
static bool ends;
static struct hang_case *opened;
static char dir[] = "/tmp/muster-case-XXXXXX";
static const char *folder; /* of the logs */
static char *answers[2];   /* of the nodes; NULL: it is lost */

/* What came. */
static uint32_t calls;
static struct hang_compared got;
static char line[SUSPECTS_LINE_MAX], path[512], files_error[512];
static struct hang_rank ranks[4];

static void copy(char *to, size_t size, const char *from) { (void)snprintf(to, size, "%s", from == NULL ? "" : from); }

static void on_compared(void *arg, const struct hang_compared *c) {
    cr_assert_eq(arg, &calls);
    calls++;
    got = *c;
    copy(line, sizeof line, c->line);
    copy(path, sizeof path, c->path);
    copy(files_error, sizeof files_error, c->files_error);
    memcpy(ranks, c->ranks, sizeof ranks);
    loop_quit(loop);
}

static const char *hang_dir(const struct worker_logs *files) { return folder; }
static void spare(struct spare *s, pid_t pid) { (void)s, (void)pid; }

static void begin_case(void) {
    static const struct hang_workers_ops workers_ops = {.hang_dir = hang_dir, .spare = spare};
    begin();
    config = (struct hang_case_config){.evidence = evidence,
                                       .settings = {.evidence_timeout_ns = 60 * NS_PER_S},
                                       .run_id = "night",
                                       .log_mode = 0600,
                                       .workers = {.ops = &workers_ops}};
    cr_assert_not_null(mkdtemp(dir));
}

static void finish_case(void) {
    free(answers[0]);
    free(answers[1]);
    finish();
    cr_expect(tempdir_remove(dir));
}

TestSuite(hang_case_io, .init = begin_case, .fini = finish_case);

static void send_json(uint32_t node, const char *json) { answers[node] = xstrdup(json); }

static void send_answers(void) {
    for (uint32_t i = 0; i < 2; i++)
        if (answers[i] == NULL)
            hang_evidence_forgotten(evidence, 10 * (i + 1));
        else
            piece(10 * (i + 1), last_id, answers[i], true, true);
}

static void compare(void) {
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    cr_assert_eq(asked[1].timeout_ns, settings->evidence_timeout_ns);
    send_answers();
    while (calls == 0)
        cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(calls, 1);
    cr_assert_eq(got.code, 0);
}

/* What NCCL RAS says of each rank; 0: nothing. */
static uint64_t collectives[4];

/* Of each rank: whether it has a connection to the store, if that is known. */
static bool at_store[4], not_at_store[4];

/* Where they are. */
static const char *function = "step", *file = "/home/u/train.py";

static const char *gap; /* of each worker; NULL: none */

/* Two ranks that wait in a call of train.py; `at`: the line of the second one. */
static void add_node(uint32_t node, uint32_t first_rank, uint32_t at) {
    _cleanup_(evidence_fini) struct evidence e = {0};
    cr_assert_eq(evidence_add_counts(&e, collectives, 4), 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct pystack_frame frame = {.line = i == 0 ? 76 : at};
        (void)snprintf(frame.function, sizeof frame.function, "%s", function);
        (void)snprintf(frame.file, sizeof frame.file, "%s", file);
        uint32_t stack;
        cr_assert_eq(evidence_add_stack(&e, &frame, 1, &stack), 0);
        struct evidence_worker *w = evidence_add_worker(&e);
        w->rank = first_rank + i;
        w->local_rank = i;
        w->pid = 40 + (int)w->rank;
        w->ended = at == 0 && i == 1;
        w->still_ns = 31 * NS_PER_S;
        w->at_store = at_store[w->rank];
        w->not_at_store = not_at_store[w->rank];
        if (w->ended)
            continue;
        if (gap != NULL)
            evidence_worker_gap(w, "%s", gap);
        *evidence_add_thread(w) = (struct evidence_thread){.tid = w->pid, .state = 'S', .stack = (int32_t)stack};
    }
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    evidence_write(&e, &json);
    send_json(node, strbuf_text(&json));
}

Test(hang_case_io, the_odd_rank_is_named) {
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    ask.what = "nothing moves";
    compare();
    assert_has(line, "ranks 0-2 wait in step (train.py:76); rank 3 (node b, pid 43)");
    cr_assert_eq(got.n_suspects, 1);
    cr_assert_eq(got.first.rank, 3);
    cr_assert(ranks[3].is_suspect && !ranks[0].is_suspect && !ranks[1].is_suspect && !ranks[2].is_suspect);
    cr_assert_eq(got.first.node, 1);
    cr_assert_eq(got.n_debugged, 0);
    cr_assert_neq(ranks[0].place, 0);
    cr_assert_eq(ranks[0].place, ranks[2].place);
    cr_assert_neq(ranks[0].place, ranks[3].place);
    cr_assert_str_eq(path, "", "no files were wanted");
    cr_assert_str_eq(files_error, "");
}

Test(hang_case_io, who_is_in_a_debugger_is_told) {
    add_node(0, 0, 76);
    file = "/v/debugpy/_vendored/pydevd/pydevd.py";
    function = "_wait_for_attach";
    add_node(1, 2, 76);
    compare();
    cr_assert(got.n_debugged == 2 && got.debugged == 2);
}

/* All ranks wait at the same place. */
Test(hang_case_io, who_has_launched_fewer_collectives_is_named_though_its_node_is_silent) {
    memcpy(collectives, (const uint64_t[]){120, 120, 120, 119}, sizeof collectives);
    add_node(0, 0, 76);
    compare();
    assert_has(line,
               "rank 3 (node b): at collective 119, others at 120; no evidence; no evidence from ranks 2-3 (node b: "
               "it was lost)");
    cr_assert(got.n_suspects == 1 && got.first.rank == 3 && got.first.reason == SUSPECT_COLLECTIVES);
    cr_assert(ranks[3].is_suspect && !ranks[2].is_suspect);
}

/* Of the other node nothing is known. */
Test(hang_case_io, nobody_lacks_a_connection_to_the_store_that_no_other_rank_is_known_to_have) {
    not_at_store[0] = not_at_store[1] = true;
    add_node(0, 0, 76);
    compare();
    cr_assert_eq(got.n_suspects, 0, "%s", line);
}

Test(hang_case_io, who_is_not_at_the_store_is_named_though_another_node_is_silent) {
    at_store[0] = not_at_store[1] = true;
    add_node(0, 0, 76);
    compare();
    cr_assert(got.n_suspects == 1 && got.first.rank == 1 && got.first.reason == SUSPECT_ABSENT, "%s", line);
}

Test(hang_case_io, collectives_are_told_by_the_node_of_rank_0_alone) {
    add_node(0, 0, 76);
    memcpy(collectives, (const uint64_t[]){120, 120, 119, 120}, sizeof collectives);
    add_node(1, 2, 76);
    compare();
    cr_assert_eq(got.n_suspects, 0, "%s", line);
}

Test(hang_case_io, who_has_ended_is_told) {
    add_node(0, 0, 76);
    add_node(1, 2, 0);
    compare();
    cr_assert(ranks[3].ended);
    cr_assert_not(ranks[0].ended);
    cr_assert_eq(ranks[3].place, 0);
}

Test(hang_case_io, files_are_written) {
    _cleanup_(freep) char *written = NULL, *text = NULL;
    _cleanup_(json_freep) struct json *doc = NULL;
    struct json_limits limits = {.max_bytes = 1 << 20, .max_depth = 12, .max_values = 65536};
    struct err err = {0};
    const char *written_in;
    size_t len;
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    folder = dir;
    ask.what = "nothing moves";
    compare();
    cr_assert_str_eq(files_error, "");
    cr_assert_eq(file_read_text(path, 1 << 20, &text, &len), 0);
    int at[7], end = 0;
    (void)sscanf(text, "job night, %4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5],
                 &at[6], &end);
    cr_assert_gt(end, 0, "%s", text);
    assert_has(text, "Z\nnothing moves\nranks 0-2 wait in step (train.py:76)");
    memcpy(path + strlen(path) - strlen("txt"), "json", 5);
    cr_assert_eq(file_read_text(path, 1 << 20, &written, &len), 0);
    cr_assert_eq(json_parse(written, len, &limits, &doc, &err), 0, "%s", err.text);
    cr_assert_eq(json_get_string(doc, "generation", 16, &written_in, &err), 0);
    cr_assert_str_eq(written_in, "1.1");
}

Test(hang_case_io, without_files_the_line_is_there) {
    _cleanup_(freep) char *below = xasprintf("%s/none", dir);
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    folder = below;
    compare();
    assert_has(line, "rank 3");
    cr_assert_str_eq(path, "");
    assert_has(files_error, below);
}

Test(hang_case_io, an_answer_that_makes_no_sense_is_no_evidence) {
    add_node(0, 0, 76);
    send_json(1, "{\"host\":");
    compare();
    assert_has(line, "no evidence from ranks 2-3 (node b");
}

Test(hang_case_io, nobody_looks_for_hours) {
    settings->evidence_timeout_ns = 3600 * NS_PER_S;
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    cr_assert_eq(asked[0].timeout_ns, 60 * NS_PER_S);
    hang_case_free(opened);
}

Test(hang_case_io, a_rank_that_failed_while_others_waited) {
    struct hang_suspect sign = {.rank = 1, .sign = HANG_SIGN_ENDED};
    bool waited[4] = {true, false, true, true};
    ask.signs = &sign;
    ask.n_signs = 1;
    ask.waited = waited;
    add_node(0, 0, 0);
    add_node(1, 2, 76);
    compare();
    assert_has(line, "rank 1 (node a, pid 41): has ended with 0");
}

static void compare_a_failure(void) {
    ask.waited = (const bool[4]){false, true, true, true}; /* rank 0 failed */
    add_node(0, 0, 76);
    add_node(1, 2, 76);
    folder = dir;
    compare();
}

Test(hang_case_io, a_failure_that_no_rank_waited_for_is_not_in_files) {
    gap = "Python stack: no Python is loaded in it";
    compare_a_failure();
    cr_assert(line[0] == '\0' && path[0] == '\0' && files_error[0] == '\0', "%s %s", line, path);
}

Test(hang_case_io, a_failure_for_which_unread_ranks_can_have_waited_is_in_files) {
    gap = "Python stack: process 43 could not be read in time";
    compare_a_failure();
    assert_has(line, "others waited");
    cr_assert_neq(path[0], '\0');
}

Test(hang_case_io, a_cancelled_one_is_silent) {
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    hang_case_free(opened);
    add_node(0, 0, 76);
    send_answers();
    cr_assert_eq(calls, 0);
}

Test(hang_case_io, there_is_none_without_workers_or_without_time) {
    settings->evidence_timeout_ns = 0;
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), -ECANCELED);
    settings->evidence_timeout_ns = NS_PER_S;
    hang_evidence_end(evidence);
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), -ESRCH);
}

Test(hang_case_io, before_a_stop_a_quarter_of_the_time_is_left) {
    ends = true;
    settings->evidence_timeout_ns = 8 * NS_PER_S;
    cr_assert_eq(hang_case_native_ns(settings), 2 * NS_PER_S);
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    cr_assert_eq(asked[0].timeout_ns, 6 * NS_PER_S);
    hang_case_free(opened);
}
