#include "io/process/reaper.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/idmap.h"
#include "base/list.h"
#include "io/clock.h"

struct child_reaper {
    struct loop *loop;
    struct loop_signal *sigchld;
    struct list watches;
    struct idmap by_pid; /* watches whose children have not been reaped */
    bool due;            /* run_some() is scheduled */
    bool doomed;         /* and will free this */
};

struct child_watch {
    struct list link;
    struct child_reaper *reaper;
    struct child child; /* pid 0 once it has been reaped */
    struct loop_watch *pidfd_watch;
    child_zombie_fn *on_zombie;
    child_exit_fn *on_exit;
    void *arg;
    bool busy; /* inside a callback: it is freed afterwards */
    bool doomed;
    bool let_go; /* its owner has let it go: it is freed when the child has been reaped */
};

static void forget_pid(struct child_watch *w) {
    if (w->child.pid > 0 && idmap_get(&w->reaper->by_pid, (uint64_t)w->child.pid) == w)
        idmap_remove(&w->reaper->by_pid, (uint64_t)w->child.pid);
}

static void watch_release(struct child_watch *w) {
    list_remove(&w->link);
    forget_pid(w);
    loop_watch_free(w->pidfd_watch);
    child_fini(&w->child);
    free(w);
}

struct child_watch *child_reaper_find(const struct child_reaper *r, pid_t pid) {
    return pid > 0 ? idmap_get(&r->by_pid, (uint64_t)pid) : NULL;
}

/* Reaps the child if it has ended, and calls back. False: it can't be reaped now. */
static bool watch_reap(struct child_watch *w) {
    siginfo_t si = {0};
    if (w->busy || w->child.pid == 0 ||
        waitid(P_PID, (id_t)w->child.pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
        return false;
    struct child_status status = {
        .pid = w->child.pid,
        .signalled = si.si_code != CLD_EXITED,
        .code = si.si_status,
        .core_dumped = si.si_code == CLD_DUMPED,
        .at_ns = clock_now_ns(),
    };
    w->busy = true;
    if (w->on_zombie != NULL && !w->let_go)
        w->on_zombie(w->arg, w->child.pid);
    (void)waitid(P_PID, (id_t)w->child.pid, &si, WEXITED | WNOHANG);
    loop_watch_free(w->pidfd_watch);
    w->pidfd_watch = NULL;
    forget_pid(w);
    child_fini(&w->child);
    if (!w->doomed && !w->let_go)
        w->on_exit(w->arg, &status);
    w->busy = false;
    if (w->doomed || w->let_go)
        watch_release(w);
    return true;
}

/* If a traced child has ended, it can't be reaped until its tracer has waited for it or has ended;
 * then a SIGCHLD comes (ptrace(2)). Until then its pidfd would keep the loop busy. */
static void on_pidfd(void *arg, int fd, unsigned events) {
    struct child_watch *w = arg;
    if (!watch_reap(w) && !w->busy)
        loop_watch_set(w->pidfd_watch, 0);
}

/* Reaps one child that has ended. False: there is none, or it is being reaped now. */
static bool take_one(struct child_reaper *r) {
    siginfo_t si = {0};
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
        return false;
    struct child_watch *w = child_reaper_find(r, si.si_pid);
    if (w != NULL && w->busy) /* called from inside its own callback, which reaps it */
        return false;
    if (w != NULL)
        return watch_reap(w);
    return waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG) == 0;
}

static void run_some(void *arg);

static void run_soon(struct child_reaper *r) {
    if (r->due)
        return;
    r->due = true;
    loop_defer(r->loop, LOOP_PRIO_CHILD, run_some, r);
}

/* Reaps as many as a turn of the loop has time for. */
static void run_some(void *arg) {
    struct child_reaper *r = arg;
    bool more = false;
    while (!r->doomed && !more && take_one(r))
        more = loop_slice_is_over(r->loop);
    r->due = false;
    if (r->doomed)
        free(r);
    else if (more)
        run_soon(r);
}

static void on_sigchld(void *arg, int signo) { run_soon(arg); }

struct child_reaper *child_reaper_new(struct loop *loop) {
    struct child_reaper *r = xcalloc(1, sizeof *r);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL); /* a parent can start a program with it blocked */
    r->loop = loop;
    list_init(&r->watches);
    r->sigchld = loop_signal_new(loop, SIGCHLD, on_sigchld, r);
    loop_set_reaper(loop, r);
    return r;
}

void child_reaper_free(struct child_reaper *r) {
    if (r == NULL)
        return;
    LIST_FOR_EACH(struct child_watch, w, &r->watches, link)
        if (w->let_go)
            watch_release(w);
    assert(list_empty(&r->watches));
    loop_set_reaper(r->loop, NULL);
    loop_signal_free(r->sigchld);
    idmap_fini(&r->by_pid);
    r->doomed = true;
    if (!r->due)
        free(r);
}

void child_reaper_run(struct child_reaper *r) {
    while (take_one(r))
        ;
}

struct child_watch *child_watch_new(struct child_reaper *r, const struct child *c,
                                    child_zombie_fn *on_zombie, child_exit_fn *on_exit, void *arg) {
    struct child_watch *w = xcalloc(1, sizeof *w);
    w->reaper = r;
    w->child = *c;
    w->on_zombie = on_zombie;
    w->on_exit = on_exit;
    w->arg = arg;
    if (c->pidfd >= 0)
        w->pidfd_watch = loop_watch_new(r->loop, c->pidfd, LOOP_READ, LOOP_PRIO_CHILD, on_pidfd, w);
    list_append(&r->watches, &w->link);
    idmap_put(&r->by_pid, (uint64_t)c->pid, w);
    return w;
}

void child_watch_free(struct child_watch *w) {
    if (w == NULL)
        return;
    w->doomed = true;
    if (!w->busy)
        watch_release(w);
}

void child_watch_let_go(struct child_watch *w) {
    if (w == NULL)
        return;
    w->let_go = true;
    if (!w->busy && w->child.pid == 0)
        watch_release(w);
}

void child_watch_hand_over(struct child_watch *w, child_zombie_fn *on_zombie,
                           child_exit_fn *on_exit, void *arg) {
    w->on_zombie = on_zombie;
    w->on_exit = on_exit;
    w->arg = arg;
}

bool child_watch_alive(const struct child_watch *w) { return w->child.pid != 0; }

pid_t child_watch_pid(const struct child_watch *w) { return w->child.pid; }

void *child_watch_arg(const struct child_watch *w) { return w->arg; }

int child_watch_kill(const struct child_watch *w, int signo) {
    return w->child.pid != 0 ? child_kill(&w->child, signo) : -ESRCH;
}

int child_watch_kill_group(const struct child_watch *w, int signo) {
    if (w->child.pid == 0)
        return -ESRCH;
    if (kill(-w->child.pid, signo) == 0) /* not reaped, so the group id still belongs to it */
        return 0;
    /* it has not called setsid() yet */
    return errno == ESRCH ? child_kill(&w->child, signo) : -errno;
}
