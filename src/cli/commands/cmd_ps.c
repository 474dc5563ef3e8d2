/* "muster ps": the jobs of this machine. */
#include <unistd.h>

#include "cli/help/help.h"
#include "cli/jobs/local_agents_io.h"
#include "cli/jobs/screen_io.h"
#include "cli/options/commands.h"

enum { PS_OUTPUT, PS_JSON };

static const struct option_def defs[] = {
    [PS_OUTPUT] = OUTPUT_ROW,
    [PS_JSON] = JSON_ROW,
    HELP_ROW(),
    HELP_ALL_ROW,
};

const struct option_set ps_options = {
    .command = "ps",
    .operands = "",
    .about = "Lists the jobs that run on this machine: those of this user, or as root those of all "
             "users. For all nodes of a job: muster status.",
    .example = "-o wide",
    OPTION_DEFS(defs),
};

int cmd_ps(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    int status = help_or_parse(&ps_options, argc, argv, NULL, 0, &p);
    if (status >= 0)
        return status;
    enum output_format format = output_format(&p.values[PS_JSON], &p.values[PS_OUTPUT]);
    struct operator_auth *auth = NULL;
    struct ps_row *rows = NULL;
    size_t n = 0;
    int r = operator_auth_new(&(struct operator_auth_config){.lenient = true}, &auth, &err);
    if (r == 0)
        r = local_agents_list(auth, &rows, &n, &err);
    operator_auth_free(auth);
    if (r < 0)
        return print_failure(&err);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (format == OUTPUT_JSON)
        ps_json(rows, n, &text);
    else if (n == 0)
        strbuf_printf(&text, "no job%s runs on this machine\n", geteuid() == 0 ? "" : " of yours");
    else
        ps_text(rows, n, format == OUTPUT_WIDE, screen_columns(), &text);
    local_agents_free(rows, n);
    return print_text(&text);
}
