/* Decides whether this machine is the one that --rdzv-endpoint names, and
 * where its socket is bound. It compares with every address and name of this machine, not with the
 * resolver's canonical name. Literals, "localhost" and this machine's host name need no look-up. */
#pragma once

#include "io/net/addr.h"
#include "io/net/resolver.h"

/* is_host is what the user gave: 1 or 0 decides; -1: decide by the address. For -1, `addrs` are
 * the addresses of the host (resolve_now() or resolve_start()); this machine is the
 * host when the name is its own, or any address is local. */
bool endpoint_is_here(int is_host, const char *host, const struct addr *addrs, size_t n);

/* Where the endpoint's socket is bound: the literal address itself when it is this machine's;
 * 127.0.0.1 for "localhost"; every interface ([::], dual stack) for other names, which other nodes
 * may know by another address of this machine than it does itself, and for a literal that is not an
 * address of this machine (is_host=1 behind a load balancer or a NAT). */
void endpoint_bind_addr(const char *host, uint16_t port, struct addr *ret);

/* Binds and listens there. -EADDRINUSE: another process uses the address. With is_host 1 the user
 * gets an error; if the address was only guessed, another agent of this machine leads. */
_must_use_ int endpoint_listen(const char *host, uint16_t port, int *ret_fd, struct err *err);

/* The address over which this machine's own agent reaches a socket that it listens on: the bound
 * address, with loopback in place of a wildcard. 0 or a negative errno. */
_must_use_ int endpoint_own_addr(int listen_fd, struct addr *ret);
