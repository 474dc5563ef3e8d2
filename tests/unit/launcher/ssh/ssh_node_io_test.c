/* A relay in a process of its own, whose head is this one. The program that it starts is a shell, to which "run" is a
 * script in the job's folder. */
#include "launcher/ssh/ssh_node_io.h"

#include "base/frame.h"
#include "io/clock.h"
#include "io/net/addr.h"
#include "launcher/ssh/ssh_boot.h"
#include "rig/unit.h"

static char dir[64], script[96];
static pid_t relay;
static int to = -1, from = -1;
static struct strbuf got;
static size_t at; /* of the next message in what was got */

static void begin(void) {
    (void)alarm(60);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(dir, sizeof dir, "/tmp/muster-relay-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(script, sizeof script, "%s/run", dir);
}

static void end_relay(void) {
    if (to >= 0)
        (void)close(to);
    if (from >= 0)
        (void)close(from);
    if (relay > 0) {
        (void)kill(relay, SIGKILL);
        (void)waitpid(relay, NULL, 0);
    }
    to = from = -1;
    relay = 0;
}

static void end(void) {
    end_relay();
    (void)unlink(script);
    (void)rmdir(dir);
    strbuf_fini(&got);
}

TestSuite(ssh_node_io, .init = begin, .fini = end);

/* False: end of file. */
static bool read_more(void) {
    char bytes[4096];
    ssize_t n = read(from, bytes, sizeof bytes);
    cr_assert_geq(n, 0);
    strbuf_add_bytes(&got, bytes, (size_t)n);
    return n > 0;
}

/* The next message; kind 0: there is none, and the relay has closed its output. */
static struct starter_message next(void) {
    struct starter_message m = {0};
    struct err err = {0};
    for (;;) {
        const uint8_t *bytes = (const uint8_t *)strbuf_text(&got);
        size_t n = 0;
        int r = at == 0 ? ssh_find_begin(bytes, got.len, &n)
                        : starter_take(bytes + at, got.len - at, STARTER_FROM_RELAY, &m, &n, &err);
        cr_assert_geq(r, 0, "%s", err.text);
        at += r == 0 ? n : 0;
        if (r == 0 && m.kind != 0)
            return m;
        if (r == FRAME_E_MORE && !read_more())
            return (struct starter_message){0};
    }
}

static struct starter_message expect(enum starter_kind kind) {
    struct starter_message m = next();
    cr_assert_eq(m.kind, kind, "%c, not %c", m.kind, kind);
    return m;
}

static void start(uint64_t boot_ns, uint64_t silence_ns) {
    int in[2], out[2];
    static char home[] = "HOME=/there", path[] = "PATH=/usr/bin:/bin";
    static char *envp[] = {home, path, NULL};
    cr_assert_eq(pipe2(in, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
    cr_assert_eq(fcntl(out[1], F_SETPIPE_SZ, 1 << 16), 1 << 16); /* with pages of any size */
    relay = fork();
    cr_assert_geq(relay, 0);
    if (relay == 0) {
        (void)close(in[1]);
        (void)close(out[0]);
        _exit(ssh_node_run(&(struct ssh_node_config){.in_fd = in[0],
                                                     .out_fd = out[1],
                                                     .version = "1",
                                                     .program = "/bin/sh",
                                                     .envp = envp,
                                                     .boot_ns = boot_ns,
                                                     .silence_ns = silence_ns}));
    }
    (void)close(in[0]);
    (void)close(out[1]);
    to = in[1];
    from = out[0];
    (void)expect(STARTER_HELLO);
}

static int status_of_relay(void) {
    int status = rig_status(relay);
    relay = 0;
    return status;
}

static void send_frames(const struct strbuf *s) { cr_assert_eq(write(to, strbuf_text(s), s->len), (ssize_t)s->len); }

static void send_message(const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    starter_add(m, &frame);
    send_frames(&frame);
}

/* suspended: the head is, from then on. */
static void boot(const char *text, bool suspended) {
    _cleanup_(strbuf_fini) struct strbuf frames = {0};
    _cleanup_(ssh_boot_fini) struct ssh_boot b = {.cwd = xstrdup(dir), .grace_ns = 500 * NS_PER_MS};
    struct err err = {0};
    FILE *f = fopen(script, "we");
    cr_assert_not_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    words_add(&b.args, &b.n_args, xstrdup("word"));
    cr_assert_eq(ssh_boot_add(&b, &frames, &err), 0);
    if (suspended)
        starter_add(&(struct starter_message){.kind = STARTER_SUSPENDED}, &frames);
    send_frames(&frames);
}

static void expect_output(const char *text) {
    struct starter_message m = expect(STARTER_OUT);
    cr_assert_eq(m.data.len, strlen(text));
    cr_assert_eq(memcmp(m.data.bytes, text, m.data.len), 0, "%.*s", (int)m.data.len, (const char *)m.data.bytes);
}

static void expect_exit(bool signalled, unsigned code) {
    struct starter_message m = expect(STARTER_EXIT);
    cr_assert_eq(m.exit.signalled, signalled);
    cr_assert_eq(m.exit.code, code, "%u", m.exit.code);
    cr_assert_eq(next().kind, 0);
}

Test(ssh_node_io, a_head_that_says_nothing_is_told_so) {
    start(50 * NS_PER_MS, 30 * NS_PER_S);
    struct starter_message m = expect(STARTER_FAIL);
    assert_has(m.fail.text, "no job came");
    cr_assert_eq(next().kind, 0);
    cr_assert_eq(status_of_relay(), 1);
}

static const char until_term[] = "trap 'echo got TERM; exit 3' TERM; echo ready; while :; do sleep 0.02; done";

Test(ssh_node_io, a_head_that_falls_silent_has_gone_unless_it_is_suspended) {
    struct pollfd p = {.events = POLLIN};
    start(30 * NS_PER_S, 400 * NS_PER_MS);
    boot(until_term, true);
    expect_output("ready\n");
    p.fd = from;
    cr_assert_eq(poll(&p, 1, 1000), 0, "it is suspended");
    send_message(&(struct starter_message){.kind = STARTER_PING});
    expect_output("got TERM\n");
    expect_exit(false, 3);
    cr_assert_eq(status_of_relay(), 3);
}

/* Sends pings for so long, while the relay has its output open. */
static void ping_for(uint64_t time_ns) {
    struct pollfd p = {.fd = from};
    for (uint64_t end = clock_now_ns() + time_ns; clock_now_ns() < end;) {
        send_message(&(struct starter_message){.kind = STARTER_PING});
        cr_assert_eq(poll(&p, 1, 100), 0, "the relay has ended");
    }
}

/* As of a job in a pager that nobody scrolls: the head is there, and reads later. */
Test(ssh_node_io, a_head_that_reads_late_gets_the_end) {
    size_t len = 0;
    struct starter_message m;
    start(30 * NS_PER_S, 4 * NS_PER_S);
    /* more than the pipe and the relay take; and a process that is left holds the output open */
    boot("while kill -0 $PPID; do sleep 0.1; done 2>/dev/null & head -c 230000 /dev/zero; exit 6", false);
    ping_for(6 * NS_PER_S);
    while ((m = next()).kind == STARTER_OUT)
        len += m.data.len;
    cr_assert_eq(len, 230000);
    cr_assert(m.kind == STARTER_EXIT && m.exit.code == 6, "%d", m.kind);
    cr_assert_eq(status_of_relay(), 6);
}

Test(ssh_node_io, a_stopped_program_is_continued_to_end) {
    start(30 * NS_PER_S, 30 * NS_PER_S);
    boot("trap 'exit 4' TERM; echo ready; kill -STOP $$; exit 0", false);
    expect_output("ready\n");
    send_message(&(struct starter_message){.kind = STARTER_STOP, .signal.signo = SIGTERM});
    expect_exit(false, 4);
}

static uint16_t ask_to_listen(const char *addr) {
    struct starter_message m = {.kind = STARTER_LISTEN};
    (void)snprintf(m.listen.addr, sizeof m.listen.addr, "%s", addr);
    send_message(&m);
    return expect(STARTER_PORT).port.port;
}

Test(ssh_node_io, it_listens_for_its_program_where_the_nodes_meet) {
    struct addr there;
    start(30 * NS_PER_S, 30 * NS_PER_S);
    uint16_t port = ask_to_listen("127.0.0.1");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", port, &there), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&there.ss, there.len), 0);
    boot("test -S /proc/self/fd/${MUSTER_HEAD_LISTENER#fd:} && echo it has it", false);
    expect_output("it has it\n");
    expect_exit(false, 0);
    char byte; /* the program has ended, and with it the last copy of the socket */
    cr_assert_leq(read(fd, &byte, 1), 0);
    (void)close(fd);
}

Test(ssh_node_io, an_address_at_which_it_cannot_listen_is_a_failure) {
    struct starter_message m = {.kind = STARTER_LISTEN, .listen = {.addr = "127.0.0.1", .low = 1, .high = 1}};
    start(30 * NS_PER_S, 30 * NS_PER_S);
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct addr there;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &there), 0);
    cr_assert_eq(bind(taken, (const struct sockaddr *)&there.ss, there.len), 0);
    cr_assert_eq(listen(taken, 1), 0);
    cr_assert_eq(addr_of_socket(taken, &there), 0);
    m.listen.low = m.listen.high = addr_port(&there);
    send_message(&m);
    cr_assert_neq(expect(STARTER_FAIL).fail.text[0], '\0');
    cr_assert_eq(status_of_relay(), 1);
    (void)close(taken);
}
