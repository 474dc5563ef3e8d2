/* Where a job's agents are, for "muster status" and its like: from what the operator named, or from
 * what runs on this machine, to addresses that can be asked.
 *
 *     struct job_place place = {.endpoint = "dir:/shared/ckpt", .run_id = "digits"};
 *     r = job_find(loop, &place, &found, &err);
 *     … operator_ask() at found.list[0].host, found.list[0].port
 *     job_found_fini(&found); */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/arbiter/arbiter.h"

struct job_place {
    const char *endpoint; /* HOST[:PORT], dir:/path, etcd://…; NULL: this machine's agents */
    const char *run_id;   /* NULL: whichever */
    const char *conf;     /* as --rdzv-conf, for etcd; NULL: none */
    uint64_t timeout_ns;  /* of asking an arbiter; 0: its own */
    bool one_agent;       /* a certain agent is wanted, not any of its job */
};

struct job_target {
    char host[RDZV_ADDRS_MAX]; /* a name, or literal addresses separated by commas */
    uint16_t port;
    char run_id[RDZV_RUN_ID_MAX]; /* "": not known */
    int32_t pid;                  /* of this machine's agents; else 0 */
};

struct job_found {
    struct job_target *list; /* owned; to be asked in turn until one answers */
    size_t n;
    bool closed; /* the arbiter says that the job is over: `record`; n is 0 */
    struct arbiter_record record;
    char run_id[RDZV_RUN_ID_MAX]; /* that the arbiter was asked for; else "" */
};

/* 0: n >= 1, or closed. With a sentence: -EINVAL: what was named is no place (a usage error);
 * -ENOENT: there is no such job; -EEXIST: several, and `list` has them; -EHOSTUNREACH: the arbiter
 * can't be asked; or another negative errno. job_found_fini() in every case. */
_must_use_ int job_find(struct loop *loop, const struct job_place *place, struct job_found *ret,
                        struct err *err);
void job_found_fini(struct job_found *found);
