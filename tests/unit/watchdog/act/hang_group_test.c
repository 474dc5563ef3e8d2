#include "watchdog/act/hang_group.h"

#include <criterion/criterion.h>

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
