#include "group_rig.h"

#include "rig/unit.h"

TestSuite(group, .fini = end);

/* ---- configuration ---- */

Test(group, a_configuration_that_makes_no_sense_is_refused) {
    static const struct {
        uint32_t min, max, unit, epoch;
        uint64_t lease_ns;
        int result;
    } cases[] = {
        {1, 1, 1, 1, 1, 0},
        {0, 1, 1, 1, 1, -EINVAL},
        {2, 1, 1, 1, 1, -EINVAL},
        {1, RDZV_NODES_MAX, 1, 1, 1, 0},
        {1, RDZV_NODES_MAX + 1, 1, 1, 1, -EINVAL},
        {1, 1, 1, 0, 1, -EINVAL},
        {1, 1, 1, 1, 0, -EINVAL},
        {3, 3, 2, 1, 1, -EINVAL},
        {3, 4, 2, 1, 1, 0},
        {1, 3, 4, 1, 1, -EINVAL},
        {1, 1, 0, 1, 1, -EINVAL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct group_config c = config_of(cases[i].min, cases[i].max);
        c.rdzv.node_unit = cases[i].unit;
        c.rdzv.lease_ns = cases[i].lease_ns;
        c.epoch = cases[i].epoch;
        struct group *g = NULL;
        cr_assert_eq(group_new(&c, 0, &g), cases[i].result, "case %zu", i);
        group_free(g);
    }
}

/* ---- gathering ---- */

Test(group, max_nodes_form_at_once_and_min_after_the_last_call) {
    struct group_config c = config_of(2, 3);
    begin(&c);
    play("join 1; pass 100 1; is gathering; join 2; pass 29.5 12; is gathering");
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    cr_assert(s.last_call && s.present == 2 && s.wait_ns == S(0.5), "%u there, %llu ns", s.present,
              (unsigned long long)s.wait_ns);
    play("pass 0.5 12; is forming");
    cr_assert_eq(rig.seen[GROUP_EFFECT_STORE_OPEN], 1);
    begin(&c);
    play("join 1 2 3; is forming");
}

Test(group, nodes_that_cannot_come_are_not_waited_for) {
    struct group_config c = config_of(2, 4);
    begin(&c);
    play("expect 3; join 1 2; pass 5 12; is gathering; expect 2; is forming");
    begin(&c);
    play("expect 3; join 1 2 3; is forming");
}

Test(group, fewer_than_min_that_can_come_form_nothing) {
    begin(AT(config_of(2, 4)));
    play("expect 1; join 1; pass 5 1; is gathering");
    /* another one came nevertheless: as if nothing had been said */
    play("join 2; pass 29 12; is gathering; pass 1 12; is forming");
}

Test(group, a_full_group_waits_for_the_end_of_old_leases_alone) {
    struct group_config c = *WITH(config_of(2, 2), .not_before_ns = S(1004));
    begin(&c);
    join(1);
    join(2);
    assert_state(GROUP_GATHERING);
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    uint64_t left_ns = c.not_before_ns - rig.now_ns;
    cr_assert(s.last_call && s.present == 2 && s.wait_ns == left_ns, "%llu of %llu ns", (unsigned long long)s.wait_ns,
              (unsigned long long)left_ns);
}

Test(group, one_that_goes_in_the_last_call_stops_it) {
    begin(AT(config_of(2, 3)));
    play("join 1 2; pass 20 12; left 2; pass 100 1; is gathering; join 3; pass 29 13; is gathering; pass 1 13; is "
         "forming");
}

Test(group, the_join_timeout_ends_the_job_and_says_who_came) {
    bring_to(AT(config_of(3, 3)), 2, GROUP_GATHERING);
    play("pass 599.5 12; is gathering; pass 0.75 12; is closed; outcome failed; gives-reason h1; gives-reason h2");
}

Test(group, the_join_timeout_names_nobody_when_nobody_is_left) {
    bring_to(AT(config_of(3, 3)), 1, GROUP_GATHERING);
    struct command exclude = {.kind = COMMAND_EXCLUDE, .node = "h1"};
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &exclude});
    pass(601, 6);
    assert_state(GROUP_CLOSED);
    struct desired d = told(1);
    assert_has(d.reason, "only 0 of at least 3 nodes came within 600 s; start");
}

Test(group, the_join_timeout_says_which_node_was_refused_and_why) {
    for (int again = 0; again <= 1; again++) {
        bring_to(AT(config_of(3, 3)), 1, GROUP_GATHERING);
        struct node_info info = {.incarnation = 2, .nproc = 0, .node_rank = -1, .host = "b"};
        struct group_event event = {
            .kind = GROUP_EVENT_JOIN, .info = &info, .report = &(struct report){.state = NODE_JOINED}};
        step(event);
        cr_assert_not_null(effect(GROUP_EFFECT_REFUSE));
        info.nproc = 1;
        if (again != 0)
            step(event);
        pass(601, 6);
        assert_state(GROUP_CLOSED);
        struct desired d = told(1);
        cr_assert_eq(strstr(d.reason, "; node b was refused: its number of workers") != NULL, again == 0, "%s",
                     d.reason);
        cr_assert_eq(strstr(d.reason, "; start the missing ones") != NULL, again != 0, "%s", d.reason);
    }
}

Test(group, joins_that_can_not_be_are_refused) {
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
        begin(WITH(config_of(2, 2), .static_ranks = true));
        join_as(1, 0, &(struct report){.state = NODE_JOINED});
        struct node_info info = {.incarnation = 2, .nproc = cases[i].nproc, .node_rank = cases[i].rank, .host = "b"};
        join_info(&info);
        const struct group_effect *e = effect(GROUP_EFFECT_REFUSE);
        cr_assert_eq(e == NULL, cases[i].why == NULL, "case %zu", i);
        cr_assert_eq(group_nodes(rig.g, NULL, 0), cases[i].why == NULL ? 2 : 1);
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
        begin(AT(config_of(cases[i].n_nodes, cases[i].n_nodes)));
        for (uint64_t node = 1; node <= cases[i].n_nodes; node++) {
            struct node_info info = {.incarnation = node,
                                     .nproc = 1,
                                     .node_rank = -1,
                                     .nets = {{.netif = "ib0"}},
                                     .listener_port = (uint16_t)(4000 + node)};
            (void)snprintf(info.host, sizeof info.host, "n%d", (int)node);
            (void)snprintf(info.nets[0].addrs, sizeof info.nets[0].addrs, "10.0.0.%d", (int)node);
            join_info(&info);
        }
        open_store();
        struct desired d = told(1);
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
    begin(AT(config_of(4, 4)));
    static const struct {
        uint64_t node;
        const char *host;
        uint32_t nproc, rank, first;
    } nodes[] = {{5, "node10", 2, 2, 4}, {3, "node2", 3, 1, 1}, {1, "z", 1, 0, 0}, {4, "node10", 1, 3, 6}};
    for (size_t i = 0; i < 4; i++) {
        struct node_info info = {.incarnation = nodes[i].node, .nproc = nodes[i].nproc, .node_rank = -1};
        (void)snprintf(info.host, sizeof info.host, "%s", nodes[i].host);
        join_info(&info);
    }
    open_store();
    for (size_t i = 0; i < 4; i++) {
        struct desired d = told(nodes[i].node);
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
    bring_to(AT(config_of(3, 3)), 3, GROUP_FORMING);
    play("prepared 1 1 2; is forming; prepared 3; is running; sends 3; gets 2 start");
}

Test(group, start_tells_the_reachability_that_all_members_have) {
    bring_to(AT(config_of(3, 3)), 3, GROUP_FORMING);
    static const uint32_t reachability[] = {0x17, 0x16, 0x1e};
    for (uint64_t node = 1; node <= 3; node++) {
        struct report report = {.state = NODE_PREPARED,
                                .generation = group_generation(rig.g),
                                .epoch = 1,
                                .reachability = reachability[node - 1]};
        step((struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &report});
    }
    for (uint64_t node = 1; node <= 3; node++)
        cr_assert_eq(told(node).reachability, 0x16u);
}

Test(group, a_nack_and_a_form_timeout_cost_a_restart_like_a_failed_worker) {
    for (int timeout = 0; timeout < 2; timeout++) {
        bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_FORMING);
        say(1, NODE_PREPARED);
        if (timeout)
            pass(60.25, 6);
        else
            fails(2, FAILURE_SPAWN, 1000);
        assert_state(GROUP_STOPPING);
        cr_assert_eq(told(1).has_failure, !timeout, "a slow node may be a lost one");
        stopped();
        assert_state(GROUP_FORMING);
        cr_assert_eq(group_restarts_used(rig.g), 1);
    }
}

Test(group, without_a_store_the_job_ends) {
    begin(AT(config_of(2, 2)));
    join(1);
    join(2);
    step((struct group_event){.kind = GROUP_EVENT_STORE, .generation = {1, 7}, .reason = "of another group"});
    assert_state(GROUP_FORMING);
    step((struct group_event){.kind = GROUP_EVENT_STORE, .generation = {1, 1}, .reason = "EMFILE"});
    assert_state(GROUP_CLOSED);
    assert_has(told(2).reason, "EMFILE");
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
        bring_to(WITH(config_of(cases[i].min, cases[i].state == GROUP_GATHERING ? 4 : 3), .rdzv.max_restarts = 5), 3,
                 cases[i].state);
        disconnect(3);
        cr_assert_eq(count(GROUP_EFFECT_PROBE, 3), 1, "case %zu", i);
        probe(3, PROBE_UNKNOWN);
        cr_assert_eq(group_nodes(rig.g, NULL, 0), 3, "silence proves nothing, case %zu", i);
        probe(3, PROBE_GONE);
        cr_assert_eq(count(GROUP_EFFECT_FORGET, 3), 1);
        cr_assert_eq(group_state(rig.g), cases[i].then, "case %zu: %s", i, group_state_names[group_state(rig.g)]);
        if (cases[i].state != GROUP_GATHERING) {
            struct generation g = group_generation(rig.g);
            report(1, (struct report){.state = NODE_STOPPED, .generation = g});
            report(2, (struct report){.state = NODE_STOPPED, .generation = g});
        }
        cr_assert_eq(group_state(rig.g), cases[i].last, "case %zu: %s", i, group_state_names[group_state(rig.g)]);
    }
}

/* It is asked again more and more rarely, and never more than a fifth of a second apart. */
Test(group, the_start_waits_for_the_first_probe_of_each_listener) {
    static const enum probe_result results[] = {PROBE_ALIVE, PROBE_GONE, PROBE_UNKNOWN};
    for (size_t i = 0; i <= ARRAY_SIZE(results); i++) {
        begin(AT(config_of(2, 2)));
        join(1);
        cr_assert_eq(rig.seen[GROUP_EFFECT_REACH], 0, "the leader has no reason to probe itself");
        join(2);
        cr_assert_eq(rig.seen[GROUP_EFFECT_REACH], 1);
        open_store();
        say(1, NODE_PREPARED);
        say(2, NODE_PREPARED);
        assert_state(GROUP_FORMING);
        if (i < ARRAY_SIZE(results))
            probe(2, results[i]);
        else
            pass(61, 6); /* an answer that does not come stops no job */
        assert_state(GROUP_RUNNING);
    }
}

Test(group, a_member_whose_listener_was_not_reached_is_probed_again_ever_more_rarely) {
    bring_to(AT(config_of(1, 2)), 1, GROUP_GATHERING);
    const uint64_t joined_ns = rig.now_ns;
    join(2);
    start(); /* PROBE_UNKNOWN, and probed once more */
    static const struct {
        double at;
        size_t probes; /* so far */
        enum probe_result answer;
    } steps[] = {{2, 0, PROBE_UNKNOWN}, {3.9, 0, 0},          {4, 1, 0},  {5, 1, PROBE_UNKNOWN},
                 {9.9, 1, 0},           {10, 2, PROBE_ALIVE}, {100, 2, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        rig.now_ns = joined_ns + S(steps[i].at);
        renew(1);
        renew(2);
        cr_assert_eq(rig.seen[GROUP_EFFECT_PROBE], steps[i].probes, "at %g", steps[i].at);
        if (steps[i].answer != 0)
            probe(2, steps[i].answer);
    }
}

Test(group, silence_is_a_loss_at_lease_and_margin_and_not_before) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    play("pass 5.75 1; is running; pass 0.25 1; is stopping; gives-reason h2; names-no-failure; stopped 1; restarts 0");
}

Test(group, a_leader_that_slept_gives_everybody_time_again) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    /* two hosts are silent at once: they are held for a moment */
    play("sleep 30; nodes 2; pass 5.75; nodes 2; pass 2; nodes 2; pass 0.5; nodes 0");
}

Test(group, a_node_that_resumes_keeps_the_group_running) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    play("disconnect 2; pass 3 1; back 2 running; is running; gets 2 start; pass 10 12; is running");
}

Test(group, a_finished_node_may_go_and_the_job_still_succeeds) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    play("finished 2; disconnect 2; gone 2; is running; finished 1; is closed; outcome success");
}

Test(group, a_leaving_node_stops_the_group_at_once_and_costs_nothing) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    play("leaving 2; is stopping; stopped 1; stopped-leaving 2; left 2; is forming; members 1; restarts 0");
}

Test(group, an_unusable_node_counts_as_stopped_and_never_takes_part_again) {
    bring_to(WITH(config_of(1, 2), .rdzv.max_restarts = 1), 2, GROUP_STOPPING);
    say(1, NODE_STOPPED);
    report(2, (struct report){.state = NODE_FAILED, .generation = group_generation(rig.g), .unusable = "pid 9"});
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], 1, "people are told, once");
    assert_state(GROUP_FORMING);
    uint64_t members[2];
    cr_assert_eq(group_members(rig.g, members, 2), 1);
    cr_assert_eq(members[0], 1);
}

static bool several_reported;
static void look_for_several(void) {
    for (size_t i = 0; i < rig.u.n_effects; i++)
        several_reported |= rig.u.effects[i].kind == GROUP_EFFECT_NOTICE &&
                            strstr(rig.u.effects[i].reason, "several nodes became silent") != NULL;
}

Test(group, several_silent_nodes_are_reported_only_while_the_job_runs) {
    for (int over = 0; over < 2; over++) {
        bring_to(WITH(config_of(3, 3), .rdzv.hold_ns = S(10)), 3, GROUP_RUNNING);
        for (uint64_t node = 1; over != 0 && node <= 3; node++)
            say(node, NODE_FINISHED);
        assert_state(over != 0 ? GROUP_CLOSED : GROUP_RUNNING);
        rig.after = look_for_several;
        several_reported = false;
        pass(10, 1u << 1);
        cr_assert_eq(several_reported, over == 0, "%d", over);
    }
}

/* ---- budget and cause ---- */

Test(group, a_generation_is_charged_once_however_many_workers_fail) {
    bring_to(WITH(config_of(3, 3), .rdzv.max_restarts = 2, .rdzv.crash_loop_ns = 0), 3, GROUP_RUNNING);
    for (uint64_t node = 1; node <= 3; node++)
        fails(node, FAILURE_EXIT, 1001);
    struct generation g = group_generation(rig.g);
    for (uint64_t node = 1; node <= 3; node++)
        report(node, (struct report){.state = NODE_STOPPED,
                                     .generation = g,
                                     .has_failure = true,
                                     .failure = failure_at(node, FAILURE_EXIT, 1001)});
    cr_assert_eq(group_restarts_used(rig.g), 1);
    assert_state(GROUP_FORMING);
    open_store();
    fails(3, FAILURE_EXIT, 1002); /* the next generation, by a nack */
    fails(2, FAILURE_EXIT, 1002);
    for (uint64_t node = 1; node <= 3; node++)
        say(node, NODE_STOPPED);
    cr_assert_eq(group_restarts_used(rig.g), 2);
}

/* Of a leader that knows nothing of them, whoever tells the most counts, of each. */
Test(group, a_new_leader_takes_the_counters_that_reports_have) {
    begin(WITH(config_of(2, 2), .rdzv.max_restarts = 9));
    join_as(1, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 1, .losses = 4});
    join_as(2, -1, &(struct report){.state = NODE_JOINED, .restarts_used = 3, .losses = 2});
    pass(1, 1U << 1 | 1U << 2);
    assert_state(GROUP_FORMING);
    open_store();
    cr_assert_eq(told(2).form.restarts_used, 3);
    cr_assert_eq(told(2).form.losses, 4);
}

Test(group, a_better_cause_is_told_at_once) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    fails(1, FAILURE_EXIT, 1001);
    fails(2, FAILURE_SIGNAL, 1001);
    cr_assert_eq(count(GROUP_EFFECT_DESIRED, 0), 2);
    struct desired d;
    cr_assert(group_desired(rig.g, 1, &d));
    cr_assert(d.kind == DESIRED_STOP && d.has_failure && d.failure.kind == FAILURE_SIGNAL);
}

Test(group, at_most_eight_better_causes_are_reported_at_once) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    for (int i = 0; i < 10; i++) {
        struct failure f = *WITH(failure_at(2, FAILURE_SIGNAL, 1001 - i), .code = SIGSEGV);
        report(2, (struct report){
                      .state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true, .failure = f});
        cr_assert_eq(count(GROUP_EFFECT_DESIRED, 1), i < 9, "%d", i);
    }
}

Test(group, a_failure_after_a_nodes_silence_is_withheld_and_costs_nothing_when_that_node_was_lost) {
    bring_to(AT(config_of(1, 3)), 3, GROUP_RUNNING); /* no restart allowed */
    play("disconnect 2; fails 1 exit; is stopping; gives-no-reason; will-end; stopped 1 3; is stopping; "
         "gone 2; pass 0.01 13; is forming; members 1 3; restarts 0");
}

Test(group, a_failure_after_a_nodes_silence_counts_when_that_node_was_there_after_all) {
    bring_to(AT(config_of(3, 3)), 3, GROUP_RUNNING);
    play("disconnect 2; fails 1 exit; back 2 stopped; stopped 1 3; is closed; names-failure-of 1");
}

Test(group, a_kill_is_its_nodes_loss_when_the_node_is_lost_before_it_has_stopped) {
    for (int stopped_first = 0; stopped_first < 2; stopped_first++) {
        bring_to(AT(config_of(1, 3)), 3, GROUP_RUNNING); /* no restart allowed */
        /* node 3 fails as its peer; where the job would end, that can wait */
        play(stopped_first ? "killed 2 9; fails 3 exit; stopped 1 3 2" : "killed 2 9; fails 3 exit; stopped 1 3");
        play("is stopping; gives-no-reason; disconnect 2; gone 2; is stopping; gives-reason node h2 is gone; "
             "will-restart");
        cr_assert(!told(1).has_failure && count(GROUP_EFFECT_NOTICE, 0) == 0, "it is named once");
        play("pass 0.01 13; is forming; restarts 0");
    }
}

Test(group, a_kill_on_a_node_that_lives_is_charged_as_soon_as_all_have_stopped) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    is_killed(2, 15);
    cr_assert(!told(1).has_failure);
    say(1, NODE_STOPPED);
    struct report last = {.state = NODE_STOPPED, .generation = group_generation(rig.g)};
    step((struct group_event){.kind = GROUP_EVENT_REPORT, .node = 2, .report = &last});
    assert_state(GROUP_STOPPING); /* until this has gone out */
    cr_assert(told(1).has_failure && told(1).will_restart && told(1).restarts_used == 1);
    pass(0.001, 6);
    assert_state(GROUP_FORMING);
    cr_assert_eq(group_restarts_used(rig.g), 1);
}

Test(group, a_job_ends_for_a_kill_when_the_agent_has_outlived_it_a_while) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    play("killed 2 9; all-stopped; pass 0.25 12; is stopping; disconnect 2; pass 0.5 1; is stopping; "
         "back 2 stopped; pass 0.25 12; is closed; names-failure-of 2");
}

Test(group, a_node_that_leaves_was_told_so_with_its_workers) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    is_killed(2, 15);
    struct report leaving = {.state = NODE_FAILED,
                             .generation = group_generation(rig.g),
                             .leaving = true,
                             .leaving_why = "was stopped by SIGTERM",
                             .has_failure = true,
                             .failure = failure_at(2, FAILURE_SIGNAL, 1001)};
    leaving.failure.code = 15;
    report(2, leaving);
    assert_has(told(1).reason, "node h2 was stopped by SIGTERM");
    leaving.state = NODE_STOPPED;
    report(2, leaving);
    say(1, NODE_STOPPED);
    assert_state(GROUP_FORMING);
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

Test(group, a_cause_in_doubt_is_told_when_every_node_has_outlived_it) {
    bring_to(WITH(config_of(3, 3), .rdzv.max_restarts = 1), 3, GROUP_RUNNING);
    /* node 2 is silent */
    play("fails 3 exit; pass 1 13; gives-no-reason; pass 1 13; names-no-failure; gives-reason rank 0 failed; "
         "pass 0.5 123; names-failure-of 3; will-restart; is stopping");
    cr_assert_eq(told(1).reason[0], '\0');
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
        struct failure f = failure_at(2, cases[i].kind, 1001);
        bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
        f.code = cases[i].code;
        f.rank = 1;
        (void)strcpy(f.text, "WARNING: old\n");
        report(2, (struct report){
                      .state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true, .failure = f});
        cr_assert(!told(1).has_failure && told(1).reason[0] == '\0', "in doubt");
        step((struct group_event){.kind = GROUP_EVENT_STOP, .reason = "enough"});
        stopped();
        assert_state(GROUP_CLOSED);
        cr_expect_str_eq(told(1).reason, cases[i].reason, "%s", told(1).reason);
    }
}

Test(group, a_finished_node_that_is_told_to_leave_stops_nobody) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    say(2, NODE_FINISHED);
    report(2, (struct report){.state = NODE_FINISHED, .generation = group_generation(rig.g), .leaving = true});
    play("is running; left 2; is running");
}

Test(group, a_restarted_host_with_its_own_rank_is_refused_only_for_now) {
    begin(WITH(config_of(2, 2), .static_ranks = true));
    join_as(1, 0, &(struct report){.state = NODE_JOINED});
    const char *const hosts[] = {"h1", "elsewhere"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct node_info info = {.incarnation = 2 + i, .nproc = 1, .node_rank = 0};
        (void)snprintf(info.host, sizeof info.host, "%s", hosts[i]);
        join_info(&info);
        const struct group_effect *e = effect(GROUP_EFFECT_REFUSE);
        cr_assert(e != NULL);
        cr_assert_eq(e->for_now, i == 0);
    }
}

Test(group, no_restart_left_closes_with_the_failure_for_everybody) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_STOPPING); /* max_restarts 0: the first failure ends the job */
    stopped();
    assert_state(GROUP_CLOSED);
    for (uint64_t node = 1; node <= 2; node++) {
        struct desired d = told(node);
        cr_assert(d.kind == DESIRED_CLOSED && d.outcome == OUTCOME_FAILED && d.has_failure && !d.no_fault);
        cr_assert_eq(d.failure.incarnation, 2);
    }
    cr_assert_eq(group_restarts_used(rig.g), 0);
}

/* One lease exchange: the node's clock is `ahead` seconds before the leader's, the round trip 2 ms. */
static void compare_clocks(uint64_t node, double ahead) {
    struct renew first = {.clock_ns = rig.now_ns + S(ahead) - S(0.001)};
    step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = first});
    struct renew second = {
        .clock_ns = rig.now_ns + S(ahead) + S(0.001), .leader_clock_ns = rig.now_ns, .rtt_ns = S(0.002)};
    step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = second});
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
        bring_to(AT(config_of(3, 3)), 3, GROUP_RUNNING);
        compare_clocks(2, 3600);
        compare_clocks(3, -77);
        fails(2, cases[i].kind2, 900 + cases[i].at2 + 3600);
        fails(3, cases[i].kind3, 900 + cases[i].at3 - 77);
        stopped();
        pass(0.75, 14); /* a kill may still be a loss */
        assert_state(GROUP_CLOSED);
        cr_assert_eq(told(1).failure.incarnation, cases[i].first, "case %zu", i);
    }
}

Test(group, old_words_change_nothing) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 3), 2, GROUP_STOPPING);
    struct generation old = group_generation(rig.g);
    stopped();
    start();
    for (int s = NODE_PREPARED; s <= NODE_STOPPED; s++) {
        struct report rep = {.state = (enum node_state)s,
                             .generation = old,
                             .has_failure = s == NODE_FAILED,
                             .failure = failure_at(2, FAILURE_EXIT, 900)};
        report(2, rep);
        assert_state(GROUP_RUNNING);
    }
    report(99, (struct report){.state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true});
    probe(99, PROBE_GONE);
    disconnect(99);
    assert_state(GROUP_RUNNING);
    cr_assert_eq(group_restarts_used(rig.g), 1);
}

/* ---- leases ---- */

Test(group, a_lease_echoes_the_clock_and_names_the_group_from_form_on) {
    begin(AT(config_of(2, 2)));
    join(1);
    step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = 1, .renew = {.clock_ns = 12345}});
    cr_assert(lease()->echo_ns == 12345 && lease()->validity_ns == S(5) && lease()->epoch == 1);
    cr_assert(generation_is_none(lease()->prepared));
    join(2);
    renew(1);
    cr_assert(generation_is_none(lease()->prepared), "FORM is not told yet");
    open_store();
    renew(1);
    cr_assert_eq(generation_compare(lease()->prepared, group_generation(rig.g)), 0);
    step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = 42, .renew = {.clock_ns = 1}});
    cr_assert_null(effect(GROUP_EFFECT_LEASE), "an unknown node gets none");
}

/* ---- the end ---- */

Test(group, the_operator_ends_the_job_in_every_state) {
    static const enum group_state states[] = {GROUP_GATHERING, GROUP_FORMING, GROUP_RUNNING, GROUP_STOPPING};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(states); i++) {
        enum group_state state = states[i / 2];
        bool halted = i % 2 == 1;
        bring_to(WITH(config_of(2, state == GROUP_GATHERING ? 3 : 2), .rdzv.max_restarts = 5), 2, state);
        step((struct group_event){.kind = GROUP_EVENT_STOP, .reason = "enough", .halted = halted});
        stopped();
        assert_state(GROUP_CLOSED);
        /* a failure in doubt is named, too */
        cr_assert_eq(strncmp(told(2).reason, "enough", 6), 0, "from %s", group_state_names[state]);
        cr_assert_eq(told(2).no_fault, !halted, "from %s", group_state_names[state]);
    }
}

Test(group, done_comes_once_when_all_know_or_at_the_close_timeout) {
    for (int timeout = 0; timeout < 2; timeout++) {
        bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
        play("finished 1 2; closed 1; done 0");
        play(timeout ? "pass 29.75 12; done 0; pass 0.25 12; done 1" : "closed 2; done 1");
        play("pass 60 12; done 1");
    }
}

Test(group, a_latecomer_to_a_closed_job_is_told_the_outcome) {
    bring_to(AT(config_of(1, 1)), 1, GROUP_RUNNING);
    play("finished 1; join 2; gets 2 closed; outcome success");
    cr_assert_eq(told(2).outcome, OUTCOME_SUCCESS);
}

Test(group, a_newcomer_waits_until_the_group_forms_again_anyway) {
    begin(WITH(config_of(1, 2), .rdzv.last_call_ns = 0, .rdzv.max_restarts = 1));
    play("join 1; store; prepared 1; join 2; is running; gets 2 idle; fails 1 exit; stopped 1; members 1 2");
}

/* ---- a job that hangs ---- */

static struct failure hang_of(uint64_t node, const char *text) {
    struct failure f = {.kind = FAILURE_HANG, .rank = 1, .incarnation = node, .pid = 12};
    (void)snprintf(f.text, sizeof f.text, "%s", text);
    return f;
}

static void hangs(struct generation g, uint64_t node) {
    struct failure f = hang_of(node, "rank 1 is stopped");
    step((struct group_event){.kind = GROUP_EVENT_HANG, .generation = g, .failure = &f});
}

Test(group, a_hang_stops_the_group_and_is_charged_as_a_failure_is) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    struct generation first = group_generation(rig.g);
    hangs(first, 2);
    assert_state(GROUP_STOPPING);
    const struct timeline_entry *e = entry(TIMELINE_HANG);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "the job hangs: rank 1 is stopped");
    cr_assert(e->incident.failure.kind == FAILURE_HANG && e->incident.failure.rank == 1);
    cr_assert_null(entry(TIMELINE_WORKER_FAILED));
    struct desired d = told(1);
    cr_assert(d.has_failure && d.will_restart && d.failure.kind == FAILURE_HANG && d.failure.incarnation == 2);
    cr_assert_eq(d.n_stopping, 2, "the one that hangs is stopped, too");
    cr_assert_str_eq(d.failure.node, "h2");
    stopped();
    cr_assert_eq(group_restarts_used(rig.g), 1);
    start();
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert_str_eq(o.incident, "the job hangs: rank 1 is stopped");
    cr_assert_str_eq(o.leader_host, "h1");
    hangs(first, 2);
    assert_state(GROUP_RUNNING); /* that was about the last group */
    hangs(group_generation(rig.g), 2);
    stopped();
    cr_assert_eq(group_outcome(rig.g), OUTCOME_FAILED, "no restart is left");
}

Test(group, a_hang_that_is_only_reported_is_an_event_and_stops_nothing) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    struct failure f = hang_of(2, "rank 1 is stopped");
    step((struct group_event){.kind = GROUP_EVENT_HANG,
                              .generation = group_generation(rig.g),
                              .failure = &f,
                              .evidence = "logs/hangs/1",
                              .only_reported = true});
    const struct timeline_entry *e = entry(TIMELINE_HANG);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "the job hangs: rank 1 is stopped");
    cr_assert_str_eq(e->incident.evidence, "logs/hangs/1");
    assert_state(GROUP_RUNNING);
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert(strcmp(o.incident, "the job hangs: rank 1 is stopped") == 0 && o.incident_ns == 0);
    is_killed(2, 11);
    cr_assert_eq(entry(TIMELINE_WORKER_FAILED)->incident.failure.code, 11);
}

Test(group, releases_its_workers_once_if_a_node_is_asked_to_leave_while_it_stops) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    struct report leaving = {.state = NODE_RUNNING, .generation = group_generation(rig.g), .leaving = true};
    hangs(leaving.generation, 1);
    cr_assert_not_null(effect(GROUP_EFFECT_STOPPING));
    cr_assert_null(effect(GROUP_EFFECT_RELEASED));
    report(2, leaving);
    assert_state(GROUP_STOPPING);
    cr_assert_not_null(effect(GROUP_EFFECT_RELEASED));
    const struct timeline_entry *e = entry(TIMELINE_STOPPING);
    cr_assert_not_null(e);
    cr_assert_eq(e->node, 2);
    cr_assert_str_eq(e->why, "node h2 was asked to stop");
    leaving.state = NODE_STOPPED;
    report(2, leaving);
    cr_assert_null(entry(TIMELINE_STOPPING));
    cr_assert_null(effect(GROUP_EFFECT_RELEASED));
}

Test(group, reports_when_its_workers_start_stop_and_are_released) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STARTED], 1);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 0);
    hangs(group_generation(rig.g), 1);
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 1);
    step((struct group_event){.kind = GROUP_EVENT_STOP, .reason = "by an operator"});
    cr_assert_eq(rig.seen[GROUP_EFFECT_RELEASED], 1, "the job ends, for another reason");
    cr_assert_eq(rig.seen[GROUP_EFFECT_STOPPING], 1);
}

Test(group, a_node_that_is_asked_to_leave_stops_its_group_once) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    play("leaving 2");
    cr_assert_not_null(entry(TIMELINE_STOPPING));
    play("leaving 1");
    cr_assert_null(entry(TIMELINE_STOPPING));
}

Test(group, a_hang_counts_for_exclusion_only_where_somebody_is_suspected) {
    for (uint64_t suspect = 0; suspect <= 2; suspect += 2) {
        bring_to(WITH(config_of(2, 3), .rdzv.max_restarts = 9, .rdzv.exclude_after = 1), 3, GROUP_RUNNING);
        hangs(group_generation(rig.g), suspect);
        assert_state(GROUP_STOPPING);
        cr_assert_eq(told(1).failure.incarnation, suspect);
        stopped();
        cr_assert_eq(group_restarts_used(rig.g), 1);
        start();
        cr_assert_str_eq(members(), suspect == 0 ? "1 2 3" : "1 3");
    }
}

/* ---- what operators see ---- */

static double phase(enum job_phase phase) {
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    return (double)h.phase_ns[phase] / NS_PER_S;
}

Test(group, the_seconds_of_a_job_are_counted_by_phase) {
    begin(AT(config_of(2, 2)));
    join(1);
    pass(2, 1 << 1);
    join(2);
    pass(0.5, 3 << 1);
    start();
    assert_state(GROUP_RUNNING);
    pass(5, 3 << 1);
    step((struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = S(1)});
    cr_assert_float_eq(phase(JOB_PHASE_RUNNING), 4, 1e-6);
    pass(3, 3 << 1);
    fails(2, FAILURE_EXIT, 10);
    step((struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = S(2)}); /* until it stopped */
    pass(0.25, 3 << 1);
    cr_assert_float_eq(phase(JOB_PHASE_GATHERING), 2, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_FORMING), 0.5, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_RUNNING), 5, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_QUIET), 3, 1e-6);
    cr_assert_float_eq(phase(JOB_PHASE_STOPPING), 0.25, 1e-6);
}

static struct overview seen(void) {
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    return o;
}

Test(group, operators_see_the_last_event_and_how_long_the_restart_took) {
    struct group_config c = *WITH(config_of(1, 2), .rdzv.max_restarts = 1, .job_ns = S(50));
    (void)strcpy(c.program.shown, "train.py --lr=...");
    bring_to(&c, 2, GROUP_FORMING);
    uint64_t begun_ns = rig.now_ns;
    struct overview o = seen();
    cr_assert(o.incident[0] == '\0' && o.restart_ns == 0);
    join(3);
    lose(3);
    rig.now_ns += S(1);
    start();
    o = seen();
    cr_assert(strncmp(o.incident, "node h3 ", 8) == 0 && o.restart_ns == 0, "the first start is not a restart");
    cr_assert_str_eq(o.command, "train.py --lr=...");
    pass(3, 6);
    cr_assert_eq(seen().job_ns, S(50) + rig.now_ns - begun_ns);
    is_killed(2, 11);
    o = seen();
    cr_assert(o.state == GROUP_STOPPING && strstr(o.incident, " died of SIGSEGV") != NULL && o.restart_ns == 0);
    cr_assert_eq(o.incident_ns, rig.now_ns - S(1001));
    pass(1, 6);
    stopped();
    open_store();
    cr_assert_eq(told(1).form.job_ns, S(50) + rig.now_ns - begun_ns);
    start();
    o = seen();
    cr_assert(strstr(o.incident, "(node h2) died") != NULL && o.restart_ns == rig.now_ns - S(1001));
    pass(3, 6);
    cr_assert_eq(seen().restart_ns, o.restart_ns);
    lose(2);
    o = seen();
    cr_assert(o.restart_ns == 0 && strncmp(o.incident, "node h2 ", 8) == 0, "%s", o.incident);
    pass(1, 2);
    stopped();
    start();
    cr_assert(strncmp(seen().incident, "node h2 ", 8) == 0 && seen().restart_ns >= S(1));
}

/* ---- warm workers ---- */

static void tells_warm(uint64_t node, struct rdzv_warm warm) {
    step((struct group_event){.kind = GROUP_EVENT_MESSAGE, .node = node, .message = WIRE_WARM, .body = &warm});
}

Test(group, once_all_members_have_told_how_warm_they_are_the_timeline_does) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    struct generation g = group_generation(rig.g), none = {0};
    tells_warm(1, (struct rdzv_warm){.generation = none, .waiting = 1});
    tells_warm(1, (struct rdzv_warm){.generation = g, .warm = 1});
    cr_assert_null(entry(TIMELINE_WARM));
    tells_warm(1, (struct rdzv_warm){.generation = g, .warm = 1, .waiting = 1});
    cr_assert_null(entry(TIMELINE_WARM), "node 1 has told twice");
    tells_warm(2, (struct rdzv_warm){.generation = g, .cold = 1, .reason = "it is still warming"});
    const struct timeline_entry *e = entry(TIMELINE_WARM);
    cr_assert_not_null(e);
    cr_assert(e->has_warm && e->n_warm == 1 && generation_compare(e->generation, g) == 0);
    cr_assert_str_eq(e->cold_because, "it is still warming");
    tells_warm(1, (struct rdzv_warm){.generation = none, .waiting = 7}); /* late, of an old connection */
    struct overview_node rows[2];
    cr_assert_eq(group_overview_nodes(rig.g, rig.now_ns, rows), 2);
    cr_assert(rows[0].has_warm && rows[0].warm.warm == 1 && rows[0].warm.waiting == 1);
    cr_assert(rows[1].has_warm && rows[1].warm.cold == 1);
    lose(2);
}

Test(group, what_is_told_of_another_generation_is_not_of_this_start) {
    bring_to(AT(config_of(1, 1)), 1, GROUP_RUNNING);
    struct generation g = group_generation(rig.g), next = {g.epoch, g.counter + 1};
    tells_warm(1, (struct rdzv_warm){.generation = next, .warm = 1});
    cr_assert_null(entry(TIMELINE_WARM));
    tells_warm(1, (struct rdzv_warm){.generation = g, .warm = 1});
    cr_assert_null(entry(TIMELINE_WARM));
}

/* ---- units of one domain ---- */

/* Nodes join whose domains are "aab": of 1, 2 and 3. */
static void join_domains(const struct group_config *c, const char *domains) {
    begin(c);
    for (uint64_t i = 0; domains[i] != '\0'; i++)
        rig.domains[i + 1] = domains[i];
    for (uint64_t i = 0; domains[i] != '\0'; i++)
        join(i + 1);
}

static struct group_config units_of(uint32_t unit, uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .rdzv.node_unit = unit);
    return c;
}

static struct rdzv_status status(void) {
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    return s;
}

Test(group, a_group_is_of_whole_units_of_one_domain) {
    join_domains(AT(units_of(4, 4, 8)), "aaaaabbb");
    cr_assert(status().present == 8 && status().usable == 4 && status().spares == 4 && status().last_call);
    play("is gathering; domain 9 b; domain 10 b; join 9; is forming; members 1 2 3 4 6 7 8 9; "
         "join 10; start; lose 7; all-stopped; is forming; members 1 2 3 4 6 10 8 9");
}

Test(group, units_of_any_nodes_and_static_ranks_need_no_domain) {
    for (int i = 0; i < 2; i++) {
        begin(WITH(units_of(2, 4, 4), .static_ranks = i == 0, .rdzv.unit_of = i == 0 ? UNIT_OF_DOMAIN : UNIT_OF_ANY));
        for (uint64_t node = 1; node <= 4; node++) {
            rig.domains[node] = node == 1 ? 'a' : 'b';
            join_as(node, (int32_t)node - 1, &(struct report){.state = NODE_JOINED});
        }
        assert_state(GROUP_FORMING);
    }
}

Test(group, a_domain_may_come_after_the_join) {
    struct group_config c = units_of(2, 2, 4);
    join_domains(&c, "ab");
    cr_assert_eq(status().usable, 0);
    join(3);
    cr_assert(status().usable == 3 && status().last_call, "a node has no domain, so all count alone");
    rig.domains[3] = 'c';
    say(3, NODE_JOINED);
    cr_assert(status().usable == 0 && !status().last_call);
    rig.domains[3] = 'b';
    say(3, NODE_JOINED);
    cr_assert(status().usable == 2 && status().last_call);
}

Test(group, nodes_of_the_wrong_domains_are_not_enough) {
    join_domains(AT(units_of(2, 2, 4)), "abc");
    play("pass 600 123; is closed; "
         "gives-reason only 0 of at least 2 nodes came within 600 s (3 nodes, but only 0 in whole units of 2 nodes of "
         "one "
         "domain)");
}

Test(group, spares_of_the_wrong_domains_do_not_keep_a_job) {
    join_domains(AT(units_of(2, 2, 2)), "aabc");
    play("start; lose 2; all-stopped; is closed; "
         "gives-reason 0 of at least 2 nodes left (3 nodes, but only 0 in whole units of 2 nodes of one domain)");
}

Test(group, one_of_the_right_domain_is_waited_for) {
    join_domains(WITH(units_of(2, 2, 2), .rdzv.regroup_wait_ns = S(20)), "aabc");
    /* a whole other unit; the leader's node is a spare */
    play("start; lose 2; all-stopped; is gathering; domain 5 c; join 5; is forming; members 4 5; start");
}

Test(group, a_node_without_a_domain_is_told_why_it_waits) {
    const char *why = "its NVLink domain or block is not known";
    struct group_config c = *WITH(units_of(2, 2, 4), .rdzv.last_call_ns = 0);
    join_domains(&c, "aab");
    start();
    join(4);
    cr_assert_str_eq(told(3).reason, "");
    cr_assert(told(4).spare);
    cr_assert_str_eq(told(4).reason, why);
    c.rdzv.unit_of = UNIT_OF_ANY;
    join_domains(&c, "aa");
    start();
    join(3);
    cr_assert(told(3).spare);
    cr_assert_str_eq(told(3).reason, "");
}

Test(group, a_group_grows_by_whole_units_of_one_domain) {
    join_domains(WITH(units_of(2, 2, 4), .rdzv.grow = GROW_NOW, .rdzv.last_call_ns = 0), "aa");
    play("start; domain 3 b; domain 4 c; domain 5 b; join 3 4; is running; join 5; is stopping; all-stopped; members 1 "
         "2 3 5");
}

Test(group, spares_that_complete_a_unit_are_admitted) {
    join_domains(WITH(units_of(2, 4, 4), .rdzv.spares = 0), "abcda");
    cr_assert_eq(rig.seen[GROUP_EFFECT_REFUSE], 0);
    play("domain 6 b; join 6; refuses 0; members 1 5 2 6; join 7; refuses 1");
}

Test(group, all_that_can_come_need_not_be_whole_units) {
    begin(AT(units_of(2, 2, 8)));
    memcpy(&rig.domains[1], "aabcd", 5);
    play("expect 5; join 1 2 3 4; is gathering; join 5; is forming; members 1 2");
}

Test(group, a_node_whose_unit_can_not_be_replaced_is_not_excluded) {
    static const char *const domains[] = {"aabcd", "aaabc", "aabb"};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        join_domains(WITH(units_of(2, 2, 2), .rdzv.exclude_after = 1, .rdzv.max_restarts = 3), domains[i]);
        start();
        pass(60, 0x3e);
        fails(2, FAILURE_EXIT, (double)rig.now_ns / 1e9);
        stopped();
        assert_state(GROUP_FORMING);
        static const char *const then[] = {"1 2", "1 3", "3 4"};
        cr_assert_str_eq(members(), then[i], "%s", members());
    }
}

/* ---- sick nodes ---- */

static struct report sick_report(enum node_state state, const char *sick) {
    struct report rep = {.state = state, .generation = group_generation(rig.g), .gpu = -1};
    (void)snprintf(rep.sick, sizeof rep.sick, "%s", sick);
    return rep;
}

/* Node 3 is a spare; node 2 fails, and is sick when it has stopped. */
Test(group, a_sick_node_is_replaced_and_the_reason_is_the_event) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 1), 2, GROUP_RUNNING);
    join(3);
    struct report failed = {.state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true};
    failed.failure = (struct failure){
        .kind = FAILURE_SIGNAL, .code = 6, .incarnation = 2, .rank = 1, .node_rank = 1, .node = "h2", .at_ns = S(1)};
    report(2, failed);
    say(1, NODE_STOPPED);
    struct report rep =
        *WITH(sick_report(NODE_STOPPED, "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)"), .xid = 79, .gpu = 4);
    report(2, rep);
    pass(1, 0xe);
    assert_state(GROUP_FORMING);
    cr_assert_str_eq(members(), "1 3");
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    static const char text[] = "rank 1 (node h2) died of SIGABRT 80 ms after Xid 79 on GPU 4 (0000:9d:00.0); node h2 "
                               "is left out, h3 takes its place";
    cr_assert_str_eq(o.incident, text, "%s", o.incident);
    struct overview_node nodes[3];
    cr_assert_eq(group_overview_nodes(rig.g, rig.now_ns, nodes), 3);
    cr_assert(nodes[2].incarnation == 2 && nodes[2].place == PLACE_SICK);
    cr_assert_str_eq(nodes[2].why, "a worker ended 80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    start();
    struct desired d = told(2);
    cr_assert(d.kind == DESIRED_IDLE && d.spare &&
              strstr(d.reason, "it is sick: a worker ended 80 ms after Xid 79") != NULL);
}

Test(group, a_sick_node_never_stops_a_group_or_makes_it_grow) {
    begin(WITH(config_of(1, 3), .rdzv.grow = GROW_NOW));
    join(1);
    join(2);
    pass(31, 6);
    start();
    report(2, sick_report(NODE_RUNNING, "its GPU is lost"));
    pass(1, 6);
    assert_state(GROUP_RUNNING);
    struct report rep = {.state = NODE_JOINED, .sick = "row remap failed"};
    join_as(3, -1, &rep);
    pass(1, 0xe);
    assert_state(GROUP_RUNNING);
    rep.sick[0] = '\0';
    report(3, rep);
    assert_state(GROUP_RUNNING);
    cr_assert_str_eq(members(), "1 2", "the group would not be larger without node 2");
    report(2, sick_report(NODE_RUNNING, ""));
    assert_state(GROUP_STOPPING);
}

static unsigned n_sick; /* notices */
static void count_sick(void) {
    for (size_t i = 0; i < rig.u.n_effects; i++)
        n_sick += rig.u.effects[i].kind == GROUP_EFFECT_NOTICE && strstr(rig.u.effects[i].reason, "is sick") != NULL;
}

/* What is said of it is said once, for each verdict. */
Test(group, a_sick_node_that_is_needed_takes_part_with_one_warning) {
    bring_to(WITH(config_of(2, 2), .rdzv.max_restarts = 3), 2, GROUP_RUNNING);
    rig.after = count_sick;
    for (unsigned i = 0; i < 3; i++) {
        struct report failed = *WITH(sick_report(NODE_FAILED, i == 0 ? "" : "row remap failed"), .has_failure = true,
                                     .failure = failure_at(2, FAILURE_OOM, 1 + i));
        report(2, failed);
        say(1, NODE_STOPPED);
        report(2, sick_report(NODE_STOPPED, i < 2 ? "row remap failed" : "its GPU is lost"));
        pass(1, 6);
        assert_state(GROUP_FORMING);
        cr_assert_str_eq(members(), "1 2");
        cr_assert_eq(n_sick, i < 2 ? 1 : 2, "%u", n_sick);
        open_store();
        say(1, NODE_PREPARED);
        report(2, sick_report(NODE_PREPARED, i < 2 ? "row remap failed" : "its GPU is lost"));
        assert_state(GROUP_RUNNING);
    }
}

/* Before the first start a spare may still come. */
Test(group, a_sick_node_is_taken_at_the_first_start_when_nobody_else_came) {
    struct report rep = {.state = NODE_JOINED, .sick = "row remap failed"};
    for (int spare = 0; spare < 2; spare++) {
        begin(AT(config_of(2, 2)));
        join(1);
        join_as(2, -1, &rep);
        pass(1, 6);
        assert_state(GROUP_GATHERING);
        if (spare)
            join(3);
        else
            pass(31, 6);
        assert_state(GROUP_FORMING);
        cr_assert_str_eq(members(), spare ? "1 3" : "1 2");
    }
}

/* It repeats its report to a new leader. */
Test(group, a_new_leader_learns_that_a_node_is_sick) {
    struct report rep = {.state = NODE_STOPPED, .generation = {1, 4}, .sick = "its GPU is lost"};
    begin(AT(config_of(1, 3)));
    join(1);
    join_as(2, -1, &rep);
    pass(31, 6);
    assert_state(GROUP_FORMING);
    cr_assert_str_eq(members(), "1");
}
