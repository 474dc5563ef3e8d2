#include "launcher/worker/notify.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/util.h"

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
