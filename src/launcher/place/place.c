#include "launcher/place/place.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "launcher/hosts/hosts.h"
#include "topology/model/gpu_count.h"

void place_fini(struct place *p) {
    char *const texts[] = {p->job_id,    p->cluster,    p->job_nodelist, p->tasks_per_node,
                           p->step_id,   p->first_host, p->topology,     p->srun_host,
                           p->cpu_masks, p->block};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(texts[i]);
    *p = (struct place){0};
}

void place_clean_run_id(struct place *p) {
    for (char *c = p->run_id; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            *c = '_';
}

static enum place_by find_starter(char *const *envp, const struct place *p) {
    const char *starter = env_get(envp, STARTER_HEAD_ENV);
    const bool is_ours = starter != NULL && starter[0] != '\0';
    if (place_is_step(p))
        return is_ours ? PLACE_BY_OWN_SRUN : PLACE_BY_USER_SRUN;
    if (is_ours)
        return PLACE_BY_OWN_SSH;
    if (p->pod.kind != PLACE_POD_NONE)
        return PLACE_BY_POD;
    return p->launcher != NULL ? PLACE_BY_LAUNCHER : PLACE_BY_HAND;
}

/* An agent that a muster has started, or a worker's own run, is not what a launcher started. */
static bool can_have_launcher(char *const *envp) {
    return env_get(envp, STARTER_HEAD_ENV) == NULL &&
           env_get(envp, "TORCHELASTIC_RUN_ID") == NULL &&
           launcher_by_variables(envp, launchers) != NULL;
}

int place_read(char *const *envp, const struct place_probes *probes, struct place *ret,
               struct err *err) {
    struct place_facts facts = {0};
    struct place p = {0};
    const bool has_job =
        env_get(envp, "SLURM_JOB_ID") != NULL || env_get(envp, "SLURM_JOBID") != NULL;
    const bool may_launch = can_have_launcher(envp);
    if (probes->facts != NULL && (has_job || may_launch))
        probes->facts(probes->arg, &facts);
    int r = place_read_slurm(envp, &facts, &p, err);
    place_read_pod(envp, NULL, &p.pod);
    if (p.pod.kind == PLACE_POD_INDEXED && probes->file != NULL) {
        _cleanup_(freep) char *hosts = probes->file(probes->arg, "/etc/hosts");
        place_read_pod(envp, hosts, &p.pod);
    }
    if (r == 0 && may_launch)
        r = place_read_launcher(envp, probes, &facts, &p, err);
    p.by = find_starter(envp, &p);
    *ret = p;
    return r;
}

/* ---- ports ---- */

static uint32_t common_divisor(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The last bytes of a text change mostly low bits of its FNV hash; see murmur3's finalizer. */
static uint64_t mixed(uint64_t h) {
    h ^= h >> 33;
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

/* Steps of one width through the range, which has no divisor in common with it, meet each port
 * once. Runs differ in start and width, so two that share one port seldom share the next. */
size_t place_ports(const char *run_id, uint16_t low, uint16_t high, uint16_t ret[PLACE_PORTS_MAX]) {
    assert(low > 0 && low <= high);
    uint64_t h = mixed(hash_text(HASH_BEGIN, run_id));
    uint32_t size = (uint32_t)(high - low) + 1;
    uint32_t at = (uint32_t)(h & UINT32_MAX) % size;
    uint32_t width = 1 + (uint32_t)(h >> 32) % size;
    while (common_divisor(width, size) != 1)
        width++;
    size_t n = MIN2(size, (uint32_t)PLACE_PORTS_MAX);
    for (size_t i = 0; i < n; i++, at = (at + width) % size)
        ret[i] = (uint16_t)(low + at);
    return n;
}

/* ==== a pod of Kubernetes ==== */

#define WORDS_MAX 3 /* of a line of hosts(5): address, full name, host name */

/* A piece of a longer text: it has no NUL at its end. */
struct word {
    const char *at;
    size_t len;
};

/* Letters, digits, dots and dashes: RFC 1123 §2.1. */
static bool is_name(const struct word *w) {
    for (size_t i = 0; i < w->len; i++)
        if (!isalnum((unsigned char)w->at[i]) && w->at[i] != '.' && w->at[i] != '-')
            return false;
    return w->len > 0 && w->len < PLACE_POD_NAME_MAX;
}

static bool same(const struct word *a, const struct word *b) {
    return a->len == b->len && strncasecmp(a->at, b->at, a->len) == 0;
}

/* The length of JOB in "JOB-INDEX", 0: it is another name. */
static size_t job_length(const struct word *label, uint32_t index) {
    char end[16];
    int n = snprintf(end, sizeof end, "-%u", index);
    bool ends_so =
        label->len > (size_t)n && memcmp(label->at + label->len - (size_t)n, end, (size_t)n) == 0;
    return ends_so ? label->len - (size_t)n : 0;
}

static void keep(char *ret, size_t size, const struct word *text) {
    (void)snprintf(ret, size, "%.*s", (int)MIN2(text->len, size - 1), text->at);
}

/* One line: "ADDRESS JOB-INDEX.SUBDOMAIN… JOB-INDEX". A line that the user added (hostAliases) can
 * have such a name, too, but not with the host name behind it and before the pod's own lines. */
static void read_line(struct place_pod *p, const char *line) {
    struct word words[WORDS_MAX];
    for (size_t i = 0; i < WORDS_MAX; i++, line += words[i - 1].len) {
        words[i].len = text_word(&line);
        words[i].at = line;
        if (words[i].len == 0)
            return;
    }
    const struct word *addr = &words[0], *full = &words[1], *host = &words[2];
    const char *dot = memchr(full->at, '.', full->len);
    if (dot == NULL || !is_name(full) || addr->len >= PLACE_POD_ADDR_MAX)
        return;
    const struct word label = {.at = full->at, .len = (size_t)(dot - full->at)};
    size_t job = job_length(&label, p->index);
    if (job == 0 || !same(&label, host))
        return;
    if (p->full_name[0] == '\0') {
        keep(p->full_name, sizeof p->full_name, full);
        keep(p->job, sizeof p->job, &(struct word){.at = label.at, .len = job});
        /* no longer than the full name */
        char *end = mempcpy(p->first_host, label.at, job);
        end = mempcpy(end, "-0", 2);
        (void)memcpy(end, dot, full->len - label.len);
    }
    const struct word known = {.at = p->full_name, .len = strlen(p->full_name)};
    if (same(full, &known) && p->n_addrs < PLACE_POD_ADDRS_MAX)
        keep(p->addrs[p->n_addrs++], PLACE_POD_ADDR_MAX, addr);
}

void place_read_pod(char *const *envp, const char *hosts, struct place_pod *ret) {
    const char *service = env_get(envp, "KUBERNETES_SERVICE_HOST");
    const char *index = env_get(envp, "JOB_COMPLETION_INDEX");
    *ret = (struct place_pod){.kind = PLACE_POD_NONE};
    if (service == NULL || service[0] == '\0')
        return;
    ret->kind = PLACE_POD_PLAIN;
    if (index == NULL)
        return;
    if (parse_u32(index, &ret->index) < 0) {
        ret->bad_index = index;
        return;
    }
    ret->kind = PLACE_POD_INDEXED;
    for (const char *line = hosts; line != NULL && *line != '\0'; line = text_next_line(line))
        read_line(ret, line);
}

bool place_is_loopback(const char *host) {
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

bool place_pod_is_own(const struct place_pod *p, const char *host) {
    size_t n = strlen(host);
    if (place_is_loopback(host))
        return true;
    bool begins = n > 0 && strncasecmp(p->full_name, host, n) == 0;
    if (begins && (p->full_name[n] == '\0' || p->full_name[n] == '.'))
        return true;
    for (uint32_t i = 0; i < p->n_addrs; i++)
        if (strcasecmp(p->addrs[i], host) == 0)
            return true;
    return false;
}

/* ==== Slurm ==== */

/* slurm/slurm.h */
#define BATCH_STEP UINT32_C(0xfffffffb)
#define INTERACTIVE_STEP UINT32_C(0xfffffffa)

#define ID_MAX 32

/* ---- the environment ---- */

/* Of the second variable if the first is not set, or empty; other: NULL: there is none. */
static char *copy_of(char *const *envp, const char *name, const char *other) {
    const char *text = launcher_value(envp, launcher_name(envp, (const char *[]){name, other}));
    return text != NULL ? xstrdup(text) : NULL;
}

/* 0: it is not set, or no number. */
static uint32_t number_of(char *const *envp, const char *name) {
    uint32_t n = 0;
    (void)launcher_number(envp, name, 0, UINT32_MAX, &n);
    return n;
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
        return PLACE_SLURM_ALLOC; /* "extern": a login on the node */
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
    p->cluster = copy_of(envp, "SLURM_CLUSTER_NAME", NULL);
    p->job_nodes = number_of(envp, "SLURM_JOB_NUM_NODES");
    if (p->job_nodes == 0)
        p->job_nodes = number_of(envp, "SLURM_NNODES");
    if (p->het_size > 0 && p->slurm != PLACE_SLURM_STEP)
        p->job_nodes = nodes_of_components(envp, p->het_size);
    p->job_nodelist = copy_of(envp, "SLURM_JOB_NODELIST", "SLURM_NODELIST");
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

static int read_number(char *const *envp, const struct place *p, const char *name, uint32_t least,
                       uint32_t most, uint32_t *ret, struct err *err) {
    return launcher_number(envp, name, least, most, ret) ? 0 : missing(p, name, err);
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
    p->step_id = copy_of(envp, "SLURM_STEP_ID", "SLURM_STEPID");
    if (p->step_id == NULL) {
        p->step_id = xstrdup("?");
        return missing(p, "SLURM_STEP_ID", err);
    }
    name_run(p);
    int r = read_number(envp, p, "SLURM_STEP_NUM_NODES", 1, TASKS_NODES_MAX, &p->n_nodes, err);
    if (r == 0)
        r = read_number(envp, p, "SLURM_STEP_NUM_TASKS", 1, UINT32_MAX, &p->n_tasks, err);
    if (r < 0)
        return r;
    const char *list = launcher_value(envp, "SLURM_STEP_NODELIST");
    if (list == NULL)
        return missing(p, "SLURM_STEP_NODELIST", err);
    if (hostlist_expand(list, &nodes, &why) < 0)
        return err_set(err, -EINVAL, "SLURM_STEP_NODELIST: %s", why.text);
    p->first_host = xstrdup(nodes.names[0]);
    r = read_number(envp, p, "SLURM_NODEID", 0, p->n_nodes - 1, &p->node_id, err);
    if (r == 0)
        r = read_number(envp, p, "SLURM_PROCID", 0, p->n_tasks - 1, &p->proc_id, err);
    if (r == 0)
        r = read_tasks(envp, &nodes, p, err);
    if (r == 0)
        r = read_number(envp, p, "SLURM_LOCALID", 0, p->node_tasks - 1, &p->local_id, err);
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
        text = launcher_value(envp, *ret_from = names[i]);
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
    const char *label = launcher_value(envp, "SLURM_LABELIO");
    const char *bind = env_get(envp, "SLURM_CPU_BIND_TYPE"),
               *end = env_get(envp, "SLURM_JOB_END_TIME"),
               *pattern = env_get(envp, "SLURM_TOPOLOGY_ADDR_PATTERN");
    p->job_id = copy_of(envp, "SLURM_JOB_ID", "SLURM_JOBID");
    p->restarts = number_of(envp, "SLURM_RESTART_COUNT");
    if (end != NULL && parse_u64(end, &p->job_end_s) < 0)
        p->job_end_s = 0;
    p->topology = copy_of(envp, "SLURM_TOPOLOGY_ADDR", NULL);
    if (p->topology != NULL && pattern != NULL && strcmp(pattern, "block.node") == 0)
        p->block = xstrndup(p->topology, strcspn(p->topology, "."));
    p->srun_host = copy_of(envp, "SLURM_LAUNCH_NODE_IPADDR", NULL);
    p->srun_labels = label != NULL && strcmp(label, "0") != 0;
    if (bind != NULL && strncmp(bind, "mask_cpu", strlen("mask_cpu")) == 0)
        p->cpu_masks = copy_of(envp, "SLURM_CPU_BIND_LIST", NULL);
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
    case PLACE_SLURM_ALLOC: p->tasks_per_node = copy_of(envp, "SLURM_TASKS_PER_NODE", NULL); break;
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

/* ==== what a place fills in ==== */

/* The nodes meet by themselves, unless the user arranges that. One node asked for in a step of
 * several is a job of its own on each, as with torchrun. */
static bool is_group(const struct place *p, const struct place_given *given) {
    if (given->meets || (given->nnodes && given->max_nodes == 1))
        return false;
    /* of several steps; or static, on one machine: each task is a node, with a rank of its own */
    bool too_few = given->nnodes && given->min_nodes > p->n_nodes;
    return !(too_few && (given->node_rank || given->elsewhere));
}

/* --ntasks-per-node is often the number of GPUs, as for programs without a launcher. */
static bool is_one_agent(const struct place *p, const struct place_given *given) {
    return given->meets && !given->alone && given->nnodes && p->n_nodes > 1 && p->most_tasks > 1 &&
           given->max_nodes == p->n_nodes;
}

/* srun gave each task GPUs of its own, but one agent starts all workers of a node. (Who may use
 * none wants none; UINT32_MAX: it is not known.) */
static int check_gpus(const struct place *p, struct err *err) {
    if (p->node_tasks == 1 || p->visible_gpus == 0 || p->visible_gpus >= p->gpus_on_node)
        return 0;
    bool uniform =
        (uint64_t)p->n_nodes * p->most_tasks == p->n_tasks; /* so task 0 is refused, too */
    return err_set(
        err, uniform && p->proc_id > 0 ? -EALREADY : -EINVAL,
        "this task sees %u of this node's %u GPUs, but one muster starts all workers of a "
        "node; write: srun --ntasks-per-node=1 --gpus-per-node=%u muster run ... (in "
        "place of --gpus-per-task, --ntasks-per-gpu or --gpu-bind)",
        p->visible_gpus, p->gpus_on_node, p->gpus_on_node);
}

static int too_many(const struct place *p, const struct place_given *given, struct err *err) {
    char where[PLACE_TEXT_MAX];
    place_text(p, where);
    if (p->launcher != NULL)
        return err_set(err, -EINVAL,
                       "%u nodes are asked for, but %s has %u (%s); leave --nnodes out, or start "
                       "the job on more nodes",
                       given->min_nodes, where, p->n_nodes, p->from.n_nodes);
    return err_set(err, -EINVAL,
                   "%u nodes are asked for, but %s has %u; leave --nnodes out, "
                   "or start the step on more nodes: srun -N%u",
                   given->min_nodes, where, p->n_nodes, given->min_nodes);
}

static int fill_step(const struct place *p, const struct place_given *given, struct place_fill *ret,
                     struct err *err) {
    const bool group = is_group(p, given);
    struct place_fill f = {.nodes = group                    ? PLACE_NODES_STEP
                                    : is_one_agent(p, given) ? PLACE_NODES_WHOLE
                                                             : PLACE_NODES_OF_USER};
    const bool one_agent = place_has_one_agent(f.nodes);
    bool one_each = p->most_tasks == 1; /* each task of the step is a node */
    f.nnodes = !given->nnodes && !given->alone && (group || one_each);
    f.nproc =
        !given->nproc && (one_agent || p->node_tasks == 1) && (p->launcher == NULL || p->nproc > 0);
    if (group && given->nnodes && given->min_nodes > p->n_nodes)
        return too_many(p, given, err);
    int r = one_agent ? check_gpus(p, err) : 0;
    if (r == 0)
        *ret = f;
    return r;
}

int place_fill(const struct place *place, const struct place_given *given, struct place_fill *ret,
               struct err *err) {
    *ret = (struct place_fill){0};
    if (place_is_group(place))
        return fill_step(place, given, ret, err);
    ret->nproc = place->launcher == NULL && place_is_first_of_job(place) && !given->nproc;
    return 0;
}
