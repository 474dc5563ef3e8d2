/* The options of "muster run": torchrun's (2.13, and of 2.14 what needs no Python), and ours. */
#pragma once

#include "cli/options/options.h"

/* The rows that functions of their own read (job_reading.h). Others are only in the table. */
enum run_option {
    RUN_NNODES = 1,
    RUN_NPROC_PER_NODE,
    RUN_STANDALONE,
    RUN_REGROUP_WAIT,
    RUN_HOST,
    RUN_HOSTFILE,
    RUN_INCLUDE,
    RUN_EXCLUDE,
    RUN_SSH,
    RUN_EXPORT,
    RUN_STARTER,
    RUN_MODULE,
    RUN_NO_PYTHON,
    RUN_RUN_PATH,
    RUN_BIND,
    RUN_BIND_MEMORY,
    RUN_NUMA_BINDING,
    RUN_RDZV_BACKEND,
    RUN_RDZV_ENDPOINT,
    RUN_RDZV_ID,
    RUN_RDZV_CONF,
    RUN_NODE_RANK,
    RUN_TOPOLOGY_FILE,
    RUN_MASTER_ADDR,
    RUN_MASTER_PORT,
    RUN_PORT_RANGE,
    RUN_HEARTBEAT_INTERVAL,
    RUN_LEASE,
    RUN_ARBITER_LEASE,
    RUN_LOG_MODE,
    RUN_REDIRECTS,
    RUN_TEE,
    RUN_LOCAL_RANKS_FILTER,
    RUN_DUPLICATE_STDOUT_FILTERS,
    RUN_DUPLICATE_STDERR_FILTERS,
    RUN_LOGS_SPECS,
    RUN_OUTPUT_SPOOL,
    RUN_EVENT_LOG,
    RUN_EVENT_LOG_HANDLER,
    RUN_VERBOSE,
    RUN_MONITOR_INTERVAL,
    RUN_SIGNALS_TO_HANDLE,
    RUN_REQUEUE,
    RUN_MAX_REQUEUES,
    RUN_ENV,
    RUN_ENV_FILE,
    RUN_PRINT_CONFIG,
    RUN_VERSION,
    RUN_HELP,
    RUN_HELP_ALL,
};

extern const struct option_set run_options;

/* An option of another command that is passed on to a job's reader: only its help differs. */
#define AS_RUN(its_name, ...) \
    { .name = its_name, .help = __VA_ARGS__, .as = &run_options }
