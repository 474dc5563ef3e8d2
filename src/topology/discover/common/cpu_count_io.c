#include "topology/discover/common/cpu_count_io.h"

#include <sched.h>
#include <string.h>

bool cpu_allowed(struct cpuset *ret) {
    cpu_set_t mask[CPUSET_MAX / CPU_SETSIZE]; /* as many as a kernel's mask can have */
    static_assert(sizeof mask == sizeof ret->words, "a mask is made of the same words");
    if (sched_getaffinity(0, sizeof mask, mask) < 0)
        return false;
    memcpy(ret->words, mask, sizeof mask);
    return true;
}

uint32_t cpu_count_allowed(void) {
    struct cpuset all;
    return cpu_allowed(&all) ? MAX2(cpuset_count(&all), 1) : 1;
}
