#include "launcher/ends/tree_signals.h"

#include "rig/unit.h"

#define MS(n) ((uint64_t)(n)*NS_PER_MS)

#define DIRECT TREE_COPY_DIRECT
#define FORWARDED TREE_COPY_FORWARDED

static struct tree_signals t;

static void expect(struct tree_news news, enum tree_answer answer, uint64_t at_ns) {
    cr_expect_eq(news.answer, answer, "%d, not %d", (int)news.answer, (int)answer);
    if (answer == TREE_ALONE || answer == TREE_ALL)
        cr_expect_eq(news.at_ns, at_ns, "%llu ms", (unsigned long long)(news.at_ns / NS_PER_MS));
}

static void expect_ms(struct tree_news news, enum tree_answer answer, uint64_t at_ms) {
    expect(news, answer, MS(at_ms));
}

Test(tree_signals, what_the_witness_does_not_get_is_for_the_agent_alone) {
    cr_expect_eq(tree_signals_deadline(&t), TIME_NEVER);
    expect_ms(tree_signals_came(&t, SIGTERM, FORWARDED, true, MS(1000)), TREE_WAIT, 0);
    cr_expect_eq(tree_signals_deadline(&t), MS(1000) + TREE_WAIT_NS);
    expect_ms(tree_signals_time(&t, MS(1000) + TREE_WAIT_NS - 1), TREE_NOTHING, 0);
    expect_ms(tree_signals_time(&t, MS(1000) + TREE_WAIT_NS), TREE_ALONE, 1000);
    expect_ms(tree_signals_time(&t, MS(9000)), TREE_NOTHING, 0);
    cr_expect_eq(tree_signals_deadline(&t), TIME_NEVER);
}

Test(tree_signals, what_was_typed_or_has_no_witness_waits_for_nothing) {
    expect_ms(tree_signals_came(&t, SIGINT, TREE_COPY_ALONE, true, MS(1000)), TREE_ALONE, 1000);
    expect_ms(tree_signals_came(&t, SIGINT, TREE_COPY_ALONE, true, MS(1001)), TREE_ALONE, 1001);
    cr_expect_eq(tree_signals_deadline(&t), TIME_NEVER);
}

/* By its guardian, directly, and to the witness: in each order it is one signal, and all have got it. */
Test(tree_signals, one_signal_to_all_is_one_without_a_witness_and_a_second_one_is_another) {
    expect_ms(tree_signals_came(&t, SIGINT, DIRECT, false, MS(1000)), TREE_ALONE, 1000);
    expect_ms(tree_signals_came(&t, SIGINT, FORWARDED, false, MS(1002)), TREE_NOTHING, 1002);
    expect_ms(tree_signals_came(&t, SIGINT, FORWARDED, false, MS(1100)), TREE_ALONE, 1100);
    expect_ms(tree_signals_came(&t, SIGINT, DIRECT, true, MS(1101)), TREE_NOTHING, 1100); /* now there is one */
    expect_ms(tree_signals_came(&t, SIGINT, FORWARDED, false, MS(1601)), TREE_ALONE, 1601);
}

Test(tree_signals, one_signal_to_all_is_one_in_every_order) {
    for (int turn = 0; turn < 3; turn++) {
        t = (struct tree_signals){0};
        unsigned all = 0;
        for (int i = 0; i < 3; i++) {
            struct tree_news news =
                i == turn
                    ? tree_signals_witnessed(&t, SIGTERM, MS(1000 + i))
                    : tree_signals_came(&t, SIGTERM, i == (turn == 0 ? 1 : 0) ? DIRECT : FORWARDED, true, MS(1000 + i));
            cr_expect_neq(news.answer, TREE_ALONE);
            all += news.answer == TREE_ALL;
            if (news.answer == TREE_ALL)
                cr_expect_eq(news.at_ns, MS(1000 + turn));
        }
        cr_expect_eq(all, 1, "turn %d", turn);
        expect_ms(tree_signals_time(&t, MS(2000)), TREE_NOTHING, 0);
    }
}

Test(tree_signals, the_guardians_copy_may_come_late_but_a_third_one_is_another_signal) {
    expect_ms(tree_signals_came(&t, SIGUSR1, DIRECT, true, MS(1000)), TREE_WAIT, 0);
    expect_ms(tree_signals_witnessed(&t, SIGUSR1, MS(1001)), TREE_ALL, 1001);
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1400)), TREE_NOTHING, 0);
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1410)), TREE_WAIT, 0);
    expect_ms(tree_signals_time(&t, MS(1410) + TREE_WAIT_NS), TREE_ALONE, 1410);
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1700)), TREE_WAIT, 0);
}

Test(tree_signals, both_copies_that_came_early_leave_nothing_to_swallow) {
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1000)), TREE_WAIT, 0);
    expect_ms(tree_signals_came(&t, SIGUSR1, DIRECT, true, MS(1001)), TREE_NOTHING, 0);
    expect_ms(tree_signals_witnessed(&t, SIGUSR1, MS(1002)), TREE_ALL, 1002);
    expect_ms(tree_signals_came(&t, SIGUSR1, DIRECT, true, MS(1100)), TREE_WAIT, 0);
}

/* The kernel makes one of two copies that are pending at the same time. */
Test(tree_signals, a_signal_to_muster_alone_after_one_to_all_is_not_swallowed) {
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1000)), TREE_WAIT, 0);
    expect_ms(tree_signals_witnessed(&t, SIGUSR1, MS(1001)), TREE_ALL, 1001);
    expect_ms(tree_signals_came(&t, SIGUSR1, FORWARDED, true, MS(1100)), TREE_WAIT, 0);
    expect_ms(tree_signals_time(&t, MS(1100) + TREE_WAIT_NS), TREE_ALONE, 1100);
}

Test(tree_signals, each_signal_to_all_is_known_again) {
    for (uint64_t ms = 1000; ms < 9000; ms += 1000) {
        expect_ms(tree_signals_witnessed(&t, SIGUSR2, MS(ms)), TREE_NOTHING, 0);
        expect_ms(tree_signals_came(&t, SIGUSR2, DIRECT, true, MS(ms + 1)), TREE_ALL, ms);
        expect_ms(tree_signals_came(&t, SIGUSR2, FORWARDED, true, MS(ms + 2)), TREE_NOTHING, 0);
    }
    expect_ms(tree_signals_came(&t, SIGUSR2, FORWARDED, true, MS(9000)), TREE_WAIT, 0);
}

Test(tree_signals, what_only_the_witness_got_is_forgotten) {
    expect_ms(tree_signals_witnessed(&t, SIGTERM, MS(1000)), TREE_NOTHING, 0);
    expect_ms(tree_signals_came(&t, SIGTERM, FORWARDED, true, MS(1000) + TREE_ECHO_NS), TREE_WAIT, 0);
}

Test(tree_signals, signals_do_not_mix) {
    expect_ms(tree_signals_came(&t, SIGTERM, FORWARDED, true, MS(1000)), TREE_WAIT, 0);
    expect_ms(tree_signals_came(&t, 64, FORWARDED, true, MS(1010)), TREE_WAIT, 0);
    expect_ms(tree_signals_witnessed(&t, SIGUSR1, MS(1011)), TREE_NOTHING, 0);
    expect_ms(tree_signals_witnessed(&t, 64, MS(1012)), TREE_ALL, 1012);
    cr_expect_eq(tree_signals_deadline(&t), MS(1000) + TREE_WAIT_NS);
    struct tree_news news = tree_signals_time(&t, MS(2000));
    cr_expect(news.answer == TREE_ALONE && news.signo == SIGTERM);
}
