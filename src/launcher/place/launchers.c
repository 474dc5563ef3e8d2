#include "launcher/place/launchers.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/util.h"

#define MEETS "give --rdzv-endpoint=HOST:PORT, the same on all nodes"

const struct launcher launchers[] = {
    /* ---- inside: a process manager has started several tasks ---- */
    /* Open MPI 4: orterun(1), in Debian mpirun.openmpi; 5: PRRTE. Seen with 4.1.4 and 5.0.11. */
    {.name = "openmpi",
     .title = "Open MPI",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "orted prted prterun prte mpirun mpiexec orterun mpirun.openmpi mpiexec.openmpi",
     .proof = "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMIX_NAMESPACE",
     .sizes = LAUNCHER_BY_PMIX,
     .tasks = "OMPI_COMM_WORLD_SIZE",
     .task = "OMPI_COMM_WORLD_RANK",
     .run_id = "PMIX_NAMESPACE",
     .advice = "start one task on each node, and " MEETS,
     .hidden = "OMPI_COMM_WORLD_"},
    /* Lightning's LSFEnvironment; jsrun(1). jsmd: IBM/CAST issue 261 has its settings; that tasks
     * are its children is not proven. */
    {.name = "jsrun",
     .title = "jsrun",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "jsmd",
     .proof = "JSM_NAMESPACE_SIZE JSM_NAMESPACE_RANK",
     .sizes = LAUNCHER_BY_PMIX,
     .tasks = "JSM_NAMESPACE_SIZE",
     .task = "JSM_NAMESPACE_RANK",
     .advice = "write jsrun -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS muster run, and " MEETS,
     .hidden = "JSM_"},
    /* flux-core: doc/man7/flux-environment.rst, src/shell/pmi. */
    {.name = "flux",
     .title = "Flux",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "flux-shell",
     .proof = "FLUX_JOB_ID FLUX_JOB_SIZE FLUX_TASK_RANK",
     .sizes = LAUNCHER_BY_PMI1,
     .tasks = "FLUX_JOB_SIZE",
     .task = "FLUX_TASK_RANK",
     .run_id = "FLUX_JOB_ID",
     .advice = "write flux run --tasks-per-node=1 muster run, and " MEETS,
     .hidden = "FLUX_TASK_"},
    /* PRRTE: plm/pals; libpals. Flux's cray_pals sets PALS_APID, too, but not PALS_RANKID. palsd:
     * HPE's Common Tools Interface (/var/run/palsd/APID), job scripts of Aurora. */
    {.name = "pals",
     .title = "PALS",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "palsd",
     .proof = "PALS_APID PALS_RANKID PMI_SIZE",
     .tasks = "PMI_SIZE",
     .task = "PALS_RANKID",
     .run_id = "PALS_APID",
     .advice = "write mpiexec --ppn 1 muster run, and " MEETS,
     .hidden = "PALS_"},
    /* MPICH, MVAPICH, Intel MPI: src/pm/hydra. Seen with MPICH 4.0.2, 5 and Intel MPI 2021.18. */
    {.name = "hydra",
     .title = "Hydra (MPICH, Intel MPI)",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "hydra_pmi_proxy",
     .proof = "PMI_RANK PMI_SIZE MPI_LOCALRANKID",
     .sizes = LAUNCHER_BY_PMI1,
     .tasks = "PMI_SIZE",
     .task = "PMI_RANK",
     .advice = "write mpiexec -ppn 1 muster run, and " MEETS,
     .hidden = "MPI_LOCAL HYDI_"},

    /* ---- allocations: nothing is started on the other hosts ---- */
    /* queue_conf(5), qrsh(1), sge_pe(5). Seen with 8.1.9, which ignores status 99 from s_rt or h_rt
     * on: sge_job_schedd.c, job_get_duration(), takes the shorter as a hard limit, and
     * reaper_execd.c keeps the failure SSTATE_QMASTER_ENFORCED_LIMIT. */
    {.name = "gridengine",
     .title = "Grid Engine",
     .kind = LAUNCHER_ALLOC,
     .ancestors = "sge_shepherd qrsh_starter",
     .proof = "JOB_ID PE PE_HOSTFILE",
     .part = "JOB_ID",
     .whole = "PE_HOSTFILE",
     .hosts = "PE_HOSTFILE",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "JOB_ID",
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
     .ancestors = "res",
     .proof = "LSB_JOBID LSB_MCPU_HOSTS",
     .hosts = "LSB_MCPU_HOSTS",
     .hosts_form = LAUNCHER_HOSTS_PAIRS,
     .run_id = "LSB_JOBID",
     .start = {"blaunch"},
     .folder = "LSF_BINDIR",
     .save = {SIGUSR2, SIGURG}},
    /* OAR: sources/core/tools, oarsub(1), oarsh(1). */
    {.name = "oar",
     .title = "OAR",
     .kind = LAUNCHER_ALLOC,
     .proof = "OAR_JOB_ID OAR_NODEFILE",
     .hosts = "OAR_NODEFILE",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "OAR_JOB_ID",
     .start = {"oarsh"},
     .save = {SIGUSR2},
     .again = 99},
    /* OpenPBS: doc/man1/pbsdsh.1B, pbs_tmrsh.8B, start_exec.c. Torque has these, too. pbs_mom: a
     * tree of processes in Nikhef's wiki, "LCMAPS Tracking GroupID plugin". */
    {.name = "pbs",
     .title = "PBS",
     .kind = LAUNCHER_ALLOC,
     .ancestors = "pbs_mom",
     .proof = "PBS_JOBID PBS_NODEFILE",
     .hosts = "PBS_NODEFILE",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .node_rank = "PBS_NODENUM",
     .run_id = "PBS_JOBID",
     .advice = "write muster run in the job script, without pbsdsh"},
    /* Public job scripts of Fugaku and FX1000 sites. */
    {.name = "pjm",
     .title = "PJM",
     .kind = LAUNCHER_ALLOC,
     .proof = "PJM_JOBID PJM_O_NODEINF",
     .hosts = "PJM_O_NODEINF",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "PJM_JOBID",
     .start = {"pjrsh"}},
    /* PRRTE: ras; Hydra: bscd_cobalt. */
    {.name = "cobalt",
     .title = "Cobalt",
     .kind = LAUNCHER_ALLOC,
     .proof = "COBALT_JOBID COBALT_NODEFILE",
     .hosts = "COBALT_NODEFILE",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "COBALT_JOBID"},
    /* kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go: the launcher's pod. */
    {.name = "mpijob",
     .title = "MPIJob",
     .kind = LAUNCHER_ALLOC,
     .proof = "KUBERNETES_SERVICE_HOST OMPI_MCA_orte_default_hostfile",
     .hosts = "OMPI_MCA_orte_default_hostfile",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "HOSTNAME"},
    {.name = "mpijob-hydra",
     .title = "MPIJob",
     .kind = LAUNCHER_ALLOC,
     .proof = "KUBERNETES_SERVICE_HOST HYDRA_HOST_FILE",
     .hosts = "HYDRA_HOST_FILE",
     .hosts_form = LAUNCHER_HOSTS_FILE,
     .run_id = "HOSTNAME"},

    /* ---- nodes: variables contain which node this is ---- */
    /* docs.skypilot.co, "Distributed Multi-Node Jobs", "Environment variables". */
    {.name = "skypilot",
     .title = "SkyPilot",
     .kind = LAUNCHER_NODES,
     .proof = "SKYPILOT_NODE_RANK SKYPILOT_NODE_IPS",
     .nodes = "SKYPILOT_NUM_NODES",
     .node_rank = "SKYPILOT_NODE_RANK",
     .hosts = "SKYPILOT_NODE_IPS",
     .hosts_form = LAUNCHER_HOSTS_LINES,
     .nproc = "SKYPILOT_NUM_GPUS_PER_NODE",
     .run_id = "SKYPILOT_TASK_ID"},
    /* dstack.ai/docs/concepts/tasks, "Distributed tasks". */
    {.name = "dstack",
     .title = "dstack",
     .kind = LAUNCHER_NODES,
     .proof = "DSTACK_NODE_RANK DSTACK_MASTER_NODE_IP",
     .nodes = "DSTACK_NODES_NUM",
     .node_rank = "DSTACK_NODE_RANK",
     .first_host = "DSTACK_MASTER_NODE_IP",
     .nproc = "DSTACK_GPUS_PER_NODE",
     .run_id = "DSTACK_RUN_ID DSTACK_RUN_NAME"},
    /* kubernetes-sigs/lws: api/leaderworkerset/v1. */
    {.name = "lws",
     .title = "LeaderWorkerSet",
     .kind = LAUNCHER_NODES,
     .proof = "LWS_WORKER_INDEX LWS_LEADER_ADDRESS",
     .nodes = "LWS_GROUP_SIZE",
     .node_rank = "LWS_WORKER_INDEX",
     .first_host = "LWS_LEADER_ADDRESS"},
    /* docs.runpod.io, "Instant Clusters", "Environment variables". */
    {.name = "runpod",
     .title = "RunPod",
     .kind = LAUNCHER_NODES,
     .proof = "NUM_NODES NODE_RANK PRIMARY_ADDR",
     .nodes = "NUM_NODES",
     .node_rank = "NODE_RANK",
     .first_host = "PRIMARY_ADDR",
     .port = "PRIMARY_PORT",
     .nproc = "NUM_TRAINERS"},
    /* AWS Batch user guide, "Job environment variables"; the address is not set on the main node,
     * and the job's id ends with "#" and the node's index. */
    {.name = "awsbatch",
     .title = "AWS Batch",
     .kind = LAUNCHER_NODES,
     .proof = "AWS_BATCH_JOB_ID AWS_BATCH_JOB_NODE_INDEX",
     .nodes = "AWS_BATCH_JOB_NUM_NODES",
     .node_rank = "AWS_BATCH_JOB_NODE_INDEX",
     .first_rank = "AWS_BATCH_JOB_MAIN_NODE_INDEX",
     .first_host = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
     .run_id = "AWS_BATCH_JOB_ID",
     .attempt = "AWS_BATCH_JOB_ATTEMPT"},
    /* aws/sagemaker-training-toolkit: ENVIRONMENT_VARIABLES.md. */
    {.name = "sagemaker",
     .title = "SageMaker",
     .kind = LAUNCHER_NODES,
     .proof = "SM_HOSTS SM_CURRENT_HOST",
     .hosts = "SM_HOSTS",
     .hosts_form = LAUNCHER_HOSTS_JSON,
     .self = "SM_CURRENT_HOST",
     .nproc = "SM_NUM_GPUS",
     .run_id = "TRAINING_JOB_NAME SM_JOB_NAME"},
    /* cloud.google.com, "Distributed training" of Vertex AI; RANK and WORLD_SIZE count nodes. */
    {.name = "vertex",
     .title = "Vertex AI",
     .kind = LAUNCHER_NODES,
     .proof = "CLUSTER_SPEC RANK WORLD_SIZE MASTER_ADDR",
     .absent = "LOCAL_RANK",
     .nodes = "WORLD_SIZE",
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .run_id = "CLOUD_ML_JOB_ID"},
    /* learn.microsoft.com, "Distributed GPU training" of Azure Machine Learning. */
    {.name = "azureml",
     .title = "Azure ML",
     .kind = LAUNCHER_NODES,
     .proof = "AZUREML_RUN_ID NODE_RANK MASTER_ADDR",
     .nodes = "AZUREML_NODE_COUNT WORLD_SIZE",
     .node_rank = "NODE_RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .run_id = "AZUREML_RUN_ID"},
    /* volcengine.com/docs/6459/75329: variables of a custom task. */
    {.name = "volcengine",
     .title = "Volcengine",
     .kind = LAUNCHER_NODES,
     .proof = "MLP_TASK_ID MLP_ROLE_INDEX MLP_WORKER_0_HOST",
     .nodes = "MLP_WORKER_NUM",
     .node_rank = "MLP_ROLE_INDEX",
     .first_host = "MLP_WORKER_0_HOST",
     .port = "MLP_WORKER_0_PORT",
     .nproc = "MLP_WORKER_GPU",
     .run_id = "MLP_TASK_ID"},
    /* volcano: pkg/controllers/job/plugins/distributed-framework/pytorch. */
    {.name = "volcano",
     .title = "Volcano",
     .kind = LAUNCHER_NODES,
     .proof = "VC_TASK_INDEX RANK WORLD_SIZE MASTER_ADDR",
     .absent = "LOCAL_RANK",
     .nodes = "WORLD_SIZE",
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT"},
    /* kubeflow/training-operator: pkg/controller.v1/pytorch/envvar.go; Run:ai and PAI, too */
    {.name = "pytorchjob",
     .title = "PyTorchJob",
     .kind = LAUNCHER_NODES,
     .proof = "KUBERNETES_SERVICE_HOST RANK WORLD_SIZE MASTER_ADDR MASTER_PORT",
     .absent = "LOCAL_RANK",
     .nodes = "WORLD_SIZE",
     .node_rank = "RANK",
     .first_host = "MASTER_ADDR",
     .port = "MASTER_PORT"},
    /* htcondor: src/condor_starter.V6.1/parallel_proc.cpp. */
    {.name = "htcondor",
     .title = "HTCondor",
     .kind = LAUNCHER_NODES,
     .ancestors = "condor_starter",
     .proof = "_CONDOR_PROCNO _CONDOR_NPROCS",
     .nodes = "_CONDOR_NPROCS",
     .node_rank = "_CONDOR_PROCNO",
     .run_id = "_CONDOR_JOB_ID",
     .advice = "give --rdzv-endpoint=dir:/PATH, a folder that all nodes share",
     .hidden = "_CONDOR_PROCNO"},
};
const size_t n_launchers = ARRAY_SIZE(launchers);

const struct launcher *launcher_by_name(const char *name) {
    for (size_t i = 0; i < n_launchers; i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    return NULL;
}

const struct launcher *launcher_by_ancestor(const char *program) {
    for (size_t i = 0; i < n_launchers; i++)
        if (launcher_has_word(launchers[i].ancestors, program))
            return &launchers[i];
    return NULL;
}

/* The next word of a list; its length, 0: none. */
static size_t next_word(const char **at) {
    *at += *at != NULL ? strspn(*at, " ") : 0;
    return *at != NULL ? strcspn(*at, " ") : 0;
}

bool launcher_has_word(const char *list, const char *word) {
    const size_t len = strlen(word);
    for (size_t n; (n = next_word(&list)) > 0; list += n)
        if (n == len && memcmp(list, word, n) == 0)
            return true;
    return false;
}

static const char *value_of(char *const *envp, const char *name, size_t len, char *ret_name) {
    char copy[LAUNCHER_NAME_MAX];
    (void)snprintf(copy, sizeof copy, "%.*s", (int)len, name);
    const char *value = env_get(envp, copy);
    if (value == NULL || value[0] == '\0')
        return NULL;
    if (ret_name != NULL)
        memcpy(ret_name, copy, sizeof copy);
    return value;
}

const char *launcher_value(char *const *envp, const char *names, char *ret_name) {
    const char *value = NULL;
    for (size_t n; value == NULL && (n = next_word(&names)) > 0; names += n)
        value = value_of(envp, names, n, ret_name);
    return value;
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
    const char *list = row->proof;
    for (size_t n; (n = next_word(&list)) > 0; list += n)
        if (value_of(envp, list, n, NULL) == NULL)
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
