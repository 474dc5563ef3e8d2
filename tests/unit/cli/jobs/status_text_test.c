#include "cli/jobs/status_text.h"

#include "base/json/json.h"
#include "rig/unit.h"

static struct overview overview;
static struct overview_node nodes[8];
static struct strbuf out;

static struct overview_node node(uint64_t id, const char *name, const char *addr, enum overview_place place,
                                 enum node_state state, uint64_t silent_ms) {
    struct overview_node n = {.incarnation = id,
                              .place = place,
                              .state = state,
                              .connected = true,
                              .silent_ns = silent_ms * NS_PER_MS,
                              .nproc = 8,
                              .pid = 11 * (int32_t)(id - 0xa0)};
    (void)strcpy(n.name, name);
    (void)strcpy(n.addr, addr);
    return n;
}

static void begin(void) {
    overview = (struct overview){.state = GROUP_RUNNING,
                                 .since_ns = 725 * NS_PER_S,
                                 .epoch = 2,
                                 .generation = {2, 3},
                                 .running_ns = 724 * NS_PER_S,
                                 .leader = 0xa1,
                                 .leader_host = "node1",
                                 .min_nodes = 2,
                                 .max_nodes = 4,
                                 .node_unit = 1,
                                 .n_members = 2,
                                 .world_size = 16,
                                 .n_nodes = 4,
                                 .n_spares = 1,
                                 .n_excluded = 1,
                                 .restarts_used = 1,
                                 .max_restarts = 3,
                                 .losses = 2,
                                 .successors = {0xa2, 0xbb, 0},
                                 .incident = "node7 was lost: silent for 6 s",
                                 .incident_ns = 730 * NS_PER_S,
                                 .history = {.phase_ns = {[JOB_PHASE_GATHERING] = 1500 * NS_PER_MS,
                                                          [JOB_PHASE_RUNNING] = 720 * NS_PER_S,
                                                          [JOB_PHASE_QUIET] = 4 * NS_PER_S},
                                             .incidents = {[INCIDENT_WORKER] = 2, [INCIDENT_NODE_LOST] = 1}},
                                 .access = {.state = AUTH_STATE_LOCAL}};
    nodes[0] = node(0xa3, "node3", "10.0.0.3", PLACE_SPARE, NODE_JOINED, 300);
    nodes[0].since_ns = 5 * NS_PER_S;
    nodes[1] = node(0xa2, "node2", "10.0.0.2", PLACE_MEMBER, NODE_RUNNING, 4000);
    nodes[1].connected = false;
    nodes[1].stalls = 3;
    nodes[1].longest_stall_ns = 25 * NS_PER_MS;
    nodes[1].node_rank = 1;
    nodes[1].first_rank = 8;
    nodes[2] = node(0xa1, "node1", "", PLACE_MEMBER, NODE_RUNNING, 1000);
    nodes[3] = node(0xa4, "node4", "10.0.0.4", PLACE_EXCLUDED, NODE_STOPPED, 0);
    (void)strcpy(nodes[3].why, "3 failures in a row");
    out = (struct strbuf){0};
}

static void finish(void) { strbuf_fini(&out); }

static const char *show(uint32_t n, bool wide) {
    strbuf_clear(&out);
    status_text(
        &(struct status_view){.run_id = "digits", .overview = &overview, .nodes = nodes, .n_nodes = n, .wide = wide},
        &out);
    return strbuf_text(&out);
}

static const char *text_of(uint32_t n) { return show(n, false); }

Test(status_text, a_running_job_for_people, .init = begin, .fini = finish) {
    cr_assert_str_eq(
        show(4, true),
        "job digits: running for 12 min 05 s\n"
        "  group      attempt 4: 2 nodes, 16 workers, started 12 min 04 s ago\n"
        "  wanted     2 to 4 nodes; 1 spare, 1 excluded\n"
        "  leader     node1, epoch 2; next in line: node2, 00000000000000bb\n"
        "  access     this machine only\n"
        "  so far     1 of 3 restarts used, 2 nodes lost\n"
        "  last       node7 was lost: silent for 6 s, 12 min 10 s ago\n"
        "\n"
        "NODE   RANK  WORKERS  PLACE     STATE    SILENT  ADDRESS          PID  ID                NOTE\n"
        "node1     0  0-7      member    running   1.0 s  with the leader   11  00000000000000a1\n"
        "node2     1  8-15     member    running   4.0 s  10.0.0.2          22  00000000000000a2  no connection\n"
        "node3     -  (8)      spare     joined   300 ms  10.0.0.3          33  00000000000000a3\n"
        "node4     -  (8)      excluded  stopped    0 ms  10.0.0.4          44  00000000000000a4  3 failures in a "
        "row\n");
}

Test(status_text, who_may_talk_to_the_job, .init = begin, .fini = finish) {
    static const struct {
        struct rdzv_access access;
        const char *line;
    } cases[] = {
        {{.state = AUTH_STATE_LOCAL, .refused = 1}, "  access     this machine only; 1 connection refused\n"},
        {{.state = AUTH_STATE_OPEN}, "  access     open: any host that reaches the job's ports\n"},
        {{.state = AUTH_STATE_NONE, .refused = 12},
         "  access     any host that reaches the job's ports (--auth=none); 12 connections refused\n"},
        {{.state = AUTH_STATE_KEYS, .n_keys = 1, .keys = {{.id = 0x52ea1d4530936c34, .source = AUTH_FROM_FILE}}},
         "  access     by key: 52ea1d4530936c34 from --key-file\n"},
        {{.state = AUTH_STATE_KEYS}, "  access     by key: munge is asked\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        overview.access = cases[i].access;
        assert_has(show(4, true), cases[i].line);
    }
}

Test(status_text, nodes_and_spares_are_counted_for_each_domain, .init = begin, .fini = finish) {
    cr_assert_null(strstr(show(4, true), "domain"));
    for (size_t i = 0; i < 4; i++)
        (void)strcpy(nodes[i].domain, i == 0 || i == 2 ? "rack10" : "rack9");
    (void)strcpy(nodes[0].fabric, "not healthy, IMEX channel present");
    const char *text = show(4, true);
    assert_has(text, "  domain     rack9: 1 in the group, 0 available\n"
                     "  domain     rack10: 1 in the group, 1 available\n");
    assert_has(text, "ID                DOMAIN                                     NOTE\n");
    assert_has(text, "00000000000000a3  rack10: not healthy, IMEX channel present\n");
    nodes[3].domain[0] = '\0'; /* its fabric is not complete */
    assert_has(show(4, true), "00000000000000a4  -                                          3 failures in a row\n");
    struct status_view v = {.run_id = "d", .overview = &overview, .nodes = nodes, .n_nodes = 4};
    strbuf_clear(&out);
    status_json(&v, &out);
    assert_has(strbuf_text(&out), "\"domains\":[{\"domain\":\"rack9\",\"members\":1,\"available\":0},"
                                  "{\"domain\":\"rack10\",\"members\":1,\"available\":1}]");
}

Test(status_text, eighty_columns_are_enough, .init = begin, .fini = finish) {
    (void)strcpy(nodes[3].why, "its disk is full, and the message of the kernel about that is longer than this line");
    (void)memset(nodes[1].name, 'n', 100);
    (void)strcpy(overview.incident,
                 "node7 was lost: silent for 6 s, while a switch between it and the others restarted");
    const char *text = text_of(4);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        cr_assert_leq(strcspn(line, "\n"), 80, "%s", text);
    cr_assert_str_eq(strstr(text, "  last"),
                     "  last       node7 was lost: silent for 6 s, while a switch between it and the\n"
                     "             others restarted, 12 min 10 s ago\n"
                     "\n"
                     "NODE                                    RANK  WORKERS  PLACE     STATE    SILENT\n"
                     "node1                                      0  0-7      member    running   1.0 s\n"
                     "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn+     1  8-15     member    running   4.0 s\n"
                     "node3                                      -  (8)      spare     joined   300 ms\n"
                     "node4                                      -  (8)      excluded  stopped    0 ms\n"
                     "  nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\n"
                     "    nnnnnnnnnnnnnnnnnnnnnn: no connection\n"
                     "  node4: its disk is full, and the message of the kernel about that is longer\n"
                     "    than this line\n");
}

Test(status_text, each_state_is_said, .init = begin, .fini = finish) {
    overview = (struct overview){.state = GROUP_GATHERING,
                                 .since_ns = NS_PER_S,
                                 .epoch = 1,
                                 .leader = 1,
                                 .leader_host = "a",
                                 .min_nodes = 4,
                                 .max_nodes = 4,
                                 .node_unit = 2,
                                 .access = {.state = AUTH_STATE_OPEN}};
    cr_assert_str_eq(text_of(0), "job digits: gathering for 1.0 s\n"
                                 "  group      none yet\n"
                                 "  wanted     4 to 4 nodes, a multiple of 2; 0 spares, 0 excluded\n"
                                 "  leader     a, epoch 1\n"
                                 "  access     open: any host that reaches the job's ports\n"
                                 "  so far     0 of 0 restarts used, 0 nodes lost\n");
    overview.state = GROUP_STOPPING;
    (void)strcpy(overview.reason, "rank 3 failed");
    assert_has(text_of(0), "digits: stopping for");
    assert_has(text_of(0), "  reason     rank 3 failed\n");
    overview.state = GROUP_FORMING;
    assert_has(text_of(0), "digits: forming for");
    overview.state = GROUP_CLOSED;
    overview.outcome = OUTCOME_FAILED;
    assert_has(text_of(0), "digits: failed 1.0 s ago");
}

Test(status_text, a_quiet_job_and_one_that_hangs_are_said, .init = begin, .fini = finish) {
    static const struct {
        struct rdzv_watchdog watchdog;
        const char *line; /* NULL: none */
    } cases[] = {
        {{.state = WATCHDOG_OK, .limit_ns = UINT64_MAX}, NULL},
        {{.state = WATCHDOG_STARTING, .quiet_ns = 4 * NS_PER_S, .limit_ns = 1800 * NS_PER_S}, NULL},
        {{.state = WATCHDOG_STARTING, .quiet_ns = 42 * NS_PER_S, .limit_ns = 1800 * NS_PER_S},
         "most workers have not begun to work, for 42 s (limit 30 min 00 s)\n"},
        {{.state = WATCHDOG_STARTING, .limit_ns = UINT64_MAX, .said = "rank 1 waits for input"},
         "rank 1 waits for input\n"},
        {{.state = WATCHDOG_QUIET, .limit_ns = UINT64_MAX, .said = "rank 1 waits for input"},
         "rank 1 waits for input\n"},
        {{.state = WATCHDOG_QUIET, .quiet_ns = 7 * NS_PER_S, .limit_ns = UINT64_MAX}, "quiet for 7.0 s\n"},
        {{.state = WATCHDOG_QUIET,
          .quiet_ns = 7 * NS_PER_S,
          .limit_ns = 180 * NS_PER_S,
          .said = "most workers have not moved for 5 s; rank 2\033 stops"},
         "quiet for 7.0 s (limit 3 min 00 s): most workers have not moved for 5 s; rank 2? stops\n"},
        {{.state = WATCHDOG_HUNG, .quiet_ns = 7 * NS_PER_S, .said = "most workers"},
         "hung, quiet for 7.0 s: most workers"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        overview.watchdog = cases[i].watchdog;
        const char *text = show(4, true), *label = strstr(text, "\n  watchdog   ");
        cr_assert_eq(label == NULL, cases[i].line == NULL, "%zu: %s", i, text);
        if (label != NULL)
            cr_assert_eq(strncmp(label + 14, cases[i].line, strlen(cases[i].line)), 0, "%s", text);
    }
}

Test(status_text, warm_workers_are_counted, .init = begin, .fini = finish) {
    cr_assert_null(strstr(text_of(4), "  warm"));
    nodes[1].has_warm = nodes[2].has_warm = nodes[0].has_warm = true;
    nodes[0].warm = (struct rdzv_warm){.warm = 4}; /* a spare does not count */
    nodes[2].warm = (struct rdzv_warm){.warm = 8, .waiting = 8};
    nodes[1].warm = (struct rdzv_warm){.warm = 1, .cold = 7, .waiting = 0, .reason = "it is still\x1b warming"};
    assert_has(show(4, true), "  warm       9 of 16 workers started warm; 8 processes wait for the next start; cold "
                              "because it is still? warming (node2)\n");
    nodes[1].warm = nodes[2].warm = (struct rdzv_warm){.waiting = 0, .reason = "--no-python starts no Python"};
    overview.n_members = 1;
    assert_has(show(4, true),
               "  warm       0 processes wait for the next start; because --no-python starts no Python\n");
}

Test(status_text, what_the_arbiter_alone_knows_is_little, .init = begin, .fini = finish) {
    overview = (struct overview){.state = GROUP_CLOSED, .epoch = 3, .outcome = OUTCOME_SUCCESS, .reason = "all done"};
    cr_assert_str_eq(text_of(0), "job digits: succeeded\n  reason     all done\n");
}

/* Text from a worker or another host must not move the cursor of the terminal that shows it. */
Test(status_text, control_characters_do_not_reach_the_terminal, .init = begin, .fini = finish) {
    (void)strcpy(nodes[0].name, "a\x1b[2J\nb\x7f");
    (void)strcpy(nodes[0].addr, "\xc2\x9b"
                                "31m"); /* C1: CSI */
    (void)strcpy(nodes[0].why, "\xff\xfe\t");
    (void)strcpy(overview.incident, "x\r\ny");
    (void)strcpy(overview.leader_host, "\x1b]0;title\x07");
    for (int wide = 0; wide <= 1; wide++) {
        const char *text = show(4, wide);
        for (const char *p = text; *p != '\0'; p++)
            cr_assert((unsigned char)*p >= 0x20 || *p == '\n', "%02x", (unsigned)*p);
        cr_assert_null(strchr(text, '\x7f'));
        cr_assert_null(strstr(text, "\xc2\x9b"));
        assert_has(text, "a?[2J?b?");
        assert_has(text, "  last       x??y, 12 min");
    }
}

Test(status_text, columns_stay_aligned_with_letters_of_several_bytes, .init = begin, .fini = finish) {
    (void)strcpy(nodes[1].name, "k\xc3\xb6ln-2");
    const char *text = strstr(text_of(4), "NODE");
    assert_has(text, "\nk\xc3\xb6ln-2     1  8-15 ");
    assert_has(text, "\nnode1      0  0-7  ");
}

/* As JSON, in one line, with single quotes. */
static const char *json_of(uint32_t n) {
    strbuf_clear(&out);
    status_json(&(struct status_view){.run_id = "digits", .overview = &overview, .nodes = nodes, .n_nodes = n}, &out);
    cr_assert_eq(strchr(strbuf_text(&out), '\n'), out.data + out.len - 1, "one line");
    for (char *c = out.data; *c != '\0'; c++)
        *c = *c == '"' ? '\'' : *c;
    return out.data;
}

Test(status_text, programs_are_told_what_the_watchdog_says, .init = begin, .fini = finish) {
    for (enum watchdog_state state = WATCHDOG_NONE; state < WATCHDOG_STATE_COUNT; state++) {
        bool loud = state == WATCHDOG_QUIET || state == WATCHDOG_HUNG;
        overview.watchdog =
            (struct rdzv_watchdog){.state = state, .quiet_ns = 31500 * NS_PER_MS, .limit_ns = UINT64_MAX};
        _cleanup_(freep) char *name = xasprintf("'%s'", watchdog_state_names[state]),
                              *part = xasprintf("'watchdog':%s,'quiet_seconds':%s,'quiet_limit_seconds':null,"
                                                "'quiet_text':null,",
                                                state == WATCHDOG_NONE ? "null" : name, loud ? "31.500" : "null");
        assert_has(json_of(4), part);
    }
    overview.watchdog = (struct rdzv_watchdog){
        .state = WATCHDOG_QUIET, .quiet_ns = NS_PER_S, .limit_ns = 180 * NS_PER_S, .said = "it waits"};
    assert_has(json_of(4), "'quiet_seconds':1.000,'quiet_limit_seconds':180.000,'quiet_text':'it waits',");
}

Test(status_text, where_the_time_goes, .init = begin, .fini = finish) {
    overview.time = (struct rdzv_time){.text = "training 82 % of 6 h 00 min",
                                       .late = "rank 12, 9 %",
                                       .start = {1500 * NS_PER_MS, 40 * NS_PER_MS, 0, 15 * NS_PER_S},
                                       .step = 1234};
    assert_has(json_of(4), "'time':'training 82 % of 6 h 00 min','late':'rank 12, 9 %','import_ms':1500,'init_ms':40,"
                           "'load_ms':0,'first_step_ms':15000,'step':1234,");
    assert_has(text_of(4), "  time       training 82 % of 6 h 00 min\n  late       rank 12, 9 %\n"
                           "  first step after 15 s: import 1.5 s, init 40 ms, load 0 ms\n");
}

Test(status_text, a_running_job_for_programs, .init = begin, .fini = finish) {
    nodes[0].has_warm = true;
    nodes[0].warm = (struct rdzv_warm){.warm = 2, .cold = 6, .waiting = 8, .reason = "it is still warming"};
    cr_assert_str_eq(
        json_of(4),
        "{'run_id':'digits','state':'running','state_seconds':725.000,'outcome':null,'reason':null,'epoch':2,"
        "'generation':'2.3','started_seconds':724.000,'leader':'00000000000000a1','leader_host':'node1',"
        "'endpoint':null,'successors':['00000000000000a2','00000000000000bb'],'min_nodes':2,'max_nodes':4,"
        "'node_unit':1,'members':2,'world_size':16,'spares':1,'excluded':1,'restarts_used':1,'max_restarts':3,"
        "'losses':2,'job_seconds':null,'command':null,'incident':'node7 was lost: silent for 6 s',"
        "'incident_seconds':730.000,'restart_seconds':null,'phase_seconds':{'gathering':1.500,'forming':0.000,"
        "'running':720.000,'quiet':4.000,'stopping':0.000},'incidents':{'worker':2,'hang':0,'node_lost':1,"
        "'node_left':0,'excluded':0,'health':0,'operator':0},'watchdog':null,'quiet_seconds':null,"
        "'quiet_limit_seconds':null,'quiet_text':null,'time':null,'late':null,'import_ms':null,'init_ms':null,'load_ms'"
        ":null,"
        "'first_step_ms':null,'step':null,'auth':'local','auth_keys':[],'refused':0,'domains':[],'nodes':["
        "{'node':'node1','id':'00000000000000a1','place':'member','state':'running',"
        "'node_rank':0,'first_rank':0,'workers':8,'connected':true,'silent_seconds':1.000,'address':null,'domain':null,"
        "'fabric':null,"
        "'pid':11,'joined_seconds':0.000,'stalls':0,'longest_stall_seconds':0.000,'why':null,"
        "'warm':null,'cold':null,'warm_waiting':null,'cold_because':null},"
        "{'node':'node2','id':'00000000000000a2','place':'member','state':'running',"
        "'node_rank':1,'first_rank':8,'workers':8,'connected':false,'silent_seconds':4.000,'address':'10.0.0.2','"
        "domain':null,'fabric':null,"
        "'pid':22,'joined_seconds':0.000,'stalls':3,'longest_stall_seconds':0.025,'why':null,"
        "'warm':null,'cold':null,'warm_waiting':null,'cold_because':null},"
        "{'node':'node3','id':'00000000000000a3','place':'spare','state':'joined',"
        "'node_rank':null,'first_rank':null,'workers':8,'connected':true,'silent_seconds':0.300,'address':'10.0.0.3','"
        "domain':null,'fabric':null,"
        "'pid':33,'joined_seconds':5.000,'stalls':0,'longest_stall_seconds':0.000,'why':null,"
        "'warm':2,'cold':6,'warm_waiting':8,'cold_because':'it is still warming'},"
        "{'node':'node4','id':'00000000000000a4','place':'excluded','state':'stopped',"
        "'node_rank':null,'first_rank':null,'workers':8,'connected':true,'silent_seconds':0.000,'address':'10.0.0.4','"
        "domain':null,'fabric':null,"
        "'pid':44,'joined_seconds':0.000,'stalls':0,'longest_stall_seconds':0.000,'why':'3 failures in a row',"
        "'warm':null,'cold':null,'warm_waiting':null,'cold_because':null}]}\n");
}

Test(status_text, the_job_and_its_last_event, .init = begin, .fini = finish) {
    overview.job_ns = 90 * NS_PER_S;
    (void)strcpy(overview.command, "train.py --lr=...");
    (void)strcpy(overview.incident, "rank 0 (node vm) ended with exit code 3: ValueError: b");
    overview.incident_ns = 12 * NS_PER_S;
    overview.restart_ns = 4 * NS_PER_MS;
    assert_has(show(4, true), "\n  last       rank 0 (node vm) ended with exit code 3: ValueError: b, 12 s ago, "
                              "restarted in 4 ms\n");
    assert_has(text_of(4), "s\n  command    train.py --lr=...\n  age        90 s\n");
    assert_has(json_of(4), "'job_seconds':90.000,'command':'train.py --lr=...','incident':'rank 0 (node vm) ended with "
                           "exit code 3: ValueError: b','incident_seconds':12.000,'restart_seconds':0.004,");
    overview.restart_ns = 0;
    assert_has(text_of(4), "12 s ago\n");
    assert_has(json_of(4), "'restart_seconds':null,");
}

Test(status_text, of_several_ports_the_leaders_is_shown, .init = begin, .fini = finish) {
    (void)strcpy(overview.endpoint, "node1.cluster:29402\x1b");
    assert_has(show(4, true), "  leader     node1 at node1.cluster:29402?, epoch 2; next in line:");
    (void)strcpy(overview.endpoint, "node1:29402");
    assert_has(json_of(4), "'endpoint':'node1:29402',");
}

Test(status_text, a_job_that_has_ended_for_programs, .init = begin, .fini = finish) {
    overview = (struct overview){
        .state = GROUP_CLOSED, .since_ns = 2 * NS_PER_S, .outcome = OUTCOME_FAILED, .reason = "rank 3 failed"};
    assert_has(json_of(0), "'incident':'rank 3 failed','incident_seconds':2.000,");
    overview = (struct overview){.state = GROUP_CLOSED, .epoch = 3, .outcome = OUTCOME_SUCCESS};
    const char *const parts[] = {"'outcome':'success','reason':null,'epoch':3,'generation':null,"
                                 "'started_seconds':null,'leader':null,'leader_host':null,'endpoint':null,",
                                 "'job_seconds':null,'command':null,'incident':null,'incident_seconds':null,"
                                 "'restart_seconds':null,",
                                 "'nodes':[]"};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        assert_has(json_of(0), parts[i]);
}

static void check_described(const char *page, const struct json *v) {
    for (const struct json *m = json_first(v); m != NULL; m = json_next(m)) {
        const char *item = rig_text("\n.It Li %s Ta ", json_key(m) != NULL ? json_key(m) : "");
        if (json_key(m) != NULL)
            cr_assert_not_null(strstr(page, item), "no '%s' in the manual", json_key(m));
        check_described(page, m);
    }
}

Test(status_text, the_manual_describes_every_key, .init = begin, .fini = finish) {
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    char *path = xasprintf("%s/../man/muster-status.1", tests == NULL ? "tests" : tests);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    _cleanup_(strbuf_fini) struct strbuf page = {0};
    char line[1024];
    while (fgets(line, sizeof line, f) != NULL)
        strbuf_add(&page, line);
    (void)fclose(f);
    free(path);
    _cleanup_(json_freep) struct json *doc = NULL;
    struct status_view view = {.run_id = "digits", .overview = &overview, .nodes = nodes, .n_nodes = 4};
    status_json(&view, &out);
    cr_assert_eq(json_parse(strbuf_text(&out), out.len, &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
    check_described(strbuf_text(&page), doc);
}
