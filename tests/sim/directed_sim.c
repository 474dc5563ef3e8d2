/* Schedules written by hand: what each misfortune costs, and those that chance rarely finds
 * (design notes, "Schedules that broke earlier wordings"). Seconds are of virtual time. */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "sim_assert.h"

static struct world_coverage coverage;

/* Runs to the end; every invariant holds. */
static struct world *run(const struct world_params *p) {
    struct world *w = world_new(p, &coverage);
    cr_assert(world_run_to(w, TIME_NEVER), "%s", world_failure(w));
    return w;
}

Test(directed_sim, all_there_starts_at_once_and_ends_with_success_everywhere) {
    struct world_params p;
    world_params_calm(&p, 4);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_STARTED, 3, 0), 0.001, 0.1);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(world_groups_started(w), 1);
    for (uint32_t h = 0; h < 4; h++)
        cr_assert_eq(member_end(world_member(w, h))->kind, MEMBER_END_SUCCESS);
    world_free(w);
}

Test(directed_sim, between_min_and_max_the_last_call_is_waited_for) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    p.group.rdzv.max_nodes = 4;
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_STARTED, ANY, 0), 30.0, 30.2);
    world_free(w);
}

Test(directed_sim, a_latecomer_within_the_last_call_takes_part) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    p.group.rdzv.max_nodes = 4;
    p.faults[2].at_ns = S(20);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_STARTED, 2, 0), 30.0, 30.2);
    world_free(w);
}

Test(directed_sim, below_min_the_job_fails_at_the_join_timeout_with_the_reason) {
    struct world_params p;
    world_params_calm(&p, 2);
    p.group.rdzv.min_nodes = p.group.rdzv.max_nodes = 3;
    p.group.rdzv.join_timeout_ns = S(100);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_FAILED);
    assert_between(when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), 100.0, 100.1);
    const struct member_end *end = member_end(world_member(w, 1));
    cr_assert_eq(end->kind, MEMBER_END_FAILED);
    cr_assert_not_null(strstr(end->reason, "node1"), "it says who was there: %s", end->reason);
    cr_assert_not_null(strstr(end->reason, "2 of at least 3"), "%s", end->reason);
    world_free(w);
}

Test(directed_sim, a_failed_worker_restarts_all_as_soon_as_they_have_stopped) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.max_restarts = 1;
    (void)world_params_fault(&p, FAULT_WORKER, S(5), 1, 7, 0);
    struct world *w = run(&p);
    double gone =
        MAX2(when(w, LEADER_FILE_GONE, 0, 0), MAX2(when(w, LEADER_FILE_GONE, 1, 0), when(w, LEADER_FILE_GONE, 2, 0)));
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), gone, gone + 0.1);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}

Test(directed_sim, a_spent_budget_ends_every_node_with_the_first_cause) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.offset_ns[1] = S(5);
    p.offset_ns[2] = S(90000);
    (void)world_params_fault(&p, FAULT_WORKER, S(5), 2, -11, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(5) + 500000, 1, 3, 0);
    struct world *w = run(&p);
    for (uint32_t h = 0; h < 3; h++) {
        const struct member_end *end = member_end(world_member(w, h));
        cr_assert_eq(end->kind, MEMBER_END_FAILED);
        cr_assert(end->has_failure);
        cr_assert_str_eq(end->failure.node, "node2");
        cr_assert_eq(end->failure.kind, FAILURE_SIGNAL);
        cr_assert_eq(end->failure.code, 11);
    }
    world_free(w);
}

Test(directed_sim, the_first_cause_is_found_though_it_is_heard_last) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.offset_ns[1] = S(70000); /* its clock says that it was later */
    p.offset_ns[2] = S(10);
    (void)world_params_fault(&p, FAULT_IGNORE_TERM, 0, 0, 0, 0); /* so that stopping takes a while */
    (void)world_params_fault(&p, FAULT_PARTITION, S(5), 1, (int64_t)S(0.2), 2);
    (void)world_params_fault(&p, FAULT_WORKER, S(5.001), 1, 5, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(5.1), 2, 6, 0);
    struct world *w = run(&p);
    const struct member_end *end = member_end(world_member(w, 0));
    cr_assert(end->has_failure);
    cr_assert_str_eq(end->failure.node, "node1");
    world_free(w);
}

Test(directed_sim, the_leader_takes_a_killed_agent_for_gone_when_its_guardian_is_done_not_before) {
    /* Schedule 1 of the notes: the connection ends at once, the guardian takes 0.8 s. */
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5), 2, (int64_t)S(0.8), 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 5.8, 7.1); /* a silent probe takes a second */
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), 5.8, 7.5);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}

Test(directed_sim, a_silent_probe_and_then_a_cut_prove_nothing) {
    /* Schedule 2: guardian at work, probe silent, then the link is cut: lease + margin decides. */
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5), 2, (int64_t)S(0.8), 0);
    (void)world_params_fault(&p, FAULT_PARTITION, S(5.1), 2, (int64_t)S(60), 3);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 9.9, 11.1);
    world_free(w);
}

Test(directed_sim, an_agent_killed_below_min_ends_the_job_with_the_reason) {
    struct world_params p;
    world_params_calm(&p, 2);
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5), 1, 0, 0);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_FAILED);
    const struct member_end *end = member_end(world_member(w, 0));
    cr_assert_not_null(strstr(end->reason, "node1"), "%s", end->reason);
    cr_assert_not_null(strstr(end->reason, "1 of at least 2"), "%s", end->reason);
    world_free(w);
}

Test(directed_sim, a_host_that_goes_off_is_lost_after_lease_and_margin) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_HOST_OFF, S(5), 2, 0, 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 10.0, 11.1);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}

Test(directed_sim, a_host_that_boots_again_refuses_and_is_gone_at_once) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_HOST_OFF, S(5), 2, 0, 0);
    (void)world_params_fault(&p, FAULT_BOOT, S(7), 2, 0, 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 7.0, 9.5);
    cr_assert_neq(when(w, LEADER_FILE_STARTED, 2, 1), -1.0, "the newcomer takes part in the next group");
    world_free(w);
}

Test(directed_sim, a_frozen_agents_workers_die_and_it_comes_back_as_one_that_has_stopped) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    p.work_ns = S(40);
    (void)world_params_fault(&p, FAULT_FREEZE_AGENT, S(5), 2, (int64_t)S(20), 0);
    struct world *w = run(&p); /* I5 and I2 say when they are dead */
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 10.0, 11.1);
    cr_assert_eq(member_end(world_member(w, 2))->kind, MEMBER_END_SUCCESS, "idle, it hears the outcome");
    world_free(w);
}

Test(directed_sim, a_freeze_shorter_than_the_lease_costs_nothing) {
    struct world_params p;
    world_params_calm(&p, 3);
    (void)world_params_fault(&p, FAULT_FREEZE_AGENT, S(3), 2, (int64_t)S(3.5), 0);
    struct world *w = run(&p);
    cr_assert_eq(world_groups_started(w), 1);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}

Test(directed_sim, a_death_by_the_guardian_is_no_failure_of_a_worker) {
    /* The guardian takes a lease that was just renewed for ended: stopped, and nothing is charged. */
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_params p;
        world_params_calm(&p, 2);
        p.seed = seed; /* the order of what piled up differs */
        p.work_ns = S(20);
        (void)world_params_fault(&p, FAULT_FENCE_LATE, S(5.4), 1, 0, 0);
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(world_groups_started(w), 2);
        world_free(w);
    }
}

Test(directed_sim, workers_continue_if_their_agent_is_back_before_it_counts_as_lost) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_params p;
        world_params_calm(&p, 2);
        p.seed = seed;
        p.work_ns = S(20);
        p.kills_nothing = true;
        (void)world_params_fault(&p, FAULT_FREEZE_AGENT, S(5.4), 1, (int64_t)S(5.3), 0);
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(world_groups_started(w), 1);
        cr_assert_neq(world_when(w, LEADER_FILE_RESUMED, 1, 0), TIME_NEVER);
        world_free(w);
    }
}

/* Nodes that are paused together, and that wake within 2 s of each other, lose no worker. */
Test(directed_sim, a_job_that_is_paused_as_a_whole_continues) {
    for (unsigned i = 0; i < 3 * 3 * 3 * 10; i++) {
        struct world_params p;
        case_paused_as_a_whole(&p, 1 + 2 * (i % 3), (enum group_leadership)(LEADERSHIP_NONE + i / 3 % 3),
                               (i / 9 % 3) * S(1));
        p.seed = 1 + i / 27;
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "case %u", i);
        cr_assert_eq(world_groups_started(w), 1, "case %u", i);
        for (uint32_t h = 0; h < p.n_hosts; h++)
            cr_assert_neq(world_when(w, LEADER_FILE_RESUMED, h, 0), TIME_NEVER, "case %u, host %u", i, h);
        world_free(w);
    }
}

Test(directed_sim, a_job_that_is_paused_for_about_a_lease_continues) {
    for (unsigned i = 0; i < 60 * 10 * 4; i++) {
        struct world_params p;
        case_paused_briefly(&p, 2 + i % 2, S(8) + i / 4 % 10 * NS_PER_S / 10, (1 + i / 40) * NS_PER_S / 10,
                            i / 2 % 2 * S(1));
        p.seed = 1 + i;
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "case %u", i);
        cr_assert_eq(world_groups_started(w), 1, "case %u", i);
        world_free(w);
    }
}

/* Each node gets SIGTERM as it wakes, before it has a lease: its workers have their grace. */
Test(directed_sim, a_signal_right_after_a_pause_kills_no_worker) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_params p;
        case_paused_as_a_whole(&p, 3, seed % 2 == 0 ? LEADERSHIP_ARBITER : LEADERSHIP_NONE, 0);
        p.seed = seed;
        for (uint32_t h = 0; h < p.n_hosts; h++)
            (void)world_params_fault(&p, FAULT_LEAVE, S(14.3) + 10 * NS_PER_US, h, (int64_t)S(3), 0);
        struct world *w = run(&p);
        for (uint32_t h = 0; h < p.n_hosts; h++)
            cr_assert_eq(world_when(w, LEADER_FILE_FENCED, h, 0), TIME_NEVER, "seed %llu, host %u",
                         (unsigned long long)seed, h);
        world_free(w);
    }
}

/* Some of them sleep: the others go on without them, and workers that were stopped never run beside the new group. */
Test(directed_sim, one_that_is_paused_alone_loses_its_workers) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_params p;
        case_paused_and_replaced(&p);
        p.seed = seed;
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "seed %llu", (unsigned long long)seed);
        cr_assert_geq(world_groups_started(w), 2);
        cr_assert_eq(world_when(w, LEADER_FILE_RESUMED, WORLD_HOSTS_MAX, 0), TIME_NEVER);
        world_free(w);
    }
}

Test(directed_sim, a_leader_that_slept_does_not_count_its_nodes_lost) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_params p;
        world_params_calm(&p, 3);
        p.seed = seed;
        p.member.rdzv.leader_timeout_ns = S(60);
        (void)world_params_fault(&p, FAULT_FREEZE_AGENT, S(5), 0, (int64_t)S(15), 0);
        struct world *w = run(&p);
        cr_assert_geq(world_when(w, LEADER_FILE_LOST, ANY, 0), world_when(w, LEADER_FILE_LEADER_CLOSED, 0, 0),
                      "seed %llu", (unsigned long long)seed);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
        world_free(w);
    }
}

Test(directed_sim, a_cut_connection_is_resumed_and_nothing_stops) {
    for (int mode = CUT_BOTH_SEE; mode < CUT_SILENT; mode++) {
        struct world_params p;
        world_params_calm(&p, 3);
        (void)world_params_fault(&p, FAULT_CUT, S(5), 1, mode, 0);
        struct world *w = run(&p);
        cr_assert_eq(world_groups_started(w), 1, "mode %d", mode);
        cr_assert_geq(world_when(w, LEADER_FILE_LOST, 1, 0), world_when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), "mode %d",
                      mode);
        world_free(w);
    }
}

Test(directed_sim, a_connection_that_swallows_everything_is_replaced_within_the_lease) {
    struct world_params p;
    world_params_calm(&p, 3);
    (void)world_params_fault(&p, FAULT_CUT, S(5), 1, CUT_SILENT, 0);
    struct world *w = run(&p);
    cr_assert_eq(world_groups_started(w), 1);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(when(w, LEADER_FILE_FENCED, 1, 0), -1.0);
    world_free(w);
}

Test(directed_sim, a_partition_past_the_lease_fences_the_node_before_the_others_start_again) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    p.work_ns = S(30);
    for (int64_t way = 1; way <= 3; way++) {
        (void)world_params_fault(&p, FAULT_PARTITION, S(5), 2, (int64_t)S(20), way);
        struct world *w = run(&p);
        double fenced = when(w, LEADER_FILE_FENCED, 2, 0), again = when(w, LEADER_FILE_STARTED, 0, 1);
        assert_between(fenced, 8.9, 10.1);
        cr_assert(again > fenced, "way %d: %.3f after %.3f", (int)way, again, fenced);
        p.n_faults--;
        world_free(w);
    }
}

Test(directed_sim, a_nodes_loss_after_it_has_finished_harms_nothing) {
    struct world_params p;
    world_params_calm(&p, 3);
    struct world *first = run(&p);
    double closed = when(first, LEADER_FILE_LEADER_CLOSED, 0, 0);
    world_free(first);
    /* The same run, with the agent killed between its last worker's end and CLOSED. */
    unsigned kept = 0;
    for (uint64_t back = 1; back <= 60; back++) {
        struct world_params q = p;
        (void)world_params_fault(&q, FAULT_AGENT_KILL, S(closed) - back * NS_PER_MS, 1, (int64_t)S(0.1), 0);
        struct world *w = world_new(&q, &coverage);
        cr_assert(world_run_to(w, TIME_NEVER), "%s", world_failure(w));
        kept += world_outcome(w) == OUTCOME_SUCCESS;
        world_free(w);
    }
    cr_assert_geq(kept, 1);
}

Test(directed_sim, a_node_told_to_leave_costs_no_restart_and_no_waiting) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_LEAVE, S(5), 1, (int64_t)S(1), 0);
    struct world *w = run(&p);
    cr_assert_eq(member_end(world_member(w, 1))->kind, MEMBER_END_LEFT);
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), 5.0, 6.0);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(member_end(world_member(w, 0))->restarts_used, 0);
    world_free(w);
}

Test(directed_sim, the_operator_ends_the_job_everywhere_with_his_reason) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.max_restarts = 3;
    (void)world_params_fault(&p, FAULT_OPERATOR_STOP, S(5), 0, 0, 0);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_FAILED);
    for (uint32_t h = 0; h < 3; h++)
        cr_assert_str_eq(member_end(world_member(w, h))->reason, "the operator asked");
    assert_between(when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), 5.0, 6.0);
    world_free(w);
}

Test(directed_sim, the_end_of_the_leaders_agent_ends_every_node_with_the_reason) {
    struct world_params p;
    world_params_calm(&p, 3);
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5), 0, (int64_t)S(0.5), 0);
    struct world *w = run(&p);
    for (uint32_t h = 1; h < 3; h++) {
        cr_assert_eq(member_end(world_member(w, h))->kind, MEMBER_END_LEADER_LOST);
        assert_between(when(w, LEADER_FILE_ENDED, h, 0), 5.4, 12.0);
    }
    world_free(w);
}

Test(directed_sim, a_silent_leader_is_given_up_after_the_leader_timeout) {
    struct world_params p;
    world_params_calm(&p, 2);
    (void)world_params_fault(&p, FAULT_HOST_OFF, S(5), 0, 0, 0);
    struct world *w = run(&p);
    cr_assert_eq(member_end(world_member(w, 1))->kind, MEMBER_END_LEADER_LOST);
    assert_between(when(w, LEADER_FILE_FENCED, 1, 0), 9.0, 10.1);
    assert_between(when(w, LEADER_FILE_ENDED, 1, 0), 64.0, 65.5);
    world_free(w);
}

Test(directed_sim, workers_that_ignore_sigterm_hold_up_the_next_group_no_longer_than_the_grace) {
    struct world_params p;
    world_params_calm(&p, 2);
    p.group.rdzv.max_restarts = 1;
    (void)world_params_fault(&p, FAULT_IGNORE_TERM, 0, 0, 0, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(5), 1, 7, 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), 8.0, 8.2); /* the launcher's own 3 s */
    world_free(w);
}

Test(directed_sim, an_unkillable_process_keeps_its_node_out_and_lets_the_others_go_on) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    p.group.rdzv.max_restarts = 1;
    (void)world_params_fault(&p, FAULT_UNKILLABLE, S(4), 2, 0, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(5), 1, 7, 0);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(when(w, LEADER_FILE_STARTED, 2, 1), -1.0, "its node takes part again");
    cr_assert_neq(when(w, LEADER_FILE_STARTED, 1, 1), -1.0);
    world_free(w);
}

Test(directed_sim, a_store_that_can_not_be_opened_ends_the_job_with_the_reason) {
    struct world_params p;
    world_params_calm(&p, 2);
    (void)world_params_fault(&p, FAULT_STORE_FAILS, 0, 0, 0, 0);
    struct world *w = run(&p);
    cr_assert_not_null(strstr(member_end(world_member(w, 1))->reason, "no free port"));
    world_free(w);
}

Test(directed_sim, a_node_that_does_not_get_ready_is_charged_and_named) {
    struct world_params p;
    world_params_calm(&p, 2);
    (void)world_params_fault(&p, FAULT_PREPARE_SLOW, 0, 1, 0, 0);
    struct world *w = run(&p);
    const struct member_end *end = member_end(world_member(w, 0));
    cr_assert_eq(end->kind, MEMBER_END_FAILED);
    cr_assert(end->has_failure);
    cr_assert_str_eq(end->failure.node, "node1");
    assert_between(when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), 60.0, 60.2);
    world_free(w);
}

Test(directed_sim, a_newcomer_waits_and_takes_a_lost_nodes_place) {
    struct world_params p;
    world_params_calm(&p, 4);
    p.group.rdzv.min_nodes = 2;
    p.group.rdzv.max_nodes = 3;
    p.faults[3].at_ns = S(2);
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5), 1, (int64_t)S(0.1), 0);
    struct world *w = run(&p);
    cr_assert_eq(when(w, LEADER_FILE_STARTED, 3, 0) > 5, 1);
    cr_assert_eq(member_form(world_member(w, 3))->node_rank, 1);
    cr_assert_eq(member_form(world_member(w, 2))->node_rank, 2);
    cr_assert_eq(member_form(world_member(w, 0))->n_nodes, 3);
    world_free(w);
}

Test(directed_sim, leases_that_run_out_again_and_again_end_the_job_with_the_reason) {
    struct world_params p;
    case_no_group_lasts(&p);
    struct world *w = run(&p);
    const struct member_end *end = member_end(world_member(w, 0));
    cr_assert_eq(end->kind, MEMBER_END_FAILED);
    cr_assert_not_null(strstr(end->reason, "no group lasts"), "%s", end->reason);
    assert_between(when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), 77.5 + 8 * 5, 180.0);
    cr_assert_leq(world_groups_started(w), 8);
    world_free(w);
}

Test(directed_sim, losses_that_are_spread_over_time_are_free) {
    struct world_params p;
    case_losses_over_time(&p);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(world_groups_started(w), 31);
    world_free(w);
}

/* ---- crowds ---- */

Test(directed_sim, a_silent_crowd_changes_nothing_and_is_probed_at_a_rate) {
    struct world_params p;
    case_crowd(&p);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(world_groups_started(w), 1);
    world_free(w);
}

/* The crowd is due, and not yet lost, when the member is: no switch is to blame for both. Nor does
 * the next group take anybody in who has not been heard for a while. */
Test(directed_sim, a_silent_crowd_holds_up_no_members_loss_and_takes_no_place) {
    struct world_params p;
    case_crowd(&p);
    p.work_ns = S(30);
    (void)world_params_fault(&p, FAULT_HOST_OFF, S(1.99), 2, 0, 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 6.9, 7.5);
    assert_between(when(w, LEADER_FILE_STARTED, 1, 1), 6.9, 7.8);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    world_free(w);
}
