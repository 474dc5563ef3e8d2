#include "topology/cpu_count_io.h"

#include <errno.h>
#include <sched.h>

/* The kernel's mask may be wider than cpu_set_t; widen until it fits. */
#define CPUS_MAX (1 << 20)

uint32_t cpu_count_allowed(void) {
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MAX; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int r = sched_getaffinity(0, bytes, set) < 0 ? -errno : 0;
        int n = r == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (r != -EINVAL)
            return n > 0 ? (uint32_t)n : 1;
    }
    return 1;
}
