#include "rendezvous/member/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "rendezvous/member/member_priv.h"
#include "rendezvous/member/step.h"

struct member_effect *step_emit(const struct step *s, enum member_effect_kind kind) {
    struct member_update *u = s->update;
    if (u->n_effects == u->cap) {
        u->cap = u->cap == 0 ? 8 : u->cap * 2;
        u->effects = xrealloc(u->effects, u->cap * sizeof *u->effects);
    }
    u->effects[u->n_effects] = (struct member_effect){.kind = kind};
    return &u->effects[u->n_effects++];
}

void link_probe(const struct step *s) {
    s->link->probe_ns = TIME_NEVER;
    if (s->link->probing)
        return;
    s->link->probing = true;
    (void)step_emit(s, MEMBER_EFFECT_PROBE);
}

/* How long a node that is asked to leave, and may be the next leader, waits to be it. */
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
    m->since_ns = now_ns;
    m->step = (struct step){.now_ns = now_ns, .config = &m->config, .link = &m->link};
    m->due_ns = m->leave_by_ns = TIME_NEVER;
    m->link.renew_ns = m->link.probe_ns = TIME_NEVER;
    m->link.probe_wait_ns = PROBE_RETRY_MIN_NS;
    m->report.state = NODE_JOINED;
    election_init(&m->election, config, now_ns);
    *ret = m;
    return 0;
}

void member_free(struct member *m) {
    if (m == NULL)
        return;
    election_fini(&m->election);
    free(m);
}

void member_update_fini(struct member_update *u) {
    free(u->effects);
    *u = (struct member_update){0};
}

/* ---- effects ---- */

/* Between JOIN and WELCOME no report can be sent, and JOIN may contain an older one: then it is
 * repeated after WELCOME. */
void member_send_report(struct member *m) {
    m->report_due = !m->link.connected;
    if (!m->link.connected)
        return;
    (void)step_emit(&m->step, MEMBER_EFFECT_REPORT);
    if (m->link.renew_ns != TIME_NEVER &&
        m->link.renew_ns <= m->step.now_ns + m->config.rdzv.heartbeat_ns / 2)
        member_renew(m); /* one packet instead of two */
}

/* Sends the report with the next RENEW, which is sent a little early. */
static void send_report_soon(struct member *m) {
    m->report_due = true;
    if (m->link.connected)
        m->link.renew_ns = MIN2(m->link.renew_ns, m->step.now_ns + m->config.rdzv.heartbeat_ns / 4);
}

void member_renew(struct member *m) {
    if (!m->link.connected)
        return;
    if (m->report_due) {
        m->report_due = false;
        (void)step_emit(&m->step, MEMBER_EFFECT_REPORT);
    }
    step_emit(&m->step, MEMBER_EFFECT_RENEW)->renew = (struct renew){
        .clock_ns = m->step.now_ns,
        .leader_clock_ns = m->link.clock_ns,
        .rtt_ns = m->link.rtt_ns,
        .epoch = m->link.epoch,
    };
    m->link.renew_ns = m->step.now_ns + m->config.rdzv.heartbeat_ns;
}

void member_move(struct member *m, enum member_state to) {
    assert(member_may_move(m->state, to));
    m->state = to;
}

void member_set_report(struct member *m, enum node_state state) {
    m->report.state = state;
    m->report.generation = m->generation;
    m->report.finished = m->report.finished || state == NODE_FINISHED;
    if (state == NODE_RUNNING)
        /* nobody waits for it, and thousands of nodes would send it at once */
        send_report_soon(m);
    else
        member_send_report(m);
}

/* ---- the end ---- */

/* Only the first decision counts. */
void member_decide_end(struct member *m, enum member_end_kind kind, const char *reason) {
    if (m->end.kind != MEMBER_END_NONE)
        return;
    m->end.kind = kind;
    (void)snprintf(m->end.reason, sizeof m->end.reason, "%s", reason);
}

static void finish(struct member *m) {
    if (m->state == MEMBER_ENDED)
        return;
    if (m->closed)
        member_set_report(m, NODE_CLOSED);
    else if (m->leaving && m->link.connected)
        (void)step_emit(&m->step, MEMBER_EFFECT_SEND_LEAVE);
    member_move(m, MEMBER_ENDED);
    (void)step_emit(&m->step, MEMBER_EFFECT_END);
}

void member_fence(struct member *m) {
    if (m->fenced)
        return;
    m->fenced = true;
    if (m->state == MEMBER_RUNNING || m->state == MEMBER_HELD)
        member_move(m, MEMBER_STOPPING);
    (void)step_emit(&m->step, MEMBER_EFFECT_FENCE);
}

void member_stop_workers(struct member *m, uint64_t grace_ns, const char *reason) {
    assert(m->has_workers);
    (void)snprintf(m->reason, sizeof m->reason, "%s", reason);
    if (m->state == MEMBER_HELD) { /* the grace begins with the lease */
        m->held_stop = true;
        m->held_grace_ns = grace_ns;
        return;
    }
    if (m->state == MEMBER_RUNNING)
        member_move(m, MEMBER_STOPPING);
    struct member_effect *e = step_emit(&m->step, MEMBER_EFFECT_STOP);
    e->generation = m->generation;
    e->grace_ns = grace_ns;
    e->reason = m->reason;
}

/* Ends as decided: at once if there are no workers; else when they are gone, or can't be killed. */
void member_end_with_grace(struct member *m, uint64_t grace_ns) {
    if (m->has_workers && m->report.unusable[0] == '\0')
        member_stop_workers(m, grace_ns, m->end.reason);
    else
        finish(m);
}

/* The workers get the rest of the lease to end. The report of workers that have ended does not
 * change. */
static void stop_for_leader(struct member *m, const char *why) {
    uint64_t left = lease_left(&m->lease, m->step.now_ns);
    m->start_wanted = false;
    m->lease.names = (struct generation){0, 0};
    if (m->has_workers && m->report.state != NODE_FINISHED && !m->fenced) {
        if (m->state == MEMBER_HELD)
            member_fence(m); /* no lease will come */
        else
            member_stop_workers(m, left, why);
    } else if (m->state == MEMBER_PREPARING || m->state == MEMBER_PREPARED) {
        member_move(m, MEMBER_IDLE);
        member_set_report(m, NODE_STOPPED);
    }
}

/* ---- events of the launcher ---- */

static void on_prepared(struct member *m, const struct member_event *ev) {
    if (m->state != MEMBER_PREPARING || generation_compare(ev->generation, m->generation) != 0)
        return;
    m->report.reachability = ev->reachability;
    member_move(m, MEMBER_PREPARED);
    m->link.renew_ns = m->step.now_ns; /* its answer is the lease that START needs */
    member_set_report(m, NODE_PREPARED);
    member_try_start(m);
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
    case MEMBER_PREPARING: member_move(m, MEMBER_IDLE); break;
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
    member_set_report(m, NODE_FAILED);
}

/* A group without a living worker must not count as running. If no other event explains the end of
 * the workers, it is a failure of the node. */
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
        member_move(m, m->held_stop ? MEMBER_STOPPING : MEMBER_RUNNING);
    step_emit(&m->step, MEMBER_EFFECT_LEASE_END)->lease_end_ns = TIME_NEVER;
    if (m->end.kind != MEMBER_END_NONE) {
        if (!m->closed)
            member_set_report(m, NODE_STOPPED);
        finish(m);
        return;
    }
    if (m->state != MEMBER_STOPPING)
        return; /* finished or failed: STOP or CLOSED follows */
    member_move(m, MEMBER_IDLE);
    member_set_report(m, NODE_STOPPED);
    if (m->has_stop_cause && generation_compare(m->stop_cause.generation, m->generation) > 0) {
        struct desired d = m->stop_cause;
        member_on_stop(m, &d);
    }
    if (m->has_later) {
        struct desired d = m->later;
        member_on_form(m, &d);
    }
}

static void leave(struct member *m) {
    m->leave_by_ns = TIME_NEVER;
    member_decide_end(m, MEMBER_END_LEFT, m->report.leaving_why);
    member_send_report(m);
    member_end_with_grace(m, m->leave_grace_ns);
}

/* This node may be the one that leads next. If it left, nobody would record that nothing runs any
 * more, and if it won the epoch that it has claimed, the epoch would be that of a dead agent. */
static bool is_awaited(const struct member *m) {
    return m->config.has_arbiter && m->state != MEMBER_RUNNING &&
           election_may_lead_next(&m->election, &m->link);
}

static void on_leave(struct member *m, const struct member_event *ev) {
    if (m->leaving) { /* asked a second time: no more grace */
        if (m->has_workers)
            member_fence(m);
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
    m->leave_by_ns = m->step.now_ns + LEADERLESS_LEAVE_NS;
    m->election.leaving = true;
    if (m->has_workers)
        member_stop_workers(m, ev->grace_ns, m->report.leaving_why);
}

/* ---- outcomes of the election ---- */

/* This node has disconnected: its workers end, and then it searches for the next leader. why_seek:
 * NULL if that is not new. */
static void leave_leader(struct member *m, const char *why, const char *why_seek) {
    stop_for_leader(m, why);
    if (m->state != MEMBER_ENDED && m->end.kind == MEMBER_END_NONE)
        election_seek(&m->election, &m->step, why_seek);
}

void member_lose_leader(struct member *m, bool gone, const char *why) {
    if (election_lose_leader(&m->election, &m->step, gone))
        leave_leader(m, why, why);
}

static void on_closed_record(struct member *m, const struct arbiter_record *r) {
    struct desired d = {.kind = DESIRED_CLOSED,
                        .epoch = r->epoch,
                        .grace_ns = UINT64_MAX,
                        .outcome = r->outcome,
                        .restarts_used = m->report.restarts_used};
    memcpy(d.reason, r->reason, sizeof d.reason);
    m->end.was_closed = generation_is_none(m->generation);
    m->end.was_over = m->election.found_closed;
    member_on_closed(m, &d);
}

static void obey_election(struct member *m, const struct election_outcome *o) {
    switch (o->kind) {
    case ELECTION_GOES_ON: break;
    case ELECTION_JOB_CLOSED: on_closed_record(m, &m->election.record); break;
    case ELECTION_FAILED:
        member_decide_end(m, MEMBER_END_LEADER_LOST, o->reason);
        member_end_with_grace(m, MIN2(lease_left(&m->lease, m->step.now_ns), o->grace_ns));
        break;
    }
}

static void on_answer(struct member *m, const struct arbiter_answer *answer) {
    struct election_outcome o = election_on_answer(&m->election, &m->step, answer);
    obey_election(m, &o);
}

static void election_time_passes(struct member *m) {
    if (m->end.kind != MEMBER_END_NONE)
        return;
    if (election_leader_is_silent(&m->election, &m->step))
        member_lose_leader(m, false, "the leader grants no lease any more");
    struct election_outcome o = election_time(&m->election, &m->step);
    obey_election(m, &o);
}

/* ---- time ---- */

static void check_leader(struct member *m) {
    if (m->step.now_ns >= m->link.probe_ns ||
        (m->link.probe_ns == TIME_NEVER && !m->link.probing &&
         m->step.now_ns > m->link.seen_ns + SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns))
        link_probe(&m->step);
}

static uint64_t workers_deadline(const struct member *m) {
    if (!m->has_workers || m->fenced)
        return TIME_NEVER;
    return m->state == MEMBER_HELD ? m->held_until_ns : m->lease.end_ns;
}

/* The workers are stopped until there is a lease. */
static void hold(struct member *m) {
    if (m->state == MEMBER_RUNNING) {
        m->held_stop = false;
        member_move(m, MEMBER_HELD);
        (void)step_emit(&m->step, MEMBER_EFFECT_HOLD);
        m->link.renew_ns = MIN2(m->link.renew_ns, m->step.now_ns);
    }
    step_emit(&m->step, MEMBER_EFFECT_LEASE_END)->lease_end_ns = m->held_until_ns;
}

/* After this node itself slept: the silence of others during that time does not count. If the whole
 * job was paused, the other nodes need some time to wake, too, and for a while the leader can grant
 * only what is left of leases from before the pause. */
static void forgive_own_sleep(struct member *m) {
    m->link.seen_ns = m->since_ns = m->step.now_ns;
    election_forgive_sleep(&m->election, &m->step);
    if (m->state != MEMBER_HELD)
        m->paused_ns = 0;
    m->paused_ns += m->step.now_ns - m->due_ns;
    m->held_until_ns = m->step.now_ns + m->config.rdzv.lease_ns + m->config.rdzv.margin_ns;
    if (m->state == MEMBER_HELD)
        hold(m);
}

/* The workers' time is over: they are killed, but only held soon after a sleep. */
static void on_workers_deadline(struct member *m) {
    if (m->state == MEMBER_RUNNING && m->step.now_ns < m->held_until_ns && !m->report.has_failure &&
        m->end.kind == MEMBER_END_NONE)
        hold(m);
    else
        member_fence(m);
}

static void on_time(struct member *m) {
    if (m->step.now_ns >= workers_deadline(m))
        on_workers_deadline(m);
    if (m->leave_by_ns != TIME_NEVER && (m->step.now_ns >= m->leave_by_ns || !is_awaited(m)))
        leave(m);
    if (m->state == MEMBER_ENDED)
        return;
    if (m->link.connected && m->step.now_ns >= m->link.renew_ns)
        member_renew(m);
    if (m->config.has_arbiter) {
        if (m->end.kind == MEMBER_END_NONE && election_has_leader(&m->election, &m->link))
            check_leader(m);
        election_time_passes(m);
        return;
    }
    if (m->state == MEMBER_SEARCHING) {
        if (m->step.now_ns >= m->since_ns + m->config.rdzv.join_timeout_ns) {
            member_decide_end(m, MEMBER_END_LEADER_LOST,
                              "no leader admitted this node within the join timeout");
            finish(m);
        }
        return;
    }
    if (m->end.kind != MEMBER_END_NONE)
        return;
    if (m->step.now_ns >= m->link.seen_ns + m->config.rdzv.leader_timeout_ns)
        member_leader_gone(m, "the leader has been silent for the leader timeout");
    else
        check_leader(m);
}

static uint64_t next_deadline(const struct member *m) {
    if (m->state == MEMBER_ENDED)
        return TIME_NEVER;
    uint64_t t = m->link.connected ? m->link.renew_ns : TIME_NEVER;
    t = MIN2(t, MIN2(m->leave_by_ns, workers_deadline(m)));
    if (m->config.has_arbiter && m->end.kind == MEMBER_END_NONE)
        t = MIN2(t, election_deadline(&m->election, &m->step));
    else if (m->state == MEMBER_SEARCHING)
        return MIN2(t, m->since_ns + m->config.rdzv.join_timeout_ns);
    if (m->end.kind != MEMBER_END_NONE)
        return t;
    if (m->config.has_arbiter && !election_has_leader(&m->election, &m->link))
        return t;
    t = MIN2(t, m->link.probe_ns);
    if (!m->config.has_arbiter)
        t = MIN2(t, m->link.seen_ns + m->config.rdzv.leader_timeout_ns);
    if (!m->link.probing && m->link.probe_ns == TIME_NEVER)
        t = MIN2(t, m->link.seen_ns + SILENT_HEARTBEATS * m->config.rdzv.heartbeat_ns + 1);
    return t;
}

/* ---- the step ---- */

static void dispatch_election(struct member *m, const struct member_event *ev) {
    struct election *e = &m->election;
    const struct step *s = &m->step;
    switch (ev->kind) {
    case MEMBER_EVENT_NAMED:
        if (election_on_named(e, s, ev->successors))
            member_renew(m);
        break;
    case MEMBER_EVENT_HANDOVER: election_on_handover(e, s, ev->handover); break;
    case MEMBER_EVENT_ARBITER: on_answer(m, ev->answer); break;
    case MEMBER_EVENT_JOINER: election_on_joiner(e, ev->joiner, true); break;
    case MEMBER_EVENT_JOINER_GONE: election_on_joiner(e, ev->joiner, false); break;
    case MEMBER_EVENT_PEER_PROBE: election_on_peer_probe(e, ev->joiner, ev->probe); break;
    case MEMBER_EVENT_REDIRECT: election_on_redirect(e, s, ev->epoch, ev->peer); break;
    case MEMBER_EVENT_DEPOSED:
        if (election_on_deposed(e, s))
            leave_leader(m, "another node leads this job now", NULL);
        break;
    case MEMBER_EVENT_TIME:
    case MEMBER_EVENT_WELCOME:
    case MEMBER_EVENT_REFUSED:
    case MEMBER_EVENT_DISCONNECT:
    case MEMBER_EVENT_DESIRED:
    case MEMBER_EVENT_LEASE:
    case MEMBER_EVENT_PROBE:
    case MEMBER_EVENT_PREPARED:
    case MEMBER_EVENT_FENCED:
    case MEMBER_EVENT_FAILURE:
    case MEMBER_EVENT_SUCCEEDED:
    case MEMBER_EVENT_ALL_GONE:
    case MEMBER_EVENT_UNKILLABLE:
    case MEMBER_EVENT_LEAVE:
    case MEMBER_EVENT_SAFE_POINT:
    case MEMBER_EVENT_KIND_COUNT: assert_not_reached();
    }
}

static void dispatch(struct member *m, const struct member_event *ev) {
    switch (ev->kind) {
    case MEMBER_EVENT_TIME: break;
    case MEMBER_EVENT_WELCOME: member_on_welcome(m, ev); break;
    case MEMBER_EVENT_REFUSED:
        member_decide_end(m, MEMBER_END_REFUSED, ev->reason);
        member_end_with_grace(m, UINT64_MAX);
        break;
    case MEMBER_EVENT_DISCONNECT: member_on_disconnect(m, ev->reason); break;
    case MEMBER_EVENT_DESIRED: member_on_desired(m, ev->desired); break;
    case MEMBER_EVENT_LEASE: member_on_lease(m, &ev->lease); break;
    case MEMBER_EVENT_PROBE: member_on_probe(m, ev->probe); break;
    case MEMBER_EVENT_PREPARED: on_prepared(m, ev); break;
    case MEMBER_EVENT_FENCED:
        if (m->has_workers && generation_compare(ev->generation, m->generation) == 0)
            member_fence(m);
        break;
    case MEMBER_EVENT_FAILURE: on_failure(m, ev); break;
    case MEMBER_EVENT_SUCCEEDED:
        if ((m->state == MEMBER_RUNNING || m->state == MEMBER_HELD) &&
            m->report.state == NODE_RUNNING &&
            generation_compare(ev->generation, m->generation) == 0)
            member_set_report(m, NODE_FINISHED);
        break;
    case MEMBER_EVENT_ALL_GONE: on_all_gone(m, ev); break;
    case MEMBER_EVENT_UNKILLABLE:
        (void)snprintf(m->report.unusable, sizeof m->report.unusable, "%s", ev->reason);
        member_send_report(m);
        if (m->end.kind != MEMBER_END_NONE)
            finish(m);
        break;
    case MEMBER_EVENT_LEAVE: on_leave(m, ev); break;
    case MEMBER_EVENT_NAMED:
    case MEMBER_EVENT_HANDOVER:
    case MEMBER_EVENT_ARBITER:
    case MEMBER_EVENT_JOINER:
    case MEMBER_EVENT_JOINER_GONE:
    case MEMBER_EVENT_PEER_PROBE:
    case MEMBER_EVENT_REDIRECT:
    case MEMBER_EVENT_DEPOSED:
        if (m->config.has_arbiter)
            dispatch_election(m, ev);
        break;
    case MEMBER_EVENT_SAFE_POINT:
        if ((m->state == MEMBER_RUNNING || m->state == MEMBER_STOPPING) &&
            generation_compare(ev->generation, m->generation) == 0) {
            m->report.at_safe_point = true; /* only in this report */
            member_send_report(m);
        }
        break;
    case MEMBER_EVENT_KIND_COUNT: assert_not_reached();
    }
}

void member_step(struct member *m, const struct member_event *event, struct member_update *ret) {
    assert(event->now_ns >= m->step.now_ns);
    m->step.now_ns = event->now_ns;
    m->step.update = ret;
    m->step.ending = m->end.kind != MEMBER_END_NONE;
    ret->n_effects = 0;
    m->election.n_requests = 0;
    m->report.at_safe_point = false;
    if (m->state != MEMBER_ENDED) {
        /* The leader's silence does not count while this node itself slept. */
        if (m->step.now_ns > m->due_ns &&
            m->step.now_ns - m->due_ns > m->config.rdzv.heartbeat_ns / 2)
            forgive_own_sleep(m);
        /* After a sleep the end of the lease is handled before the events that have accumulated. */
        if (m->step.now_ns >= workers_deadline(m))
            on_workers_deadline(m);
        dispatch(m, event);
        if (m->state != MEMBER_ENDED)
            on_time(m);
        if (m->config.has_arbiter)
            election_set_join_policy(&m->election, &m->step, m->state == MEMBER_ENDED);
    }
    ret->deadline_ns = m->due_ns = next_deadline(m);
    m->step.update = NULL;
    m->report.epoch = m->link.epoch;
    member_check(m);
}

/* ---- state for others ---- */

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

enum member_election member_election(const struct member *m) { return m->election.state; }
uint32_t member_epoch(const struct member *m) { return m->link.epoch; }
const char *member_waiting(const struct member *m) { return m->election.waiting; }

bool member_leader(const struct member *m, struct rdzv_peer *ret) {
    const struct election *e = &m->election;
    if (e->leader_peer.incarnation == 0 || e->state == ELECTION_SEEKING ||
        e->state == ELECTION_CLAIMING)
        return false;
    *ret = e->leader_peer;
    return true;
}
