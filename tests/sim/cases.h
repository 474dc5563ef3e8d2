/* Schedules written by hand that several programs run: succession_sim with the right rules, mutants_sim with wrong
 * ones. Each fills in a whole world. At first host 0 leads; host 1 is its first successor, then 2, then 3. */
#pragma once

#include "world.h"

/* `hosts` hosts, calm, with an arbiter; a group of min nodes goes on. Work is for 30 s. */
void case_arbiter(struct world_params *p, uint32_t hosts, uint32_t min_nodes);
/* The same with a fixed endpoint that leaves a leader file. */
void case_leader_file(struct world_params *p, uint32_t hosts, uint32_t min_nodes);

/* The first successor receives nothing from the leader for 3 s; then the leader's agent is killed, and the third node
 * is cut off while it has a lease. */
void case_successor_cut_off_first(struct world_params *p);
/* Leader and first successor can't reach the arbiter, a newcomer reaches nothing else. */
void case_newcomer_sees_only_the_arbiter(struct world_params *p);
/* A fifth node, which is not a successor, can't reach the leader for 12 s, and goes to the first successor. */
void case_one_goes_to_the_successor(struct world_params *p);
/* Host 0 leads from 0 s on and is lost at 5 s; host 1 comes at `other_ns`, the two that are needed,
 * too, half a second after the loss. */
void case_before_its_first_group(struct world_params *p, enum fault_kind how, uint64_t other_ns);
/* Host 0 leads, and host 1 joins it; it can't reach the arbiter from 1 s until `back_ns`. Hosts 2 and
 * 3 come meanwhile and see the arbiter alone, then all see each other. A group has two or three. */
void case_idle_leader_without_arbiter(struct world_params *p, uint64_t back_ns);
/* Host 2, which sees the arbiter alone, asks for the epoch after host 0's idle one at about the time
 * when host 0 does, for its group with host 1: both have been waiting for answers. Then that group
 * runs on without the arbiter, and host 3 comes, which sees host 2. */
void case_two_claim_after_an_idle_epoch(struct world_params *p);
/* The leader's agent is frozen for less than a lease. */
void case_short_freeze(struct world_params *p);
/* The arbiter's data is gone, and nothing else is wrong. */
void case_arbiter_emptied(struct world_params *p);
/* For 4 s, less than a lease: no node may end because of that. */
void case_arbiter_away_for_a_moment(struct world_params *p);
/* The leader is killed while another job has founded its first epoch in the place of this one's. */
void case_another_jobs_arbiter(struct world_params *p);
/* 2,000 nodes join a running group of 3 as spares, and never send again. */
void case_crowd(struct world_params *p);
/* All three nodes are told to leave at once; the last one's workers take 2 s. Another agent, on
 * host 3, has been started meanwhile. */
void case_all_told_to_leave(struct world_params *p);
/* Two nodes of three, of which none can be missing, are told to leave: the leader last. Its workers
 * take 2 s. Two other agents, on hosts 3 and 4, have been started meanwhile. */
void case_too_few_stay(struct world_params *p);
/* The leader of three nodes is told to leave; the others can go on for long. */
void case_leader_leaves(struct world_params *p);
/* The endpoint's agent thaws, answers what piled up, is killed before it touches its leader file,
 * and started again. The seed decides in which order it finds things. */
void case_thaws_and_is_killed(struct world_params *p);
/* The only node's agent is frozen past its lease, again and again, each time soon after it thawed. */
void case_no_group_lasts(struct world_params *p);
/* One of two agents is killed and started again, thirty times; each group ran for a little longer
 * than what counts as progress. */
void case_losses_over_time(struct world_params *p);
/* All hosts stand still for 8 s, and wake within skew_ns of each other. No worker may be killed. */
void case_paused_as_a_whole(struct world_params *p, uint32_t hosts, enum group_leadership leadership, uint64_t skew_ns);
void case_paused_briefly(struct world_params *p, uint32_t hosts, uint64_t at_ns, uint64_t pause_ns, uint64_t skew_ns);
void case_three_paused(struct world_params *p);
/* One of three hosts stands still for 9 s, and the others form a group without it. */
void case_paused_and_replaced(struct world_params *p);
