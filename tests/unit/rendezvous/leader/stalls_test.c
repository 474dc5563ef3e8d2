/* No group lasts, and no worker failed: such groups are counted, paused between, and end the job. */
#include "group_rig.h"

#include "rig/unit.h"

#define ALL 0xfeu
#define SOON 11.0 /* crash loop, lease and margin */

/* The lease of the only node runs out; it comes back as one that has stopped. */
static void lapse(double after) {
    pass(after, ALL);
    say(1, NODE_STOPPED);
}

/* Until the next group forms, in seconds; -1: the job has ended. */
static double pause_of(void) {
    uint64_t since = rig.now_ns;
    while (group_state(rig.g) == GROUP_GATHERING) {
        cr_assert_lt(rig.now_ns, since + S(1000), "it never forms");
        pass(0.25, ALL);
    }
    if (group_state(rig.g) == GROUP_CLOSED)
        return -1;
    assert_state(GROUP_FORMING);
    return (double)(rig.now_ns - since) / 1e9;
}

static struct group_config endless(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .rdzv.max_restarts = 1000, .rdzv.exclude_after = 0);
    return c;
}

Test(stalls, leases_that_run_out_again_and_again_end_the_job_and_the_pauses_double) {
    static const double pauses[] = {0, 0, 2.5, 5, 10, 20, 40, -1};
    bring_to(AT(endless(1, 1)), 1, GROUP_FORMING);
    for (size_t i = 0; i < ARRAY_SIZE(pauses); i++) {
        start();
        size_t said = rig.seen[GROUP_EFFECT_NOTICE];
        lapse(5.3);
        cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE] - said, pauses[i] > 0, "each pause is told");
        struct overview o;
        group_overview(rig.g, rig.now_ns, &o);
        cr_assert_not_null(strstr(o.incident, "had to stop: "), "a pause is no incident: %s", o.incident);
        cr_assert_float_eq(pause_of(), pauses[i], 0.01, "pause %zu", i);
    }
    struct desired d = told(1);
    cr_assert(d.outcome == OUTCOME_FAILED && !d.has_failure && d.no_fault && d.restarts_used == 0);
    assert_has(d.reason, "no group lasts: the last 8 ended before they had run for "
                         "11 s, although no worker failed");
    assert_has(d.reason, "had to stop: it received no message");
    assert_has(d.reason, "--crash-loop=0");
}

Test(stalls, a_group_that_ran_for_long_enough_is_progress) {
    bring_to(AT(endless(1, 1)), 1, GROUP_FORMING);
    for (int i = 0; i < 40; i++) {
        start();
        lapse(i % 7 == 6 ? SOON : SOON - 0.25);
        (void)pause_of();
        cr_assert_eq(group_state(rig.g), GROUP_FORMING, "after %d: %s", i, told(1).reason);
    }
}

Test(stalls, it_is_not_counted_where_the_crash_loop_is_turned_off) {
    bring_to(WITH(endless(1, 1), .rdzv.crash_loop_ns = 0), 1, GROUP_FORMING);
    for (int i = 0; i < 100; i++) {
        start();
        lapse(5);
        cr_assert_eq(pause_of(), 0);
    }
}

Test(stalls, a_group_that_can_never_be_formed_ends_the_job) {
    for (int slow = 0; slow < 2; slow++) {
        bring_to(AT(endless(2, 2)), 2, GROUP_FORMING);
        int groups = 0;
        while (group_state(rig.g) != GROUP_CLOSED) {
            cr_assert_leq(++groups, 8);
            if (groups > 1)
                open_store();
            if (slow == 0)
                fails(2, FAILURE_NODE, 1000);
            else
                pass(60, ALL);
            stopped();
            (void)pause_of();
        }
        cr_assert_eq(groups, 8);
        struct desired d = told(1);
        cr_assert_eq(d.restarts_used, 8, "each is charged as ever");
        assert_has(d.reason, "no group lasts");
    }
}

Test(stalls, a_node_that_comes_back_and_is_lost_again_ends_the_job) {
    bring_to(WITH(endless(1, 2), .rdzv.last_call_ns = S(1)), 2, GROUP_FORMING);
    int groups = 0;
    while (group_state(rig.g) != GROUP_CLOSED) {
        cr_assert_leq(++groups, 8);
        start();
        pass(1, ALL);
        lose(2);
        join(2);
        say(1, NODE_STOPPED);
        (void)pause_of();
    }
    cr_assert_eq(groups, 8);
    assert_has(told(1).reason, "is gone");
}

Test(stalls, losing_many_nodes_in_quick_succession_ends_no_job) {
    bring_to(AT(endless(1, 50)), 50, GROUP_FORMING);
    for (uint64_t node = 50; node > 1; node--) {
        start();
        lose(node);
        stopped();
        double pause = 0;
        for (; group_state(rig.g) == GROUP_GATHERING; pause += 1) {
            rig.now_ns += S(1);
            for (uint64_t n = 1; n < node; n++)
                renew(n);
            step((struct group_event){.kind = GROUP_EVENT_TIME});
        }
        assert_state(GROUP_FORMING);
        cr_assert_leq(pause, 41, "the pause has an end");
    }
    start();
    cr_assert_str_eq(members(), "1");
}

Test(stalls, wishes_cost_nothing_and_a_workers_failure_neither_counts_nor_helps) {
    struct group_config c = *WITH(endless(1, 2), .rdzv.last_call_ns = 0, .rdzv.grow = GROW_NOW);
    bring_to(&c, 1, GROUP_RUNNING);
    for (uint64_t node = 2; node < 40; node++) {
        join(node); /* the group grows at once */
        stopped();
        start();
        report(node, (struct report){.state = NODE_STOPPED, .leaving = true, .generation = group_generation(rig.g)});
        stopped();
        step((struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node});
        cr_assert_eq(pause_of(), 0, "node %d", (int)node);
        start();
    }
    int groups = 0;
    bring_to(&c, 1, GROUP_FORMING);
    while (group_state(rig.g) != GROUP_CLOSED) {
        cr_assert_leq(++groups, 15);
        start();
        if (groups % 2 == 0) {
            fails(1, FAILURE_OOM, 1000);
            say(1, NODE_STOPPED);
        } else {
            lapse(5);
        }
        (void)pause_of();
    }
    cr_assert_eq(groups, 15, "%d: %s", groups, told(1).reason);
}

Test(stalls, a_group_does_not_grow_by_itself_before_it_has_run_after_a_stall) {
    bring_to(WITH(endless(1, 2), .rdzv.last_call_ns = 0, .rdzv.grow = GROW_NOW), 1, GROUP_RUNNING);
    lapse(1);
    start();
    join(2);
    pass(SOON - 0.25, ALL);
    assert_state(GROUP_RUNNING);
    pass(0.5, ALL);
    assert_state(GROUP_STOPPING);
}
