/* Reads the hardware of a node (this machine, or a recorded one) into a struct topology. Blocks for
 * tens of milliseconds, or NVML_DISCOVERY_NS if a GPU is faulty: an agent runs it in a child
 * (launcher/node/node_discovery_io.h). This machine: CPUs, NUMA nodes, caches and PCI from hwloc;
 * online CPUs, link speeds, drivers, network and RDMA from files; addresses from netlink; the rest
 * of GPUs from NVML, in a child. A recorded tree (sysroot): the same files, hwloc with
 * HWLOC_FSROOT, no netlink, no NVML. */
#pragma once

#include "topology/discover/nvml/nvml_report.h"
#include "topology/model/topology.h"

/* NVML's report, for checks of GPUs. About half a megabyte. */
struct discovery_nvml {
    uint32_t n_nvidia;   /* how many NVIDIA GPUs the PCI bus has, without NVML */
    uint32_t n_warnings; /* how many warnings the topology had before NVML's */
    bool asked;          /* false: NVIDIA's driver is missing, and the report is empty */
    struct nvml_report report;
};

struct discovery_config {
    unsigned what;               /* DISCOVER_* */
    const char *sysroot;         /* NULL: this machine */
    const char *nvml_library;    /* NULL: libnvidia-ml.so.1; tests pass a scripted one */
    struct discovery_nvml *nvml; /* filled with DISCOVER_NVML; NULL: not requested */
};

/* Returns 0 if *ret is filled, with warnings for what could not be read; -ENOENT, -EIO … with a
 * sentence if nothing could be read. ret must be zeroed. */
_must_use_ int topology_discover(const struct discovery_config *config, struct topology *ret,
                                 struct err *err);

/* Loads what --from accepts, recognized by its content: muster's JSON, an hwloc XML (1.x, 2.x), an
 * NCCL topology file. */
_must_use_ int topology_load(const char *path, struct topology *ret, struct err *err);

/* Whether this machine has GPUs, by a quick check (no library loaded, no PCI walked).
 * /proc/driver/nvidia/gpus, /dev/nvidia0, /dev/kfd, or a DRM device of a GPU's driver. */
bool discover_has_gpus(void);
