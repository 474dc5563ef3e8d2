#include "base/err.h"

#include "rig/unit.h"

Test(err, set_fills_both_and_returns_the_code) {
    struct err err = {0};
    cr_assert_eq(err_set(&err, -ENOENT, "open %s: no such file", "/x"), -ENOENT);
    cr_assert_eq(err.code, -ENOENT);
    cr_assert_str_eq(err.text, "open /x: no such file");
}

Test(err, nobody_has_to_want_the_text) {
    cr_assert_eq(err_set(NULL, -EIO, "x"), -EIO);
    err_prefix(NULL, "y");
}

Test(err, prefix_goes_before_and_keeps_the_code) {
    struct err err = {0};
    (void)err_set(&err, -EIO, "disk gone");
    err_prefix(&err, "log of rank %d", 3);
    cr_assert_str_eq(err.text, "log of rank 3: disk gone");
    cr_assert_eq(err.code, -EIO);
}

Test(err, a_long_text_is_cut_at_the_limit_and_stays_a_text) {
    char *longest = xmalloc(ERR_TEXT_MAX + 1);
    memset(longest, 'x', ERR_TEXT_MAX);
    longest[ERR_TEXT_MAX] = '\0';
    struct err err = {0};
    (void)err_set(&err, -EIO, "%s", longest + 1); /* one byte less than the limit: it fits */
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    (void)err_set(&err, -EIO, "%s", longest); /* one byte more */
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    err_prefix(&err, "before");
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    cr_assert_eq(strncmp(err.text, "before: xxx", 11), 0);
    err_prefix(&err, "%s", longest); /* the prefix leaves no room for the rest */
    cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1);
    free(longest);
}

Test(err, a_percent_sign_in_the_text_survives_a_prefix) {
    struct err err = {0};
    (void)err_set(&err, -EINVAL, "%s", "100%s");
    err_prefix(&err, "value");
    cr_assert_str_eq(err.text, "value: 100%s");
}
