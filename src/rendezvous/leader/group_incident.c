/* Incidents: what stopped a group, what was done about it, and their lines in the timeline. */
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "rendezvous/leader/group_priv.h"

static void write_incident(struct group *g) {
    struct incident *i = &g->incident;
    if (i->n != 0) {
        struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_INCIDENT, NULL, NULL);
        entry->generation = i->generation;
        entry->incident = *i;
    }
    *i = (struct incident){0};
}

void group_open_incident(struct group *g, enum incident_class class, const char *node,
                         uint64_t incarnation, uint64_t symptom_ns) {
    struct incident *i = &g->incident;
    uint64_t last_step = i->last_step;
    g->stopping.symptom_ns = symptom_ns;
    if (i->started_ns != 0)
        write_incident(g); /* the group that it led to has reported no step */
    if (i->class != INCIDENT_NONE)
        return; /* the first one counts until a group has started again */
    *i = (struct incident){.class = class,
                           .generation = g->formation.generation,
                           .incarnation = incarnation,
                           .gpu = -1,
                           .began_ns = g->running.since_ns,
                           .symptom_ns = symptom_ns,
                           .noticed_ns = g->now_ns,
                           .last_step = last_step,
                           .old_nodes = (uint32_t)g->formation.n_order};
    (void)snprintf(i->node, sizeof i->node, "%s", node);
}

void group_blame_incident(struct group *g, enum incident_class class, const char *node,
                          uint64_t incarnation, const char *cause) {
    struct incident *i = &g->incident;
    if (i->n != 0)
        return;
    i->class = class;
    i->incarnation = incarnation;
    (void)snprintf(i->node, sizeof i->node, "%s", node);
    utf8_copy_line(i->cause, sizeof i->cause, cause);
}

/* The failure that stopped the group. */
static void add_failure(struct incident *i, const struct cause *c) {
    const struct failure *f = &c->failure;
    i->class = f->kind == FAILURE_HANG ? INCIDENT_HANG : INCIDENT_WORKER;
    i->failure = f->kind;
    i->code = f->code;
    i->has_rank = f->kind != FAILURE_NODE && f->incarnation != 0;
    i->rank = f->rank;
    i->local_rank = f->local_rank;
    i->incarnation = f->incarnation;
    (void)snprintf(i->node, sizeof i->node, "%s", f->node);
    if (c->at_ns > 0 && f->kind != FAILURE_HANG)
        i->symptom_ns = MIN2(i->symptom_ns, (uint64_t)c->at_ns);
    char text[RDZV_REASON_MAX / 4];
    cause_text(c, text, sizeof text);
    utf8_copy_line(i->cause, sizeof i->cause, text);
}

void group_settle_incident(struct group *g) {
    struct incident *i = &g->incident;
    if (i->class == INCIDENT_NONE || i->n != 0 || g->outcome == OUTCOME_SUCCESS)
        return;
    bool failed = i->class == INCIDENT_WORKER || i->class == INCIDENT_HANG;
    if (failed && g->cause.state != CAUSE_NONE)
        add_failure(i, &g->cause);
    else if (i->cause[0] == '\0')
        utf8_copy_line(i->cause, sizeof i->cause, g->reason);
    const struct node *n = roster_find(&g->roster, i->incarnation);
    if (failed && n != NULL && n->report.sick != NULL) {
        i->class = INCIDENT_HEALTH;
        (void)snprintf(i->sick, sizeof i->sick, "%s", n->report.sick);
        i->xid = n->report.xid;
        i->gpu = n->report.gpu;
    }
    g->history.incidents[i->class]++;
    for (int c = 0; c < INCIDENT_CLASS_COUNT; c++)
        i->n += g->history.incidents[c];
}

static void take_budget(const struct group *g, struct incident *i) {
    i->restarts_used = g->policy.restarts_used;
    i->max_restarts = g->config.rdzv.max_restarts;
}

void group_start_incident(struct group *g) {
    struct incident *i = &g->incident;
    size_t kept = 0, n_members = g->formation.n_members;
    if (i->class == INCIDENT_NONE) { /* the group grew, or it is the first */
        *i = (struct incident){0};
        return;
    }
    for (size_t m = 0; m < n_members; m++) {
        const struct node *n = g->formation.members[m];
        if (!n->is_newcomer)
            kept++;
        else if (i->taker[0] == '\0')
            node_name(n, i->taker);
    }
    const struct node *n = roster_find(&g->roster, i->incarnation);
    i->left_out = n == NULL || !n->is_member;
    i->action = n_members < i->old_nodes                  ? INCIDENT_SHRINK
                : kept < n_members && kept < i->old_nodes ? INCIDENT_SPARE
                                                          : INCIDENT_RESTART;
    i->next = g->formation.generation;
    i->started_ns = g->now_ns;
    i->n_nodes = (uint32_t)n_members;
    i->world_size = g->formation.world_size;
    take_budget(g, i);
    g->history.down_ns += i->started_ns - i->symptom_ns;
    if (i->last_step == 0)
        write_incident(g); /* nothing that it could still learn is reported */
}

void group_end_incident(struct group *g) {
    struct incident *i = &g->incident;
    if (i->started_ns == 0) {
        i->action = INCIDENT_END;
        take_budget(g, i);
    }
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
    i->has_steps_lost = true;
    i->steps_lost = i->last_step - MIN2(i->last_step, report->first_step - 1);
    g->history.steps_lost += i->steps_lost;
    write_incident(g);
    i->last_step = report->last_step;
}
