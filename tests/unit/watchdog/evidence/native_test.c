#include "watchdog/evidence/disturb.h"

#include "rig/unit.h"

static struct strbuf text;

static const char *shorten(const char *output, size_t max) {
    strbuf_fini(&text);
    native_shorten(output, max, &text);
    return strbuf_text(&text);
}

static void finish(void) { strbuf_fini(&text); }
TestSuite(native, .fini = finish);

Test(native, frames_lose_their_addresses_but_not_if_they_have_no_name) {
    cr_assert_str_eq(shorten("PID 7 - process\nTID 7:\n"
                             "#0  0x00007fc1871e1dd0 pause - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
                             "#1  0x00007fc1871e1dd0 wait\n"
                             "#10 0x00005596eb353142 a::b<c, d>(int) - 1 - /opt/a b/lib - /x.so\n"
                             "#11 0x00005596eb353071 - /usr/bin/python3.11\n"
                             "#12 0x00005596eb353071\neu-stack: tid 7: no more\n",
                             4096),
                     "thread 7:\n  pause  libc.so.6\n  wait\n  a::b<c, d>(int) - 1 - /opt/a b/lib  x.so\n"
                     "  0x00005596eb353071  python3.11\n  0x00005596eb353071\n");
}

Test(native, threads_at_the_same_place_are_shown_once) {
    cr_assert_str_eq(shorten("PID 7 - process\nTID 7:\n#0  0x1 pause\n"
                             "TID 8:\n#0  0x2 futex\nTID 9:\n#0  0x3 futex\nTID 10:\n#0  0x2 futex",
                             4096),
                     "thread 7:\n  pause\nthread 8, and 2 more like it:\n  futex\n");
}

Test(native, what_is_no_stack_gives_nothing) {
    cr_assert_str_eq(shorten("", 4096), "");
    cr_assert_str_eq(shorten("\n", 4096), "");
    cr_assert_str_eq(shorten("#0  0x1 pause\nTID \n\n", 4096), "");
    cr_assert_str_eq(shorten("TID 7:", 4096), "thread 7:\n");
    cr_assert_str_eq(shorten("TID 7:\n#", 4096), "thread 7:\n  \n");
    cr_assert_str_eq(shorten("TID 7:\n#0 - /", 4096), "thread 7:\n  /\n");
}

Test(native, it_has_limits) {
    _cleanup_(strbuf_fini) struct strbuf many = {0};
    for (uint32_t i = 0; i < 2 * NATIVE_STACKS_MAX; i++) {
        strbuf_printf(&many, "TID %u:\n", i);
        for (uint32_t k = 0; k < 2 * NATIVE_FRAMES_MAX; k++) {
            strbuf_printf(&many, "#%u 0x1 f%u_%u", k, i, k);
            for (uint32_t c = 0; c < 2 * NATIVE_NAME_MAX; c++)
                strbuf_add_char(&many, 'x');
            strbuf_add_char(&many, '\n');
        }
    }
    for (size_t max = 100; max <= (1 << 21); max *= 2) {
        (void)shorten(strbuf_text(&many), max);
        cr_assert_leq(text.len, max);
        assert_has(strbuf_text(&text), "more is left out\n");
    }
    assert_has(strbuf_text(&text), "thread 63:");
    cr_assert(strstr(strbuf_text(&text), "thread 64:") == NULL);
    cr_assert(strstr(strbuf_text(&text), "f0_63x") != NULL && strstr(strbuf_text(&text), "f0_64x") == NULL);
    assert_has(strbuf_text(&text), "  ...\n");
}
