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

/* ---- tests as stories ---- */

void is_killed(uint64_t node, int signo) {
    struct failure f = *WITH(failure_at(node, FAILURE_SIGNAL, 1001), .code = signo);
    report(node, (struct report){
                     .state = NODE_FAILED, .generation = group_generation(rig.g), .has_failure = true, .failure = f});
}

static enum failure_kind failure_of(const char *name) {
    return strcmp(name, "oom") == 0 ? FAILURE_OOM : strcmp(name, "signal") == 0 ? FAILURE_SIGNAL : FAILURE_EXIT;
}

unsigned story_nodes(const char *nodes) {
    unsigned mask = strcmp(nodes, "all") == 0 ? 0xfe : 0;
    for (const char *c = nodes; mask != 0xfe && *c != '\0'; c++)
        mask |= 1u << (*c - '0');
    return mask;
}

static void report_of(uint64_t node, enum node_state state, bool leaving) {
    report(node, (struct report){.state = state, .generation = group_generation(rig.g), .leaving = leaving});
}

static void back(uint64_t node, const char *state) {
    for (int s = NODE_JOINED; s < NODE_STATE_COUNT; s++)
        if (strcmp(state, node_state_names[s]) == 0)
            join_as(node, -1, AT(((struct report){.state = s, .generation = group_generation(rig.g)})));
}

/* For each of the nodes that follow. */
#define EACH(act)                                              \
    for (char *r = rest; (node = strtoull(r, &r, 10)) != 0;) { \
        act;                                                   \
    }

/* What happens to nodes, or to one and `with` what follows. */
static bool act(const char *word, char *rest, double n, const char *with) {
    uint64_t node = (uint64_t)n;
    STORY_WORD("join", EACH(join(node)))
    STORY_WORD("lose", EACH(lose(node)))
    STORY_WORD("disconnect", EACH(disconnect(node)))
    STORY_WORD("gone", EACH(probe(node, PROBE_GONE)))
    STORY_WORD("alive", EACH(probe(node, PROBE_ALIVE)))
    STORY_WORD("left", EACH(step((struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node})))
    STORY_WORD("leaving", report_of(node, NODE_RUNNING, true))
    STORY_WORD("stopped-leaving", report_of(node, NODE_STOPPED, true))
    STORY_WORD("back", back(node, with))
    STORY_WORD("domain", rig.domains[node] = with[0])
    STORY_WORD("fails", fails(node, failure_of(with), 1001))
    STORY_WORD("killed", is_killed(node, atoi(with)))
    STORY_WORD("renew", EACH(renew(node)))
    STORY_WORD("expect", step((struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = (uint32_t)n}))
    STORY_WORD("store", open_store())
    STORY_WORD("start", start())
    STORY_WORD("all-stopped", stopped())
    STORY_WORD("pass", pass(n, story_nodes(with)))
    STORY_WORD("sleep", (rig.now_ns += S(n), step((struct group_event){.kind = GROUP_EVENT_TIME})))
    for (int s = NODE_JOINED; s < NODE_STATE_COUNT; s++)
        STORY_WORD(node_state_names[s], EACH(say(node, (enum node_state)s)))
    return rig.words != NULL && rig.words(word, rest);
}

#define HOLDS(w, what_is_so)  \
    if (strcmp(word, w) == 0) \
        return what_is_so;

/* Whether that is so after the last step. */
static bool holds(const char *word, const char *rest, double n, const char *with) {
    static const char *const kinds[] = {[DESIRED_IDLE] = "idle",
                                        [DESIRED_FORM] = "form",
                                        [DESIRED_START] = "start",
                                        [DESIRED_STOP] = "stop",
                                        [DESIRED_CLOSED] = "closed"};
    uint64_t node = (uint64_t)n;
    HOLDS("is", strcmp(group_state_names[group_state(rig.g)], rest) == 0)
    HOLDS("outcome", strcmp(outcome_names[group_outcome(rig.g)], rest) == 0)
    HOLDS("members", strcmp(members(), rest) == 0)
    HOLDS("nodes", group_nodes(rig.g, NULL, 0) == (size_t)n)
    HOLDS("done", rig.seen[GROUP_EFFECT_DONE] == (size_t)n)
    HOLDS("restarts", group_restarts_used(rig.g) == n)
    HOLDS("losses", told(1).losses == n)
    HOLDS("refuses", count(GROUP_EFFECT_REFUSE, 0) == (size_t)n)
    HOLDS("sends", count(GROUP_EFFECT_DESIRED, 0) == (size_t)n)
    HOLDS("gets", strcmp(kinds[told(node).kind], with) == 0)
    HOLDS("spare", told(node).spare)
    HOLDS("excluded", told(node).excluded)
    HOLDS("will-restart", told(1).will_restart)
    HOLDS("will-end", !told(1).will_restart)
    HOLDS("names-failure-of", told(1).has_failure && told(1).failure.incarnation == node)
    HOLDS("names-no-failure", !told(1).has_failure)
    HOLDS("gives-reason", strstr(told(1).reason, rest) != NULL)
    HOLDS("gives-no-reason", told(1).reason[0] == '\0' && !told(1).has_failure)
    return false;
}

void play(const char *story) {
    for (const char *s = story; *s != '\0'; s += strcspn(s, ";")) {
        char word[32] = "", rest[128] = "", with[64] = "";
        double n = 0;
        s += strspn(s, "; ");
        (void)sscanf(s, "%31[^; ] %127[^;]", word, rest);
        (void)sscanf(rest, "%lf %63s", &n, with);
        if (act(word, rest, n, with))
            continue;
        cr_assert(holds(word, rest, n, with), "not so: \"%s %s\", after \"%.*s\": %s, members %s", word, rest,
                  (int)(s - story), story, group_state_names[group_state(rig.g)], members());
    }
}
