#include "nccl_env/rules/resolve.h"

#include "../node_rig.h"
#include "rig/unit.h"

static struct rig r;
static void init(void) { rig_make(&r, ""); }
static void fini(void) { rig_fini(&r); }
TestSuite(resolve, .init = init, .fini = fini);

/* wanted: the value that muster sets, or "REFUSED: part of the reason", "KEPT: ", "ASKED: "; NULL: muster sets none;
 * "-": it is not even listed. */
static void check(const char *words, const char *name, const char *wanted) {
    static const char *const actions[] = {[ENV_KEPT] = "KEPT: ", [ENV_REFUSED] = "REFUSED: ", [ENV_ASKED] = "ASKED: "};
    rig_make(&r, words);
    const struct env_choice *c = rig_find(&r, name);
    for (enum env_action a = ENV_KEPT; wanted != NULL && a <= ENV_ASKED; a++)
        if (strncmp(wanted, actions[a], strlen(actions[a])) == 0) {
            cr_expect(c != NULL && c->action == a && strstr(c->reason, wanted + strlen(actions[a])) != NULL,
                      "%s: %s: %s", words, name, c != NULL ? c->reason : "(nothing)");
            return;
        }
    const char *got = c != NULL && (c->action == ENV_SET || c->action == ENV_ASKED) ? c->value : NULL;
    if (wanted == NULL)
        cr_expect_null(got, "%s: %s=%s", words, name, got);
    else if (strcmp(wanted, "-") == 0)
        cr_expect_null(c, "%s: %s", words, name);
    else
        cr_expect_str_eq(got != NULL ? got : "(nothing)", wanted, "%s: %s=%s", words, name, got);
}

struct fact {
    const char *words, *name, *wanted;
};

static void check_all(const struct fact *facts, size_t n) {
    for (size_t i = 0; i < n; i++)
        check(facts[i].words, facts[i].name, facts[i].wanted);
}

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
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        check("gpus:1", names[i], "-");
        check("gpus:1 rack", names[i], "REFUSED:  ");
    }
    check("gpus:1 rack", "NCCL_MNNVL_ENABLE", "REFUSED: domain nvl-3f8e2a10.0, IMEX channel present");
    check("gpus:1 rack env:NCCL_MNNVL_ENABLE=0", "NCCL_MNNVL_ENABLE", "KEPT: the environment sets it");
    cr_assert(rig_warns(&r, "NCCL_MNNVL_ENABLE=0 (environment): ") == r.t.nvlinks_known);
    check("gpus:1 rack nodes:1", "NCCL_MNNVL_UUID", "-");
}

Test(resolve, interfaces) {
    static const struct fact facts[] = {
        {"", "NCCL_SOCKET_IFNAME", "=eth0"},
        {"", "GLOO_SOCKET_IFNAME", "eth0"},
        {"", "TP_SOCKET_IFNAME", "eth0"},
        {"minimal", "NCCL_SOCKET_IFNAME", "=eth0"},
        {"nodes:1", "NCCL_SOCKET_IFNAME", "-"},
        {"nodes:1", "GLOO_SOCKET_IFNAME", "-"},
        {"nodes:1", "TP_SOCKET_IFNAME", "-"},
        /* UCX where MPI is mixed in: Slurm sets the ranks of PMIx for every program */
        {"", "UCX_NET_DEVICES", NULL},
        {"env:PMIX_RANK=0 env:SLURM_PROCID=0", "UCX_NET_DEVICES", NULL},
        {"env:PMIX_RANK=0", "UCX_NET_DEVICES", "eth0"},
        {"env:OMPI_COMM_WORLD_SIZE=2 env:SLURM_PROCID=0", "UCX_NET_DEVICES", "eth0"},
        {"env:OMPI_COMM_WORLD_SIZE=2 minimal", "UCX_NET_DEVICES", NULL},
        {"env:OMPI_COMM_WORLD_SIZE=2 nodes:1", "UCX_NET_DEVICES", NULL},
    };
    check_all(facts, ARRAY_SIZE(facts));
}

Test(resolve, no_interface_where_none_was_chosen) {
    r.netif = (struct netif_choice){.why = "docker0 is plumbing", .warning = true};
    static const char *const names[] = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct env_choice *c = rig_find(&r, names[i]);
        cr_assert(c->action == ENV_REFUSED && strstr(c->reason, "docker0") != NULL, "%s", c->reason);
    }
    cr_assert(rig_warns(&r, "docker0"));
    r.in.mode = NCCL_ENV_OFF;
    cr_assert_not(rig_warns(&r, "docker0"));
    r.in.mode = NCCL_ENV_FULL;
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
    cr_assert_str_eq(rig_set(&r, "NCCL_SOCKET_FAMILY"), "AF_INET6");
    n->addrs[0].link_local = false;
    cr_assert_null(rig_set(&r, "NCCL_SOCKET_FAMILY"));
    n->addrs[0].link_local = true;
    n->addrs[2] = (struct topo_netaddr){.addr = "10.0.0.2", .prefix = 24};
    n->n_addrs = 3;
    cr_assert_null(rig_set(&r, "NCCL_SOCKET_FAMILY"));
    n->n_addrs = 2;
    (void)snprintf(r.netif.addr, sizeof r.netif.addr, "10.0.0.2");
    cr_assert_null(rig_set(&r, "NCCL_SOCKET_FAMILY"));
}

#define STORAGE "gpus:2 eth:mlx5_9:25 "
#define OLD_GIDS "gid:*:0:v1:link-local gid:*:1:v2:link-local gid:*:3:v2:v4 "
#define ULA_GIDS "gid:*:1:v2:link-local gid:*:2:v2:ula "

Test(resolve, rdma) {
    static const struct fact facts[] = {
        /* HCAs unlike those of the GPUs are left out; those of the same kind stay */
        {"gpus:2", "NCCL_IB_HCA", NULL},
        {STORAGE, "NCCL_IB_HCA", "=mlx5_0,mlx5_1"},
        {STORAGE "minimal", "NCCL_IB_HCA", NULL},
        {STORAGE "nodes:1", "NCCL_IB_HCA", NULL},
        {"gpus:2 ib:mlx5_9:400", "NCCL_IB_HCA", NULL},
        {STORAGE "down:2", "NCCL_IB_HCA", NULL},
        {"gpus:2 eth:mlx5_9:0", "NCCL_IB_HCA", NULL},
        /* they are a cloud's or plug-in's own matter */
        {STORAGE "oracle", "NCCL_IB_HCA", "REFUSED: Oracle"},
        {STORAGE "plugin:/opt/x/libnccl-net.so", "NCCL_IB_HCA", "REFUSED: /opt/x/libnccl-net.so"},
        {STORAGE "plugin:/opt/x/libnccl-net.so env:NCCL_NET_PLUGIN=none", "NCCL_IB_HCA", "=mlx5_0,mlx5_1"},
        {STORAGE "env:NCCL_IB_DISABLE=1", "NCCL_IB_HCA", NULL},
        {STORAGE "env:NCCL_NET_PLUGIN=ofi", "NCCL_IB_HCA", "REFUSED: the plug-in of NCCL_"},
        {STORAGE "env:NCCL_TUNER_PLUGIN=x.so", "NCCL_IB_HCA", "REFUSED: the plug-in of NCCL_"},
        {STORAGE "env:NCCL_ENV_PLUGIN=site", "NCCL_IB_HCA", "REFUSED: the plug-in of NCCL_"},
        {STORAGE "env:NCCL_TUNER_PLUGIN=none env:NCCL_ENV_PLUGIN=", "NCCL_IB_HCA", "=mlx5_0,mlx5_1"},
        /* a GID's index only for old NCCL on RoCE */
        {"roce:2 " OLD_GIDS "nccl:22005", "NCCL_IB_GID_INDEX", "3"},
        {"roce:2 " OLD_GIDS "nccl:22100", "NCCL_IB_GID_INDEX", NULL},
        {"roce:2 " OLD_GIDS, "NCCL_IB_GID_INDEX", NULL},
        {"roce:2 " OLD_GIDS, "NCCL_IB_ADDR_FAMILY", NULL},
        {"roce:2 gid:0:3:v2:v4 gid:1:5:v2:v4 nccl:21806", "NCCL_IB_GID_INDEX", "REFUSED: 3 on mlx5_0 and 5 on mlx5_1"},
        {"gpus:2 gid:0:0:ib:link-local nccl:21806", "NCCL_IB_GID_INDEX", NULL},
        {"gpus:2 gid:0:0:ib:link-local nccl:21806", "NCCL_IB_ADDR_FAMILY", NULL},
        {"roce:2 " ULA_GIDS "nccl:22703", "NCCL_IB_ADDR_FAMILY", "AF_INET6"},
        {"roce:2 " ULA_GIDS "nccl:22703", "NCCL_IB_GID_INDEX", NULL},
        {"roce:2 " ULA_GIDS "nccl:22703 coreweave", "NCCL_IB_ADDR_FAMILY", "REFUSED: CoreWeave"},
        {"roce:2 " ULA_GIDS "nccl:22005", "NCCL_IB_ADDR_FAMILY", NULL},
        {"roce:2 " ULA_GIDS "nccl:22005", "NCCL_IB_GID_INDEX", "2"},
        {"roce:2 " ULA_GIDS "gid:1:4:v2:v4 nccl:22703", "NCCL_IB_ADDR_FAMILY", NULL},
    };
    check_all(facts, ARRAY_SIZE(facts));
    check("gpus:2 eth:mlx5_bond_0:25", "NCCL_IB_HCA", "=mlx5_0,mlx5_1");
    assert_has(rig_find(&r, "NCCL_IB_HCA")->reason, "mlx5_bond_0 (Ethernet, 25 Gb/s)");
}

Test(resolve, a_slow_hca_beside_a_gpu_is_no_storage) {
    rig_make(&r, "gpus:2 links");
    for (uint32_t i = 0; i < 2; i++)
        *topology_add_nvlink(&r.t) =
            (struct topo_nvlink){.gpu = i, .end = TOPO_NVLINK_SWITCH, .peer = TOPO_NONE, .count = 18};
    r.t.nics[0].ports[0].rate_mbps = 100000;
    rig_resolve(&r);
    struct nccl_prediction p;
    nccl_graph_predict(r.graph, 0, &p);
    cr_assert_str_eq(p.nets[0], "mlx5_1", "the other's is faster");
    cr_assert_null(rig_set(&r, "NCCL_IB_HCA"));
    rig_nic(&r, "mlx5_9", TOPO_LINK_INFINIBAND, 200);
    cr_assert_str_eq(rig_set(&r, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1");
}

Test(resolve, a_topology_file_only_if_it_fits) {
    static const char fits[] = "<pci busid=\"0000:11:00.0\" class=\"0x030200\"/>"
                               "<pci busid=\"0000:21:00.0\" class=\"0x030200\"/>";
    check("gpus:2", "NCCL_TOPO_FILE", "-");
    r.facts.n_topo_files = 1;
    r.facts.topo_files[0] = (struct nccl_topo_file){xstrdup("/opt/microsoft/nd/topo.xml"), xstrdup(fits)};
    cr_assert_str_eq(rig_set(&r, "NCCL_TOPO_FILE"), "/opt/microsoft/nd/topo.xml");
    r.facts.topo_files[0].text[14] = '9';
    cr_assert_eq(rig_find(&r, "NCCL_TOPO_FILE")->action, ENV_REFUSED);
    assert_has(rig_find(&r, "NCCL_TOPO_FILE")->reason, "either none or several");
    free(r.facts.topo_files[0].text);
    r.facts.topo_files[0].text = xasprintf("%s<pci busid=\"0000:31:00.0\" class=\"0x030200\"/>", fits);
    cr_assert_null(rig_set(&r, "NCCL_TOPO_FILE"));
}

Test(resolve, nccls_own) {
    static const struct fact facts[] = {
        {"gpus:1", "NCCL_IGNORE_NET_MISMATCH", NULL},
        {"gpus:1 strict", "NCCL_IGNORE_NET_MISMATCH", "0"},
        {"gpus:1 strict nodes:1", "NCCL_IGNORE_NET_MISMATCH", NULL},
        {"", "NCCL_COMM_ID", NULL},
        {"comm:10.0.0.1:12345", "NCCL_COMM_ID", "10.0.0.1:12345"},
        {"comm:10.0.0.1:12345 off", "NCCL_COMM_ID", "10.0.0.1:12345"},
        {"ras:4567", "NCCL_RAS_ADDR", NULL},
        {"gpus:1 ras:4567", "NCCL_RAS_ADDR", "localhost:4567"},
        {"gpus:1 ras:4567 nccl:22304", "NCCL_RAS_ADDR", NULL},
        {"gpus:1 ras:4567 nccl:22400", "NCCL_RAS_ADDR", "localhost:4567"},
        {"gpus:1 ras:4567 env:NCCL_RAS_ENABLE=0", "NCCL_RAS_ADDR", NULL},
        {"gpus:1", "NCCL_RAS_ADDR", NULL},
        {"gpus:1 preview", "NCCL_RAS_ADDR", "localhost:PORT"},
        {"", "NCCL_DEBUG", NULL},
        {"gpus:1", "NCCL_DEBUG", "WARN"},
        {"gpus:1", "NCCL_DEBUG_FILE", NULL},
        {"gpus:1 minimal", "NCCL_DEBUG", NULL},
        {"gpus:1 minimal debug", "NCCL_DEBUG", "INFO"},
        {"gpus:1 debug", "NCCL_DEBUG_FILE", "REFUSED: --log-dir"},
        {"gpus:1 debug log:/logs", "NCCL_DEBUG_FILE", "/logs/nccl.%h.%p.log"},
        {"gpus:1 debug log:/logs/100%", "NCCL_DEBUG_FILE", "REFUSED: %"},
        {"gpus:1 debug env:NCCL_DEBUG=VERSION", "NCCL_DEBUG", "KEPT: environment"},
    };
    check_all(facts, ARRAY_SIZE(facts));
}

#define FOUR "gpus:4 visible:4 "
#define UUIDS "env:CUDA_VISIBLE_DEVICES=GPU-a,~GPU-b "

Test(resolve, devices_and_threads) {
    static const struct fact facts[] = {
        {"", "CUDA_DEVICE_ORDER", NULL},
        {"gpus:1", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
        {"gpus:1 minimal", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
        {"gpus:1 env:CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_DEVICE_ORDER", "KEPT: environment"},
        {"gpus:1 amd", "CUDA_DEVICE_ORDER", NULL},
        {"gpus:1 amd", "TORCH_FR_BUFFER_SIZE", NULL},
        {FOUR "rank:1", "CUDA_VISIBLE_DEVICES", NULL},
        {FOUR "rank:1 virtual", "CUDA_VISIBLE_DEVICES", "1"},
        {FOUR "rank:1 each:2", "CUDA_VISIBLE_DEVICES", "2,3"},
        {FOUR "rank:2 each:2", "CUDA_VISIBLE_DEVICES", "REFUSED: local rank 2"},
        {FOUR UUIDS "each:2", "CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"},
        {FOUR UUIDS "each:2", "HIP_VISIBLE_DEVICES", NULL},
        {FOUR UUIDS, "CUDA_VISIBLE_DEVICES", "KEPT: environment"},
        {FOUR "each:2 env:HIP_VISIBLE_DEVICES=3,~2,1", "HIP_VISIBLE_DEVICES", "3,2"},
        {FOUR "each:2 env:HIP_VISIBLE_DEVICES=3,~2,1", "CUDA_VISIBLE_DEVICES", "0,1"},
        {FOUR "rank:1 each:2 env:HIP_VISIBLE_DEVICES=3,~2,1", "HIP_VISIBLE_DEVICES", "REFUSED: local rank 1"},
        {"", "OMP_NUM_THREADS", "1"},
        {"off", "OMP_NUM_THREADS", "1"},
        {"off omp cores:12", "OMP_NUM_THREADS", "12"},
        {"omp cores:12 env:OMP_NUM_THREADS=3", "OMP_NUM_THREADS", "KEPT: environment"},
        {"nproc:1", "OMP_NUM_THREADS", NULL},
    };
    check_all(facts, ARRAY_SIZE(facts));
}

/* A worker with PyTorch 2.8 or newer prints a warning for each old name that is set. */
Test(resolve, the_flight_recorder_with_gpus_by_the_names_that_its_version_knows) {
    static const char *const names[] = {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"},
                             *const old[] = {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                                             "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"};
    static const char *const values[] = {"2000", "/l/nccl_trace_rank_", "1", "/l/nccl_trace_pipe_"};
    static const char *const versions[] = {"", "2.8.0+cu128", "2.13.0+cu130", "3.0.0", "2.7.1", "1.13"};
    for (size_t v = 0; v < ARRAY_SIZE(versions); v++)
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            const bool is_old = v >= 4, both = strcmp(names[i], old[i]) == 0;
            _cleanup_(freep) char *words = xasprintf("gpus:1 torch:%s ", versions[v]),
                                  *full = xasprintf("%slog:/l", words), *less = xasprintf("%slog:/l minimal", words);
            check(full, is_old ? old[i] : names[i], values[i]);
            check(less, is_old ? old[i] : names[i], NULL);
            check(full, is_old ? names[i] : old[i], both ? values[i] : NULL);
            check(words, is_old ? old[i] : names[i], values[i][0] == '/' ? NULL : values[i]);
        }
}

#define MINE "gpus:1 log:/l env:TORCH_NCCL_TRACE_BUFFER_SIZE=0 env:TORCH_FR_DUMP_TEMP_FILE=/mine_"

Test(resolve, pytorch) {
    static const struct fact facts[] = {
        {"log:/l", "TORCH_FR_BUFFER_SIZE", NULL},
        {"log:/l", "TORCH_NCCL_DUMP_ON_TIMEOUT", NULL},
        {"log:/l", "TORCH_FR_DUMP_TEMP_FILE", NULL},
        {"log:/l", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", NULL},
        /* one name of a setting stands for the other */
        {MINE, "TORCH_FR_BUFFER_SIZE", "REFUSED: its other name"},
        {MINE, "TORCH_NCCL_TRACE_BUFFER_SIZE", "KEPT: environment"},
        {MINE, "TORCH_NCCL_DUMP_ON_TIMEOUT", NULL},
        {MINE, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", NULL},
        {MINE, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", NULL},
        /* gloo asks for all peers at once */
        {"", "GLOO_ENABLE_STORE_V2_API", "1"},
        {"", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "1"},
        {"torch:2.6.0+cu124", "GLOO_ENABLE_STORE_V2_API", NULL},
        {"torch:2.6.0+cu124", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL},
        {"torch:2.13.0+cpu env:GLOO_ENABLE_STORE_V2_API=0", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL},
        {"nodes:1", "GLOO_ENABLE_STORE_V2_API", NULL},
        {"nodes:1", "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", NULL},
    };
    check_all(facts, ARRAY_SIZE(facts));
}

/* One result is used for all workers of a node, unless this returns true. */
Test(resolve, workers_get_the_same_but_for_what_was_asked_for) {
    static char text[2][1 << 16];
    static const char *const asked[] = {"", "each:1", "virtual", "omp"};
    for (size_t k = 0; k < ARRAY_SIZE(asked); k++) {
        for (uint32_t i = 0; i < 2; i++) {
            _cleanup_(freep) char *words = xasprintf("roce:4 ib:mlx5_9:25 visible:4 nproc:4 log:/l ras:1 debug strict "
                                                     "comm:a:1 rank:%u cores:%u %s",
                                                     i, i + 2, asked[k]); /* cores are known only with omp */
            _cleanup_(strbuf_fini) struct strbuf one = {0};
            rig_make(&r, words);
            rig_resolve(&r);
            struct json_writer w = json_writer_of(&one);
            env_write_json(&r.result, 0, &w);
            (void)snprintf(text[i], sizeof text[i], "%s", strbuf_text(&one));
        }
        cr_assert_eq(strcmp(text[0], text[1]) != 0, env_is_per_worker(&r.in), "%s", asked[k]);
    }
}

Test(resolve, off_sets_nothing) {
    rig_make(&r, STORAGE "off ras:1234 log:/l nproc:1");
    rig_resolve(&r);
    for (uint32_t i = 0; i < r.result.n; i++)
        cr_assert_neq(r.result.choices[i].action, ENV_SET, "%s", r.result.choices[i].name);
}

Test(resolve, one_node_without_gpus_gets_what_torchrun_gives) {
    rig_make(&r, "nodes:1 log:/l ras:1234");
    rig_resolve(&r);
    cr_assert_eq(r.result.n, 1u);
    cr_assert_str_eq(r.result.choices[0].name, "OMP_NUM_THREADS");
    r.in.nproc = 1;
    rig_resolve(&r);
    cr_assert_eq(r.result.n, 0u);
    cr_assert_eq(r.result.warnings.n, 0u);
}

#define FILES "etc:#||NCCL_SOCKET_IFNAME=eth7|NCCL_IB_TC=41| home:NCCL_IB_TC=52| "
#define OPTION "etc:NCCL_SOCKET_IFNAME=eth7| env:NCCL_SOCKET_IFNAME=eth8 set:NCCL_SOCKET_IFNAME=eth9 set:MY=x "

Test(resolve, an_option_wins_over_the_environment_and_that_over_files_and_rules) {
    static const struct fact facts[] = {
        {FILES, "NCCL_SOCKET_IFNAME", "KEPT: /etc/nccl.conf line 3"},
        {FILES, "GLOO_SOCKET_IFNAME", "eth0"},
        {FILES, "NCCL_IB_TC", "KEPT: /home/u/.nccl.conf line 1"},
        {FILES "env:NCCL_SOCKET_IFNAME=eth9", "NCCL_SOCKET_IFNAME", "KEPT: has precedence over /etc/nccl.conf line 3"},
        {"env:NCCL_BUFFSIZE=1", "NCCL_BUFFSIZE", "KEPT: environment"},
        {"env:PATH=/bin", "PATH", "-"},
        {OPTION, "NCCL_SOCKET_IFNAME", "ASKED: --env"},
        {OPTION, "NCCL_SOCKET_IFNAME", "eth9"},
        {OPTION, "MY", "x"},
        {OPTION "off", "MY", "x"},
    };
    static const char *const values[][3] = {{FILES, "NCCL_SOCKET_IFNAME", "eth7"},
                                            {FILES, "NCCL_IB_TC", "52"},
                                            {FILES "env:NCCL_SOCKET_IFNAME=eth9", "NCCL_SOCKET_IFNAME", "eth9"}};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        rig_make(&r, values[i][0]);
        cr_assert_str_eq(rig_find(&r, values[i][1])->value, values[i][2]);
    }
    check_all(facts, ARRAY_SIZE(facts));
    uint32_t n = 0;
    for (uint32_t i = 0; i < r.result.n; i++)
        n += strcmp(r.result.choices[i].name, "NCCL_SOCKET_IFNAME") == 0;
    cr_assert_eq(n, 1u);
}

Test(resolve, google_gets_nothing_of_nccl_but_what_is_asked_for) {
    static const char *const clouds[] = {"gpus:2 ras:1234 comm:a:1 tcpx", "gpus:2 ras:1234 comm:a:1 tcpxo",
                                         "gpus:2 ras:1234 comm:a:1 gib"};
    for (size_t i = 0; i < ARRAY_SIZE(clouds); i++) {
        check(clouds[i], "NCCL_SOCKET_IFNAME", "REFUSED: Google");
        check(clouds[i], "NCCL_RAS_ADDR", "REFUSED: Google");
        check(clouds[i], "NCCL_DEBUG", "REFUSED: Google");
        check(clouds[i], "NCCL_COMM_ID", "a:1");
        check(clouds[i], "GLOO_SOCKET_IFNAME", "eth0");
        for (uint32_t k = 0; k < r.result.n; k++) {
            const struct env_choice *c = &r.result.choices[k];
            bool nccl = strncmp(c->name, "NCCL_", 5) == 0 && strcmp(c->name, "NCCL_COMM_ID") != 0;
            cr_assert_not(nccl && c->action == ENV_SET, "%s", c->name);
        }
    }
    check("gpus:2 gib debug", "NCCL_DEBUG", "INFO");
}

#define LOW "memlock:8388608 nofile:1024 stack shm:67108864 "
#define GIDLESS "roce:2 gid:*:0:v1:v4 gid:*:1:v2:link-local "
#define EFA "gpus:8 product:p5en.48xlarge "

Test(resolve, findings) {
    static const struct {
        const char *words, *part;
        bool is_found;
    } cases[] = {
        {"gpus:1 " LOW, "limited to 8192 KiB", true},
        {"gpus:1 " LOW, "limited to 1024 (ulimit -n)", true},
        {"gpus:1 " LOW, "stack is unlimited", true},
        {"gpus:1 " LOW, "holds only 64 MiB", true},
        {"gpus:1 memlock:18446744073709551615 nofile:1048576 stack:8388608 shm:1073741824", "", false},
        {LOW, "", false}, /* limits matter with GPUs only, */
        /* and with as many ranks as need them */
        {"gpus:1 nofile:20000 stack nodes:1 nproc:1", "", false},
        {"gpus:1 nofile:20000 stack nodes:1", "open files", false},
        {"gpus:1 nofile:20000 stack nodes:1", "stack is unlimited", true},
        {"gpus:1 nofile:20000 nodes:20", "limited to 20000 (ulimit -n): with 160 ranks NCCL can need 20992", true},
        {"gpus:1 nofile:131071 nodes:1000", "limited to 131071 (ulimit -n): with 8000 ranks NCCL can need 131072",
         true},
        {"gpus:4 visible:2 env:CUDA_VISIBLE_DEVICES=0,1", "shows 2 GPUs to 8 workers", true},
        {"gpus:4 visible:2 env:CUDA_VISIBLE_DEVICES=0,1 nproc:2", "shows 2 GPUs", false},
        {"roce:2", "GID", false}, /* nothing is known */
        {GIDLESS, "mlx5_0 and others have no RoCE v2 address (GID)", true},
        {GIDLESS "gid:0:2:v2:v4", "mlx5_1 has no RoCE v2 address (GID)", true},
        {GIDLESS "nodes:1", "GID", false},
        {GIDLESS "env:NCCL_IB_DISABLE=1", "GID", false},
        {GIDLESS "gid:0:2:v2:v4 gid:1:2:v2:ula", "GID", false},
        {EFA, "0 of the 16 EFA devices of a p5en.48xlarge are visible here, so that NCCL would use TCP", true},
        {EFA "efa:8", "8 of the 16 EFA devices", true},
        {EFA "efa:8 nodes:1", "EFA", false},
        {EFA "efa:16", "EFA", false},
        {"gpus:8 product:g5.48xlarge", "EFA", false},
        /* a vendor's script that was not run */
        {"roce:1 gib", "set_nccl_env.sh", true},
        {"roce:1 gib env:NCCL_NET=gIB", "source its script", false},
        {"roce:1 tcpxo", "nccl-env-profile.sh", true},
        {"roce:1 tcpxo env:NCCL_FASTRAK_CTRL_DEV=eth0", "source its script", false},
        {"roce:1 tcpx", "the one that comes with it", true},
        {"roce:1 tcpx env:NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0", "source its script", false},
        {"roce:1 aws", "source its script", false},
        {"gpus:1 etc:NCCL_TOPO_FILE=/opt/topo.xml", "no such file", false},
        {"gpus:1 etc:NCCL_TOPO_FILE=/opt/topo.xml gone", "NCCL_TOPO_FILE=/opt/topo.xml: there is no such file here",
         true},
        /* what users set is looked at */
        {"etc:NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1 (/etc/nccl.conf line 1)", true},
        {"env:NCCL_SOCKET_IFNAME=^docker0", "lo is used again", true},
        {"set:NCCL_SHM_DISABLE=1", "NCCL_SHM_DISABLE=1", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig_make(&r, cases[i].words);
        cr_expect_eq(rig_warns(&r, cases[i].part), cases[i].is_found, "%s: %s", cases[i].words,
                     r.result.warnings.n > 0 ? r.result.warnings.list[0] : "");
    }
}

Test(resolve, parts_of_one_gpu_are_told) {
    uint32_t visible[] = {0, 1, 1};
    rig_make(&r, "gpus:2 visible:3 nproc:3");
    r.in.visible = visible;
    cr_assert_not(rig_warns(&r, "MIG"));
    r.t.gpus[1].mig = true;
    cr_assert(rig_warns(&r, "local ranks 1 and 2 have MIG parts of one GPU"));
    r.in.nproc = 2;
    cr_assert_not(rig_warns(&r, "MIG"));
    r.in.nproc = 3;
    r.env[0] = (char[]){"NCCL_MULTI_RANK_GPU_ENABLE=1"};
    cr_assert_not(rig_warns(&r, "MIG"));
}

Test(resolve, a_configuration_file_that_cant_be_read_is_told) {
    rig_make(&r, "gpus:1 env:NCCL_CONF_FILE=/mine.conf");
    cr_assert_not(rig_warns(&r, "NCCL_CONF_FILE"));
    r.facts.conf_file_error = -ENOENT;
    cr_assert(rig_warns(&r, "NCCL_CONF_FILE=/mine.conf: No such file or directory; ~/.nccl.conf is not read"));
    r.facts.conf_file_error = -EINVAL;
    cr_assert(rig_warns(&r, "NCCL_CONF_FILE=/mine.conf: it is not a regular file"));
}
