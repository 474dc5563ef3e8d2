/* Members, their order and their ranks, without a group. */
#include "rendezvous/leader/parts/formation.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/parts/programs.h"

/* A job whose nodes are candidates as they come; node 1 is the leader's. */
struct job {
    struct group_config c;
    struct roster r;
    struct formation f;
};

static void begin(struct job *j, uint32_t min, uint32_t max) {
    *j = (struct job){0};
    group_config_default(&j->c);
    j->c.rdzv.min_nodes = min;
    j->c.rdzv.max_nodes = max;
    j->c.leader_incarnation = 1;
    roster_init(&j->r, 1);
}

static void end(struct job *j) {
    formation_fini(&j->f);
    roster_fini(&j->r);
}

static struct node *add(struct job *j, uint64_t incarnation, const char *host) {
    struct node_info info = {.incarnation = incarnation, .nproc = 1, .node_rank = -1};
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    struct node *n = roster_add(&j->r, &info);
    n->connected = true;
    n->joined_ns = 1;
    formation_recount(&j->f, &j->r, n);
    return n;
}

/* One is lost, and forgotten. */
static void lose(struct job *j, uint64_t incarnation) {
    struct node *n = roster_find(&j->r, incarnation);
    formation_lose(&j->f, n, false);
    roster_remove(&j->r, n);
}

/* The incarnations in rank order, written "1 3 2"; valid until the next call. */
static const char *members(const struct job *j) {
    static char text[256];
    int at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < j->f.n_members; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%llu", i == 0 ? "" : " ",
                       (unsigned long long)j->f.members[i]->info.incarnation);
    return text;
}

static const char *choose(struct job *j) {
    formation_end(&j->f);
    formation_recount_all(&j->f, &j->r);
    formation_choose(&j->f, &j->r, &j->c, 1, 0, 0);
    return members(j);
}

static struct job job; /* of a test that has one; ended with it */

static void finish(void) {
    if (job.c.leader_incarnation != 0)
        end(&job);
}

TestSuite(formation, .fini = finish);

Test(formation, a_size_is_a_multiple_of_the_unit_between_min_and_max) {
    struct group_config c;
    group_config_default(&c);
    static const struct {
        uint32_t min, max, unit;
        size_t candidates, size;
    } cases[] = {{2, 4, 1, 0, 0}, {2, 4, 1, 1, 0}, {2, 4, 1, 2, 2}, {2, 4, 1, 4, 4}, {2, 4, 1, 5, 4},
                 {2, 4, 2, 3, 2}, {3, 6, 2, 3, 0}, {3, 6, 2, 4, 4}, {2, 5, 2, 5, 4}, {2, 5, 2, 9, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.rdzv.min_nodes = cases[i].min;
        c.rdzv.max_nodes = cases[i].max;
        c.rdzv.node_unit = cases[i].unit;
        cr_assert_eq(formation_size(&c, cases[i].candidates), cases[i].size, "case %zu", i);
    }
}

Test(formation, newcomers_stand_in_the_natural_order_of_their_hosts_behind_the_leader) {
    begin(&job, 1, 9);
    (void)add(&job, 4, "h10");
    (void)add(&job, 3, "h9");
    (void)add(&job, 1, "h99");
    (void)add(&job, 2, "h9");
    cr_assert_str_eq(choose(&job), "1 3 2 4", "two agents of one host as they came");
}

Test(formation, newcomers_may_stand_as_they_came) {
    begin(&job, 1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_JOIN;
    (void)add(&job, 4, "b");
    (void)add(&job, 1, "c");
    (void)add(&job, 3, "a");
    cr_assert_str_eq(choose(&job), "1 4 3");
}

Test(formation, a_node_rank_goes_before_the_leader_and_all_others) {
    begin(&job, 1, 9);
    (void)add(&job, 1, "a");
    (void)add(&job, 2, "b");
    add(&job, 3, "c")->info.node_rank = 1;
    add(&job, 4, "d")->info.node_rank = 0;
    cr_assert_str_eq(choose(&job), "4 3 1 2");
}

Test(formation, nodes_near_to_the_leader_go_before_those_that_are_farther) {
    begin(&job, 1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_TOPOLOGY;
    static const struct {
        uint64_t incarnation;
        const char *host, *topology;
    } nodes[] = {{2, "n2", "top.s1.n2"}, {3, "n3", "top.s2.n3"},  {4, "n10", "top.s2.n10"},
                 {5, "n5", ""},          {6, "n6", "top.s20.n6"}, {1, "n9", "top.s2.n9"}};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        (void)strcpy(add(&job, nodes[i].incarnation, nodes[i].host)->info.topology, nodes[i].topology);
    /* 3 and 4 share the leader's switch, 2 and 6 the one above it; "s20" is not "s2" */
    cr_assert_str_eq(choose(&job), "1 3 4 2 6 5");
}

Test(formation, survivors_keep_their_places_and_newcomers_take_the_vacated_ones) {
    begin(&job, 1, 4);
    for (uint64_t i = 1; i <= 4; i++)
        (void)add(&job, i, "h");
    cr_assert_str_eq(choose(&job), "1 2 3 4");
    lose(&job, 2);
    cr_assert_str_eq(members(&job), "1 3 4", "the others keep their order");
    (void)add(&job, 5, "a");
    cr_assert_str_eq(choose(&job), "1 5 3 4");
    lose(&job, 5);
    lose(&job, 3);
    (void)add(&job, 6, "b");
    cr_assert_str_eq(choose(&job), "1 6 4", "what is still vacant closes up");
    lose(&job, 1);
    cr_assert_str_eq(choose(&job), "6 4", "the rank of a lost leader, too");
}

Test(formation, newcomers_without_a_vacated_place_stand_behind) {
    begin(&job, 1, 4);
    (void)add(&job, 1, "z");
    (void)add(&job, 2, "y");
    cr_assert_str_eq(choose(&job), "1 2");
    (void)add(&job, 3, "b");
    (void)add(&job, 4, "a");
    cr_assert_str_eq(choose(&job), "1 2 4 3");
}

Test(formation, survivors_go_before_newcomers_where_places_are_few) {
    begin(&job, 1, 4);
    for (uint64_t i = 1; i <= 3; i++)
        (void)add(&job, i, "h");
    cr_assert_str_eq(choose(&job), "1 2 3");
    (void)add(&job, 4, "a");
    job.c.rdzv.max_nodes = 3;
    cr_assert_str_eq(choose(&job), "1 2 3");
    job.c.rdzv.node_unit = 2;
    cr_assert_str_eq(choose(&job), "1 2", "the last of them is left out");
}

Test(formation, ranks_are_sums_over_the_nodes_and_roles_count_on_their_own) {
    begin(&job, 1, 9);
    static const struct {
        const char *role;
        uint32_t nproc;
        struct place place;
    } nodes[] = {
        {"a", 2, {.node_rank = 0, .first_rank = 0, .role_first_rank = 0, .role_world_size = 3}},
        {"b", 3, {.node_rank = 1, .first_rank = 2, .role_first_rank = 0, .role_world_size = 7}},
        {"a", 1, {.node_rank = 2, .first_rank = 5, .role_first_rank = 2, .role_world_size = 3}},
        {"b", 4, {.node_rank = 3, .first_rank = 6, .role_first_rank = 3, .role_world_size = 7}},
    };
    for (uint64_t i = 0; i < 4; i++) {
        struct node *n = add(&job, i + 1, "h");
        (void)strcpy(n->info.role, nodes[i].role);
        n->info.nproc = nodes[i].nproc;
    }
    formation_choose(&job.f, &job.r, &job.c, 3, 5, 6);
    for (size_t i = 0; i < 4; i++) {
        const struct place *p = &job.f.members[i]->place, *want = &nodes[i].place;
        cr_assert(p->node_rank == want->node_rank && p->first_rank == want->first_rank, "node %zu", i);
        cr_assert(p->role_first_rank == want->role_first_rank && p->role_world_size == want->role_world_size,
                  "node %zu", i);
        cr_assert(p->n_nodes == 4 && p->world_size == 10 && p->restarts_used == 5 && p->losses == 6, "node %zu", i);
    }
    cr_assert(job.f.world_size == 10 && formation_workers(&job.f) == 10);
}

Test(formation, agents_of_one_host_are_numbered_however_far_apart_they_stand) {
    begin(&job, 1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_JOIN;
    static const char *const hosts[] = {"a", "b", "a", "b", "a"};
    static const uint32_t index[] = {0, 0, 1, 1, 2};
    for (uint64_t i = 0; i < 5; i++)
        (void)add(&job, i + 1, hosts[i]);
    (void)choose(&job);
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(job.f.members[i]->place.host_index, index[i], "node %zu", i);
}

Test(formation, inherited_nodes_of_too_many_roles_are_placed_all_the_same) {
    begin(&job, 1, GROUP_ROLES_MAX + 2);
    for (uint64_t i = 0; i < GROUP_ROLES_MAX + 2; i++)
        (void)snprintf(add(&job, i + 1, "h")->info.role, RDZV_ROLE_MAX, "role%d", (int)i);
    formation_choose(&job.f, &job.r, &job.c, 1, 0, 0);
    cr_assert_eq(job.f.n_members, GROUP_ROLES_MAX + 2);
    cr_assert_eq(job.f.members[GROUP_ROLES_MAX + 1]->place.role_world_size, 3, "they share the last role");
    cr_assert_eq(job.f.members[0]->place.role_world_size, 1);
}

Test(formation, a_spare_has_no_place_and_waits) {
    begin(&job, 1, 2);
    for (uint64_t i = 1; i <= 3; i++)
        (void)add(&job, i, "h");
    cr_assert_str_eq(choose(&job), "1 2");
    const struct node *spare = roster_find(&job.r, 3);
    cr_assert_not(spare->is_member || spare->in_order);
    cr_assert_eq(job.r.tally[TALLY_WAITING], 1);
    lose(&job, 2);
    cr_assert_str_eq(choose(&job), "1 3", "the spare takes the place");
    cr_assert(spare->in_order && spare->place.first_rank == 1 && job.r.tally[TALLY_WAITING] == 0);
}

Test(formation, who_is_left_out_keeps_no_place_in_the_order) {
    begin(&job, 1, 2);
    (void)add(&job, 1, "a");
    struct node *away = add(&job, 2, "b");
    cr_assert_str_eq(choose(&job), "1 2");
    (void)add(&job, 3, "c");
    away->connected = false;
    cr_assert_str_eq(choose(&job), "1 3");
    cr_assert_not(away->in_order);
    away->connected = true;
    cr_assert_str_eq(choose(&job), "1 3");
}

Test(formation, generations_count_within_an_epoch) {
    begin(&job, 1, 2);
    (void)add(&job, 1, "a");
    formation_choose(&job.f, &job.r, &job.c, 4, 0, 0);
    cr_assert(job.f.generation.epoch == 4 && job.f.generation.counter == 1 && job.f.formed_here);
    job.f.n_last_lost = job.f.n_fell_silent = job.f.n_old_members = 1;
    formation_choose(&job.f, &job.r, &job.c, 4, 0, 0);
    cr_assert(job.f.generation.epoch == 4 && job.f.generation.counter == 2);
    cr_assert(job.f.n_last_lost == 0 && job.f.n_fell_silent == 0 && job.f.n_old_members == 0);
    formation_choose(&job.f, &job.r, &job.c, 5, 0, 0);
    cr_assert(job.f.generation.epoch == 5 && job.f.generation.counter == 1);
}

Test(formation, pending_leases_are_counted_of_members_alone) {
    begin(&job, 1, 3);
    for (uint64_t i = 1; i <= 3; i++)
        (void)add(&job, i, "h");
    (void)choose(&job);
    job.f.members[1]->lease_pending = job.f.members[2]->lease_pending = true;
    job.f.n_lease_pending = 2;
    struct node *second = job.f.members[1];
    formation_lose(&job.f, second, false);
    cr_assert(job.f.n_lease_pending == 1 && !second->lease_pending && !second->is_member);
    formation_end(&job.f);
    cr_assert(job.f.n_lease_pending == 0 && !roster_find(&job.r, 3)->lease_pending &&
              !roster_find(&job.r, 3)->is_member);
    cr_assert_eq(job.f.n_members, 0);
}

Test(formation, a_group_reaches_what_all_its_members_reach) {
    begin(&job, 1, 3);
    cr_assert_eq(formation_reachability(&job.f), UINT32_MAX, "nobody says otherwise");
    add(&job, 1, "a")->report.reachability = 7;
    add(&job, 2, "b")->report.reachability = 6;
    (void)choose(&job);
    cr_assert_eq(formation_reachability(&job.f), 6);
}

Test(formation, reports_count_for_the_present_generation) {
    begin(&job, 1, 2);
    struct node *n = add(&job, 1, "a");
    (void)choose(&job);
    n->report.generation = job.f.generation;
    n->report.state = NODE_PREPARED;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_PREPARED], 1);
    n->report.at_safe_point = true;
    n->report.state = NODE_FINISHED;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_PREPARED] == 0 && job.r.tally[TALLY_FINISHED] == 1 && job.r.tally[TALLY_SAFE] == 1);
    n->report.generation.counter--;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_FINISHED] == 0 && job.r.tally[TALLY_SAFE] == 0, "that was an older group");
    n->report.state = NODE_CLOSED;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_STOPPED] == 1 && job.r.tally[TALLY_CLOSED] == 1,
              "closed is stopped, of whatever group");
    n->connected = false;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_AWAY], 1);
}

Test(formation, a_silent_newcomer_is_no_candidate_but_a_silent_old_member_is) {
    begin(&job, 1, 2);
    struct node *n = add(&job, 1, "a");
    cr_assert_eq(job.r.tally[TALLY_CANDIDATE], 1);
    n->watched = true;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_CANDIDATE] == 0 && job.r.tally[TALLY_HOPEFUL] == 1);
    n->in_order = true;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_CANDIDATE], 1);
    n->connected = false;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_CANDIDATE] == 0 && job.r.tally[TALLY_UNRESOLVED] == 1, "it may still run");
    n->report.state = NODE_STOPPED;
    n->report.leaving = true;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_UNRESOLVED], 0, "it said that it has stopped, and goes");
}

Test(formation, a_node_with_workers_of_an_older_group_is_unresolved_until_it_has_stopped) {
    begin(&job, 1, 2);
    struct node *n = add(&job, 1, "a");
    n->report.state = NODE_RUNNING;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_UNRESOLVED] == 1 && job.r.tally[TALLY_CANDIDATE] == 0);
    n->report.state = NODE_STOPPED;
    formation_recount(&job.f, &job.r, n);
    cr_assert(job.r.tally[TALLY_UNRESOLVED] == 0 && job.r.tally[TALLY_CANDIDATE] == 1);
}

Test(formation, the_old_group_had_finished_where_its_members_say_so) {
    begin(&job, 1, 2);
    job.f.old_generation = (struct generation){3, 2};
    struct node *n = add(&job, 1, "a");
    n->was_old_member = n->report.finished = true;
    n->report.generation = (struct generation){3, 1};
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_OLD_FINISHED], 0, "an older one");
    n->report.generation = job.f.old_generation;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_OLD_FINISHED], 1);
    n->was_old_member = false;
    formation_recount(&job.f, &job.r, n);
    cr_assert_eq(job.r.tally[TALLY_OLD_FINISHED], 0);
}
