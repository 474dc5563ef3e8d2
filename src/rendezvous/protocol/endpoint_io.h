/* Decides whether this machine is the one that --rdzv-endpoint names, and
 * where its socket is bound. By every address and name of this machine, not by the resolver's
 * canonical one, and without a look-up for literals, "localhost" and this machine's host name. */
#pragma once

#include "io/net/addr.h"
#include "io/net/resolver.h"

/* is_host as the user gave it: 1 or 0 settle it; -1: decide by the address. For -1, `addrs` are
 * the addresses that the host stands for (resolve_now() or resolve_start()); this machine is the
 * host when the name is its own, or any address is local. */
bool endpoint_is_here(int is_host, const char *host, const struct addr *addrs, size_t n);

/* Where the endpoint's socket is bound: the literal address itself when it is this machine's;
 * 127.0.0.1 for "localhost"; every interface ([::], dual stack) for other names, and for a literal
 * that is none of this machine's (is_host=1 behind a load balancer or a NAT). */
void endpoint_bind_addr(const char *host, uint16_t port, struct addr *ret);

/* Binds and listens there. An address taken by somebody else is -EADDRINUSE: with is_host 1 that is
 * an error for people; when the address was only guessed, another agent of this machine leads. */
_must_use_ int endpoint_listen(const char *host, uint16_t port, int *ret_fd, struct err *err);

/* The address over which this machine's own agent reaches a socket it listens on: the bound one,
 * loopback in place of a wildcard. 0 or a negative errno. */
_must_use_ int endpoint_own_addr(int listen_fd, struct addr *ret);
