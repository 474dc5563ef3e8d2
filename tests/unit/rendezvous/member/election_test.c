#include "rendezvous/member/member.h"

#include <inttypes.h>

#include "rig/unit.h"

#define S(x) ((uint64_t)((x)*1e9))
#define SELF 7u
#define EFFECTS_MAX 256

/* Node 7 of a job with an arbiter. What the others answer is set here, and happens at once. */
static struct rig {
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
} rig;

static struct rdzv_peer peer_of(uint64_t node) {
    struct rdzv_peer p = {.incarnation = node, .port = (uint16_t)(100 + node)};
    (void)snprintf(p.addr, sizeof p.addr, "10.0.0.%d", (int)node);
    return p;
}

static void keep(const struct member_effect *e) {
    cr_assert_lt(rig.n, EFFECTS_MAX, "it never rests");
    rig.effects[rig.n] = *e;
    if (e->kind == MEMBER_EFFECT_ARBITER) {
        rig.requests[rig.n] = *e->request;
        rig.asked[e->request->kind]++;
    }
    rig.n++;
}

static void take(struct member_event e);

static void others_answer(size_t i) {
    const struct member_effect *e = &rig.effects[i];
    if (e->kind == MEMBER_EFFECT_ARBITER && rig.requests[i].kind == ARBITER_READ && rig.reads) {
        rig.there.beat += rig.beats;
        struct arbiter_answer a = {
            .request = rig.requests[i], .started_ns = rig.now_ns, .result = ARBITER_OK, .record = rig.there};
        take((struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
    } else if (e->kind == MEMBER_EFFECT_RENEW && rig.leases) {
        struct lease lease = {.epoch = member_epoch(rig.m),
                              .prepared = member_generation(rig.m),
                              .echo_ns = e->renew.clock_ns,
                              .validity_ns = S(5),
                              .clock_ns = rig.now_ns};
        take((struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    } else if (e->kind == MEMBER_EFFECT_CONNECT && rig.refuses && member_election(rig.m) == ELECTION_SEEKING) {
        take((struct member_event){.kind = MEMBER_EVENT_DISCONNECT});
    }
}

static void take(struct member_event e) {
    e.now_ns = rig.now_ns;
    member_step(rig.m, &e, &rig.u);
    size_t from = rig.n;
    for (size_t i = 0; i < rig.u.n_effects; i++)
        keep(&rig.u.effects[i]);
    size_t until = rig.n;
    for (size_t i = from; i < until; i++)
        others_answer(i);
}

static void forget(void) {
    rig.n = 0;
    memset(rig.asked, 0, sizeof rig.asked);
}

static void step(struct member_event e) {
    forget();
    take(e);
}

/* Time passes, from deadline to deadline. */
static void pass(double seconds) {
    uint64_t until = rig.now_ns + S(seconds);
    cr_assert_lt(until, S(3000), "what was waited for never came");
    forget();
    while (rig.now_ns < until && member_state(rig.m) != MEMBER_ENDED) {
        rig.now_ns = MIN2(until, MAX2(rig.u.deadline_ns, rig.now_ns + 1));
        if (rig.n > EFFECTS_MAX / 2)
            rig.n = 0;
        take((struct member_event){.kind = MEMBER_EVENT_TIME});
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

static void end(void) {
    member_update_fini(&rig.u);
    member_free(rig.m);
}

static void begin_with(const struct member_config *c) {
    end();
    rig = (struct rig){.now_ns = S(1000)};
    cr_assert_eq(member_new(c, rig.now_ns, &rig.m), 0);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
}

static void begin(void) { begin_with(AT(config_of())); }

static size_t count(enum member_effect_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < rig.n; i++)
        n += rig.effects[i].kind == kind;
    return n;
}

/* The last of them, which has to be there. */
static struct member_effect must(enum member_effect_kind kind) {
    for (size_t i = rig.n; i > 0; i--)
        if (rig.effects[i - 1].kind == kind)
            return rig.effects[i - 1];
    cr_assert_fail("no effect %d", (int)kind);
    return (struct member_effect){0};
}

static struct arbiter_request last_claim(void) {
    for (size_t i = rig.n; i > 0; i--)
        if (rig.effects[i - 1].kind == MEMBER_EFFECT_ARBITER && rig.requests[i - 1].kind == ARBITER_CLAIM)
            return rig.requests[i - 1];
    cr_assert_fail("nothing was claimed");
    return (struct arbiter_request){0};
}

/* Whom it tried, in order: "2 3 1". */
static const char *tried(void) {
    static char text[512];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < rig.n && len < 500; i++)
        if (rig.effects[i].kind == MEMBER_EFFECT_CONNECT)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", len == 0 ? "" : " ",
                                    (int)rig.effects[i].peer.incarnation);
    return text;
}

static void hears(enum arbiter_kind kind, uint32_t epoch, enum arbiter_result result,
                  const struct arbiter_record *record) {
    struct arbiter_answer a = {
        .request = {.kind = kind, .epoch = epoch, .leader = peer_of(SELF)}, .started_ns = rig.now_ns, .result = result};
    (void)snprintf(a.text, sizeof a.text, "the arbiter is on fire");
    if (record != NULL)
        a.record = *record;
    step((struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
}

static struct arbiter_record led_by(uint32_t epoch, uint64_t node) {
    return (struct arbiter_record){.epoch = epoch, .leader = peer_of(node)};
}

static void reads(uint32_t epoch, uint64_t leader) { hears(ARBITER_READ, 0, ARBITER_OK, AT(led_by(epoch, leader))); }

static void welcome(uint64_t leader, uint32_t epoch) {
    step((struct member_event){.kind = MEMBER_EVENT_WELCOME, .leader = leader, .epoch = epoch});
}

static void disconnect(void) { step((struct member_event){.kind = MEMBER_EVENT_DISCONNECT}); }

static void probed(enum probe_result result) {
    step((struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = result});
}

static void peer_probed(uint64_t peer, enum probe_result result) {
    step((struct member_event){.kind = MEMBER_EVENT_PEER_PROBE, .joiner = peer, .probe = result});
}

static void joiner(uint64_t node, bool comes) {
    step((struct member_event){.kind = comes ? MEMBER_EVENT_JOINER : MEMBER_EVENT_JOINER_GONE, .joiner = node});
}

static void redirect(uint32_t epoch, uint64_t node) {
    struct rdzv_peer peer = peer_of(node);
    step((struct member_event){.kind = MEMBER_EVENT_REDIRECT, .epoch = epoch, .peer = &peer});
}

static void tell(enum member_event_kind kind) {
    step((struct member_event){.kind = kind, .generation = member_generation(rig.m)});
}

static void want(enum desired_kind kind, uint32_t epoch, uint32_t counter) {
    struct desired d = {.kind = kind, .epoch = epoch, .generation = {epoch, counter}, .grace_ns = S(3)};
    d.form.job_ns = S(60);
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
}

#define assert_election(s) \
    cr_assert_eq(member_election(rig.m), (s), "it is %s", member_election_name(member_election(rig.m)))
#define assert_claim(e)                                                              \
    do {                                                                             \
        assert_election(ELECTION_CLAIMING);                                          \
        struct arbiter_request q_ = last_claim();                                    \
        cr_assert(q_.epoch == (e) && q_.leader.incarnation == SELF, "%u", q_.epoch); \
    } while (0)

/* Follows node 1, which leads epoch 3, and has its leases from now on. */
static void follow_with(const struct member_config *c) {
    begin_with(c);
    reads(3, 1);
    rig.leases = true;
    rig.there = led_by(3, 1);
    welcome(1, 3);
    assert_election(ELECTION_FOLLOWING);
}

static void follow(void) { follow_with(AT(config_of())); }

static void run(void) {
    want(DESIRED_FORM, 3, 1);
    tell(MEMBER_EVENT_PREPARED);
    want(DESIRED_START, 3, 1);
    cr_assert_eq(member_state(rig.m), MEMBER_RUNNING);
}

static struct handover_member everybody[] = {{.incarnation = 1, .started = true}, {.incarnation = SELF}};

/* Names this node, without the handover. */
static void name_alone(uint32_t epoch) {
    struct successors s = {.epoch = epoch, .n = 1, .list = {peer_of(SELF)}};
    step((struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
}

/* Names these, and gives this node the handover if it is one of them. */
static void name_of(uint32_t epoch, const char *nodes) {
    struct successors s = {.epoch = epoch};
    for (; *nodes != '\0'; nodes++)
        s.list[s.n++] = peer_of((uint64_t)(*nodes - '0'));
    step((struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
    struct handover e = {.epoch = epoch, .formed = {3, 1}, .n_order = 2, .n_members = 2, .members = everybody};
    take((struct member_event){.kind = MEMBER_EVENT_HANDOVER, .handover = &e});
}

static void name(const char *nodes) { name_of(3, nodes); }

/* The leader's agent died, and that is known for certain. */
static void leader_gone(void) {
    rig.leases = false;
    disconnect();
    probed(PROBE_GONE);
}

TestSuite(election, .fini = end);

/* ---- tests as stories ---- */

static void lead_epoch_1(void);
static void follow_idle(void);
static void see_leader(uint64_t seed);

static void closed_by(enum arbiter_kind kind, enum arbiter_result result, uint32_t epoch, uint64_t node) {
    hears(kind, epoch, result, WITH(led_by(epoch, node), .closed = true, .outcome = OUTCOME_SUCCESS));
}

/* Of the member, or of the election. */
static bool is(const char *state) {
    return strcmp(member_state_name(member_state(rig.m)), state) == 0 ||
           strcmp(member_election_name(member_election(rig.m)), state) == 0;
}

static void pass_until(const char *state) {
    for (uint64_t end_ns = rig.now_ns + S(60); !is(state);) {
        cr_assert_lt(rig.now_ns, end_ns, "it is never %s", state);
        pass(0.25);
    }
}

/* What those who come are told from now on. */
static const char *policy(void) {
    static const char *const names[] = {[JOIN_POLICY_SENT_AWAY] = "sent-away", [JOIN_POLICY_PARKED] = "parked"};
    struct member_effect e = must(MEMBER_EFFECT_JOIN_POLICY);
    if (e.join_policy == JOIN_POLICY_REDIRECTED)
        return rig_text("to %d in %u", (int)e.peer.incarnation, e.epoch);
    return names[e.join_policy];
}

#define WORD(w, act)            \
    if (strcmp(word, w) == 0) { \
        act;                    \
        return true;            \
    }

/* What happens. */
static bool act(const char *word, const char *rest, const double n[2]) {
    uint32_t a = (uint32_t)n[0], b = (uint32_t)n[1];
    bool on = strcmp(rest, "on") == 0;
    WORD("begin", begin())
    WORD("follow", follow_with(WITH(config_of(), .rdzv.min_nodes = MAX2(a, 1u), .rdzv.node_unit = MAX2(b, 1u))))
    WORD("follow-idle", follow_idle())
    WORD("see-leader", see_leader(0))
    WORD("lead", lead_epoch_1())
    WORD("leases", rig.leases = on)
    WORD("reads", rig.reads = on)
    WORD("beats", rig.beats = on)
    WORD("read", reads(a, b))
    WORD("read-closed", closed_by(ARBITER_READ, ARBITER_OK, a, b))
    WORD("won", hears(ARBITER_CLAIM, a, ARBITER_OK, AT(led_by(a, SELF))))
    WORD("lost", hears(ARBITER_CLAIM, a, ARBITER_LOST, AT(led_by(a, b))))
    WORD("lost-closed", closed_by(ARBITER_CLAIM, ARBITER_LOST, a, b))
    WORD("unanswered", hears(ARBITER_CLAIM, a, ARBITER_UNREACHABLE, NULL))
    WORD("welcome", welcome(a, b))
    WORD("redirect", redirect(a, b))
    WORD("form", want(DESIRED_FORM, a, b))
    WORD("start", want(DESIRED_START, a, b))
    WORD("name", name(rest))
    WORD("named-in", name_of(a, rest + strcspn(rest, " ") + 1))
    WORD("named-alone", name_alone(a))
    WORD("run", run())
    WORD("gone", leader_gone())
    WORD("found-gone", probed(PROBE_GONE))
    WORD("come", joiner(a, true))
    WORD("away", joiner(a, false))
    WORD("prepared", tell(MEMBER_EVENT_PREPARED))
    WORD("all-gone", tell(MEMBER_EVENT_ALL_GONE))
    WORD("deposed", tell(MEMBER_EVENT_DEPOSED))
    WORD("disconnect", disconnect())
    WORD("leave", step((struct member_event){.kind = MEMBER_EVENT_LEAVE, .reason = "told to", .grace_ns = S(3)}))
    WORD("pass", pass(n[0]))
    WORD("until", pass_until(rest))
    WORD("sleep", (rig.now_ns += S(n[0]), step((struct member_event){.kind = MEMBER_EVENT_TIME})))
    return false;
}

#define HOLDS(w, what_is_so)  \
    if (strcmp(word, w) == 0) \
        return what_is_so;

/* Whether that is so after the last step. */
static bool holds(const char *word, const char *rest, double n) {
    static const struct {
        const char *word;
        enum member_effect_kind kind;
    } counts[] = {{"hang-ups", MEMBER_EFFECT_HANG_UP},    {"renews", MEMBER_EFFECT_RENEW},
                  {"leads", MEMBER_EFFECT_LEAD},          {"prepares", MEMBER_EFFECT_PREPARE},
                  {"starts", MEMBER_EFFECT_START},        {"stops", MEMBER_EFFECT_STOP},
                  {"policies", MEMBER_EFFECT_JOIN_POLICY}};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
        HOLDS(counts[i].word, count(counts[i].kind) == (size_t)n)
    HOLDS("is", is(rest))
    HOLDS("reports", strcmp(node_state_names[member_report(rig.m)->state], rest) == 0)
    HOLDS("epoch", member_epoch(rig.m) == n)
    HOLDS("claims", rig.asked[ARBITER_CLAIM] == n)
    HOLDS("asks", rig.asked[ARBITER_READ] == n)
    HOLDS("claims-epoch", is("claiming") && last_claim().epoch == n && last_claim().leader.incarnation == SELF)
    HOLDS("tries", strcmp(tried(), rest) == 0)
    HOLDS("tries-later",
          must(MEMBER_EFFECT_CONNECT).peer.incarnation == (uint64_t)n && !must(MEMBER_EFFECT_CONNECT).soon)
    HOLDS("grace-at-most", must(MEMBER_EFFECT_STOP).grace_ns <= S(n))
    HOLDS("answers-joiners", strcmp(policy(), rest) == 0)
    HOLDS("waits-for", strstr(member_waiting(rig.m), rest) != NULL)
    HOLDS("left", is("ended") && member_end(rig.m)->kind == MEMBER_END_LEFT)
    HOLDS("succeeded", is("ended") && member_end(rig.m)->kind == MEMBER_END_SUCCESS)
    return false;
}

/* Steps, separated by ';': a word, and what belongs to it. */
static void play(const char *story) {
    for (const char *s = story; *s != '\0'; s += strcspn(s, ";")) {
        char word[32] = "", rest[128] = "";
        double n[2] = {0};
        s += strspn(s, "; ");
        (void)sscanf(s, "%31[^; ] %127[^;]", word, rest);
        (void)sscanf(rest, "%lf %lf", &n[0], &n[1]);
        if (act(word, rest, n))
            continue;
        cr_assert(holds(word, rest, n[0]), "not so: \"%s %s\", after \"%.*s\": %s, %s, tries \"%s\"", word, rest,
                  (int)(s - story), story, member_state_name(member_state(rig.m)),
                  member_election_name(member_election(rig.m)), tried());
    }
}
#define STORY(name, text) \
    Test(election, name) { play(text); }

/* ---- finding a leader ---- */

Test(election, where_there_is_no_epoch_it_claims_the_first_and_leads) {
    begin();
    assert_election(ELECTION_ASKING);
    cr_assert(rig.asked[ARBITER_READ] == 1 && count(MEMBER_EFFECT_CONNECT) == 0);
    reads(0, 0);
    assert_claim(1);
    cr_assert_str_eq(last_claim().leader.addr, "10.0.0.7");
    struct arbiter_record ours = led_by(1, SELF);
    cr_assert(last_claim().idle);
    ours.idle = true;
    hears(ARBITER_CLAIM, 1, ARBITER_OK, &ours);
    assert_election(ELECTION_LEADING);
    struct group_config lead = *must(MEMBER_EFFECT_LEAD).lead;
    cr_assert(lead.epoch == 1 && lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    cr_assert_eq(must(MEMBER_EFFECT_JOIN_POLICY).join_policy, JOIN_POLICY_SERVED);
    cr_assert_str_eq(tried(), "7", "its node joins its own leader");
    welcome(SELF, 1);
    cr_assert(member_state(rig.m) == MEMBER_IDLE && member_election(rig.m) == ELECTION_LEADING);
}

Test(election, an_arbiter_that_is_not_reached_is_asked_again_and_that_is_said) {
    begin();
    for (int i = 0; i < 3; i++) {
        hears(ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
        cr_assert_str_eq(member_waiting(rig.m), "the arbiter is on fire");
        pass(0.999);
        cr_assert_eq(rig.asked[ARBITER_READ], 0);
        pass(0.001);
        cr_assert_eq(rig.asked[ARBITER_READ], 1);
    }
    assert_election(ELECTION_ASKING);
}

Test(election, it_follows_the_leader_of_the_record) {
    begin();
    reads(3, 1);
    assert_election(ELECTION_FOLLOWING);
    struct member_effect e = must(MEMBER_EFFECT_CONNECT);
    cr_assert(e.peer.incarnation == 1 && e.peer.port == 101 && e.soon);
    welcome(1, 3);
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
    cr_assert_eq(member_epoch(rig.m), 3);
    cr_assert_eq(member_report(rig.m)->epoch, 3);
    struct rdzv_peer leader;
    cr_assert(member_leader(rig.m, &leader) && leader.incarnation == 1);
    e = must(MEMBER_EFFECT_JOIN_POLICY);
    cr_assert(e.join_policy == JOIN_POLICY_REDIRECTED && e.peer.incarnation == 1 && e.epoch == 3);
}

STORY(a_claim_that_is_lost_leads_to_the_winner, "begin; read 0 0; lost 1 2; is following; tries 2; leads 0")
STORY(whoever_has_seen_a_higher_epoch_obeys_no_lower_one,
      "begin; read 3 1; welcome 1 2; hang-ups 1; renews 0; is searching; form 2 1; prepares 0; "
      "pass 0.249; tries; pass 0.001; tries 1; welcome 1 3; is idle")

Test(election, redirects_are_followed_at_once_a_few_times_and_then_with_a_pause) {
    follow();
    for (unsigned i = 0; i < 5; i++) {
        redirect(3, 2 + i % 2);
        struct member_effect e = must(MEMBER_EFFECT_CONNECT);
        cr_assert_eq(e.peer.incarnation, 2 + i % 2);
        cr_assert_eq(e.soon, i < 2, "redirect %u", i);
    }
    welcome(3, 3);
    redirect(4, 2);
    cr_assert(must(MEMBER_EFFECT_CONNECT).soon, "the count begins anew");
    cr_assert_eq(member_epoch(rig.m), 4);
}

Test(election, a_redirect_to_nobody_to_itself_or_to_an_older_epoch_is_not_followed) {
    static const struct {
        uint32_t epoch;
        uint64_t node;
    } cases[] = {{3, 0}, {3, SELF}, {2, 4}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        follow();
        redirect(cases[i].epoch, cases[i].node);
        cr_assert_eq(count(MEMBER_EFFECT_HANG_UP), 1, "case %zu", i);
        cr_assert_eq(rig.asked[ARBITER_READ], 1, "the arbiter is asked who leads");
        pass(0.249);
        cr_assert_str_eq(tried(), "");
        pass(0.001);
        cr_assert_str_eq(tried(), "1", "case %zu: the leader of the record is asked again, not at once", i);
    }
}

Test(election, a_vacant_epoch_is_followed_by_a_claim_at_once_and_by_no_wait) {
    for (int seeking = 0; seeking < 2; seeking++) {
        if (seeking)
            follow();
        else
            begin();
        if (seeking)
            leader_gone();
        hears(ARBITER_READ, 0, ARBITER_OK, WITH(led_by(4, 1), .vacant = true));
        assert_election(ELECTION_CLAIMING);
        cr_assert(last_claim().epoch == 5 && last_claim().idle);
        hears(ARBITER_CLAIM, 5, ARBITER_OK, WITH(led_by(5, SELF), .idle = true));
        struct group_config lead = *must(MEMBER_EFFECT_LEAD).lead;
        cr_assert(lead.epoch == 5 && lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    }
}

/* ---- idle epochs ---- */

static struct arbiter_record idle_of(uint32_t epoch, uint64_t node) {
    struct arbiter_record r = *WITH(led_by(epoch, node), .idle = true);
    return r;
}

/* Follows node 1, which leads epoch 3 and has formed no group in it. */
static void follow_idle(void) {
    struct arbiter_record idle = idle_of(3, 1);
    begin();
    hears(ARBITER_READ, 0, ARBITER_OK, &idle);
    rig.there = idle;
    rig.leases = rig.reads = rig.refuses = true;
    welcome(1, 3);
}

static struct group_config wins(uint32_t epoch, bool idle) {
    hears(ARBITER_CLAIM, epoch, ARBITER_OK, WITH(led_by(epoch, SELF), .idle = idle));
    assert_election(ELECTION_LEADING);
    return *must(MEMBER_EFFECT_LEAD).lead;
}

Test(election, an_idle_epochs_leader_that_is_gone_is_followed_within_a_heartbeat) {
    for (uint64_t i = 0; i < 10; i++) {
        struct member_config c = config_of();
        c.seed = S(0.1) * i;
        begin_with(&c);
        hears(ARBITER_READ, 0, ARBITER_OK, AT(rig.there = idle_of(3, 1)));
        rig.leases = rig.reads = rig.refuses = true;
        welcome(1, 3);
        rig.beats = true; /* late, and of no use: it is gone */
        leader_gone();
        if (i > 0) {
            pass(0.1 * (double)i - 0.001);
            assert_election(ELECTION_SEEKING);
            pass(0.001);
        }
        assert_claim(4);
        cr_assert(last_claim().idle);
        struct group_config lead = wins(4, true);
        cr_assert(lead.idle && lead.not_before_ns == 0 && lead.handover == NULL);
    }
}

Test(election, an_idle_epochs_leader_that_is_silent_is_followed_when_its_beat_stood_for_a_lease) {
    follow_idle();
    rig.beats = true;
    pass(10);
    rig.leases = rig.beats = false;
    rig.there.beat++;
    uint64_t since = rig.now_ns;
    while (member_election(rig.m) != ELECTION_CLAIMING)
        pass(0.1);
    double took = (double)(rig.now_ns - since) / 1e9;
    cr_assert(took > 6.4 && took < 8.6, "%.2f s", took);
    assert_claim(4);
    cr_assert(last_claim().idle && wins(4, true).not_before_ns == 0);
}

STORY(an_idle_epochs_leader_that_shows_life_is_left_alone, "follow-idle; leases off; beats on; pass 100; claims 0")

Test(election, a_newcomer_follows_an_idle_epochs_leader_that_it_cant_reach_after_a_lease) {
    begin();
    rig.there = idle_of(3, 1);
    rig.reads = true;
    hears(ARBITER_READ, 0, ARBITER_OK, &rig.there);
    pass(4.9);
    assert_election(ELECTION_FOLLOWING);
    pass(1.2);
    assert_claim(4);
}

Test(election, a_new_leader_knows_how_old_the_job_is) {
    follow();
    run();
    name("72");
    uint64_t formed_ns = rig.now_ns;
    pass(5);
    leader_gone();
    assert_claim(4);
    cr_assert_eq(wins(4, false).job_ns, S(60) + rig.now_ns - formed_ns);
}

/* It has read epoch 3 as idle: that says nothing of what came after it. */
Test(election, only_the_epoch_right_after_an_idle_one_is_claimed_as_idle) {
    follow_idle();
    leader_gone();
    assert_claim(4);
    struct arbiter_record others = led_by(4, 1); /* it claimed it for its first group */
    rig.there = others;
    hears(ARBITER_CLAIM, 4, ARBITER_LOST, &others);
    assert_election(ELECTION_FOLLOWING);
    rig.reads = true;
    pass(11);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
    pass(2);
    assert_claim(5);
    cr_assert_not(last_claim().idle);
    struct group_config lead = wins(5, false);
    cr_assert(!lead.idle && lead.not_before_ns == rig.now_ns + S(61.2), "it waits");
}

/* Its own group had asked for it, and the answer was lost. */
Test(election, what_a_won_epoch_is_the_record_says) {
    follow_idle();
    leader_gone();
    assert_claim(4);
    struct group_config lead = wins(4, false);
    cr_assert(!lead.idle && lead.not_before_ns > rig.now_ns + S(60));
}

Test(election, without_a_leader_and_an_arbiter_with_data_it_ends_when_that_stays_so) {
    static const struct arbiter_record nothing, others = {.epoch = 1, .leader.incarnation = 99};
    for (int at_once = 0; at_once < 2; at_once++) {
        follow();
        name("72");
        hears(ARBITER_READ, 0, ARBITER_RUINED, &nothing); /* while it has a leader, he says so */
        pass(5.5);
        cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_NONE);
        leader_gone();
        assert_election(ELECTION_CLAIMING);
        for (int i = 0; i < 5 && !at_once; i++) {
            cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_NONE, "after %d s", i);
            enum arbiter_kind kind = member_election(rig.m) == ELECTION_CLAIMING ? ARBITER_CLAIM : ARBITER_READ;
            hears(kind, 4, ARBITER_RUINED, &nothing);
            pass(1);
        }
        hears(ARBITER_CLAIM, 4, ARBITER_RUINED, at_once ? &others : &nothing);
        cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
        assert_has(member_end(rig.m)->reason, "data of this job is gone");
    }
}

Test(election, data_that_comes_back_in_time_ends_no_node) {
    follow();
    leader_gone();
    for (int i = 0; i < 10; i++) {
        hears(ARBITER_READ, 0, ARBITER_RUINED, NULL);
        pass(4);
        cr_assert_str_eq(member_waiting(rig.m), "the arbiter is on fire");
        reads(3, 1);
        pass(1);
    }
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_NONE);
}

Test(election, without_a_leader_it_gives_up_at_the_join_timeout_and_says_what_it_waited_for) {
    begin();
    while (rig.now_ns < S(1599)) {
        hears(ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
        pass(1);
    }
    hears(ARBITER_READ, 0, ARBITER_UNREACHABLE, NULL);
    pass(0.999);
    cr_assert_neq(member_state(rig.m), MEMBER_ENDED);
    pass(0.001);
    cr_assert_eq(member_state(rig.m), MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
    assert_has(member_end(rig.m)->reason, "join timeout: the arbiter is on fire");
}

/* ---- a job that is over ---- */

Test(election, a_closed_record_ends_it_with_the_outcome_and_a_newcomer_says_so) {
    for (int member = 0; member < 2; member++) {
        for (enum outcome outcome = OUTCOME_SUCCESS; outcome <= OUTCOME_FAILED; outcome++) {
            begin();
            if (member) {
                reads(3, 1);
                rig.leases = true;
                welcome(1, 3);
                run();
                tell(MEMBER_EVENT_SUCCEEDED);
                tell(MEMBER_EVENT_ALL_GONE);
                leader_gone();
            }
            struct arbiter_record record = *WITH(led_by(3, 1), .closed = true, .outcome = outcome);
            (void)snprintf(record.reason, sizeof record.reason, "so it was");
            hears(ARBITER_READ, 0, ARBITER_OK, &record);
            cr_assert_eq(member_state(rig.m), MEMBER_ENDED);
            const struct member_end *e = member_end(rig.m);
            cr_assert_eq(e->kind, outcome == OUTCOME_SUCCESS ? MEMBER_END_SUCCESS : MEMBER_END_FAILED);
            cr_assert_str_eq(e->reason, "so it was");
            cr_assert_eq(e->was_closed, !member);
            cr_assert_eq(e->was_over, !member);
        }
    }
}

Test(election, who_was_there_before_the_end_is_told_the_outcome_but_not_that_it_came_after_it) {
    begin();
    reads(3, 1); /* a leader that does not admit it */
    hears(ARBITER_READ, 0, ARBITER_OK, WITH(led_by(3, 1), .closed = true, .outcome = OUTCOME_SUCCESS));
    const struct member_end *e = member_end(rig.m);
    cr_assert_eq(e->kind, MEMBER_END_SUCCESS);
    cr_assert(e->was_closed && !e->was_over);
}

STORY(a_closed_record_stops_the_workers_first,
      "follow; run; read-closed 3 1; is running; disconnect; read-closed 3 1; is stopping; all-gone; is ended")

/* ---- losing the leader ---- */

Test(election, a_leader_that_is_gone_is_lost_at_once_and_the_workers_stop_within_the_lease) {
    follow();
    name("23");
    run();
    rig.leases = false;
    pass(2);
    disconnect();
    cr_assert(must(MEMBER_EFFECT_CONNECT).peer.incarnation == 1 && must(MEMBER_EFFECT_CONNECT).soon);
    cr_assert_eq(count(MEMBER_EFFECT_PROBE), 1);
    probed(PROBE_UNKNOWN);
    assert_election(ELECTION_FOLLOWING);
    cr_assert_eq(member_state(rig.m), MEMBER_RUNNING);
    uint64_t left = member_lease_end(rig.m) - rig.now_ns;
    probed(PROBE_GONE);
    assert_election(ELECTION_SEEKING);
    cr_assert_eq(must(MEMBER_EFFECT_STOP).grace_ns, left);
    cr_assert_str_eq(tried(), "2");
    assert_has(member_waiting(rig.m), "looking for the next leader");
    struct rdzv_peer leader;
    cr_assert(!member_leader(rig.m, &leader));
    tell(MEMBER_EVENT_ALL_GONE);
    cr_assert(member_state(rig.m) == MEMBER_IDLE && member_report(rig.m)->state == NODE_STOPPED);
}

Test(election, a_leader_without_leases_is_lost_at_lease_and_margin_and_the_workers_before) {
    follow();
    run();
    pass(3);
    uint64_t last = member_lease_end(rig.m) - S(5);
    rig.leases = false;
    pass((double)(last + S(5) - rig.now_ns) / 1e9);
    cr_assert_eq(count(MEMBER_EFFECT_FENCE), 1);
    assert_election(ELECTION_FOLLOWING);
    pass(0.999);
    assert_election(ELECTION_FOLLOWING);
    pass(0.001);
    assert_election(ELECTION_SEEKING);
}

Test(election, words_without_a_lease_do_not_keep_a_leader) {
    follow();
    rig.leases = false;
    uint64_t since = rig.now_ns;
    while (member_election(rig.m) == ELECTION_FOLLOWING) {
        cr_assert_lt(rig.now_ns, since + S(10));
        pass(0.25);
        step((struct member_event){.kind = MEMBER_EVENT_LEASE,
                                   .lease = {.epoch = 3, .echo_ns = rig.now_ns, .clock_ns = rig.now_ns}});
    }
    cr_assert_eq(rig.now_ns, since + S(6));
}

STORY(what_was_made_ready_is_dropped_with_the_leader, "follow; form 3 1; gone; is idle; reports stopped; "
                                                      "follow; form 3 1; prepared; gone; is idle; reports stopped")

Test(election, a_node_that_has_finished_stays_so_and_tells_the_next_leader) {
    follow();
    name("2");
    run();
    tell(MEMBER_EVENT_SUCCEEDED);
    tell(MEMBER_EVENT_ALL_GONE);
    leader_gone();
    cr_assert_eq(count(MEMBER_EFFECT_STOP), 0);
    cr_assert(member_report(rig.m)->state == NODE_FINISHED && member_report(rig.m)->finished);
    welcome(2, 4);
    cr_assert_eq(member_report(rig.m)->state, NODE_FINISHED);
    struct desired idle = {.kind = DESIRED_IDLE, .epoch = 4};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &idle});
    cr_assert(member_report(rig.m)->state == NODE_STOPPED && member_report(rig.m)->finished);
    cr_assert_eq(generation_compare(member_report(rig.m)->generation, (struct generation){3, 1}), 0);
}

STORY(its_own_sleep_is_not_the_leaders_silence, "follow; sleep 100; is following")

Test(election, another_leaders_start_does_not_count_with_this_ones_word) {
    follow();
    want(DESIRED_FORM, 3, 1);
    tell(MEMBER_EVENT_PREPARED); /* its lease names the group already */
    rig.leases = false;
    disconnect();
    redirect(4, 2);
    welcome(2, 4);
    want(DESIRED_START, 3, 1);
    struct desired start = {.kind = DESIRED_START, .epoch = 4, .generation = {3, 1}};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &start});
    cr_assert_eq(count(MEMBER_EFFECT_START), 0);
}

Test(election, a_leaders_clock_is_not_told_to_the_next_leader) {
    follow();
    pass(3);
    cr_assert_neq(must(MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 0);
    rig.leases = false;
    disconnect();
    welcome(1, 3); /* the same, on another connection */
    pass(1);
    cr_assert_neq(must(MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 0);
    redirect(4, 2);
    welcome(2, 4);
    pass(1);
    struct renew renew = must(MEMBER_EFFECT_RENEW).renew;
    cr_assert(renew.epoch == 4 && renew.leader_clock_ns == 0 && renew.rtt_ns == 0);
    struct lease lease = {.epoch = 4, .echo_ns = rig.now_ns, .validity_ns = S(5), .clock_ns = 12345};
    step((struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    pass(1);
    cr_assert_eq(must(MEMBER_EFFECT_RENEW).renew.leader_clock_ns, 12345);
}

Test(election, a_start_of_another_leader_is_cancelled) {
    follow();
    want(DESIRED_FORM, 3, 1);
    rig.leases = false;
    tell(MEMBER_EVENT_PREPARED);
    want(DESIRED_START, 3, 1); /* it waits for a lease */
    disconnect();
    redirect(4, 2);
    welcome(2, 4);
    struct lease lease = {.epoch = 4, .prepared = {3, 1}, .echo_ns = rig.now_ns, .validity_ns = S(5)};
    step((struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
    cr_assert_eq(count(MEMBER_EFFECT_START), 0);
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
        follow_with(WITH(config_of(), .rdzv.min_nodes = 5));
        name(cases[i].named);
        rig.refuses = true;
        rig.leases = false;
        if (cases[i].gone) {
            leader_gone();
        } else {
            rig.reads = rig.beats = true;
            while (member_election(rig.m) == ELECTION_FOLLOWING)
                pass(0.01);
        }
        cr_assert_str_eq(tried(), cases[i].tried, "case %zu: %s", i, tried());
    }
}

Test(election, rounds_come_with_growing_pauses) {
    follow();
    name("23");
    rig.refuses = true;
    leader_gone();
    static const double pauses[] = {0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5};
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        pass(pauses[i] - 0.001);
        cr_assert_str_eq(tried(), "", "pause %zu", i);
        pass(0.001);
        cr_assert_str_eq(tried(), "2 3", "pause %zu", i);
    }
}

STORY(it_waits_with_a_successor_for_lease_and_margin_and_with_a_silent_leader_hardly,
      "follow; name 23; leases off; until seeking; tries 2; pass 5.999; tries; pass 0.001; tries 3; "
      "pass 6; tries 1; pass 0.499; tries; pass 0.021; tries 2")
STORY(a_successor_that_still_has_the_lost_leader_is_left_and_one_that_has_another_is_believed,
      "follow; name 23; leases off; until seeking; tries 2; "
      "redirect 3 1; is seeking; tries 1; redirect 4 2; is following; tries 2; welcome 2 4; epoch 4")
STORY(while_it_seeks_a_later_record_is_followed_and_the_same_is_not,
      "follow; gone; read 3 1; is seeking; read 4 5; is following; tries 5")

/* ---- successors ---- */

Test(election, the_first_successor_echoes_every_lease_and_no_other_does) {
    static const struct {
        const char *named;
        bool echoes;
    } cases[] = {{"72", true}, {"27", false}, {"234", false}, {"", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        follow();
        rig.leases = false;
        name(cases[i].named);
        cr_assert_eq(count(MEMBER_EFFECT_RENEW), cases[i].echoes, "the naming is answered by a RENEW");
        struct lease lease = {.epoch = 3, .echo_ns = rig.now_ns, .clock_ns = 12345}; /* of no validity */
        step((struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
        cr_assert_eq(count(MEMBER_EFFECT_ECHO), cases[i].echoes, "case %zu", i);
        if (cases[i].echoes) {
            struct echo echo = must(MEMBER_EFFECT_ECHO).echo;
            cr_assert(echo.epoch == 3 && echo.leader_clock_ns == 12345);
        }
    }
}

STORY(a_naming_of_an_older_epoch_changes_nothing_and_one_of_a_later_is_learned_from,
      "follow; named-in 2 7; gone; is seeking; follow; named-in 5 7; epoch 5; gone; claims-epoch 6")
STORY(the_first_successor_claims_at_once_when_the_leader_is_gone_and_enough_came,
      "follow 3; name 72; disconnect; answers-joiners parked; found-gone; is seeking; "
      "come 2; come 2; is seeking; away 2; come 3; is seeking; come 2; claims-epoch 4")
STORY(those_who_came_have_to_fill_a_unit,
      "follow 3 2; name 72; gone; come 2; come 3; is seeking; come 4; claims-epoch 4")
STORY(where_the_leader_is_gone_and_too_few_come_somebody_ends_the_job_after_a_lease,
      "follow 3; name 72; gone; pass 4.999; is seeking; pass 0.001; claims-epoch 4")

/* Who is told to leave while it may be the next leader leads first, so that the end is recorded. */

STORY(a_successor_that_leaves_claims_without_waiting_for_others_and_ends_as_the_leader,
      "follow 3; name 72; leases off; disconnect; leave; is idle; found-gone; claims-epoch 4; "
      "won 4; is leading; is idle; welcome 7 4; left")
STORY(a_node_that_leaves_waits_two_seconds_at_most_to_lead,
      "follow; name 27; gone; leave; pass 1.999; is seeking; is idle; pass 0.001; left; "
      "follow; name 27; gone; leave; leave; left")
STORY(a_node_that_leaves_waits_for_the_answer_to_its_claim,
      "begin; read 0 0; claims-epoch 1; leave; is searching; lost 1 2; left; "
      "begin; read 0 0; leave; is searching; won 1; is leading; welcome 7 1; left")
STORY(a_node_that_leaves_and_can_not_lead_next_leaves_at_once,
      "follow; name 72; leave; left; follow; name 23; gone; leave; left; begin; leave; left")

Test(election, a_beat_that_stood_still_for_a_lease_lets_the_first_successor_claim) {
    follow();
    name("72");
    rig.there.beat = 99; /* it moved in the meantime */
    rig.reads = true;
    rig.leases = false;
    uint64_t since = rig.now_ns;
    pass(2.5);
    cr_assert_eq(rig.asked[ARBITER_READ], 0, "it reads from the second missing LEASE on");
    pass(0.5);
    cr_assert_eq(rig.asked[ARBITER_READ], 2);
    while (member_election(rig.m) != ELECTION_CLAIMING) {
        cr_assert_lt(rig.now_ns, since + S(20));
        pass(0.05);
    }
    cr_assert_eq(rig.there.epoch, 3);
    double waited = (double)(rig.now_ns - since) / 1e9;
    cr_assert(waited >= 7.5 && waited < 7.85, "it claimed after %g s", waited);
}

STORY(while_the_beat_moves_nobody_is_deposed, "follow; name 72; reads on; beats on; leases off; pass 300; is seeking; "
                                              "waits-for 10.0.0.1, port 101, is alive, but not reachable; "
                                              "beats off; pass 4.5; is seeking; pass 0.75; is claiming")
STORY(a_successor_without_the_handover_or_named_for_an_epoch_that_is_over_does_not_claim,
      "follow; named-alone 3; gone; is seeking; claims 0; "
      "follow; name 7; redirect 4 2; welcome 2 4; disconnect; found-gone; is seeking; claims 0")

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
        follow();
        name(cases[i].named);
        leader_gone();
        uint64_t since = rig.now_ns;
        if (cases[i].waits > 0) {
            assert_election(ELECTION_SEEKING);
            pass(1);
            cr_assert_geq(count(MEMBER_EFFECT_PROBE_PEER), 9, "those before it are probed");
            peer_probed(9, PROBE_GONE);
            peer_probed(2, PROBE_UNKNOWN);
            peer_probed(2, PROBE_ALIVE);
            for (const char *gone = cases[i].gone; *gone != '\0'; gone++)
                peer_probed((uint64_t)(*gone - '0'), PROBE_GONE);
        }
        while (member_election(rig.m) != ELECTION_CLAIMING) {
            cr_assert_lt(rig.now_ns, since + S(10), "case %zu", i);
            pass(0.05);
        }
        double waited = (double)(rig.now_ns - since) / 1e9;
        cr_assert_float_eq(waited, cases[i].waits, 0.001, "case %zu: %g s", i, waited);
    }
}

STORY(a_new_naming_needs_its_own_handover, "follow; name 7; named-alone 4; gone; is seeking; claims 0")
STORY(an_older_naming_replaces_no_newer_one, "follow; named-in 3 7; named-in 2 23; gone; claims-epoch 4")

Test(election, the_beat_of_another_epoch_says_nothing_about_this_leader) {
    begin_with(WITH(config_of(), .seed = S(6)));
    reads(2, 1);
    rig.leases = true;
    welcome(1, 3);
    name("7");
    rig.there = led_by(2, 1); /* an old record, whose beat stands still */
    rig.reads = true;
    rig.leases = false;
    pass(14);
    assert_election(ELECTION_SEEKING);
    cr_assert_eq(rig.asked[ARBITER_CLAIM], 0);
}

/* ---- rule 4 ---- */

/* Node 1 leads epoch 3, by the record, and can't be reached. */
static void see_leader(uint64_t seed) {
    begin_with(WITH(config_of(), .seed = seed));
    reads(3, 1);
    rig.there = led_by(3, 1);
    rig.reads = true;
}

Test(election, a_leader_whose_beat_has_not_moved_since_he_was_lost_is_not_said_to_live) {
    see_leader(0);
    for (int i = 0; i < 100; i++) {
        pass(0.1);
        cr_assert_null(strstr(member_waiting(rig.m), "alive"), "%s", member_waiting(rig.m));
    }
    assert_has(member_waiting(rig.m), "sends no message");
}

Test(election, a_leader_that_may_not_talk_to_this_node_is_said_with_the_reason) {
    see_leader(0);
    rig.beats = true;
    step((struct member_event){.kind = MEMBER_EVENT_DISCONNECT, .reason = "it has another key"});
    pass(5);
    disconnect(); /* once more, by chance for another reason */
    pass(95);
    assert_has(member_waiting(rig.m), "but not reachable from here: it has another key");
    welcome(1, 3);
    disconnect();
    pass(20);
    cr_assert_null(strstr(member_waiting(rig.m), "another key"), "%s", member_waiting(rig.m));
}

Test(election, where_nobody_has_led_yet_a_claim_that_fails_is_said_and_no_leader) {
    struct member_config c = config_of();
    begin_with(&c);
    reads(0, 0);
    rig.reads = true; /* and finds nothing, each time */
    for (int i = 0; i < 200; i++) {
        struct arbiter_answer a = {.request = {.kind = ARBITER_CLAIM, .epoch = 1, .leader = c.self},
                                   .started_ns = rig.now_ns,
                                   .result = ARBITER_UNREACHABLE,
                                   .text = "the disk is full"};
        step((struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = &a});
        pass(0.1);
        assert_has(member_waiting(rig.m), "the disk is full");
    }
}

Test(election, anybody_may_claim_where_the_beat_stood_still_for_long_and_a_random_part) {
    static const double parts[] = {0, 2.5, 6};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        see_leader(S(parts[i]));
        rig.beats = true;
        pass(100);
        assert_election(ELECTION_FOLLOWING);
        assert_has(member_waiting(rig.m), "is alive, but not reachable from here");
        rig.beats = false;
        pass(11.5 + parts[i]);
        assert_election(ELECTION_FOLLOWING);
        assert_has(member_waiting(rig.m), "sends no message");
        pass(1.6);
        assert_claim(4);
    }
}

STORY(after_a_claim_that_was_given_up_the_beat_is_watched_anew,
      "see-leader; until claiming; until seeking; pass 11; claims 0; pass 3; claims 1")
STORY(a_node_with_a_leader_claims_nothing_whatever_the_beat, "follow; reads on; pass 100; is following; asks 0")
STORY(its_own_sleep_is_no_standing_still_of_the_beat, "see-leader; pass 1; sleep 100; pass 11; is following")

/* ---- claiming ---- */

STORY(from_the_claim_on_it_has_no_leader_of_a_lower_epoch,
      "follow; name 72; gone; claims-epoch 4; hang-ups 2; welcome 1 3; is claiming; renews 0; pass 4; renews 0; "
      "read 9 5; is claiming")
STORY(a_successors_claim_that_is_lost_leads_to_the_winner_or_to_the_end,
      "follow; name 72; gone; lost-closed 4 2; succeeded; "
      "follow; name 72; gone; lost 4 2; is following; tries 2; policies 0; welcome 2 4; answers-joiners to 2 in 4")
STORY(a_claim_without_an_answer_is_asked_again_and_given_up_after_a_lease,
      "follow; name 72; gone; unanswered 4; claims 0; pass 0.199; claims 0; pass 0.001; claims 1; claims-epoch 4; "
      "won 3; is claiming; pass 4.799; is claiming; claims 0; pass 0.002; claims 1")
STORY(a_claim_that_was_given_up_and_came_through_is_asked_again_before_it_counts,
      "begin; read 3 1; won 4; is following; leads 0; read 4 7; claims-epoch 4; won 4; is leading")

/* ---- with what it begins ---- */

static struct group_config win(uint32_t epoch) {
    hears(ARBITER_CLAIM, epoch, ARBITER_OK, AT(led_by(epoch, SELF)));
    assert_election(ELECTION_LEADING);
    struct group_config lead = *must(MEMBER_EFFECT_LEAD).lead;
    cr_assert_eq(lead.epoch, epoch);
    cr_assert_eq(member_epoch(rig.m), epoch);
    return lead;
}

Test(election, the_first_successor_knows_that_no_lease_outlives_its_own_last_one) {
    follow();
    name("72");
    pass(3.5);
    uint64_t last = member_lease_end(rig.m) - S(5);
    leader_gone();
    cr_assert_lt(last, rig.now_ns);
    pass(1);
    struct group_config lead = win(4);
    cr_assert_eq(lead.absent_until_ns, last + S(6));
    cr_assert_eq(lead.not_before_ns, 0);
    cr_assert(lead.handover != NULL && lead.handover->n_members == 2 && lead.handover->members[0].incarnation == 1);
}

Test(election, a_first_successor_without_a_lease_since_counts_from_its_naming) {
    follow();
    rig.leases = false;
    pass(1.5);
    uint64_t named = rig.now_ns;
    name("72");
    pass(0.5);
    leader_gone();
    cr_assert_eq(win(4).absent_until_ns, named + S(6));
}

Test(election, a_later_successor_knows_the_members_and_not_when_their_leases_end) {
    follow();
    name("27");
    leader_gone();
    peer_probed(2, PROBE_GONE);
    pass(0.5);
    struct group_config lead = win(4);
    cr_assert_eq(lead.absent_until_ns, rig.now_ns + S(61.2));
    cr_assert(lead.not_before_ns == 0 && lead.handover != NULL);
}

Test(election, whoever_was_not_named_waits_for_the_longest_lease) {
    see_leader(0);
    while (member_election(rig.m) != ELECTION_CLAIMING)
        pass(1);
    struct group_config lead = win(4);
    cr_assert_eq(lead.not_before_ns, rig.now_ns + S(61.2));
    cr_assert_eq(lead.absent_until_ns, rig.now_ns + S(61.2));
    cr_assert_null(lead.handover);
}

Test(election, an_handover_of_another_epoch_than_the_one_before_is_not_used) {
    follow_with(WITH(config_of(), .seed = 0));
    name("72");
    rig.leases = false;
    rig.reads = true;
    rig.there = led_by(5, 4); /* others went on without this node */
    disconnect();
    pass(1);
    while (member_election(rig.m) != ELECTION_CLAIMING) {
        cr_assert_lt(rig.now_ns, S(1030));
        pass(1);
    }
    assert_claim(6);
    struct group_config lead = win(6);
    cr_assert_null(lead.handover);
    cr_assert_eq(lead.not_before_ns, rig.now_ns + S(61.2));
}

/* ---- those who come ---- */

STORY(what_join_policy_are_told_is_said_when_it_changes_and_not_again,
      "begin; read 3 1; policies 0; leases on; welcome 1 3; answers-joiners to 1 in 3; name 72; policies 0; pass 10; "
      "policies 0; disconnect; answers-joiners parked; welcome 1 3; answers-joiners to 1 in 3; "
      "redirect 4 2; welcome 2 4; answers-joiners to 2 in 4; disconnect; answers-joiners sent-away")
STORY(who_is_parked_does_not_count_any_more_after_another_leader,
      "follow 2; name 72; disconnect; come 2; welcome 1 3; gone; is seeking; come 2; claims-epoch 4")

/* ---- deposed ---- */

static void lead_epoch_1(void) {
    begin();
    reads(0, 0);
    (void)win(1);
    rig.leases = true;
    welcome(SELF, 1);
}

STORY(a_deposed_leader_is_no_successor_of_its_own_epoch, "lead; named-in 1 7; deposed; pass 2; is seeking; claims 0")

Test(election, a_leader_that_gave_up_is_not_said_to_be_silent_to_itself) {
    lead_epoch_1();
    rig.there = led_by(1, SELF);
    rig.reads = true;
    tell(MEMBER_EVENT_DEPOSED);
    for (int i = 0; i < 100; i++) {
        pass(0.1);
        cr_assert_null(strstr(member_waiting(rig.m), "the leader at"), "%s", member_waiting(rig.m));
    }
}

STORY(a_deposed_leader_stops_its_workers_and_follows_the_winner,
      "lead; form 1 1; prepared; start 1 1; is running; pass 1; deposed; is seeking; stops 1; grace-at-most 5; "
      "hang-ups 1; asks 1; answers-joiners sent-away; read 1 7; is seeking; claims 0; read 2 3; is following; tries 3; "
      "welcome 3 2; epoch 2; deposed; is following")
STORY(a_leader_claims_and_reads_nothing_as_a_node,
      "lead; reads on; named-in 1 23; pass 700; is leading; asks 0; claims 0; disconnect; tries-later 7")
