#include "topology/discover/net/route_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/net/netlink.h"
#include "topology/discover/net/netlink_io.h"

#define ANY_PORT 9 /* nothing is sent there: connecting a UDP socket only chooses a route */

struct target {
    int family;
    uint8_t addr[16];
    uint32_t zone; /* ifindex; 0 none */
};

/* ---- the literal ---- */

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

/* ---- by rtnetlink ---- */

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

/* ---- by a socket ---- */

static socklen_t fill_sockaddr(const struct target *t, struct sockaddr_storage *to) {
    *to = (struct sockaddr_storage){0};
    if (t->family == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(ANY_PORT)};
        memcpy(&in.sin_addr, t->addr, sizeof in.sin_addr);
        memcpy(to, &in, sizeof in);
        return sizeof in;
    }
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(ANY_PORT), .sin6_scope_id = t->zone};
    memcpy(&in6.sin6_addr, t->addr, sizeof in6.sin6_addr);
    memcpy(to, &in6, sizeof in6);
    return sizeof in6;
}

/* The source address that the kernel would use, and its zone if it has one. */
static _must_use_ int ask_socket(const struct target *t, char ret[46], uint32_t *ret_zone) {
    struct sockaddr_storage to, from = {0};
    socklen_t len = fill_sockaddr(t, &to), from_len = sizeof from;
    int fd = socket(t->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = 0;
    if (connect(fd, (struct sockaddr *)&to, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&from, &from_len) < 0)
        r = -errno;
    (void)close(fd); /* nothing was sent */
    if (r < 0)
        return r;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    memcpy(&in, &from, sizeof in);
    memcpy(&in6, &from, sizeof in6);
    *ret_zone = t->family == AF_INET6 ? in6.sin6_scope_id : 0;
    const void *bytes = t->family == AF_INET ? (void *)&in.sin_addr : (void *)&in6.sin6_addr;
    return inet_ntop(t->family, bytes, ret, 46) == NULL ? -errno : 0;
}

/* Finds the interface with this address; a node reaches its own addresses through lo. */
static _must_use_ int find_owner(const struct target *t, const char *source, uint32_t zone,
                                 char ret[TOPO_NAME_MAX]) {
    struct topology here = {0};
    char own[46];
    int r = -ENETUNREACH;
    netlink_fill_addresses(&here);
    bool local = inet_ntop(t->family, t->addr, own, sizeof own) != NULL && strcmp(own, source) == 0;
    for (uint32_t i = 0; i < here.n_netifs && r != 0; i++)
        for (uint32_t k = 0; k < here.netifs[i].n_addrs && r != 0; k++)
            if (strcmp(here.netifs[i].addrs[k].addr, source) == 0 &&
                (zone == 0 || zone == here.netifs[i].ifindex)) {
                (void)snprintf(ret, TOPO_NAME_MAX, "%s", local ? "lo" : here.netifs[i].name);
                r = 0;
            }
    topology_fini(&here);
    return r;
}

/* ---- both ---- */

/* Any other error can also mean that we are not allowed to ask; then the socket has the answer. */
static bool is_no_route(int r) { return r == -ENETUNREACH || r == -EHOSTUNREACH; }

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
    struct route_found route = {0};
    uint32_t zone = 0;
    int r = parse_target(addr, &t, err);
    if (r < 0)
        return r;
    int asked = ask_netlink(&t, &found);
    if (is_no_route(asked))
        return no_route(&t, addr, asked, err);
    if (asked == 0 && found.source[0] != '\0') {
        memcpy(route.source, found.source, sizeof route.source);
    } else {
        r = ask_socket(&t, route.source, &zone);
        if (r < 0)
            return no_route(&t, addr, r, err);
    }
    char name[IF_NAMESIZE] = "lo";
    if (asked == 0 && (found.local || if_indextoname(found.ifindex, name) != NULL))
        (void)snprintf(route.netif, sizeof route.netif, "%s", name);
    else if (find_owner(&t, route.source, zone, route.netif) < 0)
        return no_route(&t, addr, -ENETUNREACH, err);
    *ret = route;
    return 0;
}
