#include "topology/discover/net/route_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "io/net/addr.h"
#include "io/net/netlink.h"

static _must_use_ int parse_target(const char *text, struct addr *ret, struct err *err) {
    const char *zone = strchr(text, '%');
    int r = addr_from_literal(text, 0, ret);
    if (r < 0 && zone != NULL && strchr(text, ':') != NULL && if_nametoindex(zone + 1) == 0)
        return err_set(err, -ENODEV, "%s: this node has no interface %s", text, zone + 1);
    if (r < 0)
        return err_set(err, r, "%s is not an IPv4 or IPv6 address", text);
    *ret = addr_unmapped(ret); /* a mapped IPv4 address is routed by IPv4's routes */
    return 0;
}

struct answer {
    sa_family_t family;
    uint32_t ifindex;
    bool local;
    char source[46];
};

static size_t addr_size(sa_family_t family) { return family == AF_INET ? 4 : 16; }

static void on_route(void *arg, const struct netlink_answer *answer) {
    struct answer *found = arg;
    struct rtmsg m;
    struct netlink_attribute a[RTA_PREFSRC + 1];
    if (!netlink_answer_is(answer, RTM_NEWROUTE, &m, sizeof m, a, RTA_PREFSRC))
        return;
    found->ifindex = netlink_u32(a[RTA_OIF]);
    found->local = m.rtm_type == RTN_LOCAL;
    struct netlink_attribute source = a[RTA_PREFSRC];
    if (source.data != NULL && source.size == addr_size(found->family) &&
        inet_ntop(found->family, source.data, found->source, sizeof found->source) == NULL)
        found->source[0] = '\0';
}

static uint32_t zone_of(const struct addr *a) {
    return a->ss.ss_family == AF_INET6 ? a->ss.in6.sin6_scope_id : 0;
}

static _must_use_ int ask_netlink(const struct addr *t, struct answer *ret) {
    union netlink_request q;
    const bool is_v4 = t->ss.ss_family == AF_INET;
    size_t size = addr_size(t->ss.ss_family);
    uint32_t zone = zone_of(t);
    struct rtmsg m = {
        .rtm_family = (unsigned char)t->ss.ss_family,
        .rtm_dst_len = (unsigned char)(size * 8),
    };
    netlink_request_init(&q, RTM_GETROUTE, 0, &m, sizeof m);
    netlink_request_add(
        &q, RTA_DST, is_v4 ? (const void *)&t->ss.in.sin_addr : (const void *)&t->ss.in6.sin6_addr,
        size);
    if (zone != 0)
        netlink_request_add(&q, RTA_OIF, &zone, sizeof zone);
    *ret = (struct answer){.family = t->ss.ss_family};
    int r = netlink_ask(NETLINK_ROUTE, &q, on_route, ret);
    return r == 0 && ret->ifindex == 0 ? -ENETUNREACH : r;
}

/* The kernel returns EINVAL for a blackhole, and if a link-local address has no interface. */
static _must_use_ int no_route(const struct addr *t, const char *addr, int r, struct err *err) {
    if (r == -EINVAL && t->ss.ss_family == AF_INET6 && zone_of(t) == 0 &&
        IN6_IS_ADDR_LINKLOCAL(&t->ss.in6.sin6_addr))
        return err_set(err, -EHOSTUNREACH,
                       "%s is of one link only: add the interface, as in %s%%eth0", addr, addr);
    r = r == -EINVAL ? -EHOSTUNREACH : r;
    return err_set(err, r, "this node has no route to %s: %s", addr, strerror(-r));
}

int route_find(const char *addr, struct route_found *ret, struct err *err) {
    struct addr t;
    struct answer found;
    char name[IF_NAMESIZE] = "lo";
    int r = parse_target(addr, &t, err);
    if (r < 0)
        return r;
    r = ask_netlink(&t, &found);
    if (r == 0 && !found.local && if_indextoname(found.ifindex, name) == NULL)
        r = -ENETUNREACH;
    if (r < 0)
        return no_route(&t, addr, r, err);
    (void)snprintf(ret->netif, sizeof ret->netif, "%s", name);
    memcpy(ret->source, found.source, sizeof ret->source);
    return 0;
}
