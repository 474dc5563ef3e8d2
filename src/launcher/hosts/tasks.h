/* Slurm's counts for each node, such as "2(x3),1": SLURM_TASKS_PER_NODE, SLURM_STEP_TASKS_PER_NODE,
 * SLURM_JOB_CPUS_PER_NODE. A count is followed by "(x#)" if # consecutive nodes have it; the order
 * is that of the node list. (sbatch(1), Output Environment Variables.) Pure.
 *
 *     struct tasks tasks;
 *     r = tasks_read("2(x3),1", &tasks, &err);       nodes 4, least 1, most 2
 *     r = tasks_of_node("2(x3),1", 3, &n, &err);     1 */
#pragma once

#include "base/err.h"

/* Of all counts, and so of the nodes in one text. */
#define TASKS_NODES_MAX 65536u
/* Of one node. (Slurm's own limit is 65533: MaxTasksPerNode, slurm.conf(5).) */
#define TASKS_COUNT_MAX 65536u

struct tasks {
    uint32_t nodes;       /* at least 1 */
    uint32_t least, most; /* of one node; equal if all nodes have the same */
};

/* Both return 0, -EINVAL (another form) or -ERANGE (a limit above); the error quotes the text and
 * says where in it. *ret is written only on 0. A count may be 0. */
_must_use_ int tasks_read(const char *text, struct tasks *ret, struct err *err);
/* Of one node; the first is 0. -ERANGE also if the text has fewer nodes. */
_must_use_ int tasks_of_node(const char *text, uint32_t node, uint32_t *ret, struct err *err);
