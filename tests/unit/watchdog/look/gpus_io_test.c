/* GPUs as a library that stands in for NVML tells of them (tests/tools/fake_nvml.c). */
#include "watchdog/look/gpus.h"

#include "io/clock.h"
#include "io/process/reaper.h"
#include "rig/unit.h"
#include "watchdog/evidence/gather_io.h"
#include "watchdog/worker_signs.h"

static char path[] = "/tmp/muster-gpus-test-XXXXXX";
static struct loop *loop;
static struct child_reaper *reaper;
static struct gpu_watch *watch;

static void begin(void) {
    (void)alarm(60);
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
    watch = gpu_watch_new(loop);
}
static void end(void) {
    gpu_watch_free(watch);
    child_reaper_free(reaper);
    loop_free(loop);
    (void)unlink(path);
}
TestSuite(gpus_io, .init = begin, .fini = end);

static void script(const char *text) {
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_gt(dprintf(fd, "%s", text), 0);
    (void)close(fd);
    const char *library = getenv("FAKE_NVML");
    cr_assert(library != NULL, "FAKE_NVML must name the library");
    cr_assert_eq(setenv("MUSTER_NVML_LIBRARY", library, 1), 0);
    cr_assert_eq(setenv("FAKE_NVML_SCRIPT", path, 1), 0);
}

#define TWO                                                                     \
    "count 2\n"                                                                 \
    "gpu 0-1 name H100 cc 9.0 nvlink 0-3 remote 00000000:07:00.0 type switch\n" \
    "gpu 0 busid 00000000:1B:00.0 process 4711 used 1\n"                        \
    "gpu 1 busid 00000000:43:00.0 process 4712 used 1\n"

Test(gpus_io, they_are_part_of_the_evidence) {
    struct evidence e;
    struct gather_ask ask = {.node = "here", .timeout_ns = 20 * NS_PER_S};
    script(TWO "gpu 0-1 rate 0 0 busy 100 ecc 3\n");
    gather_now(&ask, &e);
    cr_assert(e.gpus != NULL);
    static const char first[] = "0000:1b:00.0: busy 100 %, 1410 of 1980 MHz, NVLink sent 0 received 0 KiB, PCIe sent 0 "
                                "received 0 KiB in ";
    const char *at = strstr(e.gpus, first);
    double seconds = 0;
    char then = 0;
    cr_assert_not_null(at, "%s", e.gpus);
    cr_expect(sscanf(at + strlen(first), "%lf s%c", &seconds, &then) == 2 && seconds > 0 && then == ';', "%s", e.gpus);
    evidence_fini(&e);
}

/* What it says of process 4711 once it has two readings. */
static uint32_t flags_of(void) {
    uint64_t at = clock_now_ns();
    for (;;) {
        uint32_t flags = gpu_watch_flags(watch, 4711, clock_now_ns());
        if (flags != 0)
            return flags;
        gpu_watch_tick(watch, at, true);
        at += GPU_WATCH_EVERY_NS;
        cr_assert_geq(loop_turn(loop), 0);
        (void)poll(NULL, 0, 5);
    }
}

static void sees(const char *rate, uint32_t expected) {
    script(rig_text(TWO "%s\n", rate));
    cr_expect_eq(flags_of(), expected);
    cr_expect_eq(gpu_watch_flags(watch, 4711, clock_now_ns() + 2 * GPU_WATCH_AGE_MAX_NS), 0, "that was long ago");
}

Test(gpus_io, the_watch_sees_silent_links) { sees("gpu 0 rate 0 0 busy 100", SIGN_GPU_SEEN); }
Test(gpus_io, the_watch_sees_links_that_move) { sees("gpu 0 rate 1024 0 busy 100", SIGN_GPU_SEEN | SIGN_GPU); }

Test(gpus_io, nobody_is_asked_while_nobody_spins) {
    script(TWO "crash nvmlInit_v2\n");
    gpu_watch_tick(watch, clock_now_ns(), false);
    cr_assert_geq(loop_turn(loop), 0);
    cr_expect_eq(gpu_watch_flags(watch, 4711, clock_now_ns()), 0);
}
