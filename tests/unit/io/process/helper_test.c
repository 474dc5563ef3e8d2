#include "io/process/helper.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "rig/unit.h"

#define DOOMSDAY_MS 10000
#define SAID_MAX 4096

static struct loop *loop;
static struct child_reaper *reaper;
static char said[SAID_MAX];

static void begin(void) { cr_assert_eq(loop_new(&loop), 0); }
static void finish(void) {
    child_reaper_free(reaper);
    loop_free(loop);
}
static void begin_reaper(void) { /* after begin(), as Criterion does */
    reaper = child_reaper_new(loop);
}

TestSuite(helper, .init = begin, .fini = finish);

/* Reads everything that the helpers write, until all have closed the pipe. */
static void hear(int fd) {
    size_t n = 0;
    for (;;) {
        cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, DOOMSDAY_MS), 1, "no end of it");
        ssize_t got = read(fd, said + n, sizeof said - 1 - n);
        cr_assert_geq(got, 0);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    said[n] = '\0';
    (void)close(fd);
}

/* Returns the end at which it is heard. */
static int start(helper_fn *run, void *arg, struct helper *ret) {
    int ours, theirs;
    cr_assert_eq(child_pipe(&ours, &theirs), 0);
    cr_assert_eq(helper_start(loop, "a-helper", run, arg, theirs, ret), 0);
    (void)close(theirs);
    return ours;
}

/* Returns the helper's answer. The helper has ended by then, and its status is reaped. */
static int ask(helper_fn *run, void *arg) {
    int status;
    struct helper c;
    hear(start(run, arg, &c));
    cr_assert_eq(waitpid(helper_pid(&c), &status, 0), helper_pid(&c));
    cr_assert(WIFEXITED(status), "%#x: %s", status, said);
    helper_end(&c); /* it was reaped elsewhere */
    cr_assert_eq(helper_pid(&c), 0);
    return WEXITSTATUS(status);
}

static void no_child_is_left(void) {
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD, "no child is left behind");
}

static int say_arg(int fd, void *arg) { return helper_send(fd, arg, strlen(arg)) ? 7 : 1; }

Test(helper, says_what_it_found_and_ends_with_what_it_returns) {
    char text[] = "found";
    cr_assert_eq(ask(say_arg, text), 7);
    cr_assert_str_eq(said, "found");
    no_child_is_left();
}

static int say_name(int fd, void *arg) {
    char name[64] = "";
    FILE *f = fopen("/proc/self/comm", "re");
    if (f == NULL || fgets(name, sizeof name, f) == NULL)
        return 1;
    return helper_send(fd, name, strlen(name)) ? 0 : 1;
}

Test(helper, goes_by_its_name) {
    cr_assert_eq(ask(say_name, NULL), 0);
    cr_assert_str_eq(said, "a-helper\n");
}

static int say_descriptors(int fd, void *arg) {
    char text[SAID_MAX] = "", target[256];
    DIR *dir = opendir("/proc/self/fd");
    for (int i = 0; i < 512; i++) { /* numbers above are valgrind's own */
        ssize_t n = readlink(rig_text("/proc/self/fd/%d", i), target, sizeof target - 1);
        if (n < 0 || i == dirfd(dir))
            continue;
        target[n] = '\0';
        size_t len = strlen(text);
        (void)snprintf(text + len, sizeof text - len, "%d %.5s%s\n", i, target,
                       (fcntl(i, F_GETFD) & FD_CLOEXEC) != 0 ? " cloexec" : "");
    }
    return helper_send(fd, text, strlen(text)) ? 0 : 1;
}

Test(helper, holds_one_descriptor_and_no_terminal) {
    cr_assert_geq(open("/dev/zero", O_RDONLY), 0);
    cr_assert_eq(dup2(STDERR_FILENO, 100), 100);
    cr_assert_eq(ask(say_descriptors, NULL), 0);
    cr_assert_str_eq(said, "0 /dev/\n1 /dev/\n2 /dev/\n3 pipe: cloexec\n");
}

/* Its process can open nothing more. */
Test(helper, needs_no_further_descriptors_of_its_process) {
    struct rlimit usual;
    int ours, theirs, other = open("/dev/zero", O_RDONLY), out = dup(STDERR_FILENO);
    struct helper c;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_assert_eq(child_pipe(&ours, &theirs), 0);
    int next = dup(STDERR_FILENO);
    (void)close(next);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, usual.rlim_max}), 0);
    char text[] = "found";
    cr_assert_eq(helper_start_speaking(loop, "a-helper", say_arg, text, theirs, out, -1, &c), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    (void)close(theirs);
    hear(ours);
    cr_expect_str_eq(said, "found");
    helper_end(&c);
    (void)close(other);
    (void)close(out);
    no_child_is_left();
}

static int speak(int fd, void *arg) {
    return helper_send(STDOUT_FILENO, "out", 3) && helper_send(STDERR_FILENO, "err", 3) && helper_send(fd, "fd", 2) ? 7
                                                                                                                    : 1;
}

Test(helper, speaks_on_the_descriptors_that_it_is_given) {
    int all[3][2], status;
    struct helper c;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(child_pipe(&all[i][0], &all[i][1]), 0);
    cr_assert_eq(helper_start_speaking(loop, "a-helper", speak, NULL, all[0][1], all[1][1], all[2][1], &c), 0);
    static const char *const want[] = {"fd", "out", "err"};
    for (int i = 0; i < 3; i++) {
        (void)close(all[i][1]);
        hear(all[i][0]);
        cr_assert_str_eq(said, want[i]);
    }
    cr_assert_eq(waitpid(helper_pid(&c), &status, 0), helper_pid(&c));
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    helper_end(&c);
}

Test(helper, may_be_given_any_descriptor) {
    char text[] = "x";
    int ours, theirs;
    struct helper c;
    for (int at = 0; at < 6; at++) {
        if (at == STDERR_FILENO) /* Criterion's */
            continue;
        cr_assert_eq(child_pipe(&ours, &theirs), 0);
        int in = fcntl(ours, F_DUPFD_CLOEXEC, 10), out = fcntl(theirs, F_DUPFD_CLOEXEC, 10);
        (void)close(ours);
        (void)close(theirs);
        int was = fcntl(at, F_DUPFD_CLOEXEC, 10);
        cr_assert_eq(dup2(out, at), at);
        (void)close(out);
        cr_assert_eq(helper_start(loop, "a-helper", say_arg, text, at, &c), 0);
        if (was >= 0)
            cr_assert_eq(dup2(was, at), at);
        (void)close(was >= 0 ? was : at);
        hear(in);
        cr_assert_str_eq(said, "x", "descriptor %d", at);
        helper_end(&c);
    }
    no_child_is_left();
}

static int shared_fd;
static void on_signal(int signo) { (void)!write(shared_fd, "!", 1); }

static int raise_all(int fd, void *arg) {
    static const int quiet[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
                                SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGCHLD};
    for (size_t i = 0; i < ARRAY_SIZE(quiet); i++)
        (void)raise(quiet[i]);
    sigset_t blocked;
    (void)sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&blocked, s) == 1)
            return 2;
    struct sigaction sa;
    for (int s = 1; s < NSIG; s++)
        if (sigaction(s, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN)
            return 3;
    (void)sigaction(SIGSEGV, NULL, &sa);
    return sa.sa_handler == SIG_DFL && helper_send(fd, "alive", 5) ? 0 : 1;
}

Test(helper, takes_no_part_in_the_signals_of_the_process) {
    static const int handled[] = {SIGTERM, SIGUSR1, SIGCHLD, SIGSEGV, SIGWINCH};
    int ends[2];
    char c;
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    shared_fd = ends[1];
    for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
        (void)signal(handled[i], on_signal);
    (void)signal(SIGBUS, SIG_IGN);
    sigset_t mask, after;
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGWINCH);
    (void)sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    cr_assert_eq(ask(raise_all, NULL), 0);
    cr_assert_str_eq(said, "alive");
    cr_assert_eq(read(ends[0], &c, 1), -1, "none of our handlers has run");
    (void)sigprocmask(SIG_SETMASK, NULL, &after);
    cr_assert(sigismember(&after, SIGWINCH) == 1 && sigismember(&after, SIGTERM) == 0, "our mask is as it was");
}

static int hang(int fd, void *arg) {
    (void)!helper_send(fd, "here", 4);
    while (pause() < 0)
        continue;
    return 0;
}

/* When this returns, the helper hangs. */
static struct helper start_hanging(int *ret_fd) {
    char here[4];
    struct helper c;
    *ret_fd = start(hang, NULL, &c);
    cr_assert_eq(poll(&(struct pollfd){.fd = *ret_fd, .events = POLLIN}, 1, DOOMSDAY_MS), 1);
    cr_assert_eq(read(*ret_fd, here, sizeof here), 4);
    return c;
}

Test(helper, one_that_hangs_is_killed_and_reaped_also_without_pidfds) {
    for (int pidfd = 0; pidfd < 2; pidfd++) {
        int fd;
        struct helper c = start_hanging(&fd);
        if (!pidfd) {
            (void)close(c.child.pidfd);
            c.child.pidfd = -1;
        }
        helper_end(&c);
        cr_assert_eq(helper_pid(&c), 0);
        hear(fd);
        no_child_is_left();
    }
}

/* A driver that hangs is below the helper until it ends, even if nobody waits for it. */
static int leave_child(int fd, void *arg) {
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(fd);
        while (pause() < 0)
            continue;
    }
    return helper_send(fd, &pid, sizeof pid) ? 0 : 1;
}

Test(helper, one_that_is_let_go_stays_until_its_children_are_gone, .init = begin_reaper) {
    struct helper c;
    pid_t below;
    hear(start(leave_child, NULL, &c)); /* to its end: the helper has closed it */
    memcpy(&below, said, sizeof below);
    pid_t pid = helper_pid(&c);
    helper_let_go(&c);
    child_reaper_run(reaper);
    cr_assert_not_null(child_reaper_find(reaper, pid));
    cr_assert_eq(kill(below, SIGKILL), 0);
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(info.si_code, CLD_EXITED, "it was not killed");
    child_reaper_run(reaper);
    no_child_is_left();
}

Test(helper, none_is_ended_without_harm) {
    struct helper c = HELPER_INIT;
    helper_end(&c);
    no_child_is_left();
}

/* What a worker leaves behind is killed, unless the reaper knows it. */
Test(helper, is_known_to_the_reaper_and_reaped_by_it, .init = begin_reaper) {
    int fd;
    struct helper c = start_hanging(&fd);
    pid_t pid = helper_pid(&c);
    cr_assert_not_null(child_reaper_find(reaper, pid));
    helper_end(&c);
    cr_assert_eq(helper_pid(&c), 0);
    cr_assert_not_null(child_reaper_find(reaper, pid), "the kernel may hold it for long");
    hear(fd); /* its end */
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    child_reaper_run(reaper);
    cr_assert_null(child_reaper_find(reaper, pid));
    no_child_is_left();
}

Test(helper, one_that_outlives_the_reaper_is_forgotten_with_it, .init = begin_reaper) {
    int fd;
    struct helper c = start_hanging(&fd);
    pid_t pid = helper_pid(&c);
    helper_end(&c);
    child_reaper_free(TAKE_PTR(reaper)); /* it has not been reaped */
    cr_assert_null(loop_reaper(loop));
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    (void)close(fd);
}

Test(helper, one_that_the_reaper_took_is_ended_without_harm, .init = begin_reaper) {
    char text[] = "found";
    struct helper c;
    siginfo_t info;
    hear(start(say_arg, text, &c));
    cr_assert_eq(waitid(P_PID, (id_t)helper_pid(&c), &info, WEXITED | WNOWAIT), 0);
    child_reaper_run(reaper);
    cr_assert_eq(helper_pid(&c), 0);
    helper_end(&c);
    no_child_is_left();
}

Test(helper, dies_with_its_process) {
    int ours, theirs;
    struct helper c;
    cr_assert_eq(child_pipe(&ours, &theirs), 0);
    pid_t between = fork();
    if (between == 0)
        _exit(helper_start(loop, "a-helper", hang, NULL, theirs, &c) < 0 ? 1 : 0);
    (void)close(theirs);
    cr_assert_eq(rig_status(between), 0);
    hear(ours); /* it ends when the helper has ended */
}
