/* The arbiter over a directory that all nodes see: muster-rendezvous(7), "Succession". The texts of
 * the files are arbiter_record.h's; the layout is in muster-arbiter(7).
 *
 *     struct arbiter_dir_config config = {.path = "/shared/ckpt", .run_id = id};
 *     r = arbiter_dir_new(loop, &config, &arbiter, &err);
 *     … arbiter.h
 *
 * File systems block, network file systems for minutes. So every operation runs in a child process,
 * forked with the first request; this process only speaks to it and never waits. A child that does
 * not answer in time is left alone: what it still does counts for nothing, and it answers again
 * when it is back. One that dies is replaced with the next request. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/arbiter/arbiter.h"

struct arbiter_dir_config {
    const char *path;    /* copied. Made if it is missing; its parent must be there */
    const char *run_id;  /* copied */
    uint64_t timeout_ns; /* 0: ARBITER_TIMEOUT_NS */
    bool look;           /* only READs, which make nothing that is missing */
};

/* Touches nothing yet: a directory that can't be used shows in the first answer.
 * -EINVAL: the path or the run id is empty or too long. */
_must_use_ int arbiter_dir_new(struct loop *loop, const struct arbiter_dir_config *config,
                               struct arbiter **ret, struct err *err);

/* The present child, 0: none. For tests, and for whoever spares it. */
pid_t arbiter_dir_child_pid(const struct arbiter *arbiter);
