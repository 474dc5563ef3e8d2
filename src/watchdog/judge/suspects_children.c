#include <stdlib.h>
#include <string.h>

#include "watchdog/judge/suspects_priv.h"

#define OTHERS_MAX 64 /* ranks that one is compared with */

/* What is needed for each comparison, found once: there can be 16 children of each of thousands of
 * ranks. */
struct suspects_children {
    uint32_t n_nodes;
    uint64_t **places; /* [n_nodes], of each stack of the node's evidence: suspects_place() */
    uint32_t n_ranks;
    uint32_t ranks[OTHERS_MAX + 1]; /* the first that have children */
};

void suspects_children_free(struct suspects_children *c) {
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        free(c->places[i]);
    free(c->places);
    free(c);
}

static uint64_t *places_of(const struct evidence *e) {
    uint64_t *places = calloc(e->n_stacks + (size_t)1, sizeof *places);
    for (uint32_t i = 0; i < e->n_stacks && places != NULL; i++)
        places[i] = suspects_place(&e->stacks[i]);
    return places;
}

struct suspects_children *suspects_children_new(const struct suspects_input *in,
                                                const struct suspects *s) {
    struct suspects_children *c = calloc(1, sizeof *c);
    uint64_t **places = calloc(in->n_nodes + (size_t)1, sizeof *places);
    if (c == NULL || places == NULL) {
        free(c);
        free(places);
        return NULL;
    }
    *c = (struct suspects_children){.places = places};
    for (; c->n_nodes < in->n_nodes; c->n_nodes++) {
        const struct evidence *e = in->nodes[c->n_nodes].evidence;
        if (e != NULL && (places[c->n_nodes] = places_of(e)) == NULL) {
            suspects_children_free(c);
            return NULL;
        }
    }
    for (uint32_t r = 0; r < in->n_ranks && c->n_ranks <= OTHERS_MAX; r++)
        if (s->worker_of[r] != NULL && s->worker_of[r]->n_children > 0)
            c->ranks[c->n_ranks++] = r;
    return c;
}

/* 0: it has no stack. */
static uint64_t place_of(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                         const struct evidence_thread *t) {
    bool has = suspects_stack(suspects_evidence(in, rank), t) != NULL;
    return has ? s->children->places[in->nodes_of[rank]][t->stack] : 0;
}

/* A child of each of two ranks, which can be the same. */
static bool wait_alike(const struct suspects_input *in, const struct suspects *s, uint32_t rank_a,
                       const struct evidence_thread *a, uint32_t rank_b,
                       const struct evidence_thread *b) {
    enum wait_kind kind = suspects_wait(a);
    if (kind != suspects_wait(b))
        return false;
    uint64_t place_a = place_of(in, s, rank_a, a), place_b = place_of(in, s, rank_b, b);
    /* Some stacks could not be read; then the kernel's word counts. */
    if (place_a != 0 && place_b != 0 && place_a != place_b)
        return false;
    if (kind != WAIT_SLEEPS && kind != WAIT_BLOCKED)
        return true;
    if (a->syscall[0] != '\0' && b->syscall[0] != '\0')
        return strcmp(a->syscall, b->syscall) == 0;
    return strcmp(a->wchan, b->wchan) == 0;
}

/* Whether a child of this rank, besides itself, waits like `child` of rank `of`. */
static bool has_alike(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                      uint32_t of, const struct evidence_child *child) {
    const struct evidence_worker *w = s->worker_of[rank];
    for (uint32_t i = 0; i < w->n_children; i++)
        if (&w->children[i] != child &&
            wait_alike(in, s, of, &child->main, rank, &w->children[i].main))
            return true;
    return false;
}

/* In how many other ranks, of how many that have children, one waits like this. */
static void count_alike(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                        const struct evidence_child *child, uint32_t *ret_alike, uint32_t *ret_n) {
    const struct suspects_children *c = s->children;
    *ret_alike = *ret_n = 0;
    for (uint32_t i = 0; i < c->n_ranks && *ret_n < OTHERS_MAX; i++) {
        if (c->ranks[i] == rank)
            continue;
        ++*ret_n;
        *ret_alike += has_alike(in, s, c->ranks[i], rank, child);
    }
}

const struct evidence_child *suspects_odd_child(const struct suspects_input *in,
                                                const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    for (uint32_t i = 0; w != NULL && i < w->n_children; i++) {
        const struct evidence_child *child = &w->children[i];
        uint32_t alike, n;
        if (has_alike(in, s, rank, rank, child))
            continue;
        count_alike(in, s, rank, child, &alike, &n);
        if (n > 0 ? 2 * alike < n : w->n_children > 2)
            return child;
    }
    return NULL;
}
