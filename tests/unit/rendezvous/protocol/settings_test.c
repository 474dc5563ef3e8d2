#include "rendezvous/protocol/settings.h"

#include "rig/unit.h"

Test(settings, the_defaults_make_sense) {
    struct rdzv_settings s = RDZV_SETTINGS_DEFAULT;
    cr_assert(rdzv_settings_make_sense(&s));
    cr_assert_eq(s.margin_ns, rdzv_margin_ns(s.lease_ns));
}

Test(settings, numbers_by_which_no_group_can_be_formed_do_not) {
    static const struct {
        uint32_t min, max, unit;
        bool ok;
    } cases[] = {
        {1, 1, 1, true},
        {0, 1, 1, false},
        {2, 1, 1, false},
        {1, RDZV_NODES_MAX, 1, true},
        {1, RDZV_NODES_MAX + 1, 1, false},
        {1, 1, 0, false},
        {3, 5, 4, true}, /* 4 */
        {5, 7, 4, false},
        {1, 3, 4, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct rdzv_settings s = *WITH(((struct rdzv_settings)RDZV_SETTINGS_DEFAULT), .min_nodes = cases[i].min,
                                       .max_nodes = cases[i].max, .node_unit = cases[i].unit);
        cr_assert_eq(rdzv_settings_make_sense(&s), cases[i].ok, "case %zu", i);
    }
}

Test(settings, there_is_no_group_without_a_lease_or_a_heartbeat) {
    struct rdzv_settings s = RDZV_SETTINGS_DEFAULT, t = s;
    s.lease_ns = 0;
    t.heartbeat_ns = 0;
    cr_assert_not(rdzv_settings_make_sense(&s));
    cr_assert_not(rdzv_settings_make_sense(&t));
}

Test(settings, a_margin_is_a_second_or_a_fiftieth_of_the_lease) {
    cr_assert_eq(rdzv_margin_ns(5 * NS_PER_S), NS_PER_S);
    cr_assert_eq(rdzv_margin_ns(100 * NS_PER_S), 2 * NS_PER_S);
}
