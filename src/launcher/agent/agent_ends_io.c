/* How this node and its workers end: signals, and who has got them; the time until SIGKILL, and why
 * Slurm ends the job; the stop of the workers; facts and effects of agent_life.h; the exit status,
 * Slurm's queue, and the head of the job: the muster that started this step, if any. */
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/report/failure_text.h"
#include "launcher/srun/requeue_io.h"
#include "launcher/srun/slurm_job.h"
#include "rendezvous/operate/recent_runs_io.h"
#include "watchdog/act/hang_leader_io.h"

/* ---- signals for the workers ---- */

/* The sender lists processes first: a worker that starts so shortly before may not get it. */
#define LISTING_NS (100 * NS_PER_MS)

/* Schedulers send these as warnings to workers. Until there are some, most would end muster. */
static const int passed_on[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM,
                                SIGURG,  SIGPWR,  SIGIO,    SIGXCPU};

void agent_ignore_passed_signals(const struct job_spec *spec) {
    for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
        if (!job_is_ended_by(spec, passed_on[i]))
            (void)signal(passed_on[i], SIG_IGN);
}

static void pass_on(struct agent *a, const struct tree_news *news) {
    char name[SIGNAL_TEXT_MAX];
    signal_text(news->signo, name);
    if (news->answer == TREE_ALL) {
        log_debug("%s was sent to all processes of this node, workers too", name);
        return;
    }
    uint32_t n = local_workers_signal(a->local_workers, news->signo, news->at_ns);
    if (n > 0)
        log_debug("%s is passed on to %u worker%s", name, n, n == 1 ? "" : "s");
    else
        log_debug("%s is ignored, because no worker runs", name);
}

/* It is known who has got this signal: ALONE or ALL. */
static void signal_known(struct agent *a, const struct tree_news *news) {
    uint64_t had_ns = news->answer == TREE_ALL ? news->at_ns - MIN2(news->at_ns, LISTING_NS) : 0;
    if (news->signo == a->life.signo) {
        char name[SIGNAL_TEXT_MAX];
        signal_text(news->signo, name);
        local_workers_release(a->local_workers, had_ns);
        log_debug("%s was sent to %s", name,
                  had_ns > 0 ? "all processes of this node, workers too" : "muster alone");
    } else if (!job_is_ended_by(a->config.spec, news->signo)) {
        pass_on(a, news);
    }
}

/* Jobs that end sooner need no witness, and need not ask for how long Slurm waits. */
#define WITNESS_AFTER_NS (500 * NS_PER_MS)
#define ASK_AFTER_NS (5 * NS_PER_S)
/* The agents' questions are spread over so much time for each, at the job's end over less. */
#define ASK_APART_NS (10 * NS_PER_MS)
#define ASK_AT_END_NS (1 * NS_PER_S)
#define ASK_TIMEOUT_NS (10 * NS_PER_S)
#define REASON_TIMEOUT_NS (1 * NS_PER_S) /* the end of the job waits for this answer */
/* KillWait's default, slurm.conf(5), and terminationGracePeriodSeconds' in Kubernetes. */
#define AROUND_DEFAULT_NS (30 * NS_PER_S)
/* A job's nodes get Slurm's signal one after another, so the first can tell the others before. */
#define OWN_SIGNAL_NS (250 * NS_PER_MS)
#define OWN_SIGNAL_SOON_NS (100 * NS_PER_MS)

static const char *slurm_job(const struct agent *a) { return a->config.spec->place.job_id; }

static bool is_pod(const struct agent *a) {
    return a->config.link->guardian == 1 && a->config.spec->place.by == PLACE_BY_POD;
}

/* ---- who has got a signal ---- */

static void arm(struct agent *a) {
    uint64_t deadline = tree_signals_deadline(&a->ends.tree);
    if (a->ends.own_by_ns != 0)
        deadline = MIN2(deadline, a->ends.own_by_ns);
    loop_timer_set(a->ends.tree_timer, deadline);
}

static void on_tree_timer(void *arg) {
    struct agent *a = arg;
    uint64_t now_ns = clock_now_ns();
    struct tree_news news;
    while ((news = tree_signals_time(&a->ends.tree, now_ns)).answer != TREE_NOTHING)
        signal_known(a, &news);
    if (a->ends.own_by_ns != 0 && now_ns >= a->ends.own_by_ns) {
        a->ends.own_by_ns = 0;
        local_workers_release(a->local_workers, 0);
    }
    arm(a);
}

static void on_witnessed(void *arg, int signo, uint64_t at_ns) {
    struct agent *a = arg;
    struct tree_news news = tree_signals_witnessed(&a->ends.tree, signo, at_ns);
    if (news.answer != TREE_NOTHING)
        signal_known(a, &news);
    arm(a);
}

/* A copy of a signal has come; signal_known() follows if the answer is WAIT. */
static struct tree_news came(struct agent *a, int signo) {
    enum tree_copy how = guardian_how_came(a->config.link, signo);
    bool witnessed = witness_is_ready(a->ends.witness);
    struct tree_news news = tree_signals_came(&a->ends.tree, signo, how, witnessed, clock_now_ns());
    arm(a);
    return news;
}

/* Workers are stopped because of another node, which Slurm may have signalled before this one: they
 * wait for its signal for a moment, a shorter one if `soon`. */
static void await_own(struct agent *a, bool soon) {
    if (slurm_job(a) == NULL || !witness_is_ready(a->ends.witness) ||
        !local_workers_has_workers(a->local_workers) || a->ends.own_by_ns != 0)
        return;
    local_workers_hold(a->local_workers, SIGTERM);
    a->ends.own_by_ns = clock_now_ns() + (soon ? OWN_SIGNAL_SOON_NS : OWN_SIGNAL_NS);
    arm(a);
}

static void start_witness(struct agent *a) {
    int signals[NSIG];
    size_t n = 0;
    for (int i = 1; i < NSIG; i++)
        if (a->signals[i] != NULL && i != SIGTSTP)
            signals[n++] = i;
    if (witness_new(a->loop, signals, n, on_witnessed, a, &a->ends.witness) < 0)
        log_debug("no process can be started to watch signals: workers may get one twice");
}

/* ---- the time that is left ---- */

/* The workers' time after a signal to this node. */
static uint64_t grace_of(const struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    uint64_t around_ns = a->ends.around_ns;
    if (job_is_given(spec, "shutdown-timeout") || around_ns == 0)
        return spec->shutdown_timeout_ns;
    return slurm_grace(around_ns);
}

/* The workers have got the signal before Slurm has answered. Its time goes on since then. */
static void shorten(struct agent *a, uint64_t before_ns) {
    uint64_t grace_ns = grace_of(a), gone_ns = clock_now_ns() - a->ends.told_ns;
    local_workers_shorten_grace(a->local_workers, grace_ns > gone_ns ? grace_ns - gone_ns : 0);
    if (grace_ns < before_ns && local_workers_workers_alive(a->local_workers) > 0)
        log_line(agent_show_level(a, LOG_LEVEL_NOTICE),
                 "Slurm kills %.0f s after SIGTERM (KillWait): workers have %.0f s, not %.0f s",
                 (double)a->ends.around_ns / (double)NS_PER_S, (double)grace_ns / (double)NS_PER_S,
                 (double)before_ns / (double)NS_PER_S);
}

static void on_config(void *arg, const struct helper_answer *answer) {
    struct agent *a = arg;
    uint64_t wait_ns, before_ns = grace_of(a);
    a->ends.wait_call = NULL;
    if (answer->code != 0 || !slurm_kill_wait(answer->data, &wait_ns)) {
        log_debug("scontrol does not report how long Slurm waits before it kills (KillWait)");
        return;
    }
    a->ends.around_ns = MAX2(wait_ns, (uint64_t)1);
    log_debug("Slurm kills %.0f s after SIGTERM (KillWait)", (double)wait_ns / (double)NS_PER_S);
    if (a->ends.told_ns != 0)
        shorten(a, before_ns);
}

static void ask_config(struct agent *a) {
    static const char *const words[] = {"scontrol", "show", "config", NULL};
    a->ends.late = ENDS_ASKED;
    if (helper_command(a->loop, words, false, ASK_TIMEOUT_NS, on_config, a, &a->ends.wait_call) < 0)
        log_debug("no process can be started to ask Slurm");
}

/* ---- the reason ---- */

static bool is_time_over(const struct agent *a) {
    const uint64_t end_s = a->config.spec->place.job_end_s;
    return end_s > 0 && clock_wall_ns() / NS_PER_S + 1 >= end_s;
}

static void on_reason(void *arg, const struct helper_answer *answer) {
    struct agent *a = arg;
    enum slurm_end end = answer->code == 0
                             ? slurm_end_of(answer->data, a->config.spec->place.restarts)
                             : SLURM_END_NONE;
    if (end == SLURM_END_NONE && is_time_over(a))
        end = SLURM_END_TIME;
    if (end != SLURM_END_NONE)
        log_notice("Slurm: %s (job %s)", slurm_end_text(end), slurm_job(a));
    _cleanup_(strbuf_fini) struct strbuf missed = {0};
    requeue_not_asked(end, a->config.spec->requeue, answer->data, &missed);
    if (missed.len > 0)
        log_notice("%s", strbuf_text(&missed));
    a->ends.call = NULL;
    agent_check(a);
}

static void ask_reason(struct agent *a) {
    const char *const words[] = {"scontrol", "show", "job", "--oneliner", slurm_job(a), NULL};
    if (helper_command(a->loop, words, false, REASON_TIMEOUT_NS, on_reason, a, &a->ends.call) < 0)
        log_debug("no process can be started to ask Slurm");
}

/* All agents ask Slurm the same, so they do it one after another. */
static void ask_in_turn(struct agent *a, uint64_t after_ns, uint64_t within_ns) {
    const struct form *form = member_form(rdzv_client_member(a->client));
    uint64_t turns_ns = MIN2(ASK_APART_NS * MAX2(form->n_nodes, 1u), within_ns);
    loop_timer_set(a->ends.late_timer, clock_now_ns() + after_ns + random_u64() % turns_ns);
}

static bool wants_wait(const struct agent *a) {
    return slurm_job(a) != NULL && !job_is_given(a->config.spec, "shutdown-timeout") &&
           a->ends.late != ENDS_ASKED;
}

static void ordered_to_end(struct agent *a, int signo) {
    a->ends.told_ns = clock_now_ns();
    local_workers_set_grace(a->local_workers, grace_of(a));
    if (signo == SIGTERM && slurm_job(a) != NULL && agent_leads(a))
        ask_reason(a);
    if (wants_wait(a) && a->client != NULL)
        ask_in_turn(a, 0, ASK_AT_END_NS);
}

/* ---- what a job that ends at once does not need ---- */

static void on_late(void *arg) {
    struct agent *a = arg;
    bool told = a->life.signo != 0;
    if (a->ends.witness == NULL && !told) {
        start_witness(a);
        if (wants_wait(a))
            ask_in_turn(a, ASK_AFTER_NS, TIME_NEVER);
    } else if (wants_wait(a) && (!told || local_workers_workers_alive(a->local_workers) > 0)) {
        ask_config(a);
    }
}

void agent_ends_started(struct agent *a) {
    if (a->ends.late != ENDS_NOTHING || a->life.signo != 0)
        return;
    a->ends.late = ENDS_ARMED;
    loop_timer_set(a->ends.late_timer, clock_now_ns() + WITNESS_AFTER_NS);
}

/* ---- the store, and the wait for evidence ---- */

/* Python needs 0.1 s for its stacks; a worker that handles SIGABRT or is held costs all of it. */
#define ENDS_MAX_NS (5 * NS_PER_S)
#define ENDS_LOOK_NS (10 * NS_PER_MS)

/* The store of a leader is at its own door, which must lead to no port of this agent. */
void agent_open_door(struct agent *a, const struct form *form) {
    struct addr store;
    bool elsewhere = !agent_leads(a) || a->config.spec->workers_store;
    bool known = form != NULL && elsewhere &&
                 addr_from_literal(form->store_host, form->store_port, &store) == 0;
    store_door_pass(a->door, known ? &store : NULL,
                    agent_is_authenticated(a) && a->config.spec->store_check != STORE_CHECK_NONE);
}

/* Not if this node was ordered to end. (The leader may not be sure of the failure yet.) */
static bool must_wait(const struct agent *a, const struct desired *cause) {
    return !agent_life_ends(&a->life) && cause != NULL && cause->kind == DESIRED_STOP &&
           local_workers_has_workers(a->local_workers) &&
           (a->stop.end_ns != 0 || hang_watch_holds(a->hang) || hang_watch_suspects(a->hang) > 0);
}

/* Who ends meanwhile counts as stopped: it lost the rank that has failed. */
static void begin_to_wait(struct agent *a) {
    if (a->stop.end_ns != 0)
        return;
    a->stop.end_ns = TIME_NEVER;
    local_workers_hold(a->local_workers, SIGABRT); /* also what C++ ends with */
    local_workers_hold(a->local_workers, SIGTERM);
    if (!hang_watch_holds(a->hang))
        agent_stop_gathered(a);
}

bool agent_stop_wait_no_more(struct agent *a) {
    bool waited = a->stop.end_ns != 0;
    a->stop.end_ns = 0;
    loop_timer_set(a->stop.timer, TIME_NEVER);
    if (waited)
        local_workers_release(a->local_workers, 0);
    return waited;
}

static void stop_on(struct agent *a) {
    int signo = a->life.signo;
    local_workers_stop(a->local_workers, signo != 0 ? signo : SIGTERM, a->stop.grace_ns);
}

static void on_timer(void *arg) {
    struct agent *a = arg;
    uint64_t now = clock_now_ns();
    hang_watch_end_suspects(a->hang);
    if (hang_watch_suspects(a->hang) > 0 && now < a->stop.end_ns)
        loop_timer_set(a->stop.timer, now + ENDS_LOOK_NS);
    else if (agent_stop_wait_no_more(a))
        stop_on(a);
}

void agent_stop_gathered(void *arg) {
    struct agent *a = arg;
    if (a->stop.end_ns == 0)
        return;
    a->stop.end_ns = clock_now_ns() + ENDS_MAX_NS;
    on_timer(a);
}

void agent_hold(void *arg) {
    struct agent *a = arg;
    guardian_hold(a->config.link);
    loop_timer_set(a->stop.hold_timer, clock_now_ns() + GUARDIAN_REPEAT_NS);
}

/* ---- requests of the rendezvous ---- */

/* Then nothing is stopped: what workers have left is ended anyway, or it is to live on. */
static bool has_succeeded(const struct agent *a, const struct desired *cause) {
    return cause != NULL && cause->kind == DESIRED_CLOSED && cause->outcome == OUTCOME_SUCCESS &&
           local_workers_workers_alive(a->local_workers) == 0;
}

static void all_gone(struct agent *a) {
    if (!agent_health_holds_gone(a))
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    agent_check(a);
}

void agent_stop(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause) {
    struct agent *a = arg;
    bool has_workers = local_workers_has_workers(a->local_workers);
    if (cause != NULL && cause->has_failure && cause->failure.incarnation == a->incarnation)
        agent_health_blame(a);
    hang_watch_stop(a->hang);
    agent_open_door(a, NULL);
    preflight_cancel(a->preflight);
    agent_show_stop(a, reason, cause);
    a->stop.grace_ns = grace_ns;
    if (must_wait(a, cause)) {
        begin_to_wait(a);
        return;
    }
    (void)agent_stop_wait_no_more(a);
    if (a->life.signo == 0 && cause != NULL && !cause->has_failure && !has_succeeded(a, cause))
        await_own(a, cause->will_restart);
    if (!has_succeeded(a, cause))
        stop_on(a);
    if (!has_workers)
        all_gone(a);
}

void agent_resume(void *arg, uint64_t paused_ns) {
    struct agent *a = arg;
    loop_timer_set(a->stop.hold_timer, TIME_NEVER);
    guardian_resume(a->config.link);
    log_notice("this node was paused for %.1f s; its workers continue",
               (double)paused_ns / (double)NS_PER_S);
}

void agent_fence(void *arg) {
    struct agent *a = arg;
    loop_timer_set(a->stop.hold_timer, TIME_NEVER);
    hang_watch_stop(a->hang);
    agent_open_door(a, NULL);
    preflight_cancel(a->preflight);
    log_warning("no message from the leader within the lease: the workers of this node are killed");
    bool has_workers = local_workers_has_workers(a->local_workers);
    (void)agent_stop_wait_no_more(a);
    local_workers_kill(a->local_workers);
    if (!has_workers)
        all_gone(a);
}

/* ---- Slurm's queue, and the exit status ---- */

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
    if (a->requeue.io == NULL)
        a->requeue.io = requeue_new(a->loop, a->config.spec, on_requeued, a);
}

void agent_requeue_begin(struct agent *a) {
    if (a->requeue.io != NULL || !is_asked(a) || !agent_leads(a))
        return;
    make(a);
    requeue_look(a->requeue.io);
}

void agent_requeue_lost(struct agent *a, const char *host) {
    char *lost = a->verdict.lost_nodes;
    size_t n = strlen(lost), more = strlen(host);
    if (n + more + 1 < sizeof a->verdict.lost_nodes && requeue_is_name(host))
        (void)snprintf(lost + n, sizeof a->verdict.lost_nodes - n, "%s%s", n > 0 ? "," : "", host);
}

static bool may_requeue(const struct agent *a) {
    return is_asked(a) && a->requeue.state == REQUEUE_NOT_ASKED && a->leading != NULL &&
           (a->leading->server != NULL || a->leading->end == LEADING_RESIGNED);
}

static void requeue_ask(struct agent *a) {
    make(a);
    a->requeue.state = REQUEUE_ASKED;
    requeue_begin(a->requeue.io, (uint32_t)agent_exit_status(a), a->verdict.safe,
                  a->verdict.lost_nodes);
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

/* ---- facts and effects ---- */

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
    const struct leading *l = a->leading;
    unsigned leads = fact(agent_leads(a), LIFE_LEADS) |
                     fact(agent_leads(a) && l->end == LEADING_SERVES, LIFE_SERVES) |
                     fact(l != NULL && hang_leader_is_busy(l->hang), LIFE_COMPARES);
    return leads | facts_of_member(a) | facts_of_workers(a) |
           fact(a->arbiter != NULL, LIFE_HAS_ARBITER) | fact(may_requeue(a), LIFE_MAY_REQUEUE) |
           fact(a->ends.call != NULL || a->requeue.state == REQUEUE_ASKED, LIFE_ASKS);
}

/* Workers get the signal when it is known that they have not got it. */
static void begin_to_stop(struct agent *a, const struct tree_news *news) {
    writer_take_rest(a->writer);
    a->ends.own_by_ns = 0;
    arm(a);
    ordered_to_end(a, a->life.signo);
    bool waited = agent_stop_wait_no_more(a);
    if (news->answer == TREE_ALL || (news->answer == TREE_WAIT && grace_of(a) >= HOLD_GRACE_NS))
        local_workers_hold(a->local_workers, a->life.signo);
    if (waited)
        stop_on(a);
    if (news->answer != TREE_WAIT)
        signal_known(a, news);
}

static void log_stops(const struct agent *a, const char *name) {
    uint32_t alive = local_workers_workers_alive(a->local_workers);
    /* over ssh, signals to the head arrive as its orders: this signal was sent to muster here */
    const bool over_ssh = a->config.spec->place.by == PLACE_BY_OWN_SSH;
    bool ordered = over_ssh && a->head_reason[0] != '\0';
    enum log_level level = ordered ? LOG_LEVEL_INFO : agent_show_level(a, LOG_LEVEL_NOTICE);
    char what[RDZV_HOST_MAX + 64];
    if (over_ssh)
        (void)snprintf(what, sizeof what, "muster on host %s was stopped by %s", a->host, name);
    else
        (void)snprintf(what, sizeof what, "got %s", name);
    if (alive > 0)
        log_line(level, "%s: stopping %u worker%s (up to %.0f s)", what, alive,
                 alive == 1 ? "" : "s", (double)grace_of(a) / (double)NS_PER_S);
    else
        log_line(level, "%s: leaving", what);
}

/* "the job was stopped by SIGTERM" */
static void stop_text(int signo, char *ret, size_t size) {
    char name[SIGNAL_TEXT_MAX];
    signal_text(signo, name);
    (void)snprintf(ret, size, "the job was stopped by %s", name);
}

static void stop_job(struct agent *a, const struct life_event *e, const char *name) {
    char reason[RDZV_REASON_MAX];
    if (e->kind == LIFE_EVENT_ORDER)
        stop_text(e->signo, reason, sizeof reason);
    else
        (void)snprintf(reason, sizeof reason, "node %s was stopped by %s", a->host, name);
    rdzv_server_event(a->leading->server,
                      &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = reason});
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
    char name[SIGNAL_TEXT_MAX];
    signal_text(e->signo, name);
    switch (effect) {
    case LIFE_EFFECT_BEGIN: begin_to_stop(a, news); break;
    case LIFE_EFFECT_END_OUTPUT: writer_take_rest(a->writer); break;
    case LIFE_EFFECT_STOP_JOB: stop_job(a, e, name); break;
    case LIFE_EFFECT_LEAVE: leave(a, e, name); break;
    case LIFE_EFFECT_KILL:
        if (a->local_workers != NULL)
            local_workers_kill(a->local_workers);
        break;
    case LIFE_EFFECT_PASS_ON: local_workers_stop(a->local_workers, e->signo, grace_of(a)); break;
    case LIFE_EFFECT_LET_GO: leading_let_go(a->leading); break;
    case LIFE_EFFECT_RESIGN:
        rdzv_server_event(a->leading->server, &(struct group_event){.kind = GROUP_EVENT_RESIGN});
        break;
    case LIFE_EFFECT_REQUEUE: requeue_ask(a); break;
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

void agent_end_with(struct agent *a, enum life_event_kind kind, char *text) {
    log_error("%s", text);
    termination_write(a->config.envp, text);
    free(text);
    agent_event(a, &(struct life_event){.kind = kind});
}

int agent_refuse_usage(struct agent *a, int r, const char *text) {
    log_error("%s", text);
    agent_event(a, &(struct life_event){.kind = LIFE_EVENT_USAGE});
    return r;
}

/* ---- signals ---- */

static void on_ending_signal(void *arg, int signo) {
    struct agent *a = arg;
    struct tree_news news = came(a, signo);
    if (news.answer == TREE_NOTHING) /* a copy: it was sent to all processes and forwarded */
        return;
    step(a, (struct life_event){.kind = LIFE_EVENT_SIGNAL, .signo = signo}, &news);
    agent_check(a);
}

static void on_passed_signal(void *arg, int signo) {
    struct agent *a = arg;
    struct tree_news news = came(a, signo);
    if (news.answer == TREE_ALONE || news.answer == TREE_ALL)
        pass_on(a, &news);
}

/* ---- suspension ---- */

/* The guardian has stopped (launcher/supervise/guardian_io.c). Slurm sends SIGTSTP to each process
 * when it suspends a job: there is no shell with an fg then. */
static void on_suspended(void *arg, int signo) {
    struct agent *a = arg;
    if (guardian_how_came(a->config.link, signo) == TREE_COPY_ALONE)
        log_notice("suspended at the terminal; the job continues: fg resumes it, kill ends it");
}

static void watch(struct agent *a, int signo, loop_signal_fn *fn) {
    if (a->signals[signo] == NULL)
        a->signals[signo] = loop_signal_new(a->loop, signo, fn, a);
}

static void watch_signals(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    for (uint32_t i = 0; i < spec->n_signals; i++)
        if (spec->signals[i] != SIGHUP || !child_is_ignored(SIGHUP)) /* nohup(1) */
            watch(a, spec->signals[i], on_ending_signal);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
        watch(a, passed_on[i], on_passed_signal);
    watch(a, SIGTSTP, on_suspended);
}

/* ---- the head ---- */

static void on_stop(void *arg, int signo) {
    struct agent *a = arg;
    stop_text(signo, a->head_reason, sizeof a->head_reason);
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
        stop_text(spec->signals[i], reason, sizeof reason);
        if (strcmp(a->end.reason, reason) == 0)
            return true;
    }
    return false;
}

static void on_expect(void *arg, uint32_t nodes) {
    struct agent *a = arg;
    if (agent_leads(a))
        rdzv_server_event(a->leading->server,
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
    if (a->config.launcher_fd >= 0)
        a->launcher = loop_watch_new(a->loop, a->config.launcher_fd, LOOP_READ, LOOP_PRIO_CHILD,
                                     on_launcher_end, a);
    int r = starter_link_new(a->loop, a->config.envp, head_secret(a), a->host,
                             &a->config.spec->place, &ops, a, &a->head, &err);
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
    group_overview(rdzv_server_group(a->leading->server), clock_now_ns(), &overview);
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

/* ---- the whole ---- */

void agent_ends_begin(struct agent *a) {
    if (slurm_job(a) != NULL || is_pod(a))
        a->ends.around_ns = AROUND_DEFAULT_NS;
    a->ends.tree_timer = loop_timer_new(a->loop, on_tree_timer, a);
    a->ends.late_timer = loop_timer_new(a->loop, on_late, a);
    a->stop.timer = loop_timer_new(a->loop, on_timer, a);
    a->stop.hold_timer = loop_timer_new(a->loop, agent_hold, a);
    a->life_timer = loop_timer_new(a->loop, agent_check, a);
    watch_signals(a);
}

void agent_ends_free(struct agent *a) {
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++)
        loop_signal_free(a->signals[i]);
    helper_call_free(TAKE_PTR(a->ends.wait_call));
    helper_call_free(TAKE_PTR(a->ends.call));
    witness_free(TAKE_PTR(a->ends.witness));
    loop_timer_free(a->ends.tree_timer);
    loop_timer_free(a->ends.late_timer);
    loop_timer_free(a->stop.timer);
    loop_timer_free(a->stop.hold_timer);
    loop_timer_free(TAKE_PTR(a->life_timer));
}
