/* Which network interface the workers of this node use to reach the other nodes. Pure. With one
 * node: none. Else that of the route to the leader; on the leader's own node (the route is "lo")
 * the one that owns the leader's address. One that is named like a container's plumbing (docker,
 * br-, virbr, …) is not chosen if another one has a global address: then nothing is set, and a
 * warning names it. The name decides, not the kind. An interface without a global address of the
 * leader's family is never chosen. */
#pragma once

#include "topology/model/topology.h"

struct netif_input {
    uint32_t n_nodes;
    const char *route_netif;  /* of the route to the leader; "" unknown */
    const char *route_source; /* the address from which it sends; "" unknown */
    const char *leader_addr;  /* literal; "" unknown */
};
struct netif_choice {
    char netif[TOPO_NAME_MAX];   /* "" none */
    char addr[46];               /* its address of the leader's family */
    char why[TOPO_TEXT_MAX * 4]; /* always a sentence */
    bool warning;                /* `why` is one */
    /* The interface also has IPv4 addresses, and they don't reach all nodes: NCCL must be set to
     * use IPv6. */
    bool family_v6;
};
void netif_choose(const struct topology *t, const struct netif_input *input,
                  struct netif_choice *ret);
/* Used if no routes can be asked. Returns the name of the interface with the longest prefix that
 * covers the address; "lo" for an address of this node, "" for none. */
const char *netif_by_subnet(const struct topology *t, const char *addr);
/* The first by name of a network that is usually faster than Ethernet, up, with a global address:
 * InfiniBand (ib*, which NCCL itself prefers) or Slingshot (hsn*). NULL: none. */
const struct topo_netif *netif_fast(const struct topology *t);
/* Adds to a choice's reason which interface of a faster network would replace it, if there is one:
 * whether it does is known only when all nodes have tried it. */
void netif_note_fast(const struct topology *t, const struct netif_input *input,
                     struct netif_choice *choice);
/* The first by which the node could be reached, except virtual ones of containers; NULL: none. */
const struct topo_netif *netif_real(const struct topology *t);
bool netif_is_plumbing(const char *name);
