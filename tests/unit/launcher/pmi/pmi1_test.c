#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/pmi/pmi_io.h"
#include "rig/unit.h"

#define INIT "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define NAME "cmd=my_kvsname kvsname=kvs_7\n"
#define PUT "cmd=put_result rc=0 msg=success\n"
#define OUT "cmd=barrier_out\n"
#define GET0 "cmd=get_result rc=0 msg=success value=host1,key\n"
#define GET1 "cmd=get_result value=host2 rc=0\n"
#define ACK "cmd=finalize_ack\n"
#define ALL INIT NAME PUT OUT GET0 GET1 ACK

static struct trial {
    struct pmi_tasks tasks;
    struct err err;
    char sent[4096]; /* to the server */
    bool waits;
} t;
static size_t part = 17; /* bytes of the server that arrive at once */

static void end(void) { pmi_tasks_fini(&t.tasks); }
TestSuite(pmi1, .fini = end);

/* A conversation with a server that has sent all its answers, and sends nothing more. */
static int ask(const char *answers, size_t n) {
    int fds[2];
    ssize_t got;
    end();
    t = (struct trial){.tasks = {.n = 2, .rank = 1}};
    pmi_card_write("host2", NULL, t.tasks.own);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    for (size_t at = 0; at < n; at += part)
        cr_assert_gt(write(fds[1], &answers[at], MIN2(n - at, part)), 0);
    cr_assert_eq(shutdown(fds[1], SHUT_WR), 0);
    int r = pmi1_ask(fds[0], &t.tasks, clock_now_ns() + 60 * NS_PER_S, &t.waits, &t.err);
    for (size_t len = 0; (got = recv(fds[1], &t.sent[len], sizeof t.sent - 1 - len, MSG_DONTWAIT)) > 0;)
        len += (size_t)got;
    (void)close(fds[0]);
    (void)close(fds[1]);
    return r;
}

Test(pmi1, a_conversation_reads_all_cards_and_ignores_what_follows) {
    for (part = 4; part < 4096; part *= 4) {
        cr_assert_eq(ask(ALL "x\0\n", sizeof ALL "x\0\n" - 1), 0, "%s", t.err.text);
        cr_assert_str_eq(t.sent, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\n"
                                 "cmd=put kvsname=kvs_7 key=muster-1 value=host2\ncmd=barrier_in\n"
                                 "cmd=get kvsname=kvs_7 key=muster-0\ncmd=get kvsname=kvs_7 key=muster-1\n"
                                 "cmd=finalize\n");
        cr_assert_str_eq(t.tasks.run_id, "kvs_7");
        cr_assert_str_eq(t.tasks.cards[0], "host1,key");
        cr_assert_str_eq(t.tasks.cards[1], "host2");
    }
}

Test(pmi1, a_server_that_ends_before_the_last_answer_has_gone) {
    for (size_t n = 0; n < strlen(ALL); n++) {
        cr_assert_eq(ask(ALL, n), -ECONNRESET, "%zu bytes", n);
        cr_assert_eq(t.waits, n >= strlen(INIT NAME PUT) && n < strlen(INIT NAME PUT OUT), "%zu bytes", n);
    }
}

struct row {
    const char *before, *answer;
};

Test(pmi1, an_answer_that_is_not_expected_is_refused) {
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
        char *text = xasprintf("%s%s", rows[i].before, rows[i].answer);
        cr_expect_eq(ask(text, strlen(text)), -EPROTO, "row %zu", i);
        cr_expect(strstr(t.err.text, "of PMI-1 as expected") != NULL, "row %zu: %s", i, t.err.text);
        free(text);
    }
}

/* A value of `most` bytes fits, and one of a byte more does not. */
static void check_length(const char *before, const char *name, size_t most) {
    for (size_t n = most; n <= most + 1; n++) {
        char *text = xasprintf("%scmd=%s=%0*d\n", before, name, (int)n, 7);
        cr_expect_eq(ask(text, strlen(text)), n == most ? -ECONNRESET : -EPROTO, "%s, %zu bytes", name, n);
        free(text);
    }
}

Test(pmi1, values_and_lines_have_limits) {
    static char endless[PMI1_LINE_MAX + 1];
    check_length(INIT, "my_kvsname kvsname", PMI_RUN_ID_MAX - 1);
    check_length(INIT NAME PUT OUT, "get_result value", PMI_CARD_MAX - 1);
    check_length("", "response_to_init a", PMI1_LINE_MAX - 1 - strlen("cmd=response_to_init a="));
    memset(endless, 'x', sizeof endless);
    cr_expect_eq(ask(endless, sizeof endless), -EPROTO);
    cr_expect_eq(ask(INIT "cmd\0", sizeof INIT "cmd\0" - 1), -EPROTO);
}
