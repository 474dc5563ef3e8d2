/* What others can see of the group: the messages to nodes, and the status. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* The state of the nodes does not change until the outcome is recorded. */
static enum group_state state_to_show(const struct group *g) {
    return g->closed.record == OUTCOME_WAITS || g->closed.record == OUTCOME_GIVEN_UP
               ? g->closed.from
               : g->state;
}

static void desire_idle(const struct group *g, const struct node *n, struct desired *d) {
    d->excluded = n->report.excluded;
    d->spare = group_is_live(g) && !n->is_member;
    if (d->excluded)
        (void)snprintf(d->reason, sizeof d->reason, "%s", n->report.excluded_why);
}

static void add_neighbour(struct form *f, const struct node_info *info) {
    struct rdzv_neighbour *n = &f->neighbours[f->n_neighbours++];
    n->incarnation = info->incarnation;
    memcpy(n->host, info->host, sizeof n->host);
    memcpy(n->nets, info->nets, sizeof n->nets);
    n->listener_port = info->listener_port;
}

/* The nodes that a node tries to reach before it is prepared: its neighbours in the ring of node
 * ranks, in both directions. */
static void fill_neighbours(const struct group *g, struct form *f) {
    size_t n = g->formation.n_members, next = (f->node_rank + 1) % n,
           before = (f->node_rank + n - 1) % n;
    f->n_neighbours = 0;
    if (n > 1)
        add_neighbour(f, &g->formation.members[next]->info);
    if (n > 2)
        add_neighbour(f, &g->formation.members[before]->info);
}

static void fill_form(const struct group *g, const struct node *n, struct form *ret) {
    const struct place *p = &n->place;
    *ret = (struct form){
        .node_rank = p->node_rank,
        .n_nodes = p->n_nodes,
        .first_rank = p->first_rank,
        .world_size = p->world_size,
        .role_first_rank = p->role_first_rank,
        .role_world_size = p->role_world_size,
        .host_index = p->host_index,
        .store_port = g->forming.store_port,
        .restarts_used = p->restarts_used,
        .max_restarts = g->config.rdzv.max_restarts,
        .losses = p->losses,
        .log_nonce = g->config.log_nonce,
        .job_ns = group_job_ns(g, g->now_ns),
    };
    memcpy(ret->store_host, g->forming.store_host, sizeof ret->store_host);
    fill_neighbours(g, ret);
}

static void desire_end(const struct group *g, struct desired *d) {
    memcpy(d->reason, g->reason, sizeof d->reason);
    d->has_failure = group_shows_cause(g) && g->outcome != OUTCOME_SUCCESS;
    if (d->has_failure)
        d->failure = g->cause.failure;
    d->will_restart = d->kind == DESIRED_STOP && g->stopping.after == AFTER_STOP_GATHERING &&
                      g->cause.state != CAUSE_IN_DOUBT && !group_budget_spent(g) &&
                      !group_is_crash_loop(g);
    d->restarts_used += d->will_restart && cause_is_pending(&g->cause);
    d->n_stopping = g->stopping.n_workers;
    d->outcome = d->kind == DESIRED_CLOSED ? g->outcome : OUTCOME_NONE;
    d->no_fault = d->outcome == OUTCOME_FAILED && !d->has_failure && !g->closed.halted;
}

bool group_desired(const struct group *g, uint64_t node, struct desired *ret) {
    const struct node *n = roster_find(&g->roster, node);
    if (n == NULL)
        return false;
    struct desired d = {
        .kind = DESIRED_IDLE,
        .epoch = g->leadership.epoch,
        .generation = n->is_member ? g->formation.generation : (struct generation){0, 0},
        .grace_ns = UINT64_MAX,
        .restarts_used = g->policy.restarts_used,
        .max_restarts = g->config.rdzv.max_restarts,
        .losses = g->policy.losses,
    };
    switch (state_to_show(g)) {
    case GROUP_GATHERING: break;
    case GROUP_FORMING:
        if (n->is_member && g->forming.sent) {
            d.kind = DESIRED_FORM;
            fill_form(g, n, &d.form);
        }
        break;
    case GROUP_RUNNING:
        if (n->is_member) {
            d.kind = DESIRED_START;
            d.reachability = g->running.reachability;
        }
        break;
    case GROUP_STOPPING:
        if (n->is_member)
            d.kind = DESIRED_STOP;
        break;
    case GROUP_CLOSED:
        d.kind = DESIRED_CLOSED;
        d.grace_ns = g->leadership.ruined ? g->leadership.ruin_grace_ns : UINT64_MAX;
        break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (d.kind == DESIRED_IDLE)
        desire_idle(g, n, &d);
    if (d.kind == DESIRED_STOP || d.kind == DESIRED_CLOSED)
        desire_end(g, &d);
    *ret = d;
    return true;
}

void group_status(const struct group *g, uint64_t now_ns, struct rdzv_status *ret) {
    size_t present = g->roster.tally[TALLY_CANDIDATE];
    *ret = (struct rdzv_status){
        .min_nodes = g->need,
        .max_nodes = g->config.rdzv.max_nodes,
        .present = (uint32_t)present,
        .spares =
            present > g->config.rdzv.max_nodes ? (uint32_t)present - g->config.rdzv.max_nodes : 0,
        .last_call = g->gathering.enough_since_ns != TIME_NEVER,
        .wait_ns = TIME_NEVER,
    };
    uint64_t deadline = g->state == GROUP_GATHERING ? group_gather_deadline(g) : TIME_NEVER;
    if (deadline != TIME_NEVER)
        ret->wait_ns = deadline > now_ns ? deadline - now_ns : 0;
    roster_status(&g->roster, &g->config, ret);
    if (g->formation.started_once && g->gathering.lost_somebody &&
        g->gathering.last_lost[0] != '\0' && ret->n_missing < RDZV_STATUS_NAMES_MAX)
        (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", g->gathering.last_lost);
}

enum group_state group_state(const struct group *g) { return g->state; }
struct generation group_generation(const struct group *g) {
    return g->formation.generation;
}
enum outcome group_outcome(const struct group *g) {
    return g->state == GROUP_CLOSED ? g->outcome : OUTCOME_NONE;
}
uint32_t group_restarts_used(const struct group *g) { return g->policy.restarts_used; }

size_t group_nodes(const struct group *g, uint64_t *out, size_t max) {
    size_t i = 0;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (i < max)
            out[i] = n->info.incarnation;
        i++;
    }
    return i;
}

size_t group_members(const struct group *g, uint64_t *out, size_t max) {
    for (size_t i = 0; i < g->formation.n_members && i < max; i++)
        out[i] = g->formation.members[i]->info.incarnation;
    return g->formation.n_members;
}

bool group_clock_offset(const struct group *g, uint64_t node, int64_t *ret_offset_ns,
                        uint64_t *ret_error_ns) {
    const struct node *n = roster_find(&g->roster, node);
    if (n == NULL || !n->clock.known)
        return false;
    *ret_offset_ns = n->clock.offset_ns;
    *ret_error_ns = n->clock.error_ns;
    return true;
}

const struct node_info *group_node_info(const struct group *g, uint64_t node) {
    const struct node *n = roster_find(&g->roster, node);
    return n == NULL ? NULL : &n->info;
}

void group_check(const struct group *g) {
    assert(g->formation.n_members <= g->config.rdzv.max_nodes);
    assert(g->roster.n <= RDZV_NODES_MAX);
    assert(g->cause.state != CAUSE_IN_DOUBT || g->state == GROUP_STOPPING);
    assert(g->state != GROUP_GATHERING || (g->formation.n_members == 0 && !g->forming.store_open));
    assert(g->state != GROUP_RUNNING || (g->forming.sent && g->forming.store_open));
    assert(g->state != GROUP_CLOSED || (g->outcome != OUTCOME_NONE && !g->forming.store_open) ||
           g->closed.record == OUTCOME_GIVEN_UP);
    assert((g->closed.record == OUTCOME_OPEN) == (g->state != GROUP_CLOSED));
    assert(g->plan.named.n <= RDZV_SUCCESSORS_MAX &&
           g->formation.n_lease_pending <= g->formation.n_members);
    assert(g->plan.named.n == 0 || g->plan.named.epoch == g->leadership.epoch);
    assert(!g->leadership.idle || g->formation.generation.epoch < g->leadership.epoch);
    assert(g->roster.tally[TALLY_CANDIDATE] <= g->roster.tally[TALLY_HOPEFUL]);
    assert(g->roster.tally[TALLY_HOPEFUL] <= g->roster.n);
}
