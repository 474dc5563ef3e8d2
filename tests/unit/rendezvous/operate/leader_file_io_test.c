#include "rendezvous/operate/leader_file_io.h"

#include <glob.h>

#include "io/clock.h"
#include "io/file.h"
#include "rig/unit.h"

#define HOLD_NS (6 * NS_PER_S)

static char folder[64];

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

static void finish(void) {
    each_leader_file(remove_file);
    cr_assert_eq(rmdir(folder), 0, "nothing else is left behind");
}

static struct leader_file *open_leader_file(const char *run_id, const char *endpoint, struct leader_file_prev *prev) {
    struct leader_file *m;
    struct err err = {0};
    int r = leader_file_open(run_id, endpoint, HOLD_NS, prev, &m, &err);
    cr_assert_eq(r, 0, "%s", err.text);
    return m;
}

Test(leader_file_io, a_first_start_waits_for_nothing, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    cr_assert(prev.epoch == 0);
    cr_assert_eq(leader_file_epoch(m), 1);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
    leader_file_free(m);
}

Test(leader_file_io, who_did_not_close_is_waited_for_from_its_last_touch, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    uint64_t before = clock_now_ns();
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    uint64_t after = clock_now_ns();
    leader_file_free(m); /* as a SIGKILL does */
    m = open_leader_file("run", "node1:29400", &prev);
    cr_assert(prev.epoch > 0);
    cr_assert_eq(prev.epoch, 1);
    cr_assert_eq(prev.outcome, OUTCOME_NONE);
    cr_assert(prev.touched_ns >= before && prev.touched_ns <= after);
    cr_assert_eq(prev.hold_ns, HOLD_NS);
    cr_assert_eq(leader_file_epoch(m), 2);
    cr_assert_eq(leader_file_free_from(&prev, after), prev.touched_ns + HOLD_NS);
    cr_assert_eq(leader_file_free_from(&prev, prev.touched_ns + HOLD_NS), 0, "over");
    leader_file_free(m);
}

/* The second is killed before the first's workers must be dead: the third waits for both. */
Test(leader_file_io, what_was_to_be_waited_for_is_handed_on, .init = begin, .fini = finish) {
    struct leader_file_prev first, second;
    struct err err = {0};
    leader_file_free(open_leader_file("run", "node1:29400", &first));
    struct leader_file *m;
    cr_assert_eq(leader_file_open("run", "node1:29400", NS_PER_MS, &first, &m, &err), 0);
    leader_file_free(m);
    uint64_t first_until = first.touched_ns + first.hold_ns;
    cr_assert_eq(leader_file_open("run", "node1:29400", NS_PER_MS, &second, &m, &err), 0);
    leader_file_free(m);
    cr_assert_geq(leader_file_free_from(&second, second.touched_ns), first_until - NS_PER_MS,
                  "but for what a millisecond's rounding takes");
    cr_assert_eq(leader_file_epoch(m = open_leader_file("run", "node1:29400", &second)), 4);
    leader_file_free(m);
}

Test(leader_file_io, a_closed_leader_file_hinders_nobody, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    cr_assert_eq(leader_file_touch(m, OUTCOME_FAILED), 0);
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0, "a late touch takes nothing back");
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0, "nor does another word");
    leader_file_free(m);
    m = open_leader_file("run", "node1:29400", &prev);
    cr_assert(prev.epoch > 0);
    cr_assert_eq(prev.outcome, OUTCOME_FAILED);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
    cr_assert_eq(leader_file_epoch(m), 2, "the epoch grows all the same");
    leader_file_free(m);
}

Test(leader_file_io, other_endpoints_and_other_runs_have_marks_of_their_own, .init = begin, .fini = finish) {
    static const char *const runs[] = {"run", "run", "run2", "../../etc/run", "a\nrun_id=run", ""};
    static const char *const at[] = {"node1:29400", "node1:29401", "node1:29400",
                                     "node1:29400", "node1:29400", "node1:29400"};
    struct leader_file_prev prev;
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        struct leader_file *m = open_leader_file(runs[i], at[i], &prev);
        cr_assert(prev.epoch == 0, "%s", runs[i]);
        leader_file_free(m);
    }
    for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
        struct leader_file *m = open_leader_file(runs[i], at[i], &prev);
        cr_assert(prev.epoch > 0, "%s", runs[i]);
        cr_assert_eq(leader_file_epoch(m), 2);
        leader_file_free(m);
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

Test(leader_file_io, a_reboot_ended_all_workers, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    leader_file_free(open_leader_file("run", "node1:29400", &prev));
    each_leader_file(set_boot);
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    cr_assert(prev.epoch > 0);
    cr_assert_eq(prev.touched_ns, 0);
    cr_assert_eq(leader_file_free_from(&prev, clock_now_ns()), 0);
    cr_assert_eq(leader_file_epoch(m), 2);
    leader_file_free(m);
}

static void touch_in_the_future(const char *path) {
    struct timespec at = {.tv_sec = (time_t)(clock_now_ns() / NS_PER_S) + 86400};
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){at, at}, 0), 0);
}

Test(leader_file_io, nobody_waits_longer_than_lease_and_margin, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    leader_file_free(open_leader_file("run", "node1:29400", &prev));
    each_leader_file(touch_in_the_future);
    leader_file_free(open_leader_file("run", "node1:29400", &prev));
    uint64_t now = clock_now_ns();
    cr_assert_eq(leader_file_free_from(&prev, now), now + HOLD_NS);
}

static void touch(const char *path, uint64_t s) {
    struct timespec at = {.tv_sec = (time_t)s};
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){at, at}, 0), 0);
}

/* By the clock of another boot. */
static void touch_long_ago(const char *path) { touch(path, clock_now_ns() / NS_PER_S + 1000000); }

/* There is no time before this boot: "ago" is what now may be. */
static void touch_at_boot(const char *path) { touch(path, 1); }

static uint32_t n_marks;
static void count(const char *path) { n_marks++; }

static uint32_t marks_left(void) {
    leader_file_sweep(clock_now_ns() + 10 * NS_PER_S);
    n_marks = 0;
    each_leader_file(count);
    return n_marks;
}

Test(leader_file_io, marks_of_long_ago_are_cleared_away, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    leader_file_free(open_leader_file("old", "node1:29400", &prev));
    leader_file_free(open_leader_file("run", "node1:29400", &prev));
    cr_assert_eq(marks_left(), 2, "both may have workers");
    each_leader_file(touch_long_ago);
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    cr_assert(prev.epoch > 0);
    cr_assert_eq(marks_left(), 1);
    leader_file_free(m);
    leader_file_free(open_leader_file("old", "node1:29400", &prev));
    cr_assert(prev.epoch == 0);
}

Test(leader_file_io, closed_marks_go_after_an_hour, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    struct leader_file *m = open_leader_file("closed", "node1:29400", &prev);
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0);
    leader_file_free(m);
    cr_assert_eq(marks_left(), 1, "others may still be told");
    bool hour_since_boot = clock_now_ns() > 3700 * NS_PER_S;
    each_leader_file(touch_at_boot);
    cr_assert_eq(marks_left(), hour_since_boot ? 0 : 1);
    leader_file_free(open_leader_file("open", "node1:29400", &prev));
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

Test(leader_file_io, a_file_that_is_no_leader_file_is_replaced, .init = begin, .fini = finish) {
    static void (*const harm[])(const char *) = {garble, cut};
    struct leader_file_prev prev;
    for (size_t i = 0; i < ARRAY_SIZE(harm); i++) {
        leader_file_free(open_leader_file("run", "node1:29400", &prev));
        each_leader_file(harm[i]);
        struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
        cr_assert(prev.epoch == 0);
        leader_file_free(m);
        m = open_leader_file("run", "node1:29400", &prev);
        cr_assert(prev.epoch > 0);
        leader_file_free(m);
    }
}

Test(leader_file_io, a_leader_file_that_somebody_removed_comes_back, .init = begin, .fini = finish) {
    struct leader_file_prev prev;
    struct leader_file *m = open_leader_file("run", "node1:29400", &prev);
    each_leader_file(remove_file);
    cr_assert_eq(leader_file_touch(m, OUTCOME_NONE), 0);
    each_leader_file(remove_file);
    cr_assert_eq(leader_file_touch(m, OUTCOME_SUCCESS), 0);
    leader_file_free(m);
    m = open_leader_file("run", "node1:29400", &prev);
    cr_assert_eq(prev.outcome, OUTCOME_SUCCESS);
    leader_file_free(m);
}

Test(leader_file_io, where_no_leader_file_can_be_made_that_is_said) {
    struct leader_file_prev prev;
    struct leader_file *m = NULL;
    struct err err = {0};
    cr_assert_eq(setenv("MUSTER_RUN_DIR", "/proc/nowhere/at/all", 1), 0);
    cr_assert_lt(leader_file_open("run", "node1:29400", HOLD_NS, &prev, &m, &err), 0);
    assert_has(err.text, "/proc/nowhere");
    cr_assert_null(m);
}
