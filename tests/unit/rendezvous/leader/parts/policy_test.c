#include "../group_rig.h"

#include <inttypes.h>

#include "rig/unit.h"

#define ALL 0xfeu

static struct rig rig; /* of a test that has one; ended with it */

static void finish(void) { end(&rig); }

TestSuite(policy, .fini = finish);

/* ---- how many, and who ---- */

Test(policy, the_group_is_the_largest_multiple_of_the_unit_between_min_and_max) {
    static const struct {
        uint32_t min, max, unit;
        uint64_t nodes;
        size_t wanted; /* 0: none is formed */
    } cases[] = {
        {2, 8, 2, 5, 4}, {2, 8, 2, 2, 2}, {1, 8, 4, 3, 0}, {1, 8, 4, 4, 4}, {3, 8, 2, 3, 0},
        {3, 8, 2, 4, 4}, {3, 5, 2, 5, 4}, {1, 7, 1, 7, 7}, {1, 7, 1, 3, 3}, {5, 7, 3, 7, 6},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].min, cases[i].max);
        c.rdzv.node_unit = cases[i].unit;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, cases[i].nodes, GROUP_GATHERING);
        pass(&r, 30, ALL);
        cr_assert_eq(group_members(r.g, NULL, 0), cases[i].wanted, "case %zu: %s", i, members(&r));
    }
}

Test(policy, a_unit_that_does_not_fit_between_min_and_max_is_refused) {
    static const struct {
        uint32_t min, max, unit;
        bool fits;
    } cases[] = {{3, 3, 2, false}, {3, 4, 2, true}, {1, 3, 4, false}, {1, 4, 4, true}, {1, 1, 0, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].min, cases[i].max);
        c.rdzv.node_unit = cases[i].unit;
        struct group *g = NULL;
        cr_assert_eq(group_new(&c, 0, &g) == 0, cases[i].fits, "case %zu", i);
        group_free(g);
    }
}

Test(policy, need_is_min_rounded_up_to_the_unit_and_people_are_told_so) {
    struct group_config c = config_of(3, 8);
    c.rdzv.node_unit = 2;
    bring_to(&rig, &c, 3, GROUP_GATHERING);
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    cr_assert_eq(s.min_nodes, 4);
    pass(&rig, 600, ALL);
    assert_state(&rig, GROUP_CLOSED);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "3 of at least 4"), "%s", told(&rig, 1).reason);
}

Test(policy, whoever_is_beyond_the_group_waits_as_a_spare_and_is_told_so) {
    struct group_config c = config_of(2, 8);
    c.rdzv.node_unit = 2;
    bring_to(&rig, &c, 5, GROUP_GATHERING);
    cr_assert(!told(&rig, 5).spare, "nobody is a spare before there is a group");
    pass(&rig, 29.75, ALL);
    rig.now_ns += S(0.25);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_TIME});
    cr_assert_str_eq(members(&rig), "1 2 3 4");
    cr_assert_eq(count(&rig, GROUP_EFFECT_DESIRED, 5), 1);
    cr_assert_eq(told(&rig, 5).kind, DESIRED_IDLE);
    cr_assert(told(&rig, 5).spare);
    start(&rig);
    join(&rig, 6);
    cr_assert_eq(count(&rig, GROUP_EFFECT_DESIRED, 6), 1);
    cr_assert(told(&rig, 6).spare);
    pass(&rig, 3600, ALL);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert(told(&rig, 5).spare && told(&rig, 6).spare, "without a time limit");
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert_eq(o.n_nodes, 6);
}

Test(policy, a_spare_takes_the_lost_nodes_place_and_the_others_keep_their_ranks) {
    begin(&rig, config_at(config_of(3, 3)));
    static const uint32_t nproc[] = {0, 1, 2, 4, 8};
    for (uint64_t node = 1; node <= 4; node++) {
        struct node_info info = info_of(node);
        info.nproc = nproc[node];
        join_info(&rig, &info);
    }
    start(&rig);
    cr_assert_str_eq(members(&rig), "1 2 3");
    lose(&rig, 2);
    stopped(&rig);
    open_store(&rig);
    cr_assert_str_eq(members(&rig), "1 4 3");
    static const uint32_t first[] = {0, 0, 99, 9, 1};
    for (uint64_t node = 1; node <= 4; node++) {
        if (node == 2)
            continue;
        struct form f = told(&rig, node).form;
        cr_assert_eq(f.first_rank, first[node], "node %d begins at %u", (int)node, f.first_rank);
        cr_assert_eq(f.world_size, 13);
        cr_assert(f.n_nodes == 3 && f.losses == 1 && f.restarts_used == 0);
    }
}

Test(policy, the_order_closes_up_where_nobody_takes_the_place) {
    bring_to(&rig, config_at(config_of(2, 4)), 4, GROUP_RUNNING);
    lose(&rig, 2);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 3 4");
    start(&rig);
    lose(&rig, 1);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "3 4");
    cr_assert_eq(generation_compare(group_generation(rig.g), (struct generation){1, 3}), 0);
}

Test(policy, members_of_the_last_group_stay_before_newcomers_come_in) {
    struct group_config c = config_of(2, 3);
    c.rdzv.node_unit = 1;
    c.rdzv.max_restarts = 1;
    begin(&rig, &c);
    static const uint64_t came[] = {1, 7, 6, 2, 3}; /* 2 and 3 come first by name */
    for (size_t i = 0; i < ARRAY_SIZE(came); i++)
        join(&rig, came[i]);
    cr_assert_str_eq(members(&rig), "1 6 7");
    start(&rig);
    fails(&rig, 7, FAILURE_OOM, 1000);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 6 7");
    start(&rig);
    lose(&rig, 6);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2 7", "of those who wait, the first by order");
}

Test(policy, more_spares_than_wanted_are_refused_for_now) {
    for (uint32_t spares = 0; spares < 3; spares++) {
        struct group_config c = config_of(1, 2);
        c.rdzv.spares = spares;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, GROUP_RUNNING);
        for (uint64_t node = 3; node < 3 + spares; node++) {
            join(&r, node);
            cr_assert_null(effect(&r, GROUP_EFFECT_REFUSE), "%u spares", spares);
        }
        join(&r, 6);
        const struct group_effect *e = effect(&r, GROUP_EFFECT_REFUSE);
        cr_assert(e != NULL && e->node == 6 && e->for_now);
        cr_assert_not_null(strstr(e->reason, "--spares"));
        join(&r, 2);
        cr_assert_null(effect(&r, GROUP_EFFECT_REFUSE), "a member that comes back is none too many");
        lose(&r, 2);
        join(&r, 6);
        cr_assert_null(effect(&r, GROUP_EFFECT_REFUSE), "there is room now");
    }
}

/* ---- order ---- */

struct newcomer {
    uint64_t node;
    const char *host, *topology;
    int32_t node_rank;
};

static const char *order_of(enum rdzv_rank_order order, const struct newcomer *nodes, size_t n) {
    struct group_config c = config_of((uint32_t)n, (uint32_t)n);
    c.rdzv.rank_order = order;
    struct rig r;
    begin(&r, &c);
    for (size_t i = 0; i < n; i++) {
        struct node_info info = info_of(nodes[i].node);
        (void)snprintf(info.host, sizeof info.host, "%s", nodes[i].host);
        (void)snprintf(info.topology, sizeof info.topology, "%s", nodes[i].topology);
        info.node_rank = nodes[i].node_rank;
        join_info(&r, &info);
    }
    const char *text = members(&r);
    end(&r);
    return text;
}

Test(policy, newcomers_are_ordered_by_host_by_coming_or_by_place_in_the_network) {
    static const struct newcomer nodes[] = {
        {5, "node10", "s2.l1", -1}, {4, "node9", "s10.l1", -1}, {1, "zz", "s9.l9", -1},
        {3, "node2", "s2.l10", -1}, {2, "node1", "s2.l1", -1},
    };
    cr_expect_str_eq(order_of(RANK_ORDER_HOST, nodes, 5), "1 2 3 4 5");
    cr_expect_str_eq(order_of(RANK_ORDER_JOIN, nodes, 5), "1 5 4 3 2");
    cr_expect_str_eq(order_of(RANK_ORDER_TOPOLOGY, nodes, 5), "1 2 5 3 4");
}

/* It has rank 0, and stands on the second leaf: by name alone that would be left and come to again. */
Test(policy, the_leaders_switch_is_left_once) {
    static const struct newcomer nodes[] = {
        {2, "n1", "top.s1.l1.n1", -1},  {3, "n2", "top.s1.l2.n2", -1}, {1, "n5", "top.s2.l2.n5", -1},
        {4, "n3", "top.s2.l1.n3", -1},  {5, "n4", "top.s2.l2.n4", -1}, {6, "n6", "", -1},
        {7, "n7", "top.s2.l20.n7", -1},
    };
    cr_expect_str_eq(order_of(RANK_ORDER_TOPOLOGY, nodes, 7), "1 5 4 7 2 3 6");
}

Test(policy, a_rank_of_its_own_goes_before_the_leader_and_every_order) {
    static const struct newcomer nodes[] = {
        {1, "a", "", -1}, {2, "b", "", 7}, {3, "c", "", -1}, {4, "d", "", 3}, {5, "e", "", 7},
    };
    cr_expect_str_eq(order_of(RANK_ORDER_HOST, nodes, 5), "4 2 5 1 3");
    cr_expect_str_eq(order_of(RANK_ORDER_JOIN, nodes, 5), "4 2 5 1 3");
}

/* ---- what is waited for after a loss ---- */

Test(policy, a_lost_place_is_kept_for_the_regroup_wait_and_then_given_up) {
    struct group_config c = config_of(2, 3);
    c.rdzv.regroup_wait_ns = S(20);
    struct rig r;
    bring_to(&r, &c, 3, GROUP_RUNNING);
    lose(&r, 3);
    stopped(&r);
    assert_state(&r, GROUP_GATHERING);
    pass(&r, 19.75, ALL);
    assert_state(&r, GROUP_GATHERING);
    pass(&r, 0.25, ALL);
    assert_state(&r, GROUP_FORMING);
    cr_assert_str_eq(members(&r), "1 2");
    end(&r);
    bring_to(&r, &c, 3, GROUP_RUNNING);
    lose(&r, 2);
    stopped(&r);
    pass(&r, 10, ALL);
    join(&r, 7);
    assert_state(&r, GROUP_FORMING);
    cr_assert_str_eq(members(&r), "1 7 3");
    end(&r);
}

Test(policy, a_group_that_lost_nobody_does_not_wait) {
    struct group_config c = config_of(2, 4);
    c.rdzv.regroup_wait_ns = S(20);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_GATHERING);
    pass(&rig, 30, ALL);
    start(&rig);
    fails(&rig, 2, FAILURE_OOM, 1000);
    stopped(&rig);
    assert_state(&rig, GROUP_FORMING);
}

Test(policy, below_min_the_regroup_wait_is_the_last_chance) {
    for (int comes = 0; comes < 2; comes++) {
        struct group_config c = config_of(3, 3);
        c.rdzv.regroup_wait_ns = S(20);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        lose(&r, 3);
        cr_assert(told(&r, 1).will_restart);
        stopped(&r);
        pass(&r, 19.75, ALL);
        assert_state(&r, GROUP_GATHERING);
        if (comes)
            join(&r, 4);
        else
            pass(&r, 0.25, ALL);
        assert_state(&r, comes ? GROUP_FORMING : GROUP_CLOSED);
        if (!comes)
            cr_assert_not_null(strstr(told(&r, 1).reason, "2 of at least 3 nodes left; lost: h3"), "%s",
                               told(&r, 1).reason);
    }
}

Test(policy, below_min_without_a_regroup_wait_the_job_ends_at_once) {
    struct group_config c = config_of(3, 3);
    struct rig r;
    bring_to(&r, &c, 3, GROUP_RUNNING);
    lose(&r, 3);
    struct desired d = told(&r, 1);
    cr_assert(d.kind == DESIRED_STOP && !d.will_restart);
    stopped(&r);
    assert_state(&r, GROUP_CLOSED);
    cr_assert_not_null(strstr(told(&r, 1).reason, "2 of at least 3 nodes left"));
    cr_assert_not_null(strstr(told(&r, 1).reason, "h3"));
    end(&r);
    bring_to(&r, &c, 3, GROUP_RUNNING);
    join(&r, 4);
    lose(&r, 3);
    stopped(&r);
    assert_state(&r, GROUP_FORMING);
    cr_assert_str_eq(members(&r), "1 2 4", "a spare was there");
    end(&r);
}

/* ---- losses ---- */

Test(policy, one_node_more_lost_than_max_node_losses_ends_the_job) {
    struct group_config c = config_of(1, 4);
    c.rdzv.max_node_losses = 1;
    bring_to(&rig, &c, 4, GROUP_RUNNING);
    lose(&rig, 4);
    stopped(&rig);
    start(&rig);
    cr_assert_eq(told(&rig, 1).losses, 1);
    report(&rig, 3, (struct report){.state = NODE_RUNNING, .generation = group_generation(rig.g), .leaving = true});
    struct generation g = group_generation(rig.g);
    say(&rig, 1, NODE_STOPPED);
    say(&rig, 2, NODE_STOPPED);
    report(&rig, 3, (struct report){.state = NODE_STOPPED, .generation = g, .leaving = true});
    step(&rig, (struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 3});
    start(&rig);
    cr_assert_eq(told(&rig, 1).losses, 1, "who leaves is not lost");
    lose(&rig, 2);
    cr_assert(!told(&rig, 1).will_restart);
    stopped(&rig);
    assert_state(&rig, GROUP_CLOSED);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "2 nodes were lost, and --max-node-losses is 1"), "%s",
                       told(&rig, 1).reason);
}

Test(policy, losses_before_the_first_start_and_of_spares_are_no_losses) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_node_losses = 0;
    struct rig r;
    begin(&r, &c);
    join(&r, 1);
    join(&r, 5);
    lose(&r, 5); /* FORMING: a member of the group that is formed */
    assert_state(&r, GROUP_STOPPING);
    end(&r);
    begin(&r, &c);
    join(&r, 5);
    lose(&r, 5);
    join(&r, 1);
    join(&r, 2);
    join(&r, 3);
    start(&r);
    lose(&r, 3);
    assert_state(&r, GROUP_RUNNING);
    cr_assert_eq(told(&r, 1).losses, 0);
    lose(&r, 2);
    stopped(&r);
    assert_state(&r, GROUP_CLOSED);
    end(&r);
}

/* ---- failures ---- */

struct fall {
    enum failure_kind kind;
    int32_t code;
    double ran;
    const char *text;
    uint32_t local_rank;
};

static void falls(struct rig *r, uint64_t node, const struct fall *f) {
    struct report rep = {.state = NODE_FAILED, .generation = group_generation(r->g), .has_failure = true};
    rep.failure = (struct failure){.kind = f->kind,
                                   .code = f->code,
                                   .incarnation = node,
                                   .rank = (uint32_t)node - 1 + f->local_rank,
                                   .at_ns = r->now_ns,
                                   .ran_ns = S(f->ran)};
    (void)snprintf(rep.failure.text, sizeof rep.failure.text, "%s", f->text);
    report(r, node, rep);
}

/* A failure that says nothing about a crash loop. */
static void falls_late(struct rig *r, uint64_t node) { falls(r, node, &(struct fall){FAILURE_EXIT, 1, 60, "late", 0}); }

static struct group_config forgiving(uint32_t min, uint32_t max) {
    struct group_config c = config_of(min, max);
    c.rdzv.max_restarts = 100;
    return c;
}

Test(policy, a_node_that_fails_three_times_in_a_row_is_excluded_and_a_spare_takes_its_place) {
    bring_to(&rig, config_at(forgiving(3, 3)), 3, GROUP_RUNNING);
    join(&rig, 4);
    for (int i = 0; i < 3; i++) {
        cr_assert_str_eq(members(&rig), "1 2 3");
        falls_late(&rig, 2);
        stopped(&rig);
        assert_state(&rig, GROUP_FORMING);
        if (i < 2)
            start(&rig);
    }
    cr_assert_str_eq(members(&rig), "1 4 3");
    cr_assert(told(&rig, 2).excluded && !told(&rig, 1).excluded && !told(&rig, 4).excluded);
    cr_assert_str_eq(told(&rig, 2).reason, "its workers failed 3 times in a row");
    cr_assert_eq(group_restarts_used(rig.g), 3);
    start(&rig);
    join(&rig, 5);
    join(&rig, 2); /* on a new connection */
    cr_assert(told(&rig, 2).excluded, "for good");
    struct node_info again = info_of(6);
    (void)snprintf(again.host, sizeof again.host, "h2");
    join_info(&rig, &again);
    cr_assert(told(&rig, 6).excluded && !told(&rig, 5).excluded);
    cr_assert_str_eq(told(&rig, 6).reason, "an agent of its host was excluded before");
    lose(&rig, 3);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 4 5");
}

Test(policy, another_nodes_failure_in_between_begins_the_count_anew) {
    bring_to(&rig, config_at(forgiving(2, 3)), 3, GROUP_RUNNING);
    static const uint64_t who[] = {2, 2, 3, 2, 2, 3, 3, 2, 2};
    for (size_t i = 0; i < ARRAY_SIZE(who); i++) {
        falls_late(&rig, who[i]);
        stopped(&rig);
        start(&rig);
    }
    cr_assert_str_eq(members(&rig), "1 2 3");
    falls_late(&rig, 2);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 3");
}

Test(policy, nobody_is_excluded_whom_the_group_needs_or_where_it_is_turned_off) {
    for (int off = 0; off < 2; off++) {
        struct group_config c = forgiving(off ? 1 : 3, 3);
        c.rdzv.node_unit = 1;
        if (off)
            c.rdzv.exclude_after = 0;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        for (int i = 0; i < 9; i++) {
            falls_late(&r, 2);
            stopped(&r);
            start(&r);
        }
        cr_assert_str_eq(members(&r), "1 2 3");
        if (!off) {
            join(&r, 4);
            falls_late(&r, 2);
            stopped(&r);
            cr_assert_str_eq(members(&r), "1 4 3", "as soon as there is another");
        }
    }
}

static struct group_effect ask_for(struct rig *r, enum command_kind kind, const char *node, const char *reason) {
    struct command command = {.kind = kind};
    (void)snprintf(command.node, sizeof command.node, "%s", node);
    (void)snprintf(command.reason, sizeof command.reason, "%s", reason);
    step(r, (struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &command});
    cr_assert_eq(count(r, GROUP_EFFECT_ANSWER, 0), 1, "every command is answered, once");
    const struct group_effect *e = effect(r, GROUP_EFFECT_ANSWER);
    return e == NULL ? (struct group_effect){.reason = ""} : *e;
}

#define assert_answer(r, kind, node, good, text)                      \
    do {                                                              \
        struct group_effect a_ = ask_for(r, kind, node, "");          \
        cr_assert_eq(a_.ok, good, "%s", a_.reason);                   \
        cr_assert_not_null(strstr(a_.reason, text), "%s", a_.reason); \
    } while (0)

static void join_host(struct rig *r, uint64_t node, const char *host) {
    struct node_info info = info_of(node);
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    join_info(r, &info);
}

Test(policy, an_operator_excludes_a_member_and_the_group_re_forms_without_it) {
    bring_to(&rig, config_at(config_of(1, 3)), 3, GROUP_RUNNING);
    struct group_effect a = ask_for(&rig, COMMAND_EXCLUDE, "h2", "bad memory");
    cr_assert(a.ok && strstr(a.reason, "leaves the group") != NULL, "%s", a.reason);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_eq(told(&rig, 1).losses, 0);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 3");
    cr_assert(told(&rig, 2).excluded);
    cr_assert_str_eq(told(&rig, 2).reason, "bad memory");
    cr_assert_eq(group_restarts_used(rig.g), 0, "it costs no restart");
}

Test(policy, a_node_that_waits_is_excluded_without_a_stop_and_told_at_once) {
    bring_to(&rig, config_at(config_of(1, 2)), 2, GROUP_RUNNING);
    join(&rig, 3);
    assert_answer(&rig, COMMAND_EXCLUDE, "h3", true, "h3 is excluded");
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(count(&rig, GROUP_EFFECT_DESIRED, 3), 1);
    cr_assert(told(&rig, 3).excluded);
    cr_assert_str_eq(told(&rig, 3).reason, "an operator asked");
}

Test(policy, a_name_that_is_nobodys_or_several_nodes_excludes_nobody) {
    begin(&rig, config_at(config_of(5, 5)));
    join(&rig, 1);
    join_host(&rig, 2, "twin");
    join_host(&rig, 3, "twin");
    assert_answer(&rig, COMMAND_EXCLUDE, "nobody", false, "there is no node \"nobody\"");
    assert_answer(&rig, COMMAND_EXCLUDE, "twin", false, "several nodes have the name \"twin\"");
    cr_assert(!told(&rig, 2).excluded && !told(&rig, 3).excluded);
    join_host(&rig, 4, "twin");
    assert_answer(&rig, COMMAND_EXCLUDE, "twin", false, "several nodes");
}

Test(policy, an_id_excludes_one_agent_of_a_host_and_not_the_other) {
    begin(&rig, config_at(config_of(1, 3)));
    join(&rig, 1);
    join_host(&rig, 2, "twin");
    join_host(&rig, 3, "twin");
    start(&rig);
    char id[32];
    (void)snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)3);
    assert_answer(&rig, COMMAND_EXCLUDE, id, true, "twin-2 is excluded");
    cr_assert(told(&rig, 1).kind == DESIRED_STOP);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2");
    cr_assert(told(&rig, 3).excluded && !told(&rig, 2).excluded);
    join_host(&rig, 2, "twin"); /* back on another connection: it was there before */
    cr_assert(!told(&rig, 2).excluded);
}

/* ---- crash loops ---- */

#define EXIT1(text) \
    { FAILURE_EXIT, 1, 1, text, 0 }

Test(policy, the_same_early_failure_everywhere_twice_in_a_row_is_a_crash_loop) {
    static const struct {
        const char *what;
        struct fall first, second;
        bool ends;
    } cases[] = {
        {"the same", EXIT1("Error: no file"), EXIT1("Error: no file"), true},
        {"no text at all", EXIT1(""), EXIT1(""), true},
        {"other text", EXIT1("Error: no file"), EXIT1("Error: no host"), false},
        {"other numbers", EXIT1("rank 3: at 0x7f10"), EXIT1("rank 12: at 0x9999f2"), true},
        {"other addresses", EXIT1("rank 3: at 0x7f10>"), EXIT1("rank 12: at 0xde99f2>"), true},
        {"other code", EXIT1("x"), {FAILURE_EXIT, 2, 1, "x", 0}, false},
        {"only the last line counts", EXIT1("one thing\nlast"), EXIT1("another\nlast\n"), true},
        {"other last line", EXIT1("one\nlast"), EXIT1("one\nlost"), false},
        {"a crash", {FAILURE_SIGNAL, 11, 1, "x", 0}, {FAILURE_SIGNAL, 11, 1, "x", 0}, true},
        {"other signal", {FAILURE_SIGNAL, 11, 1, "x", 0}, {FAILURE_SIGNAL, 6, 1, "x", 0}, false},
        {"a kill", {FAILURE_SIGNAL, 9, 1, "x", 0}, {FAILURE_SIGNAL, 9, 1, "x", 0}, false},
        {"a person's signal", {FAILURE_SIGNAL, 15, 1, "x", 0}, {FAILURE_SIGNAL, 15, 1, "x", 0}, false},
        {"no memory", {FAILURE_OOM, 9, 1, "x", 0}, {FAILURE_OOM, 9, 1, "x", 0}, false},
        {"can't be started", {FAILURE_SPAWN, 2, 0, "x", 0}, {FAILURE_SPAWN, 2, 0, "x", 0}, true},
        {"just early", {FAILURE_EXIT, 1, 4.999, "x", 0}, {FAILURE_EXIT, 1, 4.999, "x", 0}, true},
        {"late", {FAILURE_EXIT, 1, 5, "x", 0}, {FAILURE_EXIT, 1, 5, "x", 0}, false},
        {"the first late", {FAILURE_EXIT, 1, 5, "x", 0}, EXIT1("x"), false},
        {"the second late", EXIT1("x"), {FAILURE_EXIT, 1, 5, "x", 0}, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = forgiving(2, 2);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, GROUP_RUNNING);
        falls(&r, 1, &cases[i].first);
        falls(&r, 2, &cases[i].first);
        stopped(&r);
        start(&r);
        falls(&r, 2, &cases[i].second);
        falls(&r, 1, &cases[i].second);
        stopped(&r);
        cr_assert_eq(group_state(r.g), cases[i].ends ? GROUP_CLOSED : GROUP_FORMING, "%s", cases[i].what);
        if (cases[i].ends) {
            struct desired d = told(&r, 1);
            cr_assert(d.outcome == OUTCOME_FAILED && d.has_failure, "%s", cases[i].what);
            cr_assert_not_null(strstr(d.reason, "crash loop"), "%s", d.reason);
            cr_assert_not_null(strstr(d.reason, "1 of 100 restarts were used"), "%s", d.reason);
        }
    }
}

/* Who fails in the first, and in the second group; a mask of nodes. */
static bool loops(const struct group_config *c, uint64_t nodes, unsigned first, unsigned second) {
    struct rig r;
    bring_to(&r, c, nodes, GROUP_RUNNING);
    for (int nth = 0; nth < 2; nth++) {
        for (uint64_t node = 1; node <= nodes; node++)
            if (((nth == 0 ? first : second) >> node & 1) != 0)
                falls(&r, node, &(struct fall)EXIT1("x"));
        stopped(&r);
        if (nth == 0)
            start(&r);
    }
    bool closed = group_state(r.g) == GROUP_CLOSED;
    end(&r);
    return closed;
}

Test(policy, any_rank_can_begin_and_complete_a_crash_loop) {
    struct group_config c = forgiving(3, 3);
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2), "the same rank");
    cr_expect(loops(&c, 3, 1u << 2, 1u << 3), "two ranks, one after the other");
    cr_expect(loops(&c, 3, 1u << 2 | 1u << 3, 1u << 2), "two ranks, the first time");
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2 | 1u << 3), "two ranks, the second time");
    c.rdzv.crash_loop_ns = 0;
    cr_expect(!loops(&c, 3, 1u << 2, 1u << 2), "turned off");
}

Test(policy, a_node_that_others_can_replace_is_excluded_instead) {
    struct group_config c = forgiving(2, 3);
    struct rig r;
    bring_to(&r, &c, 3, GROUP_RUNNING);
    for (int i = 0; i < 3; i++) {
        falls(&r, 2, &(struct fall)EXIT1("x"));
        stopped(&r);
        start(&r);
    }
    cr_assert_str_eq(members(&r), "1 3");
    cr_assert(told(&r, 2).excluded);
    falls(&r, 3, &(struct fall)EXIT1("x"));
    stopped(&r);
    assert_state(&r, GROUP_CLOSED); /* it was not that node's fault */
    end(&r);
    c.rdzv.exclude_after = 0;
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2), "no node is ever excluded");
}

Test(policy, no_restart_is_announced_before_a_crash_loop_ends_the_job) {
    bring_to(&rig, config_at(forgiving(2, 2)), 2, GROUP_RUNNING);
    static const struct fall crash = {FAILURE_SIGNAL, 11, 1, "x", 0};
    for (uint64_t node = 1; node <= 2; node++) {
        falls(&rig, node, &crash);
        struct desired d = told(&rig, 3 - node);
        cr_assert(d.kind == DESIRED_STOP && d.has_failure);
        cr_assert_eq(d.will_restart, node == 1);
        cr_assert_eq(d.restarts_used, 1);
        stopped(&rig);
        if (node == 1)
            start(&rig);
    }
    assert_state(&rig, GROUP_CLOSED);
}

Test(policy, a_late_failure_in_between_breaks_the_crash_loop) {
    struct group_config c = forgiving(1, 1);
    c.rdzv.exclude_after = 0;
    bring_to(&rig, &c, 1, GROUP_RUNNING);
    for (int nth = 0; nth < 4; nth++) {
        if (nth % 2 == 0)
            falls(&rig, 1, &(struct fall)EXIT1("x"));
        else
            falls_late(&rig, 1);
        stopped(&rig);
        start(&rig);
    }
}

/* ---- pauses ---- */

/* How long the members are waited for after they have stopped, in seconds. */
static double pause_of(struct rig *r) {
    uint64_t since = r->now_ns;
    while (group_state(r->g) == GROUP_GATHERING) {
        cr_assert_lt(r->now_ns, since + S(1000), "it never forms");
        pass(r, 0.25, ALL);
    }
    assert_state(r, GROUP_FORMING);
    return (double)(r->now_ns - since) / 1e9;
}

Test(policy, the_pause_before_a_restart_doubles_and_begins_anew_after_a_good_run) {
    struct group_config c = forgiving(2, 2);
    c.rdzv.exclude_after = 0;
    c.rdzv.restart_backoff_ns = S(1);
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    static const struct {
        double run, pause;
    } cases[] = {{0.25, 1}, {5, 2}, {32, 4}, {0.25, 8}, {0.25, 16}, {0.25, 32}, {32, 32}, {32.25, 1}, {1, 2}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        pass(&rig, cases[i].run, ALL);
        falls_late(&rig, 2);
        stopped(&rig);
        double pause = pause_of(&rig);
        cr_assert_float_eq(pause, cases[i].pause, 0.001, "case %zu: %g s", i, pause);
        start(&rig);
    }
    join(&rig, 3);
    lose(&rig, 2);
    stopped(&rig);
    assert_state(&rig, GROUP_FORMING); /* only a failure is followed by a pause */
}

/* ---- growing ---- */

static void safe_point(struct rig *r, uint64_t node) {
    report(r, node,
           (struct report){.state = NODE_RUNNING, .generation = group_generation(r->g), .at_safe_point = true});
}

/* Two nodes of 1 … 3 run. */
static void two_run(struct rig *r, struct group_config *c, enum rdzv_grow grow) {
    *c = config_of(1, 3);
    c->rdzv.last_call_ns = S(1);
    c->rdzv.grow = grow;
    bring_to(r, c, 2, GROUP_GATHERING);
    pass(r, 1, ALL);
    start(r);
}

Test(policy, grow_now_takes_who_comes_and_costs_nothing) {
    struct group_config c;
    two_run(&rig, &c, GROW_NOW);
    safe_point(&rig, 1);
    assert_state(&rig, GROUP_RUNNING);
    join(&rig, 3);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_str_eq(told(&rig, 1).reason, "the group grows from 2 to 3 nodes");
    cr_assert(told(&rig, 1).will_restart && !told(&rig, 1).has_failure);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2 3");
    cr_assert_eq(group_restarts_used(rig.g), 0);
    start(&rig);
    join(&rig, 4);
    assert_state(&rig, GROUP_RUNNING); /* it has as many as it may have */
}

Test(policy, grow_at_a_boundary_waits_for_a_safe_point_of_a_member) {
    struct group_config c;
    two_run(&rig, &c, GROW_BOUNDARY);
    join(&rig, 3);
    pass(&rig, 100, ALL);
    assert_state(&rig, GROUP_RUNNING);
    report(&rig, 3, (struct report){.state = NODE_JOINED, .at_safe_point = true});
    assert_state(&rig, GROUP_RUNNING); /* not a member's */
    safe_point(&rig, 2);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "at a safe point"));
}

Test(policy, a_safe_point_counts_for_one_moment) {
    struct group_config c;
    two_run(&rig, &c, GROW_BOUNDARY);
    safe_point(&rig, 2);
    join(&rig, 3);
    assert_state(&rig, GROUP_RUNNING);
    pass(&rig, 10, ALL);
    assert_state(&rig, GROUP_RUNNING);
    safe_point(&rig, 1);
    assert_state(&rig, GROUP_STOPPING);
}

Test(policy, grow_never_waits_until_it_re_forms_anyway_or_an_operator_asks) {
    struct group_config c;
    two_run(&rig, &c, GROW_NEVER);
    join(&rig, 3);
    safe_point(&rig, 1);
    pass(&rig, 100, ALL);
    assert_state(&rig, GROUP_RUNNING);
    assert_answer(&rig, COMMAND_GROW, "", true, "re-forms with the waiting nodes");
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "an operator asked"));
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2 3");
}

Test(policy, a_group_grows_by_whole_units_and_not_by_the_excluded) {
    struct group_config c = config_of(2, 6);
    c.rdzv.node_unit = 2;
    c.rdzv.grow = GROW_NOW;
    c.rdzv.last_call_ns = S(1);
    bring_to(&rig, &c, 2, GROUP_GATHERING);
    pass(&rig, 1, ALL);
    start(&rig);
    join(&rig, 3);
    assert_state(&rig, GROUP_RUNNING);
    assert_answer(&rig, COMMAND_GROW, "", false, "no waiting node would make the group larger");
    assert_answer(&rig, COMMAND_EXCLUDE, "h3", true, "excluded");
    join(&rig, 4);
    assert_state(&rig, GROUP_RUNNING);
    join(&rig, 5);
    assert_state(&rig, GROUP_STOPPING);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2 4 5");
}

/* ---- operators ---- */

Test(policy, what_grow_answers) {
    begin(&rig, config_at(config_of(2, 2)));
    join(&rig, 1);
    assert_answer(&rig, COMMAND_GROW, "", true, "the next group includes all nodes that have joined by then");
    join(&rig, 2);
    start(&rig);
    assert_answer(&rig, COMMAND_GROW, "", false, "already has its largest number of nodes");
    assert_state(&rig, GROUP_RUNNING);
    say(&rig, 1, NODE_FINISHED);
    say(&rig, 2, NODE_FINISHED);
    assert_answer(&rig, COMMAND_GROW, "", false, "the job is over");
}

Test(policy, a_wish_to_grow_is_forgotten_when_the_group_re_forms_for_another_reason) {
    struct group_config c;
    two_run(&rig, &c, GROW_NEVER);
    lose(&rig, 2);
    assert_answer(&rig, COMMAND_GROW, "", true, "the next group");
    stopped(&rig);
    start(&rig);
    join(&rig, 3);
    pass(&rig, 10, ALL);
    assert_state(&rig, GROUP_RUNNING);
}

Test(policy, commands_that_are_not_the_leaders_are_answered_all_the_same) {
    bring_to(&rig, config_at(config_of(1, 1)), 1, GROUP_RUNNING);
    assert_answer(&rig, COMMAND_STATUS, "", false, "the leader can't carry out this command");
    assert_answer(&rig, COMMAND_LEAVE, "", false, "the leader can't carry out this command");
    assert_state(&rig, GROUP_RUNNING);
}

Test(policy, an_operators_stop_ends_the_job_in_every_state_and_blames_no_failure) {
    static const enum group_state states[] = {GROUP_GATHERING, GROUP_FORMING, GROUP_RUNNING, GROUP_STOPPING};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        struct group_config c = config_of(2, states[i] == GROUP_GATHERING ? 3 : 2);
        c.rdzv.max_restarts = 5;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, states[i]);
        struct group_effect a = ask_for(&r, COMMAND_STOP, "", i % 2 == 0 ? "" : "maintenance");
        cr_assert(a.ok && strcmp(a.reason, "the job is being stopped") == 0, "%s", a.reason);
        if (states[i] != GROUP_GATHERING) {
            assert_state(&r, GROUP_STOPPING);
            cr_assert(!told(&r, 1).will_restart);
        }
        stopped(&r);
        assert_state(&r, GROUP_CLOSED);
        struct desired d = told(&r, 2);
        cr_assert_str_eq(d.reason,
                         i % 2 == 0 ? "an operator stopped the job" : "an operator stopped the job: maintenance");
        cr_assert(!d.has_failure && !d.no_fault && d.outcome == OUTCOME_FAILED && d.restarts_used == 0);
        assert_answer(&r, COMMAND_STOP, "", false, "the job is over already");
        cr_assert_str_eq(told(&r, 2).reason, d.reason);
    }
}

/* ---- a switch ---- */

Test(policy, several_silent_hosts_are_held_for_a_moment_as_behind_a_switch) {
    bring_to(&rig, config_at(config_of(1, 4)), 4, GROUP_RUNNING);
    pass(&rig, 5.75, 1u << 1 | 1u << 2);
    size_t said = rig.seen[GROUP_EFFECT_NOTICE];
    pass(&rig, 0.25, 1u << 1 | 1u << 2);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], said + 1, "people are told, once");
    pass(&rig, 1, 1u << 1 | 1u << 2);
    renew(&rig, 4); /* it is back */
    assert_state(&rig, GROUP_RUNNING);
    pass(&rig, 0.75, 1u << 1 | 1u << 2 | 1u << 4);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 4);
    pass(&rig, 0.25, 1u << 1 | 1u << 2 | 1u << 4);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 3);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], said + 1);
}

Test(policy, who_was_held_and_came_back_is_held_the_next_time_too) {
    bring_to(&rig, config_at(config_of(1, 3)), 3, GROUP_RUNNING);
    for (int i = 0; i < 2; i++) {
        pass(&rig, 7, 1u << 1);
        cr_assert_eq(group_nodes(rig.g, NULL, 0), 3, "time %d", i);
        pass(&rig, 10, ALL);
        assert_state(&rig, GROUP_RUNNING);
    }
}

Test(policy, two_agents_of_one_host_are_no_switch_and_neither_is_one_held_where_that_is_off) {
    for (int off = 0; off < 2; off++) {
        struct group_config c = config_of(1, 4);
        if (off)
            c.rdzv.hold_ns = 0;
        _cleanup_(end) struct rig r;
        begin(&r, &c);
        join(&r, 1);
        join(&r, 2);
        join_host(&r, 3, "twin");
        join_host(&r, 4, off ? "other" : "twin");
        start(&r);
        pass(&r, 5.75, 1u << 1 | 1u << 2);
        cr_assert_eq(group_nodes(r.g, NULL, 0), 4);
        pass(&r, 0.25, 1u << 1 | 1u << 2);
        cr_assert_eq(group_nodes(r.g, NULL, 0), 2, "%d", off);
    }
}

/* ---- roles, and how many workers a node has ---- */

Test(policy, ranks_are_sums_over_unequal_nodes_and_roles_count_on_their_own) {
    begin(&rig, config_at(config_of(5, 5)));
    static const struct {
        uint32_t nproc;
        const char *role;
        uint32_t first, role_first, role_size;
    } nodes[] = {
        {2, "trainer", 0, 0, 6}, {1, "reader", 2, 0, 4}, {3, "reader", 3, 1, 4},
        {4, "trainer", 6, 2, 6}, {8, "", 10, 0, 8},
    };
    for (size_t i = 0; i < 5; i++) {
        struct node_info info = info_of(i + 1);
        info.nproc = nodes[i].nproc;
        (void)snprintf(info.role, sizeof info.role, "%s", nodes[i].role);
        join_info(&rig, &info);
    }
    open_store(&rig);
    for (size_t i = 0; i < 5; i++) {
        struct form f = told(&rig, i + 1).form;
        cr_assert(f.node_rank == i && f.n_nodes == 5 && f.world_size == 18, "node %zu", i);
        cr_assert_eq(f.first_rank, nodes[i].first, "node %zu", i);
        cr_assert_eq(f.role_first_rank, nodes[i].role_first, "node %zu", i);
        cr_assert_eq(f.role_world_size, nodes[i].role_size, "node %zu", i);
    }
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert(o.world_size == 18 && o.n_members == 5);
}

Test(policy, a_job_has_so_many_roles_and_no_more) {
    begin(&rig, config_at(config_of(1, 100)));
    for (uint64_t node = 1; node <= 66; node++) {
        struct node_info info = info_of(node);
        (void)snprintf(info.role, sizeof info.role, "role %d", node == 66 ? 1 : (int)node);
        join_info(&rig, &info);
        const struct group_effect *e = effect(&rig, GROUP_EFFECT_REFUSE);
        cr_assert_eq(e != NULL, node == 65, "node %d", (int)node);
        if (e != NULL)
            cr_assert(!e->for_now && strstr(e->reason, "different roles") != NULL, "%s", e->reason);
    }
}
