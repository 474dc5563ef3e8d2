/* The agent's exit status, and how the run ended on this machine. */
#include "base/text/log.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/report/failure_text.h"
#include "rendezvous/operate/recent_runs_io.h"

/* The job failed, and would not fail again with the same program on healthy nodes. */
static bool is_no_fault(const struct agent *a) {
    if (a->failed_early || a->config.spec->check_only)
        return false;
    return a->end.kind == MEMBER_END_LEADER_LOST ||
           (a->end.kind == MEMBER_END_FAILED && a->end.no_fault);
}

int agent_exit_status(const struct agent *a) {
    if (a->signo != 0 && (a->failed_early || a->end.kind != MEMBER_END_SUCCESS))
        return 128 + a->signo;
    if (a->asked_to_leave && a->end.kind == MEMBER_END_LEFT)
        return AGENT_EXIT_SUCCESS; /* as it was asked to */
    if (a->end.was_over || a->wrong_usage)
        return AGENT_EXIT_USAGE;
    if (!a->failed_early && a->end.kind == MEMBER_END_SUCCESS)
        return AGENT_EXIT_SUCCESS;
    if (is_no_fault(a))
        return AGENT_EXIT_NO_FAULT;
    bool of_worker = a->config.spec->exit_code == JOB_EXIT_CODE_WORKER && !a->failed_early &&
                     a->end.kind == MEMBER_END_FAILED && a->end.has_failure;
    return of_worker ? failure_shell_status(&a->end.failure) : AGENT_EXIT_FAILED;
}

static void add_reason(const struct agent *a, struct strbuf *out) {
    const struct member_end *end = &a->end;
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(a->signo, name);
    if (end->kind == MEMBER_END_FAILED && end->has_failure)
        failure_line(&end->failure, out);
    else if (a->signo != 0 && end->kind != MEMBER_END_SUCCESS)
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
    if (a->failed_early || a->end.was_closed || a->config.spec->check_only)
        return;
    add_reason(a, &reason);
    if (recent_runs_end(a->config.spec->run_id, outcome, strbuf_text(&reason), &err) < 0)
        log_debug("%s", err.text);
}
