/* The signals of a head, whatever it starts agents with: those that end the job
 * (--signals-to-handle), and USR1 and USR2, which are for the workers.
 *
 *     head_signals_new(loop, spec, on_signal, me, &s);
 *     head_signals_free(s);
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "launcher/job/job.h"

struct head_signals;

/* ends: it ends the job. */
typedef void head_signal_fn(void *arg, int signo, bool ends);

/* The job is borrowed. SIGHUP, SIGINT and SIGQUIT stay ignored if this process ignores them. */
_must_use_ int head_signals_new(struct loop *loop, const struct job_spec *spec, head_signal_fn *fn,
                                void *arg, struct head_signals **ret);
/* Says that the signal ends the job. grace_ns: that of the workers; 0: it is not known. */
void head_signals_say(int signo, uint64_t grace_ns);
void head_signals_free(struct head_signals *s); /* takes NULL */
