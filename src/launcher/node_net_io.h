/* What the workers' variables need of the network when a group forms: the interface by which this
 * node reaches the leader, and ports. */
#pragma once

#include "launcher/node_setup_io.h"

struct node_net {
    struct topology netifs;    /* looked at here, where the node's look left them out */
    struct nccl_facts facts;   /* likewise, or with --env they are others */
    bool has_facts;
    struct netif_choice netif;
    bool has_netif;
    uint16_t ras_port;         /* 0: none */
    char comm_id[80];          /* "" none */
};

/* Fills *ret for such a group; nothing is asked that the job does not need. 0; -EINVAL,
 * -EADDRINUSE: --nccl-comm-id can't be had, with a sentence. */
_must_use_ int node_net_read(const struct node_setup_place *place, struct node_net *ret,
                             struct err *err);
void node_net_fini(struct node_net *n);

/* Raises this process's limits for workers with GPUs, which inherit them: memory that may be locked
 * as far as is allowed (RDMA registers its buffers), open files to 131072, the stack to 8 MiB, no
 * further: threads get small ones where it is unlimited. The hard limits too, where this process
 * may. pthread_attr_setstacksize(3), getrlimit(2) */
void node_raise_limits(void);
