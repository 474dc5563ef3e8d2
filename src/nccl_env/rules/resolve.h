/* Which variables a worker gets, and why: a table of rules (rules.c), applied to plain data. Pure.
 * Never overridden, but listed as kept: the user's environment, NCCL_CONF_FILE or ~/.nccl.conf,
 * /etc/nccl.conf, and what a cloud's plugin owns. */
#pragma once

#include "base/json/json.h"
#include "nccl_env/facts/facts.h"
#include "nccl_env/facts/netif_choice.h"
#include "topology/nccl/nccl_graph.h"

enum nccl_env_mode { NCCL_ENV_OFF = 1, NCCL_ENV_MINIMAL, NCCL_ENV_FULL };
/* off: nothing at all. minimal: what a job over several nodes needs (interfaces, NCCL_RAS_ADDR,
 * CUDA_DEVICE_ORDER). full (default): the flight recorder's and HCA rules too. */

struct env_input {
    enum nccl_env_mode mode;
    char *const *envp;                /* what the worker would inherit */
    const struct topology *topology;  /* NULL: not known; rules that need it don't apply */
    const struct nccl_graph *graph;   /* NULL likewise */
    const struct nccl_facts *facts;   /* NULL likewise */
    const struct netif_choice *netif; /* NULL: not known (yet) */
    uint32_t n_nodes, nproc, local_rank, rank;
    const uint32_t *visible;
    uint32_t n_visible;       /* affinity_visible_gpus() */
    uint32_t gpus_per_worker; /* 0: not asked for */
    bool virtual_local_rank;
    uint16_t ras_port;   /* per job; 0: none */
    const char *comm_id; /* "host:port" of NCCL_COMM_ID; NULL: not asked for */
    const char *log_dir; /* where debug files may go; NULL: none */
    bool debug;          /* --nccl-debug: NCCL_DEBUG=INFO into log_dir */
    bool omp_cores;
    uint32_t bound_cores; /* --omp=cores, and how many cores the worker has */
    bool strict;          /* --preflight=strict */
    bool any_gpu;         /* GPUs are here */
    bool preview;         /* nothing runs: what is chosen at the start, such as a port, is not
                           * known; see env_choice.at_start */
    char *const *set;     /* --env NAME=VALUE and --env-file, NULL-terminated, or NULL */
};

enum env_action {
    ENV_SET = 1, /* set by us */
    ENV_KEPT,    /* the user's, a file's or a plugin's: not changed */
    ENV_REFUSED, /* we would set it, but a rule forbids it (a plugin owns it, the value would be
                  * wrong) */
    ENV_ASKED,   /* --env, --env-file */
};
struct env_choice {
    char *name, *value; /* owned; value NULL where there is none */
    enum env_action action;
    char *reason;       /* owned; a sentence */
    const char *source; /* "NCCL user guide, NCCL_SOCKET_IFNAME"; static */
    bool at_start;      /* a preview: words in capitals stand for what is not known */
};
struct env_result {
    struct env_choice *choices; /* owned, in the order of the table */
    uint32_t n;
    struct words warnings; /* owned; includes the lint's */
};
void env_resolve(const struct env_input *input, struct env_result *ret);
/* Whether the workers of one node can differ; else one result is valid for all. */
bool env_is_per_worker(const struct env_input *input);
void env_result_fini(struct env_result *r);
/* Or NULL. */
const struct env_choice *env_result_find(const struct env_result *r, const char *name);

/* NAME=VALUE lines, as env(1) prints them; only variables that are set. A value that is known only
 * at the start becomes a comment, so that the lines can be used as a file of variables. */
void env_write_plain(const struct env_result *r, struct strbuf *to);
/* For each variable: the action, its value, the reason, the source. width: columns. */
void env_write_explained(const struct env_result *r, uint32_t width, struct strbuf *to);
/* One JSON object: {"rank", "local_rank", "variables": [{"name", "value", "action", "reason",
 * "source"}], "warnings": []}. */
void env_write_json(const struct env_result *r, uint32_t rank, struct json_writer *w);
