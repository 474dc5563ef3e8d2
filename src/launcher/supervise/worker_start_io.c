/* Starts the workers of a group: as many as fit into the current turn of the loop, the others in
 * the next turns. Thousands take a second or more, and leases don't wait. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/worker_priv.h"

static int enter_leaf(struct worker_group *g, struct worker *w) {
    if (g->config.cgroup_fd < 0)
        return 0;
    (void)snprintf(w->cgroup_name, sizeof w->cgroup_name, "w%llu-%u",
                   (unsigned long long)g->config.generation, w->index);
    return cgroup_make(g->config.cgroup_fd, w->cgroup_name, &w->cgroup_fd, &w->start_err);
}

/* envp with the new marker instead of an older one; the strings are borrowed. */
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

static void remember_stream(int fd, struct worker_stream *ret) {
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(fd)))
        *ret = (struct worker_stream){.dev = st.st_dev, .ino = st.st_ino};
}

void worker_spawn(struct worker *w, const struct child_spec *spec) {
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
    r = worker_watch(w, &child);
    if (r < 0) {
        (void)err_set(&w->start_err, r, "cannot watch %s: %s", w->program, strerror(-r));
        (void)!child_kill(&child, SIGKILL);
        child_fini(&child);
    }
}

static void child_spec_of(const struct worker_group_config *config, const struct worker_spec *spec,
                          struct child_spec *ret) {
    *ret = (struct child_spec){
        .argv = spec->argv,
        .envp = spec->envp,
        .cwd = spec->cwd,
        .stdin_fd = spec->stdin_fd,
        .stdout_fd = spec->stdout_fd,
        .stderr_fd = spec->stderr_fd,
        .setsid = true,
        .keep_nohup = true,
        .death_signal = SIGKILL,
        .readable = true,
        .no_new_privs = config->no_new_privs,
        .no_core = config->no_core,
        .nofile_soft = config->nofile_soft,
        .cpuset = spec->cpuset,
        .cpuset_bytes = spec->cpuset_bytes,
        .memory = spec->memory,
        .memory_nodes = spec->memory_nodes,
        .memory_nodes_bytes = spec->memory_nodes_bytes,
        .cgroup_fd = -1,
        .report_fd = -1,
        .without = config->without,
    };
}

/* On failure w->start_err is set. */
static void start_worker(struct worker_group *g, struct worker *w, const struct worker_spec *spec) {
    const struct worker_group_config *config = &g->config;
    w->program = xstrdup(spec->argv[0]);
    w->cwd = spec->cwd != NULL ? xstrdup(spec->cwd) : NULL;
    w->marker = xasprintf(WORKER_MARKER "=%llu.%u.%016llx", (unsigned long long)config->generation,
                          w->index, (unsigned long long)g->chance);
    w->started_ns = clock_now_ns();
    remember_stream(spec->stdout_fd, &w->streams[0]);
    remember_stream(spec->stderr_fd, &w->streams[1]);
    if (enter_leaf(g, w) < 0)
        return;
    _cleanup_(freep) char **envp =
        marked_environment(spec->envp != NULL ? spec->envp : environ, w->marker);
    struct child_spec cs;
    child_spec_of(config, spec, &cs);
    cs.envp = envp;
    cs.cgroup_fd = w->cgroup_fd;
    cs.report_fd = g->report_write_fd;
    cs.report_tag = w->index;
    if (config->warm == NULL || !worker_warm_start(w, &cs))
        worker_spawn(w, &cs);
}

/* ---- failures ---- */

/* Reports, from the loop, which workers could not even be cloned. */
static void report_failures(void *arg) {
    struct worker_group *g = arg;
    if (!worker_arrived(g, &g->failures_due))
        return;
    worker_enter(g);
    for (uint32_t i = 0; i < g->n_tried && !g->doomed; i++)
        if (g->workers[i].watch == NULL && !g->workers[i].ended)
            worker_ended(&g->workers[i], NULL);
    (void)!worker_leave(g);
}

/* ---- some at a time ---- */

static void start_next(struct worker_group *g) {
    struct worker *w = &g->workers[g->n_tried++];
    struct worker_spec spec = WORKER_SPEC_INIT;
    int r = g->ops.make(g->arg, w->index, &spec, &w->start_err);
    if (r == 0)
        start_worker(g, w, &spec);
    g->ops.made(g->arg, w->index);
    if (w->watch == NULL)
        worker_put_off(g, &g->failures_due, LOOP_PRIO_CHILD, report_failures);
    if (r < 0)
        worker_start_no_more(g); /* this worker itself has not ended yet */
}

static void on_start_turn(void *arg) {
    struct worker_group *g = arg;
    if (worker_arrived(g, &g->start_due))
        worker_start_some(g);
}

void worker_start_some(struct worker_group *g) {
    if (g->n_tried < g->n)
        do
            start_next(g);
        while (g->n_tried < g->n && !loop_slice_is_over(g->loop));
    if (g->n_tried < g->n) {
        worker_put_off(g, &g->start_due, LOOP_PRIO_BULK, on_start_turn);
        return;
    }
    file_close(&g->report_write_fd);
}

void worker_start_no_more(struct worker_group *g) {
    worker_enter(g);
    while (g->n_tried < g->n) {
        g->workers[g->n_tried++].ended = true;
        worker_step(g,
                    &(struct worker_event){.kind = WORKER_EVENT_EXITED, .now_ns = clock_now_ns()});
    }
    (void)!worker_leave(g); /* on_all_gone may have been called */
}
