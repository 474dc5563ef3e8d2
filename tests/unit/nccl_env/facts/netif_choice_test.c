#include "nccl_env/facts/netif_choice.h"

#include "../node_rig.h"
#include "rig/unit.h"

static struct rig r;
static void init(void) { rig_make(&r, ""); }
static void fini(void) { rig_fini(&r); }
TestSuite(netif_choice, .init = init, .fini = fini);

static struct netif_choice choose(const char *route, const char *source, const char *leader) {
    struct netif_input in = {
        .n_nodes = r.in.n_nodes, .route_netif = route, .route_source = source, .leader_addr = leader};
    struct netif_choice c;
    netif_choose(&r.t, &in, &c);
    cr_assert_neq(c.why[0], '\0');
    return c;
}

#define LO "netif:lo:127.0.0.1 "
#define ETH0 "netif:eth0:10.0.0.2 "
#define OF_LEADER "netif:ens3:192.168.0.2 netif:ens4:fd00:0:0::7 " LO

Test(netif_choice, each_route_has_its_interface) {
    static const struct {
        const char *words, *route, *source, *leader, *netif, *addr; /* "": none is chosen */
        bool warns;
    } cases[] = {
        {ETH0 "nodes:1", "eth0", "10.0.0.2", "10.0.0.1", "", "", false},
        {LO "netif:docker0:172.17.0.1 netif:ens3:192.168.0.2 netif:ens4:10.0.0.2", "ens4", "10.0.0.2", "10.0.0.1",
         "ens4", "10.0.0.2", false},
        /* on the leader's node it is the owner of its address, however that is written */
        {OF_LEADER, "lo", "127.0.0.1", "192.168.0.2", "ens3", "192.168.0.2", false},
        {OF_LEADER, "lo", "fd00::7", "FD00::0:7", "ens4", "fd00:0:0::7", false},
        {OF_LEADER, "lo", "", "::ffff:192.168.0.2", "ens3", "192.168.0.2", false},
        /* nodes on one host */
        {LO ETH0, "lo", "127.0.0.1", "127.0.0.1", "", "", false},
        {LO ETH0, "lo", "::1", "::1", "", "", false},
        {LO ETH0, "lo", "127.0.0.1", "127.0.1.1", "", "", false},
        /* a route that is not known, or by an interface that is not */
        {ETH0, "", "", "10.0.0.9", "", "", false},
        {ETH0, "eth7", "10.1.0.2", "10.1.0.9", "", "", true},
        /* an address of the leader's family is needed */
        {"netif:eth0:fe80::1", "eth0", "fe80::1", "fd00::9", "", "", true},
        {"netif:eth0:fd00::2", "eth0", "fd00::2", "fd00::9", "eth0", "fd00::2", false},
        {"netif:eth0:fd00::2", "eth0", "", "10.0.0.1", "", "", true},
        /* a bridge by another name than those of containers */
        {"netif:br0:10.0.0.2 netif:eno1:192.168.1.1", "br0", "10.0.0.2", "10.0.0.1", "br0", "10.0.0.2", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig_make(&r, cases[i].words);
        struct netif_choice c = choose(cases[i].route, cases[i].source, cases[i].leader);
        cr_expect_str_eq(c.netif, cases[i].netif, "%zu: %s: %s", i, cases[i].words, c.why);
        cr_expect_str_eq(c.addr, cases[i].addr, "%zu", i);
        cr_expect_eq(c.warning, cases[i].warns, "%zu", i);
    }
}

Test(netif_choice, the_address_is_the_one_that_the_kernel_would_send_from) {
    struct topo_netif *n = rig_netif(&r, "eth0", "10.0.0.2");
    n->addrs[1] = (struct topo_netaddr){.addr = "10.5.0.2"};
    n->n_addrs = 2;
    n->kind = TOPO_NETIF_VETH; /* the name decides, not the kind */
    cr_assert_str_eq(choose("eth0", "10.5.0.2", "10.5.0.1").addr, "10.5.0.2");
    cr_assert_str_eq(choose("eth0", "", "10.5.0.1").addr, "10.0.0.2");
}

Test(netif_choice, plumbing_is_refused_while_another_has_an_address) {
    static const char *const names[] = {"docker0",   "br-1a2b", "virbr0", "veth12",  "cali9",     "cni0",
                                        "flannel.1", "tunl0",   "lxcbr0", "podman1", "kube-ipvs0"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        rig_make(&r, LO);
        rig_netif(&r, names[i], "172.17.0.1");
        cr_assert_str_eq(choose(names[i], "172.17.0.1", "172.17.0.2").netif, names[i], "alone it is fine");
        struct topo_netif *eth = rig_netif(&r, "eth0", "10.0.0.2");
        struct netif_choice c = choose(names[i], "172.17.0.1", "172.17.0.2");
        cr_assert(c.netif[0] == '\0' && c.warning, "%s", names[i]);
        assert_has(c.why, names[i]);
        eth->up = false;
        cr_assert_str_eq(choose(names[i], "172.17.0.1", "172.17.0.2").netif, names[i], "the other is down");
    }
}

Test(netif_choice, a_faster_network_is_known_by_its_name) {
    static const char *const cases[][2] = {
        {"", NULL},
        {ETH0 "netif:ib1:fe80::1 netif:nib0:10.4.0.2", NULL}, /* other nodes could not use that address */
        {ETH0 "netif:ib10:10.1.0.2", "ib10"},
        {ETH0 "netif:ib10:10.1.0.2 netif:ib4:fd00::2", "ib4"}, /* the first, as people count */
        {"netif:hsn0:10.1.0.2", "hsn0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig_make(&r, cases[i][0]);
        const struct topo_netif *n = netif_fast(&r.t);
        cr_expect_str_eq(n != NULL ? n->name : "", cases[i][1] != NULL ? cases[i][1] : "", "%s", cases[i][0]);
    }
    r.t.netifs[0].up = false;
    cr_assert_null(netif_fast(&r.t));
}

Test(netif_choice, a_faster_network_is_told_where_it_may_win) {
    static const struct {
        const char *words, *route, *leader, *why; /* NULL: it says nothing of it */
    } cases[] = {
        {ETH0, "eth0", "10.0.0.1", NULL},
        {ETH0 "netif:ib0:10.1.0.2", "eth0", "10.0.0.1",
         "the route to the leader at 10.0.0.1 goes by eth0; ib0, of a faster network"},
        {ETH0 "netif:ib0:10.1.0.2", "ib0", "10.0.0.1", NULL},
        {ETH0 "netif:ib0:10.1.0.2", "lo", "127.0.0.1", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct netif_input in = {
            .n_nodes = 2, .route_netif = cases[i].route, .route_source = "", .leader_addr = cases[i].leader};
        struct netif_choice c;
        rig_make(&r, cases[i].words);
        netif_choose(&r.t, &in, &c);
        netif_note_fast(&r.t, &in, &c);
        cr_expect_eq(strstr(c.why, "faster") != NULL, cases[i].why != NULL, "%zu: %s", i, c.why);
        cr_expect(cases[i].why == NULL || strstr(c.why, cases[i].why) == c.why, "%s", c.why);
    }
}

Test(netif_choice, bad_literals_are_no_address) {
    static const char *const bad[] = {
        "",        "1.2.3",          "1.2.3.4.5", "256.1.1.1", "a", ":", ":::", "1:2", "1::2::3", "1:2:3:4:5:6:7:8:9",
        "12345::", "1:2:3:4:5:6:7:", "g::1",      "%eth0"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        rig_make(&r, "");
        rig_netif(&r, "eth0", bad[i]);
        cr_assert_str_eq(choose("", "", bad[i]).netif, "", "%s", bad[i]);
    }
    rig_make(&r, "netif:eth0:1:2:3:4:5:6:7:8");
    cr_assert_str_eq(choose("", "", "1:2:3:4:5:6:0.7.0.8").netif, "eth0");
    cr_assert_str_eq(choose("", "", "1:2:3:4:5:6:7:8%eth0").netif, "eth0");
}
