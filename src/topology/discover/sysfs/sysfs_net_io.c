#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define NET_CLASS "/sys/class/net"

/* Types of linux/if_arp.h that libc's header may lack. */
enum { TYPE_IPGRE = 778, TYPE_IP6GRE = 823, TYPE_NONE = 0xfffe };

/* By DEVTYPE of the uevent file, the driver's own name. OTHER: it does not decide the kind. */
static enum topo_netif_kind kind_by_devtype(const struct sysfs *s, const char *entry) {
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, "%s/uevent", entry) < 0)
        return TOPO_NETIF_OTHER;
    char *at = strstr(text, "DEVTYPE=");
    if (at == NULL || (at != text && at[-1] != '\n'))
        return TOPO_NETIF_OTHER;
    at += strlen("DEVTYPE=");
    at[strcspn(at, "\n")] = '\0';
    return topo_netif_kind_of(at);
}

static enum topo_netif_kind kind_by_type(uint32_t type) {
    switch (type) {
    case ARPHRD_LOOPBACK: return TOPO_NETIF_LOOPBACK;
    case ARPHRD_PPP:
    case ARPHRD_TUNNEL:
    case ARPHRD_TUNNEL6:
    case ARPHRD_SIT:
    case TYPE_IPGRE:
    case TYPE_IP6GRE: return TOPO_NETIF_TUNNEL;
    default: return 0;
    }
}

static bool has(const struct sysfs_names *files, const char *name) {
    for (uint32_t i = 0; i < files->n; i++)
        if (strcmp(files->names[i], name) == 0)
            return true;
    return false;
}

static bool has_lower(const struct sysfs_names *files) {
    for (uint32_t i = 0; i < files->n; i++)
        if (strncmp(files->names[i], "lower_", 6) == 0)
            return true;
    return false;
}

/* An interface without a device of its own that has another one's index in iflink: that one is a
 * macvlan's lower interface, or a veth's other end. A macvlan whose lower interface is in another
 * network namespace looks like a veth here; netlink can distinguish them. */
static enum topo_netif_kind kind_by_link(const struct sysfs *s, const char *entry,
                                         const struct sysfs_names *files, uint32_t ifindex,
                                         uint32_t type) {
    uint32_t link = sysfs_u32(s, "%s/iflink", entry);
    if (type == TYPE_NONE)
        return TOPO_NETIF_TUNNEL;
    if (link == 0 || link == ifindex)
        return TOPO_NETIF_OTHER;
    return has_lower(files) ? TOPO_NETIF_MACVLAN : TOPO_NETIF_VETH;
}

static enum topo_netif_kind find_kind(const struct sysfs *s, const char *entry,
                                      const struct sysfs_names *files, const struct topo_netif *n) {
    uint32_t type = sysfs_u32(s, "%s/type", entry);
    enum topo_netif_kind kind = kind_by_type(type);
    if (kind != 0)
        return kind;
    if (has(files, "bridge"))
        return TOPO_NETIF_BRIDGE;
    if (has(files, "bonding"))
        return TOPO_NETIF_BOND;
    if (has(files, "tun_flags"))
        return TOPO_NETIF_TUNNEL;
    if (sysfs_exists(s, "/proc/net/vlan/%s", n->name))
        return TOPO_NETIF_VLAN;
    kind = kind_by_devtype(s, entry);
    if (kind != TOPO_NETIF_OTHER)
        return kind;
    return has(files, "device") ? TOPO_NETIF_PHYSICAL
                                : kind_by_link(s, entry, files, n->ifindex, type);
}

/* The file `flags` lacks IFF_RUNNING, so operstate is read. Drivers without carrier detection have
 * "unknown" there (RFC 2863: it counts as up). */
static void fill_state(const struct sysfs *s, const char *entry, struct topo_netif *n) {
    char state[32] = "";
    int64_t flags;
    bool oper = sysfs_read(s, state, sizeof state, "%s/operstate", entry) == 0;
    bool flagged = sysfs_number(s, &flags, "%s/flags", entry) == 0;
    if (flagged)
        n->up = (flags & IFF_UP) != 0;
    if (!oper)
        return;
    bool up = strcmp(state, "up") == 0;
    if (!flagged)
        n->up = up;
    n->running = n->up && (up || strcmp(state, "unknown") == 0);
}

/* A speed that is not known reads as -1, 4294967295 or EINVAL. */
static void fill_numbers(const struct sysfs *s, const char *entry, struct topo_netif *n) {
    uint32_t ifindex = sysfs_u32(s, "%s/ifindex", entry), mtu = sysfs_u32(s, "%s/mtu", entry);
    int64_t speed;
    if (ifindex != 0)
        n->ifindex = ifindex;
    if (mtu != 0)
        n->mtu = mtu;
    if (sysfs_number(s, &speed, "%s/speed", entry) == 0)
        n->speed_mbps = speed > 0 && speed < INT32_MAX ? speed : 0;
}

static void fill_device(const struct sysfs *s, struct topology *t, const char *entry, uint32_t pci,
                        struct topo_netif *n) {
    int64_t numa;
    if (pci != TOPO_NONE) {
        n->pci = pci;
        n->numa = t->pci[pci].numa;
    } else if (sysfs_number(s, &numa, "%s/device/numa_node", entry) == 0 && numa >= 0 &&
               numa < INT32_MAX) {
        n->numa = (int32_t)numa;
    }
    sysfs_link_name(s, n->driver, "%s/device/driver", entry);
}

/* The NIC that names this interface (also a bond) as its own; else one of the same function. */
static void name_nic(const struct topology *t, struct topo_netif *n) {
    const struct topo_nic *found = NULL;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *nic = &t->nics[i];
        if (strcmp(nic->netdev, n->name) == 0) {
            found = nic;
            break;
        }
        if (found == NULL && n->pci != TOPO_NONE && nic->pci == n->pci)
            found = nic;
    }
    if (found != NULL)
        memcpy(n->nic, found->name, sizeof n->nic);
}

static bool fill_netif(const struct sysfs *s, struct topology *t, const char *name) {
    char entry[SYSFS_PATH_MAX];
    _cleanup_(sysfs_names_fini) struct sysfs_names files = {0};
    sysfs_path(entry, NET_CLASS "/%s", name);
    if (sysfs_list(s, &files, "%s", entry) < 0)
        return true; /* bonding_masters is a file among them */
    uint32_t pci = sysfs_pci_of_class(s, t, entry);
    struct topo_netif *n = topology_need_netif(t, name);
    if (n == NULL) {
        topology_warn(t, "more than %d network interfaces: the rest is left out", TOPO_NETIFS_MAX);
        return false;
    }
    fill_numbers(s, entry, n);
    fill_state(s, entry, n);
    n->kind = find_kind(s, entry, &files, n);
    fill_device(s, t, entry, pci, n);
    name_nic(t, n);
    return true;
}

static void list_class(const struct sysfs *s, struct topology *t, const char *path,
                       struct sysfs_names *ret) {
    int r = sysfs_list(s, ret, "%s", path);
    if (r < 0 && r != -ENOENT)
        topology_warn(t, "%s%s cannot be read: %s", s->root, path, strerror(-r));
    sysfs_names_warn(ret, path, t);
}

void sysfs_fill_netifs(const char *root, struct topology *t) {
    struct sysfs s = sysfs_at(root);
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    list_class(&s, t, NET_CLASS, &names);
    for (uint32_t i = 0; i < names.n; i++)
        if (!fill_netif(&s, t, names.names[i]))
            return;
}

#define RDMA_CLASS "/sys/class/infiniband"

#define EFA_DEVICES 0xefa0 /* efa0, efa1, efa2 … (kernel, drivers/infiniband/hw/efa/efa_main.c) */

static enum topo_gid_type gid_type(const char *text, enum topo_link_layer layer) {
    if (strcmp(text, "RoCE v2") == 0)
        return TOPO_GID_ROCE_V2;
    if (strcmp(text, "IB/RoCE v1") != 0) /* one text for both */
        return TOPO_GID_UNKNOWN;
    return layer == TOPO_LINK_ETHERNET     ? TOPO_GID_ROCE_V1
           : layer == TOPO_LINK_INFINIBAND ? TOPO_GID_IB
                                           : TOPO_GID_UNKNOWN;
}

/* false: no room. An empty entry of the table reads as zeros, its attributes as EINVAL. */
static bool take_gid(const struct sysfs *s, const char *dir, const char *index,
                     struct topo_port *port) {
    char text[64];
    uint8_t gid[16];
    uint32_t number;
    if (parse_u32(index, &number) < 0 ||
        sysfs_read(s, text, sizeof text, "%s/gids/%s", dir, index) < 0 ||
        inet_pton(AF_INET6, text, gid) != 1)
        return true;
    static const uint8_t none[sizeof gid] = {0};
    /* fe80:: and only zeros: the port has no GUID */
    if (memcmp(gid, none, sizeof gid) == 0 ||
        (gid[0] == 0xfe && gid[1] == 0x80 && memcmp(gid + 2, none, sizeof gid - 2) == 0))
        return true;
    struct topo_gid *g = topo_port_add_gid(port);
    if (g == NULL)
        return false;
    g->index = number;
    memcpy(g->gid, gid, sizeof gid);
    if (sysfs_read(s, text, sizeof text, "%s/gid_attrs/types/%s", dir, index) == 0)
        g->type = gid_type(text, port->link_layer);
    if (sysfs_read(s, g->netdev, sizeof g->netdev, "%s/gid_attrs/ndevs/%s", dir, index) < 0)
        g->netdev[0] = '\0'; /* in another network namespace */
    return true;
}

static void fill_gids(const struct sysfs *s, struct topology *t, const char *nic, const char *dir,
                      struct topo_port *port) {
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    if (sysfs_list(s, &names, "%s/gids", dir) < 0)
        return;
    free(port->gids);
    port->gids = NULL;
    port->n_gids = 0;
    for (uint32_t i = 0; i < names.n; i++)
        if (!take_gid(s, dir, names.names[i], port)) {
            topology_warn(t, "%s port %u has more than %d GIDs: the rest is left out", nic,
                          port->number, TOPO_GIDS_MAX);
            return;
        }
}

/* "4: ACTIVE". The numbers are from the InfiniBand Architecture, PortInfo; 5 is an ACTIVE port that
 * is about to lose its link. */
static enum topo_port_state port_state(const char *text) {
    switch (strtoul(text, NULL, 10)) {
    case 1: return TOPO_PORT_DOWN;
    case 2: return TOPO_PORT_INIT;
    case 3: return TOPO_PORT_ARMED;
    case 4:
    case 5: return TOPO_PORT_ACTIVE;
    default: return TOPO_PORT_UNKNOWN;
    }
}

/* "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" */
static uint64_t port_rate(const char *text) {
    char number[16];
    double gbps;
    size_t len = strspn(text, "0123456789.");
    if (len == 0 || len >= sizeof number || !text_begins(text + len, " Gb/sec"))
        return 0;
    (void)snprintf(number, sizeof number, "%.*s", (int)len, text);
    return parse_double(number, &gbps) < 0 || gbps > 1e6 ? 0 : (uint64_t)(gbps * 1000 + 0.5);
}

static void fill_port(const struct sysfs *s, const char *dir, struct topo_port *p) {
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, "%s/state", dir) == 0)
        p->state = port_state(text);
    if (sysfs_read(s, text, sizeof text, "%s/phys_state", dir) == 0) {
        const char *colon = strchr(text, ':');
        const char *name = colon == NULL ? text : colon + 1 + strspn(colon + 1, " ");
        if (strlen(name) < sizeof p->phys_state)
            (void)snprintf(p->phys_state, sizeof p->phys_state, "%.31s", name);
    }
    if (sysfs_read(s, text, sizeof text, "%s/rate", dir) == 0)
        p->rate_mbps = port_rate(text);
    if (sysfs_read(s, text, sizeof text, "%s/link_layer", dir) == 0)
        p->link_layer = strcmp(text, "InfiniBand") == 0 ? TOPO_LINK_INFINIBAND
                        : strcmp(text, "Ethernet") == 0 ? TOPO_LINK_ETHERNET
                                                        : TOPO_LINK_UNKNOWN;
    uint32_t lid = sysfs_u32(s, "%s/lid", dir);
    if (lid != 0)
        p->lid = lid;
}

static struct topo_port *find_or_add_port(struct topo_nic *n, uint32_t number) {
    for (uint32_t i = 0; i < n->n_ports; i++)
        if (n->ports[i].number == number)
            return &n->ports[i];
    if (n->n_ports == TOPO_PORTS_MAX)
        return NULL;
    struct topo_port *p = &n->ports[n->n_ports++];
    p->number = number;
    return p;
}

static void fill_ports(const struct sysfs *s, struct topology *t, struct topo_nic *n) {
    char path[SYSFS_PATH_MAX];
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    int r = sysfs_list(s, &names, RDMA_CLASS "/%s/ports", n->name);
    if (r < 0)
        topology_warn(t, "the ports of %s cannot be read: %s", n->name, strerror(-r));
    for (uint32_t i = 0; i < names.n; i++) {
        uint32_t number;
        if (parse_u32(names.names[i], &number) < 0 || number == 0)
            continue;
        struct topo_port *p = find_or_add_port(n, number);
        if (p == NULL) {
            topology_warn(t, "%s has more than %d ports: the rest is left out", n->name,
                          TOPO_PORTS_MAX);
            return;
        }
        sysfs_path(path, RDMA_CLASS "/%s/ports/%s", n->name, names.names[i]);
        fill_port(s, path, p);
        fill_gids(s, t, n->name, path, p);
    }
}

/* The interface of a virtual function or subfunction as the host's switch sees it: "pf0vf1",
 * "c1pf0sf2" (kernel, Documentation/networking/switchdev). */
static bool is_representor(const struct sysfs *s, const char *net) {
    char port[32];
    if (sysfs_read(s, port, sizeof port, "%s/phys_port_name", net) < 0)
        return false;
    const char *at = port;
    if (*at == 'c' && isdigit((unsigned char)at[1]))
        at += 1 + strspn(at + 1, "0123456789");
    return text_begins(at, "pf");
}

/* Among the interfaces of the same function: the port's (cards with both ports in one function
 * number them in dev_port), but not a representor; else the first. */
static void netdev_of_device(const struct sysfs *s, struct topo_nic *n) {
    char path[SYSFS_PATH_MAX];
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    if (sysfs_list(s, &names, RDMA_CLASS "/%s/device/net", n->name) < 0 || names.n == 0)
        return;
    uint32_t best = 0, best_rank = UINT32_MAX, wanted = n->n_ports > 0 ? n->ports[0].number - 1 : 0;
    for (uint32_t i = 0; i < names.n; i++) {
        sysfs_path(path, RDMA_CLASS "/%s/device/net/%s", n->name, names.names[i]);
        uint32_t rank = (is_representor(s, path) ? 2 : 0) +
                        (sysfs_u32(s, "%s/dev_port", path) != wanted ? 1 : 0);
        if (rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    (void)snprintf(n->netdev, sizeof n->netdev, "%s", names.names[best]);
}

/* The first GID's interface is the port's own, or the bond above it, which then has the
 * addresses. */
static void fill_netdev(const struct sysfs *s, struct topo_nic *n) {
    for (uint32_t p = 0; p < n->n_ports; p++)
        for (uint32_t i = 0; i < n->ports[p].n_gids; i++)
            if (n->ports[p].gids[i].netdev[0] != '\0') {
                memcpy(n->netdev, n->ports[p].gids[i].netdev, sizeof n->netdev);
                return;
            }
    netdev_of_device(s, n);
}

static uint64_t read_guid(const struct sysfs *s, const char *nic, const char *file) {
    char text[32];
    return sysfs_read(s, text, sizeof text, RDMA_CLASS "/%s/%s", nic, file) < 0
               ? 0
               : topo_guid_parse(text);
}

/* "rdmap…" is only udev's name for a device without a known link layer. So the driver decides if it
 * is known, else the ids. */
static bool is_efa(const struct topology *t, const struct topo_nic *n) {
    if (n->driver[0] != '\0')
        return strcmp(n->driver, "efa") == 0;
    if (n->pci != TOPO_NONE && t->pci[n->pci].vendor != 0)
        return t->pci[n->pci].vendor == PCI_VENDOR_AMAZON &&
               (t->pci[n->pci].device & 0xfff0) == EFA_DEVICES;
    return text_begins(n->name, "rdmap") || text_begins(n->name, "efa_");
}

static struct topo_nic *need_nic(struct topology *t, const char *name) {
    struct topo_nic *n = topology_need_nic(t, name);
    if (n == NULL)
        topology_warn(t, "more than %d RDMA devices: the rest is left out", TOPO_NICS_MAX);
    return n;
}

static void take_pci(struct topology *t, uint32_t pci, struct topo_nic *n) {
    if (pci == TOPO_NONE)
        return;
    n->pci = pci;
    n->numa = t->pci[pci].numa;
}

static void fill_nic(const struct sysfs *s, struct topology *t, const char *name) {
    char entry[SYSFS_PATH_MAX];
    sysfs_path(entry, RDMA_CLASS "/%s", name);
    uint32_t pci = sysfs_pci_of_class(s, t, entry);
    struct topo_nic *n = need_nic(t, name);
    if (n == NULL)
        return;
    take_pci(t, pci, n);
    sysfs_link_name(s, n->driver, "%s/device/driver", entry);
    n->kind = is_efa(t, n) ? TOPO_NIC_EFA : TOPO_NIC_RDMA;
    n->virtual_function = sysfs_exists(s, "%s/device/physfn", entry);
    uint64_t node = read_guid(s, name, "node_guid"), image = read_guid(s, name, "sys_image_guid");
    n->node_guid = node != 0 ? node : n->node_guid;
    n->sys_image_guid = image != 0 ? image : n->sys_image_guid;
    fill_ports(s, t, n);
    fill_netdev(s, n);
}

/* Its cards are not RDMA devices for the kernel. The name hsn* alone proves nothing: before
 * Cassini, Slingshot used ConnectX cards. */
static bool is_slingshot(const struct topology *t, const char *name, const char *driver,
                         uint32_t pci) {
    if (driver[0] != '\0')
        return text_begins(driver, "cxi");
    if (pci != TOPO_NONE && t->pci[pci].vendor != 0)
        return t->pci[pci].vendor == PCI_VENDOR_CRAY;
    return text_begins(name, "hsn") || text_begins(name, "cxi");
}

static bool is_known(const struct topology *t, uint32_t pci) {
    for (uint32_t i = 0; i < t->n_nics && pci != TOPO_NONE; i++)
        if (t->nics[i].pci == pci && t->nics[i].kind != TOPO_NIC_SLINGSHOT)
            return true;
    return false;
}

static void fill_slingshot(const struct sysfs *s, struct topology *t, const char *name) {
    char entry[SYSFS_PATH_MAX], driver[TOPO_NAME_MAX], text[32];
    sysfs_path(entry, NET_CLASS "/%s", name);
    sysfs_link_name(s, driver, "%s/device/driver", entry);
    bool named = text_begins(name, "hsn") || text_begins(name, "cxi");
    if (!named && !text_begins(driver, "cxi") &&
        sysfs_u32(s, "%s/device/vendor", entry) != PCI_VENDOR_CRAY)
        return;
    uint32_t pci = sysfs_pci_of_class(s, t, entry);
    if (!is_slingshot(t, name, driver, pci) || is_known(t, pci))
        return;
    struct topo_nic *n = need_nic(t, name);
    struct topo_port *p = n == NULL ? NULL : find_or_add_port(n, 1);
    if (p == NULL)
        return;
    take_pci(t, pci, n);
    n->kind = TOPO_NIC_SLINGSHOT;
    memcpy(n->driver, driver, sizeof n->driver);
    (void)snprintf(n->netdev, sizeof n->netdev, "%s", name);
    p->link_layer = TOPO_LINK_ETHERNET;
    if (sysfs_read(s, text, sizeof text, "%s/operstate", entry) == 0)
        p->state = strcmp(text, "up") == 0 ? TOPO_PORT_ACTIVE : TOPO_PORT_DOWN;
    int64_t speed;
    if (sysfs_number(s, &speed, "%s/speed", entry) == 0 && speed > 0 && speed < UINT32_MAX)
        p->rate_mbps = (uint64_t)speed;
}

void sysfs_fill_rdma(const char *root, struct topology *t) {
    struct sysfs s = sysfs_at(root);
    _cleanup_(sysfs_names_fini) struct sysfs_names devices = {0}, nets = {0};
    list_class(&s, t, RDMA_CLASS, &devices);
    for (uint32_t i = 0; i < devices.n; i++)
        fill_nic(&s, t, devices.names[i]);
    if (sysfs_list(&s, &nets, NET_CLASS) == 0) /* sysfs_fill_netifs() warns */
        for (uint32_t i = 0; i < nets.n; i++)
            fill_slingshot(&s, t, nets.names[i]);
}
