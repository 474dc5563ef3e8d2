/* How many CPUs this process may use. */
#pragma once

#include <stdbool.h>

#include "base/text/cpuset.h"
#include "base/util.h"

/* CPUs of the affinity mask (sched_getaffinity(2)): what --nproc-per-node=cpu means, as in torch
 * since 2.9's torch._utils.cpu_count(). At least 1. */
uint32_t cpu_count_allowed(void);
/* The mask itself, up to CPUSET_MAX; false: the kernel does not report it. */
bool cpu_allowed(struct cpuset *ret);
