#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"
#include "io/clock.h"
#include "io/listen.h"
#include "rendezvous/server_priv.h"

#define SOCKETS_MAX 4

struct rdzv_listener {
    struct loop *loop;
    struct rdzv_listener_config config;
    struct rdzv_server *server; /* borrowed; NULL: this agent does not lead */
    struct listener *sockets[SOCKETS_MAX];
    size_t n_sockets;
    struct list pending; /* struct pending, the oldest first */
    size_t n_pending;
    bool paused;
    struct loop_timer *timer; /* for the oldest */
};

/* A connection that has not said JOIN: a probe, a node about to join, or anybody. */
struct pending {
    struct list link;
    struct rdzv_listener *listener;
    struct conn *conn; /* owned */
    uint64_t deadline_ns;
};

static void update_interest(struct rdzv_listener *l) {
    struct pending *oldest = LIST_FIRST(struct pending, &l->pending, link);
    loop_timer_set(l->timer, oldest == NULL ? TIME_NEVER : oldest->deadline_ns);
    bool full = l->n_pending >= RDZV_PENDING_MAX;
    if (full == l->paused)
        return;
    l->paused = full;
    for (size_t i = 0; i < l->n_sockets; i++) {
        if (full)
            listener_pause(l->sockets[i]);
        else
            listener_retry(l->sockets[i]);
    }
}

/* Forgets it and hands its connection over. */
static struct conn *pending_take(struct pending *p) {
    struct conn *conn = p->conn;
    struct rdzv_listener *l = p->listener;
    list_remove(&p->link);
    l->n_pending--;
    free(p);
    update_interest(l);
    return conn;
}

static void refuse(struct pending *p, bool final, const char *reason) {
    struct wire_message m = {.kind = WIRE_REFUSED, .refused = {.final = final}};
    (void)snprintf(m.refused.reason, sizeof m.refused.reason, "%s", reason);
    conn_send(p->conn, &m);
    conn_finish(pending_take(p));
}

static void on_join(struct pending *p, const struct wire_join *join) {
    const struct rdzv_listener *l = p->listener;
    char why[RDZV_REASON_MAX];
    if (join->version != WIRE_VERSION) {
        (void)snprintf(
            why, sizeof why,
            "this node's muster speaks protocol version %u, the leader's version %u; use "
            "the same muster on all nodes",
            join->version, WIRE_VERSION);
        refuse(p, true, why);
    } else if (strcmp(join->run_id, l->config.run_id) != 0) {
        (void)snprintf(
            why, sizeof why,
            "this node belongs to the run '%s', and the leader to the run '%s'; give all "
            "nodes of a job the same --rdzv-id, and each job an endpoint of its own",
            join->run_id, l->config.run_id);
        refuse(p, true, why);
    } else if (l->server == NULL) {
        refuse(p, false, "the agent there does not lead");
    } else {
        struct rdzv_server *server = l->server;
        rdzv_server_take(server, pending_take(p), join);
    }
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    (void)c;
    struct pending *p = arg;
    if (m->kind == WIRE_JOIN) {
        on_join(p, &m->join);
        return;
    }
    log_debug("rendezvous: a connection began with %s instead of JOIN; closed",
              wire_kind_name(m->kind));
    conn_free(pending_take(p));
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    (void)c;
    if (code == -EPROTO)
        log_debug("rendezvous: a connection that does not keep to the protocol: %s; closed", text);
    conn_free(pending_take(arg));
}

static const struct conn_ops pending_callbacks = {.on_message = on_message, .on_closed = on_closed};

static void on_accept(void *arg, int fd, const struct addr *peer) {
    (void)peer;
    struct rdzv_listener *l = arg;
    struct pending *p = xcalloc(1, sizeof *p);
    p->listener = l;
    p->deadline_ns = clock_now_ns() + l->config.first_word_ns;
    if (conn_new(l->loop, fd, &pending_callbacks, p, &p->conn) < 0) {
        free(p);
        return;
    }
    struct wire_message hello = {
        .kind = WIRE_HELLO,
        .hello = {.version = WIRE_VERSION, .incarnation = l->config.incarnation},
    };
    memcpy(hello.hello.run_id, l->config.run_id, sizeof hello.hello.run_id);
    conn_send(p->conn, &hello);
    list_append(&l->pending, &p->link);
    if (++l->n_pending == 1 || l->n_pending >= RDZV_PENDING_MAX)
        update_interest(l);
}

static void on_timer(void *arg) {
    struct rdzv_listener *l = arg;
    uint64_t now = clock_now_ns();
    struct pending *p;
    while ((p = LIST_FIRST(struct pending, &l->pending, link)) != NULL && p->deadline_ns <= now)
        conn_free(pending_take(p));
    update_interest(l);
}

int rdzv_listener_new(struct loop *loop, const struct rdzv_listener_config *config,
                      struct rdzv_listener **ret) {
    struct rdzv_listener *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->config = *config;
    if (l->config.first_word_ns == 0)
        l->config.first_word_ns = RDZV_FIRST_WORD_NS;
    list_init(&l->pending);
    int r = loop_timer_new(loop, on_timer, l, &l->timer);
    if (r < 0) {
        free(l);
        return r;
    }
    *ret = l;
    return 0;
}

int rdzv_listener_add(struct rdzv_listener *l, int fd) {
    if (l->n_sockets == SOCKETS_MAX) {
        (void)close(fd);
        return -ENOSPC;
    }
    int r = listener_new(l->loop, fd, on_accept, l, &l->sockets[l->n_sockets]);
    if (r < 0)
        return r;
    if (l->paused)
        listener_pause(l->sockets[l->n_sockets]);
    l->n_sockets++;
    return 0;
}

void rdzv_listener_serve(struct rdzv_listener *l, struct rdzv_server *server) {
    l->server = server;
}

void rdzv_listener_free(struct rdzv_listener *l) {
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_sockets; i++)
        listener_free(l->sockets[i]);
    l->n_sockets = 0;
    struct pending *p;
    while ((p = LIST_FIRST(struct pending, &l->pending, link)) != NULL)
        conn_free(pending_take(p));
    loop_timer_free(l->timer);
    free(l);
}
