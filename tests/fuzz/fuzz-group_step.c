/* The leader's machine under any order of events, including those that no honest node would cause. The input's bytes
 * are a configuration, and then events. Invariants: group_check() after every step (the machine itself calls it);
 * generations and the count of restarts only grow; a group is within its limits; an outcome does not change; and there
 * is a DESIRED for every known node. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../tools/json_any.h"
#include "rendezvous/leader/group.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES 6
#define NODES_INHERITED 1 /* one more than the events name */
#define INPUT_MAX ((size_t)4096)
#define CHECK(condition)          \
    do {                          \
        if (!(condition))         \
            assert_not_reached(); \
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
    c.rdzv.min_nodes = 1 + next(in) % 4;
    c.rdzv.max_nodes = c.rdzv.min_nodes + next(in) % 4;
    uint8_t bits = next(in);
    c.rdzv.max_restarts = bits & 3;
    c.static_ranks = (bits & 4) != 0;
    c.rdzv.regroup_wait_ns = (bits & 8) != 0 ? 3 * NS_PER_S : 0;
    c.rdzv.last_call_ns = (bits & 16) != 0 ? NS_PER_S : 0;
    c.rdzv.join_timeout_ns = c.form_timeout_ns = c.rdzv.close_timeout_ns = 20 * NS_PER_S;
    uint8_t more = next(in);
    c.leadership = more % 3;
    c.rdzv.node_unit = c.rdzv.max_nodes >= 2 * c.rdzv.min_nodes ? 1 + (more >> 2 & 1) : 1;
    c.rdzv.spares = (more & 8) != 0 ? 1 : UINT32_MAX;
    c.rdzv.grow = (more >> 4 & 3) % 3;
    c.rdzv.exclude_after = 1 + (more >> 6 & 1);
    c.rdzv.restart_backoff_ns = (more & 128) != 0 ? NS_PER_S : 0;
    uint8_t last = next(in);
    c.rdzv.rank_order = last % 3;
    c.rdzv.unit_of = (last & 64) != 0 ? UNIT_OF_ANY : UNIT_OF_DOMAIN;
    struct handover_member left[3] = {
        {.incarnation = 1, .domain = "x"}, {.incarnation = 2, .domain = "y"}, {.incarnation = 9}};
    struct handover handover = {.epoch = 1, .formed = {1, 2}, .n_order = 2, .n_members = 3, .members = left};
    if (c.leadership == LEADERSHIP_ARBITER && (bits & 128) != 0) {
        c.epoch = 2;
        c.handover = &handover;
        c.absent_until_ns = 7 * NS_PER_S;
    }
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
    static const char domains[] = "xyx";
    r->domain[0] = domains[b >> 6]; /* of the last: none */
    r->finished = r->state == NODE_FINISHED;
    r->at_safe_point = (more & 64) != 0;
    r->excluded = (more & 0xe0) == 0xe0;
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
    if ((more & 24) == 24)
        memcpy(r->sick, "GPU 4 is lost", 14);
}

/* Any message that a node can send; its epoch and its times are near those of the group. */
static void fill_message(struct group_event *e, uint8_t b, uint8_t c, uint64_t now_ns) {
    static struct {
        enum wire_kind kind;
        _Alignas(uint64_t) char body[64];
    } said;
    struct prng prng = {.state = b};
    size_t n = 0;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++)
        if (wire_is_for_leader((enum wire_kind)kind) && wire_table((enum wire_kind)kind)->size <= sizeof said.body &&
            prng_below(&prng, ++n) == 0)
            said.kind = (enum wire_kind)kind;
    const struct json_table *t = wire_table(said.kind);
    json_any(&prng, t, said.body);
    for (size_t i = 0; i < t->n; i++) {
        uint32_t epoch = 1 + (b & 1);
        uint64_t at_ns = now_ns - MIN2(now_ns, c * NS_PER_MS);
        if (t->fields[i].kind == JSON_FIELD_U32 && strcmp(t->fields[i].key, "epoch") == 0)
            memcpy(said.body + t->fields[i].offset, &epoch, sizeof epoch);
        if (t->fields[i].kind == JSON_FIELD_ID && strstr(t->fields[i].key, "clock_ns") != NULL)
            memcpy(said.body + t->fields[i].offset, &at_ns, sizeof at_ns);
    }
    e->message = said.kind;
    e->body = said.body;
}

static void fill_of_leadership(struct input *in, const struct group *g, struct group_event *e, uint64_t now_ns) {
    static struct arbiter_answer a;
    static struct command command;
    uint8_t b = next(in), c = next(in);
    a = (struct arbiter_answer){.started_ns = now_ns - MIN2(now_ns, (uint64_t)(c & 15) * 100 * NS_PER_MS)};
    a.request.kind = 1 + (b & 3) + ((b & 3) == 3 && (c & 1) != 0); /* the last two share */
    a.request.epoch = 1 + (b >> 2 & 3);
    a.result = 1 + (b >> 4 & 3) % (ARBITER_RESULT_COUNT - 1);
    a.record.epoch = 1 + (b >> 6);
    a.record.leader.incarnation = 1 + (c >> 4 & 1);
    a.record.closed = (c & 0xe0) == 0xe0;
    e->answer = &a;
    e->touched_ns = (b & 1) != 0 ? now_ns : 0;
    e->epoch = b >> 4;
    fill_message(e, b, c, now_ns);
    command = (struct command){.kind = 1 + b % (COMMAND_KIND_COUNT - 1)};
    (void)snprintf(command.node, sizeof command.node, "n%u", c & 3);
    e->command = &command;
    static struct failure hang;
    hang = (struct failure){.kind = FAILURE_HANG, .rank = b, .incarnation = c % (NODES + 2)};
    e->failure = &hang;
    if (e->kind == GROUP_EVENT_HANG)
        e->generation = group_generation(g);
}

static void fill_event(struct input *in, const struct group *g, struct group_event *e, struct node_info *info,
                       struct report *report, uint64_t *now_ns) {
    static const uint64_t steps[] = {0,        NS_PER_MS,    50 * NS_PER_MS, 500 * NS_PER_MS,
                                     NS_PER_S, 3 * NS_PER_S, 7 * NS_PER_S,   61 * NS_PER_S};
    uint8_t b = next(in);
    *e = (struct group_event){.kind = 1 + b % (GROUP_EVENT_KIND_COUNT - 1)};
    *now_ns += steps[b >> 5];
    e->now_ns = *now_ns;
    uint8_t who = next(in);
    e->node = 1 + who % NODES;
    *info =
        (struct node_info){.incarnation = e->node, .nproc = 1 + (who >> 6), .node_rank = (int32_t)(who >> 3 & 7) - 1};
    (void)snprintf(info->host, sizeof info->host, "n%u", who >> 4 & 3);
    (void)snprintf(info->role, sizeof info->role, "r%u", who >> 7);
    e->info = info;
    e->report = report;
    e->probe = 1 + who % 3;
    e->store_host = "127.0.0.1";
    e->store_port = who > 200 ? 0 : 1000;
    e->n_nodes = who & 7;
    e->reason = who & 1 ? "a reason" : NULL;
    if (e->kind == GROUP_EVENT_STOP)
        e->reason = "stop";
    if (e->kind == GROUP_EVENT_JOIN || e->kind == GROUP_EVENT_REPORT)
        fill_report(in, g, report);
    else if (e->kind == GROUP_EVENT_RENEW)
        e->renew = (struct renew){(uint64_t)next(in) * NS_PER_S, (uint64_t)next(in) * NS_PER_S, next(in), 1};
    else if (e->kind >= GROUP_EVENT_MESSAGE)
        fill_of_leadership(in, g, e, *now_ns);
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
        CHECK(e->kind != GROUP_EFFECT_DESIRED || group_desired(g, e->node, &d) || group_state(g) == GROUP_CLOSED ||
              group_node_info(g, e->node) == NULL);
        bool text = e->kind == GROUP_EFFECT_NOTICE || e->kind == GROUP_EFFECT_REFUSE || e->kind == GROUP_EFFECT_ANSWER;
        CHECK(e->kind != GROUP_EFFECT_TIMELINE || (e->entry->kind > 0 && e->entry->kind < TIMELINE_KIND_COUNT));
        CHECK(e->kind != GROUP_EFFECT_ARBITER || e->request->kind > 0);
        CHECK(!text || (e->reason != NULL && e->reason[0] != '\0'));
        CHECK(e->kind != GROUP_EFFECT_LEASE || e->lease.validity_ns <= 5 * NS_PER_S);
        CHECK(e->kind != GROUP_EFFECT_DONE || !seen->done);
        seen->done = seen->done || e->kind == GROUP_EFFECT_DONE;
    }
}

static void check(const struct group *g, const struct group_update *u, uint64_t now_ns, struct seen *seen) {
    CHECK(generation_compare(group_generation(g), seen->generation) >= 0);
    CHECK(group_restarts_used(g) >= seen->restarts);
    CHECK(seen->outcome == OUTCOME_NONE || group_outcome(g) == seen->outcome || group_outcome(g) == OUTCOME_NONE);
    seen->generation = group_generation(g);
    seen->restarts = group_restarts_used(g);
    seen->outcome = group_outcome(g);
    CHECK(seen->outcome == OUTCOME_NONE || group_state(g) == GROUP_CLOSED);
    check_effects(g, u, seen);
    uint64_t nodes[NODES + 2], members[NODES + 2];
    size_t n = group_nodes(g, nodes, NODES + 2), m = group_members(g, members, NODES + 2);
    CHECK(n <= NODES + NODES_INHERITED && m <= n);
    struct handover handover;
    group_handover(g, &handover);
    CHECK(handover.n_members == m);
    handover_fini(&handover);
    struct overview_node rows[NODES + 1];
    CHECK(group_overview_nodes(g, now_ns, rows) <= n);
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
