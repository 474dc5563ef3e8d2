#include "rendezvous/arbiter/arbiter_record.h"

#include "rig/unit.h"

static struct arbiter_record leads(uint32_t epoch, uint64_t who) {
    struct arbiter_record r = {.epoch = epoch, .leader = {.incarnation = who, .port = 4711}};
    (void)strcpy(r.leader.addr, "10.0.0.1,fe80::1%eth0");
    return r;
}

static struct arbiter_record closes(uint32_t epoch, enum outcome outcome) {
    struct arbiter_record r = *WITH(leads(epoch, UINT64_MAX), .closed = true, .outcome = outcome);
    return r;
}

static void assert_same(const struct arbiter_record *x, const struct arbiter_record *y) {
    cr_assert_eq(x->epoch, y->epoch);
    cr_assert_eq(x->leader.incarnation, y->leader.incarnation);
    cr_assert_str_eq(x->leader.addr, y->leader.addr);
    cr_assert_eq(x->leader.port, y->leader.port);
    cr_assert_eq(x->closed, y->closed);
    cr_assert_eq(x->vacant, y->vacant);
    cr_assert_eq(x->idle, y->idle);
    cr_assert_eq(x->outcome, y->outcome);
    cr_assert_str_eq(x->reason, y->reason);
}

Test(arbiter_record, is_read_as_it_was_written) {
    struct arbiter_record records[] = {leads(1, 1),
                                       leads(UINT32_MAX - 1, UINT64_MAX),
                                       closes(2, OUTCOME_SUCCESS),
                                       closes(9, OUTCOME_FAILED),
                                       leads(7, 3),
                                       leads(1, 4)};
    records[4].vacant = true;
    records[5].idle = true;
    for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        struct arbiter_record got, mark;
        arbiter_record_write(&records[i], NULL, &text);
        cr_assert_eq(arbiter_record_read(text.data, text.len, &got, &mark, NULL), 0);
        assert_same(&got, &records[i]);
        cr_assert_eq(mark.epoch, 0);
        cr_assert_eq(arbiter_record_read(text.data, text.len, &got, NULL, NULL), 0);
    }
}

Test(arbiter_record, is_the_text_that_the_manual_shows) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct arbiter_record r = *WITH(closes(4, OUTCOME_SUCCESS), .leader.incarnation = 1234);
    (void)strcpy(r.reason, "all workers succeeded");
    arbiter_record_write(&r, NULL, &text);
    cr_assert_str_eq(strbuf_text(&text), "{\"version\":1,\"epoch\":4,\"leader\":\"00000000000004d2\","
                                         "\"addr\":\"10.0.0.1,fe80::1%eth0\",\"port\":4711,"
                                         "\"outcome\":\"success\",\"reason\":\"all workers succeeded\"}");
}

Test(arbiter_record, of_an_idle_epoch_says_so_also_where_it_supersedes) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct arbiter_record r = leads(1, 1234), by = leads(2, 5), got, mark;
    r.idle = by.idle = true;
    arbiter_record_write(&r, NULL, &text);
    cr_assert_str_eq(strbuf_text(&text), "{\"version\":1,\"epoch\":1,\"leader\":\"00000000000004d2\","
                                         "\"addr\":\"10.0.0.1,fe80::1%eth0\",\"port\":4711,\"idle\":true}");
    strbuf_clear(&text);
    arbiter_record_write(&r, &by, &text);
    cr_assert_eq(arbiter_record_read(text.data, text.len, &got, &mark, NULL), 0);
    assert_same(&got, &r);
    assert_same(&mark, &by);
}

/* A close marked by a close, and every byte of the reasons takes six. */
Test(arbiter_record, the_longest_fits) {
    struct arbiter_record r = closes(4, OUTCOME_FAILED), by = closes(5, OUTCOME_FAILED), got, mark;
    memset(r.reason, 1, sizeof r.reason - 1);
    by.reason[0] = '\0';
    memset(by.reason, 2, sizeof by.reason - 1);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    arbiter_record_write(&r, &by, &text);
    cr_assert_leq(text.len, ARBITER_RECORD_TEXT_MAX);
    cr_assert_eq(arbiter_record_read(text.data, text.len, &got, &mark, NULL), 0);
    assert_same(&got, &r);
    assert_same(&mark, &by);
    cr_assert_lt(arbiter_record_read(text.data, text.len, &got, NULL, NULL), 0, "no mark wanted");
}

/* It would be longer than its place when it is read. */
Test(arbiter_record, bytes_that_are_no_utf8_do_not_make_it_unreadable) {
    struct arbiter_record r = closes(4, OUTCOME_FAILED), got;
    memset(r.reason, 0xff, sizeof r.reason - 1);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    arbiter_record_write(&r, NULL, &text);
    cr_assert_eq(arbiter_record_read(text.data, text.len, &got, NULL, NULL), 0);
    cr_assert_eq(strncmp(got.reason, "\xef\xbf\xbd\xef\xbf\xbd", 6), 0);
}

Test(arbiter_record, anything_else_is_refused_with_a_sentence) {
#define LEADER "\"leader\":\"00000000000004d2\",\"addr\":\"10.0.0.1\",\"port\":4711"
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "JSON"},
        {"[]", "version"},
        {"{\"epoch\":1," LEADER "}", "version"},
        {"{\"version\":2,\"epoch\":1," LEADER "}", "version 2"},
        {"{\"version\":1,\"epoch\":0," LEADER "}", "epoch"},
        {"{\"version\":1,\"epoch\":4294967296," LEADER "}", "epoch"},
        {"{\"version\":1,\"epoch\":-1," LEADER "}", "epoch"},
        {"{\"version\":1,\"epoch\":1,\"leader\":\"4d2\",\"addr\":\"\",\"port\":1}", "leader"},
        {"{\"version\":1,\"epoch\":1,\"leader\":\"00000000000004d2\",\"addr\":\"\",\"port\":65536}", "port"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"outcome\":\"maybe\",\"reason\":\"\"}", "maybe"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"outcome\":\"success\"}", "reason"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"idle\":1}", "idle"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"idle\":true,\"vacant\":true}", "two of"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"idle\":true,\"outcome\":\"success\","
         "\"reason\":\"\"}",
         "two of"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"vacant\":true,\"outcome\":\"success\","
         "\"reason\":\"\"}",
         "two of"},
        {"{\"version\":1,\"epoch\":1," LEADER ",\"superseded\":7}", "superseded"},
        {"{\"version\":1,\"epoch\":2," LEADER ",\"superseded\":{\"version\":1,\"epoch\":2," LEADER "}}", "superseded"},
        {"{\"version\":1,\"epoch\":2," LEADER ",\"superseded\":{\"version\":1,\"epoch\":3}}", "leader"},
        {"{\"version\":1,\"epoch\":1," LEADER "} x", "JSON"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct arbiter_record r, mark;
        struct err err = {0};
        cr_assert_lt(arbiter_record_read(bad[i].text, strlen(bad[i].text), &r, &mark, &err), 0, "%s", bad[i].text);
        cr_assert_not_null(strstr(err.text, bad[i].why), "'%s': %s", bad[i].text, err.text);
    }
}
