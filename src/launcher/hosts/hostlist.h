/* Slurm's lists of hosts, such as "gpu[01-03,07],login1": SLURM_JOB_NODELIST and its relatives, the
 * arguments of srun -w and -x, lines of a host file. Pure.
 *
 *     struct hostlist hosts;
 *     r = hostlist_expand("gpu[01-03]", &hosts, &err);      gpu01 gpu02 gpu03
 *     hostlist_fini(&hosts);
 *
 *     list   = item *( sep item )              sep: one or more of comma, blank, tab, line end
 *     item   = text *( "[" ranges "]" text )   a text may be empty, an item not
 *     ranges = range *( "," range )            no blanks
 *     range  = digits [ "-" [ digits ] ]       "7-" is read as "7"
 *
 * The width of a range's first number pads all its numbers: [08-11] is 08 09 10 11, and [98-101] is
 * 98 99 100 101. Several brackets are a product: the last one runs fastest, then the first, the
 * second, and so on: r[1-2]c[1-2]n[1-2] begins with r1c1n1 r1c1n2 r2c1n1.
 * Nothing is sorted, and a host that is named twice occurs twice.
 * (Grammar and order: src/common/hostlist.c of Slurm, tried with scontrol show hostnames of 22.05.)
 *
 * Unlike Slurm 22.05, a bracket that is not closed or was not opened is an error, and a text after
 * the last bracket ("d[9-11]-x") is accepted, as in newer releases. Names consist of letters,
 * digits, "-", "_" and ".", and do not begin with "-": they become arguments of other programs. */
#pragma once

#include "base/err.h"
#include "base/util.h"

/* What one list can name. 64 Ki is Slurm's own limit for one range. */
#define HOSTLIST_HOSTS_MAX 65536u
/* Bytes of one name, without the NUL. A name of the DNS has 253 at most (RFC 1035, 2.3.4). */
#define HOSTLIST_NAME_MAX 255u
#define HOSTLIST_BRACKETS_MAX 8u /* of one item */
/* Bytes of a list. */
#define HOSTLIST_TEXT_MAX ((size_t)HOSTLIST_HOSTS_MAX * (HOSTLIST_NAME_MAX + 3))

struct hostlist {
    char **names; /* owned; the texts are in `text` */
    char *text;   /* owned; at most HOSTLIST_HOSTS_MAX * (HOSTLIST_NAME_MAX + 1) bytes */
    size_t n;     /* at least 1 after hostlist_expand() */
};

void hostlist_fini(struct hostlist *l);

/* Expands a list into its names, in their order. 0, -EINVAL (not a list, or no host) or -ERANGE (a
 * limit above), with the list and where in it. *ret is written only on 0. */
_must_use_ int hostlist_expand(const char *list, struct hostlist *ret, struct err *err);

/* Counts for each node of such a list, as "2(x3),1": SLURM_TASKS_PER_NODE,
 * SLURM_STEP_TASKS_PER_NODE, SLURM_JOB_CPUS_PER_NODE. A count is followed by "(x#)" if #
 * consecutive nodes have it. (sbatch(1), Output Environment Variables.)
 *
 *     struct tasks tasks;
 *     r = tasks_read("2(x3),1", 3, &tasks);       nodes 4, least 1, most 2, of_node 1 */

/* Of all counts, and so of the nodes in one text. */
#define TASKS_NODES_MAX 65536u
/* Of one node. (Slurm's own limit is 65533: MaxTasksPerNode, slurm.conf(5).) */
#define TASKS_COUNT_MAX 65536u

struct tasks {
    uint32_t nodes;       /* at least 1 */
    uint32_t least, most; /* of one node; equal if all nodes have the same */
    uint32_t of_node;     /* of the node that was asked for, if there are so many */
};

/* node: from 0. 0, -EINVAL (another form) or -ERANGE (a limit above). A count may be 0. */
_must_use_ int tasks_read(const char *text, uint32_t node, struct tasks *ret);
