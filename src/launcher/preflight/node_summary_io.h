/* Gathers this node's node summary: GPUs, adapters, interfaces and versions from the discovery, and
 * limits, disk and names; and checks them. This runs in a child process with a deadline, because
 * disks and name servers can block. The node summary is what was found by the deadline. Without
 * GPUs, whose users are looked for, a disk and a name that has to be asked for, nothing can block,
 * and there is no child. */
#pragma once

#include "io/net/addr.h"
#include "launcher/node/node_discovery_io.h"
#include "launcher/preflight/node_summary.h"

#define NODE_SUMMARY_GATHER_NS (8 * NS_PER_S)
/* How much of that the discovery may take, so that there is time for the rest. */
#define NODE_SUMMARY_DISCOVERY_NS (7 * NS_PER_S)

/* What the discovery must find, besides facts and NVML's report. */
unsigned node_summary_needs(bool any_gpu);

struct node_summary_config {                /* borrowed for the call */
    const struct node_discovery *discovery; /* with node_summary_needs(); must have ended */
    const char *log_dir;                    /* the disk of this folder must have room; NULL: none */
    /* the interface that the workers use between nodes; "": not chosen */
    const char *netif;
    /* interface of a faster network; "": there is none; NULL: not checked */
    const char *fast_netif;
    uint32_t n_workers; /* of this node; 0: one for each GPU */
    const char *mnnvl;  /* their NCCL_MNNVL_ENABLE; NULL: that of NCCL's files */
    const char *host;   /* this node's name */
    /* What /etc/hosts says of it (io/net/resolver.h). 0: who knows it has to be asked. */
    const struct addr *own_addrs;
    size_t n_own_addrs;
    uint64_t begun_ns; /* it ends NODE_SUMMARY_GATHER_NS later; 0: begins now */
};

struct node_summary_gathering;
/* whole: false: the deadline came first, or the discovery failed. Then the object is freed. */
typedef void node_summary_fn(void *arg, const struct node_summary *d, bool whole);

/* fn is called later, never from inside. 0, or a negative errno. */
_must_use_ int node_summary_start(struct loop *loop, const struct node_summary_config *config,
                                  node_summary_fn *fn, void *arg,
                                  struct node_summary_gathering **ret);
/* Cancels it: the child is killed, and fn is not called. Takes NULL. */
void node_summary_stop(struct node_summary_gathering *g);
