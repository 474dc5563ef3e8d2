/* The hosts of a job that muster itself starts, in order, each once, and how Slurm and users of
 * other launchers write them. Pure: the caller reads the host file.
 *
 *     struct hosts_input in = {.list = "node[01-04]:8", .exclude = "node03"};
 *     r = hosts_read(&in, &hosts, &err);
 *
 * -H takes entries, separated by commas or blanks:
 *     entry = [ user "@" ] names [ ":" slots ]
 *     names = an item of a host list, as node[01-04], or an IPv6 address in brackets
 *     slots = number of workers; "auto" or "*" leaves it open
 *
 * A host file has, on each line, entries separated by commas, then settings of them all; "#" begins
 * a comment:
 *     node01 slots=8 max_slots=16     Open MPI, DeepSpeed
 *     node01:8 user=me                MPICH, Intel MPI (Hydra)
 *     node[01-04]                     Slurm
 *     [fd00::7] port=2222
 * The lines of batch systems are read, too, where slots are CPUs and leave the workers open:
 *     host1 2 all.q@host1 UNDEFINED   Grid Engine: PE_HOSTFILE
 *     host1 8 host2 8                 LSF: LSB_MCPU_HOSTS
 * Settings are slots (also cpu, count), max_slots (also max_cpu, max_count, with "-", and with max
 * at the end), user (also username, user_name) and port, that of the host's sshd. max_slots must
 * not be less than slots, stands for slots if these are not given, and has no other effect.
 *
 * A host that is listed several times is one host, at its first place, and its slots add up; then a
 * mention without slots counts as one, so each line of a batch system's machine file is a worker.
 * Users and ports of one host must agree. Names are compared as texts.
 *
 * Sources: sge_pe(5), "pe_hostfile"; IBM Spectrum LSF, LSB_MCPU_HOSTS. Open MPI 5: docs,
 * "Scheduling processes across hosts"; host files and --host: PRRTE,
 * src/util/hostfile/hostfile_lex.l (names of settings), hostfile.c and dash_host/dash_host.c
 * (mentions that add up). MPICH: src/pm/hydra/utils/args/args.c. DeepSpeed: launcher/runner.py,
 * _parse_hostfile(), which refuses a second line of a host. Not read: Open MPI's "^host" and "+n1",
 * rank files, Hydra's binding=.
 *
 * --include and --exclude remove hosts and GPUs from these, as those of DeepSpeed do:
 *     "worker-0@worker-1:0,2"     worker-0, and GPUs 0 and 2 of worker-1
 *
 *     filter = spec *( "@" spec )
 *     spec   = names [ ":" number *( "," number ) ]
 *     names  = a host list, as worker-[0-3], or an IPv6 address in brackets
 *
 * --include keeps what it lists, --exclude the others; only one of them may be given.
 * Hosts stay in their order; GPUs of --include are used in the order written. Several specs
 * of one host add up. A host without a remaining GPU is removed. One GPU is one slot: a number must
 * be below the host's slots, and --exclude needs to know these.
 * (DeepSpeed: launcher/runner.py, parse_resource_filter(). There the last spec of a host holds in
 * --include, and names are no lists.) */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/idmap.h"
#include "base/util.h"

/* ==== host lists ====
 *
 * Slurm's lists, such as "gpu[01-03,07],login1": SLURM_JOB_NODELIST and its relatives, the
 * arguments of srun -w and -x, lines of a host file, topology.conf.
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

/* ==== hosts ==== */

#define HOSTS_MAX HOSTLIST_HOSTS_MAX
#define HOST_SLOTS_MAX 65536u
/* GPU numbers are below this. */
#define HOST_GPUS_MAX 256u

struct host {
    char *name;      /* owned: a name, or an address without its brackets */
    char *user;      /* owned; NULL: not given */
    uint32_t slots;  /* workers there; 0: not given */
    uint32_t n_gpus; /* 0: all GPUs; else equal to slots */
    uint32_t *gpus;  /* owned: n_gpus numbers of GPUs, each once, in the order of local ranks */
    uint16_t port;   /* of its sshd; 0: not given */
    uint32_t without_slots; /* how often it was listed without them */
};

struct hosts {
    struct host *items; /* owned */
    size_t n;
    struct idmap by_name;
};

void hosts_fini(struct hosts *h);
/* NULL: not found. Names are compared as texts. Valid until the next change. */
struct host *hosts_find(const struct hosts *h, const char *name);
/* Adds a host of a new name, which is copied. Valid until the next change. At most HOSTS_MAX. */
struct host *hosts_add(struct hosts *h, const char *name);
/* Keeps only the hosts whose flag is true. */
void hosts_keep(struct hosts *h, const bool *keep);

#define HOSTFILE_BYTES_MAX ((size_t)16 << 20)
/* Names in all entries, or all specs, together, those of one host counted each time. */
#define HOSTFILE_MENTIONS_MAX 1048576u

struct hosts_input {
    const char *list; /* of -H; NULL: not given */
    const char *file; /* the name of the host file, for errors; NULL: not given */
    const char *text; /* what it contains: `len` bytes; may be NULL if len is 0 */
    size_t len;
    const char *include, *exclude; /* filters; NULL: not given */
};

/* Reads what is given; n is 0 if nothing is. Returns 0, -EINVAL (a form that is not one of these,
 * or options that cannot be combined) or -ERANGE (a limit); the error begins with the option, or
 * with the file and the line. *ret is written only on 0, for hosts_fini(). */
_must_use_ int hosts_read(const struct hosts_input *in, struct hosts *ret, struct err *err);

/* For hosts without chosen GPUs. 0, -EINVAL or -ERANGE; *hosts is changed only on 0. */
_must_use_ int hosts_filter(struct hosts *hosts, const char *include, const char *exclude,
                            struct err *err);
