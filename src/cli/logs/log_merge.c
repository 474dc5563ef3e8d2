#include "cli/logs/log_merge.h"

#include <string.h>

/* What is to be shown next of a source. */
struct head {
    struct log_source *source;
    size_t order; /* its place in the list */
    size_t len;
    bool ended;
};

struct merge {
    const struct log_merge_ops *ops;
    void *arg;
    struct head *heap; /* the smallest first */
    size_t n;
};

void log_source_fini(struct log_source *s) {
    strbuf_fini(&s->text);
    *s = (struct log_source){0};
}

/* Moves the rest to the beginning, and reads more. */
static bool refill(struct merge *m, struct log_source *s) {
    size_t rest = s->text.len - s->used;
    if (s->used > 0) {
        memmove(s->text.data, s->text.data + s->used, rest);
        s->text.len = rest;
        s->used = 0;
    }
    if (!m->ops->read(m->arg, s))
        return false;
    s->no_stamp = false; /* stamps are written before the bytes */
    return true;
}

static void find_time(struct merge *m, struct log_source *s) {
    for (;;) {
        if (!s->has_next && !s->no_stamp) {
            s->has_next = m->ops->read_stamp(m->arg, s, &s->next);
            s->no_stamp = !s->has_next;
        }
        if (!s->has_next || s->next.at > s->at)
            return;
        s->ns = s->next.ns;
        s->has_next = false;
    }
}

/* False: the source has nothing to show now. */
static bool find_piece(struct merge *m, struct head *h) {
    struct log_source *s = h->source;
    for (;;) {
        size_t rest = s->text.len - s->used;
        const char *from = rest > 0 ? s->text.data + s->used : "";
        const char *end = rest > 0 ? memchr(from, '\n', MIN2(rest, LOG_PIECE_MAX)) : NULL;
        bool whole = end != NULL || rest >= LOG_PIECE_MAX;
        if (!whole && refill(m, s))
            continue;
        if (!whole && (rest == 0 || !m->ops->show_rest(m->arg, s)))
            return false;
        h->len = end != NULL ? (size_t)(end - from) : MIN2(rest, LOG_PIECE_MAX);
        h->ended = end != NULL;
        if (!s->inside)
            find_time(m, s);
        return true;
    }
}

static bool is_before(const struct head *a, const struct head *b) {
    if (a->source->ns != b->source->ns)
        return a->source->ns < b->source->ns;
    return a->order < b->order;
}

static void swap(struct head *a, struct head *b) {
    struct head c = *a;
    *a = *b;
    *b = c;
}

static void sift_down(struct merge *m, size_t i) {
    for (;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < m->n; k++)
            if (is_before(&m->heap[k], &m->heap[least]))
                least = k;
        if (least == i)
            return;
        swap(&m->heap[i], &m->heap[least]);
        i = least;
    }
}

/* Shows the line at the top, to its end or as far as it is there. */
static bool show_line(struct merge *m) {
    struct head *h = &m->heap[0];
    struct log_source *s = h->source;
    bool more = true, goes_on = true;
    while (more && goes_on) {
        struct log_piece piece = {.data = s->text.data + s->used,
                                  .len = h->len,
                                  .continues = s->inside,
                                  .ended = h->ended};
        goes_on = m->ops->show(m->arg, s, &piece);
        s->used += h->len + h->ended;
        s->at += h->len + h->ended;
        s->inside = !h->ended;
        more = find_piece(m, h);
        if (!s->inside)
            break;
    }
    if (!more)
        m->heap[0] = m->heap[--m->n];
    sift_down(m, 0);
    return goes_on;
}

bool log_merge(struct log_source *const *sources, size_t n, const struct log_merge_ops *ops,
               void *arg) {
    _cleanup_(freep) struct head *heap = xcalloc(MAX2(n, (size_t)1), sizeof *heap);
    struct merge m = {.ops = ops, .arg = arg, .heap = heap};
    bool goes_on = true;
    for (size_t i = 0; i < n; i++) {
        m.heap[m.n] = (struct head){.source = sources[i], .order = i};
        m.n += find_piece(&m, &m.heap[m.n]);
    }
    for (size_t i = m.n; i-- > 0;)
        sift_down(&m, i);
    while (goes_on && m.n > 0)
        goes_on = show_line(&m);
    return goes_on;
}
