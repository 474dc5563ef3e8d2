/* What the files of this node's workers share. Private to these files.
 *   local_workers_io.c       a generation's preparation, start and end; what becomes of its workers
 *   local_workers_make_io.c  what a worker is started with
 *   local_workers_warm_io.c  the pool of warm workers */
#pragma once

#include "launcher/node/node_setup_io.h"
#include "launcher/output/logmux_io.h"
#include "launcher/output/worker_logs_io.h"
#include "launcher/supervise/local_workers_io.h"
#include "launcher/supervise/worker_io.h"
#include "launcher/worker/notify_io.h"

#define LOCAL_LEFT_MAX 8 /* of more, the oldest are killed */

struct local_workers {
    struct loop *loop;
    struct local_workers_config config;
    struct local_workers_ops ops;
    void *arg;
    struct notify *notify; /* NULL: it could not be made; workers run without it */
    char *oom_file;        /* NULL: the kernel's count is not available */
    bool omp_told;

    struct worker_logs *files; /* folders of log and error files */
    char *recorded;            /* the folder that "muster logs" was told, "" for none; or NULL */

    struct generation generation;
    char generation_text[32];
    struct form form;
    struct node_setup setup;    /* what this node gives its workers */
    bool no_memory_policy;      /* the kernel refuses them here */
    struct node_discovery *way; /* route to the leader of this generation; NULL: not needed */
    bool way_is_lent;           /* it is not owned */
    unsigned awaits;            /* AWAITS_*: what prepare still waits for */
    char *said;                 /* how workers are bound, as last reported */
    struct logmux *logs;
    struct failure **pending; /* [nproc] failures whose last output is awaited; NULL: none */
    struct failure *
        *doubted; /* [nproc] failures that may be the end of the whole node; NULL: none */
    uint32_t n_doubted;
    struct loop_timer *doubt_timer;
    uint64_t doubt_ns;           /* how long such a failure waits; 0: not at all */
    struct announced *announced; /* [nproc] what they have told since their start */
    char **tails;                /* [nproc] the last lines of a failed worker's stderr, or NULL */
    uint32_t n_tails;
    struct warm_pool *warm;            /* NULL: without --warm */
    struct generation warm_generation; /* of the last start, which its facts are about */
    struct worker_group *workers;
    struct local_leftovers {
        struct worker_group *workers;
        struct logmux *logs; /* what they write; NULL: it is not read any more */
    } left[LOCAL_LEFT_MAX];  /* of earlier groups, whose processes get their time; the oldest first
                              */
    uint32_t n_left;
    struct worker_group *ending; /* one of these: what it kept is ending, and is awaited; or NULL */
    struct envlist env;          /* of the worker that is being started, like its argv */
    char **argv;
    uint32_t unmade;      /* the worker that could not be prepared; UINT32_MAX: none */
    uint32_t n_ok;        /* workers that ended with 0, */
    uint32_t n_early;     /* those of them that were not asked to stop, */
    uint32_t first_early; /* and the local rank of the first of these */
    bool told_to_stop;
    int expects;       /* a signal that workers get from elsewhere; 0: none */
    uint64_t grace_ns; /* the longest grace of a stop */
    bool running;      /* started, not all gone */
    uint32_t fences;   /* guardian_fences() before the workers were started */
};

/* Makes the pool, if the job has one. */
_must_use_ int local_workers_warm_new(struct local_workers *c);

struct node_setup_place local_workers_place(const struct local_workers *c,
                                            const struct netif_choice *netif);
void local_workers_group_config(const struct local_workers *c, struct worker_group_config *ret);

/* Of the worker group: worker_group_ops. */
int local_workers_make(void *arg, uint32_t i, struct worker_spec *ret, struct err *err);
void local_workers_made(void *arg, uint32_t i);

/* -EINVAL: rank 0 opens the workers' store, but not on this host. */
_must_use_ int local_workers_check_own_store(const struct local_workers *c, struct err *err);
