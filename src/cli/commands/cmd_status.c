#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "cli/jobs/operate_io.h"
#include "cli/jobs/screen_io.h"
#include "cli/jobs/status_screen.h"
#include "cli/options/commands.h"
#include "io/clock.h"

#define WATCH_NS (1 * NS_PER_S)
/* The job is over if no agent listens for this long where the last leader, or the job, was. */
#define WATCH_GONE_NS (10 * NS_PER_S)
/* After other failures the network may come back. A person stops at will, a script after this. */
#define WATCH_PATIENCE_NS (60 * NS_PER_S)

enum watch_kind { WATCH_ONCE = 1, WATCH_BLOCKS, WATCH_SCREEN };

struct watch {
    const struct operation *op;
    enum output_format format;
    enum watch_kind kind;
    bool terminal;
    bool shown; /* a state was shown before */
    bool closed;
    char leader[RDZV_ADDR_MAX]; /* address of the agent that answered last */
    uint16_t leader_port;
    char run_id[RDZV_RUN_ID_MAX];
    uint64_t failing_since_ns; /* 0: it is not failing */
    /* SCREEN: */
    struct status_screen screen;
    struct operator_reply last; /* owned; what is on it */
    char trouble[ERR_TEXT_MAX]; /* why `last` is old; "": it is not */
};

static struct status_view view_of(const struct operator_reply *reply) {
    return (struct status_view){.run_id = reply->run_id,
                                .overview = &reply->overview,
                                .nodes = reply->nodes,
                                .n_nodes = reply->n_nodes};
}

/* Returns the exit status. */
static int draw(struct watch *w) {
    struct status_view view = view_of(&w->last);
    struct screen_size size = screen_size();
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    if (!screen_enter())
        return 0;
    view.wide = w->format == OUTPUT_WIDE;
    const char *trouble = w->trouble[0] != '\0' ? w->trouble : NULL;
    status_screen_draw(&w->screen, &view, trouble, &size, clock_now_ns(), &frame);
    int r = screen_write(strbuf_text(&frame), frame.len);
    if (r == 0)
        return 0;
    screen_leave();
    log_error("can't write to the terminal: %s", strerror(-r));
    return EXIT_JOB_FAILED;
}

/* Takes what is in *reply. */
static int show_on_screen(struct watch *w, struct operator_reply *reply) {
    operator_reply_fini(&w->last);
    w->last = *reply;
    *reply = (struct operator_reply){0};
    struct status_view view = view_of(&w->last);
    status_screen_update(&w->screen, &view, clock_now_ns());
    w->trouble[0] = '\0';
    w->shown = true;
    w->failing_since_ns = 0;
    return draw(w);
}

static int show(struct watch *w, struct status_view *view) {
    view->wide = w->format == OUTPUT_WIDE;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    screen_leave(); /* the last state stays on the terminal */
    if (w->shown && w->kind == WATCH_BLOCKS && w->format != OUTPUT_JSON)
        strbuf_add_char(&text, '\n');
    if (w->format == OUTPUT_JSON)
        status_json(view, &text);
    else if (w->format == OUTPUT_PROMETHEUS)
        status_prometheus(view, &text);
    else
        status_text(view, &text);
    w->shown = true;
    w->closed = view->overview->state == GROUP_CLOSED;
    w->failing_since_ns = 0;
    return print_text(&text);
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
                                      .timeout_ns = w->op->timeout_ns};
        r = operator_auth_ask(w->op->auth, &q, &reply, err);
    }
    if (r < 0)
        r = operation_ask(w->op, &command, found, &reply, err);
    if (r < 0)
        return r;
    if (found->closed) {
        *ret_status =
            show(w, &(struct status_view){.run_id = found->run_id, .overview = &found->overview});
        return 0;
    }
    if (!reply.has_overview) {
        r = err_set(err, -EHOSTUNREACH, "%s", reply.answer.text);
    } else {
        (void)strcpy(w->leader, reply.from);
        w->leader_port = reply.from_port;
        (void)strcpy(w->run_id, reply.run_id);
        struct status_view view = view_of(&reply);
        bool on_screen = w->kind == WATCH_SCREEN && reply.overview.state != GROUP_CLOSED;
        *ret_status = on_screen ? show_on_screen(w, &reply) : show(w, &view);
    }
    operator_reply_fini(&reply);
    return r;
}

/* After an error. -1: try again. Otherwise returns the exit status. */
static int bear(struct watch *w, int code, const struct err *err, const struct job_found *found) {
    uint64_t now = clock_now_ns();
    if (w->kind == WATCH_ONCE || !w->shown)
        return operation_failed(w->op, code, err, found);
    if (w->failing_since_ns == 0)
        w->failing_since_ns = now;
    uint64_t failing = now - w->failing_since_ns;
    bool none = code == -ENOENT || code == -EREMOTE, gone = code == -ECONNREFUSED || none;
    /* Agents of this machine that have ended are known to have ended. */
    bool known = none && w->op->place.endpoint == NULL;
    if (known || (gone && failing >= WATCH_GONE_NS)) {
        screen_leave();
        log_notice("the job has ended: no agent of it answers any more");
        return 0;
    }
    if (!w->terminal && failing >= WATCH_PATIENCE_NS)
        return operation_failed(w->op, code, err, found);
    (void)snprintf(w->trouble, sizeof w->trouble, "no answer for %" PRIu64 " s: %.400s",
                   failing / NS_PER_S, err->text);
    if (w->kind == WATCH_SCREEN)
        return draw(w) == 0 ? -1 : EXIT_JOB_FAILED;
    if (failing == 0)
        log_warning("%s; retrying", err->text);
    return -1;
}

/* -1: the time is over. Otherwise returns the exit status. */
static int await_next(struct watch *w) {
    const struct timespec pause = {.tv_sec = WATCH_NS / NS_PER_S};
    if (w->kind == WATCH_BLOCKS) {
        (void)nanosleep(&pause, NULL);
        return -1;
    }
    for (;;) {
        switch (screen_wait(WATCH_NS)) {
        case SCREEN_TIMEOUT: return -1;
        case SCREEN_QUIT: return 0;
        case SCREEN_REDRAW:
            if (draw(w) != 0)
                return EXIT_JOB_FAILED;
        }
    }
}

/* Shows it once, or every second. Returns the exit status. */
static int watch_until_closed(struct watch *w) {
    for (;;) {
        struct job_found found = {0};
        struct err err = {0};
        int status = 0;
        int r = refresh(w, &found, &status, &err);
        int end = r < 0                                  ? bear(w, r, &err, &found)
                  : status != 0 || w->kind == WATCH_ONCE ? status
                                                         : -1;
        job_found_fini(&found);
        if (end >= 0)
            return end;
        end = w->closed ? 0 : await_next(w);
        if (end >= 0)
            return end;
    }
}

enum { STATUS_JSON = OPERATE_OWN, STATUS_OUTPUT, STATUS_ONCE, STATUS_WATCH };

static const struct option_def defs[] = {
    OPERATE_ROWS,
    [STATUS_JSON] = JSON_ROW,
    [STATUS_OUTPUT] = {"output", "FORMAT", OPTION_SHORT,
                       "print all columns, in lines of any width (wide), the same as --json, or "
                       "metrics for Prometheus",
                       .letter = 'o', .choices = "wide json prometheus",
                       .brief = "wide (all columns), json, prometheus (metrics)"},
    [STATUS_ONCE] = {"once", NULL, 0, "print one state and exit, also with --watch; the default"},
    [STATUS_WATCH] = {"watch", NULL, OPTION_SHORT,
                      "show the state every second, until the job ends: on a terminal as a screen, "
                      "which q ends, else as one block after the other",
                      .letter = 'w', .brief = "show it every second, until the job ends"},
};

const struct option_set status_options = {
    .command = "status",
    .operands = "[JOB]",
    .about = "Shows a job's state and its nodes, as the leader sees them; of a job that ran on "
             "this machine, how it ended." JOB_IS,
    .example = "--watch",
    .offer = OFFER_RUN_IDS,
    OPTION_DEFS(defs),
};

int cmd_status(int argc, char **argv) {
    struct operation op;
    int status = operation_read(&status_options, argc, argv, 1, OPERATE_TIMEOUT_MAX_S, &op);
    if (status >= 0)
        return status;
    op.place.endpoint = op.operands[0];
    const struct option_value *values = op.parsed.values;
    struct watch w = {.op = &op,
                      .format = output_format(&values[STATUS_JSON], &values[STATUS_OUTPUT]),
                      .kind = values[STATUS_WATCH].times == 0 || values[STATUS_ONCE].times > 0
                                  ? WATCH_ONCE
                                  : WATCH_BLOCKS,
                      .terminal = isatty(STDOUT_FILENO) == 1};
    if (w.kind != WATCH_ONCE && w.format == OUTPUT_PROMETHEUS)
        return usage_error("status", "--output=prometheus and --watch cannot be combined");
    status = operation_begin(&op);
    if (status >= 0)
        return status;
    if (w.kind == WATCH_BLOCKS && w.format != OUTPUT_JSON && screen_is_possible())
        w.kind = WATCH_SCREEN;
    status = watch_until_closed(&w);
    screen_leave();
    operator_reply_fini(&w.last);
    status_screen_fini(&w.screen);
    operation_end(&op);
    return status;
}
