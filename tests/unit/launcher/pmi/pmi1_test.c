#include "launcher/pmi/pmi.h"

#include "rig/unit.h"

#define INIT "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define NAME "cmd=my_kvsname kvsname=kvs_7\n"
#define PUT "cmd=put_result rc=0 msg=success\n"
#define OUT "cmd=barrier_out\n"
#define GET0 "cmd=get_result rc=0 msg=success value=host1,key\n"
#define GET1 "cmd=get_result value=host2 rc=0\n"
#define ACK "cmd=finalize_ack\n"
#define ALL INIT NAME PUT OUT GET0 GET1 ACK

#define SENT                                           \
    "cmd=init pmi_version=1 pmi_subversion=1\n"        \
    "cmd=get_my_kvsname\n"                             \
    "cmd=put kvsname=kvs_7 key=muster-1 value=host2\n" \
    "cmd=barrier_in\n"                                 \
    "cmd=get kvsname=kvs_7 key=muster-0\ncmd=get kvsname=kvs_7 key=muster-1\ncmd=finalize\n"

static struct trial {
    struct pmi1 pmi;
    struct pmi_tasks tasks;
    struct strbuf out;
    struct err err;
} t;

static void end(void) {
    pmi_tasks_fini(&t.tasks);
    strbuf_fini(&t.out);
}

/* Ends the conversation before, if there is one. */
static void begin(void) {
    end();
    t = (struct trial){.tasks = {.n = 2, .rank = 1}};
    pmi_card_write("host2", NULL, t.tasks.own);
    pmi1_begin(&t.pmi, &t.tasks, &t.out);
}

TestSuite(pmi1, .init = begin, .fini = end);

static int receive(const char *bytes, size_t n) { return pmi1_receive(&t.pmi, bytes, n, &t.out, &t.err); }

Test(pmi1, a_conversation_reads_all_cards_however_it_is_cut) {
    const size_t len = strlen(ALL);
    for (size_t cut = 0; cut <= len; cut++) {
        begin();
        cr_assert_eq(receive(ALL, cut), 0, "%s", t.err.text);
        cr_assert_eq(t.pmi.state == PMI1_DONE, cut == len);
        cr_assert_eq(receive(&ALL[cut], len - cut), 0, "%s", t.err.text);
        cr_assert_eq(t.pmi.state, PMI1_DONE);
        cr_assert_str_eq(strbuf_text(&t.out), SENT);
        cr_assert_str_eq(t.tasks.run_id, "kvs_7");
        cr_assert_str_eq(t.tasks.cards[0], "host1,key");
        cr_assert_str_eq(t.tasks.cards[1], "host2");
    }
}

Test(pmi1, what_follows_the_last_answer_is_ignored) {
    cr_assert_eq(receive(ALL "x\0\n", sizeof ALL "x\0\n"), 0);
    cr_assert_eq(receive("\0", 1), 0);
    cr_assert_eq(t.pmi.state, PMI1_DONE);
}

Test(pmi1, a_line_is_sent_only_after_the_answer) {
    static const char *const answers[] = {INIT, NAME, PUT, OUT, GET0, GET1, ACK};
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        cr_assert_eq(t.pmi.state, PMI1_INIT + MIN2(i, 4) + (i > 5));
        size_t lines = 0;
        for (const char *c = strbuf_text(&t.out); *c != '\0'; c++)
            lines += *c == '\n';
        cr_assert_eq(lines, i + 1);
        cr_assert_eq(receive(answers[i], strlen(answers[i])), 0);
    }
}

struct row {
    const char *before, *answer;
};

Test(pmi1, an_answer_that_the_state_does_not_expect_is_refused) {
    static const struct row rows[] = {
        {"", "\n"},
        {"", "HTTP/1.1 200 OK\n"},
        {"", "cmd=response_to_init rc=-1\n"},
        {"", "cmd=response_to_init rc=\n"},
        {"", "cmd=response_to_init_ rc=0\n"},
        {"", "xcmd=response_to_init rc=0\n"},
        {"", PUT},
        {INIT, "cmd=my_kvsname\n"},
        {INIT, "cmd=my_kvsname kvsname=\n"},
        {INIT, "cmd=my_kvsname xkvsname=kvs_7\n"},
        {INIT NAME, "cmd=put_result rc=-1 msg=duplicate_key\n"},
        {INIT NAME PUT, "cmd=barrier_out rc=1\n"},
        {INIT NAME PUT OUT, "cmd=get_result rc=-1 msg=key_muster-0_not_found value=unknown\n"},
        {INIT NAME PUT OUT, "cmd=get_result rc=0\n"},
        {INIT NAME PUT OUT GET0 GET1, GET1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        begin();
        cr_assert_eq(receive(rows[i].before, strlen(rows[i].before)), 0, "row %zu", i);
        cr_expect_eq(receive(rows[i].answer, strlen(rows[i].answer)), -EPROTO, "row %zu", i);
        cr_expect(strstr(t.err.text, "of PMI-1 as expected") != NULL, "row %zu: %s", i, t.err.text);
    }
}

/* A value of `most` bytes fits, and one of a byte more does not. */
static void check_length(const char *before, const char *name, size_t most) {
    char line[2 * PMI1_LINE_MAX];
    for (size_t n = most; n <= most + 1; n++) {
        begin();
        cr_assert_eq(receive(before, strlen(before)), 0);
        const int len = snprintf(line, sizeof line, "cmd=%s=%0*d\n", name, (int)n, 7);
        cr_expect_eq(receive(line, (size_t)len), n == most ? 0 : -EPROTO, "%s, %zu bytes", name, n);
    }
}

Test(pmi1, values_and_lines_have_limits) {
    check_length(INIT, "my_kvsname kvsname", PMI_RUN_ID_MAX - 1);
    check_length(INIT NAME PUT OUT, "get_result value", PMI_CARD_MAX - 1);
    check_length("", "response_to_init a", PMI1_LINE_MAX - 1 - strlen("cmd=response_to_init a="));
}

Test(pmi1, a_line_without_an_end_or_with_a_zero_byte_is_refused) {
    static char endless[PMI1_LINE_MAX + 1];
    memset(endless, 'x', sizeof endless);
    cr_expect_eq(receive(endless, sizeof endless), -EPROTO);
    begin();
    cr_expect_eq(receive("cmd\0", 4), -EPROTO);
}
