#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/options/commands.h"

bool help_is_asked(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
           strcmp(word, "--help-all") == 0;
}

static void print_overview(void) {
    printf("usage: muster COMMAND [ARGS...]\n"
           "Starts, watches and restarts distributed training jobs.\n\n");
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        printf("%-9s %-11s %s\n", c->group != NULL ? c->group : "", c->name, c->summary);
    printf("Example: muster run --nproc-per-node=gpu train.py --epochs 10\n"
           "More: muster COMMAND -h, man muster. A link named torchrun is \"muster run\".\n");
}

int cmd_help(int argc, char **argv) {
    if (argc > 2)
        return usage_error("help", "one command at most");
    if (argc < 2 || strcmp(argv[1], "help") == 0 || help_is_asked(argv[1])) {
        print_overview();
        return finish_stdout();
    }
    const struct subcommand *c = command_find(argv[1]);
    if (c == NULL)
        return usage_error("help", "unknown command \"%s\"; see \"muster help\"", argv[1]);
    /* A command with a table of options prints its own help. */
    if (c->options != NULL) {
        char option[] = "--help", *words[] = {argv[1], option, NULL};
        return c->run(2, words);
    }
    printf("usage: muster %s %s\n\n%c%s.\n", c->name, c->args, toupper(c->summary[0]),
           &c->summary[1]);
    return finish_stdout();
}
