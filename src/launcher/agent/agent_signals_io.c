/* Signals to this node: some end the job, some are for its workers. */
#include <stdio.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/process/child.h"
#include "launcher/agent/agent_priv.h"

/* How long an agent that was interrupted twice takes to leave in order. A third ^C ends that. */
#define LEAVE_PATIENCE_NS (2 * NS_PER_S)
/* A worker that was started so shortly before all processes got a signal may have been missed: the
 * sender lists processes first. */
#define LISTING_NS (100 * NS_PER_MS)
/* With a shorter grace workers get their signal at once, in doubt twice. */
#define HOLD_GRACE_NS (1 * NS_PER_S)

/* Signals that say something to a program, and that schedulers send as warnings. Workers get them.
 * Without a handler most would end muster; before there are workers they are ignored. */
static const int passed_on[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM,
                                SIGURG,  SIGPWR,  SIGIO,    SIGXCPU};

void agent_ignore_passed_signals(const struct job_spec *spec) {
    for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
        if (!job_is_ended_by(spec, passed_on[i]))
            (void)signal(passed_on[i], SIG_IGN);
}

/* ---- signals that end the job ---- */

void agent_begin_to_leave(struct agent *a, const char *why) {
    agent_show_leaving(a);
    if (a->client != NULL) {
        rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_LEAVE,
                                                            .reason = why,
                                                            .grace_ns = UINT64_MAX});
    } else { /* this node has not joined yet */
        a->ended = a->server_done = true;
        agent_quit_if_over(a);
    }
}

static void stop_for_signal(struct agent *a) {
    char name[WORKER_SIGNAL_TEXT_MAX], why[RDZV_HOST_MAX], reason[RDZV_REASON_MAX];
    worker_signal_text(a->signo, name);
    uint32_t alive = local_workers_workers_alive(a->local_workers);
    if (a->end.kind == MEMBER_END_SUCCESS) {
        log_notice("got %s, but the job has succeeded: waiting until its output is read; again: "
                   "leaving without it",
                   name);
        return;
    }
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
    (void)snprintf(why, sizeof why, "was stopped by %s", name);
    (void)snprintf(reason, sizeof reason, "node %s %s", a->host, why);
    if (agent_leads(a) && a->arbiter == NULL)
        /* no node can replace this leader */
        rdzv_server_stop_job(leading_server(a->leading), reason, false);
    if (!agent_leads(a) || a->arbiter != NULL || a->client == NULL ||
        member_state(rdzv_client_member(a->client)) == MEMBER_SEARCHING) /* not even by itself */
        agent_begin_to_leave(a, why);
}

/* This node's end begins. Workers get the signal when it is known that they have not got it. */
static void begin_to_stop(struct agent *a, const struct tree_news *news) {
    a->signo = news->signo;
    writer_take_rest(a->writer);
    agent_ends_own_signal(a);
    agent_ends_told(a, a->signo);
    bool waited = agent_stop_wait_no_more(a);
    if (news->answer == TREE_ALL ||
        (news->answer == TREE_WAIT && agent_ends_grace(a) >= HOLD_GRACE_NS))
        local_workers_hold(a->local_workers, a->signo);
    if (waited)
        agent_stop_on(a);
    if (news->answer != TREE_WAIT)
        agent_signal_known(a, news);
    stop_for_signal(a);
}

/* How the job ends is decided, and only what workers left is waited for. */
static bool awaits_leftovers(const struct agent *a, const struct desired *cause) {
    bool closes = cause != NULL &&
                  (cause->kind == DESIRED_CLOSED || (cause->has_failure && !cause->will_restart));
    return (a->ended || closes) && local_workers_workers_alive(a->local_workers) == 0 &&
           (local_workers_has_workers(a->local_workers) ||
            local_workers_has_left(a->local_workers));
}

static void signal_for_leftovers(struct agent *a, int signo, const struct desired *cause) {
    bool succeeded =
        cause != NULL && cause->kind == DESIRED_CLOSED && cause->outcome == OUTCOME_SUCCESS;
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(signo, name);
    if (signo == SIGINT) {
        log_notice("got SIGINT: killing what workers left");
        local_workers_kill(a->local_workers);
    } else {
        if (a->signo == 0)
            log_notice("got %s, but the job has ended: waiting for what workers left; ^C kills it",
                       name);
        if (!succeeded) /* else it would end what --leave=detached keeps */
            local_workers_stop(a->local_workers, signo, agent_ends_grace(a));
    }
}

static void on_ending_signal(void *arg, int signo) {
    struct agent *a = arg;
    struct tree_news news = agent_ends_came(a, signo);
    if (news.answer == TREE_NOTHING) /* the same signal, sent to all processes and forwarded */
        return;
    /* Too late to end the job: only the output is left. agent_show_end() has the same rules. */
    if (a->signo == 0 && a->end.kind == MEMBER_END_SUCCESS && signo != SIGINT) {
        a->interrupts++;
        return;
    }
    const struct desired *cause =
        a->client != NULL ? member_stop_cause(rdzv_client_member(a->client)) : NULL;
    if (awaits_leftovers(a, cause)) {
        signal_for_leftovers(a, signo, cause);
        return;
    }
    if (a->signo == 0) {
        bool only_left = local_workers_workers_alive(a->local_workers) == 0;
        begin_to_stop(a, &news);
        if (signo == SIGINT && only_left) /* what workers left, if anything */
            local_workers_kill(a->local_workers);
        return;
    }
    /* Slurm and systemd repeat SIGTERM, but mean the same. Only a user's second ^C means more. */
    if (signo != SIGINT)
        return;
    if (a->interrupts++ == 0)
        log_notice("got SIGINT again: killing the workers");
    bool leaves = a->arbiter != NULL && a->client != NULL && a->interrupts == 1;
    local_workers_kill(a->local_workers);
    if (leaves)
        /* the arbiter still learns that nothing runs here, if it answers */
        loop_timer_set(a->leave_timer, clock_now_ns() + LEAVE_PATIENCE_NS);
    else
        a->ended = a->server_done = true;
    agent_quit_if_over(a);
}

static void on_leave_timer(void *arg) {
    struct agent *a = arg;
    a->ended = a->server_done = true;
    agent_quit_if_over(a);
}

void agent_stop_text(int signo, char *ret, size_t size) {
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(signo, name);
    (void)snprintf(ret, size, "the job was stopped by %s", name);
}

/* The whole job ends, whoever could lead it on: as if an operator had stopped it. */
void agent_told_to_stop(struct agent *a, int signo) {
    char reason[RDZV_REASON_MAX];
    if (!agent_leads(a))
        return;
    if (a->ended) {
        leading_let_go(a->leading);
        agent_quit_if_over(a);
    }
    if (a->signo != 0 || a->ended)
        return;
    writer_take_rest(a->writer);
    agent_stop_text(signo, reason, sizeof reason);
    rdzv_server_stop_job(leading_server(a->leading), reason, false);
    if (a->client == NULL)
        agent_begin_to_leave(a, reason);
}

/* ---- signals for the workers ---- */

static void pass_on(struct agent *a, const struct tree_news *news) {
    char name[WORKER_SIGNAL_TEXT_MAX];
    worker_signal_text(news->signo, name);
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

static void on_passed_signal(void *arg, int signo) {
    struct agent *a = arg;
    struct tree_news news = agent_ends_came(a, signo);
    if (news.answer == TREE_ALONE || news.answer == TREE_ALL)
        pass_on(a, &news);
}

/* ---- both ---- */

void agent_signal_known(struct agent *a, const struct tree_news *news) {
    uint64_t had_ns = news->answer == TREE_ALL ? news->at_ns - MIN2(news->at_ns, LISTING_NS) : 0;
    if (news->signo == a->signo) {
        char name[WORKER_SIGNAL_TEXT_MAX];
        worker_signal_text(news->signo, name);
        local_workers_release(a->local_workers, had_ns);
        log_debug("%s was sent to %s", name,
                  had_ns > 0 ? "all processes of this node, workers too" : "muster alone");
    } else if (!job_is_ended_by(a->config.spec, news->signo)) {
        pass_on(a, news);
    }
}

/* ---- suspension ---- */

/* The guardian has stopped (launcher/supervise/guardian_io.c). Slurm sends SIGTSTP to each process
 * when it suspends a job: there is no shell with an fg then. */
static void on_suspended(void *arg, int signo) {
    struct agent *a = arg;
    if (guardian_how_came(a->config.link, signo) == GUARDIAN_TYPED)
        log_notice("suspended at the terminal; the job continues: fg resumes it, kill ends it");
}

/* ---- all of them ---- */

static int watch(struct agent *a, int signo, loop_signal_fn *fn) {
    if (a->signals[signo] != NULL)
        return 0;
    return loop_signal_new(a->loop, signo, fn, a, &a->signals[signo]);
}

int agent_watch_signals(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    int r = loop_timer_new(a->loop, on_leave_timer, a, &a->leave_timer);
    for (uint32_t i = 0; i < spec->n_signals && r == 0; i++)
        if (spec->signals[i] != SIGHUP || !child_is_ignored(SIGHUP)) /* nohup(1) */
            r = watch(a, spec->signals[i], on_ending_signal);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on) && r == 0; i++)
        r = watch(a, passed_on[i], on_passed_signal);
    return r == 0 ? watch(a, SIGTSTP, on_suspended) : r;
}

void agent_unwatch_signals(struct agent *a) {
    loop_timer_free(a->leave_timer);
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++)
        loop_signal_free(a->signals[i]);
}
