/* No group lasts, and no worker failed: such groups are counted, paused between, and end the job. */
#include "../group_rig.h"

#include "rig/unit.h"

#define ALL 0xfeu
#define SOON 11.0 /* crash loop, lease and margin */

/* The lease of the only node runs out; it comes back as one that has stopped. */
static void lapse(struct rig *r, double after) {
    pass(r, after, ALL);
    say(r, 1, NODE_STOPPED);
}

/* Until the next group forms, in seconds; -1: the job has ended. */
static double pause_of(struct rig *r) {
    uint64_t since = r->now_ns;
    while (group_state(r->g) == GROUP_GATHERING) {
        cr_assert_lt(r->now_ns, since + S(1000), "it never forms");
        pass(r, 0.25, ALL);
    }
    if (group_state(r->g) == GROUP_CLOSED)
        return -1;
    assert_state(r, GROUP_FORMING);
    return (double)(r->now_ns - since) / 1e9;
}

static struct group_config endless(uint32_t min, uint32_t max) {
    struct group_config c = config_of(min, max);
    c.rdzv.max_restarts = 1000;
    c.rdzv.exclude_after = 0;
    return c;
}

Test(stalls, leases_that_run_out_again_and_again_end_the_job_and_the_pauses_double) {
    static const double pauses[] = {0, 0, 2.5, 5, 10, 20, 40, -1};
    struct group_config c = endless(1, 1);
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 1, GROUP_FORMING);
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        start(&r);
        size_t said = r.seen[GROUP_EFFECT_NOTICE];
        lapse(&r, 5.3);
        cr_assert_eq(r.seen[GROUP_EFFECT_NOTICE] - said, pauses[i] > 0, "each pause is told");
        struct overview o;
        group_overview(r.g, r.now_ns, &o);
        cr_assert_not_null(strstr(o.incident, "had to stop: "), "a pause is no incident: %s", o.incident);
        cr_assert_float_eq(pause_of(&r), pauses[i], 0.01, "pause %zu", i);
    }
    struct desired d = told(&r, 1);
    cr_assert(d.outcome == OUTCOME_FAILED && !d.has_failure && d.no_fault && d.restarts_used == 0);
    cr_assert_not_null(strstr(d.reason, "no group lasts: the last 8 ended before they had run for "
                                        "11 s, although no worker failed"),
                       "%s", d.reason);
    cr_assert_not_null(strstr(d.reason, "had to stop: it received no message"), "%s", d.reason);
    cr_assert_not_null(strstr(d.reason, "--crash-loop=0"), "%s", d.reason);
}

Test(stalls, a_group_that_ran_for_long_enough_is_progress) {
    struct group_config c = endless(1, 1);
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 1, GROUP_FORMING);
    for (int i = 0; i < 40; i++) {
        start(&r);
        lapse(&r, i % 7 == 6 ? SOON : SOON - 0.25);
        (void)pause_of(&r);
        cr_assert_eq(group_state(r.g), GROUP_FORMING, "after %d: %s", i, told(&r, 1).reason);
    }
}

Test(stalls, it_is_not_counted_where_the_crash_loop_is_turned_off) {
    struct group_config c = endless(1, 1);
    c.rdzv.crash_loop_ns = 0;
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 1, GROUP_FORMING);
    for (int i = 0; i < 100; i++) {
        start(&r);
        lapse(&r, 5);
        cr_assert_eq(pause_of(&r), 0);
    }
}

Test(stalls, a_group_that_can_never_be_formed_ends_the_job) {
    for (int slow = 0; slow < 2; slow++) {
        struct group_config c = endless(2, 2);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, GROUP_FORMING);
        int groups = 0;
        while (group_state(r.g) != GROUP_CLOSED) {
            cr_assert_leq(++groups, 8);
            if (groups > 1)
                open_store(&r);
            if (slow == 0)
                fails(&r, 2, FAILURE_NODE, 1000);
            else
                pass(&r, 60, ALL);
            stopped(&r);
            (void)pause_of(&r);
        }
        cr_assert_eq(groups, 8);
        struct desired d = told(&r, 1);
        cr_assert_eq(d.restarts_used, 8, "each is charged as ever");
        cr_assert_not_null(strstr(d.reason, "no group lasts"), "%s", d.reason);
    }
}

Test(stalls, a_node_that_comes_back_and_is_lost_again_ends_the_job) {
    struct group_config c = endless(1, 2);
    c.rdzv.last_call_ns = S(1);
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 2, GROUP_FORMING);
    int groups = 0;
    while (group_state(r.g) != GROUP_CLOSED) {
        cr_assert_leq(++groups, 8);
        start(&r);
        pass(&r, 1, ALL);
        lose(&r, 2);
        join(&r, 2);
        say(&r, 1, NODE_STOPPED);
        (void)pause_of(&r);
    }
    cr_assert_eq(groups, 8);
    cr_assert_not_null(strstr(told(&r, 1).reason, "is gone"), "%s", told(&r, 1).reason);
}

Test(stalls, losing_many_nodes_in_quick_succession_ends_no_job) {
    struct group_config c = endless(1, 50);
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 50, GROUP_FORMING);
    for (uint64_t node = 50; node > 1; node--) {
        start(&r);
        lose(&r, node);
        stopped(&r);
        double pause = 0;
        for (; group_state(r.g) == GROUP_GATHERING; pause += 1) {
            r.now_ns += S(1);
            for (uint64_t n = 1; n < node; n++)
                renew(&r, n);
            step(&r, (struct group_event){.kind = GROUP_EVENT_TIME});
        }
        assert_state(&r, GROUP_FORMING);
        cr_assert_leq(pause, 41, "the pause has an end");
    }
    start(&r);
    cr_assert_str_eq(members(&r), "1");
}

Test(stalls, wishes_cost_nothing_and_a_workers_failure_neither_counts_nor_helps) {
    struct group_config c = endless(1, 2);
    c.rdzv.last_call_ns = 0;
    c.rdzv.grow = GROW_NOW;
    struct rig r;
    bring_to(&r, &c, 1, GROUP_RUNNING);
    for (uint64_t node = 2; node < 40; node++) {
        join(&r, node); /* the group grows at once */
        stopped(&r);
        start(&r);
        report(&r, node, (struct report){.state = NODE_STOPPED, .leaving = true, .generation = group_generation(r.g)});
        stopped(&r);
        step(&r, (struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node});
        cr_assert_eq(pause_of(&r), 0, "node %d", (int)node);
        start(&r);
    }
    end(&r);

    int groups = 0;
    bring_to(&r, &c, 1, GROUP_FORMING);
    while (group_state(r.g) != GROUP_CLOSED) {
        cr_assert_leq(++groups, 15);
        start(&r);
        if (groups % 2 == 0) {
            fails(&r, 1, FAILURE_OOM, 1000);
            say(&r, 1, NODE_STOPPED);
        } else {
            lapse(&r, 5);
        }
        (void)pause_of(&r);
    }
    cr_assert_eq(groups, 15, "%d: %s", groups, told(&r, 1).reason);
    end(&r);
}

Test(stalls, a_group_does_not_grow_by_itself_before_it_has_run_after_a_stall) {
    struct group_config c = endless(1, 2);
    c.rdzv.last_call_ns = 0;
    c.rdzv.grow = GROW_NOW;
    _cleanup_(end) struct rig r;
    bring_to(&r, &c, 1, GROUP_RUNNING);
    lapse(&r, 1);
    start(&r);
    join(&r, 2);
    pass(&r, SOON - 0.25, ALL);
    assert_state(&r, GROUP_RUNNING);
    pass(&r, 0.5, ALL);
    assert_state(&r, GROUP_STOPPING);
}
