/* The effects of a step, and the texts and records to which they point. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

struct group_effect *group_emit(struct group *g, enum group_effect_kind kind, uint64_t node) {
    struct group_update *u = g->effects.update;
    if (u->n_effects == u->cap) {
        u->cap = u->cap == 0 ? 16 : u->cap * 2;
        u->effects = xrealloc(u->effects, u->cap * sizeof *u->effects);
    }
    u->effects[u->n_effects] = (struct group_effect){.kind = kind, .node = node};
    return &u->effects[u->n_effects++];
}

void group_notify(struct group *g, const struct node *n) {
    if (n->connected)
        (void)group_emit(g, GROUP_EFFECT_DESIRED, n->info.incarnation);
}

void group_notify_members(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        group_notify(g, g->formation.members[i]);
}

void group_notify_all(struct group *g) {
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        group_notify(g, n);
}

/* The text must outlive the step, so all texts are stored in the group, one after the other.
 * Offsets become pointers when the step ends, because the buffer can move while it grows. */
void group_set_reason(struct group *g, struct group_effect *e, const char *text) {
    e->n_nodes = (uint32_t)g->effects.texts.len;
    strbuf_add_bytes(&g->effects.texts, text, strlen(text) + 1);
}

void group_notice(struct group *g, const char *text) {
    g->last_event = (struct last_event){.at_ns = g->now_ns};
    (void)snprintf(g->last_event.text, sizeof g->last_event.text, "%s", text);
    group_set_reason(g, group_emit(g, GROUP_EFFECT_NOTICE, 0), text);
}

struct timeline_entry *group_add_to_timeline(struct group *g, enum timeline_kind kind,
                                             const struct node *n, const char *why) {
    if (g->effects.n_entries == g->effects.cap_entries) {
        g->effects.cap_entries = g->effects.cap_entries == 0 ? 8 : g->effects.cap_entries * 2;
        g->effects.entries =
            xrealloc(g->effects.entries, g->effects.cap_entries * sizeof *g->effects.entries);
    }
    struct group_effect *e = group_emit(g, GROUP_EFFECT_TIMELINE, 0);
    e->n_nodes = (uint32_t)g->effects.n_entries;
    struct timeline_entry *entry = &g->effects.entries[g->effects.n_entries++];
    *entry = (struct timeline_entry){
        .kind = kind, .at_ns = g->now_ns, .generation = g->formation.generation};
    if (entry->generation.counter == 0) /* no group yet: only the leader's state */
        entry->generation.epoch = g->leadership.epoch;
    if (n != NULL) {
        entry->node = n->info.incarnation;
        node_name(n, entry->name);
    }
    (void)snprintf(entry->why, sizeof entry->why, "%s", why == NULL ? "" : why);
    return entry;
}

void group_resolve_effects(struct group *g) {
    for (size_t i = 0; i < g->effects.update->n_effects; i++) {
        struct group_effect *e = &g->effects.update->effects[i];
        if (e->kind == GROUP_EFFECT_NOTICE || e->kind == GROUP_EFFECT_REFUSE ||
            e->kind == GROUP_EFFECT_ANSWER) {
            e->reason = g->effects.texts.data + e->n_nodes;
            e->n_nodes = 0;
        } else if (e->kind == GROUP_EFFECT_TIMELINE) {
            e->entry = &g->effects.entries[e->n_nodes];
            e->n_nodes = 0;
        } else if (e->kind == GROUP_EFFECT_ARBITER) {
            e->request = &g->effects.requests[e->n_nodes];
            e->n_nodes = 0;
        }
    }
}
