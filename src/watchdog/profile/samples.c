#include "watchdog/profile/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/json/json_table.h"
#include "base/text/utf8.h"

/* Of a message: what a node may send (RDZV_EVIDENCE_MAX), and what its values may cost here. */
static const struct json_limits LIMITS = {
    .max_bytes = (size_t)1 << 20, .max_depth = 6, .max_values = 1u << 18};

/* A run of equal samples is short as JSON and long in memory: their number is bounded, too. */
#define NODE_SAMPLES_MAX (PROFILE_SAMPLES_MAX / 64)

void profile_fini(struct profile *p) {
    for (uint32_t i = 0; i < p->n_frames; i++) {
        free(p->frames[i].function);
        free(p->frames[i].file);
    }
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        free(p->ranks[i].samples);
        free(p->ranks[i].children);
    }
    free(p->frames);
    free(p->stacks);
    free(p->ranks);
    idmap_fini(&p->frame_ids);
    idmap_fini(&p->stack_ids);
    *p = (struct profile){0};
}

static uint32_t find(const struct idmap *ids, uint64_t id) {
    return (uint32_t)(uintptr_t)idmap_get(ids, id);
}

int64_t profile_add_frame(struct profile *p, const char *function, const char *file, uint32_t line,
                          unsigned calls) {
    char names[2][PROFILE_TEXT_MAX];
    size_t len = strlen(file);
    utf8_copy_line(names[0], sizeof names[0], function);
    utf8_copy_line(names[1], sizeof names[1],
                   len < PROFILE_TEXT_MAX ? file : file + len - PROFILE_TEXT_MAX + 1);
    uint64_t id = (hash_text(hash_text(HASH_BEGIN, names[0]), names[1]) + line) | 1;
    for (uint32_t at; (at = find(&p->frame_ids, id)) > 0; id += 2) {
        const struct profile_frame *f = &p->frames[at - 1];
        if (f->line == line && f->calls == calls && strcmp(f->function, names[0]) == 0 &&
            strcmp(f->file, names[1]) == 0)
            return at - 1;
    }
    if (p->n_frames >= PROFILE_TABLE_MAX)
        return -E2BIG;
    p->frames = xgrow(p->frames, p->n_frames, sizeof *p->frames);
    p->frames[p->n_frames++] =
        (struct profile_frame){xstrdup(names[0]), xstrdup(names[1]), line, calls};
    idmap_put(&p->frame_ids, id, (void *)(uintptr_t)p->n_frames);
    return p->n_frames - 1;
}

static int32_t add_inner(struct profile *p, int32_t outer, uint32_t frame) {
    uint64_t id = (uint64_t)(outer + 2) << 32 | frame;
    uint32_t at = find(&p->stack_ids, id), depth = outer < 0 ? 1 : p->stacks[outer].depth + 1;
    if (at > 0)
        return (int32_t)at - 1;
    if (p->n_stacks >= PROFILE_TABLE_MAX || depth > PROFILE_FRAMES_MAX)
        return -E2BIG;
    p->stacks = xgrow(p->stacks, p->n_stacks, sizeof *p->stacks);
    p->stacks[p->n_stacks++] = (struct profile_stack){outer, frame, depth};
    idmap_put(&p->stack_ids, id, (void *)(uintptr_t)p->n_stacks);
    return (int32_t)p->n_stacks - 1;
}

int32_t profile_add_stack(struct profile *p, const uint32_t *frames, uint32_t n) {
    int32_t stack = -1;
    assert(n > 0 && n <= PROFILE_FRAMES_MAX);
    while (n-- > 0)
        if ((stack = add_inner(p, stack, frames[n])) < 0)
            return stack;
    return stack;
}

/* Behind it, or where it belongs. */
static uint32_t behind(const struct profile *p, uint32_t rank) {
    uint32_t at = p->n_ranks;
    while (at > 0 && p->ranks[at - 1].rank > rank)
        at--;
    return at;
}

static bool has_rank(const struct profile *p, uint32_t rank) {
    uint32_t at = behind(p, rank);
    return at > 0 && p->ranks[at - 1].rank == rank;
}

struct profile_rank *profile_add_rank(struct profile *p, uint32_t rank) {
    uint32_t at = behind(p, rank);
    if (has_rank(p, rank))
        return &p->ranks[at - 1];
    p->ranks = xgrow(p->ranks, p->n_ranks, sizeof *p->ranks);
    memmove(&p->ranks[at + 1], &p->ranks[at], (p->n_ranks++ - at) * sizeof *p->ranks);
    p->ranks[at] = (struct profile_rank){.rank = rank};
    return &p->ranks[at];
}

static const struct profile_sample absent = {.stack = PROFILE_ABSENT};

static void make_room(struct profile_rank *r, uint32_t n) {
    if (n <= r->room)
        return;
    n = MAX2(n, MAX2(r->room * 2, 64u));
    r->samples = xrealloc(r->samples, n * sizeof *r->samples);
    while (r->room < n)
        r->samples[r->room++] = absent;
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
 * al. 2005): the total stays right, and what is frequent stays. */
void profile_add_child(struct profile_rank *r, int32_t stack, uint32_t samples) {
    struct profile_child *row = NULL, *least = r->children;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        row = r->children[i].stack == stack ? &r->children[i] : row;
        least = r->children[i].samples < least->samples ? &r->children[i] : least;
    }
    if (row == NULL && r->n_rows == PROFILE_CHILDREN_MAX) {
        row = least;
        row->stack = stack;
    } else if (row == NULL) {
        r->children = xgrow(r->children, r->n_rows, sizeof *r->children);
        row = &r->children[r->n_rows++];
        *row = (struct profile_child){stack, 0};
    }
    row->samples += samples;
}

/* Frames, stacks, samples and children are flat lists of their values. A sample is the number of
 * its stack and 2, shifted by BITS, with these bits; after it comes for how many ticks it is so. */
enum { SLEEPS = 1, GC = 2, HELPED = 4, SYSCALL_SHIFT = 3, BITS = 5 };

static uint32_t number_of(struct profile_sample s) {
    return (uint32_t)(s.stack + 2) << BITS | (uint32_t)s.syscall << SYSCALL_SHIFT |
           (s.sleeps ? SLEEPS : 0u) | (s.gc ? GC : 0u) | (s.helped ? HELPED : 0u);
}

/* Keys of lists are beside these. */
static const struct json_field rank_fields[] = {
    {JSON_FIELD(profile_rank, U32, "rank", rank)},
    {JSON_FIELD(profile_rank, ID, "step", step)},
    {JSON_FIELD(profile_rank, DOUBLE, "delay", delay)},
    {JSON_FIELD(profile_rank, U32, "n_children", n_children)},
    {JSON_FIELD(profile_rank, LINE, "gap", gap)},
};
static const struct json_table rank_table = {JSON_ROWS(profile_rank, rank_fields), .open = true};

static void write_rank(const struct profile *p, const struct profile_rank *r, uint32_t n_ticks,
                       int32_t last, struct json_writer *w) {
    json_write_object_begin(w, NULL);
    json_table_write(w, &rank_table, r);
    json_write_array_begin(w, "samples");
    for (uint32_t k = 0, next; k < n_ticks; k = next) {
        uint32_t number = number_of(profile_at(p, r, k));
        for (next = k + 1; next < n_ticks && number_of(profile_at(p, r, next)) == number;)
            next++;
        json_write_u64(w, NULL, number);
        json_write_u64(w, NULL, next - k);
    }
    json_write_array_end(w);
    json_write_array_begin(w, "children");
    for (uint32_t i = 0; i < r->n_rows; i++) {
        int32_t stack = r->children[i].stack;
        json_write_u64(w, NULL, (uint32_t)((stack > last ? PROFILE_NOT_READ : stack) + 1));
        json_write_u64(w, NULL, r->children[i].samples);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

static void write_ticks(const struct profile *p, uint32_t n_ticks, struct strbuf *ret) {
    struct json_writer w = json_writer_of(ret);
    int32_t last = n_ticks == p->n_ticks ? (int32_t)p->n_stacks - 1 : -1;
    uint32_t n_frames = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (uint32_t k = 0; k < n_ticks; k++)
            last = MAX2(last, profile_at(p, &p->ranks[i], k).stack);
    for (int32_t i = 0; i <= last; i++)
        n_frames = MAX2(n_frames, p->stacks[i].frame + 1);
    json_write_object_begin(&w, NULL);
    json_write_id(&w, "period_ns", p->period_ns);
    json_write_id(&w, "first_tick", p->first_tick);
    json_write_u64(&w, "n_ticks", n_ticks);
    json_write_array_begin(&w, "frames");
    for (uint32_t i = 0; i < n_frames; i++) {
        json_write_string(&w, NULL, p->frames[i].function);
        json_write_string(&w, NULL, p->frames[i].file);
        json_write_u64(&w, NULL, p->frames[i].line);
        json_write_u64(&w, NULL, p->frames[i].calls);
    }
    json_write_array_end(&w);
    json_write_array_begin(&w, "stacks");
    for (int32_t i = 0; i <= last; i++) {
        json_write_u64(&w, NULL, (uint32_t)(p->stacks[i].outer + 1));
        json_write_u64(&w, NULL, p->stacks[i].frame);
    }
    json_write_array_end(&w);
    json_write_array_begin(&w, "ranks");
    for (uint32_t i = 0; i < p->n_ranks; i++)
        write_rank(p, &p->ranks[i], n_ticks, last, &w);
    json_write_array_end(&w);
    json_write_object_end(&w);
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

struct reading {
    struct profile *job, node; /* the node has no tables: its numbers are the job's */
    const char *what;          /* the list that is read */
    const struct json *at;     /* its next value; NULL: end, or error */
    uint32_t *frames, *stacks; /* the job's numbers of the node's; owned */
    uint32_t n_frames, n_stacks;
    int code;
    struct err *err;
};

/* Returns how many values it has. */
static uint32_t begin_list(struct reading *rd, const struct json *obj, const char *key) {
    const struct json *list = NULL;
    if (rd->code == 0)
        rd->code = json_get_array(obj, key, UINT32_MAX, &list, rd->err);
    rd->what = key;
    rd->at = rd->code == 0 ? json_first(list) : NULL;
    return rd->code == 0 ? json_count(list) : 0;
}

static uint32_t next_number(struct reading *rd, int64_t max) {
    int64_t n = 0;
    if (rd->code == 0)
        rd->code = json_as_integer(rd->at, rd->what, 0, max, &n, rd->err);
    rd->at = rd->code == 0 ? json_next(rd->at) : NULL;
    return (uint32_t)n;
}

static const char *next_text(struct reading *rd) {
    const char *text = "";
    if (rd->code == 0)
        rd->code = json_as_string(rd->at, rd->what, PROFILE_TEXT_MAX, &text, rd->err);
    rd->at = rd->code == 0 ? json_next(rd->at) : NULL;
    return text;
}

/* The number under which the job has it. */
static uint32_t added(struct reading *rd, int64_t number) {
    if (number < 0 && rd->code == 0)
        rd->code = err_set(rd->err, (int)number, "the job has too many different stacks");
    rd->at = rd->code == 0 ? rd->at : NULL;
    return (uint32_t)number;
}

static void read_tables(struct reading *rd, const struct json *doc) {
    rd->frames = xcalloc(begin_list(rd, doc, "frames") + (size_t)1, sizeof *rd->frames);
    while (rd->at != NULL) {
        const char *function = next_text(rd), *file = next_text(rd);
        uint32_t line = next_number(rd, UINT32_MAX), calls = next_number(rd, 3);
        rd->frames[rd->n_frames++] =
            added(rd, profile_add_frame(rd->job, function, file, line, calls));
    }
    rd->stacks = xcalloc(begin_list(rd, doc, "stacks") + (size_t)1, sizeof *rd->stacks);
    while (rd->at != NULL) {
        uint32_t outer = next_number(rd, rd->n_stacks),
                 frame = next_number(rd, (int64_t)rd->n_frames - 1);
        if (rd->code == 0)
            rd->stacks[rd->n_stacks++] =
                added(rd, add_inner(rd->job, outer == 0 ? -1 : (int32_t)rd->stacks[outer - 1],
                                    rd->frames[frame]));
    }
}

/* from: how many numbers stand for no stack. */
static int32_t stack_of(const struct reading *rd, uint32_t number, uint32_t from) {
    return number < from ? (int32_t)number - (int32_t)from : (int32_t)rd->stacks[number - from];
}

static void read_rank(struct reading *rd, const struct json *v, uint64_t tick, uint64_t end) {
    struct profile_rank read = {0};
    if (rd->code < 0 || (rd->code = json_table_read(v, &rank_table, &read, rd->err)) < 0)
        return;
    if (has_rank(&rd->node, read.rank) || has_rank(rd->job, read.rank)) {
        rd->code = err_set(rd->err, -EINVAL, "rank %" PRIu32 " is there twice", read.rank);
        return;
    }
    struct profile_rank *r = profile_add_rank(&rd->node, read.rank);
    *r = read;
    make_room(r, rd->node.n_ticks);
    (void)begin_list(rd, v, "samples");
    while (rd->at != NULL) {
        uint32_t number = next_number(rd, (((int64_t)rd->n_stacks + 2) << BITS) - 1);
        uint32_t n = next_number(rd, (int64_t)(end - tick));
        struct profile_sample s = {
            .stack = stack_of(rd, number >> BITS, 2),
            .sleeps = (number & SLEEPS) != 0,
            .gc = (number & GC) != 0,
            .helped = (number & HELPED) != 0,
            .syscall = (enum profile_syscall)(number >> SYSCALL_SHIFT & PROFILE_OTHER)};
        for (; n > 0 && rd->code == 0; n--, tick++)
            rd->code = profile_add_sample(&rd->node, r, tick, &s);
    }
    (void)begin_list(rd, v, "children");
    while (rd->at != NULL) {
        int32_t stack = stack_of(rd, next_number(rd, rd->n_stacks), 1);
        profile_add_child(r, stack, next_number(rd, NODE_SAMPLES_MAX));
    }
}

/* All samples move back: these ticks are before the first one of the job. */
static void begin_earlier(struct profile *job, uint32_t n) {
    for (uint32_t i = 0; i < job->n_ranks; i++) {
        struct profile_rank *r = &job->ranks[i];
        uint32_t had = MIN2(r->room, job->n_ticks);
        make_room(r, had + n);
        memmove(&r->samples[n], r->samples, had * sizeof *r->samples);
        for (uint32_t k = 0; k < n; k++)
            r->samples[k] = absent;
    }
    job->first_tick -= n;
    job->n_ticks += n;
}

static int read_ranks(struct reading *rd, const struct json *doc) {
    struct profile *job = rd->job;
    uint64_t first, period_ns;
    const struct json *ranks;
    uint32_t n_ticks;
    if ((rd->code = json_get_id(doc, "period_ns", &period_ns, rd->err)) < 0 ||
        (rd->code = json_get_id(doc, "first_tick", &first, rd->err)) < 0 ||
        (rd->code = json_get_u32(doc, "n_ticks", PROFILE_TICKS_MAX, &n_ticks, rd->err)) < 0 ||
        (rd->code = json_get_array(doc, "ranks", PROFILE_TABLE_MAX, &ranks, rd->err)) < 0)
        return rd->code;
    if (period_ns == 0 || first > UINT64_MAX / MAX2(period_ns, 2u) - n_ticks)
        return err_set(rd->err, -EINVAL, "the ticks have no valid time");
    if (job->n_ranks == 0) {
        job->period_ns = period_ns;
        job->first_tick = first;
        job->n_ticks = 0;
    }
    uint64_t begin = MIN2(job->first_tick, first);
    uint64_t all = MAX2(job->first_tick + job->n_ticks, first + n_ticks) - begin;
    if (job->period_ns != period_ns)
        return err_set(rd->err, -EINVAL, "its samples have another period");
    if ((uint64_t)json_count(ranks) * n_ticks > NODE_SAMPLES_MAX)
        return err_set(rd->err, -E2BIG, "a node has at most %u samples", NODE_SAMPLES_MAX);
    if (all > PROFILE_TICKS_MAX ||
        (job->n_ranks + (uint64_t)json_count(ranks)) * all > PROFILE_SAMPLES_MAX)
        return err_set(rd->err, -E2BIG,
                       "its samples are of another time, or too many: do the clocks agree?");
    rd->node.first_tick = begin;
    rd->node.n_ticks = (uint32_t)(first - begin) + n_ticks;
    read_tables(rd, doc);
    for (const struct json *v = json_first(ranks); v != NULL; v = json_next(v))
        read_rank(rd, v, first, first + n_ticks);
    return rd->code;
}

/* Moves the node's ranks to the job. */
static void merge(struct profile *job, struct profile *node) {
    if (node->first_tick < job->first_tick)
        begin_earlier(job, (uint32_t)(job->first_tick - node->first_tick));
    job->n_ticks = MAX2(job->n_ticks, node->n_ticks);
    for (uint32_t i = 0; i < node->n_ranks; i++)
        *profile_add_rank(job, node->ranks[i].rank) = node->ranks[i];
    node->n_ranks = 0;
}

int profile_read(const char *text, size_t len, struct profile *job, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    struct reading rd = {.job = job, .err = err};
    int r = json_parse(text, len, &LIMITS, &doc, err);
    if (r == 0)
        r = read_ranks(&rd, doc);
    if (r == 0)
        merge(job, &rd.node);
    profile_fini(&rd.node);
    free(rd.frames);
    free(rd.stacks);
    return r;
}
