#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "cli/help/help.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"
#include "rendezvous/store/store_io.h"

enum store_option { STORE_LISTEN, STORE_PORT_FILE, STORE_AUTH };

static const struct option_def defs[] = {
    [STORE_LISTEN] = {"listen", "ADDR:PORT", OPTION_SHORT,
                      "where to listen: an address, localhost, or no address for all; port 0 means "
                      "any free port",
                      .letter = 'l', .brief = "address and port; port 0: any free port"},
    [STORE_PORT_FILE] = {"port-file", "FILE", OPTION_SHORT,
                         "write the port to FILE when clients can connect"},
    [STORE_AUTH] = {"auth", "HOW", OPTION_SHORT,
                    "who may connect from this machine: this user's processes and root's (auto), "
                    "or all users (none)",
                    .choices = "auto none",
                    .brief = "which users of this machine may connect (auto)"},
    HELP_ROW(),
    HELP_ALL_ROW,
};

const struct option_set store_options = {
    .command = "store",
    .operands = "",
    .about = "Serves PyTorch's TCPStore protocol until SIGTERM or SIGINT. Prints \"listening on "
             "ADDR:PORT\" when clients can connect.",
    .example = "--listen localhost:0",
    OPTION_DEFS(defs),
};

static int on_ready(void *arg, const char *where) {
    printf("listening on %s\n", where);
    return finish_stdout() == 0 ? 0 : -EIO;
}

int cmd_store(int argc, char **argv) {
    struct options_parsed parsed;
    struct err err = {0};
    int status = help_or_parse(&store_options, argc, argv, NULL, 0, &parsed);
    if (status >= 0)
        return status;
    if (parsed.values[STORE_LISTEN].text == NULL)
        return usage_error("store", "where? --listen ADDR:PORT, for instance --listen localhost:0");
    const char *auth = parsed.values[STORE_AUTH].text;
    bool any_user = auth != NULL && strcmp(auth, "none") == 0;
    struct store_serve_config config = {.listen = parsed.values[STORE_LISTEN].text,
                                        .any_user = any_user,
                                        .port_file = parsed.values[STORE_PORT_FILE].text,
                                        .on_ready = on_ready,
                                        .log = log_warning_line};
    int r = store_serve(&config, &err);
    if (r == -EINVAL)
        return usage_error("store", "%s", err.text);
    return r < 0 ? print_failure(&err) : 0;
}
