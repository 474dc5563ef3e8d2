/* With an arbiter: what follows from its record for this node. */
#include <inttypes.h>
#include <stdio.h>

#include "rendezvous/member/election_priv.h"

bool election_ask(struct election *e, const struct step *s, enum arbiter_kind kind,
                  uint32_t epoch) {
    if (e->n_requests == ELECTION_REQUESTS_MAX)
        return false;
    struct arbiter_request *r = &e->requests[e->n_requests++];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = s->config->self};
    step_emit(s, MEMBER_EFFECT_ARBITER)->request = r;
    return true;
}

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

/* The time from which a record that was requested then or later can show that its leader has ended,
 * and that no named successor follows it. In an idle epoch no successors were named, and nothing
 * runs that could be lost. */
static uint64_t over_at(const struct election *e, const struct step *s) {
    const struct arbiter_record *r = &e->record;
    if (!r->idle)
        return e->beat_ns + e->patience_ns;
    bool gone = e->leader_gone && r->leader.incarnation == e->leader_peer.incarnation;
    return (gone ? e->lost_ns : e->beat_ns + s->config->rdzv.lease_ns) + e->spread_ns;
}

/* The next read comes no later than the time when it can decide. */
static void look_in_time(struct election *e, const struct step *s) {
    if (e->record.idle && e->record_ns < over_at(e, s))
        e->read_ns = MIN2(e->read_ns, MAX2(over_at(e, s), s->now_ns));
}

/* The leader of the record has been unreachable for a while: describes whether it is at least
 * alive. If there was no leader yet, or it was this node, the reason why its own claim fails is
 * more useful. */
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
    election_set_waiting(e, "the leader at %.100s, port %u (epoch %" PRIu32 ") %s%s%s",
                         r->leader.addr, r->leader.port, r->epoch, what, refused ? ": " : "",
                         refused ? e->refusal : "");
}

struct election_outcome election_on_ruin(struct election *e, const struct step *s,
                                         const struct arbiter_answer *a) {
    struct election_outcome o = {ELECTION_GOES_ON};
    uint64_t wait = arbiter_ruin_ns(a, s->config->rdzv.lease_ns);
    if (s->link->connected || e->state == ELECTION_LEADING || s->ending)
        return o; /* the leader reports it */
    if (e->ruined_ns == 0)
        e->ruined_ns = s->now_ns;
    election_set_waiting(e, "%.500s", a->text);
    if (wait > 0 && a->started_ns < e->ruined_ns + wait)
        return o; /* compare with the time of the request, as the leader does */
    o.kind = ELECTION_FAILED;
    o.grace_ns = wait;
    (void)snprintf(o.reason, sizeof o.reason, ARBITER_RUIN_TEXT, a->text);
    return o;
}

struct election_outcome election_on_answer(struct election *e, const struct step *s,
                                           const struct arbiter_answer *a) {
    return a->request.kind == ARBITER_CLAIM ? election_on_claim(e, s, a)
                                            : election_on_record(e, s, a);
}

struct election_outcome election_on_record(struct election *e, const struct step *s,
                                           const struct arbiter_answer *a) {
    struct election_outcome o = {ELECTION_GOES_ON};
    e->asking = false;
    if (a->result == ARBITER_RUINED)
        return election_on_ruin(e, s, a);
    if (a->result != ARBITER_OK) {
        if (!s->link->connected && e->state != ELECTION_LEADING)
            election_set_waiting(e, "%.500s", a->text);
        return o;
    }
    if (e->state == ELECTION_LEADING)
        return o;
    e->found_closed = e->found_closed || (e->record_ns == 0 && a->record.closed);
    keep_record(e, s, a);
    look_in_time(e, s);
    e->ruined_ns = 0;
    const struct arbiter_record *r = &e->record;
    if (r->closed) {
        if (!s->link->connected)
            o.kind = ELECTION_JOB_CLOSED;
    } else if (e->state == ELECTION_CLAIMING) {
        return o; /* the answer to the claim has more information */
    } else if (r->vacant) {
        if (!s->link->connected && r->epoch >= s->link->epoch)
            election_claim(e, s, r->epoch + 1);
    } else if (r->leader.incarnation == s->config->incarnation && r->epoch > s->link->epoch) {
        /* Our claim whose answer was lost, or that was given up and succeeded nevertheless.
         * Repeated, it is won, unless another agent has claimed a later epoch. */
        if (!s->link->connected)
            election_claim(e, s, r->epoch);
    } else if (r->epoch == 0 && e->state == ELECTION_ASKING) {
        election_claim(e, s, 1);
    } else if (r->epoch > 0 && !s->link->connected &&
               (e->state == ELECTION_ASKING || r->epoch > s->link->epoch)) {
        e->redirects = 0;
        election_follow(e, s, &r->leader, r->epoch);
    } else if (!s->link->connected) {
        describe_unreachable(e, s);
    }
    return o;
}

bool election_may_claim_unnamed(const struct election *e, const struct step *s) {
    bool apart =
        e->state == ELECTION_SEEKING || (e->state == ELECTION_FOLLOWING && !s->link->connected);
    return apart && e->ruined_ns == 0 && e->record_ns != 0 && !e->record.closed &&
           e->record.epoch >= s->link->epoch && e->record_ns >= over_at(e, s);
}
