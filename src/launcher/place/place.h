/* Where this process is, and who started it: from the variables of Slurm, of Kubernetes, of the
 * launchers in launchers.h and of muster's own starters, read once. Pure: place_io.h reads the few
 * facts that are not variables.
 *
 *     _cleanup_(place_fini) struct place place = {0};
 *     r = place_read(environ, &probes, &place, &err);
 *     if (place_is_step(&place)) … place.n_nodes, place.node_id, place.first_host …
 *     if (place.by == PLACE_BY_OWN_SSH) …
 *
 * Slurm's variables alone prove nothing. SLURM_STEP_* leak into a batch script that was submitted
 * from inside a step, and into a shell that salloc started there. An interactive step and a batch
 * script look like rank 0 of a step of one node. So one of two witnesses is needed: the title of
 * the nearest slurmstepd above this process, or the path of its control group. Both contain job and
 * step ("[28.batch]", "job_28/step_0"). Without either (a container with its own pid namespace),
 * SLURM_STEP_NUM_NODES must be SLURM_NNODES, SLURM_STEP_NUM_TASKS SLURM_NTASKS, and SLURM_STEP_ID
 * that of an ordinary step.
 * Sources: srun(1), sbatch(1), salloc(1), "OUTPUT ENVIRONMENT VARIABLES"; slurm/slurm.h for the ids
 * of special steps; titles and control groups as seen with Slurm 22.05.
 *
 * Of Kubernetes: a pod of an Indexed Job has the host name JOB-INDEX, and JOB_COMPLETION_INDEX
 * (kubernetes.io, "Job with Pod-to-Pod Communication"). With a `subdomain`, the name of a headless
 * Service, its full name is JOB-INDEX.SUBDOMAIN.NAMESPACE.svc.CLUSTER, by which other pods find it
 * ("DNS for Services and Pods"). The kubelet writes a line for each address of a pod into
 * /etc/hosts: "ADDRESS<tab>FULL NAME<tab>HOST NAME", without a subdomain only the host name. JobSet
 * (jobset.sigs.k8s.io) makes Indexed Jobs named JOBSET-REPLICATEDJOB-NUMBER, so the rule is the
 * same. No variable contains the number of pods: only the user knows it (--nnodes). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "launcher/place/launchers.h"

enum place_by {
    PLACE_BY_HAND = 0,  /* a user, a script, or a batch script */
    PLACE_BY_USER_SRUN, /* an srun of the user: this is a task of a step */
    PLACE_BY_OWN_SRUN,  /* an srun that a muster runs (launcher/srun) */
    PLACE_BY_OWN_SSH,   /* the relay of a muster that starts its agents over ssh (launcher/ssh) */
    PLACE_BY_POD,       /* the kubelet */
    PLACE_BY_LAUNCHER,  /* place.launcher, which starts an agent on each node, or several tasks */
};

/* Ids from here on are of special steps: batch script, interactive step, external step
 * (slurm/slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP, SLURM_EXTERN_CONT). */
#define PLACE_SPECIAL_STEP UINT32_C(0xfffffff0)

enum place_slurm {
    PLACE_SLURM_NONE = 0, /* not in a job of Slurm, or a worker's own run in one */
    PLACE_SLURM_STEP,     /* a task that srun started */
    PLACE_SLURM_BATCH,    /* the batch script, or a program that it runs, on the job's first node */
    PLACE_SLURM_ALLOC,    /* has a job, and is in no step of it: a shell of salloc, or a login */
    PLACE_SLURM_INTERACTIVE, /* the interactive step of salloc, on the job's first node */
};

/* What /proc says about this process; texts are borrowed. All zero: nothing is known. */
struct place_facts {
    const char *cgroup; /* text of /proc/self/cgroup; NULL: can't be read */
    /* title of the nearest slurmstepd among the ancestors: "slurmstepd: [28.0]"; NULL: none */
    const char *stepd;
    bool stepd_is_parent; /* and it is the parent of this process */
    const char *parent;   /* name of the parent's program ("bash"), NULL: not known */
    /* Name of the nearest ancestor that a row of launchers[] has, or "slurmstepd"; NULL: none. */
    const char *ancestor;
    pid_t ancestor_pid; /* 0: none */
    /* All ancestors are visible: variables of a launcher that is not among them have leaked. */
    bool sees_all;
};

struct place;

/* Called only where the answer can matter. Each may be NULL: nothing is known. */
struct place_probes {
    void (*facts)(void *arg, struct place_facts *ret);
    /* The text of /etc/hosts, or of a file that a variable names, malloc'ed; NULL: unreadable. */
    char *(*file)(void *arg, const char *path);
    /* Asks the process manager of a row whose `sizes` is PMI-1 or PMIx. 0: *p has the tasks and
     * nodes of the step, which are host names, and *ret_run_id its name for the tasks, malloc'ed.
     * -ENOENT: no server is there, so the variables have leaked, and the row does not apply,
     * unless an ancestor proves it. -ENOSYS: it can't be asked, and nothing is known.
     * Another negative errno with a sentence: the server does not answer as it should, for which
     * it waits less than 10 s, or other tasks do not ask it. */
    int (*pmi)(void *arg, const struct launcher *row, char *const *envp, struct place *p,
               char **ret_run_id, struct err *err);
    void *arg;
};

/* The head's variables for its agents, which workers don't get (worker_env.h: all MUSTER_*). */
/* "10.0.0.1,fd77::1:4711": addresses and port; over ssh "fd:3": a connected socket */
#define STARTER_HEAD_ENV "MUSTER_HEAD"
#define STARTER_FD_PREFIX "fd:"
/* Over ssh on node 0, "fd:4": a socket that listens where the nodes meet. */
#define STARTER_LISTENER_ENV "MUSTER_HEAD_LISTENER"
/* Over ssh, "fd:5": a file with the job, instead of the command line. */
#define STARTER_JOB_ENV "MUSTER_HEAD_JOB"
#define STARTER_TOKEN_ENV "MUSTER_HEAD_TOKEN" /* STARTER_TOKEN_CHARS hexadecimal digits */
/* The key of the job (starter_io.h): as auth.h writes it, or STARTER_NO_KEY. */
#define STARTER_KEY_ENV "MUSTER_HEAD_KEY"
#define STARTER_NO_KEY "none"
/* The python that would run the workers on the head's machine. */
#define STARTER_PYTHON_ENV "MUSTER_HEAD_PYTHON"
/* What the job has asked for, and the step's own variables can't tell: its tasks on each node, and
 * the user's SLURM_CPUS_PER_TASK, which programs read. */
#define STARTER_TASKS_ENV "MUSTER_STEP_TASKS"
#define STARTER_CPUS_ENV "MUSTER_STEP_CPUS_PER_TASK"

/* Of a heterogeneous job: Slurm allows as many (MAX_HET_JOB_COMPS of its sources). */
#define PLACE_COMPONENTS_MAX 128

/* What a node of the job is. */
enum place_nodes {
    PLACE_NODES_OF_USER = 0, /* what the user makes one: each process that runs muster */
    /* The same in a step, but only tasks with local id 0 are agents; others hold until it ends. */
    PLACE_NODES_WHOLE,
    PLACE_NODES_STEP, /* the nodes of the step, each with one agent, too: place.run_id is the name
                         of the run, and ranks go by place.proc_id */
    PLACE_NODES_PODS, /* the pods of a Kubernetes Job, which meet at the one with index 0 */
};
static inline bool place_has_one_agent(enum place_nodes nodes) {
    return nodes == PLACE_NODES_WHOLE || nodes == PLACE_NODES_STEP;
}

#define PLACE_PORTS_MAX 16
#define PLACE_RUN_ID_MAX 200 /* bytes, with the NUL */
/* The ports of a run, if the user gave no range: below the range from which Linux takes ports for
 * connections (ip_local_port_range, from 32768: ip(7)), and below Kubernetes' (from 30000). */
#define PLACE_PORT_LOW 12000
#define PLACE_PORT_HIGH 28999

enum place_pod_kind {
    PLACE_POD_NONE = 0, /* not in a pod: KUBERNETES_SERVICE_HOST, which the kubelet sets, is not */
    PLACE_POD_PLAIN,    /* in a pod that has no index */
    PLACE_POD_INDEXED,  /* in a pod of an Indexed Job */
};

#define PLACE_POD_NAME_MAX 254 /* bytes of a full name, with the NUL: RFC 1035 */
#define PLACE_POD_ADDR_MAX 64  /* of an address in text, with the NUL */
#define PLACE_POD_ADDRS_MAX 8  /* addresses of one pod that are kept */

struct place_pod {
    enum place_pod_kind kind;
    uint32_t index;        /* INDEXED: JOB_COMPLETION_INDEX */
    const char *bad_index; /* PLAIN: its value, if it is not a number; borrowed. NULL: none */
    char
        full_name[PLACE_POD_NAME_MAX]; /* INDEXED: by which others find this pod; "": it has none */
    char first_host[PLACE_POD_NAME_MAX]; /* INDEXED: full_name of the pod with index 0; "" */
    char job[PLACE_POD_NAME_MAX];        /* INDEXED: the Job's name; "": not known */
    /* the pod's own, from the lines with its full name */
    char addrs[PLACE_POD_ADDRS_MAX][PLACE_POD_ADDR_MAX];
    uint32_t n_addrs;
};

/* Texts are owned: place_fini(). Numbers are 0 and texts NULL where nothing is known. */
struct place {
    enum place_by by;
    enum place_slurm slurm;
    struct place_pod pod;
    /* The row whose process or variables prove that it started this process; NULL: none. With kind
     * NODES and INSIDE, what is "of the step" below is of the group that it started. With ALLOC,
     * job_nodes, hosts and run_id are filled in. */
    const struct launcher *launcher;
    pid_t launcher_pid; /* of its process above this one; 0: not visible */

    /* of the job, but for slurm == NONE. A worker's own run has the first three. */
    char *job_id; /* "28"; of an array's task, its own number */
    uint32_t
        restarts; /* how often Slurm has put the job back into the queue and started it again */
    uint64_t job_end_s; /* when its time is over, since 1970; newer versions of Slurm say it */
    char *cluster;      /* SLURM_CLUSTER_NAME */
    /* of all components, if any. STEP: of the step: srun sets the job's variables to its own */
    uint32_t job_nodes;
    char *job_nodelist;    /* as a hostlist; never updated when a node is lost */
    char *tasks_per_node;  /* "2(x3),1": SLURM_TASKS_PER_NODE, a step's own in STEP */
    uint32_t gpus_on_node; /* SLURM_GPUS_ON_NODE: of this node */
    uint32_t het_size;     /* components of a heterogeneous job; 0: it is none */

    /* of the step: STEP only */
    char *step_id;       /* "0" */
    char *first_host;    /* the first of the step's list */
    uint16_t first_port; /* at which the nodes meet there; 0: one of place_ports() */
    bool is_first;       /* this node is that host */
    uint32_t n_nodes;    /* >= 1 */
    uint32_t n_tasks;    /* of the whole step, >= n_nodes */
    uint32_t node_tasks; /* on this node, >= 1 */
    uint32_t most_tasks; /* of any node: 1 if every node has one */
    uint32_t node_id;    /* of this node in the step's list, from 0 */
    uint32_t local_id;   /* of this task on its node, from 0 */
    uint32_t proc_id;    /* of this task in the step: the order of ranks */
    bool task_is_shell;  /* Slurm's task is a shell, whose child this is: it gets Slurm's signals */
    /* "cluster.job.step", ".restarts" if there were any; in other kinds without the step */
    char run_id[PLACE_RUN_ID_MAX];

    /* whatever `slurm` is: NULL and 0 where it is not set */
    char *topology;        /* SLURM_TOPOLOGY_ADDR: switches and node, from the top */
    char *block;           /* of topology/block, which has this node */
    char *srun_host;       /* SLURM_LAUNCH_NODE_IPADDR */
    bool srun_labels;      /* srun --label has prefixes of its own */
    char *cpu_masks;       /* of all tasks of this node: SLURM_CPU_BIND_LIST of "mask_cpu" */
    uint32_t cpus_on_node; /* that the step has: SLURM_CPUS_ON_NODE */

    /* How many workers this node has: STEP, BATCH, INTERACTIVE; in ALLOC, nothing is known: 0 */
    uint32_t visible_gpus; /* UINT32_MAX: no variable says which GPUs this process may use */
    uint32_t nproc;        /* >= 1; without regard to --gpus-per-worker */
    bool nproc_is_gpus;    /* nproc is a number of GPUs */

    /* Variables from which it came; NULL: it is not known. Static texts. */
    struct {
        const char *n_nodes, *first_host, *run_id, *proc_id, *nproc, *job_nodelist;
    } from;
};

/* Returns 0 and fills in *ret, wherever this process is. -EINVAL and a sentence: this is a task of
 * a step, and a variable is missing or not a number; *ret then has `by`, `slurm` and what is of the
 * job.
 *
 * A worker of muster or torchrun (TORCHELASTIC_RUN_ID) that starts another job is in no place of
 * Slurm: the nodes, the tasks and the name of the step are those of its own job. */
_must_use_ int place_read(char *const *envp, const struct place_probes *probes, struct place *ret,
                          struct err *err);
void place_fini(struct place *p);

/* A task of a step, of muster's srun or the user's. */
static inline bool place_is_step(const struct place *p) { return p->slurm == PLACE_SLURM_STEP; }
/* On the first node of a job of Slurm, in no step of several nodes. */
static inline bool place_is_first_of_job(const struct place *p) {
    return p->slurm == PLACE_SLURM_BATCH || p->slurm == PLACE_SLURM_INTERACTIVE;
}
/* This process is one of a group that something else has started, whose sizes are known. */
static inline bool place_is_group(const struct place *p) {
    return place_is_step(p) ||
           (p->launcher != NULL && p->launcher->kind != LAUNCHER_ALLOC && p->n_nodes > 0);
}
/* It is on the first of several hosts, on which nothing is started yet. */
static inline bool place_is_alloc(const struct place *p) {
    return p->launcher != NULL && p->launcher->kind == LAUNCHER_ALLOC && p->job_nodes > 1;
}
/* One of muster's starters waits for this process, or for the agent of its node. */
static inline bool place_has_starter(const struct place *p) {
    return p->by == PLACE_BY_OWN_SRUN || p->by == PLACE_BY_OWN_SSH;
}

/* "step 28.0", "the batch script of job 28": for messages. */
#define PLACE_TEXT_MAX 128
void place_text(const struct place *p, char ret[PLACE_TEXT_MAX]);

/* Whether a host, as it is written in an endpoint, is this pod: its full name, the names that begin
 * it ("JOB-INDEX", "JOB-INDEX.SUBDOMAIN"), one of its addresses, or loopback. */
bool place_pod_is_own(const struct place_pod *p, const char *host);
/* As it is written: "localhost", or an address of the loopback interface. */
bool place_is_loopback(const char *host);

/* The ports at which the nodes of a run can meet, in the order in which they are tried: different
 * from each other, in low..high, and the same wherever the run's id is the same. Returns their
 * number: PLACE_PORTS_MAX, or fewer if the range has fewer. 1 <= low <= high. */
size_t place_ports(const char *run_id, uint16_t low, uint16_t high, uint16_t ret[PLACE_PORTS_MAX]);

/* ==== what a place fills in where the user gave nothing ====
 *
 *     struct place_given given = {.nnodes = false, …};
 *     r = place_fill(&place, &given, &fill, &err);
 *     if (fill.nodes == PLACE_NODES_STEP) … the nodes of this step are the nodes of the job …
 *
 * What the user gives wins, one by one. But where the nodes meet, the name of the run and the order
 * of the ranks belong together: who names a node where they meet, a master address or another
 * backend, or wants one node, arranges all of it, as with torchrun. Then each task is an agent,
 * unless --nnodes is the number of the step's nodes. A directory or etcd is only a place. */

/* On the command line, or by a PET_ variable. */
struct place_given {
    bool nnodes;
    uint32_t min_nodes, max_nodes; /* nnodes */
    bool nproc;
    bool node_rank;
    bool meets;     /* at which node they meet, how they do, or --standalone */
    bool elsewhere; /* which directory or etcd they meet in */
    bool alone;     /* --standalone */
};

struct place_fill {
    bool nnodes; /* it is place.n_nodes */
    bool nproc;  /* it is place.nproc, or so many GPUs: place.nproc_is_gpus */
    /* STEP: the group meets at place.first_host, where the agent with place.is_first leads, unless
     * place_given.elsewhere. WHOLE: the line asks for as many nodes as the step has. */
    enum place_nodes nodes;
};

/* Returns 0, or -EINVAL with a sentence: more nodes are asked for than the step has, or a task sees
 * too few GPUs. -EALREADY: the same, and the first task of the step prints it. */
_must_use_ int place_fill(const struct place *place, const struct place_given *given,
                          struct place_fill *ret, struct err *err);

/* ==== readers, for place_read() and tests ==== */

/* *p is zeroed. */
_must_use_ int place_read_slurm(char *const *envp, const struct place_facts *facts, struct place *p,
                                struct err *err);
/* launchers.c. After the readers of Slurm and the pod. 0, and p->launcher is NULL if no row
 * applies; -EINVAL and a sentence: p->launcher has started this process, and a value is missing. */
_must_use_ int place_read_launcher(char *const *envp, const struct place_probes *probes,
                                   const struct place_facts *facts, struct place *p,
                                   struct err *err);
/* Parts of a run id come from settings of others, and can have blanks and control characters. */
void place_clean_run_id(struct place *p);
/* hosts: the text of /etc/hosts, or NULL. An index that is not a number is bad_index. */
void place_read_pod(char *const *envp, const char *hosts, struct place_pod *ret);
