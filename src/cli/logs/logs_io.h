/* From what a user calls a run to the folder of its logs, the log files in it, and showing them.
 *
 *     r = logs_find(run, log_dir, &found, &err);
 *     status = show_logs(&view);                 of found.dir
 *     logs_found_fini(&found);
 *
 * The log files in a run's folder are RUN/GENERATION/NODE/RANK/{stdout,stderr}.log
 * (launcher/output/logdir_io.h).
 *
 * No file stays open: a job can have thousands. */
#pragma once

#include "base/err.h"
#include "cli/logs/rank_set.h"

struct logs_found {
    char *dir;        /* of the run */
    char *generation; /* if the folder of one was named; or NULL */
    char *run_id;     /* NULL: not known */
    char **others;    /* -EEXIST: which runs it could be */
    size_t n_others;
};

/* run: a run id, the beginning of one, or a folder; NULL: the newest run. log_dir: where its folder
 * is, as --log-dir of muster run; NULL: any. -ENOENT: there is none; -ENODATA: it keeps no logs;
 * -EEXIST: several have that name, they are in `others`; each with a sentence. Call
 * logs_found_fini() in every case. */
_must_use_ int logs_find(const char *run, const char *log_dir, struct logs_found *ret,
                         struct err *err);
void logs_found_fini(struct logs_found *found);

/* Whether this can be a generation's folder, by its name. */
bool log_is_generation(const char *name);

#define LOGS_DIRS_MAX 256

enum logs_prefix { LOGS_PREFIX_AUTO = 1, LOGS_PREFIX_ALWAYS, LOGS_PREFIX_NEVER };

struct logs_view {
    struct rank_set ranks;
    bool streams[2];
    const char *generation;          /* "all", "latest", or a name */
    const char *dirs[LOGS_DIRS_MAX]; /* of the run: one, or each node's own */
    size_t n_dirs;
    const char *run_id; /* NULL: not known */
    bool follow, timestamps;
    enum logs_prefix prefix;
    uint64_t lines; /* only the last ones; UINT64_MAX: all */
};

/* Prints the logs to standard output as they are now, or follows them until the run ends. Returns
 * the exit status. It is not a failure if the reader leaves. */
_must_use_ int show_logs(const struct logs_view *view);
