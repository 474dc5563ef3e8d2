#include <string.h>

#include "cli/jobs/operate.h"
#include "cli/jobs/watch_io.h"
#include "cli/options/commands.h"

enum { STATUS_JSON = OPERATE_OWN, STATUS_OUTPUT, STATUS_WATCH, STATUS_OPTION_COUNT };

static const struct option_def defs[STATUS_OPTION_COUNT] = {
    OPERATE_ROWS,
    [STATUS_JSON] = {.name = "json",
                     .flags = OPTION_SHORT,
                     .brief = "print one JSON object, for programs",
                     .help = "print one JSON object in one line, for programs"},
    [STATUS_OUTPUT] = {.name = "output",
                       .letter = 'o',
                       .arg = "FORMAT",
                       .choices = "wide json",
                       .flags = OPTION_SHORT,
                       .brief = "wide: all columns; json: as --json",
                       .help = "print all columns, in lines of any width (wide), or the same as "
                               "--json"},
    [STATUS_WATCH] = {.name = "watch",
                      .letter = 'w',
                      .flags = OPTION_SHORT,
                      .brief = "show it every second, until the job ends",
                      .help = "print the state again every second, until the job ends"},
};

const struct option_set status_options = {
    .command = "status",
    .operands = "[ENDPOINT]",
    .about =
        "Shows a job's state and its nodes, as the leader sees them. ENDPOINT is HOST:PORTS "
        "(the job's endpoint or any agent's listener), dir:/path, etcd://HOST:PORT or the run "
        "id, or its beginning, of a job that runs or ran on this machine; without it, the only "
        "job of this machine.",
    .example = "muster status --watch",
    .offer = OFFER_LISTENERS,
    .defs = defs,
    .n = STATUS_OPTION_COUNT,
};

int cmd_status(int argc, char **argv) {
    struct operation op;
    int status = operation_read(&status_options, argc, argv, 1, &op);
    if (status >= 0)
        return status;
    op.place.endpoint = op.operands[0];
    const struct option_value *values = op.parsed.values;
    const char *output = values[STATUS_OUTPUT].text;
    bool json = values[STATUS_JSON].times > 0 || (output != NULL && strcmp(output, "json") == 0);
    status = operation_begin(&op);
    if (status >= 0)
        return status;
    status = watch_job(&op,
                       json             ? WATCH_JSON
                       : output != NULL ? WATCH_WIDE
                                        : WATCH_TEXT,
                       values[STATUS_WATCH].times > 0);
    operation_end(&op);
    return status;
}
