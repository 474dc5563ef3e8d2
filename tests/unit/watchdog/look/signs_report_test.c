/* When a node speaks of its workers. They are ranks 4 and 5. */
#include "watchdog/look/signs.h"

#include "rig/unit.h"

#define FIRST 4u
#define N 2u
#define QUIET (3 * NS_PER_S)

static struct signs_report h;
/* What rank 4 has announced; since_ns is filled in. */
static struct worker_announced announced;
static struct worker_signs rows[N];
static uint64_t now;

static void begin(void) {
    now = 1000 * NS_PER_S;
    announced = (struct worker_announced){0};
    signs_report_init(&h, N, FIRST);
}
static void end(void) { signs_report_fini(&h); }
TestSuite(signs_report, .init = begin, .fini = end);

/* After so much time, with these flags of rank 4. */
static bool due_as(uint64_t passed, uint32_t flags, uint64_t still, uint64_t leader) {
    now += passed;
    for (uint32_t i = 0; i < N; i++) {
        rows[i] = (struct worker_signs){.rank = FIRST + i, .flags = i == 0 ? flags : SIGN_MOVED, .still_ns = still};
        announced.since_ns = now - announced.alive_ns;
        signs_report_add(&h, &rows[i], i == 0 ? &announced : &(struct worker_announced){0}, now);
    }
    return signs_report_due(&h, still, leader);
}
static bool due(uint64_t still) { return due_as(NS_PER_S, SIGN_MOVED, still, 1); }

static void is_alive(void) { announced.alive_ns = now; }

static void announce(uint64_t seconds) {
    announced.limit_ns = seconds * NS_PER_S;
    is_alive();
}

Test(signs_report, nothing_is_said_while_all_move) {
    for (int i = 0; i < 100; i++)
        cr_expect(!due(QUIET - 1));
}

Test(signs_report, a_still_worker_is_spoken_of_each_second_and_then_once_more) {
    cr_expect(!due(0));
    cr_expect(due(QUIET));
    cr_expect(due(QUIET + NS_PER_S));
    cr_expect(due(0), "that it moves again");
    cr_expect(!due(0));
}

Test(signs_report, a_deadline_is_told_once_and_when_it_changes) {
    cr_expect(!due(0));
    announce(20);
    cr_expect(due(0));
    cr_expect_eq(rows[0].deadline_ns, 20 * NS_PER_S);
    cr_expect_eq(rows[0].since_announced_ns, NS_PER_S);
    cr_expect_eq(rows[1].deadline_ns, 0);
    cr_expect(!due(0));
    is_alive();
    cr_expect(!due(0), "the same deadline again");
    announce(40);
    cr_expect(due(0));
    cr_expect(!due(0));
    announce(0);
    cr_expect(due(0), "there is none any more");
    cr_expect_eq(rows[0].deadline_ns, 0);
    cr_expect(!due(0));
}

Test(signs_report, who_can_not_be_seen_is_told_once_and_when_it_is_seen_again) {
    cr_expect(!due(0));
    cr_expect(due_as(NS_PER_S, SIGN_MOVED | SIGN_UNSEEN, 0, 1));
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED | SIGN_UNSEEN, 0, 1));
    cr_expect(due_as(NS_PER_S, SIGN_MOVED | SIGN_UNSEEN, 0, 2), "another leader");
    cr_expect(due_as(NS_PER_S, SIGN_MOVED, 0, 2));
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 2));
}

Test(signs_report, who_is_late_is_spoken_of_although_it_moves) {
    announce(5);
    cr_expect(due(0));
    for (int i = 0; i < 4; i++)
        cr_expect(!due(0), "%d", i);
    cr_expect(due(0));
    cr_expect_eq(rows[0].since_announced_ns, 6 * NS_PER_S);
    cr_expect(due(0));
    is_alive();
    cr_expect(due(0), "that it is no longer late");
    cr_expect_eq(rows[0].since_announced_ns, NS_PER_S);
    cr_expect(!due(0));
}

Test(signs_report, a_step_is_in_the_row) {
    announced.step = 9;
    cr_expect(!due(0), "without a deadline it is sent only with others");
    cr_expect_eq(rows[0].step, 9);
}

Test(signs_report, an_ended_worker_has_no_deadline) {
    announce(5);
    cr_expect(due(0));
    cr_expect(due_as(NS_PER_S, SIGN_ENDED, 0, 1), "it is taken back");
    cr_expect_eq(rows[0].deadline_ns, 0);
    for (int i = 0; i < 10; i++)
        cr_expect(!due_as(NS_PER_S, SIGN_ENDED, 0, 1));
}

Test(signs_report, an_ended_worker_is_told_each_leader_once) {
    cr_expect(due_as(NS_PER_S, SIGN_ENDED, 0, 1), "maybe nobody else runs on this node");
    for (int i = 0; i < 10; i++)
        cr_expect(!due_as(NS_PER_S, SIGN_ENDED, 0, 1));
    cr_expect(!due_as(NS_PER_S, SIGN_ENDED, 0, 0), "there is no leader");
    cr_expect(due_as(NS_PER_S, SIGN_ENDED, 0, 2));
    cr_expect(!due_as(NS_PER_S, SIGN_ENDED, 0, 2));
}

Test(signs_report, time_of_a_stopped_worker_does_not_count) {
    announce(5);
    cr_expect(due(0));
    for (int i = 0; i < 10; i++)
        (void)due_as(NS_PER_S, i < 4 ? SIGN_STOPPED : i < 7 ? SIGN_TRACED : SIGN_ASKS, 0, 1);
    cr_expect_eq(rows[0].since_announced_ns, NS_PER_S);
    cr_expect(!due(0));
    cr_expect_eq(rows[0].since_announced_ns, 2 * NS_PER_S);
}

Test(signs_report, time_in_which_the_agent_did_not_run_does_not_count) {
    announce(5);
    cr_expect(due(0));
    cr_expect(!due_as(60 * NS_PER_S, SIGN_MOVED, 0, 1));
    cr_expect_eq(rows[0].since_announced_ns, 2 * NS_PER_S);
    now += 60 * NS_PER_S;
    is_alive(); /* which it reads at once, when it runs again */
    cr_expect(!due(0));
    cr_expect_eq(rows[0].since_announced_ns, NS_PER_S);
}

Test(signs_report, a_new_leader_is_told_what_was_announced) {
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 2), "nothing was");
    announce(20);
    cr_expect(due_as(NS_PER_S, SIGN_MOVED, 0, 2));
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 0), "there is none");
    cr_expect(due_as(NS_PER_S, SIGN_MOVED, 0, 3));
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 3));
}

Test(signs_report, what_happened_without_a_leader_is_told_the_next) {
    cr_expect(due(QUIET));
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 0));
    cr_expect(due_as(NS_PER_S, SIGN_MOVED, 0, 2), "the old one, back, believes that some wait");
    announce(20);
    cr_expect(!due_as(NS_PER_S, SIGN_MOVED, 0, 0));
    cr_expect(due_as(NS_PER_S, SIGN_MOVED, 0, 2));
}
