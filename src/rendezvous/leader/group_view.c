/* What people see of the group: the status, and what operators ask for and get. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

void group_status(const struct group *g, uint64_t now_ns, struct rdzv_status *ret) {
    size_t usable = roster_usable(&g->roster, TALLY_CANDIDATE);
    *ret = (struct rdzv_status){
        .min_nodes = g->need,
        .max_nodes = g->config.rdzv.max_nodes,
        .present = (uint32_t)g->roster.tally[TALLY_CANDIDATE],
        .usable = (uint32_t)usable,
        .last_call = g->gathering.enough_since_ns != TIME_NEVER,
        .wait_ns = TIME_NEVER,
    };
    ret->spares = ret->present - (uint32_t)MIN2(usable, (size_t)g->config.rdzv.max_nodes);
    uint64_t deadline = g->state == GROUP_GATHERING ? group_gather_deadline(g) : TIME_NEVER;
    if (deadline != TIME_NEVER)
        ret->wait_ns = deadline > now_ns ? deadline - now_ns : 0;
    roster_status(&g->roster, &g->config, ret);
    if (g->formation.started_once && g->gathering.lost_somebody &&
        g->gathering.last_lost[0] != '\0' && ret->n_missing < RDZV_STATUS_NAMES_MAX)
        (void)snprintf(ret->missing[ret->n_missing++], RDZV_HOST_MAX, "%s", g->gathering.last_lost);
}

/* ---- operators ---- */

static void answer(struct group *g, bool ok, const char *text) {
    struct group_effect *e = group_emit(g, GROUP_EFFECT_ANSWER, 0);
    e->ok = ok;
    group_set_reason(g, e, text);
}

/* Finds a node by name or incarnation. *ret_several: several nodes have this name. */
static struct node *find_named(const struct group *g, const char *name, bool *ret_several) {
    char text[RDZV_HOST_MAX];
    struct node *found = NULL;
    *ret_several = false;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (n->joined_ns == 0)
            continue;
        (void)snprintf(text, sizeof text, "%016" PRIx64, n->info.incarnation);
        if (strcmp(text, name) == 0)
            return n;
        node_name(n, text);
        if (strcmp(text, name) != 0)
            continue;
        *ret_several = found != NULL;
        found = n;
    }
    return found;
}

static void on_exclude(struct group *g, const struct command *c) {
    char text[3 * RDZV_HOST_MAX];
    bool several;
    struct node *n = find_named(g, c->node, &several);
    if (several) {
        (void)snprintf(
            text, sizeof text,
            "several nodes have the name \"%s\"; give the ID that \"muster status\" shows",
            c->node);
        answer(g, false, text);
        return;
    }
    if (n == NULL) {
        (void)snprintf(text, sizeof text,
                       "there is no node \"%s\"; \"muster status\" shows the names", c->node);
        answer(g, false, text);
        return;
    }
    bool member = n->is_member && group_is_live(g);
    char name[RDZV_HOST_MAX];
    node_name(n, name);
    const char *why = c->reason[0] != '\0' ? c->reason : "an operator asked";
    group_exclude(g, n, why);
    (void)snprintf(text, sizeof text, "node %s is excluded%s", name,
                   member ? ", and leaves the group" : "");
    answer(g, true, text);
    if (member) {
        (void)snprintf(text, sizeof text, "node %s was excluded: %s", name, why);
        group_stop_for_node(g, INCIDENT_EXCLUDED, name, n->info.incarnation, g->now_ns, text);
    }
}

static void on_grow(struct group *g) {
    if (g->state != GROUP_RUNNING) {
        g->running.grow_asked = false;
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED
                   ? "the job is over"
                   : "the next group includes all nodes that have joined by then");
    } else if (group_larger(g) == 0) {
        answer(g, false,
               g->formation.n_members >= g->config.rdzv.max_nodes
                   ? "the group already has its largest number of nodes"
                   : "no waiting node would make the group larger");
    } else {
        g->running.grow_asked = true;
        answer(g, true, "the group re-forms with the waiting nodes");
    }
}

void group_on_command(struct group *g, const struct command *c) {
    char text[sizeof c->reason + 64];
    switch (c->kind) {
    case COMMAND_EXCLUDE: on_exclude(g, c); break;
    case COMMAND_GROW: on_grow(g); break;
    case COMMAND_STOP:
        answer(g, g->state != GROUP_CLOSED,
               g->state == GROUP_CLOSED ? "the job is over already" : "the job is being stopped");
        (void)snprintf(text, sizeof text, "an operator stopped the job%s%s",
                       c->reason[0] != '\0' ? ": " : "", c->reason);
        group_stop_for_operator(g, text, true);
        break;
    case COMMAND_STATUS: /* handled by the server */
    case COMMAND_STACKS:
    case COMMAND_LEAVE: /* handled by the agent */
    case COMMAND_KIND_COUNT: answer(g, false, "the leader can't carry out this command"); break;
    }
}

/* Inherited nodes are not shown before they have come back. */
static bool is_shown(const struct node *n) { return n->joined_ns != 0; }

static enum overview_place place_of(const struct group *g, const struct node *n) {
    if (n->is_member)
        return PLACE_MEMBER;
    if (n->report.excluded || n->report.unusable != NULL)
        return PLACE_EXCLUDED;
    if (n->report.leaving)
        return PLACE_LEAVING;
    if (node_is_sick(&g->roster, n))
        return PLACE_SICK;
    return g->formation.n_members >= g->config.rdzv.max_nodes ? PLACE_SPARE : PLACE_WAITING;
}

/* Indexes phase_ns by the state. */
static_assert((int)JOB_PHASE_STOPPING == (int)GROUP_STOPPING - GROUP_GATHERING, "in this order");

void group_history(const struct group *g, uint64_t now_ns, struct job_history *ret) {
    *ret = g->history;
    if (g->state != GROUP_CLOSED)
        ret->phase_ns[g->state - GROUP_GATHERING] += now_ns - g->since_ns;
    job_history_add_quiet(ret, g->quiet_ns);
}

void group_overview(const struct group *g, uint64_t now_ns, struct overview *ret) {
    struct last_event event = g->last_event;
    if (g->state == GROUP_STOPPING)
        group_stop_event(g, &event);
    *ret = (struct overview){
        .state = g->state,
        .since_ns = now_ns - g->since_ns,
        .epoch = g->leadership.epoch,
        .generation = g->formation.generation,
        .running_ns = g->running.last_start_ns == 0 ? 0 : now_ns - g->running.last_start_ns,
        .leader = g->config.leader_incarnation,
        .min_nodes = g->config.rdzv.min_nodes,
        .max_nodes = g->config.rdzv.max_nodes,
        .node_unit = g->config.rdzv.node_unit,
        .n_members = (uint32_t)g->formation.n_members,
        .world_size = g->formation.n_members == 0 ? 0 : g->formation.world_size,
        .restarts_used = g->policy.restarts_used,
        .max_restarts = g->config.rdzv.max_restarts,
        .losses = g->policy.losses,
        .job_ns = group_job_ns(g, now_ns),
        .incident_ns = now_ns - event.at_ns,
        .restart_ns = event.restart_ns,
        .outcome = group_outcome(g),
    };
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (!is_shown(n))
            continue;
        enum overview_place place = place_of(g, n);
        ret->n_nodes++;
        ret->n_spares += place == PLACE_SPARE;
        ret->n_excluded += place == PLACE_EXCLUDED;
        if (n->info.incarnation == g->config.leader_incarnation)
            memcpy(ret->leader_host, n->info.host, sizeof ret->leader_host);
    }
    for (uint32_t i = 0; i < g->plan.named.n; i++)
        ret->successors[i] = g->plan.named.list[i].incarnation;
    memcpy(ret->incident, event.text, sizeof ret->incident);
    group_history(g, now_ns, &ret->history);
    memcpy(ret->command, g->config.program.shown, sizeof ret->command);
    memcpy(ret->endpoint, g->config.endpoint, sizeof ret->endpoint);
    if (g->state == GROUP_STOPPING || g->state == GROUP_CLOSED)
        (void)snprintf(ret->reason, sizeof ret->reason, "%.500s", g->reason);
}

static const char *text_of(const char *text) { return text != NULL ? text : ""; }

static void describe(const struct group *g, const struct node *n, uint64_t now_ns,
                     struct overview_node *out) {
    *out = (struct overview_node){
        .incarnation = n->info.incarnation,
        .place = place_of(g, n),
        .state = n->report.state,
        .connected = n->connected,
        .silent_ns = now_ns - n->contact_ns,
        .nproc = n->info.nproc,
        .pid = n->info.pid,
        .since_ns = now_ns - n->known_ns,
        .stalls = n->stalls,
        .longest_stall_ns = n->longest_stall_ns,
    };
    node_name(n, out->name);
    memcpy(out->addr, n->info.addr, sizeof out->addr);
    memcpy(out->domain, n->report.domain, sizeof out->domain);
    memcpy(out->fabric, n->report.fabric, sizeof out->fabric);
    if (n->is_member) {
        out->node_rank = n->place.node_rank;
        out->first_rank = n->place.first_rank;
    }
    char sick[NODE_SICK_TEXT_MAX];
    node_sick_text(n, sick);
    const char *why = n->report.excluded           ? text_of(n->report.excluded_why)
                      : n->report.unusable != NULL ? n->report.unusable
                                                   : sick;
    (void)snprintf(out->why, sizeof out->why, "%.120s", why);
    out->has_warm = n->warm != NULL;
    if (n->warm != NULL)
        out->warm = *n->warm;
}

size_t group_overview_nodes(const struct group *g, uint64_t now_ns, struct overview_node *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < g->formation.n_members; i++)
        describe(g, g->formation.members[i], now_ns, &out[n_out++]);
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        if (!n->is_member && is_shown(n))
            describe(g, n, now_ns, &out[n_out++]);
    return n_out;
}

static const char *const note_names[TIMELINE_KIND_COUNT] = {
    [TIMELINE_LEADS] = "leads",
    [TIMELINE_NODE_JOINED] = "node_joined",
    [TIMELINE_NODE_LOST] = "node_lost",
    [TIMELINE_NODE_LEFT] = "node_left",
    [TIMELINE_NODE_EXCLUDED] = "node_excluded",
    [TIMELINE_WORKER_FAILED] = "worker_failed",
    [TIMELINE_HANG] = "hang",
    [TIMELINE_STOPPING] = "stopping",
    [TIMELINE_STOPPED] = "stopped",
    [TIMELINE_FORMED] = "formed",
    [TIMELINE_STARTED] = "started",
    [TIMELINE_SUCCESSORS] = "successors",
    [TIMELINE_BEAT_PAUSED] = "beat_paused",
    [TIMELINE_CLOSED] = "closed",
    [TIMELINE_QUIET] = "quiet",
    [TIMELINE_RESUMED] = "resumed",
    [TIMELINE_FIRST_STEP] = "first_step",
    [TIMELINE_WARM] = "warm",
    [TIMELINE_INCIDENT] = "incident",
};
const char *timeline_kind_name(enum timeline_kind k) { return note_names[k]; }

enum group_state group_state(const struct group *g) { return g->state; }
struct generation group_generation(const struct group *g) {
    return g->formation.generation;
}
enum outcome group_outcome(const struct group *g) {
    return g->state == GROUP_CLOSED ? g->outcome : OUTCOME_NONE;
}
uint32_t group_restarts_used(const struct group *g) { return g->policy.restarts_used; }

size_t group_nodes(const struct group *g, uint64_t *out, size_t max) {
    size_t i = 0;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all) {
        if (i < max)
            out[i] = n->info.incarnation;
        i++;
    }
    return i;
}

size_t group_members(const struct group *g, uint64_t *out, size_t max) {
    for (size_t i = 0; i < g->formation.n_members && i < max; i++)
        out[i] = g->formation.members[i]->info.incarnation;
    return g->formation.n_members;
}

bool group_clock_offset(const struct group *g, uint64_t node, int64_t *ret_offset_ns,
                        uint64_t *ret_error_ns) {
    const struct node *n = roster_find(&g->roster, node);
    if (n == NULL || !n->clock.known)
        return false;
    *ret_offset_ns = n->clock.offset_ns;
    *ret_error_ns = n->clock.error_ns;
    return true;
}

const struct node_info *group_node_info(const struct group *g, uint64_t node) {
    const struct node *n = roster_find(&g->roster, node);
    return n == NULL ? NULL : &n->info;
}

void group_node_name(const struct group *g, uint64_t node, char out[RDZV_HOST_MAX]) {
    const struct node *n = roster_find(&g->roster, node);
    out[0] = '\0';
    if (n != NULL)
        node_name(n, out);
}

void group_check(const struct group *g) {
    assert(g->formation.n_members <= g->config.rdzv.max_nodes);
    assert(g->roster.n <= RDZV_NODES_MAX);
    assert(g->cause.state != CAUSE_IN_DOUBT || g->state == GROUP_STOPPING);
    assert(g->state != GROUP_GATHERING || (g->formation.n_members == 0 && !g->forming.store_open));
    assert(g->state != GROUP_RUNNING || (g->forming.sent && g->forming.store_open));
    assert(g->state != GROUP_CLOSED || (g->outcome != OUTCOME_NONE && !g->forming.store_open) ||
           g->closed.record == OUTCOME_GIVEN_UP);
    assert((g->closed.record == OUTCOME_OPEN) == (g->state != GROUP_CLOSED));
    assert(g->plan.named.n <= RDZV_SUCCESSORS_MAX &&
           g->formation.n_lease_pending <= g->formation.n_members);
    assert(g->plan.named.n == 0 || g->plan.named.epoch == g->leadership.epoch);
    assert(!g->leadership.idle || g->formation.generation.epoch < g->leadership.epoch);
    assert(g->roster.tally[TALLY_CANDIDATE] <= g->roster.tally[TALLY_HOPEFUL]);
    assert(g->roster.tally[TALLY_HOPEFUL] <= g->roster.n);
    assert(g->roster.whole[TALLY_HOPEFUL] <= g->roster.tally[TALLY_HOPEFUL]);
}
