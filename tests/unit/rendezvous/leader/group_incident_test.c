#include "group_rig.h"

#include "rig/unit.h"

TestSuite(group_incident, .fini = end);

static struct group_config *config(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .rdzv.max_restarts = 3, .rdzv.crash_loop_ns = 0);
    return AT(c);
}

static const struct incident *written(void) {
    const struct timeline_entry *e = entry(TIMELINE_INCIDENT);
    cr_assert_not_null(e, "no incident is written");
    return &e->incident;
}

static uint32_t counted(enum incident_class class) {
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    return h.incidents[class];
}

static void dies(uint64_t node, uint32_t rank) {
    struct failure f = *WITH(failure_at(node, FAILURE_SIGNAL, (double)rig.now_ns / 1e9), .code = SIGSEGV, .rank = rank,
                             .local_rank = rank % 2);
    (void)strcpy(f.node, "h2");
    report(node, (struct report){
                     .state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true, .failure = f});
}

Test(group_incident, a_failed_worker_and_a_restart) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    pass(5, 6);
    dies(2, 3);
    uint64_t died_ns = rig.now_ns;
    pass(0.5, 6);
    cr_assert_eq(counted(INCIDENT_WORKER), 0, "it may still be a node's loss");
    stopped();
    cr_assert_eq(counted(INCIDENT_WORKER), 1);
    pass(0.25, 6);
    cr_assert_null(entry(TIMELINE_INCIDENT));
    start();
    const struct incident *i = written();
    cr_assert(i->n == 1 && i->class == INCIDENT_WORKER && i->action == INCIDENT_RESTART);
    cr_assert(generation_compare(i->generation, (struct generation){1, 1}) == 0 &&
              generation_compare(i->next, (struct generation){1, 2}) == 0);
    cr_assert(i->failure.rank == 3 && i->failure.local_rank == 1 && i->failure.incarnation == 2);
    cr_assert(i->failure.kind == FAILURE_SIGNAL && i->failure.code == SIGSEGV);
    cr_assert_str_eq(i->failure.node, "h2");
    cr_assert_str_eq(i->cause, "rank 3 (node h2) died of SIGSEGV");
    cr_assert(i->restarts_used == 1 && i->max_restarts == 3 && i->old_nodes == 2 && i->n_nodes == 2);
    cr_assert(i->symptom_ns == died_ns && i->noticed_ns == died_ns && i->stopped_ns == died_ns + S(0.5));
    cr_assert(i->started_ns == rig.now_ns && i->began_ns == died_ns - S(5) && i->first_step_ns == 0);
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    cr_assert_eq(h.down_ns, S(0.75));
    dies(1, 0);
    stopped();
    start();
    cr_assert(written()->n == 2 && counted(INCIDENT_WORKER) == 2);
}

/* A node's report of its steps in the newest group. */
static void steps(uint64_t node, enum node_state state, uint64_t first, uint64_t last) {
    report(node, (struct report){
                     .state = state, .generation = group_generation(rig.g), .first_step = first, .last_step = last});
}

Test(group_incident, with_steps_it_is_written_at_the_first_one_with_those_that_are_repeated) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    steps(1, NODE_RUNNING, 1, 1);
    pass(5, 6);
    dies(2, 3);
    steps(1, NODE_STOPPED, 1, 24);
    steps(2, NODE_STOPPED, 1, 23);
    pass(0.25, 6);
    start();
    cr_assert_null(entry(TIMELINE_INCIDENT), "it waits for the first step");
    pass(4, 6);
    steps(2, NODE_RUNNING, 11, 11);
    const struct incident *i = written();
    cr_assert(i->steps_lost == 14 && i->first_step_ns == rig.now_ns);
    steps(1, NODE_RUNNING, 11, 11);
    cr_assert_null(entry(TIMELINE_INCIDENT));
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    cr_assert_eq(h.steps_lost, 14);
    dies(1, 0);
    steps(1, NODE_STOPPED, 11, 40);
    steps(2, NODE_STOPPED, 11, 41);
    start();
    dies(1, 0); /* before its first step */
    i = written();
    cr_assert(i->n == 2 && i->first_step_ns == 0 && i->last_step == 41 && i->action == INCIDENT_RESTART);
    stopped();
    start();
    steps(1, NODE_RUNNING, 31, 31);
    i = written();
    cr_assert(i->n == 3 && i->steps_lost == 11, "of the group before the one that failed early");
}

Test(group_incident, a_lost_node_and_a_smaller_group) {
    bring_to(config(1, 2), 2, GROUP_RUNNING);
    pass(5, 6);
    probe(2, PROBE_ALIVE);
    disconnect(2);
    uint64_t cut_ns = rig.now_ns;
    rig.now_ns += S(0.018);
    probe(2, PROBE_GONE);
    stopped();
    start();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_NODE_LOST && i->action == INCIDENT_SHRINK && i->left_out &&
              i->failure.kind == FAILURE_NONE);
    cr_assert_str_eq(i->failure.node, "h2");
    cr_assert_str_eq(i->cause, "node h2 is gone: its agent ended unexpectedly");
    cr_assert(i->symptom_ns == cut_ns && i->noticed_ns == cut_ns + S(0.018), "not its last message");
    cr_assert(i->old_nodes == 2 && i->n_nodes == 1 && i->restarts_used == 0);
}

Test(group_incident, an_excluded_node_and_a_spare) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    join(3);
    struct command c = {.kind = COMMAND_EXCLUDE, .node = "h2"};
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &c});
    stopped();
    start();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_EXCLUDED && i->action == INCIDENT_SPARE && i->left_out);
    cr_assert(strcmp(i->failure.node, "h2") == 0 && strcmp(i->taker, "h3") == 0);
}

Test(group_incident, a_sick_node_that_an_operator_excludes) {
    bring_to(config(1, 2), 2, GROUP_RUNNING);
    struct report r = {
        .state = NODE_RUNNING, .generation = group_generation(rig.g), .sick = "80 ms after Xid 79", .xid = 79};
    report(2, r);
    struct command c = {.kind = COMMAND_EXCLUDE, .node = "h2"};
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &c});
    r.state = NODE_STOPPED;
    report(2, r);
    say(1, NODE_STOPPED);
    start();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_EXCLUDED && i->xid == 0 && strstr(i->cause, "Xid") == NULL, "%s", i->cause);
}

Test(group_incident, a_node_that_leaves) {
    bring_to(config(1, 2), 2, GROUP_RUNNING);
    report(2, (struct report){.state = NODE_RUNNING,
                              .generation = group_generation(rig.g),
                              .leaving = true,
                              .leaving_why = "was stopped by SIGTERM"});
    say(1, NODE_STOPPED);
    step((struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 2});
    start();
    cr_assert(written()->class == INCIDENT_NODE_LEFT && written()->action == INCIDENT_SHRINK);
    cr_assert_str_eq(written()->failure.node, "h2");
}

Test(group_incident, a_sick_node_whose_worker_died) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    dies(2, 1);
    report(1, (struct report){.state = NODE_STOPPED, .generation = group_generation(rig.g)});
    report(2, (struct report){.state = NODE_STOPPED,
                              .generation = group_generation(rig.g),
                              .sick = "80 ms after Xid 79 on GPU 4",
                              .xid = 79,
                              .gpu = 4});
    start();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_HEALTH && i->xid == 79 && i->gpu == 4 && i->failure.rank == 1);
    cr_assert_str_eq(i->cause, "rank 1 (node h2) died of SIGSEGV 80 ms after Xid 79 on GPU 4");
}

Test(group_incident, a_hang_since_when_most_last_moved) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    pass(20, 6);
    struct failure f = {.kind = FAILURE_HANG, .incarnation = 2, .rank = 1, .text = "rank 1 (node h2) is stopped"};
    step((struct group_event){.kind = GROUP_EVENT_HANG,
                              .generation = group_generation(rig.g),
                              .failure = &f,
                              .quiet_ns = S(10),
                              .evidence = "/logs/hangs/1"});
    uint64_t now = rig.now_ns;
    stopped();
    start();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_HANG && i->failure.rank == 1 && i->symptom_ns == now - S(10) &&
              i->noticed_ns == now);
    cr_assert_str_eq(i->evidence, "/logs/hangs/1");
    cr_assert_str_eq(i->cause, "the job hangs: rank 1 (node h2) is stopped");
}

Test(group_incident, the_end_of_a_job) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    dies(2, 1);
    stopped();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_WORKER && i->action == INCIDENT_END && i->started_ns == 0);
    cr_assert_eq(entry(TIMELINE_CLOSED)->outcome, OUTCOME_FAILED);
}

Test(group_incident, an_operator_ends_the_job) {
    bring_to(config(2, 2), 2, GROUP_RUNNING);
    step((struct group_event){.kind = GROUP_EVENT_STOP, .reason = "stopped by SIGINT", .halted = true});
    stopped();
    const struct incident *i = written();
    cr_assert(i->class == INCIDENT_OPERATOR && i->action == INCIDENT_END);
    cr_assert_str_eq(i->cause, "stopped by SIGINT");
}

Test(group_incident, growth_and_success_are_none) {
    bring_to(WITH(*config(1, 2), .rdzv.last_call_ns = 0), 1, GROUP_RUNNING);
    join(2);
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &(struct command){.kind = COMMAND_GROW}});
    assert_state(GROUP_STOPPING);
    stopped();
    start();
    cr_assert_null(entry(TIMELINE_INCIDENT));
    say(1, NODE_FINISHED);
    say(2, NODE_FINISHED);
    assert_state(GROUP_CLOSED);
    cr_assert_null(entry(TIMELINE_INCIDENT));
    for (int class = 0; class < INCIDENT_CLASS_COUNT; class ++)
        cr_assert_eq(counted((enum incident_class) class), 0);
}
