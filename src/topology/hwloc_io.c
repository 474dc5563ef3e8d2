#include "topology/hwloc_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* hwloc 2.x's soname; 3.0 changes it. */
#define LIBRARY "libhwloc.so.15"

struct hwloc_api {
    __typeof__(&hwloc_get_api_version) get_api_version;
    __typeof__(&hwloc_topology_init) topology_init;
    __typeof__(&hwloc_topology_load) topology_load;
    __typeof__(&hwloc_topology_destroy) topology_destroy;
    __typeof__(&hwloc_get_type_depth) get_type_depth;
    __typeof__(&hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth;
};

static bool load_api(void *library, struct hwloc_api *ret) {
    static const char *const names[] = {
        "hwloc_get_api_version",   "hwloc_topology_init",  "hwloc_topology_load",
        "hwloc_topology_destroy", "hwloc_get_type_depth", "hwloc_get_nbobjs_by_depth",
    };
    void *symbols[ARRAY_SIZE(names)];
    static_assert(sizeof symbols == sizeof *ret, "one symbol for each member");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        symbols[i] = dlsym(library, names[i]);
        if (symbols[i] == NULL)
            return false;
    }
    memcpy(ret, symbols, sizeof *ret);
    return true;
}

static void version_text(unsigned version, char out[HWLOC_TEXT_MAX]) {
    (void)snprintf(out, HWLOC_TEXT_MAX, "API %u.%u", version >> 16, version >> 8 & 0xff);
}

void hwloc_built_version(char out[HWLOC_TEXT_MAX]) {
    (void)snprintf(out, HWLOC_TEXT_MAX, "%s", HWLOC_VERSION);
}

static uint32_t count(const struct hwloc_api *api, hwloc_topology_t topology,
                      hwloc_obj_type_t type) {
    int depth = api->get_type_depth(topology, type);
    return depth == HWLOC_TYPE_DEPTH_UNKNOWN ? 0 : api->get_nbobjs_by_depth(topology, depth);
}

int hwloc_look(struct hwloc_summary *ret, struct err *err) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return err_set(err, -ENOENT, "no %s", LIBRARY);
    struct hwloc_api api;
    if (!load_api(library, &api) || api.get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return err_set(err, -ENOTSUP, "%s is not version %u", LIBRARY, HWLOC_API_VERSION >> 16);
    hwloc_topology_t topology;
    if (api.topology_init(&topology) < 0)
        return err_set(err, -EIO, "hwloc can't start");
    int r = api.topology_load(topology) < 0 ? -EIO : 0;
    if (r == 0) {
        *ret = (struct hwloc_summary){
            .packages = count(&api, topology, HWLOC_OBJ_PACKAGE),
            .numa_nodes = count(&api, topology, HWLOC_OBJ_NUMANODE),
            .cores = count(&api, topology, HWLOC_OBJ_CORE),
            .pus = count(&api, topology, HWLOC_OBJ_PU),
        };
        version_text(api.get_api_version(), ret->version);
    }
    api.topology_destroy(topology);
    return r < 0 ? err_set(err, r, "hwloc can't look at this machine") : 0;
}
