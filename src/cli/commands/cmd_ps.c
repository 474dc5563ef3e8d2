/* "muster ps": the jobs of this machine. */
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "cli/commands/topo_io.h"
#include "cli/help/help.h"
#include "cli/jobs/local_agents_io.h"
#include "cli/jobs/operator_auth_io.h"
#include "cli/options/commands.h"

#define COLUMNS 80

enum { PS_OUTPUT, PS_JSON, PS_HELP, PS_HELP_ALL, PS_OPTION_COUNT };

static const struct option_def defs[PS_OPTION_COUNT] = {
    [PS_OUTPUT] = {.name = "output",
                   .letter = 'o',
                   .arg = "FORMAT",
                   .choices = "wide json",
                   .flags = OPTION_SHORT,
                   .brief = "wide: all columns; json: as --json",
                   .help =
                       "print all columns, in lines of any width (wide), or the same as --json"},
    [PS_JSON] = {.name = "json",
                 .flags = OPTION_SHORT,
                 .brief = "print one JSON object, for programs",
                 .help = "print one JSON object in one line, for programs"},
    [PS_HELP] = HELP_ROW(),
    [PS_HELP_ALL] = HELP_ALL_ROW,
};

const struct option_set ps_options = {
    .command = "ps",
    .operands = "",
    .about = "Lists the jobs that run on this machine: those of this user, or as root those of all "
             "users. For all nodes of a job: muster status.",
    .example = "muster ps -o wide",
    .defs = defs,
    .n = PS_OPTION_COUNT,
};

int cmd_ps(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    if (options_parse(&ps_options, argc, argv, &p, &err) < 0)
        return usage_error("ps", "%s", err.text);
    int status = help_answer(&ps_options, &p);
    if (status >= 0)
        return status;
    if (p.operand < argc)
        return usage_error("ps", "unknown argument \"%s\"", argv[p.operand]);
    const char *output = p.values[PS_OUTPUT].text;
    bool json = p.values[PS_JSON].times > 0 || (output != NULL && strcmp(output, "json") == 0);
    struct loop *loop = NULL;
    struct operator_auth *auth = NULL;
    struct ps_row *rows = NULL;
    size_t n = 0;
    int r = loop_new(&loop);
    if (r < 0)
        r = err_set(&err, r, "can't make an event loop: %s", strerror(-r));
    else
        r = operator_auth_new(loop, &(struct operator_auth_config){.lenient = true}, &auth, &err);
    if (r == 0)
        r = local_agents_list(loop, auth, &rows, &n, &err);
    operator_auth_free(auth);
    loop_free(loop);
    if (r < 0) {
        log_error("%s", err.text);
        return EXIT_JOB_FAILED;
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (json)
        ps_json(rows, n, &text);
    else
        ps_text(rows, n, output != NULL, MAX2(topo_width(), (uint32_t)COLUMNS), &text);
    local_agents_free(rows, n);
    (void)fputs(strbuf_text(&text), stdout);
    return finish_stdout();
}
