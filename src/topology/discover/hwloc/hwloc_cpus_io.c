#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "topology/discover/common/cpu_count_io.h"
#include "topology/discover/hwloc/hwloc_priv.h"

static uint32_t count_of(const struct hwloc_view *v, hwloc_obj_type_t type) {
    return (uint32_t)hwloc_get_nbobjs_by_type(v->topology, type);
}

/* The object after `obj`, or the first if that is NULL; returns NULL if there are no more. */
static hwloc_obj_t next_of(const struct hwloc_view *v, hwloc_obj_type_t type, hwloc_obj_t obj) {
    return hwloc_get_next_obj_by_type(v->topology, type, obj);
}

/* Numbers of CPUSET_MAX and above, and the tail of an infinite set, are left out. */
static void take_set(hwloc_const_bitmap_t from, struct cpuset *ret) {
    *ret = (struct cpuset){0};
    for (int i = from != NULL ? hwloc_bitmap_first(from) : -1; i >= 0 && i < CPUSET_MAX;
         i = hwloc_bitmap_next(from, i))
        cpuset_add(ret, (uint32_t)i);
}

static int32_t number_of(hwloc_obj_t obj) {
    return obj->os_index != HWLOC_UNKNOWN_INDEX ? (int32_t)obj->os_index
                                                : (int32_t)obj->logical_index;
}

int32_t hwloc_numa_of(const struct hwloc_view *v, hwloc_const_bitmap_t nodeset) {
    const struct topo_numa *found = NULL;
    struct cpuset in;
    take_set(nodeset, &in);
    for (uint32_t i = 0; i < v->t->n_numa; i++) {
        const struct topo_numa *n = &v->t->numa[i];
        if (n->gpu_memory || n->index < 0 || !cpuset_has(&in, (uint32_t)n->index))
            continue;
        if (found != NULL && !cpuset_equal(&found->cpus, &n->cpus))
            return -1;
        if (found == NULL || n->index < found->index)
            found = n;
    }
    return found != NULL ? found->index : -1;
}

/* ---- which CPUs ---- */

static void take_allowed(const struct hwloc_view *v) {
    struct topology *t = v->t;
    take_set(hwloc_topology_get_allowed_cpuset(v->topology), &t->allowed);
    struct cpuset mine;
    if (!v->xml && !v->tree && cpu_allowed(&mine))
        cpuset_and(&t->allowed, &mine);
    take_set(hwloc_get_root_obj(v->topology)->complete_cpuset, &t->online);
}

/* ---- objects ---- */

struct packages {
    struct cpuset *cpus; /* owned */
    int32_t *numbers;    /* owned */
    uint32_t n;
};

static void take_packages(const struct hwloc_view *v, struct packages *ret) {
    ret->n = v->t->packages = count_of(v, HWLOC_OBJ_PACKAGE);
    ret->cpus = xcalloc((size_t)ret->n + 1, sizeof *ret->cpus);
    ret->numbers = xcalloc((size_t)ret->n + 1, sizeof *ret->numbers);
    hwloc_obj_t package = NULL;
    for (uint32_t i = 0; (package = next_of(v, HWLOC_OBJ_PACKAGE, package)) != NULL; i++) {
        take_set(package->cpuset, &ret->cpus[i]);
        ret->numbers[i] = number_of(package);
    }
}

static int32_t package_of(const struct packages *p, const struct cpuset *cpus) {
    int32_t found = -1;
    for (uint32_t i = 0; i < p->n; i++)
        if (cpuset_intersects(&p->cpus[i], cpus)) {
            if (found >= 0)
                return -1;
            found = p->numbers[i];
        }
    return found;
}

/* hwloc 1.x did not mark them: on POWER9 the nodes without CPUs, numbered from 255 down. */
static bool is_gpu_memory(const struct hwloc_view *v, hwloc_obj_t obj) {
    if (obj->subtype != NULL)
        return strcmp(obj->subtype, "GPUMemory") == 0;
    return strncmp(v->t->arch, "ppc64", 5) == 0 && number_of(obj) > 0 &&
           (obj->complete_cpuset == NULL || hwloc_bitmap_first(obj->complete_cpuset) < 0);
}

static void take_numa(const struct hwloc_view *v, const struct packages *packages) {
    for (hwloc_obj_t obj = NULL; (obj = next_of(v, HWLOC_OBJ_NUMANODE, obj)) != NULL;) {
        struct topo_numa *n = topology_add_numa(v->t);
        if (n == NULL) {
            topology_warn(v->t, "only the first %d of %u NUMA nodes are used", TOPO_NUMA_MAX,
                          count_of(v, HWLOC_OBJ_NUMANODE));
            return;
        }
        n->index = number_of(obj);
        n->bytes = obj->attr->numanode.local_memory;
        n->gpu_memory = is_gpu_memory(v, obj);
        take_set(obj->cpuset, &n->cpus);
        cpuset_and(&n->cpus, &v->t->allowed);
        n->package = package_of(packages, &n->cpus);
        if (n->gpu_memory) /* hwloc gives it the CPUs nearby; the kernel gives it none */
            n->cpus = (struct cpuset){0};
    }
}

/* The object's lowest CPU, whether this process may use it or not. */
static uint32_t first_of(hwloc_obj_t obj) {
    int first = obj->complete_cpuset != NULL ? hwloc_bitmap_first(obj->complete_cpuset) : -1;
    return first >= 0 ? (uint32_t)first : TOPO_NONE;
}

/* On machines and in files without cores, each hardware thread is a core. */
static void take_cores(const struct hwloc_view *v, const struct packages *packages) {
    hwloc_obj_type_t type = count_of(v, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t obj = NULL; (obj = next_of(v, type, obj)) != NULL;) {
        struct cpuset cpus;
        take_set(obj->cpuset, &cpus);
        cpuset_and(&cpus, &v->t->allowed);
        if (cpuset_is_empty(&cpus))
            continue;
        struct topo_core *c = topology_add_core(v->t);
        if (c == NULL) {
            topology_warn(v->t, "only the first %d of %u cores are used", TOPO_CORES_MAX,
                          count_of(v, type));
            return;
        }
        c->cpus = cpus;
        c->first = first_of(obj);
        c->numa = hwloc_numa_of(v, obj->nodeset);
        c->package = package_of(packages, &cpus);
    }
}

static void take_caches(const struct hwloc_view *v) {
    static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                             HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
                                             HWLOC_OBJ_L5CACHE};
    for (size_t k = 0; k < ARRAY_SIZE(types); k++) {
        for (hwloc_obj_t obj = NULL; (obj = next_of(v, types[k], obj)) != NULL;) {
            struct cpuset cpus;
            take_set(obj->cpuset, &cpus);
            cpuset_and(&cpus, &v->t->allowed);
            struct topo_cache *c = cpuset_is_empty(&cpus) ? NULL : topology_add_cache(v->t);
            if (c == NULL)
                continue;
            c->level = obj->attr->cache.depth;
            c->cpus = cpus;
            c->first = first_of(obj);
        }
    }
}

/* ---- the CPU's model ---- */

static const char *info_of(const struct hwloc_view *v, const char *name) {
    const char *value = hwloc_obj_get_info_by_name(hwloc_get_root_obj(v->topology), name);
    hwloc_obj_t package = value == NULL ? next_of(v, HWLOC_OBJ_PACKAGE, NULL) : NULL;
    return package != NULL ? hwloc_obj_get_info_by_name(package, name) : value;
}

static uint32_t info_number(const struct hwloc_view *v, const char *name) {
    const char *value = info_of(v, name);
    return value != NULL ? (uint32_t)strtoul(value, NULL, 0) : 0;
}

/* If a tree does not name its architecture, the form of its /proc/cpuinfo shows it. */
static const char *guess_arch(const struct hwloc_view *v) {
    const char *model = info_of(v, "CPUModel");
    if (info_of(v, "CPUModelNumber") != NULL)
        return "x86_64";
    if (info_of(v, "CPUImplementer") != NULL)
        return "aarch64";
    return model != NULL && strncmp(model, "POWER", 5) == 0 ? "ppc64le" : "";
}

/* Files from before hwloc 1.11 have only the CPU's marketing name. */
static const char *guess_vendor(const struct hwloc_view *v) {
    const char *model = info_of(v, "CPUModel");
    if (model == NULL)
        return "";
    return strstr(model, "Intel(R)") != NULL ? "GenuineIntel"
           : strncmp(model, "AMD ", 4) == 0  ? "AuthenticAMD"
                                             : "";
}

static void take_model(const struct hwloc_view *v) {
    struct topology *t = v->t;
    struct utsname here;
    const char *arch = info_of(v, "Architecture"), *vendor = info_of(v, "CPUVendor");
    if (arch == NULL && !v->xml && !v->tree && uname(&here) == 0)
        arch = here.machine;
    (void)snprintf(t->arch, sizeof t->arch, "%.31s", arch != NULL ? arch : guess_arch(v));
    (void)snprintf(t->cpu_vendor, sizeof t->cpu_vendor, "%s",
                   vendor != NULL ? vendor : guess_vendor(v));
    t->cpu_family = info_number(v, "CPUFamilyNumber");
    t->cpu_model = info_number(v, "CPUModelNumber");
}

void hwloc_fill_cpus(const struct hwloc_view *v) {
    struct packages packages;
    take_allowed(v);
    take_packages(v, &packages);
    take_model(v);
    take_numa(v, &packages);
    take_cores(v, &packages);
    take_caches(v);
    const char *host = v->xml ? info_of(v, "HostName") : NULL;
    if (host != NULL)
        (void)snprintf(v->t->host, sizeof v->t->host, "%s", host);
    free(packages.cpus);
    free(packages.numbers);
}
