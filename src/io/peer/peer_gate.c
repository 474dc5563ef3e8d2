#include "io/peer/peer_gate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/hash.h"
#include "io/file.h"

/* ---- questions ---- */

void peer_word_ask_socket(const struct addr *local, const struct addr *remote,
                          union netlink_request *ret) {
    struct addr from = addr_unmapped(local), to = addr_unmapped(remote);
    struct inet_diag_req_v2 q = {.sdiag_family = (uint8_t)from.ss.ss_family,
                                 .sdiag_protocol = IPPROTO_TCP,
                                 .idiag_states = UINT32_MAX};
    (void)addr_raw(&from, q.id.idiag_src);
    (void)addr_raw(&to, q.id.idiag_dst);
    q.id.idiag_sport = htons(addr_port(&from));
    q.id.idiag_dport = htons(addr_port(&to));
    q.id.idiag_if = addr_zone(&from) != 0 ? addr_zone(&from) : addr_zone(&to);
    q.id.idiag_cookie[0] = q.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    netlink_request_init(ret, SOCK_DIAG_BY_FAMILY, 0, &q, sizeof q);
}

/* ---- answers ---- */

static bool is_addr(const struct addr *expected, uint8_t family, const void *host, uint16_t port) {
    if (family != AF_INET && family != AF_INET6)
        return false;
    struct addr a = addr_from_bytes(family, host, ntohs(port));
    return addr_same_host(&a, expected) && addr_port(&a) == addr_port(expected);
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

/* ---- users ---- */

bool peer_word_map_is_whole(const char *uid_map) {
    uint64_t first, outside, n;
    return sscanf(uid_map, "%" SCNu64 " %" SCNu64 " %" SCNu64, &first, &outside, &n) == 3 &&
           first == 0 && n >= UINT32_MAX;
}

#define OVERFLOW_UID 65534 /* /proc/sys/kernel/overflowuid, if it can't be read */

struct peer_gate {
    peer_gate_fn *fn;
    void *arg;
    uid_t own;
    int diag, route; /* netlink sockets; -1: to be opened */
    uint64_t refused;
    const char *remedy;      /* borrowed */
    struct hash_seen logged; /* users */
    bool reported_closed;
};

/* ---- questions ---- */

struct about_socket {
    const struct addr *local, *remote;
    struct peer_socket *ret;
    int r;
};

static void on_socket(void *arg, const struct netlink_answer *answer) {
    struct about_socket *s = arg;
    s->r = peer_word_read_socket(answer, s->local, s->remote, s->ret);
}

/* 0; -ENOENT: there is no such socket, or the kernel has no such service; or another -errno. */
static _must_use_ int ask_socket(struct peer_gate *g, const struct addr *local,
                                 const struct addr *remote, struct peer_socket *ret) {
    struct about_socket s = {local, remote, ret, -EPROTO};
    union netlink_request question;
    peer_word_ask_socket(local, remote, &question);
    int r = -EPROTO;
    for (int tries = 0; tries < 2; tries++) { /* short of memory, perhaps: with a fresh socket */
        r = netlink_ask(&g->diag, NETLINK_SOCK_DIAG, &question, on_socket, &s);
        r = r < 0 ? r : s.r;
        if (r == 0 || r == -ENOENT)
            return r;
        file_close(&g->diag);
    }
    return r;
}

/* Whether the address is one of this machine's, by routes: also one that no interface lists. */
static bool is_of_this_machine(struct peer_gate *g, const struct addr *peer) {
    struct netlink_route route;
    int r = netlink_ask_route(&g->route, peer, &route);
    if (r == -ENETUNREACH || r == -EHOSTUNREACH || r == -EACCES)
        return false; /* there is no route, or an "unreachable" one */
    if (r == 0 && route.ifindex != 0)
        return route.local;
    file_close(&g->route);
    return addr_is_local(peer);
}

/* ---- the rule ---- */

static struct peer_owner owner_of_socket(const struct peer_gate *g,
                                         const struct peer_socket *socket) {
    struct peer_owner owner = {.kind = PEER_OTHER_USER, .uid = socket->uid};
    if (socket->state != TCP_ESTABLISHED || socket->inode == 0)
        owner.kind = PEER_CLOSED; /* it had an owner, which isn't known any more */
    else if (socket->uid == g->own || socket->uid == 0)
        owner.kind = PEER_OURS;
    return owner;
}

static struct peer_owner find_owner(struct peer_gate *g, const struct addr *own,
                                    const struct addr *peer) {
    struct peer_socket socket = {0};
    int r = ask_socket(g, peer, own, &socket);
    if (r == 0)
        return owner_of_socket(g, &socket);
    /* Of this machine, and its socket is gone: it was reset. (Or the kernel failed to answer.) */
    bool near = addr_is_loopback(peer) || addr_same_host(peer, own) || is_of_this_machine(g, peer);
    return (struct peer_owner){.kind = near ? PEER_CLOSED : PEER_ELSEWHERE};
}

struct peer_owner peer_gate_owner(struct peer_gate *g, int fd, const struct addr *peer) {
    struct addr own;
    if (g == NULL)
        return (struct peer_owner){.kind = PEER_ELSEWHERE};
    if (addr_of_socket(fd, &own) < 0)
        return (struct peer_owner){.kind = PEER_CLOSED};
    return find_owner(g, &own, peer);
}

struct peer_owner peer_gate_owner_of(struct peer_gate *g, const struct addr *local,
                                     const struct addr *remote) {
    struct peer_socket socket = {0};
    if (g == NULL || addr_unmapped(local).ss.ss_family != addr_unmapped(remote).ss.ss_family)
        return (struct peer_owner){.kind = PEER_UNKNOWN};
    int r = ask_socket(g, local, remote, &socket);
    if (r == 0)
        return owner_of_socket(g, &socket);
    return (struct peer_owner){.kind = r == -ENOENT ? PEER_ELSEWHERE : PEER_UNKNOWN};
}

/* ---- what is reported ---- */

static void report_user(struct peer_gate *g, uid_t uid, const char *where) {
    char line[384], own[32] = "";
    if (!hash_is_new(&g->logged, uid, PEER_GATE_USERS_MAX + 1))
        return;
    if (g->logged.n > PEER_GATE_USERS_MAX) {
        (void)snprintf(line, sizeof line,
                       "refused connections to %s of more than %d other users of this machine: "
                       "further ones are only counted",
                       where, PEER_GATE_USERS_MAX);
    } else {
        if (g->own != 0)
            (void)snprintf(own, sizeof own, "uid %u and ", (unsigned)g->own);
        (void)snprintf(line, sizeof line,
                       "refused a connection to %s: it belongs to uid %u of this machine, and only "
                       "%sroot may talk to it (%s); further ones of that user are only counted",
                       where, (unsigned)uid, own, g->remedy);
    }
    g->fn(g->arg, line);
}

/* Whether the first bytes are those of muster's own protocol. */
static bool is_call(const char *bytes, size_t n) {
    const size_t len = strlen(PEER_GATE_CALL);
    return n >= FRAME_HEADER_BYTES + len &&
           memcmp(bytes + FRAME_HEADER_BYTES, PEER_GATE_CALL, len) == 0;
}

/* A connection without bytes only checked that a program listens. One that begins as muster's
 * protocol does was ended before it was accepted: by a probe after its timeout, for example. */
static void report_closed(struct peer_gate *g, int fd, const char *where) {
    char line[256];
    ssize_t n = g->reported_closed ? 0 : recv(fd, line, sizeof line, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0 || is_call(line, (size_t)n))
        return;
    g->reported_closed = true;
    (void)snprintf(line, sizeof line,
                   "refused a connection to %s: a process of this machine wrote and closed it at "
                   "once, so it isn't known whose it was; further ones are only counted",
                   where);
    g->fn(g->arg, line);
}

struct peer_owner peer_gate_judge(struct peer_gate *g, int fd, const struct addr *peer) {
    struct addr own;
    char where[ADDR_TEXT_MAX];
    struct peer_owner owner = peer_gate_owner(g, fd, peer);
    if (peer_owner_is_served(owner))
        return owner;
    g->refused++;
    if (g->fn == NULL || addr_of_socket(fd, &own) < 0)
        return owner;
    addr_to_text(&own, where);
    if (owner.kind == PEER_OTHER_USER)
        report_user(g, owner.uid, where);
    else
        report_closed(g, fd, where);
    return owner;
}

bool peer_gate_admits(struct peer_gate *g, int fd, const struct addr *peer) {
    return peer_owner_is_served(peer_gate_judge(g, fd, peer));
}

void peer_gate_set_remedy(struct peer_gate *g, const char *remedy) { g->remedy = remedy; }

uint64_t peer_gate_refused(const struct peer_gate *g) { return g == NULL ? 0 : g->refused; }

/* ---- the gate ---- */

/* Users without a number in this namespace look like this one. */
static bool looks_like_others(uid_t own) {
    char text[256];
    unsigned overflow = OVERFLOW_UID;
    if (file_read_head(AT_FDCWD, "/proc/sys/kernel/overflowuid", text, sizeof text) > 0 &&
        sscanf(text, "%u", &overflow) != 1)
        overflow = OVERFLOW_UID;
    return own == overflow &&
           !(file_read_head(AT_FDCWD, "/proc/self/uid_map", text, sizeof text) > 0 &&
             peer_word_map_is_whole(text));
}

/* The kernel must know our own socket: then it has this service, here, with our user ids. */
static _must_use_ int ask_what_is_known(struct peer_gate *g, int fd, struct err *err) {
    struct addr own, any;
    struct peer_socket found = {0};
    struct stat known;
    int r = addr_of_socket(fd, &own);
    if (r == 0 && fstat(fd, &known) < 0)
        r = -errno;
    if (r < 0)
        return err_set(err, r, "a listening socket can't be read: %s", strerror(-r));
    r = addr_from_literal(own.ss.ss_family == AF_INET ? "0.0.0.0" : "::", 0, &any);
    assert(r == 0);
    r = ask_socket(g, &own, &any, &found);
    if (r == -ENOENT)
        return err_set(err, -EOPNOTSUPP, "it has no sock_diag for TCP");
    if (r < 0)
        return err_set(err, r, "sock_diag: %s", strerror(-r));
    if (found.state != TCP_LISTEN || found.inode != known.st_ino || found.uid != g->own)
        return err_set(err, -EOPNOTSUPP, "its answer about this process is wrong");
    return 0;
}

int peer_gate_new(int listening_fd, peer_gate_fn *fn, void *arg, struct peer_gate **ret,
                  struct err *err) {
    struct peer_gate *g = xcalloc(1, sizeof *g);
    *g = (struct peer_gate){.fn = fn,
                            .arg = arg,
                            .own = geteuid(),
                            .remedy = "--auth=none admits all users",
                            .diag = -1,
                            .route = -1};
    int r = 0;
    if (looks_like_others(g->own))
        r = err_set(err, -EOPNOTSUPP,
                    "in this user namespace this user and others have the same number");
    if (r == 0)
        r = ask_what_is_known(g, listening_fd, err);
    if (r < 0)
        peer_gate_free(g);
    else
        *ret = g;
    return r;
}

void peer_gate_free(struct peer_gate *g) {
    if (g == NULL)
        return;
    file_close(&g->diag);
    file_close(&g->route);
    free(g);
}
