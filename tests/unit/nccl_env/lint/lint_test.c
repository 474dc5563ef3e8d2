#include "nccl_env/lint/lint.h"

#include "../node_rig.h"
#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

static struct rig r;
static struct strbuf said;
static void init(void) { rig_init(&r); }
static void fini(void) {
    rig_fini(&r);
    strbuf_fini(&said);
}
TestSuite(lint, .init = init, .fini = fini);

static void report(void *arg, const char *text) { strbuf_printf(&said, "%s\n", text); }

static const char *lint(const char *name, const char *value) {
    strbuf_clear(&said);
    _cleanup_(freep) char *item = xasprintf("%s=%s", name, value);
    nccl_lint_all((char *[]){item, NULL}, NULL, &r.t, report, NULL);
    return strbuf_text(&said);
}

#define BAD(name, value, part) \
    cr_assert_not_null(strstr(lint(name, value), part), "%s=%s: %s", name, value, lint(name, value))
#define GOOD(name, value) cr_assert_str_eq(lint(name, value), "", "%s=%s", name, value)

static void interfaces(void) {
    rig_netif(&r, "lo", "127.0.0.1");
    rig_netif(&r, "docker0", "172.17.0.1");
    rig_netif(&r, "eth1", "10.0.0.2");
    rig_netif(&r, "eth10", "10.1.0.2");
    rig_netif(&r, "eth2", "fe80::2");
    rig_netif(&r, "eth3", "10.3.0.2")->running = false;
    rig_netif(&r, "eth4", NULL);
}

Test(lint, an_exclude_list_replaces_nccls_own) {
    BAD("NCCL_SOCKET_IFNAME", "^docker0", "lo is used again");
    BAD("NCCL_SOCKET_IFNAME", "^=docker0", "lo is used again");
    GOOD("NCCL_SOCKET_IFNAME", "^docker,lo");
    GOOD("NCCL_SOCKET_IFNAME", "^=lo,docker0");
    interfaces();
    BAD("NCCL_SOCKET_IFNAME", "^lo", "does not exclude docker0");
    GOOD("NCCL_SOCKET_IFNAME", "^lo,docker");
}

Test(lint, interfaces_that_are_not_there_or_not_meant) {
    GOOD("NCCL_SOCKET_IFNAME", "eth7"); /* the node's interfaces are not known */
    interfaces();
    BAD("NCCL_SOCKET_IFNAME", "eth7", "no interface eth7");
    BAD("NCCL_SOCKET_IFNAME", "=eth", "no interface eth");
    BAD("NCCL_SOCKET_IFNAME", "eth1", "means eth10 too; =eth1");
    GOOD("NCCL_SOCKET_IFNAME", "=eth1");
    GOOD("NCCL_SOCKET_IFNAME", "=eth1,eth10");
    BAD("NCCL_SOCKET_IFNAME", "=eth2", "no address");
    BAD("NCCL_SOCKET_IFNAME", "=eth3", "down");
    BAD("NCCL_SOCKET_IFNAME", "=eth4", "no address");
    BAD("NCCL_SOCKET_IFNAME", "docker0", "virtual interface");
    BAD("NCCL_SOCKET_IFNAME", "e", "ignores");
    BAD("NCCL_SOCKET_IFNAME", "eth1, eth10", "blank");
    BAD("NCCL_SOCKET_IFNAME", "\"eth1\"", "quotes");
}

Test(lint, gloo_knows_plain_names_only) {
    interfaces();
    BAD("GLOO_SOCKET_IFNAME", "=eth1", "plain names");
    BAD("GLOO_SOCKET_IFNAME", "^lo", "plain names");
    BAD("GLOO_SOCKET_IFNAME", "eth", "no interface eth");
    GOOD("GLOO_SOCKET_IFNAME", "eth1");
    BAD("TP_SOCKET_IFNAME", "eth7", "no interface");
}

Test(lint, hcas_by_their_beginning) {
    GOOD("NCCL_IB_HCA", "mlx5_1"); /* no HCA is known */
    rig_gpus(&r, 11, TOPO_LINK_INFINIBAND, 400);
    BAD("NCCL_IB_HCA", "mlx5_1", "means mlx5_10 too");
    BAD("NCCL_IB_HCA", "^mlx5_1", "means mlx5_10 too");
    GOOD("NCCL_IB_HCA", "=mlx5_1,mlx5_2:1");
    GOOD("NCCL_IB_HCA", "mlx5");
    BAD("NCCL_IB_HCA", "=mlx5_1,mlx4_0", "no HCA mlx4_0");
    BAD("NCCL_IB_HCA", "=mlx5_1, mlx5_2", "blank");
    r.t.nics[3].ports[0].state = TOPO_PORT_DOWN;
    BAD("NCCL_IB_HCA", "=mlx5_3", "no ACTIVE port");
}

Test(lint, more_hcas_than_nccl_takes) {
    for (int i = 0; i < 33; i++) {
        rig_nic(&r, rig_text("ib%d", i), TOPO_LINK_INFINIBAND, 100);
    }
    BAD("NCCL_IB_HCA", "ib", "33 HCAs");
}

Test(lint, what_stands_at_a_gid_index) {
    rig_gpus(&r, 1, TOPO_LINK_ETHERNET, 200);
    GOOD("NCCL_IB_GID_INDEX", "3"); /* no GID is known */
    rig_gid(&r.t.nics[0], 0, TOPO_GID_ROCE_V1, "v4");
    rig_gid(&r.t.nics[0], 1, TOPO_GID_ROCE_V2, "link-local");
    rig_gid(&r.t.nics[0], 3, TOPO_GID_ROCE_V2, "v4");
    GOOD("NCCL_IB_GID_INDEX", "3");
    GOOD("NCCL_IB_GID_INDEX", "-1");
    BAD("NCCL_IB_GID_INDEX", "0", "RoCE v1");
    BAD("NCCL_IB_GID_INDEX", "1", "link-local");
    BAD("NCCL_IB_GID_INDEX", "5", "nothing at this index");
}

Test(lint, levels_are_words) {
    static const char *const names[] = {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        BAD(names[i], "5", "old form");
        BAD(names[i], "NODE", "is not a level");
        BAD(names[i], "LOC", "debugging");
    }
    GOOD("NCCL_NET_GDR_LEVEL", "PXB");
    GOOD("NCCL_NET_GDR_LEVEL", "sys");
}

Test(lint, debugging_that_was_left_on) {
    static const char *const names[] = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "CUDA_LAUNCH_BLOCKING"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        BAD(names[i], "1", "debugging");
        GOOD(names[i], "0");
    }
    BAD("NCCL_DEBUG", "DEBUG", "is not a level");
    BAD("NCCL_DEBUG", "TRACE", "every operation");
    GOOD("NCCL_DEBUG", "INFO");
    GOOD("NCCL_IB_DISABLE", "1");
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    BAD("NCCL_IB_DISABLE", "1", "mlx5_0 is ACTIVE");
    GOOD("NCCL_IB_DISABLE", "0");
}

Test(lint, names_that_are_gone) {
    static const char *const names[] = {"NCCL_IB_CUDA_SUPPORT", "NCCL_CHECKS_DISABLE",       "NCCL_TREE_THRESHOLD",
                                        "NCCL_LL_THRESHOLD",    "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT",
                                        "NCCL_MAX_NRINGS"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_neq(lint(names[i], "1")[0], '\0', "%s", names[i]);
    GOOD("NCCL_MAX_NCHANNELS", "16");
}

Test(lint, forms_of_values) {
    BAD("NCCL_DEBUG_FILE", "~/nccl.log", "whole path");
    BAD("NCCL_DEBUG_FILE", "/tmp/nccl.log", "%h.%p");
    GOOD("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p.log");
    BAD("NCCL_BUFFSIZE", " 1", "blank");
    BAD("NCCL_BUFFSIZE", "1\r", "Windows");
    BAD("NCCL_ALGO", "'Ring'", "quotes");
    GOOD("NCCL_ALGO", "");
}

static void rack(void) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    r.t.nvlinks_known = true;
    for (uint32_t i = 0; i < 2; i++) {
        r.t.gpus[i].fabric = TOPO_FABRIC_COMPLETED;
        (void)strcpy(r.t.gpus[i].fabric_uuid, "3f8e2a10");
    }
    *topology_add_nvlink(&r.t) = (struct topo_nvlink){.end = TOPO_NVLINK_CPU, .c2c = true, .count = 1};
}

Test(lint, nvlink_between_nodes) {
    static const char *const switches[] = {"NCCL_MNNVL_CROSS_CLIQUE", "NCCL_MNNVL_SCATTER_NETS_ENABLE",
                                           "NCCL_MNNVL_RAIL_PER_HOST"};
    static const char *const c2c[] = {"NCCL_NET_GDR_C2C", "NCCL_PXN_C2C", "NCCL_LL128_C2C"};
    GOOD("NCCL_MNNVL_ENABLE", "0");
    GOOD("NCCL_MNNVL_ENABLE", "1"); /* nothing is known of NVLink */
    GOOD("NCCL_NET_GDR_C2C", "0");
    r.t.nvlinks_known = true;
    GOOD("NCCL_MNNVL_ENABLE", "0");
    BAD("NCCL_MNNVL_ENABLE", "1", "NCCL fails here");
    rack();
    BAD("NCCL_MNNVL_ENABLE", "0", "in NVLink domain nvl-3f8e2a10.0: NCCL then uses the network");
    BAD("NCCL_MNNVL_ENABLE", "0", "1.8 TB/s");
    GOOD("NCCL_MNNVL_ENABLE", "1");
    GOOD("NCCL_MNNVL_ENABLE", "2");
    BAD("NCCL_MNNVL_ENABLE", "auto", "must be 0");
    GOOD("NCCL_MNNVL_CLIQUE_ID", "-2");
    BAD("NCCL_MNNVL_CLIQUE_ID", "7", "what the driver reports");
    BAD("NCCL_MNNVL_UUID", "3f8e", "number");
    for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
        GOOD(switches[i], "0");
        BAD(switches[i], "2", "0 or 1");
        BAD(c2c[i], "0", "NVLink-C2C");
        BAD(c2c[i], "yes", "0 or 1");
        GOOD(c2c[i], "1");
    }
}

Test(lint, all_of_a_node) {
    char *const envp[] = {TEXT("NCCL_P2P_LEVEL=4"), TEXT("HOME= x "), TEXT("NCCL_IB_GID_INDEX=3"), TEXT("ODD"), NULL};
    rig_conf(&r, true, "/u", "X = 1\nNCCL_DEBUG=\"INFO\"\n");
    rig_conf(&r, false, "/etc/nccl.conf", "NCCL_SHM_DISABLE=1\n");
    r.facts.nccl_version = 22100;
    nccl_lint_all(envp, &r.facts, &r.t, report, NULL);
    const char *text = strbuf_text(&said);
    assert_has(text, "NCCL_P2P_LEVEL=4 (environment): ");
    assert_has(text, "since 2.21");
    assert_has(text, "(/u line 2): the quotes");
    assert_has(text, "(/etc/nccl.conf line 1): ");
    cr_assert_null(strstr(text, "HOME"));
    strbuf_clear(&said);
    r.facts.cloud = CLOUD_ORACLE;
    nccl_lint_all((char *const[]){TEXT("NCCL_IB_GID_INDEX=3"), NULL}, &r.facts, NULL, report, NULL);
    cr_assert_null(strstr(strbuf_text(&said), "since 2.21"), "Oracle wants it so");
}
