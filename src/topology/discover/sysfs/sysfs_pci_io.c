#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define WIDTH_UNKNOWN 0xff /* PCIE_LNK_WIDTH_UNKNOWN of the kernel's linux/pci.h */
#define NUMA_INDEX_MAX (1 << 20)

#define DEVICES "/sys/bus/pci/devices"
#define NVIDIA_GPUS "/proc/driver/nvidia/gpus"

static void fill_id(const struct sysfs *s, const char *dir, const char *file, uint16_t *id) {
    uint32_t v = *id != 0 ? 0 : sysfs_u32(s, "%s/%s", dir, file);
    if (v != 0 && v <= UINT16_MAX)
        *id = (uint16_t)v;
}

static void fill_link(const struct sysfs *s, const char *dir, struct topo_pci *p) {
    char speed[sizeof p->link_speed];
    if (sysfs_read(s, speed, sizeof speed, "%s/max_link_speed", dir) == 0 &&
        strncmp(speed, "Unknown", 7) != 0)
        (void)snprintf(p->link_speed, sizeof p->link_speed, "%s", speed);
    uint32_t width = sysfs_u32(s, "%s/max_link_width", dir);
    if (width > 0 && width < WIDTH_UNKNOWN)
        p->link_width = width;
}

/* The kernel's value is used, even if it means "not known". */
static void fill_numa(const struct sysfs *s, const char *dir, int32_t *numa) {
    int64_t v;
    if (sysfs_number(s, &v, "%s/numa_node", dir) == 0)
        *numa = v >= 0 && v < NUMA_INDEX_MAX ? (int32_t)v : -1;
}

static void fill_function(const struct sysfs *s, const char *dir, struct topo_pci *p) {
    uint32_t class_id = sysfs_u32(s, "%s/class", dir);
    if (class_id != 0 && class_id <= 0xffffff) {
        p->class_id = class_id;
        p->bridge = class_id >> 8 == PCI_CLASS_BRIDGE;
    }
    fill_id(s, dir, "vendor", &p->vendor);
    fill_id(s, dir, "device", &p->device);
    fill_id(s, dir, "subsystem_vendor", &p->subvendor);
    fill_id(s, dir, "subsystem_device", &p->subdevice);
    fill_numa(s, dir, &p->numa);
    fill_link(s, dir, p);
    sysfs_link_name(s, p->driver, "%s/driver", dir);
}

static _must_use_ int root_bus_parse(const char *part, struct pci_addr *ret) {
    char text[TOPO_BUSID_MAX + 8];
    if (strncmp(part, "pci", 3) != 0 || strlen(part) >= TOPO_BUSID_MAX)
        return -EINVAL;
    (void)snprintf(text, sizeof text, "%s:00.0", part + 3);
    return pci_addr_parse(text, ret);
}

/* Copies the next component of a path; it is empty if it is too long for an address. False at the
 * end. */
static bool next_part(const char **path, char ret[TOPO_BUSID_MAX]) {
    *path += strspn(*path, "/");
    size_t len = strcspn(*path, "/");
    if (len == 0)
        return false;
    (void)snprintf(ret, TOPO_BUSID_MAX, "%.*s", len < TOPO_BUSID_MAX ? (int)len : 0, *path);
    *path += len;
    return true;
}

static uint32_t find_or_add(const struct sysfs *s, struct topology *t, struct pci_addr at,
                            const char *dir, bool *ret_new) {
    uint32_t i = topology_find_pci(t, at);
    *ret_new = i == TOPO_NONE;
    if (!*ret_new)
        return i;
    struct topo_pci *p = topology_add_pci(t);
    if (p == NULL)
        return TOPO_NONE;
    p->at = at;
    fill_function(s, dir, p);
    return t->n_pci - 1;
}

static void copy_up(struct topology *t, uint32_t i, uint32_t parent) {
    struct topo_pci *p = &t->pci[i], *up = &t->pci[parent];
    memcpy(p->up_speed, up->link_speed, sizeof p->up_speed);
    p->up_width = up->link_width;
}

/* Afterwards every function on the path is in t->pci, with the one above it as its parent. Behind a
 * VMD controller a new root bus begins, and with it a new domain. If a tree's devices are not links
 * into sys/devices, nothing can be read here, and known data is kept. */
static uint32_t place_path(const struct sysfs *s, struct topology *t, const char *resolved) {
    struct pci_addr root = {0}, at;
    uint32_t parent = TOPO_NONE, last = TOPO_NONE;
    bool rooted = false;
    char part[TOPO_BUSID_MAX], dir[SYSFS_PATH_MAX];
    for (const char *rest = resolved; next_part(&rest, part);) {
        if (root_bus_parse(part, &at) == 0) {
            root = at;
            rooted = true;
            parent = TOPO_NONE;
        } else if (rooted && pci_addr_parse(part, &at) == 0) {
            bool new;
            sysfs_path(dir, "%.*s", (int)(rest - resolved), resolved);
            last = find_or_add(s, t, at, dir, &new);
            if (last == TOPO_NONE)
                return TOPO_NONE;
            t->pci[last].root = root;
            t->pci[last].parent = parent;
            if (parent != TOPO_NONE)
                copy_up(t, last, parent);
            parent = last;
        }
    }
    return last;
}

/* The PCI function at or below which a resolved device path lies: "/sys/devices/pci0000:00/
 * 0000:00:03.0/virtio2" gives 0000:00:03.0. */
static int pci_of_path(const char *resolved, struct pci_addr *ret) {
    char part[TOPO_BUSID_MAX];
    struct pci_addr at;
    int r = -ENOENT;
    for (const char *rest = resolved; next_part(&rest, part);)
        if (pci_addr_parse(part, &at) == 0) {
            *ret = at;
            r = 0;
        }
    return r;
}

static void warn_full(struct topology *t) {
    topology_warn(t, "more than %d PCI functions: the rest is left out", TOPO_PCI_MAX);
}

/* Its index in t->pci, added with the bridges above it; TOPO_NONE at the bound. */
static uint32_t ensure_pci(const struct sysfs *s, struct topology *t, struct pci_addr at) {
    char path[SYSFS_PATH_MAX], resolved[SYSFS_PATH_MAX];
    uint32_t i = topology_find_pci(t, at);
    if (i != TOPO_NONE)
        return i;
    sysfs_path(path, DEVICES "/%s", pci_addr_text(at).text);
    bool new;
    if (sysfs_resolve(s, path, resolved) == 0)
        (void)place_path(s, t, resolved); /* it is found again below */
    else
        resolved[0] = '\0';
    i = find_or_add(s, t, at, resolved, &new);
    if (i == TOPO_NONE)
        warn_full(t);
    else if (new)
        t->pci[i].root = (struct pci_addr){.domain = at.domain, .bus = at.bus};
    return i;
}

uint32_t sysfs_pci_of_class(const struct sysfs *s, struct topology *t, const char *entry) {
    char path[SYSFS_PATH_MAX], resolved[SYSFS_PATH_MAX];
    struct pci_addr at;
    sysfs_path(path, "%s/device", entry);
    if (sysfs_resolve(s, path, resolved) < 0 || pci_of_path(resolved, &at) < 0)
        return TOPO_NONE;
    (void)place_path(s, t, resolved); /* also if bus/pci/devices is not in the tree */
    return ensure_pci(s, t, at);
}

static enum topo_vendor gpu_vendor(const struct topo_pci *p) {
    static const char *const drivers[] = {"amdgpu", "i915", "xe"};
    return topo_gpu_vendor(p->vendor, (uint16_t)(p->class_id >> 8),
                           text_is_any(p->driver, drivers, ARRAY_SIZE(drivers)));
}

static struct topo_gpu *gpu_at(struct topology *t, uint32_t pci, enum topo_vendor vendor) {
    uint32_t known = topology_find_gpu(t, pci);
    if (known != TOPO_NONE)
        return &t->gpus[known];
    struct topo_gpu *g = topology_add_gpu(t);
    if (g == NULL) {
        topology_warn(t, "more than %d GPUs: the rest is left out", TOPO_GPUS_MAX);
        return NULL;
    }
    g->pci = pci;
    g->vendor = vendor;
    return g;
}

/* "GPU UUID: \t GPU-…" of the driver's information file. */
static void take_line(const char *text, const char *key, char *out, size_t size) {
    const char *at = strstr(text, key);
    if (at == NULL || out[0] != '\0')
        return;
    at += strlen(key);
    at += strspn(at, " \t");
    size_t len = strcspn(at, "\r\n");
    /* The driver writes ?? while the GPU sleeps. */
    if (len > 0 && len < size && memchr(at, '?', len) == NULL)
        (void)snprintf(out, size, "%.*s", (int)len, at);
}

static void fill_nvidia_gpu(const struct sysfs *s, struct topology *t, const char *name) {
    struct pci_addr at;
    if (pci_addr_parse(name, &at) < 0)
        return;
    uint32_t pci = ensure_pci(s, t, at);
    if (pci == TOPO_NONE)
        return;
    if (t->pci[pci].vendor == 0)
        t->pci[pci].vendor = PCI_VENDOR_NVIDIA;
    struct topo_gpu *g = gpu_at(t, pci, TOPO_VENDOR_NVIDIA);
    char text[SYSFS_TEXT_MAX];
    if (g != NULL)
        g->vendor = TOPO_VENDOR_NVIDIA; /* whatever its files contain */
    if (g == NULL || sysfs_read(s, text, sizeof text, NVIDIA_GPUS "/%s/information", name) < 0)
        return;
    take_line(text, "Model:", g->name, sizeof g->name);
    take_line(text, "GPU UUID:", g->uuid, sizeof g->uuid);
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 …", or "… UNIX Open
 * Kernel Module for x86_64  535…": the first word of digits and dots after "Module". */
static void fill_driver(const struct sysfs *s, struct topology *t) {
    char text[SYSFS_TEXT_MAX];
    if (t->driver[0] != '\0' || sysfs_read(s, text, sizeof text, "/proc/driver/nvidia/version") < 0)
        return;
    const char *at = strstr(text, "Module");
    while (at != NULL && *at != '\0' && *at != '\n') {
        at += strspn(at, " \t");
        size_t len = strcspn(at, " \t\n"), digits = strspn(at, "0123456789.");
        if (len > 0 && digits == len && memchr(at, '.', len) != NULL) {
            (void)snprintf(t->driver, sizeof t->driver, "%.*s", (int)len, at);
            return;
        }
        at += len;
    }
}

static void fill_nvidia(const struct sysfs *s, struct topology *t) {
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    if (sysfs_list(s, &names, NVIDIA_GPUS) == 0)
        for (uint32_t i = 0; i < names.n; i++)
            fill_nvidia_gpu(s, t, names.names[i]);
    fill_driver(s, t);
}

static void fill_gpus(struct topology *t) {
    for (uint32_t i = 0; i < t->n_pci; i++) {
        enum topo_vendor vendor = gpu_vendor(&t->pci[i]);
        if (vendor != 0 && gpu_at(t, i, vendor) == NULL)
            return;
    }
}

/* Skipped if there is only one node, because then it makes no difference. */
static void check_numa(struct topology *t) {
    uint32_t unknown = 0, first = TOPO_NONE;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        struct topo_gpu *g = &t->gpus[i];
        if (g->pci >= t->n_pci)
            continue;
        g->numa = t->pci[g->pci].numa; /* the kernel's value now */
        if (g->numa < 0 && unknown++ == 0)
            first = g->pci;
    }
    if (unknown == 0 || t->n_numa < 2)
        return;
    topology_warn(t, "the kernel does not know the NUMA node of %u of %u GPUs (numa_node of %s)",
                  unknown, t->n_gpus, pci_addr_text(t->pci[first].at).text);
}

/* Whether to add a device that is not listed yet: a GPU, or one with an interface or RDMA device
 * directly below it. */
static bool is_wanted(const struct sysfs *s, const char *dir) {
    uint32_t class_id = sysfs_u32(s, "%s/class", dir) >> 8, base = class_id >> 8;
    if (base == PCI_BASE_DISPLAY || base == PCI_BASE_ACCELERATOR) {
        struct topo_pci p = {.class_id = class_id << 8};
        fill_function(s, dir, &p);
        return gpu_vendor(&p) != 0;
    }
    if (base != PCI_BASE_NETWORK && class_id != PCI_CLASS_INFINIBAND)
        return false;
    return sysfs_exists(s, "%s/net", dir) || sysfs_exists(s, "%s/infiniband", dir);
}

static void fill_named(const struct sysfs *s, struct topology *t, const char *name) {
    struct pci_addr at;
    char path[SYSFS_PATH_MAX], resolved[SYSFS_PATH_MAX];
    if (pci_addr_parse(name, &at) < 0)
        return;
    sysfs_path(path, DEVICES "/%s", name);
    if (sysfs_resolve(s, path, resolved) < 0)
        return;
    uint32_t i = topology_find_pci(t, at);
    if (i != TOPO_NONE) {
        fill_function(s, resolved, &t->pci[i]);
        (void)place_path(s, t, resolved); /* it exists already */
    } else if (is_wanted(s, resolved)) {
        (void)ensure_pci(s, t, at); /* at the limit it has warned */
    }
}

/* The port above can have been filled after the device below it. */
static void copy_ups(struct topology *t) {
    for (uint32_t i = 0; i < t->n_pci; i++)
        if (t->pci[i].parent != TOPO_NONE)
            copy_up(t, i, t->pci[i].parent);
}

void sysfs_fill_pci(const char *root, struct topology *t) {
    struct sysfs s = sysfs_at(root);
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    int r = sysfs_list(&s, &names, DEVICES);
    if (r < 0 && r != -ENOENT)
        topology_warn(t, "PCI devices cannot be read: %s%s: %s", s.root, DEVICES, strerror(-r));
    for (uint32_t i = 0; i < names.n; i++)
        fill_named(&s, t, names.names[i]);
    fill_nvidia(&s, t);
    copy_ups(t);
    fill_gpus(t);
    check_numa(t);
}

#define NODES "/sys/class/kfd/kfd/topology/nodes"

/* The number after a name, in lines of "name number"; 0: there is no such line. */
static uint64_t property(const char *text, const char *name) {
    size_t len = strlen(name);
    for (const char *line = text; *line != '\0'; line = text_next_line(line))
        if (strncmp(line, name, len) == 0 && line[len] == ' ')
            return strtoull(line + len, NULL, 10);
    return 0;
}

uint32_t kfd_list_gpus(const char *root, struct rocm_gpu *ret, uint32_t max) {
    struct sysfs s = sysfs_at(root);
    _cleanup_(sysfs_names_fini) struct sysfs_names nodes = {0};
    char text[SYSFS_TEXT_MAX];
    uint32_t found = 0;
    if (sysfs_list(&s, &nodes, NODES) < 0)
        return 0;
    for (uint32_t i = 0; i < nodes.n && found < max; i++) {
        if (sysfs_read(&s, text, sizeof text, NODES "/%s/properties", nodes.names[i]) < 0 ||
            property(text, "simd_count") == 0)
            continue;
        uint64_t place = property(text, "location_id"); /* PCI_DEVID() of Linux */
        ret[found++] = (struct rocm_gpu){
            .at = {.domain = (uint32_t)property(text, "domain"),
                   .bus = place >> 8 & 0xff,
                   .dev = place >> 3 & 0x1f,
                   .fn = place & 7},
            .unique_id = property(text, "unique_id"),
        };
    }
    return found;
}
