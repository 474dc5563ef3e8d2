/* CPUs and NUMA nodes as files tell them, beside what hwloc makes of the same files. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "sysfs_rig.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_load_io.h"
#include "topology/model/affinity.h"

TestSuite(sysfs_cpu, .fini = clean);

static char *list(const struct cpuset *s) {
    static char texts[4][1024];
    static unsigned next;
    char *text = texts[next++ % 4];
    struct strbuf out = {0};
    cpuset_write_list(s, &out);
    (void)snprintf(text, sizeof texts[0], "%s", strbuf_text(&out));
    strbuf_fini(&out);
    return text;
}

static void same_cpus(const struct cpuset *a, const struct cpuset *b, const char *what, uint32_t i) {
    cr_assert(cpuset_equal(a, b), "%s %u: %s, hwloc says %s", what, i, list(a), list(b));
}

/* Without NUMA hwloc takes all of the machine's memory; there is no file of node 0 that has it. */
static bool has_bytes_of_nodes(const char *root) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/node", root != NULL ? root : "");
    return access(path, F_OK) == 0;
}

/* Of GPUs' memory hwloc knows that it is that, and what it is near; files say only that it has no CPUs. */
static void check_as_hwloc(const char *root) {
    struct topology by_hwloc = {0};
    struct err err = {0};
    struct hwloc_source source = {.sysroot = root};
    cr_assert_eq(hwloc_fill(&source, DISCOVER_CPUS, &by_hwloc, &err), 0, "%s", err.text);
    cr_assert(sysfs_fill_cpus(root, &topo));
    topology_sort(&by_hwloc);
    topology_sort(&topo);
    same_cpus(&topo.allowed, &by_hwloc.allowed, "allowed", 0);
    cr_assert_eq(topo.packages, by_hwloc.packages);
    cr_assert_eq(topo.n_numa, by_hwloc.n_numa);
    for (uint32_t i = 0; i < topo.n_numa; i++) {
        const struct topo_numa *a = &topo.numa[i], *b = &by_hwloc.numa[i];
        same_cpus(&a->cpus, &b->cpus, "NUMA node", i);
        cr_assert_eq(a->index, b->index);
        cr_assert_eq(a->bytes, has_bytes_of_nodes(root) ? b->bytes : 0, "%lu, hwloc says %lu", a->bytes, b->bytes);
        if (!cpuset_is_empty(&a->cpus))
            cr_assert_eq(a->package, b->package, "node %u: %d, hwloc says %d", i, a->package, b->package);
    }
    cr_assert_eq(topo.n_cores, by_hwloc.n_cores);
    for (uint32_t i = 0; i < topo.n_cores; i++) {
        const struct topo_core *a = &topo.cores[i], *b = &by_hwloc.cores[i];
        same_cpus(&a->cpus, &b->cpus, "core", i);
        cr_assert_eq(a->first, b->first);
        cr_assert_eq(a->numa, b->numa, "core %u: %d, hwloc says %d", i, a->numa, b->numa);
        cr_assert_eq(a->package, b->package);
    }
    cr_assert_eq(topo.n_caches, by_hwloc.n_caches);
    for (uint32_t i = 0; i < topo.n_caches; i++) {
        cr_assert_eq(topo.caches[i].level, by_hwloc.caches[i].level);
        same_cpus(&topo.caches[i].cpus, &by_hwloc.caches[i].cpus, "cache", i);
        cr_assert_eq(topo.caches[i].first, by_hwloc.caches[i].first);
    }
    topology_fini(&by_hwloc);
}

static void check_preset(const char *preset) {
    tree_machine(&tree, preset, 4, 2);
    check_as_hwloc(tree.root);
}

Test(sysfs_cpu, two_sockets_are_as_hwloc_sees_them) {
    check_preset("2s-cpu");
    cr_assert_eq(topo.packages, 2);
    cr_assert_eq(topo.n_numa, 2);
    cr_assert_eq(topo.numa[1].package, 1);
    cr_assert_str_eq(list(&topo.numa[1].cpus), "4-7,12-15");
    cr_assert_eq(topo.numa[1].bytes, UINT64_C(67108864) << 10);
    cr_assert_eq(topo.n_cores, 8);
    cr_assert_str_eq(list(&topo.cores[4].cpus), "4,12");
}

Test(sysfs_cpu, sub_numa_clusters_with_gaps_are_as_hwloc_sees_them) { check_preset("snc4-gap"); }
Test(sysfs_cpu, a_socket_of_four_nodes_is_as_hwloc_sees_it) { check_preset("slingshot"); }
Test(sysfs_cpu, memory_of_gpus_is_as_hwloc_sees_it) { check_preset("gpu-memory"); }

Test(sysfs_cpu, a_kernel_without_numa_has_one_node) {
    check_preset("no-numa");
    cr_assert_eq(topo.n_numa, 1);
    cr_assert_eq(topo.numa[0].index, 0);
}

Test(sysfs_cpu, this_machine_is_as_hwloc_sees_it) { check_as_hwloc(NULL); }

Test(sysfs_cpu, cpus_without_a_topology_are_cores) {
    tree_new(&tree);
    tree_write(&tree, "sys/devices/system/cpu/online", "0-2,5\n");
    tree_write(&tree, "sys/devices/system/node/node3/cpulist", "1-2,7\n");
    cr_assert(sysfs_fill_cpus(tree.root, &topo));
    cr_assert_eq(topo.n_numa, 1);
    cr_assert_eq(topo.numa[0].index, 3);
    cr_assert_str_eq(list(&topo.numa[0].cpus), "1-2", "7 does not run");
    cr_assert_eq(topo.numa[0].package, -1);
    cr_assert_eq(topo.n_cores, 4);
    cr_assert_eq(topo.cores[0].numa, -1);
    cr_assert_eq(topo.cores[1].numa, 3);
    cr_assert_eq(topo.packages, 0);
}

Test(sysfs_cpu, nothing_is_said_of_an_empty_tree) {
    tree_new(&tree);
    cr_assert_not(sysfs_fill_cpus(tree.root, &topo));
    cr_assert_eq(topo.n_cores, 0);
}

/* What a worker is bound to does not depend on who told of the nodes. */
Test(sysfs_cpu, workers_are_bound_by_it) {
    tree_machine(&tree, "2s-8gpu-8nic", 4, 2);
    cr_assert(sysfs_fill_cpus(tree.root, &topo));
    fill();
    uint32_t visible[8];
    for (uint32_t i = 0; i < 8; i++)
        visible[i] = i;
    struct affinity_input in = {
        .mode = BIND_NUMA, .nproc = 8, .local_rank = 7, .visible = visible, .n_visible = 8, .gpus_per_worker = 1};
    struct affinity a;
    struct err err = {0};
    cr_assert_eq(affinity_choose(&topo, &in, &a, &err), 0, "%s", err.text);
    cr_assert(a.bound, "%s", a.why);
    cr_assert_str_eq(list(&a.cpus), "4-7,12-15");
    cr_assert_str_eq(list(&a.nodes), "1");
}

/* ---- damage ---- */

#define FILES_MAX 4096
static char *files[FILES_MAX];
static uint32_t n_files;

static int collect(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)ftw;
    if (flag == FTW_F && strstr(path, "/system/") != NULL && n_files < FILES_MAX)
        files[n_files++] = xstrdup(path + strlen(tree.root) + 1);
    return 0;
}

Test(sysfs_cpu, stands_trees_that_are_damaged_at_random) {
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
    for (int round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < n_files / 40; i++)
            tree_write(&tree, files[prng_below(&r, n_files)], texts[prng_below(&r, ARRAY_SIZE(texts))]);
        (void)sysfs_fill_cpus(tree.root, &topo);
        struct cpuset taken = {0};
        for (uint32_t i = 0; i < topo.n_cores; i++) {
            cr_assert_not(cpuset_is_empty(&topo.cores[i].cpus), "seed %lu round %d", seed, round);
            cr_assert_not(cpuset_intersects(&topo.cores[i].cpus, &taken), "seed %lu round %d", seed, round);
            cr_assert(cpuset_within(&topo.cores[i].cpus, &topo.allowed), "seed %lu round %d", seed, round);
            cpuset_or(&taken, &topo.cores[i].cpus);
        }
        cr_assert(cpuset_equal(&taken, &topo.allowed), "each CPU is of a core; seed %lu round %d", seed, round);
        topology_fini(&topo);
    }
    for (uint32_t i = 0; i < n_files; i++)
        free(files[i]);
}
