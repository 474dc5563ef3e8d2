/* What this leader grants to its nodes and requests from the arbiter, depending on the state of its
 * leadership. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* ---- leases ---- */

/* The newest of our clock values that the first successor has echoed, if leases depend on that. */
static uint64_t successor_clock(const struct group *g) {
    bool counts = g->config.leadership == LEADERSHIP_ARBITER && g->plan.named.n > 0 &&
                  g->forming.sent && g->state != GROUP_GATHERING;
    return counts ? g->plan.clock_ns : TIME_NEVER;
}

static uint64_t validity(const struct group *g) {
    return leadership_validity(&g->leadership, &g->config, successor_clock(g), g->now_ns);
}

bool group_is_confirmed(const struct group *g) {
    return leadership_is_confirmed(&g->leadership, &g->config, g->now_ns);
}

void group_send_lease(struct group *g, struct node *n) {
    bool named = n->is_member && g->forming.sent && g->state != GROUP_GATHERING;
    struct group_effect *e = group_emit(g, GROUP_EFFECT_LEASE, n->info.incarnation);
    e->lease = (struct lease){
        .epoch = g->leadership.epoch,
        .prepared = named ? g->formation.generation : (struct generation){0, 0},
        .echo_ns = n->clock.asked_ns,
        .validity_ns = validity(g),
        .clock_ns = g->now_ns,
    };
    formation_set_lease_pending(&g->formation, n, e->lease.validity_ns == 0);
}

void group_feed_lease_pending(struct group *g) {
    if (g->formation.n_lease_pending == 0 || validity(g) == 0)
        return;
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->lease_pending && g->formation.members[i]->connected)
            group_send_lease(g, g->formation.members[i]);
}

bool group_reaches(const struct group *g, const struct node *n) {
    const struct group_config *c = &g->config;
    uint64_t term =
        MIN2(MAX2(c->rdzv.lease_ns / 2, 5 * c->rdzv.heartbeat_ns / 2), c->rdzv.lease_ns);
    uint64_t last = MAX2(n->echo_ns, n->joined_ns);
    return last != 0 && g->now_ns - last < term;
}

/* ---- the leader itself ---- */

bool group_is_leaving(const struct group *g) {
    const struct node *own = roster_find(&g->roster, g->config.leader_incarnation);
    return g->config.leadership == LEADERSHIP_ARBITER &&
           (g->leadership.resign_ns != 0 || (own != NULL && own->report.leaving));
}

uint64_t group_patient_until(const struct group *g) {
    return leadership_patient_until(&g->leadership, &g->config, g->formation.n_fell_silent,
                                    g->formation.formed_here);
}

bool group_ask(struct group *g, enum arbiter_kind kind, uint32_t epoch) {
    if (g->effects.n_requests == GROUP_REQUESTS_MAX)
        return false;
    struct arbiter_request *r = &g->effects.requests[g->effects.n_requests];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = g->config.self};
    if (kind == ARBITER_CLOSE) {
        r->outcome = g->outcome;
        memcpy(r->reason, g->reason, sizeof r->reason);
    }
    group_emit(g, GROUP_EFFECT_ARBITER, 0)->n_nodes = g->effects.n_requests++;
    return true;
}

void group_claim_next(struct group *g, const char *why) {
    if (!leadership_may_claim(&g->leadership, &g->config, g->now_ns) ||
        !group_ask(g, ARBITER_CLAIM, g->leadership.epoch + 1))
        return;
    g->leadership.claiming = true;
    if (why != NULL)
        (void)group_add_to_timeline(g, TIMELINE_SUCCESSORS, NULL, why);
}

/* An agent that finds the leader of an idle epoch gone can lead at once. So the first group is
 * formed when no agent can do that any more: in the next epoch, which the arbiter gives to only one
 * agent. */
bool group_has_epoch_to_form(struct group *g) {
    if (g->leadership.idle)
        group_claim_next(g, NULL);
    return !g->leadership.idle;
}

/* ---- the end ---- */

static void end_leadership(struct group *g) {
    g->leadership.over = true;
    g->status.dirty = false;
}

void group_depose(struct group *g, uint32_t epoch) {
    char text[128];
    (void)snprintf(text, sizeof text, "another node leads this job now (epoch %" PRIu32 ")", epoch);
    if (epoch > g->leadership.epoch)
        group_notice(g, text);
    end_leadership(g);
    group_emit(g, GROUP_EFFECT_DEPOSED, 0)->epoch = epoch;
}

void group_resigned(struct group *g) {
    if (g->leadership.over)
        return;
    end_leadership(g);
    if (g->closed.record != OUTCOME_DELIVERED && g->closed.record != OUTCOME_GIVEN_UP)
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
}
