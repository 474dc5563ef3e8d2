#include "launcher/ssh/ssh_suspend_io.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/process/child.h"
#include "launcher/ssh/ssh_wire.h"

/* A frame so small is sent whole or, where the socket is full, not at all; then the relay still has
 * to read what came before. */
static void ping(const int *fds, size_t n, const struct strbuf *frame) {
    for (size_t i = 0; i < n; i++) {
        ssize_t sent = send(fds[i], frame->data, frame->len, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* a relay that has ended is the head's matter */
    }
}

_noreturn_ static void deputy_main(pid_t head, const int *fds, size_t n) {
    _cleanup_(strbuf_fini) struct strbuf frame = {0};
    child_reset_signals(NULL, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)prctl(PR_SET_NAME, "muster-deputy", 0, 0, 0);
    (void)setpgid(0, 0); /* what the shell sends to the head's group is not for it */
    ssh_add(&(struct ssh_message){.kind = SSH_PING}, &frame);
    while (getppid() == head) {
        ping(fds, n, &frame);
        (void)poll(NULL, 0, (int)(SSH_PING_NS / NS_PER_MS));
    }
    _exit(0);
}

/* Signals are blocked until the copy has its own dispositions: this process's handlers write to the
 * loop that both share. */
static pid_t start_deputy(const int *fds, size_t n) {
    sigset_t all, before;
    const pid_t self = getpid();
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        deputy_main(self, fds, n);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

void ssh_suspend_self(const int *fds, size_t n) {
    struct sigaction by_default = {.sa_handler = SIG_DFL}, before;
    pid_t deputy = start_deputy(fds, n);
    if (deputy < 0)
        return;
    (void)sigaction(SIGTSTP, &by_default, &before);
    (void)kill(getpid(), SIGTSTP); /* stops here; returns when it is continued */
    (void)sigaction(SIGTSTP, &before, NULL);
    (void)kill(deputy, SIGKILL);
    (void)waitpid(deputy, NULL, 0);
}
