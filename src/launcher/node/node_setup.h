/* What the workers of this node get beyond torchrun's contract: CPUs and memory, threads,
 * variables. Pure: a function of job, environment and one discovery (node_discovery_io.h). */
#pragma once

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"
#include "nccl_env/rules/resolve.h"
#include "topology/model/affinity.h"
#include "topology/model/gpu_count.h"

struct node_setup_input {        /* all borrowed for the call */
    const struct job_spec *spec; /* and what env has from it */
    struct env_input env;        /* rank: this node's first; the rest as for a worker */
    const struct rocm_gpu *rocm; /* AMD's, node_found.rocm */
    uint32_t n_rocm;
};

struct worker_setup {
    struct affinity affinity;
    const struct env_result *env; /* often shared by all workers */
    uint32_t omp_threads; /* OMP_NUM_THREADS if the user did not set it; 0: torchrun's rule */
};

struct node_setup {
    enum bind_mode mode;             /* the default resolved: BIND_NONE if no worker is bound */
    uint32_t visible[TOPO_GPUS_MAX]; /* affinity_visible_gpus() */
    uint32_t n_visible;
    struct worker_setup *workers; /* owned */
    uint32_t n;
    struct env_result *envs; /* owned: [n]; empty if a worker shares those of an earlier one */
    bool no_memory;          /* memory policies are refused here, and left out: node_setup_read() */
};

/* What must be discovered for this job (DISCOVER_*); 0: nothing. */
unsigned node_setup_needs(const struct job_spec *spec, bool any_gpu);

/* 0; or a negative errno with a sentence: a torchrun mode that can't bind (affinity_choose()). */
_must_use_ int node_setup_make(const struct node_setup_input *input, struct node_setup *ret,
                               struct err *err);
void node_setup_fini(struct node_setup *s);

/* "workers are bound to CPUs: local rank 0-3 to 0-31, memory first of node 0; …"; "": none is. */
void node_setup_describe(const struct node_setup *s, struct strbuf *to);
/* Workers that should be bound but are not, and why; empty if there are none. Workers that the
 * default leaves unbound because all CPUs are equally near don't count. */
void node_setup_describe_unbound(const struct node_setup *s, struct strbuf *to);
/* One worker: "local rank 4: CPUs 32-63, memory first of node 1 (NUMA node 1 of GPU 4 …)". */
void node_setup_describe_worker(const struct node_setup *s, uint32_t i, struct strbuf *to);
/* Adds the variables that this node gives the worker. */
void node_setup_add_env(const struct node_setup *s, uint32_t i, struct envlist *env);
