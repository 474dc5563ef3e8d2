#include "launcher/supervise/worker_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/worker_priv.h"

static void spawn(struct worker *w, const struct child_spec *spec);
static void warm_free(struct worker *w);
static bool warm_ended(struct worker *w);
static void start_no_more(struct worker_group *g);

/* ---- the end of the group ---- */

static void dispose(struct worker_group *g) {
    loop_defer_drop(g->loop, NULL, g);
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        warm_free(w);
        child_watch_free(w->watch);
        free(w->marker);
    }
    loop_timer_free(g->timer);
    sweep_walk_free(g->walk);
    idmap_fini(&g->asked);
    idmap_fini(&g->ports);
    strbuf_fini(&g->killed);
    free(g);
}

/* Around calls of the owner's functions. leave(): false if the group was freed. */
static void enter(struct worker_group *g) { g->busy++; }

static bool leave(struct worker_group *g) {
    if (--g->busy > 0 || !g->doomed)
        return !g->doomed;
    dispose(g);
    return false;
}

void worker_put_off(struct worker_group *g, enum loop_priority prio, loop_defer_fn *fn) {
    loop_defer_drop(g->loop, fn, g);
    loop_defer(g->loop, prio, fn, g);
}

void worker_group_free(struct worker_group *g) {
    if (g == NULL || g->doomed)
        return;
    g->doomed = true;
    bool kill_kept = !g->left && worker_group_kept(g) > 0;
    g->unwell = true;
    if (g->machine.state != WORKER_STATE_GONE || kill_kept)
        worker_sweep_now(g);
    if (g->busy == 0)
        dispose(g);
}

/* --- carrying out the machine's updates --- */

/* It will get the signal, or has got it from elsewhere. */
static void note_signal(struct worker *w, int signo) {
    if (signo > 0 && signo < 64)
        w->sent |= UINT64_C(1) << signo;
}

static void send_to(struct worker *w, int signo) {
    bool all = signo == SIGKILL, had = !all && w->started_ns < w->group->had_ns;
    if (w->watch == NULL)
        return;
    if (had || (all ? child_watch_kill_group : child_watch_kill)(w->watch, signo) == 0)
        note_signal(w, signo);
}

/* Some at a time: thousands of signals take longer than a turn of the loop. */
static void signal_some(void *arg) {
    struct worker_group *g = arg;
    g->signals = false;
    while (g->signal_at < g->n_tried) {
        struct worker *w = &g->workers[g->signal_at++];
        if (w->ended)
            continue;
        send_to(w, g->signal_no);
        if (g->signal_no != SIGKILL && w->watch != NULL)
            (void)!child_watch_kill_group(w->watch, SIGCONT);
        if (loop_slice_is_over(g->loop)) {
            g->signals = true;
            worker_put_off(g, LOOP_PRIO_BULK, signal_some);
            return;
        }
    }
}

/* A signal that is being sent continues; another one replaces it. */
static void signal_all(struct worker_group *g, int signo) {
    if (g->held && signo != SIGKILL) {
        g->held_no = signo;
        return;
    }
    g->held = false;
    if (g->signals && g->signal_no == signo)
        return;
    g->signal_no = signo;
    g->signal_at = 0;
    signal_some(g);
}

static void note_signal_to_all(struct worker_group *g, int signo) {
    for (uint32_t i = 0; i < g->n_tried; i++)
        if (!g->workers[i].ended)
            note_signal(&g->workers[i], signo);
}

void worker_group_hold(struct worker_group *g, int signo) {
    g->held = true;
    note_signal_to_all(g, signo);
}

void worker_group_release(struct worker_group *g, uint64_t had_ns) {
    bool waits = g->held && g->held_no != 0;
    g->held = false;
    g->had_ns = had_ns;
    if (waits)
        signal_all(g, g->held_no);
}

static void report_unkillable(struct worker_group *g) {
    pid_t pid = sweep_stuck_one(&g->last);
    for (uint32_t i = 0; i < g->n && pid == 0; i++)
        pid = worker_group_pid(g, i);
    if (pid == 0)
        return;
    char text[SWEEP_NAME_MAX];
    sweep_describe(pid, text);
    g->ops.on_unkillable(g->arg, pid, text);
}

static void report_waiting(struct worker_group *g) {
    uint64_t now_ns = clock_now_ns();
    if (g->last.example != 0)
        g->ops.on_waiting(g->arg, g->last.example,
                          g->machine.end_ns - MIN2(g->machine.end_ns, now_ns),
                          !g->machine.released);
}

static void apply(struct worker_group *g, const struct worker_update *update) {
    loop_timer_set(g->timer, g->machine.deadline_ns);
    if (update->signal_all != 0)
        signal_all(g, update->signal_all);
    if (update->kill_all) {
        note_signal_to_all(g, SIGKILL);
        worker_name_killed(g); /* the walk names what it finds alive */
        worker_sweep_all(g, WORKER_PASS_KILL, false);
        signal_all(g, SIGKILL);
    }
    enter(g);
    if (update->report_unkillable && g->ops.on_unkillable != NULL)
        report_unkillable(g);
    if (update->report_waiting && g->ops.on_waiting != NULL)
        report_waiting(g);
    if (update->all_gone && !g->doomed)
        g->ops.on_all_gone(g->arg);
    if (update->over && !g->doomed && g->ops.on_over != NULL)
        g->ops.on_over(g->arg);
    if (leave(g) && update->sweep != WORKER_PASS_NONE)
        worker_sweep_all(g, update->sweep, true);
}

void worker_step(struct worker_group *g, const struct worker_event *event) {
    struct worker_update update;
    worker_group_machine_step(&g->machine, event, &update);
    apply(g, &update);
}

static void on_timer(void *arg) {
    worker_step(arg, &(struct worker_event){.kind = WORKER_EVENT_TIMER, .now_ns = clock_now_ns()});
}

/* The owner's functions that these events lead to may free the group. */
static void end_all(struct worker_group *g, const struct worker_event *event) {
    enter(g);
    worker_keep_no_more(g);
    if (!g->doomed)
        worker_step(g, event);
    if (!g->doomed)
        start_no_more(g);
    (void)!leave(g);
}

void worker_group_stop(struct worker_group *g, int signo, uint64_t grace_ns) {
    end_all(g, &(struct worker_event){.kind = WORKER_EVENT_STOP,
                                      .now_ns = clock_now_ns(),
                                      .signo = signo,
                                      .grace_ns = grace_ns});
}

uint32_t worker_group_signal(struct worker_group *g, int signo, uint64_t before_ns) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_tried; i++) {
        const struct worker *w = &g->workers[i];
        n += !w->ended && w->watch != NULL && w->started_ns < before_ns &&
             child_watch_kill(w->watch, signo) == 0;
    }
    return n;
}

void worker_group_kill(struct worker_group *g) {
    end_all(g, &(struct worker_event){.kind = WORKER_EVENT_KILL, .now_ns = clock_now_ns()});
}

/* --- one worker's end --- */

/* Without standbys that have ended, as they are the first to be killed. */
static int64_t oom_kills_around(const struct worker_group *g) {
    uint32_t standbys = g->config.warm != NULL ? warm_pool_ended(g->config.warm) : 0;
    return (int64_t)cgroup_oom_kills(g->config.oom_file) - standbys;
}

static void has_ended(struct worker *w, const struct worker_exit *how) {
    struct worker_group *g = w->group;
    w->ended = true;
    g->unwell |= how == NULL || !child_succeeded(&how->status);
    struct worker_update update;
    struct worker_event event = {.kind = WORKER_EVENT_EXITED, .now_ns = clock_now_ns()};
    worker_group_machine_step(&g->machine, &event, &update);
    const enum worker_state state = g->machine.state;
    enter(g);
    if (how == NULL)
        g->ops.on_spawn_failed(g->arg, w->index, &w->start_err);
    else
        g->ops.on_exit(g->arg, w->index, how);
    if (!leave(g))
        return;
    if (how != NULL && g->machine.n_left > 0 && !worker_keeps(g))
        worker_ask_orphans(g);
    if (g->machine.state != state)
        update.sweep = WORKER_PASS_NONE; /* the owner has ended the group meanwhile */
    apply(g, &update);
}

static void on_worker_zombie(void *arg, pid_t pid) {
    struct worker *w = arg;
    siginfo_t si = {0};
    if (w->group->machine.state == WORKER_STATE_KILLING) {
        (void)kill(-pid, SIGKILL);
        return;
    }
    bool ok = waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
              si.si_code == CLD_EXITED && si.si_status == 0;
    if (!ok || !worker_keeps(w->group))
        worker_ask_process_group(w, pid);
}

static void on_worker_exit(void *arg, const struct child_status *status) {
    struct worker *w = arg;
    if (warm_ended(w))
        return;
    bool killed =
        child_killed_by(status, SIGKILL) || (!status->signalled && status->code == 128 + SIGKILL);
    struct worker_exit how = {.status = *status, .ran_ns = status->at_ns - w->started_ns};
    how.sent_by_us =
        status->signalled ? status->code < 64 && (w->sent >> status->code & 1) != 0 : w->sent != 0;
    how.oom = killed && !how.sent_by_us && w->group->config.oom_file != NULL &&
              oom_kills_around(w->group) > w->group->oom_before;
    if (w->was_warm && !how.sent_by_us && !how.oom && !killed && !child_succeeded(status))
        warm_pool_failed(w->group->config.warm, how.ran_ns);
    has_ended(w, &how);
}

/* ---- workers of the pool: until they answer the go, they can still be started cold ---- */

struct worker_warm {
    struct worker *worker;
    int fd;
    struct loop_watch *answer_watch;
    struct loop_timer *timer;
    struct child_spec *cold; /* how it is started otherwise, with descriptors of its own */
    bool refused;            /* it was killed; its end is awaited */
    char reason[WARM_REASON_MAX];
};

static void warm_free(struct worker *w) {
    struct worker_warm *warm = TAKE_PTR(w->warm);
    if (warm == NULL)
        return;
    loop_watch_free(warm->answer_watch);
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

/* It ends without having begun; after shutdown() it can't. warm_ended() starts it cold. */
static void refuse(struct worker_warm *warm) {
    warm->refused = true;
    (void)shutdown(warm->fd, SHUT_RDWR);
    loop_timer_set(warm->timer, clock_now_ns() + WARM_GO_NS);
    loop_watch_set(warm->answer_watch, 0);
    (void)!child_watch_kill(warm->worker->watch, SIGKILL);
}

static void start_cold(struct worker_warm *warm) {
    struct worker *w = warm->worker;
    warm_pool_refused(w->group->config.warm, w->index, warm->reason);
    w->was_warm = false;
    spawn(w, warm->cold);
    warm_free(w);
    if (w->watch == NULL)
        has_ended(w, NULL);
}

/* 1: it has begun; 0: it will not; -EAGAIN: it has not answered. */
static int read_answer(struct worker_warm *warm) {
    char text[4096];
    struct warm_message message;
    struct err err = {0};
    ssize_t n = recv(warm->fd, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n <= 0 || warm_read(text, (size_t)n, &message, &err) < 0 || message.kind == WARM_READY) {
        set_reason(warm, "its process has ended");
        return 0;
    }
    if (message.kind == WARM_GOING)
        return 1;
    set_reason(warm, message.reason);
    return 0;
}

static void on_answer(void *arg, int fd, unsigned events) {
    struct worker_warm *warm = arg;
    int r = read_answer(warm);
    if (r == 1)
        warm_free(warm->worker);
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
    if (read_answer(warm) == 1)
        warm_free(warm->worker);
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

static bool warm_start(struct worker *w, const struct child_spec *spec) {
    struct worker_group *g = w->group;
    struct warm_taken taken;
    if (spec->stdout_fd < 0 || spec->stderr_fd < 0 ||
        !warm_pool_take(g->config.warm, w->index, spec, &taken))
        return false;
    struct worker_warm *warm = xcalloc(1, sizeof *warm);
    warm->worker = w;
    warm->fd = taken.control_fd;
    warm->cold = child_spec_copy(spec);
    w->warm = warm;
    w->was_warm = true;
    w->watch = taken.watch;
    w->session = child_watch_pid(w->watch);
    child_watch_hand_over(w->watch, on_worker_zombie, on_worker_exit, w);
    warm->answer_watch =
        loop_watch_new(g->loop, warm->fd, LOOP_READ, LOOP_PRIO_CHILD, on_answer, warm);
    warm->timer = loop_timer_new(g->loop, on_late, warm);
    loop_timer_set(warm->timer, clock_now_ns() + WARM_GO_NS);
    if (keep_fds(warm->cold) < 0)
        warm_free(w); /* it continues; if it can't begin, it has failed */
    return true;
}

static bool warm_ended(struct worker *w) {
    struct worker_group *g = w->group;
    struct worker_warm *warm = w->warm;
    if (warm == NULL)
        return false;
    if (read_answer(warm) == 1 || g->machine.state != WORKER_STATE_RUNNING) {
        warm_free(w);
        return false;
    }
    set_reason(warm, "its process has ended");
    child_watch_free(TAKE_PTR(w->watch));
    start_cold(warm);
    return true;
}

/* ---- starting: as many as fit into a turn of the loop, the others in the next turns ---- */

static void spawn(struct worker *w, const struct child_spec *spec) {
    struct warm_pool *pool = w->group->config.warm;
    struct child_spec *copy = NULL;
    if (pool != NULL)
        spec = warm_pool_record(pool, w->index, spec, &copy);
    struct child child = CHILD_INIT;
    int r = child_spawn(spec, &child, &w->start_err);
    child_spec_free(copy);
    if (r < 0)
        return;
    w->session = child.pid;
    w->watch = child_watch_new(w->group->reaper, &child, on_worker_zombie, on_worker_exit, w);
}

static struct child_spec spec_of_group(const struct worker_group *g) {
    struct child_spec spec = CHILD_SPEC_INIT;
    spec.setsid = spec.keep_nohup = spec.readable = true;
    spec.death_signal = SIGKILL;
    spec.nofile_soft = g->config.nofile_soft;
    spec.without = g->config.without;
    return spec;
}

/* Reports, from the loop, which workers could not be started. */
static void report_failures(void *arg) {
    struct worker_group *g = arg;
    enter(g);
    for (uint32_t i = 0; i < g->n_tried && !g->doomed; i++)
        if (g->workers[i].watch == NULL && !g->workers[i].ended)
            has_ended(&g->workers[i], NULL);
    (void)!leave(g);
}

static void start_next(struct worker_group *g) {
    struct worker *w = &g->workers[g->n_tried++];
    struct child_spec spec = spec_of_group(g);
    w->marker = xasprintf("%llu.%u.%016llx", (unsigned long long)g->config.generation, w->index,
                          (unsigned long long)g->chance);
    int r = g->ops.make(g->arg, w->index, w->marker, &spec, &w->start_err);
    w->started_ns = clock_now_ns();
    if (r == 0 && (g->config.warm == NULL || !warm_start(w, &spec)))
        spawn(w, &spec);
    g->ops.made(g->arg, w->index);
    if (w->watch == NULL)
        worker_put_off(g, LOOP_PRIO_CHILD, report_failures);
    if (r < 0)
        start_no_more(g); /* this worker itself has not ended yet */
}

static void start_some(void *arg) {
    struct worker_group *g = arg;
    if (g->n_tried < g->n)
        do
            start_next(g);
        while (g->n_tried < g->n && !loop_slice_is_over(g->loop));
    if (g->n_tried < g->n)
        worker_put_off(g, LOOP_PRIO_BULK, start_some);
}

static void start_no_more(struct worker_group *g) {
    enter(g);
    while (g->n_tried < g->n) {
        g->workers[g->n_tried++].ended = true;
        worker_step(g,
                    &(struct worker_event){.kind = WORKER_EVENT_EXITED, .now_ns = clock_now_ns()});
    }
    (void)!leave(g); /* on_all_gone may have been called */
}

void worker_group_start(struct loop *loop, struct child_reaper *reaper, uint32_t n,
                        const struct worker_group_config *config,
                        const struct worker_group_ops *ops, void *arg, struct worker_group **ret) {
    struct worker_group *g = xcalloc(1, sizeof *g + n * sizeof g->workers[0]);
    g->loop = loop;
    g->reaper = reaper;
    g->config = *config;
    g->ops = *ops;
    g->arg = arg;
    g->chance = random_u64();
    g->timer = loop_timer_new(loop, on_timer, g);
    if (config->oom_file != NULL)
        g->oom_before = oom_kills_around(g);
    worker_group_machine_init(&g->machine, n, config->grace_ns,
                              config->leave_detached ? WORKER_SETTLE_NS : 0);
    g->n = n;
    for (uint32_t i = 0; i < n; i++)
        g->workers[i] = (struct worker){.group = g, .index = i};
    *ret = g;
    start_some(g);
}

/* --- asking about a group --- */

uint32_t worker_group_alive(const struct worker_group *g) { return g->machine.n_left; }

bool worker_group_gone(const struct worker_group *g) { return g->machine.released; }

bool worker_group_over(const struct worker_group *g) {
    return g->machine.state == WORKER_STATE_GONE;
}

pid_t worker_group_pid(const struct worker_group *g, uint32_t index) {
    const struct child_watch *w = g->workers[index].watch;
    return w != NULL && child_watch_alive(w) ? child_watch_pid(w) : 0;
}

#define DEPTH_MAX 256 /* a longer chain of parents is not followed */

bool worker_group_holds(const struct worker_group *g, pid_t pid, uint32_t *ret_index) {
    const pid_t self = getpid();
    pid_t parent = pid;
    for (unsigned depth = 0; depth < DEPTH_MAX && parent > 0 && parent != self; depth++) {
        pid = parent;
        parent = sweep_parent(pid);
    }
    for (uint32_t i = 0; parent == self && i < g->n; i++)
        if (worker_group_pid(g, i) == pid) {
            *ret_index = i;
            return true;
        }
    return false;
}
