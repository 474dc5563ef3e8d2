#include "launcher/output/console_io.h"

#include <sys/ioctl.h>
#include <termios.h>

#include "io/clock.h"
#include "rig/unit.h"

static struct fixture {
    struct loop *loop;
    struct console *console;
    int out[2], err[2]; /* [0]: where the test reads, [1]: the launcher's descriptor */
} fix;

static struct console_source a, b; /* of a test that has them */

static void start(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(loop_new(&fix.loop), 0);
    fix.console = console_new(fix.loop, fix.out[1], fix.err[1]);
}

/* And a, a source of standard output without a prefix. */
static void with_pipes(void) {
    cr_assert_eq(pipe2(fix.out, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(fix.err, O_CLOEXEC), 0);
    start();
    console_source_init(&a, fix.console, CONSOLE_OUT, "");
}

/* A terminal of 20 columns as both outputs, without newline translation. */
static void with_terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(slave >= 0);
    struct termios t;
    cr_assert_eq(tcgetattr(slave, &t), 0);
    cfmakeraw(&t);
    cr_assert_eq(tcsetattr(slave, TCSANOW, &t), 0);
    cr_assert_eq(ioctl(master, TIOCSWINSZ, &(struct winsize){.ws_row = 5, .ws_col = 20}), 0);
    fix.out[0] = fix.err[0] = master;
    fix.out[1] = slave;
    fix.err[1] = dup(slave);
    cr_assert_eq(setenv("TERM", "xterm", 1), 0);
    start();
}

static void fini(void) {
    console_source_fini(&a);
    console_source_fini(&b);
    console_free(fix.console);
    loop_free(fix.loop);
    (void)close(fix.out[0]);
    (void)close(fix.out[1]);
    if (fix.err[0] != fix.out[0])
        (void)close(fix.err[0]);
    (void)close(fix.err[1]);
}

static void turn(void) { cr_assert_eq(loop_turn(fix.loop), 0); }

/* The output of fd, after up to three turns of the loop. */
static const char *seen(int fd) {
    static char text[65536];
    size_t len = 0;
    for (int i = 0; i < 3; i++)
        turn();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (len < sizeof text - 1 && poll(&p, 1, 20) > 0 && (p.revents & POLLIN) != 0) {
        ssize_t n = read(fd, text + len, sizeof text - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        turn();
    }
    text[len] = '\0';
    return text;
}

static void piece(struct console_source *s, enum linebuf_start how, const char *text, bool ended) {
    console_source_piece(s, &(struct linebuf_piece){.data = text, .len = strlen(text), .start = how, .ended = ended});
}

static void line(struct console_source *s, const char *text) { piece(s, LINEBUF_NEW, text, true); }

#define EXPECT(fd, want)                                     \
    do {                                                     \
        const char *got_ = seen(fd);                         \
        cr_assert_str_eq(got_, (want), "got: \"%s\"", got_); \
    } while (0)

static void finish(void) {
    if (fix.loop != NULL)
        fini();
}

TestSuite(console_io, .fini = finish);

Test(console_io, lines_come_out_with_their_prefix_on_their_stream) {
    with_pipes();
    console_source_init(&a, fix.console, CONSOLE_OUT, "[default0]:");
    console_source_init(&b, fix.console, CONSOLE_ERR, NULL);
    line(&a, "one");
    line(&b, "two");
    console_log_sink(fix.console, "muster: three\n", 14);
    EXPECT(fix.out[0], "[default0]:one\n");
    EXPECT(fix.err[0], "two\nmuster: three\n");
}

Test(console_io, a_line_of_another_never_goes_into_an_open_one) {
    with_pipes();
    console_source_init(&a, fix.console, CONSOLE_OUT, "a:");
    console_source_init(&b, fix.console, CONSOLE_OUT, "");
    piece(&a, LINEBUF_NEW, "10", false);
    piece(&a, LINEBUF_CONTINUES, "%", false);
    line(&b, "whole");
    piece(&a, LINEBUF_CONTINUES, " rest", true);
    line(&b, "next");
    piece(&b, LINEBUF_NEW, "prompt?", false);
    console_print(fix.console, CONSOLE_OUT, "muster: x\n", 10);
    EXPECT(fix.out[0], "a:10%\nwhole\na: rest\nnext\nprompt?\nmuster: x\n");
}

Test(console_io, a_newline_that_another_line_made_necessary_before_is_not_repeated) {
    with_pipes();
    console_source_init(&a, fix.console, CONSOLE_OUT, "a:");
    console_source_init(&b, fix.console, CONSOLE_OUT, "b:");
    piece(&a, LINEBUF_NEW, "100%", false);
    line(&b, "whole");
    piece(&a, LINEBUF_CONTINUES, "", true);
    line(&a, "");
    EXPECT(fix.out[0], "a:100%\nb:whole\na:\n");
}

Test(console_io, a_missing_newline_is_added_to_a_prefixed_line_and_before_what_follows) {
    with_pipes();
    console_source_init(&a, fix.console, CONSOLE_OUT, "a:");
    console_source_init(&b, fix.console, CONSOLE_OUT, NULL);
    piece(&a, LINEBUF_NEW, "end", false);
    console_source_end(&a);
    piece(&b, LINEBUF_NEW, "bare", false);
    console_source_end(&b);
    EXPECT(fix.out[0], "a:end\nbare");
    console_source_fini(&b);
    line(&a, "more");
    EXPECT(fix.out[0], "\na:more\n");
}

Test(console_io, o_nonblock_is_not_set_on_the_shared_file) {
    with_pipes();
    cr_assert_eq(fcntl(fix.out[1], F_GETFL) & O_NONBLOCK, 0);
    fini();
    with_terminal();
    cr_assert_eq(fcntl(fix.out[1], F_GETFL) & O_NONBLOCK, 0);
}

/* Reads all that is queued, and checks that it is a run of numbered lines. Returns their number. */
static int read_numbered(int fd) {
    char text[65536];
    int n = 0, digits = 0, value = 0;
    while (console_pending(fix.console) > 0 || poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 20) > 0) {
        turn();
        if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 0)
            continue;
        ssize_t got = read(fd, text, sizeof text);
        cr_assert_gt(got, 0);
        for (ssize_t i = 0; i < got; i++) {
            if (text[i] != '\n') {
                value = value * 10 + (text[i] - '0');
                digits++;
                continue;
            }
            cr_assert(digits == 99 && value == n, "%d characters, %d instead of %d", digits, value, n);
            n++;
            value = digits = 0;
        }
    }
    cr_assert_eq(digits, 0);
    return n;
}

static void numbered(struct console_source *s, int *n) { line(s, rig_text("%099d", (*n)++)); }

/* Adds lines until the source must wait for longer than the moment that a quick reader gets. */
static int fill(struct console_source *s, int most) {
    int n = 0;
    uint64_t since_ns = TIME_NEVER;
    while (n < most) {
        if (!console_source_must_wait(s)) {
            since_ns = TIME_NEVER;
            numbered(s, &n);
            turn();
            continue;
        }
        uint64_t now_ns = clock_now_ns();
        if (since_ns == TIME_NEVER)
            since_ns = now_ns;
        if (now_ns > since_ns + 3 * CONSOLE_QUICK_NS)
            break;
        (void)poll(NULL, 0, 5);
    }
    return n;
}

Test(console_io, a_stopped_pipe_gets_every_line_later) {
    with_pipes();
    console_spool(fix.console, (uint64_t)16 << 20);
    int n = fill(&a, 1000000);
    cr_assert(n > 200000 && n < 300000, "8 MiB in memory and 16 MiB in the file, then it waits: %d", n);
    cr_assert_not(console_source_is_full(&a), "but what is left of a worker that ended is taken");
    numbered(&a, &n);
    cr_assert_eq(read_numbered(fix.out[0]), n);
    cr_assert_not(console_source_must_wait(&a));
}

Test(console_io, a_quick_reader_makes_its_sources_wait_instead_of_using_memory) {
    with_pipes();
    char text[65536];
    uint64_t begin_ns = clock_now_ns();
    console_source_init(&a, fix.console, CONSOLE_OUT, "");
    console_spool(fix.console, (uint64_t)1 << 30);
    for (int n = 0; clock_now_ns() < begin_ns + 4 * CONSOLE_QUICK_NS;) {
        while (!console_source_must_wait(&a))
            numbered(&a, &n);
        cr_assert_leq(console_pending(fix.console), CONSOLE_WAIT_BYTES + 128);
        turn();
        cr_assert_gt(read(fix.out[0], text, sizeof text), 0);
    }
}

Test(console_io, only_our_own_lines_are_dropped_and_it_is_said_how_many) {
    with_pipes();
    char text[65537];
    memset(text, 'x', 65536);
    text[65535] = '\n';
    text[65536] = '\0';
    for (uint64_t had = UINT64_MAX; console_pending(fix.console) != had;) {
        had = console_pending(fix.console);
        console_print(fix.console, CONSOLE_OUT, text, 65536);
    }
    cr_assert_leq(console_pending(fix.console), CONSOLE_OWN_MAX);
    bool marker = false;
    for (int quiet = 0; quiet < 3;) {
        const char *got = seen(fix.out[0]);
        marker = marker || strstr(got, "muster: 1 line not shown: the terminal is too slow\n") != NULL;
        quiet = got[0] == '\0' ? quiet + 1 : 0;
    }
    cr_assert(marker);
}

Test(console_io, a_plain_file_gets_everything) {
    FILE *file = tmpfile();
    cr_assert_not_null(file);
    fix.out[0] = fix.err[0] = dup(fileno(file));
    fix.out[1] = dup(fileno(file));
    fix.err[1] = dup(fileno(file));
    start();
    console_source_init(&a, fix.console, CONSOLE_OUT, "");
    console_source_init(&b, fix.console, CONSOLE_ERR, "");
    for (int i = 0; i < 100000; i++)
        line(i % 2 == 0 ? &a : &b, i % 2 == 0 ? "even even even even" : "odd odd odd odd odd");
    cr_assert_eq(console_flush(fix.console, clock_now_ns() + NS_PER_S), 0);
    rewind(file);
    char text[64];
    for (int i = 0; i < 100000; i++) {
        cr_assert_not_null(fgets(text, sizeof text, file));
        cr_assert_eq(text[0], i % 2 == 0 ? 'e' : 'o', "order of both streams is kept");
    }
    cr_assert_null(fgets(text, sizeof text, file));
    (void)fclose(file);
}

Test(console_io, the_status_line_gives_way_and_comes_back) {
    with_terminal();
    console_source_init(&a, fix.console, CONSOLE_OUT, "");
    cr_assert(console_is_terminal(fix.console, CONSOLE_OUT));
    cr_assert(console_status(fix.console, "waiting"));
    EXPECT(fix.out[0], "waiting");
    cr_assert(console_status(fix.console, "waiting"));
    EXPECT(fix.out[0], "");
    line(&a, "text");
    EXPECT(fix.out[0], "\r\x1b[Ktext\nwaiting");
    cr_assert(console_status_fits(fix.console, &"a line of 19 columns"[1]));
    cr_assert_not(console_status_fits(fix.console, "a line of 20 columns"));
    cr_assert(console_status(fix.console, "a line that is longer than 20"));
    EXPECT(fix.out[0], "\r\x1b[Ka line that is long");
    piece(&a, LINEBUF_NEW, "prompt?", false);
    EXPECT(fix.out[0], "\r\x1b[Kprompt?");
    piece(&a, LINEBUF_CONTINUES, "yes", true);
    EXPECT(fix.out[0], "yes\na line that is long");
    cr_assert(console_status(fix.console, NULL));
    EXPECT(fix.out[0], "\r\x1b[K");
    cr_assert(console_status(fix.console, "left"));
    cr_assert_eq(console_flush(fix.console, clock_now_ns() + NS_PER_S), 0);
    EXPECT(fix.out[0], "left\r\x1b[K");
}

Test(console_io, a_terminal_that_tells_no_width_gets_a_status_of_eighty_columns) {
    with_terminal();
    char text[101];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (unsigned short columns = 0; columns <= 1; columns++) {
        cr_assert_eq(ioctl(fix.out[0], TIOCSWINSZ, &(struct winsize){.ws_row = 5, .ws_col = columns}), 0);
        cr_assert(console_status(fix.console, text));
        cr_assert_eq(strlen(seen(fix.out[0])), 79, "of %u", columns);
        cr_assert(console_status(fix.console, NULL));
        (void)seen(fix.out[0]);
    }
}

Test(console_io, there_is_no_status_line_without_a_capable_terminal) {
    with_pipes();
    cr_assert_not(console_status(fix.console, "waiting"));
    cr_assert_not(console_is_terminal(fix.console, CONSOLE_ERR));
    EXPECT(fix.err[0], "");
}

Test(console_io, a_bar_is_rewritten_in_place_until_another_line_comes) {
    with_terminal();
    console_source_init(&a, fix.console, CONSOLE_OUT, "a:");
    console_source_init(&b, fix.console, CONSOLE_ERR, "b:");
    piece(&a, LINEBUF_NEW, "1%", false);
    piece(&a, LINEBUF_REPLACES, "2%", false);
    EXPECT(fix.out[0], "a:1%\r\x1b[Ka:2%");
    line(&b, "text");
    piece(&a, LINEBUF_REPLACES, "3%", true);
    EXPECT(fix.out[0], "\nb:text\na:3%\n");
}

Test(console_io, flush_of_a_stopped_pipe_ends_at_its_deadline_and_tells_what_is_left) {
    with_pipes();
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = '\0';
    int taken = fcntl(fix.out[0], F_GETPIPE_SZ), n = 3 * taken / 1000;
    for (int i = 0; i < n; i++)
        line(&a, text);
    uint64_t begin_ns = clock_now_ns();
    uint64_t left = console_flush(fix.console, begin_ns + 50 * NS_PER_MS);
    uint64_t took_ns = clock_now_ns() - begin_ns;
    cr_assert(took_ns >= 50 * NS_PER_MS, "%lu", took_ns);
    cr_assert_eq(left, (uint64_t)(n * 1001 - taken), "%lu", left);
}

Test(console_io, a_reader_that_has_stopped_is_given_up_and_a_slow_one_is_not) {
    with_pipes();
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (int i = 0; i < 3 * fcntl(fix.out[0], F_GETPIPE_SZ) / 1000; i++)
        line(&a, text);
    turn(); /* the pipe is full */
    uint64_t left = console_pending(fix.console);
    cr_assert_not(console_drop_if_stuck(fix.console, CONSOLE_OUT, left - 1), "it took the first part");
    cr_assert_not(console_drop_if_stuck(fix.console, CONSOLE_OUT, left), "not more than that");
    cr_assert_not(console_drop_if_stuck(fix.console, CONSOLE_ERR, 0), "nothing is left there");
    cr_assert(console_drop_if_stuck(fix.console, CONSOLE_OUT, left - 1));
    line(&a, "later");
    cr_assert_eq(console_pending(fix.console), 0);
}

/* EIO; of a terminal it means that its reader has left. */
Test(console_io, a_broken_disk_is_said_once) {
    fix.out[0] = -1;
    fix.out[1] = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
    cr_assert(fix.out[1] >= 0 && pipe2(fix.err, O_CLOEXEC) == 0);
    start();
    console_source_init(&a, fix.console, CONSOLE_OUT, "");
    line(&a, "lost");
    turn();
    line(&a, "lost too");
    EXPECT(fix.err[0], "muster: can't write to standard output: Input/output error; the job continues; its output is "
                       "dropped\n");
    cr_assert(console_failed(fix.console));
}

Test(console_io, closed_descriptors_and_sockets_do) {
    fix.out[0] = fix.out[1] = -1;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fix.err), 0);
    start();
    console_print(fix.console, CONSOLE_OUT, "nowhere\n", 8);
    console_print(fix.console, CONSOLE_ERR, "somewhere\n", 10);
    EXPECT(fix.err[0], "somewhere\n");
    cr_assert_eq(fcntl(fix.err[1], F_GETFL) & O_NONBLOCK, 0);
}
