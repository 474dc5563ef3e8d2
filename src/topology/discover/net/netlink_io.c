#include "topology/discover/net/netlink_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "io/net/netlink.h"

#define TRIES 4 /* how often a dump that changed meanwhile is repeated */

static bool text_of(struct netlink_attribute a, char *out, size_t size) {
    size_t len = a.data == NULL ? 0 : strnlen(a.data, a.size);
    if (len == 0 || len >= size)
        return false;
    memcpy(out, a.data, len);
    out[len] = '\0';
    return true;
}

struct links {
    struct topology *t;
    bool seen[TOPO_NETIFS_MAX]; /* for t->netifs: whether the kernel lists it here */
    bool full;
};

/* The entry to fill. If files describe it with another number, it is another interface: /sys can
 * belong to another network namespace. */
static struct topo_netif *entry_of(struct links *l, const char *name, uint32_t ifindex) {
    struct topo_netif *n = topology_need_netif(l->t, name);
    if (n == NULL) {
        l->full = true;
        return NULL;
    }
    if (n->ifindex != 0 && n->ifindex != ifindex) {
        *n = (struct topo_netif){.kind = TOPO_NETIF_OTHER, .pci = TOPO_NONE, .numa = -1};
        (void)snprintf(n->name, sizeof n->name, "%s", name);
    }
    l->seen[n - l->t->netifs] = true;
    n->ifindex = ifindex;
    return n;
}

/* An interface that no driver made is hardware, or has the kind found in files. */
static enum topo_netif_kind kind_without_info(const struct topo_netif *n, uint16_t type) {
    if (type == ARPHRD_LOOPBACK)
        return TOPO_NETIF_LOOPBACK;
    return n->kind == TOPO_NETIF_OTHER && (type == ARPHRD_ETHER || type == ARPHRD_INFINIBAND)
               ? TOPO_NETIF_PHYSICAL
               : n->kind;
}

static void on_link(void *arg, const struct netlink_answer *answer) {
    struct links *l = arg;
    struct ifinfomsg m;
    struct netlink_attribute a[IFLA_LINKINFO + 1], info[IFLA_INFO_KIND + 1];
    char name[TOPO_NAME_MAX], kind[32];
    if (!netlink_answer_is(answer, RTM_NEWLINK, &m, sizeof m, a, IFLA_LINKINFO) ||
        !text_of(a[IFLA_IFNAME], name, sizeof name))
        return;
    struct topo_netif *n = entry_of(l, name, (uint32_t)m.ifi_index);
    if (n == NULL)
        return;
    netlink_attributes(a[IFLA_LINKINFO].data, a[IFLA_LINKINFO].size, info, IFLA_INFO_KIND);
    n->kind = text_of(info[IFLA_INFO_KIND], kind, sizeof kind) ? topo_netif_kind_of(kind)
                                                               : kind_without_info(n, m.ifi_type);
    n->up = (m.ifi_flags & IFF_UP) != 0;
    n->running = n->up && (m.ifi_flags & IFF_RUNNING) != 0;
    if (netlink_u32(a[IFLA_MTU]) != 0)
        n->mtu = netlink_u32(a[IFLA_MTU]);
}

/* An interface that files list and the kernel does not know here can't be used for sending. */
static void drop_unseen(struct links *l) {
    struct topology *t = l->t;
    uint32_t kept = 0, all = t->n_netifs;
    for (uint32_t i = 0; i < all; i++) {
        if (!l->seen[i])
            continue;
        if (kept != i)
            t->netifs[kept] = t->netifs[i];
        kept++;
    }
    t->n_netifs = kept;
    if (kept < all)
        topology_warn(t, "%u interfaces in /sys are of another network namespace: left out",
                      all - kept);
}

static _must_use_ int ask_links(struct topology *t) {
    union netlink_request q;
    struct ifinfomsg m = {.ifi_family = AF_UNSPEC};
    uint32_t mask = RTEXT_FILTER_SKIP_STATS;
    netlink_request_init(&q, RTM_GETLINK, NLM_F_DUMP, &m, sizeof m);
    netlink_request_add(&q, IFLA_EXT_MASK, &mask, sizeof mask);
    _cleanup_(freep) struct links *l = xcalloc(1, sizeof *l);
    l->t = t;
    int r = -EINTR;
    for (int i = 0; i < TRIES && r == -EINTR; i++)
        r = netlink_ask(NULL, NETLINK_ROUTE, &q, on_link, l);
    if (r == 0)
        drop_unseen(l);
    if (l->full)
        topology_warn(t, "more than %d network interfaces: the rest is left out", TOPO_NETIFS_MAX);
    return r;
}

static bool is_link_local(int family, const uint8_t *a) {
    return family == AF_INET6 ? a[0] == 0xfe && (a[1] & 0xc0) == 0x80 : a[0] == 169 && a[1] == 254;
}

struct addresses {
    struct topology *t;
    uint32_t left_out;
    char full[TOPO_NAME_MAX]; /* an interface that has no room for more */
};

static void add_address(struct addresses *to, struct topo_netif *n, int family, const void *bytes,
                        uint32_t prefix) {
    if (n->n_addrs == TOPO_ADDRS_MAX) {
        to->left_out++;
        memcpy(to->full, n->name, sizeof to->full);
        return;
    }
    struct topo_netaddr *a = &n->addrs[n->n_addrs];
    if (inet_ntop(family, bytes, a->addr, sizeof a->addr) == NULL)
        return;
    a->prefix = prefix;
    a->ipv6 = family == AF_INET6;
    a->link_local = is_link_local(family, bytes);
    n->n_addrs++;
}

static struct topo_netif *netif_by_index(struct topology *t, uint32_t ifindex) {
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if (t->netifs[i].ifindex == ifindex)
            return &t->netifs[i];
    return NULL;
}

/* IFA_LOCAL is its own where the two differ (a point-to-point link); IPv6 has often only the
 * other. */
static void on_address(void *arg, const struct netlink_answer *answer) {
    struct addresses *to = arg;
    struct ifaddrmsg m;
    struct netlink_attribute a[IFA_FLAGS + 1];
    if (!netlink_answer_is(answer, RTM_NEWADDR, &m, sizeof m, a, IFA_FLAGS) ||
        (m.ifa_family != AF_INET && m.ifa_family != AF_INET6))
        return;
    uint32_t flags = a[IFA_FLAGS].data != NULL ? netlink_u32(a[IFA_FLAGS]) : m.ifa_flags;
    struct netlink_attribute own = a[IFA_LOCAL].data != NULL ? a[IFA_LOCAL] : a[IFA_ADDRESS];
    size_t size = m.ifa_family == AF_INET ? 4 : 16;
    struct topo_netif *n = netif_by_index(to->t, m.ifa_index);
    if (n == NULL || own.data == NULL || own.size != size || (flags & IFA_F_DADFAILED))
        return; /* DADFAILED: another node has it */
    add_address(to, n, m.ifa_family, own.data, m.ifa_prefixlen);
}

static void clear_addresses(struct addresses *to) {
    for (uint32_t i = 0; i < to->t->n_netifs; i++)
        to->t->netifs[i].n_addrs = 0;
    to->left_out = 0;
}

static _must_use_ int ask_addresses(struct addresses *to) {
    union netlink_request q;
    struct ifaddrmsg m = {.ifa_family = AF_UNSPEC};
    netlink_request_init(&q, RTM_GETADDR, NLM_F_DUMP, &m, sizeof m);
    int r = -EINTR;
    for (int i = 0; i < TRIES && r == -EINTR; i++) {
        clear_addresses(to);
        r = netlink_ask(NULL, NETLINK_ROUTE, &q, on_address, to);
    }
    return r;
}

void netlink_fill_addresses(struct topology *t) {
    struct addresses to = {.t = t};
    int r = ask_links(t);
    if (r == 0)
        r = ask_addresses(&to);
    if (r < 0)
        topology_warn(t, "the kernel's list of interfaces (rtnetlink) cannot be read: %s",
                      strerror(-r));
    if (to.left_out > 0)
        topology_warn(t, "%u addresses are left out: %s has more than %d", to.left_out, to.full,
                      TOPO_ADDRS_MAX);
}

/* ---- routes ---- */

static _must_use_ int parse_target(const char *text, struct addr *ret, struct err *err) {
    const char *zone = strchr(text, '%');
    int r = addr_from_literal(text, 0, ret);
    if (r < 0 && zone != NULL && strchr(text, ':') != NULL && if_nametoindex(zone + 1) == 0)
        return err_set(err, -ENODEV, "%s: this node has no interface %s", text, zone + 1);
    return r < 0 ? err_set(err, r, "%s is not an IPv4 or IPv6 address", text) : 0;
}

/* The kernel returns EINVAL for a blackhole, and if a link-local address has no interface. */
static _must_use_ int no_route(const struct addr *t, const char *addr, int r, struct err *err) {
    if (r == -EINVAL && t->ss.ss_family == AF_INET6 && addr_zone(t) == 0 &&
        IN6_IS_ADDR_LINKLOCAL(&t->ss.in6.sin6_addr))
        return err_set(err, -EHOSTUNREACH,
                       "%s is of one link only: add the interface, as in %s%%eth0", addr, addr);
    r = r == -EINVAL ? -EHOSTUNREACH : r;
    return err_set(err, r, "this node has no route to %s: %s", addr, strerror(-r));
}

int route_find(const char *addr, struct route_found *ret, struct err *err) {
    struct addr t;
    struct netlink_route found;
    char name[IF_NAMESIZE] = "lo";
    int r = parse_target(addr, &t, err);
    if (r < 0)
        return r;
    r = netlink_ask_route(NULL, &t, &found);
    if (r == 0 &&
        (found.ifindex == 0 || (!found.local && if_indextoname(found.ifindex, name) == NULL)))
        r = -ENETUNREACH;
    if (r < 0)
        return no_route(&t, addr, r, err);
    (void)snprintf(ret->netif, sizeof ret->netif, "%s", name);
    memcpy(ret->source, found.source, sizeof ret->source);
    return 0;
}
