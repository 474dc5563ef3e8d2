#include <stdio.h>
#include <string.h>

#include "cli/help/completion.h"
#include "cli/options/commands.h"

#define NAMES_MAX 32

int cmd_completion(int argc, char **argv) {
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
