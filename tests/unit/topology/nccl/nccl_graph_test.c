/* Tests each rule of NCCL's graph on a small machine of its own, and the table of recorded machines. */
#include <stdarg.h>
#include <time.h>

#include "../recorded.h"
#include "nccl_between.h"
#include "rig/unit.h"
#include "topology/nccl/nccl_xml.h"

/* ---- machines ---- */

#define GEN5 "32.0 GT/s PCIe"
#define GEN4 "16.0 GT/s PCIe"

static struct topology t;
static struct nccl_graph *graph;
static struct nccl_prediction p;
static struct err err;
static char said[16384];

static void fresh(enum topo_source source) {
    topology_fini(&t);
    t.source = source;
    (void)snprintf(t.arch, sizeof t.arch, "x86_64");
    (void)snprintf(t.cpu_vendor, sizeof t.cpu_vendor, "GenuineIntel");
    t.cpu_family = 6;
    t.cpu_model = 0x8f;
    nccl_graph_free(graph);
    graph = NULL;
}

/* A PCI function with its bus as number; below `parent`. */
static uint32_t pci(uint32_t parent, uint8_t bus, int32_t numa, const char *speed, uint32_t width) {
    struct topo_pci *d = topology_add_pci(&t);
    d->at = (struct pci_addr){0, bus, 0, 0};
    d->parent = parent;
    d->numa = numa;
    d->class_id = 0x060400;
    (void)snprintf(d->link_speed, sizeof d->link_speed, "%s", speed);
    d->link_width = width;
    return t.n_pci - 1;
}

static uint32_t gpu_at(uint32_t device) {
    struct topo_gpu *g = topology_add_gpu(&t);
    g->pci = device;
    g->index = t.n_gpus - 1;
    g->vendor = TOPO_VENDOR_NVIDIA;
    g->sm = 90;
    g->numa = t.pci[device].numa;
    return t.n_gpus - 1;
}

/* A switch with two downstream ports, and a GPU below the first; the second port. */
static uint32_t gpu_switch(uint8_t bus, int32_t numa) {
    uint32_t root = pci(TOPO_NONE, bus, numa, GEN5, 16), up = pci(root, (uint8_t)(bus + 1), numa, GEN5, 16);
    gpu_at(pci(pci(up, (uint8_t)(bus + 2), numa, GEN5, 16), (uint8_t)(bus + 4), numa, GEN5, 16));
    return pci(up, (uint8_t)(bus + 3), numa, GEN5, 16);
}

/* n GPUs, each on a root bus of its own. */
static void root_gpus(uint8_t n, const char *speed, uint32_t width) {
    for (uint8_t i = 0; i < n; i++)
        gpu_at(pci(TOPO_NONE, (uint8_t)(0x10 + i), 0, speed, width));
}

static struct topo_nic *nic_at(uint32_t device, const char *name, uint64_t mbps) {
    struct topo_nic *n = topology_add_nic(&t);
    n->pci = device;
    n->numa = device == TOPO_NONE ? -1 : t.pci[device].numa;
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    n->n_ports = 1;
    n->ports[0] = (struct topo_port){.number = 1, .state = TOPO_PORT_ACTIVE, .rate_mbps = mbps};
    if (t.source == TOPO_NCCL_XML)
        n->dev = t.n_nics - 1;
    return n;
}

/* n NICs "n0", "n1" …, each on a root bus of its own. */
static void root_nics(uint8_t n, int32_t numa) {
    for (uint8_t i = 0; i < n; i++)
        nic_at(pci(TOPO_NONE, (uint8_t)(0x20 + i), numa, GEN5, 16), rig_text("n%u", (unsigned)i), 400000);
}

static struct topo_netif *netif(const char *name, uint32_t device, int64_t mbps) {
    struct topo_netif *f = topology_add_netif(&t);
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    f->pci = device;
    f->kind = device == TOPO_NONE ? TOPO_NETIF_BRIDGE : TOPO_NETIF_PHYSICAL;
    f->up = f->running = true;
    f->speed_mbps = mbps;
    f->n_addrs = 1;
    (void)snprintf(f->addrs[0].addr, sizeof f->addrs[0].addr, "10.0.0.%u", (unsigned)t.n_netifs);
    return f;
}

static void nvlink(uint32_t a, uint32_t b, uint32_t count) {
    for (int i = 0; i < 2; i++) {
        struct topo_nvlink *l = topology_add_nvlink(&t);
        l->gpu = i == 0 ? a : b;
        l->peer = i == 0 ? b : a;
        l->end = TOPO_NVLINK_GPU;
        l->count = count;
    }
}

static void c2c(double gbs) {
    *topology_add_nvlink(&t) =
        (struct topo_nvlink){.gpu = 0, .end = TOPO_NVLINK_CPU, .peer = TOPO_NONE, .c2c = true, .bandwidth = gbs};
}

static void nvswitch(uint32_t gpu) {
    struct topo_nvlink *l = topology_add_nvlink(&t);
    l->gpu = gpu;
    l->end = TOPO_NVLINK_SWITCH;
    l->count = 18;
}

static void build(void) {
    nccl_graph_free(graph);
    graph = NULL;
    int r = nccl_graph_new(&t, &graph, &err);
    cr_assert_eq(r, 0, "%s", err.text);
}

/* "mlx5_0,mlx5_1 PXN 48.0" */
static const char *of(uint32_t gpu) {
    static char text[4][4096];
    static unsigned next;
    char *out = text[next++ % 4];
    build();
    nccl_graph_predict(graph, gpu, &p);
    int n = 0;
    for (uint32_t i = 0; i < p.n_nets; i++)
        n += snprintf(out + n, sizeof text[0] - (size_t)n, "%s%s", i == 0 ? "" : ",", p.nets[i]);
    (void)snprintf(out + n, sizeof text[0] - (size_t)n, " %s %.1f", nccl_path_name(p.path), p.bandwidth);
    return out;
}
static void OF(uint32_t gpu, const char *expected, ...) _printf_(2, 3);
static void OF(uint32_t gpu, const char *expected, ...) {
    char text[4096];
    va_list ap;
    va_start(ap, expected);
    (void)vsnprintf(text, sizeof text, expected, ap);
    va_end(ap);
    cr_assert_str_eq(of(gpu), text);
}

static const char *all_nets(void) {
    static char names[256];
    int n = 0;
    names[0] = '\0';
    build();
    for (uint32_t k = 0; k < graph->n_nets; k++)
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", k == 0 ? "" : ",", graph->nets[k].name);
    return names;
}

static uint32_t n_nets(void) {
    build();
    return graph->n_nets;
}

static void between(uint32_t a, uint32_t b, enum nccl_path kind, double gbs) {
    build();
    struct nccl_route route = nccl_between(graph, a, b);
    cr_assert_eq(route.kind, kind, "%s", nccl_path_name(route.kind));
    cr_assert_float_eq(route.bandwidth, gbs, 0.001, "%g", route.bandwidth);
}

static const char *warnings(void) {
    said[0] = '\0';
    build();
    struct words words = {0};
    nccl_graph_warnings(graph, &words);
    for (size_t i = 0, n; i < words.n; i++) {
        n = strlen(said);
        (void)snprintf(said + n, sizeof said - n, "%s\n", words.list[i]);
    }
    words_free(words.list);
    return said;
}

static void done(void) {
    nccl_graph_free(graph);
    graph = NULL;
    topology_fini(&t);
}
static void live(void) { fresh(TOPO_LIVE); }
TestSuite(nccl_graph, .init = live, .fini = done);

/* Two switches; GPU 0 with a slow card, GPU 1 with a fast one, NVLink between. */
static void slow_own_card(void) {
    fresh(TOPO_LIVE);
    nic_at(pci(gpu_switch(0x10, 0), 0x15, 0, GEN4, 16), "slow", 200000);
    nic_at(pci(gpu_switch(0x20, 0), 0x25, 0, GEN5, 16), "fast", 400000);
    nvlink(0, 1, 6);
}

/* ---- the tree ---- */

Test(nccl_graph, root_ports_and_downstream_ports_vanish) {
    fresh(TOPO_SYSROOT);
    nic_at(pci(gpu_switch(0x10, 0), 0x15, 0, GEN5, 16), "near", 400000);
    (void)gpu_switch(0x20, 0);
    OF(0, "near PIX 48.0");
    OF(1, "near PHB 48.0");
    between(0, 1, NCCL_PATH_PHB, 48);
    between(0, 0, NCCL_PATH_LOC, 5000);
}

Test(nccl_graph, a_file_has_its_bridges_as_they_stand) {
    fresh(TOPO_NCCL_XML);
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16), inner = pci(up, 0x11, 0, GEN5, 16);
    gpu_at(pci(up, 0x12, 0, GEN5, 16));
    nic_at(pci(inner, 0x13, 0, GEN5, 16), "net", 400000);
    OF(0, "net PXB 48.0");
}

Test(nccl_graph, a_switch_in_a_switch_is_PXB_unless_it_is_broadcoms) {
    for (int dell = 0; dell <= 1; dell++) {
        fresh(TOPO_NCCL_XML);
        uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16), inner = pci(up, 0x11, 0, GEN5, 16);
        for (uint32_t i = 0; i < 2; i++) {
            t.pci[i].vendor = 0x1000;
            t.pci[i].device = 0xc030;
            t.pci[i].subvendor = dell ? 0x1028 : 0x1000;
            t.pci[i].subdevice = i == 0 ? 0x0001 : 0x1002;
        }
        gpu_at(pci(up, 0x12, 0, GEN5, 16));
        nic_at(pci(inner, 0x13, 0, GEN5, 16), "net", 400000);
        OF(0, "net %s 48.0", dell ? "PXB" : "PIX");
    }
    fresh(TOPO_NCCL_XML); /* generation 4 has one id for both levels, and the third level stays */
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN4, 16), inner = pci(up, 0x11, 0, GEN4, 16),
             third = pci(inner, 0x12, 0, GEN4, 16);
    for (uint32_t i = 0; i < 3; i++)
        t.pci[i].vendor = t.pci[i].subvendor = 0x1000, t.pci[i].device = 0xc010, t.pci[i].subdevice = 0xa123;
    gpu_at(pci(up, 0x13, 0, GEN4, 16));
    nic_at(pci(inner, 0x14, 0, GEN4, 16), "second", 200000);
    OF(0, "second PIX 24.0");
    nic_at(pci(third, 0x15, 0, GEN5, 16), "third", 400000);
    t.pci[third].link_width = 32;
    t.pci[3].link_width = 32;
    OF(0, "third PXB 48.0");
}

Test(nccl_graph, a_link_is_as_fast_as_its_slower_end) {
    fresh(TOPO_SYSROOT);
    uint32_t card = pci(gpu_switch(0x10, 0), 0x15, 0, GEN5, 16);
    nic_at(card, "net", 400000);
    (void)snprintf(t.pci[card].up_speed, sizeof t.pci[card].up_speed, GEN4);
    t.pci[card].up_width = 8;
    OF(0, "net PIX 12.0");
}

Test(nccl_graph, a_gpu_that_lost_lanes_is_slower_but_an_idle_one_is_not) {
    nic_at(pci(gpu_switch(0x10, 0), 0x15, 0, GEN5, 16), "net", 400000);
    t.gpus[0].cur_gen = 1;
    t.gpus[0].cur_width = 16;
    OF(0, "net PIX 48.0");
    t.gpus[0].cur_width = 8;
    OF(0, "net PIX 24.0");
}

Test(nccl_graph, speeds_are_matched_by_their_beginnings) {
    static const struct {
        const char *speed;
        uint32_t width;
        const char *expected;
    } rows[] = {{"2.5 GT/s PCIe", 16, "3.0"},  {"5.0 GT/s PCIe", 16, "6.0"},   {"5 GT/s", 16, "6.0"},
                {"8.0 GT/s PCIe", 8, "6.0"},   {"16 GT/s", 16, "24.0"},        {"32 GT/s PCIe/s", 16, "48.0"},
                {"32.0 GT/s", 16, "12.0"},     {"64.0 GT/s PCIe", 16, "96.0"}, {"", 0, "12.0"},
                {"32.0 GT/s PCIe", 0, "48.0"}, {"nonsense", 4, "3.0"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        fresh(TOPO_NCCL_XML);
        uint32_t up = pci(TOPO_NONE, 0x10, 0, "64.0 GT/s PCIe", 32);
        gpu_at(pci(up, 0x12, 0, "64.0 GT/s PCIe", 32));
        nic_at(pci(up, 0x13, 0, rows[i].speed, rows[i].width), "net", 4000000);
        OF(0, "net PIX %s", rows[i].expected);
    }
}

Test(nccl_graph, hwlocs_figures_become_nccls) {
    static const double gbs[] = {63.015, 31.508, 15.754, 8.0, 4.0, 3.938, 126.03};
    static const char *const expected[] = {"48.0", "24.0", "12.0", "6.0", "3.0", "3.0", "96.0"};
    for (size_t i = 0; i < ARRAY_SIZE(gbs); i++) {
        fresh(TOPO_HWLOC_XML);
        uint32_t card = pci(gpu_switch(0x10, 0), 0x15, 0, "", 0);
        (void)strcpy(t.pci[t.gpus[0].pci].link_speed, "64.0 GT/s PCIe");
        t.pci[card].link_gbs = gbs[i];
        nic_at(card, "net", 0)->ports[0].state = TOPO_PORT_UNKNOWN;
        OF(0, "net PIX %s", expected[i]);
    }
}

Test(nccl_graph, in_a_virtual_machine_rdma_devices_of_the_root_bus_hang_at_the_host_bridge) {
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    uint32_t host = pci(TOPO_NONE, 0, 0, "", 0), card = pci(TOPO_NONE, 0, 0, GEN5, 16);
    t.pci[host].class_id = 0x060000;
    t.pci[card].at.dev = 5;
    nic_at(card, "mlx5_0", 400000);
    OF(0, "mlx5_0 PHB 12.0");
    assert_has(warnings(), "NIC 0000:00:00.0 is on a root bus: NCCL takes the host bridge for it, and counts 12 GB/s");
    t.nics[0].kind = TOPO_NIC_EFA; /* its plugin reports the device itself */
    OF(0, "mlx5_0 PHB 48.0");
    fresh(TOPO_LIVE); /* the host bridge need not be listed */
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    card = pci(TOPO_NONE, 0, 0, GEN5, 16);
    t.pci[card].at.dev = 5;
    nic_at(card, "mlx5_0", 400000);
    OF(0, "mlx5_0 PHB 12.0");
}

Test(nccl_graph, a_virtual_function_has_the_link_of_its_card) {
    uint32_t b = gpu_switch(0x10, 0);
    (void)pci(b, 0x15, 0, GEN5, 16);
    uint32_t vf = pci(b, 0x15, 0, "", 0);
    t.pci[vf].at.dev = 1;
    nic_at(vf, "mlx5_7", 400000);
    OF(0, "mlx5_7 PIX 48.0");
}

Test(nccl_graph, where_a_bridge_does_not_know_its_node_the_device_may) {
    fresh(TOPO_SYSROOT);
    (void)gpu_switch(0x10, -1);
    t.gpus[0].numa = t.pci[t.gpus[0].pci].numa = 1;
    nic_at(pci(TOPO_NONE, 0x20, 1, GEN5, 16), "net", 400000);
    OF(0, "net PHB 48.0");
}

/* ---- bandwidth, PXN, channels ---- */

Test(nccl_graph, more_bandwidth_wins_over_the_own_card) {
    slow_own_card();
    OF(0, "fast PXN 48.0");
    cr_assert_str_eq(p.own, "slow");
    cr_assert_eq(p.own_path, NCCL_PATH_PIX);
    cr_assert_float_eq(p.own_bandwidth, 24, 0.001);
    cr_assert_eq(p.nic, 1);
    OF(1, "fast PIX 48.0");
    cr_assert_str_eq(p.own, "fast");
    uint32_t port = t.pci[t.nics[0].pci].parent;
    nic_at(pci(port, 0x16, 0, GEN4, 4), "slower", 400000); /* as near, but not the fastest of the nearest */
    OF(0, "fast PXN 48.0");
    cr_assert_str_eq(p.own, "slow");
}

Test(nccl_graph, PXN_needs_NVLink_and_GPUDirect) {
    slow_own_card();
    t.gpus[1].gdr = 0;
    OF(0, "fast PHB 48.0"); /* the CPU can transfer 48, too */
    t.gpus[1].gdr = -1;
    t.n_nvlinks = 0;
    OF(0, "fast PHB 48.0");
    for (uint32_t i = 0; i < t.n_pci; i++) /* the second switch to the other socket: 22 GB/s, so the own card wins */
        t.pci[i].numa = t.pci[i].at.bus >= 0x20 ? 1 : 0;
    OF(0, "slow PIX 24.0");
}

Test(nccl_graph, PXN_helps_a_gpu_with_fewer_lanes_beside_the_same_card) {
    fresh(TOPO_NCCL_XML);
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16);
    gpu_at(pci(up, 0x11, 0, GEN5, 8));
    gpu_at(pci(up, 0x12, 0, GEN5, 16));
    nic_at(pci(up, 0x13, 0, GEN5, 16), "net", 400000);
    nvlink(0, 1, 6);
    OF(0, "net PXN 48.0");
    cr_assert_eq(p.own_path, NCCL_PATH_PIX);
    cr_assert_float_eq(p.own_bandwidth, 24, 0.001);
}

Test(nccl_graph, PXN_goes_over_the_first_of_equal_gpus) {
    fresh(TOPO_NCCL_XML);
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16);
    gpu_at(pci(up, 0x11, 0, GEN5, 16));
    gpu_at(pci(up, 0x12, 0, GEN5, 16));
    gpu_at(pci(TOPO_NONE, 0x20, 1, GEN5, 16));
    nic_at(pci(up, 0x13, 0, GEN5, 16), "net", 400000);
    nvlink(0, 2, 1);
    nvlink(1, 2, 2);
    OF(2, "net PXN 20.6");
}

Test(nccl_graph, equal_NETs_are_dealt_with_mirrored_bits) {
    fresh(TOPO_NCCL_XML);
    root_gpus(4, GEN5, 16);
    root_nics(4, 0);
    OF(0, "n0 PHB 48.0");
    OF(1, "n2 PHB 48.0");
    cr_assert_str_eq(p.own, "n2"); /* among equally near ones the one that NCCL uses */
    OF(2, "n1 PHB 48.0");
    cr_assert_str_eq(p.own, "n1");
    OF(3, "n3 PHB 48.0");
    t.n_gpus = t.n_nics = 3; /* not a power of two: in their order */
    OF(1, "n1 PHB 48.0");
    OF(2, "n2 PHB 48.0");
}

Test(nccl_graph, three_NETs_are_not_mirrored_and_the_gpu_counts_among_its_local_ones) {
    fresh(TOPO_NCCL_XML);
    for (uint8_t i = 0; i < 4; i++)
        gpu_at(pci(TOPO_NONE, (uint8_t)(0x10 + i), i / 2, GEN5, 16));
    root_nics(3, 1);
    OF(2, "n0,n1 PHB 48.0"); /* 2 % 2, two NETs a GPU */
    OF(3, "n1,n2 PHB 48.0");
    OF(0, "n0,n1 SYS 22.0");
    OF(1, "n1,n2 SYS 22.0");
}

Test(nccl_graph, the_gpus_index_decides_not_its_place) {
    fresh(TOPO_NCCL_XML);
    root_gpus(2, GEN5, 16);
    t.gpus[0].index = 1;
    t.gpus[1].index = 0;
    root_nics(2, 0);
    OF(0, "n1 PHB 48.0");
    OF(1, "n0 PHB 48.0");
}

Test(nccl_graph, NETs_are_counted_as_the_ranks_make_the_xml) {
    fresh(TOPO_LIVE); /* rank 0's GPU is on node 1, so that CPU comes first, and its card */
    gpu_at(pci(TOPO_NONE, 0x10, 1, GEN5, 16));
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "a", 100000);
    nic_at(pci(TOPO_NONE, 0x21, 1, GEN5, 16), "b", 100000);
    cr_assert_str_eq(all_nets(), "b,a");
    t.source = TOPO_NCCL_XML; /* from a file: in the file's order */
    t.nics[0].dev = 7;
    t.nics[1].dev = 3;
    cr_assert_str_eq(all_nets(), "a,b");
}

/* ---- CPUs ---- */

Test(nccl_graph, cpus_are_as_far_apart_as_their_makers_say) {
    static const struct {
        const char *arch, *vendor;
        uint32_t family, model;
        const char *expected;
    } rows[] = {
        {"x86_64", "AuthenticAMD", 25, 1, "16.0"},
        {"x86_64", "GenuineIntel", 6, 0x4f, "6.0"},
        {"x86_64", "GenuineIntel", 6, 0x54, "6.0"},
        {"x86_64", "GenuineIntel", 6, 0x55, "10.0"},
        {"x86_64", "GenuineIntel", 6, 0x8e, "10.0"},
        {"x86_64", "GenuineIntel", 6, 0x8f, "22.0"},
        {"x86_64", "GenuineIntel", 6, 0xce, "22.0"},
        {"x86_64", "GenuineIntel", 6, 0xcf, "40.0"},
        {"x86_64", "GenuineIntel", 15, 0xcf, "6.0"},
        {"aarch64", "", 0, 0, "6.0"},
        {"ppc64le", "", 0, 0, "32.0"},
        {"x86_64", "CentaurHauls", 7, 0x5b, "9.0"},
        {"x86_64", "CentaurHauls", 7, 0x1b, "6.0"},
        {"", "", 0, 0, "48.0"},
        {"", "AuthenticAMD", 26, 2, "16.0"},
        {"riscv64", "", 0, 0, "48.0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        fresh(TOPO_SYSROOT);
        (void)snprintf(t.arch, sizeof t.arch, "%s", rows[i].arch);
        (void)snprintf(t.cpu_vendor, sizeof t.cpu_vendor, "%s", rows[i].vendor);
        t.cpu_family = rows[i].family;
        t.cpu_model = rows[i].model;
        gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
        nic_at(pci(TOPO_NONE, 0x20, 1, GEN5, 16), "net", 400000);
        OF(0, "net SYS %s", rows[i].expected);
    }
}

Test(nccl_graph, P2P_within_a_switch_does_not_go_through_the_cpu) {
    fresh(TOPO_SYSROOT);
    uint32_t up = pci(TOPO_NONE, 0x0f, 0, "8.0 GT/s PCIe", 16), root = pci(up, 0x10, 0, "8.0 GT/s PCIe", 16),
             a = pci(root, 0x11, 0, GEN5, 16), b = pci(root, 0x12, 0, GEN5, 16);
    gpu_at(pci(a, 0x13, 0, GEN5, 16));
    gpu_at(pci(b, 0x14, 0, GEN5, 16));
    between(0, 1, NCCL_PATH_PIX, 48);
}

/* ---- NVLink, C2C ---- */

Test(nccl_graph, an_NVLink_has_the_bandwidth_of_its_generation) {
    static const struct {
        uint32_t sm;
        double gbs;
    } rows[] = {{60, 36}, {70, 40}, {80, 40}, {86, 24}, {89, 40}, {90, 41.2}, {100, 80.2}, {120, 80.2}, {0, 40}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        fresh(TOPO_LIVE);
        root_gpus(2, GEN4, 16);
        t.gpus[0].sm = t.gpus[1].sm = rows[i].sm;
        nvlink(0, 1, 2);
        between(0, 1, NCCL_PATH_NVL, rows[i].gbs);
    }
}

Test(nccl_graph, one_NVLink_hop_over_a_gpu_is_NVB_and_two_are_none) {
    for (uint8_t i = 0; i < 4; i++)
        gpu_at(pci(TOPO_NONE, (uint8_t)(0x10 + i), i / 3, "2.5 GT/s PCIe", 1));
    nvlink(0, 1, 4);
    nvlink(1, 2, 4);
    nvlink(2, 3, 4);
    between(0, 1, NCCL_PATH_NVL, 82.4);
    between(0, 2, NCCL_PATH_NVB, 82.4);
    between(0, 3, NCCL_PATH_SYS, 0.1875);
}

Test(nccl_graph, of_paths_as_long_the_wider_one_wins_also_when_it_is_found_later) {
    root_gpus(4, "2.5 GT/s PCIe", 1);
    nvlink(0, 1, 6);
    nvlink(1, 3, 1);
    nvlink(0, 2, 3);
    nvlink(2, 3, 3);
    between(0, 3, NCCL_PATH_NVB, 61.8);
    between(3, 0, NCCL_PATH_NVB, 61.8);
}

Test(nccl_graph, of_equal_paths_the_one_by_NVLink_wins) {
    for (uint8_t i = 0; i < 3; i++) {
        gpu_at(pci(TOPO_NONE, (uint8_t)(0x10 + i), 0, "8.0 GT/s PCIe", 16));
        t.gpus[i].sm = 86;
    }
    nvlink(0, 1, 1);
    nvlink(1, 2, 1);
    between(0, 2, NCCL_PATH_NVB, 12);
}

Test(nccl_graph, a_longer_path_is_not_taken_for_its_bandwidth) {
    fresh(TOPO_NCCL_XML);
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16);
    gpu_at(pci(up, 0x11, 0, GEN5, 16));
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000);
    c2c(5);
    OF(0, "net P2C 5.0");
}

Test(nccl_graph, bundles_of_one_pair_add_up) {
    root_gpus(2, GEN5, 16);
    nvlink(0, 1, 2);
    nvlink(0, 1, 3);
    between(0, 1, NCCL_PATH_NVL, 103);
}

Test(nccl_graph, nothing_reaches_a_NET_through_another_gpu_but_by_PXN) {
    slow_own_card(); /* the second switch's link to the CPU is slow; NVLink would be a detour */
    for (uint32_t i = 0; i < t.n_pci; i++)
        if (t.pci[i].at.bus == 0x11)
            t.pci[i].link_width = 1;
    t.gpus[1].gdr = 0; /* so no PXN */
    OF(0, "slow PIX 24.0");
    nccl_graph_predict(graph, 1, &p);
    cr_assert_str_eq(p.nets[0], "fast");
}

Test(nccl_graph, an_NVSwitch_joins_all_gpus) {
    for (uint8_t i = 0; i < 3; i++) {
        gpu_at(pci(TOPO_NONE, (uint8_t)(0x10 + i), 0, GEN5, 16));
        nvswitch(i);
    }
    between(0, 2, NCCL_PATH_NVL, 370.8);
}

Test(nccl_graph, NVLinks_that_only_one_side_has_are_refused_as_nccl_does) {
    slow_own_card();
    t.n_nvlinks = 1;
    cr_assert_eq(nccl_graph_new(&t, &graph, &err), -EINVAL);
    assert_has(err.text, "none back");
}

Test(nccl_graph, NVLinks_to_itself_or_to_nobody_do_nothing) {
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    static const uint32_t ends[][2] = {{0, 0}, {0, TOPO_NONE}, {99, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        *topology_add_nvlink(&t) =
            (struct topo_nvlink){.gpu = ends[i][0], .end = TOPO_NVLINK_GPU, .peer = ends[i][1], .count = 12};
    build();
}

Test(nccl_graph, over_C2C_a_card_at_the_cpu_is_P2C) {
    (void)snprintf(t.arch, sizeof t.arch, "aarch64");
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000);
    gpu_at(pci(TOPO_NONE, 0x30, 0, "8.0 GT/s PCIe", 16));
    nvlink(0, 1, 12);
    c2c(400);
    OF(0, "net P2C 48.0");
    OF(1, "net PXN 48.0");
}

/* ---- GPUDirect ---- */

Test(nccl_graph, without_GPUDirect_the_path_goes_through_the_cpu) {
    for (int who = 0; who < 3; who++) {
        fresh(TOPO_LIVE);
        uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16), port = pci(up, 0x11, 0, "8.0 GT/s PCIe", 16),
                 a = pci(port, 0x12, 0, GEN5, 16), b = pci(port, 0x13, 0, GEN5, 16);
        gpu_at(pci(a, 0x14, 0, GEN5, 16));
        nic_at(pci(b, 0x15, 0, GEN5, 16), "net", 400000);
        t.gpus[0].gdr = who == 1 ? 0 : -1;
        t.nics[0].gdr = who == 2 ? 0 : 1;
        OF(0, "net %s", who == 0 ? "PIX 48.0" : "PHB 12.0");
    }
}

/* ---- which NETs ---- */

Test(nccl_graph, a_NET_under_two_cpus_is_one_and_nothing_goes_through_it) {
    fresh(TOPO_NCCL_XML);
    (void)snprintf(t.cpu_vendor, sizeof t.cpu_vendor, "AuthenticAMD");
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    nic_at(TOPO_NONE, "both", 1000)->numa = 0;
    nic_at(TOPO_NONE, "both", 1000)->numa = 1;
    nic_at(TOPO_NONE, "both", 1000)->numa = 1;
    t.nics[0].dev = t.nics[1].dev = t.nics[2].dev = 0;
    nic_at(pci(TOPO_NONE, 0x20, 1, GEN5, 16), "far", 400000);
    cr_assert_eq(n_nets(), 2);
    OF(0, "far SYS 16.0");
    t.nics[0].ports[0].rate_mbps = 8000000; /* 1000 GB/s: still no bridge between the CPUs */
    t.nics[3].ports[0].rate_mbps = 4000000;
    t.pci[0].link_width = 32;
    OF(0, "both PHB 96.0");
    cr_assert_eq(p.own_path, NCCL_PATH_PHB);
}

Test(nccl_graph, a_NET_is_no_shortcut_out_of_a_deep_tree) {
    fresh(TOPO_NCCL_XML);
    uint32_t up = pci(TOPO_NONE, 0x10, 0, GEN5, 16);
    for (uint8_t i = 1; i < 6; i++)
        up = pci(up, (uint8_t)(0x10 + i), 0, GEN5, 16);
    gpu_at(pci(up, 0x20, 0, GEN5, 16));
    nic_at(pci(up, 0x21, 0, GEN5, 16), "both", 200000);
    nic_at(pci(TOPO_NONE, 0x30, 1, GEN5, 16), "both", 200000);
    t.nics[1].dev = 0;
    gpu_at(pci(TOPO_NONE, 0x31, 1, GEN5, 16));
    between(0, 1, NCCL_PATH_SYS, 22);
}

Test(nccl_graph, ports_that_are_not_active_are_left_out_and_named) {
    fresh(TOPO_SYSROOT);
    uint32_t b = gpu_switch(0x10, 0);
    nic_at(pci(b, 0x15, 0, GEN5, 16), "down0", 400000)->ports[0].state = TOPO_PORT_DOWN;
    nic_at(pci(b, 0x16, 0, GEN5, 16), "unknown0", 400000)->ports[0].state = TOPO_PORT_UNKNOWN;
    nic_at(pci(b, 0x17, 0, GEN5, 16), "armed0", 400000)->ports[0].state = TOPO_PORT_ARMED;
    nic_at(pci(b, 0x18, 0, GEN4, 16), "up0", 200000);
    OF(0, "up0 PIX 24.0");
    cr_assert_str_eq(warnings(), "down0 is left out: port 1 is DOWN, not ACTIVE\n"
                                 "unknown0 is left out: the state of port 1 is not known\n"
                                 "armed0 is left out: port 1 is ARMED, not ACTIVE\n");
    t.source = TOPO_HWLOC_XML; /* which may not have it */
    OF(0, "unknown0 PIX 48.0");
}

Test(nccl_graph, EFA_devices_without_state_count_and_are_not_fused) {
    fresh(TOPO_SYSROOT);
    static char names[32][16];
    for (uint8_t i = 0; i < 8; i++) {
        uint32_t root = pci(TOPO_NONE, (uint8_t)(0x10 + i * 16), i / 4, GEN5, 16),
                 up = pci(root, (uint8_t)(0x11 + i * 16), i / 4, GEN5, 16);
        for (uint8_t k = 0; k < 5; k++) {
            uint32_t down = pci(up, (uint8_t)(0x12 + i * 16 + k * 2), i / 4, GEN5, 16),
                     device = pci(down, (uint8_t)(0x13 + i * 16 + k * 2), i / 4, GEN5, 16);
            if (k == 0) {
                nvswitch(gpu_at(device));
                continue;
            }
            (void)snprintf(names[i * 4 + k - 1], sizeof names[0], "rdmap%us%u", (unsigned)i, (unsigned)k);
            struct topo_nic *n = nic_at(device, names[i * 4 + k - 1], 0);
            n->kind = TOPO_NIC_EFA;
            n->ports[0].state = TOPO_PORT_UNKNOWN;
        }
    }
    cr_assert_eq(n_nets(), 32);
    for (uint32_t i = 0; i < 8; i++)
        OF(i, "rdmap%us1,rdmap%us2,rdmap%us3,rdmap%us4 PIX 48.0", i, i, i, i);
    assert_has(warnings(), "the speed of rdmap0s1 is not known");
}

Test(nccl_graph, the_ports_of_one_card_are_one_NET) {
    fresh(TOPO_SYSROOT);
    uint32_t b = gpu_switch(0x10, 0);
    for (uint8_t i = 0; i < 5; i++) {
        uint32_t f = pci(b, 0x15, 0, GEN5, 16);
        t.pci[f].at.fn = i;
        nic_at(f, rig_text("mlx5_%u", (unsigned)i), 100000);
    }
    /* four at most in one */
    cr_assert_eq(n_nets(), 2);
    OF(0, "mlx5_0+mlx5_1+mlx5_2+mlx5_3 PIX 48.0");
    t.n_nics = 2;
    OF(0, "mlx5_0+mlx5_1 PIX 25.0");
    cr_assert_eq(p.nic, 0);
    t.nics[1].ports[0].state = TOPO_PORT_DOWN;
    OF(0, "mlx5_0 PIX 12.5");
    t.nics[1].ports[0].state = TOPO_PORT_ACTIVE;
    t.pci[t.nics[1].pci].at = (struct pci_addr){0, 0x16, 0, 1}; /* another card */
    cr_assert_eq(n_nets(), 2);
}

Test(nccl_graph, nccl_takes_32_rdma_ports) {
    fresh(TOPO_SYSROOT);
    gpu_at(pci(TOPO_NONE, 0x01, 0, GEN5, 16));
    for (uint8_t i = 0; i < 33; i++)
        nic_at(pci(TOPO_NONE, (uint8_t)(0x20 + i), 0, GEN5, 16), rig_text("mlx5_%u", (unsigned)i), 400000);
    cr_assert_eq(n_nets(), 32);
    assert_has(warnings(), "mlx5_32 is left out: NCCL takes 32 RDMA ports at most");
    nic_at(pci(TOPO_NONE, 0x50, 0, GEN5, 16), "mlx5_33", 400000);
    nic_at(pci(TOPO_NONE, 0x51, 0, GEN5, 16), "mlx5_34", 400000);
    assert_has(warnings(), "mlx5_32 to mlx5_34 are left out: NCCL takes 32 RDMA ports at most");
}

static void socket_machine(void) {
    fresh(TOPO_LIVE);
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16));
    gpu_at(pci(TOPO_NONE, 0x11, 1, GEN5, 16));
    netif("lo", TOPO_NONE, 0);
    netif("eth0", pci(TOPO_NONE, 0x20, 0, "8.0 GT/s PCIe", 4), 1000);
    netif("docker0", TOPO_NONE, 0);
    netif("br-1a2b", TOPO_NONE, 0);
    netif("down0", TOPO_NONE, 0)->running = false;
    netif("noaddr0", TOPO_NONE, 0)->n_addrs = 0;
    (void)snprintf(netif("v6lo", TOPO_NONE, 0)->addrs[0].addr, 46, "::1");
}

Test(nccl_graph, without_rdma_the_interfaces_are_those_of_nccls_sockets) {
    socket_machine();
    cr_assert_str_eq(all_nets(), "eth0,br-1a2b");
    OF(0, "br-1a2b PHB 1.2"); /* 10 Gb/s by default beats the real 1 GbE, on the other socket, too */
    cr_assert_eq(p.nic, TOPO_NONE);
    OF(1, "br-1a2b PHB 1.2");
    assert_has(warnings(), "GPU 0 would use br-1a2b, which is not a physical interface");
    assert_has(said, "the speed of br-1a2b is not known: NCCL takes it for 10 Gb/s");
    netif("ib0", TOPO_NONE, 100000);
    cr_assert_str_eq(all_nets(), "ib0");
}

Test(nccl_graph, with_nothing_else_docker_then_lo_are_taken) {
    socket_machine();
    t.netifs[1].running = t.netifs[3].running = false;
    cr_assert_str_eq(all_nets(), "docker0");
    t.netifs[2].running = false;
    cr_assert_str_eq(all_nets(), "lo");
    for (uint32_t i = 0; i < t.n_netifs; i++) /* a recorded tree knows no addresses */
        t.netifs[i].n_addrs = 0;
    t.netifs[1].running = true;
    cr_assert_str_eq(all_nets(), "eth0,noaddr0,v6lo");
}

/* ---- GPUs ---- */

Test(nccl_graph, beside_nvidias_other_gpus_are_none_of_nccls) {
    root_gpus(2, GEN5, 16);
    t.gpus[0].vendor = TOPO_VENDOR_AMD;
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000);
    OF(0, " DIS 0.0");
    OF(1, "net PHB 48.0");
    between(0, 1, NCCL_PATH_DIS, 0);
    t.gpus[1].vendor = TOPO_VENDOR_AMD;
    OF(0, "net PHB 48.0");
}

Test(nccl_graph, two_gpus_on_one_card_are_told) {
    root_gpus(2, GEN5, 16);
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000);
    cr_assert_str_eq(warnings(), "2 GPUs share net: 0, 1\n");
    slow_own_card();
    cr_assert_str_eq(warnings(), "GPU 0's own NIC slow (PIX, 24 GB/s) loses to fast (PXN, 48 GB/s): NCCL looks at the "
                                 "bandwidth first\n2 GPUs share fast: 0, 1\n");
}

Test(nccl_graph, links_that_are_not_known_are_told) {
    gpu_at(pci(TOPO_NONE, 0x10, 0, "", 0));
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 0), "net", 400000);
    cr_assert_str_eq(warnings(),
                     "the PCI speed and width of GPU 0000:10:00.0 is not known: NCCL counts 12 GB/s for it\n"
                     "the PCI width of NIC 0000:20:00.0 is not known: NCCL counts 48 GB/s for it\n");
    t.pci[0].numa = 1;
    t.arch[0] = t.cpu_vendor[0] = '\0';
    assert_has(warnings(), "the processor is not known: the way between NUMA nodes");
}

/* ---- bounds ---- */

Test(nccl_graph, nothing_at_all_is_a_graph) {
    cr_assert_eq(n_nets(), 0);
    OF(0, " DIS 0.0");
    cr_assert_str_eq(warnings(), "");
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000); /* a NIC, no GPU */
    cr_assert_eq(n_nets(), 1);
    fresh(TOPO_LIVE);
    netif("eth0", TOPO_NONE, 1000); /* an interface without a device, no GPU */
    cr_assert_eq(n_nets(), 1);
    fresh(TOPO_LIVE);
    gpu_at(pci(TOPO_NONE, 0x10, 0, GEN5, 16)); /* a GPU, no NIC */
    OF(0, " DIS 0.0");
    fresh(TOPO_LIVE);
    struct topo_gpu *g = topology_add_gpu(&t); /* a GPU without a PCI device */
    g->index = 0;
    nic_at(pci(TOPO_NONE, 0x20, 0, GEN5, 16), "net", 400000);
    OF(0, "net SYS 12.0");
}

Test(nccl_graph, bridges_in_a_circle_are_refused) {
    for (uint32_t n = 1; n <= 4; n++) {
        fresh(TOPO_LIVE);
        for (uint32_t i = 0; i < n; i++)
            (void)pci((i + 1) % n, (uint8_t)(0x10 + i), 0, GEN5, 16);
        gpu_at(pci(0, 0x20, 0, GEN5, 16));
        for (int file = 0; file <= 1; file++) {
            t.source = file ? TOPO_NCCL_XML : TOPO_LIVE;
            cr_assert_eq(nccl_graph_new(&t, &graph, &err), -EINVAL);
            assert_has(err.text, "circle");
        }
    }
    fresh(TOPO_LIVE); /* indices of nothing are none */
    uint32_t device = pci(77, 0x10, 0, GEN5, 16);
    gpu_at(device);
    nic_at(device, "net", 1000)->pci = 99;
    build();
}

Test(nccl_graph, two_gpus_of_one_device_are_refused) {
    uint32_t device = pci(TOPO_NONE, 0x10, 0, GEN5, 16);
    gpu_at(device);
    gpu_at(device);
    cr_assert_eq(nccl_graph_new(&t, &graph, &err), -EINVAL);
}

Test(nccl_graph, more_than_nccl_can_hold_is_refused) {
    fresh(TOPO_NCCL_XML);
    for (uint32_t i = 0; i < 700; i++) {
        uint32_t d = pci(i == 0 ? TOPO_NONE : i - 1, 0, 0, GEN5, 16);
        t.pci[d].at.domain = i;
    }
    gpu_at(699);
    cr_assert_eq(nccl_graph_new(&t, &graph, &err), -E2BIG);
    assert_has(err.text, "640");
}

Test(nccl_graph, as_many_gpus_as_a_topology_holds) {
    for (uint32_t i = 0; i < TOPO_GPUS_MAX; i++) {
        uint32_t d = pci(TOPO_NONE, 0x10, (int32_t)(i / 32), GEN5, 16);
        t.pci[d].at.domain = i;
        nvswitch(gpu_at(d));
    }
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t d = pci(TOPO_NONE, 0x20, (int32_t)(i / 4), GEN5, 16);
        t.pci[d].at.domain = i;
        nic_at(d, rig_text("mlx5_%u", (unsigned)i), 400000);
    }
    build();
    nccl_graph_predict(graph, 255, &p);
    cr_assert_eq(p.n_nets, 1);
    cr_assert_eq(p.path, NCCL_PATH_PHB);
    (void)warnings();
}

/* 16 GPUs, 64 NICs, NVSwitch, and GPUDirect off, which is the worst case. Measures processor time,
 * so that a busy machine does not matter, and takes the minimum of several runs. */
Test(nccl_graph, sixteen_gpus_and_64_nics_take_little_time) {
    double best[2] = {1e9, 1e9};
    for (int gdr = 0; gdr < 2; gdr++) {
        fresh(TOPO_NCCL_XML);
        for (uint8_t i = 0; i < 16; i++) {
            uint32_t up = pci(TOPO_NONE, (uint8_t)(i * 8), i / 8, GEN5, 16);
            nvswitch(gpu_at(pci(up, (uint8_t)(i * 8 + 1), i / 8, GEN5, 16)));
            t.gpus[i].gdr = gdr;
            for (uint8_t k = 0; k < 4; k++) {
                const char *name = rig_text("n%u", (unsigned)(i * 4 + k));
                nic_at(pci(up, (uint8_t)(i * 8 + 2 + k), i / 8, GEN5, 16), name, 400000);
            }
        }
        for (int i = 0; i < 20; i++) {
            struct timespec from, to;
            (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
            build();
            (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
            double s = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
            best[gdr] = s < best[gdr] ? s : best[gdr];
        }
    }
    cr_log_info("with GPUDirect %.3f ms, without %.3f ms", best[1] * 1e3, best[0] * 1e3);
    cr_assert_lt(best[1], 0.02);
    cr_assert_lt(best[0], 0.02);
}

/* ---- recorded machines ---- */

Test(nccl_graph, recorded_machines_get_the_NETs_of_the_table) {
    size_t len;
    char *table = recorded_text("nccl-xml/derived/expected-nic.tsv", &len), *save = NULL;
    char current[256] = "";
    unsigned rows = 0;
    for (char *line = strtok_r(table, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        char file[256], busid[32], nets[256], path[16], gbs[16];
        unsigned dev;
        if (sscanf(line, "%255s %u %31s %255s %15s %15s", file, &dev, busid, nets, path, gbs) != 6)
            continue;
        if (strcmp(file, current) != 0) {
            fresh(TOPO_NCCL_XML);
            char *text = recorded_text(file, &len);
            cr_assert_eq(nccl_xml_read(text, len, &t, NULL, NULL, &err), 0, "%s: %s", file, err.text);
            free(text);
            build();
            (void)snprintf(current, sizeof current, "%s", file);
        }
        const char *expected = rig_text("%s %s %s", nets, path, gbs);
        for (uint32_t i = 0; i < t.n_gpus; i++) {
            if (strcmp(pci_addr_text(t.pci[t.gpus[i].pci].at).text, busid) != 0)
                continue;
            cr_assert_eq(t.gpus[i].index, dev);
            cr_assert_str_eq(of(i), expected, "%s: %s: %s", file, busid, of(i));
            rows++;
        }
    }
    free(table);
    cr_assert_eq(rows, 28);
}
