/* What a worker receives: its environment and its command line, as of torchrun 2.13
 * (torch/distributed/elastic/agent/server/local_elastic_agent.py); MUSTER_* are ours. Pure. */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"
#include "launcher/job/job.h"

struct worker_env_input { /* borrowed */
    const struct job_spec *spec;
    const struct form *form; /* the group, as rendezvous formed it */
    uint32_t local_rank;
    const char *generation; /* "1.1" */
    uint64_t epoch;
    const char *master_addr; /* a literal address, no brackets */
    uint16_t master_port;
    const char *error_file; /* "" or NULL: none (--log-dir /dev/null) */
    uint32_t omp_threads;   /* OMP_NUM_THREADS if the user did not set it; 0: torchrun's */
    /* TORCH_WORKER_SERVER_SOCKET if the user did not set it; NULL: none */
    const char *server_socket;
    const char *notify_socket; /* MUSTER_NOTIFY_SOCKET; NULL: none */
    const char *worker_id;     /* MUSTER_WORKER_ID; NULL: none */
};

/* Where the store is, as far as the job's options define it: NULL and 0 if only the group knows. */
void worker_env_master(const struct job_spec *spec, const char **ret_addr, uint16_t *ret_port);

/* Makes the environment: `base` without what an outer launcher left in it, and with all variables
 * for this worker. The user's settings are kept. *ret must be empty; the caller owns it. With
 * --virtual-local-rank and --gpus-per-worker, CUDA_VISIBLE_DEVICES names the worker's devices, and
 * so does HIP_VISIBLE_DEVICES, which ROCm reads, if it is set. -EINVAL: one names too few. */
_must_use_ int worker_env_build(char *const *base, const struct worker_env_input *input,
                                struct envlist *ret, struct err *err);

/* True if worker_env_build() sets OMP_NUM_THREADS=1 because the user did not (torchrun's rule: more
 * than one worker on the node). The caller logs it in one line. */
bool worker_env_sets_omp(char *const *base, uint32_t local_world_size);

/* python -u [-m] SCRIPT ARGS, or PROGRAM ARGS, with ${local_rank} replaced in ARGS and in a SCRIPT
 * for python. NULL-terminated, freed with words_free(). */
_must_use_ char **worker_argv_build(const struct job_spec *spec, const char *python,
                                    uint32_t local_rank);
