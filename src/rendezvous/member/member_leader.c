/* What a node knows of its leader: found, cut off, silent, gone. */
#include "rendezvous/member/member_priv.h"

static void connect_again(struct member *m) {
    m->connected = false;
    m->probe_wait_ns = PROBE_RETRY_MIN_NS;
    m->renew_ns = TIME_NEVER;
    (void)member_emit(m, MEMBER_EFFECT_CONNECT);
}

void member_leader_gone(struct member *m, const char *why) {
    m->probe_ns = TIME_NEVER;
    if (m->config.has_arbiter) {
        if (m->end.kind == MEMBER_END_NONE)
            member_lost_leader(m, true, "the leader is gone: its agent ended without a word");
        return;
    }
    if (generation_is_none(m->generation) && m->state == MEMBER_IDLE && !m->leaving) {
        /* Nothing of ours depends on that leader yet: wait for the next one. */
        member_move(m, MEMBER_SEARCHING);
        m->since_ns = m->now_ns;
        m->leader = 0;
        if (m->connected)
            connect_again(m);
        return;
    }
    if (m->state == MEMBER_SEARCHING)
        return;
    member_decide_end(m, MEMBER_END_LEADER_LOST, why);
    uint64_t left = m->lease_end_ns > m->now_ns ? m->lease_end_ns - m->now_ns : 0;
    member_end_with_grace(m, left);
}

void member_probe_leader(struct member *m) {
    m->probe_ns = TIME_NEVER;
    if (m->probing)
        return;
    m->probing = true;
    (void)member_emit(m, MEMBER_EFFECT_PROBE);
}

void member_on_disconnect(struct member *m) {
    bool was_connected = m->connected;
    if (m->config.has_arbiter) {
        member_election_disconnected(m, was_connected);
        return;
    }
    connect_again(m);
    if (was_connected)
        member_probe_leader(m);
}

void member_on_probe(struct member *m, enum probe_result result) {
    m->probing = false;
    bool silent = m->now_ns - m->leader_seen_ns > SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns;
    if (m->state == MEMBER_SEARCHING || (m->connected && !silent) ||
        (m->config.has_arbiter && m->election != ELECTION_FOLLOWING))
        return;
    if (result == PROBE_ALIVE && m->connected) {
        /* Something on the way drops what it says on this connection. */
        if (m->config.has_arbiter)
            member_election_disconnected(m, false);
        else
            connect_again(m);
    }
    if (result == PROBE_GONE) {
        member_leader_gone(m, "the leader is gone: its agent ended without a word, and no other "
                              "node may lead this job");
    } else {
        m->probe_ns = m->now_ns + m->probe_wait_ns;
        m->probe_wait_ns = MIN2(2 * m->probe_wait_ns, m->config.probe_retry_ns);
    }
}

void member_on_welcome(struct member *m, const struct member_event *ev) {
    bool other = m->leader != 0 && m->leader != ev->leader && !m->config.has_arbiter;
    if (m->config.has_arbiter) {
        bool wanted = m->election == ELECTION_FOLLOWING || m->election == ELECTION_SEEKING ||
                      (m->election == ELECTION_LEADING && ev->leader == m->config.incarnation);
        if (!wanted || ev->epoch < m->epoch) {
            /* Whoever has seen a higher epoch obeys no lower one. */
            if (m->election == ELECTION_FOLLOWING || m->election == ELECTION_SEEKING)
                member_election_too_low(m);
            return;
        }
        member_election_welcomed(m, ev->leader, ev->epoch);
    }
    m->connected = true;
    m->connected_ns = m->leader_seen_ns = m->now_ns;
    m->probe_ns = TIME_NEVER;
    if (other) {
        /* A new life of the leader's agent at the same endpoint knows nothing of our group. */
        m->start_wanted = false;
        m->lease_names = (struct generation){0, 0};
        m->connected = false; /* to the one that is gone */
        member_leader_gone(m, "the leader was replaced by another agent, which does not know "
                              "this group");
        m->connected = true;
        if (m->state == MEMBER_ENDED || m->end.kind != MEMBER_END_NONE)
            return;
    }
    m->leader = ev->leader;
    m->epoch = ev->epoch;
    m->report.epoch = m->epoch;
    if (ev->heartbeat_ns > 0) {
        m->config.rdzv.heartbeat_ns = ev->heartbeat_ns;
        m->config.rdzv.margin_ns = ev->margin_ns;
        if (ev->lease_ns > 0)
            m->config.rdzv.lease_ns = ev->lease_ns;
    }
    if (m->state == MEMBER_SEARCHING)
        member_move(m, MEMBER_IDLE);
    /* A node without workers needs no lease yet; PREPARED asks for the first. */
    if (m->has_workers)
        member_renew(m);
    else
        m->renew_ns = m->now_ns + m->config.rdzv.heartbeat_ns;
    if (m->report_due)
        member_send_report(m);
}
