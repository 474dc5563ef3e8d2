#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "io/clock.h"
#include "rendezvous/server_priv.h"

struct server_node *server_find(const struct rdzv_server *s, uint64_t incarnation) {
    return incarnation == 0 ? NULL : idmap_get(&s->nodes, incarnation);
}

static void start_probes(struct rdzv_server *s);

static void stop_probe(struct server_node *n) {
    list_remove(&n->probe_link);
    if (n->probe != NULL) {
        probe_free(TAKE_PTR(n->probe));
        n->server->n_probes--;
    }
}

void server_drop_node(struct server_node *n) {
    struct rdzv_server *s = n->server;
    stop_probe(n);
    conn_free(n->conn);
    idmap_remove(&s->nodes, n->incarnation);
    list_remove(&n->link);
    free(n);
    start_probes(s);
}

static void send_welcome(struct server_node *n) {
    const struct rdzv_server *s = n->server;
    n->welcomed = true;
    struct wire_message m = {
        .kind = WIRE_WELCOME,
        .welcome = {.epoch = s->group_config.epoch,
                    .leader = s->group_config.leader_incarnation,
                    .listener_port = s->config.listener_port,
                    .heartbeat_ns = s->config.heartbeat_ns,
                    .lease_ns = s->group_config.lease_ns,
                    .margin_ns = s->group_config.margin_ns},
    };
    conn_send(n->conn, &m);
}

void server_send(struct server_node *n, const struct wire_message *m) {
    if (n == NULL || n->conn == NULL)
        return;
    if (!n->welcomed)
        send_welcome(n);
    conn_send(n->conn, m);
}

static void disconnected(struct server_node *n) {
    struct rdzv_server *s = n->server;
    uint64_t incarnation = n->incarnation;
    conn_free(TAKE_PTR(n->conn));
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_DISCONNECT, .node = incarnation});
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)c;
    struct server_node *n = arg;
    struct group_event ev = {.node = n->incarnation};
    switch (m->kind) {
    case WIRE_REPORT:
        ev.kind = GROUP_EVENT_REPORT;
        ev.report = &m->report;
        break;
    case WIRE_RENEW:
        ev.kind = GROUP_EVENT_RENEW;
        ev.renew = m->renew;
        break;
    case WIRE_LEAVE: ev.kind = GROUP_EVENT_LEAVE; break;
    case WIRE_HELLO:
    case WIRE_JOIN:
    case WIRE_WELCOME:
    case WIRE_REFUSED:
    case WIRE_DESIRED:
    case WIRE_LEASE:
    case WIRE_STATUS:
    case WIRE_NAMED:
    case WIRE_MEMBERS:
    case WIRE_ECHO:
    case WIRE_REDIRECT:
    case WIRE_COMMAND:
    case WIRE_ANSWER:
    case WIRE_OVERVIEW:
    case WIRE_NODES:
    case WIRE_KIND_COUNT:
        log_debug("rendezvous: node %016" PRIx64 " said %s, which is not for a node to say; "
                  "disconnected",
                  n->incarnation, wire_kind_name(m->kind));
        disconnected(n);
        return;
    }
    server_event(n->server, &ev);
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)c;
    struct server_node *n = arg;
    log_debug("rendezvous: connection of node %016" PRIx64 " ended: %s%s", n->incarnation,
              code == -EPROTO ? "it does not keep to the protocol: " : "", text);
    disconnected(n);
}

static const struct conn_ops node_callbacks = {.on_message = on_message, .on_closed = on_closed};

/* ---- joining ---- */

static void refuse(struct conn *conn, const char *reason, bool for_now) {
    struct wire_message m = {.kind = WIRE_REFUSED, .refused = {.final = !for_now}};
    (void)snprintf(m.refused.reason, sizeof m.refused.reason, "%s", reason);
    conn_send(conn, &m);
    conn_finish(conn);
}

static void say_other_limits(struct rdzv_server *s, struct server_node *n) {
    const struct group_config *g = &s->group_config;
    const struct node_info *info = group_node_info(s->group, n->incarnation);
    if (n->limits_said || info == NULL ||
        (n->min_nodes == g->min_nodes && n->max_nodes == g->max_nodes))
        return;
    n->limits_said = true;
    char line[RDZV_HOST_MAX + 160];
    (void)snprintf(line, sizeof line,
                   "node %s was started with --nnodes %u:%u, the leader with %u:%u; the leader's "
                   "numbers count",
                   info->host, n->min_nodes, n->max_nodes, g->min_nodes, g->max_nodes);
    server_incident(s, line);
}

static struct server_node *node_new(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = xcalloc(1, sizeof *n);
    n->server = s;
    n->incarnation = incarnation;
    list_init(&n->probe_link);
    list_append(&s->all, &n->link);
    idmap_put(&s->nodes, incarnation, n);
    return n;
}

static void node_connected(struct server_node *n, struct conn *conn, const struct wire_join *join) {
    struct conn *old = n->conn;
    n->conn = conn;
    n->welcomed = false;
    n->min_nodes = join->min_nodes;
    n->max_nodes = join->max_nodes;
    conn_set_owner(conn, &node_callbacks, n);
    conn_free(old);
    if (conn_local_addr(conn, &n->local) < 0)
        n->local.len = 0; /* gone already; its end is about to be noticed */
    if (conn_peer_addr(conn, &n->listener) == 0) {
        n->loopback = addr_is_loopback(&n->listener);
        addr_set_port(&n->listener, join->info.listener_port);
    }
}

void rdzv_server_take(struct rdzv_server *s, struct conn *conn, const struct wire_join *join) {
    struct server_node *n = server_find(s, join->info.incarnation);
    if (n == NULL && s->nodes.len >= RDZV_NODES_MAX) {
        refuse(conn, "the job has as many nodes as it can hold", false);
        return;
    }
    if (n == NULL)
        n = node_new(s, join->info.incarnation);
    node_connected(n, conn, join);
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_JOIN,
                                          .node = n->incarnation,
                                          .info = &join->info,
                                          .report = &join->report});
}

void server_finish_join(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL)
        return;
    if (n->conn != NULL && !n->welcomed)
        send_welcome(n);
    say_other_limits(s, n);
}

void server_refuse_node(struct server_node *n, const char *reason, bool for_now) {
    if (n->conn != NULL)
        refuse(TAKE_PTR(n->conn), reason, for_now);
    server_drop_node(n);
}

void server_free_nodes(struct rdzv_server *s) {
    LIST_FOR_EACH (struct server_node, n, &s->all, link) {
        stop_probe(n);
        conn_finish(n->conn);
        free(n);
    }
    list_init(&s->all);
    idmap_fini(&s->nodes);
}

/* ---- probes ---- */

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct server_node *n = arg;
    struct rdzv_server *s = n->server;
    struct group_event ev = {
        .kind = GROUP_EVENT_PROBE, .node = n->incarnation, .probe = answer->result};
    n->probe = NULL;
    s->n_probes--;
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
            (double)(s->group_config.lease_ns + s->group_config.margin_ns) / 1e9);
        s->busy = true;
        server_incident(s, line);
        s->busy = false;
    }
    server_event(s, &ev);
}

static void start_probes(struct rdzv_server *s) {
    while (s->n_probes < RDZV_PROBES_MAX && !list_empty(&s->probe_queue)) {
        struct server_node *n = LIST_FIRST(struct server_node, &s->probe_queue, probe_link);
        list_remove(&n->probe_link);
        int r = probe_start(s->loop, &n->listener, n->incarnation, s->config.probe_timeout_ns,
                            on_probed, n, &n->probe);
        if (r == 0) {
            s->n_probes++;
            continue;
        }
        /* Out of descriptors: the group asks again after its retry interval. */
        bool busy = s->busy;
        s->busy = true; /* not from inside: only queued */
        server_event(s, &(struct group_event){.kind = GROUP_EVENT_PROBE,
                                              .node = n->incarnation,
                                              .probe = PROBE_UNKNOWN});
        s->busy = busy;
        loop_timer_set(s->timer, clock_now_ns());
    }
}

void server_probe(struct rdzv_server *s, uint64_t incarnation, bool reach) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL)
        return;
    n->reaching = reach;
    if (n->probe == NULL && !list_linked(&n->probe_link))
        list_append(&s->probe_queue, &n->probe_link);
    start_probes(s);
}
