#include "rendezvous/operate/leader_file_io.h"

#include <glob.h>

#include "io/clock.h"
#include "io/file.h"
#include "rig/unit.h"

#define HOLD_NS (6 * NS_PER_S)

static char folder[64];
static struct leader_file_prev prev; /* found by the last one that was opened */
static struct leader_file *m;        /* which is this */

static void begin(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/muster-mark-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(setenv("MUSTER_RUN_DIR", folder, 1), 0);
}

static void each_leader_file(void (*fn)(const char *path)) {
    glob_t g;
    if (glob(rig_text("%s/mark-*", folder), 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            fn(g.gl_pathv[i]);
    globfree(&g);
}

static void remove_file(const char *path) { (void)unlink(path); }

/* As a SIGKILL does. */
static void let_go(void) { leader_file_free(TAKE_PTR(m)); }

static void finish(void) {
    let_go();
    each_leader_file(remove_file);
    cr_assert_eq(rmdir(folder), 0, "nothing else is left behind");
}
TestSuite(leader_file_io, .init = begin, .fini = finish);

static void open_as(const char *run_id, const char *endpoint, uint64_t hold_ns) {
    struct err err = {0};
    let_go();
    cr_assert_eq(leader_file_open(run_id, endpoint, hold_ns, &prev, &m, &err), 0, "%s", err.text);
}
static void open_of(const char *run_id) { open_as(run_id, "node1:29400", HOLD_NS); }
static void open_again(void) { open_of("run"); }

Test(leader_file_io, a_first_start_waits_for_nothing) {
    open_again();
    cr_assert_eq(prev.epoch, 0);
    cr_assert_eq(leader_file_epoch(m), 1);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
}

Test(leader_file_io, who_did_not_close_is_waited_for_from_its_last_touch) {
    open_again();
    uint64_t before = clock_now_ns();
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    uint64_t after = clock_now_ns();
    open_again();
    cr_assert_eq(prev.epoch, 1);
    cr_assert_eq(prev.outcome, OUTCOME_NONE);
    cr_assert(prev.touched_ns >= before && prev.touched_ns <= after);
    cr_assert_eq(prev.hold_ns, HOLD_NS);
    cr_assert_eq(leader_file_epoch(m), 2);
    cr_assert_eq(leader_file_free_from(&prev, after), prev.touched_ns + HOLD_NS);
    cr_assert_eq(leader_file_free_from(&prev, prev.touched_ns + HOLD_NS), 0, "over");
}

/* The second is killed before the first's workers must be dead: the third waits for both. */
Test(leader_file_io, what_was_to_be_waited_for_is_handed_on) {
    open_again();
    open_as("run", "node1:29400", NS_PER_MS);
    uint64_t first_until = prev.touched_ns + prev.hold_ns;
    open_as("run", "node1:29400", NS_PER_MS);
    cr_assert_geq(leader_file_free_from(&prev, prev.touched_ns), first_until - NS_PER_MS,
                  "but for what a millisecond's rounding takes");
    open_again();
    cr_assert_eq(leader_file_epoch(m), 4);
}

Test(leader_file_io, a_closed_leader_file_hinders_nobody) {
    open_again();
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    cr_assert_eq(leader_file_touch(m, OUTCOME_FAILED), 0);
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0, "a late touch takes nothing back");
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0, "nor does another word");
    open_again();
    cr_assert_eq(prev.outcome, OUTCOME_FAILED);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
    cr_assert_eq(leader_file_epoch(m), 2, "the epoch grows all the same");
}

Test(leader_file_io, other_endpoints_and_other_runs_have_marks_of_their_own) {
    static const char *const runs[] = {"run", "run", "run2", "../../etc/run", "a\nrun_id=run", ""};
    for (uint32_t epoch = 1; epoch <= 2; epoch++)
        for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
            open_as(runs[i], i == 1 ? "node1:29401" : "node1:29400", HOLD_NS);
            cr_assert_eq(prev.epoch, epoch - 1, "%s", runs[i]);
            cr_assert_eq(leader_file_epoch(m), epoch);
        }
}

static void set_boot(const char *path) {
    _cleanup_(freep) char *text = NULL;
    size_t len;
    cr_assert_eq(file_read_text(path, 4096, &text, &len), 0);
    char *boot = strstr(text, "boot=");
    cr_assert_not_null(boot);
    boot[5] = boot[5] == 'f' ? 'e' : 'f';
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(text, 1, len, f), len);
    cr_assert_eq(fclose(f), 0);
}

Test(leader_file_io, a_reboot_ended_all_workers) {
    open_again();
    each_leader_file(set_boot);
    open_again();
    cr_assert(prev.epoch > 0);
    cr_assert_eq(prev.touched_ns, 0);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
    cr_assert_eq(leader_file_epoch(m), 2);
}

static void touch(const char *path, uint64_t s) {
    struct timespec at = {.tv_sec = (time_t)s};
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){at, at}, 0), 0);
}

static void touch_in_the_future(const char *path) { touch(path, clock_now_ns() / NS_PER_S + 86400); }

Test(leader_file_io, nobody_waits_longer_than_lease_and_margin) {
    open_again();
    each_leader_file(touch_in_the_future);
    open_again();
    uint64_t now = clock_now_ns();
    cr_assert_eq(leader_file_free_from(&prev, now), now + HOLD_NS);
}

/* By the clock of another boot. */
static void touch_long_ago(const char *path) { touch(path, clock_now_ns() / NS_PER_S + 1000000); }

/* There is no time before this boot: "ago" is what now may be. */
static void touch_at_boot(const char *path) { touch(path, 1); }

/* As a new file is, before its leader has set its time. */
static void touch_by_the_time_of_day(const char *path) { touch(path, clock_wall_ns() / NS_PER_S); }

static uint32_t n_marks;
static void count(const char *path) { n_marks++; }

static uint32_t marks_left(void) {
    leader_file_sweep(clock_now_ns() + 10 * NS_PER_S);
    n_marks = 0;
    each_leader_file(count);
    return n_marks;
}

Test(leader_file_io, marks_of_long_ago_are_cleared_away) {
    open_of("old");
    open_again();
    cr_assert_eq(marks_left(), 2, "both may have workers");
    each_leader_file(touch_by_the_time_of_day);
    cr_assert_eq(marks_left(), 2);
    each_leader_file(touch_long_ago);
    open_again();
    cr_assert(prev.epoch > 0);
    cr_assert_eq(marks_left(), 1);
    open_of("old");
    cr_assert(prev.epoch == 0);
}

Test(leader_file_io, closed_marks_go_after_an_hour) {
    open_of("closed");
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0);
    cr_assert_eq(marks_left(), 1, "others may still be told");
    bool hour_since_boot = clock_now_ns() > 3700 * NS_PER_S;
    each_leader_file(touch_at_boot);
    cr_assert_eq(marks_left(), hour_since_boot ? 0 : 1);
    open_of("open");
    each_leader_file(touch_at_boot);
    cr_assert_eq(marks_left(), hour_since_boot ? 1 : 2, "nobody has closed it");
}

static void garble(const char *path) {
    FILE *f = fopen(path, "r+");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite("mustard", 1, 7, f), 7);
    cr_assert_eq(fclose(f), 0);
}

static void cut(const char *path) { cr_assert_eq(truncate(path, 30), 0); }

Test(leader_file_io, a_file_that_is_no_leader_file_is_replaced) {
    static void (*const harm[])(const char *) = {garble, cut};
    for (size_t i = 0; i < ARRAY_SIZE(harm); i++) {
        open_again();
        each_leader_file(harm[i]);
        open_again();
        cr_assert(prev.epoch == 0);
        open_again();
        cr_assert(prev.epoch > 0);
    }
}

Test(leader_file_io, a_leader_file_that_somebody_removed_comes_back) {
    open_again();
    each_leader_file(remove_file);
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    each_leader_file(remove_file);
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0);
    open_again();
    cr_assert_eq(prev.outcome, OUTCOME_SUCCESS);
}

Test(leader_file_io, where_no_leader_file_can_be_made_that_is_said) {
    struct err err = {0};
    cr_assert_eq(setenv("MUSTER_RUN_DIR", "/proc/nowhere/at/all", 1), 0);
    cr_assert_lt(leader_file_open("run", "node1:29400", HOLD_NS, &prev, &m, &err), 0);
    assert_has(err.text, "/proc/nowhere");
    cr_assert_null(m);
}
