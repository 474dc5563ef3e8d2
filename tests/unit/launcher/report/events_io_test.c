#include "launcher/report/events.h"

#include <sys/resource.h>
#include <time.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/output/console_io.h"
#include "rig/unit.h"

struct fixture {
    char dir[64], path[96];
    struct strbuf said; /* logged lines */
};

static void on_line(void *arg, const char *line, size_t len) {
    struct fixture *f = arg;
    strbuf_add_bytes(&f->said, line, len);
}

static void fixture_init(struct fixture *f) {
    *f = (struct fixture){.dir = "/tmp/muster-events-XXXXXX"};
    cr_assert_not_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/log", f->dir);
    log_set_sink(on_line, f);
}

static void fixture_fini(struct fixture *f) {
    log_set_sink(NULL, NULL);
    (void)unlink(f->path);
    cr_expect_eq(rmdir(f->dir), 0);
    strbuf_fini(&f->said);
}

static struct events *open_events(const char *path, struct console *console) {
    struct events *e = NULL;
    struct err err = {0};
    struct events_config config = {.path = path, .mode = 0600, .console = console, .run_id = "job7", .host = "node1"};
    cr_assert_eq(events_new(&config, &e, &err), 0, "%s", err.text);
    return e;
}

static void add_entry(struct events *e, enum timeline_kind kind) {
    events_write(e, &(struct timeline_entry){.kind = kind, .at_ns = clock_now_ns(), .generation = {1, 1}});
}

static unsigned count(const char *text, const char *what) {
    unsigned n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        n++;
    return n;
}

static char *read_all(const char *path) {
    char *text = NULL;
    size_t len;
    cr_assert_eq(file_read_text(path, 1 << 20, &text, &len), 0);
    return text;
}

static struct fixture fix;

static void begin(void) { fixture_init(&fix); }
static void finish(void) { fixture_fini(&fix); }
TestSuite(events_io, .init = begin, .fini = finish);

Test(events_io, appends_a_line_for_each_note) {
    cr_assert_eq(file_write_atomic(fix.path, "before\n", 7), 0);
    struct events *a = open_events(fix.path, NULL), *b = open_events(fix.path, NULL);
    add_entry(a, TIMELINE_LEADS);
    add_entry(b, TIMELINE_FORMED);
    add_entry(a, TIMELINE_CLOSED);
    events_free(a);
    events_free(b);
    _cleanup_(freep) char *text = read_all(fix.path);
    cr_expect_eq(strncmp(text, "before\n{", 8), 0);
    cr_expect_eq(count(text, "\n"), 4);
    const char *formed = strstr(text, "\"formed\""), *closed = strstr(text, "\"closed\"");
    cr_assert(formed != NULL && closed != NULL && formed < closed);
    cr_expect_eq(fix.said.len, 0, "%s", strbuf_text(&fix.said));
}

/* The monotonic clock counts from boot, which was longer ago than this. */
#define AGO_S 5

Test(events_io, a_note_of_the_past_has_the_time_of_then) {
    struct events *e = open_events(fix.path, NULL);
    uint64_t at_ns = clock_now_ns() - AGO_S * NS_PER_S;
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    events_write(e, &(struct timeline_entry){.kind = TIMELINE_NODE_LOST, .at_ns = at_ns});
    events_free(e);
    _cleanup_(freep) char *text = read_all(fix.path);
    struct tm tm = {0};
    cr_assert_not_null(strptime(text, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm), "%s", text);
    time_t then = timegm(&tm);
    cr_expect(then >= now - AGO_S - 1 && then <= now - AGO_S + 2, "%s", text);
}

Test(events_io, without_a_file_nothing_is_written) {
    struct events *e = (void *)&e;
    cr_assert_eq(events_new(&(struct events_config){.path = NULL, .mode = 0600}, &e, NULL), 0);
    cr_assert_null(e);
    add_entry(e, TIMELINE_LEADS);
    cr_expect_eq(events_lost(e), 0);
    events_free(e);
}

Test(events_io, a_new_file_is_private) {
    struct stat st;
    (void)umask(0);
    events_free(open_events(fix.path, NULL));
    cr_assert_eq(stat(fix.path, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0600);
}

/* What protects from that in the kernel can be switched off. */
Test(events_io, a_link_of_another_user_is_not_followed) {
    struct events *e = NULL;
    struct err err = {0};
    _cleanup_(freep) char *shared = xasprintf("%s/shared", fix.dir), *link = xasprintf("%s/link", shared);
    cr_assert_eq(mkdir(shared, 0700), 0);
    cr_assert_eq(chmod(shared, 01777), 0);
    cr_assert_eq(symlink(fix.path, link), 0);
    bool strange = lchown(link, 4321, (gid_t)-1) == 0;
    int r = strange ? events_new(&(struct events_config){.path = link, .mode = 0600}, &e, &err) : 0;
    events_free(e);
    bool made = access(fix.path, F_OK) == 0;
    (void)unlink(link);
    (void)rmdir(shared);
    if (!strange)
        cr_skip_test("only root can give files to another user");
    cr_expect_eq(r, -EPERM);
    cr_expect_not(made);
    expect_has(err.text, "/link belongs to another user (uid 4321)");
}

Test(events_io, says_which_file_it_cannot_open) {
    struct events *e = NULL;
    struct err err = {0};
    cr_assert_eq(events_new(&(struct events_config){.path = "/no/such/folder/log", .mode = 0600}, &e, &err), -ENOENT);
    expect_has(err.text, "--event-log=/no/such/folder/log: ");
    cr_expect_null(e);
}

Test(events_io, a_full_disk_is_said_once_and_the_lost_lines_are_counted) {
    struct events *e = open_events("/dev/full", NULL);
    for (int i = 0; i < 5; i++)
        add_entry(e, TIMELINE_FORMED);
    cr_expect_eq(events_lost(e), 5);
    cr_expect_eq(count(strbuf_text(&fix.said), "No space left on device"), 1);
    events_free(e);
    cr_expect_eq(count(strbuf_text(&fix.said), "\n"), 2);
    expect_has(strbuf_text(&fix.said), "5 lines were lost");
}

/* A limit on the file's size cuts a line, like a disk that fills up. */
Test(events_io, two_thousand_incidents_on_a_full_disk_are_counted) {
    struct events *e = open_events("/dev/full", NULL);
    for (int i = 0; i < 2000; i++)
        events_write(e, &(struct timeline_entry){.kind = TIMELINE_INCIDENT,
                                                 .at_ns = clock_now_ns(),
                                                 .incident = {.n = 1, .class = INCIDENT_WORKER, .symptom_ns = 1}});
    cr_assert_eq(events_lost(e), 2000);
    events_free(e);
    cr_assert_eq(count(strbuf_text(&fix.said), "No space left on device"), 1);
    assert_has(strbuf_text(&fix.said), "2000 lines were lost");
}

static void fill(void *arg, struct json_writer *w) { json_write_string(w, "torch", arg); }

Test(events_io, the_first_line_has_the_command_and_the_versions) {
    static char torch[] = "2.13.0";
    struct events *e = NULL;
    struct events_config config = {
        .path = fix.path, .mode = 0600, .run_id = "job7", .host = "node1", .fill = fill, .arg = torch};
    cr_assert_eq(events_new(&config, &e, NULL), 0);
    add_entry(e, TIMELINE_LEADS);
    add_entry(e, TIMELINE_STARTED);
    events_free(e);
    _cleanup_(freep) char *text = read_all(fix.path);
    cr_assert_eq(count(text, "\n"), 3);
    cr_assert_eq(count(text, "\"event\":\"begins\""), 1);
    const char *first = strstr(text, "\"run_id\":\"job7\",\"host\":\"node1\",\"muster\":\"");
    cr_assert(first != NULL && first < strchr(text, '\n'), "%s", text);
    assert_has(text, "\",\"torch\":\"2.13.0\"}\n");
}

Test(events_io, after_a_torn_line_the_next_begins_on_its_own) {
    struct rlimit former, limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &former), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct events *e = open_events(fix.path, NULL);
    limit = (struct rlimit){.rlim_cur = 30, .rlim_max = former.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    add_entry(e, TIMELINE_FORMED);
    add_entry(e, TIMELINE_FORMED);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &former), 0);
    add_entry(e, TIMELINE_CLOSED);
    add_entry(e, TIMELINE_CLOSED);
    cr_expect_eq(events_lost(e), 2);
    events_free(e);
    _cleanup_(freep) char *text = read_all(fix.path);
    cr_expect_eq(text[30], '\n', "%s", text);
    cr_expect_eq(text[31], '{');
    cr_expect_eq(count(text, "\n"), 3);
    cr_expect_eq(count(text, "\"lines_lost_before\":2}"), 1);
}

Test(events_io, a_pipe_that_nobody_reads_does_not_hold_it_up) {
    cr_assert_eq(mkfifo(fix.path, 0600), 0);
    struct events *e = NULL;
    struct err err = {0};
    cr_assert_eq(events_new(&(struct events_config){.path = fix.path, .mode = 0600}, &e, &err), -ENXIO);
    expect_has(err.text, "start its reader first");
    int reader = open(fix.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    e = open_events(fix.path, NULL);
    for (int i = 0; i < 2000; i++) /* more than a pipe holds */
        add_entry(e, TIMELINE_FORMED);
    cr_expect_gt(events_lost(e), 0);
    cr_expect_lt(events_lost(e), 2000);
    cr_expect_eq(count(strbuf_text(&fix.said), "its reader is too slow"), 1);
    (void)signal(SIGPIPE, SIG_IGN);
    close(reader);
    uint64_t lost = events_lost(e);
    add_entry(e, TIMELINE_CLOSED);
    cr_expect_eq(events_lost(e), lost + 1);
    events_free(e);
}

Test(events_io, writes_to_standard_error_by_the_console) {
    int pipe_fds[2];
    struct loop *loop;
    struct console *console;
    cr_assert_eq(pipe(pipe_fds), 0);
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(console_new(loop, STDOUT_FILENO, pipe_fds[1], &console), 0);
    struct events *e = open_events("-", console);
    add_entry(e, TIMELINE_LEADS);
    (void)console_flush(console, clock_now_ns() + 5 * NS_PER_S);
    char text[1024] = "";
    cr_assert_gt(read(pipe_fds[0], text, sizeof text - 1), 0);
    expect_has(text, "\"event\":\"leads\"");
    events_free(e);
    console_free(console);
    loop_free(loop);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
