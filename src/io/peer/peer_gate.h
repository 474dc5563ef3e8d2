/* Who may connect from this machine: asks the kernel for the socket at the other end of an accepted
 * connection, by its exact pair of addresses (sock_diag(7), 5 to 12 us). If that socket is on this
 * machine, it must be connected and open, and belong to this user or to root. Peers on other
 * machines, and in other network namespaces, are not judged.
 *
 *     r = peer_gate_new(listening_fd, on_line, me, &gate, &err);   r < 0: the kernel can't answer
 *     if (!peer_gate_admits(gate, fd, &peer)) close(fd);           before a byte is read
 *
 * A socket that was closed has no user any more, so a peer that writes and closes is refused. What
 * connects two sockets for others (a proxy, address translation within the machine) is judged
 * itself. A caller asks about the other end by peer_gate_owner() once the first bytes have come: a
 * socket that waits to be accepted has no owner yet.
 *
 * In a user namespace, users without a number there are all one user to the kernel's answers: a
 * program that is that user itself gets no gate. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/peer_owner.h"
#include "io/net/addr.h"
#include "io/net/netlink.h"

struct peer_gate;

/* How muster's protocol begins: nothing is logged if such a connection is closed unjudged. */
#define PEER_GATE_CALL "{\"kind\":\"CALL\""

/* Lines are logged for this many users, one for each. */
#define PEER_GATE_USERS_MAX 16

/* Called with one line, without newline, for the first refused connection of a user. */
typedef void peer_gate_fn(void *arg, const char *line);

/* listening_fd: a listening TCP socket of this process, about which the kernel is asked first; only
 * if its answer is right, it is used. 0; or a negative errno, and *err: why it can't be asked. */
_must_use_ int peer_gate_new(int listening_fd, peer_gate_fn *fn, void *arg, struct peer_gate **ret,
                             struct err *err);
void peer_gate_free(struct peer_gate *g);
/* The owner of the other end of this connected socket, `peer`. A NULL gate: PEER_ELSEWHERE. */
_must_use_ struct peer_owner peer_gate_owner(struct peer_gate *g, int fd, const struct addr *peer);
/* Returns the owner of the socket of this machine that has exactly these two ends, for an agent on
 * another machine that has accepted its connection. A NULL gate returns PEER_UNKNOWN. */
_must_use_ struct peer_owner peer_gate_owner_of(struct peer_gate *g, const struct addr *local,
                                                const struct addr *remote);
/* Like peer_gate_owner(), and if the peer may not be served, counts it and logs it. */
_must_use_ struct peer_owner peer_gate_judge(struct peer_gate *g, int fd, const struct addr *peer);
/* Whether this accepted connection may be served, by peer_gate_judge(). */
_must_use_ bool peer_gate_admits(struct peer_gate *g, int fd, const struct addr *peer);
/* Borrows how to admit another user, at most 100 bytes, for the line about it. */
void peer_gate_set_remedy(struct peer_gate *g, const char *remedy);
/* How many it has refused; 0 if it is NULL. */
uint64_t peer_gate_refused(const struct peer_gate *g);

/* ==== the kernel's answers as bytes: parts of the above, for tests ====
 *
 *     peer_word_ask_socket(&local, &remote, &question);       whose socket is this?
 *     r = peer_word_read_socket(answer, &local, &remote, &socket);
 *
 * sock_diag(7), linux/inet_diag.h. The kernel looks for an exact pair of addresses, and else for a
 * socket at the first: that is not an answer. */

struct peer_socket {
    uint8_t state;  /* TCP_ESTABLISHED … of netinet/tcp.h */
    uid_t uid;      /* who made it, as this user namespace has that user; 0 if it was closed, too */
    uint32_t inode; /* 0: no process has it */
};

/* `local` is the end that is asked about; both have the same family, where mapped IPv4 is IPv4. */
void peer_word_ask_socket(const struct addr *local, const struct addr *remote,
                          union netlink_request *ret);

/* 0; -EPROTO; or -ENOENT: it is about another socket, so there is no such one. */
_must_use_ int peer_word_read_socket(const struct netlink_answer *answer, const struct addr *local,
                                     const struct addr *remote, struct peer_socket *ret);

/* /proc/self/uid_map, user_namespaces(7): whether every user has a number of its own here. */
bool peer_word_map_is_whole(const char *uid_map);
