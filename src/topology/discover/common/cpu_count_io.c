#include "topology/discover/common/cpu_count_io.h"

#include <sched.h>

/* As many as a kernel's mask can have. */
struct mask {
    cpu_set_t sets[CPUSET_MAX / CPU_SETSIZE];
};

static bool read_mask(struct mask *ret) {
    return sched_getaffinity(0, sizeof ret->sets, ret->sets) == 0;
}

uint32_t cpu_count_allowed(void) {
    struct mask m;
    int n = read_mask(&m) ? CPU_COUNT_S(sizeof m.sets, m.sets) : 0;
    return n > 0 ? (uint32_t)n : 1;
}

bool cpu_allowed(struct cpuset *ret) {
    struct mask m;
    if (!read_mask(&m))
        return false;
    *ret = (struct cpuset){0};
    for (uint32_t i = 0; i < CPUSET_MAX; i++)
        if (CPU_ISSET_S(i, sizeof m.sets, m.sets))
            cpuset_add(ret, i);
    return true;
}
