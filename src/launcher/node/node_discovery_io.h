/* Discovery of the node while it waits for its peers: in a child process, because NVML can block,
 * hwloc takes tens of milliseconds, and listing a thousand interfaces a second. If the result is
 * late, the node runs without the features that need it. */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "nccl_env/facts/facts.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/net/netlink_io.h"
#include "topology/model/gpu_count.h"
#include "topology/model/topology.h"

/* NVML's own deadline (NVML_DISCOVERY_NS), and time for the rest. */
#define NODE_DISCOVERY_NS (3 * NS_PER_S)
#define NODE_DISCOVERY_WAITERS_MAX 5

struct node_discovery_config {
    unsigned what;        /* DISCOVER_*, topology/discover/discovery_io.h */
    bool facts;           /* also discover the node's configuration (nccl_env/facts/facts_io.h) */
    bool netifs_first;    /* an early answer has the interfaces and the route */
    bool in_background;   /* after that, workers that start meanwhile have precedence */
    bool nvml;            /* also return NVML's report */
    bool rocm;            /* also discover AMD's GPUs in ROCm's order */
    const char *route_to; /* also discover the route to this address; borrowed for the call */
    char *const *envp;    /* borrowed until discovery has ended, as the next two; for the facts */
    char *const *set;     /* NAME=VALUE, which take precedence over envp; or NULL */
    const char *python;
    uint64_t deadline_ns;               /* how long it may take; 0: NODE_DISCOVERY_NS */
    const char *sysroot, *nvml_library; /* of discovery_config; tests */
};

struct node_discovery;

/* Starts discovery. Fails if no process can be started. */
_must_use_ int node_discovery_new(struct loop *loop, const struct node_discovery_config *config,
                                  struct node_discovery **ret, struct err *err);
/* A child that still runs is killed; no callback is called afterwards. Takes NULL. */
void node_discovery_free(struct node_discovery *l);

/* Calls fn(arg) once when discovery has ended, also if it failed, or had ended before. */
typedef void node_discovery_fn(void *arg);
void node_discovery_wait(struct node_discovery *l, node_discovery_fn *fn, void *arg);

/* The same, as soon as interfaces and route are known. */
void node_discovery_wait_netifs(struct node_discovery *l, node_discovery_fn *fn, void *arg);

/* What is known so far. NULL: it was not requested, is not known yet, or could not be found. */
struct node_found {
    unsigned what;   /* as requested */
    bool has_netifs; /* interfaces and route are known, or will never be */
    bool ended;
    const struct topology *topology; /* when discovery has ended */
    const struct topology *netifs;   /* only the interfaces, if they came first; else the same */
    const struct discovery_nvml *nvml;
    const struct nccl_facts *facts;
    const struct route_found *route;
    const char *no_route;        /* why there is no route, as a sentence */
    const struct rocm_gpu *rocm; /* [n_rocm] */
    uint32_t n_rocm;
    const char *failure; /* why discovery has failed, as a phrase */
};
/* Borrowed; changes when an answer arrives. Takes NULL: nothing is known. */
const struct node_found *node_discovery_found(const struct node_discovery *l);
