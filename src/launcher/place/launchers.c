#include "launcher/place/launchers.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/util.h"
#include "launcher/hosts/hosts.h"
#include "launcher/place/place.h"

#define MEETS "give --rdzv-endpoint=HOST:PORT, the same on all nodes"

const struct launcher launchers[] = {
    /* ---- inside: a process manager has started several tasks ---- */
    /* Open MPI 4: orterun(1), in Debian mpirun.openmpi; 5: PRRTE. Seen with 4.1.4 and 5.0.11. */
    {.name = "openmpi",
     .title = "Open MPI",
     .kind = LAUNCHER_INSIDE,
     .ancestors = {"orted", "prted", "prterun", "prte", "mpirun", "mpiexec", "orterun",
                   "mpirun.openmpi", "mpiexec.openmpi"},
     .proof = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"},
     .sizes = LAUNCHER_BY_PMIX,
     .tasks = "OMPI_COMM_WORLD_SIZE",
     .task = "OMPI_COMM_WORLD_RANK",
     .run_id = {"PMIX_NAMESPACE"},
     .advice = "start one task on each node, and " MEETS,
     .hidden = {"OMPI_COMM_WORLD_"}},
    /* Lightning's LSFEnvironment; jsrun(1). jsmd is a guess: IBM/CAST #261. */
    {.name = "jsrun",
     .title = "jsrun",
     .kind = LAUNCHER_INSIDE,
     .ancestors = {"jsmd"},
     .proof = {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
     .sizes = LAUNCHER_BY_PMIX,
     .tasks = "JSM_NAMESPACE_SIZE",
     .task = "JSM_NAMESPACE_RANK",
     .advice = "write jsrun -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS muster run, and " MEETS,
     .hidden = {"JSM_"}},
    /* flux-core: doc/man7/flux-environment.rst, src/shell/pmi. */
    {.name = "flux",
     .title = "Flux",
     .kind = LAUNCHER_INSIDE,
     .ancestors = {"flux-shell"},
     .proof = {"FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
     .sizes = LAUNCHER_BY_PMI1,
     .tasks = "FLUX_JOB_SIZE",
     .task = "FLUX_TASK_RANK",
     .run_id = {"FLUX_JOB_ID"},
     .advice = "write flux run --tasks-per-node=1 muster run, and " MEETS,
     .hidden = {"FLUX_TASK_"}},
    /* PRRTE: plm/pals; libpals. Flux's cray_pals sets PALS_APID, too, but not PALS_RANKID. palsd:
     * HPE's Common Tools Interface (/var/run/palsd/APID), job scripts of Aurora. */
    {.name = "pals",
     .title = "PALS",
     .kind = LAUNCHER_INSIDE,
     .ancestors = {"palsd"},
     .proof = {"PALS_APID", "PALS_RANKID", "PMI_SIZE"},
     .tasks = "PMI_SIZE",
     .task = "PALS_RANKID",
     .run_id = {"PALS_APID"},
     .advice = "write mpiexec --ppn 1 muster run, and " MEETS,
     .hidden = {"PALS_"}},
    /* MPICH, MVAPICH, Intel MPI: src/pm/hydra. Seen with MPICH 4.0.2, 5 and Intel MPI 2021.18. */
    {.name = "hydra",
     .title = "Hydra (MPICH, Intel MPI)",
     .kind = LAUNCHER_INSIDE,
     .ancestors = {"hydra_pmi_proxy"},
     .proof = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
     .sizes = LAUNCHER_BY_PMI1,
     .tasks = "PMI_SIZE",
     .task = "PMI_RANK",
     .advice = "write mpiexec -ppn 1 muster run, and " MEETS,
     .hidden = {"MPI_LOCAL", "HYDI_"}},

    /* ---- allocations: nothing is started on the other hosts ---- */
    /* queue_conf(5), qrsh(1), sge_pe(5). Seen with 8.1.9, which ignores status 99 from s_rt or h_rt
     * on: sge_job_schedd.c, job_get_duration(), takes the shorter as a hard limit, and
     * reaper_execd.c keeps the failure SSTATE_QMASTER_ENFORCED_LIMIT. */
    {.name = "gridengine",
     .title = "Grid Engine",
     .kind = LAUNCHER_ALLOC,
     .ancestors = {"sge_shepherd", "qrsh_starter"},
     .proof = {"JOB_ID", "PE", "PE_HOSTFILE"},
     .part = "JOB_ID",
     .whole = "PE_HOSTFILE",
     .hosts = "PE_HOSTFILE",
     .run_id = {"JOB_ID"},
     .attempt = "RESTARTED",
     .task = "SGE_TASK_ID",
     .start = {"qrsh", "-inherit"},
     .folder = "SGE_BINARY_PATH",
     .save = {SIGUSR2},
     .again = 99,
     .requeue = {"qmod", "-rj"}},
    /* IBM Spectrum LSF: blaunch(1), bsub(1), "Environment variables". res: "Running Jobs with
     * Platform LSF": sbatchd starts a job by it. */
    {.name = "lsf",
     .title = "LSF",
     .kind = LAUNCHER_ALLOC,
     .ancestors = {"res"},
     .proof = {"LSB_JOBID", "LSB_MCPU_HOSTS"},
     .hosts = "LSB_MCPU_HOSTS",
     .run_id = {"LSB_JOBID"},
     .start = {"blaunch"},
     .folder = "LSF_BINDIR",
     .save = {SIGUSR2, SIGURG}},
    /* OAR: sources/core/tools, oarsub(1), oarsh(1). */
    {.name = "oar",
     .title = "OAR",
     .kind = LAUNCHER_ALLOC,
     .proof = {"OAR_JOB_ID", "OAR_NODEFILE"},
     .hosts = "OAR_NODEFILE",
     .run_id = {"OAR_JOB_ID"},
     .start = {"oarsh"},
     .save = {SIGUSR2},
     .again = 99},
    /* OpenPBS: doc/man1/pbsdsh.1B, pbs_tmrsh.8B, start_exec.c. Torque has these, too. pbs_mom: a
     * tree of processes in Nikhef's wiki, "LCMAPS Tracking GroupID plugin". */
    {.name = "pbs",
     .title = "PBS",
     .kind = LAUNCHER_ALLOC,
     .ancestors = {"pbs_mom"},
     .proof = {"PBS_JOBID", "PBS_NODEFILE"},
     .hosts = "PBS_NODEFILE",
     .node_rank = "PBS_NODENUM",
     .run_id = {"PBS_JOBID"},
     .advice = "write muster run in the job script, without pbsdsh"},
    /* Public job scripts of Fugaku and FX1000 sites. */
    {.name = "pjm",
     .title = "PJM",
     .kind = LAUNCHER_ALLOC,
     .proof = {"PJM_JOBID", "PJM_O_NODEINF"},
     .hosts = "PJM_O_NODEINF",
     .run_id = {"PJM_JOBID"},
     .start = {"pjrsh"}},
    /* PRRTE: ras; Hydra: bscd_cobalt. */
    {.name = "cobalt",
     .title = "Cobalt",
     .kind = LAUNCHER_ALLOC,
     .proof = {"COBALT_JOBID", "COBALT_NODEFILE"},
     .hosts = "COBALT_NODEFILE",
     .run_id = {"COBALT_JOBID"}},
    /* kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go: the launcher's pod. */
    {.name = "mpijob",
     .title = "MPIJob",
     .kind = LAUNCHER_ALLOC,
     .proof = {"KUBERNETES_SERVICE_HOST", "OMPI_MCA_orte_default_hostfile"},
     .hosts = "OMPI_MCA_orte_default_hostfile",
     .run_id = {"HOSTNAME"}},
    {.name = "mpijob-hydra",
     .title = "MPIJob",
     .kind = LAUNCHER_ALLOC,
     .proof = {"KUBERNETES_SERVICE_HOST", "HYDRA_HOST_FILE"},
     .hosts = "HYDRA_HOST_FILE",
     .run_id = {"HOSTNAME"}},

    /* ---- nodes: variables contain which node this is ---- */
    /* docs.skypilot.co, "Distributed Multi-Node Jobs", "Environment variables". */
    {.name = "skypilot",
     .title = "SkyPilot",
     .kind = LAUNCHER_NODES,
     .proof = {"SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"},
     .nodes = {"SKYPILOT_NUM_NODES"},
     .node_rank = "SKYPILOT_NODE_RANK",
     .hosts = "SKYPILOT_NODE_IPS",
     .nproc = "SKYPILOT_NUM_GPUS_PER_NODE",
     .run_id = {"SKYPILOT_TASK_ID"}},
    /* dstack.ai/docs/concepts/tasks, "Distributed tasks". */
    {.name = "dstack",
     .title = "dstack",
     .kind = LAUNCHER_NODES,
     .proof = {"DSTACK_NODE_RANK", "DSTACK_MASTER_NODE_IP"},
     .nodes = {"DSTACK_NODES_NUM"},
     .node_rank = "DSTACK_NODE_RANK",
     .first_host = "DSTACK_MASTER_NODE_IP",
     .nproc = "DSTACK_GPUS_PER_NODE",
     .run_id = {"DSTACK_RUN_ID", "DSTACK_RUN_NAME"}},
    /* kubernetes-sigs/lws: api/leaderworkerset/v1. */
    {.name = "lws",
     .title = "LeaderWorkerSet",
     .kind = LAUNCHER_NODES,
     .proof = {"LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"},
     .nodes = {"LWS_GROUP_SIZE"},
     .node_rank = "LWS_WORKER_INDEX",
     .first_host = "LWS_LEADER_ADDRESS"},
    /* docs.runpod.io, "Instant Clusters", "Environment variables". */
    {.name = "runpod",
     .title = "RunPod",
     .kind = LAUNCHER_NODES,
     .proof = {"NUM_NODES", "NODE_RANK", "PRIMARY_ADDR"},
     .nodes = {"NUM_NODES"},
     .node_rank = "NODE_RANK",
     .first_host = "PRIMARY_ADDR",
     .port = "PRIMARY_PORT",
     .nproc = "NUM_TRAINERS"},
    /* AWS Batch user guide, "Job environment variables"; the address is not set on the main node,
     * and the job's id ends with "#" and the node's index. */
    {.name = "awsbatch",
     .title = "AWS Batch",
     .kind = LAUNCHER_NODES,
     .proof = {"AWS_BATCH_JOB_ID", "AWS_BATCH_JOB_NODE_INDEX"},
     .nodes = {"AWS_BATCH_JOB_NUM_NODES"},
     .node_rank = "AWS_BATCH_JOB_NODE_INDEX",
     .first_rank = "AWS_BATCH_JOB_MAIN_NODE_INDEX",
     .first_host = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
     .run_id = {"AWS_BATCH_JOB_ID"},
     .attempt = "AWS_BATCH_JOB_ATTEMPT"},
    /* aws/sagemaker-training-toolkit: ENVIRONMENT_VARIABLES.md. */
    {.name = "sagemaker",
     .title = "SageMaker",
     .kind = LAUNCHER_NODES,
     .proof = {"SM_HOSTS", "SM_CURRENT_HOST"},
     .hosts = "SM_HOSTS",
     .self = "SM_CURRENT_HOST",
     .nproc = "SM_NUM_GPUS",
     .run_id = {"TRAINING_JOB_NAME", "SM_JOB_NAME"}},
    /* cloud.google.com, "Distributed training" of Vertex AI; RANK and WORLD_SIZE count nodes. */
    {.name = "vertex",
     .title = "Vertex AI",
     .kind = LAUNCHER_NODES,
     .proof = {"CLUSTER_SPEC", "RANK", "WORLD_SIZE", "MASTER_ADDR"},
     .absent = "LOCAL_RANK",
     .nodes = {"WORLD_SIZE"},
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .run_id = {"CLOUD_ML_JOB_ID"}},
    /* learn.microsoft.com, "Distributed GPU training" of Azure Machine Learning. */
    {.name = "azureml",
     .title = "Azure ML",
     .kind = LAUNCHER_NODES,
     .proof = {"AZUREML_RUN_ID", "NODE_RANK", "MASTER_ADDR"},
     .nodes = {"AZUREML_NODE_COUNT", "WORLD_SIZE"},
     .node_rank = "NODE_RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .run_id = {"AZUREML_RUN_ID"}},
    /* volcengine.com/docs/6459/75329: variables of a custom task. */
    {.name = "volcengine",
     .title = "Volcengine",
     .kind = LAUNCHER_NODES,
     .proof = {"MLP_TASK_ID", "MLP_ROLE_INDEX", "MLP_WORKER_0_HOST"},
     .nodes = {"MLP_WORKER_NUM"},
     .node_rank = "MLP_ROLE_INDEX",
     .first_host = "MLP_WORKER_0_HOST",
     .port = "MLP_WORKER_0_PORT",
     .nproc = "MLP_WORKER_GPU",
     .run_id = {"MLP_TASK_ID"}},
    /* volcano: pkg/controllers/job/plugins/distributed-framework/pytorch. */
    {.name = "volcano",
     .title = "Volcano",
     .kind = LAUNCHER_NODES,
     .proof = {"VC_TASK_INDEX", "RANK", "WORLD_SIZE", "MASTER_ADDR"},
     .absent = "LOCAL_RANK",
     .nodes = {"WORLD_SIZE"},
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT"},
    /* kubeflow/training-operator: pkg/controller.v1/pytorch/envvar.go; Run:ai and PAI, too */
    {.name = "pytorchjob",
     .title = "PyTorchJob",
     .kind = LAUNCHER_NODES,
     .proof = {"KUBERNETES_SERVICE_HOST", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
     .absent = "LOCAL_RANK",
     .nodes = {"WORLD_SIZE"},
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT"},
    /* htcondor: src/condor_starter.V6.1/parallel_proc.cpp. */
    {.name = "htcondor",
     .title = "HTCondor",
     .kind = LAUNCHER_NODES,
     .ancestors = {"condor_starter"},
     .proof = {"_CONDOR_PROCNO", "_CONDOR_NPROCS"},
     .nodes = {"_CONDOR_NPROCS"},
     .node_rank = "_CONDOR_PROCNO",
     .run_id = {"_CONDOR_JOB_ID"},
     .advice = "give --rdzv-endpoint=dir:/PATH, a folder that all nodes share",
     .hidden = {"_CONDOR_PROCNO"}},
};
const size_t n_launchers = ARRAY_SIZE(launchers);

const struct launcher *launcher_by_name(const char *name) {
    for (size_t i = 0; i < n_launchers; i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    return NULL;
}

static bool has_ancestor(const struct launcher *row, const char *program) {
    for (size_t i = 0; row->ancestors[i] != NULL; i++)
        if (strcmp(row->ancestors[i], program) == 0)
            return true;
    return false;
}

const struct launcher *launcher_by_ancestor(const char *program) {
    for (size_t i = 0; i < n_launchers; i++)
        if (has_ancestor(&launchers[i], program))
            return &launchers[i];
    return NULL;
}

const char *launcher_value(char *const *envp, const char *name) {
    const char *value = name != NULL ? env_get(envp, name) : NULL;
    return value != NULL && value[0] != '\0' ? value : NULL;
}

const char *launcher_name(char *const *envp, const char *const names[2]) {
    return launcher_value(envp, names[0]) != NULL   ? names[0]
           : launcher_value(envp, names[1]) != NULL ? names[1]
                                                    : NULL;
}

bool launcher_number(char *const *envp, const char *name, uint32_t least, uint32_t most,
                     uint32_t *ret) {
    const char *text = launcher_value(envp, name);
    uint32_t value;
    if (text == NULL || parse_u32(text, &value) < 0 || value < least || value > most)
        return false;
    *ret = value;
    return true;
}

/* "12" is a word in "/spool/active_jobs/12.1/pe_hostfile", but not in ".../212.1/...". */
static bool is_part(const char *part, const char *whole) {
    const size_t n = part != NULL ? strlen(part) : 0;
    for (const char *at = whole; n > 0 && at != NULL && (at = strstr(at, part)) != NULL; at++)
        if ((at == whole || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]))
            return true;
    return false;
}

static bool agrees(char *const *envp, const struct launcher *row) {
    for (size_t i = 0; row->proof[i] != NULL; i++)
        if (launcher_value(envp, row->proof[i]) == NULL)
            return false;
    if (row->absent != NULL && env_get(envp, row->absent) != NULL)
        return false;
    return row->part == NULL || is_part(env_get(envp, row->part), env_get(envp, row->whole));
}

const struct launcher *launcher_by_variables(char *const *envp, const struct launcher *from) {
    for (; from < launchers + n_launchers; from++)
        if (agrees(envp, from))
            return from;
    return NULL;
}

/* ---- which row ---- */

/* Variables leak, so an ancestor decides, or, where none can be seen, all variables of a row. */
static bool is_possible(const struct launcher *row, const struct place_facts *facts,
                        const struct place *p) {
    if (facts->ancestor != NULL)
        return has_ancestor(row, facts->ancestor);
    if (facts->sees_all && row->ancestors[0] != NULL)
        return false;
    return p->slurm == PLACE_SLURM_NONE ||
           (row->kind == LAUNCHER_INSIDE && row->sizes != LAUNCHER_BY_VARIABLES);
}

/* ---- values ---- */

static int bad(const struct place *p, const char *name, struct err *err) {
    return err_set(err, -EINVAL,
                   "this is a node of %s, but %s is not set, or is not a number that fits; %s",
                   p->launcher->title, name,
                   p->launcher->advice != NULL
                       ? p->launcher->advice
                       : "give --nnodes, --node-rank and --rdzv-endpoint, or --standalone");
}

static int read_number(char *const *envp, const struct place *p, const char *name, uint32_t least,
                       uint32_t most, uint32_t *ret, struct err *err) {
    return launcher_number(envp, name, least, most, ret) ? 0 : bad(p, name, err);
}

/* A name that comes from elsewhere can be long. Behind "#" is what differs between nodes. */
static void name_run(char *const *envp, const char *id, struct place *p) {
    const struct launcher *row = p->launcher;
    const char *attempt = launcher_value(envp, row->attempt);
    p->from.run_id = launcher_name(envp, row->run_id);
    if (p->from.run_id == NULL)
        p->from.run_id = p->from.first_host != NULL ? p->from.first_host : row->title;
    if (id == NULL)
        id = p->first_host != NULL ? p->first_host : "none";
    size_t n = (size_t)snprintf(p->run_id, sizeof p->run_id, "%s-%.*s", row->name,
                                (int)MIN2(strcspn(id, "#"), sizeof p->run_id / 2), id);
    if (attempt != NULL && strcmp(attempt, "0") != 0)
        (void)snprintf(p->run_id + n, sizeof p->run_id - n, ".%.16s", attempt);
    if (attempt != NULL && parse_u32(attempt, &p->restarts) < 0)
        p->restarts = 0;
    place_clean_run_id(p);
}

/* ---- nodes ---- */

/* The next of the hosts in "host1 host2", with line ends or commas, or in a list of JSON; NULL:
 * none. *ret_len is its length. */
static const char *next_host(const char *at, size_t *ret_len) {
    static const char stops[] = "[]\", \t\r\n";
    at += strspn(at, stops);
    *ret_len = strcspn(at, stops);
    return *ret_len > 0 ? at : NULL;
}

/* Counts the hosts, keeps the first, and finds this one. *ret_self: UINT32_MAX: not there. */
static uint32_t count_hosts(char *const *envp, struct place *p, uint32_t *ret_self) {
    const struct launcher *row = p->launcher;
    const char *at = launcher_value(envp, row->hosts);
    const char *self = launcher_value(envp, row->self);
    uint32_t count = 0;
    size_t n;
    *ret_self = UINT32_MAX;
    for (; at != NULL && (at = next_host(at, &n)) != NULL; at += n) {
        if (count == 0)
            p->first_host = xstrndup(at, n);
        if (self != NULL && strlen(self) == n && memcmp(at, self, n) == 0)
            *ret_self = count;
        if (++count == TASKS_NODES_MAX)
            break;
    }
    p->from.first_host = count > 0 ? row->hosts : NULL;
    return count;
}

static int read_sizes(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    uint32_t self, hosts = count_hosts(envp, p, &self);
    const char *nodes = launcher_name(envp, row->nodes);
    int r = 0;
    p->n_nodes = hosts;
    if (row->nodes[0] != NULL)
        r = read_number(envp, p, nodes != NULL ? nodes : row->nodes[0], 1, TASKS_NODES_MAX,
                        &p->n_nodes, err);
    if (r == 0 && row->node_rank != NULL)
        r = read_number(envp, p, row->node_rank, 0, p->n_nodes - 1, &p->node_id, err);
    else if (r == 0 && self == UINT32_MAX)
        r = bad(p, row->self, err);
    else if (r == 0)
        p->node_id = self;
    p->from.n_nodes = row->nodes[0] != NULL ? nodes : row->hosts;
    p->from.proc_id = row->node_rank != NULL ? row->node_rank : row->self;
    return r;
}

static int read_node(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    uint32_t first = 0;
    int r = read_sizes(envp, p, err);
    if (r == 0 && launcher_value(envp, row->first_rank) != NULL)
        r = read_number(envp, p, row->first_rank, 0, p->n_nodes - 1, &first, err);
    if (r < 0) {
        p->n_nodes = 0;
        return r;
    }
    const char *host = launcher_value(envp, row->first_host);
    const char *port = launcher_value(envp, row->port);
    if (host != NULL) {
        free(p->first_host);
        p->first_host = xstrdup(host);
        p->from.first_host = row->first_host;
    }
    p->is_first = p->node_id == first;
    if (p->first_host == NULL && p->is_first && row->first_host != NULL) {
        p->first_host = xstrdup("localhost"); /* this node does not look for itself */
        p->from.first_host = p->from.proc_id;
    }
    if (port != NULL && parse_port(port, &p->first_port) < 0)
        p->first_port = 0;
    p->proc_id = p->node_id;
    p->n_tasks = p->n_nodes;
    p->node_tasks = p->most_tasks = 1;
    const char *gpus = launcher_value(envp, row->nproc);
    p->nproc_is_gpus = gpus != NULL && parse_u32(gpus, &p->nproc) == 0 && p->nproc > 0;
    p->from.nproc = p->nproc_is_gpus ? row->nproc : NULL;
    if (!p->nproc_is_gpus)
        p->nproc = 0;
    return 0;
}

/* ---- inside ---- */

static int read_tasks(char *const *envp, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    int r = read_number(envp, p, row->tasks, 1, UINT32_MAX, &p->n_tasks, err);
    if (r == 0)
        r = read_number(envp, p, row->task, 0, p->n_tasks - 1, &p->proc_id, err);
    p->from.n_nodes = row->tasks;
    p->from.proc_id = row->task;
    if (r == 0 && p->n_tasks == 1)
        p->n_nodes = p->node_tasks = p->most_tasks = 1;
    p->is_first = p->proc_id == 0;
    return r;
}

/* -ENOENT: the row does not apply. */
static int read_inside(char *const *envp, const struct place_probes *probes,
                       const struct place_facts *facts, struct place *p, struct err *err) {
    const struct launcher *row = p->launcher;
    _cleanup_(freep) char *run_id = NULL;
    int r = read_tasks(envp, p, err);
    if (r < 0 || p->n_tasks == 1 || row->sizes == LAUNCHER_BY_VARIABLES || probes->pmi == NULL)
        return r;
    r = probes->pmi(probes->arg, row, envp, p, &run_id, err);
    if (r == -ENOSYS || (r == -ENOENT && facts->ancestor != NULL))
        return 0; /* n_nodes stays 0: how the tasks find each other is not known */
    if (r < 0)
        return r;
    p->nproc = p->node_tasks;
    p->is_first = p->node_id == 0;
    p->from.first_host = p->from.n_nodes = p->from.nproc = row->title;
    if (run_id != NULL)
        name_run(envp, run_id, p);
    return 0;
}

/* ---- an allocation ---- */

static int read_hosts(char *const *envp, const struct place_probes *probes, struct place *p,
                      struct err *err) {
    const struct launcher *row = p->launcher;
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    _cleanup_(hosts_fini) struct hosts hosts = {0};
    _cleanup_(freep) char *text = NULL;
    const char *value = launcher_value(envp, row->hosts);
    struct hosts_input in = {.file = row->hosts, .text = value};
    p->from.job_nodelist = row->hosts;
    if (strchr(value, '/') != NULL) {
        in.file = value;
        in.text = text = probes->file != NULL ? probes->file(probes->arg, value) : NULL;
        if (text == NULL)
            return err_set(err, -EINVAL,
                           "can't read %.200s, the hosts of this job of %s (%s); give them with "
                           "--hostfile, or --standalone for this host alone",
                           value, row->title, p->from.job_nodelist);
    }
    in.len = strlen(in.text);
    int r = hosts_read(&in, &hosts, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < hosts.n; i++)
        strbuf_printf(&list, "%s%s", i > 0 ? "," : "", hosts.items[i].name);
    p->job_nodes = (uint32_t)hosts.n;
    p->job_nodelist = strbuf_take(&list);
    return 0;
}

static int read_alloc(char *const *envp, const struct place_probes *probes, struct place *p,
                      struct err *err) {
    const struct launcher *row = p->launcher;
    const char *node = launcher_value(envp, row->node_rank);
    int r = read_hosts(envp, probes, p, err);
    if (r == 0 && node != NULL && strcmp(node, "0") != 0 && p->job_nodes > 1)
        return err_set(err, -EINVAL,
                       "this is host %.20s of the %u of %s job %.100s (%s), and something else "
                       "started muster here; %s",
                       node, p->job_nodes, row->title,
                       launcher_value(envp, launcher_name(envp, row->run_id)), row->node_rank,
                       row->advice);
    return r;
}

/* ---- all of it ---- */

static int read_row(char *const *envp, const struct place_probes *probes,
                    const struct place_facts *facts, struct place *p, struct err *err) {
    int r = 0;
    switch (p->launcher->kind) {
    case LAUNCHER_NODES: r = read_node(envp, p, err); break;
    case LAUNCHER_INSIDE: r = read_inside(envp, probes, facts, p, err); break;
    case LAUNCHER_ALLOC: r = read_alloc(envp, probes, p, err); break;
    }
    if (p->run_id[0] == '\0' && r != -ENOENT)
        name_run(envp, launcher_value(envp, launcher_name(envp, p->launcher->run_id)), p);
    return r;
}

/* What Slurm's variables say is of what is around this launcher. */
static void forget_slurm(struct place *p) {
    p->slurm = PLACE_SLURM_NONE;
    p->first_host = NULL;
    p->run_id[0] = '\0';
    p->n_nodes = p->n_tasks = p->node_tasks = p->most_tasks = p->nproc = 0;
    p->node_id = p->local_id = p->proc_id = 0;
    p->nproc_is_gpus = false;
    memset(&p->from, 0, sizeof p->from);
    if (p->launcher->kind == LAUNCHER_INSIDE)
        return;
    p->job_id = p->job_nodelist = NULL;
    p->job_nodes = 0;
}

int place_read_launcher(char *const *envp, const struct place_probes *probes,
                        const struct place_facts *facts, struct place *p, struct err *err) {
    for (const struct launcher *row = launchers; (row = launcher_by_variables(envp, row)) != NULL;
         row++) {
        if (!is_possible(row, facts, p))
            continue;
        const struct place before = *p;
        p->launcher = row;
        p->launcher_pid = facts->ancestor_pid;
        forget_slurm(p);
        int r = read_row(envp, probes, facts, p, err);
        if (r == -ENOENT) {
            *p = before;
            continue;
        }
        free(before.first_host);
        if (p->job_id == NULL)
            free(before.job_id);
        if (p->job_nodelist != before.job_nodelist)
            free(before.job_nodelist);
        return r;
    }
    return 0;
}
