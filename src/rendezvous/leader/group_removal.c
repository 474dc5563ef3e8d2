/* What follows for the group when a node is lost or leaves. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

/* The rate at which the loss of nodes that waited for a place is reported, however many they
 * are. */
static const struct rate waiters_lines = {NS_PER_S, 20};

void group_report_waiters_gone(struct group *g) {
    if (g->waiters_gone.n == 0 ||
        !rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns))
        return;
    char text[RDZV_REASON_MAX / 4];
    (void)snprintf(text, sizeof text, "%zu more waiting nodes are gone, the last: %.300s",
                   g->waiters_gone.n, g->waiters_gone.last);
    g->waiters_gone.n = 0;
    group_notice(g, text);
}

static void waiter_gone(struct group *g, const char *text) {
    if (g->waiters_gone.n == 0 &&
        rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns)) {
        group_notice(g, text);
        return;
    }
    g->waiters_gone.n++;
    (void)snprintf(g->waiters_gone.last, sizeof g->waiters_gone.last, "%.500s", text);
}

uint64_t group_waiters_gone_deadline(const struct group *g) {
    return g->waiters_gone.n > 0 ? rate_ready(&waiters_lines, g->waiters_gone.reported_ns)
                                 : TIME_NEVER;
}

static void add_removal(struct group *g, const struct node *n, const char *why, enum removal how) {
    bool lost = how != REMOVED_LEFT;
    struct timeline_entry *entry =
        group_add_to_timeline(g, lost ? TIMELINE_NODE_LOST : TIMELINE_NODE_LEFT, n, why);
    entry->detected_ns = n->contact_ns;
    if (!n->is_member || !group_is_live(g))
        return;
    g->incident.detected_ns = lost ? n->contact_ns : g->now_ns;
}

void group_remove_node(struct group *g, struct node *n, const char *why, enum removal how) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX], leaving[RDZV_REASON_MAX];
    node_name(n, name);
    (void)snprintf(text, sizeof text, "node %s %s", name, why);
    node_leaving_text(n, leaving);
    bool was_member = n->is_member, had_place = n->is_member || n->in_order;
    bool lost = how != REMOVED_LEFT;
    /* its group has stopped for that */
    bool announced = !lost && n->report.leaving && !generation_is_none(n->report.generation);
    bool finished = formation_reports(&g->formation, n, NODE_FINISHED);
    bool outlived = group_outlived_failure(g, n);
    uint64_t incarnation = n->info.incarnation;
    add_removal(g, n, why, how);
    group_successor_lost(g, n, how);
    g->gathering.lost_somebody = g->gathering.lost_somebody || n->in_order;
    formation_lose(&g->formation, n, how == REMOVED_SILENT);
    if (had_place && lost)
        policy_add_loss(&g->policy);
    roster_remove(&g->roster, n);
    (void)group_emit(g, GROUP_EFFECT_FORGET, incarnation);
    g->status.dirty = true;
    if (g->formation.started_once) {
        (void)snprintf(g->gathering.last_lost, sizeof g->gathering.last_lost, "%s", name);
        (void)snprintf(g->gathering.last_left, sizeof g->gathering.last_left, "%s",
                       lost ? "" : leaving);
        g->gathering.n_left += had_place && !lost;
    }
    if (was_member && group_is_live(g) && !(finished && g->state == GROUP_RUNNING)) {
        group_stop_for_lost_node(g, text, !lost);
    } else if (was_member && g->state == GROUP_STOPPING &&
               group_blame_lost_node(g, incarnation, outlived, text, !lost)) {
        return; /* STOP has reported it already */
    } else if (g->state == GROUP_CLOSED || announced) {
        return;
    } else if (had_place) {
        group_notice(g, text);
    } else {
        waiter_gone(g, text);
    }
}
