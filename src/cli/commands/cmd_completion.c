#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "cli/help/completion.h"
#include "cli/jobs/local_agents_io.h"
#include "cli/options/commands.h"
#include "rendezvous/operate/recent_runs_io.h"

#define NAMES_MAX 32

static void add(struct completion_offer *o, char *word) {
    utf8_clean(word, false);
    completion_add(o, word);
}

static void add_nodes(struct completion_offer *o, const struct ps_row *row) {
    struct operator_reply reply;
    struct err err = {0};
    struct operator_auth *auth = NULL;
    if (operator_auth_new(&(struct operator_auth_config){0}, &auth, &err) == 0 &&
        local_agents_ask(auth, row, &reply) == 0) {
        for (uint32_t i = 0; i < reply.n_nodes; i++)
            add(o, reply.nodes[i].name);
        operator_reply_fini(&reply);
    }
    operator_auth_free(auth);
}

/* Each run id once: of runs with logs, or if none has any, of all: "muster logs" explains then. */
static void add_recent_runs(struct completion_offer *o) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n = 0;
    if (recent_runs_list(&runs, &n, NULL) < 0)
        return;
    bool logs = false;
    for (size_t i = 0; i < n; i++)
        logs = logs || runs[i].log_dir[0] != '\0';
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || (strcmp(runs[k].run_id, runs[i].run_id) == 0 &&
                              (!logs || runs[k].log_dir[0] != '\0'));
        if (!again && !(logs && runs[i].log_dir[0] == '\0'))
            add(o, runs[i].run_id);
    }
}

static void add_words(struct completion_offer *o, const char *question) {
    struct ps_row *rows = NULL;
    size_t n = 0;
    bool ids = strcmp(question, &OFFER_RUN_IDS[1]) == 0;
    if (strcmp(question, &OFFER_RECENT_RUNS[1]) == 0) {
        add_recent_runs(o);
        return;
    }
    if (local_agents_list(NULL, &rows, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        bool again = false; /* several agents of one job */
        if (rows[i].head_nodes > 0)
            continue; /* it answers no questions */
        for (size_t k = 0; k < i; k++)
            again =
                again || (rows[k].head_nodes == 0 && strcmp(rows[k].run_id, rows[i].run_id) == 0);
        utf8_clean(rows[i].run_id, false);
        if (ids && !again)
            add(o, rows[i].run_id);
        else if (!again)
            add_nodes(o, &rows[i]);
    }
    local_agents_free(rows, n);
}

/* What the scripts run: the kind, then a word on each line. No errors: a person is typing. */
static int print_offer(enum completion_shell shell, int n, char **words) {
    const char *names[NAMES_MAX + 1];
    const struct option_set *sets[NAMES_MAX + 1];
    size_t n_names = 0, n_sets = 0;
    for (const struct subcommand *c = commands; c->name != NULL; c++) {
        assert(n_names < NAMES_MAX);
        names[n_names++] = c->name;
        if (c->options != NULL)
            sets[n_sets++] = c->options;
    }
    names[n_names] = NULL;
    sets[n_sets] = NULL;
    struct completion_offer offer;
    completion_offer(&(struct completion_line){shell, names, sets, words, n}, &offer);
    if (offer.question != NULL)
        add_words(&offer, offer.question);
    printf("%s\n%s", offer.kind, strbuf_text(&offer.lines));
    completion_fini(&offer);
    return finish_stdout();
}

int cmd_completion(int argc, char **argv) {
    if (argc >= 3 && strcmp(argv[1], "offer") == 0 && completion_shell_of(argv[2]) != 0)
        return print_offer(completion_shell_of(argv[2]), argc - 3, argv + 3);
    if (argc != 2)
        return usage_error("completion", "which shell? muster completion bash|zsh|fish");
    if (help_is_asked(argv[1])) {
        (void)puts("usage: muster completion bash|zsh|fish\n\n"
                   "Prints a script for the shell: source <(muster completion bash)");
        return finish_stdout();
    }
    enum completion_shell shell = completion_shell_of(argv[1]);
    if (shell == 0)
        return usage_error("completion", "no completion for \"%s\"; only for bash, zsh and fish",
                           argv[1]);
    (void)fputs(completion_script(shell), stdout);
    return finish_stdout();
}
