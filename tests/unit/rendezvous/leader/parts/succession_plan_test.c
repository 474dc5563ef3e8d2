/* Who is named, and what became of them. */
#include "rendezvous/leader/parts/leadership.h"

#include "rig/unit.h"

#define S(x) ((uint64_t)(x)*NS_PER_S)

static struct successors named(uint32_t epoch, uint64_t first, uint64_t second) {
    return (struct successors){.epoch = epoch, .n = 2, .list = {{.incarnation = first}, {.incarnation = second}}};
}

Test(succession_plan, the_naming_counts_as_an_echo_and_a_new_second_does_not) {
    struct succession_plan p = {0};
    struct successors s = named(1, 2, 3);
    plan_adopt(&p, &s, S(10));
    cr_assert(p.clock_ns == S(10) && successors_index(&p.named, 3) == 1 && successors_index(&p.named, 4) < 0);
    s = named(1, 2, 4);
    plan_adopt(&p, &s, S(12));
    cr_assert_eq(p.clock_ns, S(10), "the first is the same");
    s = named(2, 2, 4);
    plan_adopt(&p, &s, S(13));
    cr_assert_eq(p.clock_ns, S(13), "of a new epoch");
}

Test(succession_plan, only_the_firsts_echo_of_this_epoch_counts) {
    struct succession_plan p = {0};
    struct successors s = named(1, 2, 3);
    plan_adopt(&p, &s, S(10));
    struct echo e = {.epoch = 1, .leader_clock_ns = S(11)};
    cr_assert_not(plan_echo(&p, 3, &e, S(12)));
    cr_assert_not(plan_echo(&p, 2, &e, S(10)), "of the future");
    cr_assert(plan_echo(&p, 2, &e, S(12)) && p.clock_ns == S(11));
    e.epoch = 2;
    cr_assert_not(plan_echo(&p, 2, &e, S(12)));
}

Test(succession_plan, a_lost_one_stays_named_until_it_is_dropped) {
    struct group_config c;
    group_config_default(&c);
    struct succession_plan p = {.config = &c};
    struct successors s = named(1, 2, 3);
    plan_adopt(&p, &s, S(10));
    cr_assert_eq(plan_check(&p, S(11)), PLAN_NOTHING);
    uint64_t deadline_ns = plan_deadline(&p, S(11));
    cr_assert_eq(deadline_ns, S(10) + c.rdzv.lease_ns / 2, "half a lease without an echo");
    cr_assert_eq(plan_check(&p, deadline_ns - 1), PLAN_NOTHING);
    cr_assert_eq(plan_check(&p, deadline_ns), PLAN_ASK_OTHERS);
    plan_lose(&p, 2, false);
    s = named(1, 3, 2);
    plan_adopt(&p, &s, S(14));
    cr_assert_eq(p.states[1], SUCCESSOR_DOUBTFUL, "its state goes with it");
    plan_lose(&p, 3, true);
    cr_assert_eq(plan_check(&p, S(14)), PLAN_NAME_ANEW);
}
