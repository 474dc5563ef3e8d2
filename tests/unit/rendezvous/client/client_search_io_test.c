#include "rendezvous/client/client_priv.h"
#include "rig/unit.h"

static const uint16_t ports[] = {5, 6, 7};

static void check_order(unsigned first, size_t n_hosts, const char *const *wanted) {
    struct addr hosts[2], got[6];
    char text[ADDR_TEXT_MAX];
    cr_assert_eq(addr_from_literal("10.0.0.1", 1, &hosts[0]), 0);
    cr_assert_eq(addr_from_literal("fd00::1", 1, &hosts[1]), 0);
    size_t n = client_port_addrs(ports, 3, first, hosts, n_hosts, got);
    cr_assert_eq(n, 3 * n_hosts);
    for (size_t i = 0; i < n; i++) {
        addr_to_text(&got[i], text);
        cr_assert_str_eq(text, wanted[i], "%zu", i);
    }
}

Test(client_search_io, the_ports_come_in_order_from_the_last_leaders) {
    check_order(0, 1, (const char *const[]){"10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:7"});
    check_order(1, 1, (const char *const[]){"10.0.0.1:6", "10.0.0.1:7", "10.0.0.1:5"});
    check_order(
        2, 2,
        (const char *const[]){"10.0.0.1:7", "[fd00::1]:7", "10.0.0.1:5", "[fd00::1]:5", "10.0.0.1:6", "[fd00::1]:6"});
}
