/* What nodes must never do (I2, I5), and what must have happened at the end (I7, I9). */
#include <string.h>

#include "world_priv.h"

#define GUARDIAN_PATIENCE_NS (250 * NS_PER_MS)
#define GUARDIAN_HOLDS_NS (600 * NS_PER_MS) /* from when it stops the workers until it kills them */

/* ---- the nodes ---- */

static bool member_way(enum member_state from, enum member_state to, int moves) {
    if (from == to)
        return true;
    for (unsigned s = 1; moves > 0 && s < MEMBER_STATE_COUNT; s++)
        if (member_may_move(from, s) && member_way(s, to, moves - 1))
            return true;
    return false;
}

static void note_election_move(struct world *w, const struct life *l, enum member_election before) {
    enum member_election after = member_election(l->member);
    w->coverage->member_elections[after]++;
    if (before == after)
        return;
    world_trace(w, "%u.%u: election %s -> %s", l->host, l->index, member_election_name(before),
                member_election_name(after));
    if (member_election_may_move(before, after))
        w->coverage->election_moves[before][after]++;
}

/* Checks that the epochs and generations that a node knows only grow. */
static void check_growth(struct world *w, struct life *l) {
    uint32_t restarts = member_report(l->member)->restarts_used;
    if (restarts < l->restarts_heard)
        world_broken(w, "I6: node %u.%u forgot restarts", l->host, l->index);
    l->restarts_heard = restarts;
    uint32_t epoch = member_epoch(l->member);
    if (epoch < l->epoch_heard)
        world_broken(w, "I1: node %u.%u goes back from epoch %u to %u", l->host, l->index, l->epoch_heard, epoch);
    l->epoch_heard = epoch;
    struct generation g = member_generation(l->member);
    if (generation_compare(g, l->generation_heard) < 0)
        world_broken(w, "I1: node %u.%u goes back from group %u.%u to %u.%u", l->host, l->index, G(l->generation_heard),
                     G(g));
    l->generation_heard = g;
}

void oracle_member_stepped(struct world *w, struct life *l, enum member_state before,
                           enum member_election election_before) {
    enum member_state after = member_state(l->member);
    w->coverage->member_states[after]++;
    if (before != after) {
        world_trace(w, "%u.%u: %s -> %s", l->host, l->index, member_state_name(before), member_state_name(after));
        if (member_may_move(before, after))
            w->coverage->member_moves[before][after]++;
        else if (!member_way(before, after, 3))
            world_broken(w, "a member went from %s to %s", member_state_name(before), member_state_name(after));
    }
    note_election_move(w, l, election_before);
    check_growth(w, l);
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
    if (c > 0 || (c == 0 && lease->epoch > l->granted_epoch)) {
        l->granted = lease->prepared;
        l->granted_epoch = lease->epoch;
        l->granted_named_end_ns = end;
    } else if (c == 0 && lease->epoch == l->granted_epoch) {
        l->granted_named_end_ns = MAX2(l->granted_named_end_ns, end);
    }
}

static void check_one_group(struct world *w, struct life *l) {
    for (unsigned i = 0; i < w->n_lives; i++) {
        struct life *o = &w->lives[i];
        if (o == l || !node_runs_workers(o) || o->unkillable || !host_running(w, o->host) ||
            (o->host_thawed_ns != 0 && w->now_ns < o->host_thawed_ns + KILL_SLACK_NS))
            continue;
        if (generation_compare(o->generation, l->generation) != 0)
            world_broken(w, "I2: %u.%u starts workers of %u.%u while those of %u.%u live on %u.%u", l->host, l->index,
                         G(l->generation), G(o->generation), o->host, o->index);
    }
}

/* After a pause: nothing may have changed. */
void oracle_workers_continue(struct world *w, struct life *l) {
    world_trace(w, "%u.%u continues workers of %u.%u", l->host, l->index, G(l->generation));
    check_one_group(w, l);
    if (world_clock(w, l->host) >= l->granted_end_ns)
        world_broken(w, "I5: workers of %u.%u continue without a lease", l->host, l->index);
}

void oracle_worker_starts(struct world *w, struct life *l) {
    world_trace(w, "%u.%u starts workers of %u.%u", l->host, l->index, G(l->generation));
    world_leader_file(w, LEADER_FILE_STARTED, l->host);
    check_one_group(w, l);
    if (!world_is_fixed(w) && w->record.closed)
        world_broken(w, "I9: %u.%u starts workers after the job was closed", l->host, l->index);
    /* The same leader's, who may have claimed another epoch for itself between the two. */
    bool same = w->owners[l->granted_epoch] == w->owners[l->start_epoch];
    if (generation_compare(l->granted, l->generation) != 0 || !same ||
        world_clock(w, l->host) >= l->granted_named_end_ns)
        world_broken(w, "%u.%u starts workers of %u.%u without a lease that names it", l->host, l->index,
                     G(l->generation));
    struct group_info *g = oracle_group(w, l->generation);
    int place = g == NULL ? -1 : oracle_member_place(g, l->incarnation);
    if (place < 0 || g->started[place]) {
        world_broken(w, "%u.%u starts %u.%u, which is not its to start", l->host, l->index, G(l->generation));
        return;
    }
    oracle_check_forms(w, g);
    oracle_check_count(w, g, l);
    g->started[place] = true;
    g->n_started++;
    if (g->n_started == 1)
        w->coverage->groups_started++;
    if (g->n_started == g->n_nodes) {
        g->started_ns = w->now_ns;
        world_plan(w, ITEM_GROUP_FINISH, NULL, w->p.work_ns)->group = (uint32_t)(g - w->groups);
    }
}

void oracle_worker_failed(struct world *w, struct life *l, const struct failure *f, bool chargeable) {
    struct group_info *g = oracle_group(w, member_generation(l->member));
    if (g == NULL || g->n_failures == ARRAY_SIZE(g->failures))
        return;
    g->failures[g->n_failures++] = (struct true_failure){
        .at_ns = w->now_ns,
        .incarnation = l->incarnation,
        .local = f->local_rank,
        .chargeable = chargeable,
        .ends_node = failure_may_end_node(f),
        .echo = failure_noise(f) > 0,
        .loop_key = oracle_loop_key(w, f),
    };
}

struct group_info *oracle_hang(struct world *w, struct generation generation, uint64_t incarnation) {
    struct group_info *g = oracle_group(w, generation);
    if (g == NULL || g->n_failures == ARRAY_SIZE(g->failures))
        return NULL;
    g->failures[g->n_failures++] = (struct true_failure){
        .at_ns = w->now_ns, .incarnation = incarnation, .chargeable = true, .heard = true, .ever_heard = true};
    g->failed_first = g->failed_first || g->first_stop_ns == TIME_NEVER;
    return g;
}

/* Nothing has stood between the two for so long. */
static bool undisturbed(const struct world *w, const struct life *leader, const struct life *l, uint64_t for_ns) {
    uint64_t disturbed = MAX2(w->hosts[l->host].disturbed_until_ns, w->hosts[leader->host].disturbed_until_ns);
    return w->now_ns > disturbed + for_ns + for_ns / 50 && leader->process && l->process;
}

void oracle_node_lost(struct world *w, const struct life *leader, const struct life *l) {
    oracle_loss_known(w, leader, l);
    bool over = leader->lead.closed || l->was_told_to_leave || !search_is_welcomed(l) || l->leader != leader ||
                member_end(l->member)->kind != MEMBER_END_NONE;
    if (undisturbed(w, leader, l, w->p.group.rdzv.lease_ns + w->p.group.rdzv.margin_ns) && !over)
        world_broken(w, "I7: the leader lost %u.%u, which was there all the time", l->host, l->index);
}

void oracle_node_ended(struct world *w, const struct life *l) {
    if (member_end(l->member)->kind == MEMBER_END_REFUSED && !l->is_refused)
        world_broken(w, "I10: %u.%u ends as refused, and was only not admitted yet", l->host, l->index);
    if (member_end(l->member)->kind != MEMBER_END_LEADER_LOST)
        return;
    uint64_t patience = l->granted_end_ns != 0 ? w->p.member.rdzv.leader_timeout_ns : w->p.member.rdzv.join_timeout_ns;
    if (world_is_fixed(w)) {
        const struct life *leader = node_newest(w, 0);
        bool full = w->p.group.rdzv.spares < WORLD_HOSTS_MAX;
        /* Before its first lease, a node learns only by an attempt's time limit, most of a short join timeout, that its
         * connection drops everything. */
        bool was_cut = l->granted_end_ns == 0 && l->disturbed;
        if (leader != NULL && w->now_ns > leader->booted_ns + patience && undisturbed(w, leader, l, patience) &&
            !full && !was_cut)
            world_broken(w, "I7: %u.%u gave up a leader that was there all the time", l->host, l->index);
    } else if (w->record.closed && !w->was_emptied && w->now_ns > w->troubled_until_ns + patience + 20 * NS_PER_S &&
               w->now_ns > world_when(w, LEADER_FILE_CLOSED_THERE, WORLD_HOSTS_MAX, 0) + 10 * NS_PER_S) {
        world_broken(w, "I9: %u.%u gave up, and the arbiter has the outcome", l->host, l->index);
    }
}

/* A node finds a leader that is there all the time within this time. */
#define FIND_NS (8 * NS_PER_S)

/* I10: a node joins only agents of its run, and finds its leader. */
void oracle_search_stepped(struct world *w, struct life *l, enum search_state before) {
    const struct search *s = &l->search;
    w->coverage->search_states[s->state]++;
    if (s->state != before) {
        world_trace(w, "%u.%u: search %s -> %s", l->host, l->index, search_state_name(before),
                    search_state_name(s->state));
        if (search_may_move(before, s->state))
            w->coverage->search_moves[before][s->state]++;
    }
    bool met = s->state == SEARCH_GREETED || s->state == SEARCH_JOINING || s->state == SEARCH_WELCOMED;
    if (met && l->conn == NULL)
        world_broken(w, "I10: %u.%u takes an agent of another run for one of this", l->host, l->index);
    if (s->state == SEARCH_WELCOMED)
        l->unwelcomed_ns = UINT64_MAX;
    else if (l->unwelcomed_ns == UINT64_MAX)
        l->unwelcomed_ns = w->now_ns;
    const struct life *leader = world_is_fixed(w) ? node_newest(w, 0) : NULL;
    if (leader == NULL || !leader->process || leader->lead.group == NULL || s->state == SEARCH_WELCOMED ||
        s->state == SEARCH_REFUSED || l->disturbed || member_end(l->member)->kind != MEMBER_END_NONE)
        return;
    uint64_t since = MAX2(MAX2(l->unwelcomed_ns, l->refused_ns), MAX2(leader->booted_ns, l->booted_ns));
    since = MAX2(since, MAX2(l->host_thawed_ns, l->thawed_ns));
    if (w->now_ns > since + FIND_NS && undisturbed(w, leader, l, FIND_NS))
        world_broken(w, "I10: %u.%u does not find the leader, which is there (%s)", l->host, l->index,
                     search_state_name(s->state));
}

/* Whether the node could be in a group now. */
static bool could_take_part(const struct world *w, const struct life *l) {
    if (!l->process || !host_running(w, l->host) || l->frozen || l->was_told_to_leave)
        return false;
    const struct report *r = member_report(l->member);
    return member_state(l->member) != MEMBER_ENDED && !r->excluded && r->unusable[0] == '\0';
}

/* Everything has worked for long: where enough nodes are left, a group runs, or the job is over. */
void oracle_recovered(struct world *w) {
    const struct group_config *c = &w->p.group;
    uint32_t nodes = 0;
    size_t of_domain[DOMAINS_MAX] = {0};
    bool runs = w->record.closed;
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *l = &w->lives[i];
        nodes += could_take_part(w, l);
        of_domain[(unsigned char)w->p.domains[l->host]] += could_take_part(w, l);
        enum node_state state = member_report(l->member)->state;
        runs = runs || (l->process && (state == NODE_RUNNING || state == NODE_FINISHED));
    }
    for (unsigned i = 0; i < w->n_groups; i++)
        runs = runs || (w->groups[i].n_started > 0 && w->groups[i].started_ns > w->p.healed_ns);
    if (c->rdzv.unit_of == UNIT_OF_DOMAIN && of_domain[0] < nodes)
        nodes = MIN2(nodes, (uint32_t)oracle_in_units(w, of_domain)); /* perhaps they count */
    nodes = MIN2(nodes, c->rdzv.max_nodes);
    if (nodes - nodes % c->rdzv.node_unit < c->rdzv.min_nodes || w->was_emptied)
        return;
    w->coverage->recoveries++;
    if (!runs)
        world_broken(w, "I7: %u nodes are there, and no group runs %.0f s after the last fault", nodes,
                     (double)w->p.recover_ns / 1e9);
}

/* The arbiter's data is gone, and nothing else is wrong for so long that nobody may hope on. */
void oracle_ruin_over(struct world *w) {
    const struct group_config *c = &w->p.group;
    uint64_t bound = c->rdzv.lease_ns + c->rdzv.margin_ns + 10 * NS_PER_S;
    uint64_t since = MAX2(w->troubled_until_ns, world_when(w, LEADER_FILE_EMPTIED, WORLD_HOSTS_MAX, 0));
    if (w->now_ns < since + bound + bound / 50) {
        world_plan(w, ITEM_RUIN_OVER, NULL, since + bound + bound / 50 - w->now_ns);
        return;
    }
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *l = &w->lives[i];
        if (l->process && host_running(w, l->host) && l->knows_arbiter && !l->unkillable && !l->frozen)
            world_broken(w, "I7: %u.%u goes on without the arbiter's data (%s, %s)", l->host, l->index,
                         member_state_name(member_state(l->member)), member_election_name(member_election(l->member)));
    }
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

/* Workers that are stopped are killed in the end: by the agent, or by the guardian if that is frozen. */
static void check_held(struct world *w, const struct life *l) {
    uint64_t held = w->p.group.rdzv.lease_ns + w->p.group.rdzv.margin_ns;
    uint64_t patience = l->frozen ? GUARDIAN_PATIENCE_NS + GUARDIAN_HOLDS_NS : held;
    uint64_t end = world_when_clock(w, l->host, l->frozen ? l->guard_end_ns : l->granted_end_ns);
    end = MAX2(end, MAX2(l->host_thawed_ns, l->frozen ? 0 : l->thawed_ns));
    if (w->now_ns > end + patience + patience / 50 + KILL_SLACK_NS)
        world_broken(w, "I5: stopped workers of %u.%u outlive their lease", l->host, l->index);
}

/* A worker that ended, and was not stopped, is reported within this time. */
#define REPORT_NS NS_PER_S

static void check_reported(struct world *w, const struct life *l) {
    uint64_t by_ns = MAX2(l->thawed_ns, l->host_thawed_ns);
    if (!l->process || l->frozen || !host_running(w, l->host) || !l->spawned ||
        member_state(l->member) != MEMBER_RUNNING || member_report(l->member)->state != NODE_RUNNING)
        return;
    for (uint32_t i = 0; i < l->n_workers; i++)
        if (l->workers[i].lost_ns != 0 && w->now_ns > MAX2(by_ns, l->workers[i].lost_ns) + REPORT_NS)
            world_broken(w, "I8: %u.%u runs %u.%u, and does not report that worker %u ended", l->host, l->index,
                         G(l->generation), i);
}

void oracle_step(struct world *w) {
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *l = &w->lives[i];
        check_reported(w, l);
        oracle_ending(w, l);
        if (!l->spawned || !node_has_workers(l) || l->unkillable || !host_running(w, l->host) ||
            (l->host_thawed_ns != 0 && w->now_ns < l->host_thawed_ns + KILL_SLACK_NS))
            continue;
        if (node_runs_workers(l))
            check_leases(w, l);
        else if (l->process)
            check_held(w, l);
    }
}

/* ---- at the end ---- */

static void check_end_of(struct world *w, const struct life *l) {
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
    const struct job *job = &w->jobs[l->job];
    enum outcome outcome = world_is_fixed(w) ? job->outcome : w->record.outcome;
    bool told = end->kind == MEMBER_END_SUCCESS || end->kind == MEMBER_END_FAILED;
    enum outcome said = end->kind == MEMBER_END_SUCCESS ? OUTCOME_SUCCESS : OUTCOME_FAILED;
    bool interrupted = said == OUTCOME_FAILED && l->leader != NULL && l->leader->lead.interrupted;
    if (told && said != outcome && !interrupted && !w->was_emptied) /* its record is gone */
        world_broken(w, "I9: %u.%u ends with %d, the job with %d", l->host, l->index, (int)said, (int)outcome);
    if (told && world_is_fixed(w) && strcmp(end->reason, job->reason) != 0)
        world_broken(w, "I9: %u.%u ends with '%s', the leader with '%s'", l->host, l->index, end->reason, job->reason);
    if (end->kind == MEMBER_END_LEADER_LOST && w->p.calm_network && !w->leader_was_killed && !l->disturbed &&
        l->granted_end_ns != 0 && !l->unkillable && world_is_fixed(w))
        world_broken(w, "I9: %u.%u lost a leader that was there: %s", l->host, l->index, end->reason);
    if (end->kind == MEMBER_END_LEFT && !l->was_told_to_leave)
        world_broken(w, "%u.%u left, and nobody told it to", l->host, l->index);
}

void oracle_end(struct world *w) {
    for (unsigned i = 0; i < w->n_lives; i++)
        check_end_of(w, &w->lives[i]);
    const struct life *first = w->n_lives == 0 ? NULL : node_newest(w, 0);
    if (world_is_fixed(w) && !w->leader_was_killed && first != NULL && !w->jobs[w->job].closed)
        world_broken(w, "I7: the leader never closed the job");
    if (w->p.succeeds && w->record.outcome != OUTCOME_SUCCESS)
        world_broken(w, "the job had to succeed");
    for (unsigned i = 0; i < w->n_groups; i++)
        if (w->groups[i].store_open)
            world_broken(w, "the store of %u.%u is left open", G(w->groups[i].generation));
}
