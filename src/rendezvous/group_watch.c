/* The silent and the cut off: they are probed, and lost when their lease is surely over. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/group_priv.h"

/* Between probes of one node that say nothing: a guardian at work is done in milliseconds, a
 * frozen host is not. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)
#define PROBE_RETRY_MAX_NS (200 * NS_PER_MS)

static bool is_silent(const struct group *g, const struct node *n) {
    return g->now_ns - n->heard_ns > g->config.lease_ns / 2;
}

/* An inherited member that has not come back is lost when the last leader's leases are over; any
 * other by its own last sign of life. */
static uint64_t lost_at(const struct group *g, const struct node *n) {
    if (n->joined_ns == 0)
        return n->lost_at_ns;
    return n->heard_ns + g->config.lease_ns + g->config.margin_ns;
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
        list_append(&g->watched, &n->by_heard);
        n->watched = true;
    }
    n->probe_wait_ns = PROBE_RETRY_MIN_NS;
    g->watch_ns = MIN2(g->watch_ns, lost_at(g, n));
    if (g->update != NULL)
        probe_node(g, n);
    else /* while it is being inherited */
        g->watch_ns = MIN2(g->watch_ns, n->probe_ns);
}

void group_heard_from(struct group *g, struct node *n) {
    n->heard_ns = g->now_ns;
    n->held = false;
    list_remove(&n->by_heard);
    list_append(n->connected ? &g->heard : &g->watched, &n->by_heard);
    n->watched = !n->connected;
    if (n->connected)
        n->probe_ns = TIME_NEVER;
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
        g->watch_ns = MIN2(g->watch_ns, n->probe_ns);
    } else if (first && n->is_member) {
        group_offer_heir(g);
    }
}

/* The leader itself slept: what the nodes said meanwhile still lies in its sockets, and tells
 * nothing about their silence. To count later than needed is always safe. */
void group_forgive_own_sleep(struct group *g) {
    if (g->now_ns <= g->due_ns || g->now_ns - g->due_ns <= g->config.lease_ns / 10)
        return;
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all)
        n->heard_ns = g->now_ns;
}

/* Nodes of several hosts are silent for a lease: rather a switch than all of them. */
static bool several_hosts_due(const struct group *g) {
    const char *host = NULL;
    LIST_FOR_EACH(struct node, n, &g->watched, by_heard) {
        if (n->joined_ns == 0 || g->now_ns < n->heard_ns + g->config.lease_ns)
            continue;
        if (host != NULL && strcmp(host, n->info.host) != 0)
            return true;
        host = n->info.host;
    }
    return false;
}

/* Due, but held: what is behind a switch may come back together. */
static bool is_held(struct group *g, struct node *n) {
    if (g->config.hold_ns == 0 || n->joined_ns == 0)
        return false;
    if (!n->held && g->now_ns >= g->hold_until_ns && several_hosts_due(g)) {
        g->hold_until_ns = g->now_ns + g->config.hold_ns;
        LIST_FOR_EACH(struct node, other, &g->watched, by_heard)
            other->held = true;
        group_incident(g, "several nodes are silent at once: waiting a moment for them");
    }
    return g->now_ns < g->hold_until_ns;
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

static void look_at_watched(struct group *g) {
    g->watch_ns = TIME_NEVER;
    LIST_FOR_EACH(struct node, n, &g->watched, by_heard) {
        bool due = g->now_ns >= lost_at(g, n);
        if (due && !is_held(g, n)) {
            lose(g, n);
            continue;
        }
        if (g->now_ns >= n->probe_ns)
            probe_node(g, n);
        g->watch_ns = MIN2(g->watch_ns, n->probe_ns);
        g->watch_ns = MIN2(g->watch_ns, due ? g->hold_until_ns : lost_at(g, n));
    }
}

void group_watch(struct group *g) {
    /* The longest silent come first: nobody behind the first fresh one is silent. */
    LIST_FOR_EACH(struct node, n, &g->heard, by_heard) {
        if (!is_silent(g, n))
            break;
        group_watch_node(g, n);
    }
    if (g->now_ns >= g->watch_ns)
        look_at_watched(g);
}

uint64_t group_watch_deadline(const struct group *g) {
    const struct node *n = LIST_FIRST(struct node, &g->heard, by_heard);
    return MIN2(g->watch_ns, n == NULL ? TIME_NEVER : n->heard_ns + g->config.lease_ns / 2 + 1);
}
