/* What the leader knows of addresses from which clients of the store come, and what it asks of the agents there. Nodes
 * are sockets with addresses of their own, on the loopback interface of a network of our own. */
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "base/frame.h"
#include "io/net/listen.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_io.h"
#include "rig/agent_rig.h"
#include "rig/loop_rig.h"

#define OWNED_MAX 1024

struct node {
    int fd;
    struct strbuf in;
    struct rdzv_whose last;
};

static struct {
    struct loop *loop;
    struct rdzv_listener *listener;
    struct rdzv_server *server;
    struct addr at, store;
    unsigned n_owned;
    uint32_t ids[OWNED_MAX];
    struct peer_owner owned[OWNED_MAX];
} w;

static void on_owner(void *arg, uint32_t id, const struct peer_owner *owned) {
    cr_assert_lt(w.n_owned, OWNED_MAX);
    w.ids[w.n_owned] = id;
    w.owned[w.n_owned++] = *owned;
}

/* 10.9.9.1 ... 10.9.9.4 */
static void be_alone(void) {
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        cr_skip_test("no network namespace for us");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &up), 0);
    for (unsigned i = 1; i <= 4; i++) {
        struct ifreq more = {0};
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a090900 + i)};
        (void)snprintf(more.ifr_name, sizeof more.ifr_name, "lo:%u", i);
        memcpy(&more.ifr_addr, &in, sizeof in);
        cr_assert_eq(ioctl(fd, SIOCSIFADDR, &more), 0);
    }
    (void)close(fd);
}

static struct addr literal(const char *host, uint16_t port) {
    struct addr a;
    cr_assert_eq(addr_from_literal(host, port, &a), 0, "%s", host);
    return a;
}

static void begin(void) {
    memset(&w, 0, sizeof w);
    be_alone();
    cr_assert_eq(loop_new(&w.loop), 0);
    w.listener = rdzv_listener_new(w.loop, &(struct rdzv_listener_config){.incarnation = 42, .run_id = "run"});
    rdzv_listener_add(w.listener, listen_at("10.9.9.1", &w.at));
    struct group_config g;
    group_config_default(&g);
    g.leader_incarnation = 42;
    g.rdzv.min_nodes = g.rdzv.max_nodes = 4;
    struct rdzv_server_config config = {.listener_port = addr_port(&w.at), .parts = {.owners = {on_owner, NULL}}};
    cr_assert_eq(rdzv_server_new(w.loop, &g, &config, &w.server), 0);
    rdzv_listener_serve(w.listener, w.server);
    w.store = literal("10.9.9.1", 4711);
}

static void finish(void) {
    rdzv_listener_free(w.listener);
    rdzv_server_free(w.server);
    loop_free(w.loop);
}

TestSuite(server_whose_io, .init = begin, .fini = finish, .timeout = 60);

static void join(struct node *n, const char *from, uint64_t incarnation, const char *addrs) {
    struct addr own = literal(from, 0);
    *n = (struct node){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    cr_assert_eq(bind(n->fd, (struct sockaddr *)&own.ss, own.len), 0);
    cr_assert_eq(connect(n->fd, (struct sockaddr *)&w.at.ss, w.at.len), 0, "%s", strerror(errno));
    struct wire_message m = join_of(incarnation);
    (void)snprintf(m.join.addrs, sizeof m.join.addrs, "%s", addrs);
    send_message(n->fd, &call_message);
    send_message(n->fd, &m);
}

static void leave(struct node *n) {
    (void)close(n->fd);
    strbuf_fini(&n->in);
}

/* Takes the next message. False: there is none yet. */
static bool hear(struct node *n, struct wire_message *m) {
    uint8_t bytes[4096];
    ssize_t got = recv(n->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    size_t size = 0;
    if (got > 0)
        strbuf_add_bytes(&n->in, bytes, (size_t)got);
    if (frame_size((const uint8_t *)n->in.data, n->in.len, WIRE_MESSAGE_MAX, &size) != 0 || size > n->in.len)
        return false;
    cr_assert_eq(wire_decode(n->in.data + FRAME_HEADER_BYTES, size - FRAME_HEADER_BYTES, m, NULL), 0);
    memmove(n->in.data, n->in.data + size, n->in.len - size);
    n->in.len -= size;
    return true;
}

static void wait_for(struct node *n, enum wire_kind kind) {
    static struct wire_message m;
    for (;;) {
        while (hear(n, &m)) {
            if (m.kind == WIRE_WHOSE)
                n->last = m.whose;
            if (m.kind == kind)
                return;
        }
        cr_assert_eq(loop_turn(w.loop), 0);
    }
}

Test(server_whose_io, who_says_that_it_is_a_node_that_is_there_is_refused) {
    struct node node, thief, own, back;
    join(&node, "10.9.9.2", 7, "");
    wait_for(&node, WIRE_WELCOME);
    join(&thief, "10.9.9.3", 7, "");
    wait_for(&thief, WIRE_REFUSED);
    join(&own, "10.9.9.3", 42, ""); /* the leader's */
    wait_for(&own, WIRE_REFUSED);
    join(&back, "10.9.9.2", 7, "");
    wait_for(&back, WIRE_WELCOME); /* from where it was */
    leave(&node);
    leave(&thief);
    leave(&own);
    leave(&back);
}

Test(server_whose_io, a_node_that_is_gone_may_come_back_from_elsewhere) {
    struct node node, back;
    join(&node, "10.9.9.2", 7, "");
    wait_for(&node, WIRE_WELCOME);
    leave(&node);
    rig_loop_turns(w.loop, 50);
    join(&back, "10.9.9.3", 7, "");
    wait_for(&back, WIRE_WELCOME);
    leave(&back);
}

static bool hears_nothing_of(struct node *n, enum wire_kind kind) {
    static struct wire_message m;
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(loop_turn(w.loop), 0);
        while (hear(n, &m))
            if (m.kind == kind)
                return false;
    }
    return true;
}

/* All ports of the last question get this word. */
static void answer(struct node *n, enum peer_owner_kind owner) {
    struct wire_message m = {.kind = WIRE_OWNER, .owner = {.id = n->last.id, .uid = 7, .n = n->last.n}};
    for (uint32_t i = 0; i < n->last.n; i++)
        m.owner.list[i] = owner;
    send_message(n->fd, &m);
}

static void wait_owned(unsigned n) {
    rig_loop_until(w.loop, w.n_owned >= n);
    cr_assert_eq(w.n_owned, n);
}

static enum peer_source source(const char *host) { return rdzv_server_source(w.server, AT(literal(host, 5000))); }

static void ask(const char *host, uint16_t port, uint32_t id) {
    rdzv_server_whose(w.server, AT(literal(host, port)), &w.store, id);
}

/* Joins, and says this of its own connection when it is first asked. */
static void join_known(struct node *n, const char *from, uint64_t incarnation, const char *addrs,
                       enum peer_owner_kind owner) {
    join(n, from, incarnation, addrs);
    wait_for(n, WIRE_WELCOME);
    ask(from, 1, 999);
    wait_for(n, WIRE_WHOSE);
    answer(n, owner);
    wait_for(n, WIRE_WHOSE);
    answer(n, PEER_CLOSED);
    wait_owned(1);
    w.n_owned = 0;
}

Test(server_whose_io, addresses_are_those_of_the_connection_and_of_join) {
    _cleanup_(leave) struct node n;
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_UNKNOWN);
    join(&n, "10.9.9.2", 1, "10.9.9.2,nonsense,,10.7.7.7,fd00::7,127.0.0.1");
    wait_for(&n, WIRE_WELCOME);
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_MEMBER);
    cr_assert_eq(source("::ffff:10.9.9.2"), PEER_SOURCE_MEMBER);
    cr_assert_eq(source("10.7.7.7"), PEER_SOURCE_MEMBER);
    cr_assert_eq(source("fd00::7"), PEER_SOURCE_MEMBER);
    cr_assert_eq(source("127.0.0.1"), PEER_SOURCE_UNKNOWN);
    cr_assert_eq(source("10.9.9.3"), PEER_SOURCE_UNKNOWN);
}

Test(server_whose_io, more_addresses_than_fit_are_left_out) {
    _cleanup_(leave) struct node n;
    char addrs[RDZV_OWN_ADDRS_MAX] = "";
    for (unsigned i = 0; i < 2 * RDZV_OWN_ADDRS; i++) {
        size_t len = strlen(addrs);
        (void)snprintf(addrs + len, sizeof addrs - len, "%s10.7.7.%u", len > 0 ? "," : "", i);
    }
    join(&n, "10.9.9.2", 1, addrs);
    wait_for(&n, WIRE_WELCOME);
    cr_assert_eq(source("10.7.7.15"), PEER_SOURCE_MEMBER);
    cr_assert_eq(source("10.7.7.16"), PEER_SOURCE_UNKNOWN);
}

Test(server_whose_io, the_first_question_is_about_the_connection_itself) {
    _cleanup_(leave) struct node n;
    struct addr own;
    join(&n, "10.9.9.2", 1, "");
    wait_for(&n, WIRE_WELCOME);
    cr_assert(hears_nothing_of(&n, WIRE_WHOSE), "only if somebody has to be asked about");
    ask("10.9.9.2", 40000, 5);
    wait_for(&n, WIRE_WHOSE);
    cr_assert_eq(addr_of_socket(n.fd, &own), 0);
    cr_assert(n.last.n == 1 && n.last.ports[0] == addr_port(&own) && n.last.store_port == addr_port(&w.at));
    cr_assert_str_eq(n.last.client, "10.9.9.2");
    cr_assert_str_eq(n.last.store, "10.9.9.1");
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_MEMBER);
    answer(&n, PEER_OURS);
    wait_for(&n, WIRE_WHOSE);
    cr_assert(n.last.n == 1 && n.last.ports[0] == 40000 && n.last.store_port == 4711);
    answer(&n, PEER_OTHER_USER);
    wait_owned(1);
    cr_assert(w.ids[0] == 5 && w.owned[0].kind == PEER_OTHER_USER && w.owned[0].uid == 7);
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_DIRECT);
}

Test(server_whose_io, those_of_one_turn_are_asked_about_together) {
    _cleanup_(leave) struct node n;
    join_known(&n, "10.9.9.2", 1, "10.7.7.7", PEER_OURS);
    for (uint32_t i = 0; i < RDZV_WHOSE_CHUNK + 3; i++)
        ask("10.9.9.2", (uint16_t)(1000 + i), 100 + i);
    ask("10.7.7.7", 9, 9);
    wait_for(&n, WIRE_WHOSE);
    cr_assert_eq(n.last.n, RDZV_WHOSE_CHUNK);
    cr_assert(n.last.ports[0] == 1000 && n.last.ports[255] == 1255);
    struct rdzv_whose first = n.last;
    wait_for(&n, WIRE_WHOSE);
    cr_assert(n.last.n == 3 && n.last.ports[2] == 1258);
    answer(&n, PEER_CLOSED);
    wait_for(&n, WIRE_WHOSE);
    cr_assert(n.last.n == 1 && n.last.ports[0] == 9);
    cr_assert_str_eq(n.last.client, "10.7.7.7");
    wait_owned(3);
    cr_assert(w.ids[0] == 356 && w.ids[2] == 358);
    n.last = first; /* answers may come in any order */
    answer(&n, PEER_OURS);
    wait_owned(3 + RDZV_WHOSE_CHUNK);
    cr_assert(w.ids[3] == 100 && w.owned[3].kind == PEER_OURS);
    answer(&n, PEER_OURS); /* a second time: nobody waits for it */
    cr_assert(hears_nothing_of(&n, WIRE_WHOSE));
    cr_assert_eq(w.n_owned, 3 + RDZV_WHOSE_CHUNK);
}

Test(server_whose_io, behind_a_translation_nobody_can_be_asked) {
    struct node n, other;
    join_known(&n, "10.9.9.2", 1, "10.7.7.7", PEER_ELSEWHERE);
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_TRANSLATED);
    cr_assert_eq(source("10.7.7.7"), PEER_SOURCE_MEMBER, "its own addresses are those of its machine");
    join_known(&other, "10.9.9.2", 2, "", PEER_OURS);
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_DIRECT, "the machine that translates has an agent itself");
    ask("10.9.9.2", 7, 7);
    wait_for(&other, WIRE_WHOSE);
    answer(&other, PEER_ELSEWHERE);
    wait_owned(1);
    cr_assert(w.owned[0].kind == PEER_TRANSLATED, "it may be one of those behind it");
    leave(&n);
    leave(&other);
}

Test(server_whose_io, a_node_that_is_lost_is_asked_when_it_is_back) {
    struct node n;
    join_known(&n, "10.9.9.2", 1, "", PEER_OURS);
    leave(&n);
    rig_loop_until(w.loop, source("10.9.9.2") != PEER_SOURCE_DIRECT);
    cr_assert_eq(source("10.9.9.2"), PEER_SOURCE_MEMBER);
    ask("10.9.9.2", 8, 8);
    join(&n, "10.9.9.2", 1, "");
    wait_for(&n, WIRE_WHOSE);
    cr_assert_eq(n.last.store_port, addr_port(&w.at), "the connection is another one");
    answer(&n, PEER_OURS);
    wait_for(&n, WIRE_WHOSE);
    answer(&n, PEER_OURS);
    wait_owned(1);
    cr_assert(w.ids[0] == 8 && w.owned[0].kind == PEER_OURS);
    leave(&n);
}

Test(server_whose_io, who_answers_for_more_than_was_asked_is_disconnected) {
    _cleanup_(leave) struct node n;
    char byte;
    join_known(&n, "10.9.9.2", 1, "", PEER_OURS);
    ask("10.9.9.2", 8, 8);
    wait_for(&n, WIRE_WHOSE);
    n.last.n = 2;
    answer(&n, PEER_OURS);
    while (hears_nothing_of(&n, WIRE_WHOSE) && recv(n.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0)
        cr_assert_eq(w.n_owned, 0);
}

Test(server_whose_io, a_silent_node_keeps_a_bounded_number_of_questions) {
    _cleanup_(leave) struct node n;
    join_known(&n, "10.9.9.2", 1, "", PEER_OURS);
    for (uint32_t i = 0; i < 200; i++) { /* each in a turn of its own */
        ask("10.9.9.2", (uint16_t)(1 + i), 1 + i);
        wait_for(&n, WIRE_WHOSE);
        if (i == 0 || i == 199)
            answer(&n, PEER_OURS);
        if (i == 0)
            wait_owned(1);
    }
    wait_owned(2);
    cr_assert(w.ids[0] == 1 && w.ids[1] == 200);
    n.last.id -= 150;
    answer(&n, PEER_OURS);
    cr_assert(hears_nothing_of(&n, WIRE_WHOSE));
    cr_assert_eq(w.n_owned, 2, "it was given up");
}
