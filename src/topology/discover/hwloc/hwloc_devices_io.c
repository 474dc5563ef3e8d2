#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "topology/discover/common/discovery.h"
#include "topology/discover/hwloc/hwloc_priv.h"

enum { VENDOR_AMAZON = 0x1d0f, VENDOR_CRAY = 0x17db };

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
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

/* ---- RDMA devices ---- */

/* "b8e9:2403:00ba:a4c8" */
static uint64_t guid_of(const char *text) {
    uint64_t guid = 0;
    for (; text != NULL && *text != '\0'; text++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, *text | 0x20);
        if (at != NULL)
            guid = guid << 4 | (uint64_t)(at - hex);
    }
    return guid;
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
    enum topo_nic_kind kind = starts(obj->name, "cxi") ? TOPO_NIC_SLINGSHOT
                              : vendor_of(v, obj) == VENDOR_AMAZON || starts(obj->name, "rdmap") ||
                                      starts(obj->name, "efa")
                                  ? TOPO_NIC_EFA
                                  : TOPO_NIC_RDMA;
    struct topo_nic *n = add_nic(v, obj, kind);
    if (n == NULL)
        return;
    const char *netdev = sibling(obj, HWLOC_OBJ_OSDEV_NETWORK);
    copy_name(n->netdev, netdev != NULL ? netdev : "");
    n->node_guid = guid_of(hwloc_obj_get_info_by_name(obj, "NodeGUID"));
    n->sys_image_guid = guid_of(hwloc_obj_get_info_by_name(obj, "SysImageGUID"));
    take_ports(obj, n);
}

/* Some sites also name the interface of an InfiniBand card hsi*. */
static bool is_slingshot(const struct hwloc_view *v, hwloc_obj_t obj) {
    if (sibling(obj, HWLOC_OBJ_OSDEV_OPENFABRICS) != NULL)
        return false;
    return (obj->subtype != NULL && strcmp(obj->subtype, "Slingshot") == 0) ||
           starts(obj->name, "hsn") || starts(obj->name, "cxi") ||
           (starts(obj->name, "hsi") && vendor_of(v, obj) == VENDOR_CRAY);
}

static void take_slingshot(const struct hwloc_view *v, hwloc_obj_t obj) {
    struct topo_nic *n = add_nic(v, obj, TOPO_NIC_SLINGSHOT);
    if (n != NULL)
        copy_name(n->netdev, obj->name);
}

/* ---- network interfaces ---- */

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

/* ---- NVLinks ---- */

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
    uint32_t pci = hwloc_pci_of(obj);
    for (uint32_t i = 0; i < v->t->n_gpus && pci != TOPO_NONE; i++)
        if (v->t->gpus[i].pci == pci)
            return i;
    return TOPO_NONE;
}

static void take_nvlink(const struct hwloc_view *v, uint32_t gpu, hwloc_obj_t to, uint64_t mbs) {
    uint64_t count = (mbs + link_mbs(&v->t->gpus[gpu], mbs) / 2) / link_mbs(&v->t->gpus[gpu], mbs);
    struct topo_nvlink *l = count > 0 && count < UINT32_MAX ? topology_add_nvlink(v->t) : NULL;
    if (l == NULL)
        return;
    l->gpu = gpu;
    l->count = (uint32_t)count;
    l->peer = gpu_of(v, to);
    l->target = (struct pci_addr){UINT32_MAX, 0xff, 0xff, 0xff};
    uint32_t pci = hwloc_pci_of(to);
    if (pci != TOPO_NONE)
        l->target = v->t->pci[pci].at;
    else if (to->type == HWLOC_OBJ_PCI_DEVICE)
        l->target = (struct pci_addr){to->attr->pcidev.domain, to->attr->pcidev.bus,
                                      to->attr->pcidev.dev, to->attr->pcidev.func};
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

void hwloc_fill_devices(const struct hwloc_view *v) {
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
