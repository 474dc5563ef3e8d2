/* The agent and the head of its job: the muster that started this step, if there is one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "launcher/agent/agent_priv.h"

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
        rdzv_server_expect(leading_server(a->leading), nodes);
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
    (void)fd;
    (void)events;
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
    struct starter_verdict *v = a->verdict = xcalloc(1, sizeof *v);
    v->lost = overview.losses;
    v->safe = a->requeue.safe;
    (void)snprintf(v->lost_nodes, sizeof v->lost_nodes, "%s", a->requeue.lost);
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    agent_add_reason(a, &s);
    (void)snprintf(v->text, sizeof v->text, "%s", strbuf_text(&s));
}

void agent_tell_head(struct agent *a, int status) {
    if (a->verdict != NULL) {
        a->verdict->status = (uint32_t)status;
        if (!starter_link_verdict(a->head, a->verdict))
            log_debug("the command that started this job did not get its result");
    }
    free(TAKE_PTR(a->verdict));
    starter_link_free(TAKE_PTR(a->head));
    loop_watch_free(TAKE_PTR(a->launcher));
    file_close(&a->config.launcher_fd);
}
