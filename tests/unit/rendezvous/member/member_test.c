#include "rendezvous/member/member.h"

#include "rig/unit.h"

#define S(x) ((uint64_t)((x)*1e9))

/* One node, incarnation 7, whose leader (incarnation 1, epoch 1) is the test. */
static struct rig {
    struct member *m;
    struct member_update u;
    uint64_t now_ns;
} rig;

static const struct generation g1 = {1, 1}, g2 = {1, 2};

static void step(struct member_event e) {
    e.now_ns = rig.now_ns;
    member_step(rig.m, &e, &rig.u);
}

static void end(void) {
    member_update_fini(&rig.u);
    member_free(rig.m);
}

static void begin(void) {
    struct member_config c;
    member_config_default(&c);
    c.incarnation = 7;
    end();
    rig = (struct rig){.now_ns = S(1000)};
    cr_assert_eq(member_new(&c, rig.now_ns, &rig.m), 0);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
}

static const struct member_effect *effect(enum member_effect_kind kind) {
    for (size_t i = 0; rig.u.effects != NULL && i < rig.u.n_effects; i++)
        if (rig.u.effects[i].kind == kind)
            return &rig.u.effects[i];
    return NULL;
}

/* The effect, which has to be there. */
static struct member_effect must(enum member_effect_kind kind) {
    const struct member_effect *e = effect(kind);
    cr_assert_not_null(e);
    return e == NULL ? (struct member_effect){0} : *e;
}

static void welcome(uint64_t leader) {
    step((struct member_event){.kind = MEMBER_EVENT_WELCOME, .leader = leader, .epoch = 1});
}

static void want(enum desired_kind kind, struct generation g) {
    struct desired d = {.kind = kind, .epoch = 1, .generation = g, .grace_ns = S(3), .reason = "because"};
    d.outcome = kind == DESIRED_CLOSED ? OUTCOME_FAILED : OUTCOME_NONE;
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
}

static void lease_of(struct lease lease) { step((struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease}); }

static void lease(struct generation names) {
    lease_of((struct lease){.epoch = 1, .prepared = names, .echo_ns = rig.now_ns, .validity_ns = S(5), .clock_ns = 1});
}

static void tell(enum member_event_kind kind, struct generation g) {
    static const struct failure failure = {.kind = FAILURE_EXIT, .code = 3};
    step(
        (struct member_event){.kind = kind, .generation = g, .failure = &failure, .reason = "pid 9", .grace_ns = S(2)});
}

#define assert_state(s) cr_assert_eq(member_state(rig.m), (s), "it is %s", member_state_name(member_state(rig.m)))
#define assert_report(s, g)                                                                            \
    do {                                                                                               \
        cr_assert_eq(member_report(rig.m)->state, (s), "report %d", (int)member_report(rig.m)->state); \
        cr_assert_eq(generation_compare(member_report(rig.m)->generation, (g)), 0);                    \
    } while (0)

static void bring_to(enum member_state state) {
    begin();
    if (state == MEMBER_SEARCHING)
        return;
    welcome(1);
    if (state == MEMBER_IDLE)
        return;
    want(DESIRED_FORM, g1);
    if (state == MEMBER_PREPARING)
        return;
    tell(MEMBER_EVENT_PREPARED, g1);
    if (state == MEMBER_PREPARED)
        return;
    want(DESIRED_START, g1);
    lease(g1);
    assert_state(MEMBER_RUNNING);
    if (state == MEMBER_RUNNING)
        return;
    want(DESIRED_STOP, g1);
    assert_state(MEMBER_STOPPING);
}

/* Time passes; the leader answers with leases that name g (none: it is silent). */
static void pass(double seconds, const struct generation *g) {
    uint64_t until = rig.now_ns + S(seconds);
    while (rig.now_ns < until && member_state(rig.m) != MEMBER_ENDED) {
        rig.now_ns = MIN2(until, rig.now_ns + S(0.25));
        if (g != NULL)
            lease(*g);
        else
            step((struct member_event){.kind = MEMBER_EVENT_TIME});
    }
}

TestSuite(member, .fini = end);

/* ---- tests as stories ---- */

static bool is(const char *state) { return strcmp(member_state_name(member_state(rig.m)), state) == 0; }

static void bring_to_state(const char *name) {
    begin();
    for (int s = MEMBER_IDLE; s <= MEMBER_STOPPING && !is(name); s++)
        bring_to((enum member_state)s);
}

static void sleep_for(double seconds) {
    rig.now_ns += S(seconds);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
}

struct word {
    const char *word;
    int kind;
};

/* -1: there is no such word. */
static int kind_of(const struct word *words, size_t n, const char *word) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i].word, word) == 0)
            return words[i].kind;
    return -1;
}

static const struct word wanted[] = {
    {"form", DESIRED_FORM}, {"start", DESIRED_START}, {"stop", DESIRED_STOP}, {"idle", DESIRED_IDLE}};
static const struct word events[] = {{"prepared", MEMBER_EVENT_PREPARED},     {"all-gone", MEMBER_EVENT_ALL_GONE},
                                     {"failure", MEMBER_EVENT_FAILURE},       {"fenced", MEMBER_EVENT_FENCED},
                                     {"safe-point", MEMBER_EVENT_SAFE_POINT}, {"leave", MEMBER_EVENT_LEAVE},
                                     {"disconnect", MEMBER_EVENT_DISCONNECT}, {"refused", MEMBER_EVENT_REFUSED},
                                     {"succeeded", MEMBER_EVENT_SUCCEEDED}};
static const struct word effects[] = {{"report", MEMBER_EFFECT_REPORT},    {"renew", MEMBER_EFFECT_RENEW},
                                      {"prepare", MEMBER_EFFECT_PREPARE},  {"start", MEMBER_EFFECT_START},
                                      {"stop", MEMBER_EFFECT_STOP},        {"fence", MEMBER_EFFECT_FENCE},
                                      {"connect", MEMBER_EFFECT_CONNECT},  {"probe", MEMBER_EFFECT_PROBE},
                                      {"leave", MEMBER_EFFECT_SEND_LEAVE}, {"resume", MEMBER_EFFECT_RESUME}};
static const struct word ends[] = {
    {"leader-lost", MEMBER_END_LEADER_LOST}, {"left", MEMBER_END_LEFT}, {"refused", MEMBER_END_REFUSED}};
#define KIND_OF(words, word) kind_of(words, ARRAY_SIZE(words), word)

static bool act(const char *word, const char *rest) {
    double n = strtod(rest, NULL);
    struct generation g = {n > 0, (uint32_t)n};
    if (strcmp(word, "at") == 0)
        bring_to_state(rest);
    else if (strcmp(word, "lease") == 0)
        lease(g);
    else if (strcmp(word, "welcome") == 0)
        welcome((uint64_t)n);
    else if (strcmp(word, "pass") == 0)
        pass(n, NULL);
    else if (strcmp(word, "sleep") == 0)
        sleep_for(n);
    else if (strcmp(word, "probed") == 0)
        step((struct member_event){.kind = MEMBER_EVENT_PROBE,
                                   .probe = strcmp(rest, "gone") == 0 ? PROBE_GONE : PROBE_UNKNOWN});
    else if (KIND_OF(wanted, word) >= 0)
        want((enum desired_kind)KIND_OF(wanted, word), g);
    else if (KIND_OF(events, word) >= 0)
        tell((enum member_event_kind)KIND_OF(events, word), g);
    else
        return false;
    return true;
}

/* Whether that is so after the last step. */
static bool holds(const char *word, const char *rest) {
    const struct report *r = member_report(rig.m);
    if (strcmp(word, "is") == 0)
        return is(rest);
    if (strcmp(word, "reports") == 0)
        return strcmp(rig_text("%s %u", node_state_names[r->state], r->generation.counter), rest) == 0;
    if (strcmp(word, "has-failure") == 0)
        return r->has_failure;
    if (strcmp(word, "is-leaving") == 0)
        return r->leaving;
    if (strcmp(word, "at-safe-point") == 0 || strcmp(word, "at-no-safe-point") == 0)
        return r->at_safe_point == (strcmp(word, "at-safe-point") == 0);
    if (strcmp(word, "rests") == 0)
        return rig.u.n_effects == 0 && rig.u.deadline_ns == TIME_NEVER;
    if (strcmp(word, "has-no-failure") == 0)
        return !r->has_failure;
    if (strcmp(word, "does") == 0)
        return effect((enum member_effect_kind)KIND_OF(effects, rest)) != NULL;
    if (strcmp(word, "does-not") == 0)
        return KIND_OF(effects, rest) >= 0 && effect((enum member_effect_kind)KIND_OF(effects, rest)) == NULL;
    if (strcmp(word, "stops-within") == 0)
        return must(MEMBER_EFFECT_STOP).grace_ns == S(strtod(rest, NULL));
    return strcmp(word, "ends") == 0 && is("ended") && (int)member_end(rig.m)->kind == KIND_OF(ends, rest);
}

/* Steps, separated by ';': a word, and what belongs to it; a group is named by its counter. */
static void play(const char *story) {
    for (const char *s = story; *s != '\0'; s += strcspn(s, ";")) {
        char word[32] = "", rest[64] = "";
        s += strspn(s, "; ");
        (void)sscanf(s, "%31[^; ] %63[^;]", word, rest);
        if (!act(word, rest))
            cr_assert(holds(word, rest), "not so: \"%s %s\", after \"%.*s\": %s", word, rest, (int)(s - story), story,
                      member_state_name(member_state(rig.m)));
    }
}
#define STORY(name, text) \
    Test(member, name) { play(text); }

Test(member, a_configuration_without_name_or_heartbeat_is_refused) {
    struct member_config c;
    member_config_default(&c);
    struct member *m = NULL;
    cr_assert_eq(member_new(&c, 0, &m), -EINVAL);
    c.incarnation = 1;
    c.rdzv.heartbeat_ns = 0;
    cr_assert_eq(member_new(&c, 0, &m), -EINVAL);
}

STORY(form_is_prepared_once_and_acknowledged,
      "at idle; form 1; does prepare; form 1; does-not prepare; prepared 2; is preparing; prepared 1; is prepared; "
      "reports prepared 1; does report; does renew")

/* The verdict stays in each report until another one replaces it. */
Test(member, a_sick_node_reports_it_until_it_is_fit) {
    bring_to(MEMBER_STOPPING);
    cr_assert_eq(member_report(rig.m)->gpu, -1);
    step((struct member_event){.kind = MEMBER_EVENT_HEALTH, .sick = "lost\nGPU", .xid = 79, .gpu = 4});
    (void)must(MEMBER_EFFECT_REPORT);
    tell(MEMBER_EVENT_ALL_GONE, g1);
    want(DESIRED_FORM, g2);
    cr_assert_str_eq(member_report(rig.m)->sick, "lost?GPU");
    cr_assert(member_report(rig.m)->xid == 79 && member_report(rig.m)->gpu == 4);
    step((struct member_event){.kind = MEMBER_EVENT_HEALTH, .sick = "", .gpu = -1});
    (void)must(MEMBER_EFFECT_REPORT);
    cr_assert(member_report(rig.m)->sick[0] == '\0' && member_report(rig.m)->xid == 0);
}

Test(member, the_reachability_go_with_prepared_and_come_with_start) {
    bring_to(MEMBER_PREPARING);
    step((struct member_event){.kind = MEMBER_EVENT_PREPARED, .generation = g1, .reachability = 7});
    cr_assert_eq(member_report(rig.m)->reachability, 7u);
    lease(g1);
    struct desired d = {.kind = DESIRED_START, .epoch = 1, .generation = g1, .reachability = 5};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_eq(must(MEMBER_EFFECT_START).reachability, 5u);
    want(DESIRED_STOP, g1);
    tell(MEMBER_EVENT_ALL_GONE, g1);
    want(DESIRED_FORM, g2);
    cr_assert_eq(member_report(rig.m)->reachability, 0u, "of the next group nothing is known yet");
}

Test(member, start_and_the_lease_that_names_it_in_either_order) {
    for (int lease_first = 0; lease_first < 2; lease_first++) {
        bring_to(MEMBER_PREPARED);
        if (lease_first)
            lease(g1);
        else
            want(DESIRED_START, g1);
        cr_assert_null(effect(MEMBER_EFFECT_START));
        assert_state(MEMBER_PREPARED);
        if (lease_first)
            want(DESIRED_START, g1);
        else
            lease(g1);
        cr_assert_not_null(effect(MEMBER_EFFECT_START));
        cr_assert_eq(must(MEMBER_EFFECT_LEASE_END).lease_end_ns, rig.now_ns + S(5), "the guardian is told first");
        cr_assert(effect(MEMBER_EFFECT_LEASE_END) < effect(MEMBER_EFFECT_START));
    }
}

Test(member, start_waits_for_a_lease_that_counts) {
    bring_to(MEMBER_PREPARED);
    want(DESIRED_START, g1);
    const struct lease wrong[] = {
        {.epoch = 1, .prepared = {0, 0}, .echo_ns = rig.now_ns, .validity_ns = S(5)}, /* granted while gathering */
        {.epoch = 1, .prepared = g2, .echo_ns = rig.now_ns, .validity_ns = S(5)},
        {.epoch = 2, .prepared = g1, .echo_ns = rig.now_ns, .validity_ns = S(5)}, /* another leader's */
        {.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns, .validity_ns = 0},
        {.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns - S(1), .validity_ns = S(5)}, /* of an earlier connection */
        {.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns + 1, .validity_ns = S(5)},    /* of the future */
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        lease_of(wrong[i]);
        cr_assert_eq(member_state(rig.m), MEMBER_PREPARED, "lease %zu", i);
    }
    rig.now_ns += S(6);
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns - S(5), .validity_ns = S(5)});
    assert_state(MEMBER_PREPARED);
    lease(g1);
    assert_state(MEMBER_RUNNING);
}

Test(member, a_lease_counts_from_when_it_was_asked_for) {
    bring_to(MEMBER_RUNNING);
    uint64_t asked = rig.now_ns + S(1);
    rig.now_ns += S(3);
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = asked, .validity_ns = S(5)});
    cr_assert_eq(member_lease_end(rig.m), asked + S(5));
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = asked - S(0.5), .validity_ns = S(5)});
    cr_assert_eq(member_lease_end(rig.m), asked + S(5), "an older answer shortens nothing");
}

Test(member, the_end_of_the_lease_kills_without_grace_and_the_node_goes_on_as_stopped) {
    bring_to(MEMBER_RUNNING);
    pass(4.75, NULL);
    rig.now_ns += S(0.25) - 1;
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    cr_assert_null(effect(MEMBER_EFFECT_FENCE));
    rig.now_ns++;
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    cr_assert_not_null(effect(MEMBER_EFFECT_FENCE));
    assert_state(MEMBER_STOPPING);
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_state(MEMBER_IDLE);
    assert_report(NODE_STOPPED, g1);
    cr_assert_eq(must(MEMBER_EFFECT_LEASE_END).lease_end_ns, TIME_NEVER);
}

/* The node runs, and has not run for 10 s; then this event comes. */
static void wake(struct member_event event) {
    bring_to(MEMBER_RUNNING);
    rig.now_ns += S(10);
    step(event);
}

Test(member, after_a_sleep_the_workers_are_stopped_until_there_is_a_lease) {
    wake((struct member_event){.kind = MEMBER_EVENT_TIME});
    (void)must(MEMBER_EFFECT_HOLD);
    (void)must(MEMBER_EFFECT_RENEW);
    cr_assert_null(effect(MEMBER_EFFECT_FENCE));
    assert_state(MEMBER_HELD);
    cr_assert_eq(must(MEMBER_EFFECT_LEASE_END).lease_end_ns, rig.now_ns + S(6));
    /* the leader can't grant one yet; or it granted one long ago, which has ended, too */
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns});
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns - S(5), .validity_ns = S(5)});
    assert_state(MEMBER_HELD);
    rig.now_ns += S(0.1);
    lease(g1);
    assert_state(MEMBER_RUNNING);
    uint64_t paused = must(MEMBER_EFFECT_RESUME).paused_ns;
    cr_assert(paused > S(8) && paused <= S(10));
    cr_assert_eq(must(MEMBER_EFFECT_LEASE_END).lease_end_ns, rig.now_ns + S(5));
    assert_report(NODE_RUNNING, g1);
}

Test(member, a_lease_that_ends_soon_after_a_sleep_holds_the_workers) {
    bring_to(MEMBER_RUNNING);
    rig.now_ns += S(4);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    assert_state(MEMBER_RUNNING);
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns, .validity_ns = S(0.9)});
    rig.now_ns += S(0.25);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    (void)must(MEMBER_EFFECT_RENEW);
    pass(1, NULL);
    assert_state(MEMBER_HELD);
    lease_of((struct lease){.epoch = 1, .prepared = g1, .echo_ns = rig.now_ns, .validity_ns = S(0.9)});
    assert_state(MEMBER_HELD); /* it would end before the next is there */
    lease(g1);
    uint64_t paused = must(MEMBER_EFFECT_RESUME).paused_ns;
    cr_assert(paused > S(2) && paused <= S(4));
    assert_state(MEMBER_RUNNING);
    pass(6.5, NULL);
    assert_state(MEMBER_STOPPING); /* long after the sleep */
}

Test(member, after_a_sleep_a_group_that_was_given_up_does_not_continue) {
    static const char *const words[] = {"lease 2", "lease 0", "stop 2", "idle 0", "form 2"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        play(rig_text("at running; sleep 10; %s; does fence; does-not resume; does-not stop; is stopping", words[i]));
        play("lease 1; is stopping");
    }
}

/* STOP, CLOSED or a signal comes before the lease. */
static void stop_held(unsigned how) {
    static const struct generation none = {0, 0};
    wake((struct member_event){.kind = MEMBER_EVENT_TIME});
    if (how == 0)
        want(DESIRED_STOP, g1);
    else if (how == 1)
        want(DESIRED_CLOSED, none);
    else
        tell(MEMBER_EVENT_LEAVE, none);
    cr_assert_null(effect(MEMBER_EFFECT_FENCE), "case %u", how);
    cr_assert_null(effect(MEMBER_EFFECT_STOP), "case %u", how);
    assert_state(MEMBER_HELD);
}

Test(member, after_a_sleep_a_stop_waits_for_the_lease) {
    for (unsigned how = 0; how < 3; how++) {
        stop_held(how);
        lease(g1);
        (void)must(MEMBER_EFFECT_RESUME);
        (void)must(MEMBER_EFFECT_STOP);
        assert_state(MEMBER_STOPPING);
        stop_held(how); /* no lease comes */
        pass(5.9, NULL);
        assert_state(MEMBER_HELD);
        pass(0.2, NULL);
        assert_state(MEMBER_STOPPING);
        cr_assert_null(effect(MEMBER_EFFECT_RESUME));
        stop_held(how); /* they die meanwhile */
        tell(MEMBER_EVENT_ALL_GONE, g1);
        if (how == 0)
            assert_report(NODE_STOPPED, g1);
        else
            assert_state(MEMBER_ENDED);
        stop_held(how); /* they can't be killed */
        tell(MEMBER_EVENT_UNKILLABLE, g1);
        assert_state(how == 0 ? MEMBER_HELD : MEMBER_ENDED);
    }
}

STORY(after_a_sleep_it_waits_for_an_answer_for_lease_and_margin,
      "at running; sleep 10; pass 5.9; is held; sleep 20; pass 5.9; is held; pass 0.2; is stopping")
STORY(workers_that_end_while_they_are_held_are_reported,
      "at running; sleep 10; failure 1; reports failed 1; all-gone 1; reports failed 1; is running; "
      "at running; sleep 10; succeeded 1; reports finished 1; all-gone 1; reports finished 1; is running")
STORY(a_failure_is_reported_once_and_others_may_run_on,
      "at running; failure 2; has-no-failure; failure 1; is running; reports failed 1; has-failure; "
      "failure 1; does-not report; stop 1; all-gone 1; reports stopped 1; has-failure; form 2; has-no-failure")
STORY(a_kill_by_the_guardian_fences_the_node_though_its_lease_holds,
      "at running; fenced 2; does-not fence; fenced 1; does fence; is stopping; "
      "failure 1; has-no-failure; all-gone 1; reports stopped 1")
STORY(a_group_without_a_worker_does_not_run, "at running; all-gone 1; reports failed 1; has-failure; "
                                             "at running; succeeded 1; all-gone 1; reports finished 1; has-no-failure")
STORY(a_safe_point_is_reported_once_and_only_of_the_group_that_runs,
      "at running; safe-point 2; does-not report; safe-point 1; does report; at-safe-point; lease 1; at-no-safe-point; "
      "stop 1; safe-point 1; does report; at-safe-point; all-gone 1; at-no-safe-point; safe-point 1; does-not report")

Test(member, a_better_cause_is_passed_on_also_when_nothing_is_left_to_stop) {
    bring_to(MEMBER_RUNNING);
    struct desired d = {.kind = DESIRED_STOP,
                        .epoch = 1,
                        .generation = g1,
                        .grace_ns = 0,
                        .has_failure = true,
                        .failure = {.kind = FAILURE_EXIT, .rank = 3}};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    (void)must(MEMBER_EFFECT_STOP);
    step((struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    cr_assert_eq(member_state(rig.m), MEMBER_IDLE);
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_null(effect(MEMBER_EFFECT_STOP)); /* repeated, not better */
    d.failure.rank = 1;
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    (void)must(MEMBER_EFFECT_STOP);
    cr_assert_eq(member_stop_cause(rig.m)->failure.rank, 1);
}

Test(member, why_the_group_stops_is_said_where_all_workers_have_ended_before_too) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_FAILURE, g1);
    step((struct member_event){.kind = MEMBER_EVENT_ALL_GONE});
    assert_state(MEMBER_RUNNING);
    struct desired d = {.kind = DESIRED_STOP, .epoch = 1, .generation = g1, .reason = "node b is gone"};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_str_eq(must(MEMBER_EFFECT_STOP).reason, "node b is gone");
    assert_report(NODE_STOPPED, g1);
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_null(effect(MEMBER_EFFECT_STOP));
}

Test(member, a_signal_noticed_just_after_an_exit_is_the_nodes_first_failure) {
    static const struct {
        enum failure_kind kind;
        uint64_t later_ns;
        uint32_t rank;
    } cases[] = {{FAILURE_SIGNAL, FAILURE_ECHO_NS, 5}, {FAILURE_SIGNAL, FAILURE_ECHO_NS + 1, 4}, {FAILURE_EXIT, 1, 4}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bring_to(MEMBER_RUNNING);
        struct failure first = {.kind = FAILURE_EXIT, .code = 1, .rank = 4, .at_ns = S(1)};
        struct failure next = {.kind = cases[i].kind, .code = 9, .rank = 5, .at_ns = S(1) + cases[i].later_ns};
        step((struct member_event){.kind = MEMBER_EVENT_FAILURE, .generation = g1, .failure = &first});
        step((struct member_event){.kind = MEMBER_EVENT_FAILURE, .generation = g1, .failure = &next});
        cr_assert_eq(member_report(rig.m)->failure.rank, cases[i].rank, "case %zu", i);
    }
}

STORY(preparing_that_fails_is_a_nack, "at preparing; failure 1; is idle; reports failed 1")

Test(member, old_words_change_nothing) {
    bring_to(MEMBER_STOPPING);
    tell(MEMBER_EVENT_ALL_GONE, g1);
    want(DESIRED_FORM, g2);
    tell(MEMBER_EVENT_PREPARED, g2);
    lease(g2);
    want(DESIRED_START, g1);
    want(DESIRED_STOP, g1);
    want(DESIRED_FORM, g1);
    assert_state(MEMBER_PREPARED);
    struct desired other = {.kind = DESIRED_START, .epoch = 2, .generation = g2};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &other});
    assert_state(MEMBER_PREPARED);
    want(DESIRED_START, g2);
    assert_state(MEMBER_RUNNING);
}

STORY(a_newer_word_drops_what_was_made_ready_for_an_older_group,
      "at preparing; form 2; is preparing; does prepare; prepared 2; reports prepared 2; "
      "at preparing; stop 2; is idle; reports stopped 2; at preparing; idle; is idle; reports stopped 1; "
      "at prepared; form 2; is preparing; does prepare; prepared 2; reports prepared 2; "
      "at prepared; stop 2; is idle; reports stopped 2; at prepared; idle; is idle; reports stopped 1")
STORY(a_form_that_comes_while_workers_stop_waits_for_the_last,
      "at stopping; form 2; is stopping; does-not prepare; all-gone 1; is preparing")
STORY(a_node_that_is_told_to_be_idle_ends_what_it_runs, "at running; idle; does stop; all-gone 1; reports stopped 1")
STORY(a_lost_connection_is_tried_again_at_once_and_probed_and_workers_run_on,
      "at running; disconnect; does connect; does probe; is running; failure 1; does-not report; "
      "welcome 1; does report; is running")
STORY(a_gone_leader_ends_the_workers_with_grace_no_longer_than_the_lease,
      "at running; pass 2; disconnect; probed unknown; is running; probed gone; stops-within 3; all-gone 1; "
      "ends leader-lost")
STORY(a_silent_leader_is_given_up_at_its_timeout, "at prepared; pass 59.75; is prepared; pass 0.25; ends leader-lost")
STORY(its_own_sleep_is_not_the_leaders_silence, "at prepared; sleep 300; is prepared")

Test(member, a_connection_that_swallows_words_is_replaced_when_a_probe_shows_the_leader_alive) {
    bring_to(MEMBER_RUNNING);
    while (effect(MEMBER_EFFECT_PROBE) == NULL) {
        cr_assert_lt(rig.now_ns, S(1005), "it never asks");
        pass(0.25, NULL);
    }
    step((struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = PROBE_ALIVE});
    cr_assert_not_null(effect(MEMBER_EFFECT_CONNECT));
    assert_state(MEMBER_RUNNING);
}

Test(member, nobody_answers_within_the_join_timeout) {
    begin();
    for (int i = 0; i < 599; i++) {
        rig.now_ns += S(1);
        tell(MEMBER_EVENT_DISCONNECT, g1);
        cr_assert_not_null(effect(MEMBER_EFFECT_CONNECT));
        step((struct member_event){.kind = MEMBER_EVENT_TIME});
    }
    assert_state(MEMBER_SEARCHING);
    rig.now_ns += S(1);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    assert_state(MEMBER_ENDED);
}

STORY(another_leader_at_the_endpoint_is_the_end_of_a_group_but_not_of_a_newcomer,
      "at idle; disconnect; welcome 2; is idle; form 1; is preparing; "
      "at prepared; disconnect; start 1; welcome 2; lease 1; ends leader-lost")
STORY(
    leaving_stops_says_so_and_goes_and_a_second_time_kills,
    "at running; leave; is-leaving; does report; stops-within 2; leave; does fence; all-gone 1; does leave; ends left")

Test(member, closed_in_every_state_ends_with_the_outcome_and_no_worker_left) {
    for (int s = MEMBER_IDLE; s <= MEMBER_STOPPING; s++) {
        bring_to((enum member_state)s);
        bool workers = member_has_workers(rig.m);
        want(DESIRED_CLOSED, g1);
        if (workers) {
            cr_assert_neq(member_state(rig.m), MEMBER_ENDED);
            tell(MEMBER_EVENT_ALL_GONE, g1);
        }
        assert_state(MEMBER_ENDED);
        assert_report(NODE_CLOSED, member_generation(rig.m));
        cr_assert_not_null(effect(MEMBER_EFFECT_REPORT));
        cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_FAILED);
        cr_assert_str_eq(member_end(rig.m)->reason, "because");
    }
}

Test(member, an_unkillable_process_does_not_keep_the_agent_once_the_end_is_decided) {
    for (int closed = 0; closed < 2; closed++) {
        bring_to(MEMBER_STOPPING);
        tell(MEMBER_EVENT_UNKILLABLE, g1);
        cr_assert_str_eq(member_report(rig.m)->unusable, "pid 9");
        assert_state(MEMBER_STOPPING);
        if (closed)
            want(DESIRED_CLOSED, g1);
        else
            tell(MEMBER_EVENT_LEAVE, g1);
        assert_state(MEMBER_ENDED);
    }
}

STORY(a_refusal_is_final_and_nothing_happens_after_the_end,
      "at searching; refused; ends refused; welcome 1; form 1; rests")

Test(member, of_the_count_of_restarts_the_larger_is_kept) {
    bring_to(MEMBER_IDLE);
    struct desired d = {.kind = DESIRED_FORM, .epoch = 1, .generation = g1, .form = {.restarts_used = 2, .losses = 3}};
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_eq(member_report(rig.m)->restarts_used, 2);
    cr_assert_eq(member_report(rig.m)->losses, 3);
    d.generation = g2;
    d.form.restarts_used = 1;
    d.form.losses = 1;
    step((struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = &d});
    cr_assert_eq(member_report(rig.m)->restarts_used, 2);
    cr_assert_eq(member_report(rig.m)->losses, 3);
}
