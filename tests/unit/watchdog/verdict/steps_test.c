#include "watchdog/verdict/steps.h"

#include <criterion/criterion.h>

#define S(x) ((uint64_t)((x)*1e9))

Test(steps, the_deadline_is_three_times_the_longest_but_at_least_10_seconds) {
    struct steps s = {0};
    cr_expect_eq(steps_deadline(&s), 0);
    steps_told(&s, S(100), 1);
    cr_expect_eq(steps_deadline(&s), 0, "of one step nothing is known");
    steps_told(&s, S(101), 2);
    cr_expect_eq(steps_deadline(&s), S(10));
    steps_told(&s, S(121), 3);
    cr_expect_eq(steps_deadline(&s), S(60));
    cr_expect_eq(s.step, 3);
    cr_expect_eq(s.told_ns, S(121));
}

Test(steps, the_longest_is_of_the_last_100) {
    struct steps s = {0};
    uint64_t now = S(100), step = 1;
    steps_told(&s, now, step);
    steps_told(&s, now += S(50), ++step);
    for (int i = 0; i < 99; i++)
        steps_told(&s, now += S(4), ++step);
    cr_expect_eq(steps_deadline(&s), S(150));
    steps_told(&s, now += S(4), ++step);
    cr_expect_eq(steps_deadline(&s), S(12));
}

Test(steps, a_step_that_is_told_again_is_none_and_one_that_goes_back_is_one) {
    struct steps s = {0};
    steps_told(&s, S(100), 7);
    steps_told(&s, S(130), 7);
    cr_expect_eq(steps_deadline(&s), 0);
    cr_expect_eq(s.told_ns, S(100));
    steps_told(&s, S(140), 3);
    cr_expect_eq(steps_deadline(&s), S(120));
}

Test(steps, times_that_make_no_sense_do_no_harm) {
    struct steps s = {0};
    steps_told(&s, S(100), 1);
    steps_told(&s, S(50), 2);
    cr_expect_eq(steps_deadline(&s), S(10));
    steps_told(&s, UINT64_MAX, 3);
    cr_expect_eq(steps_deadline(&s), UINT64_MAX);
}
