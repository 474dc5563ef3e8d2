#include "cli/help/completion.h"

#include "cli/options/options_table.h"
#include "rig/unit.h"

static const struct option_def logs_defs[] = {
    {.name = "follow", .letter = 'f', .help = "follow"},
    {.name = "rdzv-id", .arg = "ID", .help = "its id", .offer = OFFER_RUN_IDS},
    {.name = "output", .letter = 'o', .arg = "FORM", .help = "how", .choices = "wide json"},
};
static const struct option_set logs = {.command = "logs",
                                       .operands = "[RUN...]",
                                       .defs = logs_defs,
                                       .n = ARRAY_SIZE(logs_defs),
                                       .offer = OFFER_RECENT_RUNS};
static const struct option_set *const sets[] = {&run_options, &logs, NULL};
static const char *const names[] = {"run", "logs", "help", NULL};

/* Everything that is offered: the kind, then the words; a question as "?QUESTION". The line's words stand between "|". */
static const char *offered(enum completion_shell shell, const char *line) {
    static char text[8192], copy[512];
    char *words[32];
    int n = 0;
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *p = copy; p != NULL; n++)
        words[n] = strsep(&p, "|");
    struct completion_offer offer;
    completion_offer(&(struct completion_line){shell, names, sets, words, n}, &offer);
    if (offer.question != NULL) { /* as if these were the answer */
        completion_add(&offer, "train-a");
        completion_add(&offer, "h:29500");
    }
    (void)snprintf(text, sizeof text, "%s%s%s\n%s", offer.kind, offer.question != NULL ? "?" : "",
                   offer.question != NULL ? offer.question : "", strbuf_text(&offer.lines));
    completion_fini(&offer);
    return text;
}

static const struct {
    const char *line, *offer;
} bash_lines[] = {
    {"muster|r", "words\nrun\n"},
    {"muster|help|l", "words\nlogs\n"},
    {"muster|completion|z", "words\nzsh\n"},
    {"muster|nothing|x|", "words\n"},
    {"muster", "words\n"},
    {"/usr/bin/muster|run|--nproc", "words\n--nproc-per-node\n"},
    {"/usr/bin/torchrun|--nproc", "words\n--nproc-per-node\n"},
    /* a value: the next word, or behind "=", which bash makes a word of its own */
    {"muster|run|--rdzv-backend|c", "words\nc10d\n"},
    {"muster|run|--rdzv_backend|=|c", "words\nc10d\n"},
    {"muster|run|--rdzv_backend|=", "words\nc10d\nstatic\ndir\netcd\n"},
    {"muster|run|--rdzv-endpoint|=|h|:|29400|--nproc-per-node|g", "words\ngpu\n"},
    {"muster|run|--warm|=|p", "words\nprocess\n"},
    {"muster|run|--warm|--nproc", "words\n--nproc-per-node\n"},
    {"muster|run|--log-dir|x", "folders\n"},
    {"muster|run|--hostfile|x", "files\n"},
    {"muster|run|--rdzv-conf|=|join", "words\njoin_timeout=\n"},
    {"muster|run|--rdzv-conf|=|join_timeout|=|3,last", "words\n3,last_call_timeout=\n"},
    {"muster|run|--rdzv-conf|=|join_timeout|=|3", "words\n"},
    {"muster|logs|-o|", "words\nwide\njson\n"},
    {"muster|logs|-f|--fol", "words\n--follow\n"},
    {"muster|logs|--rdzv-id|t", "words?run-ids\ntrain-a\n"},
    {"muster|logs|a-run|t", "folders?recent-runs\ntrain-a\n"},
    {"muster|logs|h|:|2", "folders?recent-runs\n29500\n"},
    {"muster|logs|--|-f", "folders?recent-runs\n"},
    {"muster|logs|--rdzv-id|--|--fol", "words\n--follow\n"},
    /* the script, and what follows it */
    {"muster|run|t", "files\n"},
    {"muster|run|--nnodes|2|t", "files\n"},
    {"muster|run|t.py|--nproc", "words\n"},
    {"muster|run|-r|3|t.py|--nproc", "words\n"},
    {"muster|run|--|t.py|--nproc", "words\n"},
    {"muster|run|--|--nproc", "files\n"},
    {"muster|run|--warm|t.py|--nproc", "words\n"},
};

Test(completion, each_position_of_a_line_has_its_words) {
    for (size_t i = 0; i < ARRAY_SIZE(bash_lines); i++)
        cr_expect_str_eq(offered(COMPLETION_BASH, bash_lines[i].line), bash_lines[i].offer, "%s: %s",
                         bash_lines[i].line, offered(COMPLETION_BASH, bash_lines[i].line));
}

/* zsh and fish get whole words with their help; zsh shows by a "=" that an option takes a value. */
Test(completion, zsh_and_fish_get_whole_words_with_help) {
    cr_assert_str_eq(offered(COMPLETION_FISH, "muster|run|--rdzv-backend=c"), "words\n--rdzv-backend=c10d\n");
    cr_assert_str_eq(offered(COMPLETION_ZSH, "muster|logs|--out"), "words\n--output=\thow\n");
    cr_assert_str_eq(offered(COMPLETION_ZSH, "muster|logs|--fo"), "words\n--follow\tfollow\n");
    cr_assert_str_eq(offered(COMPLETION_FISH, "muster|logs|--out"), "words\n--output\thow\n");
    cr_assert_str_eq(offered(COMPLETION_FISH, "muster|logs|h:2"), "folders?recent-runs\nh:29500\n");
}

Test(completion, every_option_is_offered) {
    for (enum completion_shell shell = COMPLETION_BASH; shell <= COMPLETION_FISH; shell++) {
        char line[128];
        for (size_t i = 0; i < run_options.n; i++) {
            (void)snprintf(line, sizeof line, "muster|run|--%s", run_options.defs[i].name);
            cr_assert_not_null(strstr(offered(shell, line), line + strlen("muster|run|")), "%s", line);
        }
    }
}

Test(completion, shells_have_names_and_scripts) {
    cr_assert_eq(completion_shell_of("zsh"), COMPLETION_ZSH);
    cr_assert_eq(completion_shell_of("tcsh"), 0);
    cr_assert_eq(completion_shell_of(""), 0);
    for (enum completion_shell shell = COMPLETION_BASH; shell <= COMPLETION_FISH; shell++)
        assert_has(completion_script(shell), "muster completion offer");
}
