#include "base/text/duration.h"

#include "rig/unit.h"

Test(duration, people_read_it) {
    static const struct {
        uint64_t ns;
        const char *want;
    } cases[] = {
        {0, "0 ms"},
        {999 * NS_PER_MS, "999 ms"},
        {NS_PER_S, "1.0 s"},
        {9990 * NS_PER_MS, "9.9 s"},
        {10 * NS_PER_S, "10 s"},
        {119 * NS_PER_S, "119 s"},
        {120 * NS_PER_S, "2 min 00 s"},
        {7199 * NS_PER_S, "119 min 59 s"},
        {7200 * NS_PER_S, "2 h 00 min"},
        {90061 * NS_PER_S, "25 h 01 min"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        duration_text(cases[i].ns, &got);
        cr_assert_str_eq(strbuf_text(&got), cases[i].want);
    }
}

Test(duration, utc) {
    char got[UTC_TEXT_MAX];
    utc_text(0, got);
    cr_assert_str_eq(got, "1970-01-01T00:00:00.000Z");
    utc_text(UINT64_C(1795489838) * NS_PER_S + 123 * NS_PER_MS, got);
    cr_assert_str_eq(got, "2026-11-24T03:10:38.123Z");
}
