/* Finds a job's agents, for "muster status" and similar commands: turns the place that the operator
 * named, or the agents of this machine, into addresses. A head is found only where no agent is.
 *
 *     struct job_place place = {.endpoint = "dir:/shared/ckpt", .run_id = "digits"};
 *     r = job_find(loop, &place, &found, &err);
 *     … operator_ask() at found.list[0].host, found.list[0].port
 *     job_found_fini(&found); */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "rendezvous/operate/registry_io.h"

struct job_place {
    /* HOST[:PORTS] as --rdzv-endpoint has them, dir:/path, etcd://…, or, without run_id, first the
     * run id of a job that runs or ran on this machine; NULL: this machine's agents */
    const char *endpoint;
    /* NULL: any job; without endpoint also the beginning of the id of only one run here */
    const char *run_id;
    const char *conf;    /* as --rdzv-conf, for etcd; NULL: none */
    uint64_t timeout_ns; /* the limit for asking an arbiter; 0: the arbiter's own */
    bool one_agent;      /* a specific agent is wanted, not any agent of its job */
    /* For root: also other users' jobs on this machine; with run_id anyway, if root has none. */
    bool all_users;
    bool begins; /* set by job_find(): no run here has the whole run_id */
};

struct job_found {
    /* Owned; agents to try in turn until one answers. One that is not of this machine has pid 0,
     * this user's uid, and as its address perhaps a name; run_id "": not known */
    struct registry_entry *list;
    size_t n;
    /* Of a job whose agents are all on other machines as far as is known here: the process that was
     * started by hand, and can't be asked. pid 0: there is none */
    struct registry_entry head;
    bool
        closed; /* the job is over, and n is 0; the arbiter, or this machine, knows how it ended: */
    struct overview overview;
    char run_id[RDZV_RUN_ID_MAX]; /* of a closed job, or about which the arbiter was asked */
    char *arbiter_dir;            /* the directory, if it was one; else NULL */
};

/* 0: n >= 1, or closed. A negative errno comes with a sentence: -EINVAL: the text does not name a
 * place (a usage error); -ENOENT: there is no such job; -EEXIST: several, which are in `list` (port
 * 0: one that has ended); -EREMOTE: only its head is here, which is in `head`; -EHOSTUNREACH: the
 * arbiter can't be reached; or another. The caller frees *ret in any case. */
_must_use_ int job_find(struct loop *loop, const struct job_place *place, struct job_found *ret,
                        struct err *err);
void job_found_fini(struct job_found *found);
/* Gives an agent of this machine that does not answer 200 ms to end: it may have been killed. */
void job_await_end(const struct registry_entry *agent);
/* Has this head end its job, as SIGTERM does. 0, or a negative errno with a sentence. */
_must_use_ int job_stop_head(const struct registry_entry *head, struct err *err);
