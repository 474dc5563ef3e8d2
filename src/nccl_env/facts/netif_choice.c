#include "nccl_env/facts/netif_choice.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

struct ip {
    uint8_t bytes[16]; /* IPv4 is stored as mapped IPv6, ::ffff:a.b.c.d */
    bool v6;
};

static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

/* Reads a literal, with or without a zone. */
static bool ip_read(const char *text, struct ip *ret) {
    char plain[64];
    size_t n = strcspn(text, "%");
    if (n == 0 || n >= sizeof plain)
        return false;
    memcpy(plain, text, n);
    plain[n] = '\0';
    memcpy(ret->bytes, v4_mapped, sizeof v4_mapped);
    if (inet_pton(AF_INET, plain, ret->bytes + 12) != 1 &&
        inet_pton(AF_INET6, plain, ret->bytes) != 1)
        return false;
    ret->v6 = memcmp(ret->bytes, v4_mapped, sizeof v4_mapped) != 0;
    return true;
}

static bool ip_is_loopback(const struct ip *a) {
    static const uint8_t v6_loopback[16] = {[15] = 1};
    return a->v6 ? memcmp(a->bytes, v6_loopback, 16) == 0 : a->bytes[12] == 127;
}

static bool same_address(const char *a, const char *b) {
    struct ip x, y;
    return ip_read(a, &x) && ip_read(b, &y) && memcmp(x.bytes, y.bytes, sizeof x.bytes) == 0;
}

bool netif_is_plumbing(const char *name) {
    static const char *const prefixes[] = {"docker",  "br-",  "virbr", "veth",   "cali", "cni",
                                           "flannel", "tunl", "lxc",   "podman", "kube-"};
    return text_begins_with_any(name, prefixes, ARRAY_SIZE(prefixes));
}

static bool is_loopback(const struct topo_netif *n) {
    return n->kind == TOPO_NETIF_LOOPBACK || strcmp(n->name, "lo") == 0;
}

enum family { FAMILY_ANY = 0, FAMILY_V4, FAMILY_V6 };

static enum family family_of(const char *literal) {
    struct ip a;
    return ip_read(literal, &a) ? (a.v6 ? FAMILY_V6 : FAMILY_V4) : FAMILY_ANY;
}

/* The interface's address that other nodes can reach: `wanted` if it has that one, else the first.
 * NULL: none. */
static const struct topo_netaddr *global_address(const struct topo_netif *n, enum family family,
                                                 const char *wanted) {
    const struct topo_netaddr *found = NULL;
    if (is_loopback(n))
        return NULL;
    for (uint32_t i = 0; i < n->n_addrs; i++) {
        const struct topo_netaddr *a = &n->addrs[i];
        if (a->link_local || (family != FAMILY_ANY && a->ipv6 != (family == FAMILY_V6)))
            continue;
        if (same_address(a->addr, wanted))
            return a;
        found = found != NULL ? found : a;
    }
    return found;
}

static const struct topo_netif *owner_of(const struct topology *t, const char *literal) {
    for (uint32_t i = 0; i < t->n_netifs; i++)
        for (uint32_t k = 0; k < t->netifs[i].n_addrs; k++)
            if (same_address(t->netifs[i].addrs[k].addr, literal))
                return &t->netifs[i];
    return NULL;
}

static bool covers(const struct topo_netaddr *a, const struct ip *to) {
    struct ip own;
    if (!ip_read(a->addr, &own) || own.v6 != to->v6)
        return false;
    uint32_t bits = own.v6 ? a->prefix : a->prefix + 96;
    for (uint32_t i = 0; i < MIN2(bits, 128u); i++)
        if (((own.bytes[i / 8] ^ to->bytes[i / 8]) >> (7 - i % 8) & 1) != 0)
            return false;
    return a->prefix > 0;
}

const char *netif_by_subnet(const struct topology *t, const char *addr) {
    const char *found = "";
    uint32_t best = 0;
    struct ip to;
    if (!ip_read(addr, &to))
        return found;
    if (owner_of(t, addr) != NULL)
        return "lo";
    for (uint32_t i = 0; i < t->n_netifs; i++)
        for (uint32_t k = 0; k < t->netifs[i].n_addrs; k++) {
            const struct topo_netaddr *a = &t->netifs[i].addrs[k];
            if (a->prefix > best && covers(a, &to)) {
                best = a->prefix;
                found = t->netifs[i].name;
            }
        }
    return found;
}

const struct topo_netif *netif_real(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if (!netif_is_plumbing(t->netifs[i].name) && t->netifs[i].up &&
            global_address(&t->netifs[i], FAMILY_ANY, "") != NULL)
            return &t->netifs[i];
    return NULL;
}

const struct topo_netif *netif_fast(const struct topology *t) {
    const struct topo_netif *first = NULL;
    for (uint32_t i = 0; i < t->n_netifs; i++) {
        const struct topo_netif *n = &t->netifs[i];
        bool named = strncmp(n->name, "ib", 2) == 0 || strncmp(n->name, "hsn", 3) == 0;
        if (named && n->up && global_address(n, FAMILY_ANY, "") != NULL &&
            (first == NULL || strverscmp(n->name, first->name) < 0))
            first = n;
    }
    return first;
}

#define SET_REASON(c, is_warning, ...) \
    ((c)->warning = (is_warning), (void)snprintf((c)->why, sizeof(c)->why, __VA_ARGS__))

/* The interface that the route or the leader's address names. NULL: none, and the reason is set. */
static const struct topo_netif *candidate(const struct topology *t, const struct netif_input *in,
                                          struct netif_choice *c) {
    struct ip leader = {0};
    bool known = ip_read(in->leader_addr, &leader);
    if (known && ip_is_loopback(&leader)) {
        SET_REASON(c, false, "the leader is at %s, so all nodes are on this host", in->leader_addr);
        return NULL;
    }
    uint32_t i = topology_find_netif(t, in->route_netif);
    if (i != TOPO_NONE && !is_loopback(&t->netifs[i]))
        return &t->netifs[i];
    const struct topo_netif *owner = known ? owner_of(t, in->leader_addr) : NULL;
    if (owner != NULL)
        return owner;
    if (in->leader_addr[0] == '\0')
        SET_REASON(c, false, "it is not known which host leads (--rdzv-endpoint)");
    else if (in->route_netif[0] == '\0')
        SET_REASON(c, false, "the route to the leader at %s is not known", in->leader_addr);
    else
        SET_REASON(c, true, "the route to the leader goes by %s, which is not known here",
                   in->route_netif);
    return NULL;
}

void netif_choose(const struct topology *t, const struct netif_input *input,
                  struct netif_choice *ret) {
    *ret = (struct netif_choice){0};
    if (input->n_nodes <= 1) {
        SET_REASON(ret, false, "there is only one node");
        return;
    }
    const struct topo_netif *n = candidate(t, input, ret);
    if (n == NULL)
        return;
    enum family family = family_of(input->leader_addr);
    if (family == FAMILY_ANY)
        family = family_of(input->route_source);
    const struct topo_netaddr *a = global_address(n, family, input->route_source);
    if (a == NULL) {
        SET_REASON(
            ret, true,
            "%s, by which the leader is reached, has no IPv%s address that is valid beyond its "
            "link",
            n->name, family == FAMILY_V6 ? "6" : "4");
        return;
    }
    const struct topo_netif *other = netif_is_plumbing(n->name) ? netif_real(t) : NULL;
    if (other != NULL) {
        SET_REASON(
            ret, true,
            "the route to the leader goes by %s, which has the name of a virtual interface of "
            "containers, although %s has an address too; set NCCL_SOCKET_IFNAME and "
            "GLOO_SOCKET_IFNAME to the right one",
            n->name, other->name);
        return;
    }
    (void)snprintf(ret->netif, sizeof ret->netif, "%s", n->name);
    (void)snprintf(ret->addr, sizeof ret->addr, "%s", a->addr);
    if (strcmp(n->name, input->route_netif) != 0)
        SET_REASON(ret, false, "%s owns the leader's address %s", n->name, input->leader_addr);
    else if (family == FAMILY_ANY)
        SET_REASON(ret, false, "the route to the leader goes by %s", n->name);
    else
        SET_REASON(ret, false, "the route to the leader at %s goes by %s", input->leader_addr,
                   n->name);
}

void netif_note_fast(const struct topology *t, const struct netif_input *input,
                     struct netif_choice *c) {
    const struct topo_netif *fast = netif_fast(t);
    struct ip leader;
    if (input->n_nodes <= 1 || fast == NULL || strcmp(fast->name, c->netif) == 0 ||
        (ip_read(input->leader_addr, &leader) && ip_is_loopback(&leader)))
        return;
    size_t n = strlen(c->why);
    (void)snprintf(c->why + n, sizeof c->why - n,
                   "; %s, of a faster network, is used instead if every node has one and all "
                   "reach their neighbours by it",
                   fast->name);
}
