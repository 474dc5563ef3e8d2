/* Which failure is the cause of a stop, without a group. */
#include "rendezvous/leader/parts/cause.h"

#include "rig/unit.h"

#define MS ((int64_t)NS_PER_MS)

static struct failure failure_of(enum failure_kind kind, int32_t code, uint32_t rank) {
    return (struct failure){.kind = kind, .code = code, .rank = rank, .incarnation = rank + 1};
}

Test(cause, a_kill_is_in_doubt_while_other_nodes_are_there_to_go_on) {
    struct failure killed = failure_of(FAILURE_SIGNAL, 9, 0);
    struct cause c = {0};
    cr_assert(cause_add(&c, &killed, 0, 0));
    cause_blame(&c, 1);
    cr_assert_eq(c.state, CAUSE_SURE);
    cause_blame(&c, 2);
    cr_assert(c.state == CAUSE_IN_DOUBT && cause_is_pending(&c));
    struct cause_facts facts = {.member = true, .connected = true};
    cr_assert_not(cause_is_certain(&c, &facts), "it has not stopped");
    facts.stopped = true;
    cr_assert(cause_is_certain(&c, &facts));
    facts.no_restart_left = true;
    cr_assert_not(cause_is_certain(&c, &facts), "the job would end for it");
    facts.waited = true;
    cr_assert(cause_is_certain(&c, &facts));
}

Test(cause, eight_better_causes_are_reported_at_once) {
    struct failure f = failure_of(FAILURE_SIGNAL, 11, 0);
    struct cause c = {0};
    cr_assert(cause_add(&c, &f, 0, 0));
    cause_begin_stop(&c, 500);
    for (int i = 0; i < 8; i++)
        cr_assert(cause_report_better(&c));
    cr_assert_not(cause_report_better(&c));
    cr_assert(c.better_waits);
}
