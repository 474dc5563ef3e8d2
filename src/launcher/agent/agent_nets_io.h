/* By which interfaces the workers of this node reach the other nodes: that of the route to the
 * leader, and that of a faster network, which is taken where every node reaches its neighbours by
 * it.
 *
 *     if (agent_nets_leader(agent, &leader, to))
 *         agent_nets_discover(agent, to, &look, &err);   before JOIN
 *     agent_nets_choose(agent, to, look, nets.nets); when it has ended; the neighbours try these
 *     if (agent_nets_pick(&nets, ways, &choice))    at START, with the ways that all members have
 *         … choice instead of the route's */
#pragma once

#include "io/net/addr.h"
#include "launcher/node/node_discovery_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/protocol/messages.h"

struct agent;

struct agent_nets {
    bool local; /* the leader is reached over loopback: all nodes are this machine */
    struct rdzv_net nets[RDZV_NETS_MAX]; /* RING_NET, RING_FAST */
};

/* The leader's address as others would write it. False: it is reached over loopback, and all nodes
 * are this machine: there is nothing to choose. */
bool agent_nets_leader(const struct agent *a, const struct addr *leader, char ret[ADDR_TEXT_MAX]);
/* Seeks the interfaces and the route to that address. 0, or a negative errno with a sentence. */
_must_use_ int agent_nets_discover(const struct agent *a, const char *leader,
                                   struct node_discovery **ret, struct err *err);
/* By such a look, which has ended. Nothing is chosen where it failed. */
void agent_nets_choose(const struct agent *a, const char *leader, const struct node_discovery *look,
                       struct rdzv_net ret[RDZV_NETS_MAX]);

/* False: the interface of the route stays, with NCCL's own choice of its address. */
bool agent_nets_pick(const struct agent_nets *n, uint32_t reachability, struct netif_choice *ret);
