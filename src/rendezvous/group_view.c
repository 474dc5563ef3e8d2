/* What others may know of the group: what a node should be told, who is there. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/group_priv.h"

bool group_desired(const struct group *g, uint64_t node, struct desired *ret) {
    const struct node *n = idmap_get(&g->index, node);
    if (n == NULL)
        return false;
    struct desired d = {
        .kind = DESIRED_IDLE,
        .epoch = g->config.epoch,
        .generation = n->is_member ? g->generation : (struct generation){0, 0},
        .grace_ns = UINT64_MAX,
        .restarts_used = g->restarts_used,
        .max_restarts = g->config.max_restarts,
    };
    switch (g->state) {
    case GROUP_GATHERING: break;
    case GROUP_FORMING:
        if (n->is_member && g->form_told) {
            d.kind = DESIRED_FORM;
            d.form = n->form;
            d.form.store_port = g->store_port;
            memcpy(d.form.store_host, g->store_host, sizeof d.form.store_host);
        }
        break;
    case GROUP_RUNNING:
        if (n->is_member)
            d.kind = DESIRED_START;
        break;
    case GROUP_STOPPING:
        if (n->is_member)
            d.kind = DESIRED_STOP;
        break;
    case GROUP_CLOSED: d.kind = DESIRED_CLOSED; break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (d.kind == DESIRED_STOP || d.kind == DESIRED_CLOSED) {
        memcpy(d.reason, g->reason, sizeof d.reason);
        d.has_failure = g->has_cause && !g->cause_withheld && g->outcome != OUTCOME_SUCCESS;
        if (d.has_failure)
            d.failure = g->cause;
        d.will_restart = d.kind == DESIRED_STOP && !g->closing &&
                         (g->cause_withheld || !group_budget_spent(g));
        d.restarts_used += d.will_restart && g->charge_pending;
        d.n_stopping = g->n_stopping;
        d.outcome = d.kind == DESIRED_CLOSED ? g->outcome : OUTCOME_NONE;
    }
    *ret = d;
    return true;
}

void group_status(const struct group *g, uint64_t now_ns, struct rdzv_status *ret) {
    *ret = (struct rdzv_status){
        .min_nodes = g->config.min_nodes,
        .max_nodes = g->config.max_nodes,
        .present = (uint32_t)group_count_candidates(g),
        .last_call = g->enough_since_ns != TIME_NEVER,
        .wait_ns = TIME_NEVER,
    };
    uint64_t deadline = g->state == GROUP_GATHERING ? group_gather_deadline(g) : TIME_NEVER;
    if (deadline != TIME_NEVER)
        ret->wait_ns = deadline > now_ns ? deadline - now_ns : 0;
    bool *ranks = g->config.static_ranks ? xcalloc(g->config.max_nodes, sizeof *ranks) : NULL;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (!group_is_candidate(g, n)) {
            if (!n->connected && ret->n_missing < RDZV_STATUS_NAMES_MAX)
                (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", n->info.host);
            continue;
        }
        if (ret->n_names < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->names[ret->n_names++], RDZV_HOST_MAX, "%s", n->info.host);
        if (ranks != NULL)
            ranks[n->info.node_rank] = true;
    }
    for (uint32_t r = 0; ranks != NULL && r < g->config.max_nodes; r++)
        if (!ranks[r] && ret->n_missing < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "node rank %u", r);
    if (g->started_once && g->lost_somebody && ret->n_missing < RDZV_STATUS_NAMES_MAX)
        (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", g->last_lost);
    free(ranks);
}

enum group_state group_state(const struct group *g) { return g->state; }
struct generation group_generation(const struct group *g) { return g->generation; }
enum outcome group_outcome(const struct group *g) {
    return g->state == GROUP_CLOSED ? g->outcome : OUTCOME_NONE;
}
uint32_t group_restarts_used(const struct group *g) { return g->restarts_used; }

size_t group_nodes(const struct group *g, uint64_t *out, size_t max) {
    size_t i = 0;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (i < max)
            out[i] = n->info.incarnation;
        i++;
    }
    return i;
}

size_t group_members(const struct group *g, uint64_t *out, size_t max) {
    for (size_t i = 0; i < g->n_members && i < max; i++)
        out[i] = g->members[i]->info.incarnation;
    return g->n_members;
}

const struct node_info *group_node_info(const struct group *g, uint64_t node) {
    const struct node *n = idmap_get(&g->index, node);
    return n == NULL ? NULL : &n->info;
}

void group_check(const struct group *g) {
    assert(g->n_members <= g->config.max_nodes);
    assert(g->n_nodes <= RDZV_NODES_MAX);
    assert(g->state != GROUP_GATHERING || (g->n_members == 0 && !g->store_open));
    assert(g->state != GROUP_RUNNING || (g->form_told && g->store_open));
    assert(g->state != GROUP_CLOSED || (g->outcome != OUTCOME_NONE && !g->store_open));
    assert(!g->done || g->state == GROUP_CLOSED);
}
