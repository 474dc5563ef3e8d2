/* The runs that this user started on this machine lately, and where their logs are: for "muster
 * logs", also after the end of a run. Each has a small file in the run directory (registry_io.h),
 * which a restart of the machine empties. Only file access, no loop. A failure has no other effect
 * than that the run must be named by its folder. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

#define RECENT_RUNS_KEPT 100 /* of the older ones, the records are removed */
#define RECENT_RUNS_PATH_MAX 4096

struct recent_run {
    char run_id[RDZV_RUN_ID_MAX];
    char log_dir[RECENT_RUNS_PATH_MAX]; /* the run's folder, absolute; "": it keeps no logs */
    uint64_t since_wall_ns;             /* when it was recorded, in ns since 1970 */
};

/* Records a run of this machine. log_dir: the run's folder, relative to the working directory or
 * absolute; NULL: it keeps no logs. It does not touch that folder. */
_must_use_ int recent_runs_add(const char *run_id, const char *log_dir, struct err *err);

/* Lists them, newest first. *ret is malloc'ed, or NULL if there are none. Returns 0, or a negative
 * errno and a sentence. */
_must_use_ int recent_runs_list(struct recent_run **ret, size_t *ret_n, struct err *err);
