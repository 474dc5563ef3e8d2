#include <stdio.h>
#include <string.h>

#include "cli/options/commands.h"

static void print_overview(void) {
    printf("muster starts, watches and restarts distributed training jobs.\n\n"
           "usage: muster COMMAND [ARGS...]\n\n"
           "Commands:\n");
    for (const struct subcommand *c = commands; c->name != NULL; c++)
        printf("  %-12s %s\n", c->name, c->summary);
    printf("\nA copy or link of muster named \"torchrun\" behaves as \"muster run\".\n"
           "More: muster help COMMAND, man muster\n");
}

int cmd_help(int argc, char **argv) {
    if (argc > 2)
        return usage_error("help", "one command at most");
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
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
    printf("usage: muster %s %s\n\n%s\n", c->name, c->args, c->summary);
    return finish_stdout();
}
