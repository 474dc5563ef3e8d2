/* What leaders must never do (I1, I3, I4, I6, I8, I9), and what a group is. */
#include <string.h>

#include "world_priv.h"

struct group_info *oracle_group(struct world *w, struct generation g) {
    for (unsigned i = w->n_groups; i-- > 0;)
        if (generation_compare(w->groups[i].generation, g) == 0)
            return &w->groups[i];
    return NULL;
}

struct group_info *oracle_newest(struct world *w, const struct life *l) {
    return l->lead.newest < 0 ? NULL : &w->groups[l->lead.newest];
}

int oracle_member_place(const struct group_info *g, uint64_t incarnation) {
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->members[i] == incarnation)
            return (int)i;
    return -1;
}

/* ---- epochs ---- */

/* Who says a word of an epoch as its leader: nobody else ever may, and the arbiter knows him. */
void oracle_speaks(struct world *w, struct life *l, uint32_t epoch) {
    if (epoch == 0 || epoch >= WORLD_EPOCHS_MAX) {
        world_broken(w, "I1: %u.%u speaks of epoch %u", l->host, l->index, epoch);
        return;
    }
    l->lead.epoch = MAX2(l->lead.epoch, epoch);
    if (w->owners[epoch] == l->incarnation)
        return;
    if (w->owners[epoch] != 0) {
        const struct life *o = node_of(w, w->owners[epoch]);
        world_broken(w, "I1: %u.%u and %u.%u lead epoch %u", o->host, o->index, l->host, l->index, epoch);
    }
    if (!world_is_fixed(w) && w->won[epoch] != l->incarnation)
        world_broken(w, "I1: %u.%u leads epoch %u, which it has not won", l->host, l->index, epoch);
    w->owners[epoch] = l->incarnation;
}

void oracle_leads(struct world *w, struct life *l) {
    w->coverage->leaderships++;
    world_trace(w, "%u.%u LEADS epoch %u", l->host, l->index, l->lead.epoch);
    world_leader_file(w, LEADER_FILE_LEADS, l->host);
    oracle_speaks(w, l, l->lead.epoch);
}

/* An idle epoch and a vacant one say that nothing runs, in no epoch up to it, nor ever will. */
static void expect_no_workers(struct world *w, const struct life *l, const char *does, uint32_t epoch) {
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *o = &w->lives[i];
        bool thawed = o->host_thawed_ns != 0 && w->now_ns < o->host_thawed_ns + KILL_SLACK_NS;
        if (node_runs_workers(o) && !o->unkillable && host_running(w, o->host) && !thawed)
            world_broken(w, "I2: %u.%u %s epoch %u while workers of %u.%u run on %u.%u", l->host, l->index, does, epoch,
                         G(o->generation), o->host, o->index);
    }
}

void oracle_claimed(struct world *w, const struct life *l, uint32_t epoch) {
    w->coverage->idle_followed += w->idle[epoch] && w->idle[epoch - 1];
    if (w->idle[epoch])
        expect_no_workers(w, l, "leads idle", epoch);
}

void oracle_vacated(struct world *w, const struct life *l, uint32_t epoch) {
    expect_no_workers(w, l, "leaves vacant", epoch);
}

static bool is_idle_from(const struct world *w, uint32_t epoch) {
    for (uint32_t e = epoch; e <= w->record.epoch && e < WORLD_EPOCHS_MAX; e++)
        if (w->idle[e])
            return true;
    return false;
}

/* Cut off from nobody that matters: then nobody may take its place. */
void oracle_deposed(struct world *w, const struct life *l) {
    const struct host *h = &w->hosts[l->host];
    uint64_t for_ns = 4 * (w->p.group.rdzv.lease_ns + w->p.group.rdzv.margin_ns);
    if (w->now_ns < w->troubled_until_ns + for_ns || w->now_ns < l->lead.undisturbed_since_ns + for_ns)
        return;
    if (l->thawed_ns + for_ns > w->now_ns || h->disturbed_until_ns + for_ns > w->now_ns)
        return;
    if (!w->record.closed)
        world_broken(w, "I7: %u.%u is deposed, and was there all the time", l->host, l->index);
}

/* ---- states ---- */

/* One step may make several moves (a group of one node stops at once): then there must be a way. */
static bool group_way(enum group_state from, enum group_state to, int moves) {
    if (from == to)
        return true;
    for (unsigned s = 1; moves > 0 && s < GROUP_STATE_COUNT; s++)
        if (group_may_move(from, s) && group_way(s, to, moves - 1))
            return true;
    return false;
}

static void note_group_move(struct world *w, const struct life *l, enum group_state before) {
    enum group_state after = group_state(l->lead.group);
    w->coverage->group_states[after]++;
    if (before == after)
        return;
    world_trace(w, "group %u.%u: %s -> %s", G(group_generation(l->lead.group)), group_state_names[before],
                group_state_names[after]);
    if (group_may_move(before, after))
        w->coverage->group_moves[before][after]++;
    else if (!group_way(before, after, 4))
        world_broken(w, "the group went from %s to %s", group_state_names[before], group_state_names[after]);
}

static void check_size(struct world *w, struct group_info *g, size_t n) {
    const struct group_config *c = &w->p.group;
    if (n >= c->rdzv.min_nodes && n <= c->rdzv.max_nodes && n % MAX2(c->rdzv.node_unit, 1u) == 0)
        return;
    world_broken(w, "I4: group %u.%u has %zu nodes, allowed are %u to %u in steps of %u", G(g->generation), n,
                 c->rdzv.min_nodes, c->rdzv.max_nodes, c->rdzv.node_unit);
    g->n_nodes = 0;
}

/* ---- domains ---- */

void oracle_domain_heard(const struct life *leader, struct life *node, const struct report *r) {
    if (r->domain[0] != '\0')
        node->knows_domain = leader;
}

/* For a leader that slept, the silence of all nodes begins again. But a new node that was silent before is counted only
 * when it is heard again. */
void oracle_contact(const struct world *w, const struct life *leader, struct life *node) {
    node->heard_by = leader;
    node->heard_ns = world_clock(w, leader->host);
}

static bool was_heard(const struct world *w, const struct life *leader, const struct life *node) {
    return node->heard_by == leader &&
           world_clock(w, leader->host) - node->heard_ns < w->p.group.rdzv.lease_ns / 100 * 48;
}

size_t oracle_in_units(const struct world *w, const size_t nodes[DOMAINS_MAX]) {
    size_t usable = 0, unit = w->p.group.rdzv.node_unit;
    for (size_t d = 1; d < DOMAINS_MAX; d++)
        usable += nodes[d] / unit * unit;
    return usable;
}

static unsigned char domain_of(struct world *w, uint64_t incarnation) {
    return (unsigned char)w->p.domains[node_of(w, incarnation)->host];
}

/* Counts for each domain the nodes that certainly could be members. False: domains do not count. */
static bool count_candidates(struct world *w, struct life *l, const struct group_info *last,
                             size_t nodes[DOMAINS_MAX]) {
    static struct overview_node rows[WORLD_LIVES_MAX];
    const struct rdzv_settings *s = &w->p.group.rdzv;
    if (s->unit_of == UNIT_OF_ANY || w->p.group.static_ranks || w->n_crowd > 0)
        return false;
    if (world_has_fault(&w->p, FAULT_SICK) && s->sick_nodes == SICK_NODES_EXCLUDE)
        return false; /* which nodes count depends on all */
    size_t n = group_overview_nodes(l->lead.group, world_clock(w, l->host), rows);
    for (size_t i = 0; i < n; i++) {
        const struct overview_node *row = &rows[i];
        const struct life *o = node_of(w, row->incarnation);
        bool may = row->place != PLACE_EXCLUDED && row->place != PLACE_LEAVING && row->state != NODE_CLOSED;
        bool known = o->knows_domain == l && w->p.domains[o->host] != '\0';
        /* a newcomer waits until it knows its domain */
        bool waits =
            s->node_unit > 1 && last != NULL && last->by_domain && oracle_member_place(last, o->incarnation) < 0;
        if (may && !known && !waits)
            return false;
        if (!known)
            continue;
        bool stopped = row->state == NODE_JOINED || row->state == NODE_STOPPED;
        nodes[(unsigned char)w->p.domains[o->host]] +=
            row->place == PLACE_MEMBER || (may && row->connected && stopped && was_heard(w, l, o));
    }
    return true;
}

/* I11: members are whole units of one domain each, whose ranks are consecutive; no group is smaller than needed; and
 * no domain has fewer units than in the last group of this leader while its nodes suffice. */
static void check_domains(struct world *w, struct life *l, struct group_info *g, const struct group_info *last) {
    size_t nodes[DOMAINS_MAX] = {0}, units[DOMAINS_MAX] = {0}, before[DOMAINS_MAX] = {0};
    size_t unit = w->p.group.rdzv.node_unit, max = w->p.group.rdzv.max_nodes, kept = 0;
    g->by_domain = count_candidates(w, l, last, nodes);
    if (!g->by_domain)
        return;
    w->coverage->domain_groups++;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        unsigned char d = domain_of(w, g->members[i]);
        bool same = i > 0 && domain_of(w, g->members[i - 1]) == d;
        if (d == 0 || (!same && (i % unit != 0 || units[d] > 0)))
            world_broken(w, "I11: the nodes of domain %c are not whole units with consecutive ranks in %u.%u", d,
                         G(g->generation));
        units[d] += i % unit == 0;
    }
    size_t most = MIN2(oracle_in_units(w, nodes), max / unit * unit);
    if (g->n_nodes < most)
        world_broken(w, "I11: %u.%u has %u nodes, and %zu are there in whole units", G(g->generation), g->n_nodes,
                     most);
    if (last == NULL || !last->by_domain)
        return;
    for (uint32_t i = 0; i < last->n_nodes; i++) {
        unsigned char d = domain_of(w, last->members[i]);
        before[d] += i % unit == 0;
        kept += oracle_member_place(g, last->members[i]) >= 0;
    }
    bool same_units = true;
    for (size_t d = 1; d < DOMAINS_MAX; d++) {
        same_units = same_units && units[d] == before[d];
        if (units[d] < MIN2(before[d], nodes[d] / unit))
            world_broken(w, "I11: domain %c has %zu units in %u.%u, %zu before, and %zu nodes", (int)d, units[d],
                         G(g->generation), before[d], nodes[d]);
    }
    w->coverage->domain_spares += same_units && kept < last->n_nodes;
}

/* ---- sick nodes ---- */

/* The nodes that the leader knows: those that certainly are in a group now, or could be. */
struct known_nodes {
    size_t fit, sick;               /* of all */
    size_t fit_before, sick_before; /* of those that had joined before that time */
    size_t sick_members;
};

/* MUTANT_SICK_GONE excludes nodes without a reason. */
static bool may_be_in(const struct overview_node *row, bool sick) {
    bool forged = row->place == PLACE_EXCLUDED && row->why[0] == '\0' && sick;
    return (row->place != PLACE_EXCLUDED || forged) && row->place != PLACE_LEAVING && row->state != NODE_CLOSED;
}

static struct known_nodes known_nodes(struct world *w, struct life *l, uint64_t joined_before_ns) {
    static struct overview_node rows[WORLD_LIVES_MAX];
    struct known_nodes known = {0};
    size_t n = group_overview_nodes(l->lead.group, world_clock(w, l->host), rows);
    for (size_t i = 0; i < n; i++) {
        const struct overview_node *row = &rows[i];
        struct life *o = node_of(w, row->incarnation);
        bool sick = strcmp(row->why, WORLD_SICK) == 0 ||
                    (row->why[0] == '\0' && row->place == PLACE_EXCLUDED && member_report(o->member)->sick[0] != '\0');
        bool stopped = row->state == NODE_JOINED || row->state == NODE_STOPPED;
        bool stays = !o->was_told_to_leave && (sick || row->why[0] == '\0');
        bool can = stays && (row->place == PLACE_MEMBER ||
                             (may_be_in(row, sick) && row->connected && stopped && was_heard(w, l, o)));
        bool before = w->now_ns >= row->since_ns && w->now_ns - row->since_ns < joined_before_ns;
        known.fit += can && !sick;
        known.sick += can && sick;
        known.fit_before += can && !sick && before;
        known.sick_before += can && sick && before;
        known.sick_members += sick && row->place == PLACE_MEMBER;
    }
    return known;
}

/* Which nodes count is not known where domains do. */
static bool sick_count(const struct world *w) {
    const struct rdzv_settings *s = &w->p.group.rdzv;
    return s->sick_nodes == SICK_NODES_EXCLUDE && w->n_crowd == 0 && (s->node_unit == 1 || s->unit_of == UNIT_OF_ANY);
}

static bool is_enough(const struct world *w, size_t nodes) {
    const struct rdzv_settings *s = &w->p.group.rdzv;
    return nodes - nodes % s->node_unit >= s->min_nodes;
}

/* I12: no group takes a sick node if fit ones are enough for it. */
static void check_sick(struct world *w, struct life *l, const struct group_info *g) {
    if (!sick_count(w))
        return;
    struct known_nodes known = known_nodes(w, l, 0);
    w->coverage->sick_left_out += known.sick > known.sick_members;
    w->coverage->sick_taken += known.sick_members > 0;
    if (known.sick_members > 0 && is_enough(w, known.fit))
        world_broken(w, "I12: %u.%u has %zu sick nodes, and %zu fit ones are there", G(g->generation),
                     known.sick_members, known.fit);
}

/* I12: no job ends because sick nodes were left out. */
static void check_few_left(struct world *w, struct life *l, const struct group_info *g) {
    if (!sick_count(w) || g == NULL || g->leader != l || g->first_stop_ns == TIME_NEVER)
        return;
    struct known_nodes known = known_nodes(w, l, g->first_stop_ns / 100 * 98);
    if (!is_enough(w, known.fit_before) && is_enough(w, known.fit_before + known.sick_before))
        world_broken(w, "I12: the job ends, and %zu fit and %zu sick nodes are there", known.fit_before,
                     known.sick_before);
}

/* ---- groups of which none lasts ---- */

#define STALLS_MAX 8 /* then the job ends */

static uint64_t soon_ns(const struct world *w) {
    const struct group_config *c = &w->p.group;
    return c->rdzv.crash_loop_ns + c->rdzv.lease_ns + c->rdzv.margin_ns;
}

/* From first to last they were there for too short a time, and nobody failed or wished for it; nor
 * can that many nodes have been used up. */
static void check_stalls(struct world *w, const struct life *l) {
    static const enum fault_kind wishes[] = {FAULT_LEAVE, FAULT_EXCLUDE, FAULT_GROW, FAULT_SAFE_POINT};
    if (w->p.group.rdzv.crash_loop_ns == 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(wishes); i++)
        if (world_has_fault(&w->p, wishes[i]))
            return;
    unsigned n = 0;
    for (unsigned i = w->n_groups; i-- > 0;) {
        const struct group_info *g = &w->groups[i];
        if (g->leader != l)
            break;
        if (g->ended_ns == TIME_NEVER || g->n_failures > 0)
            continue;
        if (g->ended_ns - g->forming_since_ns > soon_ns(w) / 100 * 97)
            break;
        n++;
    }
    if (n > STALLS_MAX + w->n_lives)
        world_broken(w, "I7: %u groups in a row ended with nothing gained", n);
}

/* The job ends for it: its last groups ended soon, all of them. */
static void check_none_lasts(struct world *w, const struct life *l) {
    unsigned n = 0;
    for (unsigned i = w->n_groups; i-- > 0 && n < STALLS_MAX;) {
        const struct group_info *g = &w->groups[i];
        if (g->leader != l)
            break;
        if (g->started_ns != 0 && g->ended_ns > g->started_ns + soon_ns(w) / 100 * 103)
            break;
        n++;
    }
    if (n < STALLS_MAX)
        world_broken(w, "I7: given up after %u groups that did not last", n);
}

static void new_group(struct world *w, struct life *l) {
    struct generation now = group_generation(l->lead.group);
    struct group_info *newest = oracle_newest(w, l);
    struct generation last = newest == NULL ? (struct generation){0, 0} : newest->generation;
    if (generation_is_none(now) || generation_compare(now, last) == 0)
        return;
    if (newest == NULL && oracle_group(w, now) != NULL && now.epoch < l->lead.epoch)
        return; /* the one that its handover tells of */
    if (generation_compare(now, last) < 0 || now.epoch > l->lead.epoch || w->owners[now.epoch] != l->incarnation ||
        oracle_group(w, now) != NULL) {
        world_broken(w, "I1: %u.%u forms %u.%u after %u.%u", l->host, l->index, G(now), G(last));
        return;
    }
    if (is_idle_from(w, now.epoch))
        world_broken(w, "I2: %u.%u forms %u.%u, and an epoch as high was claimed as idle", l->host, l->index, G(now));
    if (w->n_groups == WORLD_GROUPS_MAX) {
        world_broken(w, "I7: %u groups were formed and none lasted", WORLD_GROUPS_MAX);
        return;
    }
    l->lead.newest = (int)w->n_groups;
    struct group_info *g = &w->groups[w->n_groups++];
    *g = (struct group_info){.generation = now,
                             .leader = l,
                             .forming_since_ns = w->now_ns,
                             .first_stop_ns = TIME_NEVER,
                             .ended_ns = TIME_NEVER};
    g->n_nodes = (uint32_t)group_members(l->lead.group, g->members, WORLD_HOSTS_MAX + 1);
    check_size(w, g, g->n_nodes);
    check_domains(w, l, g, newest);
    check_sick(w, l, g);
    check_stalls(w, l);
    world_leader_file(w, LEADER_FILE_FORMED, l->host);
}

/* ---- the budget ---- */

/* The group that a charge of this leader can be for: its newest, or the last that was started
 * before it led. */
static struct group_info *charged_group(struct world *w, const struct life *l) {
    struct group_info *own = oracle_newest(w, l), *last = NULL;
    if (own != NULL)
        return own;
    for (unsigned i = 0; i < w->n_groups; i++)
        if (w->groups[i].n_started > 0 && w->groups[i].generation.epoch < l->lead.epoch &&
            (last == NULL || generation_compare(w->groups[i].generation, last->generation) > 0))
            last = &w->groups[i];
    return last;
}

static void check_budget(struct world *w, struct life *l, uint32_t heard) {
    uint32_t used = group_restarts_used(l->lead.group), before = l->lead.restarts_used;
    if (used == before)
        return;
    l->lead.restarts_used = used;
    struct group_info *g = charged_group(w, l);
    if (used < before) {
        world_broken(w, "I6: the count of restarts went from %u to %u", before, used);
    } else if (used > w->p.group.rdzv.max_restarts) {
        world_broken(w, "I6: %u restarts of %u allowed", used, w->p.group.rdzv.max_restarts);
    } else if (used <= heard && !l->lead.is_first) {
        return; /* the larger counts */
    } else if (used != MAX2(before, l->lead.is_first ? 0 : heard) + 1 || g == NULL || (g->charged && g->leader == l)) {
        world_broken(w, "I6: charged twice in one generation");
    } else if (!oracle_could_be_charged(w, g) &&
               w->now_ns < g->forming_since_ns + w->p.group.form_timeout_ns / 100 * 98) {
        world_broken(w, "I6: %u.%u is charged, and no worker of it failed by itself", G(g->generation));
    }
    if (g == NULL)
        return;
    if (g->leader == l)
        oracle_charged(w, l, g);
    g->charged = true;
}

/* Over all leaders: no fewer than the leader or this member knew, no more than were charged. */
void oracle_check_count(struct world *w, const struct group_info *g, const struct life *l) {
    uint32_t used = g->forms[0].restarts_used, charged = 0;
    uint32_t known = MAX2(g->leader->lead.inherited, l->restarts_heard);
    for (unsigned i = 0; i < w->n_groups; i++)
        charged += w->groups[i].charged && generation_compare(w->groups[i].generation, g->generation) < 0;
    if (used < known)
        world_broken(w, "I6: %u.%u is told of %u restarts, and %u were known", G(g->generation), used, known);
    if (used > charged)
        world_broken(w, "I6: %u.%u is told of %u restarts after %u charges", G(g->generation), used, charged);
}

/* ---- forms ---- */

static bool same_place(const struct form *a, const struct form *b) {
    return a->n_nodes == b->n_nodes && a->world_size == b->world_size && a->store_port == b->store_port &&
           strcmp(a->store_host, b->store_host) == 0 && a->role_world_size == b->role_world_size &&
           a->restarts_used == b->restarts_used && a->max_restarts == b->max_restarts && a->log_nonce == b->log_nonce;
}

/* Every member knows the group before any worker runs, and all know the same (I3). */
void oracle_check_forms(struct world *w, struct group_info *g) {
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

/* ---- the first cause ---- */

static void check_first_cause(struct world *w, const struct life *l, const struct failure *cause) {
    struct group_info *g = charged_group(w, l);
    const struct true_failure *named = NULL;
    if (g == NULL)
        return;
    for (unsigned i = 0; i < g->n_failures && named == NULL; i++) /* a worker that hangs may end later */
        if (g->failures[i].incarnation == cause->incarnation && g->failures[i].local == cause->local_rank)
            named = &g->failures[i];
    if (named == NULL) {
        if (cause->kind != FAILURE_NODE && g->leader == l)
            world_broken(w, "I8: the cause named never happened");
        return;
    }
    bool compared = g->started_ns > 0 && named->at_ns >= g->started_ns + 3 * NS_PER_S; /* by RENEW and LEASE */
    if (!w->p.honest_clocks || !compared || g->leader != l)
        return;
    uint64_t error = 3 * MAX2(w->p.delay_max_ns, 2 * NS_PER_MS) + 20 * NS_PER_MS;
    for (unsigned i = 0; i < g->n_failures; i++)
        w->coverage->causes_checked += g->failures[i].heard && g->failures[i].at_ns > named->at_ns + error;
    for (unsigned i = 0; i < g->n_failures; i++)
        if (g->failures[i].heard && g->failures[i].at_ns + error < named->at_ns)
            world_broken(w, "I8: the cause named came %.3f s after the first",
                         (double)(named->at_ns - g->failures[i].at_ns) / 1e9);
}

bool oracle_only_workers(const struct world *w) {
    for (size_t i = 0; i < w->p.n_faults; i++) {
        enum fault_kind k = w->p.faults[i].kind;
        if (k != FAULT_BOOT && k != FAULT_WORKER && k != FAULT_WORKERS && k != FAULT_SPAWN_FAILS &&
            k != FAULT_IGNORE_TERM && k != FAULT_PREPARE_FAILS)
            return false;
    }
    return true;
}

/* While a group stops, its cause is the first of what has been heard up to now. */
static void check_cause_so_far(struct world *w, const struct life *l, struct group_info *g) {
    struct desired d;
    if (!w->p.honest_clocks || g->n_failures < 2 || group_members(l->lead.group, NULL, 0) == 0)
        return;
    uint64_t member;
    (void)group_members(l->lead.group, &member, 1);
    if (group_desired(l->lead.group, member, &d) && d.has_failure)
        check_first_cause(w, l, &d.failure);
}

/* ---- the end ---- */

static void closed_with(struct world *w, struct life *l, enum outcome outcome) {
    struct job *job = &w->jobs[l->lead.job];
    if (job->closed && job->outcome != outcome && !w->was_emptied)
        world_broken(w, "I9: the job ends with %d after it ended with %d", (int)outcome, (int)job->outcome);
    job->closed = true;
    job->outcome = outcome;
}

/* All nodes are too few in whole units. A group could run only while a domain was not known. */
static bool lacks_units(struct world *w) {
    const struct rdzv_settings *s = &w->p.group.rdzv;
    size_t nodes[DOMAINS_MAX] = {0};
    for (unsigned i = 0; i < w->n_lives; i++)
        nodes[domain_of(w, w->lives[i].incarnation)]++;
    return s->unit_of == UNIT_OF_DOMAIN && !w->p.group.static_ranks && nodes[0] == 0 &&
           oracle_in_units(w, nodes) < s->min_nodes;
}

static void check_given_up(struct world *w, const struct group_info *g, const struct life *l) {
    if (!oracle_only_workers(w) || w->p.group.rdzv.exclude_after != 0 || w->p.group.rdzv.crash_loop_ns != 0)
        return;
    if (g == NULL || lacks_units(w))
        return;
    if (l->lead.restarts_used != w->p.group.rdzv.max_restarts || g->n_failures == 0)
        world_broken(w, "I7: given up after %u of %u restarts", l->lead.restarts_used, w->p.group.rdzv.max_restarts);
}

static void closed(struct world *w, struct life *l) {
    l->lead.closed = true;
    enum outcome outcome = group_outcome(l->lead.group);
    world_leader_file(w, LEADER_FILE_LEADER_CLOSED, l->host);
    if (world_is_fixed(w))
        closed_with(w, l, outcome);
    struct group_info *g = charged_group(w, l);
    uint64_t nodes[1];
    struct desired d = {0};
    if (group_nodes(l->lead.group, nodes, 1) == 0 || !group_desired(l->lead.group, nodes[0], &d))
        return; /* nobody is left to be told */
    if (d.kind == DESIRED_CLOSED && d.outcome != outcome)
        world_broken(w, "the group is closed, but nodes are told something else");
    if (d.kind != DESIRED_CLOSED && world_is_fixed(w) && w->p.group.leadership == LEADERSHIP_NONE)
        world_broken(w, "the group is closed, and nodes are not told");
    if (outcome == OUTCOME_SUCCESS) {
        for (uint32_t i = 0; g != NULL && i < g->n_nodes; i++)
            if (!g->finished[i])
                world_broken(w, "I9: success, but a member of %u.%u has not finished", G(g->generation));
        if (g == NULL || d.has_failure)
            world_broken(w, "I9: success, with nothing to show for it");
        return;
    }
    if (d.has_failure)
        check_first_cause(w, l, &d.failure);
    if (strstr(d.reason, "no group lasts") != NULL)
        check_none_lasts(w, l);
    if (strncmp(d.reason, "crash loop", 10) == 0 && g != NULL)
        oracle_ended_for_loop(w, g);
    bool for_the_failure = d.has_failure && d.reason[0] == '\0'; /* not an operator's wish */
    if (for_the_failure && g != NULL && g->leader == l)
        oracle_ended_for(w, l, g, &d.failure);
    if (strstr(d.reason, " nodes left") != NULL)
        check_few_left(w, l, g);
    if (d.kind == DESIRED_CLOSED && d.reason[0] == '\0' && !d.has_failure)
        world_broken(w, "the job failed without a reason");
    check_given_up(w, g, l);
}

void oracle_group_stepped(struct world *w, struct life *l, enum group_state before, uint32_t restarts_heard) {
    note_group_move(w, l, before);
    /* a charge is for the group before: the next may be formed in the same step */
    check_budget(w, l, restarts_heard);
    enum group_state now = group_state(l->lead.group);
    struct group_info *g = oracle_newest(w, l);
    bool over = before == GROUP_STOPPING && now != GROUP_STOPPING && now != GROUP_CLOSED;
    if (over && oracle_only_workers(w) && g != NULL && g->failed_first && !g->charged)
        world_broken(w, "I6: %u.%u failed and was not charged", G(g->generation));
    bool was_live = before == GROUP_FORMING || before == GROUP_RUNNING;
    if (g != NULL && was_live && now != before && now != GROUP_RUNNING)
        g->ended_ns = MIN2(g->ended_ns, w->now_ns);
    if (over && g != NULL)
        oracle_stop_over(w, l, g);
    struct successors s = *group_successors(l->lead.group);
    if (s.epoch > l->lead.epoch)
        oracle_speaks(w, l, s.epoch);
    new_group(w, l);
    g = oracle_newest(w, l);
    if (g != NULL && now != before && now == GROUP_RUNNING)
        oracle_check_forms(w, g);
    if (g != NULL && now == GROUP_STOPPING && g->first_stop_ns == TIME_NEVER) {
        g->first_stop_ns = w->now_ns;
        g->stopped_alone = group_nodes(l->lead.group, NULL, 0) == 1;
    }
    if (now == GROUP_STOPPING && g != NULL)
        check_cause_so_far(w, l, g);
    if (now == GROUP_CLOSED && !l->lead.closed)
        closed(w, l);
    if (l->lead.closed && world_is_fixed(w) && group_outcome(l->lead.group) != w->jobs[l->lead.job].outcome)
        world_broken(w, "I9: the outcome changed after it was told");
}

/* The job failed, and can begin again: none of its workers lives, and nodes were told to leave, or this leader has
 * started no group. */
static bool is_interrupted(struct world *w, const struct life *l, const struct desired *d) {
    const struct group_info *newest = oracle_newest(w, l);
    bool not_begun = newest == NULL || newest->n_started == 0;
    return d->outcome == OUTCOME_FAILED && !d->has_failure && d->epoch + 1 < WORLD_EPOCHS_MAX &&
           w->vacated[d->epoch + 1] == l->incarnation &&
           (not_begun || world_has_fault(&w->p, FAULT_LEAVE) || world_has_fault(&w->p, FAULT_EXCLUDE));
}

void oracle_closed_told(struct world *w, struct life *l, const struct desired *d) {
    struct job *job = &w->jobs[l->lead.job];
    if (is_interrupted(w, l, d)) {
        l->lead.interrupted = true;
        return;
    }
    if (!world_is_fixed(w)) {
        bool there = w->record.closed && w->record.outcome == d->outcome;
        if (!there && !arbiter_is_emptied(w))
            world_broken(w, "I9: %u.%u tells CLOSED(%d), and the arbiter does not have it", l->host, l->index,
                         (int)d->outcome);
        closed_with(w, l, d->outcome);
    } else if (w->p.group.leadership == LEADERSHIP_LEADER_FILE && w->leader_file.outcome != d->outcome &&
               !world_has_fault(&w->p, FAULT_TOUCH_FAILS)) {
        world_broken(w, "I9: CLOSED is told before the mark has it");
    }
    if (!job->told)
        (void)snprintf(job->reason, sizeof job->reason, "%s", d->reason);
    else if (world_is_fixed(w) && strcmp(job->reason, d->reason) != 0)
        world_broken(w, "I9: two nodes are told two reasons");
    job->told = true;
}

void oracle_report_heard(struct world *w, struct life *leader, const struct life *node, const struct report *r) {
    struct group_info *g = oracle_group(w, r->generation);
    int place = g == NULL ? -1 : oracle_member_place(g, node->incarnation);
    if (place >= 0 && g->leader == leader && r->state == NODE_STOPPED)
        g->said_stopped[place] = true;
    if (g == NULL || !r->has_failure)
        return;
    bool in_time = g->first_stop_ns == TIME_NEVER || (group_state(leader->lead.group) == GROUP_STOPPING &&
                                                      w->now_ns < g->first_stop_ns + w->p.group.settle_ns / 100 * 98);
    g->failed_first = g->failed_first || g->first_stop_ns == TIME_NEVER;
    for (unsigned i = 0; i < g->n_failures; i++) {
        struct true_failure *f = &g->failures[i];
        if (f->incarnation != r->failure.incarnation || f->local != r->failure.local_rank)
            continue;
        f->heard = f->heard || (in_time && g->leader == leader);
        f->ever_heard = true;
    }
}
