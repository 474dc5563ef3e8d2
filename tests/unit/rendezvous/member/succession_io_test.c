/* What a leader hands over, and what an agent does with it, over real sockets on loopback, in one process. The arbiter
 * is a record in memory; the launchers are played by the test. Who succeeds whom: tests/sim, e2e/test_succession.py. */
#include "base/text/log.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define NODES_MAX 4
#define RUN_ID "run"

static struct {
    struct loop *loop;
    struct arbiter arbiter;
    struct arbiter_record record;
    struct agent agents[NODES_MAX];
    unsigned n_agents, stores, reads;
    uint64_t lease_ns, beat_ns;
} w;

static void arbiter_decide(struct arbiter_answer *a) {
    struct arbiter_record *r = &w.record;
    const struct arbiter_request *q = &a->request;
    bool ours = r->epoch > 0 && r->leader.incarnation == q->leader.incarnation;
    a->result = ARBITER_OK;
    switch (q->kind) {
    case ARBITER_READ: w.reads++; break;
    case ARBITER_BEAT: r->beat += ours && r->epoch == q->epoch; break;
    case ARBITER_CLAIM:
        if (q->epoch == r->epoch + 1)
            *r = (struct arbiter_record){.epoch = q->epoch, .leader = q->leader, .idle = q->idle};
        else if (!(ours && q->epoch == r->epoch))
            a->result = ARBITER_LOST;
        break;
    case ARBITER_CLOSE:
    case ARBITER_VACATE:
    case ARBITER_KIND_COUNT: cr_assert_fail("no request");
    }
    a->record = *r;
}

static void fake_work(struct arbiter *a) {
    LIST_FOR_EACH(struct arbiter_asked, q, &a->waiting, link) {
        arbiter_decide(&q->answer);
        arbiter_done(a, q, q->answer.result, "");
    }
}

static void fake_free(struct arbiter *a) { (void)a; }

static const struct arbiter_ops fake_ops = {.work = fake_work, .free = fake_free};

static void on_start(void *arg, struct generation g, uint32_t reachability) {
    struct agent *a = arg;
    for (unsigned i = 0; i < w.n_agents; i++)
        cr_assert(!w.agents[i].running || generation_compare(w.agents[i].started, g) == 0, "two groups at once");
    agent_starts(a, g);
}

static int on_store_open(void *arg, struct generation g, struct addr *at, struct err *err) {
    w.stores++;
    addr_set_port(at, 4711);
    return 0;
}

static void on_store_close(void *arg, struct generation g) { w.stores--; }

static void on_incident(void *arg, const char *line) {}

static void on_done(void *arg, enum outcome outcome) {}

static void on_lead(void *arg, const struct group_config *lead) {
    struct agent *a = arg;
    a->lead = *lead;
    if (lead->handover != NULL)
        handover_copy(&a->lead_handover, lead->handover);
    struct group_config g = *lead;
    g.leader_incarnation = a->incarnation;
    g.rdzv.max_nodes = NODES_MAX;
    g.rdzv.last_call_ns = 100 * NS_PER_MS;
    g.rdzv.lease_ns = w.lease_ns;
    g.rdzv.heartbeat_ns = w.beat_ns;
    struct rdzv_server_config config = {
        .listener_port = a->self.port,
        .arbiter = &w.arbiter,
        .ops = {.store_open = on_store_open, .store_close = on_store_close, .notice = on_incident, .done = on_done},
        .arg = a,
    };
    cr_assert_eq(rdzv_server_new(w.loop, &g, &config, &a->server), 0);
    rdzv_listener_serve(a->listener, a->server);
}

static void on_join_policy(void *arg, enum member_join_policy join_policy, const struct rdzv_peer *peer,
                           uint32_t epoch) {
    struct agent *a = arg;
    rdzv_listener_join_policy(a->listener, join_policy, peer, epoch);
}

#define wait_until(condition) rig_loop_until(w.loop, condition)

static void begin(void) {
    memset(&w, 0, sizeof w);
    cr_assert_eq(loop_new(&w.loop), 0);
    arbiter_init(&w.arbiter, &fake_ops, w.loop, 0);
    w.lease_ns = 3600 * NS_PER_S; /* the machine may stand still */
    w.beat_ns = 50 * NS_PER_MS;
}

static void kill_agent(struct agent *a) {
    rdzv_client_free(TAKE_PTR(a->client));
    if (a->listener != NULL)
        rdzv_listener_serve(a->listener, NULL);
    rdzv_server_free(TAKE_PTR(a->server));
    rdzv_listener_free(TAKE_PTR(a->listener));
    handover_fini(&a->lead_handover);
}

static void finish(void) {
    for (unsigned i = 0; i < w.n_agents; i++)
        kill_agent(&w.agents[i]);
    cr_assert_eq(w.stores, 0, "every store that was opened was closed");
    arbiter_free(&w.arbiter);
    loop_free(w.loop);
}

static void join(struct agent *a) {
    struct member_config m;
    member_config_default(&m);
    m.incarnation = m.seed = a->incarnation;
    m.has_arbiter = true;
    m.rdzv.heartbeat_ns = 50 * NS_PER_MS;
    m.rdzv.lease_ns = w.lease_ns;
    m.rdzv.max_nodes = NODES_MAX;
    m.self = a->self;
    m.probe_retry_ns = 20 * NS_PER_MS;
    struct rdzv_client_config config = {
        .run_id = RUN_ID,
        .info = {.incarnation = a->incarnation,
                 .listener_port = a->self.port,
                 .nproc = 1,
                 .node_rank = -1,
                 .pid = 100,
                 .role = "default"},
        .arbiter = &w.arbiter,
        .own_listener = a->own,
        .ops = {.prepare = on_prepare,
                .start = on_start,
                .stop = on_stop,
                .fence = on_fence,
                .lease_end = on_lease_end,
                .lead = on_lead,
                .join_policy = on_join_policy,
                .end = on_end},
        .arg = a,
    };
    (void)snprintf(config.info.host, sizeof config.info.host, "node%u", (unsigned)a->incarnation);
    cr_assert_eq(rdzv_client_new(w.loop, &m, &config, &a->client), 0);
}

static struct agent *add_agent(void) {
    struct agent *a = &w.agents[w.n_agents++];
    a->incarnation = w.n_agents;
    int fd = listen_at("127.0.0.1", &a->own);
    a->self = (struct rdzv_peer){.incarnation = a->incarnation, .port = addr_port(&a->own)};
    (void)strcpy(a->self.addr, "127.0.0.1");
    a->listener =
        rdzv_listener_new(w.loop, &(struct rdzv_listener_config){.incarnation = a->incarnation, .run_id = RUN_ID});
    rdzv_listener_add(a->listener, fd);
    join(a);
    return a;
}

static struct {
    struct conn *conn;
    unsigned leases;
} node;

static void node_on_message(void *arg, struct conn *c, const struct wire_message *m) {
    node.leases += m->kind == WIRE_LEASE;
}

static void node_on_closed(void *arg, struct conn *c, int code, const char *text) {
    cr_assert_fail("the leader ended the connection: %s", text);
}

Test(succession_io, a_leader_that_hears_of_a_later_epoch_asks_once, .init = begin, .fini = finish) {
    static const struct conn_ops ops = {.on_message = node_on_message, .on_closed = node_on_closed};
    node = (__typeof__(node)){0};
    w.beat_ns = 3600 * NS_PER_S; /* who waits for the answer to a beat doesn't ask */
    (void)add_agent();
    wait_until(w.agents[0].running);
    w.reads = 0;
    cr_assert_eq(conn_connect(w.loop, NULL, &w.agents[0].own, NULL, &ops, NULL, &node.conn), 0);
    struct wire_message join = join_of(77);
    join.join.report.epoch = 9;
    conn_send(node.conn, &join);
    wait_until(w.reads >= 1);
    struct wire_message again = {.kind = WIRE_REPORT, .report = {.state = NODE_JOINED, .epoch = 9}};
    conn_send(node.conn, &again);
    conn_send(node.conn, &(struct wire_message){.kind = WIRE_RENEW, .renew = {.clock_ns = 1}});
    wait_until(node.leases >= 1);
    cr_assert_eq(w.reads, 1, "of that epoch it knows");
    again.report.epoch = 10;
    conn_send(node.conn, &again);
    wait_until(w.reads >= 2);
    conn_free(node.conn);
}

static struct {
    struct listener *listener;
    struct conn *conn;
    unsigned joins, renews;
    struct wire_message welcome; /* the answer to each JOIN; kind 0: none */
    bool ended;
} played;

static void played_on_message(void *arg, struct conn *c, const struct wire_message *m) {
    played.joins += m->kind == WIRE_JOIN;
    played.renews += m->kind == WIRE_RENEW;
    if (m->kind == WIRE_JOIN && played.welcome.kind != 0)
        conn_send(c, &played.welcome);
}

static void played_on_closed(void *arg, struct conn *c, int code, const char *text) { played.ended = true; }

static void played_on_accept(void *arg, int fd, const struct addr *peer) {
    static const struct conn_ops ops = {.on_message = played_on_message, .on_closed = played_on_closed};
    struct conn *c;
    c = conn_new(w.loop, fd, NULL, &ops, NULL);
    conn_send(c, &(struct wire_message){.kind = WIRE_HELLO,
                                        .hello = {.version = WIRE_VERSION, .incarnation = 99, .run_id = RUN_ID}});
    conn_free(played.conn);
    played.conn = c;
    played.ended = false;
}

static void name_successor(const struct agent *a) {
    conn_send(played.conn,
              &(struct wire_message){
                  .kind = WIRE_NAMED,
                  .named = {.epoch = 1, .n = 1, .list = {{.incarnation = a->incarnation, .port = a->self.port}}}});
}

static struct agent *add_successor(void) {
    struct addr at;
    played = (__typeof__(played)){0};
    played.listener = listener_new(w.loop, listen_at("127.0.0.1", &at), played_on_accept, NULL);
    w.record =
        (struct arbiter_record){.epoch = 1, .leader = {.incarnation = 99, .addr = "127.0.0.1", .port = addr_port(&at)}};
    struct agent *a = add_agent();
    wait_until(played.joins == 1);
    conn_send(played.conn, &(struct wire_message){.kind = WIRE_WELCOME,
                                                  .welcome = {.epoch = 1,
                                                              .leader = 99,
                                                              .listener_port = addr_port(&at),
                                                              .heartbeat_ns = 50 * NS_PER_MS,
                                                              .lease_ns = w.lease_ns,
                                                              .margin_ns = NS_PER_S,
                                                              .min_nodes = 1,
                                                              .max_nodes = 1}});
    name_successor(a);
    return a;
}

static void send_members(uint32_t n_members, uint32_t first, uint32_t n) {
    struct wire_message m = {.kind = WIRE_MEMBERS,
                             .members = {.handover = {.epoch = 1,
                                                      .formed = {1, 4},
                                                      .started = {1, 4},
                                                      .losses = 3,
                                                      .n_order = n_members,
                                                      .n_members = n_members},
                                         .first = first,
                                         .n = n}};
    for (uint32_t i = 0; i < n; i++) {
        struct handover_member *e = &m.members.list[i];
        *e = (struct handover_member){.incarnation = 1000 + first + i, .port = 1, .started = true};
        if ((first + i) % 2 == 1)
            (void)snprintf(e->addr, sizeof e->addr, "10.0.0.1");
    }
    conn_send(played.conn, &m);
}

static void played_dies(void) {
    conn_free(TAKE_PTR(played.conn));
    listener_free(TAKE_PTR(played.listener));
}

static void hand_over_150(const struct agent *a) {
    send_members(150, 0, 64);
    send_members(150, 64, 64);
    send_members(150, 128, 22);
    unsigned renews = played.renews; /* all of it has been read before the third RENEW came */
    wait_until(played.renews >= renews + 3);
    cr_assert_not(played.ended);
    played_dies();
    wait_until(w.agents[0].server != NULL);
    cr_assert_eq(a->lead.epoch, 2);
    cr_assert_eq(a->lead_handover.n_members, 150);
    cr_assert_eq(a->lead_handover.losses, 3);
    for (uint32_t i = 0; i < 150; i++) {
        const struct handover_member *e = &a->lead_handover.members[i];
        cr_assert_eq(e->incarnation, 1000 + i);
        cr_assert_str_eq(e->addr, i % 2 == 1 ? "10.0.0.1" : "127.0.0.1");
    }
}

Test(succession_io, an_handover_in_parts_is_put_together, .init = begin, .fini = finish) {
    hand_over_150(add_successor());
}

Test(succession_io, an_handover_that_begins_again_replaces_the_one_under_way, .init = begin, .fini = finish) {
    const struct agent *a = add_successor();
    send_members(200, 0, 64);
    hand_over_150(a);
}

Test(succession_io, who_welcomes_and_hangs_up_is_not_asked_in_a_tight_loop, .init = begin, .fini = finish) {
    uint64_t began_ns = clock_now_ns();
    (void)add_successor();
    played.welcome = (struct wire_message){.kind = WIRE_WELCOME,
                                           .welcome = {.epoch = 1,
                                                       .leader = 99,
                                                       .listener_port = w.record.leader.port,
                                                       .heartbeat_ns = NS_PER_S,
                                                       .lease_ns = w.lease_ns,
                                                       .margin_ns = NS_PER_S,
                                                       .min_nodes = 1,
                                                       .max_nodes = 1}};
    for (unsigned i = 2; i <= 4; i++) {
        conn_free(TAKE_PTR(played.conn));
        played.renews = 0;
        wait_until(played.renews >= 1);
    }
    cr_assert_geq(clock_now_ns() - began_ns, 200 * NS_PER_MS);
    played_dies();
}

static bool broken;

static void on_log(void *arg, const char *line, size_t len) {
    broken = broken || memmem(line, len, "parts missing", 13) != NULL;
}

/* The agent hangs up because of the list, and not because this leader grants no lease. */
static struct agent *add_reader_of_lists(void) {
    broken = false;
    log_set_sink(on_log, NULL);
    log_set_level(LOG_LEVEL_DEBUG);
    return add_successor();
}

static void wait_broken(void) {
    wait_until(played.ended);
    cr_assert(broken);
    played_dies();
}

static void break_handover(uint32_t n_members, uint32_t first, uint32_t n) {
    (void)add_reader_of_lists();
    send_members(150, 0, 64);
    send_members(n_members, first, n);
    wait_broken();
}

Test(succession_io, an_handover_with_a_part_missing_breaks_the_protocol, .init = begin, .fini = finish) {
    break_handover(150, 128, 22);
}
Test(succession_io, an_handover_with_a_part_too_often_breaks_the_protocol, .init = begin, .fini = finish) {
    break_handover(150, 63, 64);
}

Test(succession_io, an_handover_does_not_go_on_after_successors_are_named_anew, .init = begin, .fini = finish) {
    const struct agent *a = add_reader_of_lists();
    send_members(150, 0, 64);
    name_successor(a);
    send_members(150, 64, 64);
    wait_broken();
}

/* Another agent has the old leader's port: nothing is told to it, and it is no proof of life. */
Test(succession_io, another_incarnation_at_the_address_is_not_joined, .init = begin, .fini = finish) {
    struct addr at;
    played = (__typeof__(played)){0};
    played.listener = listener_new(w.loop, listen_at("127.0.0.1", &at), played_on_accept, NULL);
    w.record =
        (struct arbiter_record){.epoch = 1, .leader = {.incarnation = 98, .addr = "127.0.0.1", .port = addr_port(&at)}};
    (void)add_agent();
    wait_until(played.ended);
    cr_assert_eq(played.joins, 0);
    played_dies();
}
