/* What stopped a group, what was done about it, and the lines about both. */
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "rendezvous/leader/group_priv.h"

static void write_incident(struct group *g) {
    struct incident *i = &g->incident;
    if (i->n != 0) {
        i->restarts_used = g->policy.restarts_used;
        i->max_restarts = g->config.rdzv.max_restarts;
        struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_INCIDENT, NULL, NULL);
        entry->generation = i->generation;
        entry->incident = *i;
    }
    *i = (struct incident){.last_step = i->last_step};
}

void group_open_incident(struct group *g, enum incident_class class, const char *node,
                         uint64_t incarnation, uint64_t symptom_ns) {
    struct incident *i = &g->incident;
    if (i->started_ns != 0)
        write_incident(g); /* the group that it led to has reported no step */
    if (i->n != 0)
        return; /* the first one counts until a group has started again */
    if (i->class == INCIDENT_NONE)
        *i = (struct incident){.generation = g->formation.generation,
                               .gpu = -1,
                               .began_ns = g->running.since_ns,
                               .symptom_ns = symptom_ns,
                               .noticed_ns = g->now_ns,
                               .last_step = i->last_step,
                               .old_nodes = (uint32_t)g->formation.n_order};
    i->class = class;
    i->failure = (struct failure){.incarnation = incarnation};
    (void)snprintf(i->failure.node, sizeof i->failure.node, "%s", node);
}

void group_settle_incident(struct group *g) {
    struct incident *i = &g->incident;
    const struct cause *c = &g->cause;
    char sick[RDZV_SICK_MAX + 32] = "";
    if (i->class == INCIDENT_NONE || i->n != 0 || g->outcome == OUTCOME_SUCCESS)
        return;
    if (c->state == CAUSE_NONE) {
        utf8_copy_line(i->cause, sizeof i->cause, g->reason);
    } else {
        const struct node *n = roster_find(&g->roster, c->failure.incarnation);
        i->class = c->failure.kind == FAILURE_HANG ? INCIDENT_HANG : INCIDENT_WORKER;
        if (c->at_ns > 0 && i->class == INCIDENT_WORKER)
            i->symptom_ns = MIN2(i->symptom_ns, (uint64_t)c->at_ns);
        i->failure = c->failure;
        if (n != NULL && n->report.sick != NULL) {
            i->class = INCIDENT_HEALTH;
            i->xid = n->report.xid;
            i->gpu = n->report.gpu;
            (void)snprintf(sick, sizeof sick, "%s%s",
                           i->xid == 0                         ? ", and the node is not fit: "
                           : c->failure.kind == FAILURE_SIGNAL ? " "
                                                               : ", ",
                           n->report.sick);
        }
        failure_copy_line(&i->failure, sick, i->cause, sizeof i->cause);
    }
    g->history.incidents[i->class]++;
    for (int k = 0; k < INCIDENT_CLASS_COUNT; k++)
        i->n += g->history.incidents[k];
}

/* "rank 12 (node b) died of SIGABRT 80 ms after Xid 79 on GPU 4 (0000:9d:00.0); node b is left out,
 * c takes its place" */
static void log_sick_node(struct group *g, const struct node *n) {
    const struct incident *i = &g->incident;
    bool blamed = i->class == INCIDENT_HEALTH && i->failure.incarnation == n->info.incarnation;
    char name[RDZV_HOST_MAX], sick[NODE_SICK_TEXT_MAX];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    node_name(n, name);
    node_sick_text(n, sick);
    strbuf_add(&text, n->is_member ? "warning: " : "");
    size_t begin = text.len;
    strbuf_printf(&text, "%s%snode %s is %s", blamed ? i->cause : "", blamed ? "; " : "",
                  blamed ? i->failure.node : name,
                  !n->is_member ? "left out"
                  : g->roster.sick_are_fit
                      ? "sick and takes part (--sick-nodes=report)"
                      : "sick and takes part, as there are too few other nodes");
    if (!blamed)
        strbuf_printf(&text, ": %s", sick);
    else if (!n->is_member && i->action == INCIDENT_SPARE)
        strbuf_printf(&text, ", %s takes its place", i->taker);
    group_notice(g, strbuf_text(&text));
    if (blamed) /* it says more than the failure alone */
        utf8_copy(g->last_event.text, sizeof g->last_event.text, text.data + begin);
}

static void log_sick_nodes(struct group *g) {
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (n->report.sick == NULL || (!n->is_member && !node_is_sick(&g->roster, n)))
            continue;
        bool known = n->sick_logged == (n->is_member ? SICK_TAKEN : SICK_LEFT_OUT);
        n->sick_logged = n->is_member ? SICK_TAKEN : SICK_LEFT_OUT;
        if (!known)
            log_sick_node(g, n);
    }
}

void group_form_incident(struct group *g) {
    struct incident *i = &g->incident;
    size_t kept = 0, n_members = g->formation.n_members;
    group_settle_incident(g);
    if (i->stopped_ns == 0 && i->class != INCIDENT_NONE)
        i->stopped_ns = g->now_ns; /* the workers stopped because the last leader was lost */
    for (size_t m = 0; m < n_members; m++) {
        const struct node *n = g->formation.members[m];
        if (!n->is_newcomer)
            kept++;
        else if (i->taker[0] == '\0')
            node_name(n, i->taker);
    }
    const struct node *n = roster_find(&g->roster, i->failure.incarnation);
    i->left_out = n == NULL || !n->is_member;
    i->action = n_members < i->old_nodes                  ? INCIDENT_SHRINK
                : kept < n_members && kept < i->old_nodes ? INCIDENT_SPARE
                                                          : INCIDENT_RESTART;
    log_sick_nodes(g);
}

void group_start_incident(struct group *g) {
    struct incident *i = &g->incident;
    if (i->class == INCIDENT_NONE) { /* the group grew, or it is the first */
        *i = (struct incident){0};
        return;
    }
    i->next = g->formation.generation;
    i->started_ns = g->now_ns;
    i->n_nodes = (uint32_t)g->formation.n_members;
    i->world_size = g->formation.world_size;
    g->history.down_ns += i->started_ns - i->symptom_ns;
    if (i->last_step == 0)
        write_incident(g); /* nothing that it could still learn is reported */
}

void group_end_incident(struct group *g) {
    if (g->incident.started_ns == 0)
        g->incident.action = INCIDENT_END;
    write_incident(g);
}

void group_on_steps(struct group *g, const struct report *report) {
    struct incident *i = &g->incident;
    bool is_current = generation_compare(report->generation, g->formation.generation) == 0;
    if (i->started_ns == 0) {
        if (is_current)
            i->last_step = MAX2(i->last_step, report->last_step);
        return;
    }
    if (!is_current || report->first_step == 0)
        return;
    i->first_step_ns = g->now_ns;
    i->steps_lost = i->last_step - MIN2(i->last_step, report->first_step - 1);
    g->history.steps_lost += i->steps_lost;
    write_incident(g);
    i->last_step = report->last_step;
}
