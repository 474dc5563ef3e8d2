/* FORMING and RUNNING: the members get ready and run, and the group grows. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static void fail_slow_nodes(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct node *n = g->formation.members[i];
        if (formation_reports(&g->formation, n, NODE_PREPARED))
            continue;
        struct failure f = {.kind = FAILURE_NODE,
                            .rank = n->place.first_rank,
                            .node_rank = n->place.node_rank,
                            .incarnation = n->info.incarnation,
                            .at_ns = (uint64_t)((int64_t)g->now_ns - n->clock.offset_ns)};
        node_name(n, f.node);
        (void)snprintf(f.text, sizeof f.text, "node %.100s did not get ready within %.0f s", f.node,
                       (double)g->config.form_timeout_ns / (double)NS_PER_S);
        (void)group_add_failure(g, n, &f);
        break;
    }
    group_stop_for_failure(g);
}

/* Checks the members whose listener has not been reached: their loss would not be noticed at
 * once. */
static void reach_members(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (!g->formation.members[i]->reached)
            (void)group_emit(g, GROUP_EFFECT_REACH, g->formation.members[i]->info.incarnation);
}

void group_advance_forming(struct group *g) {
    if (!g->forming.sent)
        return; /* the store is not open yet */
    if (group_all_members(g, TALLY_PREPARED)) {
        bool incident = g->incident.stopped_ns != 0;
        if (g->formation.started_once && g->last_event.text[0] != '\0')
            g->last_event.restart_ns = g->now_ns - g->last_event.at_ns;
        formation_start(&g->formation);
        g->gathering.lost_somebody = false;
        g->incident.formed_ns = g->running.since_ns = g->running.last_start_ns = g->now_ns;
        g->running.reachability = formation_reachability(&g->formation);
        g->running.n_told_warm = 0;
        group_move(g, GROUP_RUNNING);
        struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_FORMED, NULL, NULL);
        entry->stopped_ns = g->incident.stopped_ns;
        entry->n_nodes = (uint32_t)g->formation.n_members;
        entry->world_size = g->formation.world_size;
        entry = group_add_to_timeline(g, TIMELINE_STARTED, NULL, NULL);
        entry->detected_ns = incident ? g->incident.detected_ns : 0;
        entry->stopped_ns = g->incident.stopped_ns;
        entry->formed_ns = g->incident.formed_ns;
        entry->started_ns = g->now_ns;
        entry->n_nodes = (uint32_t)g->formation.n_members;
        entry->world_size = g->formation.world_size;
        g->incident.detected_ns = 0;
        group_notify_members(g);
        reach_members(g);
    } else if (g->now_ns >= g->forming.deadline_ns) {
        fail_slow_nodes(g);
    }
}

/* ---- warm workers ---- */

static void tell_warm(struct group *g) {
    struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_WARM, NULL, NULL);
    entry->has_warm = true;
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct rdzv_warm *w = g->formation.members[i]->warm;
        if (w == NULL)
            continue;
        entry->n_warm += w->warm;
        if (w->cold > 0 && entry->cold_because[0] == '\0')
            memcpy(entry->cold_because, w->reason, sizeof entry->cold_because);
    }
}

void group_on_warm(struct group *g, struct node *n, const struct rdzv_warm *now) {
    struct generation of = n->warm != NULL ? n->warm->generation : (struct generation){0};
    if (generation_compare(now->generation, of) < 0)
        return; /* of an old connection */
    if (n->warm == NULL)
        n->warm = xcalloc(1, sizeof *n->warm);
    *n->warm = *now;
    bool current = generation_compare(now->generation, g->formation.generation) == 0;
    if (g->state != GROUP_RUNNING || !n->is_member || !current ||
        generation_compare(now->generation, of) == 0)
        return;
    if (++g->running.n_told_warm == g->formation.n_members)
        tell_warm(g);
}

/* ---- growing ---- */

size_t group_larger(const struct group *g) {
    size_t larger =
        formation_size(&g->config, g->formation.n_members + g->roster.tally[TALLY_WAITING]);
    return larger > g->formation.n_members ? larger : 0;
}

static void stop_to_grow(struct group *g, size_t larger, const char *why) {
    char text[128];
    (void)snprintf(text, sizeof text, "the group grows from %zu to %zu nodes%s",
                   g->formation.n_members, larger, why);
    g->incident.detected_ns = g->now_ns;
    group_begin_stop(g, text, true);
}

static void grow(struct group *g) {
    if (g->roster.tally[TALLY_WAITING] == 0 || g->formation.n_members >= g->config.rdzv.max_nodes)
        return;
    size_t larger = group_larger(g);
    if (larger == 0 || g->now_ns < g->gathering.not_before_ns)
        return;
    /* A node that comes and is lost again and again must not keep the others from working. */
    if (stalls_go_on(&g->stalls, &g->config, g->running.since_ns, g->now_ns) &&
        !g->running.grow_asked)
        return;
    bool now = false;
    switch (g->config.rdzv.grow) {
    case GROW_NOW: now = true; break;
    case GROW_BOUNDARY: now = g->roster.tally[TALLY_SAFE] > 0; break;
    case GROW_NEVER: break;
    }
    if (g->running.grow_asked)
        stop_to_grow(g, larger, ": an operator asked");
    else if (now)
        stop_to_grow(g, larger, g->config.rdzv.grow == GROW_BOUNDARY ? ", at a safe point" : "");
}

void group_advance_running(struct group *g) {
    if (group_all_members(g, TALLY_FINISHED)) {
        g->outcome = OUTCOME_SUCCESS;
        group_enter_closed(g);
    } else {
        grow(g);
    }
}
