#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/client/client_priv.h"

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

Test(client_ports_io, the_ports_come_in_order_from_the_last_leaders) {
    check_order(0, 1, (const char *const[]){"10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:7"});
    check_order(1, 1, (const char *const[]){"10.0.0.1:6", "10.0.0.1:7", "10.0.0.1:5"});
    check_order(
        2, 2,
        (const char *const[]){"10.0.0.1:7", "[fd00::1]:7", "10.0.0.1:5", "[fd00::1]:5", "10.0.0.1:6", "[fd00::1]:6"});
}

static struct rdzv_client client; /* only what the text needs */
static char text[CLIENT_WAITING_MAX];

static const char *described(void) {
    client_describe_ports(&client, text);
    return text;
}

static void begin(void) {
    struct addr host;
    memcpy(client.config.ports, ports, sizeof ports);
    client.config.n_ports = 3;
    cr_assert_eq(addr_from_literal("10.0.0.1", 1, &host), 0);
    client.n_addrs = client_spread_ports(&client, &host, 1);
    cr_assert_eq(client.n_addrs, 3);
}

Test(client_ports_io, tells_what_each_port_answered, .init = begin) {
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: nothing listens at ports 5-7 yet");
    client.next_addr = 1;
    client_note_code(&client, -ETIMEDOUT, "");
    client.next_addr = 2;
    client_note(&client, CLIENT_FOUND_OTHER_RUN, "night-2");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: no answer (not muster, or a firewall); "
                                  "port 6: an agent of the run 'night-2'; nothing listens at port 7 yet");
    client.next_addr = 1;
    client_note_code(&client, -ECONNREFUSED, ""); /* at another address of the host */
    cr_assert(strstr(described(), "port 5: no answer") != NULL, "%s", text);
    client_note_code(&client, 0, "");
    client.next_addr = 2;
    client_note_code(&client, -EPROTO, "");
    client.next_addr = 3;
    client_note_code(&client, -EHOSTUNREACH, "");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: hung up (not muster?); port 6: not muster; "
                                  "port 7: No route to host");
}

Test(client_ports_io, tells_why_an_agent_may_not_be_talked_to, .init = begin) {
    client.next_addr = 1;
    client_note_code(&client, -EKEYREJECTED, "the agent there has another key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; "
                                  "nothing listens at ports 6,7 yet");
    client.next_addr = 3;
    client_note_code(&client, -EKEYREJECTED, "the agent there has a third key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; port 7: an "
                                  "agent without this node's key; nothing listens at port 6 yet");
}

Test(client_ports_io, the_longest_text_fits) {
    struct addr host;
    char name[RDZV_RUN_ID_MAX];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    client.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++)
        client.config.ports[i] = (uint16_t)(65535 - 2 * i);
    cr_assert_eq(addr_from_literal("fe80::1234:5678:9abc:def0", 1, &host), 0);
    client.n_addrs = client_spread_ports(&client, &host, 1);
    for (client.next_addr = 1; client.next_addr <= client.n_addrs; client.next_addr++) {
        name[0] = (char)('a' + client.next_addr - 1);
        client_note(&client, CLIENT_FOUND_OTHER_RUN, name);
    }
    cr_assert_lt(strlen(described()), sizeof text);
    cr_assert(strstr(text, "port 65505: an agent of the run 'pxxx") != NULL, "%s", text);
}

Test(client_ports_io, tells_ports_together_that_are_alike, .init = begin) {
    client.next_addr = 1;
    client_note_code(&client, 0, "");
    client.next_addr = 3;
    client_note_code(&client, -ECONNRESET, "");
    cr_assert_str_eq(described(),
                     "no leader at 10.0.0.1: ports 5,7: hung up (not muster?); nothing listens at port 6 yet");
    client.next_addr = 2;
    client_note_code(&client, -EPIPE, "");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: ports 5-7: hung up (not muster?)");
}

Test(client_ports_io, a_long_list_where_nothing_listens_is_counted, .init = begin) {
    struct addr host = client.addrs[0];
    client.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++)
        client.config.ports[i] = (uint16_t)(20001 + 7 * i);
    client.n_addrs = client_spread_ports(&client, &host, 1);
    client.next_addr = 2;
    client_note_code(&client, -ETIMEDOUT, "");
    client.welcomed_ns = 1;
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 20008: no answer (not muster, or a firewall); nothing "
                                  "listens at 15 ports (20001, ...) any more");
}

Test(client_ports_io, a_host_that_is_silent_at_all_ports_is_named_once, .init = begin) {
    (void)snprintf(client.config.host, sizeof client.config.host, "node1");
    for (client.next_addr = 1; client.next_addr <= 3; client.next_addr++)
        client_note_code(&client, -ETIMEDOUT, "");
    cr_assert_str_eq(described(), "no leader at node1 (10.0.0.1): no answer at any of its 3 ports; it is down, or a "
                                  "firewall is in the way");
    client.next_addr = 1;
    client_note_code(&client, -EHOSTUNREACH, "");
    cr_assert_str_eq(described(), "no leader at node1 (10.0.0.1): cannot connect to any of its 3 ports: No route to "
                                  "host");
    client.next_addr = 2;
    client_note_code(&client, -EPROTO, "");
    cr_assert(strstr(described(), "port 6: not muster") != NULL, "%s", text);
}
