/* Workers that were taken from the pool: until they have answered the go, they can still be started
 * cold, because no line of the script has run. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "launcher/supervise/worker_priv.h"

/* A worker whose answer is awaited. */
struct worker_warm {
    struct worker *worker;
    int fd;
    struct loop_watch *heard;
    struct loop_timer *timer;
    struct child_spec *cold; /* how it is started otherwise, with descriptors of its own */
    bool refused;            /* it was killed; its end is awaited */
    char reason[WARM_REASON_MAX];
};

void worker_warm_free(struct worker *w) {
    struct worker_warm *warm = TAKE_PTR(w->warm);
    if (warm == NULL)
        return;
    loop_watch_free(warm->heard);
    loop_timer_free(warm->timer);
    file_close(&warm->fd);
    file_close(&warm->cold->stdin_fd);
    file_close(&warm->cold->stdout_fd);
    file_close(&warm->cold->stderr_fd);
    child_spec_free(warm->cold);
    free(warm);
    warm_pool_answered(w->group->config.warm);
}

/* The first reason counts. */
static void set_reason(struct worker_warm *warm, const char *reason) {
    if (warm->reason[0] == '\0')
        (void)snprintf(warm->reason, sizeof warm->reason, "%s", reason);
}

/* It ends without having begun: worker_warm_ended() starts it cold. After shutdown() it can't
 * answer any more, and does not begin then. */
static void refuse(struct worker_warm *warm) {
    warm->refused = true;
    (void)shutdown(warm->fd, SHUT_RDWR);
    loop_timer_set(warm->timer, clock_now_ns() + WARM_GO_NS);
    loop_watch_set(warm->heard, 0);
    (void)!child_watch_kill(warm->worker->watch, SIGKILL);
}

static void start_cold(struct worker_warm *warm) {
    struct worker *w = warm->worker;
    warm_pool_refused(w->group->config.warm, w->index, warm->reason);
    w->was_warm = false;
    worker_spawn(w, warm->cold);
    worker_warm_free(w);
    if (w->watch == NULL)
        worker_ended(w, NULL);
}

/* 1: it has begun; 0: it will not; -EAGAIN: it has not answered. */
static int hear(struct worker_warm *warm) {
    char text[4096];
    struct warm_heard heard;
    struct err err = {0};
    ssize_t n = recv(warm->fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n <= 0 || warm_read(text, (size_t)n, &heard, &err) < 0 || heard.kind == WARM_READY) {
        set_reason(warm, "its process has ended");
        return 0;
    }
    if (heard.kind == WARM_GOING)
        return 1;
    set_reason(warm, heard.reason);
    return 0;
}

static void on_answer(void *arg, int fd, unsigned events) {
    struct worker_warm *warm = arg;
    (void)fd;
    (void)events;
    int r = hear(warm);
    if (r == 1)
        worker_warm_free(warm->worker);
    else if (r == 0)
        refuse(warm);
}

/* What has come before counts, also if this process itself did not run for a while. One that was
 * killed and is still there is held by a debugger, or by a disk: the job does not wait for them. */
static void on_late(void *arg) {
    struct worker_warm *warm = arg;
    if (warm->refused) {
        if (warm->worker->group->machine.state == WORKER_STATE_RUNNING) {
            child_watch_let_go(TAKE_PTR(warm->worker->watch));
            start_cold(warm);
        }
        return;
    }
    set_reason(warm, "its process did not begin within a second");
    (void)shutdown(warm->fd, SHUT_RDWR);
    if (hear(warm) == 1)
        worker_warm_free(warm->worker);
    else
        refuse(warm);
}

static int keep_fd(int *fd) {
    if (*fd < 0)
        return 0;
    *fd = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    return *fd < 0 ? -errno : 0;
}

/* The caller closes its own. */
static int keep_fds(struct child_spec *spec) {
    int in = keep_fd(&spec->stdin_fd), out = keep_fd(&spec->stdout_fd);
    int err = keep_fd(&spec->stderr_fd);
    return in < 0 ? in : out < 0 ? out : err;
}

bool worker_warm_start(struct worker *w, const struct child_spec *spec) {
    struct worker_group *g = w->group;
    struct warm_taken taken;
    if (spec->stdout_fd < 0 || spec->stderr_fd < 0 ||
        !warm_pool_take(g->config.warm, w->index, spec, &taken))
        return false;
    struct worker_warm *warm = xcalloc(1, sizeof *warm);
    warm->worker = w;
    warm->fd = taken.control_fd;
    warm->cold = child_spec_copy(spec);
    warm->cold->report_fd = -1;
    w->warm = warm;
    w->was_warm = true;
    w->watch = taken.watch;
    w->session = taken.pid;
    worker_hand_over(w);
    int r = keep_fds(warm->cold);
    if (r == 0)
        r = loop_watch_new(g->loop, warm->fd, LOOP_READ, LOOP_PRIO_CHILD, on_answer, warm,
                           &warm->heard);
    if (r == 0)
        r = loop_timer_new(g->loop, on_late, warm, &warm->timer);
    if (r == 0)
        loop_timer_set(warm->timer, clock_now_ns() + WARM_GO_NS);
    else
        worker_warm_free(w); /* it goes on; if it can't begin, it has failed */
    return true;
}

bool worker_warm_ended(struct worker *w) {
    struct worker_group *g = w->group;
    struct worker_warm *warm = w->warm;
    if (warm == NULL)
        return false;
    if (hear(warm) == 1 || g->machine.state != WORKER_STATE_RUNNING) {
        worker_warm_free(w);
        return false;
    }
    set_reason(warm, "its process has ended");
    child_watch_free(TAKE_PTR(w->watch));
    start_cold(warm);
    return true;
}
