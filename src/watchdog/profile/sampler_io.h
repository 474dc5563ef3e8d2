/* Takes the samples of one node (profile/samples.h), in a helper that ends after `length_ns`. No
 * process is stopped, and nothing attaches to one.
 *
 *     r = profile_sampler_new(loop, &ask, on_samples, me, &sampler);    … on_samples(me, json, len)
 *
 * A worker's sample is that of its program's main thread: of the Python program below it, if it is
 * a wrapper (evidence/disturb.h). Workers that are started meanwhile are not sampled. */
#pragma once

#include <sys/types.h>

#include "io/loop.h"

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

struct profile_sampler;
/* json: as profile_write(), borrowed for the callback; "": nothing came. The sampler is freed
 * then. */
typedef void profile_sampled_fn(void *arg, const char *json, size_t len);

/* fn is called once, from the loop. Returns 0, or a negative errno: no process or descriptor could
 * be created; -EMFILE also if half of the open files that this process may have are in use. */
_must_use_ int profile_sampler_new(struct loop *loop, const struct profile_ask *ask,
                                   profile_sampled_fn *fn, void *arg, struct profile_sampler **ret);
void profile_sampler_free(struct profile_sampler *s); /* cancels: fn is not called; takes NULL */

/* When the tick of this number is: nanoseconds since 1970, at a random moment of its period, so
 * that ticks and the steps of a job do not keep in step. */
uint64_t profile_tick_ns(uint64_t seed, uint64_t period_ns, uint64_t tick);
