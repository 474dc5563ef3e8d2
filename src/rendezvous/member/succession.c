/* When this node may claim the next epoch, and with what it begins (muster-rendezvous(7),
 * "Succession", rules 1, 2, 4 and 7). */
#include <stdio.h>
#include <string.h>

#include "rendezvous/member/member_priv.h"

/* The i-th successor acts so much later than the one before it. */
#define SUCCESSOR_STEP_NS (3 * NS_PER_S)
#define PEER_PROBE_NS (100 * NS_PER_MS)
#define CLAIM_RETRY_NS (200 * NS_PER_MS)
#define ARBITER_MARGIN_PART 50

bool succession_is_named(const struct member *m) {
    return m->successor_index >= 0 && m->has_handover;
}

void succession_forget(struct member *m) {
    m->named = (struct successors){0};
    m->successor_index = -1;
    m->has_handover = false;
    handover_fini(&m->handover);
    m->may_claim_ns = TIME_NEVER;
}

/* ---- being named ---- */

static int index_in(const struct successors *s, uint64_t incarnation) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].incarnation == incarnation)
            return (int)i;
    return -1;
}

void succession_on_named(struct member *m, const struct successors *s) {
    if (!m->config.has_arbiter || !m->connected || s->epoch < m->epoch ||
        s->n > RDZV_SUCCESSORS_MAX)
        return;
    member_set_epoch(m, s->epoch);
    m->named = *s;
    m->successor_index = index_in(s, m->config.incarnation);
    memset(m->successor_gone, 0, sizeof m->successor_gone);
    m->has_handover = false; /* it follows */
    if (m->successor_index != 0)
        return;
    m->successor_base_ns = m->now_ns;
    member_renew(m); /* the answer is what it echoes first */
}

void succession_on_handover(struct member *m, const struct handover *e) {
    if (!m->config.has_arbiter || !m->connected || m->successor_index < 0 ||
        e->epoch != m->named.epoch)
        return;
    handover_copy(&m->handover, e);
    m->has_handover = true;
}

void succession_on_lease(struct member *m, const struct lease *lease) {
    if (!m->config.has_arbiter || m->successor_index != 0 || m->named.epoch != lease->epoch)
        return;
    m->successor_base_ns = m->now_ns;
    wire_small_set(&member_emit(m, MEMBER_EFFECT_SEND)->message, WIRE_ECHO,
                   &(struct echo){.epoch = lease->epoch, .leader_clock_ns = lease->clock_ns});
}

/* ---- whether it may claim ---- */

void succession_on_peer_probe(struct member *m, uint64_t incarnation, enum probe_result result) {
    int i = index_in(&m->named, incarnation);
    if (i >= 0 && result == PROBE_GONE)
        m->successor_gone[i] = true;
}

/* The leader is gone, or silent also where it shows life: its beat has stood still for a lease. */
static bool leader_is_over(const struct member *m) {
    if (m->leader_gone)
        return true;
    return m->record_ns != 0 && m->record.epoch == m->named.epoch && m->record_ns > m->beat_ns &&
           m->record_ns - m->beat_ns >= m->config.rdzv.lease_ns;
}

/* Those who came, and this one, could form a group. Where the leader is surely gone and nobody else
 * comes, somebody has to end the job. */
static bool enough_came(const struct member *m) {
    size_t nodes = m->parked.len + 1;
    nodes -= nodes % m->config.rdzv.node_unit;
    if (nodes >= m->config.rdzv.min_nodes)
        return true;
    return m->leader_gone && m->now_ns >= m->lost_ns + m->config.rdzv.lease_ns;
}

static bool predecessors_gone(const struct member *m) {
    for (int i = 0; i < m->successor_index; i++)
        if (!m->successor_gone[i])
            return false;
    return true;
}

static bool wants_to_claim(const struct member *m) {
    return m->election == ELECTION_SEEKING && succession_is_named(m) && m->ruined_ns == 0 &&
           m->record.epoch <= m->named.epoch && leader_is_over(m) && enough_came(m);
}

static uint64_t claim_due(const struct member *m) {
    if (m->may_claim_ns == TIME_NEVER)
        return TIME_NEVER;
    if (predecessors_gone(m))
        return m->may_claim_ns;
    return m->may_claim_ns + (uint64_t)m->successor_index * SUCCESSOR_STEP_NS;
}

static void probe_predecessors(struct member *m) {
    if (m->election != ELECTION_SEEKING || !succession_is_named(m) ||
        m->now_ns < m->successor_probe_ns)
        return;
    m->successor_probe_ns = m->now_ns + PEER_PROBE_NS;
    for (int i = 0; i < m->successor_index; i++)
        if (!m->successor_gone[i])
            member_emit(m, MEMBER_EFFECT_PROBE_PEER)->peer = m->named.list[i];
}

/* ---- claiming ---- */

/* Nothing runs: nobody has led before, or what the last leader left says so. Whoever has won that
 * leader's next epoch has taken from it the one that it would have formed a group in. */
static bool claims_after_nothing(const struct member *m) {
    return m->claim_epoch == 1 || (m->quiet_epoch != 0 && m->claim_epoch == m->quiet_epoch + 1);
}

static void ask_for(struct member *m) {
    m->claim_asked = member_ask(m, ARBITER_CLAIM, m->claim_epoch);
    if (m->claim_asked)
        m->requests[m->n_requests - 1].idle = claims_after_nothing(m);
    m->claim_retry_ns = m->now_ns + CLAIM_RETRY_NS;
}

void succession_claim(struct member *m, uint32_t epoch) {
    if (m->election == ELECTION_CLAIMING)
        return;
    m->connected = false;
    m->renew_ns = TIME_NEVER;
    m->target.incarnation = 0;
    (void)member_emit(m, MEMBER_EFFECT_HANG_UP);
    member_election_move(m, ELECTION_CLAIMING);
    m->claim_epoch = epoch;
    m->claim_ns = m->now_ns;
    ask_for(m);
}

static void give_up_claim(struct member *m) {
    m->beat_ns = m->now_ns; /* rule 4 begins anew */
    m->claim_asked = false;
    member_seek(m);
}

/* Before an idle epoch there is nothing to wait for. What this node knows of leases that may still
 * run is all in the handover of the epoch before, and for the first successor in its own last
 * LEASE. Whoever else leads waits for the longest. */
static void lead(struct member *m, uint32_t epoch, bool idle) {
    const struct member_config *c = &m->config;
    uint64_t margin = MAX2(c->rdzv.arbiter_lease_ns / ARBITER_MARGIN_PART, NS_PER_S);
    uint64_t longest = m->now_ns + c->rdzv.arbiter_lease_ns + margin;
    bool knows = succession_is_named(m) && epoch == m->named.epoch + 1;
    bool first = knows && m->successor_index == 0;
    member_election_move(m, ELECTION_LEADING);
    member_set_epoch(m, epoch);
    struct member_effect *e = member_emit(m, MEMBER_EFFECT_LEAD);
    e->lead = (struct member_lead){
        .epoch = epoch,
        .idle = idle,
        .not_before_ns = knows || idle ? 0 : longest,
        .absent_until_ns =
            first ? m->successor_base_ns + c->rdzv.lease_ns + c->rdzv.margin_ns : longest,
        .old_leader = m->leader_peer.incarnation,
        .handover = knows ? &m->handover : NULL,
    };
    m->leader_peer = c->self;
    m->leader_gone = false;
    m->waiting[0] = '\0';
    member_tell_join_policy(m);
    m->target = c->self;
    struct member_effect *connect = member_emit(m, MEMBER_EFFECT_CONNECT);
    connect->peer = c->self;
    connect->soon = true;
}

void succession_on_claim(struct member *m, const struct arbiter_answer *a) {
    if (m->election != ELECTION_CLAIMING || a->request.epoch != m->claim_epoch)
        return;
    m->claim_asked = false;
    if (a->result == ARBITER_RUINED)
        member_on_ruin(m, a);
    if (a->result == ARBITER_UNREACHABLE || a->result == ARBITER_RUINED) {
        (void)snprintf(m->waiting, sizeof m->waiting, "%s", a->text);
        m->claim_retry_ns = m->now_ns + CLAIM_RETRY_NS;
        return;
    }
    if (a->result == ARBITER_OK) {
        lead(m, m->claim_epoch, a->record.idle);
        return;
    }
    struct arbiter_answer read = *a;
    read.result = ARBITER_OK;
    member_seek(m);
    member_on_record(m, &read); /* who won, or that the job is over */
}

/* ---- time ---- */

/* A lease, and another where the arbiter's data is gone: that has to stay so for a lease. */
static uint64_t claim_end(const struct member *m) {
    return m->claim_ns + m->config.rdzv.lease_ns * (m->ruined_ns != 0 ? 2 : 1);
}

void succession_time(struct member *m) {
    if (m->election == ELECTION_CLAIMING) {
        if (m->now_ns >= claim_end(m))
            give_up_claim(m);
        else if (!m->claim_asked && m->now_ns >= m->claim_retry_ns)
            ask_for(m);
        return;
    }
    probe_predecessors(m);
    if (!wants_to_claim(m))
        m->may_claim_ns = TIME_NEVER;
    else if (m->may_claim_ns == TIME_NEVER)
        m->may_claim_ns = m->now_ns;
    if (m->now_ns >= claim_due(m))
        succession_claim(m, m->named.epoch + 1);
}

uint64_t succession_deadline(const struct member *m) {
    if (m->election == ELECTION_CLAIMING) {
        uint64_t t = claim_end(m);
        return m->claim_asked ? t : MIN2(t, m->claim_retry_ns);
    }
    uint64_t t = claim_due(m);
    if (m->election == ELECTION_SEEKING && succession_is_named(m)) {
        if (!predecessors_gone(m))
            t = MIN2(t, m->successor_probe_ns);
        if (m->leader_gone && m->now_ns < m->lost_ns + m->config.rdzv.lease_ns)
            t = MIN2(t, m->lost_ns + m->config.rdzv.lease_ns);
    }
    return t;
}
