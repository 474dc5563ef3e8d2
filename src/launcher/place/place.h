/* Where in Slurm this process is, and what Slurm's variables say about the job and its step. Pure:
 * the environment and a few facts of /proc come in (place_io.h reads them), the place and the
 * variables from which each value came go out.
 *
 *     _cleanup_(place_fini) struct place place = {0};
 *     r = place_read(environ, &facts, &place, &err);
 *     if (place.kind == PLACE_SLURM_STEP) … place.n_nodes, place.node_id, place.first_host …
 *
 * Variables alone prove nothing. SLURM_STEP_* leak: into a batch script that was submitted from
 * inside a step, and into a shell that salloc started there. An interactive step and a batch script
 * look like rank 0 of a step of one node. So there are two witnesses, of which one is enough: the
 * title of the nearest slurmstepd above this process, and the path of its control group. Both name
 * a job and a step ("[28.batch]", "job_28/step_0"). Where there are none (a container with its own
 * pid namespace), the variables have to agree with each other: SLURM_STEP_NUM_NODES with
 * SLURM_NNODES, SLURM_STEP_NUM_TASKS with SLURM_NTASKS, and SLURM_STEP_ID is that of an ordinary
 * step.
 *
 * Sources: srun(1), sbatch(1), salloc(1), "OUTPUT ENVIRONMENT VARIABLES"; slurm/slurm.h for the ids
 * of special steps; titles and control groups as seen with Slurm 22.05. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

/* Ids from here on are of special steps: batch script, interactive step, external step
 * (slurm/slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP, SLURM_EXTERN_CONT). */
#define SLURM_SPECIAL_STEP UINT32_C(0xfffffff0)

enum place_slurm {
    PLACE_SLURM_NONE = 0, /* no job of Slurm: no SLURM_JOB_ID */
    PLACE_SLURM_STEP,     /* a task that srun started */
    PLACE_SLURM_BATCH,    /* the batch script, or a program that it runs, on the job's first node */
    PLACE_SLURM_ALLOC,    /* has a job, and is in no step of it: a shell of salloc, or a login */
    PLACE_SLURM_INTERACTIVE, /* the interactive step of salloc, on the job's first node */
};

/* What /proc says about this process; texts are borrowed. All zero: nothing is known. */
struct place_facts {
    const char *cgroup; /* text of /proc/self/cgroup; NULL: can't be read */
    /* title of the nearest slurmstepd among the ancestors: "slurmstepd: [28.0]"; NULL: none is seen
     */
    const char *stepd;
    bool stepd_is_parent; /* and it is the parent of this process */
    const char *parent;   /* name of the parent's program ("bash"), NULL: not known */
};

/* How the head tells the agents where it is, by their environment. muster takes these out of the
 * workers' (worker_env.h: all MUSTER_*). */
/* "10.0.0.1,fd77::1:4711": addresses and port; over ssh "fd:3": a connected socket */
#define STARTER_HEAD_ENV "MUSTER_HEAD"
#define STARTER_FD_PREFIX "fd:"
#define STARTER_TOKEN_ENV "MUSTER_HEAD_TOKEN" /* STARTER_TOKEN_CHARS hexadecimal digits */
/* The key of the job (starter_key_io.h): as auth_key.h writes it, or STARTER_NO_KEY. muster takes
 * it out of its own environment, too, when it begins. */
#define STARTER_KEY_ENV "MUSTER_HEAD_KEY"
#define STARTER_NO_KEY "none"
/* Over ssh: "1" on the node where the others meet, "0" on these. What --rdzv-conf says of is_host
 * comes first. Two hosts may have one address (names of one machine, NAT), so addresses don't tell.
 */
#define STARTER_FIRST_ENV "MUSTER_HEAD_FIRST"
/* The python that would run the workers on the head's machine. */
#define STARTER_PYTHON_ENV "MUSTER_HEAD_PYTHON"
/* Over ssh: how many words behind "run" are the head's own, before the user's. */
#define STARTER_WORDS_ENV "MUSTER_HEAD_WORDS"
/* What the job has asked for, and the step's own variables can't tell: its tasks on each node, and
 * the user's SLURM_CPUS_PER_TASK, which programs read. */
#define STARTER_TASKS_ENV "MUSTER_STEP_TASKS"
#define STARTER_CPUS_ENV "MUSTER_STEP_CPUS_PER_TASK"

/* Of a heterogeneous job: Slurm allows as many (MAX_HET_JOB_COMPS of its sources). */
#define SLURM_COMPONENTS_MAX 128

#define PLACE_PORTS_MAX 16
#define PLACE_RUN_ID_MAX 200 /* bytes, with the NUL */
/* The ports of a run, if the user gave no range: below the range from which Linux takes ports for
 * connections (ip_local_port_range, from 32768: ip(7)), and below Kubernetes' (from 30000). */
#define PLACE_PORT_LOW 12000
#define PLACE_PORT_HIGH 28999

/* Texts are owned: place_fini(). Numbers are 0 and texts NULL where nothing is known. */
struct place {
    enum place_slurm kind;

    /* of the job, for each kind but NONE */
    char *job_id;  /* "28"; of an array's task, its own number */
    char *cluster; /* SLURM_CLUSTER_NAME */
    uint32_t
        restarts; /* how often Slurm has put the job back into the queue and started it again */
    /* of all components, if it has some. STEP: of the step, because srun sets the job's variables
     * to its own */
    uint32_t job_nodes;
    char *job_nodelist;    /* as a hostlist; never updated when a node is lost */
    char *tasks_per_node;  /* "2(x3),1": SLURM_TASKS_PER_NODE, a step's own in STEP */
    uint32_t gpus_on_node; /* SLURM_GPUS_ON_NODE: of this node */
    uint32_t het_size;     /* components of a heterogeneous job; 0: it is none */

    /* of the step: STEP only */
    char *step_id; /* "0" */
    char *step_nodelist;
    char *first_host;    /* of step_nodelist */
    bool is_first;       /* this node is that host */
    uint32_t n_nodes;    /* >= 1 */
    uint32_t n_tasks;    /* of the whole step, >= n_nodes */
    uint32_t node_tasks; /* on this node, >= 1 */
    uint32_t most_tasks; /* of any node: 1 if every node has one */
    uint32_t node_id;    /* of this node in step_nodelist, from 0 */
    uint32_t local_id;   /* of this task on its node, from 0 */
    uint32_t proc_id;    /* of this task in the step: the order of ranks */
    bool task_is_shell;  /* Slurm's task is a shell, whose child this is: it gets Slurm's signals */
    char run_id[PLACE_RUN_ID_MAX]; /* "cluster.job.step", ".restarts" if there were any; also in
                                      other kinds, without the step */

    /* How many workers this node has: STEP, BATCH, INTERACTIVE; in ALLOC, nothing is known: 0 */
    uint32_t visible_gpus; /* UINT32_MAX: no variable says which GPUs this process may use */
    uint32_t nproc;        /* >= 1; without regard to --gpus-per-worker */
    bool nproc_is_gpus;    /* nproc is a number of GPUs */

    /* The variable, or variables, from which it came ("SLURM_STEP_NUM_NODES"); NULL: nothing is
     * known. Static texts. */
    struct {
        const char *n_nodes, *first_host, *run_id, *proc_id, *nproc;
    } from;
};

void place_fini(struct place *p);

/* Whether a job of Slurm is in the environment: otherwise its place is NONE, and facts are not
 * needed. A worker of muster or torchrun (TORCHELASTIC_RUN_ID) that starts another job is in no
 * place of Slurm: the nodes, the tasks and the name of the step are those of its own job. */
bool place_is_in_slurm(char *const *envp);

/* Returns 0 and fills in *ret, also if there is no Slurm. -EINVAL: this is a task of a step, and a
 * variable is missing or is no number; *ret then has `kind` and what is of the job. */
_must_use_ int place_read(char *const *envp, const struct place_facts *facts, struct place *ret,
                          struct err *err);

/* "step 28.0", "the batch script of job 28": for messages. */
#define PLACE_TEXT_MAX 128
void place_text(const struct place *p, char ret[PLACE_TEXT_MAX]);

/* The ports at which the nodes of a run can meet, in the order in which they are tried: different
 * from each other, in low..high, and the same wherever the run's id is the same. Returns their
 * number: PLACE_PORTS_MAX, or fewer if the range has fewer. 1 <= low <= high. */
size_t place_ports(const char *run_id, uint16_t low, uint16_t high, uint16_t ret[PLACE_PORTS_MAX]);
