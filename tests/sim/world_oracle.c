/* What must never happen (I1-I6, I8), and what must have happened at the end (I7, I9). */
#include <string.h>

#include "world_priv.h"

/* From the order to kill to the death, and the order of things within one moment. */
#define KILL_SLACK_NS (50 * NS_PER_MS)
#define GUARDIAN_PATIENCE_NS (250 * NS_PER_MS)

#define G(g) (g).epoch, (g).counter

struct group_info *oracle_group(struct world *w, struct generation g) {
    for (unsigned i = w->n_groups; i-- > 0;)
        if (generation_compare(w->groups[i].generation, g) == 0)
            return &w->groups[i];
    return NULL;
}

int oracle_member_place(const struct group_info *g, uint64_t incarnation) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->members[i] == incarnation)
            return (int)i;
    return -1;
}

/* ---- the leader ---- */

/* One step may make several moves (a group of one node stops at once): then there must be a way. */
static bool group_way(enum group_state from, enum group_state to, int moves) {
    if (from == to)
        return true;
    for (unsigned s = 1; moves > 0 && s < GROUP_STATE_COUNT; s++)
        if (group_may_move(from, s) && group_way(s, to, moves - 1))
            return true;
    return false;
}

static void note_group_move(struct world *w, enum group_state before) {
    enum group_state after = group_state(w->group);
    w->coverage->group_states[after]++;
    if (before == after)
        return;
    world_trace(w, "group %u.%u: %s -> %s", G(group_generation(w->group)), group_state_name(before),
                group_state_name(after));
    if (group_may_move(before, after))
        w->coverage->group_moves[before][after]++;
    else if (!group_way(before, after, 4))
        world_broken(w, "the group went from %s to %s", group_state_name(before), group_state_name(after));
}

static void new_group(struct world *w) {
    struct generation now = group_generation(w->group);
    if (generation_compare(now, w->newest) == 0)
        return;
    if (generation_compare(now, w->newest) < 0 || now.epoch != w->p.group.epoch) {
        world_broken(w, "I1: generation %u.%u after %u.%u", G(now), G(w->newest));
        return;
    }
    w->newest = now;
    if (w->n_groups == WORLD_GROUPS_MAX) {
        world_broken(w, "I7: %u groups were formed and none lasted", WORLD_GROUPS_MAX);
        return;
    }
    struct group_info *g = &w->groups[w->n_groups++];
    *g = (struct group_info){.generation = now, .forming_since_ns = w->now_ns, .first_stop_ns = TIME_NEVER};
    size_t n = group_members(w->group, g->members, WORLD_HOSTS_MAX + 1);
    if (n < w->p.group.min_nodes || n > w->p.group.max_nodes) {
        world_broken(w, "I4: group %u.%u has %zu nodes, allowed are %u to %u", G(now), n, w->p.group.min_nodes,
                     w->p.group.max_nodes);
        n = 0;
    }
    g->n_nodes = (uint32_t)n;
    world_mark(w, MARK_FORMED, 0);
}

static void check_budget(struct world *w) {
    uint32_t used = group_restarts_used(w->group);
    if (used == w->restarts_used)
        return;
    struct group_info *g = w->n_groups > 0 ? &w->groups[w->n_groups - 1] : NULL;
    if (used < w->restarts_used)
        world_broken(w, "I6: the count of restarts went from %u to %u", w->restarts_used, used);
    else if (used > w->p.group.max_restarts)
        world_broken(w, "I6: %u restarts of %u allowed", used, w->p.group.max_restarts);
    else if (used != w->restarts_used + 1 || g == NULL || g->charged)
        world_broken(w, "I6: charged twice in one generation");
    else if (!g->could_be_charged &&
             w->now_ns < g->forming_since_ns + w->p.group.form_timeout_ns / 100 * 98)
        world_broken(w, "I6: %u.%u is charged, and no worker of it failed", G(g->generation));
    if (g != NULL)
        g->charged = true;
    w->restarts_used = used;
}

static bool same_place(const struct form *a, const struct form *b) {
    return a->n_nodes == b->n_nodes && a->world_size == b->world_size && a->store_port == b->store_port &&
           strcmp(a->store_host, b->store_host) == 0 && a->role_world_size == b->role_world_size &&
           a->restarts_used == b->restarts_used && a->max_restarts == b->max_restarts &&
           a->log_nonce == b->log_nonce;
}

/* Every member knows of the group before any worker runs, and all know the same (I3). */
static void check_forms(struct world *w, struct group_info *g) {
    uint32_t rank = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct form *f = &g->forms[i];
        if (!g->has_form[i]) {
            world_broken(w, "group %u.%u starts before all of its members know of it", G(g->generation));
            return;
        }
        if (f->node_rank != i || f->first_rank != rank || f->role_first_rank != rank || f->host_index != 0 ||
            f->n_nodes != g->n_nodes || f->store_port != g->store_port || !same_place(f, &g->forms[0])) {
            world_broken(w, "I3: the members of %u.%u disagree about ranks or sizes", G(g->generation));
            return;
        }
        rank += w->p.nproc[node_of(w, g->members[i])->host];
    }
    if (g->n_nodes > 0 && g->forms[0].world_size != rank)
        world_broken(w, "I3: world size %u, but %u workers", g->forms[0].world_size, rank);
}

static void check_first_cause(struct world *w, const struct failure *cause) {
    struct group_info *g = &w->groups[w->n_groups - 1];
    const struct true_failure *named = NULL;
    for (unsigned i = 0; i < g->n_failures; i++)
        if (g->failures[i].incarnation == cause->incarnation && g->failures[i].local == cause->local_rank)
            named = &g->failures[i];
    if (named == NULL) {
        if (cause->kind != FAILURE_NODE)
            world_broken(w, "I8: the cause named never happened");
        return;
    }
    if (!w->p.honest_clocks || named->at_ns < g->started_ns + 3 * NS_PER_S)
        return; /* clocks not yet compared, or not to be trusted */
    uint64_t error = 3 * MAX2(w->p.delay_max_ns, 2 * NS_PER_MS) + 20 * NS_PER_MS;
    for (unsigned i = 0; i < g->n_failures; i++)
        w->coverage->causes_checked += g->failures[i].heard && g->failures[i].at_ns > named->at_ns + error;
    for (unsigned i = 0; i < g->n_failures; i++)
        if (g->failures[i].heard && g->failures[i].at_ns + error < named->at_ns)
            world_broken(w, "I8: the cause named came %.3f s after the first",
                         (double)(named->at_ns - g->failures[i].at_ns) / 1e9);
}

static bool only_worker_faults(const struct world *w) {
    for (size_t i = 0; i < w->p.n_faults; i++) {
        enum fault_kind k = w->p.faults[i].kind;
        if (k != FAULT_BOOT && k != FAULT_WORKER && k != FAULT_WORKERS && k != FAULT_SPAWN_FAILS &&
            k != FAULT_IGNORE_TERM && k != FAULT_PREPARE_FAILS)
            return false;
    }
    return true;
}

static void closed(struct world *w) {
    w->group_closed = true;
    w->outcome = group_outcome(w->group);
    world_mark(w, MARK_LEADER_CLOSED, 0);
    struct group_info *g = w->n_groups > 0 ? &w->groups[w->n_groups - 1] : NULL;
    uint64_t nodes[1];
    struct desired d = {0};
    if (group_nodes(w->group, nodes, 1) == 0 || !group_desired(w->group, nodes[0], &d))
        return; /* nobody is left to be told */
    if (d.kind != DESIRED_CLOSED || d.outcome != w->outcome)
        world_broken(w, "the group is closed, but nodes are told something else");
    if (w->outcome == OUTCOME_SUCCESS) {
        for (uint32_t i = 0; g != NULL && i < g->n_nodes; i++)
            if (!g->finished[i])
                world_broken(w, "I9: success, but a member of %u.%u has not finished", G(g->generation));
        if (g == NULL || d.has_failure)
            world_broken(w, "I9: success, with nothing to show for it");
    } else if (d.has_failure) {
        check_first_cause(w, &d.failure);
    }
    if (w->outcome == OUTCOME_FAILED && d.reason[0] == '\0' && !d.has_failure)
        world_broken(w, "the job failed without a reason");
    if (w->outcome == OUTCOME_FAILED && g != NULL && only_worker_faults(w) &&
        (w->restarts_used != w->p.group.max_restarts || g->n_failures == 0))
        world_broken(w, "I7: given up after %u of %u restarts", w->restarts_used, w->p.group.max_restarts);
}

/* While a group stops, its cause is the first of what has been heard up to now. */
static void check_cause_so_far(struct world *w, struct group_info *g) {
    struct desired d;
    if (!w->p.honest_clocks || g->n_failures < 2 || group_members(w->group, NULL, 0) == 0)
        return;
    uint64_t member;
    (void)group_members(w->group, &member, 1);
    if (group_desired(w->group, member, &d) && d.has_failure)
        check_first_cause(w, &d.failure);
}

void oracle_group_stepped(struct world *w, enum group_state before) {
    note_group_move(w, before);
    check_budget(w); /* a charge is for the group before: the next may be formed in the same step */
    enum group_state now = group_state(w->group);
    struct group_info *g = w->n_groups > 0 ? &w->groups[w->n_groups - 1] : NULL;
    bool over = before == GROUP_STOPPING && now != GROUP_STOPPING && now != GROUP_CLOSED;
    if (over && only_worker_faults(w) && g != NULL && !g->charged)
        world_broken(w, "I6: %u.%u failed and was not charged", G(g->generation));
    new_group(w);
    g = w->n_groups > 0 ? &w->groups[w->n_groups - 1] : NULL;
    if (g != NULL && now != before && now == GROUP_RUNNING)
        check_forms(w, g);
    if (g != NULL && now == GROUP_STOPPING && g->first_stop_ns == TIME_NEVER)
        g->first_stop_ns = w->now_ns;
    if (now == GROUP_STOPPING && g != NULL)
        check_cause_so_far(w, g);
    if (now == GROUP_CLOSED && !w->group_closed)
        closed(w);
    if (w->group_closed && group_outcome(w->group) != w->outcome)
        world_broken(w, "I9: the outcome changed after it was told");
}

void oracle_closed_told(struct world *w, const struct desired *d) {
    if (!w->outcome_told)
        (void)snprintf(w->outcome_reason, sizeof w->outcome_reason, "%s", d->reason);
    else if (strcmp(w->outcome_reason, d->reason) != 0)
        world_broken(w, "I9: two nodes are told two reasons");
    w->outcome_told = true;
}

void oracle_report_heard(struct world *w, struct life *l, const struct report *r) {
    struct group_info *g = oracle_group(w, r->generation);
    if (g == NULL || !r->has_failure || w->group == NULL)
        return;
    bool in_time = g->first_stop_ns == TIME_NEVER ||
                   (group_state(w->group) == GROUP_STOPPING &&
                    w->now_ns < g->first_stop_ns + w->p.group.settle_ns / 100 * 98);
    for (unsigned i = 0; i < g->n_failures; i++) {
        struct true_failure *f = &g->failures[i];
        if (f->incarnation != r->failure.incarnation || f->local != r->failure.local_rank)
            continue;
        f->heard = f->heard || in_time;
        g->could_be_charged = g->could_be_charged || f->chargeable;
    }
    (void)l;
}

/* ---- the nodes ---- */

static bool member_way(enum member_state from, enum member_state to, int moves) {
    if (from == to)
        return true;
    for (unsigned s = 1; moves > 0 && s < MEMBER_STATE_COUNT; s++)
        if (member_may_move(from, s) && member_way(s, to, moves - 1))
            return true;
    return false;
}

void oracle_member_stepped(struct world *w, struct life *l, enum member_state before) {
    enum member_state after = member_state(l->member);
    w->coverage->member_states[after]++;
    if (before != after) {
        world_trace(w, "%u.%u: %s -> %s", l->host, l->index, member_state_name(before), member_state_name(after));
        if (member_may_move(before, after))
            w->coverage->member_moves[before][after]++;
        else if (!member_way(before, after, 3))
            world_broken(w, "a member went from %s to %s", member_state_name(before), member_state_name(after));
    }
    uint32_t restarts = member_report(l->member)->restarts_used;
    if (restarts < l->restarts_heard)
        world_broken(w, "I6: node %u.%u forgot restarts", l->host, l->index);
    l->restarts_heard = restarts;
    if (after == MEMBER_PREPARING) {
        struct group_info *g = oracle_group(w, member_generation(l->member));
        int place = g == NULL ? -1 : oracle_member_place(g, l->incarnation);
        if (place < 0) {
            world_broken(w, "%u.%u prepares for a group that it is no member of", l->host, l->index);
            return;
        }
        g->has_form[place] = true;
        g->forms[place] = *member_form(l->member);
    }
}

void oracle_lease_came(struct world *w, struct life *l, const struct lease *lease) {
    if (lease->validity_ns == 0)
        return;
    uint64_t end = lease->echo_ns + lease->validity_ns;
    if (lease->echo_ns > world_clock(w, l->host))
        world_broken(w, "a lease answers a RENEW of the future");
    l->granted_end_ns = MAX2(l->granted_end_ns, end);
    int c = generation_compare(lease->prepared, l->granted);
    if (c > 0)
        l->granted_named_end_ns = end;
    else if (c == 0)
        l->granted_named_end_ns = MAX2(l->granted_named_end_ns, end);
    if (c > 0)
        l->granted = lease->prepared;
}

static void check_one_group(struct world *w, struct life *l) {
    for (unsigned i = 0; i < w->n_lives; i++) {
        struct life *o = &w->lives[i];
        if (o == l || !node_has_workers(o) || o->unkillable || !host_running(w, o->host) ||
            (o->host_thawed_ns != 0 && w->now_ns < o->host_thawed_ns + KILL_SLACK_NS))
            continue;
        if (generation_compare(o->generation, l->generation) != 0)
            world_broken(w, "I2: %u.%u starts workers of %u.%u while those of %u.%u live on %u.%u", l->host,
                         l->index, G(l->generation), G(o->generation), o->host, o->index);
    }
}

void oracle_worker_starts(struct world *w, struct life *l) {
    world_trace(w, "%u.%u starts workers of %u.%u", l->host, l->index, G(l->generation));
    world_mark(w, MARK_STARTED, l->host);
    check_one_group(w, l);
    if (generation_compare(l->granted, l->generation) != 0 ||
        world_clock(w, l->host) >= l->granted_named_end_ns)
        world_broken(w, "%u.%u starts workers of %u.%u without a lease that names it", l->host, l->index,
                     G(l->generation));
    struct group_info *g = oracle_group(w, l->generation);
    int place = g == NULL ? -1 : oracle_member_place(g, l->incarnation);
    if (place < 0 || g->started[place]) {
        world_broken(w, "%u.%u starts %u.%u, which is not its to start", l->host, l->index, G(l->generation));
        return;
    }
    check_forms(w, g);
    g->started[place] = true;
    g->n_started++;
    if (g->n_started == 1)
        w->coverage->groups_started++;
    if (g->n_started == g->n_nodes) {
        g->started_ns = w->now_ns;
        world_plan(w, ITEM_GROUP_FINISH, NULL, w->p.work_ns)->group = (uint32_t)(g - w->groups);
    }
}

void oracle_worker_failed(struct world *w, struct life *l, uint32_t local, bool chargeable) {
    struct group_info *g = oracle_group(w, member_generation(l->member));
    if (g == NULL || g->n_failures == ARRAY_SIZE(g->failures))
        return;
    g->failures[g->n_failures++] = (struct true_failure){
        .at_ns = w->now_ns,
        .incarnation = l->incarnation,
        .local = local,
        .chargeable = chargeable,
    };
}

/* Nothing has stood between it and the leader for so long. */
static bool undisturbed(const struct world *w, const struct life *l, uint64_t for_ns) {
    uint64_t disturbed = MAX2(w->hosts[l->host].disturbed_until_ns, w->hosts[0].disturbed_until_ns);
    return w->now_ns > disturbed + for_ns + for_ns / 50 && w->lives[0].process && l->process;
}

void oracle_node_lost(struct world *w, const struct life *l) {
    bool over = w->group_closed || l->was_told_to_leave || !l->welcomed;
    if (undisturbed(w, l, w->p.group.lease_ns + w->p.group.margin_ns) && !over)
        world_broken(w, "I7: the leader lost %u.%u, which was there all the time", l->host, l->index);
}

void oracle_node_ended(struct world *w, const struct life *l) {
    if (member_end(l->member)->kind != MEMBER_END_LEADER_LOST)
        return;
    uint64_t patience = l->granted_end_ns != 0 ? w->p.member.leader_timeout_ns : w->p.member.join_timeout_ns;
    if (undisturbed(w, l, patience))
        world_broken(w, "I7: %u.%u gave up a leader that was there all the time", l->host, l->index);
}

/* ---- every step ---- */

static void check_leases(struct world *w, const struct life *l) {
    uint64_t clock = world_clock(w, l->host);
    bool awake = l->process && !l->frozen && w->now_ns >= l->thawed_ns + KILL_SLACK_NS;
    if (!l->process && w->now_ns > l->swept_by_ns + KILL_SLACK_NS)
        world_broken(w, "I5: workers of %u.%u outlive their agent", l->host, l->index);
    else if (awake && clock > l->granted_end_ns + KILL_SLACK_NS)
        world_broken(w, "I5: workers of %u.%u outlive their lease", l->host, l->index);
    else if (clock > l->granted_end_ns + GUARDIAN_PATIENCE_NS + KILL_SLACK_NS)
        world_broken(w, "I5: workers of %u.%u outlive their lease and the guardian", l->host, l->index);
}

void oracle_step(struct world *w) {
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *l = &w->lives[i];
        if (!l->spawned || !node_has_workers(l) || l->unkillable || !host_running(w, l->host) ||
            (l->host_thawed_ns != 0 && w->now_ns < l->host_thawed_ns + KILL_SLACK_NS))
            continue;
        check_leases(w, l);
    }
}

/* ---- at the end ---- */

static void check_end_of(struct world *w, const struct life *l) {
    if (l->incarnation == 0)
        return;
    if (l->process) {
        world_broken(w, "I7: %u.%u has not ended: its member is %s", l->host, l->index,
                     member_state_name(member_state(l->member)));
        return;
    }
    if (node_has_workers(l) && !l->unkillable)
        world_broken(w, "I5: workers of %u.%u are left at the end", l->host, l->index);
    const struct member_end *end = member_end(l->member);
    if (member_state(l->member) != MEMBER_ENDED)
        return; /* killed */
    bool told = end->kind == MEMBER_END_SUCCESS || end->kind == MEMBER_END_FAILED;
    enum outcome said = end->kind == MEMBER_END_SUCCESS ? OUTCOME_SUCCESS : OUTCOME_FAILED;
    if (told && (said != w->outcome || strcmp(end->reason, w->outcome_reason) != 0))
        world_broken(w, "I9: %u.%u ends with '%s', the leader with '%s'", l->host, l->index, end->reason,
                     w->outcome_reason);
    if (end->kind == MEMBER_END_LEADER_LOST && w->p.calm_network && !w->leader_was_killed && !l->disturbed &&
        l->granted_end_ns != 0 && !l->unkillable)
        world_broken(w, "I9: %u.%u lost a leader that was there: %s", l->host, l->index, end->reason);
    if (end->kind == MEMBER_END_LEFT && !l->was_told_to_leave)
        world_broken(w, "%u.%u left, and nobody told it to", l->host, l->index);
}

void oracle_end(struct world *w) {
    for (unsigned i = 0; i < w->n_lives; i++)
        check_end_of(w, &w->lives[i]);
    if (!w->leader_was_killed && w->lives[0].incarnation != 0 && !w->group_closed)
        world_broken(w, "I7: the leader never closed the job");
    for (unsigned i = 0; i < w->n_groups && !w->leader_was_killed; i++)
        if (w->groups[i].store_open)
            world_broken(w, "the store of %u.%u is left open", G(w->groups[i].generation));
}
