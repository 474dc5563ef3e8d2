/* What in a line that was written for torchrun does not fit the step or the job in which it runs.
 * Such a line means what it meant: it is run as it is, and these doubts are warnings. Each says
 * what will come of it and what to write. Pure.
 *
 *     slurm_doubt(&place, &given, &line, warnings);
 *
 * Only for a group that the user arranges (place_given.meets): a group of the step needs none of
 * what these lines get wrong. One task of the step tells, not each. */
#pragma once

#include "base/text/strbuf.h"
#include "launcher/place/fill.h"

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

/* Adds each doubt, with a newline. In a step, and in a batch script or an interactive step whose
 * line starts no step; otherwise there is none. */
void slurm_doubt(const struct place *place, const struct place_given *given,
                 const struct doubt_line *line, struct strbuf *warnings);
