#include <string.h>

#include "topology/model/affinity.h"
#include "topology/model/gpu_count.h"

static_assert(GPUS_MAX >= TOPO_GPUS_MAX, "an inventory holds all GPUs of a node");
static_assert(GPU_UUID_MAX == sizeof((struct topo_gpu *)0)->uuid, "UUIDs are as long");

/* The GPU with the MIG device with which the list begins; GPU_UNKNOWN: none, or several. */
static uint32_t gpu_of_mig(const struct topology *t, const char *list) {
    list += strspn(list, " \t");
    size_t n = strcspn(list, ", \t");
    uint32_t found = GPU_UNKNOWN;
    for (uint32_t i = 0; i < t->n_gpus && i < TOPO_GPUS_MAX; i++) {
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
    for (uint32_t i = 0; i < t->n_gpus && i < TOPO_GPUS_MAX; i++) {
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
    const char *first = list != NULL ? list + strspn(list, " \t") : "";
    if (strncmp(first, "MIG-", 4) != 0)
        return affinity_visible_gpus(t, list, visible, max, ret_unknown);
    uint32_t n = 0;
    *ret_unknown = false;
    for (const char *p = list; p != NULL && n < max; p = strchr(p, ',')) {
        char entry[GPU_UUID_MAX];
        bool unknown;
        p += p > list; /* skip the comma */
        p += strspn(p, " \t");
        size_t len = strcspn(p, ", \t");
        if (len >= sizeof entry || strncmp(p, "MIG-", 4) != 0)
            break;
        memcpy(entry, p, len);
        entry[len] = '\0';
        n += affinity_visible_gpus(t, entry, visible + n, 1, &unknown);
        *ret_unknown |= unknown;
    }
    return n;
}
