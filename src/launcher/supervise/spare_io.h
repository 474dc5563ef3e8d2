/* Helpers of the agent that a sweep spares and that nobody waits for at the end, in a page that the
 * guardian sees: the log writer, which the kernel may hold for as long as a disk is away. It holds
 * nothing that another agent could need. Only async-signal-safe calls. */
#pragma once

#include <stdatomic.h>

#include "launcher/supervise/sweep_io.h"

#define SPARE_MAX 4 /* the last ones that were told */

struct spare { /* 0: none is told */
    atomic_int pids[SPARE_MAX];
    atomic_uint n;
};

/* It calls itself WRITER_NAME, by which it is known from one that gets its pid later. */
void spare_add(struct spare *s, pid_t pid);

struct spare_list {
    pid_t pids[SPARE_MAX + 1];
    struct sweep_except except; /* of these */
};
/* Those of them that are there now, and `more` (0: none). */
void spare_read(struct spare *s, pid_t more, struct spare_list *ret);
/* Kills and reaps those that are children of this process, and waits for them that long. */
void spare_end(struct spare *s, uint64_t ns);
