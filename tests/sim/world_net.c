/* Connections and probes. Words on one connection stay in order; what a partition holds back comes
 * when it heals, as with TCP; a silent cut drops everything for ever. */
#include <string.h>

#include "world_priv.h"

#define WELCOME_TIMEOUT_NS (10 * NS_PER_S)
#define CONNECT_TIMEOUT_NS (2 * NS_PER_S)
#define CONNECT_AGAIN_NS (100 * NS_PER_MS) /* the client's patience between tries that are refused */
#define PROBE_TIMEOUT_NS NS_PER_S
#define LOCAL_DELAY_NS (20 * NS_PER_US)

struct word *word_new(enum word_kind kind) {
    struct word *word = xcalloc(1, sizeof *word);
    word->kind = kind;
    return word;
}

static uint64_t delay(struct world *w, uint32_t host) {
    if (host == 0)
        return LOCAL_DELAY_NS;
    uint64_t d = w->p.delay_min_ns + world_below(w, w->p.delay_max_ns - w->p.delay_min_ns + 1);
    if (w->now_ns < w->hosts[host].slow_until_ns)
        d += world_below(w, w->hosts[host].slow_max_ns + 1);
    return d;
}

static bool to_leader_open(const struct world *w, uint32_t host) {
    return host == 0 || w->now_ns >= w->hosts[host].from_blocked_until_ns;
}

static bool to_node_open(const struct world *w, uint32_t host) {
    return host == 0 || w->now_ns >= w->hosts[host].to_blocked_until_ns;
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
    bool to_leader = q == &c->to_leader;
    world_plan(w, to_leader ? ITEM_WORD_TO_LEADER : ITEM_WORD_TO_NODE, c->life, q->at_ns - w->now_ns)->conn = c;
}

void net_to_leader(struct world *w, struct conn *c, struct word *word) {
    put(&c->to_leader, word);
    let_out(w, c, &c->to_leader, w->now_ns + delay(w, c->life->host));
}

void net_to_node(struct world *w, struct conn *c, struct word *word) {
    put(&c->to_node, word);
    let_out(w, c, &c->to_node, w->now_ns + delay(w, c->life->host));
}

void net_drop_words(struct conn *c) {
    while (c->to_leader.first != NULL)
        free(take(&c->to_leader));
    while (c->to_node.first != NULL)
        free(take(&c->to_node));
}

/* It lies at its host: is anybody there to read it? */
static bool readable(struct world *w, struct item *it) {
    struct conn *c = it->conn;
    bool to_leader = it->kind == ITEM_WORD_TO_LEADER;
    bool open = to_leader ? c->leader_open : c->node_open;
    if (open && w->hosts[to_leader ? 0 : c->life->host].up)
        return true;
    if (w->hosts[to_leader ? 0 : c->life->host].up && it->word->kind != WORD_END) {
        /* Nobody holds that end any more: the kernel answers with a reset. */
        if (to_leader && c->node_open)
            net_to_node(w, c, word_new(WORD_END));
        else if (!to_leader && c->leader_open)
            net_to_leader(w, c, word_new(WORD_END));
    }
    item_free(it);
    return false;
}

bool net_arrives(struct world *w, struct item *it) {
    struct conn *c = it->conn;
    uint32_t host = c->life->host;
    if (it->word != NULL)
        return readable(w, it); /* it had arrived at a process that was frozen */
    if (c->silent) {
        item_free(it);
        return false; /* what is in the queue stays there */
    }
    bool to_leader = it->kind == ITEM_WORD_TO_LEADER;
    struct queue *q = to_leader ? &c->to_leader : &c->to_node;
    if (to_leader ? !to_leader_open(w, host) : !to_node_open(w, host)) {
        /* Held back by the partition, and sent again some time after it. */
        uint64_t until = to_leader ? w->hosts[host].from_blocked_until_ns : w->hosts[host].to_blocked_until_ns;
        let_out(w, c, q, until + 200 * NS_PER_MS);
        item_free(it);
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
    net_to_node(w, c, word_new(WORD_END));
}

void net_cut(struct world *w, struct life *l, enum cut_mode mode) {
    struct conn *c = l->conn;
    if (c == NULL || c->silent || !c->node_open || !c->leader_open)
        return;
    l->disturbed = true;
    if (mode == CUT_BOTH_SEE || mode == CUT_NODE_SEES)
        net_to_node(w, c, word_new(WORD_END));
    if (mode == CUT_BOTH_SEE || mode == CUT_LEADER_SEES)
        net_to_leader(w, c, word_new(WORD_END));
    if (mode == CUT_SILENT)
        c->silent = true;
}

/* ---- connecting ---- */

void net_connect(struct world *w, struct life *l) {
    if (l->conn != NULL)
        net_close_node(w, l->conn);
    l->conn = NULL;
    l->welcomed = false;
    l->connect_version++;
    uint32_t h = l->host;
    bool answer = to_leader_open(w, h) && to_node_open(w, h) && host_running(w, 0);
    struct item *it = world_plan(w, answer ? ITEM_CONNECT_ARRIVES : ITEM_CONNECT_FAILED, l,
                                 answer ? delay(w, h) : CONNECT_TIMEOUT_NS);
    it->version = l->connect_version;
}

/* The kernel of the leader's host takes the connection, or refuses it. */
void net_connect_arrives(struct world *w, struct item *it) {
    struct life *l = it->life;
    if (!l->process || it->version != l->connect_version)
        return;
    if (!w->lives[0].process || w->group == NULL) {
        world_plan(w, ITEM_CONNECT_FAILED, l, CONNECT_AGAIN_NS + delay(w, l->host))->version = l->connect_version;
        return;
    }
    struct conn *c = xcalloc(1, sizeof *c);
    c->life = l;
    c->node_open = c->leader_open = true;
    c->next = w->conns;
    w->conns = l->conn = c;
    struct word *join = word_new(WORD_JOIN);
    node_describe(w, l, &join->info);
    join->report = *member_report(l->member);
    net_to_leader(w, c, join);
    world_plan(w, ITEM_CONNECT_FAILED, l, WELCOME_TIMEOUT_NS)->version = l->connect_version;
}

/* ---- probes ---- */

void net_probe(struct world *w, struct life *target, bool by_leader, struct life *asker) {
    struct item *it = world_plan(w, by_leader ? ITEM_PROBE_NODE : ITEM_PROBE_LEADER, target,
                                 delay(w, by_leader ? target->host : asker->host));
    it->local = asker->index;
}

static enum probe_result probe_answer(struct world *w, const struct life *target, uint32_t link) {
    const struct host *h = &w->hosts[target->host];
    if (!to_leader_open(w, link) || !to_node_open(w, link) || !h->up || h->frozen)
        return PROBE_UNKNOWN;
    if (!target->listener)
        return PROBE_GONE; /* refused, or by now another's */
    if (!node_listens(target))
        return PROBE_UNKNOWN;
    return PROBE_ALIVE;
}

void net_probe_arrives(struct world *w, struct item *it) {
    bool by_leader = it->kind == ITEM_PROBE_NODE;
    struct life *asker = &w->lives[it->local];
    uint32_t link = by_leader ? it->life->host : asker->host;
    enum probe_result result = probe_answer(w, it->life, link);
    uint64_t in = result == PROBE_UNKNOWN ? PROBE_TIMEOUT_NS : delay(w, link);
    struct item *answer = world_plan(w, by_leader ? ITEM_PROBE_NODE_ANSWER : ITEM_PROBE_LEADER_ANSWER,
                                     by_leader ? it->life : asker, in);
    answer->probe = result;
    world_trace(w, "probe of %u.%u: %s", it->life->host, it->life->index,
                result == PROBE_GONE ? "gone" : result == PROBE_ALIVE ? "alive" : "unknown");
}
