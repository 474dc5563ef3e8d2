/* The successors, and what they have to know (muster-rendezvous(7), "Succession"). A wrong change
 * of the list could let two agents lead: a named successor may claim the next epoch until that
 * successor is certainly gone, or this leader has claimed the epoch. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

static struct node *successor(const struct group *g, uint32_t i) {
    return roster_find(&g->roster, g->plan.named.list[i].incarnation);
}

bool group_is_successor(const struct group *g, uint64_t node) { return plan_names(&g->plan, node); }

const struct successors *group_successors(const struct group *g) { return &g->plan.named; }

/* ---- choosing ---- */

static bool is_eligible(const struct group *g, const struct node *n) {
    return n->is_member && n->connected && n->reached && !n->report.leaving &&
           group_reaches(g, n) && n->info.incarnation != g->config.leader_incarnation;
}

static void name(struct successors *s, const struct node *n) {
    struct rdzv_peer *p = &s->list[s->n++];
    *p = (struct rdzv_peer){.incarnation = n->info.incarnation, .port = n->info.listener_port};
    (void)snprintf(p->addr, sizeof p->addr, "%s", n->info.addr);
}

/* Whether the node is neither on the leader's host nor on that of another successor: one power cut
 * must not end two of them. */
static bool is_elsewhere(const struct group *g, const struct successors *s, const struct node *n) {
    const struct node *leader = roster_find(&g->roster, g->config.leader_incarnation);
    if (leader != NULL && strcmp(leader->info.host, n->info.host) == 0)
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct node *other = roster_find(&g->roster, s->list[i].incarnation);
        if (other != NULL && strcmp(other->info.host, n->info.host) == 0)
            return false;
    }
    return true;
}

static bool is_in(const struct successors *s, uint64_t incarnation) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].incarnation == incarnation)
            return true;
    return false;
}

static void add_successors(const struct group *g, struct successors *s) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < g->formation.n_members && s->n < RDZV_SUCCESSORS_MAX; i++) {
            const struct node *n = g->formation.members[i];
            if (is_eligible(g, n) && !is_in(s, n->info.incarnation) &&
                (pass == 1 || is_elsewhere(g, s, n)))
                name(s, n);
        }
}

/* ---- naming ---- */

static void adopt(struct group *g, const struct successors *s) {
    plan_adopt(&g->plan, s, g->now_ns);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (n->connected)
            (void)group_emit(g, GROUP_EFFECT_NAME, n->info.incarnation);
}

void group_name_successors(struct group *g) {
    if (g->config.leadership != LEADERSHIP_ARBITER)
        return;
    struct successors s = {.epoch = g->leadership.epoch};
    bool same_epoch = s.epoch == g->plan.named.epoch;
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
        if (same_epoch ? g->plan.states[i] != SUCCESSOR_GONE : n != NULL && is_eligible(g, n))
            s.list[s.n++] = g->plan.named.list[i];
    }
    add_successors(g, &s);
    adopt(g, &s);
    group_feed_lease_pending(g);
}

void group_forget_successors(struct group *g) {
    adopt(g, &(struct successors){.epoch = g->leadership.epoch});
}

void group_offer_successor(struct group *g) {
    if (g->config.leadership != LEADERSHIP_ARBITER || g->plan.named.n == RDZV_SUCCESSORS_MAX ||
        !group_is_live(g) || g->plan.named.epoch != g->leadership.epoch)
        return;
    struct successors s = g->plan.named;
    add_successors(g, &s);
    if (s.n > g->plan.named.n)
        adopt(g, &s);
}

/* ---- losing ---- */

void group_successor_lost(struct group *g, const struct node *n, enum removal how) {
    /* A node that is found gone so soon after its last contact with the leader can't have
     * claimed. */
    bool surely = how == REMOVED_LEFT || (how == REMOVED_GONE && n->echo_ns != 0 &&
                                          g->now_ns - n->echo_ns < g->config.rdzv.lease_ns);
    plan_lose(&g->plan, n->info.incarnation, surely);
}

bool group_successors_settled(struct group *g) {
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
        if (g->plan.states[i] == SUCCESSOR_GONE || (n != NULL && node_is(n, TALLY_CANDIDATE)))
            continue;
        group_claim_next(g, "a successor is gone, and might have claimed");
        return false;
    }
    return !g->leadership.claiming;
}

void group_on_echo(struct group *g, const struct node *n, const struct echo *echo) {
    if (plan_echo(&g->plan, n->info.incarnation, echo, g->now_ns))
        group_feed_lease_pending(g);
}

/* ---- a silent first successor does not cost the others their leases ---- */

static bool depends_on_successor(const struct group *g) {
    return g->config.leadership == LEADERSHIP_ARBITER && g->plan.named.n > 0 && g->forming.sent &&
           (group_is_live(g) || g->state == GROUP_STOPPING);
}

/* Enough members were heard well after the first successor: so it is cut off from the network, not
 * we. */
static bool others_are_fresh(const struct group *g) {
    uint64_t after = g->plan.clock_ns + 2 * g->config.rdzv.heartbeat_ns;
    size_t fresh = 0;
    for (size_t i = 0; i < g->formation.n_members; i++)
        fresh += g->formation.members[i]->echo_ns >= after;
    return fresh >= g->config.rdzv.min_nodes && 2 * fresh >= g->formation.n_members;
}

void group_successors_time(struct group *g) {
    if (!depends_on_successor(g))
        return;
    switch (plan_check(&g->plan, &g->config, g->now_ns)) {
    case PLAN_NOTHING: break;
    case PLAN_NAME_ANEW: group_name_successors(g); break;
    case PLAN_ASK_OTHERS:
        if (others_are_fresh(g))
            group_claim_next(g, "the first successor is silent");
        break;
    }
}

uint64_t group_successors_deadline(const struct group *g) {
    return depends_on_successor(g) ? plan_deadline(&g->plan, &g->config, g->now_ns) : TIME_NEVER;
}

/* ---- the handover ---- */

void group_handover(const struct group *g, struct handover *ret) {
    *ret = (struct handover){
        .epoch = g->plan.named.epoch,
        .formed = g->formation.generation,
        .started = g->formation.started,
        .restarts_used = g->policy.restarts_used,
        .losses = g->policy.losses,
        .log_nonce = g->config.log_nonce,
    };
    ret->members = xcalloc(MAX2(g->formation.n_members, (size_t)1), sizeof *ret->members);
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct node *n = g->formation.members[i];
        struct handover_member *m = &ret->members[ret->n_members++];
        *m = (struct handover_member){
            .incarnation = n->info.incarnation, .port = n->info.listener_port, .started = true};
        memcpy(m->addr, n->info.addr, sizeof m->addr);
        (void)snprintf(m->host, sizeof m->host, "%.63s", n->info.host);
    }
    ret->n_order = ret->n_members;
}
