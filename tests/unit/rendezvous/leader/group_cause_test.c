#include "group_rig.h"

#include <inttypes.h>

#include "rig/unit.h"

#define ALL 0xfeu

TestSuite(policy, .fini = end);

/* ---- how many, and who ---- */

Test(policy, need_is_min_rounded_up_to_the_unit_and_people_are_told_so) {
    bring_to(WITH(config_of(3, 8), .rdzv.node_unit = 2), 3, GROUP_GATHERING);
    struct rdzv_status s;
    group_status(rig.g, rig.now_ns, &s);
    cr_assert_eq(s.min_nodes, 4);
    play("pass 600 all; is closed; gives-reason 3 of at least 4");
}

Test(policy, whoever_is_beyond_the_group_waits_as_a_spare_and_is_told_so) {
    bring_to(WITH(config_of(2, 8), .rdzv.node_unit = 2), 5, GROUP_GATHERING);
    cr_assert(!told(5).spare, "nobody is a spare before there is a group");
    pass(29.75, ALL);
    play("sleep 0.25; members 1 2 3 4");
    cr_assert_eq(count(GROUP_EFFECT_DESIRED, 5), 1);
    play("gets 5 idle; spare 5; start; join 6");
    cr_assert_eq(count(GROUP_EFFECT_DESIRED, 6), 1);
    play("spare 6; pass 3600 all; is running; spare 5; spare 6");
    struct overview o;
    group_overview(rig.g, rig.now_ns, &o);
    cr_assert_eq(o.n_nodes, 6);
}

Test(policy, more_spares_than_wanted_are_refused_for_now) {
    for (uint32_t spares = 0; spares < 3; spares++) {
        bring_to(WITH(config_of(1, 2), .rdzv.spares = spares), 2, GROUP_RUNNING);
        for (uint64_t node = 3; node < 3 + spares; node++) {
            join(node);
            cr_assert_null(effect(GROUP_EFFECT_REFUSE), "%u spares", spares);
        }
        join(6);
        const struct group_effect *e = effect(GROUP_EFFECT_REFUSE);
        cr_assert(e != NULL && e->node == 6 && e->for_now);
        assert_has(e->reason, "--spares");
        join(2);
        cr_assert_null(effect(GROUP_EFFECT_REFUSE), "a member that comes back is none too many");
        lose(2);
        join(6);
        cr_assert_null(effect(GROUP_EFFECT_REFUSE), "there is room now");
    }
}

/* ---- order ---- */

/* ---- what is waited for after a loss ---- */

Test(policy, a_lost_place_is_kept_for_the_regroup_wait_and_then_given_up) {
    struct group_config c = *WITH(config_of(2, 3), .rdzv.regroup_wait_ns = S(20));
    bring_to(&c, 3, GROUP_RUNNING);
    play("lose 3; stopped 1; stopped 2; is gathering; sends 2; pass 19.75 all; is gathering; pass 0.25 all; is "
         "forming; members 1 2");
    bring_to(&c, 3, GROUP_RUNNING);
    play("lose 2; all-stopped; pass 10 all; join 7; is forming; members 1 7 3");
}

Test(policy, a_group_that_lost_nobody_does_not_wait) {
    bring_to(WITH(config_of(2, 4), .rdzv.regroup_wait_ns = S(20), .rdzv.max_restarts = 1), 2, GROUP_GATHERING);
    play("pass 30 all; start; fails 2 oom; all-stopped; is forming");
}

Test(policy, below_min_the_regroup_wait_is_the_last_chance) {
    for (int comes = 0; comes < 2; comes++) {
        bring_to(WITH(config_of(3, 3), .rdzv.regroup_wait_ns = S(20)), 3, GROUP_RUNNING);
        play("lose 3; will-restart; all-stopped; pass 19.75 all; is gathering");
        play(comes ? "join 4; is forming"
                   : "pass 0.25 all; is closed; gives-reason 2 of at least 3 nodes left; gives-reason lost: h3");
    }
    /* the spare that is cut off would have been enough, so it does not end for the node that left */
    bring_to(WITH(config_of(2, 2), .rdzv.regroup_wait_ns = S(3)), 2, GROUP_RUNNING);
    play("join 4; disconnect 4; leaving 2; stopped 1; stopped-leaving 2; left 2; is gathering; pass 3 1; is closed; "
         "gives-reason 1 of at least 2 nodes left");
}

Test(policy, below_min_without_a_regroup_wait_the_job_ends_at_once) {
    struct group_config c = config_of(3, 3);
    bring_to(&c, 3, GROUP_RUNNING);
    play("lose 3; gets 1 stop; will-end; all-stopped; is closed; gives-reason 2 of at least 3 nodes left; gives-reason "
         "h3");
    bring_to(&c, 3, GROUP_RUNNING);
    /* a spare is there */
    play("join 4; lose 3; all-stopped; is forming; members 1 2 4");
}

/* ---- losses ---- */

Test(policy, one_node_more_lost_than_max_node_losses_ends_the_job) {
    bring_to(WITH(config_of(1, 4), .rdzv.max_node_losses = 1), 4, GROUP_RUNNING);
    /* who leaves is not lost */
    play("lose 4; all-stopped; start; losses 1; leaving 3; stopped 1 2; stopped-leaving 3; left 3; start; losses 1; "
         "lose 2; will-end; all-stopped; is closed; gives-reason 2 nodes were lost, and --max-node-losses is 1");
}

Test(policy, losses_before_the_first_start_and_of_spares_are_no_losses) {
    struct group_config c = *WITH(config_of(2, 2), .rdzv.max_node_losses = 0);
    begin(&c);
    /* it is a member of the group that is formed */
    play("join 1 5; lose 5; is stopping");
    begin(&c);
    play("join 5; lose 5; join 1 2 3; start; lose 3; is running; losses 0; lose 2; all-stopped; is closed");
}

/* ---- failures ---- */

struct fall {
    enum failure_kind kind;
    int32_t code;
    double ran;
    const char *text;
    uint32_t local_rank;
};

static void falls(uint64_t node, const struct fall *f) {
    struct report rep = {.state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true};
    rep.failure = (struct failure){.kind = f->kind,
                                   .code = f->code,
                                   .incarnation = node,
                                   .rank = (uint32_t)node - 1 + f->local_rank,
                                   .at_ns = rig.now_ns,
                                   .ran_ns = S(f->ran)};
    (void)snprintf(rep.failure.text, sizeof rep.failure.text, "%s", f->text);
    report(node, rep);
}

/* A failure that says nothing about a crash loop. */
static void falls_late(uint64_t node) { falls(node, &(struct fall){FAILURE_EXIT, 1, 60, "late", 0}); }

static struct group_config forgiving(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .rdzv.max_restarts = 100);
    return c;
}

Test(policy, a_node_that_fails_three_times_in_a_row_is_excluded_and_a_spare_takes_its_place) {
    bring_to(AT(forgiving(3, 3)), 3, GROUP_RUNNING);
    join(4);
    for (int i = 0; i < 3; i++) {
        cr_assert_str_eq(members(), "1 2 3");
        falls_late(2);
        stopped();
        assert_state(GROUP_FORMING);
        if (i < 2)
            start();
    }
    cr_assert_str_eq(members(), "1 4 3");
    cr_assert(told(2).excluded && !told(1).excluded && !told(4).excluded);
    cr_assert_str_eq(told(2).reason, "its workers failed 3 times in a row");
    cr_assert_eq(group_restarts_used(rig.g), 3);
    start();
    join(5);
    join(2); /* on a new connection */
    cr_assert(told(2).excluded, "for good");
    struct node_info again = info_of(6);
    (void)snprintf(again.host, sizeof again.host, "h2");
    join_info(&again);
    cr_assert(told(6).excluded && !told(5).excluded);
    cr_assert_str_eq(told(6).reason, "an agent of its host was excluded before");
    lose(3);
    stopped();
    cr_assert_str_eq(members(), "1 4 5");
}

Test(policy, another_nodes_failure_in_between_begins_the_count_anew) {
    bring_to(AT(forgiving(2, 3)), 3, GROUP_RUNNING);
    static const uint64_t who[] = {2, 2, 3, 2, 2, 3, 3, 2, 2};
    for (size_t i = 0; i < ARRAY_SIZE(who); i++) {
        falls_late(who[i]);
        stopped();
        start();
    }
    cr_assert_str_eq(members(), "1 2 3");
    falls_late(2);
    stopped();
    cr_assert_str_eq(members(), "1 3");
}

Test(policy, nobody_is_excluded_whom_the_group_needs_or_where_it_is_turned_off) {
    for (int off = 0; off < 2; off++) {
        struct group_config c = *WITH(forgiving(off ? 1 : 3, 3), .rdzv.node_unit = 1);
        if (off)
            c.rdzv.exclude_after = 0;
        bring_to(&c, 3, GROUP_RUNNING);
        for (int i = 0; i < 9; i++) {
            falls_late(2);
            stopped();
            start();
        }
        cr_assert_str_eq(members(), "1 2 3");
        if (!off) {
            join(4);
            falls_late(2);
            stopped();
            cr_assert_str_eq(members(), "1 4 3", "as soon as there is another");
        }
    }
}

static struct group_effect ask_for(enum command_kind kind, const char *node, const char *reason) {
    struct command command = {.kind = kind};
    (void)snprintf(command.node, sizeof command.node, "%s", node);
    (void)snprintf(command.reason, sizeof command.reason, "%s", reason);
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &command});
    cr_assert_eq(count(GROUP_EFFECT_ANSWER, 0), 1, "every command is answered, once");
    const struct group_effect *e = effect(GROUP_EFFECT_ANSWER);
    return e == NULL ? (struct group_effect){.reason = ""} : *e;
}

#define assert_answer(kind, node, good, text)             \
    do {                                                  \
        struct group_effect a_ = ask_for(kind, node, ""); \
        cr_assert_eq(a_.ok, good, "%s", a_.reason);       \
        assert_has(a_.reason, text);                      \
    } while (0)

static void join_host(uint64_t node, const char *host) {
    struct node_info info = info_of(node);
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    join_info(&info);
}

Test(policy, an_operator_excludes_a_member_and_the_group_re_forms_without_it) {
    bring_to(AT(config_of(1, 3)), 3, GROUP_RUNNING);
    struct group_effect a = ask_for(COMMAND_EXCLUDE, "h2", "bad memory");
    cr_assert(a.ok && strstr(a.reason, "leaves the group") != NULL, "%s", a.reason);
    play("is stopping; losses 0; all-stopped; members 1 3; excluded 2; restarts 0");
    cr_assert_str_eq(told(2).reason, "bad memory");
}

Test(policy, a_node_that_waits_is_excluded_without_a_stop_and_told_at_once) {
    bring_to(AT(config_of(1, 2)), 2, GROUP_RUNNING);
    join(3);
    assert_answer(COMMAND_EXCLUDE, "h3", true, "h3 is excluded");
    assert_state(GROUP_RUNNING);
    cr_assert_eq(count(GROUP_EFFECT_DESIRED, 3), 1);
    cr_assert(told(3).excluded);
    cr_assert_str_eq(told(3).reason, "an operator asked");
}

Test(policy, a_name_that_is_nobodys_or_several_nodes_excludes_nobody) {
    begin(AT(config_of(5, 5)));
    join(1);
    join_host(2, "twin");
    join_host(3, "twin");
    assert_answer(COMMAND_EXCLUDE, "nobody", false, "there is no node \"nobody\"");
    assert_answer(COMMAND_EXCLUDE, "twin", false, "several nodes have the name \"twin\"");
    cr_assert(!told(2).excluded && !told(3).excluded);
    join_host(4, "twin");
    assert_answer(COMMAND_EXCLUDE, "twin", false, "several nodes");
}

Test(policy, an_id_excludes_one_agent_of_a_host_and_not_the_other) {
    begin(AT(config_of(1, 3)));
    join(1);
    join_host(2, "twin");
    join_host(3, "twin");
    start();
    assert_answer(COMMAND_EXCLUDE, rig_text("%016" PRIx64, (uint64_t)3), true, "twin-2 is excluded");
    cr_assert(told(1).kind == DESIRED_STOP);
    stopped();
    cr_assert_str_eq(members(), "1 2");
    cr_assert(told(3).excluded && !told(2).excluded);
    join_host(2, "twin"); /* back on another connection: it was there before */
    cr_assert(!told(2).excluded);
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
        bring_to(AT(forgiving(2, 2)), 2, GROUP_RUNNING);
        falls(1, &cases[i].first);
        falls(2, &cases[i].first);
        stopped();
        start();
        falls(2, &cases[i].second);
        falls(1, &cases[i].second);
        stopped();
        cr_assert_eq(group_state(rig.g), cases[i].ends ? GROUP_CLOSED : GROUP_FORMING, "%s", cases[i].what);
        if (cases[i].ends) {
            struct desired d = told(1);
            cr_assert(d.outcome == OUTCOME_FAILED && d.has_failure, "%s", cases[i].what);
            assert_has(d.reason, "crash loop");
            assert_has(d.reason, "1 of 100 restarts were used");
        }
    }
}

/* Who fails in the first, and in the second group; a mask of nodes. */
static bool loops(const struct group_config *c, uint64_t nodes, unsigned first, unsigned second) {
    bring_to(c, nodes, GROUP_RUNNING);
    for (int nth = 0; nth < 2; nth++) {
        for (uint64_t node = 1; node <= nodes; node++)
            if (((nth == 0 ? first : second) >> node & 1) != 0)
                falls(node, &(struct fall)EXIT1("x"));
        stopped();
        if (nth == 0)
            start();
    }
    bool closed = group_state(rig.g) == GROUP_CLOSED;
    return closed;
}

Test(policy, any_rank_can_begin_and_complete_a_crash_loop) {
    struct group_config c = forgiving(3, 3);
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2), "the same rank");
    cr_expect(loops(&c, 3, 1u << 2, 1u << 3), "two ranks, one after the other");
    cr_expect(loops(&c, 3, 1u << 2 | 1u << 3, 1u << 2), "two ranks, the first time");
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2 | 1u << 3), "two ranks, the second time");
    cr_expect(loops(AT(forgiving(2, 3)), 3, 1u << 2, 1u << 3), "two nodes, each of which could be replaced");
    c.rdzv.crash_loop_ns = 0;
    cr_expect(!loops(&c, 3, 1u << 2, 1u << 2), "turned off");
}

Test(policy, a_node_that_others_can_replace_is_excluded_instead) {
    struct group_config c = forgiving(2, 3);
    bring_to(&c, 3, GROUP_RUNNING);
    for (int i = 0; i < 3; i++) {
        falls(2, &(struct fall)EXIT1("x"));
        stopped();
        start();
    }
    cr_assert_str_eq(members(), "1 3");
    cr_assert(told(2).excluded);
    falls(3, &(struct fall)EXIT1("x"));
    stopped();
    assert_state(GROUP_CLOSED); /* it was not that node's fault */
    c.rdzv.exclude_after = 0;
    cr_expect(loops(&c, 3, 1u << 2, 1u << 2), "no node is ever excluded");
}

Test(policy, no_restart_is_announced_before_a_crash_loop_ends_the_job) {
    bring_to(AT(forgiving(2, 2)), 2, GROUP_RUNNING);
    static const struct fall crash = {FAILURE_SIGNAL, 11, 1, "x", 0};
    for (uint64_t node = 1; node <= 2; node++) {
        falls(node, &crash);
        struct desired d = told(3 - node);
        cr_assert(d.kind == DESIRED_STOP && d.has_failure);
        cr_assert_eq(d.will_restart, node == 1);
        cr_assert_eq(d.restarts_used, 1);
        stopped();
        if (node == 1)
            start();
    }
    assert_state(GROUP_CLOSED);
}

Test(policy, a_late_failure_in_between_breaks_the_crash_loop) {
    bring_to(WITH(forgiving(1, 1), .rdzv.exclude_after = 0), 1, GROUP_RUNNING);
    for (int nth = 0; nth < 4; nth++) {
        if (nth % 2 == 0)
            falls(1, &(struct fall)EXIT1("x"));
        else
            falls_late(1);
        stopped();
        start();
    }
}

/* ---- pauses ---- */

/* How long the members are waited for after they have stopped, in seconds. */
static double pause_of(void) {
    uint64_t since = rig.now_ns;
    while (group_state(rig.g) == GROUP_GATHERING) {
        cr_assert_lt(rig.now_ns, since + S(1000), "it never forms");
        pass(0.25, ALL);
    }
    assert_state(GROUP_FORMING);
    return (double)(rig.now_ns - since) / 1e9;
}

Test(policy, the_pause_before_a_restart_doubles_and_begins_anew_after_a_good_run) {
    bring_to(WITH(forgiving(2, 2), .rdzv.exclude_after = 0, .rdzv.restart_backoff_ns = S(1)), 2, GROUP_RUNNING);
    static const struct {
        double run, pause;
    } cases[] = {{0.25, 1}, {5, 2}, {32, 4}, {0.25, 8}, {0.25, 16}, {0.25, 32}, {32, 32}, {32.25, 1}, {1, 2}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        pass(cases[i].run, ALL);
        falls_late(2);
        stopped();
        double pause = pause_of();
        cr_assert_float_eq(pause, cases[i].pause, 0.001, "case %zu: %g s", i, pause);
        start();
    }
    join(3);
    lose(2);
    stopped();
    assert_state(GROUP_FORMING); /* only a failure is followed by a pause */
}

/* ---- growing ---- */

static void safe_point(uint64_t node) {
    report(node, (struct report){.state = NODE_RUNNING, .generation = group_generation(rig.g), .at_safe_point = true});
}

/* Two nodes of 1 … 3 run. */
static void two_run(struct group_config *c, enum rdzv_grow grow) {
    *c = config_of(1, 3);
    c->rdzv.last_call_ns = S(1);
    c->rdzv.grow = grow;
    bring_to(c, 2, GROUP_GATHERING);
    pass(1, ALL);
    start();
}

Test(policy, grow_now_takes_who_comes_and_costs_nothing) {
    struct group_config c;
    two_run(&c, GROW_NOW);
    safe_point(1);
    play("is running; join 3; is stopping; gives-reason the group grows from 2 to 3 nodes; will-restart; "
         "names-no-failure; "
         "all-stopped; members 1 2 3; restarts 0; start; join 4; is running");
}

Test(policy, grow_at_a_boundary_waits_for_a_safe_point_of_a_member) {
    struct group_config c;
    two_run(&c, GROW_BOUNDARY);
    play("join 3; pass 100 all; is running");
    report(3, (struct report){.state = NODE_JOINED, .at_safe_point = true});
    assert_state(GROUP_RUNNING); /* not a member's */
    safe_point(2);
    play("is stopping; gives-reason at a safe point");
}

Test(policy, a_safe_point_counts_for_one_moment) {
    struct group_config c;
    two_run(&c, GROW_BOUNDARY);
    safe_point(2);
    play("join 3; is running; pass 10 all; is running");
    safe_point(1);
    assert_state(GROUP_STOPPING);
}

Test(policy, grow_never_waits_until_it_re_forms_anyway_or_an_operator_asks) {
    struct group_config c;
    two_run(&c, GROW_NEVER);
    join(3);
    safe_point(1);
    play("pass 100 all; is running");
    assert_answer(COMMAND_GROW, "", true, "re-forms with the waiting nodes");
    play("is stopping; gives-reason an operator asked; all-stopped; members 1 2 3");
}

Test(policy, a_group_grows_by_whole_units_and_not_by_the_excluded) {
    bring_to(WITH(config_of(2, 6), .rdzv.node_unit = 2, .rdzv.grow = GROW_NOW, .rdzv.last_call_ns = S(1)), 2,
             GROUP_GATHERING);
    play("pass 1 all; start; join 3; is running");
    assert_answer(COMMAND_GROW, "", false, "no waiting node would make the group larger");
    assert_answer(COMMAND_EXCLUDE, "h3", true, "excluded");
    play("join 4; is running; join 5; is stopping; all-stopped; members 1 2 4 5");
}

/* ---- operators ---- */

Test(policy, what_grow_answers) {
    begin(AT(config_of(2, 2)));
    join(1);
    assert_answer(COMMAND_GROW, "", true, "the next group includes all nodes that have joined by then");
    play("join 2; start");
    assert_answer(COMMAND_GROW, "", false, "already has its largest number of nodes");
    play("is running; finished 1 2");
    assert_answer(COMMAND_GROW, "", false, "the job is over");
}

Test(policy, a_wish_to_grow_is_forgotten_when_the_group_re_forms_for_another_reason) {
    struct group_config c;
    two_run(&c, GROW_NEVER);
    lose(2);
    assert_answer(COMMAND_GROW, "", true, "the next group");
    play("all-stopped; start; join 3; pass 10 all; is running");
}

Test(policy, commands_that_are_not_the_leaders_are_answered_all_the_same) {
    bring_to(AT(config_of(1, 1)), 1, GROUP_RUNNING);
    assert_answer(COMMAND_STATUS, "", false, "the leader can't carry out this command");
    assert_answer(COMMAND_LEAVE, "", false, "the leader can't carry out this command");
    assert_state(GROUP_RUNNING);
}

Test(policy, an_operators_stop_ends_the_job_in_every_state_and_blames_no_failure) {
    static const enum group_state states[] = {GROUP_GATHERING, GROUP_FORMING, GROUP_RUNNING, GROUP_STOPPING};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        bring_to(WITH(config_of(2, states[i] == GROUP_GATHERING ? 3 : 2), .rdzv.max_restarts = 5), 2, states[i]);
        struct group_effect a = ask_for(COMMAND_STOP, "", i % 2 == 0 ? "" : "maintenance");
        cr_assert(a.ok && strcmp(a.reason, "the job is being stopped") == 0, "%s", a.reason);
        if (states[i] != GROUP_GATHERING) {
            assert_state(GROUP_STOPPING);
            cr_assert(!told(1).will_restart);
        }
        stopped();
        assert_state(GROUP_CLOSED);
        struct desired d = told(2);
        cr_assert_str_eq(d.reason,
                         i % 2 == 0 ? "an operator stopped the job" : "an operator stopped the job: maintenance");
        cr_assert(!d.has_failure && !d.no_fault && d.outcome == OUTCOME_FAILED && d.restarts_used == 0);
        assert_answer(COMMAND_STOP, "", false, "the job is over already");
        cr_assert_str_eq(told(2).reason, d.reason);
    }
}

/* ---- a switch ---- */

Test(policy, several_silent_hosts_are_held_for_a_moment_as_behind_a_switch) {
    bring_to(AT(config_of(1, 4)), 4, GROUP_RUNNING);
    play("pass 5.75 12");
    size_t said = rig.seen[GROUP_EFFECT_NOTICE];
    play("pass 0.25 12; is running");
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], said + 1, "people are told, once");
    play("pass 1 12; renew 4; is running; pass 0.75 124; nodes 4; pass 0.25 124; nodes 3; is stopping");
    cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE], said + 1);
}

Test(policy, who_was_held_and_came_back_is_held_the_next_time_too) {
    bring_to(AT(config_of(1, 3)), 3, GROUP_RUNNING);
    play("pass 7 1; nodes 3; pass 10 all; is running; pass 7 1; nodes 3; pass 10 all; is running");
}

Test(policy, two_agents_of_one_host_are_no_switch_and_neither_is_one_held_where_that_is_off) {
    for (int off = 0; off < 2; off++) {
        struct group_config c = config_of(1, 4);
        if (off)
            c.rdzv.hold_ns = 0;
        begin(&c);
        join(1);
        join(2);
        join_host(3, "twin");
        join_host(4, off ? "other" : "twin");
        start();
        pass(5.75, 1u << 1 | 1u << 2);
        cr_assert_eq(group_nodes(rig.g, NULL, 0), 4);
        pass(0.25, 1u << 1 | 1u << 2);
        cr_assert_eq(group_nodes(rig.g, NULL, 0), 2, "%d", off);
    }
}

/* ---- roles, and how many workers a node has ---- */

Test(policy, a_job_has_so_many_roles_and_no_more) {
    begin(AT(config_of(1, 100)));
    for (uint64_t node = 1; node <= 66; node++) {
        struct node_info info = info_of(node);
        (void)snprintf(info.role, sizeof info.role, "role %d", node == 66 ? 1 : (int)node);
        join_info(&info);
        const struct group_effect *e = effect(GROUP_EFFECT_REFUSE);
        cr_assert_eq(e != NULL, node == 65, "node %d", (int)node);
        if (e != NULL)
            cr_assert(!e->for_now && strstr(e->reason, "different roles") != NULL, "%s", e->reason);
    }
}
