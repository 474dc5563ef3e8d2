/* A child for what a library does that may crash or hang: NVML on a sick GPU, hwloc on a damaged
 * recording. It says what it found through a pipe.
 *
 *     r = topo_child_start("muster-nvml", ask, &config, &child);
 *     … read(child.fd, …) until its end, or a deadline …
 *     topo_child_end(&child);
 *
 * Blocking, for a process of one thread without a loop; what has a loop uses io/process/helper.h,
 * which topology stands beside and does not know. The child has none of the caller's descriptors
 * and handlers, and dies with the caller. The caller may ignore SIGCHLD, but must not reap children
 * that are not its own meanwhile. */
#pragma once

#include <sys/types.h>

#include "base/util.h"

#define TOPO_CHILD_REAP_MS 100 /* how long one that was killed is waited for */

struct topo_child {
    pid_t pid; /* 0: none */
    int fd;    /* read end, blocking, close-on-exec; -1: none */
};
#define TOPO_CHILD_INIT \
    { .pid = 0, .fd = -1 }

/* What runs in the child: writes to fd, returns its exit status. */
typedef int topo_child_fn(int fd, void *arg);

/* 0, or a negative errno: no pipe, no process; *ret is TOPO_CHILD_INIT then. name: PR_SET_NAME, at
 * most 15 bytes. */
_must_use_ int topo_child_start(const char *name, topo_child_fn *run, void *arg,
                                struct topo_child *ret);
/* Kills and reaps it. One that the kernel holds is left: init reaps it when we are gone. */
void topo_child_end(struct topo_child *c);
