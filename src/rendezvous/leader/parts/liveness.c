#include "rendezvous/leader/parts/liveness.h"

#include <string.h>

/* A guardian that is killing processes needs milliseconds, a frozen host takes longer. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)
#define PROBE_RETRY_MAX_NS (200 * NS_PER_MS)
/* For the whole job. Nodes that only wait for a place come last: a crowd of them that becomes
 * silent costs no node its lease. */
static const struct rate probes_again = {NS_PER_MS, 64};
#define WAITERS_PROBES_BURST 16

/* Between looks at all watched nodes. */
#define SCAN_NS_PER_NODE (4 * NS_PER_US)
#define SCAN_ALL 256 /* up to this many nodes are all examined whenever one is due */
#define WAITERS_LOST_PER_SCAN 128

static struct rate waiters_probes(const struct group_config *c) {
    return (struct rate){c->waiter_probe_ns, WAITERS_PROBES_BURST};
}

static bool is_ours(const struct node *n) {
    return n->is_member || n->in_order || n->joined_ns == 0;
}

/* An inherited member that has not come back is lost when the last leader's leases are over. */
static uint64_t lost_at(const struct group_config *c, const struct node *n) {
    if (n->joined_ns == 0)
        return n->lost_at_ns;
    return n->contact_ns + c->rdzv.lease_ns + c->rdzv.margin_ns;
}

void liveness_init(struct liveness *l, const struct group_config *c) {
    *l = (struct liveness){.config = c, .due_ns = TIME_NEVER};
    list_init(&l->heard);
    list_init(&l->watched);
}

static void begin(struct liveness *l, struct node *n) {
    if (!n->watched) {
        list_remove(&n->by_contact);
        list_append(&l->watched, &n->by_contact);
        n->watched = true;
    }
    n->probe_wait_ns = PROBE_RETRY_MIN_NS;
    l->due_ns = MIN2(l->due_ns, lost_at(l->config, n));
}

static bool begin_probe(struct node *n) {
    bool probes = !n->probing;
    n->probe_ns = TIME_NEVER;
    n->probing = true;
    return probes;
}

bool liveness_watch(struct liveness *l, struct node *n, uint64_t now_ns) {
    const struct rate waiters = waiters_probes(l->config);
    begin(l, n);
    if (is_ours(n) || rate_take(&waiters, now_ns, &l->waiters_probed_ns))
        return begin_probe(n);
    n->probe_ns = rate_ready(&waiters, l->waiters_probed_ns);
    l->due_ns = MIN2(l->due_ns, n->probe_ns);
    return false;
}

void liveness_inherit(struct liveness *l, struct node *n, uint64_t now_ns) {
    begin(l, n);
    n->probe_ns = now_ns;
    l->due_ns = MIN2(l->due_ns, now_ns);
}

bool liveness_contact(struct liveness *l, struct node *n, uint64_t now_ns) {
    bool was_watched = n->watched;
    n->contact_ns = now_ns;
    n->held = false;
    list_remove(&n->by_contact);
    list_append(n->connected ? &l->heard : &l->watched, &n->by_contact);
    n->watched = !n->connected;
    if (n->connected)
        n->probe_ns = TIME_NEVER;
    return was_watched;
}

bool liveness_reach_again(struct node *n, uint64_t now_ns) {
    return n->is_member && !n->reached && n->reach_ns != 0 && now_ns >= n->reach_ns &&
           begin_probe(n);
}

struct node *liveness_silent(const struct liveness *l, uint64_t now_ns) {
    /* The longest silent comes first. */
    struct node *n = LIST_FIRST(struct node, &l->heard, by_contact);
    return n != NULL && now_ns - n->contact_ns > l->config->rdzv.lease_ns / 2 ? n : NULL;
}

enum liveness_probe liveness_on_probe(struct liveness *l, struct node *n, enum probe_result result,
                                      uint64_t now_ns) {
    bool first = result == PROBE_ALIVE && !n->reached;
    n->probing = false;
    n->reached = n->reached || result == PROBE_ALIVE;
    n->reach_ns = now_ns + (now_ns - n->known_ns); /* ever more rarely */
    if (!n->watched)
        return first ? LIVENESS_PROBE_REACHED : LIVENESS_PROBE_NOTHING;
    if (result == PROBE_GONE && n->reached)
        return LIVENESS_PROBE_GONE;
    n->probe_ns = now_ns + n->probe_wait_ns;
    n->probe_wait_ns = MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS);
    l->due_ns = MIN2(l->due_ns, n->probe_ns);
    return LIVENESS_PROBE_NOTHING;
}

/* More likely than that nodes of several hosts failed is a failed switch. */
static bool several_hosts_due(const struct liveness *l, uint64_t now_ns) {
    const char *host = NULL;
    LIST_FOR_EACH(struct node, n, &l->watched, by_contact) {
        bool due = now_ns >= n->contact_ns + l->config->rdzv.lease_ns;
        if (n->joined_ns == 0 || !is_ours(n) || !due)
            continue;
        if (host != NULL && strcmp(host, n->info.host) != 0)
            return true;
        host = n->info.host;
    }
    return false;
}

static bool may_be_held(const struct group_config *c, const struct node *n) {
    return c->rdzv.hold_ns != 0 && n->joined_ns != 0 && is_ours(n);
}

static void hold(struct liveness *l, uint64_t now_ns) {
    l->hold_until_ns = now_ns + l->config->rdzv.hold_ns;
    LIST_FOR_EACH(struct node, n, &l->watched, by_contact)
        n->held = true;
}

/* Whether the rate allows it. Members come before nodes that wait for a place. */
static bool probe_again(struct liveness *l, struct node *n, uint64_t now_ns) {
    const struct rate rate = is_ours(n) ? probes_again : waiters_probes(l->config);
    uint64_t *spent = is_ours(n) ? &l->probed_again_ns : &l->waiters_probed_ns;
    if (!rate_take(&rate, now_ns, spent)) {
        l->due_ns = MIN2(l->due_ns, rate_ready(&rate, *spent));
        return false;
    }
    list_remove(&n->by_contact);
    list_append(&l->watched, &n->by_contact); /* so that the nodes take turns */
    return begin_probe(n);
}

bool liveness_scan_begin(struct liveness *l, struct liveness_scan *scan, uint64_t now_ns) {
    if (now_ns < MAX2(l->due_ns, l->scan_ns))
        return false;
    l->due_ns = TIME_NEVER;
    *scan = (struct liveness_scan){.next = l->watched.next};
    return true;
}

enum liveness_todo liveness_scan_next(struct liveness *l, struct liveness_scan *scan,
                                      uint64_t now_ns, struct node **ret) {
    while (scan->next != &l->watched) {
        struct node *n = *ret = CONTAINER_OF(scan->next, struct node, by_contact);
        bool due = now_ns >= lost_at(l->config, n);
        if (due && may_be_held(l->config, n) && !n->held && now_ns >= l->hold_until_ns &&
            several_hosts_due(l, now_ns)) {
            hold(l, now_ns);
            return LIVENESS_HOLD; /* the same node is examined next */
        }
        scan->next = n->by_contact.next;
        scan->n_watched++;
        bool too_many = due && !is_ours(n) && ++scan->waiters_lost > WAITERS_LOST_PER_SCAN;
        bool held = may_be_held(l->config, n) && now_ns < l->hold_until_ns;
        if (due && !too_many && !held)
            return LIVENESS_LOSE;
        bool probes = false;
        if (now_ns >= n->probe_ns)
            probes = probe_again(l, n, now_ns);
        else
            l->due_ns = MIN2(l->due_ns, n->probe_ns);
        if (too_many)
            l->due_ns = now_ns; /* the others are examined next */
        else
            l->due_ns = MIN2(l->due_ns, due ? l->hold_until_ns : lost_at(l->config, n));
        if (probes)
            return LIVENESS_PROBE;
    }
    l->scan_ns = scan->n_watched <= SCAN_ALL ? 0 : now_ns + scan->n_watched * SCAN_NS_PER_NODE;
    return LIVENESS_DONE;
}

uint64_t liveness_deadline(const struct liveness *l) {
    const struct node *n = LIST_FIRST(struct node, &l->heard, by_contact);
    uint64_t t = n == NULL ? TIME_NEVER : n->contact_ns + l->config->rdzv.lease_ns / 2 + 1;
    return MIN2(MAX2(l->due_ns, l->scan_ns), t);
}
