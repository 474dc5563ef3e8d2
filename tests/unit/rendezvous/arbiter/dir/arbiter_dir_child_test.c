/* The process behind the arbiter over a directory: it hangs, dies, is late, and is left. */
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <dirent.h>
#include <sched.h>

#include "arbiter_dir_rig.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/reaper.h"
#include "rig/unit.h"

#define A 11
#define B 12
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
    struct arbiter_dir_server server;
    struct arbiter_dir_result result;
    arbiter_dir_server_init(&server, rig_dir, RIG_RUN_ID, false);
    struct arbiter_dir_task task = {
        .seq = 5, .deadline_ns = clock_now_ns(), .request = rig_request(ARBITER_CLAIM, 1, A)};
    arbiter_dir_serve(&server, &task, &result);
    cr_assert_eq(result.seq, 5);
    cr_assert_eq(result.result, ARBITER_UNREACHABLE);
    cr_assert_not(rig_there("."));
    cr_assert_eq(rig_read(a).record.epoch, 0);
    arbiter_dir_server_fini(&server);
}

/* Deadlines that fall anywhere into a claim: it says won only in time, and what it did counts only
 * if it is asked again. */
CHILD_TEST(a_claim_cut_by_its_deadline_anywhere_is_whole_when_asked_again) {
    unsigned won = 0, late = 0;
    for (uint32_t epoch = 1; epoch <= 200; epoch++) {
        struct arbiter_dir_server server;
        struct arbiter_dir_result result;
        arbiter_dir_server_init(&server, rig_dir, RIG_RUN_ID, false);
        uint64_t end_ns = clock_now_ns() + epoch * 20 * NS_PER_US;
        struct arbiter_dir_task task = {.deadline_ns = end_ns,
                                        .request = rig_request(ARBITER_CLAIM, epoch, A + epoch % 2)};
        arbiter_dir_serve(&server, &task, &result);
        won += result.result == ARBITER_OK;
        late += result.result == ARBITER_UNREACHABLE;
        task.deadline_ns = TIME_NEVER;
        arbiter_dir_serve(&server, &task, &result);
        cr_assert_eq(result.result, ARBITER_OK, "%s", result.text);
        cr_assert_eq(result.record.epoch, epoch);
        arbiter_dir_server_fini(&server);
    }
    cr_assert_gt(late, 0);
    cr_assert_eq(won + late, 200);
    cr_assert_eq(rig_read(a).record.epoch, 200);
}

CHILD_TEST(what_is_asked_beyond_the_limit_is_refused_at_once) {
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    pid_t pid = stop_child();
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned refused = 5, served = ARBITER_REQUESTS_MAX;
    for (int i = 0; i < ARBITER_REQUESTS_MAX; i++)
        arbiter_ask(a, &q, count, &served);
    for (int i = 0; i < 5; i++)
        arbiter_ask(a, &q, count, &refused);
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(refused, 0);
    cr_assert_eq(told[ARBITER_UNREACHABLE - 1], 5);
    cr_assert_eq(kill(pid, SIGCONT), 0);
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(served, 0);
    cr_assert_eq(told[ARBITER_OK - 1], ARBITER_REQUESTS_MAX);
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

static void free_it(void *arg, const struct arbiter_answer *answer) {
    unsigned *calls = arg;
    ++*calls;
    cr_assert_eq(answer->result, ARBITER_OK);
    arbiter_free(a);
    a = NULL;
    loop_quit(rig_loop);
}

CHILD_TEST(an_arbiter_may_be_freed_by_its_answer) {
    struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
    unsigned calls = 0;
    for (int i = 0; i < 3; i++)
        arbiter_ask(a, &q, free_it, &calls);
    cr_assert_eq(loop_run(rig_loop), 0);
    cr_assert_eq(loop_turn(rig_loop), 0);
    cr_assert_eq(calls, 1);
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

CHILD_TEST(it_keeps_nothing_of_ours_open) {
    int pipe_ends[2];
    cr_assert_eq(pipe(pipe_ends), 0);
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    char path[64], target[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)arbiter_dir_child_pid(a));
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    unsigned n = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        ssize_t len = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (e->d_name[0] == '.')
            continue;
        cr_assert_gt(len, 0);
        target[len] = '\0';
        cr_assert(strcmp(target, "/dev/null") == 0 || strncmp(target, "socket:", 7) == 0, "%s", target);
        n++;
    }
    (void)closedir(dir);
    cr_assert_eq(n, 4);
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)arbiter_dir_child_pid(a));
    int fd = open(path, O_RDONLY);
    ssize_t len = read(fd, target, sizeof target - 1);
    cr_assert_gt(len, 0);
    target[len] = '\0';
    cr_assert_str_eq(target, "muster-arbiter\n");
    (void)close(fd);
}

/* The agent gets them too, and needs the arbiter for the job's last word. */
CHILD_TEST(it_outlives_what_is_sent_to_all_processes_of_a_job) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP};
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    pid_t pid = arbiter_dir_child_pid(a);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        cr_assert_eq(kill(pid, signals[i]), 0);
        cr_assert_eq(rig_read(a).result, ARBITER_OK);
    }
    cr_assert_eq(arbiter_dir_child_pid(a), pid);
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

CHILD_TEST(it_ends_with_a_killed_agent) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    arbiter_free(a);
    a = NULL;
    pid_t agent = fork();
    if (agent == 0) { /* its own loop: ours must not be used on both sides of a fork */
        if (loop_new(&rig_loop) < 0)
            _exit(1);
        struct arbiter_dir_config config = {.path = rig_dir, .run_id = RIG_RUN_ID};
        struct arbiter *mine;
        unsigned left = 1;
        struct arbiter_request q = rig_request(ARBITER_READ, 0, 0);
        if (arbiter_dir_new(rig_loop, &config, &mine, NULL) < 0)
            _exit(1);
        arbiter_ask(mine, &q, count, &left);
        if (loop_run(rig_loop) < 0)
            _exit(1);
        pid_t pid = arbiter_dir_child_pid(mine);
        if (write(ends[1], &pid, sizeof pid) != (ssize_t)sizeof pid)
            _exit(1);
        for (;;)
            (void)pause();
    }
    pid_t pid;
    (void)close(ends[1]);
    cr_assert_eq(read(ends[0], &pid, sizeof pid), sizeof pid);
    int pidfd = rig_pidfd(pid);
    cr_assert_eq(kill(pid, SIGSTOP), 0, "not even awake");
    cr_assert_eq(kill(agent, SIGKILL), 0);
    rig_wait_end(pidfd);
    cr_assert_eq(waitpid(agent, NULL, 0), agent);
}

static void count_child(void *arg, pid_t pid) {
    pid_t *known = arg;
    *known = pid;
}

CHILD_TEST(the_reaper_of_the_agent_knows_it) {
    struct child_reaper *reaper;
    cr_assert_eq(child_reaper_new(rig_loop, &reaper), 0);
    struct arbiter_dir_config config = {.path = rig_dir, .run_id = RIG_RUN_ID};
    arbiter_free(a);
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &a, NULL), 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(rig_read(a).result, ARBITER_OK);
        pid_t pid = arbiter_dir_child_pid(a), known = 0;
        child_reaper_each(reaper, count_child, &known);
        cr_assert_eq(known, pid, "workers' orphans are swept, this one is spared");
        int pidfd = rig_pidfd(pid);
        cr_assert_eq(kill(pid, SIGKILL), 0);
        rig_wait_end(pidfd);
    }
    cr_assert_eq(rig_read(a).result, ARBITER_OK);
    int pidfd = rig_pidfd(arbiter_dir_child_pid(a));
    arbiter_free(a);
    a = NULL;
    rig_wait_end(pidfd);
    child_reaper_run(reaper);
    cr_assert_lt(waitpid(-1, NULL, WNOHANG), 0, "a child was not reaped");
    child_reaper_free(reaper);
}
