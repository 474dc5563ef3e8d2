#include <string.h>

#include "watchdog/suspects/suspects_priv.h"

/* Children are few, and this is asked for suspects alone: so they are compared one by one. */
static bool wait_alike(const struct evidence *ea, const struct evidence_thread *a,
                       const struct evidence *eb, const struct evidence_thread *b) {
    const struct evidence_stack *sa = suspects_stack(ea, a), *sb = suspects_stack(eb, b);
    enum wait_kind kind = suspects_wait(a);
    if (kind != suspects_wait(b))
        return false;
    /* Some stacks could not be read; then the kernel's word counts. */
    if (sa != NULL && sb != NULL && suspects_place(sa) != suspects_place(sb))
        return false;
    if (kind != WAIT_SLEEPS && kind != WAIT_BLOCKED)
        return true;
    if (a->syscall[0] != '\0' && b->syscall[0] != '\0')
        return strcmp(a->syscall, b->syscall) == 0;
    return strcmp(a->wchan, b->wchan) == 0;
}

#define OTHERS_MAX 64 /* ranks that are compared with */

/* In how many other ranks, of how many that have children, one waits like this. */
static void count_alike(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                        const struct evidence_child *child, uint32_t *ret_alike, uint32_t *ret_n) {
    const struct evidence *mine = suspects_evidence(in, rank);
    *ret_alike = *ret_n = 0;
    for (uint32_t r = 0; r < in->n_ranks && *ret_n < OTHERS_MAX; r++) {
        const struct evidence_worker *w = s->worker_of[r];
        if (r == rank || w == NULL || w->n_children == 0)
            continue;
        bool alike = false;
        for (uint32_t i = 0; i < w->n_children && !alike; i++)
            alike = wait_alike(mine, &child->main, suspects_evidence(in, r), &w->children[i].main);
        ++*ret_n;
        *ret_alike += alike;
    }
}

static uint32_t siblings_alike(const struct evidence *e, const struct evidence_worker *w,
                               const struct evidence_child *child) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_children; i++)
        n += &w->children[i] != child && wait_alike(e, &child->main, e, &w->children[i].main);
    return n;
}

const struct evidence_child *suspects_odd_child(const struct suspects_input *in,
                                                const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    const struct evidence *e = suspects_evidence(in, rank);
    for (uint32_t i = 0; w != NULL && i < w->n_children; i++) {
        const struct evidence_child *child = &w->children[i];
        uint32_t alike, n;
        if (siblings_alike(e, w, child) > 0)
            continue;
        count_alike(in, s, rank, child, &alike, &n);
        if (n > 0 ? 2 * alike < n : w->n_children > 2)
            return child;
    }
    return NULL;
}
