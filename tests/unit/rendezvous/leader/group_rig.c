#include "group_rig.h"

#include "rig/unit.h"

struct group_config config_of(uint32_t min, uint32_t max) {
    struct group_config c;
    group_config_default(&c);
    c.leader_incarnation = 1;
    c.rdzv.min_nodes = min;
    c.rdzv.max_nodes = max;
    return c;
}

void step(struct rig *r, struct group_event e) {
    e.now_ns = r->now_ns;
    group_step(r->g, &e, &r->u);
    for (size_t i = 0; i < r->u.n_effects; i++)
        r->seen[r->u.effects[i].kind]++;
    if (r->after != NULL)
        r->after(r);
}

void begin(struct rig *r, const struct group_config *c) {
    *r = (struct rig){.now_ns = S(1000)};
    cr_assert_eq(group_new(c, r->now_ns, &r->g), 0);
    step(r, (struct group_event){.kind = GROUP_EVENT_TIME});
}

void end(struct rig *r) {
    group_update_fini(&r->u);
    group_free(r->g);
}

size_t count(const struct rig *r, enum group_effect_kind kind, uint64_t node) {
    size_t n = 0;
    for (size_t i = 0; i < r->u.n_effects; i++)
        n += r->u.effects[i].kind == kind && (node == 0 || r->u.effects[i].node == node);
    return n;
}

const struct group_effect *effect(const struct rig *r, enum group_effect_kind kind) {
    for (size_t i = 0; r->u.effects != NULL && i < r->u.n_effects; i++)
        if (r->u.effects[i].kind == kind)
            return &r->u.effects[i];
    return NULL;
}

const struct lease *lease(const struct rig *r) {
    const struct group_effect *e = effect(r, GROUP_EFFECT_LEASE);
    cr_assert_not_null(e);
    return &e->lease;
}

struct node_info info_of(uint64_t node) {
    struct node_info info = {.incarnation = node, .nproc = 1, .node_rank = -1, .role = "default"};
    (void)snprintf(info.host, sizeof info.host, "h%d", (int)node);
    return info;
}

static void join_both(struct rig *r, const struct node_info *info, const struct report *rep) {
    struct report with_domain = *rep;
    with_domain.domain[0] = r->domains[info->incarnation % sizeof r->domains];
    step(r, (struct group_event){.kind = GROUP_EVENT_JOIN, .info = info, .report = &with_domain});
}

void join_info(struct rig *r, const struct node_info *info) {
    join_both(r, info, &(struct report){.state = NODE_JOINED});
}

void join_as(struct rig *r, uint64_t node, int32_t node_rank, const struct report *rep) {
    struct node_info info = info_of(node);
    info.node_rank = node_rank;
    join_both(r, &info, rep);
}

void join(struct rig *r, uint64_t node) { join_as(r, node, -1, &(struct report){.state = NODE_JOINED}); }

void report(struct rig *r, uint64_t node, struct report rep) {
    rep.domain[0] = r->domains[node % sizeof r->domains];
    step(r, (struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &rep});
    if (r->u.deadline_ns == r->now_ns + 1) { /* what was told has gone out, and the group goes on */
        r->now_ns++;
        step(r, (struct group_event){.kind = GROUP_EVENT_TIME});
    }
}

void say(struct rig *r, uint64_t node, enum node_state state) {
    report(r, node, (struct report){.state = state, .generation = group_generation(r->g)});
}

struct failure failure_at(uint64_t node, enum failure_kind kind, double at) {
    struct failure f = {.kind = kind, .code = 1, .incarnation = node, .at_ns = S(at)};
    (void)snprintf(f.node, sizeof f.node, "h%d", (int)node);
    return f;
}

void fails(struct rig *r, uint64_t node, enum failure_kind kind, double at) {
    report(r, node,
           (struct report){.state = NODE_FAILED,
                           .generation = group_generation(r->g),
                           .has_failure = true,
                           .failure = failure_at(node, kind, at)});
}

void renew(struct rig *r, uint64_t node) {
    step(r, (struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = {.clock_ns = r->now_ns}});
}

void pass(struct rig *r, double seconds, unsigned alive) {
    uint64_t until = r->now_ns + S(seconds);
    while (r->now_ns < until) {
        r->now_ns = MIN2(until, r->now_ns + S(0.25));
        for (uint64_t node = 1; node < 8; node++)
            if ((alive >> node & 1) != 0)
                renew(r, node);
        step(r, (struct group_event){.kind = GROUP_EVENT_TIME});
    }
}

void open_store(struct rig *r) {
    step(r, (struct group_event){.kind = GROUP_EVENT_STORE,
                                 .generation = group_generation(r->g),
                                 .store_host = "127.0.0.1",
                                 .store_port = 4000});
}

void probe(struct rig *r, uint64_t node, enum probe_result result) {
    step(r, (struct group_event){.kind = GROUP_EVENT_PROBE, .node = node, .probe = result});
}

void disconnect(struct rig *r, uint64_t node) {
    step(r, (struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = node});
}

void lose(struct rig *r, uint64_t node) {
    probe(r, node, PROBE_ALIVE);
    disconnect(r, node);
    probe(r, node, PROBE_GONE);
}

void start(struct rig *r) {
    uint64_t nodes[64];
    size_t n = MIN2(group_members(r->g, nodes, 64), (size_t)64);
    open_store(r);
    for (size_t i = 0; i < n; i++) {
        probe(r, nodes[i], PROBE_UNKNOWN);
        say(r, nodes[i], NODE_PREPARED);
    }
    assert_state(r, GROUP_RUNNING);
}

void stopped(struct rig *r) {
    uint64_t nodes[64];
    size_t n = MIN2(group_members(r->g, nodes, 64), (size_t)64);
    struct generation g = group_generation(r->g);
    for (size_t i = 0; i < n; i++)
        report(r, nodes[i], (struct report){.state = NODE_STOPPED, .generation = g});
}

const struct timeline_entry *entry(const struct rig *r, enum timeline_kind kind) {
    for (size_t i = 0; r->u.effects != NULL && i < r->u.n_effects; i++)
        if (r->u.effects[i].kind == GROUP_EFFECT_TIMELINE && r->u.effects[i].entry->kind == kind)
            return r->u.effects[i].entry;
    return NULL;
}

const char *members(const struct rig *r) {
    static char text[512];
    uint64_t nodes[64];
    size_t n = MIN2(group_members(r->g, nodes, 64), (size_t)64), len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i == 0 ? "" : " ", (int)nodes[i]);
    return text;
}

struct desired told(const struct rig *r, uint64_t node) {
    struct desired d = {0};
    cr_assert(group_desired(r->g, node, &d), "node %d is not known", (int)node);
    return d;
}

void bring_to(struct rig *r, const struct group_config *c, uint64_t n, enum group_state state) {
    begin(r, c);
    for (uint64_t node = 1; node <= n; node++) {
        join(r, node);
        probe(r, node, PROBE_ALIVE);
    }
    if (state == GROUP_GATHERING)
        return;
    open_store(r);
    assert_state(r, GROUP_FORMING);
    for (uint64_t node = 1; node <= n && state != GROUP_FORMING; node++)
        say(r, node, NODE_PREPARED);
    if (state == GROUP_FORMING || state == GROUP_RUNNING)
        return;
    fails(r, n, FAILURE_EXIT, 1000);
    assert_state(r, GROUP_STOPPING);
}
