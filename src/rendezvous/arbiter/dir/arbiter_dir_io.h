/* The arbiter over a directory that all nodes see: muster-rendezvous(7), "Succession";
 * muster-arbiter(7) has the layout.
 *
 *     struct arbiter_dir_config config = {.path = "/shared/ckpt", .run_id = id};
 *     r = arbiter_dir_new(loop, &config, &arbiter, &err);
 *     … arbiter_io.h
 *
 * Network file systems block for minutes, so a child process, forked with the first request, does
 * the work. If it does not answer in time, its late result is ignored, and it answers again when
 * the file system does. A child that dies is replaced with the next request. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

struct arbiter_dir_config {
    const char *path;    /* copied. Created if it is missing; its parent must exist */
    const char *run_id;  /* copied */
    uint64_t timeout_ns; /* 0: ARBITER_TIMEOUT_NS */
    bool read_only;      /* only READs, which create nothing */
};

/* Does not access the directory yet. -EINVAL: the path or the run id is empty or too long. */
_must_use_ int arbiter_dir_new(struct loop *loop, const struct arbiter_dir_config *config,
                               struct arbiter **ret, struct err *err);

/* Before anybody waits for it: makes the run's folder, in a child process, for at most timeout_ns.
 * A negative errno and a sentence: only the user can mend it (its parent is missing, others may
 * write in it, …). 0: it can be used, or that is not known yet. */
_must_use_ int arbiter_dir_check(const char *path, const char *run_id, uint64_t timeout_ns,
                                 struct err *err);

/* Reads the job's key in its folder, or makes it, in a child process. 0, or a negative errno and a
 * sentence; -ETIMEDOUT: no answer. read_only: ARBITER_DIR_E_NO_KEY: there is none. */
enum { ARBITER_DIR_E_NO_KEY = 1 };
_must_use_ int arbiter_dir_key(const char *path, const char *run_id, bool read_only,
                               uint64_t timeout_ns, uint8_t ret[AUTH_SECRET_BYTES],
                               struct err *err);

/* 0: there is none. So that it is not killed with the workers; for tests. */
pid_t arbiter_dir_child_pid(const struct arbiter *arbiter);
