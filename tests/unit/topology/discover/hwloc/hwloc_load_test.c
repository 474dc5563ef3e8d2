/* hwloc's XML files of real machines. Each expected fact comes from the machine's documentation or from other lines of
 * the file. A small made-up machine is used where there is no recording. */
#include "topology/discover/hwloc/hwloc_io.h"

#include <dirent.h>

#include "../../recorded.h"
#include "rig/unit.h"
#include "topology/discover/discovery_io.h"

static void load(const char *name, struct topology *t) {
    char path[RECORDED_PATH_MAX];
    const char *whole = rig_text("hwloc/%s", name);
    struct err err = {0};
    if (!recorded_path(path, whole))
        cr_skip_test("no recorded %s here", name);
    cr_assert_eq(topology_load(path, t, &err), 0, "%s: %s", name, err.text);
    cr_assert_eq(t->source, TOPO_HWLOC_XML);
    cr_assert_str_eq(t->from, path);
    recorded_check(t, name);
}

static struct topology t;
static struct err err;

static void done(void) { topology_fini(&t); }
TestSuite(hwloc_load, .fini = done);

struct machine {
    const char *file, *arch, *vendor;
    uint32_t packages, numa, cores, cpus, gpus, nics, netifs, nvlinks;
};

static const struct machine machines[] = {
    {"flux-corona.xml", "x86_64", "AuthenticAMD", 2, 2, 48, 96, 8, 1, 3, 0},
    {"flux-ipa20.xml", "x86_64", "GenuineIntel", 2, 8, 112, 224, 4, 4, 6, 12},
    {"flux-sched-chimera.xml", "x86_64", "AuthenticAMD", 1, 2, 32, 64, 2, 0, 3, 0},
    {"flux-sierra.xml", "ppc64le", "", 2, 6, 44, 176, 4, 4, 6, 0},
    {"flux-tuo.SPX.xml", "x86_64", "AuthenticAMD", 4, 4, 96, 192, 4, 4, 5, 0},
    {"hwloc-16intel64-manyVFs.xml", "x86_64", NULL, 2, 2, 16, 16, 0, 3, 6, 0},
    {"hwloc-32em64t-2n8c2t-pci-normalio.xml", "x86_64", "GenuineIntel", 2, 2, 16, 32, 4, 1, 3, 0},
    {"hwloc-32em64t-2n8c2t-pci-wholeio.xml", "x86_64", "GenuineIntel", 2, 2, 16, 32, 4, 1, 3, 0},
    {"hwloc-96em64t-4n4d3ca2co-pci.xml", "x86_64", NULL, 16, 4, 96, 96, 0, 0, 8, 0},
    {"hwloc-nvidiaDGX2.xml", "x86_64", "GenuineIntel", 2, 2, 4, 4, 16, 0, 0, 96},
    {"hwloc-power8gpudistances.xml", "ppc64le", "", 2, 2, 8, 16, 4, 0, 0, 8},
    {"mpibind-coral-lassen.xml", "ppc64le", "", 2, 2, 40, 160, 4, 4, 6, 0},
    {"mpibind-cts1-pascal.xml", "x86_64", "GenuineIntel", 2, 2, 36, 72, 2, 1, 3, 0},
    {"mpibind-eas-tioga.xml", "x86_64", "AuthenticAMD", 1, 4, 64, 128, 8, 4, 5, 0},
    {"mpibind-epyc-corona-p2.xml", "x86_64", "AuthenticAMD", 2, 2, 48, 96, 8, 1, 3, 0},
    {"mpibind-g4dnmetal.xml", "x86_64", "GenuineIntel", 2, 2, 48, 96, 8, 1, 1, 0},
    {"prrte-turin-4xH200-noplugins.xml", "x86_64", "AuthenticAMD", 2, 8, 128, 256, 4, 6, 7, 0},
    {"prrte-turin-4xH200-nvml.xml", "x86_64", "AuthenticAMD", 2, 8, 128, 256, 4, 6, 7, 12},
};
static const char format3[] = "hwloc-nvidiaDGX2-format3.0.xml";

Test(hwloc_load, each_recorded_machine_has_what_its_makers_say) {
    uint32_t seen = 0;
    for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
        const struct machine *m = &machines[i];
        char path[RECORDED_PATH_MAX];
        if (!recorded_path(path, rig_text("hwloc/%s", m->file)))
            continue;
        load(m->file, &t);
        cr_expect_str_eq(t.arch, m->arch, "%s: %s", m->file, t.arch);
        if (m->vendor != NULL)
            cr_expect_str_eq(t.cpu_vendor, m->vendor, "%s: %s", m->file, t.cpu_vendor);
        cr_expect_eq(t.packages, m->packages, "%s: %u packages", m->file, t.packages);
        cr_expect_eq(t.n_numa, m->numa, "%s: %u NUMA nodes", m->file, t.n_numa);
        cr_expect_eq(t.n_cores, m->cores, "%s: %u cores", m->file, t.n_cores);
        cr_expect_eq(cpuset_count(&t.allowed), m->cpus, "%s: %u CPUs", m->file, cpuset_count(&t.allowed));
        cr_expect_eq(t.n_gpus, m->gpus, "%s: %u GPUs", m->file, t.n_gpus);
        cr_expect_eq(t.n_nics, m->nics, "%s: %u NICs", m->file, t.n_nics);
        cr_expect_eq(t.n_netifs, m->netifs, "%s: %u interfaces", m->file, t.n_netifs);
        cr_expect_eq(t.n_nvlinks, m->nvlinks, "%s: %u NVLink bundles", m->file, t.n_nvlinks);
        cr_expect_eq(t.nvlinks_known, m->nvlinks > 0, "%s", m->file);
        cr_expect_eq(t.n_warnings, 0, "%s: %s", m->file, t.n_warnings > 0 ? t.warnings[0] : "");
        topology_fini(&t);
        seen++;
    }
    if (seen == 0)
        cr_skip_test("no recorded machines here");
}

Test(hwloc_load, no_recorded_file_is_left_out) {
    char path[RECORDED_PATH_MAX];
    DIR *dir = recorded_path(path, "hwloc") ? opendir(path) : NULL;
    if (dir == NULL)
        cr_skip_test("no recorded machines here");
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        bool known = e->d_name[0] == '.' || strcmp(e->d_name, format3) == 0;
        for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
            known = known || strcmp(machines[i].file, e->d_name) == 0;
        cr_expect(known, "nothing is known of %s", e->d_name);
    }
    (void)closedir(dir);
}

Test(hwloc_load, format_3_is_refused_with_what_to_do) {
    char path[RECORDED_PATH_MAX];
    if (!recorded_path(path, "hwloc/hwloc-nvidiaDGX2-format3.0.xml"))
        cr_skip_test("no recorded %s here", format3);
    cr_assert_eq(topology_load(path, &t, &err), -EINVAL);
    cr_assert_neq(strstr(err.text, "format 3.0"), NULL, "%s", err.text);
    cr_assert_neq(strstr(err.text, "--export-xml-flags v2"), NULL, "%s", err.text);
}

/* The file with NVIDIA's plugins and the one without them describe the same machine. */
Test(hwloc_load, two_recordings_of_one_machine_agree) {
    struct topology a = {0}, b = {0};
    load("prrte-turin-4xH200-nvml.xml", &a);
    load("prrte-turin-4xH200-noplugins.xml", &b);
    recorded_agree(&a, &b);
    for (uint32_t i = 0; i < a.n_nics; i++)
        cr_assert_eq(a.nics[i].node_guid, b.nics[i].node_guid);
    topology_fini(&a);
    topology_fini(&b);
}

Test(hwloc_load, turin_has_each_gpu_behind_its_nics_switch) {
    load("prrte-turin-4xH200-nvml.xml", &t);
    static const struct {
        const char *at, *nic;
        int32_t numa;
    } gpus[] = {{"0000:06:00.0", "mlx5_0", 1},
                {"0000:16:00.0", "mlx5_3", 2},
                {"0000:96:00.0", "mlx5_4", 6},
                {"0000:e6:00.0", "mlx5_5", 7}};
    for (uint32_t i = 0; i < ARRAY_SIZE(gpus); i++) {
        cr_assert_str_eq(recorded_address(&t, t.gpus[i].pci), gpus[i].at);
        cr_assert_str_eq(t.gpus[i].name, "NVIDIA H200");
        cr_assert_eq(t.gpus[i].vendor, TOPO_VENDOR_NVIDIA);
        cr_assert_eq(strncmp(t.gpus[i].uuid, "GPU-", 4), 0);
        cr_assert_eq(t.gpus[i].numa, gpus[i].numa);
        const struct topo_nic *n = &t.nics[topology_find_nic(&t, gpus[i].nic)];
        cr_assert_eq(n->numa, gpus[i].numa);
        char gpu[512], nic[512];
        recorded_chain(&t, t.gpus[i].pci, gpu);
        recorded_chain(&t, n->pci, nic);
        cr_assert_eq(strncmp(gpu, nic, 2 * strlen("0000:00:01.1 ")), 0, "%s / %s", gpu, nic);
        bool active = strcmp(gpus[i].nic, "mlx5_4") == 0 || strcmp(gpus[i].nic, "mlx5_5") == 0;
        cr_assert_eq(topo_nic_state(n), active ? TOPO_PORT_ACTIVE : TOPO_PORT_DOWN);
        const struct topo_pci *p = &t.pci[t.gpus[i].pci];
        cr_assert_eq(p->class_id, 0x030200);
        cr_assert_eq(p->device, 0x2335);
        cr_assert_float_eq(p->link_gbs, 63.0, 0.1);
    }
    JSON_HAS(&t,
             "'name':'mlx5_5','kind':'rdma','numa':7,'netdev':'ib0','driver':'','virtual_function':false,"
             "'node_guid':'b8e9240300baa4bc','sys_image_guid':'b8e9240300baa4bc',",
             "'link_layer':'InfiniBand','rate_mbps':0,'lid':409,'gids':[{'index':0,"
             "'gid':'fe80000000000000b8e9240300baa4bc','type':'unknown','netdev':''}]");
    cr_assert_str_eq(t.netifs[topology_find_netif(&t, "ib0")].nic, "mlx5_5");
    for (uint32_t i = 0; i < t.n_nvlinks; i++) {
        cr_assert_eq(t.nvlinks[i].end, TOPO_NVLINK_GPU);
        cr_assert_eq(t.nvlinks[i].count, 6);
    }
    cr_assert_str_eq(t.host, "h200-1001");
}

Test(hwloc_load, ipa20_has_sub_numa_clusters_and_a_gpu_without_a_nic) {
    load("flux-ipa20.xml", &t);
    static const int32_t numa[] = {3, 1, 7, 5};
    for (uint32_t i = 0; i < 8; i++) {
        cr_assert_eq(t.numa[i].index, (int32_t)i);
        cr_assert_eq(t.numa[i].package, (int32_t)i / 4);
        cr_assert_eq(cpuset_count(&t.numa[i].cpus), 28);
    }
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(t.gpus[i].numa, numa[i]);
        cr_assert_str_eq(t.gpus[i].name, "NVIDIA H100 80GB HBM3");
        cr_assert_str_empty(t.gpus[i].uuid); /* zeros in the file: it was made anonymous */
    }
    for (uint32_t i = 0; i < t.n_nics; i++)
        cr_assert_neq(t.nics[i].numa, 7, "GPU 2 is alone on its node");
    cr_assert_eq(t.cpu_family, 6);
    cr_assert_eq(t.cpu_model, 143);
}

Test(hwloc_load, dgx2_gpus_have_six_links_each_to_another_switch) {
    load("hwloc-nvidiaDGX2.xml", &t);
    uint32_t count[16] = {0};
    for (uint32_t i = 0; i < t.n_nvlinks; i++) {
        const struct topo_nvlink *l = &t.nvlinks[i];
        cr_assert_eq(l->end, TOPO_NVLINK_SWITCH);
        cr_assert_eq(l->count, 1);
        cr_assert_neq(topology_find_pci(&t, l->target), TOPO_NONE);
        cr_assert_eq(l->target.bus >> 4, l->gpu < 8 ? 6 : 0xc, "the switches of its own board");
        count[l->gpu] += l->count;
    }
    for (uint32_t i = 0; i < 16; i++)
        cr_assert_eq(count[i], 6);
}

Test(hwloc_load, power8_has_links_to_the_cpu) {
    load("hwloc-power8gpudistances.xml", &t);
    uint32_t gpu[4] = {0}, cpu[4] = {0};
    for (uint32_t i = 0; i < t.n_nvlinks; i++) {
        const struct topo_nvlink *l = &t.nvlinks[i];
        cr_assert_eq(l->count, 2); /* 40000 MB/s of NVLink 1 */
        if (l->end == TOPO_NVLINK_GPU) {
            cr_assert_eq(l->peer, l->gpu ^ 1);
            gpu[l->gpu]++;
        } else {
            cr_assert_eq(l->end, TOPO_NVLINK_CPU);
            cpu[l->gpu]++;
        }
    }
    for (uint32_t i = 0; i < 4; i++)
        cr_assert(gpu[i] == 1 && cpu[i] == 1);
}

Test(hwloc_load, an_hwloc_1_file_of_power9_tells_gpu_memory_from_the_hosts) {
    load("flux-sierra.xml", &t);
    static const int32_t index[] = {0, 8, 252, 253, 254, 255};
    for (uint32_t i = 0; i < t.n_numa; i++) {
        cr_assert_eq(t.numa[i].index, index[i]);
        cr_assert_eq(t.numa[i].gpu_memory, i >= 2);
        cr_assert_eq(cpuset_count(&t.numa[i].cpus), i < 2 ? 88 : 0);
        cr_assert_geq(t.numa[i].bytes, UINT64_C(15) << 30);
    }
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(t.gpus[i].numa, i < 2 ? 0 : 8);
        cr_assert_str_eq(t.gpus[i].name, "Tesla V100-SXM2-16GB");
    }
    cr_assert_str_eq(t.nics[0].netdev, "hsi0"); /* of an InfiniBand card */
    cr_assert_eq(t.nics[0].kind, TOPO_NIC_RDMA);
}

Test(hwloc_load, what_a_cgroup_took_away_is_left_out) {
    load("mpibind-coral-lassen.xml", &t);
    struct cpuset allowed, online;
    cr_assert_eq(cpuset_parse_list("8-87,96-175", &allowed), 0);
    cr_assert_eq(cpuset_parse_list("0-175", &online), 0);
    cr_assert(cpuset_equal(&t.allowed, &allowed));
    cr_assert(cpuset_equal(&t.online, &online));
    cr_assert_eq(cpuset_count(&t.numa[0].cpus), 80);
    cr_assert_eq(t.cores[0].first, 8);
}

Test(hwloc_load, amd_gpus_are_those_that_compute) {
    static const struct {
        const char *file;
        uint32_t gpus, class_id;
    } cases[] = {{"flux-corona.xml", 8, 0x038000},          {"mpibind-epyc-corona-p2.xml", 8, 0x038000},
                 {"flux-tuo.SPX.xml", 4, 0x120000},         {"mpibind-eas-tioga.xml", 8, 0x038000},
                 {"flux-sched-chimera.xml", 1, 0x030000},   {"hwloc-32em64t-2n8c2t-pci-normalio.xml", 1, 0x030000},
                 {"hwloc-96em64t-4n4d3ca2co-pci.xml", 0, 0}}; /* its ES1000 is a card0 */
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        load(cases[i].file, &t);
        uint32_t amd = 0;
        for (uint32_t g = 0; g < t.n_gpus; g++)
            if (t.gpus[g].vendor == TOPO_VENDOR_AMD) {
                cr_assert_eq(t.pci[t.gpus[g].pci].class_id, cases[i].class_id);
                cr_assert_str_not_empty(t.gpus[g].name);
                amd++;
            }
        cr_expect_eq(amd, cases[i].gpus, "%s: %u", cases[i].file, amd);
        topology_fini(&t);
    }
}

Test(hwloc_load, slingshot_and_efa_are_known_from_infiniband) {
    static const struct {
        const char *file, *nic, *netdev;
        enum topo_nic_kind kind;
    } cases[] = {{"flux-tuo.SPX.xml", "hsi3", "hsi3", TOPO_NIC_SLINGSHOT},
                 {"mpibind-eas-tioga.xml", "hsi0", "hsi0", TOPO_NIC_SLINGSHOT},
                 {"mpibind-g4dnmetal.xml", "rdmap197s0", "", TOPO_NIC_EFA},
                 {"mpibind-cts1-pascal.xml", "mlx5_0", "hsi0", TOPO_NIC_RDMA},
                 {"hwloc-16intel64-manyVFs.xml", "usnic_0", "eth4", TOPO_NIC_RDMA}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        load(cases[i].file, &t);
        uint32_t at = topology_find_nic(&t, cases[i].nic);
        cr_assert_neq(at, TOPO_NONE, "%s: %s", cases[i].file, cases[i].nic);
        cr_expect_eq(t.nics[at].kind, cases[i].kind, "%s", cases[i].file);
        cr_expect_str_eq(t.nics[at].netdev, cases[i].netdev);
        topology_fini(&t);
    }
}
