#include "cli/jobs/screen_io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "io/clock.h"

/* ECMA-48 and xterm's private modes 1049 (alternate screen) and 25 (cursor). */
#define ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static volatile sig_atomic_t is_taken, is_stale; /* is_stale: it must be drawn again */
static pid_t owner; /* a child that gets a signal has no terminal to restore */
static struct termios typed;
static bool has_typed, is_closed; /* is_closed: nothing more can be typed */

static const int ends[] = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGPIPE,
                           SIGABRT, SIGBUS, SIGFPE,  SIGILL,  SIGSEGV};

static bool is_in_foreground(void) {
    pid_t group = tcgetpgrp(STDOUT_FILENO);
    return group < 0 || group == getpgrp(); /* < 0: it is not this session's terminal */
}

/* The functions below are called by handlers of signals, too. */
static void take(void) {
    is_taken = 1;
    has_typed = tcgetattr(STDIN_FILENO, &typed) == 0;
    if (has_typed) {
        struct termios keys = typed;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 1;
        keys.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    (void)!write(STDOUT_FILENO, ENTER, sizeof ENTER - 1);
}

void screen_leave(void) {
    if (is_taken == 0 || getpid() != owner)
        return;
    is_taken = 0;
    if (has_typed)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &typed);
    (void)!write(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
}

/* A signal that is ignored, as by nohup(1), stays so. */
static void handle(int signo, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(signo, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(signo, &action, NULL);
}

static void on_end(int signo) {
    screen_leave();
    (void)raise(signo); /* SA_RESETHAND, SA_NODEFER: it ends the process */
}

static void on_stop(int signo) {
    int saved = errno;
    screen_leave();
    handle(signo, SIG_DFL, SA_RESTART);
    (void)raise(signo);
    handle(signo, on_stop, SA_RESTART | SA_NODEFER);
    errno = saved;
}

static void on_change(int signo) { is_stale = 1; }

bool screen_is_possible(void) {
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0 && strcmp(term, "unknown") != 0;
}

bool screen_enter(void) {
    if (!is_in_foreground())
        return false;
    if (is_taken != 0)
        return true;
    if (owner == 0) {
        owner = getpid();
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
            handle(ends[i], on_end, (int)(SA_RESETHAND | SA_NODEFER));
        handle(SIGTSTP, on_stop, SA_RESTART | SA_NODEFER);
        handle(SIGCONT, on_change, SA_RESTART);
        handle(SIGWINCH, on_change, SA_RESTART);
    }
    take();
    return true;
}

uint32_t screen_columns(void) {
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct screen_size screen_size(void) {
    struct winsize size = {0};
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    return (struct screen_size){.rows = size.ws_row > 0 ? size.ws_row : 24,
                                .columns = size.ws_col > 0 ? size.ws_col : STATUS_COLUMNS};
}

int screen_write(const char *text, size_t len) {
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, text, len);
        if (n < 0 && errno == EAGAIN) /* a terminal that others made non-blocking */
            n = poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1) < 0 ? -1 : 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        text += MAX2(n, 0);
        len -= (size_t)MAX2(n, 0);
    }
    return 0;
}

static bool is_quit(void) {
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    is_closed = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    return n > 0 && memchr(keys, 'q', (size_t)n) != NULL;
}

enum screen_event screen_wait(uint64_t ns) {
    uint64_t until_ns = clock_now_ns() + ns;
    for (uint64_t now_ns; (now_ns = clock_now_ns()) < until_ns;) {
        if (is_stale != 0) {
            is_stale = 0;
            return SCREEN_REDRAW;
        }
        bool listens = has_typed && !is_closed && is_taken != 0 && is_in_foreground();
        struct pollfd keys = {.fd = listens ? STDIN_FILENO : -1, .events = POLLIN};
        if (poll(&keys, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) > 0 && is_quit())
            return SCREEN_QUIT;
    }
    return SCREEN_TIMEOUT;
}
