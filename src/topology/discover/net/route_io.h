/* Which interface and address this node uses to reach another one: the kernel's routes. */
#pragma once

#include "base/err.h"
#include "topology/model/topology.h"

struct route_found {
    char netif[TOPO_NAME_MAX]; /* "lo" for an address of this node */
    char source[46];           /* the address that the kernel would send from; "": not known */
};

/* Asks rtnetlink (RTM_GETROUTE). addr: a literal, IPv4 or IPv6, with or without a zone. 0; -EINVAL:
 * no literal; -ENETUNREACH, -EHOSTUNREACH …: no route, with a sentence. */
_must_use_ int route_find(const char *addr, struct route_found *ret, struct err *err);
