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

Test(member, a_configuration_without_name_or_heartbeat_is_refused) {
    struct member_config c;
    member_config_default(&c);
    struct member *m = NULL;
    cr_assert_eq(member_new(&c, 0, &m), -EINVAL);
    c.incarnation = 1;
    c.rdzv.heartbeat_ns = 0;
    cr_assert_eq(member_new(&c, 0, &m), -EINVAL);
}

Test(member, form_is_prepared_once_and_acknowledged) {
    bring_to(MEMBER_IDLE);
    want(DESIRED_FORM, g1);
    cr_assert_eq(generation_compare(must(MEMBER_EFFECT_PREPARE).generation, g1), 0);
    want(DESIRED_FORM, g1);
    cr_assert_null(effect(MEMBER_EFFECT_PREPARE), "a repeated word changes nothing");
    tell(MEMBER_EVENT_PREPARED, g2);
    assert_state(MEMBER_PREPARING);
    tell(MEMBER_EVENT_PREPARED, g1);
    assert_state(MEMBER_PREPARED);
    assert_report(NODE_PREPARED, g1);
    cr_assert_not_null(effect(MEMBER_EFFECT_REPORT));
    cr_assert_not_null(effect(MEMBER_EFFECT_RENEW), "the lease that START needs is asked for");
}

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
    static const struct generation none = {0, 0};
    for (unsigned i = 0; i < 5; i++) {
        wake((struct member_event){.kind = MEMBER_EVENT_TIME});
        switch (i) {
        case 0: lease(g2); break;
        case 1: lease(none); break;
        case 2: want(DESIRED_STOP, g2); break;
        case 3: want(DESIRED_IDLE, none); break;
        case 4: want(DESIRED_FORM, g2); break;
        }
        (void)must(MEMBER_EFFECT_FENCE);
        cr_assert_null(effect(MEMBER_EFFECT_RESUME), "case %u", i);
        cr_assert_null(effect(MEMBER_EFFECT_STOP), "case %u: without a lease there is no grace", i);
        assert_state(MEMBER_STOPPING);
        lease(g1);
        assert_state(MEMBER_STOPPING);
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

Test(member, after_a_sleep_it_waits_for_an_answer_for_lease_and_margin) {
    wake((struct member_event){.kind = MEMBER_EVENT_TIME});
    pass(5.9, NULL);
    assert_state(MEMBER_HELD);
    rig.now_ns += S(20); /* it sleeps again */
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    pass(5.9, NULL);
    assert_state(MEMBER_HELD);
    pass(0.2, NULL);
    assert_state(MEMBER_STOPPING);
}

Test(member, workers_that_end_while_they_are_held_are_reported) {
    static const enum member_event_kind kinds[] = {MEMBER_EVENT_FAILURE, MEMBER_EVENT_SUCCEEDED};
    static const enum node_state states[] = {NODE_FAILED, NODE_FINISHED};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        wake((struct member_event){.kind = MEMBER_EVENT_TIME});
        tell(kinds[i], g1);
        assert_report(states[i], g1);
        tell(MEMBER_EVENT_ALL_GONE, g1);
        assert_report(states[i], g1);
        assert_state(MEMBER_RUNNING);
    }
}

Test(member, a_failure_is_reported_once_and_others_may_run_on) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_FAILURE, g2);
    cr_assert(!member_report(rig.m)->has_failure, "of another group");
    tell(MEMBER_EVENT_FAILURE, g1);
    assert_state(MEMBER_RUNNING);
    assert_report(NODE_FAILED, g1);
    cr_assert_eq(member_report(rig.m)->failure.code, 3);
    tell(MEMBER_EVENT_FAILURE, g1);
    cr_assert_null(effect(MEMBER_EFFECT_REPORT));
    want(DESIRED_STOP, g1);
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_report(NODE_STOPPED, g1);
    cr_assert(member_report(rig.m)->has_failure, "it goes with the report until the next FORM");
    want(DESIRED_FORM, g2);
    cr_assert(!member_report(rig.m)->has_failure);
}

Test(member, a_kill_by_the_guardian_fences_the_node_though_its_lease_holds) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_FENCED, g2);
    cr_assert_null(effect(MEMBER_EFFECT_FENCE), "of another group");
    tell(MEMBER_EVENT_FENCED, g1);
    (void)must(MEMBER_EFFECT_FENCE);
    assert_state(MEMBER_STOPPING);
    tell(MEMBER_EVENT_FAILURE, g1);
    cr_assert(!member_report(rig.m)->has_failure, "a worker that ended with the others has not failed");
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_report(NODE_STOPPED, g1);
}

Test(member, a_group_without_a_worker_does_not_run) {
    static const enum member_event_kind explains[] = {MEMBER_EVENT_TIME, MEMBER_EVENT_SUCCEEDED};
    static const enum node_state states[] = {NODE_FAILED, NODE_FINISHED};
    for (size_t i = 0; i < ARRAY_SIZE(explains); i++) {
        bring_to(MEMBER_RUNNING);
        tell(explains[i], g1);
        tell(MEMBER_EVENT_ALL_GONE, g1);
        assert_report(states[i], g1);
        cr_assert_eq(member_report(rig.m)->has_failure, explains[i] == MEMBER_EVENT_TIME);
    }
}

Test(member, a_safe_point_is_reported_once_and_only_of_the_group_that_runs) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_SAFE_POINT, g2);
    cr_assert_null(effect(MEMBER_EFFECT_REPORT), "of another group");
    tell(MEMBER_EVENT_SAFE_POINT, g1);
    (void)must(MEMBER_EFFECT_REPORT);
    cr_assert(member_report(rig.m)->at_safe_point);
    lease(g1);
    cr_assert_not(member_report(rig.m)->at_safe_point);
    want(DESIRED_STOP, g1);
    tell(MEMBER_EVENT_SAFE_POINT, g1);
    (void)must(MEMBER_EFFECT_REPORT);
    cr_assert(member_report(rig.m)->at_safe_point, "saved for the last time");
    tell(MEMBER_EVENT_ALL_GONE, g1);
    cr_assert_not(member_report(rig.m)->at_safe_point);
    tell(MEMBER_EVENT_SAFE_POINT, g1);
    cr_assert_null(effect(MEMBER_EFFECT_REPORT), "nobody is left who could tell it");
}

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

Test(member, preparing_that_fails_is_a_nack) {
    bring_to(MEMBER_PREPARING);
    tell(MEMBER_EVENT_FAILURE, g1);
    assert_state(MEMBER_IDLE);
    assert_report(NODE_FAILED, g1);
}

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

Test(member, a_newer_word_drops_what_was_made_ready_for_an_older_group) {
    static const enum member_state from[] = {MEMBER_PREPARING, MEMBER_PREPARED};
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        bring_to(from[i]);
        want(DESIRED_FORM, g2);
        assert_state(MEMBER_PREPARING);
        cr_assert_eq(generation_compare(must(MEMBER_EFFECT_PREPARE).generation, g2), 0);
        bring_to(from[i]);
        want(DESIRED_STOP, g2);
        assert_state(MEMBER_IDLE);
        assert_report(NODE_STOPPED, g2);
        bring_to(from[i]);
        want(DESIRED_IDLE, (struct generation){0, 0});
        assert_state(MEMBER_IDLE);
        assert_report(NODE_STOPPED, g1);
    }
}

Test(member, a_form_that_comes_while_workers_stop_waits_for_the_last) {
    bring_to(MEMBER_STOPPING);
    want(DESIRED_FORM, g2);
    assert_state(MEMBER_STOPPING);
    cr_assert_null(effect(MEMBER_EFFECT_PREPARE));
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_state(MEMBER_PREPARING);
}

Test(member, a_node_that_is_told_to_be_idle_ends_what_it_runs) {
    bring_to(MEMBER_RUNNING);
    want(DESIRED_IDLE, (struct generation){0, 0});
    cr_assert_not_null(effect(MEMBER_EFFECT_STOP));
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_report(NODE_STOPPED, g1);
}

Test(member, a_lost_connection_is_tried_again_at_once_and_probed_and_workers_run_on) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_DISCONNECT, g1);
    cr_assert_not_null(effect(MEMBER_EFFECT_CONNECT));
    cr_assert_not_null(effect(MEMBER_EFFECT_PROBE));
    assert_state(MEMBER_RUNNING);
    tell(MEMBER_EVENT_FAILURE, g1);
    cr_assert_null(effect(MEMBER_EFFECT_REPORT), "there is nobody to tell");
    welcome(1);
    cr_assert_not_null(effect(MEMBER_EFFECT_REPORT), "JOIN may have held the older word");
    assert_state(MEMBER_RUNNING);
}

Test(member, a_gone_leader_ends_the_workers_with_grace_no_longer_than_the_lease) {
    bring_to(MEMBER_RUNNING);
    rig.now_ns += S(2);
    tell(MEMBER_EVENT_DISCONNECT, g1);
    step((struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = PROBE_UNKNOWN});
    assert_state(MEMBER_RUNNING);
    step((struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = PROBE_GONE});
    cr_assert_eq(must(MEMBER_EFFECT_STOP).grace_ns, S(3));
    tell(MEMBER_EVENT_ALL_GONE, g1);
    assert_state(MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
}

Test(member, a_silent_leader_is_given_up_at_its_timeout) {
    bring_to(MEMBER_PREPARED);
    pass(59.75, NULL);
    assert_state(MEMBER_PREPARED);
    pass(0.25, NULL);
    assert_state(MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
}

Test(member, its_own_sleep_is_not_the_leaders_silence) {
    bring_to(MEMBER_PREPARED);
    rig.now_ns += S(300);
    step((struct member_event){.kind = MEMBER_EVENT_TIME});
    assert_state(MEMBER_PREPARED);
}

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

Test(member, another_leader_at_the_endpoint_is_the_end_of_a_group_but_not_of_a_newcomer) {
    bring_to(MEMBER_IDLE);
    tell(MEMBER_EVENT_DISCONNECT, g1);
    welcome(2);
    assert_state(MEMBER_IDLE);
    want(DESIRED_FORM, g1);
    assert_state(MEMBER_PREPARING);
    bring_to(MEMBER_PREPARED);
    tell(MEMBER_EVENT_DISCONNECT, g1);
    want(DESIRED_START, g1);
    welcome(2);
    lease(g1);
    assert_state(MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEADER_LOST);
}

Test(member, leaving_stops_says_so_and_goes_and_a_second_time_kills) {
    bring_to(MEMBER_RUNNING);
    tell(MEMBER_EVENT_LEAVE, g1);
    cr_assert(member_report(rig.m)->leaving && effect(MEMBER_EFFECT_REPORT) != NULL);
    cr_assert_eq(must(MEMBER_EFFECT_STOP).grace_ns, S(2));
    tell(MEMBER_EVENT_LEAVE, g1);
    cr_assert_not_null(effect(MEMBER_EFFECT_FENCE));
    tell(MEMBER_EVENT_ALL_GONE, g1);
    cr_assert_not_null(effect(MEMBER_EFFECT_SEND_LEAVE));
    assert_state(MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_LEFT);
}

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

Test(member, a_refusal_is_final_and_nothing_happens_after_the_end) {
    begin();
    tell(MEMBER_EVENT_REFUSED, g1);
    assert_state(MEMBER_ENDED);
    cr_assert_eq(member_end(rig.m)->kind, MEMBER_END_REFUSED);
    welcome(1);
    want(DESIRED_FORM, g1);
    cr_assert_eq(rig.u.n_effects, 0);
    cr_assert_eq(rig.u.deadline_ns, TIME_NEVER);
}

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
