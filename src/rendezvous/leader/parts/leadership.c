#include "rendezvous/leader/parts/leadership.h"

#include <stdio.h>
#include <string.h>

/* How much later the last successor acts than the first (muster-rendezvous(7), "Which node claims,
 * and when"). */
#define LAST_SUCCESSOR_NS (2 * 3 * NS_PER_S)
/* All nodes of a job are often asked to stop at once: the others report it by then, too. */
#define HAND_OVER_NS (100 * NS_PER_MS)
/* How long the agent waits for the arbiter's answer before it leaves without it. */
#define ARBITER_PATIENCE_NS (2 * NS_PER_S)

void leadership_init(struct leadership *l, const struct group_config *c) {
    *l = (struct leadership){.config = c, .epoch = c->epoch, .idle = c->idle};
}

static uint64_t left_of(uint64_t term_ns, uint64_t now_ns, uint64_t since_ns) {
    uint64_t age = now_ns - since_ns;
    return age >= term_ns ? 0 : term_ns - age;
}

static uint64_t confirmed_for(const struct leadership *l, uint64_t now_ns) {
    switch (l->config->leadership) {
    case LEADERSHIP_NONE: return l->config->rdzv.lease_ns;
    case LEADERSHIP_LEADER_FILE:
        return l->touched_ns == 0 ? 0 : left_of(l->config->rdzv.lease_ns, now_ns, l->touched_ns);
    case LEADERSHIP_ARBITER:
        return l->read_ns == 0 ? 0 : left_of(l->config->rdzv.arbiter_lease_ns, now_ns, l->read_ns);
    }
    assert_not_reached();
}

/* No lease of this leader outlives the authority on which it depends. */
uint64_t leadership_validity(const struct leadership *l, uint64_t successor_ns, uint64_t now_ns) {
    uint64_t v = MIN2(l->config->rdzv.lease_ns, confirmed_for(l, now_ns));
    return successor_ns == TIME_NEVER
               ? v
               : MIN2(v, left_of(l->config->rdzv.lease_ns, now_ns, successor_ns));
}

bool leadership_is_confirmed(const struct leadership *l, uint64_t now_ns) {
    return confirmed_for(l, now_ns) > 0;
}

uint64_t leadership_patient_until(const struct leadership *l, size_t n_fell_silent,
                                  bool formed_here) {
    if (l->config->leadership != LEADERSHIP_ARBITER)
        return 0;
    if (n_fell_silent < l->config->rdzv.min_nodes)
        return formed_here ? 0 : l->begun_ns + l->config->rdzv.lease_ns + l->config->rdzv.margin_ns;
    uint64_t since = l->paused_ns != 0 ? l->paused_ns : l->begun_ns + l->config->rdzv.lease_ns;
    return since + 2 * (l->config->rdzv.lease_ns + l->config->rdzv.margin_ns) + LAST_SUCCESSOR_NS;
}

enum beat_change leadership_pause(struct leadership *l, bool reaches_too_few, uint64_t now_ns) {
    if (reaches_too_few == (l->paused_ns != 0))
        return BEAT_UNCHANGED;
    if (reaches_too_few) {
        l->paused_ns = now_ns;
        return BEAT_PAUSED;
    }
    bool claimable = now_ns - l->paused_ns >= l->config->rdzv.lease_ns / 2;
    l->paused_ns = 0;
    return claimable ? BEAT_RESUMED_LATE : BEAT_RESUMED;
}

uint64_t leadership_beat_at(const struct leadership *l, bool recorded) {
    bool beats = l->config->leadership != LEADERSHIP_NONE && !recorded && !l->looking;
    return beats ? l->beat_ns : TIME_NEVER;
}

uint64_t leadership_close_at(const struct leadership *l) {
    bool can = l->config->leadership == LEADERSHIP_ARBITER && !l->closing && !l->claiming;
    return can ? l->claim_ns : TIME_NEVER;
}

bool leadership_may_claim(const struct leadership *l, uint64_t now_ns) {
    return l->config->leadership == LEADERSHIP_ARBITER && !l->claiming && now_ns >= l->claim_ns;
}

/* ---- answers ---- */

static bool is_ours(const struct group_config *c, const struct arbiter_record *r) {
    return r->leader.incarnation == c->leader_incarnation;
}

/* Whether this is the leader's own claim, whose answer has not arrived yet. */
static bool is_own_next(const struct leadership *l, const struct arbiter_record *r) {
    return r->epoch == l->epoch + 1 && !r->closed && !r->vacant && is_ours(l->config, r);
}

static enum leadership_change depose(uint32_t epoch, struct leadership_news *ret) {
    ret->epoch = epoch;
    return LEADERSHIP_DEPOSED;
}

static enum leadership_change adopt(struct leadership *l, const struct arbiter_record *own) {
    l->epoch = own->epoch;
    l->idle = own->idle;
    l->claiming = false;
    return LEADERSHIP_NEW_EPOCH;
}

static enum leadership_change on_record(struct leadership *l, const struct arbiter_answer *a,
                                        enum outcome_record outcome, struct leadership_news *ret) {
    const struct arbiter_record *r = &a->record;
    if ((r->closed || (r->vacant && is_ours(l->config, r))) && outcome != OUTCOME_OPEN)
        return LEADERSHIP_UNCHANGED; /* by us: the answer to our CLOSE or VACATE follows */
    if (r->closed)
        return depose(r->epoch, ret);
    if (r->epoch == l->epoch + 1 && is_ours(l->config, r))
        /* the answer to the claim was lost; repeated, the claim counts */
        return LEADERSHIP_CLAIM_AGAIN;
    if (r->epoch > l->epoch)
        return depose(r->epoch, ret);
    if (r->epoch == l->epoch && is_ours(l->config, r))
        l->read_ns = MAX2(l->read_ns, a->started_ns);
    return LEADERSHIP_CONFIRMED;
}

static enum leadership_change on_claimed(struct leadership *l, const struct arbiter_answer *a,
                                         uint64_t now_ns, struct leadership_news *ret) {
    l->claiming = false;
    if (a->result == ARBITER_OK && a->request.epoch == l->epoch + 1)
        return adopt(l, &a->record);
    if (a->result == ARBITER_LOST && a->request.epoch > l->epoch)
        return depose(a->record.epoch, ret);
    l->claim_ns = now_ns + l->config->rdzv.heartbeat_ns;
    return LEADERSHIP_UNCHANGED;
}

static enum leadership_change on_closed(struct leadership *l, const struct arbiter_answer *a,
                                        enum outcome_record outcome, uint64_t now_ns,
                                        struct leadership_news *ret) {
    l->closing = false;
    if (outcome != OUTCOME_WAITS)
        return LEADERSHIP_UNCHANGED; /* given up: a node that still waits reads the outcome there */
    if (a->result == ARBITER_OK)
        return LEADERSHIP_OUTCOME_RECORDED;
    if (a->result == ARBITER_LOST && is_own_next(l, &a->record))
        return adopt(l, &a->record); /* and the close then uses this epoch */
    if (a->result == ARBITER_LOST)
        return depose(a->record.epoch, ret);
    l->claim_ns = now_ns + l->config->rdzv.heartbeat_ns / 4;
    return LEADERSHIP_UNCHANGED;
}

/* The arbiter no longer has data of this job: no agent can lead it, and no other place has the
 * outcome. A directory may come back, so this must last for a while. */
static bool is_ruined_now(struct leadership *l, const struct arbiter_answer *a, uint64_t now_ns,
                          struct leadership_news *ret) {
    uint64_t wait = arbiter_ruin_ns(a, l->config->rdzv.lease_ns);
    if (l->ruined_ns == 0) {
        l->ruined_ns = now_ns;
        (void)snprintf(ret->notice, sizeof ret->notice, "%.400s; the job ends if this persists",
                       a->text);
    }
    /* compare with the time of the request: an answer may be older than the return of the data */
    bool lasts = wait == 0 || a->started_ns >= l->ruined_ns + wait;
    if (l->ruined || !lasts)
        return false;
    l->ruined = true;
    l->ruin_grace_ns = wait;
    return true;
}

static void report_unreachable(struct leadership *l, const struct arbiter_answer *a, bool looks,
                               struct leadership_news *ret) {
    if (looks && !l->unreachable_reported) {
        l->unreachable_reported = true;
        (void)snprintf(ret->notice, sizeof ret->notice,
                       "%.400s; the job continues for up to %.0f s without it", a->text,
                       (double)l->config->rdzv.arbiter_lease_ns / 1e9);
    } else if (!looks && !l->unreachable_reported && !l->refusal_reported) {
        /* For example, a full disk refuses claims, but can still be read. */
        l->refusal_reported = true;
        (void)snprintf(ret->notice, sizeof ret->notice, "%.400s; it is tried again", a->text);
    }
}

void leadership_answer(struct leadership *l, const struct arbiter_answer *a,
                       enum outcome_record outcome, uint64_t now_ns, struct leadership_news *ret) {
    *ret = (struct leadership_news){.change = LEADERSHIP_UNCHANGED};
    bool looks = a->request.kind == ARBITER_READ || a->request.kind == ARBITER_BEAT;
    if (looks)
        l->looking = false;
    if (a->result == ARBITER_UNREACHABLE) {
        report_unreachable(l, a, looks, ret);
    } else {
        l->unreachable_reported = false;
        l->refusal_reported = l->refusal_reported && looks;
    }
    if (a->result == ARBITER_OK || a->result == ARBITER_LOST)
        l->ruined_ns = 0;
    switch (a->request.kind) {
    case ARBITER_READ:
    case ARBITER_BEAT:
        if (a->result == ARBITER_OK)
            ret->change = on_record(l, a, outcome, ret);
        break;
    case ARBITER_CLAIM: ret->change = on_claimed(l, a, now_ns, ret); break;
    case ARBITER_CLOSE: ret->change = on_closed(l, a, outcome, now_ns, ret); break;
    case ARBITER_VACATE:
        ret->change =
            l->vacate_ns != 0 ? LEADERSHIP_RESIGNED : on_closed(l, a, outcome, now_ns, ret);
        break;
    case ARBITER_KIND_COUNT: assert_not_reached();
    }
    if (a->result == ARBITER_RUINED && is_ruined_now(l, a, now_ns, ret) &&
        ret->change != LEADERSHIP_RESIGNED)
        ret->change = LEADERSHIP_RUINED;
}

/* ---- resigning ---- */

/* The workers of other nodes get their grace first. */
static uint64_t resign_limit(const struct leadership *l) {
    return l->resign_ns + l->config->rdzv.close_timeout_ns + l->config->grace_ns;
}

static uint64_t asked_ns(const struct leadership *l) {
    return MAX2(MAX2(l->vacate_ns, l->close_ns), l->resign_ns);
}

enum resignation leadership_resign(const struct leadership *l, const struct resign_view *view,
                                   uint64_t now_ns) {
    if (l->resign_ns == 0)
        return RESIGN_WAIT;
    if (now_ns >= resign_limit(l) || view->outcome == OUTCOME_DELIVERED)
        return RESIGN_NOW;
    if (view->outcome == OUTCOME_RECORDED)
        /* nodes that don't learn it from this leader find a close at the arbiter, but a vacant
         * epoch tells them nothing */
        return view->interrupted ? RESIGN_WAIT : RESIGN_NOW;
    if (l->vacate_ns != 0 || view->outcome != OUTCOME_OPEN)
        /* the answer will come */
        return now_ns >= asked_ns(l) + ARBITER_PATIENCE_NS ? RESIGN_NOW : RESIGN_WAIT;
    if (!view->successor_stays && view->nothing_runs)
        return RESIGN_VACATE;
    if (!view->successor_stays)
        /* It only waits for earlier epochs, and that can take a minute: so will the next agent. */
        return !view->formed_here && now_ns + ARBITER_PATIENCE_NS < l->config->not_before_ns
                   ? RESIGN_NOW
                   : RESIGN_WAIT;
    if (now_ns < l->resign_ns + HAND_OVER_NS)
        return RESIGN_WAIT;
    if (!view->too_few_stay)
        return RESIGN_NOW;
    return view->nothing_runs ? RESIGN_END : RESIGN_WAIT;
}

uint64_t leadership_resign_deadline(const struct leadership *l, enum outcome_record outcome,
                                    uint64_t now_ns) {
    if (l->resign_ns == 0)
        return TIME_NEVER;
    uint64_t t = resign_limit(l);
    if (now_ns < l->resign_ns + HAND_OVER_NS)
        t = MIN2(t, l->resign_ns + HAND_OVER_NS);
    if (now_ns < l->config->not_before_ns)
        t = MIN2(t, l->config->not_before_ns);
    if (l->vacate_ns != 0 || outcome == OUTCOME_WAITS)
        t = MIN2(t, asked_ns(l) + ARBITER_PATIENCE_NS);
    return MAX2(t, now_ns + 1);
}

/* ---- the named successors ---- */

static bool is_first(const struct succession_plan *p, uint64_t incarnation) {
    return p->named.n > 0 && p->named.list[0].incarnation == incarnation;
}

void plan_adopt(struct succession_plan *p, const struct successors *s, uint64_t now_ns) {
    enum successor_state states[RDZV_SUCCESSORS_MAX];
    for (uint32_t i = 0; i < s->n; i++) {
        int before = successors_index(&p->named, s->list[i].incarnation);
        states[i] = before < 0 ? SUCCESSOR_THERE : p->states[before];
    }
    /* The naming counts like an echo at this time, because a new successor can't have echoed
     * anything before. */
    if (s->n > 0 && (s->epoch != p->named.epoch || !is_first(p, s->list[0].incarnation)))
        p->clock_ns = now_ns;
    p->named = *s;
    memcpy(p->states, states, sizeof states);
}

void plan_lose(struct succession_plan *p, uint64_t incarnation, bool surely) {
    for (uint32_t i = 0; i < p->named.n; i++)
        if (p->named.list[i].incarnation == incarnation)
            p->states[i] = surely ? SUCCESSOR_GONE : SUCCESSOR_DOUBTFUL;
}

bool plan_echo(struct succession_plan *p, uint64_t incarnation, const struct echo *echo,
               uint64_t now_ns) {
    if (!is_first(p, incarnation) || echo->epoch != p->named.epoch ||
        echo->leader_clock_ns > now_ns)
        return false;
    p->clock_ns = MAX2(p->clock_ns, echo->leader_clock_ns);
    return true;
}

static uint64_t silent_at(const struct succession_plan *p) {
    return MAX2(p->clock_ns + p->config->rdzv.lease_ns / 2, p->check_ns);
}

enum plan_due plan_check(struct succession_plan *p, uint64_t now_ns) {
    if (p->states[0] == SUCCESSOR_GONE)
        return PLAN_NAME_ANEW;
    if (now_ns < silent_at(p))
        return PLAN_NOTHING;
    p->check_ns = now_ns + p->config->rdzv.heartbeat_ns / 4;
    return PLAN_ASK_OTHERS;
}

uint64_t plan_deadline(const struct succession_plan *p, uint64_t now_ns) {
    return MAX2(silent_at(p), now_ns + 1);
}
