#include "launcher/ends/witness_io.h"

#include "io/clock.h"
#include "io/process/proc.h"
#include "rig/unit.h"

#define DOOMSDAY_NS (10 * NS_PER_S)

static const int signals[] = {SIGTERM, SIGUSR1, SIGWINCH};
static struct loop *loop;
static struct witness *witness;
static int n_told, told[64];

static void on_told(void *arg, int signo, uint64_t at_ns) {
    cr_assert_eq(arg, &loop);
    cr_assert(at_ns <= clock_now_ns());
    told[signo]++;
    n_told++;
}

/* Until that many signals were told in all. */
static void turn_until(int n) {
    uint64_t end_ns = clock_now_ns() + DOOMSDAY_NS;
    while (n_told < n || !witness_is_ready(witness)) {
        cr_assert(clock_now_ns() < end_ns, "%d of %d", n_told, n);
        cr_assert_eq(loop_turn(loop), 0);
    }
}

static void begin(void) {
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(witness_new(loop, signals, ARRAY_SIZE(signals), on_told, &loop, &witness), 0);
    turn_until(0);
}

static void finish(void) {
    witness_free(witness);
    loop_free(loop);
}

TestSuite(witness_io, .init = begin, .fini = finish);

Test(witness_io, tells_each_signal_that_reaches_it) {
    for (int i = 1; i <= 5; i++) {
        cr_assert_eq(kill(witness_pid(witness), SIGTERM), 0);
        turn_until(3 * i - 2);
        cr_assert_eq(kill(witness_pid(witness), SIGUSR1), 0);
        cr_assert_eq(kill(witness_pid(witness), SIGWINCH), 0);
        turn_until(3 * i);
    }
    cr_expect(told[SIGTERM] == 5 && told[SIGUSR1] == 5 && told[SIGWINCH] == 5);
}

Test(witness_io, is_out_of_reach_of_the_process_group) {
    (void)signal(SIGUSR1, SIG_IGN);
    (void)setpgid(0, 0);
    cr_assert_eq(kill(0, SIGUSR1), 0);
    cr_assert_eq(kill(witness_pid(witness), SIGTERM), 0); /* would come after it */
    turn_until(1);
    cr_expect(told[SIGTERM] == 1 && told[SIGUSR1] == 0);
    cr_expect_eq(getsid(witness_pid(witness)), witness_pid(witness));
}

Test(witness_io, is_not_found_by_the_names_of_this_program) {
    char line[512];
    ssize_t n = proc_read(witness_pid(witness), "/cmdline", line, sizeof line - 1);
    cr_assert_gt(n, 0);
    line[n] = '\0';
    cr_expect_str_eq(line, WITNESS_NAME);
    for (ssize_t i = (ssize_t)strlen(WITNESS_NAME); i < n; i++)
        cr_expect_eq(line[i], '\0');
    n = proc_read(witness_pid(witness), "/comm", line, sizeof line - 1);
    cr_expect(n > 0 && strncmp(line, WITNESS_NAME "\n", (size_t)n) == 0);
    n = proc_read(0, "/cmdline", line, sizeof line - 1);
    cr_assert_gt(n, 0);
    line[n] = '\0';
    cr_expect_str_neq(line, WITNESS_NAME, "this process keeps its own");
}

/* A signal may come before the loop is turned. */
Test(witness_io, is_ready_before_the_loop_has_heard_so) {
    struct witness *other;
    cr_assert_eq(witness_new(loop, signals, ARRAY_SIZE(signals), on_told, &loop, &other), 0);
    uint64_t end_ns = clock_now_ns() + DOOMSDAY_NS;
    while (!witness_is_ready(other))
        cr_assert(clock_now_ns() < end_ns);
    cr_assert_eq(kill(witness_pid(other), SIGTERM), 0);
    turn_until(1);
    cr_expect_eq(told[SIGTERM], 1);
    pid_t pid = witness_pid(other);
    witness_free(other);
    cr_expect_lt(kill(pid, 0), 0, "it does not remain");
}

Test(witness_io, one_that_was_killed_is_none) {
    cr_assert_eq(kill(witness_pid(witness), SIGKILL), 0);
    uint64_t end_ns = clock_now_ns() + DOOMSDAY_NS;
    while (witness_is_ready(witness)) {
        cr_assert(clock_now_ns() < end_ns);
        cr_assert_eq(loop_turn(loop), 0);
    }
    cr_expect_eq(n_told, 0);
}
