/* What a place in Slurm fills in where the user said nothing. Pure.
 *
 *     struct place_given given = {.nnodes = false, …};
 *     r = place_fill(&place, &given, &fill, &err);
 *     if (fill.nodes == PLACE_NODES_STEP) … the nodes of this step are the nodes of the job …
 *
 * What the user says wins, one by one. But where the nodes meet, the name of the run and the order
 * of the ranks belong together: who names a node where they meet, a master address or another
 * backend, or wants one node, arranges all of it, as with torchrun. Then each task is an agent,
 * also if a node has several, unless --nnodes is the number of the step's nodes. A directory or
 * etcd is only where they meet. */
#pragma once

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
