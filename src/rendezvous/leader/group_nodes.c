/* Nodes coming and going, and what is counted of them. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

struct node *group_find(const struct group *g, uint64_t incarnation) {
    return incarnation == 0 ? NULL : idmap_get(&g->index, incarnation);
}

void group_node_name(const struct node *n, char out[RDZV_HOST_MAX]) {
    if (n->is_member && n->place.host_index > 0)
        (void)snprintf(out, RDZV_HOST_MAX, "%.110s-%u", n->info.host, n->place.host_index + 1);
    else
        (void)snprintf(out, RDZV_HOST_MAX, "%s", n->info.host);
}

void group_unusable_text(const struct node *n, char out[RDZV_REASON_MAX]) {
    char name[RDZV_HOST_MAX];
    group_node_name(n, name);
    (void)snprintf(out, RDZV_REASON_MAX, "node %s can't take part any more: %.1800s", name,
                   n->report.unusable);
}

/* ---- counting ---- */

#define BIT(tally) (1u << (tally))

static unsigned of_member(const struct group *g, const struct node *n) {
    if (!n->is_member)
        return 0;
    bool prepared = group_report_is_about(g, n, NODE_PREPARED);
    bool finished = group_report_is_about(g, n, NODE_FINISHED);
    bool stopped = group_report_is_about(g, n, NODE_STOPPED) || n->report.state == NODE_CLOSED ||
                   n->report.unusable[0] != '\0';
    bool safe =
        n->report.at_safe_point && generation_compare(n->report.generation, g->generation) == 0;
    return prepared * BIT(TALLY_PREPARED) | finished * BIT(TALLY_FINISHED) |
           stopped * BIT(TALLY_STOPPED) | safe * BIT(TALLY_SAFE) | !n->connected * BIT(TALLY_AWAY);
}

/* Something of an older group may run there. A group without it might run beside it, or would have
 * to be torn down when it comes back. */
static bool is_unresolved(const struct node *n) {
    bool ours = n->in_order || n->joined_ns == 0;
    if (n->connected)
        return !group_has_stopped(n) && n->report.unusable[0] == '\0' &&
               n->report.state != NODE_CLOSED;
    return ours && !(n->report.leaving && group_has_stopped(n));
}

static unsigned tallies_of(const struct group *g, const struct node *n) {
    bool may = group_may_take_part(n);
    bool is_there = n->connected && (!n->watched || n->in_order); /* a newcomer must be heard */
    bool candidate = may && is_there && group_has_stopped(n);
    bool old_finished = n->was_old_member && n->report.finished &&
                        generation_compare(n->report.generation, g->old_generation) == 0;
    return may * BIT(TALLY_HOPEFUL) | candidate * BIT(TALLY_CANDIDATE) |
           (candidate && !n->is_member) * BIT(TALLY_WAITING) |
           is_unresolved(n) * BIT(TALLY_UNRESOLVED) |
           (n->report.state == NODE_CLOSED) * BIT(TALLY_CLOSED) |
           old_finished * BIT(TALLY_OLD_FINISHED) | n->report.excluded * BIT(TALLY_EXCLUDED) |
           of_member(g, n);
}

static void set_tallies(struct group *g, struct node *n, unsigned now) {
    unsigned changed = n->tallied ^ now;
    n->tallied = now;
    for (unsigned t = 0; changed != 0; t++, changed >>= 1) {
        if ((changed & 1) != 0 && (now & BIT(t)) != 0)
            g->tally[t]++;
        else if ((changed & 1) != 0)
            g->tally[t]--;
    }
}

void group_recount(struct group *g, struct node *n) { set_tallies(g, n, tallies_of(g, n)); }

void group_recount_all(struct group *g) {
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all)
        group_recount(g, n);
}

/* ---- coming ---- */

static void refuse(struct group *g, uint64_t node, const char *text, bool for_now) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->for_now = for_now;
    group_set_reason(g, e, text);
}

static uint64_t hash_text(const char *text) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return h == 0 ? 1 : h;
}

static const char *static_refusal(const struct group *g, const struct node_info *info,
                                  bool *ret_for_now) {
    if (info->node_rank < 0)
        return "this job gives ranks by --node-rank, and this node has none";
    if ((uint32_t)info->node_rank >= g->config.max_nodes)
        return "its --node-rank is not below the number of nodes (--nnodes)";
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all)
        if (n->info.node_rank == info->node_rank && n->connected) {
            /* The same host again: it was restarted, and its former life is not given up yet. */
            *ret_for_now = strcmp(n->info.host, info->host) == 0;
            return "another node has the same --node-rank; give each its own";
        }
    return NULL;
}

static enum job_stage stage_of(const struct group *g) {
    if (!g->formed_here)
        return JOB_WITHOUT_GROUP;
    return g->tally[TALLY_HOPEFUL] < g->config.max_nodes ? JOB_WITH_ROOM : JOB_FULL;
}

static const char *refusal(struct group *g, const struct node_info *info,
                           const struct rdzv_program *program, bool *ret_for_now,
                           char text[RDZV_REASON_MAX]) {
    *ret_for_now = false;
    if (program != NULL &&
        programs_refuse(&g->programs, stage_of(g), info->role, program, text, RDZV_REASON_MAX))
        return text;
    if (info->nproc == 0 || info->nproc > RDZV_WORKERS_MAX)
        return "its number of workers is out of range";
    if (g->n_nodes >= RDZV_NODES_MAX)
        return "the job has as many nodes as it can hold";
    if (idmap_get(&g->roles, hash_text(info->role)) == NULL) {
        if (g->roles.len >= GROUP_ROLES_MAX)
            return "the job has as many different roles as it can hold";
        idmap_put(&g->roles, hash_text(info->role), g);
    }
    if (g->config.static_ranks)
        return static_refusal(g, info, ret_for_now);
    if (g->config.spares != UINT32_MAX &&
        g->tally[TALLY_HOPEFUL] >= (size_t)g->config.max_nodes + g->config.spares) {
        *ret_for_now = true;
        return "the job has all its nodes, and as many spares as it wants (--spares)";
    }
    return NULL;
}

struct node *group_add_node(struct group *g, const struct node_info *info) {
    struct node *n = xcalloc(1, sizeof *n);
    n->info = *info;
    n->join_order = ++g->join_counter;
    n->probe_ns = n->lost_at_ns = TIME_NEVER;
    n->report.state = NODE_JOINED;
    list_init(&n->by_all);
    list_init(&n->by_heard);
    list_append(&g->nodes, &n->by_all);
    idmap_put(&g->index, info->incarnation, n);
    g->n_nodes++;
    return n;
}

struct node *group_admit(struct group *g, const struct node_info *info,
                         const struct rdzv_program *program) {
    bool for_now;
    char text[RDZV_REASON_MAX];
    const char *why = refusal(g, info, program, &for_now, text);
    if (why != NULL) {
        refuse(g, info->incarnation, why, for_now);
        return NULL;
    }
    struct node *n = group_add_node(g, info);
    if (g->n_nodes <= GROUP_REACH_AT_ONCE)
        (void)group_emit(g, GROUP_EFFECT_REACH, info->incarnation);
    return n;
}

/* ---- going ---- */

static void drop_member(struct group *g, const struct node *n) {
    size_t kept = 0;
    for (size_t i = 0; i < g->n_members; i++)
        if (g->members[i] != n)
            g->members[kept++] = g->members[i];
    g->n_members = kept;
}

static void note_removal(struct group *g, const struct node *n, const char *why, enum removal how) {
    bool lost = how != REMOVED_LEFT;
    struct group_note *note = group_add_note(g, lost ? NOTE_NODE_LOST : NOTE_NODE_LEFT, n, why);
    note->detected_ns = n->heard_ns;
    if (!n->is_member || !group_is_live(g))
        return;
    g->detected_ns = lost ? n->heard_ns : g->now_ns;
}

void group_remove_node(struct group *g, struct node *n, const char *why, enum removal how) {
    char name[RDZV_HOST_MAX];
    group_node_name(n, name);
    bool was_member = n->is_member, in_order = n->in_order, lost = how != REMOVED_LEFT;
    bool finished = group_report_is_about(g, n, NODE_FINISHED);
    char text[RDZV_REASON_MAX];
    (void)snprintf(text, sizeof text, "node %s %s", name, why);
    note_removal(g, n, why, how);
    group_successor_lost(g, n, how);
    g->n_lease_pending -= n->lease_pending;
    uint64_t incarnation = n->info.incarnation;
    bool outlived = group_outlived_failure(g, n);
    if (was_member)
        drop_member(g, n);
    g->lost_somebody = g->lost_somebody || in_order;
    g->n_last_lost += in_order && how != REMOVED_SILENT;
    g->n_fell_silent += how == REMOVED_SILENT;
    set_tallies(g, n, 0);
    (void)group_emit(g, GROUP_EFFECT_FORGET, n->info.incarnation);
    idmap_remove(&g->index, n->info.incarnation);
    list_remove(&n->by_heard);
    list_remove(&n->by_all);
    g->n_nodes--;
    g->policy.losses += (was_member || in_order) && lost;
    free(n);
    g->status_dirty = true;
    if (g->started_once)
        (void)snprintf(g->last_lost, sizeof g->last_lost, "%s", name);
    if (was_member && group_is_live(g) && !(finished && g->state == GROUP_RUNNING)) {
        group_stop_for_lost_node(g, text);
        g->stop_wished = !lost;
    } else if (was_member && g->state == GROUP_STOPPING &&
               group_blame_lost_node(g, incarnation, outlived, text)) {
        g->stop_wished = !lost; /* it was said with STOP */
    } else if (g->state != GROUP_CLOSED && (was_member || in_order)) {
        group_incident(g, text);
    } else if (g->state != GROUP_CLOSED) {
        group_waiter_gone(g, text);
    }
}
