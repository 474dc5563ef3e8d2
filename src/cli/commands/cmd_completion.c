#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "cli/help/completion.h"
#include "cli/jobs/local_agents_io.h"
#include "cli/jobs/operator_auth_io.h"
#include "cli/options/commands.h"
#include "rendezvous/operate/operator_io.h"
#include "rendezvous/operate/recent_runs_io.h"

#define NAMES_MAX 32

static void print_nodes(const struct ps_row *row) {
    struct operator_reply reply;
    struct err err = {0};
    struct loop *loop = NULL;
    struct operator_auth *auth = NULL;
    struct operator_question q = {.host = row->addr,
                                  .port = row->port,
                                  .run_id = row->run_id,
                                  .command = {.kind = COMMAND_STATUS},
                                  .timeout_ns = LOCAL_AGENTS_TIMEOUT_NS};
    int r = loop_new(&loop);
    if (r == 0)
        r = operator_auth_new(loop, &(struct operator_auth_config){0}, &auth, &err);
    q.auth = operator_auth(auth);
    if (r == 0 && operator_ask(loop, &q, &reply, &err) == 0) {
        for (uint32_t i = 0; i < reply.n_nodes; i++) {
            utf8_clean(reply.nodes[i].name, false);
            (void)puts(reply.nodes[i].name);
        }
        operator_reply_fini(&reply);
    }
    operator_auth_free(auth);
    loop_free(loop);
}

/* Each run id once: of runs with logs, if there are any. Otherwise of all runs: then "muster logs"
 * says what to do. */
static int print_recent_runs(void) {
    _cleanup_(freep) struct recent_run *runs = NULL;
    size_t n = 0;
    if (recent_runs_list(&runs, &n, NULL) < 0)
        return EXIT_JOB_FAILED;
    bool logs = false;
    for (size_t i = 0; i < n; i++)
        logs = logs || runs[i].log_dir[0] != '\0';
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || (strcmp(runs[k].run_id, runs[i].run_id) == 0 &&
                              (!logs || runs[k].log_dir[0] != '\0'));
        if (again || (logs && runs[i].log_dir[0] == '\0'))
            continue;
        utf8_clean(runs[i].run_id, false);
        (void)puts(runs[i].run_id);
    }
    return finish_stdout();
}

/* What the scripts ask while a person types: a word on each line. Nothing is said about errors. */
static int print_words(const char *question) {
    struct ps_row *rows = NULL;
    size_t n = 0;
    bool ids = strcmp(question, &OFFER_RUN_IDS[1]) == 0;
    bool nodes = strcmp(question, &OFFER_NODES[1]) == 0;
    if (strcmp(question, &OFFER_RECENT_RUNS[1]) == 0)
        return print_recent_runs();
    if (!ids && !nodes && strcmp(question, &OFFER_LISTENERS[1]) != 0)
        return usage_error("completion",
                           "no words for \"%s\": run-ids, recent-runs, nodes or listeners",
                           question);
    if (local_agents_list(NULL, NULL, &rows, &n, NULL) < 0)
        return EXIT_JOB_FAILED;
    for (size_t i = 0; i < n; i++) {
        bool again = false; /* several agents of one job */
        if (rows[i].head_nodes > 0)
            continue; /* nobody can ask it */
        for (size_t k = 0; k < i; k++)
            again =
                again || (rows[k].head_nodes == 0 && strcmp(rows[k].run_id, rows[i].run_id) == 0);
        utf8_clean(rows[i].run_id, false);
        if (ids && !again)
            (void)puts(rows[i].run_id);
        else if (nodes && !again)
            print_nodes(&rows[i]);
        else if (!ids && !nodes)
            printf("%s:%u\n", rows[i].addr, rows[i].port);
    }
    local_agents_free(rows, n);
    return finish_stdout();
}

int cmd_completion(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "words") == 0)
        return print_words(argv[2]);
    if (argc != 2)
        return usage_error("completion", "which shell? muster completion bash|zsh|fish");
    if (help_is_asked(argv[1])) {
        (void)puts("usage: muster completion bash|zsh|fish\n\n"
                   "Prints a script for the shell: source <(muster completion bash)");
        return finish_stdout();
    }
    static const struct {
        const char *name;
        void (*write)(const char *const *, const struct option_set *const *, struct strbuf *);
    } shells[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};
    size_t shell = 0;
    while (shell < ARRAY_SIZE(shells) && strcmp(argv[1], shells[shell].name) != 0)
        shell++;
    if (shell == ARRAY_SIZE(shells))
        return usage_error("completion", "no completion for \"%s\"; only for bash, zsh and fish",
                           argv[1]);
    const char *names[NAMES_MAX + 1];
    const struct option_set *sets[NAMES_MAX + 1];
    size_t n = 0, n_sets = 0;
    for (const struct subcommand *c = commands; c->name != NULL; c++) {
        assert(n < NAMES_MAX);
        names[n++] = c->name;
        if (c->options != NULL)
            sets[n_sets++] = c->options;
    }
    names[n] = NULL;
    sets[n_sets] = NULL;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    shells[shell].write(names, sets, &text);
    (void)fputs(strbuf_text(&text), stdout);
    return finish_stdout();
}
