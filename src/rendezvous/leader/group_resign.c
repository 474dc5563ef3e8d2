/* The leader's own node leaves: another leads soon, or nobody has to wait for anything of ours. */
#include "rendezvous/leader/group_priv.h"

/* Whoever is told to stop too says so within this: all nodes of a job are often told at once. */
#define HAND_OVER_NS (100 * NS_PER_MS)
/* What an arbiter may take until the agent goes without its answer. */
#define ARBITER_PATIENCE_NS (2 * NS_PER_S)

bool group_is_leaving(const struct group *g) {
    const struct node *own = group_find(g, g->config.leader_incarnation);
    return g->config.leadership == LEADERSHIP_ARBITER &&
           (g->resign_ns != 0 || (own != NULL && own->report.leaving));
}

/* A successor that stays knows all that this leader knows. */
static bool successor_stays(const struct group *g) {
    if (g->successors.epoch != g->config.epoch)
        return false;
    for (uint32_t i = 0; i < g->successors.n; i++) {
        const struct node *n = group_find(g, g->successors.list[i].incarnation);
        if (n != NULL && n->connected && !n->report.leaving)
            return true;
    }
    return false;
}

/* What a leader has to know before it starts a group: here, that nobody else need know it. */
static bool nothing_runs(const struct group *g) {
    return g->state == GROUP_GATHERING && g->now_ns >= g->config.not_before_ns && !g->claiming &&
           !group_somebody_unresolved(g);
}

void group_resigned(struct group *g) {
    if (g->deposed)
        return;
    g->deposed = true;
    g->status_dirty = false;
    if (!g->done)
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
}

void group_on_resign(struct group *g) {
    struct node *own = group_find(g, g->config.leader_incarnation);
    if (g->resign_ns != 0 || g->config.leadership != LEADERSHIP_ARBITER)
        return;
    g->resign_ns = g->now_ns;
    if (own != NULL)
        group_remove_node(g, own, "has left", REMOVED_LEFT);
}

void group_resign_time(struct group *g) {
    if (g->resign_ns == 0)
        return;
    bool asked = g->vacate_ns != 0 || g->state == GROUP_CLOSED;
    uint64_t asked_ns = MAX2(g->vacate_ns, g->resign_ns);
    if (g->now_ns >= g->resign_ns + g->config.close_timeout_ns ||
        (asked && g->now_ns >= asked_ns + ARBITER_PATIENCE_NS) ||
        (g->state == GROUP_CLOSED && g->close_known)) {
        group_resigned(g);
    } else if (asked) {
        return; /* an answer comes */
    } else if (successor_stays(g)) {
        if (g->now_ns >= g->resign_ns + HAND_OVER_NS)
            group_resigned(g);
    } else if (nothing_runs(g) && group_ask(g, ARBITER_VACATE, g->config.epoch)) {
        g->vacate_ns = g->now_ns;
    }
}

uint64_t group_resign_deadline(const struct group *g) {
    if (g->resign_ns == 0)
        return TIME_NEVER;
    uint64_t t = g->resign_ns + g->config.close_timeout_ns;
    if (g->now_ns < g->resign_ns + HAND_OVER_NS)
        t = MIN2(t, g->resign_ns + HAND_OVER_NS);
    if (g->now_ns < g->config.not_before_ns)
        t = MIN2(t, g->config.not_before_ns);
    if (g->vacate_ns != 0 || g->state == GROUP_CLOSED)
        t = MIN2(t, MAX2(g->vacate_ns, g->resign_ns) + ARBITER_PATIENCE_NS);
    return MAX2(t, g->now_ns + 1);
}
