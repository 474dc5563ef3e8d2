#include "group_rig.h"

#include "rig/unit.h"

struct rig rig;

struct group_config config_of(uint32_t min, uint32_t max) {
    struct group_config c;
    group_config_default(&c);
    c.leader_incarnation = 1;
    c.rdzv.min_nodes = min;
    c.rdzv.max_nodes = max;
    return c;
}

void step(struct group_event e) {
    e.now_ns = rig.now_ns;
    group_step(rig.g, &e, &rig.u);
    for (size_t i = 0; i < rig.u.n_effects; i++)
        rig.seen[rig.u.effects[i].kind]++;
    if (rig.after != NULL)
        rig.after();
}

void begin(const struct group_config *c) {
    end();
    rig = (struct rig){.now_ns = S(1000)};
    cr_assert_eq(group_new(c, rig.now_ns, &rig.g), 0);
    step((struct group_event){.kind = GROUP_EVENT_TIME});
}

void end(void) {
    group_update_fini(&rig.u);
    group_free(rig.g);
}

size_t count(enum group_effect_kind kind, uint64_t node) {
    size_t n = 0;
    for (size_t i = 0; i < rig.u.n_effects; i++)
        n += rig.u.effects[i].kind == kind && (node == 0 || rig.u.effects[i].node == node);
    return n;
}

const struct group_effect *effect(enum group_effect_kind kind) {
    for (size_t i = 0; rig.u.effects != NULL && i < rig.u.n_effects; i++)
        if (rig.u.effects[i].kind == kind)
            return &rig.u.effects[i];
    return NULL;
}

const struct lease *lease(void) {
    const struct group_effect *e = effect(GROUP_EFFECT_LEASE);
    cr_assert_not_null(e);
    return &e->lease;
}

struct node_info info_of(uint64_t node) {
    struct node_info info = {.incarnation = node, .nproc = 1, .node_rank = -1, .role = "default"};
    (void)snprintf(info.host, sizeof info.host, "h%d", (int)node);
    return info;
}

static void join_both(const struct node_info *info, const struct report *rep) {
    struct report with_domain = *rep;
    with_domain.domain[0] = rig.domains[info->incarnation % sizeof rig.domains];
    step((struct group_event){.kind = GROUP_EVENT_JOIN, .info = info, .report = &with_domain});
}

void join_info(const struct node_info *info) { join_both(info, &(struct report){.state = NODE_JOINED}); }

void join_as(uint64_t node, int32_t node_rank, const struct report *rep) {
    join_both(WITH(info_of(node), .node_rank = node_rank), rep);
}

void join(uint64_t node) { join_as(node, -1, &(struct report){.state = NODE_JOINED}); }

void report(uint64_t node, struct report rep) {
    rep.domain[0] = rig.domains[node % sizeof rig.domains];
    step((struct group_event){.kind = GROUP_EVENT_REPORT, .node = node, .report = &rep});
    if (rig.u.deadline_ns == rig.now_ns + 1) { /* what was told has gone out, and the group goes on */
        rig.now_ns++;
        step((struct group_event){.kind = GROUP_EVENT_TIME});
    }
}

void say(uint64_t node, enum node_state state) {
    report(node, (struct report){.state = state, .generation = group_generation(rig.g)});
}

struct failure failure_at(uint64_t node, enum failure_kind kind, double at) {
    struct failure f = {.kind = kind, .code = 1, .incarnation = node, .at_ns = S(at)};
    (void)snprintf(f.node, sizeof f.node, "h%d", (int)node);
    return f;
}

void fails(uint64_t node, enum failure_kind kind, double at) {
    report(node, (struct report){.state = NODE_FAILED,
                                 .generation = group_generation(rig.g),
                                 .has_failure = true,
                                 .failure = failure_at(node, kind, at)});
}

void renew(uint64_t node) {
    step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = {.clock_ns = rig.now_ns}});
}

void pass(double seconds, unsigned alive) {
    uint64_t until = rig.now_ns + S(seconds);
    while (rig.now_ns < until) {
        rig.now_ns = MIN2(until, rig.now_ns + S(0.25));
        for (uint64_t node = 1; node < 8; node++)
            if ((alive >> node & 1) != 0)
                renew(node);
        step((struct group_event){.kind = GROUP_EVENT_TIME});
    }
}

void open_store(void) {
    step((struct group_event){.kind = GROUP_EVENT_STORE,
                              .generation = group_generation(rig.g),
                              .store_host = "127.0.0.1",
                              .store_port = 4000});
}

void probe(uint64_t node, enum probe_result result) {
    step((struct group_event){.kind = GROUP_EVENT_PROBE, .node = node, .probe = result});
}

void disconnect(uint64_t node) { step((struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = node}); }

void lose(uint64_t node) {
    probe(node, PROBE_ALIVE);
    disconnect(node);
    probe(node, PROBE_GONE);
}

void start(void) {
    uint64_t nodes[64];
    size_t n = MIN2(group_members(rig.g, nodes, 64), (size_t)64);
    open_store();
    for (size_t i = 0; i < n; i++) {
        probe(nodes[i], PROBE_UNKNOWN);
        say(nodes[i], NODE_PREPARED);
    }
    assert_state(GROUP_RUNNING);
}

void stopped(void) {
    uint64_t nodes[64];
    size_t n = MIN2(group_members(rig.g, nodes, 64), (size_t)64);
    struct generation g = group_generation(rig.g);
    for (size_t i = 0; i < n; i++)
        report(nodes[i], (struct report){.state = NODE_STOPPED, .generation = g});
}

const struct timeline_entry *entry(enum timeline_kind kind) {
    for (size_t i = 0; rig.u.effects != NULL && i < rig.u.n_effects; i++)
        if (rig.u.effects[i].kind == GROUP_EFFECT_TIMELINE && rig.u.effects[i].entry->kind == kind)
            return rig.u.effects[i].entry;
    return NULL;
}

const char *members(void) {
    static char text[512];
    uint64_t nodes[64];
    size_t n = MIN2(group_members(rig.g, nodes, 64), (size_t)64), len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i == 0 ? "" : " ", (int)nodes[i]);
    return text;
}

struct desired told(uint64_t node) {
    struct desired d = {0};
    cr_assert(group_desired(rig.g, node, &d), "node %d is not known", (int)node);
    return d;
}

void bring_to(const struct group_config *c, uint64_t n, enum group_state state) {
    begin(c);
    for (uint64_t node = 1; node <= n; node++) {
        join(node);
        probe(node, PROBE_ALIVE);
    }
    if (state == GROUP_GATHERING)
        return;
    open_store();
    assert_state(GROUP_FORMING);
    for (uint64_t node = 1; node <= n && state != GROUP_FORMING; node++)
        say(node, NODE_PREPARED);
    if (state == GROUP_FORMING || state == GROUP_RUNNING)
        return;
    fails(n, FAILURE_EXIT, 1000);
    assert_state(GROUP_STOPPING);
}
