/* How long one look at this machine takes, in a process that has not looked yet: prints
 * nanoseconds.
 *     looktime hwloc-cpus|hwloc-pci     hwloc's own load
 *     looktime cpus|all                 topology_discover() */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "topology/discover/discovery_io.h"

enum { FILTER_KEEP_ALL = 0 }; /* hwloc 2: HWLOC_TYPE_FILTER_KEEP_ALL */

static uint64_t now_ns(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static bool load(bool pci) {
    void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL), *topology;
    if (library == NULL)
        return false;
    static const char *const names[] = {"hwloc_topology_init", "hwloc_topology_set_io_types_filter",
                                        "hwloc_topology_load"};
    struct {
        int (*init)(void **);
        int (*filter)(void *, int);
        int (*load)(void *);
    } hwloc;
    void *symbols[3];
    for (int i = 0; i < 3; i++)
        symbols[i] = dlsym(library, names[i]);
    memcpy(&hwloc, symbols, sizeof hwloc);
    return hwloc.init(&topology) == 0 && (!pci || hwloc.filter(topology, FILTER_KEEP_ALL) == 0) &&
           hwloc.load(topology) == 0;
}

static bool look(unsigned what) {
    struct topology t = {0};
    struct err err = {0};
    if (topology_discover(&(struct discovery_config){.what = what}, &t, &err) == 0)
        return true;
    (void)fprintf(stderr, "%s\n", err.text);
    return false;
}

int main(int argc, char **argv) {
    const char *what = argc == 2 ? argv[1] : "";
    uint64_t begin = now_ns();
    bool ok = strcmp(what, "hwloc-cpus") == 0  ? load(false)
              : strcmp(what, "hwloc-pci") == 0 ? load(true)
              : strcmp(what, "cpus") == 0      ? look(DISCOVER_CPUS)
              : strcmp(what, "all") == 0       ? look(DISCOVER_ALL & ~(unsigned)DISCOVER_NVML)
                                               : false;
    if (!ok)
        return 1;
    (void)printf("%" PRIu64 "\n", now_ns() - begin);
    return 0;
}
