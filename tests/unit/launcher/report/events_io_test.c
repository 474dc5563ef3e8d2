#include "launcher/report/events.h"

#include <sys/resource.h>
#include <time.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "rig/unit.h"

static char dir[32], path[64];
static struct strbuf said; /* logged lines */
static struct loop *loop;

static void on_line(void *arg, const char *line, size_t len) { strbuf_add_bytes(&said, line, len); }

static void begin(void) {
    (void)strcpy(dir, "/tmp/muster-events-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/log", dir);
    cr_assert_eq(loop_new(&loop), 0);
    log_set_sink(on_line, NULL);
}

static void finish(void) {
    log_set_sink(NULL, NULL);
    loop_free(loop);
    (void)unlink(path);
    cr_expect_eq(rmdir(dir), 0);
    strbuf_fini(&said);
}
TestSuite(events_io, .init = begin, .fini = finish);

static struct events_config config_of(const char *to) {
    return (struct events_config){.path = to, .mode = 0600, .run_id = "job7", .host = "node1"};
}

static struct events *open_events(const struct events_config *config) {
    struct events *e = NULL;
    struct err err = {0};
    cr_assert_eq(events_new(config, &e, &err), 0, "%s", err.text);
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

static char *read_all(void) {
    char *text = NULL;
    size_t len;
    cr_assert_eq(file_read_text(path, 1 << 20, &text, &len), 0);
    return text;
}

Test(events_io, appends_a_line_for_each_note) {
    cr_assert_eq(file_write_atomic(path, "before\n", 7), 0);
    struct events *a = open_events(AT(config_of(path))), *b = open_events(AT(config_of(path)));
    add_entry(a, TIMELINE_LEADS);
    add_entry(b, TIMELINE_FORMED);
    add_entry(a, TIMELINE_CLOSED);
    events_free(a);
    events_free(b);
    _cleanup_(freep) char *text = read_all();
    cr_expect_eq(strncmp(text, "before\n{", 8), 0);
    cr_expect_eq(count(text, "\n"), 4);
    const char *formed = strstr(text, "\"formed\""), *closed = strstr(text, "\"closed\"");
    cr_assert(formed != NULL && closed != NULL && formed < closed);
    cr_expect_eq(said.len, 0, "%s", strbuf_text(&said));
}

/* The monotonic clock counts from boot, which was longer ago than this. */
#define AGO_S 5

Test(events_io, a_note_of_the_past_has_the_time_of_then) {
    struct events *e = open_events(AT(config_of(path)));
    uint64_t at_ns = clock_now_ns() - AGO_S * NS_PER_S;
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    events_write(e, &(struct timeline_entry){.kind = TIMELINE_NODE_LOST, .at_ns = at_ns});
    events_free(e);
    _cleanup_(freep) char *text = read_all();
    struct tm tm = {0};
    cr_assert_not_null(strptime(text, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm), "%s", text);
    time_t then = timegm(&tm);
    cr_expect(then >= now - AGO_S - 1 && then <= now - AGO_S + 2, "%s", text);
}

Test(events_io, a_full_disk_is_said_once_and_the_lost_lines_are_counted) {
    struct events *e = open_events(AT(config_of("/dev/full")));
    for (int i = 0; i < 5; i++)
        add_entry(e, TIMELINE_FORMED);
    cr_expect_eq(count(strbuf_text(&said), "No space left on device"), 1);
    events_free(e);
    cr_expect_eq(count(strbuf_text(&said), "\n"), 2);
    expect_has(strbuf_text(&said), "5 lines were lost");
}

static void fill(void *arg, struct json_writer *w) { json_write_string(w, "torch", arg); }

Test(events_io, the_first_line_has_the_command_and_the_versions) {
    static char torch[] = "2.13.0";
    struct events *e = open_events(WITH(config_of(path), .fill = fill, .arg = torch));
    add_entry(e, TIMELINE_LEADS);
    add_entry(e, TIMELINE_STARTED);
    events_free(e);
    _cleanup_(freep) char *text = read_all();
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
    struct events *e = open_events(AT(config_of(path)));
    limit = (struct rlimit){.rlim_cur = 30, .rlim_max = former.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    add_entry(e, TIMELINE_FORMED);
    add_entry(e, TIMELINE_FORMED);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &former), 0);
    add_entry(e, TIMELINE_CLOSED);
    add_entry(e, TIMELINE_CLOSED);
    events_free(e);
    expect_has(strbuf_text(&said), "2 lines were lost");
    _cleanup_(freep) char *text = read_all();
    cr_expect_eq(text[30], '\n', "%s", text);
    cr_expect_eq(text[31], '{');
    cr_expect_eq(count(text, "\n"), 3);
    cr_expect_eq(count(text, "\"lines_lost_before\":2}"), 1);
}

Test(events_io, a_pipe_that_nobody_reads_does_not_hold_it_up) {
    cr_assert_eq(mkfifo(path, 0600), 0);
    struct events *e = NULL;
    struct err err = {0};
    cr_assert_eq(events_new(AT(config_of(path)), &e, &err), -ENXIO);
    expect_has(err.text, "start its reader first");
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    e = open_events(AT(config_of(path)));
    for (int i = 0; i < 2000; i++) /* more than a pipe holds */
        add_entry(e, TIMELINE_FORMED);
    cr_expect_eq(count(strbuf_text(&said), "its reader is too slow"), 1);
    (void)signal(SIGPIPE, SIG_IGN);
    close(reader);
    add_entry(e, TIMELINE_CLOSED);
    events_free(e);
    const char *lost = strstr(strbuf_text(&said), "/log: ");
    lost = lost != NULL ? strstr(lost + 1, "/log: ") : NULL; /* of the last line */
    cr_assert_not_null(lost, "%s", strbuf_text(&said));
    unsigned long n = strtoul(lost + strlen("/log: "), NULL, 10);
    cr_expect(n > 1 && n < 2000, "%lu", n);
}

/* ---- with --warm the line of a start waits ---- */

static void note(struct events *events, enum timeline_kind kind, uint32_t counter) {
    events_write(events, &(struct timeline_entry){.kind = kind,
                                                  .at_ns = clock_now_ns(),
                                                  .generation = {1, counter},
                                                  .has_warm = kind == TIMELINE_WARM,
                                                  .n_warm = kind == TIMELINE_WARM ? 5 : 0});
}

/* The names of the events that are in the file, and what is said of the warm workers. */
static const char *lines(void) {
    static char names[256];
    _cleanup_(freep) char *text = read_all();
    names[0] = '\0';
    for (const char *at = text; (at = strstr(at, "\"event\":\"")) != NULL;) {
        at += strlen("\"event\":\"");
        size_t n = strlen(names), line = strcspn(at, "\n");
        const char *warm = strstr(at, "\"warm\":5");
        (void)snprintf(names + n, sizeof names - n, "%.*s%s ", (int)strcspn(at, "\""), at,
                       warm != NULL && warm < at + line ? "+warm" : "");
    }
    return names;
}

Test(events_io, the_line_of_a_start_waits_for_what_the_nodes_tell) {
    struct events *events = open_events(WITH(config_of(path), .loop = loop));
    note(events, TIMELINE_FORMED, 1);
    note(events, TIMELINE_STARTED, 1);
    cr_expect_str_eq(lines(), "formed ");
    note(events, TIMELINE_WARM, 1);
    cr_expect_str_eq(lines(), "formed started+warm ");
    note(events, TIMELINE_WARM, 1);
    note(events, TIMELINE_STARTED, 2);
    note(events, TIMELINE_WARM, 1); /* of another group */
    cr_expect_str_eq(lines(), "formed started+warm started ");
    events_free(events);
}

Test(events_io, it_is_before_what_happened_later_and_is_never_lost) {
    struct events *events = open_events(WITH(config_of(path), .loop = loop));
    note(events, TIMELINE_STARTED, 1);
    note(events, TIMELINE_WORKER_FAILED, 1);
    cr_expect_str_eq(lines(), "started worker_failed ");
    note(events, TIMELINE_STARTED, 2);
    events_free(events);
    cr_expect_str_eq(lines(), "started worker_failed started ");
}

static void on_late(void *arg) { loop_quit(arg); }

Test(events_io, it_waits_for_two_seconds_at_most) {
    struct loop_timer *timer;
    struct events *events = open_events(WITH(config_of(path), .loop = loop));
    uint64_t from_ns = clock_now_ns();
    note(events, TIMELINE_STARTED, 1);
    timer = loop_timer_new(loop, on_late, loop);
    loop_timer_set(timer, from_ns + EVENTS_START_WAIT_NS + 100 * NS_PER_MS);
    cr_assert_eq(loop_run(loop), 0);
    cr_expect_str_eq(lines(), "started ");
    loop_timer_free(timer);
    events_free(events);
}

Test(events_io, without_warm_workers_nothing_waits) {
    struct events *events = open_events(AT(config_of(path)));
    note(events, TIMELINE_STARTED, 1);
    cr_expect_str_eq(lines(), "started ");
    note(events, TIMELINE_WARM, 1);
    cr_expect_str_eq(lines(), "started ");
    events_free(events);
}
