/* Shared by affinity.c (--bind), affinity_core.c (its equal shares) and affinity_torch.c
 * (torchrun's modes) only. */
#pragma once

#include "topology/model/affinity.h"

/* The worker's k-th GPU: index in gpus[], or TOPO_NONE. */
static inline uint32_t affinity_gpu_at(const struct affinity_input *in, uint32_t local_rank,
                                       uint32_t k) {
    uint32_t each = MAX2(in->gpus_per_worker, UINT32_C(1));
    uint64_t i = (uint64_t)local_rank * each + k;
    return k < each && i < in->n_visible ? in->visible[i] : TOPO_NONE;
}

/* The worker's first GPU. */
static inline uint32_t affinity_gpu_of(const struct affinity_input *in, uint32_t local_rank) {
    return affinity_gpu_at(in, local_rank, 0);
}

/* The worker's k-th GPU as "GPU 4 (0000:9b:00.0)", where 4 is CUDA's number. */
void affinity_gpu_text(const struct topology *t, const struct affinity_input *in,
                       uint32_t local_rank, uint32_t k, char out[TOPO_TEXT_MAX]);
/* All GPUs of the worker: the same form, or "GPUs 4-7". */
void affinity_gpus_text(const struct topology *t, const struct affinity_input *in,
                        uint32_t local_rank, char out[TOPO_TEXT_MAX]);
/* The package of the core that has this CPU; -1 unknown. */
int32_t affinity_package_of(const struct topology *t, uint32_t cpu);
/* The lowest hardware thread, allowed or not. */
uint32_t affinity_core_first(const struct topo_core *c);

/* Both fill cpus, why and bound of a zeroed *ret. */
_must_use_ int affinity_choose_torch(const struct topology *t, const struct affinity_input *in,
                                     struct affinity *ret, struct err *err);
void affinity_choose_core(const struct topology *t, const struct affinity_input *in,
                          struct affinity *ret);
