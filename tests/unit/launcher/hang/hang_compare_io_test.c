#include "launcher/hang/hang_compare_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json.h"
#include "io/file.h"
#include "io/process/reaper.h"
#include "launcher/output/logdir_io.h"

#define LONG_NS (120 * NS_PER_S)

static struct loop *loop;
static struct child_reaper *reaper;
static char dir[] = "/tmp/muster-compare-XXXXXX";
static struct hang_answers answers;

/* What came. */
static uint32_t calls;
static struct hang_compared got;
static char line[SUSPECTS_LINE_MAX], path[512], files_error[512], text[4096];
static uint64_t places[4];
static bool suspects[4];
static bool ended[4];

static void copy(char *to, size_t size, const char *from) { (void)snprintf(to, size, "%s", from == NULL ? "" : from); }

static void on_compared(void *arg, const struct hang_compared *c) {
    cr_assert_eq(arg, &calls);
    calls++;
    got = *c;
    copy(line, sizeof line, c->line);
    copy(path, sizeof path, c->path);
    copy(files_error, sizeof files_error, c->files_error);
    copy(text, sizeof text, c->text);
    cr_assert_eq(c->text_len, strlen(c->text));
    cr_assert_eq(c->json_len, strlen(c->json));
    for (uint32_t i = 0; i < 4; i++) {
        places[i] = c->places[i];
        ended[i] = c->ended[i];
        suspects[i] = c->suspects[i];
    }
    loop_quit(loop);
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
        struct evidence_frame frame = {.line = i == 0 ? 76 : at};
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
    evidence_write(&e, &answers.nodes[node].json);
    answers.nodes[node].missing = NULL;
}

static void begin(void) {
    static const struct hang_node nodes[] = {{.incarnation = 1, .nproc = 2, .name = "a"},
                                             {.incarnation = 2, .nproc = 2, .name = "b"}};
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(child_reaper_new(loop, &reaper), 0);
    cr_assert(hang_group_make((struct generation){1, 3}, nodes, 2, &answers.group));
    answers.nodes = xcalloc(2, sizeof *answers.nodes);
    answers.nodes[0].missing = answers.nodes[1].missing = "it did not answer in time";
    cr_assert_not_null(mkdtemp(dir));
}

static void finish(void) {
    for (uint32_t i = 0; i < 2; i++)
        strbuf_fini(&answers.nodes[i].json);
    free(answers.nodes);
    hang_group_fini(&answers.group);
    child_reaper_free(reaper);
    loop_free(loop);
    cr_expect_eq(logdir_remove_tree(dir), 0);
}

static void compare(struct hang_compare_ask ask) {
    struct hang_compare *c;
    ask.answers = &answers;
    ask.job = "night";
    ask.log_mode = 0600;
    if (ask.timeout_ns == 0)
        ask.timeout_ns = LONG_NS;
    cr_assert_eq(hang_compare_new(loop, &ask, on_compared, &calls, &c), 0);
    while (calls == 0)
        cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(calls, 1);
}

TestSuite(hang_compare_io, .init = begin, .fini = finish);

Test(hang_compare_io, the_odd_rank_is_named) {
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    compare((struct hang_compare_ask){.what = "nothing moves", .wants_text = true});
    cr_assert_eq(got.code, 0);
    cr_assert_not_null(strstr(line, "ranks 0-2 wait in step (train.py:76); rank 3 (node b, pid 43)"), "%s", line);
    cr_assert_eq(got.n_suspects, 1);
    cr_assert_eq(got.first.rank, 3);
    cr_assert(suspects[3] && !suspects[0] && !suspects[1] && !suspects[2]);
    cr_assert_eq(got.first.node, 1);
    cr_assert_eq(got.n_debugged, 0);
    cr_assert_neq(places[0], 0);
    cr_assert_eq(places[0], places[2]);
    cr_assert_neq(places[0], places[3]);
    cr_assert_eq(strncmp(text, "job night, generation 1.3, 1970-01-01T00:00:00.000Z\nnothing moves\n", 66), 0, "%s",
                 text);
    cr_assert_eq(got.json_len, 0);
    cr_assert_str_eq(path, "", "no files were wanted");
    cr_assert_str_eq(files_error, "");
}

Test(hang_compare_io, who_is_in_a_debugger_is_told) {
    add_node(0, 0, 76);
    file = "/v/debugpy/_vendored/pydevd/pydevd.py";
    function = "_wait_for_attach";
    add_node(1, 2, 76);
    compare((struct hang_compare_ask){0});
    cr_assert(got.n_debugged == 2 && got.debugged == 2);
}

/* All ranks wait at the same place. */
Test(hang_compare_io, who_has_launched_fewer_collectives_is_named_though_its_node_is_silent) {
    memcpy(collectives, (const uint64_t[]){120, 120, 120, 119}, sizeof collectives);
    add_node(0, 0, 76);
    compare((struct hang_compare_ask){0});
    cr_assert_not_null(strstr(line, "rank 3 (node b): at collective 119, others at 120; no evidence"), "%s", line);
    cr_assert(got.n_suspects == 1 && got.first.rank == 3 && got.first.reason == SUSPECT_COLLECTIVES);
    cr_assert(suspects[3] && !suspects[2]);
}

/* Of the other node nothing is known. */
Test(hang_compare_io, nobody_lacks_a_connection_to_the_store_that_no_other_rank_is_known_to_have) {
    not_at_store[0] = not_at_store[1] = true;
    add_node(0, 0, 76);
    compare((struct hang_compare_ask){0});
    cr_assert_eq(got.n_suspects, 0, "%s", line);
}

Test(hang_compare_io, who_is_not_at_the_store_is_named_though_another_node_is_silent) {
    at_store[0] = not_at_store[1] = true;
    add_node(0, 0, 76);
    compare((struct hang_compare_ask){0});
    cr_assert(got.n_suspects == 1 && got.first.rank == 1 && got.first.reason == SUSPECT_ABSENT, "%s", line);
}

Test(hang_compare_io, collectives_are_told_by_the_node_of_rank_0_alone) {
    add_node(0, 0, 76);
    memcpy(collectives, (const uint64_t[]){120, 120, 119, 120}, sizeof collectives);
    add_node(1, 2, 76);
    compare((struct hang_compare_ask){0});
    cr_assert_eq(got.n_suspects, 0, "%s", line);
}

Test(hang_compare_io, who_has_ended_is_told) {
    add_node(0, 0, 76);
    add_node(1, 2, 0);
    compare((struct hang_compare_ask){0});
    cr_assert(ended[3]);
    cr_assert_not(ended[0]);
    cr_assert_eq(places[3], 0);
}

Test(hang_compare_io, files_are_written) {
    _cleanup_(freep) char *written = NULL;
    _cleanup_(json_freep) struct json *doc = NULL;
    struct json_limits limits = {.max_bytes = 1 << 20, .max_depth = 12, .max_values = 65536};
    struct err err = {0};
    const char *generation;
    size_t len;
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    compare((struct hang_compare_ask){.dir = dir});
    cr_assert_str_eq(files_error, "");
    cr_assert_eq(access(path, R_OK), 0);
    memcpy(path + strlen(path) - strlen("txt"), "json", 5);
    cr_assert_eq(file_read_text(path, 1 << 20, &written, &len), 0);
    cr_assert_eq(json_parse(written, len, &limits, &doc, &err), 0, "%s", err.text);
    cr_assert_eq(json_get_string(doc, "generation", 16, &generation, &err), 0);
    cr_assert_str_eq(generation, "1.3");
}

Test(hang_compare_io, without_files_the_line_is_there) {
    char *below = xasprintf("%s/none", dir);
    add_node(0, 0, 76);
    add_node(1, 2, 20);
    compare((struct hang_compare_ask){.dir = below});
    cr_assert_not_null(strstr(line, "rank 3"));
    cr_assert_str_eq(path, "");
    cr_assert_not_null(strstr(files_error, below), "%s", files_error);
    free(below);
}

Test(hang_compare_io, what_a_node_does_not_say_is_said) {
    add_node(0, 0, 76);
    compare((struct hang_compare_ask){0});
    cr_assert_not_null(strstr(line, "no evidence from ranks 2-3 (node b: it did not answer in time)"), "%s", line);
}

Test(hang_compare_io, an_answer_that_makes_no_sense_is_no_evidence) {
    add_node(0, 0, 76);
    strbuf_add(&answers.nodes[1].json, "{\"host\":");
    answers.nodes[1].missing = NULL;
    compare((struct hang_compare_ask){0});
    cr_assert_eq(got.code, 0);
    cr_assert_not_null(strstr(line, "no evidence from ranks 2-3 (node b"), "%s", line);
}

Test(hang_compare_io, there_is_a_deadline) {
    add_node(0, 0, 76);
    compare((struct hang_compare_ask){.timeout_ns = 1});
    cr_assert(got.code == -ETIMEDOUT || got.code == 0);
}
