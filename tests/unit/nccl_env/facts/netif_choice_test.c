#include "nccl_env/facts/netif_choice.h"

#include "rig/unit.h"

static struct topology t;

static struct topo_netif *add(const char *name, enum topo_netif_kind kind, const char *addr) {
    struct topo_netif *n = topology_add_netif(&t);
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    n->kind = kind;
    n->up = n->running = true;
    if (addr != NULL) {
        struct topo_netaddr *a = &n->addrs[n->n_addrs++];
        (void)snprintf(a->addr, sizeof a->addr, "%s", addr);
        a->ipv6 = strchr(addr, ':') != NULL;
        a->link_local = strncmp(addr, "fe80", 4) == 0 || strncmp(addr, "169.254", 7) == 0;
    }
    return n;
}

static struct netif_choice choose(const char *route, const char *source, const char *leader) {
    struct netif_input in = {.n_nodes = 2, .route_netif = route, .route_source = source, .leader_addr = leader};
    struct netif_choice c;
    netif_choose(&t, &in, &c);
    cr_assert_neq(c.why[0], '\0');
    return c;
}

static void fini(void) { topology_fini(&t); }
TestSuite(netif_choice, .fini = fini);

Test(netif_choice, one_node_chooses_nothing) {
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    struct netif_input in = {
        .n_nodes = 1, .route_netif = "eth0", .route_source = "10.0.0.2", .leader_addr = "10.0.0.1"};
    struct netif_choice c;
    netif_choose(&t, &in, &c);
    cr_assert_str_eq(c.netif, "");
    cr_assert_not(c.warning);
}

Test(netif_choice, the_route_to_the_leader_tells_it) {
    add("lo", TOPO_NETIF_LOOPBACK, "127.0.0.1");
    add("docker0", TOPO_NETIF_BRIDGE, "172.17.0.1");
    add("ens3", TOPO_NETIF_PHYSICAL, "192.168.0.2");
    add("ens4", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    struct netif_choice c = choose("ens4", "10.0.0.2", "10.0.0.1");
    cr_assert_str_eq(c.netif, "ens4");
    cr_assert_str_eq(c.addr, "10.0.0.2");
    cr_assert_not(c.warning);
}

Test(netif_choice, on_the_leaders_node_the_owner_of_its_address_is_it) {
    add("lo", TOPO_NETIF_LOOPBACK, "127.0.0.1");
    add("ens3", TOPO_NETIF_PHYSICAL, "192.168.0.2");
    add("ens4", TOPO_NETIF_PHYSICAL, "fd00:0:0::7");
    struct netif_choice c = choose("lo", "127.0.0.1", "192.168.0.2");
    cr_assert_str_eq(c.netif, "ens3");
    cr_assert_str_eq(choose("lo", "fd00::7", "FD00::0:7").netif, "ens4", "however it is written");
    cr_assert_str_eq(choose("lo", "", "::ffff:192.168.0.2").netif, "ens3");
}

Test(netif_choice, nodes_on_one_host_choose_nothing) {
    add("lo", TOPO_NETIF_LOOPBACK, "127.0.0.1");
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    cr_assert_str_eq(choose("lo", "127.0.0.1", "127.0.0.1").netif, "");
    cr_assert_str_eq(choose("lo", "::1", "::1").netif, "");
    cr_assert_str_eq(choose("lo", "127.0.0.1", "127.0.1.1").netif, "");
    cr_assert_not(choose("lo", "127.0.0.1", "127.0.0.1").warning);
}

Test(netif_choice, an_unknown_route_chooses_nothing) {
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    cr_assert_str_eq(choose("", "", "10.0.0.9").netif, "");
    cr_assert_str_eq(choose("eth7", "10.1.0.2", "10.1.0.9").netif, "");
    cr_assert(choose("eth7", "10.1.0.2", "10.1.0.9").warning);
}

Test(netif_choice, an_address_of_the_leaders_family_is_needed) {
    struct topo_netif *n = add("eth0", TOPO_NETIF_PHYSICAL, "fe80::1");
    struct netif_choice c = choose("eth0", "fe80::1", "fd00::9");
    cr_assert_str_eq(c.netif, "");
    cr_assert(c.warning);
    (void)snprintf(n->addrs[0].addr, sizeof n->addrs[0].addr, "fd00::2");
    n->addrs[0].link_local = false;
    cr_assert_str_eq(choose("eth0", "fd00::2", "fd00::9").addr, "fd00::2");
    cr_assert_str_eq(choose("eth0", "", "10.0.0.1").netif, "", "it has no IPv4");
}

Test(netif_choice, the_address_is_the_one_that_the_kernel_would_send_from) {
    struct topo_netif *n = add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    n->addrs[1] = (struct topo_netaddr){.addr = "10.5.0.2"};
    n->n_addrs = 2;
    cr_assert_str_eq(choose("eth0", "10.5.0.2", "10.5.0.1").addr, "10.5.0.2");
    cr_assert_str_eq(choose("eth0", "", "10.5.0.1").addr, "10.0.0.2");
}

Test(netif_choice, plumbing_is_refused_while_another_has_an_address) {
    static const char *const names[] = {"docker0",   "br-1a2b", "virbr0", "veth12",  "cali9",     "cni0",
                                        "flannel.1", "tunl0",   "lxcbr0", "podman1", "kube-ipvs0"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        topology_fini(&t);
        add(names[i], TOPO_NETIF_BRIDGE, "172.17.0.1");
        add("lo", TOPO_NETIF_LOOPBACK, "127.0.0.1");
        cr_assert_str_eq(choose(names[i], "172.17.0.1", "172.17.0.2").netif, names[i], "alone it is fine");
        struct topo_netif *eth = add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
        struct netif_choice c = choose(names[i], "172.17.0.1", "172.17.0.2");
        cr_assert_str_eq(c.netif, "", "%s", names[i]);
        cr_assert(c.warning);
        assert_has(c.why, names[i]);
        eth->up = false;
        cr_assert_str_eq(choose(names[i], "172.17.0.1", "172.17.0.2").netif, names[i], "the other is down");
    }
}

Test(netif_choice, it_goes_by_name_and_not_by_kind) {
    add("br0", TOPO_NETIF_BRIDGE, "10.0.0.2");
    add("eno1", TOPO_NETIF_PHYSICAL, "192.168.1.1");
    cr_assert_str_eq(choose("br0", "10.0.0.2", "10.0.0.1").netif, "br0");
    topology_fini(&t);
    add("eth0", TOPO_NETIF_VETH, "10.0.0.2");
    add("net1", TOPO_NETIF_MACVLAN, "10.1.0.2");
    cr_assert_str_eq(choose("eth0", "10.0.0.2", "10.0.0.1").netif, "eth0");
    cr_assert_str_eq(choose("net1", "10.1.0.2", "10.1.0.1").netif, "net1");
}

Test(netif_choice, a_faster_network_is_known_by_its_name) {
    cr_assert_null(netif_fast(&t));
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    add("ib1", TOPO_NETIF_PHYSICAL, "fe80::1"); /* other nodes could not use that */
    add("ib3", TOPO_NETIF_PHYSICAL, "10.3.0.2")->up = false;
    add("nib0", TOPO_NETIF_PHYSICAL, "10.4.0.2");
    cr_assert_null(netif_fast(&t));
    add("ib10", TOPO_NETIF_PHYSICAL, "10.1.0.2");
    cr_assert_str_eq(netif_fast(&t)->name, "ib10");
    add("ib4", TOPO_NETIF_PHYSICAL, "fd00::2");
    cr_assert_str_eq(netif_fast(&t)->name, "ib4", "the first, as people count");
    topology_fini(&t);
    add("hsn0", TOPO_NETIF_PHYSICAL, "10.1.0.2");
    cr_assert_str_eq(netif_fast(&t)->name, "hsn0");
}

Test(netif_choice, a_faster_network_is_told_where_it_may_win) {
    struct netif_input in = {.n_nodes = 2, .route_netif = "eth0", .route_source = "", .leader_addr = "10.0.0.1"};
    struct netif_choice c;
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    netif_choose(&t, &in, &c);
    netif_note_fast(&t, &in, &c);
    cr_assert_str_eq(c.why, "the route to the leader at 10.0.0.1 goes by eth0");
    add("ib0", TOPO_NETIF_PHYSICAL, "10.1.0.2");
    netif_note_fast(&t, &in, &c);
    assert_has(c.why, "goes by eth0; ib0, of a faster network");
    in.route_netif = "ib0";
    netif_choose(&t, &in, &c);
    netif_note_fast(&t, &in, &c);
    cr_assert_null(strstr(c.why, "faster"), "it is that one");
    in.route_netif = "lo";
    in.leader_addr = "127.0.0.1";
    netif_choose(&t, &in, &c);
    netif_note_fast(&t, &in, &c);
    cr_assert_null(strstr(c.why, "faster"), "one host");
}

Test(netif_choice, bad_literals_are_no_address) {
    static const char *const bad[] = {
        "",        "1.2.3",          "1.2.3.4.5", "256.1.1.1", "a", ":", ":::", "1:2", "1::2::3", "1:2:3:4:5:6:7:8:9",
        "12345::", "1:2:3:4:5:6:7:", "g::1",      "%eth0"};
    add("eth0", TOPO_NETIF_PHYSICAL, "10.0.0.2");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        (void)snprintf(t.netifs[0].addrs[0].addr, sizeof t.netifs[0].addrs[0].addr, "%s", bad[i]);
        cr_assert_str_eq(choose("", "", bad[i]).netif, "", "%s", bad[i]);
    }
    t.netifs[0].addrs[0] = (struct topo_netaddr){.addr = "1:2:3:4:5:6:7:8", .ipv6 = true};
    cr_assert_str_eq(choose("", "", "1:2:3:4:5:6:0.7.0.8").netif, "eth0");
    cr_assert_str_eq(choose("", "", "1:2:3:4:5:6:7:8%eth0").netif, "eth0");
}
