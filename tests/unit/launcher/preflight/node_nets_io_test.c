#include "launcher/preflight/ring_probe_io.h"
#include "rig/unit.h"

static struct netif_choice choice;

static bool pick(const char *net, const char *fast, uint32_t reachability) {
    struct node_nets n = {.nets = {[RING_NET] = {.netif = "eth0"}, [RING_FAST] = {.netif = "ib0"}}};
    (void)strcpy(n.nets[RING_NET].addrs, net);
    (void)strcpy(n.nets[RING_FAST].addrs, fast);
    memset(&choice, 0, sizeof choice);
    return node_nets_pick(&n, reachability, &choice);
}

static void check(const char *netif, const char *addr, bool family_v6) {
    cr_assert_str_eq(choice.netif, netif);
    cr_assert_str_eq(choice.addr, addr);
    cr_assert_eq(choice.family_v6, family_v6);
    cr_assert_neq(choice.why[0], '\0');
}

Test(node_nets_io, without_a_try_the_route_decides) {
    cr_assert_not(pick("10.0.0.1,fd00::1", "10.1.0.1", 0), "some node tries nothing (--preflight=off)");
    cr_assert_not(pick("10.0.0.1,fd00::1", "10.1.0.1", RING_WAY_V6 | RING_WAY_FAST_V4));
    cr_assert_not(pick("10.0.0.1,fd00::1", "10.1.0.1", RING_WAY_TRIED), "nothing serves all");
}

Test(node_nets_io, ipv4_to_all_is_what_is_taken_anyway) {
    cr_assert_not(pick("10.0.0.1,fd00::1", "", RING_WAY_TRIED | RING_WAY_V4));
    cr_assert_not(pick("10.0.0.1,fd00::1", "", RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_V6));
}

Test(node_nets_io, ipv6_alone_to_all_is_said_where_there_is_ipv4_too) {
    cr_assert(pick("10.0.0.1,fd00::1", "", RING_WAY_TRIED | RING_WAY_V6));
    check("eth0", "fd00::1", true);
    cr_assert(pick("fd00::1,10.0.0.1", "", RING_WAY_TRIED | RING_WAY_V6));
    check("eth0", "fd00::1", true);
    cr_assert_not(pick("fd00::1", "", RING_WAY_TRIED | RING_WAY_V6), "it has no other");
}

Test(node_nets_io, the_faster_network_goes_before) {
    cr_assert(pick("10.0.0.1", "10.1.0.1,fd01::1", RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_FAST_V4 | RING_WAY_FAST_V6));
    check("ib0", "10.1.0.1", false);
    cr_assert(pick("10.0.0.1", "fd01::1,10.1.0.1", RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_FAST_V4));
    check("ib0", "10.1.0.1", false);
}

Test(node_nets_io, the_faster_network_by_ipv6_alone) {
    cr_assert(pick("10.0.0.1", "10.1.0.1,fd01::1", RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_FAST_V6));
    check("ib0", "fd01::1", true);
    cr_assert(pick("10.0.0.1", "fd01::1", RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_FAST_V6));
    check("ib0", "fd01::1", false);
}

Test(node_nets_io, a_leader_that_names_a_network_which_is_not_here_is_not_followed) {
    static const struct node_nets none;
    struct netif_choice c = {0};
    for (uint32_t reachability = 0; reachability <= UINT8_MAX; reachability++)
        cr_assert_not(node_nets_pick(&none, reachability, &c), "%u", reachability);
    struct node_nets slow = {.nets = {[RING_NET] = {.netif = "eth0", .addrs = "10.0.0.1,fd00::1"}}};
    cr_assert_not(node_nets_pick(&slow, RING_WAY_TRIED | RING_WAY_V4 | RING_WAY_FAST_V4, &c));
    cr_assert(node_nets_pick(&slow, RING_WAY_TRIED | RING_WAY_V6 | RING_WAY_FAST_V4, &c));
    cr_assert_str_eq(c.netif, "eth0");
}
