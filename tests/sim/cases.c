#include "cases.h"

#define S(x) ((uint64_t)((x)*1e9))

void case_arbiter(struct world_params *p, uint32_t hosts, uint32_t min_nodes) {
    world_params_calm(p, hosts);
    p->group.leadership = LEADERSHIP_ARBITER;
    p->group.rdzv.min_nodes = min_nodes;
    p->work_ns = S(30);
}

void case_leader_file(struct world_params *p, uint32_t hosts, uint32_t min_nodes) {
    world_params_calm(p, hosts);
    p->group.leadership = LEADERSHIP_LEADER_FILE;
    p->group.rdzv.min_nodes = min_nodes;
    p->work_ns = S(30);
}

static void cut(struct world_params *p, double from, double until, uint32_t a, int64_t way) {
    (void)world_params_fault(p, FAULT_PARTITION, S(from), a, (int64_t)S(until - from), way);
}

void case_successor_cut_off_first(struct world_params *p) {
    case_arbiter(p, 3, 1);
    cut(p, 5.0, 8.0, 1, PARTITION_BOTH | PARTITION_HOST(0));
    cut(p, 7.95, 40.0, 2, PARTITION_BOTH);
    (void)world_params_fault(p, FAULT_AGENT_KILL, S(8), 0, 0, 0);
}

void case_newcomer_sees_only_the_arbiter(struct world_params *p) {
    case_arbiter(p, 3, 1);
    p->group.rdzv.max_nodes = 2;
    p->group.rdzv.arbiter_lease_ns = S(10);
    p->work_ns = S(100);
    p->faults[2].at_ns = S(6);
    cut(p, 5.0, 90.0, 2, PARTITION_BOTH);
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(5), 0, (int64_t)S(85), 0);
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(5), 1, (int64_t)S(85), 0);
}

void case_one_goes_to_the_successor(struct world_params *p) {
    case_arbiter(p, 5, 3);
    cut(p, 5.0, 17.0, 4, PARTITION_BOTH | PARTITION_HOST(0));
}

void case_before_its_first_group(struct world_params *p, enum fault_kind how, uint64_t other_ns) {
    case_arbiter(p, 4, 3);
    p->group.rdzv.last_call_ns = S(0.1);
    p->faults[1].at_ns = other_ns;
    p->faults[2].at_ns = p->faults[3].at_ns = S(5.5);
    (void)world_params_fault(p, how, S(5), 0, 0, 0);
}

void case_idle_leader_without_arbiter(struct world_params *p, uint64_t back_ns) {
    case_arbiter(p, 4, 2);
    p->group.rdzv.max_nodes = 3;
    p->group.rdzv.last_call_ns = S(0.1);
    p->faults[1].at_ns = S(1.5);
    p->faults[2].at_ns = p->faults[3].at_ns = S(2);
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(1), 0, (int64_t)(back_ns - S(1)), 0);
    cut(p, 1, 40, 0, PARTITION_BOTH | PARTITION_HOST(2) | PARTITION_HOST(3));
}

void case_two_claim_after_an_idle_epoch(struct world_params *p) {
    case_arbiter(p, 4, 2);
    p->group.rdzv.max_nodes = 2;
    p->work_ns = S(100);
    p->faults[1].at_ns = S(9.5);
    p->faults[2].at_ns = S(2);
    p->faults[3].at_ns = S(20);
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(1), 0, (int64_t)S(8), 0);
    (void)world_params_fault(p, FAULT_ARBITER_SLOW, S(7), 2, (int64_t)S(5), (int64_t)S(4));
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(16), 0, (int64_t)S(70), 0);
    (void)world_params_fault(p, FAULT_ARBITER_OUT, S(16), 1, (int64_t)S(70), 0);
    for (uint32_t h = 0; h < 2; h++)
        cut(p, 1, 90, h, PARTITION_BOTH | PARTITION_HOST(2) | PARTITION_HOST(3));
}

void case_short_freeze(struct world_params *p) {
    case_arbiter(p, 3, 2);
    (void)world_params_fault(p, FAULT_FREEZE_AGENT, S(5), 0, (int64_t)S(4.6), 0);
}

void case_arbiter_emptied(struct world_params *p) {
    case_arbiter(p, 4, 2);
    (void)world_params_fault(p, FAULT_ARBITER_EMPTIED, S(5), 0, 0, 0);
}

void case_arbiter_away_for_a_moment(struct world_params *p) {
    case_arbiter(p, 4, 2);
    p->succeeds = true;
    (void)world_params_fault(p, FAULT_ARBITER_EMPTIED, S(5), 0, (int64_t)S(4), 0);
}

void case_another_jobs_arbiter(struct world_params *p) {
    case_arbiter(p, 4, 2);
    (void)world_params_fault(p, FAULT_ARBITER_EMPTIED, S(5), 0, 0, 1);
    (void)world_params_fault(p, FAULT_AGENT_KILL, S(5), 0, 0, 0);
}

void case_all_told_to_leave(struct world_params *p) {
    case_arbiter(p, 4, 1);
    p->group.rdzv.max_nodes = 3;
    p->group.rdzv.last_call_ns = S(0.05);
    p->faults[3].at_ns = S(5.2);
    (void)world_params_fault(p, FAULT_IGNORE_TERM, S(0), 2, 0, 0);
    for (uint32_t h = 0; h < 3; h++)
        (void)world_params_fault(p, FAULT_LEAVE, S(5), h, (int64_t)S(2), 0);
}

void case_too_few_stay(struct world_params *p) {
    case_arbiter(p, 5, 3);
    p->group.rdzv.max_nodes = 3;
    p->faults[3].at_ns = p->faults[4].at_ns = S(5.2);
    (void)world_params_fault(p, FAULT_IGNORE_TERM, S(0), 0, 0, 0);
    (void)world_params_fault(p, FAULT_LEAVE, S(5), 1, 0, 0);
    (void)world_params_fault(p, FAULT_LEAVE, S(5.1), 0, (int64_t)S(2), 0);
}

void case_leader_leaves(struct world_params *p) {
    case_arbiter(p, 3, 2);
    p->work_ns = S(100);
    (void)world_params_fault(p, FAULT_LEAVE, S(5), 0, (int64_t)S(1), 0);
}

void case_thaws_and_is_killed(struct world_params *p) {
    case_leader_file(p, 3, 1);
    p->group.rdzv.last_call_ns = S(1);
    (void)world_params_fault(p, FAULT_FREEZE_AGENT, S(5.5), 0, (int64_t)S(4), 0);
    (void)world_params_fault(p, FAULT_TOUCH_FAILS, S(5.5), 0, (int64_t)S(4.1), 0);
    cut(p, 9.51, 40, 1, PARTITION_BOTH);
    cut(p, 9.51, 40, 2, PARTITION_BOTH);
    (void)world_params_fault(p, FAULT_AGENT_KILL, S(9.52), 0, 0, (int64_t)S(0.5));
}

void case_no_group_lasts(struct world_params *p) {
    world_params_calm(p, 1);
    p->work_ns = S(100);
    for (int i = 0; i < 40; i++)
        (void)world_params_fault(p, FAULT_FREEZE_AGENT, S(1 + 7.5 * i), 0, (int64_t)S(7), 0);
}

void case_losses_over_time(struct world_params *p) {
    world_params_calm(p, 2);
    p->group.rdzv.regroup_wait_ns = S(300);
    p->work_ns = S(60);
    for (int i = 0; i < 30; i++)
        (void)world_params_fault(p, FAULT_AGENT_KILL, S(10 + 15 * i), 1, 0, (int64_t)S(2));
}

void case_crowd(struct world_params *p) {
    world_params_calm(p, 3);
    p->group.rdzv.min_nodes = 2;
    p->work_ns = S(20);
    (void)world_params_fault(p, FAULT_CROWD, S(2), 0, 2000, 0);
}

static void paused(struct world_params *p, uint32_t hosts, enum group_leadership leadership, uint64_t at_ns,
                   uint64_t pause_ns, uint64_t skew_ns) {
    if (leadership == LEADERSHIP_LEADER_FILE)
        case_leader_file(p, hosts, hosts);
    else
        world_params_calm(p, hosts);
    p->group.leadership = leadership;
    p->work_ns = S(20);
    p->kills_nothing = true;
    (void)world_params_fault(p, FAULT_PAUSE, at_ns, 0, (int64_t)pause_ns, (int64_t)skew_ns);
}

void case_paused_as_a_whole(struct world_params *p, uint32_t hosts, enum group_leadership leadership,
                            uint64_t skew_ns) {
    paused(p, hosts, leadership, S(6.3), S(8), skew_ns);
}

void case_paused_briefly(struct world_params *p, uint32_t hosts, uint64_t at_ns, uint64_t pause_ns, uint64_t skew_ns) {
    paused(p, hosts, LEADERSHIP_ARBITER, at_ns, pause_ns, skew_ns);
}

void case_three_paused(struct world_params *p) { case_paused_as_a_whole(p, 3, LEADERSHIP_ARBITER, S(1)); }

void case_paused_and_replaced(struct world_params *p) {
    world_params_calm(p, 3);
    p->group.leadership = LEADERSHIP_ARBITER;
    p->group.rdzv.min_nodes = 1;
    p->work_ns = S(30);
    (void)world_params_fault(p, FAULT_FREEZE_HOST, S(6), HOST_SUCCESSOR(0), (int64_t)S(9), 0);
}
