#include "base/text/tail.h"

#include "rig/unit.h"

/* Adds the text in pieces of `size` bytes. */
static void add(struct tail *t, const char *text, size_t len, size_t size) {
    for (size_t n; len > 0; text += n, len -= n) {
        n = MIN2(len, size);
        tail_add(t, text, n);
    }
}

#define CASE(text, want) \
    { text, want, sizeof(text) - 1 }

Test(tail, lines_are_kept_as_a_terminal_shows_them) {
    static const struct {
        const char *text, *want;
        size_t len;
    } cases[] = {
        CASE("", ""),
        CASE("one\r\n\r\ntwo", "one\n\ntwo"),
        CASE("bar 1%\rbar 2%\rdone\r\r\nlast\r", "done\nlast"),
        CASE("    raise E\nValueError: 1%\r2%\rdone\nlast\n", "    raise E\nValueError: 1%\nlast\n"),
        CASE("    warn()\n  1%\r 50%\r\n", "    warn()\n 50%\n"),
        CASE("a\0b\n", "a?b\n"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t size = 1; size < 50; size += 3) {
            _cleanup_(tail_fini) struct tail t = {0};
            add(&t, cases[i].text, cases[i].len, size);
            cr_expect_str_eq(tail_lines(&t), cases[i].want, "%zu, %zu: %s", i, size, tail_lines(&t));
        }
}

Test(tail, of_a_long_line_the_beginning_is_kept) {
    static char text[200000];
    for (size_t size = 1000; size <= sizeof text; size *= 200) {
        _cleanup_(tail_fini) struct tail t = {0};
        memset(text, 'x', sizeof text);
        memcpy(text, "    raise E\nValueError: ", 24);
        memcpy(text + sizeof text - 6, "\nlast\n", 6);
        add(&t, text, sizeof text, size);
        cr_assert_eq(strncmp(tail_lines(&t), "    raise E\nValueError: xxx", 27), 0);
        cr_assert_str_eq(tail_lines(&t) + 12 + TAIL_LINE_BYTES, "\nlast\n");
    }
}

Test(tail, of_many_lines_the_last_are_kept) {
    for (size_t size = 7; size <= 70000; size *= 100) {
        _cleanup_(tail_fini) struct tail t = {0};
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        for (int i = 1; i <= 9000; i++)
            strbuf_printf(&text, "%d\n", i);
        add(&t, text.data, text.len, size);
        cr_assert_str_eq(tail_lines(&t), strstr(text.data, "\n8971\n") + 1);
        for (int i = 1; i <= 20; i++)
            strbuf_printf(&text, "%0900d\n", i);
        add(&t, text.data, text.len, size);
        cr_assert_eq(strlen(tail_lines(&t)), TAIL_BYTES / 901 * 901);
    }
}
