/* Signals to this node: some end the job, some are for its workers. */
#include <stdio.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/process/child.h"
#include "launcher/agent/agent_priv.h"

/* A worker that was started so shortly before all processes got a signal may have been missed: the
 * sender lists processes first. */
#define LISTING_NS (100 * NS_PER_MS)

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

static void on_ending_signal(void *arg, int signo) {
    struct agent *a = arg;
    struct tree_news news = agent_ends_came(a, signo);
    if (news.answer != TREE_NOTHING) /* else a copy: it was sent to all processes and forwarded */
        agent_end_by_signal(a, &news);
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
    if (news->signo == a->life.signo) {
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
    int r = 0;
    for (uint32_t i = 0; i < spec->n_signals && r == 0; i++)
        if (spec->signals[i] != SIGHUP || !child_is_ignored(SIGHUP)) /* nohup(1) */
            r = watch(a, spec->signals[i], on_ending_signal);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on) && r == 0; i++)
        r = watch(a, passed_on[i], on_passed_signal);
    return r == 0 ? watch(a, SIGTSTP, on_suspended) : r;
}

void agent_unwatch_signals(struct agent *a) {
    for (size_t i = 0; i < ARRAY_SIZE(a->signals); i++)
        loop_signal_free(a->signals[i]);
}
