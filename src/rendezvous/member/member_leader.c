/* What a node knows about its leader: found, disconnected, silent, or gone. */
#include "rendezvous/member/member_priv.h"

static void connect_again(struct member *m) {
    link_cut(&m->link);
    m->link.probe_wait_ns = PROBE_RETRY_MIN_NS;
    (void)step_emit(&m->step, MEMBER_EFFECT_CONNECT);
}

void member_leader_gone(struct member *m, const char *why) {
    m->link.probe_ns = TIME_NEVER;
    if (m->config.has_arbiter) {
        if (m->end.kind == MEMBER_END_NONE)
            member_lose_leader(m, true, "the leader is gone: its agent ended unexpectedly");
        return;
    }
    if (generation_is_none(m->generation) && m->state == MEMBER_IDLE && !m->leaving) {
        /* Nothing here depends on that leader yet: wait for the next one. */
        member_move(m, MEMBER_SEARCHING);
        m->since_ns = m->step.now_ns;
        m->link.leader = 0;
        if (m->link.connected)
            connect_again(m);
        return;
    }
    if (m->state == MEMBER_SEARCHING)
        return;
    member_decide_end(m, MEMBER_END_LEADER_LOST, why);
    member_end_with_grace(m, lease_left(&m->lease, m->step.now_ns));
}

void member_on_disconnect(struct member *m, const char *why) {
    bool was_connected = m->link.connected;
    if (m->config.has_arbiter) {
        election_on_disconnect(&m->election, &m->step, was_connected, why);
        return;
    }
    connect_again(m);
    if (was_connected)
        link_probe(&m->step);
}

void member_on_probe(struct member *m, enum probe_result result) {
    m->link.probing = false;
    bool silent =
        m->step.now_ns - m->link.seen_ns > SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns;
    if (m->state == MEMBER_SEARCHING || (m->link.connected && !silent) ||
        (m->config.has_arbiter && m->election.state != ELECTION_FOLLOWING))
        return;
    if (result == PROBE_ALIVE && m->link.connected) {
        /* The network drops what the leader sends on this connection. */
        if (m->config.has_arbiter)
            election_on_disconnect(&m->election, &m->step, false, NULL);
        else
            connect_again(m);
    }
    if (result == PROBE_GONE) {
        member_leader_gone(m, "the leader is gone: its agent ended unexpectedly, and no other "
                              "node may lead this job");
    } else {
        m->link.probe_ns = m->step.now_ns + m->link.probe_wait_ns;
        m->link.probe_wait_ns = MIN2(2 * m->link.probe_wait_ns, m->config.probe_retry_ns);
    }
}

/* What the last leader wanted does not count for this one. */
static void forget_start(struct member *m) {
    m->start_wanted = false;
    m->lease.names = (struct generation){0, 0};
}

void member_on_welcome(struct member *m, const struct member_event *ev) {
    bool other = m->link.leader != 0 && m->link.leader != ev->leader && !m->config.has_arbiter;
    if (m->config.has_arbiter) {
        enum election_welcome w =
            election_on_welcome(&m->election, &m->step, ev->leader, ev->epoch);
        if (w == ELECTION_WELCOME_REFUSED)
            return;
        if (w == ELECTION_WELCOME_OTHER)
            forget_start(m);
    }
    m->link.connected = true;
    m->link.connected_ns = m->link.seen_ns = m->step.now_ns;
    m->link.probe_ns = TIME_NEVER;
    if (other) {
        /* A restarted agent of the leader at the same endpoint does not know our group. */
        forget_start(m);
        m->link.connected = false; /* to the leader that is gone */
        member_leader_gone(m, "the leader was replaced by another agent, which does not know "
                              "this group");
        m->link.connected = true;
        if (m->state == MEMBER_ENDED || m->end.kind != MEMBER_END_NONE)
            return;
    }
    m->link.leader = ev->leader;
    m->link.epoch = ev->epoch;
    if (ev->heartbeat_ns > 0) {
        m->config.rdzv.heartbeat_ns = ev->heartbeat_ns;
        m->config.rdzv.margin_ns = ev->margin_ns;
        if (ev->lease_ns > 0)
            m->config.rdzv.lease_ns = ev->lease_ns;
    }
    if (m->state == MEMBER_SEARCHING)
        member_move(m, MEMBER_IDLE);
    /* A node without workers needs no lease yet; it asks for the first one when it is PREPARED. */
    if (m->has_workers)
        member_renew(m);
    else
        m->link.renew_ns = m->step.now_ns + m->config.rdzv.heartbeat_ns;
    if (m->report_due)
        member_send_report(m);
}
