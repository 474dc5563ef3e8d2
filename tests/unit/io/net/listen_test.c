#include "io/net/listen.h"

#include <sys/resource.h>

#include "rig/loop_rig.h"

static struct loop *loop;
static struct listener *listener;
static int accepted[256], clients[4]; /* closed at the end */
static size_t n_accepted, n_clients, quit_at;
static bool free_in_callback;

static void on_accept(void *arg, int fd, const struct addr *peer) {
    cr_assert(addr_is_loopback(peer));
    accepted[n_accepted++] = fd;
    if (free_in_callback) {
        listener_free(listener);
        listener = NULL;
    }
    if (n_accepted == quit_at)
        loop_quit(loop);
}

static void on_quit_time(void *arg) { loop_quit(arg); }

/* Returns the port. */
static uint16_t listen_at(const char *host) {
    struct addr at;
    struct err err = {0};
    int fd;
    cr_assert_eq(addr_from_literal(host, 0, &at), 0);
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(listen_socket(&at, 128, &fd, &err), 0, "%s", err.text);
    listener = listener_new(loop, fd, on_accept, NULL);
    cr_assert_eq(listener_addr(listener, &at), 0);
    cr_assert_neq(addr_port(&at), 0);
    return addr_port(&at);
}

/* 0 or a negative errno. */
static int connect_to(const char *host, uint16_t port) {
    struct addr to;
    cr_assert_eq(addr_from_literal(host, port, &to), 0);
    int fd = clients[n_clients++] = socket(to.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    return connect(fd, (struct sockaddr *)&to.ss, to.len) < 0 ? -errno : 0;
}

static void connect_twice(uint16_t port) {
    for (int i = 0; i < 2; i++)
        cr_assert_eq(connect_to("127.0.0.1", port), 0);
}

static void run_until(size_t n) {
    quit_at = n;
    if (n_accepted < n)
        rig_loop_run(loop);
}

static void end_all(void) {
    for (size_t i = 0; i < n_accepted; i++)
        (void)close(accepted[i]);
    for (size_t i = 0; i < n_clients; i++)
        (void)close(clients[i]);
    listener_free(listener);
    loop_free(loop);
}

TestSuite(listen, .fini = end_all);

Test(listen, accepts_what_connects) {
    connect_twice(listen_at("127.0.0.1"));
    run_until(2);
    cr_assert(fcntl(accepted[0], F_GETFD) & FD_CLOEXEC);
}

Test(listen, any_address_is_both_families) {
    uint16_t port = listen_at("::");
    cr_assert_eq(connect_to("127.0.0.1", port), 0);
    cr_assert_eq(connect_to("::1", port), 0);
    run_until(2);
}

Test(listen, one_address_is_only_that_one) {
    uint16_t port = listen_at("127.0.0.1");
    cr_assert_eq(connect_to("::1", port), -ECONNREFUSED);
    cr_assert_eq(connect_to("127.0.0.2", port), -ECONNREFUSED);
}

Test(listen, says_what_is_wrong_with_an_address) {
    uint16_t port = listen_at("127.0.0.1");
    struct addr at;
    struct err err = {0};
    int fd;
    cr_assert_eq(addr_from_literal("127.0.0.1", port, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, &err), -EADDRINUSE);
    assert_has(err.text, "another process listens there");
    cr_assert_eq(addr_from_literal("192.0.2.1", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, &err), -EADDRNOTAVAIL);
    assert_has(err.text, "192.0.2.1:0");
}

Test(listen, may_be_freed_in_its_own_callback) {
    connect_twice(listen_at("127.0.0.1"));
    free_in_callback = true;
    run_until(1);
}

Test(listen, paused_accepts_nothing_until_retried) {
    uint16_t port = listen_at("127.0.0.1");
    listener_pause(listener);
    cr_assert_eq(connect_to("127.0.0.1", port), 0);
    rig_loop_turns(loop, 5);
    cr_assert_eq(n_accepted, 0);
    listener_retry(listener);
    run_until(1);
}

Test(listen, out_of_descriptors_waits_and_goes_on_by_itself) {
    connect_twice(listen_at("127.0.0.1"));
    int spare = dup(0);
    struct rlimit old, low;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){.rlim_cur = (rlim_t)spare, .rlim_max = old.rlim_max};
    (void)close(spare); /* now the lowest free number is just above the limit */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    unsigned turns = 0;
    uint64_t until = clock_now_ns() + 50 * NS_PER_MS;
    struct loop_timer *stop = loop_timer_new(loop, on_quit_time, loop);
    loop_timer_set(stop, until);
    while (clock_now_ns() < until) {
        rig_loop_run(loop);
        turns++;
    }
    loop_timer_free(stop);
    cr_assert_eq(n_accepted, 0);
    cr_assert_leq(turns, 2, "no busy loop");
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    run_until(2);
}

/* The first and the last of a few ports in a row that are free now. */
static uint16_t free_row(unsigned n) {
    for (unsigned low = 20000 + (unsigned)getpid() % 1000 * 10;; low += n) {
        int fds[8];
        unsigned i = 0;
        struct addr at;
        for (; i < n; i++)
            if (addr_from_literal("127.0.0.1", (uint16_t)(low + i), &at) < 0 ||
                listen_socket(&at, 1, &fds[i], NULL) < 0)
                break;
        for (unsigned k = 0; k < i; k++)
            (void)close(fds[k]);
        if (i == n)
            return (uint16_t)low;
        cr_assert_lt(low, 60000u);
    }
}

Test(listen, the_last_ports_of_the_range_are_chosen_last) {
    struct addr at;
    uint16_t low = free_row(4), last[] = {low, (uint16_t)(low + 2), (uint16_t)(low + 3)};
    int fds[4];
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    listen_set_range(low, (uint16_t)(low + 3));
    listen_set_last(last, 3);
    for (int round = 0; round < 8; round++) {
        struct addr own;
        for (size_t i = 0; i < 4; i++) {
            cr_assert_eq(listen_socket(&at, 1, &fds[i], NULL), 0);
            cr_assert_eq(addr_of_socket(fds[i], &own), 0);
            cr_assert_eq(addr_port(&own) == low + 1, i == 0, "%u", addr_port(&own));
        }
        for (size_t i = 0; i < 4; i++)
            (void)close(fds[i]);
    }
    listen_set_last(last, 0);
    listen_set_range(0, 0);
}

Test(listen, any_port_is_one_of_the_range) {
    uint16_t low = free_row(3);
    int fds[3], more;
    unsigned seen = 0;
    struct addr any, at;
    struct err err = {0};
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &any), 0);
    listen_set_range(low, (uint16_t)(low + 2));
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(listen_socket(&any, 1, &fds[i], NULL), 0);
        cr_assert_eq(addr_of_socket(fds[i], &at), 0);
        cr_assert(addr_port(&at) >= low && addr_port(&at) <= low + 2);
        seen |= 1u << (addr_port(&at) - low);
    }
    cr_assert_eq(seen, 7);
    cr_assert_eq(listen_socket(&any, 1, &more, &err), -EADDRINUSE);
    assert_has(err.text, "give a larger --port-range");
    listen_set_range(0, 0);
    cr_assert_eq(listen_socket(&any, 1, &more, &err), 0);
    (void)close(more);
    for (unsigned i = 0; i < 3; i++)
        (void)close(fds[i]);
}
