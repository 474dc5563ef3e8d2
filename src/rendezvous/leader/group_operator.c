/* Commands of operators. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static void answer(struct group *g, bool ok, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_ANSWER, 0);
    e->ok = ok;
    group_set_reason(g, e, text);
}

/* Finds a node by name or incarnation. *ret_several: several nodes have this name. */
static struct node *find_named(const struct group *g, const char *name, bool *ret_several) {
    char text[RDZV_HOST_MAX];
    struct node *found = NULL;
    *ret_several = false;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (n->joined_ns == 0)
            continue;
        (void)snprintf(text, sizeof text, "%016" PRIx64, n->info.incarnation);
        if (strcmp(text, name) == 0)
            return n;
        node_name(n, text);
        if (strcmp(text, name) != 0)
            continue;
        *ret_several = found != NULL;
        found = n;
    }
    return found;
}

static void on_exclude(struct group *g, const struct command *c) {
    char text[3 * RDZV_HOST_MAX];
    bool several;
    struct node *n = find_named(g, c->node, &several);
    if (several) {
        (void)snprintf(
            text, sizeof text,
            "several nodes have the name \"%s\"; give the ID that \"muster status\" shows",
            c->node);
        answer(g, false, text);
        return;
    }
    if (n == NULL) {
        (void)snprintf(text, sizeof text,
                       "there is no node \"%s\"; \"muster status\" shows the names", c->node);
        answer(g, false, text);
        return;
    }
    bool member = n->is_member && group_is_live(g);
    char name[RDZV_HOST_MAX];
    node_name(n, name);
    group_exclude(g, n, c->reason[0] != '\0' ? c->reason : "an operator asked");
    (void)snprintf(text, sizeof text, "node %s is excluded%s", name,
                   member ? ", and leaves the group" : "");
    answer(g, true, text);
    if (member) {
        g->incident.detected_ns = g->now_ns;
        (void)snprintf(text, sizeof text, "node %s was excluded", name);
        group_stop_for_lost_node(g, text, true);
    }
}

static void on_grow(struct group *g) {
    if (g->state != GROUP_RUNNING) {
        g->running.grow_asked = false;
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED
                   ? "the job is over"
                   : "the next group includes all nodes that have joined by then");
    } else if (group_larger(g) == 0) {
        answer(g, false,
               g->formation.n_members >= g->config.rdzv.max_nodes
                   ? "the group already has its largest number of nodes"
                   : "no waiting node would make the group larger");
    } else {
        g->running.grow_asked = true;
        answer(g, true, "the group re-forms with the waiting nodes");
    }
}

void group_on_command(struct group *g, const struct command *c) {
    char text[sizeof c->reason + 64];
    switch (c->kind) {
    case COMMAND_EXCLUDE: on_exclude(g, c); break;
    case COMMAND_GROW: on_grow(g); break;
    case COMMAND_STOP:
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED ? "the job is over already" : "the job is being stopped");
        (void)snprintf(text, sizeof text, "an operator stopped the job%s%s",
                       c->reason[0] != '\0' ? ": " : "", c->reason);
        group_stop_for_operator(g, text, true);
        break;
    case COMMAND_STATUS: /* handled by the server */
    case COMMAND_STACKS:
    case COMMAND_LEAVE: /* handled by the agent */
    case COMMAND_KIND_COUNT: answer(g, false, "the leader can't carry out this command"); break;
    }
}
