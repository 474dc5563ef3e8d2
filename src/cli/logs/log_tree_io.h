/* The log files in a run's folder (launcher/output/logdir_io.h), and torchrun's:
 *
 *     RUN/GENERATION/NODE/RANK/{stdout,stderr}.log       muster; the node's folder may be missing
 *     RUN/attempt_N/RANK/{stdout,stderr}.log             torchrun
 *
 *     log_tree_scan(&tree, &choice);      again, to find what is new
 *     log_tree_fini(&tree);
 *
 * No file stays open: a job can have thousands. */
#pragma once

#include <stdbool.h>

#include "base/idmap.h"
#include "cli/logs/log_merge.h"
#include "cli/logs/rank_set.h"

#define LOG_TREE_FILES_MAX 65536 /* of one generation; further ones are not shown */

struct log_file {
    struct log_source source; /* the first member: merging passes this */
    char *path, *times_path;
    uint32_t rank;
    int stream;                   /* 0 standard output, 1 standard error */
    uint64_t read_ns;             /* when bytes were read last (CLOCK_MONOTONIC) */
    uint64_t offset;              /* of the bytes that are read next */
    uint64_t times_at;            /* the same, in the file of times */
    struct log_stamp stamps[32];  /* that were read from there, */
    size_t n_stamps, used_stamps; /* and those of them that were asked for */
};

struct log_generation {
    char *name;              /* "2.3", "attempt_0" */
    struct log_file **files; /* owned; by rank and stream */
    size_t n;
    struct idmap known; /* the hash of a path → its file */
};

struct log_choice {
    struct rank_set ranks;
    bool streams[2];
    const char *generation; /* "all", "latest", or a name */
};

struct log_tree {
    const char *const *dirs; /* of the run: one, or each node's own; borrowed */
    size_t n_dirs;
    struct log_generation *list; /* owned; the oldest first */
    size_t n;
    bool too_many; /* files */
    bool others;   /* the choice left files out */
};

/* Adds what is not in the tree yet. from: older generations are not looked at again. */
void log_tree_scan(struct log_tree *tree, const struct log_choice *choice, size_t from);
void log_tree_fini(struct log_tree *tree);

enum log_folder { LOG_FOLDER_NONE, LOG_FOLDER_RUN, LOG_FOLDER_GENERATION, LOG_FOLDER_BASE };
/* What a folder is: of a run, of one of its generations, or one that has runs; by what is in it. */
enum log_folder log_folder_kind(const char *dir);
/* Whether this can be a generation's folder, by its name. */
bool log_is_generation(const char *name);

/* Calls fn for each folder in dir, links excepted, in any order. False from fn ends it. Returns 0
 * or a negative errno. */
typedef bool log_folder_fn(void *arg, const char *path, const char *name);
int log_each_folder(const char *dir, log_folder_fn *fn, void *arg);

/* For log_merge_ops. Both read a few KiB: with many files (`n`) less. */
bool log_file_read(struct log_file *f, size_t n_files);
bool log_file_read_stamp(struct log_file *f, struct log_stamp *ret);
/* Moves on to the last `lines` lines. Returns how many there are, at most `lines`. */
uint64_t log_file_seek_end(struct log_file *f, uint64_t lines);
