#include "rendezvous/client/client_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/client/client_priv.h"

#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
/* More unsent evidence than this would delay leases, and must not come near CONN_UNSENT_MAX. */
#define EVIDENCE_UNSENT_MAX ((size_t)64 * 1024)

static void show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text) {
    if (strcmp(text, c->waiting) == 0)
        return;
    (void)snprintf(c->waiting, sizeof c->waiting, "%s", text);
    if (c->config.ops.waiting == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.waiting(c->config.arg, why, c->waiting);
    pump_release(&c->pump, held);
}

/* With an arbiter the member describes what it waits for: one failed attempt means little. */
void client_show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text) {
    if (!client_has_arbiter(c))
        show_waiting(c, why, text);
}

static void show_no_place(struct rdzv_client *c, const char *what, const char *why) {
    char text[SEARCH_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s%s%.1400s", what, why[0] != '\0' ? ": " : "", why);
    show_waiting(c, RDZV_WAIT_PLACE, text);
}

static void show_spare(struct rdzv_client *c, const struct desired *d) {
    if (d->kind == DESIRED_IDLE && d->excluded)
        show_no_place(c, "this node is excluded from the job", d->reason);
    else if (d->kind == DESIRED_IDLE && d->spare)
        show_no_place(c, "the job runs without this node, which waits for a place in the group",
                      d->reason);
    else
        c->waiting[0] = '\0';
}

/* ---- messages that are sent ---- */

/* Does nothing if no leader has sent WELCOME. */
static void send_to_leader(struct rdzv_client *c, const struct wire_message *m) {
    if (c->conn != NULL && client_is_welcomed(c))
        conn_send(c->conn, m);
}

bool client_send_join(struct rdzv_client *c) {
    const struct addr *leader = &c->addrs[c->search.at];
    struct addr own[RDZV_OWN_ADDRS];
    size_t n_own;
    struct wire_message m = {
        .kind = WIRE_JOIN,
        .join = {.version = WIRE_VERSION,
                 .info = c->config.info,
                 .program = c->config.program,
                 .min_nodes = c->rdzv.min_nodes,
                 .max_nodes = c->rdzv.max_nodes,
                 .report = *member_report(c->member)},
    };
    memcpy(m.join.run_id, c->config.run_id, sizeof m.join.run_id);
    if (c->config.ops.joining != NULL) {
        struct addr local;
        if (conn_local_addr(c->conn, &local) < 0)
            local = (struct addr){0};
        bool held = pump_hold(&c->pump); /* events that this causes come after JOIN */
        bool known = c->config.ops.joining(c->config.arg, leader, &local, &m.join.info);
        pump_release(&c->pump, held);
        if (!known)
            return false;
    }
    /* where workers of this node may come from, if the leader is on another machine */
    if (!addr_is_loopback(leader) && addr_all_global(own, ARRAY_SIZE(own), &n_own) == 0)
        addr_to_list(own, n_own, m.join.addrs, sizeof m.join.addrs);
    conn_send(c->conn, &m);
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_JOINED});
    return true;
}

void rdzv_client_join(struct rdzv_client *c) {
    if (c->conn != NULL && search_wants_join(&c->search))
        (void)client_send_join(c);
}

static void send_node_summary(struct rdzv_client *c) {
    if (c->node_summary == NULL)
        return;
    struct wire_message m = {.kind = WIRE_NODE_SUMMARY};
    memcpy(m.node_summary.text, c->node_summary, strlen(c->node_summary) + 1);
    send_to_leader(c, &m);
}

static void send_warm(struct rdzv_client *c) {
    if (c->warm != NULL)
        send_to_leader(c, &(struct wire_message){.kind = WIRE_WARM, .warm = *c->warm});
}

void rdzv_client_node_summary(struct rdzv_client *c, const char *text) {
    assert(strlen(text) < RDZV_NODE_SUMMARY_MAX);
    free(c->node_summary);
    c->node_summary = xstrdup(text);
    send_node_summary(c);
}

void rdzv_client_warm(struct rdzv_client *c, const struct rdzv_warm *warm) {
    if (c->warm == NULL)
        c->warm = xcalloc(1, sizeof *c->warm);
    *c->warm = *warm;
    send_warm(c);
}

void rdzv_client_signs(struct rdzv_client *c, const struct rdzv_signs *signs) {
    send_to_leader(c, &(struct wire_message){.kind = WIRE_SIGNS, .signs = *signs});
}

bool rdzv_client_evidence(struct rdzv_client *c, const struct rdzv_evidence *piece) {
    if (c->conn != NULL && conn_unsent(c->conn) > EVIDENCE_UNSENT_MAX)
        return false;
    struct wire_message m = {.kind = WIRE_EVIDENCE, .evidence = *piece};
    send_to_leader(c, &m);
    return true;
}

static void send_report(struct rdzv_client *c) {
    struct wire_message m = {.kind = WIRE_REPORT, .report = *member_report(c->member)};
    send_to_leader(c, &m);
}

static void send_message(struct rdzv_client *c, const struct wire_small *message) {
    struct wire_message m;
    wire_small_message(message, &m);
    send_to_leader(c, &m);
}

static void renew(struct rdzv_client *c, const struct renew *renew) {
    struct wire_message m = {.kind = WIRE_RENEW, .renew = *renew};
    struct loop_stats stats = loop_get_stats(c->loop);
    m.renew.stalls = (uint32_t)MIN2(stats.n_long, (uint64_t)UINT32_MAX);
    m.renew.longest_stall_ns = stats.longest_ns;
    send_to_leader(c, &m);
}

/* ---- before WELCOME ---- */

static void on_hello(struct rdzv_client *c, const struct wire_hello *hello) {
    char at[ADDR_TEXT_MAX];
    addr_to_text(&c->addrs[c->search.at], at);
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_HELLO,
                                            .version = hello->version,
                                            .leader = hello->incarnation,
                                            .run_id = hello->run_id,
                                            .at_text = at,
                                            .within_host = conn_is_within_host(c->conn),
                                            .is_authenticated =
                                                auth_state(c->config.auth) == AUTH_STATE_KEYS});
}

/* WELCOME comes first, before events that this causes. */
static void report_leader(struct rdzv_client *c, const struct wire_welcome *w, bool first) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    bool held = pump_hold(&c->pump);
    if (client_has_arbiter(c) && ops->leader != NULL)
        ops->leader(c->config.arg, c->leader, &c->leader_listener, first);
    if ((w->min_nodes != c->rdzv.min_nodes || w->max_nodes != c->rdzv.max_nodes) &&
        ops->other_limits != NULL)
        ops->other_limits(c->config.arg, w->min_nodes, w->max_nodes);
    pump_release(&c->pump, held);
}

static void on_welcome(struct rdzv_client *c, const struct wire_welcome *w) {
    struct addr at;
    if (conn_peer_addr(c->conn, &at) == 0) {
        addr_set_port(&at, w->listener_port);
        c->leader_listener = at;
        client_remember(c, w->leader, &at);
    }
    uint64_t before = c->leader;
    c->leader = w->leader;
    c->leader_epoch = w->epoch;
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_WELCOME});
    c->waiting[0] = '\0';
    c->rdzv.lease_ns = w->lease_ns;
    c->rdzv.heartbeat_ns = w->heartbeat_ns;
    conn_set_patience(c->conn, c->rdzv.lease_ns, c->rdzv.heartbeat_ns);
    send_node_summary(c);
    send_warm(c);
    if (w->leader != before)
        report_leader(c, w, before == 0);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_WELCOME,
                                                .leader = w->leader,
                                                .epoch = w->epoch,
                                                .heartbeat_ns = w->heartbeat_ns,
                                                .margin_ns = w->margin_ns,
                                                .lease_ns = w->lease_ns});
}

/* ---- addresses: "" is the address at which this connection reached its other end ---- */

static void fill_addr(const struct rdzv_client *c, char addr[RDZV_ADDR_MAX]) {
    struct addr at;
    if (addr[0] == '\0' && conn_peer_addr(c->conn, &at) == 0)
        addr_host_text(&at, addr);
}

static void on_redirect(struct rdzv_client *c, const struct wire_redirect *r) {
    struct rdzv_peer leader = r->leader;
    fill_addr(c, leader.addr);
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
    rdzv_client_event(c, &(struct member_event){
                             .kind = MEMBER_EVENT_REDIRECT, .epoch = r->epoch, .peer = &leader});
}

static void on_named(struct rdzv_client *c, const struct successors *named) {
    struct successors s = *named;
    for (uint32_t i = 0; i < s.n; i++) {
        struct addr at;
        fill_addr(c, s.list[i].addr);
        /* The leader names only successors that it has reached. */
        if (addr_from_literal(s.list[i].addr, s.list[i].port, &at) == 0)
            client_remember(c, s.list[i].incarnation, &at);
    }
    client_drop_handover(c);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
}

void client_drop_handover(struct rdzv_client *c) {
    handover_fini(&c->handover);
    c->n_handover = 0;
}

static int begin_handover(struct rdzv_client *c, const struct handover *e) {
    if (e->n_members > RDZV_NODES_MAX)
        return -EPROTO;
    client_drop_handover(c);
    c->handover = *e;
    c->handover.members = NULL;
    if (e->n_members > 0)
        c->handover.members = calloc(e->n_members, sizeof *c->handover.members);
    if (e->n_members > 0 && c->handover.members == NULL)
        return -ENOMEM;
    return 0;
}

/* Parts come in order, each once; the first part starts a new handover. */
static int take_members(struct rdzv_client *c, const struct wire_members *m) {
    int r = m->first == 0 ? begin_handover(c, &m->handover) : 0;
    if (r < 0)
        return r;
    if (c->handover.epoch == 0 || m->first != c->n_handover ||
        m->handover.epoch != c->handover.epoch || m->n > c->handover.n_members - c->n_handover ||
        (m->n == 0 && c->handover.n_members > 0))
        return -EPROTO;
    for (uint32_t i = 0; i < m->n; i++) {
        struct handover_member *to = &c->handover.members[c->n_handover++];
        *to = m->list[i];
        fill_addr(c, to->addr);
    }
    return 0;
}

static void on_members(struct rdzv_client *c, const struct wire_members *m) {
    int r = take_members(c, m);
    if (r < 0) {
        log_debug("rendezvous: the leader's list of members %s; disconnected",
                  r == -ENOMEM ? "does not fit into memory" : "has parts missing, or too many");
        client_search(c, &(struct search_event){.kind = SEARCH_EVENT_INVALID});
        return;
    }
    if (c->n_handover < c->handover.n_members)
        return;
    _cleanup_(handover_fini) struct handover whole = c->handover;
    c->handover = (struct handover){0};
    client_drop_handover(c);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_HANDOVER, .handover = &whole});
}

static void on_status(struct rdzv_client *c, const struct rdzv_status *status) {
    if (c->config.ops.status == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.status(c->config.arg, status);
    pump_release(&c->pump, held);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

/* ---- messages that arrive ---- */

static void on_unexpected(struct rdzv_client *c, enum wire_kind kind) {
    log_debug("rendezvous: the leader sent an unexpected %s; disconnected", wire_kind_name(kind));
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_INVALID});
}

static void on_first_message(struct rdzv_client *c, const struct wire_message *m) {
    if (m->kind == WIRE_WELCOME)
        on_welcome(c, &m->welcome);
    else if (m->kind == WIRE_REFUSED)
        client_search(c, &(struct search_event){.kind = SEARCH_EVENT_REFUSED,
                                                .final = m->refused.final,
                                                .why = m->refused.reason});
    else
        on_unexpected(c, m->kind);
}

static void on_desired(struct rdzv_client *c, const struct desired *desired) {
    show_spare(c, desired);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = desired});
}

static void on_watchdog(struct rdzv_client *c, const struct wire_message *m) {
    if (c->config.watchdog == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.watchdog(c->config.watchdog_arg, m);
    pump_release(&c->pump, held);
}

static enum peer_owner_kind owner_of(struct rdzv_client *c, const struct addr *client,
                                     const struct addr *store, uint32_t *other) {
    struct peer_owner owner = peer_gate_owner_of(c->config.gate, client, store);
    if (owner.kind == PEER_OTHER_USER && *other == 0)
        *other = owner.uid;
    return owner.kind;
}

static void on_whose(struct rdzv_client *c, const struct rdzv_whose *w) {
    struct wire_message m = {.kind = WIRE_OWNER, .owner = {.id = w->id, .n = w->n}};
    struct addr client, store;
    bool clear = addr_from_literal(w->client, 0, &client) == 0 &&
                 addr_from_literal(w->store, w->store_port, &store) == 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (clear)
            addr_set_port(&client, w->ports[i]);
        m.owner.list[i] = clear ? owner_of(c, &client, &store, &m.owner.uid) : PEER_UNKNOWN;
    }
    send_to_leader(c, &m);
}

static void on_leader_message(struct rdzv_client *c, const struct wire_message *m) {
    if (m->kind == WIRE_DESIRED)
        on_desired(c, &m->desired);
    else if (m->kind == WIRE_LEASE)
        rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = m->lease});
    else if (m->kind == WIRE_STATUS)
        on_status(c, &m->status);
    else if (m->kind == WIRE_NAMED)
        on_named(c, &m->named);
    else if (m->kind == WIRE_MEMBERS)
        on_members(c, &m->members);
    else if (m->kind == WIRE_ASK || m->kind == WIRE_SUSPECTS || m->kind == WIRE_PROCEED)
        on_watchdog(c, m);
    else if (m->kind == WIRE_WHOSE)
        on_whose(c, &m->whose);
    else
        on_unexpected(c, m->kind);
}

static void on_message(void *arg, struct conn *conn, const struct wire_message *m) {
    struct rdzv_client *c = arg;
    if (m->kind == WIRE_HELLO)
        on_hello(c, &m->hello);
    else if (m->kind == WIRE_REDIRECT && client_has_arbiter(c))
        on_redirect(c, &m->redirect);
    else if (client_is_welcomed(c))
        on_leader_message(c, m);
    else
        on_first_message(c, m);
}

static void on_closed(void *arg, struct conn *conn, int code, const char *text) {
    struct rdzv_client *c = arg;
    if (client_is_welcomed(c))
        log_debug("rendezvous: the connection to the leader ended: %s", text);
    client_search(c,
                  &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .code = code, .why = text});
}

const struct conn_ops client_conn_ops = {.on_message = on_message, .on_closed = on_closed};

/* ---- effects ---- */

static void hang_up(struct rdzv_client *c) {
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
}

static void leave(struct rdzv_client *c) {
    send_to_leader(c, &(struct wire_message){.kind = WIRE_LEAVE});
    conn_finish(TAKE_PTR(c->conn));
    hang_up(c);
}

static void on_arbiter(void *arg, const struct arbiter_answer *answer) {
    rdzv_client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = answer});
}

static void end(struct rdzv_client *c) {
    c->ended = true;
    loop_timer_set(c->search_pump.timer, TIME_NEVER);
    resolve_free(TAKE_PTR(c->resolve));
    client_free_probes(c);
    c->config.ops.end(c->config.arg, member_end(c->member));
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
    case MEMBER_EFFECT_ARBITER: arbiter_ask(c->config.arbiter, e->request, on_arbiter, c); break;
    case MEMBER_EFFECT_PROBE_PEER: client_probe_peer(c, &e->peer); break;
    case MEMBER_EFFECT_LEAD: ops->lead(arg, e->lead); break;
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

void rdzv_client_event(struct rdzv_client *c, const struct member_event *event) {
    struct member_event ev = *event;
    assert(!c->pump.busy || (ev.desired == NULL && ev.successors == NULL && ev.handover == NULL &&
                             ev.answer == NULL && ev.peer == NULL));
    pump_event(&c->pump, &ev);
}

static void on_timer(void *arg) {
    rdzv_client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

int rdzv_client_new(struct loop *loop, const struct member_config *member_config,
                    const struct rdzv_client_config *config, struct rdzv_client **ret) {
    if (config->info.incarnation != member_config->incarnation ||
        member_config->has_arbiter != (config->arbiter != NULL))
        return -EINVAL;
    struct rdzv_client *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->config = *config;
    if (c->config.connect_timeout_ns == 0)
        c->config.connect_timeout_ns = CONNECT_TIMEOUT_NS;
    if (c->config.resolve_timeout_ns == 0)
        c->config.resolve_timeout_ns = RESOLVE_TIMEOUT_NS;
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
    bool known = client_has_arbiter(c) && member_leader(c->member, &p);
    if (c->leader != 0 && (!client_has_arbiter(c) || (known && p.incarnation == c->leader))) {
        /* As it was reached. Another agent of this machine is reached like this one. */
        p = (struct rdzv_peer){.incarnation = c->leader, .port = addr_port(&c->leader_listener)};
        if (!addr_is_loopback(&c->leader_listener))
            addr_host_text(&c->leader_listener, p.addr);
        known = true;
    }
    if (!known)
        return false;
    *ret_epoch = client_has_arbiter(c) ? member_epoch(c->member) : c->leader_epoch;
    *ret = p;
    return true;
}
