/* CPUs and NUMA nodes that hwloc finds in recorded trees. */
#include <ftw.h>
#include <limits.h>

#include "../sysfs/sysfs_rig.h"
#include "base/prng.h"
#include "rig/unit.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/model/affinity.h"

TestSuite(hwloc_cpus, .fini = clean);

static const char *list(const struct cpuset *s) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cpuset_write_list(s, &out);
    return rig_text("%s", strbuf_text(&out));
}

static int read_tree(struct err *err) {
    return hwloc_fill(&(struct hwloc_source){.sysroot = tree.root}, DISCOVER_CPUS, &topo, err);
}

struct node {
    int32_t index, package;
    const char *cpus;
    bool gpu_memory;
};

/* The machine from which the recorded tree was made: each node has 64 GiB, and each core is on the node of its CPUs. */
static void check_machine(const char *preset, uint32_t packages, uint32_t cores, const struct node *nodes, uint32_t n) {
    tree_machine(&tree, preset, 4, 2);
    struct err err = {0};
    cr_assert_eq(read_tree(&err), 0, "%s", err.text);
    topology_sort(&topo);
    cr_assert_eq(topo.packages, packages);
    cr_assert_eq(topo.n_cores, cores);
    cr_assert_eq(topo.n_numa, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct topo_numa *found = &topo.numa[i];
        cr_assert_eq(found->index, nodes[i].index);
        cr_assert_eq(found->package, nodes[i].package);
        cr_assert_str_eq(list(&found->cpus), nodes[i].cpus);
        cr_assert_eq(found->gpu_memory, nodes[i].gpu_memory);
        cr_assert_eq(found->bytes, UINT64_C(64) << 30);
        for (uint32_t k = 0; k < cores; k++)
            if (cpuset_within(&topo.cores[k].cpus, &found->cpus))
                cr_assert(topo.cores[k].numa == found->index && topo.cores[k].package == found->package);
    }
    for (uint32_t k = 0; k < cores; k++) {
        cr_assert_eq(topo.cores[k].first, k);
        cr_assert_eq(cpuset_count(&topo.cores[k].cpus), 2);
        cr_assert(cpuset_has(&topo.cores[k].cpus, k + cores), "the second thread");
    }
}

static uint32_t caches_of(uint32_t level) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < topo.n_caches; i++)
        n += topo.caches[i].level == level;
    return n;
}

Test(hwloc_cpus, of_two_sockets) {
    check_machine("2s-cpu", 2, 8, (struct node[]){{0, 0, "0-3,8-11"}, {1, 1, "4-7,12-15"}}, 2);
    cr_assert_eq(caches_of(1), 8);
    cr_assert_eq(caches_of(2), 8);
}

Test(hwloc_cpus, of_sub_numa_clusters_with_gaps) {
    check_machine("snc4-gap", 2, 32,
                  (struct node[]){{0, 0, "0-3,32-35"},
                                  {1, 0, "4-7,36-39"},
                                  {2, 0, "8-11,40-43"},
                                  {3, 0, "12-15,44-47"},
                                  {8, 1, "16-19,48-51"},
                                  {9, 1, "20-23,52-55"},
                                  {10, 1, "24-27,56-59"},
                                  {11, 1, "28-31,60-63"}},
                  8);
}

Test(hwloc_cpus, of_a_socket_of_four_nodes) {
    check_machine(
        "slingshot", 1, 16,
        (struct node[]){{0, 0, "0-3,16-19"}, {1, 0, "4-7,20-23"}, {2, 0, "8-11,24-27"}, {3, 0, "12-15,28-31"}}, 4);
    cr_assert_eq(caches_of(3), 2);
}

Test(hwloc_cpus, of_a_machine_with_gpu_memory) {
    check_machine("gpu-memory", 2, 8,
                  (struct node[]){{0, 0, "0-3,8-11"},
                                  {8, 1, "4-7,12-15"},
                                  {252, 1, "", true},
                                  {253, 1, "", true},
                                  {254, 0, "", true},
                                  {255, 0, "", true}},
                  6);
}

Test(hwloc_cpus, of_a_kernel_without_numa) { check_machine("no-numa", 1, 4, (struct node[]){{0, 0, "0-7"}}, 1); }

Test(hwloc_cpus, workers_are_bound_by_them) {
    tree_machine(&tree, "2s-8gpu-8nic", 4, 2);
    struct err err = {0};
    cr_assert_eq(read_tree(&err), 0, "%s", err.text);
    fill();
    uint32_t visible[8];
    for (uint32_t i = 0; i < 8; i++)
        visible[i] = i;
    struct affinity_input in = {
        .mode = BIND_NUMA, .nproc = 8, .local_rank = 7, .visible = visible, .n_visible = 8, .gpus_per_worker = 1};
    struct affinity a;
    cr_assert_eq(affinity_choose(&topo, &in, &a, &err), 0, "%s", err.text);
    cr_assert(a.bound, "%s", a.why);
    cr_assert_str_eq(list(&a.cpus), "4-7,12-15");
    cr_assert_str_eq(list(&a.nodes), "1");
}

#define FILES_MAX 4096
static char *files[FILES_MAX];
static uint32_t n_files;

static int collect(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    if (flag == FTW_F && strstr(path, "/system/") != NULL && n_files < FILES_MAX)
        files[n_files++] = xstrdup(path + strlen(tree.root) + 1);
    return 0;
}

Test(hwloc_cpus, stands_trees_that_are_damaged_at_random) {
    static const char *const texts[] = {"",
                                        "\n",
                                        "-1\n",
                                        "0-8191\n",
                                        "0-99999999\n",
                                        "7-3\n",
                                        "0,0,0\n",
                                        "0-15\n",
                                        "1,3\n",
                                        "4294967296\n",
                                        "MemTotal: 99999999999999999999 kB\n",
                                        "MemTotal:\n",
                                        "Instruction\n"};
    const char *given = getenv("MUSTER_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 7;
    struct prng r = {seed};
    tree_machine(&tree, "2s-cpu", 4, 2);
    cr_assert_eq(nftw(tree.root, collect, 32, FTW_PHYS), 0);
    cr_assert_gt(n_files, 300);
    int read = 0;
    for (int round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < n_files / 40; i++)
            tree_write(&tree, files[prng_below(&r, n_files)], texts[prng_below(&r, ARRAY_SIZE(texts))]);
        struct err err = {0};
        read += read_tree(&err) == 0;
        struct cpuset taken = {0};
        for (uint32_t i = 0; i < topo.n_cores; i++) {
            cr_assert_not(cpuset_is_empty(&topo.cores[i].cpus), "seed %lu round %d", seed, round);
            cr_assert_not(cpuset_intersects(&topo.cores[i].cpus, &taken), "seed %lu round %d", seed, round);
            cr_assert(cpuset_within(&topo.cores[i].cpus, &topo.allowed), "seed %lu round %d", seed, round);
            cpuset_or(&taken, &topo.cores[i].cpus);
        }
        topology_fini(&topo);
    }
    cr_assert_gt(read, 0, "seed %lu", seed);
    for (uint32_t i = 0; i < n_files; i++)
        free(files[i]);
}
