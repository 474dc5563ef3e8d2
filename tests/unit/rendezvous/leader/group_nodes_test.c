/* Which nodes are heard, probed and lost. A lease of 5 s and a margin of 1 s: silent after 2.5 s, lost after 6 s. */
#include "group_rig.h"

#include "rig/unit.h"

TestSuite(group_nodes, .fini = end);

static void time_passes(double seconds) {
    rig.now_ns += S(seconds);
    step((struct group_event){.kind = GROUP_EVENT_TIME});
}

Test(group_nodes, probes_without_a_result_are_repeated_ever_more_rarely_up_to_a_bound) {
    static const uint64_t waits_ms[] = {2, 4, 8, 16, 32, 64, 128, 200, 200, 200};
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    disconnect(2);
    for (size_t i = 0; i < ARRAY_SIZE(waits_ms); i++) {
        probe(2, PROBE_UNKNOWN);
        cr_assert_eq(rig.u.deadline_ns, rig.now_ns + waits_ms[i] * NS_PER_MS, "probe %zu", i);
        rig.now_ns = rig.u.deadline_ns - 1;
        time_passes(0);
        cr_assert_eq(count(GROUP_EFFECT_PROBE, 2), 0, "probe %zu", i);
        rig.now_ns++;
        time_passes(0);
        cr_assert_eq(count(GROUP_EFFECT_PROBE, 2), 1, "probe %zu", i);
    }
    cr_assert_gt(rig.u.deadline_ns, rig.now_ns + NS_PER_S, "one is under way");
}

Test(group_nodes, a_probe_under_way_is_not_sent_again) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    disconnect(2);
    cr_assert_eq(count(GROUP_EFFECT_PROBE, 2), 1);
    join(2);
    disconnect(2);
    cr_assert_eq(count(GROUP_EFFECT_PROBE, 2), 0, "the first has no result yet");
    probe(2, PROBE_UNKNOWN);
    cr_assert_eq(rig.u.deadline_ns, rig.now_ns + 2 * NS_PER_MS, "with the shortest wait");
}

Test(group_nodes, a_refusal_counts_only_if_the_listener_was_reached_before_and_nothing_is_heard) {
    begin(AT(config_of(1, 2)));
    /* both listeners give no answer: a firewall, perhaps */
    play("join 1 2; start; gone 2; disconnect 2; gone 2; nodes 2; alive 2; nodes 2");
    /* it is heard */
    play("join 2; gone 2; nodes 2; disconnect 2; gone 2; nodes 1");
}

/* Nodes from..to wait for a place. */
static void wait_for_place(uint64_t from, uint64_t to) {
    for (uint64_t node = from; node <= to; node++) {
        join(node);
        probe(node, PROBE_UNKNOWN);
    }
}

Test(group_nodes, nodes_that_wait_for_a_place_share_a_rate_of_probes) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    wait_for_place(3, 22);
    size_t before = rig.seen[GROUP_EFFECT_PROBE];
    for (uint64_t node = 3; node <= 22; node++)
        disconnect(node);
    cr_assert_eq(rig.seen[GROUP_EFFECT_PROBE] - before, 16, "a burst");
    disconnect(2);
    cr_assert_eq(count(GROUP_EFFECT_PROBE, 2), 1, "a member does not wait for them");
    time_passes(0.0099);
    cr_assert_eq(count(GROUP_EFFECT_PROBE, 0), 0);
    time_passes(0.0001);
    cr_assert(count(GROUP_EFFECT_PROBE, 0) == 1 && count(GROUP_EFFECT_PROBE, 19) == 1);
    time_passes(0.02);
    cr_assert(count(GROUP_EFFECT_PROBE, 0) == 2 && count(GROUP_EFFECT_PROBE, 21) == 1);
}

Test(group_nodes, a_crowd_that_waits_for_a_place_is_lost_bit_by_bit_and_costs_members_nothing) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    wait_for_place(3, 302);
    pass(5.75, 1u << 1);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 302);
    pass(0.25, 1u << 1);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 302 - 128 - 1, "128 of them, and the member");
    assert_state(GROUP_STOPPING);
    uint64_t wait_ns = rig.u.deadline_ns - rig.now_ns;
    cr_assert(wait_ns > NS_PER_MS && wait_ns < 2 * NS_PER_MS, "a while that grows with their number");
    rig.now_ns = rig.u.deadline_ns;
    time_passes(0);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 302 - 2 * 128 - 1);
}
