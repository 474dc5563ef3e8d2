/* torchrun's --numa-binding: the CPU sets of torch/numa/binding.py of 2.13. */
#include <errno.h>
#include <stdio.h>

#include "topology/model/affinity_priv.h"

/* The node that torch uses: that of the card's function 0, or node 0 if it is not known. */
static int32_t node_of(const struct topology *t, uint32_t gpu) {
    int32_t numa = t->gpus[gpu].numa;
    if (t->gpus[gpu].pci < t->n_pci) {
        struct pci_addr at = t->pci[t->gpus[gpu].pci].at;
        at.fn = 0;
        uint32_t pci = topology_find_pci(t, at);
        numa = pci != TOPO_NONE ? t->pci[pci].numa : numa;
    }
    return MAX2(numa, 0);
}

static uint32_t visible_gpus_of(const struct topology *t, const struct affinity_input *in,
                                int32_t node, uint32_t before) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < before; i++)
        n += in->visible[i] < t->n_gpus && node_of(t, in->visible[i]) == node;
    return n;
}

/* A group of the node's CPUs: those of one core, or below one cache. */
struct group {
    uint32_t key;   /* its lowest CPU, allowed or not */
    uint32_t index; /* in cores[] or caches[] */
    uint32_t n;     /* CPUs of the node in it */
};

static void choose_socket(const struct topology *t, const struct cpuset *node, struct cpuset *ret) {
    int32_t package = affinity_package_of(t, cpuset_next(node, 0));
    for (uint32_t i = 0; i < t->n_numa; i++) {
        const struct cpuset *cpus = &t->numa[i].cpus;
        if (!cpuset_is_empty(cpus) && affinity_package_of(t, cpuset_next(cpus, 0)) == package)
            cpuset_or(ret, cpus);
    }
}

static int compare_keys(const void *a, const void *b) {
    const struct group *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int choose_exclusive(const struct topology *t, const struct affinity_input *in,
                            int32_t node_index, const struct cpuset *node, struct cpuset *ret,
                            struct err *err) {
    const uint32_t gpu_index = in->local_rank * MAX2(in->gpus_per_worker, UINT32_C(1));
    const uint32_t n_gpus = visible_gpus_of(t, in, node_index, in->n_visible);
    const uint32_t at = visible_gpus_of(t, in, node_index, gpu_index);
    _cleanup_(freep) struct group *cores = xcalloc((size_t)t->n_cores + 1, sizeof *cores);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_intersects(&t->cores[i].cpus, node))
            cores[n++] = (struct group){.key = affinity_core_first(&t->cores[i]), .index = i};
    if (n < n_gpus)
        return err_set(err, -ERANGE,
                       "--numa-binding=exclusive: NUMA node %d has %u core%s that may be used, "
                       "fewer than its %u GPUs",
                       node_index, n, n == 1 ? "" : "s", n_gpus);
    qsort(cores, n, sizeof *cores, compare_keys);
    const uint32_t share = n / n_gpus, more = n % n_gpus;
    const uint32_t from = at * share + MIN2(at, more), to = from + share + (at < more);
    for (uint32_t i = from; i < to; i++)
        cpuset_or(ret, &t->cores[cores[i].index].cpus);
    cpuset_and(ret, node);
    return 0;
}

/* Index in caches[] of the highest one above a CPU, or TOPO_NONE. */
static uint32_t cache_of(const struct topology *t, uint32_t cpu) {
    uint32_t best = TOPO_NONE;
    for (uint32_t i = 0; i < t->n_caches; i++)
        if (cpuset_has(&t->caches[i].cpus, cpu) &&
            (best == TOPO_NONE || t->caches[i].level > t->caches[best].level))
            best = i;
    return best;
}

static int compare_sizes(const void *a, const void *b) {
    const struct group *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return compare_keys(a, b);
}

static void choose_core_complex(const struct topology *t, const struct affinity_input *in,
                                int32_t node_index, const struct cpuset *node, struct cpuset *ret) {
    const uint32_t gpu_index = in->local_rank * MAX2(in->gpus_per_worker, UINT32_C(1));
    _cleanup_(freep) struct group *caches = xcalloc((size_t)t->n_caches + 1, sizeof *caches);
    for (uint32_t c = cpuset_next(node, 0); c < CPUSET_MAX; c = cpuset_next(node, c + 1)) {
        uint32_t i = cache_of(t, c);
        if (i != TOPO_NONE)
            caches[i].n++;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_caches; i++) {
        const struct topo_cache *c = &t->caches[i];
        if (caches[i].n == 0)
            continue;
        uint32_t first = c->first != TOPO_NONE ? c->first : cpuset_next(&c->cpus, 0);
        caches[n++] = (struct group){.key = first, .index = i, .n = caches[i].n};
    }
    if (n == 0)
        return;
    qsort(caches, n, sizeof *caches, compare_sizes);
    *ret = t->caches[caches[visible_gpus_of(t, in, node_index, gpu_index) % n].index].cpus;
    cpuset_and(ret, node);
}

static int choose(const struct topology *t, const struct affinity_input *in, int32_t node_index,
                  const struct cpuset *node, struct cpuset *ret, struct err *err) {
    switch (in->mode) {
    case BIND_TORCH_NODE: *ret = *node; return 0;
    case BIND_TORCH_SOCKET: choose_socket(t, node, ret); return 0;
    case BIND_TORCH_EXCLUSIVE: return choose_exclusive(t, in, node_index, node, ret, err);
    case BIND_TORCH_CORE_COMPLEX: choose_core_complex(t, in, node_index, node, ret); return 0;
    case BIND_NONE:
    case BIND_NUMA:
    case BIND_SOCKET:
    case BIND_CORE: break;
    }
    assert_not_reached();
}

int affinity_choose_torch(const struct topology *t, const struct affinity_input *in,
                          struct affinity *ret, struct err *err) {
    static const char *const parts[] = {[BIND_TORCH_NODE] = "all",
                                        [BIND_TORCH_SOCKET] = "its package",
                                        [BIND_TORCH_EXCLUSIVE] = "an own part",
                                        [BIND_TORCH_CORE_COMPLEX] = "one core complex"};
    if (in->n_visible == 0)
        return err_set(err, -ENOENT,
                       "--numa-binding binds workers near their GPUs, and no GPU is "
                       "visible here; --bind works without");
    uint32_t gpu = affinity_gpu_of(in, in->local_rank);
    if (gpu >= t->n_gpus)
        return err_set(err, -ERANGE,
                       "--numa-binding: local rank %u needs a GPU of its own, and %u %s visible",
                       in->local_rank, in->n_visible, in->n_visible == 1 ? "is" : "are");
    char text[TOPO_TEXT_MAX];
    affinity_gpu_text(t, in, in->local_rank, 0, text);
    int32_t index = node_of(t, gpu);
    const struct topo_numa *node = topology_numa(t, index);
    if (node == NULL || cpuset_is_empty(&node->cpus)) {
        (void)snprintf(ret->why, sizeof ret->why,
                       "NUMA node %d of %.60s has no CPU that may be used here", index, text);
        return 0;
    }
    int r = choose(t, in, index, &node->cpus, &ret->cpus, err);
    if (r < 0)
        return r;
    ret->bound = !cpuset_is_empty(&ret->cpus);
    if (ret->bound)
        (void)snprintf(ret->why, sizeof ret->why, "%s of NUMA node %d of %.60s", parts[in->mode],
                       index, text);
    else
        (void)snprintf(ret->why, sizeof ret->why, "the caches of NUMA node %d are not known",
                       index);
    return 0;
}
