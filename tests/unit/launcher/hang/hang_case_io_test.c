#include "launcher/hang/hang_case_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/process/reaper.h"
#include "rendezvous/protocol/wire.h"

static struct loop *loop;
static struct child_reaper *reaper;
static struct hang_evidence *evidence;
static struct job_spec spec;
static struct hang_case_config config;
static struct hang_case *opened;
static uint32_t last_id, calls;
static uint64_t native_ns; /* that are left for native stacks */
static int code;
static char line[SUSPECTS_LINE_MAX];

static bool send_to(void *arg, uint64_t incarnation, const struct wire_message *m) {
    (void)arg;
    (void)incarnation;
    cr_assert_eq(m->ask.timeout_ns + native_ns, MIN2(spec.evidence_timeout_ns, 60 * NS_PER_S));
    last_id = m->ask.id;
    return true;
}

static void on_seen(void *arg, const struct hang_compared *c) {
    (void)arg;
    calls++;
    code = c->code;
    (void)snprintf(line, sizeof line, "%s", c->line);
    loop_quit(loop);
}

static void begin(void) {
    static const struct hang_evidence_ops ops = {.send = send_to};
    static const struct hang_node node = {.incarnation = 1, .nproc = 2, .name = "a"};
    _cleanup_(hang_group_fini) struct hang_group g;
    spec = job_spec_default;
    spec.evidence_timeout_ns = 60 * NS_PER_S;
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(child_reaper_new(loop, &reaper), 0);
    cr_assert_eq(hang_evidence_new(loop, &ops, NULL, &evidence), 0);
    cr_assert(hang_group_make((struct generation){1, 1}, &node, 1, &g));
    hang_evidence_begin(evidence, &g);
    config = (struct hang_case_config){.loop = loop, .spec = &spec, .evidence = evidence};
}

static void finish(void) {
    hang_evidence_free(evidence);
    child_reaper_free(reaper);
    loop_free(loop);
}

TestSuite(hang_case_io, .init = begin, .fini = finish);

static void answer(void) {
    struct rdzv_evidence piece = {.id = last_id, .first = true, .last = true};
    _cleanup_(evidence_fini) struct evidence e = {0};
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    for (uint32_t r = 0; r < 2; r++)
        evidence_add_worker(&e)->rank = r;
    e.workers[1].ended = true;
    evidence_write(&e, &json);
    memcpy(piece.text, strbuf_text(&json), json.len + 1);
    hang_evidence_piece(evidence, 1, &piece);
}

Test(hang_case_io, nobody_looks_for_hours) {
    struct hang_case_ask about = {.what = "it waits"};
    spec.evidence_timeout_ns = 3600 * NS_PER_S;
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), 0);
    cr_assert_gt(last_id, 0);
    hang_case_free(opened);
}

Test(hang_case_io, asks_and_compares) {
    struct hang_suspect sign = {.rank = 1, .sign = HANG_SIGN_ENDED};
    bool waited[2] = {true, false};
    struct hang_case_ask about = {.what = "it waits", .signs = &sign, .n_signs = 1, .waited = waited, .failed = 0};
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), 0);
    answer();
    while (calls == 0)
        cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, 0);
    cr_assert_not_null(strstr(line, "rank 1 (node a): has ended with 0"), "%s", line);
}

Test(hang_case_io, a_cancelled_one_is_silent) {
    struct hang_case_ask about = {.what = NULL};
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), 0);
    hang_case_free(opened);
    answer();
    cr_assert_eq(calls, 0);
}

Test(hang_case_io, there_is_none_without_workers_or_without_time) {
    struct hang_case_ask about = {.what = NULL};
    spec.evidence_timeout_ns = 0;
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), -ECANCELED);
    spec.evidence_timeout_ns = NS_PER_S;
    hang_evidence_end(evidence);
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), -ESRCH);
}

Test(hang_case_io, before_a_stop_a_quarter_of_the_time_is_left) {
    struct hang_case_ask about = {.what = "it hangs", .ends = true};
    spec.evidence_timeout_ns = 8 * NS_PER_S;
    native_ns = 2 * NS_PER_S;
    cr_assert_eq(hang_case_native_ns(&spec), native_ns);
    cr_assert_eq(hang_case_new(&config, &about, on_seen, NULL, &opened), 0);
    cr_assert_gt(last_id, 0);
    hang_case_free(opened);
}
