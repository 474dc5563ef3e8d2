/* Looks at a node: this machine, or a recorded one, into a struct topology. Blocks for up to tens
 * of milliseconds, and for NVML_DISCOVERY_NS at most where a GPU is sick; an agent that serves
 * others runs it in a child (launcher/node/node_discovery_io.h).
 *
 * Of this machine: CPUs, NUMA nodes, caches and the PCI tree by hwloc; which CPUs run, link speeds,
 * drivers, /sys/class/net, /sys/class/infiniband by the file system; addresses by netlink
 * (SIOCGIFCONF and /proc/net/if_inet6 where that is refused); GPUs' NVLinks, C2C, compute
 * capability, MIG by NVML in a child. Of a recorded
 * tree (sysroot): the same files below it, hwloc with HWLOC_FSROOT, no netlink, no NVML. */
#pragma once

#include "topology/discover/common/discovery.h"
#include "topology/model/topology.h"

struct discovery_config {
    unsigned what;            /* DISCOVER_* */
    const char *sysroot;      /* NULL: this machine */
    uint64_t nvml_ns;         /* deadline of NVML; 0: NVML_DISCOVERY_NS */
    const char *nvml_library; /* NULL: libnvidia-ml.so.1; tests give a scripted one */
};

/* 0: *ret is filled, with warnings for what could not be read. -ENOENT, -EIO … with a sentence:
 * nothing could be. ret must be zeroed. */
_must_use_ int topology_discover(const struct discovery_config *config, struct topology *ret,
                                 struct err *err);

/* Any file that --from takes, recognized by its content: muster's JSON, an hwloc XML (1.x, 2.x), an
 * NCCL topology file. A file of none of these, of hwloc 3.0, or for RCCL is refused with the
 * reason. */
_must_use_ int topology_load(const char *path, struct topology *ret, struct err *err);

/* Whether this machine has GPUs, by a quick check (no library loaded, no PCI walked).
 * /proc/driver/nvidia/gpus, /dev/nvidia0, /dev/kfd, or a DRM device of a GPU's driver. */
bool discover_has_gpus(void);
