/* Connections and probes. Words on one connection stay in order; what a partition holds back comes
 * when it heals, as with TCP; a silent cut drops everything for ever. */
#include <stddef.h>
#include <string.h>

#include "world_priv.h"

#define PROBE_TIMEOUT_NS NS_PER_S
#define LOCAL_DELAY_NS (20 * NS_PER_US)

/* ---- words ---- */

static size_t size_of(enum word_kind kind) {
#define WITH(field) (offsetof(struct word, field) + sizeof(((struct word *)NULL)->field))
    switch (kind) {
    case WORD_JOIN: return WITH(join);
    case WORD_REPORT: return WITH(report);
    case WORD_RENEW: return WITH(renew);
    case WORD_ECHO: return WITH(echo);
    case WORD_WELCOME: return WITH(welcome);
    case WORD_REFUSED: return WITH(refused);
    case WORD_DESIRED: return WITH(desired);
    case WORD_LEASE: return WITH(lease);
    case WORD_NAMED: return WITH(named);
    case WORD_HANDOVER: return WITH(handover);
    case WORD_REDIRECT: return WITH(redirect);
    case WORD_CALL:
    case WORD_HELLO:
    case WORD_LEAVE:
    case WORD_END: return WITH(kind);
    }
#undef WITH
    assert_not_reached();
}

struct word *word_new(enum word_kind kind) {
    struct word *word = xcalloc(1, size_of(kind));
    word->kind = kind;
    return word;
}

void word_free(struct word *word) {
    if (word != NULL && word->kind == WORD_HANDOVER)
        handover_fini(&word->handover);
    free(word);
}

/* ---- the way ---- */

uint64_t net_delay(struct world *w, uint32_t a, uint32_t b) {
    if (a == b)
        return LOCAL_DELAY_NS;
    uint64_t d = w->p.delay_min_ns + world_below(w, w->p.delay_max_ns - w->p.delay_min_ns + 1);
    if (w->now_ns < w->hosts[a].slow_until_ns)
        d += world_below(w, w->hosts[a].slow_max_ns + 1);
    if (w->now_ns < w->hosts[b].slow_until_ns)
        d += world_below(w, w->hosts[b].slow_max_ns + 1);
    return d;
}

bool net_open(const struct world *w, uint32_t from, uint32_t to) {
    return from == to || w->now_ns >= w->blocked_until_ns[from][to];
}

static bool both_reachability(const struct world *w, uint32_t a, uint32_t b) {
    return net_open(w, a, b) && net_open(w, b, a);
}

static void put(struct queue *q, struct word *word) {
    *(q->last == NULL ? &q->first : &q->last->next) = word;
    q->last = word;
}

static struct word *take(struct queue *q) {
    struct word *word = q->first;
    q->first = word->next;
    if (q->first == NULL)
        q->last = NULL;
    return word;
}

static void let_out(struct world *w, struct conn *c, struct queue *q, uint64_t at_ns) {
    q->at_ns = MAX2(q->at_ns, at_ns);
    enum item_kind kind = q == &c->to_leader ? ITEM_WORD_TO_LEADER : ITEM_WORD_TO_NODE;
    world_plan(w, kind, NULL, q->at_ns - w->now_ns)->conn = c;
    c->items++;
}

void net_to_leader(struct world *w, struct conn *c, struct word *word) {
    put(&c->to_leader, word);
    let_out(w, c, &c->to_leader, w->now_ns + net_delay(w, c->node->host, c->leader->host));
}

void net_to_node(struct world *w, struct conn *c, struct word *word) {
    put(&c->to_node, word);
    let_out(w, c, &c->to_node, w->now_ns + net_delay(w, c->node->host, c->leader->host));
}

void net_free_conn(struct conn *c) {
    while (c->to_leader.first != NULL)
        word_free(take(&c->to_leader));
    while (c->to_node.first != NULL)
        word_free(take(&c->to_node));
    word_free(c->parked);
    free(c);
}

/* It lies at its host: is anybody there to read it? */
static bool readable(struct world *w, struct item *it) {
    struct conn *c = it->conn;
    bool to_leader = it->kind == ITEM_WORD_TO_LEADER;
    bool open = to_leader ? c->leader_open : c->node_open;
    bool up = w->hosts[to_leader ? c->leader->host : c->node->host].up;
    if (open && up)
        return true;
    if (up && it->word->kind != WORD_END) {
        /* Nobody holds that end any more: the kernel answers with a reset. */
        if (to_leader && c->node_open)
            net_to_node(w, c, word_new(WORD_END));
        else if (!to_leader && c->leader_open)
            net_to_leader(w, c, word_new(WORD_END));
    }
    item_free(w, it);
    return false;
}

bool net_arrives(struct world *w, struct item *it) {
    struct conn *c = it->conn;
    if (it->word != NULL)
        return readable(w, it); /* it had arrived at a process that was frozen */
    if (c->silent) {
        item_free(w, it);
        return false; /* what is in the queue stays there */
    }
    bool to_leader = it->kind == ITEM_WORD_TO_LEADER;
    struct queue *q = to_leader ? &c->to_leader : &c->to_node;
    uint32_t from = to_leader ? c->node->host : c->leader->host;
    uint32_t to = to_leader ? c->leader->host : c->node->host;
    if (!net_open(w, from, to)) {
        /* Held back by the partition, and sent again some time after it. */
        let_out(w, c, q, w->blocked_until_ns[from][to] + 200 * NS_PER_MS);
        item_free(w, it);
        return false;
    }
    it->word = take(q);
    return readable(w, it);
}

void net_close_node(struct world *w, struct conn *c) {
    if (!c->node_open)
        return;
    c->node_open = false;
    net_to_leader(w, c, word_new(WORD_END));
}

void net_close_leader(struct world *w, struct conn *c) {
    if (!c->leader_open)
        return;
    c->leader_open = c->joined = false;
    word_free(c->parked);
    c->parked = NULL;
    net_to_node(w, c, word_new(WORD_END));
}

void net_cut(struct world *w, struct life *l, enum cut_mode mode) {
    struct conn *c = l->conn;
    if (c == NULL || c->silent || !c->node_open || !c->leader_open)
        return;
    if (mode == CUT_SILENT && c->leader->host == l->host)
        return; /* nothing is on the way */
    l->disturbed = true;
    if (mode == CUT_BOTH_SEE || mode == CUT_NODE_SEES)
        net_to_node(w, c, word_new(WORD_END));
    if (mode == CUT_BOTH_SEE || mode == CUT_LEADER_SEES)
        net_to_leader(w, c, word_new(WORD_END));
    if (mode == CUT_SILENT)
        c->silent = true;
}

/* Connections that nobody holds any more. */
static void reap(struct world *w) {
    for (struct conn **at = &w->conns; *at != NULL;) {
        struct conn *c = *at;
        if (c->node_open || c->leader_open || c->items > 0 || c->node->conn == c) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        net_free_conn(c);
    }
}

struct conn *net_new_conn(struct world *w, struct life *l, struct life *target) {
    reap(w);
    struct conn *c = xcalloc(1, sizeof *c);
    c->node = l;
    c->leader = target;
    c->node_open = c->leader_open = true;
    c->next = w->conns;
    w->conns = c;
    return c;
}

/* ---- probes ---- */

void net_probe(struct world *w, struct life *asker, struct life *target, enum prober prober) {
    struct item *it = world_plan(w, ITEM_PROBE, asker, net_delay(w, asker->host, target->host));
    it->other = target;
    it->prober = prober;
    it->version = asker->lead.version;
}

static enum probe_result probe_answer(const struct world *w, const struct life *asker, const struct life *target) {
    const struct host *h = &w->hosts[target->host];
    if (!both_reachability(w, asker->host, target->host) || !h->up || h->frozen)
        return PROBE_UNKNOWN;
    if (!target->listener)
        return PROBE_GONE; /* refused, or by now another's */
    if (!node_listens(target))
        return PROBE_UNKNOWN;
    return PROBE_ALIVE;
}

void net_probe_arrives(struct world *w, struct item *it) {
    enum probe_result result = probe_answer(w, it->life, it->other);
    uint64_t in = result == PROBE_UNKNOWN ? PROBE_TIMEOUT_NS : net_delay(w, it->life->host, it->other->host);
    struct item *answer = world_plan(w, ITEM_PROBE_ANSWER, it->life, in);
    answer->other = it->other;
    answer->prober = it->prober;
    answer->version = it->version;
    answer->probe = result;
    world_trace(w, "probe of %u.%u by %u.%u: %s", it->other->host, it->other->index, it->life->host, it->life->index,
                result == PROBE_GONE    ? "gone"
                : result == PROBE_ALIVE ? "alive"
                                        : "unknown");
}
