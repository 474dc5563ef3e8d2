#include "rendezvous/protocol/endpoint_io.h"

#include "rig/unit.h"

static bool is_here(int is_host, const char *host) {
    struct addr a[RESOLVE_ADDRS_MAX];
    size_t n = 0;
    if (resolve_now(host, 0, a, &n) != 0)
        n = 0;
    return endpoint_is_here(is_host, host, a, n);
}

Test(endpoint_io, the_host_is_known_by_every_address_and_name_it_has) {
    char own[256] = "";
    cr_assert_eq(gethostname(own, sizeof own - 1), 0);
    cr_assert(is_here(-1, own));
    cr_assert(is_here(-1, "localhost"));
    cr_assert(is_here(-1, "127.0.0.1"));
    cr_assert(is_here(-1, "127.8.9.10"));
    cr_assert(is_here(-1, "::1"));
    cr_assert(is_here(-1, "::ffff:127.0.0.1"));
    cr_assert(is_here(-1, "0.0.0.0"));
    struct addr global;
    size_t n;
    if (addr_all_global(&global, 1, &n) == 0 && n > 0) {
        char text[ADDR_TEXT_MAX];
        addr_host_text(&global, text);
        cr_assert(is_here(-1, text), "%s", text);
        /* A name that stands for one of its addresses. */
        cr_assert(endpoint_is_here(-1, "alias", &global, 1));
    }
}

Test(endpoint_io, others_are_not_here) {
    cr_assert_not(is_here(-1, "192.0.2.1")); /* RFC 5737: for documentation */
    cr_assert_not(is_here(-1, "2001:db8::1"));
    cr_assert_not(is_here(-1, "some.other.host"));
    struct addr a;
    cr_assert_eq(addr_from_literal("192.0.2.1", 1, &a), 0);
    cr_assert_not(endpoint_is_here(-1, "other", &a, 1));
}

Test(endpoint_io, the_users_word_settles_it) {
    cr_assert(is_here(1, "192.0.2.1"));
    cr_assert_not(is_here(0, "localhost"));
    cr_assert_not(is_here(0, "127.0.0.1"));
}

static void check_bind(const char *host, const char *wanted) {
    struct addr a;
    char text[ADDR_TEXT_MAX];
    endpoint_bind_addr(host, 29400, &a);
    addr_to_text(&a, text);
    cr_assert_str_eq(text, wanted, "%s: %s", host, text);
}

Test(endpoint_io, only_what_was_asked_for_is_bound) {
    check_bind("localhost", "127.0.0.1:29400");
    check_bind("127.0.0.1", "127.0.0.1:29400");
    check_bind("::1", "[::1]:29400");
    check_bind("some.host", "[::]:29400");
    check_bind("192.0.2.1", "[::]:29400"); /* not ours, and yet we shall host it: a NAT */
}

Test(endpoint_io, the_own_agent_reaches_what_is_bound) {
    static const char *const hosts[] = {"localhost", "127.0.0.1", "some.host"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct err err = {0};
        int fd;
        cr_assert_eq(endpoint_listen(hosts[i], 0, &fd, &err), 0, "%s", err.text);
        struct addr to;
        cr_assert_eq(endpoint_own_addr(fd, &to), 0);
        cr_assert(addr_is_loopback(&to) && addr_port(&to) != 0);
        int c = socket(to.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(connect(c, (struct sockaddr *)&to.ss, to.len), 0, "%s", hosts[i]);
        (void)close(c);
        (void)close(fd);
    }
}

Test(endpoint_io, a_port_that_is_taken_is_said) {
    int fd, second;
    cr_assert_eq(endpoint_listen("127.0.0.1", 0, &fd, NULL), 0);
    struct addr at;
    cr_assert_eq(addr_of_socket(fd, &at), 0);
    struct err err = {0};
    cr_assert_eq(endpoint_listen("127.0.0.1", addr_port(&at), &second, &err), -EADDRINUSE);
    assert_has(err.text, "127.0.0.1:");
    (void)close(fd);
}
