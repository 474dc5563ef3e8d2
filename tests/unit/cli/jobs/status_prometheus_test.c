#include "cli/jobs/status_text.h"
#include "rig/unit.h"

#define NODES 512
#define SERIES_MAX 25 /* of a job without nodes that come or leave */

static struct overview overview;
static struct overview_node nodes[NODES];
static struct strbuf out;

static void begin(void) {
    overview = (struct overview){
        .state = GROUP_RUNNING,
        .epoch = 3,
        .generation = {2, 5},
        .leader = 1,
        .n_members = 500,
        .world_size = 4000,
        .restarts_used = 4,
        .max_restarts = 9,
        .losses = 2,
        .history = {.phase_ns = {[JOB_PHASE_GATHERING] = 1500 * NS_PER_MS,
                                 [JOB_PHASE_FORMING] = 2 * NS_PER_S,
                                 [JOB_PHASE_RUNNING] = 3600 * NS_PER_S,
                                 [JOB_PHASE_STOPPING] = 7 * NS_PER_MS,
                                 [JOB_PHASE_QUIET] = 20 * NS_PER_S},
                    .incidents = {[INCIDENT_WORKER] = 3, [INCIDENT_HANG] = 1, [INCIDENT_NODE_LOST] = 2}},
        .time = {.step = 1234},
        .watchdog = {.state = WATCHDOG_OK, .quiet_ns = 300 * NS_PER_MS}};
    for (unsigned i = 0; i < NODES; i++) {
        enum overview_place place = i < 500 ? PLACE_MEMBER : i < 510 ? PLACE_SPARE : PLACE_EXCLUDED;
        nodes[i] = (struct overview_node){.incarnation = i + 1, .place = place, .nproc = 8};
        (void)snprintf(nodes[i].name, sizeof nodes[i].name, "node%u", i);
    }
    out = (struct strbuf){0};
}

static void finish(void) { strbuf_fini(&out); }

static const char *show(const char *run_id) {
    strbuf_clear(&out);
    status_prometheus(
        &(struct status_view){
            .run_id = run_id, .overview = &overview, .nodes = nodes, .n_nodes = overview.leader ? NODES : 0},
        &out);
    return strbuf_text(&out);
}

static unsigned count_series(const char *text) {
    unsigned n = 0;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1)
        n += *line != '#';
    return n;
}

Test(status_prometheus, a_large_job_has_few_series, .init = begin, .fini = finish) {
    cr_assert_str_eq(show("digits"),
                     "# HELP muster_job_info 1 for each job.\n"
                     "# TYPE muster_job_info gauge\n"
                     "muster_job_info{run_id=\"digits\"} 1\n"
                     "# HELP muster_job_state 1 for the state that the job is in.\n"
                     "# TYPE muster_job_state gauge\n"
                     "muster_job_state{run_id=\"digits\",state=\"running\"} 1\n"
                     "# HELP muster_epoch Number of the leader; a new leader has a higher one.\n"
                     "# TYPE muster_epoch gauge\n"
                     "muster_epoch{run_id=\"digits\"} 3\n"
                     "# HELP muster_group Number of the newest group, from 1 for each leader.\n"
                     "# TYPE muster_group gauge\n"
                     "muster_group{run_id=\"digits\"} 5\n"
                     "# HELP muster_workers Workers of the newest group.\n"
                     "# TYPE muster_workers gauge\n"
                     "muster_workers{run_id=\"digits\"} 4000\n"
                     "# HELP muster_nodes Nodes by their place in the job.\n"
                     "# TYPE muster_nodes gauge\n"
                     "muster_nodes{run_id=\"digits\",place=\"member\"} 500\n"
                     "muster_nodes{run_id=\"digits\",place=\"spare\"} 10\n"
                     "muster_nodes{run_id=\"digits\",place=\"excluded\"} 2\n"
                     "# HELP muster_restarts_total Restarts used.\n"
                     "# TYPE muster_restarts_total counter\n"
                     "muster_restarts_total{run_id=\"digits\"} 4\n"
                     "# HELP muster_restarts_limit Restarts allowed by --max-restarts.\n"
                     "# TYPE muster_restarts_limit gauge\n"
                     "muster_restarts_limit{run_id=\"digits\"} 9\n"
                     "# HELP muster_node_losses_total Nodes lost.\n"
                     "# TYPE muster_node_losses_total counter\n"
                     "muster_node_losses_total{run_id=\"digits\"} 2\n"
                     "# HELP muster_incidents_total How often a group was stopped, by cause.\n"
                     "# TYPE muster_incidents_total counter\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"worker\"} 3\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"hang\"} 1\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"node_lost\"} 2\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"node_left\"} 0\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"excluded\"} 0\n"
                     "muster_incidents_total{run_id=\"digits\",class=\"health\"} 0\n"
                     "# HELP muster_phase_seconds_total Time of the job by phase; quiet is a part of running.\n"
                     "# TYPE muster_phase_seconds_total counter\n"
                     "muster_phase_seconds_total{run_id=\"digits\",phase=\"gathering\"} 1.500\n"
                     "muster_phase_seconds_total{run_id=\"digits\",phase=\"forming\"} 2.000\n"
                     "muster_phase_seconds_total{run_id=\"digits\",phase=\"running\"} 3620.000\n"
                     "muster_phase_seconds_total{run_id=\"digits\",phase=\"stopping\"} 0.007\n"
                     "muster_phase_seconds_total{run_id=\"digits\",phase=\"quiet\"} 20.000\n"
                     "# HELP muster_quiet_seconds Time since most workers last moved, 0 while they move.\n"
                     "# TYPE muster_quiet_seconds gauge\n"
                     "muster_quiet_seconds{run_id=\"digits\"} 0.000\n"
                     "# HELP muster_hung 1 if the workers have been quiet for longer than a limit.\n"
                     "# TYPE muster_hung gauge\n"
                     "muster_hung{run_id=\"digits\"} 0\n"
                     "# HELP muster_step The last MUSTER_STEP of a worker.\n"
                     "# TYPE muster_step gauge\n"
                     "muster_step{run_id=\"digits\"} 1234\n");
    cr_assert_leq(count_series(strbuf_text(&out)), SERIES_MAX);
}

Test(status_prometheus, what_is_not_known_is_left_out, .init = begin, .fini = finish) {
    overview.watchdog.state = WATCHDOG_NONE;
    overview.generation = (struct generation){0, 0};
    overview.time.step = 0;
    const char *text = show("digits");
    cr_assert_null(strstr(text, "muster_quiet_seconds"), "%s", text);
    cr_assert_null(strstr(text, "muster_hung"), "%s", text);
    cr_assert_null(strstr(text, "muster_group"), "%s", text);
    cr_assert_null(strstr(text, "muster_step"), "%s", text);
    cr_assert_null(strstr(text, "operator"), "%s", text);
    overview.history.incidents[INCIDENT_OPERATOR] = 1;
    assert_has(show("digits"), ",class=\"operator\"} 1\n");
    overview = (struct overview){.state = GROUP_CLOSED, .epoch = 3, .outcome = OUTCOME_FAILED};
    text = show("digits");
    cr_assert_eq(count_series(text), 3, "%s", text);
    assert_has(text, "muster_job_state{run_id=\"digits\",state=\"failed\"} 1\n");
    overview = (struct overview){.state = GROUP_CLOSED, .outcome = OUTCOME_SUCCESS};
    text = show("digits");
    cr_assert_eq(count_series(text), 2, "%s", text);
    assert_has(text, "{run_id=\"digits\",state=\"succeeded\"} 1\n");
    overview.outcome = OUTCOME_NONE; /* this node left before the job ended */
    assert_has(show("digits"), "state=\"closed\"} 1\n");
}

Test(status_prometheus, a_quiet_job_and_one_that_hangs, .init = begin, .fini = finish) {
    overview.watchdog = (struct rdzv_watchdog){.state = WATCHDOG_QUIET, .quiet_ns = 61 * NS_PER_S + 20 * NS_PER_MS};
    const char *text = show("digits");
    assert_has(text, "muster_quiet_seconds{run_id=\"digits\"} 61.020\n");
    assert_has(text, "muster_hung{run_id=\"digits\"} 0\n");
    overview.watchdog.state = WATCHDOG_HUNG;
    text = show("digits");
    assert_has(text, "muster_quiet_seconds{run_id=\"digits\"} 61.020\n");
    assert_has(text, "muster_hung{run_id=\"digits\"} 1\n");
}

Test(status_prometheus, nodes_that_come_or_leave_are_counted_while_there_are_any, .init = begin, .fini = finish) {
    nodes[0].place = PLACE_LEAVING;
    nodes[1].place = nodes[2].place = PLACE_WAITING;
    assert_has(show("digits"), "muster_nodes{run_id=\"digits\",place=\"member\"} 497\n"
                               "muster_nodes{run_id=\"digits\",place=\"waiting\"} 2\n"
                               "muster_nodes{run_id=\"digits\",place=\"spare\"} 10\n"
                               "muster_nodes{run_id=\"digits\",place=\"excluded\"} 2\n"
                               "muster_nodes{run_id=\"digits\",place=\"leaving\"} 1\n");
}

Test(status_prometheus, quotes_and_backslashes_of_a_run_id_are_escaped, .init = begin, .fini = finish) {
    assert_has(show("a\"b\\c Größe"), "muster_job_info{run_id=\"a\\\"b\\\\c Größe\"} 1\n");
}
