/* Schedules by hand of leaders that are lost: the rows of "Schedules that broke earlier wordings of
 * the rules" that concern an arbiter or a leader file, by number; and what each kind of loss costs.
 * Host 0 leads at first, hosts 1, 2, 3 are its successors. TRACE=1 prints the runs. */
#include <string.h>

#include "cases.h"
#include "schedule.h"

static struct world *run(const struct world_params *p) { return schedule_run_world(p); }

static void fault(struct world_params *p, enum fault_kind kind, double at, uint32_t host, int64_t arg, int64_t arg2) {
    (void)world_params_fault(p, kind, S(at), host, arg, arg2);
}

static void partition(struct world_params *p, double from, double until, uint32_t host, int64_t way) {
    (void)world_params_fault(p, FAULT_PARTITION, S(from), host, (int64_t)S(until - from), way);
}

static void assert_success(struct world *w) {
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}

/* The first worker of the second group starts: so long after what happened at 5 s. `first`: how many nodes started the
 * first group. */
#define AGAIN(first, from, until) \
    { LEADER_FILE_STARTED, ANY, (first), (from), (until) }
#define LEADS(host, from, until) \
    { LEADER_FILE_LEADS, (host), 0, (from), (until) }

static const struct schedule with_arbiter[] = {
    {"1: a killed leader's guardian is waited for (I2: its workers live up to 0.8 s longer)", .world = WORLD_ARBITER,
     .hosts = 3, .min_nodes = 2, .seeds = 10, .faults = {{FAULT_AGENT_KILL, 5, 0, (int64_t)S(0.8)}},
     .outcome = OUTCOME_SUCCESS, .epoch = 3, .marks = {AGAIN(3, 5.0, 7.6)}}, /* a silent probe takes a second */
    {"a killed leader is succeeded by the first successor as soon as it is gone", .world = WORLD_ARBITER, .hosts = 5,
     .min_nodes = 4, .faults = {{FAULT_AGENT_KILL, 5}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 5.0, 6.4), LEADS(1, 5, EVER)}},
    {"16: a leader's host that goes off is succeeded within nine seconds", .world = WORLD_ARBITER, .hosts = 5,
     .min_nodes = 4, .faults = {{FAULT_HOST_OFF, 5}}, .outcome = OUTCOME_SUCCESS, .epoch = 3,
     .marks = {AGAIN(5, 10.0, 14.0)}},
    {"13: a leader cut off from all but the arbiter gives way to the first successor", .world = WORLD_ARBITER,
     .hosts = 5, .min_nodes = 3, .faults = {{FAULT_PARTITION, 5, 0, (int64_t)S(55), PARTITION_BOTH}},
     .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 10.0, 14.0), LEADS(1, 5, EVER), {LEADER_FILE_DEPOSED, 0, 0, 5.0, 20.0}}},
    {"14: a leader that hears and is not heard gives way", .world = WORLD_ARBITER, .hosts = 5, .min_nodes = 3,
     .faults = {{FAULT_PARTITION, 5, 0, (int64_t)S(55), PARTITION_FROM}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 10.0, 14.0)}},
    {"14: a leader that is heard and does not hear gives way", .world = WORLD_ARBITER, .hosts = 5, .min_nodes = 3,
     .faults = {{FAULT_PARTITION, 5, 0, (int64_t)S(55), PARTITION_TO}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 10.0, 14.0)}},
    {"15: a second successor that notices first does not overtake", .world = WORLD_ARBITER, .hosts = 5, .min_nodes = 3,
     .faults = {{FAULT_PARTITION, 4, 2, (int64_t)S(36), PARTITION_BOTH | PARTITION_HOST(0)}, {FAULT_HOST_OFF, 5}},
     .outcome = OUTCOME_SUCCESS, .marks = {AGAIN(5, 10.0, 14.0), LEADS(2, 0, 0)}},
    {"leader and first successor killed at once leave the second", .world = WORLD_ARBITER, .hosts = 5, .min_nodes = 3,
     .faults = {{FAULT_AGENT_KILL, 5, 0}, {FAULT_AGENT_KILL, 5, 1}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 5.0, 8.0), LEADS(2, 0, EVER)}},
    {"leader's and first successor's hosts off at once cost the arbiter's lease", .world = WORLD_ARBITER, .hosts = 5,
     .min_nodes = 3, .faults = {{FAULT_HOST_OFF, 5, 0}, {FAULT_HOST_OFF, 5, 1}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(5, 65.0, 79.0), LEADS(2, 0, EVER)}},
    {"one of two nodes is enough to continue", .world = WORLD_ARBITER, .hosts = 2, .min_nodes = 1,
     .faults = {{FAULT_HOST_OFF, 5}}, .outcome = OUTCOME_SUCCESS, .marks = {AGAIN(2, 10.0, 14.0)}},
    {"a leader that is asked to leave hands over within two seconds", .world = WORLD_ARBITER, .hosts = 3,
     .min_nodes = 2, .faults = {{FAULT_LEAVE, 5, 0, (int64_t)S(1)}}, .outcome = OUTCOME_SUCCESS,
     .marks = {AGAIN(3, 5.0, 7.5)}, .ends = {{0, MEMBER_END_LEFT}}},
    {"a leader that leaves before its first group is followed at once", .world = WORLD_ARBITER, .hosts = 3,
     .min_nodes = 3, .comes = {[1] = 3, [2] = 6}, .faults = {{FAULT_LEAVE, 5}, {FAULT_BOOT, 7, 0, 1}},
     .outcome = OUTCOME_SUCCESS, .marks = {{LEADER_FILE_STARTED, ANY, 0, 7.0, 8.0}}},
    {"below min the job ends with the reason everywhere", .world = WORLD_ARBITER, .hosts = 3, .min_nodes = 3,
     .faults = {{FAULT_AGENT_KILL, 5}}, .outcome = OUTCOME_FAILED,
     .ends = {{1, MEMBER_END_FAILED, "of at least 3"}, {2, MEMBER_END_FAILED, "of at least 3"}}},
    {"a node that is cut off deposes no leader", .make = case_one_goes_to_the_successor, .outcome = OUTCOME_SUCCESS,
     .epoch = 2},
    /* A lease is up to a heartbeat old when the first successor's echo bounds the next. */
    {"a leader's freeze of a lease less two heartbeats costs nothing", .world = WORLD_ARBITER, .hosts = 3,
     .min_nodes = 2, .faults = {{FAULT_FREEZE_AGENT, 5, 0, (int64_t)S(2.9)}}, .outcome = OUTCOME_SUCCESS, .groups = 1,
     .epoch = 2},
    {"a silent first successor costs no other node its lease", .world = WORLD_ARBITER, .hosts = 4, .min_nodes = 3,
     .faults = {{FAULT_HOST_OFF, 5, 1}}, .outcome = OUTCOME_SUCCESS,
     .marks = {{LEADER_FILE_CLAIMED, 0, 2, 6.4, 9.0}, /* half a lease after its echo */
               {LEADER_FILE_FENCED, 2, 0},
               {LEADER_FILE_FENCED, 3, 0},
               AGAIN(4, 10.0, 12.5)}},
    {"an arbiter that stalls for less than its lease stops nothing", .world = WORLD_ARBITER, .hosts = 3, .min_nodes = 2,
     .faults = {{FAULT_ARBITER_OUT, 2, 0, (int64_t)S(25), 1}}, .outcome = OUTCOME_SUCCESS, .groups = 1, .epoch = 2},
    {"another job's data in the arbiter is nothing to claim from", .make = case_another_jobs_arbiter,
     .marks = {{LEADER_FILE_ENDED, 1, 0, 5.0, 8.0},
               {LEADER_FILE_ENDED, 2, 0, 5.0, 8.0},
               {LEADER_FILE_ENDED, 3, 0, 5.0, 8.0}}},
    {"4: a newcomer finds the outcome and ends with it", .world = WORLD_ARBITER, .hosts = 3, .min_nodes = 2,
     .max_nodes = 2, .work = 10, .comes = {[2] = 60}, .outcome = OUTCOME_SUCCESS, .groups = 1,
     .marks = {{LEADER_FILE_ENDED, 2, 0, 60.0, 62.0}}, .ends = {{2, MEMBER_END_SUCCESS}}},
    /* Host 3 hears of no restart, so the third failure is one too many. */
    {"22: a late JOIN with old counters shrinks no budget", .world = WORLD_ARBITER, .hosts = 4, .min_nodes = 2,
     .max_restarts = 2,
     .faults = {{FAULT_PARTITION, 4, 3, (int64_t)S(16), PARTITION_BOTH},
                {FAULT_WORKER, 11, 1, 7},
                {FAULT_WORKER, 13, 2, 7},
                {FAULT_AGENT_KILL, 15},
                {FAULT_WORKER, 30, 1, 7}},
     .outcome = OUTCOME_FAILED},
    /* The lease that a member holds from before FORM names no group: START waits for the next. Each start is checked
     * against the leases that came. */
    {"27: a lease of GATHERING starts nothing", .world = WORLD_ARBITER, .hosts = 3, .min_nodes = 2, .max_restarts = 1,
     .faults = {{FAULT_WORKER, 5, 1, 7}, {FAULT_DELAY, 5.1, 2, (int64_t)S(0.5), (int64_t)S(0.4)}},
     .outcome = OUTCOME_SUCCESS},
};

Test(succession_sim, each_loss_of_a_leader_costs_what_its_row_gives) {
    schedule_check(with_arbiter, ARRAY_SIZE(with_arbiter));
}

static const struct schedule with_leader_file[] = {
    {"6: an agent restarted at the endpoint founds the next epoch", .world = WORLD_LEADER_FILE, .hosts = 3,
     .min_nodes = 1, .faults = {{FAULT_AGENT_KILL, 5, 0, 0, (int64_t)S(1)}}, .outcome = OUTCOME_SUCCESS, .epoch = 2},
    {"18: a closed leader file delays no later run", .world = WORLD_LEADER_FILE, .hosts = 2, .min_nodes = 2, .work = 5,
     .faults = {{FAULT_BOOT, 8, 0, 1}, {FAULT_BOOT, 8, 1, 1}}, .outcome = OUTCOME_SUCCESS,
     .marks = {{LEADER_FILE_STARTED, 0, 1, 8.0, 8.2}}},
    {"19: leases of a fixed leader depend on its leader file, touched last at 5 s (I2)",
     .make = case_thaws_and_is_killed, .seeds = 40, .outcome = OUTCOME_SUCCESS, .epoch = 2,
     .marks = {{LEADER_FILE_FENCED, 1, 0, 9.52, 10.1},
               {LEADER_FILE_FENCED, 2, 0, 9.52, 10.1},
               {LEADER_FILE_STARTED, 0, 1, 10.9, 11.2}}},
};

Test(succession_sim, a_leader_file_delays_what_its_row_gives) {
    schedule_check(with_leader_file, ARRAY_SIZE(with_leader_file));
}

/* ---- the arbiter ---- */

Test(succession_sim, an_arbiter_lost_for_ever_ends_every_agent_with_the_reason) {
    struct world_params p;
    case_arbiter(&p, 3, 2);
    p.member.rdzv.join_timeout_ns = p.group.rdzv.join_timeout_ns = S(100);
    fault(&p, FAULT_ARBITER_OUT, 5, 0, (int64_t)S(100000), 1);
    struct world *w = run(&p);
    for (uint32_t h = 0; h < 3; h++) {
        const struct member_end *end = member_end(world_member(w, h));
        cr_assert_eq(end->kind, MEMBER_END_LEADER_LOST, "host %u", h);
        cr_assert_neq(end->reason[0], '\0');
        assert_between(when(w, LEADER_FILE_ENDED, h, 0), 65.0, 400.0);
    }
    world_free(w);
}

Test(succession_sim, nodes_that_leave_in_order_leave_nothing_to_wait_for) {
    struct world_params p;
    case_all_told_to_leave(&p);
    struct world *w = run(&p); /* I2: host 2's workers end at 7 s */
    assert_between(when(w, LEADER_FILE_VACANT, 0, 0), 7.0, 7.2);
    assert_between(when(w, LEADER_FILE_STARTED, 3, 0), 7.0, 8.5); /* a heartbeat, and the last call */
    for (uint32_t h = 0; h < 3; h++)
        cr_assert_eq(member_end(world_member(w, h))->kind, MEMBER_END_LEFT);
    assert_success(w);
    unsigned leases = 0;
    for (uint64_t apart = 0; apart < 40; apart++) { /* told one after the other, in any order */
        case_arbiter(&p, 3, 1 + apart % 2);
        p.group.rdzv.last_call_ns = 0;
        p.seed = apart + 1;
        for (uint32_t i = 0; i < 3; i++)
            fault(&p, FAULT_LEAVE, 5 + 0.002 * (double)(apart * i), (i + (uint32_t)apart) % 3, (int64_t)S(1), 0);
        for (uint32_t h = 0; h < 3; h++)
            fault(&p, FAULT_BOOT, 7, h, 1, 0);
        w = run(&p);
        double again = 0;
        for (unsigned n = 0; again >= 0 && again < 7; n++)
            again = when(w, LEADER_FILE_STARTED, ANY, n);
        cr_expect(world_outcome(w) == OUTCOME_FAILED || (again > 7 && again < 13.5), "%.3f apart: %.3f",
                  0.002 * (double)apart, again);
        leases += world_outcome(w) != OUTCOME_FAILED && again >= 9;
        world_free(w);
    }
    cr_assert_leq(leases, 1, "only for whoever left in the moment in which it got the epoch");
}

/* The later ones have just lost their leader, and may claim the next epoch, or have done so. */
Test(succession_sim, a_successor_that_is_told_to_leave_is_first_the_leader_that_records_it) {
    for (uint32_t n = 0; n < 4000; n++) {
        struct world_params p;
        uint32_t hosts = 2 + n % 3, min = 1 + n / 3 % hosts;
        double apart = 0.00025 * (double)(n / 2); /* up to 0.5 s */
        case_arbiter(&p, hosts, min);
        p.group.rdzv.last_call_ns = 0;
        p.seed = n + 1;
        for (uint32_t i = 0; i < hosts; i++) /* in turn, or backwards, from any host on */
            fault(&p, FAULT_LEAVE, 5 + apart * i, (i * (n % 2 ? 1 : hosts - 1) + n / 5) % hosts, 0, 0);
        for (uint32_t h = 0; h < hosts; h++)
            fault(&p, FAULT_BOOT, 12, h, 1, 0);
        struct world *w = run(&p);
        cr_expect_neq(world_outcome(w), OUTCOME_FAILED, "%u: %.5f apart", n, apart);
        double again = 0, last = 5 + apart * (hosts - 1);
        for (unsigned m = 0; again >= 0 && again < 12; m++)
            again = when(w, LEADER_FILE_STARTED, ANY, m);
        cr_expect(again > 12 && again < 13.5, "%u: %.5f apart: %.3f", n, apart, again);
        for (uint32_t h = 0; h < hosts; h++) /* and nobody stays longer for that */
            cr_expect_lt(when(w, LEADER_FILE_ENDED, h, 0), last + 0.5, "%u: %.5f apart", n, apart);
        world_free(w);
    }
}

/* Whether the others are told or not: the job is not over, and nothing of it is waited for. */
Test(succession_sim, too_few_that_stay_leave_nothing_to_wait_for) {
    for (uint64_t n = 0; n < 120; n++) {
        struct world_params p;
        double apart = n % 4 == 0 ? 0.02 * (double)n : 0.005 * (double)n; /* up to 2.4 s */
        case_arbiter(&p, 3, 3);
        p.group.rdzv.last_call_ns = 0;
        p.seed = n + 1;
        for (uint32_t i = 0; i < (n % 5 != 0 ? 3u : 1u); i++)
            fault(&p, FAULT_LEAVE, 5 + apart * i, (uint32_t)(n + i) % 3, (int64_t)S(1), 0);
        for (uint32_t h = 0; h < 3; h++)
            fault(&p, FAULT_BOOT, 12, h, 1, 0);
        struct world *w = run(&p);
        cr_expect_neq(world_outcome(w), OUTCOME_FAILED, "%.3f apart", apart);
        double again = when(w, LEADER_FILE_STARTED, ANY, 3);
        cr_expect(again > 12 && again < 13.5, "%.3f apart: %.3f", apart, again);
        world_free(w);
    }
}

/* Min nodes are there only when it is lost already. */
Test(succession_sim, a_leader_lost_before_its_first_group_costs_a_lease_at_most) {
    static const struct {
        enum fault_kind how;
        double other, within; /* when the next comes; after the loss at 5 s */
    } losses[] = {
        {FAULT_AGENT_KILL, 1, 2},   /* it knows that the leader is gone */
        {FAULT_AGENT_KILL, 5.5, 8}, /* there is the record alone */
        {FAULT_HOST_OFF, 1, 9.5},
        {FAULT_HOST_OFF, 5.5, 8},
    };
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
            struct world_params p;
            case_before_its_first_group(&p, losses[i].how, S(losses[i].other));
            p.seed = p.member.seed = seed * UINT64_C(0x9e3779b97f4a7c15);
            struct world *w = run(&p);
            cr_expect_eq(when(w, LEADER_FILE_STARTED, 0, 0), -1.0);
            assert_between(when(w, LEADER_FILE_STARTED, ANY, 0), 5.5, 5 + losses[i].within);
            cr_expect_eq(world_epoch(w), 3, "1 of the lost one, 2 and the group's");
            assert_success(w);
        }
}

/* Its claim for the first group is under way, or was answered, when it is lost: then others can't know
 * that no group was begun, and wait as long as for any leader that nobody is named to follow. */
Test(succession_sim, a_leader_lost_while_it_forms_its_first_group_is_never_taken_for_an_idle_one) {
    unsigned soon = 0;
    for (int us = 0; us < 200; us++) {
        struct world_params p;
        case_arbiter(&p, 4, 3);
        p.group.rdzv.last_call_ns = 0;
        fault(&p, FAULT_AGENT_KILL, 0.0005 + 0.0001 * us, 0, (int64_t)S(0.3), 0);
        struct world *w = run(&p); /* I2 */
        double at = when(w, LEADER_FILE_STARTED, 3, 0);
        cr_expect_lt(at, 90.0, "%f", at);
        soon += at < 10;
        assert_success(w);
    }
    cr_assert(soon > 150 && soon < 200, "%u", soon);
}

/* It holds an idle epoch, can't reach the arbiter, and has nodes; another finds its beat still, and
 * leads. It comes back in any moment of that. */
Test(succession_sim, an_idle_leader_that_comes_back_forms_no_group_beside_its_follower) {
    unsigned stays = 0, follows = 0;
    for (unsigned i = 0; i < 200; i++) {
        struct world_params p;
        case_idle_leader_without_arbiter(&p, S(4.0 + 0.02 * i));
        p.seed = i + 1;
        struct world *w = run(&p); /* I1, I2 */
        stays += when(w, LEADER_FILE_CLAIMED, 0, 1) > 0;
        follows += when(w, LEADER_FILE_DEPOSED, 0, 0) > 0;
        assert_success(w);
    }
    cr_assert(stays > 10 && follows > 10, "%u and %u", stays, follows);
}

Test(succession_sim, of_two_that_claim_after_an_idle_epoch_one_wins) {
    unsigned leader = 0, other = 0;
    for (unsigned i = 0; i < 200; i++) {
        struct world_params p;
        case_two_claim_after_an_idle_epoch(&p);
        p.faults[1].at_ns = S(9 + 0.02 * i);
        p.seed = i + 1;
        struct world *w = run(&p); /* I1, I2 */
        double theirs = when(w, LEADER_FILE_CLAIMED, 2, 0), own = when(w, LEADER_FILE_CLAIMED, 0, 1);
        leader += own > 0 && (theirs < 0 || own < theirs);
        other += theirs > 0 && (own < 0 || theirs < own);
        assert_success(w);
    }
    cr_assert(leader > 0 && other > 0, "%u and %u", leader, other);
}

Test(succession_sim, an_idle_leader_closes_its_job_though_its_claim_is_unanswered) {
    for (int ms = 0; ms < 100; ms++) {
        struct world_params p;
        case_arbiter(&p, 3, 2);
        p.group.rdzv.last_call_ns = 0;
        fault(&p, FAULT_ARBITER_OUT, 0.004 + 0.00002 * ms, 0, (int64_t)S(7), 1);
        fault(&p, FAULT_OPERATOR_STOP, 1, 0, 0, 0);
        struct world *w = run(&p);
        cr_expect_eq(world_outcome(w), OUTCOME_FAILED);
        for (uint32_t h = 0; h < 3; h++)
            assert_between(when(w, LEADER_FILE_ENDED, h, 0), 1.0, 20.0);
        world_free(w);
    }
}

Test(succession_sim, an_arbiter_that_has_lost_its_data_ends_every_agent_within_the_bound) {
    for (int lose = 0; lose < 3; lose++) {
        struct world_params p;
        case_arbiter_emptied(&p);
        if (lose == 1) /* nobody is left to tell the others */
            fault(&p, FAULT_AGENT_KILL, 5, 0, 0, 0);
        else if (lose == 2)
            fault(&p, FAULT_HOST_OFF, 5, 0, 0, 0);
        struct world *w = run(&p);
        for (uint32_t h = lose > 0; h < 4; h++) {
            const struct member_end *end = member_end(world_member(w, h));
            cr_assert_neq(end->kind, MEMBER_END_SUCCESS);
            cr_assert_not_null(strstr(end->reason, "data of this job is gone"), "%s", end->reason);
            assert_between(when(w, LEADER_FILE_ENDED, h, 0), 10.0, 5.0 + 5 + 1 + 10);
        }
        cr_assert_eq(world_groups_started(w), 1);
        world_free(w);
    }
}

Test(succession_sim, an_arbiter_whose_data_comes_back_within_a_lease_ends_nothing) {
    struct world_params p;
    case_arbiter_away_for_a_moment(&p);
    struct world *w = run(&p);
    cr_assert_eq(world_groups_started(w), 1);
    assert_success(w);
    fault(&p, FAULT_AGENT_KILL, 5.1, 0, 0, 0); /* and a leader that is lost meanwhile is succeeded */
    assert_success(run(&p));
}

Test(succession_sim, row_3_a_group_formed_while_the_arbiter_stalls_and_a_newcomers_claim) {
    struct world_params p;
    case_arbiter(&p, 3, 1);
    p.faults[2].at_ns = S(20);
    fault(&p, FAULT_AGENT_KILL, 5, 1, 0, 0);
    fault(&p, FAULT_ARBITER_OUT, 4.9, 0, (int64_t)S(30), 0);
    fault(&p, FAULT_HOST_OFF, 10, 0, 0, 0);
    struct world *w = run(&p); /* I1: no generation twice */
    cr_assert_geq(world_epoch(w), 3);
    assert_success(w);
}

Test(succession_sim, row_4_an_outcome_on_its_way_when_the_leader_dies_counts_or_does_not) {
    unsigned once = 0, twice = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world_params p;
        case_arbiter(&p, 3, 1);
        p.seed = seed;
        p.work_ns = S(10);
        fault(&p, FAULT_ARBITER_SLOW, 9, 0, (int64_t)S(5), (int64_t)S(4));
        fault(&p, FAULT_AGENT_KILL, 12, 0, 0, 0);
        struct world *w = run(&p); /* I9: nothing starts once the arbiter has it */
        once += world_groups_started(w) == 1;
        twice += world_groups_started(w) == 2;
        assert_success(w);
    }
    cr_assert(once > 0 && twice > 0, "%u in time, %u not", once, twice);
}

Test(succession_sim, row_5_a_node_that_knows_only_old_members_claims_nothing) {
    struct world_params p;
    case_arbiter(&p, 5, 2);
    p.work_ns = S(60);
    fault(&p, FAULT_AGENT_KILL, 5, 0, 0, 0);
    partition(&p, 15, 50, 4, PARTITION_BOTH);
    fault(&p, FAULT_ARBITER_OUT, 15, 4, (int64_t)S(35), 0);
    fault(&p, FAULT_AGENT_KILL, 25, HOST_LEADER, 0, 0);
    struct world *w = run(&p);
    uint32_t epochs = world_epoch(w);
    cr_assert(epochs >= 4 && epochs <= 5, "%u", epochs);
    cr_assert_eq(when(w, LEADER_FILE_LEADS, 4, 0), -1.0);
    cr_assert_eq(member_end(world_member(w, 4))->kind, MEMBER_END_SUCCESS);
    assert_success(w);
}

Test(succession_sim, row_7_the_successors_own_last_lease_bounds_all_others) {
    struct world_params p;
    case_successor_cut_off_first(&p);
    assert_success(run(&p));
    /* The same around a FORM: it acknowledges, is cut off, the other acknowledges later. */
    for (uint64_t late = 0; late < 20; late++) {
        case_arbiter(&p, 3, 1);
        p.group.rdzv.max_restarts = 1;
        fault(&p, FAULT_WORKER, 5, 1, 7, 0);
        partition(&p, 5.4, 12, 1, PARTITION_BOTH | PARTITION_HOST(0));
        fault(&p, FAULT_DELAY, 5.3, 2, (int64_t)S(0.3), (int64_t)(S(0.2) * late));
        fault(&p, FAULT_AGENT_KILL, 8.5, 0, 0, 0);
        partition(&p, 8.45, 40, 2, PARTITION_BOTH);
        world_free(run(&p));
    }
}

Test(succession_sim, row_8_a_new_leaders_own_grants_count) {
    for (int ms = 0; ms < 40; ms++) {
        struct world_params p;
        case_arbiter(&p, 3, 1);
        fault(&p, FAULT_IGNORE_TERM, 0, 2, 0, 0); /* it is still stopping when it rejoins */
        fault(&p, FAULT_AGENT_KILL, 5, 0, 0, 0);
        partition(&p, 5.0 + 0.025 * ms, 40, 2, PARTITION_BOTH);
        assert_success(run(&p));
    }
}

Test(succession_sim, row_10_a_form_repeated_after_a_claim_names_the_new_successors) {
    for (int ms = 0; ms < 20; ms++) {
        struct world_params p;
        case_arbiter(&p, 4, 2);
        p.group.rdzv.max_restarts = 1;
        fault(&p, FAULT_WORKER, 5, 3, 7, 0);
        fault(&p, FAULT_PREPARE_SLOW, 5, 3, 0, 0);
        fault(&p, FAULT_FREEZE_AGENT, 5.2 + 0.01 * ms, 1, (int64_t)S(8), 0);
        fault(&p, FAULT_CUT, 9 + 0.1 * ms, 2, CUT_BOTH_SEE, 0);
        fault(&p, FAULT_CUT, 9 + 0.1 * ms, 1, CUT_BOTH_SEE, 0);
        fault(&p, FAULT_HOST_OFF, 12 + 0.1 * ms, 0, 0, 0);
        struct world *w = run(&p); /* I1 says who leads, I2 that nothing runs twice */
        double formed = when(w, LEADER_FILE_FORMED, 0, 1), claimed = when(w, LEADER_FILE_CLAIMED, 0, 2);
        cr_assert(formed > 5 && claimed > formed, "claimed while it forms: %.3f, %.3f", formed, claimed);
        cr_assert_geq(when(w, LEADER_FILE_LEADS, 2, 0), 12, "the first that the claim named");
        cr_assert_eq(when(w, LEADER_FILE_LEADS, 1, 0), -1.0, "the first that was named before");
        cr_assert_eq(world_epoch(w), 4);
        assert_success(w);
    }
}

Test(succession_sim, row_17_a_leader_whose_successor_has_run_and_ended_starts_nothing) {
    struct world_params p;
    case_arbiter(&p, 3, 1);
    p.work_ns = S(8);
    p.group.rdzv.max_restarts = 3;
    fault(&p, FAULT_WORKER, 4, 2, 7, 0);
    partition(&p, 4.9, 60, 1, PARTITION_BOTH | PARTITION_HOST(0) | PARTITION_HOST(2));
    fault(&p, FAULT_ARBITER_OUT, 4.9, 0, (int64_t)S(55), 0);
    fault(&p, FAULT_ARBITER_OUT, 4.9, 2, (int64_t)S(55), 0);
    struct world *w = run(&p); /* I9: no worker starts after the arbiter has the outcome */
    cr_assert_neq(world_outcome(w), OUTCOME_NONE);
    world_free(w);
}

Test(succession_sim, row_21_a_stalled_claimant_that_wakes_late_leads_nothing) {
    for (int ms = 0; ms < 20; ms++) {
        struct world_params p;
        case_arbiter(&p, 5, 2);
        p.work_ns = S(60);
        fault(&p, FAULT_ARBITER_SLOW, 4, 1, (int64_t)S(15), (int64_t)S(9));
        fault(&p, FAULT_HOST_OFF, 5, 0, 0, 0);
        fault(&p, FAULT_FREEZE_HOST, 10.0 + 0.1 * ms, 1, (int64_t)S(20), 0);
        struct world *w = run(&p); /* I1: one leader in each epoch */
        cr_assert_geq(world_epoch(w), 3);
        assert_success(w);
    }
}

Test(succession_sim, row_28_start_counts_with_the_lease_of_its_own_leader_alone) {
    for (int ms = 0; ms < 20; ms++) {
        struct world_params p;
        case_arbiter(&p, 4, 2);
        p.group.rdzv.max_restarts = 1;
        fault(&p, FAULT_WORKER, 5, 1, 7, 0);
        fault(&p, FAULT_DELAY, 5.1, 3, (int64_t)S(2), (int64_t)S(1.5));
        fault(&p, FAULT_AGENT_KILL, 5.2 + 0.05 * ms, 0, 0, 0);
        assert_success(run(&p));
    }
}

/* ---- the leader file ---- */

Test(succession_sim, row_18_a_restart_waits_for_old_leases_and_no_longer) {
    struct world_params p;
    case_leader_file(&p, 3, 1);
    p.group.rdzv.last_call_ns = 0;
    fault(&p, FAULT_AGENT_KILL, 5.5, 0, 0, (int64_t)S(1));
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), 10.9, 11.6); /* touched last at 5 s */
    assert_success(w);
}
