/* The leaders' side: what rendezvous/server, the listener and the launcher do around a
 * `struct group`. */
#include <string.h>

#include "world_priv.h"

static void obey(struct world *w, struct life *l);

struct life *leader_now(const struct world *w) {
    const struct life *now = NULL;
    for (unsigned i = 0; i < w->n_lives; i++) {
        const struct life *l = &w->lives[i];
        if (l->lead.group != NULL && (now == NULL || l->lead.epoch >= now->lead.epoch))
            now = l;
    }
    return (struct life *)(uintptr_t)now;
}

struct life *leader_successor(struct world *w, unsigned nth) {
    struct life *l = leader_now(w);
    if (l == NULL)
        return NULL;
    const struct successors *s = group_successors(l->lead.group);
    return nth < s->n ? node_of(w, s->list[nth].incarnation) : NULL;
}

static struct conn *conn_of(struct world *w, const struct life *l, uint64_t incarnation) {
    for (struct conn *c = w->conns; c != NULL; c = c->next)
        if (c->joined && c->leader_open && c->leader == l && c->node->incarnation == incarnation)
            return c;
    return NULL;
}

/* The first word to a node that the group did not refuse. */
static void welcome(struct world *w, struct life *l, uint64_t node) {
    const struct group_update *u = &l->lead.update;
    for (size_t i = 0; i < u->n_effects; i++)
        if ((u->effects[i].kind == GROUP_EFFECT_REFUSE && u->effects[i].node == node) ||
            u->effects[i].kind == GROUP_EFFECT_DEPOSED)
            return;
    struct conn *c = conn_of(w, l, node);
    struct desired d;
    if (c == NULL || !group_desired(l->lead.group, node, &d))
        return;
    oracle_speaks(w, l, d.epoch);
    struct word *word = word_new(WORD_WELCOME);
    word->welcome.leader = l->incarnation;
    word->welcome.epoch = d.epoch;
    word->welcome.heartbeat_ns = w->p.member.rdzv.heartbeat_ns;
    word->welcome.margin_ns = w->p.member.rdzv.margin_ns;
    word->welcome.lease_ns = w->p.group.rdzv.lease_ns;
    net_to_node(w, c, word);
}

static void group_event(struct world *w, struct life *l, struct group_event *e) {
    if (l->lead.group == NULL || w->failure[0] != '\0')
        return;
    e->now_ns = world_clock(w, l->host);
    w->coverage->group_events[e->kind]++;
    enum group_state before = group_state(l->lead.group);
    uint32_t heard = e->report != NULL ? e->report->restarts_used : 0;
    group_step(l->lead.group, e, &l->lead.update);
    oracle_group_stepped(w, l, before, heard);
    if (e->kind == GROUP_EVENT_JOIN)
        welcome(w, l, e->info->incarnation);
    obey(w, l);
}

/* ---- a leader begins ---- */

static void mutate_config(const struct world *w, struct group_config *c, struct handover *e) {
    if (w->p.mutant == MUTANT_NO_MARGIN)
        c->rdzv.margin_ns = 0;
    if (w->p.mutant == MUTANT_END_AT_ONCE)
        c->settle_ns = 0;
    if (w->p.mutant == MUTANT_TOO_MANY)
        c->rdzv.max_nodes++;
    if (w->p.mutant == MUTANT_SPLIT_UNIT)
        c->rdzv.node_unit = 1;
    if (w->p.mutant == (c->rdzv.node_unit > 1 ? MUTANT_MIXED_UNIT : MUTANT_ANY_SPARE))
        c->rdzv.unit_of = UNIT_OF_ANY;
    if (w->p.mutant == MUTANT_SMALL_GROUP)
        c->rdzv.max_nodes = (c->rdzv.min_nodes + c->rdzv.node_unit - 1) / c->rdzv.node_unit * c->rdzv.node_unit;
    if (w->p.mutant == MUTANT_SICK_TAKEN)
        c->rdzv.sick_nodes = SICK_NODES_REPORT;
    if (w->p.mutant == MUTANT_FOR_EVER)
        c->rdzv.crash_loop_ns = 0;
    if (w->p.mutant == MUTANT_NEVER_PROGRESS)
        c->rdzv.crash_loop_ns = 10 * NS_PER_S;
    if (w->p.mutant == MUTANT_PROBE_CROWD)
        c->waiter_probe_ns = 1;
    if (w->p.mutant == MUTANT_FORMS_IDLE)
        c->idle = false;
    if (w->p.mutant != MUTANT_NONE && c->idle)
        c->handover = NULL; /* of which an honest member knows nothing then */
    if (w->p.mutant == MUTANT_NO_WAIT && c->leadership == LEADERSHIP_ARBITER)
        c->not_before_ns = c->absent_until_ns = 0;
    if (w->p.mutant == MUTANT_FORGET && c->handover != NULL) {
        *e = *c->handover;
        e->restarts_used = e->losses = 0;
        c->handover = e;
    }
}

static void serve(struct world *w, struct conn *c, struct word *join);

void leader_new(struct world *w, struct life *l, const struct group_config *lead) {
    if (l->lead.group != NULL) {
        world_broken(w, "I1: %u.%u leads already and leads again", l->host, l->index);
        return;
    }
    struct group_config config = w->p.group;
    struct handover handover;
    config.leader_incarnation = l->incarnation;
    config.rdzv.heartbeat_ns = w->p.member.rdzv.heartbeat_ns;
    node_peer(l, &config.self);
    if (lead != NULL) {
        config.epoch = lead->epoch;
        config.idle = lead->idle;
        config.not_before_ns = lead->not_before_ns;
        config.absent_until_ns = lead->absent_until_ns;
        config.old_leader = lead->old_leader;
        config.lost_ns = lead->lost_ns;
        config.job_ns = lead->job_ns;
        config.handover = lead->handover;
    } else if (config.leadership == LEADERSHIP_LEADER_FILE) {
        leader_file_found(w, l, &config);
    }
    mutate_config(w, &config, &handover);
    struct leadership *led = &l->lead;
    led->version++;
    led->done = led->closed = led->started_any = led->watches = false;
    led->newest = -1;
    led->job = w->job;
    led->epoch = config.epoch;
    led->is_first = config.epoch == 1;
    led->inherited = lead != NULL && lead->handover != NULL ? lead->handover->restarts_used : 0;
    led->undisturbed_since_ns = w->now_ns;
    led->record = (struct arbiter_record){0};
    if (group_new(&config, world_clock(w, l->host), &led->group) < 0) {
        world_broken(w, "group_new refuses the configuration");
        return;
    }
    led->restarts_used = group_restarts_used(led->group);
    oracle_leads(w, l);
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_TIME});
    if (l->incarnation % 8 == 1) /* as where a head knows on how many hosts an agent can run */
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = w->p.n_hosts});
    l->join_policy = JOIN_POLICY_SERVED;
    for (struct conn *c = w->conns; c != NULL; c = c->next)
        if (c->leader == l && c->parked != NULL) {
            struct word *word = c->parked;
            c->parked = NULL;
            serve(w, c, word);
            word_free(word);
        }
}

/* ---- the listener ---- */

static void send_away(struct world *w, struct conn *c) {
    struct word *word = word_new(WORD_REFUSED);
    (void)snprintf(word->refused.reason, sizeof word->refused.reason, "the agent there does not lead");
    net_to_node(w, c, word);
    net_close_leader(w, c);
}

static void redirect(struct world *w, struct conn *c, uint32_t epoch, const struct rdzv_peer *peer) {
    struct word *word = word_new(WORD_REDIRECT);
    word->redirect.epoch = epoch;
    word->redirect.peer = *peer;
    net_to_node(w, c, word);
    net_close_leader(w, c);
}

void leader_join_policy(struct world *w, struct life *l, const struct member_effect *e) {
    static const char *const names[] = {[JOIN_POLICY_SENT_AWAY] = "sends callers away",
                                        [JOIN_POLICY_PARKED] = "parks callers",
                                        [JOIN_POLICY_REDIRECTED] = "redirects callers",
                                        [JOIN_POLICY_SERVED] = "serves callers"};
    world_trace(w, "%u.%u %s", l->host, l->index, names[e->join_policy]);
    l->join_policy = e->join_policy;
    l->join_policy_peer = e->peer;
    l->join_policy_epoch = e->epoch;
    if (e->join_policy == JOIN_POLICY_SERVED && l->lead.group == NULL)
        world_broken(w, "%u.%u is to serve callers, and has no group", l->host, l->index);
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (c->leader != l || c->parked == NULL || !c->leader_open)
            continue;
        if (e->join_policy == JOIN_POLICY_SENT_AWAY)
            send_away(w, c);
        else if (e->join_policy == JOIN_POLICY_REDIRECTED)
            redirect(w, c, e->epoch, &e->peer);
    }
}

/* ---- words ---- */

static void higher_epoch(struct world *w, struct life *l, uint32_t epoch) {
    if (l->lead.group == NULL || epoch <= l->lead.epoch || w->p.mutant == MUTANT_DEAF)
        return;
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_HIGHER_EPOCH, .epoch = epoch});
}

/* Wrong rules about reports; the leader gets to see the changed one. */
static void mutate_report(struct world *w, struct life *leader, struct life *l, struct report *r) {
    if (leader->lead.group == NULL)
        return;
    struct generation now = group_generation(leader->lead.group);
    if (w->p.mutant == MUTANT_STALE_FAILURE && r->has_failure && generation_compare(r->generation, now) < 0)
        r->generation = now;
    if (w->p.mutant == MUTANT_FAILED_IS_STOPPED && r->state == NODE_FAILED)
        r->state = NODE_STOPPED;
    if (w->p.mutant == MUTANT_RAW_CLOCKS && r->has_failure) /* undoes what the leader will do */
        r->failure.at_ns += world_clock(w, l->host) - world_clock(w, leader->host);
    bool killed = failure_may_end_node(&r->failure), echo = failure_noise(&r->failure) > 0;
    if (r->has_failure &&
        ((w->p.mutant == MUTANT_KILL_IS_FAILURE && killed) || (w->p.mutant == MUTANT_NO_ECHO && echo))) {
        r->failure.kind = FAILURE_SIGNAL;
        r->failure.code = 11;
    }
    if (w->p.mutant == MUTANT_LATE_IS_EARLY)
        r->failure.ran_ns = 0;
    if (w->p.mutant == MUTANT_EARLY_IS_LATE)
        r->failure.ran_ns = 3600 * NS_PER_S;
    if (w->p.mutant == MUTANT_CHARGE_TWICE)
        r->restarts_used += r->has_failure;
    if (w->p.mutant == MUTANT_SICK_GONE && r->sick[0] != '\0')
        r->excluded = true;
    if (w->p.mutant == MUTANT_FORGET && !leader->lead.is_first)
        r->restarts_used = r->losses = 0;
}

/* The server takes the caller on. */
static void serve(struct world *w, struct conn *c, struct word *join) {
    struct life *l = c->leader;
    oracle_domain_heard(l, c->node, &join->join.report);
    mutate_report(w, l, c->node, &join->join.report);
    higher_epoch(w, l, join->join.report.epoch);
    if (l->lead.group == NULL)
        return; /* deposed by that: all connections are ended */
    struct conn *older = conn_of(w, l, c->node->incarnation);
    if (older != NULL && older != c)
        net_close_leader(w, older);
    c->joined = true;
    oracle_contact(w, l, c->node);
    oracle_report_heard(w, l, c->node, &join->join.report);
    group_event(
        w, l, &(struct group_event){.kind = GROUP_EVENT_JOIN, .info = &join->join.info, .report = &join->join.report});
}

static void forge_loss(struct world *w, struct life *l) {
    if (l->leader == NULL || !search_is_welcomed(l))
        return;
    search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .why = "forged"});
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = PROBE_GONE});
}

static void on_join(struct world *w, struct conn *c, struct word *word) {
    struct life *l = c->leader;
    bool serves = l->lead.group != NULL;
    if (world_is_fixed(w) && !serves) {
        net_close_leader(w, c);
    } else if (serves && (world_is_fixed(w) || l->join_policy == JOIN_POLICY_SERVED)) {
        serve(w, c, word);
    } else if (l->join_policy == JOIN_POLICY_PARKED) {
        struct word *kept = word_new(WORD_JOIN);
        kept->join = word->join;
        c->parked = kept;
        if (w->p.mutant == MUTANT_HAS_LEADER)
            forge_loss(w, l);
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_JOINER, .joiner = c->node->incarnation});
    } else if (l->join_policy == JOIN_POLICY_REDIRECTED && w->p.mutant != MUTANT_HAS_LEADER) {
        redirect(w, c, l->join_policy_epoch, &l->join_policy_peer);
    } else {
        if (w->p.mutant == MUTANT_HAS_LEADER)
            forge_loss(w, l);
        send_away(w, c);
    }
}

static void on_end(struct world *w, struct conn *c) {
    struct life *l = c->leader;
    uint64_t node = c->node->incarnation;
    bool joined = c->joined, parked = c->parked != NULL;
    /* Its own end goes too; what the node has sent since is answered by a reset. */
    c->leader_open = c->joined = false;
    word_free(c->parked);
    c->parked = NULL;
    if (parked)
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_JOINER_GONE, .joiner = node});
    if (joined)
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = node});
    if (joined && w->p.mutant == MUTANT_DISCONNECT_IS_GONE)
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = node, .probe = PROBE_GONE});
}

static void forge_echo(struct world *w, struct life *l, uint64_t clock_ns) {
    if (l->lead.group == NULL || group_successors(l->lead.group)->n == 0)
        return;
    const struct successors *s = group_successors(l->lead.group);
    group_event(w, l,
                &(struct group_event){.kind = GROUP_EVENT_MESSAGE,
                                      .node = s->list[0].incarnation,
                                      .message = WIRE_ECHO,
                                      .body = &(struct echo){.epoch = s->epoch, .leader_clock_ns = clock_ns}});
}

static void on_renew(struct world *w, struct life *l, uint64_t node, const struct renew *renew) {
    if (w->p.mutant == MUTANT_ECHO_NOW)
        forge_echo(w, l, world_clock(w, l->host));
    if (w->p.mutant == MUTANT_ECHO_ALL && renew->leader_clock_ns > 0)
        forge_echo(w, l, renew->leader_clock_ns);
    if (w->p.mutant == MUTANT_NO_LEADER_FILE_TERM && w->p.group.leadership == LEADERSHIP_LEADER_FILE)
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_TOUCHED, .touched_ns = world_clock(w, l->host)});
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = *renew});
}

void leader_word(struct world *w, struct conn *c, struct word *word) {
    struct life *l = c->leader;
    uint64_t node = c->node->incarnation;
    switch (word->kind) {
    case WORD_END: on_end(w, c); return;
    case WORD_CALL: net_to_node(w, c, word_new(WORD_HELLO)); return;
    case WORD_JOIN: on_join(w, c, word); return;
    case WORD_REPORT:
        if (!c->joined)
            return;
        oracle_domain_heard(l, c->node, &word->report);
        mutate_report(w, l, c->node, &word->report);
        if (w->p.mutant == MUTANT_LATE_DOMAIN && w->p.domain_late_ns[c->node->host] > 0)
            word->report.domain[0] = '\0';
        higher_epoch(w, l, word->report.epoch);
        if (l->lead.group != NULL)
            oracle_report_heard(w, l, c->node, &word->report);
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &word->report});
        return;
    case WORD_RENEW:
        if (!c->joined)
            return;
        oracle_contact(w, l, c->node);
        on_renew(w, l, node, &word->renew);
        return;
    case WORD_ECHO:
        if (c->joined)
            group_event(w, l,
                        &(struct group_event){
                            .kind = GROUP_EVENT_MESSAGE, .node = node, .message = WIRE_ECHO, .body = &word->echo});
        return;
    case WORD_LEAVE:
        if (c->joined)
            group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node});
        return;
    case WORD_HELLO:
    case WORD_WELCOME:
    case WORD_REFUSED:
    case WORD_DESIRED:
    case WORD_LEASE:
    case WORD_NAMED:
    case WORD_HANDOVER:
    case WORD_REDIRECT: break;
    }
    assert_not_reached();
}

/* ---- effects ---- */

/* The leader is made to believe that the node has acknowledged: see leader_item(). */
static void pretend_ack(struct world *w, struct life *l, struct life *node, struct generation g) {
    struct item *it = world_plan(w, ITEM_FORGED_ACK, l, 0);
    it->other = node;
    it->generation = g;
}

static void tell(struct world *w, struct life *l, uint64_t node) {
    struct conn *c = conn_of(w, l, node);
    struct word *word = word_new(WORD_DESIRED);
    if (c == NULL || !group_desired(l->lead.group, node, &word->desired)) {
        word_free(word);
        return;
    }
    struct desired *d = &word->desired;
    oracle_speaks(w, l, d->epoch);
    if (d->kind == DESIRED_CLOSED)
        oracle_closed_told(w, l, d);
    if (d->kind == DESIRED_STOP && w->p.mutant == MUTANT_EARLY_WORDS && d->reason[0] == '\0')
        d->has_failure = true;
    if (d->kind == DESIRED_STOP)
        oracle_stop_told(w, l, d);
    if (d->kind == DESIRED_FORM && w->p.mutant == MUTANT_SKIP_ACK)
        pretend_ack(w, l, c->node, d->generation);
    if (d->kind == DESIRED_FORM && w->p.mutant == MUTANT_WRONG_RANK && d->form.node_rank == 1)
        d->form.node_rank = d->form.first_rank = 0;
    world_trace(w, "leader %u.%u tells %u.%u: %d of %u.%u in %u %s", l->host, l->index, c->node->host, c->node->index,
                (int)d->kind, d->generation.epoch, d->generation.counter, d->epoch, d->reason);
    net_to_node(w, c, word);
}

static void refuse(struct world *w, struct life *l, const struct group_effect *e) {
    struct conn *c = conn_of(w, l, e->node);
    if (c == NULL)
        return;
    struct word *word = word_new(WORD_REFUSED);
    word->refused.final = !e->for_now;
    (void)snprintf(word->refused.reason, sizeof word->refused.reason, "%s", e->reason);
    net_to_node(w, c, word);
    net_close_leader(w, c);
}

static void lease(struct world *w, struct life *l, const struct group_effect *e) {
    struct conn *c = conn_of(w, l, e->node);
    if (c == NULL)
        return;
    oracle_speaks(w, l, e->lease.epoch);
    struct word *word = word_new(WORD_LEASE);
    word->lease = e->lease;
    net_to_node(w, c, word);
}

static void name(struct world *w, struct life *l, uint64_t node) {
    struct conn *c = conn_of(w, l, node);
    if (c == NULL)
        return;
    struct word *word = word_new(WORD_NAMED);
    word->named = *group_successors(l->lead.group);
    if (word->named.n > 0)
        oracle_speaks(w, l, word->named.epoch);
    world_trace(w, "leader %u.%u names %u successors of %u to %u.%u", l->host, l->index, word->named.n,
                word->named.epoch, c->node->host, c->node->index);
    net_to_node(w, c, word);
    if (!group_is_successor(l->lead.group, node))
        return;
    word = word_new(WORD_HANDOVER);
    group_handover(l->lead.group, &word->handover);
    net_to_node(w, c, word);
}

static void forget(struct world *w, struct life *l, uint64_t node) {
    struct conn *c = conn_of(w, l, node);
    struct life *lost = node_of(w, node);
    world_trace(w, "leader %u.%u forgets %u.%u", l->host, l->index, lost->host, lost->index);
    world_leader_file(w, LEADER_FILE_LOST, lost->host);
    oracle_node_lost(w, l, lost);
    if (c != NULL)
        net_close_leader(w, c);
}

static void store_open(struct world *w, struct life *l, struct generation g) {
    for (unsigned i = 0; i < w->n_groups; i++)
        if (w->groups[i].store_open && w->groups[i].leader == l)
            world_broken(w, "the store of %u.%u is still open when another is opened", G(w->groups[i].generation));
    struct item *it = world_plan(w, ITEM_STORE, l, 1 + world_below(w, 2 * NS_PER_MS));
    it->generation = g;
    it->version = l->lead.version;
}

static void store_close(struct world *w, struct generation generation) {
    struct group_info *g = oracle_group(w, generation);
    if (g == NULL || !g->store_open)
        world_broken(w, "the store of %u.%u is closed, and was not open", G(generation));
    else
        g->store_open = false;
}

static void drop_stores(struct world *w, const struct life *l) {
    for (unsigned i = 0; i < w->n_groups; i++)
        if (w->groups[i].leader == l)
            w->groups[i].store_open = false;
}

static void deposed(struct world *w, struct life *l, uint32_t epoch) {
    world_trace(w, "leader %u.%u is deposed by epoch %u", l->host, l->index, epoch);
    world_leader_file(w, LEADER_FILE_DEPOSED, l->host);
    oracle_deposed(w, l);
    struct rdzv_peer peer = {0};
    if (l->lead.record.epoch >= epoch && !l->lead.record.closed && !l->lead.record.vacant)
        peer = l->lead.record.leader;
    for (struct conn *c = w->conns; c != NULL; c = c->next)
        if (c->leader == l && c->joined && c->leader_open)
            redirect(w, c, epoch, &peer);
    group_free(TAKE_PTR(l->lead.group));
    drop_stores(w, l);
    struct item *it = world_plan(w, ITEM_DEPOSED, l, 0);
    it->local = epoch;
}

static void check_status(struct world *w, const struct life *l) {
    struct rdzv_status s;
    group_status(l->lead.group, world_clock(w, l->host), &s);
    if (s.n_names > RDZV_STATUS_NAMES_MAX || s.n_missing > RDZV_STATUS_NAMES_MAX)
        world_broken(w, "the status names more nodes than it holds");
}

static void check_incident(struct world *w, const struct incident *i) {
    uint64_t last = 0,
             times[] = {i->symptom_ns, i->noticed_ns, i->stopped_ns, i->started_ns, i->first_step_ns, UINT64_MAX};
    for (size_t k = 0; k < ARRAY_SIZE(times); k++) {
        if (times[k] != 0 && times[k] < last)
            world_broken(w, "time %zu of an incident is before the one before it", k);
        last = MAX2(last, times[k]);
    }
    if (i->n == 0 || i->class == INCIDENT_NONE || i->action == INCIDENT_ACTION_NONE || i->symptom_ns == 0 ||
        i->cause[0] == '\0')
        world_broken(w, "an incident %u of class %d, action %d, lacks something: %s", i->n, (int)i->class,
                     (int)i->action, i->cause);
    if ((i->started_ns != 0) == (i->action == INCIDENT_END) ||
        (i->started_ns != 0 && generation_compare(i->next, i->generation) <= 0))
        world_broken(w, "an incident does not fit the group that followed it");
    w->coverage->incidents++;
}

static void check_entry(struct world *w, const struct life *l, const struct timeline_entry *n) {
    w->coverage->notes[n->kind]++;
    world_trace(w, "note of %u.%u: %s %s %s", l->host, l->index, timeline_kind_name(n->kind), n->name, n->why);
    if (n->at_ns > world_clock(w, l->host))
        world_broken(w, "a note of the future");
    if (n->kind == TIMELINE_INCIDENT)
        check_incident(w, &n->incident);
    if (n->from_ns > n->at_ns)
        world_broken(w, "the note %s begins after its end", timeline_kind_name(n->kind));
}

static void obey_one(struct world *w, struct life *l, const struct group_effect *e) {
    if (crowd_takes(w, l, e))
        return;
    switch (e->kind) {
    case GROUP_EFFECT_DESIRED: tell(w, l, e->node); break;
    case GROUP_EFFECT_LEASE: lease(w, l, e); break;
    case GROUP_EFFECT_PROBE:
    case GROUP_EFFECT_REACH: net_probe(w, l, node_of(w, e->node), PROBER_GROUP); break;
    case GROUP_EFFECT_REFUSE: refuse(w, l, e); break;
    case GROUP_EFFECT_FORGET: forget(w, l, e->node); break;
    case GROUP_EFFECT_STORE_OPEN: store_open(w, l, e->generation); break;
    case GROUP_EFFECT_STORE_CLOSE: store_close(w, e->generation); break;
    case GROUP_EFFECT_STATUS: check_status(w, l); break;
    case GROUP_EFFECT_NOTICE: world_trace(w, "incident: %s", e->reason); break;
    case GROUP_EFFECT_DONE:
        if (l->lead.done)
            world_broken(w, "DONE a second time");
        l->lead.done = true;
        world_plan(w, ITEM_GROUP_DONE, l, 0);
        break;
    case GROUP_EFFECT_NAME: name(w, l, e->node); break;
    case GROUP_EFFECT_ARBITER: arbiter_asked(w, l, e->request, true); break;
    case GROUP_EFFECT_TOUCH: leader_file_touch(w, l, e->outcome); break;
    case GROUP_EFFECT_DEPOSED: deposed(w, l, e->epoch); break;
    case GROUP_EFFECT_ANSWER:
        if (e->reason == NULL || e->reason[0] == '\0')
            world_broken(w, "an operator is answered with nothing");
        world_trace(w, "answer: %s", e->reason);
        break;
    case GROUP_EFFECT_TIMELINE:
        check_entry(w, l, e->entry);
        if (e->entry->kind == TIMELINE_WORKER_FAILED)
            ending_compares(w, l);
        break;
    case GROUP_EFFECT_STARTED:
        if (l->lead.watches)
            world_broken(w, "STARTED, although the group before was not reported as STOPPING");
        l->lead.watches = true;
        break;
    case GROUP_EFFECT_STOPPING: l->lead.watches = false; break;
    case GROUP_EFFECT_RELEASED:
        if (l->lead.watches)
            world_broken(w, "RELEASED before STOPPING");
        break;
    case GROUP_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static void obey(struct world *w, struct life *l) {
    uint64_t deadline = l->lead.update.deadline_ns;
    for (size_t i = 0; i < l->lead.update.n_effects; i++) {
        if (l->lead.group == NULL) {
            world_broken(w, "an effect after DEPOSED");
            return;
        }
        w->coverage->group_effects[l->lead.update.effects[i].kind]++;
        obey_one(w, l, &l->lead.update.effects[i]);
    }
    l->lead.timer_version++;
    if (deadline != TIME_NEVER && l->lead.group != NULL) {
        uint64_t at = world_when_clock(w, l->host, deadline);
        world_plan(w, ITEM_GROUP_TIMER, l, at > w->now_ns ? at - w->now_ns : 0)->version = l->lead.timer_version;
    }
}

/* ---- what comes back ---- */

static void store_answers(struct world *w, const struct item *it) {
    struct group_event e = {.kind = GROUP_EVENT_STORE, .generation = it->generation};
    struct group_info *g = oracle_group(w, it->generation);
    if (it->version != it->life->lead.version)
        return;
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
    group_event(w, it->life, &e);
}

/* It has resigned, or the nodes are informed of the end. The connections of a leader that has resigned are ended. */
static void on_done(struct world *w, struct life *l) {
    if (group_state(l->lead.group) != GROUP_CLOSED) {
        for (struct conn *c = w->conns; c != NULL; c = c->next)
            if (c->leader == l && c->joined && c->leader_open)
                net_close_leader(w, c);
        drop_stores(w, l);
        group_free(TAKE_PTR(l->lead.group));
    }
    ending_check(w, l);
}

void leader_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    if (it->kind == ITEM_DEPOSED) {
        struct member_event e = {.kind = MEMBER_EVENT_DEPOSED, .epoch = it->local};
        if (l->lead.record.epoch >= it->local && !l->lead.record.closed)
            e.peer = &l->lead.record.leader;
        node_event(w, l, &e);
    } else if (l->lead.group == NULL) {
        return;
    } else if (it->kind == ITEM_GROUP_DONE) {
        on_done(w, l);
    } else if (it->kind == ITEM_GROUP_TIMER) {
        if (it->version == l->lead.timer_version)
            group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_TIME});
    } else if (it->kind == ITEM_PROBE_ANSWER) {
        enum probe_result probe = it->probe;
        if (probe == PROBE_UNKNOWN && w->p.mutant == MUTANT_SILENT_IS_GONE)
            probe = PROBE_GONE;
        if (it->version == l->lead.version)
            group_event(
                w, l, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = it->other->incarnation, .probe = probe});
    } else if (it->kind == ITEM_CROWD_PROBED) {
        group_event(
            w, l,
            &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = CROWD_NODE(it->local), .probe = PROBE_UNKNOWN});
    } else if (it->kind == ITEM_FORGED_ACK) {
        struct report r = {.state = NODE_PREPARED, .generation = it->generation};
        group_event(w, l,
                    &(struct group_event){.kind = GROUP_EVENT_REPORT, .node = it->other->incarnation, .report = &r});
    } else {
        store_answers(w, it);
    }
}

void leader_answer(struct world *w, struct life *l, const struct arbiter_answer *answer) {
    bool known = answer->result == ARBITER_OK || answer->result == ARBITER_LOST;
    if (known)
        l->lead.record = answer->record;
    struct arbiter_answer forged = *answer;
    bool agrees = w->p.mutant == MUTANT_NO_ARBITER_TERM && answer->result == ARBITER_UNREACHABLE;
    bool deaf = w->p.mutant == MUTANT_DEAF && known;
    if ((agrees || deaf) && answer->request.kind == ARBITER_BEAT) {
        forged.result = ARBITER_OK;
        forged.record = (struct arbiter_record){.epoch = answer->request.epoch, .leader = answer->request.leader};
    }
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_ARBITER, .answer = &forged});
}

void leader_touched(struct world *w, struct life *l, uint64_t clock_ns) {
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_TOUCHED, .touched_ns = clock_ns});
}

void leader_stop(struct world *w, struct life *l) {
    w->operator_stop = true;
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = "the operator asked"});
}

void leader_vacates(struct world *w, struct life *l) {
    if (l->lead.group == NULL || l->lead.done)
        return;
    struct arbiter_request vacate = {.kind = ARBITER_VACATE, .epoch = l->lead.epoch};
    vacate.leader.incarnation = l->incarnation;
    arbiter_asked(w, l, &vacate, true);
}

/* Its own node has left. */
void leader_resigns(struct world *w, struct life *l) {
    for (unsigned i = 0; w->p.mutant == MUTANT_LEAVES_RUNNING && i < w->n_lives; i++) {
        struct report r = *member_report(w->lives[i].member);
        r.state = NODE_STOPPED;
        group_event(w, l,
                    &(struct group_event){.kind = GROUP_EVENT_REPORT, .report = &r, .node = w->lives[i].incarnation});
    }
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_RESIGN});
}

void leader_command(struct world *w, struct life *l, const struct command *command) {
    if (l->lead.done) /* its agent is at its end, which ends the operator's connection */
        return;
    if (command->kind == COMMAND_STOP)
        w->operator_stop = true;
    uint64_t answers = w->coverage->group_effects[GROUP_EFFECT_ANSWER];
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_COMMAND, .command = command});
    if (w->coverage->group_effects[GROUP_EFFECT_ANSWER] != answers + 1 && w->failure[0] == '\0')
        world_broken(w, "a command is not answered once");
}

void leader_says_hang(struct world *w, struct life *suspect, bool nobody) {
    struct life *l = suspect->leader;
    struct generation g = member_generation(suspect->member);
    if (l == NULL || l->frozen || !host_running(w, l->host) || l->lead.group == NULL ||
        group_state(l->lead.group) != GROUP_RUNNING || generation_compare(group_generation(l->lead.group), g) != 0)
        return;
    struct failure f = {.kind = FAILURE_HANG, .incarnation = nobody ? 0 : suspect->incarnation};
    (void)snprintf(f.text, sizeof f.text, "all wait");
    struct group_info *of = oracle_hang(w, g, f.incarnation);
    group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_HANG, .generation = g, .failure = &f});
    if (of != NULL && l->lead.group != NULL && group_state(l->lead.group) == GROUP_RUNNING)
        of->n_failures--; /* it no longer led */
    if (l->lead.group != NULL)
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = NS_PER_MS});
}

void leader_crowd(struct world *w, struct life *l, unsigned nodes) {
    for (unsigned i = 0; i < nodes; i++) {
        struct report report = {.state = NODE_JOINED};
        struct node_info info = {.incarnation = CROWD_NODE(w->n_crowd++), .nproc = 1, .node_rank = -1};
        (void)snprintf(info.host, sizeof info.host, "crowd%u", w->n_crowd);
        (void)snprintf(info.role, sizeof info.role, "default");
        group_event(w, l, &(struct group_event){.kind = GROUP_EVENT_JOIN, .info = &info, .report = &report});
    }
}

void leader_dies(struct world *w, struct life *l) {
    if (l->lead.group == NULL)
        return;
    if (!l->lead.done)
        w->leader_was_killed = true;
    if (!l->lead.done || group_state(l->lead.group) != GROUP_CLOSED) /* it resigned */
        drop_stores(w, l);
    group_free(TAKE_PTR(l->lead.group));
}
