/* On the leader: compares the node summaries of all nodes before workers start. For muster check it
 * prints them. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/log.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "launcher/preflight/preflight_priv.h"

/* How long the leader waits for the node summaries of a group, from the group's beginning on. */
#define NODE_SUMMARIES_WAIT_NS (10 * NS_PER_S)
#define FAILURES_SAID_MAX 16 /* failures of other nodes that the leader reports for one group */

static void log_lines(enum log_level level, const char *text) {
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        log_line(level, "preflight: %.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

/* Reports the table once, and again if it has changed. */
static void log_table(struct preflight *p, const struct node_summary_comparison *c) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    node_summary_comparison_table(c, &text);
    uint64_t h = hash_text(HASH_BEGIN, strbuf_text(&text));
    if (text.len == 0 || h == p->said_hash)
        return;
    p->said_hash = h;
    enum log_level level = c->matters ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE;
    log_line(level, "preflight: the %u nodes of the group are not alike:", c->n_nodes);
    log_lines(level, strbuf_text(&text));
}

static void refuse_job(struct preflight *p, const char *what) {
    char reason[RDZV_REASON_MAX];
    if (p->check)
        (void)snprintf(reason, sizeof reason, "check failed: %.1800s (%.80s has printed all of it)",
                       what, p->config.host);
    else
        (void)snprintf(reason, sizeof reason, "preflight (--preflight=strict): %s", what);
    p->ops.refuse(p->arg, reason);
}

static void name_missing(struct preflight *p, const uint64_t *members, size_t n,
                         struct strbuf *to) {
    const struct group *g = p->ops.led(p->arg);
    uint32_t missing = 0;
    for (size_t i = 0; i < n; i++) {
        const struct node_info *info = group_node_info(g, members[i]);
        if (info == NULL || summary_index_has(p->index, members[i]))
            continue;
        if (missing++ < NODE_SUMMARY_NAMES_MAX)
            strbuf_printf(to, "%s%s", missing > 1 ? ", " : "", info->host);
    }
    if (missing > NODE_SUMMARY_NAMES_MAX)
        strbuf_printf(to, " and %u more", missing - NODE_SUMMARY_NAMES_MAX);
}

static void print_nodes(const struct preflight *p, const struct node_summary_comparison *c) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (p->config.spec->check_json)
        check_write_nodes_json(c, &p->failures, &text);
    else
        check_write_nodes(c, &p->failures, &text);
    check_print(&text);
}

static void compare(struct preflight *p, const uint64_t *members, size_t n) {
    const struct group *g = p->ops.led(p->arg);
    struct node_summary_clock *clocks = xcalloc(n, sizeof *clocks);
    for (size_t i = 0; i < n; i++)
        clocks[i].known =
            group_clock_offset(g, members[i], &clocks[i].offset_ns, &clocks[i].error_ns);
    struct node_summary_comparison c;
    int64_t clock_ns = clock_wall_offset_ns();
    summary_index_compare(p->index, members, n, clocks, clock_ns, &c);
    free(clocks);
    _cleanup_(strbuf_fini) struct strbuf why_not = {0};
    if (p->check)
        print_nodes(p, &c);
    else
        log_table(p, &c);
    if (p->strict)
        check_write_verdict(&c, &p->failures, &why_not);
    if (why_not.len > 0)
        refuse_job(p, strbuf_text(&why_not));
    else
        p->waits_for_verdict = false;
    node_summary_comparison_fini(&c);
}

/* False: the job has been ended. A check first shows the other nodes. */
static bool take_missing(struct preflight *p, const uint64_t *members, size_t n) {
    static struct node_summary none;
    _cleanup_(strbuf_fini) struct strbuf names = {0}, text = {0};
    name_missing(p, members, n, &names);
    strbuf_printf(&text, "DIGEST-MISSING: %s did not send its description within %.0f s",
                  strbuf_text(&names), (double)NODE_SUMMARIES_WAIT_NS / (double)NS_PER_S);
    if (p->check) {
        none.n_findings = 0;
        node_summary_add(&none, NODE_SUMMARY_FAIL, "DIGEST-MISSING",
                         "it did not send its description, or whom it reaches, within %.0f s",
                         (double)NODE_SUMMARIES_WAIT_NS / (double)NS_PER_S);
        check_failures_put(&p->failures, 0, strbuf_text(&names), &none);
        return true;
    }
    log_warning("preflight: %s", strbuf_text(&text));
    if (p->strict)
        refuse_job(p, strbuf_text(&text));
    return !p->strict;
}

/* Compares when all summaries are there, or when the wait is over. */
static void compare_if_due(struct preflight *p, bool time_is_up) {
    const struct group *g = p->ops.led(p->arg);
    size_t n = group_members(g, NULL, 0);
    if (n < 2 || p->compared || p->nets.local)
        return;
    if (summary_index_nodes(p->index) < n && !time_is_up)
        return; /* so that summaries that arrive one by one do not cause a comparison each */
    _cleanup_(freep) uint64_t *members = xcalloc(n, sizeof *members);
    (void)group_members(g, members, n);
    bool all = true;
    for (size_t i = 0; i < n && all; i++)
        all = summary_index_has(p->index, members[i]);
    if (!all && !time_is_up)
        return;
    p->compared = true;
    loop_timer_set(p->timer, TIME_NEVER);
    if (!all && !take_missing(p, members, n))
        return;
    compare(p, members, n);
    preflight_go_on(p);
}

void compare_time_up(struct preflight *p) {
    if (p->ops.led(p->arg) != NULL)
        compare_if_due(p, true);
}

/* Reports failures of other nodes, and which neighbours they can't reach. This node reports its own
 * failures itself. */
static void log_failures(struct preflight *p, const char *host, const struct node_summary *d) {
    for (uint32_t i = 0; i < d->n_findings; i++)
        if (d->findings[i].level == NODE_SUMMARY_FAIL && p->n_failures_said++ < FAILURES_SAID_MAX)
            log_warning("preflight: node %s reports: %s: %s", host, d->findings[i].code,
                        d->findings[i].text);
}

void preflight_received(struct preflight *p, uint64_t incarnation, const char *host,
                        const char *text) {
    if (p == NULL)
        return;
    _cleanup_(freep) struct node_summary *d = xcalloc(1, sizeof *d);
    struct err err = {0};
    if (node_summary_read(text, strlen(text), d, &err) < 0) {
        log_debug("preflight: the digest of %s: %s", host, err.text);
        return;
    }
    if (p->index == NULL)
        p->index = summary_index_new(random_u64());
    summary_index_put(p->index, incarnation, host, d);
    if (p->check)
        check_failures_put(&p->failures, incarnation, host, d);
    else if (incarnation != p->config.incarnation)
        log_failures(p, host, d);
    compare_if_due(p, false);
}

void preflight_forgotten(struct preflight *p, uint64_t incarnation) {
    if (p == NULL || p->index == NULL)
        return;
    summary_index_drop(p->index, incarnation);
    check_failures_drop(&p->failures, incarnation);
}

/* In a check, nodes send their summaries when a group forms, with the neighbours that they reach.
 * So those of the previous group don't count. */
static void forget_node_summaries(struct preflight *p) {
    const struct group *g = p->ops.led(p->arg);
    size_t n = group_members(g, NULL, 0);
    _cleanup_(freep) uint64_t *members = xcalloc(n + 1, sizeof *members);
    (void)group_members(g, members, n);
    for (size_t i = 0; i < n; i++)
        summary_index_drop(p->index, members[i]);
    check_failures_fini(&p->failures);
}

void preflight_forming(struct preflight *p) {
    if (p == NULL)
        return;
    if (p->index == NULL)
        p->index = summary_index_new(random_u64());
    if (p->check)
        forget_node_summaries(p);
    p->compared = false;
    p->n_failures_said = 0;
    loop_timer_set(p->timer, clock_now_ns() + NODE_SUMMARIES_WAIT_NS);
    compare_if_due(p, false);
}

void compare_end(struct preflight *p) {
    summary_index_free(p->index);
    check_failures_fini(&p->failures);
}
