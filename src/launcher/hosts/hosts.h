/* The hosts of a job that muster itself starts, in order, each once, and how users of other
 * launchers write them. Pure: the caller reads the host file.
 *
 *     struct hosts_input in = {.list = "node[01-04]:8", .exclude = "node03"};
 *     r = hosts_read(&in, &hosts, &err);
 *
 * -H takes entries, separated by commas or blanks:
 *     entry = [ user "@" ] names [ ":" slots ]
 *     names = an item of a host list, as node[01-04] (hostlist.h), or an IPv6 address in brackets
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
 *     names  = a host list (hostlist.h), as worker-[0-3], or an IPv6 address in brackets
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
#include "launcher/hosts/hostlist.h"

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
