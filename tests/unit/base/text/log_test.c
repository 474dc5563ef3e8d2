#include "base/text/log.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include "base/text/strbuf.h"
#include "rig/unit.h"

static void gather(void *arg, const char *line, size_t len) {
    struct strbuf *to = arg;
    strbuf_add_char(to, '<');
    strbuf_add_bytes(to, line, len);
    strbuf_add_char(to, '>');
}

static struct strbuf s;
static void set_up(void) { log_set_sink(gather, &s); }
static void tear_down(void) { strbuf_fini(&s); }
TestSuite(log, .init = set_up, .fini = tear_down);

Test(log, each_level_has_its_word_and_each_event_its_line) {
    log_set_level(LOG_LEVEL_DEBUG);
    log_error("a %d", 1);
    log_warning("b");
    log_notice("c");
    log_info("d");
    log_debug("e");
    cr_assert_str_eq(strbuf_text(&s), "<muster: error: a 1\n><muster: warning: b\n><muster: c\n>"
                                      "<muster: d\n><muster: debug: e\n>");
}

Test(log, lines_beside_those_of_others_have_a_name) {
    log_set_name("node2");
    log_error("a");
    log_notice("b");
    log_set_name(NULL);
    log_notice("c");
    cr_assert_str_eq(strbuf_text(&s), "<muster: error: node2: a\n><muster: node2: b\n><muster: c\n>");
}

Test(log, a_long_text_is_broken_behind_a_semicolon_or_a_blank) {
    log_folded(LOG_LEVEL_WARNING, "short; text");
    log_folded(LOG_LEVEL_WARNING, "the job hangs: %060d; rank 2 waits in %030d; rank 3 %060d; %0120d", 1, 2, 3, 4);
    cr_assert_str_eq(strbuf_text(&s),
                     "<muster: warning: short; text\n>"
                     "<muster: warning: the job hangs: "
                     "000000000000000000000000000000000000000000000000000000000001;\n"
                     "        rank 2 waits in 000000000000000000000000000002;\n"
                     "        rank 3 000000000000000000000000000000000000000000000000000000000003;\n"
                     "        000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
                     "000000000000000000000000000000004\n>");
    strbuf_clear(&s);
    log_folded(LOG_LEVEL_NOTICE, "%090d bc", 1);
    cr_assert_str_eq(strbuf_text(&s), "<muster: 0000000000000000000000000000000000000000000000000000000000000000000000"
                                      "00000000000000000001\n        bc\n>");
}

Test(log, by_default_notices_are_shown_and_more_is_not) {
    log_notice("shown");
    log_info("hidden");
    log_debug("hidden");
    cr_assert_str_eq(strbuf_text(&s), "<muster: shown\n>");
    cr_assert(log_enabled(LOG_LEVEL_NOTICE));
    cr_assert_not(log_enabled(LOG_LEVEL_INFO));
}

Test(log, at_level_error_nothing_else_comes) {
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("hidden");
    log_error("shown");
    cr_assert_str_eq(strbuf_text(&s), "<muster: error: shown\n>");
}

Test(log, escape_sequences_of_a_text_reach_no_terminal) {
    log_warning("%s", "a\x1b[2J\xc2\x9b"
                      "b\n\tc\r");
    cr_assert_str_eq(strbuf_text(&s), "<muster: warning: a?[2J??b\n\tc?\n>");
}

Test(log, an_overlong_line_is_cut_but_ends_with_its_newline) {
    char *longest = xmalloc(10000);
    memset(longest, 'x', 9999);
    longest[9999] = '\0';
    log_notice("%s", longest);
    free(longest);
    cr_assert_gt(s.len, 4000);
    cr_assert_lt(s.len, 5000);
    cr_assert_str_eq(s.data + s.len - 3, "x\n>");
}

Test(log, without_a_sink_lines_go_to_standard_error, .init = cr_redirect_stderr) {
    log_set_sink(NULL, NULL);
    log_notice("to people");
    (void)fflush(stderr);
    cr_assert_stderr_eq_str("muster: to people\n");
}

Test(log, level_names_in_any_case) {
    static const struct {
        const char *name;
        enum log_level level;
    } rows[] = {
        {"DEBUG", LOG_LEVEL_DEBUG},     {"debug", LOG_LEVEL_DEBUG}, {"Info", LOG_LEVEL_INFO},
        {"NOTICE", LOG_LEVEL_NOTICE},   {"ERROR", LOG_LEVEL_ERROR}, {"CRITICAL", LOG_LEVEL_ERROR},
        {"WARNING", LOG_LEVEL_WARNING},
    };
    enum log_level level;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cr_assert_eq(log_level_parse(rows[i].name, &level), 0, "%s", rows[i].name);
        cr_assert_eq(level, rows[i].level, "%s", rows[i].name);
    }
    level = LOG_LEVEL_INFO;
    cr_assert_eq(log_level_parse("", &level), -EINVAL);
    cr_assert_eq(log_level_parse("LOUD", &level), -EINVAL);
    cr_assert_eq(level, LOG_LEVEL_INFO);
}

Test(log, who_lacks_descriptors_is_told_the_remedy_once) {
    log_error("can't do it: %s", strerror(EMFILE));
    log_error("can't do it: %s; raise ulimit -n", strerror(EMFILE));
    log_error("can't do it: %s", strerror(ENFILE));
    cr_assert_str_eq(strbuf_text(&s),
                     "<muster: error: can't do it: Too many open files (this process's limit: raise it "
                     "with ulimit -n)\n>"
                     "<muster: error: can't do it: Too many open files; raise ulimit -n\n>"
                     "<muster: error: can't do it: Too many open files in system (the machine's limit: "
                     "sysctl fs.file-max)\n>");
}
