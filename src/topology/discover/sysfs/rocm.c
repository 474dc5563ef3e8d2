#include "topology/discover/sysfs/rocm.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"
#include "topology/model/gpu_count.h"

static_assert(GPUS_MAX >= TOPO_GPUS_MAX, "a list holds all GPUs of a node");

/* A list of GPUs: indices in the inventory, in order. */
struct picks {
    uint32_t gpus[GPUS_MAX];
    uint32_t n;
};

static bool picks_have(const struct picks *p, uint32_t gpu) {
    for (uint32_t i = 0; i < p->n; i++)
        if (p->gpus[i] == gpu)
            return true;
    return false;
}

static bool has_name(const struct rocm_gpu *gpu, const char *name, size_t n) {
    char own[] = "GPU-0123456789abcdef";
    (void)snprintf(own, sizeof own, "GPU-%016" PRIx64, gpu->unique_id);
    return gpu->unique_id != 0 && strncasecmp(own, name, n) == 0;
}

/* A position in `from`, or TOPO_NONE: no such GPU, or several. */
static uint32_t find(const struct rocm_gpu *gpus, const struct picks *from, const char *entry,
                     size_t n) {
    uint32_t found = TOPO_NONE, v = 0;
    size_t at = 0;
    if (n >= 4 && strncasecmp(entry, "GPU-", 4) == 0) {
        for (uint32_t i = 0; n > 4 && i < from->n; i++) {
            if (!has_name(&gpus[from->gpus[i]], entry, n))
                continue;
            if (found != TOPO_NONE)
                return TOPO_NONE;
            found = i;
        }
        return found;
    }
    for (; at < n && isdigit((unsigned char)entry[at]) && v < GPUS_MAX; at++)
        v = v * 10 + (uint32_t)(entry[at] - '0');
    return n > 0 && at == n && v < from->n ? v : TOPO_NONE;
}

/* Reduces *all to the GPUs that the list selects. */
static void pick(const struct rocm_gpu *gpus, const char *list, bool twice_ends,
                 struct picks *all) {
    struct picks picked = {.n = 0};
    const char *entry;
    size_t n;
    for (size_t i = 0; picked.n < GPUS_MAX && (entry = list_item(list, i, &n)) != NULL; i++) {
        uint32_t at = find(gpus, all, entry, n);
        if (at == TOPO_NONE)
            break;
        if (!picks_have(&picked, all->gpus[at]))
            picked.gpus[picked.n++] = all->gpus[at];
        else if (twice_ends)
            break;
    }
    *all = picked;
}

/* Partitions of one GPU have the partition's number as the function of their address. */
static uint32_t gpu_at(const struct topology *t, struct pci_addr at) {
    uint32_t found = TOPO_NONE;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (g->vendor != TOPO_VENDOR_AMD || g->pci >= t->n_pci)
            continue;
        struct pci_addr own = t->pci[g->pci].at;
        if (pci_addr_compare(own, at) == 0)
            return i;
        own.fn = at.fn;
        if (pci_addr_compare(own, at) == 0)
            found = i;
    }
    return found;
}

static void pick_visible(const struct rocm_gpu *gpus, uint32_t n, const struct rocm_visible *names,
                         struct picks *ret) {
    ret->n = MIN2(n, (uint32_t)GPUS_MAX);
    for (uint32_t i = 0; i < ret->n; i++)
        ret->gpus[i] = i;
    const char *hip = names->hip != NULL && names->hip[0] != '\0' ? names->hip : names->cuda;
    if (names->rocr != NULL)
        pick(gpus, names->rocr, true, ret);
    if (hip != NULL)
        pick(gpus, hip, false, ret);
    else if (names->hip != NULL)
        ret->n = 0;
}

uint32_t rocm_count_visible(const struct rocm_gpu *gpus, uint32_t n,
                            const struct rocm_visible *names) {
    struct picks picks;
    pick_visible(gpus, n, names, &picks);
    return picks.n;
}

uint32_t rocm_visible_gpus(const struct topology *t, const struct rocm_gpu *gpus, uint32_t n,
                           const struct rocm_visible *names, uint32_t *visible, uint32_t max,
                           bool *ret_unknown) {
    struct picks picks;
    pick_visible(gpus, n, names, &picks);
    uint32_t n_visible = 0;
    *ret_unknown = false;
    for (uint32_t i = 0; i < picks.n && n_visible < max; i++) {
        uint32_t gpu = gpu_at(t, gpus[picks.gpus[i]].at);
        if (gpu == TOPO_NONE)
            *ret_unknown = true;
        else
            visible[n_visible++] = gpu;
    }
    return n_visible;
}
