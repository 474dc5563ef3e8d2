#include <errno.h>

#include "cli/options/job_options_priv.h"
#include "topology/model/gpu_count.h"

/* torchrun's modes have no meaning without GPUs; a quick check shows whether there are any. */
static int check_gpus(struct job_reading *j) {
    const struct gpu_inventory any = {.n = GPUS_MAX};
    bool here = j->probes->has_gpus != NULL && j->probes->has_gpus(j->probes->arg);
    if (here && gpu_count_visible(j->visible_devices, &any) > 0)
        return 0;
    return err_set(j->err, -ENODEV,
                   "--numa-binding binds workers near their GPUs, and %s; --bind=numa binds "
                   "workers without GPUs",
                   here ? "CUDA_VISIBLE_DEVICES lets them see none" : "this node has none");
}

int job_check_gpus_per_worker(struct job_reading *j) {
    if (j->spec->virtual_local_rank && j->spec->gpus_per_worker > 1)
        return err_set(j->err, -EINVAL,
                       "--virtual-local-rank gives each worker one GPU, --gpus-per-worker=%u more",
                       j->spec->gpus_per_worker);
    return 0;
}

int job_read_binding(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (job_text(j, RUN_NUMA_BINDING) != NULL && job_text(j, RUN_NUMA_BINDING)[0] != '\0') {
        if (job_given(j, RUN_BIND))
            return err_set(j->err, -EINVAL, "--numa-binding and --bind exclude each other");
        if (job_given(j, RUN_BIND_MEMORY))
            return err_set(j->err, -EINVAL,
                           "--numa-binding binds to CPUs only, as torchrun does; "
                           "--bind-memory goes with --bind");
        spec->bind = BIND_TORCH_NODE + job_choice(j, RUN_NUMA_BINDING);
        spec->bind_memory = BIND_MEMORY_OFF;
        return check_gpus(j);
    }
    if (job_text(j, RUN_BIND) != NULL)
        spec->bind = BIND_NONE + job_choice(j, RUN_BIND);
    return 0;
}

/* Of a job that was read elsewhere. */
int job_resolve_binding(struct job_reading *j) {
    if (job_value(j, RUN_BIND)->from_env && !job_given(j, RUN_NUMA_BINDING))
        j->spec->bind = BIND_NONE + job_choice(j, RUN_BIND);
    return j->spec->bind >= BIND_TORCH_NODE ? check_gpus(j) : 0;
}
