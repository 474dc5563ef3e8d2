/* The folders of the local workers' logs and error files, start after start. If they can't be made,
 * the job continues: this is reported once, counted, and tried again at each start.
 *
 *     logs = worker_logs_new(&spec, host, writer, &ops, me);
 *     r = worker_logs_prepare(logs, "2.3", &form);               … ops.on_prepared
 *     worker_logs_dir(logs, i);  worker_logs_error_file(logs, i);  …
 *     worker_logs_free(logs);                says how many starts had none
 *
 * The log writer makes them: a file system that hangs blocks only the log writer, and delays a
 * start by at most WRITER_PATIENCE_NS. What is in the private temporary folder is made here.
 *
 * Without a folder of its own a worker's error file lies in a private temporary one, if that can be
 * made, and what would go to log files goes to the console. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "launcher/job/job.h"
#include "launcher/logs/writer_io.h"
#include "rendezvous/protocol/messages.h"

struct worker_logs;

enum { WORKER_LOGS_E_LATER = 1 }; /* the writer makes them; on_prepared will come */

struct worker_logs_ops {
    /* The end of a worker_logs_prepare() that was WORKER_LOGS_E_LATER. From the loop. */
    void (*on_prepared)(void *arg, const struct err *err);
};

/* All are borrowed. */
struct worker_logs *worker_logs_new(const struct job_spec *spec, const char *host,
                                    struct writer *writer, const struct worker_logs_ops *ops,
                                    void *arg);
/* Removes the temporary folder, unless it is kept. NULL is fine. */
void worker_logs_free(struct worker_logs *l);

/* Has the folders of a generation made, and the files that workers write to themselves. A former
 * call that has not ended is forgotten. The only error, in on_prepared, is -ENOTDIR with a
 * sentence: at the first start --log-dir turns out to be a file, so nothing has happened yet. */
_must_use_ int worker_logs_prepare(struct worker_logs *l, const char *generation,
                                   const struct form *form);
/* Files were asked for, but this start can't have some or all of them. Reports this once. */
void worker_logs_lack(struct worker_logs *l, const char *why);
/* Whether the user wants this worker's files, even if none can be made. */
bool worker_logs_wanted(const struct worker_logs *l);

/* Of the present generation; NULL: none. Borrowed. */
const char *worker_logs_dir(const struct worker_logs *l, uint32_t index);
const char *worker_logs_node_dir(const struct worker_logs *l); /* of all its workers; absolute */
/* malloc'ed; "": it can have none. */
char *worker_logs_error_file(const struct worker_logs *l, uint32_t index);
/* logmux_worker.file_fds; until worker_logs_started(). */
void worker_logs_file_fds(const struct worker_logs *l, uint32_t index, int ret[2]);
/* The worker has them, or never will: close ours. */
void worker_logs_started(struct worker_logs *l, uint32_t index);

/* The temporary folder stays, because a report named a file in it. */
void worker_logs_keep(struct worker_logs *l);
/* Where files are kept for the user; NULL: nowhere. Borrowed. */
const char *worker_logs_kept(const struct worker_logs *l);
