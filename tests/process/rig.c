#include "rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"

static int make_fifo(const char *path) {
    cr_assert(mkfifo(path, 0666) == 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_assert(fd >= 0);
    return fd;
}

const char *rig_path(const char *word) { return strchr(word, '=') + 1; }

void rig_init(struct rig *rig) {
    (void)alarm(50); /* a hung test must not hang the suite */
    rig->worker = getenv("WORKER");
    cr_assert(rig->worker != NULL, "WORKER must name the program of tests/process/worker.c");
    snprintf(rig->dir, sizeof rig->dir, "/tmp/muster-rig-XXXXXX");
    cr_assert(mkdtemp(rig->dir) != NULL);
    cr_assert(chmod(rig->dir, 0755) == 0);
    snprintf(rig->hold, sizeof rig->hold, "hold=%s/hold", rig->dir);
    snprintf(rig->say, sizeof rig->say, "say=%s/ready", rig->dir);
    rig->hold_fd = make_fifo(rig_path(rig->hold));
    rig->ready_fd = make_fifo(rig_path(rig->say));
}

void rig_fini(struct rig *rig) {
    close(rig->hold_fd);
    close(rig->ready_fd);
    unlink(rig_path(rig->hold));
    unlink(rig_path(rig->say));
    rmdir(rig->dir);
}

/* poll(2) that continues after a signal (a loop's SIGCHLD). */
static int poll_one(struct pollfd *p) {
    uint64_t deadline_ns = clock_now_ns() + RIG_DEADLINE_MS * UINT64_C(1000000);
    int r;
    do
        r = poll(p, 1, RIG_DEADLINE_MS);
    while (r < 0 && errno == EINTR && clock_now_ns() < deadline_ns);
    return r;
}

/* If all writers of a FIFO have closed it, poll() reports a hang-up at once; then this waits for 1 ms. */
static void await_readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    cr_assert(poll_one(&p) >= 0);
    if (!(p.revents & POLLIN))
        (void)poll(NULL, 0, 1);
}

void rig_await_ready(struct rig *rig, unsigned n, pid_t *ret_pids) {
    uint64_t deadline_ns = clock_now_ns() + RIG_DEADLINE_MS * UINT64_C(1000000);
    pid_t pid = 0;
    for (unsigned got = 0; got < n;) {
        cr_assert(clock_now_ns() < deadline_ns, "%u of %u workers came up", got, n);
        char c;
        if (read(rig->ready_fd, &c, 1) != 1) {
            await_readable(rig->ready_fd);
            continue;
        }
        if (c != '\n') {
            pid = pid * 10 + (c - '0');
            continue;
        }
        if (ret_pids != NULL)
            ret_pids[got] = pid;
        pid = 0;
        got++;
    }
}

bool rig_all_gone(struct rig *rig) {
    char buf[256];
    ssize_t n;
    while ((n = read(rig->hold_fd, buf, sizeof buf)) > 0)
        ;
    return n == 0;
}

uint64_t rig_await_gone(struct rig *rig) {
    uint64_t start_ns = clock_now_ns();
    struct pollfd p = {.fd = rig->hold_fd, .events = POLLIN};
    cr_assert(rig_all_gone(rig) || poll_one(&p) == 1, "processes are left");
    cr_assert(rig_all_gone(rig));
    return clock_now_ns() - start_ns;
}

int rig_await_exit(pid_t pid) {
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    cr_assert(pidfd >= 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    cr_assert(poll_one(&p) == 1, "process %d does not end", pid);
    close(pidfd);
    int status;
    cr_assert(waitpid(pid, &status, 0) == pid);
    return status;
}

pid_t rig_first_child(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    int child = 0;
    cr_assert(f != NULL && fscanf(f, "%d", &child) == 1);
    fclose(f);
    return child;
}
