#include "topology/discover/net/netlink_io.h"

#include "netns_rig.h"
#include "rig/unit.h"

static void check_route(const char *to, const char *netif, const char *source) {
    struct route_found found;
    struct err err = {0};
    cr_assert_eq(route_find(to, &found, &err), 0, "%s", err.text);
    cr_assert_str_eq(found.netif, netif, "%s by %s", to, found.netif);
    cr_assert_str_eq(found.source, source, "%s from %s", to, found.source);
}

static void check_none(const char *to, int code, const char *part) {
    struct route_found found = {.netif = "untouched"};
    struct err err = {0};
    int r = route_find(to, &found, &err);
    cr_assert_eq(r, code, "%s: %d %s", to, r, err.text);
    assert_has(err.text, part);
    cr_assert_str_eq(found.netif, "untouched");
}

/* Several routes: the bridge's net, a router behind eth0, and nets that lead nowhere. */
static void wire(void) {
    netns_enter(true);
    netns_wire();
    IP("route add 192.168.0.0/16 via 10.9.0.254");
    IP("route add 192.168.7.0/24 dev br0 src 10.9.1.1");
    IP("route add fd77::/64 via fd09::fe");
    IP("route add unreachable 172.16.1.0/24");
    IP("route add blackhole 172.16.2.0/24");
    IP("route add prohibit 172.16.3.0/24");
}

static void check_routes(void) {
    check_route("10.9.0.7", "eth0", "10.9.0.1");
    check_route("10.9.1.7", "br0", "10.9.1.1");
    check_route("192.168.3.3", "eth0", "10.9.0.1");
    check_route("192.168.7.3", "br0", "10.9.1.1");
    check_route("fd09::7", "eth0", "fd09::1");
    check_route("fd77::1", "eth0", "fd09::1");
    check_route("::ffff:10.9.1.7", "br0", "10.9.1.1");
}

Test(route, goes_by_the_kernels_table) {
    wire();
    check_routes();
}

Test(route, says_lo_for_an_address_of_this_node) {
    wire();
    static const char *const own[] = {"10.9.0.1", "10.9.1.1", "fd09::1", "127.0.0.1", "::1"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        check_route(own[i], "lo", own[i]);
}

Test(route, tells_why_there_is_none) {
    wire();
    check_none("8.8.8.8", -ENETUNREACH, "no route to 8.8.8.8");
    check_none("2001:db8::1", -ENETUNREACH, "no route to 2001:db8::1");
    check_none("172.16.1.1", -EHOSTUNREACH, "172.16.1.1");
    check_none("172.16.2.1", -EHOSTUNREACH, "172.16.2.1");
    check_none("172.16.3.1", -EACCES, "172.16.3.1");
}

Test(route, asks_netlink_alone_where_the_route_has_a_source) {
    wire();
    netns_refuse(AF_INET);
    netns_refuse(AF_INET6);
    check_routes();
}

Test(route, wants_the_interface_of_a_link_local_address) {
    netns_enter(true);
    netns_wire();
    IP("addr add fe80::99/64 dev eth0 nodad");
    struct route_found found;
    struct err err = {0};
    cr_assert_eq(route_find("fe80::77%eth0", &found, &err), 0, "%s", err.text);
    cr_assert_str_eq(found.netif, "eth0");
    check_none("fe80::77%nosuch", -ENODEV, "no interface nosuch");
}

Test(route, takes_a_policy_rule_into_account) {
    wire();
    IP("route add default via 10.9.1.254 table 77");
    IP("rule add to 8.8.8.0/24 table 77");
    check_route("8.8.8.8", "br0", "10.9.1.1");
    check_none("8.8.9.8", -ENETUNREACH, "8.8.9.8");
}

Test(route, takes_literals_only) {
    check_none("", -EINVAL, "is not an IPv4 or IPv6 address");
    check_none("localhost", -EINVAL, "localhost");
    check_none("10.0.0.1/24", -EINVAL, "10.0.0.1/24");
    check_none("10.0.0.1%lo", -EINVAL, "10.0.0.1%lo");
    check_none("0123456789012345678901234567890123456789012345678901234567890123456789", -EINVAL, "not an IPv4");
    check_none("fe80::1%", -ENODEV, "no interface");
    cr_assert_eq(route_find("nonsense", &(struct route_found){0}, NULL), -EINVAL);
}
