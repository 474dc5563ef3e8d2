#include "topology/model/gpu_count.h"

#include "rig/unit.h"

static char uuids[3][GPU_UUID_MAX] = {"GPU-aa11", "GPU-aa22", "GPU-bb33"};
static const struct gpu_inventory named = {.n = 3, .uuids = uuids};
static const struct gpu_inventory nameless = {.n = 3};
static const struct gpu_inventory none = {.n = 0};

Test(gpu_count, without_the_variable_all_are_seen) {
    cr_assert_eq(gpu_count_visible(NULL, &named), 3);
    cr_assert_eq(gpu_count_visible(NULL, &none), 0);
}

Test(gpu_count, reads_the_variable_as_cuda_does) {
    static const struct {
        const char *visible;
        uint32_t count;
    } cases[] = {
        {"", 0},
        {" ", 0},
        {",", 0},
        {"0", 1},
        {"2,0,1", 3},
        {"0,1,2", 3},
        {" 1 , 2 ", 2},
        {"-1", 0},
        {"0,-1,2", 1},
        {"0,3,1", 1},
        {"3", 0},
        {"0,99999999999999999999", 1},
        {"0,0", 0},
        {"0,1,0", 0},
        {"0,-1,0", 1},
        {"1gpu2,2ampere", 2},
        {"gpu", 0},
        {"0,,1", 1},
        {"+1", 1},
        {"none", 0},
        {"NoDevFiles", 0},
        {"0,GPU-bb", 1},
        {"GPU-bb33,0", 1},
        {"GPU-aa11", 1},
        {"GPU-aa", 0},
        {"GPU-b", 1},
        {"GPU-aa11,GPU-bb33", 2},
        {"GPU-aa11,GPU-aa11", 0},
        {"GPU-bb33,GPU-b", 0},
        {"GPU-zz,GPU-aa11", 0},
        {"GPU-aa11,GPU-zz,GPU-bb33", 1},
        {"GPU-aa11x", 0},
        {"GPU-", 0},
        {"gpu-aa11", 0},
        {"MIG-4f", 1},
        {"MIG-4f,MIG-50", 1},
        {"GPU-aa11,MIG-4f", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_assert_eq(gpu_count_visible(cases[i].visible, &named), cases[i].count, "\"%s\"", cases[i].visible);
}

Test(gpu_count, names_that_can_not_be_looked_up_are_believed) {
    cr_assert_eq(gpu_count_visible("GPU-x,GPU-y", &nameless), 2);
    cr_assert_eq(gpu_count_visible("GPU-x,1", &nameless), 1);
    cr_assert_eq(gpu_count_visible("GPU-1,GPU-2,GPU-3,GPU-4", &nameless), 3);
    cr_assert_eq(gpu_count_visible("1,2", &nameless), 2);
}

Test(gpu_count, without_gpus_nothing_is_seen) {
    cr_assert_eq(gpu_count_visible("0", &none), 0);
    cr_assert_eq(gpu_count_visible("GPU-a", &none), 0);
    cr_assert_eq(gpu_count_visible("MIG-a", &none), 0);
}
