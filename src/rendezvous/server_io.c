#include "rendezvous/server_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/idmap.h"
#include "base/list.h"
#include "base/log.h"
#include "io/clock.h"
#include "rendezvous/probe_io.h"
#include "rendezvous/server_priv.h"

#define PROBE_TIMEOUT_NS (1 * NS_PER_S)
/* STATUS is for people: a node that is slow to read does without. */
#define STATUS_UNSENT_MAX ((size_t)64 * 1024)

struct rdzv_server {
    struct loop *loop;
    struct rdzv_server_config config;
    struct group_config group_config;
    struct group *group;
    struct group_update update; /* of the step under way */
    struct loop_timer *timer;
    bool busy;          /* a step or its effects are under way: */
    bool dead;          /* freed there */
    struct list queue;  /* struct queued: events that effects caused */
    struct idmap nodes; /* incarnation → struct server_node */
    struct list all;    /* struct server_node */
    struct list probe_queue; /* struct server_node, by probe_link */
    unsigned n_probes;  /* under way */
    bool store_open;
    struct generation store_generation;
};

struct server_node {
    struct list link;
    struct list probe_link;
    struct rdzv_server *server;
    uint64_t incarnation;
    struct conn *conn;   /* owned; NULL while it is disconnected */
    bool welcomed;       /* on this connection */
    struct addr listener; /* where it is probed */
    struct addr local;   /* our end of its connection */
    bool loopback;       /* it came from this machine, over loopback */
    struct probe *probe; /* NULL: none under way */
    uint32_t min_nodes, max_nodes; /* as its user gave them */
    bool limits_said;    /* that they are not the leader's */
    bool reaching;       /* the next answer tells whether it can be reached at all */
};

struct queued {
    struct list link;
    struct group_event event;
    char *text; /* store_host or reason */
};

static void server_event(struct rdzv_server *s, struct group_event *ev);

/* ---- nodes ---- */

static struct server_node *find(const struct rdzv_server *s, uint64_t incarnation) {
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

static void node_drop(struct server_node *n) {
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

static void node_send(struct server_node *n, const struct wire_message *m) {
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
    case WIRE_KIND_COUNT:
        log_debug("rendezvous: node %016" PRIx64 " said %s, which is not for a node to say; "
                  "disconnected", n->incarnation, wire_kind_name(m->kind));
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

static void incident(struct rdzv_server *s, const char *line) {
    if (s->config.ops.incident != NULL)
        s->config.ops.incident(s->config.arg, line);
}

static void refuse(struct conn *conn, const char *reason) {
    struct wire_message m = {.kind = WIRE_REFUSED, .refused = {.final = true}};
    (void)snprintf(m.refused.reason, sizeof m.refused.reason, "%s", reason);
    conn_send(conn, &m);
    conn_finish(conn);
}

static void say_other_limits(struct rdzv_server *s, struct server_node *n) {
    const struct group_config *g = &s->group_config;
    const struct node_info *info = group_node_info(s->group, n->incarnation);
    if (n->limits_said || info == NULL || (n->min_nodes == g->min_nodes && n->max_nodes == g->max_nodes))
        return;
    n->limits_said = true;
    char line[RDZV_HOST_MAX + 160];
    (void)snprintf(line, sizeof line,
                   "node %s was started with --nnodes %u:%u, the leader with %u:%u; the leader's "
                   "numbers count",
                   info->host, n->min_nodes, n->max_nodes, g->min_nodes, g->max_nodes);
    incident(s, line);
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
    struct server_node *n = find(s, join->info.incarnation);
    if (n == NULL && s->nodes.len >= RDZV_NODES_MAX) {
        refuse(conn, "the job has as many nodes as it can hold");
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

/* After the JOIN and its effects: the node is told that it is one, unless it was told more. */
static void finish_join(struct rdzv_server *s, uint64_t incarnation) {
    struct server_node *n = find(s, incarnation);
    if (n == NULL)
        return;
    if (n->conn != NULL && !n->welcomed)
        send_welcome(n);
    say_other_limits(s, n);
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
        (void)snprintf(line, sizeof line,
                       "node %s can't be reached at %s (a firewall?): its loss will be noticed after "
                       "%.1f s, not at once",
                       info == NULL ? "?" : info->host, at,
                       (double)(s->group_config.lease_ns + s->group_config.margin_ns) / 1e9);
        s->busy = true;
        incident(s, line);
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
        struct queued *q = xcalloc(1, sizeof *q);
        q->event = (struct group_event){
            .kind = GROUP_EVENT_PROBE, .node = n->incarnation, .probe = PROBE_UNKNOWN};
        list_append(&s->queue, &q->link);
        loop_timer_set(s->timer, clock_now_ns());
    }
}

static void want_probe(struct rdzv_server *s, uint64_t incarnation, bool reach) {
    struct server_node *n = find(s, incarnation);
    if (n == NULL)
        return;
    n->reaching = reach;
    if (n->probe == NULL && !list_linked(&n->probe_link))
        list_append(&s->probe_queue, &n->probe_link);
    start_probes(s);
}

/* ---- the workers' store ---- */

static struct addr loopback_addr(void) {
    struct addr a = {0};
    int r = addr_from_literal("127.0.0.1", 0, &a);
    assert(r == 0);
    return a;
}

/* Loopback when nobody comes from elsewhere, else an address that other machines reach: the user's,
 * or the one over which a member from elsewhere has reached us. */
static struct addr choose_store_addr(const struct rdzv_server *s) {
    size_t n = group_members(s->group, NULL, 0);
    uint64_t *members = xcalloc(n + 1, sizeof *members);
    n = group_members(s->group, members, n);
    const struct server_node *elsewhere = NULL;
    for (size_t i = 0; i < n && elsewhere == NULL; i++) {
        const struct server_node *m = find(s, members[i]);
        if (m != NULL && !m->loopback && m->local.len > 0)
            elsewhere = m;
    }
    bool alone = n == 1 && members[0] == s->group_config.leader_incarnation;
    free(members);
    if (alone || elsewhere == NULL)
        return loopback_addr();
    struct addr a = s->config.has_local_addr ? s->config.local_addr : elsewhere->local;
    addr_set_port(&a, 0);
    return a;
}

static void open_store(struct rdzv_server *s, struct generation generation) {
    struct addr at = choose_store_addr(s);
    uint16_t port = 0;
    struct err err = {0};
    int r = s->config.ops.store_open(s->config.arg, generation, &at, &port, &err);
    char host[ADDR_TEXT_MAX];
    addr_host_text(&at, host);
    struct group_event ev = {.kind = GROUP_EVENT_STORE, .generation = generation};
    if (r == 0) {
        s->store_open = true;
        s->store_generation = generation;
        ev.store_host = host;
        ev.store_port = port;
    } else {
        ev.reason = err.text[0] != '\0' ? err.text : strerror(-r);
    }
    server_event(s, &ev);
}

static void close_store(struct rdzv_server *s) {
    if (!s->store_open)
        return;
    s->store_open = false;
    s->config.ops.store_close(s->config.arg, s->store_generation);
}

/* ---- effects ---- */

static void send_status(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_STATUS};
    group_status(s->group, clock_now_ns(), &m.status);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&m, &text);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn != NULL && n->welcomed && conn_unsent(n->conn) < STATUS_UNSENT_MAX)
            conn_send_text(n->conn, strbuf_text(&text), text.len);
    }
}

static void tell(struct rdzv_server *s, struct server_node *n) {
    struct wire_message m = {.kind = WIRE_DESIRED};
    if (n != NULL && group_desired(s->group, n->incarnation, &m.desired))
        node_send(n, &m);
}

static void obey(struct rdzv_server *s, const struct group_effect *e) {
    struct server_node *n = find(s, e->node);
    switch (e->kind) {
    case GROUP_EFFECT_TELL: tell(s, n); break;
    case GROUP_EFFECT_LEASE:
        node_send(n, &(struct wire_message){.kind = WIRE_LEASE, .lease = e->lease});
        break;
    case GROUP_EFFECT_PROBE: want_probe(s, e->node, false); break;
    case GROUP_EFFECT_REACH: want_probe(s, e->node, true); break;
    case GROUP_EFFECT_REFUSE:
        if (n != NULL && n->conn != NULL)
            refuse(TAKE_PTR(n->conn), e->reason);
        if (n != NULL)
            node_drop(n);
        break;
    case GROUP_EFFECT_FORGET:
        if (n != NULL)
            node_drop(n);
        break;
    case GROUP_EFFECT_STORE_OPEN: open_store(s, e->generation); break;
    case GROUP_EFFECT_STORE_CLOSE: close_store(s); break;
    case GROUP_EFFECT_STATUS: send_status(s); break;
    case GROUP_EFFECT_INCIDENT: incident(s, e->reason); break;
    case GROUP_EFFECT_DONE: s->config.ops.done(s->config.arg, group_outcome(s->group)); break;
    case GROUP_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static void run_step(struct rdzv_server *s, struct group_event *ev) {
    ev->now_ns = clock_now_ns();
    group_step(s->group, ev, &s->update);
    for (size_t i = 0; i < s->update.n_effects && !s->dead; i++)
        obey(s, &s->update.effects[i]);
    if (ev->kind == GROUP_EVENT_JOIN && !s->dead)
        finish_join(s, ev->node);
}

static void queued_free(struct queued *q) {
    list_remove(&q->link);
    free(q->text);
    free(q);
}

/* Only what callbacks and effects cause: STORE, STOP, PROBE. */
static void enqueue(struct rdzv_server *s, const struct group_event *ev) {
    struct queued *q = xcalloc(1, sizeof *q);
    q->event = *ev;
    if (ev->store_host != NULL)
        q->event.store_host = q->text = xstrdup(ev->store_host);
    else if (ev->reason != NULL)
        q->event.reason = q->text = xstrdup(ev->reason);
    assert(ev->info == NULL && ev->report == NULL);
    list_append(&s->queue, &q->link);
}

static void destroy(struct rdzv_server *s) {
    close_store(s);
    struct queued *q;
    while ((q = LIST_FIRST(struct queued, &s->queue, link)) != NULL)
        queued_free(q);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        stop_probe(n);
        conn_finish(n->conn);
        free(n);
    }
    idmap_fini(&s->nodes);
    loop_timer_free(s->timer);
    group_update_fini(&s->update);
    group_free(s->group);
    free(s);
}

static void server_event(struct rdzv_server *s, struct group_event *ev) {
    if (s->busy) {
        enqueue(s, ev);
        return;
    }
    s->busy = true;
    if (!s->dead)
        run_step(s, ev);
    struct queued *q;
    while (!s->dead && (q = LIST_FIRST(struct queued, &s->queue, link)) != NULL) {
        run_step(s, &q->event);
        queued_free(q);
    }
    s->busy = false;
    if (s->dead)
        destroy(s);
    else
        loop_timer_set(s->timer, s->update.deadline_ns);
}

static void on_timer(void *arg) {
    server_event(arg, &(struct group_event){.kind = GROUP_EVENT_TIME});
}

/* ---- life ---- */

int rdzv_server_new(struct loop *loop, const struct group_config *group_config,
                    const struct rdzv_server_config *config, struct rdzv_server **ret) {
    struct rdzv_server *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->config = *config;
    s->group_config = *group_config;
    s->nodes.seed = random_u64();
    if (s->config.probe_timeout_ns == 0)
        s->config.probe_timeout_ns = PROBE_TIMEOUT_NS;
    list_init(&s->queue);
    list_init(&s->all);
    list_init(&s->probe_queue);
    uint64_t now = clock_now_ns();
    int r = group_new(group_config, now, &s->group);
    if (r == 0)
        r = loop_timer_new(loop, on_timer, s, &s->timer);
    if (r < 0) {
        group_free(s->group);
        free(s);
        return r;
    }
    loop_timer_set(s->timer, now);
    *ret = s;
    return 0;
}

void rdzv_server_free(struct rdzv_server *s) {
    if (s == NULL)
        return;
    if (s->busy)
        s->dead = true;
    else
        destroy(s);
}

void rdzv_server_stop_job(struct rdzv_server *s, const char *reason) {
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = reason});
}

const struct group *rdzv_server_group(const struct rdzv_server *s) { return s->group; }
