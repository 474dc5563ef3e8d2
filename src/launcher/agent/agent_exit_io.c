/* The agent's exit status. */
#include "launcher/agent/agent_priv.h"
#include "launcher/report/failure_text.h"

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
