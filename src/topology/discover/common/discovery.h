/* What a look at a node may be asked for: topology/discover/discovery_io.h is the look, and those
 * who look for it know this much of it. */
#pragma once

#include "base/util.h"

#define NVML_DISCOVERY_NS (2 * NS_PER_S) /* as long as NVML may take */
/* So begins the topology's warning when it took longer. */
#define DISCOVERY_NVML_LATE "NVML did not answer"

enum {                    /* what to look for; bits */
       DISCOVER_CPUS = 1, /* NUMA, cores, caches, allowed */
       DISCOVER_PCI = 2,  /* bridges, GPUs and NICs with their PCI devices */
       DISCOVER_NICS = 4, /* RDMA devices */
       DISCOVER_NETIFS = 8,
       DISCOVER_NVML = 16,
       DISCOVER_ALL = 31,
};
