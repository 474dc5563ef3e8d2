#include "watchdog/look/ras.h"

#include "ras_answer.h"
#include "rig/unit.h"

struct read {
    struct ras ras;
    struct strbuf summary;
};

static void read_fini(struct read *r) {
    strbuf_fini(&r->summary);
    ras_fini(&r->ras);
}

static void read_answer(const struct answer *a, struct read *r) {
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    struct err err = {0};
    read_fini(r);
    answer_json(a, &json);
    cr_assert_eq(ras_read(json.data, json.len, &r->ras, &err), 0, "%s", err.text);
    ras_summary(&r->ras, &r->summary);
}

static struct read b;
static void end(void) { read_fini(&b); }
TestSuite(ras, .fini = end);

static void has(const struct read *r, const char *line) {
    const char *at = strstr(strbuf_text(&r->summary), line);
    cr_assert_not_null(at, "no \"%s\" in:\n%s", line, strbuf_text(&r->summary));
    cr_assert(line[0] != 'c' || at == r->summary.data || at[-1] == '\n', "%s", strbuf_text(&r->summary));
}

/* own: a rank of which the process is known. */
static void counts_are(const struct ras *r, uint32_t world, uint32_t own, const uint64_t *expected) {
    struct ras_own process = {.rank = own, .pid = 100 + (int32_t)own};
    uint64_t got[ANSWER_RANKS_MAX];
    ras_counts(r, world, &process, 1, got);
    for (uint32_t i = 0; i < world; i++)
        cr_expect_eq(got[i], expected[i], "rank %u: %llu", i, (unsigned long long)got[i]);
}

Test(ras, a_job_in_which_all_is_well) {
    read_answer(WITH(answer_of(8, 120, 2), .others = 2), &b);
    cr_assert_str_eq(strbuf_text(&b.summary),
                     "NCCL 2.28.7: 3 communicators\n"
                     "communicator 0xabc (8 ranks): all ranks have launched the same collectives\n"
                     "communicator 0x100 (8 ranks): all ranks have launched the same collectives\n"
                     "communicator 0x101 (8 ranks): all ranks have launched the same collectives\n");
}

Test(ras, the_rank_that_is_late_is_named_with_host_and_pid) {
    struct answer a = answer_of(8, 120, 2);
    a.at[5].all_reduces = 119;
    read_answer(&a, &b);
    has(&b, "communicator 0xabc (8 ranks): AllReduce: 120 in ranks 0-4, 6-7; 119 in rank 5 (10.0.0.2, pid 105)\n");
    counts_are(&b.ras, 8, 4, (const uint64_t[]){122, 122, 122, 122, 122, 121, 122, 122});
}

Test(ras, several_late_ranks_and_one_that_never_launched) {
    struct answer a = answer_of(8, 120, 2);
    a.at[1].all_reduces = a.at[2].all_reduces = 118;
    a.at[7].all_reduces = 0;
    a.at[7].broadcasts = 0;
    read_answer(&a, &b);
    has(&b, "AllReduce: 120 in ranks 0, 3-6; 118 in ranks 1 (10.0.0.1, pid 101), 2 (10.0.0.1, pid 102); "
            "0 in rank 7 (10.0.0.2, pid 107)\n");
    has(&b, "Broadcast: 2 in ranks 0-6; 0 in rank 7 (10.0.0.2, pid 107)\n");
    /* the last: 0 would be "not known" */
    counts_are(&b.ras, 8, 4, (const uint64_t[]){122, 120, 120, 122, 122, 122, 122, 1});
}

Test(ras, missing_and_dead_ranks) {
    struct answer a = answer_of(8, 120, 2);
    a.at[3].missing = a.at[6].missing = a.at[6].dead = true;
    a.timeouts = 2;
    read_answer(&a, &b);
    has(&b, "communicator 0xabc (8 ranks): considered dead: rank 6 (10.0.0.2, pid 106)\n");
    has(&b, "communicator 0xabc (8 ranks): no answer: rank 3 (10.0.0.1, pid 103)\n");
    has(&b, "2 time-outs of the service itself\n");
    counts_are(&b.ras, 8, 4, (const uint64_t[]){122, 122, 122, 0, 122, 122, 0, 122});
}

Test(ras, states_and_errors) {
    struct answer a = answer_of(8, 120, 2);
    a.at[0].async_error = 6;
    a.at[1].init_state = 7;
    a.at[2].finalized = true;
    a.at[3].aborted = true;
    a.at[4].left = true;
    a.at[5].async_error = 2;
    a.at[6].async_error = 6;
    read_answer(&a, &b);
    has(&b, ": remote process error: ranks 0 (10.0.0.1, pid 100), 6 (10.0.0.2, pid 106)\ncommunicator 0xabc (8 ranks): "
            "system error: rank 5 (10.0.0.2, pid 105)\n");
    has(&b, ": still initializing: rank 1 (10.0.0.1, pid 101)\n");
    has(&b, ": finalizing: rank 2 (10.0.0.1, pid 102)\n");
    has(&b, ": aborted: rank 3 (10.0.0.1, pid 103)\n");
    has(&b, "communicator 0xabc (8 ranks): has left the communicator: rank 4 (10.0.0.2, pid 104)\n");
}

Test(ras, counts_are_only_those_of_this_process_in_the_group_of_all) {
    struct answer a = answer_of(4, 9, 1);
    uint64_t n[8];
    read_answer(&a, &b);
    counts_are(&b.ras, 4, 1, (const uint64_t[]){10, 10, 10, 10});
    counts_are(&b.ras, 8, 1, (const uint64_t[8]){0}); /* another size */
    struct ras_own other = {.rank = 1, .pid = 999}, child[] = {{1, 100}, {1, 101}}, stranger = {.rank = 7, .pid = 101};
    ras_counts(&b.ras, 4, &other, 1, n);
    cr_assert_eq(n[1], 0, "another process");
    ras_counts(&b.ras, 4, child, 2, n);
    cr_assert_eq(n[1], 10, "a wrapper's child");
    ras_counts(&b.ras, 4, &stranger, 1, n);
    cr_assert_eq(n[1], 0, "nothing confirms it");
    a.others = 1; /* another one of this size */
    read_answer(&a, &b);
    counts_are(&b.ras, 4, 1, (const uint64_t[]){17, 17, 17, 17});
    a.at[2].all_reduces = 8;
    read_answer(&a, &b);
    counts_are(&b.ras, 4, 1, (const uint64_t[]){17, 17, 16, 17});
}

Test(ras, a_size_or_a_kind_may_be_unknown) {
    static const char text[] = "{\"communicators\":[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":0,\"collective_counts\":"
                               "{\"\":1,\"Long23456789012345678901234567890123456789012345678901234567890\":1}}]}]}";
    struct err err = {0};
    cr_assert_eq(ras_read(text, sizeof text - 1, &b.ras, &err), 0, "%s", err.text);
    cr_assert_eq(b.ras.n_kinds, 0);
    ras_summary(&b.ras, &b.summary);
    has(&b, "communicator 0x1: all ranks");
}

Test(ras, half_of_the_ranks_differ) {
    struct answer a = answer_of(4, 9, 1);
    a.at[2].all_reduces = a.at[3].all_reduces = 8;
    read_answer(&a, &b);
    has(&b, "AllReduce: 9 in ranks 0-1; 8 in ranks 2 (10.0.0.1, pid 102), 3 (10.0.0.1, pid 103)\n");
    counts_are(&b.ras, 4, 0, (const uint64_t[]){10, 10, 9, 9});
}

Test(ras, refuses_what_is_no_answer) {
    static const char *const cases[] = {
        "",
        "ERROR: Unknown command",
        "NCCL version 2.24.3 compiled with CUDA 12.4\n", /* the form before 2.28.7 */
        "{",
        "{}",
        "[]",
        "{\"communicators\":1}",
        "{\"communicators\":[1]}",
        "{\"communicators\":[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":-1}]}]}",
        "{\"communicators\":[{\"hash\":\"0x1\",\"ranks\":[{\"rank\":0,\"collective_counts\":{\"A\":-1}}]}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        struct ras r;
        cr_expect_eq(ras_read(cases[i], strlen(cases[i]), &r, &err), -EINVAL, "%s", cases[i]);
        cr_expect_neq(err.text[0], '\0');
        cr_expect_null(r.comms);
    }
}

Test(ras, an_answer_that_is_cut_anywhere_does_no_harm) {
    struct answer a = answer_of(8, 120, 2);
    a.at[1].all_reduces = 1;
    a.at[3].missing = a.at[6].missing = a.at[6].dead = true;
    _cleanup_(strbuf_fini) struct strbuf whole = {0};
    answer_json(&a, &whole);
    for (size_t n = 0; n < whole.len; n++) {
        _cleanup_(strbuf_fini) struct strbuf summary = {0};
        struct ras r;
        struct err err = {0};
        char *piece = xcalloc(1, n + 1); /* of this size, so that a sanitizer sees a read beyond it */
        memcpy(piece, whole.data, n);
        if (ras_read(piece, n, &r, &err) == 0) {
            ras_summary(&r, &summary);
            ras_fini(&r);
        }
        free(piece);
    }
}

Test(ras, the_summary_of_a_large_job_is_limited) {
    struct answer a = *WITH(answer_of(ANSWER_RANKS_MAX, 5, 0), .others = 300);
    for (uint32_t i = 0; i < ANSWER_RANKS_MAX; i++)
        a.at[i].all_reduces = i;
    read_answer(&a, &b);
    cr_assert_leq(b.summary.len, RAS_SUMMARY_MAX);
    for (uint32_t i = 0; i < 10; i++) {
        size_t before = b.summary.len;
        ras_summary(&b.ras, &b.summary);
        cr_assert_leq(b.summary.len - before, RAS_SUMMARY_MAX);
    }
}
