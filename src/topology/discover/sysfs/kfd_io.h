/* AMD's GPUs as the kernel numbers them for ROCm: /sys/class/kfd/kfd/topology/nodes. A node with
 * SIMDs is a GPU, or a part of one. Nodes that a device cgroup hides cannot be read, and ROCm
 * leaves them out, too (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show). No device is
 * opened and nothing waits for the driver. */
#pragma once

#include "topology/discover/sysfs/rocm.h"

/* Returns how many there are; ret has room for `max`. root: as in sysfs_io.h. */
uint32_t kfd_list_gpus(const char *root, struct rocm_gpu *ret, uint32_t max);
