#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "rendezvous/server/node_listener_priv.h"

/* ---- nodes ---- */

static void refuse(struct joiner *c, bool final, const char *reason) {
    struct wire_message m = {.kind = WIRE_REFUSED, .refused = {.final = final}};
    (void)snprintf(m.refused.reason, sizeof m.refused.reason, "%s", reason);
    conn_send(c->conn, &m);
    conn_finish(listener_take(c));
}

static void redirect(struct joiner *c) {
    const struct rdzv_listener *l = c->listener;
    conn_send(c->conn,
              &(struct wire_message){.kind = WIRE_REDIRECT,
                                     .redirect = {.epoch = l->leader_epoch, .leader = l->leader}});
    conn_finish(listener_take(c));
}

static void on_parked_message(void *arg, struct conn *conn, const struct wire_message *m);
static void on_parked_closed(void *arg, struct conn *conn, int code, const char *text);
static const struct conn_ops parked_ops = {.on_message = on_parked_message,
                                           .on_closed = on_parked_closed};

static void report_joiner(const struct rdzv_listener *l, uint64_t incarnation, bool came) {
    if (l->config.joiner != NULL)
        l->config.joiner(l->config.arg, incarnation, came);
}

static void park(struct joiner *c, const struct wire_message *m) {
    struct rdzv_listener *l = c->listener;
    uint64_t incarnation = m->join.info.incarnation;
    struct joiner *before = idmap_get(&l->parked_by_incarnation, incarnation);
    if (before == NULL && l->n_parked >= RDZV_NODES_MAX) {
        refuse(c, false, "more nodes wait there than a job may have");
        return;
    }
    if (before != NULL) /* the node came back on a new connection */
        conn_free(listener_take(before));
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    c->join = xstrndup(strbuf_text(&text), text.len);
    c->join_len = text.len;
    c->incarnation = incarnation;
    idmap_put(&l->parked_by_incarnation, incarnation, c);
    conn_set_owner(c->conn, &parked_ops, c);
    if (l->config.lease_ns > 0)
        conn_set_patience(c->conn, l->config.lease_ns, l->config.heartbeat_ns);
    listener_move(c, &l->parked, &l->n_parked);
    if (before == NULL)
        report_joiner(l, incarnation, true);
}

static void unpark(struct joiner *c) {
    const struct rdzv_listener *l = c->listener;
    uint64_t incarnation = c->incarnation;
    conn_free(listener_take(c));
    report_joiner(l, incarnation, false);
}

static void on_parked_message(void *arg, struct conn *conn, const struct wire_message *m) {
    (void)conn;
    struct joiner *c = arg;
    log_debug("rendezvous: node %016" PRIx64 " sent %s before its WELCOME; closed", c->incarnation,
              wire_kind_name(m->kind));
    unpark(c);
}

static void on_parked_closed(void *arg, struct conn *conn, int code, const char *text) {
    (void)conn;
    (void)code;
    (void)text;
    unpark(arg);
}

/* Passes the caller to the server, as if its JOIN came now. */
static void hand_over(struct joiner *c) {
    struct rdzv_server *server = c->listener->server;
    struct wire_message m;
    int r = wire_decode(c->join, c->join_len, &m, NULL);
    struct conn *conn = listener_take(c);
    if (r == 0)
        rdzv_server_join(server, conn, &m.join);
    else
        conn_free(conn); /* out of memory: the node will try again */
}

/* Handles a caller that has sent a valid JOIN, now or before it was parked. */
static void treat(struct joiner *c) {
    switch (c->listener->join_policy) {
    case JOIN_POLICY_SENT_AWAY: refuse(c, false, "the agent there does not lead"); break;
    case JOIN_POLICY_PARKED: break;
    case JOIN_POLICY_REDIRECTED: redirect(c); break;
    case JOIN_POLICY_SERVED: hand_over(c); break;
    }
}

static void on_join(struct joiner *c, const struct wire_message *m) {
    const struct rdzv_listener *l = c->listener;
    const struct wire_join *join = &m->join;
    char why[RDZV_REASON_MAX];
    if (join->version != WIRE_VERSION) {
        (void)snprintf(
            why, sizeof why,
            "this node's muster speaks protocol version %u, the leader's version %u; use "
            "the same muster on all nodes",
            join->version, WIRE_VERSION);
        refuse(c, true, why);
    } else if (strcmp(join->run_id, l->config.run_id) != 0) {
        (void)snprintf(
            why, sizeof why,
            "this node belongs to the run '%s', and the leader to the run '%s'; give all "
            "nodes of a job the same --rdzv-id, and each job an endpoint of its own",
            join->run_id, l->config.run_id);
        refuse(c, true, why);
    } else if (join->info.incarnation == l->config.incarnation && !conn_is_within_host(c->conn)) {
        refuse(c, false, "this agent's own node joins from this agent's own machine");
    } else if (l->join_policy == JOIN_POLICY_PARKED) {
        park(c, m);
    } else if (l->join_policy == JOIN_POLICY_SERVED) {
        struct rdzv_server *server = l->server;
        rdzv_server_join(server, listener_take(c), join);
    } else {
        treat(c);
    }
}

/* Handles parked callers in order. That can change the policy, but never adds to the list. */
static void treat_parked(struct rdzv_listener *l) {
    struct joiner *c;
    while (l->join_policy != JOIN_POLICY_PARKED &&
           (c = LIST_FIRST(struct joiner, &l->parked, link)) != NULL)
        treat(c);
}

void rdzv_listener_serve(struct rdzv_listener *l, struct rdzv_server *server) {
    l->server = server;
    l->join_policy = server != NULL ? JOIN_POLICY_SERVED : JOIN_POLICY_SENT_AWAY;
    treat_parked(l);
}

void rdzv_listener_join_policy(struct rdzv_listener *l, enum member_join_policy join_policy,
                               const struct rdzv_peer *leader, uint32_t epoch) {
    if (join_policy == JOIN_POLICY_SERVED) {
        assert(l->server != NULL);
    } else {
        l->server = NULL;
    }
    l->join_policy = join_policy;
    if (join_policy == JOIN_POLICY_REDIRECTED) {
        l->leader = *leader;
        l->leader_epoch = epoch;
        struct addr at;
        /* A loopback address works only on this machine, so it is not sent to others. */
        if (addr_from_literal(leader->addr, leader->port, &at) == 0 && addr_is_loopback(&at))
            l->leader.addr[0] = '\0';
    }
    treat_parked(l);
}

/* ---- operators ---- */

static void answer(struct conn *conn, bool ok, const char *text) {
    struct wire_message m = {.kind = WIRE_ANSWER, .answer = {.ok = ok}};
    (void)snprintf(m.answer.text, sizeof m.answer.text, "%s", text);
    conn_send(conn, &m);
}

static void answer_leave(struct joiner *c, const struct command *command) {
    struct wire_message m = {.kind = WIRE_ANSWER};
    const struct rdzv_listener_config *config = &c->listener->config;
    if (config->leave == NULL)
        (void)snprintf(m.answer.text, sizeof m.answer.text, "this agent can't leave");
    else
        config->leave(config->arg, command->reason, &m.answer);
    conn_send(c->conn, &m);
}

static void on_command(struct joiner *c, const struct wire_command *w) {
    const struct rdzv_listener *l = c->listener;
    struct wire_message m = {.kind = WIRE_REDIRECT};
    if (w->version != WIRE_VERSION) {
        char why[160];
        (void)snprintf(why, sizeof why,
                       "this agent speaks protocol version %u, the command's sender version %u; "
                       "use the same muster for both",
                       WIRE_VERSION, w->version);
        answer(c->conn, false, why);
    } else if (w->run_id[0] != '\0' && strcmp(w->run_id, l->config.run_id) != 0) {
        char why[RDZV_REASON_MAX / 4];
        (void)snprintf(why, sizeof why, "this agent belongs to the run '%.200s', not to '%.200s'",
                       l->config.run_id, w->run_id);
        answer(c->conn, false, why);
    } else if (w->command.kind == COMMAND_LEAVE) {
        answer_leave(c, &w->command);
    } else if (l->server == NULL && l->config.find_leader != NULL &&
               l->config.find_leader(l->config.arg, &m.redirect.epoch, &m.redirect.leader) &&
               m.redirect.leader.incarnation != l->config.incarnation) {
        conn_send(c->conn, &m);
    } else if (l->server == NULL) {
        answer(c->conn, false, "no leader is known here; try again, or ask another node");
    } else if (w->command.kind == COMMAND_STATUS) {
        rdzv_server_status(l->server, &c->asking);
    } else if (w->command.kind == COMMAND_STACKS) {
        struct rdzv_server *server = l->server;
        rdzv_server_stacks(server, &w->command, listener_take(c));
    } else {
        rdzv_server_command(l->server, &w->command, c->conn);
    }
}

static void on_operator_message(void *arg, struct conn *conn, const struct wire_message *m);

static void on_closed(void *arg, struct conn *conn, int code, const char *text) {
    (void)conn;
    if (code == -EPROTO)
        log_debug("rendezvous: a connection violates the protocol: %s; closed", text);
    conn_free(listener_take(arg));
}

static const struct conn_ops operator_ops = {.on_message = on_operator_message,
                                             .on_closed = on_closed};

static void on_operator_message(void *arg, struct conn *conn, const struct wire_message *m) {
    (void)conn;
    struct joiner *c = arg;
    struct rdzv_listener *l = c->listener;
    if (m->kind != WIRE_COMMAND || c->asking.waits) {
        log_debug("rendezvous: an operator sent %s%s; closed", wire_kind_name(m->kind),
                  c->asking.waits ? " before the answer to its last question" : "");
        conn_free(listener_take(c));
        return;
    }
    c->deadline_ns = clock_now_ns() + RDZV_OPERATOR_SILENCE_NS;
    /* to the end of the list: it was silent for the shortest time */
    listener_move(c, &l->operators, &l->n_operators);
    on_command(c, &m->command);
}

static void on_first_command(struct joiner *c, const struct wire_message *m) {
    struct rdzv_listener *l = c->listener;
    if (l->n_operators >= RDZV_OPERATORS_MAX) {
        answer(c->conn, false, "too many operators ask this agent at the moment; try again");
        conn_finish(listener_take(c));
        return;
    }
    conn_set_owner(c->conn, &operator_ops, c);
    on_operator_message(c, c->conn, m);
}

/* ---- the first message ---- */

static void on_message(void *arg, struct conn *conn, const struct wire_message *m) {
    (void)conn;
    struct joiner *c = arg;
    if (m->kind == WIRE_JOIN) {
        on_join(c, m);
    } else if (m->kind == WIRE_COMMAND) {
        on_first_command(c, m);
    } else if (m->kind == WIRE_CALL && !c->called) {
        c->called = true; /* HELLO is on its way */
    } else {
        log_debug("rendezvous: a connection began with %s instead of JOIN; closed",
                  wire_kind_name(m->kind));
        conn_free(listener_take(c));
    }
}

/* The caller may talk to this agent: it learns whose it is, and has time again for its JOIN. */
static void on_open(void *arg, struct conn *conn) {
    struct joiner *c = arg;
    struct rdzv_listener *l = c->listener;
    struct wire_message hello = {
        .kind = WIRE_HELLO,
        .hello = {.version = WIRE_VERSION, .incarnation = l->config.incarnation},
    };
    memcpy(hello.hello.run_id, l->config.run_id, sizeof hello.hello.run_id);
    conn_send(conn, &hello);
    if (!c->shakes)
        return;
    listener_end_handshake(c);
    list_remove(&c->link);
    list_append(&l->pending, &c->link);
    c->deadline_ns = clock_now_ns() + l->config.first_word_ns;
    listener_update_interest(l);
}

const struct conn_ops listener_pending_ops = {.on_message = on_message,
                                              .on_closed = on_closed,
                                              .on_open = on_open,
                                              .on_handshake = listener_on_handshake};
