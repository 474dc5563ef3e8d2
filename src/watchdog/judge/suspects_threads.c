/* Where all main threads are at the same place, as in an event loop, other threads may tell: those
 * in which most ranks wait for the others in torch.distributed. */
#include <stdlib.h>
#include <string.h>

#include "watchdog/judge/suspects_priv.h"

struct met {
    uint64_t place;
    uint32_t rank;
};

static const struct evidence_frame *meets(const struct evidence_stack *stack) {
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++)
        if (strstr(stack->frames[i].file, "/torch/distributed/") != NULL)
            return &stack->frames[i];
    return NULL;
}

/* The innermost line of torch.distributed; 0: none. */
static uint64_t place_of(const struct evidence *e, const struct evidence_thread *t) {
    const struct evidence_frame *f = meets(suspects_stack(e, t));
    const struct evidence_stack line = {.n = 1, .frames = (struct evidence_frame *)(uintptr_t)f};
    return f == NULL ? 0 : suspects_place(&line);
}

static int by_place(const void *a, const void *b) {
    const struct met *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of each rank the places of its other threads. Returns how many. */
static size_t list(const struct suspects_input *in, const struct suspects *s, struct met *met) {
    size_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_worker *w = suspects_main(s, r) != NULL ? s->worker_of[r] : NULL;
        for (uint32_t i = 1; w != NULL && i < w->n_threads; i++) {
            uint64_t place = place_of(suspects_evidence(in, r), &w->threads[i]);
            if (place != 0)
                met[n++] = (struct met){place, r};
        }
    }
    qsort(met, n, sizeof *met, by_place);
    return n;
}

/* The place at which more than half of the ranks have a thread, and not all; 0: none. */
static uint64_t common_place(const struct met *met, size_t n, uint32_t n_ranks) {
    uint32_t ranks = 0;
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || met[i].place != met[i - 1].place;
        ranks = begins ? 1 : ranks + (met[i].rank != met[i - 1].rank);
        bool ends = i + 1 == n || met[i + 1].place != met[i].place;
        if (ends && 2 * ranks > n_ranks && ranks < n_ranks)
            return met[i].place;
    }
    return 0;
}

/* Every rank is seen whole, and none stands out by its main thread. */
static bool may_tell(const struct suspects_input *in, const struct suspects *s, size_t *ret_n) {
    *ret_n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_thread *main = suspects_main(s, r);
        if (main == NULL || s->worker_of[r]->threads_cut ||
            suspects_stack(suspects_evidence(in, r), main) == NULL)
            return false;
        *ret_n += s->worker_of[r]->n_threads;
    }
    return s->majority && s->n_groups == 1;
}

uint32_t suspects_mark_threads(const struct suspects_input *in, struct suspects *s) {
    size_t n;
    uint32_t marked = 0;
    memset(s->is_suspect, 0, in->n_ranks * sizeof *s->is_suspect);
    if (!may_tell(in, s, &n))
        return 0;
    _cleanup_(freep) struct met *met = xcalloc(n + 1, sizeof *met);
    n = list(in, s, met);
    uint64_t place = common_place(met, n, in->n_ranks);
    if (place == 0)
        return 0;
    memset(s->is_suspect, 1, in->n_ranks * sizeof *s->is_suspect);
    for (size_t i = 0; i < n; i++)
        if (met[i].place == place)
            s->is_suspect[met[i].rank] = false;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        marked += s->is_suspect[r];
    return marked;
}

static bool has_place(const struct evidence *e, const struct evidence_worker *w, uint64_t place) {
    for (uint32_t i = 1; i < w->n_threads; i++)
        if (suspects_place(suspects_stack(e, &w->threads[i])) == place)
            return true;
    return false;
}

const struct evidence_thread *suspects_odd_thread(const struct suspects_input *in,
                                                  const struct suspects *s, uint32_t rank) {
    const struct evidence *e = suspects_evidence(in, rank);
    const struct evidence_worker *w = s->worker_of[rank];
    uint32_t other = 0;
    while (other + 1 < in->n_ranks && s->is_suspect[other])
        other++;
    for (uint32_t i = 1; i < w->n_threads; i++) {
        uint64_t place = suspects_place(suspects_stack(e, &w->threads[i]));
        if (place != 0 && !has_place(suspects_evidence(in, other), s->worker_of[other], place))
            return &w->threads[i];
    }
    return NULL;
}
