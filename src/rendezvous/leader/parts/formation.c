#include "rendezvous/leader/parts/formation.h"

#include <string.h>

#include "base/hash.h"
#include "base/text/parse.h"

void formation_fini(struct formation *f) {
    free(f->members);
    free(f->order);
}

bool formation_reports(const struct formation *f, const struct node *n, enum node_state state) {
    return n->report.state == state && generation_compare(n->report.generation, f->generation) == 0;
}

#define BIT(tally) (1u << (tally))

static unsigned of_member(const struct formation *f, const struct node *n) {
    if (!n->is_member)
        return 0;
    bool prepared = formation_reports(f, n, NODE_PREPARED);
    bool finished = formation_reports(f, n, NODE_FINISHED);
    bool stopped = formation_reports(f, n, NODE_STOPPED) || n->report.state == NODE_CLOSED ||
                   n->report.unusable != NULL;
    bool safe =
        n->report.at_safe_point && generation_compare(n->report.generation, f->generation) == 0;
    return prepared * BIT(TALLY_PREPARED) | finished * BIT(TALLY_FINISHED) |
           stopped * BIT(TALLY_STOPPED) | safe * BIT(TALLY_SAFE);
}

/* Something of an older group may still run there: beside a group without the node, or one that
 * would have to be stopped when it comes back. */
static bool is_unresolved(const struct node *n) {
    bool ours = n->in_order || n->joined_ns == 0;
    if (n->connected)
        return !node_has_stopped(n) && n->report.unusable == NULL && n->report.state != NODE_CLOSED;
    return ours && !(n->report.leaving && node_has_stopped(n));
}

/* After a group of whole units of one domain, a newcomer without a domain has to wait until that is
 * known: it must not make the next group a mixed one. */
static bool lacks_domain(const struct formation *f, const struct roster *r, const struct node *n) {
    bool waits = f->of_domains && r->unit > 1 && !n->in_order;
    return node_may_take_part(n) && n->report.domain[0] == '\0' && !waits;
}

static unsigned tallies_of(const struct formation *f, const struct roster *r,
                           const struct node *n) {
    bool may = node_may_take_part(n);
    bool is_there = n->connected && (!n->watched || n->in_order); /* a new node must be heard */
    bool candidate = may && is_there && node_has_stopped(n), fit = !node_is_sick(r, n);
    bool old_finished = n->was_old_member && n->report.finished &&
                        generation_compare(n->report.generation, f->old_generation) == 0;
    return may * BIT(TALLY_HOPEFUL) | candidate * BIT(TALLY_CANDIDATE) |
           (candidate && fit) * BIT(TALLY_FIT) |
           (candidate && fit && !n->is_member) * BIT(TALLY_WAITING) |
           ((candidate || n->is_member) && fit) * BIT(TALLY_GROWN) |
           lacks_domain(f, r, n) * BIT(TALLY_NO_DOMAIN) | is_unresolved(n) * BIT(TALLY_UNRESOLVED) |
           (n->report.state == NODE_CLOSED) * BIT(TALLY_CLOSED) | (may && !fit) * BIT(TALLY_SICK) |
           old_finished * BIT(TALLY_OLD_FINISHED) | of_member(f, n);
}

void formation_recount(const struct formation *f, struct roster *r, struct node *n) {
    roster_count(r, n, tallies_of(f, r, n));
}

void formation_recount_all(const struct formation *f, struct roster *r) {
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all)
        formation_recount(f, r, n);
}

/* ---- whole units of nodes of one domain; without domains all are of one, and a unit each ---- */

/* What a domain has of the next group. */
struct share {
    size_t n_possible;   /* units that its candidates can fill */
    size_t n_units;      /* of these, in the group */
    size_t n_gaps;       /* missing nodes in the units that are kept */
    size_t n_new;        /* newcomers that were counted */
    struct unit *open;   /* the old unit to which its next old place belongs, if that has room */
    size_t at, gap, end; /* its nodes: the next kept unit, the next gap, the end */
};

/* A unit of the last group. */
struct unit {
    struct share *share;
    size_t n_places, n_missing;
    bool kept;
    size_t at; /* its next node, if it is kept */
};

struct choice {
    const struct formation *f;
    const struct roster *r;
    struct idmap placed; /* incarnation → candidate with an old place */
    enum tally of;       /* candidates */
    bool of_domains;
    size_t unit, n_candidates;
    size_t n_wanted; /* further units */
    struct share *shares;
    size_t n_shares;
    struct idmap by_domain; /* key → struct share */
    struct unit *units;
    size_t n_units;
    struct unit **unit_of; /* for each old place; NULL: its domain is not known */
    struct node **out;
};

static struct old_place old_place_of(const struct node *n) {
    return (struct old_place){n->info.incarnation, n->domain == NULL ? 0 : n->domain->key};
}

static struct node *survivor(const struct choice *c, size_t place) {
    uint64_t incarnation = c->f->order[place].incarnation;
    return incarnation != 0 ? idmap_get(&c->placed, incarnation) : NULL;
}

/* 0: not known. */
static uint64_t domain_of(const struct choice *c, const struct node *n) {
    return !c->of_domains ? 1 : n != NULL && n->domain != NULL ? n->domain->key : 0;
}

static struct share *share_of(struct choice *c, uint64_t domain) {
    struct share *s = idmap_get(&c->by_domain, domain);
    if (s != NULL)
        return s;
    const struct domain *d = idmap_get(&c->r->domains, domain);
    s = &c->shares[c->n_shares++];
    s->n_possible = !c->of_domains ? c->n_candidates : d == NULL ? 0 : d->tally[c->of] / c->unit;
    idmap_put(&c->by_domain, domain, s);
    return s;
}

static void add_old_place(struct choice *c, size_t place) {
    uint64_t domain = domain_of(c, roster_find(c->r, c->f->order[place].incarnation));
    domain = domain != 0 ? domain : c->f->order[place].domain;
    if (domain == 0)
        return;
    struct share *s = share_of(c, domain);
    if (s->open == NULL || s->open->n_places == c->unit) {
        s->open = &c->units[c->n_units++];
        *s->open = (struct unit){.share = s, .n_missing = c->unit};
    }
    s->open->n_places++;
    s->open->n_missing -= survivor(c, place) != NULL;
    c->unit_of[place] = s->open;
}

static int compare_units(const void *a, const void *b) {
    const struct unit *x = *(struct unit *const *)a, *y = *(struct unit *const *)b;
    if (x->n_missing != y->n_missing)
        return x->n_missing < y->n_missing ? -1 : 1;
    return x < y ? -1 : x > y; /* in their old order */
}

/* If not all old units can be kept, those with the fewest missing nodes are. */
static void keep_units(struct choice *c) {
    _cleanup_(freep) struct unit **order = xcalloc(c->n_units, sizeof(struct unit *));
    for (size_t i = 0; i < c->n_units; i++)
        order[i] = &c->units[i];
    qsort(order, c->n_units, sizeof *order, compare_units);
    for (size_t i = 0; i < c->n_units && c->n_wanted > 0; i++) {
        struct share *s = order[i]->share;
        if (s->n_units == s->n_possible)
            continue;
        order[i]->kept = true;
        s->n_units++;
        s->n_gaps += order[i]->n_missing;
        c->n_wanted--;
    }
}

/* Of the newcomers that no gap of its domain needs, the first of each new unit adds it. */
static void add_unit(struct choice *c, const struct node *newcomer) {
    uint64_t domain = domain_of(c, newcomer);
    if (domain == 0)
        return;
    struct share *s = share_of(c, domain);
    size_t i = s->n_new++;
    if (i < s->n_gaps || (i - s->n_gaps) % c->unit != 0 || s->n_units == s->n_possible)
        return;
    s->n_units++;
    c->n_wanted--;
}

/* Each domain keeps its position. If it has no unit left, a new domain takes the position. */
static void lay_out(struct choice *c, size_t n_old_shares) {
    size_t next_new = n_old_shares, at = 0;
    for (size_t i = 0; i < c->n_shares; i++) {
        struct share *s = &c->shares[i];
        if (i >= n_old_shares || s->n_units == 0) {
            while (next_new < c->n_shares && c->shares[next_new].n_units == 0)
                next_new++;
            if (next_new == c->n_shares)
                continue;
            s = &c->shares[next_new++];
        }
        s->at = s->gap = at;
        at = s->end = at + s->n_units * c->unit;
    }
}

static void fill_kept_units(struct choice *c) {
    for (size_t i = 0; i < c->n_units; i++) {
        struct unit *u = &c->units[i];
        if (!u->kept)
            continue;
        u->at = u->share->at;
        u->share->at += c->unit;
    }
    for (size_t i = 0; i < c->f->n_order; i++)
        if (c->unit_of[i] != NULL && c->unit_of[i]->kept)
            c->out[c->unit_of[i]->at++] = survivor(c, i);
}

static void fill_gap(const struct choice *c, struct node *n) {
    uint64_t domain = domain_of(c, n);
    struct share *s = domain == 0 ? NULL : idmap_get(&c->by_domain, domain);
    if (s == NULL)
        return;
    while (s->gap < s->end && c->out[s->gap] != NULL)
        s->gap++;
    if (s->gap < s->end)
        c->out[s->gap] = n;
}

/* ---- choosing the members ---- */

size_t formation_size(const struct group_config *c, size_t candidates) {
    size_t n = MIN2(candidates, (size_t)c->rdzv.max_nodes);
    n -= n % c->rdzv.node_unit;
    return n >= c->rdzv.min_nodes ? n : 0;
}

enum tally formation_candidates(const struct roster *r, const struct group_config *c) {
    return formation_size(c, roster_usable(r, TALLY_FIT)) > 0 ? TALLY_FIT : TALLY_CANDIDATE;
}

/* How many switches, from the top, two places have in common. */
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

/* Near nodes come before those that are farther away, so that the ring leaves a switch only
 * once. */
static int compare_places(const struct node *leader, const struct node *a, const struct node *b) {
    if (leader != NULL) {
        unsigned na = shared_switches(a->info.topology, leader->info.topology);
        unsigned nb = shared_switches(b->info.topology, leader->info.topology);
        if (na != nb)
            return na > nb ? -1 : 1;
    }
    return natural_compare(a->info.topology, b->info.topology);
}

struct newcomers {
    const struct node *leader; /* NULL: the leader's node is not here */
    enum rdzv_rank_order by;
};

static int compare_newcomers(const struct newcomers *o, const struct node *a,
                             const struct node *b) {
    bool ra = a->info.node_rank >= 0, rb = b->info.node_rank >= 0;
    if (ra != rb)
        return ra ? -1 : 1;
    if (ra && a->info.node_rank != b->info.node_rank)
        return a->info.node_rank < b->info.node_rank ? -1 : 1;
    bool la = a == o->leader;
    bool lb = b == o->leader;
    if (la != lb)
        return la ? -1 : 1;
    int c = 0;
    if (o->by == RANK_ORDER_TOPOLOGY)
        c = compare_places(o->leader, a, b);
    if (c == 0 && o->by != RANK_ORDER_JOIN)
        c = natural_compare(a->info.host, b->info.host);
    if (c != 0)
        return c;
    return a->join_order < b->join_order ? -1 : a->join_order > b->join_order;
}

static int compare_newcomers_r(const void *a, const void *b, void *o) {
    return compare_newcomers(o, *(struct node *const *)a, *(struct node *const *)b);
}

/* Fit nodes are taken first. *room: for how many sick ones there are places. */
static bool is_taken(const struct roster *r, const struct node *n, enum tally of, size_t *room) {
    if (!node_is(n, of) || node_is(n, TALLY_FIT) || roster_has_domains(r))
        return node_is(n, of);
    bool fits = *room > 0;
    *room -= fits;
    return fits;
}

/* Writes `wanted` nodes: whole units. Survivors keep their places, newcomers take free ones, in
 * order, and remaining gaps are closed. */
static void order_candidates(const struct formation *f, const struct roster *r,
                             const struct newcomers *by, enum tally of, size_t wanted,
                             struct node **out) {
    size_t n_new = 0, n_old = f->n_order, room = wanted - MIN2(wanted, r->tally[TALLY_FIT]);
    _cleanup_(freep) struct node **newcomers = xcalloc(r->n, sizeof *newcomers);
    struct choice c = {.f = f, .r = r, .of = of, .of_domains = roster_has_domains(r), .out = out};
    for (size_t i = 0; i < n_old; i++) {
        struct node *n = roster_find(r, f->order[i].incarnation);
        if (n != NULL && is_taken(r, n, of, &room))
            idmap_put(&c.placed, n->info.incarnation, n);
    }
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all)
        if (idmap_get(&c.placed, n->info.incarnation) == NULL && is_taken(r, n, of, &room))
            newcomers[n_new++] = n;
    qsort_r(newcomers, n_new, sizeof *newcomers, compare_newcomers_r, (void *)(uintptr_t)by);
    c.unit = c.of_domains ? r->unit : 1;
    c.n_candidates = c.placed.len + n_new;
    c.n_wanted = wanted / c.unit;
    c.shares = xcalloc(n_old + n_new, sizeof *c.shares);
    c.units = xcalloc(n_old, sizeof *c.units);
    c.unit_of = xcalloc(n_old, sizeof *c.unit_of);
    for (size_t i = 0; i < n_old; i++)
        add_old_place(&c, i);
    size_t n_old_shares = c.n_shares;
    keep_units(&c);
    for (size_t i = 0; i < n_new && c.n_wanted > 0; i++)
        add_unit(&c, newcomers[i]);
    lay_out(&c, n_old_shares);
    fill_kept_units(&c);
    for (size_t i = 0; i < n_new; i++)
        fill_gap(&c, newcomers[i]);
    for (size_t i = 0; i < n_old; i++)
        if (c.unit_of[i] != NULL && !c.unit_of[i]->kept && survivor(&c, i) != NULL)
            fill_gap(&c, survivor(&c, i));
    assert(c.n_wanted == 0);
    idmap_fini(&c.placed);
    idmap_fini(&c.by_domain);
    free(c.shares);
    free(c.units);
    free(c.unit_of);
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
    return &roles[GROUP_ROLES_MAX - 1]; /* JOIN refuses more roles, except of inherited nodes */
}

/* Never returns 0. */
static uint64_t hash_host(const char *host) {
    uint64_t h = hash_text(HASH_BEGIN, host);
    return h == 0 ? 1 : h;
}

/* Global ranks are prefix sums over the node order; each role is also counted separately. */
static void assign_ranks(struct formation *f) {
    struct role_count roles[GROUP_ROLES_MAX] = {0};
    _cleanup_(idmap_fini) struct idmap hosts = {0}; /* host → its newest member so far */
    uint32_t rank = 0;
    for (size_t i = 0; i < f->n_members; i++) {
        struct node *n = f->members[i];
        struct role_count *role = role_of(roles, n->info.role);
        uint64_t host = hash_host(n->info.host);
        const struct node *before = idmap_get(&hosts, host);
        n->place = (struct place){
            .node_rank = (uint32_t)i,
            .first_rank = rank,
            .role_first_rank = role->workers,
            .host_index = before == NULL ? 0 : before->place.host_index + 1,
        };
        idmap_put(&hosts, host, n);
        rank += n->info.nproc;
        role->workers += n->info.nproc;
    }
    for (size_t i = 0; i < f->n_members; i++)
        f->members[i]->place.role_world_size = role_of(roles, f->members[i]->info.role)->workers;
    f->world_size = rank;
}

void formation_choose(struct formation *f, struct roster *r, const struct group_config *c,
                      uint32_t epoch, uint32_t restarts_used, uint32_t losses) {
    struct newcomers by = {roster_find(r, c->leader_incarnation), c->rdzv.rank_order};
    struct node **chosen = xcalloc(r->n, sizeof *chosen);
    enum tally of = formation_candidates(r, c);
    size_t n_chosen = formation_size(c, roster_usable(r, of));
    order_candidates(f, r, &by, of, n_chosen, chosen);
    f->of_domains = roster_has_domains(r);
    LIST_FOR_EACH(struct node, n, &r->nodes, by_all) {
        n->is_newcomer = !n->in_order;
        n->is_member = n->in_order = n->was_old_member = false;
    }
    free(f->members);
    f->members = chosen;
    f->n_members = n_chosen;
    f->order = xrealloc(f->order, n_chosen * sizeof *f->order);
    f->n_order = n_chosen;
    for (size_t i = 0; i < n_chosen; i++) {
        chosen[i]->is_member = chosen[i]->in_order = true;
        f->order[i] = old_place_of(chosen[i]);
    }
    f->restarts_used = restarts_used;
    f->losses = losses;
    assign_ranks(f);
    bool same_epoch = f->generation.epoch == epoch;
    f->generation = (struct generation){epoch, same_epoch ? f->generation.counter + 1 : 1};
    f->n_last_lost = f->n_fell_silent = f->n_old_members = 0;
    f->formed_once = f->formed_here = true;
    formation_recount_all(f, r);
}

/* ---- changes of a group ---- */

void formation_inherit(struct formation *f, const struct handover *h) {
    f->generation = f->old_generation = h->formed;
    f->started = h->started;
    f->formed_once = f->started_once = !generation_is_none(h->formed);
    f->n_order = h->n_order;
    f->of_domains = h->n_order > 0;
    f->order = xcalloc(MAX2(f->n_order, (size_t)1), sizeof *f->order);
    for (size_t i = 0; i < MIN2(h->n_order, h->n_members); i++) {
        const struct handover_member *m = &h->members[i];
        f->order[i] = (struct old_place){m->incarnation, domain_key(m->domain)};
        f->of_domains = f->of_domains && f->order[i].domain != 0;
    }
}

void formation_await(struct formation *f, struct node *n) {
    n->in_order = n->was_old_member = true;
    f->n_old_members++;
}

void formation_lose(struct formation *f, struct node *n, bool silent) {
    size_t kept = 0;
    f->n_last_lost += n->in_order && !silent;
    f->n_fell_silent += silent;
    for (size_t i = 0; n->in_order && n->domain != NULL && i < f->n_order; i++)
        if (f->order[i].incarnation == n->info.incarnation)
            f->order[i] = old_place_of(n); /* its domain may have been unknown before */
    if (!n->is_member)
        return;
    for (size_t i = 0; i < f->n_members; i++)
        if (f->members[i] != n)
            f->members[kept++] = f->members[i];
    f->n_members = kept;
    f->n_lease_pending -= n->lease_pending;
    n->is_member = n->lease_pending = false;
}

void formation_set_lease_pending(struct formation *f, struct node *n, bool pending) {
    pending = pending && n->is_member;
    f->n_lease_pending += pending && !n->lease_pending;
    f->n_lease_pending -= !pending && n->lease_pending;
    n->lease_pending = pending;
}

void formation_end(struct formation *f) {
    for (size_t i = 0; i < f->n_members; i++)
        f->members[i]->is_member = f->members[i]->lease_pending = false;
    f->n_members = f->n_lease_pending = 0;
}

uint32_t formation_reachability(const struct formation *f) {
    uint32_t reachability = UINT32_MAX;
    for (size_t i = 0; i < f->n_members; i++)
        reachability &= f->members[i]->report.reachability;
    return reachability;
}

uint32_t formation_workers(const struct formation *f) {
    uint32_t workers = 0;
    for (size_t i = 0; i < f->n_members; i++)
        workers += f->members[i]->info.nproc;
    return workers;
}
