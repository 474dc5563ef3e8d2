#include "base/text/parse.h"

#include <limits.h>
#include <math.h>

#include "base/prng.h"
#include "rig/unit.h"

/* A parse that fails must not change it. */
#define UNTOUCHED 77

Test(parse, whole_numbers_at_their_edges) {
    static const struct {
        const char *text;
        int r64, r32, rport;
        uint64_t value;
    } rows[] = {
        {"0", 0, 0, 0, 0},
        {"1", 0, 0, 0, 1},
        {"007", 0, 0, 0, 7},
        {"65535", 0, 0, 0, 65535},
        {"65536", 0, 0, -ERANGE, 65536},
        {"4294967295", 0, 0, -ERANGE, 4294967295},
        {"4294967296", 0, -ERANGE, -ERANGE, 4294967296},
        {"18446744073709551615", 0, -ERANGE, -ERANGE, UINT64_MAX},
        {"18446744073709551616", -ERANGE, -ERANGE, -ERANGE, 0},
        {"99999999999999999999999", -ERANGE, -ERANGE, -ERANGE, 0},
        {"", -EINVAL, -EINVAL, -EINVAL, 0},
        {" 1", -EINVAL, -EINVAL, -EINVAL, 0},
        {"1 ", -EINVAL, -EINVAL, -EINVAL, 0},
        {"+1", -EINVAL, -EINVAL, -EINVAL, 0},
        {"-1", -EINVAL, -EINVAL, -EINVAL, 0},
        {"1x", -EINVAL, -EINVAL, -EINVAL, 0},
        {"0x10", -EINVAL, -EINVAL, -EINVAL, 0},
        {"1.0", -EINVAL, -EINVAL, -EINVAL, 0},
        {"1e3", -EINVAL, -EINVAL, -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t v64 = UNTOUCHED;
        uint32_t v32 = UNTOUCHED;
        uint16_t port = UNTOUCHED;
        cr_expect_eq(parse_u64(rows[i].text, &v64), rows[i].r64, "u64 of '%s'", rows[i].text);
        cr_expect_eq(parse_u32(rows[i].text, &v32), rows[i].r32, "u32 of '%s'", rows[i].text);
        cr_expect_eq(parse_port(rows[i].text, &port), rows[i].rport, "port of '%s'", rows[i].text);
        cr_expect_eq(v64, rows[i].r64 == 0 ? rows[i].value : UNTOUCHED, "%s", rows[i].text);
        cr_expect_eq(v32, rows[i].r32 == 0 ? (uint32_t)rows[i].value : UNTOUCHED, "%s", rows[i].text);
        cr_expect_eq(port, rows[i].rport == 0 ? (uint16_t)rows[i].value : UNTOUCHED, "%s", rows[i].text);
    }
}

Test(parse, signed_numbers_at_their_edges) {
    static const struct {
        const char *text;
        int r;
        int32_t value;
    } rows[] = {
        {"0", 0, 0},
        {"-0", 0, 0},
        {"+5", 0, 5},
        {"-15", 0, -15},
        {"2147483647", 0, INT32_MAX},
        {"2147483648", -ERANGE, 0},
        {"-2147483648", 0, INT32_MIN},
        {"-2147483649", -ERANGE, 0},
        {"-18446744073709551616", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"-", -EINVAL, 0},
        {"+", -EINVAL, 0},
        {"--1", -EINVAL, 0},
        {"+-1", -EINVAL, 0},
        {"- 1", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int32_t v = UNTOUCHED;
        cr_expect_eq(parse_i32(rows[i].text, &v), rows[i].r, "'%s'", rows[i].text);
        cr_expect_eq(v, rows[i].r == 0 ? rows[i].value : UNTOUCHED, "'%s'", rows[i].text);
    }
}

Test(parse, whole_numbers_as_python_reads_them) {
    static const struct {
        const char *text;
        int r, r_u32;
        int32_t value;
    } rows[] = {
        {" 2 ", 0, 0, 2},
        {"\t2\n", 0, 0, 2},
        {"+3", 0, -EINVAL, 3},
        {" -3", 0, -EINVAL, -3},
        {"1_000", 0, 0, 1000},
        {"007", 0, 0, 7},
        {"1__0", -EINVAL, -EINVAL, 0},
        {"_1", -EINVAL, -EINVAL, 0},
        {"1_", -EINVAL, -EINVAL, 0},
        {"+_1", -EINVAL, -EINVAL, 0},
        {"1 0", -EINVAL, -EINVAL, 0},
        {"+ 3", -EINVAL, -EINVAL, 0},
        {"", -EINVAL, -EINVAL, 0},
        {" ", -EINVAL, -EINVAL, 0},
        {"2.0", -EINVAL, -EINVAL, 0},
        {"0x2", -EINVAL, -EINVAL, 0},
        {"99999999999", -ERANGE, -ERANGE, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int32_t v = UNTOUCHED;
        uint32_t u = UNTOUCHED;
        cr_expect_eq(parse_python_i32(rows[i].text, &v), rows[i].r, "'%s'", rows[i].text);
        cr_expect_eq(v, rows[i].r == 0 ? rows[i].value : UNTOUCHED, "'%s'", rows[i].text);
        cr_expect_eq(parse_python_u32(rows[i].text, &u), rows[i].r_u32, "'%s'", rows[i].text);
        cr_expect_eq(u, rows[i].r_u32 == 0 ? (uint32_t)rows[i].value : UNTOUCHED, "'%s'", rows[i].text);
    }
}

Test(parse, a_python_number_has_at_most_63_characters) {
    char text[80];
    int32_t v;
    (void)snprintf(text, sizeof text, "  %063d", 5);
    cr_assert_eq(parse_python_i32(text, &v), 0);
    (void)snprintf(text, sizeof text, "  %064d", 5);
    cr_assert_eq(parse_python_i32(text, &v), -ERANGE);
}

Test(parse, decimal_numbers_as_python_reads_them) {
    static const struct {
        const char *text;
        int r;
        double value;
    } rows[] = {
        {" 0.5 ", 0, 0.5},   {"+.5", 0, 0.5},     {"1_0.5", 0, 10.5},   {"5.", 0, 5},
        {"1e1", 0, 10},      {"-1", -EINVAL, 0},  {"1_.5", -EINVAL, 0}, {"+-1", -EINVAL, 0},
        {"inf", -EINVAL, 0}, {"nan", -EINVAL, 0}, {"", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double v = UNTOUCHED;
        uint64_t ns = UNTOUCHED;
        cr_expect_eq(parse_python_double(rows[i].text, &v), rows[i].r, "'%s'", rows[i].text);
        cr_expect_float_eq(v, rows[i].r == 0 ? rows[i].value : UNTOUCHED, 1e-9, "'%s'", rows[i].text);
        cr_expect_eq(parse_python_seconds_ns(rows[i].text, &ns), rows[i].r, "'%s'", rows[i].text);
        cr_expect_eq(ns, rows[i].r == 0 ? (uint64_t)(rows[i].value * 1e9) : UNTOUCHED, "'%s'", rows[i].text);
    }
    uint64_t ns = UNTOUCHED;
    cr_assert_eq(parse_python_seconds_ns(" 1_000_000_001 ", &ns), -ERANGE);
    cr_assert_eq(ns, UNTOUCHED);
}

Test(parse, every_number_printed_is_read_back) {
    struct prng prng = {.state = 1};
    for (int i = 0; i < 2000; i++) {
        uint64_t v = prng_next(&prng) >> prng_below(&prng, 64), back;
        char *text = xasprintf("%llu", (unsigned long long)v);
        cr_assert_eq(parse_u64(text, &back), 0, "%s", text);
        cr_assert_eq(back, v);
        free(text);
        int32_t n = (int32_t)prng_next(&prng), n_back;
        text = xasprintf("%d", n);
        cr_assert_eq(parse_i32(text, &n_back), 0, "%s", text);
        cr_assert_eq(n_back, n);
        free(text);
    }
}

Test(parse, decimal_numbers) {
    static const struct {
        const char *text;
        int r;
        double value;
    } rows[] = {
        {"0", 0, 0.0},         {"0.1", 0, 0.1},       {"3", 0, 3.0},         {".5", 0, 0.5},      {"5.", 0, 5.0},
        {"1e3", 0, 1000.0},    {"1E-3", 0, 0.001},    {"1e999", -ERANGE, 0}, {"", -EINVAL, 0},    {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},    {" 1", -EINVAL, 0},    {"1 ", -EINVAL, 0},    {"nan", -EINVAL, 0}, {"inf", -EINVAL, 0},
        {"0x1p3", -EINVAL, 0}, {"1.2.3", -EINVAL, 0}, {"1e", -EINVAL, 0},    {".", -EINVAL, 0},   {"1,5", -EINVAL, 0},
        {"1e+", -EINVAL, 0},   {"e5", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double v = UNTOUCHED;
        cr_expect_eq(parse_double(rows[i].text, &v), rows[i].r, "'%s'", rows[i].text);
        cr_expect(fabs(v - (rows[i].r == 0 ? rows[i].value : UNTOUCHED)) < 1e-12, "'%s'", rows[i].text);
    }
}

Test(parse, seconds_become_nanoseconds_up_to_the_limit) {
    uint64_t ns = UNTOUCHED;
    cr_expect_eq(parse_seconds_ns("0", &ns), 0);
    cr_expect_eq(ns, 0);
    cr_expect_eq(parse_seconds_ns("0.5", &ns), 0);
    cr_expect_eq(ns, NS_PER_S / 2);
    cr_expect_eq(parse_seconds_ns("900", &ns), 0);
    cr_expect_eq(ns, 900 * NS_PER_S);
    cr_expect_eq(parse_seconds_ns("1000000000", &ns), 0);
    cr_expect_eq(ns, UINT64_C(1000000000) * NS_PER_S);
    ns = UNTOUCHED;
    cr_expect_eq(parse_seconds_ns("1000000001", &ns), -ERANGE);
    cr_expect_eq(parse_seconds_ns("-1", &ns), -EINVAL);
    cr_expect_eq(parse_seconds_ns("1s", &ns), -EINVAL);
    cr_expect_eq(ns, UNTOUCHED);
}

Test(parse, yes_and_no_in_the_words_torchrun_takes) {
    static const char *const yes[] = {"1", "true", "True", "TRUE", "t", "T", "yes", "Yes", "y", "Y"};
    static const char *const no[] = {"0", "false", "False", "FALSE", "f", "F", "no", "No", "n", "N"};
    static const char *const neither[] = {"", "2", "on", "off", "tru", "truee", " 1", "-1"};
    bool b;
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        b = false;
        cr_expect_eq(parse_bool(yes[i], &b), 0, "%s", yes[i]);
        cr_expect(b, "%s", yes[i]);
        b = true;
        cr_expect_eq(parse_bool(no[i], &b), 0, "%s", no[i]);
        cr_expect(!b, "%s", no[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(neither); i++) {
        b = true;
        cr_expect_eq(parse_bool(neither[i], &b), -EINVAL, "'%s'", neither[i]);
        cr_expect(b);
    }
}

static int sign(int v) { return (v > 0) - (v < 0); }

Test(parse, names_sort_as_people_sort_them) {
    /* Each is less than the next. */
    static const char *const in_order[] = {
        "",
        "10.0.0.2",
        "10.0.0.10",
        "a",
        "a1",
        "a1b",
        "a2",
        "a02",
        "a10",
        "a10b",
        "node1-gpu9",
        "node1-gpu10",
        "node2",
        "node10",
        "node18446744073709551616",
        "node18446744073709551617",
        "nodf",
    };
    for (size_t i = 0; i < ARRAY_SIZE(in_order); i++) {
        for (size_t j = 0; j < ARRAY_SIZE(in_order); j++) {
            int want = (i > j) - (i < j);
            cr_expect_eq(sign(natural_compare(in_order[i], in_order[j])), want, "'%s' and '%s'", in_order[i],
                         in_order[j]);
        }
    }
}

static void random_name(struct prng *prng, char out[8]) {
    static const char letters[] = "ab0129-";
    size_t len = (size_t)prng_below(prng, 7);
    for (size_t i = 0; i < len; i++)
        out[i] = letters[prng_below(prng, sizeof letters - 1)];
    out[len] = '\0';
}

Test(parse, the_order_of_names_is_total) {
    struct prng prng = {.state = 5};
    for (int i = 0; i < 200000; i++) {
        char a[8], b[8], c[8];
        random_name(&prng, a);
        random_name(&prng, b);
        random_name(&prng, c);
        int ab = sign(natural_compare(a, b)), bc = sign(natural_compare(b, c));
        cr_assert_eq(ab, -sign(natural_compare(b, a)), "'%s' '%s'", a, b);
        cr_assert_eq(ab == 0, strcmp(a, b) == 0, "'%s' '%s'", a, b);
        if (ab <= 0 && bc <= 0)
            cr_assert_leq(natural_compare(a, c), 0, "'%s' '%s' '%s'", a, b, c);
    }
}

Test(parse, bytes_above_ascii_sort_after_it) {
    cr_expect_lt(natural_compare("z", "\xc3\xa9"), 0);
    cr_expect_gt(natural_compare("\xc3\xa9", "z"), 0);
    cr_expect_lt(natural_compare("", "\xc3\xa9"), 0);
}

Test(parse, items_of_a_list) {
    static const struct {
        const char *list, *item; /* NULL: too short */
        size_t index;
    } cases[] = {
        {"a,b,c", "a", 0},  {"a,b,c", "c", 2}, {"a,b,c", NULL, 3}, {" a , b b\t,", "b b", 1},
        {" a , b,", "", 2}, {"", "", 0},       {"", NULL, 1},      {"a,,c", "", 1},
        {" ", "", 0},       {",", "", 1},      {",", NULL, 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = 77;
        const char *item = list_item(cases[i].list, cases[i].index, &len);
        cr_expect_eq(item == NULL, cases[i].item == NULL, "case %zu", i);
        if (item != NULL && cases[i].item != NULL)
            cr_expect(len == strlen(cases[i].item) && memcmp(item, cases[i].item, len) == 0, "case %zu", i);
    }
}

Test(parse, hexadecimal_digits_and_beginnings) {
    for (int c = CHAR_MIN; c <= CHAR_MAX; c++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c != 0 ? strrchr(digits, c) : NULL;
        cr_expect_eq(hex_digit((char)c), at == NULL ? -1 : (int)((at - digits) % 16), "%d", c);
    }
    cr_expect(text_begins("etcd:a", "etcd:") && text_begins("a", ""));
    cr_expect_not(text_begins("etcd", "etcd:"));
}

Test(parse, lines_of_a_text) {
    const char *line = "a\n\nb";
    cr_expect_str_eq(line = text_next_line(line), "\nb");
    cr_expect_str_eq(line = text_next_line(line), "b");
    cr_expect_str_eq(line = text_next_line(line), "");
    cr_expect_str_eq(text_next_line(line), "");
    cr_expect_str_eq(text_next_line("a\n"), "");
}
