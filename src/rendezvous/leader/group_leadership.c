/* Leases, the arbiter and the leader file, the successors, how the leader's own node leaves. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* The newest of our clock values that the first successor has echoed, if leases depend on that. */
static uint64_t successor_clock(const struct group *g) {
    bool counts = g->config.leadership == LEADERSHIP_ARBITER && g->plan.named.n > 0 &&
                  g->forming.sent && g->state != GROUP_GATHERING;
    return counts ? g->plan.clock_ns : TIME_NEVER;
}

static uint64_t validity(const struct group *g) {
    return leadership_validity(&g->leadership, successor_clock(g), g->now_ns);
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

static void feed_lease_pending(struct group *g) {
    if (g->formation.n_lease_pending == 0 || validity(g) == 0)
        return;
    for (size_t i = 0; i < g->formation.n_members; i++)
        if (g->formation.members[i]->lease_pending && g->formation.members[i]->connected)
            group_send_lease(g, g->formation.members[i]);
}

/* Its echoes are recent enough. */
static bool reaches(const struct group *g, const struct node *n) {
    const struct group_config *c = &g->config;
    uint64_t term =
        MIN2(MAX2(c->rdzv.lease_ns / 2, 5 * c->rdzv.heartbeat_ns / 2), c->rdzv.lease_ns);
    uint64_t last = MAX2(n->echo_ns, n->joined_ns);
    return last != 0 && g->now_ns - last < term;
}

bool group_is_leaving(const struct group *g) {
    const struct node *own = roster_find(&g->roster, g->config.leader_incarnation);
    return g->config.leadership == LEADERSHIP_ARBITER &&
           (g->leadership.resign_ns != 0 || (own != NULL && own->report.leaving));
}

uint64_t group_patient_until(const struct group *g) {
    return leadership_patient_until(&g->leadership, g->formation.n_fell_silent,
                                    g->formation.formed_here);
}

void group_ask(struct group *g, enum arbiter_kind kind, uint32_t epoch) {
    struct arbiter_request *r = group_keep(g, sizeof *r);
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = g->config.self};
    if (kind == ARBITER_CLOSE) {
        r->outcome = g->outcome;
        memcpy(r->reason, g->reason, sizeof r->reason);
    }
    group_emit(g, GROUP_EFFECT_ARBITER, 0)->request = r;
}

/* Claims the leader's own next epoch. why: successors are dropped; NULL: none are. */
static void claim_next(struct group *g, const char *why) {
    if (!leadership_may_claim(&g->leadership, g->now_ns))
        return;
    g->leadership.claiming = true;
    group_ask(g, ARBITER_CLAIM, g->leadership.epoch + 1);
    if (why != NULL)
        (void)group_add_to_timeline(g, TIMELINE_SUCCESSORS, NULL, why);
}

/* An agent that finds the leader of an idle epoch gone can lead at once. So the first group is
 * formed in the next epoch, which the arbiter gives to only one agent. */
bool group_has_epoch_to_form(struct group *g) {
    if (g->leadership.idle)
        claim_next(g, NULL);
    return !g->leadership.idle;
}

static struct node *successor(const struct group *g, uint32_t i) {
    return roster_find(&g->roster, g->plan.named.list[i].incarnation);
}

bool group_is_successor(const struct group *g, uint64_t node) {
    return successors_index(&g->plan.named, node) >= 0;
}

const struct successors *group_successors(const struct group *g) { return &g->plan.named; }

static bool is_eligible(const struct group *g, const struct node *n) {
    return n->is_member && n->connected && n->reached && !n->report.leaving && reaches(g, n) &&
           n->info.incarnation != g->config.leader_incarnation;
}

static void name(struct successors *s, const struct node *n) {
    struct rdzv_peer *p = &s->list[s->n++];
    *p = (struct rdzv_peer){.incarnation = n->info.incarnation, .port = n->info.listener_port};
    (void)snprintf(p->addr, sizeof p->addr, "%s", n->info.addr);
}

/* One power cut must not end two of them, or one with the leader. */
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

static void add_successors(const struct group *g, struct successors *s) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < g->formation.n_members && s->n < RDZV_SUCCESSORS_MAX; i++) {
            const struct node *n = g->formation.members[i];
            if (is_eligible(g, n) && successors_index(s, n->info.incarnation) < 0 &&
                (pass == 1 || is_elsewhere(g, s, n)))
                name(s, n);
        }
}

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
    feed_lease_pending(g);
}

static void forget_successors(struct group *g) {
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

void group_successor_lost(struct group *g, const struct node *n, enum removal how) {
    /* So soon after its last contact with the leader it can't have claimed. */
    bool surely = how == REMOVED_LEFT || (how == REMOVED_GONE && n->echo_ns != 0 &&
                                          g->now_ns - n->echo_ns < g->config.rdzv.lease_ns);
    plan_lose(&g->plan, n->info.incarnation, surely);
}

bool group_successors_settled(struct group *g) {
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
        if (g->plan.states[i] == SUCCESSOR_GONE || (n != NULL && node_is(n, TALLY_CANDIDATE)))
            continue;
        claim_next(g, "a successor is gone, and might have claimed");
        return false;
    }
    return !g->leadership.claiming;
}

void group_on_echo(struct group *g, const struct node *n, const struct echo *echo) {
    if (plan_echo(&g->plan, n->info.incarnation, echo, g->now_ns))
        feed_lease_pending(g);
}

static bool depends_on_successor(const struct group *g) {
    return g->config.leadership == LEADERSHIP_ARBITER && g->plan.named.n > 0 && g->forming.sent &&
           (group_is_live(g) || g->state == GROUP_STOPPING);
}

/* Then the first successor is cut off from the network, and not the leader. */
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
    switch (plan_check(&g->plan, g->now_ns)) {
    case PLAN_NOTHING: break;
    case PLAN_NAME_ANEW: group_name_successors(g); break;
    case PLAN_ASK_OTHERS:
        if (others_are_fresh(g))
            claim_next(g, "the first successor is silent");
        break;
    }
}

static uint64_t successors_deadline(const struct group *g) {
    return depends_on_successor(g) ? plan_deadline(&g->plan, g->now_ns) : TIME_NEVER;
}

static void end_leadership(struct group *g) {
    g->leadership.over = true;
    g->status.dirty = false;
}

void group_depose(struct group *g, uint32_t epoch) {
    if (epoch > g->leadership.epoch)
        group_notice(g, "another node leads this job now");
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

/* The nodes that the leader does not reach may have to continue without it. */
static bool reaches_too_few(const struct group *g) {
    /* There is nothing that others could continue; or the last group's nodes are on their way. */
    if (g->formation.n_order == 0 ||
        (!g->formation.formed_here && g->now_ns - g->leadership.begun_ns < g->config.rdzv.lease_ns))
        return false;
    size_t heard = 0, of_last = 0;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        bool hears = reaches(g, n);
        heard += hears;
        of_last += hears && n->in_order;
    }
    return heard < g->config.rdzv.min_nodes ||
           2 * of_last < g->formation.n_order - g->formation.n_last_lost;
}

/* A paused beat lets a successor that reaches more nodes take over. A group is formed again only
 * when no agent can have taken over. */
static void scan_members(struct group *g) {
    uint64_t patience = g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
    switch (leadership_pause(&g->leadership, reaches_too_few(g), g->now_ns)) {
    case BEAT_UNCHANGED: break;
    case BEAT_PAUSED:
        group_form_not_before(g, g->now_ns + patience);
        (void)group_add_to_timeline(g, TIMELINE_BEAT_PAUSED, NULL, "too few nodes are in contact");
        break;
    case BEAT_RESUMED: g->gathering.not_before_ns = MAX2(g->config.not_before_ns, g->now_ns); break;
    case BEAT_RESUMED_LATE: group_form_not_before(g, g->now_ns + patience); break;
    }
}

static void adopt_epoch(struct group *g) {
    if (!group_is_live(g) && g->state != GROUP_STOPPING) {
        forget_successors(g);
        return;
    }
    group_name_successors(g);
    /* They may be about to end, as they depend on the last echo of a silent successor. */
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
    leadership_answer(&g->leadership, a, g->closed.record, g->now_ns, &news);
    if (news.notice[0] != '\0')
        group_notice(g, news.notice);
    switch (news.change) {
    case LEADERSHIP_UNCHANGED: break;
    case LEADERSHIP_CLAIM_AGAIN:
        claim_next(g, "a claim whose answer was lost");
        feed_lease_pending(g);
        break;
    case LEADERSHIP_CONFIRMED: feed_lease_pending(g); break;
    case LEADERSHIP_NEW_EPOCH:
        adopt_epoch(g);
        if (a->request.kind != ARBITER_CLAIM)
            break; /* the outcome follows */
        g->leadership.read_ns = MAX2(g->leadership.read_ns, a->started_ns);
        feed_lease_pending(g);
        break;
    case LEADERSHIP_DEPOSED: group_depose(g, news.epoch); break;
    case LEADERSHIP_OUTCOME_RECORDED: group_outcome_recorded(g); break;
    case LEADERSHIP_RUINED: on_ruined(g, a); break;
    case LEADERSHIP_RESIGNED: group_resigned(g); break;
    }
}

void group_on_higher_epoch(struct group *g, uint32_t epoch) {
    struct leadership *l = &g->leadership;
    if (g->config.leadership != LEADERSHIP_ARBITER || epoch <= l->epoch || l->claiming ||
        l->looking)
        return;
    l->looking = true;
    group_ask(g, ARBITER_READ, l->epoch);
}

void group_on_touched(struct group *g, uint64_t touched_ns) {
    g->leadership.touched_ns = MAX2(g->leadership.touched_ns, touched_ns);
    if (g->closed.record == OUTCOME_WAITS && g->leadership.closing)
        group_outcome_recorded(g);
    feed_lease_pending(g);
}

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
    if (g->now_ns >= leadership_beat_at(l, is_recorded(g))) {
        l->beat_ns = g->now_ns + g->config.rdzv.heartbeat_ns;
        if (g->config.leadership == LEADERSHIP_LEADER_FILE) {
            group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = OUTCOME_NONE;
        } else {
            scan_members(g);
            l->looking = true;
            group_ask(g, l->paused_ns != 0 ? ARBITER_READ : ARBITER_BEAT, l->epoch);
        }
    }
    if (g->closed.record == OUTCOME_WAITS && g->now_ns >= leadership_close_at(l))
        group_ask_to_close(g);
}

uint64_t group_leadership_deadline(const struct group *g) {
    const struct leadership *l = &g->leadership;
    uint64_t t = leadership_beat_at(l, is_recorded(g));
    if (g->closed.record == OUTCOME_WAITS)
        t = MIN2(t, leadership_close_at(l));
    t = MIN2(MAX2(t, g->now_ns + 1), successors_deadline(g));
    return MIN2(t, leadership_resign_deadline(l, g->closed.record, g->now_ns));
}

/* Whether a successor that stays has everything that this leader knows. */
static bool successor_stays(const struct group *g) {
    if (g->plan.named.epoch != g->leadership.epoch)
        return false;
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
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

bool group_too_few_stay(const struct group *g) {
    return g->formation.started_once && roster_usable(&g->roster, TALLY_HOPEFUL) < g->need &&
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
                               .too_few_stay = group_too_few_stay(g),
                               .nothing_runs = group_nothing_runs(g),
                               .formed_here = g->formation.formed_here,
                               .interrupted = g->closed.interrupted,
                               .outcome = g->closed.record};
    switch (leadership_resign(l, &view, g->now_ns)) {
    case RESIGN_WAIT: break;
    case RESIGN_END: group_close_interrupted(g); break;
    case RESIGN_NOW: group_resigned(g); break;
    case RESIGN_VACATE:
        l->vacate_ns = g->now_ns;
        group_ask(g, ARBITER_VACATE, l->epoch);
        break;
    }
}

void group_handover(const struct group *g, struct handover *ret) {
    *ret = (struct handover){
        .epoch = g->plan.named.epoch,
        .formed = g->formation.generation,
        .started = g->formation.started,
        .restarts_used = g->policy.restarts_used,
        .losses = g->policy.losses,
        .log_nonce = g->config.log_nonce,
    };
    group_history(g, g->now_ns, &ret->history);
    ret->members = xcalloc(MAX2(g->formation.n_members, (size_t)1), sizeof *ret->members);
    for (size_t i = 0; i < g->formation.n_members; i++) {
        const struct node *n = g->formation.members[i];
        struct handover_member *m = &ret->members[ret->n_members++];
        *m = (struct handover_member){
            .incarnation = n->info.incarnation, .port = n->info.listener_port, .started = true};
        memcpy(m->addr, n->info.addr, sizeof m->addr);
        (void)snprintf(m->host, sizeof m->host, "%.63s", n->info.host);
        memcpy(m->domain, n->report.domain, sizeof m->domain);
    }
    ret->n_order = ret->n_members;
}
