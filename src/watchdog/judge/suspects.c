#include "watchdog/judge/suspects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "watchdog/judge/suspects_priv.h"

const char *suspect_reason_name(enum suspect_reason reason) {
    switch (reason) {
    case SUSPECT_ENDED: return "ended";
    case SUSPECT_UNENDED: return "unended";
    case SUSPECT_STOPPED: return "stopped";
    case SUSPECT_ABSENT: return "absent";
    case SUSPECT_COLLECTIVES: return "collectives";
    case SUSPECT_STEPS: return "steps";
    case SUSPECT_UNMOVED: return "unmoved";
    case SUSPECT_CHILD: return "child";
    case SUSPECT_ELSEWHERE: return "elsewhere";
    case SUSPECT_THREAD: return "thread";
    case SUSPECT_BUSY: return "busy";
    }
    return "unknown";
}

const struct evidence_thread *suspects_main(const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    return w != NULL && !s->ended[rank] && !s->reacted[rank] && w->n_threads > 0 ? &w->threads[0]
                                                                                 : NULL;
}

void suspects_fini(struct suspects *s) {
    free(s->groups);
    free(s->group_of);
    free(s->suspects);
    free(s->worker_of);
    free(s->ended);
    free(s->reacted);
    free(s->is_suspect);
    suspects_children_free(s->children);
    *s = (struct suspects){0};
}

#define REACTED_STILL_NS NS_PER_S /* who moves is still for less */

/* Who failed, and who waited and has moved or ended since. */
static void find_reacted(const struct suspects_input *in, struct suspects *s) {
    for (uint32_t r = 0; in->waited != NULL && r < in->n_ranks; r++) {
        const struct evidence_worker *w = s->worker_of[r];
        bool known = suspects_evidence(in, r) != NULL && !s->ended[r];
        bool moved = w == NULL || w->ended || w->n_threads == 0 || w->spins ||
                     w->still_ns < REACTED_STILL_NS;
        s->reacted[r] = r == in->failed || (known && in->waited[r] && moved);
        s->n_reacted += s->reacted[r];
    }
}

/* Whose evidence is whose. A node speaks only of its own ranks. */
static void collect(const struct suspects_input *in, struct suspects *s) {
    for (uint32_t node = 0; node < in->n_nodes; node++) {
        const struct evidence *e = in->nodes[node].evidence;
        for (uint32_t i = 0; e != NULL && i < e->n_workers; i++) {
            const struct evidence_worker *w = &e->workers[i];
            if (w->rank >= in->n_ranks || in->nodes_of[w->rank] != node ||
                !suspects_chosen(in, w->rank))
                continue;
            s->worker_of[w->rank] = w;
            s->ended[w->rank] = w->ended && in->waited == NULL; /* else it may have failed */
        }
    }
    for (uint32_t i = 0; i < in->n_signs; i++)
        if (in->signs[i].sign == HANG_SIGN_ENDED && in->signs[i].rank < in->n_ranks)
            s->ended[in->signs[i].rank] = true;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        s->any_ended = s->any_ended || s->ended[r];
    find_reacted(in, s);
    suspects_find_reason(in, s);
    for (uint32_t r = 0; r < in->n_ranks; r++)
        s->n_missing += suspects_is_missing(in, s, r);
}

/* The program of a rank can be a child of the worker. */
static bool is_debugged(const struct suspects_input *in, const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    const struct evidence_thread *t = suspects_main(s, rank);
    const struct evidence *e = suspects_evidence(in, rank);
    bool is = t != NULL && suspects_is_debugged(suspects_stack(e, t));
    for (uint32_t i = 0; t != NULL && i < w->n_children && !is; i++)
        is = suspects_is_debugged(suspects_stack(e, &w->children[i].main));
    return is;
}

static void find_debugged(const struct suspects_input *in, struct suspects *s) {
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (is_debugged(in, s, r) && s->n_debugged++ == 0)
            s->debugged = r;
}

/* ---- what a rank is suspected for ---- */

static uint64_t number_of(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                          enum suspect_reason reason, bool by_ras) {
    const struct evidence_worker *w = s->worker_of[rank];
    if (s->ended[rank])
        return 0;
    if (by_ras)
        return in->collectives != NULL ? in->collectives[rank] : 0;
    if (w == NULL)
        return 0;
    return reason == SUSPECT_STEPS ? w->step : w->collectives;
}

/* Marks those whose number is lower than another's. *ret_most: the highest. */
static uint32_t mark_fewer(const struct suspects_input *in, struct suspects *s,
                           enum suspect_reason reason, bool by_ras, uint64_t *ret_most) {
    uint32_t n = 0;
    *ret_most = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        *ret_most = MAX2(*ret_most, number_of(in, s, r, reason, by_ras));
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        uint64_t number = number_of(in, s, r, reason, by_ras);
        s->is_suspect[r] = number != 0 && number < *ret_most;
        n += s->is_suspect[r];
    }
    return n;
}

static bool is_odd(const struct suspects_input *in, const struct suspects *s, uint32_t rank,
                   enum suspect_reason reason) {
    const struct evidence_thread *t = suspects_main(s, rank);
    switch (reason) {
    case SUSPECT_ENDED: return s->ended[rank] && (s->n_together > 0 || in->waited != NULL);
    case SUSPECT_UNENDED:
        return in->waited == NULL && s->any_ended && s->n_together == 0 && t != NULL;
    case SUSPECT_STOPPED: return t != NULL && suspects_wait(t) == WAIT_STOPPED;
    case SUSPECT_ABSENT:
        return in->came != NULL && !in->came[rank] && !s->ended[rank] && !s->reacted[rank];
    case SUSPECT_ELSEWHERE: return s->majority && t != NULL && s->group_of[rank] != 0;
    case SUSPECT_UNMOVED: return s->n_reacted > 1 && t != NULL;
    case SUSPECT_CHILD: return t != NULL && suspects_odd_child(in, s, rank) != NULL;
    case SUSPECT_BUSY:
        for (uint32_t i = 0; i < in->n_signs; i++)
            if (in->signs[i].rank == rank && in->signs[i].sign == HANG_SIGN_BUSY)
                return true;
        return false;
    case SUSPECT_THREAD: /* of all ranks at once */
    case SUSPECT_COLLECTIVES:
    case SUSPECT_STEPS: break;
    }
    return false;
}

static uint32_t mark_odd(const struct suspects_input *in, struct suspects *s,
                         enum suspect_reason reason) {
    uint32_t n = 0;
    if (reason == SUSPECT_BUSY && in->n_signs > SUSPECTS_KEPT)
        return 0;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        s->is_suspect[r] = is_odd(in, s, r, reason);
        n += s->is_suspect[r];
    }
    return n;
}

/* Which ranks the others wait for, by the strongest reason that is there. */
static enum suspect_reason choose(const struct suspects_input *in, struct suspects *s,
                                  uint64_t *ret_most, bool *ret_by_ras) {
    /* Of more than half, none stands out. A child counts only if the main threads don't tell. */
    static const enum suspect_reason odd[] = {SUSPECT_ENDED, SUSPECT_STOPPED, SUSPECT_UNENDED,
                                              SUSPECT_ABSENT};
    static const enum suspect_reason weak[] = {SUSPECT_UNMOVED, SUSPECT_ELSEWHERE, SUSPECT_CHILD,
                                               SUSPECT_THREAD, SUSPECT_BUSY};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        s->n_all = mark_odd(in, s, odd[i]);
        if (s->n_all > 0 && 2 * s->n_all <= in->n_ranks)
            return odd[i];
    }
    *ret_by_ras = false;
    s->n_all = mark_fewer(in, s, SUSPECT_COLLECTIVES, false, ret_most);
    if (s->n_all > 0)
        return SUSPECT_COLLECTIVES;
    *ret_by_ras = true;
    s->n_all = mark_fewer(in, s, SUSPECT_COLLECTIVES, true, ret_most);
    if (s->n_all > 0)
        return SUSPECT_COLLECTIVES;
    *ret_by_ras = false;
    s->n_all = mark_fewer(in, s, SUSPECT_STEPS, false, ret_most);
    if (s->n_all > 0)
        return SUSPECT_STEPS;
    for (size_t i = 0; i < ARRAY_SIZE(weak); i++) {
        s->n_all =
            weak[i] == SUSPECT_THREAD ? suspects_mark_threads(in, s) : mark_odd(in, s, weak[i]);
        if (s->n_all > 0 && 2 * s->n_all < in->n_ranks)
            return weak[i];
    }
    s->n_all = mark_odd(in, s, SUSPECT_STEPS); /* none */
    return SUSPECT_ELSEWHERE;
}

int suspects_find(const struct suspects_input *in, struct suspects *ret) {
    size_t n = in->n_ranks + (size_t)1;
    struct suspects s = {0};
    s.group_of = malloc(n * sizeof *s.group_of);
    s.worker_of = calloc(n, sizeof *s.worker_of);
    s.ended = calloc(n, sizeof *s.ended);
    s.reacted = calloc(n, sizeof *s.reacted);
    s.is_suspect = calloc(n, sizeof *s.is_suspect);
    s.suspects = calloc(SUSPECTS_KEPT, sizeof *s.suspects);
    *ret = (struct suspects){0};
    if (s.group_of == NULL || s.worker_of == NULL || s.ended == NULL || s.reacted == NULL ||
        s.is_suspect == NULL || s.suspects == NULL) {
        suspects_fini(&s);
        return -ENOMEM;
    }
    memset(s.group_of, 0xff, n * sizeof *s.group_of); /* NO_GROUP */
    collect(in, &s);
    find_debugged(in, &s);
    s.children = suspects_children_new(in, &s);
    int r = s.children == NULL ? -ENOMEM : suspects_group_ranks(in, &s);
    if (r < 0) {
        suspects_fini(&s);
        return r;
    }
    uint64_t most = 0;
    bool by_ras = false;
    enum suspect_reason reason = choose(in, &s, &most, &by_ras);
    for (uint32_t rank = 0; rank < in->n_ranks && s.n_suspects < SUSPECTS_KEPT; rank++) {
        if (!s.is_suspect[rank])
            continue;
        const struct evidence_worker *w = s.worker_of[rank];
        struct suspect *suspect = &s.suspects[s.n_suspects++];
        *suspect = (struct suspect){.rank = rank,
                                    .node = in->nodes_of[rank],
                                    .pid = w != NULL ? w->pid : 0,
                                    .reason = reason};
        const struct evidence_child *child = reason == SUSPECT_ELSEWHERE || reason == SUSPECT_CHILD
                                                 ? suspects_odd_child(in, &s, rank)
                                                 : NULL;
        if (child != NULL)
            suspect->reason = SUSPECT_CHILD;
        suspects_tell(in, &s, number_of(in, &s, rank, reason, by_ras), most, child, suspect);
    }
    *ret = s;
    return 0;
}
