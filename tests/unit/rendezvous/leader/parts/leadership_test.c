/* What a leader's authority depends on, without nodes. */
#include "rendezvous/leader/parts/leadership.h"

#include "rig/unit.h"

#define S(x) ((uint64_t)(x)*NS_PER_S)

static struct group_config config_of(enum group_leadership leadership) {
    struct group_config c;
    group_config_default(&c);
    c.leadership = leadership;
    c.leader_incarnation = 1;
    return c;
}

static struct arbiter_answer answer_of(enum arbiter_kind kind, enum arbiter_result result, uint32_t epoch,
                                       uint64_t leader, uint64_t started_ns) {
    return (struct arbiter_answer){.request = {.kind = kind, .epoch = epoch},
                                   .started_ns = started_ns,
                                   .result = result,
                                   .record = {.epoch = epoch, .leader = {.incarnation = leader}}};
}

static struct leadership_news hear(struct leadership *l, struct arbiter_answer a, uint64_t now_ns) {
    struct leadership_news news;
    leadership_answer(l, &a, OUTCOME_OPEN, now_ns, &news);
    return news;
}

Test(leadership, a_lease_is_as_long_as_the_shortest_of_what_applies) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    cr_assert_eq(leadership_validity(&l, TIME_NEVER, S(100)), 0, "nothing is confirmed");
    l.read_ns = S(100);
    cr_assert_eq(leadership_validity(&l, TIME_NEVER, S(100)), S(5));
    cr_assert_eq(leadership_validity(&l, S(98), S(101)), S(2), "the first successor's echo");
    cr_assert_eq(leadership_validity(&l, S(157), S(158)), S(2), "the arbiter's lease");
    cr_assert_not(leadership_is_confirmed(&l, S(160)));
    c = config_of(LEADERSHIP_NONE);
    cr_assert(leadership_is_confirmed(&l, S(160)));
}

Test(leadership, a_later_epoch_deposes_and_its_own_next_is_claimed_again) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    struct leadership_news n = hear(&l, answer_of(ARBITER_BEAT, ARBITER_OK, 1, 1, S(1)), S(2));
    cr_assert(n.change == LEADERSHIP_CONFIRMED && l.read_ns == S(1));
    n = hear(&l, answer_of(ARBITER_READ, ARBITER_OK, 2, 1, S(3)), S(4));
    cr_assert(n.change == LEADERSHIP_CLAIM_AGAIN && l.read_ns == S(1), "it confirms nothing");
    n = hear(&l, answer_of(ARBITER_READ, ARBITER_OK, 2, 9, S(3)), S(4));
    cr_assert(n.change == LEADERSHIP_DEPOSED && n.epoch == 2);
}

Test(leadership, a_claim_counts_for_the_next_epoch_alone) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    l.claiming = true;
    cr_assert_not(leadership_may_claim(&l, S(1)));
    struct leadership_news n = hear(&l, answer_of(ARBITER_CLAIM, ARBITER_OK, 3, 1, S(1)), S(2));
    cr_assert(n.change == LEADERSHIP_UNCHANGED && l.epoch == 1 && !l.claiming);
    cr_assert_not(leadership_may_claim(&l, S(2)), "not again within a heartbeat");
    n = hear(&l, answer_of(ARBITER_CLAIM, ARBITER_OK, 2, 1, S(3)), S(4));
    cr_assert(n.change == LEADERSHIP_NEW_EPOCH && l.epoch == 2);
}

Test(leadership, an_unreachable_arbiter_is_reported_once) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    struct arbiter_answer silent = answer_of(ARBITER_BEAT, ARBITER_UNREACHABLE, 1, 0, S(1));
    cr_assert(hear(&l, silent, S(2)).notice[0] != '\0');
    cr_assert(hear(&l, silent, S(3)).notice[0] == '\0');
    (void)hear(&l, answer_of(ARBITER_BEAT, ARBITER_OK, 1, 1, S(4)), S(4));
    cr_assert(hear(&l, silent, S(5)).notice[0] != '\0', "it was back");
}

Test(leadership, a_beat_that_rested_for_half_a_lease_may_have_been_missed) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    cr_assert_eq(leadership_pause(&l, false, S(1)), BEAT_UNCHANGED);
    cr_assert_eq(leadership_pause(&l, true, S(1)), BEAT_PAUSED);
    cr_assert_eq(leadership_pause(&l, true, S(2)), BEAT_UNCHANGED);
    cr_assert_eq(leadership_pause(&l, false, S(3)), BEAT_RESUMED);
    cr_assert_eq(leadership_pause(&l, true, S(4)), BEAT_PAUSED);
    cr_assert_eq(leadership_pause(&l, false, S(7)), BEAT_RESUMED_LATE);
}

Test(leadership, who_resigns_hands_over_or_leaves_the_epoch_vacant) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    struct resign_view stays = {.successor_stays = true, .outcome = OUTCOME_OPEN}, none = {.outcome = OUTCOME_OPEN},
                       stopped = {.nothing_runs = true, .outcome = OUTCOME_OPEN};
    cr_assert_eq(leadership_resign(&l, &stays, S(1)), RESIGN_WAIT, "it does not");
    l.resign_ns = S(1);
    cr_assert_eq(leadership_resign(&l, &stays, S(1)), RESIGN_WAIT);
    cr_assert_eq(leadership_resign(&l, &stays, S(2)), RESIGN_NOW);
    cr_assert_eq(leadership_resign(&l, &none, S(2)), RESIGN_WAIT);
    cr_assert_eq(leadership_resign(&l, &stopped, S(2)), RESIGN_VACATE);
    l.vacate_ns = S(2);
    cr_assert_eq(leadership_resign(&l, &stopped, S(3)), RESIGN_WAIT, "an answer comes");
    cr_assert_eq(leadership_resign(&l, &stopped, S(4)), RESIGN_NOW, "or does not");
}

Test(leadership, who_only_waits_for_earlier_epochs_leaves_at_once) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    c.not_before_ns = S(20);
    l.resign_ns = S(1);
    struct resign_view v = {.formed_here = true, .outcome = OUTCOME_OPEN};
    cr_assert_eq(leadership_resign(&l, &v, S(1)), RESIGN_WAIT);
    v.formed_here = false;
    cr_assert_eq(leadership_resign(&l, &v, S(1)), RESIGN_NOW);
    cr_assert_eq(leadership_resign(&l, &v, S(19)), RESIGN_WAIT, "soon the epoch can be left vacant");
}

Test(leadership, who_leaves_too_few_behind_ends_the_job_first) {
    struct group_config c = config_of(LEADERSHIP_ARBITER);
    struct leadership l;
    leadership_init(&l, &c);
    c.grace_ns = S(60);
    l.resign_ns = S(1);
    struct resign_view v = {.successor_stays = true, .too_few_stay = true, .outcome = OUTCOME_OPEN};
    cr_assert_eq(leadership_resign(&l, &v, S(2)), RESIGN_WAIT, "workers of others run");
    cr_assert_eq(leadership_resign(&l, &v, S(60)), RESIGN_WAIT, "in their grace");
    cr_assert_eq(leadership_resign(&l, &v, S(61) + c.rdzv.close_timeout_ns), RESIGN_NOW);
    v.nothing_runs = true;
    cr_assert_eq(leadership_resign(&l, &v, S(1)), RESIGN_WAIT, "perhaps the others leave, too");
    cr_assert_eq(leadership_resign(&l, &v, S(2)), RESIGN_END);
    l.close_ns = S(2);
    v.outcome = OUTCOME_WAITS;
    cr_assert_eq(leadership_resign(&l, &v, S(3)), RESIGN_WAIT);
    cr_assert_eq(leadership_resign(&l, &v, S(4)), RESIGN_NOW, "the arbiter is silent");
    v.outcome = OUTCOME_RECORDED;
    cr_assert_eq(leadership_resign(&l, &v, S(3)), RESIGN_NOW, "others find the close there");
    v.interrupted = true;
    cr_assert_eq(leadership_resign(&l, &v, S(5)), RESIGN_WAIT, "a vacant epoch tells them nothing");
    v.outcome = OUTCOME_DELIVERED;
    cr_assert_eq(leadership_resign(&l, &v, S(5)), RESIGN_NOW);
}
