#include "nccl_env/lint/lint.h"

#include "../node_rig.h"
#include "rig/unit.h"

static struct rig r;
static struct strbuf said;
static void fini(void) {
    rig_fini(&r);
    strbuf_fini(&said);
}
TestSuite(lint, .fini = fini);

static void lint(char *const *envp, const struct nccl_facts *f, const struct topology *t) {
    struct words words = {0};
    nccl_lint_all(envp, f, t, &words);
    for (size_t i = 0; i < words.n; i++)
        strbuf_printf(&said, "%s\n", words.list[i]);
    words_free(words.list);
}

struct check {
    const char *setting, *part; /* NULL: nothing is reported */
};

/* Each setting on a machine. */
static void check(const char *words, const struct check *checks, size_t n) {
    rig_make(&r, words);
    for (size_t i = 0; i < n; i++) {
        strbuf_clear(&said);
        lint((char *[]){(char *)(uintptr_t)checks[i].setting, NULL}, NULL, &r.t);
        if (checks[i].part == NULL)
            cr_expect_str_eq(strbuf_text(&said), "", "%s", checks[i].setting);
        else
            cr_expect_not_null(strstr(strbuf_text(&said), checks[i].part), "%s: %s", checks[i].setting,
                               strbuf_text(&said));
    }
}
#define CHECK(words, ...)                                            \
    do {                                                             \
        static const struct check checks_[] = {__VA_ARGS__};         \
        check(words, checks_, sizeof(checks_) / sizeof(checks_[0])); \
    } while (0)

Test(lint, interfaces) {
    CHECK("", {"NCCL_SOCKET_IFNAME=^docker0", "lo is used again"}, {"NCCL_SOCKET_IFNAME=^=docker0", "lo is used again"},
          {"NCCL_SOCKET_IFNAME=^docker,lo"}, {"NCCL_SOCKET_IFNAME=^=lo,docker0"},
          {"NCCL_SOCKET_IFNAME=eth7"} /* the node's interfaces are not known */);
    CHECK("netif:lo:127.0.0.1 netif:docker0:172.17.0.1 netif:eth1:10.0.0.2 netif:eth10:10.1.0.2 netif:eth2:fe80::2 "
          "netif:eth3:10.3.0.2 stopped:5 netif:eth4",
          {"NCCL_SOCKET_IFNAME=^lo", "does not exclude docker0"}, {"NCCL_SOCKET_IFNAME=^lo,docker"},
          {"NCCL_SOCKET_IFNAME=eth7", "no interface eth7"}, {"NCCL_SOCKET_IFNAME==eth", "no interface eth"},
          {"NCCL_SOCKET_IFNAME=eth1", "means eth10 too; =eth1"}, {"NCCL_SOCKET_IFNAME==eth1"},
          {"NCCL_SOCKET_IFNAME==eth1,eth10"}, {"NCCL_SOCKET_IFNAME==eth2", "no address"},
          {"NCCL_SOCKET_IFNAME==eth3", "down"}, {"NCCL_SOCKET_IFNAME==eth4", "no address"},
          {"NCCL_SOCKET_IFNAME=docker0", "virtual interface"}, {"NCCL_SOCKET_IFNAME=e", "ignores"},
          {"NCCL_SOCKET_IFNAME=eth1, eth10", "blank"}, {"NCCL_SOCKET_IFNAME=\"eth1\"", "quotes"},
          /* gloo knows plain names only */
          {"GLOO_SOCKET_IFNAME==eth1", "plain names"}, {"GLOO_SOCKET_IFNAME=^lo", "plain names"},
          {"GLOO_SOCKET_IFNAME=eth", "no interface eth"}, {"GLOO_SOCKET_IFNAME=eth1"},
          {"TP_SOCKET_IFNAME=eth7", "no interface"});
}

Test(lint, hcas) {
    CHECK("", {"NCCL_IB_HCA=mlx5_1"}); /* no HCA is known */
    CHECK("gpus:11 down:3", {"NCCL_IB_HCA=mlx5_1", "means mlx5_10 too"}, {"NCCL_IB_HCA=^mlx5_1", "means mlx5_10 too"},
          {"NCCL_IB_HCA==mlx5_1,mlx5_2:1"}, {"NCCL_IB_HCA=mlx5"}, {"NCCL_IB_HCA==mlx5_1,mlx4_0", "no HCA mlx4_0"},
          {"NCCL_IB_HCA==mlx5_1, mlx5_2", "blank"}, {"NCCL_IB_HCA==mlx5_3", "no ACTIVE port"});
    CHECK("gpus:33", {"NCCL_IB_HCA=mlx5", "33 HCAs"});
    CHECK("roce:1", {"NCCL_IB_GID_INDEX=3"}); /* no GID is known */
    CHECK("roce:1 gid:0:0:v1:v4 gid:0:1:v2:link-local gid:0:3:v2:v4", {"NCCL_IB_GID_INDEX=3"}, {"NCCL_IB_GID_INDEX=-1"},
          {"NCCL_IB_GID_INDEX=0", "RoCE v1"}, {"NCCL_IB_GID_INDEX=1", "link-local"},
          {"NCCL_IB_GID_INDEX=5", "nothing at this index"});
}

Test(lint, words) {
    CHECK("", {"NCCL_P2P_LEVEL=5", "old form"}, {"NCCL_P2P_LEVEL=NODE", "is not a level"},
          {"NCCL_P2P_LEVEL=LOC", "debugging"}, {"NCCL_NET_GDR_LEVEL=5", "old form"},
          {"NCCL_NET_GDR_LEVEL=NODE", "is not a level"}, {"NCCL_NET_GDR_LEVEL=LOC", "debugging"},
          {"NCCL_NET_GDR_LEVEL=PXB"}, {"NCCL_NET_GDR_LEVEL=sys"},
          /* debugging that was left on */
          {"NCCL_P2P_DISABLE=1", "debugging"}, {"NCCL_P2P_DISABLE=0"}, {"NCCL_SHM_DISABLE=1", "debugging"},
          {"NCCL_SHM_DISABLE=0"}, {"CUDA_LAUNCH_BLOCKING=1", "debugging"}, {"CUDA_LAUNCH_BLOCKING=0"},
          {"NCCL_DEBUG=DEBUG", "is not a level"}, {"NCCL_DEBUG=TRACE", "every operation"}, {"NCCL_DEBUG=INFO"},
          {"NCCL_IB_DISABLE=1"},
          /* names that are gone */
          {"NCCL_IB_CUDA_SUPPORT=1", "NCCL_NET_GDR_LEVEL"}, {"NCCL_CHECKS_DISABLE=1", "NCCL_CHECK_MODE"},
          {"NCCL_TREE_THRESHOLD=1", "removed"}, {"NCCL_LL_THRESHOLD=1", "removed"},
          {"NCCL_ASYNC_ERROR_HANDLING=1", "its new name"}, {"NCCL_BLOCKING_WAIT=1", "its new name"},
          {"NCCL_MAX_NRINGS=1", "its new name"}, {"NCCL_MAX_NCHANNELS=16"},
          /* forms of values */
          {"NCCL_DEBUG_FILE=~/nccl.log", "whole path"}, {"NCCL_DEBUG_FILE=/tmp/nccl.log", "%h.%p"},
          {"NCCL_DEBUG_FILE=/tmp/my nccl.%h.%p.log"}, {"NCCL_BUFFSIZE= 1", "blank"}, {"NCCL_BUFFSIZE=1\r", "Windows"},
          {"NCCL_ALGO='Ring'", "quotes"}, {"NCCL_ALGO="});
    CHECK("gpus:1", {"NCCL_IB_DISABLE=1", "mlx5_0 is ACTIVE"}, {"NCCL_IB_DISABLE=0"});
}

Test(lint, nvlink_between_nodes) {
    /* nothing is known of NVLink */
    CHECK("", {"NCCL_MNNVL_ENABLE=0"}, {"NCCL_MNNVL_ENABLE=1"}, {"NCCL_NET_GDR_C2C=0"});
    CHECK("links", {"NCCL_MNNVL_ENABLE=0"}, {"NCCL_MNNVL_ENABLE=1", "NCCL fails here"});
    CHECK("links gpus:2 rack", {"NCCL_MNNVL_ENABLE=0", "in NVLink domain nvl-3f8e2a10.0: NCCL then uses the network"},
          {"NCCL_MNNVL_ENABLE=0", "1.8 TB/s"}, {"NCCL_MNNVL_ENABLE=1"}, {"NCCL_MNNVL_ENABLE=2"},
          {"NCCL_MNNVL_ENABLE=auto", "must be 0"}, {"NCCL_MNNVL_CLIQUE_ID=-2"},
          {"NCCL_MNNVL_CLIQUE_ID=7", "what the driver reports"}, {"NCCL_MNNVL_UUID=3f8e", "number"},
          {"NCCL_MNNVL_CROSS_CLIQUE=0"}, {"NCCL_MNNVL_CROSS_CLIQUE=2", "0 or 1"}, {"NCCL_MNNVL_SCATTER_NETS_ENABLE=0"},
          {"NCCL_MNNVL_SCATTER_NETS_ENABLE=2", "0 or 1"}, {"NCCL_MNNVL_RAIL_PER_HOST=0"},
          {"NCCL_MNNVL_RAIL_PER_HOST=2", "0 or 1"}, {"NCCL_NET_GDR_C2C=0", "NVLink-C2C"},
          {"NCCL_NET_GDR_C2C=yes", "0 or 1"}, {"NCCL_NET_GDR_C2C=1"}, {"NCCL_PXN_C2C=0", "NVLink-C2C"},
          {"NCCL_PXN_C2C=yes", "0 or 1"}, {"NCCL_PXN_C2C=1"}, {"NCCL_LL128_C2C=0", "NVLink-C2C"},
          {"NCCL_LL128_C2C=yes", "0 or 1"}, {"NCCL_LL128_C2C=1"});
}

Test(lint, all_of_a_node) {
    rig_make(&r, "nccl:22100 home:X~=~1|NCCL_DEBUG=\"INFO\" etc:NCCL_SHM_DISABLE=1 env:NCCL_P2P_LEVEL=4 env:HOME=~x~ "
                 "env:NCCL_IB_GID_INDEX=3 env:ODD");
    lint(r.env, &r.facts, &r.t);
    const char *text = strbuf_text(&said);
    assert_has(text, "NCCL_P2P_LEVEL=4 (environment): ");
    assert_has(text, "since 2.21");
    assert_has(text, "(/home/u/.nccl.conf line 2): the quotes");
    assert_has(text, "(/etc/nccl.conf line 1): ");
    cr_assert_null(strstr(text, "HOME"));
    strbuf_clear(&said);
    r.facts.cloud = CLOUD_ORACLE;
    lint(r.env, &r.facts, NULL);
    cr_assert_null(strstr(strbuf_text(&said), "since 2.21"), "Oracle wants it so");
}
