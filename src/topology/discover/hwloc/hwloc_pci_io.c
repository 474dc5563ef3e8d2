#include <stdio.h>
#include <string.h>

#include "topology/discover/hwloc/hwloc_priv.h"

/* Classes and vendors (pci.ids). hwloc's class is 16 bits: class and subclass. */
enum {
    CLASS_NETWORK = 0x02,
    CLASS_DISPLAY = 0x03,
    CLASS_PROCESSOR = 0x0b,
    CLASS_ACCELERATOR = 0x12,
    CLASS_VGA = 0x0300,
    CLASS_3D = 0x0302,
    CLASS_OTHER_DISPLAY = 0x0380,
    CLASS_OTHER_BRIDGE = 0x0680,
    CLASS_INFINIBAND = 0x0c06,
    CLASS_PLAIN_ACCELERATOR = 0x1200,
    VENDOR_NVIDIA = 0x10de,
    VENDOR_AMD = 0x1002,
    VENDOR_INTEL = 0x8086,
};

static bool is_io(hwloc_obj_t obj) {
    return obj->type == HWLOC_OBJ_BRIDGE || obj->type == HWLOC_OBJ_PCI_DEVICE ||
           obj->type == HWLOC_OBJ_OS_DEVICE;
}

uint32_t hwloc_pci_of(hwloc_obj_t obj) {
    while (obj != NULL && obj->type != HWLOC_OBJ_PCI_DEVICE && is_io(obj))
        obj = obj->parent;
    return obj != NULL && obj->type == HWLOC_OBJ_PCI_DEVICE ? (uint32_t)(uintptr_t)obj->userdata - 1
                                                            : TOPO_NONE;
}

/* ---- placing ---- */

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

/* ---- which ones ---- */

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
    case CLASS_NETWORK:
    case CLASS_DISPLAY:
    case CLASS_PROCESSOR:
    case CLASS_ACCELERATOR: return true;
    default: break;
    }
    return a->class_id == CLASS_INFINIBAND || has_network(obj) || has_compute(obj) ||
           (a->class_id == CLASS_OTHER_BRIDGE && a->vendor_id == VENDOR_NVIDIA) ||
           (obj->subtype != NULL && strcmp(obj->subtype, "NVSwitch") == 0);
}

/* NVIDIA: display and 3D. AMD and Intel: the classes of their data center cards, or a display with
 * a render node or a compute runtime. (Old servers have an ATI VGA.) */
static enum topo_vendor gpu_vendor(hwloc_obj_t obj) {
    const struct hwloc_pcidev_attr_s *a = &obj->attr->pcidev;
    bool display = a->class_id >> 8 == CLASS_DISPLAY;
    switch (a->vendor_id) {
    case VENDOR_NVIDIA:
        return a->class_id == CLASS_VGA || a->class_id == CLASS_3D ? TOPO_VENDOR_NVIDIA : 0;
    case VENDOR_AMD:
        return a->class_id == CLASS_OTHER_DISPLAY || a->class_id == CLASS_PLAIN_ACCELERATOR ||
                       (display && has_compute(obj))
                   ? TOPO_VENDOR_AMD
                   : 0;
    case VENDOR_INTEL: return display && has_compute(obj) ? TOPO_VENDOR_INTEL : 0;
    default: return 0;
    }
}

/* ---- hwloc's data about a GPU ---- */

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
    enum topo_vendor vendor = gpu_vendor(obj);
    struct topo_gpu *g = vendor != 0 ? topology_add_gpu(v->t) : NULL;
    if (g == NULL)
        return;
    g->pci = pci;
    g->vendor = vendor;
    g->numa = v->t->pci[pci].numa;
    describe_gpu(obj, g);
}

void hwloc_fill_pci(const struct hwloc_view *v) {
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
