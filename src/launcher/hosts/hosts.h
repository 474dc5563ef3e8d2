/* The hosts of a job that muster itself starts, in order, each once. Pure.
 *
 * hostfile.h reads them, from -H and from host files; hostfilter.h removes some. */
#pragma once

#include <stdbool.h>

#include "base/idmap.h"
#include "base/util.h"
#include "launcher/hosts/hostlist.h"

#define HOSTS_MAX HOSTLIST_HOSTS_MAX
#define HOST_SLOTS_MAX 65536u
/* GPU numbers are below this. */
#define HOST_GPUS_MAX 256u

struct host {
    char *name;      /* owned: a name, or an address without its brackets */
    char *user;      /* owned; NULL: not told */
    uint32_t slots;  /* workers there; 0: not told */
    uint32_t n_gpus; /* 0: all GPUs; else equal to slots */
    uint32_t *gpus;  /* owned: n_gpus numbers of GPUs, each once, in the order of local ranks */
    uint16_t port;   /* of its sshd; 0: not told */
};

struct hosts {
    struct host *items; /* owned */
    size_t n, cap;
    struct idmap by_name;
};

void hosts_fini(struct hosts *h);
/* NULL: it is none of them. Names are compared as texts. Valid until the next change. */
struct host *hosts_find(const struct hosts *h, const char *name);
/* Adds a host, and copies its name, which must not be among them. Valid until the next change. The
 * caller checks HOSTS_MAX. */
struct host *hosts_add(struct hosts *h, const char *name);
/* Keeps only the hosts whose flag is true. */
void hosts_keep(struct hosts *h, const bool *keep);
