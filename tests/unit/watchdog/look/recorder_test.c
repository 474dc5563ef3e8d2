#include "watchdog/look/recorder.h"

#include "rig/unit.h"

static char *corpus(const char *name, size_t *len) {
    _cleanup_(freep) char *path = xasprintf("%s/fuzz/corpus/fuzz-recorder/%s", getenv("MUSTER_TEST_SOURCE_DIR"), name);
    FILE *f = fopen(path, "re");
    cr_assert_not_null(f, "%s", path);
    char *text = xcalloc(1, 65536);
    *len = fread(text, 1, 65535, f);
    fclose(f);
    return text;
}

static void summary_is(const char *text, size_t len, double wall_s, uint64_t collectives, const char *expected) {
    _cleanup_(strbuf_fini) struct strbuf summary = {0};
    uint64_t got = 0;
    struct err err = {0};
    cr_assert_eq(recorder_read(text, len, wall_s, &summary, &got, &err), 0, "%s", err.text);
    cr_expect_str_eq(strbuf_text(&summary), expected, "%s", strbuf_text(&summary));
    cr_expect_eq(got, collectives);
}

/* What PyTorch 2.13 wrote in a job with gloo: rank 0 waits in its fifth collective, to which rank 1 does not come. */
Test(recorder, what_gloo_wrote) {
    size_t len = 0, body_len = 0;
    const char *body = NULL;
    struct err err = {0};
    _cleanup_(freep) char *waits = corpus("gloo", &len);
    summary_is(waits, len, 1795478605.6, 5,
               "open: gloo:all_reduce, number 5 of default_pg, Float [7,3], scheduled 31 s ago\n"
               "default_pg: 5 enqueued, 4 completed\n"
               "group 1: 1 enqueued, 1 completed\n");
    _cleanup_(freep) char *late = corpus("http", &len);
    cr_assert_eq(recorder_http_body(late, len, &body, &body_len, &err), 0, "%s", err.text);
    summary_is(body, body_len, 0, 4, "default_pg: 4 enqueued, 4 completed\ngroup 1: 1 enqueued, 1 completed\n");
}

Test(recorder, what_nccl_writes) {
    size_t len = 0;
    _cleanup_(freep) char *text = corpus("nccl", &len);
    summary_is(text, len, 1700000000, 7,
               "open: nccl:all_reduce, number 6 of default_pg, BFloat16 [1024,1024], started 0 s ago\n"
               "open: nccl:send 0->1, number 3 of default_pg, Float [8], scheduled\n"
               "default_pg: 7 enqueued, 6 started, 5 completed\n");
    summary_is(text, len, 1700000060, 7,
               "open: nccl:all_reduce, number 6 of default_pg, BFloat16 [1024,1024], started 60 s ago\n"
               "open: nccl:send 0->1, number 3 of default_pg, Float [8], scheduled 59 s ago\n"
               "default_pg: 7 enqueued, 6 started, 5 completed\n");
}

Test(recorder, nothing_was_recorded) {
    static const char text[] = "{\"entries\":[],\"pg_status\":{}}";
    summary_is(text, strlen(text), 0, 0, "no collective in 0 entries\n");
}

Test(recorder, refuses_what_is_none) {
    static const char *const cases[] = {"", "{}", "[]", "{\"entries\":1}", "{\"entries\":[],\"pg_status\":3}", "nil"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct strbuf summary = {0};
        uint64_t got;
        struct err err = {0};
        cr_expect_eq(recorder_read(cases[i], strlen(cases[i]), 0, &summary, &got, &err), -EINVAL, "%s", cases[i]);
        cr_expect(err.text[0] != '\0' && summary.len == 0);
    }
}

Test(recorder, many_open_entries_and_groups_are_limited) {
    _cleanup_(strbuf_fini) struct strbuf text = {0}, summary = {0};
    uint64_t got = 0;
    struct err err = {0};
    strbuf_add(&text, "{\"entries\":[");
    for (int i = 0; i < 40; i++)
        strbuf_printf(&text, "%s{\"pg_id\":%d,\"state\":\"started\"}", i > 0 ? "," : "", i);
    strbuf_add(&text, "],\"pg_status\":{");
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&text, "%s\"%d\":{\"last_enqueued_collective\":%d}", i > 0 ? "," : "", i, i);
    strbuf_add(&text, "}}");
    cr_assert_eq(recorder_read(text.data, text.len, 0, &summary, &got, &err), 0, "%s", err.text);
    cr_assert_leq(summary.len, RECORDER_SUMMARY_MAX);
    assert_has(summary.data, "of group 15, started\n24 more have not ended\n");
    assert_has(summary.data, "(more was left out)\n");
    strbuf_clear(&text);
    strbuf_clear(&summary);
    for (int i = 0; i < 16; i++)
        strbuf_printf(&text, "%s{\"pg_id\":%d,\"state\":\"started\"}", i > 0 ? "," : "{\"entries\":[", i);
    strbuf_add(&text, "]}");
    cr_assert_eq(recorder_read(text.data, text.len, 0, &summary, &got, &err), 0, "%s", err.text);
    assert_has(summary.data, "of group 15, started\n");
    cr_assert_null(strstr(summary.data, " more have not ended"), "%s", summary.data);
}

static int http(const char *text) {
    const char *body = NULL;
    size_t len = 0;
    struct err err = {0};
    int r = recorder_http_body(text, strlen(text), &body, &len, &err);
    cr_expect_eq(r == 0, err.text[0] == '\0', "%s", text);
    return r;
}

Test(recorder, http_answers) {
    cr_expect_eq(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), 0);
    cr_expect_eq(http("HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\n{}"), 0);
    cr_expect_eq(http("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), -EINVAL);
    cr_expect_eq(http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"), -EINVAL);
    cr_expect_eq(http(""), -EINVAL);
    cr_expect_eq(http("SSH-2.0\r\n\r\n"), -EINVAL);
}
