/* What is reported of suspects: the line, hang.txt and hang.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/idmap.h"
#include "base/json/json.h"
#include "base/text/duration.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "watchdog/judge/suspects_priv.h"

static const char *missing_of(const struct suspects_node *node) {
    return node->missing != NULL ? node->missing : "it did not answer in time";
}

/* ---- the line ---- */

#define LINE_RANGES_MAX 100 /* bytes of a list of ranks in a line */
#define NAMED_MAX 4         /* suspects, or groups, in a line */

void suspects_ranges(const uint32_t *ranks, uint32_t n, size_t max, struct strbuf *ret) {
    size_t begin = ret->len;
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && ranks[end] == ranks[end - 1] + 1)
            end++;
        char one[32];
        int len = ranks[i] == ranks[end - 1]
                      ? snprintf(one, sizeof one, "%" PRIu32, ranks[i])
                      : snprintf(one, sizeof one, "%" PRIu32 "-%" PRIu32, ranks[i], ranks[end - 1]);
        if (ret->len - begin + (i > 0) + (size_t)len + strlen(",...") > max) {
            strbuf_add(ret, ret->len > begin ? ",..." : "...");
            return;
        }
        strbuf_printf(ret, "%s%s", i > 0 ? "," : "", one);
        i = end;
    }
}

/* "rank 3", "ranks 0-1,3" */
static void add_ranks(const uint32_t *ranks, uint32_t n, struct strbuf *ret) {
    strbuf_add(ret, n == 1 ? "rank " : "ranks ");
    suspects_ranges(ranks, n, LINE_RANGES_MAX, ret);
}

static void add_still(uint64_t still_ns, struct strbuf *ret) {
    if (still_ns >= NS_PER_S)
        strbuf_printf(ret, ", still for %" PRIu64 " s", still_ns / NS_PER_S);
}

static void line_child(const struct evidence *e, const struct evidence_child *child,
                       struct strbuf *ret) {
    strbuf_printf(ret, "; its child %s %" PRId32 " %s elsewhere than its siblings: ",
                  child->name[0] != '\0' ? child->name : "process", child->pid,
                  suspects_wait(&child->main) == WAIT_RUNS ? "is" : "waits");
    suspects_describe(e, &child->main, NULL, ret);
}

/* Who a main thread in wait4() waits for, as a command that it has started: its only child but
 * those of a data loader. NULL: it waits for none, or it is unknown which. */
static const struct evidence_child *awaited_child(const struct evidence_worker *w,
                                                  const struct evidence_thread *t) {
    static const char loader[] = "pt_data_";
    const struct evidence_child *found = NULL;
    if (strcmp(t->syscall, "wait4") != 0 && strcmp(t->syscall, "waitid") != 0)
        return NULL;
    for (uint32_t i = 0; i < w->n_children; i++) {
        if (strncmp(w->children[i].name, loader, sizeof loader - 1) == 0)
            continue;
        if (found != NULL)
            return NULL;
        found = &w->children[i];
    }
    return found;
}

/* What a rank does, and who it waits for if it is a child. */
static void add_main(const struct evidence *e, const struct evidence_worker *w,
                     const struct evidence_thread *t, bool child_shown, struct strbuf *ret) {
    const struct evidence_child *child = child_shown ? NULL : awaited_child(w, t);
    suspects_describe(e, t, w, ret);
    add_still(w->still_ns, ret);
    if (child == NULL)
        return;
    strbuf_printf(ret, "; it waits for its child %s %" PRId32 ": ",
                  child->name[0] != '\0' ? child->name : "process", child->pid);
    suspects_describe(e, &child->main, NULL, ret);
}

/* Its main thread is where that of the others is. */
static void write_thread(const struct suspects *s, uint32_t rank, struct strbuf *ret) {
    const struct evidence_thread *odd = suspects_odd_thread(s, rank);
    strbuf_add(ret, "no thread of it waits in torch.distributed as those of others do");
    if (odd == NULL)
        return;
    strbuf_printf(ret, "; its thread %" PRId32 ": ", odd->tid);
    suspects_describe(suspects_evidence(s, rank), odd, NULL, ret);
    strbuf_add(ret, "; its main thread");
}

static void add_process(const struct suspects *s, uint32_t node, int32_t pid, struct strbuf *ret) {
    strbuf_printf(ret, " (node %.60s", s->in->nodes[node].name);
    if (pid > 0)
        strbuf_printf(ret, ", pid %" PRId32, pid);
    strbuf_add(ret, "): ");
}

void suspects_write(const struct suspects *s, uint64_t of, uint64_t others,
                    const struct evidence_child *child, struct suspect *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct evidence_worker *w = s->worker_of[ret->rank];
    const struct evidence_thread *t = suspects_main(s, ret->rank);
    const struct evidence *e = suspects_evidence(s, ret->rank);
    strbuf_printf(&text, "rank %" PRIu32, ret->rank);
    add_process(s, ret->node, ret->pid, &text);
    switch (ret->reason) {
    case SUSPECT_ENDED: strbuf_add(&text, "has ended with 0 while others wait"); break;
    case SUSPECT_UNENDED: strbuf_add(&text, "still runs while others have ended with 0"); break;
    case SUSPECT_ABSENT: strbuf_add(&text, "has no connection to the store, others have"); break;
    case SUSPECT_COLLECTIVES:
        strbuf_printf(&text, "at collective %" PRIu64 ", others at %" PRIu64, of, others);
        break;
    case SUSPECT_STEPS:
        strbuf_printf(&text, "at step %" PRIu64 ", others at %" PRIu64, of, others);
        break;
    case SUSPECT_BUSY: strbuf_add(&text, "is busy while others wait"); break;
    case SUSPECT_THREAD: write_thread(s, ret->rank, &text); break;
    case SUSPECT_STOPPED:
    case SUSPECT_UNMOVED:
    case SUSPECT_CHILD:
    case SUSPECT_ELSEWHERE: break;
    }
    bool led = text.data[text.len - 1] != ' ';
    if (t != NULL) {
        strbuf_add(&text, led ? ": " : "");
        add_main(e, w, t, child != NULL, &text);
    } else if (ret->reason != SUSPECT_ENDED) {
        strbuf_add(&text, led ? "; no evidence" : "no evidence");
    }
    if (child != NULL)
        line_child(e, child, &text);
    utf8_copy_line(ret->text, sizeof ret->text, strbuf_text(&text));
}

/* The ranks of a group, with its suspects or without. Returns how many. */
static uint32_t ranks_of(const struct suspects *s, uint32_t group, bool suspects, uint32_t *ranks) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        if (s->group_of[r] == group && (suspects || !s->is_suspect[r]))
            ranks[n++] = r;
    return n;
}

static void line_group(const struct suspects *s, uint32_t group, uint32_t *ranks,
                       struct strbuf *ret) {
    const struct suspects_group *g = &s->groups[group];
    uint32_t n = ranks_of(s, group, false, ranks);
    if (n == 0)
        return;
    strbuf_add(ret, ret->len > 0 ? "; " : "");
    if (n == s->in->n_ranks)
        strbuf_add(ret, n == 1 ? "the only rank" : "all ranks");
    else
        add_ranks(ranks, n, ret);
    if (g->n == 1 && (!s->majority || s->in->n_ranks == 1)) {
        /* It is unknown which rank waits for which: all that is known of each is shown. */
        const struct evidence_worker *w = s->worker_of[g->first];
        add_process(s, s->in->nodes_of[g->first], w->pid, ret);
        add_main(suspects_evidence(s, g->first), w, suspects_main(s, g->first), false, ret);
        return;
    }
    strbuf_printf(ret, " %s", suspects_group_verb(s, g, n));
    if (g->where[0] != '\0')
        strbuf_printf(ret, " in %s", g->where);
}

static void line_groups(const struct suspects *s, uint32_t *ranks, struct strbuf *ret) {
    /* With a majority, ranks outside of it are suspects, or nothing is known against them. */
    uint32_t n = s->majority && s->n_all > 0 ? 1 : MIN2(s->n_groups, NAMED_MAX);
    for (uint32_t g = 0; g < n; g++)
        line_group(s, g, ranks, ret);
    if (s->n_groups > n && !(s->majority && s->n_all > 0))
        strbuf_printf(ret, "; %" PRIu32 " more groups", s->n_groups - n);
}

static void line_suspects(const struct suspects *s, uint32_t *ranks, struct strbuf *ret) {
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < MIN2(s->n_suspects, NAMED_MAX); i++)
        strbuf_printf(ret, "%s%s", ret->len > 0 ? "; " : "", s->suspects[i].text);
    for (uint32_t r = 0; r < s->in->n_ranks && s->n_all > NAMED_MAX; r++)
        if (s->is_suspect[r] && ++seen > NAMED_MAX)
            ranks[n++] = r;
    if (n > 0) {
        strbuf_add(ret, "; and ");
        add_ranks(ranks, n, ret);
    }
}

static void line_missing(const struct suspects *s, uint32_t *ranks, struct strbuf *ret) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        if (suspects_is_missing(s, r))
            ranks[n++] = r;
    if (n == 0)
        return;
    const struct suspects_node *node = &s->in->nodes[s->in->nodes_of[ranks[0]]];
    strbuf_printf(ret, "%sno evidence from ", ret->len > 0 ? "; " : "");
    add_ranks(ranks, n, ret);
    strbuf_printf(ret, " (node %.60s%s", node->name,
                  s->in->nodes_of[ranks[0]] != s->in->nodes_of[ranks[n - 1]] ? " and others" : "");
    if (node->evidence == NULL)
        strbuf_printf(ret, ": %.100s", missing_of(node));
    strbuf_add(ret, ")");
}

/* Who failed, and who is known to have waited for the others then. */
static void line_failed(const struct suspects *s, uint32_t *ranks, struct strbuf *ret) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        if (s->reacted[r] && r != s->in->failed)
            ranks[n++] = r;
    strbuf_printf(ret, "rank %" PRIu32 " failed while ", s->in->failed);
    if (n > 0)
        add_ranks(ranks, n, ret);
    strbuf_add(ret, n > 0 ? " waited" : "others waited");
}

void suspects_line(const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(s->in->n_ranks + (size_t)1, sizeof *ranks);
    char out[SUSPECTS_LINE_MAX];
    if (s->in->waited != NULL)
        line_failed(s, ranks, &line);
    line_groups(s, ranks, &line);
    line_suspects(s, ranks, &line);
    line_missing(s, ranks, &line);
    utf8_copy_line(out, sizeof out, strbuf_text(&line));
    strbuf_add(ret, out);
}

/* ---- hang.txt ---- */

#define GROUPS_MAX 256  /* that are shown; the evidence of each is in hang.json */
#define RANGES_MAX 4096 /* bytes of a list of ranks */

/* Adds a part of the text only if all of it has room. False: it has not. */
static bool add_part(struct strbuf *ret, const struct strbuf *part) {
    if (ret->len + part->len > SUSPECTS_TEXT_MAX)
        return false;
    strbuf_add_bytes(ret, strbuf_text(part), part->len);
    return true;
}

static void add_indented(struct strbuf *ret, const char *text) {
    for (const char *line = text; *line != '\0'; line = text_next_line(line))
        strbuf_printf(ret, "    %.*s\n", (int)strcspn(line, "\n"), line);
}

/* A text of several lines. */
static void add_lines(struct strbuf *ret, const char *title, const char *text) {
    if (text == NULL || text[0] == '\0')
        return;
    strbuf_printf(ret, "  %s:\n", title);
    add_indented(ret, text);
}

static void add_stack(struct strbuf *ret, const struct evidence *e,
                      const struct evidence_thread *t) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++) {
        const struct pystack_frame *f = &stack->frames[i];
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

static void add_group(const struct suspects *s, uint32_t group, uint32_t *ranks,
                      struct strbuf *ret) {
    const struct suspects_group *g = &s->groups[group];
    uint32_t n = ranks_of(s, group, true, ranks);
    strbuf_printf(ret, "\n%s ", n == 1 ? "rank" : "ranks");
    suspects_ranges(ranks, n, RANGES_MAX, ret);
    strbuf_printf(ret, ": %s", suspects_group_verb(s, g, n));
    if (g->where[0] != '\0')
        strbuf_printf(ret, " in %s", g->where);
    const struct evidence_worker *w = s->worker_of[g->first];
    bool whole = s->in->on_request ? s->in->chosen != NULL : !s->majority;
    if (!s->in->on_request && is_listed(s, g->first)) {
        strbuf_printf(ret, "\n  rank %" PRIu32 " is shown above\n", g->first);
        return;
    }
    strbuf_printf(ret, "\n  of rank %" PRIu32 " (node %s):\n", g->first,
                  s->in->nodes[s->in->nodes_of[g->first]].name);
    add_worker(ret, suspects_evidence(s, g->first), w, whole);
    if (!whole && s->in->on_request)
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

static void add_node(const struct suspects *s, const struct suspects_node *node,
                     struct machines *seen, struct strbuf *ret) {
    const struct evidence *e = node->evidence;
    if (e != NULL && s->in->on_request)
        return;
    strbuf_printf(ret, "\nnode %s", node->name);
    if (e == NULL) {
        strbuf_printf(ret, ": no evidence: %s\n", missing_of(node));
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

static bool add_head(const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf part = {0};
    char time[UTC_TEXT_MAX];
    utc_text(s->in->wall_ns, time);
    if (s->in->job != NULL && !s->in->on_request)
        strbuf_printf(&part, "job %s, %s\n", s->in->job, time);
    if (s->in->what != NULL)
        strbuf_printf(&part, "%s\n", s->in->what);
    suspects_line(s, &part);
    strbuf_add_char(&part, '\n');
    return add_part(ret, &part);
}

static bool add_suspects(const struct suspects *s, struct strbuf *ret) {
    bool room = true;
    for (uint32_t i = 0; i < s->n_suspects && room; i++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        uint32_t rank = s->suspects[i].rank;
        strbuf_printf(&part, "\nsuspect: %s\n", s->suspects[i].text);
        if (s->worker_of[rank] != NULL)
            add_worker(&part, suspects_evidence(s, rank), s->worker_of[rank], true);
        room = add_part(ret, &part);
    }
    return room;
}

void suspects_text(const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(s->in->n_ranks + (size_t)1, sizeof *ranks);
    bool room = add_head(s, &text) && (s->in->on_request || add_suspects(s, &text));
    for (uint32_t g = 0; g < MIN2(s->n_groups, GROUPS_MAX) && room; g++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        add_group(s, g, ranks, &part);
        room = add_part(&text, &part);
    }
    struct machines seen = {0};
    for (uint32_t i = 0; i < s->in->n_nodes && room; i++) {
        _cleanup_(strbuf_fini) struct strbuf part = {0};
        add_node(s, &s->in->nodes[i], &seen, &part);
        room = add_part(&text, &part);
    }
    idmap_fini(&seen.by_machine);
    idmap_fini(&seen.by_network);
    if (!room)
        strbuf_add(&text, "\nThe rest is left out: this is long enough.\n");
    utf8_clean(text.data, true);
    strbuf_add_bytes(ret, text.data, text.len);
}

/* ---- hang.json ---- */

static void write_pid(struct json_writer *w, int32_t pid) {
    if (pid > 0)
        json_write_i64(w, "pid", pid);
    else
        json_write_null(w, "pid");
}

static void write_frames(struct json_writer *w, const struct evidence *e,
                         const struct evidence_thread *t) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    json_write_array_begin(w, "stack");
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++) {
        json_write_object_begin(w, NULL);
        json_write_string(w, "function", stack->frames[i].function);
        json_write_string(w, "file", stack->frames[i].file);
        json_write_u64(w, "line", stack->frames[i].line);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_group(struct json_writer *w, const struct suspects *s, uint32_t group,
                        uint32_t *ranks) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct suspects_group *g = &s->groups[group];
    const struct evidence_thread *t = suspects_main(s, g->first);
    uint32_t n = ranks_of(s, group, true, ranks);
    suspects_ranges(ranks, n, RANGES_MAX, &text);
    json_write_object_begin(w, NULL);
    json_write_string(w, "ranks", strbuf_text(&text));
    json_write_u64(w, "count", n);
    json_write_bool(w, "waits", s->majority && group == 0);
    json_write_string(w, "where", g->where);
    json_write_string(w, "state", (const char[]){t->state != 0 ? t->state : '?', '\0'});
    json_write_string(w, "wchan", t->wchan);
    json_write_string(w, "syscall", t->syscall);
    write_frames(w, suspects_evidence(s, g->first), t);
    json_write_object_end(w);
}

static void write_suspects(struct json_writer *w, const struct suspects *s) {
    json_write_u64(w, "suspects_count", s->n_all);
    json_write_array_begin(w, "suspects");
    for (uint32_t i = 0; i < s->n_suspects; i++) {
        const struct suspect *one = &s->suspects[i];
        json_write_object_begin(w, NULL);
        json_write_u64(w, "rank", one->rank);
        json_write_string(w, "node", s->in->nodes[one->node].name);
        write_pid(w, one->pid);
        json_write_string(w, "reason", suspect_reason_names[one->reason]);
        json_write_string(w, "text", one->text);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

/* The evidence of each node. What is over the limit of the whole is left out, and counted. */
static void write_nodes(struct json_writer *w, const struct suspects *s) {
    uint32_t left_out = 0;
    json_write_array_begin(w, "nodes");
    for (uint32_t i = 0; i < s->in->n_nodes; i++) {
        const struct suspects_node *node = &s->in->nodes[i];
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        if (node->evidence != NULL && left_out == 0)
            evidence_write(node->evidence, &text);
        bool room = w->out->len + text.len <= SUSPECTS_JSON_MAX;
        left_out += node->evidence != NULL && (left_out > 0 || !room);
        json_write_object_begin(w, NULL);
        json_write_string(w, "node", node->name);
        if (node->evidence == NULL)
            json_write_string(w, "missing", missing_of(node));
        else if (left_out == 0)
            json_write_raw(w, "evidence", strbuf_text(&text));
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_u64(w, "nodes_left_out", left_out);
}

void suspects_json(const struct suspects *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    _cleanup_(freep) uint32_t *ranks = xcalloc(s->in->n_ranks + (size_t)1, sizeof *ranks);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    struct json_writer w = json_writer_of(&out);
    char time[UTC_TEXT_MAX];
    suspects_line(s, &line);
    utc_text(s->in->wall_ns, time);
    json_write_object_begin(&w, NULL);
    if (s->in->job != NULL) {
        json_write_string(&w, "job", s->in->job);
        json_write_string(&w, "generation", s->in->generation);
        json_write_string(&w, "time", time);
    }
    json_write_string(&w, "verdict", s->in->what);
    json_write_string(&w, "line", strbuf_text(&line));
    if (s->in->quiet_ns != 0)
        json_write_double(&w, "quiet_s", (double)(s->in->quiet_ns / NS_PER_MS) / 1000);
    else
        json_write_null(&w, "quiet_s");
    json_write_u64(&w, "ranks", s->in->n_ranks);
    if (s->in->waited != NULL)
        json_write_u64(&w, "failed_rank", s->in->failed);
    json_write_bool(&w, "majority", s->majority);
    json_write_u64(&w, "groups_count", s->n_groups);
    json_write_array_begin(&w, "groups");
    for (uint32_t g = 0; g < MIN2(s->n_groups, GROUPS_MAX); g++)
        write_group(&w, s, g, ranks);
    json_write_array_end(&w);
    write_suspects(&w, s);
    write_nodes(&w, s);
    json_write_object_end(&w);
    strbuf_add_bytes(ret, strbuf_text(&out), out.len);
}

/* ---- native stacks, in both files ---- */

static uint32_t n_gaps(const struct suspects_native *s) {
    return s->worker == NULL ? 0 : MIN2(s->worker->n_gaps, (uint32_t)EVIDENCE_GAPS_MAX);
}

void suspects_native_text(const struct suspects_native *list, uint32_t n, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, "\nnative stacks, read before these were ended\n");
    for (uint32_t i = 0; i < MIN2(n, (uint32_t)SUSPECTS_NATIVE_MAX); i++) {
        const struct suspects_native *s = &list[i];
        strbuf_printf(&text, "\nrank %u (node %s", s->rank, s->node);
        if (s->worker != NULL)
            strbuf_printf(&text, ", pid %d", (int)s->worker->pid);
        strbuf_add(&text, ")\n");
        if (s->worker != NULL && s->worker->native_stack != NULL)
            add_indented(&text, s->worker->native_stack);
        for (uint32_t k = 0; k < n_gaps(s); k++)
            strbuf_printf(&text, "  missing: %s\n", s->worker->gaps[k]);
        if (s->missing != NULL)
            strbuf_printf(&text, "  missing: native stack: %s\n", s->missing);
    }
    if (n > SUSPECTS_NATIVE_MAX)
        strbuf_printf(&text, "\n%u more suspects are left out\n", n - SUSPECTS_NATIVE_MAX);
    utf8_clean(text.data, true);
    strbuf_add_bytes(ret, text.data, text.len);
}

static void write_native(struct json_writer *w, const struct suspects_native *s) {
    json_write_object_begin(w, NULL);
    json_write_u64(w, "rank", s->rank);
    json_write_string(w, "node", s->node);
    write_pid(w, s->worker == NULL ? 0 : s->worker->pid);
    json_write_string(w, "stack", s->worker == NULL ? NULL : s->worker->native_stack);
    json_write_array_begin(w, "gaps");
    for (uint32_t k = 0; k < n_gaps(s); k++)
        json_write_string(w, NULL, s->worker->gaps[k]);
    if (s->missing != NULL)
        json_write_string(w, NULL, s->missing);
    json_write_array_end(w);
    json_write_object_end(w);
}

void suspects_native_json(const struct suspects_native *list, uint32_t n, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_write_array_begin(&w, "native_stacks");
    for (uint32_t i = 0; i < MIN2(n, (uint32_t)SUSPECTS_NATIVE_MAX); i++)
        write_native(&w, &list[i]);
    json_write_array_end(&w);
    json_write_u64(&w, "native_stacks_left_out",
                   n > SUSPECTS_NATIVE_MAX ? n - SUSPECTS_NATIVE_MAX : 0);
    json_write_object_end(&w);
    strbuf_add_char(ret, ',');
    strbuf_add_bytes(ret, strbuf_text(&text) + 1, text.len - 2); /* without its braces */
}
