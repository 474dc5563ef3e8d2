#include "cli/jobs/status_screen.h"

#include "rig/unit.h"

#define NODES 1000

static struct overview overview;
static struct overview_node nodes[NODES];
static struct status_screen screen;
static struct strbuf out;
static char text[65536]; /* the last frame: a line for each row, "*" before a strong one, "!" before a changed one */
static unsigned rows, widest;

static void begin(void) {
    overview = (struct overview){.state = GROUP_RUNNING,
                                 .since_ns = 60 * NS_PER_S,
                                 .leader = 1,
                                 .generation = {1, 1},
                                 .min_nodes = 1,
                                 .max_nodes = NODES,
                                 .node_unit = 1,
                                 .n_members = NODES,
                                 .world_size = 2 * NODES,
                                 .max_restarts = 3};
    for (unsigned i = 0; i < NODES; i++) {
        nodes[i] = (struct overview_node){.incarnation = 5000 - i, /* not in the order of ranks */
                                          .place = PLACE_MEMBER,
                                          .state = NODE_RUNNING,
                                          .connected = true,
                                          .node_rank = i,
                                          .first_rank = 2 * i,
                                          .nproc = 2};
        (void)snprintf(nodes[i].name, sizeof nodes[i].name, "node%u", i);
    }
    screen = (struct status_screen){0};
    out = (struct strbuf){0};
}

static void finish(void) {
    strbuf_fini(&out);
    status_screen_fini(&screen);
}

static struct status_view view_of(uint32_t n) {
    return (struct status_view){.run_id = "digits", .overview = &overview, .nodes = nodes, .n_nodes = n};
}

static void update(uint32_t n, uint64_t seconds) { status_screen_update(&screen, AT(view_of(n)), seconds * NS_PER_S); }

/* Takes a line's sequences away, and checks that there are no others. */
static const char *take_line(const char *at, char **to) {
    unsigned width = 0;
    bool bright = strncmp(at, "\033[1m", 4) == 0 || strncmp(at, "\033[7m", 4) == 0;
    if (bright) {
        *(*to)++ = at[2] == '1' ? '*' : '!';
        at += 4;
    }
    for (; *at != '\033'; at++) {
        cr_assert((unsigned char)*at >= 0x20, "a control character");
        width += ((unsigned char)*at & 0xc0) != 0x80;
        *(*to)++ = *at;
    }
    widest = MAX2(widest, width);
    if (bright) {
        cr_assert_eq(strncmp(at, "\033[0m", 4), 0);
        at += 4;
    }
    cr_assert_eq(strncmp(at, "\033[K", 3), 0, "each line is cleared to its end");
    *(*to)++ = '\n';
    return at + 3;
}

static const char *draw(uint32_t n, const char *trouble, struct screen_size size, uint64_t seconds) {
    struct status_view view = view_of(n);
    strbuf_clear(&out);
    status_screen_draw(&screen, &view, trouble, &size, seconds * NS_PER_S, &out);
    const char *at = strbuf_text(&out);
    char *to = text;
    rows = widest = 0;
    cr_assert_eq(strncmp(at, "\033[H", 3), 0);
    at += 3;
    for (;;) {
        at = take_line(at, &to);
        rows++;
        if (strncmp(at, "\r\n", 2) != 0)
            break;
        at += 2;
    }
    cr_assert_str_eq(at, "\033[J", "the rest is cleared, and nothing scrolls");
    *to = '\0';
    return text;
}

static bool has(const char *what) { return strstr(text, what) != NULL; }

Test(status_screen, a_small_job_is_shown_in_the_order_of_ranks, .init = begin, .fini = finish) {
    overview.n_members = 2;
    overview.world_size = 4;
    nodes[0].state = NODE_FINISHED;
    nodes[1].state = NODE_FAILED;
    update(3, 100);
    nodes[2].place = PLACE_SPARE;
    nodes[2].state = NODE_JOINED;
    update(3, 101);
    cr_assert_str_eq(draw(3, NULL, (struct screen_size){24, 80}, 103),
                     "*job digits: running for 60 s\n"
                     "  group      attempt 1: 2 nodes, 4 workers\n"
                     "  wanted     1 to 1000 nodes; 0 spares, 0 excluded\n"
                     "  so far     0 of 3 restarts used, 0 nodes lost\n"
                     "  nodes      1 finished, 1 failed, 1 spare\n"
                     "  ranks      2 finished, 2 failed\n"
                     "\n"
                     "NODE   RANK  WORKERS  PLACE   STATE     SILENT\n"
                     "node0     0  0-1      member  finished    0 ms\n"
                     "*node1     1  2-3      member  failed      0 ms\n"
                     "!node2     -  (2)      spare   joined      0 ms\n"
                     "\n"
                     "!         2 s ago  node2: spare, was running\n");
    cr_assert_not(has("\033"));
    (void)draw(3, NULL, (struct screen_size){24, 80}, 101 + STATUS_CHANGED_NS / NS_PER_S);
    cr_assert(has("\nnode2 ") && has("\n         5 s ago  node2"), "%s", text);
}

Test(status_screen, of_a_large_job_those_nodes_come_first_that_need_attention, .init = begin, .fini = finish) {
    update(NODES, 100);
    nodes[700].connected = false;
    nodes[900].place = PLACE_EXCLUDED;
    (void)strcpy(nodes[900].why, "3 failures in a row");
    nodes[500].state = NODE_PREPARED;
    update(NODES, 101);
    (void)draw(NODES, NULL, (struct screen_size){24, 80}, 101);
    cr_assert(rows == 24 && widest <= 79, "%u rows, %u columns", rows, widest);
    cr_assert(has("  nodes      1 prepared, 997 running, 1 no connection, 1 excluded\n"), "%s", text);
    cr_assert(has("  ranks      2 prepared, 1994 running, 2 no connection\n"), "%s", text);
    const char *const order[] = {"!node700 ", "!node900 ", "!node500 ",
                                 "\nnode0 ",  "\nnode1 ",  "and 989 more: 989 running\n"};
    const char *at = text;
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        at = strstr(at, order[i]);
        cr_assert_not_null(at, "%s: %s", order[i], text);
    }
    cr_assert(has("  3 failures in a row\n"), "%s", text);
    (void)draw(NODES, NULL, (struct screen_size){60, 200}, 101);
    cr_assert_eq(rows, 60);
}

Test(status_screen, each_size_is_kept, .init = begin, .fini = finish) {
    (void)memset(overview.reason, 'x', sizeof overview.reason - 1);
    (void)memset(nodes[1].name, 'n', sizeof nodes[1].name - 1);
    update(40, 1);
    nodes[3].state = NODE_FAILED;
    update(40, 2);
    for (uint32_t r = 1; r < 70; r++)
        for (uint32_t c = 1; c < 200; c += 7) {
            (void)draw(40, "no answer for 3 s", (struct screen_size){r, c}, 3);
            cr_assert(rows <= r && widest <= MAX2(c - 1, 1u), "%u x %u: %u x %u", r, c, rows, widest);
        }
}

Test(status_screen, events_are_the_newest_first_and_those_of_many_nodes_are_one, .init = begin, .fini = finish) {
    (void)strcpy(overview.incident, "node7 was lost: silent for 6 s");
    overview.incident_ns = 90 * NS_PER_S;
    update(10, 100);
    cr_assert(screen.n_events == 1 && screen.events[0].at_ns == 10 * NS_PER_S, "that of before, with its time");
    for (unsigned i = 0; i < 4; i++)
        nodes[i].state = NODE_STOPPED;
    overview.incident_ns = 0;
    (void)strcpy(overview.incident, "node8 was lost");
    overview.generation.counter = 2;
    overview.losses = 1;
    overview.state = GROUP_FORMING;
    update(9, 110);
    const char *const want[] = {"the job: forming, was running",
                                "attempt 2: 1000 nodes, 2000 workers",
                                "node8 was lost",
                                "4 nodes: stopped, was running",
                                "node9: gone, was running",
                                "node7 was lost: silent for 6 s"};
    cr_assert_eq(screen.n_events, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        cr_expect_str_eq(screen.events[i].text, want[i], "%zu: %s", i, screen.events[i].text);
    (void)draw(9, NULL, (struct screen_size){40, 80}, 110);
    cr_assert(text[0] == '!' && has("       100 s ago  node7 was lost: silent"), "%s", text);
    for (unsigned i = 0; i < 3 * STATUS_EVENTS_MAX; i++) {
        nodes[0].state = i % 2 == 0 ? NODE_RUNNING : NODE_STOPPED;
        update(10, 111 + i);
    }
    cr_assert_eq(screen.n_events, STATUS_EVENTS_MAX);
    cr_assert_str_eq(screen.events[0].text, "node0: stopped, was running");
}

Test(status_screen, an_old_state_is_marked_and_texts_of_others_move_no_cursor, .init = begin, .fini = finish) {
    (void)strcpy(nodes[0].name, "a\033[2Jb\n");
    update(1, 1);
    nodes[0].state = NODE_FAILED;
    update(1, 2);
    (void)draw(1, "no answer for 7 s: no agent listens", (struct screen_size){24, 80}, 3);
    cr_assert(has("*job digits: running for 60 s\n!no answer for 7 s: no agent listens\n  group"), "%s", text);
    cr_assert(has("!a?[2Jb?  ") && has("a?[2Jb?: failed, was running\n"), "%s", text);
}
