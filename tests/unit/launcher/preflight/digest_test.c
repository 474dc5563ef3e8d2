#include "launcher/preflight/digest.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct digest usual(void) {
    struct digest d = {0};
    digest_set(&d, DIGEST_GPUS, "8 x NVIDIA H100 80GB HBM3");
    digest_set(&d, DIGEST_DRIVER, "535.183.01");
    digest_set(&d, DIGEST_MTU, "9000");
    digest_set(&d, DIGEST_NETIF, "eth0");
    return d;
}

static char *table_of(struct digest_book *b, size_t n, uint32_t *ret_n) {
    uint64_t ids[64];
    for (size_t i = 0; i < n; i++)
        ids[i] = i + 1;
    struct digest_comparison c;
    struct strbuf s = {0};
    digest_book_compare(b, ids, n, NULL, 0, &c);
    digest_comparison_table(&c, &s);
    if (ret_n != NULL)
        *ret_n = c.n;
    digest_comparison_fini(&c);
    return strbuf_take(&s);
}

Test(digest, what_an_evil_node_says_is_text) {
    static const char evil[] =
        "{\"facts\":{\"mtu\":\"\\u001b[2J\\n9000\"},\"findings\":[{\"level\":\"fail\",\"code\":\"A\\u009bB\","
        "\"text\":\"x\\u001b]0;y\\u0007\\nmuster: all is well\"}]}";
    static struct digest d;
    struct err err = {0};
    cr_assert_eq(digest_read(evil, sizeof evil - 1, &d, &err), 0, "%s", err.text);
    cr_assert_str_eq(d.values[DIGEST_MTU], "?[2J?9000");
    cr_assert_str_eq(d.findings[0].code, "A??B");
    cr_assert_str_eq(d.findings[0].text, "x?]0;y??muster: all is well");
}

Test(digest, comes_back_from_json_as_it_was) {
    static struct digest in, out;
    in = usual();
    in.has_clock = true;
    in.clock_ns = -INT64_C(1795276965123456789);
    digest_set(&in, DIGEST_NAME, "a \"b\"\n\x01 \xff");
    digest_add(&in, DIGEST_FAIL, "GPU-LOST", "GPU %d is lost", 3);
    digest_add(&in, DIGEST_OK, "FINE", "not told");
    digest_add(&in, DIGEST_WARN, "SHM-SMALL", "/dev/shm has 64 MiB");
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    digest_write(&in, 8192, &s);
    struct err err = {0};
    cr_assert_eq(digest_read(strbuf_text(&s), s.len, &out, &err), 0, "%s", err.text);
    cr_assert(memcmp(in.values, out.values, sizeof in.values) == 0);
    cr_assert(out.has_clock && out.clock_ns == in.clock_ns);
    cr_assert_eq(out.n_findings, 2, "what is fine is not sent");
    cr_assert_eq(out.findings[0].level, DIGEST_FAIL);
    cr_assert_str_eq(out.findings[0].text, "GPU 3 is lost");
    cr_assert_str_eq(out.findings[1].code, "SHM-SMALL");
    cr_assert_str_eq(out.values[DIGEST_NAME], "a \"b\"?? \xef\xbf\xbd");
    cr_assert_eq(digest_worst(&in), DIGEST_FAIL);
}

Test(digest, stays_below_its_bound_and_drops_findings_before_facts) {
    static struct digest d, out;
    d = usual();
    for (int i = 0; i < 2 * DIGEST_FINDINGS_MAX; i++)
        digest_add(&d, DIGEST_WARN, "X", "%0*d", DIGEST_TEXT_MAX - 1, i);
    cr_assert_eq(d.n_findings, DIGEST_FINDINGS_MAX);
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    digest_write(&d, 1024, &s);
    cr_assert_lt(s.len, 1024);
    cr_assert_eq(digest_read(strbuf_text(&s), s.len, &out, NULL), 0);
    cr_assert_str_eq(out.values[DIGEST_MTU], "9000");
    cr_assert(out.n_findings > 0 && out.n_findings < DIGEST_FINDINGS_MAX);
    for (uint32_t f = 0; f < DIGEST_FACT_COUNT; f++)
        memset(d.values[f], 1, DIGEST_VALUE_MAX - 1); /* six bytes each */
    digest_write(&d, 8192, &s);
    cr_assert_lt(s.len, 8192);
    cr_assert_eq(digest_read(strbuf_text(&s), s.len, &out, NULL), 0);
}

Test(digest, refuses_what_is_none) {
    static const char *const texts[] = {
        "", "x", "[]", "{}", "{\"facts\":{}}", "{\"facts\":[],\"findings\":[]}",
        "{\"facts\":{\"mtu\":1500},\"findings\":[]}",
        "{\"facts\":{},\"findings\":[1]}",
        "{\"facts\":{},\"findings\":[{\"level\":\"bad\",\"code\":\"A\",\"text\":\"b\"}]}",
        "{\"facts\":{},\"clock_ns\":\"1x\",\"findings\":[]}",
        "{\"facts\":{},\"clock_ns\":\"99999999999999999999\",\"findings\":[]}",
    };
    static struct digest d;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        cr_assert_eq(digest_read(texts[i], strlen(texts[i]), &d, NULL), -EINVAL, "%s", texts[i]);
    static const char newer[] = "{\"facts\":{\"mtu\":\"9000\",\"colour\":\"red\"},\"findings\":[]}";
    cr_assert_eq(digest_read(newer, strlen(newer), &d, NULL), 0, "a fact that is not known here");
    cr_assert_str_eq(d.values[DIGEST_MTU], "9000");
}

/* A node with many adapters that are down must not hide that a neighbour is not reached. */
Test(digest, a_failure_always_finds_room) {
    static struct digest d;
    digest_add(&d, DIGEST_OK, "SHM", "fine");
    for (int i = 0; i < 30; i++)
        digest_add(&d, DIGEST_WARN, "HCA-DOWN", "adapter %d", i);
    cr_assert_eq(d.n_findings, DIGEST_FINDINGS_MAX);
    cr_assert_str_eq(d.findings[0].text, "adapter 15", "%s", d.findings[0].text);
    digest_add(&d, DIGEST_OK, "LATE", "fine");
    digest_add(&d, DIGEST_FAIL, "RING-BLOCKED", "first");
    cr_assert_eq(digest_worst(&d), DIGEST_FAIL);
    for (int i = 0; i < 30; i++)
        digest_add(&d, DIGEST_FAIL, "GPU-LOST", "GPU %d", i);
    cr_assert_eq(d.n_findings, DIGEST_FINDINGS_MAX);
    uint32_t blocked = 0;
    for (uint32_t i = 0; i < d.n_findings; i++)
        blocked += strcmp(d.findings[i].code, "RING-BLOCKED") == 0;
    cr_assert_eq(blocked, 1);
}

/* A disk's room is each node's own, and would be as many values as there are nodes. */
Test(digest, what_every_node_has_for_itself_is_told_and_not_compared) {
    static struct digest d, back;
    struct digest_book *b = digest_book_new(7);
    for (uint64_t id = 1; id <= 3; id++) {
        digest_set(&d, DIGEST_DISK, "%d GiB", (int)id);
        digest_set(&d, DIGEST_PROCESSES, "%d", (int)id);
        digest_book_put(b, id, "n", &d);
    }
    cr_assert_eq(digest_book_values(b), 0);
    _cleanup_(freep) char *table = table_of(b, 3, NULL);
    cr_assert_str_eq(table, "");
    digest_book_free(b);
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    digest_write(&d, 8192, &s);
    cr_assert_eq(digest_read(strbuf_text(&s), s.len, &back, NULL), 0);
    cr_assert_str_eq(back.values[DIGEST_DISK], "3 GiB");
}

Test(digest, equal_nodes_make_no_table) {
    struct digest_book *b = digest_book_new(7);
    struct digest d = usual();
    for (uint64_t id = 1; id <= 4; id++)
        digest_book_put(b, id, "h", &d);
    uint32_t n;
    _cleanup_(freep) char *table = table_of(b, 4, &n);
    cr_assert_str_eq(table, "");
    cr_assert_eq(n, 0);
    digest_book_free(b);
}

Test(digest, the_odd_node_is_named_with_what_it_and_the_others_have) {
    struct digest_book *b = digest_book_new(7);
    struct digest d = usual();
    char host[16];
    for (uint64_t id = 1; id <= 8; id++) {
        (void)snprintf(host, sizeof host, "node%d", (int)id);
        digest_set(&d, DIGEST_MTU, id == 3 ? "1500" : "9000");
        digest_set(&d, DIGEST_DRIVER, id == 2 ? "" : id == 5 || id == 6 ? "550.1" : "535.183.01");
        digest_book_put(b, id, host, &d);
    }
    _cleanup_(freep) char *table = table_of(b, 8, NULL);
    cr_assert_str_eq(table, "node          what    has    others\n"
                            "node5, node6  driver  550.1  the other 5: 535.183.01  [DRIVER-DIFFERS]\n"
                            "node3         mtu     1500   the other 7: 9000  [MTU-DIFFERS]\n");
    digest_set(&d, DIGEST_MTU, "9000");
    digest_book_put(b, 3, "node3", &d); /* it was mended, and says so */
    digest_book_drop(b, 5);
    digest_book_drop(b, 6);
    digest_book_drop(b, 6);
    _cleanup_(freep) char *after = table_of(b, 8, NULL);
    cr_assert_str_eq(after, "");
    cr_assert(!digest_book_has(b, 5) && digest_book_has(b, 3));
    digest_book_free(b);
}

Test(digest, of_two_the_first_is_the_usual_one) {
    struct digest_book *b = digest_book_new(7);
    struct digest d = usual();
    digest_book_put(b, 1, "a", &d);
    digest_set(&d, DIGEST_NETIF, "ib0");
    digest_book_put(b, 2, "b", &d);
    struct digest_comparison c;
    digest_book_compare(b, (uint64_t[]){1, 2}, 2, NULL, 0, &c);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "b");
    cr_assert_not(c.matters, "interfaces may differ");
    struct strbuf s = {0};
    digest_comparison_line(&c, true, &s);
    cr_assert_str_eq(strbuf_text(&s), "");
    digest_comparison_line(&c, false, &s);
    cr_assert_str_eq(strbuf_text(&s), "NETIF-DIFFERS: b has interface ib0, the other one: eth0");
    strbuf_fini(&s);
    digest_comparison_fini(&c);
    digest_book_free(b);
}

Test(digest, a_wall_clock_that_is_off_is_found_by_the_offset_of_the_other_clock) {
    struct digest_book *b = digest_book_new(7);
    struct digest d = usual();
    d.has_clock = true;
    struct digest_clock clocks[4];
    const int64_t boot[4] = {0, 500, -3000, 77}; /* s: their monotonic clocks began at other times */
    for (int i = 0; i < 4; i++) {
        clocks[i] = (struct digest_clock){.known = true, .offset_ns = boot[i] * (int64_t)NS_PER_S, .error_ns = 1000};
        d.clock_ns = (1700000000 + boot[i] + (i == 2 ? 42 : 0)) * (int64_t)NS_PER_S + i * 1000;
        char host[8];
        (void)snprintf(host, sizeof host, "n%d", i);
        digest_book_put(b, (uint64_t)i + 1, host, &d);
    }
    struct digest_comparison c;
    uint64_t ids[] = {1, 2, 3, 4};
    digest_book_compare(b, ids, 4, clocks, INT64_C(1700000000) * (int64_t)NS_PER_S, &c);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "n2");
    cr_assert_str_eq(c.rows[0].code, "CLOCK-OFFSET");
    cr_assert_str_eq(c.rows[0].value, "+42.0 s");
    cr_assert_eq(c.rows[0].n_others, 3);
    digest_comparison_fini(&c);
    /* The leader's own is the odd one: the three that agree are not called odd. */
    digest_book_compare(b, ids, 4, clocks, INT64_C(1700000100) * (int64_t)NS_PER_S, &c);
    cr_assert_eq(c.n, 1);
    cr_assert_str_eq(c.rows[0].nodes, "n2");
    digest_comparison_fini(&c);
    digest_book_free(b);
}

static double seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

Test(digest, ten_thousand_equal_nodes_share_their_values) {
    enum { N = 10000 };
    struct digest_book *b = digest_book_new(7);
    struct digest d = usual();
    uint64_t *ids = xcalloc(N, sizeof *ids);
    for (size_t i = 0; i < N; i++) {
        ids[i] = i + 1;
        digest_set(&d, DIGEST_MTU, i == 4711 ? "1500" : "9000");
        digest_book_put(b, i + 1, "node", &d);
    }
    cr_assert_eq(digest_book_values(b), 5);
    struct digest_comparison c;
    digest_book_compare(b, ids, N, NULL, 0, &c);
    cr_assert(c.n == 1 && c.rows[0].n_nodes == 1 && c.rows[0].n_others == N - 1);
    digest_comparison_fini(&c);
    digest_book_free(b);
    free(ids);
}

/* Processor time that n nodes take, each with a value of its own; the least of several. */
static double seconds_for_unlike(size_t n) {
    double least = 1e9;
    uint64_t *ids = xcalloc(n, sizeof *ids);
    for (int round = 0; round < 5; round++) {
        struct digest_book *b = digest_book_new(7);
        struct digest d = usual();
        double before = seconds();
        for (size_t i = 0; i < n; i++) {
            ids[i] = i + 1;
            digest_set(&d, DIGEST_KERNEL, "6.%zu", i);
            digest_book_put(b, i + 1, "node", &d);
        }
        struct digest_comparison c;
        digest_book_compare(b, ids, n, NULL, 0, &c);
        double took = seconds() - before;
        least = took < least ? took : least;
        cr_assert_eq(c.n, DIGEST_ROWS_MAX);
        cr_assert_eq(c.n_left_out, n - 1 - DIGEST_ROWS_MAX);
        digest_comparison_fini(&c);
        digest_book_free(b);
    }
    free(ids);
    return least;
}

/* What every node has for itself may be many values; that costs no more than few do. */
Test(digest, unlike_nodes_are_compared_in_linear_time) {
    double few = seconds_for_unlike(1000), many = seconds_for_unlike(20000);
    cr_log_info("1000 nodes %.3f ms, 20000 nodes %.3f ms", few * 1e3, many * 1e3);
    cr_assert_lt(many, 100 * few, "20 times as many take %.0f times as long", many / few); /* squared: 400 */
}
