#include "rendezvous/leader/parts/incident.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/util.h"

#define WHEN "2026-11-26T13:53:03.123Z"
#define MS(x) ((uint64_t)((x)*1e6))

static char text[INCIDENT_TEXT_MAX];

static struct incident killed(void) {
    return (struct incident){.n = 1,
                             .class = INCIDENT_WORKER,
                             .generation = {2, 1},
                             .next = {2, 2},
                             .node = "a",
                             .failure = FAILURE_SIGNAL,
                             .code = SIGKILL,
                             .has_rank = true,
                             .rank = 3,
                             .cause = "rank 3 failed: signal 9",
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
    i.has_steps_lost = true;
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
    i.rank = 12;
    i.code = SIGABRT;
    (void)strcpy(i.node, "b");
    (void)strcpy(i.taker, "c");
    (void)strcpy(i.sick, "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)");
    i.xid = 79;
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
    i.failure = FAILURE_NONE;
    i.has_rank = false;
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
    i.failure = FAILURE_EXIT;
    i.code = 1;
    (void)strcpy(i.cause, "rank 3 failed: exit code 1: ValueError: x");
    i.action = INCIDENT_END;
    i.started_ns = 0;
    i.last_step = 77;
    check(&i, WHEN ", 34 s after the start of group 2.1: rank 3 (node a) failed: exit code 1: ValueError: x; the job "
                   "ends. The leader on node b noticed it after 2 ms; all workers were gone 58 ms later. Restarts "
                   "used: 1 of 5. The last step was 77; the number of repeated steps is not known.");
}

Test(incident, a_hang_that_names_many_ranks_is_cut_between_them) {
    struct incident i = killed();
    _cleanup_(strbuf_fini) struct strbuf cause = {0};
    i.failure = FAILURE_HANG;
    (void)strcpy(i.cause, "the job hangs: rank 3 is stopped");
    for (int rank = 0; rank < 9; rank++)
        (void)snprintf(i.cause + strlen(i.cause), 60, "; rank %d (node a): all_reduce() in f (train.py:9)", rank);
    incident_cause_text(&i, &cause);
    cr_assert(cause.len > 250 && cause.len <= 320 && text_ends(strbuf_text(&cause), " (train.py:9)"), "%s",
              strbuf_text(&cause));
}

Test(incident, the_longest_texts_fit) {
    struct incident i = killed();
    i.failure = FAILURE_HANG;
    memset(i.cause, 'c', sizeof i.cause - 1);
    memset(i.node, 'n', sizeof i.node - 1);
    memset(i.taker, 't', sizeof i.taker - 1);
    memset(i.sick, 's', sizeof i.sick - 1);
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
