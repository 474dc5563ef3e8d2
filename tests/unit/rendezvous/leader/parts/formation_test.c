/* Members, their order and their ranks, without a group. */
#include "rendezvous/leader/parts/formation.h"

#include "rig/unit.h"

/* A job whose nodes are candidates as they come; node 1 is the leader's. */
static struct job {
    struct group_config c;
    struct roster r;
    struct formation f;
} job;

static void end(void) {
    if (job.c.leader_incarnation == 0)
        return;
    formation_fini(&job.f);
    roster_fini(&job.r);
}

static void begin(uint32_t min, uint32_t max) {
    end();
    job = (struct job){0};
    group_config_default(&job.c);
    job.c.rdzv.min_nodes = min;
    job.c.rdzv.max_nodes = max;
    job.c.leader_incarnation = 1;
    roster_init(&job.r, 1);
}

static struct node *add(uint64_t incarnation, const char *host) {
    struct node_info info = {.incarnation = incarnation, .nproc = 1, .node_rank = -1};
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    struct node *n = roster_add(&job.r, &info);
    n->connected = true;
    n->joined_ns = 1;
    formation_recount(&job.f, &job.r, n);
    return n;
}

/* One is lost, and forgotten. */
static void lose(uint64_t incarnation) {
    struct node *n = roster_find(&job.r, incarnation);
    formation_lose(&job.f, n, false);
    roster_remove(&job.r, n);
}

/* The incarnations in rank order, written "1 3 2"; valid until the next call. */
static const char *members(void) {
    static char text[1024];
    int at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < job.f.n_members; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%llu", i == 0 ? "" : " ",
                       (unsigned long long)job.f.members[i]->info.incarnation);
    return text;
}

static const char *choose(void) {
    formation_end(&job.f);
    formation_recount_all(&job.f, &job.r);
    formation_choose(&job.f, &job.r, &job.c, 1, 0, 0);
    return members();
}

TestSuite(formation, .fini = end);

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
    begin(1, 9);
    (void)add(4, "h10");
    (void)add(3, "h9");
    (void)add(1, "h99");
    (void)add(2, "h9");
    cr_assert_str_eq(choose(), "1 3 2 4", "two agents of one host as they came");
}

Test(formation, newcomers_may_stand_as_they_came) {
    begin(1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_JOIN;
    (void)add(4, "b");
    (void)add(1, "c");
    (void)add(3, "a");
    cr_assert_str_eq(choose(), "1 4 3");
}

Test(formation, a_node_rank_goes_before_the_leader_and_all_others) {
    begin(1, 9);
    (void)add(1, "a");
    (void)add(2, "b");
    add(3, "c")->info.node_rank = 1;
    add(4, "d")->info.node_rank = 0;
    add(5, "e")->info.node_rank = 1;
    cr_assert_str_eq(choose(), "4 3 5 1 2");
}

Test(formation, nodes_near_to_the_leader_go_before_those_that_are_farther) {
    begin(1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_TOPOLOGY;
    static const struct {
        uint64_t incarnation;
        const char *host, *topology;
    } nodes[] = {{2, "n2", "top.s1.n2"}, {3, "n3", "top.s2.n3"},  {4, "n10", "top.s2.n10"},
                 {5, "n5", ""},          {6, "n6", "top.s20.n6"}, {1, "n9", "top.s2.n9"}};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        (void)strcpy(add(nodes[i].incarnation, nodes[i].host)->info.topology, nodes[i].topology);
    /* 3 and 4 share the leader's switch, 2 and 6 the one above it; "s20" is not "s2" */
    cr_assert_str_eq(choose(), "1 3 4 2 6 5");
}

Test(formation, survivors_keep_their_places_and_newcomers_take_the_vacated_ones) {
    begin(1, 4);
    for (uint64_t i = 1; i <= 4; i++)
        (void)add(i, "h");
    cr_assert_str_eq(choose(), "1 2 3 4");
    lose(2);
    cr_assert_str_eq(members(), "1 3 4", "the others keep their order");
    (void)add(5, "a");
    cr_assert_str_eq(choose(), "1 5 3 4");
    lose(5);
    lose(3);
    (void)add(6, "b");
    cr_assert_str_eq(choose(), "1 6 4", "what is still vacant closes up");
    lose(1);
    cr_assert_str_eq(choose(), "6 4", "the rank of a lost leader, too");
}

Test(formation, newcomers_without_a_vacated_place_stand_behind) {
    begin(1, 4);
    (void)add(1, "z");
    (void)add(2, "y");
    cr_assert_str_eq(choose(), "1 2");
    (void)add(3, "b");
    (void)add(4, "a");
    cr_assert_str_eq(choose(), "1 2 4 3");
}

Test(formation, survivors_go_before_newcomers_where_places_are_few) {
    begin(1, 4);
    for (uint64_t i = 1; i <= 3; i++)
        (void)add(i, "h");
    cr_assert_str_eq(choose(), "1 2 3");
    (void)add(4, "a");
    job.c.rdzv.max_nodes = 3;
    cr_assert_str_eq(choose(), "1 2 3");
    job.c.rdzv.node_unit = 2;
    cr_assert_str_eq(choose(), "1 2", "the last of them is left out");
}

Test(formation, ranks_are_sums_over_the_nodes_and_roles_count_on_their_own) {
    begin(1, 9);
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
        struct node *n = add(i + 1, "h");
        (void)strcpy(n->info.role, nodes[i].role);
        n->info.nproc = nodes[i].nproc;
    }
    formation_choose(&job.f, &job.r, &job.c, 3, 5, 6);
    for (size_t i = 0; i < 4; i++) {
        const struct place *p = &job.f.members[i]->place, *want = &nodes[i].place;
        cr_assert(p->node_rank == want->node_rank && p->first_rank == want->first_rank, "node %zu", i);
        cr_assert(p->role_first_rank == want->role_first_rank && p->role_world_size == want->role_world_size,
                  "node %zu", i);
    }
    cr_assert(job.f.world_size == 10 && formation_workers(&job.f) == 10);
    cr_assert(job.f.restarts_used == 5 && job.f.losses == 6);
}

Test(formation, agents_of_one_host_are_numbered_however_far_apart_they_stand) {
    begin(1, 9);
    job.c.rdzv.rank_order = RANK_ORDER_JOIN;
    static const char *const hosts[] = {"a", "b", "a", "b", "a"};
    static const uint32_t index[] = {0, 0, 1, 1, 2};
    for (uint64_t i = 0; i < 5; i++)
        (void)add(i + 1, hosts[i]);
    (void)choose();
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(job.f.members[i]->place.host_index, index[i], "node %zu", i);
}

Test(formation, inherited_nodes_of_too_many_roles_are_placed_all_the_same) {
    begin(1, GROUP_ROLES_MAX + 2);
    for (uint64_t i = 0; i < GROUP_ROLES_MAX + 2; i++)
        (void)snprintf(add(i + 1, "h")->info.role, RDZV_ROLE_MAX, "role%d", (int)i);
    formation_choose(&job.f, &job.r, &job.c, 1, 0, 0);
    cr_assert_eq(job.f.n_members, GROUP_ROLES_MAX + 2);
    cr_assert_eq(job.f.members[GROUP_ROLES_MAX + 1]->place.role_world_size, 3, "they share the last role");
    cr_assert_eq(job.f.members[0]->place.role_world_size, 1);
}

Test(formation, a_spare_has_no_place_and_waits) {
    begin(1, 2);
    for (uint64_t i = 1; i <= 3; i++)
        (void)add(i, "h");
    cr_assert_str_eq(choose(), "1 2");
    const struct node *spare = roster_find(&job.r, 3);
    cr_assert_not(spare->is_member || spare->in_order);
    cr_assert_eq(job.r.tally[TALLY_WAITING], 1);
    lose(2);
    cr_assert_str_eq(choose(), "1 3", "the spare takes the place");
    cr_assert(spare->in_order && spare->place.first_rank == 1 && job.r.tally[TALLY_WAITING] == 0);
}

Test(formation, who_is_left_out_keeps_no_place_in_the_order) {
    begin(1, 2);
    (void)add(1, "a");
    struct node *away = add(2, "b");
    cr_assert_str_eq(choose(), "1 2");
    (void)add(3, "c");
    away->connected = false;
    cr_assert_str_eq(choose(), "1 3");
    cr_assert_not(away->in_order);
    away->connected = true;
    cr_assert_str_eq(choose(), "1 3");
}

Test(formation, generations_count_within_an_epoch) {
    begin(1, 2);
    (void)add(1, "a");
    formation_choose(&job.f, &job.r, &job.c, 4, 0, 0);
    cr_assert(job.f.generation.epoch == 4 && job.f.generation.counter == 1 && job.f.formed_here);
    job.f.n_last_lost = job.f.n_fell_silent = job.f.n_old_members = 1;
    formation_choose(&job.f, &job.r, &job.c, 4, 0, 0);
    cr_assert(job.f.generation.epoch == 4 && job.f.generation.counter == 2);
    cr_assert(job.f.n_last_lost == 0 && job.f.n_fell_silent == 0 && job.f.n_old_members == 0);
    formation_choose(&job.f, &job.r, &job.c, 5, 0, 0);
    cr_assert(job.f.generation.epoch == 5 && job.f.generation.counter == 1);
}

Test(formation, reports_count_for_the_present_generation) {
    begin(1, 2);
    struct node *n = add(1, "a");
    (void)choose();
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
}

Test(formation, a_silent_newcomer_is_no_candidate_but_a_silent_old_member_is) {
    begin(1, 2);
    struct node *n = add(1, "a");
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

Test(formation, the_old_group_had_finished_where_its_members_say_so) {
    begin(1, 2);
    job.f.old_generation = (struct generation){3, 2};
    struct node *n = add(1, "a");
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

/* ---- units of one domain ---- */

/* A job in units of `unit` nodes of one domain. */
static void begin_units(uint32_t min, uint32_t max, uint32_t unit) {
    begin(min, max);
    job.c.rdzv.node_unit = job.r.unit = unit;
}

/* Host "a12" is of domain "a"; the first one is the leader's. */
static void add_host(const char *host) {
    struct node *n = add(job.r.join_counter + 1, host);
    n->report.domain[0] = host[0];
    formation_recount(&job.f, &job.r, n);
}

/* Hosts written "a1 a2 b1". */
static void add_hosts(const char *hosts) {
    char host[8];
    for (int len; sscanf(hosts, "%7s%n", host, &len) == 1; hosts += len)
        add_host(host);
}

static struct node *find_host(const char *host) {
    LIST_FOR_EACH(struct node, n, &job.r.nodes, by_all)
        if (strcmp(n->info.host, host) == 0)
            return n;
    cr_assert_fail("there is no host %s", host);
    return NULL;
}

static void lose_hosts(const char *hosts) {
    char host[8];
    for (int len; sscanf(hosts, "%7s%n", host, &len) == 1; hosts += len)
        lose(find_host(host)->info.incarnation);
}

/* Chooses the next group: its hosts in rank order; valid until the next call. */
static const char *hosts(void) {
    static char text[256];
    int at = 0;
    (void)choose();
    for (size_t i = 0; i < job.f.n_members; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", i == 0 ? "" : " ", job.f.members[i]->info.host);
    return text;
}

struct story {
    uint32_t min, max, unit;
    const char *come, *first; /* the nodes that come, and the first group */
    const char *lost, *come_then, *then;
};

static void check_story(const struct story *s, bool any) {
    begin_units(s->min, s->max, s->unit);
    if (any)
        job.r.unit = 0;
    add_hosts(s->come);
    cr_expect_str_eq(hosts(), s->first, "first of %s", s->come);
    lose_hosts(s->lost);
    add_hosts(s->come_then);
    const char *then = hosts();
    cr_expect_str_eq(then, s->then, "%s after %s was lost and %s came, not %s", then, s->lost, s->come_then, s->then);
}

Test(formation, a_unit_is_of_one_domain) {
    static const struct story stories[] = {
        /* whole units of two domains, not five of one and three of the other */
        {4, 8, 4, "a1 a2 a3 a4 a5 b1 b2 b3 b4 b5", "a1 a2 a3 a4 b1 b2 b3 b4", "", "", "a1 a2 a3 a4 b1 b2 b3 b4"},
        /* a spare of the same domain takes the place */
        {4, 8, 4, "a1 a2 a3 a4 a5 b1 b2 b3 b4 b5", "a1 a2 a3 a4 b1 b2 b3 b4", "b2", "", "a1 a2 a3 a4 b1 b5 b3 b4"},
        /* the group shrinks by the unit, never to a mixed one */
        {4, 8, 4, "a1 a2 a3 a4 b1 b2 b3 b4", "a1 a2 a3 a4 b1 b2 b3 b4", "a2", "", "b1 b2 b3 b4"},
        /* a whole other unit comes in its place */
        {2, 4, 2, "a1 a2 b1 b2 c1 c2", "a1 a2 b1 b2", "a1", "", "c1 c2 b1 b2"},
        {2, 4, 2, "a1 a2 b1 b2 c1", "a1 a2 b1 b2", "a1", "", "b1 b2"},
        {2, 6, 2, "a1 a2 b1 b2", "a1 a2 b1 b2", "a1", "c1 c2 d1 d2", "c1 c2 b1 b2 d1 d2"},
        {2, 4, 2, "a1 a2 b1 b2 c1 d1 d2", "a1 a2 b1 b2", "a1", "", "d1 d2 b1 b2"},
        /* domains and their units stay together */
        {2, 8, 2, "a1 a2 b1 b2", "a1 a2 b1 b2", "", "a3 a4 c1 c2", "a1 a2 a3 a4 b1 b2 c1 c2"},
        /* a missing node of the unit that lacks least; the rest of the other unit fills it */
        {2, 8, 2, "a1 a2 a3 a4 b1 b2", "a1 a2 a3 a4 b1 b2", "a2 a3", "", "a1 a4 b1 b2"},
        {3, 9, 3, "a1 a2 a3 a4 a5 a6", "a1 a2 a3 a4 a5 a6", "a1 a2 a5", "", "a4 a3 a6"},
        {3, 9, 3, "a1 a2 a3 a4 a5 a6 a7", "a1 a2 a3 a4 a5 a6", "a1 a2 a5", "", "a4 a7 a6"},
        {2, 4, 2, "a1 a2 a3 a4 a5", "a1 a2 a3 a4", "a1 a2", "", "a3 a4"},
        {3, 6, 3, "a1 a2 a3 a4 a5 a6", "a1 a2 a3 a4 a5 a6", "a3 a5", "", "a1 a2 a4"},
        /* without a unit, a place keeps its domain while a spare of it exists */
        {1, 4, 1, "a1 a2 a3 b1 b2 b3", "a1 a2 a3 b1", "", "", "a1 a2 a3 b1"},
        {1, 4, 1, "b1 b2 a1 a2 a3 b3", "b1 a1 a2 a3", "a2", "", "b1 b2 a1 a3"},
        {1, 4, 1, "a1 a2 b1 b2", "a1 a2 b1 b2", "b1", "a5 b5", "a1 a2 b5 b2"},
        {1, 4, 1, "a1 a2 b1 b2", "a1 a2 b1 b2", "a1 a2", "c1 b5", "c1 b1 b2 b5"},
        {1, 5, 1, "a1 a2 b1 b2", "a1 a2 b1 b2", "a2", "a5 a6", "a1 a5 a6 b1 b2"},
        {1, 4, 1, "a1 a2 b1 b2", "a1 a2 b1 b2", "a2", "", "a1 b1 b2"},
        /* the largest number is of whole units */
        {2, 5, 2, "a1 a2 b1 b2 c1 c2", "a1 a2 b1 b2", "", "", "a1 a2 b1 b2"},
        /* the leader's node leads as a spare if its domain has no whole unit */
        {2, 4, 2, "z1 a1 a2 b1 b2", "a1 a2 b1 b2", "", "", "a1 a2 b1 b2"},
        {2, 2, 2, "z1 z2 a1 a2", "z1 z2", "", "", "z1 z2"},
        {4, 4, 4, "a9 a1 a2 a3 a4 a5", "a9 a1 a2 a3", "a1", "", "a9 a4 a2 a3"},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        check_story(&stories[i], false);
}

Test(formation, the_newcomers_for_gaps_begin_no_new_unit) {
    begin_units(2, 6, 2);
    job.c.rdzv.rank_order = RANK_ORDER_JOIN;
    add_hosts("a1 a2 b1 b2");
    (void)hosts();
    lose_hosts("a1 a2");
    add_hosts("a3 a4 c1 c2 a5 a6");
    cr_assert_str_eq(hosts(), "a3 a4 b1 b2 c1 c2", "a5 came after c1");
}

Test(formation, units_of_any_nodes_are_counted_alone) {
    static const struct story stories[] = {
        {4, 8, 4, "a1 a2 a3 a4 a5 b1 b2 b3 b4 b5", "a1 a2 a3 a4 a5 b1 b2 b3", "b2", "", "a1 a2 a3 a4 a5 b1 b4 b3"},
        {4, 8, 4, "a1 a2 a3 a4 b1 b2 b3 b4", "a1 a2 a3 a4 b1 b2 b3 b4", "a2", "", "a1 a3 a4 b1"},
    };
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++)
        check_story(&stories[i], true);
}

Test(formation, a_node_without_a_domain_makes_all_count_alone) {
    begin_units(4, 8, 4);
    add_hosts("a1 a2 a3 a4 a5 b1 b2 b3");
    find_host("b3")->report.domain[0] = '\0';
    cr_assert_str_eq(hosts(), "a1 a2 a3 a4 a5 b1 b2 b3");
    cr_assert(!roster_has_domains(&job.r) && roster_usable(&job.r, TALLY_CANDIDATE) == 8);
    /* a node that can't take part needs none */
    find_host("b3")->report.excluded = true;
    cr_assert_str_eq(hosts(), "a1 a2 a3 a4");
    cr_assert(roster_has_domains(&job.r) && roster_usable(&job.r, TALLY_CANDIDATE) == 4);
}

Test(formation, a_late_domain_counts_from_the_next_group_on) {
    begin_units(2, 4, 2);
    add_hosts("a1 b1 a2 b2");
    struct node *late = find_host("a2");
    late->report.domain[0] = '\0';
    cr_assert_str_eq(hosts(), "a1 a2 b1 b2");
    late->report.domain[0] = 'b';
    cr_assert_str_eq(hosts(), "a2 b1", "the order is that of the last group");
    late->report.domain[0] = 'a';
    cr_assert_str_eq(hosts(), "a2 a1 b1 b2");
    /* one that is lost before the next group was formed keeps its place for its domain, too */
    begin_units(1, 2, 1);
    add_hosts("a1 b1");
    late = find_host("b1");
    late->report.domain[0] = '\0';
    cr_assert_str_eq(hosts(), "a1 b1");
    late->report.domain[0] = 'b';
    formation_recount(&job.f, &job.r, late);
    lose_hosts("b1");
    add_hosts("a2 b2");
    cr_assert_str_eq(hosts(), "a1 b2");
}

Test(formation, a_newcomer_without_a_domain_waits_for_it) {
    begin_units(2, 4, 2);
    add_hosts("a1 a2 b1");
    cr_assert_str_eq(hosts(), "a1 a2");
    add_hosts("b2");
    struct node *late = find_host("b2");
    late->report.domain[0] = '\0';
    cr_assert_str_eq(hosts(), "a1 a2");
    cr_assert(job.r.tally[TALLY_CANDIDATE] == 4 && roster_usable(&job.r, TALLY_CANDIDATE) == 2);
    late->report.domain[0] = 'b';
    cr_assert_str_eq(hosts(), "a1 a2 b1 b2");
    late->report.domain[0] = '\0';
    cr_assert_str_eq(hosts(), "a1 a2 b1 b2", "a member's counts, so all count alone");
    cr_assert_not(roster_has_domains(&job.r));
}

Test(formation, a_new_leader_knows_the_domains_of_lost_places) {
    struct handover_member left[] = {{.incarnation = 11, .domain = "a"}, {.incarnation = 2, .domain = "b"}};
    struct handover handover = {.formed = {1, 1}, .n_order = 2, .n_members = 2, .members = left};
    begin_units(1, 2, 1);
    formation_inherit(&job.f, &handover);
    (void)add(1, "c1");
    add_hosts("b1 b2 a9");
    find_host("c1")->report.domain[0] = 'c';
    formation_recount_all(&job.f, &job.r);
    cr_assert_str_eq(hosts(), "a9 b1");
}

/* ---- racks ---- */

#define RACK 18
#define RACK_UNIT 16
#define RACKS_MAX 8

static char rack_of(const struct node *n) { return n->report.domain[0]; }

/* The group is as large as the candidates allow, of whole units, domain by domain; no domain has fewer units than before
 * while its nodes suffice; and if each has as many, each survivor has its old rank. */
static void check_group(const uint64_t *before, const char *racks_before, size_t n_before) {
    size_t nodes[256] = {0}, units[256] = {0}, old_units[256] = {0}, whole = 0;
    bool same = true;
    LIST_FOR_EACH(struct node, n, &job.r.nodes, by_all)
        nodes[(unsigned char)rack_of(n)]++;
    for (size_t i = 0; i < 256; i++)
        whole += nodes[i] / RACK_UNIT * RACK_UNIT;
    cr_assert_eq(job.f.n_members, formation_size(&job.c, whole));
    cr_assert_eq(roster_usable(&job.r, TALLY_CANDIDATE), whole);
    for (size_t i = 0; i < job.f.n_members; i++) {
        unsigned char rack = (unsigned char)rack_of(job.f.members[i]);
        bool first = i == 0 || rack_of(job.f.members[i - 1]) != rack_of(job.f.members[i]);
        cr_assert(!first || (i % RACK_UNIT == 0 && units[rack] == 0), "rank %zu", i);
        units[rack] += i % RACK_UNIT == 0;
        cr_assert_eq(job.f.members[i]->place.node_rank, i);
    }
    for (size_t i = 0; i < n_before; i += RACK_UNIT)
        old_units[(unsigned char)racks_before[i]]++;
    for (size_t i = 0; i < 256; i++) {
        cr_assert_geq(units[i], MIN2(old_units[i], nodes[i] / RACK_UNIT), "rack %c", (char)i);
        same = same && units[i] == old_units[i];
    }
    for (size_t i = 0; same && i < n_before; i++)
        if (roster_find(&job.r, before[i]) != NULL)
            cr_assert_eq(job.f.members[i]->info.incarnation, before[i], "rank %zu", i);
}

static void choose_and_check(const uint64_t *lost, size_t n_lost) {
    uint64_t before[RACKS_MAX * RACK];
    char racks[RACKS_MAX * RACK];
    size_t n = job.f.n_members;
    for (size_t i = 0; i < n; i++) {
        before[i] = job.f.members[i]->info.incarnation;
        racks[i] = rack_of(job.f.members[i]);
    }
    for (size_t i = 0; i < n_lost; i++)
        lose(lost[i]);
    (void)choose();
    check_group(before, racks, n);
}

/* A member, or behind the last of them a spare. */
static const struct node *nth(size_t i) {
    if (i < job.f.n_members)
        return job.f.members[i];
    i -= job.f.n_members;
    LIST_FOR_EACH(struct node, n, &job.r.nodes, by_all)
        if (!n->is_member && i-- == 0)
            return n;
    cr_assert_fail("there are fewer nodes");
    return NULL;
}

static void add_to_rack(char rack) { add_host(rig_text("%c%d", rack, (int)job.r.join_counter)); }

/* Nodes of these ranks are lost, at once or one after the other; then others come in their place. */
static void lose_ranks(const size_t *ranks, size_t n, bool at_once) {
    uint64_t lost[3];
    char racks[3];
    for (size_t i = 0; i < n; i++) {
        lost[i] = nth(ranks[i])->info.incarnation;
        racks[i] = rack_of(nth(ranks[i]));
    }
    for (size_t i = 0; i < n && !at_once; i++)
        choose_and_check(&lost[i], 1);
    if (at_once)
        choose_and_check(lost, n);
    for (size_t i = 0; i < n; i++)
        add_to_rack(racks[i]);
    choose_and_check(NULL, 0);
}

/* Each node is lost, each pair, and a third one of the rack with some of the pairs, which dissolves the unit. */
static void lose_each_pair(size_t racks, uint32_t max) {
    begin_units(RACK_UNIT, max, RACK_UNIT);
    size_t nodes = racks * RACK;
    for (size_t i = 0; i < nodes; i++)
        add_to_rack((char)('a' + i % racks));
    choose_and_check(NULL, 0);
    for (size_t i = 0; i < nodes; i++)
        lose_ranks(&i, 1, true);
    for (size_t i = 0; i < nodes; i++)
        for (size_t k = i + 1; k < nodes; k++) {
            size_t ranks[] = {i, k, (i + 1) % nodes};
            lose_ranks(ranks, racks > 1 && k % 8 == 0 && k > i + 1 ? 3 : 2, (i + k) % 2 == 0);
        }
}

Test(formation, one_rack_loses_each_node_and_each_pair) { lose_each_pair(1, RACK_UNIT); }
Test(formation, two_racks_lose_each_node_and_each_pair) { lose_each_pair(2, 2 * RACK_UNIT); }
Test(formation, one_of_two_racks_is_spare) { lose_each_pair(2, RACK_UNIT); }
Test(formation, eight_racks_lose_each_node_and_each_pair) { lose_each_pair(8, 8 * RACK_UNIT); }

/* ---- sick nodes ---- */

static void falls_sick(uint64_t incarnation) {
    struct node *n = roster_find(&job.r, incarnation);
    (void)node_set_text(&n->report.sick, "its GPU is lost");
    formation_recount(&job.f, &job.r, n);
}

Test(formation, sick_nodes_are_left_out_if_the_others_are_enough) {
    begin(2, 4);
    for (uint64_t i = 1; i <= 4; i++)
        (void)add(i, "h");
    cr_assert_str_eq(choose(), "1 2 3 4");
    falls_sick(2);
    cr_assert_str_eq(choose(), "1 3 4");
    falls_sick(1);
    cr_assert_str_eq(choose(), "3 4", "also the leader's node");
    cr_assert_eq(job.r.tally[TALLY_SICK], 2);
    falls_sick(3);
    cr_assert_str_eq(choose(), "3 4 1 2", "one fit node is not enough");
    (void)node_set_text(&roster_find(&job.r, 2)->report.sick, "");
    formation_recount_all(&job.f, &job.r);
    cr_assert_str_eq(choose(), "4 2", "fit nodes keep their order");
}

/* With a spare, only as many sick nodes are taken as are missing; first those that had a place. */
Test(formation, of_sick_and_fit_nodes_the_fit_ones_are_taken_first) {
    begin(2, 2);
    for (uint64_t i = 1; i <= 2; i++)
        (void)add(i, "h");
    cr_assert_str_eq(choose(), "1 2");
    (void)add(3, "h");
    (void)add(4, "h");
    falls_sick(1);
    falls_sick(2);
    falls_sick(3);
    cr_assert_str_eq(choose(), "1 4");
    cr_assert(roster_find(&job.r, 4)->is_newcomer && !roster_find(&job.r, 1)->is_newcomer);
}

Test(formation, sick_nodes_take_part_if_they_are_only_reported) {
    begin(1, 2);
    job.r.sick_are_fit = true;
    (void)add(1, "h");
    (void)add(2, "h");
    falls_sick(1);
    cr_assert_str_eq(choose(), "1 2");
    cr_assert_eq(job.r.tally[TALLY_SICK], 0);
}

Test(formation, units_of_a_domain_are_made_of_fit_nodes_if_these_are_enough) {
    begin(2, 4);
    job.c.rdzv.node_unit = job.r.unit = 2;
    static const char domains[] = "xxyy";
    for (uint64_t i = 1; i <= 4; i++) {
        struct node *n = add(i, "h");
        n->report.domain[0] = domains[i - 1];
        formation_recount(&job.f, &job.r, n);
    }
    cr_assert_str_eq(choose(), "1 2 3 4");
    falls_sick(2);
    cr_assert_str_eq(choose(), "3 4", "node 1 has no partner");
    falls_sick(3);
    cr_assert_str_eq(choose(), "3 4 1 2", "no whole unit is fit");
}
