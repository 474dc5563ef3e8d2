#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "watchdog/judge/suspects_priv.h"

/* From fine to coarse. */
enum level { LEVEL_ALL = 0, LEVEL_STACK, LEVEL_LINE, N_LEVELS };

struct keyed {
    uint64_t key;
    uint32_t rank;
};

/* The word for how it waits: of the system call if that is known, because kernels name their own
 * functions differently. */
static const char *wait_word(const struct evidence_thread *t) {
    return t->syscall[0] != '\0' ? t->syscall : t->wchan;
}

static uint64_t key_of(const struct evidence *e, const struct evidence_thread *t,
                       enum level level) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    enum wait_kind kind = suspects_wait(t);
    if (level == LEVEL_LINE && stack != NULL) {
        const struct evidence_stack line = {
            .n = 1,
            .frames = (struct evidence_frame *)(uintptr_t)suspects_user_frame(stack),
        };
        uint64_t place = suspects_place(&line);
        return kind == WAIT_BLOCKED ? hash_text(place, "D") : place;
    }
    uint64_t h = hash_bytes(HASH_BEGIN, &(uint64_t){suspects_place(stack)}, sizeof(uint64_t));
    /* A waiter that wakes for a moment, or spins, is still one, if its stack says so. */
    bool coarse = level != LEVEL_ALL && stack != NULL && (kind == WAIT_SLEEPS || kind == WAIT_RUNS);
    if (coarse)
        return h;
    h = hash_bytes(h, &kind, sizeof kind);
    return kind == WAIT_SLEEPS || kind == WAIT_BLOCKED ? hash_text(h, wait_word(t)) : h;
}

static int by_key(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_size(const void *a, const void *b) {
    const struct suspects_group *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Groups them by their keys: keyed[] is sorted, and groups[] has room for all. */
static uint32_t make_groups(struct keyed *keyed, uint32_t n, struct suspects_group *groups) {
    uint32_t n_groups = 0;
    qsort(keyed, n, sizeof *keyed, by_key);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || keyed[i].key != keyed[i - 1].key)
            groups[n_groups++] = (struct suspects_group){.first = keyed[i].rank};
        groups[n_groups - 1].n++;
    }
    qsort(groups, n_groups, sizeof *groups, by_size);
    return n_groups;
}

static void make_keys(const struct suspects_input *in, const struct suspects *s, enum level level,
                      struct keyed *keyed) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        if (t != NULL)
            keyed[n++] = (struct keyed){key_of(suspects_evidence(in, r), t, level), r};
    }
}

/* The number of each rank's group, from the keys and the sorted groups. */
static void number_ranks(struct suspects *s, const struct keyed *keyed, uint32_t n) {
    for (uint32_t g = 0; g < s->n_groups; g++)
        s->group_of[s->groups[g].first] = g;
    for (uint32_t i = 1; i < n; i++) /* the first of a key is the first of its group */
        if (keyed[i].key == keyed[i - 1].key)
            s->group_of[keyed[i].rank] = s->group_of[keyed[i - 1].rank];
}

int suspects_group_ranks(const struct suspects_input *in, struct suspects *s) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        n += suspects_main(s, r) != NULL;
    _cleanup_(freep) struct keyed *keyed = calloc(n + (size_t)1, sizeof *keyed);
    s->groups = calloc(n + (size_t)1, sizeof *s->groups);
    if (keyed == NULL || s->groups == NULL)
        return -ENOMEM;
    /* Without any majority, the finest groups are shown. */
    for (int i = 0; i <= N_LEVELS && !s->majority; i++) {
        make_keys(in, s, i < N_LEVELS ? (enum level)i : LEVEL_ALL, keyed);
        s->n_groups = make_groups(keyed, n, s->groups);
        s->majority = s->n_groups > 0 && 2 * s->groups[0].n > n;
    }
    number_ranks(s, keyed, n);
    for (uint32_t g = 0; g < s->n_groups; g++) {
        struct suspects_group *group = &s->groups[g];
        suspects_where(suspects_evidence(in, group->first), suspects_main(s, group->first),
                       group->where, sizeof group->where);
    }
    return 0;
}
