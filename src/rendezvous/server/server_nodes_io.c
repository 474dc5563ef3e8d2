#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

/* The limit of nodes that are reported because they were started with other limits. */
#define LIMITS_SAID_MAX 32

struct server_node *server_find(const struct rdzv_server *s, uint64_t incarnation) {
    return incarnation == 0 ? NULL : idmap_get(&s->nodes, incarnation);
}

void server_drop_node(struct server_node *n) {
    struct rdzv_server *s = n->server;
    const struct rdzv_server_parts *parts = &s->config.parts;
    if (parts->summaries.forgotten != NULL)
        parts->summaries.forgotten(parts->summaries.arg, n->incarnation);
    if (parts->evidence.forgotten != NULL)
        parts->evidence.forgotten(parts->evidence.arg, n->incarnation);
    server_stop_probe(n);
    server_whose_node_fini(n);
    list_remove(&n->lease_pending_link);
    list_remove(&n->desired_link);
    conn_free(n->conn);
    idmap_remove(&s->nodes, n->incarnation);
    list_remove(&n->link);
    free(n);
    server_start_probes(s);
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
                    .heartbeat_ns = s->config.heartbeat_ns,
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

void server_send_text(struct server_node *n, const char *text, size_t len) {
    if (prepare_to_send(n))
        conn_send_text(n->conn, text, len);
}

/* ---- leases ---- */

/* While a group forms or stops, the next DESIRED is soon sent to each node, and the lease can go
 * with it. A successor's lease does not wait: the leases of all depend on the first one's echo. */
static bool message_is_due(const struct server_node *n) {
    const struct group *g = n->server->group;
    return (group_state(g) == GROUP_FORMING || group_state(g) == GROUP_STOPPING) &&
           !group_is_successor(g, n->incarnation);
}

void server_send_lease(struct server_node *n, const struct lease *lease) {
    if (n == NULL || n->conn == NULL)
        return;
    struct rdzv_server *s = n->server;
    n->lease_pending = *lease; /* replaces an older one */
    if (!list_empty(&n->lease_pending_link))
        return;
    if (list_empty(&s->lease_pending))
        loop_timer_set(s->lease_pending_timer, clock_now_ns() + s->config.heartbeat_ns / 2);
    list_append(&s->lease_pending, &n->lease_pending_link);
    if (!message_is_due(n))
        (void)prepare_to_send(n);
}

void server_send_pending_leases(struct rdzv_server *s) {
    LIST_FOR_EACH(struct server_node, n, &s->lease_pending, lease_pending_link) {
        if (loop_slice_is_over(s->loop)) {
            loop_timer_set(s->lease_pending_timer, clock_now_ns()); /* the rest in the next turn */
            return;
        }
        send_pending_lease(n);
    }
}

static void disconnected(struct server_node *n) {
    struct rdzv_server *s = n->server;
    uint64_t incarnation = n->incarnation;
    list_remove(&n->lease_pending_link);
    server_whose_disconnected(n);
    conn_free(TAKE_PTR(n->conn));
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = incarnation});
}

/* A node knows a later epoch than ours. The group gets this event after those of the message. */
static void record_epoch(struct rdzv_server *s, uint32_t epoch) {
    if (epoch <= MAX2(server_epoch(s), s->higher_epoch))
        return;
    s->higher_epoch = epoch;
    bool held = pump_hold(&s->pump); /* only queued: it may be the last step */
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_HIGHER_EPOCH, .epoch = epoch});
    pump_release(&s->pump, held);
}

/* Not an event of the group. Must be the last call for this message: the callback may free the
 * server. */
static void on_node_summary(struct server_node *n, const char *text) {
    const struct rdzv_server *s = n->server;
    const struct node_info *info = group_node_info(s->group, n->incarnation);
    const struct rdzv_server_parts *parts = &s->config.parts;
    if (parts->summaries.received != NULL && info != NULL && !s->deposed)
        parts->summaries.received(parts->summaries.arg, n->incarnation, info->host, text);
}

/* Not events of the group either. True: it was one of them. */
static bool on_signs(const struct server_node *n, const struct wire_message *m) {
    const struct rdzv_server *s = n->server;
    const struct rdzv_server_parts *parts = &s->config.parts;
    if (m->kind != WIRE_SIGNS && m->kind != WIRE_EVIDENCE)
        return false;
    if (s->deposed)
        return true;
    if (m->kind == WIRE_SIGNS && parts->watchdog.signs != NULL)
        parts->watchdog.signs(parts->watchdog.arg, n->incarnation, &m->signs);
    else if (m->kind == WIRE_EVIDENCE && parts->evidence.piece != NULL)
        parts->evidence.piece(parts->evidence.arg, n->incarnation, &m->evidence);
    return true;
}

bool rdzv_server_watchdog(struct rdzv_server *s, uint64_t incarnation,
                          const struct wire_message *m) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL || n->conn == NULL || s->deposed)
        return false;
    server_send(n, m);
    return true;
}

static void on_unexpected(struct server_node *n, const struct wire_message *m) {
    log_debug("rendezvous: node %016" PRIx64 " sent an unexpected %s; disconnected", n->incarnation,
              wire_kind_name(m->kind));
    disconnected(n);
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct server_node *n = arg;
    n->heard_ns = clock_now_ns();
    if (!wire_is_for_leader(m->kind)) {
        on_unexpected(n, m);
        return;
    }
    if (m->kind == WIRE_OWNER) {
        if (!server_whose_answer(n, &m->owner))
            on_unexpected(n, m);
        return;
    }
    if (m->kind == WIRE_NODE_SUMMARY) {
        on_node_summary(n, m->node_summary.text);
        return;
    }
    if (on_signs(n, m))
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
    server_event(n->server, &ev);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct server_node *n = arg;
    log_debug("rendezvous: connection of node %016" PRIx64 " ended: %s%s", n->incarnation,
              code == -EPROTO ? "protocol violation: " : "", text);
    disconnected(n);
}

static const struct conn_ops node_callbacks = {.on_message = on_message, .on_closed = on_closed};

/* ---- joining ---- */

static void refuse(struct conn *conn, const char *reason, bool for_now) {
    conn_refuse(conn, !for_now, reason);
    conn_finish(conn);
}

/* Only for the first few nodes: a line for each of many would fill the terminal. */
static void log_other_limits(struct rdzv_server *s, struct server_node *n) {
    const struct group_config *g = &s->group_config;
    const struct node_info *info = group_node_info(s->group, n->incarnation);
    if (n->limits_said || s->n_limits_said >= LIMITS_SAID_MAX || info == NULL ||
        (n->min_nodes == g->rdzv.min_nodes && n->max_nodes == g->rdzv.max_nodes))
        return;
    n->limits_said = true;
    s->n_limits_said++;
    char line[RDZV_HOST_MAX + 160];
    (void)snprintf(line, sizeof line,
                   "node %s was started with --nnodes %u:%u, the leader with %u:%u; the leader's "
                   "numbers count",
                   info->host, n->min_nodes, n->max_nodes, g->rdzv.min_nodes, g->rdzv.max_nodes);
    server_notice(s, line);
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

struct server_node *server_find_inherited(struct rdzv_server *s, uint64_t incarnation) {
    const struct node_info *info = group_node_info(s->group, incarnation);
    if (info == NULL)
        return NULL;
    struct server_node *n = node_new(s, incarnation);
    if (addr_from_literal(info->addr, info->listener_port, &n->listener) < 0)
        /* "": it was on the last leader's machine, whose address is not known */
        n->listener.len = 0;
    return n;
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
    conn_set_patience(conn, n->server->group_config.rdzv.lease_ns, n->server->config.heartbeat_ns);
    server_whose_joined(n, join->addrs);
}

/* The node's address as the leader sees it, which is sent to others. "": reachable only from this
 * machine. */
static void fill_addr(const struct server_node *n, struct node_info *info) {
    char text[ADDR_TEXT_MAX];
    info->addr[0] = '\0';
    if (n->listener.len == 0 || n->loopback)
        return;
    addr_host_text(&n->listener, text);
    if (strlen(text) < sizeof info->addr)
        memcpy(info->addr, text, strlen(text) + 1);
}

/* A node of this incarnation is connected from another host, and is heard. Only who has a key, and
 * so is one of ours, is believed to be that node all the same; another one when the connection
 * there is silent. */
static bool is_stolen(const struct server_node *n, const struct conn *conn) {
    struct addr peer;
    if (n->conn == NULL || conn_is_secured(conn) || conn_peer_addr(conn, &peer) < 0)
        return false;
    if (addr_same_host(&peer, &n->listener) || (n->here && conn_is_within_host(conn)))
        return false;
    return clock_now_ns() - n->heard_ns < 2 * n->server->config.heartbeat_ns;
}

static void report_stolen(struct rdzv_server *s, const struct conn *conn) {
    char line[ADDR_TEXT_MAX + 160], at[ADDR_TEXT_MAX] = "an unknown address";
    struct addr peer;
    if (s->n_limits_said >= LIMITS_SAID_MAX)
        return;
    s->n_limits_said++;
    if (conn_peer_addr(conn, &peer) == 0)
        addr_host_text(&peer, at);
    (void)snprintf(line, sizeof line,
                   "refused a node at %s that claims to be one which is connected from "
                   "another address",
                   at);
    bool held = pump_hold(&s->pump);
    server_notice(s, line);
    pump_release(&s->pump, held);
}

void rdzv_server_join(struct rdzv_server *s, struct conn *conn, const struct wire_join *join) {
    if (s->deposed) { /* its listener will get another policy soon */
        refuse(conn, "the agent there no longer leads", true);
        return;
    }
    struct server_node *n = server_find(s, join->info.incarnation);
    if (n != NULL && is_stolen(n, conn)) {
        report_stolen(s, conn);
        refuse(conn, "this node is connected from another address", true);
        return;
    }
    if (n == NULL && s->nodes.len >= RDZV_NODES_MAX) {
        refuse(conn, "the job has as many nodes as it can hold", false);
        return;
    }
    if (n == NULL)
        n = node_new(s, join->info.incarnation);
    node_connected(n, conn, join);
    struct node_info info = join->info;
    fill_addr(n, &info);
    record_epoch(s, join->report.epoch);
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_JOIN,
                                          .node = n->incarnation,
                                          .info = &info,
                                          .program = &join->program,
                                          .report = &join->report});
}

void server_finish_join(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL)
        return;
    if (n->conn != NULL && !n->welcomed)
        send_welcome(n);
    log_other_limits(s, n);
}

/* People look at the leader's terminal, too: the refused node's may be one of hundreds. */
static void report_refused(struct server_node *n, const char *reason) {
    struct rdzv_server *s = n->server;
    char line[RDZV_REASON_MAX + ADDR_TEXT_MAX + 64], at[ADDR_TEXT_MAX] = "an unknown address";
    if (s->n_limits_said >= LIMITS_SAID_MAX)
        return;
    s->n_limits_said++;
    if (n->listener.len > 0)
        addr_host_text(&n->listener, at);
    (void)snprintf(line, sizeof line, "a node at %s was refused: %.*s", at, RDZV_REASON_MAX,
                   reason);
    server_notice(s, line);
}

void server_refuse_node(struct server_node *n, const char *reason, bool for_now) {
    if (!for_now)
        report_refused(n, reason);
    if (n->conn != NULL)
        refuse(TAKE_PTR(n->conn), reason, for_now);
    server_drop_node(n);
}

void server_free_nodes(struct rdzv_server *s) {
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        server_stop_probe(n);
        server_whose_node_fini(n);
        conn_finish(n->conn);
        free(n);
    }
    list_init(&s->all);
    idmap_fini(&s->nodes);
}
