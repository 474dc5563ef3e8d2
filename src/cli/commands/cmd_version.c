#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/found_io.h"
#include "cli/options/commands.h"

int cmd_version(int argc, char **argv) {
    bool verbose = argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--verbose") == 0);
    if (argc == 2 && help_is_asked(argv[1])) {
        char help[] = "help", *words[] = {help, argv[0], NULL};
        return cmd_help(2, words);
    }
    if (argc > 1 && !verbose)
        return usage_error("version", "unknown argument \"%s\"; there is only -v",
                           argv[argc > 2 ? 2 : 1]);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, VERSION_LINE);
    if (verbose) {
        strbuf_add(&text, "built with\n");
        found_built(&text);
        strbuf_add(&text, "found here\n");
        found_here(&text);
    }
    (void)fputs(strbuf_text(&text), stdout);
    return finish_stdout();
}
