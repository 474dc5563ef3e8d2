#include "topology/discover/net/route_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text/parse.h"
#include "io/net/netlink.h"

struct target {
    int family;
    uint8_t addr[16];
    uint32_t zone; /* ifindex; 0 none */
};

static size_t addr_size(int family) { return family == AF_INET ? 4 : 16; }

/* An IPv4 address mapped into IPv6 is routed by IPv4's routes. */
static void unmap(struct target *t) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (t->family != AF_INET6 || memcmp(t->addr, mapped, sizeof mapped) != 0)
        return;
    memmove(t->addr, t->addr + 12, 4);
    t->family = AF_INET;
}

static _must_use_ int parse_target(const char *text, struct target *ret, struct err *err) {
    char literal[INET6_ADDRSTRLEN];
    struct target t = {0};
    const char *zone = strchr(text, '%');
    size_t len = zone == NULL ? strlen(text) : (size_t)(zone - text);
    if (len < sizeof literal) {
        (void)snprintf(literal, sizeof literal, "%.*s", (int)len, text);
        t.family = inet_pton(AF_INET, literal, t.addr) == 1    ? AF_INET
                   : inet_pton(AF_INET6, literal, t.addr) == 1 ? AF_INET6
                                                               : 0;
    }
    if (t.family == 0 || (zone != NULL && t.family == AF_INET))
        return err_set(err, -EINVAL, "%s is not an IPv4 or IPv6 address", text);
    if (zone != NULL) {
        t.zone = if_nametoindex(zone + 1);
        if (t.zone == 0 && (parse_u32(zone + 1, &t.zone) < 0 || t.zone == 0))
            return err_set(err, -ENODEV, "%s: this node has no interface %s", text, zone + 1);
    }
    unmap(&t);
    *ret = t;
    return 0;
}

struct answer {
    const struct target *target;
    uint32_t ifindex;
    bool local;
    char source[46];
};

static void on_route(void *arg, const struct netlink_answer *answer) {
    struct answer *found = arg;
    struct rtmsg m;
    struct netlink_attribute a[RTA_PREFSRC + 1];
    if (!netlink_answer_is(answer, RTM_NEWROUTE, &m, sizeof m, a, RTA_PREFSRC))
        return;
    found->ifindex = netlink_u32(a[RTA_OIF]);
    found->local = m.rtm_type == RTN_LOCAL;
    struct netlink_attribute source = a[RTA_PREFSRC];
    if (source.data != NULL && source.size == addr_size(found->target->family) &&
        inet_ntop(found->target->family, source.data, found->source, sizeof found->source) == NULL)
        found->source[0] = '\0';
}

static _must_use_ int ask_netlink(const struct target *t, struct answer *ret) {
    union netlink_request q;
    size_t size = addr_size(t->family);
    struct rtmsg m = {
        .rtm_family = (unsigned char)t->family,
        .rtm_dst_len = (unsigned char)(size * 8),
    };
    netlink_request_init(&q, RTM_GETROUTE, 0, &m, sizeof m);
    netlink_request_add(&q, RTA_DST, t->addr, size);
    if (t->zone != 0)
        netlink_request_add(&q, RTA_OIF, &t->zone, sizeof t->zone);
    *ret = (struct answer){.target = t};
    int r = netlink_ask(NETLINK_ROUTE, &q, on_route, ret);
    return r == 0 && ret->ifindex == 0 ? -ENETUNREACH : r;
}

static bool needs_zone(const struct target *t) {
    return t->family == AF_INET6 && t->zone == 0 && t->addr[0] == 0xfe &&
           (t->addr[1] & 0xc0) == 0x80;
}

/* The kernel returns EINVAL for a blackhole, and if a link-local address has no interface. */
static _must_use_ int no_route(const struct target *t, const char *addr, int r, struct err *err) {
    if (r == -EINVAL && needs_zone(t))
        return err_set(err, -EHOSTUNREACH,
                       "%s is of one link only: add the interface, as in %s%%eth0", addr, addr);
    r = r == -EINVAL ? -EHOSTUNREACH : r;
    return err_set(err, r, "this node has no route to %s: %s", addr, strerror(-r));
}

int route_find(const char *addr, struct route_found *ret, struct err *err) {
    struct target t;
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
