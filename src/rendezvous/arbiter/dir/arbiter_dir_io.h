/* The arbiter over a directory that all nodes see: muster-rendezvous(7), "Succession".
 * arbiter_record.h has the texts of the files; muster-arbiter(7) has the layout.
 *
 *     struct arbiter_dir_config config = {.path = "/shared/ckpt", .run_id = id};
 *     r = arbiter_dir_new(loop, &config, &arbiter, &err);
 *     … arbiter_io.h
 *
 * File systems block, network file systems for minutes. So every operation runs in a child process,
 * forked with the first request; this process exchanges messages with it and never waits. A child
 * that does not answer in time is left alone: its late result is ignored, and it answers again when
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

/* Does not access the directory yet: if it can't be used, the first answer reports that. -EINVAL:
 * the path or the run id is empty or too long. */
_must_use_ int arbiter_dir_new(struct loop *loop, const struct arbiter_dir_config *config,
                               struct arbiter **ret, struct err *err);

/* Whether the directory can be used, before anybody waits for it. Makes the run's folder, as the
 * first request would. A child process looks, for at most timeout_ns. 0: it can, or that is not
 * known, because the file system does not answer or the error may be over soon. A negative errno
 * and a sentence: only the user can mend it (its parent is missing, others may write in it, …). */
_must_use_ int arbiter_dir_check(const char *path, const char *run_id, uint64_t timeout_ns,
                                 struct err *err);

/* The job's key, which lies in its folder: read, or made if it is missing. A child process does it.
 * Blocks for at most timeout_ns. 0, or a negative errno and a sentence; -ETIMEDOUT: the file system
 * does not answer. read_only: nothing is made; ARBITER_DIR_E_NO_KEY: there is none. */
enum { ARBITER_DIR_E_NO_KEY = 1 };
_must_use_ int arbiter_dir_key(const char *path, const char *run_id, bool read_only,
                               uint64_t timeout_ns, uint8_t ret[AUTH_SECRET_BYTES],
                               struct err *err);

/* The current child's pid; 0: there is none. For tests, and so that it is not killed with the
 * workers. */
pid_t arbiter_dir_child_pid(const struct arbiter *arbiter);

/* ---- what runs in the child process, for tests: it works on one request at a time ---- */

/* The highest epoch that was read. It must be there for ever. Epoch 0: none yet. */
struct arbiter_dir_memory {
    uint32_t epoch;
    uint64_t leader; /* the incarnation that has it */
    uint64_t device; /* the file system it was on */
};

/* Both ends are this program, so messages are plain structs, one in each message of a
 * SOCK_SEQPACKET. */
struct arbiter_dir_task {
    uint64_t seq;
    struct arbiter_dir_memory memory; /* a new process gets it from the last one, this way */
    uint64_t deadline_ns;             /* of the answer; no claim may succeed after it */
    struct arbiter_request request;
};
struct arbiter_dir_result {
    uint64_t seq;
    struct arbiter_dir_memory memory;
    enum arbiter_result result;
    struct arbiter_record record;
    char text[RDZV_REASON_MAX / 4];
};

struct arbiter_dir_server {
    struct arbiter_folder folder;
    bool read_only;
    struct arbiter_dir_memory memory;
    uint64_t beat;        /* the last one that we wrote */
    uint64_t deadline_ns; /* of the current request */
};
void arbiter_dir_server_init(struct arbiter_dir_server *s, const char *path, const char *run_id,
                             bool read_only);
void arbiter_dir_server_fini(struct arbiter_dir_server *s);
/* Carries out one request; blocks. */
void arbiter_dir_serve(struct arbiter_dir_server *s, const struct arbiter_dir_task *task,
                       struct arbiter_dir_result *ret);
