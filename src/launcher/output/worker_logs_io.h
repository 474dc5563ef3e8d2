/* The folders of the local workers' logs and error files, for each start. If they can't be made,
 * the job continues: this is reported once, counted, and tried again at each start. The log writer
 * makes them: a file system that hangs delays a start by at most WRITER_PATIENCE_NS.
 *
 * If a worker has no folder, its error file is in a private temporary one, if that can be made, and
 * output for log files goes to the console. */
#pragma once

#include "base/err.h"
#include "launcher/job/job.h"
#include "launcher/output/writer_io.h"
#include "rendezvous/protocol/messages.h"

struct worker_logs;

enum { WORKER_LOGS_E_LATER = 1 }; /* the writer makes them; on_prepared will be called */

/* A worker_logs_prepare() that returned WORKER_LOGS_E_LATER has ended. Called from the loop. */
typedef void worker_logs_fn(void *arg, const struct err *err);

/* All are borrowed. */
struct worker_logs *worker_logs_new(const struct job_spec *spec, const char *host,
                                    struct writer *writer, worker_logs_fn *on_prepared, void *arg);
/* Removes the temporary folder, unless it is kept. Takes NULL. */
void worker_logs_free(struct worker_logs *l);

/* Requests the folders of a generation, and the files that workers write to themselves. A previous
 * call that has not ended is cancelled. The only error, in on_prepared, is -ENOTDIR with a
 * sentence: at the first start --log-dir is found to be a file, so nothing has happened yet. */
_must_use_ int worker_logs_prepare(struct worker_logs *l, const char *generation,
                                   const struct form *form);
/* Files were requested, but some or all are missing in this start. Reports this once. */
void worker_logs_lack(struct worker_logs *l, const char *why);
/* Whether -r or -t of the job ask for files of a worker. */
bool worker_logs_asked_for(const struct job_spec *spec);
/* Whether the user wants log files, even if none can be made. */
bool worker_logs_wanted(const struct worker_logs *l);

/* The worker's folder in the current generation; NULL: none. Borrowed. */
const char *worker_logs_dir(const struct worker_logs *l, uint32_t index);
/* the folder of all its workers; absolute */
const char *worker_logs_node_dir(const struct worker_logs *l);
/* malloc'ed; "": there can be none. */
char *worker_logs_error_file(const struct worker_logs *l, uint32_t index);
/* A path of the current generation at which a server of the worker can listen (unix(7)), in a
 * private folder on this machine, which is made if need be; nothing is there yet. malloc'ed; NULL:
 * there is no such folder, its path is too long, or its file system has no sockets. */
char *worker_logs_socket(struct worker_logs *l, uint32_t index);
/* For logmux_open(). The caller owns them from now on. */
void worker_logs_take_fds(struct worker_logs *l, uint32_t index, int ret[2]);

/* The run is over on all nodes: notes this in its folder. */
void worker_logs_ended(struct worker_logs *l);
/* Adds a line to this file of the run's folder, which worker_logs_kept() has. */
void worker_logs_event(struct worker_logs *l, const char *name, const char *line);
/* The temporary folder is kept, because a report named a file in it. */
void worker_logs_keep(struct worker_logs *l);
/* For reports of hangs: the run's folder, else the temporary one; NULL: none, or
 * --log-dir=/dev/null. Borrowed. */
const char *worker_logs_hang_dir(const struct worker_logs *l);
/* The folder that is kept for the user; NULL: none. Borrowed. */
const char *worker_logs_kept(const struct worker_logs *l);
