/* A node's machine under any order of events: the input's bytes are events of the leader, the network and the launcher.
 * Invariants: member_check() after every step (the machine calls it); the generation and the count of restarts only
 * grow; workers are started only with a valid lease that names the generation, and never a second time before all are
 * gone; the end comes once and stays. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/member/member.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static struct generation near(struct input *in, const struct member *m) {
    struct generation now = member_generation(m);
    uint8_t b = next(in);
    if (now.epoch == 0)
        now.epoch = 1;
    now.counter += (b & 7) < 4 ? 0 : (b & 7) < 7 ? 1u : (uint32_t)-1;
    now.epoch += (b & 0x80) != 0 && (b & 0x40) != 0;
    return now;
}

static void fill_desired(struct input *in, const struct member *m, struct desired *d) {
    uint8_t b = next(in);
    *d = (struct desired){.kind = 1 + b % (DESIRED_KIND_COUNT - 1), .epoch = 1 + (b >> 7)};
    d->generation = near(in, m);
    d->grace_ns = (b & 64) != 0 ? UINT64_MAX : NS_PER_S;
    d->form = (struct form){.n_nodes = 2, .world_size = 2, .restarts_used = b >> 5};
    d->outcome = d->kind == DESIRED_CLOSED ? 1 + (b >> 6 & 1) : OUTCOME_NONE;
    d->has_failure = (b & 32) != 0 && d->outcome != OUTCOME_SUCCESS;
    (void)snprintf(d->reason, sizeof d->reason, "reason %u", b);
}

static struct rdzv_peer peer_of(uint8_t b) {
    struct rdzv_peer p = {.incarnation = 5 + b % 4, .port = 1000}; /* 7 is this node itself */
    (void)snprintf(p.addr, sizeof p.addr, "10.0.0.%u", b % 4);
    return p;
}

static void fill_answer(struct input *in, struct arbiter_answer *a, uint64_t now_ns) {
    uint8_t b = next(in), c = next(in);
    *a = (struct arbiter_answer){.started_ns = now_ns - MIN2(now_ns, (uint64_t)(c & 15) * 100 * NS_PER_MS)};
    a->request.kind = (b & 1) != 0 ? ARBITER_READ : ARBITER_CLAIM;
    a->request.epoch = 1 + (b >> 1 & 3);
    a->result = 1 + (b >> 3 & 3) % (ARBITER_RESULT_COUNT - 1);
    a->record.epoch = b >> 5 & 3;
    a->record.leader = peer_of(c >> 4);
    a->record.beat = c >> 6;
    a->record.closed = (b & 0x80) != 0 && (c & 3) == 0;
    a->record.outcome = OUTCOME_SUCCESS;
}

static void fill_named(struct input *in, struct successors *s) {
    uint8_t b = next(in);
    *s = (struct successors){.epoch = 1 + (b & 3)};
    for (uint32_t i = 0; i < (b >> 2 & 3); i++)
        s->list[s->n++] = peer_of((uint8_t)(b >> 4) + (uint8_t)i);
}

static void fill_of_arbiter(struct input *in, struct member_event *e, uint64_t now_ns) {
    static struct arbiter_answer answer;
    static struct successors named;
    static struct rdzv_peer peer;
    static struct handover_member members[2] = {{.incarnation = 7}, {.incarnation = 8}};
    static struct handover handover;
    uint8_t b = next(in);
    handover = (struct handover){.epoch = 1 + (b & 3), .n_order = 2, .n_members = 2, .members = members};
    peer = peer_of(b);
    e->answer = &answer;
    e->successors = &named;
    e->peer = &peer;
    e->handover = &handover;
    e->joiner = 5 + (b >> 4);
    e->probe = 1 + b % 3;
    if (e->kind == MEMBER_EVENT_ARBITER)
        fill_answer(in, &answer, now_ns);
    else if (e->kind == MEMBER_EVENT_NAMED)
        fill_named(in, &named);
    else if (e->kind == MEMBER_EVENT_REDIRECT)
        e->epoch = b >> 6;
}

struct seen {
    struct generation generation;
    uint32_t restarts, epoch, led;
    bool workers, ended;
    size_t n_leases;
    struct {
        struct generation names;
        uint64_t end_ns;
    } leases[INPUT_MAX];
};

static bool granted(const struct seen *seen, struct generation g, uint64_t now_ns) {
    for (size_t i = 0; i < seen->n_leases; i++)
        if (generation_compare(seen->leases[i].names, g) == 0 && now_ns < seen->leases[i].end_ns)
            return true;
    return false;
}

static void fill_event(struct input *in, const struct member *m, struct member_event *e, struct desired *d,
                       uint64_t *now_ns) {
    static const uint64_t steps[] = {0,        NS_PER_MS,    50 * NS_PER_MS, 500 * NS_PER_MS,
                                     NS_PER_S, 3 * NS_PER_S, 7 * NS_PER_S,   61 * NS_PER_S};
    static struct failure failure;
    uint8_t b = next(in);
    *e = (struct member_event){.kind = 1 + (b & 31) % (MEMBER_EVENT_KIND_COUNT - 1)};
    *now_ns += steps[b >> 5];
    e->now_ns = *now_ns;
    e->reason = e->domain = e->fabric = e->sick = "a reason";
    e->failure = &failure;
    failure = (struct failure){.kind = FAILURE_EXIT, .code = b, .at_ns = *now_ns};
    e->desired = d;
    if (e->kind == MEMBER_EVENT_DESIRED) {
        fill_desired(in, m, d);
    } else if (e->kind == MEMBER_EVENT_LEASE) {
        uint64_t back = (uint64_t)next(in) * 20 * NS_PER_MS;
        e->lease = (struct lease){.epoch = 1 + (b >> 7), .clock_ns = *now_ns, .validity_ns = 5 * NS_PER_S};
        e->lease.echo_ns = *now_ns - MIN2(back, *now_ns);
        e->lease.prepared = near(in, m);
    } else if (e->kind == MEMBER_EVENT_WELCOME) {
        e->leader = 1 + (next(in) > 200);
        e->epoch = 1 + (next(in) > 200);
    } else if (e->kind == MEMBER_EVENT_PROBE) {
        e->probe = 1 + next(in) % 3;
    } else if (e->kind == MEMBER_EVENT_PREPARED || e->kind == MEMBER_EVENT_FAILURE ||
               e->kind == MEMBER_EVENT_SUCCEEDED) {
        e->generation = near(in, m);
    } else if (e->kind == MEMBER_EVENT_LEAVE) {
        e->grace_ns = NS_PER_S;
    } else if (e->kind >= MEMBER_EVENT_NAMED) {
        e->generation = member_generation(m);
        fill_of_arbiter(in, e, *now_ns);
    }
}

static void check_effects(const struct member *m, const struct member_update *u, uint64_t now_ns, struct seen *seen) {
    for (size_t i = 0; i < u->n_effects; i++) {
        const struct member_effect *e = &u->effects[i];
        CHECK(!seen->ended || e->kind == MEMBER_EFFECT_JOIN_POLICY);
        switch (e->kind) {
        case MEMBER_EFFECT_START:
            CHECK(!seen->workers && granted(seen, e->generation, now_ns));
            seen->workers = true;
            break;
        case MEMBER_EFFECT_PREPARE: CHECK(!seen->workers); break;
        case MEMBER_EFFECT_STOP: CHECK(e->reason != NULL); break;
        case MEMBER_EFFECT_LEASE_END:
            CHECK(e->lease_end_ns == TIME_NEVER || e->lease_end_ns <= now_ns + 5 * NS_PER_S);
            break;
        case MEMBER_EFFECT_END:
            CHECK(member_end(m)->kind != MEMBER_END_NONE);
            seen->ended = true;
            break;
        case MEMBER_EFFECT_LEAD: /* never twice in one epoch, nor in an older one */
            CHECK(e->lead->epoch > seen->led);
            seen->led = e->lead->epoch;
            break;
        case MEMBER_EFFECT_ARBITER: CHECK(e->request->kind == ARBITER_READ || e->request->kind == ARBITER_CLAIM); break;
        case MEMBER_EFFECT_HANG_UP:
        case MEMBER_EFFECT_ECHO:
        case MEMBER_EFFECT_PROBE_PEER:
        case MEMBER_EFFECT_JOIN_POLICY:
        case MEMBER_EFFECT_CONNECT:
        case MEMBER_EFFECT_REPORT:
        case MEMBER_EFFECT_RENEW:
        case MEMBER_EFFECT_PROBE:
        case MEMBER_EFFECT_FENCE:
        case MEMBER_EFFECT_HOLD:
        case MEMBER_EFFECT_RESUME:
        case MEMBER_EFFECT_SEND_LEAVE: break;
        case MEMBER_EFFECT_KIND_COUNT: assert_not_reached();
        }
    }
}

static void note_lease(const struct member *m, const struct member_event *e, struct seen *seen) {
    if (e->kind != MEMBER_EVENT_LEASE || e->lease.epoch != member_epoch(m) || seen->n_leases == INPUT_MAX)
        return; /* one from another leader does not count */
    seen->leases[seen->n_leases].names = e->lease.prepared;
    seen->leases[seen->n_leases++].end_ns = e->lease.echo_ns + e->lease.validity_ns;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, MIN2(size, INPUT_MAX), 0};
    struct member_config config;
    member_config_default(&config);
    config.incarnation = 7;
    config.has_arbiter = (next(&in) & 1) != 0;
    config.self = peer_of(2);
    struct member *m = NULL;
    uint64_t now_ns = 100 * NS_PER_S;
    CHECK(member_new(&config, now_ns, &m) == 0);
    struct member_update u = {0};
    static struct seen seen;
    seen.generation = (struct generation){0, 0};
    seen.restarts = seen.epoch = seen.led = 0;
    seen.workers = seen.ended = false;
    seen.n_leases = 0;
    static struct desired desired;
    while (in.at < in.len) {
        struct member_event e;
        fill_event(&in, m, &e, &desired, &now_ns);
        if (e.kind == MEMBER_EVENT_ARBITER && !config.has_arbiter)
            continue; /* no answer comes */
        note_lease(m, &e, &seen);
        member_step(m, &e, &u);
        if (e.kind == MEMBER_EVENT_ALL_GONE)
            seen.workers = false;
        check_effects(m, &u, now_ns, &seen);
        CHECK(generation_compare(member_generation(m), seen.generation) >= 0);
        CHECK(member_report(m)->restarts_used >= seen.restarts);
        CHECK(member_epoch(m) >= seen.epoch || !config.has_arbiter);
        seen.epoch = member_epoch(m);
        seen.generation = member_generation(m);
        seen.restarts = member_report(m)->restarts_used;
        CHECK((member_state(m) == MEMBER_ENDED) == seen.ended);
    }
    member_update_fini(&u);
    member_free(m);
    return 0;
}
