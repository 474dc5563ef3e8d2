#include "rendezvous/leader/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"
#include "rendezvous/leader/parts/group_config.h"

struct group_effect *group_emit(struct group *g, enum group_effect_kind kind, uint64_t node) {
    struct group_update *u = g->effects.update;
    u->effects = xgrow(u->effects, u->n_effects, sizeof *u->effects);
    u->effects[u->n_effects] = (struct group_effect){.kind = kind, .node = node};
    return &u->effects[u->n_effects++];
}

void group_notify(struct group *g, const struct node *n) {
    if (n->connected)
        (void)group_emit(g, GROUP_EFFECT_DESIRED, n->info.incarnation);
}

void group_notify_members(struct group *g) {
    for (size_t i = 0; i < g->formation.n_members; i++)
        group_notify(g, g->formation.members[i]);
}

void group_notify_all(struct group *g) {
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        group_notify(g, n);
}

void *group_keep(struct group *g, size_t size) {
    struct step_effects *s = &g->effects;
    s->kept = xgrow(s->kept, s->n_kept, sizeof *s->kept);
    return s->kept[s->n_kept++] = xcalloc(1, size);
}

static void drop_kept(struct group *g) {
    while (g->effects.n_kept > 0)
        free(g->effects.kept[--g->effects.n_kept]);
}

void group_set_reason(struct group *g, struct group_effect *e, const char *text) {
    size_t size = strlen(text) + 1;
    e->reason = memcpy(group_keep(g, size), text, size);
}

void group_notice(struct group *g, const char *text) {
    group_set_reason(g, group_emit(g, GROUP_EFFECT_NOTICE, 0), text);
}

void group_incident(struct group *g, const char *text) {
    g->last_event = (struct last_event){.at_ns = g->now_ns};
    (void)snprintf(g->last_event.text, sizeof g->last_event.text, "%s", text);
    group_notice(g, text);
}

struct timeline_entry *group_add_to_timeline(struct group *g, enum timeline_kind kind,
                                             const struct node *n, const char *why) {
    struct timeline_entry *entry = group_keep(g, sizeof *entry);
    group_emit(g, GROUP_EFFECT_TIMELINE, 0)->entry = entry;
    entry->kind = kind;
    entry->at_ns = g->now_ns;
    entry->generation = g->formation.generation;
    if (entry->generation.counter == 0) /* no group yet: only the leader's state */
        entry->generation.epoch = g->leadership.epoch;
    if (n != NULL) {
        entry->node = n->info.incarnation;
        node_name(n, entry->name);
    }
    (void)snprintf(entry->why, sizeof entry->why, "%s", why == NULL ? "" : why);
    return entry;
}

/* ---- messages to nodes ---- */

/* The state of the nodes does not change until the outcome is recorded. */
static enum group_state state_to_show(const struct group *g) {
    return g->closed.record == OUTCOME_WAITS || g->closed.record == OUTCOME_GIVEN_UP
               ? g->closed.from
               : g->state;
}

static void desire_idle(const struct group *g, const struct node *n, struct desired *d) {
    char sick[NODE_SICK_TEXT_MAX];
    node_sick_text(n, sick);
    d->excluded = n->report.excluded;
    d->spare = group_is_live(g) && !n->is_member;
    if (d->excluded)
        (void)snprintf(d->reason, sizeof d->reason, "%s",
                       n->report.excluded_why != NULL ? n->report.excluded_why : "");
    else if (d->spare && node_is_sick(&g->roster, n))
        (void)snprintf(d->reason, sizeof d->reason, "it is sick: %s", sick);
    else if (d->spare && roster_has_domains(&g->roster) && n->domain == NULL)
        (void)snprintf(d->reason, sizeof d->reason, "its NVLink domain or block is not known");
}

static void add_neighbour(struct form *f, const struct node_info *info) {
    struct rdzv_neighbour *n = &f->neighbours[f->n_neighbours++];
    n->incarnation = info->incarnation;
    memcpy(n->host, info->host, sizeof n->host);
    memcpy(n->nets, info->nets, sizeof n->nets);
    n->listener_port = info->listener_port;
}

/* Which nodes it tries to reach before it is prepared: those beside it in the ring of ranks. */
static void fill_neighbours(const struct group *g, struct form *f) {
    size_t n = g->formation.n_members, next = (f->node_rank + 1) % n,
           before = (f->node_rank + n - 1) % n;
    f->n_neighbours = 0;
    if (n > 1)
        add_neighbour(f, &g->formation.members[next]->info);
    if (n > 2)
        add_neighbour(f, &g->formation.members[before]->info);
}

static void fill_form(const struct group *g, const struct node *n, struct form *ret) {
    const struct place *p = &n->place;
    *ret = (struct form){
        .node_rank = p->node_rank,
        .n_nodes = (uint32_t)g->formation.n_order,
        .first_rank = p->first_rank,
        .world_size = g->formation.world_size,
        .role_first_rank = p->role_first_rank,
        .role_world_size = p->role_world_size,
        .host_index = p->host_index,
        .store_port = g->forming.store_port,
        .restarts_used = g->formation.restarts_used,
        .max_restarts = g->config.rdzv.max_restarts,
        .losses = g->formation.losses,
        .log_nonce = g->config.log_nonce,
        .job_ns = group_job_ns(g, g->now_ns),
    };
    memcpy(ret->store_host, g->forming.store_host, sizeof ret->store_host);
    fill_neighbours(g, ret);
}

static void desire_end(const struct group *g, struct desired *d) {
    memcpy(d->reason, g->reason, sizeof d->reason);
    d->has_failure = group_shows_cause(g) && g->outcome != OUTCOME_SUCCESS;
    if (d->has_failure)
        d->failure = g->cause.failure;
    d->will_restart = d->kind == DESIRED_STOP && g->stopping.after == AFTER_STOP_GATHERING &&
                      g->cause.state != CAUSE_IN_DOUBT && !group_budget_spent(g) &&
                      !group_is_crash_loop(g);
    d->restarts_used += d->will_restart && group_cause_is_pending(g);
    d->n_stopping = g->stopping.n_workers;
    d->outcome = d->kind == DESIRED_CLOSED ? g->outcome : OUTCOME_NONE;
    d->no_fault = d->outcome == OUTCOME_FAILED && !d->has_failure && !g->closed.halted;
}

bool group_desired(const struct group *g, uint64_t node, struct desired *ret) {
    const struct node *n = roster_find(&g->roster, node);
    if (n == NULL)
        return false;
    struct desired d = {
        .kind = DESIRED_IDLE,
        .epoch = g->leadership.epoch,
        .generation = n->is_member ? g->formation.generation : (struct generation){0, 0},
        .grace_ns = UINT64_MAX,
        .restarts_used = g->policy.restarts_used,
        .max_restarts = g->config.rdzv.max_restarts,
        .losses = g->policy.losses,
    };
    switch (state_to_show(g)) {
    case GROUP_GATHERING: break;
    case GROUP_FORMING:
        if (n->is_member && g->forming.sent) {
            d.kind = DESIRED_FORM;
            fill_form(g, n, &d.form);
        }
        break;
    case GROUP_RUNNING:
        if (n->is_member) {
            d.kind = DESIRED_START;
            d.reachability = g->running.reachability;
        }
        break;
    case GROUP_STOPPING:
        if (n->is_member)
            d.kind = DESIRED_STOP;
        break;
    case GROUP_CLOSED:
        d.kind = DESIRED_CLOSED;
        d.grace_ns = g->leadership.ruined ? g->leadership.ruin_grace_ns : UINT64_MAX;
        break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (d.kind == DESIRED_IDLE)
        desire_idle(g, n, &d);
    if (d.kind == DESIRED_STOP || d.kind == DESIRED_CLOSED)
        desire_end(g, &d);
    *ret = d;
    return true;
}

/* ---- the machine, and a group that it takes over ---- */

/* How often the status is sent to all nodes: less often, the more nodes there are. */
#define STATUS_INTERVAL_NS (200 * NS_PER_MS)
#define STATUS_PER_NODE_NS (500 * NS_PER_US)

static bool makes_sense(const struct group_config *c) {
    bool idle_is_right = c->leadership == LEADERSHIP_ARBITER && c->handover == NULL;
    return c->epoch > 0 && c->waiter_probe_ns > 0 && (!c->idle || idle_is_right) &&
           rdzv_settings_make_sense(&c->rdzv);
}

/* The last leader was lost; or it left: then it has sent a reason with its name. */
static void open_incident_of_leader(struct group *g) {
    const struct node *n = roster_find(&g->roster, g->config.old_leader);
    const char *name = n != NULL ? n->info.host : "", *why = g->config.stop_reason;
    char begins[RDZV_HOST_MAX + 8];
    if (!g->formation.started_once)
        return;
    (void)snprintf(begins, sizeof begins, "node %s ", name);
    bool left = why != NULL && strncmp(why, begins, strlen(begins)) == 0;
    group_open_incident(g, left ? INCIDENT_NODE_LEFT : INCIDENT_NODE_LOST, name,
                        g->config.old_leader,
                        g->config.lost_ns != 0 ? MIN2(g->config.lost_ns, g->now_ns) : g->now_ns);
    if (left)
        (void)snprintf(g->reason, sizeof g->reason, "%s", why);
    else
        (void)snprintf(g->reason, sizeof g->reason, "the leader%s%s was lost",
                       name[0] != '\0' ? " on node " : "", name);
}

/* Takes over the last leader's group: its members are expected back, and are probed. */
static void inherit(struct group *g, const struct handover *e) {
    formation_inherit(&g->formation, e);
    group_keep_counters(g, e->restarts_used, e->losses);
    if (e->log_nonce != 0)
        g->config.log_nonce = e->log_nonce;
    g->gathering.lost_somebody = g->formation.formed_once;
    g->history = e->history;
    /* the rest of the job's time: the last leader's group ran */
    uint64_t counted_ns = 0;
    for (int phase = 0; phase < JOB_PHASE_COUNT; phase++)
        counted_ns += e->history.phase_ns[phase];
    if (g->config.job_ns > counted_ns)
        g->history.phase_ns[JOB_PHASE_RUNNING] += g->config.job_ns - counted_ns;
    for (uint32_t i = 0; i < e->n_members; i++) {
        const struct handover_member *m = &e->members[i];
        if (m->incarnation == 0 || roster_find(&g->roster, m->incarnation) != NULL)
            continue;
        struct node_info info = {
            .incarnation = m->incarnation, .listener_port = m->port, .nproc = 1, .node_rank = -1};
        (void)snprintf(info.addr, sizeof info.addr, "%s", m->addr);
        (void)snprintf(info.host, sizeof info.host, "%s", m->host);
        struct node *n = roster_add(&g->roster, &info);
        n->reached = true; /* by the leader that sent its address in the handover */
        n->contact_ns = g->now_ns;
        /* All lost the old leader at about the same time, and are on their way. */
        uint64_t on_way = m->incarnation == g->config.old_leader ? 0 : g->config.rdzv.margin_ns;
        n->lost_at_ns = MAX2(g->config.absent_until_ns, g->now_ns + on_way);
        if (i < e->n_order)
            formation_await(&g->formation, n);
        n->report.state = NODE_RUNNING; /* assumed, because it may still run */
        memcpy(n->report.domain, m->domain, sizeof n->report.domain);
        n->report.generation = (struct generation){0, 0};
        group_watch_inherited(g, n);
    }
    open_incident_of_leader(g);
}

int group_new(const struct group_config *config, uint64_t now_ns, struct group **ret) {
    if (!makes_sense(config))
        return -EINVAL;
    struct group *g = xcalloc(1, sizeof *g);
    g->config = *config;
    g->config.handover = NULL;
    g->need = (config->rdzv.min_nodes + config->rdzv.node_unit - 1) / config->rdzv.node_unit *
              config->rdzv.node_unit;
    g->leadership.epoch = config->epoch;
    g->leadership.idle = config->idle;
    g->state = GROUP_GATHERING;
    g->now_ns = g->gathering.since_ns = g->since_ns = g->begun_ns = now_ns;
    g->due_ns = TIME_NEVER;
    g->gathering.enough_since_ns = TIME_NEVER;
    g->cause.settle_ns = TIME_NEVER;
    g->liveness.due_ns = TIME_NEVER;
    list_init(&g->liveness.heard);
    list_init(&g->liveness.watched);
    g->gathering.not_before_ns = config->not_before_ns;
    group_add_own_program(g);
    roster_init(&g->roster, config->leader_incarnation);
    if (config->rdzv.unit_of == UNIT_OF_DOMAIN && !config->static_ranks)
        g->roster.unit = config->rdzv.node_unit;
    g->roster.sick_are_fit = config->rdzv.sick_nodes == SICK_NODES_REPORT;
    if (config->handover != NULL) {
        inherit(g, config->handover);
        g->config.stop_reason = NULL;
        g->status.next_ns = now_ns + STATUS_INTERVAL_NS; /* the nodes are on their way */
    }
    *ret = g;
    return 0;
}

void group_free(struct group *g) {
    if (g == NULL)
        return;
    roster_fini(&g->roster);
    formation_fini(&g->formation);
    drop_kept(g);
    free(g->effects.kept);
    free(g->programs);
    free(g->policy.hosts);
    free(g);
}

void group_update_fini(struct group_update *u) {
    free(u->effects);
    *u = (struct group_update){0};
}

/* ---- messages of nodes ---- */

static void consider_report(struct group *g, const struct node *n, const struct report *report) {
    char name[RDZV_HOST_MAX], text[RDZV_REASON_MAX];
    bool wants_out = report->leaving && report->state != NODE_FINISHED;
    enum incident_class class;
    node_name(n, name);
    if (report->has_failure && !(wants_out && failure_may_end_node(&report->failure))) {
        group_stop_for_failure(g);
        return;
    }
    if (wants_out) {
        group_forget_cause(g);
        node_leaving_text(n, text);
        class = INCIDENT_NODE_LEFT;
    } else if (n->report.unusable != NULL) {
        node_unusable_text(n, text);
        class = INCIDENT_HEALTH;
    } else if (report->state == NODE_STOPPED) {
        (void)snprintf(text, sizeof text,
                       "node %s had to stop: it received no message from the leader "
                       "within its lease",
                       name);
        class = INCIDENT_NODE_LOST;
    } else {
        return;
    }
    group_stop_for_node(g, class, name, n->info.incarnation, g->now_ns, text);
}

/* The leader's own node reports that itself. */
static void report_unusable(struct group *g, const struct node *n) {
    char text[RDZV_REASON_MAX];
    if (g->state != GROUP_STOPPING || n->info.incarnation == g->config.leader_incarnation)
        return;
    node_unusable_text(n, text);
    group_incident(g, text);
}

/* A node that was excluded once stays excluded. */
static void keep_report(struct node *n, const struct report *report) {
    struct node_status *kept = &n->report;
    kept->state = report->state;
    kept->generation = report->generation;
    kept->leaving = report->leaving;
    (void)node_set_text(&kept->leaving_why, report->leaving_why);
    kept->finished = report->finished;
    kept->at_safe_point = report->at_safe_point;
    kept->reachability = report->reachability;
    (void)node_set_text(&kept->unusable, report->unusable);
    memcpy(kept->domain, report->domain, sizeof kept->domain);
    memcpy(kept->fabric, report->fabric, sizeof kept->fabric);
    if (node_set_text(&kept->sick, report->sick))
        n->sick_logged = SICK_NOT_LOGGED;
    kept->xid = report->xid;
    kept->gpu = report->gpu;
    if (report->excluded || !kept->excluded) {
        kept->excluded = report->excluded;
        (void)node_set_text(&kept->excluded_why, report->excluded_why);
    }
}

static void on_report(struct group *g, struct node *n, const struct report *report) {
    /* A report on an older group, or one that arrives late from an old connection. */
    if (generation_compare(report->generation, n->report.generation) < 0)
        return;
    bool was_unusable = n->report.unusable != NULL, was_leaving = n->report.leaving;
    keep_report(n, report);
    if (n->report.unusable != NULL && !was_unusable)
        report_unusable(g, n);
    group_recount(g, n);
    group_on_steps(g, report);
    if (report->at_safe_point)
        g->running.safe_node = n->info.incarnation;
    g->status.dirty = true;
    group_keep_counters(g, report->restarts_used, report->losses);

    bool about_now =
        n->is_member && generation_compare(report->generation, g->formation.generation) == 0;
    if (!about_now || g->state == GROUP_GATHERING || g->state == GROUP_CLOSED)
        return;
    /* While the group stops for another reason, failures are a consequence of that. */
    bool counts = report->has_failure && (g->state != GROUP_STOPPING || group_cause_is_pending(g));
    bool better = counts && group_add_failure(g, n, &report->failure);
    if (g->state != GROUP_STOPPING)
        consider_report(g, n, report);
    else if (better)
        group_better_cause(g);
    if (report->leaving && g->state == GROUP_STOPPING && !g->stopping.wished)
        group_leaves_meanwhile(g, n, !was_leaving);
}

static void on_join(struct group *g, const struct group_event *ev) {
    struct node *n = roster_find(&g->roster, ev->info->incarnation);
    bool back = n != NULL && n->joined_ns == 0, is_new = n == NULL;
    if (n == NULL)
        n = group_admit(g, ev->info, ev->program);
    if (n == NULL)
        return;
    if (n->joined_ns == 0) {
        n->info = *ev->info;
        group_add_program(g, n, ev->program);
        n->known_ns = g->now_ns;
        n->lost_at_ns = TIME_NEVER;
        n->report.state = NODE_JOINED; /* its own report follows */
        struct timeline_entry *entry = group_add_to_timeline(
            g, TIMELINE_NODE_JOINED, n, back ? "a member of the last group" : NULL);
        memcpy(entry->domain, ev->report->domain, sizeof entry->domain);
        memcpy(entry->fabric, ev->report->fabric, sizeof entry->fabric);
    }
    n->connected = true;
    n->joined_ns = g->now_ns;
    group_contact(g, n);
    if (!generation_is_none(ev->report->generation) && !g->formation.formed_once) {
        g->formation.formed_once = g->gathering.lost_somebody =
            true; /* it belongs to a group that another leader formed */
        g->gathering.since_ns = g->now_ns;
    }
    on_report(g, n, ev->report);
    if (is_new && group_host_is_excluded(g, n->info.host) && !n->report.excluded)
        group_exclude(g, n, "an agent of its host was excluded before");
    group_recount(g, n);
    if (g->plan.named.epoch != 0) /* spares need the names, too, for when the leader is lost */
        (void)group_emit(g, GROUP_EFFECT_NAME, n->info.incarnation);
    group_notify(g, n);
    g->status.dirty = true;
}

static void on_renew(struct group *g, struct node *n, const struct renew *renew) {
    group_contact(g, n);
    if (renew->epoch <= g->leadership.epoch && renew->leader_clock_ns <= g->now_ns)
        n->echo_ns = MAX2(n->echo_ns, renew->leader_clock_ns);
    node_clock_renew(&n->clock, renew, g->now_ns);
    n->stalls = renew->stalls;
    n->longest_stall_ns = renew->longest_stall_ns;
    group_send_lease(g, n);
}

static void on_disconnect(struct group *g, struct node *n) {
    if (!n->connected)
        return;
    n->connected = false;
    n->cut_ns = g->now_ns;
    group_watch_node(g, n);
    g->status.dirty = true;
}

static void on_store(struct group *g, const struct group_event *ev) {
    bool current =
        generation_compare(ev->generation, g->formation.generation) == 0 && g->forming.store_wanted;
    if (!current || g->state == GROUP_GATHERING || g->state == GROUP_CLOSED) {
        /* The store was opened too late: nobody will use it. */
        if (ev->store_port != 0)
            group_emit(g, GROUP_EFFECT_STORE_CLOSE, 0)->generation = ev->generation;
        return;
    }
    g->forming.store_wanted = false;
    g->forming.store_open = ev->store_port != 0;
    if (g->state != GROUP_FORMING)
        return; /* a member was lost meanwhile; the end of STOPPING closes the store */
    if (!g->forming.store_open) {
        char text[RDZV_REASON_MAX];
        (void)snprintf(text, sizeof text, "the workers' store could not be opened: %.1900s",
                       ev->reason == NULL ? "no reason given" : ev->reason);
        group_close_failed(g, text);
        return;
    }
    (void)snprintf(g->forming.store_host, sizeof g->forming.store_host, "%s", ev->store_host);
    g->forming.store_port = ev->store_port;
    g->forming.sent = true;
    g->forming.deadline_ns = g->now_ns + g->config.form_timeout_ns;
    group_notify_members(g);
}

static void emit_status(struct group *g) {
    if (!g->status.dirty || g->now_ns < g->status.next_ns || g->state != GROUP_GATHERING)
        return;
    g->status.dirty = false;
    g->status.next_ns =
        g->now_ns + STATUS_INTERVAL_NS + MAX2(g->roster.n, (size_t)g->need) * STATUS_PER_NODE_NS;
    if (!group_is_leaving(g)) /* else the next leader waits for nodes */
        (void)group_emit(g, GROUP_EFFECT_STATUS, 0);
}

static uint64_t next_deadline(const struct group *g) {
    uint64_t t = TIME_NEVER;
    if (g->leadership.over)
        return t;
    switch (g->state) {
    case GROUP_GATHERING: t = group_gather_deadline(g); break;
    case GROUP_FORMING: t = g->forming.deadline_ns; break;
    case GROUP_STOPPING: t = g->stopping.sending ? g->now_ns + 1 : g->cause.settle_ns; break;
    case GROUP_CLOSED:
        t = g->closed.record >= OUTCOME_DELIVERED ? TIME_NEVER : g->closed.deadline_ns;
        break;
    case GROUP_RUNNING: break;
    case GROUP_STATE_COUNT: assert_not_reached();
    }
    if (t <= g->now_ns)
        t = TIME_NEVER; /* it has passed without effect; only an event can change anything now */
    if (g->state == GROUP_GATHERING && g->status.dirty)
        t = MIN2(t, g->status.next_ns);
    t = MIN2(t, group_watch_deadline(g));
    return MIN2(t, group_leadership_deadline(g));
}

/* Other kinds change nothing: REPORT, RENEW and LEAVE are events. */
static void on_message(struct group *g, struct node *n, enum wire_kind kind, const void *body) {
    if (kind == WIRE_ECHO)
        group_on_echo(g, n, body);
    else if (kind == WIRE_WARM)
        group_on_warm(g, n, body);
}

static bool is_about_node(enum group_event_kind kind) {
    return kind >= GROUP_EVENT_REPORT && kind <= GROUP_EVENT_MESSAGE;
}

static void dispatch(struct group *g, const struct group_event *ev) {
    struct node *n = is_about_node(ev->kind) ? roster_find(&g->roster, ev->node) : NULL;
    if (is_about_node(ev->kind) && n == NULL)
        return;
    switch (ev->kind) {
    case GROUP_EVENT_TIME: g->stopping.sending = false; break;
    case GROUP_EVENT_JOIN: on_join(g, ev); break;
    case GROUP_EVENT_REPORT: on_report(g, n, ev->report); break;
    case GROUP_EVENT_RENEW: on_renew(g, n, &ev->renew); break;
    case GROUP_EVENT_LEAVE: group_remove_node(g, n, "has left", REMOVED_LEFT); break;
    case GROUP_EVENT_DISCONNECT: on_disconnect(g, n); break;
    case GROUP_EVENT_PROBE: group_on_probe(g, n, ev->probe); break;
    case GROUP_EVENT_MESSAGE: on_message(g, n, ev->message, ev->body); break;
    case GROUP_EVENT_STORE: on_store(g, ev); break;
    case GROUP_EVENT_STOP: group_stop_for_operator(g, ev->reason, ev->halted); break;
    case GROUP_EVENT_ARBITER: group_on_arbiter(g, ev->answer); break;
    case GROUP_EVENT_TOUCHED: group_on_touched(g, ev->touched_ns); break;
    case GROUP_EVENT_HIGHER_EPOCH: group_on_higher_epoch(g, ev->epoch); break;
    case GROUP_EVENT_RESIGN: group_on_resign(g); break;
    case GROUP_EVENT_COMMAND: group_on_command(g, ev->command); break;
    case GROUP_EVENT_EXPECT: g->gathering.expected = ev->n_nodes; break;
    case GROUP_EVENT_HANG: group_on_hang(g, ev); break;
    case GROUP_EVENT_QUIET: g->quiet_ns += ev->quiet_ns; break;
    case GROUP_EVENT_KIND_COUNT: assert_not_reached();
    }
}

/* Unless the next group is sent to them in the same step. */
static void notify_idle(struct group *g) {
    if (g->gathering.idle_unsent && g->state == GROUP_GATHERING)
        group_notify_all(g);
    g->gathering.idle_unsent = false;
}

/* A safe point holds only for one step: a node that comes later waits for the next one. */
static void pass_safe_point(struct group *g) {
    struct node *n = roster_find(&g->roster, g->running.safe_node);
    g->running.safe_node = 0;
    if (n == NULL)
        return;
    n->report.at_safe_point = false;
    group_recount(g, n);
}

void group_step(struct group *g, const struct group_event *event, struct group_update *ret) {
    assert(event->now_ns >= g->now_ns);
    g->now_ns = event->now_ns;
    g->effects.update = ret;
    ret->n_effects = 0;
    drop_kept(g);

    if (!g->leadership.over) {
        group_forgive_own_sleep(g);
        group_leadership_begin(g);
        dispatch(g, event);
    }
    if (!g->leadership.over)
        group_leadership_time(g);
    if (!g->leadership.over) {
        group_watch(g);
        group_successors_time(g);
        group_advance(g);
        notify_idle(g);
        emit_status(g);
        group_resign_time(g);
    }
    pass_safe_point(g);
    ret->deadline_ns = g->due_ns = next_deadline(g);
    g->effects.update = NULL;
    group_check(g);
}

void group_config_default(struct group_config *c) {
    *c = (struct group_config){
        .rdzv = RDZV_SETTINGS_DEFAULT,
        .epoch = 1,
        .form_timeout_ns = 60 * NS_PER_S,
        .settle_ns = 500 * NS_PER_MS,
        .waiter_probe_ns = 10 * NS_PER_MS,
    };
}
