/* Each threshold of profile/infer.h from both sides: patterns of 8 ranks and more that are exact, not random. */
#include "watchdog/profile/infer.h"

#include "rig/unit.h"

#define TICK_MS 50
#define BLOCK (1000 / TICK_MS) /* ticks of a block of 1 s, in 12 s and more */

enum { WORK, WAIT, LOGGED, OWN_WAIT, ITEM, N_STACKS };
static struct profile job;
static struct profile_findings found;
static int32_t ids[N_STACKS];

static int32_t stack(const char *function, const char *file, unsigned calls) {
    uint32_t frames[] = {
        (uint32_t)profile_add_frame(&job, function, file, 7, calls),
        (uint32_t)profile_add_frame(&job, "all_reduce", "/x/torch/distributed/distributed_c10d.py", 8, 0),
        (uint32_t)profile_add_frame(&job, "main", "/u/train.py", 9, 0)};
    bool wrapped = strcmp(function, "wrapper") == 0;
    frames[1] = wrapped ? frames[1] : frames[2];
    return profile_add_stack(&job, frames, wrapped ? 3 : 2);
}

static void begin(void) {
    memset(&job, 0, sizeof job);
    job.period_ns = TICK_MS * NS_PER_MS;
    ids[WORK] = stack("prepare", "/u/prepare.py", 0);
    ids[WAIT] = stack("wait", "/x/torch/distributed/distributed_c10d.py", 0);
    ids[LOGGED] = stack("wrapper", "/x/torch/distributed/c10d_logger.py", 0);
    ids[OWN_WAIT] = stack("sync", "/u/train.py", PROFILE_CALLS_WAIT);
    ids[ITEM] = stack("loss", "/u/train.py", PROFILE_CALLS_DEVICE);
}
static void finish(void) {
    profile_findings_fini(&found);
    profile_fini(&job);
}
TestSuite(infer_rules, .init = begin, .fini = finish);

static void put(uint32_t rank, uint32_t tick, struct profile_sample s) {
    cr_assert_eq(profile_add_sample(&job, profile_add_rank(&job, rank), tick, &s), 0);
}

static void works(uint32_t rank, uint32_t tick, bool does) {
    put(rank, tick,
        (struct profile_sample){
            .stack = ids[does ? WORK : WAIT], .sleeps = !does, .syscall = does ? PROFILE_RUNS : PROFILE_FUTEX});
}

static void infer(void) {
    profile_findings_fini(&found);
    profile_infer(&job, &found);
}

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
Test(infer_rules, more_ranks_need_more_certainty) {
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
Test(infer_rules, one_bad_moment_is_not_a_straggler) {
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

Test(infer_rules, less_than_four_percent_is_not_late) {
    rarely(29);
    cr_assert_eq(found.n_late, 0);
    rarely(22);
    cr_assert_eq(found.n_late, 1);
}

/* As the rank of a pipeline that drains last: alone at work as often as it waits for the others. */
Test(infer_rules, a_rank_that_waits_as_long_as_others_is_not_late) {
    for (uint32_t k = 0; k < 20 * BLOCK; k++)
        for (uint32_t r = 0; r < 4; r++)
            works(r, k, k % 5 == 0 ? r == 0 : k % 5 == 1 ? r != 0 : true);
    infer();
    cr_assert_eq(found.n_late, 0);
    cr_assert_eq(found.top_z, 0);
}

Test(infer_rules, up_to_a_quarter_of_the_ranks_can_be_late_together) {
    alone(8, 2, 20, 2);
    cr_assert(found.n_late == 2 && found.late[1].how == PROFILE_IS_LATE);
    cr_assert_float_eq(found.late[0].share, 0.25, 0.01);
    alone(8, 3, 20, 2);
    cr_assert(found.n_late == 1 && found.late[0].how == PROFILE_MOST_WORK);
}

Test(infer_rules, the_most_work_needs_a_larger_and_more_certain_gap) {
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

Test(infer_rules, three_seconds_and_not_less) {
    for (uint32_t n = 0; n <= 3 * BLOCK; n++) {
        for (uint32_t r = 0; r < 4; r++)
            works(r, n, r == 1 || n % 4 == 0);
        infer();
        cr_assert_eq(found.n_late, n < 3 * BLOCK ? 0 : 1, "tick %u", n);
    }
}

/* R2 and R3: wrappers are not the leaf, and a line of the user's own can wait, too. */
Test(infer_rules, what_waits) {
    static const struct {
        int stack;
        struct profile_sample s;
        enum profile_class cls;
    } cases[] = {
        {LOGGED, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_LATE},
        {OWN_WAIT, {.sleeps = true, .syscall = PROFILE_FUTEX}, PROFILE_LATE},
        {OWN_WAIT, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_OTHER_WORK},
        {OWN_WAIT, {.syscall = PROFILE_FUTEX}, PROFILE_OTHER_WORK},
        {ITEM, {0}, PROFILE_DEVICE},
        {ITEM, {.sleeps = true, .syscall = PROFILE_OTHER}, PROFILE_DEVICE},
        {ITEM, {.gc = true}, PROFILE_DEVICE},
        {WORK, {.gc = true}, PROFILE_GC},
    };
    for (uint32_t k = 0; k < ARRAY_SIZE(cases); k++) {
        struct profile_sample s = *WITH(cases[k].s, .stack = ids[cases[k].stack]);
        put(0, k, s);
        works(1, k, true);
    }
    infer();
    for (uint32_t k = 0; k < ARRAY_SIZE(cases); k++)
        cr_expect_eq(found.classes[k], cases[k].cls, "%u: %s", k, profile_class_keys[found.classes[k]]);
}

/* A sample that is missing is no sign of work: neither of one rank nor at one tick. */
Test(infer_rules, a_rank_whose_stack_cannot_be_read_is_not_late) {
    for (uint32_t k = 0; k < 20 * BLOCK; k++) {
        for (uint32_t r = 0; r < 3; r++)
            works(r, k, (k + r) % 3 != 0);
        put(3, k, (struct profile_sample){.stack = PROFILE_NOT_READ});
    }
    infer();
    cr_assert(found.n_late == 0 && found.n_ranks == 3 && found.n_ticks == 20 * BLOCK);
    cr_assert_eq(found.shares[PROFILE_START], 0);
}

Test(infer_rules, every_sample_has_a_class) {
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

Test(infer_rules, a_torn_stack_costs_no_tick) {
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

static uint64_t state;
static double chance(void) { /* 0 to 1 */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) / (double)(UINT64_C(1) << 53);
}

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

Test(infer_rules, no_stage_of_a_balanced_pipeline_is_named) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        state = seed * 7919;
        pipeline(STAGES, 400);
        cr_assert_eq(found.n_late, 0, "seed %u", (unsigned)seed);
    }
    cr_assert_float_eq(found.rows[0].works, 0.72, 0.06, "%f", found.rows[0].works); /* 8 of 11 */
}

Test(infer_rules, the_slow_stage_of_a_pipeline_is_named) {
    for (uint64_t seed = 1; seed <= 50; seed++) {
        state = seed * 7919;
        pipeline(2, 400);
        cr_assert(found.n_late >= 1 && found.late[0].rank == 2, "seed %u", (unsigned)seed);
    }
}
