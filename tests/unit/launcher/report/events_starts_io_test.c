#include "launcher/report/events.h"

#include "io/clock.h"
#include "io/file.h"
#include "io/loop.h"
#include "rig/unit.h"

static char dir[] = "/tmp/muster-starts-XXXXXX", path[64];
static struct loop *loop;
static struct events *events;

static void begin(bool warm) {
    struct err err = {0};
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/log", dir);
    cr_assert_eq(loop_new(&loop), 0);
    struct events_config config = {
        .path = path, .mode = 0600, .run_id = "job7", .host = "node1", .loop = warm ? loop : NULL};
    cr_assert_eq(events_new(&config, &events, &err), 0, "%s", err.text);
}

static void finish(void) {
    events_free(events);
    loop_free(loop);
    (void)unlink(path);
    cr_expect_eq(rmdir(dir), 0);
}

static void note(enum timeline_kind kind, uint32_t counter) {
    events_write(events, &(struct timeline_entry){.kind = kind,
                                                  .at_ns = clock_now_ns(),
                                                  .generation = {1, counter},
                                                  .has_warm = kind == TIMELINE_WARM,
                                                  .n_warm = kind == TIMELINE_WARM ? 5 : 0});
}

/* The names of the events that are in the file, and what is said of the warm workers. */
static const char *lines(void) {
    static char said[256];
    char *text = NULL;
    size_t len;
    cr_assert_eq(file_read_text(path, 1 << 20, &text, &len), 0);
    said[0] = '\0';
    for (const char *at = text; (at = strstr(at, "\"event\":\"")) != NULL;) {
        at += strlen("\"event\":\"");
        size_t n = strlen(said), line = strcspn(at, "\n");
        const char *warm = strstr(at, "\"warm\":5");
        (void)snprintf(said + n, sizeof said - n, "%.*s%s ", (int)strcspn(at, "\""), at,
                       warm != NULL && warm < at + line ? "+warm" : "");
    }
    free(text);
    return said;
}

Test(events_starts_io, the_line_of_a_start_waits_for_what_the_nodes_tell) {
    begin(true);
    note(TIMELINE_FORMED, 1);
    note(TIMELINE_STARTED, 1);
    cr_expect_str_eq(lines(), "formed ");
    note(TIMELINE_WARM, 1);
    cr_expect_str_eq(lines(), "formed started+warm ");
    note(TIMELINE_WARM, 1);
    note(TIMELINE_STARTED, 2);
    note(TIMELINE_WARM, 1); /* of another group */
    cr_expect_str_eq(lines(), "formed started+warm started ");
    finish();
}

Test(events_starts_io, it_is_before_what_happened_later_and_is_never_lost) {
    begin(true);
    note(TIMELINE_STARTED, 1);
    note(TIMELINE_WORKER_FAILED, 1);
    cr_expect_str_eq(lines(), "started worker_failed ");
    note(TIMELINE_STARTED, 2);
    events_free(events);
    events = NULL;
    cr_expect_str_eq(lines(), "started worker_failed started ");
    finish();
}

static void on_late(void *arg) { loop_quit(arg); }

Test(events_starts_io, it_waits_for_two_seconds_at_most) {
    struct loop_timer *timer;
    begin(true);
    uint64_t from_ns = clock_now_ns();
    note(TIMELINE_STARTED, 1);
    timer = loop_timer_new(loop, on_late, loop);
    loop_timer_set(timer, from_ns + EVENTS_START_WAIT_NS + 100 * NS_PER_MS);
    cr_assert_eq(loop_run(loop), 0);
    cr_expect_str_eq(lines(), "started ");
    loop_timer_free(timer);
    finish();
}

Test(events_starts_io, without_warm_workers_nothing_waits) {
    begin(false);
    note(TIMELINE_STARTED, 1);
    cr_expect_str_eq(lines(), "started ");
    note(TIMELINE_WARM, 1);
    cr_expect_str_eq(lines(), "started ");
    finish();
}
