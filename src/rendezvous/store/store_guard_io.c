#include "rendezvous/store/store_guard_io.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "base/list.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"

#define SOURCES 256 /* addresses share these, by a hash that nobody knows outside */

struct source {
    struct list clients; /* struct client, by kin, the oldest first */
    size_t n;
};

struct client {
    struct list link;
    struct list kin;
    struct source *source;
    struct store_guard *guard;
    uint32_t id;
    int fd; /* owned */
    struct addr peer;
    uint64_t deadline_ns;
    store_guard_fn *fn; /* NULL: nobody waits for it any more */
    void *arg;
};

/* What is logged once for each address: an owner, or one of these. */
enum topic {
    TOPIC_UNKNOWN_SOURCE = PEER_OWNER_KIND_COUNT,
    TOPIC_SILENT,
    TOPIC_TOO_MANY,
    TOPIC_COUNT,
};

struct store_guard {
    struct loop *loop;
    struct store_guard_config config;
    bool applies;
    struct list waiting; /* struct client, the oldest first */
    struct idmap by_id;
    size_t n_waiting, max_waiting;
    uint32_t last_id;
    uint64_t seed;
    struct source sources[SOURCES];
    struct loop_timer *timer; /* for the oldest */
    uint64_t refused;
    struct hash_seen logged; /* which topic of which address */
};

static void describe(const struct store_guard *g, unsigned topic, const char *host, uint32_t uid,
                     struct strbuf *ret) {
    static const char *const whys[TOPIC_COUNT] = {
        [TOPIC_UNKNOWN_SOURCE] =
            "no node of this job has that address (--store-check=none admits any client)",
        [PEER_CLOSED] = "it was closed before its agent was asked whose it is",
        [PEER_ELSEWHERE] = "the kernel of the node there does not know it; it was reset, or "
                           "comes from a container or through a proxy (--store-check=member "
                           "admits it)",
    };
    if (topic == PEER_TRANSLATED)
        strbuf_printf(ret,
                      "addresses are translated (NAT) on the way from %s: the workers' "
                      "store admits any client from there",
                      host);
    else if (topic == PEER_UNKNOWN)
        strbuf_printf(ret,
                      "the kernel of the node at %s does not report the user of a "
                      "connection: the workers' store admits any client from there",
                      host);
    else
        strbuf_printf(ret, "refused a connection to the workers' store from %s: ", host);
    if (topic == PEER_OTHER_USER)
        strbuf_printf(ret,
                      "it belongs to uid %u there, and only this job's user and root may use it "
                      "(--store-check=member admits all users of the nodes)",
                      (unsigned)uid);
    else if (topic == TOPIC_SILENT)
        strbuf_printf(ret, "the agent there did not report its owner within %.1f s",
                      (double)g->config.answer_ns / (double)NS_PER_S);
    else if (topic == TOPIC_TOO_MANY)
        strbuf_printf(ret, "more than %zu wait for the answer of their agents", g->max_waiting);
    else if (whys[topic] != NULL)
        strbuf_add(ret, whys[topic]);
}

static uint64_t hash_of(const struct addr *peer, uint64_t seed) {
    uint8_t host[ADDR_HOST_BYTES];
    addr_host_bytes(peer, host);
    return hash_bytes(hash_bytes(HASH_BEGIN, &seed, sizeof seed), host, sizeof host);
}

static void tell(struct store_guard *g, const struct addr *peer, unsigned topic, uint32_t uid) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    char host[ADDR_TEXT_MAX];
    if (g->config.log == NULL ||
        !hash_is_new(&g->logged, hash_of(peer, topic), STORE_GUARD_TOLD_MAX))
        return;
    addr_host_text(peer, host);
    describe(g, topic, host, uid, &line);
    strbuf_printf(&line, "; further ones %sare only counted",
                  g->logged.n == STORE_GUARD_TOLD_MAX ? "" : "from there ");
    g->config.log(g->config.arg, strbuf_text(&line));
}

/* It only checked whether the port is open, or was a worker's that was killed. */
static bool only_looked(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes == 0 && poll(&p, 1, 0) > 0;
}

static void refuse(struct store_guard *g, int fd, const struct addr *peer, unsigned topic,
                   uint32_t uid) {
    g->refused++;
    if (topic == PEER_OTHER_USER || topic == TOPIC_UNKNOWN_SOURCE || !only_looked(fd))
        tell(g, peer, topic, uid);
    (void)close(fd);
}

/* ---- clients that wait ---- */

static void arm_timer(struct store_guard *g) {
    const struct client *first = LIST_FIRST(struct client, &g->waiting, link);
    loop_timer_set(g->timer, first != NULL ? first->deadline_ns : TIME_NEVER);
}

/* Frees it; the descriptor is the caller's. */
static int take_client(struct client *c) {
    struct store_guard *g = c->guard;
    int fd = c->fd;
    list_remove(&c->link);
    list_remove(&c->kin);
    c->source->n--;
    g->n_waiting--;
    idmap_remove(&g->by_id, c->id);
    free(c);
    return fd;
}

static void refuse_client(struct client *c, unsigned topic, uint32_t uid) {
    struct store_guard *g = c->guard;
    struct addr peer = c->peer;
    bool wanted = c->fn != NULL;
    int fd = take_client(c);
    if (wanted)
        refuse(g, fd, &peer, topic, uid);
    else
        (void)close(fd);
}

static void admit_client(struct client *c) {
    store_guard_fn *fn = c->fn;
    void *arg = c->arg;
    int fd = take_client(c);
    if (fn != NULL)
        fn(arg, fd);
    else
        (void)close(fd);
}

static void make_room(struct store_guard *g) {
    const struct source *most = &g->sources[0];
    if (g->n_waiting < g->max_waiting)
        return;
    for (size_t i = 1; i < SOURCES; i++)
        if (g->sources[i].n > most->n)
            most = &g->sources[i];
    struct client *oldest = LIST_FIRST(struct client, &most->clients, kin);
    assert(oldest != NULL); /* so many wait */
    refuse_client(oldest, TOPIC_TOO_MANY, 0);
}

static struct source *source_of(struct store_guard *g, const struct addr *peer) {
    uint64_t h = hash_of(peer, g->seed);
    return &g->sources[(h ^ h >> 32) % SOURCES];
}

static void wait_for_word(struct store_guard *g, int fd, const struct addr *peer,
                          store_guard_fn *fn, void *arg) {
    struct addr store;
    if (addr_of_socket(fd, &store) < 0) {
        refuse(g, fd, peer, PEER_CLOSED, 0);
        return;
    }
    make_room(g);
    struct client *c = xcalloc(1, sizeof *c);
    *c = (struct client){.source = source_of(g, peer),
                         .guard = g,
                         .id = ++g->last_id == 0 ? ++g->last_id : g->last_id,
                         .fd = fd,
                         .peer = *peer,
                         .deadline_ns = clock_now_ns() + g->config.answer_ns,
                         .fn = fn,
                         .arg = arg};
    bool first = list_empty(&g->waiting);
    list_append(&g->waiting, &c->link);
    list_append(&c->source->clients, &c->kin);
    c->source->n++;
    g->n_waiting++;
    idmap_put(&g->by_id, c->id, c);
    if (first)
        arm_timer(g);
    g->config.ask(g->config.arg, c->id, peer, &store);
}

static void on_timer(void *arg) {
    struct store_guard *g = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct client, c, &g->waiting, link) {
        if (c->deadline_ns > now || loop_slice_is_over(g->loop))
            break;
        refuse_client(c, TOPIC_SILENT, 0);
    }
    arm_timer(g);
}

void store_guard_answer(void *store_guard, uint32_t id, const struct peer_owner *owner) {
    struct store_guard *g = store_guard;
    struct client *c = id == 0 ? NULL : idmap_get(&g->by_id, id);
    if (c == NULL)
        return;
    switch (owner->kind) {
    case PEER_OTHER_USER:
    case PEER_CLOSED:
    case PEER_ELSEWHERE: refuse_client(c, owner->kind, owner->uid); return;
    case PEER_TRANSLATED:
    case PEER_UNKNOWN: tell(g, &c->peer, owner->kind, 0); break;
    case PEER_OURS: break;
    case PEER_OWNER_KIND_COUNT: assert_not_reached();
    }
    admit_client(c);
}

/* ---- the rule ---- */

/* True: it is of another machine. False: it is of this one, and was admitted or refused. */
static bool is_elsewhere(struct store_guard *g, int fd, const struct addr *peer, store_guard_fn *fn,
                         void *arg) {
    enum peer_owner_kind owner = peer_gate_owner(g->config.gate, fd, peer).kind;
    if (g->config.gate == NULL && addr_is_local(peer))
        owner = PEER_OURS;
    if (owner == PEER_ELSEWHERE)
        return true;
    if (owner == PEER_OURS || g->config.check != STORE_CHECK_UID ||
        peer_gate_admits(g->config.gate, fd, peer)) /* which tells why not */
        fn(arg, fd);
    else
        (void)close(fd);
    return false;
}

void store_guard_take(struct store_guard *g, int fd, const struct addr *peer, store_guard_fn *fn,
                      void *arg) {
    if (!g->applies || g->config.check == STORE_CHECK_NONE) {
        if (g->config.check != STORE_CHECK_UID || peer_gate_admits(g->config.gate, fd, peer))
            fn(arg, fd);
        else
            (void)close(fd);
        return;
    }
    enum peer_source source = g->config.find(g->config.arg, peer);
    if (source != PEER_SOURCE_DIRECT && !is_elsewhere(g, fd, peer, fn, arg))
        return;
    if (source == PEER_SOURCE_UNKNOWN) {
        refuse(g, fd, peer, TOPIC_UNKNOWN_SOURCE, 0);
    } else if (g->config.check == STORE_CHECK_MEMBER) {
        fn(arg, fd);
    } else if (source == PEER_SOURCE_TRANSLATED) {
        tell(g, peer, PEER_TRANSLATED, 0);
        fn(arg, fd);
    } else {
        wait_for_word(g, fd, peer, fn, arg);
    }
}

void store_guard_apply(struct store_guard *g, bool authenticated) { g->applies = authenticated; }

void store_guard_forget(struct store_guard *g, const void *arg) {
    LIST_FOR_EACH(struct client, c, &g->waiting, link) {
        if (c->arg == arg)
            c->fn = NULL;
    }
}

size_t store_guard_waiting(const struct store_guard *g) { return g->n_waiting; }

uint64_t store_guard_refused(const struct store_guard *g) { return g->refused; }

struct store_guard *store_guard_new(struct loop *loop, const struct store_guard_config *config) {
    struct store_guard *g = xcalloc(1, sizeof *g);
    *g = (struct store_guard){.loop = loop,
                              .config = *config,
                              .max_waiting = MIN2(STORE_GUARD_WAITING_MAX, file_limit() / 4 + 1)};
    if (g->config.answer_ns == 0)
        g->config.answer_ns = STORE_GUARD_ANSWER_NS;
    g->seed = random_u64();
    list_init(&g->waiting);
    for (size_t i = 0; i < SOURCES; i++)
        list_init(&g->sources[i].clients);
    g->timer = loop_timer_new(loop, on_timer, g);
    return g;
}

void store_guard_free(struct store_guard *g) {
    struct client *c;
    if (g == NULL)
        return;
    while ((c = LIST_FIRST(struct client, &g->waiting, link)) != NULL)
        (void)close(take_client(c));
    idmap_fini(&g->by_id);
    loop_timer_free(g->timer);
    free(g);
}
