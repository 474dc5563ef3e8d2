#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/log.h"
#include "cli/jobs/run_line_io.h"
#include "cli/jobs/shell_words.h"
#include "cli/options/commands.h"
#include "cli/options/job_options.h"
#include "launcher/agent/agent_io.h"
#include "launcher/node/node_setup.h"
#include "launcher/node/python_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/worker_logs_io.h"
#include "launcher/place/place.h"
#include "launcher/srun/hold_io.h"
#include "launcher/srun/srun_io.h"
#include "launcher/srun/step_cpus_io.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/ssh/ssh_head_io.h"
#include "launcher/ssh/ssh_node_io.h"
#include "launcher/starter/local_io.h"
#include "launcher/worker/worker_env.h"
#include "nccl_env/facts/facts_io.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/nccl/nccl_graph.h"

extern char **environ;

/* ---- --dry-run: what each worker would be started with ---- */

struct dry_run {
    const struct job_spec *spec;
    char *const *envp;
    struct topology topology;
    struct nccl_graph *graph;
    struct nccl_facts facts;
    struct netif_choice netif;
    struct rocm_gpu rocm[TOPO_GPUS_MAX];
    struct node_setup setup;
    char *python;  /* NULL: not needed */
    char *log_dir; /* of this node; ends in words in capitals; NULL: none */
};

static void dry_run_fini(struct dry_run *d) {
    node_setup_fini(&d->setup);
    nccl_graph_free(d->graph);
    topology_fini(&d->topology);
    nccl_facts_fini(&d->facts);
    free(d->python);
    free(d->log_dir);
}

/* The same steps as in a job, without the route to a leader, which is not known yet. */
static int set_up(struct dry_run *d, struct err *err) {
    const struct job_spec *spec = d->spec;
    bool any_gpu = discover_has_gpus();
    struct node_setup_input in = {
        .spec = spec,
        .env = {.envp = d->envp,
                .any_gpu = any_gpu,
                .n_nodes = spec->rdzv.max_nodes,
                .log_dir = d->log_dir,
                .comm_id = spec->nccl_comm_id ? "MASTER_ADDR:PORT" : NULL,
                .preview = true},
        .rocm = d->rocm,
    };
    struct discovery_config config = {.what = node_setup_needs(spec, any_gpu)};
    struct err found = {0};
    if (config.what != 0 && topology_discover(&config, &d->topology, &found) == 0) {
        struct nccl_facts_config of = {.envp = d->envp, .set = spec->env, .python = d->python};
        struct netif_input net = {.n_nodes = in.env.n_nodes, .leader_addr = "", .route_netif = ""};
        in.env.topology = &d->topology;
        nccl_facts_read(&of, &d->facts);
        in.env.facts = &d->facts;
        if (nccl_graph_new(&d->topology, &d->graph, &found) == 0)
            in.env.graph = d->graph;
        netif_choose(&d->topology, &net, &d->netif);
        in.env.netif = &d->netif;
    } else if (config.what != 0) {
        log_warning("this node can't be examined: %s", found.text);
    }
    if (any_gpu)
        in.n_rocm = kfd_list_gpus(NULL, d->rocm, TOPO_GPUS_MAX);
    return node_setup_make(&in, &d->setup, err);
}

/* A run id that was not given is a random one. */
static const char *run_id_of(const struct job_spec *spec) {
    return job_id_is_common(spec) ? spec->run_id : "RUN_ID";
}

#define TEMP_DIR "TMPDIR/muster-XXXXXX"

static char *log_dir_of(const struct job_spec *spec) {
    if (spec->log_dir == NULL)
        return worker_logs_asked_for(spec) ? xstrdup(TEMP_DIR "/GENERATION/NODE") : NULL;
    if (logdir_is_null(spec->log_dir))
        return NULL;
    _cleanup_(freep) char *cwd = spec->log_dir[0] != '/' ? run_line_probes.cwd() : NULL;
    char name[LOGDIR_NAME_MAX + 1];
    logdir_sanitise(run_id_of(spec), name);
    return xasprintf("%s%s%s/%s/GENERATION/NODE", cwd != NULL ? cwd : "", cwd != NULL ? "/" : "",
                     spec->log_dir, name);
}

/* Whether the ranks are known before the nodes meet: one node, or static. */
static bool ranks_are_known(const struct job_spec *spec) {
    return spec->rdzv.max_nodes == 1 || job_backend(spec)->ranks_are_chosen;
}

/* NULL: none. Without log files they are in a temporary folder: worker_logs_error_file(). */
static char *error_file_of(const struct dry_run *d, bool known, uint32_t rank) {
    if (d->log_dir == NULL && d->spec->log_dir != NULL)
        return NULL;
    _cleanup_(freep) char *number = known ? xasprintf("%" PRIu32, rank) : xstrdup("RANK");
    return d->log_dir != NULL ? xasprintf("%s/%s/error.json", d->log_dir, number)
                              : xasprintf(TEMP_DIR "/GENERATION-%s-error.json", number);
}

/* The variables of a worker. What is known only when the job runs is a word in capitals. */
static int build_env(const struct dry_run *d, uint32_t i, struct envlist *ret, struct err *err) {
    const struct job_spec *spec = d->spec;
    bool known = ranks_are_known(spec), alone = spec->rdzv.max_nodes == 1;
    uint32_t node = spec->node_rank > 0 && !alone ? (uint32_t)spec->node_rank : 0;
    uint32_t rank = node * spec->nproc + i;
    _cleanup_(freep) char *error_file = error_file_of(d, known, rank);
    const uint32_t world = spec->nproc * spec->rdzv.max_nodes;
    const struct form form = {.node_rank = node,
                              .n_nodes = spec->rdzv.max_nodes,
                              .first_rank = rank - i,
                              .world_size = world,
                              .role_first_rank = rank - i,
                              .role_world_size = world,
                              .max_restarts = spec->rdzv.max_restarts};
    struct worker_env_input in = {.spec = spec,
                                  .form = &form,
                                  .local_rank = i,
                                  .generation = "GENERATION",
                                  .error_file = error_file,
                                  .omp_threads = d->setup.workers[i].omp_threads,
                                  .notify_socket = "SOCKET",
                                  .worker_id = "ID"};
    worker_env_master(spec, &in.master_addr, &in.master_port);
    if (in.master_addr == NULL)
        in.master_addr = alone ? "127.0.0.1" : "LEADER";
    int r = worker_env_build(d->envp, &in, ret, err);
    if (r == 0)
        node_setup_add_env(&d->setup, i, ret);
    static const char *const of_the_group[] = {
        "RANK",      "WORLD_SIZE",      "GROUP_RANK",      "MUSTER_NODE_RANK",
        "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"};
    for (size_t k = 0; r == 0 && !known && k < ARRAY_SIZE(of_the_group); k++)
        envlist_set(ret, of_the_group[k], of_the_group[k]);
    if (r == 0 && in.master_port == 0)
        envlist_set(ret, "MASTER_PORT", "PORT");
    if (r < 0)
        return r;
    envlist_set(ret, "MUSTER_EPOCH", "EPOCH");
    envlist_set(ret, "MUSTER_RUN_ID", run_id_of(spec));
    envlist_set(ret, "TORCHELASTIC_RUN_ID", run_id_of(spec));
    return r;
}

/* "env -u OLD NAME=VALUE … command": what differs from this process's environment. */
static void add_command(const struct dry_run *d, const struct envlist *env, char *const *argv,
                        struct strbuf *out) {
    strbuf_add(out, "env");
    for (char *const *e = d->envp; *e != NULL; e++) {
        _cleanup_(freep) char *name = xstrndup(*e, strcspn(*e, "="));
        if (name[0] != '\0' && envlist_get(env, name) == NULL) {
            strbuf_add(out, " -u ");
            shell_add_word(out, name);
        }
    }
    for (size_t i = 0; i < env->n; i++) {
        const char *equals = strchr(env->items[i], '=');
        _cleanup_(freep) char *name = xstrndup(env->items[i], (size_t)(equals - env->items[i]));
        const char *before = env_get(d->envp, name);
        if (before != NULL && strcmp(before, equals + 1) == 0)
            continue;
        strbuf_add(out, " \\\n  ");
        shell_add_assignment(out, env->items[i]);
    }
    strbuf_add(out, " \\\n  ");
    for (size_t i = 0; argv[i] != NULL; i++) {
        strbuf_add(out, i > 0 ? " " : "");
        shell_add_word(out, argv[i]);
    }
    strbuf_add_char(out, '\n');
}

static int add_worker(const struct dry_run *d, uint32_t i, struct strbuf *out, struct err *err) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    int r = build_env(d, i, &env, err);
    if (r < 0)
        return r;
    char **argv = worker_argv_build(d->spec, d->python, i);
    strbuf_printf(out, "%s# rank %s, local rank %u\n", i > 0 ? "\n" : "", envlist_get(&env, "RANK"),
                  i);
    if (d->setup.workers[i].affinity.bound) {
        strbuf_add(out, "# ");
        node_setup_describe_worker(&d->setup, i, out);
        strbuf_add_char(out, '\n');
    }
    add_command(d, &env, argv, out);
    words_free(argv);
    return 0;
}

/* Of a head: what its agent on the first node would start. Borrows from spec. */
static struct job_spec of_first_node(const struct job_spec *spec) {
    struct job_spec first = *spec;
    const struct hosts *hosts = &spec->hosts.list;
    if (spec->start_nodes > 0 && hosts->n == 0)
        first.rdzv.max_nodes = spec->start_nodes;
    if (hosts->n > 0)
        first.nproc = ssh_job_of(spec, 0, 0, "", 0).nproc;
    return first;
}

/* "# node2: node rank 1, 8 workers": what the head would start there. */
static void add_hosts(const struct job_spec *spec, struct strbuf *out) {
    const struct hosts *hosts = &spec->hosts.list;
    for (size_t i = 0; i < hosts->n; i++) {
        const struct job_spec job = ssh_job_of(spec, i, 0, "", 0);
        strbuf_printf(out, "# %s: node rank %d", hosts->items[i].name, job.node_rank);
        if (job.nproc_by == JOB_NPROC_NUMBER)
            strbuf_printf(out, ", %u worker%s", job.nproc, job.nproc == 1 ? "" : "s");
        strbuf_add(out, job_meets_at_host(spec) ? ", meets the others on node 0\n" : "\n");
    }
}

/* Prints a command for each worker of this, or the first, node, and before what hosts there are. */
static int dry_run(const struct job_spec *of_head, char *const *envp) {
    const struct job_spec first = of_first_node(of_head), *spec = &first;
    _cleanup_(dry_run_fini) struct dry_run d = {.spec = spec, .envp = envp};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    int r = spec->entry != JOB_ENTRY_PROGRAM
                ? python_find(program_invocation_name, envp, &d.python, &err)
                : 0;
    d.log_dir = log_dir_of(spec);
    if (r == 0)
        r = set_up(&d, &err);
    strbuf_add(&text, "# nothing is started; words in capitals are known only when the job runs\n");
    if (spec->start_nodes > 0)
        strbuf_printf(&text,
                      "# muster would start itself on %" PRIu32 " node%s: this is the first, if it "
                      "is like this machine\n",
                      spec->start_nodes, spec->start_nodes == 1 ? "" : "s");
    add_hosts(spec, &text);
    for (uint32_t i = 0; r == 0 && i < spec->nproc; i++)
        r = add_worker(&d, i, &text, &err);
    if (r < 0)
        return print_failure(&err);
    return print_text(&text);
}

/* ---- starting it ---- */

/* The agent of this node. Other tasks of Slurm hold until it has ended, if there are any. */
static int be_agent(const struct job_spec *spec, struct keyring *keys, const char *hold) {
    struct err err = {0};
    int fd = -1;
    if (hold != NULL && hold_claim(hold, &fd, &err) < 0) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    srun_restore_env();
    int status = job_start(spec, environ, keys);
    hold_tell(fd, status);
    return status;
}

/* What starts the agents, by --starter. */
static int (*const starters[])(const struct starter_run_config *config) = {
    [JOB_STARTER_SRUN] = srun_run,
    [JOB_STARTER_SSH] = ssh_head_run,
    [JOB_STARTER_LOCAL] = local_run,
};

static int start_on_nodes(const struct job_spec *spec, struct keyring *keys, char **args) {
    _cleanup_(freep) char *python = NULL;
    const enum job_starter starter = spec->hosts.list.n > 0             ? JOB_STARTER_SSH
                                     : spec->starter > JOB_STARTER_NONE ? spec->starter
                                                                        : JOB_STARTER_SRUN;
    keyring_keep_from_children(keys);
    if (spec->entry != JOB_ENTRY_PROGRAM && /* only the nodes need one */
        python_find(program_invocation_name, environ, &python, NULL) == 0)
        python_warn_of_other(python, environ);
    return starters[starter](&(struct starter_run_config){.spec = spec,
                                                          .nodes = spec->start_nodes,
                                                          .args = args,
                                                          .envp = environ,
                                                          .keys = keys,
                                                          .version = MUSTER_VERSION,
                                                          .write_job = job_write,
                                                          .argv0 = program_invocation_name,
                                                          .python = python});
}

static int start(const struct job_spec *spec, struct keyring *keys, char **argv) {
    char hold[HOLD_NAME_MAX];
    const struct place *place = &spec->place;
    if (spec->hosts.list.n > 0 || spec->start_nodes > 0)
        return start_on_nodes(spec, keys, argv + 1);
    if (!place_has_one_agent(spec->nodes) || place->node_tasks == 1)
        return be_agent(spec, keys, NULL);
    hold_name(place->run_id, place->node_id, hold);
    return place->local_id == 0
               ? be_agent(spec, keys, hold)
               : hold_wait(hold, place->node_tasks - 1, place->local_id, HOLD_START_NS);
}

/* A shell without job control ignores these in a command that it starts with "&". kill -INT is to
 * stop the job there, too, and workers are to get KeyboardInterrupt. */
static void end_ignoring(void) {
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGQUIT, SIG_DFL);
}

int cmd_run(int argc, char **argv) {
    struct job_spec spec = {0};
    struct run_keys keys;
    struct err err = {0};
    end_ignoring();
    run_keys_take(&keys);
    int status = run_line_read(argc, argv, &keys, &spec);
    if (status < 0 && spec.dry_run)
        status = dry_run(&spec, environ);
    else if (status < 0 && run_keys_load(&keys, &spec, &err) < 0)
        status = usage_error("run", "%s", err.text);
    else if (status < 0)
        status = start(&spec, keys.ring, argv);
    run_keys_fini(&keys);
    job_spec_fini(&spec);
    return status;
}

/* `muster ssh-node`: the relay that `muster run` starts on other hosts. */
int cmd_ssh_node(int argc, char **argv) {
    if (argc > 1)
        return usage_error("ssh-node", "unknown argument \"%s\"; it takes none", argv[1]);
    /* the head calls it by its whole path */
    if (program_invocation_name[0] != '/')
        return usage_error("ssh-node", "muster run starts this on other hosts, by its whole path");
    log_set_level(LOG_LEVEL_WARNING); /* its standard error is ssh's */
    return ssh_node_run(&(struct ssh_node_config){.in_fd = 0,
                                                  .out_fd = 1,
                                                  .version = MUSTER_VERSION,
                                                  .program = program_invocation_name,
                                                  .envp = environ,
                                                  .boot_ns = SSH_NODE_BOOT_NS,
                                                  .silence_ns = SSH_SILENCE_NS});
}
