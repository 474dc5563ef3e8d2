/* A crowd: nodes that have joined and take part in nothing. No lives, no connections: the leader's
 * words to them are lost, and its probes of them find nothing out. */
#include "world_priv.h"

/* Within one second of virtual time, however large the crowd. */
#define PROBES_MAX 130 /* what is allowed at once, and at the rate; the second needn't begin with it */
#define LINES_MAX 30

static bool is_of_crowd(uint64_t incarnation) { return incarnation != 0 && incarnation % 2 == 0; }

static void count(struct world *w, unsigned *n, unsigned most, const char *what) {
    if (w->now_ns - w->crowd.since_ns >= NS_PER_S) {
        w->crowd.since_ns = w->now_ns;
        w->crowd.probes = w->crowd.lines = 0;
    }
    if (++*n > most)
        world_broken(w, "a crowd of %u costs more than %u %s in a second", w->n_crowd, most, what);
}

bool crowd_takes(struct world *w, struct life *l, const struct group_effect *e) {
    if (w->n_crowd > 0 && e->kind == GROUP_EFFECT_NOTICE)
        count(w, &w->crowd.lines, LINES_MAX, "lines");
    if (!is_of_crowd(e->node))
        return false;
    if (e->kind == GROUP_EFFECT_PROBE || e->kind == GROUP_EFFECT_REACH) {
        count(w, &w->crowd.probes, PROBES_MAX, "probes");
        world_plan(w, ITEM_CROWD_PROBED, l, NS_PER_MS)->local = CROWD_INDEX(e->node);
    }
    return true;
}
