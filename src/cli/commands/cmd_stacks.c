/* "muster stacks": what the workers of a job do. */
#include <stdio.h>

#include "base/text/log.h"
#include "cli/jobs/operate_io.h"
#include "cli/options/commands.h"
#include "cli/stacks/stacks_text.h"

enum { STACKS_RANK = OPERATE_OWN, STACKS_NODE, STACKS_JSON };

static const struct option_def defs[] = {
    OPERATE_JOB_ROWS,
    [STACKS_RANK] = {"rank", "LIST", OPTION_SHORT,
                     "show only these ranks, such as 0-3,7, and more of each group",
                     .brief = "only these ranks, such as 0-3,7"},
    [STACKS_NODE] = {"node", "NAME", OPTION_SHORT,
                     "show only the ranks of this node, named as in muster status",
                     .offer = OFFER_NODES, .brief = "only the ranks of this node"},
    [STACKS_JSON] = {"json", NULL, OPTION_SHORT,
                     "print one JSON object in one line with everything that the nodes report",
                     .brief = "print one JSON object, for programs"},
    [OPERATE_TIMEOUT] =
        {"timeout", "SECONDS", OPTION_SHORT,
         "how long the nodes may look, and how long to wait for each address, 0.001 to 60",
         .brief = "time limit for the nodes' answers (5)", .fallback = "5"},
};

const struct option_set stacks_options = {
    .command = "stacks",
    .operands = "[JOB]",
    .about = "Shows what the workers of a job do, on all its nodes: ranks at the same place of the "
             "program are one group, with its Python stack and what it waits for. No worker is "
             "stopped for it." JOB_IS,
    .example = "--rank 3",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(defs),
};

struct asked {
    struct operation op;
    struct rank_set ranks;
};

static int show(void *arg, const struct operator_reply *reply) {
    const struct asked *a = arg;
    const struct option_value *values = a->op.parsed.values;
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct stacks_view view = {.run_id = reply->run_id,
                               .answer = &reply->stacks,
                               .ranks = &a->ranks,
                               .node = values[STACKS_NODE].text,
                               .wall_ns = reply->wall_ns,
                               .json = values[STACKS_JSON].times > 0};
    int r = stacks_show(&view, &text, &err);
    if (r < 0)
        return print_failure(&err);
    if (err.text[0] != '\0')
        log_warning("%s", err.text);
    int status = print_text(&text);
    return status == 0 && r == 0 ? EXIT_JOB_FAILED : status;
}

int cmd_stacks(int argc, char **argv) {
    struct asked a = {0};
    struct err err = {0};
    int status = operation_read(&stacks_options, argc, argv, 1,
                                RDZV_STACKS_TIMEOUT_MAX_NS / NS_PER_S, &a.op);
    if (status >= 0)
        return status;
    const char *list = a.op.parsed.values[STACKS_RANK].text;
    if (list != NULL && rank_set_parse(list, &a.ranks, &err) < 0)
        return usage_error("stacks", "%s", err.text);
    a.op.place.endpoint = a.op.operands[0];
    a.op.place.all_users = true;
    struct command command = {.kind = COMMAND_STACKS, .timeout_ns = a.op.timeout_ns};
    return operation_run(&a.op, &command, show, &a);
}
