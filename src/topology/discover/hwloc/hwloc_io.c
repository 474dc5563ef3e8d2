#include "topology/discover/hwloc/hwloc_io.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>

void hwloc_built_version(char out[HWLOC_TEXT_MAX]) {
    (void)snprintf(out, HWLOC_TEXT_MAX, "%s", HWLOC_VERSION);
}

int hwloc_discover(struct hwloc_summary *ret, struct err *err) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) < 0)
        return err_set(err, -EIO, "hwloc can't start");
    int r = hwloc_topology_load(topology) < 0 ? -EIO : 0;
    if (r == 0) {
        unsigned version = hwloc_get_api_version();
        *ret = (struct hwloc_summary){
            .packages = (uint32_t)hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
            .numa_nodes = (uint32_t)hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
            .cores = (uint32_t)hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
            .pus = (uint32_t)hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU),
        };
        (void)snprintf(ret->version, sizeof ret->version, "API %u.%u", version >> 16,
                       version >> 8 & 0xff);
    }
    hwloc_topology_destroy(topology);
    return r < 0 ? err_set(err, r, "hwloc can't examine this machine") : 0;
}
