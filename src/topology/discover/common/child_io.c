#include "topology/discover/common/child_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 65536 /* closed one by one where the kernel has no close_range (5.9) */

/* Keeps fd alone, as descriptor 3: a child that hangs must hold nobody's socket or pipe. */
static int keep_one(int fd) {
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 4); /* above what is replaced now */
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i <= 2 && null >= 0; i++)
        (void)dup2(null, i);
    if (kept < 0 || dup3(kept, 3, O_CLOEXEC) < 0)
        return -errno;
    if (syscall(SYS_close_range, 4U, ~0U, 0U) < 0) {
        long max = sysconf(_SC_OPEN_MAX);
        for (int i = 4; i < (max > 0 && max < FDS_MAX ? (int)max : FDS_MAX); i++)
            (void)close(i);
    }
    return 3;
}

/* The caller's handlers are not for this process: a signal shall just end it. */
static void forget_handlers(void) {
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

_noreturn_ static void run_child(const char *name, topo_child_fn *run, void *arg, int fd,
                                 pid_t parent) {
    /* A parent that is gone must not leave a child that hangs in a driver. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    forget_handlers();
    (void)prctl(PR_SET_NAME, name);
    int out = keep_one(fd);
    _exit(out < 0 ? 1 : run(out, arg));
}

int topo_child_start(const char *name, topo_child_fn *run, void *arg, struct topo_child *ret) {
    *ret = (struct topo_child)TOPO_CHILD_INIT;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    pid_t parent = getpid();
    pid_t pid = fork();
    int r = pid < 0 ? -errno : 0;
    if (pid == 0)
        run_child(name, run, arg, fds[1], parent);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)close(fds[1]);
    if (r < 0) {
        (void)close(fds[0]);
        return r;
    }
    *ret = (struct topo_child){.pid = pid, .fd = fds[0]};
    return 0;
}

static void reap(pid_t pid) {
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0U); /* Linux 5.3 */
    for (int i = 0; i < TOPO_CHILD_REAP_MS; i++) {
        struct pollfd pfd = {.fd = pidfd, .events = POLLIN};
        (void)poll(&pfd, pidfd >= 0 ? 1 : 0, 1);
        pid_t r = waitpid(pid, NULL, WNOHANG);
        if (r == pid || (r < 0 && errno != EINTR))
            break;
    }
    if (pidfd >= 0)
        (void)close(pidfd);
}

void topo_child_end(struct topo_child *c) {
    if (c->pid > 0) {
        (void)kill(c->pid, SIGKILL);
        reap(c->pid);
    }
    if (c->fd >= 0)
        (void)close(c->fd);
    *c = (struct topo_child)TOPO_CHILD_INIT;
}
