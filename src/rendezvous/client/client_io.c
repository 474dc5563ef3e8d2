#include "rendezvous/client/client_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/client/client_priv.h"

#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define PEER_TIMEOUT_NS (1500 * NS_PER_MS)
#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
#define PROBE_TIMEOUT_NS (1 * NS_PER_S)

/* ---- what the node waits for ---- */

/* Whether the text is a new one. */
static bool is_new(struct rdzv_client *c, const char *text) {
    if (strcmp(text, c->waiting) == 0)
        return false;
    (void)snprintf(c->waiting, sizeof c->waiting, "%s", text);
    return true;
}

static void show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text) {
    if (!is_new(c, text) || c->config.ops.waiting_for_leader == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.waiting_for_leader(c->config.arg, why, c->waiting);
    pump_release(&c->pump, held);
}

/* With an arbiter the member describes what it waits for: one failed attempt means little. */
void client_show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text) {
    if (!client_has_arbiter(c))
        show_waiting(c, why, text);
}

static void show_no_place(struct rdzv_client *c, const char *what, const char *why) {
    char text[SEARCH_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s%s%s", what, why[0] != '\0' ? ": " : "", why);
    if (!is_new(c, text) || c->config.ops.waiting_for_place == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.waiting_for_place(c->config.arg, c->waiting);
    pump_release(&c->pump, held);
}

void client_show_spare(struct rdzv_client *c, const struct desired *d) {
    if (d->kind == DESIRED_IDLE && d->excluded)
        show_no_place(c, "this node is excluded from the job", d->reason);
    else if (d->kind == DESIRED_IDLE && d->spare)
        show_no_place(c, "the job runs without this node, which waits for a place in the group",
                      d->reason);
    else
        c->waiting[0] = '\0';
}

/* ---- effects ---- */

static void send_report(struct rdzv_client *c) {
    struct wire_message m = {.kind = WIRE_REPORT, .report = *member_report(c->member)};
    client_send_to_leader(c, &m);
}

static void send_message(struct rdzv_client *c, const struct wire_small *message) {
    struct wire_message m;
    wire_small_message(message, &m);
    client_send_to_leader(c, &m);
}

static void hang_up(struct rdzv_client *c) {
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
}

static void leave(struct rdzv_client *c) {
    client_send_to_leader(c, &(struct wire_message){.kind = WIRE_LEAVE});
    conn_finish(TAKE_PTR(c->conn));
    hang_up(c);
}

static void on_arbiter(void *arg, const struct arbiter_answer *answer) {
    client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = answer});
}

static void ask_arbiter(struct rdzv_client *c, const struct arbiter_request *request) {
    struct arbiter_request r = *request;
    if (r.leader.incarnation == 0)
        r.leader = c->self;
    arbiter_ask(c->config.arbiter, &r, on_arbiter, c);
}

static void end(struct rdzv_client *c) {
    c->ended = true;
    loop_timer_set(c->search_pump.timer, TIME_NEVER);
    resolve_free(TAKE_PTR(c->resolve));
    client_free_probes(c);
    c->config.ops.end(c->config.arg, member_end(c->member));
}

static void renew(struct rdzv_client *c, const struct renew *renew) {
    struct wire_message m = {.kind = WIRE_RENEW, .renew = *renew};
    struct loop_stats stats = loop_get_stats(c->loop);
    m.renew.stalls = (uint32_t)MIN2(stats.n_long, (uint64_t)UINT32_MAX);
    m.renew.longest_stall_ns = stats.longest_ns;
    client_send_to_leader(c, &m);
}

static void obey(struct rdzv_client *c, const struct member_effect *e) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    void *arg = c->config.arg;
    switch (e->kind) {
    case MEMBER_EFFECT_CONNECT:
        client_search(c, &(struct search_event){
                             .kind = SEARCH_EVENT_CONNECT, .peer = &e->peer, .soon = e->soon});
        break;
    case MEMBER_EFFECT_REPORT: send_report(c); break;
    case MEMBER_EFFECT_RENEW: renew(c, &e->renew); break;
    case MEMBER_EFFECT_PROBE: client_probe_leader(c); break;
    case MEMBER_EFFECT_PREPARE: ops->prepare(arg, e->generation, member_form(c->member)); break;
    case MEMBER_EFFECT_START: ops->start(arg, e->generation, e->reachability); break;
    case MEMBER_EFFECT_STOP:
        ops->stop(arg, e->grace_ns, e->reason, member_stop_cause(c->member));
        break;
    case MEMBER_EFFECT_FENCE: ops->fence(arg); break;
    case MEMBER_EFFECT_HOLD:
        if (ops->hold != NULL)
            ops->hold(arg);
        break;
    case MEMBER_EFFECT_RESUME:
        if (ops->resume != NULL)
            ops->resume(arg, e->paused_ns);
        break;
    case MEMBER_EFFECT_LEASE_END: ops->lease_end(arg, e->lease_end_ns); break;
    case MEMBER_EFFECT_SEND_LEAVE: leave(c); break;
    case MEMBER_EFFECT_END: end(c); break;
    case MEMBER_EFFECT_HANG_UP: hang_up(c); break;
    case MEMBER_EFFECT_SEND: send_message(c, &e->message); break;
    case MEMBER_EFFECT_ARBITER: ask_arbiter(c, e->request); break;
    case MEMBER_EFFECT_PROBE_PEER: client_probe_peer(c, &e->peer); break;
    case MEMBER_EFFECT_LEAD: ops->lead(arg, &e->lead); break;
    case MEMBER_EFFECT_JOIN_POLICY:
        ops->join_policy(arg, e->join_policy, &e->peer, e->epoch);
        break;
    case MEMBER_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static uint64_t step(void *arg, void *event) {
    struct rdzv_client *c = arg;
    struct member_event *ev = event;
    if (c->ended)
        return TIME_NEVER;
    ev->now_ns = clock_now_ns();
    member_step(c->member, ev, &c->update);
    for (size_t i = 0; i < c->update.n_effects && !c->pump.dead; i++)
        obey(c, &c->update.effects[i]);
    if (client_has_arbiter(c) && !c->pump.dead && !c->ended && member_waiting(c->member)[0] != '\0')
        show_waiting(c, RDZV_WAIT_ELECTION, member_waiting(c->member));
    return c->ended ? TIME_NEVER : c->update.deadline_ns;
}

static void destroy(struct rdzv_client *c) {
    if (c->config.arbiter != NULL)
        arbiter_cancel(c->config.arbiter, c);
    conn_finish(TAKE_PTR(c->conn));
    client_close(c);
    client_free_probes(c);
    client_search_fini(c);
    pump_fini(&c->pump);
    member_update_fini(&c->update);
    member_free(c->member);
    free(c->node_summary);
    free(c->warm);
    free(c);
}

void client_destroy_if_idle(void *client) {
    struct rdzv_client *c = client;
    if (!c->pump.busy && !c->search_pump.busy)
        destroy(c);
}

static const struct pump_ops pump_ops = {
    .step = step,
    .destroy = client_destroy_if_idle,
    .event_size = sizeof(struct member_event),
    .pointers = {{offsetof(struct member_event, failure), sizeof(struct failure)},
                 {offsetof(struct member_event, reason), PUMP_TEXT},
                 {offsetof(struct member_event, sick), PUMP_TEXT}},
};

void client_event(struct rdzv_client *c, struct member_event *ev) {
    assert(!c->pump.busy || (ev->desired == NULL && ev->successors == NULL &&
                             ev->handover == NULL && ev->answer == NULL && ev->peer == NULL));
    pump_event(&c->pump, ev);
}

void rdzv_client_event(struct rdzv_client *c, const struct member_event *event) {
    struct member_event ev = *event;
    client_event(c, &ev);
}

void rdzv_client_node_summary(struct rdzv_client *c, const char *text) {
    assert(strlen(text) < RDZV_NODE_SUMMARY_MAX);
    free(c->node_summary);
    c->node_summary = xstrdup(text);
    client_send_node_summary(c);
}

void rdzv_client_warm(struct rdzv_client *c, const struct rdzv_warm *warm) {
    if (c->warm == NULL)
        c->warm = xcalloc(1, sizeof *c->warm);
    *c->warm = *warm;
    client_send_warm(c);
}

void rdzv_client_joiner(struct rdzv_client *c, uint64_t incarnation, bool came) {
    client_event(
        c, &(struct member_event){.kind = came ? MEMBER_EVENT_JOINER : MEMBER_EVENT_JOINER_GONE,
                                  .joiner = incarnation});
}

static void on_timer(void *arg) {
    client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

/* ---- creation and end ---- */

int rdzv_client_new(struct loop *loop, const struct member_config *member_config,
                    const struct rdzv_client_config *config, struct rdzv_client **ret) {
    if (config->info.incarnation != member_config->incarnation ||
        member_config->has_arbiter != (config->arbiter != NULL))
        return -EINVAL;
    struct rdzv_client *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->config = *config;
    c->config.connect_timeout_ns =
        config->connect_timeout_ns > 0 ? config->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    c->config.peer_timeout_ns =
        config->peer_timeout_ns > 0 ? config->peer_timeout_ns : PEER_TIMEOUT_NS;
    c->config.resolve_timeout_ns =
        config->resolve_timeout_ns > 0 ? config->resolve_timeout_ns : RESOLVE_TIMEOUT_NS;
    c->config.probe_timeout_ns =
        config->probe_timeout_ns > 0 ? config->probe_timeout_ns : PROBE_TIMEOUT_NS;
    c->self = member_config->self;
    c->rdzv = member_config->rdzv;
    list_init(&c->peer_probes);
    uint64_t now = clock_now_ns();
    int r = member_new(member_config, now, &c->member);
    if (r < 0) {
        free(c);
        return r;
    }
    pump_init(&c->pump, loop, &pump_ops, c, on_timer);
    client_search_init(c, now);
    loop_timer_set(c->pump.timer, now);
    *ret = c;
    return 0;
}

void rdzv_client_free(struct rdzv_client *c) {
    if (c == NULL)
        return;
    c->pump.dead = c->search_pump.dead = true;
    client_destroy_if_idle(c);
}

const struct member *rdzv_client_member(const struct rdzv_client *c) { return c->member; }

bool rdzv_client_leader(const struct rdzv_client *c, uint32_t *ret_epoch, struct rdzv_peer *ret) {
    struct rdzv_peer p = {0};
    char host[ADDR_TEXT_MAX];
    bool known = client_has_arbiter(c) && member_leader(c->member, &p);
    if (c->leader != 0 && (!client_has_arbiter(c) || (known && p.incarnation == c->leader))) {
        /* The address at which it was reached. Another agent of this machine is reached like this
         * one. */
        p = (struct rdzv_peer){.incarnation = c->leader, .port = addr_port(&c->leader_listener)};
        addr_host_text(&c->leader_listener, host);
        if (!addr_is_loopback(&c->leader_listener))
            (void)snprintf(p.addr, sizeof p.addr, "%s", host);
        known = true;
    }
    if (!known)
        return false;
    *ret_epoch = client_has_arbiter(c) ? member_epoch(c->member) : c->leader_epoch;
    *ret = p;
    return true;
}
