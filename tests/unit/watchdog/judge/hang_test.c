#include "watchdog/judge/hang.h"

#include "hang_rig.h"
#include "rig/unit.h"

#define S(x) ((uint64_t)((x)*1e9))

#define assert_between(value, low, high)                                                                    \
    do {                                                                                                    \
        double v_ = (value);                                                                                \
        cr_assert(v_ >= (low) && v_ <= (high), "%s is %.3f, not in %.3f … %.3f", #value, v_, (double)(low), \
                  (double)(high));                                                                          \
    } while (0)

/* Four ranks on two nodes, which have worked for a minute. */
static struct rig four, *const r = &four;

static void begin(void) {
    rig_init(r, 4, 2);
    rig_run(r, 60);
    cr_assert_eq(r->last.state, WATCHDOG_OK);
}
static void end(void) { rig_fini(r); }
TestSuite(hang, .init = begin, .fini = end);

/* The same of others, which may not have worked yet. */
static void begin_with(uint32_t ranks, uint32_t nodes, double seconds) {
    rig_fini(r);
    rig_init(r, ranks, nodes);
    rig_run(r, seconds);
}

/* With limits of its own, in seconds. */
static void begin_limited(double still, double timeout, double report, double seconds) {
    rig_limits(r, &(struct hang_limits){S(still), S(timeout), S(report)});
    rig_run(r, seconds);
}

static void all_wait_for(uint32_t rank) {
    for (uint32_t i = 0; i < r->n; i++)
        r->w[i].moving = i == rank && r->w[i].moving;
}

static void all_move(double seconds) {
    rig_all(r, true);
    rig_run(r, seconds);
}

static void all_wait(double seconds) {
    rig_all(r, false);
    rig_run(r, seconds);
}

/* After a while in which all move. */
static void all_wait_after(double seconds) {
    all_move(seconds);
    rig_all(r, false);
}

static void all_at(uint64_t place) {
    for (uint32_t i = 0; i < r->n; i++)
        r->w[i].place = place;
}

static void new_group_at(uint64_t place) {
    rig_start(r);
    rig_run(r, 20);
    all_at(place);
}

static void announce(uint32_t rank, double deadline) {
    r->w[rank].deadline_ns = S(deadline);
    r->w[rank].announced_at = r->now;
}

static void all_announce(double deadline) {
    for (uint32_t i = 0; i < r->n; i++)
        announce(i, deadline);
}

static void never(double seconds) { assert_between(rig_until_hung(r, seconds), -1, -1); }

static void hangs(double from, double to, enum hang_why why) {
    assert_between(rig_until_hung(r, 5000), from, to);
    cr_expect_eq(r->why, why);
}

/* All wait from now on. */
static void all_hang(double from, double to) {
    rig_all(r, false);
    assert_between(rig_until_hung(r, 5000), from, to);
}

/* What a node sends. */
static void signs(uint32_t node, const struct worker_signs *rows, uint32_t n) {
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_SIGNS, .node = node, .rows = rows, .n = n});
}

Test(hang, nodes_whose_workers_move_say_nothing_and_it_is_ok) {
    cr_expect_eq(r->sent, 0);
    cr_expect_eq(r->last.quiet_ns, 0);
    cr_expect_eq(r->last.limit_ns, TIME_NEVER);
}

#define BUSY_TEXT "most workers have waited for 1800 s, while rank 1 was busy (--hang-timeout)"
#define STILL_TEXT "nothing has moved for 180 s (--hang-still)"
#define GPU_TEXT ": rank 0 and 3 more seem to wait for their GPUs, whose links are silent"
#define GPU_WAITS (SIGN_SPINS | SIGN_BUSY | SIGN_GPU_SEEN)
#define STOPPED_TEXT(who) who " stopped (T), and the others have waited for 10 s"
/* The reason, its limit in s, the sign of a suspect. */
#define STOPPED 10, HANG_WHY_STOPPED, HANG_SIGN_STOPPED
#define STILL 180, HANG_WHY_STILL, 0
#define BUSY 1800, HANG_WHY_BUSY, HANG_SIGN_BUSY

/* What the four do from now on, and the verdict on it, which comes once. */
static const struct {
    uint32_t flags[4];
    bool moving[4];
    int suspect;  /* the only one; -1: none; -2: several */
    double limit; /* -1: never */
    enum hang_why why;
    enum hang_sign sign;
    const char *text; /* NULL: any */
} verdicts[] = {
    {{[2] = SIGN_STOPPED}, {0}, 2, STOPPED, STOPPED_TEXT("rank 2 is")},
    {{[2] = SIGN_STOPPED, SIGN_STOPPED}, {0}, -2, STOPPED, STOPPED_TEXT("rank 2 and 1 more are")},
    {{[1] = SIGN_STOPPED, SIGN_TRACED}, {0}, 0, -1, 0, 0, NULL},
    {{0}, {0}, -1, STILL, STILL_TEXT},
    /* who is busy, writes or moves has until --hang-timeout */
    {{[1] = SIGN_BUSY}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = SIGN_BYTES}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = SIGN_GPU}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = SIGN_SPINS}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = SIGN_SPINS | SIGN_BUSY}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = GPU_WAITS | SIGN_GPU}, {0}, 1, BUSY, BUSY_TEXT},
    {{[1] = SIGN_SPINS | SIGN_GPU_SEEN | SIGN_BYTES}, {0}, 1, BUSY, BUSY_TEXT},
    {{0}, {[3] = true}, 3, BUSY, NULL},
    /* also while its output is held */
    {{[0] = SIGN_HELD}, {[0] = true}, 0, BUSY, NULL},
    /* one that closer looks do not see may be busy, and is not a suspect for that */
    {{[2] = SIGN_UNSEEN}, {0}, -1, BUSY, NULL},
    /* a main thread that spins, with the links of its GPU silent, waits */
    {{GPU_WAITS, GPU_WAITS, GPU_WAITS, GPU_WAITS}, {0}, -1, STILL, STILL_TEXT GPU_TEXT},
};

Test(hang, what_is_seen_decides_limit_reason_and_suspects) {
    for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
        rig_fini(r);
        begin();
        for (uint32_t k = 0; k < 4; k++) {
            r->w[k].flags = verdicts[i].flags[k];
            r->w[k].moving = verdicts[i].moving[k];
        }
        double hung = rig_until_hung(r, 4000), limit = verdicts[i].limit;
        cr_assert(limit < 0 ? hung < 0 : hung >= limit && hung <= limit + 2, "%zu: %.1f s", i, hung);
        if (limit < 0)
            continue;
        cr_expect_eq(r->why, verdicts[i].why, "%zu", i);
        cr_expect_eq(r->last.spins, ((r->w[0].flags | r->w[1].flags) & SIGN_SPINS) != 0, "%zu", i);
        cr_assert(verdicts[i].suspect == -2 || r->n_suspects == (verdicts[i].suspect >= 0), "%zu", i);
        if (verdicts[i].suspect >= 0) {
            cr_expect_eq(r->suspects[0].rank, (uint32_t)verdicts[i].suspect, "%zu", i);
            cr_expect_eq(r->suspects[0].node, (uint32_t)verdicts[i].suspect / 2, "%zu", i);
            cr_expect_eq(r->suspects[0].sign, verdicts[i].sign, "%zu", i);
        }
        if (verdicts[i].text != NULL)
            cr_expect_str_eq(r->text, verdicts[i].text, "%zu", i);
        cr_expect_lt(rig_until_hung(r, 1000), 0, "%zu: it is reported once", i);
    }
}

Test(hang, the_ten_seconds_are_of_the_stop_not_of_the_wait_before_it) {
    all_wait(100);
    r->w[2].flags = SIGN_STOPPED;
    hangs(9.9, 12.0, HANG_WHY_STOPPED);
}

Test(hang, the_ten_seconds_are_of_the_wait_not_of_the_stop_before_it) {
    begin_with(2, 2, 60);
    r->w[0].moving = false;
    r->w[0].flags = SIGN_STOPPED;
    rig_run(r, 20); /* the other one works on: half is no beat */
    cr_assert_eq(r->hangs, 0);
    cr_expect_neq(r->last.state, WATCHDOG_OK);
    r->w[1].moving = false;
    assert_between(rig_until_hung(r, 50), 9.9, 12.0);
    cr_expect_eq(r->why, HANG_WHY_STOPPED);
}

Test(hang, a_stopped_rank_for_which_nobody_waits_is_none) {
    r->w[2].moving = false;
    r->w[2].flags = SIGN_STOPPED;
    never(4000);
    r->w[3].moving = false;
    r->w[3].flags = SIGN_STOPPED;
    never(1000); /* the other two go on */
    r->w[0].moving = false;
    assert_between(rig_until_hung(r, 1000), 8.0, 12.0);
}

Test(hang, all_stopped_or_one_traced_is_never_a_hang) {
    rig_all(r, false);
    for (uint32_t i = 0; i < 4; i++)
        r->w[i].flags = SIGN_STOPPED;
    never(10000);
    cr_expect_eq(r->last.why, HANG_WHY_SUSPENDED);
    cr_expect_eq(r->last.limit_ns, TIME_NEVER);
    /* they go on one by one: nothing follows from the time before */
    for (uint32_t i = 0; i < 3; i++) {
        r->w[i].flags = 0;
        never(3);
    }
    cr_expect_eq(r->reports, 0);
    r->w[3].flags = SIGN_TRACED;
    never(10000);
    cr_expect_eq(r->reports, 1);
    r->w[3].flags = 0;
    assert_between(rig_until_hung(r, 1000), 150, 182); /* some quiet was counted before */
}

/* Those who wait for a person, or are held by one. */
Test(hang, what_waits_for_a_person_is_never_a_hang_and_that_is_said_once) {
    static const struct {
        uint32_t flag, n;
        enum hang_sign sign;
        const char *text;
    } cases[] = {
        {SIGN_ASKS, 1, HANG_SIGN_ASKS, "rank 2 waits for input, as at a debugger's prompt"},
        {SIGN_ASKS, 2, HANG_SIGN_ASKS, "rank 2 and 1 more wait for input, as at a debugger's prompt"},
        {SIGN_HELD, 2, HANG_SIGN_HELD,
         "rank 2 and 1 more wait until the output of the job is read (a pager, a terminal after ^S)"},
        {SIGN_TRACED, 2, HANG_SIGN_TRACED, "rank 2 and 1 more are stopped by a debugger (t)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *text = xasprintf("%s: that does not count as a hang", cases[i].text);
        begin_with(4, 2, 60);
        all_announce(20); /* nobody is late meanwhile */
        rig_run(r, 2);
        rig_all(r, false);
        for (uint32_t k = 0; k < cases[i].n; k++)
            r->w[2 + k].flags = cases[i].flag;
        never(25);
        cr_expect_eq(r->reports, 0);
        never(10000);
        cr_expect_eq(r->last.why, HANG_WHY_SUSPENDED);
        cr_expect_eq(r->reports, 1);
        cr_expect_str_eq(r->text, text);
        cr_assert_eq(r->n_suspects, cases[i].n);
        cr_expect_eq(r->suspects[0].sign, cases[i].sign);
    }
}

Test(hang, after_the_last_prompt_limits_count_and_another_matter_is_said) {
    rig_all(r, false);
    r->w[2].flags = SIGN_ASKS;
    never(100);
    all_wait_after(5); /* a line was typed; then the next prompt */
    never(10000);
    cr_expect_eq(r->reports, 1);
    r->w[2].flags = SIGN_HELD;
    rig_run(r, 40);
    cr_expect_eq(r->reports, 2);
    r->w[2].flags = 0;
    assert_between(rig_until_hung(r, 1000), 170, 186);
}

Test(hang, who_traces_a_job_that_is_known_to_hang_is_not_told) {
    all_hang(180, 182);
    uint32_t reports = r->reports;
    r->w[2].flags = SIGN_TRACED;
    rig_run(r, 100);
    cr_expect_eq(r->reports, reports);
}

/* Too few descriptors for its files. */
Test(hang, one_that_can_not_be_seen_is_taken_for_moving_but_is_no_suspect) {
    r->w[0].flags = r->w[1].flags = r->w[2].flags = SIGN_UNSEEN;
    r->w[3].moving = false;
    never(10000);
    r->w[0].flags = r->w[1].flags = 0;
    r->w[0].moving = r->w[1].moving = false;
    hangs(1800, 1802, HANG_WHY_BUSY);
    cr_expect_eq(r->n_suspects, 0);
}

/* The others have waited for whoever types, and not for a rank. */
Test(hang, after_a_prompt_quiet_begins_anew) {
    all_wait(100);
    cr_expect_eq(r->reports, 1);
    r->w[2].flags = SIGN_ASKS;
    rig_run(r, 1000);
    cr_expect_lt(r->last.quiet_ns, S(1));
    r->w[2].flags = 0;
    rig_run(r, 35);
    cr_expect_eq(r->reports, 3, "quiet, a prompt, quiet");
    cr_expect(r->last.quiet_ns > S(30) && r->last.quiet_ns < S(37), "%g", (double)r->last.quiet_ns / 1e9);
    assert_between(rig_until_hung(r, 1000), 143, 147);
    cr_expect_str_eq(r->text, "nothing has moved for 180 s (--hang-still)");
}

Test(hang, the_verdict_is_at_the_end_of_the_limit_not_at_the_next_second) {
    for (double part = 0; part < 1; part += 0.3) {
        rig_limits(r, &(struct hang_limits){S(60 + part), S(1800), S(30)});
        rig_run(r, 60);
        rig_all(r, false);
        cr_assert_gt(rig_until_hung(r, 100), 0);
        cr_expect_leq(r->last.quiet_ns - r->last.limit_ns, NS_PER_S / 20, "%g s", part);
    }
}

Test(hang, hang_still_counts_from_the_last_that_moved) {
    all_wait_for(0); /* rank 0 evaluates */
    never(170);
    r->w[0].moving = false;
    r->w[0].ended = true;
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_ENDED, .rank = 0});
    hangs(180, 182, HANG_WHY_STILL);
}

/* Not in NCCL: it may compute, and has until --hang-timeout. */
Test(hang, words_for_workers_that_wait_for_their_gpus) {
    rig_all(r, false);
    for (uint32_t i = 0; i < 3; i++)
        r->w[i].flags = SIGN_SPINS | SIGN_BUSY;
    hangs(1800, 1802, HANG_WHY_BUSY);
    cr_expect_str_eq(r->text, "most workers seem to have waited for their GPUs for 1800 s (--hang-timeout)");
    all_wait_after(20);
    for (uint32_t i = 0; i < 3; i++)
        r->w[i].flags = SIGN_SPINS | SIGN_BUSY | SIGN_GPU_SEEN;
    r->w[3].flags = SIGN_BUSY;
    assert_between(rig_until_hung(r, 3000), 1800, 1802);
    cr_expect_str_eq(r->text, "most workers seem to have waited for their GPUs for 1800 s, while rank 3 was busy "
                              "(--hang-timeout)");
    begin_with(1, 1, 20);
    rig_all(r, false);
    r->w[0].flags = SIGN_SPINS | SIGN_BUSY;
    assert_between(rig_until_hung(r, 3000), 1800, 1802);
    cr_expect_str_eq(r->text, "the only worker seems to have waited for its GPU for 1800 s (--hang-timeout)");
}

Test(hang, a_limit_of_0_is_none) {
    begin_limited(180, 0, 30, 20);
    all_wait_for(1);
    never(20000);
    cr_expect_eq(r->last.limit_ns, TIME_NEVER);
    begin_limited(0, 600, 0, 20);
    rig_all(r, false);
    hangs(600, 602, HANG_WHY_BUSY);
    cr_expect_eq(r->reports, 0);
    cr_expect_str_eq(r->text, "most workers have waited for 600 s (--hang-timeout)");
    all_wait_after(20);
    r->w[1].flags = r->w[3].flags = SIGN_BUSY;
    assert_between(rig_until_hung(r, 20000), 600, 602);
    expect_has(r->text, "while rank 1 and 1 more were busy");
    cr_expect_eq(r->n_suspects, 0);
    begin_limited(0, 0, 30, 20);
    rig_all(r, false);
    never(20000);
}

Test(hang, the_least_of_both_limits_counts) {
    begin_limited(600, 300, 30, 20);
    all_hang(300, 302);
}

Test(hang, half_is_no_beat_and_more_than_half_is_one) {
    r->w[0].moving = r->w[1].moving = false;
    assert_between(rig_until_hung(r, 3000), 1800, 1802);
    cr_expect_eq(r->n_suspects, 0, "of two who move and two who wait, neither are named");
    r->w[0].moving = true;
    rig_run(r, 10);
    cr_expect_eq(r->last.state, WATCHDOG_OK);
    cr_expect_eq(r->recoveries, 1);
    never(3000);
}

Test(hang, workers_that_move_by_turns_within_seconds_make_no_beat) {
    double hung = -1;
    rig_all(r, false);
    for (int i = 0; i < 2000 && hung < 0; i++) {
        r->w[i % 4].moving = true;
        rig_run(r, 0.1);
        r->w[i % 4].moving = false;
        hung = rig_until_hung(r, 3);
    }
    cr_expect_eq(r->hangs, 1);
    cr_expect_eq(r->why, HANG_WHY_BUSY);
}

Test(hang, one_short_beat_is_enough_whenever_nodes_sample) {
    for (int i = 0; i < 10; i++) {
        begin_with(6, 2, 60); /* on each node is one that does not move, so that it goes on to speak */
        all_wait(20 + 0.1 * i);
        for (uint32_t rank = 1; rank < 5; rank++)
            r->w[rank].moving = true;
        rig_run(r, 0.1);
        all_wait(5);
        cr_expect(r->last.quiet_ns < S(7), "phase %d: %.1f s", i, (double)r->last.quiet_ns / 1e9);
    }
}

Test(hang, reports_are_due_at_hang_report_and_at_5_minutes) {
    all_wait_for(1);
    uint64_t from = r->now;
    rig_run(r, 250);
    cr_expect_eq(r->reports, 1);
    assert_between((double)(r->report_at - from) / 1e9, 30, 32);
    cr_expect_str_eq(r->text, "most workers have not moved for 30 s");
    cr_expect_eq(r->n_suspects, 1);
    rig_run(r, 1000);
    cr_expect_eq(r->reports, 2);
    assert_between((double)(r->report_at - from) / 1e9, 300, 302);
    cr_expect_eq(r->hangs, 0);
    all_wait_after(5);
    rig_run(r, 40);
    cr_expect_eq(r->reports, 3, "again after a beat");
}

/* A node that says nothing yet may have nothing to say, or may not have looked. */
Test(hang, nothing_is_said_before_signs_can_be_there) {
    begin_limited(1, 2, 1, 60);
    cr_expect_eq(r->reports + r->hangs, 0, "all work: %s", r->text);
    rig_limits(r, &(struct hang_limits){S(180), S(1800), S(1)});
    all_wait(4.5);
    cr_expect_eq(r->reports, 0);
    rig_run(r, 5);
    cr_expect_eq(r->reports, 1);
}

Test(hang, a_report_later_than_5_minutes_comes_once) {
    begin_limited(5000, 5000, 400, 20);
    all_wait(390);
    cr_expect_eq(r->reports, 0);
    rig_run(r, 2000);
    cr_expect_eq(r->reports, 1);
}

Test(hang, a_hang_is_noticed_once_until_a_beat) {
    rig_run(r, 20);
    all_hang(180, 182);
    rig_run(r, 5000);
    cr_expect_eq(r->hangs, 1);
    all_move(5);
    cr_expect_eq(r->recoveries, 1);
}

/* --- starting */

Test(hang, before_the_first_beat_only_t_and_hang_timeout_count) {
    begin_with(4, 2, 0);
    all_hang(1800, 1802);
    cr_expect_eq(r->why, HANG_WHY_NO_BEAT);
    cr_expect_str_eq(r->text, "most workers have not begun to work in 1800 s (--hang-timeout)");
    rig_start(r);
    rig_all(r, false);
    r->w[3].flags = SIGN_STOPPED;
    assert_between(rig_until_hung(r, 3000), 9.9, 12);
    rig_start(r);
    rig_all(r, false);
    for (uint32_t i = 0; i < 4; i++) { /* nor what was announced */
        r->w[i].deadline_ns = S(20);
        r->w[i].announced_at = r->now;
    }
    assert_between(rig_until_hung(r, 3000), 1800, 1802);
}

Test(hang, silence_right_after_the_start_is_no_beat_yet) {
    begin_with(4, 2, 4);
    cr_expect_eq(r->last.state, WATCHDOG_STARTING);
    rig_run(r, 3);
    cr_expect_eq(r->last.state, WATCHDOG_OK);
}

Test(hang, a_new_leader_of_a_job_that_hangs_begins_to_count_at_zero) {
    all_wait(170);
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_START, .n = 4, .nodes = r->nodes});
    hangs(180, 184, HANG_WHY_STILL);
}

Test(hang, after_the_end_nothing_is_judged) {
    all_wait(50);
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_END});
    cr_expect_eq(r->last.state, WATCHDOG_NONE);
    cr_expect_eq(r->last.deadline_ns, TIME_NEVER);
    never(3000);
}

/* --- announced */

Test(hang, an_announced_deadline_counts_instead_of_the_others) {
    all_announce(25);
    rig_all(r, false);
    hangs(25, 27, HANG_WHY_ANNOUNCED);
    expect_has(r->text, "announced deadline is over");
    expect_has(r->text, " s (WATCHDOG_USEC= announces more)");
}

Test(hang, an_announced_deadline_counts_not_before_10_seconds_of_quiet) {
    announce(0, 1);
    all_hang(10, 12);
}

Test(hang, one_whose_deadline_is_not_over_is_waited_for) {
    for (uint32_t i = 1; i < 4; i++)
        announce(i, 10);
    announce(0, 900); /* a checkpoint */
    all_hang(900, 902);
}

Test(hang, one_that_moves_on_a_silent_node_and_is_not_late_is_waited_for) {
    announce(0, 10);
    announce(1, 10);
    announce(2, 900);
    rig_run(r, 1.5);
    r->w[0].moving = r->w[1].moving = false; /* the node of 2 and 3 says nothing */
    assert_between(rig_until_hung(r, 3000), 898, 902);
}

Test(hang, who_moves_and_is_late_is_waited_for_no_longer) {
    for (uint32_t i = 0; i < 4; i++) {
        announce(i, 20);
        r->w[i].step = i == 2 ? 41 : 42;
    }
    all_wait_for(2); /* an endless loop */
    assert_between(rig_until_hung(r, 3000), 20, 22);
    cr_assert_eq(r->n_suspects, 1);
    cr_expect_eq(r->suspects[0].rank, 2);
    cr_expect_eq(r->suspects[0].sign, HANG_SIGN_BEHIND);
}

Test(hang, an_announced_deadline_waits_while_time_does_not_count) {
    all_announce(40);
    all_wait(12);
    r->leader_stalled = true;
    rig_run(r, 100);
    r->leader_stalled = false;
    assert_between(rig_until_hung(r, 1000), 24, 31);
}

Test(hang, an_announced_deadline_can_be_as_long_as_it_likes) {
    announce(1, 1);
    r->w[1].deadline_ns = UINT64_MAX;
    rig_all(r, false);
    never(10000);
}

/* --- places */

Test(hang, a_wait_that_ended_by_itself_may_be_three_times_as_long_again) {
    all_at(77);
    all_wait_for(0);
    rig_run(r, 100);
    all_wait_after(20);
    assert_between(rig_until_hung(r, 1000), 298, 310);
    expect_has(r->text, "three times the longest wait at this place");
    /* at another place nothing is known */
    new_group_at(78);
    all_hang(180, 182);
    cr_expect_null(strstr(r->text, "three times"));
    /* the place is still known in the next group */
    new_group_at(77);
    rig_all(r, false);
    assert_between(rig_until_hung(r, 1000), 298, 310);
}

Test(hang, a_shorter_wait_at_a_place_shortens_nothing) {
    all_at(77);
    all_wait(15);
    all_wait_after(20);
    assert_between(rig_until_hung(r, 1000), 180, 182);
}

Test(hang, a_place_lengthens_hang_timeout_and_announced_deadlines_too_but_not_t) {
    r->w[1].place = 77;
    all_wait_for(0);
    rig_run(r, 700);
    all_move(20);
    all_wait_for(0);
    assert_between(rig_until_hung(r, 5000), 2098, 2110);
    all_move(20);
    announce(1, 20);
    rig_all(r, false);
    double longer = rig_until_hung(r, 10000);
    cr_expect(longer > 2000, "%f", longer);
    all_wait_after(20);
    r->w[3].flags = SIGN_STOPPED;
    assert_between(rig_until_hung(r, 10000), 10, 12);
}

Test(hang, a_wait_that_the_end_of_the_group_ended_is_not_learned) {
    all_at(77);
    all_hang(180, 182);
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_END});
    new_group_at(77);
    all_hang(180, 182);
}

Test(hang, a_place_is_known_from_evidence_too) {
    for (int i = 0; i < 2; i++) {
        all_wait(100);
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_PLACE, .rank = 1, .place = 5});
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_PLACE, .rank = 99, .place = 5});
        if (i == 0) {
            rig_run(r, 20);
            all_move(20);
        }
    }
    assert_between(rig_until_hung(r, 1000), 255, 270); /* 100 s of the 360 are over */
}

/* --- ends, and time that does not count */

Test(hang, one_that_has_ended_is_no_half_of_anything_and_a_suspect) {
    r->w[0].ended = true;
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_ENDED, .rank = 0});
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_ENDED, .rank = 4});
    r->w[1].moving = false; /* 2 of 3 go on */
    never(3000);
    cr_expect_eq(r->last.state, WATCHDOG_OK);
    all_hang(180, 182);
    cr_assert_eq(r->n_suspects, 1);
    cr_expect_eq(r->suspects[0].rank, 0);
    cr_expect_eq(r->suspects[0].sign, HANG_SIGN_ENDED);
}

Test(hang, when_all_have_ended_nothing_hangs) {
    for (uint32_t i = 0; i < 4; i++)
        r->w[i].ended = true;
    rig_run(r, 3); /* by their signs */
    for (uint32_t i = 0; i < 4; i++)
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_ENDED, .rank = i});
    never(3000);
}

Test(hang, time_in_which_the_leader_was_stopped_does_not_count) {
    all_wait(100);
    r->leader_stalled = true;
    rig_run(r, 1000);
    r->leader_stalled = false;
    assert_between(rig_until_hung(r, 1000), 76, 84);
}

Test(hang, time_in_which_a_node_that_spoke_says_nothing_does_not_count) {
    all_wait(100);
    r->node[1].stalled = true;
    rig_run(r, 1000);
    cr_expect_eq(r->hangs, 0);
    r->node[1].stalled = false;
    r->node[0].stalled = true; /* the last rank's node goes on */
    rig_run(r, 1000);
    cr_expect_eq(r->hangs, 0);
    r->node[0].stalled = false;
    assert_between(rig_until_hung(r, 1000), 62, 82);
}

/* It moved in the second in which it was stopped, and then its whole node was. */
Test(hang, a_node_that_says_nothing_after_a_worker_was_stopped_is_silent) {
    begin_with(8, 4, 60);
    struct worker_signs row = {.rank = 2, .flags = SIGN_MOVED | SIGN_STOPPED, .moved_once = true};
    cr_assert_eq(r->nodes[row.rank], 1);
    signs(1, &row, 1);
    r->node[1].stalled = true;
    all_wait(1000);
    cr_expect_eq(r->hangs, 0);
}

/* Nobody would have been silent for so long, if it was true: a worker that doesn't move is spoken of within 5 s. */
Test(hang, a_node_that_speaks_late_is_believed_for_5_seconds) {
    struct worker_signs rows[4];
    for (uint32_t i = 0; i < 4; i++)
        rows[i] = (struct worker_signs){.rank = i, .still_ns = S(60), .moved_once = true};
    signs(0, rows, 4);
    signs(1, rows, 4);
    r->now += S(1);
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_TIMER});
    cr_expect_eq(r->last.state, WATCHDOG_QUIET);
    assert_between((double)r->last.quiet_ns / 1e9, 4, 6.1);
}

Test(hang, quiet_time_and_the_next_look_are_told) {
    all_wait(50);
    cr_expect_eq(r->last.state, WATCHDOG_QUIET);
    assert_between((double)r->last.quiet_ns / 1e9, 48, 51);
    rig_start(r);
    cr_expect_eq(r->last.state, WATCHDOG_STARTING);
    cr_expect_eq(r->last.quiet_ns, 0);
    cr_expect_eq(r->last.deadline_ns, r->now + S(1));
    rig_run(r, 10);
    cr_expect_eq(r->last.deadline_ns > r->now && r->last.deadline_ns <= r->now + S(1), true);
}

Test(hang, a_new_generation_has_reports_of_its_own) {
    all_wait(40);
    cr_expect_eq(r->reports, 1);
    rig_start(r);
    all_wait(40);
    cr_expect_eq(r->reports, 1, "before its first beat");
}

Test(hang, a_node_speaks_only_of_its_own_ranks) {
    struct worker_signs rows[6] = {0};
    for (uint32_t i = 0; i < 6; i++)
        rows[i] = (struct worker_signs){.rank = i, .flags = SIGN_STOPPED, .still_ns = TIME_NEVER};
    rows[5].rank = UINT32_MAX;
    for (int i = 0; i < 30; i++) {
        signs(7, rows, 6);
        rig_run(r, 1);
    }
    cr_expect_eq(r->hangs, 0);
    cr_expect_eq(r->last.state, WATCHDOG_OK);
}

Test(hang, numbers_that_no_worker_has_do_no_harm) {
    struct worker_signs rows[4];
    for (uint32_t i = 0; i < 4; i++)
        rows[i] = (struct worker_signs){.rank = i,
                                        .flags = UINT32_MAX & ~(uint32_t)(SIGN_TRACED | SIGN_ENDED | SIGN_MOVED),
                                        .still_ns = UINT64_MAX,
                                        .step = UINT64_MAX,
                                        .deadline_ns = UINT64_MAX,
                                        .since_announced_ns = UINT64_MAX};
    signs(0, rows, 4);
    signs(1, rows, 4);
    rig_event(r, (struct hang_event){.kind = HANG_EVENT_TIMER});
    cr_expect_eq(r->hangs, 0);
    cr_expect(r->last.quiet_ns <= HANG_FIRST_SIGNS_NS + S(2));
}

Test(hang, time_is_counted_after_a_clock_has_gone_back) {
    r->skew = S(100);
    all_wait(100);
    r->skew = S(10);
    assert_between(rig_until_hung(r, 1000), 76, 86);
}

/* Ranks 0 and 1 are on one node, rank 2 on another one, which also says when it has moved. */
static void say_at(double at, bool moved, double still) {
    struct worker_signs row[2] = {
        {.rank = 0, .flags = moved ? SIGN_MOVED : 0, .moved_once = true, .still_ns = S(still)}};
    row[1] = row[0];
    row[1].rank = 1;
    r->now = S(at);
    signs(0, row, 2);
}

static void other_says_at(double at) {
    r->now = S(at);
    signs(1, &(struct worker_signs){.rank = 2, .flags = SIGN_MOVED, .moved_once = true}, 1);
}

/* For 100 s two of three wait, then they move at 1099.1. The next look is due at 1101. */
static void moves_after_quiet(void) {
    begin_with(3, 2, 0);
    for (int i = 1; i <= 100; i++) {
        r->now = S(1000 + i);
        rig_event(r, (struct hang_event){.kind = HANG_EVENT_TIMER});
        if (i < 100)
            say_at(1000 + i, i == 1, i);
    }
    cr_assert_eq(r->last.state, WATCHDOG_QUIET);
    say_at(1100.1, true, 1);
    other_says_at(1100.9);
    cr_assert_eq(r->last.state, WATCHDOG_QUIET);
}

/* They went on for a minute, in which this process did not run, and wait again when it does. */
Test(hang, a_beat_before_time_that_is_not_counted_is_not_hidden) {
    moves_after_quiet();
    say_at(1160, false, 3);
    cr_expect_lt(r->last.quiet_ns, 10 * NS_PER_S);
}

Test(hang, a_clock_that_goes_back_hides_no_beat) {
    moves_after_quiet();
    say_at(1090, false, 3);
    other_says_at(1098);
    cr_expect_lt(r->last.quiet_ns, 10 * NS_PER_S);
}

Test(hang, the_largest_job_is_judged) {
    uint32_t *nodes = xcalloc(HANG_RANKS_MAX, sizeof *nodes);
    struct hang *h = hang_new(&(struct hang_limits){S(180), S(1800), S(30)});
    struct hang_update u;
    hang_step(h, &(struct hang_event){.kind = HANG_EVENT_START, .now_ns = S(1), .n = HANG_RANKS_MAX, .nodes = nodes},
              &u);
    struct worker_signs *rows = xcalloc(HANG_RANKS_MAX, sizeof *rows);
    for (uint64_t t = 2; t < 16; t++) {
        for (uint32_t i = 0; i < HANG_RANKS_MAX; i++)
            rows[i] = (struct worker_signs){
                .rank = i, .flags = i == 9 ? SIGN_STOPPED : 0, .moved_once = true, .still_ns = t * NS_PER_S};
        hang_step(
            h,
            &(struct hang_event){.kind = HANG_EVENT_SIGNS, .now_ns = t * NS_PER_S, .n = HANG_RANKS_MAX, .rows = rows},
            &u);
        if (u.hung)
            break;
    }
    cr_expect(u.hung && u.n_suspects == 1 && u.suspects[0].rank == 9);
    hang_free(h);
    hang_free(NULL);
    free(rows);
    free(nodes);
}
