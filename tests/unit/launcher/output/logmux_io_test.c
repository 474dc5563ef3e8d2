#include "launcher/output/logmux_io.h"

#include "base/text/log.h"
#include "base/text/tail.h"
#include "io/file.h"
#include "launcher/job/job.h"
#include "launcher/worker/error_file.h"
#include "rig/loop_rig.h"

#define WORKERS 4

/* A logmux and a log writer whose console is two pipes. The tests act as the workers: they hold the children's ends. */
static struct fixture {
    struct loop *loop;
    struct console *console;
    struct writer *writer;
    struct job_spec spec;
    pid_t pid; /* the pid of the writer that was started last */
    unsigned n_writers;
    struct logmux *mux;
    int out[2], err[2];
    int child[WORKERS][2]; /* standard output and error of each worker */
    unsigned drained[WORKERS];
    bool shows[WORKERS]; /* the console, what the worker writes */
    char dir[32];
    char no_file[256];            /* the text that on_no_file() got */
    struct strbuf tails[WORKERS]; /* the texts that on_last_output() got */
    bool has_last_output[WORKERS], bad_file[WORKERS];
    char error[WORKERS][256];
    struct strbuf shown[2];
} fix;

static void on_no_file(void *arg, const char *why) { (void)snprintf(fix.no_file, sizeof fix.no_file, "%s", why); }

static void on_drained(void *arg, uint32_t index) { fix.drained[index]++; }

static void on_last_output(void *arg, uint32_t index, const struct writer_last_output *last) {
    cr_assert_not(fix.has_last_output[index]);
    cr_assert_eq(fix.drained[index], 0);
    fix.has_last_output[index] = true;
    strbuf_add(&fix.tails[index], last->tail);
    fix.bad_file[index] = last->bad_file;
    (void)snprintf(fix.error[index], sizeof fix.error[index], "%s", last->error);
}

static void on_pid(void *arg, pid_t pid) {
    fix.pid = pid;
    fix.n_writers++;
}

static void setup(void) {
    fix = (struct fixture){.dir = "/tmp/logmux-test-XXXXXX"};
    (void)signal(SIGPIPE, SIG_IGN);
    cr_assert_not_null(mkdtemp(fix.dir));
    cr_assert_eq(pipe2(fix.out, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(fix.err, O_CLOEXEC), 0);
    cr_assert_eq(fcntl(fix.out[0], F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(fcntl(fix.err[0], F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(loop_new(&fix.loop), 0);
    fix.console = console_new(fix.loop, fix.out[1], fix.err[1]);
    log_set_sink(console_log_sink, fix.console);
    fix.spec.nproc = WORKERS;
    fix.spec.log_mode = 0600;
    fix.spec.role = (char *)(uintptr_t) "default";
    fix.spec.line_prefix = (char *)(uintptr_t) "[${role_name}${local_rank}]:";
    fix.spec.console_ranks = fix.shows;
    fix.writer = writer_new(fix.loop, fix.console, &fix.spec, on_pid, NULL);
    struct logmux_ops ops = {on_drained, on_no_file, on_last_output};
    for (int i = 0; i < WORKERS; i++) {
        fix.child[i][0] = fix.child[i][1] = -1;
        fix.shows[i] = true;
    }
    fix.mux = logmux_new(fix.loop, fix.writer, &fix.spec, "host", 10, &ops, NULL);
}

static void child_close(uint32_t i) {
    for (int k = 0; k < 2; k++) {
        if (fix.child[i][k] >= 0)
            (void)close(fix.child[i][k]);
        fix.child[i][k] = -1;
    }
}

static void collect(void) {
    char text[65536];
    ssize_t n;
    while ((n = read(fix.out[0], text, sizeof text)) > 0)
        strbuf_add_bytes(&fix.shown[0], text, (size_t)n);
    while ((n = read(fix.err[0], text, sizeof text)) > 0)
        strbuf_add_bytes(&fix.shown[1], text, (size_t)n);
}

static void fini(void) {
    for (uint32_t i = 0; i < WORKERS; i++)
        child_close(i);
    logmux_free(fix.mux);
    collect();
    size_t seen[2] = {fix.shown[0].len, fix.shown[1].len};
    (void)writer_finish(fix.writer, &(struct writer_patience){.ms = 10000, .fd = -1});
    collect();
    for (int k = 0; k < 2; k++) /* the tests have checked all output */
        cr_expect_eq(fix.shown[k].len, seen[k], "more came: %s", strbuf_text(&fix.shown[k]) + seen[k]);
    writer_free(fix.writer);
    for (int i = 0; i < WORKERS; i++)
        strbuf_fini(&fix.tails[i]);
    log_set_sink(NULL, NULL);
    console_free(fix.console);
    loop_free(fix.loop);
    for (int i = 0; i < 2; i++) {
        (void)close(fix.out[i]);
        (void)close(fix.err[i]);
        strbuf_fini(&fix.shown[i]);
    }
    static const char *const names[] = {"stdout.log", "stderr.log", ".stdout.times", ".stderr.times"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlink(rig_text("%s/%s", fix.dir, names[i]));
    cr_assert_eq(rmdir(fix.dir), 0);
}

static void open_worker(uint32_t i, const char *dir, unsigned redirects, unsigned tee, bool on_console) {
    int file_fds[2] = {-1, -1};
    fix.spec.log_dir = dir == NULL ? (char *)(uintptr_t) "/dev/null" : NULL;
    fix.spec.redirects.by_rank[i] = (uint8_t)redirects;
    fix.spec.tee.by_rank[i] = (uint8_t)tee;
    fix.shows[i] = on_console;
    /* Does what the writer does when it prepares a start. */
    for (int k = 0; k < 2; k++) {
        unsigned bit = k == 0 ? STD_OUT : STD_ERR;
        if (dir == NULL || ((redirects | tee) & bit) == 0 || ((tee & bit) != 0 && on_console))
            continue;
        const char *path = rig_text("%s/%s", dir, k == 0 ? "stdout.log" : "stderr.log");
        file_fds[k] = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
    int out, err;
    struct err e = {0};
    cr_assert_eq(logmux_open(fix.mux, i, dir, file_fds, &out, &err, &e), 0, "%s", e.text);
    fix.child[i][0] = fcntl(out, F_DUPFD_CLOEXEC, 3);
    fix.child[i][1] = fcntl(err, F_DUPFD_CLOEXEC, 3);
    cr_assert(fix.child[i][0] >= 0 && fix.child[i][1] >= 0);
    logmux_started(fix.mux, i);
}

static void say(uint32_t i, int k, const char *text) {
    cr_assert_eq(write(fix.child[i][k], text, strlen(text)), (ssize_t)strlen(text));
}

static void turn(void) {
    cr_assert_eq(loop_turn(fix.loop), 0);
    collect();
    (void)poll(NULL, 0, 1);
}

/* Turns the loop until the condition holds. */
#define turn_until(condition)                                                                               \
    for (uint64_t end_ns_ = clock_now_ns() + RIG_LOOP_NS; !(condition);) {                                  \
        cr_assert_lt(clock_now_ns(), end_ns_, "%s: \"%s\", \"%s\"", #condition, strbuf_text(&fix.shown[0]), \
                     strbuf_text(&fix.shown[1]));                                                           \
        turn();                                                                                             \
    }

static void wait_shown(int k, const char *text) { turn_until(strstr(strbuf_text(&fix.shown[k]), text) != NULL); }

/* Waits for the text. At the end it is checked that no more output comes. */
static void expect_shown(int k, const char *want) { turn_until(strcmp(strbuf_text(&fix.shown[k]), want) == 0); }

static void wait_drained(uint32_t i) {
    turn_until(fix.drained[i] > 0);
    cr_assert_eq(fix.drained[i], 1);
}

static void end(uint32_t i) {
    child_close(i);
    logmux_exited(fix.mux, i, "");
    wait_drained(i);
    cr_assert(fix.has_last_output[i]);
}

static const char *file_text(const char *name) {
    static char text[65536];
    int fd = open(rig_text("%s/%s", fix.dir, name), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    cr_assert(n >= 0);
    text[n] = '\0';
    return text;
}

TestSuite(logmux_io, .init = setup, .fini = fini);

/* Where what a worker writes goes, with and without -r, -t, --local-ranks-filter and a folder. */
static const struct {
    const char *name;
    unsigned redirects, tee;
    bool hidden, no_folder;
    const char *writes[2];           /* to standard output and error */
    const char *shown[2], *files[2]; /* NULL: there is no such file */
    const char *tail;
} routes[] = {
    {"without options lines go to the console as they are", STD_NONE, STD_NONE, .writes = {"out\nno newline", "err\n"},
     .shown = {"out\nno newline", "err\n"}, .tail = "err\n"},
    {"a redirected worker writes to its files", STD_BOTH, STD_NONE, .writes = {"out\n", "one\ntwo\n"},
     .shown = {"", ""}, .files = {"out\n", "one\ntwo\n"}, .tail = "one\ntwo\n"},
    {"tee: raw bytes to the file and prefixed lines to the console", STD_NONE, STD_BOTH,
     .writes = {"a\r\nb\xff\n\npart", "err\n"},
     .shown = {"[default0]:a\r\n[default0]:b\xff\n[default0]:\n[default0]:part\n", "[default0]:err\n"},
     .files = {"a\r\nb\xff\n\npart", "err\n"}, .tail = "err\n"},
    {"each stream goes its own way", STD_ERR, STD_OUT, .writes = {"out\n", "err\n"}, .shown = {"[default0]:out\n", ""},
     .files = {"out\n", "err\n"}, .tail = "err\n"},
    {"a filtered rank is silent, but its last words are kept", STD_NONE, STD_OUT, .hidden = true,
     .writes = {"out\n", "Traceback\n"}, .shown = {"", ""}, .files = {"out\n", NULL}, .tail = "Traceback\n"},
    {"a filtered rank without files", STD_NONE, STD_NONE, .hidden = true, .writes = {"nothing\n", ""},
     .shown = {"", ""}, .tail = ""},
    {"without a folder no file is made", STD_BOTH, STD_OUT, .no_folder = true, .writes = {"out\n", "err\n"},
     .shown = {"[default0]:out\n", "err\n"}, .tail = "err\n"},
};

Test(logmux_io, each_stream_goes_where_the_options_send_it) {
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        open_worker(0, routes[i].no_folder ? NULL : fix.dir, routes[i].redirects, routes[i].tee, !routes[i].hidden);
        for (int k = 0; k < 2; k++)
            say(0, k, routes[i].writes[k]);
        end(0);
        cr_expect_str_eq(strbuf_text(&fix.tails[0]), routes[i].tail, "%s: %s", routes[i].name,
                         strbuf_text(&fix.tails[0]));
        for (int k = 0; k < 2; k++) {
            const char *text = file_text(k == 0 ? "stdout.log" : "stderr.log");
            expect_shown(k, routes[i].shown[k]);
            cr_expect((text == NULL) == (routes[i].files[k] == NULL), "%s: file %d", routes[i].name, k);
            if (text != NULL)
                cr_expect_str_eq(text, routes[i].files[k], "%s: %s", routes[i].name, text);
        }
        fini();
        setup();
    }
}

Test(logmux_io, a_file_that_is_there_is_not_lost) {
    open_worker(0, fix.dir, STD_OUT, STD_NONE, true);
    say(0, 0, "first\n");
    open_worker(1, fix.dir, STD_NONE, STD_OUT, true);
    say(1, 0, "second\n");
    end(0);
    end(1);
    cr_assert_str_eq(file_text("stdout.log"), "first\nsecond\n");
}

Test(logmux_io, all_that_a_dying_worker_wrote_is_taken) {
    open_worker(0, fix.dir, STD_NONE, STD_NONE, true);
    cr_assert_eq(fcntl(fix.child[0][0], F_SETFL, O_NONBLOCK), 0);
    char block[1000];
    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    size_t total = 0;
    while (write(fix.child[0][0], block, sizeof block) == (ssize_t)sizeof block)
        total += sizeof block;
    cr_assert(total >= 900000, "the pipe is a large one: %zu", total);
    end(0);
    turn_until(fix.shown[0].len >= total);
}

Test(logmux_io, a_pipe_that_is_held_open_ends_with_the_grace) {
    open_worker(0, fix.dir, STD_NONE, STD_NONE, true);
    int held = fcntl(fix.child[0][0], F_DUPFD_CLOEXEC, 3), held_err = fcntl(fix.child[0][1], F_DUPFD_CLOEXEC, 3);
    say(0, 0, "before\n");
    wait_shown(0, "before");
    child_close(0);
    logmux_exited(fix.mux, 0, NULL);
    uint64_t begin_ns = clock_now_ns();
    turn_until(clock_now_ns() - begin_ns >= LOGMUX_GRACE_NS + 10 * NS_PER_MS); /* it has time to end */
    cr_assert_not(logmux_all_drained(fix.mux));
    begin_ns = clock_now_ns();
    logmux_no_more(fix.mux);
    cr_assert_eq(write(held, "after\n", 6), 6);
    cr_assert_not(logmux_all_drained(fix.mux));
    wait_drained(0);
    cr_assert(logmux_all_drained(fix.mux));
    uint64_t took_ns = clock_now_ns() - begin_ns;
    cr_assert(took_ns >= LOGMUX_GRACE_NS, "%lu", took_ns);
    cr_assert_not(fix.has_last_output[0], "they were not requested");
    expect_shown(0, "before\nafter\n");
    cr_assert(write(held, "x", 1) < 0 && errno == EPIPE);
    cr_assert(write(held_err, "x", 1) < 0 && errno == EPIPE);
    (void)close(held);
    (void)close(held_err);
}

Test(logmux_io, a_log_that_is_a_link_is_not_written) {
    const char *path = rig_text("%s/stdout.log", fix.dir);
    const char *aim = rig_text("%s/aim", fix.dir);
    cr_assert_eq(symlink(aim, path), 0);
    open_worker(0, fix.dir, STD_NONE, STD_OUT, true);
    say(0, 0, "one\n");
    end(0);
    cr_expect_str_eq(fix.no_file, rig_text("can't open the log file %s: it is a link", path));
    expect_shown(0, "[default0]:one\n");
    cr_expect_eq(access(aim, F_OK), -1);
}

Test(logmux_io, without_its_file_a_stream_goes_to_the_console) {
    open_worker(0, "/nonexistent", STD_OUT, STD_ERR, true);
    say(0, 0, "out\n");
    say(0, 1, "err\n");
    end(0);
    cr_assert_str_eq(fix.no_file, "can't open the log file /nonexistent/stderr.log: No such file or directory");
    expect_shown(0, "[default0]:out\n");
    expect_shown(1, "[default0]:err\n");
    open_worker(1, "/nonexistent", STD_BOTH, STD_NONE, false);
    say(1, 0, "out\n");
    say(1, 1, "last words\n");
    end(1);
    expect_shown(0, "[default0]:out\n");
    cr_assert_str_eq(strbuf_text(&fix.tails[1]), "last words\n");
}

/* Ends worker i, whose error file has this text; NULL: it is a FIFO. */
static void end_with_error_file(uint32_t i, const char *text) {
    const char *path = rig_text("%s/error.json", fix.dir);
    if (text == NULL)
        cr_assert_eq(mkfifo(path, 0600), 0);
    else
        cr_assert_eq(file_write_atomic(path, text, strlen(text)), 0);
    open_worker(i, NULL, 0, 0, true);
    child_close(i);
    logmux_exited(fix.mux, i, path);
    wait_drained(i);
    cr_assert(fix.has_last_output[i]);
    (void)unlink(path);
}

Test(logmux_io, the_error_file_of_a_worker_is_read_or_found_to_be_none) {
    end_with_error_file(0, "{\"message\": \"ValueError: bad\"}");
    cr_assert_not(fix.bad_file[0]);
    cr_assert_str_eq(fix.error[0], "ValueError: bad");
    end_with_error_file(1, "{\"message\": \"Val");
    cr_assert(fix.bad_file[1]);
    cr_assert_str_not_empty(fix.error[1]);
    _cleanup_(strbuf_fini) struct strbuf big = {0};
    strbuf_printf(&big, "{\"message\": \"%0*d\"}", (int)ERROR_FILE_MAX_BYTES, 1);
    end_with_error_file(2, strbuf_text(&big));
    cr_assert(fix.bad_file[2]);
    cr_assert_str_eq(fix.error[2], "can't read the error file: it has more than 1 MiB");
    end_with_error_file(3, NULL);
    cr_assert(fix.bad_file[3]);
    cr_assert_str_eq(fix.error[3], "can't read the error file: it is not a regular file");
}

Test(logmux_io, the_tail_has_whole_lines_up_to_its_limits) {
    open_worker(0, fix.dir, STD_NONE, STD_NONE, true);
    open_worker(1, fix.dir, STD_ERR, STD_NONE, true);
    char text[64];
    for (int n = 0; n < 1000; n++) {
        (void)snprintf(text, sizeof text, "line %d\r 1%%\r done %d\r\n", n, n);
        say(0, 1, text);
        say(1, 1, text);
        if (n % 10 == 0)
            turn();
    }
    say(0, 1, "last");
    say(1, 1, "last");
    end(0);
    end(1);
    _cleanup_(strbuf_fini) struct strbuf want = {0};
    for (int n = 1000 - TAIL_LINES + 1; n < 1000; n++)
        strbuf_printf(&want, " done %d\n", n);
    strbuf_add(&want, "last\n");
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_str_eq(strbuf_text(&fix.tails[i]), strbuf_text(&want), "%u: %s", i, strbuf_text(&fix.tails[i]));
    wait_shown(1, "last");
}

Test(logmux_io, the_tail_has_the_beginning_of_long_lines) {
    open_worker(0, fix.dir, STD_NONE, STD_NONE, true);
    open_worker(1, fix.dir, STD_ERR, STD_NONE, true);
    char text[20 * TAIL_BYTES];
    memset(text, 'x', sizeof text);
    memcpy(text, "E: ", 3);
    memcpy(text + sizeof text - 2, "\n", 2);
    for (uint32_t i = 0; i < 2; i++) {
        say(i, 1, text);
        end(i);
        cr_assert_eq(fix.tails[i].len, TAIL_LINE_BYTES + 1, "%zu", fix.tails[i].len);
        cr_assert_eq(strncmp(strbuf_text(&fix.tails[i]), text, TAIL_LINE_BYTES), 0);
    }
    turn_until(fix.shown[1].len >= sizeof text - 1);
}

/* Full reads end within a line. The rest waits in the worker's pipe as long as the reader makes the console wait, and
 * other workers' lines must not come between. */
Test(logmux_io, a_slow_reader_of_a_pipeline_gets_whole_lines) {
    enum { LINE = 1000, LINES = 2000 };
    static char lines[LINES * LINE], back[65536];
    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % LINE == LINE - 1 ? '\n' : 'x';
    size_t written[2] = {0}, got = 0;
    for (uint32_t i = 0; i < 2; i++) {
        open_worker(i, fix.dir, STD_NONE, STD_NONE, true);
        cr_assert_eq(fcntl(fix.child[i][0], F_SETFL, O_NONBLOCK), 0);
    }
    uint64_t deadline_ns = clock_now_ns() + RIG_LOOP_NS, next_ns = clock_now_ns();
    while (got < 2 * sizeof lines) {
        cr_assert(clock_now_ns() < deadline_ns, "%zu bytes", got);
        for (uint32_t i = 0; i < 2; i++) {
            ssize_t n = write(fix.child[i][0], lines + written[i], sizeof lines - written[i]);
            written[i] += (size_t)MAX2(n, 0);
        }
        cr_assert_eq(loop_turn(fix.loop), 0);
        (void)poll(NULL, 0, 1);
        if (clock_now_ns() < next_ns)
            continue;
        ssize_t n = 1;
        for (size_t taken = 0; n > 0 && taken < ((size_t)1 << 20); taken += (size_t)MAX2(n, 0)) {
            n = read(fix.out[0], back, sizeof back);
            for (ssize_t k = 0; k < n; k++, got++)
                cr_assert_eq(back[k], lines[got % LINE], "at byte %zu", got);
        }
        next_ns = clock_now_ns() + 2 * LINEBUF_QUIET_NS;
    }
    for (uint32_t i = 0; i < 2; i++)
        end(i);
}

Test(logmux_io, workers_that_write_nothing_are_drained) {
    open_worker(0, fix.dir, STD_NONE, STD_NONE, true);
    open_worker(1, fix.dir, STD_BOTH, STD_NONE, true); /* it has no pipes */
    for (uint32_t i = 0; i < 2; i++) {
        child_close(i);
        cr_assert_not(logmux_all_drained(fix.mux));
        logmux_exited(fix.mux, i, NULL);
        cr_assert_eq(fix.drained[i], 0, "only from the loop");
        wait_drained(i);
        cr_assert_not(fix.has_last_output[i]);
    }
    cr_assert(logmux_all_drained(fix.mux));
    cr_assert_eq(fix.n_writers, 1);
}

#define DIED "muster: warning: the log writer died: a new one is started, and some output may be lost\n"

static void kill_writer(void) {
    cr_assert_eq(kill(fix.pid, SIGKILL), 0);
    pid_t pid = fix.pid;
    rig_loop_until(fix.loop, kill(pid, 0) != 0); /* until its end has been read */
}

Test(logmux_io, own_lines_that_wait_for_the_next_writer_are_shown_at_the_end) {
    fini();
    fix = (struct fixture){.dir = "/tmp/logmux-test-XXXXXX"};
    int fd = mkstemp(fix.dir); /* a plain file: its disk can hang */
    cr_assert(fd >= 0);
    cr_assert_eq(loop_new(&fix.loop), 0);
    fix.console = console_new(fix.loop, fd, fd);
    log_set_sink(console_log_sink, fix.console);
    fix.writer = writer_new(fix.loop, fix.console, &fix.spec, on_pid, NULL);
    log_notice("the first word");
    kill_writer();
    rig_loop_until(fix.loop, fix.n_writers >= 2);
    kill_writer(); /* the next one is started a second later */
    log_notice("the last word");
    (void)writer_finish(fix.writer, &(struct writer_patience){.ms = 10000, .fd = -1});
    writer_free(fix.writer);
    (void)console_flush(fix.console, clock_now_ns() + RIG_LOOP_NS);
    log_set_sink(NULL, NULL);
    console_free(fix.console);
    loop_free(fix.loop);
    char text[1024] = "";
    cr_assert(pread(fd, text, sizeof text - 1, 0) > 0, "nothing was shown");
    assert_has(text, "muster: the first word\n");
    assert_has(text, DIED);
    assert_has(text, "muster: the last word\n");
    (void)close(fd);
    (void)unlink(fix.dir);
    setup();
}
