#include "launcher/preflight/node_summary.h"

#include "rig/unit.h"

static struct topology t;
static struct nvml_report *report;
static struct node_summary d;

/* n GPUs with the same name, each with 18 links to a switch; NVML knows all of them. */
static void begin_with(uint32_t n) {
    report = xcalloc(1, sizeof *report);
    *report = (struct nvml_report){.found = true, .whole = true, .n = n};
    for (uint32_t i = 0; i < n; i++) {
        struct topo_pci *p = topology_add_pci(&t);
        *p = (struct topo_pci){
            .at = {.bus = (uint8_t)(16 + i)}, .parent = TOPO_NONE, .vendor = 0x10de, .class_id = 0x030200};
        struct topo_gpu *g = topology_add_gpu(&t);
        g->pci = i;
        g->index = i;
        g->vendor = TOPO_VENDOR_NVIDIA;
        g->cur_width = g->max_width = 16;
        (void)snprintf(g->name, sizeof g->name, "NVIDIA H100");
        struct topo_nvlink *l = topology_add_nvlink(&t);
        *l = (struct topo_nvlink){.gpu = i, .end = TOPO_NVLINK_SWITCH, .peer = TOPO_NONE, .count = 18};
    }
    t.nvlinks_known = true;
    (void)snprintf(t.driver, sizeof t.driver, "550.54.15");
}

static void begin(void) { begin_with(4); }

static void finish(void) {
    topology_fini(&t);
    free(report);
}

/* The codes of the findings, "GPU NVLINK-UNEQUAL". */
static const char *discovery(uint32_t n_nvidia) {
    static char codes[256];
    memset(&d, 0, sizeof d);
    node_summary_gpus(&(struct node_summary_gpus){.topology = &t, .report = report, .n_nvidia = n_nvidia}, &d);
    codes[0] = '\0';
    for (uint32_t i = 0; i < d.n_findings; i++)
        (void)snprintf(codes + strlen(codes), sizeof codes - strlen(codes), "%s%s", i > 0 ? " " : "",
                       d.findings[i].code);
    return codes;
}

Test(node_summary_gpus, a_node_that_is_well, .init = begin, .fini = finish) {
    cr_assert_str_eq(discovery(4), "GPU NVLINK");
    cr_assert_eq(node_summary_worst(&d), NODE_SUMMARY_OK);
    cr_assert_str_eq(d.values[NODE_SUMMARY_GPUS], "4 x NVIDIA H100");
    cr_assert_str_eq(d.values[NODE_SUMMARY_DRIVER], "550.54.15");
    cr_assert_str_eq(d.values[NODE_SUMMARY_CUDA], "");
}

Test(node_summary_gpus, models_are_counted_in_the_order_of_their_first, .init = begin, .fini = finish) {
    (void)snprintf(t.gpus[1].name, sizeof t.gpus[1].name, "NVIDIA L4");
    t.gpus[2].name[0] = '\0';
    t.gpus[3].mig = true;
    t.gpus[3].n_mig = 7;
    cr_assert_str_eq(discovery(4), "GPU-MIG GPU NVLINK");
    cr_assert_str_eq(d.values[NODE_SUMMARY_GPUS], "2 x NVIDIA H100, 1 x NVIDIA L4, 1 x unnamed (1 in MIG mode)");
    assert_has(d.findings[0].text, "GPU 3 with 7 MIG devices");
}

/* Its links and lanes are not counted, because they are not known. */
Test(node_summary_gpus, a_lost_gpu_is_one_failure, .init = begin, .fini = finish) {
    report->gpus[2].lost = 15;
    t.gpus[2].lost = true;
    t.gpus[2].cur_width = 0;
    t.nvlinks[2].count = 3;
    cr_assert_str_eq(discovery(4), "GPU-LOST NVLINK");
    assert_has(d.findings[0].text, "GPU 2 (0000:12:00.0)");
    report->gpus[2].lost = 16;
    cr_assert_str_eq(discovery(4), "GPU-RESET NVLINK");
    report->gpus[0].lost = 15;
    t.gpus[0].index = 77; /* not even its address is known */
    cr_assert_str_eq(discovery(4), "GPU-LOST GPU-RESET NVLINK");
    assert_has(d.findings[0].text, "GPU 0 (address unknown)");
}

Test(node_summary_gpus, links_are_compared_within_the_node, .init = begin, .fini = finish) {
    t.nvlinks[3].count = 17;
    cr_assert_str_eq(discovery(4), "GPU NVLINK-UNEQUAL");
    cr_assert_str_eq(d.findings[1].text, "GPU 3 has 17 NVLinks that are up, others have 18");
    for (int i = 0; i < 4; i++)
        t.nvlinks[i].count = 0;
    cr_assert_str_eq(discovery(4), "GPU", "cards without NVLink");
    struct topo_pci *p = topology_add_pci(&t);
    *p = (struct topo_pci){.at = {.bus = 0xc4}, .parent = TOPO_NONE, .vendor = 0x10de, .class_id = 0x068000};
    cr_assert_str_eq(discovery(4), "GPU NVLINK-DOWN");
    t.nvlinks_known = false;
    cr_assert_str_eq(discovery(4), "GPU");
}

Test(node_summary_gpus, a_driver_that_does_not_answer_is_a_failure, .init = begin, .fini = finish) {
    report->whole = false;
    report->fault = NVML_FAULT_LATE;
    (void)snprintf(report->why_not, sizeof report->why_not, "NVML did not answer in 2.0 s (nvmlInit_v2)");
    cr_assert_str_eq(discovery(4), "NVML-HUNG NVLINK");
    (void)snprintf(report->why_not, sizeof report->why_not, "NVML could not be asked");
    report->fault = NVML_FAULT_ENDED;
    cr_assert_str_eq(discovery(4), "NVML-FAILED NVLINK");
    report->whole = true;
    report->found = false;
    report->fault = NVML_FAULT_ERROR;
    (void)snprintf(report->why_not, sizeof report->why_not, "NVML: Driver/library version mismatch");
    cr_assert_str_eq(discovery(4), "NVML-FAILED NVLINK");
    report->fault = NVML_FAULT_MISSING;
    (void)snprintf(report->why_not, sizeof report->why_not, "no libnvidia-ml.so.1");
    cr_assert_str_eq(discovery(4), "NVML-MISSING NVLINK");
    cr_assert_eq(node_summary_worst(&d), NODE_SUMMARY_WARN, "a container without the driver");
}

Test(node_summary_gpus, a_node_without_gpus_says_none) {
    cr_assert_str_eq(discovery(0), "");
    cr_assert_str_eq(d.values[NODE_SUMMARY_GPUS], "none");
    begin_with(0);
    report->found = false;
    report->fault = NVML_FAULT_MISSING;
    (void)snprintf(report->why_not, sizeof report->why_not, "no libnvidia-ml.so.1");
    cr_assert_str_eq(discovery(0), "", "a folder of the driver that is left over");
    finish();
}

Test(node_summary_gpus, a_gpu_that_one_side_lacks_is_said, .init = begin, .fini = finish) {
    report->n = 3;
    cr_assert_str_eq(discovery(4), "GPU-COUNT GPU NVLINK");
    cr_assert_eq(node_summary_worst(&d), NODE_SUMMARY_WARN);
    report->n = 4;
    cr_assert_str_eq(discovery(0), "GPU NVLINK", "a container without /sys knows of none");
}

Test(node_summary_gpus, the_fabric_must_be_joined, .init = begin, .fini = finish) {
    report->gpus[1].fabric_state = 3;
    cr_assert_str_eq(discovery(4), "GPU NVLINK");
    report->gpus[1].fabric_status = 5;
    report->gpus[3].fabric_state = 1;
    cr_assert_str_eq(discovery(4), "GPU FABRIC-DOWN NVLINK");
    assert_has(d.findings[1].text, "2 of 4 GPUs");
    assert_has(d.findings[1].text, "GPU 1: failed");
}

Test(node_summary_gpus, a_fabric_that_is_not_well_has_a_code, .init = begin, .fini = finish) {
    for (uint32_t i = 0; i < 4; i++) {
        t.gpus[i].fabric = TOPO_FABRIC_COMPLETED;
        t.gpus[i].fabric_health = 0xaa;
        (void)strcpy(t.gpus[i].fabric_uuid, "3f8e2a10-4c5d-4b6e-9f00-112233445566");
    }
    cr_assert_str_eq(discovery(4), "GPU NVLINK");
    t.gpus[2].fabric_health = 0x9a;
    cr_assert_str_eq(discovery(4), "GPU FABRIC-DEGRADED NVLINK");
    t.gpus[2].fabric_clique = 7;
    t.gpus[2].fabric_health = 0xaa;
    cr_assert_str_eq(discovery(4), "GPU DOMAIN-SPLIT NVLINK");
}

Test(node_summary_gpus, some_codes_are_about_the_health_of_a_gpu) {
    cr_expect(node_summary_is_gpu_health("GPU-RECOVERY") && node_summary_is_gpu_health("XID"));
    cr_expect(!node_summary_is_gpu_health("GPU-LOST") && !node_summary_is_gpu_health("MEMLOCK-LOW"));
}

Test(node_summary_gpus, faults_that_nvml_reports_have_codes, .init = begin, .fini = finish) {
    for (uint32_t i = 0; i < 4; i++)
        report->gpus[i].recovery = NVML_UNKNOWN;
    cr_assert_str_eq(discovery(4), "GPU NVLINK");
    report->gpus[1].recovery = 77;
    cr_assert_str_eq(discovery(4), "GPU-RECOVERY NVLINK");
    report->gpus[1].recovery = 2;
    report->gpus[3].recovery = 1;
    cr_assert_str_eq(discovery(4), "GPU-RECOVERY NVLINK");
    cr_assert_str_eq(d.findings[0].text, "GPU 1 (0000:11:00.0) needs a reboot of the node (1 more GPU as well)");
    report->gpus[1].lost = report->gpus[3].lost = 16;
    cr_assert_str_eq(discovery(4), "GPU-RESET GPU-RESET NVLINK", "once is enough");
    report->gpus[0].remap_pending = 1;
    report->gpus[0].ecc_uncorrected = 3;
    report->gpus[2].slowed = 0x24; /* the power limit, and heat below the hardware's limit: as usual */
    cr_assert_str_eq(discovery(4), "GPU-RESET GPU-RESET GPU-REMAP GPU-ECC NVLINK");
    report->gpus[1].lost = report->gpus[3].lost = report->gpus[0].remap_pending = report->gpus[0].ecc_uncorrected = 0;
    report->gpus[1].recovery = report->gpus[3].recovery = 0;
    report->gpus[2].slowed = 0x80;
    cr_assert_str_eq(discovery(4), "GPU-SLOW GPU NVLINK");
    cr_assert_eq(node_summary_worst(&d), NODE_SUMMARY_WARN);
}

/* The finding about these records of the kernel's log; "": none. */
static const char *xids(const char *first, const char *second) {
    struct node_summary_gpus in = {.topology = &t, .report = report, .now_ns = 3 * UINT64_C(3600) * NS_PER_S};
    memset(&d, 0, sizeof d);
    node_summary_add_xid(&in, first, strlen(first));
    node_summary_add_xid(&in, second, strlen(second));
    node_summary_gpus(&in, &d);
    const struct node_summary_finding *last = &d.findings[d.n_findings - 1];
    cr_assert(strcmp(last->code, "XID") != 0 || last->level == NODE_SUMMARY_FAIL);
    return strcmp(last->code, "XID") == 0 ? last->text : "";
}

Test(node_summary_gpus, the_last_fatal_xid_of_each_gpu_has_a_code, .init = begin, .fini = finish) {
    static const char older[] = "4,1,100,-;NVRM: Xid (PCI:0000:12:00): 48, x",
                      off_the_bus[] = "4,1,3600000000,-;NVRM: Xid (PCI:0000:12:00): 79, x",
                      others[] = "4,1,3600000000,-;NVRM: Xid (PCI:0000:99:00): 79, x",
                      xid[] = "4,1,3600000000,-;NVRM: Xid (PCI:0000:12:00): 119, x";
    cr_assert_str_eq(xids(older, xid), "", "no address is known");
    for (uint32_t i = 0; i < 4; i++) {
        report->gpus[i].has_address = report->gpus[i].asked = 1;
        report->gpus[i].at = (struct pci_addr){.bus = (uint8_t)(16 + i)};
        report->gpus[i].recovery = NVML_UNKNOWN;
    }
    cr_assert_str_eq(xids(older, xid),
                     "GPU 2 (0000:12:00.0) had Xid 119 2.0 hours ago: it needs a reset, or the node a reboot");
    report->gpus[2].recovery = 0;
    cr_assert_str_eq(xids(older, xid), "", "it was reset meanwhile");
    cr_assert_str_neq(xids(older, off_the_bus), "");
    cr_assert_str_eq(xids("", others), "", "another container's");
}

static const char *busy(const struct node_summary_process *all, uint32_t n) {
    memset(&d, 0, sizeof d);
    node_summary_busy(all, n, &d);
    return d.findings[0].text;
}

Test(node_summary_gpus, processes_are_counted_once_and_services_not_at_all) {
    struct node_summary_process all[] = {
        {.pid = 41, .gpu = TOPO_NONE, .seen = true, .name = "python3"},
        {.pid = 7, .gpu = TOPO_NONE, .seen = true, .name = "nvidia-persiste"},
        {.pid = 41, .gpu = 3, .seen = true, .name = "python3"},
        {.pid = 41, .gpu = 5, .seen = true, .name = "python3"},
        {.pid = 9, .gpu = 0, .seen = true, .name = "nvidia-cuda-mps"},
        {.pid = 50, .gpu = 1, .seen = true, .name = "ray::IDLE"},
    };
    cr_assert_str_eq(busy(all, ARRAY_SIZE(all)),
                     "2 processes hold GPUs already: python3 (41, GPU 3, GPU 5), ray::IDLE (50, GPU 1)");
    cr_assert_eq(d.findings[0].level, NODE_SUMMARY_FAIL);
    cr_assert_str_eq(d.values[NODE_SUMMARY_PROCESSES], "2");
    cr_assert_str_eq(busy(all + 1, 1), "no process holds a GPU");
    cr_assert_str_eq(d.values[NODE_SUMMARY_PROCESSES], "0");
}

Test(node_summary_gpus, processes_without_a_number_are_all_counted) {
    struct node_summary_process all[] = {{.gpu = 2}, {.gpu = 2}, {.gpu = 4}};
    (void)busy(all, 3);
    cr_assert_str_eq(d.values[NODE_SUMMARY_PROCESSES], "3");
    cr_assert(d.n_findings == 1 && d.findings[0].level == NODE_SUMMARY_WARN);
    assert_has(d.findings[0].text, "3 processes on GPUs that can't be seen from here, the first on GPU 2");
}

Test(node_summary_gpus, many_processes_are_cut) {
    static struct node_summary_process all[256];
    for (uint32_t i = 0; i < 256; i++) {
        all[i] = (struct node_summary_process){.pid = 1000 + i, .gpu = i % 8, .seen = true};
        memset(all[i].name, 'x', 16);
    }
    assert_has(busy(all, 256), "256 processes hold GPUs already: xxxxxxxxxxxxxxxx (1000, GPU 0), ");
}
