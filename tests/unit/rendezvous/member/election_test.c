#include "rendezvous/member/member.h"

#include <inttypes.h>

#include "rig/unit.h"

#define S(x) ((uint64_t)((x)*1e9))
#define SELF 7u
#define EFFECTS_MAX 256

/* Node 7 of a job with an arbiter. What the others answer is set here, and happens at once. */
struct rig {
    struct member *m;
    struct member_update u;
    uint64_t now_ns;
    struct arbiter_record there; /* at the arbiter */
    bool reads;                  /* it answers READs */
    bool beats;                  /* the leader there is alive: each READ sees another beat */
    bool leases;                 /* the leader answers RENEWs */
    bool refuses;                /* whoever is tried while this node seeks is not there */
    /* since the test's last word */
    size_t n;
    struct member_effect effects[EFFECTS_MAX];
    struct arbiter_request requests[EFFECTS_MAX]; /* of the same places */
    unsigned asked[ARBITER_KIND_COUNT];
};

static struct rdzv_peer peer_of(uint64_t node) {
    struct rdzv_peer p = {.incarnation = node, .port = (uint16_t)(100 + node)};
    (void)snprintf(p.addr, sizeof p.addr, "10.0.0.%d", (int)node);
    return p;
}

static void keep(struct rig *r, const struct member_effect *e) {
    cr_assert_lt(r->n, EFFECTS_MAX, "it never rests");
    r->effects[r->n] = *e;
    if (e->kind == MEMBER_EFFECT_ARBITER) {
        r->requests[r->n] = *e->request;
        r->asked[e->request->kind]++;
    }
    r->n++;
}

static void take(struct rig *r, struct member_event e);

static void others_answer(struct rig *r, size_t i) {
    const struct member_effect *e = &r->effects[i];
    if (e->kind == MEMBER_EFFECT_ARBITER && r->requests[i].kind == ARBITER_READ && r->reads) {
        r->there.beat += r->beats;
        struct arbiter_answer a = {
            .request = r->requests[i], .started_ns = r->now_ns, .result = ARBITER_OK, .record = r->there};
        take(r, (struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
    } else if (e->kind == MEMBER_EFFECT_RENEW && r->leases) {
        struct lease lease = {.epoch = member_epoch(r->m),
                              .prepared = member_generation(r->m),
                              .echo_ns = e->renew.clock_ns,
                              .validity_ns = S(5),
                              .clock_ns = r->now_ns};
        take(r, (struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    } else if (e->kind == MEMBER_EFFECT_CONNECT && r->refuses && member_election(r->m) == ELECTION_SEEKING) {
        take(r, (struct member_event){.kind = MEMBER_EVENT_DISCONNECT});
    }
}

static void take(struct rig *r, struct member_event e) {
    e.now_ns = r->now_ns;
    member_step(r->m, &e, &r->u);
    size_t from = r->n;
    for (size_t i = 0; i < r->u.n_effects; i++)
        keep(r, &r->u.effects[i]);
    size_t until = r->n;
    for (size_t i = from; i < until; i++)
        others_answer(r, i);
}

static void forget(struct rig *r) {
    r->n = 0;
    memset(r->asked, 0, sizeof r->asked);
}

static void step(struct rig *r, struct member_event e) {
    forget(r);
    take(r, e);
}

/* Time passes, from deadline to deadline. */
static void pass(struct rig *r, double seconds) {
    uint64_t until = r->now_ns + S(seconds);
    cr_assert_lt(until, S(3000), "what was waited for never came");
    forget(r);
    while (r->now_ns < until && member_state(r->m) != MEMBER_ENDED) {
        r->now_ns = MIN2(until, MAX2(r->u.deadline_ns, r->now_ns + 1));
        if (r->n > EFFECTS_MAX / 2)
            r->n = 0;
        take(r, (struct member_event){.kind = MEMBER_EVENT_TIME});
    }
}

static struct member_config config_of(void) {
    struct member_config c;
    member_config_default(&c);
    c.incarnation = SELF;
    c.has_arbiter = true;
    c.self = peer_of(SELF);
    c.rdzv.max_nodes = 8;
    return c;
}

static void begin_with(struct rig *r, const struct member_config *c) {
    *r = (struct rig){.now_ns = S(1000)};
    cr_assert_eq(member_new(c, r->now_ns, &r->m), 0);
    step(r, (struct member_event){.kind = MEMBER_EVENT_TIME});
}

static void begin(struct rig *r) {
    struct member_config c = config_of();
    begin_with(r, &c);
}

static void end(struct rig *r) {
    member_update_fini(&r->u);
    member_free(r->m);
}

static size_t count(const struct rig *r, enum member_effect_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->effects[i].kind == kind;
    return n;
}

/* The last of them, which has to be there. */
static struct member_effect must(const struct rig *r, enum member_effect_kind kind) {
    for (size_t i = r->n; i > 0; i--)
        if (r->effects[i - 1].kind == kind)
            return r->effects[i - 1];
    cr_assert_fail("no effect %d", (int)kind);
    return (struct member_effect){0};
}

static struct arbiter_request last_claim(const struct rig *r) {
    for (size_t i = r->n; i > 0; i--)
        if (r->effects[i - 1].kind == MEMBER_EFFECT_ARBITER && r->requests[i - 1].kind == ARBITER_CLAIM)
            return r->requests[i - 1];
    cr_assert_fail("nothing was claimed");
    return (struct arbiter_request){0};
}

/* Whom it tried, in order: "2 3 1". */
static const char *tried(const struct rig *r) {
    static char text[512];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < r->n && len < 500; i++)
        if (r->effects[i].kind == MEMBER_EFFECT_CONNECT)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", len == 0 ? "" : " ",
                                    (int)r->effects[i].peer.incarnation);
    return text;
}

static void hears(struct rig *r, enum arbiter_kind kind, uint32_t epoch, enum arbiter_result result,
                  const struct arbiter_record *record) {
    struct arbiter_answer a = {
        .request = {.kind = kind, .epoch = epoch, .leader = peer_of(SELF)}, .started_ns = r->now_ns, .result = result};
    (void)snprintf(a.text, sizeof a.text, "the arbiter is on fire");
    if (record != NULL)
        a.record = *record;
    step(r, (struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
}

static struct arbiter_record led_by(uint32_t epoch, uint64_t node) {
    return (struct arbiter_record){.epoch = epoch, .leader = peer_of(node)};
}

static void reads(struct rig *r, uint32_t epoch, uint64_t leader) {
    struct arbiter_record record = led_by(epoch, leader);
    hears(r, ARBITER_READ, 0, ARBITER_OK, &record);
}

static void welcome(struct rig *r, uint64_t leader, uint32_t epoch) {
    step(r, (struct member_event){.kind = MEMBER_EVENT_WELCOME, .leader = leader, .epoch = epoch});
}

static void disconnect(struct rig *r) { step(r, (struct member_event){.kind = MEMBER_EVENT_DISCONNECT}); }

static void probed(struct rig *r, enum probe_result result) {
    step(r, (struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = result});
}

static void peer_probed(struct rig *r, uint64_t peer, enum probe_result result) {
    step(r, (struct member_event){.kind = MEMBER_EVENT_PEER_PROBE, .joiner = peer, .probe = result});
}

static void joiner(struct rig *r, uint64_t node, bool comes) {
    step(r, (struct member_event){.kind = comes ? MEMBER_EVENT_JOINER : MEMBER_EVENT_JOINER_GONE, .joiner = node});
}

static void redirect(struct rig *r, uint32_t epoch, uint64_t node) {
    struct rdzv_peer peer = peer_of(node);
    step(r, (struct member_event){.kind = MEMBER_EVENT_REDIRECT, .epoch = epoch, .peer = &peer});
}

static void tell(struct rig *r, enum member_event_kind kind) {
    step(r, (struct member_event){.kind = kind, .generation = member_generation(r->m)});
}

static void want(struct rig *r, enum desired_kind kind, uint32_t epoch, uint32_t counter) {
    struct desired d = {.kind = kind, .epoch = epoch, .generation = {epoch, counter}, .grace_ns = S(3)};
    d.form.job_ns = S(60);
    step(r, (struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
}

#define assert_election(r, s) \
    cr_assert_eq(member_election((r)->m), (s), "it is %s", member_election_name(member_election((r)->m)))
#define assert_claim(r, e)                                                           \
    do {                                                                             \
        assert_election(r, ELECTION_CLAIMING);                                       \
        struct arbiter_request q_ = last_claim(r);                                   \
        cr_assert(q_.epoch == (e) && q_.leader.incarnation == SELF, "%u", q_.epoch); \
    } while (0)

/* Follows node 1, which leads epoch 3, and has its leases from now on. */
static void follow_with(struct rig *r, const struct member_config *c) {
    begin_with(r, c);
    reads(r, 3, 1);
    r->leases = true;
    r->there = led_by(3, 1);
    welcome(r, 1, 3);
    assert_election(r, ELECTION_FOLLOWING);
}

static void follow(struct rig *r) {
    struct member_config c = config_of();
    follow_with(r, &c);
}

static void run(struct rig *r) {
    want(r, DESIRED_FORM, 3, 1);
    tell(r, MEMBER_EVENT_PREPARED);
    want(r, DESIRED_START, 3, 1);
    cr_assert_eq(member_state(r->m), MEMBER_RUNNING);
}

static struct handover_member everybody[] = {{.incarnation = 1, .started = true}, {.incarnation = SELF}};

/* Names these, and gives this node the handover if it is one of them. */
static void name_of(struct rig *r, uint32_t epoch, const char *nodes) {
    struct successors s = {.epoch = epoch};
    for (; *nodes != '\0'; nodes++)
        s.list[s.n++] = peer_of((uint64_t)(*nodes - '0'));
    step(r, (struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
    struct handover e = {.epoch = epoch, .formed = {3, 1}, .n_order = 2, .n_members = 2, .members = everybody};
    take(r, (struct member_event){.kind = MEMBER_EVENT_HANDOVER, .handover = &e});
}

static void name(struct rig *r, const char *nodes) { name_of(r, 3, nodes); }

/* The leader's agent died, and that is known for certain. */
static void leader_gone(struct rig *r) {
    r->leases = false;
    disconnect(r);
    probed(r, PROBE_GONE);
}

static struct rig rig; /* of a test that has one; ended with it */

static void finish(void) { end(&rig); }

TestSuite(election, .fini = finish);

/* ---- finding a leader ---- */

Test(election, where_there_is_no_epoch_it_claims_the_first_and_leads) {
    begin(&rig);
    assert_election(&rig, ELECTION_ASKING);
    cr_assert(rig.asked[ARBITER_READ] == 1 && count(&rig, MEMBER_EFFECT_CONNECT) == 0);
    reads(&rig, 0, 0);
    assert_claim(&rig, 1);
    cr_assert_str_eq(last_claim(&rig).leader.addr, "10.0.0.7");
    struct arbiter_record ours = led_by(1, SELF);
    cr_assert(last_claim(&rig).idle);
    ours.idle = true;
    hears(&rig, ARBITER_CLAIM, 1, ARBITER_OK, &ours);
    assert_election(&rig, ELECTION_LEADING);
    struct group_config lead = *must(&rig, MEMBER_EFFECT_LEAD).lead;
    cr_assert(lead.epoch == 1 && lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_SERVED);
    cr_assert_str_eq(tried(&rig), "7", "its node joins its own leader");
    welcome(&rig, SELF, 1);
    cr_assert(member_state(rig.m) == MEMBER_IDLE && member_election(rig.m) == ELECTION_LEADING);
}

Test(election, an_arbiter_that_is_not_reached_is_asked_again_and_that_is_said) {
    begin(&rig);
    for (int i = 0; i < 3; i++) {
        hears(&rig, ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
        cr_assert_str_eq(member_waiting(rig.m), "the arbiter is on fire");
        pass(&rig, 0.999);
        cr_assert_eq(rig.asked[ARBITER_READ], 0);
        pass(&rig, 0.001);
        cr_assert_eq(rig.asked[ARBITER_READ], 1);
    }
    assert_election(&rig, ELECTION_ASKING);
}

Test(election, it_follows_the_leader_of_the_record) {
    begin(&rig);
    reads(&rig, 3, 1);
    assert_election(&rig, ELECTION_FOLLOWING);
    struct member_effect e = must(&rig, MEMBER_EFFECT_CONNECT);
    cr_assert(e.peer.incarnation == 1 && e.peer.port == 101 && e.soon);
    welcome(&rig, 1, 3);
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
    cr_assert_eq(member_epoch(rig.m), 3);
    cr_assert_eq(member_report(rig.m)->epoch, 3);
    struct rdzv_peer leader;
    cr_assert(member_leader(rig.m, &leader) && leader.incarnation == 1);
    e = must(&rig, MEMBER_EFFECT_JOIN_POLICY);
    cr_assert(e.join_policy == JOIN_POLICY_REDIRECTED && e.peer.incarnation == 1 && e.epoch == 3);
}

Test(election, a_claim_that_is_lost_leads_to_the_winner) {
    begin(&rig);
    reads(&rig, 0, 0);
    struct arbiter_record theirs = led_by(1, 2);
    hears(&rig, ARBITER_CLAIM, 1, ARBITER_LOST, &theirs);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_str_eq(tried(&rig), "2");
    cr_assert_eq(count(&rig, MEMBER_EFFECT_LEAD), 0);
}

Test(election, whoever_has_seen_a_higher_epoch_obeys_no_lower_one) {
    begin(&rig);
    reads(&rig, 3, 1);
    welcome(&rig, 1, 2);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_HANG_UP), 1);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_RENEW), 0);
    cr_assert_eq(member_state(rig.m), MEMBER_SEARCHING);
    want(&rig, DESIRED_FORM, 2, 1);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_PREPARE), 0);
    pass(&rig, 0.249);
    cr_assert_str_eq(tried(&rig), "");
    pass(&rig, 0.001);
    cr_assert_str_eq(tried(&rig), "1", "it is asked again, not at once");
    welcome(&rig, 1, 3);
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
}

Test(election, redirects_are_followed_at_once_a_few_times_and_then_with_a_pause) {
    follow(&rig);
    for (unsigned i = 0; i < 5; i++) {
        redirect(&rig, 3, 2 + i % 2);
        struct member_effect e = must(&rig, MEMBER_EFFECT_CONNECT);
        cr_assert_eq(e.peer.incarnation, 2 + i % 2);
        cr_assert_eq(e.soon, i < 2, "redirect %u", i);
    }
    welcome(&rig, 3, 3);
    redirect(&rig, 4, 2);
    cr_assert(must(&rig, MEMBER_EFFECT_CONNECT).soon, "the count begins anew");
    cr_assert_eq(member_epoch(rig.m), 4);
}

Test(election, a_redirect_to_nobody_to_itself_or_to_an_older_epoch_is_not_followed) {
    static const struct {
        uint32_t epoch;
        uint64_t node;
    } cases[] = {{3, 0}, {3, SELF}, {2, 4}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        redirect(&r, cases[i].epoch, cases[i].node);
        cr_assert_eq(count(&r, MEMBER_EFFECT_HANG_UP), 1, "case %zu", i);
        cr_assert_eq(r.asked[ARBITER_READ], 1, "the arbiter is asked who leads");
        pass(&r, 0.249);
        cr_assert_str_eq(tried(&r), "");
        pass(&r, 0.001);
        cr_assert_str_eq(tried(&r), "1", "case %zu: the leader of the record is asked again, not at once", i);
    }
}

Test(election, a_vacant_epoch_is_followed_by_a_claim_at_once_and_by_no_wait) {
    for (int seeking = 0; seeking < 2; seeking++) {
        struct member_config c = config_of();
        _cleanup_(end) struct rig r;
        if (seeking)
            follow(&r);
        else
            begin_with(&r, &c);
        if (seeking)
            leader_gone(&r);
        struct arbiter_record vacant = led_by(4, 1);
        vacant.vacant = true;
        hears(&r, ARBITER_READ, 0, ARBITER_OK, &vacant);
        assert_election(&r, ELECTION_CLAIMING);
        cr_assert(last_claim(&r).epoch == 5 && last_claim(&r).idle);
        struct arbiter_record won = led_by(5, SELF);
        won.idle = true;
        hears(&r, ARBITER_CLAIM, 5, ARBITER_OK, &won);
        struct group_config lead = *must(&r, MEMBER_EFFECT_LEAD).lead;
        cr_assert(lead.epoch == 5 && lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    }
}

/* ---- idle epochs ---- */

static struct arbiter_record idle_of(uint32_t epoch, uint64_t node) {
    struct arbiter_record r = led_by(epoch, node);
    r.idle = true;
    return r;
}

/* Follows node 1, which leads epoch 3 and has formed no group in it. */
static void follow_idle(struct rig *r) {
    struct member_config c = config_of();
    struct arbiter_record idle = idle_of(3, 1);
    begin_with(r, &c);
    hears(r, ARBITER_READ, 0, ARBITER_OK, &idle);
    r->there = idle;
    r->leases = r->reads = r->refuses = true;
    welcome(r, 1, 3);
}

static struct group_config wins(struct rig *r, uint32_t epoch, bool idle) {
    struct arbiter_record won = led_by(epoch, SELF);
    won.idle = idle;
    hears(r, ARBITER_CLAIM, epoch, ARBITER_OK, &won);
    assert_election(r, ELECTION_LEADING);
    return *must(r, MEMBER_EFFECT_LEAD).lead;
}

Test(election, an_idle_epochs_leader_that_is_gone_is_followed_within_a_heartbeat) {
    for (uint64_t i = 0; i < 10; i++) {
        struct member_config c = config_of();
        _cleanup_(end) struct rig r;
        c.seed = S(0.1) * i;
        begin_with(&r, &c);
        struct arbiter_record idle = r.there = idle_of(3, 1);
        hears(&r, ARBITER_READ, 0, ARBITER_OK, &idle);
        r.leases = r.reads = r.refuses = true;
        welcome(&r, 1, 3);
        r.beats = true; /* late, and of no use: it is gone */
        leader_gone(&r);
        if (i > 0) {
            pass(&r, 0.1 * (double)i - 0.001);
            assert_election(&r, ELECTION_SEEKING);
            pass(&r, 0.001);
        }
        assert_claim(&r, 4);
        cr_assert(last_claim(&r).idle);
        struct group_config lead = wins(&r, 4, true);
        cr_assert(lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    }
}

Test(election, an_idle_epochs_leader_that_is_silent_is_followed_when_its_beat_stood_for_a_lease) {
    follow_idle(&rig);
    rig.beats = true;
    pass(&rig, 10);
    rig.leases = rig.beats = false;
    rig.there.beat++;
    uint64_t since = rig.now_ns;
    while (member_election(rig.m) != ELECTION_CLAIMING)
        pass(&rig, 0.1);
    double took = (double)(rig.now_ns - since) / 1e9;
    cr_assert(took > 6.4 && took < 8.6, "%.2f s", took);
    assert_claim(&rig, 4);
    cr_assert(last_claim(&rig).idle && wins(&rig, 4, true).not_before_ns == 0);
}

Test(election, an_idle_epochs_leader_that_shows_life_is_left_alone) {
    follow_idle(&rig);
    rig.leases = false;
    rig.beats = true;
    pass(&rig, 100);
    cr_assert(member_election(rig.m) != ELECTION_CLAIMING && rig.asked[ARBITER_CLAIM] == 0);
}

Test(election, a_newcomer_follows_an_idle_epochs_leader_that_it_cant_reach_after_a_lease) {
    begin(&rig);
    rig.there = idle_of(3, 1);
    rig.reads = true;
    hears(&rig, ARBITER_READ, 0, ARBITER_OK, &rig.there);
    pass(&rig, 4.9);
    assert_election(&rig, ELECTION_FOLLOWING);
    pass(&rig, 1.2);
    assert_claim(&rig, 4);
}

Test(election, a_new_leader_knows_how_old_the_job_is) {
    follow(&rig);
    run(&rig);
    name(&rig, "72");
    uint64_t formed_ns = rig.now_ns;
    pass(&rig, 5);
    leader_gone(&rig);
    assert_claim(&rig, 4);
    cr_assert_eq(wins(&rig, 4, false).job_ns, S(60) + rig.now_ns - formed_ns);
}

/* It has read epoch 3 as idle: that says nothing of what came after it. */
Test(election, only_the_epoch_right_after_an_idle_one_is_claimed_as_idle) {
    follow_idle(&rig);
    leader_gone(&rig);
    assert_claim(&rig, 4);
    struct arbiter_record others = led_by(4, 1); /* it claimed it for its first group */
    rig.there = others;
    hears(&rig, ARBITER_CLAIM, 4, ARBITER_LOST, &others);
    assert_election(&rig, ELECTION_FOLLOWING);
    rig.reads = true;
    pass(&rig, 11);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    pass(&rig, 2);
    assert_claim(&rig, 5);
    cr_assert_not(last_claim(&rig).idle);
    struct group_config lead = wins(&rig, 5, false);
    cr_assert(!lead.idle && lead.not_before_ns == rig.now_ns + S(61.2), "it waits");
}

/* Its own group had asked for it, and the answer was lost. */
Test(election, what_a_won_epoch_is_the_record_says) {
    follow_idle(&rig);
    leader_gone(&rig);
    assert_claim(&rig, 4);
    struct group_config lead = wins(&rig, 4, false);
    cr_assert(!lead.idle && lead.not_before_ns > rig.now_ns + S(60));
}

Test(election, without_a_leader_and_an_arbiter_with_data_it_ends_when_that_stays_so) {
    static const struct arbiter_record nothing, others = {.epoch = 1, .leader.incarnation = 99};
    for (int at_once = 0; at_once < 2; at_once++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        name(&r, "72");
        hears(&r, ARBITER_READ, 0, ARBITER_RUINED, &nothing); /* while it has a leader, he says so */
        pass(&r, 5.5);
        cr_assert_eq(member_end(r.m)->kind, MEMBER_END_NONE);
        leader_gone(&r);
        assert_election(&r, ELECTION_CLAIMING);
        for (int i = 0; i < 6 && !at_once; i++) {
            cr_assert_eq(member_end(r.m)->kind, MEMBER_END_NONE, "after %d s", i);
            enum arbiter_kind kind = member_election(r.m) == ELECTION_CLAIMING ? ARBITER_CLAIM : ARBITER_READ;
            hears(&r, kind, 4, ARBITER_RUINED, &nothing);
            pass(&r, 1);
        }
        hears(&r, ARBITER_CLAIM, 4, ARBITER_RUINED, at_once ? &others : &nothing);
        cr_assert_eq(member_end(r.m)->kind, MEMBER_END_LEADER_LOST);
        cr_assert_not_null(strstr(member_end(r.m)->reason, "data of this job is gone"), "%s", member_end(r.m)->reason);
    }
}

Test(election, data_that_comes_back_in_time_ends_no_node) {
    follow(&rig);
    leader_gone(&rig);
    for (int i = 0; i < 10; i++) {
        hears(&rig, ARBITER_READ, 0, ARBITER_RUINED, NULL);
        pass(&rig, 4);
        cr_assert_str_eq(member_waiting(rig.m), "the arbiter is on fire");
        reads(&rig, 3, 1);
        pass(&rig, 1);
    }
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_NONE);
}

Test(election, without_a_leader_it_gives_up_at_the_join_timeout_and_says_what_it_waited_for) {
    begin(&rig);
    while (rig.now_ns < S(1599)) {
        hears(&rig, ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
        pass(&rig, 1);
    }
    hears(&rig, ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
    pass(&rig, 0.999);
    cr_assert_neq(member_state(rig.m), MEMBER_ENDED);
    pass(&rig, 0.001);
    cr_assert_eq(member_state(rig.m), MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
    cr_assert_not_null(strstr(member_end(rig.m)->reason, "join timeout: the arbiter is on fire"), "%s",
                       member_end(rig.m)->reason);
}

/* ---- a job that is over ---- */

Test(election, a_closed_record_ends_it_with_the_outcome_and_a_newcomer_says_so) {
    for (int member = 0; member < 2; member++) {
        for (enum outcome outcome = OUTCOME_SUCCESS; outcome <= OUTCOME_FAILED; outcome++) {
            struct member_config c = config_of();
            _cleanup_(end) struct rig r;
            begin_with(&r, &c);
            if (member) {
                reads(&r, 3, 1);
                r.leases = true;
                welcome(&r, 1, 3);
                run(&r);
                tell(&r, MEMBER_EVENT_SUCCEEDED);
                tell(&r, MEMBER_EVENT_ALL_GONE);
                leader_gone(&r);
            }
            struct arbiter_record record = led_by(3, 1);
            record.closed = true;
            record.outcome = outcome;
            (void)snprintf(record.reason, sizeof record.reason, "so it was");
            hears(&r, ARBITER_READ, 0, ARBITER_OK, &record);
            cr_assert_eq(member_state(r.m), MEMBER_ENDED);
            const struct member_end *e = member_end(r.m);
            cr_assert_eq(e->kind, outcome == OUTCOME_SUCCESS ? MEMBER_END_SUCCESS : MEMBER_END_FAILED);
            cr_assert_str_eq(e->reason, "so it was");
            cr_assert_eq(e->was_closed, !member);
            cr_assert_eq(e->was_over, !member);
        }
    }
}

Test(election, who_was_there_before_the_end_is_told_the_outcome_but_not_that_it_came_after_it) {
    begin(&rig);
    reads(&rig, 3, 1); /* a leader that does not admit it */
    struct arbiter_record record = led_by(3, 1);
    record.closed = true;
    record.outcome = OUTCOME_SUCCESS;
    hears(&rig, ARBITER_READ, 0, ARBITER_OK, &record);
    const struct member_end *e = member_end(rig.m);
    cr_assert_eq(e->kind, MEMBER_END_SUCCESS);
    cr_assert(e->was_closed && !e->was_over);
}

Test(election, a_closed_record_stops_the_workers_first) {
    follow(&rig);
    run(&rig);
    struct arbiter_record record = led_by(3, 1);
    record.closed = true;
    record.outcome = OUTCOME_FAILED;
    hears(&rig, ARBITER_READ, 0, ARBITER_OK, &record);
    cr_assert_eq(member_state(rig.m), MEMBER_RUNNING, "its leader tells it in time");
    disconnect(&rig);
    hears(&rig, ARBITER_READ, 0, ARBITER_OK, &record);
    cr_assert_eq(member_state(rig.m), MEMBER_STOPPING);
    tell(&rig, MEMBER_EVENT_ALL_GONE);
    cr_assert_eq(member_state(rig.m), MEMBER_ENDED);
}

/* ---- losing the leader ---- */

Test(election, a_leader_that_is_gone_is_lost_at_once_and_the_workers_stop_within_the_lease) {
    follow(&rig);
    name(&rig, "23");
    run(&rig);
    rig.leases = false;
    pass(&rig, 2);
    disconnect(&rig);
    cr_assert(must(&rig, MEMBER_EFFECT_CONNECT).peer.incarnation == 1 && must(&rig, MEMBER_EFFECT_CONNECT).soon);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_PROBE), 1);
    probed(&rig, PROBE_UNKNOWN);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_eq(member_state(rig.m), MEMBER_RUNNING);
    uint64_t left = member_lease_end(rig.m) - rig.now_ns;
    probed(&rig, PROBE_GONE);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_STOP).grace_ns, left);
    cr_assert_str_eq(tried(&rig), "2");
    cr_assert_not_null(strstr(member_waiting(rig.m), "looking for the next leader"));
    struct rdzv_peer leader;
    cr_assert(!member_leader(rig.m, &leader));
    tell(&rig, MEMBER_EVENT_ALL_GONE);
    cr_assert(member_state(rig.m) == MEMBER_IDLE && member_report(rig.m)->state == NODE_STOPPED);
}

Test(election, a_leader_without_leases_is_lost_at_lease_and_margin_and_the_workers_before) {
    follow(&rig);
    run(&rig);
    pass(&rig, 3);
    uint64_t last = member_lease_end(rig.m) - S(5);
    rig.leases = false;
    pass(&rig, (double)(last + S(5) - rig.now_ns) / 1e9);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_FENCE), 1);
    assert_election(&rig, ELECTION_FOLLOWING);
    pass(&rig, 0.999);
    assert_election(&rig, ELECTION_FOLLOWING);
    pass(&rig, 0.001);
    assert_election(&rig, ELECTION_SEEKING);
}

Test(election, words_without_a_lease_do_not_keep_a_leader) {
    follow(&rig);
    rig.leases = false;
    uint64_t since = rig.now_ns;
    while (member_election(rig.m) == ELECTION_FOLLOWING) {
        cr_assert_lt(rig.now_ns, since + S(10));
        pass(&rig, 0.25);
        step(&rig, (struct member_event){.kind = MEMBER_EVENT_LEASE,
                                         .lease = {.epoch = 3, .echo_ns = rig.now_ns, .clock_ns = rig.now_ns}});
    }
    cr_assert_eq(rig.now_ns, since + S(6));
}

Test(election, what_was_made_ready_is_dropped_with_the_leader) {
    for (int prepared = 0; prepared < 2; prepared++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        want(&r, DESIRED_FORM, 3, 1);
        if (prepared)
            tell(&r, MEMBER_EVENT_PREPARED);
        leader_gone(&r);
        cr_assert_eq(member_state(r.m), MEMBER_IDLE);
        cr_assert_eq(member_report(r.m)->state, NODE_STOPPED);
    }
}

Test(election, a_node_that_has_finished_stays_so_and_tells_the_next_leader) {
    follow(&rig);
    name(&rig, "2");
    run(&rig);
    tell(&rig, MEMBER_EVENT_SUCCEEDED);
    tell(&rig, MEMBER_EVENT_ALL_GONE);
    leader_gone(&rig);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_STOP), 0);
    cr_assert(member_report(rig.m)->state == NODE_FINISHED && member_report(rig.m)->finished);
    welcome(&rig, 2, 4);
    cr_assert_eq(member_report(rig.m)->state, NODE_FINISHED);
    struct desired idle = {.kind = DESIRED_IDLE, .epoch = 4};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &idle});
    cr_assert(member_report(rig.m)->state == NODE_STOPPED && member_report(rig.m)->finished);
    cr_assert_eq(generation_compare(member_report(rig.m)->generation, (struct generation){3, 1}), 0);
}

Test(election, its_own_sleep_is_not_the_leaders_silence) {
    follow(&rig);
    rig.now_ns += S(100);
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_TIME});
    assert_election(&rig, ELECTION_FOLLOWING);
}

Test(election, another_leaders_start_does_not_count_with_this_ones_word) {
    follow(&rig);
    want(&rig, DESIRED_FORM, 3, 1);
    tell(&rig, MEMBER_EVENT_PREPARED); /* its lease names the group already */
    rig.leases = false;
    disconnect(&rig);
    redirect(&rig, 4, 2);
    welcome(&rig, 2, 4);
    want(&rig, DESIRED_START, 3, 1);
    struct desired start = {.kind = DESIRED_START, .epoch = 4, .generation = {3, 1}};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &start});
    cr_assert_eq(count(&rig, MEMBER_EFFECT_START), 0);
}

Test(election, a_leaders_clock_is_not_told_to_the_next_leader) {
    follow(&rig);
    pass(&rig, 3);
    cr_assert_neq(must(&rig, MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 0);
    rig.leases = false;
    disconnect(&rig);
    welcome(&rig, 1, 3); /* the same, on another connection */
    pass(&rig, 1);
    cr_assert_neq(must(&rig, MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 0);
    redirect(&rig, 4, 2);
    welcome(&rig, 2, 4);
    pass(&rig, 1);
    struct renew renew = must(&rig, MEMBER_EFFECT_RENEW).renew;
    cr_assert(renew.epoch == 4 && renew.leader_clock_ns == 0 && renew.rtt_ns == 0);
    struct lease lease = {.epoch = 4, .echo_ns = rig.now_ns, .validity_ns = S(5), .clock_ns = 12345};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    pass(&rig, 1);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 12345);
}

Test(election, a_start_of_another_leader_is_cancelled) {
    follow(&rig);
    want(&rig, DESIRED_FORM, 3, 1);
    rig.leases = false;
    tell(&rig, MEMBER_EVENT_PREPARED);
    want(&rig, DESIRED_START, 3, 1); /* it waits for a lease */
    disconnect(&rig);
    redirect(&rig, 4, 2);
    welcome(&rig, 2, 4);
    struct lease lease = {.epoch = 4, .prepared = {3, 1}, .echo_ns = rig.now_ns, .validity_ns = S(5)};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    cr_assert_eq(count(&rig, MEMBER_EFFECT_START), 0);
}

/* ---- where it looks ---- */

Test(election, it_goes_to_the_successors_in_order_and_to_the_old_leader_unless_that_is_gone) {
    static const struct {
        const char *named;
        bool gone;
        const char *tried;
    } cases[] = {
        {"234", false, "2 3 4 1"}, {"234", true, "2 3 4"}, {"", false, "1"},     {"", true, ""},
        {"72", true, ""}, /* as the first it waits for the others */
        {"72", false, "1"},        {"27", false, "2 1"},   {"237", true, "2 3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct member_config c = config_of();
        c.rdzv.min_nodes = 5;
        _cleanup_(end) struct rig r;
        follow_with(&r, &c);
        name(&r, cases[i].named);
        r.refuses = true;
        r.leases = false;
        if (cases[i].gone) {
            leader_gone(&r);
        } else {
            r.reads = r.beats = true;
            while (member_election(r.m) == ELECTION_FOLLOWING)
                pass(&r, 0.01);
        }
        cr_assert_str_eq(tried(&r), cases[i].tried, "case %zu: %s", i, tried(&r));
    }
}

Test(election, rounds_come_with_growing_pauses) {
    follow(&rig);
    name(&rig, "23");
    rig.refuses = true;
    leader_gone(&rig);
    static const double pauses[] = {0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5};
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        pass(&rig, pauses[i] - 0.001);
        cr_assert_str_eq(tried(&rig), "", "pause %zu", i);
        pass(&rig, 0.001);
        cr_assert_str_eq(tried(&rig), "2 3", "pause %zu", i);
    }
}

Test(election, it_waits_with_a_successor_for_lease_and_margin_and_with_a_silent_leader_hardly) {
    follow(&rig);
    name(&rig, "23");
    rig.leases = false;
    while (member_election(rig.m) == ELECTION_FOLLOWING)
        pass(&rig, 0.25);
    cr_assert_str_eq(tried(&rig), "2");
    pass(&rig, 5.999);
    cr_assert_str_eq(tried(&rig), "");
    pass(&rig, 0.001);
    cr_assert_str_eq(tried(&rig), "3");
    pass(&rig, 6);
    cr_assert_str_eq(tried(&rig), "1");
    pass(&rig, 0.499);
    cr_assert_str_eq(tried(&rig), "");
    pass(&rig, 0.001 + 0.02);
    cr_assert_str_eq(tried(&rig), "2");
}

Test(election, a_successor_that_still_has_the_lost_leader_is_left_and_one_that_has_another_is_believed) {
    follow(&rig);
    name(&rig, "23");
    rig.leases = false;
    while (member_election(rig.m) == ELECTION_FOLLOWING)
        pass(&rig, 0.25);
    cr_assert_str_eq(tried(&rig), "2");
    redirect(&rig, 3, 1);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_str_eq(tried(&rig), "1", "no other successor will lead either");
    redirect(&rig, 4, 2);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_str_eq(tried(&rig), "2");
    welcome(&rig, 2, 4);
    cr_assert_eq(member_epoch(rig.m), 4);
}

Test(election, while_it_seeks_a_later_record_is_followed_and_the_same_is_not) {
    follow(&rig);
    leader_gone(&rig);
    reads(&rig, 3, 1);
    assert_election(&rig, ELECTION_SEEKING);
    reads(&rig, 4, 5);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_str_eq(tried(&rig), "5");
}

/* ---- successors ---- */

Test(election, the_first_successor_echoes_every_lease_and_no_other_does) {
    static const struct {
        const char *named;
        bool echoes;
    } cases[] = {{"72", true}, {"27", false}, {"234", false}, {"", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        r.leases = false;
        name(&r, cases[i].named);
        cr_assert_eq(count(&r, MEMBER_EFFECT_RENEW), cases[i].echoes, "the naming is answered by a RENEW");
        struct lease lease = {.epoch = 3, .echo_ns = r.now_ns, .clock_ns = 12345}; /* of no validity */
        step(&r, (struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
        cr_assert_eq(count(&r, MEMBER_EFFECT_SEND), cases[i].echoes, "case %zu", i);
        if (cases[i].echoes) {
            struct wire_message m;
            wire_small_message((struct wire_small[]){must(&r, MEMBER_EFFECT_SEND).message}, &m);
            cr_assert(m.kind == WIRE_ECHO && m.echo.epoch == 3 && m.echo.leader_clock_ns == 12345);
        }
    }
}

Test(election, a_naming_of_an_older_epoch_changes_nothing_and_one_of_a_later_is_learned_from) {
    struct rig r;
    follow(&r);
    name_of(&r, 2, "7");
    leader_gone(&r);
    assert_election(&r, ELECTION_SEEKING);
    end(&r);
    follow(&r);
    name_of(&r, 5, "7");
    cr_assert_eq(member_epoch(r.m), 5);
    leader_gone(&r);
    assert_claim(&r, 6);
    end(&r);
}

Test(election, the_first_successor_claims_at_once_when_the_leader_is_gone_and_enough_came) {
    struct member_config c = config_of();
    c.rdzv.min_nodes = 3;
    follow_with(&rig, &c);
    name(&rig, "72");
    disconnect(&rig);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_PARKED);
    probed(&rig, PROBE_GONE);
    assert_election(&rig, ELECTION_SEEKING);
    joiner(&rig, 2, true);
    joiner(&rig, 2, true); /* on a new connection */
    assert_election(&rig, ELECTION_SEEKING);
    joiner(&rig, 2, false);
    joiner(&rig, 3, true);
    assert_election(&rig, ELECTION_SEEKING);
    joiner(&rig, 2, true);
    assert_claim(&rig, 4);
}

Test(election, those_who_came_have_to_fill_a_unit) {
    struct member_config c = config_of();
    c.rdzv.min_nodes = 3;
    c.rdzv.node_unit = 2;
    follow_with(&rig, &c);
    name(&rig, "72");
    leader_gone(&rig);
    joiner(&rig, 2, true);
    joiner(&rig, 3, true);
    assert_election(&rig, ELECTION_SEEKING); /* 3 of 4 */
    joiner(&rig, 4, true);
    assert_claim(&rig, 4);
}

Test(election, where_the_leader_is_gone_and_too_few_come_somebody_ends_the_job_after_a_lease) {
    struct member_config c = config_of();
    c.rdzv.min_nodes = 3;
    follow_with(&rig, &c);
    name(&rig, "72");
    leader_gone(&rig);
    pass(&rig, 4.999);
    assert_election(&rig, ELECTION_SEEKING);
    pass(&rig, 0.001);
    assert_claim(&rig, 4);
}

/* Told to leave while it may be the next leader: it leads first, so that the end is recorded. */
static void leave(struct rig *r) {
    step(r, (struct member_event){.kind = MEMBER_EVENT_LEAVE, .reason = "told to", .grace_ns = S(3)});
}

static void assert_left(const struct rig *r) {
    cr_assert_eq(member_state(r->m), MEMBER_ENDED);
    cr_assert_eq(member_end(r->m)->kind, MEMBER_END_LEFT);
}

Test(election, a_successor_that_leaves_claims_without_waiting_for_others_and_ends_as_the_leader) {
    struct member_config c = config_of();
    c.rdzv.min_nodes = 3;
    follow_with(&rig, &c);
    name(&rig, "72");
    rig.leases = false;
    disconnect(&rig);
    leave(&rig); /* whether the leader is gone is not known yet */
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
    probed(&rig, PROBE_GONE);
    assert_claim(&rig, 4);
    struct arbiter_record ours = led_by(4, SELF);
    hears(&rig, ARBITER_CLAIM, 4, ARBITER_OK, &ours);
    assert_election(&rig, ELECTION_LEADING);
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
    welcome(&rig, SELF, 4);
    assert_left(&rig);
}

Test(election, a_node_that_leaves_waits_two_seconds_at_most_to_lead) {
    struct rig r;
    follow(&r);
    name(&r, "27"); /* nothing is known of 2 */
    leader_gone(&r);
    leave(&r);
    pass(&r, 1.999);
    assert_election(&r, ELECTION_SEEKING);
    cr_assert_eq(member_end(r.m)->kind, MEMBER_END_NONE);
    pass(&r, 0.001);
    assert_left(&r);
    end(&r);

    follow(&r);
    name(&r, "27");
    leader_gone(&r);
    leave(&r);
    leave(&r); /* asked again */
    assert_left(&r);
    end(&r);
}

Test(election, a_node_that_leaves_waits_for_the_answer_to_its_claim) {
    for (int won = 0; won <= 1; won++) {
        struct member_config c = config_of();
        _cleanup_(end) struct rig r;
        begin_with(&r, &c);
        reads(&r, 0, 0);
        assert_claim(&r, 1);
        leave(&r);
        cr_assert_eq(member_state(r.m), MEMBER_SEARCHING);
        struct arbiter_record winner = led_by(1, won ? SELF : 2);
        hears(&r, ARBITER_CLAIM, 1, won ? ARBITER_OK : ARBITER_LOST, &winner);
        if (won) {
            assert_election(&r, ELECTION_LEADING);
            welcome(&r, SELF, 1);
        }
        assert_left(&r);
    }
}

Test(election, a_node_that_leaves_and_can_not_lead_next_leaves_at_once) {
    struct rig r;
    follow(&r);
    name(&r, "72");
    leave(&r); /* it has a leader */
    assert_left(&r);
    end(&r);

    follow(&r);
    name(&r, "23"); /* it is no successor */
    leader_gone(&r);
    leave(&r);
    assert_left(&r);
    end(&r);

    struct member_config c = config_of();
    begin_with(&r, &c);
    leave(&r); /* it has asked for the record alone */
    assert_left(&r);
    end(&r);
}

Test(election, a_beat_that_stood_still_for_a_lease_lets_the_first_successor_claim) {
    follow(&rig);
    name(&rig, "72");
    rig.there.beat = 99; /* it moved in the meantime */
    rig.reads = true;
    rig.leases = false;
    uint64_t since = rig.now_ns;
    pass(&rig, 2.5);
    cr_assert_eq(rig.asked[ARBITER_READ], 0, "it reads from the second missing LEASE on");
    pass(&rig, 0.5);
    cr_assert_eq(rig.asked[ARBITER_READ], 2);
    while (member_election(rig.m) != ELECTION_CLAIMING) {
        cr_assert_lt(rig.now_ns, since + S(20));
        pass(&rig, 0.05);
    }
    cr_assert_eq(rig.there.epoch, 3);
    double waited = (double)(rig.now_ns - since) / 1e9;
    cr_assert(waited >= 7.5 && waited < 7.85, "it claimed after %g s", waited);
}

Test(election, while_the_beat_moves_nobody_is_deposed) {
    struct member_config c = config_of();
    c.seed = 0;
    follow_with(&rig, &c);
    name(&rig, "72");
    rig.reads = rig.beats = true;
    rig.leases = false;
    pass(&rig, 300);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_not_null(strstr(member_waiting(rig.m), "10.0.0.1, port 101, is alive, but not reachable"), "%s",
                       member_waiting(rig.m));
    rig.beats = false;
    pass(&rig, 4.5);
    assert_election(&rig, ELECTION_SEEKING);
    pass(&rig, 0.75);
    assert_election(&rig, ELECTION_CLAIMING);
}

Test(election, a_successor_without_the_handover_or_named_for_an_epoch_that_is_over_does_not_claim) {
    struct rig r;
    follow(&r);
    struct successors s = {.epoch = 3, .n = 1, .list = {peer_of(SELF)}};
    step(&r, (struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
    leader_gone(&r);
    assert_election(&r, ELECTION_SEEKING);
    cr_assert_eq(r.asked[ARBITER_CLAIM], 0);
    end(&r);
    follow(&r);
    name(&r, "7");
    redirect(&r, 4, 2);
    welcome(&r, 2, 4); /* nobody is named for epoch 4 yet */
    disconnect(&r);
    probed(&r, PROBE_GONE);
    assert_election(&r, ELECTION_SEEKING);
    cr_assert_eq(r.asked[ARBITER_CLAIM], 0);
    end(&r);
}

Test(election, later_successors_wait_three_seconds_for_each_before_them_that_may_be_there) {
    static const struct {
        const char *named;
        const char *gone; /* found so, one second after the leader */
        double waits;
    } cases[] = {
        {"27", "", 3},   {"27", "2", 1},   {"237", "", 6}, {"237", "2", 6},
        {"237", "3", 6}, {"237", "23", 1}, {"72", "", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        name(&r, cases[i].named);
        leader_gone(&r);
        uint64_t since = r.now_ns;
        if (cases[i].waits > 0) {
            assert_election(&r, ELECTION_SEEKING);
            pass(&r, 1);
            cr_assert_geq(count(&r, MEMBER_EFFECT_PROBE_PEER), 9, "those before it are probed");
            peer_probed(&r, 9, PROBE_GONE);
            peer_probed(&r, 2, PROBE_UNKNOWN);
            peer_probed(&r, 2, PROBE_ALIVE);
            for (const char *gone = cases[i].gone; *gone != '\0'; gone++)
                peer_probed(&r, (uint64_t)(*gone - '0'), PROBE_GONE);
        }
        while (member_election(r.m) != ELECTION_CLAIMING) {
            cr_assert_lt(r.now_ns, since + S(10), "case %zu", i);
            pass(&r, 0.05);
        }
        double waited = (double)(r.now_ns - since) / 1e9;
        cr_assert_float_eq(waited, cases[i].waits, 0.001, "case %zu: %g s", i, waited);
    }
}

Test(election, a_new_naming_needs_its_own_handover) {
    follow(&rig);
    name(&rig, "7");
    struct successors s = {.epoch = 4, .n = 1, .list = {peer_of(SELF)}};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
    leader_gone(&rig);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
}

Test(election, an_older_naming_replaces_no_newer_one) {
    follow(&rig);
    name_of(&rig, 3, "7");
    name_of(&rig, 2, "23");
    leader_gone(&rig);
    assert_claim(&rig, 4);
}

Test(election, the_beat_of_another_epoch_says_nothing_about_this_leader) {
    begin_with(&rig, &(struct member_config){.incarnation = SELF,
                                             .has_arbiter = true,
                                             .rdzv.heartbeat_ns = S(1),
                                             .rdzv.margin_ns = S(1),
                                             .rdzv.lease_ns = S(5),
                                             .rdzv.join_timeout_ns = S(600),
                                             .rdzv.arbiter_lease_ns = S(60),
                                             .probe_retry_ns = S(0.2),
                                             .rdzv.min_nodes = 1,
                                             .rdzv.max_nodes = 1,
                                             .rdzv.node_unit = 1,
                                             .seed = S(6),
                                             .self = peer_of(SELF)});
    reads(&rig, 2, 1);
    rig.leases = true;
    welcome(&rig, 1, 3);
    name(&rig, "7");
    rig.there = led_by(2, 1); /* an old record, whose beat stands still */
    rig.reads = true;
    rig.leases = false;
    pass(&rig, 14);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
}

/* ---- rule 4 ---- */

Test(election, a_leader_whose_beat_has_not_moved_since_he_was_lost_is_not_said_to_live) {
    begin(&rig);
    reads(&rig, 3, 1);
    rig.there = led_by(3, 1);
    rig.reads = true;
    for (int i = 0; i < 100; i++) {
        pass(&rig, 0.1);
        cr_assert_null(strstr(member_waiting(rig.m), "alive"), "%s", member_waiting(rig.m));
    }
    cr_assert_not_null(strstr(member_waiting(rig.m), "sends no message"), "%s", member_waiting(rig.m));
}

Test(election, a_leader_that_may_not_talk_to_this_node_is_said_with_the_reason) {
    begin(&rig);
    reads(&rig, 3, 1);
    rig.there = led_by(3, 1);
    rig.reads = rig.beats = true;
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_DISCONNECT, .reason = "it has another key"});
    pass(&rig, 5);
    disconnect(&rig); /* once more, by chance for another reason */
    pass(&rig, 95);
    cr_assert_not_null(strstr(member_waiting(rig.m), "but not reachable from here: it has another key"), "%s",
                       member_waiting(rig.m));
    welcome(&rig, 1, 3);
    disconnect(&rig);
    pass(&rig, 20);
    cr_assert_null(strstr(member_waiting(rig.m), "another key"), "%s", member_waiting(rig.m));
}

Test(election, where_nobody_has_led_yet_a_claim_that_fails_is_said_and_no_leader) {
    struct member_config c = config_of();
    begin_with(&rig, &c);
    reads(&rig, 0, 0);
    rig.reads = true; /* and finds nothing, each time */
    for (int i = 0; i < 200; i++) {
        struct arbiter_answer a = {.request = {.kind = ARBITER_CLAIM, .epoch = 1, .leader = c.self},
                                   .started_ns = rig.now_ns,
                                   .result = ARBITER_UNREACHABLE,
                                   .text = "the disk is full"};
        step(&rig, (struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
        pass(&rig, 0.1);
        cr_assert_not_null(strstr(member_waiting(rig.m), "the disk is full"), "%s", member_waiting(rig.m));
    }
}

Test(election, anybody_may_claim_where_the_beat_stood_still_for_long_and_a_random_part) {
    static const double parts[] = {0, 2.5, 6};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        struct member_config c = config_of();
        c.seed = S(parts[i]);
        _cleanup_(end) struct rig r;
        begin_with(&r, &c);
        reads(&r, 3, 1);
        r.there = led_by(3, 1);
        r.reads = r.beats = true;
        pass(&r, 100);
        assert_election(&r, ELECTION_FOLLOWING);
        cr_assert_not_null(strstr(member_waiting(r.m), "is alive, but not reachable from here"), "%s",
                           member_waiting(r.m));
        r.beats = false;
        pass(&r, 11.5 + parts[i]);
        assert_election(&r, ELECTION_FOLLOWING);
        cr_assert_not_null(strstr(member_waiting(r.m), "sends no message"));
        pass(&r, 1.6);
        assert_claim(&r, 4);
    }
}

Test(election, after_a_claim_that_was_given_up_the_beat_is_watched_anew) {
    begin(&rig);
    reads(&rig, 3, 1);
    rig.there = led_by(3, 1);
    rig.reads = true;
    while (member_election(rig.m) != ELECTION_CLAIMING)
        pass(&rig, 0.5);
    while (member_election(rig.m) == ELECTION_CLAIMING)
        pass(&rig, 0.5); /* no answer */
    pass(&rig, 11);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    pass(&rig, 3);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 1);
}

Test(election, a_node_with_a_leader_claims_nothing_whatever_the_beat) {
    follow(&rig);
    rig.reads = true;
    pass(&rig, 100);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_eq(rig.asked[ARBITER_READ], 0);
}

Test(election, its_own_sleep_is_no_standing_still_of_the_beat) {
    begin(&rig);
    reads(&rig, 3, 1);
    rig.there = led_by(3, 1);
    rig.reads = true;
    pass(&rig, 1);
    rig.now_ns += S(100);
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_TIME});
    pass(&rig, 11);
    assert_election(&rig, ELECTION_FOLLOWING);
}

/* ---- claiming ---- */

Test(election, from_the_claim_on_it_has_no_leader_of_a_lower_epoch) {
    follow(&rig);
    name(&rig, "72");
    leader_gone(&rig);
    assert_claim(&rig, 4);
    cr_assert_geq(count(&rig, MEMBER_EFFECT_HANG_UP), 1);
    welcome(&rig, 1, 3);
    assert_election(&rig, ELECTION_CLAIMING);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_RENEW), 0);
    pass(&rig, 4);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_RENEW), 0);
    reads(&rig, 9, 5); /* of a read before: the claim's answer says more */
    assert_election(&rig, ELECTION_CLAIMING);
}

Test(election, a_successors_claim_that_is_lost_leads_to_the_winner_or_to_the_end) {
    for (int closed = 0; closed < 2; closed++) {
        _cleanup_(end) struct rig r;
        follow(&r);
        name(&r, "72");
        leader_gone(&r);
        struct arbiter_record theirs = led_by(4, 2);
        theirs.closed = closed;
        theirs.outcome = closed ? OUTCOME_SUCCESS : OUTCOME_NONE;
        hears(&r, ARBITER_CLAIM, 4, ARBITER_LOST, &theirs);
        if (closed) {
            cr_assert_eq(member_end(r.m)->kind, MEMBER_END_SUCCESS);
        } else {
            assert_election(&r, ELECTION_FOLLOWING);
            cr_assert_eq(must(&r, MEMBER_EFFECT_CONNECT).peer.incarnation, 2);
            cr_assert_eq(count(&r, MEMBER_EFFECT_JOIN_POLICY), 0, "they stay parked until the winner is there");
            welcome(&r, 2, 4);
            cr_assert_eq(must(&r, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_REDIRECTED);
        }
    }
}

Test(election, a_claim_without_an_answer_is_asked_again_and_given_up_after_a_lease) {
    follow(&rig);
    name(&rig, "72");
    leader_gone(&rig);
    uint64_t since = rig.now_ns;
    hears(&rig, ARBITER_CLAIM, 4, ARBITER_UNREACHABLE, NULL);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    pass(&rig, 0.199);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    pass(&rig, 0.001);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 1);
    cr_assert_eq(last_claim(&rig).epoch, 4);
    hears(&rig, ARBITER_CLAIM, 3, ARBITER_OK, &(struct arbiter_record){.epoch = 3});
    assert_election(&rig, ELECTION_CLAIMING); /* the answer to another question */
    rig.there = led_by(3, 1);
    pass(&rig, (double)(since + S(5) - rig.now_ns) / 1e9 - 0.001);
    assert_election(&rig, ELECTION_CLAIMING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0, "one at a time");
    pass(&rig, 0.002);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 1, "it was given up; its conditions still hold, so it begins anew");
}

Test(election, a_claim_that_was_given_up_and_came_through_is_asked_again_before_it_counts) {
    begin(&rig);
    reads(&rig, 3, 1);
    struct arbiter_record ours = led_by(4, SELF);
    hears(&rig, ARBITER_CLAIM, 4, ARBITER_OK, &ours);
    assert_election(&rig, ELECTION_FOLLOWING); /* late: nobody waits for it */
    cr_assert_eq(count(&rig, MEMBER_EFFECT_LEAD), 0);
    reads(&rig, 4, SELF);
    assert_claim(&rig, 4);
    hears(&rig, ARBITER_CLAIM, 4, ARBITER_OK, &ours);
    assert_election(&rig, ELECTION_LEADING);
}

/* ---- with what it begins ---- */

static struct group_config win(struct rig *r, uint32_t epoch) {
    struct arbiter_record ours = led_by(epoch, SELF);
    hears(r, ARBITER_CLAIM, epoch, ARBITER_OK, &ours);
    assert_election(r, ELECTION_LEADING);
    struct group_config lead = *must(r, MEMBER_EFFECT_LEAD).lead;
    cr_assert_eq(lead.epoch, epoch);
    cr_assert_eq(member_epoch(r->m), epoch);
    return lead;
}

Test(election, the_first_successor_knows_that_no_lease_outlives_its_own_last_one) {
    follow(&rig);
    name(&rig, "72");
    pass(&rig, 3.5);
    uint64_t last = member_lease_end(rig.m) - S(5);
    leader_gone(&rig);
    cr_assert_lt(last, rig.now_ns);
    pass(&rig, 1);
    struct group_config lead = win(&rig, 4);
    cr_assert_eq(lead.absent_until_ns, last + S(6));
    cr_assert_eq(lead.not_before_ns, 0);
    cr_assert(lead.handover != NULL && lead.handover->n_members == 2 && lead.handover->members[0].incarnation == 1);
}

Test(election, a_first_successor_without_a_lease_since_counts_from_its_naming) {
    follow(&rig);
    rig.leases = false;
    pass(&rig, 1.5);
    uint64_t named = rig.now_ns;
    name(&rig, "72");
    pass(&rig, 0.5);
    leader_gone(&rig);
    cr_assert_eq(win(&rig, 4).absent_until_ns, named + S(6));
}

Test(election, a_later_successor_knows_the_members_and_not_when_their_leases_end) {
    follow(&rig);
    name(&rig, "27");
    leader_gone(&rig);
    peer_probed(&rig, 2, PROBE_GONE);
    pass(&rig, 0.5);
    struct group_config lead = win(&rig, 4);
    cr_assert_eq(lead.absent_until_ns, rig.now_ns + S(61.2));
    cr_assert(lead.not_before_ns == 0 && lead.handover != NULL);
}

Test(election, whoever_was_not_named_waits_for_the_longest_lease) {
    struct member_config c = config_of();
    c.seed = 0;
    begin_with(&rig, &c);
    reads(&rig, 3, 1);
    rig.there = led_by(3, 1);
    rig.reads = true;
    while (member_election(rig.m) != ELECTION_CLAIMING)
        pass(&rig, 1);
    struct group_config lead = win(&rig, 4);
    cr_assert_eq(lead.not_before_ns, rig.now_ns + S(61.2));
    cr_assert_eq(lead.absent_until_ns, rig.now_ns + S(61.2));
    cr_assert_null(lead.handover);
}

Test(election, an_handover_of_another_epoch_than_the_one_before_is_not_used) {
    struct member_config c = config_of();
    c.seed = 0;
    follow_with(&rig, &c);
    name(&rig, "72");
    rig.leases = false;
    rig.reads = true;
    rig.there = led_by(5, 4); /* others went on without this node */
    disconnect(&rig);
    pass(&rig, 1);
    while (member_election(rig.m) != ELECTION_CLAIMING) {
        cr_assert_lt(rig.now_ns, S(1030));
        pass(&rig, 1);
    }
    assert_claim(&rig, 6);
    struct group_config lead = win(&rig, 6);
    cr_assert_null(lead.handover);
    cr_assert_eq(lead.not_before_ns, rig.now_ns + S(61.2));
}

/* ---- those who come ---- */

Test(election, what_join_policy_are_told_is_said_when_it_changes_and_not_again) {
    begin(&rig);
    reads(&rig, 3, 1);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_JOIN_POLICY), 0, "from the beginning they are sent away");
    rig.leases = true;
    welcome(&rig, 1, 3);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_JOIN_POLICY), 1);
    name(&rig, "72");
    pass(&rig, 10);
    cr_assert_eq(count(&rig, MEMBER_EFFECT_JOIN_POLICY), 0);
    disconnect(&rig);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_PARKED,
                 "a successor that may have lost it");
    welcome(&rig, 1, 3);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_REDIRECTED);
    redirect(&rig, 4, 2);
    welcome(&rig, 2, 4);
    struct member_effect e = must(&rig, MEMBER_EFFECT_JOIN_POLICY);
    cr_assert(e.join_policy == JOIN_POLICY_REDIRECTED && e.peer.incarnation == 2 && e.epoch == 4);
    disconnect(&rig);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_SENT_AWAY,
                 "it is no successor any more");
}

Test(election, who_is_parked_does_not_count_any_more_after_another_leader) {
    struct member_config c = config_of();
    c.rdzv.min_nodes = 2;
    follow_with(&rig, &c);
    name(&rig, "72");
    disconnect(&rig);
    joiner(&rig, 2, true);
    welcome(&rig, 1, 3); /* the caller was sent there */
    leader_gone(&rig);
    assert_election(&rig, ELECTION_SEEKING);
    joiner(&rig, 2, true);
    assert_claim(&rig, 4);
}

/* ---- deposed ---- */

Test(election, a_deposed_leader_is_no_successor_of_its_own_epoch) {
    begin(&rig);
    reads(&rig, 0, 0);
    (void)win(&rig, 1);
    rig.leases = true;
    welcome(&rig, SELF, 1);
    name_of(&rig, 1, "7");
    tell(&rig, MEMBER_EVENT_DEPOSED);
    pass(&rig, 2);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
}

Test(election, a_leader_that_gave_up_is_not_said_to_be_silent_to_itself) {
    begin(&rig);
    reads(&rig, 0, 0);
    (void)win(&rig, 1);
    rig.leases = true;
    welcome(&rig, SELF, 1);
    rig.there = led_by(1, SELF);
    rig.reads = true;
    tell(&rig, MEMBER_EVENT_DEPOSED);
    for (int i = 0; i < 100; i++) {
        pass(&rig, 0.1);
        cr_assert_null(strstr(member_waiting(rig.m), "the leader at"), "%s", member_waiting(rig.m));
    }
}

Test(election, a_deposed_leader_stops_its_workers_and_follows_the_winner) {
    begin(&rig);
    reads(&rig, 0, 0);
    (void)win(&rig, 1);
    rig.leases = true;
    welcome(&rig, SELF, 1);
    struct desired d = {.kind = DESIRED_FORM, .epoch = 1, .generation = {1, 1}};
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    tell(&rig, MEMBER_EVENT_PREPARED);
    d.kind = DESIRED_START;
    step(&rig, (struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_eq(member_state(rig.m), MEMBER_RUNNING);
    pass(&rig, 1);
    tell(&rig, MEMBER_EVENT_DEPOSED);
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert(count(&rig, MEMBER_EFFECT_STOP) == 1 && count(&rig, MEMBER_EFFECT_HANG_UP) == 1);
    cr_assert_leq(must(&rig, MEMBER_EFFECT_STOP).grace_ns, S(5));
    cr_assert_eq(rig.asked[ARBITER_READ], 1);
    cr_assert_eq(must(&rig, MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_SENT_AWAY);
    reads(&rig, 1, SELF); /* an older answer */
    assert_election(&rig, ELECTION_SEEKING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    reads(&rig, 2, 3);
    assert_election(&rig, ELECTION_FOLLOWING);
    cr_assert_str_eq(tried(&rig), "3");
    welcome(&rig, 3, 2);
    cr_assert_eq(member_epoch(rig.m), 2);
    tell(&rig, MEMBER_EVENT_DEPOSED);
    assert_election(&rig, ELECTION_FOLLOWING); /* it leads no more */
}

Test(election, a_leader_claims_and_reads_nothing_as_a_node) {
    begin(&rig);
    reads(&rig, 0, 0);
    (void)win(&rig, 1);
    rig.leases = rig.reads = true;
    welcome(&rig, SELF, 1);
    name_of(&rig, 1, "23");
    pass(&rig, 700);
    assert_election(&rig, ELECTION_LEADING);
    cr_assert(rig.asked[ARBITER_READ] == 0 && rig.asked[ARBITER_CLAIM] == 0);
    disconnect(&rig);
    struct member_effect e = must(&rig, MEMBER_EFFECT_CONNECT);
    cr_assert(e.peer.incarnation == SELF && !e.soon);
}
