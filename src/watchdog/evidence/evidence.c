#include "watchdog/evidence/evidence.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

static void fini_worker(struct evidence_worker *w) {
    free(w->threads);
    free(w->children);
    free(w->kernel_stack);
    free(w->recorder);
    free(w->native_stack);
    free(w->log_tail);
}

void evidence_fini(struct evidence *e) {
    for (uint32_t i = 0; i < e->n_workers; i++)
        fini_worker(&e->workers[i]);
    for (uint32_t i = 0; i < e->n_stacks; i++)
        free(e->stacks[i].frames);
    free(e->workers);
    free(e->stacks);
    free(e->counts);
    free(e->ras);
    free(e->gpus);
    free(e->nics);
    free(e->kernel_log);
    *e = (struct evidence){0};
}

/* ---- adding ---- */

/* The address of one more element, zeroed; NULL: no room. Peers choose how many there are. */
static void *grow(void *list, uint32_t n, size_t size, uint32_t max) {
    return n < max ? realloc(list, (n + (size_t)1) * size) : NULL;
}

struct evidence_worker *evidence_add_worker(struct evidence *e) {
    void *list = grow(e->workers, e->n_workers, sizeof *e->workers, EVIDENCE_WORKERS_MAX);
    if (list == NULL)
        return NULL;
    e->workers = list;
    struct evidence_worker *w = &e->workers[e->n_workers++];
    *w = (struct evidence_worker){0};
    return w;
}

struct evidence_thread *evidence_add_thread(struct evidence_worker *w) {
    void *list = grow(w->threads, w->n_threads, sizeof *w->threads, EVIDENCE_THREADS_MAX);
    if (list == NULL)
        return NULL;
    w->threads = list;
    struct evidence_thread *t = &w->threads[w->n_threads++];
    *t = (struct evidence_thread){.stack = -1};
    return t;
}

struct evidence_child *evidence_add_child(struct evidence_worker *w) {
    void *list = grow(w->children, w->n_children, sizeof *w->children, EVIDENCE_CHILDREN_MAX);
    if (list == NULL)
        return NULL;
    w->children = list;
    struct evidence_child *c = &w->children[w->n_children++];
    *c = (struct evidence_child){.main.stack = -1};
    return c;
}

static bool is_same_stack(const struct evidence_stack *s, const struct evidence_frame *frames,
                          uint32_t n, bool cut) {
    if (s->n != n || s->cut != cut)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (s->frames[i].line != frames[i].line ||
            strcmp(s->frames[i].function, frames[i].function) != 0 ||
            strcmp(s->frames[i].file, frames[i].file) != 0)
            return false;
    return true;
}

int evidence_add_stack(struct evidence *e, const struct evidence_frame *frames, size_t n,
                       uint32_t *ret) {
    bool cut = n > EVIDENCE_FRAMES_MAX;
    uint32_t kept = cut ? EVIDENCE_FRAMES_MAX : (uint32_t)n;
    for (uint32_t i = 0; i < e->n_stacks; i++) {
        if (!is_same_stack(&e->stacks[i], frames, kept, cut))
            continue;
        *ret = i;
        return 0;
    }
    if (e->n_stacks == EVIDENCE_WORKERS_MAX)
        return -E2BIG;
    struct evidence_stack *list =
        grow(e->stacks, e->n_stacks, sizeof *e->stacks, EVIDENCE_WORKERS_MAX);
    if (list == NULL)
        return -ENOMEM;
    e->stacks = list;
    struct evidence_frame *copy = calloc(MAX2(kept, 1U), sizeof *copy);
    if (copy == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < kept; i++)
        copy[i] = frames[i];
    *ret = e->n_stacks++;
    e->stacks[*ret] = (struct evidence_stack){.n = kept, .frames = copy, .cut = cut};
    return 0;
}

int evidence_add_counts(struct evidence *e, const uint64_t *counts, uint32_t n) {
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && counts[end] == counts[i]; end++)
            ;
        if (counts[i] == 0)
            continue;
        struct evidence_count *list =
            grow(e->counts, e->n_counts, sizeof *e->counts, EVIDENCE_COUNTS_MAX);
        if (list == NULL)
            return e->n_counts == EVIDENCE_COUNTS_MAX ? -E2BIG : -ENOMEM;
        e->counts = list;
        e->counts[e->n_counts++] =
            (struct evidence_count){.first = i, .n = end - i, .collectives = counts[i]};
    }
    return 0;
}

void evidence_counts(const struct evidence *e, uint64_t *ret, uint32_t n) {
    memset(ret, 0, n * sizeof *ret);
    for (uint32_t i = 0; i < e->n_counts; i++) {
        const struct evidence_count *c = &e->counts[i];
        for (uint32_t r = c->first; r < n && r - c->first < c->n; r++)
            ret[r] = c->collectives;
    }
}

_printf_(3, 0) static void add_gap(char gaps[][EVIDENCE_LINE_MAX], uint32_t *n, const char *format,
                                   va_list args) {
    if (*n >= EVIDENCE_GAPS_MAX)
        return;
    char text[EVIDENCE_LINE_MAX];
    (void)vsnprintf(text, sizeof text, format, args);
    utf8_copy(gaps[*n], EVIDENCE_LINE_MAX, text); /* the end may be half a character */
    ++*n;
}

void evidence_gap(struct evidence *e, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_gap(e->gaps, &e->n_gaps, format, args);
    va_end(args);
}

void evidence_worker_gap(struct evidence_worker *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_gap(w->gaps, &w->n_gaps, format, args);
    va_end(args);
}
