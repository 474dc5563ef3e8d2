#include "topology/discover/net/netlink_io.h"

#include "io/net/netlink.h"
#include "netns_rig.h"
#include "rig/unit.h"
#include "topology/discover/sysfs/sysfs_io.h"

static struct topology topo;

static void clean(void) { topology_fini(&topo); }

TestSuite(netlink, .fini = clean);

static const struct topo_netif *netif(const char *name) {
    uint32_t i = topology_find_netif(&topo, name);
    cr_assert_neq(i, TOPO_NONE, "%s is there", name);
    return &topo.netifs[i];
}

static const struct topo_netaddr *address(const char *name, const char *addr) {
    const struct topo_netif *n = netif(name);
    for (uint32_t i = 0; i < n->n_addrs; i++)
        if (strcmp(n->addrs[i].addr, addr) == 0)
            return &n->addrs[i];
    return NULL;
}

static void check_kind(const char *name, enum topo_netif_kind kind) {
    cr_assert_eq(netif(name)->kind, kind, "%s: %s", name, topo_netif_kind_names[netif(name)->kind]);
}

/* A namespace of its own, in which eth0 and br0 are wired. */
static void enter(void) {
    netns_enter(true);
    netns_wire();
}

Test(netlink, tells_kinds_by_driver_whatever_the_names_are) {
    static const struct {
        const char *line, *name;
        enum topo_netif_kind kind;
    } others[] = {
        /* this kernel may lack some */
        {"link add dum7 type dummy", "dum7", TOPO_NETIF_DUMMY},
        {"link add mac7 link eth0 type macvlan", "mac7", TOPO_NETIF_MACVLAN},
        {"link add vlan7 link eth0 type vlan id 7", "vlan7", TOPO_NETIF_VLAN},
        {"link add vx7 type vxlan id 7 dstport 4789", "vx7", TOPO_NETIF_TUNNEL},
        {"link add bond7 type bond", "bond7", TOPO_NETIF_BOND},
        {"tuntap add tun7 mode tun", "tun7", TOPO_NETIF_TUNNEL},
    };
    bool made[ARRAY_SIZE(others)];
    uint32_t n = 4;
    enter();
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        n += made[i] = netns_ip(others[i].line) == 0;
    sysfs_fill_netifs(NULL, &topo);
    netlink_fill_addresses(&topo);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (made[i])
            check_kind(others[i].name, others[i].kind);
    check_kind("eth0", TOPO_NETIF_VETH);
    check_kind("br0", TOPO_NETIF_BRIDGE);
    check_kind("lo", TOPO_NETIF_LOOPBACK);
    cr_assert_eq(topo.n_netifs, n);
    cr_assert_eq(topo.n_warnings, 0);
}

Test(netlink, lists_addresses_and_marks_those_of_one_link) {
    enter();
    IP("addr add 169.254.7.7/16 dev eth0");
    netlink_fill_addresses(&topo);
    const struct topo_netaddr *v4 = address("eth0", "10.9.0.1"), *v6 = address("eth0", "fd09::1"),
                              *local = address("eth0", "169.254.7.7");
    cr_assert(v4 != NULL && v6 != NULL && local != NULL);
    cr_assert(!v4->ipv6 && !v4->link_local && v4->prefix == 24);
    cr_assert(v6->ipv6 && !v6->link_local && v6->prefix == 64);
    cr_assert(local->link_local);
    bool fe80 = false;
    for (uint32_t i = 0; i < netif("eth0")->n_addrs; i++)
        if (strncmp(netif("eth0")->addrs[i].addr, "fe80:", 5) == 0)
            fe80 = netif("eth0")->addrs[i].link_local;
    cr_assert(fe80);
    cr_assert_not_null(address("lo", "127.0.0.1"));
    cr_assert_not_null(address("lo", "::1"));
    const struct topo_netif *n = netif("eth0");
    cr_assert(n->up && n->running);
    cr_assert_eq(n->mtu, 1500);
    cr_assert_gt(n->ifindex, 0);
}

Test(netlink, tells_up_from_running) {
    enter();
    IP("link set peer0 down");
    netns_wait_running("eth0", false);
    netlink_fill_addresses(&topo);
    cr_assert(netif("eth0")->up);
    cr_assert_not(netif("eth0")->running, "its other end is down");
    cr_assert_not(netif("peer0")->up);
}

Test(netlink, agrees_with_the_files) {
    enter();
    IP("link set peer0 down");
    netns_wait_running("eth0", false);
    sysfs_fill_netifs(NULL, &topo);
    struct topology files = {0};
    sysfs_fill_netifs(NULL, &files);
    netlink_fill_addresses(&topo);
    cr_assert_eq(files.n_netifs, topo.n_netifs);
    for (uint32_t i = 0; i < topo.n_netifs; i++) {
        const struct topo_netif *a = &topo.netifs[i], *b = &files.netifs[topology_find_netif(&files, a->name)];
        cr_assert_eq(a->ifindex, b->ifindex);
        cr_assert_eq(a->mtu, b->mtu);
        cr_assert_eq(a->kind, b->kind, "%s", a->name);
        cr_assert_eq(a->up, b->up, "%s", a->name);
        cr_assert_eq(a->running, b->running, "%s", a->name);
    }
    topology_fini(&files);
}

Test(netlink, does_without_ipv4) {
    enter();
    IP("addr flush dev eth0");
    IP("addr flush dev br0");
    IP("addr flush dev lo");
    IP("addr add fd09::1/64 dev eth0 nodad");
    netlink_fill_addresses(&topo);
    for (uint32_t i = 0; i < topo.n_netifs; i++)
        for (uint32_t k = 0; k < topo.netifs[i].n_addrs; k++)
            cr_assert(topo.netifs[i].addrs[k].ipv6);
    cr_assert_not_null(address("eth0", "fd09::1"));
}

Test(netlink, keeps_sixteen_addresses_and_says_so) {
    enter();
    for (int i = 2; i < 30; i++)
        IP(rig_text("addr add 10.9.0.%d/24 dev eth0", i));
    netlink_fill_addresses(&topo);
    cr_assert_eq(netif("eth0")->n_addrs, TOPO_ADDRS_MAX);
    cr_assert_eq(topo.n_warnings, 1);
    assert_has(topo.warnings[0], "addresses are left out: eth0 has more than 16");
}

/* A container can see the /sys of its host. */
Test(netlink, leaves_out_interfaces_of_another_namespace) {
    netns_enter(false);
    netns_wire();
    for (int i = 0; i < 3; i++)
        (void)topology_add_netif(&topo);
    struct topo_netif *n = topo.netifs, *same = n + 1, *foreign = n + 2;
    (void)snprintf(n->name, sizeof n->name, "eth0"); /* the host's card has the same name */
    n->ifindex = 4711;
    n->kind = TOPO_NETIF_PHYSICAL;
    n->numa = 1;
    (void)snprintf(n->driver, sizeof n->driver, "ice");
    (void)snprintf(same->name, sizeof same->name, "br0");
    same->numa = 3;
    (void)snprintf(foreign->name, sizeof foreign->name, "eno1");
    foreign->ifindex = 2;
    netlink_fill_addresses(&topo);
    cr_assert_eq(topology_find_netif(&topo, "eno1"), TOPO_NONE);
    check_kind("eth0", TOPO_NETIF_VETH);
    cr_assert_str_eq(netif("eth0")->driver, "");
    cr_assert_eq(netif("eth0")->numa, -1);
    cr_assert_eq(netif("br0")->numa, 3, "no number said otherwise");
    cr_assert_eq(topo.n_warnings, 1);
    assert_has(topo.warnings[0], "1 interfaces in /sys are of another network namespace");
}

Test(netlink, warns_where_it_is_refused) {
    enter();
    netns_refuse_netlink();
    sysfs_fill_netifs(NULL, &topo);
    netlink_fill_addresses(&topo);
    cr_assert_neq(topology_find_netif(&topo, "eth0"), TOPO_NONE);
    cr_assert_eq(netif("eth0")->n_addrs, 0);
    check_kind("br0", TOPO_NETIF_BRIDGE);
    cr_assert_eq(topo.n_warnings, 1);
    assert_has(topo.warnings[0], "(rtnetlink) cannot be read: Permission denied");
}

Test(netlink, lists_interfaces_that_no_file_named) {
    netns_enter(false);
    netns_wire();
    netlink_fill_addresses(&topo);
    cr_assert_eq(topo.n_netifs, 4);
    check_kind("eth0", TOPO_NETIF_VETH);
    cr_assert_eq(netif("eth0")->pci, TOPO_NONE);
}

Test(netlink, skips_attributes_that_do_not_fit) {
    union netlink_request q;
    struct rtmsg m = {.rtm_family = AF_INET};
    uint32_t one = 1, two = 2;
    netlink_request_init(&q, RTM_GETROUTE, 0, &m, sizeof m);
    netlink_request_add(&q, RTA_OIF, &one, sizeof one);
    netlink_request_add(&q, RTA_PRIORITY | NLA_F_NESTED, &two, sizeof two);
    struct netlink_attribute a[RTA_PRIORITY + 1];
    const char *first = q.bytes + NLMSG_LENGTH(sizeof m);
    size_t whole = q.head.nlmsg_len - NLMSG_LENGTH(sizeof m);
    netlink_attributes(first, whole, a, RTA_PRIORITY);
    cr_assert_eq(netlink_u32(a[RTA_OIF]), 1);
    cr_assert_eq(netlink_u32(a[RTA_PRIORITY]), 2, "the nested flag is none of its number");
    cr_assert_null(a[RTA_DST].data);
    netlink_attributes(first, whole - 1, a, RTA_PRIORITY);
    cr_assert_null(a[RTA_PRIORITY].data, "cut short");
    netlink_attributes(first, whole, a, RTA_OIF);
    cr_assert_eq(netlink_u32(a[RTA_OIF]), 1);
    for (size_t len = 0; len < whole; len++) {
        char *exact = xmalloc(len + 1); /* so that a read beyond the end is detected */
        memcpy(exact, first, len);
        netlink_attributes(exact, len, a, RTA_PRIORITY);
        free(exact);
    }
}

Test(netlink, skips_messages_of_other_types_and_short_ones) {
    struct ifaddrmsg m = {.ifa_index = 7}, got = {0};
    char bytes[64] = {0};
    memcpy(bytes, &m, sizeof m);
    struct netlink_attribute a[IFA_LOCAL + 1];
    struct netlink_answer answer = {RTM_NEWADDR, bytes, sizeof m};
    cr_assert_not(netlink_answer_is(&answer, RTM_NEWLINK, &got, sizeof got, a, IFA_LOCAL));
    cr_assert(netlink_answer_is(&answer, RTM_NEWADDR, &got, sizeof got, a, IFA_LOCAL));
    cr_assert_eq(got.ifa_index, 7);
    cr_assert_null(a[IFA_LOCAL].data);
    answer.len--;
    cr_assert_not(netlink_answer_is(&answer, RTM_NEWADDR, &got, sizeof got, a, IFA_LOCAL));
}

Test(netlink, reads_a_route) {
    struct rtmsg m = {.rtm_family = AF_INET, .rtm_type = RTN_UNICAST};
    union netlink_request q;
    uint32_t oif = 3;
    netlink_request_init(&q, RTM_NEWROUTE, 0, &m, sizeof m);
    netlink_request_add(&q, RTA_OIF, &oif, sizeof oif);
    netlink_request_add(&q, RTA_PREFSRC, (const uint8_t[]){10, 0, 0, 1}, 4);
    struct netlink_answer answer = {RTM_NEWROUTE, q.bytes + NLMSG_HDRLEN, q.head.nlmsg_len - NLMSG_HDRLEN};
    struct netlink_route route = {0};
    netlink_read_route(&route, &answer);
    cr_assert_eq(route.ifindex, 3);
    cr_assert_not(route.local);
    cr_assert_str_eq(route.source, "10.0.0.1");
    m.rtm_family = AF_INET6; /* whose addresses are longer */
    m.rtm_type = RTN_LOCAL;
    memcpy(q.bytes + NLMSG_HDRLEN, &m, sizeof m);
    netlink_read_route(&route, &answer);
    cr_assert(route.local);
    cr_assert_str_eq(route.source, "");
    answer.len = sizeof m - 1;
    route = (struct netlink_route){0};
    netlink_read_route(&route, &answer);
    cr_assert_eq(route.ifindex, 0, "too short");
}
