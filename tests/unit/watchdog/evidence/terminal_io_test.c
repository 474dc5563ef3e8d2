#include "watchdog/evidence/waits.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>

#include "io/process/proc.h"
#include "rig/unit.h"

static pid_t child;
static int other[2]; /* a pipe into which nobody writes */

static void finish(void) {
    if (child <= 0)
        return;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}
TestSuite(terminal_io, .fini = finish, .timeout = 120);

static int open_terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        cr_skip_test("no terminal can be made here");
    int fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/* A process with this standard input, which waits in `wait`. */
static void start(int input, void (*wait)(void)) {
    child = fork();
    cr_assert_geq(child, 0);
    if (child != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(input, STDIN_FILENO);
    for (;;)
        wait();
}

/* Waits until it is in this system call. */
static void is_in(long call) {
    char text[256];
    long now = -1;
    const char *rest = rig_text("/task/%d/syscall", (int)child);
    while (now != call) {
        (void)sched_yield();
        ssize_t n = proc_read(child, rest, text, sizeof text - 1);
        text[n > 0 ? n : 0] = '\0';
        now = n > 0 && (text[0] < '0' || text[0] > '9') ? -1 : strtol(text, NULL, 10);
    }
}

static void reads(void) {
    char byte;
    (void)!read(STDIN_FILENO, &byte, 1);
}

static void reads_another(void) {
    char byte;
    (void)!read(other[0], &byte, 1);
}

static void selects_of(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    FD_SET(other[0], &set);
    (void)pselect(100, &set, NULL, NULL, NULL, NULL);
}
static void selects(void) { selects_of(STDIN_FILENO); } /* as readline does */
static void selects_another(void) { selects_of(other[0]); }

static void polls(void) {
    struct pollfd list[] = {{.fd = other[0], .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    (void)ppoll(list, 2, NULL, NULL);
}

static void polls_another(void) {
    struct pollfd list[] = {{.fd = other[0], .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    (void)ppoll(list, 2, NULL, NULL);
}

/* As asyncio does. */
static void waits_for_events_of(int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, other[0], &event);
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    (void)epoll_pwait(epoll, &event, 1, -1, NULL);
}
static void waits_for_events(void) { waits_for_events_of(STDIN_FILENO); }
static void waits_for_other_events(void) { waits_for_events_of(other[1]); }

/* Another descriptor of the same terminal, as torch.distributed.breakpoint() opens it. */
static void reads_it_again(void) {
    char byte;
    int fd = open("/dev/stdin", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    (void)!read(fd, &byte, 1);
    _exit(1);
}

Test(terminal_io, who_waits_for_somebody_to_type) {
    static const struct {
        void (*wait)(void);
        long call;
        bool awaited;
    } cases[] = {
        {reads, SYS_read, true},
        {reads_it_again, SYS_read, true},
        {selects, SYS_pselect6, true},
        {polls, SYS_ppoll, true},
        {waits_for_events, SYS_epoll_pwait, true},
        {reads_another, SYS_read, false},
        {selects_another, SYS_pselect6, false},
        {polls_another, SYS_ppoll, false},
        {waits_for_other_events, SYS_epoll_pwait, false},
    };
    cr_assert_eq(pipe(other), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start(open_terminal(), cases[i].wait);
        is_in(cases[i].call);
        cr_expect_eq(terminal_is_awaited(child), cases[i].awaited, "%zu", i);
        finish();
    }
    start(other[0], reads); /* a pipe is no terminal */
    is_in(SYS_read);
    cr_expect_not(terminal_is_awaited(child));
}

Test(terminal_io, of_a_process_that_is_not_there_nothing_is_said) { cr_expect_not(terminal_is_awaited(INT32_MAX)); }
