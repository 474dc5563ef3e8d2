/* How many GPUs a worker would see, without loading CUDA. Pure: nvml_io examines the machine.
 *
 * CUDA_VISIBLE_DEVICES, as CUDA and torch.cuda.device_count() read it (CUDA C programming guide,
 * "CUDA Environment Variables"; torch/cuda/__init__.py, _parse_visible_devices): if it is not set,
 * all devices are visible. Otherwise it is a list of indices, of "GPU-" names or prefixes of them,
 * or of "MIG-" names; the first entry decides which. The list ends before the first entry that is
 * negative, is of another kind, or names no device or more than one. If a device is named twice, no
 * device is visible; nor if the variable is empty. */
#pragma once

#include "topology/model/topology.h"

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

/* ==== of AMD; sysfs_io.h examines the machine ====
 *
 * ROCm numbers GPUs as the kernel does (nodes of its KFD topology), which is not by PCI address
 * (ROCR-Runtime, amd_topology.cpp: BuildTopology). ROCR_VISIBLE_DEVICES selects some of them by
 * number, or by a prefix of "GPU-" with 16 hex digits. Its list ends before the first entry that
 * names no GPU or one that was named before; if it is empty, no GPU is visible
 * (amd_filter_device.cpp). HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES if that is not set or
 * empty, selects from the rest, in its own order; a GPU that is named twice counts once (clr,
 * rocdevice.cpp: Device::init). If the variable that counts is empty, PyTorch sees none
 * (torch/cuda/__init__.py, _parse_visible_devices). */

struct rocm_gpu {
    struct pci_addr at; /* of parts of one GPU all the same, or with the part as its function */
    uint64_t unique_id; /* 0: not known */
};

struct rocm_visible { /* values of the variables; NULL: not set */
    const char *rocr, *hip, *cuda;
};

/* Indices in t->gpus, in ROCm's order: `visible` holds `max`. gpus[n]: all of the machine, as the
 * kernel numbers them. Returns how many there are; those that t does not have are left out, and
 * *ret_unknown is set. */
uint32_t rocm_visible_gpus(const struct topology *t, const struct rocm_gpu *gpus, uint32_t n,
                           const struct rocm_visible *names, uint32_t *visible, uint32_t max,
                           bool *ret_unknown);
/* How many there would be, t or not. */
uint32_t rocm_count_visible(const struct rocm_gpu *gpus, uint32_t n,
                            const struct rocm_visible *names);
