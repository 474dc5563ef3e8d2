/* Tests the rules of distances, and compares the matrices of recorded trees cell by cell. */
#include "topology/model/distance.h"

#include "../recorded.h"
#include "../tree_rig.h"
#include "node_rig.h"
#include "rig/unit.h"
#include "topology/discover/discovery_io.h"

static const char *between(const struct topology *t, uint32_t a, uint32_t b) {
    static char text[2][16];
    topo_link_text(distance_between(t, a, b), text[0]);
    topo_link_text(distance_between(t, b, a), text[1]);
    cr_assert_str_eq(text[0], text[1], "the way back is the way there");
    return text[0];
}

static void expect_pci(const struct topology *t, uint32_t a, uint32_t b, enum topo_path path) {
    cr_assert_eq(distance_pci(t, a, b), path, "%u %u: %d", a, b, distance_pci(t, a, b));
    cr_assert_eq(distance_pci(t, b, a), path, "%u %u: %d", b, a, distance_pci(t, b, a));
}

/* Node 0: bus 00 with a root port, a switch of three downstream ports (a dual-port card; a device; a second switch with
 * a device), and a root port with a device. Bus 40 in node 0, bus 80 in node 1, bus c0 in no known node: each has one
 * device. */
struct places {
    struct topology t;
    uint32_t port0, port1, device, deep, beside, other_bus, other_node, nowhere;
};

static void place_all(struct places *p) {
    struct topology *t = &p->t;
    uint32_t root = rig_pci(t, "0000:00:01.0", TOPO_NONE, true, 0), up = rig_pci(t, "0000:01:00.0", root, true, 0);
    uint32_t d0 = rig_pci(t, "0000:02:00.0", up, true, 0), d1 = rig_pci(t, "0000:02:01.0", up, true, 0);
    uint32_t d2 = rig_pci(t, "0000:02:02.0", up, true, 0);
    uint32_t up2 = rig_pci(t, "0000:05:00.0", d2, true, 0), d3 = rig_pci(t, "0000:06:00.0", up2, true, 0);
    p->port0 = rig_pci(t, "0000:03:00.0", d0, false, 0);
    p->port1 = rig_pci(t, "0000:03:00.1", d0, false, 0);
    p->device = rig_pci(t, "0000:04:00.0", d1, false, 0);
    p->deep = rig_pci(t, "0000:07:00.0", d3, false, 0);
    uint32_t root2 = rig_pci(t, "0000:00:02.0", TOPO_NONE, true, 0);
    p->beside = rig_pci(t, "0000:08:00.0", root2, false, 0);
    p->other_bus = rig_pci(t, "0000:41:00.0", rig_pci(t, "0000:40:01.0", TOPO_NONE, true, 0), false, 0);
    p->other_node = rig_pci(t, "0000:81:00.0", rig_pci(t, "0000:80:01.0", TOPO_NONE, true, 1), false, 1);
    p->nowhere = rig_pci(t, "0000:c1:00.0", rig_pci(t, "0000:c0:01.0", TOPO_NONE, true, -1), false, -1);
}

Test(distance, what_lies_between_two_pci_devices_names_their_path) {
    struct places p = {0};
    place_all(&p);
    const struct topology *t = &p.t;
    expect_pci(t, p.port0, p.port0, TOPO_PATH_SELF);
    expect_pci(t, p.port0, p.port1, TOPO_PATH_PIX);  /* one card */
    expect_pci(t, p.port0, p.device, TOPO_PATH_PIX); /* two ports of one switch */
    expect_pci(t, p.device, p.deep, TOPO_PATH_PXB);
    expect_pci(t, p.port1, p.deep, TOPO_PATH_PXB);
    expect_pci(t, p.device, p.beside, TOPO_PATH_PHB);
    expect_pci(t, p.deep, p.beside, TOPO_PATH_PHB);
    expect_pci(t, p.device, p.other_bus, TOPO_PATH_NODE);
    expect_pci(t, p.device, p.other_node, TOPO_PATH_SYS);
    expect_pci(t, p.device, p.nowhere, TOPO_PATH_SYS);
    expect_pci(t, p.device, TOPO_NONE, TOPO_PATH_SYS);
    topology_fini(&p.t);
}

Test(distance, two_devices_of_unknown_nodes_are_not_of_one_node) {
    _cleanup_(topology_fini) struct topology t = {0};
    uint32_t a = rig_pci(&t, "0000:01:00.0", rig_pci(&t, "0000:00:01.0", TOPO_NONE, true, -1), false, -1);
    uint32_t b = rig_pci(&t, "0000:81:00.0", rig_pci(&t, "0000:80:01.0", TOPO_NONE, true, -1), false, -1);
    uint32_t c = rig_pci(&t, "0001:01:00.0", rig_pci(&t, "0001:00:01.0", TOPO_NONE, true, -1), false, -1);
    expect_pci(&t, a, b, TOPO_PATH_SYS);
    expect_pci(&t, a, c, TOPO_PATH_SYS); /* the same bus number in another domain */
}

Test(distance, upstream_ports_alone_are_switches_of_their_own) {
    /* As in NCCL's files: a switch, two switches below it, one device below each. */
    _cleanup_(topology_fini) struct topology t = {.source = TOPO_NCCL_XML};
    uint32_t top = rig_pci(&t, "0000:10:00.0", rig_pci(&t, "0000:01:00.0", TOPO_NONE, true, 0), true, 0);
    uint32_t one = rig_pci(&t, "0000:12:00.0", top, true, 0), two = rig_pci(&t, "0000:16:00.0", top, true, 0);
    uint32_t a = rig_pci(&t, "0000:13:00.0", one, false, 0), b = rig_pci(&t, "0000:17:00.0", two, false, 0);
    uint32_t c = rig_pci(&t, "0000:18:00.0", two, false, 0);
    expect_pci(&t, a, b, TOPO_PATH_PXB);
    expect_pci(&t, b, c, TOPO_PATH_PIX);
}

Test(distance, a_circle_of_parents_ends) {
    _cleanup_(topology_fini) struct topology t = {0};
    uint32_t a = rig_pci(&t, "0000:01:00.0", TOPO_NONE, true, 0), b = rig_pci(&t, "0000:02:00.0", a, true, 0);
    uint32_t c = rig_pci(&t, "0000:03:00.0", TOPO_NONE, false, 0);
    t.pci[a].parent = b;
    expect_pci(&t, a, b, TOPO_PATH_PHB); /* below one root, but with no path from one to the other */
    expect_pci(&t, a, c, TOPO_PATH_NODE);
    topology_sort(&t);
    cr_assert_eq(t.n_pci, 3);
    cr_assert_eq(t.pci[2].at.bus, 3);
    cr_assert_eq(t.pci[2].parent, TOPO_NONE);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(t.pci[i].parent, 1 - i, "the circle is as it was");
}

Test(distance, nvlinks_count_whatever_pci_says) {
    _cleanup_(topology_fini) struct topology t = {.nvlinks_known = true};
    for (uint32_t i = 0; i < 4; i++) {
        const char *root = rig_text("0000:%02x:01.0", i * 16);
        const char *at = rig_text("0000:%02x:00.0", i * 16 + 1);
        (void)rig_gpu(&t, at, rig_pci(&t, root, TOPO_NONE, true, (int32_t)i / 2), (int32_t)i / 2);
    }
    rig_nvlink(&t, 0, TOPO_NVLINK_GPU, 1, 2);
    rig_nvlink(&t, 0, TOPO_NVLINK_GPU, 1, 2); /* in two bundles */
    rig_nvlink(&t, 2, TOPO_NVLINK_GPU, 0, 3); /* only one end lists the link */
    rig_nvlink(&t, 1, TOPO_NVLINK_SWITCH, TOPO_NONE, 18);
    rig_nvlink(&t, 2, TOPO_NVLINK_SWITCH, TOPO_NONE, 12);
    rig_nvlink(&t, 3, TOPO_NVLINK_SWITCH, TOPO_NONE, 5);
    t.nvlinks[t.n_nvlinks - 1].c2c = true; /* to a CPU: no NVLink between GPUs */
    cr_assert_str_eq(between(&t, 0, 0), "X");
    cr_assert_str_eq(between(&t, 0, 1), "NV4");
    cr_assert_str_eq(between(&t, 0, 2), "NV3");
    cr_assert_str_eq(between(&t, 1, 2), "NV12", "as many as both have");
    cr_assert_str_eq(between(&t, 1, 3), "SYS");
    cr_assert_str_eq(between(&t, 2, 3), "NODE");
}

Test(distance, devices_without_a_pci_device_are_near_by_their_node_only) {
    _cleanup_(topology_fini) struct topology t = {0};
    (void)rig_gpu(&t, "0000:01:00.0", rig_pci(&t, "0000:00:01.0", TOPO_NONE, true, 1), 1);
    (void)rig_nic(&t, "near", NULL, TOPO_NONE, 1);
    (void)rig_nic(&t, "far", NULL, TOPO_NONE, 0);
    (void)rig_nic(&t, "lost", NULL, TOPO_NONE, -1);
    cr_assert_eq(distance_endpoints(&t), 4);
    cr_assert_str_eq(between(&t, 0, 1), "NODE");
    cr_assert_str_eq(between(&t, 0, 2), "SYS");
    cr_assert_str_eq(between(&t, 0, 3), "SYS");
    cr_assert_str_eq(between(&t, 3, 3), "X");
}

/* The table is tab-separated: a header with the devices, then a row for each. */
static void compare(const struct topology *t, char *text, const char *name) {
    char *lines, *line = strtok_r(text, "\n", &lines);
    while (line[0] == '#')
        line = strtok_r(NULL, "\n", &lines);
    uint32_t n = distance_endpoints(t);
    for (uint32_t a = 0; a < n; a++) {
        int32_t numa = distance_numa(t, a);
        _cleanup_(strbuf_fini) struct strbuf row = {0};
        if (a < t->n_gpus)
            strbuf_printf(&row, "GPU%u", a);
        else
            strbuf_add(&row, t->nics[a - t->n_gpus].name);
        for (uint32_t b = 0; b < n; b++)
            strbuf_printf(&row, "\t%s", between(t, a, b));
        struct cpuset cpus;
        topology_near_cpus(t, numa, &cpus);
        strbuf_add_char(&row, '\t');
        cpuset_write_list(&cpus, &row);
        strbuf_printf(&row, "\t%d", numa);
        line = strtok_r(NULL, "\n", &lines);
        cr_assert_not_null(line, "%s: %u devices", name, n);
        cr_assert_str_eq(strbuf_text(&row), line, "%s", name);
    }
    cr_assert_null(strtok_r(NULL, "\n", &lines), "%s has more devices", name);
}

static struct tree tree;
static void drop_tree(void) { tree_remove(&tree); }

static void check_tree(const char *name) {
    _cleanup_(topology_fini) struct topology t = {0};
    struct err err = {0};
    size_t len;
    _cleanup_(freep) char *matrix = recorded_text(rig_text("topo-m/derived/%s.tsv", name), &len);
    if (!tree_recorded(&tree, rig_text("sysfs-derived/%s.tar.xz", name), "", true))
        cr_skip_test("no recorded %s here", name);
    struct discovery_config config = {.what = DISCOVER_ALL, .sysroot = tree.root};
    cr_assert_eq(topology_discover(&config, &t, &err), 0, "%s", err.text);
    compare(&t, matrix, name);
}

Test(distance, the_turin_tree_gives_its_matrix, .fini = drop_tree) { check_tree("turin-4xH200"); }
Test(distance, the_ipa20_tree_gives_its_matrix, .fini = drop_tree) { check_tree("ipa20-4xH100"); }
Test(distance, the_g4dn_metal_tree_gives_its_matrix, .fini = drop_tree) { check_tree("g4dnmetal-8xT4"); }
