#include "launcher/srun/step_cpus_io.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/srun/step_cpus.h"

/* The kernel's masks are of whole longs, as those of struct cpuset are. sched_setaffinity(2) */
static bool get_own(struct cpuset *ret) {
    *ret = (struct cpuset){0};
    return sched_getaffinity(0, sizeof ret->words, (cpu_set_t *)(void *)ret->words) == 0;
}

static bool set_own(const struct cpuset *set) {
    struct cpuset copy = *set;
    return sched_setaffinity(0, sizeof copy.words, (cpu_set_t *)(void *)copy.words) == 0;
}

unsigned step_cpus_widen(const struct place *place) {
    struct cpuset before, widest, tasks, chosen, all;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        all.words[i] = UINT64_MAX;
    /* asks for all: the kernel grants those of the control group */
    if (online <= 0 || !get_own(&before) || !set_own(&all))
        return 0;
    bool known = step_cpus_of_tasks(place->cpu_masks, &tasks) == 0;
    if (get_own(&widest) &&
        step_cpus_choose(&widest, (uint32_t)online, place->cpus_on_node, known ? &tasks : NULL,
                         &chosen) == 0 &&
        !cpuset_equal(&chosen, &before) && set_own(&chosen))
        return cpuset_count(&chosen);
    (void)set_own(&before);
    return 0;
}

void srun_restore_env(void) {
    const char *cpus = getenv(STARTER_CPUS_ENV);
    if (cpus != NULL)
        (void)setenv("SLURM_CPUS_PER_TASK", cpus, 0);
}
