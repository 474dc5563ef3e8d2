/* A node's data from /sys and /proc, live or recorded: PCI functions and their links, RDMA
 * devices, network interfaces. It completes hwloc's data, and replaces it if hwloc found no PCI
 * devices.
 *
 * `root` is the folder that stands for "/": NULL, "" or "/" is this machine. Every read stays below
 * it: an absolute symlink starts at the root, and ".." does not go above it. None of these fails:
 * if a file is missing, cannot be read or holds something odd, its field stays unknown. What people
 * should know becomes a warning of the topology. None calls topology_sort().
 *
 * Sources: Linux Documentation/ABI/{stable,testing}/sysfs-{bus-pci,class-net,class-infiniband,
 * devices-node,devices-system-cpu}, Documentation/PCI/sysfs-pci. */
#pragma once

#include "topology/model/gpu_count.h"
#include "topology/model/topology.h"

/* For each of t->pci: numa, link of itself and of the port above, ids where they are 0, driver,
 * parent, root bus. Adds the bridges above them that are missing, and GPUs, RDMA devices and
 * network cards that no other source listed, with a topo_gpu for each GPU. */
void sysfs_fill_pci(const char *root, struct topology *t);
/* /sys/class/infiniband, and Slingshot's interfaces: into t->nics. An entry that already has the
 * name is completed. */
void sysfs_fill_rdma(const char *root, struct topology *t);
/* /sys/class/net: into t->netifs, likewise. Call it after sysfs_fill_rdma(), because of `nic`. */
void sysfs_fill_netifs(const char *root, struct topology *t);
/* Whether it has GPUs, by a quick check. No library, no walk over PCI: microseconds. */
bool sysfs_has_gpus(const char *root);

/* AMD's GPUs as the kernel numbers them for ROCm (/sys/class/kfd/kfd/topology/nodes; a node with
 * SIMDs is a GPU, or a part of one). Nodes that a device cgroup hides cannot be read, and ROCm
 * leaves them out, too (Linux, amdkfd/kfd_topology.c, node_show). Returns how many; ret has room
 * for `max`. */
uint32_t kfd_list_gpus(const char *root, struct rocm_gpu *ret, uint32_t max);
