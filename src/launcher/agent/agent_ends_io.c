/* Ends from outside: whether workers have got a signal, too (launcher/ends), how long others wait
 * before they kill this job, and why Slurm ends it. */
#include <signal.h>

#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/srun/requeue.h"
#include "launcher/srun/slurm_ask_io.h"
#include "launcher/srun/slurm_words.h"

/* Jobs that end sooner need neither witness nor question. */
#define WITNESS_AFTER_NS (500 * NS_PER_MS)
/* Jobs that end sooner need not know before how long Slurm waits. */
#define ASK_AFTER_NS (5 * NS_PER_S)
#define ASK_APART_NS (10 * NS_PER_MS)
/* If the job ends before: the question is spread over less time. */
#define ASK_AT_END_NS (1 * NS_PER_S)
#define ASK_TIMEOUT_NS (10 * NS_PER_S)
/* How long the end of the job may wait for the reason. */
#define REASON_TIMEOUT_NS (1 * NS_PER_S)
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
        agent_signal_known(a, &news);
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
        agent_signal_known(a, &news);
    arm(a);
}

struct tree_news agent_ends_came(struct agent *a, int signo) {
    enum guardian_came came = guardian_how_came(a->config.link, signo);
    enum tree_copy how = came == GUARDIAN_TYPED       ? TREE_COPY_ALONE
                         : came == GUARDIAN_FORWARDED ? TREE_COPY_FORWARDED
                                                      : TREE_COPY_DIRECT;
    bool witnessed = how == TREE_COPY_ALONE || witness_is_ready(a->ends.witness);
    struct tree_news news = tree_signals_came(&a->ends.tree, signo, how, witnessed, clock_now_ns());
    arm(a);
    return news;
}

void agent_ends_own_signal(struct agent *a) {
    a->ends.own_by_ns = 0;
    arm(a);
}

void agent_ends_await_own(struct agent *a, bool soon) {
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
    else
        local_workers_doubt(a->local_workers, TREE_WAIT_NS);
}

/* ---- the time that is left ---- */

uint64_t agent_ends_grace(const struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    uint64_t around_ns = a->ends.around_ns;
    if (job_is_given(spec, "shutdown-timeout") || around_ns == 0)
        return spec->shutdown_timeout_ns;
    return slurm_grace(around_ns);
}

/* The workers have got the signal before Slurm has answered. Its time goes on since then. */
static void shorten(struct agent *a, uint64_t before_ns) {
    uint64_t grace_ns = agent_ends_grace(a), gone_ns = clock_now_ns() - a->ends.told_ns;
    local_workers_shorten_grace(a->local_workers, grace_ns > gone_ns ? grace_ns - gone_ns : 0);
    if (grace_ns < before_ns && local_workers_workers_alive(a->local_workers) > 0)
        log_line(agent_show_is_brief(a) ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE,
                 "Slurm kills %.0f s after SIGTERM (KillWait): workers have %.0f s, not %.0f s",
                 (double)a->ends.around_ns / (double)NS_PER_S, (double)grace_ns / (double)NS_PER_S,
                 (double)before_ns / (double)NS_PER_S);
}

static void on_config(void *arg, const struct helper_answer *answer) {
    struct agent *a = arg;
    uint64_t wait_ns, before_ns = agent_ends_grace(a);
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
    static const char *const words[] = {"show", "config", NULL};
    a->ends.late = ENDS_ASKED;
    if (slurm_ask(a->loop, words, ASK_TIMEOUT_NS, on_config, a, &a->ends.wait_call) < 0)
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
    const char *const words[] = {"show", "job", "--oneliner", slurm_job(a), NULL};
    if (slurm_ask(a->loop, words, REASON_TIMEOUT_NS, on_reason, a, &a->ends.call) < 0)
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

void agent_ends_told(struct agent *a, int signo) {
    a->ends.told_ns = clock_now_ns();
    local_workers_set_grace(a->local_workers, agent_ends_grace(a));
    if (signo == SIGTERM && slurm_job(a) != NULL && agent_leads(a))
        ask_reason(a);
    if (wants_wait(a) && a->client != NULL)
        ask_in_turn(a, 0, ASK_AT_END_NS);
}

/* ---- the whole ---- */

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

void agent_ends_begin(struct agent *a) {
    if (slurm_job(a) != NULL || is_pod(a))
        a->ends.around_ns = AROUND_DEFAULT_NS;
    a->ends.tree_timer = loop_timer_new(a->loop, on_tree_timer, a);
    a->ends.late_timer = loop_timer_new(a->loop, on_late, a);
}

void agent_ends_started(struct agent *a) {
    if (a->ends.late != ENDS_NOTHING || a->life.signo != 0)
        return;
    a->ends.late = ENDS_ARMED;
    loop_timer_set(a->ends.late_timer, clock_now_ns() + WITNESS_AFTER_NS);
}

void agent_ends_free(struct agent *a) {
    helper_call_free(TAKE_PTR(a->ends.wait_call));
    helper_call_free(TAKE_PTR(a->ends.call));
    witness_free(TAKE_PTR(a->ends.witness));
    loop_timer_free(a->ends.tree_timer);
    loop_timer_free(a->ends.late_timer);
}
