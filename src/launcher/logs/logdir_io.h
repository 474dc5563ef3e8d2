/* The folders of a run's logs:
 *
 *     D/<run id>/<generation>/<node>/<global rank>/{stdout.log,stderr.log,error.json}
 *     D/<run id>/latest -> newest generation
 *
 *     logdir_claim_run(base, run_id, form.log_nonce, &run_dir, &err);    once, at the first group
 *     logdir_make_generation(run_dir, generation, node, &node_dir, &err);   each generation
 *     logdir_make_worker(node_dir, rank, &dir, &err);
 *     logdir_set_latest(run_dir, generation);
 *
 * A run id that another run used before gets ".2", ".3", …; nothing is deleted, nothing mixed. All
 * nodes of one run give the same nonce, so on a shared folder they all come to the same name in
 * whatever order they arrive; on folders of their own the names may differ.
 *
 * Without --log-dir the same shape lies in a private temporary folder (tempdir_io.h), which
 * the owner removes at the end unless the report names a file in it.
 *
 * These calls block as long as the file system does. Paths that are returned are malloc'ed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define LOGDIR_NAME_MAX 128     /* bytes of a folder name made of a run id or host name */
#define LOGDIR_SUFFIX_MAX 10000 /* runs of one name */

/* --log-dir=/dev/null: no files at all. */
bool logdir_is_null(const char *base);

/* Makes base and everything above it. -ENOTDIR when it is a file; others from the kernel. */
_must_use_ int logdir_claim_run(const char *base, const char *run_id, uint64_t nonce,
                                char **ret_run_dir, struct err *err);
/* generation: "2.3". node: logdir_node_name(). The path is absolute, since workers get paths of
 * files in it and may change their working directory. */
_must_use_ int logdir_make_generation(const char *run_dir, const char *generation, const char *node,
                                      char **ret_node_dir, struct err *err);
_must_use_ int logdir_make_worker(const char *node_dir, uint32_t rank, char **ret_dir,
                                  struct err *err);
/* The log file of a stream (0 output, 1 error) in a worker's folder. */
char *logdir_log_path(const char *dir, int stream);
/* Replaces the link at once, unless it names a newer generation already. */
_must_use_ int logdir_set_latest(const char *run_dir, const char *generation);

/* Removes a folder and all in it; symbolic links are removed, not followed. The first error. */
_must_use_ int logdir_remove_tree(const char *dir);

/* A name that is one harmless path component: slashes, control characters and a leading dot or dash
 * become '_', the end is cut off at LOGDIR_NAME_MAX. "" becomes "_". */
void logdir_sanitise(const char *name, char ret[LOGDIR_NAME_MAX + 1]);
/* The host's name; "host-2" for its second agent (host_index 1) and so on. */
void logdir_node_name(const char *host, uint32_t host_index, char ret[LOGDIR_NAME_MAX + 1]);
