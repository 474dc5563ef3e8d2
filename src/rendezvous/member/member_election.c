/* With an arbiter: whom this node follows, and where it looks when it has lost its leader. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/member/member_priv.h"

#define SEEK_WAIT_MIN_NS (20 * NS_PER_MS)
#define SEEK_WAIT_MAX_NS (500 * NS_PER_MS)
#define REDIRECTS_MAX 3 /* at once, before it pauses */

#define BIT(s) (1u << (s))
static const struct {
    const char *name;
    unsigned next;
} elections[ELECTION_COUNT] = {
    /*                 name         may be followed by */
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

void member_election_move(struct member *m, enum member_election to) {
    if (m->election == to)
        return;
    assert(member_election_may_move(m->election, to));
    m->election = to;
}

static uint64_t patience(const struct member *m) {
    return m->config.rdzv.lease_ns + m->config.rdzv.margin_ns;
}

/* How long it waits at one place: with a successor until that one leads; with the leader that it
 * has given up, for a sign of life only, because a host that hangs still takes connections. */
static uint64_t stay(const struct member *m) {
    bool given_up = m->target.incarnation == m->leader_peer.incarnation;
    return given_up ? m->config.rdzv.heartbeat_ns / 2 : patience(m);
}

void member_set_epoch(struct member *m, uint32_t epoch) {
    m->epoch = MAX2(m->epoch, epoch);
    m->report.epoch = m->epoch;
}

void member_set_waiting(struct member *m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m->waiting, sizeof m->waiting, fmt, ap);
    va_end(ap);
}

/* ---- connecting ---- */

static void hang_up(struct member *m) {
    m->connected = false;
    m->renew_ns = m->probe_ns = TIME_NEVER;
    m->again_ns = TIME_NEVER;
    m->target.incarnation = 0;
    (void)member_emit(m, MEMBER_EFFECT_HANG_UP);
}

static void connect_to(struct member *m, const struct rdzv_peer *peer, bool soon) {
    m->connected = false;
    m->renew_ns = TIME_NEVER;
    m->again_ns = TIME_NEVER;
    m->target = *peer;
    m->target_ns = m->now_ns;
    struct member_effect *e = member_emit(m, MEMBER_EFFECT_CONNECT);
    e->peer = *peer;
    e->soon = soon;
}

void member_follow(struct member *m, const struct rdzv_peer *peer, uint32_t epoch) {
    bool same = m->election == ELECTION_FOLLOWING && m->epoch == epoch &&
                m->target.incarnation == peer->incarnation;
    member_set_epoch(m, epoch);
    m->leader_peer = *peer;
    if (same)
        return;
    m->leader_gone = false;
    member_election_move(m, ELECTION_FOLLOWING);
    connect_to(m, peer, m->redirects < REDIRECTS_MAX);
}

/* ---- losing the leader, and looking for the next ---- */

/* Where to look, in order: the successors before this one, and the old leader unless it is gone. */
static bool place_to_try(const struct member *m, unsigned nth, struct rdzv_peer *ret) {
    unsigned successors = succession_is_named(m) ? (unsigned)m->successor_index : m->named.n;
    for (unsigned i = 0; i < successors; i++) {
        if (m->successor_gone[i])
            continue;
        if (nth-- == 0) {
            *ret = m->named.list[i];
            return true;
        }
    }
    if (nth != 0 || m->leader_gone || m->leader_peer.incarnation == 0 ||
        m->leader_peer.incarnation == m->config.incarnation)
        return false;
    *ret = m->leader_peer;
    return true;
}

/* A successor still has the leader: if that one is over, it learns so soon, and goes before all
 * that come after it. Whoever waited at one of those would keep both from having enough. */
static void skip_named(struct member *m) {
    unsigned successors = succession_is_named(m) ? (unsigned)m->successor_index : m->named.n,
             there = 0;
    for (unsigned i = 0; i < successors; i++)
        there += !m->successor_gone[i];
    m->round = MAX2(m->round, there);
}

static void try_next(struct member *m) {
    struct rdzv_peer peer;
    if (place_to_try(m, m->round, &peer)) {
        m->round++;
        m->seek_ns = TIME_NEVER;
        connect_to(m, &peer, true);
        return;
    }
    m->round = 0;
    m->target.incarnation = 0;
    m->seek_ns = m->now_ns + m->seek_wait_ns;
    m->seek_wait_ns = MIN2(2 * m->seek_wait_ns, SEEK_WAIT_MAX_NS);
}

void member_seek(struct member *m) {
    member_election_move(m, ELECTION_SEEKING);
    m->round = 0;
    m->seek_wait_ns = SEEK_WAIT_MIN_NS;
    m->read_ns = m->now_ns;
    m->may_claim_ns = TIME_NEVER;
    try_next(m);
}

void member_lost_leader(struct member *m, bool gone, const char *why) {
    if (m->election != ELECTION_FOLLOWING) {
        m->leader_gone = m->leader_gone || (gone && m->election == ELECTION_SEEKING);
        return;
    }
    m->leader_gone = gone;
    m->lost_ns = m->apart_ns = m->now_ns;
    m->probe_ns = TIME_NEVER;
    hang_up(m);
    member_stop_for_leader(m, why);
    if (m->state == MEMBER_ENDED || m->end.kind != MEMBER_END_NONE)
        return;
    member_set_waiting(m, "%s; looking for the next leader", why);
    member_seek(m);
}

void member_on_deposed(struct member *m) {
    if (m->election != ELECTION_LEADING)
        return;
    m->leader_gone = true; /* our own group is no more */
    m->leader_peer.incarnation = 0;
    m->lost_ns = m->apart_ns = m->now_ns;
    succession_forget(m);
    hang_up(m);
    member_stop_for_leader(m, "another node leads this job now");
    if (m->state != MEMBER_ENDED && m->end.kind == MEMBER_END_NONE)
        member_seek(m);
}

void member_election_disconnected(struct member *m, bool was_connected) {
    m->connected = false;
    m->renew_ns = TIME_NEVER;
    switch (m->election) {
    case ELECTION_FOLLOWING:
        connect_to(m, &m->leader_peer, was_connected);
        if (was_connected)
            member_probe_leader(m);
        break;
    case ELECTION_LEADING: connect_to(m, &m->config.self, false); break;
    case ELECTION_SEEKING: try_next(m); break;
    case ELECTION_CLAIMING:
    case ELECTION_ASKING: break;
    case ELECTION_FIXED:
    case ELECTION_COUNT: assert_not_reached();
    }
}

/* The leader of the record speaks of a lower epoch: it has not heard yet that its claim was won, or
 * that it has lost. It is asked again, and not all the time. */
void member_election_too_low(struct member *m) {
    if (m->election == ELECTION_SEEKING) {
        try_next(m);
        return;
    }
    hang_up(m);
    m->again_ns = m->now_ns + m->config.rdzv.heartbeat_ns / 4;
}

void member_election_welcomed(struct member *m, uint64_t leader, uint32_t epoch) {
    bool other = m->leader != leader || epoch > m->epoch;
    if (other) {
        m->start_wanted = false;
        m->lease_names = (struct generation){0, 0};
    }
    if (m->leader != leader)
        m->leader_clock_ns = m->rtt_ns = 0; /* another host's clock: to the new one it is noise */
    m->leader_peer = m->target;
    m->leader_peer.incarnation = leader;
    if (m->election != ELECTION_LEADING)
        member_election_move(m, ELECTION_FOLLOWING);
    if (epoch > m->named.epoch)
        succession_forget(m);
    member_set_epoch(m, epoch);
    m->good_lease_ns = m->now_ns;
    m->ruined_ns = 0;
    m->leader_gone = false;
    m->redirects = 0;
    m->waiting[0] = '\0';
}

void member_on_redirect(struct member *m, uint32_t epoch, const struct rdzv_peer *peer) {
    bool useful =
        peer->incarnation != 0 && peer->incarnation != m->config.incarnation && epoch >= m->epoch;
    bool lost_one =
        m->election == ELECTION_SEEKING && peer->incarnation == m->leader_peer.incarnation;
    bool from_successor = m->target.incarnation != m->leader_peer.incarnation;
    m->connected = false;
    m->renew_ns = TIME_NEVER;
    m->read_ns = MIN2(m->read_ns, m->now_ns);
    if (m->election == ELECTION_SEEKING && (!useful || lost_one)) {
        if (useful && from_successor)
            skip_named(m);
        try_next(m); /* it still has the leader that we lost, or knows of none */
    } else if (useful && (m->election == ELECTION_SEEKING || m->election == ELECTION_FOLLOWING)) {
        m->redirects++;
        m->target.incarnation = 0;
        member_follow(m, peer, epoch);
    } else if (m->election == ELECTION_FOLLOWING) {
        member_election_too_low(m);
    }
}

/* ---- time ---- */

void member_election_begin(struct member *m) {
    m->read_ns = m->now_ns;
    m->apart_ns = m->now_ns;
    m->patience_ns = 2 * patience(m) + m->random % (patience(m) + 1);
    m->spread_ns = m->random % m->config.rdzv.heartbeat_ns;
}

/* A node with a leader reads when that one's LEASEs stay away, as a successor, or where there is
 * none. */
static bool looks_early(const struct member *m) {
    return succession_is_named(m) || m->named.n == 0;
}

static bool wants_to_read(const struct member *m) {
    switch (m->election) {
    case ELECTION_ASKING:
    case ELECTION_SEEKING: return true;
    case ELECTION_FOLLOWING:
        return !m->connected ||
               (looks_early(m) &&
                m->now_ns > m->good_lease_ns + 5 * m->config.rdzv.heartbeat_ns / 2);
    case ELECTION_CLAIMING:
    case ELECTION_LEADING:
    case ELECTION_FIXED: return false;
    case ELECTION_COUNT: break;
    }
    assert_not_reached();
}

static void give_up(struct member *m) {
    char text[RDZV_REASON_MAX];
    (void)snprintf(text, sizeof text, "no leader was found within the join timeout%s%.1800s",
                   m->waiting[0] != '\0' ? ": " : "", m->waiting);
    member_decide_end(m, MEMBER_END_LEADER_LOST, text);
    member_end_with_grace(m, 0);
}

static void lose_silent_leader(struct member *m) {
    bool silent = m->now_ns >= m->good_lease_ns + patience(m);
    if (m->election == ELECTION_FOLLOWING && m->leader != 0 && m->apart_ns == TIME_NEVER && silent)
        member_lost_leader(m, false, "no lease from the leader any more");
}

void member_election_time(struct member *m) {
    if (m->end.kind != MEMBER_END_NONE)
        return;
    if (m->connected)
        m->apart_ns = TIME_NEVER;
    lose_silent_leader(m);
    if (m->apart_ns != TIME_NEVER && m->election != ELECTION_LEADING &&
        m->now_ns >= m->apart_ns + m->config.rdzv.join_timeout_ns) {
        give_up(m);
        return;
    }
    if (wants_to_read(m) && !m->asking && m->now_ns >= m->read_ns) {
        m->asking = member_ask(m, ARBITER_READ, m->epoch);
        m->read_ns = m->now_ns + m->config.rdzv.heartbeat_ns / (succession_is_named(m) ? 4 : 1);
    }
    if (m->election == ELECTION_FOLLOWING && m->now_ns >= m->again_ns)
        connect_to(m, &m->leader_peer, true);
    if (m->election == ELECTION_SEEKING && m->now_ns >= m->seek_ns)
        try_next(m);
    else if (m->election == ELECTION_SEEKING && m->target.incarnation != 0 && !m->connected &&
             m->now_ns >= m->target_ns + stay(m))
        try_next(m); /* parked, or stuck, for long */
    succession_time(m);
    if (member_may_claim_unnamed(m))
        succession_claim(m, m->record.epoch + 1);
}

uint64_t member_election_deadline(const struct member *m) {
    uint64_t t = TIME_NEVER;
    if (m->apart_ns != TIME_NEVER && m->election != ELECTION_LEADING)
        t = m->apart_ns + m->config.rdzv.join_timeout_ns;
    if (m->election == ELECTION_FOLLOWING && m->apart_ns == TIME_NEVER)
        t = MIN2(t, m->good_lease_ns + patience(m));
    if (m->election == ELECTION_FOLLOWING && m->connected && looks_early(m))
        t = MIN2(t, MAX2(m->good_lease_ns + 5 * m->config.rdzv.heartbeat_ns / 2 + 1,
                         m->asking ? TIME_NEVER : m->read_ns));
    else if (wants_to_read(m) && !m->asking)
        t = MIN2(t, m->read_ns);
    if (m->election == ELECTION_FOLLOWING)
        t = MIN2(t, m->again_ns);
    if (m->election == ELECTION_SEEKING) {
        t = MIN2(t, m->seek_ns);
        if (m->target.incarnation != 0)
            t = MIN2(t, m->target_ns + stay(m));
    }
    t = MIN2(t, succession_deadline(m));
    return t;
}

/* ---- those who come ---- */

static enum member_join_policy join_policy_of(const struct member *m) {
    switch (m->election) {
    case ELECTION_LEADING: return JOIN_POLICY_SERVED;
    case ELECTION_FOLLOWING:
        if (m->connected)
            return JOIN_POLICY_REDIRECTED;
        return succession_is_named(m) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
    case ELECTION_SEEKING:
    case ELECTION_CLAIMING:
        return succession_is_named(m) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
    case ELECTION_ASKING:
    case ELECTION_FIXED:
    case ELECTION_COUNT: break;
    }
    return JOIN_POLICY_SENT_AWAY;
}

void member_tell_join_policy(struct member *m) {
    enum member_join_policy join_policy =
        m->state == MEMBER_ENDED ? JOIN_POLICY_SENT_AWAY : join_policy_of(m);
    bool to = join_policy == JOIN_POLICY_REDIRECTED;
    if (join_policy == m->join_policy &&
        (!to || m->join_policy_peer.incarnation == m->leader_peer.incarnation))
        return;
    if (m->join_policy == JOIN_POLICY_SERVED && m->state == MEMBER_ENDED)
        return; /* its group goes on until all know the outcome */
    m->join_policy = join_policy;
    m->join_policy_peer = m->leader_peer;
    struct member_effect *e = member_emit(m, MEMBER_EFFECT_JOIN_POLICY);
    e->join_policy = join_policy;
    e->epoch = m->epoch;
    if (to)
        e->peer = m->leader_peer;
    if (join_policy != JOIN_POLICY_PARKED) {
        uint64_t seed = m->parked.seed;
        idmap_fini(&m->parked);
        m->parked.seed = seed;
    }
}

enum member_election member_election(const struct member *m) { return m->election; }
uint32_t member_epoch(const struct member *m) { return m->epoch; }
const char *member_waiting(const struct member *m) { return m->waiting; }

bool member_leader(const struct member *m, struct rdzv_peer *ret) {
    if (m->leader_peer.incarnation == 0 || m->election == ELECTION_SEEKING ||
        m->election == ELECTION_CLAIMING)
        return false;
    *ret = m->leader_peer;
    return true;
}
