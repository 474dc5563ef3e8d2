#include "rendezvous/member/election.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* How much later each successor acts than the previous one. */
#define SUCCESSOR_STEP_NS (3 * NS_PER_S)
#define PEER_PROBE_NS (100 * NS_PER_MS)
#define CLAIM_RETRY_NS (200 * NS_PER_MS)
#define ARBITER_MARGIN_PART 50

#define SEEK_WAIT_MIN_NS (20 * NS_PER_MS)
#define SEEK_WAIT_MAX_NS (500 * NS_PER_MS)
#define REDIRECTS_MAX 3 /* redirections that are followed at once, before a pause */

#define BIT(s) (1u << (s))
static const struct {
    const char *name;
    unsigned next;
} elections[ELECTION_COUNT] = {
    /*                 name         can be followed by */
    [ELECTION_FIXED] = {"fixed", 0},
    [ELECTION_ASKING] = {"asking", BIT(ELECTION_FOLLOWING) | BIT(ELECTION_CLAIMING)},
    [ELECTION_FOLLOWING] = {"following", BIT(ELECTION_SEEKING) | BIT(ELECTION_CLAIMING)},
    [ELECTION_SEEKING] = {"seeking", BIT(ELECTION_FOLLOWING) | BIT(ELECTION_CLAIMING)},
    [ELECTION_CLAIMING] = {"claiming",
                           BIT(ELECTION_LEADING) | BIT(ELECTION_FOLLOWING) | BIT(ELECTION_SEEKING)},
    [ELECTION_LEADING] = {"leading", BIT(ELECTION_SEEKING)},
};

const char *member_election_name(enum member_election s) { return elections[s].name; }

bool member_election_may_move(enum member_election from, enum member_election to) {
    return (elections[from].next & BIT(to)) != 0;
}

static void move(struct election *e, enum member_election to) {
    if (e->state == to)
        return;
    assert(member_election_may_move(e->state, to));
    e->state = to;
}

static uint64_t patience(const struct member_config *c) {
    return c->rdzv.lease_ns + c->rdzv.margin_ns;
}

static void set_waiting(struct election *e, const char *fmt, ...) _printf_(2, 3);
static void set_waiting(struct election *e, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->waiting, sizeof e->waiting, fmt, ap);
    va_end(ap);
}

static struct arbiter_request *ask(struct election *e, const struct step *s, enum arbiter_kind kind,
                                   uint32_t epoch) {
    assert(e->n_requests < ELECTION_REQUESTS_MAX);
    struct arbiter_request *r = &e->requests[e->n_requests++];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = s->config->self};
    step_emit(s, MEMBER_EFFECT_ARBITER)->request = r;
    return r;
}

static bool is_successor(const struct election *e) {
    return e->successor_index >= 0 && e->has_handover;
}

static void hang_up(struct election *e, const struct step *s) {
    link_cut(s->link);
    s->link->probe_ns = TIME_NEVER;
    e->again_ns = TIME_NEVER;
    e->target.incarnation = 0;
    (void)step_emit(s, MEMBER_EFFECT_HANG_UP);
}

static void connect_to(struct election *e, const struct step *s, const struct rdzv_peer *peer,
                       bool soon) {
    link_cut(s->link);
    e->again_ns = TIME_NEVER;
    e->target = *peer;
    e->target_ns = s->now_ns;
    struct member_effect *connect = step_emit(s, MEMBER_EFFECT_CONNECT);
    connect->peer = *peer;
    connect->soon = soon;
}

static void follow(struct election *e, const struct step *s, const struct rdzv_peer *peer,
                   uint32_t epoch) {
    bool same = e->state == ELECTION_FOLLOWING && s->link->epoch == epoch &&
                e->target.incarnation == peer->incarnation;
    link_raise_epoch(s->link, epoch);
    e->leader_peer = *peer;
    if (same)
        return;
    e->leader_gone = false;
    move(e, ELECTION_FOLLOWING);
    connect_to(e, s, peer, e->redirects < REDIRECTS_MAX);
}

/* Nothing runs: no agent has led before, or the last record shows it. An agent that wins the next
 * epoch takes from its leader the epoch in which it would have formed a group. */
static bool claims_after_nothing(const struct election *e) {
    return e->claim_epoch == 1 || (e->quiet_epoch != 0 && e->claim_epoch == e->quiet_epoch + 1);
}

static void ask_for(struct election *e, const struct step *s) {
    ask(e, s, ARBITER_CLAIM, e->claim_epoch)->idle = claims_after_nothing(e);
    e->claim_asked = true;
    e->claim_retry_ns = s->now_ns + CLAIM_RETRY_NS;
}

static void claim(struct election *e, const struct step *s, uint32_t epoch) {
    if (e->state == ELECTION_CLAIMING)
        return;
    hang_up(e, s);
    move(e, ELECTION_CLAIMING);
    e->claim_epoch = epoch;
    e->claim_ns = s->now_ns;
    ask_for(e, s);
}

/* ---- the record ---- */

static void keep_record(struct election *e, const struct step *s, const struct arbiter_answer *a) {
    const struct arbiter_record *r = &a->record;
    bool same = e->record_ns != 0 && r->epoch == e->record.epoch;
    if (same && r->beat != e->record.beat && e->record_ns >= e->apart_ns)
        e->moved_ns = s->now_ns;
    if (!same || r->beat != e->record.beat)
        e->beat_ns = s->now_ns;
    e->record = *r;
    e->record_ns = a->started_ns;
    if (r->vacant || r->idle)
        e->quiet_epoch = MAX2(e->quiet_epoch, r->epoch);
}

/* A record that was requested then or later can show that its leader has ended without a successor.
 * In an idle epoch no successors were named, and nothing runs that could be lost. */
static uint64_t over_at(const struct election *e, const struct step *s) {
    const struct arbiter_record *r = &e->record;
    if (!r->idle)
        return e->beat_ns + e->patience_ns;
    bool gone = e->leader_gone && r->leader.incarnation == e->leader_peer.incarnation;
    return (gone ? e->lost_ns : e->beat_ns + s->config->rdzv.lease_ns) + e->spread_ns;
}

/* When it can decide, at the latest. */
static void look_in_time(struct election *e, const struct step *s) {
    if (e->record.idle && e->record_ns < over_at(e, s))
        e->read_ns = MIN2(e->read_ns, MAX2(over_at(e, s), s->now_ns));
}

/* The leader of the record has been unreachable for a while: says whether it is alive. Without
 * another leader, the reason why this node's own claim fails is more useful. */
static void describe_unreachable(struct election *e, const struct step *s) {
    const struct arbiter_record *r = &e->record;
    bool other = r->epoch > 0 && r->leader.incarnation != s->config->incarnation;
    if (!other || e->apart_ns == TIME_NEVER ||
        s->now_ns < e->apart_ns + 2 * s->config->rdzv.heartbeat_ns)
        return;
    /* A beat that changed before the leader was lost shows nothing about it now. */
    bool stands = e->record_ns >= e->beat_ns + 3 * s->config->rdzv.heartbeat_ns;
    const char *what = "does not answer";
    if (stands)
        what = "sends no message";
    else if (e->moved_ns >= e->apart_ns)
        what = "is alive, but not reachable from here";
    bool refused = !stands && e->refusal[0] != '\0';
    set_waiting(e, "the leader at %.100s, port %u, %s%s%s", r->leader.addr, r->leader.port, what,
                refused ? ": " : "", refused ? e->refusal : "");
}

/* The arbiter's data is gone: this node ends if that does not change and no leader appears. */
static enum election_outcome on_ruin(struct election *e, const struct step *s,
                                     const struct arbiter_answer *a) {
    uint64_t wait = arbiter_ruin_ns(a, s->config->rdzv.lease_ns);
    if (s->link->connected || e->state == ELECTION_LEADING || s->ending)
        return ELECTION_CONTINUES; /* the leader reports it */
    if (e->ruined_ns == 0)
        e->ruined_ns = s->now_ns;
    set_waiting(e, "%.500s", a->text);
    if (wait > 0 && a->started_ns < e->ruined_ns + wait)
        return ELECTION_CONTINUES; /* compare with the time of the request, as the leader does */
    e->grace_ns = wait;
    (void)snprintf(e->failure, sizeof e->failure, ARBITER_RUIN_TEXT, a->text);
    return ELECTION_FAILED;
}

static enum election_outcome on_record(struct election *e, const struct step *s,
                                       const struct arbiter_answer *a) {
    e->asking = false;
    if (a->result == ARBITER_RUINED)
        return on_ruin(e, s, a);
    if (a->result != ARBITER_OK) {
        if (!s->link->connected && e->state != ELECTION_LEADING)
            set_waiting(e, "%.500s", a->text);
        return ELECTION_CONTINUES;
    }
    if (e->state == ELECTION_LEADING)
        return ELECTION_CONTINUES;
    e->found_closed = e->found_closed || (e->record_ns == 0 && a->record.closed);
    keep_record(e, s, a);
    look_in_time(e, s);
    e->ruined_ns = 0;
    const struct arbiter_record *r = &e->record;
    if (r->closed)
        return s->link->connected ? ELECTION_CONTINUES : ELECTION_JOB_CLOSED;
    if (e->state == ELECTION_CLAIMING)
        return ELECTION_CONTINUES; /* the answer to the claim has more information */
    if (r->vacant) {
        if (!s->link->connected && r->epoch >= s->link->epoch)
            claim(e, s, r->epoch + 1);
    } else if (r->leader.incarnation == s->config->incarnation && r->epoch > s->link->epoch) {
        /* Our own claim, unanswered or given up. Repeated, it is won unless a later epoch is
         * claimed. */
        if (!s->link->connected)
            claim(e, s, r->epoch);
    } else if (r->epoch == 0 && e->state == ELECTION_ASKING) {
        claim(e, s, 1);
    } else if (r->epoch > 0 && !s->link->connected &&
               (e->state == ELECTION_ASKING || r->epoch > s->link->epoch)) {
        e->redirects = 0;
        follow(e, s, &r->leader, r->epoch);
    } else if (!s->link->connected) {
        describe_unreachable(e, s);
    }
    return ELECTION_CONTINUES;
}

/* Rule 4: no named successor claims, and the leader has ended, as far as the record shows. */
static bool may_claim_unnamed(const struct election *e, const struct step *s) {
    bool apart =
        e->state == ELECTION_SEEKING || (e->state == ELECTION_FOLLOWING && !s->link->connected);
    return apart && e->ruined_ns == 0 && e->record_ns != 0 && !e->record.closed &&
           e->record.epoch >= s->link->epoch && e->record_ns >= over_at(e, s);
}

static void forget_successors(struct election *e) {
    e->named = (struct successors){0};
    e->successor_index = -1;
    e->has_handover = false;
    handover_fini(&e->handover);
    e->may_claim_ns = TIME_NEVER;
}

bool election_on_named(struct election *e, const struct step *s, const struct successors *named) {
    if (!s->link->connected || named->epoch < s->link->epoch || named->n > RDZV_SUCCESSORS_MAX)
        return false;
    link_raise_epoch(s->link, named->epoch);
    e->named = *named;
    e->successor_index = successors_index(named, s->config->incarnation);
    memset(e->successor_gone, 0, sizeof e->successor_gone);
    e->has_handover = false; /* HANDOVER follows */
    if (e->successor_index != 0)
        return false;
    e->successor_base_ns = s->now_ns;
    return true; /* the answer to that RENEW is the first lease that it echoes */
}

void election_on_handover(struct election *e, const struct step *s, const struct handover *h) {
    if (!s->link->connected || e->successor_index < 0 || h->epoch != e->named.epoch)
        return;
    handover_copy(&e->handover, h);
    e->has_handover = true;
}

void election_on_lease(struct election *e, const struct step *s, const struct lease *lease) {
    if (e->successor_index == 0 && e->named.epoch == lease->epoch) {
        e->successor_base_ns = s->now_ns;
        wire_small_set(&step_emit(s, MEMBER_EFFECT_SEND)->message, WIRE_ECHO,
                       &(struct echo){.epoch = lease->epoch, .leader_clock_ns = lease->clock_ns});
    }
    if (lease->validity_ns > 0)
        e->good_lease_ns = s->now_ns;
}

/* ---- whether it can claim ---- */

void election_on_peer_probe(struct election *e, uint64_t incarnation, enum probe_result result) {
    int i = successors_index(&e->named, incarnation);
    if (i >= 0 && result == PROBE_GONE)
        e->successor_gone[i] = true;
}

/* The leader is gone, or silent at the arbiter, too: its beat has not changed for a lease. */
static bool leader_is_over(const struct election *e, const struct step *s) {
    if (e->leader_gone)
        return true;
    return e->record_ns != 0 && e->record.epoch == e->named.epoch && e->record_ns > e->beat_ns &&
           e->record_ns - e->beat_ns >= s->config->rdzv.lease_ns;
}

/* Whether they could form a group. If the leader is certainly gone and no more nodes come, an agent
 * has to end the job, so fewer are enough. */
static bool enough_came(const struct election *e, const struct step *s) {
    size_t nodes = e->parked.len + 1;
    nodes -= nodes % s->config->rdzv.node_unit;
    if (nodes >= s->config->rdzv.min_nodes)
        return true;
    /* one that was asked to leave needs no group, only an epoch that it can leave vacant */
    return e->leader_gone && (e->leaving || s->now_ns >= e->lost_ns + s->config->rdzv.lease_ns);
}

static bool predecessors_gone(const struct election *e) {
    for (int i = 0; i < e->successor_index; i++)
        if (!e->successor_gone[i])
            return false;
    return true;
}

static bool wants_to_claim(const struct election *e, const struct step *s) {
    return e->state == ELECTION_SEEKING && is_successor(e) && e->ruined_ns == 0 &&
           e->record.epoch <= e->named.epoch && leader_is_over(e, s) && enough_came(e, s);
}

static uint64_t claim_due(const struct election *e) {
    if (e->may_claim_ns == TIME_NEVER)
        return TIME_NEVER;
    if (predecessors_gone(e))
        return e->may_claim_ns;
    return e->may_claim_ns + (uint64_t)e->successor_index * SUCCESSOR_STEP_NS;
}

static void probe_predecessors(struct election *e, const struct step *s) {
    if (e->state != ELECTION_SEEKING || !is_successor(e) || s->now_ns < e->successor_probe_ns)
        return;
    e->successor_probe_ns = s->now_ns + PEER_PROBE_NS;
    for (int i = 0; i < e->successor_index; i++)
        if (!e->successor_gone[i])
            step_emit(s, MEMBER_EFFECT_PROBE_PEER)->peer = e->named.list[i];
}

static void give_up_claim(struct election *e, const struct step *s) {
    e->beat_ns = s->now_ns; /* rule 4 starts again */
    e->claim_asked = false;
    election_seek(e, s, NULL);
}

/* What is known about leases that may still be valid is in the last epoch's handover, and for the
 * first successor in its last LEASE. Any other new leader waits for the longest possible lease,
 * except before an idle epoch. */
static void lead(struct election *e, const struct step *s, uint32_t epoch, bool idle) {
    const struct member_config *c = s->config;
    uint64_t margin = MAX2(c->rdzv.arbiter_lease_ns / ARBITER_MARGIN_PART, NS_PER_S);
    uint64_t longest = s->now_ns + c->rdzv.arbiter_lease_ns + margin;
    bool knows = is_successor(e) && epoch == e->named.epoch + 1;
    bool first = knows && e->successor_index == 0;
    move(e, ELECTION_LEADING);
    link_raise_epoch(s->link, epoch);
    group_config_default(&e->lead);
    e->lead.leadership = LEADERSHIP_ARBITER;
    e->lead.self = c->self;
    e->lead.epoch = epoch;
    e->lead.idle = idle;
    e->lead.not_before_ns = knows || idle ? 0 : longest;
    e->lead.absent_until_ns =
        first ? e->successor_base_ns + c->rdzv.lease_ns + c->rdzv.margin_ns : longest;
    e->lead.old_leader = e->leader_peer.incarnation;
    e->lead.lost_ns = e->lost_ns;
    e->lead.job_ns = e->form_at_ns != 0 ? e->form_job_ns + (s->now_ns - e->form_at_ns) : 0;
    e->lead.handover = knows ? &e->handover : NULL;
    step_emit(s, MEMBER_EFFECT_LEAD)->lead = &e->lead;
    e->leader_peer = c->self;
    e->leader_gone = false;
    e->waiting[0] = '\0';
    election_set_join_policy(e, s, false);
    connect_to(e, s, &c->self, true);
}

static enum election_outcome on_claim(struct election *e, const struct step *s,
                                      const struct arbiter_answer *a) {
    if (e->state != ELECTION_CLAIMING || a->request.epoch != e->claim_epoch)
        return ELECTION_CONTINUES;
    e->claim_asked = false;
    if (a->result == ARBITER_UNREACHABLE || a->result == ARBITER_RUINED) {
        (void)snprintf(e->waiting, sizeof e->waiting, "%s", a->text);
        e->claim_retry_ns = s->now_ns + CLAIM_RETRY_NS;
        return a->result == ARBITER_RUINED ? on_ruin(e, s, a) : ELECTION_CONTINUES;
    }
    if (a->result == ARBITER_OK) {
        lead(e, s, e->claim_epoch, a->record.idle);
        return ELECTION_CONTINUES;
    }
    struct arbiter_answer read = *a;
    read.result = ARBITER_OK;
    election_seek(e, s, NULL);
    return on_record(e, s, &read); /* it shows who won, or that the job is over */
}

enum election_outcome election_on_answer(struct election *e, const struct step *s,
                                         const struct arbiter_answer *a) {
    return a->request.kind == ARBITER_CLAIM ? on_claim(e, s, a) : on_record(e, s, a);
}

/* One lease; two if the arbiter's data is gone, because that must last for a lease. */
static uint64_t claim_end(const struct election *e, const struct step *s) {
    return e->claim_ns + s->config->rdzv.lease_ns * (e->ruined_ns != 0 ? 2 : 1);
}

static void claim_time(struct election *e, const struct step *s) {
    if (e->state == ELECTION_CLAIMING) {
        if (s->now_ns >= claim_end(e, s))
            give_up_claim(e, s);
        else if (!e->claim_asked && s->now_ns >= e->claim_retry_ns)
            ask_for(e, s);
        return;
    }
    probe_predecessors(e, s);
    if (!wants_to_claim(e, s))
        e->may_claim_ns = TIME_NEVER;
    else if (e->may_claim_ns == TIME_NEVER)
        e->may_claim_ns = s->now_ns;
    if (s->now_ns >= claim_due(e))
        claim(e, s, e->named.epoch + 1);
}

static uint64_t claim_deadline(const struct election *e, const struct step *s) {
    if (e->state == ELECTION_CLAIMING) {
        uint64_t t = claim_end(e, s);
        return e->claim_asked ? t : MIN2(t, e->claim_retry_ns);
    }
    uint64_t t = claim_due(e);
    if (e->state == ELECTION_SEEKING && is_successor(e)) {
        if (!predecessors_gone(e))
            t = MIN2(t, e->successor_probe_ns);
        if (e->leader_gone && s->now_ns < e->lost_ns + s->config->rdzv.lease_ns)
            t = MIN2(t, e->lost_ns + s->config->rdzv.lease_ns);
    }
    return t;
}

/* At a successor until that one leads; at the lost leader only for a first message, because a host
 * that hangs still accepts connections. */
static uint64_t stay(const struct election *e, const struct step *s) {
    bool given_up = e->target.incarnation == e->leader_peer.incarnation;
    return given_up ? s->config->rdzv.heartbeat_ns / 2 : patience(s->config);
}

void election_init(struct election *e, const struct member_config *config, uint64_t now_ns) {
    *e = (struct election){
        .state = config->has_arbiter ? ELECTION_ASKING : ELECTION_FIXED,
        .join_policy = JOIN_POLICY_SENT_AWAY,
        .successor_index = -1,
        .seek_ns = TIME_NEVER,
        .again_ns = TIME_NEVER,
        .may_claim_ns = TIME_NEVER,
        .parked.seed = config->seed,
    };
    if (!config->has_arbiter)
        return;
    e->read_ns = e->apart_ns = now_ns;
    e->patience_ns = 2 * patience(config) + config->seed % (patience(config) + 1);
    e->spread_ns = config->seed % config->rdzv.heartbeat_ns;
}

void election_fini(struct election *e) {
    handover_fini(&e->handover);
    idmap_fini(&e->parked);
}

void election_forgive_sleep(struct election *e, const struct step *s) {
    e->beat_ns = s->now_ns;
    if (e->apart_ns != TIME_NEVER)
        e->apart_ns = s->now_ns;
    if (s->link->connected)
        e->good_lease_ns = s->now_ns;
}

bool election_has_leader(const struct election *e, const struct leader_link *link) {
    return e->state == ELECTION_FOLLOWING && link->leader != 0 &&
           link->leader == e->leader_peer.incarnation;
}

/* ---- losing the leader, and searching for the next ---- */

/* In order: the successors before this node, and the old leader unless it is gone. */
static bool place_to_try(const struct election *e, const struct step *s, unsigned nth,
                         struct rdzv_peer *ret) {
    unsigned successors = is_successor(e) ? (unsigned)e->successor_index : e->named.n;
    for (unsigned i = 0; i < successors; i++) {
        if (e->successor_gone[i])
            continue;
        if (nth-- == 0) {
            *ret = e->named.list[i];
            return true;
        }
    }
    if (nth != 0 || e->leader_gone || e->leader_peer.incarnation == 0 ||
        e->leader_peer.incarnation == s->config->incarnation)
        return false;
    *ret = e->leader_peer;
    return true;
}

/* A successor that still has the leader notices its end soon, and comes before all after it. A node
 * that waited at one of those would keep both from having enough nodes. */
static void skip_named(struct election *e) {
    unsigned successors = is_successor(e) ? (unsigned)e->successor_index : e->named.n, there = 0;
    for (unsigned i = 0; i < successors; i++)
        there += !e->successor_gone[i];
    e->round = MAX2(e->round, there);
}

static void try_next(struct election *e, const struct step *s) {
    struct rdzv_peer peer;
    if (place_to_try(e, s, e->round, &peer)) {
        e->round++;
        e->seek_ns = TIME_NEVER;
        connect_to(e, s, &peer, true);
        return;
    }
    e->round = 0;
    e->target.incarnation = 0;
    e->seek_ns = s->now_ns + e->seek_wait_ns;
    e->seek_wait_ns = MIN2(2 * e->seek_wait_ns, SEEK_WAIT_MAX_NS);
}

void election_seek(struct election *e, const struct step *s, const char *why) {
    if (why != NULL)
        set_waiting(e, "%s; looking for the next leader", why);
    move(e, ELECTION_SEEKING);
    e->round = 0;
    e->seek_wait_ns = SEEK_WAIT_MIN_NS;
    e->read_ns = s->now_ns;
    e->may_claim_ns = TIME_NEVER;
    try_next(e, s);
}

bool election_may_lead_next(const struct election *e, const struct leader_link *link) {
    bool claims = e->state == ELECTION_CLAIMING || e->state == ELECTION_LEADING;
    /* FOLLOWING: a probe shows whether the leader is gone */
    bool may_claim =
        e->state == ELECTION_FOLLOWING || (e->state == ELECTION_SEEKING && e->leader_gone);
    return !link->connected && (claims || (may_claim && is_successor(e)));
}

bool election_lose_leader(struct election *e, const struct step *s, bool gone) {
    if (e->state != ELECTION_FOLLOWING) {
        e->leader_gone = e->leader_gone || (gone && e->state == ELECTION_SEEKING);
        return false;
    }
    e->leader_gone = gone;
    e->lost_ns = e->apart_ns = s->now_ns;
    hang_up(e, s);
    return true;
}

bool election_on_deposed(struct election *e, const struct step *s) {
    if (e->state != ELECTION_LEADING)
        return false;
    e->leader_gone = true; /* our own group has ended */
    e->leader_peer.incarnation = 0;
    e->lost_ns = e->apart_ns = s->now_ns;
    forget_successors(e);
    hang_up(e, s);
    return true;
}

void election_on_disconnect(struct election *e, const struct step *s, bool was_connected,
                            const char *why) {
    link_cut(s->link);
    if (why != NULL && e->target.incarnation == e->record.leader.incarnation)
        (void)snprintf(e->refusal, sizeof e->refusal, "%s", why);
    switch (e->state) {
    case ELECTION_FOLLOWING:
        connect_to(e, s, &e->leader_peer, was_connected);
        if (was_connected)
            link_probe(s);
        break;
    case ELECTION_LEADING: connect_to(e, s, &s->config->self, false); break;
    case ELECTION_SEEKING: try_next(e, s); break;
    case ELECTION_CLAIMING:
    case ELECTION_ASKING: break;
    case ELECTION_FIXED:
    case ELECTION_COUNT: assert_not_reached();
    }
}

/* It does not know yet that its claim was won, or that it has lost: try again after a pause. */
static void too_low(struct election *e, const struct step *s) {
    if (e->state == ELECTION_SEEKING) {
        try_next(e, s);
        return;
    }
    hang_up(e, s);
    e->again_ns = s->now_ns + s->config->rdzv.heartbeat_ns / 4;
}

enum election_welcome election_on_welcome(struct election *e, const struct step *s, uint64_t leader,
                                          uint32_t epoch) {
    bool looks = e->state == ELECTION_FOLLOWING || e->state == ELECTION_SEEKING;
    bool wanted = looks || (e->state == ELECTION_LEADING && leader == s->config->incarnation);
    if (!wanted || epoch < s->link->epoch) {
        if (looks)
            too_low(e, s);
        return ELECTION_WELCOME_REFUSED;
    }
    bool other = s->link->leader != leader || epoch > s->link->epoch;
    if (s->link->leader != leader) /* from another host's clock, meaningless to the new leader */
        s->link->clock_ns = s->link->rtt_ns = 0;
    e->leader_peer = e->target;
    e->leader_peer.incarnation = leader;
    if (e->state != ELECTION_LEADING)
        move(e, ELECTION_FOLLOWING);
    if (epoch > e->named.epoch)
        forget_successors(e);
    link_raise_epoch(s->link, epoch);
    e->good_lease_ns = s->now_ns;
    e->ruined_ns = 0;
    e->leader_gone = false;
    e->redirects = 0;
    e->waiting[0] = e->refusal[0] = '\0';
    return other ? ELECTION_WELCOME_OTHER : ELECTION_WELCOME_SAME;
}

void election_on_redirect(struct election *e, const struct step *s, uint32_t epoch,
                          const struct rdzv_peer *peer) {
    bool useful = peer->incarnation != 0 && peer->incarnation != s->config->incarnation &&
                  epoch >= s->link->epoch;
    bool lost_one = e->state == ELECTION_SEEKING && peer->incarnation == e->leader_peer.incarnation;
    bool from_successor = e->target.incarnation != e->leader_peer.incarnation;
    link_cut(s->link);
    e->read_ns = MIN2(e->read_ns, s->now_ns);
    if (e->state == ELECTION_SEEKING && (!useful || lost_one)) {
        if (useful && from_successor)
            skip_named(e);
        try_next(e, s); /* it still has the leader that we lost, or knows none */
    } else if (useful && (e->state == ELECTION_SEEKING || e->state == ELECTION_FOLLOWING)) {
        e->redirects++;
        e->target.incarnation = 0;
        follow(e, s, peer, epoch);
    } else if (e->state == ELECTION_FOLLOWING) {
        too_low(e, s);
    }
}

/* ---- time ---- */

/* A successor, or any node if none is named, reads as soon as the LEASEs stop. */
static bool looks_early(const struct election *e) { return is_successor(e) || e->named.n == 0; }

static bool wants_to_read(const struct election *e, const struct step *s) {
    bool silent = s->now_ns > e->good_lease_ns + 5 * s->config->rdzv.heartbeat_ns / 2;
    return e->state == ELECTION_ASKING || e->state == ELECTION_SEEKING ||
           (e->state == ELECTION_FOLLOWING && (!s->link->connected || (looks_early(e) && silent)));
}

bool election_leader_is_silent(const struct election *e, const struct step *s) {
    return e->state == ELECTION_FOLLOWING && s->link->leader != 0 &&
           (s->link->connected || e->apart_ns == TIME_NEVER) &&
           s->now_ns >= e->good_lease_ns + patience(s->config);
}

static enum election_outcome give_up(struct election *e) {
    e->grace_ns = 0;
    (void)snprintf(e->failure, sizeof e->failure,
                   "no leader was found within the join timeout%s%.1800s",
                   e->waiting[0] != '\0' ? ": " : "", e->waiting);
    return ELECTION_FAILED;
}

enum election_outcome election_time(struct election *e, const struct step *s) {
    if (s->link->connected)
        e->apart_ns = TIME_NEVER;
    if (e->apart_ns != TIME_NEVER && e->state != ELECTION_LEADING &&
        s->now_ns >= e->apart_ns + s->config->rdzv.join_timeout_ns)
        return give_up(e);
    if (wants_to_read(e, s) && !e->asking && s->now_ns >= e->read_ns) {
        (void)ask(e, s, ARBITER_READ, s->link->epoch);
        e->asking = true;
        e->read_ns = s->now_ns + s->config->rdzv.heartbeat_ns / (is_successor(e) ? 4 : 1);
    }
    if (e->state == ELECTION_FOLLOWING && s->now_ns >= e->again_ns)
        connect_to(e, s, &e->leader_peer, true);
    if (e->state == ELECTION_SEEKING && s->now_ns >= e->seek_ns)
        try_next(e, s);
    else if (e->state == ELECTION_SEEKING && e->target.incarnation != 0 && !s->link->connected &&
             s->now_ns >= e->target_ns + stay(e, s))
        try_next(e, s); /* parked or stuck for too long */
    claim_time(e, s);
    if (may_claim_unnamed(e, s))
        claim(e, s, e->record.epoch + 1);
    return ELECTION_CONTINUES;
}

uint64_t election_deadline(const struct election *e, const struct step *s) {
    uint64_t t = TIME_NEVER;
    if (e->apart_ns != TIME_NEVER && e->state != ELECTION_LEADING)
        t = e->apart_ns + s->config->rdzv.join_timeout_ns;
    if (e->state == ELECTION_FOLLOWING && e->apart_ns == TIME_NEVER)
        t = MIN2(t, e->good_lease_ns + patience(s->config));
    if (e->state == ELECTION_FOLLOWING && s->link->connected && looks_early(e))
        t = MIN2(t, MAX2(e->good_lease_ns + 5 * s->config->rdzv.heartbeat_ns / 2 + 1,
                         e->asking ? TIME_NEVER : e->read_ns));
    else if (wants_to_read(e, s) && !e->asking)
        t = MIN2(t, e->read_ns);
    if (e->state == ELECTION_FOLLOWING)
        t = MIN2(t, e->again_ns);
    if (e->state == ELECTION_SEEKING) {
        t = MIN2(t, e->seek_ns);
        if (e->target.incarnation != 0)
            t = MIN2(t, e->target_ns + stay(e, s));
    }
    t = MIN2(t, claim_deadline(e, s));
    return t;
}

/* ---- nodes that come ---- */

void election_on_joiner(struct election *e, uint64_t joiner, bool came) {
    if (came && e->join_policy == JOIN_POLICY_PARKED && joiner != 0)
        idmap_put(&e->parked, joiner, e);
    else
        idmap_remove(&e->parked, joiner);
}

static enum member_join_policy join_policy_of(const struct election *e, const struct step *s) {
    if (e->state == ELECTION_LEADING)
        return JOIN_POLICY_SERVED;
    if (e->state == ELECTION_FOLLOWING && s->link->connected)
        return JOIN_POLICY_REDIRECTED;
    return is_successor(e) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
}

void election_set_join_policy(struct election *e, const struct step *s, bool ended) {
    enum member_join_policy join_policy = ended ? JOIN_POLICY_SENT_AWAY : join_policy_of(e, s);
    bool to = join_policy == JOIN_POLICY_REDIRECTED;
    if (join_policy == e->join_policy &&
        (!to || e->join_policy_peer.incarnation == e->leader_peer.incarnation))
        return;
    if (e->join_policy == JOIN_POLICY_SERVED && ended)
        return; /* its group exists until all nodes know the outcome */
    e->join_policy = join_policy;
    e->join_policy_peer = e->leader_peer;
    struct member_effect *effect = step_emit(s, MEMBER_EFFECT_JOIN_POLICY);
    effect->join_policy = join_policy;
    effect->epoch = s->link->epoch;
    if (to)
        effect->peer = e->leader_peer;
    if (join_policy != JOIN_POLICY_PARKED) {
        uint64_t seed = e->parked.seed;
        idmap_fini(&e->parked);
        e->parked.seed = seed;
    }
}
