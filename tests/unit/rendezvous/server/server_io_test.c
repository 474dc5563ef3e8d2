/* The leader's side and the nodes' side together, over real sockets on loopback, in one process.
 * The launcher is played by the test: its "workers" are a flag. */
#include "rendezvous/server/server_io.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "base/frame.h"
#include "io/net/resolver.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/protocol/endpoint_io.h"
#include "rendezvous/server/server_priv.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define NODES_MAX 8

struct world {
    struct loop *loop;
    struct rdzv_server *server;
    int endpoint_fd;
    struct addr endpoint;
    char run_id[64];
    struct agent agents[NODES_MAX];
    unsigned n_agents;
    unsigned stores_open, stores_opened, incidents, dones;
    struct addr store_addr;
    int store_fails;
    char incident[4096];
    enum outcome outcome;
    bool slow;       /* each note takes all of a slice */
    bool one_by_one; /* a slice is long enough for one node, */
    unsigned asked;  /* so that every second time it is over */
    struct peer_gate *gate;
};

static struct world world;

/* The linker's --wrap: who asks whether the slice is over asks here. */
bool __real_loop_slice_is_over(const struct loop *loop);
bool __wrap_loop_slice_is_over(const struct loop *loop);
bool __wrap_loop_slice_is_over(const struct loop *loop) {
    return world.one_by_one ? world.asked++ % 2 == 1 : __real_loop_slice_is_over(loop);
}

/* ---- the imagined launcher ---- */

static void on_start(void *arg, struct generation g, uint32_t reachability) {
    struct agent *a = arg;
    cr_assert_not(a->running, "two groups at once");
    agent_starts(a, g);
}

static void on_status(void *arg, const struct rdzv_status *status) {
    struct agent *a = arg;
    a->statuses++;
    a->status = *status;
}

static void on_waiting(void *arg, enum rdzv_wait why, const char *text) {
    struct agent *a = arg;
    if (why != RDZV_WAIT_PLACE)
        (void)snprintf(a->waiting, sizeof a->waiting, "%s", text);
}

static bool on_joining(void *arg, const struct addr *leader, const struct addr *local, struct node_info *info) {
    struct agent *a = arg;
    cr_assert_gt(leader->len, 0);
    a->joins++;
    (void)snprintf(info->nets[0].netif, sizeof info->nets[0].netif, "eth%u", a->joins);
    return !a->speechless;
}

/* ---- the leader's agent ---- */

static int on_store_open(void *arg, struct generation g, struct addr *at, struct err *err) {
    struct world *w = arg;
    if (w->store_fails < 0)
        return err_set(err, w->store_fails, "no port is free");
    cr_assert_eq(addr_port(at), 0);
    w->store_addr = *at;
    w->stores_open++;
    w->stores_opened++;
    addr_set_port(at, 4711);
    return 0;
}

static void on_store_close(void *arg, struct generation g) {
    struct world *w = arg;
    w->stores_open--;
}

static void on_incident(void *arg, const char *line) {
    struct world *w = arg;
    w->incidents++;
    (void)snprintf(w->incident, sizeof w->incident, "%s", line);
}

static void on_done(void *arg, enum outcome outcome) {
    struct world *w = arg;
    w->dones++;
    w->outcome = outcome;
}

static void on_note(void *arg, const struct timeline_entry *entry) {
    struct world *w = arg;
    uint64_t until = w->slow ? clock_now_ns() + LOOP_SLICE_NS + NS_PER_MS : 0;
    while (clock_now_ns() < until)
        continue;
}

/* ---- the world ---- */

#define wait_until(condition) rig_loop_until(world.loop, condition)

static void begin(void) {
    memset(&world, 0, sizeof world);
    cr_assert_eq(loop_new(&world.loop), 0);
    (void)snprintf(world.run_id, sizeof world.run_id, "run");
    world.endpoint_fd = listen_at("127.0.0.1", &world.endpoint);
}

static struct group_config group_config(uint32_t min, uint32_t max, uint32_t restarts) {
    struct group_config g;
    group_config_default(&g);
    g.leader_incarnation = 1;
    g.rdzv.min_nodes = min;
    g.rdzv.max_nodes = max;
    g.rdzv.max_restarts = restarts;
    g.rdzv.last_call_ns = 20 * NS_PER_MS;
    g.settle_ns = 20 * NS_PER_MS;
    g.rdzv.lease_ns = 2 * NS_PER_S;
    g.rdzv.heartbeat_ns = 50 * NS_PER_MS;
    return g;
}

/* The agent with its listener; the one with incarnation 1 leads. */
static struct agent *add_agent(void) {
    struct agent *a = &world.agents[world.n_agents++];
    a->incarnation = world.n_agents;
    struct rdzv_listener_config config = {.incarnation = a->incarnation};
    memcpy(config.run_id, world.run_id, sizeof world.run_id);
    a->listener = rdzv_listener_new(world.loop, &config);
    struct addr at;
    int fd = listen_at("127.0.0.1", &at);
    a->listener_port = addr_port(&at);
    rdzv_listener_add(a->listener, fd);
    return a;
}

static struct rdzv_server_config server_config(void) {
    return (struct rdzv_server_config){
        .listener_port = 1,
        .ops = {.store_open = on_store_open,
                .store_close = on_store_close,
                .notice = on_incident,
                .timeline = on_note,
                .done = on_done},
        .arg = &world,
    };
}

static void lead_with(struct agent *a, const struct group_config *g, const struct rdzv_server_config *config) {
    cr_assert_eq(rdzv_server_new(world.loop, g, config, &world.server), 0);
    rdzv_listener_add(a->listener, dup(world.endpoint_fd));
    rdzv_listener_serve(a->listener, world.server);
}

static void lead(struct agent *a, const struct group_config *g) {
    lead_with(a, g, WITH(server_config(), .listener_port = a->listener_port));
}

static struct rdzv_client_config client_config(struct agent *a) {
    struct rdzv_client_config config = {
        .info =
            {.incarnation = a->incarnation, .listener_port = a->listener_port, .nproc = 2, .node_rank = -1, .pid = 100},
        .host = "127.0.0.1",
        .port = addr_port(&world.endpoint),
        .gate = world.gate,
        .ops = {.prepare = on_prepare,
                .start = on_start,
                .stop = on_stop,
                .fence = on_fence,
                .lease_end = on_lease_end,
                .status = on_status,
                .waiting = on_waiting,
                .end = on_end},
        .arg = a,
    };
    memcpy(config.run_id, world.run_id, sizeof world.run_id);
    (void)snprintf(config.info.host, sizeof config.info.host, "node%u", (unsigned)a->incarnation);
    (void)snprintf(config.info.role, sizeof config.info.role, "default");
    return config;
}

static void join_as(struct agent *a, const struct rdzv_client_config *config) {
    struct member_config m;
    member_config_default(&m);
    m.incarnation = a->incarnation;
    m.rdzv.max_nodes = 8;
    m.probe_retry_ns = 20 * NS_PER_MS;
    cr_assert_eq(rdzv_client_new(world.loop, &m, config, &a->client), 0);
}

static void join(struct agent *a) { join_as(a, AT(client_config(a))); }

static void start_job(unsigned n, const struct group_config *g) {
    for (unsigned i = 0; i < n; i++)
        (void)add_agent();
    lead(&world.agents[0], g);
    for (unsigned i = 0; i < n; i++)
        join(&world.agents[i]);
}

/* As SIGKILL does: everything closes at once, in no order that anybody chose. */
static void kill_agent(struct agent *a) {
    rdzv_client_free(TAKE_PTR(a->client));
    rdzv_listener_free(TAKE_PTR(a->listener));
    a->running = false;
}

static void finish(void) {
    for (unsigned i = 0; i < world.n_agents; i++) {
        rdzv_client_free(world.agents[i].client);
        rdzv_listener_free(world.agents[i].listener);
    }
    rdzv_server_free(world.server);
    peer_gate_free(world.gate);
    cr_assert_eq(world.stores_open, 0, "every store that was opened was closed");
    (void)close(world.endpoint_fd);
    loop_free(world.loop);
}

static unsigned count_running(const struct world *w) {
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_agents; i++)
        n += w->agents[i].running;
    return n;
}

static bool all_run(struct world *w) { return count_running(w) == w->n_agents; }
static bool all_ended(struct world *w) {
    for (unsigned i = 0; i < w->n_agents; i++)
        if (w->agents[i].client != NULL && w->agents[i].ends == 0)
            return false;
    return true;
}
static bool is_done(struct world *w) { return w->dones > 0 && all_ended(w); }

static void succeed(struct agent *a) {
    rdzv_client_event(a->client, &(struct member_event){.kind = MEMBER_EVENT_SUCCEEDED, .generation = a->started});
    all_gone(a);
}

Test(server_io, four_nodes_form_run_and_succeed, .init = begin, .fini = finish) {
    start_job(4, AT(group_config(4, 4, 0)));
    wait_until(all_run(&world));
    bool seen[8] = {false};
    for (unsigned i = 0; i < 4; i++) {
        const struct agent *a = &world.agents[i];
        cr_assert_eq(a->form.n_nodes, 4);
        cr_assert_eq(a->form.world_size, 8);
        cr_assert_str_eq(a->form.store_host, "127.0.0.1");
        cr_assert_eq(a->form.store_port, 4711);
        cr_assert_not(seen[a->form.first_rank]);
        seen[a->form.first_rank] = true;
        cr_assert_gt(a->lease_end_ns, a->started_ns);
    }
    cr_assert_eq(world.agents[0].form.node_rank, 0, "the leader's node has rank 0");
    for (unsigned i = 0; i < 4; i++)
        succeed(&world.agents[i]);
    wait_until(is_done(&world));
    cr_assert_eq(world.outcome, OUTCOME_SUCCESS);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(world.agents[i].end.kind, MEMBER_END_SUCCESS);
    cr_assert_eq(world.stores_opened, 1);
}

Test(server_io, a_node_joins_when_it_knows_what_to_say_of_itself, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    struct agent *a = add_agent();
    a->speechless = true;
    join_as(a, WITH(client_config(a), .ops.joining = on_joining));
    wait_until(world.agents[1].joins > 0 && world.agents[0].statuses > 0);
    rdzv_client_join(a->client); /* a call that comes too early does no harm */
    cr_assert_eq(a->joins, 2);
    cr_assert_null(group_node_info(rdzv_server_group(world.server), a->incarnation));
    a->speechless = false;
    rdzv_client_join(a->client);
    wait_until(all_run(&world));
    cr_assert_eq(a->joins, 3);
    const struct node_info *info = group_node_info(rdzv_server_group(world.server), a->incarnation);
    cr_assert_str_eq(info->nets[0].netif, "eth3");
    rdzv_client_join(a->client); /* it has */
    cr_assert_eq(a->joins, 3);
}

Test(server_io, nodes_end_with_the_reason_when_the_leader_is_gone, .init = begin, .fini = finish) {
    start_job(3, AT(group_config(3, 3, 0)));
    wait_until(all_run(&world));
    kill_agent(&world.agents[0]);
    rdzv_server_free(TAKE_PTR(world.server));
    (void)close(world.endpoint_fd);
    world.endpoint_fd = dup(2); /* for finish() */
    wait_until(world.agents[1].ends > 0 && world.agents[2].ends > 0);
    cr_assert_eq(world.agents[1].end.kind, MEMBER_END_LEADER_LOST);
    assert_has(world.agents[1].end.reason, "leader");
    cr_assert_not(world.agents[1].running);
}

Test(server_io, a_store_that_cannot_be_opened_ends_the_job_with_its_reason, .init = begin, .fini = finish) {
    world.store_fails = -98;
    start_job(2, AT(group_config(2, 2, 5)));
    wait_until(is_done(&world));
    assert_has(world.agents[1].end.reason, "no port is free");
}

Test(server_io, those_who_are_told_in_a_later_turn_still_hear_who_is_there, .init = begin, .fini = finish) {
    world.slow = true;
    start_job(1, AT(group_config(3, 4, 0)));
    wait_until(world.agents[0].status.present == 1);
}

Test(server_io, all_nodes_are_told_though_a_slice_is_long_enough_for_one, .init = begin, .fini = finish) {
    world.one_by_one = true;
    start_job(8, AT(group_config(8, 8, 0)));
    wait_until(all_run(&world));
}

Test(server_io, another_run_id_is_refused_with_both_names, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    struct agent *a = add_agent();
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.run_id, sizeof config.run_id, "other");
    join_as(a, &config);
    wait_until(world.agents[world.n_agents - 1].ends > 0);
    cr_assert_eq(a->end.kind, MEMBER_END_REFUSED);
    cr_assert(strstr(a->end.reason, "'run'") != NULL && strstr(a->end.reason, "'other'") != NULL);
}

Test(server_io, the_leaders_heartbeat_holds_for_all, .init = begin, .fini = finish) {
    start_job(2, AT(group_config(2, 2, 0))); /* these nodes' own heartbeat is 1 s, the leader's 50 ms */
    wait_until(all_run(&world));
    uint64_t best_ns = UINT64_MAX;
    for (unsigned tries = 0; tries < 3 && best_ns >= 4 * NS_PER_S; tries++) { /* the machine may pause */
        uint64_t began_ns = clock_now_ns();
        world.agents[1].leases = 0;
        wait_until(world.agents[1].leases >= 6);
        best_ns = MIN2(best_ns, clock_now_ns() - began_ns);
    }
    cr_assert_lt(best_ns, 4 * NS_PER_S); /* their own would take 5 s and more */
}

Test(server_io, a_node_with_other_nnodes_is_told_of, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    wait_until(strstr(world.incident, "--nnodes 1:8") != NULL);
    assert_has(world.incident, "the leader with 2:2");
}

/* ---- raw peers ---- */

static int raw_connect(uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

struct raw {
    int fd;
    struct loop_watch *watch;
    uint8_t data[65536];
    size_t len;
    bool ended;
};
static struct raw raw;

static void raw_on_readable(void *arg, int fd, unsigned events) {
    struct raw *r = arg;
    ssize_t n = recv(fd, r->data + r->len, sizeof r->data - r->len, MSG_DONTWAIT);
    if (n > 0)
        r->len += (size_t)n;
    else {
        r->ended = true;
        loop_watch_free(TAKE_PTR(r->watch));
    }
}

static void raw_open(uint16_t port) {
    raw = (struct raw){.fd = raw_connect(port)};
    raw.watch = loop_watch_new(world.loop, raw.fd, LOOP_READ, LOOP_PRIO_BULK, raw_on_readable, &raw);
}

static void raw_close(void) {
    loop_watch_free(TAKE_PTR(raw.watch));
    (void)close(raw.fd);
}

/* The i-th message that the raw peer got; false: not there yet. */
static bool raw_message(unsigned i, struct wire_message *ret) {
    size_t at = 0, bytes;
    while (frame_size(raw.data + at, raw.len - at, WIRE_MESSAGE_MAX, &bytes) == 0 && raw.len - at >= bytes) {
        if (i-- == 0)
            return wire_decode((const char *)raw.data + at + FRAME_HEADER_BYTES, bytes - FRAME_HEADER_BYTES, ret,
                               NULL) == 0;
        at += bytes;
    }
    return false;
}

static void raw_send(const struct wire_message *m) { send_message(raw.fd, m); }

/* The accepting side speaks when it has been spoken to. */
static void raw_call(void) { raw_send(&call_message); }

static size_t frame_of(const struct wire_message *m, uint8_t *out) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    wire_add_frame(m, &frame);
    memcpy(out, frame.data, frame.len);
    return frame.len;
}

/* The same after the call with which every caller begins. */
static size_t called_frame_of(const struct wire_message *m, uint8_t *out) {
    size_t len = frame_of(&call_message, out);
    return len + frame_of(m, out + len);
}

Test(server_io, the_incarnation_is_told_after_the_greeting, .init = begin, .fini = finish) {
    struct agent *a = add_agent();
    raw_open(a->listener_port);
    raw_call();
    struct wire_message m;
    wait_until(raw_message(0, &m));
    cr_assert_eq(m.kind, WIRE_GREETING);
    cr_assert(m.greeting.open && m.greeting.n_keys == 0, "nobody has a key here");
    rig_loop_turns(world.loop, 20);
    cr_assert_not(raw_message(1, &m), "not yet");
    raw_call();
    wait_until(raw_message(1, &m));
    cr_assert_eq(m.kind, WIRE_HELLO);
    cr_assert_eq(m.hello.incarnation, a->incarnation);
    cr_assert_str_eq(m.hello.run_id, "run");
    raw_close();
}

Test(server_io, peers_that_break_the_rules_are_disconnected_and_harm_nobody, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    static const char *const bad[] = {
        "\x00\x00\x00\x00", /* an empty frame */
        "\xff\xff\xff\xff", /* 4 GiB */
        "GET / HTTP/1.1\r\n\r\n",
        "\x02\x00\x00\x00{}",
        "\x10\x00\x00\x00{\"kind\":\"LEAVE\"}", /* not a first word */
        "\x0f\x00\x00\x00{\"kind\":\"WHAT\"}",
        "\x04\x00\x00\x00\xff\xfe\xfd\xfc",
    };
    static const size_t lens[] = {4, 4, 18, 6, 20, 19, 8};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        raw_open(addr_port(&world.endpoint));
        cr_assert_eq(send(raw.fd, bad[i], lens[i], MSG_NOSIGNAL), (ssize_t)lens[i]);
        wait_until(raw.ended);
        raw_close();
    }
    struct agent *a = add_agent();
    join(a);
    wait_until(all_run(&world));
}

Test(server_io, a_node_that_says_a_leaders_word_is_disconnected, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    raw_open(addr_port(&world.endpoint));
    raw_call();
    raw_send(AT(join_of(77)));
    raw_send(&(struct wire_message){.kind = WIRE_LEASE, .lease = {.epoch = 1}});
    wait_until(raw.ended);
    raw_close();
}

/* The place of the first such message that the raw peer got; -1: none yet. desired: of DESIRED, else 0. */
static int raw_place(enum wire_kind kind, enum desired_kind desired) {
    struct wire_message m;
    for (unsigned i = 0; raw_message(i, &m); i++)
        if (m.kind == kind && (kind != WIRE_DESIRED || m.desired.kind == desired))
            return (int)i;
    return -1;
}

static struct wire_message renew_message(uint64_t clock_ns) {
    return (struct wire_message){.kind = WIRE_RENEW, .renew = {.clock_ns = clock_ns}};
}

Test(server_io, a_lease_waits_for_the_next_word_but_not_for_long, .init = begin, .fini = finish) {
    start_job(1, WITH(group_config(2, 2, 0), .rdzv.heartbeat_ns = 200 * NS_PER_MS));
    raw_open(addr_port(&world.endpoint));
    struct wire_message m = join_of(77);
    raw_call();
    raw_send(&m);
    wait_until(raw_place(WIRE_DESIRED, DESIRED_FORM) >= 0);
    cr_assert_lt(raw_place(WIRE_LEASE, 0), 0);
    for (uint64_t clock = 1000; clock <= 1001; clock++) {
        m = renew_message(clock);
        raw_send(&m);
    }
    wait_until(raw_place(WIRE_LEASE, 0) >= 0); /* no word was due */
    cr_assert(raw_message((unsigned)raw_place(WIRE_LEASE, 0), &m));
    cr_assert_eq(m.lease.echo_ns, 1001, "it waited, and is one for both");
    raw.len = 0;

    struct wire_message prepared = {
        .kind = WIRE_REPORT,
        .report = {.state = NODE_PREPARED, .generation = m.lease.prepared, .epoch = 1},
    };
    uint8_t frames[4096];
    m = renew_message(1002);
    size_t len = frame_of(&m, frames);
    len += frame_of(&prepared, frames + len);
    cr_assert_eq(send(raw.fd, frames, len, MSG_NOSIGNAL), (ssize_t)len);
    wait_until(raw_place(WIRE_DESIRED, DESIRED_START) >= 0);
    cr_assert_eq(raw_place(WIRE_DESIRED, DESIRED_START), raw_place(WIRE_LEASE, 0) + 1, "the lease goes before");
    cr_assert(raw_message((unsigned)raw_place(WIRE_LEASE, 0), &m));
    cr_assert_eq(m.lease.echo_ns, 1002);
    raw_close();
}

/* Whatever such a caller begins with, and whatever it says afterwards. */
Test(server_io, another_protocol_version_hears_only_ours, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(2, 2, 0)));
    static const char *const texts[] = {"{\"kind\":\"JOIN\",\"version\":8,\"anything\":[1,2,3]}",
                                        "{\"kind\":\"CALL\",\"version\":8}",
                                        "{\"kind\":\"CALL\",\"version\":99,\"more\":true}",
                                        "{\"kind\":\"COMMAND\",\"version\":8,\"command\":\"stop\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        uint8_t head[FRAME_HEADER_BYTES];
        char wanted[128];
        frame_header(strlen(texts[i]), head);
        raw_open(addr_port(&world.endpoint));
        for (int k = 0; k < 2; k++) {
            (void)!send(raw.fd, head, sizeof head, MSG_NOSIGNAL);
            (void)!send(raw.fd, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
        }
        size_t bytes;
        wait_until(frame_size(raw.data, raw.len, WIRE_MESSAGE_MAX, &bytes) == 0 && raw.len >= bytes);
        rig_loop_turns(world.loop, 20);
        (void)snprintf(wanted, sizeof wanted,
                       "{\"kind\":\"HELLO\",\"version\":%d,\"incarnation\":\"0000000000000000\",\"run_id\":\"\"}",
                       WIRE_VERSION);
        const char *said = rig_text("%.*s", (int)(raw.len - sizeof head), raw.data + sizeof head);
        cr_assert_str_eq(said, wanted, "%s", texts[i]);
        raw_close();
    }
}

Test(server_io, a_join_split_at_each_byte_is_one_join, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(8, 8, 0)));
    uint8_t frame[4096];
    struct wire_message m = join_of(77);
    size_t len = called_frame_of(&m, frame), call = len - frame_of(&m, (uint8_t[4096]){0});
    for (size_t cut = 1; cut < len; cut++) {
        raw_open(addr_port(&world.endpoint));
        cr_assert_eq(send(raw.fd, frame, cut, MSG_NOSIGNAL), (ssize_t)cut);
        if (cut >= call)
            wait_until(raw_message(0, &m)); /* what was sent is there too */
        cr_assert_eq(loop_turn(world.loop), 0);
        cr_assert_eq(send(raw.fd, frame + cut, len - cut, MSG_NOSIGNAL), (ssize_t)(len - cut));
        wait_until(raw_message(2, &m) && m.kind == WIRE_WELCOME);
        raw_close();
    }
    cr_assert_eq(group_nodes(rdzv_server_group(world.server), NULL, 0), 2, "one node, on many connections");
}

Test(server_io, who_says_nothing_is_closed_in_time, .init = begin, .fini = finish) {
    struct rdzv_listener_config config = {.incarnation = 9, .run_id = "run", .first_bytes_ns = 50 * NS_PER_MS};
    struct rdzv_listener *l;
    l = rdzv_listener_new(world.loop, &config);
    rdzv_listener_add(l, dup(world.endpoint_fd));
    uint64_t began_ns = clock_now_ns();
    raw_open(addr_port(&world.endpoint));
    cr_assert_eq(send(raw.fd, "\x10\x00", 2, MSG_NOSIGNAL), 2); /* some bytes are no word */
    wait_until(raw.ended);
    cr_assert_geq(clock_now_ns() - began_ns, 50 * NS_PER_MS);
    raw_close();
    rdzv_listener_free(l);
}

static int connect_from(const char *host, uint16_t port) {
    struct addr from, to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(addr_from_literal(host, 0, &from), 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", port, &to), 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&from.ss, from.len), 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to.ss, to.len), 0);
    return fd;
}

static bool is_closed(int fd) {
    uint8_t byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || errno != EAGAIN;
}

/* A crowd from one source does not keep others out, nor those that were there before from other sources. */
Test(server_io, a_crowd_that_says_nothing_shuts_nobody_out, .init = begin, .fini = finish) {
    struct rdzv_listener_config config = {.incarnation = 9, .run_id = "run", .first_bytes_ns = 3600 * NS_PER_S};
    struct rlimit files;
    struct rdzv_listener *l;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = MIN2(files.rlim_max, (rlim_t)3 * RDZV_PENDING_MAX);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    cr_assert_geq(files.rlim_cur, 2 * RDZV_PENDING_MAX + 100, "the limit of open files is too low to test this");
    l = rdzv_listener_new(world.loop, &config);
    rdzv_listener_add(l, dup(world.endpoint_fd));
    uint16_t port = addr_port(&world.endpoint);
    static int idle[RDZV_PENDING_MAX];
    int others[] = {connect_from("127.0.0.9", port), connect_from("127.0.0.10", port), connect_from("127.0.0.11", port),
                    connect_from("127.0.0.12", port)};
    cr_assert_eq(loop_turn(world.loop), 0);
    for (size_t i = 0; i < RDZV_PENDING_MAX; i++) {
        idle[i] = raw_connect(port);
        cr_assert_eq(loop_turn(world.loop), 0);
    }
    raw_open(port); /* one more than are held */
    raw_call();
    wait_until(raw_message(0, &(struct wire_message){0}));
    raw_close();
    size_t closed = 0, others_closed = 0;
    for (size_t i = 0; i < RDZV_PENDING_MAX; i++)
        closed += is_closed(idle[i]);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        others_closed += is_closed(others[i]);
    cr_assert_leq(others_closed, 1, "only one that shares its place with the crowd by chance");
    cr_assert_geq(closed + others_closed, ARRAY_SIZE(others) + 1);
    cr_assert_leq(closed, ARRAY_SIZE(others) + 2);
    cr_assert_not(is_closed(idle[RDZV_PENDING_MAX - 1]), "the oldest go");
    for (size_t i = 0; i < RDZV_PENDING_MAX; i++)
        (void)close(idle[i]);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        (void)close(others[i]);
    rdzv_listener_free(l);
}

/* A node that asks and asks and never reads: what waits for it is bounded, and then it is cut off. */
Test(server_io, a_node_that_never_reads_is_disconnected, .init = begin, .fini = finish) {
    start_job(1, AT(group_config(8, 8, 0)));
    uint8_t frame[4096];
    int fd = raw_connect(addr_port(&world.endpoint)), small = 4096;
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    struct wire_message m = join_of(77);
    size_t len = called_frame_of(&m, frame);
    cr_assert_eq(send(fd, frame, len, MSG_NOSIGNAL), (ssize_t)len);
    m = (struct wire_message){.kind = WIRE_RENEW};
    len = frame_of(&m, frame);
    uint64_t asked = 0;
    size_t sent = 0; /* of this frame */
    for (;;) {
        ssize_t n = send(fd, frame + sent, len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            break;
        sent += n > 0 ? (size_t)n : 0;
        asked += sent == len;
        sent = sent == len ? 0 : sent;
        cr_assert_lt(asked, 1000000, "it is never cut off");
        if (n < 0 || asked % 64 == 0)
            cr_assert_eq(loop_turn(world.loop), 0);
    }
    cr_assert_gt(asked, CONN_UNSENT_MAX / 512);
    (void)close(fd);
}

/* News of who is there: a node that has not taken the last does not get the next on top. */
Test(server_io, a_node_that_reads_slowly_gets_no_pile_of_news, .init = begin, .fini = finish) {
    struct group_config g = group_config(8, 8, 0);
    g.rdzv.lease_ns = 3600 * NS_PER_S; /* it says nothing, either */
    start_job(1, &g);
    uint8_t frame[4096];
    int fd = raw_connect(addr_port(&world.endpoint)), small = 4096;
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    size_t len = called_frame_of(AT(join_of(77)), frame);
    cr_assert_eq(send(fd, frame, len, MSG_NOSIGNAL), (ssize_t)len);
    struct server_node *node;
    wait_until((node = idmap_get(&world.server->nodes, 77)) != NULL && node->welcomed);
    struct conn *slow = node->conn;
    static char text[4096];
    memset(text, 'x', sizeof text);
    const size_t much = 128 * 1024;
    while (conn_unsent(slow) < much) { /* the kernel takes some of it */
        while (conn_unsent(slow) < much)
            conn_send_frame(slow, text, sizeof text);
        cr_assert_eq(loop_turn(world.loop), 0);
    }
    size_t unsent = conn_unsent(slow);
    join(add_agent());
    wait_until(world.agents[0].status.present == 3);
    cr_assert_eq(conn_unsent(slow), unsent);
    (void)close(fd);
}

/* ---- addresses and names ---- */

static void start_one_at(const char *host, const struct addr *endpoint) {
    struct agent *a = add_agent();
    lead(a, AT(group_config(1, 1, 0)));
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.host, sizeof config.host, "%s", host);
    config.port = addr_port(endpoint);
    join_as(a, &config);
    wait_until(all_run(&world));
}

static void listen_elsewhere(const char *host) {
    (void)close(world.endpoint_fd);
    world.endpoint_fd = listen_at(host, &world.endpoint);
}

Test(server_io, a_group_of_one_meets_over_ipv6, .init = begin, .fini = finish) {
    listen_elsewhere("::1");
    start_one_at("::1", &world.endpoint);
    cr_assert_str_eq(world.agents[0].form.store_host, "127.0.0.1");
}

Test(server_io, localhost_is_tried_over_both_families, .init = begin, .fini = finish) {
    listen_elsewhere("::1"); /* nobody listens at 127.0.0.1 */
    start_one_at("localhost", &world.endpoint);
}

Test(server_io, the_own_host_name_needs_no_resolver, .init = begin, .fini = finish) {
    char own[256] = "";
    cr_assert_eq(gethostname(own, sizeof own - 1), 0);
    listen_elsewhere("::");
    start_one_at(own, &world.endpoint);
}

Test(server_io, a_name_that_is_not_found_is_said_and_asked_again, .init = begin, .fini = finish) {
    struct agent *a = add_agent();
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.host, sizeof config.host, "muster-test.invalid");
    config.resolve_timeout_ns = 200 * NS_PER_MS;
    join_as(a, &config);
    wait_until(strstr(world.agents[0].waiting, "muster-test.invalid") != NULL);
    a->waiting[0] = '\0';
    cr_assert_eq(member_state(rdzv_client_member(a->client)), MEMBER_SEARCHING);
}

static bool no_child_is_left(void) {
    return waitid(P_ALL, 0, NULL, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

static struct agent *look_up(void) {
    struct agent *a = add_agent();
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.host, sizeof config.host, "muster-test.invalid");
    config.resolve_timeout_ns = 3600 * NS_PER_S;
    join_as(a, &config);
    rig_loop_until(world.loop, !no_child_is_left());
    return a;
}

Test(server_io, a_look_up_ends_with_its_client, .init = begin, .fini = finish) {
    struct agent *a = look_up();
    rdzv_client_free(TAKE_PTR(a->client));
    cr_assert(no_child_is_left());
}

Test(server_io, a_node_that_leaves_looks_nothing_up, .init = begin, .fini = finish) {
    struct agent *a = look_up();
    rdzv_client_event(a->client,
                      &(struct member_event){.kind = MEMBER_EVENT_LEAVE, .reason = "SIGTERM", .grace_ns = 1});
    cr_assert_eq(a->ends, 1);
    cr_assert(no_child_is_left());
}

/* Each address is tried once, and what the last of them said is told. */
Test(server_io, who_finds_nobody_says_so_after_the_last_address, .init = begin, .fini = finish) {
    (void)close(world.endpoint_fd); /* nobody listens there */
    world.endpoint_fd = -1;
    struct agent *a = add_agent();
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.host, sizeof config.host, "localhost");
    struct addr tried[RESOLVE_ADDRS_MAX];
    size_t n;
    cr_assert_eq(resolve_now("localhost", config.port, tried, &n), 0);
    char at[ADDR_TEXT_MAX];
    addr_to_text(&tried[n - 1], at);
    join_as(a, &config);
    wait_until(world.agents[0].waiting[0] != '\0');
    assert_has(a->waiting, at);
}

static void put_over(const char *path, const char *text) {
    char own[] = "/tmp/server-io-test-XXXXXX";
    int fd = mkstemp(own);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(close(fd), 0);
    int r = mount(own, path, NULL, MS_BIND, NULL);
    (void)unlink(own);
    if (r < 0)
        cr_skip_test("no %s of our own", path);
}

/* No process is started that could ask for it. */
Test(server_io, a_leader_whose_name_is_in_etc_hosts_is_not_asked_for, .init = begin, .fini = finish) {
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("no mount namespace for us");
    put_over("/etc/nsswitch.conf", "hosts: files dns\n");
    put_over("/etc/hosts", "127.0.0.1 leader.site leader\n");
    struct agent *a = add_agent();
    lead(a, AT(group_config(1, 1, 0)));
    struct rdzv_client_config config = client_config(a);
    (void)snprintf(config.host, sizeof config.host, "leader");
    join_as(a, &config);
    while (!all_run(&world)) {
        cr_assert_eq(loop_turn(world.loop), 0);
        cr_assert(no_child_is_left());
    }
}

/* An address that is not a loopback one, on the loopback interface of a network of our own; where
 * that can't be had, this machine's. */
static struct addr outer_addr(void) {
    struct addr a;
    size_t n;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
        (void)close(fd);
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP}, more = {.ifr_name = "lo:1"};
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a090909)};
        memcpy(&more.ifr_addr, &in, sizeof in);
        cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &up), 0);
        cr_assert_eq(ioctl(fd, SIOCSIFADDR, &more), 0);
        cr_assert_eq(addr_from_literal("10.9.9.9", 0, &a), 0);
    } else if (addr_all_global(&a, 1, &n) < 0 || n == 0) {
        cr_skip_test("neither a network namespace nor an address besides loopback");
    }
    (void)close(fd);
    return a;
}

static void start_two_from(const struct addr *outer, const struct rdzv_server_config *server) {
    char host[ADDR_TEXT_MAX];
    addr_host_text(outer, host);
    struct group_config g = group_config(2, 2, 0);
    struct agent *leader = add_agent(), *other = add_agent();
    lead_with(leader, &g, server);
    struct rdzv_client_config config = client_config(leader);
    cr_assert_eq(endpoint_own_addr(world.endpoint_fd, &config.addr), 0);
    join_as(leader, &config);
    config = client_config(other);
    (void)snprintf(config.host, sizeof config.host, "%s", host);
    join_as(other, &config);
    wait_until(all_run(&world));
}

Test(server_io, the_store_is_where_members_from_elsewhere_reach_the_leader, .init = begin, .fini = finish) {
    struct addr outer = outer_addr();
    char host[ADDR_TEXT_MAX];
    addr_host_text(&outer, host);
    listen_elsewhere("0.0.0.0");
    start_two_from(&outer, AT(server_config()));
    cr_assert_str_eq(world.agents[0].form.store_host, host);
    cr_assert_str_eq(world.agents[1].form.store_host, host);
    cr_assert(addr_same_host(&world.store_addr, &outer));
}

Test(server_io, local_addr_says_where_the_store_is, .init = begin, .fini = finish) {
    struct addr outer = outer_addr();
    listen_elsewhere("0.0.0.0");
    struct rdzv_server_config config = server_config();
    cr_assert_eq(addr_from_literal("192.0.2.7", 4711, &config.local_addr), 0);
    start_two_from(&outer, &config);
    cr_assert_str_eq(world.agents[1].form.store_host, "192.0.2.7");
}

/* ---- whose a connection is ---- */

static struct peer_owner owned[2];

static void on_owner(void *arg, uint32_t id, const struct peer_owner *o) {
    cr_assert_lt(id, ARRAY_SIZE(owned));
    owned[id] = *o;
}

/* Asks of a connection of this process, and of one that does not exist. */
static void assert_owners(bool with_gate, enum peer_owner_kind real, enum peer_owner_kind absent) {
    struct addr outer = outer_addr(), own;
    struct rdzv_server_config config = server_config();
    config.parts.owners.answer = on_owner;
    listen_elsewhere("0.0.0.0");
    if (with_gate && peer_gate_new(world.endpoint_fd, NULL, NULL, &world.gate, NULL) < 0)
        cr_skip_test("no sock_diag here");
    start_two_from(&outer, &config);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    addr_set_port(&outer, addr_port(&world.endpoint));
    cr_assert_eq(connect(fd, (struct sockaddr *)&outer.ss, outer.len), 0);
    cr_assert_eq(addr_of_socket(fd, &own), 0);
    cr_assert_eq(rdzv_server_source(world.server, &own), PEER_SOURCE_MEMBER, "the node has listed it");
    rdzv_server_whose(world.server, &own, &outer, 0);
    addr_set_port(&own, 1);
    rdzv_server_whose(world.server, &own, &outer, 1);
    wait_until(owned[0].kind != 0 && owned[1].kind != 0);
    cr_assert_eq(owned[0].kind, real);
    cr_assert_eq(owned[1].kind, absent);
    (void)close(fd);
}

Test(server_io, a_node_says_whose_connections_are, .init = begin, .fini = finish) {
    assert_owners(true, PEER_OURS, PEER_ELSEWHERE);
}
Test(server_io, a_node_without_a_gate_cannot_say_it, .init = begin, .fini = finish) {
    assert_owners(false, PEER_UNKNOWN, PEER_UNKNOWN);
}

/* ---- the way a connection is cut: a relay between a node and the leader ---- */

struct relay {
    struct listener *listener;
    uint16_t port;
    int a, b;
    struct loop_watch *wa, *wb;
    unsigned accepted;
};
static struct relay relay;

static void relay_cut(void) {
    loop_watch_free(TAKE_PTR(relay.wa));
    loop_watch_free(TAKE_PTR(relay.wb));
    if (relay.a >= 0)
        (void)close(relay.a);
    if (relay.b >= 0)
        (void)close(relay.b);
    relay.a = relay.b = -1;
}

static void relay_on_readable(void *arg, int fd, unsigned events) {
    uint8_t data[4096];
    ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
    if (n <= 0)
        relay_cut();
    else
        (void)!send(fd == relay.a ? relay.b : relay.a, data, (size_t)n, MSG_NOSIGNAL);
}

static void relay_on_accept(void *arg, int fd, const struct addr *peer) {
    relay_cut();
    relay.accepted++;
    relay.a = fd;
    relay.b = raw_connect(addr_port(&world.endpoint));
    relay.wa = loop_watch_new(world.loop, relay.a, LOOP_READ, LOOP_PRIO_BULK, relay_on_readable, NULL);
    relay.wb = loop_watch_new(world.loop, relay.b, LOOP_READ, LOOP_PRIO_BULK, relay_on_readable, NULL);
}

static void relay_open(void) {
    relay = (struct relay){.a = -1, .b = -1};
    struct addr at;
    int fd = listen_at("127.0.0.1", &at);
    relay.port = addr_port(&at);
    relay.listener = listener_new(world.loop, fd, relay_on_accept, NULL);
}

static void on_lease_after_cut(void *arg, uint64_t end_ns) {
    struct agent *a = arg;
    a->lease_end_ns = end_ns;
    if (relay.accepted >= 2)
        a->statuses = 0xffff; /* a lease came on the second connection */
}

Test(server_io, a_cut_connection_is_resumed_and_the_workers_run_on, .init = begin, .fini = finish) {
    relay_open();
    struct agent *leader = add_agent(), *other = add_agent();
    lead(leader, AT(group_config(2, 2, 0)));
    join(leader);
    join_as(other, WITH(client_config(other), .port = relay.port, .ops.lease_end = on_lease_after_cut));
    wait_until(all_run(&world));
    relay_cut();
    wait_until(relay.accepted >= 2 && member_state(rdzv_client_member(other->client)) != MEMBER_SEARCHING &&
               other->lease_end_ns > other->started_ns && other->statuses == 0xffff);
    cr_assert_eq(relay.accepted, 2);
    cr_assert(other->running && leader->running);
    cr_assert_eq(other->starts, 1);
    cr_assert_eq(other->stops + leader->stops + other->fences, 0);
    relay_cut();
    listener_free(relay.listener);
}

/* ---- objects that are freed where it is least convenient ---- */

static void on_start_free_client(void *arg, struct generation g, uint32_t reachability) {
    struct agent *a = arg;
    on_start(arg, g, reachability);
    rdzv_client_free(TAKE_PTR(a->client));
}

Test(server_io, a_client_may_be_freed_in_its_own_callback, .init = begin, .fini = finish) {
    struct agent *leader = add_agent(), *other = add_agent();
    lead(leader, AT(group_config(2, 2, 0)));
    join(leader);
    join_as(other, WITH(client_config(other), .ops.start = on_start_free_client));
    wait_until(world.agents[1].starts > 0);
    cr_assert_null(other->client);
}

static void on_incident_free_server(void *arg, const char *line) {
    struct world *w = arg;
    on_incident(arg, line);
    rdzv_listener_serve(w->agents[0].listener, NULL);
    rdzv_server_free(TAKE_PTR(w->server));
}

Test(server_io, a_server_may_be_freed_in_its_own_callback, .init = begin, .fini = finish) {
    struct agent *leader = add_agent();
    lead_with(leader, AT(group_config(3, 3, 0)),
              WITH(server_config(), .listener_port = leader->listener_port, .ops.notice = on_incident_free_server));
    join(leader); /* with other --nnodes: an incident */
    wait_until(world.incidents > 0 && world.server == NULL);
}

/* ---- an endpoint of several ports ---- */

static unsigned nobodies;

static void on_nobody(void *arg, const struct addr *at) {
    cr_assert(addr_is_loopback(at));
    nobodies++;
}

/* A node that looks at these ports in turn, and would wait at one of them for longer than the test. */
static void join_at(struct agent *a, const uint16_t *ports, unsigned n) {
    struct rdzv_client_config config = *WITH(client_config(a), .n_ports = n);
    memcpy(config.ports, ports, n * sizeof *ports);
    config.connect_timeout_ns = 2 * RIG_LOOP_NS;
    config.ops.nobody_there = on_nobody;
    nobodies = 0;
    join_as(a, &config);
}

/* An agent that listens there, and does not lead; or one of another run. */
static struct rdzv_listener *bystander(const char *run_id, uint16_t *ret_port) {
    struct rdzv_listener_config config = {.incarnation = 4711};
    struct rdzv_listener *l;
    struct addr at;
    (void)snprintf(config.run_id, sizeof config.run_id, "%s", run_id);
    l = rdzv_listener_new(world.loop, &config);
    rdzv_listener_add(l, listen_at("127.0.0.1", &at));
    *ret_port = addr_port(&at);
    return l;
}

static void lead_two(void) {
    struct agent *leader = add_agent();
    lead(leader, AT(group_config(2, 2, 0)));
    join(leader);
}

/* The node waits at the silent program, and looks at the other ports meanwhile. */
Test(server_io, a_leader_that_comes_late_is_found_at_a_port_that_was_passed, .init = begin, .fini = finish) {
    struct addr silent, at = world.endpoint;
    uint16_t other;
    int fd = listen_at("127.0.0.1", &silent);
    struct rdzv_listener *l = bystander("other", &other);
    struct agent *leader = add_agent(), *node = add_agent();
    char wanted[160];
    (void)close(world.endpoint_fd);
    /* bound, so that no other program gets the port; but nothing listens */
    world.endpoint_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(world.endpoint_fd, (struct sockaddr *)&at.ss, at.len), 0);
    join_at(node, (const uint16_t[]){addr_port(&at), addr_port(&silent), other}, 3);
    wait_until(strstr(node->waiting, "; nothing listens at port") != NULL &&
               strstr(node->waiting, "an agent of the run") != NULL);
    (void)snprintf(wanted, sizeof wanted,
                   "no leader at 127.0.0.1: port %u: no answer (not muster, or a firewall); port %u: an agent of "
                   "the run 'other'; nothing listens at port %u yet",
                   addr_port(&silent), other, addr_port(&at));
    cr_assert(strstr(node->waiting, wanted) == node->waiting, "%s", node->waiting);
    cr_assert_gt(nobodies, 0);
    rdzv_listener_free(l); /* it leaves */
    wait_until(strstr(node->waiting, "an agent of the run") == NULL);
    assert_has(node->waiting, ": no answer (not muster, or a firewall); nothing listens at ports ");
    cr_assert_eq(listen(world.endpoint_fd, 64), 0);
    lead(leader, AT(group_config(2, 2, 0)));
    join(leader);
    wait_until(all_run(&world));
    (void)close(fd);
}

/* Its JOIN has to wait; its CALL tells that the leader is there. */
Test(server_io, a_node_that_is_not_ready_knows_its_leader_by_the_greeting, .init = begin, .fini = finish) {
    struct addr nobody;
    (void)close(listen_at("127.0.0.1", &nobody));
    struct agent *node;
    lead_two();
    node = add_agent();
    struct rdzv_client_config config = *WITH(client_config(node), .n_ports = 2);
    config.ports[0] = addr_port(&world.endpoint);
    config.ports[1] = addr_port(&nobody);
    config.ops.joining = on_joining;
    config.ops.nobody_there = on_nobody;
    nobodies = 0;
    node->speechless = true;
    join_as(node, &config);
    wait_until(world.agents[1].joins > 0);
    uint64_t until = clock_now_ns() + NS_PER_S; /* when it would have looked elsewhere */
    rig_loop_until(world.loop, clock_now_ns() >= until);
    cr_assert_eq(nobodies, 0);
    cr_assert_eq(node->joins, 1, "at the first port");
    node->speechless = false;
    rdzv_client_join(node->client);
    wait_until(all_run(&world));
}
