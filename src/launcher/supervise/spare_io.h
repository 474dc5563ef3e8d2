/* Helpers of the agent that a sweep spares, and that are not waited for at the end, in a page that
 * the guardian shares. This is the log writer, which the kernel may block for as long as a disk
 * does not answer. It holds nothing that another agent could need. Only async-signal-safe calls. */
#pragma once

#include <stdatomic.h>

#include "launcher/supervise/sweep_io.h"

#define SPARE_MAX 4 /* the last ones that were reported */

struct spare { /* 0: none is reported */
    atomic_int pids[SPARE_MAX];
    atomic_uint n;
};

/* It calls itself WRITER_NAME, by which it is known from one that gets its pid later. */
void spare_add(struct spare *s, pid_t pid);

struct spare_list {
    pid_t pids[SPARE_MAX + 1];
    struct sweep_except except; /* of these */
};
/* Those of them that exist now, and `more` (0: none). */
void spare_read(struct spare *s, pid_t more, struct spare_list *ret);
/* Kills and reaps those that are children of this process, and waits for them that long. */
void spare_end(struct spare *s, uint64_t ns);
