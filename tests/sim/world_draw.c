/* Worlds: calm ones, and those drawn from a seed. */
#include "world_priv.h"

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
        .rankless = WORLD_HOSTS_MAX,
        .delay_min_ns = NS_PER_MS,
        .delay_max_ns = NS_PER_MS,
        .work_ns = 10 * NS_PER_S,
        .n_peer_addrs = 1,
        .calm_network = true,
        .honest_clocks = true,
        .end_ns = 2000 * NS_PER_S,
    };
    group_config_default(&ret->group);
    member_config_default(&ret->member);
    ret->group.rdzv.min_nodes = ret->group.rdzv.max_nodes = hosts;
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
enum mood {
    MOOD_WORKERS,
    MOOD_NODES,
    MOOD_NETWORK,
    MOOD_FREEZES,
    MOOD_LEADERSHIP, /* the arbiter, the leader file, and who leads or may */
    MOOD_OPERATORS,
    MOOD_ALL,
    MOOD_COUNT,
};

static enum fault_kind draw_kind(struct draw *d, const struct world_params *p, enum mood mood) {
    static const enum fault_kind workers[] = {FAULT_WORKER,        FAULT_WORKERS,     FAULT_WORKER,      FAULT_WORKERS,
                                              FAULT_PREPARE_FAILS, FAULT_SPAWN_FAILS, FAULT_IGNORE_TERM, FAULT_HANG};
    static const enum fault_kind nodes[] = {FAULT_AGENT_KILL,   FAULT_AGENT_KILL,  FAULT_HOST_OFF,   FAULT_BOOT,
                                            FAULT_BOOT,         FAULT_LEAVE,       FAULT_UNKILLABLE, FAULT_PREPARE_SLOW,
                                            FAULT_KILL_WORKERS, FAULT_KILL_WORKERS};
    static const enum fault_kind network[] = {FAULT_CUT, FAULT_PARTITION, FAULT_DELAY};
    static const enum fault_kind freezes[] = {FAULT_FREEZE_AGENT, FAULT_FREEZE_HOST, FAULT_FREEZE_AGENT,
                                              FAULT_FREEZE_HOST,  FAULT_FENCE_LATE,  FAULT_PAUSE};
    static const enum fault_kind arbiter[] = {FAULT_ARBITER_OUT, FAULT_ARBITER_SLOW, FAULT_ARBITER_SLOW,
                                              FAULT_AGENT_KILL,  FAULT_PARTITION,    FAULT_HOST_OFF,
                                              FAULT_KILL_WORKERS};
    static const enum fault_kind leader_file[] = {FAULT_TOUCH_FAILS, FAULT_AGENT_KILL, FAULT_FREEZE_AGENT, FAULT_BOOT};
    static const enum fault_kind operators[] = {FAULT_EXCLUDE, FAULT_GROW, FAULT_SAFE_POINT, FAULT_SAFE_POINT,
                                                FAULT_LEAVE};
    static const enum fault_kind rare[] = {FAULT_STORE_FAILS, FAULT_OPERATOR_STOP, FAULT_STOP};
#define ONE_OF(list) (list)[prng_below(&d->prng, ARRAY_SIZE(list))]
    if (chance(d, 2))
        return ONE_OF(rare);
    if (mood == MOOD_ALL)
        mood = (enum mood)prng_below(&d->prng, MOOD_ALL);
    else if (chance(d, 25))
        mood = MOOD_WORKERS;
    switch (mood) {
    case MOOD_WORKERS: return ONE_OF(workers);
    case MOOD_NODES: return ONE_OF(nodes);
    case MOOD_NETWORK: return ONE_OF(network);
    case MOOD_FREEZES: return ONE_OF(freezes);
    case MOOD_LEADERSHIP:
        if (p->group.leadership == LEADERSHIP_NONE)
            return ONE_OF(nodes);
        return p->group.leadership == LEADERSHIP_LEADER_FILE ? ONE_OF(leader_file) : ONE_OF(arbiter);
    case MOOD_OPERATORS: return ONE_OF(operators);
    case MOOD_ALL:
    case MOOD_COUNT: break;
    }
#undef ONE_OF
    assert_not_reached();
}

/* With an arbiter the faults go for those who matter: the leader and the first successors. */
static uint32_t draw_host(struct draw *d, const struct world_params *p, enum fault_kind kind, enum mood mood) {
    uint32_t host = (uint32_t)prng_below(&d->prng, p->n_hosts);
    if (kind == FAULT_BOOT)
        return host;
    if (p->group.leadership == LEADERSHIP_ARBITER && chance(d, mood == MOOD_LEADERSHIP ? 70 : 25))
        return chance(d, 60) ? HOST_LEADER : HOST_SUCCESSOR((uint32_t)prng_below(&d->prng, 2));
    /* A fixed leader's own host fares well mostly: without succession its end is the end. */
    bool deadly = kind == FAULT_AGENT_KILL || kind == FAULT_HOST_OFF || kind == FAULT_LEAVE ||
                  kind == FAULT_KILL_WORKERS || kind == FAULT_FREEZE_AGENT || kind == FAULT_FREEZE_HOST ||
                  kind == FAULT_UNKILLABLE;
    if (p->group.leadership == LEADERSHIP_LEADER_FILE && mood == MOOD_LEADERSHIP)
        return 0;
    if (p->group.leadership != LEADERSHIP_ARBITER && host == 0 && deadly && !chance(d, 15))
        return p->n_hosts == 1 ? UINT32_MAX : 1 + (uint32_t)prng_below(&d->prng, p->n_hosts - 1);
    return host;
}

/* Without another random number, so that worlds with the same seed stay the same. */
static enum leave_how draw_leave(uint64_t arg) {
    switch (arg % 16) {
    case 0:
    case 1:
    case 2:
    case 3: return LEAVE_INT;
    case 4:
    case 5:
    case 6: return LEAVE_DRAIN;
    case 7: return LEAVE_FAILS;
    }
    return LEAVE_TERM;
}

/* The user presses ^C again, and perhaps once more. */
static void draw_impatience(struct world_params *p, const struct fault *f) {
    uint64_t arg = (uint64_t)f->arg, at = f->at_ns;
    for (uint64_t n = 1 + arg / 16 % 2; n > 0; n--) {
        at += arg / n % NS_PER_S;
        (void)world_params_fault(p, FAULT_LEAVE, at, f->host, f->arg, LEAVE_INT);
    }
}

static void draw_args(struct draw *d, const struct world_params *p, struct fault *f) {
    switch (f->kind) {
    case FAULT_WORKER: f->arg = chance(d, 50) ? (int64_t)between(d, 2, 9) : chance(d, 30) ? -9 : -11; break;
    case FAULT_WORKERS:
        f->arg = (int64_t)between(d, 1, 255);
        f->arg2 = (int64_t)ms(d, 0, chance(d, 50) ? 400 : 2);
        break;
    case FAULT_KILL_WORKERS: f->arg = chance(d, 70) ? 9 : 15; break;
    case FAULT_AGENT_KILL: f->arg = (int64_t)ms(d, 0, 1000); break;
    case FAULT_FREEZE_AGENT:
    case FAULT_FREEZE_HOST:
    case FAULT_TOUCH_FAILS: f->arg = (int64_t)ms(d, 100, 12000); break;
    case FAULT_CUT: f->arg = (int64_t)prng_below(&d->prng, CUT_MODE_COUNT); break;
    case FAULT_PARTITION:
        f->arg = (int64_t)ms(d, 100, chance(d, 70) ? 12000 : 25000);
        f->arg2 = (int64_t)between(d, 1, 3);
        if (chance(d, 40)) /* from some only */
            f->arg2 |= (int64_t)(1 + prng_below(&d->prng, (UINT64_C(1) << p->n_hosts) - 1)) << 2;
        break;
    case FAULT_DELAY:
        f->arg = (int64_t)ms(d, 1000, 15000);
        f->arg2 = (int64_t)ms(d, 100, 6000);
        break;
    case FAULT_LEAVE:
        f->arg = (int64_t)ms(d, 0, 3000);
        f->arg2 = (int64_t)draw_leave((uint64_t)f->arg);
        break;
    case FAULT_HANG: f->arg = chance(d, 30); break;
    case FAULT_ARBITER_OUT:
        f->arg = (int64_t)ms(d, 100, chance(d, 70) ? 12000 : 25000);
        f->arg2 = chance(d, 50);
        break;
    case FAULT_ARBITER_SLOW:
        f->arg = (int64_t)ms(d, 1000, 15000);
        f->arg2 = (int64_t)ms(d, 100, chance(d, 50) ? 3000 : 12000);
        break;
    case FAULT_ARBITER_EMPTIED:
        f->arg = chance(d, 40) ? (int64_t)ms(d, 100, 4000) : 0; /* less than a lease */
        f->arg2 = f->arg == 0 && chance(d, 40);
        break;
    case FAULT_PAUSE:
        f->arg = (int64_t)ms(d, 100, 12000);
        f->arg2 = (int64_t)ms(d, 0, chance(d, 50) ? 300 : 4000);
        break;
    case FAULT_BOOT:
    case FAULT_FENCE_LATE:
    case FAULT_HOST_OFF:
    case FAULT_PREPARE_FAILS:
    case FAULT_PREPARE_SLOW:
    case FAULT_SPAWN_FAILS:
    case FAULT_IGNORE_TERM:
    case FAULT_UNKILLABLE:
    case FAULT_STORE_FAILS:
    case FAULT_OPERATOR_STOP:
    case FAULT_SAFE_POINT:
    case FAULT_EXCLUDE:
    case FAULT_GROW:
    case FAULT_STOP:
    case FAULT_SICK:
    case FAULT_CROWD:
    case FAULT_KIND_COUNT: break;
    }
}

/* Room is left for what belongs to one fault. */
static bool room(const struct world_params *p) { return p->n_faults + 4 < WORLD_FAULTS_MAX; }

/* Its workers were killed: mostly the agent follows. */
static void draw_rest_of_node(struct draw *d, struct world_params *p, const struct fault *f) {
    uint64_t at = f->at_ns + (chance(d, 50) ? ms(d, 0, 4) : ms(d, 0, 50));
    if (chance(d, 15))
        return;
    if (f->arg == 15 && chance(d, 50))
        (void)world_params_fault(p, FAULT_LEAVE, at, f->host, (int64_t)(3 * NS_PER_S), 0);
    else
        (void)world_params_fault(p, FAULT_AGENT_KILL, at, f->host, (int64_t)ms(d, 0, 5),
                                 f->host == 0 && p->group.leadership == LEADERSHIP_LEADER_FILE ? (int64_t)ms(d, 5, 4000)
                                                                                               : 0);
}

static void draw_fault(struct draw *d, struct world_params *p, enum mood mood, uint64_t calm_ns) {
    struct fault f = {.kind = draw_kind(d, p, mood), .at_ns = between(d, 0, calm_ns)};
    f.host = draw_host(d, p, f.kind, mood);
    if (f.host == UINT32_MAX || !room(p))
        return;
    draw_args(d, p, &f);
    struct fault *kept = world_params_fault(p, f.kind, f.at_ns, f.host, f.arg, f.arg2);
    if (f.kind == FAULT_PARTITION && chance(d, p->group.leadership == LEADERSHIP_ARBITER ? 15 : 50)) {
        /* What happened first is heard last. */
        kept->arg = (int64_t)ms(d, 50, 250);
        (void)world_params_fault(p, FAULT_WORKER, f.at_ns + NS_PER_MS, f.host, -11, 0);
        uint32_t other = (uint32_t)prng_below(&d->prng, p->n_hosts);
        (void)world_params_fault(p, FAULT_WORKER, f.at_ns + ms(d, 2, 250), other, 3, 0);
    }
    if (f.kind == FAULT_LEAVE && f.arg2 == LEAVE_INT)
        draw_impatience(p, &f);
    if (f.kind == FAULT_KILL_WORKERS)
        draw_rest_of_node(d, p, &f);
    bool deadly = f.kind == FAULT_AGENT_KILL || f.kind == FAULT_HOST_OFF;
    if (deadly && f.host == 0 && p->group.leadership == LEADERSHIP_LEADER_FILE)
        /* a leader file is lost with a reboot, which takes longer than a lease */
        kept->arg2 = (int64_t)(f.kind == FAULT_HOST_OFF ? ms(d, 7000, 12000) : ms(d, 5, 4000));
    else if (deadly && chance(d, 60)) /* it comes back, as a newcomer */
        kept->arg2 = (int64_t)ms(d, 5, 8000);
    /* One more blow to the same place: the first successor too, or the arbiter. */
    if (p->group.leadership == LEADERSHIP_ARBITER && (deadly || f.kind == FAULT_PARTITION) && mood == MOOD_LEADERSHIP &&
        chance(d, 40)) {
        static const enum fault_kind second[] = {FAULT_AGENT_KILL, FAULT_HOST_OFF, FAULT_FREEZE_AGENT,
                                                 FAULT_ARBITER_SLOW, FAULT_PARTITION};
        struct fault more = {.kind = second[prng_below(&d->prng, ARRAY_SIZE(second))]};
        draw_args(d, p, &more);
        /* named now, hit a little later */
        (void)world_params_fault(p, more.kind, f.at_ns + (chance(d, 50) ? 0 : ms(d, 0, 9000)), HOST_SUCCESSOR(0),
                                 more.arg, more.arg2);
    }
}

static void draw_config(struct draw *d, struct world_params *p) {
    struct group_config *g = &p->group;
    group_config_default(g);
    member_config_default(&p->member);
    uint64_t leadership = prng_below(&d->prng, 100);
    g->leadership = leadership < 35 ? LEADERSHIP_NONE : leadership < 47 ? LEADERSHIP_LEADER_FILE : LEADERSHIP_ARBITER;
    if (g->leadership == LEADERSHIP_ARBITER && p->n_hosts < 3 && chance(d, 70))
        p->n_hosts += 2;
    uint32_t most = p->n_hosts;
    if (g->leadership == LEADERSHIP_ARBITER && most > 1 && chance(d, 75))
        most--; /* so that others can go on */
    g->rdzv.min_nodes = (uint32_t)between(d, 1, most);
    g->rdzv.max_nodes = (uint32_t)between(d, g->rdzv.min_nodes, p->n_hosts);
    if (chance(d, 15)) {
        g->static_ranks = true;
        g->rdzv.max_nodes = p->n_hosts;
    }
    g->rdzv.max_restarts = (uint32_t)prng_below(&d->prng, 5);
    g->rdzv.last_call_ns = ms(d, 0, 4000);
    g->rdzv.regroup_wait_ns = chance(d, 70) ? 0 : ms(d, 500, 10000);
    g->rdzv.join_timeout_ns = p->member.rdzv.join_timeout_ns = ms(d, 10000, 40000);
    g->form_timeout_ns = ms(d, 2000, 10000);
    g->rdzv.close_timeout_ns = ms(d, 2000, 10000);
    g->log_nonce = 1 + prng_next(&d->prng) / 2;
    p->member.rdzv.leader_timeout_ns = ms(d, 8000, 20000);
}

/* What came with operators and succession. */
static void draw_policies(struct draw *d, struct world_params *p) {
    struct group_config *g = &p->group;
    if (!g->static_ranks && chance(d, 20) && p->n_hosts >= 2) {
        g->rdzv.node_unit = 2;
        g->rdzv.min_nodes = MAX2(g->rdzv.min_nodes, 2u);
        g->rdzv.max_nodes = MAX2(g->rdzv.max_nodes, g->rdzv.min_nodes);
        if (g->rdzv.min_nodes == g->rdzv.max_nodes && g->rdzv.min_nodes % 2 != 0)
            g->rdzv.min_nodes--;
    }
    if (chance(d, 30))
        g->rdzv.spares = (uint32_t)prng_below(&d->prng, 3);
    g->rdzv.grow = (enum rdzv_grow)prng_below(&d->prng, 3);
    if (!g->static_ranks && chance(d, 20))
        g->rdzv.rank_order = RANK_ORDER_JOIN;
    if (chance(d, 15))
        g->rdzv.max_node_losses = (uint32_t)prng_below(&d->prng, 3);
    g->rdzv.exclude_after = chance(d, 60) ? 0 : (uint32_t)between(d, 1, 3);
    if (chance(d, 20))
        g->rdzv.restart_backoff_ns = ms(d, 50, 400);
    if (chance(d, 30))
        g->rdzv.crash_loop_ns = 0;
    if (chance(d, 20))
        g->rdzv.hold_ns = ms(d, 100, 3000);
    g->rdzv.arbiter_lease_ns = chance(d, 25) ? 60 * NS_PER_S : ms(d, 10000, 20000);
}

/* By then nothing is broken any more: a fault lasts 25 s at most, and an answer that the arbiter
 * kept back 10 s more. Every group after that runs to its end, or is the budget's. */
static void set_bounds(struct world_params *p, uint64_t calm_ns) {
    const struct group_config *g = &p->group;
    uint64_t patience = g->rdzv.lease_ns + g->rdzv.margin_ns;
    p->healed_ns = calm_ns + 25 * NS_PER_S;
    p->end_ns = p->healed_ns + g->rdzv.join_timeout_ns + p->member.rdzv.leader_timeout_ns + g->rdzv.close_timeout_ns +
                g->rdzv.last_call_ns +
                (g->rdzv.max_restarts + 2 + p->n_hosts) *
                    (p->work_ns + g->form_timeout_ns + g->rdzv.regroup_wait_ns + patience +
                     32 * g->rdzv.restart_backoff_ns + 8 * g->rdzv.crash_loop_ns + g->rdzv.hold_ns + 10 * NS_PER_S);
    if (g->leadership == LEADERSHIP_ARBITER) {
        /* A leader is found: 2 (lease + margin) and a random part, twice if one dies of it; old
         * leases run out with the arbiter's; then a group forms as ever. */
        p->recover_ns = 4 * patience + 30 * NS_PER_S + g->rdzv.arbiter_lease_ns + g->rdzv.regroup_wait_ns +
                        g->rdzv.last_call_ns + g->form_timeout_ns + g->rdzv.hold_ns + 32 * g->rdzv.restart_backoff_ns +
                        8 * g->rdzv.crash_loop_ns;
        p->end_ns += 2 * p->recover_ns + g->rdzv.join_timeout_ns;
    }
}

static void draw_search(struct draw *d, struct world_params *p) {
    if (p->group.leadership != LEADERSHIP_ARBITER && chance(d, 35)) {
        p->n_ports = (unsigned)between(d, 2, WORLD_DOORS_MAX);
        p->leader_port = (unsigned)prng_below(&d->prng, p->n_ports);
    }
    for (unsigned i = 0; i < WORLD_DOORS_MAX; i++)
        p->doors[i] = (enum world_door)between(d, DOOR_OURS + 1, DOOR_COUNT - 1);
    p->n_peer_addrs = chance(d, 30) ? 2 : 1;
    p->describe_ns = chance(d, 30) ? ms(d, 0, 3000) : 0;
    p->lookup_fails = chance(d, 10);
}

/* Some of the hosts' domains are known late, or never. */
static void draw_domains(struct draw *d, struct world_params *p) {
    struct rdzv_settings *s = &p->group.rdzv;
    bool some_late = chance(d, 25);
    uint64_t domains = between(d, 1, 3);
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        p->domains[h] = (char)('a' + prng_below(&d->prng, domains));
        p->domain_late_ns[h] = some_late && chance(d, 30) ? ms(d, 1, 15000) : 0;
    }
    if (chance(d, 10))
        p->domains[prng_below(&d->prng, p->n_hosts)] = '\0';
    if (chance(d, 10))
        s->unit_of = UNIT_OF_ANY;
    if (p->group.static_ranks)
        return;
    s->node_unit = chance(d, 40) ? 1 : (uint32_t)between(d, 1, MIN2(3u, p->n_hosts));
    s->max_nodes = (uint32_t)between(d, s->node_unit, p->n_hosts);
    s->min_nodes = chance(d, 60) ? s->node_unit : (uint32_t)between(d, 1, s->max_nodes / s->node_unit * s->node_unit);
}

static void draw_sick(struct draw *d, struct world_params *p, uint64_t calm_ns) {
    if (!chance(d, 30))
        return;
    if (chance(d, 10))
        p->group.rdzv.sick_nodes = SICK_NODES_REPORT;
    for (uint64_t n = between(d, 1, 2 * p->n_hosts); n > 0 && room(p); n--) {
        uint64_t at = between(d, 0, calm_ns);
        uint32_t host = draw_host(d, p, FAULT_SICK, MOOD_ALL);
        (void)world_params_fault(p, FAULT_SICK, at, host, chance(d, 75), 0);
        if (chance(d, 60) && room(p)) /* and its worker fails */
            (void)world_params_fault(p, FAULT_WORKER, at + ms(d, 0, 500), host, -6, 0);
    }
}

void world_params_random(struct world_params *ret, uint64_t seed) {
    struct draw d = {{seed * UINT64_C(0x9e3779b97f4a7c15) + 1}};
    struct draw of_domains = {{seed * UINT64_C(0xd1342543de82ef95) + 1}}; /* so that the other worlds stay the same */
    struct draw of_sick = {{seed * UINT64_C(0xaf251af3b0f025b5) + 1}};
    (void)prng_next(&d.prng);
    (void)prng_next(&of_domains.prng);
    (void)prng_next(&of_sick.prng);
    bool has_domains = chance(&of_domains, 30);
    struct world_params p = {.seed = seed, .rankless = WORLD_HOSTS_MAX};
    p.n_hosts = (uint32_t)(chance(&d, 10) ? between(&d, 6, WORLD_HOSTS_MAX) : between(&d, 1, 5));
    if (has_domains && chance(&of_domains, 70))
        p.n_hosts = (uint32_t)between(&of_domains, 4, WORLD_HOSTS_MAX);
    draw_config(&d, &p);
    draw_policies(&d, &p);
    if (has_domains)
        draw_domains(&of_domains, &p);
    if (p.group.static_ranks && p.n_hosts > 1 && chance(&d, 10))
        p.rankless = 1 + (uint32_t)prng_below(&d.prng, p.n_hosts - 1);
    p.delay_min_ns = between(&d, 20 * NS_PER_US, NS_PER_MS);
    p.delay_max_ns = p.delay_min_ns + (chance(&d, 30) ? ms(&d, 1, 80) : ms(&d, 0, 2));
    p.work_ns = ms(&d, 200, 15000);
    if (p.group.leadership == LEADERSHIP_ARBITER && chance(&d, 60))
        p.work_ns = chance(&d, 15) ? ms(&d, 100000, 250000) : ms(&d, 5000, 40000);
    p.lingers = true;
    p.says_gone = chance(&d, 30);
    p.noise_ns = chance(&d, 50) ? ms(&d, 50, 1500) : 0;
    enum mood mood = (enum mood)prng_below(&d.prng, MOOD_COUNT);
    if (p.group.leadership != LEADERSHIP_NONE && chance(&d, 40))
        mood = MOOD_LEADERSHIP;
    p.calm_network = mood == MOOD_WORKERS || mood == MOOD_NODES;
    /* 1 % is what the rules must stand; real clocks, which the first cause depends on, keep
     * 100 ppm. */
    int64_t rate = p.calm_network || chance(&d, 60) ? 100 : 10000;
    p.honest_clocks = rate == 100;
    for (uint32_t h = 0; h < p.n_hosts; h++) {
        p.nproc[h] = (uint32_t)between(&d, 1, WORLD_WORKERS_MAX);
        p.offset_ns[h] = ms(&d, 1, 100000000);
        p.rate_ppm[h] = (int64_t)between(&d, 0, (uint64_t)(2 * rate)) - rate;
    }
    uint64_t calm_ns = ms(&d, 3000, 40000);
    bool dense = p.group.leadership != LEADERSHIP_NONE && chance(&d, 30); /* blow upon blow */
    if (dense)
        calm_ns = ms(&d, 6000, 15000);
    for (uint32_t h = 0; h < p.n_hosts; h++) {
        uint64_t late = chance(&d, 15) ? calm_ns : 1500 * NS_PER_MS;
        uint64_t at = h == 0 ? ms(&d, 0, 1000) : between(&d, 0, late);
        (void)world_params_fault(&p, FAULT_BOOT, at, h, 0, 0);
    }
    uint64_t n = dense ? between(&d, 6, 16) : prng_below(&d.prng, 13);
    for (uint64_t i = 0; i < n; i++)
        draw_fault(&d, &p, mood, calm_ns);
    if (p.group.leadership == LEADERSHIP_ARBITER && room(&p) && chance(&d, 8)) {
        struct fault f = {.kind = FAULT_ARBITER_EMPTIED};
        draw_args(&d, &p, &f);
        (void)world_params_fault(&p, f.kind, between(&d, 0, calm_ns), 0, f.arg, f.arg2);
    }
    for (size_t i = 0; i < p.n_faults; i++)
        p.honest_clocks = p.honest_clocks && p.faults[i].kind != FAULT_DELAY;
    draw_sick(&of_sick, &p, calm_ns);
    set_bounds(&p, calm_ns);
    draw_search(&d, &p);
    *ret = p;
}
