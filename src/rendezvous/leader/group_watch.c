/* The silent and the cut off: they are probed, and lost when their lease is surely over. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/leader/group_priv.h"

/* Between probes of one node that say nothing: a guardian at work is done in milliseconds, a
 * frozen host is not. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)
#define PROBE_RETRY_MAX_NS (200 * NS_PER_MS)
/* However many are watched, the work for them has a rate for the whole job, and what waits for a
 * place in vain ranks below what had one: a crowd of joiners that fall silent costs no lease. */
static const struct rate probes_again = {NS_PER_MS, 64};
#define WAITERS_PROBES_BURST 16

/* Of a look at all that are watched: the more they are, the rarer it is. */
#define LOOK_NS_PER_NODE (4 * NS_PER_US)
#define LOOK_AT_ALL 256 /* so few are looked at whenever something is due */
#define WAITERS_LOST_PER_LOOK 128

static struct rate waiters_probes(const struct group *g) {
    return (struct rate){g->config.waiter_probe_ns, WAITERS_PROBES_BURST};
}

/* It has a place in the group, or had one in the last. */
static bool is_ours(const struct node *n) {
    return n->is_member || n->in_order || n->joined_ns == 0;
}

static bool is_silent(const struct group *g, const struct node *n) {
    return g->now_ns - n->heard_ns > g->config.rdzv.lease_ns / 2;
}

/* An inherited member that has not come back is lost when the last leader's leases are over; any
 * other by its own last sign of life. */
static uint64_t lost_at(const struct group *g, const struct node *n) {
    if (n->joined_ns == 0)
        return n->lost_at_ns;
    return n->heard_ns + g->config.rdzv.lease_ns + g->config.rdzv.margin_ns;
}

static void probe_node(struct group *g, struct node *n) {
    n->probe_ns = TIME_NEVER;
    if (n->probing)
        return;
    n->probing = true;
    (void)group_emit(g, GROUP_EFFECT_PROBE, n->info.incarnation);
}

void group_watch_node(struct group *g, struct node *n) {
    if (!n->watched) {
        list_remove(&n->by_heard);
        list_append(&g->watch.watched, &n->by_heard);
        n->watched = true;
    }
    n->probe_wait_ns = PROBE_RETRY_MIN_NS;
    g->watch.due_ns = MIN2(g->watch.due_ns, lost_at(g, n));
    const struct rate waiters = waiters_probes(g);
    bool inherited_now = g->update == NULL;
    if (!inherited_now &&
        (is_ours(n) || rate_take(&waiters, g->now_ns, &g->watch.waiters_probed_ns))) {
        probe_node(g, n);
        return;
    }
    if (!inherited_now)
        n->probe_ns = rate_ready(&waiters, g->watch.waiters_probed_ns);
    g->watch.due_ns = MIN2(g->watch.due_ns, n->probe_ns);
}

void group_heard_from(struct group *g, struct node *n) {
    n->heard_ns = g->now_ns;
    n->held = false;
    list_remove(&n->by_heard);
    list_append(n->connected ? &g->watch.heard : &g->watch.watched, &n->by_heard);
    bool was_watched = n->watched;
    n->watched = !n->connected;
    if (n->connected)
        n->probe_ns = TIME_NEVER;
    if (was_watched)
        group_recount(g, n);
}

void group_on_probe(struct group *g, struct node *n, enum probe_result result) {
    n->probing = false;
    bool first = result == PROBE_ALIVE && !n->reached;
    n->reached = n->reached || result == PROBE_ALIVE;
    if (result == PROBE_GONE && n->reached && n->watched) {
        group_remove_node(g, n, "is gone: its agent ended without a word", REMOVED_GONE);
        return;
    }
    if (n->watched) {
        n->probe_ns = g->now_ns + n->probe_wait_ns;
        n->probe_wait_ns = MIN2(2 * n->probe_wait_ns, PROBE_RETRY_MAX_NS);
        g->watch.due_ns = MIN2(g->watch.due_ns, n->probe_ns);
    } else if (first && n->is_member) {
        group_offer_successor(g);
    }
}

/* The leader itself slept: what the nodes said meanwhile still lies in its sockets, and tells
 * nothing about their silence. To count later than needed is always safe. */
void group_forgive_own_sleep(struct group *g) {
    if (g->now_ns <= g->due_ns || g->now_ns - g->due_ns <= g->config.rdzv.lease_ns / 10)
        return;
    LIST_FOR_EACH(struct node, n, &g->roster.nodes, by_all)
        n->heard_ns = g->now_ns;
}

/* Nodes of several hosts are silent for a lease: rather a switch than all of them. */
static bool several_hosts_due(const struct group *g) {
    const char *host = NULL;
    LIST_FOR_EACH(struct node, n, &g->watch.watched, by_heard) {
        bool due = g->now_ns >= n->heard_ns + g->config.rdzv.lease_ns;
        if (n->joined_ns == 0 || !is_ours(n) || !due)
            continue;
        if (host != NULL && strcmp(host, n->info.host) != 0)
            return true;
        host = n->info.host;
    }
    return false;
}

/* Due, but held: what is behind a switch may come back together. */
static bool is_held(struct group *g, struct node *n) {
    if (g->config.rdzv.hold_ns == 0 || n->joined_ns == 0 || !is_ours(n))
        return false;
    if (!n->held && g->now_ns >= g->watch.hold_until_ns && several_hosts_due(g)) {
        g->watch.hold_until_ns = g->now_ns + g->config.rdzv.hold_ns;
        LIST_FOR_EACH(struct node, other, &g->watch.watched, by_heard)
            other->held = true;
        group_notice(g, "several nodes are silent at once: waiting a moment for them");
    }
    return g->now_ns < g->watch.hold_until_ns;
}

static void lose(struct group *g, struct node *n) {
    char text[128];
    if (n->joined_ns == 0)
        (void)snprintf(text, sizeof text, "did not come back to the new leader");
    else
        (void)snprintf(text, sizeof text, "was lost: no sign of life for %.1f s",
                       (double)(g->now_ns - n->heard_ns) / (double)NS_PER_S);
    group_remove_node(g, n, text, REMOVED_SILENT);
}

/* Its turn, if the rate allows it: a member's comes before those of all who wait. */
static void probe_again(struct group *g, struct node *n) {
    const struct rate rate = is_ours(n) ? probes_again : waiters_probes(g);
    uint64_t *spent = is_ours(n) ? &g->watch.probed_again_ns : &g->watch.waiters_probed_ns;
    if (!rate_take(&rate, g->now_ns, spent)) {
        g->watch.due_ns = MIN2(g->watch.due_ns, rate_ready(&rate, *spent));
        return;
    }
    probe_node(g, n);
    list_remove(&n->by_heard);
    list_append(&g->watch.watched, &n->by_heard); /* by turns */
}

static void look_at_watched(struct group *g) {
    size_t n_watched = 0, waiters_lost = 0;
    g->watch.due_ns = TIME_NEVER;
    LIST_FOR_EACH(struct node, n, &g->watch.watched, by_heard) {
        n_watched++;
        bool due = g->now_ns >= lost_at(g, n);
        bool too_many = due && !is_ours(n) && ++waiters_lost > WAITERS_LOST_PER_LOOK;
        if (due && !too_many && !is_held(g, n)) {
            lose(g, n);
            continue;
        }
        if (g->now_ns >= n->probe_ns)
            probe_again(g, n);
        else
            g->watch.due_ns = MIN2(g->watch.due_ns, n->probe_ns);
        if (too_many)
            g->watch.due_ns = g->now_ns; /* those are next */
        else
            g->watch.due_ns = MIN2(g->watch.due_ns, due ? g->watch.hold_until_ns : lost_at(g, n));
    }
    g->watch.look_ns = n_watched <= LOOK_AT_ALL ? 0 : g->now_ns + n_watched * LOOK_NS_PER_NODE;
}

void group_watch(struct group *g) {
    /* The longest silent come first: nobody behind the first fresh one is silent. */
    LIST_FOR_EACH(struct node, n, &g->watch.heard, by_heard) {
        if (!is_silent(g, n))
            break;
        group_watch_node(g, n);
        group_recount(g, n);
    }
    if (g->now_ns >= MAX2(g->watch.due_ns, g->watch.look_ns))
        look_at_watched(g);
    group_report_waiters_gone(g);
}

uint64_t group_watch_deadline(const struct group *g) {
    const struct node *n = LIST_FIRST(struct node, &g->watch.heard, by_heard);
    uint64_t t = n == NULL ? TIME_NEVER : n->heard_ns + g->config.rdzv.lease_ns / 2 + 1;
    t = MIN2(t, group_waiters_gone_deadline(g));
    return MIN2(MAX2(g->watch.due_ns, g->watch.look_ns), t);
}
