#include "launcher/preflight/node_summary.h"

#include <time.h>

#include "rig/unit.h"

static struct node_summary usual(void) {
    struct node_summary d = {0};
    node_summary_set(&d, NODE_SUMMARY_GPUS, "8 x NVIDIA H100 80GB HBM3");
    node_summary_set(&d, NODE_SUMMARY_DRIVER, "535.183.01");
    node_summary_set(&d, NODE_SUMMARY_MTU, "9000");
    node_summary_set(&d, NODE_SUMMARY_NETIF, "eth0");
    return d;
}

static struct summary_index *b;
static struct node_summary_comparison c;

static void begin(void) { b = summary_index_new(7); }
static void finish(void) {
    node_summary_comparison_fini(&c);
    summary_index_free(b);
}
TestSuite(node_summary, .init = begin, .fini = finish);

/* The nodes 1 to n. */
static void compare(size_t n, const struct node_summary_clock *clocks, int64_t own_ns) {
    uint64_t *ids = xcalloc(n, sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = i + 1;
    node_summary_comparison_fini(&c);
    summary_index_compare(b, ids, n, clocks, own_ns, &c);
    free(ids);
}

static void expect_table(size_t n, const char *want) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    compare(n, NULL, 0);
    node_summary_comparison_table(&c, &s);
    cr_assert_str_eq(strbuf_text(&s), want);
}

Test(node_summary, what_an_evil_node_says_is_text) {
    static const char evil[] = "{\"facts\":{\"mtu\":\"\\u001b[2J\\n9000\"},\"findings\":[{"
                               "\"level\":\"fail\",\"code\":\"A\\u009bB\","
                               "\"text\":\"x\\u001b]0;y\\u0007\\nmuster: all is well\"}]}";
    static struct node_summary d;
    struct err err = {0};
    cr_assert_eq(node_summary_read(evil, sizeof evil - 1, &d, &err), 0, "%s", err.text);
    cr_assert_str_eq(d.values[NODE_SUMMARY_MTU], "?[2J?9000");
    cr_assert_str_eq(d.findings[0].code, "A??B");
    cr_assert_str_eq(d.findings[0].text, "x?]0;y??muster: all is well");
}

Test(node_summary, comes_back_from_json_as_it_was) {
    static struct node_summary in, out;
    in = usual();
    in.has_clock = true;
    in.clock_ns = -INT64_C(1795276965123456789);
    node_summary_set(&in, NODE_SUMMARY_NAME, "a \"b\"\n\x01 \xff");
    node_summary_add(&in, NODE_SUMMARY_FAIL, "GPU-LOST", "GPU %d is lost", 3);
    node_summary_add(&in, NODE_SUMMARY_OK, "FINE", "not told");
    node_summary_add(&in, NODE_SUMMARY_WARN, "SHM-SMALL", "/dev/shm has 64 MiB");
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    node_summary_write(&in, 8192, &s);
    struct err err = {0};
    cr_assert_eq(node_summary_read(strbuf_text(&s), s.len, &out, &err), 0, "%s", err.text);
    cr_assert(memcmp(in.values, out.values, sizeof in.values) == 0);
    cr_assert(out.has_clock && out.clock_ns == in.clock_ns);
    cr_assert_eq(out.n_findings, 2, "what is fine is not sent");
    cr_assert_eq(out.findings[0].level, NODE_SUMMARY_FAIL);
    cr_assert_str_eq(out.findings[0].text, "GPU 3 is lost");
    cr_assert_str_eq(out.findings[1].code, "SHM-SMALL");
    cr_assert_str_eq(out.values[NODE_SUMMARY_NAME], "a \"b\"?? \xef\xbf\xbd");
    cr_assert_eq(node_summary_worst(&in), NODE_SUMMARY_FAIL);
}

Test(node_summary, stays_below_its_bound_and_drops_findings_before_facts) {
    static struct node_summary d, out;
    d = usual();
    for (int i = 0; i < 2 * NODE_SUMMARY_FINDINGS_MAX; i++)
        node_summary_add(&d, NODE_SUMMARY_WARN, "X", "%0*d", NODE_SUMMARY_TEXT_MAX - 1, i);
    cr_assert_eq(d.n_findings, NODE_SUMMARY_FINDINGS_MAX);
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    node_summary_write(&d, 1024, &s);
    cr_assert_lt(s.len, 1024);
    cr_assert_eq(node_summary_read(strbuf_text(&s), s.len, &out, NULL), 0);
    cr_assert_str_eq(out.values[NODE_SUMMARY_MTU], "9000");
    cr_assert(out.n_findings > 0 && out.n_findings < NODE_SUMMARY_FINDINGS_MAX);
    for (uint32_t f = 0; f < NODE_SUMMARY_FACT_COUNT; f++)
        memset(d.values[f], 1, NODE_SUMMARY_VALUE_MAX - 1); /* six bytes each */
    node_summary_write(&d, 8192, &s);
    cr_assert_lt(s.len, 8192);
    cr_assert_eq(node_summary_read(strbuf_text(&s), s.len, &out, NULL), 0);
}

Test(node_summary, refuses_what_is_none) {
    static const char *const texts[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"facts\":{}}",
        "{\"facts\":[],\"findings\":[]}",
        "{\"facts\":{\"mtu\":1500},\"findings\":[]}",
        "{\"facts\":{},\"findings\":[1]}",
        "{\"facts\":{},\"findings\":[{\"level\":\"bad\",\"code\":\"A\",\"text\":\"b\"}]}",
        "{\"facts\":{},\"clock_ns\":\"1x\",\"findings\":[]}",
        "{\"facts\":{},\"clock_ns\":\"99999999999999999999\",\"findings\":[]}",
    };
    static struct node_summary d;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_assert_eq(node_summary_read(texts[i], strlen(texts[i]), &d, NULL), -EINVAL, "%s", texts[i]);
    static const char newer[] = "{\"facts\":{\"mtu\":\"9000\",\"colour\":\"red\"},\"findings\":[]}";
    cr_assert_eq(node_summary_read(newer, strlen(newer), &d, NULL), 0, "a fact that is not known here");
    cr_assert_str_eq(d.values[NODE_SUMMARY_MTU], "9000");
}

/* A node with many adapters that are down must not hide that a neighbour is not reached. */
Test(node_summary, a_failure_always_finds_room) {
    static struct node_summary d;
    node_summary_add(&d, NODE_SUMMARY_OK, "SHM", "fine");
    for (int i = 0; i < 30; i++)
        node_summary_add(&d, NODE_SUMMARY_WARN, "HCA-DOWN", "adapter %d", i);
    cr_assert_eq(d.n_findings, NODE_SUMMARY_FINDINGS_MAX);
    cr_assert_str_eq(d.findings[0].text, "adapter 15", "%s", d.findings[0].text);
    node_summary_add(&d, NODE_SUMMARY_OK, "LATE", "fine");
    node_summary_add(&d, NODE_SUMMARY_FAIL, "RING-BLOCKED", "first");
    cr_assert_eq(node_summary_worst(&d), NODE_SUMMARY_FAIL);
    for (int i = 0; i < 30; i++)
        node_summary_add(&d, NODE_SUMMARY_FAIL, "GPU-LOST", "GPU %d", i);
    cr_assert_eq(d.n_findings, NODE_SUMMARY_FINDINGS_MAX);
    uint32_t blocked = 0;
    for (uint32_t i = 0; i < d.n_findings; i++)
        blocked += strcmp(d.findings[i].code, "RING-BLOCKED") == 0;
    cr_assert_eq(blocked, 1);
}

/* A disk's room is each node's own, and would be as many values as there are nodes. */
Test(node_summary, what_every_node_has_for_itself_is_told_and_not_compared) {
    static struct node_summary d, back;
    for (uint64_t id = 1; id <= 3; id++) {
        node_summary_set(&d, NODE_SUMMARY_DISK, "%d GiB", (int)id);
        node_summary_set(&d, NODE_SUMMARY_PROCESSES, "%d", (int)id);
        summary_index_put(b, id, "n", &d);
    }
    cr_assert_eq(summary_index_values(b), 0);
    expect_table(3, "");
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    node_summary_write(&d, 8192, &s);
    cr_assert_eq(node_summary_read(strbuf_text(&s), s.len, &back, NULL), 0);
    cr_assert_str_eq(back.values[NODE_SUMMARY_DISK], "3 GiB");
}

Test(node_summary, values_of_two_facts_are_kept_apart) {
    static struct node_summary both, one;
    node_summary_set(&both, NODE_SUMMARY_MTU, "1500");
    node_summary_set(&both, NODE_SUMMARY_FAST_MTU, "1500");
    node_summary_set(&one, NODE_SUMMARY_MTU, "1500");
    summary_index_put(b, 1, "both", &both);
    summary_index_put(b, 2, "one", &one);
    cr_assert_eq(summary_index_values(b), 2);
    summary_index_drop(b, 1);
    cr_assert_eq(summary_index_values(b), 1);
    summary_index_put(b, 3, "another", &one);
    cr_assert_eq(summary_index_values(b), 1);
    summary_index_put(b, 1, "both", &both);
    cr_assert_eq(summary_index_values(b), 2);
    summary_index_drop(b, 2);
    summary_index_drop(b, 3);
    cr_assert_eq(summary_index_values(b), 2);
    summary_index_drop(b, 1);
    cr_assert_eq(summary_index_values(b), 0);
}

Test(node_summary, what_a_node_says_again_replaces_its_failures) {
    static struct node_summary bad, worse, fine;
    node_summary_add(&bad, NODE_SUMMARY_WARN, "HCA-DOWN", "no failure");
    node_summary_add(&bad, NODE_SUMMARY_FAIL, "DISK-LOW", "x");
    node_summary_add(&worse, NODE_SUMMARY_FAIL, "GPU-LOST", "x");
    summary_index_put(b, 1, "a", &bad);
    summary_index_put(b, 2, "b", &bad);
    summary_index_put(b, 1, "a", &worse);
    compare(2, NULL, 0);
    cr_assert_eq(c.n_failures, 2);
    cr_assert_str_eq(c.failures[0].host, "a");
    cr_assert_str_eq(c.failures[0].finding->code, "GPU-LOST");
    cr_assert_str_eq(c.failures[1].finding->code, "DISK-LOW");
    summary_index_put(b, 1, "a", &fine);
    summary_index_drop(b, 2);
    compare(2, NULL, 0);
    cr_assert_eq(c.n_failures, 0);
}

Test(node_summary, equal_nodes_make_no_table) {
    struct node_summary d = usual();
    for (uint64_t id = 1; id <= 4; id++)
        summary_index_put(b, id, "h", &d);
    cr_assert_eq(summary_index_values(b), 4, "they share their values");
    expect_table(4, "");
    cr_assert_eq(c.n, 0);
}

Test(node_summary, the_odd_node_is_named_with_what_it_and_the_others_have) {
    struct node_summary d = usual();
    for (uint64_t id = 1; id <= 8; id++) {
        node_summary_set(&d, NODE_SUMMARY_MTU, id == 3 ? "1500" : "9000");
        node_summary_set(&d, NODE_SUMMARY_DRIVER, id == 2 ? "" : id == 5 || id == 6 ? "550.1" : "535.183.01");
        summary_index_put(b, id, rig_text("node%d", (int)id), &d);
    }
    expect_table(8, "node          what    has    others\n"
                    "node5, node6  driver  550.1  the other 5: 535.183.01  [DRIVER-DIFFERS]\n"
                    "node3         mtu     1500   the other 7: 9000  [MTU-DIFFERS]\n");
    node_summary_set(&d, NODE_SUMMARY_MTU, "9000");
    summary_index_put(b, 3, "node3", &d); /* it was mended, and says so */
    summary_index_drop(b, 5);
    summary_index_drop(b, 6);
    summary_index_drop(b, 6);
    expect_table(8, "");
    cr_assert(!summary_index_has(b, 5) && summary_index_has(b, 3));
}

Test(node_summary, of_two_the_first_is_the_usual_one) {
    struct node_summary d = usual();
    summary_index_put(b, 1, "a", &d);
    node_summary_set(&d, NODE_SUMMARY_NETIF, "ib0");
    summary_index_put(b, 2, "b", &d);
    compare(2, NULL, 0);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "b");
    cr_assert_not(c.matters, "interfaces may differ");
    struct strbuf s = {0};
    node_summary_comparison_line(&c, &s);
    cr_assert_str_eq(strbuf_text(&s), "");
    c.rows[0].matters = true;
    node_summary_comparison_line(&c, &s);
    cr_assert_str_eq(strbuf_text(&s), "NETIF-DIFFERS: b has interface ib0, the other one: eth0");
    strbuf_fini(&s);
}

Test(node_summary, a_wall_clock_that_is_off_is_found_by_the_offset_of_the_other_clock) {
    struct node_summary d = *WITH(usual(), .has_clock = true);
    struct node_summary_clock clocks[4];
    const int64_t boot[4] = {0, 500, -3000, 77}; /* s: their monotonic clocks began at other times */
    for (int i = 0; i < 4; i++) {
        clocks[i] =
            (struct node_summary_clock){.known = true, .offset_ns = boot[i] * (int64_t)NS_PER_S, .error_ns = 1000};
        d.clock_ns = (1700000000 + boot[i] + (i == 2 ? 42 : 0)) * (int64_t)NS_PER_S + i * 1000;
        summary_index_put(b, (uint64_t)i + 1, rig_text("n%d", i), &d);
    }
    compare(4, clocks, INT64_C(1700000000) * (int64_t)NS_PER_S);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "n2");
    cr_assert_str_eq(c.rows[0].code, "CLOCK-OFFSET");
    cr_assert_str_eq(c.rows[0].value, "+42.0 s");
    cr_assert_eq(c.rows[0].n_others, 3);
    /* The leader's own is the odd one: the three that agree are not called odd. */
    compare(4, clocks, INT64_C(1700000100) * (int64_t)NS_PER_S);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "n2");
    /* Two that differ: the first, which is the leader in most jobs, is taken as right. */
    d.clock_ns = INT64_C(1700000542) * (int64_t)NS_PER_S;
    summary_index_put(b, 2, "n1", &d);
    compare(2, clocks, INT64_C(1700000000) * (int64_t)NS_PER_S);
    cr_assert(c.n == 1 && strcmp(c.rows[0].nodes, "n1") == 0 && strcmp(c.rows[0].value, "+42.0 s") == 0);
}

struct some { /* that many nodes with these facts; "": not known */
    uint32_t n;
    const char *domain, *imex, *stack, *workers;
};

/* The rows of a job with these nodes: "CODE nodes", in lines; those that matter with a "*". */
static char *codes_of(const struct some *groups, size_t n_groups, char **ret_others) {
    size_t n = 0;
    finish();
    begin();
    for (size_t g = 0; g < n_groups; g++) {
        struct node_summary d = usual();
        node_summary_set(&d, NODE_SUMMARY_DOMAIN, "%s", groups[g].domain);
        node_summary_set(&d, NODE_SUMMARY_IMEX, "%s", groups[g].imex);
        node_summary_set(&d, NODE_SUMMARY_STACK, "%s", groups[g].stack);
        node_summary_set(&d, NODE_SUMMARY_WORKERS, "%s", groups[g].workers);
        for (uint32_t i = 0; i < groups[g].n; i++) {
            const char *host = rig_text("%c%u", (char)('a' + g), i);
            summary_index_put(b, ++n, host, &d);
        }
    }
    struct strbuf s = {0};
    for (int again = 0; again < 2; again++) { /* a comparison leaves nothing behind */
        compare(n, NULL, 0);
        strbuf_clear(&s);
        for (uint32_t i = 0; i < c.n; i++)
            strbuf_printf(&s, "%s%s%s %s", i > 0 ? "; " : "", c.rows[i].code, c.rows[i].matters ? "*" : "",
                          c.rows[i].nodes);
    }
    *ret_others = c.n > 0 ? xasprintf("%s: %s", c.rows[0].value, c.rows[0].others) : xstrdup("");
    return strbuf_take(&s);
}

#define A "nvl-3f8e2a10-4c5d-4b6e-9f00-112233445566.1"
#define A2 "nvl-3f8e2a10-4c5d-4b6e-9f00-112233445566.2"
#define B "nvl-3f8e2a11-4c5d-4b6e-9f00-112233445566.1"
#define WELL "present", "8.0 MiB", "4"

Test(node_summary, each_fault_of_nvlink_domains_is_one_row) {
    static const struct {
        const char *name;
        struct some groups[3];
        const char *codes, *others; /* others: a part of the first row's */
    } cases[] = {
        {"HGX H100, GH200, GB10, nodes without GPUs", {{4, "", "", "", ""}}, "", ""},
        {"one rack", {{18, A, WELL}}, "", ""},
        {"two racks", {{16, A, WELL}, {16, B, WELL}}, "", ""},
        {"two racks, and one node of neither", {{16, A, WELL}, {15, B, WELL}, {1, "", "", "", ""}}, "", ""},
        {"one node in each of two racks",
         {{1, A, "missing", "8.0 MiB", "4"}, {1, B, "missing", "8.0 MiB", "4"}},
         "",
         ""},
        {"two nodes that run without it", {{2, A, "", "8.0 MiB", "4"}}, "", ""},
        {"9 trays of a rack", {{9, A, "present", "unlimited", "4"}}, "", ""},
        {"no channel on one",
         {{1, A, WELL}, {1, A, "missing", "8.0 MiB", "4"}},
         "IMEX-MISSING* b0",
         "missing: NCCL needs it for NVLink between nodes: load nvidia.ko with NVreg_CreateImexChannel0=1, "
         "or use the network with NCCL_MNNVL_ENABLE=0"},
        {"no channel in pods",
         {{2, A, "missing in this pod", "8.0 MiB", "4"}},
         "IMEX-MISSING* a0, a1",
         "missing in this pod: NCCL needs it for NVLink between nodes: give the pod a ComputeDomain"},
        {"10 trays of a rack",
         {{1, A, "present", "unlimited", "4"}, {9, A, WELL}},
         "STACK-UNLIMITED* a0",
         "unlimited: NCCL can crash with more than 36 ranks in one domain, here 40"},
        {"unequal racks",
         {{16, A, WELL}, {2, B, WELL}},
         "DOMAIN-UNEQUAL b0, b1",
         "2: 16 in another: NCCL's groups for send and receive become smaller"},
        {"a rack of two partitions",
         {{9, A2, WELL}, {9, A, WELL}},
         "DOMAIN-SPLIT a0, a1, a2, a3, a4, a5, a6, a7 and 1 more",
         "2: 9 nodes of the same rack are in clique 1: no NVLink between them"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *others = NULL;
        _cleanup_(freep) char *codes = codes_of(cases[i].groups, ARRAY_SIZE(cases[i].groups), &others);
        cr_assert_str_eq(codes, cases[i].codes, "%s: %s", cases[i].name, codes);
        cr_assert_eq(strncmp(others, cases[i].others, strlen(cases[i].others)), 0, "%s: %s", cases[i].name, others);
    }
}

static double seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Processor time that n nodes take, each with a value of its own; the least of several. */
static double seconds_for_unlike(size_t n) {
    double least = 1e9;
    for (int round = 0; round < 5; round++) {
        struct node_summary d = usual();
        finish();
        begin();
        double before = seconds();
        for (size_t i = 0; i < n; i++) {
            node_summary_set(&d, NODE_SUMMARY_KERNEL, "6.%zu", i);
            node_summary_set(&d, NODE_SUMMARY_DOMAIN, "nvl-%zu.1", i);
            summary_index_put(b, i + 1, "node", &d);
        }
        compare(n, NULL, 0);
        double took = seconds() - before;
        least = took < least ? took : least;
        cr_assert_eq(c.n, NODE_SUMMARY_ROWS_MAX);
        cr_assert_eq(c.n_left_out, n - 1 - NODE_SUMMARY_ROWS_MAX);
    }
    return least;
}

/* What every node has for itself may be many values; that costs no more than few do. */
Test(node_summary, unlike_nodes_are_compared_in_linear_time) {
    double few = seconds_for_unlike(1000), many = seconds_for_unlike(20000);
    cr_log_info("1000 nodes %.3f ms, 20000 nodes %.3f ms", few * 1e3, many * 1e3);
    cr_assert_lt(many, 100 * few, "20 times as many take %.0f times as long", many / few); /* squared: 400 */
}
