/* What runs in the child process of the arbiter over a directory: it takes one request at a time
 * from a socket, works on the job's folder, and answers. */
#pragma once

#include <sys/types.h>

#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

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

/* The main function of the helper process (io/process/helper.h); `arg` is this struct. It ends when
 * the other end of fd is closed. */
struct arbiter_dir_child {
    const char *path, *run_id;
    bool read_only;
};
int arbiter_dir_child_run(int fd, void *arg);
