/* The witness: a helper that is placed as a worker is, in a session of its own below the agent, and
 * reports which signals reach it: those to every process of a job, not those to muster alone or to
 * its process groups (tree_signals.h). Its name and command line are overwritten, because pkill -f
 * of muster does not find workers, and must not find it either. */
#pragma once

#include <sys/types.h>

#include "io/loop.h"

#define WITNESS_NAME "signal-witness"

struct witness;

/* at_ns: when it came, on clock_now_ns()'s clock. From the loop. */
typedef void witness_fn(void *arg, int signo, uint64_t at_ns);

/* Starts it for these signals. 0, or a negative errno: no process or descriptor. */
_must_use_ int witness_new(struct loop *loop, const int *signals, size_t n, witness_fn *fn,
                           void *arg, struct witness **ret);
/* Its process. */
pid_t witness_pid(const struct witness *w);
/* Whether it watches: earlier signals are not reported. Takes NULL: false. */
bool witness_is_ready(struct witness *w);
/* Takes NULL. */
void witness_free(struct witness *w);
