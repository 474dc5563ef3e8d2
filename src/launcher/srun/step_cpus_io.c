#include "launcher/srun/step_cpus_io.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/parse.h"

/* "0x00ff", of any length. */
static int add_mask(const char *text, size_t len, struct cpuset *to) {
    _cleanup_(freep) char *mask = xstrndup(text, len);
    const char *digits = strncasecmp(mask, "0x", 2) == 0 ? mask + 2 : mask;
    struct cpuset set;
    if (digits[0] == '\0' || cpuset_parse_mask(digits, &set) < 0)
        return -EINVAL;
    cpuset_or(to, &set);
    return 0;
}

int step_cpus_of_tasks(const char *masks, struct cpuset *ret) {
    struct cpuset set = {0};
    const char *item;
    size_t len;
    if (masks == NULL)
        return -ENODATA;
    for (size_t i = 0; (item = list_item(masks, i, &len)) != NULL; i++) {
        int r = add_mask(item, len, &set);
        if (r < 0)
            return r;
    }
    *ret = set;
    return 0;
}

int step_cpus_choose(const struct cpuset *widest, uint32_t online, uint32_t on_node,
                     const struct cpuset *tasks, struct cpuset *ret) {
    uint32_t n = cpuset_count(widest);
    /* by a control group; or the step has the whole machine */
    bool confined = on_node > 0 ? n <= on_node : n < online;
    struct cpuset set = *widest;
    if (!confined && tasks == NULL)
        return -ENODATA;
    if (!confined)
        cpuset_and(&set, tasks);
    if (cpuset_is_empty(&set))
        return -ENODATA;
    *ret = set;
    return 0;
}

/* The kernel's masks are of whole longs, as those of struct cpuset are. sched_setaffinity(2) */
static bool get_of(pid_t pid, struct cpuset *ret) {
    *ret = (struct cpuset){0};
    return sched_getaffinity(pid, sizeof ret->words, (cpu_set_t *)(void *)ret->words) == 0;
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
    if (online <= 0 || !get_of(0, &before) || !set_own(&all))
        return 0;
    /* of no visible process: the widest, which this process has now */
    bool known = place->launcher != NULL ? get_of(place->launcher_pid, &tasks)
                                         : step_cpus_of_tasks(place->cpu_masks, &tasks) == 0;
    if (get_of(0, &widest) &&
        step_cpus_choose(&widest, (uint32_t)online, place->cpus_on_node, known ? &tasks : NULL,
                         &chosen) == 0 &&
        !cpuset_equal(&chosen, &before) && cpuset_within(&before, &chosen) && set_own(&chosen))
        return cpuset_count(&chosen);
    (void)set_own(&before);
    return 0;
}

void srun_restore_env(void) {
    const char *cpus = getenv(STARTER_CPUS_ENV);
    if (cpus != NULL)
        (void)setenv("SLURM_CPUS_PER_TASK", cpus, 0);
}
