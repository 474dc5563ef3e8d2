#include "io/net/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "io/file.h"

#define ANSWER_MAX 65536 /* one datagram: the kernel makes at most 32 KiB of a dump */

void netlink_request_init(union netlink_request *q, uint16_t type, uint16_t flags,
                          const void *fixed, size_t size) {
    memset(q, 0, sizeof *q);
    q->head = (struct nlmsghdr){
        .nlmsg_len = (uint32_t)NLMSG_LENGTH(size),
        .nlmsg_type = type,
        .nlmsg_flags = NLM_F_REQUEST | flags,
        .nlmsg_seq = 1,
    };
    assert(NLMSG_SPACE(size) <= sizeof q->bytes);
    memcpy(q->bytes + NLMSG_HDRLEN, fixed, size);
}

void netlink_request_add(union netlink_request *q, uint16_t type, const void *data, size_t size) {
    size_t at = NLMSG_ALIGN(q->head.nlmsg_len);
    struct rtattr a = {.rta_len = (uint16_t)RTA_LENGTH(size), .rta_type = type};
    assert(at + RTA_SPACE(size) <= sizeof q->bytes);
    memcpy(q->bytes + at, &a, sizeof a);
    memcpy(q->bytes + at + RTA_LENGTH(0), data, size);
    q->head.nlmsg_len = (uint32_t)(at + RTA_LENGTH(size));
}

/* The error in the kernel's answer, or 1: it is only an acknowledgement. */
static _must_use_ int take_error(const char *body, size_t len) {
    struct nlmsgerr e;
    if (len < sizeof e)
        return -EPROTO;
    memcpy(&e, body, sizeof e);
    return e.error < 0 ? e.error : 1;
}

/* 1: the answer is complete; 0: more follows. */
static _must_use_ int take_datagram(const char *bytes, size_t len, bool *interrupted,
                                    netlink_answer_fn *fn, void *arg) {
    struct nlmsghdr h;
    for (size_t at = 0; at + sizeof h <= len; at += NLMSG_ALIGN(h.nlmsg_len)) {
        memcpy(&h, bytes + at, sizeof h);
        if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > len - at)
            return -EPROTO;
        *interrupted = *interrupted || (h.nlmsg_flags & NLM_F_DUMP_INTR);
        const char *body = bytes + at + NLMSG_HDRLEN;
        if (h.nlmsg_type == NLMSG_DONE)
            return 1;
        if (h.nlmsg_type == NLMSG_ERROR)
            return take_error(body, h.nlmsg_len - NLMSG_HDRLEN);
        fn(arg, &(struct netlink_answer){h.nlmsg_type, body, h.nlmsg_len - NLMSG_HDRLEN});
        if (!(h.nlmsg_flags & NLM_F_MULTI))
            return 1;
    }
    return 0;
}

static _must_use_ int receive(int fd, netlink_answer_fn *fn, void *arg) {
    _cleanup_(freep) char *bytes = xmalloc(ANSWER_MAX);
    bool interrupted = false;
    int r = 0;
    while (r == 0) {
        ssize_t n = recv(fd, bytes, ANSWER_MAX, MSG_TRUNC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            r = n < 0 ? -errno : -EPROTO;
        else if (n > ANSWER_MAX)
            r = -EMSGSIZE;
        else
            r = take_datagram(bytes, (size_t)n, &interrupted, fn, arg);
    }
    return r < 0 ? r : interrupted ? -EINTR : 0;
}

/* Its recv() waits for at most NETLINK_WAIT_S seconds. */
static _must_use_ int open_socket(int protocol) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (fd < 0)
        return -errno;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct timeval wait = {.tv_sec = NETLINK_WAIT_S};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
        connect(fd, (struct sockaddr *)&kernel, sizeof kernel) < 0) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    return fd;
}

int netlink_ask(int *fd, int protocol, const union netlink_request *q, netlink_answer_fn *fn,
                void *arg) {
    _cleanup_(file_close) int own = -1;
    fd = fd != NULL ? fd : &own;
    if (*fd < 0)
        *fd = open_socket(protocol);
    if (*fd < 0)
        return *fd;
    return send(*fd, q->bytes, q->head.nlmsg_len, 0) < 0 ? -errno : receive(*fd, fn, arg);
}

int netlink_ask_tcp(uint32_t states, netlink_answer_fn *fn, void *arg) {
    static const sa_family_t families[] = {AF_INET, AF_INET6};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(families) && r == 0; i++) {
        union netlink_request q;
        struct inet_diag_req_v2 body = {.sdiag_family = (uint8_t)families[i],
                                        .sdiag_protocol = IPPROTO_TCP,
                                        .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                                        .idiag_states = states};
        netlink_request_init(&q, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body, sizeof body);
        r = netlink_ask(NULL, NETLINK_SOCK_DIAG, &q, fn, arg);
    }
    return r;
}

void netlink_attributes(const char *bytes, size_t len, struct netlink_attribute *ret,
                        uint16_t max) {
    struct rtattr a;
    for (size_t i = 0; i <= max; i++)
        ret[i] = (struct netlink_attribute){0};
    for (size_t at = 0; at + sizeof a <= len; at += RTA_ALIGN(a.rta_len)) {
        memcpy(&a, bytes + at, sizeof a);
        if (a.rta_len < sizeof a || a.rta_len > len - at)
            return;
        uint16_t type = (uint16_t)(a.rta_type & NLA_TYPE_MASK);
        if (type <= max)
            ret[type] = (struct netlink_attribute){bytes + at + sizeof a, a.rta_len - sizeof a};
    }
}

bool netlink_answer_is(const struct netlink_answer *a, uint16_t type, void *fixed, size_t size,
                       struct netlink_attribute *ret, uint16_t max) {
    size_t head = NLMSG_ALIGN(size);
    if (a->type != type || a->len < head)
        return false;
    memcpy(fixed, a->bytes, size);
    netlink_attributes(a->bytes + head, a->len - head, ret, max);
    return true;
}

uint32_t netlink_u32(struct netlink_attribute a) {
    uint32_t v = 0;
    if (a.data != NULL && a.size == sizeof v)
        memcpy(&v, a.data, sizeof v);
    return v;
}

void netlink_read_route(void *arg, const struct netlink_answer *answer) {
    struct netlink_route *ret = arg;
    struct rtmsg m;
    struct netlink_attribute a[RTA_PREFSRC + 1], *source = &a[RTA_PREFSRC];
    if (!netlink_answer_is(answer, RTM_NEWROUTE, &m, sizeof m, a, RTA_PREFSRC))
        return;
    ret->ifindex = netlink_u32(a[RTA_OIF]);
    ret->local = m.rtm_type == RTN_LOCAL;
    if (source->data == NULL || source->size != (m.rtm_family == AF_INET ? 4 : 16) ||
        inet_ntop(m.rtm_family, source->data, ret->source, sizeof ret->source) == NULL)
        ret->source[0] = '\0';
}

int netlink_ask_route(int *fd, const struct addr *to, struct netlink_route *ret) {
    struct addr a = addr_unmapped(to); /* a mapped IPv4 address is routed by IPv4's routes */
    union netlink_request q;
    uint8_t host[sizeof(struct in6_addr)];
    size_t size = addr_raw(&a, host);
    uint32_t zone = addr_zone(&a);
    struct rtmsg m = {.rtm_family = (uint8_t)a.ss.ss_family, .rtm_dst_len = (uint8_t)(8 * size)};
    netlink_request_init(&q, RTM_GETROUTE, 0, &m, sizeof m);
    netlink_request_add(&q, RTA_DST, host, size);
    if (zone != 0)
        netlink_request_add(&q, RTA_OIF, &zone, sizeof zone);
    *ret = (struct netlink_route){0};
    return netlink_ask(fd, NETLINK_ROUTE, &q, netlink_read_route, ret);
}
