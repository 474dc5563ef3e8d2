#include "launcher/starter/starter_link_io.h"

#include "base/frame.h"
#include "io/net/listen.h"
#include "rig/loop_rig.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static struct loop *loop;
static const struct place place = {
    .slurm = PLACE_SLURM_STEP, .job_id = (char *)(uintptr_t) "28", .step_id = (char *)(uintptr_t) "0"};
static struct starter_link *link_;
static int head_fd = -1; /* the head listens */
static int stopped, gone;
static uint32_t expected;
static char head_env[128];
static char *envp[] = {head_env, (char *)(uintptr_t) "MUSTER_HEAD_TOKEN=" TOKEN, NULL};

static void on_stop(void *arg, int signo) { stopped = signo; }

static void on_expect(void *arg, uint32_t nodes) { expected = nodes; }

static void on_gone(void *arg) { gone++; }

static const struct starter_link_ops ops = {.stop = on_stop, .expect = on_expect, .gone = on_gone};

static void begin(void) {
    struct addr at, own;
    struct err err = {0};
    (void)alarm(60);
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &head_fd, &err), 0, "%s", err.text);
    cr_assert_eq(addr_of_socket(head_fd, &own), 0);
    /* the first address refuses: nothing listens there */
    (void)snprintf(head_env, sizeof head_env, "MUSTER_HEAD=::1,127.0.0.1:%u", addr_port(&own));
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(starter_link_new(loop, envp, NULL, "node1", &place, &ops, NULL, &link_, &err), 0, "%s", err.text);
}

static void end(void) {
    starter_link_free(link_);
    loop_free(loop);
    if (head_fd >= 0)
        (void)close(head_fd);
}

TestSuite(starter_link_io, .init = begin, .fini = end);

/* Runs the loop until the descriptor can be read. */
static void run_until_readable(int fd) {
    rig_loop_until(loop, poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1) != 0);
}

/* Instead of the head that listens: a relay, whose end of the pair is returned. */
static int link_to_relay(void) {
    int pair[2];
    struct err err = {0};
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    (void)snprintf(head_env, sizeof head_env, "MUSTER_HEAD=fd:%d", pair[1]);
    starter_link_free(link_);
    cr_assert_eq(starter_link_new(loop, envp, NULL, "node1", &place, &ops, NULL, &link_, &err), 0, "%s", err.text);
    return pair[0];
}

static int accept_link(void) {
    run_until_readable(head_fd);
    int fd = accept(head_fd, NULL, NULL);
    cr_assert_geq(fd, 0);
    return fd;
}

/* Takes one message, and leaves what follows. Asserts nothing: a forked head that asserted would
 * disturb Criterion's own runner. */
static bool take_message(int fd, struct starter_message *ret) {
    uint8_t buf[STARTER_FRAME_MAX];
    size_t bytes = 0;
    ssize_t n;
    do {
        n = recv(fd, buf, sizeof buf, MSG_PEEK);
        if (n <= 0)
            return false;
    } while (starter_take(buf, (size_t)n, STARTER_FROM_AGENT, ret, &bytes, NULL) != 0);
    return recv(fd, buf, bytes, 0) == (ssize_t)bytes;
}

static struct starter_message m; /* the last one that came to the test */

static void receive(int fd) {
    run_until_readable(fd);
    cr_assert(take_message(fd, &m));
}

/* The connection on which the agent has told that it leads. */
static int lead(void) {
    starter_link_lead(link_);
    int fd = accept_link();
    receive(fd);
    return fd;
}

static bool send_message(int fd) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    starter_add(&m, &s);
    return send(fd, strbuf_text(&s), s.len, MSG_NOSIGNAL) == (ssize_t)s.len;
}

Test(starter_link_io, it_tells_that_it_leads_and_hears_stop) {
    starter_link_lead(link_); /* once more is harmless */
    int fd = lead();
    cr_assert_eq(m.kind, STARTER_LEAD);
    cr_assert_str_eq(m.lead.token, TOKEN);
    cr_assert_str_eq(m.lead.host, "node1");
    cr_assert_str_eq(m.lead.step, "28.0");
    m.kind = STARTER_EXPECT;
    m.expect.nodes = 7;
    cr_assert(send_message(fd));
    m.kind = STARTER_STOP;
    m.signal.signo = 15;
    cr_assert(send_message(fd));
    rig_loop_until(loop, stopped != 0);
    cr_assert_eq(stopped, 15);
    cr_assert_eq(expected, 7);
    (void)close(fd);
}

Test(starter_link_io, a_safe_point_is_told_once_on_each_connection) {
    uint8_t more;
    int fd = lead();
    starter_link_safe(link_);
    starter_link_safe(link_);
    receive(fd);
    cr_assert_eq(m.kind, STARTER_SAFE);
    rig_loop_turns(loop, 3);
    cr_assert_lt(recv(fd, &more, 1, MSG_DONTWAIT), 0, "once");
    (void)close(fd);
    fd = accept_link();
    receive(fd);
    cr_assert_eq(m.kind, STARTER_LEAD);
    receive(fd);
    cr_assert_eq(m.kind, STARTER_SAFE);
    cr_assert_lt(recv(fd, &more, 1, MSG_DONTWAIT), 0, "once");
    (void)close(fd);
}

/* The head in a process of its own: it answers the verdict, on a new connection. */
static pid_t fork_head(void) {
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid != 0)
        return pid;
    (void)alarm(20);
    struct pollfd p = {.fd = head_fd, .events = POLLIN}; /* accept() does not wait there */
    int fd = poll(&p, 1, -1) == 1 ? accept(head_fd, NULL, NULL) : -1;
    bool good = take_message(fd, &m) && m.kind == STARTER_LEAD && take_message(fd, &m) && m.kind == STARTER_VERDICT &&
                m.verdict.status == 3 && m.verdict.lost == 1;
    m.kind = STARTER_ACK;
    _exit(send_message(fd) && good ? 0 : 1);
}

static const struct starter_verdict verdict = {.status = 3, .lost = 1, .text = "rank 0 ended"};

Test(starter_link_io, the_verdict_is_acknowledged_also_if_the_connection_is_lost_before) {
    int fd = lead();
    (void)close(fd);
    pid_t pid = fork_head();
    cr_assert(starter_link_verdict(link_, &verdict));
    cr_assert_eq(rig_status(pid), 0);
}

Test(starter_link_io, a_head_that_does_not_answer_costs_a_bounded_time) {
    starter_link_lead(link_);
    int fd = accept_link();
    uint64_t before = clock_now_ns();
    cr_assert_not(starter_link_verdict(link_, &verdict));
    uint64_t passed = clock_now_ns() - before;
    cr_assert_geq(passed, STARTER_LINK_VERDICT_NS / 2);
    cr_assert_lt(passed, 10 * STARTER_LINK_VERDICT_NS);
    (void)close(fd);
}

Test(starter_link_io, an_agent_that_never_led_says_nothing) { cr_assert_not(starter_link_verdict(link_, &verdict)); }

Test(starter_link_io, a_head_that_was_killed_is_noticed) {
    int fd = lead();
    (void)close(fd);
    (void)close(head_fd);
    head_fd = -1;
    rig_loop_until(loop, gone != 0);
    cr_assert_eq(gone, 1);
}

Test(starter_link_io, a_head_that_breaks_the_protocol_is_left) {
    int fd = lead();
    cr_assert_eq(send(fd, "HTTP/1.1 400\r\n\r\n", 16, MSG_NOSIGNAL), 16);
    char byte;
    rig_loop_until(loop, recv(fd, &byte, 1, MSG_DONTWAIT) == 0); /* it hangs up */
    (void)close(fd);
}

Test(starter_link_io, variables_that_make_no_sense_are_refused) {
    static const char *const bad[] = {"MUSTER_HEAD=nothing", "MUSTER_HEAD=:1", "MUSTER_HEAD=name:1",
                                      "MUSTER_HEAD=10.0.0.1:0", "MUSTER_HEAD=10.0.0.1:70000"};
    struct starter_link *l;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char *of[] = {(char *)(uintptr_t)bad[i], envp[1], NULL};
        struct err err = {0};
        cr_assert_eq(starter_link_new(loop, of, NULL, "node1", &place, &ops, NULL, &l, &err), -EINVAL, "%s", bad[i]);
        cr_assert_neq(err.text[0], '\0');
    }
    char *no_token[] = {head_env, NULL}, *none[] = {NULL};
    cr_assert_eq(starter_link_new(loop, no_token, NULL, "node1", &place, &ops, NULL, &l, NULL), -EINVAL);
    cr_assert_eq(starter_link_new(loop, none, NULL, "node1", &place, &ops, NULL, &l, NULL), 0);
    cr_assert_null(l);
}

Test(starter_link_io, a_relay_is_spoken_to_over_its_socket) {
    int fd = link_to_relay();
    starter_link_lead(link_);
    receive(fd);
    cr_assert_eq(m.kind, STARTER_LEAD);
    cr_assert_str_eq(m.lead.token, "");
    m.kind = STARTER_STOP;
    m.signal.signo = SIGTERM;
    cr_assert(send_message(fd));
    rig_loop_until(loop, stopped != 0);
    cr_assert_eq(stopped, SIGTERM);
    (void)close(fd); /* the relay was killed */
    rig_loop_until(loop, gone != 0);
}

Test(starter_link_io, a_relay_gets_the_verdict) {
    struct starter_verdict v = {.status = 3};
    int fd = link_to_relay();
    starter_link_lead(link_);
    receive(fd);
    m.kind = STARTER_ACK;
    cr_assert(send_message(fd)); /* it waits there */
    cr_assert(starter_link_verdict(link_, &v));
    receive(fd);
    cr_assert_eq(m.kind, STARTER_VERDICT);
    cr_assert_eq(m.verdict.status, 3);
    (void)close(fd);
}

Test(starter_link_io, a_number_that_is_not_a_socket_is_refused) {
    static const char *const values[] = {"fd:", "fd:-1", "fd:2", "fd:99999", "fd:3x", "fd:99999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        struct starter_link *l = NULL;
        struct err err = {0};
        (void)snprintf(head_env, sizeof head_env, "MUSTER_HEAD=%s", values[i]);
        cr_assert_eq(starter_link_new(loop, envp, NULL, "node1", &place, &ops, NULL, &l, &err), -EINVAL, "%s",
                     values[i]);
        assert_has(err.text, "unset it");
        cr_assert_null(l);
    }
}
