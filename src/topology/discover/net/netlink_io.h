/* What rtnetlink reports about this machine's interfaces and files do not contain: addresses, what
 * kind of virtual interface one is, and routes. Never of a recorded tree. */
#pragma once

#include "base/err.h"
#include "topology/model/topology.h"

/* Completes t->netifs, and adds interfaces that no file named (a container may have no /sys of its
 * network namespace). A question that was not answered becomes a warning. Source: rtnetlink(7);
 * IFLA_INFO_KIND in linux/if_link.h. */
void netlink_fill_addresses(struct topology *t);

/* Which interface and address this node uses to reach another one: the kernel's routes. */
struct route_found {
    char netif[TOPO_NAME_MAX]; /* "lo" for an address of this node */
    char source[46];           /* the address that the kernel would send from; "": not known */
};

/* Asks rtnetlink (RTM_GETROUTE). addr: a literal, IPv4 or IPv6, with or without a zone. 0; -EINVAL:
 * no literal; -ENETUNREACH, -EHOSTUNREACH …: no route, with a sentence. */
_must_use_ int route_find(const char *addr, struct route_found *ret, struct err *err);
