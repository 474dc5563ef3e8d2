/* The leadership in the group: what this leader grants to its nodes and requests from the arbiter,
 * the answers of the arbiter and of the leader file, and how the leader's own node leaves. */
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

/* The leader's own node has left, and no other agent has to wait for it: emits DONE. */
static void group_resigned(struct group *g) {
    if (g->leadership.over)
        return;
    end_leadership(g);
    if (g->closed.record != OUTCOME_DELIVERED && g->closed.record != OUTCOME_GIVEN_UP)
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
}

/* ---- contact with the nodes ---- */

/* The leader hears fewer than min nodes, or less than half of the last group: the others may have
 * to continue without it. */
static bool reaches_too_few(const struct group *g) {
    /* The leader has never had a group: there is nothing that others could continue. Or it is new,
     * and the nodes of the last leader's group are on their way. */
    if (g->formation.n_order == 0 ||
        (!g->formation.formed_here && g->now_ns - g->leadership.begun_ns < g->config.rdzv.lease_ns))
        return false;
    size_t heard = 0, of_last = 0;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        bool hears = group_reaches(g, n);
        heard += hears;
        of_last += hears && n->in_order;
    }
    return heard < g->config.rdzv.min_nodes ||
           2 * of_last < g->formation.n_order - g->formation.n_last_lost;
}

/* Pauses the beat, so that a successor that hears more nodes can take over. A group is formed again
 * only if no agent has taken over for long enough. */
static void scan_members(struct group *g) {
    uint64_t patience = g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
    switch (leadership_pause(&g->leadership, &g->config, reaches_too_few(g), g->now_ns)) {
    case BEAT_UNCHANGED: break;
    case BEAT_PAUSED:
        group_form_not_before(g, g->now_ns + patience);
        (void)group_add_to_timeline(g, TIMELINE_BEAT_PAUSED, NULL, "too few nodes are in contact");
        break;
    case BEAT_RESUMED: g->gathering.not_before_ns = MAX2(g->config.not_before_ns, g->now_ns); break;
    case BEAT_RESUMED_LATE: group_form_not_before(g, g->now_ns + patience); break;
    }
}

/* ---- answers ---- */

static void adopt_epoch(struct group *g) {
    if (!group_is_live(g) && g->state != GROUP_STOPPING) {
        group_forget_successors(g);
        return;
    }
    group_name_successors(g);
    /* Their leases may be about to end, because those depend on the last echo of a silent
     * successor. */
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->connected && g->formation.members[i]->clock.asked_ns != 0)
            group_send_lease(g, g->formation.members[i]);
}

static void on_ruined(struct group *g, const struct arbiter_answer *a) {
    if (g->closed.record == OUTCOME_OPEN) {
        char text[RDZV_REASON_MAX];
        cause_forget(&g->cause);
        (void)snprintf(text, sizeof text, ARBITER_RUIN_TEXT, a->text);
        group_close_failed(g, text);
    } else if (g->closed.record == OUTCOME_WAITS) {
        group_outcome_recorded(g);
    }
}

void group_on_arbiter(struct group *g, const struct arbiter_answer *a) {
    struct leadership_news news;
    leadership_answer(&g->leadership, &g->config, a, g->closed.record, g->now_ns, &news);
    if (news.notice[0] != '\0')
        group_notice(g, news.notice);
    switch (news.change) {
    case LEADERSHIP_UNCHANGED: break;
    case LEADERSHIP_CLAIM_AGAIN:
        group_claim_next(g, "a claim whose answer was lost");
        group_feed_lease_pending(g);
        break;
    case LEADERSHIP_CONFIRMED: group_feed_lease_pending(g); break;
    case LEADERSHIP_NEW_EPOCH:
        adopt_epoch(g);
        if (a->request.kind != ARBITER_CLAIM)
            break; /* the outcome follows */
        g->leadership.read_ns = MAX2(g->leadership.read_ns, a->started_ns);
        group_feed_lease_pending(g);
        break;
    case LEADERSHIP_DEPOSED: group_depose(g, news.epoch); break;
    case LEADERSHIP_OUTCOME_RECORDED: group_outcome_recorded(g); break;
    case LEADERSHIP_RUINED: on_ruined(g, a); break;
    case LEADERSHIP_RESIGNED: group_resigned(g); break;
    }
}

/* A node has reported a higher epoch: the arbiter knows whether that is so. */
void group_on_higher_epoch(struct group *g, uint32_t epoch) {
    struct leadership *l = &g->leadership;
    if (g->config.leadership == LEADERSHIP_ARBITER && epoch > l->epoch && !l->claiming &&
        !l->looking)
        l->looking = group_ask(g, ARBITER_READ, l->epoch);
}

void group_on_touched(struct group *g, uint64_t touched_ns) {
    g->leadership.touched_ns = MAX2(g->leadership.touched_ns, touched_ns);
    if (g->closed.record == OUTCOME_WAITS && g->leadership.closing)
        group_outcome_recorded(g);
    group_feed_lease_pending(g);
}

/* ---- time ---- */

void group_leadership_begin(struct group *g) {
    struct leadership *l = &g->leadership;
    if (l->beat_ns != 0)
        return;
    l->beat_ns = l->begun_ns = g->now_ns;
    struct timeline_entry *entry = group_add_to_timeline(g, TIMELINE_LEADS, NULL, NULL);
    entry->generation = (struct generation){l->epoch, 0};
    memcpy(entry->endpoint, g->config.endpoint, sizeof entry->endpoint);
}

static bool is_recorded(const struct group *g) {
    return g->closed.record == OUTCOME_RECORDED || g->closed.record == OUTCOME_DELIVERED;
}

void group_leadership_time(struct group *g) {
    struct leadership *l = &g->leadership;
    if (leadership_beat_is_due(l, &g->config, is_recorded(g), g->now_ns)) {
        l->beat_ns = g->now_ns + g->config.rdzv.heartbeat_ns;
        if (g->config.leadership == LEADERSHIP_LEADER_FILE) {
            group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = OUTCOME_NONE;
        } else {
            scan_members(g);
            l->looking = group_ask(g, l->paused_ns != 0 ? ARBITER_READ : ARBITER_BEAT, l->epoch);
        }
    }
    if (g->closed.record == OUTCOME_WAITS && leadership_close_is_due(l, &g->config, g->now_ns))
        l->closing = group_ask_to_close(g);
}

uint64_t group_leadership_deadline(const struct group *g) {
    const struct leadership *l = &g->leadership;
    uint64_t t = leadership_deadline(l, &g->config, is_recorded(g),
                                     g->closed.record == OUTCOME_WAITS, g->now_ns);
    return MIN2(t, leadership_resign_deadline(l, &g->config, g->closed.record, g->now_ns));
}

/* ---- the leader's own node leaves ---- */

/* Whether a successor that stays has everything that this leader knows. */
static bool successor_stays(const struct group *g) {
    if (g->plan.named.epoch != g->leadership.epoch)
        return false;
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = roster_find(&g->roster, g->plan.named.list[i].incarnation);
        if (n != NULL && n->connected && !n->report.leaving)
            return true;
    }
    return false;
}

bool group_nothing_runs(const struct group *g) {
    bool stopped = g->state == GROUP_GATHERING ||
                   (g->state == GROUP_STOPPING && group_all_members(g, TALLY_STOPPED));
    return stopped && g->now_ns >= g->config.not_before_ns && !g->leadership.claiming &&
           !group_somebody_unresolved(g);
}

/* The nodes that stay are too few, and no option asks to wait for more. */
static bool too_few_stay(const struct group *g) {
    return g->formation.started_once && g->roster.tally[TALLY_HOPEFUL] < g->need &&
           g->config.rdzv.regroup_wait_ns == 0;
}

void group_on_resign(struct group *g) {
    struct node *own = roster_find(&g->roster, g->config.leader_incarnation);
    if (g->leadership.resign_ns != 0 || g->config.leadership != LEADERSHIP_ARBITER)
        return;
    g->leadership.resign_ns = g->now_ns;
    if (own != NULL)
        group_remove_node(g, own, "has left", REMOVED_LEFT);
}

void group_resign_time(struct group *g) {
    struct leadership *l = &g->leadership;
    struct resign_view view = {.successor_stays = successor_stays(g),
                               .too_few_stay = too_few_stay(g),
                               .nothing_runs = group_nothing_runs(g),
                               .formed_here = g->formation.formed_here,
                               .interrupted = g->closed.interrupted,
                               .outcome = g->closed.record};
    switch (leadership_resign(l, &g->config, &view, g->now_ns)) {
    case RESIGN_WAIT: break;
    case RESIGN_END: group_close_interrupted(g); break;
    case RESIGN_NOW: group_resigned(g); break;
    case RESIGN_VACATE:
        if (group_ask(g, ARBITER_VACATE, l->epoch))
            l->vacate_ns = g->now_ns;
        break;
    }
}
