/* What a place in Slurm fills in where the user said nothing. Pure.
 *
 *     struct place_given given = {.nnodes = false, …};
 *     r = place_fill(&place, &given, &fill, &err);
 *     if (fill.nodes == PLACE_NODES_STEP) … the nodes of this step are the nodes of the job …
 *
 * What the user says wins, one by one. But where the nodes meet, the name of the run and the order
 * of the ranks belong together: who names a node where they meet, a master address or another
 * backend, or wants one node, arranges all of it, as with torchrun. Then each task is an agent,
 * unless --nnodes is the number of the step's nodes. A directory or etcd is only a place. */
#pragma once

#include "base/text/strbuf.h"
#include "launcher/place/place.h"

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

/* ==== doubts ==== */

/* What in a line that was written for torchrun does not fit the step or the job in which it runs.
 * Such a line means what it meant: it is run as it is, and these doubts are warnings. Each says
 * what will come of it and what to write. Pure.
 *
 *     slurm_doubt(&place, &given, &line, warnings);
 *
 * Only for a group that the user arranges (place_given.meets): a group of the step needs none of
 * what these lines get wrong. One task of the step tells, not each. */

struct doubt_line {
    uint32_t min_nodes, max_nodes;
    bool one_agent;     /* a node of the step is one of the group, whatever its tasks: place_fill */
    bool spares;        /* it says how many nodes may wait for a place */
    const char *host;   /* where they meet, as it was written; NULL: not at a host */
    const char *script; /* the program to run */
    bool ranks_are_fixed;  /* a node has the rank that it asks for (static) */
    int32_t node_rank;     /* -1: none is given */
    const char *srun_host; /* SLURM_LAUNCH_NODE_IPADDR, NULL: not set */
    bool from_batch;       /* srun runs in the batch script: on the job's first node */
};

/* Adds each doubt, with a newline: in a step, or in a batch script whose line starts no step. */
void slurm_doubt(const struct place *place, const struct place_given *given,
                 const struct doubt_line *line, struct strbuf *warnings);
