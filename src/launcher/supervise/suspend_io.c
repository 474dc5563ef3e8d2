#include "launcher/supervise/suspend_io.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/process/proc.h"

/* How often the deputy looks for what no descriptor reports. */
#define LOOK_MS 20

static bool is_in_state(pid_t pid, char state) {
    struct proc_stat st;
    return proc_read_stat(pid, &st) && st.state == state;
}

static bool has_died(const struct pollfd *pidfd, pid_t pid) {
    return pidfd->fd >= 0 ? pidfd->revents != 0 : is_in_state(pid, 'Z');
}

_noreturn_ static void deputy_main(const struct suspend_config *c, pid_t guardian) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "muster-deputy", 0, 0, 0);
    c->begin(c->arg);
    struct pollfd p[2] = {{.events = POLLIN}, {.fd = c->lease_fd, .events = POLLIN}};
    p[0].fd = (int)syscall(SYS_pidfd_open, c->agent, 0); /* -1 before Linux 5.3 */
    bool told = false;
    while (getppid() == guardian) {
        (void)poll(p, 2, told && p[0].fd >= 0 ? -1 : LOOK_MS);
        if (p[1].revents != 0)
            c->lease_over(c->arg);
        if (!told && is_in_state(guardian, 'T')) {
            told = true;
            (void)kill(c->agent, SIGTSTP);
        }
        if (!has_died(&p[0], c->agent))
            continue;
        /* Repeated, because it can have come before the guardian stopped. */
        (void)kill(guardian, SIGCONT);
        (void)poll(NULL, 0, LOOK_MS);
    }
    _exit(0);
}

void suspend_self(const struct suspend_config *config) {
    const pid_t self = getpid();
    sigset_t tstp;
    (void)sigemptyset(&tstp);
    (void)sigaddset(&tstp, SIGTSTP);
    pid_t deputy = fork();
    if (deputy == 0)
        deputy_main(config, self);
    if (deputy < 0)
        return;
    (void)signal(SIGTSTP, SIG_DFL);
    (void)kill(self, SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &tstp, NULL); /* stops here; returns when it is continued */
    (void)sigprocmask(SIG_BLOCK, &tstp, NULL);
    (void)signal(SIGTSTP, SIG_IGN);
    (void)kill(deputy, SIGKILL);
    (void)waitpid(deputy, NULL, 0);
}
