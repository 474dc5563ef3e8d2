#include "watchdog/look/signs.h"

#include "rig/unit.h"

Test(signs, reads_the_time_of_a_schedstat) {
    uint64_t ns = 0, turns = 0;
    cr_assert(signs_ran("123456789012 55 7\n", &ns, &turns));
    cr_expect(ns == 123456789012 && turns == 7);
    cr_expect(signs_ran("18446744073709551615 0 0\n", &ns, &turns) && ns == UINT64_MAX && turns == 0);
    static const char *const none[] = {"12", "12 ", "12 55\n", "", "x 0 0\n"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        cr_expect_not(signs_ran(none[i], &ns, &turns), "\"%s\"", none[i]);
}

static void add(struct signs_track *t, char state, uint64_t ran_ns, uint64_t second) {
    signs_track_add(t, &(struct worker_tick){.state = state, .ran_ns = ran_ns}, second * NS_PER_S);
}

Test(signs, a_main_thread_moves_as_long_as_it_uses_a_processor) {
    struct signs_track t = signs_track_of(NS_PER_S);
    add(&t, 'R', 5 * NS_PER_S, 2);
    cr_expect(t.flags == SIGN_MOVED && !t.moved_once); /* what was before is not known */
    add(&t, 'S', 5 * NS_PER_S + NS_PER_MS, 3);
    cr_expect(t.flags == SIGN_MOVED && t.moved_once && t.moved_ns == 3 * NS_PER_S);
    add(&t, 'S', 5 * NS_PER_S + 2 * NS_PER_MS - 1, 4);
    cr_expect(t.flags == 0 && t.moved_ns == 3 * NS_PER_S);
    add(&t, 'D', 5 * NS_PER_S + 2 * NS_PER_MS - 1, 9);
    cr_expect(t.flags == 0 && t.moved_ns == 3 * NS_PER_S && t.moved_once);
}

Test(signs, counts_for_how_long_a_main_thread_runs_all_the_time) {
    struct signs_track t = signs_track_of(0);
    for (uint64_t i = 1; i <= 6; i++)
        add(&t, 'R', i * 600 * NS_PER_MS, i);
    cr_expect_eq(t.hot, 5);
    add(&t, 'S', 6 * 600 * NS_PER_MS + 400 * NS_PER_MS, 7);
    cr_expect_eq(t.hot, 0);
}

/* Seconds of `ms` of CPU in `turns` turns; how many of them in a row were little. */
static uint32_t little_of(uint64_t ms, uint64_t turns) {
    struct signs_track t = signs_track_of(0);
    for (uint64_t i = 1; i <= 5; i++)
        signs_track_add(&t, &(struct worker_tick){'S', i * ms * NS_PER_MS, i * turns, 0}, i * NS_PER_S);
    return t.little;
}

Test(signs, short_turns_on_a_cpu_are_little) {
    cr_expect_eq(little_of(9, 0), 5); /* turns are not known */
    cr_expect_eq(little_of(10, 5), 0);
    cr_expect_eq(little_of(20, 2), 0);  /* it computes */
    cr_expect_eq(little_of(19, 20), 5); /* it polls */
    cr_expect_eq(little_of(20, 20), 0);
}

Test(signs, who_waits_for_data_and_wakes_moves) {
    struct signs_track t = signs_track_of(0);
    signs_track_add(&t, &(struct worker_tick){'S', 0, 1, 0}, NS_PER_S);
    signs_track_add(&t, &(struct worker_tick){'S', 0, 2, 0}, 2 * NS_PER_S);
    cr_expect_eq(t.flags, 0);
    t.receives = true;
    signs_track_add(&t, &(struct worker_tick){'S', 0, 3, 0}, 3 * NS_PER_S);
    cr_expect_eq(t.flags, SIGN_MOVED);
    signs_track_add(&t, &(struct worker_tick){'S', 0, 3, 0}, 4 * NS_PER_S);
    cr_expect_eq(t.flags, 0);
}

Test(signs, a_stopped_and_a_traced_process_are_named) {
    struct signs_track t = signs_track_of(0);
    add(&t, 'R', 0, 1);
    add(&t, 'T', 0, 2);
    cr_expect_eq(t.flags, SIGN_STOPPED);
    add(&t, 't', 0, 3);
    cr_expect_eq(t.flags, SIGN_TRACED);
    add(&t, 'S', 0, 4);
    cr_expect_eq(t.flags, 0);
}

Test(signs, what_can_not_be_read_counts_as_moving) {
    struct signs_track t = signs_track_of(0);
    add(&t, 0, 0, 1);
    cr_expect(t.flags == SIGN_MOVED && !t.moved_once && t.moved_ns == NS_PER_S);
    add(&t, 'S', 7, 2);
    add(&t, 'S', 7, 3);
    cr_expect_eq(t.flags, 0);
    add(&t, 0, 0, 4);
    cr_expect(t.flags == SIGN_MOVED && !t.moved_once && t.moved_ns == 4 * NS_PER_S);
}

Test(signs, a_main_thread_that_writes_moves) {
    static const char text[] = "rchar: 7\nwchar: 120\nsyscr: 2\nsyscw: 3\nread_bytes: 0\n";
    cr_expect_eq(signs_wrote(text), 124);
    cr_expect_eq(signs_wrote("wchar: 120\n"), 0);
    struct signs_track t = signs_track_of(0);
    for (uint64_t i = 1; i <= 4; i++)
        signs_track_add(&t, &(struct worker_tick){.state = 'S', .wrote = 9}, i * NS_PER_S);
    cr_expect(t.flags == 0 && !t.moved_once && t.little == 4);
    signs_track_add(&t, &(struct worker_tick){.state = 'S', .wrote = 10}, 5 * NS_PER_S);
    cr_expect(t.flags == SIGN_MOVED && t.moved_once && t.moved_ns == 5 * NS_PER_S && t.little == 0);
    /* what it wrote while it was not looked at is not known to be new */
    signs_track_add(&t, &(struct worker_tick){.state = 'S'}, 6 * NS_PER_S);
    signs_track_add(&t, &(struct worker_tick){.state = 'S', .wrote = 11}, 7 * NS_PER_S);
    cr_expect_eq(t.flags, 0);
}
