/* Removes hosts and GPUs from those of a job, as --include and --exclude of DeepSpeed do. Pure.
 *
 *     "worker-0@worker-1:0,2"     worker-0, and GPUs 0 and 2 of worker-1
 *
 *     filter = spec *( "@" spec )
 *     spec   = names [ ":" number *( "," number ) ]
 *     names  = a host list (hostlist.h), as worker-[0-3], or an IPv6 address in brackets
 *
 * --include keeps what it names, --exclude what it does not name; only one of them may be given.
 * Hosts stay in their order; GPUs of --include are used in the order written. What several specs
 * say of one host adds up. A host without a GPU left is removed. One GPU is one slot: a number must
 * be below the host's slots, and --exclude needs to know these.
 * (DeepSpeed: launcher/runner.py, parse_resource_filter(). There the last spec of a host holds in
 * --include, and names are no lists.) */
#pragma once

#include "base/err.h"
#include "launcher/hosts/hosts.h"

/* Names in all specs together. */
#define HOSTFILTER_NAMES_MAX 1048576u

/* The hosts are as hostfile.h reads them: no GPUs were chosen yet. include and exclude may be NULL:
 * not given. Returns 0, -EINVAL or -ERANGE; the error begins with the option. *hosts is changed
 * only on 0. */
_must_use_ int hosts_filter(struct hosts *hosts, const char *include, const char *exclude,
                            struct err *err);
