/* Which agents run on this machine: each has a small file in the run directory, so that "muster
 * status" finds them without an address. Only file access, no loop; the files only help people, so
 * a failure has no other effect.
 *
 *     struct registry_own own;
 *     if (registry_add(run_id, "127.0.0.1", port, &own, &err) < 0)
 *         log_debug("%s", err.text);
 *     …
 *     registry_remove(&own);
 *
 * The run directory is $MUSTER_RUN_DIR; else /run/muster for root; else $XDG_RUNTIME_DIR/muster,
 * else /tmp/muster-UID. It is made with mode 0700, and refused when it is another user's or when
 * others may write there.
 *
 * Whether a process lives is told by its pid, and in another pid namespace of this machine by a
 * lock on its file (flock(2)), which the kernel drops with the process. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

#define REGISTRY_PATH_MAX 512
#define REGISTRY_ENTRIES_MAX 1024 /* further files are ignored */

struct registry_own {
    char path[REGISTRY_PATH_MAX]; /* of this process's file; "": it has none */
    int lock;                     /* the file, locked while this process lives; -1 */
};

/* Tells that this process is an agent of that job, and where its listener is reached from this
 * machine (a literal address). Nothing is flushed to disk. 0, or a negative errno and a sentence;
 * *ret is valid either way. */
_must_use_ int registry_add(const char *run_id, const char *addr, uint16_t port,
                            struct registry_own *ret, struct err *err);
/* What was not added, or was removed, is fine. */
void registry_remove(struct registry_own *own);

struct registry_entry {
    char run_id[RDZV_RUN_ID_MAX];
    char host[RDZV_HOST_MAX];
    char addr[RDZV_ADDR_MAX]; /* literal */
    uint16_t port;
    int32_t pid;            /* as its own pid namespace counts */
    bool foreign;           /* of another pid namespace or machine: it may be gone */
    uint64_t since_wall_ns; /* when it was added, since 1970 */
};

/* The agents of this machine, oldest first; files of processes that are gone are removed on the
 * way. Looks in every directory that an agent of this user may have chosen. *ret is malloc'ed, NULL
 * when there are none. 0, or a negative errno and a sentence: a directory is there but can't be
 * used. */
_must_use_ int registry_list(struct registry_entry **ret, size_t *ret_n, struct err *err);

/* Removes files of processes that are gone, and what was never finished, until until_ns
 * (CLOCK_MONOTONIC). */
void registry_sweep(uint64_t until_ns);

/* The run directory, made where it is not there, for other small files of agents of this host.
 * *ret_fd is the caller's to close; `path` names it, for messages. 0, or a negative errno and a
 * sentence. */
_must_use_ int registry_dir_open(int *ret_fd, char path[REGISTRY_PATH_MAX], struct err *err);
