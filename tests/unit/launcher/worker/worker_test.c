#include "launcher/worker/worker.h"

#include "base/prng.h"
#include "rig/unit.h"

static struct worker_group_machine m;
static struct worker_update u; /* of the last event */

static void init(uint32_t n, uint64_t grace_ms, uint64_t settle_ms) {
    worker_group_machine_init(&m, n, grace_ms * NS_PER_MS, settle_ms * NS_PER_MS);
}
static void init_one(void) { init(1, 1000, 0); }
TestSuite(worker, .init = init_one);

static void step(struct worker_event event) { worker_group_machine_step(&m, &event, &u); }

static struct worker_event at(uint64_t ms, enum worker_event_kind kind) {
    return (struct worker_event){.kind = kind, .now_ns = ms * NS_PER_MS};
}

static struct worker_event stop_at(uint64_t ms, uint64_t grace_ms) {
    struct worker_event e = *WITH(at(ms, WORKER_EVENT_STOP), .signo = SIGTERM, .grace_ns = grace_ms * NS_PER_MS);
    return e;
}

static struct worker_event swept(uint64_t ms, uint32_t left) {
    struct worker_event e = *WITH(at(ms, WORKER_EVENT_SWEPT), .left = left);
    return e;
}

static struct worker_event blocked(uint64_t ms, uint32_t left) {
    struct worker_event e = *WITH(swept(ms, left), .blocking = 1);
    return e;
}

Test(worker, is_gone_when_all_ended_and_nothing_is_left) {
    init(2, 1000, 0);
    step(at(1, WORKER_EVENT_EXITED));
    cr_expect_not(u.sweep);
    cr_expect_eq(m.deadline_ns, TIME_NEVER);
    step(at(2, WORKER_EVENT_EXITED));
    cr_expect_eq(u.sweep, WORKER_PASS_TERM);
    cr_expect_not(u.all_gone);
    step(swept(2, 0));
    cr_expect(u.all_gone && u.over);
    cr_expect_eq(m.state, WORKER_STATE_GONE);
    cr_expect_eq(m.deadline_ns, TIME_NEVER);
}

Test(worker, what_was_spared_is_swept_later) {
    step(at(1, WORKER_EVENT_UNSPARED));
    cr_expect_not(u.sweep, "a worker still runs");
    step(at(1, WORKER_EVENT_EXITED));
    step(swept(1, 1));
    step(at(2, WORKER_EVENT_UNSPARED));
    cr_expect_eq(u.sweep, WORKER_PASS_TERM);
    cr_expect_eq(m.deadline_ns, TIME_NEVER, "two passes at once");
    step(swept(2, 0));
    cr_expect_eq(m.state, WORKER_STATE_GONE);
    step(at(9000, WORKER_EVENT_UNSPARED));
    cr_expect(u.sweep == WORKER_PASS_TERM && !u.all_gone);
    step(blocked(9001, 1));
    cr_expect_eq(m.deadline_ns, 9001 * NS_PER_MS + WORKER_RETRY_MIN_NS);
    cr_expect_not(u.report_unkillable || u.all_gone);
    step(at(9002, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_LOOK);
    step(swept(9002, 0));
    cr_expect(u.all_gone && u.over);
}

Test(worker, sweeps_again_until_nothing_is_left) {
    step(at(0, WORKER_EVENT_KILL));
    step(at(0, WORKER_EVENT_EXITED));
    cr_expect_eq(u.sweep, WORKER_PASS_KILL);
    step(swept(0, 3));
    cr_expect_not(u.all_gone);
    cr_expect_eq(m.deadline_ns, WORKER_RETRY_MIN_NS);
    uint64_t last_wait = 0;
    for (int i = 0; i < 20; i++) {
        struct worker_event timer = {.kind = WORKER_EVENT_TIMER, .now_ns = m.deadline_ns};
        step(timer);
        cr_expect(u.sweep);
        step((struct worker_event){.kind = WORKER_EVENT_SWEPT, .now_ns = timer.now_ns, .left = 1});
        uint64_t wait = m.deadline_ns - timer.now_ns;
        cr_expect(wait >= last_wait && wait <= WORKER_RETRY_MAX_NS);
        last_wait = wait;
    }
    cr_expect_eq(last_wait, WORKER_RETRY_MAX_NS);
}

Test(worker, what_is_left_has_the_rest_of_the_grace) {
    init(2, 1000, 0);
    step(at(10, WORKER_EVENT_EXITED));
    cr_expect_not(u.sweep, "the other worker runs");
    step(stop_at(100, 500));
    step(at(200, WORKER_EVENT_EXITED));
    cr_expect_eq(m.end_ns, 600 * NS_PER_MS, "the rest of the stop's grace");
    cr_expect_eq(u.sweep, WORKER_PASS_TERM);
    step(blocked(201, 2));
    cr_expect_not(u.all_gone, "a port or a GPU is in use");
    step(at(202, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_LOOK, "SIGTERM comes once");
    step(swept(203, 1));
    cr_expect(u.all_gone && !u.over, "the next group can start beside the rest");
    step(at(599, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_LOOK);
    step(swept(599, 1));
    cr_expect_eq(m.deadline_ns, 600 * NS_PER_MS);
    cr_expect_not(u.all_gone);
    step(at(600, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_KILL);
    step(swept(601, 0));
    cr_expect(u.over && !u.all_gone);
}

Test(worker, what_is_left_is_waited_for_and_killed_at_once_when_asked) {
    init(1, 30000, 0);
    step(at(0, WORKER_EVENT_EXITED));
    step(swept(0, 1));
    int reports = 0;
    for (uint64_t ms = 100; ms < 4000; ms += 100) {
        step(at(ms, WORKER_EVENT_TIMER));
        step(swept(ms, 1));
        reports += u.report_waiting;
        cr_expect_eq(reports, ms * NS_PER_MS >= WORKER_PATIENCE_NS);
    }
    step(stop_at(4000, 1000));
    cr_expect_eq(u.signal_all, 0, "no worker is left");
    cr_expect_eq(m.end_ns, 5000 * NS_PER_MS);
    step(at(4001, WORKER_EVENT_KILL));
    cr_expect_eq(u.sweep, WORKER_PASS_KILL);
}

Test(worker, what_is_left_by_success_can_settle_first) {
    init(1, 30000, 1000);
    step(at(0, WORKER_EVENT_EXITED));
    cr_expect_eq(u.sweep, WORKER_PASS_LOOK);
    step(swept(0, 1));
    cr_expect_not(u.all_gone);
    step(at(999, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_LOOK);
    step(swept(999, 1));
    cr_expect_eq(m.deadline_ns, NS_PER_S);
    step(at(1000, WORKER_EVENT_TIMER));
    cr_expect_eq(u.sweep, WORKER_PASS_TERM);
    init(1, 30000, 1000);
    step(stop_at(0, 1000));
    step(at(1, WORKER_EVENT_EXITED));
    cr_expect_eq(u.sweep, WORKER_PASS_TERM, "after a stop no time to settle");
}

Test(worker, gets_the_signal_once_and_is_killed_when_the_grace_is_over) {
    init(3, 1000, 0);
    step(stop_at(10, 1000));
    cr_expect_eq(u.signal_all, SIGTERM);
    cr_expect_eq(m.deadline_ns, 1010 * NS_PER_MS);
    step(stop_at(20, 5000));
    cr_expect_eq(u.signal_all, 0, "a repeated stop signals again");
    cr_expect_eq(m.deadline_ns, 1010 * NS_PER_MS, "a later end of the grace won");
    step(stop_at(30, 100));
    cr_expect_eq(m.deadline_ns, 130 * NS_PER_MS, "an earlier end of the grace lost");
    step(at(129, WORKER_EVENT_TIMER));
    cr_expect_not(u.kill_all, "killed before the grace was over");
    step(at(130, WORKER_EVENT_TIMER));
    cr_expect(u.kill_all);
    cr_expect_eq(m.state, WORKER_STATE_KILLING);
    step(at(131, WORKER_EVENT_TIMER));
    cr_expect(u.kill_all, "SIGKILL is not repeated");
}

Test(worker, has_no_grace_when_killed) {
    step(at(5, WORKER_EVENT_KILL));
    cr_expect(u.kill_all);
    step(stop_at(6, 1000));
    cr_expect_eq(u.signal_all, 0);
    step(at(6, WORKER_EVENT_KILL));
    cr_expect_not(u.kill_all);
}

Test(worker, a_grace_without_end_never_kills) {
    step(*WITH(stop_at(1, 0), .grace_ns = TIME_NEVER));
    cr_expect_eq(m.deadline_ns, TIME_NEVER);
}

Test(worker, what_survives_sigkill_is_said_once) {
    step(at(0, WORKER_EVENT_KILL));
    int said = 0;
    uint64_t said_ns = 0;
    while (m.deadline_ns < 2 * WORKER_UNKILLABLE_NS) {
        struct worker_event timer = {.kind = WORKER_EVENT_TIMER, .now_ns = m.deadline_ns};
        step(timer);
        if (u.report_unkillable) {
            said++;
            said_ns = timer.now_ns;
        }
    }
    cr_expect_eq(said, 1);
    cr_expect(said_ns >= WORKER_UNKILLABLE_NS && said_ns < WORKER_UNKILLABLE_NS + WORKER_RETRY_MAX_NS);
    step(at(20000, WORKER_EVENT_EXITED));
    cr_expect(u.sweep);
    step(swept(20000, 0));
    cr_expect(u.all_gone, "gone after all is gone");
}

/* Any events in any order: the state's assertions are true, and all_gone comes once and last. */
Test(worker, any_order_of_events_ends_once) {
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct prng rng = {seed};
        uint32_t left = 1 + (uint32_t)prng_below(&rng, 5);
        init(left, 1000, 0);
        uint64_t now = 0;
        int gone = 0;
        u = (struct worker_update){0};
        for (int i = 0; i < 400 && gone == 0; i++) {
            now += prng_below(&rng, 300);
            uint64_t pick = prng_below(&rng, 8);
            if (u.sweep)
                step(swept(now, (uint32_t)prng_below(&rng, 3)));
            else if (pick < 3 && left > 0) {
                left--;
                step(at(now, WORKER_EVENT_EXITED));
            } else if (pick == 3)
                step(stop_at(now, prng_below(&rng, 2000)));
            else if (pick == 4)
                step(at(now, WORKER_EVENT_KILL));
            else
                step(at(now, WORKER_EVENT_TIMER));
            gone += u.all_gone;
            cr_assert(!u.all_gone || left == 0, "seed %llu", (unsigned long long)seed);
        }
        cr_assert_eq(gone, 1, "seed %llu", (unsigned long long)seed);
        step(at(now, WORKER_EVENT_KILL));
        cr_assert(!u.kill_all && !u.all_gone, "seed %llu", (unsigned long long)seed);
    }
}
