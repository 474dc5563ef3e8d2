/* The options of "muster run": torchrun's (2.13, and of 2.14 what needs no Python), and ours. */
#pragma once

#include "cli/options.h"

/* Rows, in the order of the help. */
enum run_option {
    RUN_NNODES,
    RUN_NPROC_PER_NODE,
    RUN_STANDALONE,
    RUN_MAX_RESTARTS,
    RUN_ROLE,
    RUN_MODULE,
    RUN_NO_PYTHON,
    RUN_RUN_PATH,
    RUN_VIRTUAL_LOCAL_RANK,
    RUN_NUMA_BINDING,
    RUN_START_METHOD,
    RUN_RDZV_BACKEND,
    RUN_RDZV_ENDPOINT,
    RUN_RDZV_ID,
    RUN_RDZV_CONF,
    RUN_NODE_RANK,
    RUN_MASTER_ADDR,
    RUN_MASTER_PORT,
    RUN_LOCAL_ADDR,
    RUN_HEARTBEAT_INTERVAL,
    RUN_LEASE,
    RUN_LOG_DIR,
    RUN_REDIRECTS,
    RUN_TEE,
    RUN_LOCAL_RANKS_FILTER,
    RUN_LOG_LINE_PREFIX_TEMPLATE,
    RUN_DUPLICATE_STDOUT_FILTERS,
    RUN_DUPLICATE_STDERR_FILTERS,
    RUN_LOGS_SPECS,
    RUN_EVENT_LOG_HANDLER,
    RUN_VERBOSE,
    RUN_QUIET,
    RUN_MONITOR_INTERVAL,
    RUN_SIGNALS_TO_HANDLE,
    RUN_SHUTDOWN_TIMEOUT,
    RUN_CONTAIN,
    RUN_PRINT_CONFIG,
    RUN_VERSION,
    RUN_HELP,
    RUN_OPTION_COUNT,
};

extern const struct option_set run_options;
