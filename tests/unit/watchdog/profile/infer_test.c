/* What samples show: jobs that the test makes, step by step, in simulated time. */
#include "watchdog/profile/infer.h"

#include "base/prng.h"
#include "rig/unit.h"

#define RANKS_MAX 128

/* Stacks that real trainers have, innermost frame first. */
enum { DATA, FORWARD, BACKWARD, WAIT, OPTIMIZER, SAVE, EVAL, ITEM, RECV, IMPORT, BODY, OWN, N_STACKS };
static const struct {
    const char *frames[4][2];
    bool sleeps;
    enum profile_syscall syscall;
} stacks[N_STACKS] = {
    [DATA] = {{{"__getitem__", "/u/loader.py"},
               {"fetch", "/x/site-packages/torch/utils/data/_utils/fetch.py"},
               {"main", "/u/train.py"}}},
    [FORWARD] = {{{"forward", "/u/model.py"},
                  {"_call_impl", "/x/site-packages/torch/nn/modules/module.py"},
                  {"main", "/u/train.py"}}},
    [BACKWARD] = {{{"_engine_run_backward", "/x/site-packages/torch/autograd/graph.py"}, {"main", "/u/train.py"}}},
    /* the same, asleep: it waits for gradients of others */
    [WAIT] = {{{"_engine_run_backward", "/x/site-packages/torch/autograd/graph.py"}, {"main", "/u/train.py"}},
              true,
              PROFILE_FUTEX},
    [OPTIMIZER] = {{{"step", "/x/site-packages/torch/optim/adamw.py"}, {"main", "/u/train.py"}}},
    [SAVE] = {{{"save", "/x/site-packages/torch/serialization.py"},
               {"save_checkpoint", "/u/train.py"},
               {"main", "/u/train.py"}},
              true,
              PROFILE_OTHER},
    [EVAL] = {{{"forward", "/u/model.py"},
               {"_call_impl", "/x/site-packages/torch/nn/modules/module.py"},
               {"evaluate", "/u/train.py"}}},
    [ITEM] = {{{"main", "/u/train.py"}}},
    [RECV] = {{{"recv", "/x/site-packages/torch/distributed/distributed_c10d.py"},
               {"wrapper", "/x/site-packages/torch/distributed/c10d_logger.py"},
               {"main", "/u/train.py"}},
              true,
              PROFILE_OTHER},
    [IMPORT] = {{{"_find_spec", "<frozen importlib._bootstrap>"}, {"main", "/u/train.py"}}},
    /* the body of a module of the compiler, which is imported */
    [BODY] = {{{"<module>", "/x/site-packages/torch/fx/graph.py"},
               {"_find_spec", "<frozen importlib._bootstrap>"},
               {"main", "/u/train.py"}}},
    [OWN] = {{{"prepare", "/u/train.py"}, {"main", "/u/train.py"}}},
};

static struct profile job;
static struct profile_findings found;
static uint64_t seed;
static int32_t ids[N_STACKS];

static void begin(void) {
    memset(&job, 0, sizeof job);
    job.period_ns = 50 * NS_PER_MS;
    seed = 7;
    for (int i = 0; i < N_STACKS; i++) {
        uint32_t frames[4], n = 0;
        for (; n < 4 && stacks[i].frames[n][0] != NULL; n++)
            frames[n] = (uint32_t)profile_add_frame(&job, stacks[i].frames[n][0], stacks[i].frames[n][1],
                                                    10 * (uint32_t)i + n, i == ITEM ? PROFILE_CALLS_DEVICE : 0);
        ids[i] = profile_add_stack(&job, frames, n);
    }
}
static void finish(void) {
    profile_findings_fini(&found);
    profile_fini(&job);
}
TestSuite(infer, .init = begin, .fini = finish);

/* 0 to 1 */
static double chance(void) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 11) / (double)(UINT64_C(1) << 53);
}

static void add(uint32_t rank, uint32_t tick, int stack) {
    struct profile_sample s = {.stack = ids[stack], .sleeps = stacks[stack].sleeps, .syscall = stacks[stack].syscall};
    cr_assert_eq(profile_add_sample(&job, profile_add_rank(&job, rank), tick, &s), 0);
}

/* What a rank does in a step, in seconds; the rest of the step it waits, and all wait `network` at its end. */
struct step {
    double s[N_STACKS];
};
typedef void step_fn(uint32_t rank, uint32_t number, struct step *ret);

static int doing(const struct step *s, double into) {
    for (int i = 0; i < N_STACKS; i++) {
        if (into < s->s[i])
            return i;
        into -= s->s[i];
    }
    return WAIT;
}

static double sum(const struct step *s) {
    double all = 0;
    for (int i = 0; i < N_STACKS; i++)
        all += s->s[i];
    return all;
}

/* Steps with a barrier at their end, sampled at random moments of each period. */
static void run(uint32_t ranks, double seconds, double network, step_fn *make) {
    static struct step now[RANKS_MAX];
    double period = (double)job.period_ns / NS_PER_S, begin = 0, end = 0;
    uint32_t number = 0, ticks = (uint32_t)(seconds / period);
    for (uint32_t k = 0; k < ticks; k++) {
        double at = (k + chance()) * period;
        for (; at >= end; number++) {
            double longest = 0;
            begin = end;
            for (uint32_t r = 0; r < ranks; r++) {
                memset(&now[r], 0, sizeof now[r]);
                make(r, number, &now[r]);
                longest = MAX2(longest, sum(&now[r]));
            }
            end = begin + longest + network;
        }
        for (uint32_t r = 0; r < ranks; r++)
            add(r, k, doing(&now[r], at - begin));
    }
    profile_findings_fini(&found);
    profile_infer(&job, &found);
}

static double jitter(double s) { return s * (0.95 + 0.1 * chance()); }

static void balanced(uint32_t rank, uint32_t number, struct step *ret) {
    (void)rank, (void)number;
    ret->s[FORWARD] = jitter(0.03);
    ret->s[BACKWARD] = jitter(0.06);
    ret->s[OPTIMIZER] = 0.01;
}

static void check_late(uint32_t rank, enum profile_how how, double share, enum profile_class cls, const char *place) {
    cr_assert_eq(found.n_late, 1, "%u", found.n_late);
    const struct profile_late *l = &found.late[0];
    cr_assert_eq(l->rank, rank);
    cr_assert_eq(l->how, how);
    cr_assert_float_eq(l->share, share, 0.05, "%f", l->share);
    cr_assert_geq(l->n_reasons, 1);
    cr_assert_eq(l->reasons[0].cls, cls);
    cr_assert_str_eq(l->reasons[0].place, place);
}

static void share_is(enum profile_class c, double share) {
    cr_assert_float_eq(found.shares[c], share, 0.04, "%f", found.shares[c]);
}

Test(infer, no_rank_of_a_balanced_job_is_late) {
    for (uint64_t first = 1; first < 2000; first += 40) {
        seed = first;
        run(4, 10, 0.01, balanced);
        cr_assert_eq(found.n_late, 0);
    }
    cr_assert(found.n_ranks == 4 && found.n_ticks == 200 && found.n_rows == 4);
    share_is(PROFILE_FORWARD, 0.26);
    share_is(PROFILE_BACKWARD, 0.53);
    share_is(PROFILE_NETWORK, 0.08);
    cr_assert_float_eq(found.communication * found.load_balance, 1 - found.rows[0].waits, 0.05);
    double all = 0;
    for (int c = 0; c < PROFILE_CLASS_COUNT; c++)
        all += found.shares[c];
    cr_assert_float_eq(all, 1, 1e-9);
}

static void slow_backward(uint32_t rank, uint32_t number, struct step *ret) {
    balanced(rank, number, ret);
    ret->s[BACKWARD] += rank == 2 ? 0.03 : 0;
}

Test(infer, the_rank_that_computes_longer_is_late) {
    run(4, 10, 0.01, slow_backward);
    check_late(2, PROFILE_IS_LATE, 0.2, PROFILE_BACKWARD, "main (train.py:21)");
    cr_assert(found.late[0].works > found.late[0].others_work + 0.1);
    cr_assert(found.top == 2 && found.top_z > 4);
    share_is(PROFILE_LATE, 0.17);
}

Test(infer, no_rank_is_named_in_the_first_seconds) {
    run(4, 2.9, 0.01, slow_backward);
    cr_assert_eq(found.n_late, 0);
}

static void slow_data(uint32_t rank, uint32_t number, struct step *ret) {
    balanced(rank, number, ret);
    ret->s[DATA] = rank == 1 ? 0.15 : 0;
}

Test(infer, data_that_comes_late_is_named_with_its_line) {
    run(4, 6, 0, slow_data);
    check_late(1, PROFILE_IS_LATE, 0.6, PROFILE_DATA, "__getitem__ (loader.py:0)");
    cr_assert(found.n_limits == 1 && found.limits[0].what == PROFILE_LIMIT_DATA_HERE);
    cr_assert_str_eq(found.limits[0].place, "__getitem__ (loader.py:0)");
}

static void pauses(uint32_t rank, uint32_t number, struct step *ret) {
    balanced(rank, number, ret);
    ret->s[OWN] = rank == 3 && number % 20 == 19 ? 1 : 0;
}

Test(infer, rare_long_pauses_are_named_as_such) {
    run(4, 20, 0.01, pauses);
    check_late(3, PROFILE_PAUSES, 0.32, PROFILE_OTHER_WORK, "prepare (train.py:110)");
    cr_assert(found.late[0].n_pauses >= 5);
    cr_assert_float_eq(found.late[0].pause_s, 1, 0.15);
}

static void rank0_saves(uint32_t rank, uint32_t number, struct step *ret) {
    balanced(rank, number, ret);
    ret->s[SAVE] = rank == 0 && number % 10 == 9 ? 0.6 : 0;
    ret->s[EVAL] = rank == 0 && number % 10 == 9 ? 0.3 : 0;
}

Test(infer, a_rank_that_saves_and_evaluates_alone) {
    run(4, 16, 0.01, rank0_saves);
    check_late(0, PROFILE_PAUSES, 0.45, PROFILE_CHECKPOINT, "save_checkpoint (train.py:51)");
    cr_assert_eq(found.late[0].reasons[1].cls, PROFILE_EVAL);
}

/* A stage works while the others wait, one after the other; stage 2 twice as long. */
static void pipeline(uint32_t slow) {
    for (uint32_t k = 0; k < 400; k++)
        for (uint32_t r = 0; r < 4; r++)
            add(r, k, chance() < (r == slow ? 0.84 : 0.46) ? FORWARD : RECV);
    profile_findings_fini(&found);
    profile_infer(&job, &found);
}

Test(infer, the_stage_with_the_most_work) {
    pipeline(2);
    cr_assert_eq(found.n_late, 1);
    cr_assert_eq(found.late[0].rank, 2);
    cr_assert_eq(found.late[0].reasons[0].cls, PROFILE_FORWARD);
}

Test(infer, no_stage_of_a_balanced_pipeline) {
    for (uint64_t first = 1; first < 2000; first += 40) {
        seed = first;
        pipeline(99);
        cr_assert_eq(found.n_late, 0, "seed %lu", (unsigned long)first);
    }
}

static void waits_for_gpu(uint32_t rank, uint32_t number, struct step *ret) {
    ret->s[FORWARD] = 0.01;
    ret->s[ITEM] = rank == 2 ? 0.12 : 0.09; /* a slow device looks like this, too */
}

Test(infer, no_rank_is_blamed_for_its_device) {
    run(4, 20, 0, waits_for_gpu);
    cr_assert_eq(found.n_late, 0);
    cr_assert_gt(found.shares[PROFILE_DEVICE], 0.7);
    cr_assert_eq(found.limits[found.n_limits - 1].what, PROFILE_LIMIT_DEVICE);
}

static void network_bound(uint32_t rank, uint32_t number, struct step *ret) {
    balanced(rank, number, ret);
    ret->s[BACKWARD] = 0.02;
}

Test(infer, limits_of_the_network_and_of_the_cpus) {
    run(4, 6, 0.1, network_bound);
    cr_assert(found.n_late == 0 && found.n_limits == 1 && found.limits[0].what == PROFILE_LIMIT_NETWORK);
    for (uint32_t r = 0; r < 4; r++) {
        job.ranks[r].delay = 0.39;
    }
    run(4, 6, 0.1, network_bound);
    cr_assert(found.n_limits == 2 && found.limits[0].what == PROFILE_LIMIT_CPU);
    cr_assert_float_eq(found.limits[0].share, 0.39, 1e-6);
}

Test(infer, loader_processes_that_are_always_busy) {
    uint32_t frames[] = {(uint32_t)profile_add_frame(&job, "decode", "/u/loader.py", 5, 0)};
    uint32_t idle[] = {(uint32_t)profile_add_frame(&job, "get", "/usr/lib/python3.11/multiprocessing/queues.py", 6, 0)};
    run(4, 6, 0, slow_data);
    profile_add_child(&job.ranks[1], profile_add_stack(&job, frames, 1), 95);
    profile_add_child(&job.ranks[1], profile_add_stack(&job, idle, 1), 5);
    run(4, 6, 0, slow_data);
    cr_assert_eq(found.limits[0].what, PROFILE_LIMIT_DATA_WORKERS);
    cr_assert_str_eq(found.limits[0].place, "decode (loader.py:5)");
    profile_add_child(&job.ranks[1], profile_add_stack(&job, idle, 1), 50);
    run(4, 6, 0, slow_data);
    cr_assert_eq(found.limits[0].what, PROFILE_LIMIT_DATA);
}

/* R3: what the state of a thread adds to its stack. */
Test(infer, a_thread_that_sleeps_may_still_work) {
    static const struct {
        int stack;
        struct profile_sample s;
        enum profile_class cls;
    } cases[] = {
        {BACKWARD, {.sleeps = true, .syscall = PROFILE_FUTEX}, PROFILE_LATE},
        {BACKWARD, {.sleeps = true, .syscall = PROFILE_FUTEX, .helped = true}, PROFILE_BACKWARD},
        {BACKWARD, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_BACKWARD},
        {BACKWARD, {.sleeps = false, .syscall = PROFILE_FUTEX}, PROFILE_BACKWARD},
        {RECV, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_LATE},
        {RECV, {.sleeps = true, .syscall = PROFILE_SLEEP}, PROFILE_COMM},
        {RECV, {.sleeps = false}, PROFILE_COMM},
        {DATA, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_DATA},
        {DATA, {.gc = true}, PROFILE_GC},
        {IMPORT, {0}, PROFILE_IMPORT},
        {IMPORT, {.gc = true}, PROFILE_IMPORT},
        {BODY, {0}, PROFILE_IMPORT},
        {EVAL, {0}, PROFILE_EVAL},
    };
    for (uint32_t k = 0; k < ARRAY_SIZE(cases); k++) {
        struct profile_sample s = *WITH(cases[k].s, .stack = ids[cases[k].stack]);
        add(1, k, FORWARD);
        cr_assert_eq(profile_add_sample(&job, profile_add_rank(&job, 0), k, &s), 0);
    }
    profile_infer(&job, &found);
    for (uint32_t k = 0; k < ARRAY_SIZE(cases); k++)
        cr_assert_eq(found.classes[k], cases[k].cls, "%u: %s", k, profile_class_keys[found.classes[k]]);
}

Test(infer, a_rank_without_samples_has_a_row_and_the_others_are_compared) {
    (void)profile_add_rank(&job, 3);
    struct profile_rank *gone = profile_add_rank(&job, 9);
    (void)snprintf(gone->gap, sizeof gone->gap, "Python 3.8 is not known");
    run(3, 10, 0.01, slow_backward);
    cr_assert(found.n_ranks == 3 && found.n_rows == 5);
    cr_assert_str_eq(found.rows[4].gap, "Python 3.8 is not known");
    cr_assert_str_eq(found.rows[0].gap, "");
    cr_assert_str_eq(found.rows[3].gap, "too few samples");
    cr_assert(found.rows[4].works + found.rows[4].waits < 0.01);
    cr_assert(found.n_late == 1 && found.late[0].rank == 2);
}

/* One hour of windows of ten seconds: no rank by chance. */
Test(infer, no_rank_of_128_is_late_in_an_hour) {
    for (int window = 0; window < 360; window++) {
        run(128, 10, 0.01, balanced);
        cr_assert_eq(found.n_late, 0, "window %d", window);
    }
}

/* 1,000 ranks, 20 times a second for ten seconds: what they take in memory, and no rank by chance. */
Test(infer, a_thousand_ranks) {
    struct profile all = {0};
    size_t bytes = 0;
    for (uint32_t node = 0; node < 125; node++) {
        run(8, 10, 0.01, balanced);
        for (uint32_t r = 0; r < 8; r++)
            job.ranks[r].rank = node * 8 + r;
        _cleanup_(strbuf_fini) struct strbuf json = {0};
        struct err err = {0};
        profile_write(&job, (size_t)1 << 20, &json);
        bytes += json.len;
        cr_assert_eq(profile_read(strbuf_text(&json), json.len, &all, &err), 0, "%s", err.text);
        for (uint32_t r = 0; r < 8; r++)
            job.ranks[r].rank = r;
    }
    cr_assert_eq(all.n_ranks, 1000);
    cr_assert_leq(all.n_ranks * all.ranks[0].room * sizeof(struct profile_sample), (size_t)8 << 20);
    cr_assert_leq(bytes, (size_t)8 << 20, "%zu bytes are sent", bytes);
    profile_findings_fini(&found);
    profile_infer(&all, &found);
    cr_assert_eq(found.n_late, 0);
    profile_findings_fini(&found);
    profile_fini(&all);
}

Test(infer, nothing_comes_of_nothing) {
    profile_infer(&job, &found);
    cr_assert(found.n_ticks == 0 && found.n_late == 0 && found.shares[0] == 0);
    profile_findings_fini(&found);
    (void)profile_add_rank(&job, 0);
    profile_infer(&job, &found);
    cr_assert(found.n_rows == 1 && found.n_ticks == 0);
}
