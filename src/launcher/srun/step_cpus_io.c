#include "launcher/srun/step_cpus_io.h"

#include <sched.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
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

unsigned step_cpus_widen(char *const *envp) {
    struct cpuset before, widest, tasks, chosen, all;
    const char *on_node_text = env_get(envp, "SLURM_CPUS_ON_NODE");
    uint32_t on_node = 0;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        all.words[i] = UINT64_MAX;
    /* asks for all: the kernel grants those of the control group */
    if (online <= 0 || !get_own(&before) || !set_own(&all))
        return 0;
    if (on_node_text != NULL && parse_u32(on_node_text, &on_node) < 0)
        on_node = 0;
    bool known = step_cpus_of_tasks(env_get(envp, "SLURM_CPU_BIND_TYPE"),
                                    env_get(envp, "SLURM_CPU_BIND_LIST"), &tasks) == 0;
    if (get_own(&widest) &&
        step_cpus_choose(&widest, (uint32_t)online, on_node, known ? &tasks : NULL, &chosen) == 0 &&
        !cpuset_equal(&chosen, &before) && set_own(&chosen))
        return cpuset_count(&chosen);
    (void)set_own(&before);
    return 0;
}
