#include "rendezvous/member/election.h"

#include <stdarg.h>
#include <stdio.h>

#include "rendezvous/member/election_priv.h"

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

void election_move(struct election *e, enum member_election to) {
    if (e->state == to)
        return;
    assert(member_election_may_move(e->state, to));
    e->state = to;
}

static uint64_t patience(const struct member_config *c) {
    return c->rdzv.lease_ns + c->rdzv.margin_ns;
}

/* How long the node waits at one agent: at a successor until that one leads; at the lost leader
 * only for a first message, because a host that hangs still accepts connections. */
static uint64_t stay(const struct election *e, const struct step *s) {
    bool given_up = e->target.incarnation == e->leader_peer.incarnation;
    return given_up ? s->config->rdzv.heartbeat_ns / 2 : patience(s->config);
}

void election_set_waiting(struct election *e, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->waiting, sizeof e->waiting, fmt, ap);
    va_end(ap);
}

/* ---- creation and end ---- */

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

/* ---- connecting ---- */

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

void election_follow(struct election *e, const struct step *s, const struct rdzv_peer *peer,
                     uint32_t epoch) {
    bool same = e->state == ELECTION_FOLLOWING && s->link->epoch == epoch &&
                e->target.incarnation == peer->incarnation;
    link_raise_epoch(s->link, epoch);
    e->leader_peer = *peer;
    if (same)
        return;
    e->leader_gone = false;
    election_move(e, ELECTION_FOLLOWING);
    connect_to(e, s, peer, e->redirects < REDIRECTS_MAX);
}

/* ---- losing the leader, and searching for the next ---- */

/* Where to search, in order: the successors before this node, and the old leader unless it is
 * gone. */
static bool place_to_try(const struct election *e, const struct step *s, unsigned nth,
                         struct rdzv_peer *ret) {
    unsigned successors = election_is_successor(e) ? (unsigned)e->successor_index : e->named.n;
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

/* A successor still has the leader. If the leader has ended, the successor notices that soon, and
 * comes before all successors after it. A node that waited at one of those would keep both from
 * having enough nodes. */
static void skip_named(struct election *e) {
    unsigned successors = election_is_successor(e) ? (unsigned)e->successor_index : e->named.n,
             there = 0;
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
        election_set_waiting(e, "%s; looking for the next leader", why);
    election_move(e, ELECTION_SEEKING);
    e->round = 0;
    e->seek_wait_ns = SEEK_WAIT_MIN_NS;
    e->read_ns = s->now_ns;
    e->may_claim_ns = TIME_NEVER;
    try_next(e, s);
}

bool election_may_lead_next(const struct election *e, const struct leader_link *link) {
    if (link->connected)
        return false;
    switch (e->state) {
    case ELECTION_FOLLOWING: return election_is_successor(e); /* a probe tells whether it is gone */
    case ELECTION_SEEKING: return election_is_successor(e) && e->leader_gone;
    case ELECTION_CLAIMING:
    case ELECTION_LEADING: return true;
    case ELECTION_FIXED:
    case ELECTION_ASKING:
    case ELECTION_COUNT: break;
    }
    return false;
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
    election_forget_successors(e);
    hang_up(e, s);
    return true;
}

void election_on_disconnect(struct election *e, const struct step *s, bool was_connected,
                            const char *why) {
    link_cut(s->link);
    if (why != NULL)
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

/* The leader of the record reports a lower epoch: it does not know yet that its claim was won, or
 * that it has lost. The node tries again, after a pause. */
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
        election_move(e, ELECTION_FOLLOWING);
    if (epoch > e->named.epoch)
        election_forget_successors(e);
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
        election_follow(e, s, peer, epoch);
    } else if (e->state == ELECTION_FOLLOWING) {
        too_low(e, s);
    }
}

/* ---- time ---- */

/* A node with a leader reads when the LEASEs stop, if it is a successor, or if no successor is
 * named. */
static bool looks_early(const struct election *e) {
    return election_is_successor(e) || e->named.n == 0;
}

static bool wants_to_read(const struct election *e, const struct step *s) {
    switch (e->state) {
    case ELECTION_ASKING:
    case ELECTION_SEEKING: return true;
    case ELECTION_FOLLOWING:
        return !s->link->connected ||
               (looks_early(e) &&
                s->now_ns > e->good_lease_ns + 5 * s->config->rdzv.heartbeat_ns / 2);
    case ELECTION_CLAIMING:
    case ELECTION_LEADING:
    case ELECTION_FIXED: return false;
    case ELECTION_COUNT: break;
    }
    assert_not_reached();
}

bool election_leader_is_silent(const struct election *e, const struct step *s) {
    return e->state == ELECTION_FOLLOWING && s->link->leader != 0 &&
           (s->link->connected || e->apart_ns == TIME_NEVER) &&
           s->now_ns >= e->good_lease_ns + patience(s->config);
}

static struct election_outcome give_up(const struct election *e) {
    struct election_outcome o = {.kind = ELECTION_FAILED};
    (void)snprintf(o.reason, sizeof o.reason,
                   "no leader was found within the join timeout%s%.1800s",
                   e->waiting[0] != '\0' ? ": " : "", e->waiting);
    return o;
}

struct election_outcome election_time(struct election *e, const struct step *s) {
    if (s->link->connected)
        e->apart_ns = TIME_NEVER;
    if (e->apart_ns != TIME_NEVER && e->state != ELECTION_LEADING &&
        s->now_ns >= e->apart_ns + s->config->rdzv.join_timeout_ns)
        return give_up(e);
    if (wants_to_read(e, s) && !e->asking && s->now_ns >= e->read_ns) {
        e->asking = election_ask(e, s, ARBITER_READ, s->link->epoch);
        e->read_ns = s->now_ns + s->config->rdzv.heartbeat_ns / (election_is_successor(e) ? 4 : 1);
    }
    if (e->state == ELECTION_FOLLOWING && s->now_ns >= e->again_ns)
        connect_to(e, s, &e->leader_peer, true);
    if (e->state == ELECTION_SEEKING && s->now_ns >= e->seek_ns)
        try_next(e, s);
    else if (e->state == ELECTION_SEEKING && e->target.incarnation != 0 && !s->link->connected &&
             s->now_ns >= e->target_ns + stay(e, s))
        try_next(e, s); /* parked or stuck for too long */
    election_claim_time(e, s);
    if (election_may_claim_unnamed(e, s))
        election_claim(e, s, e->record.epoch + 1);
    return (struct election_outcome){ELECTION_GOES_ON};
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
    t = MIN2(t, election_claim_deadline(e, s));
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
    switch (e->state) {
    case ELECTION_LEADING: return JOIN_POLICY_SERVED;
    case ELECTION_FOLLOWING:
        if (s->link->connected)
            return JOIN_POLICY_REDIRECTED;
        return election_is_successor(e) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
    case ELECTION_SEEKING:
    case ELECTION_CLAIMING:
        return election_is_successor(e) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
    case ELECTION_ASKING:
    case ELECTION_FIXED:
    case ELECTION_COUNT: break;
    }
    return JOIN_POLICY_SENT_AWAY;
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
