/* The output of muster env --explain on made-up machines of each cloud: golden/NAME.txt. With MUSTER_TEST_REWRITE=1 in
 * the environment the files are rewritten; review them then. */
#include "io/file.h"
#include "nccl_env/facts/facts_io.h"
#include "nccl_env/rules/resolve.h"
#include "node_rig.h"
#include "rig/tree.h"

#define WIDTH 100
#define GOLDEN_MAX ((size_t)64 << 10)

static struct rig r;
static struct tree tree;
static void init(void) { tree_new(&tree); }
static void fini(void) {
    rig_fini(&r);
    tree_remove(&tree);
}
TestSuite(golden, .init = init, .fini = fini);

/* The interface of the route to the leader. */
static void choose(const char *route, const char *source, const char *leader) {
    struct netif_input in = {
        .n_nodes = r.in.n_nodes, .route_netif = route, .route_source = source, .leader_addr = leader};
    netif_choose(&r.t, &in, &r.netif);
}

/* Checks that muster sets nothing that is set in files or the environment, that a plug-in owns, or that breaks its own
 * rules. */
static void check_rules(enum cloud cloud) {
    for (uint32_t i = 0; i < r.result.n; i++) {
        const struct env_choice *c = &r.result.choices[i];
        if (c->action != ENV_SET)
            continue;
        cr_assert_null(nccl_conf_find(&r.facts.user_conf, c->name), "%s", c->name);
        cr_assert_null(nccl_conf_find(&r.facts.system_conf, c->name), "%s", c->name);
        if (strstr(c->name, "SOCKET_IFNAME") != NULL)
            cr_assert_not(netif_is_plumbing(c->value + (c->value[0] == '=')), "%s", c->value);
        bool tuning = strncmp(c->name, "NCCL_IB_", 8) == 0 || strncmp(c->name, "NCCL_NET", 8) == 0 ||
                      strncmp(c->name, "NCCL_TUNER", 10) == 0 || strcmp(c->name, "NCCL_BUFFSIZE") == 0;
        cr_assert_not(tuning && cloud != CLOUD_NONE, "%s on %s", c->name, cloud_name(cloud));
        cr_assert_not(strcmp(c->name, "NCCL_TOPO_FILE") == 0 && cloud != CLOUD_AZURE, "%s", c->name);
    }
}

static void compare(const char *name, const char *text) {
    _cleanup_(freep) char *path = xasprintf("%s/unit/nccl_env/golden/%s.txt", getenv("MUSTER_TEST_SOURCE_DIR"), name);
    _cleanup_(freep) char *golden = NULL;
    size_t len;
    const char *rewrite = getenv("MUSTER_TEST_REWRITE");
    if (rewrite != NULL && strcmp(rewrite, "1") == 0)
        cr_assert_eq(file_write_atomic(path, text, strlen(text)), 0, "%s", path);
    cr_assert_eq(file_read_text(path, GOLDEN_MAX, &golden, &len), 0, "%s", path);
    cr_assert_str_eq(text, golden, "%s differs:\n%s", path, text);
}

static void show(const char *name, enum cloud cloud) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    rig_resolve(&r);
    check_rules(cloud);
    env_write_explained(&r.result, WIDTH, &text);
    for (const char *p = strbuf_text(&text); *p != '\0'; p += strcspn(p, "\n") + 1)
        cr_assert(strcspn(p, "\n") <= WIDTH || p[2] != ' ', "too wide: %s", p);
    compare(name, strbuf_text(&text));
}

/* In each: a port and a log folder. */
#define JOB "ras:45678 log:/logs/job7/1.1/a env:HOME=/root "
#define NETIFS "netif:lo:127.0.0.1 netif:docker0:172.17.0.1 netif:eth0:10.0.0.2 "
/* Eight GPUs, each with its NIC, a NIC for storage, and an interface besides that of containers. */
#define BIG_IB NETIFS "gpus:8 eth:mlx5_8:25 visible:8 "
#define BIG_ROCE NETIFS "roce:8 eth:mlx5_8:25 visible:8 "
#define DMI "/sys/class/dmi/id/"
#define GOOGLE " " DMI "sys_vendor=Google| " DMI "product_name=Google~Compute~Engine|"
#define GPU(bus) "<pci~busid=\"0000:" bus ":00.0\"~class=\"0x030200\"/>|"
/* A file for the made-up machine, and one for another. */
#define AZURE                                                                                                 \
    DMI "sys_vendor=Microsoft~Corporation| " DMI "chassis_asset_tag=7783-7084-3265-9085-8269-3286-77| "       \
        "/opt/microsoft/ndv5/topo.xml=" GPU("11") GPU("21") GPU("31") GPU("41") GPU("51") GPU("61") GPU("71") \
            GPU("81") " /opt/microsoft/ncv4/topo.xml=<pci~busid=\"0001:00:00.0\"~class=\"0x030200\"/>| "

static const struct {
    const char *name, *words, *files;
    enum cloud cloud;
} machines[] = {
    {"bare-metal", BIG_IB,
     "/usr/lib/python3.11/site-packages/torch-2.9.1+cu128.dist-info/ "
     "/usr/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info/ "
     "/usr/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2 " DMI "sys_vendor=Dell~Inc.|",
     CLOUD_NONE},
    {"administrator", BIG_IB "env:NCCL_SOCKET_IFNAME=^docker0 env:NCCL_P2P_LEVEL=4 env:TORCH_NCCL_TRACE_BUFFER_SIZE=0",
     "/etc/nccl.conf=#~ours|NCCL_SOCKET_IFNAME=eth0|NCCL_IB_HCA=mlx5_1|NCCL_DEBUG=INFO| "
     "/root/.nccl.conf=NCCL_P2P_DISABLE=1|X~=~1|",
     CLOUD_NONE},
    {"one-cpu-node", "nodes:1 nproc:4 netif:eth0:10.0.0.2", "", CLOUD_NONE},
    {"cpu-nodes", "netif:lo:127.0.0.1 netif:eth0:10.0.0.2", "", CLOUD_NONE},
    {"gcp-tcpx", BIG_ROCE, "/usr/local/tcpx/lib64/libnccl-net.so" GOOGLE, CLOUD_GCP_TCPX},
    {"gcp-tcpxo", BIG_ROCE,
     "/usr/local/nvidia/lib64/nccl-env-profile.sh=export~NCCL_FASTRAK_CTRL_DEV=eth0| "
     "/usr/local/nvidia/lib64/libnccl-net.so /dev/aperture_devices/" GOOGLE,
     CLOUD_GCP_TCPXO},
    {"gcp-gib", BIG_ROCE, "/usr/local/gib/scripts/set_nccl_env.sh /usr/local/gib/lib64/libnccl-net.so" GOOGLE,
     CLOUD_GCP_GIB},
    {"azure", BIG_IB,
     AZURE "/etc/nccl.conf=NCCL_IB_PCI_RELAXED_ORDERING=1|NCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml|"
           "NCCL_IGNORE_CPU_AFFINITY=1|",
     CLOUD_AZURE},
    {"azure-container", BIG_IB, AZURE, CLOUD_AZURE}, /* without the file */
    {"oracle", NETIFS "roce400:8 eth:mlx5_8:25 visible:8 env:OMPI_COMM_WORLD_SIZE=16",
     DMI "chassis_asset_tag=OracleCloud.com| "
         "/etc/nccl.conf=NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7|NCCL_IB_GID_INDEX=3|"
         "NCCL_IB_TC=41|NCCL_IB_SL=0|NCCL_IB_TIMEOUT=22|NCCL_SOCKET_IFNAME=eth0|NCCL_CUMEM_ENABLE=0|"
         "UCX_NET_DEVICES=eth0|",
     CLOUD_ORACLE},
    {"coreweave", BIG_IB "env:NCCL_SOCKET_IFNAME=eth0 env:NCCL_IB_HCA=mlx5 env:UCX_NET_DEVICES=eth0 env:UCX_TLS=tcp",
     "/proc/sys/kernel/osrelease=6.8.12-680-6063-coreweave-amd64-f81899c8|", CLOUD_COREWEAVE},
    {"ibm", BIG_ROCE,
     DMI "sys_vendor=QEMU| " DMI "chassis_vendor=IBM:Cloud~Compute~Server~1.0:gx3d-160x1792x8h100| "
         "/var/run/nvidia-topologyd/virtualTopology.xml "
         "/etc/nccl.conf=NCCL_TOPO_FILE=/var/run/nvidia-topologyd/virtualTopology.xml|NCCL_IB_QPS_PER_CONNECTION=16|"
         "NCCL_IB_TIMEOUT=22|NCCL_CROSS_NIC=2|",
     CLOUD_IBM},
    {"aws", "netif:eth0:10.0.0.2 gpus:8 rdmap",
     DMI "sys_vendor=Amazon~EC2| " DMI "product_name=p4d.24xlarge| /sys/class/infiniband/rdmap16s0/ "
         "/opt/amazon/ofi-nccl/lib/libnccl-net.so",
     CLOUD_AWS},
};

static void read_facts(void) {
    nccl_facts_fini(&r.facts);
    nccl_facts_read(&(struct nccl_facts_config){.sysroot = tree.root, .envp = r.in.envp}, &r.facts);
}

Test(golden, machines) {
    for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
        _cleanup_(freep) char *words = xasprintf(JOB "%s", machines[i].words);
        tree_remove(&tree);
        tree_new(&tree);
        tree_files(&tree, machines[i].files);
        rig_make(&r, words);
        read_facts();
        cr_assert_eq(r.facts.cloud, machines[i].cloud, "%s", machines[i].name);
        choose("eth0", "10.0.0.2", "10.0.0.1");
        show(machines[i].name, machines[i].cloud);
    }
}

/* Everything that can be reported on one node, in a container that was started without care. */
Test(golden, much_is_worth_a_look) {
    static const uint32_t visible[] = {0, 0, 1};
    rig_make(&r, JOB BIG_ROCE "gid:0:0:v2:link-local visible:3 nproc:4 env:NCCL_IB_HCA=mlx5_0,mlx5_12 "
                              "env:NCCL_IB_CUDA_SUPPORT=1 env:CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,1");
    r.env[4] = (char[]){"NCCL_DEBUG_FILE=~/nccl.log"};
    r.t.gpus[0].mig = true;
    r.in.visible = visible;
    tree_write(&tree, "/etc/nccl.conf", "NCCL_TOPO_FILE=/opt/site/topo.xml\nNCCL_GRAPH_FILE=\"/opt/site/graph.xml\"\n");
    read_facts();
    r.facts.memlock_hard = 8 << 20;
    r.facts.nofile_hard = 1024;
    r.facts.stack = UINT64_MAX;
    r.facts.shm_bytes = 64 << 20;
    choose("docker0", "172.17.0.1", "172.17.0.2");
    show("trouble", CLOUD_NONE);
}
