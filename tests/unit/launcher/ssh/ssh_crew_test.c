#include "launcher/ssh/ssh_boot.h"

#include "rig/unit.h"

static enum ssh_crew_do next(struct ssh_crew *c, uint32_t *ret) { return ssh_crew_next(c, ret); }

/* How many are called now. */
static uint32_t call_all(struct ssh_crew *c) {
    uint32_t i, n = 0;
    while (next(c, &i) == SSH_CREW_DO_CALL)
        n++;
    return n;
}

#define EXPECT(what, host)                                    \
    do {                                                      \
        uint32_t got_ = 0;                                    \
        cr_assert_eq(next(&c, &got_), SSH_CREW_DO_##what);    \
        if (SSH_CREW_DO_##what != SSH_CREW_DO_NOTHING)        \
            cr_assert_eq(got_, (uint32_t)(host), "%u", got_); \
    } while (0)

Test(ssh_crew, all_are_called_and_none_is_booted_before_the_first_answers) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 3, 3, false);
    EXPECT(CALL, 0);
    EXPECT(CALL, 1);
    EXPECT(CALL, 2);
    ssh_crew_hello(&c, 2);
    EXPECT(NOTHING, 0);
    ssh_crew_hello(&c, 0);
    EXPECT(BOOT, 0);
    EXPECT(BOOT, 2);
    EXPECT(NOTHING, 0);
    ssh_crew_hello(&c, 1);
    EXPECT(BOOT, 1);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_not(ssh_crew_is_over(&c));
        ssh_crew_gone(&c, i, false);
        ssh_crew_gone(&c, i, true); /* counts once */
    }
    EXPECT(NOTHING, 0);
    cr_assert(ssh_crew_is_over(&c));
}

Test(ssh_crew, at_most_so_many_are_in_flight) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 200, 1, false);
    cr_assert_eq(call_all(&c), SSH_IN_FLIGHT);
    ssh_crew_gone(&c, 5, true);
    cr_assert_eq(call_all(&c), 1);
    ssh_crew_hello(&c, 6); /* node 0 has not answered */
    ssh_crew_hello(&c, 7);
    cr_assert_eq(call_all(&c), 2);
}

Test(ssh_crew, a_login_that_hangs_gives_its_place_to_the_next) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 200, 1, false);
    cr_assert_eq(call_all(&c), SSH_IN_FLIGHT);
    for (uint32_t i = 1; i < SSH_IN_FLIGHT; i++)
        ssh_crew_hangs(&c, i);
    ssh_crew_hangs(&c, 1); /* once more: it counts once */
    cr_assert(ssh_crew_is_called(&c, 1));
    cr_assert_eq(call_all(&c), SSH_IN_FLIGHT - 1);
    ssh_crew_hello(&c, 1); /* it has come after all */
    ssh_crew_gone(&c, 2, true);
    cr_assert_eq(call_all(&c), 0, "neither held a place");
    ssh_crew_hello(&c, 0);
    EXPECT(BOOT, 0);
    EXPECT(BOOT, 1);
}

Test(ssh_crew, the_next_host_is_node_0_if_the_first_fails) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 3, 2, false);
    cr_assert_eq(call_all(&c), 3);
    ssh_crew_hello(&c, 2);
    ssh_crew_hello(&c, 1);
    EXPECT(NOTHING, 0);
    ssh_crew_gone(&c, 0, true);
    cr_assert_eq(c.leader, 1);
    EXPECT(BOOT, 1);
    EXPECT(BOOT, 2);
}

Test(ssh_crew, a_first_host_that_hangs_is_passed_over_if_enough_others_are_there) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 4, 2, false);
    cr_assert_not(ssh_crew_can_pass_over(&c), "nobody was called");
    cr_assert_eq(call_all(&c), 4);
    ssh_crew_hello(&c, 3);
    cr_assert_not(ssh_crew_can_pass_over(&c), "one is too few");
    ssh_crew_hello(&c, 2);
    cr_assert(ssh_crew_can_pass_over(&c));
    ssh_crew_hangs(&c, 0);
    cr_assert(ssh_crew_can_pass_over(&c));
    EXPECT(NOTHING, 0);
    ssh_crew_pass_over(&c);
    cr_assert_eq(c.n_hanging, 2, "the second host before the first that has answered, too");
    cr_assert_not(ssh_crew_can_pass_over(&c), "node 0 is known");
    EXPECT(BOOT, 2);
    EXPECT(BOOT, 3);
    ssh_crew_gone(&c, 1, true);
    ssh_crew_hello(&c, 0); /* late, and welcome */
    cr_assert_eq(c.n_hanging, 0);
    cr_assert_eq(c.leader, 2);
    EXPECT(BOOT, 0);
}

Test(ssh_crew, a_first_host_is_not_passed_over_if_all_are_needed_or_nobody_else_is_booted) {
    _cleanup_(ssh_crew_fini) struct ssh_crew all, closed;
    ssh_crew_init(&all, 3, 3, false);
    ssh_crew_init(&closed, 3, 2, false);
    cr_assert_eq(call_all(&all) + call_all(&closed), 6);
    for (uint32_t i = 1; i < 3; i++) {
        ssh_crew_hello(&all, i);
        ssh_crew_hello(&closed, i);
    }
    cr_assert_not(ssh_crew_can_pass_over(&all));
    ssh_crew_close(&closed);
    cr_assert_not(ssh_crew_can_pass_over(&closed));
}

Test(ssh_crew, too_few_are_told_once) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 100, 99, false);
    cr_assert_eq(call_all(&c), SSH_IN_FLIGHT);
    ssh_crew_hello(&c, 0);
    ssh_crew_gone(&c, 1, true);
    EXPECT(BOOT, 0);
    ssh_crew_gone(&c, 2, true);
    EXPECT(TOO_FEW, 0);
    ssh_crew_hello(&c, 3);
    EXPECT(NOTHING, 0);
    ssh_crew_gone(&c, 4, true);
    EXPECT(NOTHING, 0);
    cr_assert_not(ssh_crew_is_over(&c));
    for (uint32_t i = 0; i < c.next; i++)
        ssh_crew_gone(&c, i, true);
    cr_assert(ssh_crew_is_over(&c)); /* those that were never called don't count */
}

Test(ssh_crew, who_was_ready_and_failed_is_not_booted) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 2, 1, false);
    cr_assert_eq(call_all(&c), 2);
    ssh_crew_hello(&c, 1);
    ssh_crew_gone(&c, 1, true);
    ssh_crew_hello(&c, 0);
    EXPECT(BOOT, 0);
    EXPECT(NOTHING, 0);
}

Test(ssh_crew, a_job_that_stops_calls_nobody) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 100, 100, false);
    cr_assert_eq(call_all(&c), SSH_IN_FLIGHT);
    ssh_crew_close(&c);
    ssh_crew_gone(&c, 0, true);
    EXPECT(NOTHING, 0);
}

Test(ssh_crew, the_first_host_listens_before_any_is_booted) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 2, 1, true);
    EXPECT(CALL, 0);
    EXPECT(CALL, 1);
    ssh_crew_hello(&c, 1);
    EXPECT(NOTHING, 0);
    ssh_crew_hello(&c, 0);
    EXPECT(LISTEN, 0);
    EXPECT(NOTHING, 0);
    cr_assert_not(ssh_crew_listens(&c, 1), "it was not asked");
    cr_assert(ssh_crew_listens(&c, 0));
    cr_assert_not(ssh_crew_listens(&c, 0), "once");
    EXPECT(BOOT, 0);
    EXPECT(BOOT, 1);
}

Test(ssh_crew, the_next_host_is_asked_if_the_first_fails_before_it_listens) {
    _cleanup_(ssh_crew_fini) struct ssh_crew c;
    ssh_crew_init(&c, 2, 1, true);
    EXPECT(CALL, 0);
    EXPECT(CALL, 1);
    ssh_crew_hello(&c, 0);
    ssh_crew_hello(&c, 1);
    EXPECT(LISTEN, 0);
    ssh_crew_gone(&c, 0, true);
    EXPECT(LISTEN, 1);
    cr_assert(ssh_crew_listens(&c, 1));
    EXPECT(BOOT, 1);
}
