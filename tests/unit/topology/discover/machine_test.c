#include "rig/unit.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/nvml/nvml_io.h"

Test(machine, hwloc_tells_its_version) {
    char version[HWLOC_TEXT_MAX];
    struct err err = {0};
    cr_assert_eq(hwloc_found_version(version, &err), 0, "%s", err.text);
    cr_assert_eq(strncmp(version, "API 2.", 6), 0);
}

/* This is true on machines with and without GPUs. */
Test(machine, says_either_what_gpus_there_are_or_why_it_can_not_tell) {
    struct nvml_report *report = xcalloc(1, sizeof *report);
    nvml_discover(report);
    cr_assert_neq(report->found, report->why_not[0] != '\0');
    uint32_t all = UINT32_MAX, none = UINT32_MAX, first = UINT32_MAX;
    struct err err = {0};
    cr_assert_eq(nvml_count_visible(NULL, &all, &err), 0, "%s", err.text);
    cr_assert_eq(nvml_count_visible("", &none, &err), 0);
    cr_assert_eq(nvml_count_visible("0", &first, &err), 0);
    cr_assert_eq(all, report->n);
    cr_assert_eq(none, 0);
    cr_assert_eq(first, all > 0 ? 1 : 0);
    for (uint32_t i = 0; i < report->n && report->found; i++) {
        uint32_t named = 0;
        cr_assert_eq(strncmp(report->uuids[i], "GPU-", 4), 0);
        cr_assert_eq(nvml_count_visible(report->uuids[i], &named, &err), 0);
        cr_assert_eq(named, 1, "%s", report->uuids[i]);
    }
    free(report);
}
