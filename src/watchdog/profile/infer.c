#include "watchdog/profile/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "watchdog/profile/names.h"

/* Thresholds of R6 to R8, and where they come from: 17 scenarios on 4 ranks, and simulated jobs. */
#define LATE_MIN 0.04
/* The first stage of a balanced pipeline is alone at the end of each step, with certainty, and
 * waits as long as the others: that it waits less must be certain, too. Of 1,000 simulated jobs of
 * 20 s, 11 were named without this and 1 with it; stragglers of 10 and 30 % as often. */
#define GAP_Z 3
#define MOST_WORK_MIN 0.10
#define MOST_WORK_Z 4.5 /* a balanced pipeline reached 4.3 where CPUs were short */
#define NAMED_NS (3 * NS_PER_S)
#define NAMED_TICKS 8
#define PAUSE_NS (400 * NS_PER_MS)
#define PAUSE_TICKS 8
#define PAUSES_MIN 3 /* a pause is one observation, however many samples it has */
#define REASON_MIN 0.02
#define DATA_MIN 0.10
#define CPU_MIN 0.10
#define NETWORK_MIN 0.20
#define CHILDREN_BUSY 0.9
#define FILL_TICKS 2 /* a sample that is missing so long is as the one before */

static const struct {
    const char *name, *key;
} classes[PROFILE_CLASS_COUNT] = {
    [PROFILE_GC] = {"garbage collection", "gc"},
    [PROFILE_EVAL] = {"evaluation", "eval"},
    [PROFILE_CHECKPOINT] = {"checkpoint", "checkpoint"},
    [PROFILE_INIT] = {"making process groups", "init"},
    [PROFILE_COMPILE] = {"compiling", "compile"},
    [PROFILE_IMPORT] = {"importing modules", "import"},
    [PROFILE_DATA] = {"data loading", "data"},
    [PROFILE_LOGGING] = {"logging", "logging"},
    [PROFILE_OPTIMIZER] = {"optimizer", "optimizer"},
    [PROFILE_BACKWARD] = {"backward", "backward"},
    [PROFILE_FORWARD] = {"forward", "forward"},
    [PROFILE_COMM] = {"calls of torch.distributed", "comm"},
    [PROFILE_OTHER_WORK] = {"other", "other"},
    [PROFILE_START] = {"no Python stack", "start"},
    [PROFILE_LATE] = {"waits for a late rank", "late"},
    [PROFILE_NETWORK] = {"network (all ranks wait)", "network"},
    [PROFILE_DEVICE] = {"waits for the GPU", "device"},
};
const char *profile_class_name(enum profile_class c) { return classes[c].name; }
const char *profile_class_key(enum profile_class c) { return classes[c].key; }

/* ---- R2 to R4: what a rank does at one tick ---- */

/* What a stack shows, which the state of the thread completes. */
struct shown {
    enum profile_class cls; /* if it works */
    bool comm, engine, calls_wait, device;
    uint32_t place; /* the frame that names it */
};

struct work {
    const struct profile *p;
    struct profile_findings *f;
    struct shown *shown;  /* [p->n_stacks] */
    uint32_t n;           /* ranks that are compared, */
    uint32_t *ranks;      /* [n] their indexes */
    uint32_t n_ticks;     /* at which all of these were sampled */
    uint32_t *ticks;      /* [n_ticks] their indexes */
    uint32_t *busy;       /* [n_ticks] ranks that do not wait */
    uint32_t few;         /* so many busy ranks are late, if the others wait */
    uint32_t per;         /* ticks of a block */
    double z;             /* from which on chance does not explain it */
    double *late, *waits; /* [n] share of ticks */
};

static bool is_work(enum profile_class c) { return c < PROFILE_FIRST_WAIT; }

static uint32_t place_of(const struct profile *p, const struct profile_stack *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if ((profile_names_of(&p->frames[s->frames[i]]) & NAME_LIBRARY) == 0)
            return s->frames[i];
    return s->frames[s->n - 1];
}

/* R2: the innermost frame that is not a wrapper. R4: the first class that any frame shows. */
static struct shown show(const struct profile *p, const struct profile_stack *s,
                         const unsigned *names) {
    unsigned all = 0;
    uint32_t at = 0;
    while (at + 1 < s->n && (names[s->frames[at]] & NAME_TRANSPARENT) != 0)
        at++;
    unsigned leaf = names[s->frames[at]];
    bool imports = false;
    for (uint32_t i = 0; i < s->n; i++) {
        unsigned of = names[s->frames[i]];
        all |= of & ~(1u << PROFILE_IMPORT);
        imports = imports || (of & 1u << PROFILE_IMPORT) != 0;
    }
    struct shown ret = {.cls = PROFILE_OTHER_WORK,
                        .comm = (leaf & NAME_COMM) != 0,
                        .engine = (leaf & NAME_ENGINE) != 0,
                        .calls_wait = (p->frames[s->frames[0]].calls & PROFILE_CALLS_WAIT) != 0,
                        .device = (leaf & NAME_DEVICE) != 0 ||
                                  (p->frames[s->frames[at]].calls & PROFILE_CALLS_DEVICE) != 0,
                        .place = place_of(p, s)};
    all |= names[s->frames[0]]; /* an import that runs nothing */
    for (int c = 0; c < PROFILE_COMM; c++)
        if ((all & 1u << c) != 0) {
            ret.cls = (enum profile_class)c;
            break;
        }
    /* The body of a module; but a whole program can run below an import. */
    if (imports && (ret.cls == PROFILE_COMPILE || ret.cls == PROFILE_OTHER_WORK))
        ret.cls = PROFILE_IMPORT;
    if (ret.comm && (leaf & NAME_OVERLAPS) == 0 && ret.cls >= PROFILE_OPTIMIZER)
        ret.cls = PROFILE_COMM;
    return ret;
}

/* R3. PROFILE_LATE: it waits; R5 decides for what. */
static enum profile_class classify(const struct shown *s, const struct profile_sample *sample) {
    bool futex = sample->sleeps && sample->syscall == PROFILE_FUTEX;
    bool waits = (sample->sleeps && s->comm && sample->syscall != PROFILE_SLEEP) ||
                 (futex && s->engine && !sample->helped) || (futex && s->calls_wait);
    if (waits)
        return PROFILE_LATE;
    if (s->device)
        return PROFILE_DEVICE;
    /* Imports collect garbage often: this is part of their time. */
    return sample->gc && s->cls != PROFILE_IMPORT ? PROFILE_GC : s->cls;
}

static uint8_t *row_of(const struct work *w, uint32_t rank) {
    return w->f->classes + (size_t)rank * w->f->n_all_ticks;
}

/* Returns at how many ticks it was read. PROFILE_START: it was not, and not shortly before. */
static uint32_t classify_rank(const struct work *w, uint32_t rank) {
    const struct profile *p = w->p;
    uint8_t *row = row_of(w, rank), last = PROFILE_START;
    uint32_t n = 0, missing = 0;
    for (uint32_t k = 0; k < p->n_ticks; k++) {
        struct profile_sample s = profile_at(p, &p->ranks[rank], k);
        missing = s.stack >= 0 ? 0 : missing + 1;
        if (s.stack >= 0)
            last = (uint8_t)classify(&w->shown[s.stack], &s);
        else if (missing > FILL_TICKS)
            last = PROFILE_START;
        row[k] = last;
        n += s.stack >= 0;
    }
    return n;
}

static void classify_all(struct work *w) {
    const struct profile *p = w->p;
    _cleanup_(freep) unsigned *names = xcalloc(p->n_frames + (size_t)1, sizeof *names);
    for (uint32_t i = 0; i < p->n_frames; i++)
        names[i] = profile_names_of(&p->frames[i]);
    for (uint32_t i = 0; i < p->n_stacks; i++)
        w->shown[i] = show(p, &p->stacks[i], names);
    for (uint32_t r = 0; r < p->n_ranks; r++)
        if (classify_rank(w, r) * 2 >= p->n_ticks && p->n_ticks > 0)
            w->ranks[w->n++] = r;
}

/* ---- R5: what all ranks do at a tick ---- */

static void compare_tick(struct work *w, uint32_t k) {
    uint32_t busy = 0, waiting = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        uint8_t c = row_of(w, w->ranks[i])[k];
        if (c == PROFILE_START)
            return;
        busy += is_work(c);
        waiting += c == PROFILE_LATE;
    }
    for (uint32_t i = 0; i < w->n && busy == 0 && waiting > 0; i++)
        if (row_of(w, w->ranks[i])[k] == PROFILE_LATE)
            row_of(w, w->ranks[i])[k] = PROFILE_NETWORK;
    w->busy[w->n_ticks] = busy;
    w->ticks[w->n_ticks++] = k;
}

static enum profile_class at(const struct work *w, uint32_t i, uint32_t t) {
    return row_of(w, w->ranks[i])[w->ticks[t]];
}

/* How much the others wait for this rank at this tick: 1, or less if several are busy. */
static double blame(const struct work *w, uint32_t i, uint32_t t) {
    uint32_t busy = w->busy[t];
    return busy > 0 && busy <= w->few && busy < w->n && is_work(at(w, i, t)) ? 1.0 / busy : 0;
}

static void sum_up(struct work *w) {
    struct profile_findings *f = w->f;
    double most = 0, all = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t t = 0; t < w->n_ticks; t++) {
            enum profile_class c = at(w, i, t);
            f->shares[c] += 1.0 / w->n / w->n_ticks;
            w->waits[i] += is_work(c) ? 0 : 1.0 / w->n_ticks;
            w->late[i] += blame(w, i, t) / w->n_ticks;
        }
        all += 1 - w->waits[i];
        most = MAX2(most, 1 - w->waits[i]);
    }
    f->communication = most;
    f->load_balance = most > 0 ? all / w->n / most : 0;
}

/* ---- R6: who is late ---- */

struct order {
    double value;
    uint32_t i;
};

static int by_value(const void *a, const void *b) {
    const struct order *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* ret[i]: the median of the ranks other than i, the `high` or the low one of an even number. */
static void medians(const double *values, uint32_t n, bool high, uint32_t *ret) {
    _cleanup_(freep) struct order *order = xcalloc(n, sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct order){values[i], i};
    qsort(order, n, sizeof *order, by_value);
    uint32_t middle = high ? (n - 1) / 2 : (n - 2) / 2;
    for (uint32_t k = 0; k < n; k++)
        ret[order[k].i] = order[k <= middle ? middle + 1 : middle].i;
}

typedef double value_fn(const struct work *w, uint32_t i, uint32_t t);

static double waits_at(const struct work *w, uint32_t i, uint32_t t) {
    return is_work(at(w, i, t)) ? 0 : 1;
}

/* The paired difference of two ranks over blocks of time: its mean over its standard error. A block
 * counts once, because ticks of one step are not independent. */
static double z_of(const struct work *w, value_fn *value, uint32_t plus, uint32_t minus) {
    double sum = 0, squares = 0, all = 0;
    uint32_t blocks = w->n_ticks / w->per;
    if (blocks < 2)
        return 0;
    for (uint32_t b = 0; b < blocks; b++) {
        double mean = 0;
        for (uint32_t t = b * w->per; t < (b + 1) * w->per; t++)
            mean += (value(w, plus, t) - value(w, minus, t)) / w->per;
        sum += mean;
        squares += mean * mean;
    }
    for (uint32_t t = 0; t < w->n_ticks; t++)
        all += (value(w, plus, t) - value(w, minus, t)) / w->n_ticks;
    double variance = MAX2(squares - sum * sum / blocks, 0.0) / (blocks - 1);
    return all / MAX2(sqrt(variance / blocks), 0.5 / w->n_ticks);
}

/* Runs of ticks in which most others wait and it does not. */
static double count_pauses(const struct work *w, uint32_t i, struct profile_late *ret) {
    double period = (double)w->p->period_ns, all = 0, longer = 0;
    double least = MAX2((double)PAUSE_NS, PAUSE_TICKS * period);
    for (uint32_t t = 0, run = 0; t <= w->n_ticks; t++) {
        bool late = t < w->n_ticks && is_work(at(w, i, t)) && 2 * (w->n - w->busy[t]) >= w->n;
        run += late;
        if (late || run == 0)
            continue;
        double ns = run * period;
        all += ns;
        longer += ns >= least ? ns : 0;
        ret->n_pauses += ns >= least;
        run = 0;
    }
    ret->pause_ns = ret->n_pauses > 0 ? (uint64_t)(longer / ret->n_pauses) : 0;
    return all > 0 ? longer / all : 0;
}

static void explain(const struct work *w, uint32_t i, struct profile_late *ret);

static void name(struct work *w, uint32_t i, uint32_t other, const struct profile_late *as) {
    struct profile_late *l = &w->f->late[w->f->n_late++];
    *l = *as;
    l->rank = w->p->ranks[w->ranks[i]].rank;
    l->works = 1 - w->waits[i];
    l->others_work = 1 - w->waits[other];
    explain(w, i, l);
}

static void find_late(struct work *w) {
    _cleanup_(freep) uint32_t *late = xcalloc(w->n, sizeof *late);
    _cleanup_(freep) uint32_t *waits = xcalloc(w->n, sizeof *waits);
    _cleanup_(freep) struct order *order = xcalloc(w->n, sizeof *order);
    medians(w->late, w->n, true, late);
    medians(w->waits, w->n, false, waits);
    for (uint32_t i = 0; i < w->n; i++)
        order[i] = (struct order){w->late[i] - w->late[late[i]], i};
    qsort(order, w->n, sizeof *order, by_value);
    for (uint32_t k = w->n; k-- > 0 && order[k].value > 0;) {
        uint32_t i = order[k].i;
        struct profile_late l = {.share = order[k].value};
        double z = z_of(w, blame, i, late[i]), gap = w->waits[waits[i]] - w->waits[i];
        if (z > w->f->top_z && gap > 0) {
            w->f->top = w->p->ranks[w->ranks[i]].rank;
            w->f->top_z = z;
            w->f->top_share = l.share;
        }
        if (w->f->n_late == PROFILE_LATE_MAX || l.share < LATE_MIN ||
            gap < MAX2(LATE_MIN, l.share / 2))
            continue;
        l.how = count_pauses(w, i, &l) > 0.5 ? PROFILE_PAUSES : PROFILE_IS_LATE;
        bool sure = z >= w->z && z_of(w, waits_at, waits[i], i) >= GAP_Z;
        if (sure || l.n_pauses >= PAUSES_MIN)
            name(w, i, waits[i], &l);
    }
    if (w->f->n_late > 0)
        return;
    uint32_t most = 0;
    for (uint32_t i = 1; i < w->n; i++)
        most = w->waits[i] < w->waits[most] ? i : most;
    struct profile_late l = {.how = PROFILE_MOST_WORK,
                             .share = w->waits[waits[most]] - w->waits[most]};
    if (l.share >= MOST_WORK_MIN && z_of(w, waits_at, waits[most], most) >= MAX2(w->z, MOST_WORK_Z))
        name(w, most, waits[most], &l);
}

/* ---- R7: why ---- */

static int by_share(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The share of rank i's ticks that `fits`, above the median of the others. */
typedef bool fits_fn(const struct work *w, uint32_t i, uint32_t t, const void *what);
static double excess(const struct work *w, uint32_t i, fits_fn *fits, const void *what) {
    _cleanup_(freep) double *shares = xcalloc(w->n, sizeof *shares);
    double own = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        double share = 0;
        for (uint32_t t = 0; t < w->n_ticks; t++)
            share += fits(w, k, t, what) ? 1.0 / w->n_ticks : 0;
        if (k == i)
            own = share;
        else
            shares[n++] = share;
    }
    qsort(shares, n, sizeof *shares, by_share);
    return own - (shares[(n - 1) / 2] + shares[n / 2]) / 2;
}

static bool is_class(const struct work *w, uint32_t i, uint32_t t, const void *cls) {
    return at(w, i, t) == *(const enum profile_class *)cls;
}

static uint32_t place_at(const struct work *w, uint32_t i, uint32_t t) {
    int32_t stack = profile_at(w->p, &w->p->ranks[w->ranks[i]], w->ticks[t]).stack;
    return stack < 0 ? UINT32_MAX : w->shown[stack].place;
}

struct at_place {
    enum profile_class cls;
    uint32_t place;
};
static bool is_at_place(const struct work *w, uint32_t i, uint32_t t, const void *what) {
    const struct at_place *a = what;
    return at(w, i, t) == a->cls && place_at(w, i, t) == a->place;
}

static void place_text(const struct profile *p, uint32_t frame, char ret[PROFILE_PLACE_MAX]) {
    const struct profile_frame *f = &p->frames[frame];
    const char *slash = strrchr(f->file, '/');
    (void)snprintf(ret, PROFILE_PLACE_MAX, "%.80s (%.60s:%" PRIu32 ")", f->function,
                   slash != NULL ? slash + 1 : f->file, f->line);
}

void profile_place(const struct profile *p, int32_t stack, char ret[PROFILE_PLACE_MAX]) {
    ret[0] = '\0';
    if (stack >= 0)
        place_text(p, place_of(p, &p->stacks[stack]), ret);
}

/* The line at which a rank is most often in this class; UINT32_MAX: none. */
struct counted {
    enum profile_class cls;
    uint32_t place, n;
};
static int by_count(const void *a, const void *b) {
    const struct counted *x = a, *y = b;
    return x->n != y->n          ? (x->n > y->n ? -1 : 1)
           : x->cls != y->cls    ? (x->cls < y->cls ? -1 : 1)
           : x->place < y->place ? -1
                                 : x->place > y->place;
}

/* What rank i does, the most first; work alone if `works`. `cells`: [n_frames * PROFILE_FIRST_WAIT]
 * zeros, and again so after it. */
static uint32_t count_places(const struct work *w, uint32_t i, uint32_t *cells, struct counted *ret,
                             uint32_t max) {
    uint32_t n = 0;
    for (uint32_t t = 0; t < w->n_ticks; t++) {
        enum profile_class c = at(w, i, t);
        uint32_t place = place_at(w, i, t);
        if (!is_work(c) || place == UINT32_MAX)
            continue;
        uint32_t *cell = &cells[(size_t)place * PROFILE_FIRST_WAIT + c];
        if (*cell == 0 && n < max) {
            ret[n] = (struct counted){c, place, 0};
            *cell = ++n;
        }
        if (*cell > 0)
            ret[*cell - 1].n++;
    }
    for (uint32_t k = 0; k < n; k++)
        cells[(size_t)ret[k].place * PROFILE_FIRST_WAIT + ret[k].cls] = 0;
    qsort(ret, n, sizeof *ret, by_count);
    return n;
}

#define PLACES_MAX 512

/* The line, if one accounts for half of it or more. */
static void find_place(const struct work *w, uint32_t i, struct profile_reason *r,
                       const struct counted *places, uint32_t n) {
    double best = MAX2(REASON_MIN, r->share / 2);
    for (uint32_t k = 0, tried = 0; k < n && tried < 4; k++) {
        if (places[k].cls != r->cls)
            continue;
        tried++;
        struct at_place what = {r->cls, places[k].place};
        double share = excess(w, i, is_at_place, &what);
        if (share < best)
            continue;
        best = share;
        place_text(w->p, places[k].place, r->place);
    }
}

static uint32_t *new_cells(const struct work *w) {
    return xcalloc(((size_t)w->p->n_frames + 1) * PROFILE_FIRST_WAIT, sizeof(uint32_t));
}

static void explain(const struct work *w, uint32_t i, struct profile_late *ret) {
    _cleanup_(freep) uint32_t *cells = new_cells(w);
    _cleanup_(freep) struct counted *places = xcalloc(PLACES_MAX, sizeof *places);
    uint32_t n = count_places(w, i, cells, places, PLACES_MAX);
    double shares[PROFILE_FIRST_WAIT];
    for (int c = 0; c < PROFILE_FIRST_WAIT; c++)
        shares[c] = excess(w, i, is_class, &(enum profile_class){(enum profile_class)c});
    while (ret->n_reasons < PROFILE_REASONS_MAX) {
        int most = 0;
        for (int c = 1; c < PROFILE_FIRST_WAIT; c++)
            most = shares[c] > shares[most] ? c : most;
        if (shares[most] < REASON_MIN)
            return;
        struct profile_reason *r = &ret->reasons[ret->n_reasons++];
        *r = (struct profile_reason){.cls = (enum profile_class)most, .share = shares[most]};
        shares[most] = 0;
        find_place(w, i, r, places, n);
    }
}

/* ---- R8: limits, and the rows ---- */

static bool is_idle_child(const struct profile *p, int32_t stack) {
    for (uint32_t i = 0; stack >= 0 && i < p->stacks[stack].n; i++)
        if ((profile_names_of(&p->frames[p->stacks[stack].frames[i]]) & NAME_QUEUE) != 0)
            return true;
    return stack < 0;
}

static enum profile_limit data_limit(const struct profile *p, int32_t *stack) {
    uint64_t busy = 0, all = 0, most = 0;
    for (uint32_t r = 0; r < p->n_ranks; r++)
        for (uint32_t k = 0; k < p->ranks[r].n_rows; k++) {
            const struct profile_child *c = &p->ranks[r].children[k];
            bool works = !is_idle_child(p, c->stack);
            all += c->samples;
            busy += works ? c->samples : 0;
            if (works && c->samples > most) {
                most = c->samples;
                *stack = c->stack;
            }
        }
    if (all == 0)
        return PROFILE_LIMIT_DATA_HERE;
    return (double)busy > CHILDREN_BUSY * (double)all ? PROFILE_LIMIT_DATA_WORKERS
                                                      : PROFILE_LIMIT_DATA;
}

static void add_limit(struct profile_findings *f, enum profile_limit what, double share) {
    if (f->n_limits < PROFILE_LIMITS_MAX) {
        f->limits[f->n_limits].what = what;
        f->limits[f->n_limits++].share = share;
    }
}

/* The line at which most ranks load data. */
static void data_place(const struct work *w, char ret[PROFILE_PLACE_MAX]) {
    _cleanup_(freep) uint32_t *counts = xcalloc(w->p->n_frames + (size_t)1, sizeof *counts);
    uint32_t most = 0;
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t t = 0; t < w->n_ticks; t++) {
            uint32_t place = at(w, i, t) == PROFILE_DATA ? place_at(w, i, t) : UINT32_MAX;
            if (place != UINT32_MAX && ++counts[place] > counts[most])
                most = place;
        }
    if (counts[most] > 0)
        place_text(w->p, most, ret);
}

static void find_limits(struct work *w) {
    struct profile_findings *f = w->f;
    double delay = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct profile_rank *r = &w->p->ranks[w->ranks[i]];
        delay += r->span_ns > 0 ? (double)r->delay_ns / (double)r->span_ns / w->n : 0;
    }
    if (f->shares[PROFILE_DATA] >= DATA_MIN) {
        int32_t stack = PROFILE_NOT_READ;
        add_limit(f, data_limit(w->p, &stack), f->shares[PROFILE_DATA]);
        if (f->limits[0].what == PROFILE_LIMIT_DATA_WORKERS)
            profile_place(w->p, stack, f->limits[0].place);
        else
            data_place(w, f->limits[0].place);
    }
    if (delay >= CPU_MIN)
        add_limit(f, PROFILE_LIMIT_CPU, MIN2(delay, 1.0));
    if (f->shares[PROFILE_NETWORK] >= NETWORK_MIN)
        add_limit(f, PROFILE_LIMIT_NETWORK, f->shares[PROFILE_NETWORK]);
    if (f->shares[PROFILE_DEVICE] >= NETWORK_MIN)
        add_limit(f, PROFILE_LIMIT_DEVICE, f->shares[PROFILE_DEVICE]);
}

static void fill_rows(struct work *w) {
    struct profile_findings *f = w->f;
    _cleanup_(freep) uint32_t *cells = new_cells(w);
    _cleanup_(freep) struct counted *places = xcalloc(PLACES_MAX, sizeof *places);
    for (uint32_t r = 0; r < w->p->n_ranks; r++) {
        const struct profile_rank *of = &w->p->ranks[r];
        f->rows[r] = (struct profile_row){.rank = of->rank,
                                          .gap = of->gap[0] != '\0' ? of->gap : "too few samples"};
    }
    for (uint32_t i = 0; i < w->n && w->n_ticks > 0; i++) {
        struct profile_row *row = &f->rows[w->ranks[i]];
        row->gap = w->p->ranks[w->ranks[i]].gap;
        row->works = 1 - w->waits[i];
        row->waits = w->waits[i];
        uint32_t n = count_places(w, i, cells, places, PLACES_MAX);
        for (; row->n_mostly < MIN2(n, ARRAY_SIZE(row->mostly)); row->n_mostly++) {
            struct profile_reason *m = &row->mostly[row->n_mostly];
            m->cls = places[row->n_mostly].cls;
            m->share = (double)places[row->n_mostly].n / w->n_ticks;
            place_text(w->p, places[row->n_mostly].place, m->place);
        }
    }
}

/* ---- all of it ---- */

static void compare(struct work *w) {
    const struct profile *p = w->p;
    struct profile_findings *f = w->f;
    for (uint32_t k = 0; k < p->n_ticks && w->n > 0; k++)
        compare_tick(w, k);
    f->n_ranks = w->n;
    f->n_ticks = w->n_ticks;
    if (w->n_ticks == 0)
        return;
    f->span_ns = (w->ticks[w->n_ticks - 1] - w->ticks[0]) * p->period_ns;
    double span = (double)f->span_ns, period = (double)p->period_ns;
    double block = MIN2((double)NS_PER_S, MAX2(0.25 * NS_PER_S, MAX2(4 * period, span / 12)));
    w->per = (uint32_t)MAX2(1L, lround(block / period));
    w->few = MAX2(1u, w->n / 4);
    w->z = w->n > 128 ? 6 : w->n > 16 ? 5 : 4;
    sum_up(w);
    if (w->n > 1 && f->span_ns >= NAMED_NS && f->n_ticks >= NAMED_TICKS)
        find_late(w);
    find_limits(w);
}

void profile_infer(const struct profile *p, struct profile_findings *ret) {
    struct work w = {.p = p,
                     .f = ret,
                     .shown = xcalloc(p->n_stacks + (size_t)1, sizeof *w.shown),
                     .ranks = xcalloc(p->n_ranks + (size_t)1, sizeof *w.ranks),
                     .ticks = xcalloc(p->n_ticks + (size_t)1, sizeof *w.ticks),
                     .busy = xcalloc(p->n_ticks + (size_t)1, sizeof *w.busy),
                     .late = xcalloc(p->n_ranks + (size_t)1, sizeof *w.late),
                     .waits = xcalloc(p->n_ranks + (size_t)1, sizeof *w.waits)};
    *ret = (struct profile_findings){.n_rows = p->n_ranks, .n_all_ticks = p->n_ticks};
    ret->rows = xcalloc(p->n_ranks + (size_t)1, sizeof *ret->rows);
    ret->classes = xcalloc((size_t)p->n_ranks * p->n_ticks + 1, 1);
    classify_all(&w);
    compare(&w);
    fill_rows(&w);
    free(w.shown);
    free(w.ranks);
    free(w.ticks);
    free(w.busy);
    free(w.late);
    free(w.waits);
}

void profile_findings_fini(struct profile_findings *f) {
    free(f->rows);
    free(f->classes);
    *f = (struct profile_findings){0};
}
