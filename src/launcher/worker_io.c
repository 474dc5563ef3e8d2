#include "launcher/worker_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/cgroup_io.h"
#include "launcher/sweep_io.h"

struct worker {
    struct worker_group *group;
    uint32_t index;
    struct child_watch *watch; /* NULL: never cloned */
    uint64_t started_ns;
    uint64_t sent;             /* bit N: we sent signal N */
    char *program, *cwd;       /* for the text of a failed start */
    char *marker;              /* WORKER_MARKER=… */
    int cgroup_fd;             /* -1: none */
    char cgroup_name[48];
    struct err start_err;      /* code != 0: it never ran */
    bool ended;
    bool orphans;              /* it has ended, and may have left some */
    uint32_t quiet_passes; /* in a row that met none */
};

struct worker_group {
    struct loop *loop;
    struct child_reaper *reaper;
    struct loop_timer *timer;        /* the machine's deadline */
    struct loop_timer *orphan_timer; /* the next look at what ended workers left */
    uint64_t orphan_wait_ns;
    struct worker_group_machine machine;
    struct worker_group_ops ops;
    void *arg;
    int cgroup_fd;
    char *oom_file;
    uint64_t oom_before;
    int report_fd; /* read end: which starts failed */
    uint32_t n;
    unsigned busy; /* depth of callbacks */
    bool doomed;
    bool failures_due; /* deferred call under way: it frees a doomed group */
    struct worker workers[];
};

static void step(struct worker_group *g, const struct worker_event *event);

/* --- who is swept --- */

struct pid_list {
    const struct worker_group *group; /* leave out its workers; NULL: none */
    pid_t *pids;
    uint32_t n, cap;
};

static void pid_list_fini(struct pid_list *l) { free(l->pids); }

static void add_child(void *arg, pid_t pid) {
    struct pid_list *l = arg;
    for (uint32_t i = 0; l->group != NULL && i < l->group->n; i++)
        if (worker_group_pid(l->group, i) == pid)
            return;
    if (l->n == l->cap) {
        l->cap = MAX2(16, l->cap * 2);
        l->pids = xrealloc(l->pids, l->cap * sizeof *l->pids);
    }
    l->pids[l->n++] = pid;
}

static int compare_pids(const void *a, const void *b) {
    const pid_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct sweep_except pid_list_sorted(struct pid_list *l) {
    if (l->n > 0)
        qsort(l->pids, l->n, sizeof *l->pids, compare_pids);
    return (struct sweep_except){.pids = l->pids, .n = l->n};
}

/* A list of children that change while it is read may miss one (proc(5)): several passes must
 * agree that nothing is left. */
#define ORPHANS_QUIET_PASSES 4

/* One pass over all but the helpers. */
static void sweep_generation(const struct worker_group *g, struct sweep_result *ret) {
    _cleanup_(pid_list_fini) struct pid_list helpers = {.group = g};
    child_reaper_each(g->reaper, add_child, &helpers);
    struct sweep_except except = pid_list_sorted(&helpers);
    sweep_pass(&except, ret);
}

/* What ended workers left; their siblings and the siblings' daemons are spared. */
static void sweep_orphans_of_ended(struct worker_group *g) {
    _cleanup_(pid_list_fini) struct pid_list known = {0};
    child_reaper_each(g->reaper, add_child, &known);
    struct sweep_except except = pid_list_sorted(&known);
    bool again = false;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        if (!w->orphans)
            continue;
        struct sweep_result result;
        sweep_orphans(w->marker, &except, &result);
        w->quiet_passes = result.alive > 0 ? 0 : w->quiet_passes + 1;
        w->orphans = w->quiet_passes < ORPHANS_QUIET_PASSES;
        again |= w->orphans;
    }
    if (!again) {
        loop_timer_set(g->orphan_timer, TIME_NEVER);
        return;
    }
    loop_timer_set(g->orphan_timer, clock_now_ns() + g->orphan_wait_ns);
    g->orphan_wait_ns = MIN2(g->orphan_wait_ns * 2, WORKER_RETRY_MAX_NS);
}

static void on_orphan_timer(void *arg) { sweep_orphans_of_ended(arg); }

/* --- the end of the group --- */

static void close_fd(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void release(struct worker_group *g) {
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        child_watch_free(w->watch);
        if (w->cgroup_fd >= 0)
            (void)cgroup_remove(g->cgroup_fd, w->cgroup_name); /* else the guardian does */
        close_fd(&w->cgroup_fd);
        free(w->program);
        free(w->cwd);
        free(w->marker);
    }
    loop_timer_free(g->timer);
    loop_timer_free(g->orphan_timer);
    close_fd(&g->report_fd);
    free(g->oom_file);
    free(g);
}

static void enter(struct worker_group *g) { g->busy++; }

/* False: the group is gone. */
static bool leave(struct worker_group *g) {
    if (--g->busy > 0 || g->failures_due || !g->doomed)
        return !g->doomed;
    release(g);
    return false;
}

void worker_group_free(struct worker_group *g) {
    if (g == NULL || g->doomed)
        return;
    g->doomed = true;
    if (g->machine.state != WORKER_STATE_GONE) {
        struct sweep_result result;
        sweep_generation(g, &result);
    }
    if (g->busy == 0 && !g->failures_due)
        release(g);
}

/* --- obeying the machine --- */

static void send_to(struct worker *w, int signo) {
    if (w->watch != NULL && child_watch_kill_group(w->watch, signo) == 0 && signo > 0 && signo < 64)
        w->sent |= UINT64_C(1) << signo;
}

static void signal_all(struct worker_group *g, int signo, bool wake) {
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->workers[i].ended)
            continue;
        send_to(&g->workers[i], signo);
        if (wake && g->workers[i].watch != NULL)
            (void)!child_watch_kill_group(g->workers[i].watch, SIGCONT);
    }
}

static void say_unkillable(struct worker_group *g) {
    struct sweep_result result;
    sweep_generation(g, &result);
    pid_t pid = result.unkillable != 0 ? result.unkillable : result.example;
    if (pid == 0)
        return;
    char text[SWEEP_NAME_MAX];
    sweep_describe(pid, text);
    g->ops.on_unkillable(g->arg, pid, text);
}

static void apply(struct worker_group *g, const struct worker_update *update) {
    loop_timer_set(g->timer, g->machine.deadline_ns);
    if (update->signal_all != 0)
        signal_all(g, update->signal_all, true);
    if (update->kill_all) {
        signal_all(g, SIGKILL, false);
        struct sweep_result result;
        sweep_generation(g, &result);
    }
    enter(g);
    if (update->say_unkillable && g->ops.on_unkillable != NULL)
        say_unkillable(g);
    if (update->all_gone && !g->doomed) {
        loop_timer_set(g->orphan_timer, TIME_NEVER);
        g->ops.on_all_gone(g->arg);
    }
    if (leave(g) && update->sweep) {
        struct sweep_result result;
        sweep_generation(g, &result);
        step(g, &(struct worker_event){
                    .kind = WORKER_EVENT_SWEPT, .now_ns = clock_now_ns(), .left = result.alive});
    }
}

static void step(struct worker_group *g, const struct worker_event *event) {
    struct worker_update update;
    worker_group_machine_step(&g->machine, event, &update);
    apply(g, &update);
}

static void on_timer(void *arg) {
    step(arg, &(struct worker_event){.kind = WORKER_EVENT_TIMER, .now_ns = clock_now_ns()});
}

void worker_group_stop(struct worker_group *g, int signo, uint64_t grace_ns) {
    step(g, &(struct worker_event){.kind = WORKER_EVENT_STOP,
                                   .now_ns = clock_now_ns(),
                                   .signo = signo,
                                   .grace_ns = grace_ns});
}

void worker_group_kill(struct worker_group *g) {
    step(g, &(struct worker_event){.kind = WORKER_EVENT_KILL, .now_ns = clock_now_ns()});
}

void worker_group_signal(struct worker_group *g, int signo) { signal_all(g, signo, false); }

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

static uint64_t oom_kills(const struct worker_group *g, const struct worker *w) {
    uint64_t n = w->cgroup_fd >= 0 ? cgroup_oom_kills_in(w->cgroup_fd) : 0;
    if (n == 0 && g->oom_file != NULL)
        n = cgroup_oom_kills(g->oom_file) - g->oom_before;
    return n;
}

static struct worker_exit describe_exit(const struct worker *w, const struct child_status *status) {
    struct worker_exit e = {
        .kind = status->signalled ? WORKER_EXIT_SIGNAL : WORKER_EXIT_CODE,
        .code = status->signalled ? 0 : status->code,
        .signal = status->signalled ? status->code : 0,
        .core_dumped = status->core_dumped,
        .pid = status->pid,
        .ran_ns = status->at_ns - w->started_ns,
        .at_ns = status->at_ns,
    };
    e.sent_by_us = status->signalled ? status->code < 64 && (w->sent >> status->code & 1) != 0
                                     : w->sent != 0;
    bool killed = e.signal == SIGKILL || e.code == 128 + SIGKILL;
    e.oom = killed && !e.sent_by_us && oom_kills(w->group, w) > 0;
    return e;
}

/* Calls back for a worker that has ended, and takes its next step. */
static void worker_ended(struct worker *w, const struct worker_exit *how) {
    struct worker_group *g = w->group;
    w->ended = true;
    struct worker_update update;
    struct worker_event event = {.kind = WORKER_EVENT_EXITED, .now_ns = clock_now_ns()};
    worker_group_machine_step(&g->machine, &event, &update);
    enter(g);
    if (how == NULL)
        g->ops.on_spawn_failed(g->arg, w->index, &w->start_err);
    else
        g->ops.on_exit(g->arg, w->index, how);
    if (!leave(g))
        return;
    if (how != NULL && g->machine.state != WORKER_STATE_SWEEPING) {
        w->orphans = true;
        w->quiet_passes = 0;
        g->orphan_wait_ns = WORKER_RETRY_MIN_NS;
        sweep_orphans_of_ended(g);
    }
    apply(g, &update);
}

static void on_worker_zombie(void *arg, pid_t pid) {
    struct worker *w = arg;
    (void)kill(-pid, SIGKILL);
    if (w->cgroup_fd >= 0)
        (void)cgroup_kill(w->cgroup_fd);
}

static void on_worker_exit(void *arg, const struct child_status *status) {
    struct worker *w = arg;
    read_reports(w->group);
    if (w->start_err.code != 0) {
        worker_ended(w, NULL);
        return;
    }
    struct worker_exit how = describe_exit(w, status);
    worker_ended(w, &how);
}

/* --- starting --- */

static int enter_leaf(struct worker_group *g, struct worker *w, uint64_t generation) {
    if (g->cgroup_fd < 0)
        return 0;
    (void)snprintf(w->cgroup_name, sizeof w->cgroup_name, "w%llu-%u",
                   (unsigned long long)generation, w->index);
    return cgroup_make(g->cgroup_fd, w->cgroup_name, &w->cgroup_fd, &w->start_err);
}

/* envp with the marker instead of an older one; the strings are borrowed. */
static char **marked_environment(char *const *envp, char *marker) {
    size_t n = 0, kept = 0, len = strlen(WORKER_MARKER "=");
    while (envp[n] != NULL)
        n++;
    char **marked = xcalloc(n + 2, sizeof *marked);
    for (size_t i = 0; i < n; i++)
        if (strncmp(envp[i], WORKER_MARKER "=", len) != 0)
            marked[kept++] = envp[i];
    marked[kept] = marker;
    return marked;
}

/* On failure w->start_err is set. */
static void start_worker(struct worker_group *g, struct worker *w, const struct worker_spec *spec,
                         const struct worker_group_config *config, int report_fd) {
    w->started_ns = clock_now_ns();
    if (enter_leaf(g, w, config->generation) < 0)
        return;
    _cleanup_(freep) char **envp =
        marked_environment(spec->envp != NULL ? spec->envp : environ, w->marker);
    struct child_spec cs = {
        .argv = spec->argv,
        .envp = envp,
        .cwd = spec->cwd,
        .stdin_fd = spec->stdin_fd,
        .stdout_fd = spec->stdout_fd,
        .stderr_fd = spec->stderr_fd,
        .setsid = true,
        .death_signal = SIGKILL,
        .no_new_privs = config->no_new_privs,
        .no_core = config->no_core,
        .nofile_soft = config->nofile_soft,
        .cpuset = spec->cpuset,
        .cpuset_bytes = spec->cpuset_bytes,
        .memory = spec->memory,
        .memory_nodes = spec->memory_nodes,
        .memory_nodes_bytes = spec->memory_nodes_bytes,
        .cgroup_fd = w->cgroup_fd,
        .report_fd = report_fd,
        .report_tag = w->index,
        .without = config->without,
    };
    struct child child = CHILD_INIT;
    if (child_spawn(&cs, &child, &w->start_err) < 0)
        return;
    int r = child_watch_new(g->reaper, &child, on_worker_zombie, on_worker_exit, w, &w->watch);
    if (r < 0) {
        (void)err_set(&w->start_err, r, "cannot watch %s: %s", w->program, strerror(-r));
        (void)!child_kill(&child, SIGKILL);
        child_fini(&child);
    }
}

/* Tells, from the loop, which workers could not even be cloned. */
static void tell_failures(void *arg) {
    struct worker_group *g = arg;
    enter(g);
    g->failures_due = false;
    for (uint32_t i = 0; i < g->n && !g->doomed; i++)
        if (g->workers[i].watch == NULL)
            worker_ended(&g->workers[i], NULL);
    (void)leave(g);
}

static int make_group(struct loop *loop, struct child_reaper *reaper, uint32_t n,
                      const struct worker_group_config *config, struct worker_group **ret) {
    struct worker_group *g = xcalloc(1, sizeof *g + n * sizeof g->workers[0]);
    g->loop = loop;
    g->reaper = reaper;
    g->cgroup_fd = config->cgroup_fd;
    g->report_fd = -1;
    int r = loop_timer_new(loop, on_timer, g, &g->timer);
    if (r == 0)
        r = loop_timer_new(loop, on_orphan_timer, g, &g->orphan_timer);
    if (r < 0) {
        release(g);
        return r;
    }
    if (config->oom_file != NULL) {
        g->oom_file = xstrdup(config->oom_file);
        g->oom_before = cgroup_oom_kills(config->oom_file);
    }
    worker_group_machine_init(&g->machine, n);
    g->n = n;
    for (uint32_t i = 0; i < n; i++)
        g->workers[i] = (struct worker){.group = g, .index = i, .cgroup_fd = -1};
    *ret = g;
    return 0;
}

int worker_group_start(struct loop *loop, struct child_reaper *reaper,
                       const struct worker_spec *specs, uint32_t n,
                       const struct worker_group_config *config,
                       const struct worker_group_ops *ops, void *arg, struct worker_group **ret,
                       struct err *err) {
    struct worker_group *g;
    int report_fd = -1;
    int r = make_group(loop, reaper, n, config, &g);
    if (r < 0)
        return err_set(err, r, "cannot prepare %u workers: %s", n, strerror(-r));
    g->ops = *ops;
    g->arg = arg;
    r = child_pipe(&g->report_fd, &report_fd);
    if (r < 0) {
        release(g);
        return err_set(err, r, "cannot make a pipe for %u workers: %s", n, strerror(-r));
    }
    uint64_t chance = random_u64();
    for (uint32_t i = 0; i < n; i++) {
        struct worker *w = &g->workers[i];
        w->program = xstrdup(specs[i].argv[0]);
        w->cwd = specs[i].cwd != NULL ? xstrdup(specs[i].cwd) : NULL;
        w->marker = xasprintf(WORKER_MARKER "=%llu.%u.%016llx",
                              (unsigned long long)config->generation, i,
                              (unsigned long long)chance);
        start_worker(g, w, &specs[i], config, report_fd);
        if (w->watch == NULL && !g->failures_due) {
            g->failures_due = true;
            loop_defer(loop, LOOP_PRIO_LEASE, tell_failures, g);
        }
    }
    (void)close(report_fd);
    *ret = g;
    return 0;
}

/* --- looking --- */

uint32_t worker_group_alive(const struct worker_group *g) { return g->machine.n_left; }

bool worker_group_gone(const struct worker_group *g) {
    return g->machine.state == WORKER_STATE_GONE;
}

pid_t worker_group_pid(const struct worker_group *g, uint32_t index) {
    const struct child_watch *w = g->workers[index].watch;
    return w != NULL && child_watch_alive(w) ? child_watch_pid(w) : 0;
}

#define DEPTH_MAX 256 /* a chain of parents longer than that is not followed */

bool worker_group_holds(const struct worker_group *g, pid_t pid) {
    const pid_t self = getpid();
    pid_t parent = pid;
    for (unsigned depth = 0; depth < DEPTH_MAX && parent > 0 && parent != self; depth++) {
        pid = parent;
        parent = sweep_parent(pid);
    }
    for (uint32_t i = 0; parent == self && i < g->n; i++)
        if (worker_group_pid(g, i) == pid)
            return true;
    return false;
}

uint64_t worker_group_started_ns(const struct worker_group *g, uint32_t index) {
    return g->workers[index].started_ns;
}
