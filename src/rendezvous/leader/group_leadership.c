/* What a leadership hangs on, and so every lease: the arbiter that names this leader's epoch as the
 * latest, the leader file on its host, the first successor's echo (muster-rendezvous(7), "Leases").
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* The last successor acts so much later than the first (muster-rendezvous(7), "Who may claim"). */
#define LAST_SUCCESSOR_NS (2 * 3 * NS_PER_S)

/* ---- leases ---- */

static uint64_t left_of(uint64_t term_ns, uint64_t now_ns, uint64_t since_ns) {
    uint64_t age = now_ns - since_ns;
    return age >= term_ns ? 0 : term_ns - age;
}

static bool successor_counts(const struct group *g) {
    return g->config.leadership == LEADERSHIP_ARBITER && g->successors.n > 0 && g->form_told &&
           g->state != GROUP_GATHERING;
}

/* Nothing that this leader grants outlives what it hangs on. */
static uint64_t validity(const struct group *g) {
    const struct group_config *c = &g->config;
    uint64_t v = c->lease_ns;
    if (c->leadership == LEADERSHIP_ARBITER)
        v = g->read_ns == 0 ? 0 : MIN2(v, left_of(c->arbiter_lease_ns, g->now_ns, g->read_ns));
    else if (c->leadership == LEADERSHIP_LEADER_FILE)
        v = g->touched_ns == 0 ? 0 : MIN2(v, left_of(c->lease_ns, g->now_ns, g->touched_ns));
    if (successor_counts(g))
        v = MIN2(v, left_of(c->lease_ns, g->now_ns, g->successor_clock_ns));
    return v;
}

bool group_is_confirmed(const struct group *g) {
    const struct group_config *c = &g->config;
    if (c->leadership == LEADERSHIP_ARBITER)
        return g->read_ns != 0 && left_of(c->arbiter_lease_ns, g->now_ns, g->read_ns) > 0;
    return c->leadership != LEADERSHIP_LEADER_FILE ||
           (g->touched_ns != 0 && left_of(c->lease_ns, g->now_ns, g->touched_ns) > 0);
}

void group_send_lease(struct group *g, struct node *n) {
    bool named = n->is_member && g->form_told && g->state != GROUP_GATHERING;
    struct group_effect *e = group_emit(g, GROUP_EFFECT_LEASE, n->info.incarnation);
    e->lease = (struct lease){
        .epoch = g->config.epoch,
        .prepared = named ? g->generation : (struct generation){0, 0},
        .echo_ns = n->clock.asked_ns,
        .validity_ns = validity(g),
        .clock_ns = g->now_ns,
    };
    bool lease_pending = e->lease.validity_ns == 0 && n->is_member;
    g->n_lease_pending += lease_pending && !n->lease_pending;
    g->n_lease_pending -= !lease_pending && n->lease_pending;
    n->lease_pending = lease_pending;
}

void group_feed_lease_pending(struct group *g) {
    if (g->n_lease_pending == 0 || validity(g) == 0)
        return;
    for (size_t i = 0; i < g->n_members; i++)
        if (g->members[i]->lease_pending && g->members[i]->connected)
            group_send_lease(g, g->members[i]);
}

/* ---- who is heard ---- */

bool group_hears(const struct group *g, const struct node *n) {
    const struct group_config *c = &g->config;
    uint64_t term = MIN2(MAX2(c->lease_ns / 2, 5 * c->heartbeat_ns / 2), c->lease_ns);
    uint64_t last = MAX2(n->echo_ns, n->joined_ns);
    return last != 0 && g->now_ns - last < term;
}

/* Fewer than min nodes, or less than half of the last group: others may have to go on. */
static bool hears_too_few(const struct group *g) {
    /* It has never had a group: there is nothing that others could go on with. Or it is new, and
     * those of another's group are on their way. */
    if (g->n_order == 0 || (!g->formed_here && g->now_ns - g->begun_ns < g->config.lease_ns))
        return false;
    size_t heard = 0, of_last = 0;
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all) {
        bool hears = group_hears(g, n);
        heard += hears;
        of_last += hears && n->in_order;
    }
    return heard < g->config.min_nodes || 2 * of_last < g->n_order - g->n_last_lost;
}

uint64_t group_patient_until(const struct group *g) {
    const struct group_config *c = &g->config;
    if (c->leadership != LEADERSHIP_ARBITER)
        return 0;
    if (g->n_fell_silent < c->min_nodes)
        return g->formed_here ? 0 : g->begun_ns + c->lease_ns + c->margin_ns;
    uint64_t since = g->paused_ns != 0 ? g->paused_ns : g->begun_ns + c->lease_ns;
    return since + 2 * (c->lease_ns + c->margin_ns) + LAST_SUCCESSOR_NS;
}

/* The beat rests, so that a successor which hears more may take over. A group is formed again only
 * when nobody has done so for long enough. */
static void look_around(struct group *g) {
    uint64_t patience = g->config.lease_ns + g->config.margin_ns;
    bool few = hears_too_few(g);
    if (few && g->paused_ns == 0) {
        g->paused_ns = g->now_ns;
        g->not_before_ns = MAX2(g->not_before_ns, g->now_ns + patience);
        (void)group_add_note(g, NOTE_BEAT_PAUSED, NULL, "too few nodes are heard");
    } else if (!few && g->paused_ns != 0) {
        bool claimable = g->now_ns - g->paused_ns >= g->config.lease_ns / 2;
        g->not_before_ns = claimable ? MAX2(g->not_before_ns, g->now_ns + patience)
                                     : MAX2(g->config.not_before_ns, g->now_ns);
        g->paused_ns = 0;
    }
}

/* ---- asking the arbiter ---- */

bool group_ask(struct group *g, enum arbiter_kind kind, uint32_t epoch) {
    if (g->n_requests == GROUP_REQUESTS_MAX)
        return false;
    struct arbiter_request *r = &g->requests[g->n_requests];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = g->config.self};
    if (kind == ARBITER_CLOSE) {
        r->outcome = g->outcome;
        memcpy(r->reason, g->reason, sizeof r->reason);
    }
    group_emit(g, GROUP_EFFECT_ARBITER, 0)->n_nodes = g->n_requests++;
    return true;
}

void group_depose(struct group *g, uint32_t epoch) {
    char text[128];
    (void)snprintf(text, sizeof text, "another node leads this job now (epoch %" PRIu32 ")", epoch);
    if (epoch > g->config.epoch)
        group_incident(g, text);
    g->deposed = true;
    g->status_dirty = false;
    group_emit(g, GROUP_EFFECT_DEPOSED, 0)->epoch = epoch;
}

void group_adopt_epoch(struct group *g, const struct arbiter_record *own) {
    g->config.epoch = own->epoch;
    g->config.idle = own->idle;
    g->claiming = false;
    if (g->state != GROUP_FORMING && g->state != GROUP_RUNNING && g->state != GROUP_STOPPING) {
        group_forget_successors(g);
        return;
    }
    group_name_successors(g);
    /* What they hold may be about to end, with a silent successor's last echo. */
    for (size_t i = 0; i < g->n_members; i++)
        if (g->members[i]->connected && g->members[i]->clock.asked_ns != 0)
            group_send_lease(g, g->members[i]);
}

void group_claim_next(struct group *g, const char *why) {
    if (g->claiming || g->now_ns < g->claim_ns || g->config.leadership != LEADERSHIP_ARBITER)
        return;
    if (!group_ask(g, ARBITER_CLAIM, g->config.epoch + 1))
        return;
    g->claiming = true;
    if (why != NULL)
        (void)group_add_note(g, NOTE_SUCCESSORS, NULL, why);
}

/* Whoever finds an idle epoch's leader gone may lead at once. So the first group is formed when
 * nobody can do that any more: in the next epoch, which the arbiter gives to one alone. */
bool group_has_epoch_to_form(struct group *g) {
    if (g->config.idle)
        group_claim_next(g, NULL);
    return !g->config.idle;
}

static void say_unreachable(struct group *g, const char *text) {
    if (g->arbiter_silent)
        return;
    g->arbiter_silent = true;
    char line[RDZV_REASON_MAX];
    (void)snprintf(line, sizeof line, "%.400s; the job goes on for up to %.0f s without it", text,
                   (double)g->config.arbiter_lease_ns / 1e9);
    group_incident(g, line);
}

/* As a full disk does, which can be read all the same. */
static void say_refused(struct group *g, const char *text) {
    if (g->arbiter_silent || g->claims_refused)
        return;
    g->claims_refused = true;
    char line[RDZV_REASON_MAX];
    (void)snprintf(line, sizeof line, "%.400s; it is tried again", text);
    group_incident(g, line);
}

/* What is so at the arbiter. True: this leader is the latest. */
static bool on_record(struct group *g, const struct arbiter_answer *a) {
    const struct arbiter_record *r = &a->record;
    if (r->closed && g->state == GROUP_CLOSED)
        return false; /* by us: the answer to that says so */
    if (r->closed) {
        group_depose(g, r->epoch);
        return false;
    }
    bool ours = r->leader.incarnation == g->config.leader_incarnation;
    if (r->epoch == g->config.epoch + 1 && ours) {
        group_claim_next(g, "a claim whose answer was lost"); /* asked again, it counts */
    } else if (r->epoch > g->config.epoch) {
        group_depose(g, r->epoch);
        return false;
    }
    if (r->epoch == g->config.epoch && ours)
        g->read_ns = MAX2(g->read_ns, a->started_ns);
    return true;
}

/* What this leader has claimed itself, and not heard of yet. */
static bool is_own_next(const struct group *g, const struct arbiter_record *r) {
    return r->epoch == g->config.epoch + 1 && !r->closed && !r->vacant &&
           r->leader.incarnation == g->config.leader_incarnation;
}

static void on_closed_there(struct group *g, const struct arbiter_answer *a) {
    g->close_asked = false;
    if (g->state != GROUP_CLOSED || g->close_known || g->done)
        return; /* it was given up: whoever still waits reads the outcome there */
    if (a->result == ARBITER_OK)
        group_close_told(g);
    else if (a->result == ARBITER_LOST && is_own_next(g, &a->record))
        group_adopt_epoch(g, &a->record); /* which is closed then */
    else if (a->result == ARBITER_LOST)
        group_depose(g, a->record.epoch);
    else
        g->claim_ns = g->now_ns + g->config.heartbeat_ns / 4;
}

/* The arbiter has no data of this job any more: nobody can lead it, and nobody else can say how it
 * ended. A directory may be on its way back, so it has to stay so for a while. */
static void on_ruin(struct group *g, const struct arbiter_answer *a) {
    uint64_t wait = arbiter_ruin_ns(a, g->config.lease_ns);
    char text[RDZV_REASON_MAX];
    if (g->ruined_ns == 0) {
        g->ruined_ns = g->now_ns;
        (void)snprintf(text, sizeof text, "%.400s; the job ends if it stays so", a->text);
        group_incident(g, text);
    }
    /* by when it was asked: an answer may be older than the data's return */
    bool lasts = wait == 0 || a->started_ns >= g->ruined_ns + wait;
    if (g->ruined || g->deposed || !lasts)
        return;
    g->ruined = true;
    g->ruin_grace_ns = wait;
    if (g->state != GROUP_CLOSED) {
        cause_forget(&g->cause);
        (void)snprintf(text, sizeof text, ARBITER_RUIN_TEXT, a->text);
        group_close_failed(g, text);
    } else if (!g->close_known) {
        group_close_told(g);
    }
}

static void hear_of_arbiter(struct group *g, const struct arbiter_answer *a) {
    bool looks = a->request.kind == ARBITER_READ || a->request.kind == ARBITER_BEAT;
    if (a->result == ARBITER_UNREACHABLE) {
        (looks ? say_unreachable : say_refused)(g, a->text);
    } else {
        g->arbiter_silent = false;
        g->claims_refused = g->claims_refused && looks;
    }
    if (a->result == ARBITER_OK || a->result == ARBITER_LOST)
        g->ruined_ns = 0;
}

void group_on_arbiter(struct group *g, const struct arbiter_answer *a) {
    if (a->request.kind == ARBITER_READ || a->request.kind == ARBITER_BEAT)
        g->asking = false;
    hear_of_arbiter(g, a);
    switch (a->request.kind) {
    case ARBITER_READ:
    case ARBITER_BEAT:
        if (a->result == ARBITER_OK && on_record(g, a))
            group_feed_lease_pending(g);
        break;
    case ARBITER_CLAIM:
        g->claiming = false;
        if (a->result == ARBITER_OK && a->request.epoch == g->config.epoch + 1) {
            group_adopt_epoch(g, &a->record);
            g->read_ns = MAX2(g->read_ns, a->started_ns);
            group_feed_lease_pending(g);
        } else if (a->result == ARBITER_LOST && a->request.epoch > g->config.epoch) {
            group_depose(g, a->record.epoch);
        } else {
            g->claim_ns = g->now_ns + g->config.heartbeat_ns;
        }
        break;
    case ARBITER_CLOSE: on_closed_there(g, a); break;
    case ARBITER_VACATE: group_resigned(g); break;
    case ARBITER_KIND_COUNT: assert_not_reached();
    }
    if (a->result == ARBITER_RUINED)
        on_ruin(g, a);
}

/* Somebody spoke of it: the arbiter knows. */
void group_on_higher_epoch(struct group *g, uint32_t epoch) {
    if (g->config.leadership == LEADERSHIP_ARBITER && epoch > g->config.epoch && !g->claiming &&
        !g->asking)
        g->asking = group_ask(g, ARBITER_READ, g->config.epoch);
}

/* ---- the leader file ---- */

void group_on_touched(struct group *g, uint64_t touched_ns) {
    g->touched_ns = MAX2(g->touched_ns, touched_ns);
    if (g->state == GROUP_CLOSED && g->close_asked && !g->close_known)
        group_close_told(g);
    group_feed_lease_pending(g);
}

/* ---- time ---- */

void group_leadership_begin(struct group *g) {
    if (g->beat_ns != 0)
        return;
    g->beat_ns = g->begun_ns = g->now_ns;
    group_add_note(g, NOTE_LEADS, NULL, NULL)->generation = (struct generation){g->config.epoch, 0};
}

static bool needs_beat(const struct group *g) {
    return g->config.leadership != LEADERSHIP_NONE && !(g->state == GROUP_CLOSED && g->close_known);
}

void group_leadership_time(struct group *g) {
    if (needs_beat(g) && g->now_ns >= g->beat_ns && !g->asking) {
        g->beat_ns = g->now_ns + g->config.heartbeat_ns;
        if (g->config.leadership == LEADERSHIP_LEADER_FILE) {
            group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = OUTCOME_NONE;
        } else {
            look_around(g);
            g->asking =
                group_ask(g, g->paused_ns != 0 ? ARBITER_READ : ARBITER_BEAT, g->config.epoch);
        }
    }
    bool unsaid = g->state == GROUP_CLOSED && !g->close_known && !g->done;
    bool may_say = !g->close_asked && !g->claiming && g->now_ns >= g->claim_ns;
    if (unsaid && may_say && g->config.leadership == LEADERSHIP_ARBITER)
        g->close_asked = group_ask(g, ARBITER_CLOSE, g->config.epoch);
}

uint64_t group_leadership_deadline(const struct group *g) {
    uint64_t t = TIME_NEVER;
    if (needs_beat(g) && !g->asking)
        t = MAX2(g->beat_ns, g->now_ns + 1);
    bool unsaid = g->state == GROUP_CLOSED && !g->close_known && !g->done;
    if (unsaid && g->config.leadership == LEADERSHIP_ARBITER && !g->close_asked && !g->claiming)
        t = MIN2(t, MAX2(g->claim_ns, g->now_ns + 1));
    return t;
}

/* ---- the end ---- */

void group_leadership_close(struct group *g) {
    switch (g->config.leadership) {
    case LEADERSHIP_NONE: group_close_told(g); break;
    case LEADERSHIP_LEADER_FILE:
        g->close_asked = true;
        group_emit(g, GROUP_EFFECT_TOUCH, 0)->outcome = g->outcome;
        break;
    case LEADERSHIP_ARBITER:
        if (g->ruined) {
            group_close_told(g);
            break;
        }
        g->close_deadline_ns += g->config.arbiter_lease_ns;
        g->claim_ns = g->now_ns;
        /* of the epoch that this leader has when its claim is answered */
        g->close_asked = !g->claiming && group_ask(g, ARBITER_CLOSE, g->config.epoch);
        break;
    }
}
