#include "io/reaper.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/list.h"
#include "io/clock.h"

struct child_reaper {
    struct loop *loop;
    struct loop_signal *sigchld;
    struct list watches;
};

struct child_watch {
    struct list link;
    struct child_reaper *reaper;
    struct child child; /* pid 0 once it has been reaped */
    struct loop_watch *pidfd_watch;
    child_zombie_fn *on_zombie;
    child_exit_fn *on_exit;
    void *arg;
    bool busy;   /* inside a callback: freed after it */
    bool doomed;
    bool let_go; /* nobody else's any more: freed when the child has been reaped */
};

static void watch_release(struct child_watch *w) {
    list_remove(&w->link);
    loop_watch_free(w->pidfd_watch);
    child_fini(&w->child);
    free(w);
}

static struct child_watch *find_watch(const struct child_reaper *r, pid_t pid) {
    LIST_FOR_EACH(struct child_watch, w, &r->watches, link)
        if (w->child.pid == pid)
            return w;
    return NULL;
}

/* Takes the child if it has ended; calls back. */
static void watch_reap(struct child_watch *w) {
    siginfo_t si = {0};
    if (w->busy || w->child.pid == 0 ||
        waitid(P_PID, (id_t)w->child.pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
        return;
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
    child_fini(&w->child);
    if (!w->doomed && !w->let_go)
        w->on_exit(w->arg, &status);
    w->busy = false;
    if (w->doomed || w->let_go)
        watch_release(w);
}

static void on_pidfd(void *arg, int fd, unsigned events) {
    (void)fd;
    (void)events;
    watch_reap(arg);
}

static void on_sigchld(void *arg, int signo) {
    (void)signo;
    child_reaper_run(arg);
}

int child_reaper_new(struct loop *loop, struct child_reaper **ret) {
    struct child_reaper *r = xcalloc(1, sizeof *r);
    r->loop = loop;
    list_init(&r->watches);
    int x = loop_signal_new(loop, SIGCHLD, on_sigchld, r, &r->sigchld);
    if (x < 0) {
        free(r);
        return x;
    }
    loop_set_reaper(loop, r);
    *ret = r;
    return 0;
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
    free(r);
}

void child_reaper_run(struct child_reaper *r) {
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
            return;
        struct child_watch *w = find_watch(r, si.si_pid);
        if (w != NULL && w->busy) /* called from inside its own callback, which reaps it */
            return;
        if (w != NULL)
            watch_reap(w);
        else
            (void)waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG);
    }
}

bool child_reaper_knows(const struct child_reaper *r, pid_t pid) {
    return find_watch(r, pid) != NULL;
}

void child_reaper_each(const struct child_reaper *r, child_each_fn *fn, void *arg) {
    LIST_FOR_EACH(struct child_watch, w, &r->watches, link)
        if (w->child.pid != 0)
            fn(arg, w->child.pid);
}

int child_watch_new(struct child_reaper *r, const struct child *c, child_zombie_fn *on_zombie,
                    child_exit_fn *on_exit, void *arg, struct child_watch **ret) {
    struct child_watch *w = xcalloc(1, sizeof *w);
    w->reaper = r;
    w->child = *c;
    w->on_zombie = on_zombie;
    w->on_exit = on_exit;
    w->arg = arg;
    if (c->pidfd >= 0) {
        int x = loop_watch_new(r->loop, c->pidfd, LOOP_READ, LOOP_PRIO_CHILD, on_pidfd, w,
                               &w->pidfd_watch);
        if (x < 0) {
            free(w);
            return x;
        }
    }
    list_append(&r->watches, &w->link);
    *ret = w;
    return 0;
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

bool child_watch_alive(const struct child_watch *w) { return w->child.pid != 0; }

pid_t child_watch_pid(const struct child_watch *w) { return w->child.pid; }

int child_watch_kill(const struct child_watch *w, int signo) {
    return w->child.pid != 0 ? child_kill(&w->child, signo) : -ESRCH;
}

int child_watch_kill_group(const struct child_watch *w, int signo) {
    if (w->child.pid == 0)
        return -ESRCH;
    if (kill(-w->child.pid, signo) == 0) /* not reaped: the group id is its own */
        return 0;
    return errno == ESRCH ? child_kill(&w->child, signo) : -errno; /* not yet past its setsid() */
}
