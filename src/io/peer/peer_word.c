#include "io/peer/peer_word.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static size_t addr_bytes(const struct addr *a, void *out) {
    if (a->ss.ss_family == AF_INET) {
        memcpy(out, &((const struct sockaddr_in *)&a->ss)->sin_addr, 4);
        return 4;
    }
    memcpy(out, &((const struct sockaddr_in6 *)&a->ss)->sin6_addr, 16);
    return 16;
}

/* An address of one link means nothing without the interface. */
static uint32_t scope_of(const struct addr *a) {
    return a->ss.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a->ss)->sin6_scope_id : 0;
}

/* ---- questions ---- */

void peer_word_ask_socket(const struct addr *local, const struct addr *remote,
                          union netlink_request *ret) {
    struct addr from = addr_unmapped(local), to = addr_unmapped(remote);
    struct inet_diag_req_v2 q = {.sdiag_family = (uint8_t)from.ss.ss_family,
                                 .sdiag_protocol = IPPROTO_TCP,
                                 .idiag_states = UINT32_MAX};
    (void)addr_bytes(&from, q.id.idiag_src);
    (void)addr_bytes(&to, q.id.idiag_dst);
    q.id.idiag_sport = htons(addr_port(&from));
    q.id.idiag_dport = htons(addr_port(&to));
    q.id.idiag_if = scope_of(&from) != 0 ? scope_of(&from) : scope_of(&to);
    q.id.idiag_cookie[0] = q.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    netlink_request_init(ret, SOCK_DIAG_BY_FAMILY, 0, &q, sizeof q);
}

void peer_word_ask_route(const struct addr *addr, union netlink_request *ret) {
    struct addr to = addr_unmapped(addr);
    uint8_t bytes[16];
    size_t size = addr_bytes(&to, bytes);
    struct rtmsg m = {.rtm_family = (uint8_t)to.ss.ss_family, .rtm_dst_len = (uint8_t)(8 * size)};
    uint32_t scope = scope_of(&to);
    netlink_request_init(ret, RTM_GETROUTE, 0, &m, sizeof m);
    netlink_request_add(ret, RTA_DST, bytes, size);
    if (scope != 0)
        netlink_request_add(ret, RTA_OIF, &scope, sizeof scope);
}

/* ---- answers ---- */

static bool is_addr(const struct addr *expected, uint8_t family, const void *host, uint16_t port) {
    struct addr a = {.len = sizeof(struct sockaddr_in6)}, e = addr_unmapped(expected);
    if (family != AF_INET && family != AF_INET6)
        return false;
    a.ss.ss_family = family;
    if (family == AF_INET)
        memcpy(&((struct sockaddr_in *)&a.ss)->sin_addr, host, 4);
    else
        memcpy(&((struct sockaddr_in6 *)&a.ss)->sin6_addr, host, 16);
    addr_set_port(&a, ntohs(port));
    return addr_same_host(&a, &e) && addr_port(&a) == addr_port(&e);
}

int peer_word_read_socket(const struct netlink_answer *answer, const struct addr *local,
                          const struct addr *remote, struct peer_socket *ret) {
    struct inet_diag_msg m;
    if (answer->type != SOCK_DIAG_BY_FAMILY || answer->len < sizeof m)
        return -EPROTO;
    memcpy(&m, answer->bytes, sizeof m);
    if (!is_addr(local, m.idiag_family, m.id.idiag_src, m.id.idiag_sport) ||
        !is_addr(remote, m.idiag_family, m.id.idiag_dst, m.id.idiag_dport))
        return -ENOENT; /* one that listens there */
    *ret = (struct peer_socket){.state = m.idiag_state, .uid = m.idiag_uid, .inode = m.idiag_inode};
    return 0;
}

int peer_word_read_route(const struct netlink_answer *answer, bool *ret_local) {
    struct rtmsg m;
    if (answer->type != RTM_NEWROUTE || answer->len < sizeof m)
        return -EPROTO;
    memcpy(&m, answer->bytes, sizeof m);
    *ret_local = m.rtm_type == RTN_LOCAL;
    return 0;
}

/* ---- users ---- */

bool peer_word_map_is_whole(const char *uid_map) {
    uint64_t first, outside, n;
    return sscanf(uid_map, "%" SCNu64 " %" SCNu64 " %" SCNu64, &first, &outside, &n) == 3 &&
           first == 0 && n >= UINT32_MAX;
}
