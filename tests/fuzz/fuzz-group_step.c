/* The leader's machine under any order of events, also such as no honest node would cause: the input's bytes are
 * a configuration and then events. What holds: group_check() after every step (the machine itself calls it),
 * generations and the count of restarts only grow, a group is within its limits, an outcome stands, and every known
 * node can be told something. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/group.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES 6
#define INPUT_MAX ((size_t)4096)
#define CHECK(condition)                   \
    do {                                   \
        if (!(condition))                  \
            assert_not_reached();          \
    } while (0)

struct input {
    const uint8_t *data;
    size_t len, at;
};

static uint8_t next(struct input *in) { return in->at < in->len ? in->data[in->at++] : 0; }

static struct group *make(struct input *in) {
    struct group_config c;
    group_config_default(&c);
    c.leader_incarnation = 1;
    c.min_nodes = 1 + next(in) % 4;
    c.max_nodes = c.min_nodes + next(in) % 4;
    uint8_t bits = next(in);
    c.max_restarts = bits & 3;
    c.static_ranks = (bits & 4) != 0;
    c.regroup_wait_ns = (bits & 8) != 0 ? 3 * NS_PER_S : 0;
    c.last_call_ns = (bits & 16) != 0 ? NS_PER_S : 0;
    c.join_timeout_ns = c.form_timeout_ns = c.close_timeout_ns = 20 * NS_PER_S;
    struct group *g = NULL;
    CHECK(group_new(&c, NS_PER_S, &g) == 0);
    return g;
}

static struct generation near(struct input *in, const struct group *g) {
    struct generation now = group_generation(g);
    uint8_t b = next(in);
    if ((b & 7) == 0)
        return (struct generation){0, 0};
    now.epoch = (b & 0x80) != 0 ? now.epoch + 1 : now.epoch;
    now.counter += (b & 7) < 6 ? 0 : (b & 7) == 6 ? 1u : (uint32_t)-1;
    return now;
}

static void fill_report(struct input *in, const struct group *g, struct report *r) {
    uint8_t b = next(in);
    *r = (struct report){.state = 1 + b % (NODE_STATE_COUNT - 1)};
    r->leaving = (b & 0x40) != 0 && (b & 0x20) != 0;
    r->generation = near(in, g);
    uint8_t more = next(in);
    r->has_failure = (more & 1) != 0;
    r->restarts_used = (more & 2) != 0 ? more >> 4 : 0;
    if (r->has_failure) {
        r->failure.kind = 1 + (more >> 2 & 3);
        r->failure.code = more;
        r->failure.at_ns = (uint64_t)next(in) * NS_PER_S;
        r->failure.local_rank = more & 1;
    }
    if ((more & 12) == 12)
        memcpy(r->unusable, "pid 7", 6);
}

static void fill_event(struct input *in, const struct group *g, struct group_event *e, struct node_info *info,
                       struct report *report, uint64_t *now_ns) {
    static const uint64_t steps[] = {0, NS_PER_MS, 50 * NS_PER_MS, 500 * NS_PER_MS, NS_PER_S, 3 * NS_PER_S,
                                     7 * NS_PER_S, 61 * NS_PER_S};
    uint8_t b = next(in);
    *e = (struct group_event){.kind = 1 + b % (GROUP_EVENT_KIND_COUNT - 1)};
    *now_ns += steps[b >> 5];
    e->now_ns = *now_ns;
    uint8_t who = next(in);
    e->node = 1 + who % NODES;
    *info = (struct node_info){.incarnation = e->node, .nproc = 1 + (who >> 6), .node_rank = (int32_t)(who >> 3 & 7) - 1};
    (void)snprintf(info->host, sizeof info->host, "n%u", who >> 4 & 3);
    (void)snprintf(info->role, sizeof info->role, "r%u", who >> 7);
    e->info = info;
    e->report = report;
    e->probe = 1 + who % 3;
    e->store_host = "127.0.0.1";
    e->store_port = who > 200 ? 0 : 1000;
    e->reason = who & 1 ? "a reason" : NULL;
    if (e->kind == GROUP_EVENT_STOP)
        e->reason = "stop";
    if (e->kind == GROUP_EVENT_JOIN || e->kind == GROUP_EVENT_REPORT)
        fill_report(in, g, report);
    else if (e->kind == GROUP_EVENT_RENEW)
        e->renew = (struct renew){(uint64_t)next(in) * NS_PER_S, (uint64_t)next(in) * NS_PER_S, next(in)};
    else if (e->kind == GROUP_EVENT_STORE)
        e->generation = near(in, g);
}

struct seen {
    struct generation generation;
    uint32_t restarts;
    enum outcome outcome;
    bool done;
};

static void check_effects(const struct group *g, const struct group_update *u, struct seen *seen) {
    for (size_t i = 0; i < u->n_effects; i++) {
        const struct group_effect *e = &u->effects[i];
        struct desired d;
        CHECK(e->kind != GROUP_EFFECT_TELL || group_desired(g, e->node, &d) || group_state(g) == GROUP_CLOSED ||
              group_node_info(g, e->node) == NULL);
        bool text = e->kind == GROUP_EFFECT_INCIDENT || e->kind == GROUP_EFFECT_REFUSE;
        CHECK(!text || (e->reason != NULL && e->reason[0] != '\0'));
        CHECK(e->kind != GROUP_EFFECT_LEASE || e->lease.validity_ns <= 5 * NS_PER_S);
        CHECK(e->kind != GROUP_EFFECT_DONE || !seen->done);
        seen->done = seen->done || e->kind == GROUP_EFFECT_DONE;
    }
}

static void check(const struct group *g, const struct group_update *u, uint64_t now_ns, struct seen *seen) {
    CHECK(generation_compare(group_generation(g), seen->generation) >= 0);
    CHECK(group_restarts_used(g) >= seen->restarts);
    CHECK(seen->outcome == OUTCOME_NONE || group_outcome(g) == seen->outcome);
    seen->generation = group_generation(g);
    seen->restarts = group_restarts_used(g);
    seen->outcome = group_outcome(g);
    CHECK((seen->outcome != OUTCOME_NONE) == (group_state(g) == GROUP_CLOSED));
    check_effects(g, u, seen);
    uint64_t nodes[NODES + 1], members[NODES + 1];
    size_t n = group_nodes(g, nodes, NODES + 1), m = group_members(g, members, NODES + 1);
    CHECK(n <= NODES && m <= n);
    for (size_t i = 0; i < n; i++) {
        struct desired d;
        CHECK(group_desired(g, nodes[i], &d) && d.kind > 0 && d.kind < DESIRED_KIND_COUNT);
    }
    struct rdzv_status s;
    group_status(g, now_ns, &s);
    CHECK(s.n_names <= RDZV_STATUS_NAMES_MAX && s.n_missing <= RDZV_STATUS_NAMES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, MIN2(size, INPUT_MAX), 0};
    struct group *g = make(&in);
    struct group_update u = {0};
    struct seen seen = {0};
    static struct report report;
    uint64_t now_ns = NS_PER_S;
    while (in.at < in.len) {
        struct group_event e;
        struct node_info info;
        fill_event(&in, g, &e, &info, &report, &now_ns);
        group_step(g, &e, &u);
        check(g, &u, now_ns, &seen);
    }
    group_update_fini(&u);
    group_free(g);
    return 0;
}
