/* Who takes part in the next group, in which order, with which ranks (muster-rendezvous(7),
 * "Choosing the members and ranks"). */
#include <string.h>

#include "base/text/parse.h"
#include "rendezvous/leader/group_priv.h"

/* Nothing of an older group runs there: it never ran, or says so. */
bool group_has_stopped(const struct node *n) {
    switch (n->report.state) {
    case NODE_JOINED:
    case NODE_STOPPED: return true;
    case NODE_PREPARED:
    case NODE_RUNNING:
    case NODE_FINISHED:
    case NODE_FAILED:
    case NODE_CLOSED:
    case NODE_STATE_COUNT: return false;
    }
    assert_not_reached();
}

bool group_may_take_part(const struct node *n) {
    return !n->report.leaving && n->report.unusable[0] == '\0' && !n->report.excluded &&
           n->report.state != NODE_CLOSED;
}

static bool is_candidate(const struct node *n) { return (n->tallied & 1u << TALLY_CANDIDATE) != 0; }

size_t group_wanted(const struct group *g, size_t candidates) {
    size_t n = MIN2(candidates, (size_t)g->config.max_nodes);
    n -= n % g->config.node_unit;
    return n >= g->config.min_nodes ? n : 0;
}

/* How many switches, from the top, are above both of two places. */
static unsigned shared_switches(const char *a, const char *b) {
    unsigned n = 0;
    for (;;) {
        size_t la = strcspn(a, "."), lb = strcspn(b, ".");
        if (la == 0 || la != lb || memcmp(a, b, la) != 0)
            return n;
        n++;
        if (a[la] == '\0' || b[lb] == '\0')
            return n;
        a += la + 1;
        b += lb + 1;
    }
}

/* The leader's node has the first rank: the nodes near to it go before those that are farther, so
 * that its switch is left once. */
static int compare_places(const struct group *g, const struct node *a, const struct node *b) {
    const struct node *leader = group_find(g, g->config.leader_incarnation);
    if (leader != NULL) {
        unsigned na = shared_switches(a->info.topology, leader->info.topology);
        unsigned nb = shared_switches(b->info.topology, leader->info.topology);
        if (na != nb)
            return na > nb ? -1 : 1;
    }
    return natural_compare(a->info.topology, b->info.topology);
}

static int compare_newcomers(const struct group *g, const struct node *a, const struct node *b) {
    bool ra = a->info.node_rank >= 0, rb = b->info.node_rank >= 0;
    if (ra != rb)
        return ra ? -1 : 1;
    if (ra && a->info.node_rank != b->info.node_rank)
        return a->info.node_rank < b->info.node_rank ? -1 : 1;
    bool la = a->info.incarnation == g->config.leader_incarnation;
    bool lb = b->info.incarnation == g->config.leader_incarnation;
    if (la != lb)
        return la ? -1 : 1;
    int c = 0;
    if (g->config.rank_order == RANK_ORDER_TOPOLOGY)
        c = compare_places(g, a, b);
    if (c == 0 && g->config.rank_order != RANK_ORDER_JOIN)
        c = natural_compare(a->info.host, b->info.host);
    if (c != 0)
        return c;
    return a->join_order < b->join_order ? -1 : a->join_order > b->join_order;
}

static int compare_newcomers_r(const void *a, const void *b, void *g) {
    return compare_newcomers(g, *(struct node *const *)a, *(struct node *const *)b);
}

/* First start: the order of newcomers. Later: survivors keep their places, newcomers take the
 * vacated ones, and the order closes up over what is left. At most `wanted` of them. */
static size_t order_candidates(struct group *g, size_t wanted, struct node **out) {
    size_t n_new = 0, n_out = 0, n_survivors = 0;
    struct node **newcomers = xcalloc(g->n_nodes, sizeof *newcomers);
    struct idmap placed = {0};
    for (size_t i = 0; i < g->n_order && n_survivors < wanted; i++) {
        struct node *n = group_find(g, g->order[i]);
        if (n != NULL && is_candidate(n)) {
            idmap_put(&placed, n->info.incarnation, n);
            n_survivors++;
        }
    }
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all)
        if (is_candidate(n) && !n->in_order && idmap_get(&placed, n->info.incarnation) == NULL)
            newcomers[n_new++] = n;
    qsort_r(newcomers, n_new, sizeof *newcomers, compare_newcomers_r, g);

    n_new = MIN2(n_new, wanted - n_survivors);
    size_t next_new = 0;
    for (size_t i = 0; i < g->n_order; i++) {
        struct node *n = g->order[i] == 0 ? NULL : idmap_get(&placed, g->order[i]);
        if (n != NULL)
            out[n_out++] = n;
        else if (next_new < n_new)
            out[n_out++] = newcomers[next_new++];
    }
    while (next_new < n_new)
        out[n_out++] = newcomers[next_new++];
    idmap_fini(&placed);
    free(newcomers);
    return n_out;
}

struct role_count {
    const char *role;
    uint32_t workers;
};

static struct role_count *role_of(struct role_count roles[GROUP_ROLES_MAX], const char *role) {
    for (size_t i = 0; i < GROUP_ROLES_MAX; i++) {
        if (roles[i].role == NULL)
            roles[i].role = role;
        if (strcmp(roles[i].role, role) == 0)
            return &roles[i];
    }
    return &roles[GROUP_ROLES_MAX - 1]; /* JOIN refuses more roles, but for inherited nodes */
}

static uint64_t hash_host(const char *host) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *host != '\0'; host++)
        h = (h ^ (uint8_t)*host) * UINT64_C(0x100000001b3);
    return h == 0 ? 1 : h;
}

/* Global ranks are prefix sums over the node order; roles count on their own. */
static void assign_ranks(struct group *g) {
    struct role_count roles[GROUP_ROLES_MAX] = {0};
    struct idmap hosts = {0}; /* host → its newest member so far */
    uint32_t rank = 0;
    for (size_t i = 0; i < g->n_members; i++) {
        struct node *n = g->members[i];
        struct role_count *role = role_of(roles, n->info.role);
        uint64_t host = hash_host(n->info.host);
        const struct node *before = idmap_get(&hosts, host);
        n->place = (struct place){
            .node_rank = (uint32_t)i,
            .n_nodes = (uint32_t)g->n_members,
            .first_rank = rank,
            .role_first_rank = role->workers,
            .host_index = before == NULL ? 0 : before->place.host_index + 1,
            .restarts_used = g->policy.restarts_used,
            .losses = g->policy.losses,
        };
        idmap_put(&hosts, host, n);
        rank += n->info.nproc;
        role->workers += n->info.nproc;
    }
    for (size_t i = 0; i < g->n_members; i++) {
        g->members[i]->place.world_size = rank;
        g->members[i]->place.role_world_size = role_of(roles, g->members[i]->info.role)->workers;
    }
    idmap_fini(&hosts);
}

void group_choose_members(struct group *g) {
    struct node **chosen = xcalloc(g->n_nodes, sizeof *chosen);
    size_t wanted = group_wanted(g, g->tally[TALLY_CANDIDATE]);
    size_t n_chosen = order_candidates(g, wanted, chosen);
    assert(n_chosen == wanted);
    LIST_FOR_EACH(struct node, n, &g->nodes, by_all)
        n->is_member = n->in_order = n->was_old_member = false;
    free(g->members);
    g->members = chosen;
    g->n_members = n_chosen;
    g->order = xrealloc(g->order, n_chosen * sizeof *g->order);
    g->n_order = n_chosen;
    for (size_t i = 0; i < n_chosen; i++) {
        chosen[i]->is_member = chosen[i]->in_order = true;
        g->order[i] = chosen[i]->info.incarnation;
    }
    assign_ranks(g);
    g->world_size = chosen[0]->place.world_size;
}
