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
        if (w->lives[i].host == host && w->lives[i].incarnation != 0)
            newest = &w->lives[i];
    return (struct life *)(uintptr_t)newest;
}

void node_describe(const struct world *w, const struct life *l, struct node_info *ret) {
    *ret = (struct node_info){
        .incarnation = l->incarnation,
        .role = "default",
        .listener_port = (uint16_t)(30000 + l->index),
        .nproc = w->p.nproc[l->host],
        .node_rank = w->p.group.static_ranks ? (int32_t)l->host : -1,
        .pid = (int32_t)(1000 + l->index),
    };
    (void)snprintf(ret->host, sizeof ret->host, "node%u", l->host);
}

static void obey(struct world *w, struct life *l);

void node_event(struct world *w, struct life *l, struct member_event *e) {
    if (w->failure[0] != '\0' || !l->process)
        return;
    e->now_ns = world_clock(w, l->host);
    w->coverage->member_events[e->kind]++;
    enum member_state before = member_state(l->member);
    member_step(l->member, e, &l->update);
    oracle_member_stepped(w, l, before);
    obey(w, l);
}

struct life *node_boot(struct world *w, uint32_t host) {
    if (w->n_lives == WORLD_LIVES_MAX || (host == 0 && w->lives[0].incarnation != 0))
        return NULL; /* a fixed leader has one life */
    unsigned index = host == 0 ? 0 : w->n_lives++;
    struct life *l = &w->lives[index];
    *l = (struct life){.index = index, .host = host, .process = true, .listener = true};
    l->incarnation = prng_next(&w->prng) | 1;
    l->guard_end_ns = TIME_NEVER;
    world_trace(w, "%u.%u boots", l->host, l->index);
    struct member_config config = w->p.member;
    config.incarnation = l->incarnation;
    if (member_new(&config, world_clock(w, host), &l->member) < 0) {
        world_broken(w, "member_new refuses the configuration");
        return l;
    }
    if (l->index == 0)
        leader_new(w);
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_TIME});
    net_connect(w, l); /* the client's first try needs no word of the machine */
    return l;
}

bool node_listens(const struct life *l) { return l->process && !l->frozen; }

/* ---- words ---- */

static void on_desired(struct world *w, struct life *l, const struct desired *d) {
    if (d->kind == DESIRED_START && w->p.mutant == MUTANT_START_NO_LEASE) {
        struct member_event forged = {.kind = MEMBER_EVENT_LEASE};
        forged.lease = (struct lease){.epoch = d->epoch,
                                      .prepared = d->generation,
                                      .echo_ns = world_clock(w, l->host),
                                      .validity_ns = w->p.group.lease_ns,
                                      .clock_ns = world_clock(w, 0)};
        node_event(w, l, &forged);
    }
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = d});
}

void node_word(struct world *w, struct life *l, struct word *word) {
    static const char *const names[] = {[WORD_WELCOME] = "WELCOME", [WORD_REFUSED] = "REFUSED",
                                        [WORD_DESIRED] = "the desired state", [WORD_END] = "the end"};
    if (word->kind != WORD_LEASE)
        world_trace(w, "%u.%u hears %s", l->host, l->index, names[word->kind]);
    struct member_event e = {0};
    switch (word->kind) {
    case WORD_WELCOME:
        l->welcomed = true;
        e.kind = MEMBER_EVENT_WELCOME;
        e.leader = word->leader;
        e.epoch = w->p.group.epoch;
        break;
    case WORD_REFUSED:
        e.kind = MEMBER_EVENT_REFUSED;
        e.reason = word->reason;
        break;
    case WORD_DESIRED: on_desired(w, l, &word->desired); return;
    case WORD_LEASE:
        oracle_lease_came(w, l, &word->lease);
        e.kind = MEMBER_EVENT_LEASE;
        e.lease = word->lease;
        if (w->p.mutant == MUTANT_LEASE_FROM_RECEIPT)
            e.lease.echo_ns = world_clock(w, l->host);
        break;
    case WORD_END:
        if (l->conn != NULL)
            l->conn->node_open = false;
        l->conn = NULL;
        e.kind = MEMBER_EVENT_DISCONNECT;
        break;
    case WORD_JOIN:
    case WORD_REPORT:
    case WORD_RENEW:
    case WORD_LEAVE: assert_not_reached();
    }
    node_event(w, l, &e);
}

/* ---- effects ---- */

static void say(struct world *w, struct life *l, struct word *word) {
    if (l->conn != NULL && l->conn->node_open)
        net_to_leader(w, l->conn, word);
    else
        free(word); /* what matters is said again with the next JOIN */
}

static void ended(struct world *w, struct life *l) {
    const struct member_end *end = member_end(l->member);
    world_trace(w, "%u.%u ends (%d): %s", l->host, l->index, (int)end->kind, end->reason);
    w->coverage->ends[end->kind]++;
    world_mark(w, MARK_ENDED, l->host);
    oracle_node_ended(w, l);
    if (node_has_workers(l) && !l->unkillable)
        world_broken(w, "I5: agent %u.%u ends and leaves workers behind", l->host, l->index);
    if (l->index == 0)
        world_plan(w, ITEM_LEADER_EXIT, NULL, 0);
    else
        node_agent_dies(w, l, 0);
}

static void obey_one(struct world *w, struct life *l, const struct member_effect *e) {
    struct word *word;
    switch (e->kind) {
    case MEMBER_EFFECT_CONNECT: net_connect(w, l); break;
    case MEMBER_EFFECT_REPORT:
        word = word_new(WORD_REPORT);
        word->report = *member_report(l->member);
        world_trace(w, "%u.%u reports state %d of %u.%u%s", l->host, l->index, (int)word->report.state,
                    word->report.generation.epoch, word->report.generation.counter,
                    word->report.has_failure ? ", failed" : "");
        say(w, l, word);
        break;
    case MEMBER_EFFECT_RENEW:
        word = word_new(WORD_RENEW);
        word->renew = e->renew;
        say(w, l, word);
        break;
    case MEMBER_EFFECT_PROBE: net_probe(w, &w->lives[0], false, l); break;
    case MEMBER_EFFECT_PREPARE: launcher_prepare(w, l, e->generation); break;
    case MEMBER_EFFECT_START: launcher_start(w, l, e->generation); break;
    case MEMBER_EFFECT_STOP: launcher_stop(w, l, e->grace_ns); break;
    case MEMBER_EFFECT_FENCE: launcher_fence(w, l); break;
    case MEMBER_EFFECT_LEASE_END: guardian_hold(w, l, e->lease_end_ns); break;
    case MEMBER_EFFECT_SEND_LEAVE:
        say(w, l, word_new(WORD_LEAVE));
        if (l->conn != NULL)
            net_close_node(w, l->conn);
        l->conn = NULL;
        break;
    case MEMBER_EFFECT_END: ended(w, l); break;
    case MEMBER_EFFECT_HANG_UP:
    case MEMBER_EFFECT_ECHO:
    case MEMBER_EFFECT_ARBITER:
    case MEMBER_EFFECT_PROBE_PEER:
    case MEMBER_EFFECT_LEAD:
    case MEMBER_EFFECT_CALLERS: break;
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
        item_free(it);
    }
    l->pending_first = l->pending_last = NULL;
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (c->life == l && host_up)
            net_close_node(w, c);
        else if (c->life == l)
            c->node_open = false;
    }
    l->conn = NULL;
    if (l->index == 0)
        leader_dies(w);
}

void node_agent_dies(struct world *w, struct life *l, uint64_t sweep_ns) {
    if (!l->process)
        return;
    world_trace(w, "%u.%u: its agent is no more", l->host, l->index);
    close_kernel_side(w, l, true);
    l->swept_by_ns = w->now_ns + sweep_ns;
    guardian_sweeps(w, l, sweep_ns);
}

void node_host_off(struct world *w, uint32_t host) {
    w->hosts[host].up = false;
    w->hosts[host].frozen = false;
    for (unsigned i = 0; i < w->n_lives; i++) {
        struct life *l = &w->lives[i];
        if (l->host != host)
            continue;
        if (l->process)
            close_kernel_side(w, l, false);
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

void node_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    switch (it->kind) {
    case ITEM_TIMER:
        if (it->version == l->timer_version)
            node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_TIME});
        break;
    case ITEM_CONNECT_FAILED:
        if (it->version != l->connect_version || (l->conn != NULL && l->welcomed))
            break;
        if (l->conn != NULL)
            net_close_node(w, l->conn);
        l->conn = NULL;
        if (!l->welcomed)
            node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_DISCONNECT});
        break;
    case ITEM_PROBE_LEADER_ANSWER:
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = it->probe});
        break;
    case ITEM_THAW_AGENT:
        l->frozen = false;
        world_trace(w, "%u.%u thaws", l->host, l->index);
        thaw(w, l);
        break;
    case ITEM_THAW_HOST:
        if (w->now_ns < w->hosts[it->local].frozen_until_ns)
            break; /* of an earlier freeze, which a power cut ended */
        w->hosts[it->local].frozen = false;
        world_trace(w, "host %u thaws", it->local);
        for (unsigned i = 0; i < w->n_lives; i++)
            if (w->lives[i].host == it->local) {
                w->lives[i].host_thawed_ns = w->now_ns;
                thaw(w, &w->lives[i]);
            }
        break;
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
    case ITEM_CONNECT_ARRIVES:
    case ITEM_GROUP_TIMER:
    case ITEM_PROBE_NODE:
    case ITEM_PROBE_NODE_ANSWER:
    case ITEM_PROBE_LEADER:
    case ITEM_STORE:
    case ITEM_FAULT:
    case ITEM_FORGED_ACK:
    case ITEM_LEADER_EXIT: assert_not_reached();
    }
}
