#include "launcher/supervise/sweep_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"

/* All but walks and sweep_read_variable() may run in a signal handler: no heap, stdio or locks. */

#define NAME_MAX_BYTES 120
#define QUEUE_MAX 4096   /* the most processes of one pass; the next pass finds the others */
#define PIDS_MAX 4194304 /* the kernel's limit */
#define PIDS_AT_ONCE 32768

/* True if all its threads have ended, too: the main thread of a zombie is counted. */
static bool has_ended(const struct proc_stat *st) {
    return st->state == 'X' || (st->state == 'Z' && st->threads <= 1);
}

/* --- one pass --- */

struct found {
    pid_t pid, parent;
};

struct sweep_walk {
    pid_t self; /* whose children are killed by pid */
    pid_t top;  /* whose descendants are killed */
    struct sweep_except except;
    struct sweep_result result;
    pid_t parent; /* the process whose children are being listed */
    /* other code has run since the pass began, so processes that it found can have been reaped */
    bool resumed;
    uint32_t at, n; /* in the queue: the next process, and how many there are */
    struct found queue[QUEUE_MAX];
};

static bool excepted(const struct sweep_except *except, pid_t pid) {
    const struct spare *s = except->spare;
    for (int i = 0; i < SPARE_MAX && s != NULL; i++)
        if (atomic_load(&s->pids[i]) == pid && sweep_is_named(pid, SPARE_NAMES))
            return true;
    return pid == except->also;
}

static void queue_child(void *arg, pid_t pid) {
    struct sweep_walk *w = arg;
    bool child = w->parent == w->self || w->parent == w->top;
    if (w->n < QUEUE_MAX && !(child && excepted(&w->except, pid)))
        w->queue[w->n++] = (struct found){.pid = pid, .parent = w->parent};
}

/* Of w->parent. */
static void list_children(struct sweep_walk *w) {
    bool file = (w->except.without & SWEEP_WITHOUT_CHILDREN_FILE) == 0;
    proc_each_child(w->parent, file, queue_child, w);
}

/* Not our child. *ret_alive: it has the parent with which it was found, and has not ended. */
static int signal_deeper(const struct sweep_walk *w, const struct found *f, int signo,
                         bool *ret_alive) {
    int fd = w->except.without & SWEEP_WITHOUT_PIDFD ? -1 : (int)syscall(SYS_pidfd_open, f->pid, 0);
    int r = 0;
    struct proc_stat st;
    /* This is read after the pidfd was opened. If the pid now belongs to another process, its
     * parent shows that. If it belongs to another process later, the pidfd does not follow. */
    *ret_alive = proc_read_stat(f->pid, &st) && (st.parent == f->parent || st.parent == w->top) &&
                 !has_ended(&st);
    if (*ret_alive && fd >= 0)
        r = (int)syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
    else if (*ret_alive && (w->top != w->self || signo != SIGKILL))
        r = kill(f->pid, signo); /* it will not become our child */
    int error = errno;
    if (*ret_alive && fd >= 0 && signo == SIGTERM)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
    file_close(&fd);
    return r < 0 ? -error : 0;
}

static int signal_own(struct sweep_walk *w, const struct found *f, int signo, bool *ret_alive) {
    struct proc_stat st;
    *ret_alive = false;
    if (w->resumed && (!proc_read_stat(f->pid, &st) || st.parent != w->self))
        return 0;
    int r = kill(f->pid, signo) < 0 ? -errno : 0;
    if (signo == SIGTERM)
        (void)kill(f->pid, SIGCONT);
    *ret_alive = !proc_read_stat(f->pid, &st) || !has_ended(&st);
    if (!*ret_alive) {
        w->result.zombies++;
        w->result.zombie = f->pid;
    }
    return r;
}

/* Returns whether the process existed. */
static bool signal_found(struct sweep_walk *w, const struct found *f, int signo) {
    bool alive;
    int r =
        f->parent == w->self ? signal_own(w, f, signo, &alive) : signal_deeper(w, f, signo, &alive);
    if (!alive)
        return false;
    w->result.alive++;
    if (w->result.example == 0) /* the others may be its children, and short-lived */
        w->result.example = f->pid;
    if (r == -EPERM)
        w->result.unkillable = f->pid;
    if (r == 0 && signo != 0 && w->except.sent != NULL)
        w->except.sent(w->except.arg, f->pid);
    return true;
}

/* Every process is signalled before its children are listed: after SIGKILL they can only become
 * fewer. If reaped meanwhile, its children have another parent, and its pid may be reused. */
static void run_one(struct sweep_walk *w, uint32_t i) {
    const struct found *f = &w->queue[i];
    const struct sweep_except *e = &w->except;
    int signo = e->seen != NULL ? e->seen(e->arg, f->pid, f->parent == w->self) : SIGKILL;
    if (signo == SWEEP_SPARE)
        return;
    if (!signal_found(w, f, signo) && w->resumed)
        return;
    w->parent = w->queue[i].pid;
    list_children(w);
}

/* Lists children of this process without /proc: asks for each pid, 0.5 us each. Most children have
 * a pid shortly after ours, so the search ends after the first part in which there is one. */
static void list_own_by_pid(struct sweep_walk *w) {
    siginfo_t si;
    pid_t pid = w->self;
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0)
        return; /* there is none */
    for (int i = 1; i < PIDS_MAX && (w->n == 0 || i % PIDS_AT_ONCE != 0); i++) {
        pid = pid + 1 < PIDS_MAX ? pid + 1 : 1;
        if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0)
            queue_child(w, pid);
    }
}

bool sweep_read_variable(pid_t pid, const char *name, char *out, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf env = {0};
    char path[PROC_PATH_MAX];
    const size_t len = strlen(name);
    proc_path(path, pid, "/environ");
    (void)file_add_text(AT_FDCWD, path, &env);
    for (size_t at = 0; at < env.len; at += strlen(env.data + at) + 1)
        if (strncmp(env.data + at, name, len) == 0 && env.data[at + len] == '=') {
            (void)snprintf(out, size, "%s", env.data + at + len + 1);
            return true;
        }
    return false;
}

/* Breadth first. */
bool sweep_walk_go_on(struct sweep_walk *w, uint64_t until_ns, struct sweep_result *ret) {
    while (w->at < w->n) {
        run_one(w, w->at++);
        if (w->at < w->n && clock_now_ns() >= until_ns) {
            w->resumed = true;
            return false;
        }
    }
    *ret = w->result;
    return true;
}

static void begin(struct sweep_walk *w, pid_t top, const struct sweep_except *except) {
    w->self = getpid();
    w->top = w->parent = top;
    w->except = except != NULL ? *except : (struct sweep_except){0};
    w->result = (struct sweep_result){0};
    w->resumed = false;
    w->at = w->n = 0;
}

void sweep_pass(const struct sweep_except *except, struct sweep_result *ret) {
    struct sweep_walk w;
    begin(&w, getpid(), except);
    if (proc_is_ours())
        list_children(&w);
    else
        list_own_by_pid(&w);
    (void)!sweep_walk_go_on(&w, TIME_NEVER, ret);
}

void sweep_pass_below(pid_t top, const struct sweep_except *except, struct sweep_result *ret) {
    struct sweep_walk w;
    begin(&w, top, except);
    list_children(&w);
    (void)!sweep_walk_go_on(&w, TIME_NEVER, ret);
}

struct sweep_walk *sweep_walk_new(void) {
    return xcalloc(1, sizeof(struct sweep_walk));
}

void sweep_walk_free(struct sweep_walk *w) { free(w); }

void sweep_walk_begin(struct sweep_walk *w, const struct sweep_except *except) {
    begin(w, getpid(), except);
    list_children(w);
}

/* --- until nothing is left --- */

pid_t sweep_stuck_one(const struct sweep_result *r) {
    return r->unkillable != 0 ? r->unkillable : r->example != 0 ? r->example : r->zombie;
}

static void await_sigchld(uint64_t ns) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    (void)sigtimedwait(&set, NULL, &ts);
}

/* False if there are no children at all. */
static bool reap_ended(void) {
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    return pid == 0;
}

void sweep_all(const struct sweep_except *except, uint64_t unkillable_ns, sweep_stuck_fn *on_stuck,
               void *arg) {
    uint64_t stuck_ns = clock_now_ns() + unkillable_ns, wait_ns = NS_PER_MS;
    bool reported = false;
    while (reap_ended()) {
        struct sweep_result result;
        sweep_pass(except, &result);
        /* Own children are listed until this function reaps them: an empty list is proof. */
        if (result.alive + result.zombies == 0)
            return;
        if (!reported && clock_now_ns() >= stuck_ns) {
            reported = true;
            if (on_stuck != NULL)
                on_stuck(arg, sweep_stuck_one(&result));
        }
        if (!reap_ended())
            return;
        await_sigchld(wait_ns);
        wait_ns = MIN2(wait_ns * 2, 50 * NS_PER_MS);
    }
}

pid_t sweep_parent(pid_t pid) {
    struct proc_stat st;
    return proc_read_stat(pid, &st) ? st.parent : 0;
}

bool sweep_is_named(pid_t pid, const char *begin) {
    char comm[32];
    size_t len = strlen(begin);
    return pid > 0 && proc_read(pid, "/comm", comm, MIN2(len, sizeof comm)) == (ssize_t)len &&
           memcmp(comm, begin, len) == 0;
}

/* Adds "process 123, python3 train.py"; for one that has ended "process 123, (python3)". */
static char *add_name(char *at, pid_t pid) {
    char line[NAME_MAX_BYTES];
    ssize_t n = proc_read(pid, "/cmdline", line, sizeof line - 1);
    at = proc_put_number(proc_put_text(at, "process "), pid);
    if (n == 0) {
        n = proc_read(pid, "/comm", line + 1, sizeof line - 3);
        if (n > 0) {
            line[0] = '(';
            line[n] = ')'; /* replaces the newline */
            n++;
        }
    }
    if (n <= 0)
        return at;
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    while (n > 0 && line[n - 1] == ' ')
        n--;
    line[n] = '\0';
    return proc_put_text(proc_put_text(at, ", "), line);
}

bool sweep_has_ended(pid_t pid) {
    struct proc_stat st;
    return proc_is_ours() && (!proc_read_stat(pid, &st) || has_ended(&st));
}

bool sweep_is_detached(pid_t pid) {
    pid_t session = getsid(pid);
    return session > 0 && session != getsid(0) && !sweep_has_ended(pid);
}

void sweep_name(pid_t pid, char out[SWEEP_NAME_MAX]) { (void)add_name(out, pid); }

void sweep_describe(pid_t pid, char out[SWEEP_NAME_MAX]) {
    struct proc_stat st;
    pid_t tracer = proc_tracer(pid);
    char *at = add_name(out, pid);
    if (!proc_read_stat(pid, &st))
        return;
    if (tracer > 0 && has_ended(&st)) {
        at = add_name(proc_put_text(at, " (it has ended, and is held by its tracer, "), tracer);
    } else {
        at = proc_put_text(at, " (state ");
        *at++ = st.state;
        *at = '\0';
        if (tracer > 0)
            at = add_name(proc_put_text(at, ", traced by "), tracer);
    }
    (void)proc_put_text(at, ")");
}

/* ==== helpers that are spared ==== */

#define WAIT_NS (2 * NS_PER_MS)

void spare_add(struct spare *s, pid_t pid) {
    if (s == NULL)
        return;
    unsigned at = atomic_fetch_add(&s->n, 1);
    for (unsigned i = 0;
         i < SPARE_MAX && sweep_is_named(atomic_load(&s->pids[at % SPARE_MAX]), SPARE_NAMES); i++)
        at++;
    atomic_store(&s->pids[at % SPARE_MAX], pid);
}

bool spare_lives(struct spare *s, const char *name) {
    for (int i = 0; i < SPARE_MAX && s != NULL; i++)
        if (sweep_is_named(atomic_load(&s->pids[i]), name))
            return true;
    return false;
}

void spare_end(struct spare *s, uint64_t ns) {
    for (int i = 0; i < SPARE_MAX && s != NULL; i++) {
        pid_t pid = atomic_load(&s->pids[i]);
        if (!sweep_is_named(pid, SPARE_NAMES) || sweep_parent(pid) != getpid())
            continue;
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, WNOHANG) == 0 && ns >= WAIT_NS) {
            struct timespec ts = {.tv_nsec = (long)WAIT_NS};
            (void)nanosleep(&ts, NULL);
            ns -= WAIT_NS;
        }
    }
}
