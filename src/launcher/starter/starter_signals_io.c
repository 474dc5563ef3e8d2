#include "launcher/starter/starter_signals_io.h"

#include <signal.h>

#include "base/text/log.h"
#include "base/text/signal_name.h"
#include "io/process/child.h"

struct starter_signals {
    const struct job_spec *spec;
    starter_signal_fn *fn;
    void *arg;
    struct loop_signal *signals[NSIG]; /* by number; NULL: not watched */
};

static void on_signal(void *arg, int signo) {
    struct starter_signals *s = arg;
    s->fn(s->arg, signo, job_is_ended_by(s->spec, signo));
}

static int watch(struct starter_signals *s, struct loop *loop, int signo) {
    return s->signals[signo] != NULL
               ? 0
               : loop_signal_new(loop, signo, on_signal, s, &s->signals[signo]);
}

int starter_signals_new(struct loop *loop, const struct job_spec *spec, starter_signal_fn *fn,
                        void *arg, struct starter_signals **ret) {
    static const int passed_on[] = {SIGUSR1, SIGUSR2};
    struct starter_signals *s = xcalloc(1, sizeof *s);
    int r = 0;
    *s = (struct starter_signals){.spec = spec, .fn = fn, .arg = arg};
    for (uint32_t i = 0; i < spec->n_signals && r == 0; i++)
        if (spec->signals[i] != SIGHUP || !child_is_ignored(SIGHUP)) /* nohup(1) */
            r = watch(s, loop, spec->signals[i]);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on) && r == 0; i++)
        r = watch(s, loop, passed_on[i]);
    if (r == 0)
        *ret = s;
    else
        starter_signals_free(s);
    return r;
}

void starter_signals_log(int signo, uint64_t grace_ns) {
    const char *name = signal_abbrev(signo);
    if (grace_ns > 0)
        log_notice("got SIG%s: stopping the job (up to %.0f s)", name != NULL ? name : "RT",
                   (double)grace_ns / (double)NS_PER_S);
    else
        log_notice("got SIG%s: stopping the job", name != NULL ? name : "RT");
}

void starter_signals_free(struct starter_signals *s) {
    if (s == NULL)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(s->signals); i++)
        loop_signal_free(s->signals[i]);
    free(s);
}
