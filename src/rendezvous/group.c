#include "rendezvous/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/group_priv.h"

/* Better causes of one stop that are told at once; what follows is told when it is settled. */
#define RETELL_MAX 8
/* How often all nodes hear who is there. */
#define STATUS_INTERVAL_NS (200 * NS_PER_MS)
/* Between probes of one node that say nothing: a guardian at work is done in milliseconds, a
 * frozen host is not. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)
#define PROBE_RETRY_MAX_NS (200 * NS_PER_MS)

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
    g->due_ns = TIME_NEVER;
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

void group_tell(struct group *g, const struct node *n) {
    if (n->connected)
        (void)group_emit(g, GROUP_EFFECT_TELL, n->info.incarnation);
}

void group_tell_members(struct group *g) {
    for (size_t i = 0; i < g->n_members; i++)
        group_tell(g, g->members[i]);
}

/* The text must outlive the step: it is kept in the group, one after the other. Offsets are turned
 * into pointers when the step ends, since the buffer may move while it grows. */
void group_incident(struct group *g, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_INCIDENT, 0);
    e->n_nodes = (uint32_t)g->notes.len;
    strbuf_add_bytes(&g->notes, text, strlen(text) + 1);
}

static void refuse(struct group *g, uint64_t node, const char *text, bool for_now) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_REFUSE, node);
    e->for_now = for_now;
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
    bool finished = group_report_is_about(g, n, NODE_FINISHED);
    char text[RDZV_REASON_MAX];
    (void)snprintf(text, sizeof text, "node %s %s", name, why);
    if (was_member)
        drop_member(g, n);
    if (was_member && g->state == GROUP_STOPPING)
        group_blame_lost_node(g, n, text);
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
        group_stop_for_lost_node(g, text);
    else if (g->state != GROUP_CLOSED)
        group_incident(g, text);
}

static const char *refusal(const struct group *g, const struct node_info *info,
                           bool *ret_for_now) {
    *ret_for_now = false;
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
        if (n->info.node_rank == info->node_rank && n->connected) {
            /* The same host again: it was restarted, and its former life is not given up yet. */
            *ret_for_now = strcmp(n->info.host, info->host) == 0;
            return "another node has the same --node-rank; give each its own";
        }
    return NULL;
}

static struct node *admit(struct group *g, const struct node_info *info) {
    bool for_now;
    const char *why = refusal(g, info, &for_now);
    if (why != NULL) {
        refuse(g, info->incarnation, why, for_now);
        return NULL;
    }
    struct node *n = xcalloc(1, sizeof *n);
    n->info = *info;
    n->join_order = ++g->join_counter;
    n->probe_ns = TIME_NEVER;
    n->probe_wait_ns = PROBE_RETRY_MIN_NS;
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
        if (better && !g->cause_withheld && g->settle_deadline_ns != TIME_NEVER &&
            ++g->retold <= RETELL_MAX)
            group_tell_members(g);
        else
            g->cause_retold = g->cause_retold || better;
    } else if (report->has_failure) {
        group_stop_for_failure(g);
    } else if (report->leaving && report->state != NODE_FINISHED) {
        (void)snprintf(text, sizeof text, "node %s was told to stop", name);
        group_stop_for_lost_node(g, text);
    } else if (report->unusable[0] != '\0') {
        (void)snprintf(text, sizeof text, "node %s can't take part any more: %s", name,
                       report->unusable);
        group_stop_for_lost_node(g, text);
    } else if (report->state == NODE_STOPPED) {
        (void)snprintf(text, sizeof text, "node %s had to stop: it heard nothing from the leader "
                       "within its lease", name);
        group_stop_for_lost_node(g, text);
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
    group_tell(g, n);
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
    if (result == PROBE_GONE && n->reached && (!n->connected || is_silent(g, n))) {
        remove_node(g, n, "is gone: its agent ended without a word", true);
        return;
    }
    if (!n->connected || is_silent(g, n)) {
        n->probe_ns = g->now_ns + n->probe_wait_ns;
        n->probe_wait_ns = MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS);
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
        group_close_failed(g, text);
        return;
    }
    (void)snprintf(g->store_host, sizeof g->store_host, "%s", ev->store_host);
    g->store_port = ev->store_port;
    g->form_told = true;
    g->form_deadline_ns = g->now_ns + g->config.form_timeout_ns;
    group_tell_members(g);
}

static void on_operator_stop(struct group *g, const char *reason) {
    if (g->state == GROUP_CLOSED || (g->state == GROUP_STOPPING && g->closing))
        return;
    bool live = group_is_live(g);
    if (g->state == GROUP_GATHERING) {
        group_close_failed(g, reason);
        return;
    }
    g->closing = true;
    g->outcome = OUTCOME_FAILED;
    g->charge_pending = g->has_cause = false;
    if (live) {
        group_begin_stop(g, reason);
    } else {
        (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
        group_tell_members(g);
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

/* The leader itself slept: what the nodes said meanwhile still lies in its sockets, and tells
 * nothing about their silence. To count later than needed is always safe. */
static void forgive_own_sleep(struct group *g) {
    if (g->now_ns <= g->due_ns || g->now_ns - g->due_ns <= g->config.lease_ns / 10)
        return;
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard)
        n->heard_ns = g->now_ns;
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
    case GROUP_GATHERING: t = group_gather_deadline(g); break;
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
            n->probe_wait_ns = PROBE_RETRY_MIN_NS;
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
    case GROUP_EVENT_ECHO:
    case GROUP_EVENT_ARBITER:
    case GROUP_EVENT_TOUCHED:
    case GROUP_EVENT_HIGHER_EPOCH:
    case GROUP_EVENT_COMMAND: break;
    case GROUP_EVENT_KIND_COUNT: assert_not_reached();
    }
}

void group_step(struct group *g, const struct group_event *event, struct group_update *ret) {
    assert(event->now_ns >= g->now_ns);
    g->now_ns = event->now_ns;
    g->update = ret;
    ret->n_effects = 0;
    strbuf_clear(&g->notes);

    forgive_own_sleep(g);
    dispatch(g, event);
    on_time(g);
    group_advance(g);
    emit_status(g);
    ret->deadline_ns = g->due_ns = next_deadline(g);
    resolve_notes(g);
    g->update = NULL;
    group_check(g);
}
