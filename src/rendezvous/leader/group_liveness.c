/* Silent and disconnected nodes: carries out what parts/liveness.c decides about them. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

static void probe_node(struct group *g, const struct node *n) {
    (void)group_emit(g, GROUP_EFFECT_PROBE, n->info.incarnation);
}

void group_watch_node(struct group *g, struct node *n) {
    if (liveness_watch(&g->liveness, &g->config, n, g->now_ns))
        probe_node(g, n);
    group_recount(g, n);
}

void group_contact(struct group *g, struct node *n) {
    if (liveness_contact(&g->liveness, n, g->now_ns))
        group_recount(g, n);
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

/* The leader itself slept. Messages that nodes sent meanwhile are still in its sockets, so their
 * silence means nothing. It is always safe to count from a later time. */
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
        switch (liveness_scan_next(&g->liveness, &g->config, &scan, g->now_ns, &n)) {
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

void group_watch(struct group *g) {
    struct node *n;
    while ((n = liveness_silent(&g->liveness, &g->config, g->now_ns)) != NULL)
        group_watch_node(g, n);
    look_at_watched(g);
    group_report_waiters_gone(g);
}

uint64_t group_watch_deadline(const struct group *g) {
    return MIN2(liveness_deadline(&g->liveness, &g->config), group_waiters_gone_deadline(g));
}
