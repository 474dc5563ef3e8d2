/* Which CPUs and which memory a worker is bound to. Pure.
 *
 * --numa-binding is torchrun's (torch/numa/binding.py of 2.13): one GPU for each worker, by its
 * local rank in CUDA's order. node: CPUs of the GPU's NUMA node. socket: of all nodes of its
 * package. exclusive: an equal slice of the node's physical cores, divided by all visible GPUs of
 * that node; siblings stay together, the remainder goes to the lowest GPUs, cores are ordered by
 * their lowest sibling, even if that is not allowed. core-complex: one cache of the highest level;
 * caches are ordered by most allowed CPUs, then lowest CPU, and assigned by modulo. All within the
 * allowed CPUs; memory is not bound. NUMA node -1 counts as node 0, and the PCI function as .0. If
 * a node is absent or not allowed, torch fails; muster leaves the node out.
 *
 * --bind is ours: numa (CPUs of the nodes of the worker's GPUs; without GPUs local ranks get blocks
 * of nodes), socket (the same with packages), core (an equal share of the allowed cores for each
 * worker alone, siblings together, nearest to the GPUs first; more workers than cores share them).
 * Memory is bound to the same nodes, as a preference. If a GPU's node is not known, its worker is
 * not bound (core: cores from anywhere), and `why` has the reason. */
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
    enum bind_memory memory;    /* for --bind; torchrun's modes have none */
    uint32_t local_rank, nproc; /* workers of this node */
    /* GPUs as CUDA shows them to the workers: indices in gpus[]; n_visible 0: no GPU. Worker i has
     * visible[i]. With several GPUs for each worker it has visible[i * per_worker] and those after
     * it; torchrun's modes use the first. */
    const uint32_t *visible;
    uint32_t n_visible, gpus_per_worker; /* >= 1 */
};

struct affinity {
    bool bound;              /* else cpus and nodes are not valid */
    struct cpuset cpus;      /* of the worker; never empty where bound */
    struct cpuset nodes;     /* memory nodes; empty: no policy */
    bool strict;             /* MPOL_BIND instead of MPOL_PREFERRED_MANY */
    bool everywhere;         /* all allowed CPUs are equally near: a binding makes no difference */
    char why[TOPO_TEXT_MAX]; /* "NUMA node 1 of GPU 4 (0000:9b:00.0)", or why it is not bound */
};

/* Returns 0; -ENOENT: a torchrun mode without GPUs; -ERANGE: no GPU of that index, or less than one
 * core for each GPU (exclusive). Each error has a sentence. */
_must_use_ int affinity_choose(const struct topology *t, const struct affinity_input *input,
                               struct affinity *ret, struct err *err);

/* CUDA_VISIBLE_DEVICES (NULL: not set) to indices in gpus[], NVIDIA's only, as gpu_count.h reads
 * it, in its order. visible holds `max`. Returns how many there are. A MIG name is replaced by its
 * GPU if the UUID prefix identifies it; else it is left out and *ret_unknown is set. */
uint32_t affinity_visible_gpus(const struct topology *t, const char *cuda_visible_devices,
                               uint32_t *visible, uint32_t max, bool *ret_unknown);
/* The same if each worker gets a part of the list for itself. CUDA shows only the first MIG device
 * of a list; with several lists it shows one of each. */
uint32_t affinity_dealt_gpus(const struct topology *t, const char *cuda_visible_devices,
                             uint32_t *visible, uint32_t max, bool *ret_unknown);
