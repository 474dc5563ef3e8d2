#include "launcher/ends/witness_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "io/process/helper.h"
#include "io/process/proc.h"

#define SIGNALS_MAX 64
/* arg_start in /proc/PID/stat, counted from the field after the name; then arg_end. proc(5) */
#define STAT_ARG_START 46
#define STAT_MAX 4096

/* What the witness writes: less than PIPE_BUF, so a record comes in one piece. */
struct record {
    int signo; /* 0: it watches from now on */
    uint64_t at_ns;
};

struct witness {
    struct helper helper;
    struct loop_watch *watch;
    int fd;
    bool ready;
    witness_fn *fn;
    void *arg;
};

/* --- in the witness --- */

/* The kernel shows these bytes of the process as its command line. */
static void overwrite_command_line(void) {
    char text[STAT_MAX];
    unsigned long start = 0, end = 0;
    ssize_t n = proc_read(0, "/stat", text, sizeof text - 1);
    text[MAX2(n, 0)] = '\0';
    char *at = strrchr(text, ')');
    for (int i = 0; at != NULL && i < STAT_ARG_START; i++)
        at = strchr(at + 1, ' ');
    if (at == NULL || sscanf(at, " %lu %lu", &start, &end) != 2 || end <= start)
        return;
    char *line = program_invocation_name; /* argv[0]; our own copy, since the fork */
    if ((uintptr_t)line != start)
        return; /* an emulator or valgrind shows a command line of its own */
    memset(line, 0, end - start);
    (void)snprintf(line, end - start, "%s", WITNESS_NAME);
}

static int watch_signals(int fd, void *arg) {
    const sigset_t *set = arg;
    struct record r = {.signo = 0};
    siginfo_t info;
    (void)setsid();                            /* it leads no process group */
    (void)sigprocmask(SIG_SETMASK, set, NULL); /* ignored ones, too, are kept while blocked */
    overwrite_command_line();
    while (helper_send(fd, &r, sizeof r)) {
        do
            r.signo = sigwaitinfo(set, &info);
        while (r.signo < 0 && errno == EINTR);
        r.at_ns = clock_now_ns();
    }
    return 0;
}

/* --- in the agent --- */

static void watches(struct witness *w) {
    w->ready = true;
    log_debug("the witness of signals watches (process %d)", (int)witness_pid(w));
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct witness *w = arg;
    struct record r;
    ssize_t n = read(fd, &r, sizeof r);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof r) { /* it was killed */
        w->ready = false;
        loop_watch_set(w->watch, 0);
    } else if (r.signo == 0) {
        watches(w);
    } else {
        w->fn(w->arg, r.signo, r.at_ns);
    }
}

int witness_new(struct loop *loop, const int *signals, size_t n, witness_fn *fn, void *arg,
                struct witness **ret) {
    sigset_t set;
    _cleanup_(file_close) int theirs = -1;
    struct witness *w = xcalloc(1, sizeof *w);
    assert(n <= SIGNALS_MAX);
    w->helper = (struct helper)HELPER_INIT;
    w->fd = -1;
    w->fn = fn;
    w->arg = arg;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < n; i++)
        (void)sigaddset(&set, signals[i]);
    int r = child_pipe(&w->fd, &theirs);
    if (r == 0)
        r = helper_start(loop, WITNESS_NAME, watch_signals, &set, theirs, &w->helper);
    if (r == 0)
        w->watch = loop_watch_new(loop, w->fd, LOOP_READ, LOOP_PRIO_LEASE, on_readable, w);
    if (r < 0)
        witness_free(w);
    else
        *ret = w;
    return r;
}

pid_t witness_pid(const struct witness *w) { return helper_pid(&w->helper); }

bool witness_is_ready(struct witness *w) {
    struct record r;
    if (w == NULL)
        return false;
    if (!w->ready && read(w->fd, &r, sizeof r) == sizeof r && r.signo == 0)
        watches(w);
    return w->ready;
}

void witness_free(struct witness *w) {
    if (w == NULL)
        return;
    loop_watch_free(w->watch);
    helper_end(&w->helper);
    file_close(&w->fd);
    free(w);
}
