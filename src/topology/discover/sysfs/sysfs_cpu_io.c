#include "topology/discover/sysfs/sysfs_io.h"

#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/discover/common/cpu_count_io.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define CPUS "/sys/devices/system/cpu"
#define NODES "/sys/devices/system/node"
#define CACHES_MAX 16 /* of one CPU; five are the most in use */

/* ---- lists of CPUs ---- */

/* Those of the file that may be used; *ret_all: all of them. False: it does not say. */
static bool read_cpus(const struct sysfs *s, const struct topology *t, const char *path,
                      struct cpuset *ret, struct cpuset *ret_all) {
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, "%s", path) < 0 || cpuset_parse_list(text, ret_all) < 0)
        return false;
    *ret = *ret_all;
    cpuset_and(ret, &t->allowed);
    return true;
}

static bool is_live(const struct sysfs *s) { return s->root[0] == '\0'; }

static void fill_allowed(const struct sysfs *s, struct topology *t) {
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, CPUS "/online") < 0 ||
        cpuset_parse_list(text, &t->online) < 0)
        t->online = (struct cpuset){0};
    if (!is_live(s) || !cpu_allowed(&t->allowed))
        t->allowed = t->online;
    if (cpuset_is_empty(&t->online))
        t->online = t->allowed;
}

/* ---- NUMA nodes ---- */

/* "Node 0 MemTotal:       67108864 kB". */
static uint64_t memory_of(const struct sysfs *s, uint32_t index) {
    static const char key[] = "MemTotal:";
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, NODES "/node%u/meminfo", index) < 0)
        return 0;
    const char *at = strstr(text, key);
    uint64_t kib = at != NULL ? strtoull(at + strlen(key), NULL, 10) : 0;
    return kib < UINT64_MAX >> 10 ? kib << 10 : 0;
}

static void add_node(const struct sysfs *s, struct topology *t, uint32_t index) {
    char path[SYSFS_PATH_MAX];
    struct topo_numa *n = topology_add_numa(t);
    if (n == NULL)
        return;
    struct cpuset all;
    n->index = (int32_t)index;
    n->bytes = memory_of(s, index);
    sysfs_path(path, NODES "/node%u/cpulist", index);
    (void)read_cpus(s, t, path, &n->cpus, &all); /* empty where it has memory only */
}

/* A kernel without NUMA has one node, and no folder of it. */
static void fill_nodes(const struct sysfs *s, struct topology *t) {
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    if (sysfs_list(s, NODES, &names) == 0) {
        for (uint32_t i = 0; i < names.n; i++) {
            uint64_t index;
            if (strncmp(names.names[i], "node", 4) == 0 &&
                parse_u64(names.names[i] + 4, &index) == 0 && index < CPUSET_MAX)
                add_node(s, t, (uint32_t)index);
        }
    } else if (!cpuset_is_empty(&t->allowed)) {
        struct topo_numa *n = topology_add_numa(t);
        if (n != NULL)
            n->cpus = t->allowed;
    }
}

static int32_t node_of(const struct topology *t, uint32_t cpu) {
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (cpuset_has(&t->numa[i].cpus, cpu))
            return t->numa[i].index;
    return -1;
}

/* ---- cores, packages and caches ---- */

static int32_t package_of(const struct sysfs *s, uint32_t cpu) {
    int64_t v;
    if (sysfs_read_i64(s, &v, CPUS "/cpu%u/topology/physical_package_id", cpu) < 0)
        return -1;
    return v >= 0 && v < CPUSET_MAX ? (int32_t)v : -1;
}

/* The core that this CPU is of; one that has been told of already adds nothing. */
static void add_core(const struct sysfs *s, struct topology *t, uint32_t cpu,
                     struct cpuset *taken) {
    char path[SYSFS_PATH_MAX];
    struct cpuset cpus, all;
    sysfs_path(path, CPUS "/cpu%u/topology/thread_siblings_list", cpu);
    if (cpuset_has(taken, cpu))
        return;
    if (!read_cpus(s, t, path, &cpus, &all) || !cpuset_has(&cpus, cpu)) {
        cpus = all = (struct cpuset){0};
        cpuset_add(&cpus, cpu);
        cpuset_add(&all, cpu);
    }
    cpuset_and_not(&cpus, taken);
    struct topo_core *c = topology_add_core(t);
    if (c == NULL)
        return;
    *c = (struct topo_core){.cpus = cpus,
                            .first = cpuset_next(&all, 0),
                            .numa = node_of(t, cpu),
                            .package = package_of(s, cpu)};
    cpuset_or(taken, &cpus);
}

/* Data and unified ones, each with the lowest of the CPUs that share it and may be used. */
static void add_caches(const struct sysfs *s, struct topology *t, uint32_t cpu) {
    char path[SYSFS_PATH_MAX], type[32];
    for (uint32_t i = 0; i < CACHES_MAX; i++) {
        struct cpuset cpus, all;
        sysfs_path(path, CPUS "/cpu%u/cache/index%u/shared_cpu_list", cpu, i);
        if (!read_cpus(s, t, path, &cpus, &all))
            return;
        uint32_t level = sysfs_u32(s, CPUS "/cpu%u/cache/index%u/level", cpu, i);
        if (cpuset_next(&cpus, 0) != cpu || level == 0 ||
            sysfs_read(s, type, sizeof type, CPUS "/cpu%u/cache/index%u/type", cpu, i) < 0 ||
            strcmp(type, "Instruction") == 0)
            continue;
        struct topo_cache *c = topology_add_cache(t);
        if (c != NULL)
            *c = (struct topo_cache){.level = level, .cpus = cpus, .first = cpuset_next(&all, 0)};
    }
}

static void count_packages(struct topology *t) {
    struct cpuset numbers = {0};
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (t->cores[i].package >= 0)
            cpuset_add(&numbers, (uint32_t)t->cores[i].package);
    t->packages = cpuset_count(&numbers);
}

/* -1 stays where its CPUs are of several. */
static void place_nodes(struct topology *t) {
    for (uint32_t i = 0; i < t->n_numa; i++) {
        struct topo_numa *n = &t->numa[i];
        bool first = true;
        n->package = -1;
        for (uint32_t k = 0; k < t->n_cores; k++) {
            if (!cpuset_intersects(&t->cores[k].cpus, &n->cpus))
                continue;
            if (!first && t->cores[k].package != n->package) {
                n->package = -1;
                break;
            }
            n->package = t->cores[k].package;
            first = false;
        }
    }
}

bool sysfs_fill_cpus(const char *root, struct topology *t) {
    struct sysfs s;
    struct cpuset taken = {0};
    sysfs_init(&s, root);
    fill_allowed(&s, t);
    fill_nodes(&s, t);
    for (uint32_t cpu = cpuset_next(&t->allowed, 0); cpu < CPUSET_MAX;
         cpu = cpuset_next(&t->allowed, cpu + 1)) {
        add_core(&s, t, cpu, &taken);
        add_caches(&s, t, cpu);
    }
    count_packages(t);
    place_nodes(t);
    return t->n_numa > 0;
}
