#include "topology/model/gpu_count.h"

#include "../../recorded.h"
#include "../../tree_rig.h"
#include "rig/unit.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/model/affinity.h"

static struct topology machine;
static struct tree tree;
static struct rocm_gpu all[TOPO_GPUS_MAX];
static uint32_t n_all;

static void drop(void) {
    topology_fini(&machine);
    tree_remove(&tree);
}
TestSuite(rocm, .fini = drop);

static struct pci_addr at(const char *text) {
    struct pci_addr a;
    cr_assert_eq(pci_addr_parse(text, &a), 0, "%s", text);
    return a;
}

static void add_gpu(const char *where, enum topo_vendor vendor) {
    struct topo_pci *p = topology_add_pci(&machine);
    p->at = at(where);
    struct topo_gpu *g = topology_add_gpu(&machine);
    g->pci = machine.n_pci - 1;
    g->vendor = vendor;
}

static void add_rocm(const char *where, uint64_t unique_id) {
    all[n_all++] = (struct rocm_gpu){.at = at(where), .unique_id = unique_id};
}

/* Four GPUs that the kernel does not number by address, and an Intel processor's graphics. */
static void make_machine(void) {
    add_gpu("0000:00:02.0", TOPO_VENDOR_INTEL);
    add_gpu("0000:03:00.0", TOPO_VENDOR_AMD);
    add_gpu("0000:43:00.0", TOPO_VENDOR_AMD);
    add_gpu("0000:83:00.0", TOPO_VENDOR_AMD);
    add_gpu("0001:03:00.0", TOPO_VENDOR_AMD);
    topology_sort(&machine);
    n_all = 0;
    add_rocm("0000:43:00.0", 0xaa11000000000001);
    add_rocm("0000:03:00.0", 0xaa22000000000002);
    add_rocm("0001:03:00.0", 0);
    add_rocm("0000:83:00.0", 0x00bb000000000003);
}

/* The buses of the visible GPUs, "43,03", and "?" at the end if one is not known. */
static const char *seen(const char *rocr, const char *hip, const char *cuda) {
    static char text[256];
    uint32_t visible[TOPO_GPUS_MAX];
    bool unknown;
    const struct rocm_visible names = {rocr, hip, cuda};
    uint32_t n = rocm_visible_gpus(&machine, all, n_all, &names, visible, TOPO_GPUS_MAX, &unknown);
    cr_expect_eq(rocm_count_visible(all, n_all, &names), n + (unknown ? 1 : 0));
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        struct pci_addr a = machine.pci[machine.gpus[visible[i]].pci].at;
        (void)snprintf(text + strlen(text), 8, "%s%02x%s", i > 0 ? "," : "", a.bus, a.domain > 0 ? "'" : "");
    }
    return unknown ? strcat(text, "?") : text;
}

Test(rocm, gpus_are_in_the_kernels_order, .init = make_machine) {
    cr_expect_str_eq(seen(NULL, NULL, NULL), "43,03,03',83");
}

Test(rocm, rocr_visible_devices_takes_some, .init = make_machine) {
    static const char *const cases[][2] = {
        {"0", "43"},
        {"3,1", "83,03"},
        {" 2 , 0 ", "03',43"},
        {"", ""},
        {"-1", ""},
        {"4", ""},
        {"1,4,0", "03"},
        {"0,0,1", "43"},
        {"0,x,1", "43"},
        {"0x1", ""},
        {"GPU-aa11000000000001,1", "43,03"},
        {"gpu-AA22,0", "03,43"},
        {"GPU-aa", ""},
        {"GPU-00bb", "83"},
        {"GPU-", ""},
        {"GPU-0000000000000000", ""},
        {"GPU-00bb0000000000033", ""},
        {"GPU-00bb000000000003 and more of it", ""},
        {"99999999999999999999", ""},
        {"0,", "43"},
        {",0", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_str_eq(seen(cases[i][0], NULL, NULL), cases[i][1], "\"%s\" gives %s", cases[i][0],
                         seen(cases[i][0], NULL, NULL));
}

Test(rocm, hip_visible_devices_takes_of_what_is_left, .init = make_machine) {
    cr_expect_str_eq(seen(NULL, "2,0", NULL), "03',43");
    cr_expect_str_eq(seen("3,1", "1", NULL), "03");
    cr_expect_str_eq(seen("3,1", "1,2", NULL), "03");
    cr_expect_str_eq(seen("3,1", "GPU-00bb", NULL), "83");
    cr_expect_str_eq(seen("3,1", "GPU-aa11", NULL), "", "that is hidden");
    cr_expect_str_eq(seen(NULL, "1,1,0", NULL), "03,43", "twice is once");
    cr_expect_str_eq(seen(NULL, "1,-1,0", NULL), "03");
}

Test(rocm, cuda_visible_devices_does_where_hip_says_nothing, .init = make_machine) {
    cr_expect_str_eq(seen(NULL, NULL, "3"), "83");
    cr_expect_str_eq(seen(NULL, "0", "3"), "43");
    cr_expect_str_eq(seen(NULL, "", "3"), "83");
    cr_expect_str_eq(seen("1,3", NULL, "1"), "83");
    cr_expect_str_eq(seen(NULL, NULL, ""), "");
    cr_expect_str_eq(seen(NULL, "", NULL), "");
}

Test(rocm, gpus_that_nobody_listed_are_not_known, .init = make_machine) {
    for (uint32_t i = machine.n_gpus; i < 8; i++) /* as many as the list has room for */
        add_gpu("0000:e3:00.0", TOPO_VENDOR_INTEL);
    add_rocm("0000:c3:00.0", 4);
    cr_expect_str_eq(seen(NULL, NULL, NULL), "43,03,03',83?");
    cr_expect_str_eq(seen("4", NULL, NULL), "?");
    cr_expect_str_eq(seen("0", NULL, NULL), "43");
}

Test(rocm, parts_of_a_gpu_are_where_it_is, .init = make_machine) {
    n_all = 0;
    add_rocm("0000:43:00.0", 1);
    add_rocm("0000:43:00.1", 1);
    add_rocm("0000:03:00.0", 2);
    cr_expect_str_eq(seen(NULL, NULL, NULL), "43,43,03");
    cr_expect_str_eq(seen("2,1", NULL, NULL), "03,43");
}

static void write_node(uint32_t number, const char *text) {
    tree_write(&tree, rig_text("sys/class/kfd/kfd/topology/nodes/%u/properties", number), text);
}

Test(rocm, the_kernel_lists_them) {
    tree_new(&tree);
    cr_expect_eq(kfd_list_gpus(tree.root, all, TOPO_GPUS_MAX), 0, "no KFD");
    write_node(0, "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\ndomain 0\n");
    write_node(1, "cpu_cores_count 0\nsimd_count 440\nlocation_id 25344\ndomain 0\nunique_id 1311768467463790320\n");
    write_node(2, "simd_count 440\nlocation_id 256\ndomain 3\nunique_id 0\n"); /* 10 comes after 2 */
    write_node(10, "cpu_cores_count 24\nsimd_count 228\nmax_location_id 7\nlocation_id 770\ndomain 1");
    write_node(11, "simd_count many\nlocation_id 1024\n");
    write_node(12, "simd_count 4\n");
    tree_write(&tree, "sys/class/kfd/kfd/topology/nodes/13/gpu_id", "0\n"); /* hidden by a cgroup */
    cr_assert_eq(kfd_list_gpus(tree.root, all, TOPO_GPUS_MAX), 4);
    static const char *const places[] = {"0000:63:00.0", "0003:01:00.0", "0001:03:00.2", "0000:00:00.0"};
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(pci_addr_compare(all[i].at, at(places[i])), 0, "GPU %u", i);
    cr_expect_eq(all[0].unique_id, 0x123456789abcdef0);
    cr_expect_eq(kfd_list_gpus(tree.root, all, 2), 2);
}

/* "3:0-7,64-71 3:…": node and CPUs of the worker of each GPU, in the order given. */
static const char *bound(const char *file, const char *const *order, uint32_t n) {
    static char text[1024];
    char path[RECORDED_PATH_MAX];
    uint32_t visible[TOPO_GPUS_MAX];
    struct err err = {0};
    bool unknown;
    if (!recorded_path(path, file))
        cr_skip_test("%s is not beside us", file);
    cr_assert_eq(topology_load(path, &machine, &err), 0, "%s", err.text);
    for (n_all = 0; n_all < n;)
        add_rocm(order[n_all], n_all + 1);
    const struct rocm_visible none = {0};
    struct affinity_input in = {
        .mode = BIND_NUMA, .memory = BIND_MEMORY_PREFERRED, .nproc = n, .visible = visible, .gpus_per_worker = 1};
    in.n_visible = rocm_visible_gpus(&machine, all, n_all, &none, visible, TOPO_GPUS_MAX, &unknown);
    cr_assert_eq(in.n_visible, n);
    cr_expect_not(unknown);
    text[0] = '\0';
    for (; in.local_rank < n; in.local_rank++) {
        struct affinity a;
        cr_assert_eq(affinity_choose(&machine, &in, &a, &err), 0);
        _cleanup_(strbuf_fini) struct strbuf nodes = {0};
        cpuset_write_list(&a.nodes, &nodes);
        cr_expect(a.bound, "%s", a.why);
        (void)snprintf(text + strlen(text), 16, "%s%s", in.local_rank > 0 ? " " : "", strbuf_text(&nodes));
    }
    return text;
}

/* The order of its rsmi and OpenCL devices, which is the kernel's. */
Test(rocm, eight_mi50_are_not_in_the_order_of_their_addresses) {
    static const char *const order[] = {"0000:63:00.0", "0000:43:00.0", "0000:03:00.0", "0000:27:00.0",
                                        "0000:e3:00.0", "0000:c3:00.0", "0000:83:00.0", "0000:a3:00.0"};
    cr_expect_str_eq(bound("hwloc/mpibind-epyc-corona-p2.xml", order, 8), "0 0 0 0 1 1 1 1");
}

Test(rocm, eight_halves_of_four_mi250x_sit_on_crossed_nodes) {
    static const char *const order[] = {"0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0",
                                        "0000:d1:00.0", "0000:d6:00.0", "0000:d9:00.0", "0000:de:00.0"};
    cr_expect_str_eq(bound("hwloc/mpibind-eas-tioga.xml", order, 8), "3 3 1 1 0 0 2 2");
}

Test(rocm, four_mi300a_have_a_domain_each) {
    static const char *const order[] = {"0000:02:00.0", "0001:02:00.0", "0002:02:00.0", "0003:02:00.0"};
    cr_expect_str_eq(bound("hwloc/flux-tuo.SPX.xml", order, 4), "0 1 2 3");
}
