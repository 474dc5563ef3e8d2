#include "rendezvous/server/server_io.h"

#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/operate/leader_file_io.h"
#include "rendezvous/server/server_priv.h"

/* The most bytes that a member of a handover takes on the wire. */
#define MEMBER_BYTES_MAX 192

/* ---- NAMED and MEMBERS ---- */

/* On another machine, loopback would be that machine itself. "" means the leader's machine. */
static void hide_loopback(char *literal) {
    struct addr at;
    if (addr_from_literal(literal, 1, &at) == 0 && addr_is_loopback(&at))
        literal[0] = '\0';
}

static void make_named(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_NAMED, .named = *group_successors(s->group)};
    for (uint32_t i = 0; i < m.named.n; i++)
        hide_loopback(m.named.list[i].addr);
    wire_encode(&m, &s->named);
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
            hide_loopback(m.members.list[i].addr);
        }
        server_send(n, &m);
        m.members.first += m.members.n;
    } while (m.members.first < e.n_members);
}

/* Sends the successors to the node, and, if it is one of them, the handover. */
static void server_send_successors(struct rdzv_server *s, struct server_node *n) {
    if (n == NULL || n->conn == NULL || group_successors(s->group)->epoch == 0)
        return; /* without an arbiter there are no successors */
    if (s->named.len == 0)
        make_named(s);
    server_send_text(n, strbuf_text(&s->named), s->named.len);
    if (group_is_successor(s->group, n->incarnation))
        send_handover(s, n);
}

/* ---- deposed ---- */

/* Redirects all nodes to the leader, as far as it is known, and ends their connections. */
static void server_redirect_all(struct rdzv_server *s, uint32_t epoch) {
    struct wire_message m = {.kind = WIRE_REDIRECT, .redirect = {.epoch = epoch}};
    if (s->record.epoch >= epoch && !s->record.closed && !s->record.vacant) {
        m.redirect.epoch = s->record.epoch;
        m.redirect.leader = s->record.leader;
        hide_loopback(m.redirect.leader.addr);
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&m, &text);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn == NULL)
            continue;
        list_remove(&n->lease_pending_link);
        conn_send_text(n->conn, strbuf_text(&text), text.len);
        conn_finish(TAKE_PTR(n->conn));
    }
}

/* ---- operators ---- */

static void server_answer(struct server_asker *asker, bool ok, const char *text) {
    if (asker == NULL || asker->answered)
        return;
    asker->answered = true;
    conn_answer(asker->conn, ok, text);
}

void rdzv_server_command(struct rdzv_server *s, const struct command *command, struct conn *to) {
    struct server_asker asker = {.conn = to};
    if (s->deposed) {
        server_answer(&asker, false, "this agent no longer leads; try again");
        return;
    }
    assert(command->kind != COMMAND_STATUS); /* rdzv_server_status() */
    assert(!s->pump.busy);                   /* it is called from the loop */
    s->asker = &asker;
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_COMMAND, .command = command});
    server_answer(&asker, false, "the leader did not accept the command; try again");
}

void server_stop_probe(struct server_node *n) {
    list_remove(&n->probe_link);
    if (n->probe != NULL) {
        probe_free(TAKE_PTR(n->probe));
        n->server->n_probes--;
    }
}

/* Whoever passes the probe on to this agent's own listener, which has the key too, proves nothing.
 */
static enum probe_result result_of(const struct rdzv_server *s, const struct probe_answer *answer) {
    bool came_back =
        answer->incarnation == s->group_config.leader_incarnation && !answer->within_host;
    return answer->result == PROBE_GONE && came_back ? PROBE_UNKNOWN : answer->result;
}

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct server_node *n = arg;
    struct rdzv_server *s = n->server;
    struct group_event ev = {
        .kind = GROUP_EVENT_PROBE, .node = n->incarnation, .probe = result_of(s, answer)};
    n->probe = NULL;
    s->n_probes--;
    server_start_probes(s);
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
        bool held = pump_hold(&s->pump);
        server_notice(s, line);
        pump_release(&s->pump, held);
    }
    server_event(s, &ev);
}

/* Only queues the answer, never calls from inside. */
static void answer_later(struct rdzv_server *s, uint64_t incarnation, enum probe_result result) {
    bool held = pump_hold(&s->pump);
    server_event(
        s, &(struct group_event){.kind = GROUP_EVENT_PROBE, .node = incarnation, .probe = result});
    pump_release(&s->pump, held);
    loop_timer_set(s->pump.timer, clock_now_ns());
}

void server_start_probes(struct rdzv_server *s) {
    while (s->n_probes < RDZV_PROBES_MAX && !list_empty(&s->probe_queue)) {
        struct server_node *n = LIST_FIRST(struct server_node, &s->probe_queue, probe_link);
        list_remove(&n->probe_link);
        int r = probe_start(s->loop, NULL, &n->listener, s->config.auth, n->incarnation,
                            s->config.probe_timeout_ns, on_probed, n, &n->probe);
        if (r == 0) {
            s->n_probes++;
            continue;
        }
        /* Out of descriptors: the group asks again after its retry interval. */
        answer_later(s, n->incarnation, PROBE_UNKNOWN);
    }
}

/* reach: check whether the node's listener can be reached at all, and report if not. */
static void server_probe(struct rdzv_server *s, uint64_t incarnation, bool reach) {
    struct server_node *n = server_find(s, incarnation);
    if (n == NULL)
        n = server_find_inherited(s, incarnation);
    if (n == NULL || n->listener.len == 0) {
        answer_later(s, incarnation, PROBE_UNKNOWN);
        return;
    }
    n->reaching = reach;
    if (n->probe == NULL && !list_linked(&n->probe_link))
        list_append(&s->probe_queue, &n->probe_link);
    server_start_probes(s);
}

#define PROBE_TIMEOUT_NS (1 * NS_PER_S)
/* STATUS is only for people: it is not sent to a node that reads slowly. */
#define STATUS_UNSENT_MAX ((size_t)64 * 1024)

void server_notice(struct rdzv_server *s, const char *line) {
    if (s->config.ops.notice != NULL)
        s->config.ops.notice(s->config.arg, line);
}

/* ---- the workers' store ---- */

static struct addr loopback_addr(void) {
    struct addr a = {0};
    int r = addr_from_literal("127.0.0.1", 0, &a);
    assert(r == 0);
    return a;
}

/* Loopback if all members came over it; else an address that other machines can reach: the user's,
 * or the one over which a member has reached us, preferably a member on another machine. */
static struct addr choose_store_addr(const struct rdzv_server *s) {
    size_t n = group_members(s->group, NULL, 0);
    uint64_t *members = xcalloc(n + 1, sizeof *members);
    n = group_members(s->group, members, n);
    const struct server_node *elsewhere = NULL;
    for (size_t i = 0; i < n && (elsewhere == NULL || elsewhere->here); i++) {
        const struct server_node *m = server_find(s, members[i]);
        if (m != NULL && !m->loopback && m->local.len > 0 && (elsewhere == NULL || !m->here))
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
    server_event(s, &ev);
}

static void close_store(struct rdzv_server *s) {
    if (!s->store_open)
        return;
    s->store_open = false;
    s->config.ops.store_close(s->config.arg, s->store_generation);
}

/* ---- what the leader's authority depends on ---- */

static void on_arbiter(void *arg, const struct arbiter_answer *answer) {
    struct rdzv_server *s = arg;
    if ((answer->result == ARBITER_OK || answer->result == ARBITER_LOST) &&
        answer->record.epoch >= s->record.epoch)
        s->record = answer->record;
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_ARBITER, .answer = answer});
}

static void ask_arbiter(struct rdzv_server *s, const struct arbiter_request *request) {
    struct arbiter_request r = *request;
    r.leader = s->group_config.self;
    arbiter_ask(s->config.arbiter, &r, on_arbiter, s);
}

static void touch(struct rdzv_server *s, enum outcome outcome) {
    uint64_t began_ns = clock_now_ns();
    bool touched =
        s->config.leader_file != NULL && leader_file_touch(s->config.leader_file, outcome) == 0;
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_TOUCHED,
                                          .touched_ns = touched ? began_ns : 0});
}

static void depose(struct rdzv_server *s, uint32_t epoch) {
    s->deposed = true;
    server_redirect_all(s, epoch);
    if (s->config.ops.deposed != NULL)
        s->config.ops.deposed(s->config.arg, epoch);
}

/* ---- effects ---- */

static void send_status(struct rdzv_server *s) {
    struct wire_message m = {.kind = WIRE_STATUS};
    group_status(s->group, clock_now_ns(), &m.status);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&m, &text);
    LIST_FOR_EACH(struct server_node, n, &s->all, link) {
        if (n->conn != NULL && conn_unsent(n->conn) < STATUS_UNSENT_MAX)
            server_send_text(n, strbuf_text(&text), text.len);
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
    if (s->last_desired_text.len == 0 ||
        memcmp(&m.desired, &s->last_desired, sizeof m.desired) != 0) {
        strbuf_clear(&s->last_desired_text);
        wire_encode(&m, &s->last_desired_text);
        s->last_desired = m.desired;
    }
    server_send_text(n, strbuf_text(&s->last_desired_text), s->last_desired_text.len);
}

/* The message has the desired state at this time, which can be newer than when it was queued. */
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

static void report_to(const struct rdzv_server *s, void (*fn)(void *arg)) {
    if (fn != NULL)
        fn(s->config.arg);
}

static void obey(struct rdzv_server *s, const struct group_effect *e) {
    struct server_node *n = server_find(s, e->node);
    switch (e->kind) {
    case GROUP_EFFECT_DESIRED: send_desired_soon(s, n); break;
    case GROUP_EFFECT_LEASE: server_send_lease(n, &e->lease); break;
    case GROUP_EFFECT_PROBE: server_probe(s, e->node, false); break;
    case GROUP_EFFECT_REACH: server_probe(s, e->node, true); break;
    case GROUP_EFFECT_REFUSE:
        if (n != NULL)
            server_refuse_node(n, e->reason, e->for_now);
        break;
    case GROUP_EFFECT_FORGET:
        if (n != NULL)
            server_drop_node(n);
        break;
    case GROUP_EFFECT_STORE_OPEN: open_store(s, e->generation); break;
    case GROUP_EFFECT_STORE_CLOSE: close_store(s); break;
    case GROUP_EFFECT_STATUS: send_status(s); break;
    case GROUP_EFFECT_NOTICE: server_notice(s, e->reason); break;
    case GROUP_EFFECT_DONE: s->config.ops.done(s->config.arg, group_outcome(s->group)); break;
    case GROUP_EFFECT_NAME: server_send_successors(s, n); break;
    case GROUP_EFFECT_ARBITER: ask_arbiter(s, e->request); break;
    case GROUP_EFFECT_TOUCH: touch(s, e->outcome); break;
    case GROUP_EFFECT_DEPOSED: depose(s, e->epoch); break;
    case GROUP_EFFECT_ANSWER: server_answer(s->asker, e->ok, e->reason); break;
    case GROUP_EFFECT_TIMELINE:
        if (s->config.ops.timeline != NULL)
            s->config.ops.timeline(s->config.arg, e->entry);
        break;
    case GROUP_EFFECT_STARTED: report_to(s, s->config.ops.started); break;
    case GROUP_EFFECT_STOPPING: report_to(s, s->config.ops.stopping); break;
    case GROUP_EFFECT_RELEASED: report_to(s, s->config.ops.released); break;
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
        server_finish_join(s, ev->node);
    return s->deposed ? TIME_NEVER : s->update.deadline_ns;
}

static void destroy(void *arg) {
    struct rdzv_server *s = arg;
    if (s->config.arbiter != NULL)
        arbiter_cancel(s->config.arbiter, s);
    close_store(s);
    while (!list_empty(&s->desired_pending) && !s->deposed)
        send_desired(s, CONTAINER_OF(s->desired_pending.next, struct server_node, desired_link));
    server_free_nodes(s);
    server_whose_fini(s);
    server_overviews_fini(s);
    server_stacks_fini(s);
    pump_fini(&s->pump);
    loop_timer_free(s->lease_pending_timer);
    loop_timer_free(s->desired_timer);
    group_update_fini(&s->update);
    group_free(s->group);
    strbuf_fini(&s->named);
    strbuf_fini(&s->last_desired_text);
    free(s);
}

static const struct pump_ops pump_ops = {
    .step = step,
    .destroy = destroy,
    .event_size = sizeof(struct group_event),
    .pointers = {{offsetof(struct group_event, store_host), PUMP_TEXT},
                 {offsetof(struct group_event, reason), PUMP_TEXT},
                 {offsetof(struct group_event, failure), sizeof(struct failure)}},
};

/* What callbacks and effects cause is queued: STORE, STOP, PROBE, TOUCHED, HIGHER_EPOCH, RESIGN,
 * HANG. */
void server_event(struct rdzv_server *s, struct group_event *ev) {
    assert(!s->pump.busy || (ev->info == NULL && ev->report == NULL && ev->answer == NULL &&
                             ev->command == NULL && ev->kind != GROUP_EVENT_MESSAGE));
    pump_event(&s->pump, ev);
}

/* Messages of the last step are sent before the next time event: the group may wait for that. */
static void on_timer(void *arg) {
    struct rdzv_server *s = arg;
    if (list_empty(&s->desired_pending))
        server_event(s, &(struct group_event){.kind = GROUP_EVENT_TIME});
    else
        loop_timer_set(s->pump.timer, clock_now_ns());
}

static void on_lease_pending(void *arg) { server_send_pending_leases(arg); }

/* ---- creation and end ---- */

int rdzv_server_new(struct loop *loop, const struct group_config *group_config,
                    const struct rdzv_server_config *config, struct rdzv_server **ret) {
    struct rdzv_server *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->config = *config;
    s->group_config = *group_config;
    s->group_config.handover = NULL; /* the group has copied it */
    s->nodes.seed = random_u64();
    if (s->config.probe_timeout_ns == 0)
        s->config.probe_timeout_ns = PROBE_TIMEOUT_NS;
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
    server_overviews_init(s);
    server_stacks_init(s);
    server_whose_init(s);
    loop_timer_set(s->pump.timer, now);
    *ret = s;
    return 0;
}

void rdzv_server_free(struct rdzv_server *s) {
    if (s != NULL)
        pump_free(&s->pump);
}

void rdzv_server_stop_job(struct rdzv_server *s, const char *reason, bool halted) {
    server_event(
        s, &(struct group_event){.kind = GROUP_EVENT_STOP, .reason = reason, .halted = halted});
}

void rdzv_server_expect(struct rdzv_server *s, uint32_t n_nodes) {
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_EXPECT, .n_nodes = n_nodes});
}

void rdzv_server_hang(struct rdzv_server *s, struct generation generation,
                      const struct failure *failure, uint64_t quiet_ns, const char *evidence,
                      bool only_reported) {
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_HANG,
                                          .generation = generation,
                                          .failure = failure,
                                          .quiet_ns = quiet_ns,
                                          .evidence = evidence,
                                          .only_reported = only_reported});
}

void rdzv_server_quiet(struct rdzv_server *s, uint64_t quiet_ns) {
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_QUIET, .quiet_ns = quiet_ns});
}

void rdzv_server_resign(struct rdzv_server *s) {
    server_event(s, &(struct group_event){.kind = GROUP_EVENT_RESIGN});
}

const struct group *rdzv_server_group(const struct rdzv_server *s) { return s->group; }
