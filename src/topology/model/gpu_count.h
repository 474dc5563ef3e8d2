/* How many GPUs a worker would see, without loading CUDA. Pure: nvml_io looks at the machine.
 *
 * CUDA_VISIBLE_DEVICES, as CUDA and torch.cuda.device_count() read it (CUDA C programming guide,
 * "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices): not set: all
 * devices. Otherwise a list of indices, of "GPU-" names or their beginnings, or of "MIG-" names, by
 * what the first entry is. The list ends before the first entry that is negative, not of its kind,
 * or names no device, or more than one; a device named twice makes all invisible; empty: none. */
#pragma once

#include "base/util.h"

#define GPU_UUID_MAX 96
#define GPUS_MAX 256

struct gpu_inventory {
    uint32_t n;                  /* devices of this machine, <= GPUS_MAX */
    char (*uuids)[GPU_UUID_MAX]; /* [n] "GPU-…"; NULL: not known, and any name taken as right */
};

#define GPU_UNKNOWN UINT32_MAX /* a device that exists, but can't be identified by its name */

/* visible: value of CUDA_VISIBLE_DEVICES, NULL when it is not set. */
uint32_t gpu_count_visible(const char *visible, const struct gpu_inventory *inventory);
/* The same, and which they are, in CUDA's order: ret holds GPUS_MAX numbers of devices (or
 * GPU_UNKNOWN: any name without UUIDs, and a MIG instance whose name does not have its GPU's). */
uint32_t gpu_list_visible(const char *visible, const struct gpu_inventory *inventory,
                          uint32_t *ret);
