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
