#include "launcher/srun/step_cpus_io.h"

#include <sched.h>

#include "rig/unit.h"

static struct cpuset set_of(const char *list) {
    struct cpuset s;
    cr_assert_eq(cpuset_parse_list(list, &s), 0);
    return s;
}

static void expect_list(const struct cpuset *s, const char *list) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    cpuset_write_list(s, &text);
    cr_assert_str_eq(strbuf_text(&text), list);
}

Test(step_cpus, masks_of_tasks_add_up) {
    static const struct {
        const char *list, *cpus;
    } cases[] = {
        {"0x1,0x2", "0-1"}, {"0x00000001,0x00000004", "0,2"},    {"0xF0", "4-7"},
        {"f", "0-3"},       {"0x10000000000000000,0x1", "0,64"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cpuset s;
        cr_assert_eq(step_cpus_of_tasks(cases[i].list, &s), 0, "%s", cases[i].list);
        expect_list(&s, cases[i].cpus);
    }
}

Test(step_cpus, what_is_not_a_list_of_masks_is_refused) {
    struct cpuset s;
    cr_assert_eq(step_cpus_of_tasks(NULL, &s), -ENODATA);
    static const char *const bad[] = {"0x", "0x1,,0x2", "0xG", "0x1;0x2", ","};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(step_cpus_of_tasks(bad[i], &s), -EINVAL, "%s", bad[i]);
}

Test(step_cpus, a_control_group_is_believed_and_else_the_masks) {
    static const struct {
        const char *widest, *tasks; /* NULL: not known */
        uint32_t online, on_node;
        const char *chosen; /* NULL: the task's own stay */
    } cases[] = {
        {"0-3", NULL, 64, 4, "0-3"},    /* the step's cpuset */
        {"0-3", "0,2", 64, 4, "0-3"},   /* wider than what is bound */
        {"0-63", NULL, 64, 64, "0-63"}, /* it has the whole node */
        {"0-63", "0-1", 64, 4, "0-1"},  /* nothing confines it: others use the rest */
        {"0-63", NULL, 64, 4, NULL},    {"0-63", "64-65", 64, 4, NULL}, {"0-7", NULL, 64, 0, "0-7"},
        {"0-63", NULL, 64, 0, NULL},    {"0-7", "0-3", 8, 4, "0-3"}, /* threads of 4 cores, where Slurm counts cores */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cpuset widest = set_of(cases[i].widest), tasks = {0}, chosen;
        if (cases[i].tasks != NULL)
            tasks = set_of(cases[i].tasks);
        int r = step_cpus_choose(&widest, cases[i].online, cases[i].on_node, cases[i].tasks != NULL ? &tasks : NULL,
                                 &chosen);
        cr_assert_eq(r, cases[i].chosen != NULL ? 0 : -ENODATA, "case %zu", i);
        if (r == 0)
            expect_list(&chosen, cases[i].chosen);
    }
}

static void expect_affinity(const cpu_set_t *s) {
    cpu_set_t got;
    cr_assert_eq(sched_getaffinity(0, sizeof got, &got), 0);
    cr_assert(CPU_EQUAL(&got, s));
}

Test(step_cpus, a_process_takes_the_cpus_of_all_tasks_if_its_own_are_among_them) {
    int cpus[2], n = 0;
    char masks[64];
    struct place place = {.cpu_masks = masks, .cpus_on_node = 1};
    cpu_set_t all, own;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < 64 && n < 2; i++)
        if (CPU_ISSET(i, &all))
            cpus[n++] = i;
    if (n < 2)
        cr_skip_test("needs two CPUs");
    CPU_ZERO(&own);
    CPU_SET(cpus[0], &own);
    cr_assert_eq(sched_setaffinity(0, sizeof own, &own), 0);
    (void)snprintf(masks, sizeof masks, "0x%llx", 1ULL << cpus[1]);
    cr_assert_eq(step_cpus_widen(&place), 0);
    expect_affinity(&own);
    (void)snprintf(masks, sizeof masks, "0x%llx,0x%llx", 1ULL << cpus[1], 1ULL << cpus[0]);
    cr_assert_eq(step_cpus_widen(&place), 2);
    CPU_SET(cpus[1], &own);
    expect_affinity(&own);
}
