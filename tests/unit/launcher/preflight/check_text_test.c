#include "launcher/preflight/check_text.h"

#include "rig/unit.h"

static struct node_summary_comparison cmp;
static struct strbuf said;

static void fail(const char *host, const char *code, const char *text) {
    static struct node_summary_finding all[2 * NODE_SUMMARY_FAILURES_MAX];
    static uint32_t n;
    static struct node_summary d;
    d.n_findings = 0;
    all[n] = *node_summary_add(&d, NODE_SUMMARY_FAIL, code, "%s", text);
    node_summary_comparison_fail(&cmp, host, &all[n++]);
}

static void add_row(bool matters) {
    cmp.rows[cmp.n++] = (struct node_summary_row){.what = matters ? "mtu" : "interface",
                                                  .code = matters ? "MTU-DIFFERS" : "NETIF-DIFFERS",
                                                  .matters = matters,
                                                  .n_nodes = 1,
                                                  .n_others = 3,
                                                  .nodes = xstrdup("host3"),
                                                  .value = xstrdup(matters ? "1400" : "br7"),
                                                  .others = xstrdup(matters ? "1500" : "eth0")};
    cmp.matters = cmp.matters || matters;
}

static void begin(void) {
    cmp = (struct node_summary_comparison){.n_nodes = 4, .rows = xcalloc(2, sizeof(struct node_summary_row))};
}

static void finish(void) {
    node_summary_comparison_fini(&cmp);
    strbuf_fini(&said);
}

static const char *verdict(void) {
    strbuf_clear(&said);
    check_write_verdict(&cmp, &said);
    return strbuf_text(&said);
}

static const char *nodes(void) {
    strbuf_clear(&said);
    check_write_nodes(&cmp, &said);
    return strbuf_text(&said);
}

Test(check_text, nothing_failed, .init = begin, .fini = finish) {
    cr_assert_str_eq(nodes(), "the 4 nodes are alike\n");
    cr_assert_str_eq(verdict(), "");
    add_row(false);
    cr_assert_str_eq(verdict(), "", "it does no harm");
}

Test(check_text, failures_are_lined_up_below_the_differences, .init = begin, .fini = finish) {
    add_row(true);
    fail("host2", "DISK-LOW", "8 MiB are free");
    fail("host10", "RING-BLOCKED", "nothing listens there");
    cr_assert_str_eq(nodes(), "node   what  has   others\n"
                              "host3  mtu   1400  the other 3: 1500  [MTU-DIFFERS]\n"
                              "fail  host2   DISK-LOW      8 MiB are free\n"
                              "fail  host10  RING-BLOCKED  nothing listens there\n");
    cr_assert_str_eq(verdict(),
                     "MTU-DIFFERS: host3 has mtu 1400, the other 3: 1500; DISK-LOW: host2; RING-BLOCKED: host10");
}

/* Several failures with one code on one node, and more nodes than a verdict names. */
Test(check_text, a_verdict_names_a_node_once_and_few_of_many, .init = begin, .fini = finish) {
    static const char *const hosts[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10"};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        fail(hosts[i], "GPU-LOST", "GPU 1");
        fail(hosts[i], "GPU-LOST", "GPU 2");
    }
    cr_assert_str_eq(verdict(), "GPU-LOST: n1, n2, n3, n4, n5, n6, n7, n8 and 2 more");
}

Test(check_text, there_is_a_bound, .init = begin, .fini = finish) {
    for (int i = 0; i < NODE_SUMMARY_FAILURES_MAX + 5; i++)
        fail("n", "DISK-LOW", "x");
    cr_assert_eq(cmp.n_failures, NODE_SUMMARY_FAILURES_MAX);
    cr_assert_eq(cmp.n_failures_left_out, 5);
    const char *end = strstr(nodes(), "… and");
    cr_assert_str_eq(end, "… and 5 more\n");
}

Test(check_text, json_is_one_line, .init = begin, .fini = finish) {
    add_row(true);
    fail("host2", "DISK-LOW", "a \"b\"\n");
    check_write_nodes_json(&cmp, &said);
    cr_assert_str_eq(strbuf_text(&said),
                     "{\"nodes\":4,\"differences\":[{\"code\":\"MTU-DIFFERS\",\"what\":\"mtu\",\"nodes\":\"host3\","
                     "\"n_nodes\":1,\"value\":\"1400\",\"others\":\"1500\",\"n_others\":3,\"matters\":true}],"
                     "\"failures\":[{\"node\":\"host2\",\"code\":\"DISK-LOW\",\"text\":\"a \\\"b\\\"?\"}]}\n");
}

Test(check_text, the_worst_of_a_node_stands_last, .init = begin, .fini = finish) {
    static struct node_summary d;
    node_summary_add(&d, NODE_SUMMARY_FAIL, "GPU-LOST", "GPU 3");
    node_summary_add(&d, NODE_SUMMARY_OK, "SHM", "fine");
    node_summary_add(&d, NODE_SUMMARY_WARN, "NAME-LOOPBACK", "hm");
    check_write_node(&d, NULL, &said);
    cr_assert_str_eq(strbuf_text(&said), "ok    SHM            fine\n"
                                         "warn  NAME-LOOPBACK  hm\n"
                                         "fail  GPU-LOST       GPU 3\n");
    strbuf_clear(&said);
    check_write_node(&d, "host2", &said);
    assert_has(strbuf_text(&said), "node host2\nok    SHM ");
}
