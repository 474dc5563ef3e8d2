/* Connections and probes. Words on one connection stay in order; what a partition holds back comes
 * when it heals, as with TCP; a silent cut drops everything for ever. */
#include <string.h>

#include "world_priv.h"

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

void net_to_leader(struct world *w, struct conn *c, struct word *word) {
    uint64_t at = w->now_ns + delay(w, c->life->host);
    at = MAX2(at, c->to_leader_ns);
    c->to_leader_ns = at;
    struct item *it = world_plan(w, ITEM_WORD_TO_LEADER, c->life, at - w->now_ns);
    it->conn = c;
    it->word = word;
}

void net_to_node(struct world *w, struct conn *c, struct word *word) {
    uint64_t at = w->now_ns + delay(w, c->life->host);
    at = MAX2(at, c->to_node_ns);
    c->to_node_ns = at;
    struct item *it = world_plan(w, ITEM_WORD_TO_NODE, c->life, at - w->now_ns);
    it->conn = c;
    it->word = word;
}

/* Held back by a partition: comes some time after it heals, behind what was held before. */
static void hold(struct world *w, struct item *it, uint64_t until_ns, uint64_t *order) {
    uint64_t at = MAX2(until_ns + 200 * NS_PER_MS, *order);
    *order = at;
    struct item *again = world_plan(w, it->kind, it->life, at - w->now_ns);
    again->conn = it->conn;
    again->word = TAKE_PTR(it->word);
    item_free(it);
}

bool net_arrives(struct world *w, struct item *it) {
    struct conn *c = it->conn;
    uint32_t host = c->life->host;
    if (c->silent) {
        item_free(it);
        return false;
    }
    if (it->kind == ITEM_WORD_TO_LEADER && !to_leader_open(w, host)) {
        hold(w, it, w->hosts[host].from_blocked_until_ns, &c->to_leader_ns);
        return false;
    }
    if (it->kind == ITEM_WORD_TO_NODE && !to_node_open(w, host)) {
        hold(w, it, w->hosts[host].to_blocked_until_ns, &c->to_node_ns);
        return false;
    }
    bool to_leader = it->kind == ITEM_WORD_TO_LEADER;
    if (!w->hosts[to_leader ? 0 : host].up) {
        item_free(it);
        return false;
    }
    bool open = to_leader ? c->leader_open : c->node_open;
    if (!open && it->word->kind != WORD_END) {
        /* Nobody holds that end any more: the kernel answers with a reset. */
        if (to_leader && c->node_open)
            net_to_node(w, c, word_new(WORD_END));
        else if (!to_leader && c->leader_open)
            net_to_leader(w, c, word_new(WORD_END));
    }
    if (!open) {
        item_free(it);
        return false;
    }
    return true;
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
