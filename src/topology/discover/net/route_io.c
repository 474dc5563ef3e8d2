#include "topology/discover/net/route_io.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "io/net/netlink.h"

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
