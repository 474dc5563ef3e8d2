#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/process/helper_call.h"
#include "io/process/proc.h"
#include "watchdog/evidence/disturb.h"

#define TOOL "eu-stack"
#define NOT_FOUND "\n"   /* sent by the helper itself: no stack begins like that */
#define PROCESSES_MAX 64 /* that are looked at for a Python program */
#define LAUNCHERS_MAX 4  /* of Python, one below the other */
#define AT_ONCE 4        /* processes whose stacks are read at the same time */
#define LOOKS_MAX 3      /* at a thread that runs, or sleeps, in turn */

static bool is_of_fuse(const char *wchan) {
    return strstr(wchan, "fuse") != NULL || strcmp(wchan, "request_wait_answer") == 0;
}

bool disturb_may_attach(char state, const char *wchan) {
    bool sleeps = state == 'S' || state == 'I';
    return state != 0 && strchr("RSITZX", state) != NULL && !is_of_fuse(wchan) &&
           !(sleeps && (wchan[0] == '\0' || strcmp(wchan, "0") == 0));
}

struct look {
    pid_t pid;
    uint64_t end_ns;
    char *why; /* [EVIDENCE_LINE_MAX] why not; "": it may be attached to */
};

/* A thread that has ended is not in the way. */
static bool look_at(pid_t pid, int tid, char *ret_state, char wchan[EVIDENCE_WORD_MAX]) {
    char name[PROC_PATH_MAX];
    struct proc_stat stat;
    *ret_state = proc_read_thread_stat(pid, tid, &stat) ? stat.state : 'X';
    (void)snprintf(name, sizeof name, "/task/%d/wchan", tid);
    ssize_t n = proc_read(pid, name, wchan, EVIDENCE_WORD_MAX - 1);
    wchan[n > 0 ? n : 0] = '\0';
    return *ret_state != 'X' && *ret_state != 'Z';
}

/* The kernel does not report where a thread waits that has just begun to run: it is checked
 * again. */
static void judge_thread(void *arg, int tid) {
    struct look *l = arg;
    char wchan[EVIDENCE_WORD_MAX], state;
    if (l->why[0] != '\0')
        return;
    if (clock_now_ns() >= l->end_ns)
        (void)snprintf(l->why, EVIDENCE_LINE_MAX, "no time was left");
    for (int i = 0; i < LOOKS_MAX; i++)
        if (!look_at(l->pid, tid, &state, wchan) || disturb_may_attach(state, wchan))
            return;
    if (strcmp(wchan, "0") == 0 || wchan[0] == '\0')
        (void)snprintf(l->why, EVIDENCE_LINE_MAX,
                       "not read, because what thread %d waits for (%c) can't be seen", tid, state);
    else
        (void)snprintf(l->why, EVIDENCE_LINE_MAX,
                       "not read, because thread %d is in %s (%c), which must not be disturbed",
                       tid, wchan, state);
}

/* Fills in why it may not be attached to. */
static void judge(pid_t pid, uint64_t end_ns, char why[EVIDENCE_LINE_MAX]) {
    struct look l = {.pid = pid, .end_ns = end_ns, .why = why};
    char path[PROC_PATH_MAX];
    pid_t tracer = proc_tracer(pid);
    why[0] = '\0';
    if (tracer > 0) {
        (void)snprintf(why, EVIDENCE_LINE_MAX, "not read, because process %d traces it",
                       (int)tracer);
        return;
    }
    proc_path(path, pid, "/task");
    int r = proc_each_number(path, judge_thread, &l);
    if (r < 0 && why[0] == '\0')
        (void)snprintf(why, EVIDENCE_LINE_MAX, "its threads can't be listed: %s", strerror(-r));
}

static int run(int fd, void *arg) {
    char pid[16];
    (void)snprintf(pid, sizeof pid, "%d", *(const int32_t *)arg);
    (void)unsetenv("DEBUGINFOD_URLS"); /* or it asks a server for each library */
    if (dup2(fd, STDOUT_FILENO) >= 0)
        (void)execlp(TOOL, TOOL, "-m", "-p", pid, (char *)NULL);
    return helper_send(fd, NOT_FOUND, 1) ? 127 : 1;
}

static struct helper_call *begin(struct evidence_worker *w, uint64_t end_ns) {
    char why[EVIDENCE_LINE_MAX];
    struct helper_call *call = NULL;
    if (w->ended)
        return NULL;
    judge(w->pid, end_ns, why);
    uint64_t now = clock_now_ns();
    struct helper_call_config config = {.name = "muster-native",
                                        .run = run,
                                        .arg = &w->pid,
                                        .timeout_ns = end_ns > now ? end_ns - now : 0,
                                        .max_bytes = NATIVE_OUTPUT_MAX};
    int r = why[0] != '\0' ? 0 : helper_call_new(NULL, &config, NULL, NULL, &call);
    if (why[0] != '\0')
        evidence_worker_gap(w, "native stack: %.200s", why);
    else if (r < 0)
        evidence_worker_gap(w, "native stack: no process could be started: %s", strerror(-r));
    return call;
}

static void take(struct evidence_worker *w, struct helper_call *call) {
    struct helper_answer a;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    helper_call_wait(call, &a);
    if (a.data[0] == NOT_FOUND[0]) {
        evidence_worker_gap(w, "native stack: " TOOL " is not installed (elfutils)");
        return;
    }
    native_shorten(a.data, EVIDENCE_TEXT_MAX, &text); /* also if it is not complete */
    if (a.code == -ETIMEDOUT)
        evidence_worker_gap(w, "native stack: " TOOL " did not end in time");
    else if (a.code < 0 && a.code != -EMSGSIZE)
        evidence_worker_gap(w, "native stack: " TOOL ": %s", strerror(-a.code));
    else if (text.len == 0)
        evidence_worker_gap(w,
                            "native stack: " TOOL
                            " printed nothing about process %d: tracing it may not be permitted",
                            (int)w->pid);
    if (text.len > 0)
        w->native_stack = strbuf_take(&text);
}

void disturb_native_stacks(struct evidence *e, uint64_t deadline_ns) {
    struct helper_call *calls[AT_ONCE] = {NULL};
    for (uint32_t i = 0; i < e->n_workers + AT_ONCE; i++) {
        struct helper_call **at = &calls[i % AT_ONCE];
        if (*at != NULL)
            take(&e->workers[i - AT_ONCE], *at);
        helper_call_free(*at);
        *at = i < e->n_workers ? begin(&e->workers[i], deadline_ns) : NULL;
    }
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

struct programs {
    pid_t pids[PROCESSES_MAX]; /* a process, and what stems from it without Python above it */
    uint32_t n, n_python;
    pid_t python;
};

static bool is_python(pid_t pid) {
    char path[PROC_PATH_MAX], exe[PATH_MAX];
    proc_path(path, pid, "/exe");
    ssize_t n = readlink(path, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    const char *name = strrchr(exe, '/');
    return name != NULL && strncmp(name + 1, "python", 6) == 0;
}

static void add_process(void *arg, int pid) {
    struct programs *p = arg;
    if (p->n == PROCESSES_MAX)
        p->n_python = PROCESSES_MAX; /* there may be more: which one is not known */
    else
        p->pids[p->n++] = pid;
}

/* The one Python program that this is, or that stems from it without Python in between; 0: none, or
 * several. */
static pid_t python_of(pid_t pid) {
    struct programs p = {.pids = {pid}, .n = 1};
    for (uint32_t i = 0; i < p.n; i++) {
        if (is_python(p.pids[i])) {
            p.python = p.pids[i];
            p.n_python++;
        } else {
            proc_each_child(p.pids[i], true, add_process, &p);
        }
    }
    return p.n_python == 1 ? p.python : 0;
}

struct children {
    pid_t first;
    uint32_t n;
};

static void count_child(void *arg, int pid) {
    struct children *c = arg;
    if (c->n++ == 0)
        c->first = pid;
}

/* The program that a launcher of Python merely waits for: its main thread is in waitpid(2), and it
 * has one child, which is another program. Those of a data loader or of multiprocessing are copies
 * of it, or there is also a "resource tracker". 0: it is not such a launcher, or that cannot be
 * seen. */
static pid_t launched_by(pid_t pid) {
    struct children c = {.n = 0};
    struct proc_stat own, its;
    char wchan[EVIDENCE_WORD_MAX], state;
    if (!look_at(pid, pid, &state, wchan) || state != 'S' || strcmp(wchan, "do_wait") != 0)
        return 0;
    proc_each_child(pid, true, count_child, &c);
    bool known = c.n == 1 && proc_read_stat(pid, &own) && proc_read_stat(c.first, &its);
    return known && own.stack != 0 && its.stack != 0 && own.stack != its.stack ? c.first : 0;
}

pid_t disturb_program(pid_t pid) {
    pid_t found = python_of(pid);
    for (int i = 0; i < LAUNCHERS_MAX && found != 0; i++) {
        pid_t child = launched_by(found), below = child != 0 ? python_of(child) : 0;
        if (below == 0)
            break;
        found = below;
    }
    return found != 0 ? found : pid;
}

bool disturb_can_handle(pid_t pid) {
    char wchan[EVIDENCE_WORD_MAX], state;
    return !look_at(pid, (int)pid, &state, wchan) || (state != 'D' && !is_of_fuse(wchan));
}

int disturb_abort_below(pid_t wrapper, pid_t program) {
    if (kill(wrapper, SIGSTOP) < 0)
        return -errno;
    int r = disturb_abort(program);
    if (r < 0)
        (void)kill(wrapper, SIGCONT);
    return r;
}

int disturb_abort(pid_t pid) {
    if (pid <= 0)
        return -ESRCH;
    int r = forbid_core(pid);
    if (r < 0)
        return r;
    /* SIGABRT first: it is pending when the process continues. */
    return kill(pid, SIGABRT) < 0 || kill(pid, SIGCONT) < 0 ? -errno : 0;
}
