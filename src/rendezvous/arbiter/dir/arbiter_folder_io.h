/* One job's folder in a shared directory, and the rules of claims in it. Calls may block: only the
 * arbiter's child process makes them (arbiter_dir_io.h).
 *
 *     <path>/muster-<run id>/     0700, ours
 *         epoch-3      the record of epoch 3 (arbiter_record.h); made once, exclusively
 *         beat-3       16 hexadecimal digits, rewritten in place by epoch 3's leader
 *         key          the job's key (auth.h), 0600; the first node creates it
 *         claim-…  mark-…  owner-…  key-…
 *                      files that are being written; removed when an hour old
 *
 * Network file systems cache names, and their absence, for up to a minute. On Linux an open() of
 * the folder itself ends that, and contents are requested with each open(). So the folder is opened
 * again for each request, and what supersedes an epoch is written into that epoch's own file. */
#pragma once

#include <sys/types.h>

#include "rendezvous/arbiter/arbiter_record.h"
#include "rendezvous/auth/auth.h"

#define ARBITER_PATH_MAX 2048
/* The limit of files that are examined when the folder has to be listed. */
#define ARBITER_LIST_MAX 100000
#define ARBITER_STALE_NS (3600 * NS_PER_S)

/* The highest epoch that was read. It must be there for ever. Epoch 0: none yet. */
struct arbiter_dir_memory {
    uint32_t epoch;
    uint64_t leader; /* the incarnation that has it */
    uint64_t device; /* the file system it was on */
};

/* Both ends are this program: plain structs, one in each message of a SOCK_SEQPACKET. */
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

struct arbiter_folder {
    const char *path; /* the shared directory; borrowed */
    char *name;       /* of the folder in it */
    int fd;           /* the folder, while a request is served; else -1 */
    bool read_only;   /* only READs, which create nothing */
    bool swept;
    bool squashed; /* files that we create there belong to `squashed_uid`, not to us */
    uid_t squashed_uid;
    struct arbiter_dir_memory memory;
    uint64_t beat;        /* the last one that we wrote */
    uint64_t asker;       /* incarnation of the request: names the files that are being written */
    uint64_t deadline_ns; /* of the request */
};
void arbiter_folder_init(struct arbiter_folder *f, const char *path, const char *run_id,
                         bool read_only);
void arbiter_folder_fini(struct arbiter_folder *f);
/* Carries out one request. */
void arbiter_folder_serve(struct arbiter_folder *f, const struct arbiter_dir_task *task,
                          struct arbiter_dir_result *ret);

enum { ARBITER_FOLDER_E_NONE = 1 }; /* there is none, and nothing was created */
/* Opens the folder. `create`: if it is missing, it is created. Refuses one that others could
 * change. 0, ARBITER_FOLDER_E_NONE, or a negative errno and a sentence. */
_must_use_ int arbiter_folder_open(struct arbiter_folder *f, bool create, struct err *err);
/* The key in the open folder, made if it is missing, the same for all; read only:
 * ARBITER_FOLDER_E_NONE. -EINVAL: the file holds something else; -EPERM: it is another user's, or
 * others may read it. */
_must_use_ int arbiter_folder_key(const struct arbiter_folder *f, uint8_t ret[AUTH_SECRET_BYTES],
                                  struct err *err);
