/* The agents that run on this machine, each with a small file in the run directory, so that "muster
 * status" finds it; after a failure it does not. No loop.
 *
 * The run directory is $MUSTER_RUN_DIR; else /run/muster for root; else $XDG_RUNTIME_DIR/muster,
 * else /tmp/muster-UID; and if none of these can be made, /dev/shm/muster-UID. It is created with
 * mode 0700. It is refused if it belongs to another user, or if others can write to it.
 *
 * Whether a process is alive is known by its pid; in another pid namespace of this machine by a
 * lock on its file (flock(2)), which the kernel releases when the process ends. */
#pragma once

#include "base/err.h"
#include "rendezvous/auth/keyring_io.h"
#include "rendezvous/protocol/messages.h"

#define REGISTRY_PATH_MAX 512
#define REGISTRY_ENTRIES_MAX 1024 /* further files are ignored */
#define REGISTRY_ASK_MAX 512

struct registry_own {
    char path[REGISTRY_PATH_MAX]; /* of this process's file; "": it has none */
    bool has_key;                 /* a file of its own, beside that */
    /* the file's descriptor, locked while this process lives; -1: none */
    int lock;
};

/* Records that this process is an agent of that job, and where its listener can be reached from
 * this machine (a literal address). Nothing is flushed to disk. Returns 0, or a negative errno and
 * a sentence; *ret is valid in both cases. */
_must_use_ int registry_add(const char *run_id, const char *addr, uint16_t port,
                            struct registry_own *ret, struct err *err);
/* Records that this process is the head of a job on so many nodes (1 or more), which are other
 * machines as far as it knows. Nobody can ask it; `ask` is the beginning of a shell's line that
 * runs muster on one of them: "ssh node1 /usr/bin/muster". */
_must_use_ int registry_add_head(const char *run_id, uint32_t n_nodes, const char *ask,
                                 struct registry_own *ret, struct err *err);
/* Leaves the key of the job beside the entry, for this user's operators on this machine: the
 * directory is this user's alone, and the file has mode 0600. Not for a key that is in no file
 * (AUTH_FROM_ENV). Does nothing if `own` was not added. */
_must_use_ int registry_add_key(struct registry_own *own, const uint8_t secret[AUTH_SECRET_BYTES],
                                struct err *err);
/* Removes the key, too. It is fine if `own` was not added, or is removed already. */
void registry_remove(struct registry_own *own);

struct registry_entry {
    char run_id[RDZV_RUN_ID_MAX];
    char host[RDZV_HOST_MAX];
    char addr[RDZV_ADDRS_MAX];       /* literal */
    uint16_t port;                   /* 0: of a head */
    uint32_t head_nodes;             /* of a head: how many nodes the job has; else 0 */
    char head_ask[REGISTRY_ASK_MAX]; /* of a head, as it was added; "": not known */
    int32_t pid;                     /* in its own pid namespace */
    uint32_t uid;                    /* the user whose directory has it: */
    char dir[REGISTRY_PATH_MAX];
    bool foreign;           /* from another pid namespace or machine: the process may be gone */
    uint64_t since_wall_ns; /* when it was added, in ns since 1970 */
};

/* Lists the agents of this machine, oldest first, and removes files of processes that are gone.
 * Searches every directory that an agent of this user may have chosen. *ret is malloc'ed, or NULL
 * if there are none. Returns 0, or a negative errno and a sentence: a directory exists but can't be
 * used. */
_must_use_ int registry_list(struct registry_entry **ret, size_t *ret_n, struct err *err);
/* The same with heads, and for root also what other users run, in the directories that they choose
 * if MUSTER_RUN_DIR is not set; none of their files is removed. */
_must_use_ int registry_list_all(struct registry_entry **ret, size_t *ret_n, struct err *err);

/* Adds the keys that agents and heads of this user have left, for root those of any: of a run;
 * NULL: of all. Of too many for the ring, some. */
void registry_load_keys(uint32_t uid, const char *run_id, struct keyring *to);
/* What a head knows of the run id may be its beginning, up to a dot. */
bool registry_is_of_run(const struct registry_entry *e, const char *run_id);

/* Removes unfinished files, and those of ended processes. Stops at until_ns (CLOCK_MONOTONIC). */
void registry_sweep(uint64_t until_ns);

/* Opens the run directory, or makes it, for small files of this host's agents. The caller closes
 * *ret_fd; `path`: for messages. 0, or a negative errno and a sentence. */
_must_use_ int registry_dir_open(int *ret_fd, char path[REGISTRY_PATH_MAX], struct err *err);
