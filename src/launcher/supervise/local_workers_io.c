#include "launcher/supervise/local_workers_io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/addr.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/logmux_io.h"
#include "launcher/report/failure_text.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/sweep_io.h"
#include "launcher/supervise/worker_io.h"
#include "launcher/worker/notify_io.h"
#include "launcher/worker/worker_env.h"
#include "rendezvous/operate/recent_runs_io.h"

#define LOCAL_LEFT_MAX 8           /* of more, the oldest are killed */
#define DOUBT_NS (200 * NS_PER_MS) /* for a failure that may be the end of the whole node */

struct local_workers {
    struct loop *loop;
    const struct job_spec *spec;
    struct local_workers_config config;
    struct node_setup_place place; /* of the current generation; owns `way`, */
    bool way_is_lent;              /* unless it is this one */
    struct local_workers_ops ops;
    void *arg;
    struct notify *notify; /* NULL: it could not be made; workers run without it */
    char *oom_file;        /* NULL: the kernel's count is not available */
    bool omp_logged;

    struct worker_logs *files; /* folders of log and error files */
    char *recorded;            /* the folder recorded for "muster logs", "" for none; or NULL */

    char generation_text[32];
    struct form form;
    struct node_setup setup; /* what this node gives its workers */
    unsigned awaits;         /* AWAITS_*: what prepare still waits for */
    char *setup_logged;      /* how workers are bound, as last reported */
    struct logmux *logs;
    struct worker_record {
        struct failure *failure;    /* not reported yet; NULL: none */
        bool explained;             /* its last output has arrived */
        struct announced announced; /* since its start */
        char *tail;                 /* the last lines of its stderr, if it has failed, or NULL */
    } * records;                    /* [nproc] */
    struct loop_timer *doubt_timer;
    uint64_t first_step; /* the first MUSTER_STEP of all; 0: none yet */
    uint32_t n_tails;
    struct warm_pool *warm;            /* NULL: without --warm */
    struct generation warm_generation; /* of the last start, which its facts are about */
    struct worker_group *workers;
    struct local_leftovers {
        struct worker_group *workers;
        struct logmux *logs; /* what they write; NULL: it is not read any more */
    } left[LOCAL_LEFT_MAX];  /* of earlier groups, the oldest first */
    uint32_t n_left;
    struct worker_group *ending; /* one of these: what it kept is ending, and is awaited; or NULL */
    struct envlist env;          /* of the worker that is being started, like its argv */
    char **argv;
    uint32_t unmade;      /* the worker that could not be prepared; UINT32_MAX: none */
    uint32_t n_ok;        /* workers that ended with 0, */
    uint32_t n_early;     /* those of them that were not asked to stop, */
    uint32_t first_early; /* and the local rank of the first of these */
    bool stop_requested;
    uint64_t grace_ns; /* the longest grace of a stop */
    bool running;      /* started, not all gone */
    uint32_t fences;   /* guardian_fences() before the workers were started */
};

/* ---- what a worker is started with ---- */

/* Rank 0 opens the workers' store itself, at the one address that all nodes know: the leader's. */
static int check_own_store(const struct local_workers *c, struct err *err) {
    const struct form *f = &c->form;
    struct addr at;
    if (!c->spec->workers_store || f->node_rank != 0 ||
        (addr_from_literal(f->store_host, f->store_port, &at) == 0 && addr_is_local(&at)))
        return 0;
    return err_set(
        err, -EINVAL,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: rank 0 opens the store, at %s, so it must "
        "run on the host that leads; give the agent there --node-rank=0",
        f->store_host);
}

static uint16_t store_port(const struct local_workers *c) {
    const char *addr;
    uint16_t port;
    worker_env_master(c->spec, &addr, &port);
    return port != 0 ? port : c->form.store_port;
}

/* A literal IPv6 address breaks tcp://ADDR:PORT, so scripts get the name by which the nodes met. */
static const char *master_host(const struct job_spec *spec, const struct form *f) {
    struct addr at;
    bool named = !job_backend(spec)->ranks_are_chosen && spec->endpoint_host != NULL &&
                 spec->local_addr == NULL && addr_from_literal(spec->endpoint_host, 0, &at) < 0;
    return named && strchr(f->store_host, ':') != NULL ? spec->endpoint_host : f->store_host;
}

static int build_env(const struct local_workers *c, uint32_t i, const char *marker,
                     struct envlist *ret, struct err *err) {
    const struct job_spec *spec = c->spec;
    _cleanup_(freep) char *error_file = worker_logs_error_file(c->files, i);
    /* Other programs can start several that would all listen there. */
    _cleanup_(freep) char *server_socket =
        spec->entry != JOB_ENTRY_PROGRAM ? worker_logs_socket(c->files, i) : NULL;
    struct worker_env_input in = {
        .spec = spec,
        .form = &c->form,
        .local_rank = i,
        .generation = c->generation_text,
        .epoch = c->place.generation.epoch,
        .error_file = error_file,
        .server_socket = server_socket,
        .notify_socket = c->notify != NULL ? notify_name(c->notify) : NULL,
        .omp_threads = c->setup.workers[i].omp_threads,
        .worker_id = marker,
    };
    worker_env_master(spec, &in.master_addr, &in.master_port);
    if (in.master_addr == NULL)
        in.master_addr = master_host(spec, &c->form);
    if (in.master_port == 0)
        in.master_port = c->form.store_port;
    int r = worker_env_build(c->place.envp, &in, ret, err);
    if (r == 0)
        node_setup_add_env(&c->setup, i, ret);
    return r;
}

static void bind_worker(const struct affinity *a, struct child_spec *spec) {
    if (!a->bound)
        return;
    spec->cpuset = a->cpus.words;
    spec->cpuset_bytes = sizeof a->cpus.words;
    if (cpuset_is_empty(&a->nodes))
        return;
    spec->memory = a->strict ? CHILD_MEMORY_BIND : CHILD_MEMORY_PREFER;
    spec->memory_nodes = a->nodes.words;
    spec->memory_nodes_bytes = sizeof a->nodes.words;
}

static int make(void *arg, uint32_t i, const char *marker, struct child_spec *spec,
                struct err *err) {
    struct local_workers *c = arg;
    int file_fds[2];
    c->unmade = i;
    int r = build_env(c, i, marker, &c->env, err);
    if (r < 0)
        return r;
    c->argv = worker_argv_build(c->spec, c->place.python, i);
    spec->argv = c->argv;
    spec->envp = envlist_items(&c->env);
    bind_worker(&c->setup.workers[i].affinity, spec);
    worker_logs_take_fds(c->files, i, file_fds);
    r = logmux_open(c->logs, i, worker_logs_dir(c->files, i), file_fds, &spec->stdout_fd,
                    &spec->stderr_fd, err);
    c->unmade = r < 0 ? i : UINT32_MAX;
    return r;
}

static void made(void *arg, uint32_t i) {
    struct local_workers *c = arg;
    logmux_started(c->logs, i);
    envlist_fini(&c->env);
    words_free(TAKE_PTR(c->argv));
}

/* ---- the pool of warm workers ---- */

static void on_facts(void *arg) {
    struct local_workers *c = arg;
    struct rdzv_warm warm;
    if (c->ops.on_warm == NULL)
        return;
    warm_pool_facts(c->warm, &warm);
    warm.generation = c->warm_generation;
    c->ops.on_warm(c->arg, &warm);
}

static int warm_new(struct local_workers *c) {
    const struct job_spec *spec = c->spec;
    if (spec->warm == JOB_WARM_OFF || spec->nproc == 0)
        return 0;
    struct warm_pool_config pool = {
        .reaper = c->config.reaper,
        .n = spec->nproc,
        .form = spec->warm,
        .after_ns = spec->warm_after_ns,
        .skip = spec->warm_skip,
        .never = spec->entry == JOB_ENTRY_PROGRAM ? "--no-python starts no Python" : NULL,
        .on_facts = on_facts,
        .arg = c,
    };
    return warm_pool_new(c->loop, &pool, &c->warm);
}

/* How many failed workers' last lines are kept for the report: one of the first is the cause. */
#define TAILS_MAX 32

enum { AWAITS_DISCOVERY = 1, AWAITS_WAY = 2, AWAITS_FILES = 4, AWAITS_KEPT = 8, AWAITS_LENT = 16 };

/* ---- what becomes of the workers ---- */

static void on_drained(void *arg, uint32_t index);
static void on_no_file(void *arg, const char *why);
static void on_last_output(void *arg, uint32_t index, const struct writer_last_output *last);
static const struct logmux_ops logmux_ops = {on_drained, on_no_file, on_last_output};

static uint64_t last_step(const struct local_workers *c) {
    uint64_t step = 0;
    for (uint32_t i = 0; i < c->spec->nproc; i++)
        step = MAX2(step, c->records[i].announced.step);
    return step;
}

static void report(struct local_workers *c, enum member_event_kind kind,
                   const struct failure *failure) {
    c->ops.on_event(c->arg, &(struct member_event){.kind = kind,
                                                   .generation = c->place.generation,
                                                   .failure = failure,
                                                   .first_step = c->first_step,
                                                   .last_step = last_step(c)});
}

/* Output that processes write which have time to end is read meanwhile. */
static bool output_is_read(const struct local_workers *c) {
    bool awaited = worker_group_over(c->workers);
    for (uint32_t i = 0; i < c->spec->nproc; i++)
        if (c->records[i].failure != NULL)
            return false;
    return !awaited || logmux_all_drained(c->logs);
}

static void check_all_gone(struct local_workers *c) {
    if (!c->running || !worker_group_gone(c->workers) || !output_is_read(c))
        return;
    c->running = false;
    struct failure unexplained;
    local_workers_node_failure(c, "all workers of this node ended, for an unknown reason",
                               &unexplained);
    report(c, MEMBER_EVENT_ALL_GONE, &unexplained);
}

/* ---- what earlier groups left ---- */

static void forget_left(struct local_workers *c, uint32_t i) {
    struct local_leftovers l = c->left[i];
    memmove(&c->left[i], &c->left[i + 1], (--c->n_left - i) * sizeof l);
    worker_group_free(l.workers);
    logmux_free(l.logs);
}

static bool is_over(const struct worker_group *workers, const struct logmux *logs) {
    return workers == NULL ||
           (worker_group_over(workers) && (logs == NULL || logmux_all_drained(logs)));
}

static void forget_those_over(struct local_workers *c) {
    for (uint32_t i = 0; i < c->n_left;)
        if (c->left[i].workers != c->ending && is_over(c->left[i].workers, c->left[i].logs))
            forget_left(c, i);
        else
            i++;
    if (!c->running && c->ops.on_over != NULL && !local_workers_has_left(c))
        c->ops.on_over(c->arg);
}

bool local_workers_has_left(const struct local_workers *c) {
    return c->n_left > 0 || (!c->running && !is_over(c->workers, c->logs));
}

static bool is_of_other(void *arg, const char *marker) {
    const struct local_workers *c = arg;
    for (uint32_t i = 0; i < c->n_left; i++)
        if (worker_group_owns(c->left[i].workers, marker))
            return true;
    return false;
}

static void put_aside(struct local_workers *c) {
    if (c->n_left == LOCAL_LEFT_MAX)
        forget_left(c, 0);
    c->left[c->n_left++] = (struct local_leftovers){TAKE_PTR(c->workers), TAKE_PTR(c->logs)};
}

static void on_over(void *arg) {
    struct local_workers *c = arg;
    if (c->workers != NULL && worker_group_over(c->workers))
        logmux_no_more(c->logs);
    for (uint32_t i = 0; i < c->n_left; i++)
        if (worker_group_over(c->left[i].workers) && c->left[i].logs != NULL)
            logmux_no_more(c->left[i].logs);
    check_all_gone(c);
    forget_those_over(c);
}

static void on_waiting(void *arg, pid_t pid, uint64_t rest_ns, bool blocks) {
    const struct local_workers *c = arg;
    char name[SWEEP_NAME_MAX];
    sweep_name(pid, name);
    log_line(c->running && !blocks ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE,
             "waiting up to %.0f s for %s, which a worker left; ^C ends it",
             (double)rest_ns / (double)NS_PER_S, name);
}

static void on_drained(void *arg, uint32_t index) {
    struct local_workers *c = arg;
    check_all_gone(c);
    forget_those_over(c);
}

static void on_no_file(void *arg, const char *why) {
    struct local_workers *c = arg;
    worker_logs_lack(c->files, why);
}

/* ---- failures that may be the end of the whole node ---- */

/* The worker died of a signal that ends the job, and that the agent may get a moment later. */
static bool is_in_doubt(const struct local_workers *c, const struct failure *f) {
    const struct job_spec *spec = c->spec;
    bool ends = false;
    for (uint32_t i = 0; i < spec->n_signals; i++)
        ends |= f->kind == FAILURE_SIGNAL && f->code == spec->signals[i];
    return ends;
}

static void doubt(struct local_workers *c, uint32_t index) {
    bool first = true;
    for (uint32_t i = 0; i < c->spec->nproc; i++)
        first &= !c->records[i].explained;
    c->records[index].explained = true;
    if (first)
        loop_timer_set(c->doubt_timer, clock_now_ns() + DOUBT_NS);
}

static struct failure *take_pending(struct local_workers *c, uint32_t index) {
    c->records[index].explained = false;
    return TAKE_PTR(c->records[index].failure);
}

static void on_doubt_timer(void *arg) {
    struct local_workers *c = arg;
    for (uint32_t i = 0; i < c->spec->nproc; i++) {
        if (!c->records[i].explained)
            continue;
        _cleanup_(freep) struct failure *f = take_pending(c, i);
        report(c, MEMBER_EVENT_FAILURE, f);
    }
    check_all_gone(c);
}

static void keep_tail(struct local_workers *c, uint32_t index, const char *tail) {
    if (tail[0] == '\0' || c->records[index].tail != NULL || c->n_tails == TAILS_MAX)
        return;
    c->records[index].tail = xstrdup(tail);
    c->n_tails++;
}

/* A failure is explained by error.json, else by the end of stderr: it is reported now. */
static void on_last_output(void *arg, uint32_t index, const struct writer_last_output *last) {
    struct local_workers *c = arg;
    struct failure *f = c->records[index].failure;
    _cleanup_(freep) char *path = worker_logs_error_file(c->files, index);
    if (f == NULL) /* the agent got the same signal a moment later */
        return;
    if (last->bad_file)
        log_warning("%s: %s", path, last->error);
    if (!last->bad_file && last->error[0] != '\0') {
        (void)snprintf(f->error_file, sizeof f->error_file, "%s", path);
        failure_set_text(f, last->error, true);
    } else {
        failure_set_text(f, last->tail, false);
    }
    if (c->place.python != NULL && c->spec->entry != JOB_ENTRY_PROGRAM)
        failure_name_interpreter(f, c->place.python);
    keep_tail(c, index, last->tail);
    if (is_in_doubt(c, f)) {
        doubt(c, index);
        return;
    }
    _cleanup_(freep) struct failure *reported = take_pending(c, index);
    report(c, MEMBER_EVENT_FAILURE, reported);
    check_all_gone(c); /* it may have waited for this */
}

static void describe_node(const struct local_workers *c, struct failure *f) {
    char node[LOGDIR_NAME_MAX + 1];
    logdir_node_name(c->config.host, c->form.host_index, node);
    (void)snprintf(f->node, sizeof f->node, "%.120s", node);
    (void)snprintf(f->role, sizeof f->role, "%s", c->spec->role);
    f->node_rank = c->form.node_rank;
    f->incarnation = c->config.incarnation;
    f->wall_ns = clock_wall_ns();
}

static void describe_worker(const struct local_workers *c, uint32_t index, struct failure *f) {
    describe_node(c, f);
    f->rank = c->form.first_rank + index;
    f->local_rank = index;
}

/* The guardian kills all workers of a generation or none: the whole node is fenced. */
static bool killed_by_guardian(const struct local_workers *c, const struct worker_exit *how) {
    return child_killed_by(&how->status, SIGKILL) && guardian_fences(c->config.link) != c->fences;
}

static void on_worker_ended(void *arg, uint32_t index, const struct worker_exit *how) {
    struct local_workers *c = arg;
    const struct child_status *status = &how->status;
    bool ok = child_succeeded(status), guardian = killed_by_guardian(c, how);
    if (ok || guardian || how->sent_by_us) {
        logmux_exited(c->logs, index, NULL);
        if (ok && !c->stop_requested && c->n_early++ == 0)
            c->first_early = index;
        if (ok && ++c->n_ok == c->spec->nproc)
            report(c, MEMBER_EVENT_SUCCEEDED, NULL);
        if (guardian && !how->sent_by_us)
            report(c, MEMBER_EVENT_FENCED, NULL);
        return;
    }
    struct failure *f = c->records[index].failure = xmalloc(sizeof *f);
    *f = (struct failure){
        .kind = how->oom            ? FAILURE_OOM
                : status->signalled ? FAILURE_SIGNAL
                                    : FAILURE_EXIT,
        .code = status->code,
        .core_dumped = status->core_dumped,
        .pid = status->pid,
        .at_ns = status->at_ns,
        .ran_ns = how->ran_ns,
    };
    describe_worker(c, index, f);
    _cleanup_(freep) char *error_file = worker_logs_error_file(c->files, index);
    logmux_exited(c->logs, index, error_file);
}

static void on_spawn_failed(void *arg, uint32_t index, const struct err *err) {
    struct local_workers *c = arg;
    logmux_exited(c->logs, index, NULL);
    struct failure f = {.kind = FAILURE_SPAWN, .code = -err->code, .at_ns = clock_now_ns()};
    if (index == c->unmade) { /* not a failure of the program */
        local_workers_node_failure(c, err->text, &f);
    } else {
        describe_worker(c, index, &f);
        (void)snprintf(f.text, sizeof f.text, "%s", err->text);
    }
    report(c, MEMBER_EVENT_FAILURE, &f);
}

static void came(struct local_workers *c, unsigned what, const struct err *failed);

static void on_group_gone(void *arg) {
    struct local_workers *c = arg;
    check_all_gone(c);
    if (c->ending == NULL || !worker_group_gone(c->ending))
        return;
    c->ending = NULL;
    came(c, AWAITS_KEPT, NULL);
}

/* ---- detached processes (worker_io.h) ---- */

/* Ends what workers have left: the job did not succeed, or there is another generation. */
static void end_kept(struct local_workers *c) {
    if (c->running || c->workers == NULL || worker_group_kept(c->workers) == 0)
        return;
    c->ending = c->workers;
    put_aside(c);
    worker_group_stop(c->ending, SIGTERM, c->grace_ns);
}

bool local_workers_leave_kept(struct local_workers *c) {
    return c->workers != NULL && worker_group_leave_kept(c->workers);
}

static void on_unkillable(void *arg, pid_t pid, const char *text) {
    struct local_workers *c = arg;
    log_error("%s can't be killed; this node takes no further part in the job", text);
    c->ops.on_event(c->arg,
                    &(struct member_event){.kind = MEMBER_EVENT_UNKILLABLE, .reason = text});
}

static const struct worker_group_ops worker_ops = {
    make,          made,    on_worker_ended, on_spawn_failed, on_group_gone,
    on_unkillable, on_over, on_waiting,      is_of_other};

/* Any process on this host can send to the socket, and workers of an earlier generation can still
 * be ending. So only messages of workers that run now count. */
static void on_notify(void *arg, pid_t pid, const struct notify_message *message) {
    struct local_workers *c = arg;
    uint32_t i;
    if (!c->running || !message->any)
        return;
    if (!worker_group_holds(c->workers, pid, &i)) {
        log_debug("a notification of process %d, which is not a worker, is ignored", (int)pid);
        return;
    }
    announced_take(&c->records[i].announced, message, clock_now_ns());
    if (message->safe_point)
        report(c, MEMBER_EVENT_SAFE_POINT, NULL);
    if (message->has_step && c->first_step == 0) {
        c->first_step = message->step;
        report(c, MEMBER_EVENT_STEP, NULL);
    }
}

/* Decides what this node gives its workers. It is logged at their start, as it can change. */
static int set_up(struct local_workers *c, const struct netif_choice *netif, struct err *err) {
    c->place.log_dir = worker_logs_node_dir(c->files);
    c->place.netif = netif;
    node_setup_fini(&c->setup);
    return node_setup_read(&c->place, &c->setup, err);
}

static void came(struct local_workers *c, unsigned what, const struct err *failed) {
    struct err err = {0};
    int r = 0;
    if ((c->awaits & what) == 0)
        return;
    c->awaits = failed != NULL ? 0 : c->awaits & ~what;
    if (c->awaits != 0)
        return;
    if (failed == NULL)
        r = set_up(c, NULL, &err);
    c->ops.on_prepared(c->arg, c->place.generation, r < 0 ? &err : failed);
}

static void on_discovered(void *arg) { came(arg, AWAITS_DISCOVERY, NULL); }
static void on_way(void *arg) { came(arg, AWAITS_WAY, NULL); }
/* Also after the generation that borrowed it. */
static void on_lent(void *arg) { came(arg, AWAITS_LENT, NULL); }
static void on_files(void *arg, const struct err *err) { came(arg, AWAITS_FILES, err); }

/* ---- the calls ---- */

struct local_workers *local_workers_new(struct loop *loop,
                                        const struct local_workers_config *config,
                                        const struct local_workers_ops *ops, void *arg) {
    struct local_workers *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->config = *config;
    c->place = config->place;
    c->place.form = &c->form;
    c->spec = config->place.spec;
    c->ops = *ops;
    c->arg = arg;
    c->grace_ns = c->spec->shutdown_timeout_ns;
    c->oom_file = cgroup_oom_file();
    c->files = worker_logs_new(c->spec, config->host, config->writer, on_files, c);
    c->records = xcalloc(MAX2(c->spec->nproc, 1u), sizeof *c->records);
    c->doubt_timer = loop_timer_new(loop, on_doubt_timer, c);
    struct err err = {0};
    if (notify_new(loop, on_notify, c, &c->notify, &err) < 0) /* its messages are only hints */
        log_warning("%s; workers can't announce anything", err.text);
    if (warm_new(c) < 0)
        log_warning("workers cannot be warm: files cannot be kept in memory");
    if (c->place.discovery != NULL)
        node_discovery_wait(c->place.discovery, on_discovered, c);
    return c;
}

static void drop_generation(struct local_workers *c) {
    worker_group_free(TAKE_PTR(c->workers));
    logmux_free(TAKE_PTR(c->logs));
    for (uint32_t i = 0; i < c->spec->nproc; i++) {
        free(c->records[i].failure);
        free(c->records[i].tail);
        c->records[i] = (struct worker_record){0};
    }
    c->n_tails = 0;
    c->first_step = 0;
    node_setup_fini(&c->setup);
    if (!c->way_is_lent)
        node_discovery_free(c->place.way);
    c->place.way = NULL;
    c->way_is_lent = false;
    c->awaits = 0;
    c->running = false;
    c->n_ok = c->n_early = 0;
    c->stop_requested = false;
}

void local_workers_free(struct local_workers *c) {
    if (c == NULL)
        return;
    drop_generation(c);
    while (c->n_left > 0)
        forget_left(c, 0);
    warm_pool_free(c->warm);
    notify_free(c->notify);
    worker_logs_free(c->files);
    loop_timer_free(c->doubt_timer);
    free(c->records);
    free(c->oom_file);
    free(c->setup_logged);
    free(c->recorded);
    free(c);
}

/* Asks for the route in each generation, because routes change. */
static void look_for_way(struct local_workers *c) {
    struct err err = {0};
    if (c->ops.lend != NULL && node_net_is_far(&c->place))
        c->place.way = c->ops.lend(c->arg, c->form.store_host);
    c->way_is_lent = c->place.way != NULL;
    if (c->way_is_lent && !node_discovery_found(c->place.way)->ended) {
        c->awaits |= AWAITS_LENT;
        node_discovery_wait(c->place.way, on_lent, c);
    }
    if (c->way_is_lent)
        return;
    if (node_net_discover(c->loop, &c->place, &c->place.way, &err) < 0)
        log_warning("%s; which interface leads to the leader is not known", err.text);
    if (c->place.way == NULL)
        return;
    c->awaits |= AWAITS_WAY;
    node_discovery_wait(c->place.way, on_way, c);
}

int local_workers_prepare(struct local_workers *c, struct generation g, const struct form *form,
                          struct err *err) {
    assert(!c->running);
    end_kept(c);
    if (c->workers != NULL && !is_over(c->workers, c->logs))
        put_aside(c);
    drop_generation(c);
    if (c->ending != NULL)
        c->awaits |= AWAITS_KEPT;
    c->place.generation = g;
    c->form = *form;
    (void)snprintf(c->generation_text, sizeof c->generation_text, "%u.%u", g.epoch, g.counter);
    int r = check_own_store(c, err);
    if (r < 0)
        return r;
    if (worker_logs_prepare(c->files, c->generation_text, form) == WORKER_LOGS_E_LATER)
        c->awaits |= AWAITS_FILES;
    c->logs = logmux_new(c->loop, c->config.writer, c->spec, c->config.host, form->first_rank,
                         &logmux_ops, c);
    if (c->place.discovery != NULL && !node_discovery_found(c->place.discovery)->ended)
        c->awaits |= AWAITS_DISCOVERY;
    look_for_way(c);
    return c->awaits != 0 ? LOCAL_WORKERS_E_LATER : set_up(c, NULL, err);
}

/* For "muster logs": where this run's logs are. */
static void record_run(struct local_workers *c) {
    const char *dir = worker_logs_wanted(c->files) ? worker_logs_kept(c->files) : NULL;
    struct err err = {0};
    if (c->recorded != NULL && strcmp(c->recorded, dir == NULL ? "" : dir) == 0)
        return;
    free(c->recorded);
    c->recorded = xstrdup(dir == NULL ? "" : dir);
    if (recent_runs_add(c->spec->run_id, c->form.job_ns, dir, &err) < 0)
        log_debug("%s", err.text); /* then 'muster logs' needs the folder */
}

int local_workers_start(struct local_workers *c, const struct netif_choice *netif,
                        struct err *err) {
    const uint32_t n = c->spec->nproc;
    int r = netif != NULL ? set_up(c, netif, err) : 0;
    if (r < 0)
        return r;
    node_setup_log(&c->setup, &c->place, &c->setup_logged);
    bool omp = c->setup.workers[0].omp_threads == 0 && worker_env_sets_omp(c->place.envp, n);
    if (!c->omp_logged && omp) {
        c->omp_logged = true;
        log_info("OMP_NUM_THREADS=1 for each worker, since it is not set; set it to tune");
    }
    struct worker_group_config config = {
        .generation = generation_to_u64(c->place.generation),
        .oom_file = c->oom_file,
        .spare = guardian_spared(c->config.link),
        .leave_detached = c->spec->leave == JOB_LEAVE_DETACHED,
        .grace_ns = c->grace_ns,
        .first_rank = c->form.first_rank,
        .store_port = store_port(c),
        .nofile_soft = c->config.nofile_soft,
        .warm = c->warm,
    };
    c->fences = guardian_fences(c->config.link);
    worker_group_start(c->loop, c->config.reaper, n, &config, &worker_ops, c, &c->workers);
    c->running = true;
    c->warm_generation = c->place.generation;
    record_run(c);
    return 0;
}

void local_workers_stop(struct local_workers *c, int signo, uint64_t grace_ns) {
    end_kept(c);
    for (uint32_t i = c->n_left; i-- > 0;)
        if (i < c->n_left)
            worker_group_stop(c->left[i].workers, signo, MIN2(grace_ns, c->grace_ns));
    c->stop_requested = true;
    if (c->workers != NULL && !worker_group_over(c->workers))
        worker_group_stop(c->workers, signo, MIN2(grace_ns, c->grace_ns));
}

void local_workers_set_grace(struct local_workers *c, uint64_t grace_ns) { c->grace_ns = grace_ns; }

void local_workers_shorten_grace(struct local_workers *c, uint64_t grace_ns) {
    c->grace_ns = grace_ns;
    if (c->stop_requested)
        local_workers_stop(c, SIGTERM, grace_ns); /* a second stop sends no signal */
}

void local_workers_hold(struct local_workers *c, int signo) {
    if (!c->running)
        return;
    worker_group_hold(c->workers, signo);
    for (uint32_t i = 0; i < c->spec->nproc; i++) {
        const struct failure *f = c->records[i].failure;
        if (f != NULL && f->kind == FAILURE_SIGNAL && f->code == signo)
            free(take_pending(c, i));
    }
    loop_timer_set(c->doubt_timer, clock_now_ns()); /* all may be gone: reported from the loop */
}

void local_workers_release(struct local_workers *c, uint64_t had_ns) {
    if (c->running)
        worker_group_release(c->workers, had_ns);
}

uint32_t local_workers_signal(struct local_workers *c, int signo, uint64_t before_ns) {
    if (!c->running)
        return 0;
    if (signo == SIGWINCH)
        logmux_resize(c->logs);
    return worker_group_signal(c->workers, signo, before_ns);
}

void local_workers_kill(struct local_workers *c) {
    end_kept(c);
    for (uint32_t i = c->n_left; i-- > 0;)
        if (i < c->n_left) /* those that are over at once are forgotten at once */
            worker_group_kill(c->left[i].workers);
    if (c->workers != NULL && !worker_group_over(c->workers))
        worker_group_kill(c->workers);
}

void local_workers_node_failure(const struct local_workers *c, const char *text,
                                struct failure *ret) {
    *ret = (struct failure){.kind = FAILURE_NODE, .at_ns = clock_now_ns()};
    describe_node(c, ret);
    ret->rank = c->form.first_rank;
    (void)snprintf(ret->text, sizeof ret->text, "%s", text);
}

bool local_workers_has_workers(const struct local_workers *c) { return c->running; }

uint32_t local_workers_workers_alive(const struct local_workers *c) {
    return c->running ? worker_group_alive(c->workers) : 0;
}

uint32_t local_workers_ended_well(const struct local_workers *c, uint32_t *ret_rank) {
    *ret_rank = c->form.first_rank + c->first_early;
    return c->n_early;
}

struct worker_logs *local_workers_files(const struct local_workers *c) {
    return c->files;
}

void local_workers_stderr_tail(const struct local_workers *c, uint32_t local_rank,
                               struct strbuf *ret) {
    strbuf_clear(ret);
    if (local_rank < c->spec->nproc && c->records[local_rank].tail != NULL)
        strbuf_add(ret, c->records[local_rank].tail);
}

/* ---- what the watchdog gets ---- */

static pid_t pid_of(const struct local_workers *c, uint32_t i) {
    return c->running ? worker_group_pid(c->workers, i) : 0;
}

static struct worker_announced announced(const struct local_workers *c, uint32_t i,
                                         uint64_t now_ns) {
    const struct announced *a = &c->records[i].announced;
    struct worker_announced ret = {.step = a->step, .alive_ns = a->alive_ns};
    if (!announced_limit(a, now_ns, &ret.limit_ns, &ret.since_ns))
        ret.limit_ns = 0;
    return ret;
}

static bool is_held(const struct local_workers *c, uint32_t i) {
    return c->running && c->logs != NULL && logmux_is_held(c->logs, i);
}

static bool env_of(const struct local_workers *c, uint32_t i, struct envlist *ret) {
    return i < c->spec->nproc && build_env(c, i, NULL, ret, NULL) == 0;
}

static char *log_path(const struct local_workers *c, uint32_t i, int stream) {
    const char *dir = i < c->spec->nproc ? worker_logs_dir(c->files, i) : NULL;
    return dir == NULL ? NULL : logdir_log_path(dir, stream);
}

static const char *node_dir(const struct local_workers *c) {
    return c->spec->log_dir != NULL ? worker_logs_node_dir(c->files) : NULL;
}

struct hang_workers local_workers_for_hangs(struct local_workers *c) {
    static const struct hang_workers_ops ops = {.pid = pid_of,
                                                .any = local_workers_has_workers,
                                                .announced = announced,
                                                .is_held = is_held,
                                                .env = env_of,
                                                .log_path = log_path,
                                                .store_port = store_port,
                                                .node_dir = node_dir,
                                                .hang_dir = worker_logs_hang_dir,
                                                .keep_files = worker_logs_keep,
                                                .spare = spare_add,
                                                .spared = spare_lives,
                                                .is_named = sweep_is_named};
    return (struct hang_workers){
        .ops = &ops, .of = c, .files = c->files, .spare = guardian_spared(c->config.link)};
}
