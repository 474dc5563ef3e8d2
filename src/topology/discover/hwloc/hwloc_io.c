#include "topology/discover/hwloc/hwloc_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/discover/hwloc/hwloc_api_priv.h"

/* hwloc 2.x's soname; 3.0 changes it. */
#define LIBRARY "libhwloc.so.15"

int hwloc_api_load(struct hwloc_api *ret, struct err *err) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return err_set(err, -ENOENT, "no %s", LIBRARY);
#define NAME(name) "hwloc_" #name,
    static const char *const names[] = {HWLOC_FUNCTIONS(NAME)};
#undef NAME
    void *symbols[ARRAY_SIZE(names)];
    static_assert(sizeof symbols == sizeof *ret, "one symbol for each member");
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        symbols[i] = dlsym(library, names[i]);
        all = all && symbols[i] != NULL;
    }
    if (!all)
        return err_set(err, -ENOTSUP, "%s is older than hwloc 2.1", LIBRARY);
    memcpy(ret, symbols, sizeof *ret);
    if (ret->get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return err_set(err, -ENOTSUP, "%s is not version %u", LIBRARY, HWLOC_API_VERSION >> 16);
    return 0;
}

static void version_text(unsigned version, char out[HWLOC_TEXT_MAX]) {
    (void)snprintf(out, HWLOC_TEXT_MAX, "API %u.%u", version >> 16, version >> 8 & 0xff);
}

void hwloc_built_version(char out[HWLOC_TEXT_MAX]) {
    (void)snprintf(out, HWLOC_TEXT_MAX, "%s", HWLOC_VERSION);
}

int hwloc_discover(struct hwloc_summary *ret, struct err *err) {
    struct hwloc_api api;
    int r = hwloc_api_load(&api, err);
    if (r < 0)
        return r;
    hwloc_topology_t topology;
    if (api.topology_init(&topology) < 0)
        return err_set(err, -EIO, "hwloc can't start");
    r = api.topology_load(topology) < 0 ? -EIO : 0;
    if (r == 0) {
        struct hwloc_view v = {.api = &api, .topology = topology};
        *ret = (struct hwloc_summary){
            .packages = hwloc_count(&v, HWLOC_OBJ_PACKAGE),
            .numa_nodes = hwloc_count(&v, HWLOC_OBJ_NUMANODE),
            .cores = hwloc_count(&v, HWLOC_OBJ_CORE),
            .pus = hwloc_count(&v, HWLOC_OBJ_PU),
        };
        version_text(api.get_api_version(), ret->version);
    }
    api.topology_destroy(topology);
    return r < 0 ? err_set(err, r, "hwloc can't look at this machine") : 0;
}
