#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options_table.h"

static void print_overview(void) {
    printf("muster starts, watches and restarts distributed training jobs.\n\n"
           "usage: muster COMMAND [ARGS...]\n\n"
           "Commands:\n");
    for (const struct command *c = commands; c->name != NULL; c++)
        printf("  %-12s %s\n", c->name, c->summary);
    printf("\nA copy or link of muster named \"torchrun\" behaves as \"muster run\".\n"
           "More: muster help COMMAND, man muster\n");
}

int cmd_help(int argc, char **argv) {
    if (argc > 2)
        return usage_error("help", "one command at most");
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        print_overview();
        return finish_stdout();
    }
    const struct command *c = command_find(argv[1]);
    if (c == NULL)
        return usage_error("help", "no command \"%s\"; see \"muster help\"", argv[1]);
    if (strcmp(c->name, run_options.command) == 0) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        options_help(&run_options, &text);
        (void)fputs(strbuf_text(&text), stdout);
    } else {
        printf("usage: muster %s %s\n\n%s\n", c->name, c->args, c->summary);
    }
    return finish_stdout();
}
