/* When this node can claim the next epoch, and with which state it then leads
 * (muster-rendezvous(7), "Succession", rules 1, 2, 4 and 7). */
#include <stdio.h>
#include <string.h>

#include "rendezvous/member/election_priv.h"

/* How much later each successor acts than the previous one. */
#define SUCCESSOR_STEP_NS (3 * NS_PER_S)
#define PEER_PROBE_NS (100 * NS_PER_MS)
#define CLAIM_RETRY_NS (200 * NS_PER_MS)
#define ARBITER_MARGIN_PART 50

bool election_is_successor(const struct election *e) {
    return e->successor_index >= 0 && e->has_handover;
}

void election_forget_successors(struct election *e) {
    e->named = (struct successors){0};
    e->successor_index = -1;
    e->has_handover = false;
    handover_fini(&e->handover);
    e->may_claim_ns = TIME_NEVER;
}

/* ---- being named ---- */

static int index_in(const struct successors *s, uint64_t incarnation) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].incarnation == incarnation)
            return (int)i;
    return -1;
}

bool election_on_named(struct election *e, const struct step *s, const struct successors *named) {
    if (!s->link->connected || named->epoch < s->link->epoch || named->n > RDZV_SUCCESSORS_MAX)
        return false;
    link_raise_epoch(s->link, named->epoch);
    e->named = *named;
    e->successor_index = index_in(named, s->config->incarnation);
    memset(e->successor_gone, 0, sizeof e->successor_gone);
    e->has_handover = false; /* HANDOVER follows */
    if (e->successor_index != 0)
        return false;
    e->successor_base_ns = s->now_ns;
    return true; /* the answer to that RENEW is the first lease that it echoes */
}

void election_on_handover(struct election *e, const struct step *s, const struct handover *h) {
    if (!s->link->connected || e->successor_index < 0 || h->epoch != e->named.epoch)
        return;
    handover_copy(&e->handover, h);
    e->has_handover = true;
}

void election_on_lease(struct election *e, const struct step *s, const struct lease *lease) {
    if (e->successor_index == 0 && e->named.epoch == lease->epoch) {
        e->successor_base_ns = s->now_ns;
        wire_small_set(&step_emit(s, MEMBER_EFFECT_SEND)->message, WIRE_ECHO,
                       &(struct echo){.epoch = lease->epoch, .leader_clock_ns = lease->clock_ns});
    }
    if (lease->validity_ns > 0)
        e->good_lease_ns = s->now_ns;
}

/* ---- whether it can claim ---- */

void election_on_peer_probe(struct election *e, uint64_t incarnation, enum probe_result result) {
    int i = index_in(&e->named, incarnation);
    if (i >= 0 && result == PROBE_GONE)
        e->successor_gone[i] = true;
}

/* The leader is gone, or silent at the arbiter, too: its beat has not changed for a lease. */
static bool leader_is_over(const struct election *e, const struct step *s) {
    if (e->leader_gone)
        return true;
    return e->record_ns != 0 && e->record.epoch == e->named.epoch && e->record_ns > e->beat_ns &&
           e->record_ns - e->beat_ns >= s->config->rdzv.lease_ns;
}

/* Whether the nodes that came and this one could form a group. If the leader is certainly gone and
 * no more nodes come, an agent has to end the job, so fewer are enough. */
static bool enough_came(const struct election *e, const struct step *s) {
    size_t nodes = e->parked.len + 1;
    nodes -= nodes % s->config->rdzv.node_unit;
    if (nodes >= s->config->rdzv.min_nodes)
        return true;
    /* one that was asked to leave needs no group, only an epoch that it can leave vacant */
    return e->leader_gone && (e->leaving || s->now_ns >= e->lost_ns + s->config->rdzv.lease_ns);
}

static bool predecessors_gone(const struct election *e) {
    for (int i = 0; i < e->successor_index; i++)
        if (!e->successor_gone[i])
            return false;
    return true;
}

static bool wants_to_claim(const struct election *e, const struct step *s) {
    return e->state == ELECTION_SEEKING && election_is_successor(e) && e->ruined_ns == 0 &&
           e->record.epoch <= e->named.epoch && leader_is_over(e, s) && enough_came(e, s);
}

static uint64_t claim_due(const struct election *e) {
    if (e->may_claim_ns == TIME_NEVER)
        return TIME_NEVER;
    if (predecessors_gone(e))
        return e->may_claim_ns;
    return e->may_claim_ns + (uint64_t)e->successor_index * SUCCESSOR_STEP_NS;
}

static void probe_predecessors(struct election *e, const struct step *s) {
    if (e->state != ELECTION_SEEKING || !election_is_successor(e) ||
        s->now_ns < e->successor_probe_ns)
        return;
    e->successor_probe_ns = s->now_ns + PEER_PROBE_NS;
    for (int i = 0; i < e->successor_index; i++)
        if (!e->successor_gone[i])
            step_emit(s, MEMBER_EFFECT_PROBE_PEER)->peer = e->named.list[i];
}

/* ---- claiming ---- */

/* Nothing runs: no agent has led before, or the last leader's record shows it. An agent that wins
 * that leader's next epoch takes from it the epoch in which it would have formed a group. */
static bool claims_after_nothing(const struct election *e) {
    return e->claim_epoch == 1 || (e->quiet_epoch != 0 && e->claim_epoch == e->quiet_epoch + 1);
}

static void ask_for(struct election *e, const struct step *s) {
    e->claim_asked = election_ask(e, s, ARBITER_CLAIM, e->claim_epoch);
    if (e->claim_asked)
        e->requests[e->n_requests - 1].idle = claims_after_nothing(e);
    e->claim_retry_ns = s->now_ns + CLAIM_RETRY_NS;
}

void election_claim(struct election *e, const struct step *s, uint32_t epoch) {
    if (e->state == ELECTION_CLAIMING)
        return;
    link_cut(s->link);
    e->target.incarnation = 0;
    (void)step_emit(s, MEMBER_EFFECT_HANG_UP);
    election_move(e, ELECTION_CLAIMING);
    e->claim_epoch = epoch;
    e->claim_ns = s->now_ns;
    ask_for(e, s);
}

static void give_up_claim(struct election *e, const struct step *s) {
    e->beat_ns = s->now_ns; /* rule 4 starts again */
    e->claim_asked = false;
    election_seek(e, s, NULL);
}

/* Before an idle epoch there is nothing to wait for. All that this node knows about leases that may
 * still be valid is in the handover of the previous epoch, and for the first successor in its own
 * last LEASE. Any other new leader waits for the longest possible lease. */
static void lead(struct election *e, const struct step *s, uint32_t epoch, bool idle) {
    const struct member_config *c = s->config;
    uint64_t margin = MAX2(c->rdzv.arbiter_lease_ns / ARBITER_MARGIN_PART, NS_PER_S);
    uint64_t longest = s->now_ns + c->rdzv.arbiter_lease_ns + margin;
    bool knows = election_is_successor(e) && epoch == e->named.epoch + 1;
    bool first = knows && e->successor_index == 0;
    election_move(e, ELECTION_LEADING);
    link_raise_epoch(s->link, epoch);
    step_emit(s, MEMBER_EFFECT_LEAD)->lead = (struct member_lead){
        .epoch = epoch,
        .idle = idle,
        .not_before_ns = knows || idle ? 0 : longest,
        .absent_until_ns =
            first ? e->successor_base_ns + c->rdzv.lease_ns + c->rdzv.margin_ns : longest,
        .old_leader = e->leader_peer.incarnation,
        .job_ns = e->form_at_ns != 0 ? e->form_job_ns + (s->now_ns - e->form_at_ns) : 0,
        .handover = knows ? &e->handover : NULL,
    };
    e->leader_peer = c->self;
    e->leader_gone = false;
    e->waiting[0] = '\0';
    election_set_join_policy(e, s, false);
    e->target = c->self;
    struct member_effect *connect = step_emit(s, MEMBER_EFFECT_CONNECT);
    connect->peer = c->self;
    connect->soon = true;
}

struct election_outcome election_on_claim(struct election *e, const struct step *s,
                                          const struct arbiter_answer *a) {
    struct election_outcome o = {ELECTION_GOES_ON};
    if (e->state != ELECTION_CLAIMING || a->request.epoch != e->claim_epoch)
        return o;
    e->claim_asked = false;
    if (a->result == ARBITER_RUINED)
        o = election_on_ruin(e, s, a);
    if (a->result == ARBITER_UNREACHABLE || a->result == ARBITER_RUINED) {
        (void)snprintf(e->waiting, sizeof e->waiting, "%s", a->text);
        e->claim_retry_ns = s->now_ns + CLAIM_RETRY_NS;
        return o;
    }
    if (a->result == ARBITER_OK) {
        lead(e, s, e->claim_epoch, a->record.idle);
        return o;
    }
    struct arbiter_answer read = *a;
    read.result = ARBITER_OK;
    election_seek(e, s, NULL);
    return election_on_record(e, s, &read); /* it shows who won, or that the job is over */
}

/* ---- time ---- */

/* One lease; two if the arbiter's data is gone, because that must last for a lease. */
static uint64_t claim_end(const struct election *e, const struct step *s) {
    return e->claim_ns + s->config->rdzv.lease_ns * (e->ruined_ns != 0 ? 2 : 1);
}

void election_claim_time(struct election *e, const struct step *s) {
    if (e->state == ELECTION_CLAIMING) {
        if (s->now_ns >= claim_end(e, s))
            give_up_claim(e, s);
        else if (!e->claim_asked && s->now_ns >= e->claim_retry_ns)
            ask_for(e, s);
        return;
    }
    probe_predecessors(e, s);
    if (!wants_to_claim(e, s))
        e->may_claim_ns = TIME_NEVER;
    else if (e->may_claim_ns == TIME_NEVER)
        e->may_claim_ns = s->now_ns;
    if (s->now_ns >= claim_due(e))
        election_claim(e, s, e->named.epoch + 1);
}

uint64_t election_claim_deadline(const struct election *e, const struct step *s) {
    if (e->state == ELECTION_CLAIMING) {
        uint64_t t = claim_end(e, s);
        return e->claim_asked ? t : MIN2(t, e->claim_retry_ns);
    }
    uint64_t t = claim_due(e);
    if (e->state == ELECTION_SEEKING && election_is_successor(e)) {
        if (!predecessors_gone(e))
            t = MIN2(t, e->successor_probe_ns);
        if (e->leader_gone && s->now_ns < e->lost_ns + s->config->rdzv.lease_ns)
            t = MIN2(t, e->lost_ns + s->config->rdzv.lease_ns);
    }
    return t;
}
