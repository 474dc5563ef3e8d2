/* Helpers of the agent that sweeps spare, and that are not waited for at the end. The list is in a
 * page that the guardian shares. The only such helper is the log writer, which the kernel can block
 * for as long as a disk does not answer. It holds nothing that another agent could need. All calls
 * are async-signal-safe. */
#pragma once

#include <stdatomic.h>

#include "launcher/supervise/sweep_io.h"

#define SPARE_MAX 4 /* the last ones that were added */

struct spare { /* 0: none */
    atomic_int pids[SPARE_MAX];
    atomic_uint n;
};

/* Adds a helper. Its process name is WRITER_NAME, so a process that gets its pid later can be told
 * apart. */
void spare_add(struct spare *s, pid_t pid);

struct spare_list {
    pid_t pids[SPARE_MAX + 1];
    struct sweep_except except; /* of these */
};
/* Lists the helpers that exist now, and `more` (0: none). */
void spare_read(struct spare *s, pid_t more, struct spare_list *ret);
/* Kills and reaps the helpers that are children of this process, and waits for them for at most
 * `ns`. */
void spare_end(struct spare *s, uint64_t ns);
