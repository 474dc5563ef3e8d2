/* What a node knows about its leader: found, disconnected, silent, or gone. */
#include <stdio.h>
#include <string.h>

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

void member_try_start(struct member *m) {
    if (m->state != MEMBER_PREPARED || !m->start_wanted ||
        m->lease.names_end_ns <= m->step.now_ns ||
        generation_compare(m->lease.names, m->generation) != 0)
        return;
    member_move(m, MEMBER_RUNNING);
    m->has_workers = true;
    m->fenced = false;
    step_emit(&m->step, MEMBER_EFFECT_LEASE_END)->lease_end_ns = m->lease.end_ns;
    struct member_effect *e = step_emit(&m->step, MEMBER_EFFECT_START);
    e->generation = m->generation;
    e->reachability = m->reachability;
    member_set_report(m, NODE_RUNNING);
}

/* Drops what was prepared for a group that never started, and that the leader no longer
 * mentions. */
static void drop_preparation(struct member *m) {
    if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED) {
        m->start_wanted = false;
        member_move(m, MEMBER_IDLE);
    }
}

/* We are not a member for the leader: we never were, or we count as lost meanwhile. */
static void on_idle(struct member *m, const struct desired *d) {
    m->start_wanted = false;
    m->end.was_spare = d->spare;
    m->report.restarts_used = MAX2(m->report.restarts_used, d->restarts_used);
    m->report.losses = MAX2(m->report.losses, d->losses);
    if (d->excluded && !m->report.excluded) {
        m->report.excluded = true;
        (void)snprintf(m->report.excluded_why, sizeof m->report.excluded_why, "%.120s", d->reason);
    }
    if (m->state == MEMBER_HELD) {
        member_fence(m);
    } else if (m->state == MEMBER_RUNNING && m->has_workers) {
        member_stop_workers(m, d->grace_ns, "the leader runs the job without this node");
    } else if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED ||
               m->state == MEMBER_RUNNING) {
        member_move(m, MEMBER_IDLE);
        member_set_report(m, NODE_STOPPED);
    } else if (m->state == MEMBER_IDLE && m->report.state == NODE_FAILED) {
        /* this node could not prepare for a group that has ended */
        member_set_report(m, NODE_STOPPED);
    }
}

void member_on_form(struct member *m, const struct desired *d) {
    int c = generation_compare(d->generation, m->generation);
    if (c < 0)
        return;
    if (c == 0) {
        member_send_report(m);
        return;
    }
    drop_preparation(m);
    m->election.form_at_ns = m->step.now_ns;
    m->election.form_job_ns = d->form.job_ns;
    if (m->state == MEMBER_HELD)
        member_fence(m);
    if (m->state != MEMBER_IDLE) {
        m->has_later = true;
        m->later = *d;
        return;
    }
    m->has_later = m->has_stop_cause = m->start_wanted = m->end.was_spare = false;
    m->generation = d->generation;
    m->form = d->form;
    m->report.has_failure = m->report.finished = false;
    m->report.reachability = 0;
    m->report.restarts_used = MAX2(m->report.restarts_used, d->form.restarts_used);
    m->report.losses = MAX2(m->report.losses, d->form.losses);
    member_move(m, MEMBER_PREPARING);
    step_emit(&m->step, MEMBER_EFFECT_PREPARE)->generation = m->generation;
}

static bool same_cause(const struct desired *a, const struct desired *b) {
    return a->has_failure == b->has_failure && strcmp(a->reason, b->reason) == 0 &&
           (!a->has_failure || (a->failure.incarnation == b->failure.incarnation &&
                                a->failure.rank == b->failure.rank));
}

void member_on_stop(struct member *m, const struct desired *d) {
    int c = generation_compare(d->generation, m->generation);
    if (c < 0)
        return;
    bool other_cause = m->has_stop_cause && c == 0 && !same_cause(&m->stop_cause, d);
    m->stop_cause = *d;
    m->has_stop_cause = true;
    m->start_wanted = false;
    if (c > 0) {
        if (m->state == MEMBER_HELD)
            member_fence(m);
        else if (m->has_workers)
            /* workers of an older group: end them first; STOP will be sent again */
            member_stop_workers(m, d->grace_ns, d->reason);
        drop_preparation(m);
        if (m->state != MEMBER_IDLE)
            return;
        m->generation = d->generation;
        m->report.has_failure = m->report.finished = false;
    }
    if (m->has_workers) {
        member_stop_workers(m, d->grace_ns, d->reason);
        return;
    }
    bool all_ended = m->state == MEMBER_RUNNING;
    if (m->state != MEMBER_IDLE)
        member_move(m, MEMBER_IDLE);
    member_set_report(m, NODE_STOPPED);
    /* there is nothing to end, but people want to know the reason */
    if (other_cause || all_ended) {
        (void)snprintf(m->reason, sizeof m->reason, "%s", d->reason);
        struct member_effect *e = step_emit(&m->step, MEMBER_EFFECT_STOP);
        e->generation = m->generation;
        e->grace_ns = d->grace_ns; /* of what workers left */
        e->reason = m->reason;
    }
}

void member_on_closed(struct member *m, const struct desired *d) {
    m->closed = true;
    m->stop_cause = *d;
    m->has_stop_cause = true;
    m->start_wanted = false;
    if (m->end.kind == MEMBER_END_LEADER_LOST)
        m->end.kind = MEMBER_END_NONE; /* the lost leader came back, with the outcome */
    if (m->end.kind == MEMBER_END_NONE) {
        member_decide_end(m, d->outcome == OUTCOME_SUCCESS ? MEMBER_END_SUCCESS : MEMBER_END_FAILED,
                          d->reason);
        m->end.has_failure = d->has_failure;
        m->end.failure = d->failure;
        m->end.no_fault = d->no_fault;
        m->end.restarts_used = d->restarts_used;
        m->end.max_restarts = d->max_restarts;
    }
    member_end_with_grace(m, d->grace_ns);
}

void member_on_desired(struct member *m, const struct desired *d) {
    if (!m->link.connected || d->epoch != m->link.epoch || m->link.leader == 0)
        return;
    m->link.seen_ns = m->step.now_ns;
    switch (d->kind) {
    case DESIRED_IDLE: on_idle(m, d); break;
    case DESIRED_FORM: member_on_form(m, d); break;
    case DESIRED_START:
        if (generation_compare(d->generation, m->generation) == 0 && !m->leaving) {
            m->start_wanted = true;
            m->reachability = d->reachability;
            member_try_start(m);
        }
        break;
    case DESIRED_STOP: member_on_stop(m, d); break;
    case DESIRED_CLOSED: member_on_closed(m, d); break;
    case DESIRED_KIND_COUNT: assert_not_reached();
    }
}

/* A lease for another group, or for none, means that this group was given up. */
static bool may_continue(struct member *m, const struct lease *lease, uint64_t end_ns) {
    if (generation_compare(lease->prepared, m->generation) != 0) {
        member_fence(m);
        return false;
    }
    if (end_ns <= m->step.now_ns + m->config.rdzv.heartbeat_ns)
        return false; /* none can be granted yet, or only one that ends before the next RENEW */
    member_move(m, MEMBER_RUNNING);
    step_emit(&m->step, MEMBER_EFFECT_RESUME)->paused_ns = m->paused_ns;
    return true;
}

void member_on_lease(struct member *m, const struct lease *lease) {
    if (!m->link.connected || lease->epoch != m->link.epoch ||
        lease->echo_ns < m->link.connected_ns || lease->echo_ns > m->step.now_ns)
        return;
    m->link.seen_ns = m->step.now_ns;
    m->link.probe_ns = TIME_NEVER;
    m->link.clock_ns = lease->clock_ns;
    m->link.rtt_ns = MAX2(m->step.now_ns - lease->echo_ns, (uint64_t)1);
    if (m->config.has_arbiter)
        election_on_lease(&m->election, &m->step, lease);
    uint64_t end = lease->echo_ns + lease->validity_ns;
    if (lease->validity_ns > 0 && end <= m->step.now_ns + m->config.rdzv.heartbeat_ns)
        m->link.renew_ns = MIN2(m->link.renew_ns, m->step.now_ns + m->config.rdzv.heartbeat_ns / 4);
    if (m->state == MEMBER_HELD && !may_continue(m, lease, end))
        return;
    if (lease->validity_ns == 0)
        return;
    m->lease.names = lease->prepared;
    m->lease.names_end_ns = end;
    if (end > m->lease.end_ns) {
        m->lease.end_ns = end;
        if (m->has_workers && !m->fenced)
            step_emit(&m->step, MEMBER_EFFECT_LEASE_END)->lease_end_ns = end;
    }
    if (m->state == MEMBER_RUNNING && m->held_stop) {
        m->held_stop = false;
        member_stop_workers(m, m->held_grace_ns, m->reason);
    }
    member_try_start(m);
}
