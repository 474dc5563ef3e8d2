#include "launcher/output/log_times.h"

#include <criterion/criterion.h>

Test(log_times, a_stamp_is_read_as_it_was_written) {
    struct log_stamp s = {.at = UINT64_C(0x123456789abcdef0), .ns = UINT64_C(1795441116130237395)};
    uint8_t bytes[LOG_STAMP_BYTES];
    log_stamp_encode(&s, bytes);
    cr_assert_eq(bytes[0], 0xf0);
    struct log_stamp again = log_stamp_decode(bytes);
    cr_assert_eq(again.at, s.at);
    cr_assert_eq(again.ns, s.ns);
}

Test(log_times, a_path_beside_the_log) {
    static const char *const cases[][2] = {
        {"/a/b.c/stdout.log", "/a/b.c/.stdout.times"}, {"stderr.log", ".stderr.times"}, {"a.b/x", "a.b/.x.times"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *path = log_times_path(cases[i][0]);
        cr_assert_str_eq(path, cases[i][1]);
    }
}

Test(log_times, bursts_are_exact_and_the_rate_is_bounded) {
    const uint64_t start = UINT64_C(1795441116) * NS_PER_S;
    struct log_pace pace = {0};
    cr_assert(log_pace_is_due(&pace, start));
    cr_assert_not(log_pace_is_due(&pace, start + LOG_PACE_MIN_NS - 1));
    cr_assert(log_pace_is_due(&pace, start + LOG_PACE_MIN_NS));
    uint32_t n = 0, first = 0;
    for (uint64_t t = 0; t < 3600 * NS_PER_S; t += NS_PER_MS) {
        n += log_pace_is_due(&pace, start + NS_PER_S + t);
        if (t < 4 * NS_PER_S)
            first = n;
    }
    cr_assert_eq(first, 4000);
    cr_assert_leq(n, 3600 * NS_PER_S / LOG_PACE_NS + LOG_PACE_BURST + 60);
    /* quiet for a while: exact again */
    uint64_t later = start + 7200 * NS_PER_S;
    for (uint64_t t = 0; t < 100; t++)
        cr_assert(log_pace_is_due(&pace, later + t * NS_PER_MS));
}

Test(log_times, a_clock_that_steps_back_gets_a_stamp) {
    struct log_pace pace = {0};
    cr_assert(log_pace_is_due(&pace, 1000 * NS_PER_S));
    cr_assert(log_pace_is_due(&pace, 10 * NS_PER_S));
}
