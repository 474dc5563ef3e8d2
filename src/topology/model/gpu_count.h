/* How many GPUs a worker would see, without loading CUDA. Pure: nvml_io examines the machine.
 *
 * CUDA_VISIBLE_DEVICES, as CUDA and torch.cuda.device_count() read it (CUDA C programming guide,
 * "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices): if it is not set,
 * all devices are visible. Otherwise it is a list of indices, of "GPU-" names or prefixes of them,
 * or of "MIG-" names; the first entry decides which. The list ends before the first entry that is
 * negative, is of another kind, or names no device or more than one. If a device is named twice, no
 * device is visible; nor if the variable is empty. */
#pragma once

#include "base/util.h"

#define GPU_UUID_MAX 96
#define GPUS_MAX 256

struct gpu_inventory {
    uint32_t n;                  /* devices of this machine, <= GPUS_MAX */
    char (*uuids)[GPU_UUID_MAX]; /* [n] "GPU-…"; NULL: not known, any name is accepted */
};

#define GPU_UNKNOWN UINT32_MAX /* a device that exists, but can't be identified by its name */

/* visible: value of CUDA_VISIBLE_DEVICES, NULL when it is not set. */
uint32_t gpu_count_visible(const char *visible, const struct gpu_inventory *inventory);
/* The same, and which devices they are, in CUDA's order. ret has room for GPUS_MAX device numbers.
 * GPU_UNKNOWN is used for every name if UUIDs are not known, and for a MIG instance whose name does
 * not contain its GPU's UUID. */
uint32_t gpu_list_visible(const char *visible, const struct gpu_inventory *inventory,
                          uint32_t *ret);
