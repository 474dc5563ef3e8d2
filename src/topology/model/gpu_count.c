#include "topology/model/gpu_count.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"

/* One entry of the list, blanks around it removed. */
struct entry {
    const char *text;
    size_t n;
};

static bool entry_at(const char *list, size_t i, struct entry *ret) {
    ret->text = list_item(list, i, &ret->n);
    return ret->text != NULL;
}

/* The number with which an entry begins, as strtoul() reads it: "1gpu" is 1, "gpu" is none. */
static uint32_t index_of(struct entry e, uint32_t n_devices) {
    size_t i = e.n > 0 && *e.text == '+';
    uint32_t v = 0;
    size_t digits = 0;
    for (; i < e.n && isdigit((unsigned char)e.text[i]); i++, digits++) {
        v = v * 10 + (uint32_t)(e.text[i] - '0');
        if (v >= n_devices)
            return GPU_UNKNOWN;
    }
    return digits > 0 && v < n_devices ? v : GPU_UNKNOWN;
}

static uint32_t uuid_of(struct entry e, const struct gpu_inventory *inventory) {
    uint32_t found = GPU_UNKNOWN;
    for (uint32_t i = 0; i < inventory->n; i++) {
        if (strncmp(inventory->uuids[i], e.text, e.n) != 0)
            continue;
        if (found != GPU_UNKNOWN)
            return GPU_UNKNOWN;
        found = i;
    }
    return found;
}

/* "MIG-GPU-<uuid>/<instance>/<part>", the form of drivers before 470. Later names do not contain
 * the GPU (MIG user guide). On a machine with one GPU it is that GPU. */
static uint32_t mig_of(struct entry e, const struct gpu_inventory *inventory) {
    if (inventory->n == 1)
        return 0;
    struct entry uuid = {.text = e.text + strlen("MIG-"), .n = e.n - strlen("MIG-")};
    for (size_t i = 0; i < uuid.n; i++)
        if (uuid.text[i] == '/')
            uuid.n = i;
    if (!text_begins(uuid.text, "GPU-") || inventory->uuids == NULL)
        return GPU_UNKNOWN;
    return uuid_of(uuid, inventory);
}

uint32_t gpu_list_visible(const char *visible, const struct gpu_inventory *inventory,
                          uint32_t *ret) {
    assert(inventory->n <= GPUS_MAX);
    if (visible == NULL) {
        for (uint32_t i = 0; i < inventory->n; i++)
            ret[i] = i;
        return inventory->n;
    }
    struct entry first, e;
    (void)entry_at(visible, 0, &first);
    /* CUDA enumerates only one MIG instance, however many are listed (MIG user guide). */
    if (text_begins(first.text, "MIG-")) {
        ret[0] = mig_of(first, inventory);
        return inventory->n > 0 ? 1 : 0;
    }
    bool by_name = text_begins(first.text, "GPU-");
    bool seen[GPUS_MAX] = {false};
    uint32_t count = 0;
    for (size_t i = 0; count < inventory->n && entry_at(visible, i, &e); i++) {
        uint32_t device = GPU_UNKNOWN;
        if (by_name && !text_begins(e.text, "GPU-"))
            break;
        if (!by_name || inventory->uuids != NULL) {
            device = by_name ? uuid_of(e, inventory) : index_of(e, inventory->n);
            if (device == GPU_UNKNOWN) /* it is not a device: the list ends here */
                break;
            if (seen[device])
                return 0;
            seen[device] = true;
        }
        ret[count++] = device;
    }
    return count;
}

uint32_t gpu_count_visible(const char *visible, const struct gpu_inventory *inventory) {
    uint32_t list[GPUS_MAX];
    return gpu_list_visible(visible, inventory, list);
}

/* ---- of AMD ---- */

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

static bool has_name(const struct rocm_gpu *gpu, struct entry e) {
    char own[] = "GPU-0123456789abcdef";
    (void)snprintf(own, sizeof own, "GPU-%016" PRIx64, gpu->unique_id);
    return gpu->unique_id != 0 && strncasecmp(own, e.text, e.n) == 0;
}

/* A position in `from`, or TOPO_NONE: no such GPU, or several. */
static uint32_t find(const struct rocm_gpu *gpus, const struct picks *from, struct entry e) {
    uint32_t found = TOPO_NONE, v = 0;
    size_t at = 0;
    if (strncasecmp(e.text, "GPU-", 4) == 0) {
        for (uint32_t i = 0; e.n > 4 && i < from->n; i++) {
            if (!has_name(&gpus[from->gpus[i]], e))
                continue;
            if (found != TOPO_NONE)
                return TOPO_NONE;
            found = i;
        }
        return found;
    }
    for (; at < e.n && isdigit((unsigned char)e.text[at]) && v < GPUS_MAX; at++)
        v = v * 10 + (uint32_t)(e.text[at] - '0');
    return e.n > 0 && at == e.n && v < from->n ? v : TOPO_NONE;
}

/* Reduces *all to the GPUs that the list selects. */
static void pick(const struct rocm_gpu *gpus, const char *list, bool twice_ends,
                 struct picks *all) {
    struct picks picked = {.n = 0};
    struct entry e;
    for (size_t i = 0; picked.n < GPUS_MAX && entry_at(list, i, &e); i++) {
        uint32_t at = find(gpus, all, e);
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
