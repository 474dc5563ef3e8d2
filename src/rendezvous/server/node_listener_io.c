#include "rendezvous/server/server_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "base/list.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/listen.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/server/server_priv.h"
#include "rendezvous/store/tcpstore_wire.h"

#define LISTENER_SOCKETS_MAX 4
#define LISTENER_SOURCES 256 /* addresses share these, by a hash that nobody knows outside */
#define STRANGERS_PAUSE_NS (20 * NS_PER_MS)

enum joiner_state {
    JOINER_SILENT,   /* it has sent nothing yet */
    JOINER_PENDING,  /* its first message is to come; it may wait for a handshake */
    JOINER_SHAKING,  /* its handshake is under way */
    JOINER_PARKED,   /* a node */
    JOINER_OPERATOR, /* moved to the end of its list by each message, and while it waits */
    JOINER_STATES,
};

/* Where callers without a first message come from. */
struct source {
    struct list callers; /* struct joiner, by kin; oldest first */
    size_t n;
    /* of these, by turn: whose handshake is under way, and who waits for one; oldest first */
    struct list shaking, waiting;
    size_t n_shaking;
};

struct rdzv_listener {
    struct loop *loop;
    struct rdzv_listener_config config;
    struct rdzv_server *server; /* borrowed; NULL: this agent does not lead */
    enum member_join_policy join_policy;
    struct rdzv_peer leader; /* REDIRECTED */
    uint32_t leader_epoch;
    struct listener *sockets[LISTENER_SOCKETS_MAX];
    size_t n_sockets;
    struct addr chosen[RDZV_CHOSEN_MAX]; /* rdzv_listener_choose() */
    size_t n_chosen;                     /* 0: all are; more than there is room for: the same */
    struct list joiners[JOINER_STATES];  /* of each state, in the order in which they entered it */
    size_t n[JOINER_STATES];             /* their numbers */
    size_t n_waiting;                    /* for a handshake */
    struct source sources[LISTENER_SOURCES]; /* of JOINER_SILENT to JOINER_SHAKING */
    uint64_t source_seed;
    size_t unknown_max;
    struct idmap parked_by_incarnation;
    bool paused;
    /* when the next stranger can be accepted, by the rate; may be ahead of now */
    uint64_t spent_until_ns;
    /* for the next deadline, and for accepting strangers again */
    struct loop_timer *timer;
};

/* Without another owner: a probe, a node that joins or is parked, an operator, or unknown. */
struct joiner {
    struct list link;
    enum joiner_state state;
    struct list kin;       /* until its first message */
    struct source *source; /* the same; NULL: no more */
    struct list turn;      /* while its handshake is under way, or waits */
    uint64_t shaking_ns;   /* since when */
    struct rdzv_listener *listener;
    struct conn *conn;         /* owned; NULL before its first bytes: */
    int fd;                    /* owned until it is the conn's */
    struct loop_watch *first;  /* waits for the first bytes */
    bool called;               /* CALL has come */
    bool ours;                 /* PEER_OURS, by the kernel */
    bool store_only;           /* the gate refuses it */
    uint64_t since_ns;         /* when it came */
    uint64_t deadline_ns;      /* parked: TIME_NEVER */
    struct rdzv_asking asking; /* if it is an operator */
    uint64_t incarnation;      /* parked */
    char *join;                /* parked: its JOIN in the format of the wire, which is short */
    size_t join_len;
};

/* An IPv6 host has a whole network of 64 bits. */
static struct source *source_of(struct rdzv_listener *l, const struct addr *peer) {
    struct addr a = addr_unmapped(peer);
    uint8_t host[sizeof(struct in6_addr)];
    size_t size = addr_raw(&a, host);
    uint64_t h = hash_bytes(HASH_BEGIN, &l->source_seed, sizeof l->source_seed);
    h = hash_bytes(h, host, MIN2(size, (size_t)8));
    return &l->sources[(h ^ h >> 32) % LISTENER_SOURCES];
}

static void leave_source(struct joiner *c) {
    if (c->source == NULL)
        return;
    list_remove(&c->kin);
    TAKE_PTR(c->source)->n--;
}

static size_t n_unknown(const struct rdzv_listener *l) {
    return l->n[JOINER_SILENT] + l->n[JOINER_PENDING] + l->n[JOINER_SHAKING];
}

/* Of more connections than are held, the oldest goes whose source has most. NULL: there is room. */
static struct joiner *superfluous(const struct rdzv_listener *l) {
    const struct source *most = &l->sources[0];
    if (n_unknown(l) < l->unknown_max)
        return NULL;
    for (size_t i = 1; i < LISTENER_SOURCES; i++)
        if (l->sources[i].n > most->n)
            most = &l->sources[i];
    return LIST_FIRST(struct joiner, &most->callers, kin);
}

/* When there is room for one more: nodes that come together have a moment. */
static uint64_t next_room_ns(const struct rdzv_listener *l) {
    const struct joiner *c = superfluous(l);
    return c == NULL ? 0 : c->since_ns + RDZV_ROOM_NS;
}

/* While a group runs, its leases come first: strangers get only a share of a core in the long run.
 * Else there is nothing that they could delay. */
static bool is_limited(const struct rdzv_listener *l) {
    return l->server != NULL && group_state(rdzv_server_group(l->server)) != GROUP_GATHERING;
}

/* When the next stranger can be accepted. If that is now or earlier, it can be accepted now. */
static uint64_t next_stranger_ns(const struct rdzv_listener *l) {
    const uint64_t ahead_ns = RDZV_STRANGERS_BURST * RDZV_STRANGER_NS;
    return !is_limited(l) || l->spent_until_ns < ahead_ns ? 0 : l->spent_until_ns - ahead_ns;
}

static void count_stranger(struct rdzv_listener *l, uint64_t now) {
    if (is_limited(l))
        l->spent_until_ns = MAX2(l->spent_until_ns, now) + RDZV_STRANGER_NS;
}

/* The other half of the descriptors is for workers, nodes and the store. */
static size_t unknown_max(void) { return MIN2(file_limit() / 2, (size_t)RDZV_PENDING_MAX); }

/* The source of those that wait with the fewest handshakes under way. */
static const struct source *next_source(const struct rdzv_listener *l) {
    const struct source *next = NULL;
    for (size_t i = 0; i < LISTENER_SOURCES; i++) {
        const struct source *s = &l->sources[i];
        if (!list_empty(&s->waiting) && (next == NULL || s->n_shaking < next->n_shaking))
            next = s;
    }
    return next;
}

/* The oldest handshake of the source that has most, if it has more than its share. */
static struct joiner *greedy(const struct rdzv_listener *l) {
    const struct source *most = &l->sources[0], *next = next_source(l);
    for (size_t i = 1; i < LISTENER_SOURCES; i++)
        if (l->sources[i].n_shaking > most->n_shaking)
            most = &l->sources[i];
    if (next == NULL || next->n_shaking + 1 >= most->n_shaking)
        return NULL;
    return LIST_FIRST(struct joiner, &most->shaking, turn);
}

/* When serve_waiting() has something to do; TIME_NEVER: never. */
static uint64_t next_handshake_ns(const struct rdzv_listener *l) {
    if (l->n_waiting == 0)
        return TIME_NEVER;
    if (l->n[JOINER_SHAKING] < RDZV_HANDSHAKES_MAX)
        return 0;
    const struct joiner *c = greedy(l);
    return c == NULL ? TIME_NEVER : c->shaking_ns + RDZV_HANDSHAKE_ROOM_NS;
}

/* ---- joiners ---- */

static void update_interest(struct rdzv_listener *l) {
    uint64_t now = clock_now_ns(), next_ns = next_stranger_ns(l), room_ns = next_room_ns(l);
    bool too_many = next_ns > now, full = room_ns > now;
    uint64_t at = next_handshake_ns(l);
    for (size_t i = 0; i < JOINER_STATES; i++)
        if (!list_empty(&l->joiners[i]))
            at = MIN2(at, LIST_FIRST(struct joiner, &l->joiners[i], link)->deadline_ns);
    at = full ? MIN2(at, room_ns) : at;
    /* so that several are accepted at once, not each separately */
    loop_timer_set(l->timer, too_many ? MIN2(at, next_ns + STRANGERS_PAUSE_NS) : at);
    if ((too_many || full) == l->paused)
        return;
    l->paused = too_many || full;
    for (size_t i = 0; i < l->n_sockets; i++) {
        if (l->paused)
            listener_pause(l->sockets[i]);
        else
            listener_retry(l->sockets[i]);
    }
}

/* It is in no list any more. */
static void leave_state(struct joiner *c) {
    list_remove(&c->link);
    c->listener->n[c->state]--;
    if (list_linked(&c->turn)) {
        if (c->state == JOINER_SHAKING)
            c->source->n_shaking--;
        else
            c->listener->n_waiting--;
    }
    list_remove(&c->turn);
}

static void move(struct joiner *c, enum joiner_state to) {
    leave_state(c);
    c->state = to;
    list_append(&c->listener->joiners[to], &c->link);
    c->listener->n[to]++;
    if (to > JOINER_SHAKING)
        leave_source(c);
    update_interest(c->listener);
}

/* Frees `c`, and returns its connection, which the calling function must end or pass on. */
static _must_use_ struct conn *take(struct joiner *c) {
    struct conn *conn = c->conn;
    struct rdzv_listener *l = c->listener;
    loop_watch_free(c->first);
    file_close(&c->fd);
    leave_state(c);
    leave_source(c);
    server_asking_end(&c->asking);
    if (c->incarnation != 0)
        idmap_remove(&l->parked_by_incarnation, c->incarnation);
    free(c->join);
    free(c);
    update_interest(l);
    return conn;
}

/* ---- handshakes ---- */

static void begin(struct joiner *c) {
    c->shaking_ns = clock_now_ns();
    c->deadline_ns = c->shaking_ns + RDZV_HANDSHAKE_NS;
    move(c, JOINER_SHAKING);
    list_append(&c->source->shaking, &c->turn);
    c->source->n_shaking++;
}

static bool on_handshake(void *arg, struct conn *conn) {
    struct joiner *c = arg;
    struct rdzv_listener *l = c->listener;
    if (l->n[JOINER_SHAKING] < RDZV_HANDSHAKES_MAX && l->n_waiting == 0) {
        begin(c);
        return true;
    }
    list_append(&c->source->waiting, &c->turn);
    l->n_waiting++;
    update_interest(l);
    return false;
}

/* Begins handshakes that wait, as far as there is room, and makes room. */
static void serve_waiting(struct rdzv_listener *l) {
    uint64_t now = clock_now_ns();
    while (next_handshake_ns(l) <= now && !loop_slice_is_over(l->loop)) {
        struct joiner *c = l->n[JOINER_SHAKING] < RDZV_HANDSHAKES_MAX ? NULL : greedy(l);
        if (c != NULL)
            conn_free(take(c));
        const struct source *next = next_source(l);
        c = next == NULL ? NULL : LIST_FIRST(struct joiner, &next->waiting, turn);
        if (c == NULL)
            return;
        begin(c);
        conn_go_on(c->conn);
    }
}

/* ---- nodes ---- */

static void redirect(struct joiner *c) {
    const struct rdzv_listener *l = c->listener;
    conn_send(c->conn,
              &(struct wire_message){.kind = WIRE_REDIRECT,
                                     .redirect = {.epoch = l->leader_epoch, .leader = l->leader}});
    conn_finish(take(c));
}

static void report_joiner(const struct rdzv_listener *l, uint64_t incarnation, bool came) {
    if (l->config.joiner != NULL)
        l->config.joiner(l->config.arg, incarnation, came);
}

static void unpark(struct joiner *c) {
    const struct rdzv_listener *l = c->listener;
    uint64_t incarnation = c->incarnation;
    conn_free(take(c));
    report_joiner(l, incarnation, false);
}

static void on_parked_message(void *arg, struct conn *conn, const struct wire_message *m) {
    struct joiner *c = arg;
    log_debug("rendezvous: node %016" PRIx64 " sent %s before its WELCOME; closed", c->incarnation,
              wire_kind_name(m->kind));
    unpark(c);
}

static void on_parked_closed(void *arg, struct conn *conn, int code, const char *text) {
    unpark(arg);
}

static const struct conn_ops parked_ops = {.on_message = on_parked_message,
                                           .on_closed = on_parked_closed};

static void park(struct joiner *c, const struct wire_message *m) {
    struct rdzv_listener *l = c->listener;
    uint64_t incarnation = m->join.info.incarnation;
    struct joiner *before = idmap_get(&l->parked_by_incarnation, incarnation);
    if (before == NULL && l->n[JOINER_PARKED] >= RDZV_NODES_MAX) {
        conn_refuse(take(c), false, "more nodes wait there than a job may have");
        return;
    }
    if (before != NULL) /* the node came back on a new connection */
        conn_free(take(before));
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(m, &text);
    c->join = xstrndup(strbuf_text(&text), text.len);
    c->join_len = text.len;
    c->incarnation = incarnation;
    idmap_put(&l->parked_by_incarnation, incarnation, c);
    conn_set_owner(c->conn, &parked_ops, c);
    if (l->config.lease_ns > 0)
        conn_set_patience(c->conn, l->config.lease_ns, l->config.heartbeat_ns);
    c->deadline_ns = TIME_NEVER;
    move(c, JOINER_PARKED);
    if (before == NULL)
        report_joiner(l, incarnation, true);
}

static void hand_over(struct joiner *c) {
    struct rdzv_server *server = c->listener->server;
    struct wire_message m;
    int r = wire_decode(c->join, c->join_len, &m, NULL);
    struct conn *conn = take(c);
    if (r == 0)
        rdzv_server_join(server, conn, &m.join);
    else
        conn_free(conn); /* out of memory: the node will try again */
}

static void treat(struct joiner *c) {
    switch (c->listener->join_policy) {
    case JOIN_POLICY_SENT_AWAY: conn_refuse(take(c), false, "the agent there does not lead"); break;
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
        conn_refuse(take(c), true, why);
    } else if (strcmp(join->run_id, l->config.run_id) != 0) {
        (void)snprintf(
            why, sizeof why,
            "this node belongs to the run '%s', and the leader to the run '%s'; give all "
            "nodes of a job the same --rdzv-id, and each job an endpoint of its own",
            join->run_id, l->config.run_id);
        conn_refuse(take(c), true, why);
    } else if (join->info.incarnation == l->config.incarnation && !conn_is_within_host(c->conn)) {
        conn_refuse(take(c), false, "this agent's own node joins from this agent's own machine");
    } else if (l->join_policy == JOIN_POLICY_PARKED) {
        park(c, m);
    } else if (l->join_policy == JOIN_POLICY_SERVED) {
        struct rdzv_server *server = l->server;
        rdzv_server_join(server, take(c), join);
    } else {
        treat(c);
    }
}

/* Handles parked callers in order. That can change the policy, but never adds to the list. */
static void treat_parked(struct rdzv_listener *l) {
    struct joiner *c;
    while (l->join_policy != JOIN_POLICY_PARKED &&
           (c = LIST_FIRST(struct joiner, &l->joiners[JOINER_PARKED], link)) != NULL)
        treat(c);
}

void rdzv_listener_serve(struct rdzv_listener *l, struct rdzv_server *server) {
    l->server = server;
    l->join_policy = server != NULL ? JOIN_POLICY_SERVED : JOIN_POLICY_SENT_AWAY;
    treat_parked(l);
}

void rdzv_listener_join_policy(struct rdzv_listener *l, enum member_join_policy join_policy,
                               const struct rdzv_peer *leader, uint32_t epoch) {
    assert(join_policy != JOIN_POLICY_SERVED || l->server != NULL);
    if (join_policy != JOIN_POLICY_SERVED)
        l->server = NULL;
    l->join_policy = join_policy;
    if (join_policy == JOIN_POLICY_REDIRECTED) {
        l->leader = *leader;
        l->leader_epoch = epoch;
        server_hide_loopback(l->leader.addr);
    }
    treat_parked(l);
}

/* ---- operators ---- */

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
        conn_answer(c->conn, false, why);
    } else if (w->run_id[0] != '\0' && strcmp(w->run_id, l->config.run_id) != 0) {
        char why[RDZV_REASON_MAX / 4];
        (void)snprintf(why, sizeof why, "this agent belongs to the run '%.200s', not to '%.200s'",
                       l->config.run_id, w->run_id);
        conn_answer(c->conn, false, why);
    } else if (w->command.kind == COMMAND_LEAVE) {
        answer_leave(c, &w->command);
    } else if (l->server == NULL && l->config.find_leader != NULL &&
               l->config.find_leader(l->config.arg, &m.redirect.epoch, &m.redirect.leader) &&
               m.redirect.leader.incarnation != l->config.incarnation) {
        conn_send(c->conn, &m);
    } else if (l->server == NULL) {
        conn_answer(c->conn, false, "no leader is known here; try again, or ask another node");
    } else if (w->command.kind == COMMAND_STATUS) {
        rdzv_server_status(l->server, &c->asking);
    } else if (w->command.kind == COMMAND_STACKS) {
        rdzv_server_stacks(l->server, &w->command, &c->asking);
    } else {
        rdzv_server_command(l->server, &w->command, c->conn);
    }
}

static void on_operator_message(void *arg, struct conn *conn, const struct wire_message *m) {
    struct joiner *c = arg;
    if (m->kind != WIRE_COMMAND || list_linked(&c->asking.link)) {
        log_debug("rendezvous: an operator sent %s%s; closed", wire_kind_name(m->kind),
                  list_linked(&c->asking.link) ? " before the answer to its last question" : "");
        conn_free(take(c));
        return;
    }
    c->deadline_ns = clock_now_ns() + RDZV_OPERATOR_SILENCE_NS;
    move(c, JOINER_OPERATOR);
    on_command(c, &m->command);
}

static void on_closed(void *arg, struct conn *conn, int code, const char *text) {
    if (code == -EPROTO)
        log_debug("rendezvous: a connection violates the protocol: %s; closed", text);
    conn_free(take(arg));
}

static const struct conn_ops operator_ops = {.on_message = on_operator_message,
                                             .on_closed = on_closed};

static void on_first_command(struct joiner *c, const struct wire_message *m) {
    if (c->listener->n[JOINER_OPERATOR] >= RDZV_OPERATORS_MAX) {
        conn_answer(c->conn, false, "too many operators ask this agent at the moment; try again");
        conn_finish(take(c));
        return;
    }
    conn_set_owner(c->conn, &operator_ops, c);
    on_operator_message(c, c->conn, m);
}

/* ---- the first message ---- */

static void on_message(void *arg, struct conn *conn, const struct wire_message *m) {
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
        conn_free(take(c));
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
    if (c->state != JOINER_SHAKING)
        return;
    c->deadline_ns = clock_now_ns() + l->config.first_word_ns;
    move(c, JOINER_PENDING);
}

static const struct conn_ops pending_ops = {.on_message = on_message,
                                            .on_closed = on_closed,
                                            .on_open = on_open,
                                            .on_handshake = on_handshake};

/* ---- accepting ---- */

static int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* The descriptor becomes readable when it has so many bytes, or has ended. tcp(7): SO_RCVLOWAT */
static void wait_for_bytes(int fd, int bytes) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

/* A client of the store would have been admitted; the gate tells who this one is. */
static void refuse_store_client(struct joiner *c) {
    struct addr peer;
    if (addr_of_peer(c->fd, &peer) == 0)
        (void)!peer_gate_admits(c->listener->config.gate, c->fd, &peer);
    conn_free(take(c));
}

static void greet(struct joiner *c) {
    struct rdzv_listener *l = c->listener;
    if (c->store_only) {
        refuse_store_client(c);
        return;
    }
    c->deadline_ns = clock_now_ns() + l->config.first_word_ns;
    move(c, JOINER_PENDING);
    loop_watch_free(TAKE_PTR(c->first));
    wait_for_bytes(c->fd, 1);
    c->conn = conn_new(l->loop, take_fd(&c->fd), l->config.auth, &pending_ops, c);
    c->asking.conn = c->conn;
    if (c->ours)
        conn_is_ours(c->conn);
}

static void pass_to_store(struct joiner *c) {
    const struct rdzv_listener *l = c->listener;
    int fd = -1;
    if (l->config.store_client != NULL) {
        fd = take_fd(&c->fd);
        wait_for_bytes(fd, 1);
    }
    conn_free(take(c));
    if (fd >= 0)
        l->config.store_client(l->config.arg, fd);
}

/* Looks at the first bytes without reading them. False: there are not enough yet. */
static bool recognize(struct joiner *c) {
    uint8_t bytes[TCPSTORE_FIRST_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n < (ssize_t)sizeof bytes)
        return false;
    if (tcpstore_begins(bytes))
        pass_to_store(c);
    else
        greet(c);
    return true;
}

/* There are as many bytes as were asked for, or there will never be. */
static void on_first_bytes(void *arg, int fd, unsigned events) {
    struct joiner *c = arg;
    if (!recognize(c))
        conn_free(take(c));
}

static bool is_chosen(const struct rdzv_listener *l, const struct addr *at) {
    for (size_t i = 0; i < l->n_chosen; i++)
        if (addr_same_host(&l->chosen[i], at))
            return true;
    return false;
}

/* Whether it came to an address at which the job uses this port, or from this machine. */
static bool is_at_chosen(const struct rdzv_listener *l, int fd, const struct addr *peer) {
    struct addr at;
    if (l->n_chosen == 0 || l->n_chosen > RDZV_CHOSEN_MAX || addr_of_socket(fd, &at) < 0 ||
        addr_port(&at) != addr_port(&l->chosen[0]))
        return true;
    return is_chosen(l, &at) || addr_is_loopback(&at) || addr_same_host(&at, peer);
}

void rdzv_listener_choose(struct rdzv_listener *l, const struct addr *at) {
    if (is_chosen(l, at) || l->n_chosen > RDZV_CHOSEN_MAX)
        return;
    if (l->n_chosen < RDZV_CHOSEN_MAX)
        l->chosen[l->n_chosen] = *at;
    l->n_chosen++;
}

static bool admits(const struct rdzv_listener *l, int fd, const struct addr *peer,
                   struct peer_owner *ret) {
    *ret = l->config.store_for_all ? peer_gate_owner(l->config.gate, fd, peer)
                                   : peer_gate_judge(l->config.gate, fd, peer);
    return l->config.store_for_all || peer_owner_is_served(*ret);
}

static void on_accept(void *arg, int fd, const struct addr *peer) {
    struct rdzv_listener *l = arg;
    struct peer_owner owner;
    if (!is_at_chosen(l, fd, peer) || !admits(l, fd, peer, &owner)) {
        (void)close(fd);
        return;
    }
    struct joiner *c = superfluous(l);
    if (c != NULL)
        conn_free(take(c));
    c = xcalloc(1, sizeof *c);
    *c = (struct joiner){.listener = l, .fd = fd, .source = source_of(l, peer)};
    c->ours = owner.kind == PEER_OURS;
    c->store_only = !peer_owner_is_served(owner);
    list_init(&c->asking.link);
    list_init(&c->turn);
    uint64_t now = clock_now_ns();
    c->since_ns = now;
    c->deadline_ns = now + l->config.first_bytes_ns;
    count_stranger(l, now);
    list_append(&l->joiners[JOINER_SILENT], &c->link);
    l->n[JOINER_SILENT]++;
    list_append(&c->source->callers, &c->kin);
    c->source->n++;
    if (l->n[JOINER_SILENT] == 1 || n_unknown(l) >= l->unknown_max || next_stranger_ns(l) > now)
        update_interest(l);
    if (recognize(c))
        return;
    wait_for_bytes(fd, TCPSTORE_FIRST_BYTES);
    c->first = loop_watch_new(l->loop, fd, LOOP_READ, LOOP_PRIO_BULK, on_first_bytes, c);
}

static void drop_shaking(struct joiner *c) {
    struct addr peer;
    if (conn_peer_addr(c->conn, &peer) == 0)
        auth_refused(c->listener->config.auth, &peer, "it did not complete its handshake in time");
    conn_free(take(c));
}

/* The rest in a later turn. If this process is late itself, they may have sent something
 * meanwhile. */
static void drop_late(struct rdzv_listener *l, const struct list *joiners, uint64_t now) {
    struct joiner *c;
    while ((c = LIST_FIRST(struct joiner, joiners, link)) != NULL && c->deadline_ns <= now &&
           !loop_slice_is_over(l->loop))
        if (c->state == JOINER_SHAKING) {
            drop_shaking(c);
        } else if (c->asking.until_ns > now) {
            c->deadline_ns = MIN2(c->asking.until_ns, now + RDZV_OPERATOR_SILENCE_NS);
            move(c, JOINER_OPERATOR);
        } else if (c->state != JOINER_SILENT || !recognize(c)) {
            conn_free(take(c));
        }
}

static void on_timer(void *arg) {
    struct rdzv_listener *l = arg;
    uint64_t now = clock_now_ns();
    for (size_t i = 0; i < JOINER_STATES; i++)
        drop_late(l, &l->joiners[i], now);
    serve_waiting(l);
    update_interest(l);
}

struct rdzv_listener *rdzv_listener_new(struct loop *loop,
                                        const struct rdzv_listener_config *config) {
    struct rdzv_listener *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->config = *config;
    if (l->config.first_bytes_ns == 0)
        l->config.first_bytes_ns = RDZV_FIRST_BYTES_NS;
    if (l->config.first_word_ns == 0)
        l->config.first_word_ns = RDZV_FIRST_WORD_NS;
    l->unknown_max = unknown_max();
    l->join_policy = JOIN_POLICY_SENT_AWAY;
    l->parked_by_incarnation.seed = random_u64();
    l->source_seed = random_u64();
    for (size_t i = 0; i < LISTENER_SOURCES; i++) {
        list_init(&l->sources[i].callers);
        list_init(&l->sources[i].shaking);
        list_init(&l->sources[i].waiting);
    }
    for (size_t i = 0; i < JOINER_STATES; i++)
        list_init(&l->joiners[i]);
    l->timer = loop_timer_new(loop, on_timer, l);
    return l;
}

void rdzv_listener_add(struct rdzv_listener *l, int fd) {
    assert(l->n_sockets < LISTENER_SOCKETS_MAX);
    l->sockets[l->n_sockets] = listener_new(l->loop, fd, on_accept, l);
    if (l->paused)
        listener_pause(l->sockets[l->n_sockets]);
    l->n_sockets++;
}

void rdzv_listener_free(struct rdzv_listener *l) {
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_sockets; i++)
        listener_free(l->sockets[i]);
    l->n_sockets = 0;
    for (size_t i = 0; i < JOINER_STATES; i++)
        LIST_FOR_EACH(struct joiner, c, &l->joiners[i], link) {
            conn_finish(take(c));
        }
    idmap_fini(&l->parked_by_incarnation);
    loop_timer_free(l->timer);
    free(l);
}
