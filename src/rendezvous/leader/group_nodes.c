/* Which nodes are admitted, and which are excluded. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static void refuse(struct group *g, uint64_t node, const char *text, bool for_now) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->for_now = for_now;
    group_set_reason(g, e, text);
}

static void remember_refused(struct group *g, const char *host, const char *why) {
    (void)snprintf(g->gathering.refused_host, sizeof g->gathering.refused_host, "%s", host);
    (void)snprintf(g->gathering.refused_why, sizeof g->gathering.refused_why, "%s", why);
}

void group_reach(struct group *g, struct node *n) {
    if (n->info.incarnation == g->config.leader_incarnation)
        return;
    n->probing = true;
    (void)group_emit(g, GROUP_EFFECT_REACH, n->info.incarnation);
}

struct node *group_admit(struct group *g, const struct node_info *info,
                         const struct rdzv_program *program) {
    bool for_now = false;
    char text[RDZV_REASON_MAX];
    const char *why = NULL;
    if (program != NULL && group_refuses_program(g, info->role, program, text))
        why = text;
    else
        why = roster_refusal(&g->roster, &g->config, info, &for_now);
    if (why != NULL) {
        refuse(g, info->incarnation, why, for_now);
        remember_refused(g, info->host, why);
        return NULL;
    }
    if (strcmp(g->gathering.refused_host, info->host) == 0) /* it was started again */
        remember_refused(g, "", "");
    struct node *n = roster_add(&g->roster, info);
    if (g->roster.n <= GROUP_REACH_AT_ONCE)
        group_reach(g, n);
    return n;
}

void group_exclude(struct group *g, struct node *n, const char *why) {
    char name[RDZV_HOST_MAX], text[2 * RDZV_HOST_MAX + 64];
    node_name(n, name);
    n->report.excluded = true;
    (void)node_set_text(&n->report.excluded_why, why);
    group_exclude_host(g, n->info.host);
    group_recount(g, n);
    (void)snprintf(text, sizeof text, "node %s is excluded: %s", name, why);
    group_incident(g, text);
    (void)group_add_to_timeline(g, TIMELINE_NODE_EXCLUDED, n, why);
    if (!n->is_member)
        group_notify(g, n);
}

/* ---- which nodes are heard: muster-rendezvous(7), "Loss" ---- */

/* A guardian that is killing processes needs milliseconds, a frozen host takes longer. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)
#define PROBE_RETRY_MAX_NS (200 * NS_PER_MS)

/* Between looks at all watched nodes. */
#define SCAN_NS_PER_NODE (4 * NS_PER_US)
#define SCAN_ALL 256 /* up to this many nodes are all examined whenever one is due */
#define WAITERS_LOST_PER_SCAN 128

struct rate {
    uint64_t step_ns; /* between two, in the long run */
    uint64_t burst;   /* at once, after a rest */
};
/* For the whole job. Nodes that only wait for a place come last: a crowd of them that becomes
 * silent costs no node its lease. */
static const struct rate probes_again = {NS_PER_MS, 64};
static struct rate waiters_probes(const struct group *g) {
    return (struct rate){g->config.waiter_probe_ns, 16};
}
/* Of lines about lost nodes that waited for a place. */
static const struct rate waiters_lines = {NS_PER_S, 20};

/* When the next is allowed; it may have passed. spent_until_ns: the rate is spent until then. */
static uint64_t rate_ready(const struct rate *rate, uint64_t spent_until_ns) {
    uint64_t ahead_ns = (rate->burst - 1) * rate->step_ns;
    return spent_until_ns > ahead_ns ? spent_until_ns - ahead_ns : 0;
}

static bool rate_take(const struct rate *rate, uint64_t now_ns, uint64_t *spent_until_ns) {
    if (rate_ready(rate, *spent_until_ns) > now_ns)
        return false;
    *spent_until_ns = MAX2(*spent_until_ns, now_ns) + rate->step_ns;
    return true;
}

static bool is_ours(const struct node *n) {
    return n->is_member || n->in_order || n->joined_ns == 0;
}

/* An inherited member that has not come back is lost when the last leader's leases are over. */
static uint64_t lost_at(const struct group *g, const struct node *n) {
    if (n->joined_ns == 0)
        return n->lost_at_ns;
    return n->contact_ns + g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
}

static void due(struct group *g, uint64_t at_ns) {
    g->liveness.due_ns = MIN2(g->liveness.due_ns, at_ns);
}

static void probe_node(struct group *g, struct node *n) {
    n->probe_ns = TIME_NEVER;
    if (n->probing)
        return;
    n->probing = true;
    (void)group_emit(g, GROUP_EFFECT_PROBE, n->info.incarnation);
}

static void begin_watch(struct group *g, struct node *n) {
    if (!n->watched) {
        list_remove(&n->by_contact);
        list_append(&g->liveness.watched, &n->by_contact);
        n->watched = true;
    }
    n->probe_wait_ns = PROBE_RETRY_MIN_NS;
    due(g, lost_at(g, n));
}

void group_watch_node(struct group *g, struct node *n) {
    const struct rate waiters = waiters_probes(g);
    begin_watch(g, n);
    if (is_ours(n) || rate_take(&waiters, g->now_ns, &g->liveness.waiters_probed_ns)) {
        probe_node(g, n);
    } else {
        n->probe_ns = rate_ready(&waiters, g->liveness.waiters_probed_ns);
        due(g, n->probe_ns);
    }
    group_recount(g, n);
}

void group_watch_inherited(struct group *g, struct node *n) {
    begin_watch(g, n);
    n->probe_ns = g->now_ns;
    due(g, g->now_ns);
    group_recount(g, n);
}

void group_contact(struct group *g, struct node *n) {
    bool was_watched = n->watched;
    n->contact_ns = g->now_ns;
    n->held = false;
    list_remove(&n->by_contact);
    list_append(n->connected ? &g->liveness.heard : &g->liveness.watched, &n->by_contact);
    n->watched = !n->connected;
    if (n->connected)
        n->probe_ns = TIME_NEVER;
    if (was_watched) {
        group_recount(g, n);
        if (n->is_member && n->reached) /* perhaps while it was disconnected */
            group_offer_successor(g);
    }
    /* perhaps its machine was too busy */
    if (n->is_member && !n->reached && n->reach_ns != 0 && g->now_ns >= n->reach_ns)
        probe_node(g, n);
}

void group_on_probe(struct group *g, struct node *n, enum probe_result result) {
    bool first = result == PROBE_ALIVE && !n->reached;
    n->probing = false;
    n->reached = n->reached || result == PROBE_ALIVE;
    n->reach_ns = g->now_ns + (g->now_ns - n->known_ns); /* ever more rarely */
    if (!n->watched) {
        if (first && n->is_member)
            group_offer_successor(g);
    } else if (result == PROBE_GONE && n->reached) {
        group_remove_node(g, n, "is gone: its agent ended unexpectedly", REMOVED_GONE);
    } else {
        n->probe_ns = g->now_ns + n->probe_wait_ns;
        n->probe_wait_ns = MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS);
        due(g, n->probe_ns);
    }
}

/* Messages that nodes sent meanwhile are still in the leader's sockets, so their silence means
 * nothing. It is always safe to count from a later time. */
void group_forgive_own_sleep(struct group *g) {
    if (g->now_ns <= g->due_ns || g->now_ns - g->due_ns <= g->config.rdzv.lease_ns / 10)
        return;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        n->contact_ns = g->now_ns;
}

static void lose(struct group *g, struct node *n) {
    char text[128];
    if (n->joined_ns == 0)
        (void)snprintf(text, sizeof text, "did not connect to the new leader");
    else
        (void)snprintf(text, sizeof text, "was lost: no message for %.1f s",
                       (double)(g->now_ns - n->contact_ns) / (double)NS_PER_S);
    group_remove_node(g, n, text, REMOVED_SILENT);
}

static bool may_be_held(const struct group *g, const struct node *n) {
    return g->config.rdzv.hold_ns != 0 && n->joined_ns != 0 && is_ours(n);
}

/* More likely than that nodes of several hosts failed is a failed switch. */
static bool several_hosts_due(const struct group *g) {
    const char *host = NULL;
    LIST_FOR_EACH(struct node, n, &g->liveness.watched, by_contact) {
        if (!may_be_held(g, n) || g->now_ns < n->contact_ns + g->config.rdzv.lease_ns)
            continue;
        if (host != NULL && strcmp(host, n->info.host) != 0)
            return true;
        host = n->info.host;
    }
    return false;
}

/* None of them is lost for a moment. */
static void hold_watched(struct group *g) {
    g->liveness.hold_until_ns = g->now_ns + g->config.rdzv.hold_ns;
    LIST_FOR_EACH(struct node, n, &g->liveness.watched, by_contact)
        n->held = true;
    if (g->state != GROUP_CLOSED) /* else the nodes leave because the job is over */
        group_notice(g, "several nodes became silent at once: probing them before they are "
                        "declared lost");
}

/* If the rate allows it. Members come before nodes that wait for a place. */
static void probe_again(struct group *g, struct node *n) {
    struct liveness *l = &g->liveness;
    const struct rate rate = is_ours(n) ? probes_again : waiters_probes(g);
    uint64_t *spent = is_ours(n) ? &l->probed_again_ns : &l->waiters_probed_ns;
    if (!rate_take(&rate, g->now_ns, spent)) {
        due(g, rate_ready(&rate, *spent));
        return;
    }
    list_remove(&n->by_contact);
    list_append(&l->watched, &n->by_contact); /* so that the nodes take turns */
    probe_node(g, n);
}

static void examine_watched(struct group *g) {
    struct liveness *l = &g->liveness;
    size_t n_watched = 0, waiters_lost = 0;
    if (g->now_ns < MAX2(l->due_ns, l->scan_ns))
        return;
    l->due_ns = TIME_NEVER;
    LIST_FOR_EACH(struct node, n, &l->watched, by_contact) {
        bool is_due = g->now_ns >= lost_at(g, n), may_hold = may_be_held(g, n);
        if (is_due && may_hold && !n->held && g->now_ns >= l->hold_until_ns && several_hosts_due(g))
            hold_watched(g);
        n_watched++;
        bool too_many = is_due && !is_ours(n) && ++waiters_lost > WAITERS_LOST_PER_SCAN;
        if (is_due && !too_many && !(may_hold && g->now_ns < l->hold_until_ns)) {
            lose(g, n);
            continue;
        }
        if (g->now_ns < n->probe_ns)
            due(g, n->probe_ns);
        else
            probe_again(g, n);
        if (too_many)
            due(g, g->now_ns); /* the others are examined next */
        else
            due(g, is_due ? l->hold_until_ns : lost_at(g, n));
    }
    l->scan_ns = n_watched <= SCAN_ALL ? 0 : g->now_ns + n_watched * SCAN_NS_PER_NODE;
}

static void report_waiters_gone(struct group *g) {
    if (g->waiters_gone.n == 0 ||
        !rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns))
        return;
    char text[RDZV_REASON_MAX / 4];
    (void)snprintf(text, sizeof text, "%zu more waiting nodes are gone, the last: %.300s",
                   g->waiters_gone.n, g->waiters_gone.last);
    g->waiters_gone.n = 0;
    group_incident(g, text);
}

static void waiter_gone(struct group *g, const char *text) {
    if (g->waiters_gone.n == 0 &&
        rate_take(&waiters_lines, g->now_ns, &g->waiters_gone.reported_ns)) {
        group_incident(g, text);
        return;
    }
    g->waiters_gone.n++;
    (void)snprintf(g->waiters_gone.last, sizeof g->waiters_gone.last, "%.500s", text);
}

void group_watch(struct group *g) {
    struct node *n;
    /* The longest silent comes first. */
    while ((n = LIST_FIRST(struct node, &g->liveness.heard, by_contact)) != NULL &&
           g->now_ns - n->contact_ns > g->config.rdzv.lease_ns / 2)
        group_watch_node(g, n);
    examine_watched(g);
    report_waiters_gone(g);
}

uint64_t group_watch_deadline(const struct group *g) {
    const struct node *n = LIST_FIRST(struct node, &g->liveness.heard, by_contact);
    uint64_t t = MAX2(g->liveness.due_ns, g->liveness.scan_ns);
    if (n != NULL)
        t = MIN2(t, n->contact_ns + g->config.rdzv.lease_ns / 2 + 1);
    if (g->waiters_gone.n > 0)
        t = MIN2(t, rate_ready(&waiters_lines, g->waiters_gone.reported_ns));
    return t;
}

void group_remove_node(struct group *g, struct node *n, const char *why, enum removal how) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX], leaving[RDZV_REASON_MAX];
    node_name(n, name);
    (void)snprintf(text, sizeof text, "node %s %s", name, why);
    node_leaving_text(n, leaving);
    bool was_member = n->is_member, had_place = n->is_member || n->in_order;
    bool lost = how != REMOVED_LEFT;
    /* its group has stopped for that */
    bool announced = !lost && n->report.leaving && !generation_is_none(n->report.generation);
    bool finished = formation_reports(&g->formation, n, NODE_FINISHED);
    bool outlived = group_outlived_failure(g, n);
    uint64_t incarnation = n->info.incarnation;
    enum incident_class class = lost ? INCIDENT_NODE_LOST : INCIDENT_NODE_LEFT;
    /* the end of its connection, or else its last message */
    uint64_t symptom_ns = !lost ? g->now_ns : MAX2(n->contact_ns, n->connected ? 0 : n->cut_ns);
    group_add_to_timeline(g, lost ? TIMELINE_NODE_LOST : TIMELINE_NODE_LEFT, n, why)->from_ns =
        n->contact_ns;
    group_successor_lost(g, n, how);
    g->gathering.lost_somebody = g->gathering.lost_somebody || n->in_order;
    formation_lose(&g->formation, n, how == REMOVED_SILENT);
    if (had_place && lost)
        g->policy.losses++;
    roster_remove(&g->roster, n);
    (void)group_emit(g, GROUP_EFFECT_FORGET, incarnation);
    g->status.dirty = true;
    if (g->formation.started_once) {
        (void)snprintf(g->gathering.last_lost, sizeof g->gathering.last_lost, "%s", name);
        (void)snprintf(g->gathering.last_left, sizeof g->gathering.last_left, "%s",
                       lost ? "" : leaving);
        g->gathering.n_left += had_place && !lost;
    }
    if (g->state == GROUP_GATHERING && incarnation == g->incident.failure.incarnation &&
        g->incident.class != INCIDENT_NODE_LEFT) { /* the last leader: see inherit() */
        group_open_incident(g, class, name, incarnation, symptom_ns);
        (void)snprintf(g->reason, sizeof g->reason, "%s", text);
    }
    if (was_member && group_is_live(g) && !(finished && g->state == GROUP_RUNNING)) {
        group_stop_for_node(g, class, name, incarnation, symptom_ns, text);
    } else if (was_member && g->state == GROUP_STOPPING &&
               group_blame_lost_node(g, class, name, incarnation, outlived, text)) {
        return; /* STOP has reported it already */
    } else if (g->state == GROUP_CLOSED || announced) {
        return;
    } else if (had_place) {
        group_incident(g, text);
    } else {
        waiter_gone(g, text);
    }
}
