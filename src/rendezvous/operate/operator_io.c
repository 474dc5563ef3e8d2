#include "rendezvous/operate/operator_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "io/net/resolver.h"
#include "rendezvous/protocol/conn_io.h"

struct operator_call {
    struct loop *loop;
    const struct operator_question *q;
    struct loop_timer *timer;
    struct resolve *resolve;
    struct conn *conn;
    /* addresses to try in turn, of the agent that was named last */
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n_addrs, at;
    uint32_t hops;
    bool greeted; /* the agent at addrs[at] has sent HELLO */
    bool all_refused;
    bool done;
    uint32_t room; /* of reply->nodes */
    struct operator_reply *reply;
    int code; /* how it ended, or the last failure */
    char text[ERR_TEXT_MAX];
    char where[ADDR_TEXT_MAX]; /* here() */
};

static void try_next(struct operator_call *a);

static void end(struct operator_call *a, int code) {
    a->code = code;
    a->done = true;
    loop_timer_set(a->timer, TIME_NEVER);
    conn_free(TAKE_PTR(a->conn));
    loop_quit(a->loop);
}

static const char *here(struct operator_call *a) {
    addr_to_text(&a->addrs[a->at], a->where);
    return a->where;
}

/* The call ends with this error, unless another address gives a better result. */
#define FAIL(a, why, ...) \
    ((void)snprintf((a)->text, sizeof(a)->text, __VA_ARGS__), (void)((a)->code = (why)))

static void leave_address(struct operator_call *a) {
    conn_free(TAKE_PTR(a->conn));
    a->at++;
    try_next(a);
}

static void wait_for_more(struct operator_call *a) {
    loop_timer_set(a->timer, clock_now_ns() + a->q->timeout_ns);
}

/* The nodes are asked first, perhaps after they have answered somebody else. */
#define STACKS_MORE_NS (5 * NS_PER_S)

static uint64_t stacks_wait_ns(const struct operator_call *a) {
    const struct command *c = &a->q->command;
    return c->period_ns > 0 ? c->timeout_ns + RDZV_PROFILE_LATE_NS + STACKS_MORE_NS
                            : 2 * c->timeout_ns + STACKS_MORE_NS;
}

/* ---- messages to the agent ---- */

static void send_command(struct operator_call *a) {
    struct wire_message m = {.kind = WIRE_COMMAND,
                             .command = {.version = WIRE_VERSION, .command = a->q->command}};
    (void)snprintf(m.command.run_id, sizeof m.command.run_id, "%s", a->reply->run_id);
    conn_send(a->conn, &m);
    if (a->q->command.kind == COMMAND_STACKS)
        loop_timer_set(a->timer, clock_now_ns() + stacks_wait_ns(a));
}

static void on_hello(struct operator_call *a, const struct wire_hello *hello) {
    if (hello->version != WIRE_VERSION) {
        FAIL(a, -EPROTO,
             "the agent at %s speaks protocol version %u, this muster version %u; use the job's "
             "own muster",
             here(a), hello->version, WIRE_VERSION);
        leave_address(a);
    } else if (a->q->run_id != NULL && strcmp(a->q->run_id, hello->run_id) != 0) {
        FAIL(a, -ESRCH, "the agent at %s belongs to the run '%.100s', not to '%.100s'", here(a),
             hello->run_id, a->q->run_id);
        leave_address(a);
    } else {
        a->greeted = true;
        (void)strcpy(a->reply->run_id, hello->run_id);
        addr_host_text(&a->addrs[a->at], a->reply->from);
        a->reply->from_port = addr_port(&a->addrs[a->at]);
        send_command(a);
    }
}

static void on_redirect(struct operator_call *a, const struct wire_redirect *r) {
    struct addr from = a->addrs[a->at];
    if (a->q->command.kind == COMMAND_LEAVE) {
        FAIL(a, -EPROTO, "the agent at %s redirected a command that only it can carry out",
             here(a));
        end(a, a->code);
        return;
    }
    if (r->leader.incarnation == 0 || ++a->hops > OPERATOR_HOPS_MAX) {
        FAIL(a, -EHOSTUNREACH,
             r->leader.incarnation == 0 ? "the agent at %s knows no leader; try again"
                                        : "redirected too often, last by %s: the leader is "
                                          "changing; try again",
             here(a));
        end(a, a->code);
        return;
    }
    a->n_addrs = addr_from_list(r->leader.addr, r->leader.port, a->addrs, RESOLVE_ADDRS_MAX);
    if (a->n_addrs == 0 && r->leader.addr[0] == '\0') {
        a->addrs[0] = from;
        addr_set_port(&a->addrs[0], r->leader.port);
        a->n_addrs = 1;
    }
    a->at = 0;
    a->all_refused = false;
    conn_free(TAKE_PTR(a->conn));
    if (a->n_addrs == 0) {
        FAIL(a, -EPROTO, "the leader's address '%.100s' is not valid", r->leader.addr);
        end(a, a->code);
        return;
    }
    try_next(a);
}

/* ---- answers ---- */

static void on_overview(struct operator_call *a, const struct overview *o) {
    a->reply->has_overview = true;
    a->reply->overview = *o;
    a->reply->n_nodes = 0;
    if (o->n_nodes == 0)
        end(a, 0);
    else
        wait_for_more(a);
}

static void make_room(struct operator_call *a, uint32_t n) {
    if (a->reply->n_nodes + n <= a->room)
        return;
    a->room = MAX2(a->room * 2, (uint32_t)RDZV_OVERVIEW_CHUNK * 4);
    a->reply->nodes = xrealloc(a->reply->nodes, a->room * sizeof *a->reply->nodes);
}

/* The rows come in order, and no more of them than were announced. */
static void on_nodes(struct operator_call *a, const struct wire_nodes *nodes) {
    struct operator_reply *reply = a->reply;
    if (!reply->has_overview || nodes->first != reply->n_nodes ||
        nodes->n > reply->overview.n_nodes - reply->n_nodes) {
        FAIL(a, -EPROTO, "the agent at %s gave unexpected rows", here(a));
        end(a, a->code);
        return;
    }
    make_room(a, nodes->n);
    memcpy(reply->nodes + reply->n_nodes, nodes->list, nodes->n * sizeof *nodes->list);
    reply->n_nodes += nodes->n;
    if (reply->n_nodes == reply->overview.n_nodes)
        end(a, 0);
    else
        wait_for_more(a);
}

static void on_stacks(struct operator_call *a, const struct wire_message *m) {
    struct err err = {0};
    int r = operator_stacks_take(&a->reply->stacks, m, &err);
    if (r < 0)
        FAIL(a, r, "the agent at %s gave an answer that makes no sense: %.150s", here(a), err.text);
    if (r != 0)
        end(a, r < 0 ? r : 0);
    else
        loop_timer_set(a->timer, clock_now_ns() + stacks_wait_ns(a));
}

static void on_unexpected(struct operator_call *a, const struct wire_message *m) {
    if (m->kind == WIRE_REFUSED)
        FAIL(a, -EHOSTUNREACH, "the agent at %s refuses: %.150s", here(a), m->refused.reason);
    else
        FAIL(a, -EPROTO, "the agent at %s sent an unexpected %s", here(a), wire_kind_name(m->kind));
    leave_address(a);
}

static void on_message(void *arg, struct conn *c, const struct wire_message *m) {
    struct operator_call *a = arg;
    bool wants_status = a->q->command.kind == COMMAND_STATUS;
    if (m->kind == WIRE_HELLO && !a->greeted) {
        on_hello(a, &m->hello);
    } else if (!a->greeted) {
        on_unexpected(a, m);
    } else if ((m->kind == WIRE_STACKS || m->kind == WIRE_EVIDENCE) &&
               a->q->command.kind == COMMAND_STACKS) {
        on_stacks(a, m);
    } else if (m->kind == WIRE_REDIRECT && !a->reply->has_overview) {
        on_redirect(a, &m->redirect);
    } else if (m->kind == WIRE_ANSWER && !a->reply->has_overview) {
        a->reply->answer = m->answer;
        end(a, 0);
    } else if (m->kind == WIRE_OVERVIEW && wants_status && !a->reply->has_overview) {
        on_overview(a, &m->overview);
    } else if (m->kind == WIRE_NODES && wants_status) {
        on_nodes(a, &m->nodes);
    } else {
        on_unexpected(a, m);
    }
}

static void on_closed(void *arg, struct conn *c, int code, const char *text) {
    struct operator_call *a = arg;
    if (code == -EPROTO)
        FAIL(a, -EPROTO, "what listens at %s is not a muster agent: %.150s", here(a), text);
    else if (code == -ECONNREFUSED)
        FAIL(a, -ECONNREFUSED, "no agent listens at %s", here(a));
    else if (code == -EKEYREJECTED)
        FAIL(a, -EKEYREJECTED, "can't talk to the agent at %s: %s", here(a), text);
    else if ((code == 0 || code == -ECONNRESET) && !a->greeted)
        FAIL(a, -EHOSTUNREACH,
             "what listens at %s closes the connection without an answer: it may belong to another "
             "user, or not be muster",
             here(a));
    else
        FAIL(a, -EHOSTUNREACH, "%s %s: %.150s", a->greeted ? "no answer from" : "can't reach",
             here(a), text);
    if (code != -ECONNREFUSED)
        a->all_refused = false;
    leave_address(a);
}

static const struct conn_ops callbacks = {.on_message = on_message, .on_closed = on_closed};

static void on_timeout(void *arg) {
    struct operator_call *a = arg;
    a->all_refused = false;
    struct addr peer;
    bool silent = !a->greeted && a->conn != NULL && conn_peer_addr(a->conn, &peer) == 0;
    uint64_t waited_ns =
        a->greeted && a->q->command.kind == COMMAND_STACKS ? stacks_wait_ns(a) : a->q->timeout_ns;
    FAIL(a, -EHOSTUNREACH, "no answer from %s within %.3g s%s", here(a),
         (double)waited_ns / NS_PER_S, silent ? "; what listens there may not be muster" : "");
    leave_address(a);
}

static void try_next(struct operator_call *a) {
    a->greeted = false;
    a->reply->has_overview = false;
    operator_stacks_fini(&a->reply->stacks);
    while (a->at < a->n_addrs) {
        wait_for_more(a);
        int r = conn_connect(a->loop, NULL, &a->addrs[a->at], a->q->auth, &callbacks, a, &a->conn);
        if (r == 0) {
            conn_call(a->conn);
            return;
        }
        a->all_refused = false;
        FAIL(a, -EHOSTUNREACH, "can't reach %s: %s", here(a), strerror(-r));
        a->at++;
    }
    if (a->code == -ECONNREFUSED && !a->all_refused)
        a->code = -EHOSTUNREACH;
    end(a, a->code);
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct operator_call *a = arg;
    a->resolve = NULL;
    if (code < 0) {
        FAIL(a, -EHOSTUNREACH, "%.200s", text);
        end(a, a->code);
        return;
    }
    memcpy(a->addrs, addrs, n * sizeof *addrs);
    a->n_addrs = n;
    try_next(a);
}

static int begin(struct operator_call *a, struct err *err) {
    const struct operator_question *q = a->q;
    a->n_addrs = addr_from_list(q->host, q->port, a->addrs, RESOLVE_ADDRS_MAX);
    int r = a->n_addrs > 0 ? 0 : resolve_now(q->host, q->port, a->addrs, &a->n_addrs);
    if (r == RESOLVE_E_LOOKUP) {
        r = resolve_start(a->loop, q->host, q->port, q->timeout_ns, on_resolved, a, &a->resolve);
        return r < 0 ? err_set(err, r, "can't look up '%.100s': %s", q->host, strerror(-r)) : 0;
    }
    if (r < 0)
        return err_set(err, r, "'%.100s' is not a host", q->host);
    try_next(a);
    return 0;
}

int operator_ask(struct loop *loop, const struct operator_question *q, struct operator_reply *ret,
                 struct err *err) {
    struct operator_call a = {.loop = loop, .q = q, .reply = ret, .all_refused = true};
    *ret = (struct operator_reply){0};
    a.timer = loop_timer_new(loop, on_timeout, &a);
    int r = begin(&a, err);
    if (r == 0 && !a.done)
        r = loop_run(loop);
    resolve_free(a.resolve);
    conn_free(a.conn);
    loop_timer_free(a.timer);
    ret->wall_ns = clock_wall_ns();
    if (r == 0 && a.code < 0)
        r = err_set(err, a.code, "%s", a.text);
    if (r < 0)
        operator_reply_fini(ret);
    return r;
}

void operator_reply_fini(struct operator_reply *reply) {
    free(reply->nodes);
    operator_stacks_fini(&reply->stacks);
    *reply = (struct operator_reply){0};
}
