#include "topology/model/gpu_count.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

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
