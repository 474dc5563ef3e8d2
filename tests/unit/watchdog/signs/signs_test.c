#include "watchdog/signs/signs.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/util.h"

Test(signs, reads_the_state_after_any_name) {
    static const struct {
        const char *text;
        char state;
    } cases[] = {
        {"12 (python) S 1 12 12 0", 'S'},
        {"12 (a) T) R 1", 'R'},
        {"12 (a\nb) t 1", 't'},
        {"12 (x) Z 1", 'Z'},
        {"12 (python", 0},
        {"", 0},
        {"12 (python)", 0},
        {"12 (python) ", 0},
        {"12 (python) ? 1", 0},
        {"12 (python) \0S 1", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(signs_state(cases[i].text, strlen(cases[i].text)), cases[i].state, "\"%s\"", cases[i].text);
}

Test(signs, reads_no_byte_beyond_the_end) {
    cr_expect_eq(signs_state("1 (a) S", 6), 0);
    cr_expect_eq(signs_state("1 (a) \0", 7), 0);
}

Test(signs, reads_the_time_of_a_schedstat) {
    uint64_t ns = 0;
    cr_assert(signs_ran("123456789012 55 7\n", 18, &ns));
    cr_expect_eq(ns, 123456789012);
    cr_expect(signs_ran("18446744073709551615 0 0", 24, &ns) && ns == UINT64_MAX);
    cr_expect_not(signs_ran("18446744073709551616 0 0", 24, &ns));
    cr_expect_not(signs_ran("12", 2, &ns));
    cr_expect_not(signs_ran("", 0, &ns));
    cr_expect_not(signs_ran("-1 0 0", 6, &ns));
}
