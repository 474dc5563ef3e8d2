/* The latest runs of this user on this machine, where their logs are and how they ended, for
 * "muster logs" and "muster status". Each has a small file in the run directory (registry_io.h),
 * which a restart of the machine empties. No loop. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

#define RECENT_RUNS_KEPT 100 /* of the older ones, the records are removed */
#define RECENT_RUNS_PATH_MAX 4096
#define RECENT_RUNS_FILE_MAX 48

struct recent_run {
    char run_id[RDZV_RUN_ID_MAX];
    char log_dir[RECENT_RUNS_PATH_MAX]; /* the run's folder, absolute; "": it keeps no logs */
    uint64_t since_wall_ns;             /* when the job began, in ns since 1970 */
    /* 0: its end was not recorded; the same as since_wall_ns: no worker of it ran here */
    uint64_t ended_wall_ns;
    enum outcome outcome;             /* NONE: not known, or this node left before the end */
    char reason[RDZV_REASON_MAX / 4]; /* how it ended, in one line; or "" */
    char file[RECENT_RUNS_FILE_MAX];  /* the name of its record in the run directory */
    bool lives;                       /* an agent of it runs on this machine */
};

/* age_ns: of the job. log_dir: the run's folder, relative or absolute, which is not touched; NULL:
 * it keeps no logs. */
_must_use_ int recent_runs_add(const char *run_id, uint64_t age_ns, const char *log_dir,
                               struct err *err);

/* Of the newest run of that name; if there is none, of one that never started. */
_must_use_ int recent_runs_end(const char *run_id, enum outcome outcome, const char *reason,
                               struct err *err);

/* Newest first. *ret: malloc'ed; NULL: none. 0, or a negative errno and a sentence. */
_must_use_ int recent_runs_list(struct recent_run **ret, size_t *ret_n, struct err *err);

/* Whether `name` is the beginning of the id, or the number of the job in Slurm, if the id is
 * CLUSTER.JOB or CLUSTER.JOB.STEP. A name with ":" or "/" is something else. */
bool run_id_begins(const char *run_id, const char *name);
/* Whether `name` can be the number of a job. */
bool run_id_is_job(const char *name);
/* By a whole id or the name of a log folder, else the beginning of only one id, of the runs that
 * live or else of all; the first run with it. Returns its index; -ENOENT; -EEXIST: several begin
 * so. */
ssize_t recent_runs_find(const struct recent_run *runs, size_t n, const char *name);
