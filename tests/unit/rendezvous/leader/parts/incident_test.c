#include "rendezvous/leader/parts/incident.h"

#include "rig/unit.h"

#define WHEN "2026-11-26T13:53:03.123Z"
#define MS(x) ((uint64_t)((x)*1e6))

static char text[INCIDENT_TEXT_MAX];

static struct incident killed(void) {
    return (struct incident){.n = 1,
                             .class = INCIDENT_WORKER,
                             .generation = {2, 1},
                             .next = {2, 2},
                             .failure = {.node = "a"},
                             .cause = "rank 3 (node a) died of SIGKILL",
                             .gpu = -1,
                             .action = INCIDENT_RESTART,
                             .restarts_used = 1,
                             .max_restarts = 5,
                             .began_ns = MS(1000),
                             .symptom_ns = MS(35000),
                             .noticed_ns = MS(35002),
                             .stopped_ns = MS(35060),
                             .started_ns = MS(35064),
                             .old_nodes = 2,
                             .n_nodes = 2,
                             .world_size = 4};
}

static void check(const struct incident *i, const char *expected) {
    incident_text(i, "b", WHEN, text);
    cr_assert_str_eq(text, expected);
}

Test(incident, a_worker_that_died_and_a_restart) {
    struct incident i = killed();
    check(&i,
          WHEN ", 34 s after the start of group 2.1: rank 3 (node a) died of SIGKILL; the same nodes start again. "
               "The leader on node b noticed it after 2 ms; all workers were gone 58 ms later; group 2.2 (2 nodes, 4 "
               "workers) started 64 ms after the first symptom. Restarts used: 1 of 5. The lost work is not known: no "
               "step was reported (MUSTER_STEP).");
    i.last_step = 1000;
    i.steps_lost = 14;
    i.first_step_ns = MS(39264);
    incident_text(&i, "b", WHEN, text);
    cr_assert_not_null(strstr(text, "5. The first step ended 4.2 s after the first symptom. Repeated: 14 steps."), "%s",
                       text);
}

Test(incident, nodes_that_waited_take_part_too) {
    struct incident i = killed();
    i.n_nodes = 4;
    incident_text(&i, "b", WHEN, text);
    cr_assert_not_null(strstr(text, "SIGKILL; the same nodes start again with 2 more. "), "%s", text);
    i.n_nodes = 2;
    i.action = INCIDENT_SPARE;
    (void)strcpy(i.taker, "c");
    incident_text(&i, "b", WHEN, text);
    cr_assert_not_null(strstr(text, "SIGKILL; c takes another node's place. "), "%s", text);
}

Test(incident, a_sick_node_is_left_out_and_another_takes_its_place) {
    struct incident i = killed();
    i.class = INCIDENT_HEALTH;
    (void)strcpy(i.failure.node, "b");
    (void)strcpy(i.taker, "c");
    (void)strcpy(i.cause, "rank 12 (node b) died of SIGABRT 80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    i.left_out = true;
    i.action = INCIDENT_SPARE;
    incident_text(&i, "b", WHEN, text);
    cr_assert_not_null(strstr(text, "group 2.1: rank 12 (node b) died of SIGABRT 80 ms after Xid 79 on GPU 4 "
                                    "(0000:9d:00.0); node b is left out, c takes its place. The"),
                       "%s", text);
    i.left_out = false;
    i.action = INCIDENT_RESTART;
    incident_text(&i, "b", WHEN, text);
    cr_assert_not_null(strstr(text, "; the same nodes start again, and node b is one of them. "), "%s", text);
}

Test(incident, a_lost_leader_and_a_smaller_group) {
    struct incident i = killed();
    i.class = INCIDENT_NODE_LOST;
    (void)strcpy(i.cause, "node a is gone: its agent ended unexpectedly");
    i.left_out = true;
    i.began_ns = i.stopped_ns = 0;
    i.action = INCIDENT_SHRINK;
    i.n_nodes = 1;
    i.world_size = 2;
    check(&i,
          WHEN ", group 2.1: node a is gone: its agent ended unexpectedly; the group shrinks from 2 to 1 "
               "node. The leader on node b noticed it after 2 ms; group 2.2 "
               "(1 node, 2 workers) started 64 ms after the first symptom. Restarts used: 1 of 5. The lost work is not "
               "known: no step was reported (MUSTER_STEP).");
}

Test(incident, the_end_of_a_job) {
    struct incident i = killed();
    (void)strcpy(i.cause, "rank 3 (node a) ended with exit code 1: ValueError: x");
    i.action = INCIDENT_END;
    i.started_ns = 0;
    i.last_step = 77;
    check(&i,
          WHEN ", 34 s after the start of group 2.1: rank 3 (node a) ended with exit code 1: ValueError: x; the job "
               "ends. The leader on node b noticed it after 2 ms; all workers were gone 58 ms later. Restarts "
               "used: 1 of 5. The last step was 77; the number of repeated steps is not known.");
}

Test(incident, the_longest_texts_fit) {
    struct incident i = killed();
    memset(i.cause, 'c', sizeof i.cause - 1);
    memset(i.failure.node, 'n', sizeof i.failure.node - 1);
    memset(i.taker, 't', sizeof i.taker - 1);
    memset(i.evidence, '/', sizeof i.evidence - 1);
    for (int action = INCIDENT_ACTION_NONE; action < INCIDENT_ACTION_COUNT; action++) {
        i.action = (enum incident_action)action;
        i.left_out = true;
        incident_text(&i, "b", WHEN, text);
        cr_assert(strlen(text) < sizeof text);
        cr_assert_not_null(incident_action_names[action]);
    }
}

Test(incident, a_job_that_was_never_started_again_has_no_line) {
    struct job_history h = {.phase_ns = {[JOB_PHASE_RUNNING] = 10 * NS_PER_S}, .incidents = {[INCIDENT_WORKER] = 1}};
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    job_history_text(&h, &line);
    cr_assert_eq(line.len, 0);
    h.phase_ns[JOB_PHASE_STOPPING] = MS(40);
    h.incidents[INCIDENT_NODE_LOST] = 2;
    h.down_ns = MS(60);
    job_history_text(&h, &line);
    cr_assert_str_eq(strbuf_text(&line),
                     "3 incidents; workers ran at most 99.6 % of 10 s; 60 ms from first symptoms to "
                     "new starts");
    strbuf_clear(&line);
    h.incidents[INCIDENT_NODE_LOST] = 0;
    h.steps_lost = 14;
    job_history_text(&h, &line);
    cr_assert_str_eq(strbuf_text(&line), "1 incident; workers ran at most 99.6 % of 10 s; 60 ms from first symptoms to "
                                         "new starts; 14 steps repeated");
}
