#include "topology/model/topology.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"

/* ---- PCI addresses ---- */

/* Reads 1 to `max` hexadecimal digits, and returns how many there are. */
static size_t take_hex(const char *p, size_t max, uint32_t *ret) {
    size_t n = 0;
    for (*ret = 0; n < max && hex_digit(p[n]) >= 0; n++)
        *ret = *ret << 4 | (uint32_t)hex_digit(p[n]);
    return n;
}

int pci_addr_parse(const char *text, struct pci_addr *ret) {
    uint32_t domain, bus, dev, fn;
    size_t n = take_hex(text, 8, &domain);
    if (n < 4 || text[n] != ':')
        return -EINVAL;
    text += n + 1;
    if (take_hex(text, 2, &bus) != 2 || text[2] != ':' || take_hex(text + 3, 2, &dev) != 2 ||
        text[5] != '.' || take_hex(text + 6, 1, &fn) != 1 || text[7] != '\0' || dev > 31 || fn > 7)
        return -EINVAL;
    *ret = (struct pci_addr){domain, (uint8_t)bus, (uint8_t)dev, (uint8_t)fn};
    return 0;
}

struct pci_addr_text pci_addr_text(struct pci_addr at) {
    struct pci_addr_text out;
    (void)snprintf(out.text, sizeof out.text, "%04" PRIx32 ":%02x:%02x.%x", at.domain, at.bus,
                   at.dev, at.fn);
    return out;
}

int pci_addr_compare(struct pci_addr a, struct pci_addr b) {
    if (a.domain != b.domain)
        return a.domain < b.domain ? -1 : 1;
    int x = a.bus << 16 | a.dev << 8 | a.fn, y = b.bus << 16 | b.dev << 8 | b.fn;
    return (x > y) - (x < y);
}

struct pci_addr_text topology_bus_id(const struct topology *t, uint32_t pci) {
    return pci < t->n_pci ? pci_addr_text(t->pci[pci].at) : (struct pci_addr_text){"?"};
}

enum topo_vendor topo_gpu_vendor(uint16_t vendor, uint16_t class_id, bool computes) {
    bool display = class_id >> 8 == PCI_BASE_DISPLAY;
    switch (vendor) {
    case PCI_VENDOR_NVIDIA:
        return class_id == PCI_CLASS_VGA || class_id == PCI_CLASS_3D ? TOPO_VENDOR_NVIDIA : 0;
    case PCI_VENDOR_AMD:
        return class_id == PCI_CLASS_OTHER_DISPLAY || class_id == PCI_CLASS_ACCELERATOR ||
                       (display && computes)
                   ? TOPO_VENDOR_AMD
                   : 0;
    case PCI_VENDOR_INTEL: return display && computes ? TOPO_VENDOR_INTEL : 0;
    default: return 0;
    }
}

static void *add(void **array, uint32_t *n, uint32_t max, size_t size, const void *unknown) {
    if (*n >= max)
        return NULL;
    *array = xgrow(*array, *n, size);
    return memcpy((char *)*array + (size_t)(*n)++ * size, unknown, size);
}
#define ADD(t, array, max, unknown) \
    add((void **)&(t)->array, &(t)->n_##array, max, sizeof *(t)->array, unknown)

/* Adds an element of which only so much is known. */
#define TOPOLOGY_ADD(one, member, max, ...)                     \
    struct topo_##one *topology_add_##one(struct topology *t) { \
        static const struct topo_##one unknown = {__VA_ARGS__}; \
        return ADD(t, member, max, &unknown);                   \
    }
TOPOLOGY_ADD(numa, numa, TOPO_NUMA_MAX, .package = -1)
TOPOLOGY_ADD(core, cores, TOPO_CORES_MAX, .first = TOPO_NONE, .numa = -1, .package = -1)
TOPOLOGY_ADD(cache, caches, TOPO_CACHES_MAX, .first = TOPO_NONE)
TOPOLOGY_ADD(pci, pci, TOPO_PCI_MAX, .parent = TOPO_NONE, .numa = -1)
TOPOLOGY_ADD(gpu, gpus, TOPO_GPUS_MAX, .pci = TOPO_NONE, .index = TOPO_NONE,
             .vendor = TOPO_VENDOR_OTHER, .numa = -1, .gdr = -1, .rank = -1, .memory_numa = -1)
TOPOLOGY_ADD(nvlink, nvlinks, TOPO_NVLINKS_MAX, .peer = TOPO_NONE)
TOPOLOGY_ADD(nic, nics, TOPO_NICS_MAX, .kind = TOPO_NIC_RDMA, .pci = TOPO_NONE, .dev = TOPO_NONE,
             .numa = -1, .gdr = -1, .port = -1)
TOPOLOGY_ADD(netif, netifs, TOPO_NETIFS_MAX, .kind = TOPO_NETIF_OTHER, .pci = TOPO_NONE, .numa = -1)

#define TOPOLOGY_NAMED(one, many)                                                    \
    uint32_t topology_find_##one(const struct topology *t, const char *name) {       \
        for (uint32_t i = 0; i < t->n_##many; i++)                                   \
            if (strcmp(t->many[i].name, name) == 0)                                  \
                return i;                                                            \
        return TOPO_NONE;                                                            \
    }                                                                                \
    struct topo_##one *topology_need_##one(struct topology *t, const char *name) {   \
        uint32_t i = topology_find_##one(t, name);                                   \
        struct topo_##one *n = i != TOPO_NONE ? &t->many[i] : topology_add_##one(t); \
        if (n != NULL)                                                               \
            (void)snprintf(n->name, sizeof n->name, "%s", name);                     \
        return n;                                                                    \
    }
TOPOLOGY_NAMED(nic, nics)
TOPOLOGY_NAMED(netif, netifs)

struct topo_gid *topo_port_add_gid(struct topo_port *p) {
    static const struct topo_gid unknown = {0};
    return ADD(p, gids, TOPO_GIDS_MAX, &unknown);
}

void topology_note(struct topology *t, enum topo_warning kind, const char *fmt, ...) {
    char text[512];
    va_list ap;
    if (t->n_warnings == TOPO_WARNINGS_MAX)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->warning_kinds[t->n_warnings] = kind;
    t->warnings[t->n_warnings++] = xstrdup(text);
}

void topology_fini(struct topology *t) {
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t p = 0; p < TOPO_PORTS_MAX; p++)
            free(t->nics[i].ports[p].gids);
    for (uint32_t i = 0; i < t->n_warnings; i++)
        free(t->warnings[i]);
    free(t->numa);
    free(t->cores);
    free(t->caches);
    free(t->pci);
    free(t->gpus);
    free(t->nvlinks);
    free(t->nics);
    free(t->netifs);
    *t = (struct topology){0};
}

/* ---- order ---- */

static int compare_numa(const void *a, const void *b) {
    const struct topo_numa *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static int compare_cores(const void *a, const void *b) {
    const struct topo_core *x = a, *y = b;
    uint32_t i = cpuset_next(&x->cpus, 0), j = cpuset_next(&y->cpus, 0);
    return (i > j) - (i < j);
}

static int compare_caches(const void *a, const void *b) {
    const struct topo_cache *x = a, *y = b;
    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    uint32_t i = cpuset_next(&x->cpus, 0), j = cpuset_next(&y->cpus, 0);
    return (i > j) - (i < j);
}

static int compare_netifs(const void *a, const void *b) {
    const struct topo_netif *x = a, *y = b;
    if (x->ifindex != y->ifindex)
        return x->ifindex < y->ifindex ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Indices are sorted, then the elements are put in that order; map has the new index for each old
 * one. */
struct sorting {
    const struct topology *t;
    int (*compare)(const struct topology *t, uint32_t a, uint32_t b);
};

static int compare_indices(const void *a, const void *b, void *arg) {
    const struct sorting *s = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = s->compare(s->t, x, y);
    return c != 0 ? c : (x > y) - (x < y);
}

static uint32_t *sort_array(const struct topology *t, void *array, uint32_t n, size_t size,
                            int (*compare)(const struct topology *t, uint32_t a, uint32_t b)) {
    _cleanup_(freep) uint32_t *order = xcalloc(n, sizeof *order);
    uint32_t *map = xcalloc(n, sizeof *map);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    struct sorting s = {t, compare};
    qsort_r(order, n, sizeof *order, compare_indices, &s);
    _cleanup_(freep) char *copy = xcalloc(n, size);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(copy + i * size, (char *)array + order[i] * size, size);
        map[order[i]] = i;
    }
    if (n > 0)
        memcpy(array, copy, n * size);
    return map;
}

/* The number of bridges above a device. It sorts parents before children, even if a switch's buses
 * are numbered so that a child has the lower address. In a cycle, counting ends at the bound. */
static uint32_t depth_of(const struct topology *t, uint32_t i) {
    uint32_t depth = 0;
    while (t->pci[i].parent < t->n_pci && depth < t->n_pci) {
        i = t->pci[i].parent;
        depth++;
    }
    return depth;
}

/* Sorts by address, but a parent before its children, whatever their addresses: it compares the
 * ancestors of both at the same depth. */
static int compare_pci(const struct topology *t, uint32_t a, uint32_t b) {
    uint32_t da = depth_of(t, a), db = depth_of(t, b);
    int deeper = (da > db) - (da < db);
    for (; da > db; da--)
        a = t->pci[a].parent;
    for (; db > da; db--)
        b = t->pci[b].parent;
    if (a == b)
        return deeper; /* one is above the other */
    for (; da > 0 && t->pci[a].parent != t->pci[b].parent; da--) {
        a = t->pci[a].parent;
        b = t->pci[b].parent;
    }
    return pci_addr_compare(t->pci[a].at, t->pci[b].at);
}

static int compare_by_pci(const struct topology *t, uint32_t a, uint32_t b) {
    if (a >= t->n_pci || b >= t->n_pci)
        return (a >= t->n_pci) - (b >= t->n_pci);
    return pci_addr_compare(t->pci[a].at, t->pci[b].at);
}

static int compare_gpus(const struct topology *t, uint32_t a, uint32_t b) {
    return compare_by_pci(t, t->gpus[a].pci, t->gpus[b].pci);
}

static int compare_nics(const struct topology *t, uint32_t a, uint32_t b) {
    const struct topo_nic *x = &t->nics[a], *y = &t->nics[b];
    if (x->dev != TOPO_NONE && y->dev != TOPO_NONE)
        return 0; /* from an NCCL file: keeps the file's order, because it is NCCL's */
    if ((x->dev == TOPO_NONE) != (y->dev == TOPO_NONE))
        return x->dev == TOPO_NONE ? 1 : -1;
    int c = compare_by_pci(t, x->pci, y->pci);
    return c != 0 ? c : strcmp(x->name, y->name);
}

static void follow(const uint32_t *map, uint32_t n, uint32_t *index) {
    *index = *index < n ? map[*index] : TOPO_NONE;
}

static void sort_pci(struct topology *t) {
    _cleanup_(freep) uint32_t *map = sort_array(t, t->pci, t->n_pci, sizeof *t->pci, compare_pci);
    for (uint32_t i = 0; i < t->n_pci; i++)
        follow(map, t->n_pci, &t->pci[i].parent);
    for (uint32_t i = 0; i < t->n_gpus; i++)
        follow(map, t->n_pci, &t->gpus[i].pci);
    for (uint32_t i = 0; i < t->n_nics; i++)
        follow(map, t->n_pci, &t->nics[i].pci);
    for (uint32_t i = 0; i < t->n_netifs; i++)
        follow(map, t->n_pci, &t->netifs[i].pci);
}

static void sort_gpus(struct topology *t) {
    _cleanup_(freep) uint32_t *map =
        sort_array(t, t->gpus, t->n_gpus, sizeof *t->gpus, compare_gpus);
    for (uint32_t i = 0; i < t->n_nvlinks; i++) {
        follow(map, t->n_gpus, &t->nvlinks[i].gpu);
        follow(map, t->n_gpus, &t->nvlinks[i].peer);
    }
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].index == TOPO_NONE)
            t->gpus[i].index = i;
}

#define SORT(t, array, compare)                                             \
    do {                                                                    \
        if ((t)->n_##array > 1)                                             \
            qsort((t)->array, (t)->n_##array, sizeof *(t)->array, compare); \
    } while (0)

void topology_sort(struct topology *t) {
    SORT(t, numa, compare_numa);
    SORT(t, cores, compare_cores);
    SORT(t, caches, compare_caches);
    SORT(t, netifs, compare_netifs);
    sort_pci(t);
    sort_gpus(t);
    free(sort_array(t, t->nics, t->n_nics, sizeof *t->nics, compare_nics));
}

uint32_t topology_find_pci(const struct topology *t, struct pci_addr at) {
    for (uint32_t i = 0; i < t->n_pci; i++)
        if (pci_addr_compare(t->pci[i].at, at) == 0)
            return i;
    return TOPO_NONE;
}

uint32_t topology_find_gpu(const struct topology *t, uint32_t pci) {
    for (uint32_t i = 0; pci < t->n_pci && i < t->n_gpus; i++)
        if (t->gpus[i].pci == pci)
            return i;
    return TOPO_NONE;
}

uint32_t topology_chain(const struct topology *t, uint32_t pci, uint32_t ret[TOPO_CHAIN_MAX]) {
    uint32_t n = 0;
    for (uint32_t i = t->pci[pci].parent; i < t->n_pci && n < TOPO_CHAIN_MAX; i = t->pci[i].parent)
        ret[n++] = i;
    return n;
}

uint32_t topology_count_gpus(const struct topology *t, enum topo_vendor vendor) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        n += t->gpus[i].vendor == vendor;
    return n;
}

const struct topo_numa *topology_numa(const struct topology *t, int32_t index) {
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (t->numa[i].index == index)
            return &t->numa[i];
    return NULL;
}

const struct cpuset *topo_numa_near(const struct topo_numa *n) {
    return cpuset_is_empty(&n->cpus) ? &n->near : &n->cpus;
}

void topology_near_cpus(const struct topology *t, int32_t numa, struct cpuset *ret) {
    const struct topo_numa *n = numa < 0 ? NULL : topology_numa(t, numa);
    *ret = n != NULL ? *topo_numa_near(n) : t->allowed;
}

enum topo_port_state topo_nic_state(const struct topo_nic *n) {
    enum topo_port_state best = TOPO_PORT_UNKNOWN;
    for (uint32_t i = 0; i < n->n_ports; i++)
        best = MAX2(best, n->ports[i].state);
    return best;
}

uint64_t topo_nic_rate_mbps(const struct topo_nic *n) {
    uint64_t active = 0, all = 0;
    for (uint32_t i = 0; i < n->n_ports; i++) {
        all += n->ports[i].rate_mbps;
        active += n->ports[i].state == TOPO_PORT_ACTIVE ? n->ports[i].rate_mbps : 0;
    }
    return topo_nic_state(n) == TOPO_PORT_ACTIVE ? active : all;
}

uint64_t topo_guid_parse(const char *text) {
    uint64_t guid = 0;
    unsigned digits = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == ':')
            continue;
        if (!isxdigit((unsigned char)*p) || ++digits > 16)
            return 0;
        guid = guid << 4 | strtoul((char[2]){*p, '\0'}, NULL, 16);
    }
    return digits == 16 ? guid : 0;
}

const char *const topo_port_state_names[TOPO_PORT_ACTIVE + 1] = {
    [TOPO_PORT_UNKNOWN] = "unknown", [TOPO_PORT_DOWN] = "DOWN",     [TOPO_PORT_INIT] = "INIT",
    [TOPO_PORT_ARMED] = "ARMED",     [TOPO_PORT_ACTIVE] = "ACTIVE",
};
const char *const topo_netif_kind_names[TOPO_NETIF_OTHER + 1] = {
    [TOPO_NETIF_PHYSICAL] = "physical", [TOPO_NETIF_LOOPBACK] = "loopback",
    [TOPO_NETIF_BRIDGE] = "bridge",     [TOPO_NETIF_VETH] = "veth",
    [TOPO_NETIF_MACVLAN] = "macvlan",   [TOPO_NETIF_VLAN] = "vlan",
    [TOPO_NETIF_BOND] = "bond",         [TOPO_NETIF_TUNNEL] = "tunnel",
    [TOPO_NETIF_DUMMY] = "dummy",       [TOPO_NETIF_OTHER] = "other",
};

enum topo_netif_kind topo_netif_kind_of(const char *driver) {
    static const struct {
        const char *name;
        enum topo_netif_kind kind;
    } kinds[] = {
        {"bareudp", TOPO_NETIF_TUNNEL},     {"bond", TOPO_NETIF_BOND},
        {"bridge", TOPO_NETIF_BRIDGE},      {"dummy", TOPO_NETIF_DUMMY},
        {"erspan", TOPO_NETIF_TUNNEL},      {"geneve", TOPO_NETIF_TUNNEL},
        {"gre", TOPO_NETIF_TUNNEL},         {"gretap", TOPO_NETIF_TUNNEL},
        {"ip6erspan", TOPO_NETIF_TUNNEL},   {"ip6gre", TOPO_NETIF_TUNNEL},
        {"ip6gretap", TOPO_NETIF_TUNNEL},   {"ip6tnl", TOPO_NETIF_TUNNEL},
        {"ipip", TOPO_NETIF_TUNNEL},        {"ipoib", TOPO_NETIF_PHYSICAL},
        {"ipvlan", TOPO_NETIF_MACVLAN},     {"ipvtap", TOPO_NETIF_MACVLAN},
        {"macsec", TOPO_NETIF_MACVLAN},     {"macvlan", TOPO_NETIF_MACVLAN},
        {"macvtap", TOPO_NETIF_MACVLAN},    {"netkit", TOPO_NETIF_VETH},
        {"openvswitch", TOPO_NETIF_BRIDGE}, {"ppp", TOPO_NETIF_TUNNEL},
        {"sit", TOPO_NETIF_TUNNEL},         {"team", TOPO_NETIF_BOND},
        {"tun", TOPO_NETIF_TUNNEL},         {"veth", TOPO_NETIF_VETH},
        {"vlan", TOPO_NETIF_VLAN},          {"vti", TOPO_NETIF_TUNNEL},
        {"vti6", TOPO_NETIF_TUNNEL},        {"vxlan", TOPO_NETIF_TUNNEL},
        {"wireguard", TOPO_NETIF_TUNNEL},   {"xfrm", TOPO_NETIF_TUNNEL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i].name, driver) == 0)
            return kinds[i].kind;
    return TOPO_NETIF_OTHER;
}

const char *const topo_fabric_names[TOPO_FABRIC_FAILED + 1] = {
    [TOPO_FABRIC_NONE] = "none",
    [TOPO_FABRIC_NOT_STARTED] = "not started",
    [TOPO_FABRIC_IN_PROGRESS] = "in progress",
    [TOPO_FABRIC_COMPLETED] = "completed",
    [TOPO_FABRIC_FAILED] = "failed",
};

const char *const topo_imex_names[TOPO_IMEX_PRESENT + 1] = {
    [TOPO_IMEX_NONE] = "none", [TOPO_IMEX_MISSING] = "missing", [TOPO_IMEX_PRESENT] = "present"};

static bool counts(const struct topo_gpu *g) { return g->vendor == TOPO_VENDOR_NVIDIA && !g->lost; }

static bool same_domain(const struct topo_gpu *a, const struct topo_gpu *b) {
    return strcmp(a->fabric_uuid, b->fabric_uuid) == 0 && a->fabric_clique == b->fabric_clique;
}

/* The first GPU with a UUID, and the first in another domain than that; NULL: there is none. */
static const struct topo_gpu *find_domains(const struct topology *t,
                                           const struct topo_gpu **ret_other) {
    const struct topo_gpu *first = NULL;
    *ret_other = NULL;
    for (uint32_t i = 0; i < t->n_gpus && *ret_other == NULL; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (!counts(g) || g->fabric_uuid[0] == '\0')
            continue;
        if (first == NULL)
            first = g;
        else if (!same_domain(first, g))
            *ret_other = g;
    }
    return first;
}

bool topology_domain_split(const struct topology *t, char text[TOPO_TEXT_MAX]) {
    const struct topo_gpu *other, *first = find_domains(t, &other);
    if (other != NULL)
        (void)snprintf(text, TOPO_TEXT_MAX,
                       "GPU %" PRIu32 " and GPU %" PRIu32 " are in different NVLink domains%s: "
                       "this node belongs to none",
                       first->index, other->index,
                       strcmp(first->fabric_uuid, other->fabric_uuid) == 0 ? " (cliques)" : "");
    return other != NULL;
}

bool topology_domain(const struct topology *t, char out[TOPO_DOMAIN_MAX]) {
    const struct topo_gpu *other, *first = find_domains(t, &other), *chassis = NULL;
    bool joined = first != NULL, one_chassis = true;
    out[0] = '\0';
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (!counts(g))
            continue;
        bool has_uuid = g->fabric_uuid[0] != '\0';
        chassis = chassis == NULL ? g : chassis;
        joined = joined && has_uuid;
        one_chassis = one_chassis && g->chassis[0] != '\0' &&
                      strcmp(g->chassis, chassis->chassis) == 0 && g->fabric != TOPO_FABRIC_NONE &&
                      (has_uuid || g->fabric != TOPO_FABRIC_COMPLETED);
    }
    if (chassis == NULL || other != NULL)
        return false;
    if (joined)
        (void)snprintf(out, TOPO_DOMAIN_MAX, "nvl-%s.%" PRIu32, first->fabric_uuid,
                       first->fabric_clique);
    else if (one_chassis)
        (void)snprintf(out, TOPO_DOMAIN_MAX, "chassis-%s", chassis->chassis);
    return joined || one_chassis;
}

bool topology_fabric_pending(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (counts(&t->gpus[i]) && t->gpus[i].fabric == TOPO_FABRIC_IN_PROGRESS)
            return true;
    return false;
}

bool topology_has_c2c(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        if (t->nvlinks[i].c2c)
            return true;
    return false;
}

/* Fields of the mask: two bits each, where 1 means yes, 2 no, and 0 not supported. (NVML,
 * NVML_GPU_FABRIC_HEALTH_MASK_*) */
static const char *const faults[] = {
    "degraded bandwidth",
    "a route is recovering",
    "a route is unhealthy",
    "recovering from an access timeout",
};
/* The next field has four bits; 1 is correct. */
static const char *const misconfigured[] = {
    [2] = "wrong system GUID", [3] = "wrong chassis serial number", [4] = "no partition",
    [5] = "too few NVLinks",   [6] = "incompatible GPU firmware",   [7] = "invalid location",
};
static const char *const summaries[] = {[2] = "unhealthy", [3] = "limited capacity"};

static const char *name_in(const char *const *names, size_t n, uint32_t value) {
    return value < n ? names[value] : NULL;
}

static void add_fault(const char *text, struct strbuf *to) {
    if (text != NULL)
        strbuf_printf(to, "%s%s", to->len > 0 ? ", " : "", text);
}

static void write_faults(const struct topo_gpu *g, struct strbuf *to) {
    for (uint32_t i = 0; i < ARRAY_SIZE(faults); i++)
        add_fault((g->fabric_health >> (2 * i) & 3) == 1 ? faults[i] : NULL, to);
    add_fault(name_in(misconfigured, ARRAY_SIZE(misconfigured), g->fabric_health >> 8 & 15), to);
    if (to->len == 0)
        add_fault(name_in(summaries, ARRAY_SIZE(summaries), g->fabric_summary), to);
}

bool topology_fabric_degraded(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf first = {0}, text = {0};
    uint32_t n = 0, index = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        strbuf_clear(&text);
        write_faults(&t->gpus[i], &text);
        if (text.len == 0 || n++ > 0)
            continue;
        index = t->gpus[i].index;
        strbuf_add(&first, strbuf_text(&text));
    }
    if (n > 0)
        strbuf_printf(to, "%u of %u GPUs have a faulty NVLink fabric (GPU %u: %s)", n, t->n_gpus,
                      index, strbuf_text(&first));
    return n > 0;
}

void topology_fabric_text(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf degraded = {0};
    bool known = false;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        known = known || t->gpus[i].fabric_health != 0 || t->gpus[i].fabric_summary != 0;
    strbuf_printf(to, "%s, IMEX channel %s",
                  topology_fabric_pending(t)               ? "fabric in progress"
                  : topology_fabric_degraded(t, &degraded) ? "not healthy"
                  : known                                  ? "healthy"
                                                           : "health unknown",
                  topo_imex_names[t->imex]);
}
