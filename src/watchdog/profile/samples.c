#include "watchdog/profile/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/idmap.h"
#include "base/json/json.h"
#include "base/text/utf8.h"
#include "base/util.h"

/* Of a message: what a node may send (RDZV_EVIDENCE_MAX), and what its values may cost here. */
static const struct json_limits LIMITS = {
    .max_bytes = (size_t)1 << 20, .max_depth = 6, .max_values = 1u << 18};

/* A run of equal samples is short as JSON and long in memory: their number is bounded, too. */
#define NODE_SAMPLES_MAX (PROFILE_SAMPLES_MAX / 64)

struct profile_index { /* by a hash of the content: the index and 1 */
    struct idmap frames, stacks;
};

void profile_fini(struct profile *p) {
    for (uint32_t i = 0; i < p->n_frames; i++) {
        free(p->frames[i].function);
        free(p->frames[i].file);
    }
    for (uint32_t i = 0; i < p->n_stacks; i++)
        free(p->stacks[i].frames);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        free(p->ranks[i].samples);
        free(p->ranks[i].children);
    }
    free(p->frames);
    free(p->stacks);
    free(p->ranks);
    if (p->index != NULL) {
        idmap_fini(&p->index->frames);
        idmap_fini(&p->index->stacks);
        free(p->index);
    }
    *p = (struct profile){0};
}

/* ---- tables ---- */

static struct profile_index *index_of(struct profile *p) {
    if (p->index == NULL)
        p->index = xcalloc(1, sizeof *p->index);
    return p->index;
}

/* The number under which this content is, or 0; *key: under which it belongs. */
typedef bool same_fn(const struct profile *p, uint32_t i, const void *content);
static uint32_t find(const struct profile *p, const struct idmap *map, uint64_t *key, same_fn *same,
                     const void *content) {
    for (*key |= 1;; *key += 2) {
        uint32_t at = (uint32_t)(uintptr_t)idmap_get(map, *key);
        if (at == 0 || same(p, at - 1, content))
            return at;
    }
}

static bool same_frame(const struct profile *p, uint32_t i, const void *content) {
    const struct profile_frame *a = &p->frames[i], *b = content;
    return a->line == b->line && a->calls == b->calls && strcmp(a->function, b->function) == 0 &&
           strcmp(a->file, b->file) == 0;
}

int64_t profile_add_frame(struct profile *p, const char *function, const char *file, uint32_t line,
                          unsigned calls) {
    char names[2][PROFILE_TEXT_MAX];
    size_t len = strlen(file);
    utf8_copy_line(names[0], sizeof names[0], function);
    utf8_copy_line(names[1], sizeof names[1],
                   len < PROFILE_TEXT_MAX ? file : file + len - PROFILE_TEXT_MAX + 1);
    struct profile_frame f = {names[0], names[1], line, calls};
    uint64_t key = hash_text(hash_text(HASH_BEGIN, f.function), f.file) + line;
    uint32_t at = find(p, &index_of(p)->frames, &key, same_frame, &f);
    if (at > 0)
        return at - 1;
    if (p->n_frames >= PROFILE_TABLE_MAX)
        return -E2BIG;
    p->frames = xgrow(p->frames, p->n_frames, sizeof *p->frames);
    f.function = xstrdup(f.function);
    f.file = xstrdup(f.file);
    p->frames[p->n_frames++] = f;
    idmap_put(&p->index->frames, key, (void *)(uintptr_t)p->n_frames);
    return p->n_frames - 1;
}

static bool same_stack(const struct profile *p, uint32_t i, const void *content) {
    const struct profile_stack *a = &p->stacks[i], *b = content;
    return a->n == b->n && memcmp(a->frames, b->frames, b->n * sizeof *b->frames) == 0;
}

int32_t profile_add_stack(struct profile *p, const uint32_t *frames, uint32_t n) {
    assert(n > 0 && n <= PROFILE_FRAMES_MAX);
    struct profile_stack s = {(uint32_t *)(uintptr_t)frames, n};
    uint64_t key = hash_bytes(HASH_BEGIN, frames, n * sizeof *frames);
    uint32_t at = find(p, &index_of(p)->stacks, &key, same_stack, &s);
    if (at > 0)
        return (int32_t)at - 1;
    if (p->n_stacks >= PROFILE_TABLE_MAX)
        return -E2BIG;
    p->stacks = xgrow(p->stacks, p->n_stacks, sizeof *p->stacks);
    s.frames = xcalloc(n, sizeof *s.frames);
    memcpy(s.frames, frames, n * sizeof *frames);
    p->stacks[p->n_stacks++] = s;
    idmap_put(&p->index->stacks, key, (void *)(uintptr_t)p->n_stacks);
    return (int32_t)p->n_stacks - 1;
}

/* ---- ranks ---- */

/* Where it is, or belongs. */
static uint32_t rank_at(const struct profile *p, uint32_t rank) {
    uint32_t low = 0, high = p->n_ranks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->ranks[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct profile_rank *profile_add_rank(struct profile *p, uint32_t rank) {
    uint32_t at = rank_at(p, rank);
    if (at < p->n_ranks && p->ranks[at].rank == rank)
        return &p->ranks[at];
    if (p->n_ranks >= PROFILE_TABLE_MAX)
        return NULL;
    p->ranks = xgrow(p->ranks, p->n_ranks, sizeof *p->ranks);
    memmove(&p->ranks[at + 1], &p->ranks[at], (p->n_ranks++ - at) * sizeof *p->ranks);
    p->ranks[at] = (struct profile_rank){.rank = rank};
    return &p->ranks[at];
}

static const struct profile_sample absent = {.stack = PROFILE_ABSENT};

static void make_room(struct profile_rank *r, uint32_t n) {
    if (n <= r->room)
        return;
    uint32_t room = MAX2(n, MAX2(r->room * 2, 64u));
    struct profile_sample *samples = xcalloc(room, sizeof *samples);
    if (r->room > 0)
        memcpy(samples, r->samples, r->room * sizeof *samples);
    for (uint32_t i = r->room; i < room; i++)
        samples[i] = absent;
    free(r->samples);
    r->samples = samples;
    r->room = room;
}

int profile_add_sample(struct profile *p, struct profile_rank *r, uint64_t tick,
                       const struct profile_sample *s) {
    if (tick < p->first_tick || tick - p->first_tick >= PROFILE_TICKS_MAX)
        return -E2BIG;
    uint32_t n = (uint32_t)(tick - p->first_tick) + 1;
    uint32_t n_ticks = MAX2(p->n_ticks, n);
    if ((uint64_t)p->n_ranks * n_ticks > PROFILE_SAMPLES_MAX)
        return -E2BIG;
    p->n_ticks = n_ticks;
    make_room(r, n);
    r->samples[n - 1] = *s;
    return 0;
}

struct profile_sample profile_at(const struct profile *p, const struct profile_rank *r,
                                 uint32_t tick) {
    return tick < p->n_ticks && tick < r->room ? r->samples[tick] : absent;
}

/* When there are too many rows, a new stack takes over the one with the fewest samples (Metwally et
 * al. 2005), best of the same state: the total stays right, and what is frequent stays. */
void profile_add_child(struct profile_rank *r, int32_t stack, bool sleeps, uint32_t samples) {
    struct profile_child *least = NULL;
    uint64_t fewest = UINT64_MAX;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        struct profile_child *c = &r->children[i];
        uint64_t n = c->samples + (c->sleeps != sleeps ? (uint64_t)UINT32_MAX : 0);
        if (c->stack == stack && c->sleeps == sleeps) {
            c->samples += samples;
            return;
        }
        least = n < fewest ? c : least;
        fewest = MIN2(fewest, n);
    }
    if (r->n_rows == PROFILE_CHILDREN_MAX) {
        *least = (struct profile_child){stack, sleeps, least->samples + samples};
        return;
    }
    r->children = xgrow(r->children, r->n_rows, sizeof *r->children);
    r->children[r->n_rows++] = (struct profile_child){stack, sleeps, samples};
}

/* ---- writing ---- */

/* A sample in one character and the number of its stack: bits 0 to 4. */
enum { SLEEPS = 1, GC = 2, HELPED = 4, SYSCALL_SHIFT = 3, BITS_MAX = 31 };
#define FIRST_CHAR '@'

static unsigned bits_of(const struct profile_sample *s) {
    return (s->sleeps ? SLEEPS : 0u) | (s->gc ? GC : 0u) | (s->helped ? HELPED : 0u) |
           (unsigned)s->syscall << SYSCALL_SHIFT;
}

/* Stacks and frames that the first n ticks use, numbered in this order; 0: not used. */
struct used {
    uint32_t *stacks, *frames;
    uint32_t n_stacks, n_frames;
};

static void use(const struct profile *p, int32_t stack, struct used *u) {
    if (stack < 0 || u->stacks[stack] != 0)
        return;
    u->stacks[stack] = ++u->n_stacks;
    for (uint32_t i = 0; i < p->stacks[stack].n; i++) {
        uint32_t *frame = &u->frames[p->stacks[stack].frames[i]];
        *frame = *frame == 0 ? ++u->n_frames : *frame;
    }
}

static void write_tables(const struct profile *p, const struct used *u, struct json_writer *w) {
    _cleanup_(freep) uint32_t *order = xcalloc(MAX2(u->n_frames, u->n_stacks) + 1u, sizeof *order);
    for (uint32_t i = 0; i < p->n_frames; i++)
        order[u->frames[i]] = i;
    json_write_array_begin(w, "frames");
    for (uint32_t i = 1; i <= u->n_frames; i++) {
        const struct profile_frame *f = &p->frames[order[i]];
        json_write_array_begin(w, NULL);
        json_write_string(w, NULL, f->function);
        json_write_string(w, NULL, f->file);
        json_write_u64(w, NULL, f->line);
        json_write_u64(w, NULL, f->calls);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    for (uint32_t i = 0; i < p->n_stacks; i++)
        order[u->stacks[i]] = i;
    json_write_array_begin(w, "stacks");
    for (uint32_t i = 1; i <= u->n_stacks; i++) {
        const struct profile_stack *s = &p->stacks[order[i]];
        json_write_array_begin(w, NULL);
        for (uint32_t k = 0; k < s->n; k++)
            json_write_u64(w, NULL, u->frames[s->frames[k]] - 1);
        json_write_array_end(w);
    }
    json_write_array_end(w);
}

/* Numbers of stacks that are sent: 0 is absent, 1 not read. */
static uint32_t sent_stack(const struct used *u, int32_t stack) {
    return stack == PROFILE_ABSENT ? 0 : stack == PROFILE_NOT_READ ? 1 : u->stacks[stack] + 1;
}

/* "17A3,18B": three samples of stack 15 with bits 1, one of stack 16 with bits 2. */
static void write_samples(const struct profile *p, const struct profile_rank *r, uint32_t n_ticks,
                          const struct used *u, struct json_writer *w) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (uint32_t k = 0, n; k < n_ticks; k += n) {
        struct profile_sample s = profile_at(p, r, k);
        for (n = 1; k + n < n_ticks; n++) {
            struct profile_sample next = profile_at(p, r, k + n);
            if (next.stack != s.stack || bits_of(&next) != bits_of(&s))
                break;
        }
        strbuf_printf(&text, "%s%" PRIu32 "%c", k > 0 ? "," : "", sent_stack(u, s.stack),
                      (char)(FIRST_CHAR + bits_of(&s)));
        if (n > 1)
            strbuf_printf(&text, "%" PRIu32, n);
    }
    json_write_string(w, "samples", strbuf_text(&text));
}

static void write_rank(const struct profile *p, const struct profile_rank *r, uint32_t n_ticks,
                       const struct used *u, struct json_writer *w) {
    json_write_object_begin(w, NULL);
    json_write_u64(w, "rank", r->rank);
    json_write_id(w, "step", r->step);
    json_write_id(w, "span_ns", r->span_ns);
    json_write_id(w, "ran_ns", r->ran_ns);
    json_write_id(w, "delay_ns", r->delay_ns);
    json_write_string(w, "gap", r->gap);
    write_samples(p, r, n_ticks, u, w);
    json_write_u64(w, "n_children", r->n_children);
    json_write_array_begin(w, "children");
    for (uint32_t i = 0; i < r->n_rows; i++) {
        json_write_array_begin(w, NULL);
        json_write_u64(w, NULL, sent_stack(u, r->children[i].stack));
        json_write_u64(w, NULL, r->children[i].sleeps);
        json_write_u64(w, NULL, r->children[i].samples);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

static void write_ticks(const struct profile *p, uint32_t n_ticks, struct strbuf *ret) {
    struct used u = {.stacks = xcalloc(p->n_stacks + (size_t)1, sizeof *u.stacks),
                     .frames = xcalloc(p->n_frames + (size_t)1, sizeof *u.frames)};
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        for (uint32_t k = 0; k < n_ticks; k++)
            use(p, profile_at(p, &p->ranks[i], k).stack, &u);
        for (uint32_t k = 0; k < p->ranks[i].n_rows; k++)
            use(p, p->ranks[i].children[k].stack, &u);
    }
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_id(&w, "period_ns", p->period_ns);
    json_write_id(&w, "first_tick", p->first_tick);
    json_write_u64(&w, "n_ticks", n_ticks);
    write_tables(p, &u, &w);
    json_write_array_begin(&w, "ranks");
    for (uint32_t i = 0; i < p->n_ranks; i++)
        write_rank(p, &p->ranks[i], n_ticks, &u, &w);
    json_write_array_end(&w);
    json_write_object_end(&w);
    free(u.stacks);
    free(u.frames);
}

void profile_write(const struct profile *p, size_t max, struct strbuf *ret) {
    for (uint32_t n = MIN2(p->n_ticks, NODE_SAMPLES_MAX / MAX2(p->n_ranks, 1u));; n -= n / 8 + 1) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        write_ticks(p, n, &text);
        if (text.len <= max)
            strbuf_add_bytes(ret, strbuf_text(&text), text.len);
        if (text.len <= max || n == 0)
            return;
    }
}

/* ---- reading ---- */

struct reading {
    struct profile *p;
    const char *what; /* of an array's element, for errors */
    struct err *err;
};

static int read_number(const struct reading *rd, const struct json *v, int64_t max, uint32_t *ret) {
    int64_t n = 0;
    int r = json_as_integer(v, rd->what, 0, max, &n, rd->err);
    *ret = (uint32_t)n;
    return r;
}

static int read_frame(const struct reading *rd, const struct json *v) {
    const char *function, *file;
    uint32_t line, calls;
    const struct json *at = json_first(v);
    int r = json_as_array(v, rd->what, 4, rd->err);
    if (r < 0 || (r = json_as_string(at, rd->what, PROFILE_TEXT_MAX, &function, rd->err)) < 0)
        return r;
    at = json_next(at);
    if ((r = json_as_string(at, rd->what, PROFILE_TEXT_MAX, &file, rd->err)) < 0)
        return r;
    at = json_next(at);
    if ((r = read_number(rd, at, UINT32_MAX, &line)) < 0)
        return r;
    if ((r = read_number(rd, json_next(at), 3, &calls)) < 0)
        return r;
    uint32_t n = rd->p->n_frames;
    if (profile_add_frame(rd->p, function, file, line, calls) != n)
        return err_set(rd->err, -EINVAL, "a frame is there twice");
    return 0;
}

static int read_stack(const struct reading *rd, const struct json *v) {
    uint32_t frames[PROFILE_FRAMES_MAX], n = 0, n_stacks = rd->p->n_stacks;
    int r = json_as_array(v, rd->what, PROFILE_FRAMES_MAX, rd->err);
    for (const struct json *f = r < 0 ? NULL : json_first(v); f != NULL && r == 0; f = json_next(f))
        r = read_number(rd, f, (int64_t)rd->p->n_frames - 1, &frames[n++]);
    if (r < 0)
        return r;
    if (n == 0 || profile_add_stack(rd->p, frames, n) != (int32_t)n_stacks)
        return err_set(rd->err, -EINVAL, "a stack is empty, or there twice");
    return 0;
}

static int read_samples(const struct reading *rd, struct profile_rank *r, const char *text,
                        uint32_t n_ticks) {
    uint32_t k = 0;
    for (const char *at = text; *at != '\0'; at += *at == ',') {
        char *end;
        unsigned long stack = strtoul(at, &end, 10);
        unsigned bits = (unsigned)(*end - FIRST_CHAR);
        if (end == at || stack > rd->p->n_stacks + 1u || bits > BITS_MAX)
            return err_set(rd->err, -EINVAL, "\"samples\" has no valid sample at %.20s", at);
        at = end + 1;
        unsigned long n = strtoul(at, &end, 10);
        n = end == at ? 1 : n;
        at = end;
        if (n == 0 || n > n_ticks - k || (*at != '\0' && *at != ','))
            return err_set(rd->err, -EINVAL, "\"samples\" has a wrong number at %.20s", at);
        struct profile_sample s = {.stack = (int32_t)stack - 2,
                                   .sleeps = (bits & SLEEPS) != 0,
                                   .gc = (bits & GC) != 0,
                                   .helped = (bits & HELPED) != 0,
                                   .syscall = (enum profile_syscall)(bits >> SYSCALL_SHIFT)};
        for (; n > 0; n--, k++) {
            int code = profile_add_sample(rd->p, r, rd->p->first_tick + k, &s);
            if (code < 0)
                return err_set(rd->err, code, "there are too many samples");
        }
    }
    return 0;
}

/* Stack 0 of a child is -2 here: it is shown as not read. */
static int read_child(const struct reading *rd, const struct json *v, struct profile_rank *rank) {
    uint32_t stack, sleeps, samples;
    int r = json_as_array(v, rd->what, 3, rd->err);
    const struct json *at = r < 0 ? NULL : json_first(v);
    if (r < 0 || (r = read_number(rd, at, (int64_t)rd->p->n_stacks + 1, &stack)) < 0)
        return r;
    at = json_next(at);
    if ((r = read_number(rd, at, 1, &sleeps)) < 0)
        return r;
    if ((r = read_number(rd, json_next(at), PROFILE_SAMPLES_MAX, &samples)) < 0)
        return r;
    profile_add_child(rank, MAX2((int32_t)stack - 2, PROFILE_NOT_READ), sleeps != 0, samples);
    return 0;
}

static int read_rank(const struct reading *rd, const struct json *v, uint32_t n_ticks) {
    const struct json *children;
    const char *text, *gap;
    uint32_t rank, before = rd->p->n_ranks;
    int r = json_get_u32(v, "rank", UINT32_MAX, &rank, rd->err);
    struct profile_rank *to = r < 0 ? NULL : profile_add_rank(rd->p, rank);
    if (r < 0)
        return r;
    if (to == NULL || rd->p->n_ranks == before)
        return err_set(rd->err, -EINVAL, "rank %" PRIu32 " is there twice", rank);
    if ((r = json_get_id(v, "step", &to->step, rd->err)) < 0 ||
        (r = json_get_id(v, "span_ns", &to->span_ns, rd->err)) < 0 ||
        (r = json_get_id(v, "ran_ns", &to->ran_ns, rd->err)) < 0 ||
        (r = json_get_id(v, "delay_ns", &to->delay_ns, rd->err)) < 0 ||
        (r = json_get_u32(v, "n_children", UINT32_MAX, &to->n_children, rd->err)) < 0 ||
        (r = json_get_string(v, "gap", sizeof to->gap - 1, &gap, rd->err)) < 0 ||
        (r = json_get_string(v, "samples", LIMITS.max_bytes, &text, rd->err)) < 0 ||
        (r = json_get_array(v, "children", PROFILE_CHILDREN_MAX, &children, rd->err)) < 0)
        return r;
    utf8_copy_line(to->gap, sizeof to->gap, gap);
    r = read_samples(rd, to, text, n_ticks);
    for (const struct json *c = json_first(children); c != NULL && r == 0; c = json_next(c))
        r = read_child(rd, c, to);
    return r;
}

static int read_list(const struct reading *rd, const struct json *doc,
                     int (*read)(const struct reading *rd, const struct json *v)) {
    const struct json *list;
    int r = json_get_array(doc, rd->what, PROFILE_TABLE_MAX / 16, &list, rd->err);
    for (const struct json *v = r < 0 ? NULL : json_first(list); v != NULL && r == 0;
         v = json_next(v))
        r = read(rd, v);
    return r;
}

static int read_all(const struct json *doc, struct profile *p, struct err *err) {
    const struct json *ranks;
    uint32_t n_ticks;
    int r;
    if ((r = json_get_id(doc, "period_ns", &p->period_ns, err)) < 0 ||
        (r = json_get_id(doc, "first_tick", &p->first_tick, err)) < 0 ||
        (r = json_get_u32(doc, "n_ticks", PROFILE_TICKS_MAX, &n_ticks, err)) < 0 ||
        (r = read_list(&(struct reading){p, "frames", err}, doc, read_frame)) < 0 ||
        (r = read_list(&(struct reading){p, "stacks", err}, doc, read_stack)) < 0 ||
        (r = json_get_array(doc, "ranks", PROFILE_TABLE_MAX / 16, &ranks, err)) < 0)
        return r;
    if ((uint64_t)json_count(ranks) * n_ticks > NODE_SAMPLES_MAX)
        return err_set(err, -E2BIG, "a node has at most %u samples", NODE_SAMPLES_MAX);
    if (p->period_ns == 0 || p->first_tick > UINT64_MAX / MAX2(p->period_ns, 2u) - n_ticks)
        return err_set(err, -EINVAL, "the ticks have no valid time");
    for (const struct json *v = json_first(ranks); v != NULL && r == 0; v = json_next(v))
        r = read_rank(&(struct reading){p, "ranks", err}, v, n_ticks);
    p->n_ticks = n_ticks;
    return r;
}

int profile_read(const char *text, size_t len, struct profile *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    *ret = (struct profile){0};
    int r = json_parse(text, len, &LIMITS, &doc, err);
    if (r == 0)
        r = read_all(doc, ret, err);
    if (r < 0)
        profile_fini(ret);
    return r;
}

/* ---- merging ---- */

/* Ticks before the first one of the job: all samples move back. */
static void begin_earlier(struct profile *job, uint32_t n) {
    for (uint32_t i = 0; i < job->n_ranks; i++) {
        struct profile_rank *r = &job->ranks[i];
        uint32_t had = MIN2(r->room, job->n_ticks);
        if (had == 0)
            continue;
        make_room(r, had + n);
        memmove(&r->samples[n], r->samples, had * sizeof *r->samples);
        for (uint32_t k = 0; k < n; k++)
            r->samples[k] = absent;
    }
    job->first_tick -= n;
    job->n_ticks += n;
}

static int check_merge(const struct profile *job, const struct profile *node, struct err *err) {
    uint64_t first = MIN2(job->first_tick, node->first_tick);
    uint64_t last = MAX2(job->first_tick + job->n_ticks, node->first_tick + node->n_ticks);
    if (job->period_ns != node->period_ns)
        return err_set(err, -EINVAL, "its samples have another period");
    if (last - first > PROFILE_TICKS_MAX ||
        (uint64_t)(job->n_ranks + node->n_ranks) * (last - first) > PROFILE_SAMPLES_MAX)
        return err_set(err, -E2BIG,
                       "its samples are of another time, or too many: do the clocks agree?");
    if (job->n_frames + node->n_frames > PROFILE_TABLE_MAX ||
        job->n_stacks + node->n_stacks > PROFILE_TABLE_MAX)
        return err_set(err, -E2BIG, "the job has too many different stacks");
    for (uint32_t i = 0; i < node->n_ranks; i++) {
        uint32_t at = rank_at(job, node->ranks[i].rank);
        if (at < job->n_ranks && job->ranks[at].rank == node->ranks[i].rank)
            return err_set(err, -EINVAL, "another node has rank %" PRIu32 ", too",
                           node->ranks[i].rank);
    }
    return 0;
}

/* The job's numbers of the node's stacks. */
static uint32_t *merge_stacks(struct profile *job, const struct profile *node) {
    uint32_t *stacks = xcalloc(node->n_stacks + (size_t)1, sizeof *stacks);
    _cleanup_(freep) uint32_t *frames = xcalloc(node->n_frames + (size_t)1, sizeof *frames);
    for (uint32_t i = 0; i < node->n_frames; i++) {
        const struct profile_frame *f = &node->frames[i];
        frames[i] = (uint32_t)profile_add_frame(job, f->function, f->file, f->line, f->calls);
    }
    for (uint32_t i = 0; i < node->n_stacks; i++) {
        uint32_t mapped[PROFILE_FRAMES_MAX];
        for (uint32_t k = 0; k < node->stacks[i].n; k++)
            mapped[k] = frames[node->stacks[i].frames[k]];
        stacks[i] = (uint32_t)profile_add_stack(job, mapped, node->stacks[i].n);
    }
    return stacks;
}

static int32_t mapped(const uint32_t *stacks, int32_t stack) {
    return stack < 0 ? stack : (int32_t)stacks[stack];
}

int profile_merge(struct profile *job, const struct profile *node, struct err *err) {
    if (job->period_ns == 0) {
        job->period_ns = node->period_ns;
        job->first_tick = node->first_tick;
    }
    int r = check_merge(job, node, err);
    if (r < 0)
        return r;
    if (node->first_tick < job->first_tick)
        begin_earlier(job, (uint32_t)(job->first_tick - node->first_tick));
    uint32_t from = (uint32_t)(node->first_tick - job->first_tick);
    job->n_ticks = MAX2(job->n_ticks, from + node->n_ticks);
    _cleanup_(freep) uint32_t *stacks = merge_stacks(job, node);
    for (uint32_t i = 0; i < node->n_ranks; i++) {
        const struct profile_rank *in = &node->ranks[i];
        struct profile_rank *out = profile_add_rank(job, in->rank);
        *out = *in;
        out->samples = NULL;
        out->children = NULL;
        out->room = out->n_rows = 0;
        make_room(out, from + node->n_ticks);
        for (uint32_t k = 0; k < node->n_ticks; k++) {
            out->samples[from + k] = profile_at(node, in, k);
            out->samples[from + k].stack = mapped(stacks, out->samples[from + k].stack);
        }
        for (uint32_t k = 0; k < in->n_rows; k++)
            profile_add_child(out, mapped(stacks, in->children[k].stack), in->children[k].sleeps,
                              in->children[k].samples);
    }
    return 0;
}
