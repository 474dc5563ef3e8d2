/* Takes the samples of one node (profile/samples.h), in a helper that ends after `length_ns`. No
 * process is stopped, and nothing attaches to one.
 *
 *     r = profile_sampler_new(loop, &ask, on_samples, me, &call);      … on_samples(me, &answer)
 *     json = helper_answer_line(&answer, &len);                         as profile_write()
 *
 * A worker's sample is that of its program's main thread: of the Python program below it, if it is
 * a wrapper (evidence/disturb.h). Workers that are started meanwhile are not sampled. */
#pragma once

#include <sys/types.h>

#include "io/process/helper_call.h"

struct profile_worker {
    uint32_t rank;
    pid_t pid;
    uint64_t step; /* the last MUSTER_STEP; 0: none */
};
struct profile_ask { /* borrowed for the call of profile_sampler_new() */
    const struct profile_worker *workers;
    size_t n;
    uint64_t period_ns, length_ns;
    uint64_t seed; /* of the ticks: the same on all nodes, such as the hash of the run's id */
};

/* The caller may free the call. Returns 0, or a negative errno: no process or descriptor could be
 * created; -EMFILE also if half of the open files that this process may have are in use. */
_must_use_ int profile_sampler_new(struct loop *loop, const struct profile_ask *ask,
                                   helper_call_fn *fn, void *arg, struct helper_call **ret);

/* When the tick of this number is: nanoseconds since 1970, at a random moment of its period, so
 * that ticks and the steps of a job do not keep in step. */
uint64_t profile_tick_ns(uint64_t seed, uint64_t period_ns, uint64_t tick);
