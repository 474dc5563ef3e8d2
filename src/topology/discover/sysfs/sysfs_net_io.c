#include "topology/discover/sysfs/sysfs_io.h"

#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>

#include "topology/discover/sysfs/sysfs_priv.h"

#define CLASS "/sys/class/net"

/* Types of linux/if_arp.h that libc's header may lack. */
enum { TYPE_IPGRE = 778, TYPE_IP6GRE = 823, TYPE_NONE = 0xfffe };

/* ---- kind ---- */

/* By DEVTYPE of the uevent file, the driver's own name. 0: it does not decide the kind. */
static enum topo_netif_kind kind_by_devtype(const struct sysfs *s, const char *entry) {
    static const struct {
        const char *type;
        enum topo_netif_kind kind;
    } types[] = {
        {"bond", TOPO_NETIF_BOND},       {"bridge", TOPO_NETIF_BRIDGE},
        {"geneve", TOPO_NETIF_TUNNEL},   {"gre", TOPO_NETIF_TUNNEL},
        {"macvlan", TOPO_NETIF_MACVLAN}, {"macvtap", TOPO_NETIF_MACVLAN},
        {"ppp", TOPO_NETIF_TUNNEL},      {"vlan", TOPO_NETIF_VLAN},
        {"vxlan", TOPO_NETIF_TUNNEL},    {"wireguard", TOPO_NETIF_TUNNEL},
    };
    char text[SYSFS_TEXT_MAX];
    if (sysfs_read(s, text, sizeof text, "%s/uevent", entry) < 0)
        return 0;
    const char *at = strstr(text, "DEVTYPE=");
    if (at == NULL || (at != text && at[-1] != '\n'))
        return 0;
    at += strlen("DEVTYPE=");
    size_t len = strcspn(at, "\n");
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strlen(types[i].type) == len && strncmp(types[i].type, at, len) == 0)
            return types[i].kind;
    return 0;
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
 * network namespace looks like a veth here; netlink can tell them apart. */
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
    char path[SYSFS_PATH_MAX];
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
    sysfs_path(path, "/proc/net/vlan/%s", n->name);
    if (sysfs_exists(s, path))
        return TOPO_NETIF_VLAN;
    kind = kind_by_devtype(s, entry);
    if (kind != 0)
        return kind;
    return has(files, "device") ? TOPO_NETIF_PHYSICAL
                                : kind_by_link(s, entry, files, n->ifindex, type);
}

/* ---- state ---- */

/* The file `flags` lacks IFF_RUNNING, so operstate is read. Drivers without carrier detection have
 * "unknown" there (RFC 2863: it counts as up). */
static void fill_state(const struct sysfs *s, const char *entry, struct topo_netif *n) {
    char state[32] = "";
    uint64_t flags;
    bool oper = sysfs_read(s, state, sizeof state, "%s/operstate", entry) == 0;
    bool flagged = sysfs_read_u64(s, &flags, "%s/flags", entry) == 0;
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
    if (sysfs_read_i64(s, &speed, "%s/speed", entry) == 0)
        n->speed_mbps = speed > 0 && speed < INT32_MAX ? speed : 0;
}

/* ---- the card ---- */

static void fill_device(const struct sysfs *s, struct topology *t, const char *entry, uint32_t pci,
                        struct topo_netif *n) {
    int64_t numa;
    if (pci != TOPO_NONE) {
        n->pci = pci;
        n->numa = t->pci[pci].numa;
    } else if (sysfs_read_i64(s, &numa, "%s/device/numa_node", entry) == 0 && numa >= 0 &&
               numa < INT32_MAX) {
        n->numa = (int32_t)numa;
    }
    sysfs_link_name(s, n->driver, "%s/device/driver", entry);
}

/* The NIC that names this interface (also a bond) as its own; else one of the same function. */
static void fill_nic(const struct topology *t, struct topo_netif *n) {
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

/* ---- all ---- */

static struct topo_netif *find_or_add(struct topology *t, const char *name) {
    uint32_t i = topology_find_netif(t, name);
    if (i != TOPO_NONE)
        return &t->netifs[i];
    struct topo_netif *n = topology_add_netif(t);
    if (n == NULL) {
        topology_warn(t, "more than %d network interfaces: the rest is left out", TOPO_NETIFS_MAX);
        return NULL;
    }
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    return n;
}

/* false: no room. */
static bool fill_netif(const struct sysfs *s, struct topology *t, const char *name) {
    char entry[SYSFS_PATH_MAX];
    _cleanup_(sysfs_names_fini) struct sysfs_names files = {0};
    sysfs_path(entry, CLASS "/%s", name);
    if (sysfs_list(s, entry, &files) < 0)
        return true; /* bonding_masters is a file among them */
    uint32_t pci = sysfs_pci_of_class(s, t, entry);
    struct topo_netif *n = find_or_add(t, name);
    if (n == NULL)
        return false;
    fill_numbers(s, entry, n);
    fill_state(s, entry, n);
    n->kind = find_kind(s, entry, &files, n);
    fill_device(s, t, entry, pci, n);
    fill_nic(t, n);
    return true;
}

void sysfs_fill_netifs(const char *root, struct topology *t) {
    struct sysfs s;
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    sysfs_init(&s, root);
    int r = sysfs_list(&s, CLASS, &names);
    if (r < 0 && r != -ENOENT)
        topology_warn(t, "network interfaces cannot be read: %s" CLASS ": %s", s.root,
                      strerror(-r));
    sysfs_names_warn(&names, CLASS, t);
    for (uint32_t i = 0; i < names.n; i++)
        if (!fill_netif(&s, t, names.names[i]))
            return;
}
