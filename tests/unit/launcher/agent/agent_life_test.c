/* The machine alone. The simulator (tests/sim/world_ending.c) runs it together with member and group. */
#include "launcher/agent/agent_life.h"

#include <stdarg.h>

#include "rig/unit.h"

/* Facts of an agent whose node is in a group that another node leads, */
#define NODE (LIFE_HAS_MEMBER | LIFE_HAS_LEADER)
/* with workers, */
#define RUNNING (NODE | LIFE_WORKERS_RUN | LIFE_PROCESSES)
/* and of one that leads at a fixed endpoint, with workers. */
#define LEADER (RUNNING | LIFE_LEADS | LIFE_SERVES)

static struct agent_life life;
static struct life_update update;
static uint64_t now_ns;

static void begin(unsigned facts) {
    agent_life_init(&life);
    now_ns = NS_PER_S;
    agent_life_step(&life, &(struct life_event){.kind = LIFE_EVENT_CHECK, .facts = facts}, &update);
    cr_assert_eq(update.n_effects, 0);
}

static void happens(struct life_event e, unsigned facts) {
    e.facts = facts;
    e.now_ns = now_ns;
    agent_life_step(&life, &e, &update);
}

static void signalled(int signo, unsigned facts) {
    happens((struct life_event){.kind = LIFE_EVENT_SIGNAL, .signo = signo}, facts);
}

static void member_ends(enum member_end_kind end, unsigned facts) {
    happens((struct life_event){.kind = LIFE_EVENT_END, .end = end}, facts);
}

static void check(unsigned facts) { happens((struct life_event){.kind = LIFE_EVENT_CHECK}, facts); }

/* These effects, in this order; 0 ends the list. */
static void expect(int first, ...) {
    va_list list;
    size_t n = 0;
    va_start(list, first);
    for (int e = first; e != 0; e = va_arg(list, int), n++) {
        cr_assert_lt(n, update.n_effects, "effect %d is missing", e);
        cr_assert_eq((int)update.effects[n], e, "effect %zu is %d, not %d", n, (int)update.effects[n], e);
    }
    va_end(list);
    cr_assert_eq(update.n_effects, n, "%zu effects, not %zu", update.n_effects, n);
}

static bool has_effect(enum life_effect e) {
    for (size_t i = 0; i < update.n_effects; i++)
        if (update.effects[i] == e)
            return true;
    return false;
}

Test(agent_life, follows_its_member_into_the_group_and_out_of_it) {
    begin(LIFE_HAS_MEMBER);
    cr_assert_eq(life.state, LIFE_JOINING);
    check(NODE);
    cr_assert_eq(life.state, LIFE_IN_GROUP);
    check(LIFE_HAS_MEMBER);
    cr_assert_eq(life.state, LIFE_JOINING);
}

Test(agent_life, ends_when_the_job_has_ended_and_nothing_is_awaited) {
    static const unsigned awaited[] = {LIFE_PROCESSES, LIFE_SERVES, LIFE_COMPARES, LIFE_ASKS};
    begin(RUNNING);
    member_ends(MEMBER_END_SUCCESS, NODE);
    cr_assert_eq(life.state, LIFE_LINGERING);
    for (size_t i = 0; i < ARRAY_SIZE(awaited); i++) {
        check(NODE | awaited[i]);
        expect(0);
    }
    check(NODE);
    expect(LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.state, LIFE_OVER);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    check(NODE);
    expect(0);
}

Test(agent_life, a_signal_makes_the_node_leave) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_STOPPING);
    cr_assert_eq(life.signo, SIGTERM);
    check(NODE); /* only the member decides when it has left */
    expect(0);
    member_ends(MEMBER_END_LEFT, NODE);
    check(NODE);
    expect(LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, a_signal_to_the_only_leader_stops_the_job) {
    begin(LEADER);
    signalled(SIGTERM, LEADER);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_STOP_JOB, 0);
    member_ends(MEMBER_END_FAILED, NODE | LIFE_LEADS | LIFE_SERVES);
    check(NODE | LIFE_LEADS | LIFE_SERVES); /* the others are not informed yet */
    expect(0);
    check(NODE | LIFE_LEADS);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, the_only_leader_leaves_too_if_its_node_has_not_joined) {
    begin(LIFE_HAS_MEMBER | LIFE_LEADS);
    signalled(SIGTERM, LIFE_HAS_MEMBER | LIFE_LEADS);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_STOP_JOB, LIFE_EFFECT_LEAVE, 0);
}

Test(agent_life, without_a_member_a_signal_ends_it_at_once) {
    begin(0);
    signalled(SIGTERM, 0);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
    check(0);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, a_leader_that_leaves_resigns_and_waits_until_it_may_end) {
    const unsigned facts = NODE | LIFE_LEADS | LIFE_SERVES | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGTERM, facts);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_LEFT, facts);
    expect(LIFE_EFFECT_RESIGN, 0);
    check(facts);
    expect(0);
    check(NODE | LIFE_HAS_ARBITER); /* deposed */
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, does_not_serve_nodes_after_its_own_node_left_or_lost_the_leader) {
    static const enum member_end_kind ends[] = {MEMBER_END_LEFT, MEMBER_END_LEADER_LOST};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        begin(LEADER);
        member_ends(ends[i], NODE | LIFE_LEADS | LIFE_SERVES);
        expect(0);
        check(NODE | LIFE_LEADS | LIFE_SERVES);
        expect(LIFE_EFFECT_QUIT, 0);
    }
}

Test(agent_life, only_a_second_interrupt_kills_and_only_a_third_does_not_wait) {
    const unsigned facts = RUNNING | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGINT, facts);
    signalled(SIGTERM, facts); /* Slurm and systemd repeat it */
    expect(0);
    signalled(SIGINT, facts);
    expect(LIFE_EFFECT_LOG_KILLS, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.state, LIFE_STOPPING);
    cr_assert_eq(life.deadline_ns, now_ns + 2 * NS_PER_S);
    signalled(SIGINT, facts);
    expect(LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
    check(facts);
    expect(0); /* no agent leaves processes behind */
    check(NODE);
    expect(LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, after_a_second_interrupt_it_leaves_in_order_for_two_seconds) {
    const unsigned facts = NODE | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGINT, facts);
    signalled(SIGINT, facts);
    now_ns += 2 * NS_PER_S - 1;
    check(facts);
    expect(0);
    now_ns++;
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.deadline_ns, TIME_NEVER);
}

Test(agent_life, with_a_fixed_endpoint_a_second_interrupt_does_not_wait) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING);
    signalled(SIGINT, RUNNING);
    expect(LIFE_EFFECT_LOG_KILLS, LIFE_EFFECT_KILL, 0);
    check(NODE);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, an_interrupt_without_workers_kills_what_they_left) {
    begin(NODE);
    signalled(SIGINT, NODE);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS, LIFE_EFFECT_LEAVE, LIFE_EFFECT_KILL, 0);
}

Test(agent_life, signals_for_what_workers_left_do_not_change_the_end) {
    const unsigned facts = NODE | LIFE_PROCESSES | LIFE_JOB_CLOSES;
    begin(facts);
    signalled(SIGTERM, facts);
    expect(LIFE_EFFECT_LOG_AWAITS_LEFT, LIFE_EFFECT_PASS_ON, 0);
    signalled(SIGTERM, facts | LIFE_JOB_SUCCEEDS); /* --leave=detached keeps them */
    expect(LIFE_EFFECT_LOG_AWAITS_LEFT, 0);
    signalled(SIGINT, facts);
    expect(LIFE_EFFECT_LOG_KILLS_LEFT, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.signo, 0);
    member_ends(MEMBER_END_FAILED, NODE);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
}

Test(agent_life, a_job_that_has_succeeded_stays_a_success) {
    begin(NODE);
    member_ends(MEMBER_END_SUCCESS, NODE | LIFE_ASKS);
    signalled(SIGTERM, NODE | LIFE_ASKS); /* only the output is left */
    expect(0);
    cr_assert_eq(life.interrupts, 1);
    signalled(SIGINT, NODE | LIFE_ASKS);
    expect(LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_SUCCEEDED, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
}

Test(agent_life, success_counts_more_than_a_signal_and_a_signal_more_than_failure) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING);
    member_ends(MEMBER_END_SUCCESS, NODE);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    begin(RUNNING);
    signalled(SIGTERM, RUNNING);
    member_ends(MEMBER_END_FAILED, NODE);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE | LIFE_ASKS);
    signalled(SIGTERM, NODE | LIFE_ASKS);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, a_signal_ends_the_wait_for_a_comparison) {
    const unsigned facts = NODE | LIFE_LEADS | LIFE_COMPARES;
    begin(facts);
    member_ends(MEMBER_END_FAILED, facts);
    check(facts);
    expect(0);
    signalled(SIGTERM, facts);
    cr_assert(has_effect(LIFE_EFFECT_BEGIN));
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, an_agent_that_cannot_continue_awaits_only_its_processes) {
    begin(LEADER | LIFE_COMPARES);
    happens((struct life_event){.kind = LIFE_EVENT_FAILURE}, LEADER | LIFE_COMPARES);
    expect(LIFE_EFFECT_KILL, 0);
    check(LEADER | LIFE_COMPARES);
    expect(0);
    check(NODE | LIFE_LEADS | LIFE_SERVES | LIFE_COMPARES);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, an_operator_drains_it_once) {
    begin(RUNNING);
    happens((struct life_event){.kind = LIFE_EVENT_DRAIN}, RUNNING);
    expect(LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_STOPPING);
    happens((struct life_event){.kind = LIFE_EVENT_DRAIN}, RUNNING);
    expect(0);
    member_ends(MEMBER_END_LEFT, NODE);
    cr_assert_eq(life.cause, LIFE_CAUSE_OPERATOR);
}

Test(agent_life, a_job_that_ends_while_the_node_is_drained_counts) {
    begin(RUNNING);
    happens((struct life_event){.kind = LIFE_EVENT_DRAIN}, RUNNING);
    member_ends(MEMBER_END_FAILED, NODE);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
}

Test(agent_life, an_order_is_for_the_leader) {
    const struct life_event order = {.kind = LIFE_EVENT_ORDER, .signo = SIGTERM};
    begin(RUNNING);
    happens(order, RUNNING);
    expect(0);
    begin(LEADER);
    happens(order, LEADER);
    expect(LIFE_EFFECT_END_OUTPUT, LIFE_EFFECT_STOP_JOB, 0);
    cr_assert_eq(life.state, LIFE_IN_GROUP); /* the job's end comes by the member */
    member_ends(MEMBER_END_FAILED, LEADER);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    happens(order, LEADER);
    expect(LIFE_EFFECT_LET_GO, 0);
    begin(LIFE_LEADS);
    happens(order, LIFE_LEADS);
    expect(LIFE_EFFECT_END_OUTPUT, LIFE_EFFECT_STOP_JOB, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
}

Test(agent_life, an_agent_that_cannot_continue_waits_only_for_its_processes) {
    begin(LEADER);
    happens((struct life_event){.kind = LIFE_EVENT_USAGE}, LEADER);
    expect(LIFE_EFFECT_KILL, 0);
    cr_assert(agent_life_failed(&life));
    check(LEADER);
    expect(0);
    member_ends(MEMBER_END_FAILED, NODE | LIFE_LEADS | LIFE_SERVES);
    cr_assert_eq(life.cause, LIFE_CAUSE_USAGE);
    happens((struct life_event){.kind = LIFE_EVENT_FAILURE}, LEADER);
    cr_assert_eq(life.cause, LIFE_CAUSE_USAGE);
    check(NODE | LIFE_LEADS | LIFE_SERVES);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, asks_slurm_to_requeue_a_job_that_failed) {
    const unsigned facts = NODE | LIFE_LEADS | LIFE_MAY_REQUEUE;
    begin(facts);
    member_ends(MEMBER_END_FAILED, facts);
    check(facts);
    expect(LIFE_EFFECT_REQUEUE, 0);
    check(NODE | LIFE_LEADS | LIFE_ASKS);
    expect(0);
    check(NODE | LIFE_LEADS);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, does_not_requeue_what_needs_no_other_attempt) {
    const unsigned facts = NODE | LIFE_LEADS | LIFE_MAY_REQUEUE;
    begin(facts);
    member_ends(MEMBER_END_SUCCESS, facts);
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
    begin(facts);
    signalled(SIGINT, facts);
    member_ends(MEMBER_END_FAILED, facts);
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
    begin(facts);
    happens((struct life_event){.kind = LIFE_EVENT_FAILURE}, facts);
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
    begin(facts);
    happens((struct life_event){.kind = LIFE_EVENT_DRAIN}, facts);
    member_ends(MEMBER_END_LEFT, facts);
    check(facts);
    expect(LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, signals_at_the_end_are_for_the_output) {
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE);
    check(NODE);
    signalled(SIGINT, NODE);
    expect(LIFE_EFFECT_LOG_OUTPUT, 0);
    signalled(SIGINT, NODE);
    expect(LIFE_EFFECT_LEAVE_OUTPUT, 0);
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE);
    check(NODE);
    signalled(SIGTERM, NODE);
    expect(LIFE_EFFECT_LEAVE_OUTPUT, 0);
    begin(NODE);
    signalled(SIGTERM, NODE);
    member_ends(MEMBER_END_LEFT, NODE);
    check(NODE);
    signalled(SIGTERM, NODE); /* the same again */
    expect(0);
}

Test(agent_life, no_state_is_left_after_the_end) {
    for (enum life_state to = LIFE_JOINING; to < LIFE_STATE_COUNT; to++) {
        cr_assert_not(life_may_move(LIFE_OVER, to));
        cr_assert_eq(life_may_move(to, LIFE_OVER), to == LIFE_LINGERING);
    }
}
