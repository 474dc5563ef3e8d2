#include "watchdog/gather/slow_io.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/process/reaper.h"

/* A process whose main thread waits; for each byte it gets, something else of it does `act`, and answers. */
static struct {
    pid_t pid;
    int ask[2], answer[2];
} worker;
static struct signs *signs;
static struct slow *slow;
static uint64_t now;

static uint64_t used_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void use_a_processor(void) {
    for (uint64_t end = used_ns() + 400 * NS_PER_MS; used_ns() < end;)
        ;
}

static void read_a_file(void) {
    static char buf[1 << 20];
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    (void)!read(fd, buf, sizeof buf);
    (void)close(fd);
}

static int connected[2];

/* By send(2) and recv(2), which are not in /proc/PID/io. */
static void send_to_itself(void) {
    static char buf[1 << 10];
    for (unsigned i = 0; i < 256; i++)
        if (send(connected[0], buf, sizeof buf, 0) < 0 || recv(connected[1], buf, sizeof buf, MSG_WAITALL) < 0)
            _exit(1);
}

static void make_connection(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 1) == 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&a, &len), 0);
    cr_assert_eq(connect(connected[0], (struct sockaddr *)&a, sizeof a), 0);
    connected[1] = accept(listener, NULL, NULL);
    (void)close(listener);
}

static void serve(void (*act)(void)) {
    char byte;
    while (read(worker.ask[0], &byte, 1) == 1) {
        act();
        if (write(worker.answer[1], &byte, 1) != 1)
            break;
    }
    _exit(0);
}

static void *serve_thread(void *act) {
    void (*fn)(void);
    (void)memcpy(&fn, &act, sizeof fn);
    serve(fn);
    return NULL;
}

static void start(void (*act)(void), bool by_child) {
    cr_assert(pipe(worker.ask) == 0 && pipe(worker.answer) == 0);
    worker.pid = fork();
    cr_assert_geq(worker.pid, 0);
    if (worker.pid == 0) {
        (void)setpgid(0, 0);
        (void)alarm(120);
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* as a worker: its reader is no ancestor */
        pthread_t t;
        void *arg;
        (void)memcpy(&arg, &act, sizeof arg);
        if (!by_child)
            (void)pthread_create(&t, NULL, serve_thread, arg);
        else if (fork() == 0)
            serve(act);
        if (by_child)
            (void)waitpid(-1, NULL, 0);
        for (;;)
            pause();
    }
    signs = signs_new();
    slow = slow_new(NULL, signs);
    cr_assert_eq(signs_add(signs, 5, worker.pid, 0), 0);
}

static void finish(void) {
    if (worker.pid > 0) {
        (void)kill(worker.pid, SIGKILL);
        (void)kill(-worker.pid, SIGKILL);
        (void)waitpid(worker.pid, NULL, 0);
    }
    slow_free(slow);
    signs_free(signs);
}
TestSuite(slow_io, .fini = finish);

static void ask_to_act(void) {
    char byte = 'x';
    cr_assert(write(worker.ask[1], &byte, 1) == 1 && read(worker.answer[0], &byte, 1) == 1);
}

static uint32_t sample(void) {
    struct worker_signs row;
    signs_sample(signs, now += NS_PER_S);
    cr_assert_eq(signs_rows(signs, now, &row, 1), 1);
    return row.flags;
}

/* Samples until the main thread has been still for long enough to be looked at. */
static void become_quiet(void) {
    do
        (void)sample();
    while (signs_still_ns(signs, now) < SIGNS_QUIET_NS);
}

static uint32_t look_twice(void) {
    become_quiet();
    slow_tick(slow, now);
    ask_to_act();
    for (unsigned i = 0; i < SLOW_EVERY_NS / NS_PER_S; i++) {
        (void)sample();
        slow_tick(slow, now);
    }
    return sample();
}

Test(slow_io, sees_that_another_thread_is_busy) {
    start(use_a_processor, false);
    cr_expect_eq(look_twice(), SIGN_BUSY);
    become_quiet();
    now += SLOW_EVERY_NS;
    slow_tick(slow, now); /* it has done nothing since */
    cr_expect_eq(sample(), 0);
}

Test(slow_io, sees_that_a_file_is_read) {
    start(read_a_file, false);
    cr_expect_eq(look_twice(), SIGN_BYTES);
}

Test(slow_io, sees_the_bytes_of_a_socket) {
    make_connection();
    start(send_to_itself, false);
    (void)close(connected[0]);
    (void)close(connected[1]);
    cr_expect_eq(look_twice() & SIGN_BYTES, SIGN_BYTES);
}

Test(slow_io, a_worker_that_waits_for_its_child_moves_with_it) {
    start(use_a_processor, true);
    /* until it is seen in wait4(); it may still be on its way there */
    do {
        now += SLOW_EVERY_NS;
        become_quiet();
        slow_tick(slow, now);
        (void)sample();
        ask_to_act();
    } while ((sample() & SIGN_MOVED) == 0);
    struct worker_signs row;
    cr_assert_eq(signs_rows(signs, now, &row, 1), 1);
    cr_expect(row.moved_once && row.still_ns == 0);
    become_quiet();
    cr_expect_geq(signs_still_ns(signs, now), SIGNS_QUIET_NS);
}

/* Without a descriptor no helper can be started. */
Test(slow_io, what_can_not_be_looked_at_is_not_taken_for_still) {
    struct rlimit few, usual;
    start(use_a_processor, false);
    become_quiet();
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few = (struct rlimit){.rlim_cur = 3, .rlim_max = usual.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    uint64_t begin = now;
    uint32_t flags = 0;
    for (slow_tick(slow, now); (flags & SIGN_UNSEEN) == 0 && now < begin + 60 * NS_PER_S; slow_tick(slow, now))
        flags = sample();
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_expect_eq(flags, SIGN_UNSEEN);
    cr_expect_geq(now, begin + SLOW_AGE_MAX_NS);
    cr_expect_eq(slow_error(slow), -EMFILE);
    do { /* in a child that can be slow to begin */
        flags = sample();
        slow_tick(slow, now);
    } while ((flags & SIGN_UNSEEN) != 0 && now < begin + 600 * NS_PER_S);
    cr_expect_eq(flags, 0U);
    cr_expect_eq(slow_error(slow), 0);
}

Test(slow_io, follows_no_other_process_of_the_same_pid) {
    start(use_a_processor, false);
    struct worker_signs row;
    become_quiet();
    signs_follow(signs, 5, worker.pid, getpid(), 1); /* not when it was started */
    use_a_processor();
    (void)sample();
    cr_assert_eq(signs_rows(signs, now, &row, 1), 1);
    cr_expect_eq(row.flags & SIGN_MOVED, 0);
    cr_expect_eq(signs_pid(signs, 5), worker.pid);
    cr_expect_eq(signs_pid(signs, 6), 0);
}
