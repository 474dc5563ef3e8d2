/* The output of muster env --explain on made-up machines of each cloud: golden/NAME.txt. With MUSTER_TEST_REWRITE=1 in
 * the environment the files are rewritten; review them then. */
#include "io/file.h"
#include "nccl_env/facts/facts_io.h"
#include "nccl_env/rules/resolve.h"
#include "node_rig.h"
#include "rig/tree.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})
#define WIDTH 100
#define GOLDEN_MAX ((size_t)64 << 10)

static struct rig r;
static struct tree tree;
static char *root_env[] = {TEXT("HOME=/root"), NULL};
static void init(void) {
    tree_new(&tree);
    rig_init(&r);
    r.in.ras_port = 45678;
    r.in.log_dir = "/logs/job7/1.1/a";
    r.in.envp = root_env;
}
static void fini(void) {
    rig_fini(&r);
    tree_remove(&tree);
}
TestSuite(golden, .init = init, .fini = fini);

static void dmi(const char *name, const char *text) {
    _cleanup_(freep) char *path = xasprintf("/sys/class/dmi/id/%s", name);
    tree_write(&tree, path, text);
}

/* Eight GPUs, each with its NIC, a NIC for storage, and an interface besides that of containers. */
static void big_node(enum topo_link_layer layer, uint32_t rate) {
    rig_netif(&r, "lo", "127.0.0.1");
    rig_netif(&r, "docker0", "172.17.0.1");
    rig_netif(&r, "eth0", "10.0.0.2");
    rig_gpus(&r, 8, layer, rate);
    rig_nic(&r, "mlx5_8", TOPO_LINK_ETHERNET, 25);
    r.in.n_visible = 8;
}

static void choose(void) {
    struct netif_input in = {
        .n_nodes = r.in.n_nodes, .route_netif = "eth0", .route_source = "10.0.0.2", .leader_addr = "10.0.0.1"};
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

/* The machine has been made: checks which cloud is detected, and the output. */
static void run(const char *name, enum cloud cloud) {
    nccl_facts_read(&(struct nccl_facts_config){.sysroot = tree.root, .envp = r.in.envp}, &r.facts);
    cr_assert_eq(r.facts.cloud, cloud, "%s", cloud_name(r.facts.cloud));
    choose();
    show(name, cloud);
}

/* Everything that can be reported on one node, in a container that was started without care. */
Test(golden, much_is_worth_a_look) {
    static const uint32_t visible[] = {0, 0, 1};
    big_node(TOPO_LINK_ETHERNET, 200);
    rig_gid(&r.t.nics[0], 0, TOPO_GID_ROCE_V2, "link-local");
    r.t.gpus[0].mig = true;
    r.in.visible = visible;
    r.in.n_visible = 3;
    r.in.nproc = 4;
    tree_write(&tree, "/etc/nccl.conf", "NCCL_TOPO_FILE=/opt/site/topo.xml\nNCCL_GRAPH_FILE=\"/opt/site/graph.xml\"\n");
    r.in.envp = ENV(TEXT("HOME=/root"), TEXT("NCCL_IB_HCA=mlx5_0,mlx5_12"), TEXT("NCCL_IB_CUDA_SUPPORT=1"),
                    TEXT("CUDA_VISIBLE_DEVICES=MIG-a,MIG-b,1"), TEXT("NCCL_DEBUG_FILE=~/nccl.log"));
    nccl_facts_read(&(struct nccl_facts_config){.sysroot = tree.root, .envp = r.in.envp}, &r.facts);
    r.facts.memlock_hard = 8 << 20;
    r.facts.nofile_hard = 1024;
    r.facts.stack = UINT64_MAX;
    r.facts.shm_bytes = 64 << 20;
    struct netif_input in = {
        .n_nodes = r.in.n_nodes, .route_netif = "docker0", .route_source = "172.17.0.1", .leader_addr = "172.17.0.2"};
    netif_choose(&r.t, &in, &r.netif);
    show("trouble", CLOUD_NONE);
}

Test(golden, bare_metal) {
    big_node(TOPO_LINK_INFINIBAND, 400);
    tree_folder(&tree, "/usr/lib/python3.11/site-packages/torch-2.9.1+cu128.dist-info");
    tree_folder(&tree, "/usr/lib/python3.11/site-packages/nvidia_nccl_cu12-2.27.5.dist-info");
    tree_write(&tree, "/usr/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", "");
    dmi("sys_vendor", "Dell Inc.\n");
    run("bare-metal", CLOUD_NONE);
    cr_assert_str_eq(rig_set(&r, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
}

Test(golden, an_administrator_has_spoken) {
    big_node(TOPO_LINK_INFINIBAND, 400);
    tree_write(&tree, "/etc/nccl.conf", "# ours\nNCCL_SOCKET_IFNAME=eth0\nNCCL_IB_HCA=mlx5_1\nNCCL_DEBUG=INFO\n");
    tree_write(&tree, "/root/.nccl.conf", "NCCL_P2P_DISABLE=1\nX = 1\n");
    r.in.envp = ENV(TEXT("HOME=/root"), TEXT("NCCL_SOCKET_IFNAME=^docker0"), TEXT("NCCL_P2P_LEVEL=4"),
                    TEXT("TORCH_NCCL_TRACE_BUFFER_SIZE=0"));
    run("administrator", CLOUD_NONE);
}

Test(golden, one_node_without_gpus) {
    r.in.n_nodes = 1;
    r.in.nproc = 4;
    rig_netif(&r, "eth0", "10.0.0.2");
    run("one-cpu-node", CLOUD_NONE);
}

Test(golden, nodes_without_gpus) {
    rig_netif(&r, "lo", "127.0.0.1");
    rig_netif(&r, "eth0", "10.0.0.2");
    run("cpu-nodes", CLOUD_NONE);
}

Test(golden, aws) {
    rig_netif(&r, "eth0", "10.0.0.2");
    rig_gpus(&r, 8, TOPO_LINK_UNKNOWN, 0);
    for (uint32_t i = 0; i < r.t.n_nics; i++) {
        (void)snprintf(r.t.nics[i].name, sizeof r.t.nics[i].name, "rdmap%us0", i + 16);
        r.t.nics[i].kind = TOPO_NIC_EFA;
        r.t.nics[i].ports[0].state = TOPO_PORT_UNKNOWN;
    }
    dmi("sys_vendor", "Amazon EC2\n");
    dmi("product_name", "p4d.24xlarge\n");
    tree_folder(&tree, "/sys/class/infiniband/rdmap16s0");
    tree_write(&tree, "/opt/amazon/ofi-nccl/lib/libnccl-net.so", "");
    run("aws", CLOUD_AWS);
}

static void google(const char *name, enum cloud cloud) {
    big_node(TOPO_LINK_ETHERNET, 200);
    dmi("sys_vendor", "Google\n");
    dmi("product_name", "Google Compute Engine\n");
    run(name, cloud);
}

Test(golden, gcp_tcpx) {
    tree_write(&tree, "/usr/local/tcpx/lib64/libnccl-net.so", "");
    google("gcp-tcpx", CLOUD_GCP_TCPX);
}

Test(golden, gcp_tcpxo) {
    tree_write(&tree, "/usr/local/nvidia/lib64/nccl-env-profile.sh", "export NCCL_FASTRAK_CTRL_DEV=eth0\n");
    tree_write(&tree, "/usr/local/nvidia/lib64/libnccl-net.so", "");
    tree_folder(&tree, "/dev/aperture_devices");
    google("gcp-tcpxo", CLOUD_GCP_TCPXO);
}

Test(golden, gcp_gib) {
    tree_write(&tree, "/usr/local/gib/scripts/set_nccl_env.sh", "");
    tree_write(&tree, "/usr/local/gib/lib64/libnccl-net.so", "");
    google("gcp-gib", CLOUD_GCP_GIB);
}

static void azure(void) {
    big_node(TOPO_LINK_INFINIBAND, 400);
    dmi("sys_vendor", "Microsoft Corporation\n");
    dmi("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n");
}

/* A file for the made-up machine, and one for another. */
static void azure_files(void) {
    _cleanup_(strbuf_fini) struct strbuf xml = {0};
    for (int i = 1; i <= 8; i++)
        strbuf_printf(&xml, "<pci busid=\"0000:%x1:00.0\" class=\"0x030200\"/>\n", i);
    tree_write(&tree, "/opt/microsoft/ndv5/topo.xml", strbuf_text(&xml));
    tree_write(&tree, "/opt/microsoft/ncv4/topo.xml", "<pci busid=\"0001:00:00.0\" class=\"0x030200\"/>\n");
}

Test(golden, azure) {
    azure();
    azure_files();
    tree_write(&tree, "/etc/nccl.conf",
               "NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml\n"
               "NCCL_IGNORE_CPU_AFFINITY=1\n");
    run("azure", CLOUD_AZURE);
}

Test(golden, azure_container_without_the_file) {
    azure();
    azure_files();
    run("azure-container", CLOUD_AZURE);
    cr_assert_str_eq(rig_set(&r, "NCCL_TOPO_FILE"), "/opt/microsoft/ndv5/topo.xml");
}

Test(golden, oracle) {
    big_node(TOPO_LINK_ETHERNET, 400);
    dmi("chassis_asset_tag", "OracleCloud.com\n");
    tree_write(&tree, "/etc/nccl.conf",
               "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7\n"
               "NCCL_IB_GID_INDEX=3\nNCCL_IB_TC=41\nNCCL_IB_SL=0\nNCCL_IB_TIMEOUT=22\n"
               "NCCL_SOCKET_IFNAME=eth0\nNCCL_CUMEM_ENABLE=0\nUCX_NET_DEVICES=eth0\n");
    r.in.envp = ENV(TEXT("HOME=/root"), TEXT("OMPI_COMM_WORLD_SIZE=16"));
    run("oracle", CLOUD_ORACLE);
}

Test(golden, coreweave) {
    big_node(TOPO_LINK_INFINIBAND, 400);
    tree_write(&tree, "/proc/sys/kernel/osrelease", "6.8.12-680-6063-coreweave-amd64-f81899c8\n");
    r.in.envp = ENV(TEXT("HOME=/root"), TEXT("NCCL_SOCKET_IFNAME=eth0"), TEXT("NCCL_IB_HCA=mlx5"),
                    TEXT("UCX_NET_DEVICES=eth0"), TEXT("UCX_TLS=tcp"));
    run("coreweave", CLOUD_COREWEAVE);
}

Test(golden, ibm) {
    big_node(TOPO_LINK_ETHERNET, 200);
    dmi("sys_vendor", "QEMU\n");
    dmi("chassis_vendor", "IBM:Cloud Compute Server 1.0:gx3d-160x1792x8h100\n");
    tree_write(&tree, "/var/run/nvidia-topologyd/virtualTopology.xml", "");
    tree_write(&tree, "/etc/nccl.conf",
               "NCCL_TOPO_FILE=/var/run/nvidia-topologyd/virtualTopology.xml\n"
               "NCCL_IB_QPS_PER_CONNECTION=16\nNCCL_IB_TIMEOUT=22\nNCCL_CROSS_NIC=2\n");
    run("ibm", CLOUD_IBM);
}
