#include "topology/discover/hwloc/hwloc_io.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "base/text/parse.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "topology/model/topology.h"

/* Found when hwloc is first used: with libm and libudev it costs each process that links it about 1
 * ms, and each fork of it 15 mappings. load_library() returns -ELIBACC: it is not installed, or
 * lacks a function; with a sentence. */

#ifdef MUSTER_LINKED

static int load_library(struct err *err) { return 0; }

#else

/* The soname of hwloc 2.x. */
#define LIBRARY "libhwloc.so.15"
static_assert(HWLOC_API_VERSION >> 16 == 2, "LIBRARY is that of another version");

/* Return type, name, parameters, arguments; CALL: returns nothing. */
#define CALLS(GET, CALL)                                                                    \
    GET(unsigned, hwloc_get_api_version, (void), ())                                        \
    GET(int, hwloc_topology_init, (hwloc_topology_t * t), (t))                              \
    GET(int, hwloc_topology_load, (hwloc_topology_t t), (t))                                \
    CALL(void, hwloc_topology_destroy, (hwloc_topology_t t), (t))                           \
    GET(int, hwloc_topology_set_io_types_filter,                                            \
        (hwloc_topology_t t, enum hwloc_type_filter_e filter), (t, filter))                 \
    GET(int, hwloc_topology_set_xmlbuffer, (hwloc_topology_t t, const char *text, int n),   \
        (t, text, n))                                                                       \
    GET(hwloc_const_cpuset_t, hwloc_topology_get_allowed_cpuset, (hwloc_topology_t t), (t)) \
    GET(int, hwloc_get_type_depth, (hwloc_topology_t t, hwloc_obj_type_t type), (t, type))  \
    GET(unsigned, hwloc_get_nbobjs_by_depth, (hwloc_topology_t t, int depth), (t, depth))   \
    GET(hwloc_obj_t, hwloc_get_obj_by_depth, (hwloc_topology_t t, int depth, unsigned i),   \
        (t, depth, i))                                                                      \
    GET(int, hwloc_bitmap_first, (hwloc_const_bitmap_t b), (b))                             \
    GET(int, hwloc_bitmap_next, (hwloc_const_bitmap_t b, int at), (b, at))                  \
    GET(int, hwloc_distances_get_by_name,                                                   \
        (hwloc_topology_t t, const char *name, unsigned *n, struct hwloc_distances_s **d,   \
         unsigned long flags),                                                              \
        (t, name, n, d, flags))                                                             \
    CALL(void, hwloc_distances_release, (hwloc_topology_t t, struct hwloc_distances_s * d), (t, d))

#define POINTER(type, name, parameters, arguments) __typeof__(name) *name;
static struct { CALLS(POINTER, POINTER) } library;

#define GET(type, name, parameters, arguments) \
    type name parameters { return library.name arguments; }
#define CALL(type, name, parameters, arguments) \
    type name parameters { library.name arguments; }
CALLS(GET, CALL)

static int load_library(struct err *err) {
    static bool loaded;
    void *symbol;
    if (loaded)
        return 0;
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "hwloc 2 is required: %s", dlerror());
#define FIND(type, name, parameters, arguments)                              \
    symbol = dlsym(handle, #name);                                           \
    if (symbol == NULL)                                                      \
        return err_set(err, -ELIBACC, LIBRARY " has no function %s", #name); \
    memcpy(&library.name, &symbol, sizeof symbol);
    CALLS(FIND, FIND)
    loaded = true;
    return 0;
}

#endif

struct hwloc_view {
    hwloc_topology_t topology;
    struct topology *t;
    unsigned what; /* DISCOVER_* */
    bool xml;      /* there is no other source for devices */
    bool tree;     /* a recorded one: neither XML nor this machine */
};

static uint32_t count_of(const struct hwloc_view *v, hwloc_obj_type_t type) {
    return (uint32_t)hwloc_get_nbobjs_by_type(v->topology, type);
}

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

/* The kernel's number of the one NUMA node of this set; -1: none or several. GPUs' memory does not
 * count; of nodes with the same CPUs it is the first. Call it after take_numa(). */
static int32_t hwloc_numa_of(const struct hwloc_view *v, hwloc_const_bitmap_t nodeset) {
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

static void take_allowed(const struct hwloc_view *v) {
    struct topology *t = v->t;
    take_set(hwloc_topology_get_allowed_cpuset(v->topology), &t->allowed);
    struct cpuset mine;
    if (!v->xml && !v->tree && cpu_allowed(&mine))
        cpuset_and(&t->allowed, &mine);
    take_set(hwloc_get_root_obj(v->topology)->complete_cpuset, &t->online);
}

/* -1: they belong to several, or to none. */
static int32_t package_of(const struct hwloc_view *v, const struct cpuset *cpus) {
    int32_t found = -1;
    for (hwloc_obj_t obj = NULL; (obj = next_of(v, HWLOC_OBJ_PACKAGE, obj)) != NULL;) {
        struct cpuset own;
        take_set(obj->cpuset, &own);
        if (!cpuset_intersects(&own, cpus))
            continue;
        if (found >= 0)
            return -1;
        found = number_of(obj);
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

static void take_numa(const struct hwloc_view *v) {
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
        n->package = package_of(v, &n->cpus);
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
static void take_cores(const struct hwloc_view *v) {
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
        c->package = package_of(v, &cpus);
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

static void hwloc_fill_cpus(const struct hwloc_view *v) {
    take_allowed(v);
    v->t->packages = count_of(v, HWLOC_OBJ_PACKAGE);
    take_model(v);
    take_numa(v);
    take_cores(v);
    take_caches(v);
    const char *host = v->xml ? info_of(v, "HostName") : NULL;
    if (host != NULL)
        (void)snprintf(v->t->host, sizeof v->t->host, "%s", host);
}

static bool is_io(hwloc_obj_t obj) {
    return obj->type == HWLOC_OBJ_BRIDGE || obj->type == HWLOC_OBJ_PCI_DEVICE ||
           obj->type == HWLOC_OBJ_OS_DEVICE;
}

/* TOPO_NONE: not below a PCI device that was taken. */
static uint32_t hwloc_pci_of(hwloc_obj_t obj) {
    while (obj != NULL && obj->type != HWLOC_OBJ_PCI_DEVICE && is_io(obj))
        obj = obj->parent;
    return obj != NULL && obj->type == HWLOC_OBJ_PCI_DEVICE ? (uint32_t)(uintptr_t)obj->userdata - 1
                                                            : TOPO_NONE;
}

static bool is_pci_bridge(hwloc_obj_t obj) {
    return obj->type == HWLOC_OBJ_BRIDGE && obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static bool is_host_bridge(hwloc_obj_t obj) {
    return obj->type == HWLOC_OBJ_BRIDGE &&
           obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST &&
           obj->attr->bridge.downstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static struct pci_addr address_of(const struct hwloc_pcidev_attr_s *a) {
    return (struct pci_addr){a->domain, a->bus, a->dev, a->func};
}

/* The address of the host bridge; if none is listed, the bus of the topmost listed object. */
static struct pci_addr root_of(hwloc_obj_t obj) {
    struct pci_addr root = {0};
    for (; obj != NULL && is_io(obj); obj = obj->parent) {
        if (is_host_bridge(obj))
            return (struct pci_addr){.domain = obj->attr->bridge.downstream.pci.domain,
                                     .bus = obj->attr->bridge.downstream.pci.secondary_bus};
        const struct hwloc_pcidev_attr_s *a = obj->type == HWLOC_OBJ_PCI_DEVICE ? &obj->attr->pcidev
                                              : is_pci_bridge(obj) ? &obj->attr->bridge.upstream.pci
                                                                   : NULL;
        if (a != NULL)
            root = (struct pci_addr){.domain = a->domain, .bus = a->bus};
    }
    return root;
}

static int32_t near_numa(const struct hwloc_view *v, hwloc_obj_t obj) {
    while (obj != NULL && is_io(obj))
        obj = obj->parent;
    return obj != NULL ? hwloc_numa_of(v, obj->nodeset) : -1;
}

/* Bridges come before the devices below them, because hwloc lists each depth from the top. */
static uint32_t parent_of(hwloc_obj_t obj) {
    hwloc_obj_t above = obj->parent;
    return above != NULL && is_pci_bridge(above) ? (uint32_t)(uintptr_t)above->userdata - 1
                                                 : TOPO_NONE;
}

static struct topo_pci *take(const struct hwloc_view *v, hwloc_obj_t obj,
                             const struct hwloc_pcidev_attr_s *a) {
    struct topo_pci *p = topology_add_pci(v->t);
    if (p == NULL)
        return NULL;
    p->at = address_of(a);
    p->parent = parent_of(obj);
    p->root = root_of(obj);
    p->class_id = (uint32_t)a->class_id << 8;
    p->vendor = a->vendor_id;
    p->device = a->device_id;
    p->subvendor = a->subvendor_id;
    p->subdevice = a->subdevice_id;
    p->numa = near_numa(v, obj);
    p->link_gbs = a->linkspeed > 0 ? (double)a->linkspeed : 0;
    obj->userdata = (void *)(uintptr_t)v->t->n_pci; /* its index + 1 */
    return p;
}

/* Whether the driver's stack computes on it. A card0 alone is a framebuffer. */
static bool shows_compute(hwloc_obj_t osdev) {
    hwloc_obj_osdev_type_t type = osdev->attr->osdev.type;
    return type == HWLOC_OBJ_OSDEV_COPROC ||
           (type == HWLOC_OBJ_OSDEV_GPU && strncmp(osdev->name, "card", 4) != 0 &&
            strncmp(osdev->name, "controlD", 8) != 0);
}

static bool has_network(hwloc_obj_t pci) {
    for (hwloc_obj_t o = pci->io_first_child; o != NULL; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
                                               o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS))
            return true;
    return false;
}

static bool has_compute(hwloc_obj_t pci) {
    for (hwloc_obj_t o = pci->io_first_child; o != NULL; o = o->next_sibling)
        if (o->type == HWLOC_OBJ_OS_DEVICE && o->name != NULL && shows_compute(o))
            return true;
    return false;
}

/* An NVSwitch is an "other bridge" from NVIDIA, if its config space could be read. */
static bool is_wanted(hwloc_obj_t obj) {
    const struct hwloc_pcidev_attr_s *a = &obj->attr->pcidev;
    switch (a->class_id >> 8) {
    case PCI_BASE_NETWORK:
    case PCI_BASE_DISPLAY:
    case PCI_BASE_PROCESSOR:
    case PCI_BASE_ACCELERATOR: return true;
    default: break;
    }
    return a->class_id == PCI_CLASS_INFINIBAND || has_network(obj) || has_compute(obj) ||
           (a->class_id == PCI_CLASS_OTHER_BRIDGE && a->vendor_id == PCI_VENDOR_NVIDIA) ||
           (obj->subtype != NULL && strcmp(obj->subtype, "NVSwitch") == 0);
}

/* The driver's own library is the best source: NVML, then CUDA or ROCm, then OpenCL. */
static int trust(hwloc_obj_t osdev) {
    static const char *const order[] = {"nvml", "rsmi", "cuda", "ze", "opencl"};
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        if (strncmp(osdev->name, order[i], strlen(order[i])) == 0)
            return (int)i;
    return (int)ARRAY_SIZE(order);
}

/* Recordings that were made anonymous have zeros, which identify no GPU. */
static bool is_uuid(const char *text) {
    return text != NULL && strncmp(text, "GPU-", 4) == 0 &&
           strspn(text + 4, "0-") != strlen(text + 4);
}

static void describe_gpu(hwloc_obj_t pci, struct topo_gpu *g) {
    int best = INT32_MAX;
    for (hwloc_obj_t o = pci->io_first_child; o != NULL; o = o->next_sibling) {
        if (o->type != HWLOC_OBJ_OS_DEVICE || o->name == NULL)
            continue;
        const char *model = hwloc_obj_get_info_by_name(o, "GPUModel"),
                   *uuid = hwloc_obj_get_info_by_name(o, "NVIDIAUUID");
        if (model != NULL && trust(o) < best) {
            best = trust(o);
            (void)snprintf(g->name, sizeof g->name, "%s", model);
        }
        if (is_uuid(uuid) && g->uuid[0] == '\0')
            (void)snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
    }
}

static void take_gpu(const struct hwloc_view *v, hwloc_obj_t obj, uint32_t pci) {
    const struct hwloc_pcidev_attr_s *a = &obj->attr->pcidev;
    enum topo_vendor vendor = topo_gpu_vendor(a->vendor_id, a->class_id, has_compute(obj));
    struct topo_gpu *g = vendor != 0 ? topology_add_gpu(v->t) : NULL;
    if (g == NULL)
        return;
    g->pci = pci;
    g->vendor = vendor;
    g->numa = v->t->pci[pci].numa;
    describe_gpu(obj, g);
}

/* Bridges, devices and GPUs. userdata of an object that was taken: its index in pci[] plus 1. */
static void hwloc_fill_pci(const struct hwloc_view *v) {
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_bridge(v->topology, obj)) != NULL) {
        struct topo_pci *p =
            is_pci_bridge(obj) ? take(v, obj, &obj->attr->bridge.upstream.pci) : NULL;
        if (p != NULL)
            p->bridge = true;
    }
    while ((obj = hwloc_get_next_pcidev(v->topology, obj)) != NULL)
        if (is_wanted(obj) && take(v, obj, &obj->attr->pcidev) != NULL)
            take_gpu(v, obj, v->t->n_pci - 1);
    if (v->t->n_pci == TOPO_PCI_MAX)
        topology_warn(v->t, "only the first %d PCI devices are used", TOPO_PCI_MAX);
}

static bool is_osdev(hwloc_obj_t obj, hwloc_obj_osdev_type_t type) {
    return obj->type == HWLOC_OBJ_OS_DEVICE && obj->name != NULL && obj->attr->osdev.type == type;
}

static void copy_name(char out[TOPO_NAME_MAX], const char *name) {
    (void)snprintf(out, TOPO_NAME_MAX, "%s", name);
}

/* The first device of this type of the same PCI function. */
static const char *sibling(hwloc_obj_t obj, hwloc_obj_osdev_type_t type) {
    if (obj->parent == NULL || obj->parent->type != HWLOC_OBJ_PCI_DEVICE)
        return NULL;
    for (hwloc_obj_t o = obj->parent->io_first_child; o != NULL; o = o->next_sibling)
        if (is_osdev(o, type))
            return o->name;
    return NULL;
}

static uint64_t guid_of(hwloc_obj_t obj, const char *name) {
    const char *text = hwloc_obj_get_info_by_name(obj, name);
    return text != NULL ? topo_guid_parse(text) : 0;
}

/* "Port1State" and so on (hwloc 2.9 manual, "OS devices"). NULL: not there. */
static const char *port_info(hwloc_obj_t obj, uint32_t number, const char *what) {
    char name[32];
    (void)snprintf(name, sizeof name, "Port%u%s", number, what);
    return hwloc_obj_get_info_by_name(obj, name);
}

static void take_gids(hwloc_obj_t obj, struct topo_port *port) {
    for (uint32_t i = 0; i < TOPO_GIDS_MAX; i++) {
        char what[16];
        (void)snprintf(what, sizeof what, "GID%u", i);
        const char *text = port_info(obj, port->number, what);
        uint8_t gid[16];
        if (text == NULL || inet_pton(AF_INET6, text, gid) != 1)
            continue;
        struct topo_gid *g = topo_port_add_gid(port);
        if (g == NULL)
            return;
        g->index = i;
        memcpy(g->gid, gid, sizeof g->gid);
    }
}

/* Only InfiniBand has a LID; hwloc does not record the link layer itself. */
static void take_ports(hwloc_obj_t obj, struct topo_nic *n) {
    for (uint32_t number = 1; number <= TOPO_PORTS_MAX; number++) {
        const char *state = port_info(obj, number, "State"), *lid = port_info(obj, number, "LID");
        if (state == NULL)
            continue;
        struct topo_port *p = &n->ports[n->n_ports++];
        p->number = number;
        unsigned long s = strtoul(state, NULL, 10);
        p->state = s <= TOPO_PORT_ACTIVE ? (enum topo_port_state)s : TOPO_PORT_UNKNOWN;
        unsigned long l = lid != NULL ? strtoul(lid, NULL, 0) : 0;
        p->lid = (uint32_t)l;
        p->link_layer = l > 0 && l <= 0xffff ? TOPO_LINK_INFINIBAND : TOPO_LINK_UNKNOWN;
        take_gids(obj, p);
    }
}

static struct topo_nic *add_nic(const struct hwloc_view *v, hwloc_obj_t obj,
                                enum topo_nic_kind kind) {
    struct topo_nic *n = topology_add_nic(v->t);
    if (n == NULL)
        return NULL;
    copy_name(n->name, obj->name);
    n->kind = kind;
    n->pci = hwloc_pci_of(obj);
    n->numa = n->pci != TOPO_NONE ? v->t->pci[n->pci].numa : -1;
    return n;
}

static uint16_t vendor_of(const struct hwloc_view *v, hwloc_obj_t obj) {
    uint32_t pci = hwloc_pci_of(obj);
    return pci != TOPO_NONE ? v->t->pci[pci].vendor : 0;
}

static void take_rdma(const struct hwloc_view *v, hwloc_obj_t obj) {
    enum topo_nic_kind kind = text_begins(obj->name, "cxi") ? TOPO_NIC_SLINGSHOT
                              : vendor_of(v, obj) == PCI_VENDOR_AMAZON ||
                                      text_begins(obj->name, "rdmap") ||
                                      text_begins(obj->name, "efa")
                                  ? TOPO_NIC_EFA
                                  : TOPO_NIC_RDMA;
    struct topo_nic *n = add_nic(v, obj, kind);
    if (n == NULL)
        return;
    const char *netdev = sibling(obj, HWLOC_OBJ_OSDEV_NETWORK);
    copy_name(n->netdev, netdev != NULL ? netdev : "");
    n->node_guid = guid_of(obj, "NodeGUID");
    n->sys_image_guid = guid_of(obj, "SysImageGUID");
    take_ports(obj, n);
}

/* Some sites also name the interface of an InfiniBand card hsi*. */
static bool is_slingshot(const struct hwloc_view *v, hwloc_obj_t obj) {
    if (sibling(obj, HWLOC_OBJ_OSDEV_OPENFABRICS) != NULL)
        return false;
    return (obj->subtype != NULL && strcmp(obj->subtype, "Slingshot") == 0) ||
           text_begins(obj->name, "hsn") || text_begins(obj->name, "cxi") ||
           (text_begins(obj->name, "hsi") && vendor_of(v, obj) == PCI_VENDOR_CRAY);
}

static void take_slingshot(const struct hwloc_view *v, hwloc_obj_t obj) {
    struct topo_nic *n = add_nic(v, obj, TOPO_NIC_SLINGSHOT);
    if (n != NULL)
        copy_name(n->netdev, obj->name);
}

static void take_netif(const struct hwloc_view *v, hwloc_obj_t obj) {
    struct topo_netif *n = topology_add_netif(v->t);
    if (n == NULL)
        return;
    copy_name(n->name, obj->name);
    n->pci = hwloc_pci_of(obj);
    n->kind = n->pci != TOPO_NONE ? TOPO_NETIF_PHYSICAL : TOPO_NETIF_OTHER;
    n->numa = n->pci != TOPO_NONE ? v->t->pci[n->pci].numa : -1;
    const char *nic = sibling(obj, HWLOC_OBJ_OSDEV_OPENFABRICS);
    copy_name(n->nic, nic != NULL ? nic : is_slingshot(v, obj) ? obj->name : "");
}

/* MB/s of one link in one direction: 20000 for NVLink 1 (P100), 25000 for 2 to 4, 50000 for 5
 * (Blackwell). If the model is not known, the value that divides the bundle. (hwloc,
 * NVLinkBandwidth.) */
static uint64_t link_mbs(const struct topo_gpu *g, uint64_t bundle) {
    static const char *const fifth[] = {"B100", "B200", "B300", "GB200", "GB300"};
    if (strstr(g->name, "P100") != NULL)
        return 20000;
    if (text_has_any(g->name, fifth, ARRAY_SIZE(fifth)))
        return 50000;
    return g->name[0] == '\0' && bundle % 25000 != 0 && bundle % 20000 == 0 ? 20000 : 25000;
}

static uint32_t gpu_of(const struct hwloc_view *v, hwloc_obj_t obj) {
    return topology_find_gpu(v->t, hwloc_pci_of(obj));
}

static void take_nvlink(const struct hwloc_view *v, uint32_t gpu, hwloc_obj_t to, uint64_t mbs) {
    uint64_t count = (mbs + link_mbs(&v->t->gpus[gpu], mbs) / 2) / link_mbs(&v->t->gpus[gpu], mbs);
    struct topo_nvlink *l = count > 0 && count < UINT32_MAX ? topology_add_nvlink(v->t) : NULL;
    if (l == NULL)
        return;
    l->gpu = gpu;
    l->count = (uint32_t)count;
    l->peer = gpu_of(v, to);
    l->target = to->type == HWLOC_OBJ_PCI_DEVICE ? address_of(&to->attr->pcidev)
                : hwloc_pci_of(to) != TOPO_NONE  ? v->t->pci[hwloc_pci_of(to)].at
                                                 : PCI_ADDR_UNKNOWN;
    l->end = l->peer != TOPO_NONE               ? TOPO_NVLINK_GPU
             : to->type == HWLOC_OBJ_PCI_DEVICE ? TOPO_NVLINK_SWITCH
                                                : TOPO_NVLINK_CPU;
}

/* Rows and columns are GPUs, NVSwitches (PCI devices) and, on POWER, packages. The diagonal is
 * ignored. */
static void take_nvlinks(const struct hwloc_view *v) {
    struct hwloc_distances_s *d = NULL;
    unsigned n = 1;
    if (hwloc_distances_get_by_name(v->topology, "NVLinkBandwidth", &n, &d, 0) < 0 || n == 0)
        return;
    v->t->nvlinks_known = true;
    for (unsigned i = 0; i < d->nbobjs; i++) {
        uint32_t gpu = d->objs[i] != NULL ? gpu_of(v, d->objs[i]) : TOPO_NONE;
        for (unsigned k = 0; k < d->nbobjs && gpu != TOPO_NONE; k++)
            if (k != i && d->objs[k] != NULL)
                take_nvlink(v, gpu, d->objs[k], d->values[(size_t)i * d->nbobjs + k]);
    }
    hwloc_distances_release(v->topology, d);
}

/* Call it after the PCI devices were added. */
static void hwloc_fill_devices(const struct hwloc_view *v) {
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_osdev(v->topology, obj)) != NULL) {
        bool network = is_osdev(obj, HWLOC_OBJ_OSDEV_NETWORK);
        if ((v->what & DISCOVER_NICS) && is_osdev(obj, HWLOC_OBJ_OSDEV_OPENFABRICS))
            take_rdma(v, obj);
        if ((v->what & DISCOVER_NICS) && network && is_slingshot(v, obj))
            take_slingshot(v, obj);
        if ((v->what & DISCOVER_NETIFS) && network)
            take_netif(v, obj);
    }
    take_nvlinks(v);
}

/* ---- hwloc's own environment, during one load ---- */

#define SETTINGS_MAX 16

struct setting {
    const char *name;
    char *old; /* owned; NULL: it was not set */
};
struct settings {
    struct setting all[SETTINGS_MAX];
    size_t n;
};

static void settings_put(struct settings *s, const char *name, const char *value) {
    assert(s->n < SETTINGS_MAX);
    const char *old = getenv(name);
    s->all[s->n++] = (struct setting){name, old != NULL ? xstrdup(old) : NULL};
    if (value != NULL)
        (void)setenv(name, value, 1); /* ENOMEM: then hwloc uses its defaults */
    else
        (void)unsetenv(name);
}

static void settings_restore(struct settings *s) {
    while (s->n > 0) {
        struct setting *e = &s->all[--s->n];
        if (e->old != NULL)
            (void)setenv(e->name, e->old, 1);
        else
            (void)unsetenv(e->name);
        free(e->old);
    }
}

/* Excludes plugins that would load GPU libraries and X into this process, where they can hang;
 * libxml2, because hwloc's own parser reads the same; and libpciaccess, because /sys has the same
 * data. */
#define NO_PLUGINS                                                           \
    "hwloc_cuda.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_gl.so,hwloc_rsmi.so," \
    "hwloc_levelzero.so,hwloc_pci.so,hwloc_xml_libxml.so"

/* Most of these can only be set by environment variables (hwloc 2.9 manual, "Environment
 * Variables"). A user's HWLOC_XMLFILE and similar variables do not describe this machine, and such
 * a file would be read without protection. */
static void settings_for(struct settings *s, const struct hwloc_source *source) {
    bool tree = source->xml == NULL && source->sysroot != NULL;
    settings_put(s, "HWLOC_PLUGINS_BLACKLIST", NO_PLUGINS);
    settings_put(s, "HWLOC_HIDE_ERRORS", "2");
    settings_put(s, "HWLOC_XML_VERBOSE", NULL);
    settings_put(s, "HWLOC_LIBXML", "0");
    settings_put(s, "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1");
    settings_put(s, "HWLOC_XMLFILE", NULL);
    settings_put(s, "HWLOC_SYNTHETIC", NULL);
    settings_put(s, "HWLOC_CPUID_PATH", NULL);
    settings_put(s, "HWLOC_FSROOT", tree ? source->sysroot : NULL);
    /* not x86, which asks every CPU by moving this process there */
    settings_put(s, "HWLOC_COMPONENTS", source->xml == NULL ? "linux,stop" : NULL);
    settings_put(s, "HWLOC_THISSYSTEM", tree || source->xml != NULL ? "0" : NULL);
}

static int load(const struct hwloc_view *v, const struct hwloc_source *source, struct err *err) {
    if (source->xml != NULL &&
        hwloc_topology_set_xmlbuffer(v->topology, source->xml, (int)strlen(source->xml)) < 0)
        return err_set(err, -EINVAL, "hwloc can't read this XML: it is damaged, or not hwloc's");
    enum hwloc_type_filter_e io =
        v->what & DISCOVER_PCI ? HWLOC_TYPE_FILTER_KEEP_ALL : HWLOC_TYPE_FILTER_KEEP_NONE;
    (void)hwloc_topology_set_io_types_filter(v->topology, io);
    if (hwloc_topology_load(v->topology) == 0)
        return 0;
    if (source->xml != NULL)
        return err_set(err, -EINVAL, "hwloc can't read this XML: it is damaged");
    return err_set(err, -EIO, "hwloc can't examine %s",
                   source->sysroot != NULL ? source->sysroot : "this machine");
}

static int fill(const struct hwloc_source *source, unsigned what, struct topology *t,
                struct err *err) {
    struct hwloc_view v = {.t = t,
                           .what = what,
                           .xml = source->xml != NULL,
                           .tree = source->xml == NULL && source->sysroot != NULL};
    if (hwloc_topology_init(&v.topology) < 0)
        return err_set(err, -EIO, "hwloc can't start");
    int r = load(&v, source, err);
    if (r == 0) {
        hwloc_fill_cpus(&v);
        if (what & DISCOVER_PCI)
            hwloc_fill_pci(&v);
        if (v.xml)
            hwloc_fill_devices(&v);
    }
    hwloc_topology_destroy(v.topology);
    return r;
}

/* ---- a trial in a child ---- */

/* hwloc trusts files: an object without its CPU set makes it read a null pointer (seen with 2.9), a
 * pipe is waited for, a file of any size is taken into memory. So a child reads a recording first.
 * What does not crash it does not crash this process: library and bytes are the same. */

#define TRIAL_NS (4 * NS_PER_S) /* the largest of the recorded machines takes 10 */
#define TRIAL_KIB (256 << 10)   /* how much it may grow; that machine takes 3 MiB */

static long most_kib(void) {
    struct rusage used = {0};
    (void)getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

/* A sanitizer's own memory is far above any limit. gcc's macro, then clang's. */
#ifdef __SANITIZE_ADDRESS__
#define IS_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED
#endif
#endif

static void limit_memory(void) {
#ifndef IS_SANITIZED
    rlim_t most = (rlim_t)4 * TRIAL_KIB << 10;
    (void)setrlimit(RLIMIT_DATA, &(struct rlimit){most, most});
#endif
}

struct trial {
    const struct hwloc_source *source;
    unsigned what;
};

static int try_it(int fd, void *arg) {
    const struct trial *trial = arg;
    struct topology t = {0};
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    limit_memory();
    struct err err = {0};
    long before = most_kib();
    err.code = fill(trial->source, trial->what, &t, &err);
    if (err.code == 0)
        topology_sort(&t);
    long grown = most_kib() - before;
    if (grown > TRIAL_KIB)
        err.code = err_set(&err, -E2BIG, "hwloc takes %ld MiB to read it: no machine is that large",
                           grown >> 10);
    return helper_send(fd, &err, sizeof err) ? 0 : 1;
}

/* 0, or the result of the child; -EINVAL: it crashed. */
static int try_fill(const struct hwloc_source *source, unsigned what, struct err *err) {
    struct helper_call_config config = {.name = "muster-hwloc",
                                        .run = try_it,
                                        .arg = &(struct trial){source, what},
                                        .timeout_ns = TRIAL_NS,
                                        .max_bytes = sizeof(struct err)};
    struct err verdict;
    int r = helper_ask(&config, &verdict);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "hwloc has not read it after %d s (a pipe or a device in it?)",
                       (int)(TRIAL_NS / NS_PER_S));
    if (r == -EIO)
        return err_set(err, -EINVAL, "the file is damaged: hwloc crashes on it");
    if (r < 0)
        return err_set(err, r, "no child process that reads it first");
    return verdict.code < 0 ? err_set(err, verdict.code, "%s", verdict.text) : 0;
}

int hwloc_fill(const struct hwloc_source *source, unsigned what, struct topology *t,
               struct err *err) {
    int r = load_library(err);
    if (r < 0)
        return r;
    struct settings settings = {0};
    settings_for(&settings, source);
    if (source->xml != NULL || source->sysroot != NULL)
        r = try_fill(source, what, err);
    if (r == 0)
        r = fill(source, what, t, err);
    settings_restore(&settings);
    return r;
}

const char *hwloc_built_version(void) { return HWLOC_VERSION; }

int hwloc_found_version(char out[HWLOC_TEXT_MAX], struct err *err) {
    int r = load_library(err);
    unsigned version = r == 0 ? hwloc_get_api_version() : 0;
    (void)snprintf(out, HWLOC_TEXT_MAX, "API %u.%u", version >> 16, version >> 8 & 0xff);
    return r;
}
