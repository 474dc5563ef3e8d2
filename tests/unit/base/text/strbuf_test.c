#include "base/text/strbuf.h"

#include "rig/unit.h"

Test(strbuf, empty_one_reads_as_the_empty_text) {
    struct strbuf s = {0};
    cr_assert_str_eq(strbuf_text(&s), "");
    strbuf_clear(&s);
    cr_assert_str_eq(strbuf_text(&s), "");
    strbuf_fini(&s);
}

Test(strbuf, adding_nothing_makes_it_terminated_and_empty) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add_bytes(&s, NULL, 0);
    cr_assert_eq(s.len, 0);
    cr_assert_not_null(s.data);
    cr_assert_str_eq(s.data, "");
}

Test(strbuf, pieces_of_every_kind_come_out_in_order) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add(&s, "rank");
    strbuf_add_char(&s, ' ');
    strbuf_printf(&s, "%d of %s", 3, "8");
    strbuf_add_bytes(&s, "!?x", 2);
    cr_assert_str_eq(strbuf_text(&s), "rank 3 of 8!?");
    cr_assert_eq(s.len, strlen("rank 3 of 8!?"));
}

Test(strbuf, bytes_may_hold_nul) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add_bytes(&s, "a\0b", 3);
    cr_assert_eq(s.len, 3);
    cr_assert_eq(memcmp(strbuf_text(&s), "a\0b", 4), 0);
}

Test(strbuf, growth_past_every_capacity_keeps_what_was_there) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (unsigned i = 0; i < 5000; i++) {
        strbuf_add_char(&s, (char)('a' + i % 26));
        cr_assert(s.cap > s.len, "no room for the NUL at %zu", s.len);
        cr_assert_eq(s.data[s.len], '\0');
    }
    for (unsigned i = 0; i < 5000; i++)
        cr_assert_eq(s.data[i], (char)('a' + i % 26), "at %u", i);
}

Test(strbuf, printf_of_exactly_the_room_left_is_whole) {
    /* The first capacity is 64: texts of 62 to 65 characters are at the limit. */
    for (int n = 62; n <= 65; n++) {
        struct strbuf s = {0};
        strbuf_printf(&s, "%0*d", n, 7);
        cr_assert_eq(s.len, (size_t)n);
        cr_assert_eq(strlen(strbuf_text(&s)), (size_t)n);
        cr_assert_eq(s.data[n - 1], '7');
        strbuf_fini(&s);
    }
}

Test(strbuf, clear_keeps_the_memory_and_drops_the_text) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add(&s, "gone");
    char *before = s.data;
    strbuf_clear(&s);
    cr_assert_str_eq(strbuf_text(&s), "");
    strbuf_add(&s, "new");
    cr_assert_eq(s.data, before);
    cr_assert_str_eq(strbuf_text(&s), "new");
}

Test(strbuf, forget_empties_it) {
    struct strbuf s = {0};
    strbuf_forget(&s);
    strbuf_add(&s, "secret");
    strbuf_forget(&s);
    cr_assert_null(s.data);
    cr_assert_str_eq(strbuf_text(&s), "");
}

/* What it leaves behind is overwritten: tests/e2e/test_key_memory.py. */
Test(strbuf, a_secret_moves_when_it_grows) {
    _cleanup_(strbuf_forget) struct strbuf s = {.is_secret = true};
    strbuf_add(&s, "secret");
    const char *before = s.data;
    (void)strbuf_room(&s, s.cap);
    cr_assert_neq(s.data, before);
    cr_assert_str_eq(strbuf_text(&s), "secret");
    cr_assert_eq(s.len, strlen("secret"));
}

Test(strbuf, take_hands_over_and_leaves_it_empty) {
    struct strbuf s = {0};
    char *text = strbuf_take(&s);
    cr_assert_str_eq(text, "");
    free(text);
    strbuf_add(&s, "mine");
    text = strbuf_take(&s);
    cr_assert_str_eq(text, "mine");
    cr_assert_null(s.data);
    cr_assert_str_eq(strbuf_text(&s), "");
    free(text);
}

Test(strbuf, words_wrap_and_lines_end_without_blanks) {
    struct strbuf s = {0};
    strbuf_add(&s, "  ");
    size_t column = strbuf_add_wrapped(&s, "a be  cee toolongaword x", 2, 4, 10);
    cr_assert_eq(strbuf_add_wrapped(&s, "yy", column, 4, 10), 8);
    strbuf_add(&s, "  ");
    strbuf_end_line(&s);
    cr_assert_str_eq(strbuf_text(&s), "  a be cee\n    toolongaword\n    x yy\n");
    strbuf_fini(&s);
}

Test(strbuf, xml_is_escaped_and_cut) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    strbuf_add_xml(&out, "<a>&\"b\" \x1b\xff\xef\xbf\xbf é\n", 100);
    cr_expect_str_eq(out.data, "&#60;a&#62;&#38;&#34;b&#34; ??? é\n");
    strbuf_clear(&out);
    strbuf_add_xml(&out, "ééééé", 5);
    cr_expect_str_eq(out.data, "ééééé");
    strbuf_add_xml(&out, "ééééé", 4);
    cr_expect_str_eq(out.data, "ééééééé"
                               "é…");
}

Test(strbuf, lines_that_are_too_many_are_cut) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    strbuf_add(&s, "title\n");
    strbuf_add(&s, "a line of 20 bytes.\n");
    strbuf_add(&s, "a line of 20 bytes.\n");
    strbuf_cut_lines(&s, 6, 40);
    cr_expect_eq(s.len, 46);
    strbuf_add(&s, "x\n");
    strbuf_cut_lines(&s, 6, 41);
    cr_expect_str_eq(strbuf_text(&s), "title\na line of 20 bytes.\n(more was left out)\n");
    strbuf_cut_lines(&s, 6, 20);
    cr_expect_str_eq(strbuf_text(&s), "title\n(more was left out)\n");
}
