#include "cli/jobs/shell_words.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const words[] = {"",      "a", "a b", "it's",  "$HOME",     "`id`", "a\nb",        "\\",  "*",
                                    "--x=1", "~", "'",   "\"q\"", "a;b|c&d>e", "!",    "k\xc3\xb6ln", "#no", "{a,b}"};

Test(shell_words, a_shell_reads_what_was_written) {
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        char got[64] = "";
        strbuf_add(&out, "printf '%s' ");
        shell_add_word(&out, words[i]);
        FILE *f = popen(strbuf_text(&out), "r");
        size_t n = fread(got, 1, sizeof got - 1, f);
        cr_assert_eq(pclose(f), 0);
        got[n] = '\0';
        cr_assert_str_eq(got, words[i]);
    }
}

Test(shell_words, only_what_needs_quotes_has_them) {
    static const char *const cases[][2] = {
        {"A=", "A="}, {"A=b c", "A='b c'"}, {"A=1", "A=1"}, {"A=b=c", "A=b=c"}, {"A='", "A=''\\'''"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        shell_add_assignment(&out, cases[i][0]);
        cr_assert_str_eq(strbuf_text(&out), cases[i][1]);
    }
}
