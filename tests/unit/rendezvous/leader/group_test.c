#include "group_rig.h"

#include "rig/unit.h"

static struct rig rig; /* of a test that has one; ended with it */

static void finish(void) { end(&rig); }

TestSuite(group, .fini = finish);

/* ---- configuration ---- */

Test(group, a_configuration_that_makes_no_sense_is_refused) {
    static const struct {
        uint32_t min, max, epoch;
        uint64_t lease_ns;
        int result;
    } cases[] = {
        {1, 1, 1, 1, 0},
        {0, 1, 1, 1, -EINVAL},
        {2, 1, 1, 1, -EINVAL},
        {1, RDZV_NODES_MAX, 1, 1, 0},
        {1, RDZV_NODES_MAX + 1, 1, 1, -EINVAL},
        {1, 1, 0, 1, -EINVAL},
        {1, 1, 1, 0, -EINVAL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].min, cases[i].max);
        c.epoch = cases[i].epoch;
        c.rdzv.lease_ns = cases[i].lease_ns;
        struct group *g = NULL;
        cr_assert_eq(group_new(&c, 0, &g), cases[i].result, "case %zu", i);
        group_free(g);
    }
}

/* ---- gathering ---- */

Test(group, max_nodes_form_at_once_and_min_after_the_last_call) {
    struct group_config c = config_of(2, 3);
    struct rig r;
    begin(&r, &c);
    join(&r, 1);
    pass(&r, 100, 1u << 1);
    assert_state(&r, GROUP_GATHERING);
    join(&r, 2);
    pass(&r, 29.5, 6);
    assert_state(&r, GROUP_GATHERING);
    struct rdzv_status s;
    group_status(r.g, r.now_ns, &s);
    cr_assert(s.last_call && s.present == 2 && s.wait_ns == S(0.5), "%u there, %llu ns", s.present,
              (unsigned long long)s.wait_ns);
    pass(&r, 0.5, 6);
    assert_state(&r, GROUP_FORMING);
    cr_assert_eq(r.seen[GROUP_EFFECT_STORE_OPEN], 1);
    end(&r);
    begin(&r, &c);
    for (uint64_t node = 1; node <= 3; node++)
        join(&r, node);
    assert_state(&r, GROUP_FORMING);
    end(&r);
}

static void expect(struct rig *r, uint32_t nodes) {
    step(r, (struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = nodes});
}

Test(group, nodes_that_cannot_come_are_not_waited_for) {
    struct group_config c = config_of(2, 4);
    struct rig r;
    begin(&r, &c);
    expect(&r, 3);
    join(&r, 1);
    join(&r, 2);
    pass(&r, 5, 6);
    assert_state(&r, GROUP_GATHERING);
    expect(&r, 2); /* one more has failed */
    assert_state(&r, GROUP_FORMING);
    end(&r);
    begin(&r, &c);
    expect(&r, 3);
    for (uint64_t node = 1; node <= 3; node++)
        join(&r, node);
    assert_state(&r, GROUP_FORMING);
    end(&r);
}

Test(group, fewer_than_min_that_can_come_form_nothing) {
    begin(&rig, config_at(config_of(2, 4)));
    expect(&rig, 1);
    join(&rig, 1);
    pass(&rig, 5, 2);
    assert_state(&rig, GROUP_GATHERING);
    join(&rig, 2); /* it came nevertheless: as if nothing had been said */
    pass(&rig, 29, 6);
    assert_state(&rig, GROUP_GATHERING);
    pass(&rig, 1, 6);
    assert_state(&rig, GROUP_FORMING);
}

Test(group, a_full_group_waits_for_the_end_of_old_leases_alone) {
    struct group_config c = config_of(2, 2);
    c.not_before_ns = S(1004);
    begin(&rig, &c);
    join(&rig, 1);
    join(&rig, 2);
    assert_state(&rig, GROUP_GATHERING);
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    uint64_t left_ns = c.not_before_ns - rig.now_ns;
    cr_assert(s.last_call && s.present == 2 && s.wait_ns == left_ns, "%llu of %llu ns", (unsigned long long)s.wait_ns,
              (unsigned long long)left_ns);
}

Test(group, one_that_goes_in_the_last_call_stops_it) {
    begin(&rig, config_at(config_of(2, 3)));
    join(&rig, 1);
    join(&rig, 2);
    pass(&rig, 20, 6);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 2});
    pass(&rig, 100, 2);
    assert_state(&rig, GROUP_GATHERING);
    join(&rig, 3);
    pass(&rig, 29, 10);
    assert_state(&rig, GROUP_GATHERING);
    pass(&rig, 1, 10);
    assert_state(&rig, GROUP_FORMING);
}

Test(group, the_join_timeout_ends_the_job_and_says_who_came) {
    bring_to(&rig, config_at(config_of(3, 3)), 2, GROUP_GATHERING);
    pass(&rig, 599.5, 6);
    assert_state(&rig, GROUP_GATHERING);
    pass(&rig, 0.75, 6);
    assert_state(&rig, GROUP_CLOSED);
    cr_assert_eq(group_outcome(rig.g), OUTCOME_FAILED);
    struct desired d = told(&rig, 1);
    cr_assert(strstr(d.reason, "h1") != NULL && strstr(d.reason, "h2") != NULL, "%s", d.reason);
}

Test(group, the_join_timeout_names_nobody_when_nobody_is_left) {
    bring_to(&rig, config_at(config_of(3, 3)), 1, GROUP_GATHERING);
    struct command exclude = {.kind = COMMAND_EXCLUDE, .node = "h1"};
    step(&rig, (struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &exclude});
    pass(&rig, 601, 6);
    assert_state(&rig, GROUP_CLOSED);
    struct desired d = told(&rig, 1);
    cr_assert(strstr(d.reason, "only 0 of at least 3 nodes came within 600 s; start") != NULL, "%s", d.reason);
}

Test(group, the_join_timeout_says_which_node_was_refused_and_why) {
    for (int again = 0; again <= 1; again++) {
        struct group_config c = config_of(3, 3);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 1, GROUP_GATHERING);
        struct node_info info = {.incarnation = 2, .nproc = 0, .node_rank = -1, .host = "b"};
        struct group_event event = {
            .kind = GROUP_EVENT_JOIN, .info = &info, .report = &(struct report){.state = NODE_JOINED}};
        step(&r, event);
        cr_assert_not_null(effect(&r, GROUP_EFFECT_REFUSE));
        info.nproc = 1;
        if (again != 0)
            step(&r, event);
        pass(&r, 601, 6);
        assert_state(&r, GROUP_CLOSED);
        struct desired d = told(&r, 1);
        cr_assert_eq(strstr(d.reason, "; node b was refused: its number of workers") != NULL, again == 0, "%s",
                     d.reason);
        cr_assert_eq(strstr(d.reason, "; start the missing ones") != NULL, again != 0, "%s", d.reason);
    }
}

Test(group, joins_that_can_not_be_are_refused) {
    struct group_config c = config_of(2, 2);
    c.static_ranks = true;
    static const struct {
        int32_t rank;
        uint32_t nproc;
        const char *why; /* NULL: welcome */
    } cases[] = {
        {-1, 1, "--node-rank, and this node has none"},
        {2, 1, "not below the number of nodes"},
        {0, 1, "another node has the same"},
        {1, 0, "number of workers"},
        {1, RDZV_WORKERS_MAX + 1, "number of workers"},
        {1, RDZV_WORKERS_MAX, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(end) struct rig r;
        begin(&r, &c);
        join_as(&r, 1, 0, &(struct report){.state = NODE_JOINED});
        struct node_info info = {.incarnation = 2, .nproc = cases[i].nproc, .node_rank = cases[i].rank, .host = "b"};
        join_info(&r, &info);
        const struct group_effect *e = effect(&r, GROUP_EFFECT_REFUSE);
        cr_assert_eq(e == NULL, cases[i].why == NULL, "case %zu", i);
        cr_assert_eq(group_nodes(r.g, NULL, 0), cases[i].why == NULL ? 2 : 1);
        if (e != NULL)
            cr_assert(e->node == 2 && strstr(e->reason, cases[i].why) != NULL, "case %zu: %s", i, e->reason);
    }
}

/* ---- ranks ---- */

Test(group, each_member_is_told_its_neighbours_in_the_ring) {
    static const struct {
        uint32_t n_nodes, n_neighbours;
        uint64_t of_first[2];
    } cases[] = {{1, 0, {0, 0}}, {2, 1, {2, 0}}, {3, 2, {2, 3}}, {4, 2, {2, 4}}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].n_nodes, cases[i].n_nodes);
        _cleanup_(end) struct rig r;
        begin(&r, &c);
        for (uint64_t node = 1; node <= cases[i].n_nodes; node++) {
            struct node_info info = {.incarnation = node,
                                     .nproc = 1,
                                     .node_rank = -1,
                                     .nets = {{.netif = "ib0"}},
                                     .listener_port = (uint16_t)(4000 + node)};
            (void)snprintf(info.host, sizeof info.host, "n%d", (int)node);
            (void)snprintf(info.nets[0].addrs, sizeof info.nets[0].addrs, "10.0.0.%d", (int)node);
            join_info(&r, &info);
        }
        open_store(&r);
        struct desired d = told(&r, 1);
        cr_assert_eq(d.form.n_neighbours, cases[i].n_neighbours, "%u nodes", cases[i].n_nodes);
        for (uint32_t k = 0; k < d.form.n_neighbours; k++)
            cr_assert_eq(d.form.neighbours[k].incarnation, cases[i].of_first[k], "%u nodes", cases[i].n_nodes);
        if (d.form.n_neighbours > 0) {
            cr_assert_str_eq(d.form.neighbours[0].host, "n2");
            cr_assert_str_eq(d.form.neighbours[0].nets[0].netif, "ib0");
            cr_assert_str_eq(d.form.neighbours[0].nets[0].addrs, "10.0.0.2");
            cr_assert_eq(d.form.neighbours[0].listener_port, 4002);
        }
    }
}

Test(group, the_leaders_node_is_rank_0_and_the_rest_in_natural_order) {
    begin(&rig, config_at(config_of(4, 4)));
    static const struct {
        uint64_t node;
        const char *host;
        uint32_t nproc, rank, first;
    } nodes[] = {{5, "node10", 2, 2, 4}, {3, "node2", 3, 1, 1}, {1, "z", 1, 0, 0}, {4, "node10", 1, 3, 6}};
    for (size_t i = 0; i < 4; i++) {
        struct node_info info = {.incarnation = nodes[i].node, .nproc = nodes[i].nproc, .node_rank = -1};
        (void)snprintf(info.host, sizeof info.host, "%s", nodes[i].host);
        join_info(&rig, &info);
    }
    open_store(&rig);
    for (size_t i = 0; i < 4; i++) {
        struct desired d = told(&rig, nodes[i].node);
        cr_assert_eq(d.kind, DESIRED_FORM);
        cr_assert_eq(d.form.node_rank, nodes[i].rank, "node %d", (int)nodes[i].node);
        cr_assert_eq(d.form.first_rank, nodes[i].first);
        cr_assert_eq(d.form.world_size, 7);
        cr_assert_eq(d.form.host_index, nodes[i].node == 4 ? 1 : 0);
        cr_assert_str_eq(d.form.store_host, "127.0.0.1");
        char name[RDZV_HOST_MAX];
        group_node_name(rig.g, nodes[i].node, name);
        cr_assert_str_eq(name, nodes[i].node == 4 ? "node10-2" : nodes[i].host);
    }
}

/* ---- forming ---- */

Test(group, start_is_told_when_the_last_has_acknowledged) {
    bring_to(&rig, config_at(config_of(3, 3)), 3, GROUP_FORMING);
    say(&rig, 1, NODE_PREPARED);
    say(&rig, 1, NODE_PREPARED);
    say(&rig, 2, NODE_PREPARED);
    assert_state(&rig, GROUP_FORMING);
    say(&rig, 3, NODE_PREPARED);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(count(&rig, GROUP_EFFECT_DESIRED, 0), 3);
    cr_assert_eq(told(&rig, 2).kind, DESIRED_START);
}

Test(group, start_tells_the_reachability_that_all_members_have) {
    bring_to(&rig, config_at(config_of(3, 3)), 3, GROUP_FORMING);
    static const uint32_t reachability[] = {0x17, 0x16, 0x1e};
    for (uint64_t node = 1; node <= 3; node++) {
        struct report report = {.state = NODE_PREPARED,
                                .generation = group_generation(rig.g),
                                .epoch = 1,
                                .reachability = reachability[node - 1]};
        step(&rig, (struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &report});
    }
    for (uint64_t node = 1; node <= 3; node++)
        cr_assert_eq(told(&rig, node).reachability, 0x16u);
}

Test(group, a_nack_and_a_form_timeout_cost_a_restart_like_a_failed_worker) {
    for (int timeout = 0; timeout < 2; timeout++) {
        struct group_config c = config_of(2, 2);
        c.rdzv.max_restarts = 1;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, GROUP_FORMING);
        say(&r, 1, NODE_PREPARED);
        if (timeout)
            pass(&r, 60.25, 6);
        else
            fails(&r, 2, FAILURE_SPAWN, 1000);
        assert_state(&r, GROUP_STOPPING);
        cr_assert_eq(told(&r, 1).has_failure, !timeout, "a slow node may be a lost one");
        say(&r, 1, NODE_STOPPED);
        say(&r, 2, NODE_STOPPED);
        assert_state(&r, GROUP_FORMING);
        cr_assert_eq(group_restarts_used(r.g), 1);
    }
}

Test(group, without_a_store_the_job_ends) {
    begin(&rig, config_at(config_of(2, 2)));
    join(&rig, 1);
    join(&rig, 2);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_STORE, .generation = {1, 7}, .reason = "of another group"});
    assert_state(&rig, GROUP_FORMING);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_STORE, .generation = {1, 1}, .reason = "EMFILE"});
    assert_state(&rig, GROUP_CLOSED);
    cr_assert_not_null(strstr(told(&rig, 2).reason, "EMFILE"));
}

/* ---- a node is lost ---- */

Test(group, a_lost_node_in_every_state) {
    static const struct {
        enum group_state state;
        uint32_t min;
        enum group_state then; /* right after the loss of node 3 */
        enum group_state last; /* when the others have stopped */
    } cases[] = {
        {GROUP_GATHERING, 2, GROUP_GATHERING, GROUP_GATHERING}, {GROUP_FORMING, 2, GROUP_STOPPING, GROUP_FORMING},
        {GROUP_FORMING, 3, GROUP_STOPPING, GROUP_GATHERING}, /* nothing ran yet: the join timeout counts on */
        {GROUP_RUNNING, 2, GROUP_STOPPING, GROUP_FORMING},      {GROUP_RUNNING, 3, GROUP_STOPPING, GROUP_CLOSED},
        {GROUP_STOPPING, 2, GROUP_STOPPING, GROUP_FORMING},     {GROUP_STOPPING, 3, GROUP_STOPPING, GROUP_CLOSED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].min, cases[i].state == GROUP_GATHERING ? 4 : 3);
        c.rdzv.max_restarts = 5;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, cases[i].state);
        disconnect(&r, 3);
        cr_assert_eq(count(&r, GROUP_EFFECT_PROBE, 3), 1, "case %zu", i);
        probe(&r, 3, PROBE_UNKNOWN);
        cr_assert_eq(group_nodes(r.g, NULL, 0), 3, "silence proves nothing, case %zu", i);
        probe(&r, 3, PROBE_GONE);
        cr_assert_eq(count(&r, GROUP_EFFECT_FORGET, 3), 1);
        cr_assert_eq(group_state(r.g), cases[i].then, "case %zu: %s", i, group_state_names[group_state(r.g)]);
        if (cases[i].state != GROUP_GATHERING) {
            struct generation g = group_generation(r.g);
            report(&r, 1, (struct report){.state = NODE_STOPPED, .generation = g});
            report(&r, 2, (struct report){.state = NODE_STOPPED, .generation = g});
        }
        cr_assert_eq(group_state(r.g), cases[i].last, "case %zu: %s", i, group_state_names[group_state(r.g)]);
    }
}

/* It is asked again more and more rarely, and never more than a fifth of a second apart. */
Test(group, the_start_waits_for_the_first_probe_of_each_listener) {
    static const enum probe_result results[] = {PROBE_ALIVE, PROBE_GONE, PROBE_UNKNOWN};
    for (size_t i = 0; i <= ARRAY_SIZE(results); i++) {
        struct rig r;
        begin(&r, config_at(config_of(2, 2)));
        join(&r, 1);
        cr_assert_eq(r.seen[GROUP_EFFECT_REACH], 0, "the leader has no reason to probe itself");
        join(&r, 2);
        cr_assert_eq(r.seen[GROUP_EFFECT_REACH], 1);
        open_store(&r);
        say(&r, 1, NODE_PREPARED);
        say(&r, 2, NODE_PREPARED);
        assert_state(&r, GROUP_FORMING);
        if (i < ARRAY_SIZE(results))
            probe(&r, 2, results[i]);
        else
            pass(&r, 61, 6); /* an answer that does not come stops no job */
        assert_state(&r, GROUP_RUNNING);
        end(&r);
    }
}

Test(group, a_member_whose_listener_was_not_reached_is_probed_again_ever_more_rarely) {
    bring_to(&rig, config_at(config_of(1, 2)), 1, GROUP_GATHERING);
    const uint64_t joined_ns = rig.now_ns;
    join(&rig, 2);
    start(&rig); /* PROBE_UNKNOWN, and probed once more */
    static const struct {
        double at;
        size_t probes; /* so far */
        enum probe_result answer;
    } steps[] = {{2, 0, PROBE_UNKNOWN}, {3.9, 0, 0},          {4, 1, 0},  {5, 1, PROBE_UNKNOWN},
                 {9.9, 1, 0},           {10, 2, PROBE_ALIVE}, {100, 2, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        rig.now_ns = joined_ns + S(steps[i].at);
        renew(&rig, 1);
        renew(&rig, 2);
        cr_assert_eq(rig.seen[GROUP_EFFECT_PROBE], steps[i].probes, "at %g", steps[i].at);
        if (steps[i].answer != 0)
            probe(&rig, 2, steps[i].answer);
    }
}

Test(group, a_node_that_does_not_answer_is_probed_ever_again) {
    struct group_config c = config_of(2, 3);
    bring_to(&rig, &c, 3, GROUP_RUNNING);
    disconnect(&rig, 3);
    uint64_t apart = 0, since = rig.now_ns, first = 0, until = rig.now_ns + c.rdzv.lease_ns;
    cr_assert_eq(count(&rig, GROUP_EFFECT_PROBE, 3), 1);
    size_t seen = rig.seen[GROUP_EFFECT_PROBE];
    probe(&rig, 3, PROBE_UNKNOWN);
    while (rig.now_ns < until) {
        rig.now_ns += S(0.001);
        for (uint64_t node = 1; node <= 2; node++)
            renew(&rig, node);
        step(&rig, (struct group_event){.kind = GROUP_EVENT_TIME});
        if (rig.seen[GROUP_EFFECT_PROBE] == seen)
            continue;
        cr_assert_eq(rig.seen[GROUP_EFFECT_PROBE], ++seen);
        cr_assert(rig.now_ns - since >= apart && rig.now_ns - since <= S(0.2), "%.3f s, and then %.3f s",
                  (double)apart / 1e9, (double)(rig.now_ns - since) / 1e9);
        apart = rig.now_ns - since;
        first = first == 0 ? apart : first;
        since = rig.now_ns;
        probe(&rig, 3, PROBE_UNKNOWN);
    }
    cr_assert(first > 0 && first < S(0.02), "%.6f s", (double)first / 1e9);
    cr_assert_eq(apart, S(0.2));
}

Test(group, silence_is_a_loss_at_lease_and_margin_and_not_before) {
    bring_to(&rig, config_at(config_of(1, 2)), 2, GROUP_RUNNING);
    pass(&rig, 5.75, 2);
    assert_state(&rig, GROUP_RUNNING);
    pass(&rig, 0.25, 2);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "h2"));
    cr_assert(!told(&rig, 1).has_failure);
    say(&rig, 1, NODE_STOPPED);
    cr_assert_eq(group_restarts_used(rig.g), 0, "a lost node costs no restart");
}

Test(group, a_leader_that_slept_gives_everybody_time_again) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    rig.now_ns += S(30);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_TIME});
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 2);
    pass(&rig, 5.75, 0);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 2);
    pass(&rig, 2.0, 0); /* two hosts at once: they are held for a moment */
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 2);
    pass(&rig, 0.5, 0);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 0);
}

Test(group, a_node_that_resumes_keeps_the_group_running) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    disconnect(&rig, 2);
    pass(&rig, 3, 2);
    join_as(&rig, 2, -1, &(struct report){.state = NODE_RUNNING, .generation = group_generation(rig.g)});
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(told(&rig, 2).kind, DESIRED_START);
    pass(&rig, 10, 6);
    assert_state(&rig, GROUP_RUNNING);
}

Test(group, a_finished_node_may_go_and_the_job_still_succeeds) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    say(&rig, 2, NODE_FINISHED);
    disconnect(&rig, 2);
    probe(&rig, 2, PROBE_GONE);
    assert_state(&rig, GROUP_RUNNING);
    say(&rig, 1, NODE_FINISHED);
    assert_state(&rig, GROUP_CLOSED);
    cr_assert_eq(group_outcome(rig.g), OUTCOME_SUCCESS);
}

Test(group, a_leaving_node_stops_the_group_at_once_and_costs_nothing) {
    bring_to(&rig, config_at(config_of(1, 2)), 2, GROUP_RUNNING);
    report(&rig, 2, (struct report){.state = NODE_RUNNING, .generation = group_generation(rig.g), .leaving = true});
    assert_state(&rig, GROUP_STOPPING);
    say(&rig, 1, NODE_STOPPED);
    report(&rig, 2, (struct report){.state = NODE_STOPPED, .generation = group_generation(rig.g), .leaving = true});
    step(&rig, (struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 2});
    assert_state(&rig, GROUP_FORMING);
    cr_assert_eq(group_members(rig.g, NULL, 0), 1);
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

Test(group, an_unusable_node_counts_as_stopped_and_never_takes_part_again) {
    struct group_config c = config_of(1, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_STOPPING);
    say(&rig, 1, NODE_STOPPED);
    report(&rig, 2, (struct report){.state = NODE_FAILED, .generation = group_generation(rig.g), .unusable = "pid 9"});
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], 1, "people are told, once");
    assert_state(&rig, GROUP_FORMING);
    uint64_t members[2];
    cr_assert_eq(group_members(rig.g, members, 2), 1);
    cr_assert_eq(members[0], 1);
}

static bool several_reported;
static void look_for_several(struct rig *r) {
    for (size_t i = 0; i < r->u.n_effects; i++)
        several_reported |= r->u.effects[i].kind == GROUP_EFFECT_NOTICE &&
                            strstr(r->u.effects[i].reason, "several nodes became silent") != NULL;
}

Test(group, several_silent_nodes_are_reported_only_while_the_job_runs) {
    for (int over = 0; over < 2; over++) {
        struct group_config c = config_of(3, 3);
        c.rdzv.hold_ns = S(10);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        for (uint64_t node = 1; over != 0 && node <= 3; node++)
            say(&r, node, NODE_FINISHED);
        assert_state(&r, over != 0 ? GROUP_CLOSED : GROUP_RUNNING);
        r.after = look_for_several;
        several_reported = false;
        pass(&r, 10, 1u << 1);
        cr_assert_eq(several_reported, over == 0, "%d", over);
    }
}

/* ---- budget and cause ---- */

Test(group, a_generation_is_charged_once_however_many_workers_fail) {
    struct group_config c = config_of(3, 3);
    c.rdzv.max_restarts = 2;
    c.rdzv.crash_loop_ns = 0;
    bring_to(&rig, &c, 3, GROUP_RUNNING);
    for (uint64_t node = 1; node <= 3; node++)
        fails(&rig, node, FAILURE_EXIT, 1001);
    struct generation g = group_generation(rig.g);
    for (uint64_t node = 1; node <= 3; node++)
        report(&rig, node,
               (struct report){.state = NODE_STOPPED,
                               .generation = g,
                               .has_failure = true,
                               .failure = failure_at(node, FAILURE_EXIT, 1001)});
    cr_assert_eq(group_restarts_used(rig.g), 1);
    assert_state(&rig, GROUP_FORMING);
    open_store(&rig);
    fails(&rig, 3, FAILURE_EXIT, 1002); /* the next generation, by a nack */
    fails(&rig, 2, FAILURE_EXIT, 1002);
    for (uint64_t node = 1; node <= 3; node++)
        say(&rig, node, NODE_STOPPED);
    cr_assert_eq(group_restarts_used(rig.g), 2);
}

/* Of a leader that knows nothing of them, whoever tells the most counts, of each. */
Test(group, a_new_leader_takes_the_counters_that_reports_have) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 9;
    begin(&rig, &c);
    join_as(&rig, 1, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 1, .losses = 4});
    join_as(&rig, 2, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 3, .losses = 2});
    pass(&rig, 1, 1U << 1 | 1U << 2);
    assert_state(&rig, GROUP_FORMING);
    open_store(&rig);
    cr_assert_eq(told(&rig, 2).form.restarts_used, 3);
    cr_assert_eq(told(&rig, 2).form.losses, 4);
}

Test(group, a_better_cause_is_told_at_once) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    fails(&rig, 1, FAILURE_EXIT, 1001);
    fails(&rig, 2, FAILURE_SIGNAL, 1001);
    cr_assert_eq(count(&rig, GROUP_EFFECT_DESIRED, 0), 2);
    struct desired d;
    cr_assert(group_desired(rig.g, 1, &d));
    cr_assert(d.kind == DESIRED_STOP && d.has_failure && d.failure.kind == FAILURE_SIGNAL);
}

Test(group, a_failure_after_a_nodes_silence_is_withheld_and_costs_nothing_when_that_node_was_lost) {
    struct group_config c = config_of(1, 3); /* no restart allowed */
    bring_to(&rig, &c, 3, GROUP_RUNNING);
    disconnect(&rig, 2);
    fails(&rig, 1, FAILURE_EXIT, 1001);
    assert_state(&rig, GROUP_STOPPING);
    struct desired d;
    cr_assert(group_desired(rig.g, 3, &d));
    cr_assert(!d.has_failure && !d.will_restart && d.reason[0] == '\0');
    say(&rig, 1, NODE_STOPPED);
    say(&rig, 3, NODE_STOPPED);
    assert_state(&rig, GROUP_STOPPING);
    probe(&rig, 2, PROBE_GONE);
    pass(&rig, 0.01, 10);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_eq(group_members(rig.g, NULL, 0), 2);
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

Test(group, a_failure_after_a_nodes_silence_counts_when_that_node_was_there_after_all) {
    bring_to(&rig, config_at(config_of(3, 3)), 3, GROUP_RUNNING);
    disconnect(&rig, 2);
    fails(&rig, 1, FAILURE_EXIT, 1001);
    struct generation g = group_generation(rig.g);
    join_as(&rig, 2, -1, &(struct report){.state = NODE_STOPPED, .generation = g});
    say(&rig, 1, NODE_STOPPED);
    say(&rig, 3, NODE_STOPPED);
    assert_state(&rig, GROUP_CLOSED);
    struct desired d;
    cr_assert(group_desired(rig.g, 3, &d));
    cr_assert(d.has_failure && d.failure.incarnation == 1);
}

/* One worker of node 2 is killed, as it may be when all of its host is. */
static void is_killed(struct rig *r, uint64_t node, int signo) {
    struct failure f = failure_at(node, FAILURE_SIGNAL, 1001);
    f.code = signo;
    report(
        r, node,
        (struct report){.state = NODE_FAILED, .generation = group_generation(r->g), .has_failure = true, .failure = f});
}

Test(group, a_kill_is_its_nodes_loss_when_the_node_is_lost_before_it_has_stopped) {
    for (int stopped_first = 0; stopped_first < 2; stopped_first++) {
        struct group_config c = config_of(1, 3); /* no restart allowed */
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        is_killed(&r, 2, 9);
        fails(&r, 3, FAILURE_EXIT, 1001); /* of its peer */
        say(&r, 1, NODE_STOPPED);
        say(&r, 3, NODE_STOPPED);
        if (stopped_first)
            say(&r, 2, NODE_STOPPED); /* the job would end: that can wait */
        assert_state(&r, GROUP_STOPPING);
        cr_assert(!told(&r, 1).has_failure && told(&r, 1).reason[0] == '\0');
        disconnect(&r, 2);
        probe(&r, 2, PROBE_GONE);
        assert_state(&r, GROUP_STOPPING);
        cr_assert_not_null(strstr(told(&r, 1).reason, "node h2 is gone"), "%s", told(&r, 1).reason);
        cr_assert(told(&r, 1).will_restart && !told(&r, 1).has_failure);
        cr_assert_eq(count(&r, GROUP_EFFECT_NOTICE, 0), 0, "it is named once");
        pass(&r, 0.01, 10);
        assert_state(&r, GROUP_FORMING);
        cr_assert_eq(group_restarts_used(r.g), 0);
    }
}

Test(group, a_kill_on_a_node_that_lives_is_charged_as_soon_as_all_have_stopped) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    is_killed(&rig, 2, 15);
    cr_assert(!told(&rig, 1).has_failure);
    say(&rig, 1, NODE_STOPPED);
    struct report last = {.state = NODE_STOPPED, .generation = group_generation(rig.g)};
    step(&rig, (struct group_event){.kind = GROUP_EVENT_REPORT, .node = 2, .report = &last});
    assert_state(&rig, GROUP_STOPPING); /* until this has gone out */
    cr_assert(told(&rig, 1).has_failure && told(&rig, 1).will_restart && told(&rig, 1).restarts_used == 1);
    pass(&rig, 0.001, 6);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_eq(group_restarts_used(rig.g), 1);
}

Test(group, a_job_ends_for_a_kill_when_the_agent_has_outlived_it_a_while) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    is_killed(&rig, 2, 9);
    stopped(&rig);
    pass(&rig, 0.25, 6);
    assert_state(&rig, GROUP_STOPPING);
    disconnect(&rig, 2); /* it comes back */
    pass(&rig, 0.5, 2);
    assert_state(&rig, GROUP_STOPPING);
    struct generation g = group_generation(rig.g);
    join_as(&rig, 2, -1, &(struct report){.state = NODE_STOPPED, .generation = g});
    pass(&rig, 0.25, 6);
    assert_state(&rig, GROUP_CLOSED);
    cr_assert(told(&rig, 1).has_failure && told(&rig, 1).failure.code == 9);
}

Test(group, a_node_that_leaves_was_told_so_with_its_workers) {
    bring_to(&rig, config_at(config_of(1, 2)), 2, GROUP_RUNNING);
    is_killed(&rig, 2, 15);
    struct report leaving = {.state = NODE_FAILED,
                             .generation = group_generation(rig.g),
                             .leaving = true,
                             .leaving_why = "was stopped by SIGTERM",
                             .has_failure = true,
                             .failure = failure_at(2, FAILURE_SIGNAL, 1001)};
    leaving.failure.code = 15;
    report(&rig, 2, leaving);
    cr_assert_not_null(strstr(told(&rig, 1).reason, "node h2 was stopped by SIGTERM"));
    leaving.state = NODE_STOPPED;
    report(&rig, 2, leaving);
    say(&rig, 1, NODE_STOPPED);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

Test(group, a_cause_in_doubt_is_told_when_every_node_has_outlived_it) {
    struct group_config c = config_of(3, 3);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 3, GROUP_RUNNING);
    fails(&rig, 3, FAILURE_EXIT, 1001);
    pass(&rig, 1, 10); /* node 2 is silent */
    cr_assert(!told(&rig, 1).has_failure && told(&rig, 1).reason[0] == '\0');
    pass(&rig, 1, 10);
    cr_assert(!told(&rig, 1).has_failure && strstr(told(&rig, 1).reason, "rank 0 failed") != NULL);
    pass(&rig, 0.5, 14);
    cr_assert(told(&rig, 1).has_failure && told(&rig, 1).reason[0] == '\0' && told(&rig, 1).will_restart);
    assert_state(&rig, GROUP_STOPPING);
}

Test(group, a_job_that_is_stopped_names_the_failure_that_was_in_doubt) {
    static const struct {
        enum failure_kind kind;
        int32_t code;
        const char *reason;
    } cases[] = {
        {FAILURE_SIGNAL, SIGKILL, "enough; shortly before, rank 1 (node h2) died of SIGKILL"},
        {FAILURE_SIGNAL, SIGTERM, "enough"}, /* it has got the same signal */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(end) struct rig r;
        struct group_config c = config_of(2, 2);
        struct failure f = failure_at(2, cases[i].kind, 1001);
        bring_to(&r, &c, 2, GROUP_RUNNING);
        f.code = cases[i].code;
        f.rank = 1;
        (void)strcpy(f.text, "WARNING: old\n");
        report(&r, 2,
               (struct report){
                   .state = NODE_FAILED, .generation = group_generation(r.g), .has_failure = true, .failure = f});
        cr_assert(!told(&r, 1).has_failure && told(&r, 1).reason[0] == '\0', "in doubt");
        step(&r, (struct group_event){.kind = GROUP_EVENT_STOP, .reason = "enough"});
        say(&r, 1, NODE_STOPPED);
        say(&r, 2, NODE_STOPPED);
        assert_state(&r, GROUP_CLOSED);
        cr_expect_str_eq(told(&r, 1).reason, cases[i].reason, "%s", told(&r, 1).reason);
    }
}

Test(group, a_finished_node_that_is_told_to_leave_stops_nobody) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    say(&rig, 2, NODE_FINISHED);
    report(&rig, 2, (struct report){.state = NODE_FINISHED, .generation = group_generation(rig.g), .leaving = true});
    assert_state(&rig, GROUP_RUNNING);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 2});
    assert_state(&rig, GROUP_RUNNING);
}

Test(group, a_restarted_host_with_its_own_rank_is_refused_only_for_now) {
    struct group_config c = config_of(2, 2);
    c.static_ranks = true;
    begin(&rig, &c);
    join_as(&rig, 1, 0, &(struct report){.state = NODE_JOINED});
    const char *const hosts[] = {"h1", "elsewhere"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct node_info info = {.incarnation = 2 + i, .nproc = 1, .node_rank = 0};
        (void)snprintf(info.host, sizeof info.host, "%s", hosts[i]);
        join_info(&rig, &info);
        const struct group_effect *e = effect(&rig, GROUP_EFFECT_REFUSE);
        cr_assert(e != NULL);
        cr_assert_eq(e->for_now, i == 0);
    }
}

Test(group, no_restart_left_closes_with_the_failure_for_everybody) {
    struct group_config c = config_of(2, 2);
    bring_to(&rig, &c, 2, GROUP_STOPPING); /* max_restarts 0: the first failure ends the job */
    say(&rig, 1, NODE_STOPPED);
    say(&rig, 2, NODE_STOPPED);
    assert_state(&rig, GROUP_CLOSED);
    for (uint64_t node = 1; node <= 2; node++) {
        struct desired d = told(&rig, node);
        cr_assert(d.kind == DESIRED_CLOSED && d.outcome == OUTCOME_FAILED && d.has_failure && !d.no_fault);
        cr_assert_eq(d.failure.incarnation, 2);
    }
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

/* One lease exchange: the node's clock is `ahead` seconds before the leader's, the round trip 2 ms. */
static void compare_clocks(struct rig *r, uint64_t node, double ahead) {
    struct renew first = {.clock_ns = r->now_ns + S(ahead) - S(0.001)};
    step(r, (struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = first});
    struct renew second = {
        .clock_ns = r->now_ns + S(ahead) + S(0.001), .leader_clock_ns = r->now_ns, .rtt_ns = S(0.002)};
    step(r, (struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = second});
}

Test(group, the_first_cause_by_the_nodes_own_clocks) {
    static const struct {
        double at2, at3; /* seconds of the leader's clock; heard in this order: 2, 3 */
        enum failure_kind kind2, kind3;
        uint64_t first;
    } cases[] = {
        {5.0, 4.9, FAILURE_EXIT, FAILURE_EXIT, 3},     /* earlier, heard later */
        {5.0, 5.1, FAILURE_SIGNAL, FAILURE_EXIT, 2},   /* earlier and heard first */
        {5.0, 5.001, FAILURE_EXIT, FAILURE_SIGNAL, 3}, /* within the error: the signal explains more */
        {5.0, 5.001, FAILURE_SIGNAL, FAILURE_EXIT, 2},
        {5.0, 5.1, FAILURE_EXIT, FAILURE_SIGNAL, 2}, /* beyond the error, order counts */
        {5.0, 5.001, FAILURE_EXIT, FAILURE_OOM, 3},
        {5.0, 5.001, FAILURE_EXIT, FAILURE_EXIT, 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(3, 3);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        compare_clocks(&r, 2, 3600);
        compare_clocks(&r, 3, -77);
        fails(&r, 2, cases[i].kind2, 900 + cases[i].at2 + 3600);
        fails(&r, 3, cases[i].kind3, 900 + cases[i].at3 - 77);
        stopped(&r);
        pass(&r, 0.75, 14); /* a kill may still be a loss */
        assert_state(&r, GROUP_CLOSED);
        cr_assert_eq(told(&r, 1).failure.incarnation, cases[i].first, "case %zu", i);
    }
}

Test(group, old_words_change_nothing) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 3;
    bring_to(&rig, &c, 2, GROUP_STOPPING);
    struct generation old = group_generation(rig.g);
    say(&rig, 1, NODE_STOPPED);
    say(&rig, 2, NODE_STOPPED);
    open_store(&rig);
    say(&rig, 1, NODE_PREPARED);
    say(&rig, 2, NODE_PREPARED);
    assert_state(&rig, GROUP_RUNNING);
    for (int s = NODE_PREPARED; s <= NODE_STOPPED; s++) {
        struct report rep = {.state = (enum node_state)s,
                             .generation = old,
                             .has_failure = s == NODE_FAILED,
                             .failure = failure_at(2, FAILURE_EXIT, 900)};
        report(&rig, 2, rep);
        assert_state(&rig, GROUP_RUNNING);
    }
    report(&rig, 99, (struct report){.state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true});
    probe(&rig, 99, PROBE_GONE);
    disconnect(&rig, 99);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(group_restarts_used(rig.g), 1);
}

Test(group, of_the_count_of_restarts_the_larger_is_kept) {
    struct group_config c = config_of(2, 3);
    c.rdzv.max_restarts = 5;
    begin(&rig, &c);
    join_as(&rig, 1, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 3});
    cr_assert_eq(group_restarts_used(rig.g), 3);
    join_as(&rig, 2, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 1});
    cr_assert_eq(group_restarts_used(rig.g), 3);
}

/* ---- leases ---- */

Test(group, a_lease_echoes_the_clock_and_names_the_group_from_form_on) {
    begin(&rig, config_at(config_of(2, 2)));
    join(&rig, 1);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_RENEW, .node = 1, .renew = {.clock_ns = 12345}});
    cr_assert(lease(&rig)->echo_ns == 12345 && lease(&rig)->validity_ns == S(5) && lease(&rig)->epoch == 1);
    cr_assert(generation_is_none(lease(&rig)->prepared));
    join(&rig, 2);
    renew(&rig, 1);
    cr_assert(generation_is_none(lease(&rig)->prepared), "FORM is not told yet");
    open_store(&rig);
    renew(&rig, 1);
    cr_assert_eq(generation_compare(lease(&rig)->prepared, group_generation(rig.g)), 0);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_RENEW, .node = 42, .renew = {.clock_ns = 1}});
    cr_assert_null(effect(&rig, GROUP_EFFECT_LEASE), "an unknown node gets none");
}

/* ---- the end ---- */

Test(group, the_operator_ends_the_job_in_every_state) {
    static const enum group_state states[] = {GROUP_GATHERING, GROUP_FORMING, GROUP_RUNNING, GROUP_STOPPING};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(states); i++) {
        enum group_state state = states[i / 2];
        bool halted = i % 2 == 1;
        struct group_config c = config_of(2, state == GROUP_GATHERING ? 3 : 2);
        c.rdzv.max_restarts = 5;
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, state);
        step(&r, (struct group_event){.kind = GROUP_EVENT_STOP, .reason = "enough", .halted = halted});
        say(&r, 1, NODE_STOPPED);
        say(&r, 2, NODE_STOPPED);
        assert_state(&r, GROUP_CLOSED);
        /* a failure in doubt is named, too */
        cr_assert_eq(strncmp(told(&r, 2).reason, "enough", 6), 0, "from %s", group_state_names[state]);
        cr_assert_eq(told(&r, 2).no_fault, !halted, "from %s", group_state_names[state]);
    }
}

Test(group, done_comes_once_when_all_know_or_at_the_close_timeout) {
    for (int timeout = 0; timeout < 2; timeout++) {
        struct group_config c = config_of(2, 2);
        _cleanup_(end) struct rig r;
        bring_to(&r, &c, 2, GROUP_RUNNING);
        say(&r, 1, NODE_FINISHED);
        say(&r, 2, NODE_FINISHED);
        say(&r, 1, NODE_CLOSED);
        if (timeout)
            pass(&r, 29.75, 6);
        cr_assert_eq(r.seen[GROUP_EFFECT_DONE], 0);
        if (timeout)
            pass(&r, 0.25, 6);
        else
            say(&r, 2, NODE_CLOSED);
        cr_assert_eq(r.seen[GROUP_EFFECT_DONE], 1);
        pass(&r, 60, 6);
        cr_assert_eq(r.seen[GROUP_EFFECT_DONE], 1);
    }
}

Test(group, a_latecomer_to_a_closed_job_is_told_the_outcome) {
    bring_to(&rig, config_at(config_of(1, 1)), 1, GROUP_RUNNING);
    say(&rig, 1, NODE_FINISHED);
    join(&rig, 2);
    cr_assert_eq(told(&rig, 2).outcome, OUTCOME_SUCCESS);
}

Test(group, a_newcomer_waits_until_the_group_forms_again_anyway) {
    struct group_config c = config_of(1, 2);
    c.rdzv.last_call_ns = 0;
    c.rdzv.max_restarts = 1;
    begin(&rig, &c);
    join(&rig, 1);
    open_store(&rig);
    say(&rig, 1, NODE_PREPARED);
    join(&rig, 2);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_eq(told(&rig, 2).kind, DESIRED_IDLE);
    fails(&rig, 1, FAILURE_EXIT, 1000);
    say(&rig, 1, NODE_STOPPED);
    cr_assert_eq(group_members(rig.g, NULL, 0), 2);
}

Test(group, a_place_that_was_lost_goes_to_the_newcomer_and_the_others_keep_theirs) {
    bring_to(&rig, config_at(config_of(2, 3)), 3, GROUP_RUNNING);
    join(&rig, 7);
    disconnect(&rig, 2);
    probe(&rig, 2, PROBE_GONE);
    struct generation g = group_generation(rig.g);
    report(&rig, 1, (struct report){.state = NODE_STOPPED, .generation = g});
    report(&rig, 3, (struct report){.state = NODE_STOPPED, .generation = g});
    uint64_t members[3] = {0};
    cr_assert_eq(group_members(rig.g, members, 3), 3);
    cr_assert(members[0] == 1 && members[1] == 7 && members[2] == 3);
}

/* ---- a job that hangs ---- */

static struct failure hang_of(uint64_t node, const char *text) {
    struct failure f = {.kind = FAILURE_HANG, .rank = 1, .incarnation = node, .pid = 12};
    (void)snprintf(f.text, sizeof f.text, "%s", text);
    return f;
}

static void hangs(struct rig *r, struct generation g, uint64_t node) {
    struct failure f = hang_of(node, "rank 1 is stopped");
    step(r, (struct group_event){.kind = GROUP_EVENT_HANG, .generation = g, .failure = &f});
}

Test(group, a_hang_stops_the_group_and_is_charged_as_a_failure_is) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    struct generation first = group_generation(rig.g);
    hangs(&rig, first, 2);
    assert_state(&rig, GROUP_STOPPING);
    const struct timeline_entry *e = entry(&rig, TIMELINE_HANG);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "the job hangs: rank 1 is stopped");
    cr_assert(e->incident.failure.kind == FAILURE_HANG && e->incident.failure.rank == 1);
    cr_assert_null(entry(&rig, TIMELINE_WORKER_FAILED));
    struct desired d = told(&rig, 1);
    cr_assert(d.has_failure && d.will_restart && d.failure.kind == FAILURE_HANG && d.failure.incarnation == 2);
    cr_assert_eq(d.n_stopping, 2, "the one that hangs is stopped, too");
    cr_assert_str_eq(d.failure.node, "h2");
    stopped(&rig);
    cr_assert_eq(group_restarts_used(rig.g), 1);
    start(&rig);
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert_str_eq(o.incident, "the job hangs: rank 1 is stopped");
    hangs(&rig, first, 2);
    assert_state(&rig, GROUP_RUNNING); /* that was about the last group */
    hangs(&rig, group_generation(rig.g), 2);
    stopped(&rig);
    cr_assert_eq(group_outcome(rig.g), OUTCOME_FAILED, "no restart is left");
}

Test(group, a_hang_that_is_only_reported_is_an_event_and_stops_nothing) {
    struct group_config c = config_of(2, 2);
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    struct failure f = hang_of(2, "rank 1 is stopped");
    step(&rig, (struct group_event){.kind = GROUP_EVENT_HANG,
                                    .generation = group_generation(rig.g),
                                    .failure = &f,
                                    .evidence = "logs/hangs/1",
                                    .only_reported = true});
    const struct timeline_entry *e = entry(&rig, TIMELINE_HANG);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "the job hangs: rank 1 is stopped");
    cr_assert_str_eq(e->incident.evidence, "logs/hangs/1");
    assert_state(&rig, GROUP_RUNNING);
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert(strcmp(o.incident, "the job hangs: rank 1 is stopped") == 0 && o.incident_ns == 0);
    is_killed(&rig, 2, 11);
    cr_assert_eq(entry(&rig, TIMELINE_WORKER_FAILED)->incident.failure.code, 11);
}

Test(group, releases_its_workers_once_if_a_node_is_asked_to_leave_while_it_stops) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    struct report leaving = {.state = NODE_RUNNING, .generation = group_generation(rig.g), .leaving = true};
    hangs(&rig, leaving.generation, 1);
    cr_assert_not_null(effect(&rig, GROUP_EFFECT_STOPPING));
    cr_assert_null(effect(&rig, GROUP_EFFECT_RELEASED));
    report(&rig, 2, leaving);
    assert_state(&rig, GROUP_STOPPING);
    cr_assert_not_null(effect(&rig, GROUP_EFFECT_RELEASED));
    const struct timeline_entry *e = entry(&rig, TIMELINE_STOPPING);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "node h2 was asked to stop");
    leaving.state = NODE_STOPPED;
    report(&rig, 2, leaving);
    cr_assert_null(entry(&rig, TIMELINE_STOPPING));
    cr_assert_null(effect(&rig, GROUP_EFFECT_RELEASED));
}

Test(group, reports_when_its_workers_start_stop_and_are_released) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STARTED], 1);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 0);
    hangs(&rig, group_generation(rig.g), 1);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 1);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_STOP, .reason = "by an operator"});
    cr_assert_eq(rig.seen[GROUP_EFFECT_RELEASED], 1, "the job ends, for another reason");
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 1);
}

Test(group, a_node_that_is_asked_to_leave_stops_its_group_once) {
    bring_to(&rig, config_at(config_of(1, 2)), 2, GROUP_RUNNING);
    struct report leaving = {.state = NODE_RUNNING, .generation = group_generation(rig.g), .leaving = true};
    report(&rig, 2, leaving);
    cr_assert_not_null(entry(&rig, TIMELINE_STOPPING));
    report(&rig, 1, leaving);
    cr_assert_null(entry(&rig, TIMELINE_STOPPING));
}

Test(group, a_hang_counts_for_exclusion_only_where_somebody_is_suspected) {
    for (uint64_t suspect = 0; suspect <= 2; suspect += 2) {
        _cleanup_(end) struct rig r;
        struct group_config c = config_of(2, 3);
        c.rdzv.max_restarts = 9;
        c.rdzv.exclude_after = 1;
        bring_to(&r, &c, 3, GROUP_RUNNING);
        hangs(&r, group_generation(r.g), suspect);
        assert_state(&r, GROUP_STOPPING);
        cr_assert_eq(told(&r, 1).failure.incarnation, suspect);
        stopped(&r);
        cr_assert_eq(group_restarts_used(r.g), 1);
        start(&r);
        cr_assert_str_eq(members(&r), suspect == 0 ? "1 2 3" : "1 3");
    }
}

/* ---- what operators see ---- */

static double phase(enum job_phase phase) {
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    return (double)h.phase_ns[phase] / NS_PER_S;
}

Test(group, the_seconds_of_a_job_are_counted_by_phase) {
    begin(&rig, config_at(config_of(2, 2)));
    join(&rig, 1);
    pass(&rig, 2, 1 << 1);
    join(&rig, 2);
    pass(&rig, 0.5, 3 << 1);
    start(&rig);
    assert_state(&rig, GROUP_RUNNING);
    pass(&rig, 5, 3 << 1);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = S(1)});
    cr_assert_float_eq(phase(JOB_PHASE_RUNNING), 4, 1e-6);
    pass(&rig, 3, 3 << 1);
    fails(&rig, 2, FAILURE_EXIT, 10);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = S(2)}); /* until it stopped */
    pass(&rig, 0.25, 3 << 1);
    cr_assert_float_eq(phase(JOB_PHASE_GATHERING), 2, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_FORMING), 0.5, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_RUNNING), 5, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_QUIET), 3, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_STOPPING), 0.25, 1e-6);
}

static struct overview seen(const struct rig *r) {
    struct overview o;
    group_overview(r->g, r->now_ns, &o);
    return o;
}

Test(group, operators_see_the_last_event_and_how_long_the_restart_took) {
    struct group_config c = config_of(1, 2);
    c.rdzv.max_restarts = 1;
    c.job_ns = S(50);
    (void)strcpy(c.program.shown, "train.py --lr=...");
    bring_to(&rig, &c, 2, GROUP_FORMING);
    uint64_t begun_ns = rig.now_ns;
    struct overview o = seen(&rig);
    cr_assert(o.incident[0] == '\0' && o.restart_ns == 0);
    join(&rig, 3);
    lose(&rig, 3);
    rig.now_ns += S(1);
    start(&rig);
    o = seen(&rig);
    cr_assert(strncmp(o.incident, "node h3 ", 8) == 0 && o.restart_ns == 0, "the first start is not a restart");
    cr_assert_str_eq(o.command, "train.py --lr=...");
    pass(&rig, 3, 6);
    cr_assert_eq(seen(&rig).job_ns, S(50) + rig.now_ns - begun_ns);
    is_killed(&rig, 2, 11);
    o = seen(&rig);
    cr_assert(o.state == GROUP_STOPPING && strstr(o.incident, " died of SIGSEGV") != NULL && o.restart_ns == 0);
    cr_assert_eq(o.incident_ns, rig.now_ns - S(1001));
    pass(&rig, 1, 6);
    stopped(&rig);
    open_store(&rig);
    cr_assert_eq(told(&rig, 1).form.job_ns, S(50) + rig.now_ns - begun_ns);
    start(&rig);
    o = seen(&rig);
    cr_assert(strstr(o.incident, "(node h2) died") != NULL && o.restart_ns == rig.now_ns - S(1001));
    pass(&rig, 3, 6);
    cr_assert_eq(seen(&rig).restart_ns, o.restart_ns);
    lose(&rig, 2);
    o = seen(&rig);
    cr_assert(o.restart_ns == 0 && strncmp(o.incident, "node h2 ", 8) == 0, "%s", o.incident);
    pass(&rig, 1, 2);
    stopped(&rig);
    start(&rig);
    cr_assert(strncmp(seen(&rig).incident, "node h2 ", 8) == 0 && seen(&rig).restart_ns >= S(1));
}

/* ---- warm workers ---- */

static void tells_warm(struct rig *r, uint64_t node, struct rdzv_warm warm) {
    step(r, (struct group_event){.kind = GROUP_EVENT_MESSAGE, .node = node, .message = WIRE_WARM, .body = &warm});
}

Test(group, once_all_members_have_told_how_warm_they_are_the_timeline_does) {
    bring_to(&rig, config_at(config_of(2, 2)), 2, GROUP_RUNNING);
    struct generation g = group_generation(rig.g), none = {0};
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = none, .waiting = 1});
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = g, .warm = 1});
    cr_assert_null(entry(&rig, TIMELINE_WARM));
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = g, .warm = 1, .waiting = 1});
    cr_assert_null(entry(&rig, TIMELINE_WARM), "node 1 has told twice");
    tells_warm(&rig, 2, (struct rdzv_warm){.generation = g, .cold = 1, .reason = "it is still warming"});
    const struct timeline_entry *e = entry(&rig, TIMELINE_WARM);
    cr_assert_not_null(e);
    cr_assert(e->has_warm && e->n_warm == 1 && generation_compare(e->generation, g) == 0);
    cr_assert_str_eq(e->cold_because, "it is still warming");
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = none, .waiting = 7}); /* late, of an old connection */
    struct overview_node rows[2];
    cr_assert_eq(group_overview_nodes(rig.g, rig.now_ns, 0, rows, 2), 2);
    cr_assert(rows[0].has_warm && rows[0].warm.warm == 1 && rows[0].warm.waiting == 1);
    cr_assert(rows[1].has_warm && rows[1].warm.cold == 1);
    lose(&rig, 2);
}

Test(group, what_is_told_of_another_generation_is_not_of_this_start) {
    bring_to(&rig, config_at(config_of(1, 1)), 1, GROUP_RUNNING);
    struct generation g = group_generation(rig.g), next = {g.epoch, g.counter + 1};
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = next, .warm = 1});
    cr_assert_null(entry(&rig, TIMELINE_WARM));
    tells_warm(&rig, 1, (struct rdzv_warm){.generation = g, .warm = 1});
    cr_assert_null(entry(&rig, TIMELINE_WARM));
}

/* ---- units of one domain ---- */

/* Nodes join whose domains are "aab": of 1, 2 and 3. */
static void join_domains(struct rig *r, const struct group_config *c, const char *domains) {
    begin(r, c);
    for (uint64_t i = 0; domains[i] != '\0'; i++)
        r->domains[i + 1] = domains[i];
    for (uint64_t i = 0; domains[i] != '\0'; i++)
        join(r, i + 1);
}

static struct group_config units_of(uint32_t unit, uint32_t min, uint32_t max) {
    struct group_config c = config_of(min, max);
    c.rdzv.node_unit = unit;
    return c;
}

static struct rdzv_status status(void) {
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    return s;
}

Test(group, a_group_is_of_whole_units_of_one_domain) {
    struct group_config c = units_of(4, 4, 8);
    join_domains(&rig, &c, "aaaaabbb");
    cr_assert(status().present == 8 && status().usable == 4 && status().spares == 4 && status().last_call);
    assert_state(&rig, GROUP_GATHERING);
    rig.domains[9] = rig.domains[10] = 'b';
    join(&rig, 9);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "1 2 3 4 6 7 8 9");
    join(&rig, 10);
    start(&rig);
    lose(&rig, 7);
    stopped(&rig);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "1 2 3 4 6 10 8 9");
}

Test(group, units_of_any_nodes_and_static_ranks_need_no_domain) {
    for (int i = 0; i < 2; i++) {
        struct group_config c = units_of(2, 4, 4);
        c.static_ranks = i == 0;
        c.rdzv.unit_of = i == 0 ? UNIT_OF_DOMAIN : UNIT_OF_ANY;
        begin(&rig, &c);
        for (uint64_t node = 1; node <= 4; node++) {
            rig.domains[node] = node == 1 ? 'a' : 'b';
            join_as(&rig, node, (int32_t)node - 1, &(struct report){.state = NODE_JOINED});
        }
        assert_state(&rig, GROUP_FORMING);
        end(&rig);
    }
    rig = (struct rig){0};
}

Test(group, a_domain_may_come_after_the_join) {
    struct group_config c = units_of(2, 2, 4);
    join_domains(&rig, &c, "ab");
    cr_assert_eq(status().usable, 0);
    join(&rig, 3);
    cr_assert(status().usable == 3 && status().last_call, "a node has no domain, so all count alone");
    rig.domains[3] = 'c';
    say(&rig, 3, NODE_JOINED);
    cr_assert(status().usable == 0 && !status().last_call);
    rig.domains[3] = 'b';
    say(&rig, 3, NODE_JOINED);
    cr_assert(status().usable == 2 && status().last_call);
}

Test(group, nodes_of_the_wrong_domains_are_not_enough) {
    struct group_config c = units_of(2, 2, 4);
    join_domains(&rig, &c, "abc");
    pass(&rig, 600, 14);
    assert_state(&rig, GROUP_CLOSED);
    const char *reason = told(&rig, 1).reason;
    cr_assert_not_null(strstr(reason,
                              "only 0 of at least 2 nodes came within 600 s (3 nodes, but only 0 in whole units "
                              "of 2 nodes of one domain)"),
                       "%s", reason);
}

Test(group, spares_of_the_wrong_domains_do_not_keep_a_job) {
    struct group_config c = units_of(2, 2, 2);
    join_domains(&rig, &c, "aabc");
    start(&rig);
    lose(&rig, 2);
    stopped(&rig);
    assert_state(&rig, GROUP_CLOSED);
    const char *reason = told(&rig, 1).reason;
    cr_assert_not_null(
        strstr(reason, "0 of at least 2 nodes left (3 nodes, but only 0 in whole units of 2 nodes of one domain)"),
        "%s", reason);
}

Test(group, one_of_the_right_domain_is_waited_for) {
    struct group_config c = units_of(2, 2, 2);
    c.rdzv.regroup_wait_ns = S(20);
    join_domains(&rig, &c, "aabc");
    start(&rig);
    lose(&rig, 2);
    stopped(&rig);
    assert_state(&rig, GROUP_GATHERING);
    rig.domains[5] = 'c';
    join(&rig, 5);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "4 5", "a whole other unit; the leader's node is a spare");
    start(&rig);
}

Test(group, a_node_without_a_domain_is_told_why_it_waits) {
    const char *why = "its NVLink domain or block is not known";
    struct group_config c = units_of(2, 2, 4);
    c.rdzv.last_call_ns = 0;
    join_domains(&rig, &c, "aab");
    start(&rig);
    join(&rig, 4);
    cr_assert_str_eq(told(&rig, 3).reason, "");
    cr_assert(told(&rig, 4).spare);
    cr_assert_str_eq(told(&rig, 4).reason, why);
    end(&rig);
    c.rdzv.unit_of = UNIT_OF_ANY;
    join_domains(&rig, &c, "aa");
    start(&rig);
    join(&rig, 3);
    cr_assert(told(&rig, 3).spare);
    cr_assert_str_eq(told(&rig, 3).reason, "");
}

Test(group, a_group_grows_by_whole_units_of_one_domain) {
    struct group_config c = units_of(2, 2, 4);
    c.rdzv.grow = GROW_NOW;
    c.rdzv.last_call_ns = 0;
    join_domains(&rig, &c, "aa");
    start(&rig);
    rig.domains[3] = rig.domains[5] = 'b';
    rig.domains[4] = 'c';
    join(&rig, 3);
    join(&rig, 4);
    assert_state(&rig, GROUP_RUNNING);
    join(&rig, 5);
    assert_state(&rig, GROUP_STOPPING);
    stopped(&rig);
    cr_assert_str_eq(members(&rig), "1 2 3 5");
}

Test(group, spares_that_complete_a_unit_are_admitted) {
    struct group_config c = units_of(2, 4, 4);
    c.rdzv.spares = 0;
    join_domains(&rig, &c, "abcda");
    cr_assert_eq(rig.seen[GROUP_EFFECT_REFUSE], 0);
    rig.domains[6] = 'b';
    join(&rig, 6);
    cr_assert_str_eq(members(&rig), "1 5 2 6");
    join(&rig, 7);
    cr_assert_eq(rig.seen[GROUP_EFFECT_REFUSE], 1, "all places are taken");
}

Test(group, all_that_can_come_need_not_be_whole_units) {
    struct group_config c = units_of(2, 2, 8);
    begin(&rig, &c);
    step(&rig, (struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = 5});
    memcpy(&rig.domains[1], "aabcd", 5);
    for (uint64_t node = 1; node <= 4; node++)
        join(&rig, node);
    assert_state(&rig, GROUP_GATHERING);
    join(&rig, 5);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "1 2");
}

Test(group, a_node_whose_unit_can_not_be_replaced_is_not_excluded) {
    static const char *const domains[] = {"aabcd", "aaabc", "aabb"};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        struct group_config c = units_of(2, 2, 2);
        c.rdzv.exclude_after = 1;
        c.rdzv.max_restarts = 3;
        join_domains(&rig, &c, domains[i]);
        start(&rig);
        pass(&rig, 60, 0x3e);
        fails(&rig, 2, FAILURE_EXIT, (double)rig.now_ns / 1e9);
        stopped(&rig);
        assert_state(&rig, GROUP_FORMING);
        static const char *const then[] = {"1 2", "1 3", "3 4"};
        cr_assert_str_eq(members(&rig), then[i], "%s", members(&rig));
        end(&rig);
    }
    rig = (struct rig){0};
}

/* ---- sick nodes ---- */

static struct report sick_report(const struct rig *r, enum node_state state, const char *sick) {
    struct report rep = {.state = state, .generation = group_generation(r->g), .gpu = -1};
    (void)snprintf(rep.sick, sizeof rep.sick, "%s", sick);
    return rep;
}

/* Node 3 is a spare; node 2 fails, and is sick when it has stopped. */
Test(group, a_sick_node_is_replaced_and_the_reason_is_the_event) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 1;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    join(&rig, 3);
    struct report failed = {.state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true};
    failed.failure = (struct failure){
        .kind = FAILURE_SIGNAL, .code = 6, .incarnation = 2, .rank = 1, .node_rank = 1, .node = "h2", .at_ns = S(1)};
    report(&rig, 2, failed);
    say(&rig, 1, NODE_STOPPED);
    struct report rep = sick_report(&rig, NODE_STOPPED, "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    rep.xid = 79;
    rep.gpu = 4;
    report(&rig, 2, rep);
    pass(&rig, 1, 0xe);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "1 3");
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    static const char text[] = "rank 1 (node h2) died of SIGABRT 80 ms after Xid 79 on GPU 4 (0000:9d:00.0); node h2 "
                               "is left out, h3 takes its place";
    cr_assert_str_eq(o.incident, text, "%s", o.incident);
    struct overview_node nodes[3];
    cr_assert_eq(group_overview_nodes(rig.g, rig.now_ns, 0, nodes, 3), 3);
    cr_assert(nodes[2].incarnation == 2 && nodes[2].place == PLACE_SICK);
    cr_assert_str_eq(nodes[2].why, "a worker ended 80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    start(&rig);
    struct desired d = told(&rig, 2);
    cr_assert(d.kind == DESIRED_IDLE && d.spare &&
              strstr(d.reason, "it is sick: a worker ended 80 ms after Xid 79") != NULL);
}

Test(group, a_sick_node_never_stops_a_group_or_makes_it_grow) {
    struct group_config c = config_of(1, 3);
    c.rdzv.grow = GROW_NOW;
    begin(&rig, &c);
    join(&rig, 1);
    join(&rig, 2);
    pass(&rig, 31, 6);
    start(&rig);
    report(&rig, 2, sick_report(&rig, NODE_RUNNING, "its GPU is lost"));
    pass(&rig, 1, 6);
    assert_state(&rig, GROUP_RUNNING);
    struct report rep = {.state = NODE_JOINED, .sick = "row remap failed"};
    join_as(&rig, 3, -1, &rep);
    pass(&rig, 1, 0xe);
    assert_state(&rig, GROUP_RUNNING);
    rep.sick[0] = '\0';
    report(&rig, 3, rep);
    assert_state(&rig, GROUP_RUNNING);
    cr_assert_str_eq(members(&rig), "1 2", "the group would not be larger without node 2");
    report(&rig, 2, sick_report(&rig, NODE_RUNNING, ""));
    assert_state(&rig, GROUP_STOPPING);
}

static unsigned n_sick; /* notices */
static void count_sick(struct rig *r) {
    for (size_t i = 0; i < r->u.n_effects; i++)
        n_sick += r->u.effects[i].kind == GROUP_EFFECT_NOTICE && strstr(r->u.effects[i].reason, "is sick") != NULL;
}

/* What is said of it is said once, for each verdict. */
Test(group, a_sick_node_that_is_needed_takes_part_with_one_warning) {
    struct group_config c = config_of(2, 2);
    c.rdzv.max_restarts = 3;
    bring_to(&rig, &c, 2, GROUP_RUNNING);
    rig.after = count_sick;
    for (unsigned i = 0; i < 3; i++) {
        struct report failed = sick_report(&rig, NODE_FAILED, i == 0 ? "" : "row remap failed");
        failed.has_failure = true;
        failed.failure = failure_at(2, FAILURE_OOM, 1 + i);
        report(&rig, 2, failed);
        say(&rig, 1, NODE_STOPPED);
        report(&rig, 2, sick_report(&rig, NODE_STOPPED, i < 2 ? "row remap failed" : "its GPU is lost"));
        pass(&rig, 1, 6);
        assert_state(&rig, GROUP_FORMING);
        cr_assert_str_eq(members(&rig), "1 2");
        cr_assert_eq(n_sick, i < 2 ? 1 : 2, "%u", n_sick);
        open_store(&rig);
        say(&rig, 1, NODE_PREPARED);
        report(&rig, 2, sick_report(&rig, NODE_PREPARED, i < 2 ? "row remap failed" : "its GPU is lost"));
        assert_state(&rig, GROUP_RUNNING);
    }
}

/* Before the first start a spare may still come. */
Test(group, a_sick_node_is_taken_at_the_first_start_when_nobody_else_came) {
    struct report rep = {.state = NODE_JOINED, .sick = "row remap failed"};
    for (int spare = 0; spare < 2; spare++) {
        struct rig r;
        begin(&r, config_at(config_of(2, 2)));
        join(&r, 1);
        join_as(&r, 2, -1, &rep);
        pass(&r, 1, 6);
        assert_state(&r, GROUP_GATHERING);
        if (spare)
            join(&r, 3);
        else
            pass(&r, 31, 6);
        assert_state(&r, GROUP_FORMING);
        cr_assert_str_eq(members(&r), spare ? "1 3" : "1 2");
        end(&r);
    }
}

/* It repeats its report to a new leader. */
Test(group, a_new_leader_learns_that_a_node_is_sick) {
    struct report rep = {.state = NODE_STOPPED, .generation = {1, 4}, .sick = "its GPU is lost"};
    begin(&rig, config_at(config_of(1, 3)));
    join(&rig, 1);
    join_as(&rig, 2, -1, &rep);
    pass(&rig, 31, 6);
    assert_state(&rig, GROUP_FORMING);
    cr_assert_str_eq(members(&rig), "1");
}
