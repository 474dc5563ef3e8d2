/* The states of the group and the ways between them. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* A cause in doubt is looked at so often: for each member. */
#define DOUBT_CHECK_NS (100 * NS_PER_MS)

static const struct {
    const char *name;
    unsigned next; /* bits of the states that may follow */
} states[GROUP_STATE_COUNT] = {
    /*                  name         may be followed by */
    [GROUP_GATHERING] = {"gathering", 1u << GROUP_FORMING | 1u << GROUP_CLOSED},
    [GROUP_FORMING] = {"forming", 1u << GROUP_RUNNING | 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_RUNNING] = {"running", 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_STOPPING] = {"stopping", 1u << GROUP_GATHERING | 1u << GROUP_CLOSED},
    [GROUP_CLOSED] = {"closed", 0},
};

const char *group_state_name(enum group_state s) { return states[s].name; }

bool group_may_move(enum group_state from, enum group_state to) {
    return (states[from].next >> to & 1) != 0;
}

static void move(struct group *g, enum group_state to) {
    assert(group_may_move(g->state, to));
    g->state = to;
    g->since_ns = g->now_ns;
    g->status_dirty = true;
}

static void close_store(struct group *g) {
    if (!g->store_open)
        return;
    g->store_open = false;
    group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = g->formation.generation;
}

/* group_outcome_recorded() follows, maybe at once. */
static void record_outcome(struct group *g) {
    struct leadership *l = &g->leadership;
    g->record = OUTCOME_WAITS;
    if (g->config.leadership == LEADERSHIP_NONE || l->ruined) {
        group_outcome_recorded(g);
    } else if (g->config.leadership == LEADERSHIP_LEADER_FILE) {
        l->closing = true;
        group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = g->outcome;
    } else {
        g->close_deadline_ns += g->config.rdzv.arbiter_lease_ns;
        l->claim_ns = g->now_ns;
        /* of the epoch that this leader has when its claim is answered */
        l->closing = !l->claiming && group_ask(g, ARBITER_CLOSE, l->epoch);
    }
}

/* The nodes are told when it is put down where late comers find it. */
static void enter_closed(struct group *g) {
    close_store(g);
    if (g->cause.state == CAUSE_IN_DOUBT) /* the job ends for something else */
        cause_forget(&g->cause);
    g->closed_from = g->state;
    move(g, GROUP_CLOSED);
    g->close_deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    record_outcome(g);
}

void group_outcome_recorded(struct group *g) {
    g->record = OUTCOME_RECORDED;
    g->close_deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    group_add_to_timeline(g, TIMELINE_CLOSED, NULL, g->reason)->outcome = g->outcome;
    group_notify_all(g);
}

void group_close_failed(struct group *g, const char *reason) {
    g->outcome = OUTCOME_FAILED;
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    enter_closed(g);
}

static void enter_gathering(struct group *g) {
    close_store(g);
    formation_end(&g->formation);
    g->started_ns = 0;
    move(g, GROUP_GATHERING);
    g->gather_since_ns = g->now_ns;
    g->enough_since_ns = TIME_NEVER;
    formation_recount_all(&g->formation, &g->roster);
    g->idle_unsent = true;
}

/* Why there are too few, where the stop's own reason does not say it. */
static void describe_missing(const struct group *g, char out[RDZV_REASON_MAX]) {
    (void)snprintf(out, RDZV_REASON_MAX, "a node can't take part any more");
    if (g->last_lost[0] != '\0')
        (void)snprintf(out, RDZV_REASON_MAX, "node %s was lost", g->last_lost);
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->report.unusable[0] != '\0')
            node_unusable_text(g->formation.members[i], out);
}

/* Fewer nodes are left, or to be hoped for, than a group needs, and nobody asked to wait. */
static bool too_few_for_ever(const struct group *g) {
    return g->formation.started_once && g->roster.tally[TALLY_HOPEFUL] < g->need &&
           !group_is_leaving(g) && g->config.rdzv.regroup_wait_ns == 0 &&
           g->now_ns >= group_patient_until(g);
}

void group_begin_stop(struct group *g, const char *reason) {
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    g->n_stopping = formation_workers(&g->formation);
    g->stop_wished = g->sending = false;
    g->stop_since_ns = g->now_ns;
    cause_begin_stop(&g->cause, g->now_ns + g->config.settle_ns);
    g->stopped_ns = g->formed_ns = 0;
    if (g->detected_ns == 0)
        g->detected_ns = g->now_ns;
    move(g, GROUP_STOPPING);
    char cause[RDZV_REASON_MAX / 4] = "";
    if (group_shows_cause(g) && reason[0] == '\0')
        cause_text(&g->cause, cause, sizeof cause);
    group_add_to_timeline(g, TIMELINE_STOPPING, NULL, reason[0] != '\0' ? reason : cause)
        ->detected_ns = g->detected_ns;
    group_notify_members(g);
}

static void describe_too_few(const struct group *g, const char *why, char *out, size_t len) {
    (void)snprintf(out, len, "%.1900s; %zu of at least %u nodes left", why,
                   g->roster.tally[TALLY_HOPEFUL], g->need);
}

/* What the loss of a node means for the job: whether it ends, and the whole sentence. */
static void weigh_loss(struct group *g, const char *why, char text[RDZV_REASON_MAX]) {
    bool too_many = policy_losses_spent(&g->policy, &g->config);
    (void)snprintf(text, RDZV_REASON_MAX, "%s", why);
    if (too_many) {
        (void)snprintf(text, RDZV_REASON_MAX,
                       "%.1900s; %u nodes were lost, and --max-node-losses is %u", why,
                       g->policy.losses, g->config.rdzv.max_node_losses);
    } else if (too_few_for_ever(g)) {
        describe_too_few(g, why, text, RDZV_REASON_MAX);
    } else {
        return;
    }
    g->after_stop = too_many ? AFTER_STOP_CLOSED : AFTER_STOP_CLOSED_FOR_FEW;
    g->outcome = OUTCOME_FAILED;
}

/* A member is no longer there, or wants out. */
void group_stop_for_lost_node(struct group *g, const char *why) {
    char text[RDZV_REASON_MAX];
    weigh_loss(g, why, text);
    group_begin_stop(g, text);
}

/* A worker failed (or a node could not obey FORM). The charge waits until all have stopped: what
 * looks like a failure may be a node that is being lost, or the echo of its loss, which costs
 * nothing. */
void group_stop_for_failure(struct group *g) {
    cause_blame(&g->cause, g->roster.n);
    /* its clock is known give or take an error: never later than now */
    g->detected_ns = g->cause.at_ns > 0 ? MIN2((uint64_t)g->cause.at_ns, g->now_ns) : g->now_ns;
    const struct node *failed = roster_find(&g->roster, g->cause.failure.incarnation);
    char cause[RDZV_REASON_MAX / 4];
    cause_text(&g->cause, cause, sizeof cause);
    group_add_to_timeline(g, TIMELINE_WORKER_FAILED, failed, cause)->detected_ns = g->detected_ns;
    group_begin_stop(g, "");
    if (g->n_stopping > 0)
        g->n_stopping--; /* the one that failed needs no stopping */
}

/* What nodes are told is what holds when it is sent: so the group stays as it is until its time
 * goes on, which is after that. */
static void notify_before_going_on(struct group *g) {
    group_notify_members(g);
    g->sending = true;
}

bool group_budget_spent(const struct group *g) {
    return cause_is_pending(&g->cause) && policy_restarts_spent(&g->policy, &g->config);
}

bool group_shows_cause(const struct group *g) {
    return g->cause.state == CAUSE_SURE || g->cause.state == CAUSE_CHARGED;
}

static void make_cause_sure(struct group *g) {
    cause_make_sure(&g->cause);
    g->reason[0] = '\0';
}

bool group_add_failure(struct group *g, const struct node *n, const struct failure *f) {
    uint64_t error_ns;
    int64_t at_ns = node_clock_ours(&n->clock, f->at_ns, &error_ns);
    if (n->info.incarnation == g->config.leader_incarnation) {
        at_ns = (int64_t)f->at_ns;
        error_ns = 0;
    }
    return cause_add(&g->cause, f, at_ns, error_ns);
}

void group_better_cause(struct group *g) {
    if (g->cause.state == CAUSE_IN_DOUBT && !cause_may_be_loss(&g->cause, g->roster.n))
        make_cause_sure(g);
    if (cause_report_better(&g->cause))
        group_notify_members(g);
}

bool group_outlived_failure(const struct group *g, const struct node *n) {
    return node_is(n, TALLY_STOPPED) || n->info.incarnation == g->config.leader_incarnation ||
           n->heard_ns > g->stop_since_ns + g->config.settle_ns;
}

static bool is_certain(const struct group *g) {
    const struct node *n = roster_find(&g->roster, g->cause.failure.incarnation);
    bool member = n != NULL && n->is_member;
    struct cause_facts facts = {.member = member,
                                .stopped = member && node_is(n, TALLY_STOPPED),
                                .connected = member && n->connected,
                                .waited = g->now_ns >= g->stop_since_ns + g->config.settle_ns,
                                .all_outlived = true,
                                .no_restart_left = group_budget_spent(g)};
    for (size_t i = 0; i < g->formation.n_members && facts.all_outlived; i++)
        facts.all_outlived = group_outlived_failure(g, g->formation.members[i]);
    return cause_is_certain(&g->cause, &facts);
}

bool group_blame_lost_node(struct group *g, uint64_t incarnation, bool outlived, const char *why) {
    if (!cause_is_loss_of(&g->cause, incarnation, outlived))
        return false;
    cause_forget(&g->cause);
    g->cause.better_waits = false;
    weigh_loss(g, why, g->reason);
    notify_before_going_on(g);
    return true;
}

/* ---- GATHERING ---- */

/* Nothing but time, or the arbiter, stands between enough candidates and their group. */
static bool may_form(struct group *g) {
    return g->now_ns >= g->not_before_ns && !group_somebody_unresolved(g) &&
           group_has_epoch_to_form(g) && group_is_confirmed(g) && group_successors_settled(g);
}

static bool is_full(const struct group *g) {
    return formation_size(&g->config, g->roster.tally[TALLY_CANDIDATE]) >=
           formation_size(&g->config, g->config.rdzv.max_nodes);
}

uint64_t group_gather_deadline(const struct group *g) {
    uint64_t t;
    if (g->enough_since_ns == TIME_NEVER) {
        if (!g->formation.started_once)
            return g->gather_since_ns + g->config.rdzv.join_timeout_ns;
        return group_somebody_unresolved(g)
                   ? TIME_NEVER
                   : MAX2(g->gather_since_ns + g->config.rdzv.regroup_wait_ns,
                          group_patient_until(g));
    }
    if (group_somebody_unresolved(g))
        return TIME_NEVER;
    if (is_full(g))
        t = 0; /* nobody else is waited for */
    else if (!g->formation.formed_once)
        t = g->enough_since_ns + g->config.rdzv.last_call_ns;
    else
        t = g->lost_somebody ? g->gather_since_ns + g->config.rdzv.regroup_wait_ns : 0;
    return MAX2(t, g->not_before_ns);
}

static void form(struct group *g) {
    formation_choose(&g->formation, &g->roster, &g->config, g->leadership.epoch,
                     g->policy.restarts_used, g->policy.losses);
    policy_begin_generation(&g->policy);
    if (g->detected_ns != 0 && g->stopped_ns == 0)
        g->stopped_ns = g->now_ns; /* what the last leader's loss has stopped */
    g->grow_asked = false;
    cause_forget(&g->cause);
    g->after_stop = AFTER_STOP_GATHERING;
    g->form_sent = false;
    g->reason[0] = '\0';
    g->store_wanted = true;
    g->form_deadline_ns = TIME_NEVER;
    move(g, GROUP_FORMING);
    group_name_successors(g);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (!n->is_member)
            group_notify(g, n); /* a spare */
    struct group_effect *e = group_emit(g, GROUP_EFFECT_STORE_OPEN, 0);
    e->generation = g->formation.generation;
    e->n_nodes = (uint32_t)g->formation.n_members;
}

static void give_up_gathering(struct group *g, size_t candidates) {
    char text[RDZV_REASON_MAX];
    if (g->formation.started_once) {
        (void)snprintf(text, sizeof text, "%zu of at least %u nodes left%s%s", candidates, g->need,
                       g->last_lost[0] != '\0' ? "; lost: " : "", g->last_lost);
    } else {
        struct rdzv_status s = {0};
        roster_status(&g->roster, &g->config, &s);
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        for (uint32_t i = 0; i < s.n_names; i++)
            strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", s.names[i]);
        (void)snprintf(text, sizeof text,
                       "only %zu of at least %u nodes came within %.0f s (there: %.1500s); start "
                       "the missing ones, or raise --rdzv-conf join_timeout",
                       candidates, g->need,
                       (double)g->config.rdzv.join_timeout_ns / (double)NS_PER_S,
                       strbuf_text(&names));
    }
    group_close_failed(g, text);
}

/* The last leader's group had finished, every node of it says so: it is not run again. */
static bool was_finished_before(const struct group *g) {
    return g->formation.n_old_members > 0 &&
           g->roster.tally[TALLY_OLD_FINISHED] == g->formation.n_old_members;
}

static void advance_gathering(struct group *g) {
    if (group_is_leaving(g))
        return; /* who leads next does */
    size_t candidates = g->roster.tally[TALLY_CANDIDATE];
    bool enough = formation_size(&g->config, candidates) > 0;
    if (was_finished_before(g)) {
        g->outcome = OUTCOME_SUCCESS;
        enter_closed(g);
        return;
    }
    if (policy_losses_spent(&g->policy, &g->config)) {
        char text[128];
        (void)snprintf(text, sizeof text, "%u nodes were lost, and --max-node-losses is %u",
                       g->policy.losses, g->config.rdzv.max_node_losses);
        group_close_failed(g, text);
        return;
    }
    if (!enough)
        g->enough_since_ns = TIME_NEVER;
    else if (g->enough_since_ns == TIME_NEVER)
        g->enough_since_ns = g->now_ns;

    bool due = g->now_ns >= group_gather_deadline(g);
    if (is_full(g) || (enough && due)) {
        if (may_form(g))
            form(g);
        return;
    }
    if (!enough && due &&
        (!g->formation.started_once || g->roster.tally[TALLY_HOPEFUL] < g->need ||
         g->config.rdzv.regroup_wait_ns > 0))
        give_up_gathering(g, candidates);
}

/* ---- FORMING, RUNNING, STOPPING ---- */

static bool all_members(const struct group *g, enum tally tally) {
    return g->roster.tally[tally] == g->formation.n_members;
}

static void fail_slow_nodes(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct node *n = g->formation.members[i];
        if (formation_reports(&g->formation, n, NODE_PREPARED))
            continue;
        struct failure f = {.kind = FAILURE_NODE,
                            .rank = n->place.first_rank,
                            .node_rank = n->place.node_rank,
                            .incarnation = n->info.incarnation,
                            .at_ns = (uint64_t)((int64_t)g->now_ns - n->clock.offset_ns)};
        node_name(n, f.node);
        (void)snprintf(f.text, sizeof f.text, "node %.100s did not get ready within %.0f s", f.node,
                       (double)g->config.form_timeout_ns / (double)NS_PER_S);
        (void)group_add_failure(g, n, &f);
        break;
    }
    group_stop_for_failure(g);
}

/* Those whose listener has not been reached: their loss would not be noticed at once. */
static void reach_members(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (!g->formation.members[i]->reached)
            (void)group_emit(g, GROUP_EFFECT_REACH, g->formation.members[i]->info.incarnation);
}

static void advance_forming(struct group *g) {
    if (!g->form_sent)
        return; /* the store is not open yet */
    if (all_members(g, TALLY_PREPARED)) {
        bool incident = g->stopped_ns != 0;
        g->formation.started_once = true;
        g->formation.started = g->formation.generation;
        g->lost_somebody = false;
        g->formed_ns = g->started_ns = g->last_start_ns = g->now_ns;
        g->reachability = formation_reachability(&g->formation);
        move(g, GROUP_RUNNING);
        struct timeline_entry *note = group_add_to_timeline(g, TIMELINE_FORMED, NULL, NULL);
        note->stopped_ns = g->stopped_ns;
        note->n_nodes = (uint32_t)g->formation.n_members;
        note->world_size = g->formation.world_size;
        note = group_add_to_timeline(g, TIMELINE_STARTED, NULL, NULL);
        note->detected_ns = incident ? g->detected_ns : 0;
        note->stopped_ns = g->stopped_ns;
        note->formed_ns = g->formed_ns;
        note->started_ns = g->now_ns;
        note->n_nodes = (uint32_t)g->formation.n_members;
        note->world_size = g->formation.world_size;
        g->detected_ns = 0;
        group_notify_members(g);
        reach_members(g);
    } else if (g->now_ns >= g->form_deadline_ns) {
        fail_slow_nodes(g);
    }
}

size_t group_larger(const struct group *g) {
    size_t larger =
        formation_size(&g->config, g->formation.n_members + g->roster.tally[TALLY_WAITING]);
    return larger > g->formation.n_members ? larger : 0;
}

static void stop_to_grow(struct group *g, size_t larger, const char *why) {
    char text[128];
    (void)snprintf(text, sizeof text, "the group grows from %zu to %zu nodes%s",
                   g->formation.n_members, larger, why);
    g->detected_ns = g->now_ns;
    group_begin_stop(g, text);
    g->stop_wished = true;
}

static void grow(struct group *g) {
    if (g->roster.tally[TALLY_WAITING] == 0 || g->formation.n_members >= g->config.rdzv.max_nodes)
        return;
    size_t larger = group_larger(g);
    if (larger == 0 || g->now_ns < g->not_before_ns)
        return;
    /* Who comes and is lost again and again must not keep the others from working. */
    if (stalls_go_on(&g->stalls, &g->config, g->started_ns, g->now_ns) && !g->grow_asked)
        return;
    bool now = false;
    switch (g->config.rdzv.grow) {
    case GROW_NOW: now = true; break;
    case GROW_BOUNDARY: now = g->roster.tally[TALLY_SAFE] > 0; break;
    case GROW_NEVER: break;
    }
    if (g->grow_asked)
        stop_to_grow(g, larger, ": an operator asked");
    else if (now)
        stop_to_grow(g, larger, g->config.rdzv.grow == GROW_BOUNDARY ? ", at a safe point" : "");
}

static void advance_running(struct group *g) {
    if (all_members(g, TALLY_FINISHED)) {
        g->outcome = OUTCOME_SUCCESS;
        enter_closed(g);
    } else {
        grow(g);
    }
}

/* The cause is still in doubt: looked at again soon. People who see nothing happen are told that,
 * without a name that may be the wrong one. */
static void keep_doubting(struct group *g) {
    uint64_t patience =
        g->config.settle_ns + g->config.rdzv.heartbeat_ns + g->config.rdzv.heartbeat_ns / 2;
    g->cause.settle_ns = g->now_ns + DOUBT_CHECK_NS;
    if (g->cause.doubt_reported || g->now_ns < g->stop_since_ns + patience)
        return;
    g->cause.doubt_reported = true;
    (void)snprintf(g->reason, sizeof g->reason,
                   "rank %u failed; whether a node was lost is not known yet",
                   g->cause.failure.rank);
    group_notify_members(g);
}

/* What is known by now of the cause is told. True: not all is known, or told, and the group does
 * not go on in this step. */
static bool settle(struct group *g, bool all_stopped) {
    bool due = g->now_ns >= g->cause.settle_ns;
    if (g->sending)
        return true;
    if (!due && !all_stopped)
        return false;
    if (g->cause.state == CAUSE_IN_DOUBT) {
        if (is_certain(g)) {
            make_cause_sure(g);
            notify_before_going_on(g);
        } else if (due) {
            keep_doubting(g);
        }
        return true;
    }
    g->cause.settle_ns = TIME_NEVER;
    if (g->cause.better_waits && !all_stopped)
        group_notify_members(g); /* a better cause turned up since STOP was told */
    g->cause.better_waits = false;
    return false;
}

/* The same node failed again and again: another may take its place, if there is one. */
static void exclude_who_fails(struct group *g) {
    struct node *n = roster_find(&g->roster, g->cause.failure.incarnation);
    bool others = n != NULL && g->roster.tally[TALLY_HOPEFUL] > g->need;
    uint32_t times =
        policy_count_node(&g->policy, &g->config, g->cause.failure.incarnation, others);
    if (times == 0)
        return;
    char why[RDZV_HOST_MAX];
    (void)snprintf(why, sizeof why, "its workers failed %u times in a row", times);
    group_exclude(g, n, why);
}

static void wait_before_next(struct group *g, uint64_t pause_ns) {
    if (pause_ns > 0)
        g->not_before_ns = MAX2(g->not_before_ns, g->now_ns + pause_ns);
}

/* All have stopped after a failure that is charged now. False: the job ends, g->reason says why. */
static bool charge(struct group *g) {
    g->cause.state = CAUSE_CHARGED;
    if (policy_is_crash_loop(&g->policy, g->formation.world_size)) {
        (void)snprintf(g->reason, sizeof g->reason,
                       "a crash loop: the same failure within %g s of the start, twice in a row; "
                       "not started again, though %u of %u restarts are left (--crash-loop)",
                       (double)g->config.rdzv.crash_loop_ns / 1e9,
                       g->config.rdzv.max_restarts - g->policy.restarts_used,
                       g->config.rdzv.max_restarts);
        return false;
    }
    policy_charge(&g->policy);
    exclude_who_fails(g);
    wait_before_next(g,
                     policy_backoff_ns(&g->policy, &g->config, g->stop_since_ns - g->started_ns));
    return true;
}

/* All have stopped. False: no group lasts, the job ends, g->reason says why. */
static bool count_stall(struct group *g, bool worker_failed) {
    struct group_end end = {.started_ns = g->started_ns,
                            .stopped_ns = g->stop_since_ns,
                            .nodes_left = g->roster.tally[TALLY_HOPEFUL],
                            .worker_failed = worker_failed,
                            .wished = g->stop_wished};
    uint64_t pause_ns = stalls_count(&g->stalls, &g->config, &end);
    char text[RDZV_REASON_MAX / 2];
    if (pause_ns == TIME_NEVER) {
        if (g->reason[0] == '\0' && g->cause.state != CAUSE_NONE)
            cause_text(&g->cause, text, sizeof text);
        else
            (void)snprintf(text, sizeof text, "%.1000s", g->reason);
        stalls_end_text(&g->stalls, &g->config, text, g->reason, sizeof g->reason);
        return false;
    }
    if (pause_ns == 0)
        return true;
    wait_before_next(g, pause_ns);
    stalls_pause_text(&g->stalls, &g->config, pause_ns, text, sizeof text);
    group_notice(g, text);
    return true;
}

/* The reason stands; all have stopped, or will. */
static void fail_after_stop(struct group *g) {
    g->after_stop = AFTER_STOP_CLOSED;
    g->outcome = OUTCOME_FAILED;
}

/* All have stopped: what it costs, and whether the job goes on. */
static void weigh_stop(struct group *g) {
    bool worker_failed = cause_is_pending(&g->cause) && g->cause.failure.kind != FAILURE_NODE;
    if (g->after_stop != AFTER_STOP_GATHERING)
        return;
    if (group_budget_spent(g)) {
        fail_after_stop(g);
    } else if (cause_is_pending(&g->cause) && !charge(g)) {
        fail_after_stop(g);
    } else if (too_few_for_ever(g)) {
        char text[RDZV_REASON_MAX], missing[RDZV_REASON_MAX];
        describe_missing(g, missing);
        describe_too_few(g, g->reason[0] != '\0' ? g->reason : missing, text, sizeof text);
        (void)snprintf(g->reason, sizeof g->reason, "%s", text);
        fail_after_stop(g);
    } else if (!count_stall(g, worker_failed)) {
        fail_after_stop(g);
    }
}

static void advance_stopping(struct group *g) {
    bool all_stopped = all_members(g, TALLY_STOPPED);
    if (g->after_stop == AFTER_STOP_CLOSED_FOR_FEW && group_is_leaving(g))
        g->after_stop = AFTER_STOP_GATHERING;
    if (settle(g, all_stopped) || !all_stopped)
        return;
    g->stopped_ns = g->now_ns;
    group_add_to_timeline(g, TIMELINE_STOPPED, NULL, NULL)->detected_ns = g->stop_since_ns;
    weigh_stop(g);
    if (g->after_stop == AFTER_STOP_GATHERING)
        enter_gathering(g);
    else
        enter_closed(g);
}

static void advance_closed(struct group *g) {
    bool late = g->now_ns >= g->close_deadline_ns;
    if (g->record == OUTCOME_WAITS && late) {
        /* Nobody was told, and nobody will be: who finds the arbiter again reads there what became
         * of it, or ends without. */
        g->outcome = OUTCOME_NONE;
        g->record = OUTCOME_GIVEN_UP;
        group_notice(g, "the outcome of the job could not be put down at the arbiter");
        group_depose(g, g->leadership.epoch);
    } else if (g->record == OUTCOME_RECORDED &&
               (g->roster.tally[TALLY_CLOSED] == g->roster.n || late)) {
        g->record = OUTCOME_DELIVERED;
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
    }
}

void group_advance(struct group *g) {
    enum group_state before;
    do {
        before = g->state;
        switch (g->state) {
        case GROUP_GATHERING: advance_gathering(g); break;
        case GROUP_FORMING: advance_forming(g); break;
        case GROUP_RUNNING: advance_running(g); break;
        case GROUP_STOPPING: advance_stopping(g); break;
        case GROUP_CLOSED: advance_closed(g); break;
        case GROUP_STATE_COUNT: assert_not_reached();
        }
    } while (g->state != before);
}
