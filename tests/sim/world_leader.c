/* The leader's side, on host 0: what rendezvous/server and the launcher do around `struct group`. */
#include <string.h>

#include "world_priv.h"

static void obey(struct world *w);

static struct conn *conn_of(struct world *w, uint64_t incarnation) {
    struct life *l = node_of(w, incarnation);
    for (struct conn *c = w->conns; c != NULL; c = c->next)
        if (c->joined && c->leader_open && c->life == l)
            return c;
    return NULL;
}

/* The first word to a node that the group did not refuse. */
static void welcome(struct world *w, uint64_t node) {
    for (size_t i = 0; i < w->update.n_effects; i++)
        if (w->update.effects[i].kind == GROUP_EFFECT_REFUSE && w->update.effects[i].node == node)
            return;
    struct conn *c = conn_of(w, node);
    if (c == NULL)
        return;
    struct word *word = word_new(WORD_WELCOME);
    word->leader = w->lives[0].incarnation;
    net_to_node(w, c, word);
}

static void group_event(struct world *w, struct group_event *e) {
    if (w->group == NULL || w->failure[0] != '\0')
        return;
    e->now_ns = world_clock(w, 0);
    w->coverage->group_events[e->kind]++;
    enum group_state before = group_state(w->group);
    group_step(w->group, e, &w->update);
    oracle_group_stepped(w, before);
    if (e->kind == GROUP_EVENT_JOIN)
        welcome(w, e->info->incarnation);
    obey(w);
}

void leader_new(struct world *w) {
    struct group_config config = w->p.group;
    config.leader_incarnation = w->lives[0].incarnation;
    if (w->p.mutant == MUTANT_NO_MARGIN)
        config.margin_ns = 0;
    if (w->p.mutant == MUTANT_TOO_MANY)
        config.max_nodes++;
    if (group_new(&config, world_clock(w, 0), &w->group) < 0) {
        world_broken(w, "group_new refuses the configuration");
        return;
    }
    group_event(w, &(struct group_event){.kind = GROUP_EVENT_TIME});
}

/* ---- words ---- */

static void on_join(struct world *w, struct conn *c, struct word *word) {
    struct conn *older = conn_of(w, c->life->incarnation);
    if (older != NULL && older != c)
        net_close_leader(w, older);
    c->joined = true;
    oracle_report_heard(w, c->life, &word->report);
    group_event(w, &(struct group_event){
                       .kind = GROUP_EVENT_JOIN, .info = &word->info, .report = &word->report});
}

/* Wrong rules about reports; returns the report that the leader gets to see. */
static void mutate_report(struct world *w, struct life *l, struct report *r) {
    if (w->group == NULL)
        return;
    struct generation now = group_generation(w->group);
    if (w->p.mutant == MUTANT_STALE_FAILURE && r->has_failure && generation_compare(r->generation, now) < 0)
        r->generation = now;
    if (w->p.mutant == MUTANT_FAILED_IS_STOPPED && r->state == NODE_FAILED)
        r->state = NODE_STOPPED;
    if (w->p.mutant == MUTANT_RAW_CLOCKS && r->has_failure) /* undoes what the leader will do */
        r->failure.at_ns += world_clock(w, l->host) - world_clock(w, 0);
    if (w->p.mutant == MUTANT_CHARGE_TWICE)
        r->restarts_used += r->has_failure;
}

void leader_word(struct world *w, struct conn *c, struct word *word) {
    uint64_t node = c->life->incarnation;
    if (word->kind == WORD_END) {
        bool joined = c->joined;
        /* Its own end goes too; what the node has sent since is answered by a reset. */
        c->leader_open = c->joined = false;
        if (joined)
            group_event(w, &(struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = node});
        if (joined && w->p.mutant == MUTANT_DISCONNECT_IS_GONE)
            group_event(w, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = node, .probe = PROBE_GONE});
        return;
    }
    if (word->kind == WORD_JOIN || word->kind == WORD_REPORT)
        mutate_report(w, c->life, &word->report);
    if (word->kind == WORD_JOIN) {
        on_join(w, c, word);
        return;
    }
    if (!c->joined)
        return;
    if (word->kind == WORD_REPORT) {
        oracle_report_heard(w, c->life, &word->report);
        group_event(w, &(struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &word->report});
    } else if (word->kind == WORD_RENEW) {
        group_event(w, &(struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = word->renew});
    } else if (word->kind == WORD_LEAVE) {
        group_event(w, &(struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node});
    }
}

/* ---- effects ---- */

/* The leader is made to believe that the node has acknowledged: see leader_item(). */
static void pretend_ack(struct world *w, uint64_t node, struct generation g) {
    struct item *it = world_plan(w, ITEM_FORGED_ACK, NULL, 0);
    it->version = node;
    it->generation = g;
}

static void tell(struct world *w, uint64_t node) {
    struct conn *c = conn_of(w, node);
    struct word *word = word_new(WORD_DESIRED);
    if (c == NULL || !group_desired(w->group, node, &word->desired)) {
        free(word);
        return;
    }
    struct desired *d = &word->desired;
    if (d->kind == DESIRED_CLOSED)
        oracle_closed_told(w, d);
    if (d->kind == DESIRED_FORM && w->p.mutant == MUTANT_SKIP_ACK)
        pretend_ack(w, node, d->generation);
    if (d->kind == DESIRED_FORM && w->p.mutant == MUTANT_WRONG_RANK && d->form.node_rank == 1)
        d->form.node_rank = d->form.first_rank = 0;
    world_trace(w, "leader tells %u.%u: %d of %u.%u %s", c->life->host, c->life->index, (int)d->kind,
                d->generation.epoch, d->generation.counter, d->reason);
    net_to_node(w, c, word);
}

static void refuse(struct world *w, const struct group_effect *e) {
    struct conn *c = conn_of(w, e->node);
    if (c == NULL)
        return;
    struct word *word = word_new(WORD_REFUSED);
    (void)snprintf(word->reason, sizeof word->reason, "%s", e->reason);
    net_to_node(w, c, word);
    net_close_leader(w, c);
}

static void obey_one(struct world *w, const struct group_effect *e) {
    struct conn *c;
    struct item *it;
    struct life *l;
    switch (e->kind) {
    case GROUP_EFFECT_TELL: tell(w, e->node); break;
    case GROUP_EFFECT_LEASE:
        c = conn_of(w, e->node);
        if (c != NULL) {
            struct word *word = word_new(WORD_LEASE);
            word->lease = e->lease;
            net_to_node(w, c, word);
        }
        break;
    case GROUP_EFFECT_PROBE:
    case GROUP_EFFECT_REACH:
        l = node_of(w, e->node);
        net_probe(w, l, true, &w->lives[0]);
        break;
    case GROUP_EFFECT_REFUSE: refuse(w, e); break;
    case GROUP_EFFECT_FORGET:
        c = conn_of(w, e->node);
        l = node_of(w, e->node);
        world_trace(w, "leader forgets %u.%u", l->host, l->index);
        world_mark(w, MARK_LOST, l->host);
        oracle_node_lost(w, l);
        if (c != NULL)
            net_close_leader(w, c);
        break;
    case GROUP_EFFECT_STORE_OPEN:
        for (unsigned i = 0; i < w->n_groups; i++)
            if (w->groups[i].store_open)
                world_broken(w, "the store of %u.%u is still open when another is opened",
                             w->groups[i].generation.epoch, w->groups[i].generation.counter);
        it = world_plan(w, ITEM_STORE, NULL, 1 + world_below(w, 2 * NS_PER_MS));
        it->generation = e->generation;
        break;
    case GROUP_EFFECT_STORE_CLOSE: {
        struct group_info *g = oracle_group(w, e->generation);
        if (g == NULL || !g->store_open)
            world_broken(w, "the store of %u.%u is closed, and was not open", e->generation.epoch,
                         e->generation.counter);
        else
            g->store_open = false;
        break;
    }
    case GROUP_EFFECT_STATUS: {
        struct rdzv_status s;
        group_status(w->group, world_clock(w, 0), &s);
        if (s.n_names > RDZV_STATUS_NAMES_MAX || s.n_missing > RDZV_STATUS_NAMES_MAX)
            world_broken(w, "the status names more nodes than it holds");
        break;
    }
    case GROUP_EFFECT_INCIDENT: world_trace(w, "incident: %s", e->reason); break;
    case GROUP_EFFECT_DONE:
        if (w->group_done)
            world_broken(w, "DONE a second time");
        w->group_done = true;
        leader_exit_if_done(w);
        break;
    case GROUP_EFFECT_NAME:
    case GROUP_EFFECT_ARBITER:
    case GROUP_EFFECT_TOUCH:
    case GROUP_EFFECT_DEPOSED:
    case GROUP_EFFECT_ANSWER:
    case GROUP_EFFECT_NOTE: break;
    case GROUP_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static void obey(struct world *w) {
    uint64_t deadline = w->update.deadline_ns;
    for (size_t i = 0; i < w->update.n_effects; i++) {
        w->coverage->group_effects[w->update.effects[i].kind]++;
        obey_one(w, &w->update.effects[i]);
    }
    w->group_timer_version++;
    if (deadline != TIME_NEVER) {
        uint64_t at = world_when_clock(w, 0, deadline);
        world_plan(w, ITEM_GROUP_TIMER, NULL, at > w->now_ns ? at - w->now_ns : 0)->version =
            w->group_timer_version;
    }
}

static void store_answers(struct world *w, const struct item *it) {
    struct group_event e = {.kind = GROUP_EVENT_STORE, .generation = it->generation};
    struct group_info *g = oracle_group(w, it->generation);
    if (w->store_fails) {
        w->store_fails = false;
        e.reason = "no free port";
    } else {
        e.store_host = "10.0.0.1";
        e.store_port = ++w->next_port;
        if (g != NULL) {
            g->store_open = true;
            g->store_port = e.store_port;
        }
    }
    group_event(w, &e);
}

void leader_item(struct world *w, struct item *it) {
    if (it->kind == ITEM_LEADER_EXIT) {
        leader_exit_if_done(w);
    } else if (w->group == NULL) {
        return;
    } else if (it->kind == ITEM_GROUP_TIMER) {
        if (it->version == w->group_timer_version)
            group_event(w, &(struct group_event){.kind = GROUP_EVENT_TIME});
    } else if (it->kind == ITEM_PROBE_NODE_ANSWER) {
        enum probe_result probe = it->probe;
        if (probe == PROBE_UNKNOWN && w->p.mutant == MUTANT_SILENT_IS_GONE)
            probe = PROBE_GONE;
        group_event(w, &(struct group_event){
                           .kind = GROUP_EVENT_PROBE, .node = it->life->incarnation, .probe = probe});
    } else if (it->kind == ITEM_FORGED_ACK) {
        struct report r = {.state = NODE_PREPARED, .generation = it->generation};
        group_event(w, &(struct group_event){.kind = GROUP_EVENT_REPORT, .node = it->version, .report = &r});
    } else {
        store_answers(w, it);
    }
}

void leader_operator_stop(struct world *w) {
    w->operator_stop = true;
    group_event(w, &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = "the operator asked"});
}

void leader_dies(struct world *w) {
    group_free(w->group);
    w->group = NULL;
    for (struct conn *c = w->conns; c != NULL; c = c->next)
        net_close_leader(w, c);
}

/* The leader's agent stays until its node and its group have both ended. */
void leader_exit_if_done(struct world *w) {
    struct life *l = &w->lives[0];
    if (w->group == NULL || !w->group_done || !l->process || member_state(l->member) != MEMBER_ENDED)
        return;
    node_agent_dies(w, l, 0);
}
