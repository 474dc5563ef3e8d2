/* STOPPING: why the group stops, what that costs, and whether the job continues. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

static void group_describe_missing(const struct group *g, char out[RDZV_REASON_MAX]);

/* The interval between checks of a cause in doubt, which examine each member. */
#define DOUBT_CHECK_NS (100 * NS_PER_MS)

/* Describes why there are too few nodes, if the reason of the stop does not. */
static void describe_missing(const struct group *g, char out[RDZV_REASON_MAX]) {
    group_describe_missing(g, out);
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->report.unusable[0] != '\0')
            node_unusable_text(g->formation.members[i], out);
}

/* Fewer nodes are left or can be expected than a group needs, and no option asks to wait for
 * more. */
static bool too_few_for_ever(const struct group *g) {
    return g->formation.started_once && g->roster.tally[TALLY_HOPEFUL] < g->need &&
           !group_is_leaving(g) && g->config.rdzv.regroup_wait_ns == 0 &&
           g->now_ns >= group_patient_until(g);
}

void group_begin_stop(struct group *g, const char *reason, bool wished) {
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    g->stopping.n_workers = formation_workers(&g->formation);
    g->stopping.wished = wished;
    g->stopping.interrupted = false;
    g->stopping.sending = false;
    g->stopping.since_ns = g->now_ns;
    cause_begin_stop(&g->cause, g->now_ns + g->config.settle_ns);
    g->incident.stopped_ns = g->incident.formed_ns = 0;
    if (g->incident.detected_ns == 0)
        g->incident.detected_ns = g->now_ns;
    group_move(g, GROUP_STOPPING);
    char cause[RDZV_REASON_MAX / 4] = "";
    if (group_shows_cause(g) && reason[0] == '\0')
        cause_text(&g->cause, cause, sizeof cause);
    group_add_to_timeline(g, TIMELINE_STOPPING, NULL, reason[0] != '\0' ? reason : cause)
        ->detected_ns = g->incident.detected_ns;
    group_notify_members(g);
}

static void describe_too_few(const struct group *g, const char *why, char *out, size_t len) {
    (void)snprintf(out, len, "%.1900s; %zu of at least %u nodes left", why,
                   g->roster.tally[TALLY_HOPEFUL], g->need);
}

/* Decides whether the loss of a node ends the job, and writes the whole sentence about it. */
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
    g->stopping.after = too_many ? AFTER_STOP_CLOSED : AFTER_STOP_CLOSED_FOR_FEW;
    g->outcome = OUTCOME_FAILED;
}

/* A member is lost, or wants to leave. */
void group_stop_for_lost_node(struct group *g, const char *why, bool wished) {
    char text[RDZV_REASON_MAX];
    weigh_loss(g, why, text);
    group_begin_stop(g, text, wished);
    g->stopping.interrupted = wished;
}

/* A worker failed (or a node could not carry out FORM). It is charged only when all have stopped:
 * an apparent failure may be the loss of a node or an effect of it, which costs nothing. */
void group_stop_for_failure(struct group *g) {
    cause_blame(&g->cause, g->roster.n);
    /* the node's clock is known only with an error, so limit the time to now */
    g->incident.detected_ns =
        g->cause.at_ns > 0 ? MIN2((uint64_t)g->cause.at_ns, g->now_ns) : g->now_ns;
    const struct node *failed = roster_find(&g->roster, g->cause.failure.incarnation);
    char cause[RDZV_REASON_MAX / 4];
    cause_text(&g->cause, cause, sizeof cause);
    bool hangs = g->cause.failure.kind == FAILURE_HANG;
    struct timeline_entry *entry =
        group_add_to_timeline(g, hangs ? TIMELINE_HANG : TIMELINE_WORKER_FAILED, failed, cause);
    entry->detected_ns = g->incident.detected_ns;
    entry->rank = g->cause.failure.rank;
    group_begin_stop(g, "", false);
    if (g->stopping.n_workers > 0 && !hangs)
        g->stopping.n_workers--; /* the worker that failed need not be stopped */
}

void group_on_hang(struct group *g, struct generation of, const struct failure *failure) {
    struct failure f = *failure;
    assert(f.kind == FAILURE_HANG);
    if (g->state != GROUP_RUNNING || generation_compare(of, g->formation.generation) != 0)
        return;
    const struct node *n = f.incarnation == 0 ? NULL : roster_find(&g->roster, f.incarnation);
    f.at_ns = g->now_ns;
    if (n != NULL && n->is_member) {
        node_name(n, f.node);
        f.node_rank = n->place.node_rank;
        f.at_ns = (uint64_t)((int64_t)g->now_ns - n->clock.offset_ns);
    } else {
        f.incarnation = 0;
        f.node[0] = '\0';
    }
    if (cause_add(&g->cause, &f, (int64_t)g->now_ns, 0))
        group_stop_for_failure(g);
}

/* The job fails for the reason that is set; all have stopped, or will. */
static void fail_after_stop(struct group *g) {
    g->stopping.after = AFTER_STOP_CLOSED;
    g->outcome = OUTCOME_FAILED;
}

void group_stop_for_operator(struct group *g, const char *reason, bool halted) {
    if (g->state == GROUP_CLOSED ||
        (g->state == GROUP_STOPPING && g->stopping.after != AFTER_STOP_GATHERING))
        return;
    g->closed.halted = halted;
    if (g->state == GROUP_GATHERING) {
        group_close_failed(g, reason);
        return;
    }
    fail_after_stop(g);
    cause_forget(&g->cause);
    if (group_is_live(g)) {
        group_begin_stop(g, reason, false);
    } else {
        (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
        group_add_to_timeline(g, TIMELINE_STOPPING, NULL, reason)->detected_ns = g->now_ns;
        group_notify_members(g);
    }
}

/* A message is built from the state at the time when it is sent. So the group does not change until
 * its next time event, which comes after that. */
static void notify_before_going_on(struct group *g) {
    group_notify_members(g);
    g->stopping.sending = true;
}

bool group_budget_spent(const struct group *g) {
    return cause_is_pending(&g->cause) && policy_restarts_spent(&g->policy, &g->config);
}

bool group_shows_cause(const struct group *g) {
    return g->cause.state == CAUSE_SURE || g->cause.state == CAUSE_CHARGED;
}

void group_stop_event(const struct group *g, struct last_event *ret) {
    bool failed = group_shows_cause(g);
    if (!failed && g->reason[0] == '\0')
        return;
    *ret = (struct last_event){.at_ns = g->incident.detected_ns, .has_failure = failed};
    if (failed) {
        ret->failure = g->cause.failure;
        cause_text(&g->cause, ret->text, sizeof ret->text);
    } else {
        (void)snprintf(ret->text, sizeof ret->text, "%.500s", g->reason);
    }
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
           n->contact_ns > g->stopping.since_ns + g->config.settle_ns;
}

static bool is_certain(const struct group *g) {
    const struct node *n = roster_find(&g->roster, g->cause.failure.incarnation);
    bool member = n != NULL && n->is_member;
    struct cause_facts facts = {.member = member,
                                .stopped = member && node_is(n, TALLY_STOPPED),
                                .connected = member && n->connected,
                                .waited = g->now_ns >= g->stopping.since_ns + g->config.settle_ns,
                                .all_outlived = true,
                                .no_restart_left = group_budget_spent(g)};
    for (size_t i = 0; i < g->formation.n_members && facts.all_outlived; i++)
        facts.all_outlived = group_outlived_failure(g, g->formation.members[i]);
    return cause_is_certain(&g->cause, &facts);
}

bool group_blame_lost_node(struct group *g, uint64_t incarnation, bool outlived, const char *why,
                           bool wished) {
    if (!cause_is_loss_of(&g->cause, incarnation, outlived))
        return false;
    cause_forget(&g->cause);
    g->cause.better_waits = false;
    g->stopping.wished = g->stopping.interrupted = wished;
    weigh_loss(g, why, g->reason);
    notify_before_going_on(g);
    return true;
}

void group_leaves_meanwhile(struct group *g, const struct node *n, bool is_new) {
    char text[RDZV_REASON_MAX];
    node_leaving_text(n, text);
    /* and so were its workers, a moment before */
    (void)group_blame_lost_node(g, n->info.incarnation, true, text, true);
    if (is_new)
        group_add_to_timeline(g, TIMELINE_STOPPING, n, text)->detected_ns = g->now_ns;
}

/* The cause is still in doubt, and is checked again soon. A notice reports this to people who would
 * see nothing happen; it names no node, as that could be the wrong one. */
static void keep_doubting(struct group *g) {
    uint64_t patience =
        g->config.settle_ns + g->config.rdzv.heartbeat_ns + g->config.rdzv.heartbeat_ns / 2;
    g->cause.settle_ns = g->now_ns + DOUBT_CHECK_NS;
    if (g->cause.doubt_reported || g->now_ns < g->stopping.since_ns + patience)
        return;
    g->cause.doubt_reported = true;
    (void)snprintf(g->reason, sizeof g->reason,
                   "rank %u failed; whether a node was lost is not known yet",
                   g->cause.failure.rank);
    group_notify_members(g);
}

/* Reports what is known about the cause. True: it is not certain, or not reported, and the group
 * does not continue in this step. */
static bool settle(struct group *g, bool all_stopped) {
    bool due = g->now_ns >= g->cause.settle_ns;
    if (g->stopping.sending)
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
        group_notify_members(g); /* a better cause was found after STOP was sent */
    g->cause.better_waits = false;
    return false;
}

/* The job can continue without this node. */
static bool is_dispensable(const struct group *g, const struct node *n) {
    return n != NULL && g->roster.tally[TALLY_HOPEFUL] > g->need;
}

bool group_is_crash_loop(const struct group *g) {
    const struct failure *f = &g->cause.failure;
    return cause_is_pending(&g->cause) &&
           policy_is_crash_loop(&g->policy, &g->config, f,
                                is_dispensable(g, roster_find(&g->roster, f->incarnation)));
}

/* Excludes a node that failed again and again; another one can take its place, if there is one. */
static void exclude_who_fails(struct group *g) {
    struct node *n = roster_find(&g->roster, g->cause.failure.incarnation);
    uint32_t times = policy_count_node(&g->policy, &g->config, g->cause.failure.incarnation,
                                       is_dispensable(g, n));
    if (times == 0)
        return;
    char why[RDZV_HOST_MAX];
    (void)snprintf(why, sizeof why, "its workers failed %u times in a row", times);
    group_exclude(g, n, why);
}

/* All have stopped: charges the failure. False: the job ends, and g->reason is set. */
static bool charge(struct group *g) {
    bool is_loop = group_is_crash_loop(g);
    g->cause.state = CAUSE_CHARGED;
    if (is_loop) {
        (void)snprintf(g->reason, sizeof g->reason,
                       "crash loop: the same failure within %g s of the start, twice in a row "
                       "(--crash-loop); %u of %u restarts were used",
                       (double)g->config.rdzv.crash_loop_ns / 1e9, g->policy.restarts_used,
                       g->config.rdzv.max_restarts);
        return false;
    }
    policy_charge(&g->policy, &g->config, &g->cause.failure);
    if (g->cause.failure.kind != FAILURE_HANG || g->cause.failure.incarnation != 0)
        exclude_who_fails(g);
    uint64_t ran_ns = g->stopping.since_ns - g->running.since_ns;
    group_form_not_before(g, g->now_ns + policy_backoff_ns(&g->policy, &g->config, ran_ns));
    return true;
}

/* All have stopped. False: no group runs long enough, so the job ends, and g->reason is set. */
static bool count_stall(struct group *g, bool worker_failed) {
    struct group_end end = {.started_ns = g->running.since_ns,
                            .stopped_ns = g->stopping.since_ns,
                            .nodes_left = g->roster.tally[TALLY_HOPEFUL],
                            .worker_failed = worker_failed,
                            .wished = g->stopping.wished};
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
    group_form_not_before(g, g->now_ns + pause_ns);
    stalls_pause_text(&g->stalls, &g->config, pause_ns, text, sizeof text);
    group_notice(g, text);
    return true;
}

/* All have stopped: decides what the stop costs, and whether the job continues. */
static void weigh_stop(struct group *g) {
    bool worker_failed = cause_is_pending(&g->cause) && g->cause.failure.kind != FAILURE_NODE;
    if (g->stopping.after != AFTER_STOP_GATHERING)
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
        g->stopping.after = AFTER_STOP_CLOSED_FOR_FEW;
        if (group_misses_who_left(g)) {
            g->stopping.interrupted = true;
            cause_forget(&g->cause); /* it would have been started again */
        }
    } else if (!count_stall(g, worker_failed)) {
        fail_after_stop(g);
    }
}

void group_advance_stopping(struct group *g) {
    bool all_stopped = group_all_members(g, TALLY_STOPPED);
    if (g->stopping.after == AFTER_STOP_CLOSED_FOR_FEW && group_is_leaving(g))
        g->stopping.after = AFTER_STOP_GATHERING;
    if (settle(g, all_stopped) || !all_stopped)
        return;
    g->incident.stopped_ns = g->now_ns;
    group_stop_event(g, &g->last_event);
    group_add_to_timeline(g, TIMELINE_STOPPED, NULL, NULL)->detected_ns = g->stopping.since_ns;
    weigh_stop(g);
    if (g->stopping.after == AFTER_STOP_GATHERING) {
        group_enter_gathering(g);
        return;
    }
    if (g->stopping.after == AFTER_STOP_CLOSED_FOR_FEW && g->stopping.interrupted)
        group_interrupted(g);
    group_enter_closed(g);
}

void group_close_store(struct group *g) {
    if (!g->forming.store_open)
        return;
    g->forming.store_open = false;
    group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = g->formation.generation;
}

bool group_ask_to_close(struct group *g) {
    return group_ask(g, g->closed.interrupted ? ARBITER_VACATE : ARBITER_CLOSE,
                     g->leadership.epoch);
}

/* group_outcome_recorded() follows, perhaps at once. */
static void record_outcome(struct group *g) {
    struct leadership *l = &g->leadership;
    g->closed.record = OUTCOME_WAITS;
    if (g->config.leadership == LEADERSHIP_NONE || l->ruined) {
        group_outcome_recorded(g);
    } else if (g->config.leadership == LEADERSHIP_LEADER_FILE) {
        l->closing = true;
        group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = g->outcome;
    } else {
        g->closed.deadline_ns += g->config.rdzv.arbiter_lease_ns;
        l->claim_ns = l->close_ns = g->now_ns;
        /* not during a claim: CLOSE needs the epoch that this leader has after it */
        l->closing = !l->claiming && group_ask_to_close(g);
    }
}

/* The outcome is sent to the nodes after it is recorded where nodes that come later find it. */
void group_enter_closed(struct group *g) {
    group_close_store(g);
    if (g->cause.state == CAUSE_IN_DOUBT) /* the job ends for another reason */
        cause_forget(&g->cause);
    g->closed.from = g->state;
    group_move(g, GROUP_CLOSED);
    g->closed.deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    record_outcome(g);
}

void group_outcome_recorded(struct group *g) {
    g->closed.record = OUTCOME_RECORDED;
    g->closed.deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    group_add_to_timeline(g, TIMELINE_CLOSED, NULL, g->reason)->outcome = g->outcome;
    group_notify_all(g);
}

void group_close_failed(struct group *g, const char *reason) {
    g->outcome = OUTCOME_FAILED;
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    group_enter_closed(g);
}

void group_interrupted(struct group *g) {
    g->closed.interrupted = g->config.leadership == LEADERSHIP_ARBITER && !group_shows_cause(g) &&
                            group_nothing_runs(g);
}

/* It had a place, and was asked to leave, but has not left yet. */
static bool is_leaving(const struct node *n) {
    return (n->is_member || n->in_order) && n->report.leaving;
}

bool group_misses_who_left(const struct group *g) {
    size_t stay = g->roster.tally[TALLY_HOPEFUL], leave = g->gathering.n_left;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        leave += is_leaving(n);
    return stay < g->need && stay + leave >= g->need;
}

/* Why there are too few nodes. */
static void group_describe_missing(const struct group *g, char out[RDZV_REASON_MAX]) {
    (void)snprintf(out, RDZV_REASON_MAX, "a node can't take part any more");
    if (g->gathering.last_left[0] != '\0')
        (void)snprintf(out, RDZV_REASON_MAX, "%s", g->gathering.last_left);
    else if (g->gathering.last_lost[0] != '\0')
        (void)snprintf(out, RDZV_REASON_MAX, "node %s was lost", g->gathering.last_lost);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (is_leaving(n))
            node_leaving_text(n, out);
}

void group_close_interrupted(struct group *g) {
    char missing[RDZV_REASON_MAX], text[RDZV_REASON_MAX];
    group_describe_missing(g, missing);
    (void)snprintf(text, sizeof text, "%.1900s; %zu of at least %u nodes left", missing,
                   g->roster.tally[TALLY_HOPEFUL], g->need);
    cause_forget(&g->cause); /* of a group that would have been started again */
    group_interrupted(g);
    group_close_failed(g, text);
}

void group_advance_closed(struct group *g) {
    bool late = g->now_ns >= g->closed.deadline_ns;
    if (g->closed.record == OUTCOME_WAITS && late) {
        /* The outcome was not sent to any node, and will not be. A node that can reach the arbiter
         * again reads the outcome there, or ends without it. */
        g->outcome = OUTCOME_NONE;
        g->closed.record = OUTCOME_GIVEN_UP;
        group_notice(g, "the outcome of the job could not be recorded at the arbiter");
        group_depose(g, g->leadership.epoch);
    } else if (g->closed.record == OUTCOME_RECORDED &&
               (g->roster.tally[TALLY_CLOSED] == g->roster.n || late)) {
        g->closed.record = OUTCOME_DELIVERED;
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
    }
}
