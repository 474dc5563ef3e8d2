#include "base/text/cpuset.h"

#include "rig/unit.h"

static void assert_list(const char *in, const char *out) {
    struct cpuset s;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    cr_assert_eq(cpuset_parse_list(in, &s), 0, "%s", in);
    cpuset_write_list(&s, &text);
    cr_assert_str_eq(strbuf_text(&text), out);
}

Test(cpuset, lists_are_read_and_written_as_the_kernel_does) {
    assert_list("", "");
    assert_list("\n", "");
    assert_list("0", "0");
    assert_list(" 0-3,8,10-11\n", "0-3,8,10-11");
    assert_list("3,2,1", "1-3");
    assert_list("63,64,127-129", "63-64,127-129");
    assert_list("8191", "8191");
}

Test(cpuset, what_is_no_list_is_refused) {
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"a", -EINVAL},    {"1-", -EINVAL},  {"-1", -EINVAL},  {"3-1", -EINVAL},  {"1,", -EINVAL},
        {"1,,2", -EINVAL}, {"1 2", -EINVAL}, {"0x3", -EINVAL}, {"8192", -ERANGE}, {"99999999999999999999", -ERANGE}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cpuset s = {.words = {42}};
        int r = cpuset_parse_list(cases[i].text, &s);
        cr_assert_eq(r, cases[i].code, "%s: %d", cases[i].text, r);
        cr_assert_eq(s.words[0], 42, "untouched");
    }
}

Test(cpuset, masks_are_words_of_32_bits_highest_first) {
    struct cpuset s;
    _cleanup_(strbuf_fini) struct strbuf list = {0}, mask = {0};
    cr_assert_eq(cpuset_parse_mask("000000ff,00000000,80000001\n", &s), 0);
    cpuset_write_list(&s, &list);
    cr_assert_str_eq(strbuf_text(&list), "0,31,64-71");
    cpuset_write_mask(&s, &mask);
    cr_assert_str_eq(strbuf_text(&mask), "000000ff,00000000,80000001");
    cr_assert_eq(cpuset_parse_mask("3", &s), 0);
    cr_assert_eq(cpuset_count(&s), 2);
    cr_assert_eq(cpuset_parse_mask("", &s), 0);
    cr_assert(cpuset_is_empty(&s));
    cr_assert_eq(cpuset_parse_mask("0xff", &s), -EINVAL);
    cr_assert_eq(cpuset_parse_mask("1,2", &s), -EINVAL);
}

Test(cpuset, sets_are_joined_cut_and_compared) {
    struct cpuset a, b, c;
    cr_assert_eq(cpuset_parse_list("0-99", &a), 0);
    cr_assert_eq(cpuset_parse_list("50-149", &b), 0);
    c = a;
    cpuset_and(&c, &b);
    cr_assert_eq(cpuset_count(&c), 50);
    cr_assert(cpuset_within(&c, &a) && cpuset_within(&c, &b) && !cpuset_within(&a, &b));
    cpuset_or(&c, &a);
    cr_assert(cpuset_equal(&c, &a));
    c = (struct cpuset){0};
    cr_assert(!cpuset_intersects(&c, &b));
    cr_assert_eq(cpuset_next(&b, 0), 50);
    cr_assert_eq(cpuset_next(&b, 149), 149);
    cr_assert_eq(cpuset_next(&b, 150), CPUSET_MAX);
    cr_assert_eq(cpuset_next(&b, UINT32_MAX), CPUSET_MAX);
    cpuset_add(&a, CPUSET_MAX); /* ignored */
    cr_assert_eq(cpuset_count(&a), 100);
    cpuset_remove(&a, 0);
    cr_assert(!cpuset_has(&a, 0) && !cpuset_has(&a, CPUSET_MAX));
}
