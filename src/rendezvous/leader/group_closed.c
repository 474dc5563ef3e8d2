/* CLOSED: the outcome is recorded where nodes that come later find it, then it is sent to the
 * nodes. */
#include <stdio.h>

#include "rendezvous/leader/group_priv.h"

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

void group_describe_missing(const struct group *g, char out[RDZV_REASON_MAX]) {
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
