/* The kernel's answers about a peer, as bytes: two questions over netlink. peer_gate.h asks.
 *
 *     peer_word_ask_socket(&local, &remote, &question);       whose socket is this?
 *     r = peer_word_read_socket(answer, &local, &remote, &socket);
 *     peer_word_ask_route(&addr, &question);                  is that address one of ours?
 *     r = peer_word_read_route(answer, &is_local);
 *
 * sock_diag(7), rtnetlink(7), linux/inet_diag.h, linux/rtnetlink.h. The kernel looks for an exact
 * pair of addresses, and else for a socket at the first: that is not an answer. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/util.h"
#include "io/net/addr.h"
#include "io/net/netlink.h"

/* enum tcp_states of the kernel */
#define PEER_SOCKET_ESTABLISHED 1
#define PEER_SOCKET_LISTEN 10

struct peer_socket {
    uint8_t state;
    uid_t uid;      /* who made it, as this user namespace has that user; 0 if it was closed, too */
    uint32_t inode; /* 0: no process has it */
};

/* `local` is the end that is asked about; both have the same family, where mapped IPv4 is IPv4. */
void peer_word_ask_socket(const struct addr *local, const struct addr *remote,
                          union netlink_request *ret);
void peer_word_ask_route(const struct addr *addr, union netlink_request *ret);

/* 0; -EPROTO; or -ENOENT: it is about another socket, so there is no such one. */
_must_use_ int peer_word_read_socket(const struct netlink_answer *answer, const struct addr *local,
                                     const struct addr *remote, struct peer_socket *ret);
_must_use_ int peer_word_read_route(const struct netlink_answer *answer, bool *ret_local);

/* /proc/self/uid_map, user_namespaces(7): whether every user has a number of its own here. Those
 * without one are all shown as one and the same. */
bool peer_word_map_is_whole(const char *uid_map);
