/* With an arbiter: what its record tells this node. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/member/member_priv.h"

bool member_ask(struct member *m, enum arbiter_kind kind, uint32_t epoch) {
    if (m->n_requests == MEMBER_REQUESTS_MAX)
        return false;
    struct arbiter_request *r = &m->requests[m->n_requests++];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = m->config.self};
    member_emit(m, MEMBER_EFFECT_ARBITER)->request = r;
    return true;
}

static void on_closed_record(struct member *m, const struct arbiter_record *r) {
    struct desired d = {.kind = DESIRED_CLOSED,
                        .epoch = r->epoch,
                        .grace_ns = UINT64_MAX,
                        .outcome = r->outcome,
                        .restarts_used = m->report.restarts_used};
    memcpy(d.reason, r->reason, sizeof d.reason);
    m->end.was_closed = generation_is_none(m->generation);
    member_on_closed(m, &d);
}

static void keep_record(struct member *m, const struct arbiter_answer *a) {
    const struct arbiter_record *r = &a->record;
    bool same = m->record_ns != 0 && r->epoch == m->record.epoch;
    if (same && r->beat != m->record.beat && m->record_ns >= m->apart_ns)
        m->moved_ns = m->now_ns;
    if (!same || r->beat != m->record.beat)
        m->beat_ns = m->now_ns;
    m->record = *r;
    m->record_ns = a->started_ns;
    if (r->vacant || r->idle)
        m->quiet_epoch = MAX2(m->quiet_epoch, r->epoch);
}

/* The leader of the record is over, and nobody is named to follow it, as far as a record tells
 * that was asked for at this time or later. In an idle epoch there was nobody to name, and nothing
 * runs that could be lost. */
static uint64_t over_at(const struct member *m) {
    const struct arbiter_record *r = &m->record;
    if (!r->idle)
        return m->beat_ns + m->patience_ns;
    bool gone = m->leader_gone && r->leader.incarnation == m->leader_peer.incarnation;
    return (gone ? m->lost_ns : m->beat_ns + m->config.rdzv.lease_ns) + m->spread_ns;
}

/* The next look is no later than when it may decide. */
static void look_in_time(struct member *m) {
    if (m->record.idle && m->record_ns < over_at(m))
        m->read_ns = MIN2(m->read_ns, MAX2(over_at(m), m->now_ns));
}

/* The leader of the record can't be reached, for a while now: is it at least alive? Where there has
 * been none yet, or it was this node, why its own claim fails says more. */
static void describe_unreachable(struct member *m) {
    const struct arbiter_record *r = &m->record;
    bool other = r->epoch > 0 && r->leader.incarnation != m->config.incarnation;
    if (!other || m->apart_ns == TIME_NEVER ||
        m->now_ns < m->apart_ns + 2 * m->config.rdzv.heartbeat_ns)
        return;
    /* A beat that moved before it was lost tells nothing of it now. */
    bool stands = m->record_ns >= m->beat_ns + 3 * m->config.rdzv.heartbeat_ns;
    const char *what = "does not answer";
    if (stands)
        what = "gives no sign of life";
    else if (m->moved_ns >= m->apart_ns)
        what = "is alive, but not reachable from here";
    member_set_waiting(m, "the leader at %.100s, port %u (epoch %" PRIu32 ") %s", r->leader.addr,
                       r->leader.port, r->epoch, what);
}

void member_on_ruin(struct member *m, const struct arbiter_answer *a) {
    uint64_t wait = arbiter_ruin_ns(a, m->config.rdzv.lease_ns);
    uint64_t left = m->lease_end_ns > m->now_ns ? m->lease_end_ns - m->now_ns : 0;
    char text[RDZV_REASON_MAX];
    if (m->connected || m->election == ELECTION_LEADING || m->end.kind != MEMBER_END_NONE)
        return; /* whoever leads says it */
    if (m->ruined_ns == 0)
        m->ruined_ns = m->now_ns;
    member_set_waiting(m, "%.500s", a->text);
    if (wait > 0 && a->started_ns < m->ruined_ns + wait)
        return; /* by when it was asked, as the leader does */
    (void)snprintf(text, sizeof text, ARBITER_RUIN_TEXT, a->text);
    member_decide_end(m, MEMBER_END_LEADER_LOST, text);
    member_end_with_grace(m, MIN2(left, wait));
}

void member_on_record(struct member *m, const struct arbiter_answer *a) {
    m->asking = false;
    if (a->result == ARBITER_RUINED) {
        member_on_ruin(m, a);
        return;
    }
    if (a->result != ARBITER_OK) {
        if (!m->connected && m->election != ELECTION_LEADING)
            member_set_waiting(m, "%.500s", a->text);
        return;
    }
    if (m->election == ELECTION_LEADING || m->state == MEMBER_ENDED)
        return;
    keep_record(m, a);
    look_in_time(m);
    m->ruined_ns = 0;
    const struct arbiter_record *r = &m->record;
    if (r->closed) {
        if (!m->connected)
            on_closed_record(m, r);
    } else if (m->election == ELECTION_CLAIMING) {
        return; /* the claim's answer says more */
    } else if (r->vacant) {
        if (!m->connected && r->epoch >= m->epoch)
            succession_claim(m, r->epoch + 1);
    } else if (r->leader.incarnation == m->config.incarnation && r->epoch > m->epoch) {
        /* A claim whose answer was lost, or that was given up and came through all the same: asked
         * again, it is won unless somebody has gone on from there. */
        if (!m->connected)
            succession_claim(m, r->epoch);
    } else if (r->epoch == 0 && m->election == ELECTION_ASKING) {
        succession_claim(m, 1);
    } else if (r->epoch > 0 && !m->connected &&
               (m->election == ELECTION_ASKING || r->epoch > m->epoch)) {
        m->redirects = 0;
        member_follow(m, &r->leader, r->epoch);
    } else if (!m->connected) {
        describe_unreachable(m);
    }
}

bool member_may_claim_unnamed(const struct member *m) {
    bool apart =
        m->election == ELECTION_SEEKING || (m->election == ELECTION_FOLLOWING && !m->connected);
    return apart && m->ruined_ns == 0 && m->record_ns != 0 && !m->record.closed &&
           m->record.epoch >= m->epoch && m->record_ns >= over_at(m);
}
