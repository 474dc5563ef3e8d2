/* A failure or a loss: whole nodes that are killed, and what others make of it. Seconds are of
 * virtual time; that no cause is told too early, and nothing charged that is a loss, is watched over
 * in every world. */
#include "cases.h"
#include "sim_assert.h"

static struct world_coverage coverage;

/* Runs to the end; every invariant holds. */
static struct world *run(const struct world_params *p) {
    struct world *w = world_new(p, &coverage);
    cr_assert(world_run_to(w, TIME_NEVER), "%s", world_failure(w));
    return w;
}

/* All workers of host 2 are killed, and its agent so much later. */
static struct world *kill_node(double gap, uint32_t max_restarts, uint64_t noise_ns, struct world_params *p) {
    world_params_calm(p, 3);
    p->group.rdzv.min_nodes = 2;
    p->group.rdzv.max_restarts = max_restarts;
    p->noise_ns = noise_ns;
    (void)world_params_fault(p, FAULT_KILL_WORKERS, S(5), 2, 9, 0);
    (void)world_params_fault(p, FAULT_AGENT_KILL, S(5 + gap), 2, (int64_t)S(0.002), 0);
    return run(p);
}

Test(losses_sim, a_node_that_is_killed_whole_is_lost_and_no_worker_failed) {
    for (int gap_ms = 0; gap_ms <= 50; gap_ms++) {
        struct world_params p;
        struct world *w = kill_node(gap_ms / 1e3, 0, gap_ms % 2 * S(0.1), &p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "gap %d ms", gap_ms);
        cr_assert_eq(world_groups_started(w), 2, "gap %d ms", gap_ms);
        cr_assert_eq(member_report(world_member(w, 0))->restarts_used, 0);
        cr_assert_eq(member_report(world_member(w, 0))->losses, 1);
        world_free(w);
    }
}

Test(losses_sim, a_kill_is_no_failure_though_others_hear_of_it_first) {
    /* What its agent has to say is late, and never comes. */
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_PARTITION, S(4.999), 2, (int64_t)S(30), PARTITION_FROM);
    (void)world_params_fault(&p, FAULT_KILL_WORKERS, S(5), 2, 9, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(5.01), 1, 1, 0);
    (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5.02), 2, 0, 0);
    struct world *w = run(&p);
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    assert_between(when(w, LEADER_FILE_LOST, 2, 0), 10.0, 11.1);
    cr_assert_eq(member_report(world_member(w, 0))->restarts_used, 0);
    world_free(w);
}

Test(losses_sim, impatient_workers_of_a_silent_host_cost_no_restart) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.min_nodes = 2;
    (void)world_params_fault(&p, FAULT_HOST_OFF, S(5), 2, 0, 0);
    (void)world_params_fault(&p, FAULT_WORKER, S(7), 1, 1, 0);
    struct world *w = run(&p); /* I8: no cause was told before */
    cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS);
    cr_assert_eq(member_report(world_member(w, 1))->losses, 1);
    world_free(w);
}

Test(losses_sim, a_killed_worker_of_a_node_that_lives_is_started_again_at_once) {
    struct world_params p;
    world_params_calm(&p, 3);
    p.group.rdzv.max_restarts = 1;
    (void)world_params_fault(&p, FAULT_KILL_WORKERS, S(5), 1, 9, 0);
    struct world *w = run(&p);
    double gone =
        MAX2(when(w, LEADER_FILE_GONE, 0, 0), MAX2(when(w, LEADER_FILE_GONE, 1, 0), when(w, LEADER_FILE_GONE, 2, 0)));
    assert_between(when(w, LEADER_FILE_STARTED, 0, 1), gone, gone + 0.1);
    cr_assert_eq(member_report(world_member(w, 0))->restarts_used, 1);
    world_free(w);
}

Test(losses_sim, a_job_ends_for_a_killed_worker_when_its_agent_has_outlived_it) {
    struct world_params p;
    world_params_calm(&p, 3);
    (void)world_params_fault(&p, FAULT_KILL_WORKERS, S(5), 1, 9, 0);
    struct world *w = run(&p);
    assert_between(when(w, LEADER_FILE_LEADER_CLOSED, 0, 0), 5.5, 5.7);
    const struct member_end *end = member_end(world_member(w, 2));
    cr_assert(end->has_failure && end->failure.code == 9 && end->failure.rank == 1);
    world_free(w);
}

Test(losses_sim, workers_that_are_told_to_end_with_their_agent_have_not_failed) {
    /* systemctl stop: SIGTERM to all of the unit. */
    for (int gap_ms = 0; gap_ms <= 50; gap_ms += 5) {
        struct world_params p;
        world_params_calm(&p, 3);
        p.group.rdzv.min_nodes = 2;
        (void)world_params_fault(&p, FAULT_KILL_WORKERS, S(5), 2, 15, 0);
        (void)world_params_fault(&p, FAULT_LEAVE, S(5 + gap_ms / 1e3), 2, (int64_t)S(3), 0);
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "gap %d ms", gap_ms);
        cr_assert_eq(member_report(world_member(w, 0))->restarts_used, 0);
        world_free(w);
    }
}

Test(losses_sim, the_leaders_node_killed_whole_is_a_loss_too) {
    for (int gap_ms = 0; gap_ms <= 50; gap_ms += 5) {
        struct world_params p;
        case_arbiter(&p, 3, 2);
        (void)world_params_fault(&p, FAULT_KILL_WORKERS, S(5), 0, 9, 0);
        (void)world_params_fault(&p, FAULT_AGENT_KILL, S(5 + gap_ms / 1e3), 0, (int64_t)S(0.002), 0);
        struct world *w = run(&p);
        cr_assert_eq(world_outcome(w), OUTCOME_SUCCESS, "gap %d ms", gap_ms);
        cr_assert_eq(member_report(world_member(w, 1))->restarts_used, 0);
        world_free(w);
    }
}
