#include "rendezvous/protocol/probe_io.h"

#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define PATIENCE_NS (5 * NS_PER_S)

static struct loop *loop;
static struct probe_answer answer;
static unsigned answers;
static char run_id[RDZV_RUN_ID_MAX]; /* of the answer */

static void on_answer(void *arg, const struct probe_answer *a) {
    answer = *a;
    (void)snprintf(run_id, sizeof run_id, "%s", a->run_id != NULL ? a->run_id : "");
    answers++;
    loop_quit(loop);
}

static void begin(void) { cr_assert_eq(loop_new(&loop), 0); }
static void finish(void) { loop_free(loop); }

static void probe(const struct addr *to, uint64_t incarnation, uint64_t timeout_ns) {
    struct probe *p;
    answers = 0;
    cr_assert_eq(probe_start(loop, NULL, to, NULL, incarnation, timeout_ns, on_answer, NULL, &p), 0);
    cr_assert_eq(answers, 0, "never from inside");
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(answers, 1);
}

Test(probe_io, the_agent_that_is_looked_for_lives, .init = begin, .fini = finish) {
    struct addr at;
    int fd = listen_at("127.0.0.1", &at);
    struct rdzv_listener_config config = {.incarnation = 42, .run_id = "r"};
    struct rdzv_listener *l;
    l = rdzv_listener_new(loop, &config);
    rdzv_listener_add(l, fd);
    probe(&at, 42, PATIENCE_NS);
    cr_assert_eq(answer.result, PROBE_ALIVE);
    cr_assert_eq(answer.incarnation, 42);
    cr_assert_str_eq(run_id, "r");
    probe(&at, 43, PATIENCE_NS);
    cr_assert_eq(answer.result, PROBE_GONE, "another life of the agent: the old one is gone");
    cr_assert_neq(answer.code, -ECONNREFUSED);
    rdzv_listener_free(l);
}

Test(probe_io, refused_means_gone, .init = begin, .fini = finish) {
    struct addr at;
    (void)close(listen_at("127.0.0.1", &at));
    probe(&at, 42, PATIENCE_NS);
    cr_assert_eq(answer.result, PROBE_GONE);
    cr_assert_eq(answer.code, -ECONNREFUSED);
    cr_assert_str_eq(run_id, "");
}

static void on_accept_from(void *arg, int fd, const struct addr *peer) {
    addr_host_text(peer, arg);
    (void)close(fd);
}

/* 127.0.0.0/8 is all of this machine's. */
Test(probe_io, a_probe_from_an_address_comes_from_it, .init = begin, .fini = finish) {
    struct addr at, from;
    char came[ADDR_TEXT_MAX] = "";
    struct listener *l;
    struct probe *p;
    cr_assert_eq(addr_from_literal("127.0.0.77", 9, &from), 0);
    l = listener_new(loop, listen_at("127.0.0.1", &at), on_accept_from, came);
    answers = 0;
    cr_assert_eq(probe_start(loop, &from, &at, NULL, 42, PATIENCE_NS, on_answer, NULL, &p), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_str_eq(came, "127.0.0.77");
    cr_assert_eq(answer.result, PROBE_UNKNOWN);
    listener_free(l);
    cr_assert_eq(probe_start(loop, &from, &at, NULL, 42, PATIENCE_NS, on_answer, NULL, &p), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(answer.result == PROBE_GONE && answer.code == -ECONNREFUSED);
}

Test(probe_io, a_probe_from_somebody_elses_address_fails, .init = begin, .fini = finish) {
    struct addr at, from;
    struct probe *p;
    (void)close(listen_at("127.0.0.1", &at));
    cr_assert_eq(addr_from_literal("192.0.2.1", 0, &from), 0); /* TEST-NET-1, RFC 5737 */
    cr_assert_eq(probe_start(loop, &from, &at, NULL, 42, PATIENCE_NS, on_answer, NULL, &p), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(answer.result == PROBE_UNKNOWN && answer.code == -EADDRNOTAVAIL);
}

/* The guardian keeps the socket open: the kernel accepts, nobody speaks. */
Test(probe_io, a_socket_that_only_the_guardian_holds_says_nothing, .init = begin, .fini = finish) {
    struct addr at;
    int fd = listen_at("127.0.0.1", &at);
    uint64_t began_ns = clock_now_ns();
    probe(&at, 42, 50 * NS_PER_MS);
    cr_assert_eq(answer.result, PROBE_UNKNOWN);
    cr_assert_geq(clock_now_ns() - began_ns, 50 * NS_PER_MS);
    (void)close(fd);
}

struct speaker {
    const char *bytes;
    size_t len;
};

static void on_accept(void *arg, int fd, const struct addr *peer) {
    const struct speaker *s = arg;
    cr_assert_eq(send(fd, s->bytes, s->len, MSG_NOSIGNAL), (ssize_t)s->len);
    (void)close(fd);
}

static enum probe_result probe_speaker(const char *bytes, size_t len) {
    struct addr at;
    struct speaker s = {bytes, len};
    struct listener *l;
    l = listener_new(loop, listen_at("127.0.0.1", &at), on_accept, &s);
    probe(&at, 42, PATIENCE_NS);
    listener_free(l);
    return answer.result;
}

Test(probe_io, an_end_or_garbage_proves_nothing, .init = begin, .fini = finish) {
    cr_assert_eq(probe_speaker("", 0), PROBE_UNKNOWN);
    cr_assert_eq(probe_speaker("SSH-2.0-OpenSSH\r\n", 17), PROBE_UNKNOWN);
    cr_assert_eq(probe_speaker("\x02\x00\x00\x00{}", 6), PROBE_UNKNOWN);
    cr_assert_eq(probe_speaker("\x10\x00\x00\x00{\"kind\":\"LEAVE\"}", 20), PROBE_UNKNOWN);
}

Test(probe_io, a_hello_cut_before_its_end_proves_nothing, .init = begin, .fini = finish) {
    struct wire_message m = {.kind = WIRE_HELLO, .hello = {.version = WIRE_VERSION, .incarnation = 42}};
    struct wire_message greeting = {.kind = WIRE_GREETING, .greeting = {.version = WIRE_VERSION, .open = true}};
    _cleanup_(strbuf_fini) struct strbuf frame = {0}, alone = {0};
    wire_add_frame(&m, &alone);
    cr_assert_eq(probe_speaker(strbuf_text(&alone), alone.len), PROBE_UNKNOWN, "nobody has greeted");
    wire_add_frame(&greeting, &frame);
    wire_add_frame(&m, &frame);
    for (size_t len = 0; len < frame.len; len++)
        cr_assert_eq(probe_speaker(strbuf_text(&frame), len), PROBE_UNKNOWN);
    cr_assert_eq(probe_speaker(strbuf_text(&frame), frame.len), PROBE_ALIVE);
}

Test(probe_io, a_probe_that_was_given_up_never_answers, .init = begin, .fini = finish) {
    struct addr at;
    (void)close(listen_at("127.0.0.1", &at));
    struct probe *p;
    answers = 0;
    cr_assert_eq(probe_start(loop, NULL, &at, NULL, 42, PATIENCE_NS, on_answer, NULL, &p), 0);
    probe_free(p);
    rig_loop_turns(loop, 10);
    cr_assert_eq(answers, 0);
}
