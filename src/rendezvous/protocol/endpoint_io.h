/* Whether this machine is the one that --rdzv-endpoint names, by every address and name of this
 * machine, not the resolver's canonical name; and where the endpoint's socket is bound. */
#pragma once

#include "io/net/addr.h"
#include "io/net/resolver.h"

/* is_host: as the user gave it; -1: decide by the host's addresses (resolve_now()). Literals,
 * "localhost" and this machine's host name need no look-up. */
bool endpoint_is_here(int is_host, const char *host, const struct addr *addrs, size_t n);

/* A literal address of this machine; 127.0.0.1 for "localhost"; else every interface ([::], dual
 * stack): other nodes may know the name by another address, and behind a load balancer or a NAT
 * (is_host=1) the literal is not an address of this machine. */
void endpoint_bind_addr(const char *host, uint16_t port, struct addr *ret);

/* -EADDRINUSE with is_host 1 is the user's error; else another agent of this machine leads. */
_must_use_ int endpoint_listen(const char *host, uint16_t port, int *ret_fd, struct err *err);

/* How this machine's own agent reaches the socket: loopback in place of a wildcard. 0 or a negative
 * errno. */
_must_use_ int endpoint_own_addr(int listen_fd, struct addr *ret);
