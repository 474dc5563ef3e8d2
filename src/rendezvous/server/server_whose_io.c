/* Who owns the clients of the workers' store on other machines: asks the agents at their addresses,
 * with one question for all that come in one turn of the loop. */
#include <string.h>

#include "base/hash.h"
#include "io/clock.h"
#include "rendezvous/server/server_priv.h"

/* Of one node, at once: older ones make room, and then get no answer. */
#define SENT_MAX 128
#define WAITING_MAX 16384
/* Nodes of one address that are compared. Those that have connected from it come first. */
#define COMPARED_MAX 16

/* A node says, or its connection shows, that this address is its machine's. */
struct claim {
    struct list link, of_node;
    struct server_node *node;
    uint8_t host[ADDR_HOST_BYTES];
    bool seen; /* its connection comes from there */
};

/* All claims to one address (or, by chance, to several). */
struct place {
    uint64_t id;
    struct list claims;
};

struct whose_ask {
    struct list link;
    uint32_t id;
    struct addr client, store;
    uint64_t since_ns;
};

struct whose_sent {
    struct list link;
    uint32_t id, n;
    bool own; /* about the node's own connection */
    uint8_t host[ADDR_HOST_BYTES];
    uint32_t asks[RDZV_WHOSE_CHUNK];
};

/* ---- addresses ---- */

static uint64_t place_id(const struct rdzv_server *s, const uint8_t host[ADDR_HOST_BYTES]) {
    uint64_t h = hash_bytes(HASH_BEGIN, &s->whose.seed, sizeof s->whose.seed);
    h = hash_bytes(h, host, ADDR_HOST_BYTES);
    return h == 0 ? 1 : h;
}

static void add_claim(struct server_node *n, const struct addr *addr, bool seen) {
    struct rdzv_server *s = n->server;
    struct claim *c = xcalloc(1, sizeof *c);
    c->node = n;
    c->seen = seen;
    addr_host_bytes(addr, c->host);
    uint64_t id = place_id(s, c->host);
    struct place *p = idmap_get(&s->whose.places, id);
    if (p == NULL) {
        p = xcalloc(1, sizeof *p);
        p->id = id;
        list_init(&p->claims);
        idmap_put(&s->whose.places, id, p);
    }
    if (seen)
        list_prepend(&p->claims, &c->link);
    else
        list_append(&p->claims, &c->link);
    list_append(&n->whose.claims, &c->of_node);
}

static void drop_claims(struct server_node *n) {
    struct rdzv_server *s = n->server;
    struct claim *c;
    while ((c = LIST_FIRST(struct claim, &n->whose.claims, of_node)) != NULL) {
        uint64_t id = place_id(s, c->host);
        struct place *p = idmap_get(&s->whose.places, id);
        list_remove(&c->link);
        list_remove(&c->of_node);
        free(c);
        if (p == NULL || !list_empty(&p->claims))
            continue;
        idmap_remove(&s->whose.places, id);
        free(p);
    }
}

/* What cannot be read is left out. */
static void add_claims(struct server_node *n, const char *addrs, const struct addr *seen) {
    struct addr all[RDZV_OWN_ADDRS];
    size_t n_all = addr_from_list(addrs, 0, all, ARRAY_SIZE(all));
    for (size_t i = 0; i < n_all; i++)
        if (!addr_is_loopback(&all[i]) && !(seen != NULL && addr_same_host(&all[i], seen)))
            add_claim(n, &all[i], false);
}

/* The higher, the better is its word on this address. */
static int weight(const struct claim *c) {
    if (c->node->conn == NULL)
        return 1;
    if (c->seen && c->node->whose.own == PEER_ELSEWHERE)
        return 2; /* its kernel has no such sockets */
    if (!c->seen)
        return 3;
    return c->node->whose.own == PEER_OURS ? 5 : 4;
}

/* NULL: there is none. *ret_translated: a node comes from there whose connection is translated. */
static const struct claim *best_claim(const struct rdzv_server *s,
                                      const uint8_t host[ADDR_HOST_BYTES], bool *ret_translated) {
    struct place *p = idmap_get(&s->whose.places, place_id(s, host));
    const struct claim *best = NULL;
    unsigned left = COMPARED_MAX;
    *ret_translated = false;
    if (p == NULL)
        return NULL;
    LIST_FOR_EACH(struct claim, c, &p->claims, link) {
        if (left-- == 0)
            break;
        if (memcmp(c->host, host, ADDR_HOST_BYTES) != 0)
            continue;
        if (best == NULL || weight(c) > weight(best))
            best = c;
        if (c->seen && c->node->whose.own == PEER_ELSEWHERE)
            *ret_translated = true;
    }
    return best;
}

enum peer_source rdzv_server_source(const struct rdzv_server *s, const struct addr *client) {
    uint8_t host[ADDR_HOST_BYTES];
    bool translated;
    addr_host_bytes(client, host);
    const struct claim *c = best_claim(s, host, &translated);
    if (c == NULL)
        return PEER_SOURCE_UNKNOWN;
    switch (weight(c)) {
    case 2: return PEER_SOURCE_TRANSLATED;
    case 5: return PEER_SOURCE_DIRECT;
    default: return PEER_SOURCE_MEMBER;
    }
}

/* ---- questions ---- */

static struct whose_sent *new_question(struct server_node *n) {
    struct node_whose *w = &n->whose;
    struct whose_sent *oldest = LIST_FIRST(struct whose_sent, &w->sent, link);
    if (w->n_sent >= SENT_MAX && oldest != NULL) {
        list_remove(&oldest->link);
        free(oldest);
        w->n_sent--;
    }
    struct whose_sent *q = xcalloc(1, sizeof *q);
    q->id = ++n->server->whose.last_id;
    list_append(&w->sent, &q->link);
    w->n_sent++;
    return q;
}

static void set_addrs(struct rdzv_whose *w, const struct addr *client, const struct addr *store) {
    addr_host_text(client, w->client);
    addr_host_text(store, w->store);
    w->store_port = addr_port(store);
}

/* The first question on each connection. */
static void ask_own(struct server_node *n) {
    struct wire_message m = {.kind = WIRE_WHOSE};
    struct addr peer, local;
    if (n->whose.own_asked || conn_peer_addr(n->conn, &peer) < 0 ||
        conn_local_addr(n->conn, &local) < 0)
        return;
    n->whose.own_asked = true;
    struct whose_sent *q = new_question(n);
    q->own = true;
    q->n = m.whose.n = 1;
    m.whose.id = q->id;
    m.whose.ports[0] = addr_port(&peer);
    set_addrs(&m.whose, &peer, &local);
    server_send(n, &m);
}

static void drop_ask(struct node_whose *w, struct whose_ask *a) {
    list_remove(&a->link);
    free(a);
    w->n_waiting--;
}

/* As many as fit, of those that have the addresses of the first. */
static void ask_some(struct server_node *n) {
    struct wire_message m = {.kind = WIRE_WHOSE};
    struct whose_ask *first = LIST_FIRST(struct whose_ask, &n->whose.waiting, link);
    assert(first != NULL);
    struct addr client = first->client, store = first->store;
    struct whose_sent *q = new_question(n);
    addr_host_bytes(&client, q->host);
    LIST_FOR_EACH(struct whose_ask, a, &n->whose.waiting, link) {
        if (q->n == RDZV_WHOSE_CHUNK)
            break;
        if (!addr_same_host(&a->client, &client) || !addr_same_host(&a->store, &store) ||
            addr_port(&a->store) != addr_port(&store))
            continue;
        m.whose.ports[q->n] = addr_port(&a->client);
        q->asks[q->n++] = a->id;
        drop_ask(&n->whose, a);
    }
    m.whose.id = q->id;
    m.whose.n = q->n;
    set_addrs(&m.whose, &client, &store);
    server_send(n, &m);
}

static void on_timer(void *arg) {
    struct rdzv_server *s = arg;
    LIST_FOR_EACH(struct server_node, n, &s->whose.due, whose.due_link) {
        while (n->conn != NULL && !list_empty(&n->whose.waiting) && !loop_slice_is_over(s->loop)) {
            ask_own(n);
            ask_some(n);
        }
        if (n->conn == NULL || list_empty(&n->whose.waiting))
            list_remove(&n->whose.due_link); /* when it is back, it is due again */
        if (loop_slice_is_over(s->loop))
            break;
    }
    if (!list_empty(&s->whose.due))
        loop_timer_set(s->whose.timer, clock_now_ns());
}

static void set_due(struct server_node *n) {
    struct rdzv_server *s = n->server;
    if (list_empty(&s->whose.due))
        loop_timer_set(s->whose.timer, clock_now_ns());
    if (!list_linked(&n->whose.due_link))
        list_append(&s->whose.due, &n->whose.due_link);
}

/* What waits for longer than anybody waits for the answer. */
static void drop_old(struct node_whose *w, uint64_t now) {
    struct whose_ask *a;
    while ((a = LIST_FIRST(struct whose_ask, &w->waiting, link)) != NULL &&
           (w->n_waiting >= WAITING_MAX || a->since_ns + RDZV_WHOSE_NS < now))
        drop_ask(w, a);
}

void rdzv_server_whose(struct rdzv_server *s, const struct addr *client, const struct addr *store,
                       uint32_t id) {
    uint8_t host[ADDR_HOST_BYTES];
    uint64_t now = clock_now_ns();
    bool translated;
    addr_host_bytes(client, host);
    const struct claim *c = best_claim(s, host, &translated);
    if (c == NULL || s->deposed)
        return;
    struct server_node *n = c->node;
    drop_old(&n->whose, now);
    struct whose_ask *a = xcalloc(1, sizeof *a);
    *a = (struct whose_ask){.id = id, .client = *client, .store = *store, .since_ns = now};
    list_append(&n->whose.waiting, &a->link);
    n->whose.n_waiting++;
    if (n->conn != NULL)
        set_due(n);
}

static void report_owners(struct rdzv_server *s, const struct whose_sent *q,
                          const struct rdzv_owners *owners) {
    bool translated;
    (void)best_claim(s, q->host, &translated);
    for (uint32_t i = 0; i < q->n && s->config.parts.owners.answer != NULL && !s->deposed; i++) {
        struct peer_owner owner = {.kind = owners->list[i], .uid = owners->uid};
        if (owner.kind == PEER_ELSEWHERE && translated)
            owner.kind = PEER_TRANSLATED;
        s->config.parts.owners.answer(s->config.parts.owners.arg, q->asks[i], &owner);
    }
}

bool server_whose_answer(struct server_node *n, const struct rdzv_owners *owners) {
    struct rdzv_server *s = n->server;
    struct whose_sent *q = NULL;
    LIST_FOR_EACH(struct whose_sent, each, &n->whose.sent, link) {
        if (each->id != owners->id)
            continue;
        q = each;
        break;
    }
    if (q == NULL)
        return true; /* nobody waits for it any more */
    if (q->n != owners->n)
        return false;
    list_remove(&q->link);
    n->whose.n_sent--;
    if (!q->own)
        report_owners(s, q, owners);
    else if (owners->list[0] == PEER_OURS || owners->list[0] == PEER_ELSEWHERE)
        n->whose.own = owners->list[0];
    free(q);
    return true;
}

void server_whose_node_init(struct server_node *n) {
    list_init(&n->whose.claims);
    list_init(&n->whose.waiting);
    list_init(&n->whose.sent);
    list_init(&n->whose.due_link);
}

void server_whose_disconnected(struct server_node *n) {
    struct whose_sent *q;
    while ((q = LIST_FIRST(struct whose_sent, &n->whose.sent, link)) != NULL) {
        list_remove(&q->link);
        free(q);
    }
    n->whose.n_sent = 0;
    n->whose.own_asked = false;
    n->whose.own = PEER_UNKNOWN;
}

void server_whose_joined(struct server_node *n, const char *addrs) {
    struct addr peer;
    bool seen = conn_peer_addr(n->conn, &peer) == 0 && !n->here;
    server_whose_disconnected(n);
    drop_claims(n);
    if (seen)
        add_claim(n, &peer, true);
    add_claims(n, addrs, seen ? &peer : NULL);
    if (!list_empty(&n->whose.waiting))
        set_due(n);
}

void server_whose_node_fini(struct server_node *n) {
    server_whose_disconnected(n);
    drop_claims(n);
    LIST_FOR_EACH(struct whose_ask, a, &n->whose.waiting, link) {
        drop_ask(&n->whose, a);
    }
    list_remove(&n->whose.due_link);
}

void server_whose_init(struct rdzv_server *s) {
    list_init(&s->whose.due);
    s->whose.seed = random_u64();
    s->whose.places.seed = random_u64();
    s->whose.timer = loop_timer_new(s->loop, on_timer, s);
}

void server_whose_fini(struct rdzv_server *s) {
    idmap_fini(&s->whose.places);
    loop_timer_free(s->whose.timer);
}
