#include "topology/discover/nvml/nvml_io.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/text/strbuf.h"
#include "io/process/proc.h"
#include "rig/unit.h"
#include "topology/discover/nvml/nvml_report.h"
#include "topology/json/topology_json.h"

/* Tests against a library that gives the answers in tests/tools/nvml/NAME.txt (tests/tools/fake_nvml.c). */

static struct topology t;
static struct nvml_report *report;

static void setup(void) {
    (void)alarm(40);
    report = xcalloc(1, sizeof *report);
}
static void teardown(void) {
    topology_fini(&t);
    free(report);
    /* In every case the child has ended, and was reaped. */
    cr_assert(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "a child is left");
}
TestSuite(nvml, .init = setup, .fini = teardown);

/* Asks, and puts the answer into t, whatever the result is. */
static int ask(const struct nvml_config *config) {
    struct nvml_child child;
    int r = nvml_begin(config, &child);
    _cleanup_(freep) struct nvml_report *said = xcalloc(1, sizeof *said);
    (void)nvml_end(&child, said); /* the report has the error, and the merge warns */
    nvml_merge(said, &t);
    return r;
}

static const char *library(void) {
    const char *path = getenv("FAKE_NVML");
    cr_assert(path != NULL, "FAKE_NVML must name the library");
    return path;
}

static void script(const char *name) {
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    cr_assert(tests != NULL, "MUSTER_TEST_SOURCE_DIR must name the folder of the tests");
    const char *path = rig_text("%s/tools/nvml/%s.txt", tests, name);
    cr_assert_eq(access(path, R_OK), 0, "no script %s", path);
    cr_assert_eq(setenv("FAKE_NVML_SCRIPT", path, 1), 0);
}

/* Uses a script of the test's own. */
static void script_text(const char *text) {
    const char *path = rig_text("/proc/%d/fd/%d", (int)getpid(), memfd_create("script", 0));
    FILE *f = fopen(path, "w");
    cr_assert(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
    cr_assert_eq(setenv("FAKE_NVML_SCRIPT", path, 1), 0);
}

static uint64_t ms_now(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void add_gpu(const char *bus_id, enum topo_vendor vendor) {
    struct topo_pci *d = topology_add_pci(&t);
    cr_assert_eq(pci_addr_parse(bus_id, &d->at), 0);
    d->vendor = vendor == TOPO_VENDOR_NVIDIA ? 0x10de : 0x1002;
    d->class_id = 0x030200;
    struct topo_gpu *g = topology_add_gpu(&t);
    g->pci = t.n_pci - 1;
    g->vendor = vendor;
}

static void fill_for(uint64_t deadline_ms) {
    cr_assert_eq(ask(&(struct nvml_config){.library = library(), .deadline_ns = deadline_ms * NS_PER_MS}), 0);
}
static void fill(void) { fill_for(20000); }

static void fill_report(const struct nvml_config *config) {
    struct nvml_child child;
    cr_assert_eq(nvml_begin(config, &child), 0);
    cr_assert_eq(nvml_end(&child, report), 0);
}

static const char *bus_id(uint32_t gpu) {
    static struct pci_addr_text text;
    cr_assert_lt(gpu, t.n_gpus);
    cr_assert_lt(t.gpus[gpu].pci, t.n_pci);
    text = pci_addr_text(t.pci[t.gpus[gpu].pci].at);
    return text.text;
}

/* Links between two GPUs. */
static uint32_t links(uint32_t a, uint32_t b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.n_nvlinks; i++)
        if (t.nvlinks[i].gpu == a && t.nvlinks[i].end == TOPO_NVLINK_GPU && t.nvlinks[i].peer == b)
            n += t.nvlinks[i].count;
    return n;
}

static uint32_t to_switches(uint32_t gpu, uint32_t *ret_bundles) {
    uint32_t n = *ret_bundles = 0;
    for (uint32_t i = 0; i < t.n_nvlinks; i++) {
        if (t.nvlinks[i].gpu == gpu && t.nvlinks[i].end == TOPO_NVLINK_SWITCH) {
            n += t.nvlinks[i].count;
            ++*ret_bundles;
        }
    }
    return n;
}

static bool warned(const char *part) {
    for (uint32_t i = 0; i < t.n_warnings; i++)
        if (strstr(t.warnings[i], part) != NULL)
            return true;
    return false;
}
#define cr_assert_warned(part) \
    cr_assert(warned(part), "no warning says \"%s\"; the first: %s", part, t.n_warnings > 0 ? t.warnings[0] : "none")

/* ---- events ---- */

/* The next event, or 0 if there is none. */
static uint32_t next_xid(int fd, struct nvml_xid *x) {
    memset(x, 0, sizeof *x);
    return read(fd, x, sizeof *x) == sizeof *x ? x->xid : 0;
}

static int watch_xids(const char *visible, pid_t *ret) {
    int fds[2];
    cr_assert_eq(setenv(NVML_LIBRARY_VARIABLE, library(), 1), 0);
    cr_assert_eq(pipe(fds), 0);
    *ret = fork();
    if (*ret == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(nvml_send_xids(fds[1], &visible));
    }
    (void)close(fds[1]);
    return fds[0];
}

Test(nvml, xids_of_visible_gpus_are_sent_as_they_come) {
    struct nvml_xid x;
    char events[] = "/tmp/events-XXXXXX", text[512];
    int file = mkstemp(events);
    (void)snprintf(text, sizeof text, "count 3\ngpu 1 busid 00000000:9D:00.0 uuid GPU-b\ngpu 2 uuid GPU-c\nevents %s\n",
                   events);
    script_text(text);
    pid_t pid;
    int fd = watch_xids("GPU-b,GPU-c", &pid);
    dprintf(file, "0 79\n1 13\n2 79\n");
    cr_assert_eq(next_xid(fd, &x), 13, "not that of GPU 0");
    cr_expect(x.gpu == 1 && x.at.bus == 0x9d && x.at_ns / NS_PER_MS <= ms_now());
    cr_assert_eq(next_xid(fd, &x), 79);
    cr_expect(x.gpu == 2 && x.at.domain == UINT32_MAX, "its address is not known");
    dprintf(file, "1 99");
    dprintf(file, "9\n");
    cr_assert_eq(next_xid(fd, &x), 999);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    (void)close(file);
    cr_assert_eq(unlink(events), 0);
}

Test(nvml, a_library_without_events_ends_the_watch) {
    static const char *const scripts[] = {
        "count 1\nmissing nvmlEventSetCreate\n", "count 0\n", "count 1\nfail nvmlDeviceRegisterEvents 3\n",
        "count 1\nfail nvmlEventSetWait_v2 15\n", "count 1\ncrash nvmlEventSetWait_v2\n"};
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        struct nvml_xid x;
        pid_t pid;
        script_text(scripts[i]);
        int fd = watch_xids(NULL, &pid);
        cr_expect_eq(next_xid(fd, &x), 0, "%s", scripts[i]);
        (void)close(fd);
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
    }
}

/* ---- the load ---- */

#define TWO                                                                     \
    "count 2\n"                                                                 \
    "gpu 0-1 name H100 cc 9.0 nvlink 0-3 remote 00000000:07:00.0 type switch\n" \
    "gpu 0 busid 00000000:1B:00.0 process 4711 used 1\n"                        \
    "gpu 1 busid 00000000:43:00.0 process 4712 used 1\n"

static void read_load(const char *text) {
    struct err err = {0};
    script_text(text);
    cr_assert_eq(setenv(NVML_LIBRARY_VARIABLE, library(), 1), 0);
    cr_assert_eq(nvml_read_load(report, &err), 0, "%s", err.text);
    cr_assert_eq(report->n, 2);
}

Test(nvml, the_load_of_each_gpu) {
    read_load(TWO "gpu 0 rate 1024 65536 busy 97 ecc 3 slowed 0x40\n");
    const struct nvml_gpu *a = &report->gpus[0], *b = &report->gpus[1];
    cr_expect(a->has_address && a->at.bus == 0x1b && a->n_links == 4 && a->lost == 0);
    cr_expect(a->busy_percent == 97 && a->sm_mhz == 1410 && a->sm_max_mhz == 1980);
    cr_expect(a->ecc_uncorrected == 3 && a->slowed == 0x60);
    cr_expect(a->moved[NVML_NVLINK_SENT].bits == 64 && a->moved[NVML_NVLINK_SENT].value > 0);
    cr_expect(a->moved[NVML_PCIE_SENT].bits == 32 && a->moved[NVML_PCIE_RECEIVED].bits == 32);
    cr_expect(a->n_pids == 1 && a->pids[0] == 4711);
    cr_expect_eq(b->moved[NVML_PCIE_SENT].bits, 0, "an old driver has no such counter");
    cr_expect(b->busy_percent == NVML_UNKNOWN && b->sm_mhz == 0);
}

Test(nvml, the_load_of_a_lost_gpu_is_not_asked_for) {
    read_load(TWO "gpu 0-1 rate 0 0 busy 1\nfail nvmlDeviceGetPciInfo_v3 1 15\nhang nvmlDeviceGetUtilizationRates 1\n");
    cr_expect(report->gpus[0].lost == 0 && report->gpus[1].lost == 15);
}

Test(nvml, without_a_library_there_is_no_load) {
    struct err err = {0};
    cr_assert_eq(setenv(NVML_LIBRARY_VARIABLE, "/nonexistent/nvml.so", 1), 0);
    cr_expect_eq(nvml_read_load(report, &err), -ENOENT);
    expect_has(err.text, "/nonexistent/nvml.so");
}

/* ---- machines ---- */

Test(nvml, eight_gpus_behind_switches_are_told_with_all_their_links) {
    script("hgx-h100");
    add_gpu("0000:1b:00.0", TOPO_VENDOR_NVIDIA);
    add_gpu("0000:43:00.0", TOPO_VENDOR_NVIDIA);
    fill();
    cr_assert_eq(t.n_warnings, 0, "%s", t.warnings[0]);
    cr_assert_eq(t.n_gpus, 8); /* only NVML knew six of them */
    cr_assert(t.nvlinks_known);
    cr_assert_str_eq(t.driver, "550.54.15");
    cr_assert_str_eq(t.cuda, "12.4");
    for (uint32_t i = 0; i < 8; i++) {
        const struct topo_gpu *g = &t.gpus[i];
        cr_assert_eq(g->index, i);
        cr_assert_eq(g->vendor, TOPO_VENDOR_NVIDIA);
        cr_assert_str_eq(g->name, "NVIDIA H100 80GB HBM3");
        cr_assert_eq(g->sm, 90);
        cr_assert_eq(g->numa, i / 4);
        cr_assert_eq(g->memory_bytes, 85520809984);
        cr_assert(g->cur_gen == 5 && g->cur_width == 16 && g->max_gen == 5 && g->max_width == 16);
        cr_assert(!g->lost && !g->mig);
        cr_assert_eq(g->fabric_uuid[0], '\0', "no fabric of several nodes");
        uint32_t bundles;
        cr_assert_eq(to_switches(i, &bundles), 18);
        cr_assert_eq(bundles, 4);
    }
    cr_assert_str_eq(bus_id(7), "0000:df:00.0");
    cr_assert_str_eq(t.gpus[7].uuid, "GPU-77777777-aaaa-4000-8000-000000000007");
    uint32_t added = t.gpus[7].pci;
    cr_assert(t.pci[added].vendor == 0x10de && t.pci[added].class_id == 0x030200);
    cr_assert(t.pci[added].root.bus == 0xdf && t.pci[added].parent == TOPO_NONE);
}

Test(nvml, an_end_of_all_ones_is_a_switch_and_a_link_that_is_down_or_not_for_peers_is_none) {
    script("hgx-h100-vm");
    fill();
    uint32_t bundles;
    cr_assert_eq(to_switches(0, &bundles), 18);
    cr_assert_eq(bundles, 1);
    cr_assert_eq(to_switches(1, &bundles), 16);
    cr_assert_eq(t.nvlinks[0].target.domain, UINT32_MAX);
    cr_assert_eq(t.nvlinks[0].target.fn, UINT8_MAX);
}

Test(nvml, a_mesh_of_gpus_is_told_link_by_link) {
    static const uint8_t mesh[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
                                       {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                       {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
    script("dgx-1v");
    fill();
    cr_assert(t.nvlinks_known);
    for (uint32_t a = 0; a < 8; a++)
        for (uint32_t b = 0; b < 8; b++)
            cr_assert_eq(links(a, b), mesh[a][b], "GPU %u to %u: %u", a, b, links(a, b));
}

Test(nvml, an_old_driver_answers_by_its_own_names) {
    script("old-driver");
    fill();
    cr_assert_eq(t.n_warnings, 0, "%s", t.warnings[0]);
    cr_assert_eq(t.n_gpus, 2);
    cr_assert_str_eq(bus_id(0), "0000:3b:00.0");
    cr_assert_eq(t.gpus[0].memory_bytes, 17179869184);
    cr_assert_eq(t.gpus[0].sm, 70);
    cr_assert_eq(t.gpus[0].numa, -1);
    cr_assert_eq(links(0, 1), 2);
    cr_assert_eq(links(1, 0), 2);
    cr_assert(t.nvlinks_known);
    cr_assert_str_eq(t.cuda, "");
}

Test(nvml, mig_devices_are_told_by_name) {
    script("mig");
    fill();
    cr_assert(t.gpus[0].mig && !t.gpus[1].mig);
    cr_assert_eq(t.gpus[0].n_mig, 3);
    cr_assert_str_eq(t.gpus[0].mig_uuids[0], "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f");
    cr_assert_str_eq(t.gpus[0].mig_uuids[2], "MIG-1e7fbd4d-1c1a-5b6c-bb2e-0b1e38bbc6f2");
    cr_assert_eq(t.gpus[1].n_mig, 0);
}

Test(nvml, lost_gpus_are_named_and_the_others_are_told) {
    script("lost");
    const char *const at[] = {"0000:01:00.0", "0000:41:00.0", "0000:81:00.0", "0000:c1:00.0"};
    for (uint32_t i = 0; i < 4; i++)
        add_gpu(at[i], TOPO_VENDOR_NVIDIA);
    fill();
    cr_assert_eq(t.n_gpus, 4);
    uint32_t bundles;
    cr_assert(t.nvlinks_known && !t.gpus[0].lost);
    cr_assert_eq(to_switches(0, &bundles), 12);
    cr_assert_str_eq(t.gpus[0].uuid, "GPU-l0");
    for (uint32_t i = 1; i < 4; i++) {
        cr_assert(t.gpus[i].lost, "GPU %u", i);
        cr_assert_eq(t.gpus[i].index, i);
        cr_assert_str_eq(bus_id(i), at[i]);
        cr_assert_eq(to_switches(i, &bundles), 0);
    }
    cr_assert_str_eq(t.gpus[2].name, "NVIDIA A100-SXM4-80GB"); /* the name that it reported before */
    cr_assert_warned("GPU 1 (0000:41:00.0) is lost");
    cr_assert_warned("GPU 2 (0000:81:00.0) is lost");
    cr_assert_warned("GPU 3 (0000:c1:00.0) needs a reset");
    cr_assert_eq(t.n_warnings, 3);
}

/* The newest call that the library has. */
Test(nvml, each_version_of_the_fabric_is_read) {
    static const struct {
        const char *line;
        bool known, old;
    } libraries[] = {
        {"fabric-version 4\n", true},
        {"fabric-version 3\n", true},
        {"fabric-version 2\nmissing nvmlDeviceGetGpuFabricInfo_v4\n", true},
        {"missing nvmlDeviceGetGpuFabricInfo_v4\nmissing nvmlDeviceGetGpuFabricInfoV\n", true, .old = true},
        {"missing nvmlDeviceGetGpuFabricInfo_v4\nmissing nvmlDeviceGetGpuFabricInfoV\n"
         "missing nvmlDeviceGetGpuFabricInfo\n",
         false}};
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
        char text[1024];
        (void)snprintf(text, sizeof text,
                       "count 1\n%sgpu 0 name \"NVIDIA GB200\" busid 00000008:01:00.0 uuid GPU-g0\n"
                       "gpu 0 fabric 3f8e2a104c5d4b6e9f00112233445566 clique 32766 state 3 status 0 health 0xaa\n",
                       libraries[i].line);
        script_text(text);
        fill();
        cr_assert_eq(t.n_warnings, 0, "%s: %s", libraries[i].line, t.warnings[0]);
        cr_assert_str_eq(t.gpus[0].fabric_uuid, libraries[i].known ? "3f8e2a10-4c5d-4b6e-9f00-112233445566" : "");
        cr_assert_eq(t.gpus[0].fabric_clique, libraries[i].known ? 32766 : 0, "%s", libraries[i].line);
        cr_assert_eq(t.gpus[0].fabric_health, libraries[i].known && !libraries[i].old ? 0xaa : 0);
        topology_fini(&t);
        t = (struct topology){0};
    }
}

Test(nvml, grace_blackwell_has_c2c_and_a_fabric) {
    script("gb200");
    for (int32_t i = 0; i < 2; i++) {
        struct topo_numa *n = topology_add_numa(&t);
        n->index = i;
        cpuset_add(&n->cpus, (uint32_t)i);
    }
    const int32_t memory[] = {2, 10, 18, 26};
    for (uint32_t i = 0; i < 4; i++)
        topology_add_numa(&t)->index = memory[i];
    fill();
    cr_assert_eq(t.n_warnings, 0, "%s", t.warnings[0]);
    cr_assert_eq(t.gpus[3].sm, 100);
    cr_assert_eq(t.gpus[3].numa, 1);
    cr_assert_str_eq(t.gpus[0].fabric_uuid, "3f8e2a10-4c5d-4b6e-9f00-112233445566");
    cr_assert_eq(t.gpus[0].fabric_clique, 32766);
    cr_assert(t.gpus[3].fabric == TOPO_FABRIC_COMPLETED && t.gpus[3].fabric_health == 0xaa &&
              t.gpus[3].fabric_summary == 1);
    cr_assert_str_eq(t.gpus[3].chassis, "1821125000123");
    cr_assert(t.gpus[3].slot == 5 && t.gpus[3].tray == 3);
    cr_assert(!t.numa[0].gpu_memory && !t.numa[1].gpu_memory && t.numa[2].gpu_memory && t.numa[5].gpu_memory);
    const struct topo_nvlink *c2c[4] = {NULL};
    for (uint32_t i = 0; i < t.n_nvlinks; i++)
        if (t.nvlinks[i].c2c)
            c2c[t.nvlinks[i].gpu] = &t.nvlinks[i];
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(c2c[i] != NULL && c2c[i]->end == TOPO_NVLINK_CPU);
        cr_assert_eq(c2c[i]->count, i == 0 ? 9 : 10);
        cr_assert_float_eq(c2c[i]->bandwidth, c2c[i]->count * 44.712, 1e-9);
    }
}

Test(nvml, processes_that_are_left_on_a_gpu_are_told) {
    script("hgx-h100");
    fill_report(&(struct nvml_config){.library = library()});
    cr_assert(report->found && report->whole && report->why_not[0] == '\0');
    cr_assert_str_eq(report->version, "12.550.54.15");
    const struct nvml_gpu *g = &report->gpus[5];
    cr_assert(g->n_pids == 2 && g->pids[0] == 4711 && g->pids[1] == 4712);
    cr_assert_eq(report->gpus[4].n_pids, 0);
}

Test(nvml, names_alone_cost_no_other_call) {
    script_text("count 1\ngpu 0 busid 0000:01:00.0 uuid GPU-x name X\nhang nvmlDeviceGetMemoryInfo\n"
                "hang nvmlDeviceGetNvLinkCapability\nhang nvmlDeviceGetComputeRunningProcesses_v3\n");
    fill_report(&(struct nvml_config){.library = library(), .deadline_ns = 20 * NS_PER_S, .names_only = true});
    cr_assert_eq(report->n, 1);
    cr_assert_str_eq(report->uuids[0], "GPU-x");
    cr_assert_str_eq(report->names[0], "X");
    cr_assert(report->gpus[0].has_address && !report->gpus[0].asked);
}

Test(nvml, what_it_says_is_the_same_after_json) {
    static const char *const scripts[] = {"hgx-h100", "hgx-h100-vm", "dgx-1v", "mig", "gb200", "lost"};
    for (size_t s = 0; s < ARRAY_SIZE(scripts); s++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0}, again = {0};
        _cleanup_(topology_fini) struct topology back = {0};
        struct err err = {0};
        topology_fini(&t);
        t.source = TOPO_LIVE;
        script(scripts[s]);
        fill();
        topology_json_write(&t, &text);
        cr_assert_eq(topology_json_read(strbuf_text(&text), strlen(strbuf_text(&text)), &back, &err), 0, "%s: %s",
                     scripts[s], err.text);
        cr_assert(back.n_gpus == t.n_gpus && back.nvlinks_known == t.nvlinks_known);
        for (uint32_t i = 0; i < t.n_gpus; i++)
            cr_assert_eq(memcmp(&back.gpus[i], &t.gpus[i], sizeof t.gpus[i]), 0, "%s: GPU %u", scripts[s], i);
        topology_json_write(&back, &again);
        cr_assert_str_eq(strbuf_text(&again), strbuf_text(&text), "%s", scripts[s]);
    }
}

Test(nvml, a_variable_may_say_where_the_library_is) {
    script("mig");
    cr_assert_eq(setenv(NVML_LIBRARY_VARIABLE, library(), 1), 0);
    cr_assert(nvml_may_answer());
    cr_assert_eq(ask(&(struct nvml_config){.deadline_ns = 20 * NS_PER_S}), 0);
    cr_assert_eq(t.n_gpus, 2);
    cr_assert_eq(nvml_discover(report), 0);
    cr_assert(report->found && report->n == 2);
    uint32_t n = 0;
    cr_assert_eq(nvml_count_visible("GPU-8f2b", &n, NULL), 0);
    cr_assert_eq(n, 1);
}

/* ---- what is missing ---- */

/* A node without GPUs gets no warning, one with GPUs gets one. */
Test(nvml, what_is_missing_is_a_phrase) {
    static const struct {
        const char *script, *library, *warning;
    } rows[] = {{"mig", "libthere-is-no-such-thing.so.1", "no libthere-is-no-such-thing.so.1"},
                {"mig", "libm.so.6", "libm.so.6 is not NVML"},
                {"not-loaded", NULL, "NVML: Driver Not Loaded"},
                {"mismatch", NULL, "Driver/library version mismatch"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct nvml_config config = {.library = rows[i].library != NULL ? rows[i].library : library(),
                                     .deadline_ns = 20 * NS_PER_S};
        script(rows[i].script);
        topology_fini(&t);
        cr_assert_eq(ask(&config), 0);
        cr_assert(t.n_warnings == 0 && !t.nvlinks_known && t.n_gpus == 0, "%s", rows[i].warning);
        add_gpu("0000:01:00.0", TOPO_VENDOR_NVIDIA);
        cr_assert_eq(ask(&config), 0);
        cr_assert(t.n_warnings == 1 && t.n_gpus == 1, "%s", rows[i].warning);
        cr_assert_warned(rows[i].warning);
    }
}

Test(nvml, gpus_of_others_are_left_alone) {
    script("mig");
    add_gpu("0000:03:00.0", TOPO_VENDOR_AMD);
    add_gpu("0000:0f:00.0", TOPO_VENDOR_NVIDIA);
    (void)snprintf(t.gpus[0].name, sizeof t.gpus[0].name, "MI300X");
    fill();
    cr_assert_eq(t.n_gpus, 3);
    cr_assert_eq(t.gpus[0].vendor, TOPO_VENDOR_AMD);
    cr_assert_str_eq(t.gpus[0].name, "MI300X");
    cr_assert_eq(t.gpus[1].index, 0);
    cr_assert_eq(t.gpus[2].index, 1);
}

/* ---- faults ---- */

Test(nvml, a_hang_costs_its_deadline_and_one_warning) {
    script("hang-init");
    uint64_t before = ms_now();
    fill_for(150);
    uint64_t took = ms_now() - before;
    cr_assert(took >= 150 && took < 5000, "%u ms", (unsigned)took);
    cr_assert_eq(t.n_warnings, 1);
    cr_assert_warned("NVML did not answer in 0.1 s (nvmlInit_v2)");
    cr_assert_eq(t.warning_kinds[0], TOPO_WARNING_FAULT);
    cr_assert(!t.nvlinks_known);
}

Test(nvml, a_hang_later_on_leaves_what_was_said_before_it) {
    script("hang-links");
    fill_for(2500); /* enough time to get there */
    cr_assert_eq(t.n_gpus, 4);
    cr_assert_eq(t.n_warnings, 1, "%s", t.warnings[0]);
    cr_assert_warned("(nvmlDeviceGetNvLinkState of GPU 2)");
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_str_eq(t.gpus[i].name, "NVIDIA A100-SXM4-80GB");
        cr_assert_eq(t.gpus[i].sm, 80);
    }
    cr_assert(!t.nvlinks_known && t.n_nvlinks == 0, "half of the links are worse than none");
}

Test(nvml, a_hang_at_a_name_leaves_the_gpus_of_the_file_system) {
    script_text("count 2\ngpu 0 busid 0000:01:00.0\ngpu 1 busid 0000:02:00.0\nhang nvmlDeviceGetUUID 1\n");
    add_gpu("0000:01:00.0", TOPO_VENDOR_NVIDIA);
    add_gpu("0000:02:00.0", TOPO_VENDOR_NVIDIA);
    add_gpu("0000:03:00.0", TOPO_VENDOR_NVIDIA);
    fill_for(2500);
    cr_assert_eq(t.n_gpus, 3);
    cr_assert_eq(t.n_warnings, 1, "%s", t.warnings[1]);
}

Test(nvml, a_crash_is_one_warning) {
    script_text("count 1\ngpu 0 busid 0000:01:00.0 uuid GPU-x\ncrash nvmlDeviceGetMigMode\n");
    fill();
    cr_assert_eq(t.n_warnings, 1);
    cr_assert_warned("NVML could not be asked (nvmlDeviceGetMigMode of GPU 0)");
    cr_assert_str_eq(t.gpus[0].uuid, "GPU-x");
}

Test(nvml, garbage_does_no_harm) {
    script("garbage");
    fill();
    cr_assert(t.nvlinks_known || t.n_nvlinks == 0);
    cr_assert_leq(t.n_gpus, 3); /* 01:00.0, 02:00.0, ff:1f.7 */
    cr_assert_geq(t.n_gpus, 2);
    cr_assert_str_eq(bus_id(0), "0000:01:00.0");
    cr_assert_eq(strspn(t.gpus[0].name, "A"), strlen(t.gpus[0].name));
    cr_assert_eq(t.gpus[0].n_mig, TOPO_MIG_MAX);
    cr_assert_str_eq(t.gpus[0].mig_uuids[7], "MIG-7");
    cr_assert(!warned("could not be asked") && !warned("did not answer"), "%s", t.warnings[0]);
    cr_assert_eq(t.gpus[1].sm, 0);
    cr_assert_eq(t.gpus[0].numa, -1);
    cr_assert_leq(t.gpus[0].cur_gen, 16);
    cr_assert_leq(t.gpus[0].cur_width, 64);
    cr_assert_leq(t.n_warnings, 8);
    for (uint32_t i = 0; i < t.n_nvlinks; i++)
        cr_assert(t.nvlinks[i].c2c, "no link of these goes anywhere");
}

Test(nvml, a_library_that_talks_is_not_heard) {
    script_text("count 1\ngpu 0 busid 0000:01:00.0 uuid GPU-x\nnoise nvmlInit_v2\n");
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    int out = dup(1);
    cr_assert(out >= 0 && dup2(fds[1], 1) == 1);
    fill();
    cr_assert(dup2(out, 1) == 1 && close(out) == 0 && close(fds[1]) == 0);
    char c;
    cr_assert_eq(read(fds[0], &c, 1), 0);
    (void)close(fds[0]);
}

/* ---- the child ---- */

Test(nvml, a_child_that_hangs_holds_no_descriptor_of_the_caller) {
    script("hang-init");
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    struct nvml_child child;
    cr_assert_eq(nvml_begin(&(struct nvml_config){.library = library(), .deadline_ns = 1}, &child), 0);
    (void)close(fds[1]);
    struct pollfd pfd = {.fd = fds[0], .events = POLLIN};
    cr_assert_eq(poll(&pfd, 1, 15000), 1, "the child still has the pipe");
    cr_assert(pfd.revents & POLLHUP);
    cr_assert_eq(nvml_end(&child, report), -ETIMEDOUT);
    (void)close(fds[0]);
}

static volatile sig_atomic_t handled;
static void handle(int signo) { handled = signo; }
static void alarm_child(void *arg, pid_t pid) {
    cr_assert_eq(kill(pid, SIGVTALRM), 0); /* it ignores signals that are sent to a whole job, such as SIGTERM */
}

Test(nvml, the_join_policy_handlers_do_not_run_in_the_child) {
    script("hang-init");
    cr_assert(signal(SIGVTALRM, handle) != SIG_ERR);
    struct nvml_child child;
    cr_assert_eq(nvml_begin(&(struct nvml_config){.library = library(), .deadline_ns = 20 * NS_PER_S}, &child), 0);
    proc_each_child(getpid(), true, alarm_child, NULL);
    /* With a handler the child would hang. Without one it dies, and its pipe shows that. */
    cr_assert_eq(nvml_end(&child, report), -EIO);
    cr_assert_eq(handled, 0);
    sigset_t now;
    cr_assert_eq(sigprocmask(SIG_SETMASK, NULL, &now), 0);
    cr_assert(!sigismember(&now, SIGVTALRM));
}

Test(nvml, a_caller_that_ignores_its_children_gets_the_answer_too) {
    script("mig");
    cr_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    fill();
    cr_assert_eq(t.n_gpus, 2);
}

Test(nvml, answers_are_read_also_when_the_caller_was_busy_beyond_the_deadline) {
    script("hgx-h100");
    struct nvml_child child;
    cr_assert_eq(nvml_begin(&(struct nvml_config){.library = library(), .deadline_ns = 1}, &child), 0);
    siginfo_t info;
    /* It ends without a reader, because everything fits into the pipe. */
    cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(nvml_end(&child, report), 0);
    cr_assert(report->whole && report->n == 8);
}
