/* Whether this node reaches a neighbour at the addresses that the workers of both will use: from
 * our interface's address, by the kernel's routes, to the neighbour's listener at its address; on
 * the interface that leads to the leader, and on that of a faster network where both have one. It
 * sends nothing itself; the neighbour's agent answers with its HELLO.
 *
 *     ring_probe_start(loop, &own, &neighbour, on_done, me, &p);
 *     … on_done(me, &answer): answer.result, and a sentence with both ends */
#pragma once

#include "io/loop.h"
#include "rendezvous/protocol/messages.h"
#include "topology/model/topology.h"

#define RING_PROBE_NS (2 * NS_PER_S)
#define RING_FAST_NS (500 * NS_PER_MS) /* the faster network is only a preference */

enum ring_result {
    RING_REACHED = 1,
    RING_SKIPPED,      /* it is on this machine, or sent no address to try */
    RING_OTHER_FAMILY, /* not at its chosen address, but by its other one: IPv6 in place of IPv4 */
    RING_BLOCKED,
};

/* What report.ways and desired.ways are made of: by which interface, and from which of its
 * addresses, a node reaches its neighbours. RING_WAY_TRIED: the rest is what was found. */
enum ring_way {
    RING_WAY_V4 = 1,
    RING_WAY_V6 = 2,
    RING_WAY_FAST_V4 = 4,
    RING_WAY_FAST_V6 = 8,
    RING_WAY_TRIED = 16,
};

enum { RING_NET = 0, RING_FAST }; /* in node_info.nets */

struct ring_own { /* borrowed for the call */
    const char *host;
    const struct topology *netifs; /* this machine's; NULL: not known */
    /* as in node_info; nets[RING_NET] without addresses: from wherever the kernel likes */
    const struct rdzv_net *nets;
};

struct ring_answer {
    enum ring_result result;
    uint32_t reachability; /* enum ring_way, but TRIED */
    bool fast_failed;      /* REACHED, but not by the faster network that both have */
    /* OTHER_FAMILY, BLOCKED, fast_failed: one sentence that names both ends; else "" */
    char text[512];
};

struct ring_probe;
typedef void ring_fn(void *arg, const struct ring_answer *answer);

/* fn is called later, after RING_PROBE_NS at the latest; the probe is freed then. 0, or a negative
 * errno. */
_must_use_ int ring_probe_start(struct loop *loop, const struct ring_own *own,
                                const struct rdzv_neighbour *to, ring_fn *fn, void *arg,
                                struct ring_probe **ret);
/* Gives it up, without a call. NULL is fine. */
void ring_probe_free(struct ring_probe *p);
