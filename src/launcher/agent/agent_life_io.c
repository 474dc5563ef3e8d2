/* Around the machine of agent_life.h: the facts for its events, and its effects. */
#include <signal.h>
#include <stdio.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/report/termination_io.h"

/* With a shorter grace workers get their signal at once, in doubt twice. */
#define HOLD_GRACE_NS (1 * NS_PER_S)

static unsigned fact(bool holds, enum life_fact f) { return holds ? (unsigned)f : 0; }

static unsigned facts_of_workers(const struct agent *a) {
    const struct local_workers *w = a->local_workers;
    return w == NULL ? 0
                     : fact(local_workers_workers_alive(w) > 0, LIFE_WORKERS_RUN) |
                           fact(local_workers_has_workers(w) || local_workers_has_left(w),
                                LIFE_PROCESSES);
}

static unsigned facts_of_member(const struct agent *a) {
    if (a->client == NULL)
        return 0;
    const struct member *m = rdzv_client_member(a->client);
    const struct desired *cause = member_stop_cause(m);
    bool closed = cause != NULL && cause->kind == DESIRED_CLOSED;
    bool fails = cause != NULL && cause->has_failure && !cause->will_restart;
    return LIFE_HAS_MEMBER | fact(member_state(m) != MEMBER_SEARCHING, LIFE_HAS_LEADER) |
           fact(closed || fails, LIFE_JOB_CLOSES) |
           fact(closed && cause->outcome == OUTCOME_SUCCESS, LIFE_JOB_SUCCEEDS);
}

static unsigned facts_of(const struct agent *a) {
    unsigned leads = a->leading == NULL ? 0
                                        : fact(agent_leads(a), LIFE_LEADS) |
                                              fact(leading_serves(a->leading), LIFE_SERVES) |
                                              fact(leading_is_busy(a->leading), LIFE_COMPARES);
    return leads | facts_of_member(a) | facts_of_workers(a) |
           fact(a->arbiter != NULL, LIFE_HAS_ARBITER) |
           fact(agent_may_requeue(a), LIFE_MAY_REQUEUE) |
           fact(a->ends.call != NULL || agent_is_requeueing(a), LIFE_ASKS);
}

/* ---- effects ---- */

/* Workers get the signal when it is known that they have not got it. */
static void begin_to_stop(struct agent *a, const struct tree_news *news) {
    writer_take_rest(a->writer);
    agent_ends_own_signal(a);
    agent_ends_told(a, a->life.signo);
    bool waited = agent_stop_wait_no_more(a);
    if (news->answer == TREE_ALL ||
        (news->answer == TREE_WAIT && agent_ends_grace(a) >= HOLD_GRACE_NS))
        local_workers_hold(a->local_workers, a->life.signo);
    if (waited)
        agent_stop_on(a);
    if (news->answer != TREE_WAIT)
        agent_signal_known(a, news);
}

static void log_stops(const struct agent *a, const char *name) {
    uint32_t alive = local_workers_workers_alive(a->local_workers);
    /* over ssh, signals to the head arrive as its orders: this signal was sent to muster here */
    const bool over_ssh = a->config.spec->place.by == PLACE_BY_OWN_SSH;
    bool ordered = over_ssh && a->head_reason[0] != '\0';
    enum log_level level = agent_show_is_brief(a) || ordered ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE;
    char what[RDZV_HOST_MAX + 64];
    if (over_ssh)
        (void)snprintf(what, sizeof what, "muster on host %s was stopped by %s", a->host, name);
    else
        (void)snprintf(what, sizeof what, "got %s", name);
    if (alive > 0)
        log_line(level, "%s: stopping %u worker%s (up to %.0f s)", what, alive,
                 alive == 1 ? "" : "s", (double)agent_ends_grace(a) / (double)NS_PER_S);
    else
        log_line(level, "%s: leaving", what);
}

void agent_stop_text(int signo, char *ret, size_t size) {
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(signo, name);
    (void)snprintf(ret, size, "the job was stopped by %s", name);
}

static void stop_job(struct agent *a, const struct life_event *e, const char *name) {
    char reason[RDZV_REASON_MAX];
    if (e->kind == LIFE_EVENT_ORDER)
        agent_stop_text(e->signo, reason, sizeof reason);
    else
        (void)snprintf(reason, sizeof reason, "node %s was stopped by %s", a->host, name);
    rdzv_server_stop_job(leading_server(a->leading), reason, false);
}

static void leave(struct agent *a, const struct life_event *e, const char *name) {
    char why[RDZV_HOST_MAX];
    (void)snprintf(why, sizeof why, "was stopped by %s", name);
    agent_show_leaving(a);
    if (a->client != NULL)
        rdzv_client_event(a->client,
                          &(struct member_event){.kind = MEMBER_EVENT_LEAVE,
                                                 .reason = e->reason != NULL ? e->reason : why,
                                                 .grace_ns = UINT64_MAX});
}

static void carry_out(struct agent *a, enum life_effect effect, const struct life_event *e,
                      const struct tree_news *news) {
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(e->signo, name);
    switch (effect) {
    case LIFE_EFFECT_BEGIN: begin_to_stop(a, news); break;
    case LIFE_EFFECT_END_OUTPUT: writer_take_rest(a->writer); break;
    case LIFE_EFFECT_STOP_JOB: stop_job(a, e, name); break;
    case LIFE_EFFECT_LEAVE: leave(a, e, name); break;
    case LIFE_EFFECT_KILL:
        if (a->local_workers != NULL)
            local_workers_kill(a->local_workers);
        break;
    case LIFE_EFFECT_PASS_ON:
        local_workers_stop(a->local_workers, e->signo, agent_ends_grace(a));
        break;
    case LIFE_EFFECT_LET_GO: leading_let_go(a->leading); break;
    case LIFE_EFFECT_RESIGN: rdzv_server_resign(leading_server(a->leading)); break;
    case LIFE_EFFECT_REQUEUE: agent_requeue_ask(a); break;
    case LIFE_EFFECT_QUIT:
        if (a->loop != NULL)
            loop_quit(a->loop);
        break;
    case LIFE_EFFECT_LEAVE_OUTPUT: a->left_output = true; break;
    case LIFE_EFFECT_LOG_STOPS: log_stops(a, name); break;
    case LIFE_EFFECT_LOG_SUCCEEDED:
        log_notice("got %s, but the job has succeeded: waiting until its output is read; again: "
                   "leaving without it",
                   name);
        break;
    case LIFE_EFFECT_LOG_KILLS: log_notice("got SIGINT again: killing the workers"); break;
    case LIFE_EFFECT_LOG_KILLS_LEFT: log_notice("got SIGINT: killing what workers left"); break;
    case LIFE_EFFECT_LOG_AWAITS_LEFT:
        log_notice("got %s, but the job has ended: waiting for what workers left; ^C kills it",
                   name);
        break;
    case LIFE_EFFECT_LOG_OUTPUT:
        log_notice("waiting until the rest of the output is read; ^C again leaves without it");
        break;
    case LIFE_EFFECT_COUNT: assert_not_reached();
    }
}

/* ---- events ---- */

/* An effect can cause further events: their effects come before the rest of these. */
static void step(struct agent *a, struct life_event e, const struct tree_news *news) {
    struct life_update u;
    e.facts = facts_of(a);
    e.now_ns = clock_now_ns();
    agent_life_step(&a->life, &e, &u);
    for (size_t i = 0; i < u.n_effects; i++)
        carry_out(a, u.effects[i], &e, news);
    if (a->life_timer != NULL)
        loop_timer_set(a->life_timer, a->life.deadline_ns);
}

void agent_check(void *arg) { step(arg, (struct life_event){.kind = LIFE_EVENT_CHECK}, NULL); }

void agent_event(struct agent *a, const struct life_event *e) {
    step(a, *e, NULL);
    agent_check(a);
}

void agent_end_by_signal(struct agent *a, const struct tree_news *news) {
    step(a, (struct life_event){.kind = LIFE_EVENT_SIGNAL, .signo = news->signo}, news);
    agent_check(a);
}

void agent_life_begin(struct agent *a) { a->life_timer = loop_timer_new(a->loop, agent_check, a); }

void agent_give_up(struct agent *a, enum life_event_kind kind, const char *text) {
    log_error("%s", text);
    termination_write(a->config.envp, text);
    agent_event(a, &(struct life_event){.kind = kind});
}

int agent_refuse_usage(struct agent *a, int r, const char *text) {
    log_error("%s", text);
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_USAGE});
    return r;
}
