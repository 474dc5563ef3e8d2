/* The pool of warm workers on this node: one template, or one standby for each local rank. All are
 * children that the reaper watches, and so helpers for every sweep (worker_io.h) until they are
 * taken. The pool begins to warm config.after_ns after the last start of a worker. */
#pragma once

#include "io/loop.h"
#include "io/process/child.h"
#include "io/process/reaper.h"
#include "launcher/warm/warm.h"

struct warm_pool;

struct warm_pool_config {
    struct child_reaper *reaper;
    uint32_t n;         /* workers of this node */
    enum job_warm form; /* PROCESS or FORK */
    uint64_t after_ns;
    uint64_t import_ns; /* how long importing may take; 0: WARM_IMPORT_NS */
    const char *skip;   /* packages with commas that are not imported; NULL: none. Borrowed */
    const char *never;  /* why no worker can be warm, borrowed; NULL: they can */
    /* warm_pool_facts() may have changed. Called from the loop; NULL: no one asks */
    void (*on_facts)(void *arg);
    void *arg;
};

_must_use_ int warm_pool_new(struct loop *loop, const struct warm_pool_config *config,
                             struct warm_pool **ret);
/* Kills what waits. Takes NULL. */
void warm_pool_free(struct warm_pool *p);

struct warm_taken {
    struct child_watch *watch; /* owned; for child_watch_hand_over() */
    int control_fd; /* owned; the answer to the go comes there: GOING, or COLD; or its end */
};
/* Worker `index` is to be started by `spec`, with spec->stdout_fd and stderr_fd. True: a standby
 * has got the go instead, which may still answer that it can't. False: it must be started cold. */
_must_use_ bool warm_pool_take(struct warm_pool *p, uint32_t index, const struct child_spec *spec,
                               struct warm_taken *ret);
/* What to start the worker by: `spec`, or a copy, for child_spec_free(), with which it records what
 * it imports: *ret_copy, else NULL. */
const struct child_spec *warm_pool_record(struct warm_pool *p, uint32_t index,
                                          const struct child_spec *spec,
                                          struct child_spec **ret_copy);
/* One that was taken did not begin, and is started cold: what else waits is not used either. */
void warm_pool_refused(struct warm_pool *p, uint32_t index, const char *reason);
/* A worker that was started warm has failed by itself so long after its start. */
void warm_pool_failed(struct warm_pool *p, uint64_t ran_ns);

/* One that was taken has begun, or never will. */
void warm_pool_answered(struct warm_pool *p);

/* How many processes of the pool have ended by themselves so far: the kernel can have ended them
 * for memory. */
uint32_t warm_pool_ended(const struct warm_pool *p);

/* Of the last start, and of what waits for the next; without its generation. */
void warm_pool_facts(const struct warm_pool *p, struct rdzv_warm *ret);
