/* Leases, the arbiter and the leader file, the successors, how the leader's own node leaves. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* How much later the last successor acts than the first (muster-rendezvous(7), "Which node claims,
 * and when"). */
#define LAST_SUCCESSOR_NS (2 * 3 * NS_PER_S)
/* All nodes of a job are often asked to stop at once: the others report it by then, too. */
#define HAND_OVER_NS (100 * NS_PER_MS)
/* How long the agent waits for the arbiter's answer before it leaves without it. */
#define ARBITER_PATIENCE_NS (2 * NS_PER_S)

/* ---- leases ---- */

static bool by_arbiter(const struct group *g) { return g->config.leadership == LEADERSHIP_ARBITER; }

static uint64_t left_of(const struct group *g, uint64_t term_ns, uint64_t since_ns) {
    uint64_t age = g->now_ns - since_ns;
    return age >= term_ns ? 0 : term_ns - age;
}

static uint64_t confirmed_for(const struct group *g) {
    const struct leadership *l = &g->leadership;
    switch (g->config.leadership) {
    case LEADERSHIP_NONE: return g->config.rdzv.lease_ns;
    case LEADERSHIP_LEADER_FILE:
        return l->touched_ns == 0 ? 0 : left_of(g, g->config.rdzv.lease_ns, l->touched_ns);
    case LEADERSHIP_ARBITER:
        return l->read_ns == 0 ? 0 : left_of(g, g->config.rdzv.arbiter_lease_ns, l->read_ns);
    }
    assert_not_reached();
}

bool group_is_confirmed(const struct group *g) { return confirmed_for(g) > 0; }

/* Whether leases depend on the echoes of the first successor. */
static bool leases_need_echo(const struct group *g) {
    return by_arbiter(g) && g->plan.named.n > 0 && g->forming.sent && g->state != GROUP_GATHERING;
}

/* How long a lease that is granted now is valid; 0: none can be granted. It does not outlive the
 * authority on which it depends. */
static uint64_t validity(const struct group *g) {
    uint64_t v = MIN2(g->config.rdzv.lease_ns, confirmed_for(g));
    return leases_need_echo(g) ? MIN2(v, left_of(g, g->config.rdzv.lease_ns, g->plan.clock_ns)) : v;
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
    return by_arbiter(g) && (g->leadership.resign_ns != 0 || (own != NULL && own->report.leaving));
}

uint64_t group_patient_until(const struct group *g) {
    const struct leadership *l = &g->leadership;
    uint64_t term_ns = g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
    if (!by_arbiter(g))
        return 0;
    if (g->formation.n_fell_silent < g->config.rdzv.min_nodes)
        return g->formation.formed_here ? 0 : l->begun_ns + term_ns;
    uint64_t since = l->paused_ns != 0 ? l->paused_ns : l->begun_ns + g->config.rdzv.lease_ns;
    return since + 2 * term_ns + LAST_SUCCESSOR_NS;
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
    struct leadership *l = &g->leadership;
    if (!by_arbiter(g) || l->claiming || g->now_ns < l->claim_ns)
        return;
    l->claiming = true;
    group_ask(g, ARBITER_CLAIM, l->epoch + 1);
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

/* ---- the named successors ---- */

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

static bool is_first(const struct group *g, uint64_t incarnation) {
    return g->plan.named.n > 0 && g->plan.named.list[0].incarnation == incarnation;
}

static void adopt(struct group *g, const struct successors *s) {
    struct succession_plan *p = &g->plan;
    struct succession_plan next = {.named = *s, .clock_ns = p->clock_ns, .check_ns = p->check_ns};
    for (uint32_t i = 0; i < s->n; i++) {
        int before = successors_index(&p->named, s->list[i].incarnation);
        next.gone[i] = before >= 0 && p->gone[before];
    }
    /* The naming counts like an echo at this time, because a new successor can't have echoed
     * anything before. */
    if (s->n > 0 && (s->epoch != p->named.epoch || !is_first(g, s->list[0].incarnation)))
        next.clock_ns = g->now_ns;
    *p = next;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (n->connected)
            (void)group_emit(g, GROUP_EFFECT_NAME, n->info.incarnation);
}

void group_name_successors(struct group *g) {
    if (!by_arbiter(g))
        return;
    struct successors s = {.epoch = g->leadership.epoch};
    bool same_epoch = s.epoch == g->plan.named.epoch;
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
        if (same_epoch ? !g->plan.gone[i] : n != NULL && is_eligible(g, n))
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
    if (!by_arbiter(g) || g->plan.named.n == RDZV_SUCCESSORS_MAX || !group_is_live(g) ||
        g->plan.named.epoch != g->leadership.epoch)
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
    int i = successors_index(&g->plan.named, n->info.incarnation);
    if (i >= 0)
        g->plan.gone[i] = surely;
}

bool group_successors_settled(struct group *g) {
    for (uint32_t i = 0; i < g->plan.named.n; i++) {
        const struct node *n = successor(g, i);
        if (g->plan.gone[i] || (n != NULL && node_is(n, TALLY_CANDIDATE)))
            continue;
        claim_next(g, "a successor is gone, and might have claimed");
        return false;
    }
    return !g->leadership.claiming;
}

void group_on_echo(struct group *g, const struct node *n, const struct echo *echo) {
    struct succession_plan *p = &g->plan;
    if (!is_first(g, n->info.incarnation) || echo->epoch != p->named.epoch ||
        echo->leader_clock_ns > g->now_ns)
        return;
    p->clock_ns = MAX2(p->clock_ns, echo->leader_clock_ns);
    feed_lease_pending(g);
}

static bool depends_on_successor(const struct group *g) {
    return leases_need_echo(g) && g->state != GROUP_CLOSED;
}

/* Then the first successor is cut off from the network, and not the leader. */
static bool others_are_fresh(const struct group *g) {
    uint64_t after = g->plan.clock_ns + 2 * g->config.rdzv.heartbeat_ns;
    size_t fresh = 0;
    for (size_t i = 0; i < g->formation.n_members; i++)
        fresh += g->formation.members[i]->echo_ns >= after;
    return fresh >= g->config.rdzv.min_nodes && 2 * fresh >= g->formation.n_members;
}

static uint64_t silent_at(const struct group *g) {
    return MAX2(g->plan.clock_ns + g->config.rdzv.lease_ns / 2, g->plan.check_ns);
}

void group_successors_time(struct group *g) {
    if (!depends_on_successor(g))
        return;
    if (g->plan.gone[0]) {
        group_name_successors(g);
    } else if (g->now_ns >= silent_at(g)) {
        g->plan.check_ns = g->now_ns + g->config.rdzv.heartbeat_ns / 4;
        if (others_are_fresh(g))
            claim_next(g, "the first successor is silent");
    }
}

static uint64_t successors_deadline(const struct group *g) {
    return depends_on_successor(g) ? MAX2(silent_at(g), g->now_ns + 1) : TIME_NEVER;
}

/* ---- the end of this leadership ---- */

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

/* ---- the beat ---- */

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
    struct leadership *l = &g->leadership;
    uint64_t patience = g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
    bool too_few = reaches_too_few(g);
    if (too_few == (l->paused_ns != 0))
        return;
    if (too_few) {
        l->paused_ns = g->now_ns;
        group_form_not_before(g, g->now_ns + patience);
        (void)group_add_to_timeline(g, TIMELINE_BEAT_PAUSED, NULL, "too few nodes are in contact");
        return;
    }
    if (g->now_ns - l->paused_ns < g->config.rdzv.lease_ns / 2) /* too soon for a claim */
        g->gathering.not_before_ns = MAX2(g->config.not_before_ns, g->now_ns);
    else
        group_form_not_before(g, g->now_ns + patience);
    l->paused_ns = 0;
}

/* ---- answers ---- */

/* Our claim of this epoch was won. */
static void adopt_epoch(struct group *g, const struct arbiter_record *own) {
    g->leadership.epoch = own->epoch;
    g->leadership.idle = own->idle;
    g->leadership.claiming = false;
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

static bool is_ours(const struct group *g, const struct arbiter_record *r) {
    return r->leader.incarnation == g->config.leader_incarnation;
}

static void on_record(struct group *g, const struct arbiter_answer *a) {
    struct leadership *l = &g->leadership;
    const struct arbiter_record *r = &a->record;
    bool ours = is_ours(g, r);
    if ((r->closed || (r->vacant && ours)) && g->closed.record != OUTCOME_OPEN)
        return; /* by us: the answer to our CLOSE or VACATE follows */
    bool lost_answer = !r->closed && r->epoch == l->epoch + 1 && ours;
    if (r->closed || (r->epoch > l->epoch && !lost_answer)) {
        group_depose(g, r->epoch);
        return;
    }
    if (lost_answer) /* repeated, the claim counts */
        claim_next(g, "a claim whose answer was lost");
    else if (r->epoch == l->epoch && ours)
        l->read_ns = MAX2(l->read_ns, a->started_ns);
    feed_lease_pending(g);
}

static void on_claimed(struct group *g, const struct arbiter_answer *a) {
    struct leadership *l = &g->leadership;
    l->claiming = false;
    if (a->result == ARBITER_OK && a->request.epoch == l->epoch + 1) {
        adopt_epoch(g, &a->record);
        l->read_ns = MAX2(l->read_ns, a->started_ns);
        feed_lease_pending(g);
    } else if (a->result == ARBITER_LOST && a->request.epoch > l->epoch) {
        group_depose(g, a->record.epoch);
    } else {
        l->claim_ns = g->now_ns + g->config.rdzv.heartbeat_ns;
    }
}

static void on_closed(struct group *g, const struct arbiter_answer *a) {
    struct leadership *l = &g->leadership;
    const struct arbiter_record *r = &a->record;
    l->closing = false;
    if (g->closed.record != OUTCOME_WAITS)
        return; /* given up: a node that still waits reads the outcome there */
    if (a->result == ARBITER_OK)
        group_outcome_recorded(g);
    else if (a->result != ARBITER_LOST)
        l->claim_ns = g->now_ns + g->config.rdzv.heartbeat_ns / 4;
    else if (r->epoch == l->epoch + 1 && !r->closed && !r->vacant && is_ours(g, r))
        adopt_epoch(g, r); /* an own claim, not answered yet: the close then uses this epoch */
    else
        group_depose(g, r->epoch);
}

/* The arbiter no longer has data of this job: no agent can lead it, and no other place has the
 * outcome. A directory may come back, so this must last for a while. */
static bool is_ruined_now(struct group *g, const struct arbiter_answer *a) {
    struct leadership *l = &g->leadership;
    uint64_t wait = arbiter_ruin_ns(a, g->config.rdzv.lease_ns);
    char text[RDZV_REASON_MAX];
    if (l->ruined_ns == 0) {
        l->ruined_ns = g->now_ns;
        (void)snprintf(text, sizeof text, "%.400s; the job ends if this persists", a->text);
        group_notice(g, text);
    }
    /* compare with the time of the request: an answer may be older than the return of the data */
    bool lasts = wait == 0 || a->started_ns >= l->ruined_ns + wait;
    if (l->ruined || !lasts)
        return false;
    l->ruined = true;
    l->ruin_grace_ns = wait;
    return true;
}

static void on_ruined(struct group *g, const struct arbiter_answer *a) {
    if (g->closed.record == OUTCOME_OPEN) {
        char text[RDZV_REASON_MAX];
        group_forget_cause(g);
        (void)snprintf(text, sizeof text, ARBITER_RUIN_TEXT, a->text);
        group_close_failed(g, text);
    } else if (g->closed.record == OUTCOME_WAITS) {
        group_outcome_recorded(g);
    }
}

static void report_unreachable(struct group *g, const struct arbiter_answer *a, bool looks) {
    struct leadership *l = &g->leadership;
    char text[RDZV_REASON_MAX];
    if (l->unreachable_reported || (!looks && l->refusal_reported))
        return;
    /* For example, a full disk refuses claims, but can still be read. */
    l->unreachable_reported = looks;
    l->refusal_reported = l->refusal_reported || !looks;
    if (looks)
        (void)snprintf(text, sizeof text, "%.400s; the job continues for up to %.0f s without it",
                       a->text, (double)g->config.rdzv.arbiter_lease_ns / 1e9);
    else
        (void)snprintf(text, sizeof text, "%.400s; it is tried again", a->text);
    group_notice(g, text);
}

void group_on_arbiter(struct group *g, const struct arbiter_answer *a) {
    struct leadership *l = &g->leadership;
    bool looks = a->request.kind == ARBITER_READ || a->request.kind == ARBITER_BEAT;
    if (looks)
        l->looking = false;
    if (a->result == ARBITER_UNREACHABLE) {
        report_unreachable(g, a, looks);
    } else {
        l->unreachable_reported = false;
        l->refusal_reported = l->refusal_reported && looks;
    }
    if (a->result == ARBITER_OK || a->result == ARBITER_LOST)
        l->ruined_ns = 0;
    bool ruined = a->result == ARBITER_RUINED && is_ruined_now(g, a);
    switch (a->request.kind) {
    case ARBITER_READ:
    case ARBITER_BEAT:
        if (a->result == ARBITER_OK)
            on_record(g, a);
        break;
    case ARBITER_CLAIM: on_claimed(g, a); break;
    case ARBITER_VACATE:
        if (l->vacate_ns != 0) {
            group_resigned(g);
            return;
        }
        on_closed(g, a);
        break;
    case ARBITER_CLOSE: on_closed(g, a); break;
    case ARBITER_KIND_COUNT: assert_not_reached();
    }
    if (ruined)
        on_ruined(g, a);
}

void group_on_higher_epoch(struct group *g, uint32_t epoch) {
    struct leadership *l = &g->leadership;
    if (!by_arbiter(g) || epoch <= l->epoch || l->claiming || l->looking)
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

static uint64_t beat_at(const struct group *g) {
    bool beats = g->config.leadership != LEADERSHIP_NONE && !g->leadership.looking &&
                 g->closed.record != OUTCOME_RECORDED && g->closed.record != OUTCOME_DELIVERED;
    return beats ? g->leadership.beat_ns : TIME_NEVER;
}

/* When an outcome that is still to be recorded can be sent to the arbiter. */
static uint64_t close_at(const struct group *g) {
    const struct leadership *l = &g->leadership;
    bool can = g->closed.record == OUTCOME_WAITS && by_arbiter(g) && !l->closing && !l->claiming;
    return can ? l->claim_ns : TIME_NEVER;
}

void group_leadership_time(struct group *g) {
    struct leadership *l = &g->leadership;
    if (g->now_ns >= beat_at(g)) {
        l->beat_ns = g->now_ns + g->config.rdzv.heartbeat_ns;
        if (by_arbiter(g)) {
            scan_members(g);
            l->looking = true;
            group_ask(g, l->paused_ns != 0 ? ARBITER_READ : ARBITER_BEAT, l->epoch);
        } else {
            group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = OUTCOME_NONE;
        }
    }
    if (g->now_ns >= close_at(g))
        group_ask_to_close(g);
}

/* ---- the leader's own node leaves ---- */

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
    if (g->leadership.resign_ns != 0 || !by_arbiter(g))
        return;
    g->leadership.resign_ns = g->now_ns;
    if (own != NULL)
        group_remove_node(g, own, "has left", REMOVED_LEFT);
}

/* The workers of other nodes get their grace first. */
static uint64_t resign_limit(const struct group *g) {
    return g->leadership.resign_ns + g->config.rdzv.close_timeout_ns + g->config.grace_ns;
}

/* Until then an answer of the arbiter is awaited. */
static uint64_t answer_limit(const struct group *g) {
    const struct leadership *l = &g->leadership;
    return MAX2(MAX2(l->vacate_ns, l->close_ns), l->resign_ns) + ARBITER_PATIENCE_NS;
}

/* Without an outcome, and before the arbiter was asked to record that nothing is left. True: the
 * leader can leave now. */
static bool may_resign(struct group *g) {
    struct leadership *l = &g->leadership;
    bool nothing_runs = group_nothing_runs(g);
    if (successor_stays(g)) {
        if (g->now_ns < l->resign_ns + HAND_OVER_NS)
            return false;
        if (!group_too_few_stay(g))
            return true;
        if (nothing_runs) /* the nodes that stay must learn that the job ends */
            group_close_interrupted(g);
        return false;
    }
    if (nothing_runs) {
        l->vacate_ns = g->now_ns;
        group_ask(g, ARBITER_VACATE, l->epoch);
        return false;
    }
    /* It only waits for earlier epochs, and that can take a minute: so will the next agent. */
    return !g->formation.formed_here && g->now_ns + ARBITER_PATIENCE_NS < g->config.not_before_ns;
}

void group_resign_time(struct group *g) {
    enum outcome_record record = g->closed.record;
    bool may_go;
    if (g->leadership.resign_ns == 0)
        return;
    if (g->now_ns >= resign_limit(g) || record == OUTCOME_DELIVERED)
        may_go = true;
    else if (record == OUTCOME_RECORDED)
        /* nodes that don't learn it from this leader find a close at the arbiter, but a vacant
         * epoch gives them no reason */
        may_go = !g->closed.interrupted;
    else if (g->leadership.vacate_ns != 0 || record != OUTCOME_OPEN)
        may_go = g->now_ns >= answer_limit(g);
    else
        may_go = may_resign(g);
    if (may_go)
        group_resigned(g);
}

static uint64_t resign_deadline(const struct group *g) {
    const struct leadership *l = &g->leadership;
    if (l->resign_ns == 0)
        return TIME_NEVER;
    uint64_t t = resign_limit(g), hand_over_ns = l->resign_ns + HAND_OVER_NS;
    if (g->now_ns < hand_over_ns)
        t = MIN2(t, hand_over_ns);
    if (g->now_ns < g->config.not_before_ns)
        t = MIN2(t, g->config.not_before_ns);
    if (l->vacate_ns != 0 || g->closed.record == OUTCOME_WAITS)
        t = MIN2(t, answer_limit(g));
    return MAX2(t, g->now_ns + 1);
}

uint64_t group_leadership_deadline(const struct group *g) {
    uint64_t t = MAX2(MIN2(beat_at(g), close_at(g)), g->now_ns + 1);
    return MIN2(t, MIN2(successors_deadline(g), resign_deadline(g)));
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
