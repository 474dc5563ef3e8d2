/* Reads the hosts of a job, as users of other launchers write them. Pure: its caller reads the host
 * file.
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
 * Settings are slots (also cpu, count), max_slots (also max_cpu, max_count, with "-", and with max
 * at the end), user (also username, user_name) and port, that of the host's sshd. max_slots must
 * not be less than slots, stands for slots if these are not told, and says nothing else here.
 *
 * A host that is named several times is one host, at its first place, and its slots add up; then a
 * mention without slots counts as one, so each line of a batch system's machine file is a worker.
 * Users and ports of one host must agree. Names are compared as texts.
 *
 * Sources: Open MPI 5: docs, "Scheduling processes across hosts"; host files and --host: PRRTE,
 * src/util/hostfile/hostfile_lex.l (names of settings), hostfile.c and dash_host/dash_host.c
 * (mentions that add up). MPICH: src/pm/hydra/utils/args/args.c. DeepSpeed: launcher/runner.py,
 * _parse_hostfile(), which refuses a second line of a host. Not read: Open MPI's "^host" and "+n1",
 * rank files, Hydra's binding=. */
#pragma once

#include "base/err.h"
#include "launcher/hosts/hosts.h"

#define HOSTFILE_BYTES_MAX ((size_t)16 << 20)
/* Names in all entries together, those of one host counted each time. */
#define HOSTFILE_MENTIONS_MAX 1048576u

struct hosts_input {
    const char *list; /* of -H; NULL: not given */
    const char *file; /* the name of the host file, for errors; NULL: not given */
    const char *text; /* what it contains: `len` bytes; may be NULL if len is 0 */
    size_t len;
    const char *include, *exclude; /* see hostfilter.h; NULL: not given */
};

/* Reads what is given; no hosts (n is 0) if nothing is. Returns 0, -EINVAL (a form that is not one
 * of these, or options that do not go together) or -ERANGE (a limit); the error begins with the
 * option, or with the file and the number of the line. *ret is written only on 0, and then belongs
 * to the caller: hosts_fini(). */
_must_use_ int hosts_read(const struct hosts_input *in, struct hosts *ret, struct err *err);
