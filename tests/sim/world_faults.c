/* Misfortunes: how they are drawn from a seed, and what each does. */
#include <string.h>

#include "world_priv.h"

static const char *const fault_names[FAULT_KIND_COUNT] = {
    [FAULT_BOOT] = "boot",
    [FAULT_WORKER] = "worker fails",
    [FAULT_WORKERS] = "workers fail",
    [FAULT_AGENT_KILL] = "agent killed",
    [FAULT_HOST_OFF] = "host off",
    [FAULT_FREEZE_AGENT] = "agent frozen",
    [FAULT_FREEZE_HOST] = "host frozen",
    [FAULT_CUT] = "connection cut",
    [FAULT_PARTITION] = "partition",
    [FAULT_DELAY] = "delay",
    [FAULT_PREPARE_FAILS] = "prepare fails",
    [FAULT_PREPARE_SLOW] = "prepare is slow",
    [FAULT_SPAWN_FAILS] = "spawn fails",
    [FAULT_IGNORE_TERM] = "workers ignore SIGTERM",
    [FAULT_UNKILLABLE] = "workers can't be killed",
    [FAULT_STORE_FAILS] = "store fails",
    [FAULT_OPERATOR_STOP] = "operator stops the job",
    [FAULT_LEAVE] = "node told to leave",
};

void fault_print(const struct fault *f, FILE *out) {
    (void)fprintf(out, "  %10.6f s  host %u: %s (%lld, %lld)\n", (double)f->at_ns / 1e9, f->host,
                  fault_names[f->kind], (long long)f->arg, (long long)f->arg2);
}

static const char *const mutant_names[MUTANT_COUNT] = {
    [MUTANT_NONE] = "none",
    [MUTANT_SKIP_ACK] = "START without waiting for the acks",
    [MUTANT_SILENT_IS_GONE] = "a silent probe means gone",
    [MUTANT_DISCONNECT_IS_GONE] = "the end of a connection means gone",
    [MUTANT_START_NO_LEASE] = "START without a lease",
    [MUTANT_LEASE_FROM_RECEIPT] = "a lease counts from its receipt",
    [MUTANT_NO_FENCE] = "no fence at the end of a lease",
    [MUTANT_NO_GUARDIAN] = "no guardian for a frozen agent",
    [MUTANT_STALE_FAILURE] = "an old failure counts for the present group",
    [MUTANT_NO_MARGIN] = "lost at the end of the lease, without margin",
    [MUTANT_KEEP_WORKERS] = "stopped is said while workers run",
    [MUTANT_FAILED_IS_STOPPED] = "a failed node counts as stopped",
    [MUTANT_WRONG_RANK] = "two nodes get one place",
    [MUTANT_RAW_CLOCKS] = "clocks of nodes are not brought together",
    [MUTANT_TOO_MANY] = "one node more than max",
    [MUTANT_CHARGE_TWICE] = "a failure is charged by node and leader",
};

const char *mutant_name(enum mutant m) { return mutant_names[m]; }

/* ---- what they do ---- */

static void worker_fails(struct world *w, uint32_t host, int32_t code, uint64_t in_ns) {
    struct life *l = node_newest(w, host);
    if (l != NULL && node_has_workers(l))
        worker_exits(w, l, (uint32_t)world_below(w, l->n_workers), code, in_ns);
}

static void disturb(struct world *w, uint32_t host, uint64_t until_ns) {
    struct host *h = &w->hosts[host];
    h->disturbed_until_ns = MAX2(h->disturbed_until_ns, until_ns + NS_PER_S);
}

static void freeze(struct world *w, const struct fault *f) {
    disturb(w, f->host, w->now_ns + (uint64_t)f->arg);
    if (f->kind == FAULT_FREEZE_AGENT) {
        struct life *l = node_newest(w, f->host);
        if (l == NULL || !l->process || l->frozen)
            return;
        l->frozen = l->disturbed = true;
        world_plan(w, ITEM_THAW_AGENT, l, (uint64_t)f->arg);
        return;
    }
    struct host *h = &w->hosts[f->host];
    if (!h->up || h->frozen)
        return;
    h->frozen = true;
    h->frozen_until_ns = w->now_ns + (uint64_t)f->arg;
    world_plan(w, ITEM_THAW_HOST, NULL, (uint64_t)f->arg)->local = f->host;
}

static void boot(struct world *w, uint32_t host) {
    struct life *l = node_newest(w, host);
    w->hosts[host].up = true;
    if (l == NULL || !l->process)
        (void)node_boot(w, host);
}

static void dies(struct world *w, const struct fault *f) {
    struct life *l = node_newest(w, f->host);
    if (f->host == 0)
        w->leader_was_killed = true;
    if (f->kind == FAULT_HOST_OFF)
        node_host_off(w, f->host);
    else if (l != NULL)
        node_agent_dies(w, l, (uint64_t)f->arg);
}

static void told_to_leave(struct world *w, const struct fault *f) {
    struct life *l = node_newest(w, f->host);
    if (l == NULL || !l->process || l->frozen || !host_running(w, f->host))
        return;
    if (f->host == 0) {
        leader_operator_stop(w);
        return;
    }
    l->was_told_to_leave = true;
    node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_LEAVE, .reason = "told to stop by SIGTERM",
                                            .grace_ns = (uint64_t)f->arg});
}

static void link_fault(struct world *w, const struct fault *f) {
    struct host *h = &w->hosts[f->host];
    uint64_t until = w->now_ns + (uint64_t)f->arg;
    for (unsigned i = 0; i < w->n_lives; i++)
        w->lives[i].disturbed = w->lives[i].disturbed || w->lives[i].host == f->host;
    disturb(w, f->host, until + (f->kind == FAULT_DELAY ? (uint64_t)f->arg2 : 0));
    if (f->kind == FAULT_DELAY) {
        h->slow_until_ns = until;
        h->slow_max_ns = (uint64_t)f->arg2;
        return;
    }
    if ((f->arg2 & 1) != 0)
        h->to_blocked_until_ns = MAX2(h->to_blocked_until_ns, until);
    if ((f->arg2 & 2) != 0)
        h->from_blocked_until_ns = MAX2(h->from_blocked_until_ns, until);
}

void fault_happens(struct world *w, const struct fault *f) {
    struct host *h = &w->hosts[f->host];
    struct life *l = node_newest(w, f->host);
    world_trace(w, "FAULT host %u: %s (%lld, %lld)", f->host, fault_names[f->kind], (long long)f->arg,
                (long long)f->arg2);
    switch (f->kind) {
    case FAULT_BOOT: boot(w, f->host); break;
    case FAULT_WORKER: worker_fails(w, f->host, (int32_t)f->arg, 0); break;
    case FAULT_WORKERS:
        for (uint32_t i = 0; i < w->p.n_hosts; i++)
            if ((f->arg >> i & 1) != 0)
                worker_fails(w, i, 7, world_below(w, (uint64_t)f->arg2 + 1));
        break;
    case FAULT_AGENT_KILL:
    case FAULT_HOST_OFF: dies(w, f); break;
    case FAULT_FREEZE_AGENT:
    case FAULT_FREEZE_HOST: freeze(w, f); break;
    case FAULT_CUT:
        if (l != NULL)
            net_cut(w, l, (enum cut_mode)f->arg);
        break;
    case FAULT_PARTITION:
    case FAULT_DELAY: link_fault(w, f); break;
    case FAULT_PREPARE_FAILS: h->prepare_fails = true; break;
    case FAULT_PREPARE_SLOW: h->prepare_slow = true; break;
    case FAULT_SPAWN_FAILS: h->spawn_fails = true; break;
    case FAULT_IGNORE_TERM: h->ignore_term = true; break;
    case FAULT_UNKILLABLE:
        if (l != NULL && node_has_workers(l))
            l->unkillable = true;
        break;
    case FAULT_STORE_FAILS: w->store_fails = true; break;
    case FAULT_OPERATOR_STOP:
        if (w->lives[0].process && !w->lives[0].frozen && host_running(w, 0))
            leader_operator_stop(w);
        break;
    case FAULT_LEAVE: told_to_leave(w, f); break;
    case FAULT_KIND_COUNT: assert_not_reached();
    }
}

/* ---- how they are drawn ---- */

struct fault *world_params_fault(struct world_params *p, enum fault_kind kind, uint64_t at_ns, uint32_t host,
                                 int64_t arg, int64_t arg2) {
    assert(p->n_faults < WORLD_FAULTS_MAX);
    struct fault *f = &p->faults[p->n_faults++];
    *f = (struct fault){kind, at_ns, host, arg, arg2};
    return f;
}

void world_params_calm(struct world_params *ret, uint32_t hosts) {
    *ret = (struct world_params){
        .seed = 1,
        .n_hosts = hosts,
        .delay_min_ns = NS_PER_MS,
        .delay_max_ns = NS_PER_MS,
        .work_ns = 10 * NS_PER_S,
        .calm_network = true,
        .honest_clocks = true,
        .end_ns = 2000 * NS_PER_S,
    };
    group_config_default(&ret->group);
    member_config_default(&ret->member);
    ret->group.min_nodes = ret->group.max_nodes = hosts;
    ret->group.log_nonce = 42;
    for (uint32_t h = 0; h < hosts; h++) {
        ret->nproc[h] = 1;
        ret->offset_ns[h] = 1000 * NS_PER_S;
        (void)world_params_fault(ret, FAULT_BOOT, h == 0 ? 0 : NS_PER_MS, h, 0, 0);
    }
}

struct draw {
    struct prng prng;
};

static uint64_t between(struct draw *d, uint64_t low, uint64_t high) {
    return low + prng_below(&d->prng, high - low + 1);
}

static bool chance(struct draw *d, unsigned percent) { return prng_below(&d->prng, 100) < percent; }

static uint64_t ms(struct draw *d, uint64_t low, uint64_t high) {
    return between(d, low * NS_PER_MS, high * NS_PER_MS);
}

/* What goes wrong in a world of this kind. Many worlds know only some of the faults: those who
 * know all rarely live long enough for anything. */
enum mood { MOOD_WORKERS, MOOD_NODES, MOOD_NETWORK, MOOD_FREEZES, MOOD_ALL, MOOD_COUNT };

static enum fault_kind draw_kind(struct draw *d, enum mood mood) {
    static const enum fault_kind workers[] = {FAULT_WORKER, FAULT_WORKERS, FAULT_WORKER, FAULT_WORKERS,
                                              FAULT_PREPARE_FAILS, FAULT_SPAWN_FAILS, FAULT_IGNORE_TERM};
    static const enum fault_kind nodes[] = {FAULT_AGENT_KILL, FAULT_AGENT_KILL, FAULT_HOST_OFF, FAULT_BOOT,
                                            FAULT_BOOT, FAULT_LEAVE, FAULT_UNKILLABLE, FAULT_PREPARE_SLOW};
    static const enum fault_kind network[] = {FAULT_CUT, FAULT_PARTITION, FAULT_DELAY};
    static const enum fault_kind freezes[] = {FAULT_FREEZE_AGENT, FAULT_FREEZE_HOST};
    static const enum fault_kind rare[] = {FAULT_STORE_FAILS, FAULT_OPERATOR_STOP};
    if (chance(d, 2))
        return rare[prng_below(&d->prng, ARRAY_SIZE(rare))];
    if (mood == MOOD_ALL)
        mood = (enum mood)prng_below(&d->prng, MOOD_ALL);
    else if (chance(d, 25))
        mood = MOOD_WORKERS;
    switch (mood) {
    case MOOD_WORKERS: return workers[prng_below(&d->prng, ARRAY_SIZE(workers))];
    case MOOD_NODES: return nodes[prng_below(&d->prng, ARRAY_SIZE(nodes))];
    case MOOD_NETWORK: return network[prng_below(&d->prng, ARRAY_SIZE(network))];
    case MOOD_FREEZES: return freezes[prng_below(&d->prng, ARRAY_SIZE(freezes))];
    case MOOD_ALL:
    case MOOD_COUNT: break;
    }
    assert_not_reached();
}

static void draw_fault(struct draw *d, struct world_params *p, enum mood mood, uint64_t calm_ns) {
    enum fault_kind kind = draw_kind(d, mood);
    uint64_t at = between(d, 0, calm_ns);
    uint32_t host = (uint32_t)prng_below(&d->prng, p->n_hosts);
    bool leader_too = chance(d, 15);
    int64_t arg = 0, arg2 = 0;
    switch (kind) {
    case FAULT_WORKER: arg = chance(d, 50) ? (int64_t)between(d, 2, 9) : -11; break;
    case FAULT_WORKERS:
        arg = (int64_t)between(d, 1, 255);
        arg2 = (int64_t)ms(d, 0, chance(d, 50) ? 400 : 2);
        break;
    case FAULT_AGENT_KILL: arg = (int64_t)ms(d, 0, 1000); break;
    case FAULT_FREEZE_AGENT:
    case FAULT_FREEZE_HOST: arg = (int64_t)ms(d, 100, 12000); break;
    case FAULT_CUT: arg = (int64_t)prng_below(&d->prng, CUT_MODE_COUNT); break;
    case FAULT_PARTITION:
        arg = (int64_t)ms(d, 100, 12000);
        arg2 = (int64_t)between(d, 1, 3);
        break;
    case FAULT_DELAY:
        arg = (int64_t)ms(d, 1000, 15000);
        arg2 = (int64_t)ms(d, 100, 6000);
        break;
    case FAULT_LEAVE: arg = (int64_t)ms(d, 0, 3000); break;
    case FAULT_BOOT:
    case FAULT_HOST_OFF:
    case FAULT_PREPARE_FAILS:
    case FAULT_PREPARE_SLOW:
    case FAULT_SPAWN_FAILS:
    case FAULT_IGNORE_TERM:
    case FAULT_UNKILLABLE:
    case FAULT_STORE_FAILS:
    case FAULT_OPERATOR_STOP:
    case FAULT_KIND_COUNT: break;
    }
    /* The leader's own host fares well mostly: without succession its end is the end. */
    bool deadly = kind == FAULT_AGENT_KILL || kind == FAULT_HOST_OFF || kind == FAULT_LEAVE ||
                  kind == FAULT_FREEZE_AGENT || kind == FAULT_FREEZE_HOST || kind == FAULT_UNKILLABLE;
    if (host == 0 && deadly && !leader_too) {
        if (p->n_hosts == 1)
            return;
        host = 1 + (uint32_t)prng_below(&d->prng, p->n_hosts - 1);
    }
    (void)world_params_fault(p, kind, at, host, arg, arg2);
    if (kind == FAULT_PARTITION && chance(d, 50)) {
        /* What happened first is heard last. */
        p->faults[p->n_faults - 1].arg = (int64_t)ms(d, 50, 250);
        (void)world_params_fault(p, FAULT_WORKER, at + NS_PER_MS, host, -11, 0);
        uint32_t other = (uint32_t)prng_below(&d->prng, p->n_hosts);
        (void)world_params_fault(p, FAULT_WORKER, at + ms(d, 2, 250), other, 3, 0);
    }
    if (kind == FAULT_AGENT_KILL || kind == FAULT_HOST_OFF)
        if (host != 0 && chance(d, 60)) /* it comes back, as a newcomer */
            (void)world_params_fault(p, FAULT_BOOT, at + ms(d, 5, 8000), host, 0, 0);
}

static void draw_config(struct draw *d, struct world_params *p) {
    group_config_default(&p->group);
    member_config_default(&p->member);
    p->group.min_nodes = (uint32_t)between(d, 1, p->n_hosts);
    p->group.max_nodes = (uint32_t)between(d, p->group.min_nodes, p->n_hosts);
    if (chance(d, 15)) {
        p->group.static_ranks = true;
        p->group.max_nodes = p->n_hosts;
    }
    p->group.max_restarts = (uint32_t)prng_below(&d->prng, 5);
    p->group.last_call_ns = ms(d, 0, 4000);
    p->group.regroup_wait_ns = chance(d, 70) ? 0 : ms(d, 500, 10000);
    p->group.join_timeout_ns = p->member.join_timeout_ns = ms(d, 10000, 40000);
    p->group.form_timeout_ns = ms(d, 2000, 10000);
    p->group.close_timeout_ns = ms(d, 2000, 10000);
    p->group.log_nonce = 1 + prng_next(&d->prng) / 2;
    p->member.leader_timeout_ns = ms(d, 8000, 20000);
}

void world_params_random(struct world_params *ret, uint64_t seed) {
    struct draw d = {{seed * UINT64_C(0x9e3779b97f4a7c15) + 1}};
    (void)prng_next(&d.prng);
    struct world_params p = {.seed = seed};
    p.n_hosts = (uint32_t)(chance(&d, 10) ? between(&d, 6, WORLD_HOSTS_MAX) : between(&d, 1, 5));
    draw_config(&d, &p);
    p.delay_min_ns = between(&d, 20 * NS_PER_US, NS_PER_MS);
    p.delay_max_ns = p.delay_min_ns + (chance(&d, 30) ? ms(&d, 1, 80) : ms(&d, 0, 2));
    p.work_ns = ms(&d, 200, 15000);
    p.says_gone = chance(&d, 30);
    p.noise_ns = chance(&d, 50) ? ms(&d, 50, 1500) : 0;
    enum mood mood = (enum mood)prng_below(&d.prng, MOOD_COUNT);
    p.calm_network = mood == MOOD_WORKERS || mood == MOOD_NODES;
    /* 1 % is what the rules must stand; real clocks, which the first cause depends on, keep 100 ppm. */
    int64_t rate = p.calm_network || chance(&d, 60) ? 100 : 10000;
    p.honest_clocks = rate == 100;
    for (uint32_t h = 0; h < p.n_hosts; h++) {
        p.nproc[h] = (uint32_t)between(&d, 1, WORLD_WORKERS_MAX);
        p.offset_ns[h] = ms(&d, 1, 100000000);
        p.rate_ppm[h] = (int64_t)between(&d, 0, (uint64_t)(2 * rate)) - rate;
    }
    uint64_t calm_ns = ms(&d, 3000, 40000);
    for (uint32_t h = 0; h < p.n_hosts; h++) {
        uint64_t late = chance(&d, 15) ? calm_ns : 1500 * NS_PER_MS;
        (void)world_params_fault(&p, FAULT_BOOT, h == 0 ? ms(&d, 0, 1000) : between(&d, 0, late), h, 0, 0);
    }
    uint64_t n = prng_below(&d.prng, 13);
    for (uint64_t i = 0; i < n; i++)
        draw_fault(&d, &p, mood, calm_ns);
    for (size_t i = 0; i < p.n_faults; i++)
        p.honest_clocks = p.honest_clocks && p.faults[i].kind != FAULT_DELAY;
    /* By then nothing is broken any more: faults last 15 s at most. Every group after that runs to
     * its end, or is the budget's. */
    uint64_t patience = p.group.lease_ns + p.group.margin_ns;
    p.end_ns = calm_ns + 25 * NS_PER_S + p.group.join_timeout_ns + p.member.leader_timeout_ns +
               p.group.close_timeout_ns + p.group.last_call_ns +
               (p.group.max_restarts + 2 + p.n_hosts) *
                   (p.work_ns + p.group.form_timeout_ns + p.group.regroup_wait_ns + patience + 10 * NS_PER_S);
    *ret = p;
}
