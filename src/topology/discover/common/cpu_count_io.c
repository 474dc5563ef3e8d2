#include "topology/discover/common/cpu_count_io.h"

#include <errno.h>
#include <sched.h>

/* The kernel's mask can be wider than cpu_set_t; widen until it fits. */
#define CPUS_MAX (1 << 20)

/* Free it with CPU_FREE(); NULL: it can't be read. */
static cpu_set_t *read_mask(size_t *ret_bytes) {
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MAX; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL)
            return NULL;
        *ret_bytes = CPU_ALLOC_SIZE(cpus);
        if (sched_getaffinity(0, *ret_bytes, set) == 0)
            return set;
        bool too_small = errno == EINVAL;
        CPU_FREE(set);
        if (!too_small)
            return NULL;
    }
    return NULL;
}

uint32_t cpu_count_allowed(void) {
    size_t bytes;
    cpu_set_t *set = read_mask(&bytes);
    int n = set != NULL ? CPU_COUNT_S(bytes, set) : 0;
    if (set != NULL)
        CPU_FREE(set);
    return n > 0 ? (uint32_t)n : 1;
}

bool cpu_allowed(struct cpuset *ret) {
    size_t bytes;
    cpu_set_t *set = read_mask(&bytes);
    if (set == NULL)
        return false;
    *ret = (struct cpuset){0};
    for (uint32_t i = 0; i < bytes * 8; i++)
        if (CPU_ISSET_S(i, bytes, set))
            cpuset_add(ret, i); /* ignores numbers above its limit */
    CPU_FREE(set);
    return true;
}
