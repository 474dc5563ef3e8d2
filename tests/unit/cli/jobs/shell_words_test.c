#include "cli/jobs/shell_words.h"

#include "rig/unit.h"

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

Test(shell_words, a_line_names_another_job) {
    char stop[] = "stop", reason[] = "--reason=a b", id[] = "--rdzv-id=exp", exp[] = "exp";
    char *const by_option[] = {stop, id, reason}, *const by_operand[] = {stop, exp, reason};
    const struct {
        char *const *argv;
        const char *from, *line;
    } cases[] = {
        {by_option, id + strlen("--rdzv-id="), "muster stop --rdzv-id=exp-10 '--reason=a b'"},
        {by_operand, exp, "muster stop exp-10 '--reason=a b'"},
        {by_operand, NULL, "muster stop exp '--reason=a b' exp-10"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        shell_add_line(&out, 3, cases[i].argv, cases[i].from, "exp-10");
        cr_expect_str_eq(strbuf_text(&out), cases[i].line, "%s", strbuf_text(&out));
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
