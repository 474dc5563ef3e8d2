#include "launcher/worker/notify.h"

#include "rig/unit.h"

Test(notify, hears_a_safe_point_among_other_lines) {
    static const struct {
        const char *text;
        bool safe_point;
    } cases[] = {
        {"MUSTER_SAFE_POINT=1", true},
        {"MUSTER_SAFE_POINT=1\n", true},
        {"READY=1\nMUSTER_SAFE_POINT=1\nSTATUS=step 5", true},
        {"\n\nMUSTER_SAFE_POINT=1", true},
        {"", false},
        {"\n", false},
        {"MUSTER_SAFE_POINT=0", false},
        {"MUSTER_SAFE_POINT=", false},
        {"MUSTER_SAFE_POINT", false},
        {"MUSTER_SAFE_POINT=11", false},
        {" MUSTER_SAFE_POINT=1", false},
        {"MUSTER_SAFE_POINT=1\r\n", false},
        {"muster_safe_point=1", false},
        {"STATUS=MUSTER_SAFE_POINT=1", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(notify_parse(cases[i].text, strlen(cases[i].text)).safe_point, cases[i].safe_point, "\"%s\"",
                     cases[i].text);
}

Test(notify, reads_no_byte_beyond_the_end) {
    static const char text[] = "MUSTER_SAFE_POINT=1";
    for (size_t n = 0; n < strlen(text); n++)
        cr_expect_not(notify_parse(text, n).safe_point);
}

Test(notify, ignores_what_is_too_long_or_no_text) {
    char big[NOTIFY_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    memcpy(big, "MUSTER_SAFE_POINT=1\n", 20);
    cr_expect(notify_parse(big, NOTIFY_BYTES_MAX).safe_point);
    cr_expect_not(notify_parse(big, NOTIFY_BYTES_MAX + 1).safe_point);
    big[100] = '\0';
    cr_expect_not(notify_parse(big, NOTIFY_BYTES_MAX).safe_point);
}

static struct notify_message parsed(const char *text) { return notify_parse(text, strlen(text)); }

Test(notify, hears_what_systemd_would) {
    struct notify_message m =
        parsed("READY=1\nWATCHDOG=1\nWATCHDOG_USEC=600000000\nMUSTER_STEP=1234\nSTATUS=epoch 2, loss 0.5");
    cr_expect(m.any && m.alive && m.has_limit && m.has_step);
    cr_expect_eq(m.limit_ns, 600 * NS_PER_S);
    cr_expect_eq(m.step, 1234);
    cr_expect_not(m.safe_point);
    m = parsed("MUSTER_STEP=1\nMUSTER_STEP=2\nWATCHDOG_USEC=0");
    cr_expect(m.step == 2 && m.has_limit && m.limit_ns == 0 && !m.alive);
}

Test(notify, ignores_numbers_that_are_none) {
    static const char *const texts[] = {
        "MUSTER_STEP=",   "MUSTER_STEP=-1", "MUSTER_STEP=1x", "MUSTER_STEP=18446744073709551616",
        "WATCHDOG=2",     "WATCHDOG",       "READY=0",        "WATCHDOG_USEC=18446744073709551615",
        "WATCHDOG_USEC=", "MUSTER_STEP= 1", "STATUS=fine",    "READY=1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_expect_not(parsed(texts[i]).any, "\"%s\"", texts[i]);
}

static struct announced steps(const uint64_t *seconds, size_t n) {
    struct announced a = {0};
    uint64_t now = 100 * NS_PER_S;
    for (size_t i = 0; i < n; i++) {
        now += seconds[i] * NS_PER_S;
        announced_take(&a, &(struct notify_message){.any = true, .has_step = true, .step = i + 1}, now);
    }
    return a;
}

Test(notify, the_longest_of_the_last_steps_tells_how_long_one_may_take) {
    uint64_t limit = 0, since = 0;
    struct announced a = {0};
    cr_expect_not(announced_limit(&a, 1, &limit, &since), "nothing was announced");
    a = steps((uint64_t[]){0, 20, 1}, 3);
    cr_expect_not(announced_limit(&a, 200 * NS_PER_S, &limit, &since), "two steps say nothing");
    a = steps((uint64_t[]){0, 20, 1, 1}, 4);
    cr_assert(announced_limit(&a, 123 * NS_PER_S, &limit, &since));
    cr_expect_eq(limit, 60 * NS_PER_S);
    cr_expect_eq(since, 1 * NS_PER_S);
    a = steps((uint64_t[]){0, 1, 1, 1}, 4);
    cr_assert(announced_limit(&a, 104 * NS_PER_S, &limit, &since));
    cr_expect_eq(limit, ANNOUNCED_STEP_MIN_NS);
    uint64_t many[102] = {0, 1000};
    for (size_t i = 2; i < ARRAY_SIZE(many); i++)
        many[i] = 5;
    a = steps(many, 101);
    cr_assert(announced_limit(&a, 10000 * NS_PER_S, &limit, &since));
    cr_expect_eq(limit, 3000 * NS_PER_S);
    a = steps(many, 102);
    cr_assert(announced_limit(&a, 10000 * NS_PER_S, &limit, &since));
    cr_expect_eq(limit, 15 * NS_PER_S, "the long one is not among the last %d", ANNOUNCED_STEPS);
}

Test(notify, the_same_step_again_is_no_new_one_and_a_smaller_one_begins_again) {
    uint64_t limit = 0, since = 0;
    struct announced a = steps((uint64_t[]){0, 2, 2, 2}, 4);
    announced_take(&a, &(struct notify_message){.has_step = true, .step = 4}, 200 * NS_PER_S);
    cr_assert(announced_limit(&a, 200 * NS_PER_S, &limit, &since));
    cr_expect_eq(since, 94 * NS_PER_S);
    announced_take(&a, &(struct notify_message){.has_step = true, .step = 1}, 300 * NS_PER_S);
    cr_assert(announced_limit(&a, 301 * NS_PER_S, &limit, &since));
    cr_expect_eq(since, 1 * NS_PER_S);
    cr_expect_eq(limit, ANNOUNCED_STEP_MIN_NS, "the time between two epochs is no step");
}

Test(notify, a_limit_that_is_announced_counts_before_steps_until_it_is_taken_back) {
    uint64_t limit = 0, since = 0;
    struct announced a = steps((uint64_t[]){0, 2, 2, 2}, 4);
    struct notify_message m = {.has_limit = true, .limit_ns = 600 * NS_PER_S};
    announced_take(&a, &m, 110 * NS_PER_S);
    cr_assert(announced_limit(&a, 130 * NS_PER_S, &limit, &since));
    cr_expect(limit == 600 * NS_PER_S && since == 20 * NS_PER_S);
    announced_take(&a, &(struct notify_message){.alive = true}, 140 * NS_PER_S);
    cr_assert(announced_limit(&a, 141 * NS_PER_S, &limit, &since));
    cr_expect_eq(since, 1 * NS_PER_S);
    m.limit_ns = 0;
    announced_take(&a, &m, 150 * NS_PER_S);
    cr_assert(announced_limit(&a, 151 * NS_PER_S, &limit, &since));
    cr_expect_eq(limit, ANNOUNCED_STEP_MIN_NS);
}
