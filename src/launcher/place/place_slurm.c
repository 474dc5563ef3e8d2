#include "launcher/place/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "launcher/hosts/hosts.h"
#include "topology/model/gpu_count.h"

/* slurm/slurm.h */
#define BATCH_STEP UINT32_C(0xfffffffb)
#define INTERACTIVE_STEP UINT32_C(0xfffffffa)

#define ID_MAX 32

/* ---- the environment ---- */

static char *copy_of(char *const *envp, const char *names) {
    const char *text = launcher_value(envp, names, NULL);
    return text != NULL ? xstrdup(text) : NULL;
}

/* 0: it is not set, or no number. */
static uint32_t number_of(char *const *envp, const char *name) {
    const char *text = env_get(envp, name);
    uint32_t n;
    return text != NULL && parse_u32(text, &n) == 0 ? n : 0;
}

/* The nodes of a heterogeneous job (the plain variable is of its first component). 0: not known. */
static uint32_t nodes_of_components(char *const *envp, uint32_t components) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < components; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "SLURM_JOB_NUM_NODES_HET_GROUP_%u", i);
        uint32_t n = number_of(envp, name);
        if (n == 0 || n > TASKS_NODES_MAX - sum)
            return 0;
        sum += n;
    }
    return sum;
}

static bool both_say(char *const *envp, const char *a, const char *b) {
    const char *x = env_get(envp, a), *y = env_get(envp, b);
    return x != NULL && x[0] != '\0' && y != NULL && strcmp(x, y) == 0;
}

/* ---- the witnesses ---- */

/* Which job and step slurmstepd's title or a control group names. */
struct witness {
    char job[ID_MAX], step[ID_MAX]; /* "": none is named */
};

static void take(char ret[ID_MAX], const char *from, size_t n) {
    if (n < ID_MAX)
        (void)snprintf(ret, ID_MAX, "%.*s", (int)n, from);
}

/* "slurmstepd: [28.0]", "[28.batch]", "[28.0+1]" of a heterogeneous job */
static struct witness witness_of_title(const char *title) {
    struct witness w = {"", ""};
    const char *open = title != NULL ? strchr(title, '[') : NULL;
    const char *dot = open != NULL ? strchr(open, '.') : NULL;
    if (dot == NULL || strchr(dot, ']') == NULL)
        return w;
    take(w.job, open + 1, strcspn(open + 1, ".+"));
    take(w.step, dot + 1, strcspn(dot + 1, "]+"));
    return w;
}

/* A line of it: "9:freezer:/slurm_node1/uid_0/job_28/step_0/task_0", or, with version 2,
 * "0::/system.slice/slurmstepd.scope/job_28/step_batch/user/task_special". */
static struct witness witness_of_cgroup(const char *text) {
    static const char job_mark[] = "/job_", step_mark[] = "/step_";
    struct witness w = {"", ""};
    for (const char *line = text; line != NULL && *line != '\0'; line = text_next_line(line)) {
        size_t n = strcspn(line, "\n");
        const char *job = memmem(line, n, job_mark, strlen(job_mark));
        const char *end = line + n;
        const char *step =
            job != NULL ? memmem(job, (size_t)(end - job), step_mark, strlen(step_mark)) : NULL;
        if (step != NULL) {
            job += strlen(job_mark);
            step += strlen(step_mark);
            take(w.job, job, strcspn(job, "/+\n"));
            take(w.step, step, strcspn(step, "/+\n"));
            return w;
        }
    }
    return w;
}

/* Whether it is about the job of the environment, and not about one around it: a shell that salloc
 * started inside a step is below the step's slurmstepd. A component of a heterogeneous job has a
 * number of its own, which follows that of the job's first. */
static bool is_about(const struct witness *w, const struct place *p) {
    uint32_t job, of_env;
    if (parse_u32(w->job, &job) < 0 || parse_u32(p->job_id, &of_env) < 0)
        return strcmp(w->job, p->job_id) == 0;
    return job == of_env || (job > of_env && job - of_env < p->het_size);
}

static enum place_slurm kind_by_witness(const struct witness *w, const struct place *p) {
    uint32_t step;
    if (!is_about(w, p))
        return PLACE_SLURM_ALLOC;
    if (strcmp(w->step, "batch") == 0)
        return PLACE_SLURM_BATCH;
    if (strcmp(w->step, "interactive") == 0)
        return PLACE_SLURM_INTERACTIVE;
    if (parse_u32(w->step, &step) < 0)
        return PLACE_SLURM_ALLOC; /* "extern": somebody logged in */
    return step == BATCH_STEP          ? PLACE_SLURM_BATCH
           : step == INTERACTIVE_STEP  ? PLACE_SLURM_INTERACTIVE
           : step < PLACE_SPECIAL_STEP ? PLACE_SLURM_STEP
                                       : PLACE_SLURM_ALLOC;
}

static enum place_slurm kind_by_variables(char *const *envp) {
    uint32_t step;
    const char *id = env_get(envp, "SLURM_STEP_ID");
    bool has_id = id != NULL && parse_u32(id, &step) == 0;
    if (has_id && step == INTERACTIVE_STEP)
        return PLACE_SLURM_INTERACTIVE;
    if (has_id && step < PLACE_SPECIAL_STEP &&
        both_say(envp, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") &&
        both_say(envp, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
        return PLACE_SLURM_STEP;
    /* set for each task, and the batch script is one */
    return env_get(envp, "SLURM_PROCID") != NULL ? PLACE_SLURM_BATCH : PLACE_SLURM_ALLOC;
}

static enum place_slurm find_kind(char *const *envp, const struct place_facts *facts,
                                  const struct place *p) {
    struct witness w = witness_of_title(facts->stepd);
    if (w.step[0] == '\0')
        w = witness_of_cgroup(facts->cgroup);
    return w.step[0] != '\0' ? kind_by_witness(&w, p) : kind_by_variables(envp);
}

/* ---- what is of the job ---- */

static bool is_shell(const char *program) {
    static const char *const shells[] = {"sh",  "bash", "dash", "ksh",     "mksh", "zsh",
                                         "csh", "tcsh", "ash",  "busybox", "fish", "rc"};
    return program != NULL && text_is_any(program, shells, ARRAY_SIZE(shells));
}

static void read_job(char *const *envp, struct place *p) {
    p->cluster = copy_of(envp, "SLURM_CLUSTER_NAME");
    p->job_nodes = number_of(envp, "SLURM_JOB_NUM_NODES");
    if (p->job_nodes == 0)
        p->job_nodes = number_of(envp, "SLURM_NNODES");
    if (p->het_size > 0 && p->slurm != PLACE_SLURM_STEP)
        p->job_nodes = nodes_of_components(envp, p->het_size);
    p->job_nodelist = copy_of(envp, "SLURM_JOB_NODELIST SLURM_NODELIST");
    p->gpus_on_node = number_of(envp, "SLURM_GPUS_ON_NODE");
}

static void name_run(struct place *p) {
    const bool has_cluster = p->cluster != NULL, has_step = p->step_id != NULL;
    size_t n = (size_t)snprintf(p->run_id, sizeof p->run_id, "%.64s%s%.*s%s%.*s",
                                has_cluster ? p->cluster : "", has_cluster ? "." : "", ID_MAX,
                                p->job_id, has_step ? "." : "", ID_MAX, has_step ? p->step_id : "");
    if (p->restarts > 0)
        (void)snprintf(p->run_id + n, sizeof p->run_id - n, ".%u", p->restarts);
    place_clean_run_id(p);
    p->from.run_id = p->step_id == NULL                       ? "SLURM_JOB_ID"
                     : p->restarts == 0 && p->cluster == NULL ? "SLURM_JOB_ID, SLURM_STEP_ID"
                     : p->restarts == 0 ? "SLURM_CLUSTER_NAME, SLURM_JOB_ID, SLURM_STEP_ID"
                     : p->cluster == NULL
                         ? "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT"
                         : "SLURM_CLUSTER_NAME, SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT";
}

/* ---- what is of the step ---- */

static int missing(const struct place *p, const char *name, struct err *err) {
    return err_set(err, -EINVAL,
                   "this is a task of Slurm's step %s.%s, but %s is not set, or is not a "
                   "number that fits; give --nnodes and --rdzv-endpoint, or don't change "
                   "Slurm's variables",
                   p->job_id, p->step_id, name);
}

struct step_number {
    const char *name;
    uint32_t *to;
    uint32_t least, most;
};

static int read_numbers(char *const *envp, const struct place *p, const struct step_number *numbers,
                        size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        const char *text = env_get(envp, numbers[i].name);
        uint32_t value;
        if (text == NULL || parse_u32(text, &value) < 0 || value < numbers[i].least ||
            value > numbers[i].most)
            return missing(p, numbers[i].name, err);
        *numbers[i].to = value;
    }
    return 0;
}

/* This node in the step's list, which is sorted in a heterogeneous job: by its name there. */
static uint32_t index_of(char *const *envp, const struct place *p, const struct hostlist *nodes) {
    const char *name = env_get(envp, "SLURMD_NODENAME");
    for (uint32_t i = 0; p->het_size > 0 && name != NULL && i < MIN2(nodes->n, p->n_nodes); i++)
        if (strcmp(nodes->names[i], name) == 0)
            return i;
    return p->node_id;
}

static int read_tasks(char *const *envp, const struct hostlist *nodes, struct place *p,
                      struct err *err) {
    static const char name[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *text = env_get(envp, name);
    struct tasks tasks;
    uint32_t index = index_of(envp, p, nodes);
    if (text == NULL || tasks_read(text, index, &tasks) < 0 || tasks.nodes != p->n_nodes ||
        tasks.of_node == 0)
        return missing(p, name, err);
    p->node_tasks = tasks.of_node;
    p->is_first = index == 0;
    p->most_tasks = tasks.most;
    p->tasks_per_node = xstrdup(text);
    return 0;
}

static int read_step(char *const *envp, struct place *p, struct err *err) {
    _cleanup_(hostlist_fini) struct hostlist nodes = {0};
    struct err why = {0};
    const struct step_number of_step[] = {
        {"SLURM_STEP_NUM_NODES", &p->n_nodes, 1, TASKS_NODES_MAX},
        {"SLURM_STEP_NUM_TASKS", &p->n_tasks, 1, UINT32_MAX},
    };
    p->step_id = copy_of(envp, "SLURM_STEP_ID SLURM_STEPID");
    if (p->step_id == NULL) {
        p->step_id = xstrdup("?");
        return missing(p, "SLURM_STEP_ID", err);
    }
    name_run(p);
    int r = read_numbers(envp, p, of_step, ARRAY_SIZE(of_step), err);
    if (r < 0)
        return r;
    p->step_nodelist = copy_of(envp, "SLURM_STEP_NODELIST");
    if (p->step_nodelist == NULL)
        return missing(p, "SLURM_STEP_NODELIST", err);
    if (hostlist_expand(p->step_nodelist, &nodes, &why) < 0)
        return err_set(err, -EINVAL, "SLURM_STEP_NODELIST: %s", why.text);
    p->first_host = xstrdup(nodes.names[0]);
    const struct step_number of_task[] = {
        {"SLURM_NODEID", &p->node_id, 0, p->n_nodes - 1},
        {"SLURM_PROCID", &p->proc_id, 0, p->n_tasks - 1},
    };
    r = read_numbers(envp, p, of_task, ARRAY_SIZE(of_task), err);
    if (r == 0)
        r = read_tasks(envp, &nodes, p, err);
    if (r < 0)
        return r;
    const struct step_number of_node[] = {{"SLURM_LOCALID", &p->local_id, 0, p->node_tasks - 1}};
    r = read_numbers(envp, p, of_node, ARRAY_SIZE(of_node), err);
    if (r < 0)
        return r;
    p->from.n_nodes = "SLURM_STEP_NUM_NODES";
    p->from.first_host = "SLURM_STEP_NODELIST";
    p->from.proc_id = "SLURM_PROCID";
    return 0;
}

/* ---- workers ---- */

/* The batch script and the interactive step are on the job's first node. */
static void read_tasks_of_job(char *const *envp, struct place *p, const char **ret_from) {
    static const char *const names[] = {"SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"};
    const char *text = NULL;
    struct tasks tasks;
    for (size_t i = 0; i < ARRAY_SIZE(names) && text == NULL; i++)
        text = launcher_value(envp, *ret_from = names[i], NULL);
    if (text == NULL)
        return;
    p->tasks_per_node = xstrdup(text);
    p->node_tasks = tasks_read(text, 0, &tasks) < 0 ? 0 : tasks.of_node;
}

/* Slurm sets the first for NVIDIA's, the second for AMD's (gres.conf(5), Flags), each only if GPUs
 * were asked for. A number of a file that is no device ("NoDevFiles") is none. */
static void read_gpus(char *const *envp, struct place *p, const char **ret_from) {
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    const struct gpu_inventory any = {.n = GPUS_MAX};
    p->visible_gpus = UINT32_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(names) && p->visible_gpus == UINT32_MAX; i++) {
        const char *visible = env_get(envp, names[i]);
        if (visible == NULL)
            continue;
        p->visible_gpus = gpu_count_visible(visible, &any);
        *ret_from = names[i];
    }
}

static void count_workers(char *const *envp, struct place *p) {
    const char *tasks_from = "SLURM_STEP_TASKS_PER_NODE", *gpus_from = NULL;
    if (p->slurm != PLACE_SLURM_STEP)
        read_tasks_of_job(envp, p, &tasks_from);
    read_gpus(envp, p, &gpus_from);
    bool seen = p->visible_gpus != UINT32_MAX && p->visible_gpus > 0;
    p->nproc_is_gpus = seen || (p->visible_gpus == UINT32_MAX && p->gpus_on_node > 0);
    if (p->nproc_is_gpus) {
        p->nproc = seen ? p->visible_gpus : p->gpus_on_node;
        p->from.nproc = seen ? gpus_from : "SLURM_GPUS_ON_NODE";
    } else if (p->slurm == PLACE_SLURM_STEP && number_of(envp, STARTER_TASKS_ENV) > 0) {
        p->nproc = number_of(envp, STARTER_TASKS_ENV);
        p->from.nproc = "SLURM_TASKS_PER_NODE";
    } else if (p->node_tasks > 0) {
        p->nproc = p->node_tasks;
        p->from.nproc = tasks_from;
    } else {
        p->nproc = 1;
    }
}

/* ---- all of it ---- */

/* What is set wherever this process is. */
static void read_any(char *const *envp, struct place *p) {
    const char *label = launcher_value(envp, "SLURM_LABELIO", NULL);
    const char *bind = env_get(envp, "SLURM_CPU_BIND_TYPE"),
               *end = env_get(envp, "SLURM_JOB_END_TIME"),
               *pattern = env_get(envp, "SLURM_TOPOLOGY_ADDR_PATTERN");
    p->job_id = copy_of(envp, "SLURM_JOB_ID SLURM_JOBID");
    p->restarts = number_of(envp, "SLURM_RESTART_COUNT");
    if (end != NULL && parse_u64(end, &p->job_end_s) < 0)
        p->job_end_s = 0;
    p->topology = copy_of(envp, "SLURM_TOPOLOGY_ADDR");
    if (p->topology != NULL && pattern != NULL && strcmp(pattern, "block.node") == 0)
        p->block = xstrndup(p->topology, strcspn(p->topology, "."));
    p->srun_host = copy_of(envp, "SLURM_LAUNCH_NODE_IPADDR");
    p->srun_labels = label != NULL && strcmp(label, "0") != 0;
    if (bind != NULL && strncmp(bind, "mask_cpu", strlen("mask_cpu")) == 0)
        p->cpu_masks = copy_of(envp, "SLURM_CPU_BIND_LIST");
    p->cpus_on_node = number_of(envp, "SLURM_CPUS_ON_NODE");
}

int place_read_slurm(char *const *envp, const struct place_facts *facts, struct place *p,
                     struct err *err) {
    int r = 0;
    p->visible_gpus = UINT32_MAX;
    read_any(envp, p);
    if (p->job_id == NULL || env_get(envp, "TORCHELASTIC_RUN_ID") != NULL)
        return 0;
    p->het_size = MIN2(number_of(envp, "SLURM_HET_SIZE"), PLACE_COMPONENTS_MAX);
    p->slurm = find_kind(envp, facts, p);
    p->task_is_shell = facts->stepd != NULL && !facts->stepd_is_parent && is_shell(facts->parent);
    read_job(envp, p);
    switch (p->slurm) {
    case PLACE_SLURM_NONE: assert_not_reached();
    case PLACE_SLURM_ALLOC: p->tasks_per_node = copy_of(envp, "SLURM_TASKS_PER_NODE"); break;
    case PLACE_SLURM_STEP:
        r = read_step(envp, p, err);
        if (r == 0)
            count_workers(envp, p);
        break;
    case PLACE_SLURM_BATCH:
    case PLACE_SLURM_INTERACTIVE: count_workers(envp, p); break;
    }
    if (p->slurm != PLACE_SLURM_STEP)
        name_run(p);
    return r;
}

void place_text(const struct place *p, char ret[PLACE_TEXT_MAX]) {
    const char *job = p->job_id != NULL ? p->job_id : "";
    if (p->launcher != NULL) {
        const size_t n = strlen(p->launcher->name) + 1; /* run_id: "gridengine-12" */
        (void)snprintf(ret, PLACE_TEXT_MAX, "%s job %.60s", p->launcher->title,
                       strlen(p->run_id) > n ? p->run_id + n : p->run_id);
        return;
    }
    switch (p->slurm) {
    case PLACE_SLURM_NONE: (void)snprintf(ret, PLACE_TEXT_MAX, "no job of Slurm"); return;
    case PLACE_SLURM_STEP:
        (void)snprintf(ret, PLACE_TEXT_MAX, "Slurm's step %.40s.%.40s", job,
                       p->step_id != NULL ? p->step_id : "?");
        return;
    case PLACE_SLURM_BATCH:
        (void)snprintf(ret, PLACE_TEXT_MAX, "the batch script of Slurm's job %.40s", job);
        return;
    case PLACE_SLURM_ALLOC:
        (void)snprintf(ret, PLACE_TEXT_MAX, "an allocation of Slurm, job %.40s", job);
        return;
    case PLACE_SLURM_INTERACTIVE:
        (void)snprintf(ret, PLACE_TEXT_MAX, "the interactive step of Slurm's job %.40s", job);
        return;
    }
    assert_not_reached();
}
