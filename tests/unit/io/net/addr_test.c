#include "io/net/addr.h"

#include "rig/unit.h"

static struct addr literal(const char *host, uint16_t port) {
    struct addr a;
    cr_assert_eq(addr_from_literal(host, port, &a), 0, "%s", host);
    return a;
}

Test(addr, literals_come_back_as_text) {
    static const struct {
        const char *host;
        uint16_t port;
        const char *text, *host_text;
    } rows[] = {
        {"10.0.0.1", 80, "10.0.0.1:80", "10.0.0.1"},
        {"0.0.0.0", 0, "0.0.0.0:0", "0.0.0.0"},
        {"255.255.255.255", 65535, "255.255.255.255:65535", "255.255.255.255"},
        {"::1", 29400, "[::1]:29400", "::1"},
        {"[::1]", 29400, "[::1]:29400", "::1"},
        {"::", 1, "[::]:1", "::"},
        {"2001:DB8:0:0::1", 5, "[2001:db8::1]:5", "2001:db8::1"},
        {"::ffff:192.0.2.7", 9, "192.0.2.7:9", "192.0.2.7"},
        {"fe80::1%lo", 7, "[fe80::1%lo]:7", "fe80::1%lo"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char out[ADDR_TEXT_MAX];
        struct addr a = literal(rows[i].host, rows[i].port);
        addr_to_text(&a, out);
        cr_expect_str_eq(out, rows[i].text);
        addr_host_text(&a, out);
        cr_expect_str_eq(out, rows[i].host_text);
        cr_expect_eq(addr_port(&a), rows[i].port);
    }
}

Test(addr, what_is_not_a_literal_is_refused) {
    static const char *const bad[] = {
        "",
        "localhost",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.1:80",
        "[::1",
        "::1]",
        "[]",
        "1:2:3",
        "::1%",
        "::1%no-such-if0",
        "10.0.0.1 ",
        " ::1",
        "node1",
        "1.2.3.4%lo",
        "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee:ffff:0000:1111",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct addr a = {.len = 77};
        cr_expect_eq(addr_from_literal(bad[i], 1, &a), -EINVAL, "'%s'", bad[i]);
        cr_expect_eq(a.len, 77, "'%s' was written", bad[i]);
    }
}

/* A leader has three for each of its nodes. */
Test(addr, it_is_small) { cr_assert_leq(sizeof(struct addr), 32); }

Test(addr, the_port_can_be_changed) {
    struct addr four = literal("10.0.0.1", 1), six = literal("::1", 1);
    addr_set_port(&four, 29400);
    addr_set_port(&six, 65535);
    cr_assert_eq(addr_port(&four), 29400);
    cr_assert_eq(addr_port(&six), 65535);
}

Test(addr, loopback_and_wildcard_in_both_families) {
    static const struct {
        const char *host;
        bool loopback, wildcard;
    } rows[] = {
        {"127.0.0.1", true, false},        {"127.9.9.9", true, false}, {"::1", true, false},
        {"::ffff:127.0.0.1", true, false}, {"0.0.0.0", false, true},   {"::", false, true},
        {"::ffff:0.0.0.0", false, true},   {"10.0.0.1", false, false}, {"fd00::1", false, false},
        {"128.0.0.1", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct addr a = literal(rows[i].host, 1);
        cr_expect_eq(addr_is_loopback(&a), rows[i].loopback, "%s", rows[i].host);
        cr_expect_eq(addr_is_wildcard(&a), rows[i].wildcard, "%s", rows[i].host);
    }
}

Test(addr, same_host_looks_through_mapped_addresses_and_past_ports) {
    struct addr a = literal("10.0.0.1", 1), mapped = literal("::ffff:10.0.0.1", 2);
    struct addr other = literal("10.0.0.2", 1), six = literal("fd00::1", 1), six2 = literal("fd00::1", 9);
    cr_assert(addr_same_host(&a, &mapped));
    cr_assert(addr_same_host(&mapped, &a));
    cr_assert(addr_same_host(&six, &six2));
    cr_assert_not(addr_same_host(&a, &other));
    cr_assert_not(addr_same_host(&a, &six));
}

Test(addr, host_bytes_are_those_of_the_host_alone) {
    struct addr a = literal("10.0.0.1", 1), mapped = literal("::ffff:10.0.0.1", 2), six = literal("fd00::1", 3);
    static const uint8_t of_a[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    static const uint8_t of_six[] = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    uint8_t got[ADDR_HOST_BYTES];
    addr_host_bytes(&a, got);
    cr_assert_arr_eq(got, of_a, sizeof got);
    addr_host_bytes(&mapped, got);
    cr_assert_arr_eq(got, of_a, sizeof got);
    addr_host_bytes(&six, got);
    cr_assert_arr_eq(got, of_six, sizeof got);
}

Test(addr, this_machine_has_its_own_addresses_and_no_documentation_address) {
    struct addr lo = literal("127.0.0.1", 1), lo6 = literal("::1", 1);
    struct addr doc = literal("192.0.2.1", 1), doc6 = literal("2001:db8::1", 1);
    struct addr mapped = literal("::ffff:127.0.0.1", 1), doc_mapped = literal("::ffff:192.0.2.1", 1);
    cr_assert(addr_is_local(&mapped));
    cr_assert_not(addr_is_local(&doc_mapped));
    cr_assert(addr_is_local(&lo));
    cr_assert(addr_is_local(&lo6));
    cr_assert_not(addr_is_local(&doc)); /* RFC 5737, RFC 3849: assigned to no machine */
    cr_assert_not(addr_is_local(&doc6));
}

Test(addr, all_addresses_that_others_may_reach_are_listed) {
    struct addr all[64];
    size_t n = 99, fewer;
    cr_assert_eq(addr_all_global(all, ARRAY_SIZE(all), &n), 0);
    cr_assert_leq(n, ARRAY_SIZE(all));
    bool v6 = false;
    for (size_t i = 0; i < n; i++) {
        cr_assert(addr_is_local(&all[i]));
        cr_assert_not(addr_is_loopback(&all[i]));
        char text[ADDR_TEXT_MAX];
        addr_host_text(&all[i], text);
        cr_assert_null(strchr(text, '%'), "%s means something else on another machine", text);
        bool last_resort = strncmp(text, "169.254.", 8) == 0;
        cr_assert(!v6 || all[i].ss.ss_family == AF_INET6 || last_resort, "IPv4 comes first");
        v6 = v6 || all[i].ss.ss_family == AF_INET6;
    }
    cr_assert_eq(addr_all_global(all, 1, &fewer), 0);
    cr_assert_eq(fewer, n > 0 ? 1 : 0);
}

Test(addr, both_ends_of_a_connection_name_each_other) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct addr at = literal("127.0.0.1", 0), server, mine, theirs;
    cr_assert_eq(bind(listener, (struct sockaddr *)&at.ss, at.len), 0);
    cr_assert_eq(listen(listener, 1), 0);
    cr_assert_eq(addr_of_socket(listener, &server), 0);
    cr_assert_neq(addr_port(&server), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&server.ss, server.len), 0);
    cr_assert_eq(addr_of_socket(fd, &mine), 0);
    cr_assert_eq(addr_of_peer(fd, &theirs), 0);
    cr_assert_eq(addr_port(&theirs), addr_port(&server));
    cr_assert(addr_same_host(&theirs, &server));
    int accepted = accept(listener, NULL, NULL);
    cr_assert_eq(addr_of_peer(accepted, &theirs), 0);
    cr_assert_eq(addr_port(&theirs), addr_port(&mine));
    close(accepted);
    close(fd);
    cr_assert_eq(addr_of_peer(listener, &theirs), -ENOTCONN);
    close(listener);
    cr_assert_eq(addr_of_socket(listener, &mine), -EBADF);
}

Test(addr, a_list_has_the_addresses_that_fit) {
    struct addr a[] = {literal("10.0.0.1", 1), literal("fd00::2", 2), literal("10.0.0.3", 3)};
    char out[32];
    addr_to_list(a, 3, out, sizeof out);
    cr_assert_str_eq(out, "10.0.0.1,fd00::2,10.0.0.3");
    addr_to_list(a, 3, out, 12);
    cr_assert_str_eq(out, "10.0.0.1");
    addr_to_list(a, 0, out, sizeof out);
    cr_assert_str_eq(out, "");
}
