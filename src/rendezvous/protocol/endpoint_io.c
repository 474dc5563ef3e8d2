#include "rendezvous/protocol/endpoint_io.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "io/net/listen.h"

/* Agents of a large job connect within the same second. */
#define ENDPOINT_BACKLOG 4096

bool endpoint_is_here(int is_host, const char *host, const struct addr *addrs, size_t n) {
    if (is_host >= 0)
        return is_host > 0;
    if (resolve_is_own_name(host))
        return true;
    for (size_t i = 0; i < n; i++) {
        if (addr_is_wildcard(&addrs[i]) || addr_is_local(&addrs[i]))
            return true;
    }
    return false;
}

/* Parses a literal of our own, so it can't fail. */
static struct addr known(const char *literal, uint16_t port) {
    struct addr a = {0};
    int r = addr_from_literal(literal, port, &a);
    assert(r == 0);
    return a;
}

void endpoint_bind_addr(const char *host, uint16_t port, struct addr *ret) {
    struct addr a;
    if (addr_from_literal(host, port, &a) == 0 && addr_is_local(&a))
        *ret = a;
    else if (strcasecmp(host, "localhost") == 0)
        *ret = known("127.0.0.1", port);
    else
        *ret = known("::", port);
}

int endpoint_listen(const char *host, uint16_t port, int *ret_fd, struct err *err) {
    struct addr at;
    endpoint_bind_addr(host, port, &at);
    return listen_socket(&at, ENDPOINT_BACKLOG, ret_fd, err);
}

int endpoint_own_addr(int listen_fd, struct addr *ret) {
    struct addr a = {.len = sizeof a.ss};
    if (getsockname(listen_fd, (struct sockaddr *)&a.ss, &a.len) < 0)
        return -errno;
    if (addr_is_wildcard(&a)) {
        /* A dual-stack wildcard also accepts IPv4. Loopback IPv4 exists even if lo has no IPv6. */
        uint16_t port = addr_port(&a);
        int v6only = 0;
        socklen_t len = sizeof v6only;
        if (a.ss.ss_family == AF_INET6)
            (void)getsockopt(listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &len);
        a = known(v6only ? "::1" : "127.0.0.1", port);
    }
    *ret = a;
    return 0;
}
