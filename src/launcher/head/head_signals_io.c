#include "launcher/head/head_signals_io.h"

#include <signal.h>

#include "base/text/log.h"
#include "base/text/signal_name.h"
#include "io/process/child.h"

struct head_signals {
    const struct job_spec *spec;
    head_signal_fn *fn;
    void *arg;
    struct loop_signal *signals[NSIG]; /* by number; NULL: not watched */
};

static void on_signal(void *arg, int signo) {
    struct head_signals *s = arg;
    s->fn(s->arg, signo, job_is_ended_by(s->spec, signo));
}

static int watch(struct head_signals *s, struct loop *loop, int signo) {
    return s->signals[signo] != NULL
               ? 0
               : loop_signal_new(loop, signo, on_signal, s, &s->signals[signo]);
}

int head_signals_new(struct loop *loop, const struct job_spec *spec, head_signal_fn *fn, void *arg,
                     struct head_signals **ret) {
    static const int passed_on[] = {SIGUSR1, SIGUSR2};
    struct head_signals *s = xcalloc(1, sizeof *s);
    int r = 0;
    *s = (struct head_signals){.spec = spec, .fn = fn, .arg = arg};
    for (uint32_t i = 0; i < spec->n_signals && r == 0; i++)
        if (spec->signals[i] != SIGHUP || !child_is_ignored(SIGHUP)) /* nohup(1) */
            r = watch(s, loop, spec->signals[i]);
    for (size_t i = 0; i < ARRAY_SIZE(passed_on) && r == 0; i++)
        r = watch(s, loop, passed_on[i]);
    if (r == 0)
        *ret = s;
    else
        head_signals_free(s);
    return r;
}

void head_signals_say(int signo, uint64_t grace_ns) {
    const char *name = signal_abbrev(signo);
    if (grace_ns > 0)
        log_notice("got SIG%s: stopping the job (up to %.0f s)", name != NULL ? name : "RT",
                   (double)grace_ns / (double)NS_PER_S);
    else
        log_notice("got SIG%s: stopping the job", name != NULL ? name : "RT");
}

void head_signals_free(struct head_signals *s) {
    if (s == NULL)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(s->signals); i++)
        loop_signal_free(s->signals[i]);
    free(s);
}
