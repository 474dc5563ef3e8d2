/* Real programs in Python that wait, and the ticks. A profile is repeated until it has what is expected: on a busy
 * machine one can end before its first tick. */
#include "watchdog/profile/sampler_io.h"

#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>

#include "io/clock.h"
#include "io/process/proc.h"
#include "io/process/reaper.h"
#include "rig/fds.h"
#include "watchdog/profile/samples.h"

#define RANK 5

static struct loop *loop;
static struct child_reaper *reaper;
static struct profile got;
static unsigned calls;
static size_t length;
static pid_t worker;
static int worker_in = -1;

static void begin(void) {
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
}

static void finish(void) {
    if (worker > 0)
        (void)kill(-worker, SIGKILL);
    if (worker_in >= 0)
        (void)close(worker_in);
    profile_fini(&got);
    child_reaper_free(reaper);
    loop_free(loop);
}
TestSuite(sampler, .init = begin, .fini = finish, .timeout = 120);

/* It leads a group, and ends with us. */
static void start(const char *const argv[]) {
    int in[2], out[2];
    char byte;
    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    worker = fork();
    cr_assert_geq(worker, 0);
    if (worker == 0) {
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)close(in[1]);
        (void)close(out[0]);
        (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    worker_in = in[1];
    cr_assert_eq(read(out[0], &byte, 1), 1, "%s did not begin", argv[0]);
    (void)close(out[0]);
}

static const char *script(void) {
    return rig_text("%s/unit/watchdog/profile/sampler_worker.py", getenv("MUSTER_TEST_SOURCE_DIR"));
}

static void start_python(const char *mode) {
    const char *argv[] = {"/usr/bin/python3", script(), mode, NULL};
    start(argv);
}

static void on_samples(void *arg, const struct helper_answer *answer) {
    struct err err = {0};
    size_t len;
    const char *json = helper_answer_line(answer, &len);
    calls++;
    length = len;
    if (len > 0)
        cr_assert_eq(profile_read(json, len, &got, &err), 0, "%s", err.text);
    loop_quit(loop);
}

static struct helper_call *sample(uint64_t length_ns) {
    struct profile_worker w = {.rank = RANK, .pid = worker, .step = 7};
    struct profile_ask ask = {.workers = &w, .n = 1, .period_ns = 10 * NS_PER_MS, .length_ns = length_ns, .seed = 1};
    struct helper_call *s = NULL;
    profile_fini(&got);
    calls = 0;
    cr_assert_eq(profile_sampler_new(loop, &ask, on_samples, NULL, &s), 0);
    return s;
}

static void wait_for_samples(void) {
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(calls, 1);
    cr_assert(length > 0 && got.n_ranks == 1 && got.ranks[0].rank == RANK);
}

static const char *leaf(int32_t stack) { return stack < 0 ? "" : got.frames[got.stacks[stack].frame].function; }

/* The last sample of a profile that has one whose innermost function is this one; "": of any. */
static struct profile_sample last_in(const char *function) {
    for (;;) {
        (void)sample(300 * NS_PER_MS);
        wait_for_samples();
        for (uint32_t t = got.n_ticks; t-- > 0;) {
            struct profile_sample s = profile_at(&got, &got.ranks[0], t);
            if (s.stack != PROFILE_ABSENT && strcmp(leaf(s.stack), function) == 0)
                return s;
        }
    }
}

Test(sampler, ticks_are_at_random_moments_of_their_periods_and_the_same_everywhere) {
    const uint64_t period = 50 * NS_PER_MS, first = UINT64_C(35000000000);
    uint64_t sum = 0, same = 0, n = 10000;
    for (uint64_t k = first; k < first + n; k++) {
        uint64_t at = profile_tick_ns(7, period, k) - k * period;
        cr_assert_lt(at, period);
        cr_expect_eq(profile_tick_ns(7, period, k), k * period + at);
        same += profile_tick_ns(8, period, k) == k * period + at;
        sum += at;
    }
    cr_expect(sum / n > period * 48 / 100 && sum / n < period * 52 / 100, "%lu", (unsigned long)(sum / n));
    cr_expect_lt(same, 10);
    cr_expect_lt(profile_tick_ns(7, 10 * NS_PER_S, 1), 20 * NS_PER_S);
}

Test(sampler, the_main_threads_stack_and_state_are_seen) {
    start_python("block");
    struct profile_sample s = last_in("block");
    cr_expect(s.sleeps && !s.gc && !s.helped && s.syscall == PROFILE_OTHER);
    const struct profile_stack *stack = &got.stacks[s.stack];
    cr_assert_eq(stack->depth, 2);
    cr_expect_str_eq(leaf(stack->outer), "<module>");
    expect_has(got.frames[stack->frame].file, "sampler_worker.py");
    cr_expect_eq(got.frames[stack->frame].calls, 0);
    cr_expect_str_eq(got.ranks[0].gap, "");
    cr_expect_eq(got.ranks[0].n_children, 0);
    cr_expect_eq(got.ranks[0].step, 7);
}

Test(sampler, what_the_source_line_calls_is_seen) {
    start_python("futex");
    struct profile_sample s = last_in("wait"); /* threading.py */
    cr_expect_eq(s.syscall, PROFILE_FUTEX);
    while (got.stacks[s.stack].depth > 2)
        s.stack = got.stacks[s.stack].outer;
    const struct profile_frame *own = &got.frames[got.stacks[s.stack].frame];
    cr_expect_str_eq(own->function, "futex");
    cr_expect_eq(own->calls, PROFILE_CALLS_WAIT);
}

Test(sampler, the_garbage_collector_and_a_thread_that_works_for_backward_are_seen) {
    start_python("collecting");
    cr_expect(last_in("block").gc);
    (void)kill(-worker, SIGKILL);
    start_python("helped");
    cr_expect(last_in("_engine_run_backward").helped);
    (void)kill(-worker, SIGKILL);
    start_python("alone"); /* it only waits */
    cr_expect(!last_in("_engine_run_backward").helped);
}

Test(sampler, children_are_a_histogram) {
    start_python("loader");
    uint32_t found = 0;
    while (found == 0) {
        (void)last_in("loader");
        for (uint32_t i = 0; i < got.ranks[0].n_rows; i++)
            if (strcmp(leaf(got.ranks[0].children[i].stack), "block") == 0)
                found += got.ranks[0].children[i].samples;
    }
    cr_expect_eq(got.ranks[0].n_children, 1);
}

Test(sampler, the_program_below_a_wrapper_is_sampled) {
    const char *argv[] = {"/bin/sh", "-c", rig_text("/usr/bin/python3 %s block; true", script()), NULL};
    start(argv);
    cr_expect(last_in("block").sleeps);
}

Test(sampler, a_program_without_python_is_a_gap) {
    const char *argv[] = {"/bin/sh", "-c", "echo; read x", NULL};
    start(argv);
    cr_expect_eq(last_in("").stack, PROFILE_NOT_READ);
    cr_expect_str_eq(got.ranks[0].gap, "no Python is loaded in it");
}

Test(sampler, time_without_a_cpu_is_counted) {
    const char *argv[] = {"/bin/sh", "-c", "echo; while :; do :; done & while :; do :; done", NULL};
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert(sched_getaffinity(0, sizeof all, &all) == 0 && sched_setaffinity(0, sizeof one, &one) == 0);
    start(argv);
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    (void)last_in("");
    cr_expect(got.ranks[0].delay > 0.1 && got.ranks[0].delay <= 1, "%g", got.ranks[0].delay);
}

Test(sampler, a_stopped_worker_is_reported) {
    start_python("block");
    cr_assert_eq(kill(worker, SIGSTOP), 0);
    cr_assert_eq(waitpid(worker, NULL, WUNTRACED), worker);
    cr_expect(!last_in("block").sleeps);
    expect_has(got.ranks[0].gap, " is stopped");
}

static void on_time(void *arg) { (void)kill(worker, SIGKILL); }

Test(sampler, a_worker_that_ends_is_reported) {
    start_python("block");
    struct loop_timer *timer = loop_timer_new(loop, on_time, NULL);
    loop_timer_set(timer, clock_now_ns() + 300 * NS_PER_MS);
    (void)sample(NS_PER_S);
    wait_for_samples();
    expect_has(got.ranks[0].gap, " has ended");
    loop_timer_free(timer);
}

Test(sampler, a_profile_ends_with_its_last_worker) {
    start_python("block");
    (void)sample(600 * NS_PER_S);
    cr_assert_eq(kill(worker, SIGKILL), 0);
    cr_assert_eq(waitpid(worker, NULL, 0), worker);
    worker = 0;
    wait_for_samples();
}

Test(sampler, without_a_tick_that_is_the_reason) {
    start_python("block");
    (void)sample(1);
    wait_for_samples();
    cr_expect_str_eq(got.ranks[0].gap, "no sample was taken");
}

static void take_helper(void *arg, int pid) {
    struct proc_stat stat;
    if (proc_read_stat(pid, &stat) && strcmp(stat.name, "muster-profile") == 0)
        *(pid_t *)arg = pid;
}

/* It has that name when it begins to run. */
static pid_t helper(void) {
    pid_t pid = 0;
    while (pid == 0)
        proc_each_child(getpid(), true, take_helper, &pid);
    return pid;
}

Test(sampler, of_a_helper_that_is_killed_nothing_comes) {
    start_python("block");
    (void)sample(100 * NS_PER_S);
    cr_assert_eq(kill(helper(), SIGKILL), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_expect(calls == 1 && length == 0);
}

Test(sampler, the_helper_of_a_sampler_that_is_freed_is_killed) {
    struct proc_stat stat;
    start_python("block");
    struct helper_call *s = sample(100 * NS_PER_S);
    pid_t pid = helper();
    helper_call_free(s);
    while (proc_read_stat(pid, &stat) && stat.state != 'Z')
        ;
    cr_expect_eq(calls, 0);
    helper_call_free(NULL);
}

Test(sampler, descriptors_are_for_workers_first) {
    struct profile_ask ask = {.period_ns = NS_PER_S, .length_ns = NS_PER_S};
    struct helper_call *s = NULL;
    const rlim_t next = rig_free_fd();
    (void)rig_limit_fds(next * 2);
    cr_expect_eq(profile_sampler_new(loop, &ask, on_samples, NULL, &s), -EMFILE);
    (void)rig_limit_fds(next * 2 + 10);
    cr_expect_eq(profile_sampler_new(loop, &ask, on_samples, NULL, &s), 0);
    helper_call_free(s);
}
