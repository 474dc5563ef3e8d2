/* --bind=core: each worker gets an equal share of the allowed cores, and no core is assigned twice.
 */
#include <stdio.h>

#include "topology/model/affinity_priv.h"

/* Adjacent cores in one NUMA node; [next, end) of them are not assigned yet. */
struct stretch {
    int32_t numa, package;
    uint32_t next, end;
};

struct dealing {
    const struct topology *t;
    uint32_t *order; /* [n_cores] indices in cores[]: by package, node, number */
    struct stretch *stretches;
    uint32_t n_stretches;
};

static int compare_cores(const void *a, const void *b, void *arg) {
    const struct topology *t = arg;
    const struct topo_core *x = &t->cores[*(const uint32_t *)a];
    const struct topo_core *y = &t->cores[*(const uint32_t *)b];
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    if (x->numa != y->numa)
        return x->numa < y->numa ? -1 : 1;
    uint32_t i = affinity_core_first(x), j = affinity_core_first(y);
    return (i > j) - (i < j);
}

static void dealing_init(struct dealing *d, struct topology *t) {
    *d = (struct dealing){.t = t};
    d->order = xcalloc(t->n_cores, sizeof *d->order);
    d->stretches = xcalloc(t->n_cores, sizeof *d->stretches);
    for (uint32_t i = 0; i < t->n_cores; i++)
        d->order[i] = i;
    qsort_r(d->order, t->n_cores, sizeof *d->order, compare_cores, t);
    for (uint32_t i = 0; i < t->n_cores; i++) {
        const struct topo_core *c = &t->cores[d->order[i]];
        struct stretch *last = d->n_stretches > 0 ? &d->stretches[d->n_stretches - 1] : NULL;
        if (last == NULL || last->numa != c->numa || last->package != c->package) {
            last = &d->stretches[d->n_stretches++];
            *last = (struct stretch){c->numa, c->package, i, i};
        }
        last->end = i + 1;
    }
}

static void dealing_fini(struct dealing *d) {
    free(d->order);
    free(d->stretches);
}

enum nearness { SAME_NODE, SAME_PACKAGE, ANYWHERE };

/* Numbers of the NUMA nodes and packages of a worker's GPUs, if they are known. */
struct home {
    struct cpuset nodes, packages;
};

static void find_home(const struct topology *t, const struct affinity_input *in,
                      uint32_t local_rank, struct home *ret) {
    *ret = (struct home){0};
    uint32_t gpu;
    for (uint32_t k = 0; (gpu = affinity_gpu_at(in, local_rank, k)) < t->n_gpus; k++) {
        int32_t numa = t->gpus[gpu].numa;
        const struct topo_numa *n = numa < 0 ? NULL : topology_numa(t, numa);
        if (n == NULL)
            continue;
        cpuset_add(&ret->nodes, (uint32_t)numa);
        if (n->package >= 0)
            cpuset_add(&ret->packages, (uint32_t)n->package);
    }
}

static bool is_near(const struct stretch *s, const struct home *home, enum nearness how) {
    switch (how) {
    case SAME_NODE: return s->numa >= 0 && cpuset_has(&home->nodes, (uint32_t)s->numa);
    case SAME_PACKAGE: return s->package >= 0 && cpuset_has(&home->packages, (uint32_t)s->package);
    case ANYWHERE: return true;
    }
    assert_not_reached();
}

/* Takes up to `want` cores at this distance, into *into if that is not NULL. Returns how many it
 * got. */
static uint32_t take(struct dealing *d, const struct home *home, enum nearness how, uint32_t want,
                     struct cpuset *into) {
    uint32_t got = 0;
    for (uint32_t i = 0; i < d->n_stretches && got < want; i++) {
        struct stretch *s = &d->stretches[i];
        if (!is_near(s, home, how))
            continue;
        for (; s->next < s->end && got < want; s->next++, got++)
            if (into != NULL)
                cpuset_or(into, &d->t->cores[d->order[s->next]].cpus);
    }
    return got;
}

/* Each worker first takes cores of its own node, in the order of local ranks. Workers that need
 * more then take cores of their package, then of the rest. So each worker's share depends on all
 * workers. */
static void deal(struct dealing *d, const struct affinity_input *in, struct cpuset *ret) {
    const uint32_t share = d->t->n_cores / in->nproc, more = d->t->n_cores % in->nproc;
    uint32_t *lacks = xcalloc(in->nproc, sizeof *lacks);
    struct home home;
    for (uint32_t i = 0; i < in->nproc; i++)
        lacks[i] = share + (i < more);
    for (enum nearness how = in->n_visible > 0 ? SAME_NODE : ANYWHERE; how <= ANYWHERE; how++)
        for (uint32_t i = 0; i < in->nproc; i++) {
            if (lacks[i] == 0)
                continue;
            find_home(d->t, in, i, &home);
            lacks[i] -= take(d, &home, how, lacks[i], i == in->local_rank ? ret : NULL);
        }
    free(lacks);
}

static void describe(const struct topology *t, const struct affinity_input *in, bool shared,
                     struct affinity *ret) {
    char gpu[TOPO_TEXT_MAX] = "";
    if (affinity_gpu_of(in, in->local_rank) < t->n_gpus)
        affinity_gpus_text(t, in, in->local_rank, gpu);
    if (shared)
        (void)snprintf(ret->why, sizeof ret->why, "one core of %u that %u workers share",
                       t->n_cores, in->nproc);
    else
        (void)snprintf(ret->why, sizeof ret->why, "an own share of %u cores%s%.60s", t->n_cores,
                       gpu[0] != '\0' ? ", near " : "", gpu);
}

void affinity_choose_core(const struct topology *t, const struct affinity_input *in,
                          struct affinity *ret) {
    if (t->n_cores == 0) {
        (void)snprintf(ret->why, sizeof ret->why, "the cores are not known");
        return;
    }
    struct dealing d;
    dealing_init(&d, (struct topology *)(uintptr_t)t); /* qsort_r's argument is not const */
    bool shared = t->n_cores < in->nproc;
    if (shared) {
        uint32_t i = (uint32_t)((uint64_t)in->local_rank * t->n_cores / in->nproc);
        ret->cpus = t->cores[d.order[i]].cpus;
    } else {
        deal(&d, in, &ret->cpus);
    }
    dealing_fini(&d);
    ret->bound = true;
    describe(t, in, shared, ret);
}
