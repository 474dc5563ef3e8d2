/* What "muster stacks" prints of answers that are made by hand: ranks 0, 1 on node a, 2, 3 on node b. */
#include "cli/stacks/stacks_text.h"

#include "base/json/json.h"
#include "rig/unit.h"
#include "watchdog/evidence/evidence.h"

static struct operator_stacks answer;
static struct rank_set ranks;
static struct stacks_view view;
static struct strbuf out;
static struct err err;

static void add_worker(struct evidence *e, uint32_t rank) {
    struct evidence_worker *w = evidence_add_worker(e);
    bool odd = rank == 2;
    w->rank = rank;
    w->local_rank = rank % 2;
    w->pid = (int32_t)(10 + rank);
    struct evidence_thread *t = evidence_add_thread(w);
    t->tid = w->pid;
    t->state = 'S';
    (void)strcpy(t->name, "python3");
    (void)strcpy(t->syscall, odd ? "read" : "futex");
    (void)strcpy(t->target, odd ? "pipe" : "");
    struct pystack_frame frames[] = {{"backward", "/home/u/train.py", 76}, {"main", "/home/u/train.py", 9}};
    if (odd)
        frames[0] = (struct pystack_frame){"load", "/home/u/data.py", 20};
    uint32_t number;
    cr_assert_eq(evidence_add_stack(e, frames, 2, &number), 0);
    t->stack = (int32_t)number;
    if (rank == 3) {
        struct evidence_thread *more = evidence_add_thread(w);
        more->tid = 99;
        more->state = 'S';
        (void)strcpy(more->name, "pt_autograd");
    }
    if (rank == 0)
        evidence_worker_gap(w, "kernel stack: no right");
    if (rank == 0)
        evidence_worker_gap(w, "Python stack: Python 3.8 is not known");
}

static void add_node(uint32_t number, const char *missing) {
    struct evidence e = {0};
    struct operator_stacks_node *node = &answer.nodes[answer.n++];
    *node = (struct operator_stacks_node){
        .head = {
            .generation = {1, 2}, .world_size = 4, .n_nodes = 2, .node = number, .first_rank = 2 * number, .nproc = 2}};
    (void)snprintf(node->head.name, sizeof node->head.name, "%c", (char)('a' + number));
    (void)snprintf(node->head.missing, sizeof node->head.missing, "%s", missing);
    if (missing[0] != '\0')
        return;
    (void)strcpy(e.node, node->head.name);
    e.nics = xstrdup("eth0 (up)\n");
    add_worker(&e, 2 * number);
    add_worker(&e, 2 * number + 1);
    struct strbuf text = {0};
    evidence_write(&e, &text);
    node->len = text.len;
    node->evidence = strbuf_take(&text);
    evidence_fini(&e);
}

static void begin_with(const char *missing) {
    answer = (struct operator_stacks){.nodes = xcalloc(2, sizeof *answer.nodes)};
    ranks = (struct rank_set){0};
    out = (struct strbuf){0};
    view = (struct stacks_view){.run_id = "digits", .answer = &answer, .ranks = &ranks, .wall_ns = 1500 * NS_PER_MS};
    add_node(0, "");
    add_node(1, missing);
}
static void begin(void) { begin_with(""); }

static void finish(void) {
    operator_stacks_fini(&answer);
    strbuf_fini(&out);
}

/* "": of all ranks. */
static int show(const char *chosen) {
    strbuf_clear(&out);
    err.text[0] = '\0';
    cr_assert(chosen[0] == '\0' || rank_set_parse(chosen, &ranks, &err) == 0);
    return stacks_show(&view, &out, &err);
}

static void expect(const char *text) {
    cr_expect_not_null(strstr(strbuf_text(&out), text), "%s\nis not in\n%s", text, strbuf_text(&out));
}
static void expect_not(const char *text) {
    cr_expect_null(strstr(strbuf_text(&out), text), "%s\nis in\n%s", text, strbuf_text(&out));
}

Test(stacks_text, ranks_are_grouped_by_what_they_do, .init = begin, .fini = finish) {
    cr_assert_eq(show(""), 1, "%s", err.text);
    expect("job digits: 4 workers on 2 nodes\n"
           "ranks 0-1,3 wait in backward (train.py:76); rank 2 (node b, pid 12): read() in load (data.py:20), pipe\n"
           "\nranks 0-1,3: wait in backward (train.py:76)\n  of rank 0 (node a):\n"
           "    main thread 10 python3: S futex()\n"
           "      backward  /home/u/train.py:76\n      main  /home/u/train.py:9\n"
           "  missing: Python stack: Python 3.8 is not known\n"
           "\nrank 2: waits in load (data.py:20)\n  of rank 2 (node b):\n"
           "    main thread 12 python3: S read() pipe\n"
           "      load  /home/u/data.py:20\n      main  /home/u/train.py:9\n");
    expect_not("suspect");
    expect_not("no right");
    expect_not("eth0");
}

Test(stacks_text, chosen_ranks_are_shown_with_all_their_threads, .init = begin, .fini = finish) {
    cr_assert_eq(show("3"), 1, "%s", err.text);
    expect("4 workers on 2 nodes; shown: 1\nrank 3 waits in backward (train.py:76)\n");
    expect("    thread 99 pt_autograd: S\n");
    expect_not("load");
    expect_not("no evidence");
    cr_assert_eq(show("0"), 1, "%s", err.text);
    expect("  missing: kernel stack: no right\n");
    view.json = true;
    cr_assert_eq(show("3"), 1, "%s", err.text);
    expect("\"rank\":3");
    expect_not("\"rank\":2");
    expect_not("\"node\":\"a\"");
}

Test(stacks_text, a_chosen_node_stands_alone, .init = begin, .fini = finish) {
    view.node = "b";
    cr_assert_eq(show(""), 1, "%s", err.text);
    expect("rank 2: waits in load (data.py:20)");
    expect("rank 3: waits in backward (train.py:76)");
    expect_not("node a");
}

Test(stacks_text, a_node_that_did_not_answer_is_named, .fini = finish) {
    begin_with("it did not answer in time");
    cr_assert_eq(show(""), 0, "what is missing counts");
    expect(
        "\nranks 0-1 wait in backward (train.py:76); no evidence from ranks 2-3 (node b: it did not answer in time)\n");
    expect("\nnode b: no evidence: it did not answer in time\n");
    cr_assert_eq(show("0,1"), 1, "nobody asked for its ranks");
    expect_not("node b");
}

Test(stacks_text, an_answer_that_is_no_evidence_is_told, .init = begin, .fini = finish) {
    answer.nodes[1].evidence[0] = '?';
    cr_assert_eq(show(""), 0);
    expect("node b: no evidence: its answer can't be read");
}

Test(stacks_text, the_json_has_all_of_it, .init = begin, .fini = finish) {
    static const struct json_limits limits = {1 << 20, 12, 100000};
    view.json = true;
    cr_assert_eq(show(""), 1, "%s", err.text);
    cr_assert_eq(strchr(strbuf_text(&out), '\n'), strbuf_text(&out) + out.len - 1, "one line");
    _cleanup_(json_freep) struct json *doc = NULL;
    cr_assert_eq(json_parse(strbuf_text(&out), out.len, &limits, &doc, &err), 0, "%s", err.text);
    expect("{\"job\":\"digits\",\"generation\":\"1.2\",\"time\":\"1970-01-01T00:00:01.500Z\",\"verdict\":null,");
    expect(",\"quiet_s\":null,");
    expect("\"nodes\":[{\"node\":\"a\",\"evidence\":{\"host\":\"a\",");
    expect("\"ranks\":\"0-1,3\",\"count\":3");
    expect("eth0");
}

Test(stacks_text, some_ranks_that_are_not_there_are_told, .init = begin, .fini = finish) {
    cr_assert_eq(show("2,7"), 0);
    cr_assert_str_eq(err.text, "there is no rank 7: the job has ranks 0 to 3");
    expect("rank 2: waits in load");
    cr_assert_eq(show("9,3-5,0"), 0);
    cr_assert_str_eq(err.text, "there are no ranks 9,4-5: the job has ranks 0 to 3");
}

Test(stacks_text, who_is_not_there_is_not_shown, .init = begin, .fini = finish) {
    cr_assert_eq(show("4-7"), -ENOENT);
    cr_assert_str_eq(err.text, "none of these ranks runs in the job: the job has ranks 0 to 3");
    view.node = "c";
    cr_assert_eq(show(""), -ENOENT);
    assert_has(err.text, "no worker runs on a node 'c'");
    view.node = "b";
    cr_assert_eq(show("0"), -ENOENT);
    cr_assert_str_eq(err.text, "none of these ranks runs on node b: the job has ranks 0 to 3");
    cr_assert_eq(out.len, 0);
}
