/* Options of other launchers, and what muster has in their place. */
#include "cli/options/options_table.h"

#define WORKERS "workers of each node: --nproc-per-node"
#define NODES "nodes of the job: --nnodes"
#define HOSTFILE "did you mean --hostfile?"

/* Names of accelerate, deepspeed, mpirun, srun, ft_launcher, torchx and torch.distributed.launch,
 * from their own documentation. */
const struct option_hint run_hints[] = {
    {"n", WORKERS},
    {"np", WORKERS},
    {"N", NODES},
    {"num-processes", WORKERS},
    {"num-procs", WORKERS},
    {"nprocs-per-node", WORKERS},
    {"num-gpus", WORKERS},
    {"ngpus", WORKERS},
    {"ngpus-per-node", WORKERS},
    {"gpus-per-node", WORKERS},
    {"ntasks", WORKERS},
    {"ntasks-per-node", WORKERS},
    {"world-size", WORKERS " and --nnodes"},
    {"num-machines", NODES},
    {"num-nodes", NODES},
    {"machine-rank", "did you mean --node-rank?"},
    {"main-process-ip", "did you mean --master-addr?"},
    {"main-process-port", "did you mean --master-port?"},
    {"hosts", "did you mean --host (-H)?"},
    {"machinefile", HOSTFILE},
    {"f", HOSTFILE},
    {"gpu-ids", "set CUDA_VISIBLE_DEVICES"},
    {"multi-gpu", "leave it out: " WORKERS},
    {"dist-url", "did you mean --rdzv-endpoint=HOST:PORT?"},
    {"dist-backend", "leave it out: the script chooses it"},
    {"timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"rdzv-port", "the port is a part of --rdzv-endpoint=HOST:PORT"},
    {"rdzv-timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"join-timeout", "did you mean --rdzv-conf=join_timeout=SECONDS?"},
    {"retries", "did you mean --max-restarts?"},
    {"use-env", "leave it out: workers get LOCAL_RANK in the environment"},
    {"use-libuv", "leave it out: the store is muster's own"},
    {"exit-barrier-timeout", "leave it out: nodes that are ready don't wait for each other"},
    {"print-completion", "see \"muster completion\""},
    {NULL, NULL},
};
