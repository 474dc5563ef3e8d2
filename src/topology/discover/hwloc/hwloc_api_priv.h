/* hwloc's functions, found at run time, and how what it found is carried over. For the hwloc_*_io
 * files alone. A function that is not named here can't be called: inline ones of hwloc's headers
 * that call others neither. */
#pragma once

#include <hwloc.h>
#include <hwloc/distances.h>

#include "topology/model/topology.h"

#define HWLOC_FUNCTIONS(X)          \
    X(get_api_version)              \
    X(topology_init)                \
    X(topology_load)                \
    X(topology_destroy)             \
    X(topology_set_components)      \
    X(topology_set_io_types_filter) \
    X(topology_set_xmlbuffer)       \
    X(topology_get_allowed_cpuset)  \
    X(get_type_depth)               \
    X(get_nbobjs_by_depth)          \
    X(get_obj_by_depth)             \
    X(bitmap_next)                  \
    X(distances_get_by_name)        \
    X(distances_release)

struct hwloc_api {
#define HWLOC_MEMBER(name) __typeof__(&hwloc_##name) name;
    HWLOC_FUNCTIONS(HWLOC_MEMBER)
#undef HWLOC_MEMBER
};

/* The library stays loaded. 0; -ENOENT: there is none; -ENOTSUP: of another ABI than the
 * headers'. */
_must_use_ int hwloc_api_load(struct hwloc_api *ret, struct err *err);

/* One loaded topology on its way into `t`. */
struct hwloc_view {
    const struct hwloc_api *api;
    hwloc_topology_t topology;
    struct topology *t;
    unsigned what; /* DISCOVER_* */
    bool xml;      /* devices are known from nowhere else */
    bool tree;     /* a recorded one: neither XML nor this machine */
};

uint32_t hwloc_count(const struct hwloc_view *v, hwloc_obj_type_t type);
/* Numbers of CPUSET_MAX and above, and the tail of an infinite set, are left out. */
void hwloc_take_set(const struct hwloc_view *v, hwloc_const_bitmap_t from, struct cpuset *ret);
/* The value of the object's info of that name, or NULL. */
const char *hwloc_info(hwloc_obj_t obj, const char *name);
/* The kernel's number of the one NUMA node of this set; -1: none or several. GPUs' memory does not
 * count; of nodes with the same CPUs (two kinds of memory) it is the first. After the nodes. */
int32_t hwloc_numa_of(const struct hwloc_view *v, hwloc_const_bitmap_t nodeset);

/* Packages, NUMA nodes, cores, caches, allowed CPUs and the CPU's model. */
void hwloc_fill_cpus(const struct hwloc_view *v);
/* Bridges, devices and GPUs. userdata of an object that was taken: its index in pci[] plus 1. */
void hwloc_fill_pci(const struct hwloc_view *v);
/* TOPO_NONE: not below a PCI device that was taken. */
uint32_t hwloc_pci_of(hwloc_obj_t obj);
/* Of an XML: RDMA devices, network interfaces, NVLinks. After the PCI devices. */
void hwloc_fill_devices(const struct hwloc_view *v);

/* Runs it in a child process that may crash or hang: 0 or what it said; -EINVAL: it brought the
 * child down. Blocks, for a process of one thread. */
typedef int hwloc_trial_fn(void *arg, struct err *err);
_must_use_ int hwloc_try(hwloc_trial_fn *run, void *arg, struct err *err);
