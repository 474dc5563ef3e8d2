/* Network facts that the workers' variables need when a group forms: the interface by which this
 * node reaches the leader, and ports.
 *
 *     r = node_net_discover(loop, &place, &way, &err);       asks, in a child
 *     node_discovery_wait(way, …)
 *     place.way = way;                                   or another's, with netifs, facts and route
 *     r = node_net_read(&place, &net, &err);             only asks the kernel for free ports */
#pragma once

#include "launcher/node/node_setup_io.h"

struct node_net {
    struct netif_choice netif;
    bool has_netif;
    uint16_t ras_port; /* 0: none */
    char comm_id[80];  /* "" none */
};

/* Whether workers of this group need an interface: it has nodes on other hosts. */
bool node_net_is_far(const struct node_setup_place *place);
/* Begins to discover what is not yet known for this group: the route to its leader, the interfaces,
 * and what was configured here. *ret NULL: the job needs none of these. 0, or a negative errno with
 * a sentence. */
_must_use_ int node_net_discover(struct loop *loop, const struct node_setup_place *place,
                                 struct node_discovery **ret, struct err *err);
/* 0; -EINVAL, -EADDRINUSE: --nccl-comm-id is not available, with a sentence. */
_must_use_ int node_net_read(const struct node_setup_place *place, struct node_net *ret,
                             struct err *err);

/* Raises this process's limits, which workers with GPUs inherit: locked memory as far as allowed
 * (RDMA registers its buffers), open files to 131072, and the stack to 8 MiB, not more: with an
 * unlimited stack, threads get small ones. The hard limits are raised, too, if this process may do
 * so. pthread_attr_setstacksize(3), getrlimit(2) */
void node_raise_limits(void);
