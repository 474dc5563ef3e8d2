/* The states of the group: what each waits for, and what follows. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* Bits of the states that can follow. */
static const unsigned next[GROUP_STATE_COUNT] = {
    [GROUP_GATHERING] = 1u << GROUP_FORMING | 1u << GROUP_CLOSED,
    [GROUP_FORMING] = 1u << GROUP_RUNNING | 1u << GROUP_STOPPING | 1u << GROUP_CLOSED,
    [GROUP_RUNNING] = 1u << GROUP_STOPPING | 1u << GROUP_CLOSED,
    [GROUP_STOPPING] = 1u << GROUP_GATHERING | 1u << GROUP_CLOSED,
};

bool group_may_move(enum group_state from, enum group_state to) {
    return (next[from] >> to & 1) != 0;
}

static void move(struct group *g, enum group_state to) {
    assert(group_may_move(g->state, to));
    group_history(g, g->now_ns, &g->history);
    g->quiet_ns = 0;
    g->state = to;
    g->since_ns = g->now_ns;
    g->status.dirty = true;
}

/* ---- CLOSED ---- */

/* Called when the workers that use the store are gone. */
static void close_store(struct group *g) {
    if (!g->forming.store_open)
        return;
    g->forming.store_open = false;
    group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = g->formation.generation;
}

void group_ask_to_close(struct group *g) {
    g->leadership.closing = true;
    group_ask(g, g->closed.interrupted ? ARBITER_VACATE : ARBITER_CLOSE, g->leadership.epoch);
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
        if (!l->claiming) /* CLOSE needs the epoch that this leader has after a claim */
            group_ask_to_close(g);
    }
}

/* The nodes get the outcome after it is recorded where later ones find it. */
static void enter_closed(struct group *g) {
    close_store(g);
    group_settle_incident(g);
    if (g->cause.state == CAUSE_IN_DOUBT) /* the job ends for another reason */
        group_forget_cause(g);
    g->closed.from = g->state;
    move(g, GROUP_CLOSED);
    g->closed.deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    record_outcome(g);
}

void group_outcome_recorded(struct group *g) {
    g->closed.record = OUTCOME_RECORDED;
    g->closed.deadline_ns = g->now_ns + g->config.rdzv.close_timeout_ns;
    group_end_incident(g);
    group_add_to_timeline(g, TIMELINE_CLOSED, NULL, g->reason)->outcome = g->outcome;
    (void)group_emit(g, GROUP_EFFECT_STOPPING, 0);
    group_notify_all(g);
}

void group_close_failed(struct group *g, const char *reason) {
    g->outcome = OUTCOME_FAILED;
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    enter_closed(g);
}

/* See struct closed. */
static void interrupted(struct group *g) {
    g->closed.interrupted = g->config.leadership == LEADERSHIP_ARBITER && !group_shows_cause(g) &&
                            group_nothing_runs(g);
}

/* It had a place, and was asked to leave, but has not left yet. */
static bool is_leaving(const struct node *n) {
    return (n->is_member || n->in_order) && n->report.leaving;
}

/* Whether too few nodes stay, but with those that were asked to leave enough, at least if their
 * domains fit. */
static bool misses_who_left(const struct group *g) {
    size_t stay = g->roster.tally[TALLY_HOPEFUL], leave = g->gathering.n_left;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        leave += is_leaving(n);
    return roster_usable(&g->roster, TALLY_HOPEFUL) < g->need && leave > 0 &&
           stay + leave >= g->need;
}

static void describe_missing(const struct group *g, char out[RDZV_REASON_MAX]) {
    (void)snprintf(out, RDZV_REASON_MAX, "a node can't take part any more");
    if (g->gathering.last_left[0] != '\0')
        (void)snprintf(out, RDZV_REASON_MAX, "%s", g->gathering.last_left);
    else if (g->gathering.last_lost[0] != '\0')
        (void)snprintf(out, RDZV_REASON_MAX, "node %s was lost", g->gathering.last_lost);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (is_leaving(n))
            node_leaving_text(n, out);
}

#define UNITS_TEXT_MAX 128

/* Why nodes of this tally are not enough, although there seem to be more; or "". */
static const char *units_text(const struct group *g, enum tally tally, char out[UNITS_TEXT_MAX]) {
    size_t usable = roster_usable(&g->roster, tally);
    out[0] = '\0';
    if (usable < g->roster.tally[tally])
        (void)snprintf(out, UNITS_TEXT_MAX,
                       " (%zu nodes, but only %zu in whole units of %u nodes of one domain)",
                       g->roster.tally[tally], usable, g->config.rdzv.node_unit);
    return out;
}

static void describe_too_few(const struct group *g, const char *why, char out[RDZV_REASON_MAX]) {
    char units[UNITS_TEXT_MAX];
    (void)snprintf(out, RDZV_REASON_MAX, "%.1800s; %zu of at least %u nodes left%s", why,
                   roster_usable(&g->roster, TALLY_HOPEFUL), g->need,
                   units_text(g, TALLY_HOPEFUL, units));
}

void group_close_interrupted(struct group *g) {
    char missing[RDZV_REASON_MAX], text[RDZV_REASON_MAX];
    describe_missing(g, missing);
    describe_too_few(g, missing, text);
    group_forget_cause(g); /* of a group that would have been started again */
    interrupted(g);
    group_close_failed(g, text);
}

static void advance_closed(struct group *g) {
    bool late = g->now_ns >= g->closed.deadline_ns;
    if (g->closed.record == OUTCOME_WAITS && late) {
        /* No node got the outcome. One that can reach the arbiter again reads it there, or ends
         * without it. */
        g->outcome = OUTCOME_NONE;
        g->closed.record = OUTCOME_GIVEN_UP;
        group_notice(
            g, "the outcome of the job could not be recorded in the shared directory or etcd");
        group_depose(g, g->leadership.epoch);
    } else if (g->closed.record == OUTCOME_RECORDED &&
               (g->roster.tally[TALLY_CLOSED] == g->roster.n || late)) {
        g->closed.record = OUTCOME_DELIVERED;
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
    }
}

/* ---- GATHERING ---- */

static void enter_gathering(struct group *g) {
    close_store(g);
    formation_end(&g->formation);
    g->running.since_ns = 0;
    move(g, GROUP_GATHERING);
    g->gathering.since_ns = g->now_ns;
    g->gathering.enough_since_ns = TIME_NEVER;
    formation_recount_all(&g->formation, &g->roster);
    g->gathering.idle_unsent = true;
}

/* There are enough candidates; but it may have to wait for a time or the arbiter. */
static bool may_form(struct group *g) {
    return g->now_ns >= g->gathering.not_before_ns && !group_somebody_unresolved(g) &&
           group_has_epoch_to_form(g) && group_is_confirmed(g) && group_successors_settled(g);
}

/* The size of a group of all that could be members now; 0: they are too few. */
static size_t size_now(const struct group *g) {
    enum tally of = formation_candidates(&g->roster, &g->config);
    return formation_size(&g->config, roster_usable(&g->roster, of));
}

/* Before the first start, a spare that can replace a sick node may still come. */
static bool awaits_spare(const struct group *g) {
    return !g->formation.formed_once && g->config.rdzv.max_nodes > 1 &&
           g->roster.tally[TALLY_SICK] > 0 &&
           formation_candidates(&g->roster, &g->config) != TALLY_FIT;
}

static bool is_full(const struct group *g) {
    uint32_t most = g->gathering.expected > 0 ? g->gathering.expected : UINT32_MAX;
    size_t full = formation_size(&g->config, most), size = size_now(g);
    return full > 0 && size > 0 &&
           ((size >= full && !awaits_spare(g)) || g->roster.tally[TALLY_CANDIDATE] >= most);
}

uint64_t group_gather_deadline(const struct group *g) {
    uint64_t t;
    if (g->gathering.enough_since_ns == TIME_NEVER) {
        if (!g->formation.started_once)
            return g->gathering.since_ns + g->config.rdzv.join_timeout_ns;
        return group_somebody_unresolved(g)
                   ? TIME_NEVER
                   : MAX2(g->gathering.since_ns + g->config.rdzv.regroup_wait_ns,
                          group_patient_until(g));
    }
    if (group_somebody_unresolved(g))
        return TIME_NEVER;
    if (is_full(g))
        t = 0; /* it need not wait for other nodes */
    else if (!g->formation.formed_once)
        t = g->gathering.enough_since_ns + g->config.rdzv.last_call_ns;
    else
        t = g->gathering.lost_somebody ? g->gathering.since_ns + g->config.rdzv.regroup_wait_ns : 0;
    return MAX2(t, g->gathering.not_before_ns);
}

static void form(struct group *g) {
    formation_choose(&g->formation, &g->roster, &g->config, g->leadership.epoch,
                     g->policy.restarts_used, g->policy.losses);
    group_form_incident(g);
    g->running.grow_asked = false;
    g->gathering.n_left = 0;
    group_forget_cause(g);
    g->stopping.after = AFTER_STOP_GATHERING;
    g->forming.sent = false;
    g->reason[0] = '\0';
    g->forming.store_wanted = true;
    g->forming.deadline_ns = TIME_NEVER;
    move(g, GROUP_FORMING);
    group_name_successors(g);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (!n->is_member)
            group_notify(g, n); /* a spare */
    group_emit(g, GROUP_EFFECT_STORE_OPEN, 0)->generation = g->formation.generation;
}

static void give_up_gathering(struct group *g) {
    char text[RDZV_REASON_MAX], units[UNITS_TEXT_MAX];
    size_t candidates = roster_usable(&g->roster, TALLY_CANDIDATE);
    (void)units_text(g, TALLY_CANDIDATE, units);
    if (g->formation.started_once && misses_who_left(g)) {
        group_close_interrupted(g);
        return;
    }
    if (g->formation.started_once) {
        (void)snprintf(text, sizeof text, "%zu of at least %u nodes left%s%s%s", candidates,
                       g->need, units, g->gathering.last_lost[0] != '\0' ? "; lost: " : "",
                       g->gathering.last_lost);
    } else {
        struct rdzv_status s = {0};
        roster_status(&g->roster, &g->config, &s);
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        for (uint32_t i = 0; i < s.n_names; i++)
            strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", s.names[i]);
        _cleanup_(strbuf_fini) struct strbuf advice = {0};
        if (g->gathering.refused_why[0] != '\0')
            strbuf_printf(&advice, "node %s was refused: %s", g->gathering.refused_host,
                          g->gathering.refused_why);
        else
            strbuf_add(&advice, "start the missing ones, or wait longer: "
                                "--rdzv-conf=join_timeout=S (timeout=S with static)");
        (void)snprintf(text, sizeof text,
                       "only %zu of at least %u nodes came within %.0f s%s%s%.800s%s; %.1000s",
                       candidates, g->need,
                       (double)g->config.rdzv.join_timeout_ns / (double)NS_PER_S, units,
                       names.len > 0 ? " (here: " : "", strbuf_text(&names),
                       names.len > 0 ? ")" : "", strbuf_text(&advice));
        interrupted(g); /* the job has not begun: with more nodes it still can */
    }
    group_close_failed(g, text);
}

/* All nodes of the last leader's group report that it had finished: it is not run again. */
static bool was_finished_before(const struct group *g) {
    return g->formation.n_old_members > 0 &&
           g->roster.tally[TALLY_OLD_FINISHED] == g->formation.n_old_members;
}

static void advance_gathering(struct group *g) {
    if (group_is_leaving(g))
        return; /* the next leader forms the group */
    bool enough = size_now(g) > 0;
    if (was_finished_before(g)) {
        g->outcome = OUTCOME_SUCCESS;
        enter_closed(g);
        return;
    }
    if (group_losses_spent(g)) {
        char text[128];
        (void)snprintf(text, sizeof text, "%u nodes were lost, and --max-node-losses is %u",
                       g->policy.losses, g->config.rdzv.max_node_losses);
        group_close_failed(g, text);
        return;
    }
    if (!enough)
        g->gathering.enough_since_ns = TIME_NEVER;
    else if (g->gathering.enough_since_ns == TIME_NEVER)
        g->gathering.enough_since_ns = g->now_ns;

    bool due = g->now_ns >= group_gather_deadline(g);
    if (is_full(g) || (enough && due)) {
        if (may_form(g))
            form(g);
        return;
    }
    if (!enough && due &&
        (!g->formation.started_once || roster_usable(&g->roster, TALLY_HOPEFUL) < g->need ||
         g->config.rdzv.regroup_wait_ns > 0))
        give_up_gathering(g);
}

/* ---- STOPPING ---- */

/* The interval between checks of a cause in doubt, which examine each member. */
#define DOUBT_CHECK_NS (100 * NS_PER_MS)

static void describe_missing_members(const struct group *g, char out[RDZV_REASON_MAX]) {
    describe_missing(g, out);
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->report.unusable != NULL)
            node_unusable_text(g->formation.members[i], out);
}

static bool too_few_for_ever(const struct group *g) {
    return group_too_few_stay(g) && !group_is_leaving(g) && g->now_ns >= group_patient_until(g);
}

/* wished: an operator asked for it, or a node that leaves, or the group stops to grow. */
static void begin_stop(struct group *g, const char *reason, bool wished) {
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    g->stopping.n_workers = formation_workers(&g->formation);
    g->stopping.wished = wished;
    g->stopping.interrupted = false;
    g->stopping.sending = false;
    g->stopping.since_ns = g->now_ns;
    g->cause.better_waits = g->cause.doubt_reported = false;
    g->cause.n_better = 0;
    g->cause.settle_ns =
        g->cause.state != CAUSE_NONE ? g->now_ns + g->config.settle_ns : TIME_NEVER;
    move(g, GROUP_STOPPING);
    (void)group_add_to_timeline(g, TIMELINE_STOPPING, NULL, reason);
    (void)group_emit(g, GROUP_EFFECT_STOPPING, 0);
    group_notify_members(g);
}

/* Whether the loss of a node ends the job; writes the whole sentence about it. */
static void weigh_loss(struct group *g, const char *why, char text[RDZV_REASON_MAX]) {
    bool too_many = group_losses_spent(g);
    (void)snprintf(text, RDZV_REASON_MAX, "%s", why);
    if (too_many) {
        (void)snprintf(text, RDZV_REASON_MAX,
                       "%.1900s; %u nodes were lost, and --max-node-losses is %u", why,
                       g->policy.losses, g->config.rdzv.max_node_losses);
    } else if (too_few_for_ever(g)) {
        describe_too_few(g, why, text);
    } else {
        return;
    }
    g->stopping.after = too_many ? AFTER_STOP_CLOSED : AFTER_STOP_CLOSED_FOR_FEW;
    g->outcome = OUTCOME_FAILED;
}

void group_stop_for_node(struct group *g, enum incident_class class, const char *node,
                         uint64_t incarnation, uint64_t symptom_ns, const char *why) {
    bool wished = class == INCIDENT_NODE_LEFT || class == INCIDENT_EXCLUDED;
    char text[RDZV_REASON_MAX];
    group_open_incident(g, class, node, incarnation, symptom_ns);
    weigh_loss(g, why, text);
    begin_stop(g, text, wished);
    g->stopping.interrupted = wished;
}

static struct timeline_entry *add_failure_to_timeline(struct group *g, enum timeline_kind kind,
                                                      const struct failure *f) {
    const struct node *n = roster_find(&g->roster, f->incarnation);
    struct timeline_entry *entry = group_add_to_timeline(g, kind, n, NULL);
    failure_copy_line(f, "", entry->why, sizeof entry->why);
    entry->incident.failure = *f;
    entry->incident.restarts_used = g->policy.restarts_used;
    return entry;
}

/* Charged only when all have stopped: an apparent failure may be the loss of a node or an effect of
 * it, which costs nothing. */
void group_stop_for_failure(struct group *g) {
    g->cause.state = group_cause_may_be_loss(g) ? CAUSE_IN_DOUBT : CAUSE_SURE;
    /* the node's clock is known only with an error, so limit the time to now */
    uint64_t at_ns = g->cause.at_ns > 0 ? MIN2((uint64_t)g->cause.at_ns, g->now_ns) : g->now_ns;
    bool hangs = g->cause.failure.kind == FAILURE_HANG;
    group_open_incident(g, hangs ? INCIDENT_HANG : INCIDENT_WORKER, "", 0, at_ns);
    if (!hangs)
        add_failure_to_timeline(g, TIMELINE_WORKER_FAILED, &g->cause.failure)->from_ns = at_ns;
    begin_stop(g, "", false);
    if (g->stopping.n_workers > 0 && !hangs)
        g->stopping.n_workers--; /* the worker that failed need not be stopped */
}

void group_on_hang(struct group *g, const struct group_event *ev) {
    struct failure f = *ev->failure;
    const char *evidence =
        ev->evidence != NULL && strlen(ev->evidence) < INCIDENT_EVIDENCE_MAX ? ev->evidence : "";
    assert(f.kind == FAILURE_HANG);
    if (g->state != GROUP_RUNNING ||
        generation_compare(ev->generation, g->formation.generation) != 0)
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
    struct timeline_entry *entry = add_failure_to_timeline(g, TIMELINE_HANG, &f);
    (void)strcpy(entry->incident.evidence, evidence);
    if (ev->only_reported) {
        g->last_event = (struct last_event){.at_ns = g->now_ns};
        memcpy(g->last_event.text, entry->why, sizeof g->last_event.text);
    } else if (group_add_cause(g, &f, (int64_t)g->now_ns, 0)) {
        group_stop_for_failure(g);
        g->incident.symptom_ns = g->now_ns - MIN2(ev->quiet_ns, g->now_ns);
        (void)strcpy(g->incident.evidence, evidence);
    }
}

static void fail_after_stop(struct group *g) {
    g->stopping.after = AFTER_STOP_CLOSED;
    g->outcome = OUTCOME_FAILED;
}

/* A failure in doubt would not be reported any more. Not if the sender of the signal that ends the
 * job has probably signalled the worker, too. */
static void name_cause_in_doubt(struct group *g, const char *reason, char out[RDZV_REASON_MAX]) {
    char text[RDZV_REASON_MAX / 4];
    const struct failure *f = &g->cause.failure;
    bool signalled = f->kind == FAILURE_SIGNAL && (f->code == SIGTERM || f->code == SIGINT);
    (void)snprintf(out, RDZV_REASON_MAX, "%s", reason);
    if (g->cause.state != CAUSE_IN_DOUBT || signalled)
        return;
    failure_copy_line(&g->cause.failure, "", text, sizeof text);
    group_notice(g, text);
    (void)snprintf(out, RDZV_REASON_MAX, "%.1000s; shortly before, %s", reason, text);
}

void group_stop_for_operator(struct group *g, const char *why, bool halted) {
    char reason[RDZV_REASON_MAX];
    if (g->state == GROUP_CLOSED ||
        (g->state == GROUP_STOPPING && g->stopping.after != AFTER_STOP_GATHERING))
        return;
    g->closed.halted = halted;
    if (halted)
        (void)snprintf(reason, sizeof reason, "%s", why);
    else
        name_cause_in_doubt(g, why, reason);
    if (g->state == GROUP_GATHERING) {
        group_close_failed(g, reason);
        return;
    }
    fail_after_stop(g);
    group_settle_incident(g); /* of a failure that stops it already */
    group_forget_cause(g);
    if (group_is_live(g)) {
        group_open_incident(g, INCIDENT_OPERATOR, "", 0, g->now_ns);
        begin_stop(g, reason, false);
    } else {
        (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
        (void)group_add_to_timeline(g, TIMELINE_STOPPING, NULL, reason);
        (void)group_emit(g, GROUP_EFFECT_RELEASED, 0);
        group_notify_members(g);
    }
}

/* A message has the state at the time when it is sent, so the group waits for its next time event.
 *  */
static void notify_before_going_on(struct group *g) {
    group_notify_members(g);
    g->stopping.sending = true;
}

void group_stop_event(const struct group *g, struct last_event *ret) {
    bool failed = group_shows_cause(g), grows = g->incident.class == INCIDENT_NONE;
    if (!failed && g->reason[0] == '\0')
        return;
    *ret = (struct last_event){.at_ns = grows ? g->stopping.since_ns : g->incident.symptom_ns};
    if (failed)
        failure_copy_line(&g->cause.failure, "", ret->text, sizeof ret->text);
    else
        (void)snprintf(ret->text, sizeof ret->text, "%.500s", g->reason);
}

bool group_blame_lost_node(struct group *g, enum incident_class class, const char *node,
                           uint64_t incarnation, bool outlived, const char *why) {
    if (!group_cause_is_loss_of(g, incarnation, outlived))
        return false;
    group_forget_cause(g);
    g->cause.better_waits = false;
    g->stopping.wished = g->stopping.interrupted = class == INCIDENT_NODE_LEFT;
    weigh_loss(g, why, g->reason);
    group_open_incident(g, class, node, incarnation, g->now_ns);
    notify_before_going_on(g);
    return true;
}

void group_leaves_meanwhile(struct group *g, const struct node *n, bool is_new) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
    node_name(n, name);
    node_leaving_text(n, text);
    /* and so were its workers, a moment before */
    (void)group_blame_lost_node(g, INCIDENT_NODE_LEFT, name, n->info.incarnation, true, text);
    if (!is_new)
        return;
    (void)group_add_to_timeline(g, TIMELINE_STOPPING, n, text);
    (void)group_emit(g, GROUP_EFFECT_RELEASED, 0);
}

/* For people, who would see nothing happen. It names no node, as that could be the wrong one. */
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

/* True: the cause is not certain, or not reported, so the group does not continue. */
static bool settle(struct group *g, bool all_stopped) {
    bool due = g->now_ns >= g->cause.settle_ns;
    if (g->stopping.sending)
        return true;
    if (!due && !all_stopped)
        return false;
    if (g->cause.state == CAUSE_IN_DOUBT) {
        if (group_cause_is_certain(g)) {
            group_make_cause_sure(g);
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

static void weigh_stop(struct group *g) {
    bool worker_failed = group_cause_is_pending(g) && g->cause.failure.kind != FAILURE_NODE;
    if (g->stopping.after != AFTER_STOP_GATHERING)
        return;
    if (group_budget_spent(g)) {
        fail_after_stop(g);
    } else if (group_cause_is_pending(g) && !group_charge(g)) {
        fail_after_stop(g);
    } else if (too_few_for_ever(g)) {
        char text[RDZV_REASON_MAX], missing[RDZV_REASON_MAX];
        describe_missing_members(g, missing);
        describe_too_few(g, g->reason[0] != '\0' ? g->reason : missing, text);
        (void)snprintf(g->reason, sizeof g->reason, "%s", text);
        fail_after_stop(g);
        g->stopping.after = AFTER_STOP_CLOSED_FOR_FEW;
        if (misses_who_left(g)) {
            g->stopping.interrupted = true;
            group_forget_cause(g); /* it would have been started again */
        }
    } else if (!group_count_stall(g, worker_failed)) {
        fail_after_stop(g);
    }
}

static void advance_stopping(struct group *g) {
    bool all_stopped = group_all_members(g, TALLY_STOPPED);
    if (g->stopping.after == AFTER_STOP_CLOSED_FOR_FEW && group_is_leaving(g))
        g->stopping.after = AFTER_STOP_GATHERING;
    if (settle(g, all_stopped) || !all_stopped)
        return;
    g->incident.stopped_ns = g->now_ns;
    group_settle_incident(g);
    group_stop_event(g, &g->last_event);
    group_add_to_timeline(g, TIMELINE_STOPPED, NULL, NULL)->from_ns = g->stopping.since_ns;
    weigh_stop(g);
    if (g->stopping.after == AFTER_STOP_GATHERING) {
        enter_gathering(g);
        return;
    }
    if (g->stopping.after == AFTER_STOP_CLOSED_FOR_FEW && g->stopping.interrupted)
        interrupted(g);
    enter_closed(g);
}

/* ---- FORMING and RUNNING ---- */

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

/* Their loss would not be noticed at once. */
static void reach_members(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (!g->formation.members[i]->reached)
            group_reach(g, g->formation.members[i]);
}

/* Until the first probe of a listener ends, a refused connection proves nothing. */
static bool is_probing(const struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->probing && g->formation.members[i]->reach_ns == 0)
            return true;
    return false;
}

static void advance_forming(struct group *g) {
    if (!g->forming.sent)
        return; /* the store is not open yet */
    bool is_late = g->now_ns >= g->forming.deadline_ns;
    if (group_all_members(g, TALLY_PREPARED) && (is_late || !is_probing(g))) {
        if (g->formation.started_once && g->last_event.text[0] != '\0')
            g->last_event.restart_ns = g->now_ns - g->last_event.at_ns;
        g->formation.started_once = true;
        g->formation.started = g->formation.generation;
        g->gathering.lost_somebody = false;
        g->running.since_ns = g->running.last_start_ns = g->now_ns;
        g->running.reachability = formation_reachability(&g->formation);
        g->running.n_told_warm = 0;
        move(g, GROUP_RUNNING);
        struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_FORMED, NULL, NULL);
        entry->from_ns = g->incident.stopped_ns;
        entry->n_nodes = (uint32_t)g->formation.n_members;
        entry->world_size = g->formation.world_size;
        group_start_incident(g);
        entry = group_add_to_timeline(g, TIMELINE_STARTED, NULL, NULL);
        entry->n_nodes = (uint32_t)g->formation.n_members;
        entry->world_size = g->formation.world_size;
        (void)group_emit(g, GROUP_EFFECT_STARTED, 0);
        group_notify_members(g);
        reach_members(g);
    } else if (is_late) {
        fail_slow_nodes(g);
    }
}

/* ---- warm workers ---- */

static void tell_warm(struct group *g) {
    struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_WARM, NULL, NULL);
    entry->has_warm = true;
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct rdzv_warm *w = g->formation.members[i]->warm;
        if (w == NULL)
            continue;
        entry->n_warm += w->warm;
        if (w->cold > 0 && entry->cold_because[0] == '\0')
            memcpy(entry->cold_because, w->reason, sizeof entry->cold_because);
    }
}

void group_on_warm(struct group *g, struct node *n, const struct rdzv_warm *now) {
    struct generation of = n->warm != NULL ? n->warm->generation : (struct generation){0};
    if (generation_compare(now->generation, of) < 0)
        return; /* of an old connection */
    if (n->warm == NULL)
        n->warm = xcalloc(1, sizeof *n->warm);
    *n->warm = *now;
    bool current = generation_compare(now->generation, g->formation.generation) == 0;
    if (g->state != GROUP_RUNNING || !n->is_member || !current ||
        generation_compare(now->generation, of) == 0)
        return;
    if (++g->running.n_told_warm == g->formation.n_members)
        tell_warm(g);
}

/* ---- growing ---- */

size_t group_larger(const struct group *g) {
    size_t larger = formation_size(&g->config, roster_usable(&g->roster, TALLY_GROWN));
    return larger > g->formation.n_members ? larger : 0;
}

static void stop_to_grow(struct group *g, size_t larger, const char *why) {
    char text[128];
    (void)snprintf(text, sizeof text, "the group grows from %zu to %zu nodes%s",
                   g->formation.n_members, larger, why);
    group_open_incident(g, INCIDENT_NONE, "", 0, g->now_ns);
    begin_stop(g, text, true);
}

static void grow(struct group *g) {
    if (g->roster.tally[TALLY_WAITING] == 0 || g->formation.n_members >= g->config.rdzv.max_nodes)
        return;
    size_t larger = group_larger(g);
    if (larger == 0 || g->now_ns < g->gathering.not_before_ns)
        return;
    /* A node that comes and is lost again and again must not keep the others from working. */
    if (group_is_stalling(g) && !g->running.grow_asked)
        return;
    bool now = false;
    switch (g->config.rdzv.grow) {
    case GROW_NOW: now = true; break;
    case GROW_BOUNDARY: now = g->roster.tally[TALLY_SAFE] > 0; break;
    case GROW_NEVER: break;
    }
    if (g->running.grow_asked)
        stop_to_grow(g, larger, ": an operator asked");
    else if (now)
        stop_to_grow(g, larger, g->config.rdzv.grow == GROW_BOUNDARY ? ", at a safe point" : "");
}

static void advance_running(struct group *g) {
    if (group_all_members(g, TALLY_FINISHED)) {
        g->outcome = OUTCOME_SUCCESS;
        enter_closed(g);
    } else {
        grow(g);
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
