/* The process behind the arbiter over a directory: it hangs, dies, is late, and is left. */
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <sched.h>

#include "arbiter_dir_rig.h"
#include "io/clock.h"
#include "rig/unit.h"

#define A 11
#define SHORT_NS (150 * NS_PER_MS)

static struct arbiter *a;

static void begin(void) {
    rig_begin();
    a = rig_arbiter(0);
}
static void finish(void) {
    arbiter_free(a);
    rig_finish();
}
#define CHILD_TEST(name) Test(arbiter_dir_child, name, .init = begin, .fini = finish)

static void use_timeout(uint64_t timeout_ns) {
    arbiter_free(a);
    a = rig_arbiter(timeout_ns);
}

/* Until the child has answered once: the machine may stand still for as long. */
static void use_short_timeout(void) {
    enum arbiter_result result;
    use_timeout(SHORT_NS);
    do
        result = rig_read(a).result;
    while (result == ARBITER_UNREACHABLE);
    cr_assert_eq(result, ARBITER_OK);
}

/* The child's stop or death, seen by waitid() without reaping it. */
static void wait_for(pid_t pid, int what) {
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, what | WNOWAIT), 0);
}

static pid_t stop_child(void) {
    pid_t pid = arbiter_dir_child_pid(a);
    cr_assert_gt(pid, 0);
    cr_assert_eq(kill(pid, SIGSTOP), 0);
    wait_for(pid, WSTOPPED);
    return pid;
}

static unsigned told[3]; /* by enum arbiter_result - 1 */
static void count(void *arg, const struct arbiter_answer *answer) {
    unsigned *left = arg;
    told[answer->result - 1]++;
    if (--*left == 0)
        loop_quit(rig_loop);
}

CHILD_TEST(nothing_is_started_before_the_first_request) {
    cr_assert_eq(arbiter_dir_child_pid(a), 0);
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    pid_t pid = arbiter_dir_child_pid(a);
    cr_assert_gt(pid, 0);
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    cr_assert_eq(arbiter_dir_child_pid(a), pid, "one for all requests");
}

CHILD_TEST(a_file_system_that_hangs_is_unreachable_in_time_and_comes_back) {
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
    use_short_timeout();
    pid_t pid = stop_child();
    for (int i = 0; i < 3; i++) {
        uint64_t began_ns = clock_now_ns();
        struct arbiter_answer answer = rig_read(a);
        uint64_t took_ns = clock_now_ns() - began_ns;
        cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
        assert_has(answer.text, "no answer from the file system for 0.");
        cr_assert_geq(took_ns, SHORT_NS);
        cr_assert_lt(took_ns, 20 * SHORT_NS);
    }
    cr_assert_eq(arbiter_dir_child_pid(a), pid, "it is left alone");
    cr_assert_eq(kill(pid, SIGCONT), 0);
    struct arbiter_answer answer;
    do /* the first may still come late */
        answer = rig_beat(a, 1, A);
    while (answer.result == ARBITER_UNREACHABLE);
    cr_assert_eq(answer.result, ARBITER_OK);
    cr_assert_eq(answer.record.epoch, 1);
    cr_assert_eq(arbiter_dir_child_pid(a), pid);
}

CHILD_TEST(a_late_claim_wins_nothing) {
    use_short_timeout();
    pid_t pid = stop_child();
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_UNREACHABLE);
    cr_assert_eq(kill(pid, SIGCONT), 0);
    struct arbiter_answer answer;
    do
        answer = rig_read(a);
    while (answer.result == ARBITER_UNREACHABLE);
    cr_assert_eq(answer.record.epoch, 0, "it came too late to be made");
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
}

/* It came in time, but we were busy: the asker can't know how old it is. */
CHILD_TEST(an_answer_that_is_heard_late_is_none) {
    use_short_timeout();
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned left = 1;
    uint64_t end_ns = clock_now_ns() + 2 * SHORT_NS;
    arbiter_ask(a, &q, count, &left);
    while (clock_now_ns() < end_ns)
        (void)sched_yield();
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(told[ARBITER_UNREACHABLE - 1], 1);
    cr_assert_eq(told[ARBITER_OK - 1], 0);
    while (rig_read(a).result != ARBITER_OK)
        ;
}

/* The same in the child alone: whatever it has done, after the deadline it reports no win. */
CHILD_TEST(a_request_past_its_deadline_is_not_begun) {
    struct arbiter_folder folder;
    struct arbiter_dir_result result;
    arbiter_folder_init(&folder, rig_dir, RIG_RUN_ID, false);
    struct arbiter_dir_task task = {
        .seq = 5, .deadline_ns = clock_now_ns(), .request = rig_request(ARBITER_CLAIM, 1, A)};
    arbiter_folder_serve(&folder, &task, &result);
    cr_assert_eq(result.seq, 5);
    cr_assert_eq(result.result, ARBITER_UNREACHABLE);
    cr_assert_not(rig_there("."));
    cr_assert_eq(rig_read(a).record.epoch, 0);
    arbiter_folder_fini(&folder);
}

CHILD_TEST(a_child_that_died_idle_is_replaced_unnoticed) {
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
    for (int i = 0; i < 5; i++) {
        pid_t pid = arbiter_dir_child_pid(a);
        cr_assert_eq(kill(pid, SIGKILL), 0);
        wait_for(pid, WEXITED);
        struct arbiter_answer answer = rig_beat(a, 1, A);
        cr_assert_eq(answer.result, ARBITER_OK, "%s", answer.text);
        cr_assert_eq(answer.record.epoch, 1);
        cr_assert_neq(arbiter_dir_child_pid(a), pid);
    }
}

CHILD_TEST(a_child_that_dies_at_work_loses_that_request_only) {
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    pid_t pid = stop_child();
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned left = 3;
    for (int i = 0; i < 3; i++)
        arbiter_ask(a, &q, count, &left);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(told[ARBITER_UNREACHABLE - 1], 1);
    cr_assert_eq(told[ARBITER_OK - 1], 2);
}

CHILD_TEST(a_canceled_request_is_not_answered) {
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned dropped = 100;
    for (int i = 0; i < ARBITER_REQUESTS_MAX + 2; i++) /* some of them refused already */
        arbiter_ask(a, &q, count, &dropped);
    arbiter_cancel(a, &dropped);
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    cr_assert_eq(dropped, 100);
}

static void ask_again(void *arg, const struct arbiter_answer *answer) {
    unsigned *left = arg;
    cr_assert_eq(answer->result, ARBITER_OK);
    if (--*left == 0)
        loop_quit(rig_loop);
    else
        arbiter_ask(a, &answer->request, ask_again, left);
}

CHILD_TEST(an_answer_may_ask_again) {
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned left = 50;
    arbiter_ask(a, &q, ask_again, &left);
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(left, 0);
}

CHILD_TEST(it_ends_with_the_arbiter) {
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    int at_rest = rig_pidfd(arbiter_dir_child_pid(a));
    arbiter_free(a);
    rig_wait_end(at_rest);

    a = rig_arbiter(0);
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    int stuck = rig_pidfd(stop_child());
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned none = 0;
    arbiter_ask(a, &q, count, &none);
    arbiter_free(a);
    a = NULL;
    rig_wait_end(stuck);
    cr_assert_lt(waitpid(-1, NULL, WNOHANG), 0, "a child was not reaped");
}
