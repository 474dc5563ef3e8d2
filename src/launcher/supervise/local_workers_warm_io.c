/* The local workers and the pool of warm ones. */
#include <stdio.h>

#include "launcher/supervise/local_workers_priv.h"

static void on_facts(void *arg) {
    struct local_workers *c = arg;
    struct warm_facts facts;
    if (c->ops.on_warm == NULL)
        return;
    warm_pool_facts(c->warm, &facts);
    struct rdzv_warm warm = {.generation = c->warm_generation,
                             .warm = facts.warm,
                             .cold = facts.cold,
                             .waiting = facts.waiting};
    (void)snprintf(warm.reason, sizeof warm.reason, "%s", facts.reason);
    c->ops.on_warm(c->arg, &warm);
}

int local_workers_warm_new(struct local_workers *c) {
    const struct job_spec *spec = c->config.spec;
    if (spec->warm == JOB_WARM_OFF || spec->nproc == 0)
        return 0;
    struct warm_pool_config pool = {
        .reaper = c->config.reaper,
        .n = spec->nproc,
        .form = spec->warm == JOB_WARM_FORK ? WARM_FORK : WARM_PROCESS,
        .after_ns = spec->warm_after_ns,
        .skip = spec->warm_skip,
        .never = spec->entry == JOB_ENTRY_PROGRAM ? "--no-python starts no Python" : NULL,
        .on_facts = on_facts,
        .arg = c,
    };
    return warm_pool_new(c->loop, &pool, &c->warm);
}
