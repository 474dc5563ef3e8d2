#include "watchdog/evidence/slow.h"

#include <arpa/inet.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "io/process/proc.h"
#include "io/process/reaper.h"
#include "rig/fds.h"
#include "watchdog/evidence/waits.h"

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
    struct proc_stat main_thread = {0};
    do /* a slow machine begins late */
        cr_assert(proc_read_thread_stat(worker.pid, worker.pid, &main_thread));
    while (main_thread.state != 'S' || (!by_child && main_thread.threads < 2));
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

Test(slow_io, a_worker_whose_other_thread_computes_moves_with_it) {
    start(use_a_processor, false);
    (void)look_twice();
    ask_to_act();
    cr_expect_eq(sample() & SIGN_MOVED, SIGN_MOVED);
    cr_expect_eq(sample() & SIGN_MOVED, 0);
}

static void be_of_nccl(void) { (void)prctl(PR_SET_NAME, "pt_nccl_watchdg"); }

Test(slow_io, finds_threads_of_nccl) {
    start(be_of_nccl, false);
    become_quiet();
    slow_tick(slow, now);
    cr_expect_not(slow_has_nccl(slow, 5));
    ask_to_act();
    slow_tick(slow, now += SLOW_EVERY_NS);
    cr_expect(slow_has_nccl(slow, 5) && !slow_has_nccl(slow, 6));
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

/* With one descriptor no helper can be started. */
Test(slow_io, what_can_not_be_looked_at_is_not_taken_for_still) {
    start(use_a_processor, false);
    const rlim_t lowest = rig_free_fd();
    become_quiet();
    const struct rlimit usual = rig_limit_fds(lowest + 1);
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

static bool answer(int fuse, uint32_t opcode, const void *data, size_t len) {
    static char request[1 << 17], reply[256];
    struct fuse_in_header in;
    if (read(fuse, request, sizeof request) < (ssize_t)sizeof in)
        return false;
    (void)memcpy(&in, request, sizeof in);
    struct fuse_out_header out = {.len = (uint32_t)(sizeof out + len), .unique = in.unique};
    (void)memcpy(reply, &out, sizeof out);
    (void)memcpy(reply + sizeof out, data, len);
    return in.opcode == opcode && write(fuse, reply, out.len) == (ssize_t)out.len;
}

/* Opens a folder, and no more: who waits in fsync(2) for it waits for ever. */
static void *serve_disk(void *fuse) {
    struct fuse_init_out hello = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 65536};
    struct fuse_open_out opened = {.fh = 1};
    if (!answer(*(int *)fuse, FUSE_INIT, &hello, sizeof hello) ||
        !answer(*(int *)fuse, FUSE_OPENDIR, &opened, sizeof opened))
        _exit(2);
    return NULL;
}

/* The worker's main thread. It does not return, unless it may not mount. */
static void wait_for_disk(const char *folder) {
    pthread_t server;
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const char *options = rig_text("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (fuse < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("slow", folder, "fuse.slow", 0, options) < 0 || pthread_create(&server, NULL, serve_disk, &fuse) != 0)
        _exit(77);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)fsync(fd);
    _exit(1);
}

/* Until the worker is in fsync(2). False: it may not mount. */
static bool in_fsync(void) {
    char text[256];
    struct waits_call call = {.number = -1};
    int status;
    while (call.number != SYS_fsync) {
        if (waitpid(worker.pid, &status, WNOHANG) != 0) {
            worker.pid = 0;
            cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 77, "%d", status);
            return false;
        }
        ssize_t n = proc_read(worker.pid, "/syscall", text, sizeof text);
        (void)!waits_call_read(text, n > 0 ? (size_t)n : 0, &call);
    }
    return true;
}

static void write_to_disk(void) {
    static const char block[1 << 20];
    int fd = open("/var/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600); /* /tmp may be in memory */
    cr_assert_geq(fd, 0);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(write(fd, block, sizeof block), (ssize_t)sizeof block);
    cr_assert_eq(fsync(fd), 0);
    (void)close(fd);
}

Test(slow_io, who_waits_for_a_disk_that_is_written_moves_bytes) {
    char folder[] = "/tmp/muster-test-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    worker.pid = fork();
    cr_assert_geq(worker.pid, 0);
    if (worker.pid == 0) {
        (void)alarm(120);
        wait_for_disk(folder);
    }
    bool can = in_fsync();
    (void)rmdir(folder);
    if (!can)
        cr_skip_test("no FUSE file system can be mounted");
    signs = signs_new();
    slow = slow_new(NULL, signs);
    cr_assert_eq(signs_add(signs, 5, worker.pid, 0), 0);
    become_quiet();
    slow_tick(slow, now);
    write_to_disk(); /* not the worker, but the kernel for it */
    now += SLOW_EVERY_NS;
    slow_tick(slow, now);
    cr_expect_eq(sample(), SIGN_BYTES);
}

Test(slow_io, follows_no_other_process_of_the_same_pid) {
    start(use_a_processor, false);
    struct worker_signs row;
    become_quiet();
    signs_follow(signs, 5, getpid(), 1); /* not when it was started */
    use_a_processor();
    (void)sample();
    cr_assert_eq(signs_rows(signs, now, &row, 1), 1);
    cr_expect_eq(row.flags & SIGN_MOVED, 0);
    cr_expect_eq(signs_see(signs, 5).pid, worker.pid);
    cr_expect_eq(signs_see(signs, 6).pid, 0);
}
