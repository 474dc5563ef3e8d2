#include "launcher/report/events.h"

#include "base/json/json.h"
#include "rig/unit.h"

/* 2026-11-21T16:02:45.123456789Z */
#define WALL_NS UINT64_C(1795276965123456789)

static struct strbuf line; /* the last one */

static void finish(void) { strbuf_fini(&line); }
TestSuite(events, .fini = finish);

static const char *line_of(const struct timeline_entry *entry, uint64_t lost) {
    strbuf_clear(&line);
    events_line("job7", "node1", entry, WALL_NS, lost, &line);
    return strbuf_text(&line);
}

Test(events, a_group_that_formed_tells_how_long_that_took) {
    struct timeline_entry entry = {
        .kind = TIMELINE_FORMED,
        .at_ns = 10 * NS_PER_S,
        .generation = {2, 3},
        .from_ns = 10 * NS_PER_S - 200 * NS_PER_MS - 2 * NS_PER_US,
        .n_nodes = 2,
        .world_size = 16,
    };
    cr_assert_str_eq(line_of(&entry, 0), "{\"time\":\"2026-11-21T16:02:45.123Z\",\"monotonic_ns\":\"10000000000\","
                                         "\"event\":\"formed\",\"run_id\":\"job7\",\"host\":\"node1\","
                                         "\"generation\":\"2.3\",\"epoch\":2,\"nodes\":2,\"world_size\":16,"
                                         "\"stopped_to_formed_ms\":200.002}\n");
    entry.from_ns = 0; /* the first group */
    assert_has(line_of(&entry, 0), "\"world_size\":16}\n");
}

Test(events, a_start_tells_how_many_workers_were_warm) {
    struct timeline_entry entry = {.kind = TIMELINE_STARTED,
                                   .generation = {1, 2},
                                   .n_nodes = 1,
                                   .world_size = 3,
                                   .has_warm = true,
                                   .n_warm = 0,
                                   .cold_because = "it is still warming"};
    assert_has(line_of(&entry, 0), "\"world_size\":3,\"warm\":0,\"cold_because\":\"it is still warming\"}");
    entry.n_warm = 3;
    entry.cold_because[0] = '\0';
    assert_has(line_of(&entry, 0), "\"world_size\":3,\"warm\":3}");
}

Test(events, a_leader_at_one_of_several_ports_says_where) {
    struct timeline_entry entry = {
        .kind = TIMELINE_LEADS, .at_ns = 10, .generation = {1, 0}, .endpoint = "node1:29402"};
    assert_has(line_of(&entry, 0), "\"event\":\"leads\",\"run_id\":\"job7\",\"host\":\"node1\",\"epoch\":1,"
                                   "\"endpoint\":\"node1:29402\"}\n");
}

Test(events, a_lost_node_has_its_name_and_its_silence) {
    struct timeline_entry entry = {.kind = TIMELINE_NODE_LOST,
                                   .at_ns = 20 * NS_PER_S,
                                   .generation = {2, 0},
                                   .node = 0xab,
                                   .name = "no\"de\n",
                                   .why = "silent for 6 s",
                                   .from_ns = 14 * NS_PER_S};
    const char *text = line_of(&entry, 3);
    assert_has(text, "\"event\":\"node_lost\"");
    cr_assert_null(strstr(text, "\"generation\""), "an epoch without a group");
    assert_has(text, "\"epoch\":2,\"node\":\"no\\\"de\\n\","
                     "\"incarnation\":\"00000000000000ab\","
                     "\"cause\":\"silent for 6 s\",\"silent_ms\":6000.000,"
                     "\"lines_lost_before\":3}\n");
}

Test(events, a_failure_has_its_rank_its_end_and_the_restarts_before_it) {
    struct timeline_entry entry = {
        .kind = TIMELINE_WORKER_FAILED,
        .node = 1,
        .name = "b",
        .why = "rank 9 (node b) died of SIGSEGV",
        .incident =
            {.failure = {.kind = FAILURE_SIGNAL, .code = 11, .pid = 4711, .incarnation = 1, .rank = 9, .local_rank = 1},
             .restarts_used = 2},
    };
    static const char rank[] = "\"cause\":\"rank 9 (node b) died of SIGSEGV\",\"rank\":9,\"local_rank\":1,";
    _cleanup_(freep) char *killed = xasprintf("%s\"signal\":11,\"pid\":4711,\"restarts_used\":2}\n", rank);
    assert_has(line_of(&entry, 0), killed);
    entry.incident.failure.kind = FAILURE_EXIT;
    entry.incident.failure.code = 3;
    _cleanup_(freep) char *exited = xasprintf("%s\"exitcode\":3,\"pid\":4711,\"restarts_used\":2}\n", rank);
    assert_has(line_of(&entry, 0), exited);
    entry = (struct timeline_entry){.kind = TIMELINE_HANG,
                                    .why = "all wait",
                                    .incident = {.failure.kind = FAILURE_HANG, .evidence = "/logs/hangs/1"}};
    assert_has(line_of(&entry, 0), "\"cause\":\"all wait\",\"restarts_used\":0,\"evidence\":\"/logs/hangs/1\"}\n");
}

Test(events, each_kind_is_one_line_of_json) {
    for (int kind = TIMELINE_LEADS; kind < TIMELINE_KIND_COUNT; kind++) {
        struct timeline_entry entry = {.kind = (enum timeline_kind)kind,
                                       .at_ns = UINT64_MAX,
                                       .generation = {UINT32_MAX, UINT32_MAX},
                                       .node = UINT64_MAX,
                                       .from_ns = 5,
                                       .outcome = OUTCOME_FAILED,
                                       .n_nodes = UINT32_MAX,
                                       .world_size = UINT32_MAX};
        memset(entry.name, 0x80, sizeof entry.name - 1); /* not UTF-8 */
        memset(entry.why, '\n', sizeof entry.why - 1);
        const char *text = line_of(&entry, UINT64_MAX);
        _cleanup_(json_freep) struct json *doc = NULL;
        struct err err = {0};
        size_t len = strlen(text);
        cr_assert_eq(text[len - 1], '\n');
        cr_assert_eq(memchr(text, '\n', len - 1), NULL);
        cr_assert_eq(json_parse(text, len - 1, &JSON_LIMITS_DEFAULT, &doc, &err), 0, "%s: %s", text, err.text);
        const char *event = json_string(json_member(doc, "event"));
        cr_expect_str_eq(event, timeline_kind_name((enum timeline_kind)kind));
        cr_expect_eq(json_has(doc, "outcome"), kind == TIMELINE_CLOSED);
        cr_expect_eq(json_has(doc, "stopped_to_formed_ms"), kind == TIMELINE_FORMED);
        cr_expect_eq(json_has(doc, "quiet_ms"), kind == TIMELINE_QUIET || kind == TIMELINE_RESUMED);
    }
}

/* Names and causes have no control characters, each of which would take six bytes. */
Test(events, a_line_of_an_incident_has_a_limit_also_if_all_bytes_are_escaped) {
    struct timeline_entry entry = {.kind = TIMELINE_INCIDENT,
                                   .at_ns = UINT64_MAX,
                                   .incident = {.n = UINT32_MAX,
                                                .class = INCIDENT_HEALTH,
                                                .action = INCIDENT_SPARE,
                                                .failure = {.kind = FAILURE_EXIT, .incarnation = 1},
                                                .started_ns = UINT64_MAX,
                                                .left_out = true}};
    struct incident *i = &entry.incident;
    memset(i->failure.node, '"', sizeof i->failure.node - 1);
    memset(i->taker, '"', sizeof i->taker - 1);
    memset(i->cause, '"', sizeof i->cause - 1);
    memset(i->evidence, '"', sizeof i->evidence - 1);
    const char *text = line_of(&entry, UINT64_MAX);
    cr_expect_leq(strlen(text), EVENTS_INCIDENT_MAX, "%zu", strlen(text));
    char host[1024];
    memset(host, 1, sizeof host - 1);
    host[sizeof host - 1] = '\0';
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    events_line(host, host, &entry, WALL_NS, 0, &out); /* names that can't be cut: it ends */
    cr_expect_eq(strbuf_text(&out)[out.len - 1], '\n');
}
