#include "watchdog/evidence/evidence.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/json/json_table.h"
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

/* One more element, zeroed, of the list whose address is `list`. NULL: the limit is reached. */
static void *add(void *list, uint32_t *n, size_t size, uint32_t max) {
    char *at;
    if (*n >= max)
        return NULL;
    memcpy(&at, list, sizeof at);
    at = xrealloc(at, (*n + (size_t)1) * size);
    memcpy(list, &at, sizeof at);
    return memset(at + (*n)++ * size, 0, size);
}
#define ADD(owner, list, max) add(&(owner)->list, &(owner)->n_##list, sizeof *(owner)->list, max)

struct evidence_worker *evidence_add_worker(struct evidence *e) {
    return ADD(e, workers, EVIDENCE_WORKERS_MAX);
}

struct evidence_thread *evidence_add_thread(struct evidence_worker *w) {
    struct evidence_thread *t = ADD(w, threads, EVIDENCE_THREADS_MAX);
    if (t != NULL)
        t->stack = -1;
    return t;
}

struct evidence_child *evidence_add_child(struct evidence_worker *w) {
    struct evidence_child *c = ADD(w, children, EVIDENCE_CHILDREN_MAX);
    if (c != NULL)
        c->main.stack = -1;
    return c;
}

/* By the names of files, not by their folders, which may be others in the next run. */
uint64_t evidence_place(const struct pystack_frame *frames, uint32_t n) {
    uint64_t h = HASH_BEGIN;
    for (uint32_t i = 0; i < n; i++) {
        h = hash_bytes(h, frames[i].function, strlen(frames[i].function) + 1);
        h = hash_text(h, path_name(frames[i].file));
        h = hash_bytes(h, &frames[i].line, sizeof frames[i].line);
    }
    return n == 0 ? 0 : MAX2(h, 1);
}

static bool is_same_stack(const struct evidence_stack *s, const struct pystack_frame *frames,
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

int evidence_add_stack(struct evidence *e, const struct pystack_frame *frames, size_t n,
                       uint32_t *ret) {
    bool cut = n > EVIDENCE_FRAMES_MAX;
    uint32_t kept = cut ? EVIDENCE_FRAMES_MAX : (uint32_t)n;
    for (uint32_t i = 0; i < e->n_stacks; i++) {
        if (!is_same_stack(&e->stacks[i], frames, kept, cut))
            continue;
        *ret = i;
        return 0;
    }
    struct evidence_stack *stack = ADD(e, stacks, EVIDENCE_WORKERS_MAX);
    if (stack == NULL)
        return -E2BIG;
    *stack =
        (struct evidence_stack){.n = kept, .frames = xcalloc(kept, sizeof *frames), .cut = cut};
    if (kept > 0)
        memcpy(stack->frames, frames, kept * sizeof *frames);
    stack->place = evidence_place(frames, kept);
    *ret = e->n_stacks - 1;
    return 0;
}

int evidence_add_counts(struct evidence *e, const uint64_t *counts, uint32_t n) {
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && counts[end] == counts[i]; end++)
            ;
        if (counts[i] == 0)
            continue;
        struct evidence_count *c = ADD(e, counts, EVIDENCE_COUNTS_MAX);
        if (c == NULL)
            return -E2BIG;
        *c = (struct evidence_count){.first = i, .n = end - i, .collectives = counts[i]};
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

void evidence_add_gap(char gaps[][EVIDENCE_LINE_MAX], uint32_t *n, char *text) {
    if (*n < EVIDENCE_GAPS_MAX)
        utf8_copy(gaps[(*n)++], EVIDENCE_LINE_MAX, text);
    free(text);
}

#define VALUES_MAX 262144 /* of 1 MiB of text: a value with its key takes more than 4 bytes */
#define STATES "RSDTtZXxKWPI"

/* What is left of evidence that is too long. */
struct cut {
    size_t text_bytes;
    uint32_t threads, children, frames, gaps;
};
static const struct cut cuts[] = {
    {EVIDENCE_TEXT_MAX, EVIDENCE_THREADS_MAX, EVIDENCE_CHILDREN_MAX, EVIDENCE_FRAMES_MAX,
     EVIDENCE_GAPS_MAX},
    {2048, EVIDENCE_THREADS_MAX, EVIDENCE_CHILDREN_MAX, EVIDENCE_FRAMES_MAX, EVIDENCE_GAPS_MAX},
    {512, 16, 16, EVIDENCE_FRAMES_MAX, EVIDENCE_GAPS_MAX},
    {0, 2, 8, 24, 2},
    {0, 1, 0, 6, 1},
};

static void *add_workers(void *of) { return evidence_add_worker(of); }
static void *add_threads(void *of) { return evidence_add_thread(of); }
static void *add_children(void *of) { return evidence_add_child(of); }
static void *add_stacks(void *of) {
    struct evidence *e = of;
    return ADD(e, stacks, EVIDENCE_WORKERS_MAX);
}
static void *add_counts(void *of) {
    struct evidence *e = of;
    return ADD(e, counts, EVIDENCE_COUNTS_MAX);
}
static void *add_frames(void *of) {
    struct evidence_stack *s = of;
    return add(&s->frames, &s->n, sizeof *s->frames, EVIDENCE_FRAMES_MAX);
}

static void write_state(struct json_writer *w, const struct json_field *f, const void *of) {
    char state = *((const char *)of + f->offset);
    char text[2] = {strchr(STATES, state) != NULL ? state : 0, 0};
    json_write_string(w, f->key, text);
}

static int read_state(const struct json *v, const struct json_field *f, void *of) {
    const char *text = "";
    int r = json_as_string(v, f->key, 1, &text, NULL);
    if (r == 0 && text[0] != 0 && strchr(STATES, text[0]) == NULL)
        r = -EINVAL;
    if (r == 0)
        *((char *)of + f->offset) = text[0];
    return r;
}

/* A log is shortened at its beginning (the field's max is 1), everything else at its end. */
static void write_text(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct cut *cut = w->context;
    const char *text;
    memcpy(&text, (const char *)of + f->offset, sizeof text);
    if (text == NULL || cut->text_bytes == 0)
        return;
    size_t len = strlen(text);
    if (f->max == 1 && len > cut->text_bytes) {
        text += len - cut->text_bytes;
        while ((*text & 0xc0) == 0x80)
            text++;
    }
    char copy[EVIDENCE_TEXT_MAX + 1];
    utf8_copy(copy, cut->text_bytes + 1, text);
    json_write_string(w, f->key, copy);
}

static int read_text(const struct json *v, const struct json_field *f, void *of) {
    const char *text = "";
    int r = json_as_string(v, f->key, EVIDENCE_TEXT_MAX, &text, NULL);
    if (r < 0)
        return r;
    char *copy = xstrdup(text);
    utf8_clean(copy, true);
    memcpy((char *)of + f->offset, &copy, sizeof copy);
    return 0;
}

#define STATE(type, name, member) \
    { JSON_FIELD(type, OWN, name, member), .write = write_state, .read = read_state }
#define OWNED_TEXT(type, name, member)                                               \
    {                                                                                \
        JSON_FIELD(type, OWN, name, member), .write = write_text, .read = read_text, \
                                             .when = JSON_OPTIONAL                   \
    }
#define OWNED_LOG(type, name, member)                                                \
    {                                                                                \
        JSON_FIELD(type, OWN, name, member), .write = write_text, .read = read_text, \
                                             .when = JSON_OPTIONAL, .max = 1         \
    }
#define LINE_IF(type, name, member) \
    { JSON_FIELD(type, LINE, name, member), JSON_IF_TEXT(type, member) }
#define BOOL_IF(type, name, member) \
    { JSON_FIELD(type, BOOL, name, member), JSON_IF_TRUE(type, member) }

static const struct json_field gap_fields[] = {
    {.key = NULL, .kind = JSON_FIELD_LINE, .size = EVIDENCE_LINE_MAX},
};
static const struct json_table gap = {
    .fields = gap_fields, .n = ARRAY_SIZE(gap_fields), .size = EVIDENCE_LINE_MAX};

static const struct json_field frame_fields[] = {
    {JSON_FIELD(pystack_frame, LINE, "function", function)},
    {JSON_FIELD(pystack_frame, LINE, "file", file)},
    {JSON_FIELD(pystack_frame, U32, "line", line)},
};
static const struct json_table frame = JSON_TABLE(pystack_frame, frame_fields);

static const struct json_field stack_fields[] = {
    {JSON_FIELD(evidence_stack, LIST, "frames", frames), .table = &frame, .add = add_frames,
     .count_offset = offsetof(struct evidence_stack, n)},
    BOOL_IF(evidence_stack, "cut", cut),
};
static const struct json_table stack = JSON_TABLE(evidence_stack, stack_fields);

static const struct json_field thread_fields[] = {
    {JSON_FIELD(evidence_thread, I32, "tid", tid)},
    {JSON_FIELD(evidence_thread, LINE, "name", name)},
    STATE(evidence_thread, "state", state),
    LINE_IF(evidence_thread, "wchan", wchan),
    LINE_IF(evidence_thread, "syscall", syscall),
    LINE_IF(evidence_thread, "target", target),
    {JSON_FIELD(evidence_thread, I32, "stack", stack), .min = -1},
    {JSON_FIELD(evidence_thread, U64, "ran_ns", ran_ns)},
};
static const struct json_table thread = JSON_TABLE(evidence_thread, thread_fields);

static const struct json_field child_fields[] = {
    {JSON_FIELD(evidence_child, I32, "pid", pid)},
    {JSON_FIELD(evidence_child, I32, "parent", parent)},
    {JSON_FIELD(evidence_child, LINE, "name", name)},
    {JSON_STRUCT(evidence_child, "main", main, thread)},
};
static const struct json_table child = JSON_TABLE(evidence_child, child_fields);

static const struct json_field worker_fields[] = {
    {JSON_FIELD(evidence_worker, U32, "rank", rank)},
    {JSON_FIELD(evidence_worker, U32, "local_rank", local_rank)},
    {JSON_FIELD(evidence_worker, I32, "pid", pid)},
    {JSON_FIELD(evidence_worker, U64, "still_ns", still_ns)},
    {JSON_FIELD(evidence_worker, U64, "used_ns", used_ns), JSON_IF_SET(evidence_worker, used_ns)},
    BOOL_IF(evidence_worker, "spins", spins),
    BOOL_IF(evidence_worker, "ended", ended),
    {JSON_FIELD(evidence_worker, U64, "step", step), JSON_IF_SET(evidence_worker, step)},
    BOOL_IF(evidence_worker, "at_store", at_store),
    BOOL_IF(evidence_worker, "not_at_store", not_at_store),
    BOOL_IF(evidence_worker, "awaits_rank", awaits_rank),
    {JSON_ARRAY_OF(evidence_worker, "threads", threads, add_threads, thread)},
    BOOL_IF(evidence_worker, "threads_cut", threads_cut),
    {JSON_ARRAY_OF(evidence_worker, "children", children, add_children, child)},
    BOOL_IF(evidence_worker, "children_cut", children_cut),
    {JSON_FIELD(evidence_worker, U64, "collectives", collectives),
     JSON_IF_SET(evidence_worker, collectives)},
    OWNED_TEXT(evidence_worker, "kernel_stack", kernel_stack),
    OWNED_TEXT(evidence_worker, "recorder", recorder),
    OWNED_TEXT(evidence_worker, "native_stack", native_stack),
    OWNED_LOG(evidence_worker, "log_tail", log_tail),
    {JSON_LIST(evidence_worker, "gaps", gaps, n_gaps, gap)},
};
static const struct json_table worker = JSON_TABLE(evidence_worker, worker_fields);

static const struct json_field count_fields[] = {
    {JSON_FIELD(evidence_count, U32, "first", first)},
    {JSON_FIELD(evidence_count, U32, "n", n)},
    {JSON_FIELD(evidence_count, U64, "collectives", collectives)},
};
static const struct json_table count = JSON_TABLE(evidence_count, count_fields);

static int check(const void *of, struct err *err);

static const struct json_field node_fields[] = {
    {JSON_FIELD(evidence, LINE, "host", node)},
    {JSON_FIELD(evidence, HEX, "machine", machine), JSON_IF_SET(evidence, machine)},
    {JSON_FIELD(evidence, HEX, "network", network), JSON_IF_SET(evidence, network)},
    {JSON_FIELD(evidence, U64, "took_ns", took_ns)},
    {JSON_ARRAY_OF(evidence, "workers", workers, add_workers, worker)},
    {JSON_ARRAY_OF(evidence, "stacks", stacks, add_stacks, stack)},
    OWNED_TEXT(evidence, "ras", ras),
    {JSON_ARRAY_OF(evidence, "counts", counts, add_counts, count),
     JSON_IF_SOME(evidence, n_counts)},
    OWNED_TEXT(evidence, "gpus", gpus),
    OWNED_TEXT(evidence, "nics", nics),
    OWNED_LOG(evidence, "kernel_log", kernel_log),
    {JSON_LIST(evidence, "gaps", gaps, n_gaps, gap)},
    BOOL_IF(evidence, "cut", cut),
};
static const struct json_table node = {JSON_ROWS(evidence, node_fields), .check = check};

static int check_stack(const struct evidence *e, const struct evidence_thread *t, struct err *err) {
    if (t->stack < (int64_t)e->n_stacks)
        return 0;
    return err_set(err, -EINVAL, "thread %d has stack %d of %u", t->tid, t->stack, e->n_stacks);
}

static int check(const void *of, struct err *err) {
    const struct evidence *e = of;
    int r = 0;
    for (uint32_t i = 0; i < e->n_workers && r == 0; i++) {
        const struct evidence_worker *w = &e->workers[i];
        for (uint32_t k = 0; k < w->n_threads && r == 0; k++)
            r = check_stack(e, &w->threads[k], err);
        for (uint32_t k = 0; k < w->n_children && r == 0; k++)
            r = check_stack(e, &w->children[k].main, err);
    }
    return r;
}

int evidence_read(const char *text, size_t len, struct evidence *ret, struct err *err) {
    static const struct json_limits limits = {
        .max_bytes = EVIDENCE_JSON_MAX, .max_depth = 8, .max_values = VALUES_MAX};
    *ret = (struct evidence){0};
    int r = json_table_parse(text, len, &limits, &node, ret, err);
    if (r < 0) {
        evidence_fini(ret);
        err_prefix(err, "what a node saw of its workers");
    }
    for (uint32_t i = 0; i < ret->n_stacks; i++)
        ret->stacks[i].place = evidence_place(ret->stacks[i].frames, ret->stacks[i].n);
    return r;
}

/* What becomes longer than EVIDENCE_JSON_MAX is of no use, and may not be written to its end. */
static void write_cut(const struct evidence *e, const struct cut *cut, struct strbuf *ret) {
    struct json_writer w = json_writer_of(ret);
    w.context = cut;
    w.enough = ret->len + EVIDENCE_JSON_MAX;
    json_write_object_begin(&w, NULL);
    json_table_write(&w, &node, e);
    json_write_object_end(&w);
}

/* What is left of it: the lists are those of *e, or of *workers and *stacks, which have room. */
static struct evidence shorter(const struct evidence *e, const struct cut *cut, uint32_t n_workers,
                               struct evidence_worker *workers, struct evidence_stack *stacks) {
    struct evidence view = *e;
    view.workers = workers;
    view.stacks = stacks;
    view.n_workers = n_workers;
    view.n_stacks = n_workers == 0 ? 0 : e->n_stacks;
    view.cut = true;
    for (uint32_t i = 0; i < n_workers; i++) {
        struct evidence_worker *w = &workers[i];
        *w = e->workers[i];
        w->threads_cut |= w->n_threads > cut->threads;
        w->children_cut |= w->n_children > cut->children;
        w->n_threads = MIN2(w->n_threads, cut->threads);
        w->n_children = MIN2(w->n_children, cut->children);
        w->n_gaps = MIN2(w->n_gaps, cut->gaps);
    }
    for (uint32_t i = 0; i < view.n_stacks; i++) {
        stacks[i] = e->stacks[i];
        stacks[i].cut |= stacks[i].n > cut->frames;
        stacks[i].n = MIN2(stacks[i].n, cut->frames);
    }
    return view;
}

void evidence_write(const struct evidence *e, struct strbuf *ret) {
    size_t before = ret->len;
    write_cut(e, &cuts[0], ret);
    if (ret->len - before <= EVIDENCE_JSON_MAX)
        return;
    _cleanup_(freep) struct evidence_worker *workers =
        xcalloc(MAX2(e->n_workers, 1U), sizeof *workers);
    _cleanup_(freep) struct evidence_stack *stacks = xcalloc(MAX2(e->n_stacks, 1U), sizeof *stacks);
    uint32_t n = e->n_workers;
    for (size_t i = 1; ret->len - before > EVIDENCE_JSON_MAX; i++) {
        const struct cut *cut = &cuts[MIN2(i, ARRAY_SIZE(cuts) - 1)];
        n = i < ARRAY_SIZE(cuts) ? n : n / 2;
        struct evidence view = shorter(e, cut, n, workers, stacks);
        ret->len = before;
        write_cut(&view, cut, ret);
    }
}
