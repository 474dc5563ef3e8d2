#include "io/net/port_owner.h"

#include "io/net/listen.h"
#include "rig/unit.h"

static int listen_there(const char *host, struct addr *ret) {
    int fd;
    cr_assert_eq(addr_from_literal(host, 0, ret), 0);
    cr_assert_eq(listen_socket(ret, 1, &fd, NULL), 0);
    cr_assert_eq(addr_of_socket(fd, ret), 0);
    return fd;
}

static void assert_mine(const char *listens_on, const char *asked) {
    struct addr at;
    int fd = listen_there(listens_on, &at);
    uint16_t port = addr_port(&at);
    cr_assert_eq(addr_from_literal(asked, port, &at), 0);
    struct port_owner o = port_owner_find(&at);
    cr_assert(o.listens);
    cr_assert_eq(o.pid, getpid());
    cr_assert(o.muster, "it is this very program");
    (void)close(fd);
    cr_assert_not(port_owner_find(&at).listens);
}

Test(port_owner, of_the_same_address) { assert_mine("127.0.0.1", "127.0.0.1"); }
Test(port_owner, of_ipv6) { assert_mine("::1", "::1"); }
Test(port_owner, any_address_is_in_the_way_of_one) { assert_mine("::", "127.0.0.1"); }
Test(port_owner, one_address_is_in_the_way_of_any) { assert_mine("127.0.0.1", "::"); }

Test(port_owner, other_addresses_are_not_in_the_way) {
    struct addr at;
    int fd = listen_there("127.0.0.1", &at);
    uint16_t port = addr_port(&at);
    cr_assert_eq(addr_from_literal("127.0.0.2", port, &at), 0);
    cr_assert_not(port_owner_find(&at).listens);
    cr_assert_eq(addr_from_literal("127.0.0.1", (uint16_t)(port ^ 1), &at), 0);
    cr_assert_not(port_owner_find(&at).listens);
    (void)close(fd);
}

Test(port_owner, as_text) {
    struct addr at;
    cr_assert_eq(addr_from_literal("127.0.0.1", 80, &at), 0);
    const struct {
        struct port_owner owner;
        const char *text;
    } cases[] = {
        {{.listens = true, .pid = 7, .name = "nginx"},
         "another program, not muster, listens on 127.0.0.1:80: nginx, pid 7"},
        {{.listens = true, .pid = 7, .name = "muster", .muster = true},
         "another agent of muster listens on 127.0.0.1:80: muster, pid 7"},
        {{.listens = true}, "another process, of another user, listens on 127.0.0.1:80"},
        {{.pid = 0}, "another process listens on 127.0.0.1:80"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = port_owner_text(&cases[i].owner, &at);
        cr_assert_str_eq(text, cases[i].text);
        free(text);
    }
}
