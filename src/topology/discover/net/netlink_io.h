/* Information of rtnetlink about this machine's interfaces that is not in files: addresses, and
 * what kind of virtual interface one is. Never of a recorded tree. */
#pragma once

#include "topology/model/topology.h"

/* Completes t->netifs, and adds interfaces that no file named (a container may have no /sys of
 * its network namespace): index, flags, mtu, kind, addresses. By getifaddrs() where rtnetlink is
 * refused, then without kinds. Does not fail; what it could not ask becomes a warning.
 * Source: rtnetlink(7); IFLA_INFO_KIND in linux/if_link.h. */
void netlink_fill_addresses(struct topology *t);
