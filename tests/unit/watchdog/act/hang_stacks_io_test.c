/* What the leader passes on to operators; the nodes are the test. */
#include "watchdog/act/hang_evidence_io.h"

#include "rendezvous/protocol/wire.h"
#include "rig/loop_rig.h"

#define LONG_NS (600 * NS_PER_S) /* nothing waits so long */

static struct loop *loop;
static struct hang_evidence *evidence;
static uint32_t last_id;
static struct rdzv_server *the_server = (struct rdzv_server *)&last_id;
static struct rdzv_ask last_ask;
static struct {
    struct rdzv_stacks heads[2];
    char json[2][64], why[128];
    uintptr_t at[2];
    unsigned n, ends;
    enum rdzv_ask_what what;
} told;

static bool send_to(struct rdzv_server *server, uint64_t incarnation, const struct wire_message *m) {
    cr_assert_eq(server, the_server);
    last_id = m->ask.id;
    last_ask = m->ask;
    return incarnation != 30;
}

static void add(struct rdzv_server *server, enum rdzv_ask_what what, const struct rdzv_stacks *node, const char *json,
                size_t len) {
    cr_assert_eq(server, the_server);
    cr_assert_lt(told.n, 2);
    told.what = what;
    cr_assert_eq(len, strlen(json));
    told.heads[told.n] = *node;
    told.at[told.n] = (uintptr_t)json;
    (void)snprintf(told.json[told.n++], sizeof told.json[0], "%s", json);
}

static void end(struct rdzv_server *server, enum rdzv_ask_what what, const char *why_not) {
    cr_assert_eq(server, the_server);
    told.what = what;
    told.ends++;
    (void)snprintf(told.why, sizeof told.why, "%s", why_not == NULL ? "" : why_not);
    loop_quit(loop);
}

static void begin(void) {
    static const struct hang_evidence_ops ops = {.send = send_to, .add = add, .end = end};
    memset(&told, 0, sizeof told);
    cr_assert_eq(loop_new(&loop), 0);
    evidence = hang_evidence_new(loop, &ops, &the_server);
}

static void finish(void) {
    hang_evidence_free(evidence);
    loop_free(loop);
}

static void run_group(uint64_t second) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 10, .nproc = 2, .name = "a"},
                                {.incarnation = second, .nproc = 3, .name = "b"}};
    cr_assert(hang_group_make((struct generation){1, 4}, nodes, 2, &g));
    hang_evidence_begin(evidence, &g);
}

static void answer(uint64_t from, const char *text) {
    struct rdzv_evidence p = {.id = last_id, .first = true, .last = true};
    (void)snprintf(p.text, sizeof p.text, "%s", text);
    hang_evidence_piece(evidence, from, &p);
}

static void until_end(void) {
    while (told.ends == 0)
        cr_assert_eq(loop_run(loop), 0);
}

TestSuite(hang_stacks_io, .init = begin, .fini = finish);

Test(hang_stacks_io, each_node_s_answer_is_passed_on_in_order) {
    run_group(20);
    hang_stacks_ask(evidence, 0, LONG_NS);
    answer(20, "{\"b\":1}");
    answer(10, "{\"a\":1}");
    cr_assert_eq(told.n, 0, "never from inside a call");
    until_end();
    cr_assert_eq(told.n, 2);
    cr_assert_str_eq(told.why, "");
    cr_assert_str_eq(told.json[0], "{\"a\":1}");
    cr_assert_str_eq(told.json[1], "{\"b\":1}");
    const struct rdzv_stacks *b = &told.heads[1];
    cr_assert(b->generation.epoch == 1 && b->generation.counter == 4);
    cr_assert(b->node == 1 && b->n_nodes == 2 && b->first_rank == 2 && b->nproc == 3 && b->world_size == 5);
    cr_assert_str_eq(b->name, "b");
    cr_assert_str_eq(b->missing, "");
}

static uintptr_t first_answer;

static void on_answers(void *arg, const struct hang_answers *answers) {
    first_answer = (uintptr_t)strbuf_text(&answers->nodes[0].json);
}

/* All nodes' can be 128 MiB. */
Test(hang_stacks_io, answers_are_not_copied) {
    struct hang_question *question;
    run_group(20);
    cr_assert_eq(hang_evidence_ask(evidence, HANG_FOR_WATCHDOG, LONG_NS, on_answers, NULL, &question), 0);
    hang_stacks_ask(evidence, 0, LONG_NS);
    answer(10, "{\"a\":1}");
    answer(20, "{\"b\":1}");
    until_end();
    cr_assert_eq(told.n, 2);
    cr_assert_str_eq(told.json[0], "{\"a\":1}");
    cr_assert_eq(told.at[0], first_answer);
}

Test(hang_stacks_io, a_node_that_can_not_be_asked_has_a_reason) {
    run_group(30);
    hang_stacks_ask(evidence, 0, LONG_NS);
    answer(10, "{}");
    until_end();
    cr_assert_str_eq(told.heads[0].missing, "");
    cr_assert_str_neq(told.heads[1].missing, "");
    cr_assert_str_eq(told.json[1], "");
}

Test(hang_stacks_io, without_workers_there_is_a_reason_at_once) {
    hang_stacks_ask(evidence, 0, LONG_NS);
    cr_assert_eq(told.ends, 1);
    cr_assert_eq(told.n, 0);
    assert_has(told.why, "no worker runs at the moment");
}

Test(hang_stacks_io, workers_that_are_stopped_meanwhile_end_the_wait) {
    run_group(20);
    hang_stacks_ask(evidence, 0, LONG_NS);
    answer(10, "{}");
    hang_evidence_end(evidence);
    until_end();
    cr_assert_eq(told.n, 2);
    cr_assert_str_eq(told.json[0], "{}");
    cr_assert_str_neq(told.heads[1].missing, "");
}

Test(hang_stacks_io, who_no_longer_waits_hears_nothing) {
    run_group(20);
    hang_stacks_ask(evidence, 0, LONG_NS);
    answer(10, "{}");
    hang_stacks_cancel(evidence, ASK_STACKS);
    answer(20, "{}");
    rig_loop_turns(loop, 20);
    cr_assert_eq(told.n + told.ends, 0);
    hang_stacks_ask(evidence, 0, LONG_NS); /* and can ask again */
    answer(10, "{}");
    answer(20, "{}");
    until_end();
    cr_assert_eq(told.n, 2);
}

Test(hang_stacks_io, samples_that_no_one_waits_for_are_stopped) {
    run_group(20);
    hang_stacks_ask(evidence, 50 * NS_PER_MS, LONG_NS);
    hang_stacks_cancel(evidence, ASK_PROFILE);
    cr_assert_eq(last_ask.what, ASK_PROFILE);
    cr_assert(generation_is_none(last_ask.generation) && last_ask.timeout_ns > 0 && last_ask.period_ns > 0);
    answer(20, ""); /* is ignored */
    rig_loop_turns(loop, 20);
    cr_assert_eq(told.n + told.ends, 0);
}

Test(hang_stacks_io, samples_come_beside_stacks_and_outlive_the_workers) {
    run_group(20);
    hang_stacks_ask(evidence, 50 * NS_PER_MS, LONG_NS);
    uint32_t samples = last_id;
    cr_assert(last_ask.what == ASK_PROFILE && last_ask.period_ns == 50 * NS_PER_MS && last_ask.timeout_ns == LONG_NS);
    hang_stacks_ask(evidence, 0, LONG_NS);
    cr_assert_eq(last_ask.what, ASK_STACKS);
    answer(10, "{}");
    answer(20, "{}");
    until_end();
    cr_assert_eq(told.what, ASK_STACKS);
    told.n = told.ends = 0;
    hang_evidence_end(evidence);
    run_group(30); /* the next attempt */
    last_id = samples;
    answer(10, "{\"a\":1}");
    answer(20, "{\"b\":1}");
    until_end();
    cr_assert_eq(told.what, ASK_PROFILE);
    cr_assert_eq(told.n, 2);
    cr_assert_str_eq(told.json[1], "{\"b\":1}");
}
