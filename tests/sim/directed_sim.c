/* Schedules written by hand: what each misfortune costs, and those that chance rarely finds
 * (design notes, "Schedules that broke earlier wordings"). Seconds are of virtual time. */
#include <string.h>

#include "cases.h"
#include "schedule.h"

static struct world *run(const struct world_params *p) { return schedule_run_world(p); }

/* Notes: schedules 1 and 2 of "Schedules that broke earlier wordings". A silent probe takes a second. */
static const struct schedule rows[] = {
    {"all nodes are there: the job starts at once and succeeds everywhere", .hosts = 4, .outcome = OUTCOME_SUCCESS,
     .groups = 1, .marks = {{LEADER_FILE_STARTED, 3, 0, 0.001, 0.1}}, .ends = {{ANY, MEMBER_END_SUCCESS}}},
    {"between min and max the leader waits for the last call", .hosts = 3, .min_nodes = 2, .max_nodes = 4,
     .marks = {{LEADER_FILE_STARTED, ANY, 0, 30.0, 30.2}}},
    {"a node that comes within the last call takes part", .hosts = 3, .min_nodes = 2, .max_nodes = 4,
     .comes = {[2] = 20}, .marks = {{LEADER_FILE_STARTED, 2, 0, 30.0, 30.2}}},
    {"below min the job fails at the join timeout, and the reason names who was there", .hosts = 2, .min_nodes = 3,
     .max_nodes = 3, .join_timeout = 100, .outcome = OUTCOME_FAILED,
     .marks = {{LEADER_FILE_LEADER_CLOSED, 0, 0, 100.0, 100.1}},
     .ends = {{1, MEMBER_END_FAILED, "node1"}, {1, MEMBER_END_FAILED, "2 of at least 3"}}},
    {"1: a killed agent counts as gone when its guardian is done, not before", .hosts = 3, .min_nodes = 2,
     .faults = {{FAULT_AGENT_KILL, 5, 2, (int64_t)S(0.8)}}, .outcome = OUTCOME_SUCCESS,
     .marks = {{LEADER_FILE_LOST, 2, 0, 5.8, 7.1}, {LEADER_FILE_STARTED, 0, 1, 5.8, 7.5}}},
    {"2: a silent probe and then a cut prove nothing: lease and margin decide", .hosts = 3, .min_nodes = 2,
     .faults = {{FAULT_AGENT_KILL, 5, 2, (int64_t)S(0.8)}, {FAULT_PARTITION, 5.1, 2, (int64_t)S(60), PARTITION_BOTH}},
     .marks = {{LEADER_FILE_LOST, 2, 0, 9.9, 11.1}}},
    {"an agent killed below min ends the job with the reason", .hosts = 2, .faults = {{FAULT_AGENT_KILL, 5, 1}},
     .outcome = OUTCOME_FAILED, .ends = {{0, 0, "node1"}, {0, 0, "1 of at least 2"}}},
    {"a host that goes off is lost after lease and margin", .hosts = 3, .min_nodes = 2,
     .faults = {{FAULT_HOST_OFF, 5, 2}}, .outcome = OUTCOME_SUCCESS, .marks = {{LEADER_FILE_LOST, 2, 0, 10.0, 11.1}}},
    {"a host that boots again refuses, is gone at once, and its new agent is in the next group", .hosts = 3,
     .min_nodes = 2, .faults = {{FAULT_HOST_OFF, 5, 2}, {FAULT_BOOT, 7, 2}},
     .marks = {{LEADER_FILE_LOST, 2, 0, 7.0, 9.5}, {LEADER_FILE_STARTED, 2, 1, 0, EVER}}},
    {"a frozen agent's workers die (I2, I5); it comes back as one that has stopped, and hears the outcome", .hosts = 3,
     .min_nodes = 2, .work = 40, .faults = {{FAULT_FREEZE_AGENT, 5, 2, (int64_t)S(20)}},
     .marks = {{LEADER_FILE_LOST, 2, 0, 10.0, 11.1}}, .ends = {{2, MEMBER_END_SUCCESS}}},
    {"a freeze shorter than the lease costs nothing", .hosts = 3,
     .faults = {{FAULT_FREEZE_AGENT, 3, 2, (int64_t)S(3.5)}}, .outcome = OUTCOME_SUCCESS, .groups = 1},
    {"a death by the guardian, for a lease that was just renewed, is not a failure of a worker", .hosts = 2, .work = 20,
     .seeds = 20, /* the order of what piled up differs */
     .faults = {{FAULT_FENCE_LATE, 5.4, 1}}, .outcome = OUTCOME_SUCCESS, .groups = 2},
    {"workers continue if their agent is back before it counts as lost", .hosts = 2, .work = 20, .seeds = 20,
     .kills_nothing = true, .faults = {{FAULT_FREEZE_AGENT, 5.4, 1, (int64_t)S(5.3)}}, .outcome = OUTCOME_SUCCESS,
     .groups = 1, .marks = {{LEADER_FILE_RESUMED, 1, 0, 0, EVER}}},
    {"a connection that swallows everything is replaced within the lease", .hosts = 3,
     .faults = {{FAULT_CUT, 5, 1, CUT_SILENT}}, .outcome = OUTCOME_SUCCESS, .groups = 1,
     .marks = {{LEADER_FILE_FENCED, 1, 0}}},
    {"the operator ends the job everywhere, with the reason", .hosts = 3, .max_restarts = 3,
     .faults = {{FAULT_OPERATOR_STOP, 5}}, .outcome = OUTCOME_FAILED,
     .marks = {{LEADER_FILE_LEADER_CLOSED, 0, 0, 5.0, 6.0}}, .ends = {{ANY, 0, "the operator asked"}}},
    {"the end of the leader's agent ends every node", .hosts = 3, .faults = {{FAULT_AGENT_KILL, 5, 0, (int64_t)S(0.5)}},
     .marks = {{LEADER_FILE_ENDED, 1, 0, 5.4, 12.0}, {LEADER_FILE_ENDED, 2, 0, 5.4, 12.0}},
     .ends = {{1, MEMBER_END_LEADER_LOST}, {2, MEMBER_END_LEADER_LOST}}},
    {"a silent leader is given up after the leader timeout", .hosts = 2, .faults = {{FAULT_HOST_OFF, 5}},
     .marks = {{LEADER_FILE_FENCED, 1, 0, 9.0, 10.1}, {LEADER_FILE_ENDED, 1, 0, 64.0, 65.5}},
     .ends = {{1, MEMBER_END_LEADER_LOST}}},
    {"workers that ignore SIGTERM delay the next group by the launcher's 3 s of grace", .hosts = 2, .max_restarts = 1,
     .faults = {{FAULT_IGNORE_TERM}, {FAULT_WORKER, 5, 1, 7}}, .marks = {{LEADER_FILE_STARTED, 0, 1, 8.0, 8.2}}},
    {"a process that cannot be killed keeps its node out; the others continue", .hosts = 3, .min_nodes = 2,
     .max_restarts = 1, .faults = {{FAULT_UNKILLABLE, 4, 2}, {FAULT_WORKER, 5, 1, 7}}, .outcome = OUTCOME_SUCCESS,
     .marks = {{LEADER_FILE_STARTED, 2, 1}, {LEADER_FILE_STARTED, 1, 1, 0, EVER}}},
    {"a store that cannot be opened ends the job with the reason", .hosts = 2, .faults = {{FAULT_STORE_FAILS}},
     .ends = {{1, 0, "no free port"}}},
    {"a node that does not get ready is charged and named", .hosts = 2, .faults = {{FAULT_PREPARE_SLOW, 0, 1}},
     .marks = {{LEADER_FILE_LEADER_CLOSED, 0, 0, 60.0, 60.2}}, .ends = {{0, MEMBER_END_FAILED, NULL, "node1"}}},
    {"losses that are spread over time are free", .make = case_losses_over_time, .outcome = OUTCOME_SUCCESS,
     .groups = 31},
    {"a silent crowd changes nothing, and is probed at a rate", .make = case_crowd, .outcome = OUTCOME_SUCCESS,
     .groups = 1},
    /* The crowd is due, and not yet lost, when the member is: no switch is to blame for both. Nor does the next group
     * take in anyone who has not been heard for a while. */
    {"a silent crowd delays no member's loss, and takes no place", .make = case_crowd, .work = 30,
     .faults = {{FAULT_HOST_OFF, 1.99, 2}}, .outcome = OUTCOME_SUCCESS,
     .marks = {{LEADER_FILE_LOST, 2, 0, 6.9, 7.5}, {LEADER_FILE_STARTED, 1, 1, 6.9, 7.8}}},
};

Test(directed_sim, each_misfortune_costs_what_its_row_gives) { schedule_check(rows, ARRAY_SIZE(rows)); }

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
        struct world *w = run(&q);
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
