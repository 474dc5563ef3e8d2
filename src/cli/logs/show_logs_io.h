/* Prints the logs of a run on standard output: what there is, or until the run ends. */
#pragma once

#include "cli/logs/log_tree_io.h"

#define LOGS_DIRS_MAX 256

enum logs_prefix { LOGS_PREFIX_AUTO = 1, LOGS_PREFIX_ALWAYS, LOGS_PREFIX_NEVER };

struct logs_view {
    struct log_choice choice;
    const char *dirs[LOGS_DIRS_MAX]; /* of the run: one, or each node's own */
    size_t n_dirs;
    const char *run_id; /* NULL: not known */
    bool follow, timestamps;
    enum logs_prefix prefix;
    uint64_t lines; /* only the last ones; UINT64_MAX: all */
};

/* Returns the exit status. It is not a failure if the reader leaves. */
_must_use_ int show_logs(const struct logs_view *view);
