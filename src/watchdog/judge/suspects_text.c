#include <inttypes.h>
#include <string.h>

#include "base/idmap.h"
#include "base/text/utf8.h"
#include "watchdog/judge/suspects_priv.h"

#define GROUPS_MAX 256 /* that are shown; the evidence of each is in hang.json */

/* Adds a part of the text only if all of it has room. False: it has not. */
static bool add_part(struct strbuf *ret, const struct strbuf *part) {
    if (ret->len + part->len > SUSPECTS_TEXT_MAX)
        return false;
    strbuf_add_bytes(ret, strbuf_text(part), part->len);
    return true;
}

/* A text of several lines, each indented. */
static void add_lines(struct strbuf *ret, const char *title, const char *text) {
    if (text == NULL || text[0] == '\0')
        return;
    strbuf_printf(ret, "  %s:\n", title);
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        strbuf_add(ret, "    ");
        strbuf_add_bytes(ret, line, len);
        strbuf_add_char(ret, '\n');
        line += len + (line[len] == '\n');
    }
}

static void add_stack(struct strbuf *ret, const struct evidence *e,
                      const struct evidence_thread *t) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++) {
        const struct evidence_frame *f = &stack->frames[i];
        strbuf_printf(ret, "      %s  %s:%" PRIu32 "\n", f->function, f->file, f->line);
    }
    if (stack != NULL && stack->cut)
        strbuf_add(ret, "      ...\n");
}

static void add_thread(struct strbuf *ret, const char *what, int32_t id, const char *name,
                       const struct evidence *e, const struct evidence_thread *t) {
    strbuf_printf(ret, "    %s %" PRId32 " %s: %c", what, id, name, t->state != 0 ? t->state : '?');
    if (t->syscall[0] != '\0')
        strbuf_printf(ret, " %s()", t->syscall);
    if (t->wchan[0] != '\0' && strcmp(t->wchan, "0") != 0)
        strbuf_printf(ret, " %s", t->wchan);
    if (t->target[0] != '\0')
        strbuf_printf(ret, " %s", t->target);
    strbuf_add_char(ret, '\n');
    add_stack(ret, e, t);
}

static void add_worker(struct strbuf *ret, const struct evidence *e,
                       const struct evidence_worker *w, bool whole) {
    for (uint32_t i = 0; i < (whole ? w->n_threads : MIN2(w->n_threads, 1)); i++)
        add_thread(ret, i == 0 ? "main thread" : "thread", w->threads[i].tid, w->threads[i].name, e,
                   &w->threads[i]);
    if (!whole)
        return;
    if (w->threads_cut)
        strbuf_add(ret, "    more threads are left out\n");
    for (uint32_t i = 0; i < w->n_children; i++)
        add_thread(ret, "child", w->children[i].pid, w->children[i].name, e, &w->children[i].main);
    if (w->children_cut)
        strbuf_add(ret, "    more children are left out\n");
    add_lines(ret, "kernel stack of the main thread", w->kernel_stack);
    add_lines(ret, "flight recorder", w->recorder);
    add_lines(ret, "last lines of its log", w->log_tail);
    for (uint32_t i = 0; i < w->n_gaps; i++)
        strbuf_printf(ret, "  missing: %s\n", w->gaps[i]);
}

/* Only of what is shown of each group: its main thread, and the stack of that. */
static void add_gaps_of_stack(struct strbuf *ret, const struct evidence_worker *w) {
    for (uint32_t i = 0; i < w->n_gaps; i++)
        if (strncmp(w->gaps[i], "Python stack:", 13) == 0 || strncmp(w->gaps[i], "/proc:", 6) == 0)
            strbuf_printf(ret, "  missing: %s\n", w->gaps[i]);
}

/* Whether it is among the suspects that are shown. */
static bool is_listed(const struct suspects *s, uint32_t rank) {
    return s->is_suspect[rank] && s->n_suspects > 0 && rank <= s->suspects[s->n_suspects - 1].rank;
}

static void add_group(const struct suspects_input *in, const struct suspects *s, uint32_t group,
                      uint32_t *ranks, struct strbuf *ret) {
    const struct suspects_group *g = &s->groups[group];
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_ranks; r++)
        if (s->group_of[r] == group)
            ranks[n++] = r;
    strbuf_printf(ret, "\n%s ", n == 1 ? "rank" : "ranks");
    suspects_ranges(ranks, n, 4096, ret);
    strbuf_printf(ret, ": %s", suspects_group_verb(s, g, n));
    if (g->where[0] != '\0')
        strbuf_printf(ret, " in %s", g->where);
    const struct evidence_worker *w = s->worker_of[g->first];
    bool whole = in->on_request ? in->chosen != NULL : !s->majority;
    if (!in->on_request && is_listed(s, g->first)) {
        strbuf_printf(ret, "\n  rank %" PRIu32 " is shown above\n", g->first);
        return;
    }
    strbuf_printf(ret, "\n  of rank %" PRIu32 " (node %s):\n", g->first,
                  in->nodes[in->nodes_of[g->first]].name);
    add_worker(ret, suspects_evidence(in, g->first), w, whole);
    if (!whole && in->on_request)
        add_gaps_of_stack(ret, w);
}

/* Several agents can be on one machine: what they saw of it is shown of the first. */
struct machines {
    struct idmap by_machine, by_network; /* number → struct suspects_node */
};

/* The earlier node of the same machine, which has this text, too; else this is the first. */
static const struct suspects_node *first_of(struct idmap *map, uint64_t machine,
                                            const struct suspects_node *node, const char *text) {
    if (machine == 0 || text == NULL)
        return NULL;
    const struct suspects_node *first = idmap_get(map, machine);
    if (first == NULL)
        idmap_put(map, machine, (void *)(uintptr_t)node);
    return first;
}

static void add_once(struct strbuf *ret, const char *title, const char *text,
                     const struct suspects_node *first) {
    if (first != NULL)
        strbuf_printf(ret, "  %s: as on node %s\n", title, first->name);
    else
        add_lines(ret, title, text);
}

static void add_node(const struct suspects_input *in, const struct suspects_node *node,
                     struct machines *seen, struct strbuf *ret) {
    const struct evidence *e = node->evidence;
    if (e != NULL && in->on_request)
        return;
    strbuf_printf(ret, "\nnode %s", node->name);
    if (e == NULL) {
        strbuf_printf(ret, ": no evidence: %s\n",
                      node->missing != NULL ? node->missing : "it did not answer in time");
        return;
    }
    strbuf_printf(ret, ", in %" PRIu64 " ms\n", e->took_ns / NS_PER_MS);
    add_lines(ret, "GPUs", e->gpus);
    add_once(ret, "network devices", e->nics,
             first_of(&seen->by_network, e->network, node, e->nics));
    add_lines(ret, "NCCL RAS", e->ras);
    add_once(ret, "kernel log", e->kernel_log,
             first_of(&seen->by_machine, e->machine, node, e->kernel_log));
    for (uint32_t i = 0; i < e->n_gaps; i++)
        strbuf_printf(ret, "  missing: %s\n", e->gaps[i]);
}

static bool add_head(const struct suspects_input *in, const struct suspects *s,
                     struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf part = {0};
    if (in->what != NULL)
        strbuf_printf(&part, "%s\n", in->what);
    suspects_line(in, s, &part);
    strbuf_add_char(&part, '\n');
    return add_part(ret, &part);
}

static bool add_suspects(const struct suspects_input *in, const struct suspects *s,
                         struct strbuf *ret) {
    bool room = true;
    for (uint32_t i = 0; i < s->n_suspects && room; i++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        uint32_t rank = s->suspects[i].rank;
        strbuf_printf(&part, "\nsuspect: %s\n", s->suspects[i].text);
        if (s->worker_of[rank] != NULL)
            add_worker(&part, suspects_evidence(in, rank), s->worker_of[rank], true);
        room = add_part(ret, &part);
    }
    return room;
}

void suspects_text(const struct suspects_input *in, const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(in->n_ranks + (size_t)1, sizeof *ranks);
    bool room = add_head(in, s, &text) && (in->on_request || add_suspects(in, s, &text));
    for (uint32_t g = 0; g < MIN2(s->n_groups, GROUPS_MAX) && room; g++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        add_group(in, s, g, ranks, &part);
        room = add_part(&text, &part);
    }
    struct machines seen = {0};
    for (uint32_t i = 0; i < in->n_nodes && room; i++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        add_node(in, &in->nodes[i], &seen, &part);
        room = add_part(&text, &part);
    }
    idmap_fini(&seen.by_machine);
    idmap_fini(&seen.by_network);
    if (!room)
        strbuf_add(&text, "\nThe rest is left out: this is long enough.\n");
    utf8_clean(text.data, true);
    strbuf_add_bytes(ret, text.data, text.len);
}
