#include "base/text/utf8.h"

#include "rig/unit.h"

Test(utf8, characters_are_as_long_as_the_standard_says) {
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        {"", 0},
        {"a", 1},
        {"\x7f", 1},
        {"\x80", 0},     /* a continuation alone */
        {"\xc0\x80", 0}, /* overlong NUL */
        {"\xc1\xbf", 0},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xc2", 0}, /* cut */
        {"\xc2"
         "a",
         0},
        {"\xe0\x9f\xbf", 0}, /* overlong */
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0}, /* a surrogate */
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xef\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0}, /* overlong */
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_assert_eq(utf8_char(cases[i].text), cases[i].len, "case %zu", i);
}

Test(utf8, a_copy_replaces_bad_bytes_one_for_one) {
    char out[64];
    utf8_copy(out, sizeof out, "a\xff\xc3\xa4\xc3z");
    cr_assert_str_eq(out, "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbdz");
}

Test(utf8, a_copy_is_cut_between_characters) {
    char out[8];
    static const char in[] = "ab\xe2\x82\xac\xe2\x82\xac"; /* 2 + 3 + 3 bytes */
    for (size_t size = 1; size <= sizeof out; size++) {
        utf8_copy(out, size, in);
        size_t wanted = size > 5 ? 5 : MIN2(size - 1, (size_t)2);
        cr_assert_eq(strlen(out), wanted, "size %zu: %zu", size, strlen(out));
        cr_assert(memcmp(out, in, wanted) == 0);
    }
}

Test(utf8, what_is_not_for_a_terminal_becomes_question_marks) {
    static const struct {
        const char *in, *line, *lines;
    } cases[] = {
        {"plain \xc3\xa4 \xe2\x82\xac", "plain \xc3\xa4 \xe2\x82\xac", "plain \xc3\xa4 \xe2\x82\xac"},
        {"a\x1b[2J\x7f", "a?[2J?", "a?[2J?"},
        {"a\tb\nc\r", "a?b?c?", "a\tb\nc?"},
        {"a\xc2\x9b"
         "b\xc2\xa0",
         "a??b\xc2\xa0", "a??b\xc2\xa0"},
        {"\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa9", "??????\xe2\x80\xa9", "??????\xe2\x80\xa9"},
        {"\xff"
         "a\xe2\x80",
         "?a??", "?a??"},
        {"", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char line[64], lines[64];
        (void)snprintf(line, sizeof line, "%s", cases[i].in);
        (void)snprintf(lines, sizeof lines, "%s", cases[i].in);
        utf8_clean(line, false);
        utf8_clean(lines, true);
        cr_assert_str_eq(line, cases[i].line, "case %zu: %s", i, line);
        cr_assert_str_eq(lines, cases[i].lines, "case %zu: %s", i, lines);
    }
}

/* The rule of every text that is sent: run ids, roles, names of nodes, reasons. */
Test(utf8, a_text_that_is_sent_is_one_line_of_valid_characters) {
    static char longest[10 * 1024 + 1], too_long[10 * 1024 + 2];
    memset(longest, 'x', sizeof longest - 1);
    memset(too_long, 'x', sizeof too_long - 1);
    static const struct {
        const char *text, *refused; /* NULL: accepted */
    } cases[] = {
        {"", NULL},
        {"ckpt-7_a.b:c d", NULL},
        {"pr\xc3\xbc"
         "fung \xe2\x82\xac \xf0\x9f\x94\xa5",
         NULL},
        {"../../etc/passwd", NULL}, /* a path is made of it by logdir_sanitise() and its like */
        {longest, NULL},
        {too_long, "the text has 10241 bytes; at most 10240 are possible"},
        {"pr\xfc"
         "fung",
         "byte 3 (0xfc) is not valid UTF-8"},
        {"\xc0\x80", "byte 1 (0xc0) is not valid UTF-8"},      /* an overlong NUL */
        {"a\xed\xa0\x80", "byte 2 (0xed) is not valid UTF-8"}, /* a surrogate */
        {"a\xe2\x82", "byte 2 (0xe2) is not valid UTF-8"},     /* cut */
        {"a\nb", "must not contain control characters (byte 2)"},
        {"a\r", "must not contain control characters (byte 2)"},
        {"\tb", "must not contain control characters (byte 1)"},
        {"\x1b[31mred", "must not contain control characters (byte 1)"},
        {"a\x7f", "must not contain control characters (byte 2)"},
        {"a\xc2\x9b"
         "31m",
         "must not contain control characters (byte 2)"}, /* CSI in one character */
        {"a\xe2\x80\xae"
         "b",
         "must not contain control characters (byte 2)"}, /* right to left */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        int r = utf8_check_line("--name", cases[i].text, sizeof longest - 1, &err);
        char want[128] = "";
        if (cases[i].refused != NULL)
            (void)snprintf(want, sizeof want, "--name: %s", cases[i].refused);
        cr_expect_eq(r, cases[i].refused == NULL ? 0 : -EINVAL, "case %zu", i);
        cr_expect_str_eq(err.text, want, "case %zu", i);
        /* what may not be refused is replaced, and is then accepted */
        char line[64];
        utf8_copy_line(line, sizeof line, cases[i].text);
        cr_expect_eq(utf8_check_line("--name", line, sizeof line - 1, NULL), 0, "case %zu", i);
    }
}
