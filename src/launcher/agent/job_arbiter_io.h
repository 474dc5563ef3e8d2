/* The arbiter that a job's options name: a directory or etcd. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "rendezvous/arbiter/arbiter_io.h"

/* spec: backend DIR or ETCD; borrowed for the call. read_only: writes nothing. timeout_ns: for one
 * request; 0: ARBITER_TIMEOUT_NS. End it with arbiter_free() before the loop's reaper is freed.
 * Errors and texts are those of the function that makes this kind of arbiter. */
_must_use_ int job_arbiter_new(struct loop *loop, const struct job_spec *spec, bool read_only,
                               uint64_t timeout_ns, struct arbiter **ret, struct err *err);
