/* Xids: their classes, and those in a kernel's log. */
#include "watchdog/look/xid.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "topology/discover/nvml/nvml_report.h"
#include "watchdog/look/kernel_log.h"

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

static void add(void *log, const char *record, size_t len) { xid_log_add(log, record, len); }

static void add_text(struct xid_log *log, const char *record) { xid_log_add(log, record, strlen(record)); }

#define expect_gpu(log, i, wanted_xid, wanted_bus, us)      \
    do {                                                    \
        cr_expect_eq((log)->gpus[i].xid, wanted_xid);       \
        cr_expect_eq((log)->gpus[i].at.bus, wanted_bus);    \
        cr_expect_eq((log)->gpus[i].at_ns, (us)*NS_PER_US); \
    } while (0)

Test(xid, the_newest_fatal_one_of_each_gpu_is_kept) {
    struct xid_log *log = xcalloc(1, sizeof *log);
    add_text(log, "4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 119, pid=4711, name=python3, Timeout after 6s");
    add_text(log,
             "4,2,200,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
    add_text(log, "4,3,300,-,caller=T1;NVRM: Xid (PCI:0000:9b:00): 48, pid=4711, DBE\n SUBSYSTEM=pci\n");
    add_text(log, "4,4,400,-;NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, the program's own");
    add_text(log, "4,5,500,-;NVRM: Xid (PCI:0000:9b:00): 154, suspect by itself");
    add_text(log, "4,6,600,-;NVRM: Xid (PCI:00010001:41:00 GPU-I:05): 95, pid=1, of a MIG device");
    cr_assert_eq(log->n, 3);
    expect_gpu(log, 0, 48, 0x9b, 300);
    expect_gpu(log, 1, 79, 0x3b, 200);
    expect_gpu(log, 2, 95, 0x41, 600);
    cr_expect_eq(log->gpus[2].at.domain, 0x10001);
    free(log);
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
    struct xid_log *log = xcalloc(1, sizeof *log);
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        add_text(log, lines[i]);
        cr_expect_eq(log->n, 0, "%s", lines[i]);
    }
    free(log);
}

Test(xid, more_gpus_than_there_can_be_are_left_out) {
    struct xid_log *log = xcalloc(1, sizeof *log);
    for (int i = 0; i < GPUS_MAX + 10; i++) {
        char record[128];
        (void)snprintf(record, sizeof record, "4,%d,%d,-;NVRM: Xid (PCI:%04x:9b:00): 79, x", i, i, (unsigned)i);
        add_text(log, record);
    }
    cr_assert_eq(log->n, GPUS_MAX);
    free(log);
}

/* A file in place of the device: a read(2) returns a part that ends within a line. */
Test(xid, a_file_is_read_line_by_line) {
    char path[] = "/tmp/kmsg-XXXXXX";
    struct xid_log *log = xcalloc(1, sizeof *log);
    struct err err = {0};
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    cr_assert(f != NULL);
    for (int i = 0; i < 200; i++)
        (void)fprintf(f, "6,%d,%d,-;%0*d\n4,%d,%d,-;NVRM: Xid (PCI:0000:%02x:00): 79, x\n", i, i, 50 + i, 0, i, i,
                      (unsigned)i);
    (void)fprintf(f, "4,1,1,-;%09000d NVRM: Xid (PCI:0001:00:00): 79, longer than a record\n", 0);
    (void)fprintf(f, "4,1,1,-;NVRM: Xid (PCI:0001:00:00): 79, without its end");
    cr_assert_eq(fclose(f), 0);
    cr_assert_eq(kernel_log_read(path, clock_now_ns() + 60 * NS_PER_S, add, log, &err), 0, "%s", err.text);
    cr_expect_eq(log->n, 200);
    expect_gpu(log, 199, 79, 199, 199);
    cr_assert_eq(unlink(path), 0);
    free(log);
}
