#include "cli/jobs/ps_text.h"

#include "rig/unit.h"

Test(ps_text, each_row_has_what_its_job_answered) {
    const struct overview running = {.state = GROUP_RUNNING, .generation = {1, 2}, .world_size = 16};
    const struct rdzv_watchdog quiet = {.state = WATCHDOG_QUIET, .quiet_ns = 90 * NS_PER_S, .said = "no progress"};
    const struct overview_node member = {.name = "node1", .place = PLACE_MEMBER, .first_rank = 8, .nproc = 8};
    const struct overview_node spare = {.place = PLACE_SPARE, .nproc = 4};
    char command[] = "muster run x";
    struct ps_row rows[] = {
        {.run_id = "full", .answered = true, .overview = running, .has_node = true, .node = member, .since = "12:03"},
        {.run_id = "spare", .answered = true, .overview = running, .has_node = true, .node = spare},
        {.run_id = "quiet", .host = "here", .answered = true, .overview = {.state = GROUP_RUNNING, .watchdog = quiet}},
        {.run_id = "closed", .host = "here", .refused = true},
        {.run_id = "silent", .host = "here", .command = command},
        {.run_id = "far", .host = "here", .head_nodes = 3},
        {.run_id = "full", .host = "here", .head_nodes = 2}, /* its agent here has a row */
    };
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    ps_text(rows, ARRAY_SIZE(rows), false, 80, &out);
    cr_expect_str_eq(strbuf_text(&out), "JOB     STATE      NODE   ATTEMPT  WORKERS  SINCE  COMMAND\n"
                                        "full    running    node1  1        8 of 16  12:03  -\n"
                                        "spare   spare      -      1        (4)      -      -\n"
                                        "quiet   quiet      here   -        -        -      -\n"
                                        "closed  no access  here   -        -        -      -\n"
                                        "silent  no answer  here   -        -        -      muster run x\n"
                                        "far     starter    here   -        3 nodes  -      -\n");
    strbuf_clear(&out);
    ps_json(rows, ARRAY_SIZE(rows), &out);
    assert_has(strbuf_text(&out), "\"member\",\"workers\":8,\"node_rank\":0,\"first_rank\":8,\"node\":\"node1\"");
    assert_has(strbuf_text(&out), "\"spare\",\"workers\":4,\"node_rank\":null,\"first_rank\":null,\"node\":\"\"");
    assert_has(strbuf_text(&out), "\"watchdog\":\"quiet\",\"quiet_seconds\":90,");
}
