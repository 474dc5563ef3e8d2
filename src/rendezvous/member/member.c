#include "rendezvous/member/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "rendezvous/member/member_priv.h"

struct member_effect *member_emit(struct member *m, enum member_effect_kind kind) {
    struct member_update *u = m->update;
    u->effects = xgrow(u->effects, u->n_effects, sizeof *u->effects);
    u->effects[u->n_effects] = (struct member_effect){.kind = kind};
    return &u->effects[u->n_effects++];
}

void link_probe(struct member *m) {
    m->link.probe_ns = TIME_NEVER;
    if (m->link.probing)
        return;
    m->link.probing = true;
    (void)member_emit(m, MEMBER_EFFECT_PROBE);
}

/* For a node that is asked to leave, and may be the next leader. */
#define LEADERLESS_LEAVE_NS (2 * NS_PER_S)

#define BIT(s) (1u << (s))
static const struct {
    const char *name;
    unsigned next;
} states[MEMBER_STATE_COUNT] = {
    /*                   name          can be followed by */
    [MEMBER_SEARCHING] = {"searching", BIT(MEMBER_IDLE) | BIT(MEMBER_ENDED)},
    [MEMBER_IDLE] = {"idle", BIT(MEMBER_PREPARING) | BIT(MEMBER_SEARCHING) | BIT(MEMBER_ENDED)},
    [MEMBER_PREPARING] = {"preparing", BIT(MEMBER_PREPARED) | BIT(MEMBER_IDLE) | BIT(MEMBER_ENDED)},
    [MEMBER_PREPARED] = {"prepared", BIT(MEMBER_RUNNING) | BIT(MEMBER_IDLE) | BIT(MEMBER_ENDED)},
    [MEMBER_RUNNING] = {"running", BIT(MEMBER_STOPPING) | BIT(MEMBER_IDLE) | BIT(MEMBER_ENDED) |
                                       BIT(MEMBER_HELD)},
    [MEMBER_HELD] = {"held", BIT(MEMBER_RUNNING) | BIT(MEMBER_STOPPING)},
    [MEMBER_STOPPING] = {"stopping", BIT(MEMBER_IDLE) | BIT(MEMBER_ENDED)},
    [MEMBER_ENDED] = {"ended", 0},
};

const char *member_state_name(enum member_state s) { return states[s].name; }

bool member_may_move(enum member_state from, enum member_state to) {
    return (states[from].next & BIT(to)) != 0;
}

void member_config_default(struct member_config *c) {
    *c = (struct member_config){.rdzv = RDZV_SETTINGS_DEFAULT, .probe_retry_ns = 200 * NS_PER_MS};
}

int member_new(const struct member_config *config, uint64_t now_ns, struct member **ret) {
    if (config->incarnation == 0 || !rdzv_settings_make_sense(&config->rdzv))
        return -EINVAL;
    struct member *m = xcalloc(1, sizeof *m);
    m->config = *config;
    m->state = MEMBER_SEARCHING;
    m->now_ns = m->since_ns = now_ns;
    m->due_ns = m->leave_by_ns = TIME_NEVER;
    m->link.renew_ns = m->link.probe_ns = TIME_NEVER;
    m->link.probe_wait_ns = PROBE_RETRY_MIN_NS;
    m->report.state = NODE_JOINED;
    m->report.gpu = -1;
    election_init(m);
    *ret = m;
    return 0;
}

void member_free(struct member *m) {
    if (m == NULL)
        return;
    handover_fini(&m->handover);
    idmap_fini(&m->parked);
    free(m);
}

void member_update_fini(struct member_update *u) {
    free(u->effects);
    *u = (struct member_update){0};
}

/* ---- effects ---- */

void member_renew(struct member *m) {
    if (!m->link.connected)
        return;
    if (m->report_due) {
        m->report_due = false;
        (void)member_emit(m, MEMBER_EFFECT_REPORT);
    }
    member_emit(m, MEMBER_EFFECT_RENEW)->renew = (struct renew){
        .clock_ns = m->now_ns,
        .leader_clock_ns = m->link.clock_ns,
        .rtt_ns = m->link.rtt_ns,
        .epoch = m->link.epoch,
    };
    m->link.renew_ns = m->now_ns + m->config.rdzv.heartbeat_ns;
}

/* JOIN may contain an older report; none can be sent before WELCOME, so it is repeated then. */
static void send_report(struct member *m) {
    m->report_due = !m->link.connected;
    if (!m->link.connected)
        return;
    (void)member_emit(m, MEMBER_EFFECT_REPORT);
    if (m->link.renew_ns != TIME_NEVER &&
        m->link.renew_ns <= m->now_ns + m->config.rdzv.heartbeat_ns / 2)
        member_renew(m); /* one packet instead of two */
}

static void send_report_soon(struct member *m) {
    m->report_due = true;
    if (m->link.connected)
        m->link.renew_ns = MIN2(m->link.renew_ns, m->now_ns + m->config.rdzv.heartbeat_ns / 4);
}

static void move(struct member *m, enum member_state to) {
    assert(member_may_move(m->state, to));
    m->state = to;
}

static void set_report(struct member *m, enum node_state state) {
    m->report.state = state;
    m->report.generation = m->generation;
    m->report.finished = m->report.finished || state == NODE_FINISHED;
    if (state == NODE_RUNNING)
        /* nobody waits for it, and thousands of nodes would send it at once */
        send_report_soon(m);
    else
        send_report(m);
}

/* Only the first decision counts. */
static void decide_end(struct member *m, enum member_end_kind kind, const char *reason) {
    if (m->end.kind != MEMBER_END_NONE)
        return;
    m->end.kind = kind;
    (void)snprintf(m->end.reason, sizeof m->end.reason, "%s", reason);
}

static void finish(struct member *m) {
    if (m->state == MEMBER_ENDED)
        return;
    if (m->closed)
        set_report(m, NODE_CLOSED);
    else if (m->leaving && m->link.connected)
        (void)member_emit(m, MEMBER_EFFECT_SEND_LEAVE);
    if (m->state == MEMBER_HELD) /* its workers can't be killed */
        move(m, MEMBER_STOPPING);
    move(m, MEMBER_ENDED);
    (void)member_emit(m, MEMBER_EFFECT_END);
}

static void fence(struct member *m) {
    if (m->fenced)
        return;
    m->fenced = true;
    if (m->state == MEMBER_RUNNING || m->state == MEMBER_HELD)
        move(m, MEMBER_STOPPING);
    (void)member_emit(m, MEMBER_EFFECT_FENCE);
}

static void emit_stop(struct member *m, uint64_t grace_ns) {
    struct member_effect *e = member_emit(m, MEMBER_EFFECT_STOP);
    e->grace_ns = grace_ns;
    e->reason = m->reason;
}

static void stop_workers(struct member *m, uint64_t grace_ns, const char *reason) {
    assert(m->has_workers);
    (void)snprintf(m->reason, sizeof m->reason, "%s", reason);
    if (m->state == MEMBER_HELD) { /* the grace begins with the lease */
        m->held_stop = true;
        m->held_grace_ns = grace_ns;
        return;
    }
    if (m->state == MEMBER_RUNNING)
        move(m, MEMBER_STOPPING);
    emit_stop(m, grace_ns);
}

/* Ends as decided: at once if there are no workers; else when they are gone, or can't be killed. */
static void end_with_grace(struct member *m, uint64_t grace_ns) {
    if (m->has_workers && m->report.unusable[0] == '\0')
        stop_workers(m, grace_ns, m->end.reason);
    else
        finish(m);
}

void member_forget_start(struct member *m) {
    m->start_wanted = false;
    m->lease.names = (struct generation){0, 0};
}

/* They get the rest of the lease to end. The report of workers that have ended stays. */
static void stop_for_leader(struct member *m, const char *why) {
    uint64_t left = lease_left(&m->lease, m->now_ns);
    member_forget_start(m);
    if (m->has_workers && m->report.state != NODE_FINISHED && !m->fenced) {
        if (m->state == MEMBER_HELD)
            fence(m); /* no lease will come */
        else
            stop_workers(m, left, why);
    } else if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED) {
        move(m, MEMBER_IDLE);
        set_report(m, NODE_STOPPED);
    }
}

void member_leave_leader(struct member *m, const char *why, const char *why_seek) {
    stop_for_leader(m, why);
    if (m->state != MEMBER_ENDED && m->end.kind == MEMBER_END_NONE)
        election_seek(m, why_seek);
}

/* ---- whether the leader is alive, and its messages ---- */

static void connect_again(struct member *m) {
    link_cut(&m->link);
    m->link.probe_wait_ns = PROBE_RETRY_MIN_NS;
    (void)member_emit(m, MEMBER_EFFECT_CONNECT);
}

static void leader_gone(struct member *m, const char *why) {
    m->link.probe_ns = TIME_NEVER;
    if (m->config.has_arbiter) {
        if (m->end.kind == MEMBER_END_NONE)
            election_lose_leader(m, true, "the leader is gone: its agent ended unexpectedly");
        return;
    }
    if (generation_is_none(m->generation) && m->state == MEMBER_IDLE && !m->leaving) {
        /* Nothing here depends on that leader yet: wait for the next one. */
        move(m, MEMBER_SEARCHING);
        m->since_ns = m->now_ns;
        m->link.leader = 0;
        if (m->link.connected)
            connect_again(m);
        return;
    }
    if (m->state == MEMBER_SEARCHING)
        return;
    decide_end(m, MEMBER_END_LEADER_LOST, why);
    end_with_grace(m, lease_left(&m->lease, m->now_ns));
}

static void on_disconnect(struct member *m, const char *why) {
    bool was_connected = m->link.connected;
    if (m->config.has_arbiter) {
        election_on_disconnect(m, was_connected, why);
        return;
    }
    connect_again(m);
    if (was_connected)
        link_probe(m);
}

static void on_probe(struct member *m, enum probe_result result) {
    m->link.probing = false;
    bool silent = m->now_ns - m->link.seen_ns > SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns;
    if (m->state == MEMBER_SEARCHING || (m->link.connected && !silent) ||
        (m->config.has_arbiter && m->election != ELECTION_FOLLOWING))
        return;
    if (result == PROBE_ALIVE && m->link.connected) {
        /* The network drops what the leader sends on this connection. */
        if (m->config.has_arbiter)
            election_on_disconnect(m, false, NULL);
        else
            connect_again(m);
    }
    if (result == PROBE_GONE) {
        leader_gone(m,
                    "the leader is gone: its agent ended unexpectedly, and without a directory or "
                    "etcd (--rdzv-endpoint) no other node may lead this job");
    } else {
        m->link.probe_ns = m->now_ns + m->link.probe_wait_ns;
        m->link.probe_wait_ns = MIN2(2 * m->link.probe_wait_ns, m->config.probe_retry_ns);
    }
}

static void on_welcome(struct member *m, const struct member_event *ev) {
    bool other = m->link.leader != 0 && m->link.leader != ev->leader && !m->config.has_arbiter;
    if (m->config.has_arbiter && !election_on_welcome(m, ev->leader, ev->epoch))
        return;
    m->link.connected = true;
    m->link.connected_ns = m->link.seen_ns = m->now_ns;
    m->link.probe_ns = TIME_NEVER;
    if (other) {
        /* A restarted agent of the leader at the same endpoint does not know our group. */
        member_forget_start(m);
        m->link.connected = false; /* to the leader that is gone */
        leader_gone(m, "the leader was replaced by another agent, which does not know this group");
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
        move(m, MEMBER_IDLE);
    /* A node without workers needs no lease yet; it asks for the first one when it is PREPARED. */
    if (m->has_workers)
        member_renew(m);
    else
        m->link.renew_ns = m->now_ns + m->config.rdzv.heartbeat_ns;
    if (m->report_due)
        send_report(m);
}

static void try_start(struct member *m) {
    if (m->state != MEMBER_PREPARED || !m->start_wanted || m->lease.names_end_ns <= m->now_ns ||
        generation_compare(m->lease.names, m->generation) != 0)
        return;
    move(m, MEMBER_RUNNING);
    m->has_workers = true;
    m->fenced = false;
    member_emit(m, MEMBER_EFFECT_LEASE_END)->lease_end_ns = m->lease.end_ns;
    struct member_effect *e = member_emit(m, MEMBER_EFFECT_START);
    e->generation = m->generation;
    e->reachability = m->reachability;
    set_report(m, NODE_RUNNING);
}

static void begin_generation(struct member *m, struct generation g) {
    m->generation = g;
    m->report.has_failure = m->report.finished = false;
    m->report.first_step = m->report.last_step = 0;
}

/* The group that it was for never started, and the leader no longer mentions it. */
static void drop_preparation(struct member *m) {
    if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED) {
        m->start_wanted = false;
        move(m, MEMBER_IDLE);
    }
}

/* The leader never counted this node as a member, or counts it as lost. */
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
        fence(m);
    } else if (m->state == MEMBER_RUNNING && m->has_workers) {
        stop_workers(m, d->grace_ns, "the leader runs the job without this node");
    } else if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED ||
               m->state == MEMBER_RUNNING) {
        move(m, MEMBER_IDLE);
        set_report(m, NODE_STOPPED);
    } else if (m->state == MEMBER_IDLE && m->report.state == NODE_FAILED) {
        /* this node could not prepare for a group that has ended */
        set_report(m, NODE_STOPPED);
    }
}

static void on_form(struct member *m, const struct desired *d) {
    int c = generation_compare(d->generation, m->generation);
    if (c < 0)
        return;
    if (c == 0) {
        send_report(m);
        return;
    }
    drop_preparation(m);
    m->form_at_ns = m->now_ns;
    m->form_job_ns = d->form.job_ns;
    if (m->state == MEMBER_HELD)
        fence(m);
    if (m->state != MEMBER_IDLE) {
        m->has_later = true;
        m->later = *d;
        return;
    }
    m->has_later = m->has_stop_cause = m->start_wanted = m->end.was_spare = false;
    begin_generation(m, d->generation);
    m->form = d->form;
    m->report.reachability = 0;
    m->report.restarts_used = MAX2(m->report.restarts_used, d->form.restarts_used);
    m->report.losses = MAX2(m->report.losses, d->form.losses);
    move(m, MEMBER_PREPARING);
    member_emit(m, MEMBER_EFFECT_PREPARE)->generation = m->generation;
}

static bool same_cause(const struct desired *a, const struct desired *b) {
    return a->has_failure == b->has_failure && strcmp(a->reason, b->reason) == 0 &&
           (!a->has_failure || (a->failure.incarnation == b->failure.incarnation &&
                                a->failure.rank == b->failure.rank));
}

static void on_stop(struct member *m, const struct desired *d) {
    int c = generation_compare(d->generation, m->generation);
    if (c < 0)
        return;
    bool other_cause = m->has_stop_cause && c == 0 && !same_cause(&m->stop_cause, d);
    m->stop_cause = *d;
    m->has_stop_cause = true;
    m->start_wanted = false;
    if (c > 0) {
        if (m->state == MEMBER_HELD)
            fence(m);
        else if (m->has_workers)
            /* workers of an older group: end them first; STOP will be sent again */
            stop_workers(m, d->grace_ns, d->reason);
        drop_preparation(m);
        if (m->state != MEMBER_IDLE)
            return;
        begin_generation(m, d->generation);
    }
    if (m->has_workers) {
        stop_workers(m, d->grace_ns, d->reason);
        return;
    }
    bool all_ended = m->state == MEMBER_RUNNING;
    if (m->state != MEMBER_IDLE)
        move(m, MEMBER_IDLE);
    set_report(m, NODE_STOPPED);
    /* there is nothing to end, but people want to know the reason */
    if (other_cause || all_ended) {
        (void)snprintf(m->reason, sizeof m->reason, "%s", d->reason);
        emit_stop(m, d->grace_ns); /* of what workers left */
    }
}

static void on_closed(struct member *m, const struct desired *d) {
    m->closed = true;
    m->stop_cause = *d;
    m->has_stop_cause = true;
    m->start_wanted = false;
    if (m->end.kind == MEMBER_END_LEADER_LOST)
        m->end.kind = MEMBER_END_NONE; /* the lost leader came back, with the outcome */
    if (m->end.kind == MEMBER_END_NONE) {
        decide_end(m, d->outcome == OUTCOME_SUCCESS ? MEMBER_END_SUCCESS : MEMBER_END_FAILED,
                   d->reason);
        m->end.has_failure = d->has_failure;
        m->end.failure = d->failure;
        m->end.no_fault = d->no_fault;
        m->end.restarts_used = d->restarts_used;
        m->end.max_restarts = d->max_restarts;
    }
    end_with_grace(m, d->grace_ns);
}

static void on_desired(struct member *m, const struct desired *d) {
    if (!m->link.connected || d->epoch != m->link.epoch || m->link.leader == 0)
        return;
    m->link.seen_ns = m->now_ns;
    switch (d->kind) {
    case DESIRED_IDLE: on_idle(m, d); break;
    case DESIRED_FORM: on_form(m, d); break;
    case DESIRED_START:
        if (generation_compare(d->generation, m->generation) == 0 && !m->leaving) {
            m->start_wanted = true;
            m->reachability = d->reachability;
            try_start(m);
        }
        break;
    case DESIRED_STOP: on_stop(m, d); break;
    case DESIRED_CLOSED: on_closed(m, d); break;
    case DESIRED_KIND_COUNT: assert_not_reached();
    }
}

/* A lease for another group, or for none, means that this group was given up. */
static bool may_continue(struct member *m, const struct lease *lease, uint64_t end_ns) {
    if (generation_compare(lease->prepared, m->generation) != 0) {
        fence(m);
        return false;
    }
    if (end_ns <= m->now_ns + m->config.rdzv.heartbeat_ns)
        return false; /* none can be granted yet, or only one that ends before the next RENEW */
    move(m, MEMBER_RUNNING);
    member_emit(m, MEMBER_EFFECT_RESUME)->paused_ns = m->paused_ns;
    return true;
}

static void on_lease(struct member *m, const struct lease *lease) {
    if (!m->link.connected || lease->epoch != m->link.epoch ||
        lease->echo_ns < m->link.connected_ns || lease->echo_ns > m->now_ns)
        return;
    m->link.seen_ns = m->now_ns;
    m->link.probe_ns = TIME_NEVER;
    m->link.clock_ns = lease->clock_ns;
    m->link.rtt_ns = MAX2(m->now_ns - lease->echo_ns, (uint64_t)1);
    if (m->config.has_arbiter)
        election_on_lease(m, lease);
    uint64_t end = lease->echo_ns + lease->validity_ns;
    if (lease->validity_ns > 0 && end <= m->now_ns + m->config.rdzv.heartbeat_ns)
        m->link.renew_ns = MIN2(m->link.renew_ns, m->now_ns + m->config.rdzv.heartbeat_ns / 4);
    if (m->state == MEMBER_HELD && !may_continue(m, lease, end))
        return;
    if (lease->validity_ns == 0)
        return;
    m->lease.names = lease->prepared;
    m->lease.names_end_ns = end;
    if (end > m->lease.end_ns) {
        m->lease.end_ns = end;
        if (m->has_workers && !m->fenced)
            member_emit(m, MEMBER_EFFECT_LEASE_END)->lease_end_ns = end;
    }
    if (m->state == MEMBER_RUNNING && m->held_stop) {
        m->held_stop = false;
        stop_workers(m, m->held_grace_ns, m->reason);
    }
    try_start(m);
}

/* ---- events of the launcher ---- */

static void on_prepared(struct member *m, const struct member_event *ev) {
    if (m->state != MEMBER_PREPARING || generation_compare(ev->generation, m->generation) != 0)
        return;
    m->report.reachability = ev->reachability;
    move(m, MEMBER_PREPARED);
    m->link.renew_ns = m->now_ns; /* its answer is the lease that START needs */
    set_report(m, NODE_PREPARED);
    try_start(m);
}

/* The first failure counts, unless it was an effect of this one, which is noticed only now. */
static bool counts(const struct member *m, const struct failure *f) {
    const struct failure *first = &m->report.failure;
    return !m->report.has_failure ||
           (failure_noise(f) < failure_noise(first) && f->at_ns <= first->at_ns + FAILURE_ECHO_NS);
}

static void on_failure(struct member *m, const struct member_event *ev) {
    if (generation_compare(ev->generation, m->generation) != 0 || !counts(m, ev->failure))
        return;
    if (m->has_workers && m->fenced) /* we or the guardian killed it because the lease ended */
        return;
    switch (m->state) {
    case MEMBER_PREPARING: move(m, MEMBER_IDLE); break;
    case MEMBER_RUNNING:
    case MEMBER_HELD:
    case MEMBER_STOPPING: break;
    case MEMBER_SEARCHING:
    case MEMBER_IDLE:
    case MEMBER_PREPARED:
    case MEMBER_ENDED: return;
    case MEMBER_STATE_COUNT: assert_not_reached();
    }
    m->report.has_failure = true;
    m->report.failure = *ev->failure;
    set_report(m, NODE_FAILED);
}

/* A group without a living worker must not count as running. */
static void report_unexplained_end(struct member *m, const struct failure *failure) {
    struct failure unknown = {.kind = FAILURE_NODE, .incarnation = m->config.incarnation};
    struct member_event ev = {.generation = m->generation,
                              .failure = failure != NULL ? failure : &unknown};
    if ((m->state == MEMBER_RUNNING || m->state == MEMBER_HELD) && m->report.state == NODE_RUNNING)
        on_failure(m, &ev);
}

static void on_all_gone(struct member *m, const struct member_event *ev) {
    if (!m->has_workers)
        return;
    report_unexplained_end(m, ev->failure);
    m->has_workers = false;
    if (m->state == MEMBER_HELD) /* nothing is left to hold */
        move(m, m->held_stop ? MEMBER_STOPPING : MEMBER_RUNNING);
    member_emit(m, MEMBER_EFFECT_LEASE_END)->lease_end_ns = TIME_NEVER;
    if (m->end.kind != MEMBER_END_NONE) {
        if (!m->closed)
            set_report(m, NODE_STOPPED);
        finish(m);
        return;
    }
    if (m->state != MEMBER_STOPPING)
        return; /* finished or failed: STOP or CLOSED follows */
    move(m, MEMBER_IDLE);
    set_report(m, NODE_STOPPED);
    if (m->has_stop_cause && generation_compare(m->stop_cause.generation, m->generation) > 0) {
        struct desired d = m->stop_cause;
        on_stop(m, &d);
    }
    if (m->has_later) {
        struct desired d = m->later;
        on_form(m, &d);
    }
}

static void leave(struct member *m) {
    m->leave_by_ns = TIME_NEVER;
    decide_end(m, MEMBER_END_LEFT, m->report.leaving_why);
    send_report(m);
    end_with_grace(m, m->leave_grace_ns);
}

/* It may lead next. If it left, no node would record that nothing runs any more, and an epoch that
 * it has claimed would be that of a dead agent. */
static bool is_awaited(const struct member *m) {
    return m->config.has_arbiter && m->state != MEMBER_RUNNING && election_may_lead_next(m);
}

static void on_leave(struct member *m, const struct member_event *ev) {
    if (m->leaving) { /* asked a second time: no more grace */
        if (m->has_workers)
            fence(m);
        if (m->end.kind == MEMBER_END_NONE)
            leave(m);
        return;
    }
    m->leaving = m->report.leaving = true;
    m->leave_grace_ns = ev->grace_ns;
    utf8_copy(m->report.leaving_why, sizeof m->report.leaving_why, ev->reason);
    if (!is_awaited(m)) {
        leave(m);
        return;
    }
    m->leave_by_ns = m->now_ns + LEADERLESS_LEAVE_NS;
    if (m->has_workers)
        stop_workers(m, ev->grace_ns, m->report.leaving_why);
}

/* ---- outcomes of the election ---- */

void member_close(struct member *m, const struct arbiter_record *r) {
    struct desired d = {.kind = DESIRED_CLOSED,
                        .epoch = r->epoch,
                        .grace_ns = UINT64_MAX,
                        .outcome = r->outcome,
                        .restarts_used = m->report.restarts_used};
    memcpy(d.reason, r->reason, sizeof d.reason);
    m->end.was_closed = generation_is_none(m->generation);
    m->end.was_over = m->found_closed;
    on_closed(m, &d);
}

void member_end_without_leader(struct member *m, const char *why, uint64_t grace_ns) {
    decide_end(m, MEMBER_END_LEADER_LOST, why);
    end_with_grace(m, MIN2(lease_left(&m->lease, m->now_ns), grace_ns));
}

static void election_time_passes(struct member *m) {
    if (m->end.kind != MEMBER_END_NONE)
        return;
    if (election_leader_is_silent(m))
        election_lose_leader(m, false, "the leader grants no lease any more");
    election_time(m);
}

static void check_leader(struct member *m) {
    if (m->now_ns >= m->link.probe_ns ||
        (m->link.probe_ns == TIME_NEVER && !m->link.probing &&
         m->now_ns > m->link.seen_ns + SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns))
        link_probe(m);
}

static uint64_t workers_deadline(const struct member *m) {
    if (!m->has_workers || m->fenced)
        return TIME_NEVER;
    return m->state == MEMBER_HELD ? m->held_until_ns : m->lease.end_ns;
}

static void hold(struct member *m) {
    if (m->state == MEMBER_RUNNING) {
        m->held_stop = false;
        move(m, MEMBER_HELD);
        (void)member_emit(m, MEMBER_EFFECT_HOLD);
        m->link.renew_ns = MIN2(m->link.renew_ns, m->now_ns);
    }
    member_emit(m, MEMBER_EFFECT_LEASE_END)->lease_end_ns = m->held_until_ns;
}

/* If the whole job was paused, the other nodes need some time to wake, too, and for a while the
 * leader can grant only what is left of leases from before the pause. */
static void forgive_own_sleep(struct member *m) {
    m->link.seen_ns = m->since_ns = m->now_ns;
    election_forgive_sleep(m);
    if (m->state != MEMBER_HELD)
        m->paused_ns = 0;
    m->paused_ns += m->now_ns - m->due_ns;
    m->held_until_ns = m->now_ns + m->config.rdzv.lease_ns + m->config.rdzv.margin_ns;
    if (m->state == MEMBER_HELD)
        hold(m);
}

/* The workers' time is over: they are killed, but only held soon after a sleep. */
static void on_workers_deadline(struct member *m) {
    if (m->state == MEMBER_RUNNING && m->now_ns < m->held_until_ns && !m->report.has_failure &&
        m->end.kind == MEMBER_END_NONE)
        hold(m);
    else
        fence(m);
}

static void on_time(struct member *m) {
    if (m->now_ns >= workers_deadline(m))
        on_workers_deadline(m);
    if (m->leave_by_ns != TIME_NEVER && (m->now_ns >= m->leave_by_ns || !is_awaited(m)))
        leave(m);
    if (m->state == MEMBER_ENDED)
        return;
    if (m->link.connected && m->now_ns >= m->link.renew_ns)
        member_renew(m);
    if (m->config.has_arbiter) {
        if (m->end.kind == MEMBER_END_NONE && election_has_leader(m))
            check_leader(m);
        election_time_passes(m);
        return;
    }
    if (m->state == MEMBER_SEARCHING) {
        if (m->now_ns >= m->since_ns + m->config.rdzv.join_timeout_ns) {
            decide_end(m, MEMBER_END_LEADER_LOST,
                       "no leader admitted this node within the join timeout");
            finish(m);
        }
        return;
    }
    if (m->end.kind != MEMBER_END_NONE)
        return;
    if (m->now_ns >= m->link.seen_ns + m->config.rdzv.leader_timeout_ns)
        leader_gone(m, "the leader has been silent for the leader timeout");
    else
        check_leader(m);
}

static uint64_t next_deadline(const struct member *m) {
    if (m->state == MEMBER_ENDED)
        return TIME_NEVER;
    uint64_t t = m->link.connected ? m->link.renew_ns : TIME_NEVER;
    t = MIN2(t, MIN2(m->leave_by_ns, workers_deadline(m)));
    if (m->config.has_arbiter && m->end.kind == MEMBER_END_NONE)
        t = MIN2(t, election_deadline(m));
    else if (m->state == MEMBER_SEARCHING)
        return MIN2(t, m->since_ns + m->config.rdzv.join_timeout_ns);
    if (m->end.kind != MEMBER_END_NONE)
        return t;
    if (m->config.has_arbiter && !election_has_leader(m))
        return t;
    t = MIN2(t, m->link.probe_ns);
    if (!m->config.has_arbiter)
        t = MIN2(t, m->link.seen_ns + m->config.rdzv.leader_timeout_ns);
    if (!m->link.probing && m->link.probe_ns == TIME_NEVER)
        t = MIN2(t, m->link.seen_ns + SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns + 1);
    return t;
}

static bool is_of_election(enum member_event_kind kind) {
    return kind >= MEMBER_EVENT_NAMED && kind <= MEMBER_EVENT_DEPOSED;
}

static void dispatch(struct member *m, const struct member_event *ev) {
    if (!m->config.has_arbiter && is_of_election(ev->kind))
        return;
    if (ev->first_step != 0 && generation_compare(ev->generation, m->generation) == 0) {
        m->report.first_step = ev->first_step;
        m->report.last_step = ev->last_step;
    }
    switch (ev->kind) {
    case MEMBER_EVENT_TIME: break;
    case MEMBER_EVENT_WELCOME: on_welcome(m, ev); break;
    case MEMBER_EVENT_REFUSED:
        decide_end(m, MEMBER_END_REFUSED, ev->reason);
        end_with_grace(m, UINT64_MAX);
        break;
    case MEMBER_EVENT_DISCONNECT: on_disconnect(m, ev->reason); break;
    case MEMBER_EVENT_DESIRED: on_desired(m, ev->desired); break;
    case MEMBER_EVENT_LEASE: on_lease(m, &ev->lease); break;
    case MEMBER_EVENT_PROBE: on_probe(m, ev->probe); break;
    case MEMBER_EVENT_PREPARED: on_prepared(m, ev); break;
    case MEMBER_EVENT_FENCED:
        if (m->has_workers && generation_compare(ev->generation, m->generation) == 0)
            fence(m);
        break;
    case MEMBER_EVENT_FAILURE: on_failure(m, ev); break;
    case MEMBER_EVENT_SUCCEEDED:
        if ((m->state == MEMBER_RUNNING || m->state == MEMBER_HELD) &&
            m->report.state == NODE_RUNNING &&
            generation_compare(ev->generation, m->generation) == 0)
            set_report(m, NODE_FINISHED);
        break;
    case MEMBER_EVENT_ALL_GONE: on_all_gone(m, ev); break;
    case MEMBER_EVENT_UNKILLABLE:
        (void)snprintf(m->report.unusable, sizeof m->report.unusable, "%s", ev->reason);
        send_report(m);
        if (m->end.kind != MEMBER_END_NONE)
            finish(m);
        break;
    case MEMBER_EVENT_LEAVE: on_leave(m, ev); break;
    case MEMBER_EVENT_NAMED: election_on_named(m, ev->successors); break;
    case MEMBER_EVENT_HANDOVER: election_on_handover(m, ev->handover); break;
    case MEMBER_EVENT_ARBITER: election_on_answer(m, ev->answer); break;
    case MEMBER_EVENT_JOINER: election_on_joiner(m, ev->joiner, true); break;
    case MEMBER_EVENT_JOINER_GONE: election_on_joiner(m, ev->joiner, false); break;
    case MEMBER_EVENT_PEER_PROBE: election_on_peer_probe(m, ev->joiner, ev->probe); break;
    case MEMBER_EVENT_REDIRECT: election_on_redirect(m, ev->epoch, ev->peer); break;
    case MEMBER_EVENT_DEPOSED: election_on_deposed(m); break;
    case MEMBER_EVENT_SAFE_POINT:
        if ((m->state == MEMBER_RUNNING || m->state == MEMBER_STOPPING) &&
            generation_compare(ev->generation, m->generation) == 0) {
            m->report.at_safe_point = true; /* only in this report */
            send_report(m);
        }
        break;
    case MEMBER_EVENT_STEP:
        if (m->state == MEMBER_RUNNING)
            send_report(m);
        break;
    case MEMBER_EVENT_DOMAIN:
        utf8_copy(m->report.domain, sizeof m->report.domain, ev->domain);
        utf8_copy(m->report.fabric, sizeof m->report.fabric, ev->fabric);
        send_report(m);
        break;
    case MEMBER_EVENT_HEALTH:
        utf8_copy_line(m->report.sick, sizeof m->report.sick, ev->sick);
        m->report.xid = ev->xid;
        m->report.gpu = ev->gpu;
        send_report(m);
        break;
    case MEMBER_EVENT_KIND_COUNT: assert_not_reached();
    }
}

void member_step(struct member *m, const struct member_event *event, struct member_update *ret) {
    assert(event->now_ns >= m->now_ns);
    m->now_ns = event->now_ns;
    m->update = ret;
    ret->n_effects = 0;
    m->n_requests = 0;
    m->report.at_safe_point = false;
    if (m->state != MEMBER_ENDED) {
        if (m->now_ns > m->due_ns && m->now_ns - m->due_ns > m->config.rdzv.heartbeat_ns / 2)
            forgive_own_sleep(m);
        /* After a sleep the end of the lease is handled before the events that have accumulated. */
        if (m->now_ns >= workers_deadline(m))
            on_workers_deadline(m);
        dispatch(m, event);
        if (m->state != MEMBER_ENDED)
            on_time(m);
        if (m->config.has_arbiter)
            election_set_join_policy(m, m->state == MEMBER_ENDED);
    }
    ret->deadline_ns = m->due_ns = next_deadline(m);
    m->update = NULL;
    m->report.epoch = m->link.epoch;
    member_check(m);
}

enum member_state member_state(const struct member *m) { return m->state; }
const struct report *member_report(const struct member *m) { return &m->report; }
const struct form *member_form(const struct member *m) { return &m->form; }
const struct desired *member_stop_cause(const struct member *m) {
    return m->has_stop_cause ? &m->stop_cause : NULL;
}
const struct member_end *member_end(const struct member *m) { return &m->end; }
struct generation member_generation(const struct member *m) {
    return m->generation;
}
uint64_t member_lease_end(const struct member *m) { return m->lease.end_ns; }
bool member_has_workers(const struct member *m) { return m->has_workers; }

void member_check(const struct member *m) {
    assert(m->state != MEMBER_ENDED || m->end.kind != MEMBER_END_NONE);
    assert(!m->has_workers || m->state == MEMBER_RUNNING || m->state == MEMBER_STOPPING ||
           m->state == MEMBER_HELD || m->report.unusable[0] != '\0');
    assert((m->state != MEMBER_STOPPING && m->state != MEMBER_HELD) || m->has_workers);
    assert(m->state != MEMBER_PREPARED || m->report.state == NODE_PREPARED);
}

enum member_election member_election(const struct member *m) { return m->election; }
uint32_t member_epoch(const struct member *m) { return m->link.epoch; }
const char *member_waiting(const struct member *m) { return m->waiting; }

bool member_leader(const struct member *m, struct rdzv_peer *ret) {
    if (m->leader_peer.incarnation == 0 || m->election == ELECTION_SEEKING ||
        m->election == ELECTION_CLAIMING)
        return false;
    *ret = m->leader_peer;
    return true;
}
