#include "watchdog/evidence/evidence.h"

#include "rig/unit.h"

static const struct pystack_frame frames[] = {{"load", "data.py", 20}, {"<module>", "train.py", 76}};

/* A node with two workers: one that reads from a pipe, with a data loader, and one that has ended. */
static void fill(struct evidence *e) {
    (void)snprintf(e->node, sizeof e->node, "b");
    e->took_ns = 5 * NS_PER_MS;
    struct evidence_worker *w = evidence_add_worker(e);
    w->rank = 2;
    w->pid = 12;
    w->still_ns = 31 * NS_PER_S;
    w->step = 7;
    w->spins = true;
    w->at_store = true;
    struct evidence_thread *t = evidence_add_thread(w);
    *t = (struct evidence_thread){.tid = 12,
                                  .name = "python",
                                  .state = 'S',
                                  .wchan = "anon_pipe_read",
                                  .syscall = "read",
                                  .target = "pipe",
                                  .ran_ns = 99};
    (void)evidence_add_thread(w);
    struct evidence_child *c = evidence_add_child(w);
    c->pid = 14;
    c->parent = 12;
    c->main.state = 'D';
    w->collectives = 9;
    w->kernel_stack = xstrdup("one\ntwo\n");
    w->log_tail = xstrdup("last\n");
    evidence_worker_gap(w, "RAS: %s", "no answer");
    w = evidence_add_worker(e);
    w->rank = 3;
    w->local_rank = 1;
    w->ended = w->not_at_store = w->awaits_rank = true;
    w->recorder = xstrdup("none");
    w->used_ns = 8;
    e->machine = 26;
    e->nics = xstrdup("eth0");
    uint32_t number = 9;
    cr_assert_eq(evidence_add_stack(e, frames, 2, &number), 0);
    cr_assert_eq(number, 0);
    e->ras = xstrdup("ras");
    cr_assert_eq(evidence_add_counts(e, (const uint64_t[]){7, 7, 0, 6, 7}, 5), 0);
    e->kernel_log = xstrdup("log");
    evidence_gap(e, "recorder: %d", 5);
}

Test(evidence, is_the_same_after_it_was_written_and_read) {
    static const char want[] =
        "{\"host\":\"b\",\"machine\":\"000000000000001a\",\"took_ns\":5000000,\"workers\":["
        "{\"rank\":2,\"local_rank\":0,\"pid\":12,\"still_ns\":31000000000,\"spins\":true,\"step\":7,\"at_store\":true,"
        "\"threads\":["
        "{\"tid\":12,\"name\":\"python\",\"state\":\"S\",\"wchan\":\"anon_pipe_read\",\"syscall\":\"read\",\"target\":"
        "\"pipe\","
        "\"stack\":0,\"ran_ns\":99},{\"tid\":0,\"name\":\"\",\"state\":\"\",\"stack\":-1,\"ran_ns\":0}],"
        "\"children\":[{\"pid\":14,\"parent\":12,\"name\":\"\",\"main\":{\"tid\":0,\"name\":\"\",\"state\":\"D\","
        "\"stack\":-1,\"ran_ns\":0}}],"
        "\"collectives\":9,\"kernel_stack\":\"one\\ntwo\\n\",\"log_tail\":\"last\\n\",\"gaps\":[\"RAS: no answer\"]},"
        "{\"rank\":3,\"local_rank\":1,\"pid\":0,\"still_ns\":0,\"used_ns\":8,\"ended\":true,\"not_at_store\":true,"
        "\"awaits_rank\":true,\"threads\":[],\"children\":[],\"recorder\":\"none\",\"gaps\":[]}],"
        "\"stacks\":[{\"frames\":[{\"function\":\"load\",\"file\":\"data.py\",\"line\":20},"
        "{\"function\":\"<module>\",\"file\":\"train.py\",\"line\":76}]}],\"ras\":\"ras\",\"counts\":["
        "{\"first\":0,\"n\":2,\"collectives\":7},{\"first\":3,\"n\":1,\"collectives\":6},{\"first\":4,\"n\":1,"
        "\"collectives\":7}],"
        "\"nics\":\"eth0\",\"kernel_log\":\"log\",\"gaps\":[\"recorder: 5\"]}";
    _cleanup_(evidence_fini) struct evidence e = {0}, back = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0}, again = {0};
    struct err err = {0};
    uint64_t counts[6];
    fill(&e);
    evidence_write(&e, &text);
    cr_assert_str_eq(strbuf_text(&text), want);
    cr_assert_eq(evidence_read(text.data, text.len, &back, &err), 0, "%s", err.text);
    evidence_write(&back, &again);
    cr_assert_str_eq(strbuf_text(&again), want);
    evidence_counts(&back, counts, 6);
    cr_expect_arr_eq(counts, ((const uint64_t[]){7, 7, 0, 6, 7, 0}), sizeof counts);
    cr_expect(back.n_stacks == 1 && back.stacks[0].place == e.stacks[0].place);
}

Test(evidence, of_very_many_counts_the_first_are_kept) {
    _cleanup_(evidence_fini) struct evidence e = {0}, back = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    static uint64_t counts[EVIDENCE_COUNTS_MAX + 1], got[EVIDENCE_COUNTS_MAX + 1];
    struct err err = {0};
    for (uint32_t i = 0; i < ARRAY_SIZE(counts); i++)
        counts[i] = 1 + i % 2;
    cr_assert_eq(evidence_add_counts(&e, counts, EVIDENCE_COUNTS_MAX), 0);
    evidence_fini(&e);
    cr_assert_eq(evidence_add_counts(&e, counts, EVIDENCE_COUNTS_MAX + 1), -E2BIG);
    evidence_write(&e, &text);
    cr_assert_eq(evidence_read(text.data, text.len, &back, &err), 0, "%s", err.text);
    evidence_counts(&back, got, ARRAY_SIZE(got));
    cr_expect_arr_eq(got, counts, EVIDENCE_COUNTS_MAX * sizeof *counts);
    cr_expect_eq(got[EVIDENCE_COUNTS_MAX], 0);
}

/* They come from another node. */
Test(evidence, counts_of_ranks_that_are_not_there_are_left_out) {
    struct evidence_count list[] = {{.first = 1, .n = UINT32_MAX, .collectives = 5},
                                    {.first = UINT32_MAX, .n = 9, .collectives = 6}};
    struct evidence e = {.counts = list, .n_counts = 2};
    uint64_t got[4] = {9, 9, 9, 9};
    evidence_counts(&e, got, 3);
    cr_expect_arr_eq(got, ((const uint64_t[]){0, 5, 5, 9}), sizeof got);
}

Test(evidence, keeps_each_distinct_stack_once) {
    _cleanup_(evidence_fini) struct evidence e = {0};
    struct pystack_frame many[EVIDENCE_FRAMES_MAX + 1] = {{"f", "a.py", 1}};
    uint32_t a, b, c, d;
    cr_assert_eq(evidence_add_stack(&e, frames, 2, &a), 0);
    cr_assert_eq(evidence_add_stack(&e, frames, 1, &b), 0);
    cr_assert_eq(evidence_add_stack(&e, frames, 2, &c), 0);
    cr_expect(a == 0 && b == 1 && c == 0);
    cr_assert_eq(evidence_add_stack(&e, many, ARRAY_SIZE(many), &c), 0);
    cr_expect(c == 2 && e.stacks[2].cut && e.stacks[2].n == EVIDENCE_FRAMES_MAX);
    cr_assert_eq(evidence_add_stack(&e, many, EVIDENCE_FRAMES_MAX, &d), 0);
    cr_expect(d == 3 && !e.stacks[3].cut);
}

Test(evidence, has_limits) {
    _cleanup_(evidence_fini) struct evidence e = {0};
    uint32_t n = 0, number;
    while (evidence_add_worker(&e) != NULL)
        n++;
    cr_expect_eq(n, EVIDENCE_WORKERS_MAX);
    for (n = 0; evidence_add_thread(&e.workers[0]) != NULL;)
        n++;
    cr_expect_eq(n, EVIDENCE_THREADS_MAX);
    for (n = 0; evidence_add_child(&e.workers[0]) != NULL;)
        n++;
    cr_expect_eq(n, EVIDENCE_CHILDREN_MAX);
    for (n = 0; n <= EVIDENCE_GAPS_MAX; n++)
        evidence_gap(&e, "%u", n);
    cr_expect_eq(e.n_gaps, EVIDENCE_GAPS_MAX);
    struct pystack_frame f = {"f", "a.py", 0};
    for (n = 0; n < EVIDENCE_WORKERS_MAX; n++) {
        f.line = n;
        cr_assert_eq(evidence_add_stack(&e, &f, 1, &number), 0);
    }
    f.line = n;
    cr_expect_eq(evidence_add_stack(&e, &f, 1, &number), -E2BIG);
}

Test(evidence, refuses_what_is_not_of_its_form) {
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"host\":\"b\",\"took_ns\":0,\"workers\":[],\"stacks\":[],\"gaps\":[],\"more\":1}",
        /* a stack that is not in the table */
        "{\"host\":\"b\",\"took_ns\":0,\"workers\":[{\"rank\":0,\"local_rank\":0,\"pid\":1,\"still_ns\":0,\"threads\":["
        "{"
        "\"tid\":1,\"name\":\"\",\"state\":\"S\",\"stack\":0,\"ran_ns\":0}],\"children\":[],\"gaps\":[]}],\"stacks\":[]"
        ",\"gaps\":[]}",
        /* a state that there is not */
        ("{\"host\":\"b\",\"took_ns\":0,\"workers\":[{\"rank\":0,\"local_rank\":0,\"pid\":1,\"still_ns\":0,\"threads\":"
         "["
         "{"
         "\"tid\":1,\"name\":\"\",\"state\":\"Q\",\"stack\":-1,\"ran_ns\":0}],\"children\":[],\"gaps\":[]}],\"stacks\":"
         "[],\"gaps\":[]}"),
        /* nine gaps */
        ("{\"host\":\"b\",\"took_ns\":0,\"workers\":[],\"stacks\":[],\"gaps\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
         "\"\"]}"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct evidence e = {.n_gaps = 5};
        struct err err = {0};
        cr_expect_eq(evidence_read(texts[i], strlen(texts[i]), &e, &err), -EINVAL, "%s", texts[i]);
        cr_expect(err.text[0] != '\0' && e.workers == NULL && e.n_gaps == 0, "%s", texts[i]);
    }
}

Test(evidence, of_a_peer_moves_no_terminal) {
    static const char text[] = "{\"host\":\"b\\u001b[31m\",\"took_ns\":0,\"workers\":[],\"stacks\":[{\"frames\":[{"
                               "\"function\":\"a\\nb\",\"file\":"
                               "\"\\u009b\",\"line\":1}]}],\"ras\":\"a\\nb\\u001b\",\"gaps\":[]}";
    _cleanup_(evidence_fini) struct evidence e = {0};
    struct err err = {0};
    cr_assert_eq(evidence_read(text, sizeof text - 1, &e, &err), 0, "%s", err.text);
    cr_expect_str_eq(e.node, "b?[31m");
    cr_expect_str_eq(e.stacks[0].frames[0].function, "a?b");
    cr_expect_null(strchr(e.stacks[0].frames[0].file, '\x9b'));
    cr_expect_str_eq(e.ras, "a\nb?");
}

/* Whatever there is, the text is within its limit, and is read. */
static void fits(const struct evidence *e, struct evidence *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    strbuf_add(&text, "before");
    evidence_write(e, &text);
    cr_assert_leq(text.len - 6, EVIDENCE_JSON_MAX);
    cr_expect(strncmp(text.data, "before{", 7) == 0);
    cr_assert_eq(evidence_read(text.data + 6, text.len - 6, ret, &err), 0, "%s", err.text);
    cr_expect(ret->cut);
}

Test(evidence, that_is_too_long_loses_its_texts_first) {
    _cleanup_(evidence_fini) struct evidence e = {0}, back = {0};
    struct pystack_frame many[EVIDENCE_FRAMES_MAX] = {{"f", "a.py", 0}};
    uint32_t number;
    for (uint32_t i = 0; i < 128; i++) {
        struct evidence_worker *w = evidence_add_worker(&e);
        w->rank = i;
        w->log_tail = xcalloc(1, EVIDENCE_TEXT_MAX + 1);
        memset(w->log_tail, 'a', EVIDENCE_TEXT_MAX);
        w->log_tail[EVIDENCE_TEXT_MAX - 1] = 'z';
        while (i == 127 && evidence_add_thread(w) != NULL && evidence_add_child(w) != NULL)
            ;
    }
    cr_assert_eq(evidence_add_stack(&e, many, ARRAY_SIZE(many), &number), 0);
    fits(&e, &back);
    cr_assert_eq(back.n_workers, 128);
    cr_assert_eq(back.workers[127].n_threads, EVIDENCE_THREADS_MAX, "as many as there may be");
    cr_expect_eq(back.workers[127].n_children, EVIDENCE_CHILDREN_MAX);
    cr_expect_not(back.workers[127].threads_cut || back.workers[127].children_cut || back.stacks[0].cut);
    const char *tail = back.workers[127].log_tail;
    cr_expect(strlen(tail) == 2048 && tail[2047] == 'z');
}

Test(evidence, of_the_largest_node_is_within_its_limit) {
    _cleanup_(evidence_fini) struct evidence e = {0}, back = {0};
    struct pystack_frame many[EVIDENCE_FRAMES_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
        memset(&many[i], '\x01', sizeof many[i]); /* six bytes each, in JSON */
        many[i].function[PYSTACK_FUNCTION_MAX - 1] = many[i].file[PYSTACK_FILE_MAX - 1] = '\0';
    }
    for (uint32_t i = 0; i < EVIDENCE_WORKERS_MAX; i++) {
        struct evidence_worker *w = evidence_add_worker(&e);
        uint32_t number;
        many[0].line = i;
        cr_assert_eq(evidence_add_stack(&e, many, ARRAY_SIZE(many), &number), 0);
        for (unsigned k = 0; k < 4; k++) {
            evidence_worker_gap(w, "%0200d", 0);
            struct evidence_thread *t = evidence_add_thread(w);
            t->stack = (int32_t)number;
            memset(t->target, '\x01', sizeof t->target - 1);
        }
    }
    fits(&e, &back);
}

/* 1024 workers with as many threads and data loaders as are kept would be 40 MB, for each of several attempts. */
Test(evidence, that_is_too_long_is_not_written_to_its_end) {
    _cleanup_(evidence_fini) struct evidence e = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (uint32_t i = 0; i < EVIDENCE_WORKERS_MAX; i++) {
        struct evidence_worker *w = evidence_add_worker(&e);
        struct evidence_thread *t;
        while ((t = evidence_add_thread(w)) != NULL)
            (void)snprintf(t->target, sizeof t->target, "%0200d", 0);
        while (evidence_add_child(w) != NULL)
            ;
    }
    evidence_write(&e, &text);
    cr_expect_leq(text.len, EVIDENCE_JSON_MAX);
    cr_expect_leq(text.cap, 4 * EVIDENCE_JSON_MAX);
}
