/* What a look at a node may be asked for: topology/discover/look_io.h is the look, and those who
 * look for it know this much of it. */
#pragma once

#include "base/util.h"

#define NVML_LOOK_NS (2 * NS_PER_S) /* as long as NVML may take */
/* So begins the topology's warning when it took longer. */
#define LOOK_NVML_LATE "NVML did not answer"

enum { /* what to look for; bits */
    LOOK_CPUS = 1,     /* NUMA, cores, caches, allowed */
    LOOK_PCI = 2,      /* bridges, GPUs and NICs with their PCI devices */
    LOOK_NICS = 4,     /* RDMA devices */
    LOOK_NETIFS = 8,
    LOOK_NVML = 16,
    LOOK_ALL = 31,
};
