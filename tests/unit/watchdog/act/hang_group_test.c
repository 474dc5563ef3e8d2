#include "watchdog/act/hang_evidence_io.h"

#include "rig/unit.h"

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

Test(hang_group, more_ranks_than_the_watchdog_knows_are_refused) {
    struct hang_group g;
    struct hang_node nodes[] = {{.nproc = HANG_RANKS_MAX}, {.nproc = 1}};
    cr_assert_not(hang_group_make(generation, nodes, 2, &g));
    cr_assert_eq(g.n_nodes, 0);
    cr_assert_not(hang_group_make(generation, nodes, 0, &g), "and none at all");
}
