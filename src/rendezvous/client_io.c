#include "rendezvous/client_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "io/clock.h"
#include "io/resolve.h"
#include "rendezvous/conn_io.h"
#include "rendezvous/probe_io.h"

#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (2 * NS_PER_S)
#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
#define PROBE_TIMEOUT_NS (1 * NS_PER_S)
#define WAITING_TEXT_MAX 768

struct rdzv_client {
    struct loop *loop;
    struct rdzv_client_config config;
    struct member *member;
    struct member_update update;
    struct loop_timer *timer; /* the member's deadline */
    bool busy;                /* a step or its effects are under way: */
    bool dead;                /* freed there */
    bool ended;               /* ops.end was called */
    struct list queue;        /* struct queued: events that callbacks caused */

    /* The search for the leader: one round tries each address once. */
    struct loop_timer *retry; /* the next round, or the end of an attempt */
    struct resolve *resolve;
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n_addrs, next_addr;
    uint64_t backoff_ns; /* before the next round; 0: none */
    struct conn *conn;   /* NULL: none */
    bool welcomed;       /* on this connection */
    char waiting[WAITING_TEXT_MAX];

    /* Where the leader can be probed, once it has welcomed us. */
    uint64_t leader;
    struct addr leader_listener;
    struct probe *probe;
};

struct queued {
    struct list link;
    struct member_event event;
    struct failure failure;
    char *reason;
};

static void client_event(struct rdzv_client *c, struct member_event *ev);

/* ---- finding the leader ---- */

static void say_waiting(struct rdzv_client *c, const char *text) {
    if (strcmp(text, c->waiting) == 0)
        return;
    (void)snprintf(c->waiting, sizeof c->waiting, "%s", text);
    if (c->config.ops.waiting_for_leader == NULL)
        return;
    bool busy = c->busy;
    c->busy = true;
    c->config.ops.waiting_for_leader(c->config.arg, c->waiting);
    c->busy = busy;
}

/* An attempt, or the connection, is over. The member says whether to try on. */
static void disconnected(struct rdzv_client *c) {
    conn_free(TAKE_PTR(c->conn));
    c->welcomed = false;
    loop_timer_set(c->retry, TIME_NEVER);
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_DISCONNECT});
}

static void try_next_addr(struct rdzv_client *c);

/* This address did not answer as a leader. */
static void attempt_failed(struct rdzv_client *c, const char *why) {
    char at[ADDR_TEXT_MAX], text[WAITING_TEXT_MAX];
    conn_free(TAKE_PTR(c->conn));
    addr_to_text(&c->addrs[c->next_addr - 1], at);
    (void)snprintf(text, sizeof text, "no leader at %s: %.600s", at, why);
    log_debug("rendezvous: %s", text);
    if (c->next_addr < c->n_addrs) {
        try_next_addr(c);
        return;
    }
    say_waiting(c, text);
    c->backoff_ns = c->backoff_ns == 0 ? BACKOFF_FIRST_NS : MIN2(c->backoff_ns * 2, BACKOFF_MAX_NS);
    disconnected(c);
}

static void refused(struct rdzv_client *c, const char *reason) {
    conn_free(TAKE_PTR(c->conn));
    loop_timer_set(c->retry, TIME_NEVER);
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_REFUSED, .reason = reason});
}

static void on_hello(struct rdzv_client *c, const struct wire_hello *hello) {
    char text[RDZV_REASON_MAX], at[ADDR_TEXT_MAX];
    addr_to_text(&c->addrs[c->next_addr - 1], at);
    if (hello->version != WIRE_VERSION) {
        (void)snprintf(text, sizeof text,
                       "the agent at %s speaks protocol version %" PRIu32
                       ", this muster version %d; use the same muster on all nodes",
                       at, hello->version, WIRE_VERSION);
        refused(c, text);
    } else if (strcmp(hello->run_id, c->config.run_id) != 0) {
        (void)snprintf(
            text, sizeof text,
            "the agent at %s belongs to the run '%s', this node to the run '%s'; give all "
            "nodes of a job the same --rdzv-id, and each job an endpoint of its own",
            at, hello->run_id, c->config.run_id);
        refused(c, text);
    }
}

static void on_welcome(struct rdzv_client *c, const struct wire_welcome *w) {
    struct addr at;
    if (conn_peer_addr(c->conn, &at) == 0) {
        addr_set_port(&at, w->listener_port);
        c->leader_listener = at;
    }
    c->leader = w->leader;
    c->welcomed = true;
    c->backoff_ns = 0;
    c->waiting[0] = '\0';
    loop_timer_set(c->retry, TIME_NEVER);
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_WELCOME,
                                           .leader = w->leader,
                                           .epoch = w->epoch,
                                           .heartbeat_ns = w->heartbeat_ns,
                                           .margin_ns = w->margin_ns});
}

static void on_refused(struct rdzv_client *c, const struct wire_refused *r) {
    if (r->final)
        refused(c, r->reason);
    else
        attempt_failed(c, r->reason);
}

static void on_message(void *arg, struct conn *conn, const struct wire_message *m) {
    (void)conn;
    struct rdzv_client *c = arg;
    struct member_event ev = {0};
    switch (m->kind) {
    case WIRE_HELLO: on_hello(c, &m->hello); return;
    case WIRE_REFUSED:
        if (!c->welcomed) {
            on_refused(c, &m->refused);
            return;
        }
        break;
    case WIRE_WELCOME:
        if (!c->welcomed) {
            on_welcome(c, &m->welcome);
            return;
        }
        break;
    case WIRE_DESIRED:
        ev.kind = MEMBER_EVENT_DESIRED;
        ev.desired = &m->desired;
        break;
    case WIRE_LEASE:
        ev.kind = MEMBER_EVENT_LEASE;
        ev.lease = m->lease;
        break;
    case WIRE_STATUS:
        if (c->welcomed && c->config.ops.status != NULL) {
            c->busy = true;
            c->config.ops.status(c->config.arg, &m->status);
            c->busy = false;
            client_event(c, &(struct member_event){.kind = MEMBER_EVENT_TIME});
            return;
        }
        break;
    case WIRE_JOIN:
    case WIRE_REPORT:
    case WIRE_RENEW:
    case WIRE_LEAVE:
    case WIRE_NAMED:
    case WIRE_MEMBERS:
    case WIRE_ECHO:
    case WIRE_REDIRECT:
    case WIRE_COMMAND:
    case WIRE_ANSWER:
    case WIRE_OVERVIEW:
    case WIRE_NODES:
    case WIRE_KIND_COUNT: break;
    }
    if (ev.kind != 0 && c->welcomed) {
        client_event(c, &ev);
        return;
    }
    log_debug("rendezvous: the leader said %s, which has no place here; disconnected",
              wire_kind_name(m->kind));
    if (c->welcomed)
        disconnected(c);
    else
        attempt_failed(c, "what answers there does not keep to the protocol");
}

static void on_closed(void *arg, struct conn *conn, int code, const char *text) {
    (void)conn;
    struct rdzv_client *c = arg;
    if (c->welcomed) {
        log_debug("rendezvous: the connection to the leader ended: %s", text);
        disconnected(c);
    } else if (code == -ECONNREFUSED) {
        attempt_failed(c, "nothing listens there yet");
    } else if (code == -EPROTO) {
        attempt_failed(c, "what answers there is not muster");
    } else {
        attempt_failed(c, text);
    }
}

static const struct conn_ops conn_callbacks = {.on_message = on_message, .on_closed = on_closed};

static void send_join(struct rdzv_client *c) {
    struct wire_message m = {
        .kind = WIRE_JOIN,
        .join = {.version = WIRE_VERSION,
                 .info = c->config.info,
                 .min_nodes = c->config.min_nodes,
                 .max_nodes = c->config.max_nodes,
                 .report = *member_report(c->member)},
    };
    memcpy(m.join.run_id, c->config.run_id, sizeof m.join.run_id);
    conn_send(c->conn, &m);
}

static void try_next_addr(struct rdzv_client *c) {
    const struct addr *to = &c->addrs[c->next_addr++];
    int r = conn_connect(c->loop, to, &conn_callbacks, c, &c->conn);
    if (r < 0) {
        attempt_failed(c, strerror(-r));
        return;
    }
    c->welcomed = false;
    loop_timer_set(c->retry, clock_now_ns() + c->config.connect_timeout_ns);
    send_join(c);
}

static void begin_round(struct rdzv_client *c, size_t n) {
    c->n_addrs = n;
    c->next_addr = 0;
    try_next_addr(c);
}

static void unresolved(struct rdzv_client *c, const char *text) {
    say_waiting(c, text);
    c->backoff_ns = c->backoff_ns == 0 ? BACKOFF_FIRST_NS : MIN2(c->backoff_ns * 2, BACKOFF_MAX_NS);
    disconnected(c);
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct rdzv_client *c = arg;
    c->resolve = NULL;
    if (code < 0) {
        unresolved(c, text);
        return;
    }
    memcpy(c->addrs, addrs, n * sizeof *addrs);
    begin_round(c, n);
}

static void connect_now(struct rdzv_client *c) {
    const struct rdzv_client_config *config = &c->config;
    size_t n = 1;
    int r = 0;
    if (config->has_addr)
        c->addrs[0] = config->addr;
    else
        r = resolve_now(config->host, config->port, c->addrs, &n);
    if (r == 0) {
        begin_round(c, n);
        return;
    }
    if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(c->loop, config->host, config->port, config->resolve_timeout_ns,
                          on_resolved, c, &c->resolve);
    if (r < 0) {
        char text[WAITING_TEXT_MAX];
        (void)snprintf(text, sizeof text, "cannot look up the leader's host '%s': %s", config->host,
                       strerror(-r));
        unresolved(c, text);
    }
}

/* Either a round is due, or the attempt under way has had its time. */
static void on_retry(void *arg) {
    struct rdzv_client *c = arg;
    if (c->conn != NULL)
        attempt_failed(c, "no answer");
    else
        connect_now(c);
}

/* From an effect: never connects from inside, so that a connection that fails at once does not
 * recurse. */
static void want_connect(struct rdzv_client *c) {
    if (c->conn != NULL && c->welcomed) { /* the member gave it up: nothing comes over it */
        conn_free(TAKE_PTR(c->conn));
        c->welcomed = false;
    }
    if (c->conn == NULL && c->resolve == NULL)
        loop_timer_set(c->retry, clock_now_ns() + c->backoff_ns);
}

/* ---- probing the leader ---- */

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct rdzv_client *c = arg;
    c->probe = NULL;
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = answer->result});
}

static void probe_leader(struct rdzv_client *c) {
    if (c->probe != NULL)
        return;
    if (c->leader != 0 && probe_start(c->loop, &c->leader_listener, c->leader,
                                      c->config.probe_timeout_ns, on_probed, c, &c->probe) == 0)
        return;
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_PROBE, .probe = PROBE_UNKNOWN});
}

/* ---- effects ---- */

static void send_to_leader(struct rdzv_client *c, const struct wire_message *m) {
    if (c->conn != NULL && c->welcomed)
        conn_send(c->conn, m);
}

static void send_report(struct rdzv_client *c) {
    struct wire_message m = {.kind = WIRE_REPORT, .report = *member_report(c->member)};
    send_to_leader(c, &m);
}

static void leave(struct rdzv_client *c) {
    send_to_leader(c, &(struct wire_message){.kind = WIRE_LEAVE});
    conn_finish(TAKE_PTR(c->conn));
    c->welcomed = false;
}

static void end(struct rdzv_client *c) {
    c->ended = true;
    loop_timer_set(c->retry, TIME_NEVER);
    resolve_free(TAKE_PTR(c->resolve));
    probe_free(TAKE_PTR(c->probe));
    c->config.ops.end(c->config.arg, member_end(c->member));
}

static void obey(struct rdzv_client *c, const struct member_effect *e) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    void *arg = c->config.arg;
    switch (e->kind) {
    case MEMBER_EFFECT_CONNECT: want_connect(c); break;
    case MEMBER_EFFECT_REPORT: send_report(c); break;
    case MEMBER_EFFECT_RENEW:
        send_to_leader(c, &(struct wire_message){.kind = WIRE_RENEW, .renew = e->renew});
        break;
    case MEMBER_EFFECT_PROBE: probe_leader(c); break;
    case MEMBER_EFFECT_PREPARE: ops->prepare(arg, e->generation, member_form(c->member)); break;
    case MEMBER_EFFECT_START: ops->start(arg, e->generation); break;
    case MEMBER_EFFECT_STOP:
        ops->stop(arg, e->grace_ns, e->reason, member_stop_cause(c->member));
        break;
    case MEMBER_EFFECT_FENCE: ops->fence(arg); break;
    case MEMBER_EFFECT_LEASE_END: ops->lease_end(arg, e->lease_end_ns); break;
    case MEMBER_EFFECT_SEND_LEAVE: leave(c); break;
    case MEMBER_EFFECT_END: end(c); break;
    case MEMBER_EFFECT_HANG_UP:
    case MEMBER_EFFECT_ECHO:
    case MEMBER_EFFECT_ARBITER:
    case MEMBER_EFFECT_PROBE_PEER:
    case MEMBER_EFFECT_LEAD:
    case MEMBER_EFFECT_CALLERS: break;
    case MEMBER_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static void run_step(struct rdzv_client *c, struct member_event *ev) {
    ev->now_ns = clock_now_ns();
    member_step(c->member, ev, &c->update);
    for (size_t i = 0; i < c->update.n_effects && !c->dead; i++)
        obey(c, &c->update.effects[i]);
}

static void queued_free(struct queued *q) {
    list_remove(&q->link);
    free(q->reason);
    free(q);
}

static void enqueue(struct rdzv_client *c, const struct member_event *ev) {
    assert(ev->desired == NULL);
    struct queued *q = xcalloc(1, sizeof *q);
    q->event = *ev;
    if (ev->failure != NULL) {
        q->failure = *ev->failure;
        q->event.failure = &q->failure;
    }
    if (ev->reason != NULL)
        q->event.reason = q->reason = xstrdup(ev->reason);
    list_append(&c->queue, &q->link);
}

static void destroy(struct rdzv_client *c) {
    struct queued *q;
    while ((q = LIST_FIRST(struct queued, &c->queue, link)) != NULL)
        queued_free(q);
    conn_finish(c->conn);
    resolve_free(c->resolve);
    probe_free(c->probe);
    loop_timer_free(c->retry);
    loop_timer_free(c->timer);
    member_update_fini(&c->update);
    member_free(c->member);
    free(c);
}

static void client_event(struct rdzv_client *c, struct member_event *ev) {
    if (c->busy) {
        enqueue(c, ev);
        return;
    }
    c->busy = true;
    if (!c->dead && !c->ended)
        run_step(c, ev);
    struct queued *q;
    while (!c->dead && (q = LIST_FIRST(struct queued, &c->queue, link)) != NULL) {
        if (!c->ended)
            run_step(c, &q->event);
        queued_free(q);
    }
    c->busy = false;
    if (c->dead)
        destroy(c);
    else
        loop_timer_set(c->timer, c->ended ? TIME_NEVER : c->update.deadline_ns);
}

void rdzv_client_event(struct rdzv_client *c, const struct member_event *event) {
    struct member_event ev = *event;
    client_event(c, &ev);
}

static void on_timer(void *arg) {
    client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

/* ---- life ---- */

int rdzv_client_new(struct loop *loop, const struct member_config *member_config,
                    const struct rdzv_client_config *config, struct rdzv_client **ret) {
    if (config->info.incarnation != member_config->incarnation)
        return -EINVAL;
    struct rdzv_client *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->config = *config;
    c->config.connect_timeout_ns =
        config->connect_timeout_ns > 0 ? config->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    c->config.resolve_timeout_ns =
        config->resolve_timeout_ns > 0 ? config->resolve_timeout_ns : RESOLVE_TIMEOUT_NS;
    c->config.probe_timeout_ns =
        config->probe_timeout_ns > 0 ? config->probe_timeout_ns : PROBE_TIMEOUT_NS;
    list_init(&c->queue);
    uint64_t now = clock_now_ns();
    int r = member_new(member_config, now, &c->member);
    if (r == 0)
        r = loop_timer_new(loop, on_timer, c, &c->timer);
    if (r == 0)
        r = loop_timer_new(loop, on_retry, c, &c->retry);
    if (r < 0) {
        destroy(c);
        return r;
    }
    loop_timer_set(c->timer, now);
    loop_timer_set(c->retry, now);
    *ret = c;
    return 0;
}

void rdzv_client_free(struct rdzv_client *c) {
    if (c == NULL)
        return;
    if (c->busy)
        c->dead = true;
    else
        destroy(c);
}

const struct member *rdzv_client_member(const struct rdzv_client *c) { return c->member; }
