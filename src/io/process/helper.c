#include "io/process/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/process/close_range.h"

#ifndef P_PIDFD
#define P_PIDFD 3 /* linux/wait.h; in glibc since 2.36 */
#endif
#define KEPT_FD 3
/* How many descriptors are closed one by one if the kernel has no close_range (before 5.9). */
#define CLOSE_MAX 65536

/* Signals that are sent to all processes of a job. */
static const int not_for_helpers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
                                      SIGPIPE, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};

/* --- in the helper --- */

static void close_these(unsigned first, unsigned last) {
    if (first > last || syscall(SYS_close_range, first, last, 0U) == 0)
        return;
    for (unsigned i = first; i <= last && i < CLOSE_MAX; i++)
        (void)close((int)i);
}

/* What a helper is, and the descriptors that it keeps. */
struct kept {
    const char *name;
    helper_fn *run;
    void *arg;
    int fd, out_fd, err_fd; /* -1: none */
};

/* Closes all but the standard streams and these. */
static void close_others(const struct kept *k) {
    const unsigned kept[] = {(unsigned)k->fd, (unsigned)k->out_fd, (unsigned)k->err_fd};
    unsigned from = STDERR_FILENO + 1, next;
    do {
        next = ~0U; /* also what is none */
        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
            next = kept[i] >= from ? MIN2(next, kept[i]) : next;
        close_these(from, next - 1);
        from = next + 1;
    } while (next != ~0U);
}

/* Copies the descriptor to a number above those that are replaced now; fd -1: null. */
static int set_aside(int fd, int null) {
    return fcntl(fd >= 0 ? fd : null, F_DUPFD_CLOEXEC, KEPT_FD + 1);
}

/* Where a container's /dev is empty, a descriptor that refuses all that is read or written. */
static int open_null(void) {
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return fd >= 0 ? fd : open("/", O_PATH | O_CLOEXEC);
}

static bool set_all_aside(const struct kept *k, int ret[KEPT_FD + 1]) {
    int null = open_null();
    ret[STDIN_FILENO] = set_aside(-1, null);
    ret[STDOUT_FILENO] = set_aside(k->out_fd, null);
    ret[STDERR_FILENO] = set_aside(k->err_fd, null);
    ret[KEPT_FD] = set_aside(k->fd, null);
    return ret[STDIN_FILENO] >= 0 && ret[STDOUT_FILENO] >= 0 && ret[STDERR_FILENO] >= 0 &&
           ret[KEPT_FD] >= 0;
}

/* Makes fd KEPT_FD, sets up the standard streams, and closes the rest: first, if they are many. */
static bool keep_these(const struct kept *k) {
    int fds[KEPT_FD + 1];
    if (!set_all_aside(k, fds)) {
        close_others(k);
        if (!set_all_aside(k, fds))
            return false;
    }
    for (int i = 0; i <= KEPT_FD; i++) {
        if (dup3(fds[i], i, i == KEPT_FD ? O_CLOEXEC : 0) < 0)
            return false;
    }
    close_these(KEPT_FD + 1, ~0U);
    return true;
}

_noreturn_ static void run_helper(const struct kept *k, pid_t parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(1);
    (void)prctl(PR_SET_NAME, k->name);
    child_reset_signals(not_for_helpers, ARRAY_SIZE(not_for_helpers));
    int status = keep_these(k) ? k->run(KEPT_FD, k->arg) : 1;
    (void)close(KEPT_FD); /* the answer is complete */
    /* A child of this process that hangs in a driver can't be killed. As long as this process
     * exists, the child belongs to it, and is not mistaken for a process that a worker left. */
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    _exit(status);
}

bool helper_send(int fd, const void *bytes, size_t n) { return file_write_all(fd, bytes, n) == 0; }

/* --- in the process that owns it --- */

static int fork_helper(const struct kept *k, struct child *ret) {
    assert(strlen(k->name) <= HELPER_NAME_MAX);
    /* The loop's handlers must not run in the helper: they write to the loop's own pipe. */
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &old);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        run_helper(k, parent);
    int r = pid < 0 ? -errno : 0;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    if (r < 0)
        return r;
    *ret = (struct child){.pid = pid, .pidfd = -1};
#ifdef SYS_pidfd_open
    ret->pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec; -1 before Linux 5.3 */
#endif
    return 0;
}

/* Reaps the helper, by its pidfd if it has one: its pid can be another's. True: it is done. */
static bool is_taken(const struct child *c) {
    siginfo_t info = {0};
    int r = -1;
    if (c->pidfd >= 0)
        r = waitid(P_PIDFD, (id_t)c->pidfd, &info, WEXITED | WNOHANG);
    if (c->pidfd < 0 || (r < 0 && errno == EINVAL)) /* P_PIDFD: Linux 5.4 */
        r = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG);
    return r < 0 || info.si_pid != 0;
}

static void end_child(struct child *c) {
    if (c->pid > 0) {
        (void)!child_kill(c, SIGKILL); /* it can have ended */
        uint64_t end = clock_now_ns() + HELPER_REAP_MS * NS_PER_MS;
        struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
        while (!is_taken(c) && clock_now_ns() < end)
            (void)poll(&p, 1, c->pidfd >= 0 ? HELPER_REAP_MS : 1); /* without a pidfd: only waits */
    }
    child_fini(c);
}

/* Nothing to do: the helper's descriptor has reported its end. */
static void on_exit_of(void *arg, const struct child_status *status) {}

static int start(struct loop *loop, const struct kept *k, struct helper *ret) {
    struct child_reaper *reaper = loop != NULL ? loop_reaper(loop) : NULL;
    struct helper h = HELPER_INIT;
    int r = fork_helper(k, &h.child);
    if (r == 0 && reaper != NULL) {
        h.watch = child_watch_new(reaper, &h.child, NULL, on_exit_of, NULL);
        h.child = (struct child)CHILD_INIT; /* the watch owns it */
    }
    if (r == 0)
        *ret = h;
    return r;
}

int helper_start(struct loop *loop, const char *name, helper_fn *run, void *arg, int fd,
                 struct helper *ret) {
    struct kept k = {.name = name, .run = run, .arg = arg, .fd = fd, .out_fd = -1, .err_fd = -1};
    return start(loop, &k, ret);
}

int helper_start_speaking(struct loop *loop, const char *name, helper_fn *run, void *arg, int fd,
                          int out_fd, int err_fd, struct helper *ret) {
    struct kept k = {
        .name = name, .run = run, .arg = arg, .fd = fd, .out_fd = out_fd, .err_fd = err_fd};
    return start(loop, &k, ret);
}

pid_t helper_pid(const struct helper *h) {
    return h->watch != NULL ? child_watch_pid(h->watch) : h->child.pid;
}

void helper_let_go(struct helper *h) {
    if (h->watch == NULL) {
        helper_end(h);
        return;
    }
    child_watch_let_go(h->watch);
    *h = (struct helper)HELPER_INIT;
}

void helper_end(struct helper *h) {
    if (h->watch != NULL)
        (void)!child_watch_kill_group(h->watch, SIGKILL); /* of a command; it can have ended */
    child_watch_let_go(h->watch);
    end_child(&h->child);
    *h = (struct helper)HELPER_INIT;
}
