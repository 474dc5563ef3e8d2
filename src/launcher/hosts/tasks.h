/* Slurm's counts for each node, such as "2(x3),1": SLURM_TASKS_PER_NODE, SLURM_STEP_TASKS_PER_NODE,
 * SLURM_JOB_CPUS_PER_NODE. A count is followed by "(x#)" if # consecutive nodes have it; the order
 * is that of the node list. (sbatch(1), Output Environment Variables.) Pure.
 *
 *     struct tasks tasks;
 *     r = tasks_read("2(x3),1", 3, &tasks);       nodes 4, least 1, most 2, of_node 1 */
#pragma once

#include "base/util.h"

/* Of all counts, and so of the nodes in one text. */
#define TASKS_NODES_MAX 65536u
/* Of one node. (Slurm's own limit is 65533: MaxTasksPerNode, slurm.conf(5).) */
#define TASKS_COUNT_MAX 65536u

struct tasks {
    uint32_t nodes;       /* at least 1 */
    uint32_t least, most; /* of one node; equal if all nodes have the same */
    uint32_t of_node;     /* of the node that was asked for, if there are so many */
};

/* node: from 0. 0, -EINVAL (another form) or -ERANGE (a limit above); *ret is written only on 0. A
 * count may be 0. */
_must_use_ int tasks_read(const char *text, uint32_t node, struct tasks *ret);
