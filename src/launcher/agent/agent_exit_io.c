/* The agent's exit status, back into Slurm's queue, and the head of its job: the muster that
 * started this step, if there is one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
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

void agent_requeue_safe(struct agent *a) {
    a->verdict.safe = true;
    starter_link_safe(a->head);
}

void agent_requeue_lost(struct agent *a, const char *host) {
    char *lost = a->verdict.lost_nodes;
    size_t n = strlen(lost), more = strlen(host);
    if (n + more + 1 < sizeof a->verdict.lost_nodes && requeue_is_name(host))
        (void)snprintf(lost + n, sizeof a->verdict.lost_nodes - n, "%s%s", n > 0 ? "," : "", host);
}

bool agent_may_requeue(const struct agent *a) {
    return is_asked(a) && a->requeue.state == REQUEUE_NOT_ASKED && a->leading != NULL &&
           leading_has_led(a->leading);
}

void agent_requeue_ask(struct agent *a) {
    struct requeue_end end = {.status = (uint32_t)agent_exit_status(a),
                              .safe = a->verdict.safe,
                              .lost = a->verdict.lost_nodes};
    make(a);
    a->requeue.state = REQUEUE_ASKED;
    requeue_begin(a->requeue.io, &end);
}

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

/* Adds how the job ended, in one line; for a job that succeeded nothing. */
static void add_reason(const struct agent *a, struct strbuf *out) {
    const struct member_end *end = &a->end;
    char name[SIGNAL_TEXT_MAX];
    signal_text(a->life.signo, name);
    if (end->kind == MEMBER_END_FAILED && end->has_failure)
        failure_line(&end->failure, "", out);
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
    add_reason(a, &reason);
    if (recent_runs_end(a->config.spec->run_id, outcome, strbuf_text(&reason), &err) < 0)
        log_debug("%s", err.text);
}

/* ---- the head ---- */

static void on_stop(void *arg, int signo) {
    struct agent *a = arg;
    agent_stop_text(signo, a->head_reason, sizeof a->head_reason);
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_ORDER, .signo = signo});
}

bool agent_head_said(const struct agent *a, const char *reason) {
    return reason[0] != '\0' && strcmp(a->head_reason, reason) == 0;
}

/* The leader has the reason from the head, and the other nodes from the leader. */
bool agent_head_asked(const struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    char reason[sizeof a->head_reason];
    if (a->head == NULL || a->head_gone || a->life.cause != LIFE_CAUSE_JOB ||
        spec->place.by != PLACE_BY_OWN_SRUN || a->end.kind != MEMBER_END_FAILED ||
        a->end.has_failure)
        return false;
    for (uint32_t i = 0; i < spec->n_signals; i++) {
        agent_stop_text(spec->signals[i], reason, sizeof reason);
        if (strcmp(a->end.reason, reason) == 0)
            return true;
    }
    return false;
}

static void on_expect(void *arg, uint32_t nodes) {
    struct agent *a = arg;
    if (agent_leads(a))
        rdzv_server_event(leading_server(a->leading),
                          &(struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = nodes});
}

static void on_gone(void *arg) {
    struct agent *a = arg;
    a->head_gone = true;
    log_notice("the muster that started this step was killed");
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_ORDER, .signo = SIGTERM});
}

/* Open MPI and Hydra leave their tasks behind when they are killed, or at a second ^C. */
static void on_launcher_end(void *arg, int fd, unsigned events) {
    struct agent *a = arg;
    loop_watch_free(TAKE_PTR(a->launcher));
    log_notice("the process of %s that started this task has ended",
               a->config.spec->place.launcher->title);
    (void)raise(SIGTERM);
}

static const struct starter_link_ops ops = {.stop = on_stop, .expect = on_expect, .gone = on_gone};

/* The key that a head has given to this agent; NULL. */
static const uint8_t *head_secret(const struct agent *a) {
    const struct keyring *keys = a->config.given;
    bool is_heads = keyring_n(keys) > 0 && keyring_at(keys, 0)->source == AUTH_FROM_HEAD;
    return is_heads ? keyring_at(keys, 0)->secret : NULL;
}

int agent_find_head(struct agent *a) {
    struct err err = {0};
    int r = a->config.launcher_fd < 0
                ? 0
                : loop_watch_new(a->loop, a->config.launcher_fd, LOOP_READ, LOOP_PRIO_CHILD,
                                 on_launcher_end, a, &a->launcher);
    if (r < 0)
        return r;
    r = starter_link_new(a->loop, a->config.envp, head_secret(a), a->host, &a->config.spec->place,
                         &ops, a, &a->head, &err);
    if (r < 0 && err.text[0] != '\0')
        r = agent_refuse_usage(a, r, err.text);
    agent_show_leads(a);
    return r;
}

void agent_leads_now(struct agent *a) {
    agent_show_leads(a);
    agent_tell_if_no_key(a);
    starter_link_lead(a->head);
}

/* A leader that hands over, or has left, knows nothing of the end. */
void agent_read_verdict(struct agent *a) {
    struct overview overview;
    bool handed_over =
        a->arbiter != NULL && a->end.kind != MEMBER_END_SUCCESS && a->end.kind != MEMBER_END_FAILED;
    if (a->head == NULL || !agent_leads(a) || handed_over)
        return;
    group_overview(rdzv_server_group(leading_server(a->leading)), clock_now_ns(), &overview);
    a->has_verdict = true;
    a->verdict.lost = overview.losses;
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    add_reason(a, &s);
    (void)snprintf(a->verdict.text, sizeof a->verdict.text, "%s", strbuf_text(&s));
}

void agent_tell_head(struct agent *a, int status) {
    a->verdict.status = (uint32_t)status;
    if (a->has_verdict && !starter_link_verdict(a->head, &a->verdict))
        log_debug("the command that started this job did not get its result");
    starter_link_free(TAKE_PTR(a->head));
    loop_watch_free(TAKE_PTR(a->launcher));
    file_close(&a->config.launcher_fd);
}
