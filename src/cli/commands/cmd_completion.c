#include <stdio.h>
#include <string.h>

#include "cli/help/completion.h"
#include "cli/options/commands.h"

#define NAMES_MAX 32

int cmd_completion(int argc, char **argv) {
    if (argc != 2)
        return usage_error("completion", "which shell? muster completion bash|zsh");
    if (help_is_asked(argv[1])) {
        (void)puts("usage: muster completion bash|zsh\n\n"
                   "Prints a script for the shell: source <(muster completion bash)");
        return finish_stdout();
    }
    bool bash = strcmp(argv[1], "bash") == 0;
    if (!bash && strcmp(argv[1], "zsh") != 0)
        return usage_error("completion", "no completion for \"%s\"; only for bash and zsh",
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
    if (bash)
        completion_bash(names, sets, &text);
    else
        completion_zsh(names, sets, &text);
    (void)fputs(strbuf_text(&text), stdout);
    return finish_stdout();
}
