#include "topology/model/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/model/gpu_count.h"

/* A worker's k-th GPU: index in gpus[], or TOPO_NONE. */
static uint32_t gpu_at(const struct affinity_input *in, uint32_t local_rank, uint32_t k) {
    uint32_t each = MAX2(in->gpus_per_worker, UINT32_C(1));
    uint64_t i = (uint64_t)local_rank * each + k;
    return k < each && i < in->n_visible ? in->visible[i] : TOPO_NONE;
}

/* CUDA's number of the worker's first GPU. */
static uint32_t first_gpu(const struct affinity_input *in) {
    return in->local_rank * MAX2(in->gpus_per_worker, UINT32_C(1));
}

struct text {
    char text[TOPO_TEXT_MAX];
};

/* The worker's k-th GPU as "GPU 4 (0000:9b:00.0)", where 4 is CUDA's number. */
static struct text gpu_text(const struct topology *t, const struct affinity_input *in, uint32_t k) {
    struct text out;
    uint32_t pci = t->gpus[gpu_at(in, in->local_rank, k)].pci;
    (void)snprintf(out.text, sizeof out.text, "GPU %u (%s)", first_gpu(in) + k,
                   topology_bus_id(t, pci).text);
    return out;
}

static struct text gpus_text(const struct topology *t, const struct affinity_input *in) {
    struct text out;
    uint32_t n = 1;
    while (gpu_at(in, in->local_rank, n) != TOPO_NONE)
        n++;
    if (n == 1)
        return gpu_text(t, in, 0);
    (void)snprintf(out.text, sizeof out.text, "GPUs %u-%u", first_gpu(in), first_gpu(in) + n - 1);
    return out;
}

#define BECAUSE(a, ...) ((void)snprintf((a)->why, sizeof(a)->why, __VA_ARGS__))

/* The package of the core that has this CPU; -1 unknown. */
static int32_t package_of(const struct topology *t, uint32_t cpu) {
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_has(&t->cores[i].cpus, cpu))
            return t->cores[i].package;
    return -1;
}

/* The lowest hardware thread, allowed or not. */
static uint32_t core_first(const struct topo_core *c) {
    return c->first != TOPO_NONE ? c->first : cpuset_next(&c->cpus, 0);
}

/* --bind=core: each worker gets an equal share of the allowed cores, and no core is assigned twice.
 */

/* Indices in cores[]: by package, node, number. */
static int compare_cores(const void *a, const void *b, void *arg) {
    const struct topology *t = arg;
    const struct topo_core *x = &t->cores[*(const uint32_t *)a];
    const struct topo_core *y = &t->cores[*(const uint32_t *)b];
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    uint32_t i = core_first(x), j = core_first(y);
    return (i > j) - (i < j);
}

enum nearness { SAME_NODE, SAME_PACKAGE, ANYWHERE };

/* As far as they are known. */
struct home {
    struct cpuset nodes, packages;
};

static void find_home(const struct topology *t, const struct affinity_input *in,
                      uint32_t local_rank, struct home *ret) {
    *ret = (struct home){0};
    uint32_t gpu;
    for (uint32_t k = 0; (gpu = gpu_at(in, local_rank, k)) < t->n_gpus; k++) {
        int32_t numa = t->gpus[gpu].numa;
        const struct topo_numa *n = numa < 0 ? NULL : topology_numa(t, numa);
        if (n == NULL)
            continue;
        cpuset_add(&ret->nodes, (uint32_t)numa);
        if (n->package >= 0)
            cpuset_add(&ret->packages, (uint32_t)n->package);
    }
}

static bool is_near(const struct topo_core *c, const struct home *home, enum nearness how) {
    switch (how) {
    case SAME_NODE: return c->numa >= 0 && cpuset_has(&home->nodes, (uint32_t)c->numa);
    case SAME_PACKAGE: return c->package >= 0 && cpuset_has(&home->packages, (uint32_t)c->package);
    case ANYWHERE: return true;
    }
    assert_not_reached();
}

/* Each worker first takes cores of its own node, in the order of local ranks. Workers that need
 * more then take cores of their package, then of the rest. So each worker's share depends on all
 * workers. */
static void deal(const struct topology *t, const struct affinity_input *in, const uint32_t *order,
                 struct cpuset *ret) {
    const uint32_t share = t->n_cores / in->nproc, more = t->n_cores % in->nproc;
    _cleanup_(freep) uint32_t *lacks = xcalloc(in->nproc, sizeof *lacks);
    _cleanup_(freep) bool *taken = xcalloc(t->n_cores, sizeof *taken);
    struct home home;
    for (uint32_t i = 0; i < in->nproc; i++)
        lacks[i] = share + (i < more);
    for (enum nearness how = in->n_visible > 0 ? SAME_NODE : ANYWHERE; how <= ANYWHERE; how++)
        for (uint32_t i = 0; i < in->nproc; i++) {
            find_home(t, in, i, &home);
            for (uint32_t k = 0; k < t->n_cores && lacks[i] > 0; k++) {
                const struct topo_core *c = &t->cores[order[k]];
                if (taken[k] || !is_near(c, &home, how))
                    continue;
                taken[k] = true;
                lacks[i]--;
                if (i == in->local_rank)
                    cpuset_or(ret, &c->cpus);
            }
        }
}

static void describe(const struct topology *t, const struct affinity_input *in, bool shared,
                     struct affinity *ret) {
    struct text gpu = {""};
    if (gpu_at(in, in->local_rank, 0) < t->n_gpus)
        gpu = gpus_text(t, in);
    if (shared)
        BECAUSE(ret, "one core of %u that %u workers share", t->n_cores, in->nproc);
    else
        BECAUSE(ret, "an own share of %u cores%s%.60s", t->n_cores,
                gpu.text[0] != '\0' ? ", near " : "", gpu.text);
}

static void affinity_choose_core(const struct topology *t, const struct affinity_input *in,
                                 struct affinity *ret) {
    if (t->n_cores == 0) {
        BECAUSE(ret, "the cores are not known");
        return;
    }
    _cleanup_(freep) uint32_t *order = xcalloc(t->n_cores, sizeof *order);
    for (uint32_t i = 0; i < t->n_cores; i++)
        order[i] = i;
    qsort_r(order, t->n_cores, sizeof *order, compare_cores, (void *)(uintptr_t)t);
    bool shared = t->n_cores < in->nproc;
    if (shared)
        ret->cpus = t->cores[order[(uint64_t)in->local_rank * t->n_cores / in->nproc]].cpus;
    else
        deal(t, in, order, &ret->cpus);
    ret->bound = true;
    describe(t, in, shared, ret);
}

/* torchrun's --numa-binding: the CPU sets of torch/numa/binding.py of 2.13. */

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
    int32_t package = package_of(t, cpuset_next(node, 0));
    for (uint32_t i = 0; i < t->n_numa; i++) {
        const struct cpuset *cpus = &t->numa[i].cpus;
        if (!cpuset_is_empty(cpus) && package_of(t, cpuset_next(cpus, 0)) == package)
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
    const uint32_t n_gpus = visible_gpus_of(t, in, node_index, in->n_visible);
    const uint32_t at = visible_gpus_of(t, in, node_index, first_gpu(in));
    _cleanup_(freep) struct group *cores = xcalloc(t->n_cores, sizeof *cores);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_intersects(&t->cores[i].cpus, node))
            cores[n++] = (struct group){.key = core_first(&t->cores[i]), .index = i};
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
    _cleanup_(freep) struct group *caches = xcalloc(t->n_caches, sizeof *caches);
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
    *ret = t->caches[caches[visible_gpus_of(t, in, node_index, first_gpu(in)) % n].index].cpus;
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

/* Both fill cpus, why and bound of a zeroed *ret. */
static int affinity_choose_torch(const struct topology *t, const struct affinity_input *in,
                                 struct affinity *ret, struct err *err) {
    static const char *const parts[] = {[BIND_TORCH_NODE] = "all",
                                        [BIND_TORCH_SOCKET] = "its package",
                                        [BIND_TORCH_EXCLUSIVE] = "an own part",
                                        [BIND_TORCH_CORE_COMPLEX] = "one core complex"};
    if (in->n_visible == 0)
        return err_set(err, -ENOENT,
                       "--numa-binding binds workers near their GPUs, and no GPU is "
                       "visible here; --bind works without");
    uint32_t gpu = gpu_at(in, in->local_rank, 0);
    if (gpu >= t->n_gpus)
        return err_set(err, -ERANGE,
                       "--numa-binding: local rank %u needs a GPU of its own, and %u %s visible",
                       in->local_rank, in->n_visible, in->n_visible == 1 ? "is" : "are");
    struct text text = gpu_text(t, in, 0);
    int32_t index = node_of(t, gpu);
    const struct topo_numa *node = topology_numa(t, index);
    if (node == NULL || cpuset_is_empty(topo_numa_near(node))) {
        BECAUSE(ret, "NUMA node %d of %.60s has no CPU that may be used here", index, text.text);
        return 0;
    }
    int r = choose(t, in, index, topo_numa_near(node), &ret->cpus, err);
    if (r < 0)
        return r;
    ret->bound = !cpuset_is_empty(&ret->cpus);
    if (ret->bound)
        BECAUSE(ret, "%s of NUMA node %d of %.60s", parts[in->mode], index, text.text);
    else
        BECAUSE(ret, "the caches of NUMA node %d are not known", index);
    return 0;
}

static uint32_t count_cpu_nodes(const struct topology *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_numa; i++)
        n += !cpuset_is_empty(&t->numa[i].cpus);
    return n;
}

static bool sizes_are_known(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (t->numa[i].bytes > 0)
            return true;
    return false;
}

static void follow_memory(const struct topology *t, const struct affinity_input *in,
                          struct affinity *a) {
    if (in->memory == BIND_MEMORY_OFF)
        return;
    bool known = sizes_are_known(t);
    for (uint32_t i = 0; i < t->n_numa; i++) {
        const struct topo_numa *n = &t->numa[i];
        if (n->index >= 0 && cpuset_intersects(&n->cpus, &a->cpus) && (n->bytes > 0 || !known))
            cpuset_add(&a->nodes, (uint32_t)n->index);
    }
    a->strict = in->memory == BIND_MEMORY_STRICT;
}

static void name_places(const char *what, const struct cpuset *numbers, struct strbuf *to) {
    if (cpuset_is_empty(numbers))
        return;
    strbuf_printf(to, "%s%s%s ", to->len > 0 ? " and " : "", what,
                  cpuset_count(numbers) == 1 ? "" : "s");
    cpuset_write_list(numbers, to);
}

/* The number of a package; cores whose package is not known count to package 0. */
static uint32_t package_number(int32_t package) { return (uint32_t)MAX2(package, 0); }

/* Binds it to these nodes and packages, if they have CPUs. gpus: "": it has none. */
static void bind_to(const struct topology *t, const struct home *home, const char *gpus,
                    struct affinity *ret) {
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (cpuset_has(&home->nodes, (uint32_t)MAX2(t->numa[i].index, 0)))
            cpuset_or(&ret->cpus, topo_numa_near(&t->numa[i]));
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_has(&home->packages, package_number(t->cores[i].package)))
            cpuset_or(&ret->cpus, &t->cores[i].cpus);
    ret->bound = !cpuset_is_empty(&ret->cpus);
    if (!ret->bound)
        return;
    _cleanup_(strbuf_fini) struct strbuf places = {0};
    name_places("package", &home->packages, &places);
    name_places("NUMA node", &home->nodes, &places);
    BECAUSE(ret, "%.80s%s%.40s", strbuf_text(&places), *gpus != '\0' ? " of " : "", gpus);
}

/* Nodes without a usable CPU add nothing. With socket, a node that belongs to no package or to
 * several counts by itself. If the place of one of the GPUs is not known, any CPU can be near. */
static void choose_near_gpus(const struct topology *t, const struct affinity_input *in,
                             struct affinity *ret) {
    struct home home = {0};
    uint32_t gpu = gpu_at(in, in->local_rank, 0);
    if (gpu >= t->n_gpus) {
        BECAUSE(ret, "there is no GPU for it among the %u visible", in->n_visible);
        ret->everywhere = count_cpu_nodes(t) <= 1;
        return;
    }
    for (uint32_t k = 0; gpu < t->n_gpus; gpu = gpu_at(in, in->local_rank, ++k)) {
        const int32_t numa = t->gpus[gpu].numa;
        struct text text = gpu_text(t, in, k);
        if (numa < 0) {
            BECAUSE(ret, "the NUMA node of %.60s is not known", text.text);
            ret->everywhere = count_cpu_nodes(t) <= 1;
            return;
        }
        const struct topo_numa *n = topology_numa(t, numa);
        if (n == NULL || cpuset_is_empty(topo_numa_near(n)))
            BECAUSE(ret, "NUMA node %d of %.60s has no CPU that may be used here", numa, text.text);
        else if (in->mode == BIND_SOCKET && n->package >= 0)
            cpuset_add(&home.packages, package_number(n->package));
        else
            cpuset_add(&home.nodes, (uint32_t)numa);
    }
    bind_to(t, &home, gpus_text(t, in).text, ret);
}

/* Without GPUs: the worker's block of the nodes that have CPUs, or of the packages, never empty. */
static void choose_block(const struct topology *t, const struct affinity_input *in,
                         struct affinity *ret) {
    const bool by_node = in->mode == BIND_NUMA;
    struct cpuset all = {0};
    struct home home = {0};
    for (uint32_t i = 0; by_node && i < t->n_numa; i++)
        if (!cpuset_is_empty(&t->numa[i].cpus))
            cpuset_add(&all, (uint32_t)MAX2(t->numa[i].index, 0));
    for (uint32_t i = 0; !by_node && i < t->n_cores; i++)
        cpuset_add(&all, package_number(t->cores[i].package));
    const uint64_t n = cpuset_count(&all), from = in->local_rank * n / in->nproc;
    const uint64_t to = MAX2((in->local_rank + UINT64_C(1)) * n / in->nproc, from + 1);
    uint64_t at = 0;
    for (uint32_t i = cpuset_next(&all, 0); i < CPUSET_MAX; i = cpuset_next(&all, i + 1), at++)
        if (at >= from && at < to)
            cpuset_add(by_node ? &home.nodes : &home.packages, i);
    bind_to(t, &home, "", ret);
    if (n == 0)
        BECAUSE(ret, "the %s are not known", by_node ? "NUMA nodes" : "packages");
}

int affinity_choose(const struct topology *t, const struct affinity_input *in, struct affinity *ret,
                    struct err *err) {
    struct affinity a = {0};
    int r = 0;
    switch (in->mode) {
    case BIND_NONE: BECAUSE(&a, "not asked for"); break;
    case BIND_NUMA:
    case BIND_SOCKET:
        if (in->n_visible > 0)
            choose_near_gpus(t, in, &a);
        else
            choose_block(t, in, &a);
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

static_assert(GPUS_MAX >= TOPO_GPUS_MAX, "an inventory holds all GPUs of a node");
static_assert(GPU_UUID_MAX == sizeof((struct topo_gpu *)0)->uuid, "UUIDs are as long");

/* The GPU with the MIG device with which the list begins; GPU_UNKNOWN: none, or several. */
static uint32_t gpu_of_mig(const struct topology *t, const char *list) {
    size_t n;
    uint32_t found = GPU_UNKNOWN;
    list = list_item(list, 0, &n);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        for (uint32_t k = 0; k < t->gpus[i].n_mig && k < TOPO_MIG_MAX; k++) {
            if (n <= strlen("MIG-") || strncmp(t->gpus[i].mig_uuids[k], list, n) != 0)
                continue;
            if (found != GPU_UNKNOWN && found != i)
                return GPU_UNKNOWN;
            found = i;
        }
    }
    return found;
}

uint32_t affinity_visible_gpus(const struct topology *t, const char *cuda_visible_devices,
                               uint32_t *visible, uint32_t max, bool *ret_unknown) {
    uint32_t gpus[TOPO_GPUS_MAX], list[GPUS_MAX], n_visible = 0;
    struct gpu_inventory inventory = {.n = 0};
    _cleanup_(freep) char(*uuids)[GPU_UUID_MAX] = xcalloc(TOPO_GPUS_MAX, sizeof *uuids);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        if (t->gpus[i].vendor != TOPO_VENDOR_NVIDIA)
            continue;
        if (t->gpus[i].uuid[0] != '\0') {
            memcpy(uuids[inventory.n], t->gpus[i].uuid, GPU_UUID_MAX);
            inventory.uuids = uuids;
        }
        gpus[inventory.n++] = i;
    }
    uint32_t n = gpu_list_visible(cuda_visible_devices, &inventory, list);
    *ret_unknown = false;
    for (uint32_t i = 0; i < n && n_visible < max; i++) {
        uint32_t gpu = list[i] != GPU_UNKNOWN ? gpus[list[i]] : gpu_of_mig(t, cuda_visible_devices);
        if (gpu == GPU_UNKNOWN)
            *ret_unknown = true;
        else
            visible[n_visible++] = gpu;
    }
    return n_visible;
}

uint32_t affinity_dealt_gpus(const struct topology *t, const char *list, uint32_t *visible,
                             uint32_t max, bool *ret_unknown) {
    size_t len;
    const char *p = list != NULL ? list_item(list, 0, &len) : "";
    if (!text_begins(p, "MIG-"))
        return affinity_visible_gpus(t, list, visible, max, ret_unknown);
    uint32_t n = 0;
    *ret_unknown = false;
    for (size_t i = 0; n < max && (p = list_item(list, i, &len)) != NULL; i++) {
        char entry[GPU_UUID_MAX];
        bool unknown;
        if (len >= sizeof entry || !text_begins(p, "MIG-"))
            break;
        memcpy(entry, p, len);
        entry[len] = '\0';
        n += affinity_visible_gpus(t, entry, visible + n, 1, &unknown);
        *ret_unknown |= unknown;
    }
    return n;
}
