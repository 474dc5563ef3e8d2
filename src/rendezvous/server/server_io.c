#include "rendezvous/server/server_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/operate/leader_file_io.h"
#include "rendezvous/server/server_priv.h"

#define PROBE_TIMEOUT_NS (1 * NS_PER_S)
/* It is only for people: a node that reads slowly gets none. */
#define STATUS_UNSENT_MAX ((size_t)64 * 1024)
/* The most bytes of a member on the wire. */
#define MEMBER_BYTES_MAX 192
#define REPORTS_MAX 32

/* One line for people, to a callback that may free the server: its events wait. */
static void notice(struct rdzv_server *s, const char *line) {
    bool held = pump_hold(&s->pump);
    if (s->config.ops.notice != NULL)
        s->config.ops.notice(s->config.arg, line);
    pump_release(&s->pump, held);
}

/* The same about a node. A line for each of many would fill the terminal. */
#define report(s, ...) report_line(s, xasprintf(__VA_ARGS__))
static void report_line(struct rdzv_server *s, char *line) {
    if (s->n_reports < REPORTS_MAX) {
        s->n_reports++;
        notice(s, line);
    }
    free(line);
}

/* ---- messages to nodes ---- */

static struct server_node *find(const struct rdzv_server *s, uint64_t incarnation) {
    return incarnation == 0 ? NULL : idmap_get(&s->nodes, incarnation);
}

/* The current epoch: a leader may have claimed later epochs for itself since it began. */
static uint32_t server_epoch(const struct rdzv_server *s) {
    return MAX2(s->group_config.epoch, group_successors(s->group)->epoch);
}

static void send_welcome(struct server_node *n) {
    const struct rdzv_server *s = n->server;
    n->welcomed = true;
    struct wire_message m = {
        .kind = WIRE_WELCOME,
        .welcome = {.epoch = server_epoch(s),
                    .leader = s->group_config.leader_incarnation,
                    .listener_port = s->config.listener_port,
                    .heartbeat_ns = s->group_config.rdzv.heartbeat_ns,
                    .lease_ns = s->group_config.rdzv.lease_ns,
                    .margin_ns = s->group_config.rdzv.margin_ns,
                    .min_nodes = s->group_config.rdzv.min_nodes,
                    .max_nodes = s->group_config.rdzv.max_nodes},
    };
    conn_send(n->conn, &m);
}

static void send_pending_lease(struct server_node *n) {
    if (list_empty(&n->lease_pending_link))
        return;
    list_remove(&n->lease_pending_link);
    conn_send(n->conn, &(struct wire_message){.kind = WIRE_LEASE, .lease = n->lease_pending});
}

/* Sends what must come before any message to this node. False: it is not connected. */
static bool prepare_to_send(struct server_node *n) {
    if (n == NULL || n->conn == NULL)
        return false;
    if (!n->welcomed)
        send_welcome(n);
    send_pending_lease(n);
    return true;
}

void server_send(struct server_node *n, const struct wire_message *m) {
    if (prepare_to_send(n))
        conn_send(n->conn, m);
}

static void send_frame(struct server_node *n, const char *frame, size_t len) {
    if (prepare_to_send(n))
        conn_send_frame(n->conn, frame, len);
}

/* Then the next DESIRED takes the lease with it. A successor's lease does not wait: the leases of
 * all depend on the first one's echo. */
static bool message_is_due(const struct server_node *n) {
    const struct group *g = n->server->group;
    return (group_state(g) == GROUP_FORMING || group_state(g) == GROUP_STOPPING) &&
           !group_is_successor(g, n->incarnation);
}

/* At once, or with the next message if one is due soon, because with thousands of nodes each packet
 * costs time. Waits for half a heartbeat at most. */
static void send_lease(struct server_node *n, const struct lease *lease) {
    if (n == NULL || n->conn == NULL)
        return;
    struct rdzv_server *s = n->server;
    n->lease_pending = *lease; /* replaces an older one */
    if (!list_empty(&n->lease_pending_link))
        return;
    if (list_empty(&s->lease_pending))
        loop_timer_set(s->lease_pending_timer,
                       clock_now_ns() + s->group_config.rdzv.heartbeat_ns / 2);
    list_append(&s->lease_pending, &n->lease_pending_link);
    if (!message_is_due(n))
        (void)prepare_to_send(n);
}

static void on_lease_pending(void *arg) {
    struct rdzv_server *s = arg;
    LIST_FOR_EACH(struct server_node, n, &s->lease_pending, lease_pending_link) {
        if (loop_slice_is_over(s->loop)) {
            loop_timer_set(s->lease_pending_timer, clock_now_ns()); /* the rest in the next turn */
            return;
        }
        send_pending_lease(n);
    }
}

bool rdzv_server_watchdog(struct rdzv_server *s, uint64_t incarnation,
                          const struct wire_message *m) {
    struct server_node *n = find(s, incarnation);
    if (n == NULL || n->conn == NULL || s->deposed)
        return false;
    server_send(n, m);
    return true;
}

void server_hide_loopback(char *literal) {
    struct addr at;
    if (addr_from_literal(literal, 1, &at) == 0 && addr_is_loopback(&at))
        literal[0] = '\0';
}

static void make_named(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_NAMED, .named = *group_successors(s->group)};
    for (uint32_t i = 0; i < m.named.n; i++)
        server_hide_loopback(m.named.list[i].addr);
    wire_add_frame(&m, &s->named);
}

static void send_handover(struct rdzv_server *s, struct server_node *n) {
    _cleanup_(handover_fini) struct handover e = {0};
    group_handover(s->group, &e);
    /* The node must get all of it, however large that is. */
    conn_set_unsent_max(n->conn, CONN_UNSENT_MAX + (size_t)e.n_members * MEMBER_BYTES_MAX);
    struct wire_message m = {.kind = WIRE_MEMBERS, .members = {.handover = e}};
    m.members.handover.members = NULL;
    do {
        m.members.n = MIN2(e.n_members - m.members.first, (uint32_t)RDZV_MEMBERS_CHUNK);
        for (uint32_t i = 0; i < m.members.n; i++) {
            m.members.list[i] = e.members[m.members.first + i];
            server_hide_loopback(m.members.list[i].addr);
        }
        server_send(n, &m);
        m.members.first += m.members.n;
    } while (m.members.first < e.n_members);
}

/* Sends the successors to the node, and, if it is one of them, the handover. */
static void send_successors(struct rdzv_server *s, struct server_node *n) {
    if (n == NULL || n->conn == NULL || group_successors(s->group)->epoch == 0)
        return; /* without an arbiter there are no successors */
    if (s->named.len == 0)
        make_named(s);
    send_frame(n, strbuf_text(&s->named), s->named.len);
    if (group_is_successor(s->group, n->incarnation))
        send_handover(s, n);
}

static void redirect_all(struct rdzv_server *s, uint32_t epoch) {
    struct wire_message m = {.kind = WIRE_REDIRECT, .redirect = {.epoch = epoch}};
    if (s->record.epoch >= epoch && !s->record.closed && !s->record.vacant) {
        m.redirect.epoch = s->record.epoch;
        m.redirect.leader = s->record.leader;
        server_hide_loopback(m.redirect.leader.addr);
    }
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(&m, &frame);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn == NULL)
            continue;
        list_remove(&n->lease_pending_link);
        conn_send_frame(n->conn, strbuf_text(&frame), frame.len);
        conn_finish(TAKE_PTR(n->conn));
    }
}

static void answer(struct server_asker *asker, bool ok, const char *text) {
    if (asker == NULL || asker->answered)
        return;
    asker->answered = true;
    conn_answer(asker->conn, ok, text);
}

void rdzv_server_command(struct rdzv_server *s, const struct command *command, struct conn *to) {
    struct server_asker asker = {.conn = to};
    if (s->deposed) {
        answer(&asker, false, "this agent no longer leads; try again");
        return;
    }
    assert(command->kind != COMMAND_STATUS); /* rdzv_server_status() */
    assert(!s->pump.busy);                   /* it is called from the loop */
    s->asker = &asker;
    rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_COMMAND, .command = command});
    answer(&asker, false, "the leader did not accept the command; try again");
}

/* ---- probes ---- */

static void stop_probe(struct server_node *n) {
    list_remove(&n->probe_link);
    if (n->probe != NULL) {
        probe_free(TAKE_PTR(n->probe));
        n->server->n_probes--;
    }
}

static void start_probes(struct rdzv_server *s);

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct server_node *n = arg;
    struct rdzv_server *s = n->server;
    struct group_event ev = {.kind = GROUP_EVENT_PROBE,
                             .node = n->incarnation,
                             .probe = probe_result_for(answer, s->group_config.leader_incarnation)};
    n->probe = NULL;
    s->n_probes--;
    start_probes(s);
    bool unreachable = n->reaching && answer->result != PROBE_ALIVE && n->conn != NULL;
    n->reaching = false;
    if (unreachable) {
        const struct node_info *info = group_node_info(s->group, n->incarnation);
        char at[ADDR_TEXT_MAX], line[512];
        addr_to_text(&n->listener, at);
        (void)snprintf(
            line, sizeof line,
            "node %s can't be reached at %s (a firewall?): its loss will be noticed after "
            "%.1f s, not at once",
            info == NULL ? "?" : info->host, at,
            (double)(s->group_config.rdzv.lease_ns + s->group_config.rdzv.margin_ns) / 1e9);
        notice(s, line);
    }
    rdzv_server_event(s, &ev);
}

/* Only queues the answer, never calls from inside. */
static void answer_later(struct rdzv_server *s, uint64_t incarnation, enum probe_result result) {
    bool held = pump_hold(&s->pump);
    rdzv_server_event(
        s, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = incarnation, .probe = result});
    pump_release(&s->pump, held);
    loop_timer_set(s->pump.timer, clock_now_ns());
}

static void start_probes(struct rdzv_server *s) {
    while (s->n_probes < RDZV_PROBES_MAX && !list_empty(&s->probe_queue)) {
        struct server_node *n = LIST_FIRST(struct server_node, &s->probe_queue, probe_link);
        list_remove(&n->probe_link);
        int r = probe_start(s->loop, NULL, &n->listener, s->config.auth, n->incarnation,
                            PROBE_TIMEOUT_NS, on_probed, n, &n->probe);
        if (r == 0) {
            s->n_probes++;
            continue;
        }
        /* Out of descriptors: the group asks again after its retry interval. */
        answer_later(s, n->incarnation, PROBE_UNKNOWN);
    }
}

/* ---- nodes ---- */

static void drop_node(struct server_node *n) {
    struct rdzv_server *s = n->server;
    const struct rdzv_server_parts *parts = &s->config.parts;
    if (parts->summaries.forgotten != NULL)
        parts->summaries.forgotten(parts->summaries.arg, n->incarnation);
    if (parts->evidence.forgotten != NULL)
        parts->evidence.forgotten(parts->evidence.arg, n->incarnation);
    stop_probe(n);
    server_whose_node_fini(n);
    list_remove(&n->lease_pending_link);
    list_remove(&n->desired_link);
    conn_free(n->conn);
    idmap_remove(&s->nodes, n->incarnation);
    list_remove(&n->link);
    free(n);
    start_probes(s);
}

static struct server_node *node_new(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = xcalloc(1, sizeof *n);
    n->server = s;
    n->incarnation = incarnation;
    list_init(&n->probe_link);
    list_init(&n->lease_pending_link);
    list_init(&n->desired_link);
    server_whose_node_init(n);
    list_append(&s->all, &n->link);
    idmap_put(&s->nodes, incarnation, n);
    return n;
}

/* The group knows it, and it never joined this server. NULL: the group does not know it either. */
static struct server_node *find_inherited(struct rdzv_server *s, uint64_t incarnation) {
    const struct node_info *info = group_node_info(s->group, incarnation);
    if (info == NULL)
        return NULL;
    struct server_node *n = node_new(s, incarnation);
    if (addr_from_literal(info->addr, info->listener_port, &n->listener) < 0)
        /* "": it was on the last leader's machine, whose address is not known */
        n->listener.len = 0;
    return n;
}

/* reach: report if the node's listener cannot be reached. */
static void probe(struct rdzv_server *s, uint64_t incarnation, bool reach) {
    struct server_node *n = find(s, incarnation);
    if (n == NULL)
        n = find_inherited(s, incarnation);
    if (n == NULL || n->listener.len == 0) {
        answer_later(s, incarnation, PROBE_UNKNOWN);
        return;
    }
    n->reaching = reach;
    if (n->probe == NULL && !list_linked(&n->probe_link))
        list_append(&s->probe_queue, &n->probe_link);
    start_probes(s);
}

static void disconnected(struct server_node *n) {
    struct rdzv_server *s = n->server;
    uint64_t incarnation = n->incarnation;
    list_remove(&n->lease_pending_link);
    server_whose_disconnected(n);
    conn_free(TAKE_PTR(n->conn));
    rdzv_server_event(s,
                      &(struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = incarnation});
}

/* A node knows a later epoch than ours. The group gets this event after those of the message. */
static void record_epoch(struct rdzv_server *s, uint32_t epoch) {
    if (epoch <= MAX2(server_epoch(s), s->higher_epoch))
        return;
    s->higher_epoch = epoch;
    bool held = pump_hold(&s->pump); /* only queued: it may be the last step */
    rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_HIGHER_EPOCH, .epoch = epoch});
    pump_release(&s->pump, held);
}

/* For the other parts, which may free the server. True: it was such a message. */
static bool pass_on(struct server_node *n, const struct wire_message *m) {
    const struct rdzv_server *s = n->server;
    const struct rdzv_server_parts *parts = &s->config.parts;
    if (m->kind == WIRE_NODE_SUMMARY) {
        const struct node_info *info = group_node_info(s->group, n->incarnation);
        if (parts->summaries.received != NULL && info != NULL && !s->deposed)
            parts->summaries.received(parts->summaries.arg, n->incarnation, info->host,
                                      m->node_summary.text);
    } else if (m->kind == WIRE_SIGNS) {
        if (parts->watchdog.signs != NULL && !s->deposed)
            parts->watchdog.signs(parts->watchdog.arg, n->incarnation, &m->signs);
    } else if (m->kind == WIRE_EVIDENCE) {
        if (parts->evidence.piece != NULL && !s->deposed)
            parts->evidence.piece(parts->evidence.arg, n->incarnation, &m->evidence);
    } else {
        return m->kind == WIRE_OWNER;
    }
    return true;
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct server_node *n = arg;
    n->heard_ns = clock_now_ns();
    if (!wire_is_for_leader(m->kind) ||
        (m->kind == WIRE_OWNER && !server_whose_answer(n, &m->owner))) {
        log_debug("rendezvous: node %016" PRIx64 " sent an unexpected %s; disconnected",
                  n->incarnation, wire_kind_name(m->kind));
        disconnected(n);
        return;
    }
    if (pass_on(n, m))
        return;
    struct group_event ev = {
        .kind = GROUP_EVENT_MESSAGE, .node = n->incarnation, .message = m->kind, .body = &m->body};
    if (m->kind == WIRE_REPORT) {
        ev.kind = GROUP_EVENT_REPORT;
        ev.report = &m->report;
        if (m->report.at_safe_point && n->server->config.ops.safe_point != NULL)
            n->server->config.ops.safe_point(n->server->config.arg);
    } else if (m->kind == WIRE_RENEW) {
        ev.kind = GROUP_EVENT_RENEW;
        ev.renew = m->renew;
    } else if (m->kind == WIRE_LEAVE) {
        ev.kind = GROUP_EVENT_LEAVE;
    }
    record_epoch(n->server, wire_epoch_of(m));
    rdzv_server_event(n->server, &ev);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct server_node *n = arg;
    log_debug("rendezvous: connection of node %016" PRIx64 " ended: %s%s", n->incarnation,
              code == -EPROTO ? "protocol violation: " : "", text);
    disconnected(n);
}

static const struct conn_ops node_callbacks = {.on_message = on_message, .on_closed = on_closed};

/* ---- joining ---- */

static void report_other_limits(struct server_node *n) {
    const struct rdzv_settings *ours = &n->server->group_config.rdzv;
    const struct node_info *info = group_node_info(n->server->group, n->incarnation);
    if (n->limits_reported || info == NULL ||
        (n->min_nodes == ours->min_nodes && n->max_nodes == ours->max_nodes))
        return;
    n->limits_reported = true;
    report(n->server,
           "node %s was started with --nnodes %u:%u, the leader with %u:%u; the leader's numbers "
           "count",
           info->host, n->min_nodes, n->max_nodes, ours->min_nodes, ours->max_nodes);
}

static void node_connected(struct server_node *n, struct conn *conn, const struct wire_join *join) {
    struct conn *old = n->conn;
    n->conn = conn;
    n->welcomed = false;
    n->heard_ns = clock_now_ns();
    list_remove(&n->lease_pending_link);
    n->min_nodes = join->min_nodes;
    n->max_nodes = join->max_nodes;
    conn_set_owner(conn, &node_callbacks, n);
    conn_free(old);
    if (conn_local_addr(conn, &n->local) < 0)
        n->local.len = 0; /* the connection has ended already; that will be noticed soon */
    if (conn_peer_addr(conn, &n->listener) == 0) {
        n->loopback = addr_is_loopback(&n->listener);
        n->here = n->loopback || (n->local.len > 0 && addr_same_host(&n->local, &n->listener));
        addr_set_port(&n->listener, join->info.listener_port);
    }
    conn_set_patience(conn, n->server->group_config.rdzv.lease_ns,
                      n->server->group_config.rdzv.heartbeat_ns);
    server_whose_joined(n, join->addrs);
}

/* As the leader sees it, for others. "": reachable only from this machine. */
static void fill_addr(const struct server_node *n, struct node_info *info) {
    info->addr[0] = '\0';
    if (n->listener.len > 0 && !n->loopback)
        addr_host_text(&n->listener, info->addr);
}

/* It is connected from another host, and heard. Only a peer that has a key is believed to be that
 * node all the same; another one when the connection there is silent. */
static bool is_stolen(const struct server_node *n, const struct conn *conn) {
    struct addr peer;
    if (n->conn == NULL || conn_is_secured(conn) || conn_peer_addr(conn, &peer) < 0)
        return false;
    if (addr_same_host(&peer, &n->listener) || (n->here && conn_is_within_host(conn)))
        return false;
    return clock_now_ns() - n->heard_ns < 2 * n->server->group_config.rdzv.heartbeat_ns;
}

static const char *host_text(const struct addr *at, char ret[ADDR_TEXT_MAX]) {
    if (at->len == 0)
        return "an unknown address";
    addr_host_text(at, ret);
    return ret;
}

void rdzv_server_join(struct rdzv_server *s, struct conn *conn, const struct wire_join *join) {
    if (s->deposed) { /* its listener will get another policy soon */
        conn_refuse(conn, false, "the agent there no longer leads");
        return;
    }
    struct server_node *n = find(s, join->info.incarnation);
    if (n != NULL && is_stolen(n, conn)) {
        struct addr peer = {0};
        char at[ADDR_TEXT_MAX];
        (void)!conn_peer_addr(conn, &peer);
        report(s,
               "refused a node at %s that claims to be one which is connected from another address",
               host_text(&peer, at));
        conn_refuse(conn, false, "this node is connected from another address");
        return;
    }
    if (n == NULL && s->nodes.len >= RDZV_NODES_MAX) {
        conn_refuse(conn, true, "the job has as many nodes as it can hold");
        return;
    }
    if (n == NULL)
        n = node_new(s, join->info.incarnation);
    node_connected(n, conn, join);
    struct node_info info = join->info;
    fill_addr(n, &info);
    record_epoch(s, join->report.epoch);
    rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_JOIN,
                                               .node = n->incarnation,
                                               .info = &info,
                                               .program = &join->program,
                                               .report = &join->report});
}

/* After a JOIN and its effects: sends WELCOME, unless another message was sent to the node. */
static void finish_join(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = find(s, incarnation);
    if (n == NULL)
        return;
    if (n->conn != NULL && !n->welcomed)
        send_welcome(n);
    report_other_limits(n);
}

/* People look at the leader's terminal, too: the refused node's may be one of hundreds. */
static void refuse_node(struct server_node *n, const char *reason, bool for_now) {
    char at[ADDR_TEXT_MAX];
    if (!for_now)
        report(n->server, "a node at %s was refused: %.*s", host_text(&n->listener, at),
               RDZV_REASON_MAX, reason);
    if (n->conn != NULL)
        conn_refuse(TAKE_PTR(n->conn), !for_now, reason);
    drop_node(n);
}

/* ---- the workers' store ---- */

static struct addr loopback_addr(void) {
    struct addr a = {0};
    int r = addr_from_literal("127.0.0.1", 0, &a);
    assert(r == 0);
    return a;
}

/* Loopback if all members came over it; else the user's, or one over which a member has reached us,
 * preferably from another machine. */
static struct addr choose_store_addr(const struct rdzv_server *s) {
    size_t n = group_members(s->group, NULL, 0);
    _cleanup_(freep) uint64_t *members = xcalloc(n, sizeof *members);
    n = group_members(s->group, members, n);
    const struct server_node *elsewhere = NULL;
    for (size_t i = 0; i < n && (elsewhere == NULL || elsewhere->here); i++) {
        const struct server_node *m = find(s, members[i]);
        if (m != NULL && !m->loopback && m->local.len > 0 && (elsewhere == NULL || !m->here))
            elsewhere = m;
    }
    if (elsewhere == NULL || (n == 1 && members[0] == s->group_config.leader_incarnation))
        return loopback_addr();
    struct addr a = s->config.local_addr.len > 0 ? s->config.local_addr : elsewhere->local;
    addr_set_port(&a, 0);
    return a;
}

static void open_store(struct rdzv_server *s, struct generation generation) {
    struct addr at = choose_store_addr(s);
    struct err err = {0};
    int r = s->config.ops.store_open(s->config.arg, generation, &at, &err);
    char host[ADDR_TEXT_MAX];
    addr_host_text(&at, host);
    struct group_event ev = {.kind = GROUP_EVENT_STORE, .generation = generation};
    if (r == 0) {
        s->store_open = true;
        s->store_generation = generation;
        ev.store_host = host;
        ev.store_port = addr_port(&at);
    } else {
        ev.reason = err.text[0] != '\0' ? err.text : strerror(-r);
    }
    rdzv_server_event(s, &ev);
}

static void close_store(struct rdzv_server *s) {
    if (!s->store_open)
        return;
    s->store_open = false;
    s->config.ops.store_close(s->config.arg, s->store_generation);
}

static void on_arbiter(void *arg, const struct arbiter_answer *answer) {
    struct rdzv_server *s = arg;
    if ((answer->result == ARBITER_OK || answer->result == ARBITER_LOST) &&
        answer->record.epoch >= s->record.epoch)
        s->record = answer->record;
    rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_ARBITER, .answer = answer});
}

static void touch(struct rdzv_server *s, enum outcome outcome) {
    uint64_t began_ns = clock_now_ns();
    bool touched =
        s->config.leader_file != NULL && leader_file_touch(s->config.leader_file, outcome) == 0;
    rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_TOUCHED,
                                               .touched_ns = touched ? began_ns : 0});
}

static void depose(struct rdzv_server *s, uint32_t epoch) {
    s->deposed = true;
    redirect_all(s, epoch);
    if (s->config.ops.deposed != NULL)
        s->config.ops.deposed(s->config.arg, epoch);
}

/* ---- effects ---- */

static void send_status(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_STATUS};
    group_status(s->group, clock_now_ns(), &m.status);
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(&m, &frame);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn != NULL && conn_unsent(n->conn) < STATUS_UNSENT_MAX)
            send_frame(n, strbuf_text(&frame), frame.len);
    }
}

/* All nodes mostly get the same message, except for FORM: its text is made only once. */
static void send_desired(struct rdzv_server *s, struct server_node *n) {
    struct wire_message m;
    m.kind = WIRE_DESIRED;
    list_remove(&n->desired_link);
    if (!group_desired(s->group, n->incarnation, &m.desired))
        return;
    /* A node without a place in a running group has the same priority as strangers. */
    bool outside = m.desired.kind == DESIRED_IDLE && group_state(s->group) != GROUP_GATHERING;
    if (n->conn != NULL)
        conn_set_priority(n->conn, outside ? LOOP_PRIO_BULK : LOOP_PRIO_LEASE);
    if (s->last_desired_frame.len == 0 ||
        memcmp(&m.desired, &s->last_desired, sizeof m.desired) != 0) {
        strbuf_clear(&s->last_desired_frame);
        wire_add_frame(&m, &s->last_desired_frame);
        s->last_desired = m.desired;
    }
    send_frame(n, strbuf_text(&s->last_desired_frame), s->last_desired_frame.len);
}

/* With the desired state at this time. */
static void on_desired_timer(void *arg) {
    struct rdzv_server *s = arg;
    while (!list_empty(&s->desired_pending) && !loop_slice_is_over(s->loop))
        send_desired(s, CONTAINER_OF(s->desired_pending.next, struct server_node, desired_link));
    if (!list_empty(&s->desired_pending))
        loop_timer_set(s->desired_timer, clock_now_ns());
}

/* Sends DESIRED at once, or in the next turn if there are thousands of nodes. */
static void send_desired_soon(struct rdzv_server *s, struct server_node *n) {
    if (n == NULL || list_linked(&n->desired_link))
        return;
    if (list_empty(&s->desired_pending) && !loop_slice_is_over(s->loop)) {
        send_desired(s, n);
        return;
    }
    list_append(&s->desired_pending, &n->desired_link);
    loop_timer_set(s->desired_timer, clock_now_ns());
}

static void obey(struct rdzv_server *s, const struct group_effect *e) {
    struct server_node *n = find(s, e->node);
    switch (e->kind) {
    case GROUP_EFFECT_DESIRED: send_desired_soon(s, n); break;
    case GROUP_EFFECT_LEASE: send_lease(n, &e->lease); break;
    case GROUP_EFFECT_PROBE: probe(s, e->node, false); break;
    case GROUP_EFFECT_REACH: probe(s, e->node, true); break;
    case GROUP_EFFECT_REFUSE:
        if (n != NULL)
            refuse_node(n, e->reason, e->for_now);
        break;
    case GROUP_EFFECT_FORGET:
        if (n != NULL)
            drop_node(n);
        break;
    case GROUP_EFFECT_STORE_OPEN: open_store(s, e->generation); break;
    case GROUP_EFFECT_STORE_CLOSE: close_store(s); break;
    case GROUP_EFFECT_STATUS: send_status(s); break;
    case GROUP_EFFECT_NOTICE: notice(s, e->reason); break;
    case GROUP_EFFECT_DONE: s->config.ops.done(s->config.arg, group_outcome(s->group)); break;
    case GROUP_EFFECT_NAME: send_successors(s, n); break;
    case GROUP_EFFECT_ARBITER: arbiter_ask(s->config.arbiter, e->request, on_arbiter, s); break;
    case GROUP_EFFECT_TOUCH: touch(s, e->outcome); break;
    case GROUP_EFFECT_DEPOSED: depose(s, e->epoch); break;
    case GROUP_EFFECT_ANSWER: answer(s->asker, e->ok, e->reason); break;
    case GROUP_EFFECT_TIMELINE:
        if (s->config.ops.timeline != NULL)
            s->config.ops.timeline(s->config.arg, e->entry);
        break;
    case GROUP_EFFECT_STARTED:
    case GROUP_EFFECT_STOPPING:
    case GROUP_EFFECT_RELEASED:
        if (s->config.ops.workers != NULL)
            s->config.ops.workers(s->config.arg, e->kind);
        break;
    case GROUP_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static uint64_t step(void *arg, void *event) {
    struct rdzv_server *s = arg;
    struct group_event *ev = event;
    if (s->deposed)
        return TIME_NEVER;
    ev->now_ns = clock_now_ns();
    strbuf_clear(&s->named);
    group_step(s->group, ev, &s->update);
    for (size_t i = 0; i < s->update.n_effects && !s->pump.dead && !s->deposed; i++)
        obey(s, &s->update.effects[i]);
    if (ev->kind == GROUP_EVENT_COMMAND)
        s->asker = NULL;
    if (ev->kind == GROUP_EVENT_JOIN && !s->pump.dead && !s->deposed)
        finish_join(s, ev->node);
    return s->deposed ? TIME_NEVER : s->update.deadline_ns;
}

static void free_nodes(struct rdzv_server *s) {
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        stop_probe(n);
        server_whose_node_fini(n);
        conn_finish(n->conn);
        free(n);
    }
    list_init(&s->all);
    idmap_fini(&s->nodes);
}

static void destroy(void *arg) {
    struct rdzv_server *s = arg;
    if (s->config.arbiter != NULL)
        arbiter_cancel(s->config.arbiter, s);
    close_store(s);
    while (!list_empty(&s->desired_pending) && !s->deposed)
        send_desired(s, CONTAINER_OF(s->desired_pending.next, struct server_node, desired_link));
    free_nodes(s);
    server_whose_fini(s);
    server_operators_fini(s);
    pump_fini(&s->pump);
    loop_timer_free(s->lease_pending_timer);
    loop_timer_free(s->desired_timer);
    group_update_fini(&s->update);
    group_free(s->group);
    strbuf_fini(&s->named);
    strbuf_fini(&s->last_desired_frame);
    free(s);
}

static const struct pump_ops pump_ops = {
    .step = step,
    .destroy = destroy,
    .event_size = sizeof(struct group_event),
    .pointers = {{offsetof(struct group_event, store_host), PUMP_TEXT},
                 {offsetof(struct group_event, reason), PUMP_TEXT},
                 {offsetof(struct group_event, evidence), PUMP_TEXT},
                 {offsetof(struct group_event, failure), sizeof(struct failure)}},
};

/* Queued during a step: STORE, STOP, PROBE, TOUCHED, HIGHER_EPOCH, RESIGN, HANG. */
void rdzv_server_event(struct rdzv_server *s, const struct group_event *event) {
    struct group_event ev = *event;
    assert(!s->pump.busy || (ev.info == NULL && ev.report == NULL && ev.answer == NULL &&
                             ev.command == NULL && ev.kind != GROUP_EVENT_MESSAGE));
    pump_event(&s->pump, &ev);
}

/* The group may wait until the messages of the last step are sent. */
static void on_timer(void *arg) {
    struct rdzv_server *s = arg;
    if (list_empty(&s->desired_pending))
        rdzv_server_event(s, &(struct group_event){.kind = GROUP_EVENT_TIME});
    else
        loop_timer_set(s->pump.timer, clock_now_ns());
}

int rdzv_server_new(struct loop *loop, const struct group_config *group_config,
                    const struct rdzv_server_config *config, struct rdzv_server **ret) {
    struct rdzv_server *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->config = *config;
    s->group_config = *group_config;
    s->group_config.handover = NULL; /* the group has copied it */
    s->nodes.seed = random_u64();
    list_init(&s->all);
    list_init(&s->probe_queue);
    list_init(&s->lease_pending);
    list_init(&s->desired_pending);
    uint64_t now = clock_now_ns();
    int r = group_new(group_config, now, &s->group);
    if (r < 0) {
        free(s);
        return r;
    }
    pump_init(&s->pump, loop, &pump_ops, s, on_timer);
    s->lease_pending_timer = loop_timer_new(loop, on_lease_pending, s);
    s->desired_timer = loop_timer_new(loop, on_desired_timer, s);
    server_operators_init(s);
    server_whose_init(s);
    loop_timer_set(s->pump.timer, now);
    *ret = s;
    return 0;
}

void rdzv_server_free(struct rdzv_server *s) {
    if (s != NULL)
        pump_free(&s->pump);
}

const struct group *rdzv_server_group(const struct rdzv_server *s) { return s->group; }
