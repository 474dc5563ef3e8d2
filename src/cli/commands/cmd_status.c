#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "cli/jobs/operate.h"
#include "cli/jobs/status_text.h"
#include "cli/options/commands.h"
#include "io/clock.h"

#define WATCH_NS (1 * NS_PER_S)
/* The job is over if for this long no agent listens at the last leader's address, or where the job
 * was searched. */
#define WATCH_GONE_NS (10 * NS_PER_S)
/* After other failures the network may come back. A person can decide when to stop; a script can't,
 * so it stops after this. */
#define WATCH_PATIENCE_NS (60 * NS_PER_S)

struct watch {
    const struct operation *op;
    enum output_format format;
    bool again, terminal;
    bool shown; /* a state was shown before */
    bool closed;
    char leader[RDZV_ADDR_MAX]; /* address of the agent that answered last */
    uint16_t leader_port;
    char run_id[RDZV_RUN_ID_MAX];
    uint64_t failing_since_ns; /* 0: it is not failing */
};

static int show(struct watch *w, struct status_view *view) {
    view->wide = w->format == OUTPUT_WIDE;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    bool clear = w->again && w->terminal && w->format != OUTPUT_JSON;
    if (clear)
        strbuf_add(&text, "\033[H\033[J");
    else if (w->shown && w->format != OUTPUT_JSON)
        strbuf_add_char(&text, '\n');
    if (w->format == OUTPUT_JSON)
        status_json(view, &text);
    else
        status_text(view, &text);
    (void)fputs(strbuf_text(&text), stdout);
    w->shown = true;
    w->closed = view->overview->state == GROUP_CLOSED;
    w->failing_since_ns = 0;
    return finish_stdout();
}

static int show_closed(struct watch *w, const struct job_found *found) {
    struct overview o = {.state = GROUP_CLOSED,
                         .since_ns = found->ended_ns,
                         .job_ns = found->ran_ns,
                         .epoch = found->record.epoch,
                         .outcome = found->record.outcome};
    (void)snprintf(o.reason, sizeof o.reason, "%.511s", found->record.reason);
    return show(w, &(struct status_view){.run_id = found->run_id, .overview = &o});
}

/* Asks once, and shows the answer. Returns 0, or a negative errno with a sentence; *ret_status is
 * the status of the output. */
static int refresh(struct watch *w, struct job_found *found, int *ret_status, struct err *err) {
    struct operator_reply reply = {0};
    struct command command = {.kind = COMMAND_STATUS};
    int r = -ECONNREFUSED;
    if (w->leader_port != 0) { /* the agent that led a second ago most likely still leads */
        struct operator_question q = {.host = w->leader,
                                      .port = w->leader_port,
                                      .run_id = w->run_id,
                                      .command = command,
                                      .timeout_ns = w->op->timeout_ns,
                                      .auth = operator_auth(w->op->auth)};
        r = operator_ask(w->op->loop, &q, &reply, err);
    }
    if (r < 0)
        r = operation_ask(w->op, &command, found, &reply, err);
    if (r < 0)
        return r;
    if (found->closed) {
        *ret_status = show_closed(w, found);
        return 0;
    }
    if (!reply.has_overview) {
        r = err_set(err, -EHOSTUNREACH, "%s", reply.answer.text);
    } else {
        struct status_view view = {.run_id = reply.run_id,
                                   .overview = &reply.overview,
                                   .nodes = reply.nodes,
                                   .n_nodes = reply.n_nodes};
        *ret_status = show(w, &view);
        (void)strcpy(w->leader, reply.from);
        w->leader_port = reply.from_port;
        (void)strcpy(w->run_id, reply.run_id);
    }
    operator_reply_fini(&reply);
    return r;
}

/* After an error. -1: try again. Otherwise returns the exit status. */
static int bear(struct watch *w, int code, const struct err *err, const struct job_found *found) {
    uint64_t now = clock_now_ns();
    if (!w->again || !w->shown)
        return operation_failed(w->op, code, err, found);
    if (w->failing_since_ns == 0)
        w->failing_since_ns = now;
    uint64_t failing = now - w->failing_since_ns;
    bool none = code == -ENOENT || code == -EREMOTE, gone = code == -ECONNREFUSED || none;
    /* Agents of this machine that have ended are known to have ended. */
    bool known = none && w->op->place.endpoint == NULL;
    if (known || (gone && failing >= WATCH_GONE_NS)) {
        log_notice("the job has ended: no agent of it answers any more");
        return 0;
    }
    if (!w->terminal && failing >= WATCH_PATIENCE_NS)
        return operation_failed(w->op, code, err, found);
    if (failing == 0)
        log_warning("%s; retrying", err->text);
    return -1;
}

/* Shows it once, or `again` and again: every second, in place on a terminal. Returns the exit
 * status. */
static int watch_until_closed(struct watch *w) {
    for (;;) {
        struct job_found found = {0};
        struct err err = {0};
        int status = 0;
        int r = refresh(w, &found, &status, &err);
        int end = r < 0 ? bear(w, r, &err, &found) : status != 0 || !w->again ? status : -1;
        job_found_fini(&found);
        if (end >= 0)
            return end;
        if (w->closed)
            return 0;
        struct timespec pause = {.tv_sec = WATCH_NS / NS_PER_S};
        (void)nanosleep(&pause, NULL);
    }
}

enum { STATUS_JSON = OPERATE_OWN, STATUS_OUTPUT, STATUS_WATCH };

static const struct option_def defs[] = {
    OPERATE_ROWS,
    [STATUS_JSON] = JSON_ROW,
    [STATUS_OUTPUT] = OUTPUT_ROW,
    [STATUS_WATCH] = {.name = "watch",
                      .letter = 'w',
                      .flags = OPTION_SHORT,
                      .brief = "show it every second, until the job ends",
                      .help = "print the state again every second, until the job ends"},
};

const struct option_set status_options = {
    .command = "status",
    .operands = "[JOB]",
    .about =
        "Shows a job's state and its nodes, as the leader sees them; of a job that ran on this "
        "machine, how it ended." JOB_IS,
    .example = "--watch",
    .offer = OFFER_LISTENERS,
    .defs = defs,
    .n = ARRAY_SIZE(defs),
};

int cmd_status(int argc, char **argv) {
    struct operation op;
    int status = operation_read(&status_options, argc, argv, 1, &op);
    if (status >= 0)
        return status;
    op.place.endpoint = op.operands[0];
    const struct option_value *values = op.parsed.values;
    status = operation_begin(&op);
    if (status >= 0)
        return status;
    struct watch w = {.op = &op,
                      .format = output_format(&values[STATUS_JSON], &values[STATUS_OUTPUT]),
                      .again = values[STATUS_WATCH].times > 0,
                      .terminal = isatty(STDOUT_FILENO) == 1};
    status = watch_until_closed(&w);
    operation_end(&op);
    return status;
}
