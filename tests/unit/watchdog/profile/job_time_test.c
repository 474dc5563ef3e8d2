/* The record of a job's time, from windows that the test makes. */
#include "watchdog/profile/job_time.h"

#include "rig/unit.h"

#define S(n) ((uint64_t)(n)*NS_PER_S)

static struct job_time t;
static uint64_t now;

static void begin(void) {
    memset(&t, 0, sizeof t);
    now = S(1000);
}

static void start(uint32_t n_ranks) { job_time_started(&t, now, now + S(5000), n_ranks); }

/* 60 s that are backward but for the shares that are given. */
static struct profile_findings window(double data, double late) {
    struct profile_findings w = {.span_ns = S(60)};
    w.shares[PROFILE_DATA] = data;
    w.shares[PROFILE_LATE] = late;
    w.shares[PROFILE_BACKWARD] = 1 - data - late;
    return w;
}

static void late_rank(struct profile_findings *w, uint32_t rank, enum profile_how how, double share) {
    w->late[w->n_late] = (struct profile_late){.rank = rank, .how = how, .share = share, .n_reasons = 1};
    w->late[w->n_late].reasons[0].cls = PROFILE_DATA;
    (void)snprintf(w->late[w->n_late].reasons[0].place, PROFILE_PLACE_MAX, "load (train.py:41)");
    w->n_late++;
}

static void add(const struct profile_findings *w) {
    (void)job_time_add(&t, w);
    now += S(60);
}

static void check(const char *want) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    job_time_text(&t, now, &text);
    cr_assert_str_eq(strbuf_text(&text), want, "%s", strbuf_text(&text));
}

static void check_late(const char *want) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    job_time_late_text(&t, &text);
    cr_assert_str_eq(strbuf_text(&text), want, "%s", strbuf_text(&text));
}

TestSuite(job_time, .init = begin);

Test(job_time, nothing_is_known_before_the_first_window) {
    check("");
    start(4);
    now += S(60);
    check("");
    check_late("");
}

Test(job_time, shares_of_the_wall_time_and_the_rank_that_the_others_wait_for) {
    start(4);
    struct profile_findings w = window(0.05, 0.1);
    late_rank(&w, 12, PROFILE_IS_LATE, 0.09);
    add(&w);
    add(&w);
    check("training 85 % of 2 min 00 s; 9 % waiting for rank 12 (data loading, load (train.py:41)); 5 % data "
          "loading; 1 % waits for a late rank");
    check_late("rank 12, 9 %, data loading, load (train.py:41)");
    w = window(0, 0);
    add(&w);
    check_late("");
}

Test(job_time, three_classes_besides_training_are_shown) {
    start(4);
    struct profile_findings w = window(0.3, 0);
    w.shares[PROFILE_NETWORK] = 0.2;
    w.shares[PROFILE_CHECKPOINT] = 0.15;
    w.shares[PROFILE_LATE] = 0.1;
    add(&w);
    check("training 70 % of 60 s; 30 % data loading; 20 % network (all ranks wait); 15 % checkpoint");
}

Test(job_time, shares_do_not_exceed_100_percent_though_the_late_rank_itself_does_not_wait) {
    start(4);
    struct profile_findings w = window(0.15, 0.45);
    late_rank(&w, 1, PROFILE_IS_LATE, 0.6);
    add(&w);
    check("training 40 % of 60 s; 45 % waiting for rank 1 (data loading, load (train.py:41)); 15 % data loading");
    check_late("rank 1, 60 %, data loading, load (train.py:41)");
}

Test(job_time, restarts_take_time_in_which_nothing_trains) {
    start(4);
    struct profile_findings w = window(0, 0);
    add(&w);
    job_time_stopped(&t, now);
    now += S(60);
    start(4);
    add(&w);
    check("training 67 % of 3 min 00 s");
}

Test(job_time, the_largest_stage_of_a_pipeline_is_not_late) {
    start(4);
    struct profile_findings w = window(0, 0);
    late_rank(&w, 2, PROFILE_MOST_WORK, 0.3);
    add(&w);
    check("training 100 % of 60 s");
    check_late("");
}

Test(job_time, weak_signs_of_one_rank_add_up) {
    start(4);
    struct profile_findings w = *WITH(window(0, 0.1), .top = 3, .top_z = 2.5, .top_share = 0.08);
    for (int i = 0; i < 3; i++) {
        add(&w);
        check_late("");
    }
    add(&w);
    check_late("rank 3, 8 %");
    w.top = 1;
    add(&w);
    check_late("");
}

Test(job_time, weak_signs_of_different_ranks_do_not) {
    start(4);
    for (uint32_t i = 0; i < 40; i++) {
        add(WITH(window(0, 0.1), .top = i % 3, .top_z = 3.9, .top_share = 0.08));
        check_late("");
    }
}

Test(job_time, only_so_many_late_ranks_are_kept) {
    start(1000);
    for (uint32_t i = 0; i < 20; i++) {
        struct profile_findings w = window(0, 0.9);
        late_rank(&w, i, PROFILE_IS_LATE, i == 5 ? 0.9 : 0.05);
        add(&w);
    }
    cr_assert_eq(t.n_late, JOB_TIME_LATE_MAX);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    job_time_text(&t, now, &text);
    assert_has(strbuf_text(&text), "waiting for rank 5 ");
}

Test(job_time, the_first_step_of_an_attempt_is_reported_once) {
    start(4);
    struct profile_findings w = *WITH(window(0, 0), .before.import_ns = S(8));
    cr_assert_not(job_time_add(&t, &w));
    w.before.load_ns = S(2);
    w.first_step_wall_ns = now + S(5000) + S(15);
    cr_assert(job_time_add(&t, &w));
    cr_assert_eq(t.start.import_ns, S(16));
    cr_assert_eq(t.start.load_ns, S(2));
    cr_assert_eq(t.start.first_step_ns, S(15));
    cr_assert_not(job_time_add(&t, &w));
    start(4);
    cr_assert_eq(t.start.first_step_ns, 0);
    w.first_step_wall_ns = now; /* a clock that was set back */
    cr_assert(job_time_add(&t, &w));
    cr_assert_eq(t.start.first_step_ns, 1);
}

static void run_steps(uint32_t n_ranks, double rate) {
    start(n_ranks);
    for (int i = 0; i < 3; i++) {
        struct profile_findings w = window(0, 0);
        w.shares[PROFILE_NETWORK] = 0.3;
        w.shares[PROFILE_BACKWARD] = 0.7;
        w.step = 100 + (uint64_t)(rate * i * 60);
        w.begin_ns = now;
        add(&w);
    }
}

Test(job_time, steps_are_compared_with_the_smallest_group) {
    run_steps(4, 2);
    check("training 70 % of 3 min 00 s; 30 % network (all ranks wait); 2 steps/s");
    run_steps(2, 2.5);
    run_steps(4, 1.5);
    check("training 70 % of 9 min 00 s; 30 % network (all ranks wait); 1.5 steps/s, 60 % of the rate with 2 ranks "
          "(mostly network (all ranks wait))");
    run_steps(4, 2.4);
    check("training 70 % of 12 min 00 s; 30 % network (all ranks wait); 2.4 steps/s, 96 % of the rate with 2 ranks");
}
