#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/net/addr.h"
#include "launcher/supervise/local_workers_priv.h"
#include "launcher/worker/worker_env.h"

/* Rank 0 opens the workers' store itself, at the one address that all nodes know: the leader's. */
int local_workers_check_own_store(const struct local_workers *c, struct err *err) {
    const struct form *f = &c->form;
    struct addr at;
    if (!c->config.spec->workers_store || f->node_rank != 0 ||
        (addr_from_literal(f->store_host, f->store_port, &at) == 0 && addr_is_local(&at)))
        return 0;
    return err_set(
        err, -EINVAL,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: rank 0 opens the store, at %s, so it must "
        "run on the host that leads; give the agent there --node-rank=0",
        f->store_host);
}

uint16_t local_workers_store_port(const struct local_workers *c) {
    struct worker_env_input in;
    worker_env_of_job(c->config.spec, 0, &in);
    return in.master_port != 0 ? in.master_port : c->form.store_port;
}

struct node_setup_place local_workers_place(const struct local_workers *c,
                                            const struct netif_choice *netif) {
    return (struct node_setup_place){
        .spec = c->config.spec,
        .envp = c->config.envp,
        .discovery = c->config.discovery,
        .way = c->way,
        .any_gpu = c->config.any_gpu,
        .python = c->config.python,
        .generation = c->generation,
        .form = &c->form,
        .log_dir = worker_logs_node_dir(c->files),
        .netif = netif,
    };
}

void local_workers_group_config(const struct local_workers *c, struct worker_group_config *ret) {
    *ret = (struct worker_group_config)WORKER_GROUP_CONFIG_INIT;
    ret->generation = generation_to_u64(c->generation);
    ret->cgroup_fd = c->config.link->cgroup_fd;
    ret->spare = guardian_spared(c->config.link);
    ret->oom_file = c->oom_file;
    ret->nofile_soft = c->config.nofile_soft;
    ret->leave_detached = c->config.spec->leave == JOB_LEAVE_DETACHED;
    ret->grace_ns = c->grace_ns;
    ret->first_rank = c->form.first_rank;
    ret->store_port = local_workers_store_port(c);
    ret->warm = c->warm;
}

/* A literal IPv6 address breaks tcp://ADDR:PORT, so scripts get the name by which the nodes met. */
static const char *master_host(const struct job_spec *spec, const struct form *f) {
    struct addr at;
    bool named = !job_backend(spec)->ranks_are_chosen && spec->endpoint_host != NULL &&
                 spec->local_addr == NULL && addr_from_literal(spec->endpoint_host, 0, &at) < 0;
    return named && strchr(f->store_host, ':') != NULL ? spec->endpoint_host : f->store_host;
}

static int build_env(const struct local_workers *c, uint32_t i, struct envlist *ret,
                     struct err *err) {
    const struct job_spec *spec = c->config.spec;
    const struct form *f = &c->form;
    _cleanup_(freep) char *error_file = worker_logs_error_file(c->files, i);
    /* Other programs can start several that would all listen there. */
    _cleanup_(freep) char *server_socket =
        spec->entry != JOB_ENTRY_PROGRAM ? worker_logs_socket(c->files, i) : NULL;
    struct worker_env_input in;
    worker_env_of_job(spec, i, &in);
    in.generation = c->generation_text;
    in.epoch = c->generation.epoch;
    in.node_rank = f->node_rank;
    in.n_nodes = f->n_nodes;
    in.master_addr = in.master_addr != NULL ? in.master_addr : master_host(spec, f);
    in.master_port = local_workers_store_port(c);
    in.world_size = f->world_size;
    in.rank = f->first_rank + i;
    in.role_rank = f->role_first_rank + i;
    in.role_world_size = f->role_world_size;
    in.restart_count = f->restarts_used;
    in.max_restarts = f->max_restarts;
    in.error_file = error_file;
    in.server_socket = server_socket;
    in.notify_socket = c->notify != NULL ? notify_name(c->notify) : NULL;
    in.omp_threads = c->setup.workers[i].omp_threads;
    int r = worker_env_build(c->config.envp, &in, ret, err);
    if (r == 0)
        node_setup_add_env(&c->setup, i, ret);
    return r;
}

bool local_workers_env(const struct local_workers *c, uint32_t i, struct envlist *ret) {
    return i < c->config.spec->nproc && build_env(c, i, ret, NULL) == 0;
}

/* Binds a worker to CPUs and memory. */
static void bind_worker(const struct affinity *a, struct worker_spec *spec) {
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

void local_workers_made(void *arg, uint32_t i) {
    struct local_workers *c = arg;
    logmux_started(c->logs, i);
    worker_logs_started(c->files, i);
    envlist_fini(&c->env);
    words_free(c->argv);
    c->env = (struct envlist){0};
    c->argv = NULL;
}

static uint32_t shown_ranks(const struct job_spec *job) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->nproc; i++)
        n += job->console_ranks == NULL || job->console_ranks[i];
    return n;
}

static int make(struct local_workers *c, uint32_t i, struct worker_spec *spec, struct err *err) {
    const struct job_spec *job = c->config.spec;
    int r = build_env(c, i, &c->env, err);
    if (r < 0)
        return r;
    c->argv = worker_argv_build(job, c->config.python, i);
    bool lacking = worker_logs_wanted(c->files) && worker_logs_dir(c->files, i) == NULL;
    unsigned redirects = std_map_get(&job->redirects, i), tee = std_map_get(&job->tee, i);
    struct logmux_worker log = {
        .local_rank = i,
        .rank = c->form.first_rank + i,
        .role = job->role,
        .hostname = c->config.host,
        .dir = worker_logs_dir(c->files, i),
        .redirects = redirects,
        .tee = lacking ? tee | redirects : tee, /* all output goes to the console, with prefixes */
        .prefixed = job->rank_prefix,
        .on_console = job->console_ranks == NULL || job->console_ranks[i],
        .alone = shown_ranks(job) == 1,
    };
    worker_logs_file_fds(c->files, i, log.file_fds);
    spec->argv = c->argv;
    spec->envp = envlist_items(&c->env);
    bind_worker(&c->setup.workers[i].affinity, spec);
    return logmux_open(c->logs, i, &log, &spec->stdout_fd, &spec->stderr_fd, err);
}

int local_workers_make(void *arg, uint32_t i, struct worker_spec *ret, struct err *err) {
    struct local_workers *c = arg;
    int r = make(c, i, ret, err);
    if (r < 0)
        c->unmade = i;
    return r;
}
