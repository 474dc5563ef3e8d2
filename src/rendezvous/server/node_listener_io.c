#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/clock.h"
#include "io/net/listen.h"
#include "rendezvous/server/node_listener_priv.h"
#include "rendezvous/store/tcpstore_wire.h"

#define STRANGERS_PAUSE_NS (20 * NS_PER_MS)

static int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

static uint64_t first_deadline(const struct list *callers) {
    const struct joiner *first = LIST_FIRST(struct joiner, callers, link);
    return first == NULL ? TIME_NEVER : first->deadline_ns;
}

/* While a group is formed, its leases come first, so strangers get only a share of a core in the
 * long run. While nodes are gathered, or if this agent does not lead, there is nothing that
 * strangers could delay. */
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
static size_t pending_max(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return RDZV_PENDING_MAX;
    return (size_t)MIN2(files.rlim_cur / 2, (rlim_t)RDZV_PENDING_MAX);
}

/* ---- sources ---- */

/* An IPv6 host has a whole network of 64 bits. */
static struct source *source_of(struct rdzv_listener *l, const struct addr *peer) {
    struct addr a = addr_unmapped(peer);
    bool v4 = a.ss.ss_family == AF_INET;
    const void *host = v4 ? (const void *)&((const struct sockaddr_in *)&a.ss)->sin_addr
                          : (const void *)&((const struct sockaddr_in6 *)&a.ss)->sin6_addr;
    uint64_t h = hash_bytes(HASH_BEGIN, &l->source_seed, sizeof l->source_seed);
    h = hash_bytes(h, host, v4 ? 4 : 8);
    return &l->sources[(h ^ h >> 32) % LISTENER_SOURCES];
}

static void leave_source(struct joiner *c) {
    if (c->source == NULL)
        return;
    list_remove(&c->kin);
    TAKE_PTR(c->source)->n--;
}

/* Of more connections than are held, the oldest goes whose source has most. NULL: there is room. */
static struct joiner *superfluous(const struct rdzv_listener *l) {
    const struct source *most = &l->sources[0];
    if (l->n_pending < l->pending_max)
        return NULL;
    for (size_t i = 1; i < LISTENER_SOURCES; i++)
        if (l->sources[i].n > most->n)
            most = &l->sources[i];
    return LIST_FIRST(struct joiner, &most->callers, kin);
}

/* When there is room for one more. Nobody goes at once: nodes that come together need a moment. */
static uint64_t next_room_ns(const struct rdzv_listener *l) {
    const struct joiner *c = superfluous(l);
    return c == NULL ? 0 : c->since_ns + RDZV_ROOM_NS;
}

/* ---- callers ---- */

void listener_update_interest(struct rdzv_listener *l) {
    uint64_t now = clock_now_ns(), next_ns = next_stranger_ns(l), room_ns = next_room_ns(l);
    bool too_many = next_ns > now, full = room_ns > now;
    uint64_t at = MIN2(first_deadline(&l->pending), first_deadline(&l->operators));
    at = MIN2(at, first_deadline(&l->silent));
    at = MIN2(at, first_deadline(&l->shaking));
    at = MIN2(at, listener_next_handshake_ns(l));
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

void listener_move(struct joiner *c, struct list *to, size_t *count) {
    list_remove(&c->link);
    listener_end_handshake(c);
    leave_source(c);
    (*c->count)--;
    list_append(to, &c->link);
    c->count = count;
    (*count)++;
    listener_update_interest(c->listener);
}

struct conn *listener_take(struct joiner *c) {
    struct conn *conn = c->conn;
    struct rdzv_listener *l = c->listener;
    loop_watch_free(c->first);
    if (c->fd >= 0)
        (void)close(c->fd);
    list_remove(&c->link);
    listener_end_handshake(c);
    leave_source(c);
    list_remove(&c->asking.link);
    (*c->count)--;
    if (c->incarnation != 0)
        idmap_remove(&l->parked_by_incarnation, c->incarnation);
    free(c->join);
    free(c);
    listener_update_interest(l);
    return conn;
}

/* The descriptor becomes readable when it has so many bytes, or has ended. tcp(7): SO_RCVLOWAT */
static void wait_for_bytes(int fd, int bytes) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

/* A client of the store would have been admitted; the gate tells who this one is. */
static void refuse(struct joiner *c) {
    struct addr peer;
    if (addr_of_peer(c->fd, &peer) == 0)
        (void)!peer_gate_admits(c->listener->config.gate, c->fd, &peer);
    conn_free(listener_take(c));
}

/* The caller speaks our protocol, or none. */
static void greet(struct joiner *c) {
    struct rdzv_listener *l = c->listener;
    if (c->store_only) {
        refuse(c);
        return;
    }
    list_remove(&c->link);
    list_append(&l->pending, &c->link);
    c->deadline_ns = clock_now_ns() + l->config.first_word_ns;
    loop_watch_free(TAKE_PTR(c->first));
    wait_for_bytes(c->fd, 1);
    if (conn_new(l->loop, take_fd(&c->fd), l->config.auth, &listener_pending_ops, c, &c->conn) <
        0) {
        conn_free(listener_take(c));
        return;
    }
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
    conn_free(listener_take(c));
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
    (void)fd;
    (void)events;
    struct joiner *c = arg;
    if (!recognize(c))
        conn_free(listener_take(c));
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
        conn_free(listener_take(c));
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
    list_append(&l->silent, &c->link);
    list_append(&c->source->callers, &c->kin);
    c->source->n++;
    c->count = &l->n_pending;
    l->n_pending++;
    if (LIST_FIRST(struct joiner, &l->silent, link) == c || l->n_pending >= l->pending_max ||
        next_stranger_ns(l) > now)
        listener_update_interest(l);
    if (recognize(c))
        return;
    wait_for_bytes(fd, TCPSTORE_FIRST_BYTES);
    if (loop_watch_new(l->loop, fd, LOOP_READ, LOOP_PRIO_BULK, on_first_bytes, c, &c->first) < 0)
        conn_free(listener_take(c));
}

static void drop_shaking(struct joiner *c) {
    struct addr peer;
    if (conn_peer_addr(c->conn, &peer) == 0)
        auth_refused(c->listener->config.auth, &peer, "it did not complete its handshake in time");
    conn_free(listener_take(c));
}

/* Drops callers that are late; the rest in a later turn. If this process is late itself, they may
 * have sent something meanwhile. */
static void drop_late(struct rdzv_listener *l, struct list *callers, uint64_t now) {
    struct joiner *c;
    while ((c = LIST_FIRST(struct joiner, callers, link)) != NULL && c->deadline_ns <= now &&
           !loop_slice_is_over(l->loop))
        if (callers == &l->shaking)
            drop_shaking(c);
        else if (callers != &l->silent || !recognize(c))
            conn_free(listener_take(c));
}

static void on_timer(void *arg) {
    struct rdzv_listener *l = arg;
    uint64_t now = clock_now_ns();
    drop_late(l, &l->silent, now);
    drop_late(l, &l->pending, now);
    drop_late(l, &l->shaking, now);
    listener_serve_waiting(l);
    drop_late(l, &l->operators, now);
    listener_update_interest(l);
}

int rdzv_listener_new(struct loop *loop, const struct rdzv_listener_config *config,
                      struct rdzv_listener **ret) {
    struct rdzv_listener *l = xcalloc(1, sizeof *l);
    l->loop = loop;
    l->config = *config;
    if (l->config.first_bytes_ns == 0)
        l->config.first_bytes_ns = RDZV_FIRST_BYTES_NS;
    if (l->config.first_word_ns == 0)
        l->config.first_word_ns = RDZV_FIRST_WORD_NS;
    l->pending_max = pending_max();
    l->join_policy = JOIN_POLICY_SENT_AWAY;
    l->parked_by_incarnation.seed = random_u64();
    l->source_seed = random_u64();
    for (size_t i = 0; i < LISTENER_SOURCES; i++) {
        list_init(&l->sources[i].callers);
        list_init(&l->sources[i].shaking);
        list_init(&l->sources[i].waiting);
    }
    list_init(&l->silent);
    list_init(&l->shaking);
    list_init(&l->pending);
    list_init(&l->parked);
    list_init(&l->operators);
    int r = loop_timer_new(loop, on_timer, l, &l->timer);
    if (r < 0) {
        free(l);
        return r;
    }
    *ret = l;
    return 0;
}

int rdzv_listener_add(struct rdzv_listener *l, int fd) {
    if (l->n_sockets == LISTENER_SOCKETS_MAX) {
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

static void drop_all(struct list *callers) {
    struct joiner *c;
    while ((c = LIST_FIRST(struct joiner, callers, link)) != NULL)
        conn_finish(listener_take(c));
}

void rdzv_listener_free(struct rdzv_listener *l) {
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n_sockets; i++)
        listener_free(l->sockets[i]);
    l->n_sockets = 0;
    drop_all(&l->silent);
    drop_all(&l->pending);
    drop_all(&l->shaking);
    drop_all(&l->parked);
    drop_all(&l->operators);
    idmap_fini(&l->parked_by_incarnation);
    loop_timer_free(l->timer);
    free(l);
}
