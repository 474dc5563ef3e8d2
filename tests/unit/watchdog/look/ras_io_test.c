#include "watchdog/look/ras.h"

#include <strings.h>
#include <sys/time.h>

#include "fake_service.h"
#include "io/clock.h"
#include "ras_answer.h"
#include "rig/unit.h"

/* NCCL's service: the old one does not know JSON. */
struct nccl {
    bool old, json, greeted;
    const char *answer;
};

static const char *nccl_reply(void *arg, const char *line, bool *end) {
    struct nccl *n = arg;
    if (strncasecmp(line, "client protocol ", 16) == 0) {
        n->json = false;
        n->greeted = true;
        return "SERVER PROTOCOL 2\n";
    }
    if (strncasecmp(line, "timeout ", 8) == 0)
        return "OK\n";
    if (strcasecmp(line, "set format json") == 0 && !n->old) {
        n->json = true;
        return "OK\n";
    }
    if (strcasecmp(line, "verbose status") == 0 && n->greeted && n->json) {
        *end = true;
        return n->answer;
    }
    return "ERROR: Unknown command\n";
}

static const char *other_reply(void *arg, const char *line, bool *end) {
    (void)arg, (void)line;
    *end = true;
    return "HTTP/1.1 400 Bad Request\r\n\r\n";
}

static const char *silence(void *arg, const char *line, bool *end) {
    (void)arg, (void)line, (void)end;
    return NULL;
}

static struct ras ras;
static struct err err;

static int ask(const struct fake_service *f, uint64_t within_ns) {
    return source_ras(rig_text("localhost:%u", f->port), clock_now_ns() + within_ns, &ras, &err);
}

Test(ras_io, asks_for_json) {
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    struct answer a = answer_of(8, 120, 2);
    a.at[5].all_reduces = 119;
    answer_json(&a, &json);
    struct nccl nccl = {.answer = strbuf_text(&json)};
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = nccl_reply, .arg = &nccl};
    fake_service_start(&f);
    cr_assert_eq(ask(&f, 60 * NS_PER_S), 0, "%s", err.text);
    cr_assert_str_eq(ras.version, "2.28.7");
    cr_assert_eq(ras.n_comms, 1);
    ras_fini(&ras);
}

Test(ras_io, an_nccl_that_does_not_know_json_is_reported) {
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = nccl_reply, .arg = &(struct nccl){.old = true}};
    fake_service_start(&f);
    cr_assert_eq(ask(&f, 60 * NS_PER_S), -ENOTSUP);
    assert_has(err.text, "NCCL 2.28.7 or newer is needed");
}

Test(ras_io, a_service_that_answers_a_byte_a_second_costs_its_deadline) {
    struct answer a = answer_of(8, 120, 2);
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    answer_json(&a, &json);
    struct nccl nccl = {.answer = strbuf_text(&json)};
    _cleanup_(fake_service_stop) struct fake_service f = {
        .reply = nccl_reply, .arg = &nccl, .manner = FAKE_A_BYTE_A_SECOND};
    fake_service_start(&f);
    uint64_t begin = clock_now_ns();
    cr_assert_eq(ask(&f, 2500 * NS_PER_MS), -ETIMEDOUT);
    uint64_t took = clock_now_ns() - begin;
    cr_assert_geq(took, 2500 * NS_PER_MS);
    assert_has(err.text, "did not answer in time");
    cr_assert_null(ras.comms);
    cr_log_info("it took %.3f s", (double)took / 1e9);
}

Test(ras_io, a_service_that_says_nothing_costs_its_deadline) {
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = silence};
    fake_service_start(&f);
    cr_assert_eq(ask(&f, 100 * NS_PER_MS), -ETIMEDOUT);
}

static void interrupted(int signo) { (void)signo; }

/* As by a stop and a continuation of the process, signal(7). */
Test(ras_io, an_interruption_does_not_end_the_wait) {
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = silence};
    const struct sigaction on = {.sa_handler = interrupted, .sa_flags = SA_RESTART};
    const struct itimerval every = {{.tv_usec = 10000}, {.tv_usec = 10000}}, never = {0};
    fake_service_start(&f);
    cr_assert_eq(sigaction(SIGALRM, &on, NULL), 0);
    cr_assert_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
    cr_expect_eq(ask(&f, 300 * NS_PER_MS), -ETIMEDOUT, "%s", err.text);
    cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
}

Test(ras_io, an_endless_answer_is_cut) {
    struct nccl nccl = {.answer = "{\"communicators\": [\n"};
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = nccl_reply, .arg = &nccl, .manner = FAKE_ENDLESSLY};
    fake_service_start(&f);
    cr_assert_eq(ask(&f, 60 * NS_PER_S), -EMSGSIZE, "%s", err.text);
    assert_has(err.text, "answered with more than 8388608 bytes");
}

Test(ras_io, nobody_there_or_somebody_else) {
    struct fake_service gone = {.reply = other_reply};
    _cleanup_(fake_service_stop) struct fake_service f = {.reply = other_reply};
    fake_service_start(&gone);
    fake_service_start(&f);
    fake_service_stop(&gone);
    cr_assert_eq(ask(&gone, 60 * NS_PER_S), -ECONNREFUSED);
    assert_has(err.text, "no worker uses NCCL");
    cr_assert_eq(ask(&f, 60 * NS_PER_S), -EINVAL);
    assert_has(err.text, "is not NCCL's RAS service");
}

Test(ras_io, addresses) {
    static const char *const bad[] = {"", "localhost", "localhost:0", "localhost:x", "host.example:1", ":28028"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cr_expect_eq(source_ras(bad[i], clock_now_ns() + NS_PER_S, &ras, &err), -EINVAL, "%s", bad[i]);
        expect_has(err.text, "NCCL_RAS_ADDR=");
    }
}
