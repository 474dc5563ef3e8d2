#include "rendezvous/member/member_priv.h"

#include <stdio.h>
#include <string.h>

/* How much later each successor acts than the previous one. */
#define SUCCESSOR_STEP_NS (3 * NS_PER_S)
#define PEER_PROBE_NS (100 * NS_PER_MS)
#define CLAIM_RETRY_NS (200 * NS_PER_MS)
#define ARBITER_MARGIN_PART 50

#define SEEK_WAIT_MIN_NS (20 * NS_PER_MS)
#define SEEK_WAIT_MAX_NS (500 * NS_PER_MS)
#define REDIRECTS_MAX 3 /* redirections that are followed at once, before a pause */

#define BIT(m) (1u << (m))
static const struct {
    const char *name;
    unsigned next;
} elections[ELECTION_COUNT] = {
    /*                 name         can be followed by */
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

static void move(struct member *m, enum member_election to) {
    if (m->election == to)
        return;
    assert(member_election_may_move(m->election, to));
    m->election = to;
}

static uint64_t patience(const struct member_config *c) {
    return c->rdzv.lease_ns + c->rdzv.margin_ns;
}

#define SET_WAITING(m, ...) (void)snprintf((m)->waiting, sizeof(m)->waiting, __VA_ARGS__)

static struct arbiter_request *ask(struct member *m, enum arbiter_kind kind, uint32_t epoch) {
    assert(m->n_requests < ELECTION_REQUESTS_MAX);
    struct arbiter_request *r = &m->requests[m->n_requests++];
    *r = (struct arbiter_request){.kind = kind, .epoch = epoch, .leader = m->config.self};
    member_emit(m, MEMBER_EFFECT_ARBITER)->request = r;
    return r;
}

static bool is_successor(const struct member *m) {
    return m->successor_index >= 0 && m->has_handover;
}

static void hang_up(struct member *m) {
    link_cut(&m->link);
    m->link.probe_ns = TIME_NEVER;
    m->again_ns = TIME_NEVER;
    m->target.incarnation = 0;
    (void)member_emit(m, MEMBER_EFFECT_HANG_UP);
}

static void connect_to(struct member *m, const struct rdzv_peer *peer, bool soon) {
    link_cut(&m->link);
    m->again_ns = TIME_NEVER;
    m->target = *peer;
    m->target_ns = m->now_ns;
    struct member_effect *connect = member_emit(m, MEMBER_EFFECT_CONNECT);
    connect->peer = *peer;
    connect->soon = soon;
}

static void follow(struct member *m, const struct rdzv_peer *peer, uint32_t epoch) {
    bool same = m->election == ELECTION_FOLLOWING && m->link.epoch == epoch &&
                m->target.incarnation == peer->incarnation;
    link_raise_epoch(&m->link, epoch);
    m->leader_peer = *peer;
    if (same)
        return;
    m->leader_gone = false;
    move(m, ELECTION_FOLLOWING);
    connect_to(m, peer, m->redirects < REDIRECTS_MAX);
}

/* Nothing runs: no agent has led before, or the last record shows it. An agent that wins the next
 * epoch takes from its leader the epoch in which it would have formed a group. */
static bool claims_after_nothing(const struct member *m) {
    return m->claim_epoch == 1 || (m->quiet_epoch != 0 && m->claim_epoch == m->quiet_epoch + 1);
}

static void ask_for(struct member *m) {
    ask(m, ARBITER_CLAIM, m->claim_epoch)->idle = claims_after_nothing(m);
    m->claim_asked = true;
    m->claim_retry_ns = m->now_ns + CLAIM_RETRY_NS;
}

static void claim(struct member *m, uint32_t epoch) {
    if (m->election == ELECTION_CLAIMING)
        return;
    hang_up(m);
    move(m, ELECTION_CLAIMING);
    m->claim_epoch = epoch;
    m->claim_ns = m->now_ns;
    ask_for(m);
}

/* ---- the record ---- */

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

/* A record that was requested then or later can show that its leader has ended without a successor.
 * In an idle epoch no successors were named, and nothing runs that could be lost. */
static uint64_t over_at(const struct member *m) {
    const struct arbiter_record *r = &m->record;
    if (!r->idle)
        return m->beat_ns + m->patience_ns;
    bool gone = m->leader_gone && r->leader.incarnation == m->leader_peer.incarnation;
    return (gone ? m->lost_ns : m->beat_ns + m->config.rdzv.lease_ns) + m->spread_ns;
}

/* When it can decide, at the latest. */
static void look_in_time(struct member *m) {
    if (m->record.idle && m->record_ns < over_at(m))
        m->read_ns = MIN2(m->read_ns, MAX2(over_at(m), m->now_ns));
}

/* The leader of the record has been unreachable for a while: says whether it is alive. Without
 * another leader, the reason why this node's own claim fails is more useful. */
static void describe_unreachable(struct member *m) {
    const struct arbiter_record *r = &m->record;
    bool other = r->epoch > 0 && r->leader.incarnation != m->config.incarnation;
    if (!other || m->apart_ns == TIME_NEVER ||
        m->now_ns < m->apart_ns + 2 * m->config.rdzv.heartbeat_ns)
        return;
    /* A beat that changed before the leader was lost shows nothing about it now. */
    bool stands = m->record_ns >= m->beat_ns + 3 * m->config.rdzv.heartbeat_ns;
    const char *what = "does not answer";
    if (stands)
        what = "sends no message";
    else if (m->moved_ns >= m->apart_ns)
        what = "is alive, but not reachable from here";
    bool refused = !stands && m->refusal[0] != '\0';
    SET_WAITING(m, "the leader at %.100s, port %u, %s%s%s", r->leader.addr, r->leader.port, what,
                refused ? ": " : "", refused ? m->refusal : "");
}

/* The arbiter's data is gone: this node ends if that does not change and no leader appears. */
static void on_ruin(struct member *m, const struct arbiter_answer *a) {
    uint64_t wait = arbiter_ruin_ns(a, m->config.rdzv.lease_ns);
    if (m->link.connected || m->election == ELECTION_LEADING || m->end.kind != MEMBER_END_NONE)
        return; /* the leader reports it */
    if (m->ruined_ns == 0)
        m->ruined_ns = m->now_ns;
    SET_WAITING(m, "%.500s", a->text);
    if (wait > 0 && a->started_ns < m->ruined_ns + wait)
        return; /* compare with the time of the request, as the leader does */
    char text[RDZV_REASON_MAX];
    (void)snprintf(text, sizeof text, ARBITER_RUIN_TEXT, a->text);
    member_end_without_leader(m, text, wait);
}

static void on_record(struct member *m, const struct arbiter_answer *a) {
    m->asking = false;
    if (a->result == ARBITER_RUINED) {
        on_ruin(m, a);
        return;
    }
    if (a->result != ARBITER_OK) {
        if (!m->link.connected && m->election != ELECTION_LEADING)
            SET_WAITING(m, "%.500s", a->text);
        return;
    }
    if (m->election == ELECTION_LEADING)
        return;
    m->found_closed = m->found_closed || (m->record_ns == 0 && a->record.closed);
    keep_record(m, a);
    look_in_time(m);
    m->ruined_ns = 0;
    const struct arbiter_record *r = &m->record;
    if (r->closed) {
        if (!m->link.connected)
            member_close(m, r);
        return;
    }
    if (m->election == ELECTION_CLAIMING)
        return; /* the answer to the claim has more information */
    if (r->vacant) {
        if (!m->link.connected && r->epoch >= m->link.epoch)
            claim(m, r->epoch + 1);
    } else if (r->leader.incarnation == m->config.incarnation && r->epoch > m->link.epoch) {
        /* Our own claim, unanswered or given up. Repeated, it is won unless a later epoch is
         * claimed. */
        if (!m->link.connected)
            claim(m, r->epoch);
    } else if (r->epoch == 0 && m->election == ELECTION_ASKING) {
        claim(m, 1);
    } else if (r->epoch > 0 && !m->link.connected &&
               (m->election == ELECTION_ASKING || r->epoch > m->link.epoch)) {
        m->redirects = 0;
        follow(m, &r->leader, r->epoch);
    } else if (!m->link.connected) {
        describe_unreachable(m);
    }
}

/* Rule 4: no named successor claims, and the leader has ended, as far as the record shows. */
static bool may_claim_unnamed(const struct member *m) {
    bool apart = m->election == ELECTION_SEEKING ||
                 (m->election == ELECTION_FOLLOWING && !m->link.connected);
    return apart && m->ruined_ns == 0 && m->record_ns != 0 && !m->record.closed &&
           m->record.epoch >= m->link.epoch && m->record_ns >= over_at(m);
}

static void forget_successors(struct member *m) {
    m->named = (struct successors){0};
    m->successor_index = -1;
    m->has_handover = false;
    handover_fini(&m->handover);
    m->may_claim_ns = TIME_NEVER;
}

void election_on_named(struct member *m, const struct successors *named) {
    if (!m->link.connected || named->epoch < m->link.epoch || named->n > RDZV_SUCCESSORS_MAX)
        return;
    link_raise_epoch(&m->link, named->epoch);
    m->named = *named;
    m->successor_index = successors_index(named, m->config.incarnation);
    memset(m->successor_gone, 0, sizeof m->successor_gone);
    m->has_handover = false; /* HANDOVER follows */
    if (m->successor_index != 0)
        return;
    m->successor_base_ns = m->now_ns;
    member_renew(m); /* the answer is the first lease that it echoes */
}

void election_on_handover(struct member *m, const struct handover *h) {
    if (!m->link.connected || m->successor_index < 0 || h->epoch != m->named.epoch)
        return;
    handover_copy(&m->handover, h);
    m->has_handover = true;
}

void election_on_lease(struct member *m, const struct lease *lease) {
    if (m->successor_index == 0 && m->named.epoch == lease->epoch) {
        m->successor_base_ns = m->now_ns;
        member_emit(m, MEMBER_EFFECT_ECHO)->echo =
            (struct echo){.epoch = lease->epoch, .leader_clock_ns = lease->clock_ns};
    }
    if (lease->validity_ns > 0)
        m->good_lease_ns = m->now_ns;
}

/* ---- whether it can claim ---- */

void election_on_peer_probe(struct member *m, uint64_t incarnation, enum probe_result result) {
    int i = successors_index(&m->named, incarnation);
    if (i >= 0 && result == PROBE_GONE)
        m->successor_gone[i] = true;
}

/* The leader is gone, or silent at the arbiter, too: its beat has not changed for a lease. */
static bool leader_is_over(const struct member *m) {
    if (m->leader_gone)
        return true;
    return m->record_ns != 0 && m->record.epoch == m->named.epoch && m->record_ns > m->beat_ns &&
           m->record_ns - m->beat_ns >= m->config.rdzv.lease_ns;
}

/* Whether they could form a group. If the leader is certainly gone and no more nodes come, an agent
 * has to end the job, so fewer are enough. */
static bool enough_came(const struct member *m) {
    size_t nodes = m->parked.len + 1;
    nodes -= nodes % m->config.rdzv.node_unit;
    if (nodes >= m->config.rdzv.min_nodes)
        return true;
    /* one that was asked to leave needs no group, only an epoch that it can leave vacant */
    return m->leader_gone && (m->leaving || m->now_ns >= m->lost_ns + m->config.rdzv.lease_ns);
}

static bool predecessors_gone(const struct member *m) {
    for (int i = 0; i < m->successor_index; i++)
        if (!m->successor_gone[i])
            return false;
    return true;
}

static bool wants_to_claim(const struct member *m) {
    return m->election == ELECTION_SEEKING && is_successor(m) && m->ruined_ns == 0 &&
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
    if (m->election != ELECTION_SEEKING || !is_successor(m) || m->now_ns < m->successor_probe_ns)
        return;
    m->successor_probe_ns = m->now_ns + PEER_PROBE_NS;
    for (int i = 0; i < m->successor_index; i++)
        if (!m->successor_gone[i])
            member_emit(m, MEMBER_EFFECT_PROBE_PEER)->peer = m->named.list[i];
}

static void give_up_claim(struct member *m) {
    m->beat_ns = m->now_ns; /* rule 4 starts again */
    m->claim_asked = false;
    election_seek(m, NULL);
}

/* What is known about leases that may still be valid is in the last epoch's handover, and for the
 * first successor in its last LEASE. Any other new leader waits for the longest possible lease,
 * except before an idle epoch. */
static void lead(struct member *m, uint32_t epoch, bool idle) {
    const struct member_config *c = &m->config;
    uint64_t margin = MAX2(c->rdzv.arbiter_lease_ns / ARBITER_MARGIN_PART, NS_PER_S);
    uint64_t longest = m->now_ns + c->rdzv.arbiter_lease_ns + margin;
    bool knows = is_successor(m) && epoch == m->named.epoch + 1;
    bool first = knows && m->successor_index == 0;
    move(m, ELECTION_LEADING);
    link_raise_epoch(&m->link, epoch);
    group_config_default(&m->lead);
    m->lead.leadership = LEADERSHIP_ARBITER;
    m->lead.self = c->self;
    m->lead.epoch = epoch;
    m->lead.idle = idle;
    m->lead.not_before_ns = knows || idle ? 0 : longest;
    m->lead.absent_until_ns =
        first ? m->successor_base_ns + c->rdzv.lease_ns + c->rdzv.margin_ns : longest;
    m->lead.old_leader = m->leader_peer.incarnation;
    m->lead.lost_ns = m->lost_ns;
    m->lead.job_ns = m->form_at_ns != 0 ? m->form_job_ns + (m->now_ns - m->form_at_ns) : 0;
    m->lead.handover = knows ? &m->handover : NULL;
    member_emit(m, MEMBER_EFFECT_LEAD)->lead = &m->lead;
    m->leader_peer = c->self;
    m->leader_gone = false;
    m->waiting[0] = '\0';
    election_set_join_policy(m, false);
    connect_to(m, &c->self, true);
}

static void on_claim(struct member *m, const struct arbiter_answer *a) {
    if (m->election != ELECTION_CLAIMING || a->request.epoch != m->claim_epoch)
        return;
    m->claim_asked = false;
    if (a->result == ARBITER_UNREACHABLE || a->result == ARBITER_RUINED) {
        (void)snprintf(m->waiting, sizeof m->waiting, "%s", a->text);
        m->claim_retry_ns = m->now_ns + CLAIM_RETRY_NS;
        if (a->result == ARBITER_RUINED)
            on_ruin(m, a);
    } else if (a->result == ARBITER_OK) {
        lead(m, m->claim_epoch, a->record.idle);
    } else { /* it shows who won, or that the job is over */
        struct arbiter_answer read = *a;
        read.result = ARBITER_OK;
        election_seek(m, NULL);
        on_record(m, &read);
    }
}

void election_on_answer(struct member *m, const struct arbiter_answer *a) {
    if (a->request.kind == ARBITER_CLAIM)
        on_claim(m, a);
    else
        on_record(m, a);
}

/* One lease; two if the arbiter's data is gone, because that must last for a lease. */
static uint64_t claim_end(const struct member *m) {
    return m->claim_ns + m->config.rdzv.lease_ns * (m->ruined_ns != 0 ? 2 : 1);
}

static void claim_time(struct member *m) {
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
        claim(m, m->named.epoch + 1);
}

static uint64_t claim_deadline(const struct member *m) {
    if (m->election == ELECTION_CLAIMING) {
        uint64_t t = claim_end(m);
        return m->claim_asked ? t : MIN2(t, m->claim_retry_ns);
    }
    uint64_t t = claim_due(m);
    if (m->election == ELECTION_SEEKING && is_successor(m)) {
        if (!predecessors_gone(m))
            t = MIN2(t, m->successor_probe_ns);
        if (m->leader_gone && m->now_ns < m->lost_ns + m->config.rdzv.lease_ns)
            t = MIN2(t, m->lost_ns + m->config.rdzv.lease_ns);
    }
    return t;
}

/* At a successor until that one leads; at the lost leader only for a first message, because a host
 * that hangs still accepts connections. */
static uint64_t stay(const struct member *m) {
    bool given_up = m->target.incarnation == m->leader_peer.incarnation;
    return given_up ? m->config.rdzv.heartbeat_ns / 2 : patience(&m->config);
}

void election_init(struct member *m) {
    m->election = m->config.has_arbiter ? ELECTION_ASKING : ELECTION_FIXED;
    m->join_policy = JOIN_POLICY_SENT_AWAY;
    m->successor_index = -1;
    m->seek_ns = m->again_ns = m->may_claim_ns = TIME_NEVER;
    m->parked.seed = m->config.seed;
    if (!m->config.has_arbiter)
        return;
    m->read_ns = m->apart_ns = m->now_ns;
    m->patience_ns = 2 * patience(&m->config) + m->config.seed % (patience(&m->config) + 1);
    m->spread_ns = m->config.seed % m->config.rdzv.heartbeat_ns;
}

void election_forgive_sleep(struct member *m) {
    m->beat_ns = m->now_ns;
    if (m->apart_ns != TIME_NEVER)
        m->apart_ns = m->now_ns;
    if (m->link.connected)
        m->good_lease_ns = m->now_ns;
}

bool election_has_leader(const struct member *m) {
    return m->election == ELECTION_FOLLOWING && m->link.leader != 0 &&
           m->link.leader == m->leader_peer.incarnation;
}

/* ---- losing the leader, and searching for the next ---- */

/* In order: the successors before this node, and the old leader unless it is gone. */
static bool place_to_try(const struct member *m, unsigned nth, struct rdzv_peer *ret) {
    unsigned successors = is_successor(m) ? (unsigned)m->successor_index : m->named.n;
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

/* A successor that still has the leader notices its end soon, and comes before all after it. A node
 * that waited at one of those would keep both from having enough nodes. */
static void skip_named(struct member *m) {
    unsigned successors = is_successor(m) ? (unsigned)m->successor_index : m->named.n, there = 0;
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

void election_seek(struct member *m, const char *why) {
    if (why != NULL)
        SET_WAITING(m, "%s; looking for the next leader", why);
    move(m, ELECTION_SEEKING);
    m->round = 0;
    m->seek_wait_ns = SEEK_WAIT_MIN_NS;
    m->read_ns = m->now_ns;
    m->may_claim_ns = TIME_NEVER;
    try_next(m);
}

bool election_may_lead_next(const struct member *m) {
    bool claims = m->election == ELECTION_CLAIMING || m->election == ELECTION_LEADING;
    /* FOLLOWING: a probe shows whether the leader is gone */
    bool may_claim =
        m->election == ELECTION_FOLLOWING || (m->election == ELECTION_SEEKING && m->leader_gone);
    return !m->link.connected && (claims || (may_claim && is_successor(m)));
}

void election_lose_leader(struct member *m, bool gone, const char *why) {
    if (m->election != ELECTION_FOLLOWING) {
        m->leader_gone = m->leader_gone || (gone && m->election == ELECTION_SEEKING);
        return;
    }
    m->leader_gone = gone;
    m->lost_ns = m->apart_ns = m->now_ns;
    hang_up(m);
    member_leave_leader(m, why, why);
}

void election_on_deposed(struct member *m) {
    if (m->election != ELECTION_LEADING)
        return;
    m->leader_gone = true; /* our own group has ended */
    m->leader_peer.incarnation = 0;
    m->lost_ns = m->apart_ns = m->now_ns;
    forget_successors(m);
    hang_up(m);
    member_leave_leader(m, "another node leads this job now", NULL);
}

void election_on_disconnect(struct member *m, bool was_connected, const char *why) {
    link_cut(&m->link);
    if (why != NULL && m->target.incarnation == m->record.leader.incarnation)
        (void)snprintf(m->refusal, sizeof m->refusal, "%s", why);
    switch (m->election) {
    case ELECTION_FOLLOWING:
        connect_to(m, &m->leader_peer, was_connected);
        if (was_connected)
            link_probe(m);
        break;
    case ELECTION_LEADING: connect_to(m, &m->config.self, false); break;
    case ELECTION_SEEKING: try_next(m); break;
    case ELECTION_CLAIMING:
    case ELECTION_ASKING: break;
    case ELECTION_FIXED:
    case ELECTION_COUNT: assert_not_reached();
    }
}

/* It does not know yet that its claim was won, or that it has lost: try again after a pause. */
static void too_low(struct member *m) {
    if (m->election == ELECTION_SEEKING) {
        try_next(m);
        return;
    }
    hang_up(m);
    m->again_ns = m->now_ns + m->config.rdzv.heartbeat_ns / 4;
}

bool election_on_welcome(struct member *m, uint64_t leader, uint32_t epoch) {
    bool looks = m->election == ELECTION_FOLLOWING || m->election == ELECTION_SEEKING;
    bool wanted = looks || (m->election == ELECTION_LEADING && leader == m->config.incarnation);
    if (!wanted || epoch < m->link.epoch) {
        if (looks)
            too_low(m);
        return false;
    }
    bool other = m->link.leader != leader || epoch > m->link.epoch;
    if (m->link.leader != leader) /* from another host's clock, meaningless to the new leader */
        m->link.clock_ns = m->link.rtt_ns = 0;
    m->leader_peer = m->target;
    m->leader_peer.incarnation = leader;
    if (m->election != ELECTION_LEADING)
        move(m, ELECTION_FOLLOWING);
    if (epoch > m->named.epoch)
        forget_successors(m);
    link_raise_epoch(&m->link, epoch);
    m->good_lease_ns = m->now_ns;
    m->ruined_ns = 0;
    m->leader_gone = false;
    m->redirects = 0;
    m->waiting[0] = m->refusal[0] = '\0';
    if (other)
        member_forget_start(m);
    return true;
}

void election_on_redirect(struct member *m, uint32_t epoch, const struct rdzv_peer *peer) {
    bool useful = peer->incarnation != 0 && peer->incarnation != m->config.incarnation &&
                  epoch >= m->link.epoch;
    bool lost_one =
        m->election == ELECTION_SEEKING && peer->incarnation == m->leader_peer.incarnation;
    bool from_successor = m->target.incarnation != m->leader_peer.incarnation;
    link_cut(&m->link);
    m->read_ns = MIN2(m->read_ns, m->now_ns);
    if (m->election == ELECTION_SEEKING && (!useful || lost_one)) {
        if (useful && from_successor)
            skip_named(m);
        try_next(m); /* it still has the leader that we lost, or knows none */
    } else if (useful && (m->election == ELECTION_SEEKING || m->election == ELECTION_FOLLOWING)) {
        m->redirects++;
        m->target.incarnation = 0;
        follow(m, peer, epoch);
    } else if (m->election == ELECTION_FOLLOWING) {
        too_low(m);
    }
}

/* ---- time ---- */

/* A successor, or any node if none is named, reads as soon as the LEASEs stop. */
static bool looks_early(const struct member *m) { return is_successor(m) || m->named.n == 0; }

static bool wants_to_read(const struct member *m) {
    bool silent = m->now_ns > m->good_lease_ns + 5 * m->config.rdzv.heartbeat_ns / 2;
    return m->election == ELECTION_ASKING || m->election == ELECTION_SEEKING ||
           (m->election == ELECTION_FOLLOWING &&
            (!m->link.connected || (looks_early(m) && silent)));
}

bool election_leader_is_silent(const struct member *m) {
    return m->election == ELECTION_FOLLOWING && m->link.leader != 0 &&
           (m->link.connected || m->apart_ns == TIME_NEVER) &&
           m->now_ns >= m->good_lease_ns + patience(&m->config);
}

void election_time(struct member *m) {
    if (m->link.connected)
        m->apart_ns = TIME_NEVER;
    if (m->apart_ns != TIME_NEVER && m->election != ELECTION_LEADING &&
        m->now_ns >= m->apart_ns + m->config.rdzv.join_timeout_ns) {
        char text[RDZV_REASON_MAX];
        (void)snprintf(text, sizeof text, "no leader was found within the join timeout%s%.1800s",
                       m->waiting[0] != '\0' ? ": " : "", m->waiting);
        member_end_without_leader(m, text, 0);
        return;
    }
    if (wants_to_read(m) && !m->asking && m->now_ns >= m->read_ns) {
        (void)ask(m, ARBITER_READ, m->link.epoch);
        m->asking = true;
        m->read_ns = m->now_ns + m->config.rdzv.heartbeat_ns / (is_successor(m) ? 4 : 1);
    }
    if (m->election == ELECTION_FOLLOWING && m->now_ns >= m->again_ns)
        connect_to(m, &m->leader_peer, true);
    if (m->election == ELECTION_SEEKING && m->now_ns >= m->seek_ns)
        try_next(m);
    else if (m->election == ELECTION_SEEKING && m->target.incarnation != 0 && !m->link.connected &&
             m->now_ns >= m->target_ns + stay(m))
        try_next(m); /* parked or stuck for too long */
    claim_time(m);
    if (may_claim_unnamed(m))
        claim(m, m->record.epoch + 1);
}

uint64_t election_deadline(const struct member *m) {
    uint64_t t = TIME_NEVER;
    if (m->apart_ns != TIME_NEVER && m->election != ELECTION_LEADING)
        t = m->apart_ns + m->config.rdzv.join_timeout_ns;
    if (m->election == ELECTION_FOLLOWING && m->apart_ns == TIME_NEVER)
        t = MIN2(t, m->good_lease_ns + patience(&m->config));
    if (m->election == ELECTION_FOLLOWING && m->link.connected && looks_early(m))
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
    return MIN2(t, claim_deadline(m));
}

/* ---- nodes that come ---- */

void election_on_joiner(struct member *m, uint64_t joiner, bool came) {
    if (came && m->join_policy == JOIN_POLICY_PARKED && joiner != 0)
        idmap_put(&m->parked, joiner, m);
    else
        idmap_remove(&m->parked, joiner);
}

static enum member_join_policy join_policy_of(const struct member *m) {
    if (m->election == ELECTION_LEADING)
        return JOIN_POLICY_SERVED;
    if (m->election == ELECTION_FOLLOWING && m->link.connected)
        return JOIN_POLICY_REDIRECTED;
    return is_successor(m) ? JOIN_POLICY_PARKED : JOIN_POLICY_SENT_AWAY;
}

void election_set_join_policy(struct member *m, bool ended) {
    enum member_join_policy join_policy = ended ? JOIN_POLICY_SENT_AWAY : join_policy_of(m);
    bool to = join_policy == JOIN_POLICY_REDIRECTED;
    if (join_policy == m->join_policy &&
        (!to || m->join_policy_peer.incarnation == m->leader_peer.incarnation))
        return;
    if (m->join_policy == JOIN_POLICY_SERVED && ended)
        return; /* its group exists until all nodes know the outcome */
    m->join_policy = join_policy;
    m->join_policy_peer = m->leader_peer;
    struct member_effect *effect = member_emit(m, MEMBER_EFFECT_JOIN_POLICY);
    effect->join_policy = join_policy;
    effect->epoch = m->link.epoch;
    if (to)
        effect->peer = m->leader_peer;
    if (join_policy != JOIN_POLICY_PARKED) {
        uint64_t seed = m->parked.seed;
        idmap_fini(&m->parked);
        m->parked.seed = seed;
    }
}
