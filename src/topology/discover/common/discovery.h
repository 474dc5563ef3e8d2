/* What a discovery of a node can be asked for. topology/discover/discovery_io.h does the discovery;
 * the code below it needs only these definitions. */
#pragma once

#include "base/util.h"

#define NVML_DISCOVERY_NS (2 * NS_PER_S) /* as long as NVML may take */
enum {                                   /* what to look for; bits */
       DISCOVER_CPUS = 1,                /* NUMA, cores, caches, allowed */
       DISCOVER_PCI = 2,                 /* bridges, GPUs and NICs with their PCI devices */
       DISCOVER_NICS = 4,                /* RDMA devices */
       DISCOVER_NETIFS = 8,
       DISCOVER_NVML = 16,
       DISCOVER_ALL = 31,
};
