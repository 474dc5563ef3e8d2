#include "rig/unit.h"
#include "topology/model/affinity.h"

static struct topology machine;

/* An AMD GPU between NVIDIA's: CUDA does not count it. */
static void make_machine(void) {
    static const char *const uuids[] = {"GPU-aa11", "", "GPU-aa22", "GPU-bb33"};
    for (size_t i = 0; i < ARRAY_SIZE(uuids); i++) {
        struct topo_gpu *g = topology_add_gpu(&machine);
        g->vendor = i == 1 ? TOPO_VENDOR_AMD : TOPO_VENDOR_NVIDIA;
        (void)snprintf(g->uuid, sizeof g->uuid, "%s", uuids[i]);
    }
}

static void drop_machine(void) { topology_fini(&machine); }
TestSuite(visible_gpus, .init = make_machine, .fini = drop_machine);

typedef uint32_t choose_fn(const struct topology *t, const char *visible, uint32_t *gpus, uint32_t max,
                           bool *ret_unknown);

/* "0,2,3", and "?" at the end if one is not known. */
static const char *chosen(choose_fn *choose, const char *visible, uint32_t max) {
    static char text[64];
    uint32_t gpus[8];
    bool unknown = true;
    uint32_t n = choose(&machine, visible, gpus, max, &unknown);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i > 0 ? "," : "", gpus[i]);
    return unknown ? strcat(text, "?") : text;
}

static const char *list(const char *visible, uint32_t max) { return chosen(affinity_visible_gpus, visible, max); }
static const char *dealt(const char *visible, uint32_t max) { return chosen(affinity_dealt_gpus, visible, max); }

Test(visible_gpus, that_are_dealt_may_be_several_mig_devices) {
    (void)strcpy(machine.gpus[2].mig_uuids[0], "MIG-4f-5a");
    (void)strcpy(machine.gpus[2].mig_uuids[1], "MIG-4f-5b");
    (void)strcpy(machine.gpus[3].mig_uuids[0], "MIG-60-00");
    machine.gpus[2].n_mig = 2;
    machine.gpus[3].n_mig = 1;
    static const char *const cases[][2] = {
        {"MIG-60-00,MIG-4f-5b,MIG-4f-5a", "3,2,2"},
        {" MIG-4f-5a , MIG-60", "2,3"},
        {"MIG-4f-5a,0,MIG-60-00", "2"},
        {"MIG-4f-5a,MIG-99,MIG-60-00", "2,3?"},
        {"MIG-4f-5a,", "2"},
        {"MIG-GPU-bb33/1/0,MIG-GPU-aa11/1/0", "3,0"},
        {NULL, "0,2,3"},
        {"", ""},
        {"2,0", "3,0"},
        {"GPU-bb,GPU-aa11", "3,0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_str_eq(dealt(cases[i][0], 8), cases[i][1], "%s: %s", cases[i][0], dealt(cases[i][0], 8));
    cr_expect_str_eq(dealt("MIG-60-00,MIG-4f-5b,MIG-4f-5a", 2), "3,2");
    cr_expect_str_eq(list("MIG-60-00,MIG-4f-5b,MIG-4f-5a", 8), "3");
    cr_expect_str_eq(list("MIG-4f-5b", 8), "2");
    cr_expect_str_eq(list("MIG-00000000", 8), "?");
    machine.gpus[2].n_mig = 0;
    cr_expect_str_eq(list("MIG-", 8), "?", "also if there is one");
}

Test(visible_gpus, are_nvidias_in_cudas_order) {
    static const char *const cases[][2] = {
        {NULL, "0,2,3"},
        {"", ""},
        {"2,0", "3,0"},
        {"1", "2"},
        {"GPU-bb,GPU-aa11", "3,0"},
        {"GPU-aa22,0", "2"},
        {"MIG-GPU-bb33/1/0", "3"},
        {"MIG-GPU-bb33/1/0,MIG-GPU-aa11/1/0", "3"},
        {"MIG-4f-5a", "?"},
        {"MIG-GPU-zz/1/0", "?"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_str_eq(list(cases[i][0], 8), cases[i][1], "%s: %s", cases[i][0], list(cases[i][0], 8));
    cr_expect_str_eq(list(NULL, 2), "0,2");
}

Test(visible_gpus, names_say_nothing_where_no_gpu_told_its_own) {
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        machine.gpus[i].uuid[0] = '\0';
    cr_expect_str_eq(list("GPU-aa11,GPU-bb33", 8), "?");
    cr_expect_str_eq(list("2,0", 8), "3,0");
    machine.n_gpus = 1;
    cr_expect_str_eq(list("MIG-4f-5a", 8), "0"); /* it can belong to only one GPU */
}
