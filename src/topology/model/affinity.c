#include "topology/model/affinity.h"

#include <stdio.h>

#include "topology/model/affinity_priv.h"

/* ---- CPUs and memory ---- */

void affinity_gpu_text(const struct topology *t, const struct affinity_input *in,
                       uint32_t local_rank, uint32_t k, char out[TOPO_TEXT_MAX]) {
    uint32_t gpu = affinity_gpu_at(in, local_rank, k);
    char at[TOPO_BUSID_MAX] = "?";
    if (t->gpus[gpu].pci < t->n_pci)
        pci_addr_text(t->pci[t->gpus[gpu].pci].at, at);
    (void)snprintf(out, TOPO_TEXT_MAX, "GPU %u (%s)",
                   local_rank * MAX2(in->gpus_per_worker, UINT32_C(1)) + k, at);
}

void affinity_gpus_text(const struct topology *t, const struct affinity_input *in,
                        uint32_t local_rank, char out[TOPO_TEXT_MAX]) {
    uint32_t n = 1, first = local_rank * MAX2(in->gpus_per_worker, UINT32_C(1));
    while (affinity_gpu_at(in, local_rank, n) != TOPO_NONE)
        n++;
    if (n == 1)
        affinity_gpu_text(t, in, local_rank, 0, out);
    else
        (void)snprintf(out, TOPO_TEXT_MAX, "GPUs %u-%u", first, first + n - 1);
}

int32_t affinity_package_of(const struct topology *t, uint32_t cpu) {
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_has(&t->cores[i].cpus, cpu))
            return t->cores[i].package;
    return -1;
}

uint32_t affinity_core_first(const struct topo_core *c) {
    return c->first != TOPO_NONE ? c->first : cpuset_next(&c->cpus, 0);
}

/* Whether a node has CPUs of its own. A GPU's memory has none. Memory beside that of the CPUs (HBM)
 * has none either, but hwloc lists the CPUs that are near it. */
static bool is_cpu_node(const struct topology *t, uint32_t i) {
    const struct topo_numa *n = &t->numa[i];
    if (n->gpu_memory || cpuset_is_empty(&n->cpus))
        return false;
    for (uint32_t k = 0; k < i; k++)
        if (!t->numa[k].gpu_memory && cpuset_equal(&t->numa[k].cpus, &n->cpus))
            return false;
    return true;
}

static uint32_t count_cpu_nodes(const struct topology *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_numa; i++)
        n += is_cpu_node(t, i);
    return n;
}

static bool sizes_are_known(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (t->numa[i].bytes > 0)
            return true;
    return false;
}

/* Chooses the memory of the nodes to which the CPUs belong. */
static void follow_memory(const struct topology *t, const struct affinity_input *in,
                          struct affinity *a) {
    if (in->memory == BIND_MEMORY_OFF)
        return;
    bool known = sizes_are_known(t);
    for (uint32_t i = 0; i < t->n_numa; i++) {
        const struct topo_numa *n = &t->numa[i];
        if (n->index >= 0 && is_cpu_node(t, i) && cpuset_intersects(&n->cpus, &a->cpus) &&
            (n->bytes > 0 || !known))
            cpuset_add(&a->nodes, (uint32_t)n->index);
    }
    a->strict = in->memory == BIND_MEMORY_STRICT;
}

/* ---- near GPUs ---- */

/* CPUs and nodes near a worker's GPUs. */
struct nearby {
    struct cpuset cpus;
    struct cpuset nodes, packages; /* numbers of the nodes and packages whose CPUs are in cpus */
};

static void add_package(const struct topology *t, int32_t package, struct nearby *near) {
    cpuset_add(&near->packages, (uint32_t)package);
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (t->cores[i].package == package)
            cpuset_or(&near->cpus, &t->cores[i].cpus);
}

/* False: the place of one of the GPUs is not known, so any CPU can be near. Nodes without a usable
 * CPU add nothing. With socket, a node that belongs to no package or to several counts by
 * itself. */
static bool find_near(const struct topology *t, const struct affinity_input *in,
                      struct nearby *near, struct affinity *ret) {
    char text[TOPO_TEXT_MAX];
    uint32_t gpu;
    for (uint32_t k = 0; (gpu = affinity_gpu_at(in, in->local_rank, k)) < t->n_gpus; k++) {
        const int32_t numa = t->gpus[gpu].numa;
        affinity_gpu_text(t, in, in->local_rank, k, text);
        if (numa < 0) {
            (void)snprintf(ret->why, sizeof ret->why, "the NUMA node of %.60s is not known", text);
            ret->everywhere = count_cpu_nodes(t) <= 1;
            return false;
        }
        const struct topo_numa *n = topology_numa(t, numa);
        if (n == NULL || cpuset_is_empty(&n->cpus)) {
            (void)snprintf(ret->why, sizeof ret->why,
                           "NUMA node %d of %.60s has no CPU that may be used here", numa, text);
        } else if (in->mode == BIND_SOCKET && n->package >= 0) {
            add_package(t, n->package, near);
        } else {
            cpuset_add(&near->nodes, (uint32_t)numa);
            cpuset_or(&near->cpus, &n->cpus);
        }
    }
    return true;
}

static void name_places(const char *what, const struct cpuset *numbers, struct strbuf *to) {
    if (cpuset_is_empty(numbers))
        return;
    strbuf_printf(to, "%s%s%s ", to->len > 0 ? " and " : "", what,
                  cpuset_count(numbers) == 1 ? "" : "s");
    cpuset_write_list(numbers, to);
}

static void choose_near_gpus(const struct topology *t, const struct affinity_input *in,
                             struct affinity *ret) {
    if (affinity_gpu_of(in, in->local_rank) >= t->n_gpus) {
        (void)snprintf(ret->why, sizeof ret->why, "there is no GPU for it among the %u visible",
                       in->n_visible);
        ret->everywhere = count_cpu_nodes(t) <= 1;
        return;
    }
    struct nearby near = {0};
    if (!find_near(t, in, &near, ret) || cpuset_is_empty(&near.cpus))
        return;
    char gpus[TOPO_TEXT_MAX];
    _cleanup_(strbuf_fini) struct strbuf places = {0};
    affinity_gpus_text(t, in, in->local_rank, gpus);
    name_places("package", &near.packages, &places);
    name_places("NUMA node", &near.nodes, &places);
    (void)snprintf(ret->why, sizeof ret->why, "%.60s of %.60s", strbuf_text(&places), gpus);
    ret->bound = true;
    ret->cpus = near.cpus;
}

/* ---- shares, without GPUs ---- */

/* The worker's block of n items: [*ret_from, *ret_to), never empty. */
static void block_of(const struct affinity_input *in, uint32_t n, uint32_t *ret_from,
                     uint32_t *ret_to) {
    *ret_from = (uint32_t)((uint64_t)in->local_rank * n / in->nproc);
    *ret_to = (uint32_t)((uint64_t)(in->local_rank + 1) * n / in->nproc);
    *ret_to = MAX2(*ret_to, *ret_from + 1);
}

static void deal_nodes(const struct topology *t, const struct affinity_input *in,
                       struct affinity *ret) {
    uint32_t n = count_cpu_nodes(t), from, to, at = 0;
    if (n == 0) {
        (void)snprintf(ret->why, sizeof ret->why, "the NUMA nodes are not known");
        return;
    }
    block_of(in, n, &from, &to);
    struct cpuset nodes = {0};
    for (uint32_t i = 0; i < t->n_numa; i++) {
        if (!is_cpu_node(t, i))
            continue;
        if (at >= from && at < to) {
            cpuset_or(&ret->cpus, &t->numa[i].cpus);
            cpuset_add(&nodes, (uint32_t)MAX2(t->numa[i].index, 0));
        }
        at++;
    }
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    cpuset_write_list(&nodes, &list);
    (void)snprintf(ret->why, sizeof ret->why, "NUMA node%s %.80s", to - from == 1 ? "" : "s",
                   strbuf_text(&list));
    ret->bound = true;
}

/* Packages in ascending order; the cores whose package is not known count as one package. */
static bool next_package(const struct topology *t, int64_t after, int32_t *ret) {
    bool found = false;
    for (uint32_t i = 0; i < t->n_cores; i++) {
        int32_t p = t->cores[i].package;
        if (p > after && (!found || p < *ret)) {
            *ret = p;
            found = true;
        }
    }
    return found;
}

static void deal_packages(const struct topology *t, const struct affinity_input *in,
                          struct affinity *ret) {
    uint32_t n = 0, from, to, at = 0;
    int32_t p = -1, first = -1, last = -1;
    for (int64_t after = INT64_MIN; next_package(t, after, &p); after = p)
        n++;
    if (n == 0) {
        (void)snprintf(ret->why, sizeof ret->why, "the packages are not known");
        return;
    }
    block_of(in, n, &from, &to);
    for (int64_t after = INT64_MIN; next_package(t, after, &p); after = p, at++) {
        if (at < from || at >= to)
            continue;
        first = at == from ? p : first;
        last = p;
        for (uint32_t i = 0; i < t->n_cores; i++)
            if (t->cores[i].package == p)
                cpuset_or(&ret->cpus, &t->cores[i].cpus);
    }
    if (first == last)
        (void)snprintf(ret->why, sizeof ret->why, "package %d", first);
    else
        (void)snprintf(ret->why, sizeof ret->why, "packages %d-%d", first, last);
    ret->bound = true;
}

/* ---- the choice ---- */

int affinity_choose(const struct topology *t, const struct affinity_input *in, struct affinity *ret,
                    struct err *err) {
    struct affinity a = {0};
    int r = 0;
    switch (in->mode) {
    case BIND_NONE: (void)snprintf(a.why, sizeof a.why, "not asked for"); break;
    case BIND_NUMA:
    case BIND_SOCKET:
        if (in->n_visible > 0)
            choose_near_gpus(t, in, &a);
        else if (in->mode == BIND_NUMA)
            deal_nodes(t, in, &a);
        else
            deal_packages(t, in, &a);
        break;
    case BIND_CORE: affinity_choose_core(t, in, &a); break;
    case BIND_TORCH_NODE:
    case BIND_TORCH_SOCKET:
    case BIND_TORCH_EXCLUSIVE:
    case BIND_TORCH_CORE_COMPLEX: r = affinity_choose_torch(t, in, &a, err); break;
    }
    if (r < 0)
        return r;
    if (a.bound && in->mode < BIND_TORCH_NODE)
        follow_memory(t, in, &a);
    if (a.bound)
        a.everywhere = cpuset_within(&t->allowed, &a.cpus);
    *ret = a;
    return 0;
}
