#include "watchdog/act/hang_group.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "watchdog/judge/hang.h"

static const struct generation generation = {1, 2};

Test(hang_group, ranks_follow_the_order_of_the_nodes) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {{.incarnation = 7, .nproc = 2, .name = "a"},
                                {.incarnation = 5, .nproc = 1, .name = "b"}};
    cr_assert(hang_group_make(generation, nodes, 2, &g));
    cr_assert_eq(g.world_size, 3);
    cr_assert_eq(g.nodes[1].first_rank, 2);
    cr_assert_eq(g.node_of[1], 0);
    cr_assert_eq(g.node_of[2], 1);
    cr_assert_eq(hang_group_find(&g, 5), 1);
    cr_assert_eq(hang_group_find(&g, 6), 2, "it is no member");
}

Test(hang_group, agents_of_one_host_are_told_apart) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node nodes[] = {
        {.nproc = 1, .name = "a"}, {.nproc = 1, .name = "b"}, {.nproc = 1, .name = "a"}, {.nproc = 1, .name = "a"}};
    cr_assert(hang_group_make(generation, nodes, 4, &g));
    cr_assert_str_eq(g.nodes[0].name, "a");
    cr_assert_str_eq(g.nodes[1].name, "b");
    cr_assert_str_eq(g.nodes[2].name, "a-2");
    cr_assert_str_eq(g.nodes[3].name, "a-3");
}

Test(hang_group, a_copy_is_another_one) {
    _cleanup_(hang_group_fini) struct hang_group g, copy;
    struct hang_node node = {.incarnation = 7, .nproc = 2, .name = "a"};
    cr_assert(hang_group_make(generation, &node, 1, &g));
    hang_group_copy(&g, &copy);
    hang_group_fini(&g);
    cr_assert_eq(copy.world_size, 2);
    cr_assert_eq(copy.nodes[0].incarnation, 7);
    cr_assert_eq(copy.node_of[1], 0);
    hang_group_copy(&g, &g); /* an empty one */
    cr_assert_eq(g.world_size, 0);
}

Test(hang_group, more_ranks_than_the_watchdog_knows_are_refused) {
    struct hang_group g;
    struct hang_node nodes[] = {{.nproc = HANG_RANKS_MAX}, {.nproc = 1}};
    cr_assert_not(hang_group_make(generation, nodes, 2, &g));
    cr_assert_eq(g.n_nodes, 0);
    cr_assert_not(hang_group_make(generation, nodes, 0, &g), "and none at all");
}

static double used_seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In the agent's loop. */
Test(hang_group, the_largest_one_is_made_in_time) {
    _cleanup_(hang_group_fini) struct hang_group g;
    struct hang_node *nodes = xcalloc(HANG_RANKS_MAX, sizeof *nodes);
    for (uint32_t i = 0; i < HANG_RANKS_MAX; i++) {
        nodes[i].nproc = 1;
        (void)snprintf(nodes[i].name, sizeof nodes[i].name, "node%u", i / 2);
    }
    double before = used_seconds();
    cr_assert(hang_group_make(generation, nodes, HANG_RANKS_MAX, &g));
    cr_expect_lt(used_seconds() - before, 1.0);
    cr_expect_str_eq(g.nodes[HANG_RANKS_MAX - 2].name, "node32767");
    cr_expect_str_eq(g.nodes[HANG_RANKS_MAX - 1].name, "node32767-2");
    free(nodes);
}
