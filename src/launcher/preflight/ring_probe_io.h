/* The interfaces by which this node's workers reach the other nodes: that of the route to the
 * leader, and that of a faster network, which is used if every node reaches its neighbours by it.
 *
 * A probe finds out whether this node reaches a neighbour at the addresses that the workers of both
 * will use: from this interface's address, by the kernel's routes, to the address of the
 * neighbour's listener. It sends nothing itself; the neighbour's agent sends its HELLO. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/node/node_discovery_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/protocol/messages.h"

#define RING_PROBE_NS (2 * NS_PER_S)
#define RING_FAST_NS (500 * NS_PER_MS) /* the faster network is only a preference */

enum ring_result {
    RING_REACHED = 1,
    RING_SKIPPED,      /* the neighbour is on this machine, or sent no address to try */
    RING_OTHER_FAMILY, /* not at its chosen address, but at its other one: IPv6 instead of IPv4 */
    RING_BLOCKED,
};

/* The bits of report.ways and desired.ways: by which interface, and from which of its addresses, a
 * node reaches its neighbours. RING_WAY_TRIED: the other bits are valid. */
enum ring_way {
    RING_WAY_V4 = 1,
    RING_WAY_V6 = 2,
    RING_WAY_FAST_V4 = 4,
    RING_WAY_FAST_V6 = 8,
    RING_WAY_TRIED = 16,
};

enum { RING_NET = 0, RING_FAST }; /* in node_info.nets */

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

/* ==== a probe ==== */

struct auth;

struct ring_own { /* borrowed for the call; `auth` until the answer */
    const char *host;
    const struct topology *netifs; /* this machine's; NULL: not known */
    /* as in node_info; if nets[RING_NET] has no addresses, the kernel chooses the source */
    const struct rdzv_net *nets;
    struct auth *auth; /* NULL: as AUTH_NONE */
};

struct ring_answer {
    enum ring_result result;
    uint32_t reachability; /* bits of enum ring_way, except TRIED */
    bool fast_failed;      /* REACHED, but not by the faster network that both have */
    /* OTHER_FAMILY, BLOCKED, fast_failed: one sentence that names both ends; else "" */
    char text[512];
};

struct ring_probe;
typedef void ring_fn(void *arg, const struct ring_answer *answer);

/* fn is called later, after RING_PROBE_NS at the latest; the probe is freed then. */
_must_use_ struct ring_probe *ring_probe_start(struct loop *loop, const struct ring_own *own,
                                               const struct rdzv_neighbour *to, ring_fn *fn,
                                               void *arg);
/* Cancels the probe; fn is not called. Takes NULL. */
void ring_probe_free(struct ring_probe *p);
