#include "nccl_env/rules/resolve.h"

#include "../node_rig.h"
#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})

static struct rig r;
static void init(void) { rig_init(&r); }
static void fini(void) { rig_fini(&r); }
TestSuite(resolve, .init = init, .fini = fini);

static void expect(const char *name, const char *value) {
    const char *got = rig_set(&r, name);
    if (value == NULL)
        cr_assert_null(got, "%s=%s", name, got);
    else
        cr_assert_str_eq(got != NULL ? got : "(nothing)", value, "%s", name);
}

static const char *why(const char *name, enum env_action action) {
    const struct env_choice *c = rig_find(&r, name);
    cr_assert_not_null(c, "%s is not listed", name);
    cr_assert_eq(c->action, action, "%s: %s", name, c->reason);
    return c->reason;
}

#define EXPECT_WHY(name, action, part) cr_assert_not_null(strstr(why(name, action), part), "%s", why(name, action))

/* ---- NVLink between nodes ---- */

Test(resolve, a_racks_variables_are_explained_and_never_set) {
    static const char *const names[] = {"NCCL_MNNVL_ENABLE",
                                        "NCCL_MNNVL_UUID",
                                        "NCCL_MNNVL_CLIQUE_ID",
                                        "NCCL_MNNVL_CROSS_CLIQUE",
                                        "NCCL_MNNVL_SCATTER_NETS_ENABLE",
                                        "NCCL_MNNVL_RAIL_PER_HOST",
                                        "NCCL_NET_GDR_C2C",
                                        "NCCL_PXN_C2C",
                                        "NCCL_LL128_C2C"};
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_null(rig_find(&r, names[i]), "%s", names[i]);
    r.t.gpus[0].fabric = TOPO_FABRIC_COMPLETED;
    (void)strcpy(r.t.gpus[0].fabric_uuid, "3f8e2a10");
    r.t.imex = TOPO_IMEX_PRESENT;
    *topology_add_nvlink(&r.t) = (struct topo_nvlink){.end = TOPO_NVLINK_CPU, .c2c = true, .count = 1};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        EXPECT_WHY(names[i], ENV_REFUSED, " ");
    EXPECT_WHY("NCCL_MNNVL_ENABLE", ENV_REFUSED, "domain nvl-3f8e2a10.0, IMEX channel present");
    r.in.envp = ENV(TEXT("NCCL_MNNVL_ENABLE=0"));
    EXPECT_WHY("NCCL_MNNVL_ENABLE", ENV_KEPT, "the environment sets it");
    cr_assert(rig_warns(&r, "NCCL_MNNVL_ENABLE=0 (environment): ") == r.t.nvlinks_known);
    r.in.n_nodes = 1;
    cr_assert_null(rig_find(&r, "NCCL_MNNVL_UUID"));
}

/* ---- interfaces ---- */

Test(resolve, an_interface_for_jobs_of_several_nodes) {
    expect("NCCL_SOCKET_IFNAME", "=eth0");
    expect("GLOO_SOCKET_IFNAME", "eth0");
    expect("TP_SOCKET_IFNAME", "eth0");
    r.in.mode = NCCL_ENV_MINIMAL;
    expect("NCCL_SOCKET_IFNAME", "=eth0");
    r.in.n_nodes = 1;
    cr_assert_null(rig_find(&r, "NCCL_SOCKET_IFNAME"));
    cr_assert_null(rig_find(&r, "GLOO_SOCKET_IFNAME"));
    cr_assert_null(rig_find(&r, "TP_SOCKET_IFNAME"));
}

Test(resolve, no_interface_where_none_was_chosen) {
    r.netif = (struct netif_choice){.why = "docker0 is plumbing", .warning = true};
    EXPECT_WHY("NCCL_SOCKET_IFNAME", ENV_REFUSED, "docker0");
    EXPECT_WHY("GLOO_SOCKET_IFNAME", ENV_REFUSED, "docker0");
    cr_assert(rig_warns(&r, "docker0"));
    r.netif.warning = false;
    cr_assert_not(rig_warns(&r, "docker0"));
    r.in.netif = NULL;
    cr_assert_null(rig_find(&r, "NCCL_SOCKET_IFNAME"));
}

Test(resolve, a_family_only_where_ipv4_is_link_local) {
    struct topo_netif *n = rig_netif(&r, "eth0", "169.254.3.4");
    n->addrs[1] = (struct topo_netaddr){.addr = "fd00::2", .prefix = 64, .ipv6 = true};
    n->n_addrs = 2;
    (void)snprintf(r.netif.addr, sizeof r.netif.addr, "fd00::2");
    expect("NCCL_SOCKET_FAMILY", "AF_INET6");
    n->addrs[0].link_local = false;
    expect("NCCL_SOCKET_FAMILY", NULL);
    n->addrs[0].link_local = true;
    n->addrs[2] = (struct topo_netaddr){.addr = "10.0.0.2", .prefix = 24};
    n->n_addrs = 3;
    expect("NCCL_SOCKET_FAMILY", NULL);
    n->n_addrs = 2;
    (void)snprintf(r.netif.addr, sizeof r.netif.addr, "10.0.0.2");
    expect("NCCL_SOCKET_FAMILY", NULL);
}

Test(resolve, ucx_where_mpi_is_mixed_in) {
    expect("UCX_NET_DEVICES", NULL);
    r.in.envp = ENV(TEXT("PMIX_RANK=0"), TEXT("SLURM_PROCID=0"));
    expect("UCX_NET_DEVICES", NULL);
    r.in.envp = ENV(TEXT("PMIX_RANK=0"));
    expect("UCX_NET_DEVICES", "eth0");
    r.in.envp = ENV(TEXT("OMPI_COMM_WORLD_SIZE=2"), TEXT("SLURM_PROCID=0"));
    expect("UCX_NET_DEVICES", "eth0");
    r.in.mode = NCCL_ENV_MINIMAL;
    expect("UCX_NET_DEVICES", NULL);
    r.in.mode = NCCL_ENV_FULL;
    r.in.n_nodes = 1;
    expect("UCX_NET_DEVICES", NULL);
}

/* ---- RDMA ---- */

Test(resolve, hcas_unlike_those_of_the_gpus_are_left_out) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_IB_HCA", NULL);
    rig_nic(&r, "mlx5_bond_0", TOPO_LINK_ETHERNET, 25);
    expect("NCCL_IB_HCA", "=mlx5_0,mlx5_1");
    EXPECT_WHY("NCCL_IB_HCA", ENV_SET, "mlx5_bond_0 (Ethernet, 25 Gb/s)");
    r.in.mode = NCCL_ENV_MINIMAL;
    expect("NCCL_IB_HCA", NULL);
    r.in.mode = NCCL_ENV_FULL;
    r.in.n_nodes = 1;
    expect("NCCL_IB_HCA", NULL);
}

Test(resolve, a_slow_hca_beside_a_gpu_is_no_storage) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    for (uint32_t i = 0; i < 2; i++) {
        struct topo_nvlink *l = topology_add_nvlink(&r.t);
        *l = (struct topo_nvlink){.gpu = i, .end = TOPO_NVLINK_SWITCH, .peer = TOPO_NONE, .count = 18};
    }
    r.t.nvlinks_known = true;
    r.t.nics[0].ports[0].rate_mbps = 100000;
    rig_resolve(&r);
    struct nccl_prediction p;
    nccl_graph_predict(r.graph, 0, &p);
    cr_assert_str_eq(p.nets[0], "mlx5_1", "the other's is faster");
    expect("NCCL_IB_HCA", NULL);
    rig_nic(&r, "mlx5_9", TOPO_LINK_INFINIBAND, 200);
    expect("NCCL_IB_HCA", "=mlx5_0,mlx5_1");
}

Test(resolve, hcas_of_the_same_kind_stay) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    rig_nic(&r, "mlx5_9", TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_IB_HCA", NULL);
}

Test(resolve, hcas_that_are_down_or_of_unknown_rate_change_nothing) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    rig_nic(&r, "mlx5_8", TOPO_LINK_ETHERNET, 25)->ports[0].state = TOPO_PORT_DOWN;
    rig_nic(&r, "mlx5_9", TOPO_LINK_ETHERNET, 0);
    expect("NCCL_IB_HCA", NULL);
}

Test(resolve, hcas_are_a_clouds_or_plugins_own_matter) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    rig_nic(&r, "mlx5_9", TOPO_LINK_ETHERNET, 25);
    r.facts.cloud = CLOUD_ORACLE;
    EXPECT_WHY("NCCL_IB_HCA", ENV_REFUSED, "Oracle");
    r.facts.cloud = CLOUD_NONE;
    r.facts.plugins[0] = xstrdup("/opt/x/libnccl-net.so");
    r.facts.n_plugins = 1;
    EXPECT_WHY("NCCL_IB_HCA", ENV_REFUSED, "/opt/x/libnccl-net.so");
    r.in.envp = ENV(TEXT("NCCL_NET_PLUGIN=none"));
    expect("NCCL_IB_HCA", "=mlx5_0,mlx5_1");
    r.in.envp = ENV(TEXT("NCCL_IB_DISABLE=1"));
    expect("NCCL_IB_HCA", NULL);
}

Test(resolve, a_gid_index_only_for_old_nccl_on_roce) {
    rig_gpus(&r, 2, TOPO_LINK_ETHERNET, 200);
    for (uint32_t i = 0; i < r.t.n_nics; i++) {
        rig_gid(&r.t.nics[i], 0, TOPO_GID_ROCE_V1, "link-local");
        rig_gid(&r.t.nics[i], 1, TOPO_GID_ROCE_V2, "link-local");
        rig_gid(&r.t.nics[i], 3, TOPO_GID_ROCE_V2, "v4");
    }
    r.facts.nccl_version = 22005;
    expect("NCCL_IB_GID_INDEX", "3");
    r.facts.nccl_version = 22100;
    expect("NCCL_IB_GID_INDEX", NULL);
    r.facts.nccl_version = 0;
    expect("NCCL_IB_GID_INDEX", NULL);
    expect("NCCL_IB_ADDR_FAMILY", NULL);
}

Test(resolve, a_gid_index_that_differs_between_hcas_is_refused) {
    rig_gpus(&r, 2, TOPO_LINK_ETHERNET, 200);
    rig_gid(&r.t.nics[0], 3, TOPO_GID_ROCE_V2, "v4");
    rig_gid(&r.t.nics[1], 5, TOPO_GID_ROCE_V2, "v4");
    r.facts.nccl_version = 21806;
    EXPECT_WHY("NCCL_IB_GID_INDEX", ENV_REFUSED, "3 on mlx5_0 and 5 on mlx5_1");
}

Test(resolve, a_gid_index_is_nothing_for_infiniband) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 200);
    rig_gid(&r.t.nics[0], 0, TOPO_GID_IB, "link-local");
    r.facts.nccl_version = 21806;
    expect("NCCL_IB_GID_INDEX", NULL);
    expect("NCCL_IB_ADDR_FAMILY", NULL);
}

Test(resolve, ipv6_gids_where_there_are_no_others) {
    rig_gpus(&r, 2, TOPO_LINK_ETHERNET, 400);
    for (uint32_t i = 0; i < r.t.n_nics; i++) {
        rig_gid(&r.t.nics[i], 1, TOPO_GID_ROCE_V2, "link-local");
        rig_gid(&r.t.nics[i], 2, TOPO_GID_ROCE_V2, "ula");
    }
    r.facts.nccl_version = 22703;
    expect("NCCL_IB_ADDR_FAMILY", "AF_INET6");
    expect("NCCL_IB_GID_INDEX", NULL);
    r.facts.cloud = CLOUD_COREWEAVE;
    EXPECT_WHY("NCCL_IB_ADDR_FAMILY", ENV_REFUSED, "CoreWeave");
    r.facts.cloud = CLOUD_NONE;
    r.facts.nccl_version = 22005;
    expect("NCCL_IB_ADDR_FAMILY", NULL);
    expect("NCCL_IB_GID_INDEX", "2");
    rig_gid(&r.t.nics[1], 4, TOPO_GID_ROCE_V2, "v4");
    r.facts.nccl_version = 22703;
    expect("NCCL_IB_ADDR_FAMILY", NULL);
}

Test(resolve, a_topology_file_only_if_it_fits) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_TOPO_FILE", NULL);
    cr_assert_null(rig_find(&r, "NCCL_TOPO_FILE"));
    r.facts.n_topo_files = 1;
    r.facts.topo_files[0].path = xstrdup("/opt/microsoft/nd/topo.xml");
    r.facts.topo_files[0].text = xstrdup("<pci busid=\"0000:11:00.0\" class=\"0x030200\"/>"
                                         "<pci busid=\"0000:21:00.0\" class=\"0x030200\"/>");
    expect("NCCL_TOPO_FILE", "/opt/microsoft/nd/topo.xml");
    r.facts.topo_files[0].text[14] = '9';
    EXPECT_WHY("NCCL_TOPO_FILE", ENV_REFUSED, "either none or several");
    free(r.facts.topo_files[0].text);
    r.facts.topo_files[0].text = xstrdup("<pci busid=\"0000:11:00.0\" class=\"0x030200\"/>"
                                         "<pci busid=\"0000:21:00.0\" class=\"0x030200\"/>"
                                         "<pci busid=\"0000:31:00.0\" class=\"0x030200\"/>");
    expect("NCCL_TOPO_FILE", NULL);
}

/* ---- NCCL's own ---- */

Test(resolve, strictness_makes_nccl_strict) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_IGNORE_NET_MISMATCH", NULL);
    r.in.strict = true;
    expect("NCCL_IGNORE_NET_MISMATCH", "0");
    r.in.n_nodes = 1;
    expect("NCCL_IGNORE_NET_MISMATCH", NULL);
}

Test(resolve, a_comm_id_when_asked) {
    expect("NCCL_COMM_ID", NULL);
    r.in.comm_id = "10.0.0.1:12345";
    expect("NCCL_COMM_ID", "10.0.0.1:12345");
    r.in.mode = NCCL_ENV_OFF;
    expect("NCCL_COMM_ID", "10.0.0.1:12345");
}

Test(resolve, a_ras_port_of_the_job) {
    r.in.ras_port = 4567;
    expect("NCCL_RAS_ADDR", NULL);
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_RAS_ADDR", "localhost:4567");
    r.facts.nccl_version = 22304;
    expect("NCCL_RAS_ADDR", NULL);
    r.facts.nccl_version = 22400;
    expect("NCCL_RAS_ADDR", "localhost:4567");
    r.in.envp = ENV(TEXT("NCCL_RAS_ENABLE=0"));
    expect("NCCL_RAS_ADDR", NULL);
    r.in.envp = NULL;
    r.in.ras_port = 0;
    expect("NCCL_RAS_ADDR", NULL);
    r.in.preview = true;
    expect("NCCL_RAS_ADDR", "localhost:PORT");
}

Test(resolve, nccl_warns_with_gpus_and_tells_more_when_asked) {
    expect("NCCL_DEBUG", NULL);
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    expect("NCCL_DEBUG", "WARN");
    expect("NCCL_DEBUG_FILE", NULL);
    r.in.mode = NCCL_ENV_MINIMAL;
    expect("NCCL_DEBUG", NULL);
    r.in.debug = true;
    expect("NCCL_DEBUG", "INFO");
    EXPECT_WHY("NCCL_DEBUG_FILE", ENV_REFUSED, "--log-dir");
    r.in.log_dir = "/logs";
    expect("NCCL_DEBUG_FILE", "/logs/nccl.%h.%p.log");
    r.in.log_dir = "/logs/100%";
    EXPECT_WHY("NCCL_DEBUG_FILE", ENV_REFUSED, "%");
    r.in.envp = ENV(TEXT("NCCL_DEBUG=VERSION"));
    EXPECT_WHY("NCCL_DEBUG", ENV_KEPT, "environment");
}

/* ---- CUDA ---- */

Test(resolve, devices_in_the_order_of_the_bus) {
    expect("CUDA_DEVICE_ORDER", NULL);
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    expect("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    r.in.mode = NCCL_ENV_MINIMAL;
    expect("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    r.in.envp = ENV(TEXT("CUDA_DEVICE_ORDER=FASTEST_FIRST"));
    EXPECT_WHY("CUDA_DEVICE_ORDER", ENV_KEPT, "environment");
}

Test(resolve, other_vendors_gpus_are_none) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    r.t.gpus[0].vendor = TOPO_VENDOR_AMD;
    expect("CUDA_DEVICE_ORDER", NULL);
    expect("TORCH_FR_BUFFER_SIZE", NULL);
}

Test(resolve, devices_are_narrowed_only_when_asked) {
    rig_gpus(&r, 4, TOPO_LINK_INFINIBAND, 400);
    r.in.n_visible = 4;
    r.in.local_rank = 1;
    expect("CUDA_VISIBLE_DEVICES", NULL);
    r.in.virtual_local_rank = true;
    expect("CUDA_VISIBLE_DEVICES", "1");
    r.in.virtual_local_rank = false;
    r.in.gpus_per_worker = 2;
    expect("CUDA_VISIBLE_DEVICES", "2,3");
    r.in.local_rank = 2;
    EXPECT_WHY("CUDA_VISIBLE_DEVICES", ENV_REFUSED, "local rank 2");
    r.in.local_rank = 0;
    r.in.envp = ENV(TEXT("CUDA_VISIBLE_DEVICES=GPU-a, GPU-b"));
    expect("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b");
    expect("HIP_VISIBLE_DEVICES", NULL);
    r.in.envp = ENV(TEXT("HIP_VISIBLE_DEVICES=3, 2,1"));
    expect("HIP_VISIBLE_DEVICES", "3,2");
    expect("CUDA_VISIBLE_DEVICES", "0,1");
    r.in.local_rank = 1;
    EXPECT_WHY("HIP_VISIBLE_DEVICES", ENV_REFUSED, "local rank 1");
    r.in.envp = ENV(TEXT("CUDA_VISIBLE_DEVICES=GPU-a, GPU-b"));
    r.in.gpus_per_worker = 0;
    EXPECT_WHY("CUDA_VISIBLE_DEVICES", ENV_KEPT, "environment");
}

/* ---- PyTorch ---- */

static void expect_recorder(const char *const names[4]) {
    static const char *const values[] = {"2000", "/l/nccl_trace_rank_", "1", "/l/nccl_trace_pipe_"};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        expect(names[i], values[i]);
    r.in.mode = NCCL_ENV_MINIMAL;
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        expect(names[i], NULL);
    r.in.mode = NCCL_ENV_FULL;
    r.in.log_dir = NULL;
    expect(names[1], NULL);
    expect(names[3], NULL);
    r.in.log_dir = "/l";
}

/* A worker with PyTorch 2.8 or newer prints a warning for each old name that is set. */
Test(resolve, the_flight_recorder_with_gpus_by_the_names_that_its_version_knows) {
    static const char *const names[] = {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"};
    const char *const old[] = {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", names[2], names[3]};
    static const char *const versions[] = {"", "2.8.0+cu128", "2.13.0+cu130", "3.0.0"}, *const before[] = {"2.7.1",
                                                                                                           "1.13"};
    r.in.log_dir = "/l";
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        expect(names[i], NULL);
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        (void)snprintf(r.facts.torch_version, sizeof r.facts.torch_version, "%s", versions[i]);
        expect_recorder(names);
        expect(old[0], NULL);
        expect(old[1], NULL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        (void)snprintf(r.facts.torch_version, sizeof r.facts.torch_version, "%s", before[i]);
        expect_recorder(old);
        expect(names[0], NULL);
        expect(names[1], NULL);
    }
}

Test(resolve, one_name_of_a_setting_stands_for_the_other) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    r.in.log_dir = "/l";
    r.in.envp = ENV(TEXT("TORCH_NCCL_TRACE_BUFFER_SIZE=0"), TEXT("TORCH_FR_DUMP_TEMP_FILE=/mine_"));
    EXPECT_WHY("TORCH_FR_BUFFER_SIZE", ENV_REFUSED, "its other name");
    EXPECT_WHY("TORCH_NCCL_TRACE_BUFFER_SIZE", ENV_KEPT, "environment");
    expect("TORCH_NCCL_DUMP_ON_TIMEOUT", NULL);
    expect("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", NULL);
    expect("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", NULL);
}

Test(resolve, gloo_asks_for_all_peers_at_once) {
    expect("GLOO_ENABLE_STORE_V2_API", "1");
    expect("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "1");
    (void)snprintf(r.facts.torch_version, sizeof r.facts.torch_version, "2.6.0+cu124");
    expect("GLOO_ENABLE_STORE_V2_API", NULL);
    expect("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL);
    (void)snprintf(r.facts.torch_version, sizeof r.facts.torch_version, "2.13.0+cpu");
    r.in.envp = ENV(TEXT("GLOO_ENABLE_STORE_V2_API=0"));
    expect("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL);
    r.in.envp = NULL;
    r.in.n_nodes = 1;
    expect("GLOO_ENABLE_STORE_V2_API", NULL);
    expect("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL);
}

Test(resolve, threads_as_torchrun_or_by_cores) {
    expect("OMP_NUM_THREADS", "1");
    r.in.mode = NCCL_ENV_OFF;
    expect("OMP_NUM_THREADS", "1");
    r.in.omp_cores = true;
    r.in.bound_cores = 12;
    expect("OMP_NUM_THREADS", "12");
    r.in.envp = ENV(TEXT("OMP_NUM_THREADS=3"));
    EXPECT_WHY("OMP_NUM_THREADS", ENV_KEPT, "environment");
    r.in.envp = NULL;
    r.in.omp_cores = false;
    r.in.nproc = 1;
    expect("OMP_NUM_THREADS", NULL);
}

/* One result is used for all workers of a node, unless this returns true. */
Test(resolve, workers_get_the_same_but_for_what_was_asked_for) {
    static char text[2][1 << 16];
    rig_gpus(&r, 4, TOPO_LINK_ETHERNET, 200);
    rig_nic(&r, "mlx5_9", TOPO_LINK_INFINIBAND, 25);
    r.in.n_visible = 4;
    r.in.nproc = 4;
    r.in.log_dir = "/l";
    r.in.ras_port = 1;
    r.in.debug = r.in.strict = true;
    r.in.comm_id = "a:1";
    for (int asked = 0; asked < 4; asked++) {
        r.in.gpus_per_worker = asked == 1;
        r.in.virtual_local_rank = asked == 2;
        r.in.omp_cores = asked == 3;
        for (uint32_t i = 0; i < 2; i++) {
            r.in.local_rank = r.in.rank = i;
            r.in.bound_cores = i + 2; /* known only with --omp=cores */
            _cleanup_(strbuf_fini) struct strbuf one = {0};
            rig_resolve(&r);
            env_write_json(&r.result, 0, 0, &one);
            (void)snprintf(text[i], sizeof text[i], "%s", strbuf_text(&one));
        }
        cr_assert_eq(strcmp(text[0], text[1]) != 0, env_is_per_worker(&r.in), "%d", asked);
    }
}

/* ---- precedence ---- */

Test(resolve, off_sets_nothing) {
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    rig_nic(&r, "mlx5_9", TOPO_LINK_ETHERNET, 25);
    r.in.mode = NCCL_ENV_OFF;
    r.in.ras_port = 1234;
    r.in.log_dir = "/l";
    r.in.nproc = 1;
    r.netif.warning = true;
    rig_resolve(&r);
    for (uint32_t i = 0; i < r.result.n; i++)
        cr_assert_neq(r.result.choices[i].action, ENV_SET, "%s", r.result.choices[i].name);
    cr_assert_not(rig_warns(&r, "interface"));
}

Test(resolve, one_node_without_gpus_gets_what_torchrun_gives) {
    r.in.n_nodes = 1;
    r.in.log_dir = "/l";
    r.in.ras_port = 1234;
    rig_resolve(&r);
    cr_assert_eq(r.result.n, 1u);
    cr_assert_str_eq(r.result.choices[0].name, "OMP_NUM_THREADS");
    r.in.nproc = 1;
    rig_resolve(&r);
    cr_assert_eq(r.result.n, 0u);
    cr_assert_eq(r.result.n_warnings, 0u);
}

Test(resolve, the_environment_wins_over_files_and_rules) {
    rig_conf(&r, false, "/etc/nccl.conf", "#\n\nNCCL_SOCKET_IFNAME=eth7\nNCCL_IB_TC=41\n");
    rig_conf(&r, true, "/home/u/.nccl.conf", "NCCL_IB_TC=52\n");
    EXPECT_WHY("NCCL_SOCKET_IFNAME", ENV_KEPT, "/etc/nccl.conf line 3");
    cr_assert_str_eq(rig_find(&r, "NCCL_SOCKET_IFNAME")->value, "eth7");
    expect("GLOO_SOCKET_IFNAME", "eth0");
    EXPECT_WHY("NCCL_IB_TC", ENV_KEPT, "/home/u/.nccl.conf line 1");
    cr_assert_str_eq(rig_find(&r, "NCCL_IB_TC")->value, "52");
    r.in.envp = ENV(TEXT("NCCL_SOCKET_IFNAME=eth9"), TEXT("NCCL_BUFFSIZE=1"), TEXT("PATH=/bin"));
    EXPECT_WHY("NCCL_SOCKET_IFNAME", ENV_KEPT, "has precedence over /etc/nccl.conf line 3");
    cr_assert_str_eq(rig_find(&r, "NCCL_SOCKET_IFNAME")->value, "eth9");
    EXPECT_WHY("NCCL_BUFFSIZE", ENV_KEPT, "environment");
    cr_assert_null(rig_find(&r, "PATH"));
}

Test(resolve, an_option_wins_over_all) {
    rig_conf(&r, false, "/etc/nccl.conf", "NCCL_SOCKET_IFNAME=eth7\n");
    r.in.envp = ENV(TEXT("NCCL_SOCKET_IFNAME=eth8"));
    r.in.set = ENV(TEXT("NCCL_SOCKET_IFNAME=eth9"), TEXT("MY=x"));
    EXPECT_WHY("NCCL_SOCKET_IFNAME", ENV_ASKED, "--env");
    expect("NCCL_SOCKET_IFNAME", "eth9");
    expect("MY", "x");
    r.in.mode = NCCL_ENV_OFF;
    expect("MY", "x");
    uint32_t n = 0;
    for (uint32_t i = 0; i < r.result.n; i++)
        n += strcmp(r.result.choices[i].name, "NCCL_SOCKET_IFNAME") == 0;
    cr_assert_eq(n, 1u);
}

Test(resolve, google_gets_nothing_of_nccl_but_what_is_asked_for) {
    static const enum cloud clouds[] = {CLOUD_GCP_TCPX, CLOUD_GCP_TCPXO, CLOUD_GCP_GIB};
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    r.in.ras_port = 1234;
    r.in.comm_id = "a:1";
    for (size_t i = 0; i < ARRAY_SIZE(clouds); i++) {
        r.facts.cloud = clouds[i];
        rig_resolve(&r);
        for (uint32_t k = 0; k < r.result.n; k++) {
            const struct env_choice *c = &r.result.choices[k];
            bool nccl = strncmp(c->name, "NCCL_", 5) == 0 && strcmp(c->name, "NCCL_COMM_ID") != 0;
            cr_assert_not(nccl && c->action == ENV_SET, "%s", c->name);
        }
        EXPECT_WHY("NCCL_SOCKET_IFNAME", ENV_REFUSED, "Google");
        EXPECT_WHY("NCCL_RAS_ADDR", ENV_REFUSED, "Google");
        EXPECT_WHY("NCCL_DEBUG", ENV_REFUSED, "Google");
        expect("NCCL_COMM_ID", "a:1");
        expect("GLOO_SOCKET_IFNAME", "eth0");
    }
    r.in.debug = true;
    expect("NCCL_DEBUG", "INFO");
}

/* ---- findings ---- */

Test(resolve, limits_that_are_too_low_are_told) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    r.facts.memlock_hard = 8 << 20;
    r.facts.nofile_hard = 1024;
    r.facts.stack = UINT64_MAX;
    r.facts.shm_bytes = 64 << 20;
    cr_assert(rig_warns(&r, "limited to 8192 KiB"));
    cr_assert(rig_warns(&r, "limited to 1024 (ulimit -n)"));
    cr_assert(rig_warns(&r, "stack is unlimited"));
    cr_assert(rig_warns(&r, "holds only 64 MiB"));
    r.facts.memlock_hard = UINT64_MAX;
    r.facts.nofile_hard = 1 << 20;
    r.facts.stack = 8 << 20;
    r.facts.shm_bytes = UINT64_C(8) << 30;
    rig_resolve(&r);
    cr_assert_eq(r.result.n_warnings, 0u, "%s", r.result.n_warnings > 0 ? r.result.warnings[0] : "");
}

Test(resolve, limits_matter_with_as_many_ranks_as_need_them) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    r.facts.nofile_hard = 20000;
    r.facts.stack = UINT64_MAX;
    r.in.n_nodes = r.in.nproc = 1;
    rig_resolve(&r);
    cr_assert_eq(r.result.n_warnings, 0u, "%s", r.result.n_warnings > 0 ? r.result.warnings[0] : "");
    r.in.nproc = 8;
    cr_assert_not(rig_warns(&r, "open files"));
    cr_assert(rig_warns(&r, "stack is unlimited"));
    r.in.n_nodes = 20;
    cr_assert(rig_warns(&r, "limited to 20000 (ulimit -n): with 160 ranks NCCL can need 20992"));
    r.facts.nofile_hard = 131071;
    r.in.n_nodes = 1000;
    cr_assert(rig_warns(&r, "limited to 131071 (ulimit -n): with 8000 ranks NCCL can need 131072"));
}

Test(resolve, limits_matter_with_gpus_only) {
    r.facts.memlock_hard = 8 << 20;
    r.facts.nofile_hard = 1024;
    rig_resolve(&r);
    cr_assert_eq(r.result.n_warnings, 0u);
}

Test(resolve, fewer_devices_than_workers_are_told) {
    rig_gpus(&r, 4, TOPO_LINK_INFINIBAND, 400);
    r.in.envp = ENV(TEXT("CUDA_VISIBLE_DEVICES=0,1"));
    r.in.n_visible = 2;
    cr_assert(rig_warns(&r, "shows 2 GPUs to 8 workers"));
    r.in.nproc = 2;
    cr_assert_not(rig_warns(&r, "shows 2 GPUs"));
}

Test(resolve, parts_of_one_gpu_are_told) {
    uint32_t visible[] = {0, 1, 1};
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    r.in.visible = visible;
    r.in.n_visible = r.in.nproc = 3;
    cr_assert_not(rig_warns(&r, "MIG"));
    r.t.gpus[1].mig = true;
    cr_assert(rig_warns(&r, "local ranks 1 and 2 have MIG parts of one GPU"));
    r.in.nproc = 2;
    cr_assert_not(rig_warns(&r, "MIG"));
    r.in.nproc = 3;
    r.in.envp = ENV(TEXT("NCCL_MULTI_RANK_GPU_ENABLE=1"));
    cr_assert_not(rig_warns(&r, "MIG"));
}

Test(resolve, a_roce_port_without_an_address_is_told) {
    rig_gpus(&r, 2, TOPO_LINK_ETHERNET, 200);
    cr_assert_not(rig_warns(&r, "GID"), "nothing is known");
    for (uint32_t i = 0; i < 2; i++) {
        rig_gid(&r.t.nics[i], 0, TOPO_GID_ROCE_V1, "v4");
        rig_gid(&r.t.nics[i], 1, TOPO_GID_ROCE_V2, "link-local");
    }
    cr_assert(rig_warns(&r, "mlx5_0 and others have no RoCE v2 address (GID)"));
    rig_gid(&r.t.nics[0], 2, TOPO_GID_ROCE_V2, "v4");
    cr_assert(rig_warns(&r, "mlx5_1 has no RoCE v2 address (GID)"));
    r.in.n_nodes = 1;
    cr_assert_not(rig_warns(&r, "GID"));
    r.in.n_nodes = 2;
    r.in.envp = ENV(TEXT("NCCL_IB_DISABLE=1"));
    cr_assert_not(rig_warns(&r, "GID"));
    r.in.envp = NULL;
    rig_gid(&r.t.nics[1], 2, TOPO_GID_ROCE_V2, "ula");
    cr_assert_not(rig_warns(&r, "GID"));
}

Test(resolve, missing_efa_devices_are_told) {
    rig_gpus(&r, 8, TOPO_LINK_UNKNOWN, 0);
    (void)snprintf(r.facts.signs.product_name, sizeof r.facts.signs.product_name, "p5en.48xlarge");
    cr_assert(rig_warns(&r, "0 of the 16 EFA devices of a p5en.48xlarge are visible here, so that NCCL would use TCP"));
    for (uint32_t i = 0; i < 8; i++)
        r.t.nics[i].kind = TOPO_NIC_EFA;
    cr_assert(rig_warns(&r, "8 of the 16 EFA devices"));
    r.in.n_nodes = 1;
    cr_assert_not(rig_warns(&r, "EFA"));
    r.in.n_nodes = 2;
    for (uint32_t i = 8; i < 16; i++)
        rig_nic(&r, "rdmap1s0", TOPO_LINK_UNKNOWN, 0)->kind = TOPO_NIC_EFA;
    cr_assert_not(rig_warns(&r, "EFA"));
    (void)snprintf(r.facts.signs.product_name, sizeof r.facts.signs.product_name, "g5.48xlarge");
    cr_assert_not(rig_warns(&r, "EFA"));
}

Test(resolve, a_vendors_script_that_was_not_run_is_told) {
    static const struct {
        enum cloud cloud;
        const char *variable, *script;
    } all[] = {{CLOUD_GCP_GIB, "NCCL_NET=gIB", "set_nccl_env.sh"},
               {CLOUD_GCP_TCPXO, "NCCL_FASTRAK_CTRL_DEV=eth0", "nccl-env-profile.sh"},
               {CLOUD_GCP_TCPX, "NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0", "the one that comes with it"}};
    rig_gpus(&r, 1, TOPO_LINK_ETHERNET, 200);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        r.facts.cloud = all[i].cloud;
        r.in.envp = NULL;
        cr_assert(rig_warns(&r, all[i].script), "%s", all[i].script);
        r.in.envp = ENV(TEXT(all[i].variable));
        cr_assert_not(rig_warns(&r, "source its script"), "%s", all[i].variable);
    }
    r.facts.cloud = CLOUD_AWS;
    r.in.envp = NULL;
    cr_assert_not(rig_warns(&r, "source its script"));
}

Test(resolve, a_topology_file_that_is_gone_is_told) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    rig_conf(&r, false, "/etc/nccl.conf", "NCCL_TOPO_FILE=/opt/topo.xml\n");
    cr_assert_not(rig_warns(&r, "no such file"));
    r.facts.topo_file_gone = true;
    cr_assert(rig_warns(&r, "NCCL_TOPO_FILE=/opt/topo.xml: there is no such file here"));
}

Test(resolve, a_configuration_file_that_cant_be_read_is_told) {
    rig_gpus(&r, 1, TOPO_LINK_INFINIBAND, 400);
    r.in.envp = ENV(TEXT("NCCL_CONF_FILE=/mine.conf"));
    cr_assert_not(rig_warns(&r, "NCCL_CONF_FILE"));
    r.facts.conf_file_error = -ENOENT;
    cr_assert(rig_warns(&r, "NCCL_CONF_FILE=/mine.conf: No such file or directory; ~/.nccl.conf is not read"));
    r.facts.conf_file_error = -EINVAL;
    cr_assert(rig_warns(&r, "NCCL_CONF_FILE=/mine.conf: it is not a regular file"));
}

Test(resolve, a_plugin_that_the_user_names_owns_the_tuning) {
    static const char *const names[] = {"NCCL_NET_PLUGIN=ofi", "NCCL_TUNER_PLUGIN=x.so", "NCCL_ENV_PLUGIN=site"};
    rig_gpus(&r, 2, TOPO_LINK_INFINIBAND, 400);
    rig_nic(&r, "mlx5_9", TOPO_LINK_ETHERNET, 25);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        r.in.envp = ENV(TEXT(names[i]));
        EXPECT_WHY("NCCL_IB_HCA", ENV_REFUSED, "the plug-in of NCCL_");
    }
    r.in.envp = ENV(TEXT("NCCL_TUNER_PLUGIN=none"), TEXT("NCCL_ENV_PLUGIN="));
    expect("NCCL_IB_HCA", "=mlx5_0,mlx5_1");
}

Test(resolve, what_users_set_is_looked_at) {
    rig_conf(&r, false, "/etc/nccl.conf", "NCCL_P2P_DISABLE=1\n");
    r.in.envp = ENV(TEXT("NCCL_SOCKET_IFNAME=^docker0"));
    r.in.set = ENV(TEXT("NCCL_SHM_DISABLE=1"));
    cr_assert(rig_warns(&r, "NCCL_P2P_DISABLE=1 (/etc/nccl.conf line 1)"));
    cr_assert(rig_warns(&r, "lo is used again"));
    cr_assert(rig_warns(&r, "NCCL_SHM_DISABLE=1"));
}
