/* The agent's exit status, how the run ended on this machine, and back into Slurm's queue. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/report/failure_text.h"
#include "rendezvous/operate/recent_runs_io.h"

static bool is_asked(const struct agent *a) {
    return a->config.spec->requeue != 0 && (a->head == NULL || a->head_gone);
}

static void on_requeued(void *arg, uint32_t status) {
    struct agent *a = arg;
    a->requeue.state = REQUEUE_ANSWERED;
    a->requeue.status = (int)status;
    agent_check(a);
}

static void make(struct agent *a) {
    const struct place *place = &a->config.spec->place;
    struct requeue_config config = {.loop = a->loop,
                                    .id = place->job_id,
                                    .asked = a->config.spec->requeue,
                                    .max = a->config.spec->max_requeues,
                                    .restarts = place->restarts};
    if (a->requeue.io == NULL)
        a->requeue.io = requeue_new(&config, on_requeued, a);
}

void agent_requeue_begin(struct agent *a) {
    if (a->requeue.io != NULL || !is_asked(a) || !agent_leads(a))
        return;
    make(a);
    requeue_look(a->requeue.io);
}

void agent_requeue_safe(void *arg) {
    struct agent *a = arg;
    a->requeue.safe = true;
    starter_link_safe(a->head);
}

void agent_requeue_lost(void *arg, const char *host) {
    struct agent *a = arg;
    char *lost = a->requeue.lost;
    size_t n = strlen(lost), more = strlen(host);
    if (n + more + 1 < sizeof a->requeue.lost && requeue_is_name(host))
        (void)snprintf(lost + n, sizeof a->requeue.lost - n, "%s%s", n > 0 ? "," : "", host);
}

bool agent_may_requeue(const struct agent *a) {
    return is_asked(a) && a->requeue.state == REQUEUE_NOT_ASKED && a->leading != NULL &&
           leading_has_led(a->leading);
}

bool agent_is_requeueing(const struct agent *a) { return a->requeue.state == REQUEUE_ASKED; }

void agent_requeue_ask(struct agent *a) {
    struct requeue_end end = {
        .status = (uint32_t)agent_exit_status(a), .safe = a->requeue.safe, .lost = a->requeue.lost};
    make(a);
    a->requeue.state = REQUEUE_ASKED;
    requeue_begin(a->requeue.io, &end);
}

int agent_requeue_status(const struct agent *a, int status) {
    return a->requeue.state == REQUEUE_ANSWERED ? a->requeue.status : status;
}

void agent_requeue_free(struct agent *a) { requeue_free(TAKE_PTR(a->requeue.io)); }

/* The status of a job that ended by itself. */
static int job_status(const struct job_spec *spec, const struct member_end *end) {
    if (end->was_over)
        return AGENT_EXIT_USAGE;
    if (end->kind == MEMBER_END_SUCCESS)
        return AGENT_EXIT_SUCCESS;
    bool failed = end->kind == MEMBER_END_FAILED;
    /* it would not fail again with the same program on healthy nodes */
    bool no_fault = end->kind == MEMBER_END_LEADER_LOST || (failed && end->no_fault);
    if (no_fault && spec->check == JOB_CHECK_OFF)
        return AGENT_EXIT_NO_FAULT;
    return spec->exit_code == JOB_EXIT_CODE_WORKER && failed && end->has_failure
               ? failure_shell_status(&end->failure)
               : AGENT_EXIT_FAILED;
}

int agent_exit_status(const struct agent *a) {
    switch (a->life.cause) {
    case LIFE_CAUSE_JOB: return job_status(a->config.spec, &a->end);
    case LIFE_CAUSE_SIGNAL: return 128 + a->life.signo;
    case LIFE_CAUSE_OPERATOR: return AGENT_EXIT_SUCCESS; /* it left, as it was asked to */
    case LIFE_CAUSE_USAGE: return AGENT_EXIT_USAGE;
    case LIFE_CAUSE_NONE:
    case LIFE_CAUSE_FAILURE: return AGENT_EXIT_FAILED;
    }
    assert_not_reached();
}

void agent_add_reason(const struct agent *a, struct strbuf *out) {
    const struct member_end *end = &a->end;
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(a->life.signo, name);
    if (end->kind == MEMBER_END_FAILED && end->has_failure)
        failure_line(&end->failure, out);
    else if (a->life.cause == LIFE_CAUSE_SIGNAL)
        strbuf_printf(out, "stopped by %s", name);
    else if (end->kind == MEMBER_END_LEFT)
        strbuf_add(out, "this node left the job");
    else
        strbuf_add(out, end->reason);
}

void agent_record_end(const struct agent *a) {
    _cleanup_(strbuf_fini) struct strbuf reason = {0};
    enum outcome outcome = a->end.kind == MEMBER_END_SUCCESS  ? OUTCOME_SUCCESS
                           : a->end.kind == MEMBER_END_FAILED ? OUTCOME_FAILED
                                                              : OUTCOME_NONE;
    struct err err = {0};
    if (agent_life_failed(&a->life) || a->end.was_closed || a->config.spec->check != JOB_CHECK_OFF)
        return;
    agent_add_reason(a, &reason);
    if (recent_runs_end(a->config.spec->run_id, outcome, strbuf_text(&reason), &err) < 0)
        log_debug("%s", err.text);
}
