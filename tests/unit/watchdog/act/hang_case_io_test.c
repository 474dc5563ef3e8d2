/* A case of two nodes with two ranks each. */
#include "watchdog/act/hang_evidence_io.h"

#include "base/json/json.h"
#include "io/file.h"
#include "io/process/reaper.h"
#include "launcher/output/tempdir_io.h"
#include "rendezvous/protocol/wire.h"
#include "rig/unit.h"

static struct loop *loop;
static struct child_reaper *reaper;
static struct hang_evidence *evidence;
static struct hang_case_config config;
static struct hang_settings *const settings = &config.settings;
static struct suspects_input ask;
static bool ends;
static struct hang_case *opened;
static uint32_t last_id;
static uint64_t native_ns; /* that are left for native stacks */
static char dir[] = "/tmp/muster-case-XXXXXX";
static const char *folder; /* of the logs */
static char *answers[2];   /* of the nodes; NULL: silent */

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

static bool send_to(struct rdzv_server *server, uint64_t incarnation, const struct wire_message *m) {
    (void)server, (void)incarnation;
    cr_assert_eq(m->ask.timeout_ns + native_ns, MIN2(settings->evidence_timeout_ns, 60 * NS_PER_S));
    last_id = m->ask.id;
    return true;
}

static const char *hang_dir(const struct worker_logs *files) { return folder; }
static void spare(struct spare *s, pid_t pid) { (void)s, (void)pid; }

static void begin(void) {
    static const struct hang_evidence_ops ops = {.send = send_to};
    static const struct hang_workers_ops workers_ops = {.hang_dir = hang_dir, .spare = spare};
    static struct rdzv_server *server = (struct rdzv_server *)&last_id;
    static const struct hang_node nodes[] = {{.incarnation = 1, .nproc = 2, .name = "a"},
                                             {.incarnation = 2, .nproc = 2, .name = "b"}};
    _cleanup_(hang_group_fini) struct hang_group g;
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(child_reaper_new(loop, &reaper), 0);
    evidence = hang_evidence_new(loop, &ops, &server);
    cr_assert(hang_group_make((struct generation){1, 3}, nodes, 2, &g));
    hang_evidence_begin(evidence, &g);
    config = (struct hang_case_config){.evidence = evidence,
                                       .settings = {.evidence_timeout_ns = 60 * NS_PER_S},
                                       .run_id = "night",
                                       .log_mode = 0600,
                                       .workers = {.ops = &workers_ops}};
    cr_assert_not_null(mkdtemp(dir));
}

static void finish(void) {
    for (uint32_t i = 0; i < 2; i++)
        free(answers[i]);
    hang_evidence_free(evidence);
    child_reaper_free(reaper);
    loop_free(loop);
    cr_expect(tempdir_remove(dir));
}

TestSuite(hang_case_io, .init = begin, .fini = finish);

static void send_json(uint32_t node, const char *json) { answers[node] = xstrdup(json); }

/* A node that has no answer is lost. */
static void send_answers(void) {
    for (uint32_t i = 0; i < 2; i++) {
        struct rdzv_evidence piece = {.id = last_id, .first = true, .last = true};
        if (answers[i] == NULL) {
            hang_evidence_forgotten(evidence, i + 1);
            continue;
        }
        cr_assert_lt(strlen(answers[i]), sizeof piece.text);
        memcpy(piece.text, answers[i], strlen(answers[i]) + 1);
        hang_evidence_piece(evidence, i + 1, &piece);
    }
}

static void compare(void) {
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
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
        w->at_store = at_store[w->rank];
        w->not_at_store = not_at_store[w->rank];
        struct evidence_thread *t = w->ended ? NULL : evidence_add_thread(w);
        if (t == NULL)
            continue;
        t->tid = w->pid;
        t->state = 'S';
        t->stack = (int32_t)stack;
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
    cr_assert_eq(got.code, 0);
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
    assert_has(line, "rank 3 (node b): at collective 119, others at 120; no evidence");
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
    const char *generation;
    size_t len;
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    folder = dir;
    ask.what = "nothing moves";
    compare();
    cr_assert_str_eq(files_error, "");
    cr_assert_eq(file_read_text(path, 1 << 20, &text, &len), 0);
    int t[7], end = 0;
    (void)sscanf(text, "job night, %4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6],
                 &end);
    cr_assert_gt(end, 0, "%s", text);
    assert_has(text, "Z\nnothing moves\nranks 0-2 wait in step (train.py:76)");
    memcpy(path + strlen(path) - strlen("txt"), "json", 5);
    cr_assert_eq(file_read_text(path, 1 << 20, &written, &len), 0);
    cr_assert_eq(json_parse(written, len, &limits, &doc, &err), 0, "%s", err.text);
    cr_assert_eq(json_get_string(doc, "generation", 16, &generation, &err), 0);
    cr_assert_str_eq(generation, "1.3");
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

Test(hang_case_io, what_a_node_does_not_say_is_said) {
    add_node(0, 0, 76);
    compare();
    assert_has(line, "no evidence from ranks 2-3 (node b: it was lost)");
}

Test(hang_case_io, an_answer_that_makes_no_sense_is_no_evidence) {
    add_node(0, 0, 76);
    send_json(1, "{\"host\":");
    compare();
    cr_assert_eq(got.code, 0);
    assert_has(line, "no evidence from ranks 2-3 (node b");
}

Test(hang_case_io, nobody_looks_for_hours) {
    settings->evidence_timeout_ns = 3600 * NS_PER_S;
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    cr_assert_gt(last_id, 0);
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
    native_ns = 2 * NS_PER_S;
    cr_assert_eq(hang_case_native_ns(settings), native_ns);
    cr_assert_eq(hang_case_new(&config, &ask, ends, on_compared, &calls, &opened), 0);
    cr_assert_gt(last_id, 0);
    hang_case_free(opened);
}
