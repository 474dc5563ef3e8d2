/* What the workers of a group get on this node, as far as it is known at this time. It depends on
 * the result of discovery, on the group, and on which CPUs and memory can still be used. */
#pragma once

#include "launcher/node/node_discovery_io.h"
#include "launcher/node/node_setup.h"
#include "rendezvous/protocol/messages.h"

struct node_setup_place {
    const struct job_spec *spec; /* all borrowed for the call */
    char *const *envp;
    const char *python; /* the python that runs the workers, or NULL */
    /* Must have ended; NULL: there is none. The second is that of node_net_discover(). */
    struct node_discovery *discovery, *way;
    bool any_gpu;
    struct generation generation;
    const struct form *form;
    const char *log_dir;
    const struct netif_choice *netif; /* NULL: the interface of the route to the leader */
};

/* As node_setup_make(), without messages. Leaves out CPUs that a cgroup has taken away (a worker
 * with none left is not bound), and memory policies that are refused, unless strict. */
_must_use_ int node_setup_read(const struct node_setup_place *place, struct node_setup *ret,
                               struct err *err);

/* ---- the network: by which interface this node reaches the leader, and ports ---- */

struct node_net {
    struct netif_choice netif;
    bool has_netif;
    uint16_t ras_port; /* 0: none */
    char comm_id[80];  /* "" none */
};

/* Whether workers of this group need an interface: it has nodes on other hosts. */
bool node_net_is_far(const struct node_setup_place *place);
/* Begins to discover the route to this group's leader, and of interfaces and configuration what is
 * not known yet. *ret NULL: the job needs none. 0, or a negative errno with a sentence. */
_must_use_ int node_net_discover(struct loop *loop, const struct node_setup_place *place,
                                 struct node_discovery **ret, struct err *err);
/* 0; -EINVAL, -EADDRINUSE: --nccl-comm-id is not available, with a sentence. */
_must_use_ int node_net_read(const struct node_setup_place *place, struct node_net *ret,
                             struct err *err);

/* Raises this process's limits, which workers with GPUs inherit: locked memory as far as allowed
 * (RDMA registers its buffers), open files to 131072, and the stack to 8 MiB, not more: with an
 * unlimited stack, threads get small ones. pthread_attr_setstacksize(3), getrlimit(2) */
void node_raise_limits(void);

/* Reports how workers are bound and which are not; with -v, it lists each worker. *logged (owned by
 * the caller) is the last report, so that a restart does not repeat it. */
void node_setup_log(const struct node_setup *s, const struct node_setup_place *place,
                    char **logged);
