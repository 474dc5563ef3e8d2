/* Which AMD GPUs a worker would see, and in which order, without loading ROCm. Pure; sysfs_io.h
 * examines the machine.
 *
 * ROCm numbers GPUs as the kernel does (nodes of its KFD topology), which is not by PCI address
 * (ROCR-Runtime, amd_topology.cpp: BuildTopology). ROCR_VISIBLE_DEVICES selects some of them by
 * number, or by a prefix of "GPU-" with 16 hex digits. Its list ends before the first entry that
 * names no GPU or one that was named before; if it is empty, no GPU is visible
 * (amd_filter_device.cpp). HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES if that is not set or
 * empty, selects from the rest, in its own order; a GPU that is named twice counts once (clr,
 * rocdevice.cpp: Device::init). If the variable that counts is empty, PyTorch sees none
 * (torch/cuda/__init__.py, _parse_visible_devices). */
#pragma once

#include "topology/model/topology.h"

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
