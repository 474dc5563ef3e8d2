/* Logs which sick nodes a group leaves out or takes. parts/formation.c decides it. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

/* Its worker was the first to fail, or is blamed for the hang. */
static bool is_blamed(const struct group *g, const struct node *n) {
    return g->incident.n != 0 && g->cause.state != CAUSE_NONE &&
           g->cause.failure.incarnation == n->info.incarnation;
}

/* The node that took its place in the order of ranks; NULL: none did. */
static const struct node *replacement(const struct group *g) {
    uint32_t rank = g->cause.failure.node_rank;
    const struct node *n = rank < g->formation.n_members ? g->formation.members[rank] : NULL;
    return n != NULL && n->is_newcomer ? n : NULL;
}

/* "rank 12 (node b) died of SIGABRT 80 ms after Xid 79 on GPU 4 (0000:9d:00.0); node b is left out,
 * c takes its place" */
static void log_one(struct group *g, const struct node *n) {
    char name[RDZV_HOST_MAX], sick[NODE_SICK_TEXT_MAX];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    bool blamed = is_blamed(g, n);
    const struct node *by = blamed && !n->is_member ? replacement(g) : NULL;
    node_name(n, name);
    strbuf_add(&text, n->is_member ? "warning: " : "");
    size_t begin = text.len;
    if (blamed) {
        incident_cause_text(&g->incident, &text);
        strbuf_add(&text, "; ");
    }
    strbuf_printf(&text, "node %s is %s", blamed ? g->incident.node : name,
                  !n->is_member ? "left out"
                  : g->roster.sick_are_fit
                      ? "sick and takes part (--sick-nodes=report)"
                      : "sick and takes part, as there are too few other nodes");
    if (by != NULL) {
        node_name(by, name);
        strbuf_printf(&text, ", %s takes its place", name);
    }
    node_sick_text(n, sick);
    if (!blamed)
        strbuf_printf(&text, ": %s", sick);
    group_notice(g, strbuf_text(&text));
    if (!blamed)
        return;
    /* it says more than the failure alone */
    (void)snprintf(g->last_event.text, sizeof g->last_event.text, "%.500s", text.data + begin);
    g->last_event.has_failure = false;
}

void group_log_sick(struct group *g) {
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (n->report.sick == NULL || (!n->is_member && !node_is_sick(&g->roster, n)))
            continue;
        bool known = n->sick_logged == (n->is_member ? SICK_TAKEN : SICK_LEFT_OUT);
        n->sick_logged = n->is_member ? SICK_TAKEN : SICK_LEFT_OUT;
        if (!known)
            log_one(g, n);
    }
}
