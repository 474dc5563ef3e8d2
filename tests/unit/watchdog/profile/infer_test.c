/* What samples show: jobs that the test makes, step by step, in simulated time; then each threshold of profile/infer.h
 * from both sides, by patterns that are exact, not random. */
#include "watchdog/profile/infer.h"

#include "base/prng.h"
#include "rig/unit.h"

#define RANKS_MAX 128

/* Stacks that real trainers have, innermost frame first. */
enum { DATA, FORWARD, BACKWARD, WAIT, OPTIMIZER, SAVE, EVAL, ITEM, RECV, IMPORT, BODY, OWN, LOGGED, SYNC, N_STACKS };
static const struct {
    const char *frames[4][2];
    bool sleeps;
    enum profile_syscall syscall;
    unsigned calls;
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
    [ITEM] = {{{"main", "/u/train.py"}}, .calls = PROFILE_CALLS_DEVICE},
    [SYNC] = {{{"main", "/u/train.py"}}, .calls = PROFILE_CALLS_WAIT},
    /* a wrapper, whose own calls are not the leaf */
    [LOGGED] = {{{"wrapper", "/x/site-packages/torch/distributed/c10d_logger.py"},
                 {"all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py"},
                 {"main", "/u/train.py"}}},
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
                                                    10 * (uint32_t)i + n, stacks[i].calls);
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

static void put(uint32_t rank, uint32_t tick, struct profile_sample s) {
    cr_assert_eq(profile_add_sample(&job, profile_add_rank(&job, rank), tick, &s), 0);
}

static void add(uint32_t rank, uint32_t tick, int stack) {
    put(rank, tick,
        (struct profile_sample){.stack = ids[stack], .sleeps = stacks[stack].sleeps, .syscall = stacks[stack].syscall});
}

static void infer(void) {
    profile_findings_fini(&found);
    profile_infer(&job, &found);
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
    infer();
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
    for (uint32_t r = 0; r < 4; r++)
        job.ranks[r].delay = 0.39;
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

/* R2 and R3: what the state of a thread adds to its stack. */
Test(infer, classes) {
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
        {LOGGED, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_LATE},
        {SYNC, {.sleeps = true, .syscall = PROFILE_FUTEX}, PROFILE_LATE},
        {SYNC, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_OTHER_WORK},
        {SYNC, {.syscall = PROFILE_FUTEX}, PROFILE_OTHER_WORK},
        {ITEM, {0}, PROFILE_DEVICE},
        {ITEM, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_DEVICE},
        {ITEM, {.gc = true}, PROFILE_DEVICE},
        {OWN, {.gc = true}, PROFILE_GC},
        {DATA, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_DATA},
        {DATA, {.gc = true}, PROFILE_GC},
        {IMPORT, {0}, PROFILE_IMPORT},
        {IMPORT, {.gc = true}, PROFILE_IMPORT},
        {BODY, {0}, PROFILE_IMPORT},
        {EVAL, {0}, PROFILE_EVAL},
    };
    for (uint32_t k = 0; k < ARRAY_SIZE(cases); k++) {
        put(0, k, *WITH(cases[k].s, .stack = ids[cases[k].stack]));
        add(1, k, FORWARD);
    }
    infer();
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

/* ---- each threshold from both sides */

#define TICK_MS 50
#define BLOCK (1000 / TICK_MS) /* ticks of a block of 1 s, in 12 s and more */

static void works(uint32_t rank, uint32_t tick, bool does) { add(rank, tick, does ? OWN : RECV); }

/* 20 s in which all work; but in the first `blocks` seconds, at each `nth` tick only the first `busy` ranks do. */
static void alone(uint32_t ranks, uint32_t busy, uint32_t blocks, uint32_t nth) {
    finish();
    begin();
    for (uint32_t k = 0; k < 20 * BLOCK; k++)
        for (uint32_t r = 0; r < ranks; r++)
            works(r, k, r < busy || k >= blocks * BLOCK || k % nth != 0);
    infer();
}

/* 20 s in which each of 8 ranks waits half of the time, four at once; but rank 0 works at each `nth` tick, too, of the
 * first `blocks` seconds. */
static void most(uint32_t blocks, uint32_t nth) {
    finish();
    begin();
    for (uint32_t k = 0; k < 20 * BLOCK; k++)
        for (uint32_t r = 0; r < 8; r++)
            works(r, k, (k + r) % 2 == 0 || (r == 0 && k < blocks * BLOCK && k / 2 % nth == 0));
    infer();
}

/* z is sqrt(19 p / (1 - p)) if the others wait in a share p of 20 blocks, equally long in each. */
Test(infer, more_ranks_need_more_certainty) {
    static const struct {
        uint32_t ranks, blocks;
        bool late;
    } cases[] = {{16, 9, false},  {16, 10, true},   {17, 10, false}, {17, 12, true},
                 {128, 12, true}, {129, 12, false}, {129, 14, true}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        alone(cases[i].ranks, 1, cases[i].blocks, 2);
        cr_expect_eq(found.n_late, cases[i].late, "%u ranks, %u blocks", cases[i].ranks, cases[i].blocks);
    }
    cr_assert(found.late[0].rank == 0 && found.late[0].how == PROFILE_IS_LATE);
    cr_assert(found.late[0].n_reasons == 1 && found.late[0].reasons[0].cls == PROFILE_OTHER_WORK);
}

/* All ticks of a few seconds are one observation each second, not one each tick. */
Test(infer, one_bad_moment_is_not_a_straggler) {
    alone(4, 1, 4, 2);
    cr_assert_eq(found.n_late, 0);
    cr_assert(found.top == 0 && found.top_z > 1.5 && found.top_z < 3, "%f", found.top_z);
}

/* Rank 0 is alone at work at each `nth` tick; at each 20th it works beside two others, which is not lateness. */
static void rarely(uint32_t nth) {
    finish();
    begin();
    for (uint32_t k = 0; k < 20 * BLOCK; k++)
        for (uint32_t r = 0; r < 8; r++)
            works(r, k, k % nth == 1 ? r == 0 : k % 20 == 0 ? r < 3 : true);
    infer();
}

Test(infer, less_than_four_percent_is_not_late) {
    rarely(29);
    cr_assert_eq(found.n_late, 0);
    rarely(22);
    cr_assert_eq(found.n_late, 1);
}

/* As the rank of a pipeline that drains last: alone at work as often as it waits for the others. */
Test(infer, a_rank_that_waits_as_long_as_others_is_not_late) {
    for (uint32_t k = 0; k < 20 * BLOCK; k++)
        for (uint32_t r = 0; r < 4; r++)
            works(r, k, k % 5 == 0 ? r == 0 : k % 5 == 1 ? r != 0 : true);
    infer();
    cr_assert_eq(found.n_late, 0);
    cr_assert_eq(found.top_z, 0);
}

Test(infer, up_to_a_quarter_of_the_ranks_can_be_late_together) {
    alone(8, 2, 20, 2);
    cr_assert(found.n_late == 2 && found.late[1].how == PROFILE_IS_LATE);
    cr_assert_float_eq(found.late[0].share, 0.25, 0.01);
    alone(8, 3, 20, 2);
    cr_assert(found.n_late == 1 && found.late[0].how == PROFILE_MOST_WORK);
}

Test(infer, the_most_work_needs_a_larger_and_more_certain_gap) {
    most(20, 5);
    cr_assert(found.n_late == 1 && found.late[0].rank == 0 && found.late[0].how == PROFILE_MOST_WORK, "%u",
              found.n_late);
    cr_assert_float_eq(found.late[0].share, 0.1, 1e-9);
    most(20, 6);
    cr_assert_eq(found.n_late, 0);
    most(12, 1);
    cr_assert_eq(found.n_late, 1);
    most(10, 1); /* z 4.4: as much as a balanced pipeline once had */
    cr_assert_eq(found.n_late, 0);
}

Test(infer, three_seconds_and_not_less) {
    for (uint32_t n = 0; n <= 3 * BLOCK; n++) {
        for (uint32_t r = 0; r < 4; r++)
            works(r, n, r == 1 || n % 4 == 0);
        infer();
        cr_assert_eq(found.n_late, n < 3 * BLOCK ? 0 : 1, "tick %u", n);
    }
}

/* A sample that is missing is no sign of work: neither of one rank nor at one tick. */
Test(infer, a_rank_whose_stack_cannot_be_read_is_not_late) {
    for (uint32_t k = 0; k < 20 * BLOCK; k++) {
        for (uint32_t r = 0; r < 3; r++)
            works(r, k, (k + r) % 3 != 0);
        put(3, k, (struct profile_sample){.stack = PROFILE_NOT_READ});
    }
    infer();
    cr_assert(found.n_late == 0 && found.n_ranks == 3 && found.n_ticks == 20 * BLOCK);
    cr_assert_eq(found.shares[PROFILE_START], 0);
}

Test(infer, every_sample_has_a_class) {
    for (uint32_t k = 0; k < 100; k++)
        for (uint32_t r = 0; r < 4; r++)
            works(r, k, true);
    for (uint32_t k = 0; k < 40; k++)
        put(3, k, (struct profile_sample){.stack = k % 2 == 0 ? PROFILE_NOT_READ : PROFILE_ABSENT});
    infer();
    cr_assert_eq(found.n_ticks, 60);
    for (uint32_t i = 0; i < 400; i++)
        cr_assert_lt(found.classes[i], PROFILE_CLASS_COUNT, "rank %u, tick %u", i / 100, i % 100);
}

Test(infer, a_torn_stack_costs_no_tick) {
    for (uint32_t k = 0; k < 100; k++)
        for (uint32_t r = 0; r < 4; r++)
            works(r, k, true);
    for (uint32_t k = 5; k < 100; k += 5)
        put(k % 4, k, (struct profile_sample){.stack = PROFILE_NOT_READ});
    infer();
    cr_assert(found.n_ticks == 100 && found.n_ranks == 4);
}

#define STAGES 4u
#define PARTS 8u

/* The stage's n-th call is forward or backward of a microbatch. */
static bool is_backward(uint32_t stage, uint32_t n, uint32_t *part) {
    uint32_t ahead = STAGES - 1 - stage, k = n < ahead ? 0 : n - ahead;
    uint32_t pairs = PARTS - ahead; /* one forward, one backward */
    bool back = n >= ahead && (k >= 2 * pairs || k % 2 == 1);
    if (n < ahead)
        *part = n;
    else if (k < 2 * pairs)
        *part = back ? k / 2 : ahead + k / 2;
    else
        *part = pairs + k - 2 * pairs;
    return back;
}

/* One step from `start` on: when each call begins and ends. Returns when the last one ends. */
static double step(double start, uint32_t slow, double from[STAGES][2 * PARTS], double to[STAGES][2 * PARTS]) {
    double done[2][STAGES][PARTS];
    uint32_t next[STAGES] = {0}, part;
    double last = start;
    for (uint32_t i = 0; i < 2 * STAGES * PARTS; i++)
        ((double *)done)[i] = -1;
    for (uint32_t left = 2 * STAGES * PARTS, s = 0; left > 0; s = (s + 1) % STAGES) {
        if (next[s] == 2 * PARTS)
            continue;
        bool back = is_backward(s, next[s], &part), first = back ? s == STAGES - 1 : s == 0;
        double needs = back ? (first ? done[0][s][part] : done[1][s + 1][part]) : first ? start : done[0][s - 1][part];
        if (needs < 0)
            continue;
        double length = (back ? 0.04 : 0.02) * (s == slow ? 2 : 1) * (0.9 + 0.2 * chance());
        from[s][next[s]] = MAX2(needs, next[s] > 0 ? to[s][next[s] - 1] : start);
        done[back][s][part] = to[s][next[s]] = from[s][next[s]] + length;
        last = MAX2(last, to[s][next[s]]);
        next[s]++;
        left--;
    }
    return last;
}

static void pipeline(uint32_t slow, uint32_t ticks) {
    static double from[STAGES][2 * PARTS], to[STAGES][2 * PARTS];
    double end = step(0, slow, from, to);
    for (uint32_t k = 0; k < ticks; k++) {
        double at = (k + chance()) * TICK_MS / 1000;
        while (at >= end)
            end = step(end, slow, from, to);
        for (uint32_t s = 0; s < STAGES; s++) {
            bool busy = false;
            for (uint32_t n = 0; n < 2 * PARTS; n++)
                busy |= at >= from[s][n] && at < to[s][n];
            works(s, k, busy);
        }
    }
    infer();
}

Test(infer, no_stage_of_a_balanced_pipeline_is_named) {
    for (uint64_t first = 1; first <= 50; first++) {
        seed = first * 7919;
        pipeline(STAGES, 400);
        cr_assert_eq(found.n_late, 0, "seed %u", (unsigned)first);
    }
    cr_assert_float_eq(found.rows[0].works, 0.72, 0.06, "%f", found.rows[0].works); /* 8 of 11 */
}

Test(infer, the_slow_stage_of_a_pipeline_is_named) {
    for (uint64_t first = 1; first <= 50; first++) {
        seed = first * 7919;
        pipeline(2, 400);
        cr_assert(found.n_late >= 1 && found.late[0].rank == 2, "seed %u", (unsigned)first);
    }
}
