/* What the watchdog gets from the launcher: this node's workers. Pure. */
#pragma once

#include <sys/types.h>

#include "base/text/envlist.h"
#include "watchdog/worker_signs.h"

/* The launcher's workers of this node, by local rank, and what they have; opaque here. */
struct local_workers;
struct worker_logs;
struct spare;
struct hang_workers_ops {
    pid_t (*pid)(const struct local_workers *w, uint32_t local_rank); /* 0: none runs */
    bool (*any)(const struct local_workers *w);                       /* some were started */
    struct worker_announced (*announced)(const struct local_workers *w, uint32_t local_rank,
                                         uint64_t now_ns);
    /* Its output is not read, because the job's own output is not read. */
    bool (*is_held)(const struct local_workers *w, uint32_t local_rank);
    /* Its environment. *ret is empty; the caller owns it. False: not known. */
    bool (*env)(const struct local_workers *w, uint32_t local_rank, struct envlist *ret);
    /* The file of its standard output (0) or error (1); malloc'ed; NULL: none. */
    char *(*log_path)(const struct local_workers *w, uint32_t local_rank, int stream);
    uint16_t (*store_port)(const struct local_workers *w); /* of the workers' store; 0: not known */
    /* Folders, borrowed; NULL: none. Of this node's logs; and where a hang is reported, which is
     * kept if keep_files() follows. */
    const char *(*node_dir)(const struct local_workers *w);
    const char *(*hang_dir)(const struct worker_logs *files);
    void (*keep_files)(struct worker_logs *files);
    /* A dead disk may hold this helper for ever: nothing waits for it. */
    void (*spare)(struct spare *spare, pid_t pid);
    bool (*spared)(struct spare *spare, const char *name); /* one of this name lives */
    bool (*is_named)(pid_t pid, const char *name);         /* a process has this name */
};
struct hang_workers {
    const struct hang_workers_ops *ops;
    struct local_workers *of;
    struct worker_logs *files;
    struct spare *spare; /* NULL: none are spared */
};
