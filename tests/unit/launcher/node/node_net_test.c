#include "launcher/node/node_setup_io.h"

#include <sys/resource.h>

#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static char *no_env[] = {TEXT("HOME=/nowhere"), NULL};
static struct job_spec spec;
static struct form form;
static struct node_net net;
static struct loop *loop;
static struct node_discovery *way;

static struct node_setup_place place(uint32_t n_nodes, const char *store_host) {
    form = (struct form){.n_nodes = n_nodes, .log_nonce = 7};
    (void)snprintf(form.store_host, sizeof form.store_host, "%s", store_host);
    return (struct node_setup_place){.spec = &spec, .envp = no_env, .form = &form, .generation = {1, 1}};
}

static void on_discovered(void *arg) { loop_quit(arg); }

/* As the local workers do: first another process discovers what is needed. */
static int discovery(const struct node_setup_place *p, struct err *err) {
    struct node_setup_place place = *p;
    node_discovery_free(way);
    cr_assert_eq(node_net_discover(loop, p, &way, err), 0);
    if (way != NULL) {
        node_discovery_wait(way, on_discovered, loop);
        cr_assert_eq(loop_run(loop), 0);
    }
    place.way = way;
    return node_net_read(&place, &net, err);
}

static void init(void) {
    spec = (struct job_spec){.nccl_env = NCCL_ENV_FULL};
    cr_assert_eq(loop_new(&loop), 0);
}
static void fini(void) {
    node_discovery_free(way);
    loop_free(loop);
}
TestSuite(node_net, .init = init, .fini = fini);

Test(node_net, one_node_without_gpus_asks_nothing) {
    cr_assert_eq(discovery(AT(place(1, "127.0.0.1")), NULL), 0);
    cr_assert_null(way);
    cr_assert_not(net.has_netif || net.ras_port != 0 || net.comm_id[0] != '\0');
}

Test(node_net, nodes_on_one_host_ask_nothing) {
    cr_assert_eq(discovery(AT(place(3, "::1")), NULL), 0);
    cr_assert_null(way);
    cr_assert_not(net.has_netif);
}

Test(node_net, several_nodes_choose_an_interface_unless_it_is_off) {
    struct node_setup_place p = place(2, "198.51.100.7");
    cr_assert_eq(discovery(&p, NULL), 0);
    cr_assert(net.has_netif);
    cr_assert_not_null(node_discovery_found(way)->facts);
    cr_assert_gt(node_discovery_found(way)->topology->n_netifs, 0u);
    cr_assert_neq(net.netif.why[0], '\0');
    spec.nccl_env = NCCL_ENV_OFF;
    cr_assert_eq(discovery(&p, NULL), 0);
    cr_assert_null(way);
    cr_assert_not(net.has_netif);
}

Test(node_net, nothing_is_asked_by_who_reads) {
    cr_assert_eq(node_net_read(AT(place(2, "198.51.100.7")), &net, NULL), 0);
    cr_assert(net.has_netif);
    cr_assert_str_eq(net.netif.netif, "", "nobody has looked");
}

Test(node_net, a_ras_port_with_gpus) {
    cr_assert_eq(discovery(WITH(place(1, "127.0.0.1"), .any_gpu = true), NULL), 0);
    cr_assert_gt(net.ras_port, 0u);
}

Test(node_net, a_comm_id_is_the_same_on_all_nodes_and_new_each_time) {
    char first[sizeof net.comm_id];
    struct err err = {0};
    spec.nccl_comm_id = true;
    struct node_setup_place p = place(2, "127.0.0.1");
    cr_assert_eq(discovery(&p, &err), 0, "%s", err.text);
    memcpy(first, net.comm_id, sizeof first);
    cr_assert_eq(strncmp(first, "127.0.0.1:", 10), 0, "%s", first);
    form.node_rank = 1;
    cr_assert_eq(discovery(&p, &err), 0);
    cr_assert_str_eq(net.comm_id, first);
    p.generation.counter = 2;
    cr_assert_eq(discovery(&p, &err), 0);
    cr_assert_str_neq(net.comm_id, first);
    p = place(2, "::1");
    cr_assert_eq(discovery(&p, &err), 0);
    cr_assert_eq(strncmp(net.comm_id, "[::1]:", 6), 0, "%s", net.comm_id);
}

Test(node_net, a_comm_id_needs_rank_0_where_the_store_is) {
    struct err err = {0};
    spec.nccl_comm_id = true;
    struct node_setup_place p = place(2, "198.51.100.7");
    cr_assert_lt(discovery(&p, &err), 0);
    assert_has(err.text, "--node-rank=0");
    form.node_rank = 1;
    cr_assert_eq(discovery(&p, &err), 0);
}

static struct rlimit limit_of(__rlimit_resource_t which) {
    struct rlimit l;
    cr_assert_eq(getrlimit(which, &l), 0);
    return l;
}

static void set_limit(__rlimit_resource_t which, rlim_t soft, rlim_t hard) {
    cr_assert_eq(setrlimit(which, &(struct rlimit){soft, hard}), 0);
}

static void lower_limits(void) {
    set_limit(RLIMIT_MEMLOCK, 4096, 1 << 20);
    set_limit(RLIMIT_NOFILE, 256, 1024);
    set_limit(RLIMIT_STACK, 1 << 20, 4 << 20);
}

Test(node_net, who_may_raises_the_hard_limits_too) {
    lower_limits();
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){256, 2048}) < 0)
        cr_skip_test("needs CAP_SYS_RESOURCE");
    lower_limits();
    node_raise_limits();
    cr_assert_eq(limit_of(RLIMIT_MEMLOCK).rlim_cur, RLIM_INFINITY);
    cr_assert_eq(limit_of(RLIMIT_NOFILE).rlim_cur, 131072u);
    cr_assert_eq(limit_of(RLIMIT_STACK).rlim_cur, 8u << 20);
}

Test(node_net, others_raise_limits_as_far_as_is_allowed) {
    lower_limits();
    const uid_t own = geteuid();
    if (own == 0)
        cr_assert_eq(seteuid(65534), 0); /* and without its capabilities */
    node_raise_limits();
    cr_assert_eq(seteuid(own), 0);
    cr_assert_eq(limit_of(RLIMIT_MEMLOCK).rlim_cur, 1u << 20);
    cr_assert_eq(limit_of(RLIMIT_NOFILE).rlim_cur, 1024u);
    cr_assert_eq(limit_of(RLIMIT_STACK).rlim_cur, 4u << 20);
}

Test(node_net, limits_that_are_high_enough_stay) {
    set_limit(RLIMIT_STACK, RLIM_INFINITY, RLIM_INFINITY);
    node_raise_limits();
    cr_assert_eq(limit_of(RLIMIT_STACK).rlim_cur, RLIM_INFINITY);
}
