#include "topology/discover/sysfs/sysfs_io.h"

#include "rig/unit.h"
#include "sysfs_rig.h"

TestSuite(sysfs, .fini = clean);

static void check_gpus(uint32_t n, const char *const at[], const int32_t numa[]) {
    cr_assert_eq(topo.n_gpus, n, "%u GPUs", topo.n_gpus);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_str_eq(recorded_address(&topo, topo.gpus[i].pci), at[i]);
        cr_assert_eq(topo.gpus[i].numa, numa[i], "GPU %u: %d", i, topo.gpus[i].numa);
        cr_assert_eq(topo.gpus[i].index, i);
    }
}

Test(sysfs, finds_gpus_and_nics_of_the_turin_node_without_hwloc) {
    SKIP_WITHOUT("sysfs-derived/turin-4xH200.tar.xz", "");
    fill();
    check_gpus(4, (const char *[]){"0000:06:00.0", "0000:16:00.0", "0000:96:00.0", "0000:e6:00.0"},
               (int32_t[]){1, 2, 6, 7});
    check_chain("0000:06:00.0", "0000:00:01.1 0000:01:00.0 0000:02:02.0 0000:04:00.0 0000:05:00.0 0000:06:00.0 ");
    JSON_HAS(&topo, "{'bus_id':'0000:06:00.0','index':0,'vendor':'nvidia',",
             "{'bus_id':'0000:00:01.1','root':'0000:00:00.0','bridge':true,'class':'060400',",
             "'up_speed':'','up_width':0,'driver':'','parent':null}", /* no port above a root port */
             "{'bus_id':'0000:06:00.0','root':'0000:00:00.0','bridge':false,'class':'030200','vendor':'10de',"
             "'device':'2335','subvendor':'10de','subdevice':'18bf','numa':1,'link_speed':'32.0 GT/s PCIe',"
             "'link_width':16,'link_gbs':0,'up_speed':'32.0 GT/s PCIe','up_width':16,");
    cr_assert_eq(pci("0000:e6:00.0")->root.bus, 0xe0);
    cr_assert_eq(topo.n_nics, 6);
    cr_assert_eq(topo.n_netifs, 7);
    cr_assert_eq(topo.n_warnings, 0);
}

Test(sysfs, reads_the_ports_of_the_turin_node) {
    SKIP_WITHOUT("sysfs-derived/turin-4xH200.tar.xz", "");
    fill();
    static const char *const order[] = {"mlx5_0", "mlx5_3", "mlx5_1", "mlx5_2", "mlx5_4", "mlx5_5"};
    for (uint32_t i = 0; i < 6; i++)
        cr_assert_str_eq(topo.nics[i].name, order[i], "by PCI address");
    JSON_HAS(&topo,
             "'name':'mlx5_0','kind':'rdma','numa':1,'netdev':'ib3x','driver':'','virtual_function':false,"
             "'node_guid':'b8e9240300baa4c8','sys_image_guid':'b8e9240300baa4c8',",
             "'state':'DOWN','rate':400,'ports':[{'number':1,'state':'DOWN','phys_state':'Disabled',"
             "'link_layer':'InfiniBand','rate_mbps':400000,'lid':65535,",
             "{'bus_id':'0000:e3:00.0','name':'mlx5_5','kind':'rdma','numa':7,'netdev':'ib0',",
             "'ports':[{'number':1,'state':'ACTIVE','phys_state':'LinkUp','link_layer':'InfiniBand',"
             "'rate_mbps':400000,'lid':409,'gids':[{'index':0,'gid':'fe80000000000000b8e9240300baa4bc',"
             "'type':'unknown','netdev':''}]}]",
             "'state':'DOWN','phys_state':'Disabled','link_layer':'Ethernet','rate_mbps':25000,",
             "{'bus_id':'0000:e3:00.0','name':'ib0','ifindex':0,'kind':'physical','numa':7,'driver':'','nic':'mlx5_5',",
             "'name':'eno6','ifindex':0,'kind':'physical','numa':0,'driver':'','nic':'',");
}

Test(sysfs, reads_eight_ndr_ports_and_a_bond_that_have_no_pci_devices) {
    SKIP_WITHOUT("ib-sysfs/gpud-sys-class-infiniband-h100.tar.xz", "sys/class/infiniband");
    fill();
    static const char *const names[] = {"mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5",     "mlx5_6",
                                        "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_bond_0"};
    cr_assert_eq(topo.n_nics, 9);
    for (uint32_t i = 0; i < 9; i++) {
        const struct topo_nic *n = &topo.nics[i];
        cr_assert_str_eq(n->name, names[i]);
        cr_assert_eq(n->pci, TOPO_NONE);
        cr_assert_eq(n->numa, -1);
        cr_assert_eq(n->n_ports, 1);
        cr_assert_eq(topo_nic_state(n), TOPO_PORT_ACTIVE);
        cr_assert_str_eq(n->ports[0].phys_state, "LinkUp");
        cr_assert_eq(topo_nic_rate_mbps(n), i < 8 ? 400000 : 200000);
        cr_assert_eq(n->ports[0].link_layer, i < 8 ? TOPO_LINK_INFINIBAND : TOPO_LINK_ETHERNET);
        cr_assert_eq(n->node_guid, 0);
    }
    cr_assert_eq(topo.n_warnings, 0);
}

Test(sysfs, reads_a_recorded_machine_with_mlx4_and_real_driver_links) {
    SKIP_WITHOUT("hwloc-sysfs/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", "");
    fill();
    cr_assert_eq(topo.n_gpus, 0);
    const struct topo_nic *n = nic("mlx4_0");
    cr_assert_str_eq(n->driver, "mlx4_core");
    cr_assert_str_eq(n->netdev, "ib0");
    cr_assert_eq(n->ports[0].rate_mbps, 56000);
    cr_assert_eq(n->ports[0].lid, 0x3a4);
    cr_assert_eq(n->numa, 1);
    check_chain("0000:82:00.0", "0000:80:02.2 0000:82:00.0 ");
    cr_assert_str_eq(pci("0000:80:02.2")->driver, "pcieport");
    const struct topo_netif *eth0 = netif("eth0"), *eth1 = netif("eth1");
    cr_assert_str_eq(eth0->driver, "igb");
    cr_assert(eth0->up && eth0->running);
    cr_assert_eq(eth0->speed_mbps, 1000);
    cr_assert_not(eth1->up);
    cr_assert_eq(netif("ib0")->mtu, 2044);
    cr_assert_eq(topo.n_warnings, 1, "scif0 has no ports");
}

Test(sysfs, pairs_eight_gpus_with_eight_nics) {
    fill_preset("2s-8gpu-8nic");
    check_gpus(8,
               (const char *[]){"0000:03:00.0", "0000:05:00.0", "0000:13:00.0", "0000:15:00.0", "0000:23:00.0",
                                "0000:25:00.0", "0000:33:00.0", "0000:35:00.0"},
               (int32_t[]){0, 0, 0, 0, 1, 1, 1, 1});
    cr_assert_str_eq(topo.gpus[5].uuid, "GPU-00000000-0000-0000-0000-000000000005");
    cr_assert_str_eq(topo.gpus[5].name, "NVIDIA H100 80GB HBM3");
    cr_assert_str_eq(topo.driver, "535.183.01");
    cr_assert_eq(topo.n_nics, 8);
    for (uint32_t i = 0; i < 8; i++) {
        const struct topo_nic *n = &topo.nics[i];
        cr_assert_str_eq(n->netdev, rig_text("ib%u", i));
        cr_assert_str_eq(n->driver, "mlx5_core");
        cr_assert_eq(n->ports[0].n_gids, 1, "empty places are left out");
        cr_assert_eq(n->ports[0].gids[0].type, TOPO_GID_IB);
        cr_assert_eq(topo.pci[n->pci].parent == topo.pci[topo.gpus[i].pci].parent, false);
        cr_assert_eq(topo.pci[topo.pci[n->pci].parent].parent, topo.pci[topo.pci[topo.gpus[i].pci].parent].parent,
                     "NIC %u and GPU %u have a switch in common", i, i);
    }
    cr_assert_str_eq(pci("0000:03:00.0")->driver, "nvidia");
    cr_assert(sysfs_has_gpus(tree.root));
    cr_assert_eq(topo.n_warnings, 0);
}

Test(sysfs, tells_types_and_interfaces_of_roce_gids) {
    fill_preset("roce-v2");
    JSON_HAS(&topo, "{'bus_id':'0000:05:00.1','name':'mlx5_1',", /* the other function of one card */
             "'gids':[{'index':0,'gid':'fe800000000000005e2573fffeaa0001','type':'RoCE v1','netdev':'eth2'},"
             "{'index':1,'gid':'fe800000000000005e2573fffeaa0001','type':'RoCE v2','netdev':'eth2'},"
             "{'index':2,'gid':'00000000000000000000ffff0a010105','type':'RoCE v1','netdev':'eth2'},"
             "{'index':3,'gid':'00000000000000000000ffff0a010105','type':'RoCE v2','netdev':'eth2'}]",
             "'name':'eth4','ifindex':5,'kind':'physical','numa':1,'driver':'mlx5_core','nic':'mlx5_3','up':false,"
             "'running':false,'mtu':1500,'speed_mbps':0,", /* the speed of what is down cannot be read */
             "'nic':'mlx5_0','up':true,'running':true,'mtu':1500,'speed_mbps':400000,");
    cr_assert_eq(topo_nic_state(nic("mlx5_3")), TOPO_PORT_DOWN);
}

Test(sysfs, keeps_256_gids_of_a_port_in_order_and_says_so) {
    tree_preset(&tree, "roce-v2");
    for (unsigned i = 0; i < 300; i++)
        tree_write(&tree, rig_text("sys/class/infiniband/mlx5_0/ports/1/gids/%u", i),
                   rig_text("fd00:0000:0000:0000:0000:0000:0000:%04x\n", i + 1));
    fill();
    const struct topo_port *p = &nic("mlx5_0")->ports[0];
    cr_assert_eq(p->n_gids, TOPO_GIDS_MAX);
    for (uint32_t i = 0; i < p->n_gids; i++)
        cr_assert_eq(p->gids[i].index, i);
    cr_assert_eq(topo.n_warnings, 1);
    assert_has(topo.warnings[0], "mlx5_0 port 1");
}

Test(sysfs, takes_the_bond_above_a_port_as_its_interface) {
    tree_preset(&tree, "roce-v2");
    for (unsigned i = 0; i < 4; i++)
        tree_write(&tree, rig_text("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/%u", i), "bond0\n");
    tree_write(&tree, "sys/devices/virtual/net/bond0/bonding/mode", "802.3ad 4\n");
    tree_link(&tree, "sys/class/net/bond0", "../../devices/virtual/net/bond0");
    fill();
    cr_assert_str_eq(nic("mlx5_0")->netdev, "bond0");
    cr_assert_str_eq(netif("bond0")->nic, "mlx5_0");
    cr_assert_eq(netif("bond0")->kind, TOPO_NETIF_BOND);
    cr_assert_str_eq(netif("eth1")->nic, "mlx5_0", "of the same card");
}

/* Without GIDs' interfaces, as in another network namespace. */
Test(sysfs, chooses_the_interface_of_the_port_and_no_representor) {
    tree_preset(&tree, "roce-v2");
    for (unsigned i = 0; i < 4; i++)
        tree_delete(&tree, rig_text("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/%u", i));
    tree_write(&tree, "sys/class/infiniband/mlx5_0/device/net/eth0/phys_port_name", "pf0vf3\n");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/device/net/aux/dev_port", "1\n");
    sysfs_fill_rdma(tree.root, &topo);
    cr_assert_str_eq(nic("mlx5_0")->netdev, "eth1");
    cr_assert_str_eq(nic("mlx5_1")->netdev, "eth2");
}

Test(sysfs, knows_an_efa_device_by_its_driver_and_its_missing_states) {
    fill_preset("efa");
    cr_assert_eq(topo.n_gpus, 8);
    cr_assert_eq(topo.n_nics, 4);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(topo.nics[i].kind, TOPO_NIC_EFA);
        cr_assert_str_eq(topo.nics[i].driver, "efa");
        cr_assert_eq(topo.nics[i].ports[0].state, TOPO_PORT_UNKNOWN);
        cr_assert_eq(topo.nics[i].ports[0].rate_mbps, 0);
        cr_assert_eq(topo.nics[i].ports[0].n_gids, 1);
    }
}

Test(sysfs, takes_rdmap_for_efa_only_where_nothing_says_otherwise) {
    tree_new(&tree);
    tree_write(&tree, "sys/class/infiniband/rdmap0s6/ports/1/state", "4: ACTIVE\n");
    tree_link(&tree, "sys/class/infiniband/rdmap0s7/device/driver", "../../bus/pci/drivers/irdma");
    tree_write(&tree, "sys/class/infiniband/rdmap0s7/ports/1/state", "4: ACTIVE\n");
    fill();
    cr_assert_eq(nic("rdmap0s6")->kind, TOPO_NIC_EFA);
    cr_assert_eq(nic("rdmap0s7")->kind, TOPO_NIC_RDMA);
    cr_assert_str_eq(nic("rdmap0s7")->driver, "irdma", "a link's name counts where its target is not in the tree");
}

Test(sysfs, makes_nics_of_slingshots_interfaces) {
    fill_preset("slingshot");
    cr_assert_eq(topo.n_gpus, 4);
    cr_assert_eq(topo.gpus[0].vendor, TOPO_VENDOR_AMD);
    cr_assert_eq(topo.n_nics, 4);
    for (uint32_t i = 0; i < 4; i++) {
        JSON_HAS(&topo,
                 rig_text("'name':'hsn%u','kind':'slingshot','numa':%u,'netdev':'hsn%u','driver':'cxi_ss1',", i, i, i));
        cr_assert_eq(topo_nic_state(&topo.nics[i]), TOPO_PORT_ACTIVE);
        cr_assert_eq(topo_nic_rate_mbps(&topo.nics[i]), 200000);
        cr_assert_str_eq(netif(topo.nics[i].name)->nic, topo.nics[i].name);
    }
    cr_assert(sysfs_has_gpus(tree.root), "/dev/kfd");
}

/* Before Cassini, hsn0 was a ConnectX. */
Test(sysfs, takes_no_mellanox_card_for_slingshot) {
    tree_preset(&tree, "1s-4gpu-1nic");
    tree_write(&tree, "sys/class/infiniband/mlx5_0/device/net/hsn0/operstate", "up\n");
    tree_link(&tree, "sys/class/infiniband/mlx5_0/device/net/hsn0/device", "../..");
    tree_link(&tree, "sys/class/net/hsn0", "../infiniband/mlx5_0/device/net/hsn0");
    fill();
    cr_assert_eq(topo.n_nics, 1);
    cr_assert_eq(topo.nics[0].kind, TOPO_NIC_RDMA);
    cr_assert_str_eq(netif("hsn0")->nic, "mlx5_0");
}

Test(sysfs, takes_an_hsn_interface_of_an_rdma_card_for_no_slingshot_where_nothing_tells_the_vendor) {
    tree_new(&tree);
    const char *card = "devices/pci0000:00/0000:00:05.0";
    tree_write(&tree, rig_text("sys/%s/infiniband/mlx5_0/ports/1/state", card), "4: ACTIVE\n");
    tree_link(&tree, rig_text("sys/%s/infiniband/mlx5_0/device", card), "../..");
    tree_link(&tree, rig_text("sys/%s/net/hsn0/device", card), "../..");
    tree_link(&tree, "sys/class/infiniband/mlx5_0", rig_text("../../%s/infiniband/mlx5_0", card));
    tree_link(&tree, "sys/class/net/hsn0", rig_text("../../%s/net/hsn0", card));
    tree_write(&tree, "sys/devices/virtual/net/hsn1/operstate", "up\n");
    tree_link(&tree, "sys/class/net/hsn1", "../../devices/virtual/net/hsn1");
    fill();
    cr_assert_eq(topo.n_nics, 2);
    cr_assert_eq(nic("mlx5_0")->kind, TOPO_NIC_RDMA);
    cr_assert_str_eq(nic("mlx5_0")->netdev, "hsn0");
    cr_assert_eq(nic("hsn1")->kind, TOPO_NIC_SLINGSHOT, "the name is all that there is");
}

Test(sysfs, tells_interfaces_by_what_drives_them) {
    static const struct {
        const char *name;
        enum topo_netif_kind kind;
    } want[] = {
        {"lo", TOPO_NETIF_LOOPBACK},
        {"eno1", TOPO_NETIF_PHYSICAL},
        {"docker0", TOPO_NETIF_BRIDGE},
        {"virbr0", TOPO_NETIF_BRIDGE},
        {"br-1a2b3c4d5e6f", TOPO_NETIF_BRIDGE},
        {"bond0", TOPO_NETIF_BOND},
        {"bond0.100", TOPO_NETIF_VLAN},
        {"tun0", TOPO_NETIF_TUNNEL},
        {"tunl0", TOPO_NETIF_TUNNEL},
        {"flannel.1", TOPO_NETIF_TUNNEL},
        {"wg0", TOPO_NETIF_TUNNEL},
        {"macvlan0", TOPO_NETIF_MACVLAN},
        {"kube-ipvs0", TOPO_NETIF_OTHER},
        {"veth0000000", TOPO_NETIF_VETH},
        {"cali00000000003", TOPO_NETIF_VETH},
    };
    fill_preset("docker-noise");
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        cr_assert_eq(netif(want[i].name)->kind, want[i].kind, "%s: %s", want[i].name,
                     topo_netif_kind_names[netif(want[i].name)->kind]);
    cr_assert_eq(topo.n_netifs, 29);
    const struct topo_netif *lo = netif("lo"), *eno1 = netif("eno1");
    cr_assert_eq(lo->ifindex, 1);
    cr_assert_eq(lo->mtu, 65536);
    cr_assert(lo->up && lo->running, "operstate of lo is unknown");
    cr_assert_str_eq(eno1->driver, "ice");
    cr_assert_eq(eno1->speed_mbps, 25000);
    cr_assert_eq(eno1->numa, 0);
    cr_assert_eq(netif("docker0")->pci, TOPO_NONE);
    cr_assert_eq(topo.n_gpus, 0);
    cr_assert_not(sysfs_has_gpus(tree.root));
}

Test(sysfs, leaves_locality_and_links_of_a_flat_vm_unknown) {
    tree_preset(&tree, "vm-flat");
    (void)topology_add_numa(&topo);
    fill();
    cr_assert_eq(topo.n_gpus, 4);
    for (uint32_t i = 0; i < topo.n_pci; i++) {
        cr_assert_eq(topo.pci[i].numa, -1);
        cr_assert_eq(topo.pci[i].parent, TOPO_NONE);
        cr_assert_str_eq(topo.pci[i].link_speed, "");
        cr_assert_eq(topo.pci[i].link_width, 0);
    }
    cr_assert(nic("mlx5_2")->virtual_function);
    cr_assert_eq(topo.n_warnings, 0, "one node: it makes no difference");
}

Test(sysfs, warns_of_unknown_numa_nodes_where_there_are_several) {
    tree_preset(&tree, "vm-flat");
    (void)topology_add_numa(&topo);
    (void)topology_add_numa(&topo);
    fill();
    cr_assert_eq(topo.n_warnings, 1);
    assert_has(topo.warnings[0], "4 of 4 GPUs (numa_node of 0000:00:01.0)");
}

/* Debian's hwloc drops devices with a domain above 0xffff. */
Test(sysfs, adds_devices_of_wide_domains) {
    fill_preset("vm-domains");
    cr_assert_eq(topo.n_gpus, 4);
    cr_assert_eq(topo.n_nics, 4);
    cr_assert_str_eq(recorded_address(&topo, topo.nics[0].pci), "10000:00:01.0");
    cr_assert_eq(topo.pci[topo.nics[0].pci].root.domain, 0x10000);
    cr_assert_eq(topo.nics[3].numa, 1);
}

Test(sysfs, begins_anew_at_the_root_bus_behind_a_vmd_controller) {
    tree_new(&tree);
    const char *at = "sys/devices/pci0000:5d/0000:5d:05.5/pci10000:e0/10000:e0:06.0/10000:e1:00.0";
    tree_write(&tree, rig_text("%s/class", at), "0x020000\n");
    tree_write(&tree, rig_text("%s/net/eth9/mtu", at), "9000\n");
    tree_link(&tree, "sys/bus/pci/devices/10000:e1:00.0", rig_text("../../../../%s", at));
    tree_write(&tree, "sys/devices/pci0000:5d/0000:5d:05.5/pci10000:e0/10000:e0:06.0/class", "0x060400\n");
    fill();
    check_chain("10000:e1:00.0", "10000:e0:06.0 10000:e1:00.0 ");
    cr_assert_eq(pci("10000:e1:00.0")->root.domain, 0x10000);
    cr_assert_eq(pci("10000:e1:00.0")->root.bus, 0xe0);
}

Test(sysfs, takes_an_ati_display_for_no_gpu_unless_amdgpu_drives_it) {
    tree_new(&tree);
    for (int i = 0; i < 2; i++) {
        tree_write(&tree, rig_text("sys/bus/pci/devices/0000:0%d:00.0/class", i), "0x030000\n");
        tree_write(&tree, rig_text("sys/bus/pci/devices/0000:0%d:00.0/vendor", i), "0x1002\n");
        tree_link(&tree, rig_text("sys/bus/pci/devices/0000:0%d:00.0/driver", i),
                  i == 0 ? "../../../../bus/pci/drivers/radeon" : "../../../../bus/pci/drivers/amdgpu");
    }
    fill();
    check_gpus(1, (const char *[]){"0000:01:00.0"}, (int32_t[]){-1});
}

/* The driver knows the model of a GPU that sleeps, but not its UUID. */
Test(sysfs, takes_what_the_driver_says_of_a_gpu_that_sleeps) {
    tree_new(&tree);
    tree_write(&tree, "proc/driver/nvidia/gpus/0000:1b:00.0/information",
               "Model: \t\t NVIDIA H100\nIRQ:   \t\t 16\nGPU UUID: \t "
               "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?\nVideo BIOS: \t \?\?\n");
    fill();
    check_gpus(1, (const char *[]){"0000:1b:00.0"}, (int32_t[]){-1});
    cr_assert_eq(topo.gpus[0].vendor, TOPO_VENDOR_NVIDIA);
    cr_assert_str_eq(topo.gpus[0].name, "NVIDIA H100");
    cr_assert_str_eq(topo.gpus[0].uuid, "");
}

Test(sysfs, completes_what_is_there_and_doubles_nothing) {
    tree_preset(&tree, "2s-8gpu-8nic");
    struct topo_pci *p = topology_add_pci(&topo);
    p->at = (struct pci_addr){0, 0x03, 0, 0};
    p->device = 0x1234;
    p->numa = 5;
    struct topo_gpu *g = topology_add_gpu(&topo);
    g->pci = 0;
    g->vendor = TOPO_VENDOR_NVIDIA;
    (void)snprintf(g->name, sizeof g->name, "a name");
    struct topo_nic *n = topology_add_nic(&topo);
    (void)snprintf(n->name, sizeof n->name, "mlx5_3");
    n->n_ports = 1;
    n->ports[0].number = 1;
    n->ports[0].lid = 77;
    (void)topo_port_add_gid(&n->ports[0]);
    struct topo_netif *i = topology_add_netif(&topo);
    (void)snprintf(i->name, sizeof i->name, "eno1");
    fill();
    cr_assert_eq(topo.n_gpus, 8);
    cr_assert_eq(topo.n_nics, 8);
    cr_assert_eq(topo.n_netifs, 10);
    cr_assert_str_eq(topo.gpus[0].name, "a name");
    cr_assert_eq(pci("0000:03:00.0")->device, 0x1234, "ids only where they are 0");
    cr_assert_eq(pci("0000:03:00.0")->vendor, 0x10de);
    cr_assert_eq(pci("0000:03:00.0")->numa, 0, "the kernel's word");
    check_chain("0000:03:00.0", "0000:00:01.0 0000:01:00.0 0000:02:00.0 0000:03:00.0 ");
    cr_assert_eq(nic("mlx5_3")->n_ports, 1);
    cr_assert_eq(nic("mlx5_3")->ports[0].n_gids, 1);
    cr_assert_eq(nic("mlx5_3")->ports[0].lid, 4);
    cr_assert_eq(netif("eno1")->kind, TOPO_NETIF_PHYSICAL);
}

Test(sysfs, a_device_that_is_read_before_the_port_above_it_has_its_link) {
    tree_new(&tree);
    tree_link(&tree, "sys/bus/pci/devices/0000:10:00.0", "../../../devices/pci0000:00/0000:10:00.0");
    tree_link(&tree, "sys/bus/pci/devices/0000:1a:00.0", "../../../devices/pci0000:00/0000:10:00.0/0000:1a:00.0");
    tree_files(&tree, "sys/devices/pci0000:00/0000:10:00.0/max_link_width=16 "
                      "sys/devices/pci0000:00/0000:10:00.0/0000:1a:00.0/");
    topology_add_pci(&topo)->at = (struct pci_addr){.bus = 0x10};
    topology_add_pci(&topo)->at = (struct pci_addr){.bus = 0x1a};
    fill();
    cr_assert_eq(pci("0000:1a:00.0")->up_width, 16);
}

Test(sysfs, says_the_same_when_asked_again) {
    fill_preset("roce-v2");
    uint32_t n_pci = topo.n_pci, n_gpus = topo.n_gpus, n_nics = topo.n_nics, n_netifs = topo.n_netifs;
    fill();
    cr_assert_eq(topo.n_pci, n_pci);
    cr_assert_eq(topo.n_gpus, n_gpus);
    cr_assert_eq(topo.n_nics, n_nics);
    cr_assert_eq(topo.n_netifs, n_netifs);
    cr_assert_eq(nic("mlx5_0")->ports[0].n_gids, 4);
}
