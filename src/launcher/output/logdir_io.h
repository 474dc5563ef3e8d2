/* The folders of a run's logs:
 *
 *     D/<run id>/<generation>/<node>/<global rank>/{stdout.log,stderr.log,error.json}
 *     D/<run id>/<generation>/<node>/{filtered_stdout.log,filtered_stderr.log}
 *     D/<run id>/latest -> newest generation
 *
 * If another run has used the run id before, ".2", ".3", … is appended. No logs are deleted, and
 * logs of different runs are not mixed. All nodes of one run pass the same nonce, so in a shared
 * folder they all get the same name. Without --log-dir the same structure is in a private temporary
 * folder (tempdir_io.h).
 *
 * mode: of files (--log-mode); folders get own_folder_mode() of it, whatever the umask is. Folders
 * that exist keep theirs. base may be a link, but nothing below it: a folder or link of another
 * user there counts as another run's.
 *
 * These calls block as long as the file system does. Returned paths are malloc'ed. */
#pragma once

#include "base/err.h"

/* the most bytes of a folder name made from a run id or host name */
#define LOGDIR_NAME_MAX 128
#define LOGDIR_SUFFIX_MAX 10000 /* the most runs with one name */

/* True for --log-dir=/dev/null: no files at all. */
bool logdir_is_null(const char *base);

/* Makes base and everything above it. -ENOTDIR if base is a file; -EPERM if another user may have
 * put it there (own_path_check()); others from the kernel. */
_must_use_ int logdir_claim_run(const char *base, const char *run_id, uint64_t nonce, uint32_t mode,
                                char **ret_run_dir, struct err *err);
/* generation: "2.3". node: logdir_node_name(). The path is absolute, because workers get paths of
 * files in it and can change their working directory. */
_must_use_ int logdir_make_generation(const char *run_dir, const char *generation, const char *node,
                                      uint32_t mode, char **ret_node_dir, struct err *err);
_must_use_ int logdir_make_worker(const char *node_dir, uint32_t rank, uint32_t mode,
                                  char **ret_dir, struct err *err);
/* The log file of a stream (0 output, 1 error) in a worker's folder. */
char *logdir_log_path(const char *dir, int stream);
/* The file of a stream's filtered lines, in a node's folder. */
char *logdir_filtered_path(const char *node_dir, int stream);
/* Replaces the link atomically, unless it already names a newer generation. */
_must_use_ int logdir_set_latest(const char *run_dir, const char *generation);

/* Notes in the run's folder that the run is over: nothing more is written there. */
_must_use_ int logdir_set_ended(const char *run_dir, uint32_t mode);
bool logdir_has_ended(const char *run_dir);

/* Makes a name that is one safe path component: slashes, control characters and a leading dot or
 * dash become '_', and a long name is cut at LOGDIR_NAME_MAX. "" becomes "_". */
void logdir_sanitise(const char *name, char ret[LOGDIR_NAME_MAX + 1]);
/* Writes the host's name; "host-2" for its second agent (host_index 1) and so on. */
void logdir_node_name(const char *host, uint32_t host_index, char ret[LOGDIR_NAME_MAX + 1]);
