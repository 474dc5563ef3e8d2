#include "watchdog/profile/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/util.h"

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

const char *const profile_class_names[PROFILE_CLASS_COUNT] = {
    [PROFILE_GC] = "garbage collection",
    [PROFILE_EVAL] = "evaluation",
    [PROFILE_CHECKPOINT] = "checkpoint",
    [PROFILE_INIT] = "making process groups",
    [PROFILE_COMPILE] = "compiling",
    [PROFILE_IMPORT] = "importing modules",
    [PROFILE_DATA] = "data loading",
    [PROFILE_LOGGING] = "logging",
    [PROFILE_OPTIMIZER] = "optimizer",
    [PROFILE_BACKWARD] = "backward",
    [PROFILE_FORWARD] = "forward",
    [PROFILE_COMM] = "calls of torch.distributed",
    [PROFILE_OTHER_WORK] = "other",
    [PROFILE_START] = "no Python stack",
    [PROFILE_LATE] = "waits for a late rank",
    [PROFILE_NETWORK] = "network (all ranks wait)",
    [PROFILE_DEVICE] = "waits for the GPU",
};
const char *const profile_class_keys[PROFILE_CLASS_COUNT] = {
    "gc",    "eval",    "checkpoint", "init",     "compile", "import",
    "data",  "logging", "optimizer",  "backward", "forward", "comm",
    "other", "start",   "late",       "network",  "device",
};

/* ---- names ---- */

enum where {
    FILE_HAS,
    FILE_ENDS,
    FILE_BEGINS,
    FUNCTION_IS,
    FUNCTION_HAS,
};
#define BIT(class) (1u << PROFILE_##class)

/* PyTorch's paths are those of 2.13; they have been the same since 2.4 except where noted. */
static const struct row {
    enum where where;
    const char *text;
    unsigned names;
} rows[] = {
    /* wrappers, which are in the way of the call that they wrap */
    {FILE_ENDS, "torch/_ops.py", NAME_TRANSPARENT},                    /* operator dispatch */
    {FILE_ENDS, "torch/utils/_contextlib.py", NAME_TRANSPARENT},       /* @no_grad */
    {FILE_ENDS, "torch/distributed/c10d_logger.py", NAME_TRANSPARENT}, /* times collectives */
    {FILE_ENDS, "torch/_compile.py", NAME_TRANSPARENT},
    {FILE_ENDS, "torch/_dynamo/eval_frame.py", NAME_TRANSPARENT | NAME_COMPILED},
    {FILE_ENDS, "torch/_dynamo/external_utils.py", NAME_COMPILED},
    {FILE_ENDS, "torch/nn/modules/module.py", NAME_TRANSPARENT | BIT(FORWARD)}, /* _call_impl */
    {FILE_ENDS, "torch/autograd/function.py", NAME_TRANSPARENT}, /* a user's backward() */
    {FILE_ENDS, "/threading.py", NAME_TRANSPARENT},
    {FILE_ENDS, "/contextlib.py", NAME_TRANSPARENT},
    {FILE_ENDS, "/functools.py", NAME_TRANSPARENT},
    /* collectives */
    {FILE_HAS, "torch/distributed/distributed_c10d", NAME_COMM},
    {FILE_HAS, "torch/distributed/_functional_collectives", NAME_COMM},
    {FILE_HAS, "torch/distributed/utils", NAME_COMM},
    {FILE_HAS, "torch/distributed/nn/functional", NAME_COMM},
    {FILE_HAS, "torch/distributed/algorithms/", NAME_COMM}, /* communication hooks of DDP */
    {FILE_HAS, "torch/distributed/device_mesh", NAME_COMM},
    {FILE_HAS, "torch/distributed/tensor/", NAME_COMM}, /* DTensor; _tensor/ before 2.5 */
    {FILE_HAS, "torch/distributed/_tensor", NAME_COMM},
    {FILE_HAS, "torch/distributed/pipelining/", NAME_COMM | NAME_OVERLAPS},
    {FILE_HAS, "torch/distributed/fsdp/", NAME_COMM | NAME_OVERLAPS},
    {FILE_HAS, "torch/distributed/_composable/", NAME_COMM | NAME_OVERLAPS}, /* FSDP2 until 2.6 */
    {FILE_HAS, "torch/nn/parallel/distributed.py", NAME_COMM | NAME_OVERLAPS | BIT(FORWARD)},
    {FILE_HAS, "deepspeed/comm/", NAME_COMM},                     /* DeepSpeed 0.10 on */
    {FILE_HAS, "horovod/", NAME_COMM},                            /* Horovod 0.28 */
    {FILE_HAS, "mpi4py/", NAME_COMM},                             /* mpi4py 4.0 */
    {FILE_HAS, "megatron/core/pipeline_parallel/p2p", NAME_COMM}, /* Megatron Core 0.9 */
    /* evaluation: names of Transformers, Lightning and hand-written loops; a heuristic */
    {FUNCTION_IS, "evaluate", BIT(EVAL)},
    {FUNCTION_IS, "evaluation_loop", BIT(EVAL)},
    {FUNCTION_IS, "eval_loop", BIT(EVAL)},
    {FUNCTION_IS, "eval_epoch", BIT(EVAL)},
    {FUNCTION_IS, "validate", BIT(EVAL)},
    {FUNCTION_IS, "validation_step", BIT(EVAL)},
    {FUNCTION_IS, "validation_loop", BIT(EVAL)},
    {FUNCTION_IS, "run_validation", BIT(EVAL)},
    {FUNCTION_IS, "run_eval", BIT(EVAL)},
    {FUNCTION_IS, "do_eval", BIT(EVAL)},
    {FUNCTION_IS, "predict", BIT(EVAL)},
    {FUNCTION_IS, "prediction_step", BIT(EVAL)},
    {FUNCTION_IS, "prediction_loop", BIT(EVAL)},
    {FUNCTION_IS, "test_step", BIT(EVAL)},
    /* checkpoints */
    {FILE_ENDS, "torch/serialization.py", BIT(CHECKPOINT)}, /* torch.save, torch.load */
    {FILE_HAS, "torch/distributed/checkpoint/", BIT(CHECKPOINT)},
    {FILE_HAS, "/safetensors/", BIT(CHECKPOINT)}, /* safetensors 0.4 */
    {FILE_HAS, "/orbax/", BIT(CHECKPOINT)},       /* JAX's, orbax 0.5 */
    {FUNCTION_HAS, "save_checkpoint", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_checkpoint", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_ckpt", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_ckpt", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_model", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_model", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_state", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "load_state", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "save_pretrained", BIT(CHECKPOINT)}, /* Transformers 4 and 5 */
    {FUNCTION_HAS, "load_pretrained", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "_save_optimizer", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "_save_rng", BIT(CHECKPOINT)},
    {FUNCTION_HAS, "maybe_save", BIT(CHECKPOINT)},
    /* the process group, its store, and the first meeting */
    {FUNCTION_IS, "init_process_group", BIT(INIT)},
    {FILE_ENDS, "torch/distributed/rendezvous.py", BIT(INIT)},
    /* torch.compile */
    {FILE_HAS, "torch/_inductor/", BIT(COMPILE)},
    {FILE_HAS, "torch/_functorch/", BIT(COMPILE)},
    {FILE_HAS, "torch/fx/", BIT(COMPILE)},
    {FILE_HAS, "torch/_dynamo/", BIT(COMPILE)},
    {FILE_BEGINS, "<frozen importlib", BIT(IMPORT)},
    /* data loading */
    {FILE_HAS, "torch/utils/data/", BIT(DATA)},
    {FILE_HAS, "/torchdata/", BIT(DATA)},
    {FILE_HAS, "/datasets/", BIT(DATA)}, /* Hugging Face's, 2 to 4 */
    {FILE_HAS, "/webdataset/", BIT(DATA)},
    {FILE_HAS, "/nvidia/dali/", BIT(DATA)},
    {FILE_HAS, "/streaming/", BIT(DATA)}, /* MosaicML's */
    {FILE_HAS, "/grain/", BIT(DATA)},
    {FILE_HAS, "/spdl/", BIT(DATA)},
    {FILE_HAS, "/ffcv/", BIT(DATA)},
    {FILE_HAS, "tensorflow/python/data/", BIT(DATA)},
    {FILE_ENDS, "accelerate/data_loader.py", BIT(DATA)},
    {FILE_ENDS, "multiprocessing/queues.py", NAME_QUEUE}, /* _worker_loop() waits for indexes */
    /* logging */
    {FILE_HAS, "/logging/", BIT(LOGGING)},
    {FILE_HAS, "/tqdm/", BIT(LOGGING)},
    {FILE_HAS, "/wandb/", BIT(LOGGING)},
    {FILE_HAS, "tensorboard", BIT(LOGGING)},
    /* a step */
    {FILE_HAS, "torch/optim/", BIT(OPTIMIZER)},
    {FUNCTION_IS, "_engine_run_backward", BIT(BACKWARD) | NAME_ENGINE}, /* before 2.4: backward */
    {FUNCTION_IS, "item", NAME_DEVICE},
    {FUNCTION_IS, "cpu", NAME_DEVICE},
    {FUNCTION_IS, "tolist", NAME_DEVICE},
    {FUNCTION_IS, "synchronize", NAME_DEVICE},
    /* not the user's code */
    {FILE_HAS, "/site-packages/", NAME_LIBRARY},
    {FILE_HAS, "/dist-packages/", NAME_LIBRARY},
    {FILE_HAS, "/lib/python3", NAME_LIBRARY},
    {FILE_BEGINS, "<frozen", NAME_LIBRARY},
};

static bool fits(const struct row *row, const struct profile_frame *f) {
    switch (row->where) {
    case FILE_HAS: return strstr(f->file, row->text) != NULL;
    case FILE_ENDS: return text_ends(f->file, row->text);
    case FILE_BEGINS: return strncmp(f->file, row->text, strlen(row->text)) == 0;
    case FUNCTION_IS: /* "_evaluate" is as "evaluate" */
        return strcmp(f->function + (f->function[0] == '_' && row->text[0] != '_'), row->text) == 0;
    case FUNCTION_HAS: return strstr(f->function, row->text) != NULL;
    }
    return false;
}

unsigned profile_names_of(const struct profile_frame *f) {
    unsigned names = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        names |= fits(&rows[i], f) ? rows[i].names : 0;
    return (names & NAME_COMPILED) != 0 ? names & ~BIT(COMPILE) : names;
}

static const struct {
    const char *text;
    unsigned calls;
} calls[] = {
    {".wait(", PROFILE_CALLS_WAIT}, /* of the Work that an asynchronous collective returns */
    {".barrier(", PROFILE_CALLS_WAIT},
    {".all_reduce(", PROFILE_CALLS_WAIT},
    {".synchronize(", PROFILE_CALLS_WAIT | PROFILE_CALLS_DEVICE},
    {".item(", PROFILE_CALLS_DEVICE},
    {".cpu(", PROFILE_CALLS_DEVICE},
    {".tolist(", PROFILE_CALLS_DEVICE},
    {".nonzero(", PROFILE_CALLS_DEVICE},
};

unsigned profile_calls_of(const char *line) {
    unsigned found = 0;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        found |= strstr(line, calls[i].text) != NULL ? calls[i].calls : 0;
    return found;
}

/* gloo_transport of gloo; pt_nccl_* and nccl* of ProcessGroupNCCL and NCCL. */
bool profile_is_transport_thread(const char *name) {
    return strstr(name, "gloo") != NULL || strstr(name, "nccl") != NULL ||
           strstr(name, "NCCL") != NULL;
}

/* ---- R2 to R4: what a rank does at one tick ---- */

/* What a stack shows, which the state of the thread completes. */
struct shown {
    unsigned names;         /* of all frames, without those of imports */
    bool imports;           /* any frame does */
    uint32_t leaf, place;   /* R2: the innermost frame that does not wrap another; its name */
    unsigned of_leaf;       /* the names of the leaf */
    enum profile_class cls; /* if it works */
};

/* What a rank does at one line, so many ticks. */
struct counted {
    enum profile_class cls;
    uint32_t place, n;
};
#define PLACES_MAX 512

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
    uint32_t *cells;      /* [n_frames * PROFILE_FIRST_WAIT] 0, but while places are counted */
    struct counted places[PLACES_MAX]; /* of the ranks that were counted last, the most first */
    uint32_t n_places;
};

static bool is_work(enum profile_class c) { return c < PROFILE_FIRST_WAIT; }

/* R4: the first class that any frame shows. */
static enum profile_class class_of(const struct shown *s, unsigned innermost) {
    unsigned all = s->names | innermost; /* with an import that runs nothing */
    enum profile_class cls = PROFILE_OTHER_WORK;
    for (unsigned c = PROFILE_COMM; c-- > 0;)
        cls = (all & 1u << c) != 0 ? (enum profile_class)c : cls;
    /* The body of a module; but a whole program can run below an import. */
    if (s->imports && (cls == PROFILE_COMPILE || cls == PROFILE_OTHER_WORK))
        return PROFILE_IMPORT;
    bool comm = (s->of_leaf & NAME_COMM) != 0 && (s->of_leaf & NAME_OVERLAPS) == 0;
    return comm && cls >= PROFILE_OPTIMIZER ? PROFILE_COMM : cls;
}

static void show_all(const struct work *w) {
    const struct profile *p = w->p;
    _cleanup_(freep) unsigned *names = xcalloc(p->n_frames + (size_t)1, sizeof *names);
    for (uint32_t i = 0; i < p->n_frames; i++)
        names[i] = profile_names_of(&p->frames[i]);
    for (uint32_t i = 0; i < p->n_stacks; i++) {
        uint32_t frame = p->stacks[i].frame;
        struct shown *s = &w->shown[i];
        *s = p->stacks[i].outer >= 0 ? w->shown[p->stacks[i].outer]
                                     : (struct shown){.leaf = frame, .place = frame};
        s->names |= names[frame] & ~(1u << PROFILE_IMPORT);
        s->imports |= (names[frame] & 1u << PROFILE_IMPORT) != 0;
        s->leaf = (names[frame] & NAME_TRANSPARENT) == 0 ? frame : s->leaf;
        s->place = (names[frame] & NAME_LIBRARY) == 0 ? frame : s->place;
        s->of_leaf = names[s->leaf];
        s->cls = class_of(s, names[frame]);
    }
}

/* R3. PROFILE_LATE: it waits; R5 decides for what. */
static enum profile_class classify(const struct work *w, const struct profile_sample *sample) {
    const struct profile_frame *frames = w->p->frames;
    const struct shown *s = &w->shown[sample->stack];
    bool futex = sample->sleeps && sample->syscall == PROFILE_FUTEX;
    unsigned own = frames[w->p->stacks[sample->stack].frame].calls;
    if ((sample->sleeps && (s->of_leaf & NAME_COMM) != 0 && sample->syscall != PROFILE_SLEEP) ||
        (futex && (s->of_leaf & NAME_ENGINE) != 0 && !sample->helped) ||
        (futex && (own & PROFILE_CALLS_WAIT) != 0))
        return PROFILE_LATE;
    if ((s->of_leaf & NAME_DEVICE) != 0 || (frames[s->leaf].calls & PROFILE_CALLS_DEVICE) != 0)
        return PROFILE_DEVICE;
    /* Imports collect garbage often: this is part of their time. */
    return sample->gc && s->cls != PROFILE_IMPORT ? PROFILE_GC : s->cls;
}

static uint8_t *row_of(const struct work *w, uint32_t rank) {
    return w->f->classes + (size_t)rank * w->p->n_ticks;
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
            last = (uint8_t)classify(w, &s);
        else if (missing > FILL_TICKS)
            last = PROFILE_START;
        row[k] = last;
        n += s.stack >= 0;
    }
    return n;
}

static void classify_all(struct work *w) {
    show_all(w);
    for (uint32_t r = 0; r < w->p->n_ranks; r++)
        if (classify_rank(w, r) * 2 >= w->p->n_ticks && w->p->n_ticks > 0)
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
    ret->pause_s = ret->n_pauses > 0 ? longer / ret->n_pauses / NS_PER_S : 0;
    return all > 0 ? longer / all : 0;
}

static void explain(struct work *w, uint32_t i, struct profile_late *ret);

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

static uint32_t place_at(const struct work *w, uint32_t i, uint32_t t) {
    int32_t stack = profile_at(w->p, &w->p->ranks[w->ranks[i]], w->ticks[t]).stack;
    return stack < 0 ? UINT32_MAX : w->shown[stack].place;
}

/* The share of rank i's ticks in this class, above the median of the others; place: only at this
 * one, or NULL. */
static double excess(const struct work *w, uint32_t i, enum profile_class cls,
                     const uint32_t *place) {
    _cleanup_(freep) struct order *shares = xcalloc(w->n, sizeof *shares);
    double own = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        double share = 0;
        for (uint32_t t = 0; t < w->n_ticks; t++)
            if (at(w, k, t) == cls && (place == NULL || place_at(w, k, t) == *place))
                share += 1.0 / w->n_ticks;
        if (k == i)
            own = share;
        else
            shares[n++].value = share;
    }
    qsort(shares, n, sizeof *shares, by_value);
    return own - (shares[(n - 1) / 2].value + shares[n / 2].value) / 2;
}

/* "__getitem__ (loader.py:41)" */
static void place_text(const struct profile *p, uint32_t frame, char ret[PROFILE_PLACE_MAX]) {
    const struct profile_frame *f = &p->frames[frame];
    (void)snprintf(ret, PROFILE_PLACE_MAX, "%.80s (%.60s:%" PRIu32 ")", f->function,
                   path_name(f->file), f->line);
}

static int by_count(const void *a, const void *b) {
    const struct counted *x = a, *y = b;
    return x->n != y->n          ? (x->n > y->n ? -1 : 1)
           : x->cls != y->cls    ? (x->cls < y->cls ? -1 : 1)
           : x->place < y->place ? -1
                                 : x->place > y->place;
}

/* The work of ranks i to end - 1. */
static void count_places(struct work *w, uint32_t i, uint32_t end) {
    w->n_places = 0;
    for (; i < end; i++)
        for (uint32_t t = 0; t < w->n_ticks; t++) {
            enum profile_class c = at(w, i, t);
            uint32_t place = place_at(w, i, t);
            if (!is_work(c) || place == UINT32_MAX)
                continue;
            uint32_t *cell = &w->cells[(size_t)place * PROFILE_FIRST_WAIT + c];
            if (*cell == 0 && w->n_places < PLACES_MAX) {
                w->places[w->n_places] = (struct counted){c, place, 0};
                *cell = ++w->n_places;
            }
            if (*cell > 0)
                w->places[*cell - 1].n++;
        }
    for (uint32_t k = 0; k < w->n_places; k++)
        w->cells[(size_t)w->places[k].place * PROFILE_FIRST_WAIT + w->places[k].cls] = 0;
    qsort(w->places, w->n_places, sizeof *w->places, by_count);
}

/* The line, if one accounts for half of it or more. */
static void find_place(const struct work *w, uint32_t i, struct profile_reason *r) {
    double best = MAX2(REASON_MIN, r->share / 2);
    for (uint32_t k = 0, tried = 0; k < w->n_places && tried < 4; k++) {
        if (w->places[k].cls != r->cls)
            continue;
        tried++;
        double share = excess(w, i, r->cls, &w->places[k].place);
        if (share < best)
            continue;
        best = share;
        place_text(w->p, w->places[k].place, r->place);
    }
}

static void explain(struct work *w, uint32_t i, struct profile_late *ret) {
    double shares[PROFILE_FIRST_WAIT];
    count_places(w, i, i + 1);
    for (unsigned c = 0; c < PROFILE_FIRST_WAIT; c++)
        shares[c] = excess(w, i, (enum profile_class)c, NULL);
    while (ret->n_reasons < PROFILE_REASONS_MAX) {
        int most = 0;
        for (int c = 1; c < PROFILE_FIRST_WAIT; c++)
            most = shares[c] > shares[most] ? c : most;
        if (shares[most] < REASON_MIN)
            return;
        struct profile_reason *r = &ret->reasons[ret->n_reasons++];
        *r = (struct profile_reason){.cls = (enum profile_class)most, .share = shares[most]};
        shares[most] = 0;
        find_place(w, i, r);
    }
}

/* ---- R8: limits, and the rows ---- */

/* *place: the frame at which its processes are most often, if they are too few. */
static enum profile_limit data_limit(const struct work *w, uint32_t *place) {
    uint64_t busy = 0, all = 0, most = 0;
    for (uint32_t r = 0; r < w->p->n_ranks; r++)
        for (uint32_t k = 0; k < w->p->ranks[r].n_rows; k++) {
            const struct profile_child *c = &w->p->ranks[r].children[k];
            bool works = c->stack >= 0 && (w->shown[c->stack].names & NAME_QUEUE) == 0;
            all += c->samples;
            busy += works ? c->samples : 0;
            if (works && c->samples > most) {
                most = c->samples;
                *place = w->shown[c->stack].place;
            }
        }
    return all == 0                                     ? PROFILE_LIMIT_DATA_HERE
           : (double)busy > CHILDREN_BUSY * (double)all ? PROFILE_LIMIT_DATA_WORKERS
                                                        : PROFILE_LIMIT_DATA;
}

static void add_limit(struct profile_findings *f, enum profile_limit what, double share) {
    if (f->n_limits < PROFILE_LIMITS_MAX) {
        f->limits[f->n_limits].what = what;
        f->limits[f->n_limits++].share = share;
    }
}

static void find_limits(struct work *w) {
    struct profile_findings *f = w->f;
    double delay = 0;
    for (uint32_t i = 0; i < w->n; i++)
        delay += w->p->ranks[w->ranks[i]].delay / w->n;
    if (f->shares[PROFILE_DATA] >= DATA_MIN) {
        uint32_t busy = 0, k = 0;
        count_places(w, 0, w->n);
        while (k < w->n_places && w->places[k].cls != PROFILE_DATA)
            k++;
        add_limit(f, data_limit(w, &busy), f->shares[PROFILE_DATA]);
        if (f->limits[0].what == PROFILE_LIMIT_DATA_WORKERS)
            place_text(w->p, busy, f->limits[0].place);
        else if (k < w->n_places)
            place_text(w->p, w->places[k].place, f->limits[0].place);
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
        count_places(w, i, i + 1);
        row->n_mostly = MIN2(w->n_places, (uint32_t)ARRAY_SIZE(row->mostly));
        for (uint32_t k = 0; k < row->n_mostly; k++) {
            row->mostly[k].cls = w->places[k].cls;
            row->mostly[k].share = (double)w->places[k].n / w->n_ticks;
            place_text(w->p, w->places[k].place, row->mostly[k].place);
        }
    }
}

/* ---- what came before the first step of an attempt ---- */

static bool trains(const struct work *w, uint32_t tick) {
    for (uint32_t r = 0; r < w->p->n_ranks; r++)
        if (row_of(w, r)[tick] == PROFILE_BACKWARD || row_of(w, r)[tick] == PROFILE_OPTIMIZER)
            return true;
    return false;
}

static void find_step(const struct work *w) {
    const struct profile *p = w->p;
    struct profile_findings *f = w->f;
    uint64_t ns[PROFILE_CLASS_COUNT] = {0};
    uint32_t k = 0;
    f->begin_ns = p->first_tick * p->period_ns;
    for (; k < p->n_ticks && !trains(w, k); k++)
        for (uint32_t r = 0; r < p->n_ranks; r++)
            if (profile_at(p, &p->ranks[r], k).stack >= 0)
                ns[row_of(w, r)[k]] += p->period_ns / p->n_ranks;
    if (k < p->n_ticks)
        f->first_step_wall_ns = (p->first_tick + k) * p->period_ns;
    for (uint32_t r = 0; r < p->n_ranks; r++)
        f->step = MAX2(f->step, p->ranks[r].step);
    f->before = (struct attempt_start){.import_ns = ns[PROFILE_IMPORT],
                                       .init_ns = ns[PROFILE_INIT],
                                       .load_ns = ns[PROFILE_CHECKPOINT]};
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
    f->span_ns = (w->ticks[w->n_ticks - 1] - w->ticks[0] + UINT64_C(1)) * p->period_ns;
    double span = (double)(f->span_ns - p->period_ns), period = (double)p->period_ns;
    double block = MIN2((double)NS_PER_S, MAX2(0.25 * NS_PER_S, MAX2(4 * period, span / 12)));
    w->per = (uint32_t)MAX2(1L, (long)(block / period + 0.5));
    w->few = MAX2(1u, w->n / 4);
    w->z = w->n > 128 ? 6 : w->n > 16 ? 5 : 4;
    sum_up(w);
    if (w->n > 1 && f->span_ns > NAMED_NS && f->n_ticks >= NAMED_TICKS)
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
                     .cells =
                         xcalloc((p->n_frames + (size_t)1) * PROFILE_FIRST_WAIT, sizeof *w.cells),
                     .waits = xcalloc(p->n_ranks + (size_t)1, sizeof *w.waits)};
    *ret = (struct profile_findings){.n_rows = p->n_ranks};
    ret->rows = xcalloc(p->n_ranks + (size_t)1, sizeof *ret->rows);
    ret->classes = xcalloc((size_t)p->n_ranks * p->n_ticks + 1, 1);
    classify_all(&w);
    compare(&w);
    fill_rows(&w);
    find_step(&w);
    free(w.shown);
    free(w.ranks);
    free(w.ticks);
    free(w.busy);
    free(w.late);
    free(w.waits);
    free(w.cells);
}

void profile_findings_fini(struct profile_findings *f) {
    free(f->rows);
    free(f->classes);
    f->rows = NULL;
    f->classes = NULL;
}
