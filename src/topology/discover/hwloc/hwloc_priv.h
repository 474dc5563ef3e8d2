/* Copies what hwloc found into a topology. Only for the hwloc_*_io files. */
#pragma once

#include <hwloc.h>
#include <hwloc/distances.h>

#include "topology/model/topology.h"

/* One loaded topology on its way into `t`. */
struct hwloc_view {
    hwloc_topology_t topology;
    struct topology *t;
    unsigned what; /* DISCOVER_* */
    bool xml;      /* there is no other source for devices */
    bool tree;     /* a recorded one: neither XML nor this machine */
};

/* The kernel's number of the one NUMA node of this set; -1: none or several. GPUs' memory does not
 * count; of nodes with the same CPUs (two kinds of memory) it is the first. Call it after the nodes
 * were added. */
int32_t hwloc_numa_of(const struct hwloc_view *v, hwloc_const_bitmap_t nodeset);

/* Packages, NUMA nodes, cores, caches, allowed CPUs and the CPU's model. */
void hwloc_fill_cpus(const struct hwloc_view *v);
/* Bridges, devices and GPUs. userdata of an object that was taken: its index in pci[] plus 1. */
void hwloc_fill_pci(const struct hwloc_view *v);
/* TOPO_NONE: not below a PCI device that was taken. */
uint32_t hwloc_pci_of(hwloc_obj_t obj);
/* From an XML: RDMA devices, network interfaces, NVLinks. Call it after the PCI devices were added.
 */
void hwloc_fill_devices(const struct hwloc_view *v);

/* Runs it in a child process, which can crash or hang. Returns 0 or its result; -EINVAL: it crashed
 * the child. Blocks; only for a process with one thread. */
typedef int hwloc_trial_fn(void *arg, struct err *err);
_must_use_ int hwloc_try(hwloc_trial_fn *run, void *arg, struct err *err);
