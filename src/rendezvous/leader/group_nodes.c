/* Which nodes are admitted, and which are excluded. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static void refuse(struct group *g, uint64_t node, const char *text, bool for_now) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->for_now = for_now;
    group_set_reason(g, e, text);
}

static void remember_refused(struct group *g, const char *host, const char *why) {
    (void)snprintf(g->gathering.refused_host, sizeof g->gathering.refused_host, "%s", host);
    (void)snprintf(g->gathering.refused_why, sizeof g->gathering.refused_why, "%s", why);
}

static enum job_stage stage_of(const struct group *g) {
    if (!g->formation.formed_here)
        return JOB_WITHOUT_GROUP;
    return g->roster.tally[TALLY_HOPEFUL] < g->config.rdzv.max_nodes ? JOB_WITH_ROOM : JOB_FULL;
}

void group_reach(struct group *g, struct node *n) {
    if (n->info.incarnation == g->config.leader_incarnation)
        return;
    n->probing = true;
    (void)group_emit(g, GROUP_EFFECT_REACH, n->info.incarnation);
}

struct node *group_admit(struct group *g, const struct node_info *info,
                         const struct rdzv_program *program) {
    bool for_now = false;
    char text[RDZV_REASON_MAX];
    const char *why = NULL;
    if (program != NULL &&
        programs_refuse(&g->programs, stage_of(g), info->role, program, text, sizeof text))
        why = text;
    else
        why = roster_refusal(&g->roster, &g->config, info, &for_now);
    if (why != NULL) {
        refuse(g, info->incarnation, why, for_now);
        remember_refused(g, info->host, why);
        return NULL;
    }
    if (strcmp(g->gathering.refused_host, info->host) == 0) /* it was started again */
        remember_refused(g, "", "");
    struct node *n = roster_add(&g->roster, info);
    if (g->roster.n <= GROUP_REACH_AT_ONCE)
        group_reach(g, n);
    return n;
}

void group_add_program(struct group *g, const struct node *n, const struct rdzv_program *program) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
    node_name(n, name);
    if (program != NULL &&
        programs_add(&g->programs, n->info.role, name, program, text, sizeof text))
        group_notice(g, text);
}

void group_exclude(struct group *g, struct node *n, const char *why) {
    char name[RDZV_HOST_MAX], text[2 * RDZV_HOST_MAX + 64];
    node_name(n, name);
    n->report.excluded = true;
    (void)node_set_text(&n->report.excluded_why, why);
    policy_exclude_host(&g->policy, n->info.host);
    group_recount(g, n);
    (void)snprintf(text, sizeof text, "node %s is excluded: %s", name, why);
    group_incident(g, text);
    (void)group_add_to_timeline(g, TIMELINE_NODE_EXCLUDED, n, why);
    if (!n->is_member)
        group_notify(g, n);
}

static void probe_node(struct group *g, const struct node *n) {
    (void)group_emit(g, GROUP_EFFECT_PROBE, n->info.incarnation);
}

void group_watch_node(struct group *g, struct node *n) {
    if (liveness_watch(&g->liveness, n, g->now_ns))
        probe_node(g, n);
    group_recount(g, n);
}

void group_contact(struct group *g, struct node *n) {
    if (liveness_contact(&g->liveness, n, g->now_ns)) {
        group_recount(g, n);
        if (n->is_member && n->reached) /* perhaps while it was disconnected */
            group_offer_successor(g);
    }
    if (liveness_reach_again(n, g->now_ns))
        probe_node(g, n);
}

void group_on_probe(struct group *g, struct node *n, enum probe_result result) {
    switch (liveness_on_probe(&g->liveness, n, result, g->now_ns)) {
    case LIVENESS_PROBE_NOTHING: break;
    case LIVENESS_PROBE_GONE:
        group_remove_node(g, n, "is gone: its agent ended unexpectedly", REMOVED_GONE);
        break;
    case LIVENESS_PROBE_REACHED:
        if (n->is_member)
            group_offer_successor(g);
        break;
    }
}

/* Messages that nodes sent meanwhile are still in the leader's sockets, so their silence means
 * nothing. It is always safe to count from a later time. */
void group_forgive_own_sleep(struct group *g) {
    if (g->now_ns <= g->due_ns || g->now_ns - g->due_ns <= g->config.rdzv.lease_ns / 10)
        return;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        n->contact_ns = g->now_ns;
}

static void lose(struct group *g, struct node *n) {
    char text[128];
    if (n->joined_ns == 0)
        (void)snprintf(text, sizeof text, "did not connect to the new leader");
    else
        (void)snprintf(text, sizeof text, "was lost: no message for %.1f s",
                       (double)(g->now_ns - n->contact_ns) / (double)NS_PER_S);
    group_remove_node(g, n, text, REMOVED_SILENT);
}

static void look_at_watched(struct group *g) {
    struct liveness_scan scan;
    struct node *n;
    if (!liveness_scan_begin(&g->liveness, &scan, g->now_ns))
        return;
    for (;;)
        switch (liveness_scan_next(&g->liveness, &scan, g->now_ns, &n)) {
        case LIVENESS_DONE: return;
        case LIVENESS_PROBE: probe_node(g, n); break;
        case LIVENESS_LOSE: lose(g, n); break;
        case LIVENESS_HOLD:
            if (g->state == GROUP_CLOSED)
                break; /* the nodes leave because the job is over */
            group_notice(g, "several nodes became silent at once: probing them before they are "
                            "declared lost");
            break;
        }
}

/* The rate of lines about lost nodes that waited for a place. */
static const struct rate waiters_lines = {NS_PER_S, 20};

static void report_waiters_gone(struct group *g) {
    if (g->waiters_gone.n == 0 ||
        !rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns))
        return;
    char text[RDZV_REASON_MAX / 4];
    (void)snprintf(text, sizeof text, "%zu more waiting nodes are gone, the last: %.300s",
                   g->waiters_gone.n, g->waiters_gone.last);
    g->waiters_gone.n = 0;
    group_incident(g, text);
}

static void waiter_gone(struct group *g, const char *text) {
    if (g->waiters_gone.n == 0 &&
        rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns)) {
        group_incident(g, text);
        return;
    }
    g->waiters_gone.n++;
    (void)snprintf(g->waiters_gone.last, sizeof g->waiters_gone.last, "%.500s", text);
}

static uint64_t waiters_gone_deadline(const struct group *g) {
    return g->waiters_gone.n > 0 ? rate_ready(&waiters_lines, g->waiters_gone.reported_ns)
                                 : TIME_NEVER;
}

void group_watch(struct group *g) {
    struct node *n;
    while ((n = liveness_silent(&g->liveness, g->now_ns)) != NULL)
        group_watch_node(g, n);
    look_at_watched(g);
    report_waiters_gone(g);
}

uint64_t group_watch_deadline(const struct group *g) {
    return MIN2(liveness_deadline(&g->liveness), waiters_gone_deadline(g));
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
    enum incident_class class = lost ? INCIDENT_NODE_LOST : INCIDENT_NODE_LEFT;
    /* the end of its connection, or else its last message */
    uint64_t symptom_ns = !lost ? g->now_ns : MAX2(n->contact_ns, n->connected ? 0 : n->cut_ns);
    group_add_to_timeline(g, lost ? TIMELINE_NODE_LOST : TIMELINE_NODE_LEFT, n, why)->from_ns =
        n->contact_ns;
    group_successor_lost(g, n, how);
    g->gathering.lost_somebody = g->gathering.lost_somebody || n->in_order;
    formation_lose(&g->formation, n, how == REMOVED_SILENT);
    if (had_place && lost)
        g->policy.losses++;
    roster_remove(&g->roster, n);
    (void)group_emit(g, GROUP_EFFECT_FORGET, incarnation);
    g->status.dirty = true;
    if (g->formation.started_once) {
        (void)snprintf(g->gathering.last_lost, sizeof g->gathering.last_lost, "%s", name);
        (void)snprintf(g->gathering.last_left, sizeof g->gathering.last_left, "%s",
                       lost ? "" : leaving);
        g->gathering.n_left += had_place && !lost;
    }
    if (g->state == GROUP_GATHERING && incarnation == g->incident.failure.incarnation &&
        g->incident.class != INCIDENT_NODE_LEFT) { /* the last leader: see inherit() */
        group_open_incident(g, class, name, incarnation, symptom_ns);
        (void)snprintf(g->reason, sizeof g->reason, "%s", text);
    }
    if (was_member && group_is_live(g) && !(finished && g->state == GROUP_RUNNING)) {
        group_stop_for_node(g, class, name, incarnation, symptom_ns, text);
    } else if (was_member && g->state == GROUP_STOPPING &&
               group_blame_lost_node(g, class, name, incarnation, outlived, text)) {
        return; /* STOP has reported it already */
    } else if (g->state == GROUP_CLOSED || announced) {
        return;
    } else if (had_place) {
        group_incident(g, text);
    } else {
        waiter_gone(g, text);
    }
}
