/* Neighbours on other machines, without another machine: addresses of "local" routes belong to the kernel, but no
 * interface has them. */
#include "launcher/preflight/ring_probe_io.h"

#include "../../topology/discover/net/netns_rig.h"
#include "io/net/listen.h"
#include "rendezvous/server/server_io.h"
#include "rig/loop_rig.h"

#define ALL (RING_WAY_V4 | RING_WAY_V6)

static struct loop *loop;
static struct rdzv_listener *listener;
static struct rdzv_net own[RDZV_NETS_MAX];
static struct rdzv_neighbour to;
static struct topology netifs;
static struct ring_answer answer;
static unsigned answers;

static void on_answer(void *arg, const struct ring_answer *a) {
    answer = *a;
    answers++;
    loop_quit(loop);
}

/* 10.7/16 and fd07::/64 are reached, the routes refuse 10.8/16, and 10.6/16 drops everything. The neighbour's agent
 * listens at all addresses. */
static void begin(void) {
    struct addr at;
    int fd;
    netns_enter(false);
    IP("route add local 10.7.0.0/16 dev lo");
    IP("-6 route add local fd07::/64 dev lo");
    IP("addr add fd07::1/128 dev lo"); /* as a source, IPv6 needs the address on an interface */
    IP("addr add fd07::1:1/128 dev lo");
    IP("link add d0 type veth peer name d1");
    IP("link set d1 up");
    IP("link set d0 up arp off");
    IP("route add 10.6.0.0/16 dev d0");
    IP("route add blackhole 10.8.0.0/16");
    struct rdzv_listener_config config = {.incarnation = 42, .run_id = "r"};
    cr_assert_eq(loop_new(&loop), 0);
    listener = rdzv_listener_new(loop, &config);
    cr_assert_eq(addr_from_literal("::", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, NULL), 0);
    cr_assert_eq(addr_of_socket(fd, &at), 0);
    rdzv_listener_add(listener, fd);
    to = (struct rdzv_neighbour){.incarnation = 42, .host = "b", .listener_port = addr_port(&at)};
}

static void finish(void) {
    topology_fini(&netifs);
    rdzv_listener_free(listener);
    loop_free(loop);
}

static void set(struct rdzv_net *n, const char *netif, const char *addrs) {
    (void)snprintf(n->netif, sizeof n->netif, "%s", netif);
    (void)snprintf(n->addrs, sizeof n->addrs, "%s", addrs);
}

static void probe(const char *own_addrs, const char *addrs, const char *own_fast, const char *fast) {
    struct ring_own from = {.host = "a", .netifs = &netifs, .nets = own};
    set(&own[RING_NET], "eth0", own_addrs);
    set(&own[RING_FAST], "ib0", own_fast);
    set(&to.nets[RING_NET], "eth1", addrs);
    set(&to.nets[RING_FAST], "ib1", fast);
    answers = 0;
    cr_assert_not_null(ring_probe_start(loop, &from, &to, on_answer, NULL));
    cr_assert_eq(answers, 0, "never from inside");
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(answers, 1);
}

static void check(enum ring_result result, uint32_t reachability, bool fast_failed, const char *text) {
    cr_assert_eq(answer.result, result, "%d: %s", answer.result, answer.text);
    cr_assert_eq(answer.reachability, reachability, "%x: %s", answer.reachability, answer.text);
    cr_assert_eq(answer.fast_failed, fast_failed, "%s", answer.text);
    cr_assert_str_eq(answer.text, text);
}

Test(ring_probe_io, all_reachability_that_lead_there_are_told, .init = begin, .fini = finish) {
    probe("10.7.0.1,fd07::1", "10.7.0.2,fd07::2", "", "");
    check(RING_REACHED, ALL, false, "");
    probe("10.7.0.1", "10.7.0.2", "10.7.1.1,fd07::1:1", "10.7.1.2,fd07::1:2");
    check(RING_REACHED, RING_WAY_V4 | RING_WAY_FAST_V4 | RING_WAY_FAST_V6, false, "");
    probe("fd07::1", "fd07::2", "10.7.1.1", "10.7.1.2,fd07::1:2");
    check(RING_REACHED, RING_WAY_V6 | RING_WAY_FAST_V4, false, "");
    probe("10.7.0.1", "10.7.0.2", "10.7.1.1", "");
    check(RING_REACHED, RING_WAY_V4, false, "");
    probe("10.7.0.1", "10.7.0.2", "fd07::1:1", "10.7.1.2");
    check(RING_REACHED, RING_WAY_V4, false, "");
}

Test(ring_probe_io, from_anywhere_where_no_interface_was_chosen, .init = begin, .fini = finish) {
    probe("", "10.7.0.2,fd07::2", "", "");
    check(RING_REACHED, ALL, false, "");
}

Test(ring_probe_io, the_other_family_is_a_way_of_its_own, .init = begin, .fini = finish) {
    probe("10.7.0.1,fd07::1", "10.8.0.2,fd07::2", "", "");
    check(RING_OTHER_FAMILY, RING_WAY_V6, false,
          "a (10.7.0.1 on eth0) can't reach b (10.8.0.2 on eth1): this side's routes have no way there; it does from "
          "fd07::1 to fd07::2 (NCCL_SOCKET_FAMILY=AF_INET6, if all do)");
    probe("10.7.0.1", "fd07::2,10.7.0.2", "", "");
    check(RING_OTHER_FAMILY, RING_WAY_V4, false,
          "a (10.7.0.1 on eth0) can't reach b (fd07::2 on eth1): there is no IPv6 address on this side; it does from "
          "10.7.0.1 to 10.7.0.2 (NCCL_SOCKET_FAMILY=AF_INET, if all do)");
    probe("10.7.0.1,fd07::1", "10.7.0.2,2001:db8::2", "", "");
    check(RING_REACHED, RING_WAY_V4, false, "");
}

Test(ring_probe_io, a_pair_that_can_not_talk_is_named, .init = begin, .fini = finish) {
    probe("10.7.0.1", "10.8.0.2", "", "");
    check(RING_BLOCKED, 0, false,
          "a (10.7.0.1 on eth0) can't reach b (10.8.0.2 on eth1): this side's routes have no way there");
    probe("10.7.0.1", "fd07::2", "", "");
    check(RING_BLOCKED, 0, false,
          "a (10.7.0.1 on eth0) can't reach b (fd07::2 on eth1): there is no IPv6 address on this side");
    to.incarnation = 43;
    probe("", "10.7.0.2", "", "");
    check(RING_BLOCKED, 0, false,
          "a (any address on eth0) can't reach b (10.7.0.2 on eth1): another agent answers there");
    rdzv_listener_free(listener);
    listener = NULL;
    probe("10.7.0.1", "10.7.0.2", "", "");
    check(RING_BLOCKED, 0, false, "a (10.7.0.1 on eth0) can't reach b (10.7.0.2 on eth1): nothing listens there");
}

Test(ring_probe_io, silence_has_an_end, .init = begin, .fini = finish) {
    IP("addr add 10.6.0.1/32 dev d0");
    probe("10.6.0.1,fd07::1", "10.6.0.2,fd07::2", "", "");
    check(
        RING_OTHER_FAMILY, RING_WAY_V6, false,
        "a (10.6.0.1 on eth0) can't reach b (10.6.0.2 on eth1): no answer within 2 s; it does from fd07::1 to fd07::2 "
        "(NCCL_SOCKET_FAMILY=AF_INET6, if all do)");
}

/* A faster network is optional: its failure is not a failure of the pair. */
Test(ring_probe_io, a_faster_network_that_is_cut_is_told_and_does_no_harm, .init = begin, .fini = finish) {
    probe("10.7.0.1", "10.7.0.2", "10.7.1.1", "10.8.1.2");
    check(RING_REACHED, RING_WAY_V4, true,
          "a (10.7.1.1 on ib0) can't reach b (10.8.1.2 on ib1): this side's routes have no way there");
    IP("addr add 10.6.1.1/32 dev d0");
    probe("10.7.0.1", "10.7.0.2", "10.6.1.1", "10.6.1.2");
    check(RING_REACHED, RING_WAY_V4, true,
          "a (10.6.1.1 on ib0) can't reach b (10.6.1.2 on ib1): no answer within 0.5 s");
    probe("10.7.0.1", "10.7.0.2", "10.7.1.1,fd07::1:1", "10.8.1.2,fd07::1:2");
    check(RING_REACHED, RING_WAY_V4 | RING_WAY_FAST_V6, false, "");
    probe("10.7.0.1", "10.8.0.2", "10.7.1.1", "10.7.1.2");
    check(RING_BLOCKED, RING_WAY_FAST_V4, false,
          "a (10.7.0.1 on eth0) can't reach b (10.8.0.2 on eth1): this side's routes have no way there");
}

Test(ring_probe_io, a_neighbour_on_this_machine_is_not_tried, .init = begin, .fini = finish) {
    rdzv_listener_free(listener);
    listener = NULL;
    struct topo_netif *n = topology_add_netif(&netifs);
    n->addrs[n->n_addrs++] = (struct topo_netaddr){.addr = "10.9.0.1"};
    n->addrs[n->n_addrs++] = (struct topo_netaddr){.addr = "fd09::1", .ipv6 = true};
    probe("10.9.0.1,fd09::1", "10.9.0.1,fd09::1", "10.9.0.1", "10.9.0.1");
    check(RING_SKIPPED, ALL | RING_WAY_FAST_V4, false, "");
    probe("10.9.0.1", "10.9.0.1,fd09::1", "", "10.9.0.1");
    check(RING_SKIPPED, RING_WAY_V4, false, "");
    probe("10.9.0.1", "127.0.0.1", "", "");
    check(RING_SKIPPED, RING_WAY_V4, false, "");
}

Test(ring_probe_io, a_neighbour_that_names_no_address_is_not_tried, .init = begin, .fini = finish) {
    probe("10.7.0.1,fd07::1", "", "10.7.1.1", "");
    check(RING_SKIPPED, 0, false, "");
}

Test(ring_probe_io, one_that_is_given_up_says_nothing, .init = begin, .fini = finish) {
    struct ring_own from = {.host = "a", .nets = own};
    struct ring_probe *p;
    set(&own[RING_NET], "eth0", "10.7.0.1,fd07::1");
    set(&to.nets[RING_NET], "eth1", "10.7.0.2,fd07::2");
    answers = 0;
    p = ring_probe_start(loop, &from, &to, on_answer, NULL);
    ring_probe_free(p);
    ring_probe_free(NULL);
    rig_loop_turns(loop, 10);
    cr_assert_eq(answers, 0);
}
