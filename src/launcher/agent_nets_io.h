/* By which interfaces the workers of this node reach the other nodes: that of the route to the
 * leader, and that of a faster network, which is taken where every node reaches its neighbours by
 * it.
 *
 *     agent_nets_choose(agent, &leader, &nets);     on joining; the neighbours try nets.nets
 *     if (agent_nets_pick(&nets, ways, &choice))    at START, with the ways that all members have
 *         … choice instead of the route's */
#pragma once

#include "io/addr.h"
#include "nccl_env/netif_choice.h"
#include "rendezvous/messages.h"

struct agent;

struct agent_nets {
    bool local; /* the leader is reached over loopback: all nodes are this machine */
    struct rdzv_net nets[RDZV_NETS_MAX]; /* RING_NET, RING_FAST */
};

void agent_nets_choose(const struct agent *a, const struct addr *leader, struct agent_nets *ret);

/* False: the interface of the route stays, with NCCL's own choice of its address. */
bool agent_nets_pick(const struct agent_nets *n, uint32_t ways, struct netif_choice *ret);
