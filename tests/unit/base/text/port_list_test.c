#include "base/text/parse.h"

#include "rig/unit.h"

#define MAX 16

Test(port_list, is_read_and_written) {
    static const struct {
        const char *text;
        int r;
        unsigned n;
        uint16_t first, last;
        const char *written;
    } rows[] = {
        {"1", 0, 1, 1, 1, "1"},
        {"65535", 0, 1, 65535, 65535, "65535"},
        {"5,7", 0, 2, 5, 7, "5,7"},
        {"7,5", 0, 2, 7, 5, "7,5"},
        {"5,6", 0, 2, 5, 6, "5,6"},
        {"5-7", 0, 3, 5, 7, "5-7"},
        {"5,6,7,9", 0, 4, 5, 9, "5-7,9"},
        {"9,5-7", 0, 4, 9, 7, "9,5-7"},
        {"5-5", 0, 1, 5, 5, "5"},
        {"65520-65535", 0, 16, 65520, 65535, "65520-65535"},
        {"29400-29407,30000-30007", 0, 16, 29400, 30007, "29400-29407,30000-30007"},
        {"29400-29416", -E2BIG, 0, 0, 0, NULL},
        {"29400-29415,7", -E2BIG, 0, 0, 0, NULL},
        {"1-65535", -E2BIG, 0, 0, 0, NULL},
        {"5,5", -EEXIST, 0, 0, 0, NULL},
        {"5-7,6", -EEXIST, 0, 0, 0, NULL},
        {"", -EINVAL, 0, 0, 0, NULL},
        {"5,", -EINVAL, 0, 0, 0, NULL},
        {",5", -EINVAL, 0, 0, 0, NULL},
        {"5,,6", -EINVAL, 0, 0, 0, NULL},
        {"0", -EINVAL, 0, 0, 0, NULL},
        {"5,0", -EINVAL, 0, 0, 0, NULL},
        {"0-5", -EINVAL, 0, 0, 0, NULL},
        {"65536", -EINVAL, 0, 0, 0, NULL},
        {"5,99999", -EINVAL, 0, 0, 0, NULL},
        {"000005", -EINVAL, 0, 0, 0, NULL},
        {"7-5", -EINVAL, 0, 0, 0, NULL},
        {"5-", -EINVAL, 0, 0, 0, NULL},
        {"-5", -EINVAL, 0, 0, 0, NULL},
        {"5-6-7", -EINVAL, 0, 0, 0, NULL},
        {"5, 6", -EINVAL, 0, 0, 0, NULL},
        {"5,x", -EINVAL, 0, 0, 0, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint16_t ports[MAX] = {0};
        unsigned n = 77;
        cr_assert_eq(port_list_parse(rows[i].text, MAX, ports, &n), rows[i].r, "\"%s\"", rows[i].text);
        if (rows[i].r < 0) {
            cr_assert_eq(n, 77);
            cr_assert_eq(ports[0], 0, "\"%s\"", rows[i].text);
            continue;
        }
        cr_assert_eq(n, rows[i].n, "\"%s\"", rows[i].text);
        cr_assert_eq(ports[0], rows[i].first, "\"%s\"", rows[i].text);
        cr_assert_eq(ports[n - 1], rows[i].last, "\"%s\"", rows[i].text);
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        port_list_text(ports, n, &text);
        cr_assert_str_eq(strbuf_text(&text), rows[i].written);
    }
}
