#include "launcher/srun/srun_command.h"

#include <errno.h>
#include <string.h>

#include "base/text/parse.h"
#include "launcher/hosts/hosts.h"
#include "topology/model/gpu_count.h"

/* ---- whether ---- */

static int not_there(const struct place *place, struct err *err) {
    if (place->slurm == PLACE_SLURM_NONE)
        return err_set(err, -EINVAL,
                       "--starter=srun: there is no job of Slurm here (SLURM_JOB_ID is not set); "
                       "submit it with sbatch, or get nodes with salloc");
    return err_set(err, -EINVAL,
                   "--starter=srun: how many nodes Slurm's job %s has is not known "
                   "(SLURM_JOB_NUM_NODES); start the step by hand: srun muster run ...",
                   place->job_id);
}

int srun_choose(enum job_starter wanted, const struct place *place, const struct place_given *given,
                uint32_t *ret_nodes, struct err *err) {
    *ret_nodes = 0;
    /* the step's own tasks have the same arguments */
    if (wanted == JOB_STARTER_NONE || place->slurm == PLACE_SLURM_STEP)
        return 0;
    bool by_itself = wanted == JOB_STARTER_AUTO;
    if (place->slurm == PLACE_SLURM_NONE || place->job_nodes == 0)
        return by_itself ? 0 : not_there(place, err);
    uint32_t nodes = given->nnodes ? MIN2(given->max_nodes, place->job_nodes) : place->job_nodes;
    if (by_itself && (nodes == 1 || given->meets || given->alone || given->node_rank))
        return 0;
    if (given->nnodes && given->min_nodes > place->job_nodes)
        return err_set(err, -EINVAL,
                       "%u nodes are asked for, but Slurm's job %s has %u; leave --nnodes out, or "
                       "ask Slurm for more: -N%u",
                       given->min_nodes, place->job_id, place->job_nodes, given->min_nodes);
    if (place->het_size > 0 && nodes < place->job_nodes)
        return err_set(err, -EINVAL,
                       "%u nodes are asked for, but the components of Slurm's heterogeneous job %s "
                       "have %u; leave --nnodes out, or choose components by hand: srun "
                       "--het-group=0 muster run ...",
                       nodes, place->job_id, place->job_nodes);
    *ret_nodes = nodes;
    return 0;
}

/* ---- the command ---- */

/* How many tasks each of the job's nodes has; 0: not known, or not the same everywhere. */
static uint32_t uniform_tasks(const struct place *p) {
    struct tasks tasks;
    return p->tasks_per_node != NULL && tasks_read(p->tasks_per_node, 0, &tasks) == 0 &&
                   tasks.least == tasks.most
               ? tasks.most
               : 0;
}

/* GPUs that the job has asked for by task: without an option, Slurm would give this step's only
 * task of a node as many as one task (seen with 22.05). 0: it has asked otherwise, or none. */
static uint32_t gpus_by_task(const struct srun_command *config) {
    const char *text = env_get(config->envp, "SLURM_GPUS_PER_TASK");
    uint32_t each, tasks = uniform_tasks(config->place);
    if (text == NULL)
        return 0;
    const char *colon = strrchr(text, ':'); /* of a type: "a100:2" */
    if (tasks == 0 || parse_u32(colon != NULL ? colon + 1 : text, &each) < 0 || each > GPUS_MAX ||
        tasks > GPUS_MAX)
        return config->place->gpus_on_node;
    return tasks * each;
}

/* One step of several components has the tasks of each, which srun takes from variables; options of
 * the whole step would be of each component. Of several tasks on a node one is the agent. */
static void add_layout(const struct srun_command *config, char ***argv, size_t *n) {
    uint32_t components = config->place->het_size;
    if (components > 0) {
        words_add(argv, n, xasprintf("--het-group=0-%u", components - 1));
        return;
    }
    words_add(argv, n, xasprintf("--nodes=%u", config->nodes));
    words_add(argv, n, xasprintf("--ntasks=%u", config->nodes));
    words_add(argv, n, xstrdup("--ntasks-per-node=1"));
    if (gpus_by_task(config) > 0)
        words_add(argv, n, xasprintf("--gpus-per-node=%u", gpus_by_task(config)));
}

char **srun_argv(const struct srun_command *config) {
    char **argv = NULL;
    size_t n = 0;
    words_add(&argv, &n, xstrdup("srun"));
    add_layout(config, &argv, &n);
    words_add(&argv, &n, xstrdup("--no-kill")); /* the job continues without a node */
    words_add(&argv, &n, xstrdup("--kill-on-bad-exit=0"));
    words_add(&argv, &n, xstrdup("--wait=0"));
    if (!config->binds_nothing)
        words_add(&argv, &n, xstrdup("--cpu-bind=none")); /* muster binds workers */
    words_add(&argv, &n, xstrdup("--mpi=none"));          /* a worker is no task of the step */
    words_add(&argv, &n, xstrdup("--export=ALL"));        /* also after sbatch --export=NONE */
    words_add(&argv, &n, xstrdup("--disable-status"));    /* one SIGINT is passed on */
    words_add(&argv, &n, xstrdup("--input=none")); /* what follows in a script is not muster's */
    words_add(&argv, &n, xstrdup(config->program));
    if (!config->is_torchrun)
        words_add(&argv, &n, xstrdup("run"));
    for (char *const *arg = config->args; *arg != NULL; arg++)
        words_add(&argv, &n, xstrdup(*arg));
    return argv;
}

/* ---- the environment ---- */

/* For which the job's tasks stand; where it has GPUs, workers are counted by these. */
static uint32_t tasks_as_workers(const struct srun_command *config) {
    static const char *const gpus[] = {"SLURM_GPUS",          "SLURM_GPUS_PER_NODE",
                                       "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
                                       "SLURM_JOB_GPUS",      "SLURM_NTASKS_PER_GPU"};
    if (config->place->het_size > 0) /* each component has tasks of its own, which the step has */
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(gpus); i++)
        if (env_get(config->envp, gpus[i]) != NULL)
            return 0;
    return config->place->nproc_is_gpus ? 0 : uniform_tasks(config->place);
}

void srun_env(const struct srun_command *config, struct envlist *ret) {
    static const char *const names[] = {
        /* the layout of the job's tasks */
        "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_CORE",
        "SLURM_NTASKS_PER_SOCKET", "SLURM_NTASKS_PER_GPU", "SLURM_TASKS_PER_NODE",
        "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION",
        "SLURM_ARBITRARY_NODELIST", "SLURM_HOSTFILE", "SLURM_EXACT", "SLURM_GPUS",
        "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_SPREAD_JOB", "SLURM_OVERCOMMIT",
        "SLURM_RELATIVE",
        /* of a task */
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
        /* how srun itself was ordered to behave */
        "SLURM_WAIT", "SLURM_KILL_BAD_EXIT", "SLURM_NO_KILL", "SLURM_MPI_TYPE", "SLURM_EXPORT_ENV",
        "SLURM_LABELIO", "SLURM_UNBUFFEREDIO", "SLURM_STDINMODE", "SLURM_STDOUTMODE",
        "SLURM_STDERRMODE", "SLURM_MULTI_PROG"};
    static const char *const prefixes[] = {"MUSTER_KEY", "SLURM_STEP", "SLURM_CPU_BIND",
                                           "SLURM_MEM_BIND", "SLURM_SRUN_COMM_"};
    const char *cpus = env_get(config->envp, "SLURM_CPUS_PER_TASK");
    uint32_t tasks = tasks_as_workers(config);
    envlist_copy(ret, config->envp);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        envlist_unset(ret, names[i]);
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        envlist_unset_prefix(ret, prefixes[i]);
    if (cpus != NULL)
        envlist_set(ret, STARTER_CPUS_ENV, cpus);
    if (tasks > 1)
        envlist_setf(ret, STARTER_TASKS_ENV, "%u", tasks);
}
