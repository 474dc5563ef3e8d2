/* What the workers' variables need to know about the network when a group forms: the interface by
 * which this node reaches the leader, and ports.
 *
 *     r = node_net_discover(loop, &place, &way, &err);       asks, in a child
 *     node_discovery_wait(way, …)
 *     place.way = way;
 *     r = node_net_read(&place, &net, &err);             asks nobody but for free ports */
#pragma once

#include "launcher/node/node_setup_io.h"

struct node_net {
    struct netif_choice netif;
    bool has_netif;
    uint16_t ras_port; /* 0: none */
    char comm_id[80];  /* "" none */
};

/* Begins to discover what is not yet known for this group: the route to its leader, the interfaces,
 * and what was configured here. *ret NULL: the job needs none of it. 0, or a negative errno with a
 * sentence. */
_must_use_ int node_net_discover(struct loop *loop, const struct node_setup_place *place,
                                 struct node_discovery **ret, struct err *err);
/* Fills *ret for this group. 0; -EINVAL, -EADDRINUSE: --nccl-comm-id is not available, with a
 * sentence. */
_must_use_ int node_net_read(const struct node_setup_place *place, struct node_net *ret,
                             struct err *err);

/* Raises this process's limits for workers with GPUs, which inherit them: memory that may be locked
 * as far as is allowed (RDMA registers its buffers), open files to 131072, the stack to 8 MiB, no
 * further: threads get small ones where it is unlimited. The hard limits are raised, too, where
 * this process is allowed to. pthread_attr_setstacksize(3), getrlimit(2) */
void node_raise_limits(void);
