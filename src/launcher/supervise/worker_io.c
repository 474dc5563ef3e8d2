#include "launcher/supervise/worker_io.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/worker_priv.h"

/* --- the end of the group --- */

static void on_remove_turn(void *arg);

/* The kernel needs 100 ms or more to remove a thousand cgroups. */
static void remove_some(struct worker_group *g) {
    while (g->remove_at < g->n) {
        struct worker *w = &g->workers[g->remove_at++];
        if (w->cgroup_fd < 0)
            continue;
        /* if it fails, the guardian removes it */
        (void)cgroup_remove(g->config.cgroup_fd, w->cgroup_name);
        file_close(&w->cgroup_fd);
        if (loop_slice_is_over(g->loop)) {
            worker_put_off(g, &g->remove_due, LOOP_PRIO_BULK, on_remove_turn);
            return;
        }
    }
}

static void on_remove_turn(void *arg) {
    struct worker_group *g = arg;
    g->remove_due = false;
    g->n_put_off--;
    remove_some(g);
    if (g->n_put_off == 0)
        free(g);
}

/* Frees everything except the memory and the cgroups: deferred calls find these, and free them. */
static void dispose(struct worker_group *g) {
    g->disposed = true;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        worker_warm_free(w);
        child_watch_free(w->watch);
        free(w->program);
        free(w->cwd);
        free(w->marker);
    }
    loop_timer_free(g->timer);
    loop_timer_free(g->orphan_timer);
    file_close(&g->report_fd);
    file_close(&g->report_write_fd);
    sweep_walk_free(g->walk);
    idmap_fini(&g->asked);
    strbuf_fini(&g->killed);
    free(g->oom_file);
    remove_some(g);
    if (g->n_put_off == 0)
        free(g);
}

void worker_enter(struct worker_group *g) { g->busy++; }

bool worker_leave(struct worker_group *g) {
    if (--g->busy > 0 || !g->doomed)
        return !g->doomed;
    dispose(g);
    return false;
}

void worker_put_off(struct worker_group *g, bool *due, enum loop_priority prio, loop_defer_fn *fn) {
    if (*due)
        return;
    *due = true;
    g->n_put_off++;
    loop_defer(g->loop, prio, fn, g);
}

bool worker_arrived(struct worker_group *g, bool *due) {
    *due = false;
    g->n_put_off--;
    if (!g->disposed)
        return true;
    if (g->n_put_off == 0)
        free(g);
    return false;
}

void worker_group_free(struct worker_group *g) {
    if (g == NULL || g->doomed)
        return;
    g->doomed = true;
    const pid_t *kept;
    bool kill_kept = !g->left && worker_group_kept(g, &kept) > 0;
    g->stopped = true;
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

static void on_signal_turn(void *arg);

/* Signals workers that were started, some at a time: thousands of signals take longer than a turn
 * of the loop. */
static void signal_some(struct worker_group *g) {
    while (g->signal_at < g->n_tried) {
        struct worker *w = &g->workers[g->signal_at++];
        if (w->ended)
            continue;
        send_to(w, g->signal_no);
        if (g->signal_wakes && w->watch != NULL)
            (void)!child_watch_kill_group(w->watch, SIGCONT);
        if (loop_slice_is_over(g->loop)) {
            worker_put_off(g, &g->signal_due, LOOP_PRIO_BULK, on_signal_turn);
            return;
        }
    }
}

static void on_signal_turn(void *arg) {
    struct worker_group *g = arg;
    if (worker_arrived(g, &g->signal_due))
        signal_some(g);
}

/* If the same signal is already being sent, that continues. If it is another signal, the new one
 * replaces it. */
static void signal_all(struct worker_group *g, int signo, bool wake) {
    if (g->held && signo != SIGKILL) {
        g->held_no = signo;
        return;
    }
    g->held = false;
    if (g->signal_due && g->signal_no == signo && g->signal_wakes == wake)
        return;
    g->signal_no = signo;
    g->signal_wakes = wake;
    g->signal_at = 0;
    signal_some(g);
}

void worker_group_hold(struct worker_group *g, int signo) {
    g->held = true;
    for (uint32_t i = 0; i < g->n_tried; i++)
        if (!g->workers[i].ended)
            note_signal(&g->workers[i], signo);
}

void worker_group_release(struct worker_group *g, uint64_t had_ns) {
    bool waits = g->held && g->held_no != 0;
    g->held = false;
    g->had_ns = had_ns;
    if (waits)
        signal_all(g, g->held_no, true);
}

static void mark_killed(struct worker_group *g) {
    for (uint32_t i = 0; i < g->n_tried; i++)
        if (!g->workers[i].ended)
            g->workers[i].sent |= UINT64_C(1) << SIGKILL;
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
        signal_all(g, update->signal_all, true);
    if (update->kill_all) {
        mark_killed(g);
        worker_name_killed(g); /* the walk names what it finds alive */
        worker_sweep_all(g, WORKER_PASS_KILL, false);
        signal_all(g, SIGKILL, false);
    }
    worker_enter(g);
    if (update->report_unkillable && g->ops.on_unkillable != NULL)
        report_unkillable(g);
    if (update->report_waiting && g->ops.on_waiting != NULL)
        report_waiting(g);
    if (update->all_gone && !g->doomed) {
        loop_timer_set(g->orphan_timer, TIME_NEVER);
        g->ops.on_all_gone(g->arg);
    }
    if (update->over && !g->doomed && g->ops.on_over != NULL)
        g->ops.on_over(g->arg);
    if (worker_leave(g) && update->sweep != WORKER_PASS_NONE)
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

static void on_orphan_timer(void *arg) { worker_find_orphans(arg); }

/* The owner's functions that these events lead to may free the group. */
static void end_all(struct worker_group *g, const struct worker_event *event) {
    worker_enter(g);
    worker_keep_no_more(g);
    if (!g->doomed)
        worker_step(g, event);
    if (!g->doomed)
        worker_start_no_more(g);
    (void)!worker_leave(g);
}

void worker_group_stop(struct worker_group *g, int signo, uint64_t grace_ns) {
    const uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        w->left_until_ns = MIN2(w->left_until_ns, now_ns + MIN2(grace_ns, TIME_NEVER - now_ns));
        w->term_ns = now_ns;
    }
    end_all(g,
            &(struct worker_event){
                .kind = WORKER_EVENT_STOP, .now_ns = now_ns, .signo = signo, .grace_ns = grace_ns});
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

static void read_reports(struct worker_group *g) {
    struct child_report report;
    while (child_report_read(g->report_fd, &report) == 1) {
        if (report.tag >= g->n)
            continue;
        struct worker *w = &g->workers[report.tag];
        char *argv[] = {w->program, NULL};
        struct child_spec spec = {.argv = argv, .cwd = w->cwd};
        (void)child_report_text(&report, &spec, &w->start_err);
    }
}

static uint32_t ended_while_waiting(const struct worker_group *g) {
    return g->config.warm != NULL ? warm_pool_ended(g->config.warm) : 0;
}

static uint64_t oom_kills(const struct worker_group *g, const struct worker *w) {
    uint64_t n = w->cgroup_fd >= 0 ? cgroup_oom_kills_in(w->cgroup_fd) : 0;
    if (n > 0 || g->oom_file == NULL)
        return n;
    uint64_t waiting = ended_while_waiting(g) - g->waiting_before;
    n = cgroup_oom_kills(g->oom_file) - g->oom_before;
    return n > waiting ? n - waiting : 0; /* those are the first to be killed */
}

void worker_ended(struct worker *w, const struct worker_exit *how) {
    struct worker_group *g = w->group;
    w->ended = true;
    g->ended_badly |= how == NULL || !child_succeeded(&how->status);
    struct worker_update update;
    struct worker_event event = {.kind = WORKER_EVENT_EXITED, .now_ns = clock_now_ns()};
    worker_group_machine_step(&g->machine, &event, &update);
    const enum worker_state state = g->machine.state;
    worker_enter(g);
    if (how == NULL)
        g->ops.on_spawn_failed(g->arg, w->index, &w->start_err);
    else
        g->ops.on_exit(g->arg, w->index, how);
    if (!worker_leave(g))
        return;
    if (how != NULL && g->machine.n_left > 0) {
        w->term_ns = event.now_ns + (worker_keeps(g) ? WORKER_SETTLE_NS : 0);
        w->left_until_ns = update.left_until_ns;
        worker_sweep_orphans_of(w);
    }
    if (g->machine.state != state)
        update.sweep = WORKER_PASS_NONE; /* the owner has ended the group meanwhile */
    apply(g, &update);
}

static void on_worker_zombie(void *arg, pid_t pid) {
    struct worker *w = arg;
    siginfo_t si = {0};
    if (w->group->machine.state == WORKER_STATE_KILLING) {
        (void)kill(-pid, SIGKILL);
        if (w->cgroup_fd >= 0)
            (void)cgroup_kill(w->cgroup_fd);
        return;
    }
    bool ok = waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
              si.si_code == CLD_EXITED && si.si_status == 0;
    if (!ok || !worker_keeps(w->group))
        worker_ask_process_group(w, pid);
}

static void on_worker_exit(void *arg, const struct child_status *status) {
    struct worker *w = arg;
    read_reports(w->group);
    if (worker_warm_ended(w))
        return;
    if (w->start_err.code != 0) {
        worker_ended(w, NULL);
        return;
    }
    bool killed =
        child_killed_by(status, SIGKILL) || (!status->signalled && status->code == 128 + SIGKILL);
    struct worker_exit how = {.status = *status, .ran_ns = status->at_ns - w->started_ns};
    how.sent_by_us =
        status->signalled ? status->code < 64 && (w->sent >> status->code & 1) != 0 : w->sent != 0;
    how.oom = killed && !how.sent_by_us && oom_kills(w->group, w) > 0;
    if (w->was_warm && !how.sent_by_us && !how.oom && !killed && !child_succeeded(status))
        warm_pool_failed(w->group->config.warm, how.ran_ns);
    worker_ended(w, &how);
}

int worker_watch(struct worker *w, const struct child *child) {
    return child_watch_new(w->group->reaper, child, on_worker_zombie, on_worker_exit, w, &w->watch);
}

void worker_hand_over(struct worker *w) {
    child_watch_hand_over(w->watch, on_worker_zombie, on_worker_exit, w);
}

/* --- making a group --- */

static int make_group(struct loop *loop, struct child_reaper *reaper, uint32_t n,
                      const struct worker_group_config *config, struct worker_group **ret) {
    struct worker_group *g = xcalloc(1, sizeof *g + n * sizeof g->workers[0]);
    g->loop = loop;
    g->reaper = reaper;
    g->config = *config;
    g->config.oom_file = NULL;
    g->report_fd = g->report_write_fd = -1;
    g->chance = random_u64();
    int r = loop_timer_new(loop, on_timer, g, &g->timer);
    if (r == 0)
        r = loop_timer_new(loop, on_orphan_timer, g, &g->orphan_timer);
    if (r == 0)
        r = child_pipe(&g->report_fd, &g->report_write_fd);
    if (r < 0) {
        dispose(g);
        return r;
    }
    if (config->oom_file != NULL) {
        g->oom_file = xstrdup(config->oom_file);
        g->oom_before = cgroup_oom_kills(config->oom_file);
        g->waiting_before = ended_while_waiting(g);
    }
    worker_group_machine_init(&g->machine, n, config->grace_ns,
                              config->leave_detached ? WORKER_SETTLE_NS : 0);
    g->n = n;
    for (uint32_t i = 0; i < n; i++)
        g->workers[i] = (struct worker){.group = g, .index = i, .cgroup_fd = -1};
    *ret = g;
    return 0;
}

int worker_group_start(struct loop *loop, struct child_reaper *reaper, uint32_t n,
                       const struct worker_group_config *config, const struct worker_group_ops *ops,
                       void *arg, struct worker_group **ret, struct err *err) {
    struct worker_group *g;
    int r = make_group(loop, reaper, n, config, &g);
    if (r < 0)
        return err_set(err, r, "cannot prepare %u workers: %s", n, strerror(-r));
    g->ops = *ops;
    g->arg = arg;
    *ret = g;
    worker_start_some(g);
    return 0;
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
