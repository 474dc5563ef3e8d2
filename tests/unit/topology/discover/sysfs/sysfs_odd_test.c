#include <ftw.h>

#include "base/prng.h"
#include "rig/unit.h"
#include "sysfs_rig.h"

TestSuite(sysfs_odd, .fini = clean);

Test(sysfs_odd, leaves_odd_values_unknown) {
    tree_preset(&tree, "2s-8gpu-8nic");
    tree_write(&tree, "sys/bus/pci/devices/0000:03:00.0/max_link_speed", "Unknown\n");
    tree_write(&tree, "sys/bus/pci/devices/0000:03:00.0/max_link_width", "255\n");
    tree_write(&tree, "sys/bus/pci/devices/0000:03:00.0/numa_node", "zero\n");
    tree_write(&tree, "sys/bus/pci/devices/0000:03:00.0/subsystem_vendor", "0x10de00\n");
    tree_write_bytes(&tree, "sys/bus/pci/devices/0000:03:00.0/subsystem_device", "0x16\0c1", 7);
    tree_write(&tree, "sys/class/infiniband/mlx5_0/node_guid", "5c25:7303:00aa\n");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/ports/1/rate", "fast\n");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/ports/1/state", "");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/ports/1/link_layer", "Token Ring\n");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80::\n");
    tree_write(&tree, "sys/class/net/eno1/speed", "-1\n");
    tree_write(&tree, "sys/class/net/eno1/mtu", "99999999999999999999999\n");
    tree_pipe(&tree, "sys/class/net/eno1/ifindex");
    tree_write(&tree, "sys/class/net/bonding_masters", "bond0\n");
    fill();
    const struct topo_pci *p = pci("0000:03:00.0");
    cr_assert_str_eq(p->link_speed, "");
    cr_assert_eq(p->link_width, 0);
    cr_assert_eq(p->numa, -1);
    cr_assert_eq(p->subvendor, 0);
    cr_assert_eq(p->subdevice, 0);
    const struct topo_nic *n = nic("mlx5_0");
    cr_assert_eq(n->node_guid, 0);
    cr_assert_eq(n->sys_image_guid, UINT64_C(0x5c25730300aa0002));
    cr_assert_eq(n->ports[0].rate_mbps, 0);
    cr_assert_eq(n->ports[0].state, TOPO_PORT_UNKNOWN);
    cr_assert_eq(n->ports[0].link_layer, TOPO_LINK_UNKNOWN);
    cr_assert_eq(n->ports[0].n_gids, 0);
    cr_assert_eq(netif("eno1")->speed_mbps, 0);
    cr_assert_eq(netif("eno1")->mtu, 0);
    cr_assert_eq(netif("eno1")->ifindex, 0);
    cr_assert_eq(topology_find_netif(&topo, "bonding_masters"), TOPO_NONE, "a file among the folders");
}

Test(sysfs_odd, ends_at_symlinks_that_go_round) {
    tree_preset(&tree, "1s-4gpu-1nic");
    tree_link(&tree, "sys/bus/pci/devices/0000:7f:00.0", "0000:7f:00.1");
    tree_link(&tree, "sys/bus/pci/devices/0000:7f:00.1", "0000:7f:00.0");
    tree_link(&tree, "sys/class/net/loop", "loop");
    tree_link(&tree, "sys/class/net/long", "long/long/long/long");
    tree_link(&tree, "sys/class/infiniband/mlx5_9", "../infiniband/mlx5_9/device");
    fill();
    cr_assert_eq(topo.n_gpus, 4);
    cr_assert_eq(topology_find_netif(&topo, "loop"), TOPO_NONE);
}

/* An absolute target is below the root, and ".." does not lead out of it. */
Test(sysfs_odd, never_reads_outside_of_the_root) {
    struct tree outside = {0};
    tree_new(&outside);
    tree_write(&outside, "secret/mtu", "1234\n");
    tree_write(&outside, "secret/operstate", "up\n");
    tree_new(&tree);
    char target[TREE_PATH_MAX + 64];
    (void)snprintf(target, sizeof target, "%s/secret", outside.root);
    tree_link(&tree, "sys/class/net/eth0", target);
    (void)snprintf(target, sizeof target, "../../../../../../../../../../..%s/secret", outside.root);
    tree_link(&tree, "sys/class/net/eth1", target);
    tree_link(&tree, "sys/class/net/eth2", "/inside/eth2");
    tree_link(&tree, "sys/class/net/eth3", "../../../../../../inside/eth2");
    tree_write(&tree, "inside/eth2/mtu", "4321\n");
    (void)snprintf(target, sizeof target, "%s/secret/mtu", outside.root);
    tree_link(&tree, "inside/eth4/mtu", target);
    tree_link(&tree, "sys/class/net/eth4", "/inside/eth4");
    fill();
    tree_remove(&outside);
    cr_assert_eq(topology_find_netif(&topo, "eth0"), TOPO_NONE);
    cr_assert_eq(topology_find_netif(&topo, "eth1"), TOPO_NONE);
    cr_assert_eq(netif("eth2")->mtu, 4321);
    cr_assert_eq(netif("eth3")->mtu, 4321);
    cr_assert_eq(netif("eth4")->mtu, 0);
}

Test(sysfs_odd, finds_nothing_below_a_root_that_is_not_there) {
    char long_root[8192];
    memset(long_root, 'x', sizeof long_root - 1);
    long_root[sizeof long_root - 1] = '\0';
    const char *const roots[] = {"/nonexistent", "/dev/null", long_root};
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
        sysfs_fill_pci(roots[i], &topo);
        sysfs_fill_rdma(roots[i], &topo);
        sysfs_fill_netifs(roots[i], &topo);
        cr_assert_not(sysfs_has_gpus(roots[i]));
    }
    cr_assert_eq(topo.n_pci + topo.n_nics + topo.n_netifs, 0);
}

#define FILES_MAX 8192
static char *files[FILES_MAX];
static uint32_t n_files;

static int collect(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    bool ours = strstr(path, "/system/") == NULL;
    if (ours && (flag == FTW_F || flag == FTW_SL) && n_files < FILES_MAX)
        files[n_files++] = xstrdup(path + strlen(tree.root) + 1);
    return 0;
}

static void damage(struct prng *r, const char *path) {
    static const char *const texts[] = {"",
                                        "\n",
                                        "-1\n",
                                        "4294967296\n",
                                        "0x\n",
                                        "0xffffffffffffffffff\n",
                                        "9: ODD\n",
                                        ":\n",
                                        "Unknown",
                                        "\xff\xfe\n",
                                        "8.0 GT/s PCIe and then some more text than fits in\n"};
    static const char *const targets[] = {"..", ".", "/", "/sys", "../../../..", "nowhere", "/sys/class/net", "/proc"};
    switch (prng_below(r, 5)) {
    case 0:
    case 1: tree_write(&tree, path, texts[prng_below(r, ARRAY_SIZE(texts))]); break;
    case 2: tree_link(&tree, path, targets[prng_below(r, ARRAY_SIZE(targets))]); break;
    case 3: tree_write_bytes(&tree, path, "1\0002", 3); break;
    default: tree_delete(&tree, path); break;
    }
}

static void check_sound(uint64_t seed, int round) {
    for (uint32_t i = 0; i < topo.n_pci; i++) {
        const struct topo_pci *p = &topo.pci[i];
        cr_assert(p->parent == TOPO_NONE || p->parent < topo.n_pci, "seed %lu round %d", seed, round);
        cr_assert_geq(p->numa, -1);
        cr_assert_lt(p->link_width, 255);
        cr_assert_lt(strlen(p->link_speed), sizeof p->link_speed);
    }
    for (uint32_t i = 0; i < topo.n_gpus; i++)
        cr_assert_lt(topo.gpus[i].pci, topo.n_pci, "seed %lu round %d", seed, round);
    for (uint32_t i = 0; i < topo.n_nics; i++) {
        cr_assert_leq(topo.nics[i].n_ports, TOPO_PORTS_MAX);
        cr_assert(topo.nics[i].pci == TOPO_NONE || topo.nics[i].pci < topo.n_pci);
    }
    for (uint32_t i = 0; i < topo.n_netifs; i++) {
        cr_assert_neq(topo.netifs[i].kind, 0);
        cr_assert(topo.netifs[i].pci == TOPO_NONE || topo.netifs[i].pci < topo.n_pci);
    }
}

Test(sysfs_odd, stands_trees_that_are_damaged_at_random) {
    const char *given = getenv("MUSTER_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20;
    struct prng r = {seed};
    tree_preset(&tree, "roce-v2");
    cr_assert_eq(nftw(tree.root, collect, 32, FTW_PHYS), 0);
    cr_assert_gt(n_files, 300);
    for (int round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < n_files / 12; i++)
            damage(&r, files[prng_below(&r, n_files)]);
        fill();
        check_sound(seed, round);
        topology_fini(&topo);
        (void)sysfs_has_gpus(tree.root);
    }
    for (uint32_t i = 0; i < n_files; i++)
        free(files[i]);
}

Test(sysfs_odd, reads_this_machine) {
    sysfs_fill_pci(NULL, &topo);
    sysfs_fill_rdma(NULL, &topo);
    sysfs_fill_netifs("/", &topo);
    topology_sort(&topo);
    if (access("/sys/class/net/lo", F_OK) != 0)
        cr_skip_test("no /sys/class/net here");
    cr_assert_eq(netif("lo")->kind, TOPO_NETIF_LOOPBACK);
    cr_assert_gt(netif("lo")->mtu, 0);
    check_sound(0, 0);
}
