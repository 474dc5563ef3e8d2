/* The machine alone. The simulator (tests/sim/world_ending.c) runs it together with member and group. */
#include "launcher/agent/agent_life.h"

#include "rig/unit.h"

/* Facts of an agent whose node is in a group that another node leads, */
#define NODE (LIFE_HAS_MEMBER | LIFE_HAS_LEADER)
/* with workers, */
#define RUNNING (NODE | LIFE_WORKERS_RUN | LIFE_PROCESSES)
/* and of one that leads at a fixed endpoint, with workers, */
#define LEADER (RUNNING | LIFE_LEADS | LIFE_SERVES)
/* and without. */
#define SERVES (NODE | LIFE_LEADS | LIFE_SERVES)

/* What the first signal does. */
#define STOPS LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_STOPS

static struct agent_life life;
static uint64_t now_ns;

/* It has these effects, in this order. 0 ends the list. */
static void happens(struct life_event e, unsigned facts, const int *effects) {
    struct life_update update;
    size_t n = 0;
    e.facts = facts;
    e.now_ns = now_ns;
    agent_life_step(&life, &e, &update);
    for (; effects[n] != 0; n++) {
        cr_assert_lt(n, update.n_effects, "effect %d is missing", effects[n]);
        cr_assert_eq((int)update.effects[n], effects[n], "effect %zu is %d", n, (int)update.effects[n]);
    }
    cr_assert_eq(update.n_effects, n, "%zu effects, not %zu", update.n_effects, n);
}

#define EVENT(event, facts, ...) happens((struct life_event){.kind = (event)}, facts, (const int[]){__VA_ARGS__})
#define check(...) EVENT(LIFE_EVENT_CHECK, __VA_ARGS__)
#define SIGNAL(event, number, facts, ...) \
    happens((struct life_event){.kind = (event), .signo = (number)}, facts, (const int[]){__VA_ARGS__})
#define signalled(...) SIGNAL(LIFE_EVENT_SIGNAL, __VA_ARGS__)
#define ordered(...) SIGNAL(LIFE_EVENT_ORDER, SIGTERM, __VA_ARGS__)
#define member_ends(kind_of_end, facts, ...) \
    happens((struct life_event){.kind = LIFE_EVENT_END, .end = (kind_of_end)}, facts, (const int[]){__VA_ARGS__})

static void begin(unsigned facts) {
    agent_life_init(&life);
    now_ns = NS_PER_S;
    check(facts, 0);
}

Test(agent_life, follows_its_member_into_the_group_and_out_of_it) {
    begin(LIFE_HAS_MEMBER);
    cr_assert_eq(life.state, LIFE_JOINING);
    check(NODE, 0);
    cr_assert_eq(life.state, LIFE_IN_GROUP);
    check(LIFE_HAS_MEMBER, 0);
    cr_assert_eq(life.state, LIFE_JOINING);
}

Test(agent_life, ends_when_the_job_has_ended_and_nothing_is_awaited) {
    static const unsigned awaited[] = {LIFE_PROCESSES, LIFE_SERVES, LIFE_COMPARES, LIFE_ASKS};
    begin(RUNNING);
    member_ends(MEMBER_END_SUCCESS, NODE, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
    for (size_t i = 0; i < ARRAY_SIZE(awaited); i++)
        check(NODE | awaited[i], 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.state, LIFE_OVER);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    check(NODE, 0);
}

Test(agent_life, a_signal_makes_the_node_leave) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING, STOPS, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_STOPPING);
    cr_assert_eq(life.signo, SIGTERM);
    check(NODE, 0); /* only the member decides when it has left */
    member_ends(MEMBER_END_LEFT, NODE, 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, a_signal_to_the_only_leader_stops_the_job) {
    begin(LEADER);
    signalled(SIGTERM, LEADER, STOPS, LIFE_EFFECT_STOP_JOB, 0);
    member_ends(MEMBER_END_FAILED, SERVES, 0);
    check(SERVES, 0); /* the others are not informed yet */
    check(NODE | LIFE_LEADS, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, the_only_leader_leaves_too_if_its_node_has_not_joined) {
    begin(LIFE_HAS_MEMBER | LIFE_LEADS);
    signalled(SIGTERM, LIFE_HAS_MEMBER | LIFE_LEADS, STOPS, LIFE_EFFECT_STOP_JOB, LIFE_EFFECT_LEAVE, 0);
}

Test(agent_life, without_a_member_a_signal_ends_it_at_once) {
    begin(0);
    signalled(SIGTERM, 0, STOPS, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
    check(0, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, a_leader_that_leaves_resigns_and_waits_until_it_may_end) {
    const unsigned facts = SERVES | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGTERM, facts, STOPS, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_LEFT, facts, LIFE_EFFECT_RESIGN, 0);
    check(facts, 0);
    check(NODE | LIFE_HAS_ARBITER, LIFE_EFFECT_QUIT, 0); /* deposed */
}

Test(agent_life, does_not_serve_nodes_after_its_own_node_left_or_lost_the_leader) {
    static const enum member_end_kind ends[] = {MEMBER_END_LEFT, MEMBER_END_LEADER_LOST};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        begin(LEADER);
        member_ends(ends[i], SERVES, 0);
        check(SERVES, LIFE_EFFECT_QUIT, 0);
    }
}

Test(agent_life, only_a_second_interrupt_kills_and_only_a_third_does_not_wait) {
    const unsigned facts = RUNNING | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGINT, facts, STOPS, LIFE_EFFECT_LEAVE, 0);
    signalled(SIGTERM, facts, 0); /* Slurm and systemd repeat it */
    signalled(SIGINT, facts, LIFE_EFFECT_LOG_KILLS, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.state, LIFE_STOPPING);
    cr_assert_eq(life.deadline_ns, now_ns + 2 * NS_PER_S);
    signalled(SIGINT, facts, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
    check(facts, 0); /* no agent leaves processes behind */
    check(NODE, LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, after_a_second_interrupt_it_leaves_in_order_for_two_seconds) {
    const unsigned facts = NODE | LIFE_HAS_ARBITER;
    begin(facts);
    signalled(SIGINT, facts, STOPS, LIFE_EFFECT_LEAVE, LIFE_EFFECT_KILL, 0);
    signalled(SIGINT, facts, LIFE_EFFECT_LOG_KILLS, LIFE_EFFECT_KILL, 0);
    now_ns += 2 * NS_PER_S - 1;
    check(facts, 0);
    now_ns++;
    check(facts, LIFE_EFFECT_QUIT, 0);
    cr_assert_eq(life.deadline_ns, TIME_NEVER);
}

Test(agent_life, with_a_fixed_endpoint_a_second_interrupt_does_not_wait) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING, STOPS, LIFE_EFFECT_LEAVE, 0);
    signalled(SIGINT, RUNNING, LIFE_EFFECT_LOG_KILLS, LIFE_EFFECT_KILL, 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, signals_for_what_workers_left_do_not_change_the_end) {
    const unsigned facts = NODE | LIFE_PROCESSES | LIFE_JOB_CLOSES;
    begin(facts);
    signalled(SIGTERM, facts, LIFE_EFFECT_LOG_AWAITS_LEFT, LIFE_EFFECT_PASS_ON, 0);
    signalled(SIGTERM, facts | LIFE_JOB_SUCCEEDS, LIFE_EFFECT_LOG_AWAITS_LEFT, 0); /* --leave=detached keeps them */
    signalled(SIGINT, facts, LIFE_EFFECT_LOG_KILLS_LEFT, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.signo, 0);
    member_ends(MEMBER_END_FAILED, NODE, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
}

Test(agent_life, a_job_that_has_succeeded_stays_a_success) {
    begin(NODE);
    member_ends(MEMBER_END_SUCCESS, NODE | LIFE_ASKS, 0);
    signalled(SIGTERM, NODE | LIFE_ASKS, 0); /* only the output is left */
    cr_assert_eq(life.interrupts, 1);
    signalled(SIGINT, NODE | LIFE_ASKS, LIFE_EFFECT_BEGIN, LIFE_EFFECT_LOG_SUCCEEDED, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
}

Test(agent_life, success_counts_more_than_a_signal_and_a_signal_more_than_failure) {
    begin(RUNNING);
    signalled(SIGTERM, RUNNING, STOPS, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_SUCCESS, NODE, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    begin(RUNNING);
    signalled(SIGTERM, RUNNING, STOPS, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_FAILED, NODE, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE | LIFE_ASKS, 0);
    signalled(SIGTERM, NODE | LIFE_ASKS, STOPS, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_SIGNAL);
}

Test(agent_life, a_signal_ends_the_wait_for_a_comparison) {
    const unsigned facts = NODE | LIFE_LEADS | LIFE_COMPARES;
    begin(facts);
    member_ends(MEMBER_END_FAILED, facts, 0);
    check(facts, 0);
    signalled(SIGTERM, facts, STOPS, LIFE_EFFECT_STOP_JOB, 0);
    check(facts, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, an_operator_drains_it_once_and_a_job_that_ends_meanwhile_counts) {
    static const enum member_end_kind ends[] = {MEMBER_END_LEFT, MEMBER_END_FAILED};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        begin(RUNNING);
        EVENT(LIFE_EVENT_DRAIN, RUNNING, LIFE_EFFECT_LEAVE, 0);
        cr_assert_eq(life.state, LIFE_STOPPING);
        EVENT(LIFE_EVENT_DRAIN, RUNNING, 0);
        member_ends(ends[i], NODE, 0);
        cr_assert_eq(life.cause, i == 0 ? LIFE_CAUSE_OPERATOR : LIFE_CAUSE_JOB);
    }
}

Test(agent_life, an_order_is_for_the_leader) {
    begin(RUNNING);
    ordered(RUNNING, 0);
    begin(LEADER);
    ordered(LEADER, LIFE_EFFECT_END_OUTPUT, LIFE_EFFECT_STOP_JOB, 0);
    cr_assert_eq(life.state, LIFE_IN_GROUP); /* the job's end comes by the member */
    member_ends(MEMBER_END_FAILED, LEADER, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_JOB);
    ordered(LEADER, LIFE_EFFECT_LET_GO, 0);
    begin(LIFE_LEADS);
    ordered(LIFE_LEADS, LIFE_EFFECT_END_OUTPUT, LIFE_EFFECT_STOP_JOB, LIFE_EFFECT_LEAVE, 0);
    cr_assert_eq(life.state, LIFE_LINGERING);
}

Test(agent_life, an_agent_that_cannot_continue_waits_only_for_its_processes) {
    begin(LEADER | LIFE_COMPARES);
    EVENT(LIFE_EVENT_USAGE, LEADER | LIFE_COMPARES, LIFE_EFFECT_KILL, 0);
    cr_assert(agent_life_failed(&life));
    check(LEADER | LIFE_COMPARES, 0);
    member_ends(MEMBER_END_FAILED, SERVES, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_USAGE);
    EVENT(LIFE_EVENT_FAILURE, LEADER, LIFE_EFFECT_KILL, 0);
    cr_assert_eq(life.cause, LIFE_CAUSE_USAGE);
    check(SERVES | LIFE_COMPARES, LIFE_EFFECT_QUIT, 0);
}

#define REQUEUES (NODE | LIFE_LEADS | LIFE_MAY_REQUEUE)

Test(agent_life, asks_slurm_to_requeue_a_job_that_failed) {
    begin(REQUEUES);
    member_ends(MEMBER_END_FAILED, REQUEUES, 0);
    check(REQUEUES, LIFE_EFFECT_REQUEUE, 0);
    check(NODE | LIFE_LEADS | LIFE_ASKS, 0);
    check(NODE | LIFE_LEADS, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, does_not_requeue_what_needs_no_other_attempt) {
    begin(REQUEUES);
    member_ends(MEMBER_END_SUCCESS, REQUEUES, 0);
    check(REQUEUES, LIFE_EFFECT_QUIT, 0);
    begin(REQUEUES);
    signalled(SIGINT, REQUEUES, STOPS, LIFE_EFFECT_STOP_JOB, LIFE_EFFECT_KILL, 0);
    member_ends(MEMBER_END_FAILED, REQUEUES, 0);
    check(REQUEUES, LIFE_EFFECT_QUIT, 0);
    begin(REQUEUES);
    EVENT(LIFE_EVENT_FAILURE, REQUEUES, LIFE_EFFECT_KILL, 0);
    check(REQUEUES, LIFE_EFFECT_QUIT, 0);
    begin(REQUEUES);
    EVENT(LIFE_EVENT_DRAIN, REQUEUES, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_LEFT, REQUEUES, 0);
    check(REQUEUES, LIFE_EFFECT_QUIT, 0);
}

Test(agent_life, signals_at_the_end_are_for_the_output) {
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE, 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
    signalled(SIGINT, NODE, LIFE_EFFECT_LOG_OUTPUT, 0);
    signalled(SIGINT, NODE, LIFE_EFFECT_LEAVE_OUTPUT, 0);
    begin(NODE);
    member_ends(MEMBER_END_FAILED, NODE, 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
    signalled(SIGTERM, NODE, LIFE_EFFECT_LEAVE_OUTPUT, 0);
    begin(NODE);
    signalled(SIGTERM, NODE, STOPS, LIFE_EFFECT_LEAVE, 0);
    member_ends(MEMBER_END_LEFT, NODE, 0);
    check(NODE, LIFE_EFFECT_QUIT, 0);
    signalled(SIGTERM, NODE, 0); /* the same again */
}

Test(agent_life, no_state_is_left_after_the_end) {
    for (enum life_state to = LIFE_JOINING; to < LIFE_STATE_COUNT; to++) {
        cr_assert_not(life_may_move(LIFE_OVER, to));
        cr_assert_eq(life_may_move(to, LIFE_OVER), to == LIFE_LINGERING);
    }
}
