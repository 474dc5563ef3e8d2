/* What two readings of the counters of GPUs tell. */
#include "watchdog/look/gpus.h"

#include "rig/unit.h"

static struct nvml_report before, after;

/* Two GPUs, which did nothing in 5 s; process 7 is on the second. */
static void begin(void) {
    before = (struct nvml_report){.when_ns = 1000 * NS_PER_S, .n = 2};
    for (int i = 0; i < 2; i++) {
        struct nvml_gpu *g = &before.gpus[i];
        *g = (struct nvml_gpu){.has_address = 1,
                               .at.bus = (uint8_t)i,
                               .n_links = 18,
                               .busy_percent = 100,
                               .sm_mhz = 1410,
                               .sm_max_mhz = 1980};
        for (int k = 0; k < NVML_WAYS; k++)
            g->moved[k] = (struct nvml_counter){.value = 1000, .bits = k < NVML_PCIE_SENT ? 64 : 32};
    }
    before.gpus[1].n_pids = 1;
    before.gpus[1].pids[0] = 7;
    after = before;
    after.when_ns += 5 * NS_PER_S;
}
TestSuite(gpus, .init = begin);

static void expect(int32_t pid, bool moves, bool seen, const char *what) {
    bool is_seen, is_moving = gpus_move(&before, &after, pid, &is_seen);
    cr_expect_eq(is_moving, moves, "%s: moves", what);
    cr_expect_eq(is_seen, seen, "%s: seen", what);
}

Test(gpus, silent_links) { expect(7, false, true, "silent"); }

Test(gpus, bytes_on_nvlink_move) {
    after.gpus[1].moved[NVML_NVLINK_RECEIVED].value += 5 * 1024 - 1;
    expect(7, false, true, "less than 1 MiB/s");
    after.gpus[1].moved[NVML_NVLINK_SENT].value += 1;
    expect(7, true, true, "1 MiB/s");
}

Test(gpus, bytes_on_pcie_move_also_over_the_end_of_the_counter) {
    before.gpus[1].moved[NVML_PCIE_SENT].value = UINT32_MAX - 9;
    after.gpus[1].moved[NVML_PCIE_SENT].value = (50 << 20) - 11;
    expect(7, false, true, "less than 10 MiB/s");
    after.gpus[1].moved[NVML_PCIE_SENT].value = (50 << 20) - 10;
    expect(7, true, true, "10 MiB/s");
}

Test(gpus, only_those_of_the_process_count_if_it_is_on_one) {
    after.gpus[0].moved[NVML_NVLINK_SENT].value += 1 << 20;
    expect(7, false, true, "its own is silent");
    expect(8, true, true, "it may be on any of them");
    after.gpus[0].lost = 15;
    expect(7, false, true, "another is lost");
    expect(8, false, false, "it may be on the lost one");
}

Test(gpus, nothing_is_concluded_from_what_was_not_read) {
    after.gpus[1].moved[NVML_PCIE_SENT].value += 1 << 30;
    after.gpus[1].moved[NVML_NVLINK_SENT].bits = 0;
    expect(7, false, false, "no counter of NVLink");
    after.gpus[1].n_links = 0;
    expect(7, true, true, "no NVLink");
    after.gpus[1].at.bus = 9;
    expect(7, false, false, "another GPU");
    begin();
    after.gpus[1].moved[NVML_NVLINK_SENT].value = 0;
    expect(7, false, false, "a counter that was reset");
    begin();
    before.n = 0;
    expect(7, false, false, "no first reading");
    after.n = 0;
    expect(7, false, false, "no GPU");
    begin();
    after.when_ns = before.when_ns;
    expect(7, false, false, "one reading");
}

Test(gpus, a_line_for_each) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    after.gpus[0].moved[NVML_NVLINK_SENT].value += 12;
    after.gpus[0].moved[NVML_PCIE_RECEIVED].value += 4096;
    after.gpus[0].slowed = 0x60;
    after.gpus[0].ecc_uncorrected = 3;
    after.gpus[1] = (struct nvml_gpu){.busy_percent = NVML_UNKNOWN, .recovery = NVML_UNKNOWN};
    after.n = 3;
    after.gpus[2] = (struct nvml_gpu){.lost = 15, .has_address = 1, .at.bus = 3};
    gpus_summary(&before, &after, &text);
    cr_expect_str_eq(strbuf_text(&text),
                     "0000:00:00.0: busy 100 %, 1410 of 1980 MHz, NVLink sent 12 received 0 KiB, PCIe sent 0 received "
                     "4 KiB in 5.0 s; has had uncorrected ECC errors since the driver was loaded; has lower clocks "
                     "because of its temperature or power supply\n"
                     "a GPU: busy ?\n"
                     "0000:03:00.0: lost, or needs a reset\n");
}
