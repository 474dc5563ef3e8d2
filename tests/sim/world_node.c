/* An agent: its member machine and its connection. */
#include <string.h>

#include "world_priv.h"

struct life *node_of(struct world *w, uint64_t incarnation) {
    for (unsigned i = 0; i < w->n_lives; i++)
        if (w->lives[i].incarnation == incarnation)
            return &w->lives[i];
    world_broken(w, "an effect names node %llx, which never was", (unsigned long long)incarnation);
    return &w->lives[0];
}

struct life *node_newest(const struct world *w, uint32_t host) {
    const struct life *newest = NULL;
    for (unsigned i = 0; i < w->n_lives; i++)
        if (w->lives[i].host == host)
            newest = &w->lives[i];
    return (struct life *)(uintptr_t)newest;
}

static uint16_t port_of(const struct life *l) { return (uint16_t)(30000 + l->index); }

void node_peer(const struct life *l, struct rdzv_peer *ret) {
    *ret = (struct rdzv_peer){.incarnation = l->incarnation, .port = port_of(l)};
    (void)snprintf(ret->addr, sizeof ret->addr, "10.0.0.%u", l->host);
}

void node_describe(const struct world *w, const struct life *l, struct node_info *ret) {
    *ret = (struct node_info){
        .incarnation = l->incarnation,
        .role = "default",
        .listener_port = port_of(l),
        .nproc = w->p.nproc[l->host],
        .node_rank = w->p.group.static_ranks && l->host != w->p.rankless ? (int32_t)l->host : -1,
        .pid = (int32_t)(1000 + l->index),
    };
    (void)snprintf(ret->host, sizeof ret->host, "node%u", l->host);
    (void)snprintf(ret->addr, sizeof ret->addr, "10.0.0.%u", l->host);
}

struct life *node_of_peer(struct world *w, const struct rdzv_peer *peer) {
    struct life *l = node_of(w, peer->incarnation);
    struct rdzv_peer real;
    node_peer(l, &real);
    if (strcmp(real.addr, peer->addr) != 0 || real.port != peer->port)
        world_broken(w, "the peer %u.%u is looked for at %s:%u", l->host, l->index, peer->addr, peer->port);
    return l;
}

static void obey(struct world *w, struct life *l);

void node_event(struct world *w, struct life *l, struct member_event *e) {
    if (w->failure[0] != '\0' || !l->process)
        return;
    e->now_ns = world_clock(w, l->host);
    w->coverage->member_events[e->kind]++;
    enum member_state before = member_state(l->member);
    enum member_election election = member_election(l->member);
    member_step(l->member, e, &l->update);
    oracle_member_stepped(w, l, before, election);
    obey(w, l);
    ending_check(w, l);
}

static void learn_domain(struct world *w, struct life *l) {
    char domain[] = {w->p.domains[l->host], '\0'};
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_DOMAIN, .domain = domain, .fabric = ""});
}

struct life *node_boot(struct world *w, uint32_t host) {
    if (w->n_lives == WORLD_LIVES_MAX)
        return NULL;
    struct life *l = &w->lives[w->n_lives];
    *l = (struct life){.index = w->n_lives++,
                       .host = host,
                       .process = true,
                       .listener = true,
                       .booted_ns = w->now_ns,
                       .unwelcomed_ns = w->now_ns};
    l->incarnation = prng_next(&w->prng) | 1;
    l->guard_end_ns = TIME_NEVER;
    ending_begin(l);
    l->join_policy = JOIN_POLICY_SENT_AWAY;
    l->lead.newest = -1;
    l->job = w->job;
    world_trace(w, "%u.%u boots", l->host, l->index);
    struct member_config config = w->p.member;
    config.incarnation = l->incarnation;
    config.has_arbiter = !world_is_fixed(w);
    config.seed = prng_next(&w->prng);
    config.rdzv.arbiter_lease_ns = w->p.group.rdzv.arbiter_lease_ns;
    config.rdzv.min_nodes = w->p.group.rdzv.min_nodes;
    config.rdzv.max_nodes = w->p.group.rdzv.max_nodes;
    config.rdzv.node_unit = w->p.group.rdzv.node_unit;
    node_peer(l, &config.self);
    if (member_new(&config, world_clock(w, host), &l->member) < 0) {
        world_broken(w, "member_new refuses the configuration");
        return l;
    }
    if (world_is_fixed(w) && host == 0)
        leader_new(w, l, NULL);
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_TIME});
    if (w->p.domains[host] != '\0' && w->p.domain_late_ns[host] == 0)
        learn_domain(w, l);
    else if (w->p.domains[host] != '\0')
        world_plan(w, ITEM_DOMAIN, l, w->p.domain_late_ns[host]);
    search_begin(w, l);
    return l;
}

bool node_listens(const struct life *l) { return l->process && !l->frozen; }

/* ---- words ---- */

static void forge_lease(struct world *w, struct life *l, const struct desired *d, struct lease lease) {
    lease.epoch = d->epoch;
    lease.prepared = d->generation;
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = lease});
}

static void on_desired(struct world *w, struct life *l, const struct desired *d) {
    if (w->p.mutant == MUTANT_ANY_CONTINUES && member_state(l->member) == MEMBER_HELD)
        return;
    if (d->kind == DESIRED_START)
        l->start_epoch = d->epoch;
    l->knows_outcome = l->knows_outcome || d->kind == DESIRED_CLOSED;
    if (d->kind == DESIRED_START && w->p.mutant == MUTANT_START_NO_LEASE)
        forge_lease(w, l, d,
                    (struct lease){.echo_ns = world_clock(w, l->host),
                                   .validity_ns = w->p.group.rdzv.lease_ns,
                                   .clock_ns = world_clock(w, 0)});
    uint64_t now = world_clock(w, l->host);
    uint64_t end = l->older_lease.echo_ns + l->older_lease.validity_ns;
    if (d->kind == DESIRED_START && w->p.mutant == MUTANT_ANY_LEASE && end > now)
        forge_lease(w, l, d, (struct lease){.echo_ns = now, .validity_ns = end - now});
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = d});
}

static void on_welcome(struct world *w, struct life *l, struct conn *c, const struct word *word) {
    search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_WELCOME});
    l->leader = c->leader;
    if (!l->knows_outcome)
        l->job = c->leader->lead.job;
    node_event(w, l,
               &(struct member_event){.kind = MEMBER_EVENT_WELCOME,
                                      .leader = word->welcome.leader,
                                      .epoch = word->welcome.epoch,
                                      .heartbeat_ns = word->welcome.heartbeat_ns,
                                      .lease_ns = word->welcome.lease_ns,
                                      .margin_ns = word->welcome.margin_ns});
}

static void on_lease(struct world *w, struct life *l, const struct lease *lease) {
    oracle_lease_came(w, l, lease);
    if (w->owners[l->last_lease.epoch] != w->owners[lease->epoch])
        l->older_lease = l->last_lease;
    l->last_lease = *lease;
    struct member_event e = {.kind = MEMBER_EVENT_LEASE, .lease = *lease};
    if (w->p.mutant == MUTANT_LEASE_FROM_RECEIPT)
        e.lease.echo_ns = world_clock(w, l->host);
    if (w->p.mutant == MUTANT_ANY_CONTINUES && member_state(l->member) == MEMBER_HELD)
        e.lease.prepared = member_generation(l->member);
    node_event(w, l, &e);
}

static const char *const word_names[] = {
    [WORD_WELCOME] = "WELCOME", [WORD_REFUSED] = "REFUSED",       [WORD_DESIRED] = "the desired state",
    [WORD_NAMED] = "NAMED",     [WORD_HANDOVER] = "the handover", [WORD_REDIRECT] = "REDIRECT",
    [WORD_END] = "the end",     [WORD_HELLO] = "HELLO",
};

void node_word(struct world *w, struct life *l, struct conn *c, struct word *word) {
    if (c != l->conn)
        return;
    if (word->kind != WORD_LEASE)
        world_trace(w, "%u.%u hears %s of %u.%u", l->host, l->index, word_names[word->kind], c->leader->host,
                    c->leader->index);
    switch (word->kind) {
    case WORD_WELCOME: on_welcome(w, l, c, word); break;
    case WORD_DESIRED: on_desired(w, l, &word->desired); break;
    case WORD_LEASE: on_lease(w, l, &word->lease); break;
    case WORD_NAMED:
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &word->named});
        break;
    case WORD_HANDOVER:
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_HANDOVER, .handover = &word->handover});
        break;
    case WORD_REFUSED:
    case WORD_REDIRECT:
    case WORD_END: search_heard_end(w, l, word); break;
    case WORD_HELLO: search_heard_hello(w, l, c); break;
    case WORD_CALL:
    case WORD_JOIN:
    case WORD_REPORT:
    case WORD_RENEW:
    case WORD_ECHO:
    case WORD_LEAVE: assert_not_reached();
    }
}

/* ---- effects ---- */

static void say(struct world *w, struct life *l, struct word *word) {
    if (l->conn != NULL && l->conn->node_open)
        net_to_leader(w, l->conn, word);
    else
        word_free(word); /* what matters is said again with the next JOIN */
}

static void say_report(struct world *w, struct life *l) {
    struct word *word = word_new(WORD_REPORT);
    word->report = *member_report(l->member);
    world_trace(w, "%u.%u reports state %d of %u.%u%s", l->host, l->index, (int)word->report.state,
                word->report.generation.epoch, word->report.generation.counter,
                word->report.has_failure ? ", failed" : "");
    say(w, l, word);
}

static void ended(struct world *w, struct life *l) {
    const struct member_end *end = member_end(l->member);
    world_trace(w, "%u.%u ends (%d): %s", l->host, l->index, (int)end->kind, end->reason);
    w->coverage->ends[end->kind]++;
    world_leader_file(w, LEADER_FILE_ENDED, l->host);
    oracle_node_ended(w, l);
    if (node_has_workers(l) && !l->unkillable)
        world_broken(w, "I5: agent %u.%u ends and leaves workers behind", l->host, l->index);
    ending_event(w, l, (struct life_event){.kind = LIFE_EVENT_END, .end = end->kind});
}

static void connect_to(struct world *w, struct life *l, const struct member_effect *e) {
    if (!world_is_fixed(w))
        world_trace(w, "%u.%u goes to %llx", l->host, l->index, (unsigned long long)e->peer.incarnation);
    if (!world_is_fixed(w) && e->peer.incarnation == 0)
        world_broken(w, "%u.%u is to connect to nobody", l->host, l->index);
    else
        search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_CONNECT, .peer = &e->peer, .soon = e->soon});
}

static void obey_word(struct world *w, struct life *l, const struct member_effect *e) {
    struct word *word;
    if (e->kind == MEMBER_EFFECT_REPORT) {
        say_report(w, l);
    } else if (e->kind == MEMBER_EFFECT_RENEW) {
        word = word_new(WORD_RENEW);
        word->renew = e->renew;
        say(w, l, word);
    } else if (e->kind == MEMBER_EFFECT_ECHO) {
        word = word_new(WORD_ECHO);
        word->echo = e->echo;
        say(w, l, word);
    } else {
        say(w, l, word_new(WORD_LEAVE));
        search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
    }
}

static void obey_one(struct world *w, struct life *l, const struct member_effect *e) {
    switch (e->kind) {
    case MEMBER_EFFECT_CONNECT: connect_to(w, l, e); break;
    case MEMBER_EFFECT_REPORT:
    case MEMBER_EFFECT_RENEW:
    case MEMBER_EFFECT_ECHO:
    case MEMBER_EFFECT_SEND_LEAVE: obey_word(w, l, e); break;
    case MEMBER_EFFECT_PROBE:
        if (l->leader != NULL)
            net_probe(w, l, l->leader, PROBER_MEMBER);
        break;
    case MEMBER_EFFECT_PROBE_PEER: net_probe(w, l, node_of_peer(w, &e->peer), PROBER_PEER); break;
    case MEMBER_EFFECT_PREPARE: launcher_prepare(w, l, e->generation); break;
    case MEMBER_EFFECT_START: launcher_start(w, l, e->generation); break;
    case MEMBER_EFFECT_STOP: launcher_stop(w, l, e->grace_ns); break;
    case MEMBER_EFFECT_FENCE: launcher_fence(w, l); break;
    case MEMBER_EFFECT_HOLD: launcher_hold(w, l); break;
    case MEMBER_EFFECT_RESUME: launcher_resume(w, l); break;
    case MEMBER_EFFECT_LEASE_END: guardian_hold(w, l, e->lease_end_ns); break;
    case MEMBER_EFFECT_END: ended(w, l); break;
    case MEMBER_EFFECT_HANG_UP: search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP}); break;
    case MEMBER_EFFECT_ARBITER: arbiter_asked(w, l, e->request, false); break;
    case MEMBER_EFFECT_LEAD: leader_new(w, l, e->lead); break;
    case MEMBER_EFFECT_JOIN_POLICY: leader_join_policy(w, l, e); break;
    case MEMBER_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static void obey(struct world *w, struct life *l) {
    uint64_t deadline = l->update.deadline_ns;
    for (size_t i = 0; i < l->update.n_effects; i++) {
        w->coverage->member_effects[l->update.effects[i].kind]++;
        obey_one(w, l, &l->update.effects[i]);
    }
    l->timer_version++;
    if (deadline != TIME_NEVER && l->process) {
        uint64_t at = world_when_clock(w, l->host, deadline);
        world_plan(w, ITEM_TIMER, l, at > w->now_ns ? at - w->now_ns : 0)->version = l->timer_version;
    }
}

/* ---- dying ---- */

static void close_kernel_side(struct world *w, struct life *l, bool host_up) {
    l->process = false;
    for (struct item *it = l->pending_first, *next; it != NULL; it = next) {
        next = it->next;
        item_free(w, it);
    }
    l->pending_first = l->pending_last = NULL;
    leader_dies(w, l);
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (c->node == l && host_up)
            net_close_node(w, c);
        else if (c->node == l)
            c->node_open = false;
        if (c->leader == l && host_up)
            net_close_leader(w, c);
        else if (c->leader == l)
            c->leader_open = c->joined = false;
    }
    l->conn = NULL;
}

void node_agent_dies(struct world *w, struct life *l, uint64_t sweep_ns) {
    if (!l->process)
        return;
    world_trace(w, "%u.%u: its agent is no more", l->host, l->index);
    oracle_agent_died(w, l);
    close_kernel_side(w, l, true);
    guardian_sweeps(w, l, sweep_ns);
}

void node_host_off(struct world *w, uint32_t host) {
    w->hosts[host].up = false;
    w->hosts[host].frozen = false;
    if (host == 0)
        w->leader_file.there = false;
    for (unsigned i = 0; i < w->n_lives; i++) {
        struct life *l = &w->lives[i];
        if (l->host != host)
            continue;
        if (l->process) {
            oracle_agent_died(w, l);
            close_kernel_side(w, l, false);
        }
        for (uint32_t k = 0; k < WORLD_WORKERS_MAX; k++)
            l->workers[k].alive = false;
        l->listener = l->spawned = false;
    }
}

static void thaw(struct world *w, struct life *l) {
    l->thawed_ns = w->now_ns;
    if (l->process && !l->frozen && host_running(w, l->host))
        node_take_pending(w, l);
}

static void thaw_host(struct world *w, uint32_t host) {
    if (w->now_ns < w->hosts[host].frozen_until_ns)
        return; /* of an earlier freeze, which a power cut ended */
    w->hosts[host].frozen = false;
    world_trace(w, "host %u thaws", host);
    for (unsigned i = 0; i < w->n_lives; i++)
        if (w->lives[i].host == host) {
            w->lives[i].host_thawed_ns = w->now_ns;
            thaw(w, &w->lives[i]);
        }
}

static void on_probe_answer(struct world *w, struct item *it) {
    enum probe_result probe = it->probe;
    if (probe == PROBE_UNKNOWN && w->p.mutant == MUTANT_PEER_SILENT_IS_GONE)
        probe = PROBE_GONE;
    struct member_event e = {.kind = MEMBER_EVENT_PROBE, .probe = probe};
    if (it->prober == PROBER_PEER) {
        e.kind = MEMBER_EVENT_PEER_PROBE;
        e.joiner = it->other->incarnation;
    }
    node_event(w, it->life, &e);
}

void node_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    switch (it->kind) {
    case ITEM_TIMER:
        if (it->version == l->timer_version)
            node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_TIME});
        break;
    case ITEM_PROBE_ANSWER: on_probe_answer(w, it); break;
    case ITEM_THAW_AGENT:
        l->frozen = false;
        world_trace(w, "%u.%u thaws", l->host, l->index);
        thaw(w, l);
        break;
    case ITEM_THAW_HOST: thaw_host(w, it->local); break;
    case ITEM_AGENT_QUITS:
    case ITEM_LIFE_TIMER:
    case ITEM_ANSWERED: ending_item(w, it); break;
    case ITEM_DOMAIN: learn_domain(w, l); break;
    case ITEM_PREPARED:
    case ITEM_PREPARE_FAILED:
    case ITEM_SPAWN_FAILED:
    case ITEM_GRACE_OVER:
    case ITEM_ALL_GONE:
    case ITEM_UNKILLABLE:
    case ITEM_EXIT_SEEN:
    case ITEM_WORKER_EXIT:
    case ITEM_GROUP_FINISH:
    case ITEM_GUARD:
    case ITEM_SWEEP: launcher_item(w, it); break;
    case ITEM_WORD_TO_LEADER:
    case ITEM_WORD_TO_NODE:
    case ITEM_CONNECT_LEAVES:
    case ITEM_CONNECT_ARRIVES:
    case ITEM_CONNECT_FAILED:
    case ITEM_RESOLVED:
    case ITEM_DESCRIBED:
    case ITEM_OTHER_HELLO:
    case ITEM_SEARCH_PROBED:
    case ITEM_SEARCH_TIMER:
    case ITEM_GROUP_TIMER:
    case ITEM_PROBE:
    case ITEM_STORE:
    case ITEM_DEPOSED:
    case ITEM_GROUP_DONE:
    case ITEM_ARBITER_HEARS:
    case ITEM_ARBITER_ANSWER:
    case ITEM_TOUCHED:
    case ITEM_BOOT:
    case ITEM_RECOVERED:
    case ITEM_RUIN_OVER:
    case ITEM_FAULT:
    case ITEM_FORGED_ACK:
    case ITEM_CROWD_PROBED: assert_not_reached();
    }
}
