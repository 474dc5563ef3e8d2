/* The signals of a head, whatever it starts agents with: those that end the job
 * (--signals-to-handle), and USR1 and USR2, which are for the workers.
 *
 *     starter_signals_new(loop, spec, on_signal, me, &s);
 *     starter_signals_free(s);
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "launcher/job/job.h"

struct starter_signals;

/* ends: it ends the job. */
typedef void starter_signal_fn(void *arg, int signo, bool ends);

/* The job is borrowed. SIGHUP, SIGINT and SIGQUIT stay ignored if this process ignores them. */
_must_use_ int starter_signals_new(struct loop *loop, const struct job_spec *spec,
                                   starter_signal_fn *fn, void *arg, struct starter_signals **ret);
/* Says that the signal ends the job. grace_ns: that of the workers; 0: it is not known. */
void starter_signals_log(int signo, uint64_t grace_ns);
void starter_signals_free(struct starter_signals *s); /* takes NULL */
