/* The arbiter that a job's options name: a directory or etcd. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "rendezvous/arbiter/arbiter.h"

struct job_arbiter_config {
    const struct job_spec *spec; /* backend DIR or ETCD; borrowed for the call */
    bool look;                   /* only reads, and leaves nothing behind */
    uint64_t timeout_ns;         /* of one request; 0: ARBITER_TIMEOUT_NS */
};

/* arbiter_free() ends it, before the loop's reaper is freed. Errors are those of its maker, with
 * the text. */
_must_use_ int job_arbiter_new(struct loop *loop, const struct job_arbiter_config *config,
                               struct arbiter **ret, struct err *err);
