/* Any bytes as what a node saw of its workers: refused with a sentence, or accepted. What was accepted is within the
 * limits, and is written, read and written again with the same text. */
#include <errno.h>
#include <string.h>

#include "base/text/utf8.h"
#include "watchdog/evidence/evidence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *text, size_t size) {
    if (memchr(text, '\0', size) == NULL)
        abort();
    for (const char *c = text; *c != '\0'; c += utf8_char(c))
        if (utf8_char(c) == 0 || utf8_is_control(c))
            abort();
}

static void check_thread(const struct evidence *e, const struct evidence_thread *t) {
    if (t->stack < -1 || t->stack >= (int64_t)e->n_stacks)
        abort();
    check_line(t->name, sizeof t->name);
    check_line(t->wchan, sizeof t->wchan);
    check_line(t->syscall, sizeof t->syscall);
    check_line(t->target, sizeof t->target);
}

static void check(const struct evidence *e) {
    if (e->n_workers > EVIDENCE_WORKERS_MAX || e->n_stacks > EVIDENCE_WORKERS_MAX || e->n_gaps > EVIDENCE_GAPS_MAX)
        abort();
    for (uint32_t i = 0; i < e->n_workers; i++) {
        const struct evidence_worker *w = &e->workers[i];
        if (w->n_threads > EVIDENCE_THREADS_MAX || w->n_children > EVIDENCE_CHILDREN_MAX)
            abort();
        for (uint32_t k = 0; k < w->n_threads; k++)
            check_thread(e, &w->threads[k]);
        for (uint32_t k = 0; k < w->n_children; k++)
            check_thread(e, &w->children[k].main);
        for (uint32_t k = 0; k < w->n_gaps; k++)
            check_line(w->gaps[k], sizeof w->gaps[k]);
    }
    for (uint32_t i = 0; i < e->n_stacks; i++)
        if (e->stacks[i].n > EVIDENCE_FRAMES_MAX)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(evidence_fini) struct evidence e = {0}, again = {0};
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    struct err err = {0};
    int r = evidence_read((const char *)data, size, &e, &err);
    if (r != 0) {
        if (err.code != r || err.text[0] == '\0' || e.n_workers != 0 || e.workers != NULL)
            abort();
        return 0;
    }
    check(&e);
    evidence_write(&e, &first);
    if (first.len > EVIDENCE_JSON_MAX || evidence_read(first.data, first.len, &again, &err) != 0)
        abort();
    check(&again);
    evidence_write(&again, &second);
    if (strcmp(strbuf_text(&first), strbuf_text(&second)) != 0)
        abort();
    return 0;
}
