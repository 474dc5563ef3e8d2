/* Which CPUs and which memory a worker is bound to. Pure.
 *
 * --numa-binding is torchrun's (torch/numa/binding.py of 2.13): one GPU a worker, its index the
 * local rank, CUDA's order. node: CPUs of the GPU's NUMA node. socket: of all nodes of its package.
 * exclusive: an equal slice of the node's physical cores, divided by all visible GPUs of that node,
 * siblings together, the remainder to the lowest GPUs, cores by their lowest sibling even where
 * that is not allowed. core-complex: one cache of the highest level; caches by most allowed CPUs,
 * then lowest CPU, dealt modulo. All within the allowed CPUs; numa -1 counts as node 0; the PCI
 * function as .0. CPUs only, no memory. Where torch dies of a node that is absent or not allowed,
 * that node is left out here.
 *
 * --bind is ours: numa (CPUs of the nodes of the worker's GPUs; without GPUs the nodes are dealt to
 * local ranks in blocks), socket (the same with packages), core (an own equal share of the allowed
 * cores, siblings together, nearest the GPUs first; more workers than cores share them). Memory
 * follows, preferred. A GPU whose node is not known leaves its worker unbound (core: with cores of
 * anywhere), and that is said. */
#pragma once

#include "topology/model/topology.h"

enum bind_mode {
    BIND_NONE = 1,
    BIND_NUMA,
    BIND_SOCKET,
    BIND_CORE, /* --bind */
    BIND_TORCH_NODE,
    BIND_TORCH_SOCKET,
    BIND_TORCH_EXCLUSIVE,
    BIND_TORCH_CORE_COMPLEX,
};
enum bind_memory { BIND_MEMORY_PREFERRED = 1, BIND_MEMORY_STRICT, BIND_MEMORY_OFF };

struct affinity_input {
    enum bind_mode mode;
    enum bind_memory memory;    /* of --bind; torchrun's modes have none */
    uint32_t local_rank, nproc; /* workers of this node */
    /* GPUs as CUDA shows them to the workers: indices in gpus[]; n_visible 0: no GPU. Worker i has
     * visible[i], or, with several GPUs a worker, visible[i * per_worker] and those after it, of
     * which torchrun's modes take the first. */
    const uint32_t *visible;
    uint32_t n_visible, gpus_per_worker; /* >= 1 */
};

struct affinity {
    bool bound;              /* else cpus and nodes are not valid */
    struct cpuset cpus;      /* of the worker; never empty where bound */
    struct cpuset nodes;     /* memory nodes; empty: no policy */
    bool strict;             /* MPOL_BIND instead of MPOL_PREFERRED_MANY */
    bool everywhere;         /* all CPUs that may be used are as near: bound or not is the same */
    char why[TOPO_TEXT_MAX]; /* "NUMA node 1 of GPU 4 (0000:9b:00.0)", or why it is not bound */
};

/* 0; -ENOENT: a torchrun mode without GPUs; -ERANGE: no GPU of that index, or less than one core a
 * GPU (exclusive); each with a sentence. */
_must_use_ int affinity_choose(const struct topology *t, const struct affinity_input *input,
                               struct affinity *ret, struct err *err);

/* CUDA_VISIBLE_DEVICES (NULL: not set) to indices in gpus[], NVIDIA's only, as gpu_count.h reads
 * it, in its order. visible holds `max`. Returns how many there are. MIG names give their GPU
 * where it is known by UUID prefix; else they are left out and *ret_unknown is set. */
uint32_t affinity_visible_gpus(const struct topology *t, const char *cuda_visible_devices,
                               uint32_t *visible, uint32_t max, bool *ret_unknown);
/* The same where each worker is given some of the list for itself: CUDA shows only the first MIG
 * device of a list, but of several lists one each. */
uint32_t affinity_dealt_gpus(const struct topology *t, const char *cuda_visible_devices,
                             uint32_t *visible, uint32_t max, bool *ret_unknown);
