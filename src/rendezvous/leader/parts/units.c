#include "rendezvous/leader/parts/units.h"

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
    const struct roster *r;
    enum tally of; /* candidates */
    const struct old_place *old;
    size_t n_old;
    size_t n_wanted; /* further units */
    struct share *shares;
    size_t n_shares;
    struct idmap by_domain; /* key → struct share */
    struct unit *units;
    size_t n_units;
    struct unit **unit_of; /* for each old place; NULL: its domain is not known */
    struct node **out;
};

struct old_place old_place_of(const struct node *n) {
    return (struct old_place){n->info.incarnation, n->domain == NULL ? 0 : n->domain->key};
}

static struct node *survivor(const struct choice *c, size_t place) {
    struct node *n = roster_find(c->r, c->old[place].incarnation);
    return n != NULL && node_is(n, c->of) ? n : NULL;
}

static struct share *share_of(struct choice *c, uint64_t domain) {
    struct share *s = idmap_get(&c->by_domain, domain);
    if (s != NULL)
        return s;
    const struct domain *d = idmap_get(&c->r->domains, domain);
    s = &c->shares[c->n_shares++];
    s->n_possible = d == NULL ? 0 : d->tally[c->of] / c->r->unit;
    idmap_put(&c->by_domain, domain, s);
    return s;
}

/* The old places of a domain are its old units, one after the other. */
static void add_old_place(struct choice *c, size_t place) {
    const struct node *n = roster_find(c->r, c->old[place].incarnation);
    uint64_t domain = n != NULL && n->domain != NULL ? n->domain->key : c->old[place].domain;
    if (domain == 0)
        return;
    struct share *s = share_of(c, domain);
    if (s->open == NULL || s->open->n_places == c->r->unit) {
        s->open = &c->units[c->n_units++];
        *s->open = (struct unit){.share = s, .n_missing = c->r->unit};
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
    struct unit **order = xcalloc(c->n_units, sizeof(struct unit *));
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
    free(order);
}

/* A newcomer that no gap of its domain needs is the first one of a new unit, or belongs to the last
 * new unit of its domain. */
static void add_unit(struct choice *c, const struct node *newcomer) {
    if (newcomer->domain == NULL)
        return;
    struct share *s = share_of(c, newcomer->domain->key);
    size_t i = s->n_new++;
    if (i < s->n_gaps || (i - s->n_gaps) % c->r->unit != 0 || s->n_units == s->n_possible)
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
        at = s->end = at + s->n_units * c->r->unit;
    }
}

static void fill_kept_units(struct choice *c) {
    for (size_t i = 0; i < c->n_units; i++) {
        struct unit *u = &c->units[i];
        if (!u->kept)
            continue;
        u->at = u->share->at;
        u->share->at += c->r->unit;
    }
    for (size_t i = 0; i < c->n_old; i++)
        if (c->unit_of[i] != NULL && c->unit_of[i]->kept)
            c->out[c->unit_of[i]->at++] = survivor(c, i);
}

static void fill_gap(const struct choice *c, struct node *n) {
    struct share *s = n->domain == NULL ? NULL : idmap_get(&c->by_domain, n->domain->key);
    if (s == NULL)
        return;
    while (s->gap < s->end && c->out[s->gap] != NULL)
        s->gap++;
    if (s->gap < s->end)
        c->out[s->gap] = n;
}

void units_choose(const struct roster *r, enum tally of, const struct old_place *old, size_t n_old,
                  struct node *const *newcomers, size_t n_new, size_t wanted, struct node **out) {
    struct choice c = {
        .r = r, .of = of, .old = old, .n_old = n_old, .n_wanted = wanted / r->unit, .out = out};
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
    idmap_fini(&c.by_domain);
    free(c.shares);
    free(c.units);
    free(c.unit_of);
}
