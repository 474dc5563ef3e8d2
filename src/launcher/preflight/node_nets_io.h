/* By which interfaces the workers of this node reach the other nodes: that of the route to the
 * leader, and that of a faster network, which is taken where every node reaches its neighbours by
 * it.
 *
 *     node_nets_discover(loop, to, &look, &err);        before JOIN
 *     node_nets_choose(&user, to, look, nets.nets);     when it has ended; the neighbours try these
 *     if (node_nets_pick(&nets, ways, &choice))         at START, with the ways that all have
 *         … choice instead of the route's */
#pragma once

#include "launcher/job/job.h"
#include "launcher/node/node_discovery_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/protocol/messages.h"

struct node_nets {
    bool local; /* the leader is reached over loopback: all nodes are this machine */
    struct rdzv_net nets[RDZV_NETS_MAX]; /* RING_NET, RING_FAST */
};

/* Seeks the interfaces and the route to that address. 0, or a negative errno with a sentence. */
_must_use_ int node_nets_discover(struct loop *loop, const char *leader,
                                  struct node_discovery **ret, struct err *err);
/* From a discovery that has ended. Nothing is chosen if it failed. envp: what workers inherit;
 * the user's own settings there, and in the job, have precedence. */
void node_nets_choose(const struct job_spec *spec, char *const *envp, const char *leader,
                      const struct node_discovery *look, struct rdzv_net ret[RDZV_NETS_MAX]);

/* False: the interface of the route stays, with NCCL's own choice of its address. */
bool node_nets_pick(const struct node_nets *n, uint32_t reachability, struct netif_choice *ret);
