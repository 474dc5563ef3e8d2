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

Test(incident, nodes_that_waited_take_part_too) {
    struct incident i = *WITH(killed(), .n_nodes = 4);
    incident_text(&i, "b", WHEN, text);
    assert_has(text, "SIGKILL; the same nodes start again with 2 more. ");
    i.n_nodes = 2;
    i.action = INCIDENT_SPARE;
    (void)strcpy(i.taker, "c");
    incident_text(&i, "b", WHEN, text);
    assert_has(text, "SIGKILL; c takes another node's place. ");
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
