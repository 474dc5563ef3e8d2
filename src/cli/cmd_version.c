#include <stdio.h>

#include "cli/commands.h"

int cmd_version(int argc, char **argv) {
    if (argc > 1)
        return usage_error("version", "unknown argument \"%s\"", argv[1]);
    printf("muster %s\n", MUSTER_VERSION);
    return finish_stdout();
}
