#include "launcher/node/gpu_health.h"

#include "rig/unit.h"

/* Numbers of one class: "46 62 95". */
static void all_are(const char *numbers, enum xid_class class) {
    for (char *end; *numbers != '\0'; numbers = end)
        cr_expect_eq(xid_class((uint32_t)strtoul(numbers, &end, 10)), class, "%s", numbers);
}

Test(xid, classes_are_those_of_the_catalogue) {
    all_are("79 46 48 62 64 95 110 119 120 136 140 143 158", XID_FATAL);
    all_are("74 109 144 145 150 154 155 156", XID_SUSPECT);
    all_are("8 11 13 25 31 32 39 40 41 60 68 72 75 77 80 82 86 88 89 94 96 105 126 135 139", XID_PROGRAM);
    all_are("0 1 12 37 38 43 44 45 63 66 67 92 93 106 107 121 137 141 152 153 157 160 161 999 4294967295", XID_NOTHING);
}

Test(xid, the_recovery_action_is_worth_more_than_the_class) {
    cr_expect(xid_is_fatal(119, NVML_UNKNOWN) && xid_is_fatal(119, 1));
    cr_expect_not(xid_is_fatal(119, 0), "the driver needs no reset");
    cr_expect(xid_is_fatal(74, 1));
    cr_expect_not(xid_is_fatal(74, NVML_UNKNOWN) || xid_is_fatal(74, 0));
    cr_expect(xid_is_fatal(79, 0) && xid_is_fatal(79, NVML_UNKNOWN), "a GPU that is off the bus has no answer");
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t actions[] = {NVML_UNKNOWN, 0, 2};
        cr_expect_not(xid_is_fatal(13, actions[i]) || xid_is_fatal(999, actions[i]) || xid_is_fatal(43, actions[i]));
    }
}

/* xid 0: it is no line of a fatal Xid. */
static struct nvml_xid read_xid(const char *record) {
    struct nvml_xid x;
    return xid_read(record, strlen(record), &x) ? x : (struct nvml_xid){.xid = 0};
}

Test(xid, fatal_ones_are_read_from_the_kernels_log) {
    struct nvml_xid x = read_xid("4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 119, pid=4711, name=python3, Timeout after 6s");
    cr_expect(x.xid == 119 && x.at.bus == 0x9b && x.at_ns == 100 * NS_PER_US);
    x = read_xid(
        "4,2,200,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
    cr_expect(x.xid == 79 && x.at.bus == 0x3b);
    x = read_xid("4,3,300,-,caller=T1;NVRM: Xid (PCI:0000:9b:00): 48, pid=4711, DBE\n SUBSYSTEM=pci\n");
    cr_expect(x.xid == 48 && x.at_ns == 300 * NS_PER_US);
    x = read_xid("4,6,600,-;NVRM: Xid (PCI:00010001:41:00 GPU-I:05): 95, pid=1, of a MIG device");
    cr_expect(x.xid == 95 && x.at.domain == 0x10001 && x.at.bus == 0x41);
    cr_expect_eq(read_xid("4,4,400,-;NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, the program's own").xid, 0);
    cr_expect_eq(read_xid("4,5,500,-;NVRM: Xid (PCI:0000:9b:00): 154, suspect by itself").xid, 0);
}

Test(xid, other_lines_and_parts_of_lines_count_for_nothing) {
    static const char *const lines[] = {
        "",
        ";",
        "4,1,100,-;",
        "4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 79", /* is it 79, or the begin of 790? */
        "4,1,100,-;NVRM: Xid (PCI:0000:9b:00): ",
        "4,1,100,-;NVRM: Xid (PCI:0000:9b",
        "4,1,100,-;NVRM: Xid (PCI:0000:9b:ff): 79, no such device",
        "4,1,100,-;NVRM: Xid (PCI:0000:9b:00 79, no end",
        "4,1,100,-;NVRM: Xid (PCI:0000:9b:00): -79, x",
        "4,1,100,-;NVRM: Xid  (PCI:0000:9b:00): 79, two blanks",
        "4,1,100,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        "4,1,100,-;nvidia-nvswitch0: SXid (PCI:0000:9b:00): 79, Fatal",
        "4,1,100,-;a program: NVRM: Xid (PCI:0000:9b:00): 79, quoted",
        "NVRM: Xid (PCI:0000:9b:00): 79, without a head",
        "12,1,100,-;NVRM: Xid (PCI:0000:9b:00): 79, a program has written this into the log",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        cr_expect_eq(read_xid(lines[i]).xid, 0, "%s", lines[i]);
}

#define MS(n) ((n)*NS_PER_MS)
#define FAILED MS(100000)

static struct gpu_health h;
static struct nvml_report *r; /* eight GPUs, asked after all Xids; no recovery action is known */

static void begin(void) {
    h = (struct gpu_health){.failed_ns = FAILED, .asked_ns = FAILED + MS(60)};
    r = xcalloc(1, sizeof *r);
    *r = (struct nvml_report){.found = 1, .whole = 1, .n = 8};
    for (uint32_t i = 0; i < 8; i++) {
        r->gpus[i] = (struct nvml_gpu){
            .named = 1, .asked = 1, .has_address = 1, .at = {.bus = (uint8_t)(0x99 + i)}, .recovery = NVML_UNKNOWN};
        (void)snprintf(r->uuids[i], sizeof r->uuids[i], "GPU-%u", i);
    }
}
static void finish(void) { free(r); }
TestSuite(gpu_health, .init = begin, .fini = finish);

static bool add(uint32_t xid, uint32_t gpu, uint64_t at_ns) {
    return gpu_health_add(
        &h, &(struct nvml_xid){.xid = xid, .gpu = gpu, .at_ns = at_ns, .at = {.bus = (uint8_t)(0x99 + gpu)}});
}

/* "" if the node is fit. */
static const char *verdict_for(const struct nvml_report *report, const char *visible, struct health_verdict *v) {
    gpu_health_judge(&h, report, visible, v);
    cr_expect(v->sick[0] != '\0' || (v->xid == 0 && v->gpu == -1));
    return v->sick;
}
static const char *verdict(const struct nvml_report *report) {
    static struct health_verdict v;
    return verdict_for(report, NULL, &v);
}

Test(gpu_health, a_fatal_xid_before_the_failure_is_to_blame) {
    struct health_verdict v;
    cr_assert_str_eq(verdict(r), "");
    cr_assert(add(79, 4, FAILED - MS(80)));
    cr_assert_str_eq(verdict_for(r, NULL, &v), "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    cr_assert(v.xid == 79 && v.gpu == 4);
    cr_assert_str_eq(verdict(NULL), v.sick, "also if NVML has not answered");
    cr_assert_not(add(154, 4, FAILED - MS(70)));
    cr_assert_str_eq(verdict(r), v.sick, "the second one follows from the first");
    h.failed_ns += GPU_HEALTH_AGE_NS;
    cr_assert_str_eq(verdict(r), "", "too old");
}

Test(gpu_health, a_fatal_xid_after_the_failure_counts_too) {
    cr_assert(add(119, 0, FAILED + MS(50)));
    cr_assert_str_eq(verdict(r), "50 ms before Xid 119 on GPU 0 (0000:99:00.0)");
    r->gpus[0].recovery = 0;
    cr_assert_str_eq(verdict(r), "", "NVML was asked 10 ms later");
    h.asked_ns = FAILED;
    cr_assert_str_neq(verdict(r), "", "what NVML answered before the Xid is not about it");
}

Test(gpu_health, other_xids_are_not_to_blame) {
    static const uint32_t others[] = {13, 31, 43, 45, 63, 94, 999};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        cr_assert_not(add(others[i], 4, FAILED - MS(80)), "%u", others[i]);
    cr_assert_str_eq(verdict(r), "");
    cr_assert(add(74, 4, FAILED - MS(80)), "suspect");
    cr_assert_str_eq(verdict(r), "");
    r->gpus[4].lost = 15;
    cr_assert_str_eq(verdict(r), "80 ms after Xid 74 on GPU 4 (0000:9d:00.0)");
    r->gpus[4].lost = 0;
    r->gpus[4].recovery = 1;
    cr_assert_str_eq(verdict(r), "80 ms after Xid 74 on GPU 4 (0000:9d:00.0)");
    r->gpus[4].recovery = 0;
    cr_assert_str_eq(verdict(r), "");
}

Test(gpu_health, what_nvml_reports_is_enough) {
    struct health_verdict v;
    r->gpus[4].recovery = 2;
    cr_assert_str_eq(verdict_for(r, NULL, &v), "GPU 4 (0000:9d:00.0) needs a reboot of the node");
    cr_assert(v.xid == 0 && v.gpu == 4);
    cr_assert_str_eq(verdict_for(r, "GPU-3,GPU-5", &v), "", "it is another job's");
    cr_assert_str_neq(verdict_for(r, "4", &v), "");
    r->gpus[4].lost = 16;
    cr_assert_str_eq(verdict(r), "GPU 4 (0000:9d:00.0) needs a reset (nvidia-smi --gpu-reset)");
    r->gpus[4].lost = 15;
    r->gpus[4].has_address = 0;
    cr_assert_str_eq(verdict(r), "GPU 4 is lost: the driver can't reach it; reboot the node");
    r->gpus[4] = (struct nvml_gpu){.named = 0}; /* NVML hung before it was asked for this one */
    cr_assert_str_eq(verdict(r), "");
}

Test(gpu_health, nvml_that_hangs_is_a_verdict_and_one_that_fails_is_none) {
    struct health_verdict v;
    r->whole = 0;
    r->fault = NVML_FAULT_LATE;
    (void)snprintf(r->why_not, sizeof r->why_not, "NVML did not answer in 2.0 s (nvmlInit_v2)");
    cr_assert_str_eq(verdict_for(r, NULL, &v), "NVML did not answer in 2.0 s (nvmlInit_v2)");
    cr_assert_eq(v.gpu, -1);
    cr_assert(add(109, 1, FAILED - MS(1)));
    cr_assert_str_eq(verdict(r), "1 ms after Xid 109 on GPU 1 (0000:9a:00.0)");
    r->fault = NVML_FAULT_ENDED;
    cr_assert_str_eq(verdict(r), "");
}

Test(gpu_health, a_repeated_xid_is_reported_once) {
    cr_assert_not(gpu_health_has_newer(&h, 0));
    cr_assert(add(79, 4, FAILED - MS(20000)));
    cr_assert_not(gpu_health_has_newer(&h, 0), "too old for this failure");
    for (uint64_t i = 0; i < 600; i++)
        cr_assert_eq(add(74, 3, FAILED - MS(80) + i), i == 0);
    cr_assert(gpu_health_has_newer(&h, 0) && gpu_health_has_newer(&h, FAILED - MS(100)));
    cr_assert_not(gpu_health_has_newer(&h, FAILED));
    cr_assert(add(74, 2, FAILED));
    cr_assert(add(74, 3, FAILED + GPU_HEALTH_AGE_NS));
    r->gpus[2].recovery = 1;
    h.asked_ns = FAILED + MS(20000);
    cr_assert_str_eq(verdict(r), "0 ms after Xid 74 on GPU 2 (0000:9b:00.0)");
    cr_assert_not(add(74, GPUS_MAX, FAILED), "no such GPU");
}

Test(gpu_health, the_first_gpu_is_the_cause_of_others) {
    cr_assert(add(79, 4, FAILED - MS(80)) && add(119, 1, FAILED - MS(70)));
    cr_assert_str_eq(verdict(r), "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    cr_assert(add(74, 5, FAILED - MS(60)) && add(48, 5, FAILED - MS(50)), "a worse one is reported, too");
    cr_assert_not(add(74, 5, FAILED - MS(40)));
}

Test(gpu_health, names) {
    char name[GPU_NAME_MAX];
    gpu_name(255, (struct pci_addr){UINT32_MAX, 0xff, 31, 7, 0}, name);
    cr_assert_str_eq(name, "GPU 255 (ffffffff:ff:1f.7)");
    gpu_name(3, PCI_ADDR_UNKNOWN, name);
    cr_assert_str_eq(name, "GPU 3");
}

Test(gpu_health, thousands_of_others_displace_none) {
    cr_assert(add(79, 4, FAILED - MS(80)));
    for (uint32_t i = 0; i < 50000; i++) /* of the links between the GPUs */
        cr_assert_eq(add(144 + i % 7, i % 8, FAILED - MS(79) + i), i < 8 && i != 4);
    cr_assert_str_eq(verdict(r), "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    cr_assert_not(add(79, 4, FAILED - MS(10)));
    cr_assert(gpu_health_has_newer(&h, FAILED - MS(20)));
    cr_assert_str_eq(verdict(r), "10 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
}
