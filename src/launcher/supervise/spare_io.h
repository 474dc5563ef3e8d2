/* Helpers of the agent that sweeps spare, and that are not waited for at the end. The list is in a
 * page that the guardian shares. Such helpers are the log writer and those that keep what ranks did
 * when they hung, and that read logs for that: the kernel can block them for as long as a disk does
 * not answer. They hold nothing that another agent could need. All calls are async-signal-safe. */
#pragma once

#include <stdatomic.h>

#include "launcher/supervise/sweep_io.h"

#define SPARE_MAX 8 /* of more that live, the last ones */

struct spare { /* 0: none */
    atomic_int pids[SPARE_MAX];
    atomic_uint n;
};

/* Of watchdog/act/hang_case_io.h, hang_leader_io.h and watchdog/evidence/gather_io.h. */
#define SPARE_COMPARE_NAME "muster-compare"
#define SPARE_ADD_NAME "muster-hang-add"
#define SPARE_LOG_NAME "muster-log-tail"
#define SPARE_RECORDER_NAME "muster-recorder"

/* Adds a helper, or one of its own, in the place of one that has ended if there is one. Its process
 * name is WRITER_NAME or one of these: another process that gets its pid later has another name.
 * Takes NULL. */
void spare_add(struct spare *s, pid_t pid);

struct spare_list {
    pid_t pids[SPARE_MAX + 1];
    struct sweep_except except; /* of these */
};
/* Lists the helpers that exist now, and `more` (0: none). */
void spare_read(struct spare *s, pid_t more, struct spare_list *ret);
/* Whether one of this name still exists. Takes NULL. */
bool spare_lives(struct spare *s, const char *name);
/* Kills and reaps the helpers that are children of this process, and waits for them for at most
 * `ns`. */
void spare_end(struct spare *s, uint64_t ns);
