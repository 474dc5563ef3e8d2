#include "io/net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/text/parse.h"
#include "io/file.h"

struct addr addr_from_bytes(sa_family_t family, const void *host, uint16_t port) {
    struct addr a = {.len = sizeof(struct sockaddr_in6)};
    if (family == AF_INET) {
        a.len = sizeof(struct sockaddr_in);
        memcpy(&a.ss.in.sin_addr, host, sizeof a.ss.in.sin_addr);
    } else {
        memcpy(&a.ss.in6.sin6_addr, host, sizeof a.ss.in6.sin6_addr);
    }
    a.ss.ss_family = family;
    addr_set_port(&a, port);
    return a;
}

size_t addr_raw(const struct addr *a, void *out) {
    bool v4 = a->ss.ss_family == AF_INET;
    size_t size = v4 ? sizeof a->ss.in.sin_addr : sizeof a->ss.in6.sin6_addr;
    memcpy(out, v4 ? (const void *)&a->ss.in.sin_addr : &a->ss.in6.sin6_addr, size);
    return size;
}

uint32_t addr_zone(const struct addr *a) {
    return a->ss.ss_family == AF_INET6 ? a->ss.in6.sin6_scope_id : 0;
}

struct addr addr_unmapped(const struct addr *a) {
    if (a->ss.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->ss.in6.sin6_addr))
        return *a;
    return addr_from_bytes(AF_INET, &a->ss.in6.sin6_addr.s6_addr[12], addr_port(a));
}

int addr_from_literal(const char *host, uint16_t port, struct addr *ret) {
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 2];
    size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof text)
        return -EINVAL;
    memcpy(text, host, len);
    text[len] = '\0';

    struct in6_addr bytes;
    if (inet_pton(AF_INET, text, &bytes) == 1) {
        *ret = addr_from_bytes(AF_INET, &bytes, port);
        return 0;
    }
    char *zone = strchr(text, '%');
    if (zone != NULL)
        *zone++ = '\0';
    if (inet_pton(AF_INET6, text, &bytes) != 1)
        return -EINVAL;
    struct addr a = addr_from_bytes(AF_INET6, &bytes, port);
    if (zone != NULL && (a.ss.in6.sin6_scope_id = if_nametoindex(zone)) == 0)
        return -EINVAL;
    *ret = a;
    return 0;
}

size_t addr_from_list(const char *list, uint16_t port, struct addr *ret, size_t max) {
    size_t n = 0, len;
    const char *item;
    for (size_t i = 0; n < max && (item = list_item(list, i, &len)) != NULL; i++) {
        char text[ADDR_TEXT_MAX];
        (void)snprintf(text, sizeof text, "%.*s", (int)MIN2(len, sizeof text), item);
        n += addr_from_literal(text, port, &ret[n]) == 0;
    }
    return n;
}

void addr_host_text(const struct addr *in, char out[ADDR_HOST_MAX]) {
    struct addr a = addr_unmapped(in);
    if (a.ss.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a.ss.in.sin_addr, out, ADDR_HOST_MAX);
        return;
    }
    (void)inet_ntop(AF_INET6, &a.ss.in6.sin6_addr, out, ADDR_HOST_MAX);
    char name[IF_NAMESIZE];
    if (a.ss.in6.sin6_scope_id != 0 && if_indextoname(a.ss.in6.sin6_scope_id, name) != NULL) {
        size_t n = strlen(out);
        (void)snprintf(out + n, ADDR_HOST_MAX - n, "%%%s", name);
    }
}

void addr_to_list(const struct addr *addrs, size_t n, char *out, size_t size) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        char text[ADDR_TEXT_MAX];
        addr_host_text(&addrs[i], text);
        if (len + 1 + strlen(text) < size)
            len += (size_t)snprintf(out + len, size - len, "%s%s", len > 0 ? "," : "", text);
    }
}

void addr_to_text(const struct addr *a, char out[ADDR_TEXT_MAX]) {
    char host[ADDR_TEXT_MAX];
    addr_host_text(a, host);
    bool brackets = strchr(host, ':') != NULL;
    (void)snprintf(out, ADDR_TEXT_MAX, brackets ? "[%.80s]:%u" : "%.80s:%u", host, addr_port(a));
}

uint16_t addr_port(const struct addr *a) {
    return ntohs(a->ss.ss_family == AF_INET ? a->ss.in.sin_port : a->ss.in6.sin6_port);
}

void addr_set_port(struct addr *a, uint16_t port) {
    if (a->ss.ss_family == AF_INET)
        a->ss.in.sin_port = htons(port);
    else
        a->ss.in6.sin6_port = htons(port);
}

bool addr_is_loopback(const struct addr *in) {
    struct addr a = addr_unmapped(in);
    if (a.ss.ss_family == AF_INET)
        return ntohl(a.ss.in.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a.ss.in6.sin6_addr);
}

bool addr_is_wildcard(const struct addr *in) {
    struct addr a = addr_unmapped(in);
    if (a.ss.ss_family == AF_INET)
        return a.ss.in.sin_addr.s_addr == 0;
    return IN6_IS_ADDR_UNSPECIFIED(&a.ss.in6.sin6_addr);
}

bool addr_same_host(const struct addr *in_a, const struct addr *in_b) {
    struct addr a = addr_unmapped(in_a), b = addr_unmapped(in_b);
    if (a.ss.ss_family != b.ss.ss_family)
        return false;
    if (a.ss.ss_family == AF_INET)
        return a.ss.in.sin_addr.s_addr == b.ss.in.sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&a.ss.in6.sin6_addr, &b.ss.in6.sin6_addr);
}

void addr_host_bytes(const struct addr *in, uint8_t out[ADDR_HOST_BYTES]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct addr a = addr_unmapped(in);
    if (a.ss.ss_family == AF_INET6) {
        memcpy(out, &a.ss.in6.sin6_addr, ADDR_HOST_BYTES);
        return;
    }
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + sizeof mapped, &a.ss.in.sin_addr, 4);
}

static bool from_ifaddr(const struct ifaddrs *i, struct addr *ret) {
    if (i->ifa_addr == NULL)
        return false;
    struct addr a = {0};
    if (i->ifa_addr->sa_family == AF_INET)
        a.len = sizeof(struct sockaddr_in);
    else if (i->ifa_addr->sa_family == AF_INET6)
        a.len = sizeof(struct sockaddr_in6);
    else
        return false;
    memcpy(&a.ss, i->ifa_addr, a.len);
    *ret = a;
    return true;
}

/* Whether the kernel has a route to it, and from which address. Nothing is sent. */
static bool addr_has_route(const struct addr *to, struct addr *ret_from) {
    struct addr any_port = *to;
    addr_set_port(&any_port, 9);
    _cleanup_(file_close) int fd = socket(to->ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (const struct sockaddr *)&any_port.ss, to->len) == 0 &&
           addr_of_socket(fd, ret_from) == 0;
}

/* When a machine sends to one of its own addresses, the source is that same address. So if the
 * kernel would choose another source, the address is not its own. For IPv6 this proves nothing: an
 * address of this machine appears in the routes a moment after the interface has it. */
static bool is_surely_elsewhere(const struct addr *a) {
    struct addr source;
    return a->ss.ss_family == AF_INET && addr_has_route(a, &source) && !addr_same_host(&source, a);
}

/* Listing a thousand interfaces takes 10 ms, and waits for changes. So routes are asked first. */
bool addr_is_local(const struct addr *a) {
    if (addr_is_loopback(a))
        return true;
    if (is_surely_elsewhere(a))
        return false;
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0)
        return false;
    bool found = false;
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) {
        struct addr own;
        found = from_ifaddr(i, &own) && addr_same_host(&own, a);
    }
    freeifaddrs(all);
    return found;
}

bool addr_loopback_is_down(void) {
    struct ifreq lo = {.ifr_name = "lo"}; /* netdevice(7) */
    _cleanup_(file_close) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP) == 0;
}

/* 0: best; 3: must not be used. */
static unsigned global_rank(const struct ifaddrs *i, struct addr *ret) {
    if (!from_ifaddr(i, ret) || !(i->ifa_flags & IFF_UP) || addr_is_loopback(ret))
        return 3;
    if (ret->ss.ss_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&ret->ss.in6.sin6_addr) ? 3 : 1;
    return ntohl(ret->ss.in.sin_addr.s_addr) >> 16 == 0xa9fe ? 2 : 0; /* 169.254/16, RFC 3927 */
}

int addr_all_global(struct addr *out, size_t max, size_t *ret_n) {
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0)
        return -errno;
    size_t n = 0;
    for (unsigned rank = 0; rank < 3; rank++) {
        for (const struct ifaddrs *i = all; i != NULL && n < max; i = i->ifa_next) {
            struct addr a;
            if (global_rank(i, &a) == rank)
                out[n++] = a;
        }
    }
    freeifaddrs(all);
    *ret_n = n;
    return 0;
}

static int address_by(int (*get)(int, struct sockaddr *, socklen_t *), int fd, struct addr *ret) {
    struct addr a = {.len = sizeof a.ss};
    if (get(fd, (struct sockaddr *)&a.ss, &a.len) < 0)
        return -errno;
    *ret = addr_unmapped(&a);
    return 0;
}

int addr_of_socket(int fd, struct addr *ret) { return address_by(getsockname, fd, ret); }
int addr_of_peer(int fd, struct addr *ret) { return address_by(getpeername, fd, ret); }
