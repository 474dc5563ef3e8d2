/* "muster leave", "exclude", "grow" and "stop": one question, one answer. */
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/utf8.h"
#include "cli/jobs/operate_io.h"
#include "cli/options/commands.h"

enum { OPERATE_REASON = OPERATE_OWN };

static const struct option_def plain_defs[] = {OPERATE_ROWS};
static const struct option_def reason_defs[] = {
    OPERATE_ROWS,
    [OPERATE_REASON] = {"reason", "TEXT", OPTION_SHORT, "for the job's log and report"},
};

const struct option_set leave_options = {
    .command = "leave",
    .operands = "[JOB]",
    .about = "Takes a node out of its job: its workers get time to stop, and its agent ends; the "
             "others continue without it. JOB is a run id as muster ps shows it, or a unique "
             "prefix of one, for the agent on this machine; or HOST:PORT, the listener of the "
             "node's agent. Without JOB: the only agent on this machine.",
    .example = "--reason maintenance",
    .page = "operate",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(reason_defs),
};
const struct option_set exclude_options = {
    .command = "exclude",
    .operands = "NODE [JOB]",
    .about = "Excludes a node from the group permanently; a spare takes its place if there is one. "
             "NODE is its name or its id, as muster status shows them." JOB_IS,
    .example = "--reason \"ECC errors\" node7",
    .page = "operate",
    .offer = OFFER_NODES,
    OPTION_DEFS(reason_defs),
};
const struct option_set grow_options = {
    .command = "grow",
    .operands = "[JOB]",
    .about = "Forms a new group at once, with the waiting nodes." JOB_IS,
    .page = "operate",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(plain_defs),
};
const struct option_set stop_options = {
    .command = "stop",
    .operands = "[JOB]",
    .about = "Ends the job on all its nodes." JOB_IS,
    .example = "job7",
    .page = "operate",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(reason_defs),
};

static int show(void *arg, const struct operator_reply *reply) {
    if (reply->has_overview || !reply->answer.ok) {
        log_error("%s: %s", reply->run_id,
                  reply->has_overview ? "the agent gave no answer" : reply->answer.text);
        return EXIT_JOB_FAILED;
    }
    /* with the id, which can be another one than its user thought of */
    printf("%s: %s\n", reply->run_id, reply->answer.text);
    return finish_stdout();
}

/* Carries out the command; everything except NODE and JOB is read already. */
static int operate(struct operation *op, enum command_kind kind, const char *node) {
    struct command command = {.kind = kind};
    const char *reason =
        op->set->n > OPERATE_REASON ? op->parsed.values[OPERATE_REASON].text : NULL;
    struct err err = {0};
    node = node != NULL ? node : "";
    reason = reason != NULL ? reason : "";
    if (kind == COMMAND_EXCLUDE && node[0] == '\0')
        return usage_error(op->set->command, "NODE: must not be empty");
    if (utf8_check_line("NODE", node, sizeof command.node - 1, &err) < 0 ||
        utf8_check_line("--reason", reason, sizeof command.reason - 1, &err) < 0)
        return usage_error(op->set->command, "%s", err.text);
    (void)strcpy(command.node, node);
    (void)strcpy(command.reason, reason);
    return operation_run(op, &command, show, NULL);
}

static int operate_simple(const struct option_set *set, enum command_kind kind, int argc,
                          char **argv) {
    struct operation op;
    int status = operation_read(set, argc, argv, 1, OPERATE_TIMEOUT_MAX_S, &op);
    if (status >= 0)
        return status;
    op.place.endpoint = op.operands[0];
    op.place.one_agent = kind == COMMAND_LEAVE;
    return operate(&op, kind, NULL);
}

int cmd_leave(int argc, char **argv) {
    return operate_simple(&leave_options, COMMAND_LEAVE, argc, argv);
}

int cmd_grow(int argc, char **argv) {
    return operate_simple(&grow_options, COMMAND_GROW, argc, argv);
}

int cmd_stop(int argc, char **argv) {
    return operate_simple(&stop_options, COMMAND_STOP, argc, argv);
}

int cmd_exclude(int argc, char **argv) {
    struct operation op;
    int status = operation_read(&exclude_options, argc, argv, 2, OPERATE_TIMEOUT_MAX_S, &op);
    if (status >= 0)
        return status;
    if (op.n_operands == 0)
        return usage_error("exclude", "which NODE? See \"muster status\"");
    op.place.endpoint = op.operands[1];
    return operate(&op, COMMAND_EXCLUDE, op.operands[0]);
}
