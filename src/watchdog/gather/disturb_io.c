#include "watchdog/gather/disturb_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper_call.h"

#define PROGRAM "eu-stack"
#define NOT_FOUND "\n" /* said by the helper itself: no stack begins like that */

bool disturb_may_attach(const struct evidence_thread *main) {
    return main->state != 0 && main->state != 'D' && main->state != 'Z' && main->state != 't' &&
           strstr(main->wchan, "fuse") == NULL && strcmp(main->wchan, "request_wait_answer") != 0;
}

static int run(int fd, void *arg) {
    char pid[16];
    (void)snprintf(pid, sizeof pid, "%d", *(const int32_t *)arg);
    if (dup2(fd, STDOUT_FILENO) >= 0)
        (void)execlp(PROGRAM, PROGRAM, "-p", pid, (char *)NULL);
    return helper_send(fd, NOT_FOUND, 1) ? 127 : 1;
}

void disturb_native_stack(struct evidence_worker *w, uint64_t deadline_ns) {
    uint64_t now = clock_now_ns();
    struct helper_call_config config = {.name = "muster-native",
                                        .run = run,
                                        .arg = &w->pid,
                                        .timeout_ns = deadline_ns > now ? deadline_ns - now : 0,
                                        .max_bytes = EVIDENCE_TEXT_MAX};
    struct helper_call *call = NULL;
    struct helper_answer a = {0};
    if (w->n_threads == 0 || w->ended)
        return;
    if (!disturb_may_attach(&w->threads[0])) {
        evidence_worker_gap(w, "native stack: not read, because process %d is in %s", (int)w->pid,
                            w->threads[0].wchan[0] != '\0' ? w->threads[0].wchan
                                                           : "a wait that can't be interrupted");
        return;
    }
    int r = helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r == 0) {
        helper_call_wait(call, &a);
        r = a.code;
    }
    if (r == 0 && a.len == 1 && a.data[0] == NOT_FOUND[0])
        evidence_worker_gap(w, "native stack: no " PROGRAM " in PATH (install elfutils)");
    else if (a.len > 0) /* also if it is not complete */
        w->native_stack = xstrndup(a.data, MIN2(a.len, (size_t)EVIDENCE_TEXT_MAX));
    if (r < 0)
        evidence_worker_gap(w, "native stack: " PROGRAM ": %s", strerror(-r));
    else if (a.len == 0)
        evidence_worker_gap(w, "native stack: " PROGRAM " said nothing");
    helper_call_free(call);
}

/* With a limit of 0 bytes there is no file, but a program that core_pattern names (core(5)) gets
 * the core all the same, however large it is. With 1 the kernel makes none (fs/coredump.c), but who
 * may have none may not ask for 1. */
static int forbid_core(pid_t pid) {
    static const struct rlimit none = {1, 1}, no_file = {0, 0};
    return prlimit(pid, RLIMIT_CORE, &none, NULL) == 0 ||
                   prlimit(pid, RLIMIT_CORE, &no_file, NULL) == 0
               ? 0
               : -errno;
}

int disturb_abort(pid_t pid) {
    if (pid <= 0)
        return -ESRCH;
    int r = forbid_core(pid);
    if (r < 0)
        return r;
    /* SIGABRT first: it is there when the process goes on. */
    if (kill(pid, SIGABRT) < 0 || kill(pid, SIGCONT) < 0)
        return -errno;
    return 0;
}
