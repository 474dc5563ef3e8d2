#include "launcher/preflight/preflight_io.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/net/addr.h"
#include "io/net/resolver.h"
#include "launcher/preflight/check_text.h"
#include "launcher/preflight/node_summary_io.h"
#include "launcher/preflight/ring_probe_io.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/nvml/nvml_io.h"

#define CLOCK_LOOK_NS (2 * NS_PER_S)
/* A smaller step is not reported by a comparison. */
#define CLOCK_STEP_NS (NODE_SUMMARY_CLOCK_MAX_NS / 4)
/* How long the leader waits for the node summaries of a group, from the group's beginning on. */
#define NODE_SUMMARIES_WAIT_NS (10 * NS_PER_S)
#define FAILURES_SAID_MAX 16 /* failures of other nodes that the leader reports for one group */

struct preflight {
    struct loop *loop;
    struct preflight_config config;
    struct preflight_ops ops;
    void *arg;
    bool strict;
    bool check; /* muster check: strict, but failures are reported to the leader, which ends it */

    /* this node */
    struct node_discovery *discovery; /* the agent's, or `way` if it has none; NULL: not begun */
    struct node_discovery *way;       /* owned; the route to the leader */
    char leader[ADDR_TEXT_MAX];       /* the address to which it asks for the route */
    bool lent;                        /* for a group */
    bool chosen; /* the interfaces, which do not change while the agent runs, */
    /* except that a faster network that failed once is not tried again */
    struct node_nets nets;
    struct node_summary_gathering *gathering;
    struct node_summary node_summary;
    uint64_t gather_begun_ns; /* 0: not begun */
    struct addr own_addr;     /* of this node's name, if /etc/hosts has it */
    size_t n_own_addrs;
    bool gathered;
    struct loop_timer *clock_timer; /* the next look whether the wall clock was set */

    /* the group for which this node prepares; none: generation 0.0 */
    struct generation generation;
    bool waits_for_node_summary, waits_for_verdict;
    unsigned n_probes;
    /* The ways that reach all neighbours that have answered so far; enum ring_way. */
    uint32_t reachability;
    struct ring_probe *probes[RDZV_NEIGHBOURS_MAX];
    char blocked[RDZV_REASON_MAX / 2];
    bool reported; /* check: reported to this group's leader */
    bool printed;  /* check: this node's summary was printed */

    /* the leader's data */
    struct summary_index *index;
    struct loop_timer *timer; /* the deadline for missing node summaries */
    bool compared;            /* the current group's summaries were compared */
    uint64_t said_hash;       /* hash of the last table that was reported */
    unsigned n_failures_said;
};

/* It has nothing to compare and no neighbours: only its GPUs make a check worthwhile. */
static bool is_only_node(const struct job_spec *spec) { return spec->rdzv.max_nodes == 1; }

/* Continues with the group if nothing is left to wait for. */
static void go_on(struct preflight *p);

static void check_print(const struct strbuf *text) {
    (void)fputs(strbuf_text(text), stdout);
    (void)fflush(stdout);
}

/* Prints once: with the neighbours that it reaches, or at the end without a group. */
static void print_node(struct preflight *p) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (!p->check || !p->gathered || p->printed)
        return;
    p->printed = true;
    if (p->config.spec->check == JOB_CHECK_JSON)
        check_write_node_json(&p->node_summary, p->config.host, &text);
    else
        check_write_node(&p->node_summary, p->config.host, &text);
    check_print(&text);
}

/* ---- this node's node summary ---- */

/* Sends findings from the nth on: the earlier ones have been sent. */
static void send_node_summary(struct preflight *p, uint32_t first) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (p->node_summary.has_clock)
        p->node_summary.clock_ns = clock_wall_offset_ns();
    struct node_summary d = p->node_summary;
    d.n_findings -= first;
    memmove(d.findings, d.findings + first, d.n_findings * sizeof *d.findings);
    node_summary_write(&d, RDZV_NODE_SUMMARY_MAX, &text);
    p->ops.send(p->arg, strbuf_text(&text));
}

/* Nodes wait, and jobs run, for days. What this node has said of its clock must not count against
 * it in a later group, when the clock was set meanwhile. */
static void on_clock_timer(void *arg) {
    struct preflight *p = arg;
    int64_t by_ns = clock_wall_offset_ns() - p->node_summary.clock_ns;
    if (by_ns > (int64_t)CLOCK_STEP_NS || by_ns < -(int64_t)CLOCK_STEP_NS) {
        log_info("the wall clock was set by %+.1f s", (double)by_ns / (double)NS_PER_S);
        send_node_summary(p, p->node_summary.n_findings);
    }
    loop_timer_set(p->clock_timer, clock_now_ns() + CLOCK_LOOK_NS);
}

static void add_finding(struct preflight *p, const struct node_summary_finding *f) {
    struct node_summary_finding *added =
        node_summary_add(&p->node_summary, f->level, f->code, "%s", f->text);
    if (added != NULL)
        added->about = f->about;
}

static void on_node_summary(void *arg, const struct node_summary *d, bool whole) {
    struct preflight *p = arg;
    p->gathering = NULL;
    p->gathered = true;
    struct node_summary before = p->node_summary;
    p->node_summary = *d;
    for (uint32_t i = 0; i < before.n_findings; i++) /* neighbours that were blocked meanwhile */
        add_finding(p, &before.findings[i]);
    if (!whole)
        node_summary_add(&p->node_summary, NODE_SUMMARY_WARN, "DISCOVERY",
                         "this node could not be examined within %.0f s",
                         (double)NODE_SUMMARY_GATHER_NS / (double)NS_PER_S);
    for (uint32_t i = 0; i < d->n_findings && !p->check; i++) {
        /* The rest is about other nodes, or is logged when workers start. */
        if (is_only_node(p->config.spec) && !node_summary_is_gpu_health(d->findings[i].code))
            continue;
        log_line(d->findings[i].level == NODE_SUMMARY_FAIL   ? LOG_LEVEL_WARNING
                 : d->findings[i].level == NODE_SUMMARY_WARN ? LOG_LEVEL_INFO
                                                             : LOG_LEVEL_DEBUG,
                 "preflight: %s: %s", d->findings[i].code, d->findings[i].text);
    }
    if (!p->check)
        send_node_summary(p, 0);
    if (!p->check && p->node_summary.has_clock)
        loop_timer_set(p->clock_timer, clock_now_ns() + CLOCK_LOOK_NS);
    p->waits_for_node_summary = false;
    go_on(p);
}

const char *preflight_fact(const struct preflight *p, enum node_summary_fact f) {
    return p == NULL ? "" : p->node_summary.values[f];
}

static void not_gathered(struct preflight *p, const char *why) {
    log_warning("preflight: can't examine this node: %s", why);
    node_summary_add(&p->node_summary, NODE_SUMMARY_FAIL, "DISCOVERY",
                     "this node could not be examined: %s", why);
    p->gathered = true;
    p->waits_for_node_summary = false;
    go_on(p);
}

static void on_devices(void *arg) {
    struct preflight *p = arg;
    const struct job_spec *spec = p->config.spec;
    struct node_summary_config config = {
        .discovery = p->discovery,
        .log_dir = p->check ? spec->check_disk : spec->log_dir,
        .netif = p->nets.nets[RING_NET].netif,
        .fast_netif = p->nets.nets[RING_FAST].netif,
        .n_workers = p->check ? 0 : spec->nproc,
        .mnnvl = job_worker_value(spec, p->config.envp, "NCCL_MNNVL_ENABLE"),
        .host = p->config.host,
        .own_addrs = &p->own_addr,
        .n_own_addrs = p->n_own_addrs,
        .begun_ns = p->gather_begun_ns};
    int r = node_summary_start(p->loop, &config, on_node_summary, p, &p->gathering);
    if (r < 0)
        not_gathered(p, strerror(-r));
}

/* Begins the summary, from the result of the discovery. */
static void gather(struct preflight *p) {
    p->gather_begun_ns = clock_now_ns();
    p->n_own_addrs = hosts_file_find("/etc", p->config.host, 0, &p->own_addr);
    if (p->discovery != NULL)
        node_discovery_wait(p->discovery, on_devices, p);
    else
        not_gathered(p, "no process could be made");
}

/* ---- JOIN ---- */

static void on_netifs(void *arg) {
    struct preflight *p = arg;
    if (p->chosen || !node_discovery_found(p->discovery)->has_netifs ||
        !node_discovery_found(p->way)->has_netifs)
        return;
    node_nets_choose(p->config.spec, p->config.envp, p->leader, p->discovery, p->way, p->nets.nets);
    p->chosen = true;
    p->ops.can_join(p->arg);
}

/* If the agent discovers nothing itself, one discovery finds interfaces, route and devices. */
static int start_discovery(struct preflight *p, struct err *err) {
    struct node_discovery_config config = {.route_to = p->leader};
    if (p->config.discovery == NULL) {
        const struct job_spec *spec = p->config.spec;
        bool awaited = spec->nccl_env > NCCL_ENV_OFF && spec->check == JOB_CHECK_OFF; /* if lent */
        config.what = node_summary_needs(discover_has_gpus());
        config.netifs_first = config.facts = config.nvml = true;
        config.in_background = !awaited;
        config.deadline_ns = awaited ? NODE_DISCOVERY_NS : NODE_SUMMARY_DISCOVERY_NS;
        config.envp = p->config.envp;
        config.set = spec->env;
        config.python = p->config.python;
    }
    int r = node_discovery_new(p->loop, &config, &p->way, err);
    p->discovery = p->config.discovery != NULL ? p->config.discovery : p->way;
    return r;
}

static void look_for_nets(struct preflight *p, const char *leader) {
    struct err err = {0};
    p->nets.local = leader == NULL;
    (void)snprintf(p->leader, sizeof p->leader, "%s", leader != NULL ? leader : "");
    if (p->nets.local) {
        p->chosen = true;
        p->discovery = p->config.discovery;
    } else if (start_discovery(p, &err) < 0) {
        log_info("preflight: which interface leads to %s is not known: %s", p->leader, err.text);
        p->chosen = true;
    } else {
        node_discovery_wait_netifs(p->discovery, on_netifs, p);
        if (p->way != p->discovery)
            node_discovery_wait_netifs(p->way, on_netifs, p);
    }
}

bool preflight_joining(struct preflight *p, const char *leader, struct node_info *info) {
    if (p == NULL)
        return true;
    if (!p->chosen && p->way == NULL)
        look_for_nets(p, leader);
    if (!p->chosen)
        return false;
    if (p->gather_begun_ns == 0 && (!p->nets.local || is_only_node(p->config.spec)))
        gather(p);
    memcpy(info->nets, p->nets.nets, sizeof info->nets);
    return true;
}

struct node_discovery *preflight_lend(struct preflight *p, const char *leader) {
    if (p == NULL || p->way == NULL || p->way != p->discovery || p->lent ||
        p->gather_begun_ns == 0 || strcmp(leader, p->leader) != 0 ||
        clock_now_ns() - p->gather_begun_ns > PREFLIGHT_FRESH_NS)
        return NULL;
    p->lent = true;
    return p->way;
}

/* ---- a group forms ---- */

/* If a neighbour is alive, but was not reached by the faster network, that network is not tried
 * again: it would delay each restart by RING_FAST_NS. */
static void take_reachability(struct preflight *p, const struct ring_answer *answer) {
    p->reachability &= answer->reachability == 0 && answer->result == RING_SKIPPED
                           ? 0
                           : answer->reachability | RING_WAY_TRIED;
    if (!answer->fast_failed)
        return;
    log_info("preflight: %s", answer->text);
    p->nets.nets[RING_FAST] = (struct rdzv_net){0};
}

static void on_ring(struct preflight *p, unsigned i, const struct ring_answer *answer) {
    p->probes[i] = NULL;
    p->n_probes--;
    take_reachability(p, answer);
    if (answer->result == RING_BLOCKED || answer->result == RING_OTHER_FAMILY) {
        const char *code = answer->result == RING_BLOCKED ? "RING-BLOCKED" : "RING-OTHER-FAMILY";
        size_t len = strlen(p->blocked);
        if (!p->check)
            log_warning("preflight: %s: %s", code, answer->text);
        (void)snprintf(p->blocked + len, sizeof p->blocked - len, "%s%s: %.400s",
                       len > 0 ? "; " : "", code, answer->text);
        struct node_summary_finding f = {.level = NODE_SUMMARY_FAIL,
                                         .about = NODE_SUMMARY_OF_NEIGHBOUR};
        (void)snprintf(f.code, sizeof f.code, "%s", code);
        utf8_copy(f.text, sizeof f.text, answer->text);
        uint32_t before = p->node_summary.n_findings;
        add_finding(p, &f);
        if (p->gathered && !p->check)
            send_node_summary(p, before < p->node_summary.n_findings ? before : 0);
    }
    go_on(p);
}

static void on_next(void *arg, const struct ring_answer *answer) { on_ring(arg, 0, answer); }
static void on_before(void *arg, const struct ring_answer *answer) { on_ring(arg, 1, answer); }

static void probe_ring(struct preflight *p, const struct form *form) {
    static ring_fn *const fns[RDZV_NEIGHBOURS_MAX] = {on_next, on_before};
    struct ring_own own = {
        .host = p->config.host,
        .netifs = node_discovery_found(p->discovery)->netifs,
        .nets = p->nets.nets,
        .auth = p->config.auth,
    };
    p->reachability = UINT32_MAX;
    p->n_probes = form->n_neighbours;
    for (uint32_t i = 0; i < form->n_neighbours; i++)
        p->probes[i] = ring_probe_start(p->loop, &own, &form->neighbours[i], fns[i], p);
}

void preflight_cancel(struct preflight *p) {
    if (p == NULL)
        return;
    for (unsigned i = 0; i < RDZV_NEIGHBOURS_MAX; i++)
        ring_probe_free(TAKE_PTR(p->probes[i]));
    p->n_probes = 0;
    p->generation = (struct generation){0, 0};
    p->waits_for_node_summary = p->waits_for_verdict = p->reported = false;
    p->blocked[0] = '\0';
}

/* Drops the findings about neighbours, because they belong to the previous group. */
static void forget_ring(struct preflight *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->node_summary.n_findings; i++)
        if (p->node_summary.findings[i].about != NODE_SUMMARY_OF_NEIGHBOUR)
            p->node_summary.findings[n++] = p->node_summary.findings[i];
    p->node_summary.n_findings = n;
}

/* With strict: whether, and why, this node must not take part. In a check the leader judges. */
static bool is_refused(const struct preflight *p, char why[RDZV_REASON_MAX]) {
    if (!p->strict || p->check)
        return false;
    (void)snprintf(why, RDZV_REASON_MAX, "preflight (--preflight=strict): %s", p->blocked);
    bool refused = p->blocked[0] != '\0';
    for (uint32_t i = 0; i < p->node_summary.n_findings && !refused; i++) {
        const struct node_summary_finding *f = &p->node_summary.findings[i];
        refused = f->level == NODE_SUMMARY_FAIL;
        if (refused)
            (void)snprintf(why, RDZV_REASON_MAX, "preflight (--preflight=strict): %s: %s", f->code,
                           f->text);
    }
    return refused;
}

static void go_on(struct preflight *p) {
    struct generation g = p->generation;
    if (generation_is_none(g) || p->n_probes > 0 || p->waits_for_node_summary)
        return;
    if (p->check && !p->reported) {
        p->reported = true;
        print_node(p);
        send_node_summary(p, 0);
    }
    if (p->waits_for_verdict)
        return;
    char why[RDZV_REASON_MAX];
    bool refused = is_refused(p, why);
    p->generation = (struct generation){0, 0};
    p->ops.prepared(p->arg, g, p->reachability, refused ? why : NULL);
}

bool preflight_prepare(struct preflight *p, struct generation g, const struct form *form) {
    if (p == NULL)
        return false;
    bool alone = form->n_nodes < 2 || p->nets.local;
    if (alone && !(p->strict && is_only_node(p->config.spec)))
        return false;
    preflight_cancel(p);
    forget_ring(p);
    p->generation = g;
    p->waits_for_node_summary = p->strict && !p->gathered;
    p->waits_for_verdict = !alone && p->strict && p->ops.led(p->arg) != NULL && !p->compared;
    if (!alone)
        probe_ring(p, form);
    go_on(p);
    return true;
}

bool preflight_pick(const struct preflight *p, uint32_t reachability, struct netif_choice *ret) {
    if (p == NULL)
        return false;
    if (reachability == RING_WAY_TRIED && p->reachability != RING_WAY_TRIED)
        log_warning("preflight: this node reaches its neighbours, but no family of addresses "
                    "serves all nodes of the group");
    return node_nets_pick(&p->nets, reachability, ret);
}

/* ---- on the leader: the node summaries of all nodes ---- */

/* Reports the table once, and again if it has changed. */
static void log_table(struct preflight *p, const struct node_summary_comparison *c) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    node_summary_comparison_table(c, &text);
    uint64_t h = hash_text(HASH_BEGIN, strbuf_text(&text));
    if (text.len == 0 || h == p->said_hash)
        return;
    p->said_hash = h;
    enum log_level level = c->matters ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE;
    log_line(level, "preflight: findings about the %u nodes of the group:", c->n_nodes);
    for (const char *line = strbuf_text(&text); *line != '\0'; line = text_next_line(line))
        log_line(level, "preflight: %.*s", (int)strcspn(line, "\n"), line);
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
    if (p->config.spec->check == JOB_CHECK_JSON)
        check_write_nodes_json(c, &text);
    else
        check_write_nodes(c, &text);
    check_print(&text);
}

/* missing: nodes without a summary; "": none. */
static void compare(struct preflight *p, const uint64_t *members, size_t n, const char *missing) {
    static const struct node_summary_finding is_missing = {
        .level = NODE_SUMMARY_FAIL,
        .code = "DIGEST-MISSING",
        .text = "it did not send its description, or whom it reaches, within 10 s"};
    static_assert(NODE_SUMMARIES_WAIT_NS == 10 * NS_PER_S, "the text above");
    const struct group *g = p->ops.led(p->arg);
    _cleanup_(freep) struct node_summary_clock *clocks = xcalloc(n, sizeof *clocks);
    for (size_t i = 0; i < n; i++)
        clocks[i].known =
            group_clock_offset(g, members[i], &clocks[i].offset_ns, &clocks[i].error_ns);
    _cleanup_(node_summary_comparison_fini) struct node_summary_comparison c;
    int64_t clock_ns = clock_wall_offset_ns();
    summary_index_compare(p->index, members, n, clocks, clock_ns, &c);
    if (missing[0] != '\0')
        node_summary_comparison_fail(&c, missing, &is_missing);
    _cleanup_(strbuf_fini) struct strbuf why_not = {0};
    if (p->check) {
        print_nodes(p, &c);
        check_write_verdict(&c, &why_not);
    } else {
        log_table(p, &c);
        if (p->strict && c.matters) /* each node refuses by its own failures */
            node_summary_comparison_line(&c, &why_not);
    }
    if (why_not.len > 0)
        refuse_job(p, strbuf_text(&why_not));
    else
        p->waits_for_verdict = false;
}

/* False: the job has been ended. A check first shows the other nodes. */
static bool take_missing(struct preflight *p, const char *names) {
    _cleanup_(freep) char *text =
        xasprintf("DIGEST-MISSING: %s did not send its description within %.0f s", names,
                  (double)NODE_SUMMARIES_WAIT_NS / (double)NS_PER_S);
    if (p->check)
        return true;
    log_warning("preflight: %s", text);
    if (p->strict)
        refuse_job(p, text);
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
    _cleanup_(strbuf_fini) struct strbuf missing = {0};
    name_missing(p, members, n, &missing);
    if (!all && !take_missing(p, strbuf_text(&missing)))
        return;
    compare(p, members, n, strbuf_text(&missing));
    go_on(p);
}

/* The deadline for missing node summaries is over. */
static void on_time_up(void *arg) {
    struct preflight *p = arg;
    if (p->ops.led(p->arg) != NULL)
        compare_if_due(p, true);
}

/* Reports failures of other nodes, also to reach neighbours. Each node reports its own itself. */
static void log_failures(struct preflight *p, const char *host, const struct node_summary *d) {
    for (uint32_t i = 0; i < d->n_findings; i++)
        if (d->findings[i].level == NODE_SUMMARY_FAIL && p->n_failures_said++ < FAILURES_SAID_MAX)
            log_warning("preflight: node %s reports: %s: %s", host, d->findings[i].code,
                        d->findings[i].text);
}

void preflight_received(void *preflight, uint64_t incarnation, const char *host, const char *text) {
    struct preflight *p = preflight;
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
    if (!p->check && incarnation != p->config.incarnation)
        log_failures(p, host, d);
    compare_if_due(p, false);
}

void preflight_forgotten(void *preflight, uint64_t incarnation) {
    struct preflight *p = preflight;
    if (p == NULL || p->index == NULL)
        return;
    summary_index_drop(p->index, incarnation);
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

/* ---- life ---- */

bool preflight_is_wanted(const struct job_spec *spec) {
    return spec->preflight != JOB_PREFLIGHT_OFF && (!is_only_node(spec) || nvml_may_answer());
}

struct preflight *preflight_new(struct loop *loop, const struct preflight_config *config,
                                const struct preflight_ops *ops, void *arg) {
    const struct job_spec *spec = config->spec;
    if (!preflight_is_wanted(spec))
        return NULL;
    struct preflight *p = xcalloc(1, sizeof *p);
    p->loop = loop;
    p->config = *config;
    p->ops = *ops;
    p->arg = arg;
    p->strict = spec->preflight == JOB_PREFLIGHT_STRICT;
    p->check = spec->check != JOB_CHECK_OFF;
    p->timer = loop_timer_new(loop, on_time_up, p);
    p->clock_timer = loop_timer_new(loop, on_clock_timer, p);
    return p;
}

void preflight_free(struct preflight *p) {
    if (p == NULL)
        return;
    preflight_cancel(p);
    node_discovery_free(p->way);
    node_summary_stop(p->gathering);
    print_node(p);
    summary_index_free(p->index);
    loop_timer_free(p->timer);
    loop_timer_free(p->clock_timer);
    free(p);
}
