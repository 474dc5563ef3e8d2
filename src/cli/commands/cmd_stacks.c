/* "muster stacks": what the workers of a job do. */
#include <stdio.h>

#include "base/text/log.h"
#include "cli/jobs/operate.h"
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

static int print(const struct option_value *values, const struct operator_reply *reply,
                 const struct rank_set *ranks) {
    struct err err = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct stacks_view view = {.run_id = reply->run_id,
                               .answer = &reply->stacks,
                               .ranks = ranks,
                               .node = values[STACKS_NODE].text,
                               .wall_ns = reply->wall_ns,
                               .json = values[STACKS_JSON].times > 0};
    int r = stacks_show(&view, &text, &err);
    if (r < 0)
        return print_failure(&err);
    if (err.text[0] != '\0')
        log_warning("%s", err.text);
    (void)fwrite(strbuf_text(&text), 1, text.len, stdout);
    int status = finish_stdout();
    return status == 0 && r == 0 ? EXIT_JOB_FAILED : status;
}

static int ask(const struct operation *op, const struct rank_set *ranks) {
    struct command command = {.kind = COMMAND_STACKS, .timeout_ns = op->timeout_ns};
    struct job_found found = {0};
    struct operator_reply reply = {0};
    struct err err = {0};
    int status = EXIT_JOB_FAILED;
    int r = operation_ask(op, &command, &found, &reply, &err);
    if (r < 0)
        status = operation_failed(op, r, &err, &found);
    else if (found.closed)
        log_error("the job '%s' is over: no worker runs", found.run_id);
    else if (reply.stacks.n == 0)
        log_error("%s", reply.answer.text);
    else
        status = print(op->parsed.values, &reply, ranks);
    operator_reply_fini(&reply);
    job_found_fini(&found);
    return status;
}

int cmd_stacks(int argc, char **argv) {
    struct operation op;
    struct rank_set ranks = {0};
    struct err err = {0};
    int status = operation_read_within(&stacks_options, argc, argv, 1,
                                       RDZV_STACKS_TIMEOUT_MAX_NS / NS_PER_S, &op);
    if (status >= 0)
        return status;
    const char *list = op.parsed.values[STACKS_RANK].text;
    if (list != NULL && rank_set_parse(list, &ranks, &err) < 0)
        return usage_error("stacks", "%s", err.text);
    op.place.endpoint = op.operands[0];
    op.place.all_users = true;
    status = operation_begin(&op);
    if (status >= 0)
        return status;
    status = ask(&op, &ranks);
    operation_end(&op);
    return status;
}
