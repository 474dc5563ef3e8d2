/* The interfaces by which this node's workers reach the other nodes: that of the route to the
 * leader, and of a faster network, which is used if every node reaches its neighbours by it. */
#pragma once

#include "launcher/job/job.h"
#include "launcher/node/node_discovery_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/protocol/messages.h"

struct node_nets {
    bool local; /* the leader is reached over loopback: all nodes are on this machine */
    struct rdzv_net nets[RDZV_NETS_MAX]; /* RING_NET, RING_FAST */
};

/* Before JOIN; neighbours try these. By the interfaces, and the route to the leader. Nothing is
 * chosen if either is not known. envp: what workers inherit; the user's own settings there, and in
 * the job, have precedence. */
void node_nets_choose(const struct job_spec *spec, char *const *envp, const char *leader,
                      const struct node_discovery *discovery, const struct node_discovery *way,
                      struct rdzv_net ret[RDZV_NETS_MAX]);

/* At START, with the ways that all nodes have. False: workers use the interface of the route, and
 * NCCL chooses its address. */
bool node_nets_pick(const struct node_nets *n, uint32_t reachability, struct netif_choice *ret);
