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

static void start(uint64_t boot_ns, uint64_t silence_ns) {
    int in[2], out[2];
    static char home[] = "HOME=/there", path[] = "PATH=/usr/bin:/bin", who[] = "WHO=node";
    static char *envp[] = {home, path, who, NULL};
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
}

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

static int status_of_relay(void) {
    int status;
    cr_assert_eq(waitpid(relay, &status, 0), relay);
    relay = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void send_frames(const struct strbuf *s) { cr_assert_eq(write(to, strbuf_text(s), s->len), (ssize_t)s->len); }

static void boot(const char *text, const char *variable) {
    _cleanup_(strbuf_fini) struct strbuf frames = {0};
    _cleanup_(ssh_boot_fini) struct ssh_boot b = {.cwd = xstrdup(dir), .grace_ns = 500 * NS_PER_MS};
    struct err err = {0};
    FILE *f = fopen(script, "we");
    cr_assert_not_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    words_add(&b.args, &b.n_args, xstrdup("word"));
    envlist_set(&b.env, "WHO", variable);
    cr_assert_eq(ssh_boot_add(&b, &frames, &err), 0);
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

Test(ssh_node_io, starts_the_program_with_the_heads_environment_over_its_own) {
    start(30 * NS_PER_S, 30 * NS_PER_S);
    struct starter_message hello = expect(STARTER_HELLO);
    cr_assert_eq(hello.hello.pid, (uint32_t)relay);
    boot("echo $1 $HOME $WHO $PWD | sed s,$PWD,folder,; exit 5", "head");
    expect_output("word /there head folder\n");
    expect_exit(false, 5);
    cr_assert_eq(status_of_relay(), 5);
}

Test(ssh_node_io, a_head_that_says_nothing_is_told_so) {
    start(50 * NS_PER_MS, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    struct starter_message m = expect(STARTER_FAIL);
    assert_has(m.fail.text, "no job came");
    cr_assert_eq(next().kind, 0);
    cr_assert_eq(status_of_relay(), 1);
}

/* Sends a ping every 50 ms, for so long or until the relay says something. True: none came late, as they do where the
 * machine pauses. */
static bool ping(uint64_t for_ns, uint64_t late_ns) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct pollfd p = {.fd = from, .events = POLLIN};
    uint64_t last_ns = clock_now_ns(), end_ns = last_ns + for_ns;
    bool in_time = true;
    starter_add(&(struct starter_message){.kind = STARTER_PING}, &frame);
    while (last_ns < end_ns && poll(&p, 1, 50) == 0) {
        uint64_t now_ns = clock_now_ns();
        in_time = in_time && now_ns - last_ns < late_ns;
        last_ns = now_ns;
        if (write(to, strbuf_text(&frame), frame.len) != (ssize_t)frame.len)
            break; /* it has ended, and says so */
    }
    return in_time && clock_now_ns() - last_ns < late_ns;
}

static const char until_term[] = "trap 'echo got TERM; exit 3' TERM; echo ready; while :; do sleep 0.02; done";

/* Its program runs. False: the machine paused meanwhile, and the relay took its head for gone. */
static bool start_to_be_left(uint64_t silence_ns) {
    start(30 * NS_PER_S, silence_ns);
    (void)expect(STARTER_HELLO);
    boot(until_term, "x");
    bool in_time = ping(30 * NS_PER_S, silence_ns / 4);
    struct starter_message m = next();
    if (m.kind == STARTER_OUT && m.data.len == 6 && memcmp(m.data.bytes, "ready\n", 6) == 0)
        return true;
    cr_assert_not(in_time, "%c", m.kind);
    return false;
}

/* After its end in good order: nothing is left of the program. */
static void again(void) {
    (void)close(to);
    to = -1;
    while (next().kind != 0)
        ;
    (void)status_of_relay();
    end_relay();
    strbuf_fini(&got);
    at = 0;
}

Test(ssh_node_io, a_head_that_falls_silent_has_gone) {
    while (!start_to_be_left(400 * NS_PER_MS))
        again();
    expect_output("got TERM\n");
    expect_exit(false, 3);
    cr_assert_eq(status_of_relay(), 3);
}

Test(ssh_node_io, a_ping_keeps_the_job) {
    struct pollfd p = {.events = POLLIN};
    bool kept = false;
    while (!kept) {
        if (relay > 0)
            again();
        if (!start_to_be_left(NS_PER_S))
            continue;
        bool in_time = ping(3 * NS_PER_S, NS_PER_S / 4); /* three times as long as it waits for one */
        p.fd = from;
        kept = poll(&p, 1, 0) == 0;
        cr_assert(kept || !in_time, "it ended the job");
    }
    (void)close(to);
    to = -1;
    expect_output("got TERM\n");
    expect_exit(false, 3);
}

/* Sends pings for so long, while the relay has its output open. */
static void ping_for(uint64_t time_ns) {
    _cleanup_(strbuf_fini) struct strbuf ping = {0};
    struct pollfd p = {.fd = from};
    starter_add(&(struct starter_message){.kind = STARTER_PING}, &ping);
    for (uint64_t end = clock_now_ns() + time_ns; clock_now_ns() < end;) {
        send_frames(&ping);
        cr_assert_eq(poll(&p, 1, 100), 0, "the relay has ended");
    }
}

/* As of a job in a pager that nobody scrolls: the head is there, and reads later. */
Test(ssh_node_io, a_head_that_reads_late_gets_the_end) {
    size_t len = 0;
    struct starter_message m;
    start(30 * NS_PER_S, 4 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    /* more than the pipe and the relay take; and a process that is left holds the output open */
    boot("while kill -0 $PPID; do sleep 0.1; done 2>/dev/null & head -c 230000 /dev/zero; exit 6", "x");
    ping_for(6 * NS_PER_S);
    while ((m = next()).kind == STARTER_OUT)
        len += m.data.len;
    cr_assert_eq(len, 230000);
    cr_assert(m.kind == STARTER_EXIT && m.exit.code == 6, "%d", m.kind);
    cr_assert_eq(status_of_relay(), 6);
}

Test(ssh_node_io, what_does_not_end_is_killed_after_the_grace) {
    start(30 * NS_PER_S, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    boot("trap '' TERM; echo ready; sleep 1000 & while :; do sleep 0.02; done", "x");
    expect_output("ready\n");
    (void)close(to);
    to = -1;
    expect_exit(true, SIGKILL);
    cr_assert_eq(status_of_relay(), 128 + SIGKILL);
}

Test(ssh_node_io, a_stopped_program_is_continued_to_end) {
    start(30 * NS_PER_S, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    boot("trap 'exit 4' TERM; echo ready; kill -STOP $$; exit 0", "x");
    expect_output("ready\n");
    _cleanup_(strbuf_fini) struct strbuf stop = {0};
    struct starter_message m = {.kind = STARTER_STOP};
    m.signal.signo = SIGTERM;
    starter_add(&m, &stop);
    send_frames(&stop);
    expect_exit(false, 4);
}

Test(ssh_node_io, a_reader_that_went_away_does_not_hold_the_end_up) {
    start(30 * NS_PER_S, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    boot("trap 'exit 3' TERM; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", "x");
    (void)expect(STARTER_OUT);
    (void)close(to); /* and it reads no more */
    to = -1;
    cr_assert_eq(status_of_relay(), 3);
}

static uint16_t ask_to_listen(const char *addr) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct starter_message m = {.kind = STARTER_LISTEN};
    (void)snprintf(m.listen.addr, sizeof m.listen.addr, "%s", addr);
    starter_add(&m, &frame);
    send_frames(&frame);
    return expect(STARTER_PORT).port.port;
}

Test(ssh_node_io, it_listens_for_its_program_where_the_nodes_meet) {
    struct addr there;
    start(30 * NS_PER_S, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    uint16_t port = ask_to_listen("127.0.0.1");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", port, &there), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&there.ss, there.len), 0);
    boot("test -S /proc/self/fd/${MUSTER_HEAD_LISTENER#fd:} && echo it has it", "x");
    expect_output("it has it\n");
    expect_exit(false, 0);
    char byte; /* the program has ended, and with it the last copy of the socket */
    cr_assert_leq(read(fd, &byte, 1), 0);
    (void)close(fd);
}

Test(ssh_node_io, an_address_at_which_it_cannot_listen_is_a_failure) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    struct starter_message m = {.kind = STARTER_LISTEN, .listen = {.addr = "127.0.0.1", .low = 1, .high = 1}};
    start(30 * NS_PER_S, 30 * NS_PER_S);
    (void)expect(STARTER_HELLO);
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct addr there;
    socklen_t len = sizeof there.ss;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &there), 0);
    cr_assert_eq(bind(taken, (const struct sockaddr *)&there.ss, there.len), 0);
    cr_assert_eq(listen(taken, 1), 0);
    cr_assert_eq(getsockname(taken, (struct sockaddr *)&there.ss, &len), 0);
    m.listen.low = m.listen.high = addr_port(&there);
    starter_add(&m, &frame);
    send_frames(&frame);
    cr_assert_neq(expect(STARTER_FAIL).fail.text[0], '\0');
    cr_assert_eq(status_of_relay(), 1);
    (void)close(taken);
}
