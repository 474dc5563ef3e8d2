/* Which nodes are heard, and which are not: the silent and the cut off are probed, and are lost
 * when their lease is surely over (muster-rendezvous(7), "Loss"). Says what to do about one node
 * at a time; group_liveness.c does it. */
#pragma once

#include "rendezvous/leader/parts/roster.h"

struct liveness {
    struct list heard; /* the connected and not silent, by heard_ns */
    struct list watched;
    uint64_t due_ns;  /* nothing of the watched is due before this */
    uint64_t look_ns; /* nor are they examined before this: they are many */
    uint64_t probed_again_ns, waiters_probed_ns; /* how far ahead of now each rate is spent */
    uint64_t hold_until_ns; /* several are silent at once: none is given up before; 0: not so */
};

void liveness_init(struct liveness *l);
/* From now on it is watched: silent, or cut off. True: it is to be probed at once. */
_must_use_ bool liveness_watch(struct liveness *l, const struct group_config *c, struct node *n,
                               uint64_t now_ns);
/* The same of a node that the last leader had: its turn comes with the first look. */
void liveness_inherit(struct liveness *l, const struct group_config *c, struct node *n,
                      uint64_t now_ns);
/* It gave a sign of life. True: it was watched. */
bool liveness_heard(struct liveness *l, struct node *n, uint64_t now_ns);
/* The first that is heard no more, and not watched yet; or NULL. */
struct node *liveness_silent(const struct liveness *l, const struct group_config *c,
                             uint64_t now_ns);

enum liveness_probe {
    LIVENESS_PROBE_NOTHING = 0,
    LIVENESS_PROBE_GONE,    /* the node has ended */
    LIVENESS_PROBE_REACHED, /* a node that is heard: its listener can be reached, as is known now */
};
enum liveness_probe liveness_on_probe(struct liveness *l, struct node *n, enum probe_result result,
                                      uint64_t now_ns);

/* A look at the watched:
 *
 *     struct liveness_look look;
 *     if (liveness_look_begin(l, &look, now_ns))
 *         while ((todo = liveness_look_next(l, c, &look, now_ns, &node)) != LIVENESS_DONE) …
 */
struct liveness_look {
    struct list *next;
    size_t n_watched, waiters_lost;
};
enum liveness_todo {
    LIVENESS_DONE = 0,
    LIVENESS_PROBE, /* node */
    LIVENESS_LOSE,  /* node, which may be freed */
    LIVENESS_HOLD,  /* several are silent at once: the group waits a moment for them */
};
_must_use_ bool liveness_look_begin(struct liveness *l, struct liveness_look *look,
                                    uint64_t now_ns);
enum liveness_todo liveness_look_next(struct liveness *l, const struct group_config *c,
                                      struct liveness_look *look, uint64_t now_ns,
                                      struct node **ret);
/* When the next is silent, or due. */
uint64_t liveness_deadline(const struct liveness *l, const struct group_config *c);
