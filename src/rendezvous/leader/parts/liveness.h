/* Which nodes are heard. Silent and disconnected ones are probed, and lost when their lease is
 * certainly over (muster-rendezvous(7), "Loss"). */
#pragma once

#include <stdbool.h>

#include "base/util.h"
#include "rendezvous/leader/parts/roster.h"

struct rate {
    uint64_t step_ns; /* between two, in the long run */
    uint64_t burst;   /* at once, after a rest */
};

/* When the next is allowed; it may have passed. spent_until_ns: the rate is spent until then. */
static inline uint64_t rate_ready(const struct rate *rate, uint64_t spent_until_ns) {
    uint64_t ahead_ns = (rate->burst - 1) * rate->step_ns;
    return spent_until_ns > ahead_ns ? spent_until_ns - ahead_ns : 0;
}

static inline bool rate_take(const struct rate *rate, uint64_t now_ns, uint64_t *spent_until_ns) {
    if (rate_ready(rate, *spent_until_ns) > now_ns)
        return false;
    *spent_until_ns = MAX2(*spent_until_ns, now_ns) + rate->step_ns;
    return true;
}

struct liveness {
    const struct group_config *config; /* borrowed */
    struct list heard;                 /* nodes that are connected and not silent, by contact_ns */
    struct list watched;
    uint64_t due_ns;  /* no watched node is due before this */
    uint64_t scan_ns; /* they are not examined before this either, because they are many */
    uint64_t probed_again_ns, waiters_probed_ns; /* how far ahead of now each rate is spent */
    /* several nodes are silent at once: none is lost before this; 0: this is not so */
    uint64_t hold_until_ns;
};

void liveness_init(struct liveness *l, const struct group_config *c);
/* It is silent or disconnected. True: it must be probed at once. */
_must_use_ bool liveness_watch(struct liveness *l, struct node *n, uint64_t now_ns);
void liveness_inherit(struct liveness *l, struct node *n, uint64_t now_ns);
/* A message or connection has arrived. True: it was watched. */
bool liveness_contact(struct liveness *l, struct node *n, uint64_t now_ns);
/* A message has arrived. True: probe the member's listener, which was not reached, perhaps because
 * its machine was too busy. */
_must_use_ bool liveness_reach_again(struct node *n, uint64_t now_ns);
/* The first node that is silent, and not watched yet; or NULL. */
struct node *liveness_silent(const struct liveness *l, uint64_t now_ns);

enum liveness_probe {
    LIVENESS_PROBE_NOTHING = 0,
    LIVENESS_PROBE_GONE,    /* the node has ended */
    LIVENESS_PROBE_REACHED, /* the node is heard, and now its listener is known to be reachable */
};
enum liveness_probe liveness_on_probe(struct liveness *l, struct node *n, enum probe_result result,
                                      uint64_t now_ns);

/* One look at the watched nodes: if _begin() is true, call _next() until LIVENESS_DONE. */
struct liveness_scan {
    struct list *next;
    size_t n_watched, waiters_lost;
};
enum liveness_todo {
    LIVENESS_DONE = 0,
    LIVENESS_PROBE, /* node */
    LIVENESS_LOSE,  /* node; the caller can free it */
    LIVENESS_HOLD,  /* several are silent at once: the group waits a moment for them */
};
_must_use_ bool liveness_scan_begin(struct liveness *l, struct liveness_scan *scan,
                                    uint64_t now_ns);
enum liveness_todo liveness_scan_next(struct liveness *l, struct liveness_scan *scan,
                                      uint64_t now_ns, struct node **ret);
/* When the next node becomes silent, or is due. */
uint64_t liveness_deadline(const struct liveness *l);
