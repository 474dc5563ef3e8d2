#include "rendezvous/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/group_priv.h"

/* How often all nodes hear who is there, and how often the silent are probed. */
#define STATUS_INTERVAL_NS (200 * NS_PER_MS)
#define PROBE_RETRY_NS (200 * NS_PER_MS)

static const struct {
    const char *name;
    unsigned next; /* bits of the states that may follow */
} states[GROUP_STATE_COUNT] = {
    /*                  name         may be followed by */
    [GROUP_GATHERING] = {"gathering", 1u << GROUP_FORMING | 1u << GROUP_CLOSED},
    [GROUP_FORMING] = {"forming", 1u << GROUP_RUNNING | 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_RUNNING] = {"running", 1u << GROUP_STOPPING | 1u << GROUP_CLOSED},
    [GROUP_STOPPING] = {"stopping", 1u << GROUP_GATHERING | 1u << GROUP_CLOSED},
    [GROUP_CLOSED] = {"closed", 0},
};

const char *group_state_name(enum group_state s) { return states[s].name; }

bool group_may_move(enum group_state from, enum group_state to) {
    return (states[from].next >> to & 1) != 0;
}

void group_config_default(struct group_config *c) {
    *c = (struct group_config){
        .epoch = 1,
        .min_nodes = 1,
        .max_nodes = 1,
        .last_call_ns = 30 * NS_PER_S,
        .join_timeout_ns = 600 * NS_PER_S,
        .form_timeout_ns = 60 * NS_PER_S,
        .close_timeout_ns = 30 * NS_PER_S,
        .settle_ns = 500 * NS_PER_MS,
        .lease_ns = 5 * NS_PER_S,
        .margin_ns = NS_PER_S,
    };
}

int group_new(const struct group_config *config, uint64_t now_ns, struct group **ret) {
    if (config->epoch == 0 || config->min_nodes == 0 || config->min_nodes > config->max_nodes ||
        config->max_nodes > RDZV_NODES_MAX || config->lease_ns == 0)
        return -EINVAL;
    struct group *g = xcalloc(1, sizeof *g);
    g->config = *config;
    g->state = GROUP_GATHERING;
    g->now_ns = g->gather_since_ns = now_ns;
    g->enough_since_ns = TIME_NEVER;
    g->settle_deadline_ns = TIME_NEVER;
    g->probe_min_ns = TIME_NEVER;
    g->index.seed = config->leader_incarnation;
    list_init(&g->heard);
    *ret = g;
    return 0;
}

void group_free(struct group *g) {
    if (g == NULL)
        return;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        free(n);
    idmap_fini(&g->index);
    strbuf_fini(&g->notes);
    free(g->members);
    free(g->order);
    free(g);
}

void group_update_fini(struct group_update *u) {
    free(u->effects);
    *u = (struct group_update){0};
}

/* ---- effects ---- */

struct group_effect *group_emit(struct group *g, enum group_effect_kind kind, uint64_t node) {
    struct group_update *u = g->update;
    if (u->n_effects == u->cap) {
        u->cap = u->cap == 0 ? 16 : u->cap * 2;
        u->effects = xrealloc(u->effects, u->cap * sizeof *u->effects);
    }
    u->effects[u->n_effects] = (struct group_effect){.kind = kind, .node = node};
    return &u->effects[u->n_effects++];
}

static void tell(struct group *g, const struct node *n) {
    if (n->connected)
        (void)group_emit(g, GROUP_EFFECT_TELL, n->info.incarnation);
}

static void tell_members(struct group *g) {
    for (size_t i = 0; i < g->n_members; i++)
        tell(g, g->members[i]);
}

/* The text must outlive the step: it is kept in the group, one after the other. Offsets are turned
 * into pointers when the step ends, since the buffer may move while it grows. */
static void incident(struct group *g, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_INCIDENT, 0);
    e->n_nodes = (uint32_t)g->notes.len;
    strbuf_add_bytes(&g->notes, text, strlen(text) + 1);
}

static void refuse(struct group *g, uint64_t node, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->n_nodes = (uint32_t)g->notes.len;
    strbuf_add_bytes(&g->notes, text, strlen(text) + 1);
}

static void resolve_notes(struct group *g) {
    for (size_t i = 0; i < g->update->n_effects; i++) {
        struct group_effect *e = &g->update->effects[i];
        if (e->kind == GROUP_EFFECT_INCIDENT || e->kind == GROUP_EFFECT_REFUSE) {
            e->reason = g->notes.data + e->n_nodes;
            e->n_nodes = 0;
        }
    }
}

/* ---- states ---- */

static void move(struct group *g, enum group_state to) {
    assert(group_may_move(g->state, to));
    g->state = to;
    g->status_dirty = true;
}

static void close_store(struct group *g) {
    if (!g->store_open)
        return;
    g->store_open = false;
    group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = g->generation;
}

static void enter_closed(struct group *g) {
    close_store(g);
    move(g, GROUP_CLOSED);
    g->close_deadline_ns = g->now_ns + g->config.close_timeout_ns;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        tell(g, n);
}

static void close_failed(struct group *g, const char *reason) {
    g->outcome = OUTCOME_FAILED;
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    enter_closed(g);
}

static void enter_gathering(struct group *g) {
    close_store(g);
    for (size_t i = 0; i < g->n_members; i++)
        g->members[i]->is_member = false;
    g->n_members = 0;
    move(g, GROUP_GATHERING);
    g->gather_since_ns = g->now_ns;
    g->enough_since_ns = TIME_NEVER;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        tell(g, n);
}

static uint32_t count_workers(const struct group *g) {
    uint32_t workers = 0;
    for (size_t i = 0; i < g->n_members; i++)
        workers += g->members[i]->info.nproc;
    return workers;
}

/* Fewer nodes are left, or to be hoped for, than a group needs, and nobody asked to wait. */
static bool too_few_for_ever(const struct group *g) {
    return g->started_once && group_count_hopeful(g) < g->config.min_nodes && g->config.regroup_wait_ns == 0;
}

static void begin_stop(struct group *g, const char *reason) {
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
    g->n_stopping = count_workers(g);
    g->cause_retold = false;
    g->stop_since_ns = g->now_ns;
    g->settle_deadline_ns = g->has_cause ? g->now_ns + g->config.settle_ns : TIME_NEVER;
    move(g, GROUP_STOPPING);
    tell_members(g);
}

static void describe_too_few(const struct group *g, const char *why, char *out, size_t len) {
    (void)snprintf(out, len, "%s; %zu of at least %u nodes left", why, group_count_hopeful(g),
                   g->config.min_nodes);
}

/* A member is no longer there, or wants out. */
static void stop_for_lost_node(struct group *g, const char *why) {
    if (too_few_for_ever(g)) {
        char text[RDZV_REASON_MAX];
        describe_too_few(g, why, text, sizeof text);
        g->closing = true;
        g->outcome = OUTCOME_FAILED;
        begin_stop(g, text);
    } else {
        begin_stop(g, why);
    }
}

/* A worker failed (or a node could not obey FORM). The charge waits until all have stopped: what
 * looks like a failure may be the echo of a node that was lost, which costs nothing. */
static void stop_for_failure(struct group *g) {
    g->charge_pending = true;
    begin_stop(g, "");
    if (g->n_stopping > 0)
        g->n_stopping--; /* the one that failed needs no stopping */
}

static bool budget_spent(const struct group *g) {
    return g->charge_pending && g->restarts_used >= g->config.max_restarts;
}

/* A member was lost while its group was stopping for a failure. If it gave no sign of life after
 * that failure, the failure was its echo. */
static void blame_lost_node(struct group *g, const struct node *n, const char *why) {
    if (!g->charge_pending || !group_cause_may_be_echo(g) ||
        n->heard_ns > g->stop_since_ns + g->config.settle_ns)
        return;
    g->charge_pending = g->has_cause = g->cause_retold = false;
    g->settle_deadline_ns = TIME_NEVER;
    (void)snprintf(g->reason, sizeof g->reason, "%s", why);
    tell_members(g);
}

/* ---- GATHERING ---- */

/* Former members that are silent or cut off, and not yet given up: a group without them would
 * have to be torn down when they come back. */
static bool somebody_unresolved(const struct group *g) {
    for (size_t i = 0; i < g->n_order; i++) {
        const struct node *n = idmap_get(&g->index, g->order[i]);
        if (n != NULL && !n->connected && !n->report.leaving)
            return true;
    }
    return false;
}

static uint64_t gather_deadline(const struct group *g) {
    if (g->enough_since_ns == TIME_NEVER) {
        if (!g->started_once)
            return g->gather_since_ns + g->config.join_timeout_ns;
        return somebody_unresolved(g) ? TIME_NEVER : g->gather_since_ns + g->config.regroup_wait_ns;
    }
    if (!g->formed_once)
        return g->enough_since_ns + g->config.last_call_ns;
    if (somebody_unresolved(g))
        return TIME_NEVER;
    return g->lost_somebody ? g->gather_since_ns + g->config.regroup_wait_ns : 0;
}

static void form(struct group *g) {
    group_choose_members(g);
    g->generation = (struct generation){g->config.epoch, g->generation.counter + 1};
    g->has_cause = g->closing = g->charge_pending = g->form_told = false;
    g->formed_once = true;
    g->reason[0] = '\0';
    g->store_wanted = true;
    g->form_deadline_ns = TIME_NEVER;
    move(g, GROUP_FORMING);
    struct group_effect *e = group_emit(g, GROUP_EFFECT_STORE_OPEN, 0);
    e->generation = g->generation;
    e->n_nodes = (uint32_t)g->n_members;
}

static void give_up_gathering(struct group *g, size_t candidates) {
    char text[RDZV_REASON_MAX];
    if (g->started_once) {
        (void)snprintf(text, sizeof text, "%zu of at least %u nodes left%s%s", candidates,
                       g->config.min_nodes, g->last_lost[0] != '\0' ? "; lost: " : "",
                       g->last_lost);
    } else {
        struct rdzv_status s;
        group_status(g, g->now_ns, &s);
        _cleanup_(strbuf_fini) struct strbuf names = {0};
        for (uint32_t i = 0; i < s.n_names; i++)
            strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", s.names[i]);
        (void)snprintf(text, sizeof text,
                       "only %zu of at least %u nodes came within %.0f s (there: %.1500s); start "
                       "the missing ones, or raise --rdzv-conf join_timeout",
                       candidates, g->config.min_nodes,
                       (double)g->config.join_timeout_ns / (double)NS_PER_S, strbuf_text(&names));
    }
    close_failed(g, text);
}

static void advance_gathering(struct group *g) {
    size_t candidates = group_count_candidates(g);
    if (candidates < g->config.min_nodes)
        g->enough_since_ns = TIME_NEVER;
    else if (g->enough_since_ns == TIME_NEVER)
        g->enough_since_ns = g->now_ns;

    if (candidates >= g->config.max_nodes ||
        (candidates >= g->config.min_nodes && g->now_ns >= gather_deadline(g))) {
        form(g);
        return;
    }
    if (candidates < g->config.min_nodes && g->now_ns >= gather_deadline(g) &&
        (!g->started_once || group_count_hopeful(g) < g->config.min_nodes ||
         g->config.regroup_wait_ns > 0))
        give_up_gathering(g, candidates);
}

/* ---- FORMING, RUNNING, STOPPING ---- */

static bool report_is_about(const struct group *g, const struct node *n, enum node_state state) {
    return n->report.state == state &&
           generation_compare(n->report.generation, g->generation) == 0;
}

static bool all_members(const struct group *g, enum node_state state) {
    for (size_t i = 0; i < g->n_members; i++)
        if (!report_is_about(g, g->members[i], state))
            return false;
    return true;
}

static bool is_stopped(const struct group *g, const struct node *n) {
    return report_is_about(g, n, NODE_STOPPED) || n->report.state == NODE_CLOSED ||
           n->report.unusable[0] != '\0';
}

static void fail_slow_nodes(struct group *g) {
    for (size_t i = 0; i < g->n_members; i++) {
        const struct node *n = g->members[i];
        if (report_is_about(g, n, NODE_PREPARED))
            continue;
        struct failure f = {.kind = FAILURE_NODE,
                            .rank = n->form.first_rank,
                            .node_rank = n->form.node_rank,
                            .incarnation = n->info.incarnation,
                            .at_ns = (uint64_t)((int64_t)g->now_ns - n->offset_ns)};
        group_node_name(n, f.node);
        (void)snprintf(f.text, sizeof f.text, "node %.100s did not get ready within %.0f s", f.node,
                       (double)g->config.form_timeout_ns / (double)NS_PER_S);
        (void)group_note_failure(g, n, &f);
        break;
    }
    stop_for_failure(g);
}

static void advance_forming(struct group *g) {
    if (!g->form_told)
        return; /* the store is not open yet */
    if (all_members(g, NODE_PREPARED)) {
        g->started_once = true;
        g->lost_somebody = false;
        move(g, GROUP_RUNNING);
        tell_members(g);
    } else if (g->now_ns >= g->form_deadline_ns) {
        fail_slow_nodes(g);
    }
}

static void advance_running(struct group *g) {
    if (all_members(g, NODE_FINISHED)) {
        g->outcome = OUTCOME_SUCCESS;
        enter_closed(g);
    }
}

static void advance_stopping(struct group *g) {
    bool all_stopped = true;
    for (size_t i = 0; i < g->n_members && all_stopped; i++)
        all_stopped = is_stopped(g, g->members[i]);
    if (g->now_ns >= g->settle_deadline_ns || all_stopped) {
        g->settle_deadline_ns = TIME_NEVER;
        if (g->cause_retold && !all_stopped)
            tell_members(g); /* a better cause turned up since STOP was told */
        g->cause_retold = false;
    }
    if (!all_stopped)
        return;
    if (!g->closing && too_few_for_ever(g)) {
        char text[RDZV_REASON_MAX];
        describe_too_few(g, g->reason[0] != '\0' ? g->reason : "a node can't take part any more",
                         text, sizeof text);
        g->closing = true;
        g->outcome = OUTCOME_FAILED;
        (void)snprintf(g->reason, sizeof g->reason, "%s", text);
    }
    if (budget_spent(g)) {
        g->closing = true;
        g->outcome = OUTCOME_FAILED;
    }
    if (g->closing) {
        enter_closed(g);
        return;
    }
    g->restarts_used += g->charge_pending;
    g->charge_pending = false;
    enter_gathering(g);
}

static void advance_closed(struct group *g) {
    if (g->done)
        return;
    bool all = true;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        all = all && n->report.state == NODE_CLOSED;
    if (all || g->now_ns >= g->close_deadline_ns) {
        g->done = true;
        (void)group_emit(g, GROUP_EFFECT_DONE, 0);
    }
}

static void advance(struct group *g) {
    enum group_state before;
    do {
        before = g->state;
        switch (g->state) {
        case GROUP_GATHERING: advance_gathering(g); break;
        case GROUP_FORMING: advance_forming(g); break;
        case GROUP_RUNNING: advance_running(g); break;
        case GROUP_STOPPING: advance_stopping(g); break;
        case GROUP_CLOSED: advance_closed(g); break;
        case GROUP_STATE_COUNT: assert_not_reached();
        }
    } while (g->state != before);
}

/* ---- nodes coming and going ---- */

static void heard_from(struct group *g, struct node *n) {
    n->heard_ns = g->now_ns;
    n->probe_ns = n->connected ? TIME_NEVER : n->probe_ns;
    list_remove(&n->by_heard);
    list_append(&g->heard, &n->by_heard);
}

static void drop_member(struct group *g, const struct node *n) {
    size_t kept = 0;
    for (size_t i = 0; i < g->n_members; i++)
        if (g->members[i] != n)
            g->members[kept++] = g->members[i];
    g->n_members = kept;
}

static bool group_is_live(const struct group *g) {
    return g->state == GROUP_FORMING || g->state == GROUP_RUNNING;
}

/* The node is out of the job: no process of it is left. `why` follows its name. */
static void remove_node(struct group *g, struct node *n, const char *why, bool lost) {
    char name[RDZV_HOST_MAX];
    group_node_name(n, name);
    bool was_member = n->is_member;
    bool finished = report_is_about(g, n, NODE_FINISHED);
    char text[RDZV_REASON_MAX];
    (void)snprintf(text, sizeof text, "node %s %s", name, why);
    if (was_member)
        drop_member(g, n);
    if (was_member && g->state == GROUP_STOPPING)
        blame_lost_node(g, n, text);
    for (size_t i = 0; i < g->n_order; i++)
        g->lost_somebody = g->lost_somebody || g->order[i] == n->info.incarnation;
    (void)group_emit(g, GROUP_EFFECT_FORGET, n->info.incarnation);
    idmap_remove(&g->index, n->info.incarnation);
    list_remove(&n->by_heard);
    g->n_nodes--;
    g->losses += was_member && lost;
    free(n);
    g->status_dirty = true;
    if (g->started_once)
        (void)snprintf(g->last_lost, sizeof g->last_lost, "%s", name);
    if (was_member && group_is_live(g) && !(finished && g->state == GROUP_RUNNING))
        stop_for_lost_node(g, text);
    else if (g->state != GROUP_CLOSED)
        incident(g, text);
}

static const char *refusal(const struct group *g, const struct node_info *info) {
    if (info->nproc == 0 || info->nproc > RDZV_WORKERS_MAX)
        return "its number of workers is out of range";
    if (g->n_nodes >= RDZV_NODES_MAX)
        return "the job has as many nodes as it can hold";
    struct idmap roles = {0};
    bool seen = false;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        uint64_t h = 1;
        for (const char *c = n->info.role; *c != '\0'; c++)
            h = h * 31 + (uint8_t)*c;
        idmap_put(&roles, h == 0 ? 1 : h, n);
        seen = seen || strcmp(n->info.role, info->role) == 0;
    }
    bool roles_full = !seen && roles.len >= GROUP_ROLES_MAX;
    idmap_fini(&roles);
    if (roles_full)
        return "the job has as many different roles as it can hold";
    if (!g->config.static_ranks)
        return NULL;
    if (info->node_rank < 0)
        return "this job gives ranks by --node-rank, and this node has none";
    if ((uint32_t)info->node_rank >= g->config.max_nodes)
        return "its --node-rank is not below the number of nodes (--nnodes)";
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        if (n->info.node_rank == info->node_rank && n->connected)
            return "another node has the same --node-rank; give each its own";
    return NULL;
}

static struct node *admit(struct group *g, const struct node_info *info) {
    const char *why = refusal(g, info);
    if (why != NULL) {
        refuse(g, info->incarnation, why);
        return NULL;
    }
    struct node *n = xcalloc(1, sizeof *n);
    n->info = *info;
    n->join_order = ++g->join_counter;
    n->probe_ns = TIME_NEVER;
    list_init(&n->by_heard);
    idmap_put(&g->index, info->incarnation, n);
    g->n_nodes++;
    (void)group_emit(g, GROUP_EFFECT_REACH, info->incarnation);
    return n;
}

static void on_report(struct group *g, struct node *n, const struct report *report) {
    /* Old words change nothing: a report about an older group than the one the node has already
     * spoken of, or a state that a connection's late end brings again. */
    if (generation_compare(report->generation, n->report.generation) < 0)
        return;
    n->report = *report;
    g->status_dirty = true;
    if (report->restarts_used > g->restarts_used)
        g->restarts_used = report->restarts_used;

    bool about_now = n->is_member && generation_compare(report->generation, g->generation) == 0;
    if (!about_now || g->state == GROUP_GATHERING || g->state == GROUP_CLOSED)
        return;
    /* While the group stops for another reason, failures are its consequences. */
    bool better = report->has_failure && (g->state != GROUP_STOPPING || g->charge_pending) &&
                  group_note_failure(g, n, &report->failure);
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
    group_node_name(n, name);
    if (g->state == GROUP_STOPPING) {
        g->cause_retold = g->cause_retold || (better && g->settle_deadline_ns != TIME_NEVER);
    } else if (report->has_failure) {
        stop_for_failure(g);
    } else if (report->leaving) {
        (void)snprintf(text, sizeof text, "node %s was told to stop", name);
        stop_for_lost_node(g, text);
    } else if (report->unusable[0] != '\0') {
        (void)snprintf(text, sizeof text, "node %s can't take part any more: %s", name,
                       report->unusable);
        stop_for_lost_node(g, text);
    } else if (report->state == NODE_STOPPED) {
        (void)snprintf(text, sizeof text, "node %s had to stop: it heard nothing from the leader "
                       "within its lease", name);
        stop_for_lost_node(g, text);
    }
}

static void on_join(struct group *g, const struct group_event *ev) {
    struct node *n = idmap_get(&g->index, ev->info->incarnation);
    if (n == NULL)
        n = admit(g, ev->info);
    if (n == NULL)
        return;
    n->connected = true;
    heard_from(g, n);
    on_report(g, n, ev->report);
    tell(g, n);
    g->status_dirty = true;
}

static void on_renew(struct group *g, struct node *n, const struct renew *renew) {
    heard_from(g, n);
    group_note_clock(g, n, renew);
    struct group_effect *e = group_emit(g, GROUP_EFFECT_LEASE, n->info.incarnation);
    bool named = n->is_member && g->form_told && g->state != GROUP_GATHERING;
    e->lease = (struct lease){
        .epoch = g->config.epoch,
        .prepared = named ? g->generation : (struct generation){0, 0},
        .echo_ns = renew->clock_ns,
        .validity_ns = g->config.lease_ns,
        .clock_ns = g->now_ns,
    };
}

static bool is_silent(const struct group *g, const struct node *n) {
    return g->now_ns - n->heard_ns > g->config.lease_ns / 2;
}

static void on_probe(struct group *g, struct node *n, enum probe_result result) {
    n->probing = false;
    if (result == PROBE_ALIVE)
        n->reached = true;
    else if (!n->reached && n->connected && !n->unreachable_told) {
        char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
        n->unreachable_told = true;
        group_node_name(n, name);
        (void)snprintf(text, sizeof text,
                       "node %s can't be reached from here on port %u: its loss will be noticed "
                       "after %.0f s, not at once",
                       name, n->info.listener_port,
                       (double)(g->config.lease_ns + g->config.margin_ns) / (double)NS_PER_S);
        incident(g, text);
    }
    if (result == PROBE_GONE && n->reached && (!n->connected || is_silent(g, n))) {
        remove_node(g, n, "is gone: its agent ended without a word", true);
        return;
    }
    if (!n->connected || is_silent(g, n)) {
        n->probe_ns = g->now_ns + PROBE_RETRY_NS;
        g->probe_min_ns = MIN2(g->probe_min_ns, n->probe_ns);
    }
}

static void on_store(struct group *g, const struct group_event *ev) {
    bool current = generation_compare(ev->generation, g->generation) == 0 && g->store_wanted;
    if (!current || g->state == GROUP_GATHERING || g->state == GROUP_CLOSED) {
        /* It comes too late: nobody will use it. */
        if (ev->store_port != 0)
            group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = ev->generation;
        return;
    }
    g->store_wanted = false;
    g->store_open = ev->store_port != 0;
    if (g->state != GROUP_FORMING)
        return; /* a member was lost meanwhile; the end of STOPPING closes the store */
    if (!g->store_open) {
        char text[RDZV_REASON_MAX];
        (void)snprintf(text, sizeof text, "the workers' store could not be opened: %.1900s",
                       ev->reason == NULL ? "no reason given" : ev->reason);
        close_failed(g, text);
        return;
    }
    (void)snprintf(g->store_host, sizeof g->store_host, "%s", ev->store_host);
    g->store_port = ev->store_port;
    g->form_told = true;
    g->form_deadline_ns = g->now_ns + g->config.form_timeout_ns;
    tell_members(g);
}

static void on_operator_stop(struct group *g, const char *reason) {
    if (g->state == GROUP_CLOSED || (g->state == GROUP_STOPPING && g->closing))
        return;
    bool live = group_is_live(g);
    if (g->state == GROUP_GATHERING) {
        close_failed(g, reason);
        return;
    }
    g->closing = true;
    g->outcome = OUTCOME_FAILED;
    g->charge_pending = g->has_cause = false;
    if (live) {
        begin_stop(g, reason);
    } else {
        (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
        tell_members(g);
    }
}

/* ---- time ---- */

static void probe_node(struct group *g, struct node *n) {
    n->probe_ns = TIME_NEVER;
    if (n->probing)
        return;
    n->probing = true;
    (void)group_emit(g, GROUP_EFFECT_PROBE, n->info.incarnation);
}

static void on_time(struct group *g) {
    uint64_t patience = g->config.lease_ns + g->config.margin_ns;
    /* The longest silent come first: nobody behind the first fresh one is silent. */
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (!is_silent(g, n) && n->connected)
            break;
        if (g->now_ns >= n->heard_ns + patience) {
            char text[128];
            (void)snprintf(text, sizeof text, "was lost: no sign of life for %.1f s",
                           (double)(g->now_ns - n->heard_ns) / (double)NS_PER_S);
            remove_node(g, n, text, true);
        } else if (n->connected && n->probe_ns == TIME_NEVER && !n->probing) {
            probe_node(g, n);
        }
    }
    if (g->now_ns < g->probe_min_ns)
        return;
    g->probe_min_ns = TIME_NEVER;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (g->now_ns >= n->probe_ns)
            probe_node(g, n);
        g->probe_min_ns = MIN2(g->probe_min_ns, n->probe_ns);
    }
}

static void emit_status(struct group *g) {
    if (!g->status_dirty || g->now_ns < g->status_next_ns || g->state != GROUP_GATHERING)
        return;
    g->status_dirty = false;
    g->status_next_ns = g->now_ns + STATUS_INTERVAL_NS;
    (void)group_emit(g, GROUP_EFFECT_STATUS, 0);
}

static uint64_t next_deadline(const struct group *g) {
    uint64_t t = TIME_NEVER;
    switch (g->state) {
    case GROUP_GATHERING: t = gather_deadline(g); break;
    case GROUP_FORMING: t = g->form_deadline_ns; break;
    case GROUP_STOPPING: t = g->settle_deadline_ns; break;
    case GROUP_CLOSED: t = g->done ? TIME_NEVER : g->close_deadline_ns; break;
    case GROUP_RUNNING: break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (t <= g->now_ns)
        t = TIME_NEVER; /* it has passed without effect; only an event can change that */
    if (g->state == GROUP_GATHERING && g->status_dirty)
        t = MIN2(t, g->status_next_ns);
    t = MIN2(t, g->probe_min_ns);
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        bool silent = is_silent(g, n) || !n->connected;
        t = MIN2(t, silent ? n->heard_ns + g->config.lease_ns + g->config.margin_ns
                           : n->heard_ns + g->config.lease_ns / 2 + 1);
        if (!silent)
            break;
    }
    return t;
}

/* ---- the step ---- */

static void dispatch(struct group *g, const struct group_event *ev) {
    struct node *n = NULL;
    if (ev->kind != GROUP_EVENT_JOIN && ev->node != 0)
        n = idmap_get(&g->index, ev->node);
    switch (ev->kind) {
    case GROUP_EVENT_TIME: break;
    case GROUP_EVENT_JOIN: on_join(g, ev); break;
    case GROUP_EVENT_REPORT:
        if (n != NULL)
            on_report(g, n, ev->report);
        break;
    case GROUP_EVENT_RENEW:
        if (n != NULL)
            on_renew(g, n, &ev->renew);
        break;
    case GROUP_EVENT_LEAVE:
        if (n != NULL)
            remove_node(g, n, "has left", false);
        break;
    case GROUP_EVENT_DISCONNECT:
        if (n != NULL && n->connected) {
            n->connected = false;
            g->status_dirty = true;
            probe_node(g, n);
        }
        break;
    case GROUP_EVENT_PROBE:
        if (n != NULL)
            on_probe(g, n, ev->probe);
        break;
    case GROUP_EVENT_STORE: on_store(g, ev); break;
    case GROUP_EVENT_STOP: on_operator_stop(g, ev->reason); break;
    case GROUP_EVENT_KIND_COUNT: assert_not_reached();
    }
}

void group_step(struct group *g, const struct group_event *event, struct group_update *ret) {
    assert(event->now_ns >= g->now_ns);
    g->now_ns = event->now_ns;
    g->update = ret;
    ret->n_effects = 0;
    strbuf_clear(&g->notes);

    dispatch(g, event);
    on_time(g);
    advance(g);
    emit_status(g);
    ret->deadline_ns = next_deadline(g);
    resolve_notes(g);
    g->update = NULL;
    group_check(g);
}

/* ---- what others may know ---- */

bool group_desired(const struct group *g, uint64_t node, struct desired *ret) {
    const struct node *n = idmap_get(&g->index, node);
    if (n == NULL)
        return false;
    struct desired d = {
        .kind = DESIRED_IDLE,
        .epoch = g->config.epoch,
        .generation = n->is_member ? g->generation : (struct generation){0, 0},
        .grace_ns = UINT64_MAX,
        .restarts_used = g->restarts_used,
        .max_restarts = g->config.max_restarts,
    };
    switch (g->state) {
    case GROUP_GATHERING: break;
    case GROUP_FORMING:
        if (n->is_member && g->form_told) {
            d.kind = DESIRED_FORM;
            d.form = n->form;
            d.form.store_port = g->store_port;
            memcpy(d.form.store_host, g->store_host, sizeof d.form.store_host);
        }
        break;
    case GROUP_RUNNING:
        if (n->is_member)
            d.kind = DESIRED_START;
        break;
    case GROUP_STOPPING:
        if (n->is_member)
            d.kind = DESIRED_STOP;
        break;
    case GROUP_CLOSED: d.kind = DESIRED_CLOSED; break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (d.kind == DESIRED_STOP || d.kind == DESIRED_CLOSED) {
        memcpy(d.reason, g->reason, sizeof d.reason);
        d.has_failure = g->has_cause && g->outcome != OUTCOME_SUCCESS;
        if (d.has_failure)
            d.failure = g->cause;
        d.will_restart = d.kind == DESIRED_STOP && !g->closing && !budget_spent(g);
        d.restarts_used += d.will_restart && g->charge_pending;
        d.n_stopping = g->n_stopping;
        d.outcome = d.kind == DESIRED_CLOSED ? g->outcome : OUTCOME_NONE;
    }
    *ret = d;
    return true;
}

void group_status(const struct group *g, uint64_t now_ns, struct rdzv_status *ret) {
    *ret = (struct rdzv_status){
        .min_nodes = g->config.min_nodes,
        .max_nodes = g->config.max_nodes,
        .present = (uint32_t)group_count_candidates(g),
        .last_call = g->enough_since_ns != TIME_NEVER,
        .wait_ns = TIME_NEVER,
    };
    uint64_t deadline = g->state == GROUP_GATHERING ? gather_deadline(g) : TIME_NEVER;
    if (deadline != TIME_NEVER)
        ret->wait_ns = deadline > now_ns ? deadline - now_ns : 0;
    bool *ranks = g->config.static_ranks ? xcalloc(g->config.max_nodes, sizeof *ranks) : NULL;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (!group_is_candidate(g, n)) {
            if (!n->connected && ret->n_missing < RDZV_STATUS_NAMES_MAX)
                (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", n->info.host);
            continue;
        }
        if (ret->n_names < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->names[ret->n_names++], RDZV_HOST_MAX, "%s", n->info.host);
        if (ranks != NULL)
            ranks[n->info.node_rank] = true;
    }
    for (uint32_t r = 0; ranks != NULL && r < g->config.max_nodes; r++)
        if (!ranks[r] && ret->n_missing < RDZV_STATUS_NAMES_MAX)
            (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "node rank %u", r);
    if (g->started_once && g->lost_somebody && ret->n_missing < RDZV_STATUS_NAMES_MAX)
        (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", g->last_lost);
    free(ranks);
}

enum group_state group_state(const struct group *g) { return g->state; }
struct generation group_generation(const struct group *g) { return g->generation; }
enum outcome group_outcome(const struct group *g) {
    return g->state == GROUP_CLOSED ? g->outcome : OUTCOME_NONE;
}
uint32_t group_restarts_used(const struct group *g) { return g->restarts_used; }

size_t group_nodes(const struct group *g, uint64_t *out, size_t max) {
    size_t i = 0;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (i < max)
            out[i] = n->info.incarnation;
        i++;
    }
    return i;
}

size_t group_members(const struct group *g, uint64_t *out, size_t max) {
    for (size_t i = 0; i < g->n_members && i < max; i++)
        out[i] = g->members[i]->info.incarnation;
    return g->n_members;
}

const struct node_info *group_node_info(const struct group *g, uint64_t node) {
    const struct node *n = idmap_get(&g->index, node);
    return n == NULL ? NULL : &n->info;
}

void group_check(const struct group *g) {
    assert(g->n_members <= g->config.max_nodes);
    assert(g->n_nodes <= RDZV_NODES_MAX);
    assert(g->state != GROUP_GATHERING || (g->n_members == 0 && !g->store_open));
    assert(g->state != GROUP_RUNNING || (g->form_told && g->store_open));
    assert(g->state != GROUP_CLOSED || (g->outcome != OUTCOME_NONE && !g->store_open));
    assert(!g->done || g->state == GROUP_CLOSED);
}
